// Images as files: what is damaged is refused, and what happens to the file later changes nothing.
#include "tables/image.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct ImageTest : testing::Test {
  void SetUp() override {
    path = (fs::temp_directory_path() / ("sluice_image_" + std::to_string(::getpid()))).string();
    ImageBuilder builder(ImageKind::kRoutes);
    const size_t section = builder.add(SectionTag::kFib4, "made", 3, 5000);
    ASSERT_TRUE(builder.allocate().ok());
    for (size_t i = 0; i < 5000; ++i) builder.data(section)[i] = static_cast<std::byte>(i * 7);
    image = builder.finish();
  }
  void TearDown() override { fs::remove(path); }
  std::string path;
  Image image;
};

TEST_F(ImageTest, EveryBitOfTheHeaderCounts) {
  const std::vector<std::byte> good(image.bytes().begin(), image.bytes().end());
  ASSERT_TRUE(Image::from_bytes(good, ImageKind::kRoutes).ok());
  // And of the table of sections, and some of what follows.
  for (size_t bit = 0; bit < 8 * (sizeof(ImageHeader) + sizeof(ImageSection) + 100); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(Image::from_bytes(bad, ImageKind::kRoutes).ok()) << "bit " << bit;
  }
}

TEST_F(ImageTest, OlderImagesAreRefusedByTheirNumber) {
  std::vector<std::byte> old(image.bytes().begin(), image.bytes().end());
  ImageHeader header;
  std::memcpy(&header, old.data(), sizeof header);
  header.format_version = 1;
  std::memcpy(old.data(), &header, sizeof header);
  const auto refused = Image::from_bytes(old, ImageKind::kRoutes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "image: image format 1 is not format 2, which this program reads");
  EXPECT_NE(refused.error().hint.find("sluice compile"), std::string::npos);
}

// As `cp other.img used.img` does, and a disk that fills up.
TEST_F(ImageTest, KeepsItsBytesWhereItsFileIsOverwritten) {
  ASSERT_TRUE(image.write(path).ok());
  auto opened = Image::open(path, ImageKind::kRoutes);
  ASSERT_TRUE(opened.ok());
  const std::vector<std::byte> before(opened->bytes().begin(), opened->bytes().end());
  std::ofstream(path, std::ios::binary | std::ios::in) << std::string(3000, 'x');
  EXPECT_TRUE(std::equal(before.begin(), before.end(), opened->bytes().begin()));
  fs::resize_file(path, 0);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), opened->bytes().begin()));
}

TEST_F(ImageTest, ShortFilesAreRefused) {
  ASSERT_TRUE(image.write(path).ok());
  for (const size_t bytes : {image.bytes().size() - 1, size_t{64}, size_t{63}, size_t{8}, size_t{1}, size_t{0}}) {
    fs::resize_file(path, bytes);
    EXPECT_FALSE(Image::open(path, ImageKind::kRoutes).ok()) << bytes;
  }
}

}  // namespace
}  // namespace sluice
