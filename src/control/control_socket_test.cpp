#include "control/control_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "base/cancel.h"

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
  static std::string refused(const Error& error) { return "refused: " + error.message; }
  std::unique_ptr<ControlSocket> served(const ControlLimits& limits = {}) const {
    auto made = ControlSocket::create(path());
    if (!made.ok()) {
      ADD_FAILURE() << to_string(made.error());
      return nullptr;
    }
    EXPECT_TRUE((*made)->serve(&echo, &refused, limits).ok());
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
  ControlLimits limits;
  limits.short_line = 1 << 16;
  limits.long_line = 1 << 20;
  const auto socket = served(limits);
  const int fd = raw();
  const std::string part(1 << 16, 'x');
  size_t sent = 0;
  while (sent <= limits.long_line + part.size()) {
    const ssize_t n = ::send(fd, part.data(), part.size(), MSG_NOSIGNAL);
    if (n < 0) break;  // it was left in the middle
    sent += static_cast<size_t>(n);
  }
  EXPECT_GT(sent, limits.long_line);
  const std::string said = read_all(fd);
  // What was not read yet may have undone the connection before the answer was seen.
  if (!said.empty()) {
    EXPECT_EQ(said, "refused: the request is longer than 1048576 bytes\n");
  }
  ::close(fd);
  EXPECT_EQ(*ask(path(), "still there", kLimit), "<still there>");
}

TEST_F(Sockets, LongLinesComeOneAfterAnotherAndShortOnesBetween) {
  ControlLimits limits;
  limits.short_line = 1 << 12;
  const auto socket = served(limits);
  // One that has sent half of a long line has the place for it.
  const int first = raw();
  const std::string half(1 << 20, 'a');
  ASSERT_EQ(::send(first, half.data(), half.size(), 0), static_cast<ssize_t>(half.size()));
  std::vector<std::jthread> others;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&, i] {
      const std::string line(size_t{1} << 20, static_cast<char>('b' + i));
      auto answer = ask(path(), line, kLimit);
      right += answer.ok() && *answer == echo(line) ? 1 : 0;
    });
  }
  EXPECT_EQ(*ask(path(), "short", kLimit), "<short>");
  ASSERT_EQ(::send(first, "\n", 1, 0), 1);
  ::shutdown(first, SHUT_WR);
  EXPECT_EQ(read_all(first), echo(half) + "\n");
  ::close(first);
  others.clear();
  EXPECT_EQ(right.load(), 4);
}

TEST_F(Sockets, ManyShortRequestsInOnePiece) {
  const auto socket = served();
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "q\n";
  const int fd = raw();
  std::jthread sender([&] {
    EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    ::shutdown(fd, SHUT_WR);
  });
  EXPECT_EQ(read_all(fd).size(), 20000 * 4u);
  sender.join();
  ::close(fd);
}

TEST_F(Sockets, SilentClientsMakeRoom) {
  ControlLimits limits;
  limits.clients = 4;
  limits.grace_ns = 1'000'000;
  const auto socket = served(limits);
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(raw());
    if (i % 2 == 0) {
      EXPECT_EQ(::send(silent.back(), "half", 4, MSG_NOSIGNAL), 4);
    }
  }
  for (int i = 0; i < 20; ++i) {
    auto answer = ask(path(), "a", kLimit);
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
  }
  for (int fd : silent) ::close(fd);
}

