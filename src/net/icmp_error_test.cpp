#include "net/icmp_error.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "net/packet_builder.h"
#include "net/text.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

const IpAddress kRouter4 = parse_ip("192.0.2.254").value();
const IpAddress kRouter6 = parse_ip("2001:db8::fe").value();

Headers parsed(const Bytes& frame) {
  Headers headers;
  const auto size = static_cast<uint32_t>(frame.size());
  EXPECT_EQ(parse_ethernet(frame.data(), size, size, headers), ParseStatus::kOk);
  return headers;
}

// The error about `frame`, in a block of exactly the size that was returned room for.
Bytes error_about(const Bytes& frame, IcmpError error, uint32_t parameter = 0, uint32_t capacity = 1500) {
  const Headers headers = parsed(frame);
  const std::unique_ptr<uint8_t[]> out(new uint8_t[capacity]);
  const uint32_t bytes = build_icmp_error(frame.data(), static_cast<uint32_t>(frame.size()), headers, error, parameter,
                                          headers.key.family == 4 ? kRouter4 : kRouter6, out.get(), capacity);
  EXPECT_LE(bytes, capacity);
  return Bytes(out.get(), out.get() + bytes);
}
IcmpSuppressed suppressed(const PacketBuilder& builder, IcmpError error = IcmpError::kTimeExceeded) {
  return icmp_error_suppressed(parsed(builder.build()), error);
}

// What the builder, which shares no code with build_icmp_error but the sums, makes of the same error.
Bytes expected4(const Bytes& frame, uint8_t type, uint8_t code, uint32_t rest, size_t quote) {
  Bytes quoted(frame.begin() + 14, frame.begin() + 14 + static_cast<long>(quote));
  return icmp4("192.0.2.254", "10.0.0.1")
      .icmp(type, code, rest)
      .payload(quoted)
      .dscp(48)
      .dont_fragment()
      .no_link()
      .build();
}
Bytes expected6(const Bytes& frame, uint8_t type, uint8_t code, uint32_t rest, size_t quote) {
  Bytes quoted(frame.begin() + 14, frame.begin() + 14 + static_cast<long>(quote));
  return icmp6("2001:db8::fe", "2001:db8::1").icmp(type, code, rest).payload(quoted).no_link().build();
}

TEST(IcmpError, TypesAndCodesOfIpv4) {
  const Bytes frame = udp4("10.0.0.1", "198.51.100.1").payload(30).build();
  EXPECT_EQ(error_about(frame, IcmpError::kTimeExceeded), expected4(frame, 11, 0, 0, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kNetUnreachable), expected4(frame, 3, 0, 0, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kHostUnreachable), expected4(frame, 3, 1, 0, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kAdminProhibited), expected4(frame, 3, 13, 0, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kPacketTooBig, 1400),
            expected4(frame, 3, 4, 1400, 58));  // RFC 1191 section 4
  EXPECT_EQ(error_about(frame, IcmpError::kParameterProblem, 20), expected4(frame, 12, 0, 20u << 24, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kProtocolUnreachable), expected4(frame, 3, 2, 0, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kPortUnreachable), expected4(frame, 3, 3, 0, 58));
  EXPECT_EQ(error_about(frame, IcmpError::kSourceRouteFailed), expected4(frame, 3, 5, 0, 58));
}

TEST(IcmpError, TypesAndCodesOfIpv6) {
  const Bytes frame = udp6("2001:db8::1", "2001:db8:1::1").payload(30).build();
  EXPECT_EQ(error_about(frame, IcmpError::kTimeExceeded), expected6(frame, 3, 0, 0, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kNetUnreachable), expected6(frame, 1, 0, 0, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kHostUnreachable), expected6(frame, 1, 3, 0, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kAdminProhibited), expected6(frame, 1, 1, 0, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kPacketTooBig, 1400), expected6(frame, 2, 0, 1400, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kParameterProblem, 40), expected6(frame, 4, 0, 40, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kPortUnreachable), expected6(frame, 1, 4, 0, 78));
  EXPECT_EQ(error_about(frame, IcmpError::kSourceRouteFailed), expected6(frame, 1, 7, 0, 78));
  // It points at the last header that says what follows.
  EXPECT_EQ(error_about(frame, IcmpError::kProtocolUnreachable), expected6(frame, 4, 1, 6, 78));
  const Bytes longer = udp6("2001:db8::1", "2001:db8:1::1").hop_by_hop(1).destination_options(2).payload(30).build();
  EXPECT_EQ(error_about(longer, IcmpError::kProtocolUnreachable), expected6(longer, 4, 1, 48, 102));
}

