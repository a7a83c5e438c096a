#include "tables/lpm/dir24.h"

#include "base/prefetch.h"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <memory>

#include "tables/image.h"
#include "tables/lpm/entries.h"
#include "tables/lpm/intervals.h"

namespace sluice {
namespace {

constexpr size_t kSlots = size_t{1} << 24;
constexpr size_t kTail = 64;  // what a gather may read past the last entry

// Distinct /24s that have an interval boundary inside.
uint32_t count_blocks(const std::vector<Interval4>& intervals) {
  uint32_t blocks = 0;
  int64_t last = -1;
  for (const Interval4& interval : intervals) {
    const int64_t slot = interval.begin >> 8;
    if ((interval.begin & 255) == 0 || slot == last) continue;
    ++blocks;
    last = slot;
  }
  return blocks;
}

// Walks the intervals once: whole /24s become runs of entries, the rest is written to blocks in the order of their
// /24s.
template <typename Entry>
void fill(const std::vector<Interval4>& intervals, uint32_t next_hops, Entry* slots, uint16_t* blocks) {
  uint32_t used = 0;
  int64_t block_slot = -1;
  auto fill_partial = [&](uint64_t begin, uint64_t end, uint16_t next_hop) {  // [begin, end) inside one /24
    const auto slot = static_cast<int64_t>(begin >> 8);
    if (slot != block_slot) {
      block_slot = slot;
      slots[slot] = static_cast<Entry>(next_hops + 1 + used++);
    }
    uint16_t* block = blocks + size_t{used - 1} * 256;
    std::fill(block + (begin & 255), block + ((end - 1) & 255) + 1, next_hop);
  };
  for (size_t i = 0; i < intervals.size(); ++i) {
    uint64_t begin = intervals[i].begin;
    const uint64_t end = i + 1 < intervals.size() ? intervals[i + 1].begin : uint64_t{1} << 32;
    const uint16_t next_hop = intervals[i].next_hop;
    if ((begin & 255) != 0) {
      const uint64_t stop = std::min(end, (begin | 255) + 1);
      fill_partial(begin, stop, next_hop);
      begin = stop;
    }
    if (begin < end >> 8 << 8) {
      if (next_hop != 0) fill_entries(slots + (begin >> 8), (end >> 8) - (begin >> 8), static_cast<Entry>(next_hop));
      begin = end >> 8 << 8;
    }
    if (begin < end) fill_partial(begin, end, next_hop);
  }
}

// How many addresses ahead the bulk loops ask for their lines; measured best between 32 and 128 on Zen 4.
constexpr size_t kAhead = 64;

// tbl8 lies right behind tbl24, which saves the lookups an argument.
template <typename Entry>
inline const uint16_t* blocks_after(const Entry* slots) {
  return reinterpret_cast<const uint16_t*>(slots + kSlots);
}

template <typename Entry>
inline uint32_t lookup_one(const Entry* slots, uint32_t address, uint32_t limit) {
  const uint32_t entry = slots[address >> 8];
  if (entry > limit) [[unlikely]]
    return blocks_after(slots)[size_t{entry - limit - 1} * 256 + (address & 255)];
  return entry;
}

template <typename Entry>
__attribute__((noinline)) void lookup_scalar(const Entry* slots, const uint32_t* addresses, uint32_t* next_hops,
                                             size_t n, uint32_t limit) {
  size_t i = 0;
  for (; i + kAhead < n; ++i) {
    prefetch_read(slots + (addresses[i + kAhead] >> 8));
    next_hops[i] = lookup_one(slots, addresses[i], limit);
  }
  // The end, and all of a small burst: the loads are independent, so the processor overlaps them by itself.
#pragma GCC unroll 8
  for (; i < n; ++i) next_hops[i] = lookup_one(slots, addresses[i], limit);
}

#if defined(__x86_64__)
// A vector step serves 32 addresses: all its gathers start before any of them is looked at, the entries are stored
// unmasked, and only then are the addresses that go on in a block (few in most tables) answered anew, out of line. A
// burst's lookups overlap with the next burst's as far as both fit into the processor's window, so each instruction
// counts: a branch after each gather, masked loads and stores, or registers saved for the rare path made a burst of 32
// take up to a third longer on Zen 4 (docs/design/lpm.md).
constexpr size_t kStep = 32;
// Up to so many addresses of a step go on in their blocks one by one; more are gathered.
constexpr int kFew = 8;

template <typename Entry>
inline void prefetch_step(const Entry* slots, const uint32_t* addresses) {
#pragma GCC unroll 8
  for (size_t k = 0; k < kStep; ++k) prefetch_read(slots + (addresses[k] >> 8));
}

// next_hops[k] is still an entry past `limit` for each bit k of `more`.
inline void answer_few(const uint16_t* blocks, uint32_t limit, const uint32_t* addresses, uint32_t* next_hops,
                       uint32_t more) {
  for (; more != 0; more &= more - 1) {
    const int k = __builtin_ctz(more);
    next_hops[k] = blocks[size_t{next_hops[k] - limit - 1} * 256 + (addresses[k] & 255)];
  }
}

// GCC 12 warns about its own _mm512_undefined_epi32 (bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// Gather indices are signed 32-bit with a scale: tbl24 needs 24 bits, and blocks * 256 <= 2^30 entries fit.
//
// Of each instruction set (Isa): `step` stores the 32 entries and returns a bit for each that is past `limit`; `answer`
// replaces those by their blocks' next hops. The search is one for all: `rest` runs any number of addresses; `resume`
// goes on after a first step that needs `answer`; `lookup` is the first step, and for a burst of 32 usually all. No
// function has more than the six arguments that fit into registers, so that each ends with a jump to the next; those
// that lookup_bulk was called with keep their places. The search is compiled as part of functions for an instruction
// set (below), with `step` in it.
template <typename Isa, typename Entry>
inline void rest_of(const Entry* slots, const uint32_t* addresses, uint32_t* next_hops, size_t n, uint32_t limit) {
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    if (i + kAhead + kStep <= n) prefetch_step(slots, addresses + i + kAhead);
    const uint32_t more = Isa::step(slots, addresses + i, next_hops + i, limit);
    if (more != 0) [[unlikely]]
      Isa::answer(blocks_after(slots), limit, addresses + i, next_hops + i, more);
  }
  if (i == n) return;
  Isa::leave();
  lookup_scalar(slots, addresses + i, next_hops + i, n - i, limit);
}

template <typename Isa, typename Entry>
inline void resume_of(const Entry* slots, const uint32_t* addresses, uint32_t* next_hops, size_t n, uint32_t limit,
                      uint32_t more) {
  Isa::answer(blocks_after(slots), limit, addresses, next_hops, more);
  if (n > kStep) Isa::rest(slots, addresses + kStep, next_hops + kStep, n - kStep, limit);
}

template <typename Isa, typename Entry>
inline void lookup_of(const Entry* slots, const uint32_t* addresses, uint32_t* next_hops, size_t n, uint32_t limit) {
  if (n < kStep || n > kAhead) return Isa::rest(slots, addresses, next_hops, n, limit);
  const uint32_t more = Isa::step(slots, addresses, next_hops, limit);
  if (more != 0) [[unlikely]]
    return Isa::resume(slots, addresses, next_hops, n, limit, more);
  if (n > kStep) Isa::rest(slots, addresses + kStep, next_hops + kStep, n - kStep, limit);
}

struct Avx2 {
  static constexpr size_t kVectors = kStep / 8;

