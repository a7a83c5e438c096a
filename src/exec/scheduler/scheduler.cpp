// host only
#include "exec/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <queue>
#include <set>
#include <thread>

#include "base/clock.h"
#include "elements/tables.h"
#include "exec/cpu/tile.h"
#include "exec/egress_limiter.h"
#include "exec/ports.h"
#include "graph/click/print.h"
#include "graph/flow.h"
#include "graph/graph_files.h"

namespace sluice {
namespace {

// Elements that hand a packet on to each other without a queue between them: more is a cycle.
constexpr unsigned kMaxDepth = 1000;
// Packets that one question may cost whose answer is dropped or goes elsewhere on the way.
constexpr unsigned kMaxTries = 64;
constexpr uint32_t kSourceBatch = 32;
constexpr uint32_t kSinkBurst = 8;
constexpr unsigned kMaxOpenBatches = 64;
// Turns at one instant of simulated time before time goes on by itself, and by how much a turn.
constexpr uint64_t kFreeTurns = 100'000;
constexpr uint64_t kTurnNs = 1000;
constexpr uint64_t kLongestSleepNs = 20'000'000;
constexpr unsigned kNobody = ~0u;

uint64_t wall_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

}  // namespace

Result<std::unique_ptr<SchedulerGraph>> load_scheduler_graph(std::string_view text, const std::string& name,
                                                             const Registry& registry, const ParseOptions& options) {
  auto graph = parse_click(text, name, options);
  if (!graph.ok()) return std::move(graph).error();
  auto router = build_router(*graph, registry, text);
  if (!router.ok()) return std::move(router).error();
  if (auto ok = check_files(*router); !ok.ok()) return std::move(ok).error();
  auto made = std::make_unique<SchedulerGraph>();
  made->router = std::move(*router);
  TableReport report;
  auto tables = load_tables(made->router, {}, &report);
  if (!tables.ok()) return std::move(tables).error();
  RunFiles included;
  for (const TableLoad& load : report.loads) {
    for (const std::string& file : load.files) included.input(fmt::format("table '{}'", load.name), file);
  }
  if (auto ok = check_files(made->router, std::move(included)); !ok.ok()) return std::move(ok).error();
  made->tables = std::move(*tables);
  return made;
}

// What other threads want to be called between two tasks.
struct Scheduler::Asked {
  struct Call {
    const std::function<void()>* what;
    bool done = false;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Call*> calls;
  bool open = true;
  std::atomic<bool> waiting{false};

  void serve() {
    std::deque<Call*> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(calls);
      waiting.store(false, std::memory_order_relaxed);
    }
    for (Call* call : now) (*call->what)();
    {
      const std::lock_guard lock(mutex);
      for (Call* call : now) call->done = true;
    }
    changed.notify_all();
  }
  void close() {
    {
      const std::lock_guard lock(mutex);
      open = false;
    }
    changed.notify_all();
  }
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
  Impl(Router& router, const SchedulerOptions& options, FlowPool& pool, Scheduler& owner, Impl* before);
  // Takes over from the graph before, which is done then.
  void follow(Impl& before);

  Result<void> bind(const TableSet& tables);
  Result<void> bind_one(unsigned index);
  Result<void> open_ports(const Impl* before);
  unsigned writer_of(const std::string& path) const;
  void flush_ports();
  Result<void> start();
  Result<void> loop();
  void run_task(unsigned index);
  RunFiles files_besides(const Router& next) const;
  void wake_tasks();
  void fire(const Timer& timer);
  bool rest();
  uint64_t now() const { return simulated() ? simulated_ns : sluice::now_ns(); }
  bool simulated() const { return options.simulated || packet_time; }
  void packet_comes(uint64_t timestamp_ns);
  void ask_stop(bool gently = false);
  void fail(Error why) {
    if (failure.message.empty() || damaged) failure = std::move(why);
    damaged = false;
    ended = true;
  }
  void fail_output(Error why) {
    output_failed |= failure.message.empty() || damaged;
    fail(std::move(why));
  }
  void fail_input(Error why) {
    // What a signal does to a read is no damage.
    if (ended || (options.stop != nullptr && options.stop->load(std::memory_order_relaxed))) return;
    fail(std::move(why));
    damaged = true;
  }

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
  SchedulerOptions options;
  Scheduler& owner;
  TableSet tables;
  FlowPool& pool;
  std::vector<std::unique_ptr<Node>> nodes;
  // Elements that went with a graph before: what they dropped, and the outputs that they wrote.
  ElementCounters gone;
  struct Retired {
    RunReport::Sink sink;
    std::unique_ptr<PacketSink> port;
  };
  std::vector<Retired> retired;
  RunFiles past;  // files of the run that are not this graph's
  std::map<std::string, unsigned, std::less<>> by_name;
  WorkerStats stats;
  std::vector<EgressLimiter> limiters;
  std::vector<unsigned> limited;  // the element of each limiter; kNobody: it is gone
  Tile tile{};
  std::unique_ptr<Batch> scratch;
  std::vector<std::unique_ptr<Batch>> spare;  // for packets that host elements make
  FrameCache frames;

  std::deque<unsigned> ring;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers;
  uint64_t timer_order = 0;
  bool packet_time = false;  // see FlowContext::packet_time
  uint64_t simulated_ns = 0;
  uint64_t turns = 0;             // since simulated time went on
  uint64_t retry = ~uint64_t{0};  // the earliest time at which somebody who refused the current task will not
  unsigned depth = 0;
  unsigned stops = 0;  // asked for by elements: told when what they are doing is done
  bool ended = false;
  bool replaced = false;   // another graph is to follow
  bool idle_told = false;  // a driver script was told that nothing can happen any more, and nothing has happened since
  bool interrupted = false;
  bool damaged = false, output_failed = false;  // `failure` is about an input, about an output
  Ending ending = Ending::kWhole;
  Error failure;
};

class Scheduler::Node final : public FlowContext {
 public:
  Node(Impl& impl, unsigned index, Element& element) : impl_(impl), index_(index), element_(element) {
    flow_ = element_.flow();
    handlers_ = element_.handlers();
    for (const char* name : {"class", "name", "config", "ports", "handlers", "count", "drops"}) add_default(name);
    // What takes any name comes last.
    std::stable_partition(handlers_.begin(), handlers_.end(), [](const Handler& h) { return h.name != "*"; });
  }

  // What an element may do.

