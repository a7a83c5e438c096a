// The vector kernels of tuple_space: one source of truth is tuple_hash4/6, the twins here must give the same bits.
#include "tables/acl/tuple_space_lanes.h"

#include "base/intrinsics.h"

namespace sluice::tuple_space_detail {
namespace {

uint32_t narrow_scalar(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter, uint32_t* hash) {
  uint32_t mask = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t h = tuple_hash4(t, lanes.word[3][i], lanes.word[7][i], lanes.ports[i], lanes.protocol[i]);
    hash[i] = h;
    mask |= uint32_t{tuple_filter_passes(filter[t.filter_base + (uint64_t{h} >> t.filter_shift)], h)} << i;
  }
  return mask;
}

uint32_t wide_scalar(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter, uint32_t* hash) {
  uint32_t mask = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t words[8];
    for (size_t w = 0; w < 8; ++w) words[w] = lanes.word[w][i];
    const uint32_t h = tuple_hash6(t, words, lanes.ports[i], lanes.protocol[i]);
    hash[i] = h;
    mask |= uint32_t{tuple_filter_passes(filter[t.filter_base + (uint64_t{h} >> t.filter_shift)], h)} << i;
  }
  return mask;
}

#if defined(__x86_64__)

#define SLUICE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define SLUICE_AVX2 __attribute__((target("avx2")))

SLUICE_AVX512 inline __m512i step512(__m512i h, __m512i word) {
  h = _mm512_mullo_epi32(_mm512_add_epi32(h, word), _mm512_set1_epi32(static_cast<int>(0x85ebca6bu)));
  return _mm512_xor_si512(h, _mm512_srli_epi32(h, 16));
}

SLUICE_AVX512 inline uint32_t finish512(__m512i h, const Lanes& lanes, size_t i, const TupleTable& t,
                                        const uint32_t* filter, uint32_t* hash) {
  const __m512i ports =
      _mm512_and_si512(_mm512_load_si512(&lanes.ports[i]), _mm512_set1_epi32(static_cast<int>(t.port_mask)));
  const __m512i protocol =
      _mm512_and_si512(_mm512_load_si512(&lanes.protocol[i]), _mm512_set1_epi32(static_cast<int>(t.protocol_mask)));
  h = _mm512_add_epi32(h, _mm512_xor_si512(ports, protocol));
  h = _mm512_mullo_epi32(h, _mm512_set1_epi32(static_cast<int>(0xc2b2ae35u)));
  h = _mm512_xor_si512(h, _mm512_srli_epi32(h, 15));
  _mm512_store_si512(hash + i, h);
  const __m512i index = _mm512_srl_epi32(h, _mm_cvtsi32_si128(t.filter_shift));
  const __m512i word = _mm512_i32gather_epi32(index, filter + t.filter_base, 4);
  const __m512i low5 = _mm512_set1_epi32(31);
  const __m512i a = _mm512_srlv_epi32(word, _mm512_and_si512(h, low5));
  const __m512i b = _mm512_srlv_epi32(word, _mm512_and_si512(_mm512_srli_epi32(h, 5), low5));
  return _mm512_test_epi32_mask(_mm512_and_si512(a, b), _mm512_set1_epi32(1));
}

SLUICE_AVX512 uint32_t narrow_avx512(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter,
                                     uint32_t* hash) {
  const __m512i src = _mm512_set1_epi32(static_cast<int>(t.src_mask[3]));
  const __m512i dst = _mm512_set1_epi32(static_cast<int>(t.dst_mask[3]));
  uint32_t mask = 0;
  for (size_t i = 0; i < n; i += 16) {
    __m512i h = step512(_mm512_setzero_si512(), _mm512_and_si512(_mm512_load_si512(&lanes.word[3][i]), src));
    h = step512(h, _mm512_and_si512(_mm512_load_si512(&lanes.word[7][i]), dst));
    mask |= finish512(h, lanes, i, t, filter, hash) << i;
  }
  return mask;
}

