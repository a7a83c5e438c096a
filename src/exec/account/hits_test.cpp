#include "exec/account/hits.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"

namespace sluice {
namespace {

AclRule deny_port(uint16_t port) {
  AclRule rule;
  rule.dst_port_low = rule.dst_port_high = port;
  rule.verb = AclVerb::kDeny;
  return rule;
}
std::shared_ptr<const Image> list_of(const std::vector<uint16_t>& ports) {
  RuleSet set;
  for (uint16_t port : ports) set.rules.push_back(deny_port(port));
  return std::make_shared<const Image>(*build_acl(set, "linear"));
}
std::vector<uint64_t> packets(const HitLedger::Counts& counts) {
  std::vector<uint64_t> all;
  for (const HitCount& c : counts.rules) all.push_back(c.packets);
  return all;
}

TEST(Hits, AreSummedOverWorkersWithBytes) {
  HitLedger ledger(2);
  const auto hits = ledger.of("edge", list_of({1, 2}));
  hits->of(0).add(1, 100);
  hits->of(1).add(1, 50);
  hits->of(1).add(0, 7);
  hits->of(1).add(99, 3);  // no such rule: counted as none
  const auto counts = ledger.read("edge");
  ASSERT_EQ(counts.rules.size(), 3u);
  EXPECT_EQ(counts.rules[1], (HitCount{2, 150}));
  EXPECT_EQ(counts.rules[0], (HitCount{2, 10}));
  EXPECT_EQ(counts.rules[2], HitCount{});
  EXPECT_EQ(ledger.read("other").rules.size(), 0u);
}

TEST(Hits, StayWithTheirRuleWhereverItGoes) {
  HitLedger ledger(1);
  auto first = ledger.of("edge", list_of({10, 20, 30}));
  for (int i = 0; i < 5; ++i) first->of(0).add(2, 1);
  first->of(0).add(3, 1);
  first->of(0).add(1, 1);
  auto second = ledger.of("edge", list_of({5, 30, 7, 20}));  // 10 is gone, 20 and 30 have changed places
  first->of(0).add(3, 1);                                    // a batch of the old version is still under way
  first->of(0).add(1, 1);
  second->of(0).add(4, 1);
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{0, 0, 2, 0, 6}));
  EXPECT_EQ(ledger.read("edge").removed.packets, 2u);
  first.reset();
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{0, 0, 2, 0, 6})) << "the old version was folded";
  auto third = ledger.of("edge", list_of({20}));
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{0, 6}));
  EXPECT_EQ(ledger.read("edge").removed.packets, 4u);
}

TEST(Hits, CountFromWhereTheyWereClearedWhereverTheRuleGoes) {
  HitLedger ledger(2);
  ledger.clear();  // there is nothing yet
  auto first = ledger.of("edge", list_of({10, 20, 30}));
  first->of(0).add(1, 100);
  first->of(1).add(2, 100);
  first->of(0).add(2, 100);
  first->of(0).add(0, 100);
  EXPECT_EQ(packets(ledger.read_since_clear("edge")), (std::vector<uint64_t>{1, 1, 2, 0}));
  ledger.clear();
  EXPECT_EQ(packets(ledger.read_since_clear("edge")), (std::vector<uint64_t>{0, 0, 0, 0}));
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{1, 1, 2, 0})) << "the run's own account goes on";
  auto second = ledger.of("edge", list_of({5, 20, 30}));  // 10 is gone
  first->of(0).add(2, 7);                                 // a batch of the old version is still under way
  first->of(0).add(1, 7);
  second->of(1).add(3, 7);
  for (int folded = 0; folded < 2; ++folded) {
    const auto since = ledger.read_since_clear("edge"), all = ledger.read("edge");
    EXPECT_EQ(packets(since), (std::vector<uint64_t>{0, 0, 1, 1}));
    EXPECT_EQ(since.rules[2], (HitCount{1, 7}));
    EXPECT_EQ(since.removed, (HitCount{1, 7}));
    EXPECT_EQ(packets(all), (std::vector<uint64_t>{1, 0, 3, 1}));
    EXPECT_EQ(all.removed, (HitCount{2, 107}));
    first.reset();
  }
  // A rule that comes back is a new one; a packet that is taken back leaves no less than none.
  ledger.of("edge", list_of({10, 20, 30}))->of(0).add(2, 100, ~uint64_t{0});
  EXPECT_EQ(packets(ledger.read_since_clear("edge")), (std::vector<uint64_t>{0, 0, 0, 1}));
  ledger.clear();
  ledger.of("edge", list_of({10, 20, 30}))->of(0).add(2, 100, ~uint64_t{0});
  EXPECT_EQ(packets(ledger.read_since_clear("edge")), (std::vector<uint64_t>{0, 0, 0, 0}));
}

