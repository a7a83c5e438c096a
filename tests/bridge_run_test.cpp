// `sluice run --bridge`: a firewall in the wire between two hosts, which see no change but what the list denies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/router_test.h"

namespace sluice::bridge_run_test {
namespace {

using testing::Said;
using testing::Wire;
using Bytes = Wire::Bytes;

constexpr const char* kList =
    "deny tcp from any to any port 81\n"
    "permit tcp from any to any\n"
    "permit icmp from any to any\n"
    "permit icmp6 from any to any icmp-type 128\n"
    "permit icmp6 from any to any icmp-type 129\n";

Bytes ether(uint64_t to, uint16_t type, uint8_t source = 1) {
  Bytes frame = PacketBuilder::ether(type).size(60).build();
  for (size_t i = 0; i < 6; ++i) frame[i] = static_cast<uint8_t>(to >> (40 - 8 * i));
  frame[11] = source;
  return frame;
}
Bytes tree() {
  return ether(0x0180c2000000, 38);
}
Bytes lldp() {
  return ether(0x0180c200000e, 0x88cc);
}
Bytes unknown() {
  return ether(0xffffffffffff, 0x8847);
}
PacketBuilder web(uint16_t port) {
  return tcp4("10.1.0.1", "10.1.0.2").ports(1234, port);
}

// gen g0 - d0 firewall d1 - s0 sink.
class BridgeLiveTest : public testing::RouterTest {
 protected:
  void SetUp() override {
    RouterTest::SetUp();
    write("edge.acl", kList);
  }
  void address_hosts() {
    for (const auto& [where, interface, host] : {std::tuple(gen_.get(), "g0", 1), std::tuple(sink_.get(), "s0", 2)}) {
      const auto done = where->run(fmt::format(
          "set -e; echo 0 > /proc/sys/net/ipv6/conf/{0}/disable_ipv6; ip addr add 10.1.0.{1}/24 dev {0}; ip addr add "
          "2001:db8::{1}/64 dev {0} nodad",
          interface, host));
      ASSERT_TRUE(done.ok()) << to_string(done.error());
    }
  }
  void ping(const testing::NetNamespace& from, const std::string& to) {
    const auto done = from.run("ping -c 2 -i 0.2 -W 5 " + to);
    EXPECT_TRUE(done.ok()) << to_string(done.error()) << read("log");
  }
  // The first of two frames is `first`, unless it was not to pass.
  static void crosses(Wire& near, Wire& far, const Bytes& first, bool passes) {
    const Bytes after = web(80).sequence(4711).build();
    ASSERT_TRUE(near.send(first));
    ASSERT_TRUE(near.send(after));
    bool seen = false;
    for (;;) {
      const auto frame = far.receive();
      ASSERT_TRUE(frame) << "the frame that passes did not come";
      seen |= *frame == first;
      if (*frame == after) break;
    }
    EXPECT_EQ(seen, passes);
  }
};

TEST_F(BridgeLiveTest, HostsReachEachOtherByPingAndTcp) {
  address_hosts();
  start("--bridge d0,d1 --acl edge.acl");
  ping(*gen_, "10.1.0.2");
  ping(*sink_, "2001:db8::1");
  const auto served =
      sink_->run("cd '" + folder_.string() +
                 "'; python3 -c 'import socket\ns = socket.create_server((\"\", 80)); open(\"listening\", \"w\")\n"
                 "c, _ = s.accept(); c.sendall(bytes(3000000)); c.close()' > served 2>&1 &");
  ASSERT_TRUE(served.ok()) << to_string(served.error());
  const auto read_all =
      gen_->run("cd '" + folder_.string() +
                "'; for i in $(seq 1000); do [ -e listening ] && break; sleep 0.02; done; python3 -c 'import socket\n"
                "s = socket.create_connection((\"10.1.0.2\", 80), 20); n = 0\n"
                "while b := s.recv(65536): n += len(b)\nprint(n)'");
  ASSERT_TRUE(read_all.ok()) << to_string(read_all.error()) << read("served");
  EXPECT_EQ(*read_all, "3000000\n");
  const auto report = stop();
  ASSERT_TRUE(report.is_object()) << read("log");
  EXPECT_TRUE(report["conserved"].get<bool>());
}

TEST_F(BridgeLiveTest, PassesArpAndStpBothWaysAndDeniedPacketsNeither) {
  const Bytes arp = ether(0xffffffffffff, 0x0806);
  Bytes tagged_arp = arp;
  tagged_arp.insert(tagged_arp.begin() + 12, {0x81, 0, 0, 7});
  const Bytes solicitation = ip6("fe80::1", "ff02::1:ff00:2", 58).icmp(135, 0).ttl(255).payload(24).build();
  const Bytes query = ip6("fe80::1", "ff02::1", 58).icmp(130, 0).ttl(1).payload(20).build();
  for (const bool all : {false, true}) {
    SCOPED_TRACE(all);
    start("--bridge d0,d1 --acl edge.acl" + std::string(all ? " --bridge-pass arp,nd,stp,lldp,0x8847" : ""));
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    for (const auto& [from, to] : {std::pair(&*near, &*far), std::pair(&*far, &*near)}) {
      crosses(*from, *to, arp, true);
      crosses(*from, *to, tagged_arp, true);
      crosses(*from, *to, tree(), true);
      crosses(*from, *to, solicitation, true);
      crosses(*from, *to, query, false);
      crosses(*from, *to, lldp(), all);
      crosses(*from, *to, unknown(), all);
      crosses(*from, *to, ether(0x0180c2000001, 0x8808), false);
      crosses(*from, *to, web(81).build(), false);
      crosses(*from, *to, web(80).vlan(7).vlan(9).build(), true);
      crosses(*from, *to, web(81).vlan(7).build(), false);
    }
    const auto report = stop();
    ASSERT_TRUE(report.is_object()) << read("log");
    EXPECT_TRUE(report["conserved"].get<bool>());
    EXPECT_EQ(report["drops"]["link-control"], all ? 2 : 4);
    EXPECT_EQ(report["drops"].value("not-ip", 0), all ? 0 : 2);
    EXPECT_EQ(report["drops"]["acl-deny"], 4);
    EXPECT_EQ(report["drops"]["acl-no-match"], 2);
  }
}

TEST_F(BridgeLiveTest, TheKernelOfTheFirewallAnswersNothing) {
  ASSERT_TRUE(router_->run("ip addr add 10.1.0.9/24 dev d0; ip addr add 10.1.0.2/24 dev d1").ok());
  for (const char* method : {"af_packet", "af_xdp"}) {
    SCOPED_TRACE(method);
    start("--bridge d0,d1 --acl edge.acl --method " + std::string(method));
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    // To the firewall's own link-layer and network addresses.
    Bytes echo = icmp4("10.1.0.1", "10.1.0.9").build();
    const uint8_t own[] = {2, 0, 0, 0, 0, 2};
    std::copy(std::begin(own), std::end(own), echo.begin());
    crosses(*near, *far, echo, true);
    EXPECT_FALSE(near->receive(std::chrono::milliseconds(100)));
    stop();
  }
}

TEST_F(BridgeLiveTest, PortsThatAreNoneAreNamed) {
  const auto inside = router_->enter();
  const Said none = sluice("run --bridge d0,d7 --acl edge.acl");
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("--bridge d0,d7: no interface has the name 'd7'"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("did you mean 'd"), std::string::npos) << none.err;
}

class BridgeCaptureTest : public testing::CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("edge.acl", kList);
    captured("lan.pcap", 1);
    captured("wan.pcap", 2);
  }
  void captured(const std::string& name, uint8_t side) {
    auto writer = CaptureWriter::create(path(name));
    ASSERT_TRUE(writer.ok());
    const auto add = [&](const Bytes& frame) {
      const auto bytes = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, 1}, frame.data()));
    };
    for (uint16_t i = 0; i < 300; ++i) {
      const uint16_t port = i % 5 == 0 ? 81 : 80;
      add((i % 3 == 0 ? tcp6("2001:db8::1", "2001:db8::2") : tcp4("10.1.0.1", "10.1.0.2"))
              .ports(static_cast<uint16_t>(1000 + i), port)
              .payload(i)
              .build());
      add(ether(0xffffffffffff, 0x0806, side));
      add(i % 2 == 0 ? tree() : lldp());
      if (i % 7 == 0) add(unknown());
      if (i % 11 == 0) add(udp4("10.1.0.1", "10.1.0.2").ihl(3).build());
      if (i % 4 == 0) add(ip6("fe80::1", "fe80::2", 58).icmp(136, 0).ttl(255).payload(16).build());
      if (i % 9 == 0) add(web(80).vlan(i).build());
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  static std::string maps(const std::string& name) {
    return fmt::format(" --map device:lan=pcap:lan.pcap,{0}-lan.pcap --map device:wan=pcap:wan.pcap,{0}-wan.pcap",
                       name);
  }
  size_t frames_of(const std::string& name) {
    auto reader = CaptureReader::open(path(name));
    size_t n = 0;
    for (CapturedFrame frame; reader.ok(); ++n) {
      const auto more = reader->next(frame);
      if (!more.ok() || !*more) break;
    }
    return n;
  }
};

