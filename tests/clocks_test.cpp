// Rates go by the packets' own time stamps wherever packets have them: in every graph, whoever runs it, at any pace of
// the input, with classes that overtake each other, and for time stamps that nobody would expect.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "formats/qos_text.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::GraphOutcome;
using testing::GraphRun;
using testing::TempDir;

constexpr uint64_t kNow = 1'700'000'000'000'000'000;
constexpr uint64_t kMs = 1'000'000;

struct ClockArrival {
  uint64_t at_ns;
  uint8_t dscp;
  uint16_t payload;
};

std::vector<uint8_t> frame_of(const ClockArrival& a, uint32_t i) {
  const bool expires = i % 17 == 3;
  PacketBuilder b = i % 5 == 4 ? udp6("2001:db8::1", "2001:db8::2") : udp4("10.0.0.1", "192.0.2.7");
  return b.ports(static_cast<uint16_t>(i), 9).dscp(a.dscp).payload(a.payload).ttl(expires ? 1 : 64).build();
}
void write_clock_arrivals(const std::string& path, const std::vector<ClockArrival>& all) {
  auto writer = CaptureWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (uint32_t i = 0; i < all.size(); ++i) {
    const auto f = frame_of(all[i], i);
    const auto bytes = static_cast<uint32_t>(f.size());
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, all[i].at_ns}, f.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
}

// How time stamps may come. `mean_ns`: between two packets.
enum class Stamps { kEven, kBursts, kEqual, kBack, kZeroFirst, kAllZero, kFarApart, kTwoInputs };
constexpr std::array kStamps{Stamps::kEven,      Stamps::kBursts,  Stamps::kEqual,    Stamps::kBack,
                             Stamps::kZeroFirst, Stamps::kAllZero, Stamps::kFarApart, Stamps::kTwoInputs};
std::vector<ClockArrival> clock_arrivals(Stamps kind, uint32_t n, uint64_t mean_ns, std::mt19937_64& random) {
  constexpr std::array<uint8_t, 5> kCodepoints{46, 34, 18, 0, 8};
  std::vector<ClockArrival> all;
  uint64_t now = kNow;
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t at = now;
    now += mean_ns;
    switch (kind) {
      case Stamps::kEven:
        break;
      case Stamps::kBursts:
        now = random() % 16 == 0 ? now + 15 * mean_ns : now - mean_ns + random() % 100;
        break;
      case Stamps::kEqual:
        at = kNow + i / 40 * 40 * mean_ns;
        break;
      case Stamps::kBack:
        if (random() % 3 == 0) at -= random() % (20 * mean_ns);
        break;
      case Stamps::kZeroFirst:
        if (i < 3) at = 0;
        break;
      case Stamps::kAllZero:
        at = 0;
        break;
      case Stamps::kFarApart:
        at = i * (4'000'000'000'000'000'000 / n);
        break;
      case Stamps::kTwoInputs:
        if (i % 64 < 32) at -= 3 * 64 * mean_ns;
        break;
    }
    all.push_back({at, kCodepoints[random() % kCodepoints.size()], static_cast<uint16_t>(random() % 900)});
  }
  return all;
}

struct ClockSeen {
  std::string out, out2, counters, qos, printed, error;
  uint64_t in = 0, left = 0, dropped = 0;
  bool conserved = false;
  bool operator==(const ClockSeen&) const = default;
};
std::ostream& operator<<(std::ostream& to, const ClockSeen& s) {
  return to << s.error << "in " << s.in << ", out " << s.left << ", dropped " << s.dropped << ", OUT " << s.out.size()
            << " bytes, hash " << std::hash<std::string>()(s.out) << "\n"
            << s.counters << s.qos;
}
ClockSeen see(const TempDir& dir, const std::string& text, GraphRun run = {}) {
  for (const char* name : {"OUT", "OUT2"}) std::remove((dir / name).c_str());
  run.text = testing::with_outputs(dir, text);
  const GraphOutcome outcome = testing::run_graph(run);
  ClockSeen seen;
  if (!outcome.ok) seen.error = outcome.error;
  seen.out = testing::read_file(dir / "OUT");
  seen.out2 = testing::read_file(dir / "OUT2");
  seen.counters = outcome.counters;
  seen.printed = outcome.printed;
  for (const QosPortReport& port : outcome.report.qos) {
    for (const QosClassReport& c : port.classes) {
      const QosCounters& n = c.counters;
      seen.qos += fmt::format("{} {} {}: in {} out {} policed {} shaper {} tail {} early {} highest {}, {} {} ns\n",
                              port.element, port.port, c.name, n.in_pkts, n.out_pkts, n.policed, n.shaper_full,
                              n.tail_drops, n.early_drops, n.highest_pkts, c.p50_ns, c.p99_ns);
    }
  }
  seen.in = outcome.report.packets_in;
  seen.left = outcome.report.packets_out;
  seen.dropped = outcome.report.dropped;
  seen.conserved = outcome.report.conserved();
  return seen;
}

