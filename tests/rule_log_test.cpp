// Packets that rules with `log` decided are recorded, each once: on any number of workers, beside devices, by classes,
// in the packet scheduler. What is recorded and what is counted as missed are the packets that those rules decided.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "control/key_text.h"
#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/account/rule_log.h"
#include "exec/engine/engine.h"
#include "formats/rule_files.h"
#include "generate/random.h"
#include "tables/acl/algorithms.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::kWatched;
using testing::TempDir;

// Rules over what write_mixed_capture draws from; every second has `log`.
std::string rules_with_log(uint64_t seed, unsigned count) {
  Random random(seed);
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    const char* verb = random.below(4) == 0 ? "deny" : random.below(6) == 0 ? "mark(9)" : "permit";
    const std::string src = random.below(3) == 0 ? fmt::format("2001:db8:{:x}::/47", random.below(8) * 2)
                                                 : fmt::format("10.{}.{}.0/18", random.below(4), random.below(4) * 64);
    const char* protocol = random.below(3) == 0 ? "ip" : random.below(2) == 0 ? "tcp" : "udp";
    text += fmt::format("{} {} from {} to any{}\n", verb, protocol, src, random.below(2) == 0 ? " log" : "");
  }
  return text + "permit ip from any to any log\n";
}

struct Recorded {
  std::vector<std::string> events;  // sorted
  uint64_t missed = 0;
  uint64_t offloaded = 0;                                       // packets that a device looked up
  std::map<std::string, std::map<uint32_t, uint64_t>> packets;  // that were decided, by table and position
};

std::string text_of(const RuleLog::Event& e) {
  const LoggedRules::Rule& rule = e.rule();
  return fmt::format("{} {} rule {} {}:{} verb {} {} dscp {} flags {} icmp {} {} {} bytes from {} at {}",
                     e.packet.timestamp_ns, rule.rule->table, rule.place.position, *rule.place.file, rule.place.line,
                     static_cast<int>(rule.rule->action.verb), five_tuple(e.packet.key), e.packet.key.dscp,
                     e.packet.key.flags, e.packet.key.icmp, e.packet.bytes, e.packet.ip_bytes,
                     e.rules->input(e.packet.source), e.rules->element());
}

// Runs it, and checks that each packet that a rule with `log` decided was recorded or missed, and no other.
Recorded run_logged(testing::GraphRun run, uint64_t rate = RuleLog::kMostRate) {
  run.rule_log = std::make_shared<RuleLog>(rate);
  const auto got = testing::run_graph(run);
  EXPECT_TRUE(got.ok) << got.error;
  Recorded out;
  out.offloaded = got.report.offload.offloaded;
  for (const RuleLog::Event& event : run.rule_log->take(1)) {
    out.events.push_back(text_of(event));
    ++out.packets[event.rule().rule->table][event.rule().place.position];
  }
  for (const RuleLog::Missed& missed : run.rule_log->take_missed()) {
    out.missed += missed.packets;
    out.packets[missed.rule->table][missed.place.position] += missed.packets;
  }
  EXPECT_EQ(out.events.size(), run.rule_log->sums().logged);
  EXPECT_EQ(out.missed, run.rule_log->sums().missed);
  std::sort(out.events.begin(), out.events.end());
  for (const auto& [table, counts] : got.hits) {
    const auto actions = AclActionsView::open(*counts.image);
    for (uint32_t rule = 1; rule < counts.rules.size(); ++rule) {
      const uint64_t want = actions->action(rule).log != 0 ? counts.rules[rule].packets : 0;
      EXPECT_EQ(out.packets[table][rule], want) << table << " rule " << rule;
    }
  }
  return out;
}

