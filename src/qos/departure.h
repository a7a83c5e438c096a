// When a packet may go: a token bucket as earliest departure time, with one 64-bit word of state. Host and device.
//
// Sources: Saeed et al., "Carousel: Scalable Traffic Shaping at End Hosts" (SIGCOMM 2017): stamp now, wait later; the
// bucket as virtual scheduling: ITU-T I.371 (the word is its theoretical arrival time). Deviation: the word counts work
// and not time.
//
// The word is the byte up to which the rate is spoken for, in units of 2^-k byte since `epoch_ns`. With r = R * 2^k
//   now_units = ceil((now - epoch) * r / 8e9)      what the rate had sent by now, had it never paused
//   departure = max(now, epoch + ceil((word - burst) * 8e9 / r))
//   word      = max(word, now_units) + bytes * 2^k
// k is the least with r >= 128e9, so that 8e9 / r, the time of a unit, is 1/16 ns at most.
//
// Exactness. Let w be the word of exact arithmetic and word = w + e. Adding bytes is exact and leaves e; max(w + e, m +
// d), with 0 <= d < 1 from rounding now_units up, lies in [max(w, m), max(w, m) + max(e, d)). So 0 <= e < 1 for ever,
// whatever came before: a departure is never early, and late by less than a unit (1/16 ns), rounded up to a nanosecond.
//
// Division. Both quotients come from a multiplication by a reciprocal m = floor(a * 2^64 / d): with q = floor(x * m /
// 2^64), x * a / d - q lies in [0, x / 2^64 + 1), so below 2, and the remainder x * a - q * d, in [0, 2 d), is exact
// modulo 2^64: one comparison mends q. That needs a < d < 2^63, which the split of r into whole units a nanosecond and
// a rest gives.
//
// Range. r < 256e9 below 128 Gbit/s, so that the word lasts 2^64 / 32 ns, 18 years from the epoch; at 400 Gbit/s k is 0
// and a nanosecond is 50 units: 11 years. Products are 128 bits wide: 64 by less than 40 bits.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"

namespace sluice {

struct DepartureRate {
  static constexpr uint64_t kNever = ~uint64_t{0};  // the departure of what is refused
  static constexpr uint64_t kLeastBps = 1'000;
  static constexpr uint64_t kMostBps = 400'000'000'000;
  static constexpr uint32_t kMaxBurstBytes = 1u << 30;
  static constexpr uint64_t kYearNs = 365ull * 24 * 3600 * 1'000'000'000;

  uint64_t scaled_bps = 0;  // R * 2^k; 0: unlimited
  uint64_t burst_units = 0;
  uint64_t epoch_ns = 0;
  uint64_t horizon_ns = 0;       // what would have to wait longer is refused; 0: nothing is
  uint32_t unit_bits = 0;        // k
  uint32_t whole_units = 0;      // r / 8e9: units in a nanosecond
  uint64_t rest_units = 0;       // r % 8e9
  uint64_t rest_reciprocal = 0;  // floor(rest_units * 2^64 / 8e9)
  uint64_t ns_reciprocal = 0;    // floor(8e9 * 2^64 / r)

  // kLeastBps to kMostBps, or 0: unlimited; at most kMaxBurstBytes. With burst 0 packets leave at an even pace.
  SLUICE_HD static DepartureRate of(uint64_t rate_bps, uint32_t burst_bytes, uint64_t epoch_ns = 0,
                                    uint64_t horizon_ns = 0) {
    DepartureRate rate;
    rate.epoch_ns = epoch_ns;
    rate.horizon_ns = horizon_ns;
    if (rate_bps == 0) return rate;
    while (rate_bps << rate.unit_bits < 16 * kNsPerByte) ++rate.unit_bits;
    rate.scaled_bps = rate_bps << rate.unit_bits;
    rate.burst_units = static_cast<uint64_t>(burst_bytes) << rate.unit_bits;
    rate.whole_units = static_cast<uint32_t>(rate.scaled_bps / kNsPerByte);
    rate.rest_units = rate.scaled_bps % kNsPerByte;
    rate.rest_reciprocal = reciprocal(rate.rest_units, kNsPerByte);
    rate.ns_reciprocal = reciprocal(kNsPerByte, rate.scaled_bps);
    return rate;
  }
  SLUICE_HD bool unlimited() const { return scaled_bps == 0; }
  // Whether a word of this epoch is looked at then; else `keep_epoch` comes first.
  SLUICE_HD bool lasts(uint64_t now_ns) const { return now_ns <= epoch_ns || now_ns - epoch_ns < kYearNs; }

