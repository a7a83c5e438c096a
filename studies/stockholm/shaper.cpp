// sluice bench shaper: how exact the rate of a class is, in simulated and in real time, and what classes cost that do
// nothing.
// host only
#include <algorithm>
#include <array>

#include "apps/bench/bench.h"
#include "apps/sluice/pipeline.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "control/standard_graph.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "qos/port_qos.h"

namespace sluice::app {
namespace {

struct ShaperOptions : BenchOptions {
  double seconds = 10;
  double real_seconds = 1;
};

// Of mixed sizes, so that departures do not fall on whole nanoseconds. Slow rates get small ones, quick rates large
// ones, so that ten seconds are neither a few packets nor hundreds of millions.
constexpr std::array<std::array<uint32_t, 4>, 2> kFrameBytes{{{60, 590, 1514, 333}, {9014, 4001, 1514, 8999}}};

QosModel one_class(uint64_t rate_bps) {
  QosModel model;
  QosClass c;
  c.name = "shaped";
  c.rate_bps = rate_bps;
  c.limit_pkts = 4;
  model.classes.push_back(c);
  return model;
}

// A class that always has packets: what departed, and when.
class Saturated {
 public:
  Saturated(uint64_t rate_bps, uint64_t start_ns) : rate_bps_(rate_bps), port_(one_class(rate_bps), start_ns) {
    while (fill(start_ns)) {
    }
  }
  // Takes what departs until `until_ns`. `seen_ns`: the time at which it is seen to depart; 0: its own.
  void run(uint64_t until_ns, uint64_t seen_ns = 0) {
    uint32_t bytes = 0;
    uint64_t at = 0;
    while (port_.depart(until_ns, bytes, at, [](uint32_t&&, DropReason) {})) {
      if (sent_ == 0) first_ns_ = seen_ns != 0 ? seen_ns : at;
      if (sent_ != 0) bytes_ += last_bytes_;
      last_bytes_ = bytes;
      last_ns_ = seen_ns != 0 ? seen_ns : at;
      ++sent_;
      (void)fill(at);
    }
  }
  uint64_t next_ns() const { return port_.next_ns(); }
  uint64_t sent() const { return sent_; }
  uint64_t elapsed_ns() const { return last_ns_ - first_ns_; }
  // What was sent from the first departure to the last, over what the rate would have sent, less 1; in percent. The
  // numbers are exact up to the last division.
  double error_percent() const {
    const auto want = static_cast<__int128>(elapsed_ns()) * rate_bps_;
    const auto got = static_cast<__int128>(bytes_) * 8'000'000'000;
    return want == 0 ? 0.0 : static_cast<double>(got - want) / static_cast<double>(want) * 100;
  }

