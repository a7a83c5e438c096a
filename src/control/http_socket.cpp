// host only
#include "control/http_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <list>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "control/descriptor.h"

namespace sluice {
namespace {

constexpr size_t kLeastToken = 16;
constexpr uint64_t kRetryNs = 200'000'000;

struct Place {
  sockaddr_storage address{};
  socklen_t size = 0;
  bool this_machine = false;
};

std::optional<Place> place_of(const std::string& where) {
  const size_t colon = where.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = where.substr(0, colon);
  uint16_t port = 0;
  const char* const end = where.data() + where.size();
  const auto read = std::from_chars(where.data() + colon + 1, end, port);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  Place place;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    auto* const six = reinterpret_cast<sockaddr_in6*>(&place.address);
    if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six->sin6_addr) != 1) return std::nullopt;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    place.size = sizeof *six;
    place.this_machine = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) != 0;
    return place;
  }
  if (host == "localhost") host = "127.0.0.1";
  auto* const four = reinterpret_cast<sockaddr_in*>(&place.address);
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) != 1) return std::nullopt;
  four->sin_family = AF_INET;
  four->sin_port = htons(port);
  place.size = sizeof *four;
  place.this_machine = ntohl(four->sin_addr.s_addr) >> 24 == 127;
  return place;
}

}  // namespace

class HttpSocket::Server {
 public:
  Descriptor listener, wake;
  std::string token;
  std::atomic<bool> stop{false};
  std::jthread thread;

