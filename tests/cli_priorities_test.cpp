// run --priorities and bench priorities, as users run them.
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice::priorities {
namespace {

using testing::CliTest;
using testing::Said;

class CliPrioritiesTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("rib", "8.0.0.0/8 a\n");
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    for (uint16_t i = 0; i < 300; ++i) {
      // 100 packets of the first class, 50 of the second, 150 of the third.
      const unsigned dscp = i % 3 == 0 ? 46 : i % 6 == 1 ? 10 : 0;
      const auto f = udp4("10.0.0.1", "8.1.1.1").ports(i, 80).payload(i).dscp(static_cast<uint8_t>(dscp)).build();
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, uint64_t{1'700'000'000'000'000'000} + i}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
};

TEST_F(CliPrioritiesTest, ClassesAreCountedAndTheSumsHold) {
  for (const char* workers : {"1", "3"}) {
    const Said said =
        sluice(std::string("run --routes rib --in in.pcap --out out.pcap --priorities --chunk 16 -o json ") +
               "--workers " + workers);
    ASSERT_EQ(said.code, 0) << said.err;
    const auto json = said.json();
    EXPECT_EQ(json["packets_out"], 300);
    EXPECT_EQ(json["conserved"], true);
    ASSERT_EQ(json["classes"].size(), 3u);
    const uint64_t packets[] = {100, 50, 150};
    for (unsigned c = 0; c < 3; ++c) {
      EXPECT_EQ(json["classes"][c]["packets"], packets[c]);
      EXPECT_EQ(json["classes"][c]["refused"], 0);
      EXPECT_GE(json["classes"][c]["chunks"].get<uint64_t>(), (packets[c] + 15) / 16);
      EXPECT_GT(json["classes"][c]["latency_ns"]["max"].get<uint64_t>(), 0u);
    }
  }
  const Said said = sluice("run --routes rib --in in.pcap --priorities");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("class  0: 100 packets"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("3/6 of the workers"), std::string::npos) << said.out;
}

// Chunks of 16 packets with 32 KiB of frames, which long frames fill before their number does: also to the last bytes,
// where a frame fits as such and not beside the room that close ones keep, and where one is longer than all of it.
TEST_F(CliPrioritiesTest, LongFramesFillChunks) {
  auto writer = CaptureWriter::create(path("long.pcap"));
  ASSERT_TRUE(writer.ok());
  uint16_t made = 0;
  const auto add = [&](size_t size) {
    const auto f = udp4("10.0.0.1", "8.1.1.1").ports(made, 80).payload(size - 42).build();
    const auto bytes = static_cast<uint32_t>(f.size());
    ASSERT_EQ(bytes, size);
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, uint64_t{1'700'000'000'000'000'000} + made++}, f.data()));
  };
  for (int i = 0; i < 14; ++i) add(2032);
  add(1968);
  add(1920);
  for (size_t size = 1700; size < 2300; size += 7) add(size);
  add(40'000);
  for (size_t size = 9000; size > 60; size -= 64) add(size);
  ASSERT_TRUE(writer->commit().ok());
  for (const char* in : {"--in long.pcap", "--in long.pcap --repeat --limit 700"}) {
    const std::string run = std::string("run -q --routes rib ") + in;
    ASSERT_EQ(sluice(run + " --out plain.pcap").code, 0);
    const Said said = sluice(run + " --out sorted.pcap --priorities --chunk 16");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(read("plain.pcap") == read("sorted.pcap")) << in;
  }
}

