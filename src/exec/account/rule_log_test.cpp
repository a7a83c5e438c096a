#include "exec/account/rule_log.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"

namespace sluice {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

AclRule port_rule(uint16_t port, bool log, uint32_t line = 0) {
  AclRule rule;
  rule.dst_port_low = rule.dst_port_high = port;
  rule.verb = AclVerb::kDeny;
  rule.log = log;
  rule.line = line;
  return rule;
}
// Ports, the negative of which have `log`.
std::shared_ptr<const Image> logged_list(const std::vector<int>& ports) {
  RuleSet set;
  set.files = {"edge.acl"};
  for (int port : ports)
    set.rules.push_back(
        port_rule(static_cast<uint16_t>(std::abs(port)), port < 0, static_cast<uint32_t>(set.rules.size() + 10)));
  return std::make_shared<const Image>(*build_acl(set, "linear"));
}
std::shared_ptr<const std::vector<std::string>> inputs() {
  return std::make_shared<const std::vector<std::string>>(1, "in");
}
std::shared_ptr<const LoggedRules> version(RuleLog& log, const std::shared_ptr<const Image>& image) {
  return log.of("edge", image, "acl", inputs());
}
void record(const LoggedRules& rules, unsigned worker, uint32_t rule, uint64_t timestamp_ns = 0) {
  rules.record(worker, rule, [&](LoggedPacket& packet) {
    packet.timestamp_ns = timestamp_ns;
    packet.source = 0;
  });
}

TEST(RuleLog, RecordsPacketsOfRulesWithLogAlone) {
  RuleLog log;
  log.open(2);
  EXPECT_EQ(version(log, logged_list({1, 2})), nullptr);
  const auto image = logged_list({1, -2, 3, -4});
  const auto rules = version(log, image);
  ASSERT_NE(rules, nullptr);
  for (uint32_t rule = 0; rule < 200; ++rule) EXPECT_EQ(rules->has(rule), rule == 2 || rule == 4) << rule;
  record(*rules, 1, 4, 20);
  record(*rules, 0, 2, 30);
  record(*rules, 0, 2, 10);
  const auto events = log.take(1);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].packet.timestamp_ns, 10u);
  EXPECT_EQ(events[0].rule().place.position, 2u);
  EXPECT_EQ(*events[0].rule().place.file, "edge.acl");
  EXPECT_EQ(events[0].rule().place.line, 11u);
  EXPECT_EQ(events[0].rules->input(events[0].packet.source), "in");
  EXPECT_EQ(events[1].rule().place.position, 4u);
  EXPECT_EQ(events[1].packet.worker, 1u);
  EXPECT_EQ(log.sums().logged, 3u);
  EXPECT_EQ(log.sums().missed, 0u);
}

TEST(RuleLog, GivesEachRuleItsRateAndCountsTheRest) {
  RuleLog log(10);
  log.open(2);
  const auto image = logged_list({-1, -2});
  const auto rules = version(log, image);
  EXPECT_TRUE(log.take(kSecond).empty());
  for (int i = 0; i < 25; ++i) record(*rules, static_cast<unsigned>(i % 2), 1);
  record(*rules, 0, 2);
  EXPECT_EQ(log.take(kSecond).size(), 11u) << "ten at once of the first, one of the second";
  auto missed = log.take_missed();
  ASSERT_EQ(missed.size(), 1u);
  EXPECT_EQ(missed[0].packets, 15u);
  EXPECT_EQ(missed[0].place.position, 1u);
  EXPECT_TRUE(log.take_missed().empty()) << "each is told once";
  EXPECT_FALSE(rules->grants(1));
  (void)log.take(kSecond + kSecond / 4);  // two and a half
  for (int i = 0; i < 5; ++i) record(*rules, 0, 1);
  EXPECT_EQ(log.take(kSecond + kSecond / 2).size(), 2u) << "the half is kept";
  for (int i = 0; i < 5; ++i) record(*rules, 0, 1);
  EXPECT_EQ(log.take(100 * kSecond).size(), 3u);
  for (int i = 0; i < 50; ++i) record(*rules, 0, 1);
  EXPECT_EQ(log.take(100 * kSecond).size(), 10u) << "a long quiet time gives no more than a second";
  EXPECT_EQ(log.sums().logged + log.sums().missed, 25u + 1 + 5 + 5 + 50);
}

