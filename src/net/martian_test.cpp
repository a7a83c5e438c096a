#include "net/martian.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "net/text.h"

namespace sluice {
namespace {

FlowKey key_of(const char* source, const char* destination) {
  const IpAddress from = parse_ip(source).value();
  const IpAddress to = parse_ip(destination).value();
  FlowKey key;
  key.family = from.family;
  key.src_hi = from.hi;
  key.src_lo = from.lo;
  key.dst_hi = to.hi;
  key.dst_lo = to.lo;
  return key;
}
Martian source(const char* address) {
  return martian(key_of(address, parse_ip(address)->family == 4 ? "198.51.100.1" : "2001:db8::2"));
}
Martian destination(const char* address) {
  return martian(key_of(parse_ip(address)->family == 4 ? "198.51.100.1" : "2001:db8::2", address));
}

// Both ends of every range, and their neighbours outside it.
TEST(Martian, Rfc1812Section537Sources) {
  EXPECT_EQ(source("0.0.0.0"), Martian::kSourceUnspecified);
  EXPECT_EQ(source("0.255.255.255"), Martian::kSourceUnspecified);
  EXPECT_EQ(source("1.0.0.0"), Martian::kNone);
  EXPECT_EQ(source("126.255.255.255"), Martian::kNone);
  EXPECT_EQ(source("127.0.0.0"), Martian::kSourceLoopback);
  EXPECT_EQ(source("127.255.255.255"), Martian::kSourceLoopback);
  EXPECT_EQ(source("128.0.0.0"), Martian::kNone);
  EXPECT_EQ(source("223.255.255.255"), Martian::kNone);
  EXPECT_EQ(source("224.0.0.0"), Martian::kSourceMulticast);
  EXPECT_EQ(source("239.255.255.255"), Martian::kSourceMulticast);
  EXPECT_EQ(source("240.0.0.0"), Martian::kSourceReserved);
  EXPECT_EQ(source("255.255.255.254"), Martian::kSourceReserved);
  EXPECT_EQ(source("255.255.255.255"), Martian::kSourceBroadcast);
}

TEST(Martian, Rfc1812Section537Destinations) {
  EXPECT_EQ(destination("0.0.0.0"), Martian::kDestinationUnspecified);
  EXPECT_EQ(destination("0.255.255.255"), Martian::kDestinationUnspecified);
  EXPECT_EQ(destination("1.0.0.0"), Martian::kNone);
  EXPECT_EQ(destination("127.0.0.1"), Martian::kDestinationLoopback);
  EXPECT_EQ(destination("224.0.0.1"), Martian::kNone);
  EXPECT_EQ(destination("240.0.0.0"), Martian::kDestinationReserved);
  EXPECT_EQ(destination("255.255.255.254"), Martian::kDestinationReserved);
  EXPECT_EQ(destination("255.255.255.255"), Martian::kNone);
  EXPECT_TRUE(is_limited_broadcast(key_of("10.0.0.1", "255.255.255.255")));
  EXPECT_FALSE(is_limited_broadcast(key_of("10.0.0.1", "255.255.255.254")));
}

TEST(Martian, Rfc3927LinkLocal) {
  EXPECT_EQ(source("169.253.255.255"), Martian::kNone);
  EXPECT_EQ(source("169.254.0.0"), Martian::kSourceLinkLocal);
  EXPECT_EQ(source("169.254.255.255"), Martian::kSourceLinkLocal);
  EXPECT_EQ(source("169.255.0.0"), Martian::kNone);
  EXPECT_EQ(destination("169.254.1.1"), Martian::kDestinationLinkLocal);
}

TEST(Martian, Rfc4291Ipv6) {
  EXPECT_EQ(source("::"), Martian::kSourceUnspecified);
  EXPECT_EQ(source("::1"), Martian::kSourceLoopback);
  EXPECT_EQ(source("::2"), Martian::kNone);
  EXPECT_EQ(source("0:0:0:1::1"), Martian::kNone);
  EXPECT_EQ(source("fe7f:ffff::1"), Martian::kNone);
  EXPECT_EQ(source("fe80::1"), Martian::kSourceLinkLocal);
  EXPECT_EQ(source("febf:ffff::1"), Martian::kSourceLinkLocal);
  EXPECT_EQ(source("fec0::1"), Martian::kNone);
  EXPECT_EQ(source("feff::1"), Martian::kNone);
  EXPECT_EQ(source("ff02::1"), Martian::kSourceMulticast);
  EXPECT_EQ(destination("::"), Martian::kDestinationUnspecified);
  EXPECT_EQ(destination("::1"), Martian::kDestinationLoopback);
  EXPECT_EQ(destination("fe80::1"), Martian::kDestinationLinkLocal);
  EXPECT_EQ(destination("ff02::1"), Martian::kNone);
  // The low half alone does not make an IPv4-looking martian of an IPv6 address.
  EXPECT_EQ(source("2001:db8::127.0.0.1"), Martian::kNone);
}

// The short cut for plain addresses may never hide a rule: every /16 in both roles.
TEST(Martian, TheShortCutHidesNothing) {
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0u, 1u, 0xffffu}) {
      FlowKey key;
      key.family = 4;
      key.src_lo = high << 16 | low;
      key.dst_lo = 0xc0000201;
      ASSERT_EQ(martian(key), martian_detail::ipv4(high << 16 | low, 0xc0000201)) << high;
      key.dst_lo = key.src_lo;
      key.src_lo = 0xc0000201;
      ASSERT_EQ(martian(key), martian_detail::ipv4(0xc0000201, high << 16 | low)) << high;
    }
  }
}

TEST(Martian, MulticastIsItsOwnPredicate) {
  EXPECT_TRUE(is_multicast_destination(key_of("10.0.0.1", "224.0.0.1")));
  EXPECT_TRUE(is_multicast_destination(key_of("2001:db8::1", "ff05::1")));
  EXPECT_FALSE(is_multicast_destination(key_of("10.0.0.1", "10.0.0.2")));
  EXPECT_FALSE(is_multicast_destination(key_of("2001:db8::1", "2001:db8::2")));
}

TEST(Martian, SourceComesFirstAndNamesAreDistinct) {
  EXPECT_EQ(martian(key_of("127.0.0.1", "127.0.0.1")), Martian::kSourceLoopback);
  EXPECT_EQ(martian(FlowKey{}), Martian::kNone);
  std::set<std::string> names;
  for (unsigned i = 0; i < kMartianCount; ++i) names.insert(to_string(static_cast<Martian>(i)));
  EXPECT_EQ(names.size(), kMartianCount);
  for (unsigned i = 0; i < kMartianCount; ++i) {
    EXPECT_EQ(is_source_martian(static_cast<Martian>(i)),
              std::string(to_string(static_cast<Martian>(i))).rfind("source", 0) == 0);
  }
}

}  // namespace
}  // namespace sluice
