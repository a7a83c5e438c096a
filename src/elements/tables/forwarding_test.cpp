// ACL, IPRoute and AdjacencyRewrite over tables from files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "elements/tables.h"
#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

class Forwarding : public ::testing::Test {
 protected:
  Forwarding() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-elements-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    put("acl",
        "@10.0.0.0/8 192.0.2.0/24 0 : 65535 53 : 53 0x11/0xFF\n@2001:db8::/32 ::/0 0 : 65535 0 : 65535 0x00/0x00\n");
    put("routes", "192.0.2.0/24 a\n192.0.3.0/24 gone\n2001:db8::/32 b\n198.51.100.0/24 unknown\n203.0.113.0/24 me\n");
    put("adjacencies",
        "a 02:00:00:00:0a:01 02:00:00:00:00:01 3\nb 02:00:00:00:0b:01 02:00:00:00:00:02 4 vlan 33 mtu 1280\ngone "
        "drop\nme local\n");
  }
  ~Forwarding() override { std::filesystem::remove_all(folder_); }

  void put(const char* name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  std::string file(const char* name) const { return (folder_ / name).string(); }
  std::string tables() const {
    return "AclTable(edge, FILE " + file("acl") + ", FORMAT classbench); RouteTable(fib, FILE " + file("routes") +
           "); AdjacencyTable(adj, FILE " + file("adjacencies") + ", ROUTES fib);";
  }
  testing::Passage forward(const PacketBuilder& packet) const {
    return expect(packet).through("IPInput -> IPRoute(fib) -> DecIPTTL -> AdjacencyRewrite(adj)", tables());
  }

  std::filesystem::path folder_;
};

TEST_F(Forwarding, AnAccessListPermitsAndDenies) {
  for (const std::string acl : {"ACL(edge)", "ACL(TABLE edge)"}) {
    EXPECT_EQ(
        expect(udp4("10.0.0.1", "192.0.2.7").ports(9, 53)).through("IPInput -> " + acl, tables()).passes().packet.rule,
        1u);
    EXPECT_EQ(expect(udp6("2001:db8::1", "2001:db9::2")).through("IPInput -> " + acl, tables()).passes().packet.rule,
              2u);
    expect(udp4("10.0.0.1", "192.0.2.7").ports(9, 54))
        .through("IPInput -> " + acl, tables())
        .drops(DropReason::kAclNoMatch)
        .leaves_by(1);
  }
  expect(udp4("10.0.0.1", "192.0.2.7").ports(9, 54)).through("IPInput -> ACL(edge, DEFAULT permit)", tables()).passes();
  for (const std::string algorithm : {"linear", "tuple_space", "tuple_merge"}) {
    const std::string own = "IPInput -> ACL(FILE " + file("acl") + ", FORMAT classbench, ALGORITHM " + algorithm + ")";
    expect(udp4("10.0.0.1", "192.0.2.7").ports(9, 53)).through(own).passes();
    expect(udp4("11.0.0.1", "192.0.2.7").ports(9, 53)).through(own).drops(DropReason::kAclNoMatch);
  }
}

TEST_F(Forwarding, FromRouteToLinkHeader) {
  const auto four = forward(udp4("10.0.0.1", "192.0.2.7").vlan(9)).passes();
  EXPECT_EQ(four.packet.port, 3);
  const auto bytes = four.bytes();
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.begin() + 14),
            (std::vector<uint8_t>{2, 0, 0, 0, 0x0a, 1, 2, 0, 0, 0, 0, 1, 8, 0}));
  EXPECT_EQ(bytes[14], 0x45);
  const auto six = forward(udp6("2001:db8::1", "2001:db8::2")).passes().bytes();
  EXPECT_EQ(std::vector<uint8_t>(six.begin() + 12, six.begin() + 18),
            (std::vector<uint8_t>{0x81, 0, 0, 33, 0x86, 0xdd}));
}

TEST_F(Forwarding, DropsPacketsWithoutRouteOrNeighbour) {
  forward(udp4("10.0.0.1", "192.0.4.7")).drops(DropReason::kNoRoute).leaves_by(1);
  forward(udp4("10.0.0.1", "192.0.3.7")).drops(DropReason::kRouteDrop);
  forward(udp4("10.0.0.1", "203.0.113.7")).drops(DropReason::kRouteLocal);
  forward(udp4("10.0.0.1", "198.51.100.7")).drops(DropReason::kNoAdjacency).leaves_by(1);
  forward(udp6("2001:db8::1", "2001:db8::2").payload(1300)).drops(DropReason::kTooBig).leaves_by(1);
  EXPECT_EQ(forward(udp6("2001:db8::1", "2001:db8::2").payload(1300)).packet.icmp_detail, 1280);
  forward(udp4("10.0.0.1", "192.0.2.7").payload(1600)).drops(DropReason::kNeedsFragmentation).leaves_by(1);
  forward(udp4("10.0.0.1", "192.0.2.7").payload(1600).dont_fragment()).drops(DropReason::kTooBig);
}

