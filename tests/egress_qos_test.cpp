// Classes of service at the sinks of the engine: what leaves, when, and what is dropped is what one port says
// that sees the packets one after another, for any number of workers, any batch size and beside any device.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "formats/qos_text.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "qos/port_qos.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::DeviceOutcome;
using testing::GraphRun;
using testing::TempDir;
using testing::Way;

struct Timed {
  uint64_t at_ns = 0;
  std::vector<uint8_t> frame;
  bool operator==(const Timed&) const = default;
};

// Of both families, tagged and not, of many codepoints and sizes; bursts and pauses.
std::vector<Timed> timed_packets(uint32_t n, uint64_t seed) {
  constexpr std::array<uint8_t, 6> kCodepoints{46, 34, 18, 0, 8, 48};
  std::mt19937_64 random(seed);
  std::vector<Timed> all;
  uint64_t now = 1'700'000'000'000'000'000;
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t kind = random() % 20;
    now += kind < 4 ? 0 : kind < 18 ? random() % 100'000 : kind == 18 ? random() % 20'000'000 : 1;
    PacketBuilder b = random() % 4 == 0 ? udp6("2001:db8::1", "2001:db8::2") : udp4("10.0.0.1", "192.0.2.7");
    b.ports(static_cast<uint16_t>(i), 9).dscp(kCodepoints[random() % kCodepoints.size()]);
    b.payload(random() % 3 == 0 ? 1400 : random() % 120);
    if (random() % 5 == 0) b.vlan(7);
    all.push_back({now, b.build()});
  }
  return all;
}
std::string write_packets(const std::string& path, const std::vector<Timed>& all) {
  auto writer = CaptureWriter::create(path);
  EXPECT_TRUE(writer.ok());
  for (const Timed& t : all) {
    const auto bytes = static_cast<uint32_t>(t.frame.size());
    EXPECT_TRUE(writer->append(FrameHeader{bytes, bytes, t.at_ns}, t.frame.data()));
  }
  EXPECT_TRUE(writer->commit().ok());
  return path;
}
std::vector<Timed> read_packets(const std::string& path) {
  std::vector<Timed> all;
  auto reader = CaptureReader::open(path);
  EXPECT_TRUE(reader.ok());
  CapturedFrame frame;
  while (reader.ok()) {
    auto more = reader->next(frame);
    if (!more.ok() || !*more) break;
    all.push_back({frame.timestamp_ns, {frame.data, frame.data + frame.captured}});
  }
  return all;
}

std::shared_ptr<const QosModel> classes(const std::string& text) {
  auto model = parse_qos(text, "classes");
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : to_string(model.error()));
  return std::make_shared<QosModel>(std::move(*model));
}

// One port that is given every packet at its time.
struct OnePort {
  std::vector<Timed> left;
  std::map<DropReason, uint64_t> drops;
};
OnePort one_port(
    const QosModel& model, std::vector<Timed> in,
    const std::function<uint32_t(unsigned)>& mark_of = [](unsigned) { return 0u; }) {
  OnePort out;
  PortQos<size_t> port(model, in[0].at_ns);
  const auto drop = [&](size_t&&, DropReason why) { ++out.drops[why]; };
  const auto until = [&](uint64_t t) {
    size_t i = 0;
    uint64_t at = 0;
    while (port.depart(t, i, at, drop)) out.left.push_back({at, in[i].frame});
  };
  for (size_t i = 0; i < in.size(); ++i) {
    until(in[i].at_ns);
    std::vector<uint8_t>& f = in[i].frame;
    size_t l3 = 14;
    while (f[l3 - 2] == 0x81) l3 += 4;
    QosPacket p;
    p.ip = f.data() + l3;
    p.family = f[l3] >> 4;
    p.mark = mark_of(dscp_of(p.ip, p.family));
    p.bytes = static_cast<uint32_t>(f.size());
    p.ip_bytes = static_cast<uint32_t>(f.size() - l3);
    if (const DropReason why = port.arrive(in[i].at_ns, p, size_t{i}, drop); why != DropReason::kNone) ++out.drops[why];
    // What may go goes now.
    until(in[i].at_ns);
  }
  until(~uint64_t{0});
  return out;
}

