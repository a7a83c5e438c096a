// Elements that carry state from batch to batch, in the engine: what they say of each packet is what one owner
// says who sees the packets one after another, for any number of workers, any batch size and beside any device. The
// oracle counts in exact fractions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "qos/class_map.h"
#include "qos/fraction.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::Fraction;
using testing::TempDir;
using testing::Way;

struct Arrival {
  uint64_t at_ns = 0;
  std::vector<uint8_t> frame;
  unsigned dscp = 0;
  uint32_t ip_bytes = 0;  // 0: not IP
};

constexpr std::array<uint8_t, 6> kCodepoints{46, 34, 18, 0, 8, 48};

// Packets of many sizes and codepoints; now and then several at a time, or none for a while.
std::vector<Arrival> arrivals(uint32_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t m) { return random() % m; };
  std::vector<Arrival> all;
  uint64_t now = 1'700'000'000'000'000'000;
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t kind = below(20);
    now += kind < 4 ? 0 : kind < 18 ? below(100'000) : kind == 18 ? below(20'000'000) : 1 + below(3);
    Arrival a;
    a.at_ns = now;
    if (below(40) == 0) {
      a.frame = PacketBuilder::ether(0x88cc).payload(60).build();
    } else {
      a.dscp = kCodepoints[below(kCodepoints.size())];
      const size_t payload = below(3) == 0 ? 1400 : below(120);
      const auto id = static_cast<uint16_t>(i);
      a.frame = below(5) == 0 ? udp6("2001:db8::1", "2001:db8::2")
                                    .ports(id, static_cast<uint16_t>(below(9)))
                                    .dscp(static_cast<uint8_t>(a.dscp))
                                    .payload(payload)
                                    .build()
                              : udp4("10.0.0.1", "192.0.2.7")
                                    .ports(id, static_cast<uint16_t>(below(9)))
                                    .dscp(static_cast<uint8_t>(a.dscp))
                                    .payload(payload)
                                    .build();
      a.ip_bytes = static_cast<uint32_t>(a.frame.size()) - 14;
    }
    all.push_back(std::move(a));
  }
  return all;
}

std::string write_arrivals(const std::string& path, const std::vector<Arrival>& all) {
  auto writer = CaptureWriter::create(path);
  EXPECT_TRUE(writer.ok());
  for (const Arrival& a : all) {
    const auto bytes = static_cast<uint32_t>(a.frame.size());
    EXPECT_TRUE(writer->append(FrameHeader{bytes, bytes, a.at_ns}, a.frame.data()));
  }
  EXPECT_TRUE(writer->commit().ok());
  return path;
}

struct Left {
  uint64_t at_ns;
  std::vector<uint8_t> frame;
  bool operator==(const Left&) const = default;
};

std::vector<Left> read_left(const std::string& path) {
  std::vector<Left> all;
  auto reader = CaptureReader::open(path);
  if (!reader.ok()) {
    ADD_FAILURE() << to_string(reader.error());
    return all;
  }
  CapturedFrame frame;
  while (true) {
    auto more = reader->next(frame);
    if (!more.ok() || !*more) return all;
    all.push_back({frame.timestamp_ns, {frame.data, frame.data + frame.captured}});
  }
}

// RFC 2697 and RFC 2698 in fractions of a byte.
struct ExactPolicer {
  Fraction rate, peak;  // bytes a nanosecond; peak 0: one rate
  Fraction burst, excess_burst;
  bool two_rates = false;
  bool started = false;
  uint64_t last_ns = 0;
  Fraction committed, excess;