TEST_F(CliPrioritiesTest, ReportsOptionsThatDoNotFit) {
  const auto refused = [&](const std::string& arguments, int code, const char* why) {
    const Said said = sluice("run " + arguments);
    EXPECT_EQ(said.code, code) << arguments;
    EXPECT_NE(said.err.find(why), std::string::npos) << arguments << '\n' << said.err;
    EXPECT_FALSE(exists("out.pcap"));
  };
  const std::string standard = "--routes rib --in in.pcap --out out.pcap ";
  refused(standard + "--chunk 4", 2, "--chunk needs --priorities");
  refused(standard + "--priorities --shares 1,1", 2, "2 shares do not fit 3 classes");
  refused(standard + "--priorities --shares 1,1,1,5", 2, "4 shares do not fit 3 classes");
  refused(standard + "--priorities --shares 1,0,1", 2, "would starve");
  write("two.qos", "class a dscp ef\nclass b dscp others\n");
  refused(standard + "--priorities --qos two.qos --shares 7,1,1", 2, "3 shares do not fit 2 classes");
  EXPECT_EQ(sluice("run --routes rib --in in.pcap --priorities --qos two.qos --shares 3,1").code, 0);
  refused(standard + "--qos ''", 2, "empty name");
  refused(standard + "--priorities --chunk 0", 2, "--chunk");
  refused(standard + "--priorities --chunk-timeout soon", 2, "--chunk-timeout");
  refused(standard + "--priorities --latency-target 50us", 2, "--priorities does not work with --latency-target");
  refused(standard + "--priorities --verdicts v", 2, "verdicts are in the order of the input");
  write("police.click", "FromDump(in.pcap) -> IPInput -> p :: Police(RATE 1Mbps, BURST 10000) -> ToDump(out.pcap);");
  refused("police.click --priorities", 1, "'p' carries state from batch to batch");
  write("queue.click", "FromDump(in.pcap) -> Queue -> Unqueue -> ToDump(out.pcap);");
  refused("queue.click --priorities", 2, "takes packets one after another (");
}

TEST_F(CliPrioritiesTest, AnOutputThatFailsIsToldAsSuch) {
  const Said said = sluice("run --routes rib --in in.pcap --out /dev/full --priorities");
  EXPECT_EQ(said.code, 3) << said.err;
}

TEST_F(CliPrioritiesTest, TheBenchmarkMeasuresWhatItChecked) {
  const std::string quick =
      "bench priorities --workers 1 --packets 5000 --repetitions 1 --seconds 0.01 --chunks 64 --timeouts 20us --rules "
      "4 -o "
      "json";
  const Said said = sluice(quick);
  ASSERT_EQ(said.code, 0) << said.err;
  const auto json = said.json();
  EXPECT_EQ(json["verified"]["sample"], 16'384);
  std::vector<std::string> cases;
  for (const auto& result : json["results"]) {
    cases.push_back(result["case"]);
    EXPECT_GT(result["median"].get<double>(), 0) << result["case"];
  }
  EXPECT_EQ(cases, (std::vector<std::string>{
                       "mix/even/x1", "mix/highest/x1", "mix/middle/x1", "mix/lowest/x1", "mix/voice/x1", "mix/half/x1",
                       "workers/1", "chunks/64/rate", "chunks/64/p50", "chunks/64/p99", "timeouts/rate",
                       "timeouts/20us/p50", "timeouts/20us/p99", "overload/most", "overload/served",
                       "overload/unloaded_p99", "overload/loaded_p99", "overload/ratio", "overload/lowest_rate"}));
  EXPECT_EQ(sluice(quick + " --part mix --spoil-check").code, 5);

  // Mixes by DSCP, checked and counted by class.
  const Said mixes = sluice(quick + " --part mix --dscp ef=100 --dscp af41=1,default=3,cs7=0");
  ASSERT_EQ(mixes.code, 0) << mixes.err;
  const auto by_dscp = mixes.json();
  EXPECT_EQ(by_dscp["verified"]["sample"], 3 * 16'384);
  ASSERT_EQ(by_dscp["results"].size(), 2u);
  const auto packets = [&](size_t row, size_t c) -> uint64_t {
    return by_dscp["results"][row]["classes"][c]["packets"];
  };
  EXPECT_EQ(by_dscp["results"][0]["case"], "mix/ef=100/x1");
  EXPECT_EQ(packets(0, 0), 5000u);
  EXPECT_EQ(by_dscp["results"][1]["case"], "mix/af41=1,default=3,cs7=0/x1");
  EXPECT_EQ(packets(1, 0), 0u);
  EXPECT_GT(packets(1, 1), 1000u);
  EXPECT_LT(packets(1, 1), 1500u);
  EXPECT_EQ(packets(1, 1) + packets(1, 2), 5000u);
  for (const auto& [wrong, says] : {std::pair{"--timeouts 10us,soon", "soon"},
                                    {"--dscp ef", "--dscp: 'ef' is not CLASS=PART"},
                                    {"--dscp ef=1 --dscp ef=1", "--dscp: 'ef=1' is given twice"}}) {
    const Said refused = sluice(std::string("bench priorities ") + wrong);
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_NE(refused.err.find(says), std::string::npos) << refused.err;
  }
}

}  // namespace
}  // namespace sluice::priorities
