#include <gtest/gtest.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

TEST(Example, LetsPacketsUpToItsLimitPass) {
  expect(std::vector<uint8_t>(60)).through("Example(60)").passes();
  expect(std::vector<uint8_t>(61)).through("Example(60)").drops(DropReason::kTooBig).leaves_by(1);
}

TEST(Example, NeedsItsLimit) {
  EXPECT_NE(testing::findings_of("Example()").find("LIMIT"), std::string::npos);
}

}  // namespace
}  // namespace sluice