  template <typename Entry>
  __attribute__((target("avx2"))) static inline uint32_t step(const Entry* slots, const uint32_t* addresses,
                                                              uint32_t* next_hops, uint32_t limit) {
    __m256i entry[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const __m256i address = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(addresses + 8 * v));
      entry[v] =
          _mm256_i32gather_epi32(reinterpret_cast<const int*>(slots), _mm256_srli_epi32(address, 8), sizeof(Entry));
    }
    uint32_t more = 0;
    for (size_t v = 0; v < kVectors; ++v) {
      if constexpr (sizeof(Entry) == 2) entry[v] = _mm256_and_si256(entry[v], _mm256_set1_epi32(0xffff));
      const __m256i past = past_limit(entry[v], limit);
      more |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(past))) << 8 * v;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(next_hops + 8 * v), entry[v]);
    }
    return more;
  }

  __attribute__((target("avx2"), always_inline)) static inline __m256i past_limit(__m256i entry, uint32_t limit) {
    return _mm256_cmpgt_epi32(entry, _mm256_set1_epi32(static_cast<int>(limit)));  // both are below 2^31
  }

  __attribute__((target("avx2"), noinline)) static void answer(const uint16_t* blocks, uint32_t limit,
                                                               const uint32_t* addresses, uint32_t* next_hops,
                                                               uint32_t more) {
    if (__builtin_popcount(more) <= kFew) return answer_few(blocks, limit, addresses, next_hops, more);
    for (size_t v = 0; v < kVectors; ++v) {
      const __m256i address = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(addresses + 8 * v));
      const __m256i entry = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next_hops + 8 * v));
      const __m256i past = past_limit(entry, limit);
      const __m256i block = _mm256_sub_epi32(entry, _mm256_set1_epi32(static_cast<int>(limit + 1)));
      const __m256i index =
          _mm256_or_si256(_mm256_slli_epi32(block, 8), _mm256_and_si256(address, _mm256_set1_epi32(255)));
      const __m256i second = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(blocks),
                                                         index, past, sizeof(uint16_t));
      const __m256i next_hop = _mm256_and_si256(second, _mm256_set1_epi32(0xffff));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(next_hops + 8 * v), _mm256_blendv_epi8(entry, next_hop, past));
    }
  }

  // GCC 12 leaves it out where it knows which registers a tail call uses.
  __attribute__((target("avx2"))) static inline void leave() { _mm256_zeroupper(); }

  template <typename Entry>
  __attribute__((target("avx2"), flatten, noinline)) static void rest(const Entry* slots, const uint32_t* addresses,
                                                                      uint32_t* next_hops, size_t n, uint32_t limit) {
    rest_of<Avx2>(slots, addresses, next_hops, n, limit);
  }
  template <typename Entry>
  __attribute__((target("avx2"), flatten, noinline)) static void resume(const Entry* slots, const uint32_t* addresses,
                                                                        uint32_t* next_hops, size_t n, uint32_t limit,
                                                                        uint32_t more) {
    resume_of<Avx2>(slots, addresses, next_hops, n, limit, more);
  }
  template <typename Entry>
  __attribute__((target("avx2"), flatten)) static void lookup(const Entry* slots, const uint32_t* addresses,
                                                              uint32_t* next_hops, size_t n, uint32_t limit) {
    lookup_of<Avx2>(slots, addresses, next_hops, n, limit);
  }
};

