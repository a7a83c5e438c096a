// Wrong arguments, element by element, with the exact findings; and what holds for every class's schema.
#include <gtest/gtest.h>

#include <set>

#include "elements/testing.h"
#include "graph/processing.h"

namespace sluice {
namespace {

using testing::findings;
using testing::findings_of;

TEST(Arguments, WrongOnesAreFoundWhereTheyStand) {
  const std::pair<const char*, const char*> cases[] = {
      {"Paint(1, 20)", "2:10: a packet has one paint; ANNO cannot name another byte [leave ANNO out]"},
      {"Classifier(12/080)", "2:12: '080' has an odd number of digits"},
      {"Classifier(-, 12/08 x/00)", "2:21: 'x/00' does not start with an offset and '/'"},
      {"Classifier(12/0800%ff)", "2:12: the mask 'ff' has 2 digits and the value '0800' has 4"},
      {"Classifier(12/08zz)", "2:12: 'z' is not a hexadecimal digit or '?'"},
      {"Classifier(12/)", "2:12: '12/' has no value"},
      {"Classifier(70000/00)", "2:12: offset 70000 is past 65535"},
      {"CheckIPHeader(BADSRC 10.0.0.1 10.0.0.300)", "2:31: '10.0.0.300' is not an IPv4 address"},
      {"CheckIP6Header(BADSRC 10.0.0.1)", "2:23: '10.0.0.1' is not an IPv6 address"},
      {"CheckIPHeader(INTERFACES 10.0.0.1/40)", "2:26: '10.0.0.1/40' is not an IPv4 address with a prefix length"},
  };
  for (const auto& [element, want] : cases) EXPECT_EQ(findings_of(element), want) << element;
}

TEST(Arguments, OfElementsThatNeedAKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"ACL()", "2:22: neither TABLE nor FILE is given"},
      {"ACL(t, FILE f)", "2:30: both TABLE and FILE are given"},
      {"ACL(t, ALGORITHM linear)", "2:35: ALGORITHM belongs to the table [write it in AclTable(t, ...)]"},
      {"IPLookup(10.0.0.0/33 0)", "2:27: '10.0.0.0/33' is not an IPv4 prefix"},
      {"IPLookup(10.0.0.0/8 x 0)", "2:38: 'x' is not an IPv4 address"},
      {"IPLookup(10.0.0.0/8 300)", "2:38: '300' is not an output from 0 to 254"},
      {"IPLookup(10.0.0.0/8)", "2:27: a route has 2 or 3 words, not 1"},
      {"ICMPError(10.0.0.1 10.0.0.2)", "2:37: '10.0.0.2' is a second IPv4 address"},
      {"ICMPError(nobody)", "2:28: 'nobody' is not an IP address"},
      {"ICMPError(10.0.0.1, redirect)", "2:38: 'redirect' is not an ICMP error type that can be made here"},
      {"ICMPError(10.0.0.1, unreachable, 99)", "2:51: '99' is not an ICMP error code that can be made here"},
  };
  for (const auto& [element, want] : cases)
    EXPECT_EQ(findings_of(std::string("CheckIPHeader -> ") + element), want) << element;
}

TEST(Arguments, OfPorts) {
  EXPECT_EQ(findings("FromDump(a, FORCE_IP true) -> Discard;"),
            "1:22: packets start with their link header here; FORCE_IP is not supported [put IPInput after FromDump, "
            "or Strip(14) and CheckIPHeader]");
  EXPECT_EQ(findings("FromDump(a, START 5) -> Discard;"),
            "1:19: START chooses packets by time, which is not supported [SKIP and LIMIT choose packets by number]");
  EXPECT_EQ(findings("FromDump(a, TIMING true) -> Discard;"),
            "1:20: packets are read as fast as they are processed; TIMING has no effect");
  EXPECT_EQ(findings("FromDump(a, STOP true, LIMIT 5) -> ToDump(b, SNAPLEN 96, NANO false, ENCAP ether);"), "");
}

