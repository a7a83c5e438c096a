// host only
// The way of packets from node to node.
#include <chrono>

#include "exec/scheduler/node.h"

namespace sluice {
namespace {

// Elements that hand a packet on to each other without a queue between them: more is a cycle.
constexpr unsigned kMaxDepth = 1000;
// Packets that one question may cost whose answer is dropped or goes elsewhere on the way.
constexpr unsigned kMaxTries = 64;
constexpr uint32_t kSinkBurst = 8;

uint64_t wall_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

}  // namespace

void Scheduler::Node::push(unsigned output, PacketBox packet) {
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

PacketBox Scheduler::Node::pull(unsigned input) {
  if (input >= inputs_.size() || inputs_[input].empty() || !inputs_[input][0].pull) return nullptr;
  if (impl_.depth >= kMaxDepth) return nullptr;
  ++impl_.depth;
  const Link& from = inputs_[input][0];
  PacketBox packet = impl_.nodes[from.node]->give(from.port);
  --impl_.depth;
  if (packet != nullptr) count(*packet);
  return packet;
}

PacketBox Scheduler::Node::bring(size_t bytes) {
  PacketBox packet = impl_.pool.make(bytes);
  if (packet == nullptr) return nullptr;
  packet->timestamp_ns = impl_.simulated() ? impl_.simulated_ns : wall_ns();
  came_in(bytes);
  return packet;
}
void Scheduler::Node::receive(unsigned input, PacketBox packet) {
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

PacketBox Scheduler::Node::give(unsigned output) {
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

unsigned Scheduler::Node::stage(FlowPacket& packet) {
  Tile& tile = impl_.tile;
  tile.packet[0] = packet.registers;
  kernel_(slot_, tile, 1, false);
  packet.registers = tile.packet[0];
  return tile.output[0];
}

void Scheduler::Node::sink(PacketBox packet) {
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

PacketBox Scheduler::Node::next() {
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

bool Scheduler::Node::task() {
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

}  // namespace sluice
