// Routes of many sources -> the one of each prefix that packets go by. Host only, control thread only.
//
// A candidate is what one source says of a prefix. The best one has the lowest preference (administrative distance),
// then the lowest metric, then the source that was named last. The next one takes over when it goes. One source may
// have candidates of several metrics for a prefix, one each; several next hops of one candidate are one group by name
// (next_hop_group.h), so what is equal within a source shares traffic, and what comes from two sources never does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/types.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct RouteCandidate {
  uint32_t metric = 0;
  uint16_t next_hop = 0;  // of SourcedRib::next_hops()
  uint8_t source = 0;     // of SourcedRib::source()
  uint8_t preference = 0;
  uint32_t note = 0;  // of SourcedRib::note(); 0: none. Decides nothing.

  // Whether packets go by this one rather than by `other`. A strict order over the candidates of one prefix.
  bool beats(const RouteCandidate& other) const {
    if (preference != other.preference) return preference < other.preference;
    if (metric != other.metric) return metric < other.metric;
    return source > other.source;
  }
  friend bool operator==(const RouteCandidate&, const RouteCandidate&) = default;
};

// What a source says of a candidate beside its metric, for people.
struct RouteNote {
  std::string path;    // "AS 65000 at 192.0.2.1, local preference 100, 3 ASes, IGP, MED 0"
  std::string behind;  // why the source puts it behind the candidate of the next lower metric: "longer AS path"
};

// The preference of a source that goes by one of the names below, as routers have it; 1 for any other.
//   connected, kernel, control 0; static 1; ebgp, bgp 20; ospf 110; isis 115; rip 120; ibgp 200
uint8_t default_preference(std::string_view source);

// Hash tables of prefixes, 16 bytes a slot (IPv6: 24), and 16 bytes a candidate: 54 MB for a full IPv4 table.
class SourcedRib {
 public:
  static constexpr unsigned kMaxSources = 255;

  NextHopIds& next_hops() { return ids_; }
  const NextHopIds& next_hops() const { return ids_; }

  // The number of a source, 1..kMaxSources; a new name gets the next one. 0: used up.
  uint8_t source(std::string_view name);
  uint8_t find_source(std::string_view name) const;  // or 0
  const std::string& source_name(uint8_t source) const { return sources_[source - 1]; }
  unsigned source_count() const { return static_cast<unsigned>(sources_.size()); }
  // The number of a note, from 1; the caller gives each once.
  uint32_t add_note(RouteNote note);
  const RouteNote& note(uint32_t number) const { return notes_[number - 1]; }

  // A candidate, in place of the one that this source had with this metric; where that is the same, nothing changes.
  // Host bits must be clear, the next hop and the source be known. True: packets to the prefix go another way now.
  bool add(const IpPrefix& prefix, const RouteCandidate& candidate);
  // False in `found`: there was none. The result is that of add.
  bool remove(const IpPrefix& prefix, uint8_t source, uint32_t metric, bool* found = nullptr);
  // All routes of a Rib as candidates of one source with one metric. The Rib must be settled. False: the ids of next
  // hops are used up, and nothing was added.
  bool add_all(const Rib& rib, uint8_t source, uint8_t preference, uint32_t metric = 0);
  // The prefixes for which a source has candidates, with their metrics, in no order: for whoever removes them all.
  struct Owned {
    IpPrefix prefix;
    uint32_t metric = 0;
  };
  std::vector<Owned> owned(uint8_t source) const;

  // The best next hop of exactly this prefix, or 0.
  uint32_t best(const IpPrefix& prefix) const;
  // All of a prefix, best first.
  std::vector<RouteCandidate> candidates(const IpPrefix& prefix) const;
  // The longest prefix with a route that covers an address.
  Rib::Match match(const IpAddress& address) const;

