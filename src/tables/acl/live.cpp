#include "tables/acl/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <thread>
#include <unordered_map>

#include "base/assert.h"
#include "memory/buffer.h"
#include "tables/acl/tuple_merge.h"
#include "tables/acl/tuple_merge_rules.h"

namespace sluice {
namespace {

using namespace tuple_merge_detail;

constexpr uint32_t kNoSlot = ~0u, kLooseSlot = ~0u - 1;
constexpr size_t kBucketLimit = 24;  // rules in a bucket while another table has room
constexpr size_t kMaxLooseLive = 192;
constexpr size_t kLooseRegions = 256;  // copies of the loose rules, of which readers may hold some
constexpr size_t kLog = 4096;          // operations that a slow reader may be behind
static_assert(kLooseRegions * kMaxLooseLive <= 65536, "views count loose rules in 16 bits");
constexpr uint64_t kIdle = ~uint64_t{0};

// Where a rule stands in one half (narrow or wide).
struct Place {
  uint32_t slot = kNoSlot;  // of all tables; or kLooseSlot
  uint32_t tag = 0;
};

template <typename T>
T* as(Buffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

// Runs of blocks: taken from the end, or from runs of the same length that were given back.
class Runs {
 public:
  explicit Runs(uint32_t capacity) : capacity_(capacity) {}
  // kNoSlot: none left.
  uint32_t take(uint32_t length) {
    if (length < free_.size() && !free_[length].empty()) {
      const uint32_t run = free_[length].back();
      free_[length].pop_back();
      return run;
    }
    if (end_ + length <= capacity_) {
      end_ += length;
      return end_ - length;
    }
    for (size_t longer = length + 1; longer < free_.size(); ++longer) {
      if (free_[longer].empty()) continue;
      const uint32_t run = free_[longer].back();
      free_[longer].pop_back();
      free_[longer - length].push_back(run + length);
      return run;
    }
    return kNoSlot;
  }
  void give(uint32_t run, uint32_t length) {
    if (length >= free_.size()) free_.resize(length + 1);
    free_[length].push_back(run);
  }
  uint32_t end() const { return end_; }

 private:
  uint32_t capacity_, end_ = 0;
  std::vector<std::vector<uint32_t>> free_;
};

}  // namespace

struct LiveAcl::State {
  struct Sizes {
    size_t blocks, loose;
  };
  static Sizes sizes(size_t capacity) {
    // The worst case is a block for each rule, and as many again that wait for readers.
    return {std::min<size_t>(2 * capacity + 4096, (size_t{1} << 24) - 2), kLooseRegions * kMaxLooseLive};
  }

  explicit State(size_t most)
      : capacity(most),
        blocks_capacity(sizes(most).blocks),
        blocks{Runs(static_cast<uint32_t>(sizes(most).blocks)), Runs(static_cast<uint32_t>(sizes(most).blocks))} {}

  // --- shared with readers ---
  alignas(64) std::atomic<uint64_t> started{0};
  alignas(64) std::atomic<uint64_t> finished{0};
  struct alignas(64) Epoch {
    std::atomic<uint64_t> version{kIdle};
    std::atomic<bool> taken{false};
  };
  std::array<Epoch, kMaxReaders> epochs;
  std::atomic<uint64_t> loose[2] = {0, 0};  // offset << 32 | count
  struct LogEntry {
    std::atomic<uint64_t> words[8];  // the bytes of an AclMatchRule
  };
  std::unique_ptr<LogEntry[]> log = std::make_unique<LogEntry[]>(kLog);
  TupleMergeView view;  // set once; loose part: by `loose`
  Buffer block_memory[2], slot_memory, table_memory, rule_memory, order_memory, action_memory, loose_memory;

