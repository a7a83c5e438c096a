#include "net/parse.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/test_data.h"
#include "net/packet_builder.h"
#include "net/parse_oracle.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

// Larger sweeps for those who ask: SLUICE_TEST_SCALE=10.
int scale() {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  const int value = text != nullptr ? std::atoi(text) : 1;
  return value > 0 ? value : 1;
}

// Bytes in a heap block of exactly their size, so that AddressSanitizer sees the first byte that is read past it.
class Exact {
 public:
  Exact(const uint8_t* from, size_t size) : bytes_(new uint8_t[size]) {
    if (size > 0) std::memcpy(bytes_.get(), from, size);
  }
  const uint8_t* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
};

struct Parsed {
  ParseStatus status;
  Headers headers;
};

Headers garbage() {
  Headers headers;
  std::memset(static_cast<void*>(&headers), 0xa5, sizeof headers);
  return headers;
}

Parsed parse(const Bytes& frame) {
  Parsed result{ParseStatus::kOk, garbage()};
  const auto size = static_cast<uint32_t>(frame.size());
  const Exact exact(frame.data(), frame.size());
  result.status = parse_ethernet(exact.data(), size, size, result.headers);
  return result;
}

std::string describe(ParseStatus status, const Headers& h) {
  std::string text = to_string(status);
  const auto* raw = reinterpret_cast<const uint8_t*>(&h);
  for (size_t i = 0; i < sizeof h; ++i) {
    if (i % 8 == 0) text += ' ';
    text += "0123456789abcdef"[raw[i] >> 4];
    text += "0123456789abcdef"[raw[i] & 15];
  }
  return text;
}

// Both entry points, with and without the checksum, against the oracle. Returns what differs, or nothing.
std::string difference(const uint8_t* bytes, uint32_t captured, uint32_t wire, uint32_t l3 = 14) {
  const uint32_t readable = captured < wire ? captured : wire;
  const Exact frame(bytes, readable);
  for (const bool verify : {true, false}) {
    Headers fast = garbage();
    Headers slow = garbage();
    ParseStatus fast_status = parse_ethernet(frame.data(), captured, wire, fast, verify);
    ParseStatus slow_status = oracle::parse_ethernet(frame.data(), captured, wire, slow, verify);
    if (fast_status != slow_status || !oracle::same(fast, slow)) {
      return "parse_ethernet " + describe(fast_status, fast) + " but the oracle " + describe(slow_status, slow);
    }
    fast = garbage();
    slow = garbage();
    fast_status = parse_ip(frame.data(), captured, wire, l3, fast, verify);
    slow_status = oracle::parse_ip(frame.data(), captured, wire, l3, slow, verify);
    if (fast_status != slow_status || !oracle::same(fast, slow)) {
      return "parse_ip " + describe(fast_status, fast) + " but the oracle " + describe(slow_status, slow);
    }
  }
  return {};
}
std::string difference(const Bytes& frame) {
  return difference(frame.data(), static_cast<uint32_t>(frame.size()), static_cast<uint32_t>(frame.size()));
}

const char* const kA4 = "10.0.0.1";
const char* const kB4 = "192.0.2.7";
const char* const kA6 = "2001:db8::1";
const char* const kB6 = "2001:db8:ffff::2";

