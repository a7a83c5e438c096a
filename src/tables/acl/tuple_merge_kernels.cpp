// The vector kernels of tuple_merge. The scalar ones are the code that lookup() runs; the others must give the same.
#include <algorithm>
#include <bit>
#include <iterator>
#include <type_traits>
#include <utility>

#include "tables/acl/tuple_hash_lanes.h"
#include "tables/acl/tuple_merge_lanes.h"

#include "base/intrinsics.h"

namespace sluice {
namespace {

using K = TupleMergeKernels;

TupleMergeView::Probe probe_at(const K::Lanes& lanes, size_t i) {
  TupleMergeView::Probe p;
  for (size_t w = 0; w < 8; ++w) p.word[w] = lanes.word[w][i];
  p.ports = lanes.ports[i];
  p.protocol = lanes.protocol[i];
  p.fields = lanes.fields[i];
  return p;
}

template <bool kWide>
void probe_scalar(const TupleMergeView& view, const K::Lanes& lanes, size_t n, const TupleMergeTable& t,
                  K::Candidates& out) {
  for (size_t i = 0; i < n; ++i) {
    if (t.best >= lanes.best[i]) continue;
    const uint32_t block = view.block_of<kWide>(t, probe_at(lanes, i));
    out.block[out.count] = block - 1;
    out.lane[out.count] = static_cast<uint32_t>(i);
    out.count += block != 0;
  }
}

template <bool kWide>
void verify_scalar(const TupleMergeView& view, K::Lanes& lanes, const K::Candidates& candidates) {
  for (size_t c = 0; c < candidates.count; ++c) {
    const uint32_t lane = candidates.lane[c];
    lanes.best[lane] =
        view.scan<kWide>(candidates.block[c], probe_at(lanes, lane), lanes.key_of(lane), lanes.best[lane]);
  }
}

template <bool kWide>
void loose_scalar(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  const TupleMergeLoose* loose = K::loose_begin(view, kWide);
  const uint32_t count = K::loose_count(view, kWide);
  for (size_t i = 0; i < n; ++i) {
    const auto p = probe_at(lanes, i);
    const FlowKey key = lanes.key_of(i);
    for (uint32_t l = 0; l < count && lanes.best[i] == kMergeNone; ++l) {
      if (view.loose_matches<kWide>(loose[l], p, key)) lanes.best[i] = loose[l].rule & kMergeNone;
    }
  }
}

void bitmap_scalar(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  for (size_t i = 0; i < n; ++i) lanes.best[i] = view.loose_by_bitmap(probe_at(lanes, i), lanes.key_of(i));
}

// to[i] = f(from[i]...) of all 32 places, whatever they hold, as vectors: no two columns overlap.
template <typename F, typename To, typename... From>
inline void each_place(F f, To* __restrict to, const From* __restrict... from) {
  for (size_t i = 0; i < 32; ++i) to[i] = f(from[i]...);
}
// Keys in columns as lanes.
template <bool kWide>
inline void fill_columns(K::Lanes& lanes, const KeyColumns& keys, size_t n) {
  lanes.columns = &keys;
  const auto same = [](uint32_t v) { return v; };
  if constexpr (kWide) {
    const uint64_t* const halves[4] = {keys.source_high, keys.source_low, keys.destination_high, keys.destination_low};
    for (size_t h = 0; h < 4; ++h) {
      each_place([](uint64_t v) { return static_cast<uint32_t>(v >> 32); }, lanes.word[2 * h], halves[h]);
      each_place([](uint64_t v) { return static_cast<uint32_t>(v); }, lanes.word[2 * h + 1], halves[h]);
    }
  } else {
    each_place(same, lanes.word[3], keys.source);
    each_place(same, lanes.word[7], keys.destination);
    each_place([](uint32_t source, uint32_t destination) { return uint64_t{destination} << 32 | source; }, lanes.pair,
               keys.source, keys.destination);
  }
  // merge_ports and merge_fields of what unpack_key4 makes of them.
  static_assert(FlowKey::kHasPorts == 1);
  each_place([](uint32_t ports,
                uint32_t rest) { return (ports >> 16 | ports << 16) & (0u - (rest >> 22 & FlowKey::kHasPorts)); },
             lanes.ports, keys.ports, keys.rest);
  each_place(
      [](uint32_t rest) {
        const uint32_t top = kWide ? 6u : rest >> 16 & 63u;
        return (rest >> 22 & 7u) | (rest & 0xff00u) | (rest & 255u) << 16 | top << 24;
      },
      lanes.fields, keys.rest);
  each_place([](uint32_t rest) { return (rest & 255u) * kTupleProtocolFactor; }, lanes.protocol, keys.rest);
  for (uint32_t& best : lanes.best) best = kMergeNone;
  for (size_t i = n; i < 32; ++i) lanes.best[i] = 0;
}
template <bool kWide>
void fill_columns_scalar(K::Lanes& lanes, const KeyColumns& keys, size_t n) {
  fill_columns<kWide>(lanes, keys, n);
}

#if defined(__x86_64__)

template <bool kWide>
SLUICE_AVX2 __attribute__((flatten)) void fill_columns_avx2(K::Lanes& lanes, const KeyColumns& keys, size_t n) {
  fill_columns<kWide>(lanes, keys, n);
}
template <bool kWide>
SLUICE_AVX512 __attribute__((flatten)) void fill_columns_avx512(K::Lanes& lanes, const KeyColumns& keys, size_t n) {
  fill_columns<kWide>(lanes, keys, n);
}

// Four keys at a time: their last three words of 64 bits (destination, ports and fields, family and the rest) become
// columns by a transposition, which is a third of the work of taking them one by one.
SLUICE_AVX2 bool fill_avx2(K::Lanes& lanes, const FlowKey* const* keys, size_t n) {
  static_assert(offsetof(FlowKey, src_lo) == 8 && offsetof(FlowKey, dst_hi) == 16 && offsetof(FlowKey, dst_lo) == 24 &&
                offsetof(FlowKey, src_port) == 32 && offsetof(FlowKey, flags) == 36 &&
                offsetof(FlowKey, family) == 40 && offsetof(FlowKey, bits) == 41);
  static constexpr FlowKey kZeros{.family = 4};
  const __m256i low = _mm256_set1_epi64x(0xffffffff), family = _mm256_set1_epi64x(4);
  const __m256i byte = _mm256_set1_epi64x(255), fields = _mm256_set1_epi64x(0xffffff00);
  const __m256i evens = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  const auto narrowed = [&](__m256i words) __attribute__((target("avx2"), always_inline)) {
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(words, evens));
  };
  __m256i other = _mm256_setzero_si256();
  size_t i = 0;
  for (; i < n; i += 4) {
    const FlowKey* four[4] = {keys[i], &kZeros, &kZeros, &kZeros};
    if (i + 4 <= n) [[likely]] {
      for (size_t k = 1; k < 4; ++k) four[k] = keys[i + k];
    } else {
      for (size_t k = 1; i + k < n; ++k) four[k] = keys[i + k];
    }
    const auto half = [&](size_t k) __attribute__((target("avx2"), always_inline)) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&four[k]->dst_hi));
    };
    const auto source = [&](size_t k) __attribute__((target("avx2"), always_inline)) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&four[k]->src_lo));
    };
    const __m256i a = half(0), b = half(1), c = half(2), d = half(3);
    const __m256i odd01 = _mm256_unpackhi_epi64(a, b), odd23 = _mm256_unpackhi_epi64(c, d);
    const __m256i even01 = _mm256_unpacklo_epi64(a, b), even23 = _mm256_unpacklo_epi64(c, d);
    const __m256i destination = _mm256_permute2x128_si256(odd01, odd23, 0x20);
    const __m256i rest = _mm256_permute2x128_si256(odd01, odd23, 0x31);
    const __m256i l4 = _mm256_permute2x128_si256(even01, even23, 0x31);
    const __m256i from = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(source(0), source(1))),
                                                 _mm_unpacklo_epi64(source(2), source(3)), 1);
    const __m256i pair = _mm256_or_si256(_mm256_slli_epi64(destination, 32), _mm256_and_si256(from, low));
    _mm256_store_si256(reinterpret_cast<__m256i*>(&lanes.pair[i]), pair);
    const auto put = [&](uint32_t * to, __m256i words) __attribute__((target("avx2"), always_inline)) {
      _mm_store_si128(reinterpret_cast<__m128i*>(to + i), narrowed(words));
    };
    const __m256i high = _mm256_srli_epi64(l4, 32);
    put(lanes.word[3], from);
    put(lanes.word[7], destination);
    put(lanes.ports, l4);
    put(lanes.fields,
        _mm256_or_si256(_mm256_and_si256(high, fields), _mm256_and_si256(_mm256_srli_epi64(rest, 8), byte)));
    put(lanes.protocol, _mm256_mul_epu32(_mm256_and_si256(_mm256_srli_epi64(high, 16), byte),
                                         _mm256_set1_epi64x(kTupleProtocolFactor)));
    _mm_store_si128(reinterpret_cast<__m128i*>(&lanes.best[i]), _mm_set1_epi32(kMergeNone));
    other = _mm256_or_si256(other, _mm256_and_si256(_mm256_xor_si256(rest, family), byte));
    for (size_t k = 0; k < 4; ++k) lanes.key[i + k] = four[k];
  }
  const __m256i zero = _mm256_setzero_si256();
  for (; i < 32; i += 4) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(&lanes.pair[i]), zero);
    for (uint32_t* column : {lanes.word[3], lanes.word[7], lanes.ports, lanes.fields, lanes.protocol, lanes.best})
      _mm_store_si128(reinterpret_cast<__m128i*>(column + i), _mm256_castsi256_si128(zero));
    for (size_t k = 0; k < 4; ++k) lanes.key[i + k] = &kZeros;
  }
  for (size_t k = n; k % 4 != 0; ++k) lanes.best[k] = 0;
  return _mm256_testz_si256(other, other) != 0;
}

