#include "base/unfinished.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sluice {
namespace {

class UnfinishedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-unfinished-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string make(const std::string& name) const {
    std::ofstream(folder_ / name) << "x";
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(UnfinishedTest, RemovesListedFilesAndNothingElse) {
  const std::string listed = make("listed"), moved = make("moved"), done = make("done"), other = make("other");
  const Unfinished one(listed);
  Unfinished two(moved);
  const Unfinished three = std::move(two);
  Unfinished four(done);
  four = {};  // its file has its name now
  remove_unfinished();
  EXPECT_FALSE(std::filesystem::exists(listed));
  EXPECT_FALSE(std::filesystem::exists(moved));
  EXPECT_TRUE(std::filesystem::exists(done));
  EXPECT_TRUE(std::filesystem::exists(other));
  // The list is empty: a file of the same name that comes later stays.
  make("listed");
  remove_unfinished();
  EXPECT_TRUE(std::filesystem::exists(listed));
}

TEST_F(UnfinishedTest, AFolderGoesWithAllThatIsInIt) {
  std::filesystem::create_directories(folder_ / "work" / "deep" / "deeper");
  for (int i = 0; i < 300; ++i) make("work/" + std::to_string(i));
  make("work/deep/file");
  make("beside");
  std::filesystem::create_symlink(folder_ / "beside", folder_ / "work" / "link");
  std::filesystem::create_directory_symlink(folder_, folder_ / "work" / "up");
  const Unfinished work((folder_ / "work/").string());
  remove_unfinished();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "work"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "beside"));
}

TEST_F(UnfinishedTest, MoreThanTheListHolds) {
  std::vector<Unfinished> many;
  for (int i = 0; i < 5000; ++i) many.emplace_back((folder_ / std::to_string(i)).string());
  many.clear();
  const std::string path = make("after");
  const Unfinished again(path);
  remove_unfinished();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace sluice
