// host only
// Bursts: packets go through the first stages of a program as columns (cpu/fast.h), on the host alone or
// around a device. What comes of it, counters included, is what comes of the stages' scalar forms.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/prefetch.h"
#include "elements/ip_input/stage.h"
#include "exec/cpu/runner.h"
#include "net/fast_parse.h"

namespace sluice {

// Takes those of `packets` that IPInput, which is `parser`, passes, in bursts of one family each: `full(burst)` is
// called with each and returns the burst to fill next. Drops what it drops. Returns the others: what leaves it by
// another output, and frames that do not begin at their first byte or were cut. Without a parser only common IPv4
// packets without a tag are taken.
Selection CpuRunner::gather_bursts(const BatchView& view, const Selection& packets, const StageSlot* parser,
                                   NextBurst full) {
  const uint32_t words = (view.count + 63) / 64;
  const bool trim = parser == nullptr || parser->get<IpInputStage>().trim_padding != 0;
  Selection left;
  FastBurst* four = bursts_[0].get();
  FastBurst* six = bursts_[1].get();
  four->family = 4;
  six->family = 6;
  four->clear();
  six->clear();
  const auto run = [&](FastBurst*& burst) {
    FastBurst* const filled = burst;
    const uint32_t extra = filled->count > FastBurst::kLanes ? filled->count - FastBurst::kLanes : 0;
    filled->count -= extra;
    code_.close(*filled, trim);
    burst = full(filled);
    burst->clear();
    if (extra != 0) burst->take_extra(*filled, extra);
  };
  // What the source reads next: a line or two a packet, a few at a time, so that memory has all this time to bring
  // them.
  const size_t lines = next_.size() / 64 > packets.count() ? 2 : 1;
  const auto ask_ahead = [&](uint32_t rows) {
    const size_t here = std::min(rows * lines, next_.size() / 64);
    for (size_t i = 0; i < here; ++i) prefetch_second(next_.data() + i * 64);
    next_ = next_.subspan(here * 64);
  };
  // `gather(first, n, burst)` takes n packets of the burst's family.
  const auto fill = [&](FastBurst*& burst, uint32_t n, auto&& gather) {
    for (uint32_t at = 0; at < n;) {
      const uint32_t some = std::min(n - at, gather_most(*burst));
      ask_ahead(some);
      gather(at, some, *burst);
      at += some;
      if (burst->count >= FastBurst::kLanes) run(burst);
    }
  };
  // So many rows at once that few bursts are begun of each family where both are there.
  constexpr uint32_t kBlock = LinkedRows::kMost / 64;
  for (uint32_t block = 0; block < words; block += kBlock) {
    uint32_t rows[LinkedRows::kMost], rest[LinkedRows::kMost], odd[LinkedRows::kMost];
    uint32_t all = 0, failed = 0;
    // Most traffic is of one form: which the last packets had is tried first.
    const std::optional<FastForm> form = parser == nullptr ? FastForm::kIpv4 : expects_;
    for (uint32_t w = block; w < std::min(words, block + kBlock); ++w) {
      const uint64_t bits = packets.word(w);
      if (bits == 0) continue;
      uint32_t* const of_word = rows + all;
      uint32_t n = 0;
      if (bits == ~uint64_t{0}) {
        for (; n < 64; ++n) of_word[n] = w * 64 + n;
        uint8_t* const* frames = view.frame + w * 64;
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 64; ++i) prefetch_read(frames[i]);
      } else {
        for (uint64_t b = bits; b != 0; b &= b - 1) {
          of_word[n] = w * 64 + static_cast<uint32_t>(std::countr_zero(b));
          prefetch_read(view.frame[of_word[n++]]);
        }
      }
      all += n;
      if (form) {
        fill(family_of(*form) == 6 ? six : four, n, [&](uint32_t at, uint32_t some, FastBurst& burst) {
          failed += gather_alike(*form, view, of_word + at, some, burst, rest + failed);
        });
      }
    }
    const uint32_t* const from = form ? rest : rows;
    const uint32_t n = form ? failed : all;
    if (n == 0) continue;
    if (parser == nullptr) {
      for (uint32_t i = 0; i < n; ++i) left.add(rest[i]);
      continue;
    }
    LinkedRows of_four, of_six;
    uint32_t others = 0, linked_rows = 0;  // these have a tag or are IPv6
    uint32_t seen[kFastForms] = {};        // packets by form
    if (!form || expects_others_) {
      others = sort_rows(view, from, n, of_four, of_six, odd);
      seen[static_cast<uint32_t>(FastForm::kIpv4)] = of_four.untagged;
      seen[static_cast<uint32_t>(FastForm::kIpv6)] = of_six.untagged;
      linked_rows = of_four.count - of_four.untagged + of_six.count;
      if (of_four.untagged != of_four.count) {
        for (const FastForm of : {FastForm::kIpv4OneTag, FastForm::kIpv4TwoTags}) {
          uint32_t& tagged = seen[static_cast<uint32_t>(of)];
          for (uint32_t i = 0; i < of_four.count; ++i) tagged += (of_four.link[i] & 0xffff) == l3_of(of);
        }
      }
      if (form && seen[static_cast<uint32_t>(*form)] != 0) {
        // Those of the form that was tried were not taken before, and are not now.
        LinkedRows& sorted = family_of(*form) == 6 ? of_six : of_four;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < sorted.count; ++i) {
          if ((sorted.link[i] & 0xffff) == l3_of(*form)) {
            odd[others++] = sorted.row[i];
          } else {
            sorted.move(i, kept++);
          }
        }
        sorted.count = kept;
      }
    } else {
      std::memcpy(odd, rest, n * sizeof rest[0]);
      others = n;
    }
    const auto take = [&](const LinkedRows& linked, FastBurst*& burst) {
      fill(burst, linked.count, [&](uint32_t at, uint32_t some, FastBurst& to) {
        others += gather_linked(view, linked, at, some, to, odd + others);
      });
    };
    if (of_four.count != 0) take(of_four, four);
    if (of_six.count != 0) take(of_six, six);
    // Whatever else: IPInput's own form, for as many at once as it has lanes.
    for (uint32_t at = 0; at < others;) {
      Tile& tile = *tiles_[1];
      const uint32_t some = std::min(others - at, Tile::kLanes);
      uint32_t asked = 0;
      for (uint32_t i = 0; i < some; ++i) {
        const Extent& extent = view.extent[odd[at + i]];
        if (extent.data == 0 && extent.end == extent.wire_end) {
          view.load(odd[at + i], 0, tile.packet[i]);
          asked |= uint32_t{1} << i;
        }
      }
      if (asked != 0) cpu_stage_kernel(parser->kind)(*parser, tile, asked, false);
      for (uint32_t m = asked; m != 0; m &= m - 1) {
        const Packet& p = tile.packet[std::countr_zero(m)];
        const bool wide = p.key.family == 6;
        linked_rows += wide | (p.vlan_count != 0);
        if (!wide && p.vlan_count <= kFastMostTags) ++seen[p.vlan_count];
        if (wide && p.vlan_count == 0) ++seen[static_cast<uint32_t>(FastForm::kIpv6)];
      }
      for (uint32_t i = 0; i < some; ++i) {
        const uint32_t row = odd[at + i];
        if ((asked >> i & 1) == 0) {
          left.add(row);
          continue;
        }
        if (tile.output[i] != 0) {
          if (parser->next[tile.output[i] & 15] != kPathDropped) {
            left.add(row);
            continue;
          }
          tile.index[i] = row;
          account_.stage(parser->element, 1u << i, view.extent[row].end, 1u << i, TileLanes{*this, tile});
          continue;
        }
        if (is_rare_key(tile.packet[i].key)) {
          left.add(row);
          continue;
        }
        FastBurst*& burst = tile.packet[i].key.family == 6 ? six : four;
        append_parsed(tile.packet[i], row, view.extent[row].end, *burst);
        if (burst->count == FastBurst::kLanes) run(burst);
      }
      at += some;
    }
    if (form) {
      seen[static_cast<uint32_t>(*form)] += all - failed;
      if (*form != FastForm::kIpv4) linked_rows += all - failed;
    }
    if (linked_rows < all / 4) {
      expects_ = FastForm::kIpv4;
      expects_others_ = linked_rows != 0;
    } else {
      const auto most = static_cast<uint32_t>(std::max_element(seen, seen + kFastForms) - seen);
      expects_.reset();
      if (seen[most] > all / 4 * 3) expects_ = static_cast<FastForm>(most);
      expects_others_ = seen[static_cast<uint32_t>(FastForm::kIpv4)] + linked_rows != seen[most];
    }
  }
  if (four->count != 0) run(four);
  if (six->count != 0) run(six);
  return left;
}

