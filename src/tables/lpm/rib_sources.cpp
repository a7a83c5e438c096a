#include "tables/lpm/rib_sources.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/assert.h"
#include "net/flow_key.h"

namespace sluice {
namespace {

template <typename Slot>
Slot slot_of(const IpPrefix& p) {
  if constexpr (requires(Slot s) { s.key; }) {
    return {p.address.lo << 8 | p.length, 0};
  } else {
    return {p.address.hi, p.address.lo, 0, p.length};
  }
}
template <typename Slot>
IpPrefix prefix_of(const Slot& s) {
  if constexpr (requires { s.key; }) {
    return {{0, s.key >> 8, 4}, static_cast<uint8_t>(s.key)};
  } else {
    return {{s.hi, s.lo, 6}, s.length};
  }
}
template <typename Slot>
bool same(const Slot& a, const Slot& b) {
  if constexpr (requires { a.key; }) {
    return a.key == b.key;
  } else {
    return a.hi == b.hi && a.lo == b.lo && a.length == b.length;
  }
}
template <typename Slot>
size_t hash_of(const Slot& s) {
  if constexpr (requires { s.key; }) {
    return mix64(s.key);
  } else {
    return mix64(mix64(s.hi ^ uint64_t{s.length} << 56) ^ s.lo);
  }
}

}  // namespace

uint8_t default_preference(std::string_view source) {
  struct Known {
    std::string_view name;
    uint8_t preference;
  };
  static constexpr Known kKnown[] = {{"connected", 0}, {"kernel", 0}, {"control", 0}, {"ebgp", 20}, {"bgp", 20},
                                     {"ospf", 110},    {"isis", 115}, {"rip", 120},   {"ibgp", 200}};
  for (const Known& known : kKnown) {
    if (known.name == source) return known.preference;
  }
  return 1;
}

// --- slots ---

template <typename Slot>
size_t SourcedRib::Prefixes<Slot>::find(const Slot& wanted) const {
  const size_t mask = slots.size() - 1;
  size_t at = hash_of(wanted) & mask;
  while (slots[at].head != 0 && !same(slots[at], wanted)) at = (at + 1) & mask;
  return at;
}

template <typename Slot>
void SourcedRib::Prefixes<Slot>::reserve(size_t prefixes) {
  if (prefixes * 2 <= slots.size()) return;
  std::vector<Slot> old(std::max<size_t>(64, std::bit_ceil(prefixes * 2)));
  old.swap(slots);
  for (const Slot& slot : old) {
    if (slot.head != 0) slots[find(slot)] = slot;
  }
}

// What stands behind a hole and would not be found across it moves into it (Knuth, volume 3, 6.4, algorithm R).
template <typename Slot>
void SourcedRib::Prefixes<Slot>::erase(size_t at) {
  const size_t mask = slots.size() - 1;
  for (size_t next = (at + 1) & mask; slots[next].head != 0; next = (next + 1) & mask) {
    const size_t home = hash_of(slots[next]) & mask;
    if (((next - home) & mask) < ((next - at) & mask)) continue;
    slots[at] = slots[next];
    at = next;
  }
  slots[at].head = 0;
  --used;
}

template <typename F>
auto SourcedRib::in_family(const IpPrefix& prefix, F&& f) {
  return prefix.address.family == 4 ? f(four_, slot_of<Slot4>(prefix)) : f(six_, slot_of<Slot6>(prefix));
}

uint32_t SourcedRib::new_node() {
  if (free_ == 0) {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  const uint32_t node = free_;
  free_ = nodes_[node].next;
  --free_count_;
  return node;
}

void SourcedRib::free_node(uint32_t node) {
  nodes_[node].next = free_;
  free_ = node;
  ++free_count_;
}

// --- sources ---

uint8_t SourcedRib::find_source(std::string_view name) const {
  const auto it = std::find(sources_.begin(), sources_.end(), name);
  return it == sources_.end() ? uint8_t{0} : static_cast<uint8_t>(it - sources_.begin() + 1);
}

uint8_t SourcedRib::source(std::string_view name) {
  if (const uint8_t known = find_source(name); known != 0) return known;
  if (sources_.size() == kMaxSources) return 0;
  sources_.emplace_back(name);
  return static_cast<uint8_t>(sources_.size());
}

uint32_t SourcedRib::add_note(RouteNote note) {
  notes_.push_back(std::move(note));
  return static_cast<uint32_t>(notes_.size());
}

// --- changes ---

size_t SourcedRib::PrefixHash::operator()(const IpPrefix& p) const {
  return mix64(mix64(p.address.hi ^ uint64_t{p.length} << 56) ^ p.address.lo ^ p.address.family);
}

[[gnu::noinline]] SourcedRib::Index* SourcedRib::find_index(const IpPrefix& prefix) {
  const auto it = indexes_.find(prefix);
  return it == indexes_.end() ? nullptr : &it->second;
}

void SourcedRib::make_index(const IpPrefix& prefix, uint32_t head) {
  Index& index = indexes_[prefix];
  for (uint32_t i = head; i != 0; i = nodes_[i].next) {
    const RouteCandidate& c = nodes_[i].candidate;
    index.by_rank.emplace_hint(index.by_rank.end(), rank_of(c), i);
    index.by_owner.emplace(owner_of(c.source, c.metric), i);
  }
}

uint32_t* SourcedRib::link_to(uint32_t& head, const Index& index, std::map<uint64_t, uint32_t>::const_iterator at) {
  return at == index.by_rank.begin() ? &head : &nodes_[std::prev(at)->second].next;
}

[[gnu::noinline]] void SourcedRib::add_by_index(uint32_t& head, Index& index, const IpPrefix& prefix,
                                                const RouteCandidate& candidate) {
  uint32_t& node = index.by_owner[owner_of(candidate.source, candidate.metric)];
  if (node != 0 && nodes_[node].candidate == candidate) return;
  if (remembers_) {
    undo_.push_back(node != 0 ? Undo{prefix, nodes_[node].candidate, false} : Undo{prefix, candidate, true});
  }
  if (node != 0) {
    const auto before = index.by_rank.find(rank_of(nodes_[node].candidate));
    *link_to(head, index, before) = nodes_[node].next;
    index.by_rank.erase(before);
  } else {
    node = new_node();
  }
  const auto at = index.by_rank.emplace(rank_of(candidate), node).first;
  uint32_t* const link = link_to(head, index, at);
  nodes_[node] = {candidate, *link};
  *link = node;
}

[[gnu::noinline]] bool SourcedRib::remove_by_index(uint32_t& head, Index& index, const IpPrefix& prefix, uint8_t source,
                                                   uint32_t metric) {
  const auto owner = index.by_owner.find(owner_of(source, metric));
  if (owner == index.by_owner.end()) return false;
  const uint32_t node = owner->second;
  if (remembers_) undo_.push_back({prefix, nodes_[node].candidate, false});
  const auto at = index.by_rank.find(rank_of(nodes_[node].candidate));
  *link_to(head, index, at) = nodes_[node].next;
  index.by_rank.erase(at);
  index.by_owner.erase(owner);
  free_node(node);
  if (index.by_rank.size() < kIndexFrom / 2) indexes_.erase(prefix);
  return true;
}

bool SourcedRib::add(const IpPrefix& prefix, const RouteCandidate& candidate) {
  SLUICE_CHECK(candidate.next_hop >= 1 && candidate.next_hop <= ids_.count());
  SLUICE_CHECK(candidate.source >= 1 && candidate.source <= sources_.size());
  return in_family(prefix, [&](auto& prefixes, auto slot) {
    prefixes.reserve(prefixes.used + 1);
    const size_t at = prefixes.find(slot);
    uint32_t head = prefixes.slots[at].head;
    const uint32_t before = head == 0 ? 0 : nodes_[head].candidate.next_hop;
    if (!indexes_.empty()) [[unlikely]] {
      if (Index* const index = find_index(prefix)) {
        add_by_index(prefixes.slots[at].head, *index, prefix, candidate);
        return nodes_[prefixes.slots[at].head].candidate.next_hop != before;
      }
    }
    if (head == 0) {
      ++prefixes.used;
      ++prefixes.lengths[prefix.length];
    }
    // Its predecessor goes first: with another preference it stands elsewhere.
    uint32_t node = 0;
    unsigned walked = 0;
    for (uint32_t *link = &head, i; (i = *link) != 0; link = &nodes_[i].next, ++walked) {
      if (nodes_[i].candidate.source != candidate.source || nodes_[i].candidate.metric != candidate.metric) continue;
      if (nodes_[i].candidate == candidate) return false;
      *link = nodes_[i].next;
      node = i;
      break;
    }
    if (remembers_) {
      undo_.push_back(node != 0 ? Undo{prefix, nodes_[node].candidate, false} : Undo{prefix, candidate, true});
    }
    if (node == 0) node = new_node();
    uint32_t* link = &head;
    while (*link != 0 && nodes_[*link].candidate.beats(candidate)) link = &nodes_[*link].next;
    nodes_[node] = {candidate, *link};
    *link = node;
    slot.head = head;
    prefixes.slots[at] = slot;
    if (walked >= kIndexFrom) [[unlikely]]
      make_index(prefix, head);
    return nodes_[head].candidate.next_hop != before;
  });
}

bool SourcedRib::remove(const IpPrefix& prefix, uint8_t source, uint32_t metric, bool* found) {
  if (found != nullptr) *found = false;
  return in_family(prefix, [&](auto& prefixes, const auto& slot) {
    if (prefixes.slots.empty()) return false;
    const size_t at = prefixes.find(slot);
    uint32_t head = prefixes.slots[at].head;
    const uint32_t before = head == 0 ? 0 : nodes_[head].candidate.next_hop;
    if (!indexes_.empty()) [[unlikely]] {
      if (Index* const index = find_index(prefix)) {
        const bool there = remove_by_index(prefixes.slots[at].head, *index, prefix, source, metric);
        if (found != nullptr) *found = there;
        return nodes_[prefixes.slots[at].head].candidate.next_hop != before;
      }
    }
    for (uint32_t *link = &head, i; (i = *link) != 0; link = &nodes_[i].next) {
      if (nodes_[i].candidate.source != source || nodes_[i].candidate.metric != metric) continue;
      if (remembers_) undo_.push_back({prefix, nodes_[i].candidate, false});
      *link = nodes_[i].next;
      free_node(i);
      prefixes.slots[at].head = head;
      if (found != nullptr) *found = true;
      if (head != 0) return nodes_[head].candidate.next_hop != before;
      --prefixes.lengths[prefix.length];
      prefixes.erase(at);
      return true;
    }
    return false;
  });
}

bool SourcedRib::add_all(const Rib& rib, uint8_t source, uint8_t preference, uint32_t metric) {
  std::vector<uint16_t> id(rib.next_hop_count() + size_t{1});
  const uint32_t before = ids_.count();
  for (uint32_t i = 1; i <= rib.next_hop_count(); ++i) {
    if ((id[i] = static_cast<uint16_t>(ids_.intern(rib.next_hop_name(i)))) == 0) {
      ids_.truncate(before);
      return false;
    }
  }
  four_.reserve(four_.used + rib.routes4().size());
  six_.reserve(six_.used + rib.routes6().size());
  nodes_.reserve(nodes_.size() + rib.size());
  for (const Route4& r : rib.routes4())
    add({{0, r.address, 4}, r.length}, {metric, id[r.next_hop], source, preference});
  for (const Route6& r : rib.routes6()) add({{r.hi, r.lo, 6}, r.length}, {metric, id[r.next_hop], source, preference});
  return true;
}

std::vector<SourcedRib::Owned> SourcedRib::owned(uint8_t source) const {
  std::vector<Owned> all;
  const auto walk = [&](const auto& prefixes) {
    for (const auto& slot : prefixes.slots) {
      for (uint32_t i = slot.head; i != 0; i = nodes_[i].next) {
        if (nodes_[i].candidate.source == source) all.push_back({prefix_of(slot), nodes_[i].candidate.metric});
      }
    }
  };
  walk(four_);
  walk(six_);
  return all;
}

// --- questions ---

uint32_t SourcedRib::head_of(const IpPrefix& prefix) const {
  return const_cast<SourcedRib*>(this)->in_family(prefix, [](const auto& prefixes, const auto& slot) {
    return prefixes.slots.empty() ? 0 : prefixes.slots[prefixes.find(slot)].head;
  });
}

uint32_t SourcedRib::best(const IpPrefix& prefix) const {
  return nodes_[head_of(prefix)].candidate.next_hop;
}

std::vector<RouteCandidate> SourcedRib::candidates(const IpPrefix& prefix) const {
  std::vector<RouteCandidate> all;
  for (uint32_t i = head_of(prefix); i != 0; i = nodes_[i].next) all.push_back(nodes_[i].candidate);
  return all;
}

Rib::Match SourcedRib::match(const IpAddress& address) const {
  const auto& lengths = address.family == 4 ? four_.lengths : six_.lengths;
  for (int length = address.family == 4 ? 32 : 128; length >= 0; --length) {
    if (lengths[static_cast<size_t>(length)] == 0) continue;
    if (const uint32_t hop = best(prefix_around(address, static_cast<unsigned>(length))); hop != 0)
      return {static_cast<uint8_t>(length), hop};
  }
  return {};
}

Rib SourcedRib::best_routes() const {
  Rib rib(ids_);
  for (const Slot4& s : four_.slots) {
    if (s.head != 0)
      rib.add4(static_cast<uint32_t>(s.key >> 8), static_cast<uint8_t>(s.key), nodes_[s.head].candidate.next_hop);
  }
  for (const Slot6& s : six_.slots) {
    if (s.head != 0) rib.add6(s.hi, s.lo, s.length, nodes_[s.head].candidate.next_hop);
  }
  rib.settle();
  return rib;
}

// --- transactions ---

template <typename F>
bool SourcedRib::each_head(F&& f) const {
  const auto walk = [&](const auto& prefixes) {
    return std::all_of(prefixes.slots.begin(), prefixes.slots.end(),
                       [&](const auto& slot) { return slot.head == 0 || f(prefix_of(slot), slot.head); });
  };
  return walk(four_) && walk(six_);
}

bool SourcedRib::same_routes(const SourcedRib& other) const {
  if (prefixes() != other.prefixes() || candidate_count() != other.candidate_count()) return false;
  // Of equal preference and metric the source that was named last wins: their order counts. One that only one of them
  // has named has no candidates left, or is found to be missing below.
  std::vector<uint8_t> source_there(sources_.size() + 1);
  uint8_t last = 0;
  for (size_t s = 1; s <= sources_.size(); ++s) {
    source_there[s] = other.find_source(sources_[s - 1]);
    if (source_there[s] != 0 && source_there[s] < last) return false;
    last = std::max(last, source_there[s]);
  }
  // The other's number of a next hop; 0: it does not know it. Two names are never one there, nor one name two.
  std::vector<uint32_t> theirs(ids_.count() + size_t{1});
  for (uint32_t id = 1; id <= ids_.count(); ++id) theirs[id] = other.ids_.find(ids_.name(id));
  const auto same_note = [&](uint32_t mine, uint32_t its) {
    if (mine == 0 || its == 0) return mine == its;
    return note(mine).path == other.note(its).path && note(mine).behind == other.note(its).behind;
  };
  return each_head([&](const IpPrefix& prefix, uint32_t head) {
    uint32_t its = other.head_of(prefix);
    for (uint32_t mine = head; mine != 0; mine = nodes_[mine].next, its = other.nodes_[its].next) {
      if (its == 0) return false;
      const RouteCandidate &a = nodes_[mine].candidate, &b = other.nodes_[its].candidate;
      if (a.metric != b.metric || a.preference != b.preference || source_there[a.source] != b.source ||
          theirs[a.next_hop] != b.next_hop || !same_note(a.note, b.note))
        return false;
    }
    return its == 0;
  });
}

void SourcedRib::begin() {
  SLUICE_CHECK(!remembers_);
  remembers_ = true;
  names_before_ = ids_.count();
  sources_before_ = sources_.size();
}

void SourcedRib::commit() {
  remembers_ = false;
  undo_ = {};
}

void SourcedRib::rollback() {
  remembers_ = false;
  for (auto it = undo_.rbegin(); it != undo_.rend(); ++it) {
    if (it->added) {
      remove(it->prefix, it->candidate.source, it->candidate.metric);
    } else {
      add(it->prefix, it->candidate);
    }
  }
  undo_ = {};
  ids_.truncate(names_before_);
  sources_.resize(sources_before_);
}

}  // namespace sluice
