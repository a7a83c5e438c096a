// host only
#include "control/rule_list.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>

#include "base/assert.h"

namespace sluice {
namespace {

constexpr size_t kChunk = 256;  // rules; a chunk with twice as many is cut in two
constexpr uint64_t kGap = uint64_t{1} << 32, kStep = uint64_t{1} << 12, kLeastGap = 4;
// Room for as many in front as behind.
constexpr uint64_t kFirstPriority = uint64_t{1} << 62;

// What the rule matches, and what it does.
using Identity = std::array<char, offsetof(AclMatchRule, rule) + 3 * sizeof(uint32_t)>;

Identity identity_of(const AclRule& rule) {
  const AclMatchRule flat = flatten(rule, 0);
  const uint32_t action[3] = {static_cast<uint32_t>(rule.verb), rule.verb == AclVerb::kMark ? rule.mark : 0,
                              (rule.log ? 1u : 0u) | (rule.keep ? 2u : 0u)};
  Identity id;
  std::memcpy(id.data(), &flat, offsetof(AclMatchRule, rule));
  std::memcpy(id.data() + offsetof(AclMatchRule, rule), action, sizeof action);
  return id;
}

uint64_t hash_of(const Identity& id) {
  return std::hash<std::string_view>{}({id.data(), id.size()});
}

// The same packets, and the same is done with them, wherever it is written.
bool same_rule(const AclRule& a, const AclRule& b) {
  if (!(a.src == b.src && a.dst == b.dst)) return false;
  AclRule moved = b;
  moved.file = a.file;
  moved.line = a.line;
  return a == moved;
}

}  // namespace

RuleList::RuleList(RuleSet set) : size_(set.rules.size()), files_(std::move(set.files)) {
  for (size_t from = 0; from < size_; from += kChunk) {
    Chunk& chunk = chunks_.emplace_back();
    for (size_t i = from; i < std::min(size_, from + kChunk); ++i) chunk.push_back({0, set.rules[i]});
  }
  count_chunks();
  number();
  begin();
}

void RuleList::count_chunks() {
  sums_.assign(chunks_.size() + 1, 0);
  work_ += chunks_.size();
  for (size_t i = 1; i < sums_.size(); ++i) {
    sums_[i] += static_cast<uint32_t>(chunks_[i - 1].size());
    if (const size_t up = i + (i & -i); up < sums_.size()) sums_[up] += sums_[i];
  }
}

void RuleList::count(size_t chunk, ptrdiff_t more) {
  for (size_t i = chunk + 1; i < sums_.size(); i += i & -i)
    sums_[i] = static_cast<uint32_t>(static_cast<ptrdiff_t>(sums_[i]) + more);
}

size_t RuleList::rules_before(size_t chunk) const {
  size_t sum = 0;
  for (size_t i = chunk; i != 0; i &= i - 1) sum += sums_[i];
  return sum;
}

RuleList::Place RuleList::place(size_t position) const {
  SLUICE_CHECK(position >= 1 && position <= size_);
  size_t chunk = 0, left = position - 1;
  for (size_t step = std::bit_floor(chunks_.size()); step != 0; step /= 2) {
    if (chunk + step >= sums_.size() || sums_[chunk + step] > left) continue;
    chunk += step;
    left -= sums_[chunk];
  }
  return {chunk, left};
}

const AclRule& RuleList::at(size_t position) const {
  const Place p = place(position);
  return chunks_[p.chunk][p.at].rule;
}

// Precondition: a rule has it.
size_t RuleList::position_of(uint64_t priority) const {
  const auto chunk = std::prev(std::upper_bound(chunks_.begin(), chunks_.end(), priority,
                                                [](uint64_t p, const Chunk& c) { return p < c.front().priority; }));
  const size_t before = rules_before(static_cast<size_t>(chunk - chunks_.begin()));
  const auto at = std::lower_bound(chunk->begin(), chunk->end(), priority,
                                   [](const Entry& e, uint64_t p) { return e.priority < p; });
  return before + static_cast<size_t>(at - chunk->begin()) + 1;
}

void RuleList::index(const Entry& entry, bool there) {
  if (!indexed_) return;
  const std::pair<uint64_t, uint64_t> key{hash_of(identity_of(entry.rule)), entry.priority};
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
  const Identity id = identity_of(rule);
  const uint64_t hash = hash_of(id);
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
  uint64_t priority = kFirstPriority;
  for (Chunk& chunk : chunks_) {
    for (Entry& e : chunk) e.priority = priority += kGap;
  }
  work_ += size_;
  indexed_ = false;
  by_identity_.clear();
}

// Gives the rules around the place between `position` - 1 and `position` other priorities, so that it has room: those
// of the smallest range of priorities, a power of two, that is thinly used. What a range may hold grows more slowly
// than its size, so a rule is moved a bounded number of times (the logarithm, on average) however rules come: Bender,
// Cole, Demaine, Farach-Colton, Zito, "Two Simplified Algorithms for Maintaining Order in a List", ESA 2002.
void RuleList::spread(size_t position) {
  ++numbering_;
  const auto step_back = [&](Place& p) {
    if (p.at != 0) return --p.at, true;
    if (p.chunk == 0) return false;
    --p.chunk;
    p.at = chunks_[p.chunk].size() - 1;
    return true;
  };
  const auto step_on = [&](Place& p) {
    if (p.at + 1 < chunks_[p.chunk].size()) return ++p.at, true;
    if (p.chunk + 1 == chunks_.size()) return false;
    ++p.chunk;
    p.at = 0;
    return true;
  };
  const uint64_t middle = entry(place(position - 1)).priority;
  Place first = place(position - 1), last = first;
  uint64_t count = 1;
  double most = 1;
  for (unsigned bits = 1; bits < 64; ++bits) {
    most *= 2 / 1.5;
    const uint64_t low = middle >> bits << bits, high = low + ((uint64_t{1} << bits) - 1);
    for (Place p = first; step_back(p) && entry(p).priority >= low; ++count) first = p;
    for (Place p = last; step_on(p) && entry(p).priority <= high; ++count) last = p;
    const uint64_t gap = (uint64_t{1} << bits) / (count + 1);
    if (static_cast<double>(count) > most || gap < 2 * kLeastGap) continue;
    work_ += count;
    std::vector<Entry*> all;
    for (Place p = first;; step_on(p)) {
      all.push_back(&entry(p));
      if (p.chunk == last.chunk && p.at == last.at) break;
    }
    for (const Entry* e : all) index(*e, false);
    uint64_t priority = low;
    for (Entry* e : all) e->priority = priority += gap;
    for (const Entry* e : all) index(*e, true);
    return;
  }
  number();
}

// Of a rule that will stand at `position`.
uint64_t RuleList::priority_for(size_t position) {
  for (;;) {
    if (size_ == 0) return kFirstPriority;
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
      spread(position);
    } else {
      number();
    }
  }
}

