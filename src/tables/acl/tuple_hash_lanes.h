// Internal to tuple_space and tuple_merge: the hash of a tuple's table for a vector of keys that stand in columns.
// host only
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>

#define SLUICE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,popcnt")))
#define SLUICE_AVX2 __attribute__((target("avx2,bmi,popcnt")))

namespace sluice {

// A word of each of 8 keys, or of 16: what the hash takes of an instruction set. By reference: a vector that a function
// without the instruction set passes on by value would be passed another way.
struct HashLanes8 {
  using Words = __m256i;
  static constexpr size_t kLanes = 8;

  SLUICE_AVX2 static inline __m256i all(uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
  SLUICE_AVX2 static inline __m256i load(const uint32_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  // tuple_step of the words that `mask` leaves.
  SLUICE_AVX2 static inline void step(Words& h, const uint32_t* words, uint32_t mask) {
    h = _mm256_mullo_epi32(_mm256_add_epi32(h, _mm256_and_si256(load(words), all(mask))), all(0x85ebca6bu));
    h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
  }
  // tuple_finish.
  SLUICE_AVX2 static inline void finish(Words& h, const uint32_t* ports, uint32_t port_mask, const uint32_t* protocol,
                                        uint32_t protocol_mask) {
    h = _mm256_add_epi32(h, _mm256_xor_si256(_mm256_and_si256(load(ports), all(port_mask)),
                                             _mm256_and_si256(load(protocol), all(protocol_mask))));
    h = _mm256_mullo_epi32(h, all(0xc2b2ae35u));
    h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 15));
  }
};

struct HashLanes16 {
  using Words = __m512i;
  static constexpr size_t kLanes = 16;

  SLUICE_AVX512 static inline __m512i all(uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
  SLUICE_AVX512 static inline __m512i load(const uint32_t* from) { return _mm512_load_si512(from); }
  SLUICE_AVX512 static inline void step(Words& h, const uint32_t* words, uint32_t mask) {
    h = _mm512_mullo_epi32(_mm512_add_epi32(h, _mm512_and_si512(load(words), all(mask))), all(0x85ebca6bu));
    h = _mm512_xor_si512(h, _mm512_srli_epi32(h, 16));
  }
  SLUICE_AVX512 static inline void finish(Words& h, const uint32_t* ports, uint32_t port_mask, const uint32_t* protocol,
                                          uint32_t protocol_mask) {
    h = _mm512_add_epi32(h, _mm512_xor_si512(_mm512_and_si512(load(ports), all(port_mask)),
                                             _mm512_and_si512(load(protocol), all(protocol_mask))));
    h = _mm512_mullo_epi32(h, all(0xc2b2ae35u));
    h = _mm512_xor_si512(h, _mm512_srli_epi32(h, 15));
  }
};

// The hashes for table `t` of the keys that stand at `i` in `lanes`, into `h`, which is 0. It becomes part of a
// function that has the instruction set.
template <typename Isa, bool kWide, typename Lanes, typename Table>
__attribute__((always_inline)) inline void hash_lanes(typename Isa::Words& h, const Lanes& lanes, size_t i,
                                                      const Table& t) {
  if constexpr (kWide) {
    for (unsigned w = 0; w < 8; ++w) {
      if ((t.words >> w & 1) != 0) Isa::step(h, &lanes.word[w][i], w < 4 ? t.src_mask[w] : t.dst_mask[w - 4]);
    }
  } else {
    Isa::step(h, &lanes.word[3][i], t.src_mask[3]);
    Isa::step(h, &lanes.word[7][i], t.dst_mask[3]);
  }
  Isa::finish(h, &lanes.ports[i], t.port_mask, &lanes.protocol[i], t.protocol_mask);
}

}  // namespace sluice

#endif
