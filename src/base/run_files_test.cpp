#include "base/run_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct RunFilesTest : testing::Test {
  void SetUp() override {
    folder = fs::temp_directory_path() / ("sluice_run_files_" + std::to_string(::getpid()));
    fs::create_directories(folder / "below");
    std::ofstream(at("in")) << "x";
    fs::create_symlink("in", at("symbolic"));
    fs::create_symlink("..", folder / "below" / "up");
    fs::create_hard_link(at("in"), at("hard"));
    fs::create_symlink("new", at("dangling"));
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string at(const std::string& name) const { return (folder / name).string(); }
  // What is said of an output beside an input.
  static std::string of(const std::string& input, const std::string& output) {
    RunFiles files;
    files.input("--in", input);
    files.output("--out", output);
    const auto ok = files.check();
    return ok.ok() ? "" : ok.error().message;
  }
  fs::path folder;
};

TEST_F(RunFilesTest, OneFileUnderWhateverName) {
  const std::string in = at("in");
  for (const std::string& name : {in, folder.string() + "/./in", folder.string() + "//in", at("below/../in"),
                                  at("symbolic"), at("hard"), at("below/up/in"), at("below/up/symbolic")}) {
    EXPECT_EQ(of(in, name), "--out: '" + name + "' is the same file as '" + in + "' of --in");
    EXPECT_EQ(of(name, in), "--out: '" + in + "' is the same file as '" + name + "' of --in");
  }
  EXPECT_EQ(of(in, at("other")), "");
  EXPECT_EQ(of(in, at("below/in")), "");
  EXPECT_EQ(of(in, ""), "");
}

TEST_F(RunFilesTest, RelativeNamesAreThoseOfTheFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  EXPECT_NE(of("in", "./in"), "");
  EXPECT_NE(of("in", at("in")), "");
  EXPECT_NE(of("new", "below/../new"), "");
  EXPECT_NE(of("new", "dangling"), "");
  EXPECT_EQ(of("new", "newer"), "");
  fs::current_path(before);
}

TEST_F(RunFilesTest, TwoOutputsAreTwoFiles) {
  const auto both = [&](const std::string& a, const std::string& b) {
    RunFiles files;
    files.output("--out", a);
    files.output("--hits", b);
    return !files.check().ok();
  };
  EXPECT_TRUE(both(at("new"), folder.string() + "/./new"));
  EXPECT_TRUE(both(at("new"), at("dangling")));
  EXPECT_TRUE(both(at("symbolic"), at("hard")));
  EXPECT_FALSE(both(at("new"), at("newer")));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(both(at("pipe"), at("below/../pipe")));
  EXPECT_TRUE(both("-", "-"));
  EXPECT_TRUE(both("-", "/dev/stdout"));
  EXPECT_TRUE(both("/dev/fd/1", "/proc/self/fd/1"));
  // A device takes what it is given.
  EXPECT_FALSE(both("/dev/null", "/dev/null"));
  EXPECT_EQ(of("/dev/null", "/dev/null"), "");
  // Where an output may not be found, whoever opens it says so.
  EXPECT_FALSE(both(at("none/x"), at("none/x")));
}

TEST_F(RunFilesTest, StandardOutputIsOnePlace) {
  for (const std::string other : {"-", "/dev/stdout", "/proc/self/fd/1"}) {
    RunFiles files;
    files.output("-o json", "-");
    files.output("--out", other);
    const auto ok = files.check();
    ASSERT_FALSE(ok.ok()) << other;
    EXPECT_EQ(ok.error().message, "-o json and --out both write to standard output");
    EXPECT_EQ(ok.error().hint, "give one of them a file");
  }
  // What is read from there is another matter.
  EXPECT_EQ(of("-", "-").find("both write"), std::string::npos);
}

TEST_F(RunFilesTest, PartialNamesAreOutputsToo) {
  std::ofstream(at("o.partial")) << "x";
  EXPECT_EQ(of(at("o.partial"), at("o")),
            "--in: '" + at("o.partial") + "' is where '" + at("o") + "' of --out goes if the run is interrupted");
  RunFiles files;
  files.output("--out", at("a.partial"));
  files.output("--hits", at("a"));
  EXPECT_FALSE(files.check().ok());
}

TEST_F(RunFilesTest, NamesThatTheRunMakesAndAllClashes) {
  RunFiles files;
  const size_t in = files.input("--in", at("in")), socket = files.made("--control", at("s"));
  const size_t first = files.output("--out", at("s")), second = files.output("--hits", at("hard"));
  const auto clashes = files.clashes();
  ASSERT_EQ(clashes.size(), 2u);
  EXPECT_EQ(clashes[0].output, first);
  EXPECT_EQ(clashes[0].other, socket);
  EXPECT_EQ(clashes[1].output, second);
  EXPECT_EQ(clashes[1].other, in);
}

}  // namespace
}  // namespace sluice