// A blackhole is silent; who asks for the others is told (`ip route` has all four), and so is who meets a route to an
// address that a route leads to.
TEST_F(Forwarding, UnreachableIsToldAndBlackholeIsNot) {
  put("routes",
      "unreachable 10.1.0.0/16\nprohibit 10.2.0.0/16\nthrow 10.3.0.0/16\nblackhole 10.4.0.0/16\n"
      "10.5.0.0/16 via 10.1.0.9\n10.6.0.0/16 via 10.7.0.1\n10.7.0.0/16 a\n10.8.0.0/16 a+blackhole\n");
  forward(udp4("10.0.0.1", "10.1.0.7")).drops(DropReason::kRouteUnreachable).leaves_by(1);
  forward(udp4("10.0.0.1", "10.2.0.7")).drops(DropReason::kRouteProhibited).leaves_by(1);
  forward(udp4("10.0.0.1", "10.3.0.7")).drops(DropReason::kNoRoute).leaves_by(1);
  forward(udp4("10.0.0.1", "10.4.0.7")).drops(DropReason::kRouteDrop);
  forward(udp4("10.0.0.1", "10.5.0.7")).drops(DropReason::kRouteUnreachable).leaves_by(1);
  EXPECT_EQ(forward(udp4("10.0.0.1", "10.6.0.7")).passes().packet.port, 3);
  EXPECT_EQ(forward(udp4("10.0.0.1", "10.8.0.7")).passes().packet.port, 3);
}

TEST_F(Forwarding, ACompiledImageIsTakenByItsContent) {
  TableDeclaration d{.type = TableDeclaration::Type::kRoutes, .name = "fib", .files = {file("routes")}};
  auto routes = load_table(d, nullptr, nullptr, nullptr);
  ASSERT_TRUE(routes.ok()) << to_string(routes.error());
  ASSERT_TRUE((*routes)->write(file("compiled")).ok());
  d.files = {file("compiled")};
  TableLoad load;
  auto again = load_table(d, nullptr, &load, nullptr);
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_TRUE(load.compiled);
  EXPECT_EQ(load.algorithm, "sail+range24");
  EXPECT_EQ(load.bytes, (*routes)->bytes().size());
  const std::string text = "RouteTable(fib, FILE " + file("compiled") + "); AdjacencyTable(adj, FILE " +
                           file("adjacencies") + ", ROUTES fib);";
  const auto p =
      expect(udp4("10.0.0.1", "192.0.2.7")).through("IPInput -> IPRoute(fib) -> AdjacencyRewrite(adj)", text).passes();
  EXPECT_EQ(p.packet.port, 3);
}