TEST(RuleLog, SaysTheSameOnAnyNumberOfWorkersAndBesideDevices) {
  const TempDir dir;
  const uint32_t packets = kWatched ? 600 : 1300;  // no ring is full
  for (uint64_t seed = 1; seed <= (kWatched ? 1 : 3); ++seed) {
    const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets, seed);
    testing::write_file(dir / "in.acl", rules_with_log(seed, 12));
    testing::write_file(dir / "out.acl", rules_with_log(seed + 100, 8));
    const std::string text = fmt::format(
        "AclTable(in, FILE {}); AclTable(out, FILE {});\n"
        "in :: FromDump({}) -> IPInput -> a :: ACL(in) -> b :: ACL(out) -> ToMemory;\n",
        dir / "in.acl", dir / "out.acl", capture);
    const Recorded want = run_logged({.text = text, .fast_path = false});
    EXPECT_EQ(want.missed, 0u);
    ASSERT_GT(want.events.size(), packets / 3);
    for (const unsigned workers : {1u, 3u}) {
      SCOPED_TRACE(workers);
      EXPECT_EQ(run_logged({.text = text, .workers = workers, .batch = 64}).events, want.events);
      testing::GraphRun run{.text = text, .workers = workers};
      run.device.devices = testing::devices_of("emu", 1);
      run.device.records = RecordChoice::kKey;
      run.device.watchdog_ns = 60'000'000'000;
      const Recorded beside = run_logged(run);
      EXPECT_EQ(beside.events, want.events);
      EXPECT_GT(beside.offloaded, packets / 4);
    }
    EXPECT_EQ(run_logged({.text = text, .by_packets = true}).events, want.events);
    EXPECT_EQ(run_logged({.text = text, .by_packets = true, .one_by_one = true}).events, want.events);
    testing::GraphRun by_class{.text = text, .workers = 3};
    by_class.priorities = PriorityOptions{};
    EXPECT_EQ(run_logged(by_class).events, want.events);
    // With a rate, fewer are recorded, and none is lost.
    const Recorded some = run_logged({.text = text, .workers = 3}, 5);
    EXPECT_LT(some.events.size(), want.events.size());
    EXPECT_EQ(some.events.size() + some.missed, want.events.size());
    EXPECT_TRUE(std::includes(want.events.begin(), want.events.end(), some.events.begin(), some.events.end()));
  }
}

// Frames cross whole where one list is all that there is.
TEST(RuleLog, SaysTheSameWhereFramesCross) {
  const TempDir dir;
  const uint32_t packets = kWatched ? 600 : 2000;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets, 7);
  testing::write_file(dir / "in.acl", rules_with_log(7, 12));
  const std::string text =
      fmt::format("AclTable(in, FILE {});\nin :: FromMemory({}) -> IPInput -> a :: ACL(in) -> ToMemory;\n",
                  dir / "in.acl", capture);
  const Recorded want = run_logged({.text = text, .fast_path = false});
  ASSERT_GT(want.events.size(), packets / 3);
  for (const unsigned workers : {1u, 2u}) {
    testing::GraphRun run{.text = text, .workers = workers};
    run.device.devices = testing::devices_of("emu", 1);
    run.device.records = RecordChoice::kFrame;
    run.device.watchdog_ns = 60'000'000'000;
    EXPECT_EQ(run_logged(run).events, want.events);
    const Recorded some = run_logged(run, 5);
    EXPECT_EQ(some.events.size() + some.missed, want.events.size());
    EXPECT_GT(some.offloaded, packets / 4) << "only packets that are recorded are done again";
  }
}

// Queues hold packets back, and sources of the scheduler run ahead: each packet is still recorded once.
TEST(RuleLog, SaysTheSameWithQueues) {
  const TempDir dir;
  const uint32_t packets = kWatched ? 300 : 1500;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets, 9);
  testing::write_file(dir / "in.acl", rules_with_log(9, 12));
  const std::string way =
      fmt::format("AclTable(in, FILE {});\nin :: FromDump({}) -> IPInput -> a :: ACL(in) -> ", dir / "in.acl", capture);
  const Recorded want = run_logged({.text = way + "ToMemory;\n"});
  ASSERT_GT(want.events.size(), packets / 3);
  for (const char* rest :
       {"Queue(10000) -> Unqueue -> ToMemory;\n", "Queue(10000) -> Unqueue(BURST 7) -> ToMemory;\n"}) {
    for (const bool one_by_one : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", rest, one_by_one));
      EXPECT_EQ(run_logged({.text = way + rest, .by_packets = true, .one_by_one = one_by_one}).events, want.events);
    }
  }
}

