// host only
// Packets that somebody follows through a run: each copied as it was received, with what became of it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "batch/batch.h"
#include "batch/drop_reason.h"
#include "exec/account/counters.h"
#include "graph/table_set.h"
#include "tables/acl/rule_set.h"

namespace sluice {

struct Snapshot;
class TapOrder;

// Who follows packets. Each has one order at a time.
enum class Tap : uint8_t { kTrace, kCapture };
inline constexpr size_t kTaps = 2;

struct FollowedPacket {
  // What became of it at a sink. A packet that goes to several has several.
  struct End {
    std::string element;
    uint16_t port = 0;                      // of the adjacency
    DropReason reason = DropReason::kNone;  // kNone: it left
  };
  uint64_t number = 0;  // in the order in which packets were followed, from 1
  uint64_t timestamp_ns = 0;
  std::string input;  // the source element
  uint32_t wire_bytes = 0;
  std::vector<uint8_t> frame;  // as received; at most kMostBytes
  uint64_t generation = 0;
  std::shared_ptr<const TableSet> tables;  // that it met; nullptr: they are not kept
  unsigned worker = 0;
  bool on_device = false;  // a device looked it up
  // Rule and next hop at its end. `element` and `reason` say where and why it was dropped before a sink; reason kNone:
  // it came to sinks (`ends`), or an element made others of it.
  PacketFate fate;
  std::string element;
  std::vector<End> ends;
  uint32_t open = 0;                                    // sinks that have not said yet
  std::array<std::shared_ptr<TapOrder>, kTaps> orders;  // nullptr: not for this tap

  static constexpr uint32_t kMostBytes = 16384;
  // Whether it left anywhere, and else why not.
  bool left() const;
  DropReason why() const;
};

// A row of a batch that is followed.
struct FollowedRow {
  uint32_t row = 0;
  uint32_t id = 0;      // of TxRecord::followed
  uint32_t places = 0;  // sinks that it came to
  std::shared_ptr<FollowedPacket> packet;
};

// Which of the packets that match a tap keeps once their fate is known, and what they cost.
struct TapWish {
  bool dropped = false;         // only those that were dropped somewhere
  std::string dropped_at;       // only those that this element or sink dropped; empty: any
  size_t each_bytes = 0;        // of room that a packet takes besides its frame
  uint64_t lease_until_ns = 0;  // of now_ns(): the order ends there unless it is renewed; 0: it does not end
};

// What a tap asks for, and the packets that are through.
class TapOrder {
 public:
  // `filter`: the rules of which one has to match; empty: all packets. It ends after `packets`; `room_bytes` of frames
  // are held at a time, and what does not fit is counted as missed.
  TapOrder(std::vector<AclMatchRule> filter, uint64_t packets, size_t room_bytes, TapWish wish = {})
      : filter_(std::move(filter)),
        wish_(std::move(wish)),
        left_(static_cast<int64_t>(packets)),
        room_(static_cast<int64_t>(room_bytes)),
        lease_until_ns_(wish_.lease_until_ns) {}

  bool matches(const FlowKey& key) const;
  // Whether it keeps a packet that is through.
  bool wants(const FollowedPacket& packet) const;
  // The packets that are through since the last call; their room is free again. From any thread.
  std::vector<std::shared_ptr<const FollowedPacket>> take();
  // The same, but their room stays taken until it is given back.
  std::vector<std::shared_ptr<const FollowedPacket>> take_with_room();
  void give_back(size_t frame_bytes) { room_.fetch_add(cost(frame_bytes), std::memory_order_relaxed); }
  // From any thread. Packets are followed until then.
  void renew(uint64_t until_ns) { lease_until_ns_.store(until_ns, std::memory_order_relaxed); }
  bool leased() const { return lease_until_ns_.load(std::memory_order_relaxed) != 0; }
  bool expired(uint64_t now_ns) const {
    const uint64_t until = lease_until_ns_.load(std::memory_order_relaxed);
    return until != 0 && now_ns >= until;
  }
  // Packets that were claimed and are not through.
  uint64_t on_their_way() const { return on_their_way_.load(std::memory_order_acquire); }
  uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }
  uint64_t followed() const { return followed_.load(std::memory_order_relaxed); }
  // Packets that it still asks for.
  uint64_t left() const;

 private:
  friend class PacketTaps;
  enum class Claim : uint8_t { kYes, kNoRoom, kFull };
  Claim claim(size_t bytes);
  void put(std::shared_ptr<const FollowedPacket> packet);
  void lose(size_t frame_bytes);
  int64_t cost(size_t frame_bytes) const { return static_cast<int64_t>(frame_bytes + wish_.each_bytes); }

  const std::vector<AclMatchRule> filter_;
  const TapWish wish_;
  std::atomic<int64_t> left_, room_;
  std::atomic<uint64_t> missed_{0}, followed_{0}, on_their_way_{0}, lease_until_ns_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const FollowedPacket>> done_;
};

// The taps of a run. While no tap has an order the data path pays for one relaxed load a batch. Frames that are held
// are bounded by the orders' room; the tables of two generations at most are kept for packets on their way.
class PacketTaps {
 public:
  // From any thread. A new order ends the one before.
  std::shared_ptr<TapOrder> start(Tap tap, std::vector<AclMatchRule> filter, uint64_t packets, size_t room_bytes,
                                  TapWish wish = {});
  void stop(Tap tap);

  // Data path -----------------------------------------------------------------------------------------------------
  bool armed() const { return armed_.load(std::memory_order_relaxed) != 0; }
  // A batch was read by source `input` and is about to meet `snapshot`: copies the packets that are followed. From any
  // thread that reads. Never fails: what finds no memory is counted as missed.
  void receive(const Batch& batch, const Snapshot& snapshot, std::string_view input, std::vector<FollowedRow>& rows);
  // It is through. From any thread.
  static void finish(std::shared_ptr<FollowedPacket> packet);

 private:
  std::shared_ptr<const TableSet> tables_of(const Snapshot& snapshot);
  void ended(size_t tap, const TapOrder* order);

  std::atomic<uint32_t> armed_{0};  // a bit for each tap
  std::mutex mutex_;
  std::array<std::shared_ptr<TapOrder>, kTaps> orders_;
  uint64_t numbers_ = 0;
  uint32_t ids_ = 0;
  struct Kept {
    uint64_t generation = 0;
    std::weak_ptr<const TableSet> tables;
  };
  std::array<Kept, 2> kept_;
};

}  // namespace sluice