SLUICE_AVX512 uint32_t wide_avx512(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter,
                                   uint32_t* hash) {
  uint32_t mask = 0;
  for (size_t i = 0; i < n; i += 16) {
    __m512i h = _mm512_setzero_si512();
    for (unsigned w = 0; w < 8; ++w) {
      if ((t.words >> w & 1) == 0) continue;
      const uint32_t m = w < 4 ? t.src_mask[w] : t.dst_mask[w - 4];
      h = step512(h, _mm512_and_si512(_mm512_load_si512(&lanes.word[w][i]), _mm512_set1_epi32(static_cast<int>(m))));
    }
    mask |= finish512(h, lanes, i, t, filter, hash) << i;
  }
  return mask;
}

SLUICE_AVX2 inline __m256i load256(const uint32_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

SLUICE_AVX2 inline __m256i step256(__m256i h, __m256i word) {
  h = _mm256_mullo_epi32(_mm256_add_epi32(h, word), _mm256_set1_epi32(static_cast<int>(0x85ebca6bu)));
  return _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
}

SLUICE_AVX2 inline uint32_t finish256(__m256i h, const Lanes& lanes, size_t i, const TupleTable& t,
                                      const uint32_t* filter, uint32_t* hash) {
  const __m256i ports = _mm256_and_si256(load256(&lanes.ports[i]), _mm256_set1_epi32(static_cast<int>(t.port_mask)));
  const __m256i protocol =
      _mm256_and_si256(load256(&lanes.protocol[i]), _mm256_set1_epi32(static_cast<int>(t.protocol_mask)));
  h = _mm256_add_epi32(h, _mm256_xor_si256(ports, protocol));
  h = _mm256_mullo_epi32(h, _mm256_set1_epi32(static_cast<int>(0xc2b2ae35u)));
  h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 15));
  _mm256_store_si256(reinterpret_cast<__m256i*>(hash + i), h);
  const __m256i index = _mm256_srl_epi32(h, _mm_cvtsi32_si128(t.filter_shift));
  const __m256i word = _mm256_i32gather_epi32(reinterpret_cast<const int*>(filter + t.filter_base), index, 4);
  const __m256i low5 = _mm256_set1_epi32(31);
  const __m256i a = _mm256_srlv_epi32(word, _mm256_and_si256(h, low5));
  const __m256i b = _mm256_srlv_epi32(word, _mm256_and_si256(_mm256_srli_epi32(h, 5), low5));
  // The tested bit goes to the sign, where movemask takes it.
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(a, b), 31);
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(sign)));
}

SLUICE_AVX2 uint32_t narrow_avx2(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter,
                                 uint32_t* hash) {
  const __m256i src = _mm256_set1_epi32(static_cast<int>(t.src_mask[3]));
  const __m256i dst = _mm256_set1_epi32(static_cast<int>(t.dst_mask[3]));
  uint32_t mask = 0;
  for (size_t i = 0; i < n; i += 8) {
    __m256i h = step256(_mm256_setzero_si256(), _mm256_and_si256(load256(&lanes.word[3][i]), src));
    h = step256(h, _mm256_and_si256(load256(&lanes.word[7][i]), dst));
    mask |= finish256(h, lanes, i, t, filter, hash) << i;
  }
  return mask;
}

SLUICE_AVX2 uint32_t wide_avx2(const Lanes& lanes, size_t n, const TupleTable& t, const uint32_t* filter,
                               uint32_t* hash) {
  uint32_t mask = 0;
  for (size_t i = 0; i < n; i += 8) {
    __m256i h = _mm256_setzero_si256();
    for (unsigned w = 0; w < 8; ++w) {
      if ((t.words >> w & 1) == 0) continue;
      const uint32_t m = w < 4 ? t.src_mask[w] : t.dst_mask[w - 4];
      h = step256(h, _mm256_and_si256(load256(&lanes.word[w][i]), _mm256_set1_epi32(static_cast<int>(m))));
    }
    mask |= finish256(h, lanes, i, t, filter, hash) << i;
  }
  return mask;
}

#endif

}  // namespace

Probe narrow_probe(AclIsa isa) {
#if defined(__x86_64__)
  if (isa == AclIsa::kAvx512) return narrow_avx512;
  if (isa == AclIsa::kAvx2) return narrow_avx2;
#endif
  (void)isa;
  return narrow_scalar;
}

Probe wide_probe(AclIsa isa) {
#if defined(__x86_64__)
  if (isa == AclIsa::kAvx512) return wide_avx512;
  if (isa == AclIsa::kAvx2) return wide_avx2;
#endif
  (void)isa;
  return wide_scalar;
}

}  // namespace sluice::tuple_space_detail
