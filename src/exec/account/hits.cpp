// host only
#include "exec/account/hits.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "elements/stages.h"
#include "exec/account/list_versions.h"
#include "exec/device/resident.h"
#include "exec/engine/snapshot.h"

namespace sluice {

RuleHits::Block::Block(unsigned n) : workers(n) {
  // Zero pages until they are used, where there are many workers.
  counts = static_cast<HitCount*>(std::calloc(size_t{n} * kBlock, sizeof(HitCount)));
  if (counts == nullptr) throw std::bad_alloc();
}

RuleHits::Block::~Block() {
  std::free(counts);
}

HitCount RuleHits::Block::sum(uint32_t at) const {
  HitCount all;
  for (unsigned w = 0; w < workers; ++w) {
    const HitCount& c = counts[size_t{w} * kBlock + at];
    all.packets += __atomic_load_n(&c.packets, __ATOMIC_RELAXED);
    all.bytes += __atomic_load_n(&c.bytes, __ATOMIC_RELAXED);
  }
  return all;
}

RuleHits::RuleHits(uint32_t rules, unsigned workers) : rules_(rules) {
  blocks_.resize(rules / kBlock + 1);
  places_.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) put(i, workers);
}

void RuleHits::put(size_t at, unsigned workers) {
  auto block = std::make_shared<const Block>(workers);
  places_[at] = block->counts;
  blocks_[at] = std::move(block);
}

namespace {

bool same(const ListRules& before, uint32_t b, const ListRules& after, uint32_t a) {
  return same_match(before.match.rule(b), after.match.rule(a)) && before.actions.action(b) == after.actions.action(a);
}

}  // namespace

// Where the rules of a version are in the next one.
struct HitLedger::Moves {
  bool all = true;  // any rule may be elsewhere: `now` has them all, by number; else those that moved
  std::vector<uint32_t> now;
  std::unordered_map<uint32_t, uint32_t> moved;

  uint32_t operator()(uint32_t rule) const {
    if (rule == 0 || rule == kGone) return rule;
    if (all) return rule < now.size() ? now[rule] : kGone;
    const auto found = moved.find(rule);
    return found == moved.end() ? rule : found->second;
  }
};

HitLedger::Moves HitLedger::moves(const Image& image_before, const Image& image_after) {
  Moves moves;
  const auto before = ListRules::of(image_before), after = ListRules::of(image_after);
  if (!before || !after) return moves;
  const uint32_t n = before->match.size(), m = after->match.size();
  std::vector<uint32_t> left, places;  // of either version: what is not where it was
  if (const auto touched = touched_rules(image_before, image_after)) {
    moves.all = false;
    for (uint32_t rule : *touched) {
      ++work_.rules;
      if (same(*before, rule, *after, rule)) continue;
      if (before->is_rule(rule)) left.push_back(rule);
      if (after->is_rule(rule)) places.push_back(rule);
    }
  } else {
    // Most changes leave most rules where they are, from either end.
    moves.now.assign(n + size_t{1}, kGone);
    uint32_t front = 0, back = 0;
    for (; front < std::min(n, m) && same(*before, front + 1, *after, front + 1); ++front)
      moves.now[front + 1] = front + 1;
    for (; back < std::min(n, m) - front && same(*before, n - back, *after, m - back); ++back)
      moves.now[n - back] = m - back;
    for (uint32_t b = front + 1; b <= n - back; ++b) {
      if (before->is_rule(b)) left.push_back(b);
    }
    for (uint32_t a = front + 1; a <= m - back; ++a) {
      if (after->is_rule(a)) places.push_back(a);
    }
    work_.rules += std::max(n, m);
  }
  std::unordered_map<std::string, std::vector<uint32_t>> where;  // the last first
  for (size_t i = places.size(); i-- > 0;) where[rule_identity(*after, places[i])].push_back(places[i]);
  for (uint32_t b : left) {
    const auto found = where.find(rule_identity(*before, b));
    uint32_t to = kGone;
    if (found != where.end() && !found->second.empty()) {
      to = found->second.back();
      found->second.pop_back();
    }
    moves.all ? void(moves.now[b] = to) : void(moves.moved[b] = to);
  }
  return moves;
}

