// host only
// The worker's fast path: common packets go through the first stages of a program as columns (cpu/fast.h), on the host
// alone or around a device. What comes of it, counters included, is what comes of the ordinary path, to which every
// packet goes that is not common after all.
#include <bit>
#include <cstring>

#include "base/prefetch.h"
#include "elements/ip_input/stage.h"
#include "exec/worker.h"
#include "net/fast_parse.h"

namespace sluice {

// Takes the packets that are common out of the inputs, in bursts: `full(burst, left)` is called with each, puts the
// rows that must take the ordinary path after all into `left`, and returns the burst to fill next; after the last it is
// called with nullptr. What is left, and all packets that are not common, stay in the inputs.
template <typename Full>
void Worker::gather_bursts(const PlanNode& node, const BatchView& view, Selection* inputs, Full&& full) {
  const uint32_t words = (view.count + 63) / 64;
  for (unsigned input = 0; input < node.inputs; ++input) {
    // Only what enters at the first stage has all stages of the fast path before it.
    if (node.entries[input] != 0) continue;
    const Selection packets = inputs[input];
    Selection& left = inputs[input];
    left.clear();
    FastBurst* burst = bursts_[0].get();
    burst->clear();
    for (uint32_t w = 0; w < words; ++w) {
      const uint64_t bits = packets.word(w);
      if (bits == 0) continue;
      // What the source reads next: a line a packet, so that memory has all this time to bring it.
      const size_t lines = std::min<size_t>(next_.size() / 64, 64);
      for (size_t i = 0; i < lines; ++i) prefetch_second(next_.data() + i * 64);
      next_ = next_.subspan(lines * 64);
      uint32_t rows[64];
      uint32_t n = 0;
      if (bits == ~uint64_t{0}) {
        for (; n < 64; ++n) rows[n] = w * 64 + n;
        uint8_t* const* frames = view.frame + w * 64;
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 64; ++i) prefetch_read(frames[i]);
      } else {
        for (uint64_t b = bits; b != 0; b &= b - 1) {
          rows[n] = w * 64 + static_cast<uint32_t>(std::countr_zero(b));
          prefetch_read(view.frame[rows[n++]]);
        }
      }
      for (uint32_t at = 0; at < n;) {
        const uint32_t some = std::min(n - at, FastBurst::kLanes - burst->count);
        uint32_t rest[FastBurst::kLanes];
        const uint32_t others = gather_fast(view, rows + at, some, *burst, rest);
        for (uint32_t r = 0; r < others; ++r) left.add(rest[r]);
        at += some;
        if (burst->count == FastBurst::kLanes) burst = full(burst, left);
      }
    }
    if (burst->count != 0) full(burst, left);
    full(nullptr, left);
  }
}

// Takes the lanes of `alive` through the program's fast stages from `begin` on. Returns those that passed them all;
// `stopped`: those that were dropped, and counted as drops. All others must take the ordinary path. came[s]: the lanes
// that came to stage s.
uint32_t Worker::run_fast(const Program& program, FastBurst& burst, uint32_t alive, uint32_t begin, uint32_t& stopped,
                          uint32_t* came) {
  burst.hopped = burst.rewritten = 0;
  stopped = 0;
  const auto note_rules = [&](uint32_t s, uint32_t lanes) {
    if (walk_->snapshot->hits.empty()) return;
    const RuleHits::Adder hits = hits_at(program.stages[s]);
    if (!hits) return;
    std::memcpy(fast_rules_[s], burst.rule, sizeof fast_rules_[s]);
    for_lanes(lanes, [&](uint32_t i) { hits.prefetch(burst.rule[i]); });
  };
  for (uint32_t s = 0; s < begin; ++s) {
    came[s] = alive;
    note_rules(s, alive);
  }
  for (uint32_t s = begin; s < program.fast; ++s) {
    came[s] = alive;
    if (alive == 0) continue;
    const StageSlot& slot = program.stages[s];
    const uint32_t passed = cpu_fast_kernel(slot.kind)(slot, burst, alive);
    note_rules(s, alive);
    for (uint32_t m = alive & ~passed; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      const uint8_t output = burst.output[lane];
      if (output == kFastRefused || slot.next[output & 15] != kPathDropped) continue;
      stopped |= uint32_t{1} << lane;
      drop_at(slot, burst.reason[lane]);
    }
    alive = passed;
  }
  return alive;
}