namespace {

// Lengths of 32 frames fit 32 bits.
template <typename Length>
uint32_t sum_of(uint32_t lanes, Length&& length) {
  uint32_t sum = 0;
  if (lanes == ~uint32_t{0}) {
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) sum += length(i);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) sum += length(static_cast<uint32_t>(std::countr_zero(lanes)));
  }
  return sum;
}

}  // namespace

struct CpuRunner::BurstLanes {
  const CpuRunner& cpu;
  FastBurst& burst;
  static constexpr bool kRecords = true;
  uint32_t rule(uint32_t i) const { return burst.rule[i]; }
  uint32_t length(uint32_t i) const { return burst.bytes(i); }
  uint32_t near(LoggedRules::Range range) const {
    return FastBurst::lanes_where([&](uint32_t i) { return range.holds(burst.rule[i]); });
  }
  void log(uint32_t i, LoggedPacket& packet) const {
    burst.fill_keys();  // packets that are only counted are not asked for them
    cpu.fill_logged(packet, burst.row[i], burst.key(i), burst.bytes(i), burst.ip_bytes[i]);
  }
  DropReason reason(uint32_t i) const { return burst.reason[i]; }
  uint32_t row(uint32_t i) const { return burst.row[i]; }
  uint32_t next_hop(uint32_t i) const { return burst.next_hop[i]; }
};

