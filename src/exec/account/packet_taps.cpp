// host only
#include "exec/account/packet_taps.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/clock.h"
#include "exec/engine/snapshot.h"
#include "net/parse.h"

namespace sluice {

bool FollowedPacket::left() const {
  return std::any_of(ends.begin(), ends.end(), [](const End& end) { return end.reason == DropReason::kNone; });
}
DropReason FollowedPacket::why() const {
  if (fate.reason != DropReason::kNone || ends.empty() || left()) return fate.reason;
  return ends.front().reason;
}

bool TapOrder::matches(const FlowKey& key) const {
  return filter_.empty() || (key.family != 0 && std::any_of(filter_.begin(), filter_.end(), [&](const AclMatchRule& r) {
                               return sluice::matches(r, key);
                             }));
}

bool TapOrder::wants(const FollowedPacket& packet) const {
  if (!wish_.dropped && wish_.dropped_at.empty()) return true;
  const auto by = [&](DropReason reason, const std::string& element) {
    return reason != DropReason::kNone && (wish_.dropped_at.empty() || wish_.dropped_at == element);
  };
  return by(packet.fate.reason, packet.element) ||
         std::any_of(packet.ends.begin(), packet.ends.end(),
                     [&](const FollowedPacket::End& end) { return by(end.reason, end.element); });
}

uint64_t TapOrder::left() const {
  return static_cast<uint64_t>(std::max<int64_t>(0, left_.load(std::memory_order_relaxed)));
}

// `left_` comes to 0 only by packets that have room: whoever sees that ends the order.
TapOrder::Claim TapOrder::claim(size_t bytes) {
  if (left() == 0) return Claim::kFull;
  const int64_t need = cost(bytes);
  if (room_.fetch_sub(need, std::memory_order_relaxed) < need) {
    room_.fetch_add(need, std::memory_order_relaxed);
    missed_.fetch_add(1, std::memory_order_relaxed);
    return Claim::kNoRoom;
  }
  if (left_.fetch_sub(1, std::memory_order_relaxed) <= 0) {
    left_.fetch_add(1, std::memory_order_relaxed);
    room_.fetch_add(need, std::memory_order_relaxed);
    return Claim::kFull;
  }
  followed_.fetch_add(1, std::memory_order_relaxed);
  on_their_way_.fetch_add(1, std::memory_order_relaxed);
  return Claim::kYes;
}

void TapOrder::put(std::shared_ptr<const FollowedPacket> packet) {
  if (wants(*packet)) {
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(packet));
  } else {
    give_back(packet->frame.size());
  }
  on_their_way_.fetch_sub(1, std::memory_order_release);
}

// No memory for one that was claimed.
void TapOrder::lose(size_t frame_bytes) {
  missed_.fetch_add(1, std::memory_order_relaxed);
  give_back(frame_bytes);
  on_their_way_.fetch_sub(1, std::memory_order_release);
}

std::vector<std::shared_ptr<const FollowedPacket>> TapOrder::take_with_room() {
  std::vector<std::shared_ptr<const FollowedPacket>> taken;
  const std::lock_guard lock(mutex_);
  taken.swap(done_);
  return taken;
}

std::vector<std::shared_ptr<const FollowedPacket>> TapOrder::take() {
  auto taken = take_with_room();
  for (const auto& packet : taken) give_back(packet->frame.size());
  return taken;
}

std::shared_ptr<TapOrder> PacketTaps::start(Tap tap, std::vector<AclMatchRule> filter, uint64_t packets,
                                            size_t room_bytes, TapWish wish) {
  auto order = std::make_shared<TapOrder>(std::move(filter), packets, room_bytes, std::move(wish));
  const std::lock_guard lock(mutex_);
  orders_[static_cast<size_t>(tap)] = order;
  armed_.fetch_or(1u << static_cast<unsigned>(tap), std::memory_order_relaxed);
  return order;
}

void PacketTaps::stop(Tap tap) {
  const std::lock_guard lock(mutex_);
  orders_[static_cast<size_t>(tap)].reset();
  armed_.fetch_and(~(1u << static_cast<unsigned>(tap)), std::memory_order_relaxed);
}

