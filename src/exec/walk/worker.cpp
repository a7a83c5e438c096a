// host only
#include "exec/walk/worker.h"
#include "exec/account/rule_log.h"

#include "base/assert.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace sluice {
namespace {

// A packet may go round a cycle of the graph this often before it is dropped.
constexpr unsigned kMaxRounds = 64;
// What elements make of one batch: 2 GiB, or a million packets.
constexpr size_t kMaxChildren = 4096;
constexpr size_t kChildArena = size_t{1} << 19;
constexpr uint32_t kChildPackets = 256;

}  // namespace

void clear_headroom(Batch& batch, const Selection& packets) {
  packets.for_each([&](uint32_t i) { std::memset(batch.frame(i) - kHeadroom, 0, kHeadroom); });
}

std::vector<unsigned> limited_elements(const Router& router) {
  std::vector<unsigned> limited;
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    if (router.elements[e]->egress_rate().per_second != 0 && limited.size() < 255) limited.push_back(e);
  }
  return limited;
}

// What a host element sees while it handles one batch.
class Worker::Context final : public HostContext {
 public:
  Context(Worker& worker, const PlanNode& node)
      : worker_(worker),
        node_(node),
        share_(*worker.walk_->share),
        generation_(worker.walk_->generation),
        element_(node.elements[0]),
        visit_(worker.walk_->visits++) {}

  void forward(unsigned output, const Selection& packets) override { worker_.leave(node_, output, packets); }
  void drop(Batch& batch, uint32_t i, DropReason reason) override { worker_.cpu_.drop_row(element_, batch, i, reason); }
  void lose(uint32_t count, DropReason reason) override {
    worker_.account_.stats.generated += count;
    worker_.account_.drop(element_, reason, count);
  }

  Batch* spawn(unsigned output, size_t bytes) override {
    if (!node_.connects(output) || generation_ >= kMaxGenerations) return nullptr;
    const PlanTarget target = node_.exits[output];
    Walk& walk = *worker_.walk_;
    Batch*& open = walk.open_batches[walk.first_input[target.node] + target.input];
    if (open == nullptr || !open->has_room(bytes)) {
      if (share_.child_count == share_.children.size()) {
        if (share_.children.size() == kMaxChildren) return nullptr;
        auto made = Batch::create(kChildPackets, kChildArena);
        if (!made) return nullptr;
        made->keep_descent();
        share_.children.push_back(std::make_unique<Batch>(std::move(*made)));
      }
      open = share_.children[share_.child_count++].get();
      open->clear();
      walk.children.push_back({open, target, generation_ + 1});
    }
    open->set_maker(Descent::maker(visit_, output));
    return open;
  }

  void print(const Batch& batch, uint32_t i, std::string_view text) override {
    if (share_.print_count == share_.prints.size()) share_.prints.emplace_back();
    PrintRecord& record = share_.prints[share_.print_count];
    record.order = batch.order(i);
    record.sequence = &batch == worker_.walk_->root ? 0 : batch.name(i);
    record.arrival = static_cast<uint32_t>(share_.print_count++);
    record.text.assign(text);
  }
  uint8_t limiter() const override { return worker_.limiter_[element_]; }
  unsigned worker() const override { return worker_.account_.worker(); }

 private:
  Worker& worker_;
  const PlanNode& node_;
  JobShare& share_;
  unsigned generation_;
  unsigned element_;
  uint64_t visit_;
};

Worker::Worker(const Plan& plan, const Router& router, unsigned id, bool bursts)
    : plan_(plan), router_(router), account_(id), cpu_(plan, router, account_, bursts) {
  account_.stats.elements.resize(router.elements.size());
  uint32_t inputs = 0;
  for (const PlanNode& node : plan.nodes) {
    first_input_.push_back(inputs);
    inputs += node.inputs;
  }
  walks_.push_back(std::make_unique<Walk>());
  walks_[0]->open(plan, first_input_);
  sink_index_.resize(router.elements.size());
  drops_all_.resize(router.elements.size());
  limiter_.resize(router.elements.size());
  for (uint32_t i = 0; i < plan.sinks.size(); ++i) {
    const unsigned e = plan.sinks[i];
    sink_index_[e] = i;
    drops_all_[e] = router.elements[e]->port().type == PortSpec::Type::kNull;
  }
  uint8_t limiter = 0;
  for (unsigned e : limited_elements(router)) limiter_[e] = ++limiter;
}

Worker::~Worker() = default;

void Worker::use_device(WorkerDevice device) {
  SLUICE_CHECK(on_way_ == 0 && device.flights >= 1);
  while (walks_.size() < device.flights) {
    walks_.push_back(std::make_unique<Walk>());
    walks_.back()->open(plan_, first_input_);
  }
  device_ = std::make_unique<DeviceRunner>(plan_, cpu_, account_, std::move(device), walks_);
}

void Worker::run(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source) {
  start(snapshot, batch, share, source);
  while (!finish()) {
  }
}