uint32_t packets_of(const std::string& path) {
  auto reader = CaptureReader::open(path);
  EXPECT_TRUE(reader.ok());
  CapturedFrame frame;
  uint32_t n = 0;
  while (reader.ok()) {
    auto more = reader->next(frame);
    if (!more.ok() || !*more) break;
    ++n;
  }
  return n;
}

// The capture by a pipe, in pieces with pauses between them.
ClockSeen see_paced(const TempDir& dir, const std::string& text, const std::string& capture, uint64_t seed,
                    GraphRun run = {}) {
  const std::string pipe = dir / "pipe";
  EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::mt19937_64 random(seed);
    const std::string bytes = testing::read_file(capture);
    std::ofstream to(pipe, std::ios::binary);
    constexpr int kPieces = 5;
    for (size_t at = 0, piece = 0; at < bytes.size(); ++piece) {
      const size_t n = piece == kPieces ? bytes.size() - at : std::min(bytes.size() - at, random() % bytes.size() / 3);
      to.write(bytes.data() + at, static_cast<std::streamsize>(n));
      to.flush();
      at += n;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 12));
    }
  });
  std::string piped = text;
  for (size_t at; (at = piped.find(capture)) != std::string::npos;) piped.replace(at, capture.size(), pipe);
  ClockSeen seen = see(dir, piped, run);
  writer.join();
  std::remove(pipe.c_str());
  return seen;
}

// -- every element with a clock, in every kind of graph ---------------------------------------------------------------

std::vector<std::string> clocked_graphs(const TempDir& dir) {
  const std::string in = "in :: FromDump(" + (dir / "in.pcap") + ") -> IPInput -> ";
  const std::string out = " -> out :: ToDump($OUT);\n";
  std::vector<std::string> all;
  for (const char* rate : {"Police(2Mbps, BURST 3000)", "Shape(2Mbps, CAPACITY 20)"}) {
    const std::string r = rate;
    all.push_back(in + r + out);
    all.push_back(in + "s :: Switch(0) -> " + r + out + "s[1] -> Discard;\n");
    all.push_back(in + r + " -> s :: RoundRobinSwitch" + out + "s[1] -> ToDump($OUT2);\n");
    all.push_back(in + "s :: RoundRobinSwitch -> a :: " + r + out + "s[1] -> b :: " + r + " -> ToDump($OUT2);\n");
    all.push_back(in + "t :: Tee(2) -> " + r + out + "t[1] -> " + r + " -> ToDump($OUT2);\n");
    all.push_back(in + r + " -> " + r + out);
    all.push_back(in + "Queue(50) -> Unqueue -> " + r + out);
    all.push_back(in + r + " -> SimpleQueue(30) -> Unqueue" + out);
    all.push_back(in + r + " -> SimpleQueue(30) -> RatedUnqueue(300)" + out);
    all.push_back(in + "Queue(30) -> RatedUnqueue(300) -> " + r + out);
    all.push_back(in + "c :: Counter(COUNT_CALL 100 s.switch 1) -> s :: Switch(0) -> " + r + out +
                  "s[1] -> ToDump($OUT2);\n");
    all.push_back(in + "s :: Switch(0) -> " + r + out +
                  "s[1] -> ToDump($OUT2);\nScript(wait 40ms, write s.switch 1, wait 100ms, write s.switch 0);\n");
    all.push_back(in + r + " -> c :: Counter" + out + "Script(write c.reset);\n");
    all.push_back(in + "MinBatch(BURST 8, TIMER 2000) -> " + r + out);
  }
  for (const char* puller : {"RatedUnqueue(200)", "BandwidthRatedUnqueue(1Mbps)", "Shaper(200) -> Unqueue",
                             "BandwidthShaper(1Mbps) -> Unqueue"}) {
    all.push_back(in + "SimpleQueue(20) -> " + puller + out);
    all.push_back(in + "Queue(20) -> " + puller + out);
    all.push_back(in + "q :: SimpleQueue(20) -> " + puller + out + "q[1] -> ToDump($OUT2);\n");
  }
  testing::write_file(dir / "edge.qos",
                      "class voice dscp ef strict rate 1Mbps burst 1500 limit 20\n"
                      "class mid dscp af41 police srtcm 500kbps 3000 3000 limit 10\n"
                      "class rest dscp others rate 2Mbps limit 10 red 0 4 50%\nport rate 2Mbps\n");
  all.push_back(in + "QoS(" + (dir / "edge.qos") + ") -> Unqueue" + out);
  // Its timer never ends.
  all.push_back("in :: FromDump(" + (dir / "in.pcap") +
                ", STOP true) -> IPInput -> q :: SimpleQueue(20) -> t :: TimedSink(5ms);\nIdle" + out +
                "q[1] -> ToDump($OUT2);\n");
  all.push_back(in + "d :: DecIPTTL" + out +
                "d[1] -> ICMPError(192.0.2.1, RATE 20, BURST 2) -> s :: Switch(0) -> Discard; s[1] -> "
                "ToDump($OUT2);\n");
  return all;
}

