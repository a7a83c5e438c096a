// Real full tables: every algorithm and instruction set agrees with the trie. SLUICE_TEST_SCALE >= 50 asks for 10
// million addresses a pattern, the default is 200,000.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/test_data.h"
#include "formats/route_text.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

using namespace lpm_test;

size_t address_count() {
  const char* scale = std::getenv("SLUICE_TEST_SCALE");
  const long n = scale != nullptr ? std::strtol(scale, nullptr, 10) : 1;
  return static_cast<size_t>(std::min(std::max(n, 1L), 50L)) * 200'000;
}

// Nothing when the data is not there.
std::optional<Rib> full_tables() {
  Rib rib;
  for (const char* name : {"rib/ipv4-tier1-2024-01.nh256.txt.xz", "rib/ipv6-tier1-2024-01.nh256.txt.xz"}) {
    const auto path = test_data(name);
    if (!path) return std::nullopt;
    std::string text;
    FILE* pipe = popen(("xz -dc '" + *path + "'").c_str(), "r");
    if (pipe == nullptr) return std::nullopt;
    static char chunk[1 << 20];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) text.append(chunk, n);
    if (pclose(pipe) != 0) return std::nullopt;
    auto report = parse_routes(text, name, rib);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : to_string(report.error()));
  }
  rib.settle();
  return rib;
}

TEST(FullTable, EveryAlgorithmAgreesWithTheTrie) {
  const auto rib = full_tables();
  if (!rib) GTEST_SKIP() << "no full tables (or no xz): set SLUICE_DATA to a folder with rib/*.txt.xz";
  EXPECT_EQ(rib->routes4().size(), 901899u);
  EXPECT_EQ(rib->routes6().size(), 160147u);
  EXPECT_EQ(rib->next_hop_count(), 256u);
  EXPECT_EQ(rib->duplicates(), 0u);
  const size_t n = address_count();
  const auto oracle = build_routes(*rib, "trie", "trie");
  ASSERT_TRUE(oracle.ok());
  const auto oracle4 = Trie4View::open(oracle->section(SectionTag::kFib4), 256);
  const auto oracle6 = Trie6View::open(oracle->section(SectionTag::kFib6), 256);
  ASSERT_TRUE(oracle4.ok() && oracle6.ok());
  std::vector<uint32_t> got(n);

  struct Pattern {
    const char* name;
    std::vector<uint32_t> a4;
    Addresses6 a6;
    std::vector<uint32_t> expected4, expected6;
  };
  // The trie itself against the definition first, on a few addresses.
  for (uint32_t a : prefix_weighted4(rib->routes4(), 20, 77))
    EXPECT_EQ(oracle4->lookup(a), linear_lookup4(rib->routes4(), a));
  const Addresses6 few = prefix_weighted6(rib->routes6(), 50, 78);
  for (size_t i = 0; i < few.hi.size(); ++i) {
    EXPECT_EQ(oracle6->lookup(few.hi[i], few.lo[i]), linear_lookup6(rib->routes6(), few.hi[i], few.lo[i]));
  }
  std::vector<Pattern> patterns;
  patterns.push_back({"uniform", uniform4(n, 2), uniform6(n, 4), std::vector<uint32_t>(n), std::vector<uint32_t>(n)});
  patterns.push_back({"prefix-weighted", prefix_weighted4(rib->routes4(), n, 1), prefix_weighted6(rib->routes6(), n, 3),
                      std::vector<uint32_t>(n), std::vector<uint32_t>(n)});
  auto hits = [](const std::vector<uint32_t>& v) {
    return v.size() - static_cast<size_t>(std::count(v.begin(), v.end(), 0u));
  };
  for (Pattern& p : patterns) {
    oracle4->lookup_bulk(p.a4.data(), p.expected4.data(), n);
    oracle6->lookup_bulk(p.a6.hi.data(), p.a6.lo.data(), p.expected6.data(), n);
  }
  // The comparison must not be between zeros: half of IPv4 is routed, little of 2000::/3, and all of a prefix.
  EXPECT_GT(hits(patterns[0].expected4), n / 3);
  EXPECT_GT(hits(patterns[0].expected6), n / 10000);
  EXPECT_EQ(hits(patterns[1].expected4), n);
  EXPECT_EQ(hits(patterns[1].expected6), n);

  for_each_lpm<AllLpm4>([&]<typename A>(A) {
    const bool all_routes = std::string_view(A::kName) == "linear";  // a millisecond a lookup
    const auto image = build4<A>(*rib);
    ASSERT_TRUE(image.ok());
    const auto view = A::View4::open(image->section(SectionTag::kFib4), 256);
    ASSERT_TRUE(view.ok());
    for (const Pattern& p : patterns) {
      for (LpmIsa isa : available_lpm_isas()) {
        if (std::string_view(A::kName) == "trie" || all_routes) break;  // it is the expectation
        std::fill(got.begin(), got.end(), 0xffffffffu);
        view->lookup_bulk(isa, p.a4.data(), got.data(), n);
        EXPECT_TRUE(got == p.expected4) << A::kName << ' ' << to_string(isa) << ' ' << p.name;
      }
      size_t wrong = 0;
      for (size_t i = 0; i < n; i += all_routes ? n / 40 : 7) wrong += view->lookup(p.a4[i]) != p.expected4[i] ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << A::kName << ' ' << p.name;
    }
  });
  for_each_lpm<AllLpm6>([&]<typename A>(A) {
    const bool all_routes = std::string_view(A::kName) == "linear";
    const auto image = build6<A>(*rib);
    ASSERT_TRUE(image.ok());
    const auto view = A::View6::open(image->section(SectionTag::kFib6), 256);
    ASSERT_TRUE(view.ok());
    for (const Pattern& p : patterns) {
      for (LpmIsa isa : available_lpm_isas()) {
        if (std::string_view(A::kName) == "trie" || all_routes) break;
        std::fill(got.begin(), got.end(), 0xffffffffu);
        view->lookup_bulk(isa, p.a6.hi.data(), p.a6.lo.data(), got.data(), n);
        EXPECT_TRUE(got == p.expected6) << A::kName << ' ' << to_string(isa) << ' ' << p.name;
      }
      size_t wrong = 0;
      for (size_t i = 0; i < n; i += all_routes ? n / 40 : 7)
        wrong += view->lookup(p.a6.hi[i], p.a6.lo[i]) != p.expected6[i] ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << A::kName << ' ' << p.name;
    }
  });
}

// What a second-level cache can hold: a full table of either family, by each structure that is called compressed.
TEST(FullTable, CompressedImagesTakeLessThanFourMegabytes) {
  const auto rib = full_tables();
  if (!rib) GTEST_SKIP() << "no full tables (or no xz): set SLUICE_DATA to a folder with rib/*.txt.xz";
  for (const char* six : {"poptrie", "range24", "planb"}) {
    const auto image = build_routes(*rib, "poptrie", six);
    ASSERT_TRUE(image.ok());
    EXPECT_LT(image->section(SectionTag::kFib4).size(), 4'000'000u);
    EXPECT_LT(image->section(SectionTag::kFib6).size(), 4'000'000u) << six;
  }
}

}  // namespace
}  // namespace sluice
