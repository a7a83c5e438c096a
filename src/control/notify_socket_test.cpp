#include "control/notify_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace sluice {
namespace {

// A service manager's side, which reads when it is asked to.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::ranges::copy(name, at.sun_path);
    if (name.front() == '@') at.sun_path[0] = '\0';
    const size_t size = offsetof(sockaddr_un, sun_path) + name.size() + (name.front() == '@' ? 0 : 1);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), static_cast<socklen_t>(size)), 0);
  }
  // All that is there.
  std::vector<std::string> read() {
    std::vector<std::string> all;
    char text[4096];
    for (ssize_t n = 0; (n = ::recv(fd_.get(), text, sizeof text, 0)) >= 0;)
      all.emplace_back(text, static_cast<size_t>(n));
    return all;
  }

 private:
  Descriptor fd_;
};

class NotifySocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice-notify-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(NotifySocketTest, SendsToPathsAndAbstractNames) {
  for (const std::string& name : {folder_ + "/notify", "@" + folder_}) {
    Manager manager(name);
    auto made = NotifySocket::create(name);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE((*made)->tell("READY=1\nSTATUS=here").ok());
    ASSERT_TRUE((*made)->tell_now("WATCHDOG=1").ok());
    EXPECT_EQ(manager.read(), (std::vector<std::string>{"READY=1\nSTATUS=here", "WATCHDOG=1"})) << name;
  }
}

TEST_F(NotifySocketTest, KeepsStatesInOrderWhereTheManagerDoesNotRead) {
  const std::string name = folder_ + "/notify";
  Manager manager(name);
  auto made = NotifySocket::create(name);
  ASSERT_TRUE(made.ok());
  // The system's own limit of datagrams that wait, and of memory, is far below this.
  size_t filled = 0;
  constexpr size_t kMany = 20'000;
  const std::string filler(1024, 'x');
  for (; filled < kMany; ++filled) ASSERT_TRUE((*made)->tell_now(filler).ok());
  ASSERT_TRUE((*made)->tell("RELOADING=1").ok());
  ASSERT_TRUE((*made)->tell("READY=1").ok());
  ASSERT_TRUE((*made)->tell_now("WATCHDOG=1").ok());
  const auto first = manager.read();
  ASSERT_LT(first.size(), kMany);
  EXPECT_EQ(std::ranges::count(first, filler), static_cast<ptrdiff_t>(first.size()));
  ASSERT_TRUE((*made)->flush().ok());
  EXPECT_EQ(manager.read(), (std::vector<std::string>{"RELOADING=1", "READY=1"}));
  ASSERT_TRUE((*made)->flush().ok());
  EXPECT_TRUE(manager.read().empty());
}

TEST_F(NotifySocketTest, SaysThatNobodyIsThereAndKeepsTheLastMessagesForWhoComes) {
  const std::string name = folder_ + "/notify";
  auto made = NotifySocket::create(name);
  ASSERT_TRUE(made.ok());
  for (size_t i = 0; i < NotifySocket::kMostWaiting + 1; ++i) {
    auto told = (*made)->tell("X_N=" + std::to_string(i));
    ASSERT_FALSE(told.ok());
    EXPECT_NE(told.error().message.find(name), std::string::npos);
  }
  Manager manager(name);
  ASSERT_TRUE((*made)->tell_now("STATUS=up").ok());
  const auto all = manager.read();
  // The system may have room for less at a time.
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.front(), "X_N=1");
}

TEST_F(NotifySocketTest, RefusesWhatNamesNoSocket) {
  for (const std::string& name :
       {std::string("notify"), std::string("@"), std::string("/"), std::string(), "/" + std::string(107, 'x'),
        "@" + std::string(108, 'x'), std::string("vsock:2:1234")}) {
    auto made = NotifySocket::create(name);
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_NE(made.error().message.find("NOTIFY_SOCKET=" + name), std::string::npos);
    EXPECT_FALSE(made.error().hint.empty());
  }
  EXPECT_TRUE(NotifySocket::create("/" + std::string(106, 'x')).ok());
  EXPECT_TRUE(NotifySocket::create("@" + std::string(107, 'x')).ok());
}

}  // namespace
}  // namespace sluice