  void push(unsigned output, PacketBox packet) override {
    if (!pushes(output)) {
      const DropReason reason = packet->registers.reason;
      drop(std::move(packet), reason == DropReason::kNone ? DropReason::kUnconnectedOutput : reason);
      return;
    }
    if (impl_.depth >= kMaxDepth) {
      drop(std::move(packet), DropReason::kLoop);
      return;
    }
    ++impl_.depth;
    const Link& to = outputs_[output][0];
    impl_.nodes[to.node]->receive(to.port, std::move(packet));
    --impl_.depth;
  }

  bool pushes(unsigned output) const override {
    return output < outputs_.size() && !outputs_[output].empty() && !outputs_[output][0].pull;
  }

  PacketBox pull(unsigned input) override {
    if (input >= inputs_.size() || inputs_[input].empty() || !inputs_[input][0].pull) return nullptr;
    if (impl_.depth >= kMaxDepth) return nullptr;
    ++impl_.depth;
    const Link& from = inputs_[input][0];
    PacketBox packet = impl_.nodes[from.node]->give(from.port);
    --impl_.depth;
    if (packet != nullptr) count(*packet);
    return packet;
  }

  void drop(PacketBox packet, DropReason reason) override {
    (void)packet;
    ++counters().drops[static_cast<size_t>(reason)];
  }
  PacketBox bring(size_t bytes) override {
    PacketBox packet = impl_.pool.make(bytes);
    if (packet == nullptr) return nullptr;
    packet->timestamp_ns = impl_.simulated() ? impl_.simulated_ns : wall_ns();
    came_in(bytes);
    return packet;
  }
  void sent(PacketBox packet) override {
    ++sent_.packets;
    sent_.bytes += packet->registers.length();
  }

  uint64_t now_ns() const override { return impl_.now(); }
  bool packet_time() const override { return impl_.packet_time; }
  void wake() override {
    impl_.idle_told = false;
    if (in_ring_) return;
    in_ring_ = true;
    impl_.ring.push_back(index_);
  }
  void set_timer(uint64_t at_ns) override {
    impl_.timers.push({at_ns, impl_.timer_order++, index_, ++timer_version_, false});
  }
  void cancel_timer() override { ++timer_version_; }
  void retry_at(uint64_t at_ns) override { impl_.retry = std::min(impl_.retry, at_ns); }
  bool full_below(unsigned output) const override {
    if (output >= below_.size() || below_[output].open || below_[output].queues.empty()) return false;
    return std::all_of(below_[output].queues.begin(), below_[output].queues.end(),
                       [&](unsigned q) { return impl_.nodes[q]->flow_->full(); });
  }
  void has_packets() override { wake_all(pullers_); }
  void has_room() override { wake_all(pushers_); }
  void stop() override { ++impl_.stops; }
  void end() override { impl_.ended = true; }

  Result<std::string> read(std::string_view name, std::string_view argument) override {
    return impl_.read(this, name, argument);
  }
  Result<void> write(std::string_view name, std::string_view value) override { return impl_.write(this, name, value); }
  bool has_handler(std::string_view name, bool writes) const override { return impl_.find(this, name, writes).ok(); }
  std::string handler_name(std::string_view name) const override {
    for (const bool writes : {false, true}) {
      auto found = impl_.find(this, name, writes);
      if (found.ok()) return found->name;
    }
    return std::string(name);
  }

  uint64_t packets() const override { return impl_.stats.elements[index_].packets; }
  uint64_t bytes() const override { return impl_.stats.elements[index_].bytes; }
  uint64_t dropped() const override {
    uint64_t sum = 0;
    for (const uint64_t n : impl_.stats.elements[index_].drops) sum += n;
    return sum;
  }
  Result<void> rebind() override { return impl_.bind_one(index_); }
  Ending ending() const override { return impl_.ending; }
  void print_out(std::string_view text) override {
    if (impl_.options.print_out) impl_.options.print_out(text);
  }
  void print_error(std::string_view text) override {
    if (impl_.options.print_error) impl_.options.print_error(text);
  }

 private:
  friend struct Impl;
  friend class Scheduler;
  friend class HostBridge;

  struct Link {
    unsigned node;
    unsigned port;
    bool pull;
  };
  struct Below {
    std::vector<unsigned> queues;
    bool open = false;
  };

  ElementCounters& counters() const { return impl_.stats.elements[index_]; }
  void count(const FlowPacket& packet) {
    ++counters().packets;
    counters().bytes += packet.registers.length();
  }
  void came_in(size_t bytes) {
    ++impl_.stats.packets_in;
    impl_.stats.bytes_in += bytes;
    ++counters().packets;
    counters().bytes += bytes;
  }
  void wake_all(const std::vector<unsigned>& tasks) {
    for (unsigned task : tasks) impl_.nodes[task]->wake();
  }
  bool pulls_input() const { return !inputs_.empty() && !inputs_[0].empty() && inputs_[0][0].pull; }

  void add_default(const char* name) {
    for (const Handler& own : handlers_) {
      if (own.name == name) return;
    }
    Handler handler;
    handler.name = name;
    handler.read = [this, what = std::string_view(name)](FlowContext&, std::string_view) -> Result<std::string> {
      if (what == "class") return element_.class_name;
      if (what == "name") return element_.name;
      if (what == "config") return element_.configuration;
      if (what == "count") return std::to_string(packets());
      if (what == "drops") return std::to_string(dropped());
      if (what == "ports") return ports_text();
      std::string text;
      for (const Handler& h : handlers_)
        text += fmt::format("{}\t{}{}\n", h.name, h.read ? "r" : "", h.write ? "w" : "");
      return text;
    };
    handlers_.push_back(std::move(handler));
  }
  std::string ports_text() const {
    std::string text;
    auto side = [&](const char* noun, const std::vector<std::vector<Link>>& ports, const char* arrow) {
      text += fmt::format("{} {}{}\n", ports.size(), noun, ports.size() == 1 ? "" : "s");
      for (const auto& port : ports) {
        text += port.empty() || !port[0].pull ? "push" : "pull";
        for (const Link& link : port)
          text += fmt::format(" {} {}[{}]", arrow, impl_.router.elements[link.node]->name, link.port);
        text += '\n';
      }
    };
    side("input", inputs_, "<-");
    side("output", outputs_, "->");
    return text;
  }

  // A packet comes in by a push input.
  void receive(unsigned input, PacketBox packet) {
    count(*packet);
    if (flow_ != nullptr) {
      flow_->push(*this, input, std::move(packet));
      return;
    }
    switch (element_.kind()) {
      case ElementKind::kSink:
        sink(std::move(packet));
        return;
      case ElementKind::kHost:
        (void)host(std::move(packet), input, ~0u);
        return;
      default: {
        const unsigned output = stage(*packet);
        push(output, std::move(packet));
        return;
      }
    }
  }