struct Avx512 {
  static constexpr size_t kVectors = kStep / 16;

  template <typename Entry>
  __attribute__((target("avx512f"))) static inline uint32_t step(const Entry* slots, const uint32_t* addresses,
                                                                 uint32_t* next_hops, uint32_t limit) {
    __m512i entry[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const __m512i address = _mm512_loadu_si512(addresses + 16 * v);
      entry[v] = _mm512_i32gather_epi32(_mm512_srli_epi32(address, 8), slots, sizeof(Entry));
    }
    uint32_t more = 0;
    for (size_t v = 0; v < kVectors; ++v) {
      if constexpr (sizeof(Entry) == 2) entry[v] = _mm512_and_si512(entry[v], _mm512_set1_epi32(0xffff));
      const __mmask16 past = _mm512_cmpgt_epu32_mask(entry[v], _mm512_set1_epi32(static_cast<int>(limit)));
      more |= static_cast<uint32_t>(past) << 16 * v;
      _mm512_storeu_si512(next_hops + 16 * v, entry[v]);
    }
    return more;
  }

  __attribute__((target("avx512f"), noinline)) static void answer(const uint16_t* blocks, uint32_t limit,
                                                                  const uint32_t* addresses, uint32_t* next_hops,
                                                                  uint32_t more) {
    if (__builtin_popcount(more) <= kFew) return answer_few(blocks, limit, addresses, next_hops, more);
    for (size_t v = 0; v < kVectors; ++v) {
      const __m512i address = _mm512_loadu_si512(addresses + 16 * v);
      const __m512i entry = _mm512_loadu_si512(next_hops + 16 * v);
      const auto past = static_cast<__mmask16>(more >> 16 * v);
      const __m512i block = _mm512_sub_epi32(entry, _mm512_set1_epi32(static_cast<int>(limit + 1)));
      const __m512i index =
          _mm512_or_si512(_mm512_slli_epi32(block, 8), _mm512_and_si512(address, _mm512_set1_epi32(255)));
      const __m512i second = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), past, index, blocks, sizeof(uint16_t));
      _mm512_storeu_si512(next_hops + 16 * v, _mm512_mask_and_epi32(entry, past, second, _mm512_set1_epi32(0xffff)));
    }
  }

  // GCC 12 leaves it out where it knows which registers a tail call uses.
  __attribute__((target("avx512f"))) static inline void leave() { _mm256_zeroupper(); }

  template <typename Entry>
  __attribute__((target("avx512f"), flatten, noinline)) static void rest(const Entry* slots, const uint32_t* addresses,
                                                                         uint32_t* next_hops, size_t n,
                                                                         uint32_t limit) {
    rest_of<Avx512>(slots, addresses, next_hops, n, limit);
  }
  template <typename Entry>
  __attribute__((target("avx512f"), flatten, noinline)) static void resume(const Entry* slots,
                                                                           const uint32_t* addresses,
                                                                           uint32_t* next_hops, size_t n,
                                                                           uint32_t limit, uint32_t more) {
    resume_of<Avx512>(slots, addresses, next_hops, n, limit, more);
  }
  template <typename Entry>
  __attribute__((target("avx512f"), flatten)) static void lookup(const Entry* slots, const uint32_t* addresses,
                                                                 uint32_t* next_hops, size_t n, uint32_t limit) {
    lookup_of<Avx512>(slots, addresses, next_hops, n, limit);
  }
};
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// Asked once before main: function-local statics would be checked on every burst. Until then lookups are scalar.
const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
const bool kHasAvx512 = __builtin_cpu_supports("avx512f") != 0;
#endif

