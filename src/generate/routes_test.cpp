// Generated routing tables: exact counts and lengths, unique prefixes in usable space, nested and clustered, same bytes
// for a seed.
#include "generate/routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "generate/random.h"
#include "net/text.h"

namespace sluice {
namespace {

std::vector<GeneratedRoute> routes_of(const RoutesOptions& options) {
  auto routes = generate_route_list(options);
  EXPECT_TRUE(routes.ok());
  return routes.ok() ? *routes : std::vector<GeneratedRoute>{};
}

bool covers(const IpPrefix& outer, const IpPrefix& inner) {
  if (outer.address.family != inner.address.family || outer.length > inner.length) return false;
  if (outer.address.family == 4) return ((outer.address.lo ^ inner.address.lo) & high_mask32(outer.length)) == 0;
  return ((outer.address.hi ^ inner.address.hi) & high_mask64(std::min<unsigned>(outer.length, 64))) == 0 &&
         ((outer.address.lo ^ inner.address.lo) & high_mask64(outer.length > 64 ? outer.length - 64u : 0)) == 0;
}

bool before(const IpPrefix& a, const IpPrefix& b) {
  if (a.address.family != b.address.family) return a.address.family < b.address.family;
  if (a.address.hi != b.address.hi) return a.address.hi < b.address.hi;
  if (a.address.lo != b.address.lo) return a.address.lo < b.address.lo;
  return a.length < b.length;
}

struct Shape {
  std::map<int, size_t> lengths;
  std::vector<size_t> depth = std::vector<size_t>(130);
  size_t same_as_parent = 0, nested = 0, same_as_previous = 0, count = 0;
};

// In sorted order a stack of the covering prefixes gives every prefix its depth and parent.
Shape shape_of(const std::vector<GeneratedRoute>& routes, int family) {
  Shape s;
  std::vector<const GeneratedRoute*> stack;
  const GeneratedRoute* previous = nullptr;
  for (const GeneratedRoute& r : routes) {
    if (r.prefix.address.family != family) continue;
    ++s.count;
    ++s.lengths[r.prefix.length];
    while (!stack.empty() && !covers(stack.back()->prefix, r.prefix)) stack.pop_back();
    ++s.depth[stack.size()];
    if (!stack.empty()) {
      ++s.nested;
      s.same_as_parent += stack.back()->next_hop == r.next_hop;
    }
    if (previous != nullptr) s.same_as_previous += previous->next_hop == r.next_hop;
    previous = &r;
    stack.push_back(&r);
  }
  return s;
}

TEST(RoutesTest, AFullTableHasItsShape) {
  const auto routes = routes_of({});
  ASSERT_EQ(routes.size(), 1'060'000u);
  for (size_t i = 1; i < routes.size(); ++i)
    ASSERT_TRUE(before(routes[i - 1].prefix, routes[i].prefix)) << i;  // sorted and unique
  std::vector<size_t> hops(257);
  for (const GeneratedRoute& r : routes) {
    const IpAddress& a = r.prefix.address;
    if (a.family == 4) {
      const auto octet = a.lo >> 24;
      ASSERT_TRUE(octet >= 1 && octet <= 223 && octet != 10 && octet != 127);
      ASSERT_EQ(a.lo & ~uint64_t{high_mask32(r.prefix.length)}, 0u);
    } else {
      ASSERT_EQ(a.family, 6);
      ASSERT_EQ(a.hi >> 61, 1u);
      ASSERT_EQ(a.hi & ~high_mask64(std::min<unsigned>(r.prefix.length, 64)), 0u);
      ASSERT_EQ(a.lo & ~high_mask64(r.prefix.length > 64 ? r.prefix.length - 64u : 0), 0u);
    }
    ASSERT_TRUE(r.next_hop >= 1 && r.next_hop <= 256);
    ++hops[r.next_hop];
  }
  const Shape four = shape_of(routes, 4);
  EXPECT_EQ(four.count, 900'000u);
  EXPECT_EQ(four.lengths.at(24), 536'566u);  // 537,698 of 901,899, scaled
  EXPECT_EQ(four.lengths.at(22), 108'394u);
  EXPECT_EQ(four.lengths.at(16), 13'462u);
  EXPECT_EQ(four.lengths.at(8), 16u);
  EXPECT_EQ(four.lengths.at(32), 884u);
  const Shape six = shape_of(routes, 6);
  EXPECT_EQ(six.count, 160'000u);
  EXPECT_NEAR(static_cast<double>(six.lengths.at(48)), 75'419, 1);
  EXPECT_NEAR(static_cast<double>(six.lengths.at(32)), 22'527, 1);
  // Measured on real tables: 49 % and 43 % at the top, 36 % and 38 % one deep, 0.8 of the nested with the parent's next
  // hop.
  for (const Shape& s : {four, six}) {
    const auto all = static_cast<double>(s.count);
    EXPECT_NEAR(static_cast<double>(s.depth[0]) / all, 0.44, 0.12);
    EXPECT_NEAR(static_cast<double>(s.depth[1]) / all, 0.36, 0.06);
    EXPECT_GT(s.depth[3], s.count / 100);
    EXPECT_NEAR(static_cast<double>(s.same_as_parent) / static_cast<double>(s.nested), 0.84, 0.06);
    EXPECT_NEAR(static_cast<double>(s.same_as_previous) / all, 0.78, 0.1);
  }
  std::sort(hops.rbegin(), hops.rend());
  EXPECT_NEAR(static_cast<double>(hops[0]) / 1'060'000, 0.165, 0.03);  // 1 / H(256) = 0.163
  EXPECT_GT(hops[255], 0u);
}

// Neighbours: of the announced /24s, how many have the other half of their /23 announced too. Random ones would have 4
// %.
TEST(RoutesTest, PrefixesComeInRuns) {
  const auto routes = routes_of({.ipv6_count = 0});
  std::set<uint64_t> blocks;
  for (const auto& r : routes) {
    if (r.prefix.length == 24) blocks.insert(r.prefix.address.lo >> 8);
  }
  size_t paired = 0;
  for (const uint64_t b : blocks) paired += blocks.count(b ^ 1);
  EXPECT_NEAR(static_cast<double>(paired) / static_cast<double>(blocks.size()), 0.75, 0.1);
}

TEST(RoutesTest, AnyCountsAreExactAndUnique) {
  for (const auto& [four, six] :
       {std::pair{0u, 0u}, {1u, 0u}, {0u, 1u}, {7u, 5u}, {1000u, 3000u}, {50'000u, 20'000u}}) {
    for (const uint64_t seed : {1ull, 99ull}) {
      const auto routes = routes_of({.ipv4_count = four, .ipv6_count = six, .next_hops = 3, .seed = seed});
      ASSERT_EQ(routes.size(), four + six);
      EXPECT_EQ(std::count_if(routes.begin(), routes.end(), [](const auto& r) { return r.prefix.address.family == 4; }),
                four);
      for (size_t i = 1; i < routes.size(); ++i) ASSERT_TRUE(before(routes[i - 1].prefix, routes[i].prefix));
      for (const auto& r : routes) ASSERT_TRUE(r.next_hop >= 1 && r.next_hop <= 3);
    }
  }
}

TEST(RoutesTest, TheLargestTablesComeToAnEnd) {
  const auto routes = routes_of({.ipv4_count = 2'000'000, .ipv6_count = 100});
  EXPECT_EQ(routes.size(), 2'000'100u);
}

TEST(RoutesTest, TextIsWhatTheListSays) {
  const RoutesOptions options{.ipv4_count = 2000, .ipv6_count = 1000, .seed = 12};
  auto text = generate_routes(options);
  ASSERT_TRUE(text.ok());
  std::istringstream in(*text);
  std::string prefix;
  uint32_t hop;
  size_t i = 0;
  const auto routes = routes_of(options);
  for (; in >> prefix >> hop; ++i) {
    bool host_bits = true;
    const auto parsed = parse_prefix(prefix, &host_bits);
    ASSERT_TRUE(parsed.has_value()) << prefix;
    EXPECT_FALSE(host_bits);
    ASSERT_EQ(*parsed, routes[i].prefix);
    ASSERT_EQ(hop, routes[i].next_hop);
  }
  EXPECT_EQ(i, routes.size());
}

TEST(RoutesTest, SameSeedSameBytesEverywhere) {
  auto text = generate_routes({.ipv4_count = 20'000, .ipv6_count = 5'000, .seed = 1});
  ASSERT_TRUE(text.ok());
  uint64_t h = 0;
  for (const char c : *text) h = mix64(h ^ static_cast<unsigned char>(c));
  EXPECT_EQ(h, 0xc6b4c25d5c0f96d4ull) << std::hex << h;
  EXPECT_NE(*generate_routes({.ipv4_count = 20'000, .ipv6_count = 5'000, .seed = 2}), *text);
}

TEST(RoutesTest, OptionsOutOfRangeAreRefused) {
  EXPECT_FALSE(generate_routes({.ipv4_count = 2'000'001}).ok());
  EXPECT_FALSE(generate_routes({.ipv6_count = 2'000'001}).ok());
  EXPECT_FALSE(generate_routes({.next_hops = 0}).ok());
  EXPECT_FALSE(generate_routes({.next_hops = 65'536}).ok());
}

}  // namespace
}  // namespace sluice