  void run(const Answer& answer, const Warn& warn, const HttpLimits& limits) {
    answer_ = &answer;
    warn_ = &warn;
    limits_ = limits;
    std::vector<pollfd> polled;
    polled.reserve(2 + limits_.clients);
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t now = now_ns();
      uint64_t next = now + limits_.idle_ns;
      polled.clear();
      polled.push_back({wake.get(), POLLIN, 0});
      polled.push_back({now >= accept_at_ ? listener.get() : -1, POLLIN, 0});
      if (now < accept_at_) next = accept_at_;
      if (wrong_ != 0 && now >= warn_at_) tell_wrong_tokens(now);
      if (wrong_ != 0) next = std::min(next, warn_at_);
      for (const Client& c : clients_) {
        const bool held = now < c.hold_until;
        polled.push_back({c.fd.get(), static_cast<short>(held ? 0 : c.out.empty() ? POLLIN : POLLOUT), 0});
        next = std::min(next, held ? c.hold_until : due(c));
      }
      const uint64_t wait = next > now ? next - now : 0;
      if (::poll(polled.data(), polled.size(), static_cast<int>((wait + 999'999) / 1'000'000)) < 0) {
        if (errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      if (polled[0].revents != 0) return;
      size_t i = 2;
      for (auto c = clients_.begin(); c != clients_.end() && !stop.load(std::memory_order_relaxed); ++i) {
        bool stays = false;
        try {
          stays = step(*c, polled[i].revents) && (now_ns() < c->hold_until || now_ns() < due(*c));
        } catch (const std::bad_alloc&) {
          // What it asks for is more than there is.
        }
        c = stays ? std::next(c) : clients_.erase(c);
      }
      if (polled[1].revents != 0) accept_one();
    }
  }

 private:
  struct Client {
    Descriptor fd;
    std::string in, out;
    size_t sent = 0;
    uint64_t since = 0;       // when the question or the answer began, or the last answer was taken
    uint64_t hold_until = 0;  // the answer waits
    bool stays = true;
  };

  uint64_t due(const Client& c) const {
    return std::max(c.since, c.hold_until) + (c.out.empty() && c.in.empty() ? limits_.idle_ns : limits_.slow_ns);
  }

  // False: the client is gone.
  bool step(Client& c, short events) {
    if ((events & POLLERR) != 0) return false;
    if (now_ns() < c.hold_until) return (events & POLLHUP) == 0;
    if (!c.out.empty()) return (events & (POLLOUT | POLLHUP)) == 0 || send_some(c);
    if ((events & (POLLIN | POLLHUP)) == 0) return true;
    char bytes[4096];
    const ssize_t n = ::recv(c.fd.get(), bytes, sizeof bytes, 0);
    if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) return false;
    if (c.in.empty()) c.since = now_ns();
    c.in.append(bytes, static_cast<size_t>(n));
    return answer_next(c);
  }

  bool answer_next(Client& c) {
    const size_t head = http_head(c.in);
    if (head == 0 && c.in.size() <= kMaxHttpRequest) return true;
    HttpRequest request;
    if (head == 0 || head > kMaxHttpRequest) {
      request.status = 431;
      request.stays = false;
    } else {
      request = parse_http(std::string_view(c.in).substr(0, head));
    }
    c.in.erase(0, head == 0 ? c.in.size() : head);
    const HttpAnswer answer = permitted(c, request);
    c.stays = request.stays;
    c.out = write_http(answer, c.stays, request.method == "HEAD");
    c.sent = 0;
    c.since = now_ns();
    return c.hold_until > c.since || send_some(c);
  }

  HttpAnswer permitted(Client& c, HttpRequest& request) {
    HttpAnswer answer;
    if (request.status != 200) {
      answer.status = request.status;
      answer.body =
          fmt::format("error {}: only GET and HEAD, without content, in {} bytes\n", answer.status, kMaxHttpRequest);
      return answer;
    }
    if (!token.empty() && !same_secret(token_of(request.authorization), token)) {
      answer.status = 401;
      answer.asks_for_token = true;
      answer.body = "a token is needed: Authorization: Bearer TOKEN\n";
      request.stays = false;
      // A browser asks once without one.
      if (!request.authorization.empty()) {
        c.hold_until = now_ns() + limits_.wrong_token_ns;
        ++wrong_;
        if (now_ns() >= warn_at_) tell_wrong_tokens(now_ns());
      }
      return answer;
    }
    if (token.empty() && !names_this_machine(request.host)) {
      answer.status = 403;
      answer.body = "the host of the URL is neither an address nor localhost\n";
      return answer;
    }
    return (*answer_)(request);
  }

  // At once, but for many of a second together, which would fill the log.
  void tell_wrong_tokens(uint64_t now) {
    (*warn_)(
        fmt::format("http: {} with a wrong token", wrong_ == 1 ? "a request" : fmt::format("{} requests", wrong_)));
    wrong_ = 0;
    warn_at_ = now + limits_.wrong_token_ns;
  }

  bool send_some(Client& c) {
    const ssize_t n = ::send(c.fd.get(), c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    c.sent += static_cast<size_t>(n);
    if (c.sent < c.out.size()) return true;
    c.out = {};
    c.since = now_ns();
    if (!c.stays) return false;
    // What came with the question before it.
    return c.in.empty() || answer_next(c);
  }

  void accept_one() {
    if (clients_.size() >= limits_.clients) {
      auto idle = clients_.end();
      for (auto c = clients_.begin(); c != clients_.end(); ++c) {
        if (c->out.empty() && (idle == clients_.end() || c->since < idle->since)) idle = c;
      }
      if (idle == clients_.end()) {
        accept_at_ = now_ns() + kRetryNs;
        return;
      }
      clients_.erase(idle);
    }
    Client c;
    c.fd = Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (c.fd.get() < 0) {
      // Without a descriptor poll() would say again at once that somebody waits.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) accept_at_ = now_ns() + kRetryNs;
      return;
    }
    const int on = 1;
    (void)::setsockopt(c.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c.since = now_ns();
    try {
      clients_.push_back(std::move(c));
    } catch (const std::bad_alloc&) {
      // It is closed.
    }
  }

  const Answer* answer_ = nullptr;
  const Warn* warn_ = nullptr;
  HttpLimits limits_;
  std::list<Client> clients_;
  uint64_t accept_at_ = 0, warn_at_ = 0;
  uint64_t wrong_ = 0;
};

HttpSocket::HttpSocket() = default;

Result<std::unique_ptr<HttpSocket>> HttpSocket::create(const std::string& where, std::string token) {
  const auto place = place_of(where);
  if (!place) return Error(check(where));
  if (!place->this_machine && token.empty())
    return Error(fmt::format("{}: other machines reach this address: a token is needed", where),
                 "give a token, or use 127.0.0.1 and a proxy with TLS");
  if (!token.empty() && token.size() < kLeastToken)
    return Error(fmt::format("the token has less than {} characters", kLeastToken), "such as: openssl rand -hex 16");
  auto server = std::make_unique<Server>();
  server->token = std::move(token);
  server->listener = Descriptor(::socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  server->wake = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int on = 1;
  const auto* const address = reinterpret_cast<const sockaddr*>(&place->address);
  if (server->listener.get() < 0 || server->wake.get() < 0 ||
      ::setsockopt(server->listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(server->listener.get(), address, place->size) != 0 || ::listen(server->listener.get(), 128) != 0) {
    const int why = errno;
    Error error = system_error(fmt::format("{}: cannot listen", where), why);
    if (why == EADDRINUSE) error.hint = "another process listens there: choose another port";
    return error;
  }
  sockaddr_storage mine{};
  socklen_t size = sizeof mine;
  if (::getsockname(server->listener.get(), reinterpret_cast<sockaddr*>(&mine), &size) != 0)
    return system_error(fmt::format("{}: cannot listen", where), errno);
  const uint16_t port = ntohs(mine.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&mine)->sin6_port
                                                         : reinterpret_cast<sockaddr_in*>(&mine)->sin_port);
  std::unique_ptr<HttpSocket> made(new HttpSocket);
  made->url_ = fmt::format("http://{}:{}/", where.substr(0, where.rfind(':')), port);
  made->server_ = std::move(server);
  return made;
}

std::string HttpSocket::check(const std::string& where) {
  if (place_of(where)) return {};
  return fmt::format("'{}' is not ADDRESS:PORT, such as 127.0.0.1:8477 or [::1]:8477", where);
}

HttpSocket::~HttpSocket() {
  if (server_ == nullptr) return;
  server_->stop.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  (void)!::write(server_->wake.get(), &one, sizeof one);
  if (server_->thread.joinable()) server_->thread.join();
}

Result<void> HttpSocket::serve(Answer answer, Warn warn, const HttpLimits& limits) {
  auto thread = start_thread([server = server_.get(), answer = std::move(answer), warn = std::move(warn), limits] {
    server->run(answer, warn, limits);
  });
  if (!thread) return std::move(thread).error();
  server_->thread = std::move(*thread);
  return {};
}

}  // namespace sluice