// Eight packets at a time. A row of one part is 16 bytes, so wider vectors would gain nothing.
void bitmap_one_part(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  constexpr size_t kStep = 8;
  const TupleMergeBitmap& bitmap = view.bitmap();
  const uint32_t* const columns[4] = {lanes.word[3], lanes.word[7], lanes.ports, lanes.fields};
  for (size_t first = 0; first < n; first += kStep) {
    __m128i left[kStep];
    std::fill(std::begin(left), std::end(left), _mm_set1_epi32(-1));
    const TupleMergeBitmap::Row* rows = bitmap.rows();
    for (uint32_t i = 0; i < bitmap.count; ++i, rows += 256) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(columns[bitmap.at[i] >> 2] + first) + (bitmap.at[i] & 3);
      // Unrolled by hand, or the compiler keeps `left` in memory.
      [&]<size_t... k>(std::index_sequence<k...>) {
        ((left[k] = _mm_and_si128(left[k], _mm_load_si128(reinterpret_cast<const __m128i*>(rows + bytes[4 * k])))),
         ...);
      }
      (std::make_index_sequence<kStep>{});
    }
    for (size_t k = 0; k < kStep; ++k) {
      TupleMergeBitmap::Row row;
      _mm_store_si128(reinterpret_cast<__m128i*>(&row), left[k]);
      const int low = std::countr_zero(row.rules[0]), high = 64 + std::countr_zero(row.rules[1]);
      const uint32_t word = bitmap.rule[row.rules[0] != 0 ? low : high];  // none: past the rules
      const size_t lane = first + k;
      if (lane >= n) break;
      lanes.best[lane] = (word & kMergeFull) == 0 ? word & kMergeNone
                                                  : view.first_of<1>(row, 0, probe_at(lanes, lane), lanes.key_of(lane));
    }
  }
}

