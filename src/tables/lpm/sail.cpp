#include "tables/lpm/sail.h"

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

constexpr size_t kRoots = SailView::kRoots;
constexpr size_t kTail = 64;

// What the intervals need: a chunk for each /16 that has a boundary inside, one for each next hop of the others, and a
// block for each /24 that has a boundary inside.
struct SailShape {
  std::vector<uint32_t> root;         // where each /16's chunk begins
  std::vector<uint32_t> shared_hops;  // the next hop of each shared chunk, which come after the others
  uint32_t own_chunks = 0;
  uint32_t blocks = 0;
};

SailShape shape_of(const std::vector<Interval4>& intervals) {
  constexpr uint32_t kShared = 1u << 31;
  SailShape shape;
  shape.root.resize(kRoots);
  std::vector<uint32_t> shared(size_t{Rib::kMaxNextHops} + 1, UINT32_MAX);
  size_t at = 0;
  int64_t last_block = -1;
  for (uint32_t r = 0; r < kRoots; ++r) {
    const uint32_t begin = r << 16, last = begin | 0xffff;
    while (at + 1 < intervals.size() && intervals[at + 1].begin <= begin) ++at;
    if (at + 1 < intervals.size() && intervals[at + 1].begin <= last) {
      shape.root[r] = shape.own_chunks++ * 256;
      for (size_t i = at + 1; i < intervals.size() && intervals[i].begin <= last; ++i) {
        const auto slot = static_cast<int64_t>(intervals[i].begin >> 8);
        if ((intervals[i].begin & 255) == 0 || slot == last_block) continue;
        ++shape.blocks;
        last_block = slot;
      }
      continue;
    }
    uint32_t& chunk = shared[intervals[at].next_hop];
    if (chunk == UINT32_MAX) {
      chunk = static_cast<uint32_t>(shape.shared_hops.size());
      shape.shared_hops.push_back(intervals[at].next_hop);
    }
    shape.root[r] = kShared | chunk;
  }
  for (uint32_t& begin : shape.root) {
    if ((begin & kShared) != 0) begin = (shape.own_chunks + (begin & ~kShared)) * 256;
  }
  return shape;
}

template <typename Entry>
void fill(const std::vector<Interval4>& intervals, const SailShape& shape, uint32_t next_hops, Entry* chunks,
          uint16_t* blocks) {
  const uint32_t shared_at = shape.own_chunks * 256;
  for (size_t i = 0; i < shape.shared_hops.size(); ++i) {
    fill_entries(chunks + shared_at + i * 256, 256, static_cast<Entry>(shape.shared_hops[i]));
  }
  uint32_t used = 0;
  int64_t block_slot = -1;
  auto fill_partial = [&](uint64_t begin, uint64_t end, uint16_t next_hop) {  // [begin, end) inside one /24
    const auto slot = static_cast<int64_t>(begin >> 8);
    if (slot != block_slot) {
      block_slot = slot;
      chunks[shape.root[begin >> 16] + (begin >> 8 & 255)] = static_cast<Entry>(next_hops + 1 + used++);
    }
    uint16_t* block = blocks + size_t{used - 1} * 256;
    std::fill(block + (begin & 255), block + ((end - 1) & 255) + 1, next_hop);
  };
  for (size_t i = 0; i < intervals.size(); ++i) {
    uint64_t begin = intervals[i].begin;
    const uint64_t end = i + 1 < intervals.size() ? intervals[i + 1].begin : uint64_t{1} << 32;
    const uint16_t next_hop = intervals[i].next_hop;
    while (begin < end) {
      if ((begin & 255) != 0 || end - begin < 256) {
        const uint64_t stop = std::min(end, (begin | 255) + 1);
        fill_partial(begin, stop, next_hop);
        begin = stop;
        continue;
      }
      // Whole /24s, up to the end of this /16.
      const uint64_t stop = std::min(end >> 8 << 8, (begin | 0xffff) + 1);
      const uint32_t chunk = shape.root[begin >> 16];
      if (chunk < shared_at && next_hop != 0) {
        Entry* first = chunks + chunk + (begin >> 8 & 255);
        fill_entries(first, (stop - begin) >> 8, static_cast<Entry>(next_hop));
      }
      begin = stop;
    }
  }
}

// A long run of lookups is kept going in three places at once: the chunk of address i + 64 is found and its line asked
// for, while the lookup of address i ends. What was found waits in next_hops[]. Steps of eight; measured on Zen 4
// (lpm_bench.cpp): 16, 32 and 128 addresses ahead are slower, as is a loop that finds each chunk twice.
constexpr size_t kStep = 8;
constexpr size_t kAhead = 64;

template <typename Entry>
inline void find(const uint32_t* root, const Entry* chunks, const uint32_t* addresses, uint32_t* at) {
#pragma GCC unroll 8
  for (size_t k = 0; k < kStep; ++k) {
    const uint32_t address = addresses[k];
    at[k] = root[address >> 16] + (address >> 8 & 255);
    prefetch_read(chunks + at[k]);
  }
}

