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
      if (next_hop != 0) std::fill(slots + (begin >> 8), slots + (end >> 8), static_cast<Entry>(next_hop));
      begin = end >> 8 << 8;
    }
    if (begin < end) fill_partial(begin, end, next_hop);
  }
}

// How many addresses ahead the bulk loops ask for their lines; measured best between 32 and 128 on Zen 4.
constexpr size_t kAhead = 64;

template <typename Entry>
inline uint32_t lookup_one(const Entry* slots, const uint16_t* blocks, uint32_t limit, uint32_t address) {
  const uint32_t entry = slots[address >> 8];
  if (entry > limit) [[unlikely]]
    return blocks[size_t{entry - limit - 1} * 256 + (address & 255)];
  return entry;
}

template <typename Entry>
void lookup_scalar(const Entry* slots, const uint16_t* blocks, uint32_t limit, const uint32_t* addresses,
                   uint32_t* next_hops, size_t n) {
  size_t i = 0;
  for (; i + kAhead < n; ++i) {
    prefetch_read(slots + (addresses[i + kAhead] >> 8));
    next_hops[i] = lookup_one(slots, blocks, limit, addresses[i]);
  }
  // The end, and all of a small burst: the loads are independent, so the processor overlaps them by itself.
  for (; i < n; ++i) next_hops[i] = lookup_one(slots, blocks, limit, addresses[i]);
}

#if defined(__x86_64__)
// GCC 12 warns about its own _mm512_undefined_epi32 (bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// Gather indices are signed 32-bit with a scale: tbl24 needs 24 bits, and blocks * 256 <= 2^30 entries fit.
template <typename Entry>
__attribute__((target("avx2"))) void lookup_avx2(const Entry* slots, const uint16_t* blocks, uint32_t limit,
                                                 const uint32_t* addresses, uint32_t* next_hops, size_t n) {
  const __m256i low16 = _mm256_set1_epi32(0xffff);
  const __m256i limits = _mm256_set1_epi32(static_cast<int>(limit));
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    if (i + kAhead + 8 <= n) {
      for (size_t k = 0; k < 8; ++k) prefetch_read(slots + (addresses[i + kAhead + k] >> 8));
    }
    const __m256i address = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(addresses + i));
    __m256i entry =
        _mm256_i32gather_epi32(reinterpret_cast<const int*>(slots), _mm256_srli_epi32(address, 8), sizeof(Entry));
    if constexpr (sizeof(Entry) == 2) entry = _mm256_and_si256(entry, low16);
    const __m256i more = _mm256_cmpgt_epi32(entry, limits);  // both below 2^31
    if (_mm256_movemask_epi8(more) != 0) [[unlikely]] {
      const __m256i block = _mm256_sub_epi32(entry, _mm256_add_epi32(limits, _mm256_set1_epi32(1)));
      const __m256i index =
          _mm256_or_si256(_mm256_slli_epi32(block, 8), _mm256_and_si256(address, _mm256_set1_epi32(255)));
      const __m256i second = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(blocks),
                                                         index, more, sizeof(uint16_t));
      entry = _mm256_blendv_epi8(entry, _mm256_and_si256(second, low16), more);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(next_hops + i), entry);
  }
  lookup_scalar(slots, blocks, limit, addresses + i, next_hops + i, n - i);
}

