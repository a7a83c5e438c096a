// Connections: `sluice flows`, and lists that look at the state of connections.
#include <fmt/format.h>

#include <vector>

#include "net/l4.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::Said;

class CliFlowsTest : public testing::CliTest {
 protected:
  using Frames = std::vector<std::vector<uint8_t>>;
  // A packet each second.
  void capture(const char* name, const Frames& frames) {
    auto writer = CaptureWriter::create(path(name));
    ASSERT_TRUE(writer.ok());
    uint64_t stamp = 1'700'000'000'000'000'000;
    for (const auto& f : frames) {
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, stamp += 1'000'000'000}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  static std::vector<uint8_t> tcp(bool reply, uint16_t port, uint8_t flags) {
    return reply ? tcp4("192.0.2.7", "10.0.0.1").ports(port, 4000).tcp_flags(flags).build()
                 : tcp4("10.0.0.1", "192.0.2.7").ports(4000, port).tcp_flags(flags).build();
  }
  // What leaves, as many letters as packets: p passes, d is dropped.
  std::string verdicts(const std::string& options) {
    const Said said = sluice("run -q --in in.pcap --verdicts v " + options);
    EXPECT_EQ(said.code, 0) << said.err;
    return shell("cut -f2 v | tr -d '\\n' | sed 's/permit/p/g; s/deny/d/g'").out;
  }
};

TEST_F(CliFlowsTest, ListsConnectionsWithBothDirections) {
  capture("in.pcap", {tcp(false, 22, kTcpSyn), tcp(true, 22, kTcpSyn | kTcpAck), tcp(false, 22, kTcpAck),
                      udp6("2001:db8::1", "2001:db8::2").ports(5, 53).build()});
  const Said said = sluice("flows --in in.pcap -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json json = Json::parse(said.out);
  ASSERT_EQ(json["flows"].size(), 2u);
  const Json& first = json["flows"][0];
  EXPECT_EQ(first["protocol"], "tcp");
  EXPECT_EQ(first["src"], "10.0.0.1");
  EXPECT_EQ(first["sport"], 4000);
  EXPECT_EQ(first["dst"], "192.0.2.7");
  EXPECT_EQ(first["dport"], 22);
  EXPECT_EQ(first["packets"], (Json{2, 1}));
  EXPECT_EQ(first["bytes"], (Json{108, 54}));
  EXPECT_EQ(first["start"], 1700000001.0);
  EXPECT_EQ(first["end"], 1700000003.0);
  EXPECT_EQ(first["state"], "established");
  EXPECT_EQ(json["flows"][1]["src"], "2001:db8::1");
  EXPECT_EQ(json["flows"][1]["state"], "unreplied");
}

TEST_F(CliFlowsTest, AConnectionEndsByItsTimeout) {
  Frames frames(3, udp4("10.0.0.1", "192.0.2.7").ports(5, 53).build());
  capture("in.pcap", frames);
  EXPECT_EQ(Json::parse(sluice("flows --in in.pcap --timeout 0.5 -o json").out)["flows"].size(), 3u);
  EXPECT_EQ(Json::parse(sluice("flows --in in.pcap -o json").out)["flows"].size(), 1u);
}

TEST_F(CliFlowsTest, OnlyWhatWasAskedForComesBack) {
  write(
      "fw.acl",
      "permit tcp from any to any port 22 state new keep-state\npermit ip from any to any state established,related\n");
  const auto refused = icmp4("198.51.100.1", "10.0.0.1").icmp(3, 1);
  const auto quoted = [&](uint16_t port) {
    const auto inner = tcp4("10.0.0.1", "192.0.2.7").ports(4000, port).no_link().build();
    return PacketBuilder(refused).payload(inner).build();
  };
  capture("in.pcap", {tcp(true, 22, kTcpSyn | kTcpAck), tcp(false, 22, kTcpSyn), tcp(true, 22, kTcpSyn | kTcpAck),
                      tcp(false, 80, kTcpSyn), tcp(true, 80, kTcpSyn | kTcpAck), quoted(22), quoted(80)});
  EXPECT_EQ(verdicts("--acl fw.acl"), "dppddpd");
  // A rule without keep-state lets the packet pass, and nothing back.
  write("fw.acl",
        "permit tcp from any to any port 22 state new\npermit ip from any to any state established,related\n");
  EXPECT_EQ(verdicts("--acl fw.acl"), "dpddddd");
}

TEST_F(CliFlowsTest, AnyNumberOfWorkersAndAnyBatchGiveTheSame) {
  write("fw.acl",
        "permit tcp from any to any port gt 100 state new keep-state\npermit ip from any to any state established\n");
  Frames frames;
  uint64_t random = 1;
  constexpr uint8_t kFlags[] = {kTcpSyn, kTcpSyn | kTcpAck, kTcpAck, kTcpAck, kTcpFin | kTcpAck, kTcpRst};
  for (int i = 0; i < 1500; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const auto r = static_cast<uint32_t>(random >> 33);
    frames.push_back(tcp((r & 1) != 0, static_cast<uint16_t>(90 + r / 2 % 20), kFlags[r / 64 % 6]));
  }
  capture("in.pcap", frames);
  const std::string expected = verdicts("--acl fw.acl --workers 1 --batch 1");
  EXPECT_NE(expected.find('p'), std::string::npos);
  EXPECT_NE(expected.find('d'), std::string::npos);
  for (const char* options :
       {"--workers 1", "--workers 3 --batch 7", "--workers 2 --batch 64", "--device emu --batch 32"})
    EXPECT_EQ(verdicts(fmt::format("--acl fw.acl {}", options)), expected) << options;
}

TEST_F(CliFlowsTest, VerdictsSayWhichListAPacketMet) {
  write(
      "fw.acl",
      "permit tcp from any to any port 22 state new keep-state\ndeny ip from any to any state invalid\npermit ip from "
      "any to any state established\n");
  capture("in.pcap", {tcp(false, 22, kTcpSyn), tcp(true, 22, kTcpSyn | kTcpAck),
                      PacketBuilder::ether(0x0806).payload(46).build(), tcp(false, 23, kTcpSyn)});
  for (const char* options : {"", "--workers 2 --batch 1", "--device emu"}) {
    const Said said = sluice(fmt::format("run -q --acl fw.acl --in in.pcap --verdicts v {}", options));
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(read("v"),
              "1\tpermit\t-\t1\t-\tacl_new\n2\tpermit\t-\t1\t-\tacl_established\n"
              "3\tdeny\tacl-no-match\t0\t-\tacl_invalid\n4\tdeny\tacl-no-match\t0\t-\tacl_new\n")
        << options;
  }
}

TEST_F(CliFlowsTest, RulesAboutStateAreNeverSkipped) {
  write("fw.acl", "permit ip from any to any state established\n");
  capture("in.pcap", {tcp(false, 22, kTcpSyn)});
  // A pipe is read once, and a list alone knows no connections.
  EXPECT_EQ(sluice("run --in in.pcap --acl - < fw.acl").code, 1);
  EXPECT_EQ(sluice("classify --rules fw.acl --in in.pcap").code, 1);
}

TEST_F(CliFlowsTest, ABridgeLetsAnswersBack) {
  write("fw.acl",
        "permit ip from 10.0.0.0/8 to any state new keep-state\npermit ip from any to any state established\n");
  capture("a.pcap", {tcp(false, 22, kTcpSyn), PacketBuilder::ether(0x0806).payload(46).build()});
  capture("b.pcap", {tcp(true, 22, kTcpSyn | kTcpAck), tcp(true, 80, kTcpSyn)});
  const Said said = sluice(
      "run -q --bridge a,b --map device:a=pcap:a.pcap,to_a.pcap --map device:b=pcap:b.pcap,to_b.pcap --acl fw.acl "
      "-o json");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(Json::parse(sluice("flows --in to_a.pcap -o json").out)["packets"], 1);
  EXPECT_EQ(Json::parse(sluice("flows --in to_b.pcap -o json").out)["packets"], 2);  // the other is ARP
}

}  // namespace
}  // namespace sluice
