#include "tables/acl/pair_index.h"

#include <bit>
#include <tuple>

#include "net/flow_key.h"

namespace sluice {
namespace {

using Member = PairIndex::Member;

auto src_of(const Member& m) {
  return std::tie(m.src_hi, m.src_lo);
}
auto dst_of(const Member& m) {
  return std::tie(m.dst_hi, m.dst_lo);
}
bool same_pair(const Member& a, const Member& b) {
  return src_of(a) == src_of(b) && dst_of(a) == dst_of(b);
}

uint64_t hash_of(const Member& m) {
  return mix64(m.src_lo ^ mix64(m.src_hi ^ mix64(m.dst_lo ^ mix64(m.dst_hi))));
}

// The members between the two, first by `a`, then by `b`.
template <typename A, typename B>
PairIndex::Run between(const std::vector<Member>& list, const Member& low, const Member& high, A a, B b) {
  const auto order = [&](const Member& x, const Member& y) { return a(x) != a(y) ? a(x) < a(y) : b(x) < b(y); };
  const auto first = std::lower_bound(list.begin(), list.end(), low, order);
  const auto last = std::upper_bound(first, list.end(), high, order);
  return {list.data() + (first - list.begin()), list.data() + (last - list.begin())};
}

}  // namespace

void PairIndex::add(uint32_t rule, const WidePrefix& src, const WidePrefix& dst) {
  const auto [place, fresh] = places_.try_emplace({src.length, dst.length}, groups_.size());
  if (fresh) {
    Group g;
    g.src_length = src.length;
    g.dst_length = dst.length;
    g.best = rule;
    groups_.push_back(std::move(g));
  }
  groups_[place->second].by_src.push_back({src.hi, src.lo, dst.hi, dst.lo, rule});
}

void PairIndex::settle() {
  // Groups were made in the order of their first rules, and stable sorts keep the rules of a pair in order.
  for (Group& g : groups_) {
    g.by_dst = g.by_src;
    std::stable_sort(g.by_src.begin(), g.by_src.end(), [](const Member& x, const Member& y) {
      return std::tie(x.src_hi, x.src_lo, x.dst_hi, x.dst_lo) < std::tie(y.src_hi, y.src_lo, y.dst_hi, y.dst_lo);
    });
    std::stable_sort(g.by_dst.begin(), g.by_dst.end(), [](const Member& x, const Member& y) {
      return std::tie(x.dst_hi, x.dst_lo, x.src_hi, x.src_lo) < std::tie(y.dst_hi, y.dst_lo, y.src_hi, y.src_lo);
    });
    std::vector<uint32_t> begins;
    for (uint32_t i = 0; i < g.by_src.size(); ++i) {
      if (i == 0 || !same_pair(g.by_src[i], g.by_src[i - 1])) begins.push_back(i);
    }
    g.slots.assign(std::bit_ceil(2 * begins.size()), {0, 0});
    const size_t mask = g.slots.size() - 1;
    begins.push_back(static_cast<uint32_t>(g.by_src.size()));
    for (size_t b = 0; b + 1 < begins.size(); ++b) {
      size_t slot = hash_of(g.by_src[begins[b]]) & mask;
      while (g.slots[slot].second != 0) slot = (slot + 1) & mask;
      g.slots[slot] = {begins[b], begins[b + 1]};
    }
  }
}

PairIndex::Run PairIndex::Group::find(const WidePrefix& src, const WidePrefix& dst) const {
  const Member wanted{src.hi, src.lo, dst.hi, dst.lo, 0};
  const size_t mask = slots.size() - 1;
  for (size_t slot = hash_of(wanted) & mask; slots[slot].second != 0; slot = (slot + 1) & mask) {
    const auto [first, last] = slots[slot];
    if (same_pair(by_src[first], wanted)) return {by_src.data() + first, by_src.data() + last};
  }
  return {};
}

PairIndex::Run PairIndex::Group::near(const WidePrefix& src, const WidePrefix& dst) const {
  const bool one_src = src_length <= src.length, one_dst = dst_length <= dst.length;
  const WidePrefix s = one_src ? src.shortened(src_length) : src, d = one_dst ? dst.shortened(dst_length) : dst;
  if (one_src && one_dst) return find(s, d);
  const WidePrefix s_end = one_src ? s : s.last(), d_end = one_dst ? d : d.last();
  const Member low{s.hi, s.lo, d.hi, d.lo, 0}, high{s_end.hi, s_end.lo, d_end.hi, d_end.lo, 0};
  if (one_src) return between(by_src, low, high, src_of, dst_of);
  if (one_dst) return between(by_dst, low, high, dst_of, src_of);
  const Run a = between(by_src, low, high, src_of, dst_of), b = between(by_dst, low, high, dst_of, src_of);
  return a.second - a.first <= b.second - b.first ? a : b;
}

}  // namespace sluice