void RuleList::put(size_t position, Entry entry) {
  index(entry, true);
  ++size_;
  if (chunks_.empty()) {
    chunks_.push_back({std::move(entry)});
    count_chunks();
    return;
  }
  // Behind its neighbour in front, or before the first of all.
  Place p{0, 0};
  if (position > 1) p = place(position - 1), ++p.at;
  Chunk& chunk = chunks_[p.chunk];
  work_ += chunk.size() - p.at + 1;
  chunk.insert(chunk.begin() + static_cast<ptrdiff_t>(p.at), std::move(entry));
  count(p.chunk, 1);
  if (chunk.size() >= 2 * kChunk) {
    Chunk second(chunk.begin() + kChunk, chunk.end());
    work_ += second.size();
    chunk.resize(kChunk);
    chunks_.insert(chunks_.begin() + static_cast<ptrdiff_t>(p.chunk) + 1, std::move(second));
    count_chunks();
  }
}

RuleList::Entry RuleList::take(size_t position) {
  const Place p = place(position);
  Chunk& chunk = chunks_[p.chunk];
  const Entry gone = chunk[p.at];
  index(gone, false);
  work_ += chunk.size() - p.at;
  chunk.erase(chunk.begin() + static_cast<ptrdiff_t>(p.at));
  --size_;
  count(p.chunk, -1);
  if (chunk.empty()) {
    chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(p.chunk));
    count_chunks();
  }
  return gone;
}

void RuleList::begin() {
  undo_.clear();
  gone_.clear();
  change_.clear();
  files_before_ = files_.size();
  numbering_before_ = numbering_;
}

void RuleList::insert(size_t position, const AclRule& rule) {
  last_ = priority_for(position);
  put(position, {last_, rule});
  change_.add(last_, rule);
  undo_.push_back({Undo::Verb::kInsert, static_cast<uint32_t>(position)});
}

