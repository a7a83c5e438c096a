#include "base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

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
  void put(const std::string& file, const std::string& text) const { std::ofstream(file, std::ios::binary) << text; }
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
  file->write(std::string(1 << 19, 'x'));
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

TEST_F(AtomicFileTest, MakesWhatADanglingLinkPointsAt) {
  fs::create_symlink("target", folder / "middle");
  fs::create_symlink("middle", folder / "link");
  auto file = AtomicFile::create((folder / "link").string());
  ASSERT_TRUE(file.ok());
  file->write("x");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(*read_text_file((folder / "target").string()), "x");
  EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "middle"));
  fs::create_symlink("round", folder / "round");
  EXPECT_FALSE(AtomicFile::create((folder / "round").string()).ok());
}

TEST_F(AtomicFileTest, KeepsTheModeOfAnOldFileAndTheMaskOfANewOne) {
  put(path, "old");
  ASSERT_EQ(::chmod(path.c_str(), 0604), 0);
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file->commit().ok());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0604u);
  const mode_t before = ::umask(027);
  file = AtomicFile::create((folder / "new").string());
  ::umask(before);
  ASSERT_TRUE(file->commit().ok());
  ASSERT_EQ(::stat((folder / "new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

// Whoever may write the folder cannot make the name beforehand, and what was made by somebody is not opened.
TEST_F(AtomicFileTest, NobodyCanGuessTheTemporaryName) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    auto file = AtomicFile::create(path);
    ASSERT_EQ(files(), 1u);
    const std::string name = fs::directory_iterator(folder)->path().filename().string();
    ASSERT_GE(name.size(), std::string("out.txt").size() + 16);
    names.push_back(name.substr(name.size() - 16));
  }
  // Of 16 letters out of 36 that nobody knows, two words have nine or more in common once in 10^10; a process's number,
  // a time or a counter would be in all of them.
  for (size_t a = 0; a < names.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      int same = 0;
      for (size_t i = 0; i < 16; ++i) same += names[a][i] == names[b][i] ? 1 : 0;
      EXPECT_LT(same, 9) << names[a] << " " << names[b];
    }
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(AtomicFileTest, RefusesALinkThatAnotherUserPlanted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's link";
  const fs::path shared = folder / "shared";
  fs::create_directories(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  put(path, "precious");
  const std::string link = (shared / "out").string();
  fs::create_symlink(path, link);
  ASSERT_EQ(::lchown(link.c_str(), 65534, 65534), 0);
  const auto refused = AtomicFile::create(link);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("another user's link"), std::string::npos) << refused.error().message;
  // One's own is followed, and another user's in a folder of one's own.
  ASSERT_EQ(::lchown(link.c_str(), 0, 0), 0);
  EXPECT_TRUE(AtomicFile::create(link).ok());
  ASSERT_EQ(::chmod(shared.c_str(), 0755), 0);
  ASSERT_EQ(::lchown(link.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(AtomicFile::create(link).ok());
  EXPECT_EQ(*read_text_file(path), "precious");
}

TEST_F(AtomicFileTest, APipeStaysAPipe) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = *read_text_file(path); });
  {
    auto file = AtomicFile::create(path);
    EXPECT_TRUE(file.ok());
    file->write("through");
    EXPECT_EQ(file->path_of(Ending::kPartial), path);
    EXPECT_TRUE(file->commit(Ending::kPartial).ok());
  }
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(path));
  EXPECT_EQ(files(), 1u);
}

// The shell's >> and exec 3>: the bytes go where that descriptor is.
TEST_F(AtomicFileTest, ADescriptorIsWrittenWhereItStands) {
  put(path, "one ");
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  for (const char* name : {"/dev/fd/", "/proc/self/fd/"}) {
    auto file = AtomicFile::create(name + std::to_string(descriptor));
    ASSERT_TRUE(file.ok()) << file.error().message;
    file->write("two ");
    ASSERT_TRUE(file->commit().ok());
  }
  ::close(descriptor);
  EXPECT_EQ(*read_text_file(path), "one two two ");
  EXPECT_EQ(files(), 1u);
  EXPECT_FALSE(AtomicFile::create("/dev/fd/" + std::to_string(descriptor)).ok());
  const int read_only = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_FALSE(AtomicFile::create("/dev/fd/" + std::to_string(read_only)).ok());
  ::close(read_only);
}

