// Random command lines from the real option names and junk: an exit code that is documented, and a reason for each that
// is not 0.
#include <map>
#include <random>
#include <set>

#include "tests/testing/run_graph.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

// A word for the shell, as it is.
std::string quoted(const std::string& word) {
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

class CliRandomTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("rules", "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n");
    write("edge.acl", "deny udp from any to any port 53\npermit ip from any to any\n");
    write("rib", "0.0.0.0/0 a\n2001:db8::/32 a\n");
    write("adj", "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\n");
    write("trace", "167772161\t1\t1\t80\t6\n");
    write("addresses", "10.1.2.3\n2001:db8::1\n");
    write("graph.click", "FromDump($IN) -> IPInput -> c :: Counter -> Discard;\n");
    write("empty", "");
    write("noise", std::string("\x80\0\xff\n{}(;->\"", 10));
    testing::write_mixed_capture(path("in.pcap"), 50);
  }
  // What --help of the command offers.
  std::vector<std::string> options_of(const std::string& command) const {
    std::string help = sluice(command + " --help").out;
    if (help.find("--help-all") != std::string::npos) help = sluice(command + " --help-all").out;
    std::set<std::string> found;
    for (size_t at = help.find("--"); at != std::string::npos; at = help.find("--", at + 2)) {
      const size_t end = help.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", at);
      if (end > at + 2) found.insert(help.substr(at, end - at));
    }
    // These ask a run to go on until a signal ends it, which nobody would send.
    for (const char* endless : {"--wait", "--repeat"}) found.erase(endless);
    return {found.begin(), found.end()};
  }
};

TEST_F(CliRandomTest, AnyCommandLineEndsWithADocumentedExitCode) {
  // A command, and what keeps the work small where the defaults are large.
  const std::pair<const char*, const char*> commands[] = {
      {"run", "--in in.pcap"},
      {"run", "--acl edge.acl --routes rib --adjacencies adj --in in.pcap --out out.pcap"},
      {"run", "graph.click IN=in.pcap"},
      {"check", "graph.click IN=in.pcap"},
      {"check", "--rules rules"},
      {"classify", "--rules rules --trace trace"},
      {"route", "--routes rib --addresses addresses"},
      {"explain", "--packet 'ip 10.0.0.1 > 8.8.8.8 tcp 1 > 2'"},
      {"explain", "--in in.pcap --acl edge.acl"},
      {"compile", "--acl rules --out x.img"},
      {"demo", "--dir d --packets 1000 --rules 50 --ipv4 100 --ipv6 10"},
      {"doctor", ""},
      {"elements", "Counter"},
      {"gen traffic", "--packets 100 --flows 10"},
      {"gen rules", "--count 20"},
      {"gen routes", "--ipv4 20 --ipv6 5"},
      {"gen trace", "--rules rules --packets 100"},
  };
  const std::vector<std::string> values = {"rules",
                                           "edge.acl",
                                           "rib",
                                           "adj",
                                           "trace",
                                           "addresses",
                                           "graph.click",
                                           "in.pcap",
                                           "empty",
                                           "noise",
                                           "missing",
                                           ".",
                                           "-",
                                           "",
                                           " ",
                                           "out.pcap",
                                           "new/out.pcap",
                                           "1=out.pcap",
                                           "70000=out.pcap",
                                           "x=",
                                           "=",
                                           "0",
                                           "1",
                                           "7",
                                           "300",
                                           "-1",
                                           "70000",
                                           "99999999999999999999",
                                           "0.5",
                                           "1e3",
                                           "0x10",
                                           "nan",
                                           "auto",
                                           "native",
                                           "linear",
                                           "dir24,trie",
                                           "permit",
                                           "json",
                                           "cpu",
                                           "gpu",
                                           "cuda:7",
                                           "192.0.2.1",
                                           "::1",
                                           "192.0.2.1,::1,x",
                                           "ip 10.0.0.1 > 8.8.8.8",
                                           "ip > >",
                                           "00 11",
                                           "zz",
                                           "IN=in.pcap",
                                           "$IN",
                                           "\xff\xfe",
                                           "%s%n",
                                           "'",
                                           "--",
                                           "a\nb",
                                           std::string(5000, 'a')};
  const std::set<int> documented = {0, 1, 2, 3, 4, 5, 130};
  std::map<std::string, std::vector<std::string>> options;
  std::mt19937_64 random(20260701);  // NOLINT: the same command lines every time
  auto pick = [&](const auto& from) -> const auto& {
    return from[random() % std::size(from)];
  };
  unsigned good = 0;
#if defined(SLUICE_SANITIZED)
  constexpr unsigned kLines = 80;  // a process each
#else
  constexpr unsigned kLines = 200;
#endif
  for (unsigned line = 0; line < kLines; ++line) {
    const auto& [command, base] = pick(commands);
    auto& known = options[command];
    if (known.empty()) known = options_of(command);
    ASSERT_GT(known.size(), 2u) << command;
    std::string arguments = command;
    // Without its base a command would have its large defaults.
    const bool large = arguments.starts_with("gen") || arguments == "demo";
    if (large || random() % 8 != 0) arguments += std::string(" ") + base;
    for (auto extra = random() % 4; extra > 0; --extra) {
      switch (random() % 8) {
        case 0:
          arguments += " " + quoted(pick(values));
          break;
        case 1:
          arguments += " " + quoted("--" + pick(values));
          break;
        case 2:
          arguments += " " + quoted(pick(known) + "=" + pick(values));
          break;
        case 3:
          arguments += " " + pick(known);
          break;
        default:
          arguments += " " + pick(known) + " " + quoted(pick(values));
      }
    }
    const Said said = sluice(arguments);
    EXPECT_TRUE(documented.contains(said.code)) << said.code << ": sluice " << arguments << "\n" << said.err;
    if (said.code != 0) {
      EXPECT_NE(said.err, "") << said.code << ": sluice " << arguments;
    }
    good += said.code == 0 ? 1 : 0;
  }
  // Both sides are reached: the lines are neither all refused nor all accepted.
  EXPECT_GT(good, kLines / 10);
  EXPECT_LT(good, kLines * 9 / 10);
}

}  // namespace
}  // namespace sluice
