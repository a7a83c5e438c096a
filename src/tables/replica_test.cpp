// Replicas show exactly what was published, hold still while they are held, and their log says what changed.
#include "tables/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace sluice {
namespace {

Image image_of(size_t bytes, std::byte fill = std::byte{0}) {
  ImageBuilder builder(ImageKind::kAcl);
  const size_t section = builder.add(SectionTag::kAclLookup, "test", 1, bytes);
  EXPECT_TRUE(builder.allocate().ok());
  std::fill(builder.data(section).begin(), builder.data(section).end(), fill);
  return builder.finish();
}

TEST(LineSet, WalksItsRunsInOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const size_t bytes = 64 + random() % 1'000'000;
    LineSet set(bytes), other(bytes);
    std::vector<bool> lines((bytes + 63) / 64);
    for (int i = 0; i < 40; ++i) {
      const size_t offset = random() % bytes, n = 1 + random() % std::min<size_t>(bytes - offset, 1 + random() % 20000);
      (i % 2 == 0 ? set : other).mark(offset, n);
      for (size_t line = offset / 64; line <= (offset + n - 1) / 64; ++line) lines[line] = true;
    }
    set.merge(other);
    std::vector<bool> seen(lines.size());
    size_t end = 0;
    set.each_run([&](uint64_t offset, uint64_t n) {
      ASSERT_TRUE(offset % 64 == 0 && n % 64 == 0 && n > 0);
      ASSERT_TRUE(end == 0 || offset > end) << "runs that touch are one";
      end = offset + n;
      for (size_t line = offset / 64; line < end / 64; ++line) seen[line] = true;
    });
    ASSERT_EQ(seen, lines);
    EXPECT_FALSE(set.empty());
    set.clear();
    EXPECT_TRUE(set.empty());
    set.each_run([](uint64_t, uint64_t) { FAIL() << "nothing is left"; });
  }
}

TEST(PatchLog, JoinsVersionsAndForgetsOldOnes) {
  PatchLog log;
  log.append(1, {{0, 64}, {256, 128}});
  log.append(2, {{64, 64}, {320, 256}});
  EXPECT_THAT(log.between(0, 2).value(), testing::ElementsAre(Patch{0, 128}, Patch{256, 320}));
  EXPECT_THAT(log.between(1, 2).value(), testing::ElementsAre(Patch{64, 64}, Patch{320, 256}));
  EXPECT_TRUE(log.between(2, 2).value().empty());
  EXPECT_FALSE(log.between(0, 3).has_value());
  EXPECT_FALSE(log.between(2, 1).has_value());
  for (uint64_t v = 3; v < 3 + PatchLog::kVersions; ++v) log.append(v, {{v * 64, 64}});
  EXPECT_FALSE(log.between(0, 4).has_value());
  EXPECT_TRUE(log.between(3, 5).has_value());
  EXPECT_THAT(join_patches(std::vector<Patch>{{0, 64}, {128, 64}, {1024, 64}}, 64),
              testing::ElementsAre(Patch{0, 192}, Patch{1024, 64}));
}

TEST(ImageReplicas, EachVersionIsWholeAndHoldsStill) {
  std::mt19937_64 random(2);
  ImageReplicas replicas(image_of(100'003));
  replicas.set_seldom_read(6400, 12'800);
  auto content = [](const Image& image) {
    const auto bytes = image.bytes().subspan(sizeof(ImageHeader));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  struct Held {
    std::shared_ptr<const Image> image;
    std::vector<std::byte> bytes;
  };
  std::vector<Held> held;
  uint64_t last = 1;
  std::vector<std::byte> copy = content(replicas.master());  // kept up by the log alone
  for (int round = 0; round < 400; ++round) {
    for (uint64_t i = random() % 20; i > 0; --i) {
      std::byte* at = replicas.bytes() + 128 + random() % 100'000;
      *at = static_cast<std::byte>(random());
      replicas.mark(at, 1);
    }
    auto image = replicas.publish();
    if (held.size() == ImageReplicas::kMost && !image) {
      EXPECT_THAT(to_string(image.error()), testing::HasSubstr("are held"));
      held.erase(held.begin());
      image = replicas.publish();  // with what the refused one would have had
    }
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    const auto now = content(replicas.master());
    ASSERT_EQ(content(**image), now);
    EXPECT_TRUE((*image)->checked(SectionTag::kAclRules));
    const auto patches = (*image)->patches()->between(last, (*image)->version());
    ASSERT_TRUE(patches.has_value());
    for (const Patch& p : *patches) {
      for (uint64_t b = p.offset; b < std::min<uint64_t>(p.offset + p.bytes, (*image)->bytes().size()); ++b)
        copy[b - sizeof(ImageHeader)] = (*image)->bytes()[b];
    }
    last = (*image)->version();
    ASSERT_EQ(copy, now);
    held.push_back({*image, now});
    while (held.size() > 1 + random() % ImageReplicas::kMost) held.erase(held.begin() + random() % held.size());
    for (const Held& h : held) ASSERT_EQ(content(*h.image), h.bytes);
  }
  EXPECT_LE(replicas.replicas(), ImageReplicas::kMost);
  const auto sealed = replicas.seal();
  ASSERT_TRUE(sealed.ok());
  EXPECT_TRUE(Image::from_bytes(sealed->bytes(), ImageKind::kAcl).ok());
  EXPECT_FALSE(sealed->checked(SectionTag::kAclRules));
}

TEST(ImageReplicas, TwoTakeTurns) {
  ImageReplicas replicas(image_of(10'000));
  std::shared_ptr<const Image> live;
  for (int i = 0; i < 20; ++i) {
    std::byte* at = replicas.bytes() + 200 + 64 * i;
    *at = std::byte{1};
    replicas.mark(at, 1);
    auto next = replicas.publish();
    ASSERT_TRUE(next.ok());
    EXPECT_NE(next->get(), live.get());
    EXPECT_EQ(replicas.publish()->get(), next->get()) << "nothing has changed";
    if (i > 1) {
      EXPECT_EQ(replicas.copied_bytes(), 2 * 64u) << "its own change and the one before";
    }
    live = *next;
  }
  EXPECT_EQ(replicas.replicas(), 2u);
  EXPECT_EQ(replicas.version(), 21u);
}

TEST(ImageReplicas, TakesAnImageThatWasBuiltAnew) {
  ImageReplicas replicas(image_of(10'000));
  ASSERT_TRUE(replicas.publish().ok());
  Image next = image_of(10'000, std::byte{7});
  ASSERT_TRUE(replicas.take(next));
  const auto image = replicas.publish();
  ASSERT_TRUE(image.ok());
  const auto got = (*image)->bytes().subspan(64), want = next.bytes().subspan(64);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
  EXPECT_FALSE(replicas.take(image_of(10'001))) << "another shape";
  ASSERT_TRUE(replicas.take(next));
  EXPECT_EQ(replicas.publish()->get(), image->get()) << "nothing differs";
}

}  // namespace
}  // namespace sluice
