// One graph, one result: random graphs over random packets (generate/graphs.h), run every way there is. Branches part
// and meet again, and stages read what another wrote; the reference is the ordinary form of every stage, a packet a
// batch.
//
// A failure prints the graph as Click text, made as small as it still fails, with its seed: SLUICE_GRAPH_SEED=N runs
// that one alone. SLUICE_TEST_SCALE=10: ten times as many graphs, from SLUICE_GRAPH_FIRST on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "formats/qos_text.h"
#include "generate/graphs.h"
#include "ports/pcap/capture_reader.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice::random_graphs {
namespace {

using testing::GraphOutcome;
using testing::GraphRun;
using testing::TempDir;
using testing::Way;
using Frame = GeneratedFrame;
using Case = GeneratedGraph;

using Random = std::mt19937_64;
uint32_t below(Random& random, uint32_t bound) {
  return static_cast<uint32_t>(random() % bound);
}
template <typename List>
auto one_of(Random& random, const List& list) {
  return *(std::begin(list) + below(random, static_cast<uint32_t>(std::size(list))));
}

std::vector<Frame> frames_of(const std::string& path) {
  std::vector<Frame> frames;
  auto reader = CaptureReader::open(path);
  if (!reader) return frames;
  for (CapturedFrame frame; true;) {
    auto more = reader->next(frame);
    if (!more.ok() || !*more) return frames;
    frames.push_back({frame.timestamp_ns, frame.wire_bytes, {frame.data, frame.data + frame.captured}});
  }
}

// -- ways to run one

struct Outcome {
  GraphOutcome graph;
  std::vector<Frame> out[Case::kOutputs];
};

// How a case is run.
struct Variant {
  std::string name;
  std::function<void(GraphRun&)> adjust;  // empty: the packet scheduler
  bool by_class = false;                  // packets of different classes overtake each other
  bool follows = false;                   // every packet's fate is asked for
};

Outcome run(const TempDir& dir, const Case& c, const Variant& variant) {
  GraphRun graph;
  graph.text = click_text(c, dir.path(), dir.path());
  if (!c.qos.empty()) {
    auto model = parse_qos(c.qos, "classes");
    EXPECT_TRUE(model.ok()) << c.qos;
    graph.qos = std::make_shared<QosModel>(std::move(*model));
  }
  Outcome outcome;
  if (variant.adjust) {
    variant.adjust(graph);
  } else {
    graph.by_packets = true;
  }
  graph.follow = variant.follows;
  if (variant.by_class) graph.priorities = PriorityOptions{};
  outcome.graph = testing::run_graph(graph);
  if (!outcome.graph.ok) return outcome;
  for (int s = 0; s < Case::kOutputs; ++s) {
    outcome.out[s] = frames_of(dir / fmt::format("out{}.pcap", s + 1));
    if (variant.by_class) std::sort(outcome.out[s].begin(), outcome.out[s].end());
  }
  return outcome;
}

std::string hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Without the lines of counters that begin with `word`.
std::string without(const std::string& text, const std::string& word) {
  std::string kept;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = std::min(text.size(), text.find('\n', at) + 1);
    if (text.compare(at, word.size(), word) != 0) kept.append(text, at, end - at);
  }
  return kept;
}

// The first difference; empty: none.
std::string difference(const Outcome& want, const Outcome& got, const Variant& variant) {
  if (got.graph.ok != want.graph.ok) return got.graph.ok ? "it runs" : got.graph.error;
  if (!got.graph.report.conserved()) return "packets are not accounted for\n" + got.graph.counters;
  for (const auto& device : got.graph.report.devices) {
    if (!device.failure.empty()) return "the device failed: " + device.failure;
  }
  for (int s = 0; s < Case::kOutputs; ++s) {
    const std::vector<Frame>&a = want.out[s], &b = got.out[s];
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
      const auto shown = [&](const std::vector<Frame>& of) {
        if (i >= of.size()) return fmt::format("none (there are {})", of.size());
        return fmt::format("{} ns, {} bytes of {}: {}", of[i].timestamp_ns, of[i].bytes.size(), of[i].wire_bytes,
                           hex(of[i].bytes));
      };
      return fmt::format("packet {} of output {}\n  want {}\n  got  {}", i, s + 1, shown(a), shown(b));
    }
  }
  std::string want_counters = want.graph.counters, got_counters = got.graph.counters;
  // The packet scheduler has no ports, and rules are counted where that is asked for.
  for (const char* more : {"port ", "rule "}) {
    const bool here = variant.adjust && got_counters.find(fmt::format("\n{}", more)) != std::string::npos;
    if (!here) want_counters = without(want_counters, more);
    if (!here) got_counters = without(got_counters, more);
  }
  if (want_counters != got_counters) return "counters\n  want\n" + want_counters + "  got\n" + got_counters;
  if (want.graph.printed != got.graph.printed)
    return "lines\n  want\n" + want.graph.printed + "  got\n" + got.graph.printed;
  if (variant.follows && want.graph.fates != got.graph.fates)
    return "fates\n  want\n" + want.graph.fates + "  got\n" + got.graph.fates;
  return {};
}

