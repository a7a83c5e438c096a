// Every LPM algorithm x {one by one, bulk by each instruction set, reloaded image, view of a copy} against the trie,
// and the trie against the definition.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

using namespace lpm_test;

Image build(const Rib& rib, const char* algorithm4, const char* algorithm6) {
  auto image = build_routes(rib, algorithm4, algorithm6);
  EXPECT_TRUE(image.ok()) << (image.ok() ? "" : to_string(image.error()));
  return std::move(*image);
}

// What a view says by every way in; all ways must agree.
template <typename View>
std::vector<uint32_t> ask4(const View& view, const std::vector<uint32_t>& addresses) {
  std::vector<uint32_t> expected(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    view.prefetch(addresses[i]);
    expected[i] = view.lookup(addresses[i]);
  }
  std::vector<uint32_t> got(addresses.size(), 0xdeadbeef);
  for (LpmIsa isa : available_lpm_isas()) {
    std::fill(got.begin(), got.end(), 0xdeadbeef);
    view.lookup_bulk(isa, addresses.data(), got.data(), got.size());
    EXPECT_EQ(got, expected) << to_string(isa);
  }
  // Bursts of every size up to 40, one after the other, and nothing past their ends.
  size_t at = 0;
  for (size_t n = 0; at + n <= addresses.size(); n = (n + 1) % 41) {
    uint32_t out[42];
    std::fill(out, out + 42, 0xdeadbeef);
    view.lookup_burst(addresses.data() + at, out, n);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], expected[at + i]);
    EXPECT_EQ(out[n], 0xdeadbeef);
    if constexpr (requires { view.ask(addresses.data(), out, n); }) {
      uint32_t places[42];
      std::fill(out, out + 42, 0xdeadbeef);
      std::fill(places, places + 42, 0xdeadbeef);
      view.ask(addresses.data() + at, places, n);
      view.answer(addresses.data() + at, places, out, n);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], expected[at + i]);
      EXPECT_EQ(out[n], 0xdeadbeef);
      EXPECT_EQ(places[n], 0xdeadbeef);
    }
    at += n;
  }
  return expected;
}

template <typename View>
std::vector<uint32_t> ask6(const View& view, const Addresses6& a) {
  std::vector<uint32_t> expected(a.hi.size());
  for (size_t i = 0; i < a.hi.size(); ++i) {
    view.prefetch(a.hi[i], a.lo[i]);
    expected[i] = view.lookup(a.hi[i], a.lo[i]);
  }
  std::vector<uint32_t> got(expected.size());
  for (LpmIsa isa : available_lpm_isas()) {
    std::fill(got.begin(), got.end(), 0xdeadbeef);
    view.lookup_bulk(isa, a.hi.data(), a.lo.data(), got.data(), got.size());
    EXPECT_EQ(got, expected) << to_string(isa);
  }
  size_t at = 0;
  for (size_t n = 0; at + n <= a.hi.size(); n = (n + 1) % 41) {
    uint32_t out[42];
    std::fill(out, out + 42, 0xdeadbeef);
    view.lookup_burst(a.hi.data() + at, a.lo.data() + at, out, n);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], expected[at + i]);
    EXPECT_EQ(out[n], 0xdeadbeef);
    if constexpr (requires { view.ask(a.hi.data(), out, n); }) {
      uint32_t places[42];
      std::fill(out, out + 42, 0xdeadbeef);
      std::fill(places, places + 42, 0xdeadbeef);
      view.ask(a.hi.data() + at, places, n);
      view.answer(a.hi.data() + at, a.lo.data() + at, places, out, n);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], expected[at + i]);
      EXPECT_EQ(out[n], 0xdeadbeef);
      EXPECT_EQ(places[n], 0xdeadbeef);
    }
    at += n;
  }
  return expected;
}

std::vector<uint32_t> ask4(const Image& image, const std::vector<uint32_t>& addresses) {
  std::vector<uint32_t> out;
  auto ok = with_fib4(image, [&](const auto& view) { out = ask4(view, addresses); });
  EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : to_string(ok.error()));
  return out;
}
std::vector<uint32_t> ask6(const Image& image, const Addresses6& addresses) {
  std::vector<uint32_t> out;
  auto ok = with_fib6(image, [&](const auto& view) { out = ask6(view, addresses); });
  EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : to_string(ok.error()));
  return out;
}