TEST_F(AtomicFileTest, APartialFileLeavesTheOldOne) {
  put(path, "old");
  put(path + ".partial", "older");
  auto file = AtomicFile::create(path);
  file->write("half");
  EXPECT_EQ(file->path_of(Ending::kWhole), path);
  EXPECT_EQ(file->path_of(Ending::kPartial), path + ".partial");
  ASSERT_TRUE(file->settle().ok());
  EXPECT_EQ(*read_text_file(path), "old");
  ASSERT_TRUE(file->commit(Ending::kPartial).ok());
  EXPECT_EQ(*read_text_file(path), "old");
  EXPECT_EQ(*read_text_file(path + ".partial"), "half");
  EXPECT_FALSE(file->commit().ok());
  file = AtomicFile::create(path);
  file->write("nothing of this");
  ASSERT_TRUE(file->commit(Ending::kDiscard).ok());
  EXPECT_EQ(*read_text_file(path), "old");
  EXPECT_EQ(files(), 2u);
}

TEST_F(AtomicFileTest, ReplacesNothingButFiles) {
  ASSERT_EQ(::mkfifo((path + ".partial").c_str(), 0600), 0);
  auto file = AtomicFile::create(path);
  file->write("half");
  const auto refused = file->commit(Ending::kPartial);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, path + ".partial: cannot write: File exists");
  EXPECT_TRUE(fs::is_fifo(path + ".partial"));
  EXPECT_EQ(files(), 1u);
  for (const std::string& name : {folder.string(), folder.string() + "/", std::string("/"), std::string()})
    EXPECT_FALSE(AtomicFile::create(name).ok()) << name;
}

TEST_F(AtomicFileTest, LargeAndSmallPiecesStayInOrder) {
  auto file = AtomicFile::create(path);
  std::string want;
  for (size_t size :
       {size_t{1}, size_t{262143}, size_t{262144}, size_t{0}, size_t{7}, size_t{1000000}, size_t{262145}}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    file->write(piece);
    want += piece;
  }
  ASSERT_TRUE(file->commit().ok());
  EXPECT_TRUE(*read_text_file(path) == want);
}

// One file after another cannot be put in its place: by a folder that has its name by then, or by something that is
// mounted there. The others, new ones and such as replace something, are as they were.
TEST_F(AtomicFileTest, FilesAppearTogetherOrNoneDoes) {
  constexpr size_t kFiles = 4;
  const auto name = [&](size_t i) { return (folder / ("f" + std::to_string(i))).string(); };
  for (size_t wrong = 0; wrong <= kFiles; ++wrong) {
    for (unsigned there = 0; there < 1u << kFiles; ++there) {
      std::vector<AtomicFile> made;
      for (size_t i = 0; i < kFiles; ++i) {
        if ((there >> i & 1) != 0) put(name(i), "old " + std::to_string(i));
        auto file = AtomicFile::create(name(i));
        ASSERT_TRUE(file.ok());
        file->write("new " + std::to_string(i));
        made.push_back(std::move(*file));
      }
      if (wrong < kFiles) {
        fs::remove(name(wrong));
        fs::create_directory(name(wrong));
      }
      const auto done = AtomicFile::commit(made);
      ASSERT_EQ(done.ok(), wrong == kFiles);
      if (wrong < kFiles) {
        EXPECT_EQ(done.error().message, name(wrong) + ": cannot write: Is a directory");
        fs::remove(name(wrong));
      }
      size_t expected = 0;
      for (size_t i = 0; i < kFiles; ++i) {
        const bool old = (there >> i & 1) != 0 && i != wrong;
        const std::string want = wrong == kFiles ? "new " : old ? "old " : "";
        expected += want.empty() ? 0 : 1;
        ASSERT_EQ(fs::exists(name(i)), !want.empty());
        if (!want.empty()) {
          EXPECT_EQ(*read_text_file(name(i)), want + std::to_string(i));
        }
      }
      EXPECT_EQ(files(), expected);
      for (size_t i = 0; i < kFiles; ++i) fs::remove(name(i));
    }
  }
}