void Worker::start(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source) {
  SLUICE_CHECK(on_way_ < walks_.size());
  Walk& walk = *walks_[(oldest_ + on_way_) % walks_.size()];
  ++on_way_;
  share.sent.resize(plan_.sinks.size());
  share.passed.resize(plan_.passed.size());
  account_.come_in(plan_.sources[source].element, batch, share.packets);
  ++account_.stats.batches;

  walk.snapshot = &snapshot;
  walk.root = walk.batch = &batch;
  walk.share = &share;
  walk.source = static_cast<uint16_t>(source);
  walk.generation = 0;
  walk.node = 0;
  walk.round = 0;
  walk.again = false;
  walk.waiting = walk.arrived = false;
  walk.children.clear();
  walk.next_child = 0;
  walk.visits = 0;
  if (plan_.shows_headroom) clear_headroom(batch, share.packets);
  if (!share.packets.empty()) walk.to(plan_.sources[source].target).merge(share.packets);
  advance(walk);
}

bool Worker::finish() {
  Walk& walk = *walks_[oldest_];
  if (walk.batch != nullptr && !advance(walk)) return false;
  oldest_ = (oldest_ + 1) % walks_.size();
  --on_way_;
  return true;
}

// Goes on until the walk waits for a device (false) or is at its end.
bool Worker::advance(Walk& walk) {
  walk_ = &walk;
  cpu_.on(walk);
  if (device_ != nullptr) device_->on(walk);
  account_to(walk);
  while (true) {
    if (!run_nodes(walk)) return false;
    if (walk.next_child == walk.children.size()) {
      if (!walk.children.empty()) number_made(walk);
      walk.batch = nullptr;
      return true;
    }
    start_child(walk, Walk::Child(walk.children[walk.next_child++]));
  }
}

void Worker::start_child(Walk& walk, const Walk::Child& child) {
  // All packets of one generation have made theirs before one of the next goes on.
  if (child.generation != walk.generation) std::fill(walk.open_batches.begin(), walk.open_batches.end(), nullptr);
  const uint32_t packets = child.batch->size();
  account_.stats.generated += packets;
  child.batch->set_first_name(walk.descent.add(*child.batch));
  walk.batch = child.batch;
  account_to(walk);
  walk.generation = child.generation;
  walk.node = 0;
  walk.round = 0;
  walk.again = false;
  Selection all;
  all.fill(packets);
  walk.to(child.target).merge(all);
}

// Until here what was made has names; now their places in the order of packets are known.
void Worker::number_made(Walk& walk) {
  const Descent::Places places = walk.descent.places();
  for (JobShare::Sent& sent : walk.share->sent) {
    for (TxRecord& record : sent.made) record.sequence = places[record.sequence];
  }
  for (size_t i = 0; i < walk.share->print_count; ++i) {
    uint32_t& sequence = walk.share->prints[i].sequence;
    if (sequence != 0) sequence = places[sequence];
  }
  walk.descent.clear();
  std::fill(walk.open_batches.begin(), walk.open_batches.end(), nullptr);
}

// Whether a node reads columns of a batch. What crosses to a device as frames does not, nor what only counts.
bool Worker::reads_columns(size_t n) const {
  const PlanNode& node = plan_.nodes[n];
  switch (node.type) {
    case PlanNode::Type::kSegment:
      return !on_device(n) || !device_->crosses_as_frames(n);
    case PlanNode::Type::kSink:
      return drops_all_[node.elements[0]] && walk_->share->fates != nullptr;
    case PlanNode::Type::kHost:
    case PlanNode::Type::kPassed:
    case PlanNode::Type::kOrdered:
      break;
  }
  return true;
}

// False: the walk waits for a device.
bool Worker::run_nodes(Walk& walk) {
  while (true) {
    for (; walk.node < plan_.nodes.size(); ++walk.node) {
      const size_t n = walk.node;
      if (walk.waiting) {
        if (!device_->poll(n)) return false;
        walk.waiting = false;
        continue;
      }
      const PlanNode& node = plan_.nodes[n];
      Selection* inputs = walk.inputs(n);
      if (node.type == PlanNode::Type::kOrdered) {
        // Every batch comes here once, with packets or without.
        if (walk.round != 0 || !walk.at_root()) continue;
        const auto some = [](const Selection& packets) { return !packets.empty(); };
        if (!node.by_lengths && std::any_of(inputs, inputs + node.inputs, some)) walk.batch->fill();
        if (!run_ordered(node, inputs)) return false;
        continue;
      }
      if (walk.dirty[n] == 0) continue;
      walk.dirty[n] = 0;
      walk.again = true;
      if (reads_columns(n)) walk.batch->fill();
      if (walk.round >= kMaxRounds) {
        for (unsigned i = 0; i < node.inputs; ++i) {
          inputs[i].for_each(
              [&](uint32_t row) { cpu_.drop_row(node.elements[0], *walk.batch, row, DropReason::kLoop); });
          inputs[i].clear();
        }
        continue;
      }
      switch (node.type) {
        case PlanNode::Type::kSegment:
          if (on_device(n)) {
            if (device_->start(n, inputs)) {
              walk.waiting = true;
              return false;
            }
          } else {
            for (unsigned i = 0; i < node.inputs; ++i) cpu_.own_frames(node, inputs[i]);
            cpu_.run(node, inputs);
          }
          break;
        case PlanNode::Type::kHost:
          run_host(node, inputs);
          break;
        case PlanNode::Type::kSink:
          run_sink(node, inputs);
          break;
        case PlanNode::Type::kPassed:
          run_passed(node, inputs);
          break;
        case PlanNode::Type::kOrdered:
          break;
      }
    }
    if (!walk.again) return true;
    walk.again = false;
    walk.node = 0;
    ++walk.round;
  }
}

