// A patched access list equals the oracle after every kind of change, in every published version, and refuses what it
// must whole.
#include "tables/acl/patch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <thread>
#include <tuple>

#include "base/test_data.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch_order.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::chance;
using acl_test::Random;

size_t scale() {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  return text == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(text)));
}

// The oracle: rules in order of priority, flat, the first match wins.
class Oracle {
 public:
  std::map<uint64_t, AclRule> rules;

  void add(uint64_t priority, const AclRule& rule) {
    rules.emplace(priority, rule);
    flat_.emplace(priority, flatten(rule, 1));
  }
  void remove(uint64_t priority) {
    rules.erase(priority);
    flat_.erase(priority);
  }
  std::optional<uint64_t> lookup(const FlowKey& key) const {
    for (const auto& [priority, rule] : flat_) {
      if (matches(rule, key)) return priority;
    }
    return std::nullopt;
  }
  std::vector<OrderedRule> list() const {
    std::vector<OrderedRule> out;
    for (const auto& [priority, rule] : rules) out.push_back({priority, rule});
    return out;
  }
  // A priority near a drawn one that is taken.
  uint64_t pick(Random& random) const {
    const uint64_t from = rules.begin()->first, to = rules.rbegin()->first;
    return rules.lower_bound(from + below(random, to - from + 1))->first;
  }

 private:
  std::map<uint64_t, AclMatchRule> flat_;
};

// All ways of the view give the oracle's rule, and the image has its action and line.
void expect_equal(PatchedAcl& table, const Image& image, const Oracle& oracle, const std::vector<FlowKey>& keys) {
  const auto view = TupleMergeView::open(image);
  const auto actions = AclActionsView::open(image);
  const auto rules = AclRulesView::open(image);
  const auto source = AclSourceView::open(image);
  ASSERT_TRUE(view.ok() && actions.ok() && rules.ok() && source.ok());
  for (size_t at = 0; at < keys.size(); at += 32) {
    const size_t n = std::min<size_t>(32, keys.size() - at);
    const FlowKey* pointers[32];
    uint32_t found[32], other[32];
    for (size_t i = 0; i < n; ++i) pointers[i] = &keys[at + i];
    view->lookup_burst(pointers, found, n);
    for (AclIsa isa : {AclIsa::kScalar, AclIsa::kAvx2}) {
      if (!TupleMergeView::isa_available(isa)) continue;
      view->lookup_burst_on(isa, pointers, other, n);
      ASSERT_TRUE(std::equal(found, found + n, other));
    }
    for (size_t i = 0; i < n; ++i) {
      const auto want = oracle.lookup(keys[at + i]);
      ASSERT_EQ(view->lookup(keys[at + i]), found[i]);
      ASSERT_EQ(found[i] != 0, want.has_value());
      if (found[i] == 0) continue;
      ASSERT_EQ(table.priority_of(found[i]), want);
      const AclRule& rule = oracle.rules.at(*want);
      ASSERT_EQ(actions->action(found[i]), acl_action_of(rule));
      ASSERT_EQ(source->line(found[i]), rule.line);
      ASSERT_EQ(source->file(found[i]), rule.file == 0 ? "a" : "b");
      ASSERT_TRUE(same_match(rules->rule(found[i]), flatten(rule, found[i])));
    }
  }
}

// The image passes all checks as one from a file.
void expect_sound(const PatchedAcl& table) {
  auto sealed = table.replicas().seal();
  ASSERT_TRUE(sealed.ok());
  auto image = Image::from_bytes(sealed->bytes(), ImageKind::kAcl);
  ASSERT_TRUE(image.ok()) << to_string(image.error());
  const auto view = AclView::open(*image);
  EXPECT_TRUE(view.ok()) << to_string(view.error());
  EXPECT_TRUE(AclActionsView::open(*image).ok());
}

std::vector<FlowKey> draw_keys(const Oracle& oracle, Random& random, size_t n) {
  std::vector<FlowKey> keys;
  for (size_t i = 0; i < n; ++i) {
    keys.push_back(oracle.rules.empty() || chance(random, 10)
                       ? acl_test::random_key(random)
                       : acl_test::key_in(oracle.rules.at(oracle.pick(random)), random));
  }
  return keys;
}

