// Internal to patch.cpp: IPv4 routes as they change, by the /16s that they touch. Host only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bits.h"
#include "base/prefetch.h"
#include "tables/lpm/rib.h"

namespace sluice::lpm_patch {

// Routes longer than /16 lie in a small sorted vector for each /16; the others by length and address, and each /16
// knows the longest that covers it.
class RoutesBy16 {
 public:
  static constexpr uint32_t kSlots = 65536;

  // A route longer than /16 by its last 16 bits; sorted, so that a route stands before those inside it.
  struct Long {
    uint32_t key;  // address bits << 8 | length
    uint16_t next_hop;
  };

 private:
  template <typename Routes>
  static auto lower_bound(Routes& routes, uint32_t key) {
    return std::lower_bound(routes.begin(), routes.end(), key, [](const Long& r, uint32_t k) { return r.key < k; });
  }

 public:
  // See PatchedRoutes::set.
  bool set(uint32_t address, uint8_t length, uint16_t next_hop) {
    if (length <= 16) return set_short(address, length, next_hop);
    std::vector<Long>& routes = long_[address >> 16];
    const uint32_t key = (address & 0xffff) << 8 | length;
    const auto at = lower_bound(routes, key);
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
    const uint32_t first = address >> 8 & 255;
    touch(address >> 16, first, first + (length >= 24 ? 0 : (1u << (24 - length)) - 1));
    return true;
  }
  uint16_t find(uint32_t address, uint8_t length) const {
    if (length <= 16) return short_[node(address, length)];
    const std::vector<Long>& routes = long_[address >> 16];
    const uint32_t key = (address & 0xffff) << 8 | length;
    const auto at = lower_bound(routes, key);
    return at != routes.end() && at->key == key ? at->next_hop : uint16_t{0};
  }
  size_t size() const { return size_; }
  const std::vector<Long>& longer(uint32_t slot) const { return long_[slot]; }
  // The next hop of the longest route up to /16 over all of the /16, or 0.
  uint16_t cover(uint32_t slot) const { return cover_[slot]; }

  // Calls f(address, length, next_hop) for each route.
  template <typename F>
  void each(F&& f) const {
    for (uint32_t n = 1; n < short_.size(); ++n) {
      if (short_[n] == 0) continue;
      const unsigned length = 31 - leading_zeros32(n);
      f(length == 0 ? 0 : (n - (1u << length)) << (32 - length), static_cast<uint8_t>(length), short_[n]);
    }
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      for (const Long& r : long_[slot]) f(slot << 16 | r.key >> 8, static_cast<uint8_t>(r.key & 255), r.next_hop);
    }
  }

  // The /16s with a change since forget(), in order; and the /24s of one between the first and the last that changed.
  const std::vector<uint32_t>& touched() {
    std::sort(touched_.begin(), touched_.end());
    return touched_;
  }
  struct Range {
    uint8_t first = 255, last = 0;  // nothing, when first > last
  };
  Range range(uint32_t slot) const { return ranges_[slot]; }
  void forget() {
    for (uint32_t slot : touched_) ranges_[slot] = Range{};
    touched_.clear();
  }
  // Asks for the memory that longer(slot) will be read from: the vector, then (soon after) its routes.
  void prefetch_vector(uint32_t slot) const { prefetch_read(&long_[slot]); }
  void prefetch_routes(uint32_t slot) const { prefetch_read(long_[slot].data()); }

 private:
  static size_t node(uint32_t address, unsigned length) {
    return size_t{1} << length | (length == 0 ? 0 : address >> (32 - length));
  }
  void touch(uint32_t slot, uint32_t first, uint32_t last) {
    Range& range = ranges_[slot];
    if (range.first > range.last) touched_.push_back(slot);
    range.first = std::min(range.first, static_cast<uint8_t>(first));
    range.last = std::max(range.last, static_cast<uint8_t>(last));
  }
  bool set_short(uint32_t address, uint8_t length, uint16_t next_hop) {
    uint16_t& hop = short_[node(address, length)];
    if (hop == next_hop) return false;
    size_ += hop == 0 ? 1 : 0;
    size_ -= next_hop == 0 ? 1 : 0;
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
      touch(slot, 0, 255);
    }
    return true;
  }

  std::vector<std::vector<Long>> long_ = std::vector<std::vector<Long>>(kSlots);
  std::vector<uint16_t> short_ = std::vector<uint16_t>(size_t{2} * kSlots);  // by 1 << length | leading bits
  std::vector<uint16_t> cover_ = std::vector<uint16_t>(kSlots);
  std::vector<uint8_t> cover_length_ = std::vector<uint8_t>(kSlots);  // its length + 1; 0: none
  std::vector<uint32_t> touched_;
  std::vector<Range> ranges_ = std::vector<Range>(kSlots);
  size_t size_ = 0;
};

}  // namespace sluice::lpm_patch
