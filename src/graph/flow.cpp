// host only
#include "graph/flow.h"

#include <cstring>
#include <new>

namespace sluice {

void ReturnToPool::operator()(FlowPacket* packet) const {
  FlowPool& pool = *packet->pool_;
  --pool.live_;
  if (pool.free_.size() < FlowPool::kKept) {
    pool.free_.emplace_back(packet);
  } else {
    delete packet;
  }
  if (pool.let_go_ && pool.live_ == 0) delete &pool;
}

void FlowPool::LetGo::operator()(FlowPool* pool) const {
  pool->let_go_ = true;
  if (pool->live_ == 0) delete pool;
}

PacketBox FlowPool::make(size_t bytes) {
  // With what the allocator adds an odd number of lines, so that packets do not fall into the same sets of a cache.
  constexpr size_t kUsual = 2096;
  const size_t need = kHeadroom + bytes + kTailroom;
  std::unique_ptr<FlowPacket> packet;
  if (!free_.empty()) {
    packet = std::move(free_.back());
    free_.pop_back();
  } else {
    packet.reset(new (std::nothrow) FlowPacket);
    if (packet == nullptr) return nullptr;
    packet->pool_ = this;
  }
  if (packet->bytes_ < need) {
    const size_t size = need < kUsual ? kUsual : need;
    packet->storage_.reset(new (std::nothrow) uint8_t[size]());
    packet->bytes_ = packet->storage_ == nullptr ? 0 : size;
    if (packet->storage_ == nullptr) return nullptr;
  }
  // Other packets' bytes must not show in front of this one's.
  std::memset(packet->storage_.get(), 0, kHeadroom);
  packet->registers = Packet{};
  packet->generation = 0;
  packet->input = FlowPacket::kNoInput;
  packet->registers.frame = packet->storage_.get() + kHeadroom;
  packet->registers.end = packet->registers.wire_end = static_cast<uint32_t>(bytes);
  packet->timestamp_ns = 0;
  ++live_;
  return PacketBox(packet.release());
}

PacketBox FlowPool::clone(const FlowPacket& from) {
  PacketBox copy = make(from.registers.end);
  if (copy == nullptr) return nullptr;
  uint8_t* frame = copy->registers.frame;
  copy->registers = from.registers;
  copy->registers.frame = frame;
  copy->timestamp_ns = from.timestamp_ns;
  copy->generation = from.generation;
  std::memcpy(frame - kHeadroom, from.registers.frame - kHeadroom, kHeadroom + from.registers.end);
  return copy;
}

}  // namespace sluice
