// host only
// Engine: any graph, questions between two turns, and another graph in the place of the one that runs.
#include <fmt/format.h>

#include <chrono>

#include "exec/account/hits.h"
#include "exec/account/rule_log.h"
#include "exec/device/device_set.h"
#include "exec/engine/batch_rules.h"
#include "exec/engine/egress.h"
#include "exec/engine/engine.h"
#include "exec/engine/generation.h"
#include "exec/engine/job.h"
#include "exec/scheduler/scheduler.h"
#include "exec/walk/ordered.h"
#include "exec/walk/worker.h"
#include "graph/graph_files.h"

namespace sluice {

Result<std::unique_ptr<Engine>> Engine::create(Router& router, const Plan& plan, const TableSet& tables,
                                               const RunOptions& options) {
  if (!plan.by_packets) {
    auto snapshot = bind_plan(plan, router, tables);
    if (!snapshot) return std::move(snapshot).error();
    auto made = create(router, plan, options);
    if (made) (*made)->publisher_.publish(std::move(*snapshot));
    return made;
  }
  if (auto ok = check(router, plan, options); !ok) return std::move(ok).error();
  if (auto ok = check_files(router, options.files); !ok) return std::move(ok).error();
  // Its home is one thread.
  RunOptions alone = options;
  alone.workers = 1;
  std::unique_ptr<Engine> made(new Engine(router, plan, alone));
  Engine& e = *made;
  if (options.count_hits) e.ledger_ = std::make_unique<HitLedger>(1);
  if (options.rule_log != nullptr) options.rule_log->open(1);
  Error errors;
  if (options.simulated && LivePorts::any(router))
    return Error("live ports have the time of day, and not a simulated one", "leave --simtime out");
  e.live_ports_ = LivePorts::open(router, plan, 1, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return std::move(ok).error();
  errors = {};
  auto flow = Scheduler::create(router, plan, tables, e.options_, e.ledger_.get(), e.live_ports_.get(), errors);
  if (!flow) return std::move(flow).error();
  e.flow_ = std::move(*flow);
  e.egress_ = std::make_unique<Egress>(router, plan, e.options_, e.live_ports_.get(), e.flow_->links(), 0, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return std::move(ok).error();
  if (auto ok = e.flow_->start(*e.egress_); !ok) return std::move(ok).error();
  e.workers_ = e.make_workers(router, plan);
  e.lanes_.push_back(std::make_unique<Lane>());
  e.lanes_[0]->rings = std::make_shared<JobRings>(1, 1);
  return made;
}

// --- between two turns ---

// Everything that came in is committed. Waits until whoever asked is done.
void Engine::park() {
  std::unique_lock lock(pause_.mutex);
  if (!pausing_.load(std::memory_order_relaxed)) return;
  const uint64_t round = pause_.round;
  ++pause_.parked;
  pause_.changed.notify_all();
  pause_.changed.wait(lock, [&] { return pause_.round != round; });
}

// Threads of the run that have nothing to do any more.
void Engine::leave(unsigned threads) {
  const std::lock_guard lock(pause_.mutex);
  pause_.left += threads;
  pause_.changed.notify_all();
}

Result<void> Engine::ask(const std::function<void()>& what) {
  const std::lock_guard one(pause_.asking);
  std::unique_lock lock(pause_.mutex);
  pausing_.store(true, std::memory_order_release);
  news_.fetch_add(1, std::memory_order_seq_cst);
  news_.notify_all();
  const auto all = [this] { return pause_.left != 0 || pause_.parked == pause_.threads; };
  const bool came = pause_.changed.wait_for(lock, std::chrono::seconds(10), all);
  const bool over = pause_.left != 0;
  if (came && !over) what();
  pausing_.store(false, std::memory_order_release);
  pause_.parked = 0;
  ++pause_.round;
  pause_.changed.notify_all();
  if (over) return Error("the run is over");
  if (!came) return Error("the run did not answer within ten seconds: nothing has changed", "ask again");
  return {};
}

Result<void> Engine::with_ordered(const std::function<void(const Element&, Element::Ordered&)>& what) {
  return ask([&] {
    if (ordered_ == nullptr) return;
    ordered_->each(*plan_, [&](unsigned e, Element::Ordered& ordered) { what(*router_->elements[e], ordered); });
  });
}

// --- handlers ---

namespace {
Error no_handlers() {
  return Error("only graphs of the packet scheduler have handlers", "start the run with --packet-scheduler");
}
}  // namespace

Result<std::string> Engine::read(std::string_view handler, std::string_view argument) {
  if (flow_ == nullptr && (handler == "config" || handler == "flatconfig")) return graph_text(*router_);
  if (flow_ == nullptr) return no_handlers();
  return flow_->read(handler, argument);
}
Result<void> Engine::write(std::string_view handler, std::string_view value) {
  if (flow_ == nullptr) return no_handlers();
  auto written = flow_->write(handler, value);
  flow_->take_over();
  (void)flow_->close_ports();
  return written;
}
bool Engine::has_handler(std::string_view handler, bool writes) const {
  return flow_ != nullptr && flow_->has_handler(handler, writes);
}
bool Engine::wants_signal(int signal) const {
  return flow_ != nullptr && flow_->wants_signal(signal);
}
uint64_t Engine::clock_ns() const {
  return flow_ != nullptr ? flow_->now_ns() : 0;
}

// The end of elements, and of what they write.
void Engine::end_elements(Result<void>& result, bool& damaged, std::vector<AtomicFile>& files) {
  bool output = false;
  auto ended = flow_->finish(files, output);
  output_failed_ |= flow_->failed_by_output();
  if (ended.ok()) return;
  if (result.ok() || damaged) {
    result = std::move(ended);
    output_failed_ = output;
  }
  damaged = false;
  ending_ = Ending::kDiscard;
}

// --- another graph ---

const Router& Engine::router() const {
  return flow_ != nullptr ? flow_->router() : *router_;
}
const Plan& Engine::plan() const {
  return flow_ != nullptr ? flow_->plan() : *plan_;
}
uint64_t Engine::swaps() const {
  return flow_ != nullptr ? flow_->swaps() : swaps_;
}
GraphGeneration* Engine::generation() {
  return flow_ != nullptr ? flow_->generation() : graph_.get();
}

// All that the graph that follows needs, made beside the one that runs.
struct Engine::Flip {
  std::unique_ptr<GraphGeneration> graph;
  std::unique_ptr<Snapshot> snapshot;
  std::unique_ptr<OrderedNodes> ordered;
  std::vector<std::unique_ptr<Intake>> intakes;  // by lane
  std::unique_ptr<Egress::Next> sinks;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::shared_ptr<JobRings>> rings;  // by lane
  RunFiles files;
  std::vector<unsigned> heirs;
};

Result<void> Engine::prepare(GraphGeneration& next, Flip& flip) {
  const Router& router = next.router;
  const Plan& plan = next.plan;
  if (devices_ != nullptr)
    return Error("a run with a device keeps its graph: programs and tables of the graph lie there",
                 "start it without --device");
  if (options_.ended)
    return Error("a run whose packets are followed keeps its graph: verdicts name its elements",
                 "start it without --verdicts and --dropped");
  if (auto ok = check(router, plan, options_); !ok) return ok;
  if (options_.qos != nullptr) {
    if (auto ok = EgressQos::check(*options_.qos, plan.at_sinks); !ok) return ok;
  }
  RunOptions wanted = options_;
  if (auto ok = apply_batch_rules(router, wanted); !ok) return ok;
  if (wanted.batch != options_.batch) {
    return Error(
        fmt::format("the graph asks for batches of {} packets, and this run has {}", wanted.batch, options_.batch),
        fmt::format("start a run with --batch {}", wanted.batch));
  }
  flip.files = files_besides(past_files_, *router_, router);
  if (auto ok = check_files(router, flip.files); !ok) return ok;
  auto snapshot = bind_plan(plan, router, next.tables);
  if (!snapshot) return std::move(snapshot).error();
  flip.snapshot = std::move(*snapshot);
  if (!plan.ordered.empty()) flip.ordered = std::make_unique<OrderedNodes>(plan, router);
  Error errors;
  if (live_ports_ != nullptr) live_ports_->open_more(router, plan, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return ok;
  errors = {};
  flip.intakes = open_intakes(router, plan, errors);
  flip.sinks = egress_->open(router, plan, links_of(flip.intakes),
                             flip.ordered != nullptr ? flip.ordered->delayed() : 0, errors);
  if (auto ok = ports_opened(std::move(errors)); !ok) return ok;
  flip.workers = make_workers(router, plan);
  auto rings = make_jobs(flip.workers[0]->depth(), flip.ordered.get());
  if (!rings) return std::move(rings).error();
  flip.rings = std::move(*rings);
  for (size_t l = 0; l < lanes_.size(); ++l) connect(router, *flip.intakes[l], *flip.rings[l]);
  flip.heirs = heirs_of(*router_, router);
  return {};
}

// Nothing is on its way, and nobody looks.
void Engine::flip(Flip& flip) {
  const Router& router = flip.graph->router;
  // What workers and the input counted, by the elements of the graph that follows.
  RunReport counted;
  counted.totals.elements.resize(router_->elements.size());
  for (const auto& worker : workers_) counted.totals.add(worker->stats());
  for (const auto& lane : lanes_) lane->intake->report(counted);
  counted.totals.add(past_);
  past_ = std::move(counted.totals);
  carry_counters(past_.elements, flip.heirs, router.elements.size(), gone_);
  if (flip.ordered != nullptr && ordered_ != nullptr)
    flip.ordered->follow(*ordered_, *plan_, flip.graph->plan, same_elements(*router_, router));
  {
    const auto lock = egress_->lock();
    egress_->follow(std::move(flip.sinks));
  }
  for (size_t l = 0; l < lanes_.size(); ++l) {
    flip.intakes[l]->follow(*lanes_[l]->intake);
    lanes_[l]->intake.swap(flip.intakes[l]);
    lanes_[l]->rings.swap(flip.rings[l]);
  }
  shared_.tickets = 0;                                                             // of the nodes of this graph
  for (size_t w = 0; w < workers_.size(); ++w) workers_[w].swap(flip.workers[w]);  // gates look at the places
  ordered_.swap(flip.ordered);
  past_files_ = std::move(flip.files);
  router_ = &router;
  plan_ = &flip.graph->plan;
  publisher_.publish(std::move(flip.snapshot));
  graph_.swap(flip.graph);
}

Result<void> Engine::swap(std::unique_ptr<GraphGeneration> next) {
  if (next->plan.by_packets != by_packets()) {
    return by_packets() ? Error("the packet scheduler runs this graph, and not the one that is to follow")
                        : Error("only the packet scheduler can run this graph: " + next->router.scheduled,
                                "start the run with --packet-scheduler, which runs both");
  }
  if (live_ports_ == nullptr && LivePorts::any(next->router))
    return Error("the graph has live ports, and the run began without any", "start a run with it");
  if (flow_ != nullptr) return swap_flow(std::move(next));
  Result<void> done;
  {
    Flip ready;
    done = prepare(*next, ready);
    ready.graph = std::move(next);
    if (done.ok()) done = ask([&] { flip(ready); });
  }
  // Those of the graph before, or of the one that could not follow it.
  if (live_ports_ != nullptr) live_ports_->close_all_but(*router_, *plan_);
  if (done.ok()) ++swaps_;
  return done;
}

Result<void> Engine::swap_flow(std::unique_ptr<GraphGeneration> next) {
  // Ports open and close beside the graph that runs, which pauses only to take over.
  Error errors;
  std::vector<LivePorts::Closing> closing;
  if (live_ports_ != nullptr) live_ports_->open_more(next->router, next->plan, errors);
  Result<void> done = ports_opened(std::move(errors));
  if (done.ok()) {
    auto asked = ask([&] {
      done = flow_->swap(std::move(next));
      if (done.ok()) flow_->take_over();
      closing = flow_->close_ports();
    });
    if (!asked.ok()) done = std::move(asked);
  } else if (live_ports_ != nullptr) {
    (void)ask([&] { closing = flow_->close_ports(); });
  }
  return done;
}

Result<bool> Engine::open_again(const std::string& port) {
  if (live_ports_ == nullptr) return false;
  // Another graph may come in between, and use other queues of it.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    auto again = live_ports_->open_again(port);
    if (!again) return std::move(again).error();
    if (*again == nullptr) return false;
    bool exchanged = false;
    if (auto ok = ask([&] { exchanged = live_ports_->exchange(**again); }); !ok) return std::move(ok).error();
    if (exchanged) return true;
  }
  return false;
}

Result<void> Engine::use_tables(const TableSet& tables) {
  return flow_->use_tables(tables);
}

}  // namespace sluice