Variant on_cpu(unsigned workers, uint32_t batch, bool fast, uint64_t target_ns = 0) {
  return {fmt::format("{} workers, batches of {}{}{}", workers, batch, fast ? "" : ", no fast path",
                      target_ns != 0 ? ", a latency target" : ""),
          [=](GraphRun& graph) {
            graph.workers = workers;
            graph.batch = batch;
            graph.fast_path = fast;
            graph.latency_target_ns = target_ns;
          }};
}

// Devices are the same for all runs: a GPU takes longer to open than most graphs to run.
testing::Devices devices(const std::string& kind, unsigned count) {
  static std::map<std::pair<std::string, unsigned>, testing::Devices> all;
  testing::Devices& some = all[{kind, count}];
  if (some.empty()) some = testing::devices_of(kind, count);
  return some;
}

Variant on_device(const std::string& kind, const Way& way, bool hits, uint32_t enter_after) {
  return {fmt::format("{} {}{}, resident after {}", kind, ::testing::PrintToString(way),
                      hits ? "" : ", rules are not counted", enter_after),
          [=](GraphRun& graph) {
            graph.workers = way.workers;
            graph.batch = way.batch;
            graph.fast_path = way.fast_path;
            graph.count_hits = hits;
            graph.device.devices = devices(kind, way.devices);
            graph.device.mode = way.mode;
            graph.device.transport = way.transport;
            graph.device.records = way.records;
            graph.device.flights = way.flights;
            graph.device.threading = way.threading;
            graph.device.frames_there = way.frames_there;
            graph.device.enter_after = graph.device.leave_after = enter_after;
            // A machine with other work is no device that is lost.
            graph.device.watchdog_ns = 60'000'000'000;
          }};
}

// Records of one kind in one mode; the rest is drawn.
Variant random_device(Random& random, const std::string& kind, DeviceMode mode, RecordChoice records) {
  constexpr Transport kAll[] = {Transport::kStaged, Transport::kZeroCopy, Transport::kCommList, Transport::kCommPool};
  constexpr uint32_t kBatches[] = {1, 31, 32, 33, 100, 256, 1024, 4096};
  const bool frames = records == RecordChoice::kFrame;
  Way way{mode, one_of(random, kAll), records, 1 + below(random, 3), one_of(random, kBatches)};
  way.flights = 1 + below(random, 4);
  way.devices = 1 + below(random, 2);
  if (!frames && below(random, 4) == 0) way.threading = DeviceThreading::kMaster;
  way.frames_there = frames && below(random, 4) == 0;
  way.fast_path = below(random, 4) != 0;
  return on_device(kind, way, below(random, 2) != 0, 1 + below(random, 4));
}

const Variant& reference() {
  static const Variant variant = on_cpu(1, 1, false);
  return variant;
}

