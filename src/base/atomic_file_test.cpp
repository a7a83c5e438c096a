#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/input_file.h"
#include "base/sha256.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct AtomicFileTest : testing::Test {
  void SetUp() override {
    folder = fs::temp_directory_path() / ("sluice_atomic_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    path = (folder / "out.txt").string();
  }
  void TearDown() override { fs::remove_all(folder); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
  std::string path;
};

TEST_F(AtomicFileTest, AppearsWithCommitOnly) {
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file.ok());
  file->write("one\n");
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(*read_text_file(path), "one\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, KeepsTheOldFileWithoutCommit) {
  {
    auto file = AtomicFile::create(path);
    file->write("old");
    ASSERT_TRUE(file->commit().ok());
  }
  {
    auto file = AtomicFile::create(path);
    file->write(std::string(200000, 'x'));
  }
  EXPECT_EQ(*read_text_file(path), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, FollowsALinkAndKeepsIt) {
  const std::string link = (folder / "link").string();
  { ASSERT_TRUE(AtomicFile::create(path)->commit().ok()); }
  fs::create_symlink(path, link);
  auto file = AtomicFile::create(link);
  file->write("through");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(*read_text_file(path), "through");
}

TEST_F(AtomicFileTest, WritesAFullDeviceAndSaysSo) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  auto file = AtomicFile::create("/dev/full");
  ASSERT_TRUE(file.ok());
  file->write(std::string(1 << 17, 'x'));
  EXPECT_FALSE(file->ok());
  const auto done = file->commit();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "/dev/full: cannot write: No space left on device");
}

TEST_F(AtomicFileTest, NamesAMissingFolder) {
  const auto file = AtomicFile::create((folder / "none" / "out").string());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("No such file or directory"), std::string::npos);
}

// The vectors of FIPS 180-2, appendix B.
TEST(Sha256Test, KnownAnswers) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesOfAnySizeGiveTheSame) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += static_cast<char>(i * 7);
  for (size_t piece : {1, 3, 55, 56, 63, 64, 65, 128}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.finish(), sha256(text)) << piece;
  }
}

}  // namespace
}  // namespace sluice
