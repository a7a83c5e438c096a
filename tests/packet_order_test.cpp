// The output depends on the packets and their timestamps: not on packets per batch, on the number of workers or
// devices, or on whether the packet scheduler runs the graph.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice::packet_order {
namespace {

using testing::GraphOutcome;
using testing::GraphRun;
using testing::TempDir;
using testing::Way;

constexpr uint64_t kSecond = 1'000'000'000;

struct Sent {
  uint64_t timestamp_ns;
  std::vector<uint8_t> frame;
};

void write_sent(const std::string& path, const std::vector<Sent>& all) {
  auto writer = CaptureWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (const Sent& sent : all) {
    const auto bytes = static_cast<uint32_t>(sent.frame.size());
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, sent.timestamp_ns}, sent.frame.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
}

std::vector<Sent> read_sent(const std::string& path) {
  std::vector<Sent> all;
  auto reader = CaptureReader::open(path);
  EXPECT_TRUE(reader.ok());
  if (!reader) return all;
  for (CapturedFrame frame; true;) {
    auto more = reader->next(frame);
    EXPECT_TRUE(more.ok());
    if (!more.ok() || !*more) return all;
    all.push_back({frame.timestamp_ns, {frame.data, frame.data + frame.captured}});
  }
}

struct Ran {
  GraphOutcome outcome;
  std::string out, out2;
};

// By the packet scheduler where `run` is empty.
Ran run(const TempDir& dir, const std::string& text, const std::function<void(GraphRun&)>& adjust) {
  GraphRun graph;
  graph.text = testing::with_outputs(dir, text);
  Ran ran;
  if (adjust) {
    adjust(graph);
    ran.outcome = testing::run_graph(graph);
  } else {
    graph.by_packets = true;
    ran.outcome = testing::run_graph(graph);
  }
  ran.out = testing::read_file(dir / "OUT");
  ran.out2 = testing::read_file(dir / "OUT2");
  return ran;
}

std::function<void(GraphRun&)> on_cpu(unsigned workers, uint32_t batch, bool fast = true, uint64_t target_ns = 0) {
  return [=](GraphRun& graph) {
    graph.workers = workers;
    graph.batch = batch;
    graph.fast_path = fast;
    graph.latency_target_ns = target_ns;
  };
}

// Every way to run the graph gives what one packet a batch gives, which is returned.
Ran equal_every_way(const TempDir& dir, const std::string& text, bool scheduled = true) {
  const Ran want = run(dir, text, on_cpu(1, 1, false));
  EXPECT_TRUE(want.outcome.ok) << want.outcome.error;
  const auto expect_same = [&](const std::string& name, const Ran& got, bool all) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(got.outcome.ok) << got.outcome.error;
    EXPECT_TRUE(got.outcome.report.conserved());
    EXPECT_TRUE(got.out == want.out) << "the output capture differs";
    EXPECT_TRUE(got.out2 == want.out2) << "the second capture differs";
    EXPECT_EQ(got.outcome.report.generated, want.outcome.report.generated);
    EXPECT_EQ(got.outcome.report.drops, want.outcome.report.drops);
    EXPECT_EQ(got.outcome.printed, want.outcome.printed);
    if (all) {
      EXPECT_EQ(got.outcome.counters, want.outcome.counters);
    }
  };
  for (const unsigned workers : {1u, 3u}) {
    for (const uint32_t batch : {1u, 2u, 31u, 32u, 33u, 255u, 256u, 4096u}) {
      if (testing::kWatched && batch != 1 && batch != 33 && batch != 256) continue;
      for (const bool fast : {true, false}) {
        expect_same(fmt::format("{} workers, batches of {}, fast path {}", workers, batch, fast),
                    run(dir, text, on_cpu(workers, batch, fast)), true);
      }
    }
  }
  expect_same("a latency target", run(dir, text, on_cpu(1, 300, true, 1)), true);
  using enum DeviceMode;
  const Way ways[] = {{kLaunch, Transport::kStaged, RecordChoice::kKey, 1, 100},
                      {kLaunch, Transport::kZeroCopy, RecordChoice::kFrame, 2, 33},
                      {kLaunch, Transport::kCommList, RecordChoice::kAuto, 1, 256},
                      {kLaunch, Transport::kCommPool, RecordChoice::kAuto, 2, 256},
                      {kPersistent, Transport::kStaged, RecordChoice::kKey, 1, 4096},
                      {kAdaptive, Transport::kStaged, RecordChoice::kAuto, 1, 256}};
  for (const Way& way : ways) {
    expect_same(::testing::PrintToString(way),
                run(dir, text,
                    [&](GraphRun& graph) {
                      on_cpu(way.workers, way.batch)(graph);
                      graph.device.devices = testing::devices_of("emu", 1);
                      graph.device.mode = way.mode;
                      graph.device.transport = way.transport;
                      graph.device.records = way.records;
                    }),
                true);
  }
  if (scheduled) expect_same("packet scheduler", run(dir, text, {}), true);
  return want;
}

