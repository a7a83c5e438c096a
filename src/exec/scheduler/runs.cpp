// host only
// Runs of packets: stages over many packets at a time, and what is put off until somebody looks.
#include <cerrno>
#include <cstring>

#include "exec/scheduler/node.h"

namespace sluice {
namespace {

constexpr size_t kMostRunStages = 240;  // paths of a tile are bytes

}  // namespace

// Which nodes allow it: known from the connections alone.
void Scheduler::Impl::plan_runs() {
  // A packet that runs into a circle is dropped once it has passed kMaxDepth nodes: no run of stages is that long.
  if (options.one_by_one || nodes.size() >= kMaxDepth) return;

  // Later: sinks, and what leads to nothing but such nodes. Lines of elements that print have an order among them:
  // those come later only if all do.
  enum class Known : uint8_t { kNothing, kOpen, kNo, kYes };
  std::vector<Known> known;
  const auto takes_runs = [](const Node& node) {
    return node.kind_ == ElementKind::kStage && (node.flow_ == nullptr || node.flow_->counted(0, 0));
  };
  const auto find_later = [&](bool hosts) {
    known.assign(nodes.size(), Known::kNothing);
    const auto later = [&](auto&& self, Node& node) -> bool {
      Known& is = known[node.index_];
      if (is != Known::kNothing) return is == Known::kYes;
      is = Known::kOpen;
      bool yes = node.kind_ == ElementKind::kSink ? node.flow_ == nullptr
                                                  : takes_runs(node) || (hosts && node.kind_ == ElementKind::kHost &&
                                                                         node.flow_ == nullptr && !node.pulls_input());
      for (const auto& port : node.outputs_) {
        for (const Node::Link& link : port) yes = yes && !link.pull && self(self, *nodes[link.node]);
      }
      is = yes ? Known::kYes : Known::kNo;
      return yes;
    };
    bool all_hosts = true;
    for (auto& node : nodes) {
      node->later_ = later(later, *node);
      all_hosts &= node->later_ || node->kind_ != ElementKind::kHost;
    }
    return all_hosts;
  };
  if (!find_later(true)) find_later(false);

  // Stages that take runs, in topological order; those in a circle and behind one do not.
  std::vector<unsigned> missing(nodes.size());
  const auto each_next = [&](const Node& node, auto&& f) {
    for (const Place& to : node.push_to_) {
      if (to.node != nullptr && takes_runs(*to.node)) f(*to.node);
    }
  };
  for (auto& node : nodes) {
    if (takes_runs(*node)) each_next(*node, [&](const Node& next) { ++missing[next.index_]; });
  }
  std::vector<Node*> ready;
  for (auto& node : nodes) {
    if (takes_runs(*node) && missing[node->index_] == 0) ready.push_back(node.get());
  }
  for (size_t i = 0; i < ready.size() && run_stages_.size() < kMostRunStages; ++i) {
    Node& node = *ready[i];
    node.run_stage_ = static_cast<uint8_t>(run_stages_.size());
    run_stages_.push_back({&node, node.flow_ != nullptr, node.push_to_, {}});
    each_next(node, [&](const Node& next) {
      if (--missing[next.index_] == 0) ready.push_back(nodes[next.index_].get());
    });
  }
  for (RunStage& stage : run_stages_) {
    for (const Place& to : stage.next) stage.path.push_back(to.node == nullptr ? kNoStage : to.node->run_stage_);
  }

  for (auto& node : nodes) {
    if (node->kind_ != ElementKind::kSource || node->flow_ != nullptr || !node->pushes(0)) continue;
    const Node& first = *node->push_to_[0].node;
    node->runs_ahead_ = first.run_stage_ != kNoStage && !first.later_;
    if (!node->runs_ahead_) continue;
    node->ahead_.resize(Tile::kLanes);
    ahead_.push_back(node.get());
  }
  if (!packet_clock()) plan_passages();
}

void Scheduler::Impl::run_stages(uint32_t n, Place* left, unsigned* hops, uint64_t sign) {
  Tile& t = run_tile;
  std::memset(t.path + n, kNoStage, Tile::kLanes - n);
  uint64_t open[4] = {};  // stages that packets stand before
  for (uint32_t i = 0; i < n; ++i) {
    hops[i] = 0;
    if (t.path[i] != kNoStage) open[t.path[i] / 64] |= uint64_t{1} << t.path[i] % 64;
  }
  for (unsigned word = 0; word < 4; ++word) {
    while (open[word] != 0) {
      const unsigned bit = static_cast<unsigned>(std::countr_zero(open[word]));
      open[word] &= open[word] - 1;
      const auto path = static_cast<uint8_t>(word * 64 + bit);
      const RunStage& stage = run_stages_[path];
      const uint32_t mask = t.lanes_at(path);
      uint64_t bytes = 0;
      for_lanes(mask, [&](uint32_t i) { bytes += t.packet[i].length(); });
      if (stage.counts) stage.node->flow_->counted(sign * static_cast<uint64_t>(std::popcount(mask)), sign * bytes);
      stage.node->kernel_(stage.node->slot_, t, mask, false);
      uint32_t dropped = 0;
      for_lanes(mask, [&](uint32_t i) {
        const unsigned output = t.output[i];
        ++hops[i];
        if (output < stage.next.size() && stage.next[output].node != nullptr) {
          left[i] = stage.next[output];
          const uint8_t next = t.path[i] = stage.path[output];
          if (next != kNoStage) open[next / 64] |= uint64_t{1} << next % 64;
          return;
        }
        left[i] = {};
        t.path[i] = kNoStage;
        dropped |= uint32_t{1} << i;
      });
      // Where packets are recorded no source runs ahead: these are the packets that were put off.
      const auto of = [&](uint32_t i) -> const FlowPacket& { return *waiting[i]; };
      account.stage(stage.node->index_, mask, bytes, dropped, FlowLanes{t.packet, of}, sign);
    }
  }
}

// -- later -----------------------------------------------------------------------------------------------------------

void Scheduler::Impl::hand_over() {
  if (n_waiting == 0 || handing_over) return;
  if (follows) {
    for (uint32_t i = 0; i < n_waiting; ++i) at_start.emplace_back(waiting_for[i], std::move(waiting[i]));
    n_waiting = 0;
    return;
  }
  handing_over = true;
  const uint32_t n = n_waiting;
  Place* left = waiting_for;
  uint32_t ran = 0;
  for (uint32_t i = 0; i < n; ++i) {
    run_tile.path[i] = left[i].node->run_stage_;
    if (run_tile.path[i] == kNoStage) continue;
    ran |= 1u << i;
    run_tile.packet[i] = waiting[i]->registers;
  }
  if (ran != 0) {
    unsigned hops[Tile::kLanes];
    run_stages(n, left, hops, 1);
    for_lanes(ran, [&](uint32_t i) {
      if (left[i].node == nullptr) {
        waiting[i].reset();
      } else {
        waiting[i]->registers = run_tile.packet[i];
      }
    });
  }
  for (uint32_t i = 0; i < n;) {
    if (waiting[i] == nullptr) {
      ++i;
      continue;
    }
    Node& to = *left[i].node;
    if (to.kind_ != ElementKind::kSink) {
      to.receive(left[i].port, std::move(waiting[i]));
      ++i;
      continue;
    }
    const uint32_t first = i;
    for (; i < n && (waiting[i] == nullptr || left[i].node == &to); ++i) {
      if (waiting[i] != nullptr && left[i].port != kNobody) to.count(*waiting[i]);
    }
    sink(to, {waiting + first, i - first});
  }
  n_waiting = 0;
  handing_over = false;
}

void Scheduler::Impl::sink(Node& node, std::span<PacketBox> packets) {
  if (follows) {
    for (PacketBox& packet : packets) at_start.emplace_back(Place{&node, kNobody}, std::move(packet));
    return;
  }
  if (egress->drops(node.sink_)) {
    for (PacketBox& packet : packets) {
      if (packet == nullptr) continue;
      const DropReason reason = packet->registers.reason;
      account.drop(node.index_, reason == DropReason::kNone ? DropReason::kDiscard : reason);
      packet.reset();
    }
    return;
  }
  records.clear();
  for (const PacketBox& packet : packets) {
    if (packet == nullptr) continue;
    const Packet& p = packet->registers;
    records.push_back({p.bytes(), packet->timestamp_ns, p.length(), p.wire_length(), 0, 0, p.port, p.limiter, p.mark});
  }
  egress->take(node.sink_, records);
  if (egress->failed()) ended = true;
  for (PacketBox& packet : packets) packet.reset();
}

// -- ahead -----------------------------------------------------------------------------------------------------------

bool Scheduler::Node::run_ahead() {
  if (ahead_at_ != ahead_end_) return true;
  if (ahead_end_ == window_) window_ = std::min(2 * window_, Tile::kLanes);
  const uint32_t most = std::min(window_, batch_->size() - row_);
  Tile& tile = impl_.run_tile;
  Place left[Tile::kLanes];
  unsigned hops[Tile::kLanes];
  uint32_t n = 0;
  for (; n < most; ++n) {
    PacketBox packet = impl_.pool.make(batch_->extent(row_ + n).end);
    if (packet == nullptr) break;
    load(row_ + n, packet->registers.frame, tile.packet[n]);
    packet->timestamp_ns = batch_->timestamp_ns(row_ + n);
    packet->input = input_;
    tile.path[n] = push_to_[0].node->run_stage_;
    ahead_[n].packet = std::move(packet);
  }
  ahead_at_ = 0;
  ahead_end_ = n;
  if (n == 0) {
    impl_.fail(system_error("packets", ENOMEM));
    return false;
  }
  impl_.run_stages(n, left, hops, 1);
  for (uint32_t i = 0; i < n; ++i) {
    ahead_[i].to = left[i];
    ahead_[i].hops = hops[i];
    if (left[i].node != nullptr) ahead_[i].packet->registers = tile.packet[i];
  }
  return true;
}

void Scheduler::Node::hand_on_ahead() {
  Ahead& next = ahead_[ahead_at_++];
  const Place to = next.to;
  const unsigned hops = next.hops;
  PacketBox packet = std::move(next.packet);
  const uint32_t row = row_++;
  came_in(batch_->arrived(row));
  if (to.node == nullptr) return;
  impl_.depth += hops;
  impl_.hand(to, std::move(packet));
  impl_.depth -= hops;
}

// The packets are as they were read in batch_: the same stages give them the same counts, which are taken back.
void Scheduler::Node::take_back() {
  const uint32_t n = ahead_end_ - ahead_at_;
  if (n == 0) return;
  Tile& tile = impl_.run_tile;
  Place left[Tile::kLanes];
  unsigned hops[Tile::kLanes];
  for (uint32_t i = 0; i < n; ++i) {
    uint8_t* frame = ahead_[ahead_at_ + i].packet->registers.frame;
    std::memset(frame - kHeadroom, 0, kHeadroom);
    load(row_ + i, frame, tile.packet[i]);
    tile.path[i] = push_to_[0].node->run_stage_;
  }
  impl_.run_stages(n, left, hops, ~uint64_t{0});
  for (uint32_t i = 0; i < n; ++i) ahead_[ahead_at_ + i].packet.reset();
  window_ = std::max(ahead_at_, 1u);
  ahead_at_ = ahead_end_ = 0;
}

void Scheduler::Impl::settle() {
  hand_over();
  for (Node* source : ahead_) source->take_back();
}

}  // namespace sluice