template <typename Entry>
__attribute__((target("avx512f"))) void lookup_avx512(const Entry* slots, const uint16_t* blocks, uint32_t limit,
                                                      const uint32_t* addresses, uint32_t* next_hops, size_t n) {
  const __m512i low16 = _mm512_set1_epi32(0xffff);
  const __m512i limits = _mm512_set1_epi32(static_cast<int>(limit));
  const __m512i zero = _mm512_setzero_si512();
  for (size_t i = 0; i < n; i += 16) {
    if (i + kAhead + 16 <= n) {
      for (size_t k = 0; k < 16; ++k) prefetch_read(slots + (addresses[i + kAhead + k] >> 8));
    }
    const auto lanes = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1u << (n - i)) - 1);
    const __m512i address = _mm512_maskz_loadu_epi32(lanes, addresses + i);
    __m512i entry = _mm512_mask_i32gather_epi32(zero, lanes, _mm512_srli_epi32(address, 8), slots, sizeof(Entry));
    if constexpr (sizeof(Entry) == 2) entry = _mm512_and_si512(entry, low16);
    const __mmask16 more = _mm512_cmpgt_epu32_mask(entry, limits);
    if (more != 0) [[unlikely]] {
      const __m512i block = _mm512_sub_epi32(entry, _mm512_add_epi32(limits, _mm512_set1_epi32(1)));
      const __m512i index =
          _mm512_or_si512(_mm512_slli_epi32(block, 8), _mm512_and_si512(address, _mm512_set1_epi32(255)));
      const __m512i second = _mm512_mask_i32gather_epi32(zero, more, index, blocks, sizeof(uint16_t));
      entry = _mm512_mask_and_epi32(entry, more, second, low16);
    }
    _mm512_mask_storeu_epi32(next_hops + i, lanes, entry);
  }
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

template <typename Entry>
void lookup_with(LpmIsa isa, const Entry* slots, const uint16_t* blocks, uint32_t limit, const uint32_t* addresses,
                 uint32_t* next_hops, size_t n) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (isa == LpmIsa::kAvx512 && has_avx512) return lookup_avx512(slots, blocks, limit, addresses, next_hops, n);
  if (isa == LpmIsa::kAvx2 && has_avx2) return lookup_avx2(slots, blocks, limit, addresses, next_hops, n);
#endif
  lookup_scalar(slots, blocks, limit, addresses, next_hops, n);
}

// n is a multiple of 16.
template <typename Entry>
uint32_t highest_entry(const Entry* entries, size_t n) {
  Entry highest[16] = {};
  for (size_t i = 0; i < n; i += 16) {
    for (size_t k = 0; k < 16; ++k) highest[k] = std::max(highest[k], entries[i + k]);
  }
  return *std::max_element(highest, highest + 16);
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

Result<Dir24View> Dir24View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
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
  uint32_t highest;
  if (header->entry_bytes == 2) {
    view.narrow_ = section_array<uint16_t>(section, sizeof(Dir24Header), kSlots);
    highest = highest_entry(view.narrow_, kSlots);
  } else {
    view.wide_ = section_array<uint32_t>(section, sizeof(Dir24Header), kSlots);
    highest = highest_entry(view.wide_, kSlots);
  }
  if (highest > header->next_hops && highest - header->next_hops > header->block_count) {
    return Error(fmt::format("dir24: entry {} is past {} next hops and {} blocks", highest, header->next_hops,
                             header->block_count));
  }
  if (highest_entry(blocks, block_entries) > next_hop_count) return Error("dir24: a block holds an unknown next hop");
  return view;
}

Dir24View Dir24View::rebase(const std::byte* from, const std::byte* to) const {
  auto moved = [&]<typename T>(const T* p) {
    return p == nullptr ? p : reinterpret_cast<const T*>(to + (reinterpret_cast<const std::byte*>(p) - from));
  };
  Dir24View view = *this;
  view.narrow_ = moved(narrow_);
  view.wide_ = moved(wide_);
  view.blocks_ = moved(blocks_);
  return view;
}

void Dir24View::lookup_bulk(LpmIsa isa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  if (wide_ != nullptr) {
    lookup_with(isa, wide_, blocks_, next_hops_, addresses, next_hops, n);
  } else {
    lookup_with(isa, narrow_, blocks_, next_hops_, addresses, next_hops, n);
  }
}

namespace {
// Chosen once before main: a function-local static would be checked on every burst.
const LpmIsa kBurstIsa = available_lpm_isas().back();
}  // namespace

void Dir24View::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  // With room to prefetch, plain loads beat gathers (Zen 4: lpm_bench.cpp); a burst without it is better gathered.
  lookup_bulk(n > kAhead ? LpmIsa::kScalar : kBurstIsa, addresses, next_hops, n);
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
