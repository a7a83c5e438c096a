// A signal ends every command, also in the middle of work that takes minutes, and nothing half-made is left.
// host only
#include <fmt/format.h>

#include <random>

#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

class CliSignalsTest : public CliTest {
 protected:
  // Starts the command, sends the signal `after` seconds after it has begun to catch it, and waits for its end; 137
  // when there is none within 20 seconds.
  Said ended_by(const std::string& signal, const std::string& after, const std::string& words) const {
    return shell(
        "mkdir -p tmp; export TMPDIR=$PWD/tmp; \"$SLUICE\" " + words +
        " & p=$!; until ! kill -0 $p 2> /dev/null || [[ $(cat /proc/$p/comm 2> /dev/null) == sluice* && "
        "$(( (0x$(sed -n 's/SigCgt:[[:space:]]*//p' /proc/$p/status 2> /dev/null || echo 0) >> 14) & 1 )) = 1 ]]; do "
        "sleep 0.01; done; sleep " +
        after + "; kill -" + signal +
        " $p || echo not running; for i in $(seq 200); do kill -0 $p 2> /dev/null || break; sleep 0.1; done; "
        "kill -KILL $p 2> /dev/null; wait $p");
  }
  // Rules that differ in the lengths of both prefixes: many tuples, and long to build, to walk and to compare.
  void write_rules(const std::string& name, int count) const {
    std::mt19937_64 random(1);
    std::string text;
    for (int i = 0; i < count; ++i) {
      const auto prefix = [&] {
        const auto length = static_cast<unsigned>(20 + random() % 109);
        return fmt::format("2001:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}/{}", random() & 0xfff, random() & 0xffff,
                           random() & 0xffff, random() & 0xffff, random() & 0xffff, random() & 0xffff,
                           random() & 0xffff, length);
      };
      text += fmt::format("{} tcp from {} to {} port {}-{}\n", i % 2 == 0 ? "permit" : "deny", prefix(), prefix(),
                          i % 1000, 1000 + i % 60000);
    }
    write(name, text);
  }
  std::vector<std::string> before_;
};

TEST_F(CliSignalsTest, EndsLongWorkOfEveryCommand) {
  write_rules("long.acl", 60'000);
  write_rules("some.acl", 45'000);
  ASSERT_EQ(sluice("gen traffic -q --packets 2000000 --flows 100000 --ipv6 1 --out in.pcap").code, 0);
  write("run.click",
        "AclTable(t, FILE long.acl, ALGORITHM tuple_space);\nFromDump(in.pcap) -> IPInput -> ACL(TABLE t) -> "
        "ToDump(o.pcap);\n");
  before_ = files();
  const std::string packet = "--packet 'ip6 2001:db8::1 > 2001:db8::2 tcp 1 > 22'";
  // False: seconds, so that it may be done before the signal.
  const std::pair<std::string, bool> commands[] = {
      {"explain " + packet + " --acl long.acl --algorithm tuple_space", true},
      {"compile --acl long.acl --algorithm tuple_space --out o.img", true},
      {"tables some.acl", true},
      {"classify --rules long.acl --algorithm tuple_space --in in.pcap --out o.txt", true},
      {"classify --rules long.acl --algorithm linear --in in.pcap --out o.txt", true},
      {"run run.click", true},
      {"check run.click", true},
      {"bench classify --rules long.acl --algorithm tuple_space", true},
      {"gen routes --ipv4 2000000 --ipv6 2000000 --out o.txt", false},
      {"gen rules --count 1000000 --out o.txt", false},
      {"demo --packets 5000000 -q", false},
  };
  for (const auto& [words, minutes] : commands) {
    for (const auto& [signal, after] : {std::pair("TERM", "0"), std::pair("INT", "0.7"), std::pair("TERM", "2.5")}) {
      const Said said = ended_by(signal, after, words);
      if (said.code != 0 || minutes) {
        EXPECT_EQ(said.code, 130) << words << "\n" << signal << " after " << after << " s\n" << said.out << said.err;
        EXPECT_NE(said.err.find("interrupted"), std::string::npos) << words << "\n" << said.err;
      }
      for (const char* left : {"o.txt.partial", "o.pcap.partial"}) std::filesystem::remove(path(left));
      if (said.code == 0) std::filesystem::remove(path("o.txt"));
      EXPECT_TRUE(std::filesystem::is_empty(path("tmp"))) << words;
      std::filesystem::remove_all(path("tmp"));
      EXPECT_EQ(files(), before_) << words << "\n" << signal << " after " << after << " s";
    }
  }
}

// What takes minutes is not built for an explanation.
TEST_F(CliSignalsTest, ExplainLeavesSlowAlgorithmsOut) {
  write_rules("long.acl", 20'000);
  const Said said = sluice("explain --packet 'ip6 2001:db8::1 > 2001:db8::2 tcp 1 > 22' --acl long.acl -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto acl = said.json()["acl"];
  EXPECT_FALSE(acl["algorithms"].contains("tuple_space"));
  EXPECT_TRUE(acl["algorithms"].contains("linear"));
  EXPECT_EQ(acl["not_built"]["tuple_space"], "its rules have more than 1024 tuples");
}

}  // namespace
}  // namespace sluice