  // --- the writer's ---
  std::mutex mutex;
  size_t capacity, blocks_capacity;
  Runs blocks[2];
  std::vector<TupleMergeTable> tables[2];
  std::vector<Tuple> tuples[2];
  std::vector<Place> places[2];  // by rule word
  std::vector<AclRule> models;   // by rule word
  std::unordered_map<uint64_t, uint32_t> by_priority;
  std::vector<uint32_t> free_words;
  uint32_t next_word = 1;
  std::vector<uint32_t> loose_order[2];
  size_t loose_end = 0;
  struct Retired {
    uint64_t version;
    uint32_t at, length;
    uint8_t kind;  // half 0 or 1: blocks; 2: a rule word; 3: loose rules
  };
  std::deque<Retired> retired;
  std::vector<uint32_t> free_loose;
  size_t used_blocks[2] = {0, 0};
  std::vector<uint8_t> sharers[2];  // by block: how many slots beside the first lead to it

  struct Touched {
    uint32_t half, slot;
    std::vector<uint32_t> rules;
    uint32_t run = 0;
  };
  std::vector<Touched> touched;
  size_t touched_count = 0;
  std::unordered_map<uint64_t, uint32_t> touched_at;  // only for changes of many operations

  uint64_t* order() { return as<uint64_t>(order_memory); }
  AclMatchRule* rules() { return as<AclMatchRule>(rule_memory); }  // rule word w at w - 1
  AclAction* actions() { return as<AclAction>(action_memory); }
  uint32_t* slots() { return as<uint32_t>(slot_memory); }
  TupleMergeLoose* loose_rules() { return as<TupleMergeLoose>(loose_memory); }

  template <typename F>
  void each_rule_of(uint32_t half, uint32_t slot, F&& f) {
    const uint32_t block = slots()[slot] >> 8;
    if (block == 0) return;
    auto walk = [&](const auto* b) {
      for (;; ++b) {
        for (uint32_t word : b->rule) {
          // Blocks that create() filled are shared by buckets of a table; a rule of another slot never matches here.
          const uint32_t w = word & kMergeNone;
          if (w != kMergeNone && places[half][w].slot == slot) f(w);
        }
        if ((b->rule[kMergeLanes - 1] & kMergeMore) == 0) return;
      }
    };
    half == 0 ? walk(as<TupleMergeBlock4>(block_memory[0]) + block - 1)
              : walk(as<TupleMergeBlock6>(block_memory[1]) + block - 1);
  }
  uint32_t run_length(uint32_t half, uint32_t slot) {
    uint32_t n = 0;
    const uint32_t block = slots()[slot] >> 8;
    if (block == 0) return 0;
    auto walk = [&](const auto* b) {
      do ++n;
      while ((b++->rule[kMergeLanes - 1] & kMergeMore) != 0);
    };
    half == 0 ? walk(as<TupleMergeBlock4>(block_memory[0]) + block - 1)
              : walk(as<TupleMergeBlock6>(block_memory[1]) + block - 1);
    return n;
  }

  Touched* find_touched(uint32_t half, uint32_t slot) {
    if (touched_count <= 16) {
      for (size_t i = 0; i < touched_count; ++i) {
        if (touched[i].slot == slot && touched[i].half == half) return &touched[i];
      }
      return nullptr;
    }
    const auto it = touched_at.find(uint64_t{half} << 32 | slot);
    return it == touched_at.end() ? nullptr : &touched[it->second];
  }
  // The bucket's rules as this change has them so far.
  Touched& touch(uint32_t half, uint32_t slot) {
    if (Touched* t = find_touched(half, slot)) return *t;
    if (touched_count == touched.size()) touched.emplace_back();
    Touched& t = touched[touched_count++];
    t.half = half;
    t.slot = slot;
    t.rules.clear();
    if (slot == kLooseSlot) {
      t.rules = loose_order[half];
    } else {
      each_rule_of(half, slot, [&](uint32_t word) { t.rules.push_back(word); });
    }
    if (touched_count == 17) {
      for (uint32_t i = 0; i < touched_count; ++i) touched_at[uint64_t{touched[i].half} << 32 | touched[i].slot] = i;
    } else if (touched_count > 17) {
      touched_at[uint64_t{half} << 32 | slot] = static_cast<uint32_t>(touched_count - 1);
    }
    return t;
  }