// One packet of each shape that the parser has a branch for.
std::map<std::string, PacketBuilder> zoo() {
  std::map<std::string, PacketBuilder> all;
  auto add = [&](const char* name, PacketBuilder builder) { all.emplace(name, std::move(builder)); };
  add("udp4", udp4(kA4, kB4).ports(1000, 53).payload(18));
  add("udp4 padded", udp4(kA4, kB4).payload(1).size(60));
  add("udp4 empty", udp4(kA4, kB4));
  add("tcp4", tcp4(kA4, kB4).ports(1000, 443).tcp_flags(0x12).payload(7));
  add("tcp4 df ttl1", tcp4(kA4, kB4).dont_fragment().ttl(1));
  add("icmp4", icmp4(kA4, kB4).icmp(3, 4).payload(20));
  add("sctp4", ip4(kA4, kB4, 132).payload(30));
  add("dccp4", ip4(kA4, kB4, 33).payload(30));
  add("udplite4", ip4(kA4, kB4, 136).payload(30));
  add("gre4", ip4(kA4, kB4, 47).payload(24));
  add("unknown4 empty", ip4(kA4, kB4, 253));
  add("icmpv6 in ipv4", ip4(kA4, kB4, 58).payload(8));
  add("first fragment4", udp4(kA4, kB4).fragment(0, true).payload(24));
  add("later fragment4", udp4(kA4, kB4).fragment(1480, false).payload(24));
  add("dscp ecn", udp4(kA4, kB4).dscp(46).ecn(3));
  add("options nop", udp4(kA4, kB4).ipv4_options(Bytes{1, 1, 1, 0}).payload(4));
  add("options lsrr", udp4(kA4, kB4).ipv4_options(Bytes{1, 131, 7, 4, 10, 0, 0, 9}).payload(4));
  add("options ssrr", udp4(kA4, kB4).ipv4_options(Bytes{137, 7, 4, 10, 0, 0, 9}).payload(4));
  add("options alert", udp4(kA4, kB4).ipv4_options(Bytes{148, 4, 0, 0}).payload(4));
  add("options bad", udp4(kA4, kB4).ipv4_options(Bytes{7, 9, 4, 0}).payload(4));
  add("options 40", tcp4(kA4, kB4).ipv4_options(Bytes(40, 1)).payload(4));
  add("vlan4", udp4(kA4, kB4).vlan(5, 3));
  add("qinq4", udp4(kA4, kB4).vlan(7, 0, 0x88a8).vlan(5).payload(2));
  add("four tags", udp4(kA4, kB4).vlan(1, 0, 0x9100).vlan(2).vlan(3).vlan(4));
  add("five tags", udp4(kA4, kB4).vlan(1).vlan(2).vlan(3).vlan(4).vlan(5));
  add("arp", PacketBuilder::ether(0x0806).payload(28));
  add("llc", PacketBuilder::ether(46).payload(46));
  add("multicast4", udp4(kA4, "224.0.0.5").macs({{1, 0, 0x5e, 0, 0, 5}}, {{2, 0, 0, 0, 0, 1}}));
  add("broadcast4", udp4(kA4, "255.255.255.255").macs({{255, 255, 255, 255, 255, 255}}, {{2, 0, 0, 0, 0, 1}}));
  add("udp6", udp6(kA6, kB6).ports(5, 6).payload(3));
  add("tcp6", tcp6(kA6, kB6).ports(5, 6).tcp_flags(2));
  add("icmp6", icmp6(kA6, kB6).payload(8));
  add("icmpv4 in ipv6", ip6(kA6, kB6, 1).payload(8));
  add("esp6", ip6(kA6, kB6, 50).payload(24));
  add("no next header", ip6(kA6, kB6, 59));
  add("dscp6", udp6(kA6, kB6).dscp(63).ecn(1).flow_label(0xabcde));
  add("multicast6", udp6(kA6, "ff02::1"));
  add("hop by hop", udp6(kA6, kB6).hop_by_hop(2));
  add("every extension",
      tcp6(kA6, kB6).hop_by_hop().destination_options(2).routing(4, 1, 3).fragment(0, true).authentication());
  add("atomic fragment6", udp6(kA6, kB6).fragment(0, false));
  add("first fragment6", udp6(kA6, kB6).fragment(0, true).payload(16));
  add("later fragment6", udp6(kA6, kB6).fragment(8, false).payload(16));
  add("routing 0 done", udp6(kA6, kB6).routing(0, 0));
  add("routing 0", udp6(kA6, kB6).routing(0, 1, 3));
  add("late hop by hop", udp6(kA6, kB6).destination_options().hop_by_hop());
  PacketBuilder eight = udp6(kA6, kB6);
  for (int i = 0; i < 8; ++i) eight.destination_options();
  add("eight extensions", eight);
  add("nine extensions", eight.destination_options());
  add("vlan6", tcp6(kA6, kB6).vlan(100));
  add("udp6 padded", udp6(kA6, kB6).payload(0).size(70));
  return all;
}

TEST(Parse, UdpOverIpv4KeepsEveryField) {
  const auto frame =
      udp4("10.1.2.3", "192.0.2.7").ports(1234, 53).ttl(9).dscp(46).ecn(1).dont_fragment().payload(2).size(60).build();
  const Parsed p = parse(frame);
  ASSERT_EQ(p.status, ParseStatus::kOk);
  EXPECT_EQ(p.headers.key.src_lo, 0x0a010203u);
  EXPECT_EQ(p.headers.key.dst_lo, 0xc0000207u);
  EXPECT_EQ(p.headers.key.src_hi, 0u);
  EXPECT_EQ(p.headers.key.dst_hi, 0u);
  EXPECT_EQ(p.headers.key.src_port, 1234);
  EXPECT_EQ(p.headers.key.dst_port, 53);
  EXPECT_EQ(p.headers.key.protocol, 17);
  EXPECT_EQ(p.headers.key.dscp, 46);
  EXPECT_EQ(p.headers.key.family, 4);
  EXPECT_EQ(p.headers.key.bits, FlowKey::kHasPorts);
  EXPECT_EQ(p.headers.key.flags, 0);
  EXPECT_EQ(p.headers.key.icmp, 0);
  EXPECT_EQ(p.headers.ether_type, 0x0800);
  EXPECT_EQ(p.headers.l3_offset, 14);
  EXPECT_EQ(p.headers.l4_offset, 34);
  EXPECT_EQ(p.headers.vlan_count, 0);
  EXPECT_EQ(p.headers.ttl, 9);
  EXPECT_EQ(p.headers.flags, Headers::kDontFragment);
  EXPECT_EQ(p.headers.ip_bytes, 30u);  // not the 46 bytes that Ethernet padding makes of it
}

TEST(Parse, TcpOverIpv6KeepsEveryField) {
  const Parsed p =
      parse(tcp6("2001:db8::1", "fe80:1:2:3:4:5:6:7").ports(1, 65535).tcp_flags(0xd2).ttl(3).dscp(10).build());
  ASSERT_EQ(p.status, ParseStatus::kOk);
  EXPECT_EQ(p.headers.key.src_hi, 0x20010db800000000u);
  EXPECT_EQ(p.headers.key.src_lo, 1u);
  EXPECT_EQ(p.headers.key.dst_hi, 0xfe80000100020003u);
  EXPECT_EQ(p.headers.key.dst_lo, 0x0004000500060007u);
  EXPECT_EQ(p.headers.key.src_port, 1);
  EXPECT_EQ(p.headers.key.dst_port, 65535);
  EXPECT_EQ(p.headers.key.protocol, 6);
  EXPECT_EQ(p.headers.key.flags, 0xd200);
  EXPECT_EQ(p.headers.key.dscp, 10);
  EXPECT_EQ(p.headers.key.family, 6);
  EXPECT_EQ(p.headers.ttl, 3);
  EXPECT_EQ(p.headers.l4_offset, 54);
  EXPECT_EQ(p.headers.ip_bytes, 60u);
  EXPECT_EQ(p.headers.flags, 0);
}

