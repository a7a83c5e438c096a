// The builder of tuple_merge: chooses few tables by what a packet pays for them, then packs the buckets into blocks.
//
// A table costs every packet a probe, and a block to verify when it has something for it. In each round the candidate
// tuple that places most rules for that cost becomes a table, with at most `limit` rules in a bucket; what is over
// waits. Candidates are ranked on a sample of the rules and of packets drawn from them, the best few are weighed on all
// rules: a build costs a few passes over the rules, whatever their number. What is left when no table is worth its
// price is compared with every packet (the loose rules), or, when that is too much, goes to tables with longer buckets
// and at last to one that takes everything: tables stay few on any input, and rules that only ranges tell apart end in
// one long bucket of blocks.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include "base/cancel.h"
#include "tables/acl/tuple_merge.h"
#include "tables/acl/tuple_merge_layout.h"
#include "tables/acl/tuple_merge_rules.h"
#include "tables/acl/tuple_rules.h"

namespace sluice {
namespace {

using tuple_detail::Tuple;
using namespace tuple_merge_detail;

// What a packet pays, in clocks of one core: a probe, a block, a loose rule that has no bitmap. Measured, but for the
// probe, which takes 3: a table also ends a run of candidates, where the processor guesses wrong, and 5 gave better
// sets.
constexpr double kProbeCost = 5, kBlockCost = 20, kLooseCost = 0.3;
constexpr size_t kFirstLimit = 24, kLastLimit = 128;  // rules in a bucket
constexpr size_t kMaxChosen = 64;                     // tables of each kind
// Up to so many rules, on a core, a bitmap of four parts (25 clocks more than one of one) costs less than the tables
// that it saves.
constexpr size_t kShortList = 2000;
constexpr size_t kSample = 384, kPackets = 192, kWeighed = 6;

// Shift that leaves enough high bits for 1 to 2 slots a rule.
uint8_t slot_shift_for(size_t rules) {
  const auto bits = static_cast<unsigned>(std::bit_width(std::max<size_t>(1, rules - 1)));
  return static_cast<uint8_t>(32 - std::min(bits, 30u));
}

struct Chosen {
  Tuple tuple;
  TupleMergeTable table;
  std::vector<uint64_t> placed;  // slot << 32 | index of the rule, sorted
};

template <bool kWide>
class Chooser {
 public:
  // `bitmap`: loose rules are free, up to `max_loose`.
  Chooser(std::vector<const AclMatchRule*> rules, bool bitmap, size_t max_loose)
      : rules_(std::move(rules)), left_(rules_.size()), max_loose_(max_loose), bitmap_(bitmap) {
    group();
    draw_packets();
    make_candidates();
  }

  void run() {
    size_t limit = kFirstLimit;
    bool fresh = true;  // the ranking holds for this sample and limit
    while (left_ > 0 && !cancelled()) {
      if (left_ <= (bitmap_ ? max_loose_ : 8)) break;
      if (chosen_.size() + 1 >= kMaxChosen || limit > kLastLimit) {
        if (left_ <= max_loose_) break;
        place(everything(), ~size_t{0});
        break;
      }
      if (sample_left() < std::min(left_, kSample / 3)) {
        draw_sample();
        fresh = true;
      }
      if (fresh) std::fill(bound_.begin(), bound_.end(), 1e30);
      fresh = false;
      const Weighed best = best_candidate(limit);
      if (best.score * kLooseCost < 1 && left_ <= max_loose_) break;
      if (best.placed < left_ && best.placed * 12 < left_) {
        limit *= 2;
        fresh = true;
        continue;
      }
      place(best.tuple, limit);
    }
    for (const Group& g : groups_) loose_.insert(loose_.end(), g.left.begin(), g.left.end());
    std::sort(loose_.begin(), loose_.end());
    std::sort(chosen_.begin(), chosen_.end(),
              [](const Chosen& a, const Chosen& b) { return a.table.best < b.table.best; });
  }

