// A live table equals the oracle after every kind of change, refuses what it must whole, and shows one version a
// packet.
#include "tables/acl/live.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::chance;
using acl_test::Random;

// The oracle: rules in order of priority, the first match wins.
class Oracle {
 public:
  std::map<uint64_t, AclRule> rules;

  LiveMatch lookup(const FlowKey& key) const {
    for (const auto& [priority, rule] : rules) {
      if (!matches(flatten(rule, 1), key)) continue;
      return {priority, {rule.verb == AclVerb::kMark ? rule.mark : 0, rule.verb, uint8_t{rule.log}, 0}};
    }
    return {};
  }
  std::vector<LiveRule> list() const {
    std::vector<LiveRule> out;
    for (const auto& [priority, rule] : rules) out.push_back({priority, rule});
    return out;
  }
};

size_t scale() {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

void expect_equal(LiveAcl::Reader& reader, const Oracle& oracle, Random& random, size_t packets) {
  std::vector<AclRule> rules;
  for (const auto& [priority, rule] : oracle.rules) rules.push_back(rule);
  std::vector<FlowKey> keys;
  for (size_t i = 0; i < packets; ++i) {
    keys.push_back(rules.empty() || chance(random, 10) ? acl_test::random_key(random)
                                                       : acl_test::key_in(rules[below(random, rules.size())], random));
  }
  for (size_t at = 0; at < keys.size(); at += 32) {
    const size_t n = std::min<size_t>(32, keys.size() - at);
    const FlowKey* pointers[32];
    LiveMatch found[32];
    for (size_t i = 0; i < n; ++i) pointers[i] = &keys[at + i];
    reader.lookup_burst(pointers, found, n);
    for (size_t i = 0; i < n; ++i) {
      const LiveMatch want = oracle.lookup(keys[at + i]);
      ASSERT_EQ(found[i].priority, want.priority);
      ASSERT_EQ(found[i].action, want.action);
    }
  }
}

// Changes of one or many operations, some of which must be refused; each is applied to the oracle or to neither.
void random_updates(size_t initial, size_t changes, unsigned seed, uint8_t family) {
  Random random(seed);
  Oracle oracle;
  auto priority = [&] { return random() >> below(random, 60); };
  while (oracle.rules.size() < initial) oracle.rules.emplace(priority(), acl_test::random_rule(random, family));
  const size_t capacity = initial + 60;
  auto table = LiveAcl::create(oracle.list(), capacity);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  LiveAcl::Reader reader(**table);
  expect_equal(reader, oracle, random, 96);
  size_t refused = 0, taken = 0;
  for (size_t c = 0; c < changes; ++c) {
    LiveChange change;
    Oracle next = oracle;
    bool valid = true;
    for (size_t ops = chance(random, 80) ? 1 : 1 + below(random, 40); ops > 0; --ops) {
      auto near = next.rules.lower_bound(priority());
      if (near == next.rules.end()) near = next.rules.begin();
      const AclRule rule = acl_test::random_rule(random, family);
      const uint64_t kind = next.rules.empty() ? 0 : below(random, 100);
      if (kind < 40) {
        const uint64_t at = chance(random, 98) || near == next.rules.end() ? priority() : near->first;
        change.add(at, rule);
        valid = valid && next.rules.size() < capacity && next.rules.emplace(at, rule).second;
      } else if (kind < 70) {
        change.remove(near->first);
        next.rules.erase(near);
      } else if (kind < 98) {
        change.replace(near->first, rule);
        near->second = rule;
      } else {
        change.remove(near->first ^ 1);
        valid = valid && next.rules.erase(near->first ^ 1) == 1;
      }
    }
    const uint64_t version = (*table)->version();
    const auto applied = (*table)->apply(change);
    ASSERT_EQ(applied.ok(), valid) << (applied.ok() ? "" : to_string(applied.error()));
    if (valid) {
      oracle = std::move(next);
      ++taken;
      EXPECT_GT(*applied, version);
    } else {
      ++refused;
      EXPECT_EQ((*table)->version(), version);
    }
    ASSERT_EQ((*table)->size(), oracle.rules.size());
    if (c % 8 == 0) {
      expect_equal(reader, oracle, random, 32);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(taken, changes / 2);
  EXPECT_GT(refused, 0u);
  expect_equal(reader, oracle, random, 320);
  // What an image of this version is built from.
  const auto rules = (*table)->rules();
  ASSERT_EQ(rules.size(), oracle.rules.size());
  auto at = oracle.rules.begin();
  for (const LiveRule& rule : rules) {
    ASSERT_EQ(rule.priority, at->first);
    ASSERT_EQ(rule.rule, at->second);
    ++at;
  }
}

TEST(LiveAcl, EqualsTheOracleThroughRandomChanges) {
  random_updates(300, 1500 * scale(), 31, 0);
  random_updates(1500, 400 * scale(), 32, 4);
  random_updates(200, 400 * scale(), 33, 6);
}

TEST(LiveAcl, StartsEmptyAndGrows) {
  random_updates(0, 600, 34, 0);
}

AclRule marked(uint32_t src, uint8_t length, uint32_t mark) {
  AclRule rule;
  rule.family = 4;
  rule.src = {{0, src, 4}, length};
  rule.verb = AclVerb::kMark;
  rule.mark = mark;
  return rule;
}

TEST(LiveAcl, RefusesWholeChangesWithTheirReason) {
  auto table = LiveAcl::create(std::vector<LiveRule>{{10, marked(0x0a000000, 8, 1)}, {20, marked(0, 0, 2)}}, 3);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  auto expect_error = [&](auto&& make, const char* what) {
    LiveChange change;
    change.remove(10);
    make(change);
    const auto result = (*table)->apply(change);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(to_string(result.error()), testing::HasSubstr(what));
    EXPECT_EQ((*table)->size(), 2u);
    EXPECT_EQ((*table)->version(), 0u);
  };
  expect_error([](LiveChange& c) { c.add(20, marked(0, 0, 3)); }, "operation 2: a rule has the priority 20 already");
  expect_error([](LiveChange& c) { c.remove(10); }, "operation 2: no rule has the priority 10");
  AclRule bad = marked(0, 0, 1);
  bad.dst_port_low = 9, bad.dst_port_high = 8;
  expect_error([&](LiveChange& c) { c.add(30, bad); }, "a port range is empty");
  expect_error(
      [](LiveChange& c) {
        for (uint64_t p = 100; p < 103; ++p) c.add(p, marked(0, 0, 1));
      },
      "capacity of 3");
  expect_error(
      [](LiveChange& c) {
        for (uint64_t p = 0; p < LiveAcl::kMaxChange; ++p) c.add(p, marked(0, 0, 1));
      },
      "more than the 1024");
  EXPECT_FALSE(LiveAcl::create(std::vector<LiveRule>{{1, bad}}, 5).ok());
  EXPECT_FALSE(LiveAcl::create(std::vector<LiveRule>{{1, marked(0, 0, 1)}, {1, marked(0, 0, 2)}}, 5).ok());
  EXPECT_FALSE(LiveAcl::create(std::vector<LiveRule>(3), 2).ok());
}

// Long buckets: rules that only ranges tell apart, and wildcards, come and go.
TEST(LiveAcl, HoldsRulesThatShareOneBucket) {
  Random random(35);
  Oracle oracle;
  for (uint64_t i = 0; i < 1200; ++i) {
    AclRule rule = marked(0x0a000001, static_cast<uint8_t>(i % 2 == 0 ? 32 : 0), static_cast<uint32_t>(i));
    rule.dst_port_low = static_cast<uint16_t>(i * 7);
    rule.dst_port_high = static_cast<uint16_t>(i * 7 + 900);
    oracle.rules.emplace(i * 1000, rule);
  }
  auto table = LiveAcl::create(oracle.list(), 3000);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  LiveAcl::Reader reader(**table);
  expect_equal(reader, oracle, random, 128);
  for (uint64_t i = 0; i < 600; ++i) {
    LiveChange change;
    const auto it = std::next(oracle.rules.begin(), static_cast<long>(below(random, oracle.rules.size())));
    AclRule rule = it->second;
    change.remove(it->first);
    oracle.rules.erase(it);
    const uint64_t at = random() >> 40;
    if (oracle.rules.emplace(at, rule).second) change.add(at, rule);
    ASSERT_TRUE((*table)->apply(change).ok());
    if (i % 20 == 0) expect_equal(reader, oracle, random, 32);
  }
  expect_equal(reader, oracle, random, 128);
}

// In every version exactly one of several rules, which stand in different tables and among the loose ones, matches the
// packet, and both packets of a pair see marks of one change. A reader that mixed versions would find none, or an old
// mark below a newer one.
TEST(LiveAcl, APacketSeesExactlyOneVersion) {
  Random random(36);
  std::vector<LiveRule> rules;
  for (uint64_t i = 0; i < 2000; ++i) {
    AclRule rule = acl_test::random_rule(random, 4);
    rule.src = {{0, 0xc0000000 | i << 4, 4}, 28};  // away from the packet
    rules.push_back({(i + 10) << 20, rule});
  }
  auto form = [](uint64_t i) {
    AclRule rule =
        marked(0x0a000001, static_cast<uint8_t>(std::array<int, 4>{32, 24, 0, 8}[i % 4]), static_cast<uint32_t>(i));
    rule.src.address.lo &= high_mask32(rule.src.length);
    if (i % 4 == 2) {
      rule.dst = {{0, 0x0b000001, 4}, 32};
    }
    return rule;
  };
  rules.push_back({5, form(0)});
  auto table = LiveAcl::create(rules, 4000);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  FlowKey key;
  key.family = 4;
  key.src_lo = 0x0a000001;
  key.dst_lo = 0x0b000001;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, bursts{0};
  std::atomic<uint64_t> published{0};
  auto read = [&] {
    LiveAcl::Reader reader(**table);
    std::vector<const FlowKey*> keys(32, &key);
    LiveMatch found[32];
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t at_least = published.load(std::memory_order_acquire);
      reader.lookup_burst(keys.data(), found, 32);
      for (const LiveMatch& m : found) {
        // Nothing may be missed, and nothing older than what was published before the search.
        if (m.action.verb != AclVerb::kMark || m.action.mark < at_least) wrong.fetch_add(1);
      }
      bursts.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::thread first(read), second(read);
  const uint64_t changes = 20000 * std::min<size_t>(scale(), 10);
  for (uint64_t i = 1; i <= changes || bursts.load() < 100; ++i) {
    LiveChange change;
    change.remove(5 + (i - 1) % 3);
    change.add(5 + i % 3, form(i));
    const auto applied = (*table)->apply(change);
    if (!applied.ok()) {
      ADD_FAILURE() << to_string(applied.error());
      break;
    }
    published.store(i, std::memory_order_release);
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GE(bursts.load(), 100u);
}

}  // namespace
}  // namespace sluice