// Runs the lanes of `alive` from stage `begin` to the end of the program; the stages before it have passed them, and
// given those of `marked` their marks.
void CpuRunner::finish_fast(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst,
                            uint32_t alive, uint32_t begin, uint32_t marked) {
  burst.hopped = burst.rewritten = burst.detailed = 0;
  burst.marked = marked;
  Tile& tile = *tiles_[0];  // of packets that leave the burst
  tile.count = 0;
  const auto leave = [&](uint32_t lanes, auto&& path_of) {
    burst.fill_keys();
    for_lanes(lanes, [&](uint32_t i) {
      const uint32_t lane = tile.count++;
      tile.index[lane] = burst.row[i];
      tile.path[lane] = path_of(i);
      registers_of(view, burst, i, tile.packet[lane]);
    });
  };
  uint32_t counted = 0;
  uint64_t bytes = 0;
  account_.stats.fast += static_cast<uint64_t>(std::popcount(alive));
  for (uint32_t s = 0; s < program.fast && alive != 0; ++s) {
    const StageSlot& slot = program.stages[s];
    if (s <= 1 || alive != counted || program.stages[s - 1].moves_extent != 0) {
      // The first stage sees what came; it trims the padding.
      bytes = s == 0 ? sum_of(alive, [&](uint32_t i) { return burst.length[i]; })
                     : sum_of(alive, [&](uint32_t i) { return burst.bytes(i); });
      counted = alive;
    }
    const uint32_t came = alive;
    if (s >= begin) alive = cpu_fast_kernel(slot.kind)(slot, burst, alive);
    uint32_t leaving = 0;
    for (uint32_t m = came & ~alive; m != 0; m &= m - 1) {
      const uint8_t output = burst.output[std::countr_zero(m)] & 15;
      if (slot.next[output] != kPathDropped) leaving |= m & (0u - m);
    }
    account_.stage(slot.element, came, bytes, came & ~alive & ~leaving, BurstLanes{*this, burst});
    if (leaving != 0) {
      const uint32_t first = tile.count;
      code_.commit(view, burst, leaving, true);
      leave(leaving, [&](uint32_t i) { return slot.next[burst.output[i] & 15]; });
      uint32_t lane = first;
      for_lanes(leaving, [&](uint32_t i) {
        if (burst.reason[i] != DropReason::kNone) tile.packet[lane].reason = burst.reason[i];
        ++lane;
      });
    }
  }
  const uint32_t next = tile.count != 0 ? 1 : program.fast;
  if (alive != 0) {
    const StageSlot& last = program.stages[program.fast - 1];
    const uint8_t path = last.next[0];
    // The rest of the program, or a later node, wants registers; of what looks at lengths it is the family alone.
    const bool exits = path != kPathDropped && path >= kPathExit;
    const FieldMask wanted = exits ? node.live_out[path - kPathExit] & ~(kFieldFrame | kFieldExtent) : FieldMask{0};
    const bool family = wanted != 0 && (wanted & ~(kFieldL3 | kFieldKey)) == 0 &&
                        plan_.nodes[node.exits[path - kPathExit].node].by_lengths;
    const bool registers = path != kPathDropped && (!exits || (wanted != 0 && !family));
    code_.commit(view, burst, alive, registers || family);
    if (family) for_lanes(alive, [&](uint32_t i) { view.key[burst.row[i]].family = burst.family; });
    if (path == kPathDropped) {
      account_.drop(last.element, DropReason::kUnconnectedOutput, static_cast<uint64_t>(std::popcount(alive)));
    } else if (registers) {
      leave(alive, [&](uint32_t) { return path; });
    } else {
      const PlanTarget target = node.exits[path - kPathExit];
      Selection& to = walk_->to(target);
      add_rows(burst, alive, to);
      // Nothing changes the packets from here on.
      if (view.egress_note != nullptr && plan_.nodes[target.node].leaves_as_is) {
        code_.note_egress(view, burst, alive);
      }
    }
  }
  if (tile.count == 0) return;
  start_tile(tile);
  run_stages(program, node, tile, next, program.stage_count, false);
  finish_tile(node, view, tile);
}

// Takes packets that enter at the first stage through the segment in bursts: while one waits for what its lookups ask
// for, the next one of either family fills. Three in all, whichever family has them: four would leave the near cache
// no room for frames. Returns those that have to go by tiles.
Selection CpuRunner::run_segment_fast(const PlanNode& node, const Program& program, const BatchView& view,
                                      const Selection& packets) {
  FastBurst* waiting = nullptr;
  FastBurst* spare = bursts_[2].get();
  const auto finish = [&](FastBurst& burst) { finish_fast(node, program, view, burst, burst.lanes(), 1); };
  auto next = [&](FastBurst* burst) {
    for (uint32_t s = 1; s < program.fast; ++s) {
      const FastPrefetch prefetch = cpu_fast_prefetch(program.stages[s].kind);
      if (prefetch != nullptr) prefetch(program.stages[s], *burst);
    }
    if (waiting != nullptr) {
      finish(*waiting);
      spare = waiting;
    }
    waiting = burst;
    spare->family = burst->family;
    return spare;
  };
  const Selection left = gather_bursts(view, packets, &program.stages[0], NextBurst::of(next));
  if (waiting != nullptr) finish(*waiting);
  return left;
}

}  // namespace sluice