std::vector<Way> qos_ways() {
  using enum RecordChoice;
  std::vector<Way> all;
  for (const unsigned workers : {1u, 2u, 5u}) {
    for (const uint32_t batch : {1u, 33u, 4096u}) {
      all.push_back({DeviceMode::kLaunch, Transport::kStaged, kAuto, workers, batch, 0});
    }
  }
  for (const DeviceMode mode : {DeviceMode::kLaunch, DeviceMode::kPersistent}) {
    all.push_back({mode, Transport::kStaged, kKey, 3, 33, 2});
    all.push_back({mode, Transport::kStaged, kFrame, 2, 100, 1, 2});
  }
  return all;
}

class EgressQosEquality : public ::testing::Test {
 protected:
  DeviceOutcome run(const std::string& text, const std::shared_ptr<const QosModel>& model, const Way* way = nullptr,
                    const testing::Devices& devices = {}) {
    return testing::run_way(dir_, text, way, devices, [&](GraphRun& graph) { graph.qos = model; });
  }
  // Bytes, time stamps, counters, drops and latencies.
  void every_way(const std::string& text, const std::shared_ptr<const QosModel>& model, const DeviceOutcome& want) {
    for (const std::string& kind : testing::device_kinds()) {
      for (const Way& way : qos_ways()) {
        if (way.devices == 0 && kind != "emu") continue;
        SCOPED_TRACE(kind + ", " + ::testing::PrintToString(way));
        testing::expect_equal(
            want,
            run(text, model, &way, way.devices == 0 ? testing::Devices() : testing::devices_of(kind, way.devices)));
      }
    }
  }
  TempDir dir_;
};

const char* const kBusy =
    "class voice dscp ef strict rate 1Mbps burst 3000 limit 10\n"
    "class video dscp af41 weight 3 limit 40 red 0 2 100%\n"
    "class checked dscp af21 police srtcm 4Mbps 4000 2000 remark yellow af22 limit 20\n"
    "class rest dscp others weight 1 limit 25\n"
    "port rate 9Mbps burst 2000\n";

TEST_F(EgressQosEquality, LeavesAndDropsWhatOnePortSays) {
  const auto in = timed_packets(testing::kWatched ? 1500 : 4000, 1);
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  const auto model = classes(kBusy);
  OnePort want = one_port(*model, in);
  // Every corner is met, or equality says nothing.
  for (const DropReason why :
       {DropReason::kPoliced, DropReason::kShaperFull, DropReason::kQueueFull, DropReason::kEarlyDrop})
    EXPECT_GT(want.drops[why], 3u) << to_string(why);
  const std::string text = "FromDump(" + capture + ") -> IPInput -> ToDump($OUT);";
  const DeviceOutcome first = run(text, model);
  ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
  EXPECT_TRUE(first.outcome.report.conserved());
  EXPECT_TRUE(read_packets(dir_ / "OUT") == want.left);
  for (const auto& [why, count] : want.drops)
    EXPECT_EQ(first.outcome.report.drops[static_cast<size_t>(why)], count) << to_string(why);
  every_way(text, model, first);
}

// Marks of an access list stay with the packets until they leave, and decide before the codepoint.
TEST_F(EgressQosEquality, MarksMakeClasses) {
  const auto in = timed_packets(testing::kWatched ? 800 : 2500, 7);
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  const auto model = classes(
      "class marked mark 7,20-30 rate 1Mbps limit 20\n"
      "class voice dscp ef,18 rate 2Mbps limit 30\n"
      "class rest dscp others limit 25\nport rate 30Mbps burst 2000\n");
  // By the codepoint 18 the packets would be of the second class.
  testing::write_file(dir_ / "rules",
                      "mark(7) udp from any to any dscp 18\nmark(31) udp from any to any dscp 8\n"
                      "permit ip from any to any\n");
  OnePort want = one_port(*model, in, [](unsigned dscp) { return dscp == 18 ? 7u : dscp == 8 ? 31u : 0u; });
  EXPECT_GT(want.drops[DropReason::kShaperFull], 3u);
  const std::string text = "AclTable(list, FILE " + (dir_ / "rules") + "); FromDump(" + capture +
                           ") -> IPInput -> ACL(TABLE list) -> ToDump($OUT);";
  const DeviceOutcome first = run(text, model);
  ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
  EXPECT_TRUE(first.outcome.report.conserved());
  EXPECT_TRUE(read_packets(dir_ / "OUT") == want.left);
  EXPECT_GT(first.outcome.report.qos.at(0).classes.at(0).counters.in_pkts, 50u);
  every_way(text, model, first);
}

