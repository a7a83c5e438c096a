// `sluice run --nat`.
#include <fmt/format.h>

#include <random>
#include <vector>

#include "net/checksum.h"
#include "net/l4.h"
#include "net/packet_builder.h"
#include "net/parse.h"
#include "net/text.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::Said;

class CliNatTest : public testing::CliTest {
 protected:
  using Frames = std::vector<std::vector<uint8_t>>;
  void capture(const char* name, const Frames& frames) {
    auto writer = CaptureWriter::create(path(name));
    ASSERT_TRUE(writer.ok());
    uint64_t stamp = 1'700'000'000'000'000'000;
    for (const auto& f : frames) {
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, stamp += 1'000'000}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  // From the network header on, in order.
  Frames packets(const char* name) {
    Frames all;
    auto reader = CaptureReader::open(*InputFile::open(path(name)));
    EXPECT_TRUE(reader.ok());
    CapturedFrame frame;
    for (auto more = reader->next(frame); more.ok() && *more; more = reader->next(frame))
      all.emplace_back(frame.data + 14, frame.data + frame.captured);
    return all;
  }
  // "10.0.0.1:5>192.0.2.1:6", where there are ports; addresses alone of others.
  static std::string ends(const std::vector<uint8_t>& p, size_t at = 0) {
    const auto end = [&](size_t address, size_t port) {
      const bool ports = p[at + 9] != kProtocolIcmp && (load_be16(&p[at + 6]) & 0x1fff) == 0;
      return to_string(IpAddress{.lo = load_be32(&p[at + address]), .family = 4}) +
             (ports ? fmt::format(":{}", load_be16(&p[at + port])) : "");
    };
    return end(12, 20) + ">" + end(16, 22);
  }
  std::vector<std::string> all_ends(const char* name) {
    std::vector<std::string> all;
    for (const auto& p : packets(name)) all.push_back(ends(p));
    return all;
  }
  Json run(const std::string& options) {
    const Said said = sluice("run -o json --in in.pcap --out out.pcap " + options);
    EXPECT_EQ(said.code, 0) << said.err;
    return said.code == 0 ? Json::parse(said.out) : Json();
  }
  using Lines = std::vector<std::string>;
};

TEST_F(CliNatTest, AConnectionIsTranslatedBothWays) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1\ndnat 203.0.113.5 tcp 443 to 10.0.0.5:8443\n");
  capture("in.pcap", {udp4("10.0.0.1", "192.0.2.7").ports(4000, 53).build(),
                      udp4("192.0.2.7", "203.0.113.1").ports(53, 4000).build(),
                      tcp4("192.0.2.7", "203.0.113.5").ports(999, 443).tcp_flags(kTcpSyn).build(),
                      tcp4("10.0.0.5", "192.0.2.7").ports(8443, 999).tcp_flags(kTcpSyn | kTcpAck).build(),
                      udp4("192.0.2.8", "203.0.113.1").ports(53, 4000).build()});
  run("--nat nat.txt");
  EXPECT_EQ(all_ends("out.pcap"),
            (Lines{"203.0.113.1:4000>192.0.2.7:53", "192.0.2.7:53>10.0.0.1:4000", "192.0.2.7:999>10.0.0.5:8443",
                   "203.0.113.5:443>192.0.2.7:999", "192.0.2.8:53>203.0.113.1:4000"}));
}

TEST_F(CliNatTest, TheListSeesTheAddressesInside) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1\ndnat 203.0.113.5 tcp 443 to 10.0.0.5:8443\n");
  capture("in.pcap", {udp4("10.0.0.1", "192.0.2.7").ports(4000, 53).build(),
                      udp4("192.0.2.7", "203.0.113.1").ports(53, 4000).build(),
                      tcp4("192.0.2.7", "203.0.113.5").ports(999, 443).tcp_flags(kTcpSyn).build()});
  for (const char* list :
       {"permit udp from 10.0.0.1 to any state new keep-state\npermit ip from any to 10.0.0.1 state established\n"
        "permit tcp from any to 10.0.0.5 port 8443 state new keep-state\n",
        "permit udp from 10.0.0.1 to any\npermit udp from any to 10.0.0.1\npermit tcp from any to 10.0.0.5 port "
        "8443\n"}) {
    write("fw.acl", list);
    run("--nat nat.txt --acl fw.acl");
    EXPECT_EQ(all_ends("out.pcap"),
              (Lines{"203.0.113.1:4000>192.0.2.7:53", "192.0.2.7:53>10.0.0.1:4000", "192.0.2.7:999>10.0.0.5:8443"}));
  }
  // What the list denies opens nothing.
  write("fw.acl", "deny udp from any to any port 53\npermit ip from any to any\n");
  const Json json = run("--nat nat.txt --acl fw.acl");
  EXPECT_EQ(all_ends("out.pcap"), (Lines{"192.0.2.7:53>203.0.113.1:4000", "192.0.2.7:999>10.0.0.5:8443"}));
}