TEST(IcmpError, Rfc1812Section4323QuotesAsMuchAsFits576) {
  for (const size_t payload : {0u, 1u, 519u, 520u, 521u, 1400u}) {
    const Bytes frame = udp4("10.0.0.1", "198.51.100.1").payload(payload).build();
    const Bytes error = error_about(frame, IcmpError::kTimeExceeded);
    const size_t quote = std::min<size_t>(28 + payload, 548);
    EXPECT_EQ(error.size(), 28 + quote);
    EXPECT_EQ(error, expected4(frame, 11, 0, 0, quote));
  }
}

TEST(IcmpError, Rfc4443Section24QuotesAsMuchAsFits1280) {
  for (const size_t payload : {0u, 1184u, 1185u, 1400u}) {
    const Bytes frame = udp6("2001:db8::1", "2001:db8:1::1").payload(payload).build();
    const Bytes error = error_about(frame, IcmpError::kPacketTooBig, 1300);
    const size_t quote = std::min<size_t>(48 + payload, 1232);
    EXPECT_EQ(error.size(), 48 + quote);
    EXPECT_EQ(error, expected6(frame, 2, 0, 1300, quote));
  }
}

TEST(IcmpError, EthernetPaddingIsNotQuoted) {
  const Bytes frame = udp4("10.0.0.1", "198.51.100.1").payload(1).size(60).build();
  EXPECT_EQ(error_about(frame, IcmpError::kTimeExceeded).size(), 28u + 29u);
}

TEST(IcmpError, ASmallBufferShortensTheQuoteOrRefuses) {
  const Bytes frame = udp4("10.0.0.1", "198.51.100.1").payload(100).build();
  for (uint32_t capacity = 0; capacity < 48; ++capacity) {
    EXPECT_TRUE(error_about(frame, IcmpError::kTimeExceeded, 0, capacity).empty()) << capacity;
  }
  for (uint32_t capacity = 48; capacity < 200; ++capacity) {
    const size_t quote = std::min<size_t>(capacity - 28, 128);
    EXPECT_EQ(error_about(frame, IcmpError::kTimeExceeded, 0, capacity), expected4(frame, 11, 0, 0, quote)) << capacity;
  }
}

TEST(IcmpError, OnlyCapturedBytesAreQuoted) {
  const Bytes frame = udp4("10.0.0.1", "198.51.100.1").payload(100).build();
  Headers headers;
  const std::unique_ptr<uint8_t[]> row(new uint8_t[64]);
  std::memcpy(row.get(), frame.data(), 64);
  ASSERT_EQ(parse_ethernet(row.get(), 64, static_cast<uint32_t>(frame.size()), headers), ParseStatus::kOk);
  Bytes out(576);
  out.resize(build_icmp_error(row.get(), 64, headers, IcmpError::kTimeExceeded, 0, kRouter4, out.data(), 576));
  EXPECT_EQ(out, expected4(frame, 11, 0, 0, 50));
}

TEST(IcmpError, EveryErrorParsesWithRightChecksums) {
  for (const size_t payload : {0u, 1u, 7u, 600u, 1300u}) {
    for (unsigned kind = 0; kind < kIcmpErrorCount; ++kind) {
      for (const bool v4 : {true, false}) {
        const Bytes frame = (v4 ? udp4("10.0.0.1", "198.51.100.1") : udp6("2001:db8::1", "2001:db8:1::1"))
                                .payload(payload)
                                .vlan(3)
                                .build();
        const Bytes error = error_about(frame, static_cast<IcmpError>(kind), 1234);
        ASSERT_FALSE(error.empty());
        Headers h;
        const auto size = static_cast<uint32_t>(error.size());
        ASSERT_EQ(parse_ip(error.data(), size, size, 0, h), ParseStatus::kOk);
        EXPECT_EQ(h.ip_bytes, size);
        EXPECT_EQ(h.key.protocol, v4 ? 1 : 58);
        const uint32_t icmp_bytes = size - h.l4_offset;
        const uint32_t pseudo =
            v4 ? 0 : pseudo_sum_v6(h.key.src_hi, h.key.src_lo, h.key.dst_hi, h.key.dst_lo, 58, icmp_bytes);
        EXPECT_EQ(l4_checksum(pseudo, error.data() + h.l4_offset, icmp_bytes), 0);
        // And no error is ever sent about it.
        EXPECT_EQ(icmp_error_suppressed(h, IcmpError::kTimeExceeded), IcmpSuppressed::kAboutIcmpError);
      }
    }
  }
}

