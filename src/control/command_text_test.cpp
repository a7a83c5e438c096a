#include "control/command_text.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Duration, NumbersWithUnits) {
  for (const auto& [text, ns] : std::initializer_list<std::pair<const char*, uint64_t>>{{"1ns", 1},
                                                                                        {"800ns", 800},
                                                                                        {"50us", 50'000},
                                                                                        {"007us", 7'000},
                                                                                        {"1.5ms", 1'500'000},
                                                                                        {"1.50000001s", 1'500'000'010},
                                                                                        {"0.25us", 250},
                                                                                        {"0.0009us", 0},
                                                                                        {"1.9ns", 1},
                                                                                        {"2s", 2'000'000'000},
                                                                                        {"50", 50'000'000'000},
                                                                                        {"0.5", 500'000'000},
                                                                                        {"3600s", 3'600'000'000'000}}) {
    const auto parsed = parse_duration(text);
    if (ns == 0) {
      EXPECT_FALSE(parsed.ok()) << text;
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, ns) << text;
  }
}

// What `why` and `explain` take: as tcpdump and rules write it.
TEST(PacketText, FormsOfOnePacketAreTheSame) {
  const auto frame = [](const char* text) {
    auto made = parse_packet_text(text, "packet");
    EXPECT_TRUE(made.ok()) << text << ": " << (made.ok() ? "" : to_string(made.error()));
    return made.ok() ? *made : std::vector<uint8_t>();
  };
  EXPECT_EQ(frame("tcp 10.0.0.1:1234 > 8.8.8.8:80 flags S"), frame("ip 10.0.0.1 > 8.8.8.8 tcp 1234 > 80 flags S"));
  EXPECT_EQ(frame("udp [2001:db8::1]:5 > [2001:db8::2]:53"), frame("ip6 2001:db8::1 > 2001:db8::2 udp 5 > 53"));
  EXPECT_EQ(frame("udp 10.0.0.1 > 10.0.0.2:53"), frame("udp 10.0.0.1:49152 > 10.0.0.2:53"));
  EXPECT_EQ(frame("icmp 10.0.0.1 > 10.0.0.2 3 4"), frame("ip 10.0.0.1 > 10.0.0.2 icmp 3 4"));
  EXPECT_EQ(frame("icmp6 fe80::1 > fe80::2"), frame("ip fe80::1 > fe80::2 icmp6"));
  const auto syn_ack = frame("tcp 10.0.0.1:1 > 10.0.0.2:2 flags SA ttl 9");
  EXPECT_EQ(syn_ack, frame("tcp 10.0.0.1:1 > 10.0.0.2:2 flags SYN,ACK ttl 9"));
  EXPECT_EQ(syn_ack, frame("tcp 10.0.0.1:1 > 10.0.0.2:2 flags syn,ack/SYN,ACK,RST ttl 9"));
  EXPECT_EQ(frame("tcp 10.0.0.1:1 > 10.0.0.2:2 flags 0/SYN"), frame("tcp 10.0.0.1:1 > 10.0.0.2:2 flags 0"));
}

TEST(PacketText, ErrorsShowAWholeExample) {
  for (const char* text :
       {"", "udp", "10.0.0.1:5 > 10.0.0.2", "icmp 10.0.0.1 > 10.0.0.2:5", "udp 10.0.0.1:x > 10.0.0.2",
        "udp 10.0.0.1 > 10.0.0.2:65536", "tcp 10.0.0.1 > 10.0.0.2 flags", "tcp 10.0.0.1:1: > 1.1.1.1",
        "tcp 10.0.0.1:1 > 10.0.0.2:2 flags SYN,Q", "udp 2001:db8::1 > 10.0.0.2:53"}) {
    auto made = parse_packet_text(text, "packet");
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_FALSE(made.error().diagnostics.empty()) << text;
    EXPECT_EQ(made.error().hint, "a whole one: 'tcp 10.0.0.1:1234 > 8.8.8.8:80 flags S'") << text;
  }
}

TEST(Duration, AnythingElseIsRefused) {
  for (const char* text :
       {"", "us", ".5us", "5.us", "1.2.3us", "-5us", "+5us", "5 us", "5US", "5m", "5usx", "0x5us", "1e3us"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, std::string("'") + text + "' is not a time");
    EXPECT_EQ(parsed.error().hint, "write seconds, or a number and its unit: 800ns, 50us, 1.5ms or 2s");
  }
  for (const char* text :
       {"0us", "0.0s", "3601s", "99999999999999999999999999999999ns", "99999999999999999999999999999.9s"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, std::string("'") + text + "' is out of range");
  }
}

}  // namespace
}  // namespace sluice
