// What `auto` takes: never much more than the best of what there is, also where a list is made to hurt.
#include <gtest/gtest.h>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/work.h"

namespace sluice {
namespace {

// Rules of ports alone, each inside of the one before at one end: nothing that is hashed tells them apart.
RuleSet staircase(size_t n) {
  RuleSet set;
  for (size_t i = 0; i < n; ++i) {
    AclRule rule;
    rule.protocol = 6;
    rule.protocol_mask = 0xff;
    rule.dst_port_low = static_cast<uint16_t>(i % 65536);
    rule.dst_port_high = static_cast<uint16_t>(std::min<size_t>(65535, i % 65536 + 1));
    rule.needs_ports = true;
    set.rules.push_back(rule);
  }
  return set;
}
RuleSet services(size_t n) {
  RuleSet set;
  for (size_t i = 0; i < n; ++i) {
    AclRule rule;
    rule.family = 4;
    rule.src = {{0, 0x0a000000u + (i * 7919 << 8), 4}, 24};
    rule.protocol = 6;
    rule.protocol_mask = 0xff;
    rule.dst_port_low = rule.dst_port_high = static_cast<uint16_t>(i % 5 * 80 + 22);
    rule.needs_ports = true;
    set.rules.push_back(rule);
  }
  return set;
}
std::string chosen(const RuleSet& set) {
  auto made = choose_acl(set, TableTarget::kCpu);
  EXPECT_TRUE(made.ok());
  return made.ok() ? made->algorithm : "";
}

TEST(AclChoose, AFewRulesAreCompared) {
  // 211 against 103, 129 against 99 M packets/s with 10 and 64 rules.
  for (const size_t n : {1u, 10u, 15u, 64u}) EXPECT_EQ(chosen(services(n)), "tuple_merge") << n;
  // With ranges of ports, too.
  for (const size_t n : {1u, 2u, 3u, 32u, 64u}) EXPECT_EQ(chosen(staircase(n)), "tuple_merge") << n;
}

TEST(AclChoose, AListThatOnlyPortRangesTellApartIsNotScanned) {
  for (const unsigned n : {6000u, 9000u}) {
    const RuleSet set = acl_test::overlapping_ranges(n);
    auto made = choose_acl(set, TableTarget::kCpu);
    ASSERT_TRUE(made.ok());
    // What a lookup reads, in bytes, against each of the others.
    const auto bytes = [](const Image& image) {
      auto work = acl_work(image);
      EXPECT_TRUE(work.ok());
      const std::string_view name = acl_image_algorithm(image);
      return work->reads * (name == "tuple_merge" ? 256 : name == "bitvec" ? 64 : 32);
    };
    for (const char* other : {"tuple_merge", "tuple_space", "bitvec"}) {
      auto image = build_acl(set, other);
      ASSERT_TRUE(image.ok());
      EXPECT_LE(bytes(made->image), 4 * bytes(*image) + 64 * 22)
          << n << " rules: " << made->why << " against " << other;
    }
  }
  EXPECT_EQ(chosen(staircase(10000)), "bitvec");
}

}  // namespace
}  // namespace sluice