  std::vector<Chosen>& chosen() { return chosen_; }
  const std::vector<uint32_t>& loose() const { return loose_; }
  const AclMatchRule& rule(uint32_t i) const { return *rules_[i]; }
  uint32_t hash(const TupleMergeTable& t, uint32_t i) const { return hash_of<kWide>(t, items_[i]); }
  uint64_t steps() const { return steps_; }

 private:
  struct Group {
    Tuple tuple;
    std::vector<uint32_t> left;  // indices into rules_, in order
  };
  struct Weighed {
    Tuple tuple;
    double score = 0;
    size_t placed = 0;
  };

  void group() {
    items_.reserve(rules_.size());
    std::unordered_map<uint32_t, size_t> index;
    uint32_t last_id = ~0u;
    size_t last = 0;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const Tuple tuple = tuple_detail::tuple_of(*rules_[i], kWide ? 128 : 32);
      items_.push_back(item_of<kWide>(*rules_[i]));
      if (tuple.id() != last_id) {
        const auto [it, fresh] = index.try_emplace(tuple.id(), groups_.size());
        if (fresh) groups_.push_back({tuple, {}});
        last_id = tuple.id();
        last = it->second;
      }
      groups_[last].left.push_back(static_cast<uint32_t>(i));
    }
    placed_.resize(rules_.size());
  }

  // Packets of the rules' regions, for the odds that a table has something for one.
  void draw_packets() {
    if (rules_.empty()) return;
    std::mt19937_64 random(1);
    for (size_t k = 0; k < kPackets; ++k) {
      const AclMatchRule& r = *rules_[random() % rules_.size()];
      const Tuple tuple = tuple_detail::tuple_of(r, kWide ? 128 : 32);
      Item i = item_of<kWide>(r);
      for (unsigned w = 0; w < 4; ++w) {
        if (!kWide && w != 3) continue;
        i.word[w] |= static_cast<uint32_t>(random()) & ~word_mask<kWide>(tuple.src, w);
        i.word[4 + w] |= static_cast<uint32_t>(random()) & ~word_mask<kWide>(tuple.dst, w);
      }
      i.ports = static_cast<uint32_t>(r.dst_port_low + random() % (r.dst_port_high - r.dst_port_low + 1u)) << 16 |
                static_cast<uint32_t>(r.src_port_low + random() % (r.src_port_high - r.src_port_low + 1u));
      if (r.protocol_mask == 0) i.protocol = 6 * kTupleProtocolFactor;
      packets_.push_back(i);
    }
  }

  void make_candidates() {
    // Lengths that a table may hash: a grid, and the rules' own where they are common.
    auto lengths_of = [&](bool src) {
      std::array<size_t, 129> count{};
      for (const Group& g : groups_) count[src ? g.tuple.src : g.tuple.dst] += g.left.size();
      std::vector<uint8_t> out;
      const unsigned bits = kWide ? 128 : 32, step = kWide ? 16 : 4;
      for (unsigned l = 0; l <= bits; ++l) {
        if (l % step == 0 || count[l] * 25 > rules_.size()) out.push_back(static_cast<uint8_t>(l));
      }
      return out;
    };
    const auto src = lengths_of(true), dst = lengths_of(false);
    auto floor_of = [](const std::vector<uint8_t>& lengths, uint8_t l) {
      return static_cast<size_t>(std::upper_bound(lengths.begin(), lengths.end(), l) - lengths.begin()) - 1;
    };
    // Only tuples that are some rule's own, cut down to the grid field by field.
    std::unordered_set<uint32_t> seen;
    for (const Group& g : groups_) {
      const size_t s = floor_of(src, g.tuple.src), d = floor_of(dst, g.tuple.dst);
      for (size_t i : {s, s - std::min<size_t>(s, 1), s - std::min<size_t>(s, 2), s / 2, size_t{0}}) {
        for (size_t j : {d, d - std::min<size_t>(d, 1), d - std::min<size_t>(d, 2), d / 2, size_t{0}}) {
          for (uint8_t ports : {3, 2, 1, 0}) {
            const Tuple t{src[i], dst[j], static_cast<uint8_t>(g.tuple.fields & (ports | Tuple::kProtocol))};
            if (seen.insert(t.id()).second) candidates_.push_back(t);
            const Tuple u{src[i], dst[j], static_cast<uint8_t>(g.tuple.fields & ports)};
            if (seen.insert(u.id()).second) candidates_.push_back(u);
          }
        }
      }
    }
    bound_.resize(candidates_.size());
  }

