// `sluice send`: every packet of a capture arrives, once, whole and in order; wrong words and captures are errors.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "ports/testing/net_namespace.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::NetNamespace;
using testing::Said;
using testing::Wire;
using Bytes = Wire::Bytes;

class SendTest : public testing::CliTest {
 protected:
  // Frames of all lengths, 10 ms apart.
  std::vector<Bytes> capture(uint32_t n, const std::string& name) const {
    std::vector<Bytes> frames;
    auto writer = CaptureWriter::create(path(name));
    EXPECT_TRUE(writer.ok());
    for (uint32_t i = 0; i < n; ++i) {
      std::vector<uint8_t> payload(18 + i * 29 % 1400);
      for (size_t b = 0; b < payload.size(); ++b) payload[b] = static_cast<uint8_t>(i + b);
      frames.push_back(udp4("10.1.0.1", "10.1.0.2").ports(1000, static_cast<uint16_t>(i)).payload(payload).build());
      const auto bytes = static_cast<uint32_t>(frames.back().size());
      EXPECT_TRUE(
          writer->append(FrameHeader{bytes, bytes, 1'000'000'000 + uint64_t{i} * 10'000'000}, frames.back().data()));
    }
    EXPECT_TRUE(writer->commit().ok());
    return frames;
  }
};

TEST_F(SendTest, EveryPacketArrivesOnceWholeAndInOrder) {
  if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
  auto near = NetNamespace::create(), far = NetNamespace::create();
  ASSERT_TRUE(near.ok() && far.ok());
  ASSERT_TRUE(NetNamespace::veth(*near, "g0", *far, "s0", 1).ok());
  const std::vector<Bytes> frames = capture(40, "in.pcap");
  auto wire = Wire::open(*far, "s0");
  ASSERT_TRUE(wire.ok());
  for (const char* how : {"--method af_packet", "--method pcap --rate 2kpps",
                          "--method af_packet --rate 10Mbps --loop --limit 60", "--method af_packet --as-timed"}) {
    SCOPED_TRACE(how);
    Said said;
    {
      const auto inside = near->enter();
      said = sluice("send in.pcap --out g0 -o json " + std::string(how));
    }
    ASSERT_EQ(said.code, 0) << said.out << said.err;
    const auto report = said.json();
    const uint32_t sent = std::string(how).find("--limit") == std::string::npos ? 40 : 60;
    EXPECT_EQ(report["packets"], sent);
    EXPECT_EQ(report["failed"], 0);
    // 39 gaps of 10 ms, of half a millisecond; a loop of 60 packets has more than 20 kB, which take 16 ms.
    if (std::string(how).find("--as-timed") != std::string::npos) {
      EXPECT_GE(report["seconds"], 0.39);
    }
    if (std::string(how).find("kpps") != std::string::npos) {
      EXPECT_GE(report["seconds"], 0.0195);
    }
    if (std::string(how).find("Mbps") != std::string::npos) {
      EXPECT_GE(report["seconds"], 0.016);
    }
    uint32_t next = 0;
    while (next < sent) {
      auto frame = wire->receive(testing::kPatience);
      ASSERT_TRUE(frame) << next;
      // What the interfaces' own kernels say.
      if (frame->size() < 42 || (*frame)[12] != 8 || (*frame)[13] != 0 || (*frame)[26] != 10) continue;
      ASSERT_EQ(*frame, frames[next % 40]) << next;
      ++next;
    }
  }
}

// A frame longer than the MTU does not leave, and is not counted as if it had.
TEST_F(SendTest, SendsNoRefusedPacket) {
  if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
  auto near = NetNamespace::create(), far = NetNamespace::create();
  ASSERT_TRUE(near.ok() && far.ok());
  ASSERT_TRUE(NetNamespace::veth(*near, "g0", *far, "s0", 1).ok());
  auto writer = CaptureWriter::create(path("in.pcap"));
  ASSERT_TRUE(writer.ok());
  uint64_t bytes = 0;
  for (const uint32_t payload : {100u, 1472u, 1473u, 18u, 3000u}) {
    const Bytes frame = udp4("10.1.0.1", "10.1.0.2").ports(1000, 7).payload(std::vector<uint8_t>(payload, 7)).build();
    const auto length = static_cast<uint32_t>(frame.size());
    if (payload <= 1472) bytes += length;
    ASSERT_TRUE(writer->append(FrameHeader{length, length, 1}, frame.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
  for (const char* how : {"--method af_packet", "--method pcap", "--method af_xdp", ""}) {
    SCOPED_TRACE(how);
    for (const bool json : {true, false}) {
      Said said;
      {
        const auto inside = near->enter();
        said = sluice("send in.pcap --out g0 " + std::string(how) + (json ? " -o json" : ""));
      }
      if (said.code == 4) break;  // this method is not here
      EXPECT_EQ(said.code, 3) << said.out << said.err;
      EXPECT_NE(said.err.find("2 packets did not leave g0"), std::string::npos) << said.err;
      if (!json) {
        EXPECT_EQ(said.out.rfind("sent   3 packets, 1.7 KiB", 0), 0u) << said.out;
        EXPECT_NE(said.out.find("\nlost   2 packets"), std::string::npos) << said.out;
        continue;
      }
      const auto report = said.json();
      EXPECT_EQ(report["packets"], 3);
      EXPECT_EQ(report["bytes"], bytes);
      EXPECT_EQ(report["failed"], 2);
      EXPECT_DOUBLE_EQ(report["packets_per_second"].get<double>() * report["seconds"].get<double>(), 3);
    }
  }
}

TEST_F(SendTest, SaysWhyAPacketCannotBeSent) {
  (void)capture(1, "in.pcap");
  ASSERT_TRUE(CaptureWriter::create(path("empty.pcap"))->commit().ok());
  const std::pair<const char*, const char*> kWrong[] = {
      {"in.pcap", "--out"},
      {"in.pcap --out nowhere0 --method af_packet", "nowhere0"},
      {"in.pcap --out eth0 --rate fast", "--rate 'fast' is not a rate"},
      {"in.pcap --out eth0 --rate 0pps", "--rate '0pps' is not a rate"},
      {"in.pcap --out eth0 --rate 10pps --as-timed", "--as-timed"},
      {"in.pcap --out eth0 --method ether", "ether"},
      {"empty.pcap --out eth0", "there are no packets in it"},
      {"none.pcap --out eth0", "none.pcap"},
  };
  for (const auto& [words, says] : kWrong) {
    const Said said = sluice("send " + std::string(words));
    EXPECT_NE(said.code, 0) << words;
    EXPECT_NE(said.err.find(says), std::string::npos) << words << ": " << said.err;
  }
}

}  // namespace
}  // namespace sluice
