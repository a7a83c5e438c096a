// `sluice run` as a router without a line about link-layer addresses: next hops are found in the kernel's neighbour
// tables, and followed there while packets flow.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "net/text.h"
#include "tests/testing/router_test.h"

namespace sluice::neighbours_run_test {
namespace {

using testing::kPatience;
using testing::NetNamespace;
using testing::Said;
using testing::TestFd;
using testing::Wire;
using Bytes = Wire::Bytes;
using Json = nlohmann::json;

// gen 10.1.0.2 - 10.1.0.1 router 10.2.0.1 - 10.2.0.2 sink, and the same with 2001:db8:N::/64.
class NeighboursRunTest : public testing::RouterTest {
 protected:
  void SetUp() override {
    RouterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (const auto& [where, commands] :
         {std::pair(gen_.get(), std::string("ip addr add 10.1.0.2/24 dev g0; ip route add default via 10.1.0.1; "
                                            "ip addr add 2001:db8:1::2/64 dev g0 nodad; "
                                            "ip route add default via 2001:db8:1::1")),
          std::pair(router_.get(), std::string("sysctl -qw net.ipv4.ip_forward=0; "
                                               "ip addr add 10.1.0.1/24 dev d0; ip addr add 10.2.0.1/24 dev d1; "
                                               "ip addr add 2001:db8:1::1/64 dev d0 nodad; "
                                               "ip addr add 2001:db8:2::1/64 dev d1 nodad; "
                                               "ip addr add fe80::1/64 dev d1 nodad")),
          std::pair(sink_.get(), std::string("ip addr add 10.2.0.2/24 dev s0; ip route add default via 10.2.0.1; "
                                             "ip addr add 2001:db8:2::2/64 dev s0 nodad; "
                                             "ip addr add fe80::2/64 dev s0 nodad; "
                                             "ip route add default via 2001:db8:2::1"))}) {
      const auto done = where->run(
          "set -e; sysctl -qw net.ipv6.conf.all.disable_ipv6=0 "
          "net.ipv6.conf.default.disable_ipv6=0; " +
          commands);
      ASSERT_TRUE(done.ok()) << to_string(done.error());
    }
    write("connected", "10.1.0.0/24 dev d0\n10.2.0.0/24 dev d1\n2001:db8:1::/64 dev d0\n2001:db8:2::/64 dev d1\n");
    // What is behind the sink.
    write("rib",
          "8.0.0.0/8 via 10.2.0.2\n2001:db8:8::/48 via fe80::2 dev d1\n2001:db8:9::/48 via 2001:db8:2::2\n"
          "9.0.0.0/8 via 10.2.0.9\n");
  }

  void run_on(const NetNamespace& where, const std::string& command) {
    const auto done = where.run(command);
    EXPECT_TRUE(done.ok()) << to_string(done.error());
  }