  size_t loose_count(uint32_t half) {
    const Touched* staged = find_touched(half, kLooseSlot);
    return staged != nullptr ? staged->rules.size() : loose_order[half].size();
  }
  // Puts a rule into the first table that covers it and has room, else the emptiest, else among the loose ones.
  template <bool kWide>
  void insert(uint32_t word) {
    constexpr uint32_t kHalf = kWide ? 1 : 0;
    const AclMatchRule& r = rules()[word - 1];
    const Tuple tuple = tuple_detail::tuple_of(r, kWide ? 128 : 32);
    const Item item = item_of<kWide>(r);
    Place best;
    size_t fewest = ~size_t{0};
    for (size_t t = 0; t < tables[kHalf].size() && fewest >= kBucketLimit; ++t) {
      if (!tuples[kHalf][t].covers(tuple)) continue;
      const bool last = t + 1 == tables[kHalf].size();  // the one that covers all rules
      if (last && (fewest != ~size_t{0} || loose_count(kHalf) < kMaxLooseLive)) break;
      const TupleMergeTable& table = tables[kHalf][t];
      const uint32_t h = merge_hash<kWide>(table, item.word, item.ports, item.protocol);
      const auto slot = static_cast<uint32_t>(table.slot_base + (uint64_t{h} >> table.slot_shift));
      size_t n = 0;
      if (const Touched* staged = find_touched(kHalf, slot)) {
        n = staged->rules.size();
      } else {
        each_rule_of(kHalf, slot, [&](uint32_t) { ++n; });
      }
      if (n >= fewest) continue;
      fewest = n;
      best = {slot, merge_tag(h)};
    }
    if (fewest == ~size_t{0}) best.slot = kLooseSlot;
    Touched& bucket = touch(kHalf, best.slot);  // before the rule has its place: an old lane may carry the same word
    places[kHalf][word] = best;
    bucket.rules.push_back(word);
  }
  void erase(uint32_t half, uint32_t word) {
    if (places[half][word].slot == kNoSlot) return;
    std::erase(touch(half, places[half][word].slot).rules, word);
  }
  void insert_all(uint32_t word) {
    const uint8_t family = rules()[word - 1].family;
    places[0][word] = places[1][word] = Place{};
    if (family != 6) insert<false>(word);
    if (family != 4) insert<true>(word);
  }

  uint32_t take_word() {
    if (!free_words.empty()) {
      const uint32_t word = free_words.back();
      free_words.pop_back();
      return word;
    }
    return next_word <= 2 * capacity + kMaxChange ? next_word++ : 0;
  }
  void set_rule(uint32_t word, const LiveRule& rule) {
    rules()[word - 1] = flatten(rule.rule, word);
    order()[word] = rule.priority;
    actions()[word] = {rule.rule.verb == AclVerb::kMark ? rule.rule.mark : 0, rule.rule.verb,
                       static_cast<uint8_t>(rule.rule.log ? 1 : 0), 0};
    models[word] = rule.rule;
  }

  // Frees what no reader can still see.
  void reclaim() {
    uint64_t oldest = kIdle;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const Epoch& e : epochs) oldest = std::min(oldest, e.version.load(std::memory_order_acquire));
    while (!retired.empty() && retired.front().version <= oldest) {
      const Retired r = retired.front();
      retired.pop_front();
      if (r.kind < 2) {
        blocks[r.kind].give(r.at, r.length);
        used_blocks[r.kind] -= r.length;
      } else if (r.kind == 2) {
        free_words.push_back(r.at);
      } else {
        free_loose.push_back(r.at);
      }
    }
  }

  // Lets readers finish the bursts that hold memory back, when there are any: each takes microseconds of its own time.
  bool wait_for_readers() {
    if (retired.empty()) return false;
    const size_t held = retired.size();
    for (reclaim(); retired.size() == held; reclaim()) std::this_thread::yield();
    return true;
  }

