// The codepoint that is looked at without parsing, against the parser.
#include "qos/frame_class.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <vector>

#include "net/parse.h"

namespace sluice {
namespace {

void put16(std::vector<uint8_t>& frame, uint16_t value) {
  frame.push_back(static_cast<uint8_t>(value >> 8));
  frame.push_back(static_cast<uint8_t>(value));
}

// Ethernet with `tags` VLAN tags of every kind, then IPv4 or IPv6 of this codepoint with a UDP header.
std::vector<uint8_t> frame_of(unsigned tags, unsigned family, unsigned dscp) {
  std::vector<uint8_t> frame(12, 0x02);
  constexpr uint16_t kTypes[] = {kEtherTypeVlan, kEtherTypeQinQ, kEtherTypeOldQinQ};
  for (unsigned t = 0; t < tags; ++t) {
    put16(frame, kTypes[t % 3]);
    put16(frame, 0xffff);
  }
  put16(frame, family == 4 ? kEtherTypeIpv4 : kEtherTypeIpv6);
  const size_t at = frame.size();
  frame.resize(at + (family == 4 ? 28 : 48));
  uint8_t* ip = frame.data() + at;
  if (family == 4) {
    const uint8_t header[] = {0x45, 3, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1};
    std::copy(std::begin(header), std::end(header), ip);
    const uint32_t sum = 0x4503u + 28 + 0x4011 + 0xc000 + 0x0201 + 0xc633 + 0x6401;
    const auto check = static_cast<uint16_t>(~(sum % 0xffff));
    ip[10] = static_cast<uint8_t>(check >> 8);
    ip[11] = static_cast<uint8_t>(check);
  } else {
    ip[0] = 0x60;
    ip[5] = 8;
    ip[6] = 17;
    ip[7] = 64;
    ip[8] = ip[24] = 0x20;
    ip[23] = 1;
  }
  set_dscp(ip, family, static_cast<uint8_t>(dscp));
  return frame;
}

TEST(FrameClass, TheCodepointIsTheKeys) {
  for (unsigned tags = 0; tags <= kMaxVlanTags; ++tags) {
    for (const unsigned family : {4u, 6u}) {
      for (unsigned dscp = 0; dscp < 64; ++dscp) {
        const std::vector<uint8_t> frame = frame_of(tags, family, dscp);
        const auto bytes = static_cast<uint32_t>(frame.size());
        Headers headers;
        ASSERT_EQ(parse_ethernet(frame.data(), bytes, bytes, headers), ParseStatus::kOk) << tags << ' ' << family;
        ASSERT_EQ(headers.key.dscp, dscp);
        ASSERT_EQ(dscp_of_frame(frame.data(), bytes), dscp);
      }
    }
  }
}

TEST(FrameClass, IsTheDefaultForFramesThatAreNotIp) {
  std::vector<uint8_t> frame = frame_of(kMaxVlanTags + 1, 4, 46);
  EXPECT_EQ(dscp_of_frame(frame.data(), static_cast<uint32_t>(frame.size())), 0u);
  frame = frame_of(0, 4, 46);
  frame[12] = 0x08;
  frame[13] = 0x06;
  EXPECT_EQ(dscp_of_frame(frame.data(), static_cast<uint32_t>(frame.size())), 0u);
  frame = frame_of(1, 6, 46);
  frame[18] = 0x45;  // a version that the EtherType contradicts
  EXPECT_EQ(dscp_of_frame(frame.data(), static_cast<uint32_t>(frame.size())), 0u);
}

// In memory of exactly that size, so that the address sanitizer sees what is read past the end.
RC_GTEST_PROP(FrameClass, ReadsNothingPastTheEnd, ()) {
  std::vector<uint8_t> frame =
      frame_of(*rc::gen::inRange(0u, 7u), *rc::gen::element(4u, 6u), *rc::gen::inRange(0u, 64u));
  const auto spoiled = *rc::gen::inRange<size_t>(0, frame.size());
  if (*rc::gen::arbitrary<bool>()) frame[spoiled] = *rc::gen::arbitrary<uint8_t>();
  for (uint32_t bytes = 0; bytes <= frame.size(); ++bytes) {
    const std::vector<uint8_t> cut(frame.begin(), frame.begin() + bytes);
    Headers headers;
    const unsigned dscp = dscp_of_frame(cut.data(), bytes);
    RC_ASSERT(dscp < 64u);
    if (parse_ethernet(cut.data(), bytes, static_cast<uint32_t>(frame.size()), headers) == ParseStatus::kOk)
      RC_ASSERT(dscp == headers.key.dscp);
  }
}

}  // namespace
}  // namespace sluice
