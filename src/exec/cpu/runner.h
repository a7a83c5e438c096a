// host only
// CpuRunner: takes packets through a segment of the plan on this thread, in bursts of columns where their form is
// common, else in tiles of packets with registers.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/prefetch.h"
#include "exec/account/account.h"
#include "exec/cpu/fast.h"
#include "exec/cpu/tile.h"
#include "exec/walk/plan.h"
#include "exec/walk/walk.h"

namespace sluice {

// Of one worker.
class CpuRunner {
 public:
  // `plan`, `router` and `account` outlive it. Without `bursts` every packet goes by tiles.
  CpuRunner(const Plan& plan, const Router& router, Account& account, bool bursts);

  // The walk whose packets it runs from here on.
  void on(Walk& walk) { walk_ = &walk; }
  // Memory that the source reads next; asked for while packets run.
  void expect(std::span<const std::byte> next) { next_ = next; }

  // Takes all packets at the inputs of a segment through it.
  void run(const PlanNode& node, Selection* inputs);
  // Frames that lie in their source's memory, which nobody may write to, get memory of the job's own; `all`: so do all
  // others. Those that find no memory are dropped.
  void own_frames(const PlanNode& node, Selection& packets, bool all = false);
  bool lies_in_source(const uint8_t* frame) const;
  // A packet whose registers are in the batch.
  void drop_row(unsigned element, const Batch& batch, uint32_t row, DropReason reason) {
    if (&batch != walk_->batch) return account_.drop(element, reason);
    account_.drop(element, reason, row, batch.annotation(row).rule, batch.annotation(row).next_hop);
  }

  // Parts, for segments that run on a device in part ------------------------------------------------------------------
  // All inputs' packets before any of them runs: what a cycle brings back to the node then waits for the next round,
  // however the node runs, and packets meet each element of a cycle as often on a device as on a processor.
  std::span<Selection> take_inputs(const PlanNode& node, Selection* inputs);
  // Takes packets that enter at `entry` into tiles. Tile& full(Tile&): runs one that is full or the last, and says
  // which is filled next.
  template <typename Full>
  void gather(const PlanNode& node, const BatchView& view, const Selection& packets, uint8_t entry, Full&& full);
  static void start_tile(Tile& tile);
  void run_stages(const Program& program, const PlanNode& node, Tile& tile, uint32_t begin, uint32_t end,
                  bool prefetched);
  void finish_tile(const PlanNode& node, const BatchView& view, Tile& tile);
  // A call for each full burst: FastBurst* call(context, burst) returns the one to fill next.
  struct NextBurst {
    void* context;
    FastBurst* (*call)(void*, FastBurst*);
    template <typename F>
    static NextBurst of(F& f) {
      return {&f, [](void* at, FastBurst* burst) { return (*static_cast<F*>(at))(burst); }};
    }
    FastBurst* operator()(FastBurst* burst) const { return call(context, burst); }
  };
  Selection gather_bursts(const BatchView& view, const Selection& packets, const StageSlot* parser, NextBurst full);
  void finish_fast(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst,
                   uint32_t alive, uint32_t begin, uint32_t marked = 0);
  // Bursts keep no fates.
  bool takes_bursts() const { return bursts_on_ && walk_->share->fates == nullptr; }
  void store(const BatchView& view, uint32_t row, FieldMask live, const Packet& packet) {
    view.store(row, live, packet);
    if (walk_->at_root()) walk_->share->annotated.add(row);
  }
  // What is recorded of a packet that a rule with `log` decided.
  void fill_logged(LoggedPacket& packet, uint32_t row, const FlowKey& key, uint32_t bytes, uint32_t ip_bytes) const;
  Tile& tile() { return *tiles_[0]; }
  FastBurst& burst() { return *bursts_[0]; }
  const FastCode& code() const { return code_; }

 private:
  struct TileLanes;
  struct BurstLanes;
  struct BurstTurns;
  template <typename Finish>
  void next_burst(const Program& program, uint32_t begin, uint32_t end, BurstTurns& turns, FastBurst*& burst,
                  const Finish& finish);
  Selection run_segment_fast(const PlanNode& node, const Program& program, const BatchView& view,
                             const Selection& packets);

  Selection run_segment_parsed(const PlanNode& node, const Program& program, const BatchView& view,
                               const Selection& packets, uint8_t entry);

  void run_burst(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst, uint32_t alive,
                 uint32_t from, uint32_t begin);
  bool takes_burst(const PlanNode& node, const PlanTarget& to) const;
  void enter(const PlanTarget& to, const BatchView& view, FastBurst& burst, uint32_t lanes);

  const Plan& plan_;
  const Router& router_;
  Account& account_;
  Walk* walk_ = nullptr;
  std::unique_ptr<Tile> tiles_[2];
  std::unique_ptr<Selection[]> taken_ = std::make_unique<Selection[]>(kMaxStages);  // by input of a segment
  std::unique_ptr<FastBurst> bursts_[3];  // one of either family that fills, one that waits for its lookups
  bool bursts_on_;
  // Of the packets that came last; what they say decides which way is tried first, and never a result.
  std::optional<FastForm> expects_ = FastForm::kIpv4;  // what most had; none: they differed
  bool expects_others_ = false;                        // some had another
  std::span<const std::byte> next_;
  const FastCode code_ = fast_code();
  const AclIsa isa_ = acl_widest_isa();
};

struct CpuRunner::TileLanes {
  const CpuRunner& cpu;
  const Tile& tile;
  static constexpr bool kRecords = true;
  uint32_t rule(uint32_t i) const { return tile.packet[i].rule; }
  uint32_t length(uint32_t i) const { return tile.packet[i].length(); }
  static uint32_t near(LoggedRules::Range) { return ~uint32_t{0}; }
  void log(uint32_t i, LoggedPacket& packet) const {
    const Packet& p = tile.packet[i];
    cpu.fill_logged(packet, tile.index[i], p.key, p.length(), p.end - std::min<uint32_t>(p.end, p.l3));
  }
  DropReason reason(uint32_t i) const { return tile.packet[i].reason; }
  uint32_t row(uint32_t i) const { return tile.index[i]; }
  uint32_t next_hop(uint32_t i) const { return tile.packet[i].next_hop; }
};

template <typename Full>
void CpuRunner::gather(const PlanNode& node, const BatchView& view, const Selection& packets, uint8_t entry,
                       Full&& full) {
  const uint32_t words = (view.count + 63) / 64;
  Tile* tile = tiles_[0].get();
  tile->count = 0;
  auto run = [&] {
    start_tile(*tile);
    tile = &full(*tile);
    tile->count = 0;
  };
  for (uint32_t w = 0; w < words; ++w) {
    for (uint64_t bits = packets.word(w); bits != 0; bits &= bits - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      const uint32_t lane = tile->count++;
      tile->index[lane] = i;
      tile->path[lane] = entry;
      view.load(i, node.live_in, tile->packet[lane]);
      prefetch_read(tile->packet[lane].bytes());
      if (tile->count == Tile::kLanes) run();
    }
  }
  if (tile->count != 0) run();
}

}  // namespace sluice