std::string routes_text(const TempDir& dir) {
  testing::write_file(dir / "rib", "10.0.0.0/16 a\n10.1.0.0/16 b\n192.0.2.0/24 a\n");
  testing::write_file(dir / "adj",
                      "a 02:00:00:00:00:0a 02:00:00:00:ff:01 0\nb 02:00:00:00:00:0b 02:00:00:00:ff:01 1\n");
  return fmt::format(
      "RouteTable(main, FILE {0}/rib, ALGORITHM poptrie); AdjacencyTable(adj, FILE {0}/adj, ROUTES main);\n",
      dir.path());
}

TEST(PacketOrder, EveryHopOfARowIsTaken) {
  const TempDir dir;
  std::vector<Sent> sent;
  // Whole bursts of the fast path, and parts of them.
  for (uint32_t i = 0; i < 150; ++i)
    sent.push_back(
        {i, udp4("10.0.0.1", "192.0.2.9").ports(1000, 53).ttl(static_cast<uint8_t>(i < 64 ? 64 : i % 5)).build()});
  write_sent(dir / "in", sent);
  const std::string text = routes_text(dir) + "FromDump(" + (dir / "in") +
                           ") -> IPInput -> IPRoute(TABLE main) -> DecIPTTL -> DecIPTTL -> AdjacencyRewrite(TABLE adj)"
                           " -> DecIPTTL -> AdjacencyRewrite(TABLE adj) -> ToDump($OUT); Idle -> ToDump($OUT2);";
  const Ran want = equal_every_way(dir, text);
  // Of TTLs 0 to 4 only 4 outlives three hops.
  uint32_t left = 64;
  for (uint32_t i = 64; i < 150; ++i) left += i % 5 == 4;
  EXPECT_EQ(want.outcome.report.packets_out, left);
  const std::vector<Sent> out = read_sent(dir / "OUT");
  for (const Sent& packet : out) EXPECT_TRUE(packet.frame[22] == 61 || packet.frame[22] == 1);
}

// ICMP errors of two networks leave by two ports: which are over the rate is a matter of packets alone.
TEST(PacketOrder, RatesOfIcmpErrorsAreCountedOverAllOutputs) {
  const TempDir dir;
  std::vector<Sent> sent;
  for (uint32_t i = 0; i < 600; ++i) {
    sent.push_back({i / 200 * kSecond / 100, udp4(fmt::format("10.{}.0.1", i / 3 % 2), "192.0.2.9")
                                                 .ports(1, 2)
                                                 .ttl(1)
                                                 .id(static_cast<uint16_t>(i))
                                                 .build()});
  }
  write_sent(dir / "in", sent);
  const std::string text = routes_text(dir) + "FromDump(" + (dir / "in") +
                           ") -> IPInput -> ttl :: DecIPTTL -> Discard;\n"
                           "ttl[1] -> ICMPError(192.0.2.1, RATE 1000, BURST 50) -> IPRoute(TABLE main)\n"
                           "  -> AdjacencyRewrite(TABLE adj) -> by :: PortSwitch(0, 1);\n"
                           "by[0] -> ToDump($OUT); by[1] -> ToDump($OUT2);";
  const Ran want = equal_every_way(dir, text);
  // 50 at once; behind a hundredth of a second 10 more, twice.
  EXPECT_EQ(want.outcome.report.packets_out, 70u);
  EXPECT_GT(read_sent(dir / "OUT").size(), 30u);
  EXPECT_GT(read_sent(dir / "OUT2").size(), 30u);
}