  // A UDP socket in a namespace, of an address of its own.
  static TestFd socket_in(const NetNamespace& where, const char* address) {
    const auto inside = where.enter();
    const bool six = std::string(address).find(':') != std::string::npos;
    TestFd fd(::socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const timeval patience{kPatience.count(), 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(bind_or_connect(fd.get(), address, true), 0) << address << ": " << std::strerror(errno);
    return fd;
  }
  static int bind_or_connect(int fd, const char* address, bool binds) {
    sockaddr_in6 six{};
    sockaddr_in four{};
    sockaddr* at = reinterpret_cast<sockaddr*>(&four);
    socklen_t bytes = sizeof four;
    if (::inet_pton(AF_INET, address, &four.sin_addr) == 1) {
      four.sin_family = AF_INET;
      four.sin_port = htons(4000);
    } else {
      ::inet_pton(AF_INET6, address, &six.sin6_addr);
      six.sin6_family = AF_INET6;
      six.sin6_port = htons(4000);
      at = reinterpret_cast<sockaddr*>(&six);
      bytes = sizeof six;
    }
    return binds ? ::bind(fd, at, bytes) : ::connect(fd, at, bytes);
  }
  // A word there and one back, each answered within the patience of a test.
  static bool speak(int from, const char* from_address, int to, const char* to_address) {
    char word[8] = {};
    if (bind_or_connect(from, to_address, false) != 0 || bind_or_connect(to, from_address, false) != 0) return false;
    if (::send(from, "there", 5, 0) != 5 || ::recv(to, word, sizeof word, 0) != 5) return false;
    return ::send(to, "back", 4, 0) == 4 && ::recv(from, word, sizeof word, 0) == 4;
  }

  // UDP to somebody behind the router.
  Bytes frame(const char* to, uint16_t number = 0) const {
    const bool six = std::string(to).find(':') != std::string::npos;
    auto builder = six ? udp6("2001:db8:1::2", to) : udp4("10.1.0.2", to);
    Bytes bytes = builder.ports(static_cast<uint16_t>(1024 + number), 80).payload({1, 2, 3, 4}).build();
    const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
    std::copy(std::begin(head), std::end(head), bytes.begin());
    return bytes;
  }
  static std::string mac_at(const Bytes& frame, size_t at) {
    MacAddress mac;
    std::copy_n(frame.begin() + static_cast<long>(at), 6, mac.bytes);
    return to_string(mac);
  }
  // The next frame to a port 80, which no kernel sends here.
  static std::optional<Bytes> receive(Wire& wire, std::chrono::milliseconds patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
      auto frame = wire.receive(std::chrono::milliseconds(20));
      if (frame && frame->size() >= 38) {
        const bool four = (*frame)[12] == 8 && (*frame)[13] == 0 && (*frame)[23] == 17;
        const bool six = (*frame)[12] == 0x86 && frame->size() >= 58 && (*frame)[20] == 17;
        const size_t port = four ? 36 : 56;
        if ((four || six) && (*frame)[port] == 0 && (*frame)[port + 1] == 80) return frame;
      }
      if (!frame && std::chrono::steady_clock::now() > end) return std::nullopt;
    }
  }
  // Sends until a frame comes out to this MAC. False: none did.
  bool comes_to(Wire& near, Wire& far, const char* to, const std::string& mac, bool comes = true) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      near.send(frame(to));
      const auto seen = receive(far, std::chrono::milliseconds(50));
      if (seen.has_value() == comes && (!comes || mac_at(*seen, 0) == mac)) return true;
    }
    return false;
  }

