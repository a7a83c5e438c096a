// host only
// What an output does with classes of service: classify, police, remark, wait for the class's rate in a timing wheel,
// then in the class's queue, then for the port's rate.
//
// Time is an argument and not asked for: the packet scheduler gives its clock's, the engine the packets' own.
// A class is charged when a packet arrives and the port when one leaves, so that a strict packet passes those that came
// before it (docs/design/qos.md). Sources: see what is included.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "batch/drop_reason.h"
#include "net/edit.h"
#include "qos/departure.h"
#include "qos/policer.h"
#include "qos/qos_model.h"
#include "qos/timing_wheel.h"

namespace sluice {

// What classes of service look at and write.
struct QosPacket {
  uint8_t* ip = nullptr;  // a header of which kRemarkBytes are there, which may be remarked; nullptr: none
  unsigned family = 0;    // of `ip`: 4 or 6
  uint32_t mark = 0;      // of an access list; 0: none
  uint32_t bytes = 0;     // on the wire, what rates and queues count
  uint32_t ip_bytes = 0;  // what policers count: policed_bytes
  // When it came, where classes overtake each other: its class's policer and rate go by that. Later than now: now.
  uint64_t came_ns = ~uint64_t{0};
};

// Packets and bytes of one class. in = out + drops + what waits for its rate + what is queued.
struct QosCounters {
  uint64_t in_pkts = 0, in_bytes = 0;
  uint64_t out_pkts = 0, out_bytes = 0;
  uint64_t policed = 0, shaper_full = 0, tail_drops = 0, early_drops = 0;
  uint32_t waiting = 0, queued = 0;  // now
  uint32_t highest_pkts = 0;         // in the queue

  uint64_t drops() const { return policed + shaper_full + tail_drops + early_drops; }
};

// One thread. T is what waits: moved in and out. `drop` is called with a T&& and a DropReason for each packet that had
// been taken and is dropped after all. Times that go back are the latest that was given.
template <typename T>
class PortQos {
 public:
  static constexpr uint64_t kNever = TimingWheel<T>::kNever;

  // A model as parse_qos makes it; all buckets are full at `now_ns`, from which rates last 11 years (departure.h).
  PortQos(QosModel model, uint64_t now_ns)
      : model_(std::move(model)), remarks_(model_.remarks()), queues_(model_.egress()), time_ns_(now_ns) {
    port_ = DepartureRate::of(model_.port_rate_bps, model_.port_burst_bytes, now_ns);
    for (const QosClass& c : model_.classes) {
      Class state;
      state.came_ns = now_ns;
      state.rate = DepartureRate::of(c.rate_bps, c.burst_bytes, now_ns);
      state.policer = PolicerState::full(c.police, now_ns);
      classes_.push_back(state);
    }
  }

  const QosModel& model() const { return model_; }
  unsigned classes() const { return static_cast<unsigned>(classes_.size()); }
  unsigned class_of(const QosPacket& p) const {
    return model_.class_of(p.mark, p.ip != nullptr ? dscp_of(p.ip, p.family) : 0);
  }
  uint32_t queued() const { return queues_.size(); }
  uint32_t waiting() const { return wheel_->size(); }
  // The latest that was given.
  uint64_t time_ns() const { return time_ns_; }
  uint64_t held() const { return uint64_t{queued()} + waiting(); }
  QosCounters counters(unsigned c) const {
    const Class& state = classes_[c];
    const EgressCounters& n = queues_.counters(c);
    QosCounters out;
    out.in_pkts = state.in_pkts;
    out.in_bytes = state.in_bytes;
    out.out_pkts = n.out_pkts;
    out.out_bytes = n.out_bytes;
    out.policed = state.policed;
    out.shaper_full = state.shaper_full;
    out.tail_drops = n.tail_drops;
    out.early_drops = n.early_drops;
    out.waiting = state.waiting;
    out.queued = queues_.length(c);
    out.highest_pkts = n.highest_pkts;
    return out;
  }
  // Adds packets that came and left at once, which somebody counted who did nothing else with them.
  void count(unsigned c, uint64_t pkts, uint64_t bytes) {
    classes_[c].in_pkts += pkts;
    classes_[c].in_bytes += bytes;
    queues_.count(c, pkts, bytes);
  }
  // Nanoseconds from the arrival to the departure.
  const Histogram& latency_ns(unsigned c) const { return queues_.latency_ns(c); }