// The first rule of four parts, asked in full, or kMergeNone.
__attribute__((noinline)) uint32_t first_in_full(const TupleMergeView& view, const TupleMergeBitmap::Row* left,
                                                 const K::Lanes& lanes, size_t lane) {
  for (uint32_t part = 0; part < TupleMergeBitmap::kMaxParts; ++part) {
    const uint32_t rule =
        view.first_of<TupleMergeBitmap::kMaxParts>(left[part], part, probe_at(lanes, lane), lanes.key_of(lane));
    if (rule != kMergeNone) return rule;
  }
  return kMergeNone;
}

// The word of the first rule of four parts, whose words `some` are not zero (bit by bit), the first of them `first`.
inline uint32_t first_word(const uint32_t* words, uint32_t some, uint64_t first) {
  return words[64 * static_cast<uint32_t>(std::countr_zero(some | 0x80u)) +
               static_cast<uint32_t>(std::countr_zero(first))];  // none: 512
}

SLUICE_AVX512 void bitmap_avx512(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  constexpr size_t kStep = 8;
  const TupleMergeBitmap& bitmap = view.bitmap();
  if (bitmap.parts == 1) return bitmap_one_part(view, lanes, n);
  const uint32_t* const columns[4] = {lanes.word[3], lanes.word[7], lanes.ports, lanes.fields};
  for (size_t first = 0; first < n; first += kStep) {
    __m512i left[kStep];
    std::fill(std::begin(left), std::end(left), _mm512_set1_epi32(-1));
    const auto* rows = reinterpret_cast<const __m512i*>(bitmap.rows());
    for (uint32_t i = 0; i < bitmap.count; ++i, rows += 256) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(columns[bitmap.at[i] >> 2] + first) + (bitmap.at[i] & 3);
      [&]<size_t... k>(std::index_sequence<k...>) __attribute__((target("avx512f"), always_inline)) {
        ((left[k] = _mm512_and_si512(left[k], _mm512_load_si512(rows + bytes[4 * k]))), ...);
      }
      (std::make_index_sequence<kStep>{});
    }
    for (size_t k = 0; k < kStep && first + k < n; ++k) {
      const __mmask8 some = _mm512_test_epi64_mask(left[k], left[k]);
      const __m512i packed = _mm512_maskz_compress_epi64(some, left[k]);
      const auto first_some = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(packed)));
      const uint32_t word = first_word(bitmap.words(), some, first_some);
      if ((word & kMergeFull) == 0) [[likely]] {
        lanes.best[first + k] = word & kMergeNone;
      } else {
        TupleMergeBitmap::Row row[TupleMergeBitmap::kMaxParts];
        _mm512_storeu_si512(row, left[k]);
        lanes.best[first + k] = first_in_full(view, row, lanes, first + k);
      }
    }
  }
}