  // Somebody asks for a packet of pull output `output`.
  PacketBox give(unsigned output) {
    if (flow_ != nullptr) return flow_->pull(*this, output);
    if (element_.kind() == ElementKind::kSource) return next();
    for (unsigned tries = 0; tries < kMaxTries; ++tries) {
      PacketBox packet = pull(0);
      if (packet == nullptr) return nullptr;
      if (element_.kind() == ElementKind::kHost) {
        packet = host(std::move(packet), 0, output);
        if (packet != nullptr) return packet;
        continue;
      }
      const unsigned left = stage(*packet);
      if (left == output) return packet;
      push(left, std::move(packet));
    }
    retry_at(now_ns());
    return nullptr;
  }

  // Which output the packet leaves by.
  unsigned stage(FlowPacket& packet) {
    Tile& tile = impl_.tile;
    tile.packet[0] = packet.registers;
    kernel_(slot_, tile, 1, false);
    packet.registers = tile.packet[0];
    return tile.output[0];
  }

  PacketBox host(PacketBox packet, unsigned input, unsigned wanted);

  void sink(PacketBox packet) {
    const Packet& p = packet->registers;
    if (port_ == nullptr) {
      drop(std::move(packet), p.reason == DropReason::kNone ? DropReason::kDiscard : p.reason);
      return;
    }
    if (p.limiter != 0 && p.limiter <= impl_.limiters.size() &&
        !impl_.limiters[p.limiter - 1u].admit(packet->timestamp_ns)) {
      const unsigned by = impl_.limited[p.limiter - 1u];
      ElementCounters& counters = by == kNobody ? impl_.gone : impl_.stats.elements[by];
      ++counters.drops[static_cast<size_t>(DropReason::kIcmpRateLimited)];
      return;
    }
    const TxRecord record{p.bytes(), packet->timestamp_ns, p.length(), p.wire_length(), 0, 0, p.port, p.limiter};
    size_t written = 0;
    if (auto ok = port_->write({&record, 1}, written); !ok.ok()) impl_.fail_output(std::move(ok).error());
    if (written == 1) {
      sent(std::move(packet));
    } else {
      drop(std::move(packet), DropReason::kOutputFailed);
    }
  }

  // The source's next packet; none at the end.
  PacketBox next() {
    if (row_ == batch_->size() && !source_done_) {
      if (!source_->ready()) impl_.flush_ports();
      row_ = 0;
      if (auto ok = source_->read(*batch_); !ok.ok()) {
        batch_->clear();
        impl_.fail_input(std::move(ok).error());
      }
      source_done_ = batch_->size() == 0;
      if (source_done_ && element_.port().stop_when_done) stop();
    }
    if (source_done_) return nullptr;
    const uint32_t row = row_;
    PacketBox packet = impl_.pool.make(batch_->extent(row).end);
    if (packet == nullptr) {
      impl_.fail(Error("out of memory"));
      return nullptr;
    }
    ++row_;
    uint8_t* frame = packet->registers.frame;
    batch_->view().load(row, ~FieldMask{0}, packet->registers);
    std::memcpy(frame, packet->registers.frame, batch_->extent(row).end);
    packet->registers.frame = frame;
    packet->timestamp_ns = batch_->timestamp_ns(row);
    if (impl_.packet_time) impl_.packet_comes(packet->timestamp_ns);
    came_in(packet->registers.length());
    return packet;
  }

  bool task() {
    if (flow_ != nullptr) return flow_->task(*this);
    if (source_ != nullptr) {
      // Sources take the turns that they take in the batch runtime, unless queues are to be filled by and by.
      uint32_t turn = impl_.packet_time ? source_turn(element_.port()) : 1;
      for (; turn != 0 && !impl_.ended; --turn) {
        if (full_below(0)) return false;
        PacketBox packet = next();
        if (packet == nullptr) return false;
        push(0, std::move(packet));
      }
      return true;
    }
    bool some = false;
    if (element_.kind() != ElementKind::kSink) return false;
    for (unsigned n = 0; n < kSinkBurst; ++n) {
      PacketBox packet = pull(0);
      if (packet == nullptr) break;
      sink(std::move(packet));
      some = true;
    }
    return some;
  }

  Impl& impl_;
  unsigned index_;
  Element& element_;
  unsigned same_ = kNobody;        // in the graph before: the very element
  unsigned kin_ = kNobody;         // there: one of its name and class
  unsigned takes_port_ = kNobody;  // there: the sink whose port this one goes on with
  Flow* flow_ = nullptr;
  std::vector<Handler> handlers_;
  std::vector<std::vector<Link>> inputs_, outputs_;
  std::vector<unsigned> pullers_, pushers_;
  std::vector<Below> below_;
  StageSlot slot_{};
  StageKernel kernel_ = nullptr;
  std::unique_ptr<Element::State> state_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<Batch> batch_;
  uint32_t row_ = 0;
  bool source_done_ = false;
  std::unique_ptr<PacketSink> port_;
  PortCounters sent_;
  bool in_ring_ = false;
  uint64_t timer_version_ = 0, retry_version_ = 0;
};

// What a host element sees of one packet. What it hands on waits until it has returned: it may be asked again then.
class Scheduler::HostBridge final : public HostContext {
 public:
  HostBridge(Node& node, uint8_t generation) : node_(node), generation_(generation) {}

  void forward(unsigned output, const Selection& packets) override {
    if (packets.has(0)) forwarded_ = output;
  }
  void drop(Batch&, uint32_t, DropReason reason) override { dropped_ = reason; }
  Batch* spawn(unsigned output, size_t bytes) override {
    if (output >= node_.outputs_.size() || node_.outputs_[output].empty()) return nullptr;
    if (generation_ >= kMaxGenerations) return nullptr;
    if (!made_.empty() && made_.back().first == output && made_.back().second->has_room(bytes))
      return made_.back().second.get();
    if (made_.size() == kMaxOpenBatches) return nullptr;
    std::unique_ptr<Batch> batch;
    auto& spare = node_.impl_.spare;
    if (!spare.empty()) {
      batch = std::move(spare.back());
      spare.pop_back();
      batch->clear();
    } else {
      auto made = Batch::create(64, size_t{1} << 18);
      if (!made.ok()) return nullptr;
      batch = std::make_unique<Batch>(std::move(*made));
    }
    return made_.emplace_back(output, std::move(batch)).second.get();
  }
  void lose(uint32_t count, DropReason reason) override {
    node_.impl_.stats.generated += count;
    node_.counters().drops[static_cast<size_t>(reason)] += count;
  }
  void print(const Batch&, uint32_t, std::string_view text) override {
    if (node_.impl_.options.print) node_.impl_.options.print(text);
  }
  uint8_t limiter() const override {
    const auto& limited = node_.impl_.limited;
    const auto at = std::find(limited.begin(), limited.end(), node_.index_);
    return at == limited.end() ? uint8_t{0} : static_cast<uint8_t>(at - limited.begin() + 1);
  }
  Element::State* state() override { return node_.state_.get(); }
  unsigned worker() const override { return 0; }

