// Rules by their two prefixes: which of them contain a pair of prefixes, and which meet it. Host only.
//
// One group for each pair of prefix lengths that occurs (the tuples of tuple space search, Srinivasan et al., SIGCOMM
// 1999), its rules sorted by source then destination and by destination then source. Of two prefixes that meet, the
// shorter contains the longer, so a group that is shorter on a side is asked for one value there, and one that is
// longer for a run.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "net/types.h"

namespace sluice {

// A prefix on the scale of 128 bits, bits past its length zero.
struct WidePrefix {
  uint64_t hi = 0, lo = 0;
  unsigned length = 0;

  WidePrefix shortened(unsigned to) const {
    return {hi & high_mask64(std::min(to, 64u)), lo & high_mask64(to > 64 ? to - 64 : 0), to};
  }
  // The last address that begins with it.
  WidePrefix last() const {
    return {hi | ~high_mask64(std::min(length, 64u)), lo | ~high_mask64(length > 64 ? length - 64 : 0), 128};
  }
};

class PairIndex {
 public:
  struct Member {
    uint64_t src_hi, src_lo, dst_hi, dst_lo;
    uint32_t rule;
  };
  using Run = std::pair<const Member*, const Member*>;

  // Rules in ascending order; then settle, once.
  void add(uint32_t rule, const WidePrefix& src, const WidePrefix& dst);
  void settle();

  // Calls f(first, last) for runs of members, each in ascending order of rules: together the rules whose two prefixes
  // contain these, except groups whose first rule is not below `end()`, which f may lower. f returns false to stop.
  template <typename End, typename F>
  void each_around(const WidePrefix& src, const WidePrefix& dst, End&& end, F&& f) const {
    for (const Group& g : groups_) {
      if (g.best >= end()) return;
      if (g.src_length > src.length || g.dst_length > dst.length) continue;
      const Run run = g.find(src.shortened(g.src_length), dst.shortened(g.dst_length));
      if (run.first != run.second && !f(run.first, run.second)) return;
    }
  }
  // The same for runs in any order that hold all rules below `end` whose prefixes meet these, and perhaps others.
  template <typename F>
  void each_near(const WidePrefix& src, const WidePrefix& dst, uint32_t end, F&& f) const {
    for (const Group& g : groups_) {
      if (g.best >= end) return;
      const Run run = g.near(src, dst);
      if (run.first != run.second && !f(run.first, run.second)) return;
    }
  }
  // How many groups each_around and each_near look at, at most.
  size_t groups() const { return groups_.size(); }

 private:
  struct Group {
    unsigned src_length = 0, dst_length = 0;
    uint32_t best = 0;
    std::vector<Member> by_src, by_dst;
    std::vector<std::pair<uint32_t, uint32_t>>
        slots;  // where a run of equal pairs begins and ends in by_src; 0, 0: none
    Run find(const WidePrefix& src, const WidePrefix& dst) const;
    Run near(const WidePrefix& src, const WidePrefix& dst) const;
  };
  std::map<std::pair<unsigned, unsigned>, size_t> places_;
  std::vector<Group> groups_;
};

}  // namespace sluice