TEST_F(CliNatTest, WhatIsOfNoConnectionDoesNotLeaveWithAnAddressInside) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1\n");
  const auto error = icmp4("10.0.0.1", "192.0.2.7").icmp(3, 3).payload(30).build();
  capture("in.pcap", {tcp4("10.0.0.1", "192.0.2.7").ports(4000, 80).tcp_flags(kTcpSyn | kTcpAck).build(), error,
                      udp4("10.0.0.1", "192.0.2.7").ports(1, 2).fragment(800, true).build(),
                      tcp4("192.0.2.7", "192.0.2.8").ports(4000, 80).tcp_flags(kTcpSyn | kTcpAck).build()});
  const Json json = run("--nat nat.txt");
  EXPECT_EQ(all_ends("out.pcap"), (Lines{"192.0.2.7:4000>192.0.2.8:80"}));
  EXPECT_EQ(json["drops"]["nat-untracked"], 3) << json["drops"];
}

TEST_F(CliNatTest, FragmentsFollowTheirFirst) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1 ports 7000-7000\n");
  const auto there = udp4("10.0.0.1", "192.0.2.7").ports(4000, 53).payload(64);
  const auto back = udp4("192.0.2.7", "203.0.113.1").ports(53, 7000).payload(64);
  capture("in.pcap",
          {PacketBuilder(there).fragment(0, true, 9).build(), PacketBuilder(there).fragment(72, false, 9).build(),
           PacketBuilder(back).fragment(0, true, 9).build(), PacketBuilder(back).fragment(72, false, 9).build(),
           PacketBuilder(back).fragment(72, false, 10).build()});
  run("--nat nat.txt");
  EXPECT_EQ(all_ends("out.pcap"), (Lines{"203.0.113.1:7000>192.0.2.7:53", "203.0.113.1>192.0.2.7",
                                         "192.0.2.7:53>10.0.0.1:4000", "192.0.2.7>10.0.0.1", "192.0.2.7>203.0.113.1"}));
}

TEST_F(CliNatTest, ErrorsOfTheRouterQuoteWhatTheSenderSent) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1\ndnat 203.0.113.5 tcp 443 to 10.0.0.5:8443\n");
  write("rib.txt", "0.0.0.0/0 192.0.2.254\n10.0.0.0/8 10.0.0.254\n");
  capture("in.pcap", {udp4("10.0.0.1", "192.0.2.7").ports(4000, 53).ttl(1).build(),
                      tcp4("192.0.2.7", "203.0.113.5").ports(999, 443).tcp_flags(kTcpSyn).ttl(1).build()});
  run("--nat nat.txt --routes rib.txt --icmp-errors 198.51.100.1");
  const Frames out = packets("out.pcap");
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(ends(out[0]), "198.51.100.1>10.0.0.1");
  EXPECT_EQ(ends(out[0], 28), "10.0.0.1:4000>192.0.2.7:53");
  EXPECT_EQ(ends(out[1]), "198.51.100.1>192.0.2.7");
  EXPECT_EQ(ends(out[1], 28), "192.0.2.7:999>203.0.113.5:443");
  for (const auto& p : out) {
    EXPECT_EQ(l4_checksum(0, &p[20], static_cast<uint32_t>(p.size() - 20)), 0);
    EXPECT_TRUE(ipv4_checksum_ok(&p[28], 20));
  }
}

TEST_F(CliNatTest, FragmentsThatTheRouterMakesAreTranslatedAll) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1\n");
  write("rib.txt", "0.0.0.0/0 192.0.2.254\n");
  write("adj.txt", "192.0.2.254 02:00:00:00:00:02 02:00:00:00:00:01 0 mtu 576\n");
  capture("in.pcap", {udp4("10.0.0.1", "192.0.2.7").ports(4000, 53).payload(1000).build()});
  run("--nat nat.txt --routes rib.txt --adjacencies adj.txt");
  EXPECT_EQ(all_ends("out.pcap"), (Lines{"203.0.113.1:4000>192.0.2.7:53", "203.0.113.1>192.0.2.7"}));
}

TEST_F(CliNatTest, RulesWithAnOutputActWhereTheRouteLeads) {
  write("rib.txt", "0.0.0.0/0 192.0.2.254\n198.51.100.0/24 192.0.2.253\n");
  write("adj.txt",
        "192.0.2.254 02:00:00:00:00:02 02:00:00:00:00:01 0\n192.0.2.253 02:00:00:00:00:03 02:00:00:00:00:01 1\n");
  capture("in.pcap", {udp4("10.0.0.1", "192.0.2.7").ports(4000, 53).build(),
                      udp4("10.0.0.1", "198.51.100.7").ports(4000, 53).build()});
  write("nat.txt", "snat via 1 to 203.0.113.1\nsnat via 0 to 203.0.113.2\n");
  const Said said =
      sluice("run -q --in in.pcap --nat nat.txt --routes rib.txt --adjacencies adj.txt --out 0=a.pcap --out 1=b.pcap");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(all_ends("a.pcap"), (Lines{"203.0.113.2:4000>192.0.2.7:53"}));
  EXPECT_EQ(all_ends("b.pcap"), (Lines{"203.0.113.1:4000>198.51.100.7:53"}));
  for (const char* rule : {"masquerade via eth9\n", "masquerade via 1\n", "snat via eth9 to 203.0.113.1\n"}) {
    write("nat.txt", rule);
    EXPECT_EQ(sluice("run -q --in in.pcap --nat nat.txt --routes rib.txt --adjacencies adj.txt --out 0=a.pcap --out "
                     "1=b.pcap")
                  .code,
              1)
        << rule;
  }
}