TEST(Clocks, PacketsMoveThemInEveryGraphAtAnyPace) {
  const TempDir dir;
  std::mt19937_64 random(1);
  const std::string capture = dir / "in.pcap";
  write_clock_arrivals(capture, clock_arrivals(Stamps::kBursts, testing::kWatched ? 150 : 400, kMs, random));
  unsigned lost = 0;
  for (const std::string& text : clocked_graphs(dir)) {
    SCOPED_TRACE(text);
    GraphRun run;
    run.by_packets = true;
    const ClockSeen want = see(dir, text, run);
    ASSERT_EQ(want.error, "");
    EXPECT_TRUE(want.conserved);
    EXPECT_GT(want.out.size() + want.out2.size(), 1000u);
    lost += want.dropped != 0 ? 1 : 0;
    EXPECT_EQ(see_paced(dir, text, capture, random(), run), want);
    run.one_by_one = true;
    EXPECT_EQ(see_paced(dir, text, capture, random(), run), want);
  }
  EXPECT_GT(lost, 20u);  // or equality says little
}

// -- a plain model
// ------------------------------------------------------------------------------------------------------

// RFC 2697 without an excess burst, in whole units: which packets are green.
std::vector<bool> police_model(const std::vector<ClockArrival>& in, uint64_t bps, uint64_t burst) {
  constexpr __int128 kUnits = 8'000'000'000;  // a byte
  __int128 level = static_cast<__int128>(burst) * kUnits;
  uint64_t last = 0;
  std::vector<bool> green;
  for (uint32_t i = 0; i < in.size(); ++i) {
    const uint64_t now = std::max(last, in[i].at_ns);
    level = std::min(static_cast<__int128>(burst) * kUnits, level + static_cast<__int128>(now - last) * bps);
    last = now;
    const __int128 cost = static_cast<__int128>(frame_of(in[i], i).size() - 14) * kUnits;
    green.push_back(level >= cost);
    if (green.back()) level -= cost;
  }
  return green;
}

TEST(Clocks, APolicerIsItsModelWhereverItStands) {
  const TempDir dir;
  std::mt19937_64 random(2);
  const std::string in = "FromDump(" + (dir / "in.pcap") + ") -> IPInput -> ";
  const std::string police = "Police(2Mbps, BURST 3000)";
  for (const Stamps kind : kStamps) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto all = clock_arrivals(kind, 300, kMs, random);
    write_clock_arrivals(dir / "in.pcap", all);
    std::vector<bool> green = police_model(all, 2'000'000, 3000);
    auto writer = CaptureWriter::create(dir / "want.pcap");
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < all.size(); ++i) {
      const auto f = frame_of(all[i], i);
      const auto bytes = static_cast<uint32_t>(f.size());
      if (!green[i]) continue;
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, all[i].at_ns}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
    const std::string want = testing::read_file(dir / "want.pcap");
    for (const unsigned workers : {1u, 3u}) {
      for (const uint32_t batch : {1u, 30u, 256u}) {
        GraphRun run;
        run.workers = workers;
        run.batch = batch;
        EXPECT_TRUE(see(dir, in + police + " -> ToDump($OUT);", run).out == want) << workers << ", " << batch;
      }
    }
    GraphRun run;
    run.by_packets = true;
    for (const std::string& text :
         {police, "s :: Switch(0) -> " + police, police + " -> s :: Switch(0)", "Queue(9) -> Unqueue -> " + police,
          police + " -> Queue(9) -> Unqueue", police + " -> Queue(9) -> RatedUnqueue(1000000)"}) {
      SCOPED_TRACE(text);
      const ClockSeen seen = see(dir, in + text + " -> ToDump($OUT);", run);
      EXPECT_EQ(seen.error, "");
      EXPECT_TRUE(seen.out == want) << seen;
    }
  }
}