  std::optional<unsigned> forwarded_;
  std::optional<DropReason> dropped_;
  std::vector<std::pair<unsigned, std::unique_ptr<Batch>>> made_;

 private:
  Node& node_;
  uint8_t generation_;
};

// The packet back where it leaves by output `wanted`; everything else is handed on.
PacketBox Scheduler::Node::host(PacketBox packet, unsigned input, unsigned wanted) {
  HostBridge bridge(*this, packet->generation);
  Batch& batch = *impl_.scratch;
  batch.clear();
  const Packet& p = packet->registers;
  batch.push(p.frame, p.end, p.wire_end, packet->timestamp_ns, 0);
  batch.view().store(0, ~FieldMask{0}, packet->registers);
  Selection one;
  one.add(0);
  element_.process(bridge, batch, one, input);
  uint8_t* frame = packet->registers.frame;
  batch.view().load(0, ~FieldMask{0}, packet->registers);
  packet->registers.frame = frame;
  std::vector<std::pair<unsigned, PacketBox>> made;
  for (auto& [output, children] : bridge.made_) {
    for (uint32_t i = 0; i < children->size(); ++i) {
      PacketBox child = impl_.pool.make(children->extent(i).end);
      if (child == nullptr) {
        bridge.lose(1, DropReason::kNoBuffer);
        continue;
      }
      uint8_t* to = child->registers.frame;
      children->view().load(i, ~FieldMask{0}, child->registers);
      std::memcpy(to - kHeadroom, child->registers.frame - kHeadroom, kHeadroom + child->registers.end);
      child->registers.frame = to;
      child->timestamp_ns = children->timestamp_ns(i);
      child->generation = static_cast<uint8_t>(packet->generation + 1);
      ++impl_.stats.generated;
      made.emplace_back(output, std::move(child));
    }
    impl_.spare.push_back(std::move(children));
  }
  // The packet goes first, then what was made of it, as in the batch runtime (exec/descent.h). What makes packets is
  // not asked for them.
  PacketBox answer;
  if (bridge.forwarded_ == wanted) {
    answer = std::move(packet);
  } else if (bridge.forwarded_) {
    push(*bridge.forwarded_, std::move(packet));
  } else {
    drop(std::move(packet), bridge.dropped_.value_or(DropReason::kDiscard));
  }
  for (auto& [output, child] : made) push(output, std::move(child));
  return answer;
}

// -- construction ----------------------------------------------------------------------------------------------------

namespace {

// Whether an element of the next graph is that of the graph before, with all it has. Elements without anything of their
// own are made anew, as what they read (files of patterns) may have changed.
bool goes_on(Element& before, const Element& next) {
  return before.class_name == next.class_name && before.configuration == next.configuration &&
         before.inputs == next.inputs && before.outputs == next.outputs && before.kind() == next.kind() &&
         before.kind() != ElementKind::kInfo &&
         (before.kind() != ElementKind::kStage || before.flow() != nullptr || !before.handlers().empty());
}

bool same_output(const PortSpec& a, const PortSpec& b) {
  return a.type == b.type && a.path == b.path && a.nanosecond == b.nanosecond && a.snaplen == b.snaplen;
}

}  // namespace

Scheduler::Impl::Impl(Router& r, const SchedulerOptions& o, FlowPool& p, Scheduler& s, Impl* before)
    : router(r), options(o), owner(s), pool(p) {
  const size_t n = router.elements.size();
  stats.elements.resize(n);
  packet_time =
      std::none_of(router.elements.begin(), router.elements.end(),
                   [](const auto& element) { return element->kind() == ElementKind::kFlow; }) &&
      std::none_of(router.connections.begin(), router.connections.end(), [](const auto& c) { return c.pull; });
  past = before == nullptr ? options.files : before->files_besides(router);
  if (before != nullptr) {
    simulated_ns = before->simulated_ns;
    limiters = before->limiters;
    limited.assign(before->limited.size(), kNobody);
  }
  for (unsigned e = 0; e < n; ++e) {
    Element* element = router.elements[e].get();
    by_name.emplace(element->name, e);
    unsigned same = kNobody, kin = kNobody;
    if (before != nullptr) {
      const auto at = before->by_name.find(element->name);
      if (at != before->by_name.end()) {
        Element& old = before->nodes[at->second]->element_;
        if (old.class_name == element->class_name) kin = at->second;
        if (goes_on(old, *element)) {
          same = at->second;
          element = &old;
        }
      }
    }
    nodes.push_back(std::make_unique<Node>(*this, e, *element));
    nodes.back()->same_ = same;
    nodes.back()->kin_ = kin;
    for (size_t l = 0; same != kNobody && l < limited.size(); ++l) {
      if (before->limited[l] == same) limited[l] = e;
    }
  }
  for (unsigned e : limited_elements(router)) {
    if (std::find(limited.begin(), limited.end(), e) != limited.end() || limited.size() >= 255) continue;
    limited.push_back(e);
    limiters.push_back(EgressLimiter::of(router.elements[e]->egress_rate()));
  }
  auto add = [](auto& ports, unsigned port, Node::Link link) {
    if (ports.size() <= port) ports.resize(port + 1);
    ports[port].push_back(link);
  };
  for (const RouterConnection& c : router.connections) {
    add(nodes[c.from]->outputs_, c.from_port, {c.to, c.to_port, c.pull});
    add(nodes[c.to]->inputs_, c.to_port, {c.from, c.from_port, c.pull});
  }

  // Who wakes whom: along pull connections down to whoever asks, along push connections up to whoever begins, and down
  // to the first queue that holds back.
  using Ports = std::vector<std::vector<Node::Link>>;
  auto walk = [&](unsigned start, auto&& sides, bool pull, auto&& reached) {
    std::set<unsigned> seen;
    std::vector<unsigned> stack{start};
    while (!stack.empty()) {
      const unsigned at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second) continue;
      bool further = false;
      if (at == start || !reached(at, false)) {
        for (const auto& port : sides(*nodes[at])) {
          for (const Node::Link& link : port) {
            if (link.pull != pull) continue;
            further = true;
            stack.push_back(link.node);
          }
        }
        if (!further && at != start) reached(at, true);
      }
    }
  };
  auto outputs_of = [](const Node& node) -> const Ports& { return node.outputs_; };
  auto inputs_of = [](const Node& node) -> const Ports& { return node.inputs_; };
  for (auto& node : nodes) {
    if (node->flow_ == nullptr) continue;
    if (!node->outputs_.empty()) {
      walk(node->index_, outputs_of, true, [&](unsigned at, bool last) {
        if (last) node->pullers_.push_back(at);
        return false;
      });
    }
    if (node->flow_->holds_back()) {
      walk(node->index_, inputs_of, false, [&](unsigned at, bool last) {
        if (last) node->pushers_.push_back(at);
        return false;
      });
    }
  }
  for (auto& node : nodes) {
    const bool begins = node->element_.kind() == ElementKind::kSource || node->flow_ != nullptr;
    if (!begins) continue;
    node->below_.resize(node->outputs_.size());
    for (unsigned out = 0; out < node->outputs_.size(); ++out) {
      Node::Below& below = node->below_[out];
      for (const Node::Link& link : node->outputs_[out]) {
        if (link.pull) continue;
        auto reached = [&](unsigned at, bool last) {
          const Flow* flow = nodes[at]->flow_;
          if (flow != nullptr && flow->holds_back()) {
            if (std::find(below.queues.begin(), below.queues.end(), at) == below.queues.end())
              below.queues.push_back(at);
            return true;
          }
          below.open |= last;
          return false;
        };
        if (!reached(link.node, false)) {
          bool any = false;
          for (const auto& port : nodes[link.node]->outputs_) any |= !port.empty() && !port[0].pull;
          if (any) {
            walk(link.node, outputs_of, false, reached);
          } else {
            below.open = true;
          }
        }
      }
    }
  }
}