  ExactPolicer(uint64_t bps, uint64_t b, uint64_t e, uint64_t peak_bps = 0)
      : rate(Fraction(bps, 8'000'000'000)),
        peak(Fraction(peak_bps, 8'000'000'000)),
        burst(b),
        excess_burst(e),
        two_rates(peak_bps != 0),
        committed(b),
        excess(e) {}

  Color color(uint64_t now_ns, uint32_t bytes) {
    const Fraction elapsed = started ? Fraction(now_ns - last_ns) : Fraction(0);
    started = true;
    last_ns = now_ns;
    const Fraction gained = elapsed * rate;
    const Fraction spill = Fraction::most(committed + gained - burst, 0);
    committed = Fraction::least(committed + gained, burst);
    excess = Fraction::least(excess + (two_rates ? elapsed * peak : spill), excess_burst);
    const Fraction cost(bytes);
    if (two_rates) {
      if (excess < cost) return Color::kRed;
      excess = excess - cost;
      if (committed < cost) return Color::kYellow;
      committed = committed - cost;
      return Color::kGreen;
    }
    if (cost <= committed) {
      committed = committed - cost;
      return Color::kGreen;
    }
    if (cost <= excess) {
      excess = excess - cost;
      return Color::kYellow;
    }
    return Color::kRed;
  }
};

// A bucket that may be in debt, as the time at which it will have been paid.
struct ExactShaper {
  Fraction ns_per_byte;
  Fraction burst_ns;
  size_t capacity;
  Fraction busy;  // until when the rate is spoken for, in nanoseconds since `epoch`
  uint64_t epoch;
  std::vector<uint64_t> departures;

  ExactShaper(uint64_t bps, uint64_t burst, size_t room, uint64_t epoch_ns)
      : ns_per_byte(Fraction(8'000'000'000, bps)),
        burst_ns(Fraction(burst) * ns_per_byte),
        capacity(room),
        epoch(epoch_ns) {}

  // 0: refused.
  uint64_t departure(uint64_t now_ns, uint32_t bytes) {
    const auto waiting = std::count_if(departures.begin(), departures.end(), [&](uint64_t d) { return d > now_ns; });
    if (static_cast<size_t>(waiting) >= capacity) return 0;
    const Fraction now(now_ns - epoch);
    const Fraction at = Fraction::most(busy - burst_ns, now);
    busy = Fraction::most(busy, now) + Fraction(bytes) * ns_per_byte;
    departures.push_back(epoch + at.rounded_up());
    return departures.back();
  }
};

// What leaves a sink: packets without a departure when they come, the others at their time.
struct ExactSink {
  std::multimap<uint64_t, std::vector<uint8_t>> waiting;
  std::vector<Left> left;

  void come(const Arrival& a, uint64_t departure_ns) {
    release(a.at_ns);
    if (departure_ns <= a.at_ns) {
      left.push_back({a.at_ns, a.frame});
    } else {
      waiting.emplace(departure_ns, a.frame);
    }
  }
  void release(uint64_t now_ns) {
    while (!waiting.empty() && waiting.begin()->first <= now_ns) {
      left.push_back({waiting.begin()->first, waiting.begin()->second});
      waiting.erase(waiting.begin());
    }
  }
};

struct Expected {
  std::vector<Left> first, second;
  std::map<DropReason, uint64_t> drops;
};

// A departure is less than a sixteenth of a nanosecond late before it is rounded up, so a whole nanosecond at most.
void expect_departures(const std::vector<Left>& want, const std::vector<Left>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_LE(want[i].at_ns, got[i].at_ns) << "packet " << i << " is early";
    ASSERT_LE(got[i].at_ns, want[i].at_ns + 1) << "packet " << i << " is late";
    ASSERT_EQ(want[i].frame, got[i].frame) << "packet " << i;
  }
}

std::vector<Way> ordered_ways() {
  using enum RecordChoice;
  std::vector<Way> all;
  for (const unsigned workers : {1u, 2u, 3u, 5u}) {
    for (const uint32_t batch : {1u, 7u, 256u, 4096u}) {
      all.push_back({DeviceMode::kLaunch, Transport::kStaged, kAuto, workers, batch, 0});
    }
  }
  for (const DeviceMode mode : {DeviceMode::kLaunch, DeviceMode::kPersistent}) {
    all.push_back({mode, Transport::kStaged, kKey, 1, 64});
    all.push_back({mode, Transport::kStaged, kKey, 3, 33, 2});
    all.push_back({mode, Transport::kCommList, kAuto, 2, 100, 1, 2});
    all.push_back({mode, Transport::kStaged, kFrame, 1, 64});
    all.push_back({mode, Transport::kZeroCopy, kFrame, 3, 700, 2, 2});
  }
  return all;
}

// Every way on the CPU, and every way on every kind of device, has the outcome `want`.
void expect_equal_every_way(const TempDir& dir, const std::string& text, const testing::DeviceOutcome& want) {
  for (const std::string& kind : testing::device_kinds()) {
    for (const Way& way : ordered_ways()) {
      if (way.devices == 0 && kind != "emu") continue;
      SCOPED_TRACE(kind + ", " + ::testing::PrintToString(way));
      const auto devices = way.devices == 0 ? testing::Devices() : testing::devices_of(kind, way.devices);
      testing::expect_equal(want, testing::run_way(dir, text, &way, devices));
    }
  }
}

class OrderedEquality : public ::testing::Test {
 protected:
  // Runs the text every way and holds the outcome to that of the first, which is held to `want`.
  void check(const std::string& text, const std::vector<Arrival>& in, const Expected& want) {
    const testing::DeviceOutcome first = testing::run_way(dir_, text, nullptr, {});
    ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
    EXPECT_TRUE(first.outcome.report.conserved());
    EXPECT_EQ(first.outcome.report.packets_in, in.size());
    for (const auto& [reason, count] : want.drops)
      EXPECT_EQ(first.outcome.report.drops[static_cast<size_t>(reason)], count) << to_string(reason);
    expect_departures(want.first, read_left(dir_ / "OUT"));
    if (!want.second.empty()) expect_departures(want.second, read_left(dir_ / "OUT2"));
    expect_equal_every_way(dir_, text, first);
  }
  // Elements behind a segment that goes by frames, with classes by codepoint in it.
  void expect_equal_behind_frames(const std::string& order, const std::string& sink) {
    const auto limit = testing::kWatched ? 3000u : 12'000u;
    using enum RecordChoice;
    std::vector<Way> all = {{DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 256},
                            {DeviceMode::kLaunch, Transport::kZeroCopy, kAuto, 3, 1024, 2, 2},
                            {DeviceMode::kPersistent, Transport::kStaged, kFrame, 2, 900},
                            {DeviceMode::kLaunch, Transport::kCommPool, kFrame, 2, 333}};
    for (const size_t i : {0u, 2u}) {
      all.push_back(all[i]);
      all.back().frames_there = true;
    }
    const std::string mixed = testing::write_mixed_capture(dir_ / "in.pcap", testing::kWatched ? 1000 : 4000, 41);
    std::string text =
        testing::standard_graph_text(dir_, "FromMemory(" + mixed + ", LIMIT " + std::to_string(limit) + ")", "ORDER",
                                     "tuple_merge", testing::kDirect4, "poptrie");
    const auto put = [&](const std::string& what, const std::string& by) {
      text.replace(text.find(what), what.size(), by);
    };
    put("fib :: IPRoute(TABLE main)\n",
        "c :: ClassifyDSCP; c[0] -> fib :: IPRoute(TABLE main); c[1] -> fib; c[2] -> fib\n");
    put("tx :: ORDER", order + " -> " + sink);
    const testing::DeviceOutcome want = testing::run_way(dir_, text, nullptr, {});
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    const auto& drops = want.outcome.report.drops;
    EXPECT_GT(drops[static_cast<size_t>(DropReason::kPoliced)] + drops[static_cast<size_t>(DropReason::kShaperFull)],
              limit / 20);
    EXPECT_GT(want.outcome.report.packets_out + drops[static_cast<size_t>(DropReason::kDiscard)], limit / 100);
    for (const std::string& kind : testing::device_kinds()) {
      for (const Way& way : all) {
        SCOPED_TRACE(order + " " + sink + " " + kind + ", " + ::testing::PrintToString(way));
        const testing::DeviceOutcome got = testing::run_way(dir_, text, &way, testing::devices_of(kind, way.devices));
        testing::expect_equal(want, got);
        EXPECT_GT(got.outcome.report.offload.offloaded, limit / 2);
        EXPECT_LT(got.outcome.report.offload.redone, limit / 5);
      }
    }
  }
  TempDir dir_;
};

TEST_F(OrderedEquality, PolicersAndShapersPacketByPacket) {
  const auto in = arrivals(testing::kWatched ? 1500 : 4000, 1);
  const std::string capture = write_arrivals(dir_ / "in.pcap", in);
  const std::string text = "FromDump(" + capture +
                           ") -> IPInput -> c :: ClassifyDSCP;\n"
                           "out :: ToDump($OUT); red :: ToDump($OUT2);\n"
                           "c[0] -> p :: Police(20Mbps, 4000, EXCESS 3000) -> s :: Shape(30Mbps, BURST 2000) -> out;\n"
                           "p[1] -> out; p[2] -> red;\n"
                           "c[1] -> Police(8Mbps, 3000, PEAK 16Mbps, EXCESS 6000) -> out;\n"
                           "c[2] -> Shape(10Mbps, CAPACITY 12) -> out;\n";
  Expected want;
  ExactSink out, red;
  const uint64_t epoch = in[0].at_ns;
  ExactPolicer one(20'000'000, 4000, 3000), two(8'000'000, 3000, 6000, 16'000'000);
  ExactShaper first(30'000'000, 2000, 1000, epoch), last(10'000'000, 0, 12, epoch);
  const ClassMap map = ClassMap::three_priorities();
  for (const Arrival& a : in) {
    if (a.ip_bytes == 0) {
      ++want.drops[DropReason::kNotIp];
      continue;
    }
    const uint32_t wire = a.ip_bytes + 14;
    switch (map.class_of(a.dscp)) {
      case 0:
        switch (one.color(a.at_ns, a.ip_bytes)) {
          case Color::kGreen:
            out.come(a, first.departure(a.at_ns, wire));
            break;
          case Color::kYellow:
            out.come(a, 0);
            break;
          case Color::kRed:
            red.come(a, 0);
            break;
        }
        break;
      case 1:
        if (two.color(a.at_ns, a.ip_bytes) == Color::kRed) {
          ++want.drops[DropReason::kPoliced];
        } else {
          out.come(a, 0);
        }
        break;
      default:
        if (const uint64_t at = last.departure(a.at_ns, wire)) {
          out.come(a, at);
        } else {
          ++want.drops[DropReason::kShaperFull];
        }
    }
  }
  out.release(~uint64_t{0});
  want.first = out.left;
  want.second = red.left;
  // Every corner is met, or equality says nothing.
  EXPECT_GT(want.drops[DropReason::kPoliced], 10u);
  EXPECT_GT(want.drops[DropReason::kShaperFull], 10u);
  EXPECT_GT(want.second.size(), 10u);
  check(text, in, want);
}

TEST_F(OrderedEquality, EachClassRuleOrMarkHasBucketsOfItsOwn) {
  const auto in = arrivals(testing::kWatched ? 1000 : 2500, 2);
  const std::string capture = write_arrivals(dir_ / "in.pcap", in);
  const std::string text = "FromDump(" + capture +
                           ") -> IPInput -> c :: ClassifyDSCP; p :: Police(6Mbps, 3000, BY class);\n"
                           "c[0] -> p; c[1] -> p; c[2] -> p; p -> ToDump($OUT);\n";
  Expected want;
  ExactSink out;
  std::vector<ExactPolicer> banks(3, ExactPolicer(6'000'000, 3000, 0));
  const ClassMap map = ClassMap::three_priorities();
  for (const Arrival& a : in) {
    if (a.ip_bytes == 0) continue;
    if (banks[map.class_of(a.dscp)].color(a.at_ns, a.ip_bytes) == Color::kRed) {
      ++want.drops[DropReason::kPoliced];
    } else {
      out.come(a, 0);
    }
  }
  want.first = out.left;
  EXPECT_GT(want.drops[DropReason::kPoliced], 20u);
  check(text, in, want);
}

TEST_F(OrderedEquality, BucketsByRuleOfAnAccessList) {
  const auto in = arrivals(testing::kWatched ? 1000 : 2500, 3);
  const std::string capture = write_arrivals(dir_ / "in.pcap", in);
  // Destination ports 0..3 by rule 1, the others by rule 2.
  testing::write_file(dir_ / "rules", "permit udp from any to any port 0-3\npermit ip from any to any\n");
  const std::string text = "AclTable(list, FILE " + (dir_ / "rules") + "); FromDump(" + capture +
                           ") -> IPInput -> ACL(TABLE list) -> Police(9Mbps, 3000, BY rule) -> ToDump($OUT);\n";
  Expected want;
  ExactSink out;
  std::map<bool, ExactPolicer> banks;
  banks.emplace(false, ExactPolicer(9'000'000, 3000, 0));
  banks.emplace(true, ExactPolicer(9'000'000, 3000, 0));
  for (const Arrival& a : in) {
    if (a.ip_bytes == 0) continue;
    const size_t udp = a.frame.size() - a.ip_bytes + (a.frame[12] == 0x86 ? 40 : 20);
    const bool low = a.frame[udp + 2] == 0 && a.frame[udp + 3] < 4;
    if (banks.at(low).color(a.at_ns, a.ip_bytes) == Color::kRed) {
      ++want.drops[DropReason::kPoliced];
    } else {
      out.come(a, 0);
    }
  }
  want.first = out.left;
  EXPECT_GT(want.drops[DropReason::kPoliced], 20u);
  check(text, in, want);
}

// Marks of an access list make the classes, each with buckets of its own.
TEST_F(OrderedEquality, BucketsByMarkOfAnAccessList) {
  const auto in = arrivals(testing::kWatched ? 1000 : 2500, 6);
  const std::string capture = write_arrivals(dir_ / "in.pcap", in);
  testing::write_file(dir_ / "rules",
                      "mark(7) udp from any to any port 0-3\nmark(120) udp from any to any port 4-5\n"
                      "permit ip from any to any\n");
  const std::string text = "AclTable(list, FILE " + (dir_ / "rules") + "); FromDump(" + capture +
                           ") -> IPInput -> ACL(TABLE list) -> c :: ClassifyMark(7, 100-199, others);\n"
                           "p :: Police(4Mbps, 3000, BY mark);\n"
                           "c[0] -> p -> ToDump($OUT); c[1] -> p; c[2] -> ToDump($OUT2);\n";
  Expected want;
  ExactSink out, rest;
  std::vector<ExactPolicer> banks(2, ExactPolicer(4'000'000, 3000, 0));
  for (const Arrival& a : in) {
    if (a.ip_bytes == 0) continue;
    const size_t udp = a.frame.size() - a.ip_bytes + (a.frame[12] == 0x86 ? 40 : 20);
    const unsigned port = a.frame[udp + 3];
    if (port > 5) {
      rest.come(a, 0);
    } else if (banks[port > 3 ? 1 : 0].color(a.at_ns, a.ip_bytes) == Color::kRed) {
      ++want.drops[DropReason::kPoliced];
    } else {
      out.come(a, 0);
    }
  }
  want.first = out.left;
  want.second = rest.left;
  EXPECT_GT(want.drops[DropReason::kPoliced], 10u);
  check(text, in, want);
}

// Frames cross whole, and what takes their batches in order looks at lengths and registers alone: where nobody writes
// frames no column of theirs is filled, and with frames on the device they do not come back.
TEST_F(OrderedEquality, BehindFramesThatNobodyReads) {
  for (const std::string order : {"Police(100Mbps, 20000, EXCESS 30000)", "Shape(200Mbps, BURST 3000, CAPACITY 50)",
                                  "Police(200Mbps, 20000) -> Shape(150Mbps, CAPACITY 50)"}) {
    for (const std::string sink : {"ToDump($OUT)", "ToMemory()", "Discard"}) expect_equal_behind_frames(order, sink);
  }
}

// The same where they look at what stages have written, or a policer in front of them: classes, colors, rules, marks.
TEST_F(OrderedEquality, ByRegistersThatFramesBringBack) {
  for (const std::string order :
       {"Police(120Mbps, 20000, BY class)", "Police(50Mbps, 20000, EXCESS 30000, AWARE true)",
        "Police(60Mbps, 20000, BY rule)", "Police(60Mbps, 20000, EXCESS 9000, PEAK 90Mbps, BY mark)",
        "Police(90Mbps, 20000, EXCESS 10000, BY mark, AWARE true)",
        "p :: Police(60Mbps, 20000, EXCESS 30000); p[0] -> q :: Police(40Mbps, 9000, EXCESS 9000, BY class, AWARE "
        "true); "
        "p[1] -> q; q -> Shape(150Mbps, CAPACITY 50)"}) {
    for (const std::string sink : {"ToDump($OUT)", "ToMemory()"}) expect_equal_behind_frames(order, sink);
  }
}

// Those of a policer that leads on to other stages are done again on the host, which brings frames back from the
// device; of most batches it gets nothing, and these stay there.
TEST_F(OrderedEquality, BatchesThatHaveNothingForIt) {
  const std::string mixed = testing::write_mixed_capture(dir_ / "in.pcap", 2000, 43);
  const std::string text = "FromMemory(" + mixed +
                           ", LIMIT 6000) -> IPInput -> c :: IPClassifier(udp, -);\n"
                           "c[0] -> ToMemory(); c[1] -> Police(5Mbps, 2000, BY class) -> Paint(1) -> ToMemory();\n";
  const testing::DeviceOutcome want = testing::run_way(dir_, text, nullptr, {});
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  EXPECT_GT(want.outcome.report.drops[static_cast<size_t>(DropReason::kPoliced)], 5u);
  for (const std::string& kind : testing::device_kinds()) {
    for (const uint32_t batch : {3u, 40u, 1000u}) {
      Way way{DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kFrame, 2, batch};
      way.frames_there = true;
      SCOPED_TRACE(kind + ", " + ::testing::PrintToString(way));
      const testing::DeviceOutcome got = testing::run_way(dir_, text, &way, testing::devices_of(kind, 1));
      testing::expect_equal(want, got);
      EXPECT_GT(got.outcome.report.offload.offloaded, 1000u);
      EXPECT_GT(got.outcome.report.offload.redone, 5u);
    }
  }
}

// Time stamps that go back hold nobody up and lose nothing.
TEST_F(OrderedEquality, TimeThatGoesBack) {
  auto in = arrivals(600, 4);
  std::mt19937_64 random(5);
  for (Arrival& a : in) {
    if (random() % 3 == 0) a.at_ns -= random() % 5'000'000;
  }
  const std::string capture = write_arrivals(dir_ / "in.pcap", in);
  const std::string text = "FromDump(" + capture + ") -> IPInput -> Shape(20Mbps, CAPACITY 40) -> ToDump($OUT);\n";
  const testing::DeviceOutcome first = testing::run_way(dir_, text, nullptr, {});
  ASSERT_TRUE(first.outcome.ok) << first.outcome.error;
  EXPECT_TRUE(first.outcome.report.conserved());
  EXPECT_GT(first.outcome.report.packets_out, 50u);
  expect_equal_every_way(dir_, text, first);
}

}  // namespace
}  // namespace sluice