std::vector<Variant> variants(const Case& c) {
  Random random(c.seed ^ 0x5a5a5a5a);
  constexpr uint32_t kBatches[] = {1, 2, 31, 32, 33, 255, 256, 4096, 8192};
  std::vector<Variant> all{on_cpu(1, 256, true), on_cpu(2, 256, true), on_cpu(1, 4096, false)};
  for (int n = 0; n < 2; ++n)
    all.push_back(on_cpu(1 + below(random, 5), one_of(random, kBatches), below(random, 4) != 0));
  all.push_back(on_cpu(1 + below(random, 2), 300, true, 1 + below(random, 20'000)));
  const auto like = [&](Variant variant, const char* how, const std::function<void(GraphRun&)>& more) {
    variant.name += how;
    variant.adjust = [adjust = variant.adjust, more](GraphRun& graph) {
      adjust(graph);
      more(graph);
    };
    all.push_back(variant);
    return all.size() - 1;
  };
  const auto any_device = [&](const std::string& kind) {
    constexpr DeviceMode kModes[] = {DeviceMode::kLaunch, DeviceMode::kPersistent, DeviceMode::kAdaptive};
    constexpr RecordChoice kRecords[] = {RecordChoice::kAuto, RecordChoice::kKey, RecordChoice::kFrame};
    return random_device(random, kind, one_of(random, kModes), one_of(random, kRecords));
  };
  const auto swaps = [](GraphRun& graph) { graph.swaps = 20; };
  like(on_cpu(1 + below(random, 3), 16, true), ", tables change", swaps);
  if (c.qos.empty()) {
    all[like(on_cpu(1 + below(random, 3), 64, true), ", followed", [](GraphRun&) {})].follows = true;
    if (c.orderless) all[like(on_cpu(1 + below(random, 3), 64, true), ", by class", [](GraphRun&) {})].by_class = true;
  }
  for (const std::string& kind : testing::device_kinds()) {
    for (const DeviceMode mode : {DeviceMode::kLaunch, DeviceMode::kPersistent, DeviceMode::kAdaptive}) {
      for (const RecordChoice records : {RecordChoice::kAuto, RecordChoice::kKey, RecordChoice::kFrame})
        all.push_back(random_device(random, kind, mode, records));
    }
    like(any_device(kind), ", tables change", swaps);
    if (!c.qos.empty()) continue;
    all[like(any_device(kind), ", followed", [](GraphRun&) {})].follows = true;
    if (c.orderless) all[like(any_device(kind), ", by class", [](GraphRun&) {})].by_class = true;
  }
  // It counts a packet's rounds in another way.
  if (!c.turns_back) all.push_back({"packet scheduler", {}});
  return all;
}

// What the case gives, as a variant is to give it.
Outcome wanted_outcome(const TempDir& dir, const Case& c, const Variant& variant) {
  Variant plain = reference();
  plain.by_class = variant.by_class;
  plain.follows = variant.follows;
  return run(dir, c, plain);
}

// What is wrong with the case by this variant; empty: nothing, or the graph cannot be run.
std::string wrong(const TempDir& dir, const Case& c, const Variant& variant) {
  EXPECT_TRUE(write_graph_inputs(c, dir.path()).ok());
  const Outcome want = wanted_outcome(dir, c, variant);
  if (!want.graph.ok) return {};
  return difference(want, run(dir, c, variant), variant);
}

// Takes away elements, connections and packets as long as the case still fails.
Case smallest(const TempDir& dir, Case c, const Variant& variant) {
  unsigned left = 400;
  const auto still = [&](const Case& smaller) {
    return left != 0 && left-- != 0 && !wrong(dir, smaller, variant).empty();
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto frames : {&Case::frames, &Case::others}) {
      for (size_t piece = (c.*frames).size(); piece != 0; piece /= 2) {
        for (size_t at = 0; at + piece <= (c.*frames).size();) {
          Case smaller = c;
          auto& list = smaller.*frames;
          list.erase(list.begin() + static_cast<ptrdiff_t>(at), list.begin() + static_cast<ptrdiff_t>(at + piece));
          if (!still(smaller)) {
            at += piece;
            continue;
          }
          c = std::move(smaller);
          changed = true;
        }
      }
    }
    for (size_t n = 0; n < c.nodes.size(); ++n) {
      // The node is left out.
      const int past = c.nodes[n].to[0];
      if (!c.others.empty() && n == static_cast<size_t>(c.second) && n != 0) continue;
      Case smaller = c;
      for (Case::Node& node : smaller.nodes) {
        for (int& to : node.to) to = to == static_cast<int>(n) ? past : to;
      }
      if (n == 0 && past > 0) std::swap(smaller.nodes[0], smaller.nodes[static_cast<size_t>(past)]);
      if (n != 0 && still(smaller = reachable(smaller))) {
        c = std::move(smaller);
        changed = true;
        break;
      }
      for (size_t out = 1; out < c.nodes[n].to.size(); ++out) {
        if (c.nodes[n].to[out] == Case::kNowhere) continue;
        smaller = c;
        smaller.nodes[n].to[out] = Case::kNowhere;
        if (!still(smaller = reachable(smaller))) continue;
        c = std::move(smaller);
        changed = true;
        break;
      }
    }
  }
  return c;
}

uint64_t wanted(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Seeds of graphs that one way once ran differently: a segment that a cycle enters at two stages (counters of the
// elements in it), frames that a second parser cuts.
constexpr uint64_t kFoundWrong[] = {101'210, 101'779, 100'380};

TEST(RandomGraphs, GiveOneResultEveryWay) {
  const uint64_t only = wanted("SLUICE_GRAPH_SEED", 0);
  const uint64_t graphs = (testing::kWatched ? 6 : 40) * wanted("SLUICE_TEST_SCALE", 1);
  const uint64_t first = wanted("SLUICE_GRAPH_FIRST", 1);
  uint64_t ran = 0, runs = 0, on_devices = 0, scheduled = 0, offloaded = 0, fast = 0, made = 0;
  uint64_t seed = only;
  for (uint64_t tried = 0; ran < graphs; ++tried) {
    if (only != 0 && tried != 0) break;
    if (only == 0) seed = tried < std::size(kFoundWrong) ? kFoundWrong[tried] : first + tried - std::size(kFoundWrong);
    ASSERT_LT(tried, 1000 * graphs) << "graphs that cannot run, and no others";
    const TempDir dir;
    const Case c = generate_graph(seed);
    ASSERT_TRUE(write_graph_inputs(c, dir.path()).ok());
    const Outcome want = run(dir, c, reference());
    if (!want.graph.ok) {
      // One that only the packet scheduler runs, or none: something reads what nothing wrote.
      if (only != 0) std::printf("%s\n%s\n", click_text(c, dir.path(), dir.path()).c_str(), want.graph.error.c_str());
      continue;
    }
    ++ran;
    made += want.graph.report.generated != 0;
    ASSERT_TRUE(want.graph.report.conserved()) << "seed " << seed << "\n" << click_text(c, dir.path(), dir.path());
    for (const Variant& variant : variants(c)) {
      const bool same = !variant.by_class && !variant.follows;
      const Outcome expected = same ? Outcome() : wanted_outcome(dir, c, variant);
      const Outcome got = run(dir, c, variant);
      ++runs;
      offloaded += got.graph.report.offload.offloaded != 0;
      on_devices += !got.graph.report.devices.empty();
      fast += got.graph.report.totals.fast != 0;
      scheduled += !variant.adjust;
      const std::string differs = difference(same ? want : expected, got, variant);
      if (differs.empty()) continue;
      const Case small = smallest(dir, c, variant);
      ADD_FAILURE() << "seed " << seed << ", " << variant.name << ": " << wrong(dir, small, variant) << "\n"
                    << click_text(small, dir.path(), dir.path()) << small.qos << "seen with " << small.frames.size()
                    << " and " << small.others.size()
                    << " packets, the first: " << (small.frames.empty() ? "" : hex(small.frames[0].bytes))
                    << "\nwhole graph: " << differs << "\nagain: SLUICE_GRAPH_SEED=" << seed
                    << " system_tests --gtest_filter=RandomGraphs.GiveOneResultEveryWay";
      break;
    }
    if (::testing::Test::HasFailure() && wanted("SLUICE_GRAPH_ALL", 0) == 0) return;
  }
  std::printf("seeds %llu to %llu: %llu graphs, %llu runs, %llu of them on devices\n",
              static_cast<unsigned long long>(only != 0 ? only : first), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(ran), static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(on_devices));
  if (only != 0) return;
  // Equality says nothing where nobody went another way.
  EXPECT_GT(offloaded, graphs);
  EXPECT_GT(fast, graphs);
  EXPECT_GT(scheduled, graphs / 2);
  // Of a few graphs, none may make packets.
  if (!testing::kWatched) {
    EXPECT_GT(made, graphs / 20);
  }
}

}  // namespace
}  // namespace sluice::random_graphs