  static uint64_t dropped(const Json& report, const char* reason) {
    return report["drops"].contains(reason) ? report["drops"][reason].get<uint64_t>() : 0;
  }
  void expect_conserved(const Json& report) {
    ASSERT_TRUE(report.is_object()) << read("log") << read("report.json");
    EXPECT_TRUE(report["conserved"].get<bool>()) << report.dump();
  }
  static Json interface(const Json& report, const char* name) {
    for (const Json& one : report.at("ports")) {
      if (one["name"] == name) return one;
    }
    return {};
  }
};

TEST_F(NeighboursRunTest, HostsOfTwoNetworksSpeakToEachOther) {
  for (const char* method : {"af_packet", "af_xdp"}) {
    SCOPED_TRACE(method);
    start("--routes connected --in d0 --in d1 --out 0=d0 --out 1=d1 --method " + std::string(method));
    for (const auto& [one, other] : {std::pair("10.1.0.2", "10.2.0.2"), std::pair("2001:db8:1::2", "2001:db8:2::2")}) {
      const TestFd near = socket_in(*gen_, one), far = socket_in(*sink_, other);
      EXPECT_TRUE(speak(near.get(), one, far.get(), other)) << one;
    }
    const Json report = stop();
    expect_conserved(report);
    EXPECT_EQ(dropped(report, "unresolved-neighbour"), 0) << report.dump();
    EXPECT_GE(report["packets_out"], 4);
  }
}

TEST_F(NeighboursRunTest, NextHopsAreAddressesOfBothFamiliesAndOfTheirLink) {
  start("--routes rib --in d0 --out d1 --method af_packet");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  for (const char* to : {"8.1.2.3", "2001:db8:8::1", "2001:db8:9::1"}) {
    for (uint16_t n = 0; n < 3; ++n) ASSERT_TRUE(near->send(frame(to, n)));
    // The first three wait for the answer, and keep their order.
    for (uint16_t n = 0; n < 3; ++n) {
      const auto seen = receive(*far);
      ASSERT_TRUE(seen) << to << read("log");
      EXPECT_EQ(mac_at(*seen, 0), "02:00:00:00:00:04");
      EXPECT_EQ(mac_at(*seen, 6), "02:00:00:00:00:03");
      const size_t port = (*seen)[12] == 0x86 ? 54 : 34;
      EXPECT_EQ((*seen)[port] * 256 + (*seen)[port + 1], 1024 + n);
    }
  }
  const Json report = stop();
  expect_conserved(report);
  EXPECT_EQ(report["packets_out"], 9);
  EXPECT_EQ(dropped(report, "unresolved-neighbour"), 0) << report.dump();
}

TEST_F(NeighboursRunTest, DropsAndCountsPacketsThatStillWaitAtTheEnd) {
  start("--routes rib --in d0 --out d1 --method af_packet");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  // Nobody is there.
  for (uint16_t n = 0; n < 10; ++n) ASSERT_TRUE(near->send(frame("9.1.2.3", n)));
  // One that goes through says that the others have been seen.
  ASSERT_TRUE(near->send(frame("8.1.2.3")));
  ASSERT_TRUE(receive(*far));
  const Json report = stop();
  expect_conserved(report);
  EXPECT_GE(report["packets_in"], 11) << "and what the host's kernel says of its own accord";
  EXPECT_EQ(dropped(report, "unresolved-neighbour"), 10) << report.dump();
}

TEST_F(NeighboursRunTest, AChangeOfTheNeighbourTableReachesPackets) {
  start("--routes rib --in d0 --out d1 --method af_packet --control s.sock");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:04"));
  run_on(*router_, "ip neigh replace 10.2.0.2 lladdr 02:00:00:00:00:99 dev d1 nud permanent");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:99"));
  const Said shown = sluice("show adjacencies --socket s.sock -o json");
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Json hop = shown.json()["next_hops"][0];
  EXPECT_EQ(hop["next_hop"], "10.2.0.2");
  EXPECT_EQ(hop["origin"], "kernel");
  EXPECT_EQ(hop["neighbours"][0]["destination"], "02:00:00:00:00:99");
  // What a user says of it wins, and the kernel again when it is taken back.
  const auto change = [&](const std::string& words) {
    const Said said = sluice("adjacencies " + words + " --socket s.sock");
    EXPECT_EQ(said.code, 0) << said.err;
  };
  change("set adj 10.2.0.2 02:00:00:00:00:55 02:00:00:00:00:03 0");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:55"));
  run_on(*router_, "ip neigh replace 10.2.0.2 lladdr 02:00:00:00:00:98 dev d1 nud permanent");
  near->send(frame("8.1.2.3"));
  const auto same = receive(*far);
  ASSERT_TRUE(same);
  EXPECT_EQ(mac_at(*same, 0), "02:00:00:00:00:55");
  EXPECT_EQ(sluice("show adjacencies --socket s.sock -o json").json()["next_hops"][0]["origin"], "static");
  change("delete adj 10.2.0.2");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:98"));
  // Forgotten, and nobody answers: nothing leaves. Then somebody does again.
  run_on(*sink_, "ip addr del 10.2.0.2/24 dev s0");
  run_on(*router_, "ip neigh del 10.2.0.2 dev d1");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "", false));
  EXPECT_EQ(sluice("show adjacencies --socket s.sock -o json").json()["next_hops"][0]["origin"], "kernel, unresolved");
  run_on(*sink_, "ip addr add 10.2.0.2/24 dev s0");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:04"));
  expect_conserved(stop());
}

TEST_F(NeighboursRunTest, ATraceSaysWhichNeighbourAPacketOfAConnectedRouteLeftTo) {
  start("--routes connected --in d0 --out 1=d1 --method af_packet --control s.sock");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  for (const auto& [to, leaves] :
       {std::pair("10.2.0.2", true), std::pair("2001:db8:2::2", true), std::pair("10.2.0.77", false)}) {
    SCOPED_TRACE(to);
    if (leaves) {
      ASSERT_TRUE(comes_to(*near, *far, to, "02:00:00:00:00:04"));
    }
    ASSERT_EQ(sluice(std::string("trace add 1 udp from any to ") + to + " port 80 --socket s.sock").code, 0);
    ASSERT_TRUE(near->send(frame(to)));
    // One that nobody answers for waits for three seconds.
    const auto end = std::chrono::steady_clock::now() + kPatience;
    Said shown;
    do {
      shown = sluice("show trace --socket s.sock");
      ASSERT_EQ(shown.code, 0) << shown.err;
    } while (shown.out.find("  fate ") == std::string::npos && std::chrono::steady_clock::now() < end);
    const std::string macs = leaves ? "02:00:00:00:00:04 <- 02:00:00:00:00:03 port 1" : "link-layer address not known";
    EXPECT_NE(shown.out.find(std::string("  adjacency neighbour ") + to + ": " + macs), std::string::npos) << shown.out;
    EXPECT_NE(shown.out.find(leaves ? "left by" : "dropped: unresolved-neighbour"), std::string::npos) << shown.out;
    if (leaves) {
      const Said why = sluice(std::string("why 'udp ") + (to[0] == '1' ? "10.1.0.1" : "2001:db8:1::1") + " > " + to +
                              "' --socket s.sock");
      EXPECT_NE(why.out.find(std::string("neighbour  ") + to + ": 02:00:00:00:00:04, from "), std::string::npos)
          << why.out << why.err;
    }
    EXPECT_EQ(shown.out.find("not resolved yet"), std::string::npos) << shown.out;
  }
  expect_conserved(stop());
}