  // --- the ranking, on a sample ---

  void draw_sample() {
    sample_.clear();
    std::vector<uint32_t> all;
    all.reserve(left_);
    for (const Group& g : groups_) all.insert(all.end(), g.left.begin(), g.left.end());
    const size_t n = std::min(kSample, all.size());
    for (size_t i = 0; i < n; ++i) {
      const uint32_t r = all[i * all.size() / n];
      sample_.push_back({tuple_detail::tuple_of(*rules_[r], kWide ? 128 : 32), r});
    }
    scale_ = static_cast<double>(all.size()) / static_cast<double>(n);
  }
  size_t sample_left() {
    std::erase_if(sample_, [&](const Sampled& s) { return placed_[s.rule] != 0; });
    return sample_.size();
  }

  // Rules placed for a clock, as the sample has it.
  double estimate(const Tuple& tuple, size_t limit) {
    constexpr unsigned kBits = 13;
    counts_.assign(size_t{1} << kBits, 0);
    const TupleMergeTable t = table_of<kWide>(tuple);
    double placed = 0;
    steps_ += sample_.size() + packets_.size();
    for (const Sampled& s : sample_) {
      if (!tuple.covers(s.tuple)) continue;
      uint8_t& c = counts_[hash_of<kWide>(t, items_[s.rule]) >> (32 - kBits)];
      // c of the sample in a bucket stand for 1 + (c - 1) * scale rules there, of which `limit` find room.
      auto room = [&](unsigned n) {
        return n * scale_ * std::min(1.0, static_cast<double>(limit) / (1 + (n - 1) * scale_));
      };
      if (c < 255) placed += (c == 0 ? room(1) : room(c + 1u) - room(c)), ++c;
    }
    if (placed == 0) return 0;
    unsigned hits = 0;
    for (const Item& p : packets_) hits += counts_[hash_of<kWide>(t, p) >> (32 - kBits)] != 0;
    return placed / (kProbeCost + kBlockCost * hits / static_cast<double>(packets_.size()));
  }

  size_t compatible(const Tuple& tuple) const {
    size_t n = 0;
    for (const Group& g : groups_) {
      if (tuple.covers(g.tuple)) n += g.left.size();
    }
    return n;
  }

  Weighed weigh(const Tuple& tuple, size_t limit) {
    Weighed out{tuple, 0, 0};
    const size_t n = compatible(tuple);
    steps_ += n;
    if (n == 0) return out;
    const TupleMergeTable t = table_of<kWide>(tuple);
    const uint8_t shift = slot_shift_for(n);
    counts_.assign(size_t{1} << (32 - shift), 0);
    for (const Group& g : groups_) {
      if (!tuple.covers(g.tuple)) continue;
      for (uint32_t i : g.left) {
        uint8_t& c = counts_[uint64_t{hash_of<kWide>(t, items_[i])} >> shift];
        const bool fits = c < limit;
        out.placed += fits;
        c = static_cast<uint8_t>(c + fits);
      }
    }
    double blocks = 0;
    for (const Item& p : packets_)
      blocks += (counts_[uint64_t{hash_of<kWide>(t, p)} >> shift] + kMergeLanes - 1) / kMergeLanes;
    out.score =
        static_cast<double>(out.placed) / (kProbeCost + kBlockCost * blocks / static_cast<double>(packets_.size()));
    return out;
  }