TEST(IcmpError, Rfc1812Section4327NeverAboutIcmpErrors) {
  for (unsigned type = 0; type < 256; ++type) {
    const bool error = type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
    EXPECT_EQ(suppressed(icmp4("10.0.0.1", "198.51.100.1").icmp(static_cast<uint8_t>(type), 0)),
              error ? IcmpSuppressed::kAboutIcmpError : IcmpSuppressed::kNo)
        << type;
    const bool error6 = type < 128 || type == 137;
    EXPECT_EQ(suppressed(icmp6("2001:db8::1", "2001:db8:1::1").icmp(static_cast<uint8_t>(type), 0)),
              error6 ? IcmpSuppressed::kAboutIcmpError : IcmpSuppressed::kNo)
        << type;
  }
  // Too short to tell.
  EXPECT_EQ(suppressed(icmp4("10.0.0.1", "198.51.100.1").total_length(23)), IcmpSuppressed::kAboutIcmpError);
  EXPECT_EQ(suppressed(icmp6("2001:db8::1", "2001:db8:1::1").payload_length(3)), IcmpSuppressed::kAboutIcmpError);
}

TEST(IcmpError, Rfc1812Section4327OnlyAboutFirstFragments) {
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "198.51.100.1").fragment(0, true).payload(8)), IcmpSuppressed::kNo);
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "198.51.100.1").fragment(8, true).payload(8)), IcmpSuppressed::kLaterFragment);
  // RFC 4443 has no such rule.
  EXPECT_EQ(suppressed(udp6("2001:db8::1", "2001:db8:1::1").fragment(8, true).payload(8)), IcmpSuppressed::kNo);
}

TEST(IcmpError, Rfc1812Section4327NeverAboutGroups) {
  const MacAddress from{{2, 0, 0, 0, 0, 1}};
  const MacAddress all{{255, 255, 255, 255, 255, 255}};
  const MacAddress group{{1, 0, 0x5e, 0, 0, 5}};
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "224.0.0.5")), IcmpSuppressed::kGroupDestination);
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "255.255.255.255")), IcmpSuppressed::kGroupDestination);
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "198.51.100.1").macs(all, from)), IcmpSuppressed::kGroupDestination);
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "198.51.100.1").macs(group, from)), IcmpSuppressed::kGroupDestination);
  EXPECT_EQ(suppressed(udp4("10.0.0.1", "224.0.0.5"), IcmpError::kPacketTooBig), IcmpSuppressed::kGroupDestination);
}

TEST(IcmpError, Rfc4443Section24MulticastHearsOnlyThatItIsTooBig) {
  for (unsigned kind = 0; kind < kIcmpErrorCount; ++kind) {
    const auto error = static_cast<IcmpError>(kind);
    EXPECT_EQ(suppressed(udp6("2001:db8::1", "ff0e::5"), error),
              error == IcmpError::kPacketTooBig ? IcmpSuppressed::kNo : IcmpSuppressed::kGroupDestination);
  }
}

TEST(IcmpError, NeverToASourceThatIsNotOneHost) {
  for (const char* source : {"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"}) {
    EXPECT_EQ(suppressed(udp4(source, "198.51.100.1")), IcmpSuppressed::kInvalidSource) << source;
  }
  for (const char* source : {"::", "::1", "ff02::1"}) {
    EXPECT_EQ(suppressed(udp6(source, "2001:db8::1")), IcmpSuppressed::kInvalidSource) << source;
  }
  EXPECT_EQ(suppressed(udp4("169.254.1.1", "198.51.100.1")), IcmpSuppressed::kNo);
  EXPECT_EQ(suppressed(udp6("fe80::1", "2001:db8::1")), IcmpSuppressed::kNo);
}

TEST(IcmpError, NeverAboutWhatDidNotParse) {
  EXPECT_EQ(icmp_error_suppressed(Headers{}, IcmpError::kTimeExceeded), IcmpSuppressed::kNotIp);
  uint8_t out[576];
  const uint8_t frame[64] = {};
  EXPECT_EQ(build_icmp_error(frame, 64, Headers{}, IcmpError::kTimeExceeded, 0, kRouter4, out, 576), 0u);
}

TEST(IcmpError, TheSourceMustBeOfThePacketsFamily) {
  const Bytes frame = udp4("10.0.0.1", "198.51.100.1").build();
  uint8_t out[576];
  EXPECT_EQ(build_icmp_error(frame.data(), static_cast<uint32_t>(frame.size()), parsed(frame), IcmpError::kTimeExceeded,
                             0, kRouter6, out, 576),
            0u);
}

}  // namespace
}  // namespace sluice
