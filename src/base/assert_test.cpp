// A check holds in every build, and says what did not.
#include "base/assert.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace sluice {
namespace {

TEST(CheckDeathTest, SaysWhatDoesNotHoldAndWhere) {
  int asked = 0;
  SLUICE_CHECK(++asked == 1);
  EXPECT_EQ(asked, 1) << "the condition is asked in every build, once";
  EXPECT_DEATH(SLUICE_CHECK(asked == 2), "assert_test.cpp:[0-9]+: 'asked == 2' does not hold");
}

TEST(CheckDeathTest, AnErrorHasNoValue) {
  const Result<int> failed = Error("no");
  const Result<int> worked = 7;
  EXPECT_DEATH((void)*failed, "does not hold");
  EXPECT_DEATH((void)worked.error(), "does not hold");
}

}  // namespace
}  // namespace sluice
