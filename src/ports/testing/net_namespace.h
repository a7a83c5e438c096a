// host only
// For tests: network namespaces with veth pairs between them, which nobody else sees. They have no names and no files:
// the kernel removes a namespace with its last descriptor or process, so that none is left of a test that crashed.
//
//   if (!NetNamespace::why_none().empty()) GTEST_SKIP() << NetNamespace::why_none();
//   auto here = NetNamespace::create(), there = NetNamespace::create();
//   NetNamespace::veth(*here, "near", *there, "far");
//   const auto inside = here->enter();  // what this thread opens or starts from here on is in `here`
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/scope_exit.h"

namespace sluice::testing {

// For what comes soon where it comes at all.
inline constexpr std::chrono::seconds kPatience{60};

// A descriptor that is closed with its owner.
class TestFd {
 public:
  explicit TestFd(int fd = -1) : fd_(fd) {}
  ~TestFd() {
    if (fd_ >= 0) close(fd_);
  }
  TestFd(TestFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TestFd& operator=(TestFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class NetNamespace {
 public:
  // Why there are no namespaces here, for GTEST_SKIP; empty: there are.
  static const std::string& why_none() {
    static const std::string why = [] {
      auto one = create();
      if (!one) return one.error().message;
      auto pair = veth(*one, "near", *one, "far");
      return pair ? std::string() : pair.error().message;
    }();
    return why;
  }

  // A namespace with `lo` up and IPv6 off, so that the kernel says nothing of its own accord.
  static Result<NetNamespace> create() {
    NetNamespace made;
    const TestFd before(open(kMine, O_RDONLY | O_CLOEXEC));
    if (before.get() < 0) return system_error(kMine, errno);
    if (unshare(CLONE_NEWNET) != 0) {
      return Error(std::string("a network namespace (root or CAP_SYS_ADMIN): ") + std::strerror(errno));
    }
    made.fd_ = TestFd(open(kMine, O_RDONLY | O_CLOEXEC));
    for (const char* scope : {"all", "default"}) {
      std::ofstream(std::string("/proc/sys/net/ipv6/conf/") + scope + "/disable_ipv6") << "1";
    }
    if (setns(before.get(), CLONE_NEWNET) != 0) return system_error("back to the namespace from before", errno);
    if (auto up = made.run("ip link set lo up"); !up) return std::move(up).error();
    return made;
  }

  // `enter` ends with its result: this thread is then where it was before.
  [[nodiscard]] auto enter() const {
    const int before = open(kMine, O_RDONLY | O_CLOEXEC);
    SLUICE_CHECK(before >= 0 && setns(fd_.get(), CLONE_NEWNET) == 0);
    return ScopeExit([before] {
      SLUICE_CHECK(setns(before, CLONE_NEWNET) == 0);
      close(before);
    });
  }

  // Runs a shell command there and returns what it printed. Errors: it failed, with what it printed.
  Result<std::string> run(const std::string& command) const {
    const auto inside = enter();
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return system_error("pipe", errno);
    const TestFd output(pipe_fds[0]);
    TestFd input(pipe_fds[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, input.get(), 2);
    std::string shell = "sh", option = "-c", text = command;
    std::array<char*, 4> arguments{shell.data(), option.data(), text.data(), nullptr};
    pid_t child = -1;
    const int error = posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return system_error("/bin/sh", error);
    input = TestFd();
    std::string printed;
    std::array<char, 4096> buffer;
    for (ssize_t n; (n = read(output.get(), buffer.data(), buffer.size())) > 0;) {
      printed.append(buffer.data(), static_cast<size_t>(n));
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) return Error(command + ": " + printed);
    return printed;
  }

  // A pair of interfaces that are up. Errors: no `ip` (package iproute2), no veth in this kernel.
  static Result<void> veth(const NetNamespace& a, const std::string& name_a, const NetNamespace& b,
                           const std::string& name_b, unsigned queues = 1) {
    const std::string count = std::to_string(queues);
    const std::string many = " numtxqueues " + count + " numrxqueues " + count;
    auto made = a.run("ip link add " + name_a + many + " type veth peer name " + name_b + many + " netns " + b.path());
    if (!made) return std::move(made).error();
    for (const auto& [where, name] : {std::pair(&a, name_a), std::pair(&b, name_b)}) {
      if (auto up = where->run("ip link set " + name + " up"); !up) return std::move(up).error();
    }
    return {};
  }

  // Of the namespace, for commands that take one.
  std::string path() const { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_.get()); }

 private:
  static constexpr const char* kMine = "/proc/thread-self/ns/net";
  NetNamespace() = default;
  TestFd fd_;
};

// Whole frames at an interface, by a socket of the test's own: what is sent there, and what comes in. A VLAN tag that
// the kernel has taken off is put back.
class Wire {
 public:
  using Bytes = std::vector<uint8_t>;

  static Result<Wire> open(const NetNamespace& where, const std::string& interface) {
    const auto inside = where.enter();
    Wire wire;
    wire.fd_ = TestFd(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (wire.fd_.get() < 0) return system_error("a packet socket", errno);
    const int one = 1, room = 64 << 20;
    setsockopt(wire.fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
    if (address.sll_ifindex == 0 || setsockopt(wire.fd_.get(), SOL_PACKET, kIgnoreOutgoing, &one, sizeof one) != 0 ||
        setsockopt(wire.fd_.get(), SOL_PACKET, PACKET_AUXDATA, &one, sizeof one) != 0 ||
        bind(wire.fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      return system_error(interface, errno);
    }
    wire.wait_for_link(interface);
    return wire;
  }

  bool send(const Bytes& frame) {
    for (int i = 0; i < 1000; ++i) {
      if (::send(fd_.get(), frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size())) return true;
      if (errno == ENETDOWN) continue;  // said once by a socket whose interface was down meanwhile
      if (errno != EAGAIN && errno != ENOBUFS) return false;
      pollfd room{fd_.get(), POLLOUT, 0};
      poll(&room, 1, 10);
    }
    return false;
  }

  // The next frame; nothing when none comes in `patience`.
  std::optional<Bytes> receive(std::chrono::milliseconds patience = kPatience) {
    pollfd ready{fd_.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(patience.count())) <= 0) return std::nullopt;
    Bytes frame(70'000);
    iovec part{frame.data(), frame.size()};
    alignas(cmsghdr) std::array<uint8_t, 256> control;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = recvmsg(fd_.get(), &message, 0);
    if (n < 0) return std::nullopt;
    frame.resize(static_cast<size_t>(n));
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
      tpacket_auxdata about;
      std::memcpy(&about, CMSG_DATA(c), sizeof about);
      if ((about.tp_status & TP_STATUS_VLAN_VALID) == 0) continue;
      const uint16_t type = (about.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? about.tp_vlan_tpid : 0x8100;
      const std::array<uint8_t, 4> tag{static_cast<uint8_t>(type >> 8), static_cast<uint8_t>(type),
                                       static_cast<uint8_t>(about.tp_vlan_tci >> 8),
                                       static_cast<uint8_t>(about.tp_vlan_tci)};
      frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    }
    return frame;
  }

 private:
  // A link that has just come up is used once the kernel's worker has seen it, up to seconds later on a busy machine;
  // what is sent before that is lost, and the sender is told nothing. A link whose other end is down is not waited for
  // for ever.
  void wait_for_link(const std::string& interface) const {
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (ioctl(fd_.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0 &&
           (request.ifr_flags & IFF_RUNNING) == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  static constexpr int kIgnoreOutgoing = 23;  // PACKET_IGNORE_OUTGOING, Linux 4.20
  Wire() = default;
  TestFd fd_;
};

}  // namespace sluice::testing