TEST(Hits, ARuleThatDoesSomethingElseIsAnother) {
  HitLedger ledger(1);
  ledger.of("edge", list_of({10, 20}))->of(0).add(1, 1);
  RuleSet set;
  set.rules = {deny_port(10), deny_port(20)};
  set.rules[0].verb = AclVerb::kPermit;
  const auto next = ledger.of("edge", std::make_shared<const Image>(*build_acl(set, "linear")));
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{0, 0, 0}));
  EXPECT_EQ(ledger.read("edge").removed.packets, 1u);
}

TEST(Hits, OfEqualRulesThoseOutsideOfTheChangeStay) {
  HitLedger ledger(1);
  const auto first = ledger.of("edge", list_of({10, 20, 10}));
  first->of(0).add(1, 1);
  first->of(0).add(3, 1);
  first->of(0).add(3, 1);
  ledger.of("edge", list_of({20, 10}));
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{0, 0, 2}));
  ledger.of("edge", list_of({10, 10, 20, 30}));
  EXPECT_EQ(packets(ledger.read("edge")), (std::vector<uint64_t>{0, 2, 0, 0, 0}));
}

// Against a map that every version updates: what is gone from it starts anew when it comes back.
TEST(Hits, FollowRandomVersionsAsAMapDoes) {
  const bool holds = rc::check([] {
    struct Version {
      std::vector<uint16_t> ports;
      std::shared_ptr<RuleHits> hits;  // nullptr: no snapshot has it any more
    };
    HitLedger ledger(2);
    std::vector<Version> versions;
    std::map<uint16_t, uint64_t> want;
    uint64_t added = 0;
    const int count = *rc::gen::inRange(1, 8);
    for (int v = 0; v < count; ++v) {
      auto ports = *rc::gen::container<std::vector<uint16_t>>(rc::gen::inRange<uint16_t>(1, 12));
      std::set<uint16_t> seen;
      std::erase_if(ports, [&](uint16_t port) { return !seen.insert(port).second; });
      std::erase_if(want, [&](const auto& e) { return std::find(ports.begin(), ports.end(), e.first) == ports.end(); });
      versions.push_back({ports, ledger.of("edge", list_of(ports))});
      for (int hit = 0; hit < 20; ++hit) {
        const size_t which = *rc::gen::inRange<size_t>(0, versions.size());
        Version& version = versions[which];
        if (version.hits == nullptr || version.ports.empty()) continue;
        const size_t rule = *rc::gen::inRange<size_t>(0, version.ports.size());
        version.hits->of(static_cast<unsigned>(hit % 2)).add(static_cast<uint32_t>(rule + 1), 1);
        ++added;
        // It leads to the newest version where every version between has the rule.
        const uint16_t port = version.ports[rule];
        if (std::all_of(versions.begin() + static_cast<ptrdiff_t>(which), versions.end(), [&](const Version& later) {
              return std::find(later.ports.begin(), later.ports.end(), port) != later.ports.end();
            })) {
          ++want[port];
        }
      }
      if (versions.size() > 1) versions[*rc::gen::inRange<size_t>(0, versions.size() - 1)].hits.reset();
    }
    const auto counts = ledger.read("edge");
    uint64_t sum = counts.removed.packets;
    const std::vector<uint16_t>& newest = versions.back().ports;
    RC_ASSERT(counts.rules.size() == newest.size() + 1);
    for (size_t r = 0; r < newest.size(); ++r) {
      RC_ASSERT(counts.rules[r + 1].packets == want[newest[r]]);
      sum += counts.rules[r + 1].packets;
    }
    RC_ASSERT(sum == added);
  });
  EXPECT_TRUE(holds);
}

