// host only
// What waits at an output: a queue a class, strict priority above deficit round robin.
//
// Source: Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round-Robin" (SIGCOMM 1995), with weighted
// quanta. Strict classes go first, the lowest number before the others; what they leave is shared by the weighted ones,
// whatever their numbers.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/histogram.h"
#include "batch/drop_reason.h"
#include "qos/class_map.h"
#include "qos/red.h"

namespace sluice {

struct EgressClass {
  bool strict = false;
  uint32_t quantum_bytes = 1514;  // weighted: bytes a round; not 0
  uint32_t limit_pkts = 1000;
  uint64_t limit_bytes = ~uint64_t{0};
  RedConfig red;

  bool operator==(const EgressClass&) const = default;
};

// Packets and bytes of one class. in = out + tail_drops + early_drops + what is queued.
struct EgressCounters {
  uint64_t in_pkts = 0, in_bytes = 0;
  uint64_t out_pkts = 0, out_bytes = 0;
  uint64_t tail_drops = 0, early_drops = 0;
  uint32_t highest_pkts = 0;
};

// One thread. Allocates when it is made and never again; T is moved in and out.
template <typename T>
class EgressQueues {
 public:
  // 1 to kMaxQosClasses classes; `seed` of RED's drops.
  explicit EgressQueues(const std::vector<EgressClass>& classes, uint64_t seed = 1) {
    SLUICE_CHECK(!classes.empty() && classes.size() <= kMaxQosClasses);
    for (const EgressClass& c : classes) {
      SLUICE_CHECK(c.strict || c.quantum_bytes != 0);
      queues_.emplace_back(c, seed++);
    }
  }

  unsigned classes() const { return static_cast<unsigned>(queues_.size()); }
  bool empty() const { return size_ == 0; }
  uint32_t size() const { return size_; }
  uint32_t length(unsigned c) const { return queues_[c].length; }
  uint64_t length_bytes(unsigned c) const { return queues_[c].length_bytes; }
  const EgressClass& config(unsigned c) const { return queues_[c].config; }
  const EgressCounters& counters(unsigned c) const { return queues_[c].counters; }
  // Nanoseconds from put to take.
  const Histogram& latency_ns(unsigned c) const { return queues_[c].latency; }

  // kNone: it is queued. kQueueFull or kEarlyDrop: it is not, and was not moved. A class that is not there is the last.
  // Its latency counts from `since_ns`: the time of the put, where it is not given.
  DropReason put(unsigned c, uint64_t now_ns, uint32_t bytes, T&& item, uint64_t since_ns) {
    return put_made(c, now_ns, bytes, since_ns, [&]() -> T&& { return std::move(item); });
  }
  DropReason put(unsigned c, uint64_t now_ns, uint32_t bytes, T&& item) {
    return put(c, now_ns, bytes, std::move(item), now_ns);
  }
  // The same with an item that `make` gives, once it is known to be queued.
  template <typename Make>
  DropReason put_made(unsigned c, uint64_t now_ns, uint32_t bytes, uint64_t since_ns, Make&& make) {
    if (c >= queues_.size()) c = static_cast<unsigned>(queues_.size()) - 1;
    const DropReason why = admit(c, now_ns, bytes);
    if (why == DropReason::kNone) place(c, since_ns, bytes, make());
    return why;
  }

  // A packet that is put and taken at once while nothing waits, without the item: kNone, or why it is dropped.
  // Precondition: empty().
  DropReason pass(unsigned c, uint64_t now_ns, uint32_t bytes, uint64_t since_ns) {
    SLUICE_CHECK(size_ == 0);
    if (c >= queues_.size()) c = static_cast<unsigned>(queues_.size()) - 1;
    const DropReason why = admit(c, now_ns, bytes);
    if (why != DropReason::kNone) return why;
    Queue& q = queues_[c];
    ++q.counters.out_pkts;
    q.counters.out_bytes += bytes;
    if (q.counters.highest_pkts == 0) q.counters.highest_pkts = 1;
    q.latency.record(now_ns > since_ns ? now_ns - since_ns : 0);
    q.red.emptied(now_ns);
    return DropReason::kNone;
  }

  // Adds packets that were put and taken at once, one at a time.
  void count(unsigned c, uint64_t pkts, uint64_t bytes) {
    Queue& q = queues_[c];
    q.counters.in_pkts += pkts;
    q.counters.in_bytes += bytes;
    q.counters.out_pkts += pkts;
    q.counters.out_bytes += bytes;
    if (pkts != 0 && q.counters.highest_pkts == 0) q.counters.highest_pkts = 1;
    q.latency.record(0, pkts);
  }

  // Takes over what class `from` of other queues counted and holds, in its order; what does not fit is a tail drop and
  // given to `drop`. Precondition: this class has counted nothing.
  template <typename Drop>
  void take_over(unsigned c, EgressQueues& other, unsigned from, Drop&& drop) {
    Queue& q = queues_[c];
    Queue& old = other.queues_[from];
    q.counters = old.counters;
    q.latency.merge(old.latency);
    for (; old.length != 0; other.forget(old, from)) {
      Entry& entry = old.ring[old.head];
      if (fits(q, entry.bytes)) {
        place(c, entry.put_ns, entry.bytes, std::move(entry.item));
      } else {
        ++q.counters.tail_drops;
        drop(std::move(entry.item), DropReason::kQueueFull);
      }
    }
  }

