#include "base/counted.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Counted, OneIsNotMany) {
  EXPECT_EQ(counted(0, "packet"), "0 packets");
  EXPECT_EQ(counted(1, "packet"), "1 packet");
  EXPECT_EQ(counted(2, "IPv6 route"), "2 IPv6 routes");
  EXPECT_EQ(counted(1'234'567, "address"), "1,234,567 addresses");
  EXPECT_EQ(counted(3, "adjacency"), "3 adjacencies");
  EXPECT_EQ(counted(3, "class"), "3 classes");
  EXPECT_EQ(counted(3, "batch"), "3 batches");
  EXPECT_EQ(counted(3, "day"), "3 days");
}

TEST(Counted, CommasStandBetweenThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(~uint64_t{0}), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace sluice