  // A packet arrives. kNone: it waits. Else it is dropped for that, and `item` was not moved.
  template <typename Drop>
  DropReason arrive(uint64_t now_ns, const QosPacket& p, T&& item, Drop&& drop) {
    advance(now_ns, drop);
    return wait(p, [&]() -> T&& { return std::move(item); });
  }
  // The same for one that leaves at once where nothing holds it, which `goes` says; only where it has to wait is
  // `make()` called for the item. Precondition: depart(now_ns, ...) has just returned false.
  template <typename Make>
  DropReason pass(uint64_t now_ns, const QosPacket& p, bool& goes, Make&& make) {
    set_time(now_ns);
    goes = false;
    unsigned c = 0;
    uint64_t at = 0;
    if (const DropReason why = judge(p, c, at); why != DropReason::kNone) return why;
    if (at > time_ns_) {
      insert(c, at, p.bytes, make());
      return DropReason::kNone;
    }
    if (queues_.empty() && ready_ns() <= time_ns_) {
      const DropReason why = queues_.pass(c, time_ns_, p.bytes, time_ns_);
      goes = why == DropReason::kNone;
      if (goes) charge_port(p.bytes);
      return why;
    }
    const DropReason why = queues_.put_made(c, time_ns_, p.bytes, time_ns_, make);
    note_backlog();
    return why;
  }

  // What the port sends at `now_ns`, taken by whoever asks. False: nothing, until next_ns().
  template <typename Drop>
  bool take(uint64_t now_ns, T& item, Drop&& drop) {
    advance(now_ns, drop);
    if (queues_.empty() || ready_ns() > time_ns_) return false;
    take_next(item);
    return true;
  }
  // The next packet that leaves at `until_ns` or before, by the rates alone; `at_ns` is when. What leaves is in the
  // order of its time. False: there is none.
  template <typename Drop>
  bool depart(uint64_t until_ns, T& item, uint64_t& at_ns, Drop&& drop) {
    for (;;) {
      const uint64_t released = wheel_->next_ns();
      const uint64_t ready = queues_.empty() ? kNever : ready_ns();
      // Who comes to a queue at the moment in which the port is free is there.
      if (released <= ready) {
        if (released > until_ns || wheel_->size() == 0) return false;
        advance(released, drop);
        continue;
      }
      if (ready > until_ns) return false;
      set_time(ready);
      take_next(item);
      at_ns = time_ns_;
      return true;
    }
  }
  // Moves what has its class's rate to the queues.
  template <typename Drop>
  void advance(uint64_t now_ns, Drop&& drop) {
    set_time(now_ns);
    Waiting w;
    uint64_t at = 0;
    while (wheel_->release(time_ns_, w, &at)) {
      --classes_[w.qos_class].waiting;
      const DropReason why = queues_.put(w.qos_class, std::max(at, w.since_ns), w.bytes, std::move(w.item), w.since_ns);
      if (why != DropReason::kNone) drop(std::move(w.item), why);
      note_backlog();
    }
  }
  // Nothing happens before this time; when it has come, there may be a later one. kNever: nothing waits.
  uint64_t next_ns() const { return std::min(next_release_ns(), queues_.empty() ? kNever : ready_ns()); }
  uint64_t next_release_ns() const { return wheel_->next_ns(); }
  uint64_t ready_ns() const { return port_.unlimited() ? time_ns_ : port_.departure(port_word_, time_ns_); }

  // Changes the rate of a class, or of the port, from `now_ns` on (0: unlimited); departures that were given stay.
  void set_class_rate(unsigned c, uint64_t rate_bps, uint32_t burst_bytes, uint64_t now_ns) {
    time_ns_ = std::max(time_ns_, now_ns);
    model_.classes[c].rate_bps = rate_bps;
    model_.classes[c].burst_bytes = burst_bytes;
    classes_[c].came_ns = time_ns_;
    change(classes_[c].rate, classes_[c].word, DepartureRate::of(rate_bps, burst_bytes, time_ns_));
  }
  void set_port_rate(uint64_t rate_bps, uint32_t burst_bytes, uint64_t now_ns) {
    time_ns_ = std::max(time_ns_, now_ns);
    model_.port_rate_bps = rate_bps;
    model_.port_burst_bytes = burst_bytes;
    change(port_, port_word_, DepartureRate::of(rate_bps, burst_bytes, time_ns_));
    backlogged_ = false;
    note_backlog();
  }

