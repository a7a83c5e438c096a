// Sections with words changed: `open` refuses them, or every answer is in bounds (ASan watches the loads).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"
#include "tables/reseal.h"

namespace sluice {
namespace {

using namespace lpm_test;

struct Damage {
  size_t refused = 0, accepted = 0;
};

// Changes 32-bit words one at a time: all of the header, then random ones of the body.
template <typename Try>
Damage damage(std::span<const std::byte> section, size_t body_words, Try&& attempt) {
  // A Buffer, not a vector: views need the alignment of an image.
  auto copy = Buffer::allocate(section.size());
  EXPECT_TRUE(copy.ok());
  std::memcpy(copy->data(), section.data(), section.size());
  std::mt19937_64 random(17);
  Damage out;
  for (size_t i = 0; i < 16 + body_words; ++i) {
    const size_t at = i < 16 ? i * 4 : (16 + random() % (section.size() / 4 - 16)) * 4;
    for (uint32_t value : {0xffffffffu, 0x7fffffffu, 0x80000000u, 1u, static_cast<uint32_t>(random())}) {
      uint32_t before;
      std::memcpy(&before, copy->data() + at, 4);
      std::memcpy(copy->data() + at, &value, 4);
      ++(attempt(std::span<const std::byte>(copy->data(), copy->size())) ? out.accepted : out.refused);
      std::memcpy(copy->data() + at, &before, 4);
    }
  }
  // Cut short at many places.
  for (size_t n : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, section.size() / 2, section.size() - 66}) {
    EXPECT_FALSE(attempt(section.first(n))) << n << " of " << section.size();
  }
  return out;
}

#if defined(SLUICE_SANITIZED)
constexpr size_t kWords = 12;  // route_image_fuzz goes on from here
#else
constexpr size_t kWords = 100;
#endif

TEST(LpmImageCorruption, EveryViewRefusesItOrStaysInBounds) {
  const Rib rib = random_rib(21, 400, 50);
  const auto a4 = edge_addresses(rib.routes4());
  const auto a6 = edge_addresses(rib.routes6());
  for_each_lpm<AllLpm4>([&]<typename A>(A) {
    const auto image = build4<A>(rib);
    ASSERT_TRUE(image.ok());
    const auto section = image->section(SectionTag::kFib4);
    const size_t words = section.size() > (1 << 20) ? 2 : kWords;  // dir24 reads 32 MB an attempt
    const Damage d = damage(section, words, [&](std::span<const std::byte> bytes) {
      auto view = A::View4::open(bytes, rib.next_hop_count());
      if (!view) return false;
      std::vector<uint32_t> out(a4.size());
      for (LpmIsa isa : available_lpm_isas()) view->lookup_bulk(isa, a4.data(), out.data(), out.size());
      for (size_t i = 0; i < a4.size(); ++i) {
        EXPECT_LE(out[i], rib.next_hop_count());
        EXPECT_LE(view->lookup(a4[i]), rib.next_hop_count());
      }
      return true;
    });
    EXPECT_GT(d.refused, 5u) << A::kName;  // bloom is filters for the most part, and any bits will do there
    EXPECT_GT(d.accepted, 10u) << A::kName;
  });
  for_each_lpm<AllLpm6>([&]<typename A>(A) {
    const auto image = build6<A>(rib);
    ASSERT_TRUE(image.ok());
    const auto section = image->section(SectionTag::kFib6);
    const size_t words = section.size() > (1 << 20) ? 4 : kWords;
    const Damage d = damage(section, words, [&](std::span<const std::byte> bytes) {
      auto view = A::View6::open(bytes, rib.next_hop_count());
      if (!view) return false;
      std::vector<uint32_t> out(a6.hi.size());
      for (LpmIsa isa : available_lpm_isas())
        view->lookup_bulk(isa, a6.hi.data(), a6.lo.data(), out.data(), out.size());
      for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_LE(out[i], rib.next_hop_count());
        EXPECT_LE(view->lookup(a6.hi[i], a6.lo[i]), rib.next_hop_count());
      }
      return true;
    });
    EXPECT_GT(d.refused, 5u) << A::kName;  // bloom is filters for the most part, and any bits will do there
    EXPECT_GT(d.accepted, 10u) << A::kName;
  });
}

// An image whose FIB was built for more next hops than it names is refused.
TEST(LpmImageCorruption, FewerNextHopsThanTheTableUses) {
  const Rib rib = random_rib(22, 400, 50);
  for_each_lpm<AllLpm4>([&]<typename A>(A) {
    const auto image = build4<A>(rib);
    EXPECT_TRUE(A::View4::open(image->section(SectionTag::kFib4), 50).ok());
    EXPECT_FALSE(A::View4::open(image->section(SectionTag::kFib4), 10).ok()) << A::kName;
  });
  for_each_lpm<AllLpm6>([&]<typename A>(A) {
    const auto image = build6<A>(rib);
    EXPECT_FALSE(A::View6::open(image->section(SectionTag::kFib6), 10).ok()) << A::kName;
  });
}