// In a mount namespace of its own, which a child process has. What it finds wrong is what the function returns.
std::string in_mount_namespace(const std::function<std::string()>& what) {
  int link[2];
  if (::pipe(link) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said = "none";
    if (::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) said = what();
    ::_exit(::write(link[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(link[1]);
  std::string said(65536, '\0');
  const ssize_t n = ::read(link[0], said.data(), said.size());
  ::close(link[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  said.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return status == 0 ? said : said + " status " + std::to_string(status);
}
bool mount_on(const std::string& from, const std::string& to, bool read_only = false) {
  return ::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         (!read_only || ::mount(nullptr, to.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0);
}

// A file that is mounted into a container cannot be replaced: it is written where it is, whatever its lengths, and has
// its old bytes again where another one of the set cannot appear. Mounted late it is an error, and nothing appears.
TEST_F(AtomicFileTest, AFileThatIsAMountIsWrittenInPlaceAndPutBack) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root mounts";
  const std::string said = in_mount_namespace([&]() -> std::string {
    std::string wrong;
    for (const size_t before : {size_t{0}, size_t{5}, size_t{100'000}}) {
      for (const size_t after : {size_t{0}, size_t{7}, size_t{300'000}}) {
        for (const bool fails : {false, true}) {
          for (const bool late : {false, true}) {
            const std::string old(before, 'o'), fresh(after, 'n'), first = path + ".1", last = path + ".3";
            put(path + ".from", old);
            put(path, "hidden");
            put(first, old);
            put(last, old);
            if (!late && !mount_on(path + ".from", path)) return "no mount";
            std::vector<AtomicFile> made;
            for (const std::string& name : {first, path, last}) {
              auto file = AtomicFile::create(name);
              if (!file) return to_string(file.error());
              file->write(fresh);
              made.push_back(std::move(*file));
            }
            if (made[1].in_place() == late) wrong += " in place;";
            if (late && !mount_on(path + ".from", path)) return "no mount";
            if (fails) {
              fs::remove(last);
              put(last + ".from", old);
              put(last, "hidden");
              if (!mount_on(last + ".from", last)) return "no mount";
            }
            const bool done = AtomicFile::commit(made).ok();
            if (done == (fails || late)) wrong += " done;";
            for (const std::string& name : {first, path, last}) {
              if (*read_text_file(name) != (done ? fresh : old)) wrong += " " + name + ";";
            }
            if (fails) ::umount(last.c_str());
            ::umount(path.c_str());
            fs::remove(last + ".from");
            if (files() != 4) wrong += " files;";
          }
        }
      }
    }
    return wrong.empty() ? "right" : wrong;
  });
  if (said == "none") GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(said, "right");
}

// As systemd's ProtectSystem= and ReadWritePaths= have it: the folder takes no new file.
TEST_F(AtomicFileTest, AFileWhoseFolderTakesNoNewOneIsWrittenInPlace) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root mounts";
  put(path, "old and long");
  put((folder / "fixed").string(), "fixed");
  const std::string said = in_mount_namespace([&]() -> std::string {
    if (!mount_on(folder.string(), folder.string(), true) || !mount_on(path, path)) return "no mount";
    // Of the mount above it: of the folder as it is.
    if (::mount(nullptr, path.c_str(), nullptr, MS_BIND | MS_REMOUNT, nullptr) != 0) return "no mount";
    auto file = AtomicFile::create(path);
    if (!file) return to_string(file.error());
    file->write("new");
    if (!file->in_place() || file->direct()) return "not in place";
    if (auto done = file->commit(); !done) return to_string(done.error());
    auto partial = AtomicFile::create(path);
    partial->write("part");
    auto done = partial->commit(Ending::kPartial);
    if (done.ok()) return "a partial file";
    const auto none = AtomicFile::create((folder / "other").string()), fixed = AtomicFile::create(folder / "fixed");
    if (none.ok() || fixed.ok()) return "opened";
    return done.error().message + "\n" + none.error().message + "\n" + fixed.error().message;
  });
  if (said == "none") GTEST_SKIP() << "no mount namespaces here";
  EXPECT_EQ(said, path + ".partial: cannot write: Read-only file system\n" + (folder / "other").string() +
                      ": cannot write: Read-only file system\n" + (folder / "fixed").string() +
                      ": cannot write: Read-only file system");
  EXPECT_EQ(*read_text_file(path), "new");
  EXPECT_EQ(files(), 2u);
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