Result<void> Scheduler::Impl::bind_one(unsigned index) {
  Node& node = *nodes[index];
  node.slot_ = StageSlot{};
  node.slot_.element = static_cast<uint16_t>(index);
  node.slot_.outputs = static_cast<uint8_t>(std::min(node.element_.outputs, kMaxOutputs));
  if (auto ok = node.element_.bind(tables, node.slot_); !ok.ok()) return ok;
  node.kernel_ = cpu_stage_kernel(node.slot_.kind);
  return {};
}

Result<void> Scheduler::Impl::bind(const TableSet& given) {
  tables = given;
  Error errors;
  for (unsigned e = 0; e < nodes.size(); ++e) {
    if (router.elements[e]->kind() != ElementKind::kStage) continue;
    if (auto ok = bind_one(e); !ok.ok()) {
      Diagnostic d = router.elements[e]->diagnostic(ok.error().message);
      d.suggestion = ok.error().hint;
      errors.diagnostics.push_back(std::move(d));
    }
  }
  if (errors.diagnostics.empty()) return {};
  errors.message =
      fmt::format("{} element{} cannot be bound", errors.diagnostics.size(), errors.diagnostics.size() == 1 ? "" : "s");
  return errors;
}

// What the run has read and written so far, without those outputs with which `next` goes on: its own must be none of
// it.
RunFiles Scheduler::Impl::files_besides(const Router& next) const {
  RunFiles files = past;
  for (const auto& node : nodes) {
    Element& element = node->element_;
    RunFiles own;
    add_files(element, own);
    for (const RunFiles::File& file : own.files()) {
      const bool output = file.use == RunFiles::File::Use::kOutput;
      const bool stays = output && std::any_of(next.elements.begin(), next.elements.end(), [&](const auto& other) {
                           return element.kind() == ElementKind::kSink
                                      ? other->kind() == ElementKind::kSink && other->port().path == file.path
                                      : other->name == element.name && goes_on(element, *other);
                         });
      // Lines on standard output are not lost by those that follow.
      const bool lines = output && file.path == "-" && element.kind() != ElementKind::kSink;
      if (stays || lines) continue;
      output ? files.output(file.who, file.path) : files.input(file.who, file.path);
    }
  }
  return files;
}

// Before a read that waits: whoever reads an output gets what there is.
void Scheduler::Impl::flush_ports() {
  for (auto& node : nodes) {
    if (node->port_ == nullptr) continue;
    if (auto ok = node->port_->flush(); !ok.ok()) fail_output(std::move(ok).error());
  }
}

// The sink whose port writes to `path` and which the next graph may not have; kNobody: none.
unsigned Scheduler::Impl::writer_of(const std::string& path) const {
  for (unsigned e = 0; e < nodes.size(); ++e) {
    if (!path.empty() && nodes[e]->port_ != nullptr && nodes[e]->element_.port().path == path) return e;
  }
  return kNobody;
}

Result<void> Scheduler::Impl::open_ports(const Impl* before) {
  auto made = Batch::create(1, 0);
  if (!made.ok()) return std::move(made).error();
  scratch = std::make_unique<Batch>(std::move(*made));
  Error errors;
  // Sources first: what they hold decides what is written.
  std::vector<Node*> in_turn;
  for (auto& node : nodes) in_turn.push_back(node.get());
  std::stable_partition(in_turn.begin(), in_turn.end(),
                        [](const Node* node) { return node->element_.kind() == ElementKind::kSource; });
  std::vector<LinkType> links;
  for (Node* node : in_turn) {
    const Element& element = node->element_;
    if (node->same_ != kNobody) {
      if (node->source_ != nullptr) links.push_back(node->source_->link());
      continue;
    }
    if (element.kind() == ElementKind::kHost) node->state_ = element.make_state();
    if (node->flow_ != nullptr) continue;
    Result<void> ok;
    if (element.kind() == ElementKind::kSource) {
      auto source = open_source(element.port(), frames, options.inputs);
      auto batch = Batch::create(kSourceBatch, size_t{1} << 18);
      if (source.ok() && batch.ok()) {
        node->source_ = std::move(*source);
        links.push_back(node->source_->link());
        node->batch_ = std::make_unique<Batch>(std::move(*batch));
      } else {
        ok = source.ok() ? std::move(batch).error() : std::move(source).error();
      }
    } else if (element.kind() == ElementKind::kSink) {
      const PortSpec port = element.port();
      const auto writer = before == nullptr ? kNobody : before->writer_of(port.path);
      if (writer != kNobody) {
        if (!same_output(before->nodes[writer]->element_.port(), port)) {
          errors.diagnostics.push_back(element.diagnostic(fmt::format(
              "'{}' is being written by '{}' in another way", port.path, before->nodes[writer]->element_.name)));
          continue;
        }
        node->takes_port_ = writer;
        continue;
      }
      auto sink = open_sink(port, sink_link(router, node->index_, links));
      if (sink.ok()) {
        node->port_ = std::move(*sink);
      } else {
        ok = std::move(sink).error();
      }
    }
    if (!ok.ok()) {
      errors.system = ok.error().system && (errors.system || errors.diagnostics.empty());
      Diagnostic d = element.diagnostic(ok.error().message);
      d.suggestion = ok.error().hint;
      errors.diagnostics.push_back(std::move(d));
    }
  }
  if (errors.diagnostics.empty()) return {};
  errors.message =
      fmt::format("{} port{} cannot be opened", errors.diagnostics.size(), errors.diagnostics.size() == 1 ? "" : "s");
  return errors;
}

