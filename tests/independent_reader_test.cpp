// What the standard graph writes, as scapy and tshark read it: they share no code with the product.
#include <cstdlib>
#include <optional>

#include "base/test_data.h"
#include "tests/testing/run_graph.h"
#include "tests/testing/run_sluice.h"
#include "tests/testing/slow_path.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

constexpr const char* kNextMac = "02:00:00:00:00:0a";
constexpr const char* kOwnMac = "02:00:00:00:00:01";

class IndependentReaderTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("all.acl", "permit ip from any to any\n");
    write("rib", "0.0.0.0/0 a\n::/0 a\n");
    write("adj", std::string("a ") + kNextMac + " " + kOwnMac + " 1\n");
  }

  // The packets of `in` that can be forwarded, to out.pcap. Returns their number.
  uint64_t forward(const std::string& in) {
    const Said said =
        sluice("run --acl all.acl --routes rib --adjacencies adj --in \"" + in + "\" --out out.pcap -o json");
    EXPECT_EQ(said.code, 0) << said.err;
    if (said.code != 0) return 0;
    return said.json()["packets_out"].get<uint64_t>();
  }

  // A script of ours. Some systems have several: the one with scapy is asked.
  Said python(const std::string& script, const std::string& arguments) const {
    return shell(std::string("python=python3; for p in /usr/bin/python3 python3; do "
                             "$p -c 'import scapy' 2>/dev/null && python=$p && break; done; $python \"") +
                 SLUICE_SOURCE_DIR + "/scripts/" + script + "\" " + arguments);
  }
  Said verify(const std::string& in, const std::string& out) const {
    return python("verify_capture.py", "--before \"" + in + "\" --after " + out + " --dst " + kNextMac + " --src " +
                                           kOwnMac + " --limit 3000");
  }
};

TEST_F(IndependentReaderTest, MixedTrafficIsForwardedCorrectly) {
  testing::write_mixed_capture(path("in.pcap"), 4000);
  ASSERT_GT(forward("in.pcap"), 1000u);
  const Said said = verify("in.pcap", "out.pcap");
  if (said.code == 77) GTEST_SKIP() << said.err;
  EXPECT_EQ(said.code, 0) << said.out << said.err;
}

TEST_F(IndependentReaderTest, RecordedTrafficIsForwardedCorrectly) {
  const std::optional<std::string> recorded = test_data("pcap/snabb/sanitized4k.pcap");
  if (!recorded) GTEST_SKIP() << "the recorded capture is not here";
  ASSERT_GT(forward(*recorded), 1000u);
  const Said said = verify(*recorded, "out.pcap");
  if (said.code == 77) GTEST_SKIP() << said.err;
  EXPECT_EQ(said.code, 0) << said.out << said.err;
}

// Fragments that scapy puts together, and errors that it reads.
TEST_F(IndependentReaderTest, TheSlowPathIsRightToo) {
  const testing::TempDir tables;
  testing::write_slow_path_capture(tables / "in.pcap", 1500);
  write("slow.click", testing::with_outputs(tables, testing::slow_path_graph_text(tables, false)));
  const Said run = sluice("run slow.click -o json");
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string arguments =
      "--before \"" + (tables / "in.pcap") + "\" --router 192.0.2.1 --router 2001:db8::ff --after \"";
  const Said said = python("verify_slow_path.py", arguments + (tables / "OUT") + "\"");
  if (said.code == 77) GTEST_SKIP() << said.err;
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_NE(said.out.find("put together"), std::string::npos) << said.out;
  // The judge itself.
  std::string wrong = testing::read_file(tables / "OUT");
  wrong[wrong.size() - 1] = static_cast<char>(wrong.back() ^ 1);
  write("wrong.pcap", wrong);
  EXPECT_EQ(python("verify_slow_path.py", arguments + path("wrong.pcap") + "\"").code, 1);
}

// The judge itself: one wrong bit in one header must not pass.
TEST_F(IndependentReaderTest, OneWrongBitIsFound) {
  ASSERT_EQ(sluice("gen traffic --packets 200 --flows 20 --out in.pcap").code, 0);
  ASSERT_GT(forward("in.pcap"), 100u);
  const Said good = verify("in.pcap", "out.pcap");
  if (good.code == 77) GTEST_SKIP() << good.err;
  ASSERT_EQ(good.code, 0) << good.out << good.err;
  const std::string bytes = read("out.pcap");
  constexpr size_t kFirstFrame = 24 + 16, kIp = kFirstFrame + 14;
  ASSERT_GT(bytes.size(), kIp + 20);
  ASSERT_EQ(static_cast<unsigned char>(bytes[kIp]), 0x45);
  const std::pair<size_t, const char*> places[] = {{kIp + 10, "checksum"}, {kIp + 8, "TTL"}, {kFirstFrame, "MAC"}};
  for (const auto& [place, what] : places) {
    std::string wrong = bytes;
    wrong[place] = static_cast<char>(wrong[place] ^ 1);
    write("wrong.pcap", wrong);
    const Said said = verify("in.pcap", "wrong.pcap");
    EXPECT_EQ(said.code, 1) << what << said.out << said.err;
    EXPECT_NE(said.out.find("packet 1"), std::string::npos) << what << said.out;
  }
}

}  // namespace
}  // namespace sluice