TEST_F(Forwarding, TheLoadIsReported) {
  const std::string text =
      tables() + "InfiniteSource(LIMIT 0) -> IPInput -> ACL(edge) -> IPRoute(fib) -> AdjacencyRewrite(adj) -> Discard;";
  auto graph = parse_click(text, "t");
  ASSERT_TRUE(graph.ok());
  auto router = build_router(*graph, testing::all_elements(), text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  TableReport report;
  auto tables = load_tables(*router, {.acl_algorithm = "linear"}, &report);
  ASSERT_TRUE(tables.ok()) << to_string(tables.error());
  ASSERT_EQ(report.loads.size(), 3u);
  EXPECT_EQ(report.loads[0].kind, "acl");
  EXPECT_EQ(report.loads[0].algorithm, "linear");
  EXPECT_EQ(report.loads[0].entries, 2u);
  EXPECT_EQ(report.loads[1].entries, 5u);
  EXPECT_EQ(report.loads[2].entries, 4u);
  EXPECT_GT(report.loads[1].bytes, 0u);
}

TEST_F(Forwarding, AutoChoosesForWhereLookupsRun) {
  std::string rules;
  for (int i = 0; i < 300; ++i)
    rules += "permit tcp from 10." + std::to_string(i % 100) + "." + std::to_string(i % 250) + ".0/24 to any port " +
             std::to_string(1000 + i) + "\n";
  put("many", rules);
  const std::string text = "AclTable(edge, FILE " + file("many") + ", ALGORITHM auto); RouteTable(fib, FILE " +
                           file("routes") +
                           "); InfiniteSource(LIMIT 0) -> IPInput -> ACL(edge) -> IPRoute(fib) -> Discard;";
  auto graph = parse_click(text, "t");
  ASSERT_TRUE(graph.ok());
  auto router = build_router(*graph, testing::all_elements(), text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  const auto chosen = [&](bool on_device) {
    TableReport report;
    auto tables = load_tables(*router, {.on_device = on_device}, &report);
    EXPECT_TRUE(tables.ok()) << to_string(tables.error());
    std::map<std::string, std::string> algorithms;
    for (const TableLoad& load : report.loads) algorithms[load.name] = load.algorithm;
    return algorithms;
  };
  auto here = chosen(false), there = chosen(true);
  EXPECT_EQ(here["edge"], "bitvec");
  EXPECT_TRUE(there["edge"] == "tuple_space" || there["edge"] == "tuple_merge") << there["edge"];
  EXPECT_EQ(here["fib"], "sail+range24");
  EXPECT_EQ(there["fib"], "dir24+poptrie");
}

TEST_F(Forwarding, ListsOfOneFileAreOfOneReading) {
  put("more", "deny ip from any to 192.0.2.9\n");
  put("rules",
      "include \"more\"\npermit tcp from any to any port 22 state new keep-state\npermit ip from any to any "
      "state established\npermit udp from any to any state established\n");
  const std::string text = "AclTable(new, FILE " + file("rules") + ", FORMAT auto@new); AclTable(established, FILE " +
                           file("rules") + ", FORMAT auto@established); AclTable(both, FILE " + file("rules") +
                           ", FILE " + file("rules") + ", FORMAT auto@new); InfiniteSource -> Discard;";
  auto graph = parse_click(text, "t");
  ASSERT_TRUE(graph.ok());
  auto router = build_router(*graph, testing::all_elements(), text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  const auto entries = [&](InputSet* inputs) {
    TableReport report;
    auto tables = load_tables(*router, {}, &report, {}, nullptr, inputs);
    EXPECT_TRUE(tables.ok()) << to_string(tables.error());
    std::map<std::string, size_t> found;
    for (const TableLoad& load : report.loads) {
      found[load.name] = load.entries;
      EXPECT_EQ(load.read.size(), load.name == "both" ? 4u : 2u) << load.name;
      for (const FileStamp& stamp : load.read) EXPECT_TRUE(stamp.regular) << load.name;
      EXPECT_TRUE(load.read[0].same_content(report.loads[0].read[0])) << load.name;
    }
    return found;
  };
  const std::map<std::string, size_t> whole = {{"new", 2}, {"established", 3}, {"both", 4}};
  EXPECT_EQ(entries(nullptr), whole);
  // What was opened before is what all lists are of, whatever stands there now.
  InputSet inputs;
  ASSERT_TRUE(inputs.open(file("rules")).ok());
  put("other", "include \"more\"\n");
  std::filesystem::rename(file("other"), file("rules"));
  EXPECT_EQ(entries(&inputs), whole);
  // And what was opened for each of them is let go.
  for (int list = 0; list < 4; ++list) ASSERT_TRUE(inputs.open(file("rules")).ok());
  EXPECT_EQ(entries(&inputs), (std::map<std::string, size_t>{{"new", 1}, {"established", 1}, {"both", 2}}));
  EXPECT_EQ(inputs.find(file("rules")), nullptr);
}

TEST_F(Forwarding, AFileOfSeveralListsIsWrongForEach) {
  put("empty", "");
  const std::string text =
      "AclTable(a, FILE " + file("empty") + "); AclTable(b, FILE " + file("empty") + "); InfiniteSource -> Discard;";
  auto graph = parse_click(text, "t");
  ASSERT_TRUE(graph.ok());
  auto router = build_router(*graph, testing::all_elements(), text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  auto loaded = load_tables(*router);
  ASSERT_FALSE(loaded.ok());
  ASSERT_EQ(loaded.error().diagnostics.size(), 2u) << to_string(loaded.error());
  for (const Diagnostic& d : loaded.error().diagnostics)
    EXPECT_NE(d.message.find("empty: it is empty"), std::string::npos) << d.message;
}

TEST_F(Forwarding, AllTableErrorsAtOnce) {
  put("bad", "@10.0.0.0/99 192.0.2.0/24 0 : 65535 53 : 53 0x11/0xFF\n");
  const std::string text =
      "AclTable(edge, FILE " + file("bad") + ", FORMAT classbench); RouteTable(fib, FILE " + file("absent") +
      ");\nAdjacencyTable(adj, ROUTES fob);\nAdjacencyTable(adj, ROUTES fib);\nInfiniteSource -> Discard;";
  auto graph = parse_click(text, "t.click");
  ASSERT_TRUE(graph.ok());
  auto router = build_router(*graph, testing::all_elements(), text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  auto loaded = load_tables(*router);
  ASSERT_FALSE(loaded.ok());
  const std::string all = to_string(loaded.error());
  EXPECT_NE(all.find("bad:1:"), std::string::npos) << all;
  EXPECT_NE(all.find("absent"), std::string::npos) << all;
  EXPECT_NE(all.find("there is no route table 'fob'"), std::string::npos) << all;
  EXPECT_NE(all.find("did you mean 'fib'?"), std::string::npos) << all;
  EXPECT_NE(all.find("there are two adjacency tables called 'adj'"), std::string::npos) << all;
  EXPECT_NE(all.find("4 tables or files have errors"), std::string::npos) << all;
}

TEST_F(Forwarding, ATableThatIsNotThereIsNamed) {
  const auto p = expect(udp4("10.0.0.1", "192.0.2.7")).through("IPInput -> IPRoute(fub)", tables());
  EXPECT_EQ(p.error, "error: there is no route table 'fub'\n  help: did you mean 'fib'?\n");
}

}  // namespace
}  // namespace sluice
