// host only
#include "control/rule_list.h"

#include <algorithm>
#include <functional>

#include "base/assert.h"

namespace sluice {
namespace {

constexpr size_t kChunk = 256;  // rules; a chunk with twice as many is cut in two
constexpr uint64_t kGap = uint64_t{1} << 32, kStep = uint64_t{1} << 12;
// Room for as many in front as behind.
constexpr uint64_t kFirst = uint64_t{1} << 62;

std::string identity_of(const AclRule& rule) {
  const AclMatchRule flat = flatten(rule, 0);
  const uint32_t action[3] = {static_cast<uint32_t>(rule.verb), rule.verb == AclVerb::kMark ? rule.mark : 0, rule.log};
  std::string id(reinterpret_cast<const char*>(&flat), offsetof(AclMatchRule, rule));
  return id.append(reinterpret_cast<const char*>(action), sizeof action);
}

}  // namespace

RuleList::RuleList(RuleSet set) : size_(set.rules.size()), files_(std::move(set.files)) {
  for (size_t from = 0; from < size_; from += kChunk) {
    Chunk& chunk = chunks_.emplace_back();
    for (size_t i = from; i < std::min(size_, from + kChunk); ++i) chunk.push_back({0, set.rules[i]});
  }
  number();
  begin();
}

RuleList::Place RuleList::place(size_t position) const {
  SLUICE_CHECK(position >= 1 && position <= size_);
  size_t chunk = 0, before = 0;
  if (near_.chunk < chunks_.size() && position > near_.at) chunk = near_.chunk, before = near_.at;
  for (; position - before > chunks_[chunk].size(); ++chunk) before += chunks_[chunk].size();
  near_ = {chunk, before};
  return {chunk, position - before - 1};
}

const AclRule& RuleList::at(size_t position) const {
  const Place p = place(position);
  return chunks_[p.chunk][p.at].rule;
}

// Precondition: a rule has it.
size_t RuleList::position_of(uint64_t priority) const {
  const auto chunk = std::prev(std::upper_bound(chunks_.begin(), chunks_.end(), priority,
                                                [](uint64_t p, const Chunk& c) { return p < c.front().priority; }));
  size_t before = 0;
  for (auto c = chunks_.begin(); c != chunk; ++c) before += c->size();
  const auto at = std::lower_bound(chunk->begin(), chunk->end(), priority,
                                   [](const Entry& e, uint64_t p) { return e.priority < p; });
  return before + static_cast<size_t>(at - chunk->begin()) + 1;
}

void RuleList::index(const Entry& entry, bool there) {
  if (!indexed_) return;
  const std::pair<uint64_t, uint64_t> key{std::hash<std::string>{}(identity_of(entry.rule)), entry.priority};
  there ? void(by_identity_.insert(key)) : void(by_identity_.erase(key));
}

uint32_t RuleList::find(const AclRule& rule) {
  if (!indexed_) {
    indexed_ = true;
    work_ += size_;
    for (const Chunk& chunk : chunks_) {
      for (const Entry& e : chunk) index(e, true);
    }
  }
  const std::string id = identity_of(rule);
  const uint64_t hash = std::hash<std::string>{}(id);
  for (auto it = by_identity_.lower_bound({hash, 0}); it != by_identity_.end() && it->first == hash; ++it) {
    ++work_;
    const size_t position = position_of(it->second);
    if (identity_of(at(position)) == id) return static_cast<uint32_t>(position);
  }
  return 0;
}

uint32_t RuleList::file(const std::string& name) {
  const auto at = static_cast<uint32_t>(std::find(files_.begin(), files_.end(), name) - files_.begin());
  if (at == files_.size()) files_.push_back(name);
  return at;
}

RuleSet RuleList::set() const {
  RuleSet set;
  set.files = files_;
  set.rules.reserve(size_);
  for (const Chunk& chunk : chunks_) {
    for (const Entry& e : chunk) set.rules.push_back(e.rule);
  }
  return set;
}

std::vector<OrderedRule> RuleList::ordered() const {
  std::vector<OrderedRule> all;
  all.reserve(size_);
  for (const Chunk& chunk : chunks_) {
    for (const Entry& e : chunk) all.push_back({e.priority, e.rule});
  }
  return all;
}

void RuleList::number() {
  ++numbering_;
  uint64_t priority = kFirst;
  for (Chunk& chunk : chunks_) {
    for (Entry& e : chunk) e.priority = priority += kGap;
  }
  work_ += size_;
  indexed_ = false;
  by_identity_.clear();
}

// Of a rule that will stand at `position`.
uint64_t RuleList::priority_for(size_t position) {
  for (;;) {
    if (size_ == 0) return kFirst;
    const auto of = [&](size_t at) { return entry(place(at)).priority; };
    // In front of all and behind all there is room for as many as a list can have, one after another.
    if (position == 1 && of(1) > kGap) return of(1) - kGap;
    if (position > size_ && of(size_) < ~uint64_t{0} - kGap) return of(size_) + kGap;
    if (position > 1 && position <= size_) {
      const uint64_t before = of(position - 1), behind = of(position), half = (behind - before) / 2;
      // Many that come one after another, upwards or downwards, leave room for those to come.
      if (half != 0)
        return before == last_   ? before + std::min(half, kStep)
               : behind == last_ ? behind - std::min(half, kStep)
                                 : before + half;
    }
    number();
  }
}

void RuleList::put(size_t position, Entry entry) {
  index(entry, true);
  ++size_;
  if (chunks_.empty()) {
    chunks_.push_back({std::move(entry)});
    return;
  }
  // Behind its neighbour in front, or before the first of all.
  Place p{0, 0};
  if (position > 1) p = place(position - 1), ++p.at;
  Chunk& chunk = chunks_[p.chunk];
  work_ += chunk.size() - p.at + 1;
  chunk.insert(chunk.begin() + static_cast<ptrdiff_t>(p.at), std::move(entry));
  if (chunk.size() >= 2 * kChunk) {
    Chunk second(chunk.begin() + kChunk, chunk.end());
    work_ += second.size();
    chunk.resize(kChunk);
    chunks_.insert(chunks_.begin() + static_cast<ptrdiff_t>(p.chunk) + 1, std::move(second));
  }
  near_ = {0, 0};
}

RuleList::Entry RuleList::take(size_t position) {
  const Place p = place(position);
  Chunk& chunk = chunks_[p.chunk];
  const Entry gone = chunk[p.at];
  index(gone, false);
  work_ += chunk.size() - p.at;
  chunk.erase(chunk.begin() + static_cast<ptrdiff_t>(p.at));
  --size_;
  if (chunk.empty()) chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(p.chunk));
  near_ = {0, 0};
  return gone;
}