template <typename Entry>
inline void finish(const Entry* chunks, const uint16_t* blocks, uint32_t limit, const uint32_t* addresses,
                   const uint32_t* at, uint32_t* next_hops) {
  bool more = false;
#pragma GCC unroll 8
  for (size_t k = 0; k < kStep; ++k) {
    const uint32_t entry = chunks[at[k]];
    next_hops[k] = entry;
    more |= entry > limit;
  }
  if (!more) [[likely]]
    return;
  for (size_t k = 0; k < kStep; ++k) {
    const uint32_t entry = next_hops[k];
    if (entry > limit) next_hops[k] = blocks[size_t{entry - limit - 1} * 256 + (addresses[k] & 255)];
  }
}

template <typename Entry>
void lookup_all(const uint32_t* root, const Entry* chunks, const uint16_t* blocks, uint32_t limit,
                const uint32_t* addresses, uint32_t* next_hops, size_t n) {
  const size_t steps = n / kStep * kStep;
  const size_t head = std::min(steps, kAhead);
  size_t found = 0, done = 0;
  for (; found < head; found += kStep) find(root, chunks, addresses + found, next_hops + found);
  for (; found < steps; found += kStep, done += kStep) {
    find(root, chunks, addresses + found, next_hops + found);
    finish(chunks, blocks, limit, addresses + done, next_hops + done, next_hops + done);
  }
  for (; done < steps; done += kStep)
    finish(chunks, blocks, limit, addresses + done, next_hops + done, next_hops + done);
  for (; done < n; ++done) {
    const uint32_t address = addresses[done];
    const uint32_t entry = chunks[root[address >> 16] + (address >> 8 & 255)];
    next_hops[done] = entry <= limit ? entry : blocks[size_t{entry - limit - 1} * 256 + (address & 255)];
  }
}

template <typename Entry>
void ask_all(const uint32_t* root, const Entry* chunks, const uint32_t* addresses, uint32_t* at, size_t n) {
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) find(root, chunks, addresses + i, at + i);
  for (; i < n; ++i) {
    at[i] = root[addresses[i] >> 16] + (addresses[i] >> 8 & 255);
    prefetch_read(chunks + at[i]);
  }
}

template <typename Entry>
void answer_all(const Entry* chunks, const uint16_t* blocks, uint32_t limit, const uint32_t* addresses,
                const uint32_t* at, uint32_t* next_hops, size_t n) {
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) finish(chunks, blocks, limit, addresses + i, at + i, next_hops + i);
  for (; i < n; ++i) {
    const uint32_t entry = chunks[at[i]];
    next_hops[i] = entry <= limit ? entry : blocks[size_t{entry - limit - 1} * 256 + (addresses[i] & 255)];
  }
}

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 and its own _mm512_undefined_epi32 (bug 105593)
#endif
const bool kHasAvx512 = __builtin_cpu_supports("avx512f") != 0;  // asked before main; until then loads do

// The lines are there, so a gather is the same loads without a store for each: whoever reads the answers as vectors
// next does not wait for sixteen stores.
__attribute__((target("avx512f"))) void answer_avx512(const uint16_t* chunks, const uint16_t* blocks, uint32_t limit,
                                                      const uint32_t* addresses, const uint32_t* at,
                                                      uint32_t* next_hops, size_t n) {
  const __m512i limits = _mm512_set1_epi32(static_cast<int>(limit));
  for (size_t i = 0; i < n; i += 16) {
    const auto here = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1u << (n - i)) - 1);
    const __m512i places = _mm512_maskz_loadu_epi32(here, at + i);
    const __m512i wide = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), here, places, chunks, 2);
    const __m512i entries = _mm512_and_si512(wide, _mm512_set1_epi32(0xffff));
    _mm512_mask_storeu_epi32(next_hops + i, here, entries);
    uint32_t more = _mm512_cmpgt_epu32_mask(entries, limits);
    for (; more != 0; more &= more - 1) {
      const size_t k = i + static_cast<size_t>(__builtin_ctz(more));
      const uint32_t entry = next_hops[k];  // `at` may be the same array
      next_hops[k] = blocks[size_t{entry - limit - 1} * 256 + (addresses[k] & 255)];
    }
  }
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

}  // namespace