SLUICE_AVX2 void bitmap_avx2(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  constexpr size_t kStep = 4;
  const TupleMergeBitmap& bitmap = view.bitmap();
  if (bitmap.parts == 1) return bitmap_one_part(view, lanes, n);
  const uint32_t* const columns[4] = {lanes.word[3], lanes.word[7], lanes.ports, lanes.fields};
  for (size_t first = 0; first < n; first += kStep) {
    __m256i left[2 * kStep];
    std::fill(std::begin(left), std::end(left), _mm256_set1_epi32(-1));
    const auto* rows = reinterpret_cast<const __m256i*>(bitmap.rows());
    for (uint32_t i = 0; i < bitmap.count; ++i, rows += 512) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(columns[bitmap.at[i] >> 2] + first) + (bitmap.at[i] & 3);
      [&]<size_t... h>(std::index_sequence<h...>) __attribute__((target("avx2"), always_inline)) {
        ((left[h] = _mm256_and_si256(left[h], _mm256_load_si256(rows + 2 * bytes[4 * (h / 2)] + h % 2))), ...);
      }
      (std::make_index_sequence<2 * kStep>{});
    }
    for (size_t k = 0; k < kStep && first + k < n; ++k) {
      TupleMergeBitmap::Row row[TupleMergeBitmap::kMaxParts];
      unsigned none = 0;
      for (size_t h = 0; h < 2; ++h) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row) + h, left[2 * k + h]);
        const __m256i zero = _mm256_cmpeq_epi64(left[2 * k + h], _mm256_setzero_si256());
        none |= static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(zero))) << 4 * h;
      }
      const unsigned some = ~none & 255;
      const auto w = static_cast<unsigned>(std::countr_zero(some | 0x80u));
      const uint32_t word = first_word(bitmap.words(), some, row[w / 2].rules[w % 2]);
      lanes.best[first + k] = (word & kMergeFull) == 0 ? word & kMergeNone : first_in_full(view, row, lanes, first + k);
    }
  }
}

// The first rule of a block among the lanes of `mask`, its full conditions included, or kMergeNone.
inline uint32_t first_match(const TupleMergeView& view, const uint32_t* rule, uint32_t mask, const K::Lanes& lanes,
                            size_t lane) {
  const uint32_t word = rule[std::countr_zero(mask | 0x80u)];
  if (((word & kMergeFull) != 0) & (mask != 0)) [[unlikely]] {
    const FlowKey key = lanes.key_of(lane);
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t w = rule[std::countr_zero(mask)];
      if (K::full(view, w & ~kMergeMore, key)) return w & kMergeNone;
    }
    return kMergeNone;
  }
  return mask != 0 ? word & kMergeNone : kMergeNone;
}

