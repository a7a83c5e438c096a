// The kernel gets what is for it and forwards nothing of what a port forwards, and all of it when the port is closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "memory/frame_pool.h"
#include "net/packet_builder.h"
#include "ports/af_packet/kernel_share.h"
#include "ports/port.h"
#include "ports/testing/net_namespace.h"
#include "ports/testing/two_hosts.h"

namespace sluice {
namespace {

using testing::kPatience;
using testing::NetNamespace;
using testing::TestFd;
using testing::Wire;
using Bytes = Wire::Bytes;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr MacAddress kNear{2, 0, 0, 0, 0, 1}, kFar{2, 0, 0, 0, 0, 2}, kNextHop{2, 0, 0, 0, 0, 9};

// Packets that one thread sends are received in their order where it stays on one processor: each has a backlog of its
// own. So what answers the last has seen those before.
class OnOneProcessor {
 public:
  OnOneProcessor() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OnOneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneProcessor(const OnOneProcessor&) = delete;
  OnOneProcessor& operator=(const OnOneProcessor&) = delete;

 private:
  cpu_set_t before_{};
};

// A host that forwards: near - far is where packets come from, out - sink where it would send them to.
class KernelShares : public testing::TwoHosts<::testing::TestWithParam<KernelShare::Hook>> {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (!ready()) return;
    cable("near", "far");
    cable("out", "sink");
    run("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.near.disable_ipv6=0 "
        "net.ipv6.conf.out.disable_ipv6=0 "
        "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0; "
        "ip link set near address 02:00:00:00:00:01; ip addr add 192.0.2.1/24 dev near; "
        "ip -6 addr add 2001:db8::1/64 dev near nodad; ip addr add 198.51.100.1/24 dev out; "
        "ip -6 addr add 2001:db8:1::1/64 dev out nodad; "
        "ip neigh add 198.51.100.9 lladdr 02:00:00:00:00:09 dev out nud permanent; "
        "ip -6 neigh add 2001:db8:1::9 lladdr 02:00:00:00:00:09 dev out nud permanent");
    far_.emplace(wire("far"));
    sink_.emplace(wire("sink"));
    const auto inside = here_->enter();
    udp_ = TestFd(socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(4000);
    ASSERT_EQ(bind(udp_.get(), reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    auto near = Interface::find("near");
    ASSERT_TRUE(near.ok());
    near_ = std::make_unique<Interface>(std::move(*near));
    // An IPv6 address takes no packets until the kernel has looked at the link, which it does when it finds the time.
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!delivers("2001:db8::1") && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::unique_ptr<KernelShare> take(bool own = true) {
    const auto inside = here_->enter();
    auto share = KernelShare::take(*near_, own, GetParam());
    EXPECT_TRUE(share.ok()) << to_string(share.error());
    return share ? std::move(*share) : nullptr;
  }
  Bytes to(const char* destination) const {
    const bool v6 = std::string(destination).find(':') != std::string::npos;
    return (v6 ? udp6("2001:db8::2", destination) : udp4("192.0.2.2", destination))
        .macs(kNear, kFar)
        .ports(5000, 4000)
        .payload(20)
        .build();
  }
  // Whether the kernel forwards a packet to there.
  bool forwards(const char* destination) {
    while (sink_->receive(std::chrono::milliseconds(0))) {
    }
    EXPECT_TRUE(far_->send(to(destination)));
    // It is done with that packet when it answers the one behind it.
    EXPECT_TRUE(answers_arp());
    while (auto frame = sink_->receive(std::chrono::milliseconds(0))) {
      if (std::equal(kNextHop.bytes, kNextHop.bytes + 6, frame->begin())) return true;
    }
    return false;
  }
  bool answers_arp() {
    Bytes ask(60);
    const uint8_t text[] = {255, 255, 255, 255, 255, 255, 2, 0,   0, 0, 0, 2, 8, 6, 0, 1, 8, 0,   6, 4, 0,
                            1,   2,   0,   0,   0,   0,   2, 192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1};
    std::copy(std::begin(text), std::end(text), ask.begin());
    if (!far_->send(ask)) return false;
    while (auto frame = far_->receive()) {
      if (frame->size() >= 42 && (*frame)[12] == 8 && (*frame)[13] == 6 && (*frame)[21] == 2) return true;
    }
    return false;
  }
  // Whether a socket of this machine gets it.
  bool delivers(const char* destination) {
    EXPECT_TRUE(far_->send(to(destination)));
    EXPECT_TRUE(answers_arp());
    std::array<char, 100> text;
    return recv(udp_.get(), text.data(), text.size(), 0) == 20;
  }

  const OnOneProcessor one_processor_;
  std::optional<Wire> far_, sink_;
  std::unique_ptr<Interface> near_;
  TestFd udp_;
};

TEST_P(KernelShares, TheKernelGetsItsOwnAndForwardsNothing) {
  ASSERT_TRUE(forwards("198.51.100.9")) << "the host does not forward to begin with";
  ASSERT_TRUE(forwards("2001:db8:1::9"));
  ASSERT_TRUE(delivers("192.0.2.1"));
  auto share = take();
  ASSERT_NE(share, nullptr);
  EXPECT_FALSE(forwards("198.51.100.9"));
  EXPECT_FALSE(forwards("2001:db8:1::9"));
  EXPECT_TRUE(delivers("192.0.2.1"));
  EXPECT_TRUE(delivers("2001:db8::1"));
  EXPECT_TRUE(delivers("198.51.100.1")) << "an address of another interface is its own too";
  share.reset();
  EXPECT_TRUE(forwards("198.51.100.9"));
  EXPECT_TRUE(forwards("2001:db8:1::9"));
}

TEST_P(KernelShares, FollowsTheAddresses) {
  auto share = take();
  ASSERT_NE(share, nullptr);
  EXPECT_FALSE(delivers("203.0.113.1"));
  run("ip addr add 203.0.113.1/32 dev lo; ip addr del 192.0.2.1/24 dev near; ip addr add 192.0.2.1/25 dev near");
  share->follow_addresses();
  EXPECT_TRUE(delivers("203.0.113.1"));
  EXPECT_TRUE(delivers("192.0.2.1"));
  run("ip addr del 203.0.113.1/32 dev lo; ip route add local 203.0.113.1/32 dev lo");
  share->follow_addresses();
  EXPECT_FALSE(delivers("203.0.113.1"));
}

TEST_P(KernelShares, CanGiveTheKernelNothing) {
  auto share = take(false);
  ASSERT_NE(share, nullptr);
  EXPECT_TRUE(far_->send(to("192.0.2.1")));
  EXPECT_TRUE(far_->send(to("198.51.100.9")));
  share.reset();
  EXPECT_TRUE(answers_arp());
  std::array<char, 100> text;
  EXPECT_LT(recv(udp_.get(), text.data(), text.size(), 0), 0);
}

TEST_P(KernelShares, NothingIsLeftOfARunThatWasKilled) {
  const pid_t child = fork();
  if (child == 0) {
    auto share = take();
    _exit(share != nullptr ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  if (GetParam() == KernelShare::Hook::kLink) {
    EXPECT_TRUE(forwards("198.51.100.9"));
  } else {
    // The kernel keeps the filter; the next run has it for its own.
    EXPECT_FALSE(forwards("198.51.100.9"));
    auto next = take();
    ASSERT_NE(next, nullptr);
    auto filters = here_->run("tc filter show dev near ingress");
    ASSERT_TRUE(filters.ok());
    EXPECT_THAT(*filters, HasSubstr("sluice"));
    EXPECT_EQ(filters->find("handle"), filters->rfind("handle")) << "two filters: " << *filters;
    EXPECT_FALSE(forwards("198.51.100.9"));
    EXPECT_TRUE(delivers("192.0.2.1"));
    next.reset();
    filters = here_->run("tc filter show dev near ingress");
    ASSERT_TRUE(filters.ok());
    EXPECT_THAT(*filters, Not(HasSubstr("sluice")));
    EXPECT_TRUE(forwards("198.51.100.9"));
  }
}

TEST_P(KernelShares, GoesWithTheInterface) {
  auto share = take();
  ASSERT_NE(share, nullptr);
  run("ip link del near");
  share->follow_addresses();
  share.reset();
}

INSTANTIATE_TEST_SUITE_P(Hooks, KernelShares, ::testing::Values(KernelShare::Hook::kLink, KernelShare::Hook::kFilter),
                         [](const auto& hook) { return hook.param == KernelShare::Hook::kLink ? "link" : "filter"; });

// The port itself sees everything, and keeps the addresses up to date while it is polled.
TEST_P(KernelShares, APortReceivesAllAndTheKernelItsOwn) {
  if (GetParam() != KernelShare::Hook::kLink) GTEST_SKIP() << "a port takes the first that works";
  auto pool = MappedFramePool::create({.chunks = 512});
  ASSERT_TRUE(pool.ok());
  std::unique_ptr<Port> port;
  {
    const auto inside = here_->enter();
    auto opened = open_port({.name = "near", .method = PortMethod::kAfPacket}, *pool);
    ASSERT_TRUE(opened.ok()) << to_string(opened.error());
    port = std::move(*opened);
  }
  EXPECT_THAT(port->facts().mode, Not(HasSubstr("kernel also receives")));
  auto rx = port->open_rx(0);
  ASSERT_TRUE(rx.ok());
  EXPECT_FALSE(forwards("198.51.100.9"));
  EXPECT_TRUE(delivers("192.0.2.1"));
  run("ip addr add 203.0.113.1/32 dev lo");
  // One packet, two ARP requests, one packet; more from the kernel does not come.
  std::vector<uint8_t*> frames(32);
  std::vector<Extent> extents(32);
  std::vector<uint64_t> times(32);
  unsigned forwarded = 0, own = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while ((forwarded < 1 || own < 1) && std::chrono::steady_clock::now() < end) {
    const uint32_t n = (*rx)->poll({frames.data(), extents.data(), times.data()}, 32, now_ns());
    for (uint32_t i = 0; i < n; ++i) {
      const Bytes frame(frames[i], frames[i] + extents[i].end);
      forwarded += frame == to("198.51.100.9") ? 1 : 0;
      own += frame == to("192.0.2.1") ? 1 : 0;
    }
    (*pool)->give({frames.data(), n});
    std::this_thread::yield();
  }
  EXPECT_EQ(forwarded, 1u);
  EXPECT_EQ(own, 1u);
  bool delivered = false;
  while (!delivered && std::chrono::steady_clock::now() < end) {
    (*pool)->give({frames.data(), (*rx)->poll({frames.data(), extents.data(), times.data()}, 32, now_ns())});
    delivered = delivers("203.0.113.1");
  }
  EXPECT_TRUE(delivered);
}

}  // namespace
}  // namespace sluice