  // Takes over from a port of another model, at `now_ns`: classes of the same name keep what waits, in its order and
  // for the times that it was given, their counters and their credit. What belongs to other classes, or has no room, is
  // dropped. Precondition: nothing has come to this one.
  template <typename Drop>
  void take_over(PortQos& from, uint64_t now_ns, Drop&& drop) {
    time_ns_ = std::max({time_ns_, from.time_ns_, now_ns});
    carry(port_, port_word_, from.port_, from.port_word_);
    constexpr unsigned kGone = kMaxQosClasses;
    unsigned becomes[kMaxQosClasses];
    for (unsigned old = 0; old < from.classes(); ++old) {
      becomes[old] = kGone;
      for (unsigned c = 0; c < classes(); ++c) {
        if (model_.classes[c].name == from.model_.classes[old].name) becomes[old] = c;
      }
      const unsigned c = becomes[old];
      if (c == kGone) continue;
      Class& mine = classes_[c];
      const Class& other = from.classes_[old];
      carry(mine.rate, mine.word, other.rate, other.word);
      mine.in_pkts = other.in_pkts;
      mine.in_bytes = other.in_bytes;
      mine.policed = other.policed;
      mine.shaper_full = other.shaper_full;
      mine.last_ns = other.last_ns;
      mine.came_ns = time_ns_;
      if (model_.classes[c].policed && from.model_.classes[old].policed) {
        mine.policer.committed = std::min(mine.policer.committed, other.policer.committed);
        mine.policer.excess = std::min(mine.policer.excess, other.policer.excess);
        mine.policer.last_ns = other.policer.last_ns;
      }
      queues_.take_over(c, from.queues_, old, drop);
    }
    T item{};
    while (from.queues_.take(time_ns_, item)) drop(std::move(item), DropReason::kGraphChanged);
    Waiting w;
    uint64_t at = 0;
    while (from.wheel_->release(kNever, w, &at)) {
      const unsigned c = becomes[w.qos_class];
      --from.classes_[w.qos_class].waiting;
      if (c == kGone) {
        drop(std::move(w.item), DropReason::kGraphChanged);
      } else if (classes_[c].waiting >= model_.classes[c].limit_pkts) {
        ++classes_[c].shaper_full;
        drop(std::move(w.item), DropReason::kShaperFull);
      } else {
        w.qos_class = static_cast<uint8_t>(c);
        ++classes_[c].waiting;
        insert(at, std::move(w));
      }
    }
  }

 private:
  struct Waiting {
    T item{};
    uint64_t since_ns = 0;
    uint32_t bytes = 0;
    uint8_t qos_class = 0;
  };
  struct Class {
    DepartureRate rate;
    uint64_t word = 0;
    uint64_t came_ns = 0;  // its clock: the latest of its packets
    uint64_t last_ns = 0;  // the latest departure that was given
    uint32_t waiting = 0;  // in the wheel
    PolicerState policer;
    uint64_t in_pkts = 0, in_bytes = 0;
    uint64_t policed = 0, shaper_full = 0;
  };