// It has what it asked for; unless there is another one by now.
void PacketTaps::ended(size_t tap, const TapOrder* order) {
  const std::lock_guard lock(mutex_);
  if (orders_[tap].get() != order) return;
  orders_[tap].reset();
  armed_.fetch_and(~(1u << tap), std::memory_order_relaxed);
}

// More than two generations would keep a table that is patched from having a free replica.
std::shared_ptr<const TableSet> PacketTaps::tables_of(const Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  Kept* free = nullptr;
  for (Kept& kept : kept_) {
    auto tables = kept.tables.lock();
    if (tables == nullptr) {
      free = &kept;
    } else if (kept.generation == snapshot.generation) {
      return tables;
    }
  }
  if (free == nullptr) return nullptr;
  auto tables = std::make_shared<const TableSet>(snapshot.tables);
  *free = {snapshot.generation, tables};
  return tables;
}

void PacketTaps::receive(const Batch& batch, const Snapshot& snapshot, std::string_view input,
                         std::vector<FollowedRow>& rows) {
  std::array<std::shared_ptr<TapOrder>, kTaps> orders;
  {
    const std::lock_guard lock(mutex_);
    orders = orders_;
  }
  for (size_t t = 0; t < kTaps; ++t) {
    if (orders[t] == nullptr || !orders[t]->leased() || !orders[t]->expired(now_ns())) continue;
    ended(t, orders[t].get());
    orders[t].reset();
  }
  std::array<bool, kTaps> full{};
  std::shared_ptr<const TableSet> tables;
  for (uint32_t i = 0; i < batch.size(); ++i) {
    const Extent& extent = batch.extent(i);
    const uint8_t* const frame = batch.frame(i) + extent.data;
    const uint32_t captured = batch.data_length(i), kept = std::min(captured, FollowedPacket::kMostBytes);
    const uint32_t wire = extent.wire_end - static_cast<uint32_t>(extent.data);
    Headers headers;
    (void)parse_ethernet(frame, captured, wire, headers);
    std::array<TapOrder*, kTaps> takes{};
    bool any = false;
    for (size_t t = 0; t < kTaps; ++t) {
      if (orders[t] == nullptr || full[t] || !orders[t]->matches(headers.key)) continue;
      const TapOrder::Claim claim = orders[t]->claim(kept);
      full[t] = claim == TapOrder::Claim::kFull;
      if (claim == TapOrder::Claim::kYes) takes[t] = orders[t].get();
      any |= claim == TapOrder::Claim::kYes;
    }
    if (!any) continue;
    try {
      auto packet = std::make_shared<FollowedPacket>();
      packet->timestamp_ns = batch.timestamp_ns(i);
      packet->input = input;
      packet->wire_bytes = wire;
      packet->frame.assign(frame, frame + kept);
      packet->generation = snapshot.generation;
      if (tables == nullptr) tables = tables_of(snapshot);
      packet->tables = tables;
      FollowedRow row{i, 0, 0, packet};
      {
        const std::lock_guard lock(mutex_);
        packet->number = ++numbers_;
        if (++ids_ == 0) ++ids_;
        row.id = ids_;
      }
      rows.push_back(std::move(row));
      for (size_t t = 0; t < kTaps; ++t) {
        if (takes[t] != nullptr) packet->orders[t] = orders[t];
      }
    } catch (const std::bad_alloc&) {
      for (TapOrder* const order : takes) {
        if (order == nullptr) continue;
        order->lose(kept);
      }
    }
  }
  for (size_t t = 0; t < kTaps; ++t) {
    if (orders[t] != nullptr && orders[t]->left() == 0) ended(t, orders[t].get());
  }
}

void PacketTaps::finish(std::shared_ptr<FollowedPacket> packet) {
  // Who has it once it is given away may read it: its orders are taken out first.
  const auto orders = std::move(packet->orders);
  packet->orders = {};
  for (const auto& order : orders) {
    if (order == nullptr) continue;
    try {
      order->put(packet);
    } catch (const std::bad_alloc&) {
      order->lose(packet->frame.size());
    }
  }
}

}  // namespace sluice
