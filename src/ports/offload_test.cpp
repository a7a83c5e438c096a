#include "ports/offload.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "net/bytes.h"
#include "net/checksum.h"
#include "net/packet_builder.h"
#include "net/parse.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

struct Frame {
  Bytes complete, left;  // as the receiver should see it, and as the kernel leaves it: the pseudo-header's sum alone
  uint32_t field = 0;
};

Frame make(bool v6, bool udp, unsigned tags, uint32_t payload, bool padded) {
  auto builder = v6 ? ip6("2001:db8::1", "2001:db8::2", udp ? kProtocolUdp : kProtocolTcp)
                    : ip4("192.0.2.1", "192.0.2.2", udp ? kProtocolUdp : kProtocolTcp);
  builder.ports(1000, 53).payload(Bytes(payload, 0xa5));
  for (unsigned i = 0; i < tags; ++i) builder.vlan(static_cast<uint16_t>(5 + i));
  Frame made;
  made.complete = builder.build();
  if (padded) made.complete.resize(made.complete.size() + 9, 0xee);
  Headers h;
  const auto bytes = static_cast<uint32_t>(made.complete.size());
  EXPECT_EQ(parse_ethernet(made.complete.data(), bytes, bytes, h), ParseStatus::kOk);
  const uint32_t l4_bytes = h.l3_offset + h.ip_bytes - h.l4_offset;
  const auto& key = h.key;
  const uint32_t pseudo =
      v6 ? pseudo_sum_v6(key.src_hi, key.src_lo, key.dst_hi, key.dst_lo, key.protocol, l4_bytes)
         : pseudo_sum_v4(static_cast<uint32_t>(key.src_lo), static_cast<uint32_t>(key.dst_lo), key.protocol, l4_bytes);
  made.field = h.l4_offset + (udp ? 6 : 16);
  made.left = made.complete;
  store_be16(made.left.data() + made.field, checksum_fold(pseudo));
  return made;
}

TEST(Offload, WhatWasLeftIsCompletedAndWhatIsCompleteStays) {
  for (const bool v6 : {false, true}) {
    for (const bool udp : {false, true}) {
      for (const unsigned tags : {0u, 1u, 2u}) {
        for (const uint32_t payload : {0u, 1u, 2u, 18u, 101u, 1400u}) {
          for (const bool padded : {false, true}) {
            Frame frame = make(v6, udp, tags, payload, padded);
            complete_checksum_if_partial(frame.left.data(), static_cast<uint32_t>(frame.left.size()));
            EXPECT_EQ(frame.left, frame.complete);
            complete_checksum_if_partial(frame.left.data(), static_cast<uint32_t>(frame.left.size()));
            EXPECT_EQ(frame.left, frame.complete);
            frame.left[frame.field] ^= 0x40;
            const Bytes wrong = frame.left;
            complete_checksum_if_partial(frame.left.data(), static_cast<uint32_t>(frame.left.size()));
            EXPECT_EQ(frame.left, wrong) << "a wrong checksum is the receiver's to see";
          }
        }
      }
    }
  }
}

TEST(Offload, FragmentsAndWhatEndsTooEarlyStay) {
  Frame frame = make(false, true, 0, 100, false);
  store_be16(frame.left.data() + 20, 0x2000);
  const Bytes fragment = frame.left;
  complete_checksum_if_partial(frame.left.data(), static_cast<uint32_t>(frame.left.size()));
  EXPECT_EQ(frame.left, fragment);
  for (const bool v6 : {false, true}) {
    const Frame whole = make(v6, false, 0, 100, false);
    for (uint32_t bytes = 0; bytes < whole.left.size(); ++bytes) {
      Bytes cut(whole.left.begin(), whole.left.begin() + bytes);
      const Bytes before = cut;
      complete_checksum_if_partial(cut.data(), bytes);
      ASSERT_EQ(cut, before) << bytes;
    }
  }
}

}  // namespace
}  // namespace sluice