TEST(Parse, VlanTagsAreWalkedAndTheOutermostIsKept) {
  const Parsed p = parse(udp4(kA4, kB4).vlan(7, 5, 0x88a8).vlan(9).build());
  ASSERT_EQ(p.status, ParseStatus::kOk);
  EXPECT_EQ(p.headers.vlan_count, 2);
  EXPECT_EQ(p.headers.vlan_tci, 5 << 13 | 7);
  EXPECT_EQ(p.headers.l3_offset, 22);
  EXPECT_EQ(p.headers.ether_type, 0x0800);
  EXPECT_EQ(parse(udp4(kA4, kB4).vlan(1).vlan(2).vlan(3).vlan(4).build()).status, ParseStatus::kOk);
  const Parsed five = parse(udp4(kA4, kB4).vlan(1).vlan(2).vlan(3).vlan(4).vlan(5).build());
  EXPECT_EQ(five.status, ParseStatus::kTooManyVlans);
  EXPECT_EQ(five.headers.vlan_count, 4);
}

TEST(Parse, KeepsTheEtherTypeOfOtherFrames) {
  const Parsed arp = parse(PacketBuilder::ether(0x0806).payload(28).build());
  EXPECT_EQ(arp.status, ParseStatus::kNotIp);
  EXPECT_EQ(arp.headers.ether_type, 0x0806);
  EXPECT_EQ(arp.headers.l3_offset, 14);
  EXPECT_EQ(arp.headers.l4_offset, Headers::kNoOffset);
  EXPECT_EQ(arp.headers.key, FlowKey{});
}

// RFC 1812 section 5.2.2, rule by rule, each on a packet that is right but for it.
TEST(Parse, Rfc1812Section522RulesHaveAStatusEach) {
  EXPECT_EQ(parse(udp4(kA4, kB4).truncate(33).build()).status, ParseStatus::kIpv4TooShort);
  EXPECT_EQ(parse(udp4(kA4, kB4).bad_ip_checksum().build()).status, ParseStatus::kIpv4BadChecksum);
  EXPECT_EQ(parse(udp4(kA4, kB4).ip_version(5).build()).status, ParseStatus::kIpv4BadVersion);
  EXPECT_EQ(parse(udp4(kA4, kB4).ihl(4).build()).status, ParseStatus::kIpv4BadHeaderLength);
  EXPECT_EQ(parse(udp4(kA4, kB4).ihl(15).build()).status, ParseStatus::kIpv4BadHeaderLength);
  EXPECT_EQ(parse(udp4(kA4, kB4).total_length(19).build()).status, ParseStatus::kIpv4BadTotalLength);
  EXPECT_EQ(parse(udp4(kA4, kB4).payload(4).total_length(33).build()).status, ParseStatus::kIpv4TruncatedFrame);
  EXPECT_EQ(parse(udp4(kA4, kB4).payload(4).total_length(32).build()).status, ParseStatus::kOk);
  // A total length that is below IHL * 4 although not below 20.
  EXPECT_EQ(parse(udp4(kA4, kB4).ipv4_options(Bytes{1, 1, 1, 1}).total_length(23).build()).status,
            ParseStatus::kIpv4BadTotalLength);
}

TEST(Parse, Rfc1812Section522ChecksumComesBeforeTheRest) {
  EXPECT_EQ(parse(udp4(kA4, kB4).ip_version(5).bad_ip_checksum().build()).status, ParseStatus::kIpv4BadChecksum);
  EXPECT_EQ(parse(udp4(kA4, kB4).ihl(3).bad_ip_checksum().build()).status, ParseStatus::kIpv4BadChecksum);
  EXPECT_EQ(parse(udp4(kA4, kB4).total_length(3).bad_ip_checksum().build()).status, ParseStatus::kIpv4BadChecksum);
  // Version before header length before total length.
  EXPECT_EQ(parse(udp4(kA4, kB4).ip_version(5).ihl(3).build()).status, ParseStatus::kIpv4BadVersion);
  EXPECT_EQ(parse(udp4(kA4, kB4).ihl(3).total_length(3).build()).status, ParseStatus::kIpv4BadHeaderLength);
}

TEST(Parse, ATrustedChecksumIsNotVerified) {
  const auto frame = udp4(kA4, kB4).bad_ip_checksum().build();
  const auto size = static_cast<uint32_t>(frame.size());
  Headers out;
  EXPECT_EQ(parse_ethernet(frame.data(), size, size, out), ParseStatus::kIpv4BadChecksum);
  EXPECT_EQ(parse_ethernet(frame.data(), size, size, out, false), ParseStatus::kOk);
  EXPECT_EQ(parse_ip(frame.data(), size, size, 14, out), ParseStatus::kIpv4BadChecksum);
  EXPECT_EQ(parse_ip(frame.data(), size, size, 14, out, false), ParseStatus::kOk);
}