  // New blocks for every touched bucket, written but not reachable. False: no memory; nothing is changed.
  bool stage(bool share = false) {
    size_t i = 0;
    for (; i < touched_count; ++i) {
      Touched& t = touched[i];
      std::sort(t.rules.begin(), t.rules.end(), [&](uint32_t a, uint32_t b) { return order()[a] < order()[b]; });
      const auto length = static_cast<uint32_t>((t.rules.size() + kMergeLanes - 1) / kMergeLanes);
      t.run = kNoSlot;
      if (t.slot == kLooseSlot) {
        if (free_loose.empty()) break;
        t.run = free_loose.back();
        free_loose.pop_back();
        for (size_t r = 0; r < t.rules.size(); ++r) {
          const AclMatchRule& rule = rules()[t.rules[r] - 1];
          loose_rules()[t.run + r] = t.half == 0 ? loose_of<false>(rule) : loose_of<true>(rule);
        }
        continue;
      }
      if (length == 0) continue;
      if (share && t.rules.size() < kMergeLanes) continue;  // later
      t.run = blocks[t.half].take(length);
      if (t.run == kNoSlot) break;
      used_blocks[t.half] += length;
      auto write = [&](auto* b) {
        for (uint32_t k = 0; k < length; ++k, ++b) {
          for (size_t lane = 0; lane < kMergeLanes; ++lane) {
            const size_t at = k * kMergeLanes + lane;
            if (at < t.rules.size()) {
              write_merge_lane(*b, lane, rules()[t.rules[at] - 1]);
            } else {
              b->rule[lane] = kMergeNone;
            }
          }
          if (k + 1 < length) b->rule[kMergeLanes - 1] |= kMergeMore;
        }
      };
      t.half == 0 ? write(as<TupleMergeBlock4>(block_memory[0]) + t.run)
                  : write(as<TupleMergeBlock6>(block_memory[1]) + t.run);
    }
    if (i == touched_count) return !share || stage_shared();
    for (size_t k = 0; k < i; ++k) {
      const Touched& t = touched[k];
      const auto length = static_cast<uint32_t>((t.rules.size() + kMergeLanes - 1) / kMergeLanes);
      if (t.slot == kLooseSlot) {
        free_loose.push_back(t.run);
      } else if (length > 0) {
        blocks[t.half].give(t.run, length);
        used_blocks[t.half] -= length;
      }
    }
    return false;
  }

  // For create(): short buckets of a table fill blocks together.
  bool stage_shared() {
    std::array<std::vector<uint32_t>, kMergeLanes + 1> open;  // by free lanes
    std::vector<uint32_t> order_of(touched_count);
    for (uint32_t i = 0; i < touched_count; ++i) order_of[i] = i;
    std::sort(order_of.begin(), order_of.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(touched[a].half, touched[a].slot) < std::pair(touched[b].half, touched[b].slot);
    });
    for (uint32_t half : {0u, 1u}) sharers[half].resize(blocks_capacity);
    uint32_t table = 0, half_before = 0;
    for (uint32_t i : order_of) {
      Touched& t = touched[i];
      const size_t n = t.rules.size();
      if (t.slot == kLooseSlot || n == 0 || n >= kMergeLanes) continue;
      // Another table begins: its hash is another, and its rules must not meet these.
      const auto& of = tables[t.half];
      bool next = t.half != half_before;
      if (next) table = 0;
      half_before = t.half;
      while (table + 1 < of.size() && of[table + 1].slot_base <= t.slot) ++table, next = true;
      if (next) {
        for (auto& o : open) o.clear();
      }
      size_t room = n;
      while (room <= kMergeLanes && open[room].empty()) ++room;
      uint32_t used = 0;
      if (room <= kMergeLanes) {
        t.run = open[room].back();
        open[room].pop_back();
        used = static_cast<uint32_t>(kMergeLanes - room);
        ++sharers[t.half][t.run];
      } else {
        t.run = blocks[t.half].take(1);
        if (t.run == kNoSlot) return false;
        ++used_blocks[t.half];
        room = kMergeLanes;
      }
      auto write = [&](auto& b) {
        for (uint32_t lane = used; lane < kMergeLanes; ++lane) {
          if (lane - used < n) {
            write_merge_lane(b, lane, rules()[t.rules[lane - used] - 1]);
          } else {
            b.rule[lane] = kMergeNone;
          }
        }
      };
      t.half == 0 ? write(as<TupleMergeBlock4>(block_memory[0])[t.run])
                  : write(as<TupleMergeBlock6>(block_memory[1])[t.run]);
      open[room - n].push_back(t.run);
    }
    return true;
  }

