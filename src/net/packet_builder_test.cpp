#include "net/packet_builder.h"

#include <gtest/gtest.h>

#include <vector>

#include "net/checksum.h"
#include "net/parse.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

// The builder is what other tests trust, so here its bytes stand written out by hand.
TEST(PacketBuilder, UdpOverIpv4ByteForByte) {
  const Bytes expected = {
      0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01,  // MACs
      0x81, 0x00, 0x00, 0x05, 0x08, 0x00,                                      // VLAN 5, IPv4
      0x45, 0xb8, 0x00, 0x1f, 0x00, 0x00, 0x00, 0x00, 0x01, 0x11,              // DSCP 46, 31 bytes, TTL 1, UDP
      0xed, 0x0e,                                                              // checksum, added up by hand
      0x0a, 0x00, 0x00, 0x01, 0xc0, 0x00, 0x02, 0x07,                          // addresses
      0x03, 0xe8, 0x00, 0x35, 0x00, 0x0b,                                      // ports 1000, 53, 11 bytes
      0x2d, 0xb2,                                                              // checksum
      0x00, 0x01, 0x02,                                                        // payload
      0x00, 0x00,                                                              // padding
  };
  const Bytes built = udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).ttl(1).vlan(5).dscp(46).payload(3).size(51).build();
  EXPECT_EQ(built, expected);
}

TEST(PacketBuilder, EveryL4ChecksumVerifies) {
  for (const size_t payload : {0u, 1u, 2u, 33u}) {
    for (auto builder : {udp4("10.0.0.1", "192.0.2.7"), tcp4("10.0.0.1", "192.0.2.7"), icmp4("10.0.0.1", "192.0.2.7"),
                         udp6("2001:db8::1", "ff02::9"), tcp6("2001:db8::1", "ff02::9"),
                         icmp6("2001:db8::1", "ff02::9").hop_by_hop()}) {
      const Bytes frame = builder.payload(payload).build();
      const auto size = static_cast<uint32_t>(frame.size());
      Headers h;
      ASSERT_EQ(parse_ethernet(frame.data(), size, size, h), ParseStatus::kOk);
      const uint32_t bytes = h.l3_offset + h.ip_bytes - h.l4_offset;
      uint32_t pseudo = 0;
      if (h.key.family == 6) {
        pseudo = pseudo_sum_v6(h.key.src_hi, h.key.src_lo, h.key.dst_hi, h.key.dst_lo, h.key.protocol, bytes);
      } else if (h.key.protocol != 1) {
        pseudo = pseudo_sum_v4(static_cast<uint32_t>(h.key.src_lo), static_cast<uint32_t>(h.key.dst_lo), h.key.protocol,
                               bytes);
      }
      EXPECT_EQ(l4_checksum(pseudo, frame.data() + h.l4_offset, bytes), 0) << int{h.key.protocol};
      const Bytes wrong = builder.bad_l4_checksum().build();
      EXPECT_NE(l4_checksum(pseudo, wrong.data() + h.l4_offset, bytes), 0);
    }
  }
}

TEST(PacketBuilder, SizeGrowsThePayloadOrPads) {
  const Bytes grown = udp4("10.0.0.1", "192.0.2.7").size(100).build();
  EXPECT_EQ(grown.size(), 100u);
  EXPECT_EQ(load_be16(&grown[16]), 86);
  const Bytes padded = udp4("10.0.0.1", "192.0.2.7").payload(2).size(100).build();
  EXPECT_EQ(padded.size(), 100u);
  EXPECT_EQ(load_be16(&padded[16]), 30);
  EXPECT_EQ(udp4("10.0.0.1", "192.0.2.7").payload(90).size(60).build().size(), 132u);
  EXPECT_EQ(udp6("2001:db8::1", "2001:db8::2").vlan(3).size(200).build().size(), 200u);
}

TEST(PacketBuilder, SettersMayComeInAnyOrder) {
  EXPECT_EQ(udp4("10.0.0.1", "192.0.2.7").size(80).payload(5).ttl(3).ports(1, 2).build(),
            udp4("10.0.0.1", "192.0.2.7").ports(1, 2).ttl(3).payload(5).size(80).build());
}

TEST(PacketBuilder, NoUdpChecksumIsZeroAndNeverOtherwise) {
  const Bytes none = udp4("10.0.0.1", "192.0.2.7").no_udp_checksum().build();
  EXPECT_EQ(load_be16(&none[40]), 0);
  for (unsigned port = 0; port < 65536; port += 1) {
    if (load_be16(&udp4("10.0.0.1", "192.0.2.7").ports(static_cast<uint16_t>(port), 9).build()[40]) == 0)
      FAIL() << port;
    if (port % 64 == 63) port += 512;  // runs of 64, so that the sweep stays short
  }
}

TEST(PacketBuilder, NoLinkStartsAtTheIpHeader) {
  const Bytes whole = udp6("2001:db8::1", "2001:db8::2").payload(4).build();
  const Bytes bare = udp6("2001:db8::1", "2001:db8::2").payload(4).no_link().build();
  EXPECT_EQ(Bytes(whole.begin() + 14, whole.end()), bare);
}

TEST(PacketBuilder, MakesOneFieldWrongAndNoOther) {
  const Bytes right = udp4("10.0.0.1", "192.0.2.7").build();
  Bytes wrong = udp4("10.0.0.1", "192.0.2.7").bad_ip_checksum().build();
  EXPECT_NE(wrong, right);
  wrong[25] = right[25];
  EXPECT_EQ(wrong, right);
  EXPECT_EQ(load_be16(&udp4("10.0.0.1", "192.0.2.7").ip_checksum(0xbeef).build()[24]), 0xbeef);
}

}  // namespace
}  // namespace sluice