TEST(PacketOrder, FragmentsStayInOrderAndBehindTheirPacket) {
  const TempDir dir;
  std::vector<Sent> sent;
  for (uint32_t i = 0; i < 300; ++i) {
    sent.push_back({i * 1000, udp4("10.0.0.1", "192.0.2.9")
                                  .ports(1, 2)
                                  .id(static_cast<uint16_t>(i))
                                  .payload(i % 3 == 0 ? 20 : 1200)
                                  .build()});
  }
  write_sent(dir / "in", sent);
  // Fragments are cut again, and all are copied to where the packets go, by more than one way.
  const std::string text =
      "FromDump(" + (dir / "in") +
      ") -> IPInput -> IPFragmenter(576) -> IPFragmenter(300) -> t :: Tee(3) -> out :: ToDump($OUT);\n"
      "t[1] -> Paint(1) -> Print(copy, 4) -> out; t[2] -> u :: Tee(2) -> out; u[1] -> out;\n"
      "Idle -> ToDump($OUT2);";
  equal_every_way(dir, text);
  run(dir, "FromDump(" + (dir / "in") + ") -> IPInput -> IPFragmenter(576) -> IPFragmenter(300) -> ToDump($OUT);", {});
  uint32_t packet = 0, offset = 0;
  for (const Sent& out : read_sent(dir / "OUT")) {
    const uint32_t id = uint32_t{out.frame[18]} << 8 | out.frame[19];
    const uint32_t at = (uint32_t{out.frame[20]} << 8 | out.frame[21]) & 0x1fff;
    EXPECT_EQ(out.timestamp_ns, id * 1000) << "it is its packet's";
    if (at == 0) {
      EXPECT_EQ(id, packet++);
    } else {
      EXPECT_EQ(id + 1, packet);
      EXPECT_GT(at, offset);
    }
    offset = at;
  }
  EXPECT_EQ(packet, 300u);
}

// More copies than one batch of made packets holds, by ways of different length to one place.
TEST(PacketOrder, CopiesComeInTheOrderOfTheirMaking) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in", testing::kWatched ? 700 : 2000, 11);
  equal_every_way(
      dir,
      "FromDump(" + capture +
          ") -> a :: Tee(4); out :: ToDump($OUT); a[0] -> Null -> b :: Tee(3); a[1] -> b; a[2] -> Print(x, 2) -> out;\n"
          "a[3] -> c :: Classifier(12/0800, -); c[0] -> out; c[1] -> b; b[0] -> out; b[1] -> Paint(2) -> out;\n"
          "b[2] -> ToDump($OUT2);");
}

TEST(PacketOrder, SeveralSourcesTakeTurnsByPackets) {
  const TempDir dir;
  const std::string one = testing::write_mixed_capture(dir / "one", 700, 3);
  const std::string two = testing::write_mixed_capture(dir / "two", 1500, 4);
  const std::string three = testing::write_mixed_capture(dir / "three", 10, 5);
  equal_every_way(dir, "FromDump(" + one + ") -> p :: IPInput -> d :: DecIPTTL -> out :: ToDump($OUT);\n" +
                           "FromDump(" + two + ") -> p; FromDump(" + three + ") -> out;\n" +
                           "d[1] -> ICMPError(192.0.2.1 2001:db8::1, RATE 500, BURST 3) -> ToDump($OUT2);");
}

