// host only
#include "exec/cpu/runner.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice {

CpuRunner::CpuRunner(const Plan& plan, const Router& router, Account& account, bool bursts)
    : plan_(plan),
      router_(router),
      account_(account),
      tiles_{std::make_unique<Tile>(), std::make_unique<Tile>()},
      bursts_on_(bursts) {
  for (auto& burst : bursts_) burst = std::make_unique<FastBurst>();
}

void CpuRunner::fill_logged(LoggedPacket& packet, uint32_t row, const FlowKey& key, uint32_t bytes,
                            uint32_t ip_bytes) const {
  packet.timestamp_ns = walk_->batch->timestamp_ns(row);
  packet.key = key;
  packet.bytes = bytes;
  packet.ip_bytes = ip_bytes;
  if (walk_->at_root()) packet.source = walk_->source;
}

bool CpuRunner::lies_in_source(const uint8_t* frame) const {
  const auto& lent = walk_->share->lent;
  const auto* at = reinterpret_cast<const std::byte*>(frame);
  return !lent.empty() && at >= lent.data() && at < lent.data() + lent.size();
}

void CpuRunner::own_frames(const PlanNode& node, Selection& packets, bool all) {
  if (!all && (walk_->share->lent.empty() || !walk_->at_root())) return;
  const auto moves = [&](const uint8_t* frame) { return all || lies_in_source(frame); };
  const BatchView view = walk_->batch->view();
  const auto room = [](uint32_t end) { return (size_t{kHeadroom} + end + kTailroom + 63) / 64 * 64; };
  size_t bytes = 0;
  packets.for_each([&](uint32_t row) {
    if (moves(view.frame[row])) bytes += room(view.extent[row].end);
  });
  if (bytes == 0) return;
  auto made = Buffer::allocate(bytes);
  if (!made) {
    Selection lost;
    packets.for_each([&](uint32_t row) {
      if (moves(view.frame[row])) lost.add(row);
    });
    lost.for_each([&](uint32_t row) { drop_row(node.elements[0], *walk_->batch, row, DropReason::kNoBuffer); });
    packets.subtract(lost);
    return;
  }
  auto* to = reinterpret_cast<uint8_t*>(made->data());
  packets.for_each([&](uint32_t row) {
    if (!moves(view.frame[row])) return;
    std::memcpy(to + kHeadroom, view.frame[row], view.extent[row].end);
    view.frame[row] = to + kHeadroom;
    to += room(view.extent[row].end);
  });
  walk_->share->own_frames.push_back(std::move(*made));
}

std::span<Selection> CpuRunner::take_inputs(const PlanNode& node, Selection* inputs) {
  for (unsigned input = 0; input < node.inputs; ++input) {
    taken_[input] = inputs[input];
    inputs[input].clear();
  }
  return {taken_.get(), node.inputs};
}

// Two tiles are under way at a time: while the front stages of one run (parsing, mostly), the table lines that the
// other will read are on their way from memory.
void CpuRunner::run(const PlanNode& node, Selection* inputs) {
  const Program& program = walk_->program(node);
  const BatchView view = walk_->batch->view();
  const uint32_t front = program.front;
  const bool bursts = takes_bursts() && program.fast != 0 && node.live_in == 0;
  // What comes from elsewhere has its registers in the batch.
  const bool parsed = takes_bursts() && !node.wide && (node.live_in & (kFieldKey | kFieldL3)) == (kFieldKey | kFieldL3);
  const std::span<Selection> taken = take_inputs(node, inputs);
  for (unsigned input = 0; input < node.inputs; ++input) {
    Selection& packets = taken[input];
    const uint8_t entry = node.entries[input];
    if (bursts && entry == 0) {
      packets = run_segment_fast(node, program, view, packets);
    } else if (parsed && cpu_fast_kernel(program.stages[entry].kind) != nullptr) {
      packets = run_segment_parsed(node, program, view, packets, entry);
    }
    Tile* waiting = nullptr;  // its front stages are done
    gather(node, view, packets, node.entries[input], [&](Tile& tile) -> Tile& {
      run_stages(program, node, tile, 0, front, false);
      if (front == program.stage_count) {
        finish_tile(node, view, tile);
        return tile;
      }
      const uint32_t alive = tile.valid & ~tile.dead;
      for (uint32_t s = front; s < program.stage_count; ++s) {
        const StagePrefetch prefetch = cpu_stage_prefetch(program.stages[s].kind);
        if (prefetch != nullptr) prefetch(program.stages[s], tile, alive);
      }
      if (waiting != nullptr) {
        run_stages(program, node, *waiting, front, program.stage_count, true);
        finish_tile(node, view, *waiting);
      }
      waiting = &tile;
      return waiting == tiles_[0].get() ? *tiles_[1] : *tiles_[0];
    });
    if (waiting != nullptr) {
      run_stages(program, node, *waiting, front, program.stage_count, true);
      finish_tile(node, view, *waiting);
    }
  }
}

