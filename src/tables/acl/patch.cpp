#include "tables/acl/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "base/assert.h"
#include "base/prefetch.h"
#include "memory/huge_vector.h"
#include "tables/acl/patch_tables.h"
#include "tables/acl/sections.h"

namespace sluice {
namespace {

using namespace acl_patch;

// What an image is made with room for.
struct Room {
  size_t rules = 0;             // altogether
  size_t adds4 = 0, adds6 = 0;  // of one change
  size_t blocks4 = 0, blocks6 = 0;
};

// Rules that a new image of `rules` has room for.
constexpr size_t room_beside(size_t rules) {
  return rules + rules / 8 + 64;
}

}  // namespace

struct PatchedAcl::State {
  State(uint32_t last_word) : order(last_word), models(last_word + 1) {}

  Common common;
  PatchedTables<false> narrow;
  PatchedTables<true> wide;
  RuleOrder order;
  HugeVector<AclRule> models;  // by word
  AclSections::Arrays arrays{};
  bool complete = true;  // the tables have every rule of the list; else the image is not to be published
  bool torn = false;     // a change has begun and not ended

  void write(uint32_t word, const AclRule& rule) {
    models[word] = rule;
    arrays.rules[word - 1] = flatten(rule, word);
    arrays.actions[word] = acl_action_of(rule);
    arrays.places[word - 1] = {rule.file, rule.line};
    common.image.mark(&arrays.rules[word - 1], sizeof(AclMatchRule));
    common.image.mark(&arrays.actions[word], sizeof(AclAction));
    common.image.mark(&arrays.places[word - 1], sizeof(AclSourceView::Place));
  }
  void place(uint32_t word, uint32_t file, uint32_t line) {
    models[word].file = file;
    models[word].line = line;
    arrays.places[word - 1] = {file, line};
    common.image.mark(&arrays.places[word - 1], sizeof(AclSourceView::Place));
  }
  // A word without a rule matches nothing.
  void clear(uint32_t word) {
    AclMatchRule& rule = arrays.rules[word - 1];
    rule.src_port_low = 1;
    rule.src_port_high = 0;
    common.image.mark(&rule, sizeof rule);
  }

  // expect() prefetches in steps, each of which needs the memory of the step before: an operation takes one step
  // for each kApart operations that are expected after it.
  struct Expected {
    AclChange::Kind kind;
    uint64_t priority;
    AclMatchRule rule;  // that is added
    uint32_t word, slot4, slot6;
  };
  static constexpr size_t kApart = 4;
  std::array<Expected, 2 * kApart> expected{};
  size_t expecting = 0;

  // `rule`: of kAdd.
  void expect(AclChange::Kind kind, uint64_t priority, const AclRule* rule) {
    if (expecting >= 2 * kApart) find_block_of(expected[expecting % expected.size()]);
    if (expecting >= kApart) find_place_of(expected[(expecting - kApart) % expected.size()]);
    Expected& e = expected[expecting++ % expected.size()];
    e.kind = kind;
    e.priority = priority;
    if (kind == AclChange::Kind::kAdd) e.rule = flatten(*rule, 1);
    order.expect(priority);
  }
  void find_place_of(Expected& e) {
    e.word = order.near(e.priority);
    prefetch_write(&arrays.rules[e.word - 1]);
    narrow.expect_erase(e.word);
    if (wide.tables() > 0) wide.expect_erase(e.word);
    if (e.kind == AclChange::Kind::kRemove) return;
    prefetch_write(&models[e.word]);
    prefetch_write(reinterpret_cast<std::byte*>(&models[e.word] + 1) - 1);
    prefetch_write(&arrays.actions[e.word]);
    prefetch_write(&arrays.places[e.word - 1]);
    e.slot4 = e.rule.family == 6 ? kNoSlot : narrow.expect_insert(e.rule, e.word);
    e.slot6 = e.rule.family == 4 ? kNoSlot : wide.expect_insert(e.rule, e.word);
  }
  void find_block_of(const Expected& e) {
    if (e.kind == AclChange::Kind::kRemove) {
      narrow.expect_erase_there(e.word);
      if (wide.tables() > 0) wide.expect_erase_there(e.word);
    } else {
      narrow.expect_insert_there(e.slot4);
      wide.expect_insert_there(e.slot6);
    }
  }