// Lists follow each other while packets pass, all of whose rules have `log`, and somebody takes the records.
TEST(RuleLog, LosesNothingWhileListsChange) {
  const TempDir dir;
  const uint64_t packets = kWatched ? 40'000 : 400'000;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 1000, 4);
  const std::string text = fmt::format(
      "AclTable(edge, FILE {});\nFromMemory({}, LIMIT 100000000) -> IPInput -> ACL(edge, DEFAULT permit) -> "
      "ToMemory;\n",
      dir / "edge.acl", capture);
  testing::write_file(dir / "edge.acl", "permit ip from any to any log\n");
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(text, "test.click");
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  auto router = build_router(*graph, registry, text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  auto plan = make_plan(*router);
  ASSERT_TRUE(plan.ok());
  std::vector<TableSet> tables;
  for (const char* rules :
       {"permit udp from any to any log\n", "deny tcp from any to any log\npermit udp from any to any log\n",
        "mark(3) ip from any to any log\ndeny udp from any to any log\n"}) {
    testing::write_file(dir / "edge.acl", rules);
    auto loaded = load_tables(*router);
    ASSERT_TRUE(loaded.ok()) << to_string(loaded.error());
    tables.push_back(std::move(*loaded));
  }
  for (const unsigned workers : {1u, 3u}) {
    SCOPED_TRACE(workers);
    RunOptions options;
    options.workers = workers;
    options.count_hits = true;
    options.rule_log = std::make_shared<RuleLog>(100'000);
    std::atomic<bool> over{false};
    std::atomic<uint64_t> done{0};
    options.stop = &over;
    options.stop_is_end = options.live = true;
    options.progress = [&](uint64_t n) { done = n; };
    auto engine = Engine::create(*router, *plan, options);
    ASSERT_TRUE(engine.ok());
    const auto publish = [&](size_t n) {
      auto snapshot = bind_plan(*plan, *router, tables[n % tables.size()]);
      ASSERT_TRUE(snapshot.ok());
      (*engine)->publisher().publish(std::move(*snapshot));
    };
    publish(0);
    uint64_t taken = 0, missed = 0;
    std::jthread control([&] {
      for (uint64_t n = 1; !over && (done < packets || testing::generation_met(**engine) <= 6); ++n) {
        publish(n);
        taken += options.rule_log->take(n * 1'000'000).size();
        for (const auto& one : options.rule_log->take_missed()) missed += one.packets;
      }
      over = true;
    });
    RunReport report;
    const auto result = (*engine)->run(report);
    over = true;
    control.join();
    ASSERT_TRUE(result.ok()) << to_string(result.error());
    taken += options.rule_log->take(1).size();
    for (const auto& one : options.rule_log->take_missed()) missed += one.packets;
    const HitLedger::Counts hits = (*engine)->hits().read("edge");
    uint64_t decided = hits.removed.packets;
    for (size_t rule = 1; rule < hits.rules.size(); ++rule) decided += hits.rules[rule].packets;
    EXPECT_EQ(taken + missed, decided);
    EXPECT_GT(taken, 0u);
    EXPECT_GT(decided, packets / 4);
    EXPECT_GT(report.generation, 6u);
  }
}

TEST(RuleLog, ChangesNothingElse) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 1000, 3);
  testing::write_file(dir / "in.acl", rules_with_log(3, 12));
  const std::string text =
      fmt::format("AclTable(in, FILE {});\nFromDump({}) -> IPInput -> ACL(in) -> ToMemory;\n", dir / "in.acl", capture);
  const auto without = testing::run_graph({.text = text});
  const auto with = testing::run_graph({.text = text, .rule_log = std::make_shared<RuleLog>()});
  ASSERT_TRUE(with.ok && without.ok);
  EXPECT_EQ(with.counters, without.counters);
}

}  // namespace
}  // namespace sluice
