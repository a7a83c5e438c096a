// The builder of tuple_space: chooses the tables by greedy cover, then lays out filters, slots and entries.
//
// A candidate tuple is the tuple of some rule with lengths rounded down and fields left out. Its gain is the number of
// rules, not yet placed, that it can take with at most `limit` rules in a bucket. The candidate with the largest gain
// becomes a table; the rules beyond the limit wait for another table, or for a larger limit when no candidate gains
// enough: so the number of tables stays bounded on any input, and rules that only ranges tell apart end in one long
// bucket. Gains only shrink as rules are placed, hence the lazy heap: a stale gain is an upper bound.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "tables/acl/tuple_rules.h"
#include "tables/acl/tuple_space.h"
#include "tables/acl/tuple_space_layout.h"

namespace sluice {
namespace {

using tuple_detail::Tuple;
using tuple_space_detail::Header;

struct Narrow {
  static constexpr uint8_t kBits = 32;
  struct Item {
    uint32_t src, dst, ports, protocol;
  };
  static Item item(const AclMatchRule& r, uint32_t ports, uint32_t protocol) {
    return {static_cast<uint32_t>(r.src_lo), static_cast<uint32_t>(r.dst_lo), ports, protocol};
  }
  static uint32_t hash(const TupleTable& t, const Item& i) { return tuple_hash4(t, i.src, i.dst, i.ports, i.protocol); }
};

struct Wide {
  static constexpr uint8_t kBits = 128;
  struct Item {
    uint32_t words[8];
    uint32_t ports, protocol;
  };
  static Item item(const AclMatchRule& r, uint32_t ports, uint32_t protocol) {
    return {
        {static_cast<uint32_t>(r.src_hi >> 32), static_cast<uint32_t>(r.src_hi), static_cast<uint32_t>(r.src_lo >> 32),
         static_cast<uint32_t>(r.src_lo), static_cast<uint32_t>(r.dst_hi >> 32), static_cast<uint32_t>(r.dst_hi),
         static_cast<uint32_t>(r.dst_lo >> 32), static_cast<uint32_t>(r.dst_lo)},
        ports,
        protocol};
  }
  static uint32_t hash(const TupleTable& t, const Item& i) { return tuple_hash6(t, i.words, i.ports, i.protocol); }
};

// Masks and word list of a tuple; sizes and bases are set later.
template <typename Family>
TupleTable table_of(const Tuple& tuple) {
  TupleTable t{};
  const unsigned skip = 128 - Family::kBits;
  auto fill = [&](uint32_t(&mask)[4], unsigned length) {
    if (length == 0) return;
    length += skip;
    for (unsigned w = 0; w < 4; ++w) {
      const unsigned bits = length > 32 * w ? std::min(32u, length - 32 * w) : 0;
      if (32 * w >= skip) mask[w] = high_mask32(bits);
    }
  };
  fill(t.src_mask, tuple.src);
  fill(t.dst_mask, tuple.dst);
  for (unsigned w = 0; w < 4; ++w) {
    if (t.src_mask[w] != 0) t.words |= static_cast<uint8_t>(1u << w);
    if (t.dst_mask[w] != 0) t.words |= static_cast<uint8_t>(16u << w);
  }
  t.port_mask =
      ((tuple.fields & Tuple::kSrcPort) != 0 ? 0xffff0000u : 0) | ((tuple.fields & Tuple::kDstPort) != 0 ? 0xffffu : 0);
  t.protocol_mask = (tuple.fields & Tuple::kProtocol) != 0 ? ~0u : 0;
  return t;
}

// Shift that leaves enough high bits for 2 slots a rule.
uint8_t slot_shift_for(size_t rules) {
  const unsigned bits = std::bit_width(std::max<size_t>(1, 2 * rules - 1));
  return static_cast<uint8_t>(32 - std::min(bits, 30u));
}
// 16 to 32 filter bits a rule.
uint8_t filter_shift_for(size_t rules) {
  const unsigned bits = std::bit_width(std::max<size_t>(1, rules / 2));
  return static_cast<uint8_t>(32 -
                              std::min(bits - (std::has_single_bit(std::max<size_t>(1, rules / 2)) ? 1u : 0u), 28u));
}

struct Chosen {
  TupleTable table;
  std::vector<uint64_t> placed;  // slot << 32 | index of the rule in `rules`, sorted
};

template <typename Family>
class Chooser {
 public:
  explicit Chooser(std::vector<const AclMatchRule*> rules) : rules_(std::move(rules)) { group(); }