  bool insert(uint32_t word) {
    const uint8_t family = arrays.rules[word - 1].family;
    return (family == 6 || narrow.holds(word) || narrow.insert(word)) &&
           (family == 4 || wide.holds(word) || wide.insert(word));
  }
  bool has_words(size_t adds) const { return order.size() + adds <= RuleOrder::most(order.last()); }
  // Adds it to the list. Precondition: has_words, and no rule has the priority. False: the tables have no room for it.
  bool add(const OrderedRule& rule) {
    const uint32_t word = order.insert(rule.priority, [&](uint32_t from, uint32_t to) {
      write(to, models[from]);
      narrow.rename(from, to);
      wide.rename(from, to);
      clear(from);
    });
    SLUICE_CHECK(word != 0);  // a list that is not fuller than has_words allows always has one
    write(word, rule.rule);
    return complete && insert(word);  // a larger image is to come anyway
  }
  void remove(uint32_t word) {
    const uint8_t family = arrays.rules[word - 1].family;
    if (family != 6) narrow.erase(word);
    if (family != 4) wide.erase(word);
    order.erase(word);
    clear(word);
  }

  // Updates what lookups start with: tables, loose rules, counts.
  void settle() {
    narrow.settle(order);
    wide.settle(order);
    Header header = *common.header;
    if (const bool n = narrow.take_tables_changed(), w = wide.take_tables_changed(); n || w) {
      std::vector<TupleMergeTable> records = narrow.records();
      const auto more = wide.records();
      records.insert(records.end(), more.begin(), more.end());
      common.image.write(common.lookup + header.tables_offset, records.data(), records.size() * sizeof records[0]);
      header.narrow_tables = static_cast<uint32_t>(narrow.tables());
      header.wide_tables = static_cast<uint32_t>(wide.tables());
    }
    if (const bool n = narrow.take_loose_changed(), w = wide.take_loose_changed(); n || w) {
      std::vector<TupleMergeLoose> loose;
      for (uint32_t word : narrow.loose()) loose.push_back(loose_of<false>(arrays.rules[word - 1]));
      header.bitmap_offset = header.bitmap_bytes = 0;
      if (loose.size() >= kBitmapFrom) {
        const std::vector<std::byte> bitmap = bitmap_bytes(loose);
        const size_t count = loose.size() + wide.loose().size();
        header.bitmap_offset = round_up(header.loose_offset + count * sizeof(TupleMergeLoose));
        header.bitmap_bytes = bitmap.size();
        common.image.write(common.lookup + header.bitmap_offset, bitmap.data(), bitmap.size());
      }
      for (uint32_t word : wide.loose()) loose.push_back(loose_of<true>(arrays.rules[word - 1]));
      common.image.write(common.lookup + header.loose_offset, loose.data(), loose.size() * sizeof(TupleMergeLoose));
      header.narrow_loose = static_cast<uint32_t>(narrow.loose().size());
      header.wide_loose = static_cast<uint32_t>(wide.loose().size());
    }
    header.narrow_blocks = narrow.blocks();
    header.wide_blocks = wide.blocks();
    header.slot_count = common.slot_end;
    common.image.write(common.lookup, &header, sizeof header);
  }