void RuleList::replace(size_t position, const AclRule& rule) {
  Entry& e = entry(place(position));
  if (same_rule(e.rule, rule)) return;
  gone_.push_back(e);
  undo_.push_back({Undo::Verb::kReplace, static_cast<uint32_t>(position)});
  index(e, false);
  e.rule = rule;
  index(e, true);
  ++work_;
  change_.replace(e.priority, rule);
}

void RuleList::erase(size_t position) {
  Entry gone = take(position);
  change_.remove(gone.priority);
  gone_.push_back(std::move(gone));
  undo_.push_back({Undo::Verb::kErase, static_cast<uint32_t>(position)});
}

// The shortest way from one list to the other: Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica
// 1, 1986. Point (x, y) has x rules of this list and y of the other behind it; reach[d][k + d] is how far on the
// diagonal x - y = k a way of d steps comes.
std::optional<std::vector<uint32_t>> RuleList::kept_in(const RuleSet& next, size_t most) const {
  std::vector<const AclRule*> old;
  old.reserve(size_);
  for (const Chunk& chunk : chunks_) {
    for (const Entry& e : chunk) old.push_back(&e.rule);
  }
  const size_t all = old.size(), all_next = next.rules.size();
  if (std::max(all, all_next) - std::min(all, all_next) > most) return std::nullopt;
  // What both begin and end with stays, and most is that: only what lies between is worth a hash.
  size_t front = 0, back = 0;
  while (front < std::min(all, all_next) && same_rule(*old[front], next.rules[front])) ++front;
  while (back < std::min(all, all_next) - front && same_rule(*old[all - 1 - back], next.rules[all_next - 1 - back]))
    ++back;
  const size_t n = all - front - back, m = all_next - front - back;
  std::vector<uint64_t> of_old(n), of_next(m);
  for (size_t i = 0; i < n; ++i) of_old[i] = hash_of(identity_of(*old[front + i]));
  for (size_t i = 0; i < m; ++i) of_next[i] = hash_of(identity_of(next.rules[front + i]));
  const auto same = [&](size_t x, size_t y) {
    return of_old[x] == of_next[y] && same_rule(*old[front + x], next.rules[front + y]);
  };
  std::vector<std::vector<ptrdiff_t>> reach;
  const auto end = static_cast<ptrdiff_t>(n), other_end = static_cast<ptrdiff_t>(m);
  const auto at = [&](size_t d, ptrdiff_t k) { return reach[d][static_cast<size_t>(k + static_cast<ptrdiff_t>(d))]; };
  // Where a way of d steps comes to diagonal k: from above (a rule of `next` is new) or from the left (one goes).
  const auto from_above = [&](size_t d, ptrdiff_t k) {
    const auto last = static_cast<ptrdiff_t>(d);
    return k == -last || (k != last && at(d - 1, k - 1) < at(d - 1, k + 1));
  };
  for (size_t d = 0;; ++d) {
    if (d > most) return std::nullopt;
    reach.emplace_back(2 * d + 1, -1);
    bool there = false;
    for (ptrdiff_t k = -static_cast<ptrdiff_t>(d); k <= static_cast<ptrdiff_t>(d); k += 2) {
      ptrdiff_t x = 0;
      if (d != 0) x = from_above(d, k) ? at(d - 1, k + 1) : at(d - 1, k - 1) + 1;
      // A way may come past an end, where it goes no further.
      while (x < end && x - k < other_end && same(static_cast<size_t>(x), static_cast<size_t>(x - k))) ++x;
      reach[d][static_cast<size_t>(k + static_cast<ptrdiff_t>(d))] = x;
      there = there || (x == end && x - k == other_end);
    }
    if (there) break;
  }
  // Back from the end.
  std::vector<uint32_t> kept(all, ~uint32_t{0});
  for (size_t i = 0; i < front; ++i) kept[i] = static_cast<uint32_t>(i);
  for (size_t i = 1; i <= back; ++i) kept[all - i] = static_cast<uint32_t>(all_next - i);
  ptrdiff_t x = end, y = other_end;
  for (size_t d = reach.size() - 1;; --d) {
    const ptrdiff_t k = x - y;
    ptrdiff_t begin = 0;
    if (d != 0) begin = from_above(d, k) ? at(d - 1, k + 1) : at(d - 1, k - 1) + 1;
    for (; x > begin; --x, --y)
      kept[front + static_cast<size_t>(x - 1)] = static_cast<uint32_t>(front + static_cast<size_t>(y - 1));
    if (d == 0) return kept;
    from_above(d, k) ? --y : --x;
  }
}