// Every output port of the standard graph has queues of its own; packets that elements make have classes too.
TEST_F(EgressQosEquality, EachPortOfTheStandardGraphHasItsOwn) {
  const std::string capture = testing::write_mixed_capture(dir_ / "in.pcap", testing::kWatched ? 800 : 3000);
  const auto model = classes("class a dscp 0-31 limit 50\nclass b dscp others rate 3Mbps limit 9\nport rate 40Mbps\n");
  const std::string text = testing::standard_graph_text(dir_, "FromDump(" + capture + ")", "ToDump($OUT)",
                                                        "tuple_space", testing::kDirect4, "poptrie");
  const DeviceOutcome first = run(text, model);
  ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
  EXPECT_GT(first.outcome.report.qos.size(), 1u);
  EXPECT_GT(first.outcome.report.drops[static_cast<size_t>(DropReason::kQueueFull)], 0u);
  uint64_t out = 0;
  for (const QosPortReport& port : first.outcome.report.qos) {
    for (const QosClassReport& c : port.classes) {
      EXPECT_EQ(c.counters.in_pkts, c.counters.out_pkts + c.counters.drops());
      out += c.counters.out_pkts;
    }
  }
  EXPECT_EQ(out, first.outcome.report.packets_out);
  uint64_t before = 0;
  for (const Timed& t : read_packets(dir_ / "OUT")) {
    EXPECT_LE(before, t.at_ns);
    before = t.at_ns;
  }
  every_way(text, model, first);
}

// A sink that only counts says the same as one that writes.
TEST_F(EgressQosEquality, SinksThatDoNotReadFramesCountByClassAndTime) {
  const auto in = timed_packets(2000, 3);
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  for (const auto& model : {classes(kBusy), classes("class a dscp ef\nclass b dscp others\n")}) {
    const DeviceOutcome writes = run("FromDump(" + capture + ") -> IPInput -> out :: ToDump($OUT);", model);
    const DeviceOutcome counts = run("FromDump(" + capture + ") -> IPInput -> out :: ToMemory;", model);
    ASSERT_TRUE(counts.outcome.ok) << counts.outcome.error;
    EXPECT_EQ(writes.outcome.counters, counts.outcome.counters);
    EXPECT_TRUE(counts.outcome.report.conserved());
  }
}