  // An empty image of that room. Errors: memory, max_bytes.
  Result<void> lay_out(const Room& room, size_t slots, const PatchedAclOptions& options) {
    Header header{};
    header.place_arrays(2 * kMaxTables, slots, room.blocks4, room.blocks6);
    const size_t bytes = round_up(header.loose_offset + kLooseRoom * sizeof(TupleMergeLoose)) + kBitmapRoom;

    RuleSet empty;
    empty.files = options.files;
    empty.rules.resize(order.last());
    for (AclRule& rule : empty.rules) rule.verb = AclVerb::kDeny;
    auto flat = flatten_all(empty);
    if (!flat) return std::move(flat).error();
    for (AclMatchRule& rule : *flat) rule.src_port_low = 1, rule.src_port_high = 0;
    ImageBuilder builder(ImageKind::kAcl);
    AclSections sections(builder, empty);
    builder.add(SectionTag::kAclLookup, TupleMergeAcl::kSectionName, kAclLayoutVersion, bytes);
    if (auto ok = builder.allocate(); !ok) return ok;
    sections.fill(*flat);
    Image image = builder.finish();
    if (image.bytes().size() > options.max_bytes) {
      return Error(fmt::format("the access list would take {} bytes, and {} are allowed", image.bytes().size(),
                               options.max_bytes),
                   "raise the limit, or remove rules");
    }
    common.image = ImageReplicas(std::move(image));
    const Image& master = common.image.master();
    common.lookup = common.image.bytes() + master.find(SectionTag::kAclLookup)->offset;
    common.header = reinterpret_cast<Header*>(common.lookup);
    *common.header = header;
    common.slots = reinterpret_cast<uint32_t*>(common.lookup + header.slots_offset);
    common.slot_room = static_cast<uint32_t>(slots);
    arrays = AclSections::arrays(master, common.image.bytes());
    common.rules = arrays.rules;
    // Rules are for the few matches that columns do not settle; files and lines are for people.
    for (SectionTag tag : {SectionTag::kAclRules, SectionTag::kAclSource}) {
      const ImageSection* section = master.find(tag);
      common.image.set_seldom_read(section->offset, section->bytes / LineSet::kLine * LineSet::kLine);
    }
    narrow.attach(common, header.narrow_offset, room.blocks4, order.last(), options.beside);
    wide.attach(common, header.wide_offset, room.blocks6, order.last(), options.beside);
    return {};
  }
};

PatchedAcl::PatchedAcl(std::unique_ptr<State> state, PatchedAclOptions options)
    : state_(std::move(state)), options_(std::move(options)) {}
PatchedAcl::~PatchedAcl() = default;

size_t PatchedAcl::estimate_bytes(size_t rules) {
  // Words, each with a rule, an action and a place; blocks and slots as the builder's sets have them.
  return RuleOrder::words_for(room_beside(rules)) *
             (sizeof(AclMatchRule) + sizeof(AclAction) + sizeof(AclSourceView::Place)) +
         rules * 120 + PatchedAclRoom{}.slots * 4 + kBitmapRoom + kLooseRoom * sizeof(TupleMergeLoose) +
         2 * kMaxTables * sizeof(TupleMergeTable);
}

Result<std::unique_ptr<PatchedAcl::State>> PatchedAcl::build(std::span<const OrderedRule> rules,
                                                             const PatchedAclOptions& options, size_t adds4,
                                                             size_t adds6) {
  const size_t n = rules.size();
  RuleSet set;
  set.rules.reserve(n);
  for (const OrderedRule& each : rules) {
    set.rules.push_back(each.rule);
    set.rules.back().file = 0;
  }
  auto plain =
      TupleMergeAcl::build(set, TableTarget::kGpu);  // has a bitmap of one part, which is all that there is room for
  if (!plain) return std::move(plain).error();
  const auto view = TupleMergeView::open(*plain);
  if (!view) return view.error();
  const auto shape = view->shape();
  const size_t slots = [&] {
    size_t sum = std::max<size_t>(options.beside.slots, 2);
    for (uint32_t i = 0; i < shape.narrow_tables + shape.wide_tables; ++i)
      sum +=
          size_t{1}
          << (32 -
              view->table(i >= shape.narrow_tables, i < shape.narrow_tables ? i : i - shape.narrow_tables).slot_shift);
    return sum;
  }();
  Room room;
  room.rules = std::max({room_beside(n), n + std::max(adds4, adds6) * 2, options.room});
  // Free words lie among those that packets read: actions and counters of hits are by word.
  const size_t words = RuleOrder::words_for(room.rules);
  if (words >= RuleSet::kMaxRules || slots > kNoSlot / 2)
    return Error(fmt::format("{} rules are too many for a list that changes", n), "split it");
  const size_t spare = room.rules - n;
  room.blocks4 = options.beside.blocks4 + size_t{shape.narrow_blocks} * 3 / 2 + n / 16 + spare / 4 + adds4 * 8;
  room.blocks6 = options.beside.blocks6 + size_t{shape.wide_blocks} * 3 / 2 +
                 (shape.wide_blocks > 0 ? n / 16 + spare / 4 : 0) + adds6 * 8;
  for (;;) {
    if (room.blocks4 > kMostBlocks || room.blocks6 > kMostBlocks)
      return Error("the access list is too large for tuple_merge", "split it");
    auto state = std::make_unique<State>(static_cast<uint32_t>(words));
    State& s = *state;
    if (auto ok = s.lay_out(room, slots, options); !ok) return std::move(ok).error();
    std::vector<uint64_t> priorities;
    std::vector<uint32_t> word_of(n);
    for (const OrderedRule& each : rules) priorities.push_back(each.priority);
    s.order.fill(priorities, [&](uint64_t i, uint32_t word) {
      word_of[i] = word;
      s.write(word, rules[i].rule);
    });
    // Where one kind of keys had not enough room, it has more than twice as much next time.
    bool narrow = s.narrow.adopt(*view, word_of), wide = s.wide.adopt(*view, word_of);
    // Duplicates of earlier rules are absent from the builder's tables. They are not added one after another: chains
    // have free lanes everywhere.
    const size_t all = std::bit_ceil(n + 1);
    for (size_t k = 0, i = 0; narrow && wide && k < all; ++k) {
      if (i < n && !s.insert(word_of[i]))
        (rules[i].rule.family == 6 || s.narrow.holds(word_of[i]) ? wide : narrow) = false;
      size_t bit = all / 2;  // counts up from the highest bit
      for (; bit != 0 && (i & bit) != 0; bit /= 2) i ^= bit;
      i |= bit;
    }
    narrow = narrow && s.narrow.has_room(std::max<size_t>(adds4, 1));
    wide = wide && s.wide.has_room(std::max<size_t>(adds6, 1));
    if (narrow && wide) {
      s.common.misplaced = 0;
      return state;
    }
    if (!narrow) room.blocks4 = 2 * room.blocks4 + 8;
    if (!wide) room.blocks6 = 2 * room.blocks6 + 8;
  }
}

Result<std::unique_ptr<PatchedAcl>> PatchedAcl::create(std::span<const OrderedRule> given,
                                                       const PatchedAclOptions& options) {
  std::vector<OrderedRule> sorted(given.begin(), given.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OrderedRule& a, const OrderedRule& b) { return a.priority < b.priority; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (const char* fault = acl_rule_fault(sorted[i].rule))
      return Error(fmt::format("the rule of priority {}: {}", sorted[i].priority, fault));
    if (i > 0 && sorted[i].priority == sorted[i - 1].priority)
      return Error(fmt::format("two rules have the priority {}", sorted[i].priority));
  }
  auto state = build(sorted, options, 0, 0);
  if (!state) return std::move(state).error();
  return std::unique_ptr<PatchedAcl>(new PatchedAcl(std::move(*state), options));
}

Result<void> PatchedAcl::apply(const AclChange& change) {
  const auto& operations = change.operations();
  if (auto ok = intact(); !ok) return ok;
  // First all checks.
  std::unordered_map<uint64_t, bool> there;  // priorities that the operations so far have added or taken away
  size_t adds = 0, adds4 = 0, adds6 = 0;
  uint32_t word = 0;  // of the last operation's priority; 0: no rule has it
  for (size_t i = 0; i < operations.size(); ++i) {
    const AclChange::Operation& each = operations[i];
    auto fail = [&](std::string what, std::string hint = "") {
      return Error(fmt::format("operation {}: {}", i + 1, what), std::move(hint));
    };
    const auto changed = operations.size() > 1 ? there.find(each.priority) : there.end();
    if (changed == there.end()) word = state_->order.find_behind(word, each.priority);
    const bool present = changed != there.end() ? changed->second : word != 0;
    if (each.kind != AclChange::Kind::kAdd && !present)
      return fail(fmt::format("no rule has the priority {}", each.priority));
    if (each.kind == AclChange::Kind::kPlace) continue;
    if (operations.size() > 1) there[each.priority] = each.kind == AclChange::Kind::kAdd;
    if (each.kind == AclChange::Kind::kRemove) continue;
    const AclRule& rule = change.rule(each);
    if (const char* fault = acl_rule_fault(rule))
      return fail(fmt::format("the rule of priority {}: {}", each.priority, fault));
    if (present) return fail(fmt::format("a rule has the priority {} already", each.priority), "replace it");
    ++adds;
    adds4 += rule.family != 6;
    adds6 += rule.family != 4;
  }
  if (!state_->has_words(adds)) {
    if (auto ok = grow(adds, adds4, adds6); !ok) return ok;
    if (operations.size() == 1) word = state_->order.find(operations[0].priority);
  }
  const bool was_complete = state_->complete;
  // What was removed, and where what is written elsewhere was; without them where nothing can fail.
  std::vector<OrderedRule> before;
  std::vector<AclSourceView::Place> places;
  if (operations.size() > 1) {
    const auto moved =
        static_cast<size_t>(std::ranges::count(operations, AclChange::Kind::kPlace, &AclChange::Operation::kind));
    places.reserve(moved);
    before.reserve(operations.size() - moved);
  }
  state_->torn = true;
  for (const AclChange::Operation& each : operations) {
    if (each.kind == AclChange::Kind::kAdd) {
      if (!state_->add({each.priority, change.rule(each)})) state_->complete = false;
      continue;
    }
    if (operations.size() > 1) word = state_->order.find_behind(word, each.priority);
    const bool kept = operations.size() > 1 || !state_->complete;
    if (each.kind == AclChange::Kind::kPlace) {
      if (kept) places.push_back({state_->models[word].file, state_->models[word].line});
      state_->place(word, each.file, each.line);
    } else {
      if (kept) before.push_back({each.priority, state_->models[word]});
      state_->remove(word);
    }
  }
  Result<void> done;
  // The list is what it is to be; an image that has no place for one of its rules gives way to a larger one.
  if (!state_->complete) done = grow(1, 1, 1);
  if (!done) {
    // The list becomes what it was. What was removed has no place for certain: others may have taken it.
    state_->complete = was_complete;
    for (size_t i = operations.size(); i-- > 0;) {
      const AclChange::Operation& each = operations[i];
      if (each.kind == AclChange::Kind::kAdd) {
        state_->remove(state_->order.find(each.priority));
      } else if (each.kind == AclChange::Kind::kPlace) {
        state_->place(state_->order.find(each.priority), places.back().file, places.back().line);
        places.pop_back();
      } else {
        if (!state_->add(before.back())) state_->complete = false;
        before.pop_back();
      }
    }
  }
  state_->torn = false;
  return done;
}

Result<void> PatchedAcl::grow(size_t adds, size_t adds4, size_t adds6) {
  const std::vector<OrderedRule> list = rules();
  PatchedAclOptions larger = options_;
  larger.room = std::max(options_.room, (list.size() + adds) * 3 / 2);
  auto grown = build(list, larger, adds4, adds6);
  // Where half as much again is too much: what a new list gets.
  if (!grown) grown = build(list, options_, adds4, adds6);
  if (!grown) return std::move(grown).error();
  state_ = std::move(*grown);
  ++rebuilds_;
  return {};
}

Result<void> PatchedAcl::intact() const {
  if (!state_->torn) return {};
  return Error("memory ran out in the middle of a change to the access list", "build the list anew");
}

void PatchedAcl::expect(const AclChange& change) {
  for (const AclChange::Operation& each : change.operations()) {
    const AclRule* const rule = each.kind == AclChange::Kind::kAdd ? &change.rule(each) : nullptr;
    if (each.kind == AclChange::Kind::kPlace || (rule != nullptr && acl_rule_fault(*rule) != nullptr)) continue;
    state_->expect(each.kind, each.priority, rule);
  }
}

Result<void> PatchedAcl::rebuild() {
  if (auto ok = intact(); !ok) return ok;
  auto fresh = build(rules(), options_, 0, 0);
  if (!fresh) return std::move(fresh).error();
  state_ = std::move(*fresh);
  ++rebuilds_;
  return {};
}

Result<std::shared_ptr<const Image>> PatchedAcl::publish() {
  if (auto ok = intact(); !ok) return std::move(ok).error();
  if (!state_->complete) {
    if (auto ok = rebuild(); !ok) return std::move(ok).error();
  }
  state_->settle();
  return state_->common.image.publish();
}

size_t PatchedAcl::size() const {
  return state_->order.size();
}

std::vector<OrderedRule> PatchedAcl::rules() const {
  const RuleOrder& order = state_->order;
  std::vector<OrderedRule> out;
  out.reserve(order.size());
  for (uint32_t word = order.next(RuleOrder::kFirst); word <= order.last(); word = order.next(word + 1))
    out.push_back({order.priority(word), state_->models[word]});
  return out;
}

std::optional<uint64_t> PatchedAcl::priority_of(uint32_t word) const {
  if (word < RuleOrder::kFirst || !state_->order.used(word)) return std::nullopt;
  return state_->order.priority(word);
}

const ImageReplicas& PatchedAcl::replicas() const {
  return state_->common.image;
}

size_t PatchedAcl::misplaced() const {
  return state_->common.misplaced;
}

}  // namespace sluice