TEST(Parse, Ipv4OptionsAreWalkedForSourceRoutes) {
  auto flags = [](Bytes options) {
    const Parsed p = parse(udp4(kA4, kB4).ipv4_options(options).payload(4).build());
    EXPECT_EQ(p.status, ParseStatus::kOk);
    EXPECT_EQ(p.headers.key.bits, FlowKey::kHasPorts);
    return p.headers.flags;
  };
  const uint16_t options = Headers::kIpv4Options;
  EXPECT_EQ(flags({1, 1, 1, 1}), options);
  EXPECT_EQ(flags({148, 4, 0, 0}), options);
  EXPECT_EQ(flags({131, 7, 4, 10, 0, 0, 9}), options | Headers::kSourceRoute);
  EXPECT_EQ(flags({1, 1, 137, 7, 4, 10, 0, 0, 9}), options | Headers::kSourceRoute);
  EXPECT_EQ(flags({0, 131, 7, 4}), options);  // past the end of the list
  EXPECT_EQ(flags({7, 0, 0, 0}), options | Headers::kBadOptions);
  EXPECT_EQ(flags({7, 5, 0, 0}), options | Headers::kBadOptions);
  EXPECT_EQ(flags({1, 1, 1, 131}), options | Headers::kBadOptions);  // no room for a length
}

TEST(Parse, FragmentsSayWhichTheyAre) {
  const Parsed first = parse(udp4(kA4, kB4).fragment(0, true).payload(24).build());
  EXPECT_EQ(first.headers.key.bits, FlowKey::kFragment | FlowKey::kHasPorts);
  EXPECT_EQ(first.headers.l4_offset, 34);
  const Parsed later = parse(udp4(kA4, kB4).fragment(8, false).payload(24).build());
  EXPECT_EQ(later.status, ParseStatus::kOk);
  EXPECT_EQ(later.headers.key.bits, FlowKey::kFragment | FlowKey::kLaterFragment);
  EXPECT_EQ(later.headers.key.src_port, 0);
  EXPECT_EQ(later.headers.l4_offset, Headers::kNoOffset);
  const Parsed later6 = parse(udp6(kA6, kB6).fragment(8, true).payload(24).build());
  EXPECT_EQ(later6.status, ParseStatus::kOk);
  EXPECT_EQ(later6.headers.key.bits, FlowKey::kFragment | FlowKey::kLaterFragment);
  EXPECT_EQ(later6.headers.key.protocol, 17);
  EXPECT_EQ(later6.headers.l4_offset, Headers::kNoOffset);
  const Parsed atomic = parse(udp6(kA6, kB6).fragment(0, false).build());  // RFC 6946
  EXPECT_EQ(atomic.headers.key.bits, FlowKey::kHasPorts);
}

// Fragments of one datagram take one path (ECMP, worker): the first, which has ports, and the rest.
TEST(Parse, FragmentsOfOneFlowHashAlike) {
  const Parsed first = parse(udp4(kA4, kB4).ports(7, 8).fragment(0, true).payload(24).build());
  const Parsed later = parse(udp4(kA4, kB4).fragment(32, false).payload(9).build());
  EXPECT_EQ(flow_hash(first.headers.key), flow_hash(later.headers.key));
  const Parsed other = parse(udp4(kA4, "192.0.2.8").fragment(32, false).payload(9).build());
  EXPECT_NE(flow_hash(other.headers.key), flow_hash(later.headers.key));
}

TEST(Parse, AShortL4HeaderIsForwardedWithTheFieldsThatAreThere) {
  struct Case {
    uint8_t protocol;
    uint32_t need;
  };
  for (const Case c : {Case{6, 20}, Case{17, 8}, Case{33, 12}, Case{132, 12}, Case{136, 8}, Case{1, 8}}) {
    // Cut at the IP layer: total length says that the packet ends inside the L4 header.
    for (uint32_t bytes = 0; bytes <= c.need; ++bytes) {
      for (const bool first_fragment : {false, true}) {
        auto builder = ip4(kA4, kB4, c.protocol).ports(0x1234, 0x5678).tcp_flags(0x12).icmp(9, 7).payload(30);
        if (first_fragment) builder.fragment(0, true);
        const Parsed p = parse(builder.total_length(static_cast<uint16_t>(20 + bytes)).build());
        ASSERT_EQ(p.status, ParseStatus::kOk);
        const FlowKey& k = p.headers.key;
        const bool whole = bytes == c.need, icmp = c.protocol == 1, tcp = c.protocol == 6;
        const bool ports = !icmp && bytes >= 4, flags = tcp && bytes >= 14, type = icmp && bytes >= 1,
                   code = icmp && bytes >= 2;
        EXPECT_EQ((p.headers.flags & Headers::kL4Truncated) != 0, !whole) << int{c.protocol} << " " << bytes;
        EXPECT_EQ(p.headers.l4_offset, whole ? 34 : Headers::kNoOffset);
        const int bits = (ports ? FlowKey::kHasPorts : 0) | (first_fragment ? FlowKey::kFragment : 0) |
                         ((tcp && !flags) || (icmp && !code) ? FlowKey::kNoFlags : 0) |
                         (icmp && !type ? FlowKey::kNoIcmpType : 0) | (whole ? 0 : FlowKey::kShortL4);
        EXPECT_EQ(k.bits, bits) << int{c.protocol} << " " << bytes;
        EXPECT_EQ(k.src_port, ports ? 0x1234 : 0);
        EXPECT_EQ(k.dst_port, ports ? 0x5678 : 0);
        EXPECT_EQ(k.flags, flags ? 0x1200 : 0);
        EXPECT_EQ(k.icmp, (type ? 0x0900 : 0) | (code ? 7 : 0));
        const bool tiny = first_fragment && !whole && (tcp || (icmp ? !code : !ports));
        EXPECT_EQ((p.headers.flags & Headers::kTinyFragment) != 0, tiny) << int{c.protocol} << " " << bytes;
      }
    }
  }
}