TEST_F(BridgeCaptureTest, EveryWayToRunItWritesTheSameBytes) {
  const Said first = sluice("run --bridge lan,wan --acl edge.acl --device cpu -o json" + maps("cpu"));
  ASSERT_EQ(first.code, 0) << first.err;
  const auto report = first.json();
  EXPECT_TRUE(report["conserved"].get<bool>());
  EXPECT_EQ(report["drops"]["link-control"], 300);
  EXPECT_EQ(report["drops"]["not-ip"], 86);
  EXPECT_EQ(report["drops"]["acl-deny"], 120);
  EXPECT_EQ(report["drops"]["ipv4-bad-header-length"], 56);
  EXPECT_EQ(frames_of("cpu-lan.pcap"), report["packets_out"].get<size_t>() / 2);
  // What each side sends is the other's.
  EXPECT_NE(read("cpu-lan.pcap"), read("cpu-wan.pcap"));
  const std::string lan = read("cpu-lan.pcap"), wan = read("cpu-wan.pcap");
  ASSERT_EQ(sluice("run --bridge lan,wan --acl edge.acl --print-graph" + maps("click") + " > bridge.click").code, 0);
  write("bridge.toml",
        "acl = \"edge.acl\"\n[ports]\nbridge = [\"lan\", \"wan\"]\n"
        "map = [\"device:lan=pcap:lan.pcap,toml-lan.pcap\", \"device:wan=pcap:wan.pcap,toml-wan.pcap\"]\n");
  for (const auto& [name, command] :
       {std::pair<std::string, std::string>{"emu", "--bridge lan,wan --acl edge.acl --device emu"},
        {"resident", "--bridge lan,wan --acl edge.acl --device emu --mode persistent"},
        {"two", "--bridge lan,wan --acl edge.acl --workers 2 --batch 32"},
        {"click", "bridge.click"},
        {"toml", "--config bridge.toml"}}) {
    SCOPED_TRACE(name);
    const Said said = sluice("run " + command + " -o json" + (name == "toml" ? "" : maps(name)));
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["drops"], report["drops"]);
    EXPECT_TRUE(read(name + "-lan.pcap") == lan);
    EXPECT_TRUE(read(name + "-wan.pcap") == wan);
  }
  EXPECT_EQ(sluice("check bridge.toml").code, 0);
}

