// host only
// The lanes of a burst that go on, one behind the other.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/assert.h"
#include "exec/cpu/fast.h"

#include "base/intrinsics.h"

namespace sluice {
namespace {

// The columns that say something of a burst, by the size of a place: 4, 8 and 2 bytes.
struct BurstColumns {
  std::byte *words[15], *longs[6], *shorts[4];
  uint32_t word_count = 0, long_count = 0, short_count = 0;

  template <typename Place>
  void add(Place* column) {
    static_assert(sizeof(Place) == 2 || sizeof(Place) == 4 || sizeof(Place) == 8);
    auto* const at = reinterpret_cast<std::byte*>(column);
    if constexpr (sizeof(Place) == 2) {
      shorts[short_count++] = at;
    } else if constexpr (sizeof(Place) == 4) {
      words[word_count++] = at;
    } else {
      longs[long_count++] = at;
    }
  }

  BurstColumns(FastBurst& b, uint32_t lanes) {
    if (b.family == 6) {
      for (uint64_t* column : {b.source_high, b.source_low, b.destination_high, b.destination_low}) add(column);
    } else {
      for (uint32_t* column : {b.source, b.destination}) add(column);
    }
    for (uint32_t* column :
         {b.ports, b.rest, b.row, b.length, b.ip_bytes, b.places, b.link, b.tci, b.hop, b.rule, b.next_hop})
      add(column);
    add(b.ip);
    if (b.asked_by != nullptr) add(b.place);
    if ((b.rewritten & lanes) != 0) {
      add(b.rewrite);
      add(b.port);
      add(b.tag);
    }
    if ((b.marked & lanes) != 0) add(b.mark);
    if ((b.detailed & lanes) != 0) add(b.detail);
    if ((b.odd_lanes() & lanes) != 0) add(b.flags);
  }
};

// Lanes move down, the lowest first: no place is written before it was read.
inline void move_down(void* column, size_t place, uint32_t lanes) {
  auto* to = static_cast<std::byte*>(column);
  for (const std::byte* from = to; lanes != 0; lanes &= lanes - 1, to += place)
    std::memcpy(to, from + static_cast<uint32_t>(std::countr_zero(lanes)) * place, place);
}

void compress_scalar(const BurstColumns& columns, uint32_t lanes) {
  for (uint32_t c = 0; c < columns.word_count; ++c) move_down(columns.words[c], 4, lanes);
  for (uint32_t c = 0; c < columns.long_count; ++c) move_down(columns.longs[c], 8, lanes);
}

#if defined(__x86_64__)

// By a mask of eight places: the places of its ones in order, a byte for each.
constexpr auto kOrders = [] {
  std::array<uint64_t, 256> orders{};
  for (uint32_t mask = 0; mask < 256; ++mask) {
    uint32_t at = 0;
    for (uint32_t place = 0; place < 8; ++place) {
      if ((mask >> place & 1) != 0) orders[mask] |= uint64_t{place} << 8 * at++;
    }
  }
  return orders;
}();

// Each of four bits twice.
constexpr uint32_t doubled(uint32_t bits) {
  const uint32_t apart = (bits & 1) | (bits & 2) << 1 | (bits & 4) << 2 | (bits & 8) << 3;
  return apart | apart << 1;
}

// A vector's places are read before they, or those before them, are written.
__attribute__((target("avx2,bmi,popcnt"))) void compress_avx2(const BurstColumns& columns, uint32_t lanes) {
  const auto order = [](uint32_t mask) __attribute__((target("avx2"), always_inline)) {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(kOrders[mask])));
  };
  const auto move =
      [](const std::byte* from, std::byte* to, __m256i places) __attribute__((target("avx2"), always_inline)) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(v, places));
  };
  for (uint32_t first = 0, to = 0; first < FastBurst::kLanes; first += 8) {
    const uint32_t mask = lanes >> first & 255;
    const __m256i places = order(mask);
    for (uint32_t c = 0; c < columns.word_count; ++c)
      move(columns.words[c] + 4 * first, columns.words[c] + 4 * to, places);
    to += static_cast<uint32_t>(std::popcount(mask));
  }
  for (uint32_t first = 0, to = 0; first < FastBurst::kLanes; first += 4) {
    const uint32_t mask = lanes >> first & 15;
    const __m256i places = order(doubled(mask));
    for (uint32_t c = 0; c < columns.long_count; ++c)
      move(columns.longs[c] + 8 * first, columns.longs[c] + 8 * to, places);
    to += static_cast<uint32_t>(std::popcount(mask));
  }
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt"))) void compress_avx512(const BurstColumns& columns,
                                                                                          uint32_t lanes) {
  const auto low = static_cast<__mmask16>(lanes), high = static_cast<__mmask16>(lanes >> 16);
  const auto lower = static_cast<uint32_t>(std::popcount(lanes & 0xffff));
  for (uint32_t c = 0; c < columns.word_count; ++c) {
    std::byte* const column = columns.words[c];
    const __m512i a = _mm512_loadu_si512(column), b = _mm512_loadu_si512(column + 16 * 4);
    _mm512_storeu_si512(column, _mm512_maskz_compress_epi32(low, a));
    _mm512_storeu_si512(column + 4 * lower, _mm512_maskz_compress_epi32(high, b));
  }
  for (uint32_t first = 0, to = 0; first < FastBurst::kLanes; first += 8) {
    const uint32_t mask = lanes >> first & 255;
    for (uint32_t c = 0; c < columns.long_count; ++c) {
      const __m512i v = _mm512_loadu_si512(columns.longs[c] + 8 * first);
      _mm512_storeu_si512(columns.longs[c] + 8 * to, _mm512_maskz_compress_epi64(static_cast<__mmask8>(mask), v));
    }
    to += static_cast<uint32_t>(std::popcount(mask));
  }
}

#endif

// The bits of `mask` at the ones of `lanes`, one behind the other.
uint32_t packed(uint32_t mask, uint32_t lanes) {
  if ((mask & lanes) == lanes) return lanes == ~uint32_t{0} ? lanes : (uint32_t{1} << std::popcount(lanes)) - 1;
  uint32_t bits = 0;
  for (uint32_t at = 0; (mask & lanes) != 0 && lanes != 0; lanes &= lanes - 1)
    bits |= (mask >> std::countr_zero(lanes) & 1u) << at++;
  return bits;
}

}  // namespace

void compress_on(AclIsa isa, FastBurst& burst, uint32_t lanes) {
  SLUICE_ASSERT(acl_isa_available(isa) && (lanes & ~burst.lanes()) == 0);
  burst.fill_keys();
  const BurstColumns columns(burst, lanes);
  switch (isa) {
#if defined(__x86_64__)
    case AclIsa::kAvx512:
      compress_avx512(columns, lanes);
      break;
    case AclIsa::kAvx2:
      compress_avx2(columns, lanes);
      break;
#endif
    default:
      compress_scalar(columns, lanes);
  }
  for (uint32_t c = 0; c < columns.short_count; ++c) move_down(columns.shorts[c], 2, lanes);
  for (uint32_t* mask : {&burst.hopped, &burst.rewritten, &burst.marked, &burst.detailed}) *mask = packed(*mask, lanes);
  // Lanes past the burst's own are another's (take_extra).
  burst.odd = (burst.odd >> FastBurst::kLanes << FastBurst::kLanes) | packed(burst.odd_lanes(), lanes);
  burst.count = static_cast<uint32_t>(std::popcount(lanes));
  burst.one_run = false;
}

}  // namespace sluice