Result<FibPlan> plan_sail(const Rib& rib, bool force_wide) {
  struct Built {
    std::vector<Interval4> intervals;
    SailShape shape;
  };
  auto built = std::make_shared<Built>();
  built->intervals = intervals_of<uint32_t>(rib.routes4());
  built->shape = shape_of(built->intervals);
  if (built->shape.blocks > uint32_t{1} << 22) {
    return Error(fmt::format("sail: {} /24s hold longer prefixes, the limit is {}", built->shape.blocks, 1u << 22),
                 "use the algorithm poptrie for this table");
  }
  SailHeader header{};
  header.next_hops = rib.next_hop_count();
  header.block_count = built->shape.blocks;
  header.chunk_count = built->shape.own_chunks + static_cast<uint32_t>(built->shape.shared_hops.size());
  header.entry_bytes = force_wide || header.next_hops + header.block_count > 65535 ? 4 : 2;
  FibPlan plan;
  plan.bytes = sizeof header + kRoots * 4 + size_t{header.chunk_count} * 256 * header.entry_bytes +
               size_t{header.block_count} * 512 + kTail;
  plan.write = [built, header](std::span<std::byte> out) {
    std::memcpy(out.data(), &header, sizeof header);
    std::byte* at = out.data() + sizeof header;
    std::memcpy(at, built->shape.root.data(), kRoots * 4);
    at += kRoots * 4;
    auto* blocks = reinterpret_cast<uint16_t*>(at + size_t{header.chunk_count} * 256 * header.entry_bytes);
    if (header.entry_bytes == 2) {
      fill(built->intervals, built->shape, header.next_hops, reinterpret_cast<uint16_t*>(at), blocks);
    } else {
      fill(built->intervals, built->shape, header.next_hops, reinterpret_cast<uint32_t*>(at), blocks);
    }
  };
  return plan;
}

Result<SailView> SailView::open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted) {
  const auto* header = section_array<SailHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("sail: {} bytes are too few", section.size()));
  if (header->entry_bytes != 2 && header->entry_bytes != 4) {
    return Error(fmt::format("sail: entries of {} bytes", header->entry_bytes));
  }
  if (header->next_hops > next_hop_count || header->block_count > uint32_t{1} << 22 ||
      header->chunk_count > 2 * kRoots) {
    return Error(fmt::format("sail: {} next hops, {} chunks, {} blocks", header->next_hops, header->chunk_count,
                             header->block_count));
  }
  const uint64_t chunks_at = sizeof(SailHeader) + kRoots * 4;
  const uint64_t entries = uint64_t{header->chunk_count} * 256;
  const uint64_t block_entries = uint64_t{header->block_count} * 256;
  SailView view;
  view.root_ = section_array<uint32_t>(section, sizeof(SailHeader), kRoots);
  view.blocks_ = section_array<uint16_t>(section, chunks_at + entries * header->entry_bytes, block_entries + kTail / 2);
  if (view.root_ == nullptr || view.blocks_ == nullptr) {
    return Error(fmt::format("sail: {} bytes do not hold {} chunks and {} blocks", section.size(), header->chunk_count,
                             header->block_count));
  }
  view.next_hops_ = header->next_hops;
  view.wide_ = header->entry_bytes == 4;
  view.entries_ = section.data() + chunks_at;
  if (trusted) return view;
  for (size_t i = 0; i < kRoots; ++i) {
    if (view.root_[i] % 256 != 0 || view.root_[i] >= entries) {
      return Error(fmt::format("sail: root entry {} has the chunk at {} of {}", i, view.root_[i], entries));
    }
  }
  const uint32_t highest =
      view.wide_ ? highest_entry(view.wide_entries(), entries) : highest_entry(view.narrow_entries(), entries);
  if (highest > header->next_hops && highest - header->next_hops > header->block_count) {
    return Error(fmt::format("sail: entry {} is past {} next hops and {} blocks", highest, header->next_hops,
                             header->block_count));
  }
  if (highest_entry(view.blocks_, block_entries) > next_hop_count)
    return Error("sail: a block has an unknown next hop");
  return view;
}

void SailView::lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  if (!wide_) return lookup_all(root_, narrow_entries(), blocks_, next_hops_, addresses, next_hops, n);
  lookup_all(root_, wide_entries(), blocks_, next_hops_, addresses, next_hops, n);
}

void SailView::ask(const uint32_t* addresses, uint32_t* places, size_t n) const {
  if (!wide_) return ask_all(root_, narrow_entries(), addresses, places, n);
  ask_all(root_, wide_entries(), addresses, places, n);
}

void SailView::answer(const uint32_t* addresses, const uint32_t* places, uint32_t* next_hops, size_t n) const {
#if defined(__x86_64__)
  if (!wide_ && kHasAvx512)
    return answer_avx512(narrow_entries(), blocks_, next_hops_, addresses, places, next_hops, n);
#endif
  if (!wide_) return answer_all(narrow_entries(), blocks_, next_hops_, addresses, places, next_hops, n);
  answer_all(wide_entries(), blocks_, next_hops_, addresses, places, next_hops, n);
}

// Plain loads on every processor: the work is two loads and six simple operations, and gathers only cost more.
void SailView::lookup_bulk(LpmIsa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
  lookup_bulk(addresses, next_hops, n);
}

}  // namespace sluice
