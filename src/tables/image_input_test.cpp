// Images as inputs: from pipes, compressed, and those that lie about themselves.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <filesystem>
#include <thread>

#include "base/input_file.h"
#include "tables/image.h"

namespace sluice {
namespace {

std::string an_image(size_t bytes) {
  ImageBuilder builder(ImageKind::kAcl);
  const size_t section = builder.add(SectionTag::kAclRules, "test", 1, bytes);
  EXPECT_TRUE(builder.allocate().ok());
  for (size_t i = 0; i < bytes; ++i) builder.data(section)[i] = static_cast<std::byte>(i * 7);
  const Image image = builder.finish();
  return {reinterpret_cast<const char*>(image.bytes().data()), image.bytes().size()};
}

std::string error_of(const std::string& bytes) {
  InputFile file = InputFile::over(bytes, "x.img");
  const auto image = Image::read(file, ImageKind::kAcl);
  return image.ok() ? "no error" : image.error().message;
}

TEST(ImageInput, TheSameFromAPipeAndCompressed) {
  const std::string bytes = an_image(300'000);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  for (const std::string& form : {bytes, packed}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const std::jthread writer([&] {
      EXPECT_EQ(::write(ends[1], form.data(), form.size()), static_cast<ssize_t>(form.size()));
      ::close(ends[1]);
    });
    auto file = InputFile::open("/dev/fd/" + std::to_string(ends[0]));
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(*Image::is_next(*file));
    EXPECT_EQ(*Image::next_kind(*file), static_cast<uint32_t>(ImageKind::kAcl));
    auto image = Image::read(*file, ImageKind::kAcl);
    ASSERT_TRUE(image.ok()) << to_string(image.error());
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(image->bytes().data()), image->bytes().size()), bytes);
    ::close(ends[0]);
  }
  for (const char* other : {"", "SLUICE", "permit ip from any to any\n"}) {
    InputFile file = InputFile::over(std::string(other), "x");
    EXPECT_FALSE(*Image::is_next(file));
  }
}

// Cut, extended, or with a header that claims any size: an error, and no more memory than there are bytes.
TEST(ImageInput, RefusesTruncatedImages) {
  const std::string bytes = an_image(1000);
  EXPECT_EQ(error_of(bytes), "no error");
  for (size_t n = 0; n < bytes.size(); n += 1 + n / 5) {
    const std::string said = error_of(bytes.substr(0, n));
    EXPECT_EQ(said.find("x.img: "), 0u) << said;
  }
  EXPECT_NE(error_of(bytes + "x").find("truncated or extended"), std::string::npos);
  for (const uint64_t claims :
       {uint64_t{0}, uint64_t{63}, uint64_t{64}, uint64_t{bytes.size() - 1}, uint64_t{bytes.size() + 1},
        uint64_t{1} << 33, Image::kMaxBytes, Image::kMaxBytes + 1, ~uint64_t{0}}) {
    std::string wrong = bytes;
    std::memcpy(wrong.data() + offsetof(ImageHeader, total_bytes), &claims, sizeof claims);
    const std::string said = error_of(wrong);
    EXPECT_NE(said, "no error") << claims;
    EXPECT_EQ(said.find("x.img: "), 0u) << said;
  }
}

}  // namespace
}  // namespace sluice