  std::vector<Chosen> run() {
    make_candidates();
    std::vector<Chosen> chosen;
    size_t limit = kFirstLimit;
    while (left_ > 0) {
      const bool last = chosen.size() + 1 >= kMaxChosen;
      if (last) limit = ~size_t{0};
      const size_t floor = std::min(left_, std::max<size_t>({1, left_ / 12, rules_.size() / 512}));
      const auto pick = last ? std::optional<size_t>(residual()) : best_candidate(limit, floor);
      if (!pick) {
        limit *= 2;
        for (Scored& s : scored_) s.current = ~0u;
        rebuild_heap();
        continue;
      }
      chosen.push_back(place(candidates_[*pick], limit));
      ++round_;
    }
    return chosen;
  }

  const std::vector<const AclMatchRule*>& rules() const { return rules_; }
  uint64_t steps() const { return steps_; }

 private:
  static constexpr size_t kFirstLimit = 2;
  static constexpr size_t kMaxChosen = 96;

  struct Group {
    Tuple tuple;
    std::vector<uint32_t> left;  // indices into rules_, in order
  };
  struct Scored {
    size_t gain = 0;         // exact when current == round_, else an upper bound
    uint32_t current = ~0u;  // the round of the last evaluation
  };

  void group() {
    items_.reserve(rules_.size());
    std::unordered_map<uint32_t, size_t> index;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const AclMatchRule& r = *rules_[i];
      const Tuple tuple = tuple_detail::tuple_of(r, Family::kBits);
      items_.push_back(
          Family::item(r, uint32_t{r.src_port_low} << 16 | r.dst_port_low, r.protocol * kTupleProtocolFactor));
      const auto [it, fresh] = index.try_emplace(tuple.id(), groups_.size());
      if (fresh) groups_.push_back({tuple, {}});
      groups_[it->second].left.push_back(static_cast<uint32_t>(i));
    }
    // Coarse rules first: they have the fewest tables to go to.
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const Group& a, const Group& b) { return a.tuple.weight() < b.tuple.weight(); });
    left_ = rules_.size();
  }

  void make_candidates() {
    std::unordered_set<uint32_t> seen;
    auto add = [&](Tuple t) {
      if (seen.insert(t.id()).second) candidates_.push_back(t);
    };
    for (const Group& g : groups_) {
      const auto lengths = [](uint8_t l) {
        return std::array<uint8_t, 4>{l, static_cast<uint8_t>(l & ~3), static_cast<uint8_t>(l & ~7), 0};
      };
      for (uint8_t src : lengths(g.tuple.src)) {
        for (uint8_t dst : lengths(g.tuple.dst)) {
          for (uint8_t ports : {3, 2, 1, 0})
            add({src, dst, static_cast<uint8_t>(g.tuple.fields & (ports | Tuple::kProtocol))});
        }
      }
    }
    add({0, 0, 0});
    scored_.resize(candidates_.size());
    rebuild_heap();
  }

  size_t compatible(const Tuple& tuple) const {
    size_t n = 0;
    for (const Group& g : groups_) {
      if (tuple.covers(g.tuple)) n += g.left.size();
    }
    return n;
  }

  void rebuild_heap() {
    heap_.clear();
    for (size_t c = 0; c < candidates_.size(); ++c) {
      if (scored_[c].current == ~0u) scored_[c].gain = compatible(candidates_[c]);
      if (scored_[c].gain > 0) heap_.push_back(c);
    }
    std::make_heap(heap_.begin(), heap_.end(), less());
  }

  auto less() const {
    return [this](size_t a, size_t b) {
      if (scored_[a].gain != scored_[b].gain) return scored_[a].gain < scored_[b].gain;
      return candidates_[a].weight() < candidates_[b].weight();  // the finer one first
    };
  }

  // The candidate that gains most, when that is at least `floor`.
  std::optional<size_t> best_candidate(size_t limit, size_t floor) {
    while (!heap_.empty()) {
      const size_t c = heap_.front();
      Scored& s = scored_[c];
      if (s.gain < floor) return std::nullopt;
      if (s.current == round_) return c;
      std::pop_heap(heap_.begin(), heap_.end(), less());
      s.gain = gain(candidates_[c], limit);
      s.current = round_;
      if (s.gain > 0) {
        heap_.back() = c;
        std::push_heap(heap_.begin(), heap_.end(), less());
      } else {
        heap_.pop_back();
      }
    }
    return std::nullopt;
  }

  // The candidate that everything left fits, with the most key bits.
  size_t residual() const {
    size_t found = 0;
    bool any = false;
    for (size_t c = 0; c < candidates_.size(); ++c) {
      if (compatible(candidates_[c]) != left_) continue;
      if (!any || candidates_[c].weight() > candidates_[found].weight()) found = c;
      any = true;
    }
    return found;
  }

  size_t gain(const Tuple& tuple, size_t limit) {
    const size_t n = compatible(tuple);
    if (limit >= n) return n;
    steps_ += n;
    const TupleTable t = table_of<Family>(tuple);
    const uint8_t shift = slot_shift_for(n);
    counts_.assign(size_t{1} << (32 - shift), 0);
    size_t total = 0;
    for (const Group& g : groups_) {
      if (!tuple.covers(g.tuple)) continue;
      for (uint32_t i : g.left) {
        uint32_t& count = counts_[uint64_t{Family::hash(t, items_[i])} >> shift];
        total += count < limit;
        ++count;
      }
    }
    return total;
  }

  Chosen place(const Tuple& tuple, size_t limit) {
    Chosen chosen{table_of<Family>(tuple), {}};
    const size_t n = compatible(tuple);
    steps_ += n;
    const uint8_t shift = slot_shift_for(n);
    counts_.assign(size_t{1} << (32 - shift), 0);
    for (Group& g : groups_) {
      if (!tuple.covers(g.tuple)) continue;
      std::erase_if(g.left, [&](uint32_t i) {
        const uint64_t slot = uint64_t{Family::hash(chosen.table, items_[i])} >> shift;
        if (counts_[slot] >= limit) return false;
        ++counts_[slot];
        chosen.placed.push_back(slot << 32 | i);
        return true;
      });
    }
    left_ -= chosen.placed.size();
    // Fewer rules than were weighed may need fewer slots.
    const uint8_t exact = slot_shift_for(chosen.placed.size());
    for (uint64_t& p : chosen.placed) p = (p >> 32 >> (exact - shift)) << 32 | static_cast<uint32_t>(p);
    std::sort(chosen.placed.begin(), chosen.placed.end());
    TupleTable& t = chosen.table;
    t.slot_shift = exact;
    t.filter_shift = filter_shift_for(chosen.placed.size());
    t.entries = static_cast<uint32_t>(chosen.placed.size());
    t.best = ~0u;
    for (uint64_t p : chosen.placed) t.best = std::min(t.best, rules_[static_cast<uint32_t>(p)]->rule);
    return chosen;
  }

  std::vector<const AclMatchRule*> rules_;
  std::vector<typename Family::Item> items_;
  std::vector<Group> groups_;
  std::vector<Tuple> candidates_;
  std::vector<Scored> scored_;
  std::vector<size_t> heap_;
  std::vector<uint32_t> counts_;
  size_t left_ = 0;
  uint32_t round_ = 0;
  uint64_t steps_ = 0;
};

