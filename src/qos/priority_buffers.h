// Priority buffers: ready chunks of packets by class, taken by groups of workers and given back in order. Host and
// device.
//
// Sources: single-producer multiple-consumer ring with counted positions after Vyukov, "Bounded MPMC queue" (1024cores,
// 2010), without its numbers by slot, which one producer does not need; claiming by compare-and-swap on 64-bit
// positions as Michael and Scott (PODC 1996); groups by largest remainder (Hamilton's method); order of homes by smooth
// weighted round robin (after nginx).
//
// A class has a ring of `capacity` chunks. Chunk number s of the class lies in place s % capacity from when it is
// opened to when it is committed, so its number is its position and a chunk needs no other name. Three positions, each
// of which only grows, committed <= claimed <= filled <= committed + capacity:
//
//   filled     written by the producer alone       chunks below it are ready
//   claimed    compare-and-swap by the workers     chunks below it belong to somebody
//   committed  written by whoever commits          places below it are free again
//
// Only `claimed`, `left` and the states of places are changed by more than one thread, and only by workers: with
// workers on a device these lie in its memory, and nothing that crosses the bus needs more than a load and a store.
//
// Memory order.
//   Filling: the producer writes a chunk, then stores `filled` (release). A worker loads `filled` (acquire) and finds
//   what was written in every chunk below it.
//   Claiming: `claimed` goes from s to s + 1 once in its modification order, so one compare-and-swap from s succeeds
//   and one worker has chunk s. It publishes nothing: relaxed would do for safety. Finishing: the state of a place has
//   two bits. `done` is set by the worker that finished the chunk, `turn` by the one that committed the chunk before
//   it. Both are set by a fetch-or (acquire and release). Of two fetch-ors on one word the later one sees the earlier
//   one's bit: exactly one of the two threads finds both set, it commits the chunk, and it has seen what the other one
//   did before (the work on this chunk; the commit of the one before). So chunks are committed in order, by one thread
//   at a time a class, each commit after the one before, and nobody waits: who finds that it is not the chunk's turn
//   goes on with other work and leaves the commit to whoever comes there. Giving back: the committer clears the state,
//   then stores `committed` (release). The producer loads it (acquire) before it writes the place again; so the state
//   of the next lap is written after it was cleared, and `turn` of place s + capacity is set after s + capacity - 1 was
//   committed, which was filled after s was given back.
//
// Nobody starves. Every class is the home of at least one turn of one group (HomePlan). A group looks at its home
// first, and at one other chunk at most before it looks again; it comes to every turn of its own after as many looks.
// A look takes as long as a chunk of bounded size and a bounded number of commits. So while groups work, the oldest
// ready chunk of a class is claimed after at most `turns` looks of one group, whatever the other classes hold. Which
// class is stolen from does not matter for this; it is the highest that has something.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/hd.h"
#include "qos/class_map.h"

