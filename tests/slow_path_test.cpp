// Fragments, options and ICMP errors: every backend gives the same, and every packet is accounted for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "control/standard_graph.h"
#include "net/checksum.h"
#include "net/ipv4.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/slow_path.h"

namespace sluice {
namespace {

using testing::DeviceOutcome;
using testing::expect_equal;
using testing::kWatched;
using testing::TempDir;
using testing::Way;
using Bytes = std::vector<uint8_t>;

uint64_t dropped(const testing::GraphOutcome& o, DropReason why) {
  return o.report.drops[static_cast<size_t>(why)];
}

TEST(SlowPath, EveryBackendGivesTheSame) {
  const TempDir dir;
  const uint32_t packets = kWatched ? 600 : 2000;
  testing::write_slow_path_capture(dir / "in.pcap", packets);
  for (const bool ports : {false, true}) {
    const std::string text = testing::slow_path_graph_text(dir, ports);
    const DeviceOutcome want = testing::run_way(dir, text, nullptr, {});
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    EXPECT_TRUE(want.outcome.report.conserved());
    EXPECT_GT(want.outcome.report.generated, packets / 3);
    // The capture must reach what it was made for, or equality says nothing.
    for (const DropReason why :
         {DropReason::kTooBig, DropReason::kBadOptions, DropReason::kSourceRoute, DropReason::kTtlExpired,
          DropReason::kHopLimitExpired, DropReason::kNoAdjacency, DropReason::kNoRoute, DropReason::kIcmpRateLimited}) {
      EXPECT_GT(dropped(want.outcome, why), 0u) << to_string(why);
    }
    EXPECT_EQ(dropped(want.outcome, DropReason::kNeedsFragmentation), 0u);
    for (const unsigned workers : {1u, 3u}) {
      for (const uint32_t batch : {1u, 33u, 4096u}) {
        for (const bool fast : {true, false}) {
          if ((kWatched || ports) && batch != 33) continue;
          SCOPED_TRACE(fmt::format("{} workers, batches of {}, fast path {}, ports {}", workers, batch, fast, ports));
          const DeviceOutcome got = testing::run_way(dir, text, nullptr, {}, [&](testing::GraphRun& run) {
            run.workers = workers;
            run.batch = batch;
            run.fast_path = fast;
          });
          expect_equal(want, got);
          // The slow path must not keep common packets from the fast one.
          EXPECT_EQ(got.outcome.report.totals.fast > packets / 8, fast);
        }
      }
    }
    using enum RecordChoice;
    for (const Way& way : std::vector<Way>{
             {DeviceMode::kPersistent, Transport::kStaged, kAuto, 1, 256},
             {DeviceMode::kPersistent, Transport::kStaged, kKey, 3, 64, 2},
             {DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 256},
             {DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 3, 100},
             {DeviceMode::kLaunch, Transport::kCommPool, kAuto, 1, 256},
             {DeviceMode::kAdaptive, Transport::kStaged, kKey, 2, 128, 1, 4, 0, DeviceThreading::kMaster},
         }) {
      if (ports && way.records != kAuto) continue;
      for (const std::string& kind : testing::device_kinds()) {
        SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
        const DeviceOutcome got = testing::run_way(dir, text, &way, testing::devices_of(kind, way.devices));
        expect_equal(want, got);
        EXPECT_GT(got.outcome.report.offload.offloaded, packets / 4);
      }
    }
  }
}

class SlowPathElements : public ::testing::Test {
 protected:
  struct Frame {
    Bytes bytes;
    uint32_t wire = 0;
  };
  std::string capture(const std::vector<Frame>& frames) {
    auto writer = CaptureWriter::create(dir_ / "in.pcap");
    for (const Frame& f : frames) {
      const auto n = static_cast<uint32_t>(f.bytes.size());
      EXPECT_TRUE(writer->append(FrameHeader{n, f.wire == 0 ? n : f.wire, 1'000'000'000}, f.bytes.data()));
    }
    EXPECT_TRUE(writer->commit().ok());
    return dir_ / "in.pcap";
  }
  testing::GraphOutcome run(const std::string& text) {
    const auto o = testing::run_graph({.text = testing::with_outputs(dir_, text)});
    EXPECT_TRUE(o.ok) << o.error;
    EXPECT_TRUE(o.report.conserved());
    return o;
  }
  std::vector<Frame> out(const char* name = "OUT") {
    std::vector<Frame> frames;
    auto reader = CaptureReader::open(dir_ / name);
    CapturedFrame frame{};
    while (reader.ok()) {
      auto more = reader->next(frame);
      if (!more || !*more) break;
      frames.push_back({{frame.data, frame.data + frame.captured}, frame.wire_bytes});
    }
    return frames;
  }
  TempDir dir_;
};

TEST_F(SlowPathElements, AFragmenterWithAnMtuCutsWhatIsLarger) {
  const auto path = capture({{udp4("10.0.0.1", "192.0.2.7").payload(1000).build()},
                             {udp4("10.0.0.1", "192.0.2.7").payload(100).build()},
                             {udp4("10.0.0.1", "192.0.2.7").payload(1000).dont_fragment().build()},
                             {udp6("2001:db8::1", "2001:db8::2").payload(1000).build()},
                             {udp6("2001:db8::1", "2001:db8::2").payload(100).build()}});
  const std::string text = "FromDump(" + path + ") -> IPInput -> Strip(14) -> f :: IPFragmenter(576) -> ToDump($OUT);";
  const auto o = run(text + "f[1] -> ICMPError(192.0.2.1, 3, 4) -> ToDump($OUT2);");
  EXPECT_EQ(o.report.packets_in, 5u);
  EXPECT_EQ(o.report.generated, 2u);  // one more fragment, one error
  EXPECT_EQ(dropped(o, DropReason::kTooBig), 2u);
  const auto got = out();
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0].bytes.size(), 572u);
  EXPECT_EQ(got[1].bytes.size(), 20u + 1008 - 552);
  EXPECT_EQ(got[2].bytes.size(), 128u);
  const auto errors = out("OUT2");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(load_be32(&errors[0].bytes[24]), 576u);
  // With nothing connected the reason is that of the packet.
  EXPECT_EQ(dropped(run(text), DropReason::kTooBig), 2u);
}

TEST_F(SlowPathElements, EveryFragmentHasTheLinkHeaderThatThePacketHad) {
  const Bytes frame = udp4("10.0.0.1", "192.0.2.7").vlan(5).vlan(7).payload(1000).build();
  run("FromDump(" + capture({{frame}}) + ") -> IPInput -> IPFragmenter(300) -> ToDump($OUT);");
  const auto got = out();
  ASSERT_EQ(got.size(), 4u);
  for (const Frame& f : got)
    EXPECT_EQ(Bytes(f.bytes.begin(), f.bytes.begin() + 22), Bytes(frame.begin(), frame.begin() + 22));
}

// Of a packet whose end was not captured, fragments have what there is, and the right lengths.
TEST_F(SlowPathElements, ACutCaptureGivesFragmentsOfTheRightLengths) {
  const Bytes frame = udp4("10.0.0.1", "192.0.2.7").payload(1400).build();
  for (const size_t captured : {42u, 100u, 614u, 700u, 1441u}) {
    run("FromDump(" + capture({{Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(captured)), 1442}}) +
        ") -> IPInput -> IPFragmenter(600) -> ToDump($OUT);");
    const auto got = out();
    ASSERT_EQ(got.size(), 3u) << captured;
    size_t payload = 0;
    for (const Frame& f : got) {
      const size_t whole = f.wire - 34, at = 34 + (load_be16(&f.bytes[20]) & kIpv4OffsetMask) * 8u;
      EXPECT_EQ(f.wire, load_be16(&f.bytes[16]) + 14u);
      const size_t there = captured > at ? std::min(captured - at, whole) : 0;
      ASSERT_EQ(f.bytes.size(), 34 + there);
      EXPECT_TRUE(std::equal(f.bytes.begin() + 34, f.bytes.end(), frame.begin() + static_cast<ptrdiff_t>(at)));
      payload += whole;
    }
    EXPECT_EQ(payload, 1408u);
  }
}

// A fragment is described as one: no ports in what comes after.
TEST_F(SlowPathElements, FragmentsAreClassifiedAsFragments) {
  const auto path = capture({{udp4("10.0.0.1", "192.0.2.7").ports(5, 53).payload(1000).build()}});
  run("FromDump(" + path +
      ") -> IPInput -> IPFragmenter(300) -> c :: IPClassifier(dst udp port 53, -) -> ToDump($OUT); "
      "c[1] -> ToDump($OUT2);");
  EXPECT_EQ(out().size(), 1u);
  EXPECT_EQ(out("OUT2").size(), 3u);
}

TEST_F(SlowPathElements, TheLargestPacketOverTheSmallestLink) {
  const auto path = capture({{ip4("10.0.0.1", "192.0.2.7", 99).payload(65515).build()},
                             {ip4("10.0.0.1", "192.0.2.7", 99).fragment(65528, false).payload(100).build()}});
  const auto o = run("FromDump(" + path + ") -> IPInput -> IPFragmenter(68) -> ToDump($OUT);");
  const auto got = out();
  ASSERT_EQ(got.size(), (65515u + 47) / 48);
  EXPECT_EQ(o.report.generated, got.size() - 1);
  EXPECT_EQ(load_be16(&got.back().bytes[20]), 65515 / 48 * 48 / 8);
  EXPECT_EQ(dropped(o, DropReason::kBadFragment), 1u);
}

TEST_F(SlowPathElements, OptionsMayBeHandledWithoutRoutes) {
  const uint8_t options[] = {7, 7, 4, 0, 0, 0, 0};
  const auto path = capture({{udp4("10.0.0.1", "192.0.2.7").ipv4_options(options).build()},
                             {udp4("10.0.0.1", "192.0.2.7").build()},
                             {udp6("2001:db8::1", "2001:db8::2").build()}});
  const auto o = run("FromDump(" + path + ") -> IPInput -> IPGWOptions(192.0.2.1) -> ToDump($OUT);");
  const auto got = out();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(Bytes(got[0].bytes.begin() + 34, got[0].bytes.begin() + 42), (Bytes{7, 7, 8, 192, 0, 2, 1, 0}));
  EXPECT_TRUE(ipv4_checksum_ok(&got[0].bytes[14], 28));
  EXPECT_EQ(o.report.dropped, 0u);
}

TEST_F(SlowPathElements, WrongArgumentsAreFound) {
  const auto error = [&](const std::string& element) {
    return testing::run_graph({.text = "InfiniteSource(LIMIT 1) -> MarkIPHeader -> " + element + " -> Discard;"}).error;
  };
  EXPECT_NE(error("IPFragmenter(67)").find("from 68 to 65535"), std::string::npos) << error("IPFragmenter(67)");
  EXPECT_NE(error("IPGWOptions").find("MYADDR"), std::string::npos);
  EXPECT_NE(error("IPGWOptions(192.0.2.1, 1.2.3)").find("'1.2.3' is not an IPv4 address"), std::string::npos);
  EXPECT_NE(error("IPGWOptions(192.0.2.1, SOURCE_ROUTE process)").find("ignore"), std::string::npos);
}

}  // namespace
}  // namespace sluice