TupleEntry4 entry4(const AclMatchRule& r) {
  TupleEntry4 e{};
  e.src = static_cast<uint32_t>(r.src_lo);
  e.dst = static_cast<uint32_t>(r.dst_lo);
  e.src_port_low = r.src_port_low;
  e.src_port_span = static_cast<uint16_t>(r.src_port_high - r.src_port_low);
  e.dst_port_low = r.dst_port_low;
  e.dst_port_span = static_cast<uint16_t>(r.dst_port_high - r.dst_port_low);
  e.flags = r.flags;
  e.flags_mask = r.flags_mask;
  e.protocol = r.protocol;
  e.protocol_mask = r.protocol_mask;
  e.src_free = static_cast<uint8_t>(r.src_length == 0 ? 32 : 128 - r.src_length);
  e.dst_free = static_cast<uint8_t>(r.dst_length == 0 ? 32 : 128 - r.dst_length);
  e.dscp = r.dscp;
  e.dscp_mask = r.dscp_mask;
  e.bits = r.bits;
  e.bits_mask = r.bits_mask;
  e.rule = r.rule | (r.icmp_mask != 0 ? TupleEntry4::kIcmp : 0);
  return e;
}

// Fewer tables, or rules, are searched as quickly as they are pruned.
constexpr size_t kPruneTables = 8, kPruneRules = 512;