// A rate that is less than one for each turn is given all the same.
TEST(RuleLog, GivesASlowRateInTime) {
  RuleLog log(3);
  log.open(1);
  const auto image = logged_list({-1});
  const auto rules = version(log, image);
  size_t taken = log.take(1).size();
  for (uint64_t ms = 0; ms <= 10'000; ms += 50) {
    for (int i = 0; i < 3; ++i) record(*rules, 0, 1);
    taken += log.take(1 + ms * 1'000'000).size();
  }
  EXPECT_GE(taken, 32u);
  EXPECT_LE(taken, 33u);
}

TEST(RuleLog, AFullRingLosesNoCount) {
  RuleLog log(RuleLog::kMostRate);
  log.open(1);
  const auto image = logged_list({-1});
  const auto rules = version(log, image);
  constexpr uint64_t kMany = 3 * RuleLog::kRoom;
  for (uint64_t i = 0; i < kMany; ++i) record(*rules, 0, 1);
  EXPECT_EQ(log.take(1).size(), RuleLog::kRoom);
  EXPECT_EQ(log.sums().missed, kMany - RuleLog::kRoom);
  record(*rules, 0, 1);
  EXPECT_EQ(log.take(1).size(), 1u);
}

TEST(RuleLog, KeepsARulesShareWhereverItGoes) {
  RuleLog log(4);
  log.open(1);
  auto image = logged_list({-1, 5});
  auto rules = version(log, image);
  for (int i = 0; i < 3; ++i) record(*rules, 0, 1);
  auto next_image = logged_list({7, 5, -1});
  const auto next = version(log, next_image);
  record(*rules, 0, 1);  // a batch of the version before
  for (int i = 0; i < 3; ++i) record(*next, 0, 3);
  rules.reset();
  image.reset();
  const auto events = log.take(1);
  ASSERT_EQ(events.size(), 4u) << "a change grants nothing";
  EXPECT_EQ(events.back().rule().place.position, 1u);
  const auto missed = log.take_missed();
  ASSERT_EQ(missed.size(), 1u);
  EXPECT_EQ(missed[0].packets, 3u);
  EXPECT_EQ(missed[0].place.position, 3u);
  EXPECT_EQ(log.sums().logged, 4u);
}

TEST(RuleLog, ForgetsRulesThatAreGoneAndNotTheirCounts) {
  RuleLog log(1);
  log.open(1);
  auto image = logged_list({-1});
  auto rules = version(log, image);
  for (int i = 0; i < 3; ++i) record(*rules, 0, 1);
  const auto without = logged_list({1});
  EXPECT_EQ(version(log, without), nullptr);
  rules.reset();
  image.reset();
  EXPECT_EQ(log.take(1).size(), 1u);
  for (int i = 0; i < 3; ++i) (void)log.take_missed();
  EXPECT_EQ(log.sums().logged, 1u);
  EXPECT_EQ(log.sums().missed, 2u);
}