// -- rates far above what comes
// ----------------------------------------------------------------------------------------

TEST(Clocks, FarBelowEveryRateNothingIsLost) {
  const TempDir dir;
  std::mt19937_64 random(3);
  const std::string in = "FromDump(" + (dir / "in.pcap") + ") -> IPInput -> ";
  const auto model = parse_qos(
      "class voice dscp ef strict rate 100Mbps burst 100000 limit 100\n"
      "class mid dscp af41 police srtcm 100Mbps 1000000 1000000 rate 100Mbps limit 100\n"
      "class rest dscp others rate 100Mbps burst 100000 limit 100\nport rate 200Mbps burst 100000\n",
      "model");
  ASSERT_TRUE(model.ok());
  testing::write_file(dir / "edge.qos", format_qos(*model));
  for (const Stamps kind : kStamps) {
    if (kind == Stamps::kAllZero) continue;  // everything at once
    SCOPED_TRACE(static_cast<int>(kind));
    const uint32_t n = 400;
    write_clock_arrivals(dir / "in.pcap", clock_arrivals(kind, n, 10 * kMs, random));
    for (const bool priorities : {false, true}) {
      for (const unsigned workers : {1u, 3u}) {
        GraphRun run;
        run.workers = workers;
        run.batch = 64;
        run.qos = std::make_shared<QosModel>(*model);
        if (priorities) run.priorities.emplace().chunk = 16;
        const ClockSeen seen = see(dir, in + "out :: ToDump($OUT);", run);
        EXPECT_EQ(seen.left, n) << priorities << workers << seen;
      }
    }
    for (const std::string& text :
         {std::string("Shape(100Mbps, BURST 100000, CAPACITY 100)"),
          std::string("Police(100Mbps, BURST 1000000) -> s :: Switch(0) -> Shape(100Mbps, BURST 100000)"),
          std::string("SimpleQueue(100) -> RatedUnqueue(100000)"), "QoS(" + (dir / "edge.qos") + ") -> Unqueue",
          std::string("SimpleQueue(100) -> BandwidthShaper(100Mbps) -> Unqueue")}) {
      for (const bool by_packets : {true, false}) {
        if (!by_packets && !text.starts_with("Shape")) continue;  // the others have queues and switches
        GraphRun run;
        run.by_packets = by_packets;
        const ClockSeen seen = see(dir, in + text + " -> ToDump($OUT);", run);
        EXPECT_EQ(seen.left, n) << text << "\n" << seen;
      }
    }
  }
}

// -- classes that overtake each other
// ------------------------------------------------------------------------------------

std::string random_classes(std::mt19937_64& random, uint64_t mean_bps) {
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  // Near the traffic, far below it and far above.
  const auto rate = [&] {
    return fmt::format("{}bps", std::max<uint64_t>(8000, mean_bps * one_of(1, 20, 90, 110, 3000) / 100));
  };
  std::string text;
  const std::array<const char*, 3> names{"voice dscp ef", "mid dscp af41", "rest dscp others"};
  for (unsigned c = 0; c < names.size(); ++c) {
    text += fmt::format("class {}", names[c]);
    if (c == 0 && random() % 2 == 0) text += " strict";
    if (random() % 3 == 0) text += fmt::format(" police srtcm {} 3000 3000", rate());
    if (random() % 3 != 0) text += fmt::format(" rate {} burst {}", rate(), one_of(0, 1500, 9000));
    const int limit = one_of(1, 5, 20, 200);
    text += fmt::format(" limit {}", limit);
    if (limit > 5 && random() % 3 == 0) text += " red 0 5 50%";
    text += '\n';
  }
  if (random() % 2 == 0) text += fmt::format("port rate {} burst 2000\n", rate());
  return text;
}

