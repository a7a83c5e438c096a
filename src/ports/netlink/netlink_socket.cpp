// host only
#include "ports/netlink/netlink_socket.h"

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace sluice {
namespace {

constexpr int kAnswerMs = 5000;
constexpr int kMostForgotten = 100'000;
constexpr int kMostDumps = 16;  // of a table that changes meanwhile

}  // namespace

void NetlinkSocket::Close::operator()(mnl_socket* socket) const {
  mnl_socket_close(socket);
}

Result<NetlinkSocket> NetlinkSocket::open(uint32_t groups, int receive_bytes) {
  mnl_socket* made = mnl_socket_open2(NETLINK_ROUTE, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (made == nullptr) return system_error("a netlink socket", errno);
  NetlinkSocket socket(made);
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_bytes, sizeof receive_bytes) != 0) {
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  }
  if (mnl_socket_bind(made, groups, MNL_SOCKET_AUTOPID) != 0) return system_error("a netlink socket", errno);
  return socket;
}

int NetlinkSocket::fd() const {
  return mnl_socket_get_fd(socket_.get());
}

int64_t NetlinkSocket::receive(bool wait) {
  for (;;) {
    const ssize_t n = mnl_socket_recvfrom(socket_.get(), buffer_.data(), buffer_.size());
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !wait) return -errno;
    pollfd ready{fd(), POLLIN, 0};
    const int woken = poll(&ready, 1, kAnswerMs);
    if (woken == 0) return -ETIMEDOUT;
    if (woken < 0 && errno != EINTR) return -errno;
  }
}

Result<NetlinkSocket::Got> NetlinkSocket::read(const Message& message) {
  const int64_t n = receive(false);
  if (n == -EAGAIN) return Got::kNothing;
  if (n == -ENOBUFS || n == -ENOSPC) return Got::kLost;  // ENOSPC: a datagram larger than the buffer, cut
  if (n < 0) return system_error("netlink", static_cast<int>(-n));
  int left = static_cast<int>(n);
  for (const auto* m = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(m, left);
       m = mnl_nlmsg_next(m, &left)) {
    if (m->nlmsg_type == NLMSG_OVERRUN) return Got::kLost;
    if (m->nlmsg_type >= NLMSG_MIN_TYPE) message(m);
  }
  return Got::kMessages;
}

Result<bool> NetlinkSocket::forget() {
  for (int i = 0; i < kMostForgotten; ++i) {
    const int64_t n = receive(false);
    if (n == -EAGAIN) return true;
    if (n < 0 && n != -ENOBUFS && n != -ENOSPC) return system_error("netlink", static_cast<int>(-n));
  }
  return false;
}

Result<void> NetlinkSocket::dump(uint16_t type, uint8_t family, const Message& message) {
  for (int attempt = 0; attempt < kMostDumps; ++attempt) {
    std::array<char, 64> space{};
    nlmsghdr* ask = mnl_nlmsg_put_header(space.data());
    ask->nlmsg_type = type;
    ask->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    ask->nlmsg_seq = ++sequence_;
    // ifinfomsg, ifaddrmsg and ndmsg begin with the family, and the kernel wants no more of them.
    auto* body = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(ask, sizeof(ifinfomsg)));
    if (type == RTM_GETADDR) ask->nlmsg_len = mnl_nlmsg_size(sizeof(ifaddrmsg));
    if (type == RTM_GETNEIGH) ask->nlmsg_len = mnl_nlmsg_size(sizeof(ndmsg));
    body->ifi_family = family;
    if (mnl_socket_sendto(socket_.get(), ask, ask->nlmsg_len) < 0) return system_error("netlink", errno);
    bool done = false, interrupted = false;
    while (!done) {
      const int64_t n = receive(true);
      if (n < 0) return system_error("netlink", static_cast<int>(-n));
      int left = static_cast<int>(n);
      for (const auto* m = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(m, left) && !done;
           m = mnl_nlmsg_next(m, &left)) {
        if (m->nlmsg_seq != sequence_) continue;
        interrupted |= (m->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
        if (m->nlmsg_type == NLMSG_ERROR) {
          const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(m));
          return system_error("netlink", -error->error);
        }
        done = m->nlmsg_type == NLMSG_DONE;
        if (m->nlmsg_type >= NLMSG_MIN_TYPE) message(m);
      }
    }
    // What was handed over twice is the same twice, but what is missing may have been skipped.
    if (!interrupted) return {};
  }
  return Error("netlink: the table that was asked for changes faster than the kernel can write it");
}

Result<int> NetlinkSocket::request(nlmsghdr* message, const Message& answer) {
  message->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
  message->nlmsg_seq = ++sequence_;
  if (mnl_socket_sendto(socket_.get(), message, message->nlmsg_len) < 0) return system_error("netlink", errno);
  for (;;) {
    const int64_t n = receive(true);
    if (n < 0) return system_error("netlink", static_cast<int>(-n));
    int left = static_cast<int>(n);
    for (const auto* m = reinterpret_cast<const nlmsghdr*>(buffer_.data()); mnl_nlmsg_ok(m, left);
         m = mnl_nlmsg_next(m, &left)) {
      if (m->nlmsg_seq != sequence_) continue;
      if (answer && m->nlmsg_type >= NLMSG_MIN_TYPE) answer(m);
      if (m->nlmsg_type == NLMSG_ERROR) {
        return -static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(m))->error;
      }
    }
  }
}

// --- a table that is followed ---

Result<NetlinkWatch> NetlinkWatch::open(uint32_t groups, int receive_bytes) {
  auto events = NetlinkSocket::open(groups, receive_bytes);
  if (!events) return std::move(events).error();
  auto requests = NetlinkSocket::open(0);
  if (!requests) return std::move(requests).error();
  return NetlinkWatch{std::move(*events), std::move(*requests)};
}

Result<void> NetlinkWatch::read(const std::function<Result<void>()>& read_all, const NetlinkSocket::Message& apply) {
  constexpr unsigned kReadsAtOnce = 256;
  for (unsigned i = 0; i < kReadsAtOnce; ++i) {
    if (!complete) {
      auto forgot = events.forget();
      if (!forgot) return std::move(forgot).error();
      if (!*forgot) return {};
      if (auto all = read_all(); !all) return all;
    }
    auto got = events.read(apply);
    if (!got) return std::move(got).error();
    if (*got == NetlinkSocket::Got::kNothing) return {};
    if (*got == NetlinkSocket::Got::kLost) {
      ++losses;
      complete = false;
    }
  }
  return {};
}

}  // namespace sluice