  // Makes the staged blocks what readers see, and retires the old ones as of `version`.
  void publish(uint64_t version) {
    for (size_t i = 0; i < touched_count; ++i) {
      Touched& t = touched[i];
      if (t.slot == kLooseSlot) {
        const uint64_t old = loose[t.half].load(std::memory_order_relaxed);
        loose[t.half].store(uint64_t{t.run} << 32 | t.rules.size(), std::memory_order_release);
        retired.push_back({version, static_cast<uint32_t>(old >> 32), 0, 3});
        loose_order[t.half] = t.rules;
        continue;
      }
      const uint32_t old = slots()[t.slot], old_length = run_length(t.half, t.slot);
      uint32_t fresh = 0;
      if (!t.rules.empty()) {
        uint32_t tag = places[t.half][t.rules[0]].tag;
        for (uint32_t word : t.rules) tag = places[t.half][word].tag == tag ? tag : 0;
        fresh = (t.run + 1) << 8 | tag;
      }
      __atomic_store_n(&slots()[t.slot], fresh, __ATOMIC_RELEASE);
      if (old_length == 0) continue;
      const uint32_t block = (old >> 8) - 1;
      if (old_length == 1 && sharers[t.half][block] > 0) {
        --sharers[t.half][block];  // other slots still lead to it
      } else {
        retired.push_back({version, block, old_length, static_cast<uint8_t>(t.half)});
      }
    }
  }

  void clear_touched() {
    touched_count = 0;
    if (!touched_at.empty()) touched_at.clear();  // it costs its buckets
  }

  TupleMergeView current() const {
    TupleMergeView v = view;
    const uint64_t narrow = loose[0].load(std::memory_order_acquire), wide = loose[1].load(std::memory_order_acquire);
    v.loose_ = reinterpret_cast<const TupleMergeLoose*>(loose_memory.data());
    v.narrow_loose_ = static_cast<uint16_t>(narrow);
    v.wide_loose_ = static_cast<uint16_t>(wide);
    v.loose_at_[0] = static_cast<uint16_t>(narrow >> 32);
    v.loose_at_[1] = static_cast<uint16_t>(wide >> 32);
    return v;
  }

  // The keys that an operation after version `from`, up to `to`, matches.
  uint32_t changed(uint64_t from, uint64_t to, const FlowKey* const* keys, size_t n) const {
    uint32_t out = 0;
    for (uint64_t v = from; v < to; ++v) {
      AclMatchRule rule;
      uint64_t words[8];
      for (size_t w = 0; w < 8; ++w) words[w] = log[v % kLog].words[w].load(std::memory_order_relaxed);
      std::memcpy(&rule, words, sizeof rule);
      // Few packets have even the low address words of a rule.
      auto low_mask = [](unsigned length) { return high_mask64(length > 64 ? std::min(length, 128u) - 64 : 0); };
      const uint64_t src = low_mask(rule.src_length), dst = low_mask(rule.dst_length);
      for (size_t i = 0; i < n; ++i) {
        const FlowKey& key = *keys[i];
        if ((((key.src_lo ^ rule.src_lo) & src) | ((key.dst_lo ^ rule.dst_lo) & dst)) != 0) continue;
        out |= uint32_t{rule.src_length > 128 || rule.dst_length > 128 || matches(rule, key)} << i;
      }
    }
    return out;
  }
  bool overrun(uint64_t from) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return started.load(std::memory_order_relaxed) - from > kLog - kMaxChange;
  }
};

LiveAcl::LiveAcl(std::unique_ptr<State> state) : state_(std::move(state)) {}
LiveAcl::~LiveAcl() = default;

size_t LiveAcl::reserved_bytes(size_t capacity) {
  const auto sizes = State::sizes(capacity);
  const size_t words = 2 * capacity + kMaxChange + 2;
  return sizes.blocks * (sizeof(TupleMergeBlock4) + sizeof(TupleMergeBlock6)) + sizes.loose * sizeof(TupleMergeLoose) +
         words * (sizeof(AclMatchRule) + sizeof(uint64_t) + sizeof(AclAction) + sizeof(AclRule) + 2 * sizeof(Place));
}

