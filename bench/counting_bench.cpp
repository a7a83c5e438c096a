// What it costs to count what every rule decides: the same packets through the same graph with counters and without, in
// turns. `ratio` is the median of the turns' processor time with them to that without; 1.03 is the goal's limit.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/engine/engine.h"
#include "generate/random.h"
#include "graph/click/parser.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

constexpr unsigned kRules = 10'000, kFrames = 4096, kPackets = 400'000;

// A list, packets of its rules, each rule alike, and a graph of nothing else.
std::string graph() {
  static const std::string text = [] {
    std::string folder = (std::filesystem::temp_directory_path() / "sluice_counting_XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    std::ofstream rules(folder + "/acl");
    for (unsigned i = 0; i < kRules; ++i)
      rules << fmt::format("permit udp from 10.{}.{}.0/24 to any port {}\n", i / 250, i % 250, i % 500);
    auto writer = CaptureWriter::create(folder + "/in.pcap");
    if (!writer) std::abort();
    Random random(3);
    for (unsigned n = 0; n < kFrames; ++n) {
      const auto i = static_cast<unsigned>(random.below(kRules));
      const auto frame = udp4(fmt::format("10.{}.{}.7", i / 250, i % 250), "192.0.2.7")
                             .ports(1000, static_cast<uint16_t>(i % 500))
                             .payload(10)
                             .build();
      const auto bytes = static_cast<uint32_t>(frame.size());
      if (!writer->append(FrameHeader{bytes, bytes, n}, frame.data())) std::abort();
    }
    if (!writer->commit()) std::abort();
    return fmt::format(
        "AclTable(edge, FILE {0}/acl); FromMemory({0}/in.pcap, LIMIT {1}) -> IPInput -> ACL(edge) -> Discard;\n",
        folder, kPackets);
  }();
  return text;
}

struct Made {
  Registry registry;
  Router router;
  Plan plan;
  TableSet tables;
};

template <typename T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", to_string(result.error()));
    std::abort();
  }
  return std::move(*result);
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Seconds of a run.
double run(const Made& made, bool counted, bool fast) {
  RunOptions options;
  options.count_hits = counted;
  options.fast_path = fast;
  auto runtime = must(Engine::create(made.router, made.plan, options));
  runtime->publisher().publish(must(bind_plan(made.plan, made.router, made.tables)));
  RunReport report;
  const double begin = processor_seconds();
  auto done = runtime->run(report);
  const double took = processor_seconds() - begin;
  if (!done || report.packets_in != kPackets) std::abort();
  if (counted) {
    const HitLedger::Counts counts = runtime->hits().read("edge");
    uint64_t sum = 0;
    for (size_t r = 1; r < counts.rules.size(); ++r) sum += counts.rules[r].packets;
    if (sum != kPackets) std::abort();
  }
  return took;
}

void counting(benchmark::State& state, bool fast) {
  Made made;
  register_elements(made.registry);
  const std::string text = graph();
  made.router = must(build_router(must(parse_click(text, "counting.click")), made.registry, text));
  made.plan = must(make_plan(made.router));
  made.tables = must(load_tables(made.router));
  std::vector<double> ratios, without;
  for (auto _ : state) {
    // Whichever comes first, a neighbour may disturb: both orders.
    const bool first = ratios.size() % 2 == 0;
    const double a = run(made, first, fast), b = run(made, !first, fast);
    ratios.push_back(first ? a / b : b / a);
    without.push_back(first ? b : a);
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  };
  state.counters["ratio"] = median(ratios);
  state.counters["ns_per_packet"] = median(without) * 1e9 / kPackets;
}

BENCHMARK_CAPTURE(counting, fast_path, true)->Iterations(41)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(counting, ordinary_path, false)->Iterations(41)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice
