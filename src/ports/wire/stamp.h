// host only
// What a generator writes into the payload of its frames, so that a receiver knows them again, each from each other and
// from all other traffic:
//
//   bytes 0..7    sequence number, big-endian, from 0
//         8..13   time of sending, big-endian: nanoseconds of the sender's monotonic clock, modulo 2^48 (78 hours)
//         14..17  check: of the stream's key and all before
//
// 18 bytes, which is the payload of the smallest frame: 64 with FCS, Ethernet, IPv4 and UDP. The key names the stream
// and is no part of the frame: of frames that are not of the stream one in 2^32 is taken for one.
#pragma once

#include <bit>
#include <cstdint>

#include "net/bytes.h"

namespace sluice {

struct WireStamp {
  static constexpr uint32_t kBytes = 18;
  static constexpr uint64_t kTimeMask = (uint64_t{1} << 48) - 1;

  uint64_t sequence = 0;
  uint64_t sent_ns = 0;  // of kTimeMask

  // Nanoseconds on the way of what arrives at `now_ns`; 0 where the clock reads less.
  uint64_t age_ns(uint64_t now_ns) const {
    const uint64_t age = (now_ns - sent_ns) & kTimeMask;
    return age > kTimeMask / 2 ? 0 : age;
  }

  void write(uint8_t* at, uint64_t key) const {
    store_be64(at, sequence);
    const uint64_t time = sent_ns & kTimeMask;
    store_be16(at + 8, static_cast<uint16_t>(time >> 32));
    store_be32(at + 10, static_cast<uint32_t>(time));
    store_be32(at + 14, check(key));
  }
  // Whether kBytes at `at` are a stamp of this stream.
  bool read(const uint8_t* at, uint64_t key) {
    sequence = load_be64(at);
    sent_ns = uint64_t{load_be16(at + 8)} << 32 | load_be32(at + 10);
    return load_be32(at + 14) == check(key);
  }

 private:
  uint32_t check(uint64_t key) const {
    // Two rounds of multiply and fold: every bit of the three reaches the upper half.
    uint64_t x = (key ^ sequence) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32 ^ (sent_ns & kTimeMask)) * 0xd6e8feb86659fd93u;
    return static_cast<uint32_t>((x ^ x >> 29) * 0xd6e8feb86659fd93u >> 32);
  }
};

}  // namespace sluice