bool RuleList::same_as(const RuleSet& next, const SameFile& same_file) const {
  if (size_ != next.rules.size()) return false;
  // Names are compared once for each pair of files: most rules are in that of the rule before.
  std::set<std::pair<uint32_t, uint32_t>> same;
  const auto same_place = [&](const AclRule& a, const AclRule& b) {
    if (a.line != b.line) return false;
    const bool named = a.file < files_.size(), theirs_named = b.file < next.files.size();
    if (!named || !theirs_named) return named == theirs_named;
    if (same.contains({a.file, b.file})) return true;
    if (!same_file(files_[a.file], next.files[b.file])) return false;
    same.emplace(a.file, b.file);
    return true;
  };
  auto rule = next.rules.begin();
  for (const Chunk& chunk : chunks_) {
    for (const Entry& e : chunk) {
      if (!same_place(e.rule, *rule) || !same_rule(e.rule, *rule)) return false;
      ++rule;
    }
  }
  return true;
}

bool RuleList::become(const RuleSet& next, size_t most) {
  std::vector<uint32_t> file_of;
  for (const std::string& name : next.files) {
    const auto at = static_cast<uint32_t>(std::find(files_.begin(), files_.end(), name) - files_.begin());
    if (at == files_.size()) return false;
    file_of.push_back(at);
  }
  for (const AclRule& rule : next.rules) {
    if (rule.file >= file_of.size() && (rule.line != 0 || rule.file != 0)) return false;
  }
  const auto file_at = [&](uint32_t i) {
    const uint32_t file = next.rules[i].file;
    return file < file_of.size() ? file_of[file] : file;
  };
  const auto placed = [&](uint32_t i) {
    AclRule rule = next.rules[i];
    rule.file = file_at(i);
    return rule;
  };
  const auto kept = kept_in(next, most);
  work_ += size_ + next.rules.size();
  if (!kept) return false;
  // First where rules are written, by priorities that still hold. A line at the top of a file moves all others.
  if (!kept->empty() && kept->front() != 0) {
    undo_.reserve(size_ + most);
    change_.reserve(size_ + most);
  }
  size_t position = 0;
  for (Chunk& chunk : chunks_) {
    for (Entry& e : chunk) {
      const uint32_t i = (*kept)[position++];
      if (i == ~uint32_t{0}) continue;
      const uint32_t file = file_at(i), line = next.rules[i].line;
      if (file == e.rule.file && line == e.rule.line) continue;
      undo_.push_back({Undo::Verb::kPlace, static_cast<uint32_t>(position), e.rule.file, e.rule.line});
      e.rule.file = file;
      e.rule.line = line;
      change_.place(e.priority, file, line);
    }
  }
  // From the end to the front, so that positions in front still hold.
  auto y = static_cast<uint32_t>(next.rules.size());
  for (size_t x = kept->size(); x != 0 || y != 0;) {
    const uint32_t stays = x == 0 ? ~uint32_t{0} : (*kept)[x - 1];
    if (x != 0 && stays == ~uint32_t{0}) {
      erase(x--);
    } else if (x != 0 && stays + 1 == y) {
      --x, --y;
    } else {
      insert(x + 1, placed(--y));
    }
  }
  return true;
}

RuleList::Difference RuleList::difference() const {
  Difference found;
  for (const Undo& u : undo_) {
    if (u.verb == Undo::Verb::kPlace) continue;
    found.added += u.verb != Undo::Verb::kErase ? 1 : 0;
    found.deleted += u.verb != Undo::Verb::kInsert ? 1 : 0;
  }
  return found;
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
        e.rule = gone_.back().rule;
        index(e, true);
        gone_.pop_back();
        break;
      }
      case Undo::Verb::kPlace: {
        AclRule& rule = entry(place(u.position)).rule;
        rule.file = u.file;
        rule.line = u.line;
        break;
      }
      case Undo::Verb::kErase:
        put(u.position, gone_.back());
        gone_.pop_back();
        break;
    }
  }
  // The priorities of what came back are of another numbering then.
  if (numbering_ != numbering_before_) number();
  files_.resize(files_before_);
  begin();
}

}  // namespace sluice
