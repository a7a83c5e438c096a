// host only
#include "exec/hits.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <unordered_map>

#include "elements/stages.h"
#include "exec/device/resident.h"
#include "exec/snapshot.h"
#include "tables/acl/sections.h"

namespace sluice {

void RuleHits::Free::operator()(HitCount* counts) const {
  std::free(counts);
}

RuleHits::RuleHits(uint32_t rules, unsigned workers) : rules_(rules) {
  for (unsigned w = 0; w < workers; ++w) {
    // Zero pages until they are used.
    auto* counts = static_cast<HitCount*>(std::calloc(size_t{rules} + 1, sizeof(HitCount)));
    if (counts == nullptr) throw std::bad_alloc();
    counts_.emplace_back(counts);
  }
}

HitCount RuleHits::sum(uint32_t rule) const {
  HitCount all;
  for (const auto& counts : counts_) {
    all.packets += __atomic_load_n(&counts.get()[rule].packets, __ATOMIC_RELAXED);
    all.bytes += __atomic_load_n(&counts.get()[rule].bytes, __ATOMIC_RELAXED);
  }
  return all;
}

namespace {

// What makes a rule itself: what it matches and what it does.
using Identity = std::string;
Identity identity_of(const AclRulesView& rules, const AclActionsView& actions, uint32_t rule) {
  const AclAction action = actions.action(rule);
  Identity id(offsetof(AclMatchRule, rule) + sizeof action, '\0');
  std::memcpy(id.data(), &rules.rule(rule), offsetof(AclMatchRule, rule));
  std::memcpy(id.data() + offsetof(AclMatchRule, rule), &action, sizeof action);
  return id;
}

// Rule - 1 of `before` -> position in `after`, or `gone`.
std::vector<uint32_t> follow(const Image& before, const Image& after, uint32_t gone) {
  const auto rules_before = AclRulesView::open(before), rules_after = AclRulesView::open(after);
  const auto actions_before = AclActionsView::open(before), actions_after = AclActionsView::open(after);
  if (!rules_before || !rules_after || !actions_before || !actions_after) return {};
  std::vector<uint32_t> now(rules_before->size(), gone);
  const auto same = [&](uint32_t b, uint32_t a) {
    return same_match(rules_before->rule(b), rules_after->rule(a)) &&
           actions_before->action(b) == actions_after->action(a);
  };
  // Most changes leave most rules where they are, from either end.
  const uint32_t n = rules_before->size(), m = rules_after->size();
  uint32_t front = 0, back = 0;
  while (front < std::min(n, m) && same(front + 1, front + 1)) {
    now[front] = front + 1;
    ++front;
  }
  while (back < std::min(n, m) - front && same(n - back, m - back)) {
    now[n - back - 1] = m - back;
    ++back;
  }
  std::unordered_map<Identity, std::vector<uint32_t>> places;  // in `after`, the last first
  for (uint32_t a = m - back; a > front; --a) places[identity_of(*rules_after, *actions_after, a)].push_back(a);
  for (uint32_t b = front + 1; b <= n - back; ++b) {
    const auto found = places.find(identity_of(*rules_before, *actions_before, b));
    if (found == places.end() || found->second.empty()) continue;
    now[b - 1] = found->second.back();
    found->second.pop_back();
  }
  return now;
}

}  // namespace

HitLedger::Table& HitLedger::table(const std::string& name) {
  for (Table& t : tables_) {
    if (t.name == name) return t;
  }
  tables_.push_back({});
  tables_.back().name = name;
  return tables_.back();
}

// Adds up the versions that no snapshot has any more.
void HitLedger::fold(Table& t) {
  for (auto v = t.versions.begin(); v != t.versions.end();) {
    // The last release of a snapshot is what its batches' counts happened before.
    if (v->hits.use_count() != 1 || std::next(v) == t.versions.end()) {
      ++v;
      continue;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    for (uint32_t r = 0; r <= v->hits->rules(); ++r) {
      const uint32_t place = v->place(r);
      (place == kGone ? t.removed : t.base[place]).add(v->hits->sum(r));
    }
    v = t.versions.erase(v);
  }
}

std::shared_ptr<RuleHits> HitLedger::of(const std::string& name, const std::shared_ptr<const Image>& image) {
  const std::lock_guard lock(mutex_);
  Table& t = table(name);
  fold(t);
  if (t.newest == image) return t.versions.back().hits;
  const auto rules = AclRulesView::open(*image);
  const uint32_t n = rules.ok() ? rules->size() : 0;
  auto hits = std::make_shared<RuleHits>(n, workers_);
  if (t.newest != nullptr) {
    const std::vector<uint32_t> now = follow(*t.newest, *image, kGone);
    for (Version& v : t.versions) {
      if (v.now.empty()) {
        v.now = now;
      } else {
        for (uint32_t& place : v.now) place = place == kGone ? kGone : now[place - 1];
      }
    }
    std::vector<HitCount> base(n + size_t{1});
    base[0] = t.base[0];
    for (size_t r = 1; r < t.base.size(); ++r) (now[r - 1] == kGone ? t.removed : base[now[r - 1]]).add(t.base[r]);
    t.base = std::move(base);
  } else {
    t.base.resize(n + size_t{1});
  }
  t.newest = image;
  t.versions.push_back({image, hits, {}});
  return hits;
}

HitLedger::Counts HitLedger::read(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Table& t = table(name);
  fold(t);
  Counts counts{t.newest, t.base, t.removed};
  for (const Version& v : t.versions) {
    for (uint32_t r = 0; r <= v.hits->rules(); ++r) {
      const uint32_t place = v.place(r);
      (place == kGone ? counts.removed : counts.rules[place]).add(v.hits->sum(r));
    }
  }
  return counts;
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

const std::string* counted_table(const StageSlot& slot, const TableSet& tables) {
  if (kNotesRule[slot.kind] == nullptr || !kNotesRule[slot.kind](slot)) return nullptr;
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
  snapshot.hits.clear();
  for (const Program& program : snapshot.programs) {
    for (uint32_t s = 0; s < program.stage_count; ++s) {
      const StageSlot& slot = program.stages[s];
      const std::string* table = counted_table(slot, snapshot.tables);
      if (table == nullptr) continue;
      if (snapshot.hits.size() <= slot.element) snapshot.hits.resize(slot.element + size_t{1});
      snapshot.hits[slot.element] = ledger.of(*table, snapshot.tables.acls.find(*table)->second);
    }
  }
}

}  // namespace sluice