HitLedger::Sums HitLedger::Sums::moved(const Moves& to, uint32_t size) const {
  Sums next{std::vector<HitCount>(size + size_t{1}), removed};
  for (uint32_t rule = 0; rule < rules.size(); ++rule) next.of(to(rule)).add(rules[rule]);
  return next;
}

// `room` has some for all that moved.
void HitLedger::Sums::move(const Moves& to, std::vector<std::pair<uint32_t, HitCount>>& room) {
  room.clear();
  for (const auto& [rule, now] : to.moved) room.emplace_back(now, std::exchange(rules[rule], HitCount{}));
  for (const auto& [now, sum] : room) of(now).add(sum);
}

HitLedger::Table& HitLedger::table(const std::string& name) {
  for (Table& t : tables_) {
    if (t.name == name) return t;
  }
  tables_.push_back({});
  tables_.back().name = name;
  return tables_.back();
}

// Adds up the blocks that no snapshot has any more.
void HitLedger::fold(Table& t) {
  for (auto r = t.retired.begin(); r != t.retired.end();) {
    // The last release of a snapshot is what its batches' counts happened before.
    if (r->block.use_count() != 1) {
      ++r;
      continue;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    for (uint32_t i = 0; i < r->now.size(); ++i) t.base.of(r->now[i]).add(r->block->sum(i));
    r = t.retired.erase(r);
  }
}

std::shared_ptr<RuleHits> HitLedger::of(const std::string& name, const std::shared_ptr<const Image>& image) {
  const std::lock_guard lock(mutex_);
  Table& t = table(name);
  fold(t);
  if (t.newest == image) return t.hits;
  const auto rules = AclRulesView::open(*image);
  const uint32_t n = rules.ok() ? rules->size() : 0;
  if (t.newest == nullptr) {
    t.hits = std::shared_ptr<RuleHits>(new RuleHits(n, workers_));
    t.base.rules.resize(n + size_t{1});
    t.cleared.rules.resize(n + size_t{1});
    t.newest = image;
    return t.hits;
  }
  const Moves to = moves(*t.newest, *image);
  const auto retire = [&](uint32_t b) {
    Retired gone{t.hits->blocks_[b], {}};
    const uint32_t first = b * RuleHits::kBlock, end = std::min(first + RuleHits::kBlock, t.hits->rules() + 1);
    for (uint32_t rule = first; rule < end; ++rule) gone.now.push_back(rule);
    t.retired.push_back(std::move(gone));
  };
  std::shared_ptr<RuleHits> hits;
  Sums base, cleared;
  std::vector<std::pair<uint32_t, HitCount>> room;
  if (to.all) {
    base = t.base.moved(to, n);
    cleared = t.cleared.moved(to, n);
    for (uint32_t b = 0; b < t.hits->blocks_.size(); ++b) retire(b);
    hits = std::shared_ptr<RuleHits>(new RuleHits(n, workers_));
    work_.blocks += hits->blocks_.size();
  } else {
    // A block stays while its rules do; a rule in a place where none was is counted from zero anyway.
    hits = std::make_shared<RuleHits>(*t.hits);
    room.reserve(to.moved.size());
    std::vector<uint32_t> blocks;
    for (const auto& [rule, now] : to.moved) blocks.push_back(rule / RuleHits::kBlock);
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    for (uint32_t b : blocks) {
      retire(b);
      hits->put(b, workers_);
      ++work_.blocks;
    }
  }
  // Without memory neither has moved.
  if (to.all) {
    t.base = std::move(base);
    t.cleared = std::move(cleared);
  } else {
    t.base.move(to, room);
    t.cleared.move(to, room);
  }
  if (to.all || !to.moved.empty()) {
    for (Retired& r : t.retired) {
      for (uint32_t& now : r.now) now = to(now);
    }
  }
  t.hits = std::move(hits);
  t.newest = image;
  return t.hits;
}

HitLedger::Counts HitLedger::sum(Table& t) {
  fold(t);
  Counts counts{t.newest, t.base.rules, t.base.removed};
  const auto add = [&](uint32_t now, const HitCount& sum) {
    (now == kGone ? counts.removed : counts.rules[now]).add(sum);
  };
  if (t.hits != nullptr) {
    for (uint32_t rule = 0; rule <= t.hits->rules(); ++rule)
      add(rule, t.hits->blocks_[rule / RuleHits::kBlock]->sum(rule % RuleHits::kBlock));
  }
  for (const Retired& r : t.retired) {
    for (uint32_t i = 0; i < r.now.size(); ++i) add(r.now[i], r.block->sum(i));
  }
  return counts;
}

HitLedger::Counts HitLedger::read(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return sum(table(name));
}

void HitLedger::clear() {
  const std::lock_guard lock(mutex_);
  std::vector<Sums> all;
  for (Table& t : tables_) {
    Counts counts = sum(t);
    all.push_back({std::move(counts.rules), counts.removed});
  }
  size_t next = 0;
  for (Table& t : tables_) t.cleared = std::move(all[next++]);
}

HitLedger::Counts HitLedger::read_since_clear(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Table& t = table(name);
  Counts counts = sum(t);
  // A packet that was counted and is taken back may have been among those before.
  const auto subtract = [](HitCount& all, const HitCount& before) {
    all.packets -= std::min(all.packets, before.packets);
    all.bytes -= std::min(all.bytes, before.bytes);
  };
  for (size_t rule = 0; rule < counts.rules.size(); ++rule) subtract(counts.rules[rule], t.cleared.rules[rule]);
  subtract(counts.removed, t.cleared.removed);
  return counts;
}

HitLedger::Work HitLedger::work() {
  const std::lock_guard lock(mutex_);
  return work_;
}

namespace {

// Whether a stage notes the rule that decided.
using NotesRule = bool (*)(const StageSlot&);
constexpr auto kNotesRule = AllStages::table<NotesRule>([]<typename Stage>(TypeTag<Stage>) -> NotesRule {
  if constexpr (requires(const Stage& stage) { stage.output_is_mark; }) {
    return [](const StageSlot& slot) { return slot.get<Stage>().output_is_mark == 0; };
  } else {
    return nullptr;
  }
});

struct FirstPointer final : PointerVisitor {
  const std::byte* at = nullptr;
  const void* moved(const void* pointer, size_t) override {
    if (at == nullptr) at = static_cast<const std::byte*>(pointer);
    return pointer;
  }
};

}  // namespace

bool notes_rule(const StageSlot& slot) {
  return kNotesRule[slot.kind] != nullptr && kNotesRule[slot.kind](slot);
}

const std::string* counted_table(const StageSlot& slot, const TableSet& tables) {
  if (!notes_rule(slot)) return nullptr;
  StageSlot copy = slot;
  FirstPointer first;
  visit_pointers(copy, first);
  for (const auto& [name, image] : tables.acls) {
    const auto bytes = image->bytes();
    if (first.at >= bytes.data() && first.at <= bytes.data() + bytes.size()) return &name;
  }
  return nullptr;
}

void attach_hits(Snapshot& snapshot, HitLedger& ledger) {
  snapshot.rules.hits.clear();
  for (const Program& program : snapshot.programs) {
    for (uint32_t s = 0; s < program.stage_count; ++s) {
      const StageSlot& slot = program.stages[s];
      const std::string* table = counted_table(slot, snapshot.tables);
      if (table == nullptr) continue;
      RuleAccounts::put(snapshot.rules.hits, slot.element,
                        ledger.of(*table, snapshot.tables.acls.find(*table)->second));
    }
  }
}

}  // namespace sluice