// RFC 1858 section 3.2.2, RFC 3128: the offset 8 would replace or bring TCP's flags behind a filter.
TEST(Parse, ATcpFragmentWithTheOffset8IsTiny) {
  const auto tiny = [](const PacketBuilder& builder) {
    const Parsed p = parse(builder.build());
    EXPECT_EQ(p.status, ParseStatus::kOk);
    return (p.headers.flags & Headers::kTinyFragment) != 0;
  };
  for (const bool more : {false, true}) {
    EXPECT_TRUE(tiny(tcp4(kA4, kB4).fragment(8, more).payload(24)));
    EXPECT_TRUE(tiny(tcp6(kA6, kB6).fragment(8, more).payload(24)));
    EXPECT_FALSE(tiny(tcp4(kA4, kB4).fragment(16, more).payload(24)));
    EXPECT_FALSE(tiny(tcp6(kA6, kB6).fragment(16, more).payload(24)));
    EXPECT_FALSE(tiny(udp4(kA4, kB4).fragment(8, more).payload(24)));
    EXPECT_FALSE(tiny(udp6(kA6, kB6).fragment(8, more).payload(24)));
  }
}

TEST(Parse, Rfc7112AFirstFragmentHoldsAllHeaders) {
  const auto cut = [](uint16_t payload) {
    return parse(tcp6(kA6, kB6).fragment(0, true).destination_options(3).payload_length(payload).build()).status;
  };
  EXPECT_EQ(cut(8 + 7), ParseStatus::kIpv6FragmentedHeaders);
  EXPECT_EQ(cut(8 + 8), ParseStatus::kIpv6FragmentedHeaders);
  EXPECT_EQ(cut(8 + 24), ParseStatus::kOk);
  EXPECT_EQ(parse(tcp6(kA6, kB6).destination_options(3).payload_length(8).build()).status,
            ParseStatus::kIpv6BadExtensionHeader);
}

TEST(Parse, AnAuthenticationHeaderOfIpv6LeavesItsBit) {
  EXPECT_EQ(parse(tcp6(kA6, kB6).authentication().build()).headers.key.bits, FlowKey::kHasPorts | FlowKey::kAfterAh);
  EXPECT_EQ(parse(tcp6(kA6, kB6).authentication().fragment(16, true).payload(24).build()).headers.key.bits,
            FlowKey::kAfterAh | FlowKey::kFragment | FlowKey::kLaterFragment);
  EXPECT_EQ(parse(tcp6(kA6, kB6).destination_options().build()).headers.key.bits, FlowKey::kHasPorts);
}

TEST(Parse, IcmpTypeAndCodeBelongToTheirFamily) {
  EXPECT_EQ(parse(icmp4(kA4, kB4).icmp(3, 4).build()).headers.key.icmp, 0x0304);
  EXPECT_EQ(parse(icmp6(kA6, kB6).icmp(129, 7).build()).headers.key.icmp, 129 << 8 | 7);
  EXPECT_EQ(parse(ip4(kA4, kB4, 58).payload(8).build()).headers.key.icmp, 0);
  EXPECT_EQ(parse(ip6(kA6, kB6, 1).payload(8).build()).headers.key.icmp, 0);
}

TEST(Parse, Rfc8200ExtensionHeadersAreWalkedToTheTransport) {
  const Parsed p =
      parse(tcp6(kA6, kB6).ports(7, 8).hop_by_hop(2).destination_options().routing(4, 1, 3).authentication().build());
  ASSERT_EQ(p.status, ParseStatus::kOk);
  EXPECT_EQ(p.headers.key.protocol, 6);
  EXPECT_EQ(p.headers.key.dst_port, 8);
  EXPECT_EQ(p.headers.flags, Headers::kExtensionHeaders | Headers::kHopByHop);
  EXPECT_EQ(p.headers.l4_offset, 14 + 40 + 16 + 8 + 24 + 24);
  const Parsed esp = parse(ip6(kA6, kB6, 50).payload(24).build());
  EXPECT_EQ(esp.headers.key.protocol, 50);
  EXPECT_EQ(esp.headers.flags, 0);
  EXPECT_EQ(esp.headers.l4_offset, 54);
  const Parsed none = parse(ip6(kA6, kB6, 59).build());
  EXPECT_EQ(none.status, ParseStatus::kOk);
  EXPECT_EQ(none.headers.l4_offset, Headers::kNoOffset);
}