template <typename Entry>
inline void lookup_with([[maybe_unused]] LpmIsa isa, const Entry* slots, const uint32_t* addresses, uint32_t* next_hops,
                        size_t n, uint32_t limit) {
#if defined(__x86_64__)
  if (isa == LpmIsa::kAvx512 && kHasAvx512) return Avx512::lookup(slots, addresses, next_hops, n, limit);
  if (isa == LpmIsa::kAvx2 && kHasAvx2) return Avx2::lookup(slots, addresses, next_hops, n, limit);
#endif
  lookup_scalar(slots, addresses, next_hops, n, limit);
}

}  // namespace

Result<FibPlan> plan_dir24(const Rib& rib, bool force_wide) {
  auto intervals = std::make_shared<std::vector<Interval4>>(intervals_of<uint32_t>(rib.routes4()));
  const uint32_t blocks = count_blocks(*intervals);
  if (blocks > uint32_t{1} << 22) {
    return Error(fmt::format("dir24: {} /24s hold longer prefixes, the limit is {}", blocks, 1u << 22),
                 "use the algorithm poptrie for this table");
  }
  Dir24Header header{};
  header.next_hops = rib.next_hop_count();
  header.block_count = blocks;
  header.entry_bytes = force_wide || header.next_hops + blocks > 65535 ? 4 : 2;
  FibPlan plan;
  plan.bytes = sizeof header + kSlots * header.entry_bytes + size_t{blocks} * 512 + kTail;
  plan.write = [intervals, header](std::span<std::byte> out) {
    std::memcpy(out.data(), &header, sizeof header);
    std::byte* slots = out.data() + sizeof header;
    auto* tbl8 = reinterpret_cast<uint16_t*>(slots + kSlots * header.entry_bytes);
    if (header.entry_bytes == 2) {
      fill(*intervals, header.next_hops, reinterpret_cast<uint16_t*>(slots), tbl8);
    } else {
      fill(*intervals, header.next_hops, reinterpret_cast<uint32_t*>(slots), tbl8);
    }
  };
  return plan;
}