SLUICE_AVX512 inline __m512i all512(uint32_t v) {
  return _mm512_set1_epi32(static_cast<int>(v));
}
template <bool kWide>
SLUICE_AVX512 __attribute__((flatten)) void probe_avx512(const TupleMergeView& view, const K::Lanes& lanes, size_t n,
                                                         const TupleMergeTable& t, K::Candidates& out) {
  const uint32_t* const slots = K::slots(view) + t.slot_base;
  const __m128i shift = _mm_cvtsi32_si128(t.slot_shift);
  size_t count = out.count;
  for (size_t i = 0; i < n; i += 16) {
    __m512i h = _mm512_setzero_si512();
    hash_lanes<HashLanes16, kWide>(h, lanes, i, t);
    const __m512i slot = _mm512_i32gather_epi32(_mm512_srl_epi32(h, shift), slots, 4);
    const __mmask16 open = _mm512_cmplt_epu32_mask(all512(t.best), _mm512_load_si512(&lanes.best[i]));
    const __mmask16 used = _mm512_mask_test_epi32_mask(open, slot, slot);
    const __m512i low = all512(255);
    const __m512i tag = _mm512_max_epu32(_mm512_and_si512(h, low), all512(1));
    // A tag of the key's own, or none.
    const __mmask16 own = _mm512_mask_testn_epi32_mask(used, _mm512_xor_si512(slot, tag), low);
    const __mmask16 any = _mm512_mask_testn_epi32_mask(used, slot, low);
    const auto take = static_cast<__mmask16>(own | any);
    const __m512i block = _mm512_sub_epi32(_mm512_srli_epi32(slot, 8), all512(1));
    const __m512i lane = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                          all512(static_cast<uint32_t>(i)));
    _mm512_storeu_si512(out.block + count, _mm512_maskz_compress_epi32(take, block));
    _mm512_storeu_si512(out.lane + count, _mm512_maskz_compress_epi32(take, lane));
    count += static_cast<size_t>(_mm_popcnt_u32(take));
  }
  out.count = count;
}

SLUICE_AVX512 inline __m256i load8(const uint32_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

// A lane's addresses as blocks are compared with them.
struct Addresses4 {
  __m512i pair;
};
struct Addresses6 {
  uint64_t halves[4];
};
SLUICE_AVX512 inline void take_addresses(const K::Lanes& lanes, size_t lane, Addresses4& to) {
  to.pair = _mm512_set1_epi64(static_cast<int64_t>(lanes.pair[lane]));
}
inline void take_addresses(const K::Lanes& lanes, size_t lane, Addresses6& to) {
  for (size_t h = 0; h < 4; ++h) to.halves[h] = uint64_t{lanes.word[2 * h][lane]} << 32 | lanes.word[2 * h + 1][lane];
}
// The rules of a block whose prefixes cover them, a bit each.
SLUICE_AVX512 inline __mmask8 near512(const TupleMergeBlock4& block, const Addresses4& addresses) {
  const __m512i free = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(block.free)));
  const __m512i x = _mm512_srlv_epi32(_mm512_xor_si512(addresses.pair, _mm512_load_si512(block.address)), free);
  return _mm512_testn_epi64_mask(x, x);
}
SLUICE_AVX512 inline __mmask8 near512(const TupleMergeBlock6& block, const Addresses6& addresses) {
  __m512i x = _mm512_setzero_si512();
  for (size_t h = 0; h < 4; ++h) {
    const __m512i free = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block.free[h])));
    const __m512i d = _mm512_xor_si512(_mm512_set1_epi64(static_cast<int64_t>(addresses.halves[h])),
                                       _mm512_load_si512(block.address[h]));
    x = _mm512_or_si512(x, _mm512_srlv_epi64(d, free));
  }
  return _mm512_testn_epi64_mask(x, x);
}