TEST(Clocks, WithPrioritiesRatesSeeTheOrderOfTheInput) {
  const TempDir dir;
  std::mt19937_64 random(4);
  unsigned lost = 0;
  for (unsigned round = 0; round < (testing::kWatched ? 12 : 60); ++round) {
    const Stamps kind = kStamps[round % kStamps.size()];
    const uint64_t mean_ns = kMs / (1 + random() % 20);
    write_clock_arrivals(dir / "in.pcap", clock_arrivals(kind, 500 + random() % 500, mean_ns, random));
    const std::string classes = random_classes(random, 500 * 8 * 1'000'000'000ull / mean_ns);
    const auto model = parse_qos(classes, "classes");
    ASSERT_TRUE(model.ok()) << classes << to_string(model.error());
    const std::string text =
        "FromDump(" + (dir / "in.pcap") + ") -> IPInput -> d :: DecIPTTL -> out :: ToDump($OUT);\n" +
        (round % 3 == 0   ? "d[1] -> Discard;\n"
         : round % 3 == 1 ? "d[1] -> ICMPError(192.0.2.1 2001:db8::9, RATE 100, BURST 3) -> ToDump($OUT2);\n"
                          : "d[1] -> ICMPError(192.0.2.1 2001:db8::9, RATE 1000, BURST 3) -> out;\n");
    SCOPED_TRACE(fmt::format("round {}\n{}{}", round, classes, text));
    GraphRun plain;
    if (round % 5 != 4) plain.qos = std::make_shared<QosModel>(*model);
    const ClockSeen want = see(dir, text, plain);
    ASSERT_EQ(want.error, "");
    EXPECT_TRUE(want.conserved);
    lost += want.dropped > 20 ? 1 : 0;
    for (const unsigned workers : {1u, 2u, 3u}) {
      GraphRun run = plain;
      run.workers = workers;
      run.batch = std::array{1u, 7u, 64u, 256u, 4096u}[random() % 5];
      run.priorities.emplace().chunk = std::array{1u, 5u, 32u, 256u, 4096u}[random() % 5];
      run.priorities->timeout_ns = random() % 2 == 0 ? 0 : 100'000;
      run.priorities->places = std::array{0u, 1u, 2u}[random() % 3];
      const ClockSeen got = see(dir, text, run);
      if (round % 5 != 4 || round % 3 != 0) {
        EXPECT_EQ(got, want) << workers << " workers, batches of " << run.batch << ", chunks of "
                             << run.priorities->chunk;
      } else {
        EXPECT_EQ(got.counters, want.counters);
      }
    }
  }
  EXPECT_GT(lost, testing::kWatched ? 3u : 15u);
}

// A class of which nothing comes for a long time, and one packet then: the others wait for nothing, and the memory of
// what waits is bounded.
TEST(Clocks, AClassThatIsRareHoldsUpNobody) {
  const TempDir dir;
  std::vector<ClockArrival> all;
  for (uint32_t i = 0; i < 60'000; ++i)
    all.push_back({kNow + i * kMs, static_cast<uint8_t>(i == 31 || i == 59'000 ? 46 : 0), 20});
  write_clock_arrivals(dir / "in.pcap", all);
  const auto model =
      parse_qos("class voice dscp ef rate 1Mbps limit 9\nclass rest dscp others rate 1Mbps burst 1500 limit 9\n", "m");
  ASSERT_TRUE(model.ok());
  const std::string text = "FromDump(" + (dir / "in.pcap") + ") -> IPInput -> ToDump($OUT);";
  GraphRun plain;
  plain.qos = std::make_shared<QosModel>(*model);
  const ClockSeen want = see(dir, text, plain);
  for (const unsigned workers : {1u, 3u}) {
    GraphRun run = plain;
    run.workers = workers;
    run.priorities.emplace().timeout_ns = 10'000'000'000;  // it is not handed on for its time
    EXPECT_EQ(see(dir, text, run), want);
  }
  EXPECT_EQ(packets_of(dir / "OUT"), want.left);
  // Packets that found no place are not waited for.
  GraphRun drops = plain;
  drops.workers = 3;
  drops.priorities.emplace().chunk = 2;
  drops.priorities->places = 1;
  drops.priorities->drop_when_full = true;
  const ClockSeen seen = see(dir, text, drops);
  EXPECT_EQ(seen.error, "");
  EXPECT_TRUE(seen.conserved);
  EXPECT_EQ(seen.in, 60'000u);
  EXPECT_GT(seen.left, 0u);
}

}  // namespace
}  // namespace sluice
