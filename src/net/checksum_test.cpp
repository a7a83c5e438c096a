#include "net/checksum.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <memory>
#include <vector>

#include "net/edit.h"

namespace sluice {
namespace {

// RFC 1071 section 4.1 as it is written: 16-bit words one by one, then the carries.
uint16_t slow_sum(const std::vector<uint8_t>& bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) sum += bytes[i] * 256u + (i + 1 < bytes.size() ? bytes[i + 1] : 0u);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

TEST(Checksum, Rfc1071Section3Example) {
  const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
  EXPECT_EQ(checksum_fold(checksum_add(bytes, 8)), 0xddf2);
  EXPECT_EQ(checksum_finish(checksum_add(bytes, 8)), static_cast<uint16_t>(~0xddf2));
}

TEST(Checksum, EveryLengthEqualsTheWordByWordSum) {
  for (uint32_t length = 0; length <= 200; ++length) {
    std::vector<uint8_t> bytes(length);
    for (uint32_t i = 0; i < length; ++i) bytes[i] = static_cast<uint8_t>(0xff - i * 37);
    // A block of exactly this size: nothing may be read past it.
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[length]);
    if (length > 0) std::memcpy(exact.get(), bytes.data(), length);
    EXPECT_EQ(checksum_fold(checksum_add(exact.get(), length)), slow_sum(bytes)) << length;
  }
}

TEST(Checksum, AllOnesDoNotOverflow) {
  const std::vector<uint8_t> bytes(65535, 0xff);
  EXPECT_EQ(checksum_fold(checksum_add(bytes.data(), 65535)), slow_sum(bytes));
  EXPECT_EQ(checksum_fold(checksum_add(bytes.data(), 65534, 0xffffffff)), 0xffff);
}

TEST(Checksum, PartsOfEvenLengthAddUp) {
  EXPECT_TRUE(rc::check([](std::vector<uint8_t> a, const std::vector<uint8_t>& b) {
    if (a.size() % 2 != 0) a.push_back(0);
    std::vector<uint8_t> both = a;
    both.insert(both.end(), b.begin(), b.end());
    const uint32_t first = checksum_add(a.data(), static_cast<uint32_t>(a.size()));
    RC_ASSERT(checksum_fold(checksum_add(b.data(), static_cast<uint32_t>(b.size()), first)) == slow_sum(both));
  }));
}

TEST(Checksum, TheThreeHeaderChecksAgree) {
  EXPECT_TRUE(rc::check([](bool right, uint16_t flip) {
    std::vector<uint8_t> header = *rc::gen::container<std::vector<uint8_t>>(20, rc::gen::arbitrary<uint8_t>());
    header[0] = 0x45;
    store_be16(&header[10], ipv4_header_checksum(header.data(), 20));
    if (!right) store_be16(&header[10], static_cast<uint16_t>(load_be16(&header[10]) ^ flip));
    const bool expected = slow_sum(header) == 0xffff;
    if (right || flip == 0) RC_ASSERT(expected);
    RC_ASSERT(ipv4_checksum_ok(header.data(), 20) == expected);
    RC_ASSERT(ipv4_checksum_ok20(load_le64(&header[0]), load_le64(&header[8]), load_le32(&header[16])) == expected);
  }));
}

// Every value of the checksum field against one header: exactly the right ones pass, in the wide form too.
TEST(Checksum, OnlyTheRightChecksumPasses) {
  uint8_t header[20] = {0x45, 0, 0, 40, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 255, 255, 255, 255, 10, 0, 0, 1};
  const uint16_t right = ipv4_header_checksum(header, 20);
  for (uint32_t value = 0; value < 65536; ++value) {
    store_be16(header + 10, static_cast<uint16_t>(value));
    ASSERT_EQ(ipv4_checksum_ok(header, 20), value == right);
    ASSERT_EQ(ipv4_checksum_ok20(load_le64(header), load_le64(header + 8), load_le32(header + 16)), value == right);
  }
}

// RFC 1624 section 4's example. RFC 1141's equation gives 0xffff here ("minus zero"), which a full recomputation never
// does.
TEST(Checksum, Rfc1624Section4Vector) {
  EXPECT_EQ(checksum_update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

TEST(Checksum, Rfc1624Erratum4782NothingChangedChangesNothing) {
  for (uint32_t hc = 0; hc < 65536; ++hc) {
    ASSERT_EQ(checksum_update(static_cast<uint16_t>(hc), 0x1234, 0x1234), hc);
    ASSERT_EQ(checksum_update(static_cast<uint16_t>(hc), 0xffff, 0xffff), hc);
  }
}

// All 65,536 checksums x all TTLs that can be decremented, against a recomputation of the whole header.
TEST(Checksum, TtlUpdateIsExhaustivelyRight) {
  uint8_t header[20] = {0x45, 0, 0, 40, 0, 0, 0x40, 0, 0, 17, 0, 0, 10, 1, 2, 3, 192, 0, 2, 7};
  for (uint32_t ttl = 1; ttl < 256; ++ttl) {
    header[8] = static_cast<uint8_t>(ttl);
    store_be16(header + 4, 0);
    store_be16(header + 10, 0);
    // The sums of the other words by hand, before and after, so that the code under test is not its own judge; the ID
    // then brings the checksum to every value.
    auto sum_of_words = [&] {
      uint32_t sum = 0;
      for (int i = 0; i < 20; i += 2) sum += header[i] * 256u + header[i + 1];
      while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
      return sum;
    };
    const uint32_t base = sum_of_words();
    header[8] = static_cast<uint8_t>(ttl - 1);
    const uint32_t after = sum_of_words();
    for (uint32_t id = 0; id < 65536; ++id) {
      uint32_t before_sum = base + id;
      before_sum = (before_sum & 0xffff) + (before_sum >> 16);
      uint32_t after_sum = after + id;
      after_sum = (after_sum & 0xffff) + (after_sum >> 16);
      const auto hc = static_cast<uint16_t>(~before_sum);
      const auto expected = static_cast<uint16_t>(~after_sum);
      header[8] = static_cast<uint8_t>(ttl);
      store_be16(header + 4, static_cast<uint16_t>(id));
      store_be16(header + 10, hc);
      const auto m = static_cast<uint16_t>(ttl << 8 | 17);
      if (checksum_update(hc, m, static_cast<uint16_t>(m - 0x100)) != expected) {
        FAIL() << "update: hc " << hc << " ttl " << ttl;
      }
      if (decrement_ttl_ipv4(header) != ttl - 1 || header[8] != ttl - 1 || load_be16(header + 10) != expected) {
        FAIL() << "decrement: hc " << hc << " ttl " << ttl;
      }
    }
    // IDs 0..65535 reach every checksum but the one value (0xffff) that no header with a non-zero word has; a received
    // 0xffff stands for 0 and must leave as its successor.
    header[8] = static_cast<uint8_t>(ttl);
    store_be16(header + 10, 0xffff);
    decrement_ttl_ipv4(header);
    ASSERT_EQ(load_be16(header + 10), 0x0100) << ttl;
  }
}

// The same against ipv4_header_checksum over a sample, so that the sum by hand above is itself checked.
TEST(Checksum, UpdatedHeadersStillVerify) {
  EXPECT_TRUE(rc::check([](uint16_t value) {
    std::vector<uint8_t> header = *rc::gen::container<std::vector<uint8_t>>(20, rc::gen::arbitrary<uint8_t>());
    header[0] = 0x45;
    store_be16(&header[10], ipv4_header_checksum(header.data(), 20));
    const auto at = *rc::gen::element<size_t>(2, 4, 6, 8, 12, 14, 16, 18);
    const uint16_t updated = checksum_update(load_be16(&header[10]), load_be16(&header[at]), value);
    store_be16(&header[at], value);
    store_be16(&header[10], updated);
    RC_ASSERT(ipv4_checksum_ok(header.data(), 20));
    RC_ASSERT(updated == ipv4_header_checksum(header.data(), 20));
  }));
}

TEST(Checksum, AddressUpdateEqualsRecomputation) {
  EXPECT_TRUE(rc::check([](uint32_t before, uint32_t after) {
    uint8_t header[20] = {0x45, 0, 0, 40, 0x12, 0x34, 0, 0, 64, 6, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1};
    store_be32(header + 12, before);
    const uint16_t hc = ipv4_header_checksum(header, 20);
    store_be32(header + 12, after);
    RC_ASSERT(checksum_update32(hc, before, after) == ipv4_header_checksum(header, 20));
  }));
}

// The pseudo-headers laid out in bytes (RFC 9293 section 3.1, RFC 8200 section 8.1) and summed slowly.
TEST(Checksum, PseudoHeadersEqualTheirBytes) {
  EXPECT_TRUE(rc::check([](uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint8_t protocol, uint16_t length) {
    std::vector<uint8_t> v4(12);
    store_be32(&v4[0], static_cast<uint32_t>(a));
    store_be32(&v4[4], static_cast<uint32_t>(b));
    v4[9] = protocol;
    store_be16(&v4[10], length);
    RC_ASSERT(checksum_fold(pseudo_sum_v4(static_cast<uint32_t>(a), static_cast<uint32_t>(b), protocol, length)) ==
              slow_sum(v4));
    std::vector<uint8_t> v6(40);
    store_be64(&v6[0], a);
    store_be64(&v6[8], b);
    store_be64(&v6[16], c);
    store_be64(&v6[24], d);
    store_be32(&v6[32], length);
    v6[39] = protocol;
    RC_ASSERT(checksum_fold(pseudo_sum_v6(a, b, c, d, protocol, length)) == slow_sum(v6));
  }));
}

// RFC 768: a datagram whose checksum comes out as zero is sent with 0xffff; both sum to zero at the receiver.
TEST(Checksum, UdpNeverSendsZero) {
  uint8_t datagram[10] = {0, 1, 0, 2, 0, 10, 0, 0, 0, 0};
  const uint32_t pseudo = pseudo_sum_v4(0x0a000001, 0x0a000002, 17, 10);
  const uint16_t checksum = udp_checksum(pseudo, datagram, 10);
  store_be16(datagram + 8, checksum);  // now the sum is all ones, so the checksum is zero
  EXPECT_EQ(l4_checksum(pseudo, datagram, 10), 0);
  EXPECT_EQ(udp_checksum(pseudo, datagram, 10), 0xffff);
}

}  // namespace
}  // namespace sluice