  size_t prefixes() const { return four_.used + six_.used; }
  size_t candidate_count() const { return nodes_.size() - 1 - free_count_; }
  // The best route of each prefix, settled, with the same ids.
  Rib best_routes() const;
  // Whether both have the same candidates for the same prefixes, by the names of sources, their order, next hops and
  // notes, whatever their numbers are.
  bool same_routes(const SourcedRib& other) const;

  // From begin() on changes are remembered: rollback() undoes them, new next hops and sources among them (not notes,
  // for which a change has no words); commit() keeps them. Not nested.
  void begin();
  void rollback();
  void commit();
  // Whether there are any since begin().
  bool changed() const { return !undo_.empty() || ids_.count() != names_before_ || sources_.size() != sources_before_; }

 private:
  struct Node {
    RouteCandidate candidate;
    uint32_t next = 0;  // the next best, or the next free node
  };
  // Slots of open addressing; head 0: free. A prefix without candidates has no slot.
  struct Slot4 {
    uint64_t key;  // address << 8 | length
    uint32_t head = 0;
  };
  struct Slot6 {
    uint64_t hi, lo;
    uint32_t head = 0;
    uint8_t length;
  };
  template <typename Slot>
  struct Prefixes {
    std::vector<Slot> slots;
    size_t used = 0;
    std::array<uint32_t, 129> lengths{};  // prefixes of each length

    size_t find(const Slot& wanted) const;  // where it is, or the free slot where it would be
    void reserve(size_t prefixes);
    void erase(size_t at);
  };
  // Many candidates of one prefix (paths of one source by their metrics): where each is, so that a change does not walk
  // past all others. The lists themselves are as those of few.
  struct Index {
    std::map<uint64_t, uint32_t> by_rank;             // rank_of -> node, best first
    std::unordered_map<uint64_t, uint32_t> by_owner;  // owner_of -> node
  };
  struct PrefixHash {
    size_t operator()(const IpPrefix& p) const;
  };
  struct Undo {
    IpPrefix prefix;
    RouteCandidate candidate;
    bool added = false;  // true: take it away; false: bring it back
  };

  template <typename F>
  auto in_family(const IpPrefix& prefix, F&& f);
  uint32_t head_of(const IpPrefix& prefix) const;
  template <typename F>
  bool each_head(F&& f) const;  // f(prefix, node of the best), until it is false
  uint32_t new_node();
  void free_node(uint32_t node);

  static constexpr unsigned kIndexFrom = 64;  // candidates of a prefix
  static uint64_t rank_of(const RouteCandidate& c) {
    return uint64_t{c.preference} << 40 | uint64_t{c.metric} << 8 | (kMaxSources - c.source);
  }
  static uint64_t owner_of(uint8_t source, uint32_t metric) { return uint64_t{source} << 32 | metric; }
  Index* find_index(const IpPrefix& prefix);  // nullptr: there is none
  void make_index(const IpPrefix& prefix, uint32_t head);
  // The link to the node at `at`.
  uint32_t* link_to(uint32_t& head, const Index& index, std::map<uint64_t, uint32_t>::const_iterator at);
  void add_by_index(uint32_t& head, Index& index, const IpPrefix& prefix, const RouteCandidate& candidate);
  // False: there was none. The list has candidates left; the index may be gone.
  bool remove_by_index(uint32_t& head, Index& index, const IpPrefix& prefix, uint8_t source, uint32_t metric);

  NextHopIds ids_;
  std::vector<std::string> sources_;
  std::vector<RouteNote> notes_;
  Prefixes<Slot4> four_;
  Prefixes<Slot6> six_;
  std::vector<Node> nodes_{1};  // node 0 is none
  std::unordered_map<IpPrefix, Index, PrefixHash> indexes_;
  uint32_t free_ = 0;
  size_t free_count_ = 0;
  bool remembers_ = false;
  std::vector<Undo> undo_;
  uint32_t names_before_ = 0;
  size_t sources_before_ = 0;
};

}  // namespace sluice
