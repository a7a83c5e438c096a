// host only
// Classes of service at the sinks, in the time of the packets' own time stamps.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/account/counters.h"
#include "exec/engine/ports.h"
#include "qos/port_qos.h"

namespace sluice {

// What one class of one output port did. `latency_ns`: from the arrival at the sink to the departure.
struct QosClassReport {
  std::string name;
  uint64_t rate_bps = 0;  // 0: unlimited
  QosCounters counters;
  uint64_t p50_ns = 0, p99_ns = 0;
};
struct QosPortReport {
  std::string element;  // the sink
  uint16_t port = 0;    // of the adjacency
  uint64_t rate_bps = 0;
  std::vector<QosClassReport> classes;
};

// Every sink has a PortQos for each output port that it has seen. Packets come in the order of the input, and time is
// theirs: before one of time t comes, everything that may leave at t or before has left. So what leaves, and when, does
// not depend on workers, batches, devices or the machine. A time stamp that goes back is the latest one.
//
// A packet that may go at once is not copied; one that waits is, up to the classes' limits. One thread at a time.
class EgressQos {
 public:
  using Drops = std::array<uint64_t, kDropReasons>;
  struct SinkSpec {
    std::string name;
    bool reads_frames = true;  // else only the lengths of what waits are kept
    Drops* drops = nullptr;    // where the sink's drops are counted; outlives this
  };
  // Whether sinks can do what the model asks for; `at_sinks`: Plan::at_sinks. Errors: marks, which they do not see.
  static Result<void> check(const QosModel& model, FieldMask at_sinks);
  // Whether packets of such classes are only counted: what happens to them does not depend on the time.
  static bool only_counts(const QosModel& model) { return model.counts_only() && model.marks.empty(); }
  // A model that `check` takes.
  EgressQos(QosModel model, const std::vector<SinkSpec>& sinks);
  // Another one, behind those that there are.
  void add_sink(const SinkSpec& spec);
  // Before the first packet: packets of one class come in the order of the input, and classes overtake each other. Then
  // each class has a clock of its own, which its policer and its rate go by.
  void let_overtake() { overtake_ = true; }
  // Called for each packet that is followed (TxRecord::followed) and dropped here.
  void tell_lost(std::function<void(const SinkSpec& sink, const TxRecord& record, DropReason why)> lost) {
    lost_ = std::move(lost);
  }

  // Whether packets may wait, be dropped or be changed: they have to come to `pass`. Else it is enough to `count` them.
  bool timed() const { return !counts_only_ || held_ != 0; }

  // Packets of a batch that leave by a sink at once. `count_noted` counts the words of `rows` whose packets all have an
  // egress note and the port of the first that does; it takes them out of `rows` and says what it counted. `count`
  // takes any: `rows`, not 0, of word w. Precondition: !timed().
  struct Counted {
    uint16_t port = 0;
    uint32_t first = 0;  // row
    uint64_t packets = 0, bytes = 0;
  };
  Counted count_noted(size_t sink, Batch& batch, Selection& rows);
  void count(size_t sink, Batch& batch, uint32_t w, uint64_t rows);
  void count(size_t sink, const TxRecord& record);

  // The packet comes to the sink at its time stamp, and may be remarked. Appends to `out` what leaves now, itself
  // included; time stamps are departures. What `out` refers to lasts until `forget`.
  void pass(size_t sink, const TxRecord& record, std::vector<TxRecord>& out);
  // It is `now_ns`: appends what leaves by then. `next_ns`: nothing leaves before.
  void advance(size_t sink, uint64_t now_ns, std::vector<TxRecord>& out);
  uint64_t next_ns(size_t sink) const { return sinks_[sink].due_ns; }
  // The end of the input: everything leaves.
  void drain(size_t sink, std::vector<TxRecord>& out);
  // The records that were given out have been written.
  void forget();
  // Packets that wait.
  uint64_t held() const { return held_; }

  // By sink and port.
  std::vector<QosPortReport> report();

  // Changes the rate (0: unlimited) of a class on all ports, or on `port` alone. Errors: no such class.
  Result<void> set_rate(std::string_view qos_class, uint64_t rate_bps, int64_t port = -1);
  // The same for the rate of the ports themselves.
  void set_port_rate(uint64_t rate_bps, int64_t port = -1);
  // Another model, for all ports. Classes of the same name keep what waits, what they counted and their credit.
  void load(const QosModel& model);
  // But for rates that were set for one port alone.
  const QosModel& model() const { return model_; }
  bool has_rates_of_one_port() const { return !rates_.empty() || !port_rates_.empty(); }

 private:
  struct Frame {
    TxRecord record;
    std::vector<uint8_t> bytes;
  };
  using Held = std::unique_ptr<Frame>;
  struct Port {
    uint16_t number = 0;
    std::unique_ptr<PortQos<Held>> qos;
    // Counted, and not yet in `qos`; by class.
    uint64_t pkts[kMaxQosClasses] = {};
    uint64_t bytes[kMaxQosClasses] = {};
    void fold();
  };
  struct Sink {
    SinkSpec spec;
    std::vector<std::unique_ptr<Port>> ports;  // by number
    std::vector<Port*> by_number;              // all numbers; nullptr: not seen
    uint64_t time_ns = 0;
    uint64_t due_ns = ~uint64_t{0};  // nothing leaves before
  };
  struct Departure {
    uint64_t at_ns;
    Held frame;
  };

  Port& port_of(Sink& sink, uint16_t number, uint64_t now_ns) {
    Port* port = sink.by_number[number];
    return port != nullptr ? *port : add_port(sink, number, now_ns);
  }
  Port& add_port(Sink& sink, uint16_t number, uint64_t now_ns);
  QosModel model_of(uint16_t number) const;
  void release(Sink& sink, uint64_t until_ns, std::vector<TxRecord>& out);
  Held copy_of(const Sink& sink, const TxRecord& record);
  void use(const QosModel& model);
  void drop(const Sink& sink, const TxRecord& record, DropReason why) {
    ++(*sink.spec.drops)[static_cast<size_t>(why)];
    if (record.followed != 0 && lost_) lost_(sink.spec, record, why);
  }

  QosModel model_;
  bool counts_only_ = true;
  bool overtake_ = false;
  std::array<uint8_t, 64> class_of_{};
  std::map<uint16_t, std::map<std::string, uint64_t, std::less<>>> rates_;  // of one port alone, by class
  std::map<uint16_t, uint64_t> port_rates_;                                 // the same, of ports themselves
  std::vector<Sink> sinks_;
  uint64_t held_ = 0;
  std::vector<Departure> departures_;
  std::vector<Held> free_;   // for reuse
  std::vector<Held> given_;  // whose records were given out
  std::function<void(const SinkSpec& sink, const TxRecord& record, DropReason why)> lost_;
};

}  // namespace sluice