TEST_F(NeighboursRunTest, AFileOfAdjacenciesWins) {
  write("adj", "10.2.0.2 02:00:00:00:00:77 02:00:00:00:00:03 0\n");
  start("--routes rib --adjacencies adj --in d0 --out d1 --method af_packet");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:77"));
  // And says nothing of others.
  EXPECT_TRUE(comes_to(*near, *far, "2001:db8:9::1", "02:00:00:00:00:04"));
  expect_conserved(stop());
}

TEST_F(NeighboursRunTest, ALinkThatFlapsIsSaidAndCountedAndGoesOn) {
  start("--routes rib --in d0 --out d1 --method af_packet");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:04"));
  run_on(*router_, "ip link set d1 down");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "", false));
  run_on(*router_, "ip link set d1 up");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:04"));
  run_on(*router_, "ip addr add 10.4.0.1/24 dev d1; ip link set d0 down; ip link set d0 name e0; ip link set e0 up");
  run_on(*gen_, "ip link set g0 up");
  EXPECT_TRUE(comes_to(*near, *far, "8.1.2.3", "02:00:00:00:00:04"));
  const Json report = stop();
  expect_conserved(report);
  const std::string log = read("log");
  const auto times = [&](const std::string& words) {
    size_t n = 0;
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(times("port d1: down\n"), 1u) << log;
  EXPECT_EQ(times("port d1: up\n"), 1u) << log;
  EXPECT_EQ(times("port d0: the interface is called e0 now\n"), 1u) << log;
  EXPECT_GE(times("port d1: its addresses have changed\n"), 1u) << log;
  EXPECT_EQ(interface(report, "d1")["link"], "up") << report["ports"].dump();
  EXPECT_GE(interface(report, "d1")["link_changes"], 2) << report["ports"].dump();
}

TEST_F(NeighboursRunTest, AnInterfaceThatIsRemovedEndsThereAndOthersGoOn) {
  start("--routes connected --in d0 --in d1 --out 0=d0 --out 1=d1 --method af_packet --control s.sock");
  const TestFd one = socket_in(*gen_, "10.1.0.2"), other = socket_in(*sink_, "10.2.0.2");
  EXPECT_TRUE(speak(one.get(), "10.1.0.2", other.get(), "10.2.0.2"));
  run_on(*router_, "ip link del d0");
  auto far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(far.ok());
  // What comes by the other one is still received, and dropped by its reason: nobody is there.
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (read("log").find("port d0: gone\n") == std::string::npos && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  Bytes bytes = udp4("10.2.0.2", "10.1.0.2").ports(1024, 80).payload({1, 2, 3, 4}).build();
  const uint8_t head[] = {2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4};
  std::copy(std::begin(head), std::end(head), bytes.begin());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(far->send(bytes));
  const auto drops = [&] {
    const Json shown = sluice("show drops --socket s.sock -o json").json();
    return shown.is_object() ? shown["dropped"].get<uint64_t>() : 0;
  };
  while (drops() < 5 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Json report = stop();
  expect_conserved(report);
  EXPECT_NE(read("log").find("port d0: gone\n"), std::string::npos) << read("log");
  EXPECT_EQ(report["ports"].size(), 2u);
  EXPECT_NE(report["ports"].dump().find("\"gone\""), std::string::npos) << report["ports"].dump();
  EXPECT_GE(dropped(report, "unresolved-neighbour") + dropped(report, "no-adjacency") + dropped(report, "tx-full"), 1)
      << report.dump();
}

TEST_F(NeighboursRunTest, PortsWithoutAKernelNeedAFile) {
  const auto inside = router_->enter();
  const Said said = sluice("run --routes rib --in d0 --out tap:t0");
  EXPECT_EQ(said.code, 2);
  EXPECT_NE(said.err.find("--adjacencies"), std::string::npos) << said.err;
}

}  // namespace
}  // namespace sluice::neighbours_run_test
