#include "exec/device/constant_bank.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "exec/device/table_memory.h"

namespace sluice {
namespace {

TEST(ConstantBank, HasRoomForAllOfItAndNotForAByteMore) {
  ConstantBank bank;
  const auto more = bank.take(kConstantBytes + 1);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find("65537 bytes"), std::string::npos) << more.error().message;
  EXPECT_NE(more.error().message.find("0 of 65536 bytes are in use"), std::string::npos) << more.error().message;
  const auto all = bank.take(kConstantBytes);
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(*all, 0u);
  EXPECT_FALSE(bank.take(1).ok());
  bank.leave(*all);
  EXPECT_TRUE(bank.take(1).ok());
}

// Parts are aligned and inside, no two of them overlap, one is refused where no hole is long enough alone, and what was
// left can be taken again.
TEST(ConstantBank, PartsDoNotOverlap) {
  EXPECT_TRUE(rc::check([] {
    ConstantBank bank;
    std::map<uint32_t, size_t> taken;
    for (int step = 0; step < 200; ++step) {
      if (!taken.empty() && *rc::gen::inRange(0, 3) == 0) {
        auto it = taken.begin();
        std::advance(it, *rc::gen::inRange<size_t>(0, taken.size()));
        bank.leave(it->first);
        taken.erase(it);
        continue;
      }
      const auto bytes = *rc::gen::inRange<size_t>(1, 20'000);
      size_t hole = 0, end = 0;
      for (const auto& [at, n] : taken) {
        hole = std::max(hole, at - end);
        end = (at + n + ConstantBank::kAlign - 1) / ConstantBank::kAlign * ConstantBank::kAlign;
      }
      hole = std::max(hole, kConstantBytes - end);
      const auto at = bank.take(bytes);
      RC_ASSERT(at.ok() == (bytes <= hole));
      if (!at.ok()) continue;
      RC_ASSERT(*at % ConstantBank::kAlign == 0u);
      RC_ASSERT(*at + bytes <= kConstantBytes);
      for (const auto& [other, n] : taken) RC_ASSERT(*at + bytes <= other || other + n <= *at);
      taken.emplace(*at, bytes);
    }
  }));
}

}  // namespace
}  // namespace sluice
