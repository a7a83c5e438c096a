// host only
#include "exec/worker.h"

#include "base/prefetch.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// A packet may go round a cycle of the graph this often, and made packets may make packets this deep, before they are
// dropped.
constexpr unsigned kMaxRounds = 64;
constexpr unsigned kMaxGenerations = 8;
constexpr size_t kMaxChildren = 2048;
constexpr size_t kChildArena = size_t{1} << 20;
constexpr uint32_t kChildPackets = 256;

}  // namespace

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
  Context(Worker& worker, const PlanNode& node, JobShare& share, unsigned generation)
      : worker_(worker), node_(node), share_(share), generation_(generation), element_(node.elements[0]) {
    open_.fill(nullptr);
  }

  void forward(unsigned output, const Selection& packets) override {
    if (output < node_.exits.size() && node_.exits[output].node != ~0u) {
      worker_.deliver(node_.exits[output], packets);
    } else {
      worker_.drop(element_, DropReason::kUnconnectedOutput, packets.count());
    }
  }
  void drop(Batch&, uint32_t, DropReason reason) override { worker_.drop(element_, reason); }
  void lose(uint32_t count, DropReason reason) override {
    worker_.stats_.generated += count;
    worker_.drop(element_, reason, count);
  }

  Batch* spawn(unsigned output, size_t bytes) override {
    if (output >= open_.size() || output >= node_.exits.size() || node_.exits[output].node == ~0u) return nullptr;
    if (generation_ >= kMaxGenerations) return nullptr;
    Batch* batch = open_[output];
    if (batch != nullptr && batch->has_room(bytes)) return batch;
    if (batch != nullptr) finish(output);
    if (share_.child_count == share_.children.size()) {
      if (share_.children.size() == kMaxChildren) return nullptr;
      auto made = Batch::create(kChildPackets, kChildArena);
      if (!made) return nullptr;
      share_.children.push_back(std::make_unique<Batch>(std::move(*made)));
    }
    batch = share_.children[share_.child_count++].get();
    batch->clear();
    return open_[output] = batch;
  }

  void print(uint32_t order, std::string_view text) override {
    if (share_.print_count == share_.prints.size()) share_.prints.emplace_back();
    PrintRecord& record = share_.prints[share_.print_count];
    record.order = order;
    record.sequence = static_cast<uint32_t>(share_.print_count++);
    record.text.assign(text);
  }
  uint8_t limiter() const override { return worker_.limiter_[element_]; }
  Element::State* state() override { return worker_.states_[element_].get(); }
  unsigned worker() const override { return worker_.id_; }

  void finish_all() {
    for (unsigned out = 0; out < open_.size(); ++out) {
      if (open_[out] != nullptr) finish(out);
    }
  }

 private:
  void finish(unsigned output) {
    worker_.stats_.generated += open_[output]->size();
    worker_.queue_.push_back({open_[output], node_.exits[output], generation_ + 1});
    open_[output] = nullptr;
  }

  Worker& worker_;
  const PlanNode& node_;
  JobShare& share_;
  unsigned generation_;
  unsigned element_;
  std::array<Batch*, 64> open_;
};

Worker::Worker(const Plan& plan, const Router& router, unsigned id)
    : plan_(plan), router_(router), id_(id), tiles_{std::make_unique<Tile>(), std::make_unique<Tile>()} {
  stats_.elements.resize(router.elements.size());
  uint32_t inputs = 0;
  for (const PlanNode& node : plan.nodes) {
    first_input_.push_back(inputs);
    inputs += node.inputs;
  }
  pending_.resize(inputs);
  dirty_.resize(plan.nodes.size());
  states_.resize(router.elements.size());
  sink_index_.resize(router.elements.size());
  limiter_.resize(router.elements.size());
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    if (router.elements[e]->kind() == ElementKind::kHost) states_[e] = router.elements[e]->make_state();
  }
  for (uint32_t i = 0; i < plan.sinks.size(); ++i) sink_index_[plan.sinks[i]] = i;
  uint8_t limiter = 0;
  for (unsigned e : limited_elements(router)) limiter_[e] = ++limiter;
  queue_.reserve(64);
}

Worker::~Worker() = default;

void Worker::drop(unsigned element, DropReason reason, uint64_t count) {
  stats_.elements[element].drops[static_cast<size_t>(reason)] += count;
}

void Worker::deliver(const PlanTarget& target, const Selection& packets) {
  pending_[first_input_[target.node] + target.input].merge(packets);
  dirty_[target.node] = 1;
}