TEST_F(BridgeCaptureTest, OptionsThatDoNotBelongTogetherAreSaid) {
  for (const auto& [arguments, said] :
       {std::pair<std::string, std::string>{"--bridge lan,wan" + maps("x"), "--bridge needs --acl"},
        {"--bridge lan,wan --acl edge.acl --in lan.pcap" + maps("x"), "--bridge and --in"},
        {"--bridge lan,wan --acl edge.acl --out lan.pcap" + maps("x"), "--bridge and --out"},
        {"--bridge lan,wan --acl edge.acl --routes rib" + maps("x"), "--bridge and --routes"},
        {"--bridge lan,lan --acl edge.acl" + maps("x"), "not two ports"},
        {"--bridge lan --acl edge.acl" + maps("x"), "not two ports"},
        {"--acl edge.acl --in lan.pcap --bridge-pass arp", "--bridge-pass needs --bridge"}}) {
    const Said done = sluice("run " + arguments);
    EXPECT_EQ(done.code, 2) << arguments;
    EXPECT_NE((done.err + done.out).find(said), std::string::npos) << done.err << done.out;
  }
}

// One error, though both ways of a bridge have the kinds; from a file, with its place.
TEST_F(BridgeCaptureTest, AKindOfFrameThatIsNoneIsOneError) {
  const std::string kinds = "kinds are arp, nd, stp, lldp, lacp, eapol, llc, an EtherType such as 0x8847, all, or none";
  const auto times = [](const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  const Said kind = sluice("run --bridge lan,wan --acl edge.acl --bridge-pass arp,lldpd" + maps("x"));
  EXPECT_EQ(kind.code, 2);
  EXPECT_EQ(times(kind.err, "error: "), 1u) << kind.err;
  EXPECT_NE(kind.err.find("--bridge-pass: 'lldpd' is not a kind of frame; " + kinds), std::string::npos) << kind.err;
  for (const char* value : {"0x0800", "arp)", "\"arp", "arp // nd", "arp) -> Discard; x :: Counter("}) {
    const Said other =
        sluice("run --bridge lan,wan --acl edge.acl --bridge-pass '" + std::string(value) + "'" + maps("x"));
    EXPECT_EQ(other.code, 2) << value << other.err;
    EXPECT_EQ(times(other.err, "error: "), 1u) << value << other.err;
    EXPECT_NE(other.err.find("--bridge-pass: "), std::string::npos) << value << other.err;
  }
  write("bad.toml",
        "acl = \"edge.acl\"\n[ports]\nbridge = [\"lan\", \"wan\"]\nbridge-pass = \"arp,lldpd\"\n"
        "map = [\"device:lan=pcap:lan.pcap,x-lan.pcap\", \"device:wan=pcap:wan.pcap,x-wan.pcap\"]\n");
  for (const char* command : {"run --config bad.toml", "check bad.toml"}) {
    const Said file = sluice(command);
    EXPECT_EQ(file.code, 1) << command;
    EXPECT_NE(file.err.find("bad.toml:4:"), std::string::npos) << file.err;
    EXPECT_EQ(times(file.err, "'lldpd' is not a kind of frame"), 1u) << file.err;
    EXPECT_NE(file.err.find(kinds), std::string::npos) << file.err;
  }
  EXPECT_FALSE(exists("x-lan.pcap"));
}

}  // namespace
}  // namespace sluice::bridge_run_test
