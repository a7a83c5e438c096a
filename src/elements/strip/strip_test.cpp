#include <gtest/gtest.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

TEST(Strip, AndUnstripBringsItBack) {
  const std::vector<uint8_t> bytes{1, 2, 3, 4, 5};
  EXPECT_EQ(expect(bytes).through("Strip(2)").passes().bytes(), (std::vector<uint8_t>{3, 4, 5}));
  EXPECT_EQ(expect(bytes).through("Strip(5)").passes().bytes(), std::vector<uint8_t>{});
  EXPECT_EQ(expect(bytes).through("Strip(4) -> Unstrip(3)").passes().bytes(), (std::vector<uint8_t>{2, 3, 4, 5}));
  expect(bytes).through("Strip(6)").drops(DropReason::kStripTooShort);
  expect(bytes).through("Strip(3) -> Strip(3)").drops(DropReason::kStripTooShort);
}

TEST(Unstrip, EndsAtTheHeadroom) {
  EXPECT_EQ(expect({1}).through("Unstrip(128)").passes().packet.length(), 129u);
  expect({1}).through("Unstrip(129)").drops(DropReason::kNoHeadroom);
  EXPECT_EQ(expect({1}).through("Strip(1) -> Unstrip(129)").passes().packet.length(), 129u);
}

}  // namespace
}  // namespace sluice