namespace {

// Lengths of 32 frames fit 32 bits.
uint32_t sum_of(const uint32_t* lengths, uint32_t lanes) {
  uint32_t sum = 0;
  if (lanes == ~uint32_t{0}) {
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) sum += lengths[i];
  } else {
    for (; lanes != 0; lanes &= lanes - 1) sum += lengths[std::countr_zero(lanes)];
  }
  return sum;
}

}  // namespace

// Counts the lanes of `mask` at the stages that they came to.
void Worker::count_fast(const Program& program, const FastBurst& burst, uint32_t mask, const uint32_t* came) {
  uint32_t counted = 0;
  uint64_t bytes = 0;
  for (uint32_t s = 0; s < program.fast; ++s) {
    const uint32_t lanes = came[s] & mask;
    if (lanes == 0) break;
    ElementCounters& counters = stats_.elements[program.stages[s].element];
    if (s <= 1 || lanes != counted) {
      // The first stage sees what came; it trims the padding.
      const uint32_t* lengths = s == 0 ? burst.length : burst.ip_bytes;
      bytes = sum_of(lengths, lanes);
      if (s != 0) bytes += kFastL3 * static_cast<uint64_t>(std::popcount(lanes));
      counted = lanes;
    }
    counters.packets += static_cast<uint64_t>(std::popcount(lanes));
    counters.bytes += bytes;
    if (const RuleHits::Adder hits = hits_at(program.stages[s])) {
      for_lanes(lanes, [&](uint32_t i) { hits.add(fast_rules_[s][i], uint64_t{burst.ip_bytes[i]} + kFastL3); });
    }
  }
}

// Runs the lanes of `all` from stage `begin` to the end of the program. Returns those that must take the ordinary path
// instead: nothing has been counted of them, and nothing changed.
uint32_t Worker::finish_fast(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst,
                             uint32_t all, uint32_t begin) {
  uint32_t came[kMaxStages];
  uint32_t stopped = 0;
  // Only the ordinary path keeps padding (fast_stages: the first stage is IPInput).
  uint32_t taken = all;
  if (program.stages[0].get<IpInputStage>().trim_padding == 0) {
    taken &= FastBurst::lanes_where([&](uint32_t i) { return burst.length[i] == burst.ip_bytes[i] + kFastL3; });
  }
  const uint32_t passed = run_fast(program, burst, taken, begin, stopped, came);
  count_fast(program, burst, passed | stopped, came);
  stats_.fast += static_cast<uint64_t>(std::popcount(passed | stopped));
  if (passed == 0) return all & ~stopped;
  const StageSlot& last = program.stages[program.fast - 1];
  const uint8_t path = last.next[0];
  // The rest of the program, or a later node, wants registers.
  const bool registers = path != kPathDropped &&
                         (path < kPathExit || (node.live_out[path - kPathExit] & ~(kFieldFrame | kFieldExtent)) != 0);
  code_.commit(view, burst, passed, registers);
  if (path == kPathDropped) {
    drop(last.element, DropReason::kUnconnectedOutput, static_cast<uint64_t>(std::popcount(passed)));
  } else if (registers) {
    burst.fill_keys();
    Tile& tile = *tiles_[0];
    tile.count = 0;
    for_lanes(passed, [&](uint32_t i) {
      const uint32_t lane = tile.count++;
      tile.index[lane] = burst.row[i];
      tile.path[lane] = path;
      registers_of(view, burst, i, tile.packet[lane]);
    });
    start_tile(tile);
    run_stages(program, node, tile, program.fast, program.stage_count, false);
    finish_tile(node, view, tile);
  } else {
    const PlanTarget target = node.exits[path - kPathExit];
    Selection& to = walk_->pending[first_input_[target.node] + target.input];
    add_rows(burst, passed, to);
    walk_->dirty[target.node] = 1;
    // Nothing changes the packets from here on.
    if (view.egress_note != nullptr && plan_.nodes[target.node].leaves_as_is) {
      code_.note_egress(view, burst, passed);
    }
  }
  return all & ~(passed | stopped);
}