Result<Dir24View> Dir24View::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  const auto* header = section_array<Dir24Header>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("dir24: {} bytes are too few", section.size()));
  if (header->entry_bytes != 2 && header->entry_bytes != 4) {
    return Error(fmt::format("dir24: entries of {} bytes", header->entry_bytes));
  }
  if (header->next_hops > next_hop_count || header->block_count > uint32_t{1} << 22) {
    return Error(fmt::format("dir24: {} next hops, {} blocks", header->next_hops, header->block_count));
  }
  const uint64_t blocks_at = sizeof(Dir24Header) + kSlots * header->entry_bytes;
  const uint64_t block_entries = uint64_t{header->block_count} * 256;
  const auto* blocks = section_array<uint16_t>(section, blocks_at, block_entries + kTail / 2);
  if (blocks == nullptr) {
    return Error(fmt::format("dir24: {} bytes do not hold {} blocks", section.size(), header->block_count));
  }
  Dir24View view;
  view.blocks_ = blocks;
  view.next_hops_ = header->next_hops;
  if (header->entry_bytes == 2) {
    view.narrow_ = section_array<uint16_t>(section, sizeof(Dir24Header), kSlots);
  } else {
    view.wide_ = section_array<uint32_t>(section, sizeof(Dir24Header), kSlots);
  }
  if (trusted) return view;
  const uint32_t highest = view.wide() ? highest_entry(view.wide_, kSlots) : highest_entry(view.narrow_, kSlots);
  if (highest > header->next_hops && highest - header->next_hops > header->block_count) {
    return Error(fmt::format("dir24: entry {} is past {} next hops and {} blocks", highest, header->next_hops,
                             header->block_count));
  }
  if (highest_entry(blocks, block_entries) > next_hop_count) return Error("dir24: a block holds an unknown next hop");
  return view;
}

void Dir24View::lookup_bulk(LpmIsa isa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  if (wide_ != nullptr) {
    lookup_with(isa, wide_, addresses, next_hops, n, next_hops_);
  } else {
    lookup_with(isa, narrow_, addresses, next_hops, n, next_hops_);
  }
}

void Dir24View::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
#if defined(__x86_64__)
  // Anything else is better served by plain loads, as measured on Zen 4 (lpm_bench.cpp): less than a step, runs long
  // enough to prefetch, and the 8-lane gathers of AVX2.
  if (n >= kStep && n <= kAhead && kHasAvx512) {
    if (narrow_ != nullptr) return Avx512::lookup(narrow_, addresses, next_hops, n, next_hops_);
    return Avx512::lookup(wide_, addresses, next_hops, n, next_hops_);
  }
#endif
  if (narrow_ != nullptr) return lookup_scalar(narrow_, addresses, next_hops, n, next_hops_);
  lookup_scalar(wide_, addresses, next_hops, n, next_hops_);
}

const char* to_string(LpmIsa isa) {
  switch (isa) {
    case LpmIsa::kScalar:
      return "scalar";
    case LpmIsa::kAvx2:
      return "avx2";
    case LpmIsa::kAvx512:
      return "avx512";
  }
  return "?";
}

const std::vector<LpmIsa>& available_lpm_isas() {
  static const std::vector<LpmIsa> isas = [] {
    std::vector<LpmIsa> found = {LpmIsa::kScalar};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) found.push_back(LpmIsa::kAvx2);
    if (__builtin_cpu_supports("avx512f")) found.push_back(LpmIsa::kAvx512);
#endif
    return found;
  }();
  return isas;
}

}  // namespace sluice
