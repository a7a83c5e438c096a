#include "control/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

namespace sluice {
namespace {

constexpr uint64_t kLimit = 60'000'000'000;

class Sockets : public ::testing::Test {
 protected:
  Sockets() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-socket-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
  }
  ~Sockets() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name = "s") const { return folder_ + "/" + name; }
  static std::string echo(std::string_view line) { return "<" + std::string(line) + ">"; }
  std::unique_ptr<ControlSocket> served() const {
    auto made = ControlSocket::create(path());
    if (!made.ok()) {
      ADD_FAILURE() << to_string(made.error());
      return nullptr;
    }
    (*made)->serve(&echo, "too long");
    return std::move(*made);
  }
  // A connection that says what it is given, byte for byte.
  int raw() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path().c_str());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static std::string read_all(int fd) {
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = ::recv(fd, bytes, sizeof bytes, 0)) > 0;) all.append(bytes, static_cast<size_t>(n));
    return all;
  }
  std::string folder_;
};

TEST_F(Sockets, AnswerLinesAndGoAway) {
  {
    const auto socket = served();
    struct stat status {};
    ASSERT_EQ(::stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    for (const char* line : {"a", "", "b c"}) {
      auto answer = ask(path(), line, kLimit);
      ASSERT_TRUE(answer.ok()) << to_string(answer.error());
      EXPECT_EQ(*answer, echo(line));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
  auto nobody = ask(path(), "a", kLimit);
  ASSERT_FALSE(nobody.ok());
  EXPECT_NE(nobody.error().hint.find("--control"), std::string::npos);
}

TEST_F(Sockets, OneConnectionAsksManyTimes) {
  const auto socket = served();
  const int fd = raw();
  // Two and a half lines at once, then the rest byte by byte; a cut-off line at the end is nobody's.
  const std::string text = "one\ntwo\nthr";
  ASSERT_EQ(::send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  for (const char c : std::string("ee\nfou")) ASSERT_EQ(::send(fd, &c, 1, 0), 1);
  ::shutdown(fd, SHUT_WR);
  EXPECT_EQ(read_all(fd), "<one>\n<two>\n<three>\n");
  ::close(fd);
}

TEST_F(Sockets, AHugeLineIsRefusedAndOthersAreServed) {
  const auto socket = served();
  const int fd = raw();
  const std::string part(1 << 20, 'x');
  size_t sent = 0;
  while (sent <= ControlSocket::kMaxLine + part.size()) {
    const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL);
    if (n < 0) break;  // it was left in the middle
    sent += static_cast<size_t>(n);
  }
  EXPECT_GT(sent, ControlSocket::kMaxLine);
  char bytes[16] = {};
  const ssize_t n = ::recv(fd, bytes, sizeof bytes - 1, 0);
  // What was not read yet may have undone the connection before the answer was seen.
  if (n > 0) {
    EXPECT_EQ(std::string(bytes), "too long\n");
  }
  ::close(fd);
  EXPECT_EQ(*ask(path(), "still there", kLimit), "<still there>");
}

TEST_F(Sockets, ManyClientsAndSomeThatNeverSpeak) {
  const auto socket = served();
  std::vector<int> silent;
  for (size_t i = 0; i < ControlSocket::kMaxClients / 2; ++i) silent.push_back(raw());
  std::vector<std::jthread> clients;
  std::atomic<int> right{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 50; ++i) {
        const std::string line(static_cast<size_t>(i * 997), static_cast<char>('a' + c));
        auto answer = ask(path(), line, kLimit);
        right += answer.ok() && *answer == echo(line) ? 1 : 0;
      }
    });
  }
  clients.clear();
  EXPECT_EQ(right.load(), 8 * 50);
  for (int fd : silent) ::close(fd);
}

TEST_F(Sockets, ADeadProcessIsReplacedAndALiveOneIsNot) {
  {
    // A socket whose process has gone: bound, and closed without being removed.
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path().c_str());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  const auto socket = served();
  ASSERT_NE(socket, nullptr);
  auto second = ControlSocket::create(path());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another process answers"), std::string::npos);
  EXPECT_EQ(*ask(path(), "a", kLimit), "<a>") << "the first one goes on";
}

TEST_F(Sockets, NamesThatCannotBe) {
  std::FILE* file = std::fopen(path("file").c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
  const auto fault = [&](const std::string& name) {
    auto made = ControlSocket::create(name);
    return made.ok() ? std::string("it could be made") : made.error().message;
  };
  EXPECT_NE(fault(path("file")).find("not a socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path("file")));
  EXPECT_NE(fault(folder_ + "/" + std::string(120, 'n')).find("1 to 107 bytes"), std::string::npos);
  EXPECT_NE(fault(path("no/such/folder")).find("cannot be made"), std::string::npos);
}

TEST_F(Sockets, AClientFindsTheOnlyOne) {
  ::unsetenv("SLUICE_SOCKET");
  ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  std::filesystem::create_directory(folder_ + "/sluice");
  EXPECT_FALSE(find_control_socket().ok());
  auto one = ControlSocket::create(folder_ + "/sluice/1.sock");
  ASSERT_TRUE(one.ok());
  (*one)->serve(&echo, "");
  EXPECT_EQ(*find_control_socket(), folder_ + "/sluice/1.sock");
  auto two = ControlSocket::create(folder_ + "/sluice/2.sock");
  ASSERT_TRUE(two.ok());
  (*two)->serve(&echo, "");
  auto both = find_control_socket();
  ASSERT_FALSE(both.ok());
  EXPECT_NE(both.error().message.find("2.sock"), std::string::npos);
  ::setenv("SLUICE_SOCKET", "/named", 1);
  EXPECT_EQ(*find_control_socket(), "/named");
  ::unsetenv("SLUICE_SOCKET");
  ::unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace sluice
