// `sluice run` as the router between two hosts, whose kernels leave to their NICs what kernels do by default (TSO, GRO,
// checksums): ping, traceroute, and iperf3 by TCP and UDP pass through.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/testing/router_test.h"

namespace sluice::live_router_test {
namespace {

using Json = nlohmann::json;

// gen 10.1.0.2 - 10.1.0.1 router 10.2.0.1 - 10.2.0.2 sink.
class LiveRouterTest : public testing::RouterTest {
 protected:
  void route(const std::string& method, unsigned mtu = 1500) {
    const std::string size = std::to_string(mtu);
    for (const auto& [where, commands] :
         {std::pair(gen_.get(), "ip link set g0 mtu " + size +
                                    "; ip addr add 10.1.0.2/24 dev g0; "
                                    "ip route add default via 10.1.0.1"),
          std::pair(router_.get(), "sysctl -qw net.ipv4.ip_forward=0; ip link set d0 mtu " + size +
                                       "; ip link set d1 mtu " + size +
                                       "; ip addr add 10.1.0.1/24 dev d0; ip addr add 10.2.0.1/24 dev d1"),
          std::pair(sink_.get(), "ip link set s0 mtu " + size +
                                     "; ip addr add 10.2.0.2/24 dev s0; "
                                     "ip route add default via 10.2.0.1")}) {
      const auto done = where->run("set -e; " + commands);
      ASSERT_TRUE(done.ok()) << to_string(done.error());
    }
    write("rib", "10.1.0.0/24 dev d0\n10.2.0.0/24 dev d1\n");
    start("--routes rib --icmp-errors 10.1.0.1 --in d0 --in d1 --out 0=d0 --out 1=d1 --method " + method);
  }
  static bool has(const std::string& program) {
    return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
  }
  // By a host; it ends by itself or after some seconds.
  std::string host(const testing::NetNamespace& where, const std::string& command) {
    const auto done = where.run("timeout 30 " + command);
    EXPECT_TRUE(done.ok()) << to_string(done.error()) << read("log");
    return done.ok() ? *done : std::string();
  }
  // A host that iperf3 speaks to until the test ends.
  void serve() {
    const auto served = sink_->run("iperf3 -s -D -I '" + path("iperf.pid") +
                                   "' && for i in $(seq 500); do grep -qs ':1451 .* 0A ' /proc/self/net/tcp "
                                   "/proc/self/net/tcp6 && exit 0; sleep 0.02; done; exit 1");
    ASSERT_TRUE(served.ok()) << to_string(served.error());
  }
  void TearDown() override {
    if (exists("iperf.pid")) shell("kill $(tr -d '\\0' < iperf.pid)");
    RouterTest::TearDown();
  }
  // What iperf3 says of it, whose `part` is `end` of that.
  void iperf(const std::string& how, const std::string& part, Json& end) {
    Json said;
    // A server refuses or resets who comes while it takes leave of the client before: no test has begun then.
    for (int tries = 0; tries < 100; ++tries) {
      const auto done = gen_->run("timeout 30 iperf3 -c 10.2.0.2 -J " + how + " || true");
      ASSERT_TRUE(done.ok()) << to_string(done.error()) << read("log");
      said = Json::parse(*done, nullptr, false);
      if (!said.is_object() || !said.contains("error") || !said["start"].value("connected", Json::array()).empty())
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ASSERT_TRUE(said.is_object() && said.contains("end") && said["end"].contains(part)) << said.dump() << read("log");
    end = said["end"][part];
  }
  // Packets of UDP for which a program of the host was too slow.
  uint64_t refused_by(const testing::NetNamespace& where) {
    const auto said = where.run(
        "awk '/^Udp:/ { if (!at) { for (i = 1; i <= NF; ++i) if ($i == \"RcvbufErrors\") at = i } else print $at }' "
        "/proc/net/snmp");
    EXPECT_TRUE(said.ok()) << to_string(said.error());
    return said.ok() ? std::strtoull(said->c_str(), nullptr, 10) : 0;
  }
  void expect_nothing_cut(const Json& report) {
    ASSERT_TRUE(report.is_object()) << read("log") << read("report.json");
    EXPECT_TRUE(report["conserved"].get<bool>());
    for (const Json& one : report.at("ports")) {
      for (const Json& rx : one["rx"]) EXPECT_EQ(rx["too_long"].get<int>() + rx["invalid"].get<int>(), 0) << one.dump();
    }
  }

  void pings_and_traces(const std::string& method) {
    for (const char* program : {"ping", "traceroute"}) {
      if (!has(program)) GTEST_SKIP() << "no " << program << " here: apt-get install iputils-ping traceroute";
    }
    route(method);
    if (HasFatalFailure()) return;
    const std::string said = host(*gen_, "ping -n -c 5 -i 0.05 -W 10 10.2.0.2");
    EXPECT_NE(said.find(" 0% packet loss"), std::string::npos) << said;
    // The first hop is the router, which says so by ICMP; the second the host.
    for (const char* how : {"-I", "-U"}) {
      const std::string hops = host(*gen_, std::string("traceroute -n -q 1 -w 5 -m 4 ") + how + " 10.2.0.2");
      EXPECT_NE(hops.find(" 1  10.1.0.1 "), std::string::npos) << hops;
      EXPECT_NE(hops.find(" 2  10.2.0.2 "), std::string::npos) << hops;
      EXPECT_EQ(hops.find(" 3  "), std::string::npos) << hops;
    }
    const Json report = stop();
    expect_nothing_cut(report);
    EXPECT_GE(report["packets_in"], 10);
  }
  void speaks_tcp_and_udp(const std::string& method, unsigned mtu = 1500) {
    if (!has("iperf3")) GTEST_SKIP() << "no iperf3 here: apt-get install iperf3";
    route(method, mtu);
    if (!HasFatalFailure()) serve();
    if (HasFatalFailure()) return;
    // No figure is asked for; but it would take minutes where every large frame is lost.
    for (const char* direction : {"-n 20M", "-n 20M -R"}) {
      Json tcp;
      iperf(direction, "sum_received", tcp);
      if (HasFatalFailure()) return;
      EXPECT_GT(tcp["bytes"], 10'000'000) << tcp.dump();
    }
    Json udp;
    iperf("-u -b 10M -l 1000 -n 300K", "sum", udp);
    if (HasFatalFailure()) return;
    EXPECT_GT(udp["packets"], 200);
    const Json report = stop();
    expect_nothing_cut(report);
    if (HasFatalFailure()) return;
    // What did not arrive is what somebody says that he had no room for.
    uint64_t lost = refused_by(*sink_) + report["dropped"].get<uint64_t>();
    for (const Json& one : report.at("ports")) {
      for (const Json& rx : one["rx"]) lost += rx["missed"].get<uint64_t>();
    }
    EXPECT_LE(udp["lost_packets"].get<uint64_t>(), lost) << udp.dump() << report.dump();
  }
};

TEST_F(LiveRouterTest, PingAndTracerouteByAfPacket) {
  pings_and_traces("af_packet");
}
TEST_F(LiveRouterTest, PingAndTracerouteByAfXdp) {
  pings_and_traces("af_xdp");
}
TEST_F(LiveRouterTest, TcpAndUdpByAfPacket) {
  speaks_tcp_and_udp("af_packet");
}
TEST_F(LiveRouterTest, TcpAndUdpByAfXdp) {
  speaks_tcp_and_udp("af_xdp");
}
TEST_F(LiveRouterTest, TcpAndUdpInJumboFramesByAfXdp) {
  speaks_tcp_and_udp("af_xdp", 9000);
}

}  // namespace
}  // namespace sluice::live_router_test
