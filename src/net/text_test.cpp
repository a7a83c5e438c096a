#include "net/text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

namespace sluice {
namespace {

TEST(Text, Ipv4IsStrict) {
  EXPECT_EQ(parse_ipv4("0.0.0.0"), 0u);
  EXPECT_EQ(parse_ipv4("255.255.255.255"), 0xffffffffu);
  EXPECT_EQ(parse_ipv4("10.1.2.3"), 0x0a010203u);
  for (const char* bad :
       {"",          ".",        "1",         "1.2",       "1.2.3",      "1.2.3.",   ".1.2.3",   "1.2.3.4.",
        "1.2.3.4.5", "1..2.3",   "256.0.0.0", "1.2.3.256", "01.2.3.4",   "1.2.3.00", "1.2.3.4 ", " 1.2.3.4",
        "+1.2.3.4",  "-1.2.3.4", "1.2.3.4a",  "0x1.2.3.4", "1.2.3.1000", "1,2,3,4"}) {
    EXPECT_FALSE(parse_ipv4(bad)) << bad;
  }
  EXPECT_FALSE(parse_ipv4(std::string_view("1.2.3.4\0", 8)));
}

TEST(Text, Ipv4SurvivesTheRoundTrip) {
  EXPECT_TRUE(rc::check([](uint32_t address) {
    const std::string text = to_string(IpAddress{0, address, 4});
    RC_ASSERT(parse_ipv4(text) == address);
    RC_ASSERT(parse_ip(text) == (IpAddress{0, address, 4}));
  }));
}

TEST(Text, Ipv6SurvivesTheRoundTrip) {
  EXPECT_TRUE(rc::check([](uint64_t hi, uint64_t lo, uint8_t mask) {
    // Whole groups of zeros, so that "::" is met.
    for (int i = 0; i < 4; ++i) {
      if ((mask >> i & 1) != 0) hi &= ~(0xffffull << (16 * i));
      if ((mask >> (i + 4) & 1) != 0) lo &= ~(0xffffull << (16 * i));
    }
    const IpAddress address{hi, lo, 6};
    RC_ASSERT(parse_ip(to_string(address)) == address);
  }));
}

// RFC 5952 section 4: lower case, no leading zeros, the longest run of zeros shortened, the first of equals, never one
// group.
TEST(Text, Rfc5952Section4) {
  auto canonical = [](const char* text) { return to_string(parse_ip(text).value()); };
  EXPECT_EQ(canonical("2001:0DB8:0:0:0:0:0:1"), "2001:db8::1");
  EXPECT_EQ(canonical("2001:db8:0:0:1:0:0:1"), "2001:db8::1:0:0:1");
  EXPECT_EQ(canonical("2001:db8:0:1:1:1:1:1"), "2001:db8:0:1:1:1:1:1");
  EXPECT_EQ(canonical("0:0:0:0:0:0:0:0"), "::");
  EXPECT_EQ(canonical("::1"), "::1");
}

TEST(Text, Ipv6IsStrict) {
  for (const char* bad : {":", ":::", "1::2::3", "12345::", "::g", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1%eth0",
                          "::1 ", " ::1", "[::1]", "::1.2.3", "1:2:3:4:5:6:7:8:"}) {
    EXPECT_FALSE(parse_ip(bad)) << bad;
  }
  EXPECT_FALSE(parse_ip(std::string_view("::1\0", 4)));
  EXPECT_FALSE(parse_ip(std::string(1000, ':')));
}

TEST(Text, PrefixesClearHostBitsAndSaySo) {
  bool host_bits = true;
  const auto prefix = parse_prefix("10.0.0.0/8", &host_bits);
  ASSERT_TRUE(prefix);
  EXPECT_EQ(prefix->length, 8);
  EXPECT_FALSE(host_bits);
  EXPECT_EQ(parse_prefix("10.1.2.3/8", &host_bits), prefix);
  EXPECT_TRUE(host_bits);
  EXPECT_EQ(parse_prefix("10.1.2.3")->length, 32);
  EXPECT_EQ(parse_prefix("::1")->length, 128);
  EXPECT_EQ(parse_prefix("0.0.0.0/0")->length, 0);
  EXPECT_EQ(parse_prefix("ffff:ffff:ffff:ffff:ffff::/65")->address.lo, 0x8000000000000000u);
  EXPECT_EQ(parse_prefix("ffff:ffff:ffff:ffff:ffff::/64")->address.lo, 0u);
  EXPECT_EQ(parse_prefix("ffff::/1")->address.hi, 0x8000000000000000u);
  for (const char* bad : {"",
                          "/",
                          "/8",
                          "10.0.0.0/",
                          "10.0.0.0/33",
                          "10.0.0.0/-1",
                          "10.0.0.0/08",
                          "10.0.0.0/8/8",
                          "::/129",
                          "::/1000",
                          "10.0.0.0/ 8",
                          "10.0.0.0 /8",
                          "10/8",
                          "::/+1",
                          "10.0.0.0x",
                          "10.0.0.0x/8",
                          "10.0.0.0:/8",
                          "10.0.0.0.0/8",
                          "10.0.0.1234/8",
                          "10.0.0.00/8",
                          "10.0.0.256/8"}) {
    EXPECT_FALSE(parse_prefix(bad)) << bad;
  }
  EXPECT_FALSE(parse_prefix(std::string_view()));
  EXPECT_FALSE(parse_ipv4(std::string_view()));
  EXPECT_EQ(parse_prefix("::10.0.0.0/128")->address.family, 6);
  // What stands behind the text is nobody's.
  EXPECT_EQ(parse_prefix(std::string_view("10.1.2.3/16", 8))->length, 32);
  EXPECT_EQ(parse_prefix(std::string_view("10.1.2.3/16", 10))->length, 1);
}

TEST(Text, EveryPrefixSurvivesTheRoundTrip) {
  EXPECT_TRUE(rc::check([](uint64_t hi, uint64_t lo) {
    for (unsigned length = 0; length <= 128; ++length) {
      const auto prefix = parse_prefix(to_string(IpAddress{hi, lo, 6}) + "/" + std::to_string(length));
      RC_ASSERT(prefix.has_value());
      RC_ASSERT(parse_prefix(to_string(*prefix)) == prefix);
      // Bit by bit: kept above the length, zero below it.
      for (unsigned bit = 0; bit < 128; ++bit) {
        auto at = [bit](uint64_t high, uint64_t low) {
          return (bit < 64 ? high >> (63 - bit) : low >> (127 - bit)) & 1;
        };
        RC_ASSERT(at(prefix->address.hi, prefix->address.lo) == (bit < length ? at(hi, lo) : 0));
      }
    }
  }));
}

TEST(Text, MacsTakeBothSeparatorsButNotMixed) {
  const MacAddress mac{{0x02, 0, 0, 0xab, 0xcd, 0xef}};
  EXPECT_EQ(parse_mac("02:00:00:ab:cd:ef"), mac);
  EXPECT_EQ(parse_mac("02-00-00-AB-CD-EF"), mac);
  EXPECT_EQ(to_string(mac), "02:00:00:ab:cd:ef");
  for (const char* bad : {"", "02:00:00:ab:cd", "02:00:00:ab:cd:e", "02:00:00:ab:cd:eg", "02:00-00:ab:cd:ef",
                          "02.00.00.ab.cd.ef", "0200.00ab.cdef", "02:00:00:ab:cd:ef:", "2:0:0:ab:cd:ef"}) {
    EXPECT_FALSE(parse_mac(bad)) << bad;
  }
}

TEST(Text, MacsSurviveTheRoundTrip) {
  EXPECT_TRUE(rc::check([](uint64_t value) {
    MacAddress mac{};
    for (int i = 0; i < 6; ++i) mac.bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    RC_ASSERT(parse_mac(to_string(mac)) == mac);
  }));
}

TEST(Types, WireIntegersSurviveTheRoundTrip) {
  EXPECT_TRUE(rc::check([](uint64_t value) {
    Be16 a;
    Be32 b;
    Be64 c;
    a.set(static_cast<uint16_t>(value));
    b.set(static_cast<uint32_t>(value));
    c.set(value);
    RC_ASSERT(a.host() == static_cast<uint16_t>(value));
    RC_ASSERT(b.host() == static_cast<uint32_t>(value));
    RC_ASSERT(c.host() == value);
    RC_ASSERT(c.high.bytes[0] == static_cast<uint8_t>(value >> 56));
    RC_ASSERT(c.low.bytes[3] == static_cast<uint8_t>(value));
  }));
}

TEST(Types, MasksOfEveryLength) {
  for (unsigned length = 0; length <= 64; ++length) {
    uint64_t expected = 0;
    for (unsigned bit = 0; bit < length; ++bit) expected |= uint64_t{1} << (63 - bit);
    EXPECT_EQ(high_mask64(length), expected);
    if (length <= 32) {
      EXPECT_EQ(high_mask32(length), static_cast<uint32_t>(expected >> 32));
    }
  }
}

}  // namespace
}  // namespace sluice