void Worker::run_host(const PlanNode& node, Selection* inputs) {
  const unsigned e = node.elements[0];
  Batch& batch = *walk_->batch;
  Context context(*this, node);
  for (unsigned input = 0; input < node.inputs; ++input) {
    const Selection packets = inputs[input];
    inputs[input].clear();
    const uint32_t count = packets.count();
    if (count == 0) continue;
    account_.arrive(e, count, batch.bytes(packets));
    router_.elements[e]->process(context, batch, packets, input);
  }
}

// What a node on the host sends by one of its exits; where that leads nowhere, the packets end here.
void Worker::leave(const PlanNode& node, size_t exit, const Selection& packets) {
  if (node.connects(exit)) {
    walk_->to(node.exits[exit]).merge(packets);
    return;
  }
  packets.for_each([&](uint32_t i) {
    const Batch& batch = *walk_->batch;
    cpu_.drop_row(node.elements[0], batch, i, reason_to_leave(batch.annotation(i).reason));
  });
}

// False: the batch waits for its turn.
bool Worker::run_ordered(const PlanNode& node, Selection* inputs) {
  OrderedPass& pass = *walk_->share->ordered;
  Batch& batch = *walk_->batch;
  const bool arrives = !walk_->arrived;
  if (arrives) {
    walk_->arrived = true;
    walk_->dirty[walk_->node] = 0;
    for (unsigned input = 1; input < node.inputs; ++input) {
      inputs[0].merge(inputs[input]);
      inputs[input].clear();
    }
    account_.arrive(node.elements[0], inputs[0].count(), batch.bytes(inputs[0]));
  }
  std::optional<Lengths> lengths;
  const LentRows* const rows = batch.unfilled();
  if (rows != nullptr && node.by_lengths) {
    const auto reads_paint = [](FieldMask live) { return (live & kFieldPaint) != 0; };
    lengths.emplace(*rows, batch.size(), walk_->share->brought,
                    std::any_of(node.live_out.begin(), node.live_out.end(), reads_paint));
  }
  Lengths* const by = lengths ? &*lengths : nullptr;
  if (arrives && node.writes_frames) cpu_.own_frames(node, inputs[0]);
  if (arrives) pass.prepare(node.ordered, batch, by, inputs[0]);
  if (!pass.pass(node.ordered, *walk_->snapshot, batch, by, inputs[0])) return false;
  walk_->arrived = false;
  Selection own = inputs[0];
  inputs[0].clear();
  for (size_t out = 0; out < pass.out(node.ordered).size(); ++out) {
    const Selection leaving = pass.out(node.ordered)[out].both(own);
    own.subtract(leaving);
    if (!leaving.empty()) leave(node, out, leaving);
  }
  leave(node, node.exits.size(), own);
  return true;
}

void Worker::run_passed(const PlanNode& node, Selection* inputs) {
  const Selection packets = inputs[0];
  inputs[0].clear();
  const uint64_t count = packets.count(), bytes = walk_->batch->bytes(packets);
  for (const unsigned e : node.elements) account_.arrive(e, count, bytes);
  walk_->share->passed[node.passed].merge(packets);
  leave(node, 0, packets);
}

void Worker::run_sink(const PlanNode& node, Selection* inputs) {
  const Batch& batch = *walk_->batch;
  JobShare& share = *walk_->share;
  const unsigned e = node.elements[0];
  for (unsigned input = 1; input < node.inputs; ++input) {
    inputs[0].merge(inputs[input]);
    inputs[input].clear();
  }
  const Selection packets = inputs[0];
  inputs[0].clear();
  account_.arrive(e, packets.count(), batch.bytes(packets));
  JobShare::Sent& sent = share.sent[sink_index_[e]];
  if (drops_all_[e]) {
    packets.for_each([&](uint32_t i) {
      const DropReason reason = batch.annotation(i).reason;
      cpu_.drop_row(e, batch, i, reason == DropReason::kNone ? DropReason::kDiscard : reason);
    });
    return;
  }
  if (walk_->at_root()) {
    sent.rows.merge(packets);
    return;
  }
  packets.for_each([&](uint32_t i) { sent.made.push_back(tx_record(batch, i, batch.name(i))); });
}

}  // namespace sluice
