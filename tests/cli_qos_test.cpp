// run --qos; show qos, qos set and qos load against a process that runs.
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::CliTest;
using testing::Said;

class CliQosTest : public CliTest {
 protected:
  // 1,000 frames of 1,000 bytes of voice and as many of the rest, in turns, 100 us apart: 80 Mbit/s.
  void SetUp() override {
    CliTest::SetUp();
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    for (uint64_t i = 0; i < 2000; ++i) {
      const auto f = udp4("10.0.0.1", "8.1.1.1").dscp(i % 2 == 0 ? 46 : 0).size(1000).build();
      ASSERT_TRUE(writer->append(FrameHeader{1000, 1000, kStart + i * 100'000}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
    write("rib", "8.0.0.0/8 a\n");
    write("edge.qos", "class voice dscp ef strict rate 8Mbps limit 50\nclass rest dscp others limit 100\n");
  }
  static constexpr uint64_t kStart = 1'700'000'000'000'000'000;
};

TEST_F(CliQosTest, ClassesAreShapedAndReported) {
  const Said said = sluice("run --routes rib --in in.pcap --out out.pcap --qos edge.qos -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json r = said.json();
  EXPECT_TRUE(r["conserved"]);
  ASSERT_EQ(r["qos"].size(), 1u);
  const Json &voice = r["qos"][0]["classes"][0], &rest = r["qos"][0]["classes"][1];
  EXPECT_EQ(voice["class"], "voice");
  EXPECT_EQ(voice["rate_bps"], 8'000'000);
  EXPECT_EQ(voice["in"]["packets"], 1000);
  // One a millisecond of 200, and the 50 that wait at the end.
  EXPECT_EQ(voice["out"]["packets"], 250);
  EXPECT_EQ(voice["drops"]["shaper-full"], 750);
  EXPECT_EQ(r["drops"]["shaper-full"], 750);
  EXPECT_EQ(rest["out"]["bytes"], 1'000'000);
  EXPECT_EQ(rest["latency_ns"]["p99"], 0);
  auto reader = CaptureReader::open(path("out.pcap"));
  ASSERT_TRUE(reader.ok());
  CapturedFrame frame;
  uint64_t before = 0, last_voice = 0;
  while (*reader->next(frame)) {
    EXPECT_LE(before, frame.timestamp_ns);
    before = frame.timestamp_ns;
    if (frame.data[15] >> 2 != 46) continue;
    if (last_voice != 0) {
      EXPECT_EQ(frame.timestamp_ns - last_voice, 1'000'000u);
    }
    last_voice = frame.timestamp_ns;
  }
  const Said text = sluice("run --routes rib --in in.pcap --qos edge.qos");
  EXPECT_NE(text.out.find("p99 us"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("shaper-full 750"), std::string::npos) << text.out;
}

// Classes without packets are an empty list; none at all are an error for whoever asks for them.
TEST_F(CliQosTest, NoPacketsAreNotNoClasses) {
  ASSERT_TRUE(CaptureWriter::create(path("empty.pcap"))->commit().ok());
  const Said empty = sluice("run --routes rib --in empty.pcap --qos edge.qos -o json");
  ASSERT_EQ(empty.code, 0) << empty.err;
  EXPECT_EQ(empty.json()["qos"], Json::array());
  EXPECT_FALSE(sluice("run --routes rib --in in.pcap -o json").json().contains("qos"));
  const Said asked = shell(R"(export SLUICE_SOCKET=$PWD/s; s="$SLUICE"
"$s" run --routes rib --in in.pcap --repeat --control s -o json > run.out 2> run.err & run=$!
for i in $(seq 600); do test -S s && "$s" show drops > drops.txt 2> /dev/null && break; sleep 0.05; done
"$s" show qos; code=$?
kill -TERM $run; wait $run; exit $code)");
  EXPECT_EQ(asked.code, 1) << asked.err;
  EXPECT_NE(asked.err.find("no classes of service"), std::string::npos) << asked.err;
  EXPECT_NE(asked.err.find("--qos FILE"), std::string::npos) << asked.err;
}

TEST_F(CliQosTest, TheExampleAndConfigurationFiles) {
  write("g.click", "FromDump(in.pcap) -> IPInput -> ToDump(out.pcap);");
  const Said said = sluice("run g.click --qos " SLUICE_SOURCE_DIR "/examples/three_classes.qos -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json r = said.json();
  EXPECT_TRUE(r["conserved"]);
  EXPECT_EQ(r["qos"][0]["rate_bps"], 20'000'000);
  EXPECT_EQ(r["qos"][0]["classes"].size(), 3u);
  EXPECT_GT(r["drops"]["queue-full"], 0);
}

TEST_F(CliQosTest, ErrorsSayWhereAndWhatToDo) {
  write("wrong.qos", "class a dscp ef\nclass b wieght 2\n");
  const Said wrong = sluice("run --routes rib --in in.pcap --qos wrong.qos");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("wrong.qos:2:9: error: unknown word 'wieght'"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("^"), std::string::npos);
  EXPECT_EQ(sluice("run --routes rib --in in.pcap --qos nowhere.qos").code, 3);
  write("marks.qos", "class a mark 7\nclass b dscp others\n");
  EXPECT_EQ(sluice("run --routes rib --in in.pcap --qos marks.qos").code, 0);
  write("rates.qos", "class a dscp ef rate 1Mbps\nclass b dscp others\n");
  const Said rates = sluice("run --routes rib --in in.pcap --qos rates.qos --priorities");
  EXPECT_EQ(rates.code, 0) << rates.err;
  const Said marks = sluice("run --routes rib --in in.pcap --qos marks.qos --priorities");
  EXPECT_EQ(marks.code, 2);
  EXPECT_NE(marks.err.find("write the classes of --qos by dscp"), std::string::npos) << marks.err;
  write("queue.click", "FromDump(in.pcap, STOP true) -> Queue -> Unqueue -> Discard;");
  EXPECT_EQ(sluice("run queue.click --qos marks.qos").code, 0);
}

TEST_F(CliQosTest, ARunningProcessIsAskedAndChanged) {
  write("wrong.qos", "class a dscp 99\n");
  write("next.qos", "class rest dscp others\nclass voice dscp ef rate 1Mbps\n");
  write("marks.qos", "class a mark 7\nclass b dscp others\n");
  const Said said = shell(R"(export SLUICE_SOCKET=$PWD/s; s="$SLUICE"
"$s" run --routes rib --in in.pcap --repeat --qos edge.qos --control s -o json > run.out 2> run.err & run=$!
for i in $(seq 600); do test -S s && "$s" show qos -o json > qos.json 2> /dev/null && grep -q voice qos.json && break; sleep 0.05; done
"$s" show qos > qos.txt
"$s" qos set voice rate 20Mbps > set.txt; echo $? >> codes
"$s" qos set voice rate unlimited --port 3 -o json > port.json; echo $? >> codes
"$s" qos set vioce rate 20Mbps 2> class.txt; echo $? >> codes
"$s" qos set voice rate fast 2> rate.txt; echo $? >> codes
"$s" qos set port rate 90Mbps > each.txt; echo $? >> codes
"$s" qos set port rate 70Mbps --port 0 > one.txt; echo $? >> codes
"$s" show qos -o json > after.json; "$s" show qos > after.txt
"$s" qos load wrong.qos 2> wrong.txt; echo $? >> codes
"$s" qos load marks.qos 2> marks.txt; echo $? >> codes
mkfifo pipe; (cat next.qos > pipe) & "$s" qos load pipe > pipe.txt; echo $? >> codes
"$s" qos load next.qos > load.txt; echo $? >> codes
"$s" show qos -o json > loaded.json
kill -TERM $run; wait $run; echo $? >> codes)");
  EXPECT_EQ(read("codes"), "0\n0\n1\n1\n0\n0\n1\n1\n0\n0\n0\n") << said.err << read("run.err");
  const auto json_of = [&](const std::string& name) { return Json::parse(read(name), nullptr, false); };
  EXPECT_EQ(json_of("qos.json")["ports"][0]["classes"][0]["rate_bps"], 8'000'000) << read("qos.json");
  EXPECT_NE(read("qos.txt").find("voice"), std::string::npos);
  EXPECT_EQ(read("set.txt"), "class voice: 20.00 Mbit/s\n");
  EXPECT_EQ(json_of("port.json")["port"], 3);
  EXPECT_EQ(read("each.txt"), "each port: 90.00 Mbit/s\n");
  EXPECT_EQ(read("one.txt"), "port 0: 70.00 Mbit/s\n");
  const Json after = json_of("after.json");
  for (const Json& port : after["ports"]) {
    EXPECT_EQ(port["rate_bps"], port["port"] == 0 ? 70'000'000 : 90'000'000) << port;
  }
  EXPECT_NE(read("after.txt").find("(all)"), std::string::npos) << read("after.txt");
  EXPECT_NE(read("after.txt").find("70.00 Mbit/s"), std::string::npos) << read("after.txt");
  EXPECT_EQ(read("qos.txt").find("(all)"), std::string::npos) << read("qos.txt");
  EXPECT_NE(read("class.txt").find("there is no class 'vioce'"), std::string::npos);
  EXPECT_NE(read("rate.txt").find("'fast' is not a rate"), std::string::npos);
  EXPECT_EQ(after["ports"][0]["classes"][0]["rate_bps"], 20'000'000);
  EXPECT_NE(read("wrong.txt").find("wrong.qos:1:14"), std::string::npos) << read("wrong.txt");
  EXPECT_NE(read("marks.txt").find("class a is selected by marks"), std::string::npos) << read("marks.txt");
  EXPECT_EQ(read("pipe.txt"), "2 classes of pipe\n");
  const Json loaded = json_of("loaded.json")["ports"][0]["classes"];
  EXPECT_EQ(loaded[0]["class"], "rest");
  EXPECT_EQ(loaded[1]["rate_bps"], 1'000'000);
  // What the class of this name counted before is kept.
  EXPECT_GE(loaded[1]["in"]["packets"], after["ports"][0]["classes"][0]["in"]["packets"]);
  const Json r = json_of("run.out");
  EXPECT_TRUE(r["conserved"]) << read("run.out") << read("run.err");
}

}  // namespace
}  // namespace sluice