// Takes the common packets of the inputs through the segment. Two bursts are under way at a time, as with tiles.
void Worker::run_segment_fast(const PlanNode& node, const Program& program, const BatchView& view, Selection* inputs) {
  FastBurst* waiting = nullptr;
  auto finish = [&](Selection& left) {
    add_rows(*waiting, finish_fast(node, program, view, *waiting, waiting->lanes(), 1), left);
  };
  gather_bursts(node, view, inputs, [&](FastBurst* burst, Selection& left) -> FastBurst* {
    if (burst != nullptr) {
      for (uint32_t s = 1; s < program.fast; ++s) {
        const FastPrefetch prefetch = cpu_fast_prefetch(program.stages[s].kind);
        if (prefetch != nullptr) prefetch(program.stages[s], *burst);
      }
    }
    if (waiting != nullptr) finish(left);
    waiting = burst;
    FastBurst* next = waiting == bursts_[0].get() ? bursts_[1].get() : bursts_[0].get();
    next->clear();
    return next;
  });
}

// Sends the common packets of the inputs off, as far as there is room.
void Worker::launch_fast(size_t n, const Offload& offload, const BatchView& view, Selection* inputs) {
  const PlanNode& node = plan_.nodes[n];
  Airborne* a = nullptr;
  gather_bursts(node, view, inputs, [&](FastBurst* burst, Selection& left) -> FastBurst* {
    if (burst == nullptr) return nullptr;
    if (a == nullptr) a = airborne_for(n, offload, true);
    const uint32_t room = a == nullptr ? 0 : std::min(burst->count, a->flight.limit - a->flight.count);
    if (room != 0) {
      // Whole columns: there is room for as many lanes behind the last.
      code_.keep(*burst, a->fast_from(a->fast));
      a->fast += room;
      a->flight.put_keys(burst->source, burst->destination, burst->ports, burst->rest, room);
    }
    for (uint32_t i = room; i < burst->count; ++i) left.add(burst->row[i]);
    burst->clear();
    return burst;
  });
}

// Takes the results of records [applied, applied + n), n at most 32, that came from the fast path and went the usual
// way through the device's stages. Returns the records that are done.
uint32_t Worker::apply_fast(const PlanNode& node, const Offload& offload, const Program& program, const BatchView& view,
                            Airborne& a, uint32_t n) {
  const uint32_t there = std::min(a.fast, a.flight.ready);
  if (a.applied >= there) return 0;
  const uint32_t usual = (1u << (offload.end - offload.begin)) - 1;
  FastBurst& burst = *bursts_[0];
  code_.restore(a.fast_from(a.applied), std::min(n, there - a.applied), view, burst);
  uint64_t words[FastBurst::kLanes];
  std::memset(words + burst.count, 0, (FastBurst::kLanes - burst.count) * sizeof words[0]);
  a.flight.key_results(a.applied, burst.count, words);
  const uint32_t passed = code_.take(words, usual, burst);
  std::byte keys[FastBurst::kLanes * sizeof(Key4)];
  burst.late_keys = a.flight.key_records(a.applied, burst.count, keys);
  const uint32_t alive = passed & burst.lanes();
  if (alive == 0) return 0;
  const uint32_t gone = alive & ~finish_fast(node, program, view, burst, alive, offload.end);
  counters_of(node).offloaded += static_cast<uint64_t>(std::popcount(gone));
  return gone;
}

}  // namespace sluice