// The sets of tables by field for `tables`, which stand in their final order.
std::vector<std::byte> make_prune(const Chooser<Narrow>& chooser, const std::vector<Chosen>& tables) {
  std::vector<tuple_prune_detail::Placed> placed;
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (uint64_t p : tables[t].placed) placed.push_back({chooser.rules()[static_cast<uint32_t>(p)], t});
  }
  std::vector<std::byte> bytes = tuple_prune_detail::make_prune(placed);
  for (uint32_t t = 0; t < tables.size(); ++t) {
    const TupleTable& from = tables[t].table;
    const TuplePrune::Table to{.slot_base = from.slot_base,
                               .best = from.best,
                               .port_mask = from.port_mask,
                               .src_free = static_cast<uint8_t>(std::countr_zero(from.src_mask[3])),
                               .dst_free = static_cast<uint8_t>(std::countr_zero(from.dst_mask[3])),
                               .slot_shift = from.slot_shift,
                               .protocol = static_cast<uint8_t>(from.protocol_mask & 1)};
    std::memcpy(bytes.data() + offsetof(TuplePrune, tables) + t * sizeof to, &to, sizeof to);
  }
  return bytes;
}

}  // namespace

std::string TupleSpaceAcl::slow_build(const RuleSet& set) {
  constexpr size_t kTuples = 1024;
  for (const uint8_t bits : {Narrow::kBits, Wide::kBits}) {
    std::unordered_set<uint32_t> tuples;
    for (const AclRule& rule : set.rules) {
      if (rule.family == (bits == Narrow::kBits ? 6 : 4)) continue;
      tuples.insert(tuple_detail::tuple_of(flatten(rule, 1), bits).id());
      if (tuples.size() > kTuples) return fmt::format("its rules have more than {} tuples", kTuples);
    }
  }
  return {};
}

