#include "tables/lpm/rib.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

using namespace lpm_test;

TEST(Rib, LastAddOfAPrefixWinsAndDuplicatesAreCounted) {
  Rib rib;
  const uint32_t a = rib.intern("a"), b = rib.intern("b");
  rib.add(prefix4(0x0a000000, 8), a);
  rib.add(prefix4(0x0b000000, 8), a);
  rib.add(prefix4(0x0a000000, 8), b);
  EXPECT_EQ(rib.find(prefix4(0x0a000000, 8)), b);
  rib.settle();
  EXPECT_EQ(rib.routes4().size(), 2u);
  EXPECT_EQ(rib.duplicates(), 1u);
  EXPECT_EQ(rib.find(prefix4(0x0a000000, 8)), b);
  EXPECT_EQ(rib.find(prefix4(0x0a000000, 9)), 0u);
  rib.add(prefix4(0x0a000000, 8), a);
  rib.settle();
  EXPECT_EQ(rib.duplicates(), 2u);
  EXPECT_EQ(rib.routes4()[0].next_hop, a);
}

TEST(Rib, NamesAreInternedOnceAndRunOutAtTheLimit) {
  Rib rib;
  EXPECT_EQ(rib.find_next_hop("x"), 0u);
  for (uint32_t i = 1; i <= Rib::kMaxNextHops; ++i) ASSERT_EQ(rib.intern("n" + std::to_string(i)), i);
  EXPECT_EQ(rib.intern("one more"), 0u);
  EXPECT_EQ(rib.intern("n65535"), 65535u);
  EXPECT_EQ(rib.find_next_hop("n777"), 777u);
  EXPECT_EQ(rib.next_hop_name(777), "n777");
}

TEST(Rib, RollbackForgetsRoutesAndNames) {
  Rib rib;
  const uint32_t a = rib.intern("a");
  rib.add(prefix4(0, 0), a);
  const Rib::Mark mark = rib.mark();
  rib.add(prefix4(0x0a000000, 8), rib.intern("b"));
  rib.rollback(mark);
  EXPECT_EQ(rib.find_next_hop("b"), 0u);
  EXPECT_EQ(rib.find_next_hop("a"), a);
  rib.settle();
  EXPECT_EQ(rib.size(), 1u);
}

// Mixed changes against std::map, settling at random times.
TEST(Rib, MixedChangesMatchAMap) {
  std::mt19937_64 random(5);
  Rib rib;
  intern_ids(rib, 9);
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> model;  // v4: (address, length); v6 keys are (~hi, length)
  for (int i = 0; i < 20000; ++i) {
    const bool v6 = random() % 2 != 0;
    const auto length = static_cast<unsigned>(random() % 6);
    const IpPrefix p = v6 ? prefix6(random(), 0, length) : prefix4(static_cast<uint32_t>(random()), length);
    const std::pair<uint64_t, uint64_t> key{v6 ? ~p.address.hi : p.address.lo, length};
    ASSERT_EQ(rib.find(p), model.contains(key) ? model[key] : 0);
    if (random() % 3 == 0) {
      ASSERT_EQ(rib.remove(p), model.erase(key) != 0);
    } else {
      model[key] = static_cast<uint32_t>(1 + random() % 9);
      rib.add(p, model[key]);
    }
    if (random() % 50 == 0) {
      rib.settle();
      ASSERT_EQ(rib.size(), model.size());
    }
  }
  rib.settle();
  EXPECT_EQ(rib.size(), model.size());
  EXPECT_TRUE(std::is_sorted(rib.routes4().begin(), rib.routes4().end(),
                             [](const Route4& a, const Route4& b) { return a.key() < b.key(); }));
}

}  // namespace
}  // namespace sluice