Result<std::unique_ptr<LiveAcl>> LiveAcl::create(std::span<const LiveRule> given, size_t capacity) {
  if (given.size() > capacity)
    return Error(fmt::format("{} rules are more than the capacity of {}", given.size(), capacity),
                 "raise the capacity");
  if (capacity > size_t{1} << 22) return Error("a live access list holds at most 4,194,304 rules", "split it");
  std::vector<LiveRule> sorted(given.begin(), given.end());
  std::sort(sorted.begin(), sorted.end(), [](const LiveRule& a, const LiveRule& b) { return a.priority < b.priority; });
  std::vector<AclMatchRule> flat;
  flat.reserve(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (const char* fault = acl_rule_fault(sorted[i].rule))
      return Error(fmt::format("the rule of priority {}: {}", sorted[i].priority, fault));
    if (i > 0 && sorted[i].priority == sorted[i - 1].priority)
      return Error(fmt::format("two rules have the priority {}", sorted[i].priority));
    flat.push_back(flatten(sorted[i].rule, static_cast<uint32_t>(i + 1)));
  }
  auto state = std::make_unique<State>(capacity);
  State& s = *state;
  const auto sizes = State::sizes(capacity);
  const size_t words = 2 * capacity + kMaxChange + 2;
  size_t slot_count = 0;
  for (uint32_t half : {0u, 1u}) {
    s.tuples[half] = choose_tuples(flat, half == 1);
    std::erase_if(s.tuples[half], [](const Tuple& t) { return t.id() == 0; });
    s.tuples[half].push_back(Tuple{});  // covers every rule
    for (const Tuple& tuple : s.tuples[half]) {
      TupleMergeTable t = half == 0 ? table_of<false>(tuple) : table_of<true>(tuple);
      size_t rules = 32;
      for (const AclMatchRule& r : flat) rules += tuple.covers(tuple_detail::tuple_of(r, half == 0 ? 32 : 128));
      const auto bits = std::min(static_cast<int>(std::bit_width(rules)), 24);
      t.slot_shift = static_cast<uint8_t>(32 - (tuple.id() == 0 ? 4 : bits));
      t.slot_base = static_cast<uint32_t>(slot_count);
      t.best = 0;  // any change may bring the best rule
      slot_count += size_t{1} << (32 - t.slot_shift);
      s.tables[half].push_back(t);
    }
    s.places[half].resize(words);
  }
  if (slot_count > kLooseSlot) return Error("the access list needs too many slots", "split it");
  s.models.resize(words);
  const size_t table_count = s.tables[0].size() + s.tables[1].size();
  const std::pair<Buffer*, size_t> memory[] = {{&s.block_memory[0], sizes.blocks * sizeof(TupleMergeBlock4)},
                                               {&s.block_memory[1], sizes.blocks * sizeof(TupleMergeBlock6)},
                                               {&s.slot_memory, slot_count * sizeof(uint32_t)},
                                               {&s.table_memory, table_count * sizeof(TupleMergeTable)},
                                               {&s.rule_memory, words * sizeof(AclMatchRule)},
                                               {&s.order_memory, words * sizeof(uint64_t)},
                                               {&s.action_memory, words * sizeof(AclAction)},
                                               {&s.loose_memory, sizes.loose * sizeof(TupleMergeLoose)}};
  for (const auto& [buffer, bytes] : memory) {
    auto allocated = Buffer::allocate(bytes);
    if (!allocated) return std::move(allocated).error();
    *buffer = std::move(*allocated);
  }
  for (uint32_t half : {0u, 1u}) {
    std::copy(s.tables[half].begin(), s.tables[half].end(),
              as<TupleMergeTable>(s.table_memory) + (half == 0 ? 0 : s.tables[0].size()));
  }
  for (size_t i = 2; i < kLooseRegions; ++i) s.free_loose.push_back(static_cast<uint32_t>(i * kMaxLooseLive));
  s.loose[0] = 0;
  s.loose[1] = uint64_t{kMaxLooseLive} << 32;
  s.view.tables_ = as<TupleMergeTable>(s.table_memory);
  s.view.slots_ = s.slots();
  s.view.blocks4_ = as<TupleMergeBlock4>(s.block_memory[0]);
  s.view.blocks6_ = as<TupleMergeBlock6>(s.block_memory[1]);
  s.view.order_ = s.order();
  s.view.rules_ = s.rules();
  s.view.narrow_ = static_cast<uint16_t>(s.tables[0].size());
  s.view.wide_ = static_cast<uint16_t>(s.tables[1].size());
  s.by_priority.reserve(std::min<size_t>(capacity, 2 * sorted.size() + 1024));
  for (const LiveRule& rule : sorted) {
    const uint32_t word = s.take_word();
    s.set_rule(word, rule);
    s.by_priority.emplace(rule.priority, word);
    s.insert_all(word);
  }
  if (!s.stage(true)) return Error("no memory for the blocks of the access list", "raise the capacity");
  s.publish(0);
  s.clear_touched();
  s.touched = {};  // as large as the table
  s.touched_at = {};
  return std::unique_ptr<LiveAcl>(new LiveAcl(std::move(state)));
}