Result<Image> TupleSpaceAcl::build(const RuleSet& set) {
  auto flat = flatten_all(set);
  if (!flat) return std::move(flat).error();
  Chooser<Narrow> narrow(tuple_detail::distinct_rules(*flat, 4));
  Chooser<Wide> wide(tuple_detail::distinct_rules(*flat, 6));
  auto narrow_tables = narrow.run();
  auto wide_tables = wide.run();
  auto by_best = [](const Chosen& a, const Chosen& b) { return a.table.best < b.table.best; };
  std::sort(narrow_tables.begin(), narrow_tables.end(), by_best);
  std::sort(wide_tables.begin(), wide_tables.end(), by_best);

  Header header{};
  header.narrow_tables = static_cast<uint32_t>(narrow_tables.size());
  header.wide_tables = static_cast<uint32_t>(wide_tables.size());
  header.narrow_entries = static_cast<uint32_t>(narrow.rules().size());
  header.wide_entries = static_cast<uint32_t>(wide.rules().size());
  header.build_steps = narrow.steps() + wide.steps();
  for (auto* tables : {&narrow_tables, &wide_tables}) {
    for (Chosen& c : *tables) {
      c.table.filter_base = static_cast<uint32_t>(header.filter_words);
      c.table.slot_base = static_cast<uint32_t>(header.slot_count);
      header.filter_words += uint64_t{1} << (32 - c.table.filter_shift);
      header.slot_count += uint64_t{1} << (32 - c.table.slot_shift);
    }
  }
  if (header.slot_count > ~0u) return Error("the access list is too large for tuple_space", "split it");
  auto round = [](uint64_t v) { return (v + 63) / 64 * 64; };
  header.tables_offset = sizeof(Header);
  header.filter_offset = header.tables_offset + sizeof(TupleTable) * (narrow_tables.size() + wide_tables.size());
  header.slots_offset = round(header.filter_offset + 4 * header.filter_words);
  header.narrow_offset = round(header.slots_offset + 4 * header.slot_count);
  header.wide_offset = round(header.narrow_offset + sizeof(TupleEntry4) * header.narrow_entries);
  uint64_t bytes = header.wide_offset + sizeof(AclMatchRule) * header.wide_entries;
  std::vector<std::byte> prune;
  if (narrow_tables.size() >= kPruneTables && narrow_tables.size() <= TuplePrune::kMaxTables &&
      narrow.rules().size() >= kPruneRules) {
    prune = make_prune(narrow, narrow_tables);
    header.prune_offset = round(bytes);
    header.prune_bytes = prune.size();
    bytes = header.prune_offset + header.prune_bytes;
  }

  ImageBuilder builder(ImageKind::kAcl);
  AclSections sections(builder, set);
  const size_t lookup = builder.add(SectionTag::kAclLookup, kSectionName, kAclLayoutVersion, bytes);
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  sections.fill(*flat);
  std::byte* const base = builder.data(lookup).data();
  std::memcpy(base, &header, sizeof header);
  auto* table = reinterpret_cast<TupleTable*>(base + header.tables_offset);
  auto* filter = reinterpret_cast<uint32_t*>(base + header.filter_offset);
  auto* slots = reinterpret_cast<uint32_t*>(base + header.slots_offset);

  if (!prune.empty()) std::memcpy(base + header.prune_offset, prune.data(), prune.size());

  auto write = [&]<typename Family, typename Entry>(Chooser<Family>& chooser, const std::vector<Chosen>& tables,
                                                    Entry* entries, auto make) {
    uint32_t next = 0;
    for (const Chosen& c : tables) {
      *table++ = c.table;
      for (size_t i = 0; i < c.placed.size(); ++i) {
        const auto slot = static_cast<uint32_t>(c.placed[i] >> 32);
        const AclMatchRule& rule = *chooser.rules()[static_cast<uint32_t>(c.placed[i])];
        const uint32_t ports = uint32_t{rule.src_port_low} << 16 | rule.dst_port_low;
        const uint32_t h = Family::hash(c.table, Family::item(rule, ports, rule.protocol * kTupleProtocolFactor));
        filter[c.table.filter_base + (uint64_t{h} >> c.table.filter_shift)] |= 1u << (h & 31) | 1u << (h >> 5 & 31);
        if (i == 0 || static_cast<uint32_t>(c.placed[i - 1] >> 32) != slot) slots[c.table.slot_base + slot] = next + 1;
        entries[next] = make(rule);
        if (i + 1 == c.placed.size() || static_cast<uint32_t>(c.placed[i + 1] >> 32) != slot)
          entries[next].rule |= TupleEntry4::kLast;
        ++next;
      }
    }
  };
  write(narrow, narrow_tables, reinterpret_cast<TupleEntry4*>(base + header.narrow_offset), entry4);
  write(wide, wide_tables, reinterpret_cast<AclMatchRule*>(base + header.wide_offset),
        [](const AclMatchRule& r) { return r; });
  return builder.finish();
}

}  // namespace sluice