// A section of a layout before or after this program's is refused by its number, before its bytes are looked at.
TEST(LpmImageCorruption, SectionsOfAnotherLayout) {
  const auto says_layout = [](SectionTag tag, const char* algorithm, uint32_t layout) {
    ImageBuilder builder(ImageKind::kRoutes);
    builder.add(tag, algorithm, layout, 64);  // zeros
    builder.add(SectionTag::kNextHopNames, "", 1, 12);
    EXPECT_TRUE(builder.allocate().ok());
    const Image image = builder.finish();
    std::string error;
    if (tag == SectionTag::kFib4) {
      if (auto opened = with_fib4(image, [](const auto&) {}); !opened) error = opened.error().message;
    } else if (auto opened = with_fib6(image, [](const auto&) {}); !opened) {
      error = opened.error().message;
    }
    return error.find("of layout") != std::string::npos;
  };
  for_each_lpm<LpmAlgorithms4>([&]<typename A>(A) {
    EXPECT_FALSE(says_layout(SectionTag::kFib4, A::kName, lpm_layout<A>())) << A::kName;
    EXPECT_TRUE(says_layout(SectionTag::kFib4, A::kName, lpm_layout<A>() - 1)) << A::kName;
    EXPECT_TRUE(says_layout(SectionTag::kFib4, A::kName, lpm_layout<A>() + 1)) << A::kName;
  });
  for_each_lpm<LpmAlgorithms6>([&]<typename A>(A) {
    EXPECT_FALSE(says_layout(SectionTag::kFib6, A::kName, lpm_layout<A>())) << A::kName;
    EXPECT_TRUE(says_layout(SectionTag::kFib6, A::kName, lpm_layout<A>() - 1)) << A::kName;
    EXPECT_TRUE(says_layout(SectionTag::kFib6, A::kName, lpm_layout<A>() + 1)) << A::kName;
  });
  // The first layouts of these two are gone.
  EXPECT_TRUE(says_layout(SectionTag::kFib4, "trie", 1));
  EXPECT_TRUE(says_layout(SectionTag::kFib6, "poptrie", 1));
}

TEST(LpmImageCorruption, UnknownAlgorithmsAndMissingSections) {
  ImageBuilder builder(ImageKind::kRoutes);
  builder.add(SectionTag::kFib4, "newtrie", 1, 64);
  const size_t names = builder.add(SectionTag::kNextHopNames, "", 1, 12);
  ASSERT_TRUE(builder.allocate().ok());
  (void)names;  // zero names
  const Image image = builder.finish();
  auto four = with_fib4(image, [](const auto&) { FAIL(); });
  ASSERT_FALSE(four.ok());
  EXPECT_NE(four.error().message.find("newtrie"), std::string::npos);
  EXPECT_FALSE(with_fib6(image, [](const auto&) { FAIL(); }).ok());
}

// IPv4's and IPv6's, each in one pair at least.
constexpr std::pair<const char*, const char*> kEachOnce[] = {{"poptrie", "poptrie"}, {"sail", "range24"},
                                                             {"dir24", "planb"},     {"trie", "trie"},
                                                             {"bloom", "bloom"},     {"linear", "linear"}};

// As for access lists: a section that was found good is not read again, whatever else is.
TEST(LpmImageCorruption, ASectionIsCheckedOnceWhereItIsGood) {
  const Rib rib = random_rib(22, 400, 50);
  for (const auto& [four, six] : kEachOnce) {
    SCOPED_TRACE(fmt::format("{}, {}", four, six));
    const auto image = build_routes(rib, four, six);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    EXPECT_FALSE(image->checked(SectionTag::kFib4));
    ASSERT_TRUE(with_fib4(*image, [](const auto&) {}).ok());
    EXPECT_TRUE(image->checked(SectionTag::kFib4));
    EXPECT_FALSE(image->checked(SectionTag::kFib6));

    std::vector<std::byte> bytes(image->bytes().begin(), image->bytes().end());
    const ImageSection* const fib = image->find(SectionTag::kFib6);
    std::memset(bytes.data() + fib->offset + fib->bytes / 2, 0xff, fib->bytes / 4);
    reseal(bytes);
    const auto damaged = Image::from_bytes(bytes, ImageKind::kRoutes);
    ASSERT_TRUE(damaged.ok()) << to_string(damaged.error());
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(with_fib6(*damaged, [](const auto&) {}).ok());
      EXPECT_FALSE(damaged->checked(SectionTag::kFib6));
    }
  }
}

// A view of an image that was checked is that of one that is: the same answers, and sizes are looked at all the same.
TEST(LpmImageCorruption, TrustsOnlyUnchangedSections) {
  const Rib rib = random_rib(23, 400, 300);
  for (const auto& [four, six] : kEachOnce) {
    SCOPED_TRACE(fmt::format("{}, {}", four, six));
    const auto image = build_routes(rib, four, six);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    std::vector<uint32_t> answers[2];
    for (auto& found : answers) {
      ASSERT_TRUE(with_fib4(*image, [&](const auto& view) {
                    for (uint32_t i = 0; i < 5000; ++i) found.push_back(view.lookup(i * 858'993u));
                  }).ok());
      ASSERT_TRUE(with_fib6(*image, [&](const auto& view) {
                    for (uint64_t i = 0; i < 5000; ++i)
                      found.push_back(view.lookup(0x2000'0000'0000'0000 + i * 461'168'601'842'739, i * i));
                  }).ok());
      EXPECT_TRUE(image->checked(SectionTag::kFib4) && image->checked(SectionTag::kFib6));
    }
    EXPECT_EQ(answers[0], answers[1]);
    const auto refuse = [&]<typename View>(SectionTag tag, const View*) {
      const auto whole = image->section(tag);
      for (const size_t size : {size_t{0}, size_t{8}, whole.size() / 8}) {
        if constexpr (requires { View::open(whole, 1, true); }) {
          EXPECT_FALSE(View::open(whole.first(size), rib.next_hop_count(), true).ok()) << size;
        }
      }
    };
    ASSERT_TRUE(with_fib4(*image, [&](const auto& view) { refuse(SectionTag::kFib4, &view); }).ok());
    ASSERT_TRUE(with_fib6(*image, [&](const auto& view) { refuse(SectionTag::kFib6, &view); }).ok());
  }
}

}  // namespace
}  // namespace sluice
