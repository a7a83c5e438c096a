// Priorities: packets of one class leave as a run of that class alone would send them, whoever worked on them.
#include "exec/engine/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "graph/click/syntax.h"
#include "net/edit.h"
#include "net/parse.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "qos/frame_class.h"
#include "tests/testing/run_graph.h"
#include "tests/testing/slow_path.h"

namespace sluice::priorities {
namespace {

using testing::GraphRun;
using testing::TempDir;

struct PriorityOutcome {
  bool ok = false;
  std::string error;
  RunReport report;
  std::string counters, printed;
};

// `during` runs beside it, and may publish what `bind` makes.
struct Bound {
  const Plan& plan;
  const Router& router;
  const TableSet& tables;
  Engine& engine;
};
PriorityOutcome run_priorities(const std::string& text, RunOptions options,
                               const std::function<void(Bound)>& during = {}) {
  PriorityOutcome outcome;
  const auto failed = [&](const Error& error) {
    outcome.error = to_string(error);
    return outcome;
  };
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(text, "test.click");
  if (!graph) return failed(graph.error());
  auto router = build_router(*graph, registry, text);
  if (!router) return failed(router.error());
  auto tables = load_tables(*router);
  if (!tables) return failed(tables.error());
  auto plan = make_plan(*router);
  if (!plan) return failed(plan.error());
  auto snapshot = bind_plan(*plan, *router, *tables);
  if (!snapshot) return failed(snapshot.error());
  options.count_hits = options.count_dscp = true;
  options.print = [&](std::string_view line) { outcome.printed.append(line).push_back('\n'); };
  auto engine = Engine::create(*router, *plan, options);
  if (!engine) return failed(engine.error());
  (*engine)->publisher().publish(std::move(*snapshot));
  std::thread beside;
  if (during) beside = std::thread([&] { during({*plan, *router, *tables, **engine}); });
  auto result = (*engine)->run(outcome.report);
  if (beside.joinable()) beside.join();
  // As run_graph writes them.
  const RunReport& report = outcome.report;
  outcome.counters = testing::counters_of(*router, report);
  for (const auto& [name, image] : tables->acls) {
    const HitLedger::Counts counts = (*engine)->hits().read(name);
    for (size_t r = 0; r < counts.rules.size(); ++r) {
      const HitCount& c = counts.rules[r];
      if (c.packets != 0) outcome.counters += fmt::format("rule {} {} {} {}\n", name, r, c.packets, c.bytes);
    }
  }
  if (!result) return failed(result.error());
  outcome.ok = true;
  return outcome;
}

struct Frame {
  uint64_t timestamp_ns;
  std::string bytes;
  friend bool operator==(const Frame&, const Frame&) = default;
};

std::vector<Frame> frames_of(const std::string& path) {
  std::vector<Frame> frames;
  auto reader = CaptureReader::open(path);
  if (!reader) return frames;
  for (CapturedFrame frame; true;) {
    auto more = reader->next(frame);
    EXPECT_TRUE(more.ok());
    if (!more.ok() || !*more) return frames;
    frames.push_back({frame.timestamp_ns, {reinterpret_cast<const char*>(frame.data), frame.captured}});
  }
}

// The capture again, with a codepoint for every packet that has one and a time of its own for each, which whatever
// descends from it carries too. Returns the class of each time.
std::map<uint64_t, unsigned> spread_codepoints(const std::string& path, const ClassMap& map) {
  std::vector<Frame> frames = frames_of(path);
  std::map<uint64_t, unsigned> classes;
  std::mt19937 random(7);
  auto writer = CaptureWriter::create(path);
  EXPECT_TRUE(writer.ok());
  for (size_t i = 0; i < frames.size(); ++i) {
    auto* data = reinterpret_cast<uint8_t*>(frames[i].bytes.data());
    const auto bytes = static_cast<uint32_t>(frames[i].bytes.size());
    Headers headers;
    if (parse_ethernet(data, bytes, bytes, headers) == ParseStatus::kOk)
      set_dscp(data + headers.l3_offset, headers.key.family, static_cast<uint8_t>(random() % 64));
    const uint64_t at = 1'700'000'000'000'000'000 + i * 1'000'003;
    classes[at] = map.class_of(dscp_of_frame(data, bytes));
    EXPECT_TRUE(writer->append({bytes, bytes, at}, data));
  }
  EXPECT_TRUE(writer->commit().ok());
  return classes;
}

std::vector<std::vector<Frame>> by_class(const std::string& path, const std::map<uint64_t, unsigned>& classes) {
  std::vector<std::vector<Frame>> out(kMaxQosClasses);
  for (Frame& frame : frames_of(path)) {
    const auto found = classes.find(frame.timestamp_ns);
    EXPECT_NE(found, classes.end());
    if (found != classes.end()) out[found->second].push_back(std::move(frame));
  }
  return out;
}

ClassMap one_class() {
  ClassMap map;
  map.fill(0);
  return map;
}

RunOptions options_of(unsigned workers, uint32_t batch, uint32_t chunk, uint32_t places = 0) {
  RunOptions o;
  o.workers = workers;
  o.batch = batch;
  o.priorities.emplace();
  o.priorities->chunk = chunk;
  o.priorities->places = places;
  o.priorities->timeout_ns = 20'000;
  return o;
}

struct Graph {
  std::string name, text;
};
// Graphs over a capture in.pcap of the folder, with outputs OUT and OUT2.
std::vector<Graph> graphs(const TempDir& dir, uint32_t packets) {
  const std::string mixed = testing::write_mixed_capture(dir / "mixed.pcap", packets, 11);
  testing::write_slow_path_capture(dir / "in.pcap", packets);
  const std::string from = "FromDump(" + mixed + ")";
  const std::string standard =
      testing::standard_graph_text(dir, from, "ToDump($OUT)", "tuple_space", "poptrie", "poptrie");
  const std::string tables = standard.substr(0, standard.find("in ::"));
  const std::string errors = "in :: " + from +
                             " -> parse :: IPInput -> copy :: Tee(2);\ncopy[0] -> second :: ToDump($OUT2);\n"
                             "copy[1] -> acl :: ACL(TABLE edge) -> fib :: IPRoute(TABLE main) -> ttl :: DecIPTTL\n"
                             " -> adj :: AdjacencyRewrite(TABLE adj) -> shown :: Print(tx, 8) -> out :: ToDump($OUT);\n"
                             "errors :: ICMPError(192.0.0.1, RATE 1000000000, BURST 1000000);\n"
                             "acl[1] -> errors; fib[1] -> errors; ttl[1] -> errors; adj[1] -> errors;\n"
                             "errors -> back :: IPRoute(TABLE main) -> ttl;\n";
  return {{"standard", standard},
          {"errors, copies and a circle", tables + errors},
          {"codepoints", tables + testing::codepoint_graph_text(from)},
          {"slow path", testing::slow_path_graph_text(dir, true)}};
}

constexpr uint32_t kFew = testing::kWatched ? 900 : 2400;

// The whole output is that of the engine, limits of rates too, however it was cut into chunks.
TEST(Priorities, OneClassIsTheBatchRuntime) {
  const TempDir dir;
  for (const Graph& graph : graphs(dir, kFew)) {
    GraphRun plain;
    plain.text = testing::with_outputs(dir, graph.text);
    const testing::GraphOutcome want = testing::run_graph(plain);
    ASSERT_TRUE(want.ok) << graph.name << want.error;
    ASSERT_GT(want.report.packets_out, kFew / 10) << graph.name;
    const std::string out = testing::read_file(dir / "OUT"), second = testing::read_file(dir / "OUT2");
    for (const unsigned workers : {1u, 3u}) {
      for (const uint32_t chunk : {1u, 33u, 256u}) {
        SCOPED_TRACE(fmt::format("{}, {} workers, chunks of {}", graph.name, workers, chunk));
        RunOptions options = options_of(workers, 100, chunk, chunk == 33 ? 1 : 0);
        options.priorities->classes = one_class();
        const PriorityOutcome got = run_priorities(plain.text, options);
        ASSERT_TRUE(got.ok) << got.error;
        EXPECT_TRUE(got.report.conserved());
        EXPECT_EQ(got.counters, want.counters);
        EXPECT_EQ(got.printed, want.printed);
        EXPECT_TRUE(testing::read_file(dir / "OUT") == out);
        EXPECT_TRUE(testing::read_file(dir / "OUT2") == second);
        ASSERT_EQ(got.report.priorities.size(), 1u);
        EXPECT_EQ(got.report.priorities[0].packets, want.report.packets_in);
        EXPECT_EQ(got.report.priorities[0].latency.count(), want.report.packets_in);
        EXPECT_EQ(got.report.priorities[0].stolen, 0u);
      }
    }
  }
}

TEST(Priorities, EveryClassLeavesInTheOrderOfTheInput) {
  const TempDir dir;
  const ClassMap map = ClassMap::three_priorities();
  const std::vector<Graph> all = graphs(dir, kFew);
  std::map<uint64_t, unsigned> classes = spread_codepoints(dir / "mixed.pcap", map);
  classes.merge(spread_codepoints(dir / "in.pcap", map));
  for (const Graph& graph : all) {
    if (graph.name == "slow path") continue;  // its limits hold for all classes together
    GraphRun plain;
    plain.text = testing::with_outputs(dir, graph.text);
    const testing::GraphOutcome want = testing::run_graph(plain);
    ASSERT_TRUE(want.ok) << graph.name << want.error;
    const auto out = by_class(dir / "OUT", classes);
    const bool has_second = graph.text.find("$OUT2") != std::string::npos;
    const auto second = by_class(dir / "OUT2", classes);
    for (unsigned c = 0; c < 3; ++c) ASSERT_GT(out[c].size(), kFew / 100) << graph.name << ", class " << c;
    for (const unsigned workers : {1u, 2u, 5u}) {
      for (const uint32_t chunk : {1u, 17u, 256u}) {
        SCOPED_TRACE(fmt::format("{}, {} workers, chunks of {}", graph.name, workers, chunk));
        const PriorityOutcome got = run_priorities(plain.text, options_of(workers, 64, chunk, chunk == 17 ? 2 : 0));
        ASSERT_TRUE(got.ok) << got.error;
        EXPECT_TRUE(got.report.conserved());
        EXPECT_EQ(got.counters, want.counters);
        EXPECT_TRUE(by_class(dir / "OUT", classes) == out);
        if (has_second) {
          EXPECT_TRUE(by_class(dir / "OUT2", classes) == second);
        }
        uint64_t packets = 0, chunks = 0;
        ASSERT_EQ(got.report.priorities.size(), 3u);
        for (const auto& k : got.report.priorities) {
          packets += k.packets;
          chunks += k.chunks;
          EXPECT_EQ(k.latency.count(), k.packets);
          EXPECT_GE(k.turns, 1u);
          EXPECT_LE(k.stolen, k.chunks);
          EXPECT_GE(k.chunks, (k.packets + chunk - 1) / chunk);
        }
        EXPECT_EQ(packets, want.report.packets_in);
        if (chunk == 1) {
          EXPECT_EQ(chunks, packets);
        }
      }
    }
  }
}

// What cannot be taken is dropped by name, and what was taken leaves in order.
TEST(Priorities, AFullClassDropsAndTheBooksBalance) {
  const TempDir dir;
  const ClassMap map = ClassMap::three_priorities();
  testing::write_mixed_capture(dir / "in.pcap", kFew, 3);
  const auto classes = spread_codepoints(dir / "in.pcap", map);
  const std::string text = testing::with_outputs(dir, "FromDump(" + (dir / "in.pcap") + ") -> out :: ToDump($OUT);\n");
  RunOptions options = options_of(1, 256, 1, 1);
  options.priorities->drop_when_full = true;
  const PriorityOutcome got = run_priorities(text, options);
  ASSERT_TRUE(got.ok) << got.error;
  EXPECT_TRUE(got.report.conserved());
  EXPECT_EQ(got.report.packets_in, kFew);
  uint64_t refused = 0;
  for (const auto& k : got.report.priorities) {
    refused += k.refused;
    EXPECT_EQ(k.latency.count() + k.refused, k.packets);
  }
  // A place of one packet in each class, and 256 packets a read: the worker would have to be quicker than a copy.
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(got.report.drops[static_cast<size_t>(DropReason::kQueueFull)], refused);
  const auto in = by_class(dir / "in.pcap", classes), out = by_class(dir / "OUT", classes);
  for (unsigned c = 0; c < 3; ++c) {
    EXPECT_EQ(out[c].size(), got.report.priorities[c].packets - got.report.priorities[c].refused);
    auto at = in[c].begin();
    for (const Frame& frame : out[c]) {
      at = std::find(at, in[c].end(), frame);
      ASSERT_NE(at, in[c].end()) << "class " << c;
      ++at;
    }
  }
}

// With no time to wait, what one read brought to a class is handed on at the next.
TEST(Priorities, AChunkWhoseTimeIsOverIsHandedOn) {
  const TempDir dir;
  testing::write_mixed_capture(dir / "in.pcap", 500, 3);
  const std::string text = "FromDump(" + (dir / "in.pcap") + ") -> out :: ToMemory;\n";
  RunOptions options = options_of(2, 10, 256);
  options.priorities->classes = one_class();
  options.priorities->timeout_ns = 0;
  PriorityOutcome got = run_priorities(text, options);
  ASSERT_TRUE(got.ok) << got.error;
  EXPECT_EQ(got.report.priorities[0].chunks, 50u);
  EXPECT_EQ(got.report.priorities[0].early, 50u);
  options.priorities->timeout_ns = ~uint64_t{0};
  got = run_priorities(text, options);
  EXPECT_EQ(got.report.priorities[0].chunks, 2u);
  EXPECT_EQ(got.report.priorities[0].early, 1u);
}

TEST(Priorities, GenerationsChangeMeanwhile) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", kFew, 2);
  std::string text = testing::standard_graph_text(dir, fmt::format("FromMemory({}, LIMIT {})", capture, 20 * kFew),
                                                  "ToMemory", "tuple_space", "poptrie", "poptrie");
  const PriorityOutcome got = run_priorities(text, options_of(3, 64, 32), [](Bound bound) {
    for (int i = 0; i < 5; ++i) {
      auto next = bind_plan(bound.plan, bound.router, bound.tables);
      ASSERT_TRUE(next.ok());
      bound.engine.publisher().publish(std::move(*next));
    }
    bound.engine.publisher().drain_retired();
  });
  ASSERT_TRUE(got.ok) << got.error;
  EXPECT_TRUE(got.report.conserved());
  EXPECT_EQ(got.report.packets_in, 20 * kFew);
}

TEST(Priorities, DamagedInputEndsTheRunAndTheBooksBalance) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 2000, 2);
  std::string bytes = testing::read_file(capture);
  bytes.resize(bytes.size() - 3);
  testing::write_file(dir / "cut.pcap", bytes);
  const PriorityOutcome got = run_priorities(
      testing::with_outputs(dir, "FromDump(" + (dir / "cut.pcap") + ") -> ToDump($OUT);\n"), options_of(2, 64, 32));
  EXPECT_FALSE(got.ok);
  EXPECT_TRUE(got.report.conserved());
  EXPECT_GT(got.report.packets_in, 1000u);
  EXPECT_TRUE(testing::read_file(dir / "OUT").empty());  // no output appears
}