  Weighed best_candidate(size_t limit) {
    // The kWeighed best estimates; a stale estimate is close to an upper bound, because rules only go away.
    order_.resize(candidates_.size());
    for (uint32_t c = 0; c < order_.size(); ++c) order_[c] = c;
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return bound_[a] > bound_[b]; });
    std::vector<std::pair<double, uint32_t>> top;
    for (uint32_t c : order_) {
      if (bound_[c] <= 0 || (top.size() == kWeighed && bound_[c] <= top.back().first)) break;
      bound_[c] = estimate(candidates_[c], limit);
      if (bound_[c] <= 0 || (top.size() == kWeighed && bound_[c] <= top.back().first)) continue;
      if (top.size() == kWeighed) top.pop_back();
      const std::pair<double, uint32_t> entry{bound_[c], c};
      top.insert(std::upper_bound(top.begin(), top.end(), entry, [](auto& a, auto& b) { return a.first > b.first; }),
                 entry);
    }
    Weighed best;
    for (const auto& [score, c] : top) {
      const Weighed w = weigh(candidates_[c], limit);
      if (w.score > best.score) best = w;
    }
    return best;
  }

  // The finest tuple that covers all that is left.
  Tuple everything() const {
    Tuple t{255, 255, 7};
    for (const Group& g : groups_) {
      if (g.left.empty()) continue;
      t.src = std::min(t.src, g.tuple.src);
      t.dst = std::min(t.dst, g.tuple.dst);
      t.fields &= g.tuple.fields;
    }
    return t;
  }

  void place(const Tuple& tuple, size_t limit) {
    Chosen chosen{tuple, table_of<kWide>(tuple), {}};
    const size_t n = compatible(tuple);
    steps_ += n;
    const uint8_t shift = slot_shift_for(n);
    std::vector<uint32_t> counts(size_t{1} << (32 - shift), 0);
    chosen.placed.reserve(n);
    for (Group& g : groups_) {
      if (!tuple.covers(g.tuple)) continue;
      std::erase_if(g.left, [&](uint32_t i) {
        const uint64_t slot = uint64_t{hash_of<kWide>(chosen.table, items_[i])} >> shift;
        if (counts[slot] >= limit) return false;
        ++counts[slot];
        placed_[i] = 1;
        chosen.placed.push_back(slot << 32 | i);
        return true;
      });
    }
    left_ -= chosen.placed.size();
    // Fewer rules than were weighed may need fewer slots.
    const uint8_t exact = slot_shift_for(chosen.placed.size());
    for (uint64_t& p : chosen.placed) p = (p >> 32 >> (exact - shift)) << 32 | static_cast<uint32_t>(p);
    std::sort(chosen.placed.begin(), chosen.placed.end());
    TupleMergeTable& t = chosen.table;
    t.slot_shift = exact;
    t.entries = static_cast<uint32_t>(chosen.placed.size());
    t.best = ~0u;
    for (uint64_t p : chosen.placed) t.best = std::min(t.best, rules_[static_cast<uint32_t>(p)]->rule);
    chosen_.push_back(std::move(chosen));
  }

  struct Sampled {
    Tuple tuple;
    uint32_t rule;
  };

  std::vector<const AclMatchRule*> rules_;
  std::vector<Item> items_;
  std::vector<Group> groups_;
  std::vector<Item> packets_;
  std::vector<Tuple> candidates_;
  std::vector<double> bound_;
  std::vector<uint32_t> order_;
  std::vector<Sampled> sample_;
  double scale_ = 1;
  std::vector<uint8_t> placed_;
  std::vector<uint8_t> counts_;
  std::vector<Chosen> chosen_;
  std::vector<uint32_t> loose_;
  size_t left_ = 0;
  uint64_t steps_ = 0;
  size_t max_loose_;
  bool bitmap_;
};

