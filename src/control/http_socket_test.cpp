// What is asked by HTTP, and clients that are slow, wrong, or many.
#include "control/http_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "base/base64.h"

namespace sluice {
namespace {

constexpr const char* kToken = "0123456789abcdef";

class HttpSocketTest : public ::testing::Test {
 protected:
  void serve(const std::string& token = {}, const HttpLimits& limits = {}) {
    auto made = HttpSocket::create("127.0.0.1:0", token);
    ASSERT_TRUE(made.ok()) << made.error().message;
    http_ = std::move(*made);
    const std::string url = http_->url();
    port_ = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
    const auto answer = [](const HttpRequest& request) {
      HttpAnswer a;
      a.body = request.path + "|" + (request.query.contains("q") ? request.query.at("q") : "-");
      return a;
    };
    ASSERT_TRUE(http_
                    ->serve(
                        answer,
                        [this](const std::string& text) {
                          ++warnings_;
                          const size_t requests = text.find(" requests with a wrong token");
                          told_ += requests == std::string::npos ? 1 : std::stoi(text.substr(text.find(' ')));
                        },
                        limits)
                    .ok());
  }
  void TearDown() override {
    http_.reset();
    for (const int fd : open_) ::close(fd);
  }
  int connect() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    open_.push_back(fd);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void send(int fd, const std::string& text) { (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }
  // Up to the end of the connection, or to `enough`; a minute at most.
  static std::string receive(int fd, const std::string& enough = "") {
    std::string all;
    char bytes[4096];
    pollfd polled{fd, POLLIN, 0};
    while (::poll(&polled, 1, 60'000) == 1) {
      const ssize_t n = ::recv(fd, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      all.append(bytes, static_cast<size_t>(n));
      if (!enough.empty() && all.ends_with(enough)) break;
    }
    return all;
  }
  std::string ask(const std::string& text) {
    const int fd = connect();
    send(fd, text);
    return receive(fd);
  }
  std::string get(const std::string& target, const std::string& more = "") {
    return ask(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{}\r\n", target, more));
  }

  std::unique_ptr<HttpSocket> http_;
  uint16_t port_ = 0;
  std::vector<int> open_;
  std::atomic<int> warnings_{0}, told_{0};  // how often, and of how many requests
};

TEST_F(HttpSocketTest, AQuestionHasItsAnswer) {
  serve();
  const std::string said = get("/a%20b?q=x+y%26z");
  EXPECT_TRUE(said.starts_with("HTTP/1.1 200 OK\r\n")) << said;
  EXPECT_TRUE(said.ends_with("\r\n\r\n/a b|x y&z")) << said;
}

TEST_F(HttpSocketTest, AConnectionIsUsedAgainAlsoForQuestionsThatComeTogether) {
  serve();
  const int fd = connect();
  const std::string one = "GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
                    two = "GET /2 HTTP/1.1\r\nHost: [::1]:9\r\n\r\n";
  send(fd, one + two);
  const std::string said = receive(fd, "/2|-");
  EXPECT_NE(said.find("/1|-HTTP/1.1 200"), std::string::npos) << said;
  send(fd, one);
  EXPECT_TRUE(receive(fd, "/1|-").ends_with("/1|-"));
}

TEST_F(HttpSocketTest, AHeadHasNoBody) {
  serve();
  const std::string said = ask("HEAD /1 HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(said.find("Content-Length: 4\r\n"), std::string::npos) << said;
  EXPECT_TRUE(said.ends_with("\r\n\r\n")) << said;
}

TEST_F(HttpSocketTest, RefusesBytesThatAreNoRequest) {
  serve();
  for (const auto& [text, status] : {std::pair<std::string, const char*>{"nonsense\r\n\r\n", "400"},
                                     {"GET / HTTP/2\r\n\r\n", "400"},
                                     {"GET http://x/ HTTP/1.1\r\n\r\n", "400"},
                                     {"GET /%zz HTTP/1.1\r\n\r\n", "400"},
                                     {"GET /%4 HTTP/1.1\r\n\r\n", "400"},
                                     {"GET / HTTP/1.1\r\nno colon\r\n\r\n", "400"},
                                     {"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"},
                                     {"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "413"},
                                     {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "413"},
                                     {"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"},
                                     {"GET / HTTP/1.1\r\n\r\n", "403"},
                                     {"GET / HTTP/1.1\r\nX: " + std::string(20000, 'x'), "431"}}) {
    const int fd = connect();
    send(fd, text);
    // Of a host that is refused the connection stays.
    const std::string said = receive(fd, "localhost\n");
    EXPECT_TRUE(said.starts_with(fmt::format("HTTP/1.1 {} ", status))) << text.substr(0, 60) << "\n" << said;
  }
}

TEST_F(HttpSocketTest, WithoutTheTokenNobodyIsAnswered) {
  HttpLimits limits;
  limits.wrong_token_ns = 1'000'000;
  serve(kToken, limits);
  EXPECT_TRUE(get("/").starts_with("HTTP/1.1 401")) << "none";
  EXPECT_EQ(warnings_, 0);
  EXPECT_TRUE(get("/", "Authorization: Bearer 0123456789abcdeX\r\n").starts_with("HTTP/1.1 401"));
  EXPECT_GE(warnings_, 1);
  EXPECT_TRUE(get("/", fmt::format("Authorization: Bearer {}\r\n", kToken)).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(get("/", fmt::format("Authorization: Basic {}\r\n", to_base64(std::string("me:") + kToken)))
                  .starts_with("HTTP/1.1 200"));
}

// Of many at once the log has few lines, and none is left out.
TEST_F(HttpSocketTest, EveryWrongTokenIsTold) {
  HttpLimits limits;
  limits.wrong_token_ns = 300'000'000;
  serve(kToken, limits);
  std::vector<int> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(connect());
    send(all.back(), "GET / HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdeX\r\n\r\n");
  }
  for (const int fd : all) EXPECT_TRUE(receive(fd).starts_with("HTTP/1.1 401"));
  for (int i = 0; i < 6000 && told_ < 20; ++i) ::usleep(10'000);
  EXPECT_EQ(told_, 20);
  EXPECT_LE(warnings_, 20);
}

TEST_F(HttpSocketTest, ManyThatSayNothingKeepNobodyOut) {
  HttpLimits limits;
  limits.clients = 8;
  serve({}, limits);
  for (int i = 0; i < 50; ++i) {
    const int fd = connect();
    if (i % 2 == 0) send(fd, "GET / HTT");
  }
  EXPECT_TRUE(get("/here").ends_with("/here|-"));
}

TEST_F(HttpSocketTest, LeavesSlowClients) {
  HttpLimits limits;
  limits.slow_ns = 20'000'000;
  serve({}, limits);
  const int fd = connect();
  send(fd, "GET / HTTP/1.1\r\n");
  EXPECT_EQ(receive(fd), "");
}

TEST(HttpSocket, AnAddressForOthersNeedsAToken) {
  EXPECT_FALSE(HttpSocket::create("0.0.0.0:0", "").ok());
  EXPECT_FALSE(HttpSocket::create("127.0.0.1:0", "short").ok());
  EXPECT_TRUE(HttpSocket::create("0.0.0.0:0", kToken).ok());
  for (const char* wrong : {"", "9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "host.example:80", "[::1:80"})
    EXPECT_FALSE(HttpSocket::create(wrong, kToken).ok()) << wrong;
}

TEST(HttpSocket, TwoAtOneAddressAreRefused) {
  auto one = HttpSocket::create("127.0.0.1:0", "");
  ASSERT_TRUE(one.ok());
  std::string where = (*one)->url().substr(7);
  where.pop_back();
  auto two = HttpSocket::create(where, "");
  ASSERT_FALSE(two.ok());
  EXPECT_NE(two.error().hint.find("another process"), std::string::npos);
}

TEST(HttpSocket, SecretsAreComparedWhole) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* wrong : {"", "ab", "abd", "abcabc", "abcd"}) EXPECT_FALSE(same_secret(wrong, "abc")) << wrong;
  EXPECT_FALSE(same_secret("", ""));
}

}  // namespace
}  // namespace sluice