  // The next packet. False: there is none.
  bool take(uint64_t now_ns, T& item, unsigned* from = nullptr, uint32_t* bytes = nullptr) {
    if (size_ == 0) return false;
    unsigned c = 0;
    if (strict_ != 0) {
      while ((strict_ >> c & 1) == 0) ++c;
    } else {
      c = next_weighted();
    }
    Queue& q = queues_[c];
    Entry& entry = q.ring[q.head];
    if (!q.config.strict) q.deficit -= entry.bytes;
    item = std::move(entry.item);
    if (from != nullptr) *from = c;
    if (bytes != nullptr) *bytes = entry.bytes;
    ++q.counters.out_pkts;
    q.counters.out_bytes += entry.bytes;
    q.latency.record(now_ns > entry.put_ns ? now_ns - entry.put_ns : 0);
    if (q.length == 1) q.red.emptied(now_ns);
    forget(q, c);
    return true;
  }

 private:
  static constexpr unsigned kNobody = kMaxQosClasses;

  struct Entry {
    T item{};
    uint64_t put_ns = 0;
    uint32_t bytes = 0;
  };
  struct Queue {
    Queue(const EgressClass& c, uint64_t seed) : config(c), ring(c.limit_pkts), red(c.red, seed) {}
    uint32_t at(uint32_t behind) const {
      const uint64_t i = uint64_t{head} + behind;
      return static_cast<uint32_t>(i >= ring.size() ? i - ring.size() : i);
    }
    EgressClass config;
    std::vector<Entry> ring;
    Red red;
    uint32_t head = 0;
    uint32_t length = 0;
    uint64_t length_bytes = 0;
    uint64_t deficit = 0;
    EgressCounters counters;
    Histogram latency;
  };

  static bool fits(const Queue& q, uint32_t bytes) {
    return q.length < q.config.limit_pkts && bytes <= q.config.limit_bytes &&
           q.length_bytes <= q.config.limit_bytes - bytes;
  }
  DropReason admit(unsigned c, uint64_t now_ns, uint32_t bytes) {
    Queue& q = queues_[c];
    ++q.counters.in_pkts;
    q.counters.in_bytes += bytes;
    const bool early = q.red.drops(now_ns, q.length);
    if (!fits(q, bytes)) {
      ++q.counters.tail_drops;
      return DropReason::kQueueFull;
    }
    if (early) {
      ++q.counters.early_drops;
      return DropReason::kEarlyDrop;
    }
    return DropReason::kNone;
  }
  void place(unsigned c, uint64_t since_ns, uint32_t bytes, T&& item) {
    Queue& q = queues_[c];
    Entry& entry = q.ring[q.at(q.length)];
    entry.item = std::move(item);
    entry.put_ns = since_ns;
    entry.bytes = bytes;
    q.length_bytes += bytes;
    ++size_;
    if (++q.length > q.counters.highest_pkts) q.counters.highest_pkts = q.length;
    if (q.length == 1) {
      if (q.config.strict) {
        strict_ |= 1u << c;
      } else if (serving_ != c) {
        activate(c);
      }
    }
  }
  // The first entry of a queue has gone.
  void forget(Queue& q, unsigned c) {
    q.length_bytes -= q.ring[q.head].bytes;
    q.head = q.at(1);
    --size_;
    if (--q.length != 0) return;
    if (q.config.strict) {
      strict_ &= ~(1u << c);
      return;
    }
    // "DeficitCounter_i = 0": what is not used up is not kept by those who have nothing to send.
    q.deficit = 0;
    if (serving_ == c) {
      serving_ = kNobody;
      return;
    }
    for (unsigned i = 0; i < active_count_; ++i) {
      if (active_[i] != c) continue;
      for (--active_count_; i < active_count_; ++i) active_[i] = active_[i + 1];
    }
  }

  // The paper's ActiveList: classes that have packets and are not being served, the first to be served first.
  void activate(unsigned c) { active_[active_count_++] = static_cast<uint8_t>(c); }
  unsigned next_weighted() {
    // A round adds a quantum to every class with packets, so that this ends.
    for (;;) {
      if (serving_ == kNobody) {
        serving_ = active_[0];
        --active_count_;
        for (unsigned i = 0; i < active_count_; ++i) active_[i] = active_[i + 1];
        queues_[serving_].deficit += queues_[serving_].config.quantum_bytes;
      }
      const Queue& q = queues_[serving_];
      if (q.ring[q.head].bytes <= q.deficit) return serving_;
      activate(serving_);
      serving_ = kNobody;
    }
  }

  std::deque<Queue> queues_;  // never moved: what they hold need not be copyable
  uint32_t strict_ = 0;       // bit c: the strict class c has packets
  uint32_t size_ = 0;
  unsigned serving_ = kNobody;
  unsigned active_count_ = 0;
  uint8_t active_[kMaxQosClasses] = {};
};

}  // namespace sluice
