// host only
// What the files of the scheduler share: the state of one graph that runs.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <queue>

#include "base/clock.h"
#include "exec/account/rule_log.h"
#include "exec/cpu/tile.h"
#include "exec/engine/live_sleep.h"
#include "exec/engine/ports.h"
#include "exec/scheduler/scheduler.h"
#include "exec/walk/worker.h"
#include "graph/flow_runs.h"

namespace sluice {

// Elements that hand a packet on to each other without a queue between them: more is a cycle.
inline constexpr unsigned kMaxDepth = 1000;

// Nodes whose task is to run, each at most once.
class TaskRing {
 public:
  void resize(size_t nodes) { at_.resize(std::bit_ceil(nodes + 1)); }
  bool empty() const { return first_ == end_; }
  void push_back(unsigned node) { at_[end_++ & (at_.size() - 1)] = node; }
  unsigned pop_front() { return at_[first_++ & (at_.size() - 1)]; }
  size_t size() const { return end_ - first_; }
  unsigned front() const { return at_[first_ & (at_.size() - 1)]; }

 private:
  std::vector<unsigned> at_;
  size_t first_ = 0, end_ = 0;
};

struct Scheduler::Impl {
  struct Timer {
    uint64_t at;
    uint64_t order;
    unsigned node;
    uint64_t version;
    bool retry;  // wakes the task instead of calling the timer
    bool operator>(const Timer& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  // `before`: the graph that this one follows. Nothing of it is changed until `follow`.
  Impl(Router& router, const Plan& plan, const RunOptions& options, FlowPool& pool, Scheduler& owner, HitLedger* ledger,
       LivePorts* live_ports, Impl* before);
  // The parts of the constructor (wiring.cpp).
  void add_nodes(const Impl* before);
  void number_inputs(const Impl* before);
  void connect_nodes();
  void find_wakers();
  void find_queues_below();
  // Takes over from the graph before, which is done then.
  void follow(Impl& before);

  Result<void> bind(const TableSet& tables);
  Result<void> bind_one(unsigned index);
  Result<void> open_sources(Error& errors);
  std::vector<LinkType> links() const;
  void flush();
  Result<void> start();
  Polled turn();
  Polled some_turns();
  void wait(uint64_t at_most_ns);
  bool receives() const;
  bool drains();
  void run_task(unsigned index);
  void wake_tasks();
  void fire(const Timer& timer);
  bool rest();
  uint64_t now() const { return simulated() ? simulated_ns : real_ns() + ahead_ns; }
  uint64_t real_ns() const { return options.clock_ns ? options.clock_ns() : sluice::now_ns(); }
  bool simulated() const { return options.simulated || packet_clock(); }
  bool packet_clock() const { return clock != FlowClock::kRun; }
  bool packet_time() const { return clock == FlowClock::kOwn; }
  bool packet_comes(uint64_t timestamp_ns);
  void begin_clock(uint64_t timestamp_ns);
  void clock_goes_on(const Impl& before);
  void ask_stop(bool gently = false);
  void fail(Error why) {
    if (failure.ok() || damaged) failure = std::move(why);
    damaged = false;
    ended = true;
  }
  void fail_output(Error why) {
    output_failed |= failure.ok() || damaged;
    fail(std::move(why));
  }
  void fail_input(Error why) {
    // What a signal does to a read is no damage.
    if (ended || options.stopped()) return;
    fail(std::move(why));
    damaged = true;
  }

  // Where a packet is handed to; nullptr: nobody.
  struct Place {
    Node* node = nullptr;
    unsigned port = 0;
  };

  // Runs of packets (runs.cpp)
  // ----------------------------------------------------------------------------------------- What stages and sinks do
  // to packets has no effect on who runs next. So they take packets in runs, before or after their turn, and `settle`
  // makes it as if each had gone in its turn.
  void plan_runs();
  // Takes the stages of runs over the first n packets of run_tile, from the stages at tile.path. `left`: where each
  // leaves them, nobody where it is dropped; `hops`: how many it passed. `sign`: -1 undoes their counts.
  void run_stages(uint32_t n, Place* left, unsigned* hops, uint64_t sign);
  // Hands a packet on, at once or with those that were put off before it. A port of kNobody: it is counted already.
  void hand(const Place& to, PacketBox packet);
  // Hands over what was put off.
  void hand_over();
  // A sink takes packets in order; empty boxes are passed over, and none is left.
  void sink(Node& node, std::span<PacketBox> packets);
  // Before anybody looks at elements or changes them.
  void settle();

  // Passages (passage.cpp)
  // -----------------------------------------------------------------------------------------
  // While nobody but a source and whoever pulls from its empty queues has a turn, packets run through as in a graph
  // without queues: in batches, by the workers' programs.
  struct Passage {
    Passage(const Router& router, Plan of) : plan(std::move(of)), worker(plan, router, 0) {}
    struct Queue {
      Node* queue;
      Node* puller;
      PassingQueue* passing;
      PassingPuller* moving;
    };
    Plan plan;
    Worker worker;
    JobShare share;
    std::vector<Queue> queues;         // as plan.passed
    std::vector<Node*> counting;       // stages whose flows count
    std::vector<PortCounters> before;  // of these
    std::unique_ptr<Snapshot> bound;   // nullptr: to be made
  };
  void plan_passages();
  // The index of the queue in plan.passed, which is added to where it is new; kNobody: it is none.
  unsigned add_passage(Node& queue, std::vector<Passage::Queue>& queues) const;
  bool bind_passage();
  std::unique_ptr<Passage> passage;

  struct Found {
    Node* node = nullptr;
    Handler* handler = nullptr;
    std::string name;
  };
  Result<Found> find(const Node* from, std::string_view name, bool writes);
  Result<std::string> read(const Node* from, std::string_view name, std::string_view argument);
  Result<void> write(const Node* from, std::string_view name, std::string_view value);
  std::string list(std::string_view what) const;

  Router& router;
  const Plan& plan;
  const RunOptions& options;
  Scheduler& owner;
  HitLedger* ledger;                                       // none: nobody counts by rules
  std::shared_ptr<const std::vector<std::string>> inputs;  // names of sources, of this graph and of those before
  bool records_rules = false;  // some list has rules with `log`: no source runs ahead, as records cannot be taken back
  LivePorts* live_ports;       // none: the run has none
  Egress* egress = nullptr;
  TableSet tables;
  FlowPool& pool;
  std::vector<uint8_t*> frames_back;  // room for nodes, also as they end
  std::vector<std::unique_ptr<Node>> nodes;
  // Elements that went with a graph before: what they dropped, and the outputs that they wrote.
  ElementCounters gone;
  std::vector<RunReport::Sink> retired;
  RunFiles past;  // files of the run that are not this graph's
  std::map<std::string, unsigned, std::less<>> by_name;
  RuleAccounts rules;  // of this graph's elements
  Account account;
  std::vector<TxRecord> records;
  Tile tile{};
  std::unique_ptr<Batch> scratch;
  std::vector<std::unique_ptr<Batch>> spare;  // for packets that host elements make
  FrameCache frames;

  // In topological order; a tile's path is an index.
  struct RunStage {
    Node* node;
    bool counts;                // its flow wants to know of packets
    std::vector<Place> next;    // by output
    std::vector<uint8_t> path;  // by output: the stage there, or kNoStage
  };
  static constexpr uint8_t kNoStage = 0xff;
  std::vector<RunStage> run_stages_;
  std::vector<Node*> ahead_;  // sources that run ahead
  std::vector<Node*> live_;   // sources that are live ports
  LiveSleep sleep;
  uint64_t drained_ns = 0;  // the end was asked for: until then what live ports gave may leave; 0: it was not
  Tile run_tile{};
  PacketBox waiting[Tile::kLanes];
  Place waiting_for[Tile::kLanes];
  uint32_t n_waiting = 0;
  bool handing_over = false;
  // The graph before still runs, and its sinks are those of `egress`: packets that elements hand to sinks when they
  // start wait here until it is over.
  bool follows = false;
  std::vector<std::pair<Place, PacketBox>> at_start;

  TaskRing ring;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers;
  uint64_t timer_order = 0;
  FlowClock clock = FlowClock::kRun;
  bool begun = false;  // a clock of packets: the first of them has come
  uint64_t simulated_ns = 0;
  uint64_t ahead_ns = 0;  // of the real clock: the graph before had another one, and time does not go back
  // A turn is over: time goes on although somebody is always busy.
  void count_turn() {
    if (simulated() && !packet_time() && ++turns > kFreeTurns) simulated_ns += kTurnNs;
  }
  // Turns at one instant of simulated time before time goes on by itself, and by how much a turn.
  static constexpr uint64_t kFreeTurns = 100'000;
  static constexpr uint64_t kTurnNs = 1000;

  uint64_t turns = 0;             // since simulated time went on
  uint64_t retry = ~uint64_t{0};  // the earliest time at which somebody who refused the current task will not
  unsigned depth = 0;
  unsigned stops = 0;  // asked for by elements: told when what they are doing is done
  bool ended = false;
  bool replaced = false;  // another graph is to follow
  bool idle_reported =
      false;                // a driver script was told that nothing can happen any more, and nothing has happened since
  bool limit_told = false;  // RunOptions::max_packets
  bool interrupted = false;
  bool damaged = false, output_failed = false;  // `failure` is about an input, about an output
  Result<void> failure;
};

}  // namespace sluice