TEST(Priorities, RefusesWhatNeedsTheOrderOfTheInput) {
  const TempDir dir;
  const std::string from = "FromDump(" + testing::write_mixed_capture(dir / "in.pcap", 10) + ") -> ";
  const auto error_of = [](const std::string& text, const RunOptions& options) {
    const PriorityOutcome got = run_priorities(text, options);
    EXPECT_FALSE(got.ok);
    return got.error;
  };
  const RunOptions usual = options_of(2, 64, 64);
  EXPECT_NE(error_of(from + "IPInput -> p :: Police(RATE 1Mbps, BURST 10000) -> ToMemory;", usual)
                .find("'p' carries state from batch to batch"),
            std::string::npos);
  EXPECT_NE(error_of(from + "s :: RoundRobinSwitch; s[0] -> ToMemory; s[1] -> ToMemory;", usual)
                .find("the packet scheduler has to run this graph"),
            std::string::npos);
  RunOptions wrong = usual;
  wrong.priorities->shares = {1, 2};
  EXPECT_NE(error_of(from + "ToMemory;", wrong).find("2 shares do not fit 3 classes"), std::string::npos);
  wrong = usual;
  wrong.priorities->places = 3;
  EXPECT_NE(error_of(from + "ToMemory;", wrong).find("power of two"), std::string::npos);
  wrong = usual;
  wrong.priorities->chunk = 0;
  EXPECT_NE(error_of(from + "ToMemory;", wrong).find("0 packets per chunk is out of range"), std::string::npos);
  wrong = usual;
  wrong.priorities->classes.set(5, 9);
  EXPECT_NE(error_of(from + "ToMemory;", wrong).find("class 9 is out of range"), std::string::npos);
}

}  // namespace
}  // namespace sluice::priorities