// Most packets leave by the fast path, on the host or behind a device, and their frames are not read again.
TEST_F(EgressQosEquality, NotesWhatTheFramesSay) {
  std::vector<Timed> in = timed_packets(2000, 5);
  // Runs of common packets between the others: whole bursts, and parts of them.
  std::mt19937_64 random(6);
  for (size_t i = 0; i < in.size(); ++i) {
    if (i % 500 >= 400) continue;
    auto b = udp4("10.0.0.1", "192.0.2.7").ttl(random() % 50 == 0 ? 1 : 9);
    in[i].frame = b.dscp(static_cast<uint8_t>(random() % 64)).payload(random() % 100).build();
  }
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  const auto model = classes("class a dscp 0-9\nclass b dscp 10-31\nclass c dscp 32\nclass d dscp others\n");
  const auto text = [&](const std::string& sink) {
    return testing::standard_graph_text(dir_, "FromDump(" + capture + ")", sink, "tuple_space", testing::kDirect4,
                                        "poptrie");
  };
  const DeviceOutcome writes = run(text("ToDump($OUT)"), model);
  const DeviceOutcome counts = run(text("ToMemory"), model);
  ASSERT_TRUE(counts.outcome.ok) << counts.outcome.error;
  EXPECT_EQ(writes.outcome.counters, counts.outcome.counters);
  EXPECT_GT(counts.outcome.report.qos.size(), 0u);
  every_way(text("ToMemory"), model, counts);
  // Elements that carry state from batch to batch change nothing that was noted. They may drop packets, and color them.
  for (const std::string between : {"Shape(0)", "Shape(8Mbps, CAPACITY 20)", "Police(4Mbps, BURST 3000)",
                                    "Police(4Mbps, BURST 3000) -> Shape(8Mbps, CAPACITY 20)"}) {
    SCOPED_TRACE(between);
    const DeviceOutcome written = run(text(between + " -> end :: ToDump($OUT)"), model);
    const DeviceOutcome counted = run(text(between + " -> end :: ToMemory"), model);
    ASSERT_TRUE(counted.outcome.ok) << counted.outcome.error;
    EXPECT_EQ(written.outcome.counters, counted.outcome.counters);
    EXPECT_TRUE(counted.outcome.report.conserved());
    every_way(text(between + " -> end :: ToMemory"), model, counted);
  }
}

TEST_F(EgressQosEquality, ClassesThatOnlyCountChangeNothing) {
  const auto in = timed_packets(2000, 4);
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  const std::string text = "FromDump(" + capture + ") -> IPInput -> ToDump($OUT);";
  const DeviceOutcome without = run(text, nullptr);
  const auto model = classes("class a dscp ef limit 1\nclass b dscp others red 0 1 100%\n");
  const DeviceOutcome with = run(text, model);
  ASSERT_TRUE(with.outcome.ok) << with.outcome.error;
  EXPECT_TRUE(with.bytes == without.bytes);
  ASSERT_EQ(with.outcome.report.qos.size(), 1u);
  uint64_t expedited = 0;
  for (const Timed& t : in) {
    const size_t l3 = t.frame[12] == 0x81 ? 18 : 14;
    expedited += (t.frame[l3] >> 4 == 4 ? t.frame[l3 + 1] >> 2 : (t.frame[l3] & 15) << 2 | t.frame[l3 + 1] >> 6) == 46;
  }
  EXPECT_EQ(with.outcome.report.qos[0].classes[0].counters.out_pkts, expedited);
  EXPECT_EQ(with.outcome.report.qos[0].classes[1].counters.out_pkts, in.size() - expedited);
  every_way(text, model, with);
}

// Behind a Shape, packets come to their class when they leave it.
TEST_F(EgressQosEquality, BehindAnElementThatDelays) {
  const auto in = timed_packets(1000, 5);
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  const auto model = classes(kBusy);
  const std::string text = "FromDump(" + capture + ") -> IPInput -> Shape(20Mbps, CAPACITY 50) -> ToDump($OUT);";
  const DeviceOutcome first = run(text, model);
  ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
  EXPECT_GT(first.outcome.report.packets_out, 100u);
  every_way(text, model, first);
}

// Time stamps that go back hold nobody up and lose nothing; what leaves is in order.
TEST_F(EgressQosEquality, TimeThatGoesBackIsTheLatest) {
  auto in = timed_packets(800, 6);
  std::mt19937_64 random(7);
  for (Timed& t : in) {
    if (random() % 3 == 0) t.at_ns -= random() % 5'000'000;
  }
  const std::string capture = write_packets(dir_ / "in.pcap", in);
  const auto model = classes(kBusy);
  const std::string text = "FromDump(" + capture + ") -> IPInput -> ToDump($OUT);";
  const DeviceOutcome first = run(text, model);
  ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
  uint64_t before = 0;
  for (const Timed& t : read_packets(dir_ / "OUT")) {
    EXPECT_LE(before, t.at_ns);
    before = t.at_ns;
  }
  every_way(text, model, first);
}

}  // namespace
}  // namespace sluice
