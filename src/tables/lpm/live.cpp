#include "tables/lpm/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace sluice {

Result<LiveFib4> LiveFib4::create(const Rib& rib, const Options& options) {
  SLUICE_ASSERT(rib.settled());
  LiveFib4 live;
  live.next_hops_ = std::min(options.next_hops, 60'000u);
  if (rib.next_hop_count() > live.next_hops_) {
    return Error(fmt::format("{} next hops, and room for {}", rib.next_hop_count(), live.next_hops_));
  }
  const uint32_t chunks = 65536 + options.spare;
  const uint32_t blocks = 65535 - live.next_hops_;
  auto chunk_memory = Buffer::allocate(size_t{chunks} * 512);
  if (!chunk_memory) return std::move(chunk_memory).error();
  auto block_memory = Buffer::allocate(size_t{blocks} * 512 + 64);
  if (!block_memory) return std::move(block_memory).error();
  live.chunks_ = std::move(*chunk_memory);
  live.blocks_ = std::move(*block_memory);
  // The lowest come last, so that they are taken first.
  for (uint32_t i = chunks; i-- > 0;) live.free_chunks_.push_back(i);
  for (uint32_t i = blocks; i-- > 0;) live.free_blocks_.push_back(i);
  live.shared_.assign(size_t{live.next_hops_} + 1, kNone);
  live.is_shared_.assign(chunks, false);
  // In order of addresses each /16's routes are appended; short ones in order of lengths write each /16 once a length.
  for (const Route4& r : rib.routes4()) live.set(r.address, r.length, r.next_hop);
  for (uint32_t slot = 0; slot < 65536; ++slot) live.touch(slot);
  if (auto ok = live.publish(); !ok) return std::move(ok).error();
  return live;
}

void LiveFib4::touch(uint32_t slot) {
  if (is_touched_[slot]) return;
  is_touched_[slot] = true;
  touched_.push_back(slot);
}

bool LiveFib4::set_short(uint32_t address, uint8_t length, uint16_t next_hop) {
  auto node = [](uint32_t a, unsigned l) { return size_t{1} << l | (l == 0 ? 0 : a >> (32 - l)); };
  uint16_t& hop = short_[node(address, length)];
  if (hop == next_hop) return false;
  size_ += (hop == 0 ? 1 : 0);
  size_ -= (next_hop == 0 ? 1 : 0);
  hop = next_hop;
  const uint32_t first = address >> 16, count = 1u << (16 - length);
  for (uint32_t slot = first; slot < first + count; ++slot) {
    if (cover_length_[slot] > length + 1) continue;
    uint16_t best = next_hop;
    auto best_length = static_cast<uint8_t>(length + 1);
    for (; best == 0 && best_length > 1;) {
      --best_length;
      best = short_[node(slot << 16, best_length - 1u)];
    }
    if (best == 0) best_length = 0;
    cover_[slot] = best;
    cover_length_[slot] = best_length;
    touch(slot);
  }
  return true;
}

bool LiveFib4::set(uint32_t address, uint8_t length, uint16_t next_hop) {
  SLUICE_ASSERT(length <= 32 && next_hop <= next_hops_ && (address & ~high_mask32(length)) == 0);
  if (length <= 16) return set_short(address, length, next_hop);
  std::vector<Long>& routes = long_[address >> 16];
  const uint32_t key = (address & 0xffff) << 8 | length;
  auto at = std::lower_bound(routes.begin(), routes.end(), key, [](const Long& r, uint32_t k) { return r.key < k; });
  const bool there = at != routes.end() && at->key == key;
  if (there ? at->next_hop == next_hop : next_hop == 0) return false;
  if (!there) {
    routes.insert(at, {key, next_hop});
    ++size_;
  } else if (next_hop == 0) {
    routes.erase(at);
    --size_;
  } else {
    at->next_hop = next_hop;
  }
  touch(address >> 16);
  return true;
}

uint32_t LiveFib4::find(uint32_t address, uint8_t length) const {
  if (length <= 16) return short_[size_t{1} << length | (length == 0 ? 0 : address >> (32 - length))];
  const std::vector<Long>& routes = long_[address >> 16];
  const uint32_t key = (address & 0xffff) << 8 | length;
  auto at = std::lower_bound(routes.begin(), routes.end(), key, [](const Long& r, uint32_t k) { return r.key < k; });
  return at != routes.end() && at->key == key ? at->next_hop : 0;
}

uint32_t LiveFib4::shared_chunk(uint16_t next_hop) {
  uint32_t& chunk = shared_[next_hop];
  if (chunk != kNone) return chunk;
  if (free_chunks_.empty()) return kNone;
  chunk = free_chunks_.back();
  free_chunks_.pop_back();
  is_shared_[chunk] = true;
  std::fill_n(chunk_at(chunk), 256, next_hop);
  return chunk;
}

uint32_t LiveFib4::paint(uint32_t slot) {
  const std::vector<Long>& routes = long_[slot];
  if (routes.empty()) return shared_chunk(cover_[slot]);
  if (free_chunks_.empty()) return kNone;
  const uint32_t chunk = free_chunks_.back();
  uint16_t* entries = chunk_at(chunk);
  std::fill_n(entries, 256, cover_[slot]);
  // A route stands before those inside it, so each paints over what covers it.
  uint32_t divided = kNone, blocks = 0;
  uint16_t* block = nullptr;
  for (const Long& r : routes) {
    const uint32_t low = r.key >> 8, length = r.key & 255;
    if (length <= 24) {
      std::fill_n(entries + (low >> 8), size_t{1} << (24 - length), r.next_hop);
      continue;
    }
    if (low >> 8 != divided) {
      if (blocks == free_blocks_.size()) return kNone;
      const uint32_t index = free_blocks_[free_blocks_.size() - ++blocks];
      divided = low >> 8;
      block = block_at(index);
      std::fill_n(block, 256, entries[divided]);
      entries[divided] = static_cast<uint16_t>(next_hops_ + 1 + index);
    }
    std::fill_n(block + (low & 255), size_t{1} << (32 - length), r.next_hop);
  }
  free_blocks_.resize(free_blocks_.size() - blocks);
  free_chunks_.pop_back();
  return chunk;
}

void LiveFib4::drop_chunk(uint32_t chunk, uint64_t generation) {
  if (is_shared_[chunk]) return;
  retired_.push_back({generation, Retired::Kind::kChunk, chunk});
  const uint16_t* entries = chunk_at(chunk);
  for (size_t i = 0; i < 256; ++i) {
    if (entries[i] > next_hops_) {
      retired_.push_back({generation, Retired::Kind::kBlock, entries[i] - next_hops_ - 1});
    }
  }
}

Result<void> LiveFib4::publish() {
  if (free_roots_.empty()) {
    auto memory = Buffer::allocate(SailView::kRoots * 4);
    if (!memory) return std::move(memory).error();
    free_roots_.push_back(static_cast<uint32_t>(roots_.size()));
    roots_.push_back(std::move(*memory));
  }
  const uint32_t next = free_roots_.back();
  uint32_t* root = root_at(next);
  if (root_ == kNone) {
    std::fill_n(root, SailView::kRoots, kNone);
  } else {
    std::memcpy(root, root_at(root_), SailView::kRoots * 4);
  }
  std::sort(touched_.begin(), touched_.end());
  for (size_t i = 0; i < touched_.size(); ++i) {
    const uint32_t chunk = paint(touched_[i]);
    if (chunk == kNone) {
      // Nobody has seen the chunks painted so far.
      for (size_t k = 0; k < i; ++k) drop_chunk(root[touched_[k]] / 256, 0);
      while (!retired_.empty() && retired_.back().generation == 0) {
        give_back(retired_.back());
        retired_.pop_back();
      }
      return Error(fmt::format("the table's memory is used up: {} chunks and {} blocks are free", free_chunks_.size(),
                               free_blocks_.size()),
                   "release generations that are no longer read, or build the table anew");
    }
    root[touched_[i]] = chunk * 256;
  }
  const uint64_t generation = generation_ + 1;
  if (root_ != kNone) {
    const uint32_t* last = root_at(root_);
    for (uint32_t slot : touched_) drop_chunk(last[slot] / 256, generation);
    retired_.push_back({generation, Retired::Kind::kRoot, root_});
  }
  for (uint32_t slot : touched_) is_touched_[slot] = false;
  last_changed_ = touched_.size();
  touched_.clear();
  free_roots_.pop_back();
  root_ = next;
  generation_ = generation;
  return {};
}

SailView LiveFib4::view() const {
  SailView view;
  view.root_ = reinterpret_cast<const uint32_t*>(roots_[root_].data());
  view.entries_ = chunks_.data();
  view.blocks_ = reinterpret_cast<const uint16_t*>(blocks_.data());
  view.next_hops_ = next_hops_;
  return view;
}

void LiveFib4::give_back(const Retired& retired) {
  switch (retired.kind) {
    case Retired::Kind::kChunk:
      free_chunks_.push_back(retired.index);
      return;
    case Retired::Kind::kBlock:
      free_blocks_.push_back(retired.index);
      return;
    case Retired::Kind::kRoot:
      free_roots_.push_back(retired.index);
      return;
  }
}

void LiveFib4::release(uint64_t generation) {
  size_t n = 0;
  while (n < retired_.size() && retired_[n].generation <= generation) give_back(retired_[n++]);
  retired_.erase(retired_.begin(), retired_.begin() + static_cast<ptrdiff_t>(n));
}

}  // namespace sluice