  void set_time(uint64_t now_ns) {
    if (now_ns <= time_ns_) return;
    time_ns_ = now_ns;
    if (now_ns < look_ns_) return;
    // Schedules last for years, and time stamps may be any.
    look_ns_ = now_ns > DepartureRate::kNever - kLookNs ? DepartureRate::kNever : now_ns + kLookNs;
    keep_epoch(port_, port_word_, now_ns);
    for (Class& c : classes_) keep_epoch(c.rate, c.word, now_ns);
  }
  // Polices, remarks and stamps what comes now: `at` is when it may come to the queue of `c`.
  DropReason judge(const QosPacket& p, unsigned& c, uint64_t& at) {
    c = class_of(p);
    Class& state = classes_[c];
    const QosClass& config = model_.classes[c];
    ++state.in_pkts;
    state.in_bytes += p.bytes;
    const uint64_t now = state.came_ns = std::max(state.came_ns, std::min(p.came_ns, time_ns_));
    Color color = Color::kGreen;
    if (config.policed) {
      color = police(config.police, state.policer, now, p.ip_bytes);
      if (color == Color::kRed && config.drops_red()) {
        ++state.policed;
        return DropReason::kPoliced;
      }
    }
    // A class waits in its own share of the wheel; what does not fit is not charged.
    if (state.waiting >= config.limit_pkts) {
      ++state.shaper_full;
      return DropReason::kShaperFull;
    }
    if (p.ip != nullptr) remark(remarks_, c, color, p.ip, p.family);
    at = stamp(state.rate, state.word, now, p.bytes);
    // After a change of the rate nothing overtakes what waits.
    if (state.waiting != 0) at = std::max(at, state.last_ns);
    state.last_ns = at;
    return DropReason::kNone;
  }
  template <typename Make>
  DropReason wait(const QosPacket& p, Make&& make) {
    unsigned c = 0;
    uint64_t at = 0;
    if (const DropReason why = judge(p, c, at); why != DropReason::kNone) return why;
    if (at <= time_ns_) {
      const DropReason why = queues_.put_made(c, time_ns_, p.bytes, time_ns_, make);
      note_backlog();
      return why;
    }
    insert(c, at, p.bytes, make());
    return DropReason::kNone;
  }
  void insert(unsigned c, uint64_t at_ns, uint32_t bytes, T&& item) {
    Waiting w;
    w.item = std::move(item);
    w.since_ns = time_ns_;
    w.bytes = bytes;
    w.qos_class = static_cast<uint8_t>(c);
    ++classes_[c].waiting;
    insert(at_ns, std::move(w));
  }
  // The wheel grows up to what the classes' limits let wait.
  void insert(uint64_t at_ns, Waiting&& w) {
    if (wheel_->full()) {
      auto larger = std::make_unique<TimingWheel<Waiting>>(2 * wheel_->capacity());
      Waiting moved;
      uint64_t at = 0;
      while (wheel_->release(kNever, moved, &at)) (void)larger->insert(at, std::move(moved));
      wheel_ = std::move(larger);
    }
    (void)wheel_->insert(at_ns, std::move(w));
  }
  void take_next(T& item) {
    uint32_t bytes = 0;
    queues_.take(time_ns_, item, nullptr, &bytes);
    charge_port(bytes);
    note_backlog();
  }
  // A port that was busy until now, and for which somebody waited, did not stand still: what it sends began when it was
  // free, which is up to a nanosecond before.
  void charge_port(uint32_t bytes) {
    if (port_.unlimited()) return;
    if (backlogged_ && time_ns_ == free_ns()) {
      port_word_ += uint64_t{bytes} << port_.unit_bits;
    } else {
      port_word_ = port_.charged(port_word_, time_ns_, bytes);
    }
    backlogged_ = false;
  }
  // When the port is free of what it has sent, whatever the time is.
  uint64_t free_ns() const { return port_.departure(port_word_, 0); }
  void note_backlog() {
    if (!backlogged_ && !port_.unlimited() && !queues_.empty()) backlogged_ = time_ns_ < free_ns();
  }
  void carry(const DepartureRate& rate, uint64_t& word, const DepartureRate& before, uint64_t before_word) {
    // Between two that are unlimited there is nothing; and who had no limit starts with its whole burst.
    if (!before.unlimited()) word = rate.carried(before, before_word, time_ns_);
  }
  void change(DepartureRate& rate, uint64_t& word, const DepartureRate& to) {
    const uint64_t before = word;
    word = 0;
    carry(to, word, rate, before);
    rate = to;
  }

  QosModel model_;
  RemarkMap remarks_;
  std::vector<Class> classes_;
  DepartureRate port_;
  uint64_t port_word_ = 0;
  bool backlogged_ = false;  // somebody has waited while the port was busy with what it sent last
  std::unique_ptr<TimingWheel<Waiting>> wheel_ = std::make_unique<TimingWheel<Waiting>>(64);
  EgressQueues<T> queues_;
  static constexpr uint64_t kLookNs = 1ull << 54;  // 208 days
  uint64_t time_ns_;
  uint64_t look_ns_ = 0;  // when epochs are looked at again
};

}  // namespace sluice