TEST(Parse, Ipv6RulesHaveAStatusEach) {
  EXPECT_EQ(parse(udp6(kA6, kB6).truncate(53).build()).status, ParseStatus::kIpv6TooShort);
  EXPECT_EQ(parse(udp6(kA6, kB6).ip_version(4).build()).status, ParseStatus::kIpv6BadVersion);
  EXPECT_EQ(parse(udp6(kA6, kB6).payload_length(9).build()).status, ParseStatus::kIpv6BadPayloadLength);
  EXPECT_EQ(parse(udp6(kA6, kB6).payload_length(8).build()).status, ParseStatus::kOk);
  EXPECT_EQ(parse(udp6(kA6, kB6).hop_by_hop(2).payload_length(15).build()).status,
            ParseStatus::kIpv6BadExtensionHeader);
  EXPECT_EQ(parse(udp6(kA6, kB6).hop_by_hop().payload_length(7).build()).status, ParseStatus::kIpv6BadExtensionHeader);
  // RFC 8200 section 4.1: hop-by-hop options stand first or nowhere.
  EXPECT_EQ(parse(udp6(kA6, kB6).destination_options().hop_by_hop().build()).status,
            ParseStatus::kIpv6BadExtensionHeader);
  PacketBuilder eight = udp6(kA6, kB6);
  for (int i = 0; i < 8; ++i) eight.destination_options();
  EXPECT_EQ(parse(eight.build()).status, ParseStatus::kOk);
  EXPECT_EQ(parse(eight.destination_options().build()).status, ParseStatus::kIpv6TooManyExtensionHeaders);
  // RFC 2675: a jumbogram's length is in an option that this length field hides.
  EXPECT_EQ(parse(udp6(kA6, kB6).hop_by_hop().payload_length(0).build()).status, ParseStatus::kIpv6BadExtensionHeader);
}

TEST(Parse, Rfc5095RoutingType0WithSegmentsLeftIsRefused) {
  EXPECT_EQ(parse(udp6(kA6, kB6).routing(0, 1).build()).status, ParseStatus::kIpv6RoutingType0);
  EXPECT_EQ(parse(udp6(kA6, kB6).routing(0, 0).build()).status, ParseStatus::kOk);
  EXPECT_EQ(parse(udp6(kA6, kB6).routing(4, 1).build()).status, ParseStatus::kOk);  // segment routing, RFC 8754
}

TEST(Parse, GroupDestinationsAreFlaggedByLayer) {
  const MacAddress from{{2, 0, 0, 0, 0, 1}};
  const MacAddress all{{255, 255, 255, 255, 255, 255}};
  const MacAddress group{{1, 0, 0x5e, 0, 0, 5}};
  EXPECT_EQ(parse(udp4(kA4, kB4).macs(all, from).build()).headers.flags, Headers::kLinkBroadcast);
  EXPECT_EQ(parse(udp4(kA4, kB4).macs(group, from).build()).headers.flags, Headers::kLinkMulticast);
  EXPECT_EQ(parse(udp4(kA4, "224.0.0.0").build()).headers.flags, Headers::kIpMulticast);
  EXPECT_EQ(parse(udp4(kA4, "239.255.255.255").build()).headers.flags, Headers::kIpMulticast);
  EXPECT_EQ(parse(udp4(kA4, "223.255.255.255").build()).headers.flags, 0);
  EXPECT_EQ(parse(udp4(kA4, "240.0.0.0").build()).headers.flags, 0);
  EXPECT_EQ(parse(udp6(kA6, "ff02::1").build()).headers.flags, Headers::kIpMulticast);
  EXPECT_EQ(parse(udp6(kA6, "fe80::1").build()).headers.flags, 0);
  // The link's part survives a failure of the IP part.
  EXPECT_EQ(parse(udp4(kA4, kB4).macs(all, from).bad_ip_checksum().build()).headers.flags, Headers::kLinkBroadcast);
}

TEST(Parse, ParseIpAgreesWithParseEthernetOnTheIpPart) {
  for (const auto& [name, builder] : zoo()) {
    const Bytes frame = builder.build();
    const auto size = static_cast<uint32_t>(frame.size());
    Headers a;
    Headers b;
    const ParseStatus status = parse_ethernet(frame.data(), size, size, a);
    if (status == ParseStatus::kNotIp || status == ParseStatus::kTooManyVlans) continue;
    ASSERT_EQ(parse_ip(frame.data(), size, size, a.l3_offset, b), status) << name;
    EXPECT_EQ(a.key, b.key) << name;
    EXPECT_EQ(a.l4_offset, b.l4_offset) << name;
    EXPECT_EQ(a.ip_bytes, b.ip_bytes) << name;
  }
}

TEST(Parse, ParseIpRefusesAnOffsetPastTheFrame) {
  const Bytes frame = udp4(kA4, kB4).build();
  const auto size = static_cast<uint32_t>(frame.size());
  Headers out;
  EXPECT_EQ(parse_ip(frame.data(), size, size, size + 1, out), ParseStatus::kTruncatedL2);
  EXPECT_EQ(parse_ip(frame.data(), size, size, 0xffffffff, out), ParseStatus::kTruncatedL2);
  EXPECT_EQ(parse_ip(frame.data(), size, size, size, out), ParseStatus::kIpv4TooShort);
  EXPECT_EQ(parse_ip(frame.data(), size, size + 1, size, out), ParseStatus::kCapturedTooShort);
}

