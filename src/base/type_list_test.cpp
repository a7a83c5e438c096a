#include "base/type_list.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace sluice {
namespace {

using Three = TypeList<int, double, std::string>;

static_assert(Three::kSize == 3 && TypeList<>::kSize == 0);
static_assert(Three::index_of<int>() == 0 && Three::index_of<double>() == 1 && Three::index_of<std::string>() == 2);
static_assert(TypeList<int, char, int>::index_of<int>() == 0);
static_assert(Three::contains<double>() && !Three::contains<char>() && !TypeList<>::contains<int>());
static_assert(std::is_same_v<Three::apply<std::tuple>, std::tuple<int, double, std::string>>);

TEST(TypeList, ForEachVisitsEveryTypeInOrder) {
  std::vector<size_t> seen;
  Three::for_each([&](auto tag) { seen.push_back(Three::index_of<typename decltype(tag)::type>()); });
  EXPECT_EQ(seen, (std::vector<size_t>{0, 1, 2}));
  TypeList<>::for_each([&](auto) { FAIL() << "an empty list has no types"; });
}

}  // namespace
}  // namespace sluice