Result<uint64_t> LiveAcl::apply(const LiveChange& change) {
  State& s = *state_;
  const std::scoped_lock lock(s.mutex);
  if (change.size() == 0) return s.finished.load(std::memory_order_relaxed);
  if (change.size() > kMaxChange)
    return Error(fmt::format("{} operations are more than the {} of one change", change.size(), kMaxChange),
                 "build a new table and replace the old one");
  if (s.retired.size() > 256 || s.free_loose.size() < 8) s.reclaim();
  // All of it on the master, with what undoes it; then the blocks; only then anything that a reader can see.
  struct Undo {
    uint64_t priority;
    uint32_t word;
    bool added;
  };
  std::vector<Undo> done;
  done.reserve(change.size());
  Error error;
  bool failed = false;
  auto fail = [&](size_t op, std::string what, std::string hint = "") {
    failed = true;
    error = Error(fmt::format("operation {}: {}", op + 1, what), std::move(hint));
  };
  for (size_t i = 0; i < change.size() && !failed; ++i) {
    const auto& [kind, rule] = change.ops_[i];
    if (kind == LiveChange::Kind::kRemove) {
      const auto it = s.by_priority.find(rule.priority);
      if (it == s.by_priority.end()) {
        fail(i, fmt::format("no rule has the priority {}", rule.priority));
        break;
      }
      const uint32_t word = it->second;
      s.by_priority.erase(it);
      s.erase(0, word);
      s.erase(1, word);
      done.push_back({rule.priority, word, false});
      continue;
    }
    if (const char* fault = acl_rule_fault(rule.rule)) {
      fail(i, fmt::format("the rule of priority {}: {}", rule.priority, fault));
      break;
    }
    if (s.by_priority.size() >= s.capacity) {
      fail(i, fmt::format("the table holds its capacity of {} rules", s.capacity), "raise the capacity");
      break;
    }
    const auto [it, fresh] = s.by_priority.try_emplace(rule.priority, 0);
    if (!fresh) {
      fail(i, fmt::format("a rule has the priority {} already", rule.priority), "replace it");
      break;
    }
    uint32_t word = s.take_word();
    while (word == 0 && s.wait_for_readers()) word = s.take_word();
    if (word == 0) {
      s.by_priority.erase(it);
      fail(i, "too many rules are replaced at once", "make several changes of it");
      break;
    }
    it->second = word;
    s.set_rule(word, rule);
    s.insert_all(word);
    done.push_back({rule.priority, word, true});
  }
  bool staged = !failed && s.stage();
  while (!failed && !staged && s.wait_for_readers()) staged = s.stage();
  if (!failed && !staged) fail(change.size() - 1, "no memory left for blocks", "raise the capacity");
  if (failed) {
    for (size_t i = done.size(); i-- > 0;) {
      if (done[i].added) {
        s.by_priority.erase(done[i].priority);
        s.places[0][done[i].word] = s.places[1][done[i].word] = Place{};
        s.free_words.push_back(done[i].word);
      } else {
        s.by_priority.emplace(done[i].priority, done[i].word);
      }
    }
    s.clear_touched();
    return error;
  }
  const uint64_t before = s.finished.load(std::memory_order_relaxed), after = before + done.size();
  for (size_t i = 0; i < done.size(); ++i) {
    uint64_t words[8];
    std::memcpy(words, &s.rules()[done[i].word - 1], sizeof words);
    for (size_t w = 0; w < 8; ++w) s.log[(before + i) % kLog].words[w].store(words[w], std::memory_order_relaxed);
  }
  s.started.store(after, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before any slot
  s.publish(after);
  s.finished.store(after, std::memory_order_release);
  for (const Undo& d : done) {
    if (!d.added) s.retired.push_back({after, d.word, 0, 2});
  }
  s.clear_touched();
  return after;
}

size_t LiveAcl::size() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->by_priority.size();
}