  // A time before the epoch is the epoch.
  SLUICE_HD uint64_t units_at(uint64_t now_ns) const {
    const uint64_t elapsed = now_ns > epoch_ns ? now_ns - epoch_ns : 0;
    return elapsed * whole_units + quotient_up(elapsed, rest_units, kNsPerByte, rest_reciprocal);
  }
  SLUICE_HD uint64_t ns_at(uint64_t units) const {
    return epoch_ns + quotient_up(units, kNsPerByte, scaled_bps, ns_reciprocal);
  }
  // When a packet goes that comes at `now_ns` and finds this word; kNever: behind the horizon.
  SLUICE_HD uint64_t departure(uint64_t word, uint64_t now_ns) const {
    if (word <= burst_units) return now_ns;
    const uint64_t at = ns_at(word - burst_units);
    if (at <= now_ns) return now_ns;
    return horizon_ns != 0 && at - now_ns > horizon_ns ? kNever : at;
  }
  // The word behind that packet.
  SLUICE_HD uint64_t charged(uint64_t word, uint64_t now_ns, uint32_t bytes) const {
    const uint64_t now = units_at(now_ns);
    return (word < now ? now : word) + (static_cast<uint64_t>(bytes) << unit_bits);
  }
  // The word of this rate where `before` had `word` at `now_ns`. What is spoken for in time stays so, and nothing
  // overtakes what was stamped; credit is kept in bytes, as far as this burst goes.
  SLUICE_HD uint64_t carried(const DepartureRate& before, uint64_t word, uint64_t now_ns) const {
    if (unlimited()) return 0;
    const uint64_t now = units_at(now_ns);
    if (before.unlimited()) return now;
    // The earliest that the next packet could have gone: at or behind all that were stamped.
    const uint64_t next = word <= before.burst_units ? 0 : before.ns_at(word - before.burst_units);
    if (next > now_ns) return units_at(next) + burst_units;
    const uint64_t before_now = before.units_at(now_ns);
    const uint64_t spent = word > before_now ? word - before_now : 0;  // of the old burst; not more than it is
    const uint64_t credit = spent < before.burst_units ? (before.burst_units - spent) >> before.unit_bits : 0;
    const uint64_t burst = burst_units >> unit_bits;
    return now + ((burst - (credit < burst ? credit : burst)) << unit_bits);
  }

 private:
  static constexpr uint64_t kNsPerByte = 8'000'000'000;  // at 1 bit/s

  SLUICE_HD static uint64_t reciprocal(uint64_t a, uint64_t d) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) << 64) / d);
  }
  // ceil(x * a / d), where m = reciprocal(a, d).
  SLUICE_HD static uint64_t quotient_up(uint64_t x, uint64_t a, uint64_t d, uint64_t m) {
#if defined(__CUDA_ARCH__)
    uint64_t q = __umul64hi(x, m);
#else
    auto q = static_cast<uint64_t>(static_cast<unsigned __int128>(x) * m >> 64);
#endif
    uint64_t rest = x * a - q * d;
    if (rest >= d) {
      rest -= d;
      ++q;
    }
    return q + (rest != 0 ? 1 : 0);
  }
};
static_assert(std::is_trivially_copyable_v<DepartureRate> && sizeof(DepartureRate) == 64);

// Before a packet comes at `now_ns`: where the epoch is long ago it becomes `now_ns`, so that the word lasts for ever.
// What is spoken for stays so. Behind a gap of years the burst is whole again: at 1 kbit/s that takes 99 days at most.
inline void keep_epoch(DepartureRate& rate, uint64_t& word, uint64_t now_ns) {
  if (rate.unlimited() || rate.lasts(now_ns)) return;
  DepartureRate next = rate;
  next.epoch_ns = now_ns;
  const bool whole = now_ns - rate.epoch_ns > 8 * DepartureRate::kYearNs &&
                     (word <= rate.burst_units || rate.ns_at(word - rate.burst_units) <= now_ns);
  word = whole ? 0 : next.carried(rate, word, now_ns);
  rate = next;
}

// The departure of a packet that comes at `now_ns`, which is charged unless it is refused (kNever). One owner at a
// time.
SLUICE_HD uint64_t stamp(const DepartureRate& rate, uint64_t& word, uint64_t now_ns, uint32_t bytes) {
  if (rate.unlimited()) return now_ns;
  const uint64_t departure = rate.departure(word, now_ns);
  if (departure != DepartureRate::kNever) word = rate.charged(word, now_ns, bytes);
  return departure;
}

// The same for a word that many lanes, multiprocessors or threads share: what they get is what one owner would have
// given them in some order. Relaxed: the word orders nothing but itself.
SLUICE_HD uint64_t stamp_shared(const DepartureRate& rate, uint64_t* word, uint64_t now_ns, uint32_t bytes) {
  if (rate.unlimited()) return now_ns;
#if defined(__CUDA_ARCH__)
  unsigned long long seen = *reinterpret_cast<volatile unsigned long long*>(word);
  for (;;) {
    const uint64_t departure = rate.departure(seen, now_ns);
    if (departure == DepartureRate::kNever) return departure;
    const unsigned long long found =
        atomicCAS(reinterpret_cast<unsigned long long*>(word), seen, rate.charged(seen, now_ns, bytes));
    if (found == seen) return departure;
    seen = found;
  }
#else
  uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const uint64_t departure = rate.departure(seen, now_ns);
    if (departure == DepartureRate::kNever) return departure;
    if (__atomic_compare_exchange_n(word, &seen, rate.charged(seen, now_ns, bytes), true, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
      return departure;
  }
#endif
}

// A class inside a port: both are charged at arrival, and the later departure holds. Refused by one: by both, and
// neither is charged. One owner at a time.
SLUICE_HD uint64_t stamp_both(const DepartureRate& inner, uint64_t& inner_word, const DepartureRate& outer,
                              uint64_t& outer_word, uint64_t now_ns, uint32_t bytes) {
  const uint64_t first = inner.unlimited() ? now_ns : inner.departure(inner_word, now_ns);
  const uint64_t second = outer.unlimited() ? now_ns : outer.departure(outer_word, now_ns);
  if (first == DepartureRate::kNever || second == DepartureRate::kNever) return DepartureRate::kNever;
  if (!inner.unlimited()) inner_word = inner.charged(inner_word, now_ns, bytes);
  if (!outer.unlimited()) outer_word = outer.charged(outer_word, now_ns, bytes);
  return first < second ? second : first;
}

}  // namespace sluice