void Worker::run(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned source) {
  share.sent.resize(plan_.sinks.size());
  share.in_order.resize(plan_.sinks.size(), 1);
  uint64_t bytes = 0;
  const uint32_t packets = share.packets.count();
  share.packets.for_each([&](uint32_t i) { bytes += batch.data_length(i); });
  stats_.packets_in += packets;
  stats_.bytes_in += bytes;
  ElementCounters& at_source = stats_.elements[plan_.sources[source].element];
  at_source.packets += packets;
  at_source.bytes += bytes;
  ++stats_.batches;

  deliver(plan_.sources[source].target, share.packets);
  run_nodes(snapshot, batch, share, 0);
  for (size_t next = 0; next < queue_.size(); ++next) {
    const Child child = queue_[next];
    Selection all;
    all.fill(child.batch->size());
    deliver(child.target, all);
    run_nodes(snapshot, *child.batch, share, child.generation);
  }
  queue_.clear();
}

void Worker::run_nodes(const Snapshot& snapshot, Batch& batch, JobShare& share, unsigned generation) {
  bool again = true;
  for (unsigned round = 0; again; ++round) {
    again = false;
    for (size_t n = 0; n < plan_.nodes.size(); ++n) {
      if (dirty_[n] == 0) continue;
      dirty_[n] = 0;
      again = true;
      const PlanNode& node = plan_.nodes[n];
      Selection* inputs = &pending_[first_input_[n]];
      if (round >= kMaxRounds) {
        for (unsigned i = 0; i < node.inputs; ++i) {
          drop(node.elements[0], DropReason::kLoop, inputs[i].count());
          inputs[i].clear();
        }
        continue;
      }
      switch (node.type) {
        case PlanNode::Type::kSegment:
          run_segment(snapshot, node, batch, inputs);
          break;
        case PlanNode::Type::kHost:
          run_host(node, batch, share, inputs, generation);
          break;
        case PlanNode::Type::kSink:
          run_sink(node, batch, share, inputs);
          break;
      }
    }
  }
}

// Two tiles are under way at a time: while the front stages of one run (parsing, mostly), the table lines that the
// other will read are on their way from memory.
void Worker::run_segment(const Snapshot& snapshot, const PlanNode& node, Batch& batch, Selection* inputs) {
  const Program& program = snapshot.programs[node.program];
  const BatchView view = batch.view();
  const uint32_t words = (view.count + 63) / 64;
  uint32_t front = program.stage_count;
  for (uint32_t s = 0; s < front; ++s) {
    if (cpu_stage_prefetch(program.stages[s].kind) != nullptr) front = s;
  }
  Tile* filling = tiles_[0].get();
  Tile* waiting = nullptr;  // its front stages are done
  auto full = [&] {
    start_tile(*filling);
    run_stages(program, node, *filling, 0, front);
    if (front == program.stage_count) {
      finish_tile(node, view, *filling);
    } else {
      const uint32_t alive = filling->valid & ~filling->dead;
      for (uint32_t s = front; s < program.stage_count; ++s) {
        const StagePrefetch prefetch = cpu_stage_prefetch(program.stages[s].kind);
        if (prefetch != nullptr) prefetch(program.stages[s], *filling, alive);
      }
      if (waiting != nullptr) {
        run_stages(program, node, *waiting, front, program.stage_count);
        finish_tile(node, view, *waiting);
      }
      waiting = filling;
      filling = waiting == tiles_[0].get() ? tiles_[1].get() : tiles_[0].get();
    }
    filling->count = 0;
  };
  filling->count = 0;
  for (unsigned input = 0; input < node.inputs; ++input) {
    // Taken before it runs: a cycle may deliver to this very input.
    const Selection packets = inputs[input];
    inputs[input].clear();
    const uint8_t entry = node.entries[input];
    for (uint32_t w = 0; w < words; ++w) {
      for (uint64_t bits = packets.word(w); bits != 0; bits &= bits - 1) {
        const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        const uint32_t lane = filling->count++;
        filling->index[lane] = i;
        filling->path[lane] = entry;
        view.load(i, node.live_in, filling->packet[lane]);
        prefetch_read(filling->packet[lane].bytes());
        if (filling->count == Tile::kLanes) full();
      }
    }
    if (filling->count != 0) full();
  }
  if (waiting != nullptr) {
    run_stages(program, node, *waiting, front, program.stage_count);
    finish_tile(node, view, *waiting);
  }
}

void Worker::start_tile(Tile& tile) {
  std::fill(tile.path + tile.count, tile.path + Tile::kLanes, kPathDropped);
  tile.valid = tile.count == Tile::kLanes ? ~uint32_t{0} : (uint32_t{1} << tile.count) - 1;
  tile.dead = 0;
}

