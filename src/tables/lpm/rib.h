// The routing information base: the truth that FIB images are built from. Host only, control thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/types.h"

namespace sluice {

// One IPv4 route. Address bits past `length` are zero.
struct Route4 {
  uint32_t address = 0;
  uint16_t next_hop = 0;  // 1..Rib::kMaxNextHops
  uint8_t length = 0;     // 0..32
  uint8_t reserved = 0;

  // Sorts by address, then by length: a covering prefix stands before what it covers.
  uint64_t key() const { return uint64_t{address} << 8 | length; }
  friend bool operator==(const Route4&, const Route4&) = default;
};

// One IPv6 route. Address bits past `length` are zero.
struct Route6 {
  uint64_t hi = 0;
  uint64_t lo = 0;
  uint16_t next_hop = 0;
  uint8_t length = 0;  // 0..128

  friend bool operator==(const Route6&, const Route6&) = default;
};

inline bool route_before(const Route4& a, const Route4& b) {
  return a.key() < b.key();
}
inline bool route_before(const Route6& a, const Route6& b) {
  if (a.hi != b.hi) return a.hi < b.hi;
  if (a.lo != b.lo) return a.lo < b.lo;
  return a.length < b.length;
}

// Next hops as they are written <-> ids 1..kMost, in order of appearance.
class NextHopIds {
 public:
  static constexpr uint32_t kMost = 65535;

  // The id of a name; a new name gets the next id. 0 when the ids are used up.
  uint32_t intern(std::string_view name);
  // The id of a name, or 0.
  uint32_t find(std::string_view name) const;
  const std::string& name(uint32_t id) const { return names_[id - 1]; }
  std::span<const std::string> names() const { return names_; }
  uint32_t count() const { return static_cast<uint32_t>(names_.size()); }
  // Forgets all names but the first `count`.
  void truncate(uint32_t count);

 private:
  size_t slot_of(std::string_view name) const;
  void rehash(size_t slots);

  std::vector<std::string> names_;
  std::vector<uint32_t> slots_;  // open addressing over names_: id, or 0 for free
};

// Prefixes of both families -> next-hop ids, and the ids' names. Changes are appended to a log and folded into one
// sorted vector per family by settle(): loading a full table costs one sort, not a node per prefix (12 bytes a route at
// most for IPv4, 48 for IPv6, while settling).
class Rib {
 public:
  static constexpr uint32_t kMaxNextHops = NextHopIds::kMost;

  Rib() = default;
  // No routes yet, and next hops that have their ids already.
  explicit Rib(NextHopIds ids) : ids_(std::move(ids)) {}

  // The id (1..kMaxNextHops) of a next hop as it was written; a new name gets the next id. 0 when the ids are used up.
  uint32_t intern(std::string_view name) { return ids_.intern(name); }
  // The id of a name, or 0.
  uint32_t find_next_hop(std::string_view name) const { return ids_.find(name); }
  // The name of an id that intern returned.
  const std::string& next_hop_name(uint32_t id) const { return ids_.name(id); }
  // Names of ids 1..n, in order.
  std::span<const std::string> next_hop_names() const { return ids_.names(); }
  uint32_t next_hop_count() const { return ids_.count(); }
  const NextHopIds& next_hops() const { return ids_; }

  // Adds a route, or replaces the next hop of its prefix. `next_hop` is an id from intern; host bits must be clear.
  void add(const IpPrefix& prefix, uint32_t next_hop);
  void add4(uint32_t address, uint8_t length, uint32_t next_hop) {
    pending4_.push_back({address, static_cast<uint16_t>(next_hop), length, 0});
  }
  void add6(uint64_t hi, uint64_t lo, uint8_t length, uint32_t next_hop) {
    pending6_.push_back({hi, lo, static_cast<uint16_t>(next_hop), length});
  }
  // Removes a route. False when there was none.
  bool remove(const IpPrefix& prefix);
  // The next hop of exactly this prefix, or 0. Binary search, after a scan of the unsettled changes.
  uint32_t find(const IpPrefix& prefix) const;

  // A route of the longest prefix that covers an address; next_hop 0: there is none. Only valid when settled().
  struct Match {
    uint8_t length = 0;
    uint32_t next_hop = 0;
  };
  Match match(const IpAddress& address) const;

  // Folds the changes in: O(changes log changes + routes).
  void settle();
  bool settled() const { return pending4_.empty() && pending6_.empty(); }

  // Sorted, one route a prefix. Only valid when settled().
  std::span<const Route4> routes4() const { return routes4_; }
  std::span<const Route6> routes6() const { return routes6_; }
  size_t size() const { return routes4_.size() + routes6_.size(); }

  // How many adds replaced a route that stood for the same prefix. Up to date when settled.
  size_t duplicates() const { return duplicates_; }

  // A reader takes a mark first and goes back to it when its input turns out to be wrong. No settle() in between.
  struct Mark {
    size_t pending4, pending6;
    uint32_t names;
  };
  Mark mark() const { return {pending4_.size(), pending6_.size(), ids_.count()}; }
  void rollback(const Mark& mark);

 private:
  NextHopIds ids_;
  std::vector<Route4> routes4_;
  std::vector<Route6> routes6_;
  std::vector<Route4> pending4_;  // in order of arrival; next_hop 0 removes
  std::vector<Route6> pending6_;
  size_t duplicates_ = 0;
};

}  // namespace sluice