// Buckets in blocks: which rules each block holds, and where each bucket begins.
class Packer {
 public:
  struct Block {
    std::array<uint32_t, kMergeLanes> rule;  // indices
    uint8_t count = 0;
    bool more = false;
  };
  // `n` rules of one bucket; returns its first block. Short buckets fill the gaps of others of the same table.
  uint32_t add(const uint64_t* placed, size_t n) {
    const size_t whole = n / kMergeLanes, rest = n % kMergeLanes;
    uint32_t first = static_cast<uint32_t>(blocks.size());
    for (size_t b = 0; b < whole; ++b) {
      blocks.emplace_back();
      for (size_t i = 0; i < kMergeLanes; ++i) append(blocks.back(), placed[b * kMergeLanes + i]);
      blocks.back().more = b + 1 < whole || rest > 0;
    }
    if (rest == 0) return first;
    uint32_t at = 0;
    size_t room = rest;
    if (whole == 0) {
      while (room < kMergeLanes && open_[room].empty()) ++room;
    }
    if (whole != 0 || room == kMergeLanes) {
      at = static_cast<uint32_t>(blocks.size());
      blocks.emplace_back();
      room = kMergeLanes;
    } else {
      at = open_[room].back();
      open_[room].pop_back();
    }
    for (size_t i = 0; i < rest; ++i) append(blocks[at], placed[whole * kMergeLanes + i]);
    if (room > rest) open_[room - rest].push_back(at);
    return whole == 0 ? at : first;
  }
  void end_table() {
    for (auto& o : open_) o.clear();
  }
  std::vector<Block> blocks;

 private:
  static void append(Block& b, uint64_t placed) { b.rule[b.count++] = static_cast<uint32_t>(placed); }
  std::array<std::vector<uint32_t>, kMergeLanes> open_;
};

template <bool kWide, typename Block>
void write_block(Block& b, Packer::Block packed, const Chooser<kWide>& chooser) {
  std::sort(packed.rule.begin(), packed.rule.begin() + packed.count);  // rules are indexed in order of position
  for (size_t i = 0; i < kMergeLanes; ++i) {
    if (i >= packed.count) {
      b.rule[i] = kMergeNone;
      continue;
    }
    write_merge_lane(b, i, chooser.rule(packed.rule[i]));
  }
  if (packed.more) b.rule[kMergeLanes - 1] |= kMergeMore;
}

// The rows of the loose rules, at most four parts of them.
struct Bitmap {
  using Rules = std::array<uint64_t, 2 * TupleMergeBitmap::kMaxParts>;

  explicit Bitmap(const std::vector<TupleMergeLoose>& loose) {
    head.parts = loose.size() <= TupleMergeBitmap::kRules ? 1 : TupleMergeBitmap::kMaxParts;
    words.assign(TupleMergeBitmap::words_for(head.parts), kMergeNone);
    for (size_t i = 0; i < loose.size(); ++i) words[i] = loose[i].rule | (ranges_are_bytes(loose[i]) ? 0 : kMergeFull);
    Rules all{};
    for (size_t i = 0; i < loose.size(); ++i) all[i / 64] |= uint64_t{1} << (i % 64);
    for (unsigned at = 0; at < std::size(head.at); ++at) {
      std::array<Rules, 256> column;
      column.fill(all);
      bool any = false;
      for (size_t i = 0; i < loose.size(); ++i) {
        if (!constrains(loose[i], at)) continue;
        for (unsigned v = 0; v < 256; ++v) {
          if (possible(loose[i], at, v)) continue;
          column[v][i / 64] &= ~(uint64_t{1} << (i % 64));
          any = true;
        }
      }
      if (!any) continue;
      head.at[head.count++] = static_cast<uint8_t>(at);
      for (const Rules& row : column) rows.insert(rows.end(), row.begin(), row.begin() + 2 * head.parts);
    }
    std::fill(std::begin(head.rule), std::end(head.rule), kMergeNone);
    if (head.parts == 1) std::copy(words.begin(), words.end(), head.rule);
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(TupleMergeBitmap::bytes_for(head.count, head.parts));
    std::byte* to = out.data();
    const auto put = [&](const void* from, size_t n) {
      if (n != 0) std::memcpy(to, from, n);
      to += n;
    };
    put(&head, sizeof head);
    put(rows.data(), rows.size() * sizeof rows[0]);
    if (head.parts != 1) put(words.data(), words.size() * sizeof words[0]);
    return out;
  }

 private:
  TupleMergeBitmap head{};
  std::vector<uint64_t> rows;
  std::vector<uint32_t> words;