Result<void> Scheduler::Impl::start() {
  for (auto& node : nodes) {
    if (node->same_ != kNobody) continue;
    if (node->flow_ != nullptr) {
      if (auto ok = node->flow_->start(*node); !ok.ok()) {
        if (!ok.error().diagnostics.empty()) return ok;
        Error error;
        error.message = fmt::format("'{}' cannot start", node->element_.name);
        error.system = ok.error().system;
        error.diagnostics.push_back(node->element_.diagnostic(ok.error().message));
        error.diagnostics.back().suggestion = ok.error().hint;
        return error;
      }
      continue;
    }
    const ElementKind kind = node->element_.kind();
    if ((kind == ElementKind::kSource && node->pushes(0)) || (kind == ElementKind::kSink && node->pulls_input()))
      node->wake();
  }
  return {};
}

// -- the run ---------------------------------------------------------------------------------------------------------

// `gently`: where no script manages it, the run goes on.
void Scheduler::Impl::ask_stop(bool gently) {
  bool managed = false;
  for (auto& node : nodes) {
    if (node->flow_ == nullptr || !node->flow_->manages_stop()) continue;
    managed = true;
    node->flow_->stop_requested(*node);
  }
  if (!managed && !gently) ended = true;
}

void Scheduler::Impl::run_task(unsigned index) {
  Node& node = *nodes[index];
  node.in_ring_ = false;
  retry = ~uint64_t{0};
  ++node.retry_version_;
  if (node.task()) {
    node.wake();
  } else if (retry != ~uint64_t{0}) {
    timers.push({retry, timer_order++, index, node.retry_version_, true});
  }
}

void Scheduler::Impl::fire(const Timer& timer) {
  Node& node = *nodes[timer.node];
  if (timer.retry) {
    if (timer.version == node.retry_version_) node.wake();
  } else if (timer.version == node.timer_version_ && node.flow_ != nullptr) {
    node.flow_->timer(node);
  }
}

// What is due by then happens first.
void Scheduler::Impl::packet_comes(uint64_t timestamp_ns) {
  while (!timers.empty() && timers.top().at <= timestamp_ns) {
    const Timer timer = timers.top();
    timers.pop();
    simulated_ns = std::max(simulated_ns, timer.at);
    fire(timer);
  }
  simulated_ns = std::max(simulated_ns, timestamp_ns);
}

// No task can run. False: nothing can happen any more.
bool Scheduler::Impl::rest() {
  while (!timers.empty()) {
    const Timer& next = timers.top();
    const Node& node = *nodes[next.node];
    if (next.version == (next.retry ? node.retry_version_ : node.timer_version_)) break;
    timers.pop();
  }
  if (timers.empty()) return false;
  turns = 0;
  if (simulated()) {
    simulated_ns = std::max(simulated_ns, timers.top().at);
    return true;
  }
  const uint64_t at = timers.top().at;
  const uint64_t current = now();
  if (at > current) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(at - current, kLongestSleepNs)));
  return true;
}

Result<void> Scheduler::Impl::loop() {
  while (!ended && !replaced) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      interrupted = true;
      break;
    }
    if (owner.asked_->waiting.load(std::memory_order_relaxed)) {
      owner.asked_->serve();
      continue;
    }
    while (options.next_signal) {
      const int signal = options.next_signal();
      if (signal == 0) break;
      for (auto& node : nodes) {
        if (node->flow_ != nullptr && node->flow_->wants_signal(signal)) node->flow_->signal(*node, signal);
      }
    }
    while (!ended && stops != 0) {
      --stops;
      ask_stop();
    }
    while (!ended && stops == 0 && !timers.empty() && timers.top().at <= now()) {
      const Timer timer = timers.top();
      timers.pop();
      fire(timer);
    }
    if (ended) break;
    if (stops != 0) continue;
    if (!ring.empty()) {
      const unsigned index = ring.front();
      ring.pop_front();
      run_task(index);
      // Time goes on although somebody is always busy.
      if (options.simulated && ++turns > kFreeTurns) simulated_ns += kTurnNs;
      continue;
    }
    if (rest()) continue;
    // Nothing can happen any more, unless a driver script was waiting for just this.
    if (idle_told) {
      if (!options.stay) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    idle_told = true;
    ask_stop(options.stay);
  }
  if (!failure.message.empty() || !failure.diagnostics.empty()) return failure;
  return {};
}

// -- handlers --------------------------------------------------------------------------------------------------------

