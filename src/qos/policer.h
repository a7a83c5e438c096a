// Policers: green, yellow or red, by two token buckets. Host and device.
//
// Sources: RFC 2697 (single rate three color marker), RFC 2698 (two rate three color marker). Tokens are bytes of the
// IP packet; both buckets are full at first.
//
// Deviation: the RFCs add whole tokens, one at a time; here a bucket also holds parts of a token, so nothing is lost
// between two packets. A packet sees the same number of whole tokens, except that a bucket which was just full keeps no
// part of a token that the other one would have got.
//
// Time is exact. A token is 8e9 units, so that a rate of R bit/s is R units a nanosecond:
//   R bit/s = R / 8 byte/s = R / 8e9 byte/ns = R units/ns.
// A bucket has at most 2^30 bytes, 8.6e18 units, which fits 64 bits. What comes in a pause is a 128-bit product (64
// bits of time by less than 64 bits of rate), clipped at the burst: no pause overflows, and none is rounded.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "qos/class_map.h"

namespace sluice {

struct PolicerConfig {
  static constexpr uint64_t kUnitsPerByte = 8'000'000'000;
  static constexpr uint32_t kMaxBurstBytes = 1u << 30;

  uint64_t committed_bps = 0;
  uint64_t peak_bps = 0;  // two rates only; not below committed_bps
  uint32_t committed_burst_bytes = 0;
  uint32_t excess_burst_bytes = 0;  // the excess burst of one rate (EBS), the peak burst of two (PBS)
  uint8_t two_rates = 0;            // 0: RFC 2697; 1: RFC 2698
  uint8_t color_aware = 0;
};
static_assert(std::is_trivially_copyable_v<PolicerConfig> && sizeof(PolicerConfig) <= 32);

// Two buckets, in units. One owner at a time.
struct PolicerState {
  uint64_t committed = 0;
  uint64_t excess = 0;  // the excess bucket of one rate, the peak bucket of two
  uint64_t last_ns = 0;

  SLUICE_HD static PolicerState full(const PolicerConfig& config, uint64_t now_ns) {
    return {config.committed_burst_bytes * PolicerConfig::kUnitsPerByte,
            config.excess_burst_bytes * PolicerConfig::kUnitsPerByte, now_ns};
  }
};

// Brings both buckets up to `now_ns`; a time before the last one is the last one.
SLUICE_HD void refill(const PolicerConfig& config, PolicerState& state, uint64_t now_ns) {
  if (now_ns <= state.last_ns) return;
  const uint64_t elapsed = now_ns - state.last_ns;
  state.last_ns = now_ns;
  const uint64_t committed_room = config.committed_burst_bytes * PolicerConfig::kUnitsPerByte - state.committed;
  const uint64_t excess_room = config.excess_burst_bytes * PolicerConfig::kUnitsPerByte - state.excess;
  unsigned __int128 gained = static_cast<unsigned __int128>(elapsed) * config.committed_bps;
  const uint64_t to_committed = gained < committed_room ? static_cast<uint64_t>(gained) : committed_room;
  state.committed += to_committed;
  // One rate: what the first bucket has no room for goes to the second (RFC 2697 section 3).
  gained = config.two_rates != 0 ? static_cast<unsigned __int128>(elapsed) * config.peak_bps : gained - to_committed;
  state.excess += gained < excess_room ? static_cast<uint64_t>(gained) : excess_room;
}

// The color of a packet of `bytes` (of the IP packet) that comes at `now_ns`, which is paid for. `before` is the color
// that it came with; a color-blind policer does not look at it.
SLUICE_HD Color police(const PolicerConfig& config, PolicerState& state, uint64_t now_ns, uint32_t bytes,
                       Color before = Color::kGreen) {
  refill(config, state, now_ns);
  if (config.color_aware == 0) before = Color::kGreen;
  // No bucket holds more than kMaxBurstBytes, and the product of what is larger might not fit.
  if (bytes > PolicerConfig::kMaxBurstBytes) return Color::kRed;
  const uint64_t cost = bytes * PolicerConfig::kUnitsPerByte;
  if (config.two_rates != 0) {
    if (before == Color::kRed || state.excess < cost) return Color::kRed;
    state.excess -= cost;
    if (before == Color::kYellow || state.committed < cost) return Color::kYellow;
    state.committed -= cost;
    return Color::kGreen;
  }
  if (before == Color::kGreen && state.committed >= cost) {
    state.committed -= cost;
    return Color::kGreen;
  }
  if (before != Color::kRed && state.excess >= cost) {
    state.excess -= cost;
    return Color::kYellow;
  }
  return Color::kRed;
}

// What a policer counts of a packet: bytes of the IP packet, which may have been cut off in front; of the frame where
// there is none. Offsets as in Packet.
SLUICE_HD uint32_t policed_bytes(bool ip, int32_t data, uint32_t l3, uint32_t wire_end) {
  return ip && wire_end > l3 ? wire_end - l3 : wire_end - static_cast<uint32_t>(data);
}

}  // namespace sluice
