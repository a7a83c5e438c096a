#include "ports/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Offload, CompletesPartialChecksumsAndKeepsCompleteOnes) {
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

// The frame of one packet, and of all of them as TSO or USO has it.
Bytes packet_of(bool v6, bool udp, unsigned tags, uint16_t id, uint32_t sequence, uint8_t flags, const Bytes& payload) {
  auto builder = v6 ? ip6("2001:db8::1", "2001:db8::2", udp ? kProtocolUdp : kProtocolTcp)
                    : ip4("192.0.2.1", "192.0.2.2", udp ? kProtocolUdp : kProtocolTcp);
  builder.ports(1000, 53).payload(payload);
  if (!v6) builder.id(id);
  if (!udp) builder.sequence(sequence, 7).tcp_flags(flags);
  for (unsigned i = 0; i < tags; ++i) builder.vlan(static_cast<uint16_t>(5 + i));
  return builder.build();
}

TEST(Offload, AFrameOfManySegmentsIsCutIntoThePacketsThatItStandsFor) {
  constexpr uint8_t kAckPushFinCwr = 0x99, kFirst = 0x90, kMiddle = 0x10, kLast = 0x19;
  for (const bool v6 : {false, true}) {
    for (const bool udp : {false, true}) {
      for (const unsigned tags : {0u, 2u}) {
        for (const uint32_t bytes : {1u, 700u, 1400u, 1401u, 2800u, 30'001u, 64'000u}) {
          constexpr uint32_t kSegment = 1400;
          Bytes payload(bytes);
          for (uint32_t i = 0; i < bytes; ++i) payload[i] = static_cast<uint8_t>(i * 7 + i / 256);
          Bytes all = packet_of(v6, udp, tags, 0xfffe, 0xffff'fff0, kAckPushFinCwr, payload);
          Headers h;
          const auto length = static_cast<uint32_t>(all.size());
          ASSERT_EQ(parse_ethernet(all.data(), length, length, h), ParseStatus::kOk);
          const VnetHeader left{VnetHeader::kNeedsChecksum,
                                udp  ? VnetHeader::kUdp
                                : v6 ? static_cast<uint8_t>(VnetHeader::kTcp6 | VnetHeader::kCongestion)
                                     : VnetHeader::kTcp4,
                                0,
                                kSegment,
                                h.l4_offset,
                                static_cast<uint16_t>(udp ? 6 : 16)};
          // What the sum of the pseudo-header is more than that of the addresses in the header: a routing header's.
          for (const uint32_t more : {0u, 0x1234u, 0xffffu}) {
            const uint32_t sum =
                v6 ? pseudo_sum_v6(h.key.src_hi, h.key.src_lo, h.key.dst_hi, h.key.dst_lo, h.key.protocol, more)
                   : pseudo_sum_v4(static_cast<uint32_t>(h.key.src_lo), static_cast<uint32_t>(h.key.dst_lo),
                                   h.key.protocol, more);
            const uint32_t field = h.l4_offset + left.checksum_offset;
            store_be16(all.data() + field, checksum_fold(uint64_t{sum} + (length - h.l4_offset)));
            Segments segments;
            ASSERT_TRUE(segments.begin(all.data(), length, left, 1728));
            uint32_t at = 0;
            for (uint16_t i = 0; !segments.empty(); ++i) {
              const uint32_t n = std::min(kSegment, bytes - at);
              const bool last = at + n == bytes;
              const uint8_t flags = static_cast<uint8_t>((i == 0 ? kFirst : kMiddle) | (last ? kLast : 0));
              Bytes wanted = packet_of(v6, udp, tags, static_cast<uint16_t>(0xfffe + i), 0xffff'fff0 + at, flags,
                                       Bytes(payload.begin() + at, payload.begin() + at + n));
              if (more != 0) {
                const auto end = static_cast<uint32_t>(wanted.size());
                store_be16(wanted.data() + field, checksum_fold(uint64_t{sum} + (end - h.l4_offset)));
                ASSERT_TRUE(complete_checksum(wanted.data(), end, h.l4_offset, left.checksum_offset));
              }
              Bytes got(1728 + 128);
              got.resize(segments.next(got.data()));
              ASSERT_EQ(got, wanted) << "segment " << i;
              at += n;
            }
            EXPECT_EQ(at, bytes);
          }
          // Nobody left a sum there: it is that of the header.
          VnetHeader none = left;
          none.flags = 0;
          Segments segments;
          ASSERT_TRUE(segments.begin(all.data(), length, none, 1728));
          Bytes got(1728 + 128);
          got.resize(segments.next(got.data()));
          EXPECT_EQ(got, packet_of(v6, udp, tags, 0xfffe, 0xffff'fff0,
                                   static_cast<uint8_t>(kFirst | (bytes <= kSegment ? kLast : 0)),
                                   Bytes(payload.begin(), payload.begin() + std::min(kSegment, bytes))));
        }
      }
    }
  }
}

TEST(Offload, RefusesSegmentsThatCannotBeCut) {
  const Bytes all = packet_of(false, false, 0, 1, 1, 0x10, Bytes(5000));
  const auto bytes = static_cast<uint32_t>(all.size());
  const VnetHeader good{VnetHeader::kNeedsChecksum, VnetHeader::kTcp4, 0, 1400, 34, 16};
  Segments segments;
  EXPECT_TRUE(segments.begin(all.data(), bytes, good, 1728));
  const auto refuses = [&](const Bytes& frame, auto change, uint32_t room = 1728) {
    VnetHeader left = good;
    change(left);
    EXPECT_FALSE(segments.begin(frame.data(), static_cast<uint32_t>(frame.size()), left, room));
    EXPECT_TRUE(segments.empty());
  };
  refuses(all, [](VnetHeader& left) { left.segmentation = 3; });  // UFO
  refuses(all, [](VnetHeader& left) { left.segmentation = VnetHeader::kTcp6; });
  refuses(all, [](VnetHeader& left) { left.segmentation = VnetHeader::kUdp; });
  refuses(all, [](VnetHeader& left) { left.segment_bytes = 0; });
  refuses(all, [](VnetHeader& left) { left.checksum_start = 84; });  // of an inner packet
  refuses(all, [](VnetHeader& left) { left.segment_bytes = 2000; });
  refuses(
      all, [](VnetHeader&) {}, 1400);
  Bytes fragment = all;
  store_be16(fragment.data() + 20, 0x2000);
  refuses(fragment, [](VnetHeader&) {});
  Bytes options = all;
  options[46] = 0xf0;  // 60 bytes of TCP header are there
  EXPECT_TRUE(segments.begin(options.data(), bytes, good, 1728));
  options[46] = 0x40;  // 16 are none
  refuses(options, [](VnetHeader&) {});
  for (uint32_t n = 0; n < 54; ++n) refuses(Bytes(all.begin(), all.begin() + n), [](VnetHeader&) {});
  const Bytes empty = packet_of(false, false, 0, 1, 1, 0x10, {});
  refuses(empty, [](VnetHeader&) {});
}

// What a parse finds in a frame whose length and checksum a sender left to the NIC is what it finds where they are.
TEST(Offload, LengthsThatAreLeftOutAreThoseOfTheFrame) {
  for (const bool v6 : {false, true}) {
    for (const unsigned tags : {0u, 1u, 2u}) {
      for (const uint32_t payload : {0u, 1u, 1400u, 60'000u}) {
        const Bytes whole = make(v6, false, tags, payload, false).complete;
        const auto bytes = static_cast<uint32_t>(whole.size());
        const uint32_t l3 = 14 + 4 * tags;
        Bytes left = whole;
        store_be16(left.data() + l3 + (v6 ? 4 : 2), 0);
        for (const uint16_t checksum : {uint16_t{0}, uint16_t{0x1234}}) {
          Bytes filled = left;
          if (!v6) store_be16(filled.data() + l3 + 10, checksum);
          fill_length(filled.data(), bytes, bytes);
          EXPECT_EQ(filled, whole) << v6 << tags << payload;
        }
        // What is there stays.
        Bytes same = whole;
        fill_length(same.data(), bytes, bytes);
        EXPECT_EQ(same, whole);
        // Of a cut frame the length is that on the wire; too few bytes are not looked at.
        for (const uint32_t captured : {bytes, l3 + 40, l3 + 20, l3 + 19, l3, 13u, 0u}) {
          if (captured > bytes) continue;
          Bytes cut(left.begin(), left.begin() + captured);
          fill_length(cut.data(), captured, bytes);
          const bool there = captured >= l3 + (v6 ? 40 : 20);
          EXPECT_EQ(cut, Bytes((there ? whole : left).begin(), (there ? whole : left).begin() + captured)) << captured;
        }
      }
    }
  }
}

TEST(Offload, LengthsThatNoFieldCanSayStayOut) {
  Bytes v4 = make(false, false, 0, 100, false).complete, v6 = make(true, false, 0, 100, false).complete;
  store_be16(v4.data() + 16, 0);
  store_be16(v6.data() + 18, 0);
  const auto stays = [](const Bytes& frame, uint32_t wire) {
    Bytes filled = frame;
    fill_length(filled.data(), static_cast<uint32_t>(filled.size()), wire);
    EXPECT_EQ(filled, frame) << wire;
  };
  stays(v4, 14 + 65536);
  stays(v6, 54 + 65536);
  Bytes none = v6;
  for (const uint8_t next : {uint8_t{0}, uint8_t{59}}) {  // hop-by-hop, which may hold the length; no next header
    none[20] = next;
    stays(none, static_cast<uint32_t>(none.size()));
  }
  Bytes header = v4;
  for (const uint8_t first : {0x44, 0x4f, 0x65}) {
    header[14] = first;
    if (first == 0x4f) header.resize(14 + 40);
    stays(header, static_cast<uint32_t>(header.size()));
  }
}

}  // namespace
}  // namespace sluice
