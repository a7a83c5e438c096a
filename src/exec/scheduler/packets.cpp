// host only
// The way of packets from node to node.
#include <cerrno>

#include "exec/scheduler/node.h"

namespace sluice {
namespace {

// Packets that one question may cost whose answer is dropped or goes elsewhere on the way.
constexpr unsigned kMaxTries = 64;
constexpr uint32_t kSinkBurst = 8;

}  // namespace

void Scheduler::Node::push(unsigned output, PacketBox packet) {
  if (!pushes(output)) {
    const DropReason reason = reason_to_leave(packet->registers.reason);
    drop(std::move(packet), reason);
    return;
  }
  if (impl_.depth >= kMaxDepth) {
    drop(std::move(packet), DropReason::kLoop);
    return;
  }
  impl_.hand(push_to_[output], std::move(packet));
}

PacketBox Scheduler::Node::pull(unsigned input) {
  if (input >= pull_from_.size() || pull_from_[input].node == nullptr || impl_.depth >= kMaxDepth) return nullptr;
  ++impl_.depth;
  const Place& from = pull_from_[input];
  PacketBox packet = from.node->give(from.port);
  --impl_.depth;
  if (packet != nullptr) count(*packet);
  return packet;
}

PacketBox Scheduler::Node::bring(std::span<const uint8_t> frame) {
  if (impl_.account.stats.packets_in >= impl_.options.max_packets) {
    if (!impl_.limit_told) stop();
    impl_.limit_told = true;
    return nullptr;
  }
  PacketBox packet = impl_.pool.make(frame.size());
  if (packet == nullptr) return nullptr;
  packet->timestamp_ns = impl_.simulated() ? impl_.simulated_ns : wall_ns();
  std::memcpy(packet->registers.frame, frame.data(), frame.size());
  came_in(frame);
  return packet;
}
void Scheduler::Node::receive(unsigned input, PacketBox packet) {
  if (input != kNobody) count(*packet);
  if (flow_ != nullptr) {
    flow_->push(*this, input, std::move(packet));
    return;
  }
  switch (kind_) {
    case ElementKind::kSink:
      impl_.sink(*this, {&packet, 1});
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
  if (kind_ == ElementKind::kSource) return next();
  for (unsigned tries = 0; tries < kMaxTries; ++tries) {
    PacketBox packet = pull(0);
    if (packet == nullptr) return nullptr;
    if (kind_ == ElementKind::kHost) {
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
  const auto of = [&](uint32_t) -> const FlowPacket& { return packet; };
  impl_.account.decide(index_, 1, FlowLanes{&packet.registers, of});
  return tile.output[0];
}

bool Scheduler::Node::more() {
  if (source_done_) return false;
  const uint64_t most = impl_.options.max_packets - std::min(impl_.options.max_packets, impl_.account.stats.packets_in);
  if (row_ == batch_->size() && most != 0) {
    const bool live = source_->live();
    if (live) give_back();
    // The end was asked for: what has come leaves, and nothing more comes in.
    if (impl_.drained_ns != 0) return false;
    if (live) {
      batch_->set_limit(static_cast<uint32_t>(std::min<uint64_t>(most, batch_->capacity())));
    } else if (!source_->ready()) {
      impl_.flush();
    }
    row_ = 0;
    if (auto ok = source_->read(*batch_); !ok.ok()) {
      batch_->clear();
      impl_.fail_input(std::move(ok).error());
    }
    if (live && batch_->size() == 0) return false;
    if (live) impl_.sleep.came();
  }
  source_done_ = most == 0 || batch_->size() == 0;
  if (source_done_ && element_.port().stop_when_done) stop();
  return !source_done_;
}

void Scheduler::Node::give_back() {
  FramePool* const pool = source_ != nullptr ? source_->lends() : nullptr;
  if (pool == nullptr || batch_->size() == 0) return;
  Selection rows;
  rows.fill(batch_->size());
  rows.subtract(taken_);
  std::vector<uint8_t*>& frames = impl_.frames_back;
  frames.clear();
  rows.for_each([&](uint32_t i) { frames.push_back(batch_->frame(i)); });
  pool->give(frames);
  taken_.clear();
  batch_->clear();
  row_ = 0;
}

Scheduler::Node::Left Scheduler::Node::take_left(Account& account) {
  Left left;
  if (source_ == nullptr || !source_->live()) return left;
  for (; row_ < batch_->size(); ++row_) {
    ++left.packets;
    left.bytes += batch_->data_length(row_);
    account.come_in(batch_->arrived(row_));
  }
  return left;
}

PacketBox Scheduler::Node::next() {
  if (!more() || !comes(batch_->timestamp_ns(row_))) return nullptr;
  PacketBox packet = impl_.pool.make(batch_->extent(row_).end);
  if (packet == nullptr) {
    impl_.fail(system_error("packets", ENOMEM));
    return nullptr;
  }
  load(row_++, packet->registers.frame, packet->registers);
  packet->timestamp_ns = batch_->timestamp_ns(row_ - 1);
  packet->input = input_;
  came_in(batch_->arrived(row_ - 1));
  return packet;
}

void Scheduler::Node::load(uint32_t row, uint8_t* frame, Packet& packet) {
  batch_->view().load(row, ~FieldMask{0}, packet);
  std::memcpy(frame, packet.frame, packet.end);
  packet.frame = frame;
}

bool Scheduler::Node::task() {
  if (flow_ != nullptr) return flow_->task(*this);
  if (source_ != nullptr) {
    // Sources take the turns that they take in the engine, unless queues are to be filled by and by.
    if (passage_ != kNobody && run_through()) return true;
    uint32_t turn = impl_.packet_time() ? source_turn(element_.port()) : 1;
    for (; turn != 0 && !impl_.ended; --turn) {
      // What comes by an interface comes: full queues drop it.
      if (!source_->live() && full_below(0)) return false;
      if (runs_ahead_ && !impl_.records_rules) {
        if (!more() || !comes(batch_->timestamp_ns(row_)) || !run_ahead()) return false;
        hand_on_ahead();
        continue;
      }
      PacketBox packet = next();
      if (packet == nullptr) return false;
      push(0, std::move(packet));
    }
    return true;
  }
  bool some = false;
  if (kind_ != ElementKind::kSink) return false;
  for (unsigned n = 0; n < kSinkBurst; ++n) {
    PacketBox packet = pull(0);
    if (packet == nullptr) break;
    impl_.hand({this, kNobody}, std::move(packet));
    some = true;
  }
  return some;
}

}  // namespace sluice
