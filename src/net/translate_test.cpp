#include "net/translate.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

namespace sluice {
namespace {

// An IPv4 packet with right checksums. `udp_sum`: whether UDP has one.
std::vector<uint8_t> packet(std::mt19937_64& random, uint8_t protocol, size_t payload, bool udp_sum = true) {
  const size_t l4 = protocol == kProtocolTcp ? 20 : 8;
  std::vector<uint8_t> p(20 + l4 + payload);
  for (uint8_t& byte : p) byte = static_cast<uint8_t>(random());
  p[0] = 0x45;
  store_be16(&p[2], static_cast<uint16_t>(p.size()));
  store_be16(&p[6], 0);
  p[9] = protocol;
  store_be16(&p[10], ipv4_header_checksum(p.data(), 20));
  const auto bytes = static_cast<uint32_t>(p.size() - 20);
  const uint32_t pseudo = pseudo_sum_v4(load_be32(&p[12]), load_be32(&p[16]), protocol, bytes);
  if (protocol == kProtocolUdp) {
    store_be16(&p[26], 0);
    if (udp_sum) store_be16(&p[26], udp_checksum(pseudo, &p[20], bytes));
  } else if (protocol == kProtocolTcp) {
    store_be16(&p[36], 0);
    store_be16(&p[36], l4_checksum(pseudo, &p[20], bytes));
  } else {
    p[20] = 8;
    store_be16(&p[22], 0);
    store_be16(&p[22], l4_checksum(0, &p[20], bytes));
  }
  return p;
}

bool checksums_are_right(const std::vector<uint8_t>& p) {
  const auto bytes = static_cast<uint32_t>(p.size() - 20);
  if (!ipv4_checksum_ok(p.data(), 20)) return false;
  if (p[9] == kProtocolUdp && load_be16(&p[26]) == 0) return true;
  const uint32_t pseudo = p[9] == kProtocolIcmp ? 0 : pseudo_sum_v4(load_be32(&p[12]), load_be32(&p[16]), p[9], bytes);
  return l4_checksum(pseudo, &p[20], bytes) == 0;
}

TEST(Translate, ChecksumsAreRightBehindAsTheyWereBefore) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 30'000; ++i) {
    const uint8_t protocol = std::array<uint8_t, 3>{kProtocolTcp, kProtocolUdp, kProtocolIcmp}[random() % 3];
    std::vector<uint8_t> p = packet(random, protocol, random() % 30);
    ASSERT_TRUE(checksums_are_right(p));
    const auto side = random() % 2 == 0 ? Side::kSource : Side::kDestination;
    // Sums of 0 and 0xffff are told apart by few values.
    const NewEnd to{
        random() % 8 == 0 ? load_be32(&p[side == Side::kSource ? 12 : 16]) : static_cast<uint32_t>(random()),
        static_cast<uint16_t>(random()), random() % 2 == 0};
    translate(p.data(), p.data() + p.size(), side, to);
    ASSERT_TRUE(checksums_are_right(p)) << i;
    EXPECT_EQ(load_be32(&p[side == Side::kSource ? 12 : 16]), to.address);
    if (!to.has_port) continue;
    EXPECT_EQ(load_be16(&p[protocol == kProtocolIcmp ? 24 : side == Side::kSource ? 20 : 22]), to.port);
  }
}

TEST(Translate, UdpWithoutAChecksumGetsNone) {
  std::mt19937_64 random(4);
  std::vector<uint8_t> p = packet(random, kProtocolUdp, 9, false);
  translate(p.data(), p.data() + p.size(), Side::kSource, {1, 2, true});
  EXPECT_EQ(load_be16(&p[26]), 0);
  EXPECT_TRUE(ipv4_checksum_ok(p.data(), 20));
}

TEST(Translate, LaterFragmentsHaveNoPorts) {
  std::mt19937_64 random(5);
  std::vector<uint8_t> p = packet(random, kProtocolUdp, 9);
  store_be16(&p[6], 100);
  store_be16(&p[10], 0);
  store_be16(&p[10], ipv4_header_checksum(p.data(), 20));
  const std::vector<uint8_t> before = p;
  translate(p.data(), p.data() + p.size(), Side::kSource, {1, 2, true});
  EXPECT_TRUE(ipv4_checksum_ok(p.data(), 20));
  EXPECT_TRUE(std::equal(p.begin() + 20, p.end(), before.begin() + 20));
}

TEST(Translate, NothingIsWrittenBehindTheEnd) {
  std::mt19937_64 random(6);
  for (const uint8_t protocol : {kProtocolTcp, kProtocolUdp, kProtocolIcmp}) {
    for (size_t bytes = 20; bytes < 42; ++bytes) {
      std::vector<uint8_t> p = packet(random, protocol, 20);
      const std::vector<uint8_t> before = p;
      translate(p.data(), p.data() + bytes, Side::kDestination, {1, 2, true});
      EXPECT_TRUE(std::equal(p.begin() + static_cast<long>(bytes), p.end(), before.begin() + static_cast<long>(bytes)));
      EXPECT_TRUE(ipv4_checksum_ok(p.data(), 20));
    }
  }
}

TEST(Translate, AnyBytesOfAnyLengthAreWrittenWithinTheirEnd) {
  std::mt19937_64 random(8);
  constexpr uint8_t kProtocols[] = {kProtocolTcp, kProtocolUdp, kProtocolIcmp, kProtocolUdpLite, kProtocolDccp, 47};
  for (int i = 0; i < 20'000; ++i) {
    const size_t bytes = 20 + random() % 60;
    const auto p = std::make_unique<uint8_t[]>(bytes);  // nothing behind
    for (size_t n = 0; n < bytes; ++n) p[n] = static_cast<uint8_t>(random());
    p[9] = kProtocols[random() % std::size(kProtocols)];
    if (random() % 4 != 0) store_be16(&p[6], 0);
    const NewEnd to{static_cast<uint32_t>(random()), static_cast<uint16_t>(random()), random() % 2 == 0};
    const auto side = random() % 2 == 0 ? Side::kSource : Side::kDestination;
    translate(p.get(), p.get() + bytes, side, to);
    translate_quoted(p.get(), p.get() + bytes, side, to);
  }
}

TEST(Translate, AQuotedPacketIsRightAndSoIsTheErrorAboutIt) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const uint8_t protocol = std::array<uint8_t, 3>{kProtocolTcp, kProtocolUdp, kProtocolIcmp}[random() % 3];
    const std::vector<uint8_t> inner = packet(random, protocol, random() % 10);
    const size_t quoted = random() % 2 == 0 ? inner.size() : 28;
    std::vector<uint8_t> error(8 + quoted);
    error[0] = 3;
    std::copy_n(inner.begin(), quoted, error.begin() + 8);
    const auto bytes = static_cast<uint32_t>(error.size());
    store_be16(&error[2], l4_checksum(0, error.data(), bytes));
    translate_quoted(error.data(), error.data() + bytes, random() % 2 == 0 ? Side::kSource : Side::kDestination,
                     {static_cast<uint32_t>(random()), static_cast<uint16_t>(random()), random() % 2 == 0});
    ASSERT_EQ(l4_checksum(0, error.data(), bytes), 0) << i;
    const std::vector<uint8_t> after(error.begin() + 8, error.end());
    ASSERT_TRUE(ipv4_checksum_ok(after.data(), 20));
    if (quoted == inner.size()) {
      ASSERT_TRUE(checksums_are_right(after)) << i;
    }
  }
}

}  // namespace
}  // namespace sluice