TEST_F(Sockets, ARequestThatDoesNotComeWholeIsLeft) {
  ControlLimits limits;
  limits.slow_ns = 50'000'000;
  const auto socket = served(limits);
  const int fd = raw();
  // Byte by byte: what counts is when the request began.
  std::jthread dripping([&] {
    for (int i = 0; i < 1000 && ::send(fd, "x", 1, MSG_NOSIGNAL) == 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  EXPECT_EQ(read_all(fd), "refused: the request was not complete within 0 s\n");
  dripping.join();
  ::close(fd);
}

TEST_F(Sockets, LeaveIdleClients) {
  ControlLimits limits;
  limits.idle_ns = 50'000'000;
  const auto socket = served(limits);
  const int idle = raw();
  EXPECT_EQ(read_all(idle), "");
  ::close(idle);
}

TEST_F(Sockets, LeaveClientsThatTakeNoAnswer) {
  // More than the buffers between the two hold.
  const std::string line = std::string(size_t{1} << 20, 'x') + "\n";
  // On a machine that is busy with other things the request itself may not come whole within the limit: then a longer
  // one.
  for (uint64_t limit = 200'000'000;; limit *= 2) {
    ControlLimits limits;
    limits.slow_ns = limit;
    const auto socket = served(limits);
    const int full = raw();
    const bool sent = ::send(full, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
    pollfd gone{full, 0, 0};
    ASSERT_EQ(::poll(&gone, 1, 600'000), 1);
    EXPECT_NE(gone.revents & POLLHUP, 0);
    const std::string answer = read_all(full);
    ::close(full);
    if (sent && answer.substr(0, 7) != "refused") {
      EXPECT_EQ(answer.substr(0, 2), "<x");
      EXPECT_LT(answer.size(), line.size()) << "the rest of the answer was not waited for";
      break;
    }
    ASSERT_LT(limit, 60'000'000'000u) << "a request never came whole";
  }
}

TEST_F(Sockets, AClientThatGoesAwayInTheMiddleOfItsAnswer) {
  const auto socket = served();
  const std::string line = std::string(size_t{1} << 20, 'x') + "\n";
  for (int i = 0; i < 10; ++i) {
    const int fd = raw();
    ASSERT_EQ(::send(fd, line.data(), line.size(), MSG_NOSIGNAL), static_cast<ssize_t>(line.size()));
    char byte = 0;
    ASSERT_EQ(::recv(fd, &byte, 1, 0), 1);
    ::close(fd);
  }
  EXPECT_EQ(*ask(path(), "a", kLimit), "<a>");
}

TEST_F(Sockets, WithoutAFileDescriptorLeftClientsAreToldSo) {
  const auto socket = served();
  EXPECT_EQ(*ask(path(), "a", kLimit), "<a>");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path().c_str());
  std::vector<int> clients, all;
  for (int i = 0; i < 8; ++i) clients.push_back(::socket(AF_UNIX, SOCK_STREAM, 0));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(clients.back()) + 8;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string said;
  for (const int client : clients) {
    for (int fd; (fd = ::open("/dev/null", O_RDONLY)) >= 0;) all.push_back(fd);
    // One that the server had not closed yet may be left for the first of them.
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    (void)::send(client, "a\n", 2, MSG_NOSIGNAL);
    char bytes[100];
    const ssize_t n = ::recv(client, bytes, sizeof bytes, 0);
    said.assign(bytes, n > 0 ? static_cast<size_t>(n) : 0);
    if (said != "<a>\n") break;
  }
  EXPECT_EQ(said, "refused: the process has no file descriptor left\n");
  for (const int fd : clients) ::close(fd);
  for (const int fd : all) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(*ask(path(), "b", kLimit), "<b>");
}

// Clients of another user, where the socket's mode lets them in.
TEST_F(Sockets, OthersDoNotLockTheOwnerOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ControlLimits limits;
  limits.clients = 8;
  limits.short_line = 1 << 10;
  const auto socket = served(limits);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path().c_str());
  const pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    // Only calls that are safe between fork and exit.
    ::close(done[1]);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    for (int i = 0; i < 20; ++i) {
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(2);
    }
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(3);
    char bytes[2000];
    std::memset(bytes, 'x', sizeof bytes);
    (void)!::send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    (void)!::write(ready[1], "", 1);
    char byte;
    (void)!::read(done[0], &byte, 1);
    ::_exit(0);
  }
  ::close(done[0]);
  ::close(ready[1]);  // so that a child that ends early is not waited for
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  for (int i = 0; i < 20; ++i) {
    auto answer = ask(path(), "a", kLimit);
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_EQ(*answer, "<a>");
  }
  ::close(done[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  ::close(ready[0]);
}

TEST_F(Sockets, AskingEndsWhereNobodyAnswersOrTheAnswerHasNoEnd) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path().c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 0), 0);
  // One is in the queue, which is full with it.
  auto silent = ask(path(), "a", 50'000'000);
  ASSERT_FALSE(silent.ok());
  EXPECT_NE(silent.error().message.find("no answer within"), std::string::npos) << silent.error().message;
  std::vector<int> queued;
  for (int i = 0; i < 8; ++i) {
    queued.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    (void)::connect(queued.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  auto full = ask(path(), "a", 50'000'000);
  ASSERT_FALSE(full.ok());
  EXPECT_NE(full.error().message.find("does not accept connections"), std::string::npos) << full.error().message;
  auto again = ControlSocket::create(path());
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("another process is listening"), std::string::npos) << "it is there, if slow";
  for (const int fd : queued) ::close(fd);
  std::jthread endless([&] {
    for (;;) {
      const int fd = ::accept(listener, nullptr, nullptr);
      if (fd < 0) return;
      const std::string part(1 << 16, 'x');
      while (::send(fd, part.data(), part.size(), MSG_NOSIGNAL) > 0) {
      }
      ::close(fd);
    }
  });
  auto long_answer = ask(path(), "a", kLimit, size_t{1} << 20);
  ASSERT_FALSE(long_answer.ok());
  EXPECT_NE(long_answer.error().message.find("longer than 1048576 bytes"), std::string::npos)
      << long_answer.error().message;
  ::shutdown(listener, SHUT_RDWR);
  endless.join();
  ::close(listener);
}

TEST_F(Sockets, AnAnswerThatIsBeingMadeIsToldThatTheSocketGoes) {
  auto made = ControlSocket::create(path());
  ASSERT_TRUE(made.ok());
  std::atomic<bool> began{false};
  const Result<void> served = (*made)->serve(
      [&](std::string_view) {
        began = true;
        while (!cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return std::string("cancelled");
      },
      &refused);
  ASSERT_TRUE(served.ok()) << served.error().message;
  const int fd = raw();
  ASSERT_EQ(::send(fd, "a\n", 2, 0), 2);
  while (!began) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  made->reset();
  EXPECT_EQ(read_all(fd), "cancelled\n");
  ::close(fd);
}

// Answers to "slow ..." are made on the other thread, once `go` is true.
struct Slow {
  std::atomic<bool> go{false};
  std::atomic<int> begun{0};
  ControlSocket::Reply operator()(std::string_view line) {
    if (!line.starts_with("slow")) return "<" + std::string(line) + ">";
    return std::function<std::string()>([this, said = std::string(line)] {
      ++begun;
      while (!go && !cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return (go ? "made " : "cancelled ") + said;
    });
  }
};

TEST_F(Sockets, AnAnswerThatTakesLongKeepsNobodyElseWaiting) {
  Slow slow;
  auto made = ControlSocket::create(path());
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)->serve(std::ref(slow), &refused).ok());
  const int first = raw(), second = raw(), gone = raw();
  // What the same client asks behind it is answered behind it.
  ASSERT_EQ(::send(first, "slow 1\na\nslow 2\n", 16, 0), 16);
  while (slow.begun != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(::send(gone, "slow 3\n", 7, 0), 7);
  ASSERT_EQ(::send(second, "slow 4\n", 7, 0), 7);
  for (int i = 0; i < 3; ++i) {
    auto answer = ask(path(), "b", kLimit);
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_EQ(*answer, "<b>");
  }
  ::close(gone);
  EXPECT_EQ(slow.begun, 1) << "one after another";
  slow.go = true;
  ASSERT_EQ(::shutdown(first, SHUT_WR), 0);
  ASSERT_EQ(::shutdown(second, SHUT_WR), 0);
  EXPECT_EQ(read_all(first), "made slow 1\n<a>\nmade slow 2\n");
  EXPECT_EQ(read_all(second), "made slow 4\n");
  EXPECT_EQ(slow.begun, 3) << "what nobody waits for any more is not begun";
  ::close(first);
  ::close(second);
}

// A change asks right before it is made. Whoever has closed its connection by then has it not; who only says that it
// asks nothing more has. At once, later, and behind another's.
TEST_F(Sockets, MakeNoChangeThatAClientGaveUp) {
  std::atomic<bool> go{false}, waits{false};
  std::atomic<int> begun{0}, changes{0};
  const auto change = [&](bool now) {
    ++begun;
    while (!now && !go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (changes_are_unwanted()) return std::string("unwanted");
    ++changes;
    return std::string("changed");
  };
  auto made = ControlSocket::create(path());
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)
                  ->serve(
                      [&](std::string_view line) -> ControlSocket::Reply {
                        if (line == "wait") {
                          waits = true;
                          while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                          return std::string("waited");
                        }
                        if (line == "now") return change(true);
                        return std::function<std::string()>([&] { return change(false); });
                      },
                      &refused)
                  .ok());
  const int under_way = raw(), queued = raw(), half = raw(), slow = raw(), at_once = raw(), stays = raw();
  ASSERT_EQ(::send(under_way, "later\n", 6, 0), 6);
  while (begun != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(::send(queued, "later\n", 6, 0), 6);
  ASSERT_EQ(::send(half, "later\n", 6, 0), 6);
  ASSERT_EQ(::shutdown(half, SHUT_WR), 0);
  ASSERT_EQ(::send(slow, "wait\n", 5, 0), 5);
  while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(::send(at_once, "now\n", 4, 0), 4);
  ASSERT_EQ(::send(stays, "now\n", 4, 0), 4);
  for (const int fd : {under_way, queued, at_once}) ::close(fd);
  go = true;
  EXPECT_EQ(read_all(half), "changed\n");
  ASSERT_EQ(::shutdown(stays, SHUT_WR), 0);
  EXPECT_EQ(read_all(stays), "changed\n");
  EXPECT_EQ(changes, 2);
  for (const int fd : {half, slow, stays}) ::close(fd);
}

TEST_F(Sockets, AnAnswerThatTakesLongIsToldThatTheSocketGoes) {
  Slow slow;
  auto made = ControlSocket::create(path());
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)->serve(std::ref(slow), &refused).ok());
  const int first = raw(), second = raw();
  ASSERT_EQ(::send(first, "slow 1\n", 7, 0), 7);
  while (slow.begun != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(::send(second, "slow 2\n", 7, 0), 7);
  ASSERT_TRUE(ask(path(), "both are there", kLimit).ok());
  made->reset();
  EXPECT_EQ(read_all(first), "cancelled slow 1\n");
  EXPECT_EQ(read_all(second), "");
  EXPECT_EQ(slow.begun, 1);
  ::close(first);
  ::close(second);
}

// Long lines are one at a time, also where what was read of one is still at work.
TEST_F(Sockets, AnotherLongLineComesOnceTheFirstIsDone) {
  Slow slow;
  ControlLimits limits;
  limits.short_line = 100;
  auto made = ControlSocket::create(path());
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE((*made)->serve(std::ref(slow), &refused, limits).ok());
  const std::string line = "slow " + std::string(4'000'000, 'x') + "\n";
  std::jthread first([&] { EXPECT_TRUE(ask(path(), std::string_view(line).substr(0, line.size() - 1), kLimit).ok()); });
  while (slow.begun != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The second's is more than sockets have room for: it is not read.
  const int second = raw();
  ASSERT_EQ(::fcntl(second, F_SETFL, O_NONBLOCK), 0);
  size_t sent = 0;
  for (ssize_t n;
       (n = ::send(second, line.data() + sent, line.size() - sent, 0)) > 0 || ask(path(), "b", kLimit).ok();) {
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  EXPECT_LT(sent, line.size());
  slow.go = true;
  ASSERT_EQ(::fcntl(second, F_SETFL, 0), 0);
  while (sent < line.size()) {
    const ssize_t n = ::send(second, line.data() + sent, line.size() - sent, 0);
    ASSERT_GT(n, 0);
    sent += static_cast<size_t>(n);
  }
  ASSERT_EQ(::shutdown(second, SHUT_WR), 0);
  EXPECT_EQ(read_all(second).size(), line.size() + 5);
  ::close(second);
}

TEST_F(Sockets, ManyClientsAndSomeThatNeverSpeak) {
  const auto socket = served();
  std::vector<int> silent;
  for (size_t i = 0; i < ControlLimits{}.clients / 2; ++i) silent.push_back(raw());
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
  EXPECT_NE(second.error().message.find("another process is listening"), std::string::npos);
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
  EXPECT_NE(fault(path("no/such/folder")).find("cannot be created"), std::string::npos);
}

TEST_F(Sockets, AClientFindsTheOnlyOne) {
  ::unsetenv("SLUICE_SOCKET");
  ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  std::filesystem::create_directory(folder_ + "/sluice");
  const std::string system = folder_ + "/system";
  std::filesystem::create_directory(system);
  EXPECT_FALSE(find_control_socket(system).ok());
  auto service = ControlSocket::create(system + "/control");
  ASSERT_TRUE(service.ok());
  ASSERT_TRUE((*service)->serve(&echo, &refused).ok());
  EXPECT_EQ(*find_control_socket(system), system + "/control") << "that of a service, where the user has none";
  auto one = ControlSocket::create(folder_ + "/sluice/1.sock");
  ASSERT_TRUE(one.ok());
  ASSERT_TRUE((*one)->serve(&echo, &refused).ok());
  EXPECT_EQ(*find_control_socket(system), folder_ + "/sluice/1.sock");
  auto two = ControlSocket::create(folder_ + "/sluice/2.sock");
  ASSERT_TRUE(two.ok());
  ASSERT_TRUE((*two)->serve(&echo, &refused).ok());
  auto both = find_control_socket(system);
  ASSERT_FALSE(both.ok());
  EXPECT_NE(both.error().message.find("2.sock"), std::string::npos);
  ::setenv("SLUICE_SOCKET", "/named", 1);
  EXPECT_EQ(*find_control_socket(), "/named");
  ::unsetenv("SLUICE_SOCKET");
  ::unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace sluice
