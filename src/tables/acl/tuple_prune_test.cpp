// The sets of tables by field: never without a table that matches, and small where rules are far apart.
#include "tables/acl/tuple_prune.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>

#include "tables/acl/acl_test_support.h"

namespace sluice {
namespace {

using acl_test::below;
using acl_test::Random;
using tuple_prune_detail::Placed;

// A TuplePrune over memory of its own.
struct Built {
  explicit Built(const std::vector<Placed>& placed) : bytes(tuple_prune_detail::make_prune(placed)) {
    memory = std::make_unique<Line[]>(bytes.size() / sizeof(Line) + 1);
    std::memcpy(memory.get(), bytes.data(), bytes.size());
  }
  TuplePrune& get() { return *reinterpret_cast<TuplePrune*>(memory.get()); }
  uint64_t tables_for(const FlowKey& k) {
    return get().tables_for(static_cast<uint32_t>(k.src_lo), static_cast<uint32_t>(k.dst_lo), k.src_port, k.dst_port,
                            k.protocol);
  }
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<std::byte> bytes;
  std::unique_ptr<Line[]> memory;
};

std::vector<AclMatchRule> flat(const RuleSet& set) {
  std::vector<AclMatchRule> out;
  for (const AclRule& rule : set.rules) out.push_back(flatten(rule, static_cast<uint32_t>(out.size() + 1)));
  return out;
}

TEST(TuplePrune, KeepsEveryTableThatMatches) {
  Random random(31);
  for (size_t rules : {1, 7, 60, 900, 4000}) {
    const RuleSet set = acl_test::random_set(random, rules, 4);
    const auto all = flat(set);
    const auto tables = static_cast<uint32_t>(1 + below(random, TuplePrune::kMaxTables));
    std::vector<Placed> placed;
    for (const AclMatchRule& r : all) placed.push_back({&r, static_cast<uint32_t>(below(random, tables))});
    Built prune(placed);
    ASSERT_TRUE(tuple_prune_detail::prune_ok(prune.get(), prune.bytes.size(), TuplePrune::kMaxTables));
    for (const FlowKey& key : acl_test::keys_for(set, 400, random)) {
      if (key.family != 4) continue;
      const uint64_t tables_for = prune.tables_for(key);
      for (const Placed& p : placed) {
        if (!matches(*p.rule, key)) continue;
        ASSERT_TRUE((tables_for >> p.table & 1) != 0) << "rule " << p.rule->rule << " of table " << p.table;
      }
    }
  }
}

// Hosts of one /16, 16 in each /24.
RuleSet hosts() {
  RuleSet set;
  for (uint32_t i = 0; i < 4096; ++i) {
    AclRule rule;
    rule.family = 4;
    rule.src = {{0, 0x0a000000u | i * 16, 4}, 32};
    rule.dst = {{0, 0x0b000000u | (i * 97 & 0xffffu), 4}, 32};
    set.rules.push_back(rule);
  }
  return set;
}

// Tables that only the third level tells apart.
TEST(TuplePrune, TellsHostsOfOneNetworkApart) {
  const RuleSet set = hosts();
  const auto all = flat(set);
  std::vector<Placed> placed;
  for (uint32_t i = 0; i < all.size(); ++i) placed.push_back({&all[i], i % 64});
  Built prune(placed);
  EXPECT_GT(prune.get().upper_count, 0u);
  EXPECT_GT(prune.get().block_count, prune.get().upper_count);
  Random random(32);
  int visited = 0;
  for (const AclRule& rule : set.rules) visited += std::popcount(prune.tables_for(acl_test::key_in(rule, random)));
  // With no blocks, all 64.
  EXPECT_LT(visited, 3 * static_cast<int>(set.rules.size()));
}

TEST(TuplePrune, TellsPortsAndProtocolsApart) {
  RuleSet set;
  for (uint32_t i = 0; i < 300; ++i) {
    AclRule rule;
    rule.dst_port_low = static_cast<uint16_t>(i * 100);
    rule.dst_port_high = static_cast<uint16_t>(i * 100 + 99);
    rule.protocol = static_cast<uint8_t>(i);
    rule.protocol_mask = i % 2 == 0 ? 0xff : 0;
    if (i % 2 != 0) rule.protocol = 0;
    set.rules.push_back(rule);
  }
  const auto all = flat(set);
  std::vector<Placed> placed;
  for (uint32_t i = 0; i < all.size(); ++i) placed.push_back({&all[i], i % 60});
  Built prune(placed);
  FlowKey key;
  key.family = 4;
  for (uint32_t i = 0; i < 300; ++i) {
    key.dst_port = static_cast<uint16_t>(i * 100 + 50);
    key.protocol = static_cast<uint8_t>(i);
    EXPECT_EQ(prune.tables_for(key), uint64_t{1} << (i % 60)) << i;
  }
  key.dst_port = 40000;  // no rule
  EXPECT_EQ(prune.tables_for(key), 0u);
}

TEST(TuplePrune, FindsDamage) {
  Random random(33);
  const RuleSet set = hosts();
  const auto all = flat(set);
  std::vector<Placed> placed;
  for (const AclMatchRule& r : all) placed.push_back({&r, static_cast<uint32_t>(below(random, 20))});
  Built prune(placed);
  TuplePrune& p = prune.get();
  const size_t bytes = prune.bytes.size();
  const auto ok = [&] { return tuple_prune_detail::prune_ok(p, bytes, 20); };
  ASSERT_TRUE(ok());
  EXPECT_FALSE(tuple_prune_detail::prune_ok(p, bytes - 1, 20));
  EXPECT_FALSE(tuple_prune_detail::prune_ok(p, bytes, 3)) << "a set names a table that is not there";
  EXPECT_FALSE(tuple_prune_detail::prune_ok(p, bytes, TuplePrune::kMaxTables + 1));
  const auto refuses = [&](auto& field, auto value) {
    const auto kept = field;
    field = static_cast<std::decay_t<decltype(field)>>(value);
    EXPECT_FALSE(ok());
    field = kept;
  };
  refuses(p.class_count, p.class_count + 1);
  refuses(p.block_count, p.block_count - 1);
  refuses(p.upper_count, p.block_count + 1);
  refuses(p.root[0][77], p.class_count);
  refuses(p.root[1][65535], TuplePrune::kBlock | p.upper_count);
  refuses(p.protocol[6], uint64_t{1} << 20);
  ASSERT_GT(p.upper_count, 0u);
  // A block of the second level that leads to the second level would never end.
  refuses(const_cast<uint16_t&>(p.blocks()[0]), TuplePrune::kBlock);
  EXPECT_TRUE(ok());
}

}  // namespace
}  // namespace sluice