// A turn of long frames is more than a batch has room for, so that it takes several, and captures end in the middle of
// turns, one of them damaged: workers that read ahead change neither what leaves nor in which order.
TEST(PacketOrder, SeveralSourcesOfLongFramesTakeTurns) {
  const TempDir dir;
  std::string text;
  for (uint32_t c = 0; c < 5; ++c) {
    std::vector<Sent> sent;
    for (uint32_t i = 0; i < 300 + 217 * c; ++i)
      sent.push_back({i * 1000, udp4("10.0.0.1", "192.0.2.9")
                                    .ports(1, static_cast<uint16_t>(c))
                                    .id(static_cast<uint16_t>(i))
                                    .payload(c == 4 ? 20 : 15'000 + c)
                                    .build()});
    const std::string path = dir / fmt::format("in{}", c);
    write_sent(path, sent);
    text += fmt::format("FromDump({}) -> {}out{}", path, c % 2 == 0 ? "IPInput -> DecIPTTL -> " : "",
                        c == 0 ? " :: ToDump($OUT);\n" : ";\n");
  }
  text += "Idle -> ToDump($OUT2);";
  const Ran want = run(dir, text, on_cpu(1, 1, false));
  EXPECT_TRUE(want.outcome.ok) << want.outcome.error;
  EXPECT_EQ(want.outcome.report.packets_out, 5u * 300 + 217 * 10);
  for (const unsigned workers : {1u, 2u, 4u, 8u}) {
    for (const uint32_t batch : {100u, 256u, 1000u}) {
      SCOPED_TRACE(fmt::format("{} workers, batches of {}", workers, batch));
      const Ran got = run(dir, text, on_cpu(workers, batch));
      EXPECT_TRUE(got.outcome.ok) << got.outcome.error;
      EXPECT_TRUE(got.out == want.out) << "the output capture differs";
      EXPECT_EQ(got.outcome.counters, want.outcome.counters);
    }
  }
  // Cut in the middle of a packet: what came before it in the order of turns has left.
  std::filesystem::resize_file(dir / "in2", std::filesystem::file_size(dir / "in2") * 2 / 3);
  const Ran cut = run(dir, text, on_cpu(1, 256));
  EXPECT_FALSE(cut.outcome.ok);
  EXPECT_GT(cut.outcome.report.packets_out, 1000u);
  for (const unsigned workers : {2u, 4u}) {
    const Ran got = run(dir, text, on_cpu(workers, 256));
    EXPECT_EQ(got.outcome.error, cut.outcome.error);
    EXPECT_EQ(got.outcome.counters, cut.outcome.counters);
    EXPECT_EQ(got.outcome.report.packets_out, cut.outcome.report.packets_out);
  }
}

// A policer that the packet scheduler runs because of what stands in front goes by the packets' time stamps.
TEST(PacketOrder, APolicerBehindWhatMakesPacketsGoesByTheirTime) {
  const TempDir dir;
  std::vector<Sent> sent;
  for (uint32_t i = 0; i < 1000; ++i)
    sent.push_back({kSecond + i * 100'000, udp4("10.0.0.1", "192.0.2.9").ports(1, 2).payload(400).build()});
  write_sent(dir / "in", sent);
  const std::string police = "Police(10Mbps, 3000) -> ToDump($OUT); Idle -> ToDump($OUT2);";
  const Ran plain = equal_every_way(dir, "FromDump(" + (dir / "in") + ") -> IPInput -> " + police);
  EXPECT_GT(plain.outcome.report.drops[static_cast<size_t>(DropReason::kPoliced)], 400u);
  EXPECT_GT(plain.outcome.report.packets_out, 250u);
  // Nothing is larger than that.
  const Ran behind = run(dir, "FromDump(" + (dir / "in") + ") -> IPInput -> IPFragmenter(576) -> " + police, {});
  ASSERT_TRUE(behind.outcome.ok) << behind.outcome.error;
  EXPECT_TRUE(behind.out == plain.out);
  // Copies have the time of their packet: two of 428 bytes each 100 us are twice as much.
  const Ran copied =
      run(dir, "FromDump(" + (dir / "in") + ") -> IPInput -> t :: Tee(2) -> p :: " + police + " t[1] -> p;", {});
  ASSERT_TRUE(copied.outcome.ok) << copied.outcome.error;
  const uint64_t passed = copied.outcome.report.packets_out;
  EXPECT_NEAR(static_cast<double>(passed), static_cast<double>(plain.outcome.report.packets_out), 2.0);
  // Behind a shaper it is the departure, a packet each 342.4 us: all are within the rate.
  const Ran shaped =
      run(dir, "FromDump(" + (dir / "in") + ") -> IPInput -> Shape(10Mbps, CAPACITY 2000) -> " + police, {});
  ASSERT_TRUE(shaped.outcome.ok) << shaped.outcome.error;
  EXPECT_EQ(shaped.outcome.report.packets_out, 1000u);
  EXPECT_TRUE(
      equal_every_way(dir, "FromDump(" + (dir / "in") +
                               ") -> IPInput -> Shape(10Mbps, CAPACITY 2000) -> ToDump($OUT); Idle -> ToDump($OUT2);")
          .out == shaped.out);
}

// Stripped bytes come back as they were, pushed headers too; what stands in front of them is nobody's.
TEST(PacketOrder, UnstripShowsNoOtherPacketsBytes) {
  const TempDir dir;
  std::vector<Sent> sent;
  for (uint32_t i = 0; i < 400; ++i)
    sent.push_back({i, udp4("10.0.0.1", "192.0.2.9")
                           .ports(1, 2)
                           .payload(std::vector<uint8_t>(i % 2 == 0 ? 1000 : 30, 0xee))
                           .build()});
  write_sent(dir / "in", sent);
  equal_every_way(dir, "FromDump(" + (dir / "in") +
                           ") -> IPInput -> Strip(14) -> Unstrip(100) -> ToDump($OUT); Idle -> ToDump($OUT2);");
  for (const Sent& out : read_sent(dir / "OUT")) {
    ASSERT_GE(out.frame.size(), 128u);
    EXPECT_EQ(std::vector<uint8_t>(out.frame.begin(), out.frame.begin() + 86), std::vector<uint8_t>(86));
    EXPECT_EQ(std::vector<uint8_t>(out.frame.begin() + 86, out.frame.end()),
              sent[0].frame.size() == out.frame.size() - 86 ? sent[0].frame : sent[1].frame);
  }
  // Fragments, copies and errors have nothing in front of them either; a header that was pushed and stripped has.
  equal_every_way(
      dir, "FromDump(" + (dir / "in") +
               ") -> IPInput -> EtherEncap(0x1234, 02:00:00:00:00:01, 02:00:00:00:00:02) -> Strip(14) -> f "
               ":: IPFragmenter(300)\n"
               " -> t :: Tee(2) -> Unstrip(90) -> ToDump($OUT); t[1] -> ICMPError(192.0.2.1, unreachable, port) -> "
               "Unstrip(50) -> ToDump($OUT2);");
  equal_every_way(dir, "FromDump(" + (dir / "in") +
                           ") -> IPInput -> EtherEncap(0x1234, 02:00:00:00:00:01, 02:00:00:00:00:02) -> Strip(14) -> "
                           "Unstrip(40) -> ToDump($OUT); Idle -> ToDump($OUT2);");
  for (const Sent& out : read_sent(dir / "OUT")) {
    EXPECT_EQ(std::vector<uint8_t>(out.frame.begin(), out.frame.begin() + 26), std::vector<uint8_t>(26));
    EXPECT_EQ(out.frame[26], 2);
    EXPECT_EQ(out.frame[38], 0x12);
  }
}

// Generations of copies have an end, at the same packets whoever runs the graph.
TEST(PacketOrder, CopiesOfCopiesEndSomewhere) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in", testing::kWatched ? 8 : 40, 12);
  std::string text = "FromDump(" + capture + ") -> t0 :: Tee(2); out :: ToDump($OUT); Idle -> ToDump($OUT2);\n";
  for (int n = 0; n < 10; ++n)
    text += n == 9 ? fmt::format("t{0}[0] -> out; t{0}[1] -> out;\n", n)
                   : fmt::format("t{0}[0] -> t{1} :: Tee(2); t{0}[1] -> t{1};\n", n, n + 1);
  const Ran want = equal_every_way(dir, text);
  EXPECT_GT(want.outcome.report.drops[static_cast<size_t>(DropReason::kNoBuffer)], 0u);
  EXPECT_EQ(want.outcome.report.drops[static_cast<size_t>(DropReason::kNoBuffer)], want.outcome.report.dropped);
}

// One packet becomes more than there is room for: the rest is counted as such, and the packets behind it go on.
TEST(PacketOrder, BoundsThePacketsThatOneBatchGenerates) {
  const TempDir dir;
  write_sent(dir / "in", {{0, udp4("10.0.0.1", "192.0.2.9").ports(1, 2).build()}});
  std::string text = "FromDump(" + (dir / "in") + ") -> a :: Tee(64);\n";
  for (const auto& [from, to, n] : {std::tuple{'a', 'b', 64}, {'b', 'c', 64}, {'c', 'd', 6}}) {
    text += fmt::format("{} :: Tee({});", to, n);
    for (int out = 0; out < 64; ++out) text += fmt::format("{}[{}] -> {};", from, out, to);
    text += '\n';
  }
  for (int out = 0; out < 6; ++out) text += fmt::format("d[{}] -> end{} :: Discard;", out, out);
  const Ran ran = run(dir, text, on_cpu(1, 256));
  ASSERT_TRUE(ran.outcome.ok) << ran.outcome.error;
  const RunReport& report = ran.outcome.report;
  EXPECT_TRUE(report.conserved());
  EXPECT_EQ(report.generated, 64u * 64 * 64 * 6 - 1);
  EXPECT_GT(report.drops[static_cast<size_t>(DropReason::kNoBuffer)], 0u);
  EXPECT_GT(report.drops[static_cast<size_t>(DropReason::kDiscard)], 900'000u);
}

// Packets are handed to what makes others of them; nobody asks it for one, where the others would have no way to go.
TEST(PacketOrder, AsksNoGeneratingElementForPackets) {
  const TempDir dir;
  write_sent(dir / "in", {{0, udp4("10.0.0.1", "192.0.2.9").ports(1, 2).payload(1200).build()}});
  const std::string in = "FromDump(" + (dir / "in") + ", STOP true) -> IPInput -> Queue";
  EXPECT_NE(run(dir, in + " -> IPFragmenter(576) -> Unqueue -> ToDump($OUT);", {}).outcome.error, "");
  const Ran ran = run(dir, in + " -> Unqueue -> IPFragmenter(576) -> ToDump($OUT);", {});
  ASSERT_TRUE(ran.outcome.ok) << ran.outcome.error;
  EXPECT_EQ(ran.outcome.report.packets_out, 3u);
}

}  // namespace
}  // namespace sluice::packet_order
