// Arguments are what the schema says, or findings at the argument that is wrong.
#include "graph/arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/click/syntax.h"

namespace sluice {
namespace {

using Kind = ArgumentKind;

const std::vector<ArgumentSpec> kSource = {
    {.name = "FILENAME", .kind = Kind::kFilename, .positional = true, .mandatory = true},
    {.name = "LIMIT", .kind = Kind::kInt, .positional = true, .default_text = "-1", .min = -1},
    {.name = "STOP", .kind = Kind::kBool, .default_text = "false"},
    {.name = "TTL", .kind = Kind::kUint, .default_text = "64", .min = 1, .max = 255},
    {.name = "RATE", .kind = Kind::kBandwidth},
    {.name = "TIMER", .kind = Kind::kTime, .default_text = "1ms", .max = 10},
    {.name = "DATA", .kind = Kind::kBytes},
    {.name = "SRC", .kind = Kind::kIpv4},
    {.name = "DST", .kind = Kind::kIp},
    {.name = "NET", .kind = Kind::kPrefix},
    {.name = "ETH", .kind = Kind::kMac},
    {.name = "METHOD", .kind = Kind::kChoice, .default_text = "af_packet", .choices = {"af_packet", "af_xdp"}},
    {.name = "SHARE", .kind = Kind::kDouble, .default_text = "0.5", .min = 0, .max = 1},
    {.name = "TAG", .kind = Kind::kWord, .repeated = true},
    {.name = "TO", .kind = Kind::kElement},
};

const std::vector<ArgumentSpec> kRoutes = {
    {.name = "ROUTE",
     .kind = Kind::kRaw,
     .positional = true,
     .mandatory = true,
     .repeated = true,
     .help = "ADDR/MASK [GW] OUT"},
    {.name = "CHECK", .kind = Kind::kBool, .default_text = "true"},
};

Arguments good(const std::vector<ArgumentSpec>& specs, const std::string& text) {
  std::vector<Diagnostic> findings;
  Arguments a = Arguments::parse(specs, text, ConfigurationOrigin::of_text("x.click", text), &findings);
  for (const Diagnostic& d : findings) ADD_FAILURE() << to_string(d);
  return a;
}

std::string bad(const std::vector<ArgumentSpec>& specs, const std::string& text) {
  std::vector<Diagnostic> findings;
  (void)Arguments::parse(specs, text, ConfigurationOrigin::of_text("x.click", text), &findings);
  std::string out;
  for (const Diagnostic& d : findings) out += to_string(d);
  return out;
}

TEST(Arguments, DefaultsStandWhereNothingIsGiven) {
  const Arguments a = good(kSource, "in.pcap");
  EXPECT_EQ(a.get_string("FILENAME"), "in.pcap");
  EXPECT_EQ(a.get_int("LIMIT"), -1);
  EXPECT_FALSE(a.get_bool("STOP"));
  EXPECT_EQ(a.get_uint("TTL"), 64u);
  EXPECT_EQ(a.get_time_ns("TIMER"), 1000000u);
  EXPECT_EQ(a.get_string("METHOD"), "af_packet");
  EXPECT_EQ(a.get_double("SHARE"), 0.5);
  EXPECT_EQ(a.get_ip("DST").family, 0);
  EXPECT_FALSE(a.has("LIMIT"));
  EXPECT_TRUE(a.has("FILENAME"));
}

TEST(Arguments, EveryKindIsRead) {
  const Arguments a = good(kSource,
                           "\"my file\", 0x10, STOP yes, TTL 255, RATE 10Mbps, TIMER 2.5, DATA \"GET \"\\<0d 0a>, SRC "
                           "10.0.0.1, DST 2001:db8::1, NET 10.0.0.0/8, ETH 02:00:00:00:00:01, METHOD AF_XDP, SHARE "
                           "1e-1, TAG a, TAG b, TO outer/q@1,");
  EXPECT_EQ(a.get_string("FILENAME"), "my file");
  EXPECT_EQ(a.get_int("LIMIT"), 16);
  EXPECT_TRUE(a.get_bool("STOP"));
  EXPECT_EQ(a.get_uint("TTL"), 255u);
  EXPECT_EQ(a.get_bandwidth_bps("RATE"), 10000000u);
  EXPECT_EQ(a.get_time_ns("TIMER"), 2500000000u);
  EXPECT_EQ(a.get_string("DATA"), "GET \r\n");
  EXPECT_EQ(a.get_ipv4("SRC"), 0x0a000001u);
  EXPECT_EQ(a.get_ip("DST").family, 6);
  EXPECT_EQ(a.get_prefix("NET").length, 8);
  EXPECT_EQ(a.get_mac("ETH").bytes[5], 1);
  EXPECT_EQ(a.get_string("METHOD"), "af_xdp");
  EXPECT_DOUBLE_EQ(a.get_double("SHARE"), 0.1);
  ASSERT_EQ(a.count("TAG"), 2u);
  EXPECT_EQ(a.all("TAG")[1].text, "b");
  EXPECT_EQ(a.get_string("TO"), "outer/q@1");
}

TEST(Arguments, PositionalOnesMayBeGivenByName) {
  const Arguments a = good(kSource, "LIMIT 5, FILENAME x");
  EXPECT_EQ(a.get_int("LIMIT"), 5);
  EXPECT_EQ(a.get_string("FILENAME"), "x");
}

TEST(Arguments, BandwidthsWithoutAUnitAreBytesPerSecond) {
  uint64_t bps = 0;
  const auto rate = [&](const char* text) { return parse_bandwidth_bps(text, &bps) ? bps : UINT64_MAX; };
  EXPECT_EQ(rate("1000"), 8000u);
  EXPECT_EQ(rate("10Mbps"), 10000000u);
  EXPECT_EQ(rate("10 Mb/s"), 10000000u);
  EXPECT_EQ(rate("1.5kBps"), 12000u);
  EXPECT_EQ(rate("2GB/s"), 16000000000u);
  EXPECT_EQ(rate("8bps"), 8u);
  EXPECT_EQ(rate("9600baud"), 9600u);
  for (const char* wrong :
       {"", "x", "10Xbps", "10M", "Mbps", "1.2.3", "-1", "99999999999999999999", "99999999999Gbps"}) {
    EXPECT_EQ(rate(wrong), UINT64_MAX) << wrong;
  }
}

TEST(Arguments, TimesWithoutAUnitAreSeconds) {
  uint64_t ns = 0;
  const auto time = [&](const char* text) { return parse_time_ns(text, &ns) ? ns : UINT64_MAX; };
  EXPECT_EQ(time("1"), 1000000000u);
  EXPECT_EQ(time(".000000001"), 1u);
  EXPECT_EQ(time("10ms"), 10000000u);
  EXPECT_EQ(time("1.5 us"), 1500u);
  EXPECT_EQ(time("2min"), 120000000000u);
  EXPECT_EQ(time("7nsec"), 7u);
  for (const char* wrong : {"", "ms", "1x", "-1", "1..2", ".", "999999999999999"})
    EXPECT_EQ(time(wrong), UINT64_MAX) << wrong;
}

TEST(Arguments, FreeFormArgumentsKeepTheirTextAndPlace) {
  const std::string text = "10.0.0.0/8 1,\n 0.0.0.0/0 /* gw */ 192.0.2.1 2, CHECK no";
  const Arguments a = good(kRoutes, text);
  ASSERT_EQ(a.rest().size(), 2u);
  EXPECT_EQ(a.rest()[0].text, "10.0.0.0/8 1");
  EXPECT_EQ(a.rest()[1].text, "0.0.0.0/0   192.0.2.1 2");
  EXPECT_FALSE(a.get_bool("CHECK"));
  EXPECT_EQ(to_string(a.error_in(a.rest()[1], "no such gateway", 19, 9)),
            "x.click:2:21: error: no such gateway\n"
            "   0.0.0.0/0 /* gw */ 192.0.2.1 2, CHECK no\n"
            "                      ^~~~~~~~~\n");
}

TEST(Arguments, AFindingPointsIntoTheFileOverSeveralLines) {
  const auto graph =
      parse_click("s :: Source(in.pcap,\n    // how long\n    TTL 300,\n    STPO true);\n", "edge.click");
  ASSERT_TRUE(graph.ok());
  const ClickElement& e = graph->elements[0];
  const auto result = Arguments::parse(kSource, e.configuration, e.configuration_origin);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(to_string(result.error()),
            "edge.click:3:9: error: TTL: '300' is out of range\n"
            "      TTL 300,\n"
            "          ^~~\n"
            "  expected: a whole number from 1 to 255\n"
            "edge.click:4:5: error: unknown keyword 'STPO'\n"
            "      STPO true);\n"
            "      ^~~~\n"
            "  help: did you mean 'STOP'?\n"
            "error: 2 wrong arguments\n");
}

TEST(Arguments, AFindingInAValuePointsAtItsVariable) {
  const auto graph = parse_click("define($ttl 0);\ns :: Source(a, TTL $ttl);\n", "edge.click");
  ASSERT_TRUE(graph.ok());
  const ClickElement& e = graph->elements[0];
  const auto result = Arguments::parse(kSource, e.configuration, e.configuration_origin);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(to_string(result.error().diagnostics[0]),
            "edge.click:2:20: error: TTL: '0' is out of range\n"
            "  s :: Source(a, TTL $ttl);\n"
            "                     ^~~~\n"
            "  expected: a whole number from 1 to 255\n");
}

struct WrongArgument {
  const char* text;
  const char* message;   // the first line
  const char* expected;  // a line of the finding
};

TEST(Arguments, WrongOnesSayWhatWasExpected) {
  const WrongArgument cases[] = {
      {"", "x.click:1:1: error: FILENAME is missing", "expected: FILENAME: a file name"},
      {"a, b", "x.click:1:4: error: LIMIT: 'b' is not a number", "expected: a whole number of at least -1"},
      {"a, -2", "x.click:1:4: error: LIMIT: '-2' is out of range", "expected: a whole number of at least -1"},
      {"a, 010", "x.click:1:4: error: LIMIT: '010' has a leading zero", "decimal or 0x"},
      {"a, 99999999999999999999", "error: LIMIT: '99999999999999999999' is out of range", "expected: a whole number"},
      {"a, 1, 2", "x.click:1:7: error: too many arguments, the last one is LIMIT", "expected: one of STOP, TTL"},
      {"a, , STOP true", "x.click:1:4: error: argument 2 is empty", "expected: LIMIT: a whole number"},
      {"a b", "error: FILENAME: 'a b' is more than one word", "between double quotes"},
      {"a, STOP maybe", "x.click:1:9: error: STOP: 'maybe' is neither true nor false", "expected: true or false"},
      {"a, STOP", "x.click:1:4: error: STOP has no value", "help: write STOP true"},
      {"a, STOP 1, STOP 0", "x.click:1:12: error: STOP is given twice", "help: remove one of them"},
      {"a, STOP 1, 7", "x.click:1:12: error: a positional argument follows a keyword", "or LIMIT 7"},
      {"a, 1, FOOBAR 3", "x.click:1:7: error: unknown keyword 'FOOBAR'", "expected: one of STOP"},
      {"a, 1, TTLL 3", "x.click:1:7: error: unknown keyword 'TTLL'", "help: did you mean 'TTL'?"},
      {"FILENAM a", "x.click:1:1: error: unknown keyword 'FILENAM'", "help: did you mean 'FILENAME'?"},
      {"a, TTL -1", "error: TTL: '-1' is negative", "expected: a whole number from 1 to 255"},
      {"a, RATE fast", "error: RATE: 'fast' is not a rate", "expected: a rate such as 10Mbps (bytes per second"},
      {"a, TIMER 1y", "error: TIMER: '1y' is not a time", "expected: a time such as 10ms"},
      {"a, TIMER 11", "error: TIMER: '11' is out of range", "from 0 to 10 seconds"},
      {"a, SRC 10.0.0.256", "error: SRC: '10.0.0.256' is not an address", "expected: an IPv4 address"},
      {"a, SRC ::1", "error: SRC: '::1' is an address of the other family", "expected: an IPv4 address"},
      {"a, NET 10.0.0.1/8", "'10.0.0.1/8' has bits past its length; write it 10.0.0.0/8", "expected: a prefix"},
      {"a, ETH 1:2:3", "error: ETH: '1:2:3' is not a MAC address", "expected: a MAC address"},
      {"a, METHOD af_xpd", "error: METHOD: 'af_xpd' is not a choice", "help: did you mean 'af_xdp'?"},
      {"a, SHARE 2", "error: SHARE: '2' is out of range", "expected: a number from 0 to 1"},
      {"a, SHARE nan", "error: SHARE: 'nan' is not a number", "expected: a number from 0 to 1"},
      {"a, DATA \\<4g>", "x.click:1:12: error: DATA: this is not a hexadecimal digit", "pairs of hexadecimal digits"},
      {"a, TO 'x y'", "error: TO: 'x y' is not the name of an element", "expected: the name of an element"},
  };
  for (const WrongArgument& c : cases) {
    const std::string rendered = bad(kSource, c.text);
    EXPECT_NE(rendered.find(c.message), std::string::npos) << c.text << "\n" << rendered;
    EXPECT_NE(rendered.find(c.expected), std::string::npos) << c.text << "\n" << rendered;
    EXPECT_EQ(rendered.find("error:"), rendered.rfind("error:")) << "one mistake, one finding: " << rendered;
  }
}

TEST(Arguments, AnElementWithoutArgumentsTakesNone) {
  EXPECT_NE(bad({}, "1").find("this element takes no positional arguments"), std::string::npos);
  EXPECT_EQ(bad({}, " /* nothing */ "), "");
}

TEST(Arguments, SchemasAreChecked) {
  EXPECT_EQ(check_specs(kSource), "");
  EXPECT_EQ(check_specs(kRoutes), "");
  EXPECT_EQ(check_specs({{.name = "A"}, {.name = "A"}}), "A is given twice");
  EXPECT_NE(check_specs({{.name = "A", .kind = Kind::kUint, .default_text = "x"}}), "");
  EXPECT_NE(check_specs({{.name = "A", .kind = Kind::kUint, .default_text = "9", .max = 5}}), "");
  EXPECT_NE(check_specs({{.name = "A", .positional = true}, {.name = "B", .positional = true, .mandatory = true}}), "");
}

TEST(Arguments, TheSynopsisFollowsTheSchema) {
  EXPECT_EQ(synopsis(kRoutes), "ROUTE, ..., [CHECK bool]");
  EXPECT_EQ(kind_name(Kind::kRaw), "raw");
}

}  // namespace
}  // namespace sluice