void RuleList::begin() {
  undo_.clear();
  change_.clear();
  files_before_ = files_.size();
  numbering_before_ = numbering_;
}

void RuleList::insert(size_t position, const AclRule& rule) {
  last_ = priority_for(position);
  put(position, {last_, rule});
  change_.add(last_, rule);
  undo_.push_back({Undo::Verb::kInsert, position, {}});
}

void RuleList::replace(size_t position, const AclRule& rule) {
  Entry& e = entry(place(position));
  undo_.push_back({Undo::Verb::kReplace, position, e});
  index(e, false);
  e.rule = rule;
  index(e, true);
  ++work_;
  change_.replace(e.priority, rule);
}

void RuleList::erase(size_t position) {
  Entry gone = take(position);
  change_.remove(gone.priority);
  undo_.push_back({Undo::Verb::kErase, position, std::move(gone)});
}

void RuleList::undo() {
  for (; !undo_.empty(); undo_.pop_back()) {
    const Undo& u = undo_.back();
    switch (u.verb) {
      case Undo::Verb::kInsert:
        take(u.position);
        break;
      case Undo::Verb::kReplace: {
        Entry& e = entry(place(u.position));
        index(e, false);
        e.rule = u.entry.rule;
        index(e, true);
        break;
      }
      case Undo::Verb::kErase:
        put(u.position, u.entry);
        break;
    }
  }
  // The priorities of what came back are of another numbering then.
  if (numbering_ != numbering_before_) number();
  files_.resize(files_before_);
  begin();
}

}  // namespace sluice