namespace sluice {

// Atomic words of threads on the host. Loads acquire, stores release, exchanges and or do both.
struct HostAtomics {
  static uint64_t load(const uint64_t* from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
  static void store(uint64_t* to, uint64_t value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
  static void clear(uint32_t* to) { __atomic_store_n(to, 0u, __ATOMIC_RELAXED); }
  // True: it was `expected` and is `value`. False: `expected` is what it was.
  static bool compare_exchange(uint64_t* at, uint64_t& expected, uint64_t value) {
    return __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  // What it was before.
  static uint64_t exchange(uint64_t* at, uint64_t value) { return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL); }
  static uint32_t fetch_or(uint32_t* at, uint32_t bits) { return __atomic_fetch_or(at, bits, __ATOMIC_ACQ_REL); }
};

// The same for threads of a device, at system scope: the producer may be the host.
struct DeviceAtomics {
#if defined(__CUDACC__)
  static __device__ __forceinline__ uint64_t load(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  static __device__ __forceinline__ void store(uint64_t* to, uint64_t value) {
    asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
  static __device__ __forceinline__ void clear(uint32_t* to) {
    asm volatile("st.relaxed.sys.b32 [%0], %1;" ::"l"(to), "r"(0) : "memory");
  }
  static __device__ __forceinline__ bool compare_exchange(uint64_t* at, uint64_t& expected, uint64_t value) {
    uint64_t seen;
    asm volatile("atom.acq_rel.sys.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(seen)
                 : "l"(at), "l"(expected), "l"(value)
                 : "memory");
    const bool same = seen == expected;
    expected = seen;
    return same;
  }
  static __device__ __forceinline__ uint64_t exchange(uint64_t* at, uint64_t value) {
    uint64_t before;
    asm volatile("atom.acq_rel.sys.exch.b64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(value) : "memory");
    return before;
  }
  static __device__ __forceinline__ uint32_t fetch_or(uint32_t* at, uint32_t bits) {
    uint32_t before;
    asm volatile("atom.acq_rel.sys.or.b32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(bits) : "memory");
    return before;
  }
#endif
};

// Chunk `sequence` of class `qos_class`; `stolen`: the class was not the home of who claimed it.
struct ChunkClaim {
  uint64_t sequence = 0;
  uint32_t qos_class = 0;
  bool stolen = false;
};

// The ring of one class: where its words lie. `states` has `capacity` words, a power of two.
struct ChunkRing {
  static constexpr uint32_t kDone = 1;
  static constexpr uint32_t kTurn = 2;

  uint64_t* filled = nullptr;
  uint64_t* claimed = nullptr;
  uint64_t* committed = nullptr;
  uint64_t* left = nullptr;  // 1 + the chunk that anybody may commit; 0: none
  uint32_t* states = nullptr;
  uint32_t capacity = 0;

  SLUICE_HD uint32_t place(uint64_t sequence) const { return static_cast<uint32_t>(sequence) & (capacity - 1); }

  // All words are 0 but for this, before anybody looks at them.
  SLUICE_HD void begin() const { states[0] = kTurn; }

  // -- the producer, one thread

  // The number of the chunk that is filled next, and whether its place is free.
  template <typename Atomics>
  SLUICE_HD bool may_fill(uint64_t& sequence) const {
    sequence = Atomics::load(filled);
    return sequence - Atomics::load(committed) < capacity;
  }
  // The chunk in that place is ready. Precondition: may_fill.
  template <typename Atomics>
  SLUICE_HD void fill() const {
    Atomics::store(filled, Atomics::load(filled) + 1);
  }

  // -- the workers, any threads

  // Takes the oldest ready chunk. False: there was none. Another try follows only where another worker got one.
  template <typename Atomics>
  SLUICE_HD bool claim(uint64_t& sequence) const {
    uint64_t at = Atomics::load(claimed);
    while (at < Atomics::load(filled)) {
      if (Atomics::compare_exchange(claimed, at, at + 1)) {
        sequence = at;
        return true;
      }
    }
    return false;
  }

  // The work on a claimed chunk is done. Calls commit(s) for this chunk and those behind it that are done, as far as it
  // is their turn, at most `most` (not 0): in order, each number once, from one thread at a time. Returns how many
  // these were; 0: somebody else will commit it, or has. The chunk is not the caller's any more.
  template <typename Atomics, typename Commit>
  SLUICE_HD uint32_t finish(uint64_t sequence, uint32_t most, Commit&& commit) const {
    if ((Atomics::fetch_or(&states[place(sequence)], kDone) & kTurn) == 0) return 0;
    return commit_from<Atomics>(sequence, most, commit);
  }
  // Goes on where somebody left off after `most` of them. Every worker calls it between chunks; it neither waits nor
  // ends before this returns 0.
  template <typename Atomics, typename Commit>
  SLUICE_HD uint32_t resume(uint32_t most, Commit&& commit) const {
    if (Atomics::load(left) == 0) return 0;
    const uint64_t next = Atomics::exchange(left, 0);
    return next == 0 ? 0 : commit_from<Atomics>(next - 1, most, commit);
  }

 private:
  // `sequence` is done, and it is its turn.
  template <typename Atomics, typename Commit>
  SLUICE_HD uint32_t commit_from(uint64_t sequence, uint32_t most, Commit& commit) const {
    for (uint32_t count = 1;; ++count) {
      commit(sequence);
      Atomics::clear(&states[place(sequence)]);
      ++sequence;
      Atomics::store(committed, sequence);
      if ((Atomics::fetch_or(&states[place(sequence)], kTurn) & kDone) == 0) return count;
      if (count == most) {
        Atomics::store(left, sequence + 1);
        return count;
      }
    }
  }
};
static_assert(std::is_trivially_copyable_v<ChunkRing>);

// The rings of all classes, and how a group looks at them. Class 0 is the highest.
struct PriorityView {
  ChunkRing rings[kMaxQosClasses];
  uint32_t classes = 0;

  // One look: the oldest ready chunk of the group's home, else of the highest class that has one. False: nothing is
  // ready. So a group steals one chunk at most before it looks home again.
  template <typename Atomics>
  SLUICE_HD bool look(uint32_t home, ChunkClaim& claim) const {
    claim.stolen = false;
    claim.qos_class = home;
    if (rings[home].template claim<Atomics>(claim.sequence)) return true;
    for (uint32_t c = 0; c < classes; ++c) {
      if (c == home || !rings[c].template claim<Atomics>(claim.sequence)) continue;
      claim.qos_class = c;
      claim.stolen = true;
      return true;
    }
    return false;
  }
};
static_assert(std::is_trivially_copyable_v<PriorityView>);

// The rings' words in host memory. Whoever has the view must not outlive this.
class PriorityBuffers {
 public:
  // 1..kMaxQosClasses classes of `capacity` chunks each, a power of two.
  PriorityBuffers(uint32_t classes, uint32_t capacity) : states_(size_t{classes} * capacity) {
    SLUICE_CHECK(classes >= 1 && classes <= kMaxQosClasses);
    SLUICE_CHECK(capacity >= 1 && (capacity & (capacity - 1)) == 0);
    words_ = std::make_unique<Line[]>(size_t{4} * classes);
    view_.classes = classes;
    for (uint32_t c = 0; c < classes; ++c) {
      ChunkRing& ring = view_.rings[c];
      Line* const line = &words_[4 * c];
      ring.filled = &line[0].word;
      ring.claimed = &line[1].word;
      ring.committed = &line[2].word;
      ring.left = &line[3].word;
      ring.states = states_.data() + size_t{c} * capacity;
      ring.capacity = capacity;
      ring.begin();
    }
  }
  const PriorityView& view() const { return view_; }

 private:
  // Positions are written by different threads.
  struct alignas(64) Line {
    uint64_t word = 0;
  };
  std::unique_ptr<Line[]> words_;
  std::vector<uint32_t> states_;
  PriorityView view_;
};

// -- who is at home where

// Half for the highest class, two thirds of the rest for each next one, what is left for the last: 3 2 1 for three
// classes.
inline std::vector<uint32_t> default_shares(uint32_t classes) {
  if (classes < 2) return std::vector<uint32_t>(classes, 1);
  uint32_t rest = 1;
  for (uint32_t c = 2; c < classes; ++c) rest *= 3;
  std::vector<uint32_t> shares = {rest};
  for (uint32_t c = 1; c + 1 < classes; ++c) {
    shares.push_back(rest / 3 * 2);
    rest /= 3;
  }
  shares.push_back(rest);
  return shares;
}

// How many of `groups` each class gets, by largest remainder of shares[c] / sum; of equals the higher class first.
// While there are enough, every class gets one at least. The counts add up to `groups`. `shares` are not empty; if all
// are 0 they count as equal.
inline std::vector<uint32_t> assign_groups(uint32_t groups, std::span<const uint32_t> shares) {
  const auto n = static_cast<int64_t>(groups);
  int64_t total = 0;
  for (const uint32_t s : shares) total += s;
  std::vector<int64_t> want(shares.begin(), shares.end());
  if (total == 0) {
    want.assign(shares.size(), 1);
    total = static_cast<int64_t>(shares.size());
  }
  const int64_t least = groups >= shares.size() ? 1 : 0;
  std::vector<int64_t> counts;
  int64_t left = n;
  for (const int64_t w : want) {
    counts.push_back(std::max(least, n * w / total));
    left -= counts.back();
  }
  // What class c would have to get, times `total`, less what it has.
  const auto lack = [&](size_t c) { return n * want[c] - counts[c] * total; };
  for (; left > 0; --left) {
    size_t best = 0;
    for (size_t c = 1; c < counts.size(); ++c) {
      if (lack(c) > lack(best)) best = c;
    }
    ++counts[best];
  }
  // The least took more than there was: from those that have the most beyond their share, lower classes first.
  for (; left < 0; ++left) {
    size_t best = counts.size();
    for (size_t c = 0; c < counts.size(); ++c) {
      if (counts[c] > least && (best == counts.size() || lack(c) <= lack(best))) best = c;
    }
    --counts[best];
  }
  return {counts.begin(), counts.end()};
}

// The home of every look of every group. With a group for each class at least, a group has one home for ever. With
// fewer, it has several, which take turns in proportion to the shares.
class HomePlan {
 public:
  static constexpr uint32_t kMostSlots = 64;  // how finely fewer groups than classes divide their looks

  // groups >= 1; 1..kMaxQosClasses shares.
  HomePlan(uint32_t groups, std::span<const uint32_t> shares) : groups_(groups) {
    const auto classes = static_cast<uint32_t>(shares.size());
    if (groups < classes) {
      uint64_t total = 0;
      for (const uint32_t s : shares) total += s;
      const auto slots = static_cast<uint32_t>(std::clamp<uint64_t>(total, classes, kMostSlots));
      turns_ = (slots + groups - 1) / groups;
    }
    counts_ = assign_groups(groups * turns_, shares);
    std::vector<int64_t> credit(classes);
    for (uint32_t i = 0; i < groups * turns_; ++i) {
      uint32_t best = 0;
      for (uint32_t c = 0; c < classes; ++c) {
        credit[c] += counts_[c];
        if (credit[c] > credit[best]) best = c;
      }
      credit[best] -= int64_t{groups} * turns_;
      homes_.push_back(static_cast<uint8_t>(best));
    }
  }
  uint32_t groups() const { return groups_; }
  uint32_t turns() const { return turns_; }
  // Turns of all groups whose home the class is; at least 1.
  std::span<const uint32_t> counts() const { return counts_; }
  // Of the `look`th look of a group, counted from 0.
  uint32_t home(uint32_t group, uint64_t look) const {
    return homes_[static_cast<size_t>(look % turns_) * groups_ + group];
  }

 private:
  uint32_t groups_;
  uint32_t turns_ = 1;
  std::vector<uint32_t> counts_;
  std::vector<uint8_t> homes_;  // [turn][group]
};

// -- the reader's side

// The chunk of each class that is being filled: when it is ready. One thread; times are the caller's.
class OpenChunks {
 public:
  // A chunk has 1 packet at least. `timeout_ns` counts from its first packet; 0: it is ready at the next look.
  OpenChunks(uint32_t packets, uint64_t timeout_ns) : packets_(packets), timeout_ns_(timeout_ns) {}

  // So many packets, one or more, joined the class's chunk, which had room for them. True: it is full, and `taken` is
  // called before the next.
  bool add(uint32_t qos_class, uint64_t now_ns, uint32_t joined = 1) {
    Open& open = open_[qos_class];
    if (open.count == 0) open.since_ns = now_ns;
    return (open.count += joined) == packets_;
  }
  // Whether the class's chunk has waited its time.
  bool due(uint32_t qos_class, uint64_t now_ns) const {
    const Open& open = open_[qos_class];
    return open.count != 0 && now_ns - open.since_ns >= timeout_ns_;
  }
  // How long until it has; it has a packet.
  uint64_t left_ns(uint32_t qos_class, uint64_t now_ns) const {
    const uint64_t waited = now_ns - open_[qos_class].since_ns;
    return waited < timeout_ns_ ? timeout_ns_ - waited : 0;
  }
  // The chunk was handed on; the next one is empty. Returns how many packets it had.
  uint32_t taken(uint32_t qos_class) { return std::exchange(open_[qos_class].count, 0); }
  uint32_t count(uint32_t qos_class) const { return open_[qos_class].count; }

 private:
  struct Open {
    uint64_t since_ns = 0;
    uint32_t count = 0;
  };
  uint32_t packets_;
  uint64_t timeout_ns_;
  Open open_[kMaxQosClasses];
};

}  // namespace sluice
