// The vector kernels of tuple_space: one source of truth is tuple_hash4/6, the twins here must give the same bits.
#include "tables/acl/tuple_hash_lanes.h"
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

// Which of the hashes the filter lets pass, a bit each.
struct Filter8 : HashLanes8 {
  SLUICE_AVX2 static inline uint32_t passing(const Words& h, const TupleTable& t, const uint32_t* filter,
                                             uint32_t* hash) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(hash), h);
    const __m256i index = _mm256_srl_epi32(h, _mm_cvtsi32_si128(t.filter_shift));
    const __m256i word = _mm256_i32gather_epi32(reinterpret_cast<const int*>(filter + t.filter_base), index, 4);
    const __m256i a = _mm256_srlv_epi32(word, _mm256_and_si256(h, all(31)));
    const __m256i b = _mm256_srlv_epi32(word, _mm256_and_si256(_mm256_srli_epi32(h, 5), all(31)));
    // The tested bit goes to the sign, where movemask takes it.
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(a, b), 31);
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(sign)));
  }
};

struct Filter16 : HashLanes16 {
  SLUICE_AVX512 static inline uint32_t passing(const Words& h, const TupleTable& t, const uint32_t* filter,
                                               uint32_t* hash) {
    _mm512_store_si512(hash, h);
    const __m512i index = _mm512_srl_epi32(h, _mm_cvtsi32_si128(t.filter_shift));
    const __m512i word = _mm512_i32gather_epi32(index, filter + t.filter_base, 4);
    const __m512i a = _mm512_srlv_epi32(word, _mm512_and_si512(h, all(31)));
    const __m512i b = _mm512_srlv_epi32(word, _mm512_and_si512(_mm512_srli_epi32(h, 5), all(31)));
    return _mm512_test_epi32_mask(_mm512_and_si512(a, b), all(1));
  }
};

template <typename Isa, bool kWide>
__attribute__((always_inline)) inline uint32_t probe_of(const Lanes& lanes, size_t n, const TupleTable& t,
                                                        const uint32_t* filter, uint32_t* hash) {
  uint32_t mask = 0;
  for (size_t i = 0; i < n; i += Isa::kLanes) {
    typename Isa::Words h{};
    hash_lanes<Isa, kWide>(h, lanes, i, t);
    mask |= Isa::passing(h, t, filter, hash + i) << i;
  }
  return mask;
}

template <bool kWide>
SLUICE_AVX2 __attribute__((flatten)) uint32_t probe_avx2(const Lanes& lanes, size_t n, const TupleTable& t,
                                                         const uint32_t* filter, uint32_t* hash) {
  return probe_of<Filter8, kWide>(lanes, n, t, filter, hash);
}
template <bool kWide>
SLUICE_AVX512 __attribute__((flatten)) uint32_t probe_avx512(const Lanes& lanes, size_t n, const TupleTable& t,
                                                             const uint32_t* filter, uint32_t* hash) {
  return probe_of<Filter16, kWide>(lanes, n, t, filter, hash);
}

#endif

}  // namespace

Probe narrow_probe(AclIsa isa) {
#if defined(__x86_64__)
  if (isa == AclIsa::kAvx512) return probe_avx512<false>;
  if (isa == AclIsa::kAvx2) return probe_avx2<false>;
#endif
  (void)isa;
  return narrow_scalar;
}

Probe wide_probe(AclIsa isa) {
#if defined(__x86_64__)
  if (isa == AclIsa::kAvx512) return probe_avx512<true>;
  if (isa == AclIsa::kAvx2) return probe_avx2<true>;
#endif
  (void)isa;
  return wide_scalar;
}

}  // namespace sluice::tuple_space_detail