TEST(Parse, TheZooReachesEveryStatusOfWholeFrames) {
  std::set<ParseStatus> seen;
  for (const auto& [name, builder] : zoo()) {
    const Bytes frame = builder.build();
    EXPECT_EQ(difference(frame), "") << name;
    seen.insert(parse(frame).status);
  }
  EXPECT_TRUE(seen.count(ParseStatus::kOk));
  EXPECT_TRUE(seen.count(ParseStatus::kIpv6RoutingType0));
  EXPECT_TRUE(seen.count(ParseStatus::kIpv6TooManyExtensionHeaders));
  EXPECT_TRUE(seen.count(ParseStatus::kIpv6BadExtensionHeader));
  EXPECT_TRUE(seen.count(ParseStatus::kTooManyVlans));
}

TEST(Parse, EveryTruncationReadsNothingPastTheFrame) {
  for (const auto& [name, builder] : zoo()) {
    const Bytes frame = builder.build();
    const auto size = static_cast<uint32_t>(frame.size());
    for (uint32_t length = 0; length <= size; ++length) {
      // The frame itself ends there; then: only the capture ends there.
      ASSERT_EQ(difference(frame.data(), length, length), "") << name << " cut to " << length;
      ASSERT_EQ(difference(frame.data(), length, size), "") << name << " captured to " << length;
    }
  }
}

TEST(Parse, AShortCaptureAnswersLikeTheWholeFrameOrSaysSo) {
  for (const auto& [name, builder] : zoo()) {
    const Bytes frame = builder.build();
    const auto size = static_cast<uint32_t>(frame.size());
    const Parsed whole = parse(frame);
    bool answered = false;
    for (uint32_t captured = 0; captured <= size; ++captured) {
      const Exact exact(frame.data(), captured);
      Headers out;
      const ParseStatus status = parse_ethernet(exact.data(), captured, size, out);
      if (status == ParseStatus::kCapturedTooShort) {
        EXPECT_FALSE(answered) << name << ": a longer capture knows less at " << captured;
        continue;
      }
      answered = true;
      ASSERT_EQ(status, whole.status) << name << " captured " << captured;
      ASSERT_TRUE(oracle::same(out, whole.headers)) << name << " captured " << captured;
    }
    EXPECT_TRUE(answered) << name;
  }
}

TEST(Parse, EveryFirstByteOfIpAgreesWithTheOracle) {
  for (const auto& [name, builder] : zoo()) {
    Bytes frame = builder.build();
    if (frame.size() < 15) continue;
    for (unsigned value = 0; value < 256; ++value) {
      frame[14] = static_cast<uint8_t>(value);
      ASSERT_EQ(difference(frame), "") << name << " " << value;
    }
  }
}

TEST(Parse, EveryProtocolNumberAgreesWithTheOracle) {
  for (unsigned protocol = 0; protocol < 256; ++protocol) {
    for (const size_t payload : {0u, 3u, 4u, 7u, 8u, 12u, 19u, 20u, 40u}) {
      ASSERT_EQ(difference(ip4(kA4, kB4, static_cast<uint8_t>(protocol)).payload(payload).build()), "") << protocol;
      ASSERT_EQ(difference(ip6(kA6, kB6, static_cast<uint8_t>(protocol)).payload(payload).build()), "") << protocol;
    }
  }
}

// The plain path of parse.h against the general one: every bit flip of a plain frame, checksum mended or not.
TEST(Parse, PlainPathAgreesWithTheOracleForEveryBitFlip) {
  for (const unsigned shape : {0u, 1u, 2u, 3u}) {
    PacketBuilder builder = (shape & 1) != 0 ? tcp4(kA4, kB4) : udp4(kA4, kB4);
    if ((shape & 2) != 0) builder.vlan(0x123, 5);
    const Bytes frame = builder.ports(1, 2).size(60).build();
    const size_t ip = (shape & 2) != 0 ? 18 : 14;
    for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
      Bytes changed = frame;
      changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      ASSERT_EQ(difference(changed), "") << "shape " << shape << " bit " << bit;
      store_be16(changed.data() + ip + 10, ipv4_header_checksum(changed.data() + ip, 20));
      ASSERT_EQ(difference(changed), "") << "shape " << shape << " bit " << bit << " mended";
    }
  }
}

// Mutations of built packets: bytes overwritten, then cut, with the IPv4 checksum mended half of the time so that the
// rules behind it are reached.
TEST(Parse, RandomMutationsAgreeWithTheOracle) {
  const auto all = zoo();
  std::vector<Bytes> frames;
  for (const auto& [name, builder] : all) frames.push_back(builder.build());
  const int rounds = 400 * scale();
  const bool ok = rc::check("fast parse equals the oracle", [&] {
    for (int round = 0; round < rounds / 100; ++round) {
      Bytes frame = *rc::gen::elementOf(frames);
      const auto edits = *rc::gen::inRange(0, 6);
      for (int i = 0; i < edits && !frame.empty(); ++i) {
        const auto at = *rc::gen::inRange<size_t>(0, frame.size());
        frame[at] = *rc::gen::arbitrary<uint8_t>();
      }
      if (*rc::gen::arbitrary<bool>() && frame.size() >= 34 && frame[12] == 8 && frame[13] == 0) {
        size_t header = (frame[14] & 15u) * 4u;
        if (header < 20) header = 20;
        if (frame.size() >= 14 + header) {
          store_be16(frame.data() + 24, ipv4_header_checksum(frame.data() + 14, static_cast<uint32_t>(header)));
        }
      }
      const auto wire = *rc::gen::inRange<size_t>(frame.size() / 2, frame.size() + 20);
      const auto captured = *rc::gen::inRange<size_t>(0, frame.size() + 1);
      const auto l3 = *rc::gen::inRange<uint32_t>(0, 40);
      const auto readable = captured < wire ? captured : wire;
      RC_ASSERT(difference(frame.data(), static_cast<uint32_t>(readable), static_cast<uint32_t>(wire), l3) == "");
    }
  });
  EXPECT_TRUE(ok);
}