// What a list that is patched says of its rules is what one that is read anew says.
TEST(RuleLog, FollowsPatchesAsAnewListDoes) {
  const bool holds = rc::check([] {
    constexpr uint16_t kPorts = 200;
    std::map<uint64_t, AclRule> want;  // by priority
    std::vector<OrderedRule> rules;
    for (uint16_t port = 1; port <= kPorts; ++port) {
      want[uint64_t{port} << 20] = port_rule(port, port % 17 == 0, port);
      rules.push_back({uint64_t{port} << 20, want[uint64_t{port} << 20]});
    }
    auto list = *PatchedAcl::create(rules, {.files = {"edge.acl"}});
    RuleLog log;
    log.open(1);
    std::shared_ptr<const Image> held;
    std::shared_ptr<const LoggedRules> held_rules;
    for (int round = 0; round < 6; ++round) {
      if (round > 0) {
        AclChange change;
        for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
          auto at = want.begin();
          std::advance(at, *rc::gen::inRange<size_t>(0, want.size()));
          if (*rc::gen::inRange(0, 2) == 0) {
            change.remove(at->first);
            want.erase(at);
          } else if (!want.contains(at->first + 1)) {
            const AclRule rule = port_rule(*rc::gen::inRange<uint16_t>(1, 999), *rc::gen::inRange(0, 2) == 0,
                                           *rc::gen::inRange<uint32_t>(1, 99));
            change.add(at->first + 1, rule);
            want[at->first + 1] = rule;
          }
        }
        RC_ASSERT(list->apply(change).ok());
      }
      auto image = list->publish();
      RC_ASSERT(image.ok());
      const auto logged = version(log, *image);
      const auto match = AclRulesView::open(**image);
      std::map<uint32_t, std::pair<uint16_t, uint32_t>> said, expected;  // by position: port and line
      for (uint32_t number = 1; number <= match->size(); ++number) {
        if (logged == nullptr || !logged->has(number)) continue;
        record(*logged, 0, number);
        const auto events = log.take(static_cast<uint64_t>(round + 1) * kSecond);
        RC_ASSERT(events.size() == 1u);
        const LoggedRules::Rule& rule = events[0].rule();
        RC_ASSERT(rule.number == number);
        said[rule.place.position] = {rule.rule->match.dst_port_low, rule.place.line};
      }
      uint32_t position = 0;
      for (const auto& [priority, rule] : want) {
        ++position;
        if (rule.log) expected[position] = {rule.dst_port_low, rule.line};
      }
      RC_ASSERT(said == expected);
      held = *image;  // as the snapshot that runs
      held_rules = logged;
    }
  });
  EXPECT_TRUE(holds);
}

// Workers record, versions change, records are taken: each packet is taken or missed.
TEST(RuleLog, LosesNothingWhileVersionsChange) {
  constexpr unsigned kWorkers = 3;
  RuleLog log(RuleLog::kMostRate);
  log.open(kWorkers);
  struct Shared {
    std::mutex mutex;
    std::shared_ptr<const LoggedRules> rules;
  } shared;
  std::vector<std::shared_ptr<const Image>> images = {logged_list({-1, 2})};
  shared.rules = version(log, images[0]);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> recorded{0};
  std::vector<std::jthread> workers;
  for (unsigned w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      while (!stop.load()) {
        std::shared_ptr<const LoggedRules> rules;
        {
          const std::lock_guard lock(shared.mutex);
          rules = shared.rules;
        }
        for (uint32_t rule = 1; rule <= 3; ++rule) {
          if (!rules->has(rule)) continue;
          for (int i = 0; i < 50; ++i) record(*rules, w, rule);
          recorded += 50;
        }
      }
    });
  }
  uint64_t taken = 0, missed = 0;
  for (int v = 0; v < 60; ++v) {
    images.push_back(v % 2 == 0 ? logged_list({9, -1, 2}) : logged_list({-1, -2}));
    auto next = version(log, images.back());
    {
      const std::lock_guard lock(shared.mutex);
      shared.rules = std::move(next);
    }
    if (images.size() > 2) images.erase(images.begin());
    taken += log.take(static_cast<uint64_t>(v + 1) * kSecond).size();
    for (const auto& m : log.take_missed()) missed += m.packets;
  }
  while (recorded.load() == 0) std::this_thread::yield();
  stop = true;
  workers.clear();
  taken += log.take(100 * kSecond).size();
  for (const auto& m : log.take_missed()) missed += m.packets;
  EXPECT_EQ(taken + missed, recorded.load());
  EXPECT_EQ(log.sums().logged, taken);
  EXPECT_EQ(log.sums().missed, missed);
}

}  // namespace
}  // namespace sluice
