#include <gtest/gtest.h>

#include <set>

#include "formats/route_text.h"
#include "generate/routes.h"
#include "net/text.h"

namespace sluice {
namespace {

Rib table(const std::string& text) {
  Rib rib;
  auto report = parse_routes(text, "routes", rib);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : to_string(report.error()));
  rib.settle();
  return rib;
}

Rib like(const Rib& rib, uint32_t count, uint64_t seed = 1) {
  auto text = generate_routes_like(rib, {count, seed});
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : to_string(text.error()));
  return text.ok() ? table(*text) : Rib();
}

bool covers(const IpPrefix& outer, const IpPrefix& inner) {
  if (outer.length > inner.length || outer.address.family != inner.address.family) return false;
  const unsigned bits = outer.length;
  if (outer.address.family == 4) {
    return ((outer.address.lo ^ inner.address.lo) & high_mask32(bits)) == 0;
  }
  return ((outer.address.hi ^ inner.address.hi) & high_mask64(std::min(bits, 64u))) == 0 &&
         ((outer.address.lo ^ inner.address.lo) & high_mask64(bits > 64 ? bits - 64 : 0)) == 0;
}

Rib small() {
  RoutesOptions options;
  options.ipv4_count = 3000;
  options.ipv6_count = 1000;
  return table(*generate_routes(options));
}

TEST(RoutesLike, FewerAreASampleOfTheTable) {
  const Rib rib = small();
  const Rib made = like(rib, 400);
  EXPECT_EQ(made.routes4().size(), 300u);
  EXPECT_EQ(made.routes6().size(), 100u);
  for (const Route4& r : made.routes4()) {
    const uint32_t id = rib.find({{0, r.address, 4}, r.length});
    ASSERT_NE(id, 0u);
    EXPECT_EQ(rib.next_hop_name(id), made.next_hop_name(r.next_hop));
  }
  EXPECT_EQ(like(rib, static_cast<uint32_t>(rib.size())).size(), rib.size());
  EXPECT_EQ(like(rib, 0).size(), 0u);
}

TEST(RoutesLike, MoreAreTheTableAndPartsOfIt) {
  const Rib rib = small();
  const Rib made = like(rib, 12000);
  EXPECT_EQ(made.routes4().size(), 9000u);
  EXPECT_EQ(made.routes6().size(), 3000u);
  size_t kept = 0;
  std::vector<IpPrefix> real;
  for (const Route4& r : rib.routes4()) {
    real.push_back({{0, r.address, 4}, r.length});
    kept += made.find(real.back()) != 0 ? 1 : 0;
  }
  EXPECT_EQ(kept, rib.routes4().size());
  for (size_t i = 0; i < made.routes4().size(); i += 50) {
    const Route4& r = made.routes4()[i];
    const IpPrefix p{{0, r.address, 4}, r.length};
    EXPECT_TRUE(std::any_of(real.begin(), real.end(), [&](const IpPrefix& outer) { return covers(outer, p); }))
        << to_string(p);
  }
}

TEST(RoutesLike, SameSeedSameTable) {
  const Rib rib = small();
  EXPECT_EQ(*generate_routes_like(rib, {5000, 3}), *generate_routes_like(rib, {5000, 3}));
  EXPECT_NE(*generate_routes_like(rib, {5000, 3}), *generate_routes_like(rib, {5000, 4}));
}

TEST(RoutesLike, SaysWhatItCannotDo) {
  EXPECT_FALSE(generate_routes_like(Rib(), {10, 1}).ok());
  EXPECT_FALSE(generate_routes_like(small(), {5'000'000, 1}).ok());
  // A single host route cannot be split.
  EXPECT_FALSE(generate_routes_like(table("10.0.0.1/32 a\n"), {2, 1}).ok());
  EXPECT_EQ(like(table("10.0.0.0/30 a\n"), 4).size(), 4u);
}

}  // namespace
}  // namespace sluice