// Chains of extension headers at random: types, lengths and the packet's end in any relation.
TEST(Parse, RandomExtensionChainsAgreeWithTheOracle) {
  uint64_t state = 1;
  auto next = [&] { return mix64(state += 0x9e3779b97f4a7c15ull); };
  std::set<ParseStatus> seen;
  const uint8_t types[] = {0, 43, 44, 51, 60, 60, 6, 17, 58, 59, 50};
  for (int round = 0; round < 20000 * scale(); ++round) {
    Bytes frame = udp6(kA6, kB6).payload(200).build();
    frame[20] = types[next() % std::size(types)];
    for (size_t at = 54; at + 8 < frame.size(); at += 8) {
      frame[at] = types[next() % std::size(types)];
      frame[at + 1] = static_cast<uint8_t>(next() % 8 == 0 ? next() : next() % 2);
      frame[at + 2] = static_cast<uint8_t>(next() % 4 == 0 ? next() : 0);
      frame[at + 3] = static_cast<uint8_t>(next() % 4 == 0 ? next() : 0);
    }
    store_be16(frame.data() + 18, static_cast<uint16_t>(next() % 209));
    ASSERT_EQ(difference(frame), "") << "round " << round;
    const auto captured = static_cast<uint32_t>(next() % frame.size());
    ASSERT_EQ(difference(frame.data(), captured, static_cast<uint32_t>(frame.size())), "") << "round " << round;
    seen.insert(parse(frame).status);
  }
  for (const ParseStatus status : {ParseStatus::kOk, ParseStatus::kIpv6BadExtensionHeader,
                                   ParseStatus::kIpv6TooManyExtensionHeaders, ParseStatus::kIpv6RoutingType0}) {
    EXPECT_TRUE(seen.count(status)) << to_string(status);
  }
}

TEST(Parse, EveryStatusHasItsOwnName) {
  std::set<std::string> names;
  for (unsigned i = 0; i < kParseStatusCount; ++i) names.insert(to_string(static_cast<ParseStatus>(i)));
  EXPECT_EQ(names.size(), kParseStatusCount);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_STREQ(to_string(static_cast<ParseStatus>(kParseStatusCount)), "unknown");
}

// Classic pcap, both byte orders; stops at the first record that does not fit.
struct Record {
  Bytes bytes;
  uint32_t wire;
};
std::vector<Record> read_pcap(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const Bytes file((std::istreambuf_iterator<char>(in)), {});
  std::vector<Record> records;
  if (file.size() < 24) return records;
  const bool big = file[0] == 0xa1;
  auto word = [&](size_t at) { return big ? load_be32(&file[at]) : load_le32(&file[at]); };
  if (word(0) != 0xa1b2c3d4 || word(20) != 1) return records;
  for (size_t at = 24; at + 16 <= file.size();) {
    const uint32_t captured = word(at + 8);
    const uint32_t wire = word(at + 12);
    at += 16;
    if (captured > file.size() - at) break;
    records.push_back(
        {Bytes(file.begin() + static_cast<long>(at), file.begin() + static_cast<long>(at + captured)), wire});
    at += captured;
  }
  return records;
}

class Captures : public testing::TestWithParam<const char*> {};

TEST_P(Captures, EveryPacketAgreesWithTheOracle) {
  const auto folder = test_data(GetParam());
  if (!folder) GTEST_SKIP() << GetParam() << " is not there: set SLUICE_DATA to the folder of test captures";
  size_t packets = 0;
  std::map<std::string, size_t> statuses;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".pcap") continue;
    for (const Record& record : read_pcap(entry.path().string())) {
      const auto captured = static_cast<uint32_t>(record.bytes.size());
      ASSERT_EQ(difference(record.bytes.data(), captured, record.wire), "") << entry.path() << " " << packets;
      Headers out;
      ++statuses[to_string(parse_ethernet(record.bytes.data(), captured, record.wire, out))];
      // As a GPU sees it: the first 64 bytes of the same frame.
      const uint32_t row = captured < 64 ? captured : 64;
      ASSERT_EQ(difference(record.bytes.data(), row, record.wire), "") << entry.path() << " row";
      ++packets;
    }
  }
  EXPECT_GT(packets, 0u);
  EXPECT_GT(statuses["ok"], packets / 2);
  for (const auto& [name, count] : statuses) RecordProperty(name, std::to_string(count));
}

INSTANTIATE_TEST_SUITE_P(Parse, Captures, testing::Values("pcap/cases", "pcap/snabb"),
                         [](const auto& folder) { return std::string(std::string_view(folder.param).substr(5)); });

}  // namespace
}  // namespace sluice