template <bool kWide>
SLUICE_AVX512 void verify_avx512(const TupleMergeView& view, K::Lanes& lanes, const K::Candidates& candidates) {
  const auto* const blocks = K::blocks<kWide>(view);
  for (size_t c = 0; c < candidates.count; ++c) {
    const uint32_t lane = candidates.lane[c];
    std::conditional_t<kWide, Addresses6, Addresses4> addresses;
    take_addresses(lanes, lane, addresses);
    const __m256i ports = _mm256_set1_epi32(static_cast<int>(lanes.ports[lane]));
    const __m256i fields = _mm256_set1_epi32(static_cast<int>(lanes.fields[lane]));
    const auto* block = blocks + candidates.block[c];
    uint32_t best = lanes.best[lane];
    for (;;) {
      const __mmask8 near = near512(*block, addresses);
      const __m256i past =
          _mm256_subs_epu16(_mm256_sub_epi16(ports, load8(block->ports_low)), load8(block->ports_span));
      const __m256i differs = _mm256_ternarylogic_epi32(past, _mm256_xor_si256(fields, load8(block->fields)),
                                                        load8(block->fields_mask), 0xf8);  // a | (b & c)
      const __mmask8 match = _mm256_mask_testn_epi32_mask(near, differs, differs);
      const uint32_t found = first_match(view, block->rule, match, lanes, lane);
      best = std::min(best, found);
      if ((block->rule[kMergeLanes - 1] & kMergeMore) == 0) break;
      ++block;
      if ((block->rule[0] & kMergeNone) >= best) break;
    }
    lanes.best[lane] = best;
  }
}

// The lanes of `m` whose rule, asked in full, matches too.
template <size_t kHalves>
void ask_in_full(const TupleMergeView& view, const K::Lanes& lanes, size_t n, uint32_t word, uint32_t (&m)[kHalves]) {
  for (size_t half = 0; half < kHalves; ++half) {
    for (uint32_t rest = m[half]; rest != 0; rest &= rest - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(rest));
      const size_t lane = 16 * half + bit;
      if (lane >= n || !K::full(view, word, lanes.key_of(lane))) m[half] &= ~(1u << bit);
    }
  }
}

// kHalves vectors of 16 lanes at once, so that what a rule costs is shared.
template <bool kWide, size_t kHalves>
SLUICE_AVX512 void loose_halves(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  const TupleMergeLoose* const begin = K::loose_begin(view, kWide);
  const TupleMergeLoose* const end = begin + K::loose_count(view, kWide);
  __m512i src[kHalves], dst[kHalves], ports[kHalves], fields[kHalves], best[kHalves];
  for (size_t h = 0; h < kHalves; ++h) {
    src[h] = _mm512_load_si512(&lanes.word[3][16 * h]);
    dst[h] = _mm512_load_si512(&lanes.word[7][16 * h]);
    ports[h] = _mm512_load_si512(&lanes.ports[16 * h]);
    fields[h] = _mm512_load_si512(&lanes.fields[16 * h]);
    best[h] = _mm512_load_si512(&lanes.best[16 * h]);
  }
  for (const TupleMergeLoose* l = begin; l != end; ++l) {
    __m512i differs[kHalves];
    for (size_t h = 0; h < kHalves; ++h) differs[h] = _mm512_setzero_si512();
    // differs |= (value ^ v) & mask
    auto add = [&](size_t h, __m512i v, uint32_t value, uint32_t mask) SLUICE_AVX512 {
      differs[h] =
          _mm512_ternarylogic_epi32(differs[h], _mm512_xor_si512(v, all512(value)), all512(mask), 0xf8);  // a | (b & c)
    };
    if constexpr (kWide) {
      for (unsigned w = 0; w < 8; ++w) {
        if ((l->words >> w & 1) == 0) continue;
        for (size_t h = 0; h < kHalves; ++h) add(h, _mm512_load_si512(&lanes.word[w][16 * h]), l->value[w], l->mask[w]);
      }
    } else {
      if ((l->words & 1u << 3) != 0) {
        for (size_t h = 0; h < kHalves; ++h) add(h, src[h], l->value[3], l->mask[3]);
      }
      if ((l->words & 1u << 7) != 0) {
        for (size_t h = 0; h < kHalves; ++h) add(h, dst[h], l->value[7], l->mask[7]);
      }
    }
    if ((l->words & TupleMergeLoose::kFields) != 0) {
      for (size_t h = 0; h < kHalves; ++h) add(h, fields[h], l->fields, l->fields_mask);
    }
    if ((l->words & TupleMergeLoose::kPorts) != 0) {
      for (size_t h = 0; h < kHalves; ++h) {
        differs[h] = _mm512_or_si512(
            differs[h], _mm512_subs_epu16(_mm512_sub_epi16(ports[h], all512(l->ports_low)), all512(l->ports_span)));
      }
    }
    uint32_t m[kHalves];
    for (size_t h = 0; h < kHalves; ++h) m[h] = _mm512_testn_epi32_mask(differs[h], differs[h]);
    if ((l->rule & kMergeFull) != 0) [[unlikely]]
      ask_in_full(view, lanes, n, l->rule, m);
    // In order, so the first that matches is the best.
    for (size_t h = 0; h < kHalves; ++h) {
      const __mmask16 first = _mm512_mask_cmpeq_epi32_mask(static_cast<__mmask16>(m[h]), best[h], all512(kMergeNone));
      best[h] = _mm512_mask_mov_epi32(best[h], first, all512(l->rule & kMergeNone));
    }
  }
  for (size_t h = 0; h < kHalves; ++h) _mm512_store_si512(&lanes.best[16 * h], best[h]);
}