TEST_F(CliNatTest, WithoutAFreePortAPacketIsDroppedAndCounted) {
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1 ports 5000-5001\n");
  Frames frames;
  for (uint16_t port = 1; port <= 5; ++port) frames.push_back(udp4("10.0.0.1", "192.0.2.7").ports(port, 53).build());
  capture("in.pcap", frames);
  const Json json = run("--nat nat.txt");
  EXPECT_EQ(packets("out.pcap").size(), 2u);
  EXPECT_EQ(json["drops"]["nat-ports-exhausted"], 3) << json["drops"];
}

TEST_F(CliNatTest, WrongRulesAreSaidWithTheirPlace) {
  capture("in.pcap", {udp4("10.0.0.1", "192.0.2.7").ports(1, 53).build()});
  write("nat.txt", "snat 10.0.0.0/8 to 203.0.113.1\nsnat 10.0.0.0/8 to nobody\n");
  const Said said = sluice("run -q --in in.pcap --nat nat.txt");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("nobody"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find(":2:"), std::string::npos) << said.err;
  write("fw.acl", "permit ip from any to any\n");
  EXPECT_EQ(
      sluice("run -q --bridge a,b --map device:a=pcap:in.pcap --map device:b=pcap:in.pcap --acl fw.acl --nat nat.txt")
          .code,
      2);
}

TEST_F(CliNatTest, AnyNumberOfWorkersAnyBatchAndADeviceGiveTheSameBytes) {
  write("nat.txt",
        "dnat 203.0.113.5 tcp 443 to 10.0.0.5:8443\nstatic 10.0.0.7 to 203.0.113.7\n"
        "snat 10.0.0.0/8 to 203.0.113.1-203.0.113.2 ports 2000-2030 per-host 9 filter any\n");
  write("fw.acl", "deny udp from any to any port 7\npermit ip from any to any\n");
  write("rib.txt", "0.0.0.0/0 192.0.2.254\n10.0.0.0/8 10.0.0.254\n");
  std::mt19937_64 random(5);
  const auto below = [&](uint64_t n) { return static_cast<uint16_t>(random() % n); };
  Frames frames;
  constexpr uint8_t kFlags[] = {kTcpSyn, kTcpSyn | kTcpAck, kTcpAck, kTcpAck, kTcpFin | kTcpAck, kTcpRst};
  for (int i = 0; i < 3000; ++i) {
    const std::string in = fmt::format("10.0.0.{}", 1 + below(8)), out = fmt::format("192.0.2.{}", 1 + below(3));
    const std::string front = fmt::format("203.0.113.{}", std::array<int, 4>{1, 2, 5, 7}[below(4)]);
    const bool from_inside = below(2) == 0;
    const std::string &from = from_inside ? in : out, &to = from_inside ? out : front;
    const uint16_t port = from_inside ? below(12) : static_cast<uint16_t>(2000 + below(33));
    PacketBuilder p = udp4(from.c_str(), to.c_str()).ports(port, from_inside ? below(9) : port);
    if (below(3) == 0)
      p = tcp4(from.c_str(), to.c_str()).ports(port, below(2) == 0 ? 443 : port).tcp_flags(kFlags[below(6)]);
    if (below(6) == 0) p = icmp4(from.c_str(), to.c_str()).icmp(from_inside ? 8 : 0, 0, uint32_t{port} << 16);
    if (below(10) == 0) p.fragment(below(2) * 8u, true, below(4));
    if (below(20) == 0) p.ttl(1);
    frames.push_back(p.build());
  }
  capture("in.pcap", frames);
  const std::string all = "--nat nat.txt --acl fw.acl --routes rib.txt --icmp-errors 198.51.100.1 --icmp-denied ";
  const Json first = run(all + "--workers 1 --batch 1");
  const std::string expected = read("out.pcap");
  EXPECT_GT(packets("out.pcap").size(), 1000u);
  for (const char* reason : {"nat-untracked", "nat-ports-exhausted"})
    EXPECT_GT(first["drops"][reason], 10) << first["drops"];
  for (const char* options :
       {"--workers 1", "--workers 3 --batch 7", "--workers 2 --batch 64", "--device emu --batch 32"}) {
    run(all + options);
    EXPECT_EQ(read("out.pcap") == expected, true) << options;
  }
}

}  // namespace
}  // namespace sluice
