// host only
// Descent: places packets that elements made into the order of packets, whatever batches they were in.
//
// Where packets meet again a packet comes first, then what it caused: at its last element first, as that stands nearest
// to it, and there in the order in which it was made; each followed by its own in the same way. So packets come out as
// if every element put what it makes right behind the packet that it makes it of, and a packet went all its way before
// the next one: however many packets a batch has, and however packets are put into batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "batch/batch.h"

namespace sluice {

class Descent {
 public:
  // A packet's visits of elements have numbers that go up; more than 255 outputs no element has.
  static uint64_t maker(uint64_t visit, unsigned output) { return visit << 8 | (output & 0xff); }

  // The names of a batch's packets, which follow one another: their parents have theirs. Returns the first.
  uint32_t add(const Batch& batch) {
    const auto first = static_cast<uint32_t>(kFirst + births_.size());
    for (uint32_t i = 0; i < batch.size(); ++i) births_.push_back(batch.birth(i));
    return first;
  }

  // By name: numbers from 1, in the order in which packets that descend from one packet come.
  class Places {
   public:
    uint32_t operator[](uint32_t name) const { return places_[name - kFirst]; }

   private:
    friend class Descent;
    explicit Places(const std::vector<uint32_t>& places) : places_(places) {}
    const std::vector<uint32_t>& places_;
  };
  // Valid until the next call. Every parent that is not of the batch that came in has been added.
  Places places();

  void clear() { births_.clear(); }

 private:
  static constexpr uint32_t kFirst = Batch::kMaxPackets;  // below: packets of the batch that came in

  std::vector<Batch::Birth> births_;
  std::vector<uint32_t> sorted_, first_child_, places_, open_;
};

inline Descent::Places Descent::places() {
  const auto n = static_cast<uint32_t>(births_.size());
  sorted_.resize(n);
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  // Children of one parent stand together, in their order.
  std::sort(sorted_.begin(), sorted_.end(), [this](uint32_t a, uint32_t b) {
    const Batch::Birth &x = births_[a], &y = births_[b];
    return std::tuple(x.parent, y.maker >> 8, x.maker & 0xff, a) <
           std::tuple(y.parent, x.maker >> 8, y.maker & 0xff, b);
  });
  first_child_.assign(n, n);
  for (uint32_t at = n; at-- > 0;) {
    const uint32_t parent = births_[sorted_[at]].parent;
    if (parent >= kFirst) first_child_[parent - kFirst] = at;
  }
  places_.resize(n);
  uint32_t next = 1;
  for (uint32_t at = 0; at < n && births_[sorted_[at]].parent < kFirst; ++at) {
    // Places of siblings that are still to come are on the stack.
    open_.push_back(at);
    while (!open_.empty()) {
      const uint32_t here = open_.back();
      open_.pop_back();
      const uint32_t packet = sorted_[here];
      places_[packet] = next++;
      const uint32_t parent = births_[packet].parent;
      if (parent >= kFirst && here + 1 < n && births_[sorted_[here + 1]].parent == parent) open_.push_back(here + 1);
      if (first_child_[packet] != n) open_.push_back(first_child_[packet]);
    }
  }
  return Places(places_);
}

}  // namespace sluice