template <bool kWide>
void loose_avx512(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  n > 16 ? loose_halves<kWide, 2>(view, lanes, n) : loose_halves<kWide, 1>(view, lanes, n);
}

SLUICE_AVX2 inline __m256i all256(uint32_t v) {
  return _mm256_set1_epi32(static_cast<int>(v));
}
SLUICE_AVX2 inline __m256i load256(const void* p) {
  return _mm256_load_si256(static_cast<const __m256i*>(p));
}
// The lanes that are zero.
SLUICE_AVX2 inline __m256i zero256(__m256i v) {
  return _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
}
SLUICE_AVX2 inline uint32_t mask256(__m256i v) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(v)));
}

template <bool kWide>
SLUICE_AVX2 __attribute__((flatten)) void probe_avx2(const TupleMergeView& view, const K::Lanes& lanes, size_t n,
                                                     const TupleMergeTable& t, K::Candidates& out) {
  const auto* const slots = reinterpret_cast<const int*>(K::slots(view) + t.slot_base);
  const __m128i shift = _mm_cvtsi32_si128(t.slot_shift);
  size_t count = out.count;
  for (size_t i = 0; i < n; i += 8) {
    __m256i h = _mm256_setzero_si256();
    hash_lanes<HashLanes8, kWide>(h, lanes, i, t);
    const __m256i slot = _mm256_i32gather_epi32(slots, _mm256_srl_epi32(h, shift), 4);
    const __m256i low = all256(255);
    const __m256i tag = _mm256_max_epu32(_mm256_and_si256(h, low), all256(1));
    const __m256i own = zero256(_mm256_and_si256(_mm256_xor_si256(slot, tag), low));
    const __m256i any = zero256(_mm256_and_si256(slot, low));
    // Positions are below 2^30, so signed compares serve.
    const __m256i open = _mm256_cmpgt_epi32(load256(&lanes.best[i]), all256(t.best < kMergeNone ? t.best : kMergeNone));
    const __m256i take = _mm256_andnot_si256(zero256(slot), _mm256_and_si256(open, _mm256_or_si256(own, any)));
    alignas(32) uint32_t block[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(block), _mm256_sub_epi32(_mm256_srli_epi32(slot, 8), all256(1)));
    for (uint32_t m = mask256(take); m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      out.block[count] = block[lane];
      out.lane[count++] = static_cast<uint32_t>(i) + lane;
    }
  }
  out.count = count;
}