void Worker::run_stages(const Program& program, const PlanNode& node, Tile& tile, uint32_t begin, uint32_t end) {
  // Lengths are summed anew only where the lanes or the extents may have changed since the stage before.
  uint32_t counted_mask = 0;
  uint64_t counted_bytes = 0;
  for (uint32_t s = begin; s < end; ++s) {
    const uint32_t mask = tile.lanes_at(static_cast<uint8_t>(s));
    if (mask == 0) continue;
    const StageSlot& slot = program.stages[s];
    ElementCounters& counters = stats_.elements[slot.element];
    if (mask != counted_mask) {
      counted_bytes = 0;
      for_lanes(mask, [&](uint32_t i) { counted_bytes += tile.packet[i].length(); });
      counted_mask = mask;
    }
    counters.packets += static_cast<uint64_t>(std::popcount(mask));
    counters.bytes += counted_bytes;
    if (slot.moves_extent != 0) counted_mask = 0;
    cpu_stage_kernel(slot.kind)(slot, tile, mask, begin != 0);
    if (node.wide) {
      // Outputs are exits, one to one; PlanNode::exits says which are not connected.
      for_lanes(mask, [&](uint32_t i) {
        const uint8_t out = tile.output[i];
        tile.path[i] =
            out < node.exits.size() && node.exits[out].node != ~0u ? static_cast<uint8_t>(kPathExit) : kPathDropped;
      });
    } else {
      tile.advance(static_cast<uint8_t>(s), slot.next);
    }
    const uint32_t died = tile.lanes_at(kPathDropped) & tile.valid & ~tile.dead;
    if (died != 0) {
      for_lanes(died, [&](uint32_t i) {
        const DropReason reason = tile.packet[i].reason;
        ++counters.drops[static_cast<size_t>(reason == DropReason::kNone ? DropReason::kUnconnectedOutput : reason)];
      });
      tile.dead |= died;
    }
  }
}

// Writes the registers back and delivers the packets to their exits.
void Worker::finish_tile(const PlanNode& node, const BatchView& view, Tile& tile) {
  const uint32_t alive = tile.valid & ~tile.dead;
  if (alive == 0) return;
  for_lanes(alive, [&](uint32_t i) { view.store(tile.index[i], node.live_out, tile.packet[i]); });
  const uint8_t first = tile.path[std::countr_zero(alive)];
  if (!node.wide && (tile.lanes_at(first) & alive) == alive) {
    const PlanTarget target = node.exits[first - kPathExit];
    Selection& to = pending_[first_input_[target.node] + target.input];
    for_lanes(alive, [&](uint32_t i) { to.add(tile.index[i]); });
    dirty_[target.node] = 1;
    return;
  }
  for_lanes(alive, [&](uint32_t i) {
    const PlanTarget target = node.exits[node.wide ? tile.output[i] : tile.path[i] - kPathExit];
    pending_[first_input_[target.node] + target.input].add(tile.index[i]);
    dirty_[target.node] = 1;
  });
}

void Worker::run_host(const PlanNode& node, Batch& batch, JobShare& share, Selection* inputs, unsigned generation) {
  const unsigned e = node.elements[0];
  Context context(*this, node, share, generation);
  for (unsigned input = 0; input < node.inputs; ++input) {
    const Selection packets = inputs[input];
    inputs[input].clear();
    const uint32_t count = packets.count();
    if (count == 0) continue;
    ElementCounters& counters = stats_.elements[e];
    counters.packets += count;
    packets.for_each([&](uint32_t i) { counters.bytes += batch.data_length(i); });
    router_.elements[e]->process(context, batch, packets, input);
  }
  context.finish_all();
}

void Worker::run_sink(const PlanNode& node, Batch& batch, JobShare& share, Selection* inputs) {
  const unsigned e = node.elements[0];
  for (unsigned input = 1; input < node.inputs; ++input) {
    inputs[0].merge(inputs[input]);
    inputs[input].clear();
  }
  const Selection packets = inputs[0];
  inputs[0].clear();
  ElementCounters& counters = stats_.elements[e];
  const bool drops = router_.elements[e]->port().type == PortSpec::Type::kNull;
  std::vector<TxRecord>& sent = share.sent[sink_index_[e]];
  if (drops) {
    packets.for_each([&](uint32_t i) {
      ++counters.packets;
      counters.bytes += batch.data_length(i);
      const DropReason reason = batch.annotation(i).reason;
      ++counters.drops[static_cast<size_t>(reason == DropReason::kNone ? DropReason::kDiscard : reason)];
    });
    return;
  }
  const size_t before = sent.size();
  const uint32_t count = packets.count();
  uint64_t bytes = 0;
  uint32_t sequence = static_cast<uint32_t>(before);
  uint32_t last = before != 0 ? sent.back().order : 0;
  bool in_order = true;
  sent.resize(before + count);
  TxRecord* to = sent.data() + before;
  packets.for_each([&](uint32_t i) {
    const Extent& extent = batch.extent(i);
    const uint32_t length = batch.data_length(i);
    const Annotation& a = batch.annotation(i);
    const uint32_t order = batch.order(i);
    in_order &= order >= last;
    last = order;
    bytes += length;
    *to++ = {batch.frame(i) + extent.data,
             batch.timestamp_ns(i),
             length,
             extent.wire_end - static_cast<uint32_t>(extent.data),
             order,
             sequence++,
             a.port,
             a.limiter};
  });
  if (!in_order) share.in_order[sink_index_[e]] = 0;
  counters.packets += count;
  counters.bytes += bytes;
}

}  // namespace sluice