  // False: the rule leaves byte `at` alone.
  static bool constrains(const TupleMergeLoose& l, unsigned at) {
    const uint32_t masks[4] = {l.mask[3], l.mask[7], ~l.ports_span, l.fields_mask};
    return at / 4 == 2 ? (masks[2] >> (at < 10 ? 0 : 16) & 0xffff) != 0 : (masks[at / 4] >> (8 * (at % 4)) & 255) != 0;
  }
  // Whether rule `l` may match a key whose byte `at` is `v`.
  static bool possible(const TupleMergeLoose& l, unsigned at, unsigned v) {
    const unsigned shift = 8 * (at % 4);
    const auto agrees = [&](uint32_t value, uint32_t mask) {
      return (((v << shift) ^ value) & mask & 255u << shift) == 0;
    };
    if (at < 4) return agrees(l.value[3], l.mask[3]);
    if (at < 8) return agrees(l.value[7], l.mask[7]);
    if (at >= 12) return agrees(l.fields, l.fields_mask);
    const auto [low, high] = range(l, at >= 10);
    if (at % 2 == 1) return v >= low >> 8 && v <= high >> 8;
    return low >> 8 != high >> 8 || (v >= (low & 255) && v <= (high & 255));
  }
  static std::pair<uint32_t, uint32_t> range(const TupleMergeLoose& l, bool dst) {
    const uint32_t low = dst ? l.ports_low >> 16 : l.ports_low & 0xffff;
    return {low, low + (dst ? l.ports_span >> 16 : l.ports_span & 0xffff)};
  }
  // Whether the bytes of a port tell all that the ranges ask.
  static bool ranges_are_bytes(const TupleMergeLoose& l) {
    const auto exact = [](std::pair<uint32_t, uint32_t> r) {
      return r.first >> 8 == r.second >> 8 || ((r.first & 255) == 0 && (r.second & 255) == 255);
    };
    return exact(range(l, false)) && exact(range(l, true));
  }
};

// Slots and blocks of one kind of tables.
template <bool kWide>
struct BuiltTables {
  BuiltTables(const std::vector<AclMatchRule>& flat, size_t max_loose)
      : chooser(tuple_detail::distinct_rules(flat, kWide ? 6 : 4), !kWide, max_loose) {
    chooser.run();
    for (Chosen& c : chooser.chosen()) {
      const size_t base = slots.size();
      c.table.slot_base = static_cast<uint32_t>(base);
      slots.resize(base + (size_t{1} << (32 - c.table.slot_shift)), 0);
      for (size_t i = 0, n = 0; i < c.placed.size(); i += n) {
        const uint64_t slot = c.placed[i] >> 32;
        BucketTag tag;
        for (n = 0; i + n < c.placed.size() && c.placed[i + n] >> 32 == slot; ++n)
          tag.add(chooser.hash(c.table, static_cast<uint32_t>(c.placed[i + n])));
        slots[base + slot] = slot_word(packer.add(&c.placed[i], n), tag.value());
      }
      packer.end_table();
      c.placed = {};
    }
  }
  Chooser<kWide> chooser;
  std::vector<uint32_t> slots;
  Packer packer;
};

}  // namespace

std::vector<std::byte> tuple_merge_detail::bitmap_bytes(const std::vector<TupleMergeLoose>& loose) {
  return Bitmap(loose).bytes();
}

std::vector<Tuple> tuple_merge_detail::choose_tuples(const std::vector<AclMatchRule>& flat, bool wide) {
  std::vector<Tuple> out;
  auto take = [&](auto chooser) {
    chooser.run();
    auto& chosen = chooser.chosen();
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Chosen& a, const Chosen& b) { return a.table.entries > b.table.entries; });
    for (const Chosen& c : chosen) out.push_back(c.tuple);
  };
  wide ? take(Chooser<true>(tuple_detail::distinct_rules(flat, 6), false, TupleMergeBitmap::kRules))
       : take(Chooser<false>(tuple_detail::distinct_rules(flat, 4), false, TupleMergeBitmap::kRules));
  return out;
}

