// Every rule's packets and bytes are those that an oracle counts, whatever finds them and wherever.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "elements/ip_input/stage.h"
#include "formats/rule_files.h"
#include "generate/random.h"
#include "ports/pcap/capture_reader.h"
#include "tables/acl/algorithms.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::kWatched;
using testing::TempDir;
using testing::Way;

// By the definition of a match, packet after packet.
std::vector<HitCount> count_by_hand(const std::string& capture, const std::vector<const RuleSet*>& lists,
                                    size_t which) {
  std::vector<std::vector<AclMatchRule>> flat;
  for (const RuleSet* list : lists) flat.push_back(*flatten_all(*list));
  std::vector<HitCount> counts(flat[which].size() + 1);
  auto reader = CaptureReader::open(capture);
  CapturedFrame frame;
  while (*reader->next(frame)) {
    std::vector<uint8_t> bytes(frame.data, frame.data + frame.captured);
    Packet p;
    p.frame = bytes.data();
    p.end = frame.captured;
    p.wire_end = std::max(frame.wire_bytes, frame.captured);
    if (IpInputStage{}(p) != 0) continue;
    for (size_t list = 0; list <= which; ++list) {
      uint32_t rule = 0;
      for (size_t r = 0; r < flat[list].size() && rule == 0; ++r) {
        if (matches(flat[list][r], p.key)) rule = static_cast<uint32_t>(r + 1);
      }
      if (list == which) counts[rule].add({1, p.length()});
      if (rule == 0 || lists[list]->rules[rule - 1].verb == AclVerb::kDeny) break;
    }
  }
  return counts;
}

// Rules over the addresses and ports that write_mixed_capture draws from.
std::string random_rules(uint64_t seed, unsigned count) {
  Random random(seed);
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    const char* verb = random.below(4) == 0 ? "deny" : random.below(6) == 0 ? "mark(9)" : "permit";
    const bool six = random.below(3) == 0;
    const std::string src =
        random.below(4) == 0 ? "any"
        : six                ? fmt::format("2001:db8:{:x}::/48", random.below(16))
                             : fmt::format("10.{}.{}.0/{}", random.below(4), random.below(256), 17 + random.below(8));
    const std::string dst =
        random.below(2) == 0 ? "any"
        : six                ? fmt::format("2001:db8:f{:x}::/48", random.below(6))
                             : fmt::format("192.0.{}.{}/{}", random.below(6), random.below(256), 20 + random.below(10));
    const bool tcp = random.below(2) == 0;
    std::string line = fmt::format("{} {} from {} to {}", verb,
                                   random.below(3) == 0 ? "ip"
                                   : tcp                ? "tcp"
                                                        : "udp",
                                   src, dst);
    if (line.find(" ip ") == std::string::npos && random.below(2) == 0)
      line += fmt::format(" port {}-{}", random.below(512), 512 + random.below(512));
    text += line + "\n";
  }
  return text;
}

// Prefixes with bits behind their length are warnings at most; what does not parse is no test.
RuleSet parsed(const std::string& path) {
  auto set = read_rules_file(path);
  EXPECT_TRUE(set.ok()) << to_string(set.error());
  return set.ok() ? *set : RuleSet{};
}

TEST(Hits, EqualAnOraclesForEveryAlgorithmAndPlace) {
  const TempDir dir;
  const uint32_t packets = kWatched ? 600 : 3000;
  for (uint64_t seed = 1; seed <= (kWatched ? 1 : 2); ++seed) {
    const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets, seed);
    testing::write_file(dir / "in.acl", random_rules(seed, 60) + "permit ip from any to any dscp 3\n");
    testing::write_file(dir / "out.acl", random_rules(seed + 100, 30) + "permit ip from any to any\n");
    const RuleSet in = parsed(dir / "in.acl"), out = parsed(dir / "out.acl");
    ASSERT_FALSE(in.rules.empty());
    ASSERT_FALSE(out.rules.empty());
    const auto want_in = count_by_hand(capture, {&in, &out}, 0), want_out = count_by_hand(capture, {&in, &out}, 1);
    uint64_t second = 0;
    for (size_t r = 1; r < want_out.size(); ++r) second += want_out[r].packets;
    ASSERT_GT(second, packets / 20) << "the second list sees hardly anything";
    for (const std::string& algorithm : acl_algorithm_names()) {
      // Two lists in a row: a device's result has room for one rule.
      const std::string text = fmt::format(
          "AclTable(in, FILE {}, ALGORITHM {}); AclTable(out, FILE {}, ALGORITHM {});\n"
          "FromDump({}) -> IPInput -> ACL(in) -> ACL(out) -> ToMemory;\n",
          dir / "in.acl", algorithm, dir / "out.acl", algorithm, capture);
      const auto check = [&](const std::string& name, const testing::GraphOutcome& got) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(got.ok) << got.error;
        EXPECT_EQ(got.hits.at("in").rules, want_in);
        EXPECT_EQ(got.hits.at("out").rules, want_out);
      };
      for (const unsigned workers : {1u, 3u}) {
        for (const bool fast : {false, true}) {
          testing::GraphRun run{.text = text, .workers = workers, .fast_path = fast};
          check(fmt::format("{} cpu x{} {}", algorithm, workers, fast), testing::run_graph(run));
        }
        for (const DeviceMode mode : {DeviceMode::kLaunch, DeviceMode::kPersistent}) {
          if ((mode == DeviceMode::kPersistent) != (workers == 3)) continue;
          testing::GraphRun run{.text = text, .workers = workers};
          run.device.devices = testing::devices_of("emu", 1);
          run.device.mode = mode;
          run.device.records = RecordChoice::kKey;
          run.device.watchdog_ns = 60'000'000'000;
          const auto got = testing::run_graph(run);
          check(fmt::format("{} emu x{} mode {}", algorithm, workers, to_string(mode)), got);
          EXPECT_GT(got.report.offload.offloaded, packets / 4);
          EXPECT_EQ(got.report.offload.rescued, 0u);
        }
      }
    }
  }
}

// Nothing else changes when packets are counted.
TEST(Hits, ChangeNothingElse) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 2000);
  const std::string text =
      testing::standard_graph_text(dir, "FromDump(" + capture + ")", "ToMemory", "tuple_space", "dir24", "poptrie");
  const auto with = testing::run_graph({.text = text}),
             without = testing::run_graph({.text = text, .count_hits = false});
  ASSERT_TRUE(with.ok && without.ok);
  ASSERT_EQ(with.counters.rfind(without.counters, 0), 0u) << "the same counters, and those of rules behind them";
  EXPECT_NE(with.counters.find("rule edge "), std::string::npos);
  EXPECT_EQ(without.counters.find("rule edge "), std::string::npos);
}

}  // namespace
}  // namespace sluice