void CpuRunner::start_tile(Tile& tile) {
  std::fill(tile.path + tile.count, tile.path + Tile::kLanes, kPathDropped);
  tile.valid = tile.count == Tile::kLanes ? ~uint32_t{0} : (uint32_t{1} << tile.count) - 1;
  tile.dead = 0;
}

void CpuRunner::run_stages(const Program& program, const PlanNode& node, Tile& tile, uint32_t begin, uint32_t end,
                           bool prefetched) {
  // Lengths are summed anew only where the lanes or the extents may have changed since the stage before.
  uint32_t counted_mask = 0;
  uint64_t counted_bytes = 0;
  for (uint32_t s = begin; s < end; ++s) {
    const uint32_t mask = tile.lanes_at(static_cast<uint8_t>(s));
    if (mask == 0) continue;
    const StageSlot& slot = program.stages[s];
    if (mask != counted_mask) {
      counted_bytes = 0;
      for_lanes(mask, [&](uint32_t i) { counted_bytes += tile.packet[i].length(); });
      counted_mask = mask;
    }
    if (slot.moves_extent != 0) counted_mask = 0;
    cpu_stage_kernel(slot.kind)(slot, tile, mask, prefetched);
    if (node.wide) {
      for_lanes(mask, [&](uint32_t i) { tile.path[i] = node.wide_path(tile.output[i]); });
    } else {
      tile.advance(static_cast<uint8_t>(s), slot.next);
    }
    const uint32_t died = tile.lanes_at(kPathDropped) & tile.valid & ~tile.dead;
    tile.dead |= died;
    if (account_.keeps_fates() && notes_rule(slot)) account_.meet_list(slot.element, mask, TileLanes{*this, tile});
    account_.stage(slot.element, mask, counted_bytes, died, TileLanes{*this, tile});
  }
}

// Writes the registers back and delivers the packets to their exits.
void CpuRunner::finish_tile(const PlanNode& node, const BatchView& view, Tile& tile) {
  const uint32_t alive = tile.valid & ~tile.dead;
  if (alive == 0) return;
  const uint8_t first = tile.path[std::countr_zero(alive)];
  if (!node.wide && (tile.lanes_at(first) & alive) == alive) {
    const PlanTarget target = node.exits[first - kPathExit];
    const FieldMask live = node.live_out[first - kPathExit];
    Selection& to = walk_->to(target);
    for_lanes(alive, [&](uint32_t i) {
      store(view, tile.index[i], live, tile.packet[i]);
      to.add(tile.index[i]);
    });
    return;
  }
  for_lanes(alive, [&](uint32_t i) {
    const uint32_t exit = node.wide ? tile.output[i] : tile.path[i] - kPathExit;
    const PlanTarget target = node.exits[exit];
    store(view, tile.index[i], node.live_out[exit], tile.packet[i]);
    walk_->to(target).add(tile.index[i]);
  });
}

}  // namespace sluice