 private:
  bool fill(uint64_t now_ns) {
    QosPacket p;
    p.bytes = kFrameBytes[rate_bps_ >= 1'000'000'000 ? 1 : 0][next_++ % 4];
    return port_.arrive(now_ns, p, uint32_t{p.bytes}, [](uint32_t&&, DropReason) {}) == DropReason::kNone;
  }

  uint64_t rate_bps_;
  PortQos<uint32_t> port_;
  uint64_t first_ns_ = 0, last_ns_ = 0, bytes_ = 0, sent_ = 0;
  uint32_t last_bytes_ = 0;
  size_t next_ = 0;
};

std::string rate_name(uint64_t bps) {
  return bps >= 1'000'000'000 ? fmt::format("{}Gbps", bps / 1'000'000'000)
         : bps >= 1'000'000   ? fmt::format("{}Mbps", bps / 1'000'000)
                              : fmt::format("{}kbps", bps / 1'000);
}

// Routes alone on 64-byte frames in memory, with and without classes, in turns.
void add_costs(const ShaperOptions& o, const OpenDevices& devices, std::vector<Case>& cases, Progress& progress) {
  const BenchFolder folder;
  write_file(folder / "rib", "0.0.0.0/1 10.0.0.1\n128.0.0.0/1 10.0.0.2\n");
  auto writer = need(CaptureWriter::create(folder / "in.pcap"), Exit::kIo);
  constexpr uint8_t kSomeCodepoints[] = {46, 34, 0};
  for (uint32_t i = 0; i < 4096; ++i) {
    const auto frame = udp4("10.0.0.1", fmt::format("192.0.{}.{}", i / 200 % 200, 1 + i % 200))
                           .ports(static_cast<uint16_t>(i), 53)
                           .dscp(kSomeCodepoints[i % 3])
                           .size(60)
                           .build();
    const auto bytes = static_cast<uint32_t>(frame.size());
    if (!writer.append(FrameHeader{bytes, bytes, uint64_t{i} * 1000}, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
  StandardGraph graph;
  graph.routes = {folder / "rib"};
  graph.in = folder / "in.pcap";
  graph.in_memory = true;
  graph.limit = o.packets != 0 ? o.packets : 4'000'000;
  auto pipeline = parse_pipeline(need(standard_graph_text(graph)), "standard graph", {});
  load_pipeline_tables(*pipeline, {});
  const auto frames = std::make_shared<FrameCache>();
  BenchOptions once = o;
  once.repetitions = 1;
  BenchOptions with = once;
  with.qos = std::make_shared<QosModel>(QosModel::three_priorities());
  Case without{"routes/64B/without", "Mpackets/s", {}}, counted{"routes/64B/three classes", "Mpackets/s", {}};
  // Their order takes turns too.
  for (unsigned r = 0; r < o.repetitions; ++r) {
    for (const bool first : {r % 2 == 0, r % 2 != 0}) {
      Case& c = first ? without : counted;
      c.values.push_back(
          measure_pipeline(first ? once : with, devices, *pipeline, 256, c.name, frames, progress).values.at(0));
    }
  }
  std::vector<double> ratios;
  for (unsigned r = 0; r < o.repetitions; ++r) ratios.push_back(counted.values[r] / without.values[r]);
  cases.push_back(std::move(without));
  cases.push_back(std::move(counted));
  cases.push_back({"three classes/without", "x", std::move(ratios)});
}

Exit bench_shaper(const ShaperOptions& o) {
  Progress progress("bench shaper");
  std::vector<Case> cases;
  Verified verified;
  verified.oracle = "an error of at most 0.001% in simulated time";
  const auto simulated_ns = static_cast<uint64_t>(o.seconds * 1e9);
  for (uint64_t bps = 10'000; bps <= 100'000'000'000; bps *= 10) {
    progress.step(fmt::format("{} in simulated time", rate_name(bps)));
    Saturated port(bps, 0);
    port.run(simulated_ns);
    stop_if_interrupted();
    Case c{fmt::format("simulated/{}", rate_name(bps)), "%", {port.error_percent()}};
    c.more["packets"] = port.sent();
    c.more["elapsed_ns"] = port.elapsed_ns();
    ++verified.sample;
    if (std::abs(c.values[0]) > 0.001 || port.sent() < 2 || o.spoil)
      fail(Exit::kCheckFailed, fmt::format("{}: an error of {}%", c.name, c.values[0]));
    cases.push_back(std::move(c));
  }
  for (uint64_t bps = 1'000'000; bps <= 1'000'000'000 && o.real_seconds > 0; bps *= 10) {
    progress.step(fmt::format("{} in real time", rate_name(bps)));
    const uint64_t start = now_ns();
    const uint64_t end = start + static_cast<uint64_t>(o.real_seconds * 1e9);
    Saturated port(bps, start);
    // The wheel is asked again and again, as a port would that has nothing else to do.
    for (uint64_t now = start; now < end; now = now_ns()) port.run(now, now);
    stop_if_interrupted();
    Case c{fmt::format("real/{}", rate_name(bps)), "%", {port.error_percent()}};
    c.more["packets"] = port.sent();
    cases.push_back(std::move(c));
  }
  add_costs(o, open_devices(o.device), cases, progress);
  progress.clear();
  Sha256 hash;
  for (const auto& sizes : kFrameBytes) hash.update(sizes.data(), sizeof sizes);
  return bench_report(o, "shaper", hash.finish(), verified, std::move(cases), {{"seconds", o.seconds}});
}

}  // namespace

void add_bench_shaper(Command bench) {
  auto o = std::make_shared<ShaperOptions>();
  Command sub = add_subcommand(
      bench, "shaper", "Subcommands",
      "Measures the error of the rates of classes of service: every decade from 10 kbit/s to 100 Gbit/s in "
      "simulated time, some in real time; and the rate of the standard graph with classes that only count, relative "
      "to the graph without.",
      "sluice bench shaper\nsluice bench shaper --seconds 2 --real-seconds 0 --packets 100000 -o json", [o] {
        o->standing.routes = true;
        return bench_shaper(*o);
      });
  sub->add_number("--seconds", "S", o->seconds, "Simulated seconds per rate; 10 kbit/s needs 2", Range(2.0, 1000.0));
  sub->add_number("--real-seconds", "S", o->real_seconds, "Real seconds per rate; 0: none", Range(0.0, 1000.0));
  sub->add_option("--packets", o->packets, "Packets per run of the graph (default 4,000,000)")->type_name("N");
  sub->add_number("--repetitions", "N", o->repetitions, "Runs of the graph, at least 5", Range(5u, 1000u));
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_shaper)")->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