// The table of `A`, which may be in no product.
template <typename A>
std::vector<uint32_t> ask4_as(const Image& image, const Rib& rib, const std::vector<uint32_t>& addresses) {
  std::vector<uint32_t> out;
  auto ok = with_view4<A>(image, rib, [&](const auto& view) { out = ask4(view, addresses); });
  EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : to_string(ok.error()));
  return out;
}
template <typename A>
std::vector<uint32_t> ask6_as(const Image& image, const Rib& rib, const Addresses6& addresses) {
  std::vector<uint32_t> out;
  auto ok = with_view6<A>(image, rib, [&](const auto& view) { out = ask6(view, addresses); });
  EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : to_string(ok.error()));
  return out;
}
template <typename A>
Image built4(const Rib& rib) {
  auto image = build4<A>(rib);
  EXPECT_TRUE(image.ok()) << (image.ok() ? "" : to_string(image.error()));
  return std::move(*image);
}
template <typename A>
Image built6(const Rib& rib) {
  auto image = build6<A>(rib);
  EXPECT_TRUE(image.ok()) << (image.ok() ? "" : to_string(image.error()));
  return std::move(*image);
}

// Every algorithm against the trie, the trie against the definition, on the edges of all prefixes and random addresses.
void expect_conformance(const Rib& rib, bool reload) {
  std::vector<uint32_t> a4 = edge_addresses(rib.routes4());
  Addresses6 a6 = edge_addresses(rib.routes6());
  const auto random4 = uniform4(200, 4);
  a4.insert(a4.end(), random4.begin(), random4.end());
  const Addresses6 random6 = uniform6(200, 6);
  a6.hi.insert(a6.hi.end(), random6.hi.begin(), random6.hi.end());
  a6.lo.insert(a6.lo.end(), random6.lo.begin(), random6.lo.end());

  const Image oracle = build(rib, "trie", "trie");
  const auto expected4 = ask4(oracle, a4);
  const auto expected6 = ask6(oracle, a6);
  const size_t linear_limit = 2'000'000 / (rib.size() + 1);
  for (size_t i = 0; i < std::min(a4.size(), linear_limit); ++i) {
    ASSERT_EQ(expected4[i], linear_lookup4(rib.routes4(), a4[i])) << std::hex << a4[i];
  }
  for (size_t i = 0; i < std::min(a6.hi.size(), linear_limit); ++i) {
    ASSERT_EQ(expected6[i], linear_lookup6(rib.routes6(), a6.hi[i], a6.lo[i]))
        << std::hex << a6.hi[i] << ':' << a6.lo[i];
  }
  // A search through all routes gets as many addresses as it can afford.
  const size_t few = std::max<size_t>(50, linear_limit);
  for_each_lpm<AllLpm4>([&]<typename A>(A) {
    const Image image = built4<A>(rib);
    if (std::string_view(A::kName) == "linear" && a4.size() > few) {
      EXPECT_EQ(ask4_as<A>(image, rib, {a4.end() - static_cast<ptrdiff_t>(few), a4.end()}),
                (std::vector<uint32_t>{expected4.end() - static_cast<ptrdiff_t>(few), expected4.end()}));
      return;
    }
    EXPECT_EQ(ask4_as<A>(image, rib, a4), expected4) << A::kName;
    if (!reload) return;
    auto again = Image::from_bytes(image.bytes(), ImageKind::kRoutes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(ask4_as<A>(*again, rib, a4), expected4) << A::kName << " reloaded";
    // A view moved to a copy answers from the copy.
    auto view = A::View4::open(image.section(SectionTag::kFib4), rib.next_hop_count());
    ASSERT_TRUE(view.ok());
    const auto moved =
        relocated(*view, image.section(SectionTag::kFib4).data(), again->section(SectionTag::kFib4).data());
    for (size_t i = 0; i < a4.size(); ++i) ASSERT_EQ(moved.lookup(a4[i]), expected4[i]);
  });
  for_each_lpm<AllLpm6>([&]<typename A>(A) {
    const Image image = built6<A>(rib);
    if (std::string_view(A::kName) == "linear" && a6.hi.size() > few) {
      const auto from = static_cast<ptrdiff_t>(a6.hi.size() - few);
      Addresses6 last;
      last.hi.assign(a6.hi.begin() + from, a6.hi.end());
      last.lo.assign(a6.lo.begin() + from, a6.lo.end());
      EXPECT_EQ(ask6_as<A>(image, rib, last), (std::vector<uint32_t>{expected6.begin() + from, expected6.end()}));
      return;
    }
    EXPECT_EQ(ask6_as<A>(image, rib, a6), expected6) << A::kName;
    if (!reload) return;
    auto again = Image::from_bytes(image.bytes(), ImageKind::kRoutes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(ask6_as<A>(*again, rib, a6), expected6) << A::kName << " reloaded";
    auto view = A::View6::open(image.section(SectionTag::kFib6), rib.next_hop_count());
    ASSERT_TRUE(view.ok());
    const auto moved =
        relocated(*view, image.section(SectionTag::kFib6).data(), again->section(SectionTag::kFib6).data());
    for (size_t i = 0; i < a6.hi.size(); ++i) ASSERT_EQ(moved.lookup(a6.hi[i], a6.lo[i]), expected6[i]);
  });
}

// The size of a trie's section follows from the routes alone: a leaf of 8 bytes for each that holds no other, a node of
// 8 bytes between each two leaves, and an entry for each route and for "no route".
template <typename Route>
size_t trie_bytes(std::span<const Route> routes, size_t entry) {
  size_t leaves = 0;
  for (const Route& outer : routes) {
    bool holds = false;
    for (const Route& r : routes) {
      holds |= &r != &outer && route_begin(outer) <= route_begin(r) && route_last(r) <= route_last(outer);
    }
    leaves += holds ? 0 : 1;
  }
  return 64 + 8 * (2 * std::max<size_t>(leaves, 1) - 1) + entry * (routes.size() + 1);
}

// The trie tests bits on its way down without comparing: any address at all comes to some leaf, and the longest match
// is there or covers it. Routes that share most of their bits, against the definition.
TEST(LpmConformance, TrieFindsTheLongestMatchFromAnyLeaf) {
  EXPECT_TRUE(rc::check([] {
    Rib rib;
    intern_ids(rib, 9);
    const size_t count = *rc::gen::inRange<size_t>(0, 40);
    const uint64_t stem = *rc::gen::arbitrary<uint64_t>();
    // A stem with a few of its bits turned, wherever those are.
    auto near = [&] {
      uint64_t out = stem;
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i) out ^= uint64_t{1} << *rc::gen::inRange(0, 64);
      return out;
    };
    for (size_t i = 0; i < count; ++i) {
      const uint64_t hi = near(), lo = near();
      rib.add(prefix4(static_cast<uint32_t>(hi >> 32), *rc::gen::inRange(0u, 33u)), 1 + i % 9);
      rib.add(prefix6(hi, lo, *rc::gen::inRange(0u, 129u)), 1 + i % 9);
    }
    rib.settle();
    const auto image = build_routes(rib, "trie", "trie");
    RC_ASSERT(image.ok());
    const auto four = Trie4View::open(image->section(SectionTag::kFib4), 9);
    const auto six = Trie6View::open(image->section(SectionTag::kFib6), 9);
    RC_ASSERT(four.ok() && six.ok());
    for (int i = 0; i < 20; ++i) {
      const uint64_t hi = near(), lo = near();
      const auto low = static_cast<uint32_t>(hi >> 32);
      RC_ASSERT(four->lookup(low) == linear_lookup4(rib.routes4(), low));
      RC_ASSERT(six->lookup(hi, lo) == linear_lookup6(rib.routes6(), hi, lo));
    }
    RC_ASSERT(image->section(SectionTag::kFib4).size() == trie_bytes(rib.routes4(), 12));
    RC_ASSERT(image->section(SectionTag::kFib6).size() == trie_bytes(rib.routes6(), 24));
  }));
}

TEST(LpmConformance, EmptyTableAnswersNothing) {
  Rib rib;
  expect_conformance(rib, true);
}

TEST(LpmConformance, DefaultRouteAnswersEverywhere) {
  Rib rib;
  intern_ids(rib, 1);
  rib.add(prefix4(0, 0), 1);
  rib.add(prefix6(0, 0, 0), 1);
  rib.settle();
  expect_conformance(rib, true);
  EXPECT_EQ(linear_lookup4(rib.routes4(), 0xffffffffu), 1u);
}

TEST(LpmConformance, HostRoutesAtTheEndsOfTheLine) {
  Rib rib;
  intern_ids(rib, 8);
  rib.add(prefix4(0, 32), 1);
  rib.add(prefix4(0xffffffffu, 32), 2);
  rib.add(prefix4(0x80000000u, 32), 3);
  rib.add(prefix4(0x7fffffffu, 32), 4);
  rib.add(prefix6(0, 0, 128), 5);
  rib.add(prefix6(~0ull, ~0ull, 128), 6);
  rib.add(prefix6(0x2000000000000000ull, 0, 128), 7);
  rib.add(prefix6(0x3fffffffffffffffull, ~0ull, 128), 8);
  rib.settle();
  expect_conformance(rib, true);
}

constexpr uint64_t kPaths[] = {0ull, ~0ull, 0x2aaaaaaaaaaaaaaaull, 0x20010db8c0a80101ull};
// All lengths nested, /0 to /32 and /128, along paths of zeros, of ones and mixed; next hops repeat so that runs merge
// and split.
Rib every_length_nested(uint32_t hops) {
  Rib rib;
  intern_ids(rib, hops);
  for (uint64_t pattern : kPaths) {
    for (unsigned length = 0; length <= 128; ++length) {
      if (length <= 32) rib.add(prefix4(static_cast<uint32_t>(pattern), length), 1 + length % hops);
      rib.add(prefix6(pattern, pattern * 3, length), 1 + length % hops);
    }
  }
  rib.settle();
  return rib;
}

TEST(LpmConformance, EveryLengthNested) {
  for (uint32_t hops : {1u, 2u, 129u}) expect_conformance(every_length_nested(hops), false);
}

// The same table by every algorithm and instruction set at many addresses: any address, and addresses that leave a path
// at a random length. 10,000 of each, times SLUICE_TEST_SCALE (1000: ten million).
TEST(LpmConformance, EveryLengthNestedAtManyAddresses) {
  const char* set = std::getenv("SLUICE_TEST_SCALE");
  const size_t count = 10'000 * std::max<size_t>(1, set == nullptr ? 1 : std::strtoul(set, nullptr, 10));
  const Rib rib = every_length_nested(129);
  std::vector<Image> images4, images6;
  for (const std::string& name : lpm_algorithm_names4()) images4.push_back(build(rib, name.c_str(), "trie"));
  for (const std::string& name : lpm_algorithm_names6()) images6.push_back(build(rib, "trie", name.c_str()));
  const Image oracle = build(rib, "trie", "trie");
  const auto oracle4 = Trie4View::open(oracle.section(SectionTag::kFib4), rib.next_hop_count());
  const auto oracle6 = Trie6View::open(oracle.section(SectionTag::kFib6), rib.next_hop_count());
  ASSERT_TRUE(oracle4.ok() && oracle6.ok());
  std::mt19937_64 random(23);
  constexpr size_t kBlock = 10'000;
  std::vector<uint32_t> a4(kBlock), expected4(kBlock), expected6(kBlock), got(kBlock);
  Addresses6 a6{std::vector<uint64_t>(kBlock), std::vector<uint64_t>(kBlock)};
  std::set<uint32_t> seen4, seen6;
  for (const bool along : {false, true}) {
    for (size_t done = 0; done < count; done += kBlock) {
      for (size_t i = 0; i < kBlock; ++i) {
        uint64_t hi = random(), lo = random();
        const uint64_t path = kPaths[random() % 4];
        auto low = static_cast<uint32_t>(random());
        if (along) {
          const auto length = static_cast<unsigned>(random() % 129);
          const IpPrefix stem = prefix6(path, path * 3, length);
          uint64_t stem_hi = ~0ull, stem_lo = ~0ull;
          mask_address(stem_hi, stem_lo, length);
          hi = stem.address.hi | (hi & ~stem_hi);
          lo = stem.address.lo | (lo & ~stem_lo);
          const uint32_t mask = high_mask32(static_cast<unsigned>(random() % 33));
          low = (static_cast<uint32_t>(path) & mask) | (low & ~mask);
        }
        a4[i] = low;
        a6.hi[i] = hi;
        a6.lo[i] = lo;
        expected4[i] = oracle4->lookup(low);
        expected6[i] = oracle6->lookup(hi, lo);
        seen4.insert(expected4[i]);
        seen6.insert(expected6[i]);
      }
      for (const LpmIsa isa : available_lpm_isas()) {
        for (const Image& image : images4) {
          (void)with_fib4(image, [&](const auto& view) { view.lookup_bulk(isa, a4.data(), got.data(), kBlock); });
          ASSERT_EQ(got, expected4) << section_algorithm(*image.find(SectionTag::kFib4)) << ' ' << to_string(isa);
        }
        for (const Image& image : images6) {
          (void)with_fib6(
              image, [&](const auto& view) { view.lookup_bulk(isa, a6.hi.data(), a6.lo.data(), got.data(), kBlock); });
          ASSERT_EQ(got, expected6) << section_algorithm(*image.find(SectionTag::kFib6)) << ' ' << to_string(isa);
        }
      }
    }
  }
  // Every length answered but /0: the two /1s cover all.
  EXPECT_EQ(seen4.size(), 32u);
  EXPECT_EQ(seen6.size(), 128u);
}

// All 256 host routes of one /24, and each second one of the next: blocks at both sides of a /24 border.
TEST(LpmConformance, DenseHostRoutes) {
  Rib rib;
  intern_ids(rib, 300);
  for (uint32_t i = 0; i < 512; i += i < 256 ? 1 : 2) {
    rib.add(prefix4(0x0a0000ffu + i, 32), 1 + i % 300);
    rib.add(prefix6(0x20010db800000000ull, 0xffull + i, 128), 1 + i % 300);
    rib.add(prefix6(0x20010db800000000ull + (uint64_t{i} << 8), 0, 56), 1 + i % 300);
  }
  rib.settle();
  expect_conformance(rib, true);
}

TEST(LpmConformance, RandomTablesOfManySizes) {
  for (uint64_t seed : {1u, 2u, 3u}) {
    for (size_t routes : {1u, 10u, 300u}) expect_conformance(random_rib(seed, routes, 1 + seed * 7), seed == 1);
  }
  expect_conformance(random_rib(9, 20000, 500), true);
}

// More next hops and blocks than 16 bits hold: dir24 goes wide and still agrees.
TEST(LpmConformance, SixteenBitEntriesRunOut) {
  Rib rib;
  intern_ids(rib, 65535);
  for (uint32_t i = 0; i < 3000; ++i) rib.add(prefix4(0x0b000000u + i * 128, 25), 65535 - i);
  rib.settle();
  const Image image = build(rib, "dir24", "trie");
  auto view = Dir24View::open(image.section(SectionTag::kFib4), 65535);
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(view->wide());
  EXPECT_EQ(view->lookup(0x0b000000u), 65535u);
  expect_conformance(rib, true);
  // One id fewer than the limit with one block stays narrow.
  Rib narrow;
  intern_ids(narrow, 65534);
  narrow.add(prefix4(0x01020304, 32), 65534);
  narrow.settle();
  const Image small = build(narrow, "dir24", "trie");
  auto narrow_view = Dir24View::open(small.section(SectionTag::kFib4), 65534);
  ASSERT_TRUE(narrow_view.ok());
  EXPECT_FALSE(narrow_view->wide());
  EXPECT_EQ(narrow_view->lookup(0x01020304), 65534u);
  EXPECT_EQ(narrow_view->lookup(0x01020305), 0u);
}

// Vector steps look at 32 addresses at once and answer those in blocks apart, few of them in another way than many:
// every size of a burst up to two steps and a part, with every number of addresses in blocks, in both entry widths.
TEST(LpmConformance, Dir24BurstsWithAnyNumberOfAddressesInBlocks) {
  Rib rib;
  intern_ids(rib, 600);
  rib.add(prefix4(0x0a000000, 8), 600);
  for (uint32_t i = 0; i < 512; ++i) rib.add(prefix4(0x0a010000 + i, 32), 1 + i);  // two blocks
  rib.settle();
  std::mt19937 random(7);
  for (bool wide : {false, true}) {
    auto plan = plan_dir24(rib, wide);
    ASSERT_TRUE(plan.ok());
    auto buffer = Buffer::allocate(plan->bytes);
    ASSERT_TRUE(buffer.ok());
    plan->write({buffer->data(), buffer->size()});
    auto view = Dir24View::open({buffer->data(), buffer->size()}, rib.next_hop_count());
    ASSERT_TRUE(view.ok());
    ASSERT_EQ(view->wide(), wide);
    for (size_t n = 0; n <= 70; ++n) {
      for (size_t in_blocks = 0; in_blocks <= std::min<size_t>(n, 33); ++in_blocks) {
        // Exact sizes, so that a sanitizer sees any access past the end.
        std::vector<uint32_t> addresses(n), expected(n);
        for (size_t i = 0; i < n; ++i) {
          const uint32_t low = random();
          addresses[i] = i < in_blocks ? 0x0a010000 + low % 512 : low % 8 == 0 ? low : 0x0a020000 + low % 65536;
        }
        std::shuffle(addresses.begin(), addresses.end(), random);
        for (size_t i = 0; i < n; ++i) {
          const uint32_t a = addresses[i];
          expected[i] = a >> 24 != 0x0a ? 0 : a - 0x0a010000 < 512 ? 1 + (a - 0x0a010000) : 600;
        }
        std::vector<uint32_t> got(n, 0xdeadbeef);
        view->lookup_bulk(addresses.data(), got.data(), n);
        ASSERT_EQ(got, expected) << n << " addresses, " << in_blocks << " in blocks";
        for (LpmIsa isa : available_lpm_isas()) {
          got.assign(n, 0xdeadbeef);
          view->lookup_bulk(isa, addresses.data(), got.data(), n);
          ASSERT_EQ(got, expected) << to_string(isa) << ", " << n << " addresses, " << in_blocks << " in blocks";
        }
      }
    }
  }
}

TEST(LpmConformance, AnyTableAgreesWithTheDefinition) {
  rc::detail::TestParams params;
  params.maxSuccess = 25;
  params.maxSize = 100;
  const auto result = rc::detail::checkTestable(
      [] {
        const auto routes = *rc::gen::container<std::vector<std::tuple<uint32_t, uint64_t, uint64_t, uint8_t>>>(
            rc::gen::tuple(rc::gen::arbitrary<uint32_t>(), rc::gen::arbitrary<uint64_t>(),
                           rc::gen::arbitrary<uint64_t>(), rc::gen::arbitrary<uint8_t>()));
        Rib rib;
        intern_ids(rib, 7);
        for (const auto& [address, hi, lo, bits] : routes) {
          rib.add(prefix4(address, bits % 33), 1 + address % 7);
          rib.add(prefix6(hi, lo, bits % 129), 1 + static_cast<uint32_t>(hi % 7));
        }
        rib.settle();
        const auto a4 = edge_addresses(rib.routes4());
        const auto a6 = edge_addresses(rib.routes6());
        for_each_lpm<AllLpm4>([&]<typename A>(A) {
          const Image image = built4<A>(rib);
          RC_ASSERT(with_view4<A>(image, rib, [&](const auto& view) {
                      for (uint32_t a : a4) RC_ASSERT(view.lookup(a) == linear_lookup4(rib.routes4(), a));
                    }).ok());
        });
        for_each_lpm<AllLpm6>([&]<typename A>(A) {
          const Image image = built6<A>(rib);
          RC_ASSERT(with_view6<A>(image, rib, [&](const auto& view) {
                      for (size_t i = 0; i < a6.hi.size(); ++i) {
                        RC_ASSERT(view.lookup(a6.hi[i], a6.lo[i]) == linear_lookup6(rib.routes6(), a6.hi[i], a6.lo[i]));
                      }
                    }).ok());
        });
      },
      rc::detail::TestMetadata(), params);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << [&] {
    std::ostringstream os;
    rc::detail::printResultMessage(result, os);
    return os.str();
  }();
}

TEST(BuildRoutes, NamesTheNearestAlgorithm) {
  Rib rib;
  auto image = build_routes(rib, "dir42", "poptrie");
  ASSERT_FALSE(image.ok());
  EXPECT_NE(to_string(image.error()).find("did you mean dir24?"), std::string::npos) << to_string(image.error());
  image = build_routes(rib, "dir24", "dir24");
  ASSERT_FALSE(image.ok());
  EXPECT_NE(to_string(image.error()).find("IPv6 algorithms: poptrie, range24, planb, trie, linear, bloom"),
            std::string::npos);
}

TEST(BuildRoutes, AutoChoosesByTableAndTarget) {
  Rib rib = random_rib(3, 200, 5);
  const LpmChoice cpu = choose_lpm(rib, TableTarget::kCpu), gpu = choose_lpm(rib, TableTarget::kGpu);
  EXPECT_EQ(cpu.algorithm4, "sail");
  EXPECT_EQ(cpu.algorithm6, "range24");
  EXPECT_EQ(gpu.algorithm4, "dir24");
  EXPECT_EQ(gpu.algorithm6, "poptrie");
  for (TableTarget target : {TableTarget::kCpu, TableTarget::kGpu}) {
    const char* name = target == TableTarget::kGpu ? kLpmAutoGpu : kLpmAuto;
    const auto image = build_routes(rib, name, name);
    ASSERT_TRUE(image.ok());
    const LpmChoice choice = choose_lpm(rib, target);
    EXPECT_EQ(section_algorithm(*image->find(SectionTag::kFib4)), choice.algorithm4);
    EXPECT_EQ(section_algorithm(*image->find(SectionTag::kFib6)), choice.algorithm6);
    EXPECT_FALSE(choice.why4.empty() || choice.why6.empty());
  }
  // More IPv6 routes in one /24 than a tree of range24 holds, and they are most of the table.
  Rib crowded;
  intern_ids(crowded, 5);
  for (uint64_t i = 0; i < 9000; ++i)
    crowded.add(prefix6(0x2001000000000000ull + (i << 17), 0, 48), 1 + static_cast<uint32_t>(i % 5));
  crowded.settle();
  EXPECT_EQ(choose_lpm(crowded, TableTarget::kCpu).algorithm6, "planb");
  EXPECT_EQ(choose_lpm(crowded, TableTarget::kGpu).algorithm6, "poptrie");
  // Many /24s with longer prefixes inside.
  for (uint32_t i = 0; i < 100'001; ++i) rib.add(prefix4(0x20000000 + (i << 8), 25), 1);
  rib.settle();
  EXPECT_EQ(choose_lpm(rib, TableTarget::kCpu).algorithm4, "poptrie");
  EXPECT_EQ(choose_lpm(rib, TableTarget::kGpu).algorithm4, "poptrie");
}

// Every list names each algorithm once, and the views of the stage lists are all there are.
TEST(BuildRoutes, SummariesCoverBothLists) {
  size_t four = 0, six = 0;
  for (const LpmSummary& s : lpm_summaries()) {
    four += s.ipv4 ? 1 : 0;
    six += s.ipv6 ? 1 : 0;
    EXPECT_FALSE(s.summary.empty()) << s.name;
  }
  EXPECT_EQ(four, lpm_algorithm_names4().size());
  EXPECT_EQ(six, lpm_algorithm_names6().size());
  EXPECT_EQ(lpm_algorithm_choices4().back(), "auto-gpu");
}

// A filter as small as 512 bits is wrong often and verified always.
TEST(LpmConformance, BloomFiltersOfAnySize) {
  const Rib rib = random_rib(12, 3000, 20);
  const auto a4 = edge_addresses(rib.routes4());
  const auto a6 = edge_addresses(rib.routes6());
  for (unsigned log2 : {9u, 14u, 22u}) {
    for (int family : {4, 6}) {
      auto plan = family == 4 ? plan_bloom4(rib, log2) : plan_bloom6(rib, log2);
      ASSERT_TRUE(plan.ok());
      auto buffer = Buffer::allocate(plan->bytes);
      ASSERT_TRUE(buffer.ok());
      plan->write({buffer->data(), buffer->size()});
      const std::span<const std::byte> section{buffer->data(), plan->bytes};
      if (family == 4) {
        auto view = Scan4View::open(section, 20);
        ASSERT_TRUE(view.ok());
        for (size_t i = 0; i < a4.size(); i += 5) ASSERT_EQ(view->lookup(a4[i]), linear_lookup4(rib.routes4(), a4[i]));
      } else {
        auto view = Scan6View::open(section, 20);
        ASSERT_TRUE(view.ok());
        for (size_t i = 0; i < a6.hi.size(); i += 5) {
          ASSERT_EQ(view->lookup(a6.hi[i], a6.lo[i]), linear_lookup6(rib.routes6(), a6.hi[i], a6.lo[i]));
        }
      }
    }
  }
}

// planb: both leaf widths, every number of levels up to six, and /64s divided further at the ends of spans.
TEST(LpmConformance, PlanBTreesOfEveryHeight) {
  std::mt19937_64 random(31);
  for (size_t routes : {0u, 1u, 4u, 5u, 40u, 41u, 364u, 365u, 3280u, 30000u}) {
    Rib rib;
    intern_ids(rib, 9);
    // Separate /48s with alternating next hops: two boundaries each.
    for (size_t i = 0; i < routes; ++i) {
      rib.add(prefix6(0x2001000000000000ull + (uint64_t{i} << 17), 0, 48), 1 + static_cast<uint32_t>(i % 9));
    }
    if (routes > 4) {
      rib.add(prefix6(0x2001000000000000ull, 5, 128), 2);
      rib.add(prefix6(0x2001000000000001ull, 0, 65), 3);
      rib.add(prefix6(0x200100000000ffffull, ~0ull, 128), 4);
      rib.add(prefix6(~0ull, ~0ull, 128), 5);
      rib.add(prefix6(0, 0, 127), 6);
    }
    rib.settle();
    Addresses6 a = edge_addresses(rib.routes6());
    for (bool wide : {false, true}) {
      auto plan = plan_planb(rib, wide);
      ASSERT_TRUE(plan.ok());
      auto buffer = Buffer::allocate(plan->bytes);
      ASSERT_TRUE(buffer.ok());
      plan->write({buffer->data(), buffer->size()});
      auto view = PlanBView::open({buffer->data(), plan->bytes}, rib.next_hop_count());
      ASSERT_TRUE(view.ok()) << to_string(view.error());
      EXPECT_EQ(view->wide(), wide);
      const auto got = ask6(*view, a);
      const Image oracle = build(rib, "trie", "trie");
      EXPECT_EQ(got, ask6(oracle, a)) << routes;
    }
  }
}

// range24: both leaf widths; a /24 with as many ranges as a tree holds, one fewer and one more; trees that neighbours
// share; /48s divided further, at both ends of a /24; more trees than there may be.
TEST(LpmConformance, Range24TreesAndLists) {
  auto expect_same = [](const Rib& rib, bool wide, size_t stride) {
    auto plan = plan_range24(rib, wide);
    ASSERT_TRUE(plan.ok());
    auto buffer = Buffer::allocate(plan->bytes);
    ASSERT_TRUE(buffer.ok());
    plan->write({buffer->data(), buffer->size()});
    auto view = Range24View::open({buffer->data(), plan->bytes}, rib.next_hop_count());
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    EXPECT_EQ(view->wide(), wide);
    const Addresses6 all = edge_addresses(rib.routes6());
    Addresses6 a;
    for (size_t i = 0; i < all.hi.size(); i += stride) {
      a.hi.push_back(all.hi[i]);
      a.lo.push_back(all.lo[i]);
    }
    EXPECT_EQ(ask6(*view, a), ask6(build(rib, "trie", "trie"), a));
  };
  // Separate /48s: with the space between them two ranges each, and one more where the last ends before the /24 does.
  for (uint64_t routes : {1u, 2u, 2047u, 2048u, 2049u, 4095u, 4096u, 5000u}) {
    Rib rib;
    intern_ids(rib, 9);
    for (uint64_t i = 0; i < routes; ++i) {
      rib.add(prefix6(0x2001000000000000ull + (i << 17), 0, 48), 1 + static_cast<uint32_t>(i % 9));
      rib.add(prefix6(0x2001010000000000ull + (i << 16), 0, 48), 1 + static_cast<uint32_t>(i % 9));
    }
    rib.settle();
    expect_same(rib, false, 1);
  }
  Rib ends;
  intern_ids(ends, 20);
  for (uint64_t c :
       {0x2001000000000000ull, 0x2001010000000000ull, 0x20010f0000000000ull, 0xffffff0000000000ull, 0ull}) {
    ends.add(prefix6(c, 0, 128), 1);
    ends.add(prefix6(c | 0xffff, ~0ull, 128), 2);
    ends.add(prefix6(c | 0x10000, 0, 64), 3);
    ends.add(prefix6(c | 0x20000, 0, 48), 4);
    ends.add(prefix6(c | 0x20000, 5, 126), 5);
    ends.add(prefix6(c | 0xff0000ffffull, 0, 72), 6);
    ends.add(prefix6(c | 0xffffffffffull, ~0ull, 128), 7);
    ends.add(prefix6(c | 0xffffff0000ull, 0, 50), 8);
    ends.add(prefix6(c | 0xfffffe0000ull, 0, 48), 9);
  }
  ends.settle();
  expect_same(ends, false, 1);
  expect_same(ends, true, 1);
  // A boundary in 3,000 /16s: the first 2,048 have trees.
  Rib many;
  intern_ids(many, 3);
  for (uint64_t r = 0; r < 3000; ++r) many.add(prefix6(r << 48 | 0x123456780000ull, 0, 48), 1 + r % 3);
  many.settle();
  expect_same(many, false, 3);
}

// sail: 4-byte entries, and runs longer than the distance that its lookups look ahead.
TEST(LpmConformance, SailEntriesOfBothWidthsInRunsOfEverySize) {
  const Rib rib = random_rib(14, 5000, 300);
  auto a4 = edge_addresses(rib.routes4());
  const Image oracle = build(rib, "trie", "trie");
  const auto expected = ask4(oracle, a4);
  for (bool wide : {false, true}) {
    auto plan = plan_sail(rib, wide);
    ASSERT_TRUE(plan.ok());
    auto buffer = Buffer::allocate(plan->bytes);
    ASSERT_TRUE(buffer.ok());
    plan->write({buffer->data(), buffer->size()});
    auto view = SailView::open({buffer->data(), plan->bytes}, rib.next_hop_count());
    ASSERT_TRUE(view.ok()) << to_string(view.error());
    EXPECT_EQ(view->wide(), wide);
    EXPECT_EQ(ask4(*view, a4), expected);
    for (size_t n = 0, at = 0; n < 200 && at + n <= a4.size(); at += n, ++n) {
      std::vector<uint32_t> got(n + 1, 0xdeadbeef);
      view->lookup_bulk(a4.data() + at, got.data(), n);
      EXPECT_EQ(got.back(), 0xdeadbeef);
      got.pop_back();
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<ptrdiff_t>(at))) << n;
      // In two steps, the places apart and where the next hops will be.
      std::vector<uint32_t> places(n + 1, 0xdeadbeef), answers(n + 1, 0xdeadbeef);
      view->ask(a4.data() + at, places.data(), n);
      view->answer(a4.data() + at, places.data(), answers.data(), n);
      view->answer(a4.data() + at, places.data(), places.data(), n);
      EXPECT_EQ(answers, places) << n;
      EXPECT_EQ(answers.back(), 0xdeadbeef);
      answers.pop_back();
      EXPECT_EQ(answers, got) << n;
    }
  }
}

