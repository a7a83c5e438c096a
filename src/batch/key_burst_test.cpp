#include "batch/key_burst.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace sluice {
namespace {

// Goes by the whole key; what it finds says what it does.
struct KeyStage {
  static constexpr FieldMask kReads = kFieldKey;
  static constexpr FieldMask kWrites = kFieldRule | kFieldMark | kFieldNextHop | kFieldReason;

  static uint32_t found(const FlowKey& k) {
    uint64_t sum = k.src_hi ^ k.src_lo * 3 ^ k.dst_hi * 5 ^ k.dst_lo * 7;
    for (const uint64_t v : {uint64_t{k.src_port}, uint64_t{k.dst_port}, uint64_t{k.icmp}, uint64_t{k.flags},
                             uint64_t{k.protocol}, uint64_t{k.dscp}, uint64_t{k.bits}, uint64_t{k.family}}) {
      sum = (sum + v) * 0x9e3779b97f4a7c15ull;
    }
    return static_cast<uint32_t>(sum >> 40);
  }
  uint8_t operator()(Packet& p) const {
    const uint32_t rule = found(p.key);
    p.rule = rule;
    p.next_hop = rule / 3;
    if (rule % 5 == 0) p.mark = rule / 5;
    if (rule % 7 == 0) return fail(p, DropReason::kAclDeny, 1);
    return rule % 11 == 0 ? uint8_t{2} : uint8_t{0};
  }
  uint32_t burst(FastBurst& burst, uint32_t mask) const {
    uint32_t passed = 0;
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      Packet p;
      p.key = burst.key(lane);
      burst.output[lane] = (*this)(p);
      burst.reason[lane] = p.reason;
      burst.rule[lane] = p.rule;
      burst.next_hop[lane] = p.next_hop;
      if (p.rule % 5 == 0) {
        burst.mark[lane] = p.mark;
        burst.marked |= FastBurst::kLane[lane];
      }
      passed |= burst.output[lane] == 0 ? FastBurst::kLane[lane] : 0;
    }
    return passed;
  }
};

TEST(KeyBurst, DoesWhatTheStageDoesPacketByPacket) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    Packet together[32], alone[32];
    uint8_t outputs[32], expected[32];
    std::memset(outputs, 99, sizeof outputs);
    std::memset(expected, 99, sizeof expected);
    const uint64_t kinds = random() % 5;  // of one family, of both, with packets that are none
    for (Packet& p : together) {
      FlowKey& k = p.key;
      const uint64_t r = random();
      k.family = kinds == 0 ? 4 : kinds == 1 ? 6 : r % 8 == 0 ? 0 : r % 8 < 4 ? 4 : 6;
      if (k.family != 0) {
        k.src_lo = random();
        k.dst_lo = random();
        if (k.family == 6) {
          k.src_hi = random();
          k.dst_hi = random();
        } else {
          k.src_lo &= 0xffffffffu;
          k.dst_lo &= 0xffffffffu;
        }
        k.bits = static_cast<uint8_t>(r >> 8 & 7);
        if ((k.bits & FlowKey::kHasPorts) != 0) {
          k.src_port = static_cast<uint16_t>(r >> 16);
          k.dst_port = static_cast<uint16_t>(r >> 32);
        } else {
          k.icmp = static_cast<uint16_t>(r >> 16);
        }
        k.protocol = static_cast<uint8_t>(r >> 48);
        k.dscp = static_cast<uint8_t>(r >> 56 & 63);
        // The low half of the flags is only in keys of traces: no column holds it.
        k.flags = static_cast<uint16_t>(kinds == 4 ? r >> 40 : r >> 40 & 0xff00);
      }
      p.rule = static_cast<uint32_t>(random());
      p.mark = static_cast<uint32_t>(random());
      p.next_hop = static_cast<uint32_t>(random());
      p.reason = DropReason::kTtlExpired;  // of an element before, which passed it on
    }
    std::copy(std::begin(together), std::end(together), std::begin(alone));
    const auto mask = static_cast<uint32_t>(round % 3 == 0 ? ~uint64_t{0} : random());
    const KeyStage stage;
    run_key_burst(stage, together, mask, outputs);
    for (uint32_t i = 0; i < 32; ++i) {
      if ((mask >> i & 1) != 0) expected[i] = stage(alone[i]);
      ASSERT_EQ(outputs[i], expected[i]) << round << " " << i;
      ASSERT_EQ(together[i].rule, alone[i].rule) << round << " " << i;
      ASSERT_EQ(together[i].mark, alone[i].mark) << round << " " << i;
      ASSERT_EQ(together[i].next_hop, alone[i].next_hop) << round << " " << i;
      ASSERT_EQ(together[i].reason, alone[i].reason) << round << " " << i;
    }
  }
}

}  // namespace
}  // namespace sluice