Result<Scheduler::Impl::Found> Scheduler::Impl::find(const Node* from, std::string_view name, bool writes) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return Error(fmt::format("there is no handler '{}'", name), "write ELEMENT.HANDLER");
  }
  const std::string_view wanted = name.substr(0, dot);
  const std::string_view handler = name.substr(dot + 1);
  // The compounds around the asking element first, innermost first.
  std::string scope = from == nullptr ? std::string() : from->element_.name;
  auto at = by_name.end();
  do {
    const size_t slash = scope.rfind('/');
    scope.resize(slash == std::string::npos ? 0 : slash);
    at = by_name.find(scope.empty() ? std::string(wanted) : scope + "/" + std::string(wanted));
  } while (at == by_name.end() && !scope.empty());
  if (at == by_name.end()) {
    std::vector<std::string> names;
    for (const auto& [known, index] : by_name) names.push_back(known);
    const std::string near = closest_match(wanted, names);
    return Error(fmt::format("there is no element '{}'", wanted),
                 near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  Node& node = *nodes[at->second];
  std::vector<std::string> names;
  for (Handler& h : node.handlers_) {
    if (h.name == handler || h.name == "*") {
      if (writes ? !h.write : !h.read) {
        return Error(fmt::format("'{}.{}' cannot be {}", at->first, handler, writes ? "written" : "read"));
      }
      return Found{&node, &h, fmt::format("{}.{}", at->first, handler)};
    }
    names.push_back(h.name);
  }
  const std::string near = closest_match(handler, names);
  return Error(fmt::format("'{}' ({}) has no handler '{}'", at->first, node.element_.class_name, handler),
               near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

std::string Scheduler::Impl::list(std::string_view what) const {
  std::string text;
  if (what == "list") {
    text = fmt::format("{}\n", nodes.size());
    for (const auto& node : nodes) text += node->element_.name + "\n";
  } else if (what == "requirements") {
    for (const std::string& requirement : router.requirements) text += requirement + "\n";
  } else {
    ClickGraph graph;
    for (const auto& node : nodes) {
      ClickElement& made = graph.elements.emplace_back();
      made.name = node->element_.name;
      made.class_name = node->element_.class_name;
      made.configuration = node->element_.configuration;
    }
    for (const RouterConnection& c : router.connections)
      graph.connections.push_back({c.from, c.from_port, c.to, c.to_port, {}});
    graph.requirements = router.requirements;
    graph.normalize();
    text = print_click(graph);
  }
  return text;
}

Result<std::string> Scheduler::Impl::read(const Node* from, std::string_view name, std::string_view argument) {
  if (name == "list" || name == "config" || name == "flatconfig" || name == "requirements") return list(name);
  auto found = find(from, name, false);
  if (!found.ok()) return std::move(found).error();
  // The last part of the name, for handlers that take any.
  if (found->handler->name == "*") {
    const std::string full(name.substr(name.rfind('.') + 1));
    return found->handler->read(*found->node, argument.empty() ? full : full + " " + std::string(argument));
  }
  return found->handler->read(*found->node, argument);
}

Result<void> Scheduler::Impl::write(const Node* from, std::string_view name, std::string_view value) {
  if (name == "stop") {
    ask_stop();
    return {};
  }
  if (name == "hotconfig" && options.load) {
    auto next = options.load(value);
    if (!next.ok()) return std::move(next).error();
    return owner.swap(std::move(*next));
  }
  auto found = find(from, name, true);
  if (!found.ok()) return std::move(found).error();
  Result<void> done;
  if (found->handler->name == "*") {
    const std::string full(name.substr(name.rfind('.') + 1));
    done = found->handler->write(*found->node, value.empty() ? full : full + " " + std::string(value));
  } else {
    done = found->handler->write(*found->node, value);
  }
  // What somebody waits for may have become true.
  wake_tasks();
  return done;
}

void Scheduler::Impl::wake_tasks() {
  for (auto& node : nodes) {
    const bool task = node->flow_ != nullptr || node->source_ != nullptr || node->pulls_input();
    if (task) node->wake();
  }
}

// -- the public face -------------------------------------------------------------------------------------------------

Scheduler::Scheduler(std::unique_ptr<Asked> asked) : asked_(std::move(asked)) {}
Scheduler::~Scheduler() = default;

Result<std::unique_ptr<Scheduler>> Scheduler::create(Router& router, const TableSet& tables,
                                                     const SchedulerOptions& options) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(std::make_unique<Asked>()));
  scheduler->impl_ = std::make_unique<Impl>(router, options, *scheduler->pool_, *scheduler, nullptr);
  Impl& impl = *scheduler->impl_;
  if (auto ok = check_files(router, options.files); !ok.ok()) return std::move(ok).error();
  if (auto ok = impl.bind(tables); !ok.ok()) return std::move(ok).error();
  if (auto ok = impl.open_ports(nullptr); !ok.ok()) return std::move(ok).error();
  if (auto ok = impl.start(); !ok.ok()) return std::move(ok).error();
  return scheduler;
}

Result<void> Scheduler::swap(std::unique_ptr<SchedulerGraph> next) {
  if (auto ok = check_files(next->router, impl_->files_besides(next->router)); !ok.ok()) return ok;
  auto impl = std::make_unique<Impl>(next->router, impl_->options, *pool_, *this, impl_.get());
  if (auto ok = impl->bind(next->tables); !ok.ok()) return ok;
  if (auto ok = impl->open_ports(impl_.get()); !ok.ok()) return ok;
  if (auto ok = impl->start(); !ok.ok()) return ok;
  next_ = std::move(impl);
  next_graph_ = std::move(next);
  impl_->replaced = true;
  return {};
}

// Between two tasks.
void Scheduler::change() {
  next_->follow(*impl_);
  // The elements that are left go, with what they hold, once nobody knows them.
  Router gone = std::move(impl_->router);
  impl_ = std::move(next_);
  graph_ = std::move(next_graph_);
  ++swaps_;
}

void Scheduler::Impl::follow(Impl& before) {
  // What came in and was made stays; what elements counted goes by their names.
  std::vector<ElementCounters> counted = std::move(before.stats.elements);
  std::vector<ElementCounters> mine = std::move(stats.elements);
  const WorkerStats early = std::move(stats);  // `start` may have brought packets
  stats = std::move(before.stats);
  stats.packets_in += early.packets_in;
  stats.bytes_in += early.bytes_in;
  stats.generated += early.generated;
  stats.elements = std::move(mine);
  gone = before.gone;
  retired = std::move(before.retired);
  std::vector<bool> has_heir(before.nodes.size());
  std::vector<unsigned> heir(before.nodes.size(), kNobody);
  for (auto& node : nodes) {
    if (node->kin_ != kNobody) {
      stats.elements[node->index_].add(counted[node->kin_]);
      has_heir[node->kin_] = true;
    }
    if (node->takes_port_ != kNobody) {
      node->port_ = std::move(before.nodes[node->takes_port_]->port_);
      node->sent_ = before.nodes[node->takes_port_]->sent_;
      before.nodes[node->takes_port_]->sent_ = {};
    }
    if (node->same_ == kNobody) continue;
    Node& old = *before.nodes[node->same_];
    heir[node->same_] = node->index_;
    std::swap(router.elements[node->index_], before.router.elements[node->same_]);
    node->element_.position = before.router.elements[node->same_]->position;
    node->state_ = std::move(old.state_);
    node->source_ = std::move(old.source_);
    node->batch_ = std::move(old.batch_);
    node->row_ = old.row_;
    node->source_done_ = old.source_done_;
    node->port_ = std::move(old.port_);
    node->sent_ = old.sent_;
    old.sent_ = {};
  }
  std::copy(before.limiters.begin(), before.limiters.end(), limiters.begin());
  // Flows that end here: their heirs take what they can, files are finished, the rest of their packets is dropped.
  for (unsigned e = 0; e < before.nodes.size(); ++e) {
    Node& old = *before.nodes[e];
    if (!has_heir[e]) gone.add(counted[e]);
    if (old.port_ != nullptr || old.sent_.packets != 0) {
      retired.push_back(
          {{old.element_.name, old.element_.port().path, old.sent_.packets, old.sent_.bytes}, std::move(old.port_)});
    }
    if (old.flow_ == nullptr || heir[e] != kNobody) continue;
    for (auto& node : nodes) {
      if (node->kin_ == e && node->flow_ != nullptr) node->flow_->take(*node, *old.flow_);
    }
    gone.drops[static_cast<size_t>(DropReason::kGraphChanged)] += old.flow_->held();
    if (auto ok = old.flow_->finish(old); !ok.ok()) {
      old.element_.files().empty() ? fail(std::move(ok).error()) : fail_output(std::move(ok).error());
    }
  }
  // Timers of elements that go on.
  for (; !before.timers.empty(); before.timers.pop()) {
    const Timer& timer = before.timers.top();
    const Node& old = *before.nodes[timer.node];
    if (heir[timer.node] == kNobody || timer.retry || timer.version != old.timer_version_) continue;
    nodes[heir[timer.node]]->set_timer(timer.at);
  }
  simulated_ns = before.simulated_ns;
  turns = before.turns;
  stops += before.stops;
  wake_tasks();
}

uint64_t Scheduler::swaps() const {
  return swaps_;
}
const Router& Scheduler::router() const {
  return impl_->router;
}

bool Scheduler::ask(const std::function<void()>& what) {
  Asked::Call call{&what};
  std::unique_lock lock(asked_->mutex);
  if (!asked_->open) return false;
  asked_->calls.push_back(&call);
  asked_->waiting.store(true, std::memory_order_relaxed);
  asked_->changed.wait(lock, [&] { return call.done || !asked_->open; });
  if (call.done) return true;
  std::erase(asked_->calls, &call);
  return false;
}

Result<void> Scheduler::run(RunReport& report) {
  const uint64_t started = sluice::now_ns();
  Result<void> result;
  while (true) {
    result = impl_->loop();
    if (!impl_->replaced || impl_->ended || !result.ok()) break;
    change();
  }
  Impl& impl = *impl_;
  asked_->close();
  Ending& ending = impl.ending;
  const auto failed = [&](Result<void> why, bool output) {
    if (result.ok() || impl.damaged) {
      result = std::move(why);
      impl.output_failed = output;
    }
    impl.damaged = false;
    ending = Ending::kDiscard;
  };
  if (!result.ok()) {
    ending = impl.damaged ? Ending::kPartial : Ending::kDiscard;
  } else if (impl.interrupted && !impl.options.stop_is_end) {
    ending = Ending::kPartial;
  }
  // No output appears before all ports are on the disk.
  std::vector<PacketSink*> sinks;
  for (auto& node : impl.nodes) sinks.push_back(node->port_.get());
  for (Impl::Retired& r : impl.retired) sinks.push_back(r.port.get());
  for (PacketSink* sink : sinks) {
    if (sink == nullptr || ending == Ending::kDiscard) continue;
    if (auto ok = sink->settle(); !ok.ok()) failed(std::move(ok), true);
  }
  for (auto& node : impl.nodes) {
    if (node->flow_ == nullptr) continue;
    if (auto ok = node->flow_->finish(*node); !ok.ok()) failed(std::move(ok), !node->element_.files().empty());
  }
  if (ending != Ending::kDiscard) {
    if (auto ok = end_outputs(sinks, ending); !ok.ok()) failed(std::move(ok), true);
  }
  report = this->report();
  report.interrupted = impl.interrupted;
  report.partial = ending == Ending::kPartial;
  report.output_failed = impl.output_failed;
  report.seconds = static_cast<double>(sluice::now_ns() - started) / 1e9;
  if (result.ok() && report.queued != pool_->live()) {
    return Error(fmt::format("{} packets are held, but queues know of {}", pool_->live(), report.queued));
  }
  return result;
}

RunReport Scheduler::report() const {
  const Impl& impl = *impl_;
  RunReport report;
  report.totals = impl.stats;
  report.packets_in = impl.stats.packets_in;
  report.bytes_in = impl.stats.bytes_in;
  report.generated = impl.stats.generated;
  auto count = [&](const ElementCounters& e) {
    for (size_t r = 0; r < kDropReasons; ++r) {
      report.drops[r] += e.drops[r];
      report.dropped += e.drops[r];
    }
  };
  count(impl.gone);
  for (const ElementCounters& e : impl.stats.elements) count(e);
  auto sent = [&](const RunReport::Sink& sink) {
    report.sinks.push_back(sink);
    report.packets_out += sink.packets;
    report.bytes_out += sink.bytes;
  };
  for (const auto& node : impl.nodes) {
    if (node->flow_ != nullptr) report.queued += node->flow_->held();
    if (node->port_ == nullptr && node->sent_.packets == 0) continue;
    sent({node->element_.name, place_of(node->port_.get(), node->element_.port().path, impl.ending),
          node->sent_.packets, node->sent_.bytes});
  }
  for (const Impl::Retired& r : impl.retired) {
    sent(r.sink);
    report.sinks.back().path = place_of(r.port.get(), r.sink.path, impl.ending);
  }
  report.generation = swaps_ + 1;
  return report;
}

Result<std::string> Scheduler::read(std::string_view name, std::string_view argument) {
  return impl_->read(nullptr, name, argument);
}
Result<void> Scheduler::write(std::string_view name, std::string_view value) {
  return impl_->write(nullptr, name, value);
}
bool Scheduler::wants_signal(int signal) const {
  return std::any_of(impl_->nodes.begin(), impl_->nodes.end(),
                     [&](const auto& node) { return node->flow_ != nullptr && node->flow_->wants_signal(signal); });
}
bool Scheduler::has_handler(std::string_view name, bool writes) const {
  return impl_->find(nullptr, name, writes).ok();
}
uint64_t Scheduler::now_ns() const {
  return impl_->now();
}

std::string describe_schedule(const Router& router) {
  std::string text = fmt::format("packet scheduler: {}\n", router.scheduled);
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    const Element& element = *router.elements[e];
    std::string ports;
    for (const RouterConnection& c : router.connections) {
      if (c.from == e)
        ports += fmt::format("    [{}] {} {} [{}]\n", c.from_port, c.pull ? "<=" : "->", router.elements[c.to]->name,
                             c.to_port);
    }
    const char* kind = element.kind() == ElementKind::kStage  ? "stage"
                       : element.kind() == ElementKind::kFlow ? "flow"
                       : element.kind() == ElementKind::kInfo ? "info"
                                                              : "host";
    text += fmt::format("{} {} :: {}\n{}", kind, element.name, element.class_name, ports);
  }
  return text;
}

}  // namespace sluice