TEST(Graph, FindsEveryErrorAtOnce) {
  EXPECT_EQ(findings("InfiniteSource -> Clasifier(-) -> Discard;\nInfiniteSource -> t :: Tee(2) -> "
                     "Discard;\nInfiniteSource -> ACL(e) -> d :: "
                     "Discard;\nd -> Discard;\n"),
            "1:19: unknown element class 'Clasifier' [did you mean Classifier?]\n"
            "2:19: output 1 of 't' (Tee) is not connected [connect it to Discard to drop its packets]\n"
            "4:3: 'd' has no output 0");
}

TEST(Graph, AnOutputGoesToOnePlace) {
  EXPECT_EQ(findings("s :: InfiniteSource;\ns -> a :: Discard;\ns -> b :: Discard;"),
            "3:3: output 0 of 's' is connected twice: to 'a' and to 'b' [put a Tee between them to send each packet "
            "both ways, or a Classifier to "
            "choose]");
}

TEST(Graph, StagesNeedWhatTheyRead) {
  EXPECT_EQ(
      findings("InfiniteSource -> ACL(e) -> Discard;"),
      "1:19: ACL reads the packet's key, which nothing before it writes [put CheckIPHeader or IPInput before it]");
  EXPECT_EQ(
      findings("InfiniteSource -> DecIPTTL -> Discard;"),
      "1:19: DecIPTTL reads the packet's key, which nothing before it writes [put CheckIPHeader or IPInput before it]");
  EXPECT_EQ(
      findings("InfiniteSource -> IPInput -> AdjacencyRewrite(a) -> Discard;"),
      "1:30: AdjacencyRewrite reads the packet's next hop, which nothing before it writes [put IPRoute before it]");
  EXPECT_EQ(findings("InfiniteSource -> IPInput -> t :: Tee -> IPRoute(f) -> AdjacencyRewrite(a) -> Discard; t[1] -> "
                     "ACL(e) -> Discard;"),
            "");
}

TEST(Graph, EveryWayMustWriteIt) {
  EXPECT_EQ(findings("good :: InfiniteSource -> IPInput -> acl :: ACL(e) -> Discard;\nbad :: InfiniteSource -> acl;"),
            "1:38: ACL reads the packet's key, which nothing before it writes on the way from 'bad' [put CheckIPHeader "
            "or IPInput before it]");
}

TEST(Graph, ACycleDoesNotHideAGap) {
  EXPECT_EQ(
      findings("InfiniteSource -> c :: Classifier(12/0800, -); c[0] -> IPInput -> c; c[1] -> DecIPTTL -> Discard;"),
      "1:78: DecIPTTL reads the packet's key, which nothing before it writes [put CheckIPHeader or IPInput before it]");
}

TEST(Schema, EveryClassIsDocumentedAndItsOptionsAreSound) {
  std::set<std::string> names;
  for (const auto& c : testing::all_elements().classes()) {
    EXPECT_EQ(check_specs(c->arguments), "") << c->name;
    EXPECT_TRUE(is_processing_code(processing_code(*c, c->make(c->name)->kind()))) << c->name;
    EXPECT_FALSE(c->summary.empty()) << c->name;
    EXPECT_FALSE(c->description.empty()) << c->name;
    EXPECT_FALSE(c->group.empty()) << c->name;
    EXPECT_NE(c->example.find(c->name), std::string::npos) << c->name;
    for (const ArgumentSpec& a : c->arguments) EXPECT_FALSE(a.help.empty()) << c->name << " " << a.name;
    EXPECT_TRUE(names.insert(c->name).second) << c->name;
    for (const std::string& alias : c->aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    // The class makes an element whatever it was called.
    EXPECT_NE(c->make(c->name), nullptr);
  }
  EXPECT_GT(names.size(), 35u);
}

}  // namespace
}  // namespace sluice