Result<Image> TupleMergeAcl::build(const RuleSet& set, TableTarget target) {
  auto flat = flatten_all(set);
  if (!flat) return std::move(flat).error();
  const bool short_list = target == TableTarget::kCpu && flat->size() <= kShortList;
  BuiltTables<false> narrow(
      *flat, short_list ? size_t{TupleMergeBitmap::kRules} * TupleMergeBitmap::kMaxParts : TupleMergeBitmap::kRules);
  BuiltTables<true> wide(*flat, TupleMergeBitmap::kRules);
  if (cancelled()) return cancelled_error();
  constexpr size_t kMaxBlocks = (size_t{1} << 24) - 2;
  if (narrow.packer.blocks.size() > kMaxBlocks || wide.packer.blocks.size() > kMaxBlocks)
    return Error("the access list is too large for tuple_merge", "split it");

  Header header{};
  header.narrow_tables = static_cast<uint32_t>(narrow.chooser.chosen().size());
  header.wide_tables = static_cast<uint32_t>(wide.chooser.chosen().size());
  header.narrow_blocks = static_cast<uint32_t>(narrow.packer.blocks.size());
  header.wide_blocks = static_cast<uint32_t>(wide.packer.blocks.size());
  header.narrow_loose = static_cast<uint32_t>(narrow.chooser.loose().size());
  header.wide_loose = static_cast<uint32_t>(wide.chooser.loose().size());
  header.slot_count = narrow.slots.size() + wide.slots.size();
  header.build_steps = narrow.chooser.steps() + wide.chooser.steps();
  header.place_arrays(uint64_t{header.narrow_tables} + header.wide_tables, header.slot_count, header.narrow_blocks,
                      header.wide_blocks);
  uint64_t bytes = header.loose_offset + sizeof(TupleMergeLoose) * (uint64_t{header.narrow_loose} + header.wide_loose);
  std::vector<TupleMergeLoose> narrow_loose;
  for (uint32_t i : narrow.chooser.loose()) narrow_loose.push_back(loose_of<false>(narrow.chooser.rule(i)));
  std::vector<std::byte> bitmap;
  if (narrow_loose.size() >= kBitmapFrom) {
    bitmap = bitmap_bytes(narrow_loose);
    header.bitmap_offset = (bytes + 63) / 64 * 64;
    header.bitmap_bytes = bitmap.size();
    bytes = header.bitmap_offset + header.bitmap_bytes;
  }

  ImageBuilder builder(ImageKind::kAcl);
  AclSections sections(builder, set);
  const size_t lookup = builder.add(SectionTag::kAclLookup, kSectionName, kAclLayoutVersion, bytes);
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  sections.fill(*flat);
  std::byte* const base = builder.data(lookup).data();
  std::memcpy(base, &header, sizeof header);
  auto* table = reinterpret_cast<TupleMergeTable*>(base + header.tables_offset);
  auto* slots = reinterpret_cast<uint32_t*>(base + header.slots_offset);
  auto* loose = reinterpret_cast<TupleMergeLoose*>(base + header.loose_offset);
  auto write = [&]<bool kWide, typename Block>(BuiltTables<kWide>& built, uint32_t slot_base, Block* blocks) {
    for (Chosen& c : built.chooser.chosen()) {
      c.table.slot_base += slot_base;
      *table++ = c.table;
    }
    std::copy(built.slots.begin(), built.slots.end(), slots + slot_base);
    for (size_t i = 0; i < built.packer.blocks.size(); ++i)
      write_block(blocks[i], built.packer.blocks[i], built.chooser);
    for (uint32_t i : built.chooser.loose()) *loose++ = loose_of<kWide>(built.chooser.rule(i));
  };
  write(narrow, 0, reinterpret_cast<TupleMergeBlock4*>(base + header.narrow_offset));
  write(wide, static_cast<uint32_t>(narrow.slots.size()),
        reinterpret_cast<TupleMergeBlock6*>(base + header.wide_offset));
  if (!bitmap.empty()) std::memcpy(base + header.bitmap_offset, bitmap.data(), bitmap.size());
  return builder.finish();
}

}  // namespace sluice