TEST(BuildRoutes, SettlesACopyOfAnUnsettledRib) {
  Rib rib;
  const uint32_t id = rib.intern("here");
  rib.add(prefix4(0x0a000000, 8), id);
  const Image image = build(rib, "trie", "trie");
  EXPECT_EQ(ask4(image, {0x0a010203, 0x0b000000}), (std::vector<uint32_t>{id, 0}));
  EXPECT_FALSE(rib.settled());
}

TEST(BuildRoutes, KeepsTheNamesAsWritten) {
  Rib rib;
  for (const char* name : {"22", "eth0", "2001:db8::1", "22x"}) rib.intern(name);
  const Image image = build(rib, "trie", "poptrie");
  const auto path = std::filesystem::temp_directory_path() / "sluice_names_test.img";
  ASSERT_TRUE(image.write(path.string()).ok());
  auto loaded = Image::open(path.string(), ImageKind::kRoutes);
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded.ok());
  auto names = NextHopNames::open(loaded->section(SectionTag::kNextHopNames));
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->count(), 4u);
  EXPECT_EQ(names->name(1), "22");
  EXPECT_EQ(names->name(3), "2001:db8::1");
  EXPECT_EQ(names->name(4), "22x");
  EXPECT_EQ(names->name(0), "-");
  EXPECT_EQ(names->name(5), "-");
}

}  // namespace
}  // namespace sluice