SLUICE_AVX2 void verify4_avx2(const TupleMergeView& view, K::Lanes& lanes, const K::Candidates& candidates) {
  const TupleMergeBlock4* const blocks = K::blocks<false>(view);
  for (size_t c = 0; c < candidates.count; ++c) {
    const uint32_t lane = candidates.lane[c];
    const __m256i address = _mm256_set1_epi64x(static_cast<int64_t>(lanes.pair[lane]));
    const __m256i ports = all256(lanes.ports[lane]), fields = all256(lanes.fields[lane]);
    const TupleMergeBlock4* block = blocks + candidates.block[c];
    uint32_t best = lanes.best[lane];
    for (;;) {
      uint32_t near = 0;
      for (unsigned half = 0; half < 2; ++half) {
        const __m256i free =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block->free + 8 * half)));
        const __m256i x = _mm256_srlv_epi32(_mm256_xor_si256(address, load256(block->address + 8 * half)), free);
        const __m256i same = _mm256_cmpeq_epi64(x, _mm256_setzero_si256());
        near |= static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(same))) << (4 * half);
      }
      const __m256i past =
          _mm256_subs_epu16(_mm256_sub_epi16(ports, load256(block->ports_low)), load256(block->ports_span));
      const __m256i differs = _mm256_or_si256(
          past, _mm256_and_si256(_mm256_xor_si256(fields, load256(block->fields)), load256(block->fields_mask)));
      const uint32_t match = near & mask256(zero256(differs));
      const uint32_t found = first_match(view, block->rule, match, lanes, lane);
      best = std::min(best, found);
      if ((block->rule[kMergeLanes - 1] & kMergeMore) == 0) break;
      ++block;
      if ((block->rule[0] & kMergeNone) >= best) break;
    }
    lanes.best[lane] = best;
  }
}

template <bool kWide>
SLUICE_AVX2 void loose_avx2(const TupleMergeView& view, K::Lanes& lanes, size_t n) {
  const TupleMergeLoose* const begin = K::loose_begin(view, kWide);
  const TupleMergeLoose* const end = begin + K::loose_count(view, kWide);
  for (size_t i = 0; i < n; i += 8) {
    const __m256i ports = load256(&lanes.ports[i]), fields = load256(&lanes.fields[i]);
    __m256i best = load256(&lanes.best[i]);
    for (const TupleMergeLoose* l = begin; l != end; ++l) {
      __m256i differs = _mm256_and_si256(_mm256_xor_si256(fields, all256(l->fields)), all256(l->fields_mask));
      for (unsigned w = kWide ? 0 : 3; w < 8; w += kWide ? 1 : 4) {
        differs = _mm256_or_si256(
            differs,
            _mm256_and_si256(_mm256_xor_si256(load256(&lanes.word[w][i]), all256(l->value[w])), all256(l->mask[w])));
      }
      differs = _mm256_or_si256(
          differs, _mm256_subs_epu16(_mm256_sub_epi16(ports, all256(l->ports_low)), all256(l->ports_span)));
      __m256i same = zero256(differs);
      if ((l->rule & kMergeFull) != 0) [[unlikely]] {
        alignas(32) uint32_t keep[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(keep), same);
        for (size_t lane = 0; lane < 8; ++lane) {
          if (keep[lane] != 0 && (i + lane >= n || !K::full(view, l->rule, lanes.key_of(i + lane)))) keep[lane] = 0;
        }
        same = load256(keep);
      }
      // In order, so the first that matches is the best.
      const __m256i first = _mm256_and_si256(same, _mm256_cmpeq_epi32(best, all256(kMergeNone)));
      best = _mm256_blendv_epi8(best, all256(l->rule & kMergeNone), first);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(&lanes.best[i]), best);
  }
}

#endif

}  // namespace

const TupleMergeKernels& TupleMergeKernels::of(AclIsa isa, bool wide) {
  static constexpr TupleMergeKernels kScalar[2] = {
      {probe_scalar<false>, verify_scalar<false>, loose_scalar<false>, bitmap_scalar, nullptr,
       fill_columns_scalar<false>},
      {probe_scalar<true>, verify_scalar<true>, loose_scalar<true>, nullptr, nullptr, fill_columns_scalar<true>}};
#if defined(__x86_64__)
  static constexpr TupleMergeKernels kAvx2[2] = {
      {probe_avx2<false>, verify4_avx2, loose_avx2<false>, bitmap_avx2, fill_avx2, fill_columns_avx2<false>},
      {probe_avx2<true>, verify_scalar<true>, loose_avx2<true>, nullptr, nullptr, fill_columns_avx2<true>}};
  static constexpr TupleMergeKernels kAvx512[2] = {
      {probe_avx512<false>, verify_avx512<false>, loose_avx512<false>, bitmap_avx512, fill_avx2,
       fill_columns_avx512<false>},
      {probe_avx512<true>, verify_avx512<true>, loose_avx512<true>, nullptr, nullptr, fill_columns_avx512<true>}};
  if (isa == AclIsa::kAvx512) return kAvx512[wide];
  if (isa == AclIsa::kAvx2) return kAvx2[wide];
#endif
  (void)isa;
  return kScalar[wide];
}

}  // namespace sluice