uint64_t LiveAcl::version() const {
  return state_->finished.load(std::memory_order_acquire);
}

size_t LiveAcl::used_bytes() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->used_blocks[0] * sizeof(TupleMergeBlock4) + state_->used_blocks[1] * sizeof(TupleMergeBlock6);
}

std::vector<LiveRule> LiveAcl::rules() const {
  const std::scoped_lock lock(state_->mutex);
  std::vector<LiveRule> out;
  out.reserve(state_->by_priority.size());
  for (const auto& [priority, word] : state_->by_priority) out.push_back({priority, state_->models[word]});
  std::sort(out.begin(), out.end(), [](const LiveRule& a, const LiveRule& b) { return a.priority < b.priority; });
  return out;
}

LiveAcl::Reader::Reader(LiveAcl& table) : table_(table) {
  for (;;) {  // with more readers than kMaxReaders the last waits for a place
    for (place_ = 0; place_ < kMaxReaders; ++place_) {
      if (!table_.state_->epochs[place_].taken.exchange(true)) return;
    }
  }
}

LiveAcl::Reader::~Reader() {
  table_.state_->epochs[place_].taken.store(false);
}

void LiveAcl::Reader::lookup_burst(const FlowKey* const* keys, LiveMatch* found, size_t n) {
  SLUICE_ASSERT(n <= 32);
  State& s = *table_.state_;
  auto& epoch = s.epochs[place_].version;
  const uint64_t from = s.finished.load(std::memory_order_acquire);
  epoch.store(from, std::memory_order_seq_cst);
  uint32_t words[32];
  auto resolve = [&] {
    for (size_t i = 0; i < n; ++i)
      found[i] = words[i] == 0 ? LiveMatch{} : LiveMatch{s.order()[words[i]], s.actions()[words[i]]};
  };
  s.current().lookup_burst(keys, words, n);
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t to = s.started.load(std::memory_order_relaxed);
  if (to != from) {
    const bool all = to - from > kLog - kMaxChange;
    uint32_t touched = all ? ~0u : s.changed(from, to, keys, n);
    for (size_t i = 0; i < n; ++i) {
      bool again = (touched >> i & 1) != 0;
      for (unsigned tries = 0; again; ++tries) {
        ++again_;
        if (tries >= 1000) {  // changes that touch this packet without end: hold them up for one burst
          epoch.store(kIdle, std::memory_order_release);  // the writer may be waiting for this reader
          const std::scoped_lock lock(s.mutex);
          s.current().lookup_burst(keys, words, n);
          resolve();
          return;
        }
        const uint64_t v = s.finished.load(std::memory_order_acquire);
        s.current().lookup_burst(&keys[i], &words[i], 1);
        std::atomic_thread_fence(std::memory_order_acquire);
        const uint64_t w = s.started.load(std::memory_order_relaxed);
        again = w - v > kLog - kMaxChange || s.changed(v, w, &keys[i], 1) != 0 || s.overrun(v);
      }
    }
    // The log that was read may have run over meanwhile.
    if (!all && s.overrun(from)) {
      epoch.store(kIdle, std::memory_order_release);
      return lookup_burst(keys, found, n);
    }
  }
  resolve();
  epoch.store(kIdle, std::memory_order_release);
}

}  // namespace sluice
