#include "tables/lpm/rib.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "net/flow_key.h"

namespace sluice {
namespace {

// Inputs up to 16 bytes, which is every name but a long IPv6 one, take one or two mixes.
uint64_t hash_name(std::string_view name) {
  uint64_t h = name.size();
  while (name.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, name.data(), 8);
    h = mix64(h ^ word);
    name.remove_prefix(8);
  }
  uint64_t word = 0;
  for (char c : name) word = word << 8 | static_cast<uint8_t>(c);
  return mix64(h ^ word);
}

bool same_prefix(const Route4& a, const Route4& b) {
  return a.key() == b.key();
}
bool same_prefix(const Route6& a, const Route6& b) {
  return a.hi == b.hi && a.lo == b.lo && a.length == b.length;
}

// Sorts the log (the last change of a prefix wins) and merges it into `routes`.
template <typename Route>
void fold(std::vector<Route>& routes, std::vector<Route>& pending, size_t& duplicates) {
  if (pending.empty()) return;
  auto before = [](const Route& a, const Route& b) { return route_before(a, b); };
  // Route files are sorted more often than not, though rarely in our order: ties by length are.
  if (!std::is_sorted(pending.begin(), pending.end(), before)) std::stable_sort(pending.begin(), pending.end(), before);
  size_t kept = 0;
  for (size_t i = 0; i < pending.size(); ++i) {
    if (kept > 0 && same_prefix(pending[kept - 1], pending[i])) {
      duplicates += pending[kept - 1].next_hop != 0 && pending[i].next_hop != 0 ? 1 : 0;
      pending[kept - 1] = pending[i];
    } else {
      pending[kept++] = pending[i];
    }
  }
  pending.resize(kept);
  if (routes.empty()) {
    routes = std::move(pending);
    std::erase_if(routes, [](const Route& r) { return r.next_hop == 0; });
  } else {
    std::vector<Route> merged;
    merged.reserve(routes.size() + pending.size());
    size_t i = 0;
    for (const Route& change : pending) {
      while (i < routes.size() && route_before(routes[i], change)) merged.push_back(routes[i++]);
      if (i < routes.size() && same_prefix(routes[i], change)) {
        duplicates += change.next_hop != 0 ? 1 : 0;
        ++i;
      }
      if (change.next_hop != 0) merged.push_back(change);
    }
    merged.insert(merged.end(), routes.begin() + static_cast<ptrdiff_t>(i), routes.end());
    routes = std::move(merged);
  }
  pending = {};
}

template <typename Route>
uint32_t find_in(const std::vector<Route>& routes, const std::vector<Route>& pending, const Route& wanted) {
  for (auto it = pending.rbegin(); it != pending.rend(); ++it) {
    if (same_prefix(*it, wanted)) return it->next_hop;
  }
  auto it = std::lower_bound(routes.begin(), routes.end(), wanted,
                             [](const Route& a, const Route& b) { return route_before(a, b); });
  return it != routes.end() && same_prefix(*it, wanted) ? it->next_hop : 0;
}

Route4 as_route4(const IpPrefix& p, uint32_t next_hop) {
  return {static_cast<uint32_t>(p.address.lo), static_cast<uint16_t>(next_hop), p.length, 0};
}
Route6 as_route6(const IpPrefix& p, uint32_t next_hop) {
  return {p.address.hi, p.address.lo, static_cast<uint16_t>(next_hop), p.length};
}

// How many leading bits two routes' addresses share.
unsigned common_bits(const Route4& a, const Route4& b) {
  return static_cast<unsigned>(std::countl_zero(a.address ^ b.address));
}
unsigned common_bits(const Route6& a, const Route6& b) {
  return static_cast<unsigned>(a.hi != b.hi ? std::countl_zero(a.hi ^ b.hi) : 64 + std::countl_zero(a.lo ^ b.lo));
}
Route4 shortened(Route4 r, unsigned length) {
  r.address &= high_mask32(length);
  r.length = static_cast<uint8_t>(length);
  return r;
}
Route6 shortened(Route6 r, unsigned length) {
  mask_address(r.hi, r.lo, length);
  r.length = static_cast<uint8_t>(length);
  return r;
}

// Whatever covers `wanted` stands at or before it, and so does what stands between: the last route before either covers
// it, or all that covers it is as short as what the two share.
template <typename Route>
Rib::Match match_in(const std::vector<Route>& routes, const Route& wanted) {
  auto end = routes.end();
  for (Route at = wanted;;) {
    end = std::upper_bound(routes.begin(), end, at, [](const Route& a, const Route& b) { return route_before(a, b); });
    if (end == routes.begin()) return {};
    const Route& last = *(end - 1);
    const unsigned shared = common_bits(last, wanted);
    if (shared >= last.length) return {last.length, last.next_hop};
    at = shortened(wanted, shared);
  }
}

}  // namespace

size_t NextHopIds::slot_of(std::string_view name) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_name(name) & mask;
  while (slots_[slot] != 0 && names_[slots_[slot] - 1] != name) slot = (slot + 1) & mask;
  return slot;
}

void NextHopIds::rehash(size_t slots) {
  slots_.assign(slots, 0);
  for (size_t i = 0; i < names_.size(); ++i) slots_[slot_of(names_[i])] = static_cast<uint32_t>(i + 1);
}

uint32_t NextHopIds::intern(std::string_view name) {
  if ((names_.size() + 1) * 2 > slots_.size()) rehash(std::max<size_t>(64, slots_.size() * 2));
  const size_t slot = slot_of(name);
  if (slots_[slot] != 0) return slots_[slot];
  if (names_.size() >= kMost) return 0;
  names_.emplace_back(name);
  return slots_[slot] = static_cast<uint32_t>(names_.size());
}

uint32_t NextHopIds::find(std::string_view name) const {
  return slots_.empty() ? 0 : slots_[slot_of(name)];
}

void NextHopIds::truncate(uint32_t count) {
  if (count >= names_.size()) return;
  names_.resize(count);
  rehash(slots_.size());
}

void Rib::add(const IpPrefix& prefix, uint32_t next_hop) {
  SLUICE_CHECK(next_hop >= 1 && next_hop <= ids_.count());
  if (prefix.address.family == 4) {
    pending4_.push_back(as_route4(prefix, next_hop));
  } else {
    pending6_.push_back(as_route6(prefix, next_hop));
  }
}

bool Rib::remove(const IpPrefix& prefix) {
  if (find(prefix) == 0) return false;
  if (prefix.address.family == 4) {
    pending4_.push_back(as_route4(prefix, 0));
  } else {
    pending6_.push_back(as_route6(prefix, 0));
  }
  return true;
}

uint32_t Rib::find(const IpPrefix& prefix) const {
  return prefix.address.family == 4 ? find_in(routes4_, pending4_, as_route4(prefix, 0))
                                    : find_in(routes6_, pending6_, as_route6(prefix, 0));
}

Rib::Match Rib::match(const IpAddress& address) const {
  SLUICE_CHECK(settled());
  return address.family == 4 ? match_in(routes4_, as_route4({address, 32}, 0))
                             : match_in(routes6_, as_route6({address, 128}, 0));
}

void Rib::settle() {
  fold(routes4_, pending4_, duplicates_);
  fold(routes6_, pending6_, duplicates_);
}

void Rib::rollback(const Mark& mark) {
  pending4_.resize(mark.pending4);
  pending6_.resize(mark.pending6);
  ids_.truncate(mark.names);
}

}  // namespace sluice