// The same of a list that is patched: what is looked at goes by the changes.
TEST(Hits, FollowPatchesAsAMapDoes) {
  const bool holds = rc::check([] {
    constexpr uint16_t kPorts = 300;
    std::vector<OrderedRule> rules;
    for (uint16_t port = 1; port <= kPorts; ++port) rules.push_back({uint64_t{port} << 20, deny_port(port)});
    auto list = *PatchedAcl::create(rules);
    struct Version {
      std::map<uint16_t, uint32_t> words;  // by port
      std::shared_ptr<RuleHits> hits;
      std::shared_ptr<const Image> image;
    };
    HitLedger ledger(2);
    std::vector<Version> versions;
    std::map<uint16_t, uint64_t> priority;  // of the ports that are there
    for (const OrderedRule& r : rules) priority[r.rule.dst_port_low] = r.priority;
    std::map<uint16_t, uint64_t> want, cleared;
    uint64_t added = 0, added_at_clear = 0;
    const auto publish = [&] {
      if (versions.size() > 2) versions[versions.size() - 3] = {};
      auto image = list->publish();
      RC_ASSERT(image.ok());
      Version v;
      v.image = *image;
      v.hits = ledger.of("edge", v.image);
      const auto view = AclRulesView::open(*v.image);
      for (uint32_t word = 1; word <= view->size(); ++word) {
        const AclMatchRule& rule = view->rule(word);
        if (rule.src_port_low <= rule.src_port_high) v.words[rule.dst_port_low] = word;
      }
      RC_ASSERT(v.words.size() == priority.size());
      versions.push_back(std::move(v));
    };
    publish();
    for (int round = 0; round < 8; ++round) {
      const int operations = *rc::gen::inRange(0, 6);
      AclChange change;
      std::set<uint16_t> gone;
      for (int i = 0; i < operations; ++i) {
        const auto port = *rc::gen::inRange<uint16_t>(1, kPorts + 1);
        const auto at = priority.find(port);
        if (at == priority.end()) {
          const uint64_t place = (*rc::gen::inRange<uint64_t>(1, kPorts) << 20) + 1 + added + static_cast<uint64_t>(i);
          change.add(place, deny_port(port));
          priority[port] = place;
        } else if (*rc::gen::inRange(0, 3) == 0) {  // it goes elsewhere, and is itself
          change.remove(at->second);
          at->second = (*rc::gen::inRange<uint64_t>(1, kPorts) << 20) + 100'000 + added + static_cast<uint64_t>(i);
          change.add(at->second, deny_port(port));
        } else {
          change.remove(at->second);
          priority.erase(at);
          gone.insert(port);
        }
      }
      for (uint16_t port : gone) {
        if (priority.contains(port)) continue;
        want.erase(port);
        cleared.erase(port);
      }
      RC_ASSERT(list->apply(change).ok());
      const HitLedger::Work before = ledger.work();
      publish();
      if (list->rebuilds() == 0)
        RC_ASSERT(ledger.work().rules - before.rules <= 40u * static_cast<unsigned>(operations));
      for (int hit = 0; hit < 30; ++hit) {
        Version& v = versions[*rc::gen::inRange<size_t>(versions.size() - std::min<size_t>(versions.size(), 2),
                                                        versions.size())];
        auto which = v.words.begin();
        std::advance(which, *rc::gen::inRange<size_t>(0, v.words.size()));
        v.hits->of(static_cast<unsigned>(hit % 2)).add(which->second, 1);
        ++added;
        if (versions.back().words.contains(which->first)) ++want[which->first];
      }
      const auto since = ledger.read_since_clear("edge");
      uint64_t sum_since = since.removed.packets;
      for (const auto& [port, word] : versions.back().words) {
        RC_ASSERT(since.rules[word].packets == want[port] - cleared[port]);
        sum_since += since.rules[word].packets;
      }
      RC_ASSERT(sum_since == added - added_at_clear);
      if (*rc::gen::inRange(0, 3) == 0) {
        ledger.clear();
        cleared = want;
        added_at_clear = added;
      }
    }
    versions.erase(versions.begin(), versions.end() - 1);
    const auto counts = ledger.read("edge");
    uint64_t sum = 0;
    for (const auto& [port, word] : versions.back().words) {
      RC_ASSERT(counts.rules[word].packets == want[port]);
      sum += counts.rules[word].packets;
    }
    RC_ASSERT(sum + counts.removed.packets == added);
  });
  EXPECT_TRUE(holds);
}

TEST(Hits, AreNeverLostWhileVersionsChange) {
  constexpr unsigned kWorkers = 2;
  HitLedger ledger(kWorkers);
  struct Shared {
    std::mutex mutex;
    std::shared_ptr<RuleHits> hits;
  } shared;
  shared.hits = ledger.of("edge", list_of({1, 2}));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> added{0};
  std::vector<std::jthread> workers;
  for (unsigned w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      while (!stop.load()) {
        std::shared_ptr<RuleHits> hits;
        {
          const std::lock_guard lock(shared.mutex);
          hits = shared.hits;
        }
        for (uint32_t i = 0; i < 16; ++i) hits->of(w).add(i % 3, 1);
        added += 16;
      }
    });
  }
  uint64_t seen = 0;
  for (uint16_t v = 0; v < 50; ++v) {
    auto next = ledger.of("edge", v % 2 == 0 ? list_of({9, 1, 2}) : list_of({2, 1}));
    {
      const std::lock_guard lock(shared.mutex);
      shared.hits = std::move(next);
    }
    const auto counts = ledger.read("edge");
    uint64_t sum = counts.removed.packets;
    for (const HitCount& c : counts.rules) sum += c.packets;
    EXPECT_GE(sum, seen) << "counts never fall";
    seen = sum;
  }
  while (added.load() == 0) std::this_thread::yield();
  stop = true;
  workers.clear();
  const auto counts = ledger.read("edge");
  uint64_t sum = counts.removed.packets;
  for (const HitCount& c : counts.rules) sum += c.packets;
  EXPECT_EQ(sum, added.load());
}

}  // namespace
}  // namespace sluice