// Changes of one or many operations, some of which must be refused: each is applied to the oracle or to neither.
// `draw` gives the rules of additions.
template <typename Draw>
void random_updates(std::vector<OrderedRule> initial, size_t changes, unsigned seed, Draw&& draw, size_t look_every) {
  Random random(seed);
  Oracle oracle;
  for (const OrderedRule& r : initial) oracle.add(r.priority, r.rule);
  auto table = PatchedAcl::create(initial, {.files = {"a", "b"}});
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  auto look = [&](size_t packets) {
    const auto image = (*table)->publish();
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    expect_equal(**table, **image, oracle, draw_keys(oracle, random, packets));
  };
  look(96);
  uint64_t top = 1000 * initial.size() + 1'000'000;
  size_t refused = 0, taken = 0;
  for (size_t c = 0; c < changes; ++c) {
    AclChange change;
    struct Done {
      uint64_t priority;
      std::optional<AclRule> removed;
    };
    std::vector<Done> done;
    bool valid = true;
    auto add = [&](uint64_t at, const AclRule& rule) {
      change.add(at, rule);
      valid = valid && !oracle.rules.contains(at);
      if (!valid) return;
      oracle.add(at, rule);
      done.push_back({at, std::nullopt});
    };
    auto remove = [&](uint64_t at) {
      change.remove(at);
      const auto it = oracle.rules.find(at);
      valid = valid && it != oracle.rules.end();
      if (!valid) return;
      done.push_back({at, it->second});
      oracle.remove(at);
    };
    auto place = [&](uint64_t at) {
      AclRule moved;
      moved.file = static_cast<uint32_t>(below(random, 2));
      moved.line = static_cast<uint32_t>(below(random, 100'000));
      change.place(at, moved.file, moved.line);
      const auto it = oracle.rules.find(at);
      valid = valid && it != oracle.rules.end();
      if (!valid) return;
      AclRule rule = it->second;
      done.push_back({at, rule});
      oracle.remove(at);
      rule.file = moved.file;
      rule.line = moved.line;
      oracle.add(at, rule);
      done.push_back({at, std::nullopt});
    };
    for (size_t ops = chance(random, 90) ? 1 : 1 + below(random, 40); ops > 0 && valid; --ops) {
      const uint64_t kind = oracle.rules.empty() ? 0 : below(random, 100);
      if (kind < 20) {
        add(below(random, top), draw(random));
      } else if (kind < 30) {  // close together, at the front, at the end
        const uint64_t near = oracle.rules.empty() ? 0 : oracle.pick(random);
        add(std::array<uint64_t, 3>{near + 1, below(random, 2) + (near & 0xff), top += 3}[below(random, 3)],
            draw(random));
      } else if (kind < 60) {
        remove(oracle.pick(random));
      } else if (kind < 70) {
        place(oracle.pick(random));
      } else if (kind < 98) {
        const uint64_t at = oracle.pick(random);
        remove(at);
        add(at, draw(random));
      } else {
        const uint64_t near = oracle.pick(random) ^ 1;
        kind == 98 ? remove(near) : place(near);
      }
    }
    if (chance(random, 50)) (*table)->expect(change);
    const auto applied = (*table)->apply(change);
    ASSERT_EQ(applied.ok(), valid) << (applied.ok() ? "" : to_string(applied.error()));
    if (valid) {
      ++taken;
    } else {
      ++refused;
      for (size_t i = done.size(); i-- > 0;) {
        done[i].removed ? oracle.add(done[i].priority, *done[i].removed) : oracle.remove(done[i].priority);
      }
    }
    ASSERT_EQ((*table)->size(), oracle.rules.size());
    if (c % look_every == 0) {
      look(32);
      if (c % (64 * look_every) == 0) expect_sound(**table);
      if (testing::Test::HasFailure()) {
        FAIL() << "after change " << c;
      }
    }
  }
  EXPECT_GT(taken, changes / 2);
  EXPECT_GT(refused, 0u);
  look(320);
  expect_sound(**table);
  const auto rules = (*table)->rules();
  ASSERT_EQ(rules.size(), oracle.rules.size());
  auto at = oracle.rules.begin();
  for (const OrderedRule& rule : rules) {
    ASSERT_EQ(rule.priority, at->first);
    ASSERT_EQ(rule.rule, at->second);
    ++at;
  }
}

std::vector<OrderedRule> made(size_t n, unsigned seed, uint8_t family) {
  Random random(seed);
  std::vector<OrderedRule> out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back({1000 * i + below(random, 1000), acl_test::random_rule(random, family)});
    out.back().rule.line = static_cast<uint32_t>(i + 1);
  }
  return out;
}

TEST(PatchedAcl, EqualsTheOracleThroughRandomChanges) {
  auto any = [](Random& random) { return acl_test::random_rule(random); };
  random_updates(made(300, 1, 0), 2000 * scale(), 41, any, 4);
  random_updates(
      made(1500, 2, 4), 500 * scale(), 42, [](Random& random) { return acl_test::random_rule(random, 4); }, 4);
  random_updates(
      made(200, 3, 6), 500 * scale(), 43, [](Random& random) { return acl_test::random_rule(random, 6); }, 4);
}

TEST(PatchedAcl, StartsEmptyAndGrows) {
  random_updates(
      {}, 600, 44, [](Random& random) { return acl_test::random_rule(random); }, 4);
}

// Every pair of prefix lengths: as many tuples as there can be.
TEST(PatchedAcl, HoldsAllCombinationsOfLengths) {
  auto draw = [](Random& random) {
    AclRule rule;
    rule.family = 4;
    rule.src.length = static_cast<uint8_t>(below(random, 33));
    rule.dst.length = static_cast<uint8_t>(below(random, 33));
    rule.src.address = {0, 0x0a0a0a0au & high_mask32(rule.src.length), 4};
    rule.dst.address = {0, 0x0b0b0b0bu & high_mask32(rule.dst.length), 4};
    return rule;
  };
  Random random(3);
  std::vector<OrderedRule> rules;
  for (uint64_t i = 0; i < 1089; ++i) rules.push_back({i * 10, draw(random)});
  random_updates(rules, 800 * scale(), 45, draw, 8);
}

// Identical keys, told apart by ranges, and wildcards: one bucket with all of them.
TEST(PatchedAcl, HoldsRulesThatShareOneBucket) {
  auto ranges = [](Random& random) {
    AclRule rule;
    rule.family = 4;
    rule.src = {{0, 0x0a000001, 4}, 32};
    rule.dst_port_low = static_cast<uint16_t>(below(random, 60000));
    rule.dst_port_high = static_cast<uint16_t>(rule.dst_port_low + below(random, 900));
    return rule;
  };
  auto wildcards = [](Random& random) {
    AclRule rule;
    rule.dscp = static_cast<uint8_t>(below(random, 64));
    return rule;
  };
  Random random(4);
  std::vector<OrderedRule> rules;
  for (uint64_t i = 0; i < 1500; ++i) rules.push_back({i * 10, ranges(random)});
  random_updates(rules, 600 * scale(), 46, ranges, 8);
  rules.clear();
  for (uint64_t i = 0; i < 10000; ++i) rules.push_back({i * 10, wildcards(random)});
  random_updates(rules, 200 * scale(), 47, wildcards, 20);
}

TEST(PatchedAcl, RefusesWholeChangesWithTheirReason) {
  AclRule any;
  const std::vector<OrderedRule> two{{10, any}, {20, any}};
  auto table = PatchedAcl::create(two, {.max_bytes = 400'000});
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  const auto before = (*table)->publish();
  ASSERT_TRUE(before.ok());
  auto expect_error = [&](auto&& make, const char* what) {
    AclChange change;
    change.remove(10);
    make(change);
    const auto result = (*table)->apply(change);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(to_string(result.error()), testing::HasSubstr(what));
    EXPECT_EQ((*table)->size(), 2u);
    EXPECT_EQ((*table)->publish()->get(), before->get()) << "nothing has changed";
  };
  expect_error([&](AclChange& c) { c.add(20, any); }, "operation 2: a rule has the priority 20 already");
  expect_error([](AclChange& c) { c.remove(10); }, "operation 2: no rule has the priority 10");
  expect_error([&](AclChange& c) { c.place(10, 0, 1); }, "operation 2: no rule has the priority 10");
  AclRule bad;
  bad.dst_port_low = 9, bad.dst_port_high = 8;
  expect_error([&](AclChange& c) { c.add(30, bad); }, "a port range is empty");
  expect_error(
      [&](AclChange& c) {
        for (uint64_t p = 100; p < 5000; ++p) c.add(p, any);
      },
      "and 400000 are allowed");
  EXPECT_FALSE(PatchedAcl::create(std::vector<OrderedRule>{{1, bad}}).ok());
  EXPECT_FALSE(PatchedAcl::create(std::vector<OrderedRule>{{1, any}, {1, any}}).ok());
}

// Rules go and come back, over and over: neither do they use up the room of the image, nor does a packet have more to
// look at than at first.
TEST(PatchedAcl, IsAsGoodAfterManyChanges) {
  Random random(8);
  std::vector<OrderedRule> rules;
  // Few tuples that cover each other, the coarse ones at the end, as lists have them.
  for (uint64_t i = 0; i < 3000; ++i) {
    AclRule rule;
    rule.family = 4;
    rule.src.length = static_cast<uint8_t>(i < 2000 ? 24 + below(random, 9) : 16 + below(random, 9));
    rule.src.address = {0, (0x0a000000u | below(random, 1u << 20) << 4) & high_mask32(rule.src.length), 4};
    rule.dst.length = static_cast<uint8_t>(i < 1000 ? 32 : 8 + below(random, 17));
    rule.dst.address = {0, (0xac000000u | below(random, 1u << 24)) & high_mask32(rule.dst.length), 4};
    rules.push_back({1000 * i, rule});
  }
  auto table = PatchedAcl::create(rules);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  std::vector<FlowKey> keys;
  for (int i = 0; i < 2000; ++i) keys.push_back(acl_test::key_in(rules[below(random, rules.size())].rule, random));
  const auto look = [&] {
    const auto view = TupleMergeView::open(**(*table)->publish());
    AclTally tally;
    for (const FlowKey& key : keys) (void)view->lookup(key, &tally);
    return std::tuple(tally, view->shape().narrow_blocks);
  };
  const auto [before, blocks_before] = look();
  std::deque<OrderedRule> away;
  AclChange change;
  for (size_t i = 0; i < 60'000; ++i) {
    std::swap(rules[below(random, rules.size())], rules.back());
    change.clear();
    change.remove(rules.back().priority);
    if (away.size() > 300) {
      change.add(away.front().priority, away.front().rule);
      std::swap(away.front(), rules.back());
      away.push_back(away.front());
      away.pop_front();
    } else {
      away.push_back(rules.back());
      rules.pop_back();
    }
    ASSERT_TRUE((*table)->apply(change).ok());
    if (i % 500 == 0) {
      ASSERT_TRUE((*table)->publish().ok());
    }
  }
  for (const OrderedRule& rule : away) {
    change.clear();
    change.add(rule.priority, rule.rule);
    ASSERT_TRUE((*table)->apply(change).ok());
  }
  const auto [after, blocks_after] = look();
  EXPECT_EQ((*table)->rebuilds(), 0u);
  EXPECT_LT(blocks_after, blocks_before * 3 / 2);
  EXPECT_LT(after.tables, before.tables * 6 / 5);
  EXPECT_LT(after.reads, before.reads * 6 / 5);
}

TEST(PatchedAcl, EstimatesItsSize) {
  const auto rules = made(5000, 5, 0);
  auto table = PatchedAcl::create(rules);
  ASSERT_TRUE(table.ok());
  const size_t bytes = (*table)->replicas().size(), estimate = PatchedAcl::estimate_bytes(rules.size());
  EXPECT_LT(bytes, 2 * estimate);
  EXPECT_GT(bytes, estimate / 2);
}

// Readers take whatever was published last, while it changes: one of four rules matches in every version, and none that
// is older than what was published before the search.
TEST(PatchedAcl, APacketSeesExactlyOneVersion) {
  std::vector<OrderedRule> rules = made(2000, 6, 4);
  for (OrderedRule& r : rules) {
    r.rule.src = {{0, 0xc0000000u | (r.priority & 0xffff0u), 4}, 28};  // away from the packet
    r.priority += 1000;
  }
  auto form = [](uint64_t i) {
    AclRule rule;
    rule.family = 4;
    rule.src.length = std::array<uint8_t, 4>{32, 24, 0, 8}[i % 4];
    rule.src.address = {0, 0x0a000001u & high_mask32(rule.src.length), 4};
    rule.verb = AclVerb::kMark;
    rule.mark = static_cast<uint32_t>(i);
    return rule;
  };
  rules.push_back({5, form(0)});
  auto table = PatchedAcl::create(rules);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  FlowKey key;
  key.family = 4;
  key.src_lo = 0x0a000001;
  std::mutex mutex;
  std::shared_ptr<const Image> current = *(*table)->publish();
  uint64_t published = 0;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, bursts{0};
  auto read = [&] {
    std::vector<const FlowKey*> keys(32, &key);
    uint32_t found[32];
    while (!stop.load(std::memory_order_relaxed)) {
      std::shared_ptr<const Image> image;
      uint64_t at_least = 0;
      {
        const std::lock_guard lock(mutex);
        image = current;
        at_least = published;
      }
      const auto view = TupleMergeView::open(*image);
      const auto actions = AclActionsView::open(*image);
      view->lookup_burst(keys.data(), found, 32);
      for (uint32_t rule : found) {
        const AclAction action = actions->action(rule);
        if (action.verb != AclVerb::kMark || action.mark != at_least) wrong.fetch_add(1);
      }
      bursts.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::thread first(read), second(read);
  const uint64_t changes = 3000 * std::min<size_t>(scale(), 10);
  for (uint64_t i = 1; i <= changes || bursts.load() < 100; ++i) {
    AclChange change;
    change.remove(5 + (i - 1) % 3);
    change.add(5 + i % 3, form(i));
    const auto applied = (*table)->apply(change);
    ASSERT_TRUE(applied.ok()) << to_string(applied.error());
    const auto image = (*table)->publish();
    if (!image) {
      ADD_FAILURE() << to_string(image.error());
      break;
    }
    const std::lock_guard lock(mutex);
    current = *image;
    published = i;
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GE(bursts.load(), 100u);
}

// Words follow priorities, whatever the order of insertions; each rule that gives way is told of.
TEST(RuleOrder, WordsFollowPriorities) {
  for (int pattern = 0; pattern < 4; ++pattern) {
    Random random(static_cast<unsigned>(pattern));
    acl_patch::RuleOrder order(2000);
    std::map<uint64_t, uint32_t> words;
    std::map<uint32_t, uint64_t> at;
    uint64_t moved = 0;
    for (uint64_t i = 0; i < 6000; ++i) {
      const uint64_t priority = pattern == 0   ? random()
                                : pattern == 1 ? 1'000'000 + i
                                : pattern == 2 ? 1'000'000 - i
                                               : (i % 2 == 0 ? 500'000 + i : 1'500'000 - i);
      if (!words.contains(priority) && words.size() < 1400) {
        const uint32_t word = order.insert(priority, [&](uint32_t from, uint32_t to) {
          ++moved;
          ASSERT_FALSE(at.contains(to));
          at[to] = at.at(from);
          words[at[to]] = to;
          at.erase(from);
        });
        ASSERT_NE(word, 0u);
        ASSERT_FALSE(at.contains(word));
        at[word] = priority;
        words[priority] = word;
      }
      if (words.size() > 1000 && chance(random, 60)) {
        const auto victim = std::next(words.begin(), static_cast<long>(below(random, words.size())));
        order.erase(victim->second);
        at.erase(victim->second);
        words.erase(victim);
      }
      if (i % 50 == 0) {
        uint32_t last = 0;
        for (const auto& [p, word] : words) {
          ASSERT_GT(word, last);
          last = word;
          ASSERT_EQ(order.find(p), word);
          // Whatever rule is asked for before, or none, or one that is gone.
          for (const uint32_t before : {0u, word - 1, word, std::max(word, 40u) - 40, order.last(), order.last() + 1})
            ASSERT_EQ(order.find_behind(before, p), word) << before;
          ASSERT_EQ(order.priority(word), p);
        }
        ASSERT_EQ(order.size(), words.size());
        ASSERT_EQ(order.find(random() | uint64_t{1} << 63), 0u);
        ASSERT_EQ(order.find_behind(last, random() | uint64_t{1} << 63), 0u);
      }
    }
    EXPECT_LT(moved, 6000u * 80) << "pattern " << pattern;
  }
}

}  // namespace
}  // namespace sluice
