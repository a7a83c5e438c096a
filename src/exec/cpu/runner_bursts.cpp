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
    if (extra != 0) {
      burst->take_extra(*filled, extra);
    } else {
      burst->clear();
    }
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
    uint32_t others = 0, linked_rows = 0;  // these have a tag, are IPv6, fragments, or have options
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
    } else {
      std::memcpy(odd, rest, n * sizeof rest[0]);
      others = n;
    }
    const auto take = [&](const LinkedRows& linked, FastBurst*& burst) {
      fill(burst, linked.count, [&](uint32_t at, uint32_t some, FastBurst& to) {
        const uint32_t before = to.count;
        others += gather_linked(view, linked, at, some, to, odd + others);
        if (to.family == 6) return;
        // Fragments, and packets with options, have no form that is worth being tried first.
        for (uint32_t i = before; i < to.count; ++i) {
          const uint32_t l3 = to.l3(i);
          if (to.places[i] == (l3 | (l3 + kIpv4HeaderBytes) << 16) &&
              (to.rest[i] & uint32_t{FlowKey::kFragment} << 22) == 0) {
            continue;
          }
          --seen[(l3 - kFastL3) / kVlanTagBytes];
          linked_rows += l3 == kFastL3;
        }
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
        const bool common = (p.ip_flags & Headers::kIpv4Options) == 0 && (p.key.bits & FlowKey::kFragment) == 0;
        linked_rows += wide | (p.vlan_count != 0) | !common;
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
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i)
      sum += length(i) & (0u - uint32_t{(lanes & FastBurst::kLane[i]) != 0});
  }
  return sum;
}

// Whether all of an IP packet is there behind its link header, and its registers say what its header does: so that
// registers_of gives them again.
bool is_as_parsed(const Packet& p) {
  const bool six = p.key.family == 6;
  if ((!six && p.key.family != 4) || is_rare_key(p.key) || p.data != 0 || p.end != p.wire_end) return false;
  if (p.l3 != kEtherHeaderBytes + p.vlan_count * kVlanTagBytes) return false;
  if (p.l3 + (six ? kIpv6HeaderBytes : kIpv4HeaderBytes) > p.end) return false;
  return p.ether_type == (six ? kEtherTypeIpv6 : kEtherTypeIpv4) && p.ttl == p.frame[p.l3 + (six ? 7 : 8)] &&
         (p.vlan_count != 0 || p.vlan_tci == 0);
}

// Whether no output but the first leads anywhere.
bool drops_others(const StageSlot& slot) {
  static_assert(kPathDropped == 0xff && sizeof slot.next == 16);
  uint64_t half[2];
  std::memcpy(half, slot.next, sizeof half);
  half[0] |= 0xff;
  return (half[0] & half[1]) == ~uint64_t{0};
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
  uint32_t with(DropReason reason) const {
    return FastBurst::lanes_where([&](uint32_t i) { return burst.reason[i] == reason; });
  }
  uint32_t row(uint32_t i) const { return burst.row[i]; }
  uint32_t next_hop(uint32_t i) const { return burst.next_hop[i]; }
};

// Runs the lanes of `alive` from stage `begin` to the end of the program; the stages before it have passed them, and
// given those of `marked` their marks.
void CpuRunner::finish_fast(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst,
                            uint32_t alive, uint32_t begin, uint32_t marked) {
  burst.hopped = burst.rewritten = burst.detailed = 0;
  burst.marked = marked;
  account_.stats.fast += static_cast<uint64_t>(std::popcount(alive));
  run_burst(node, program, view, burst, alive, 0, begin);
}

// Whether packets go on in the burst in which they leave `node`, and where: what a cycle brings back waits for the next
// round.
bool CpuRunner::takes_burst(const PlanNode& node, const PlanTarget& to) const {
  if (to.node == ~0u || to.node <= static_cast<size_t>(&node - plan_.nodes.data())) return false;
  const PlanNode& next = plan_.nodes[to.node];
  if (next.type == PlanNode::Type::kHost) return router_.elements[next.elements[0]]->takes_bursts();
  return next.type == PlanNode::Type::kSegment && !next.wide &&
         cpu_fast_kernel(walk_->program(next).stages[next.entries[to.input]].kind) != nullptr;
}

// The lanes of a burst, of which nobody else reads columns, at an input of a node that takes bursts.
void CpuRunner::enter(const PlanTarget& to, const BatchView& view, FastBurst& burst, uint32_t lanes) {
  const PlanNode& node = plan_.nodes[to.node];
  if (node.type == PlanNode::Type::kSegment) {
    const uint8_t from = node.entries[to.input];
    return run_burst(node, walk_->program(node), view, burst, lanes, from, from);
  }
  const unsigned e = node.elements[0];
  account_.arrive(e, static_cast<uint64_t>(std::popcount(lanes)),
                  sum_of(lanes, [&](uint32_t i) { return burst.bytes(i); }));
  const uint32_t passed = router_.elements[e]->burst(*walk_->batch, burst, lanes);
  const bool goes_on = passed != 0 && node.connects(0) && takes_burst(node, node.exits[0]);
  const uint32_t leaving = goes_on ? lanes & ~passed : lanes;
  if (leaving != 0) {
    code_.commit(view, burst, leaving, true);
    burst.fill_keys();
  }
  for_lanes(leaving, [&](uint32_t i) {
    const bool passes = (passed >> i & 1) != 0;
    const uint8_t output = passes ? uint8_t{0} : burst.output[i];
    Packet p;
    registers_of(view, burst, i, p);
    p.reason = passes ? DropReason::kNone : burst.reason[i];
    if (!node.connects(output)) return account_.drop(e, reason_to_leave(p.reason));
    store(view, burst.row[i], node.live_out[output], p);
    walk_->to(node.exits[output]).add(burst.row[i]);
  });
  if (goes_on) enter(node.exits[0], view, burst, passed);
}

// Runs the lanes of `alive`, which enter at stage `from`, from stage `begin` to the end of the program, and on through
// nodes that take bursts; the stages before `begin` have passed them.
void CpuRunner::run_burst(const PlanNode& node, const Program& program, const BatchView& view, FastBurst& burst,
                          uint32_t alive, uint32_t from, uint32_t begin) {
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
  const auto takes = [&](uint8_t path) {
    return path != kPathDropped && path >= kPathExit && takes_burst(node, node.exits[path - kPathExit]);
  };
  const uint32_t last = (begin != from ? program.fast : burst_end(program, from)) - 1;
  // These go on in the burst: of one path, as what other lanes do there may change their columns.
  uint32_t on = 0;
  uint8_t on_path = kPathDropped;
  uint32_t counted = 0;
  uint64_t bytes = 0;
  for (uint32_t s = from; s <= last && alive != 0; ++s) {
    const StageSlot& slot = program.stages[s];
    if (s <= from + 1 || alive != counted || program.stages[s - 1].moves_extent != 0) {
      // The first stage of all sees what came; it trims the padding.
      bytes = s == 0 && begin != 0 ? sum_of(alive, [&](uint32_t i) { return burst.length[i]; })
                                   : sum_of(alive, [&](uint32_t i) { return burst.bytes(i); });
      counted = alive;
    }
    const uint32_t came = alive;
    if (s >= begin) alive = cpu_fast_kernel(slot.kind)(slot, burst, alive);
    uint32_t leaving = 0;
    for (uint32_t m = drops_others(slot) ? 0 : came & ~alive; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      const uint8_t path = slot.next[burst.output[lane] & 15];
      if (path == kPathDropped) continue;
      leaving |= m & (0u - m);
      if (s != last || burst.reason[lane] != DropReason::kNone || (on != 0 ? path != on_path : !takes(path))) continue;
      on_path = path;
      on |= m & (0u - m);
    }
    account_.stage(slot.element, came, bytes, came & ~alive & ~leaving, BurstLanes{*this, burst});
    leaving &= ~on;
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
    // What follows works on whole columns, and on all lanes in use at once where it can.
    if (s != last && alive != 0 && alive != burst.lanes()) {
      compress_on(isa_, burst, alive);
      alive = burst.lanes();
      counted = 0;
    }
  }
  const uint32_t next = tile.count != 0 ? from + 1 : last + 1;
  if (alive != 0) {
    const StageSlot& slot = program.stages[last];
    const uint8_t path = slot.next[0];
    // The rest of the program, or a later node, wants registers; of what looks at lengths it is the family alone.
    const bool exits = path != kPathDropped && path >= kPathExit;
    const FieldMask wanted = exits ? node.live_out[path - kPathExit] & ~(kFieldFrame | kFieldExtent) : FieldMask{0};
    const bool family = wanted != 0 && (wanted & ~(kFieldL3 | kFieldKey)) == 0 &&
                        plan_.nodes[node.exits[path - kPathExit].node].by_lengths;
    const bool registers = path != kPathDropped && (!exits || (wanted != 0 && !family));
    if (registers && on == 0 && takes(path)) {
      on = alive;
      on_path = path;
    } else {
      code_.commit(view, burst, alive, registers || family);
      if (family) for_lanes(alive, [&](uint32_t i) { view.key[burst.row[i]].family = burst.family; });
      if (path == kPathDropped) {
        account_.drop(slot.element, DropReason::kUnconnectedOutput, static_cast<uint64_t>(std::popcount(alive)));
      } else if (registers && !exits) {
        leave(alive, [&](uint32_t) { return path; });
      } else {
        const PlanTarget target = node.exits[path - kPathExit];
        if (registers) {
          burst.fill_keys();
          store_registers(view, burst, alive, node.live_out[path - kPathExit]);
          if (walk_->at_root()) add_rows(burst, alive, walk_->share->annotated);
        }
        Selection& to = walk_->to(target);
        add_rows(burst, alive, to);
        // Nothing changes the packets from here on.
        if (!registers && view.egress_note != nullptr && plan_.nodes[target.node].leaves_as_is) {
          code_.note_egress(view, burst, alive);
        }
      }
    }
  }
  if (tile.count != 0) {
    start_tile(tile);
    run_stages(program, node, tile, next, program.stage_count, false);
    finish_tile(node, view, tile);
  }
  if (on != 0) enter(node.exits[on_path - kPathExit], view, burst, on);
}

// Of three bursts, whichever family has them, two fill: four would leave the near cache no room for frames.
struct CpuRunner::BurstTurns {
  FastBurst* spare;
  FastBurst* waiting = nullptr;  // for what its lookups asked for
};

// Asks for what the lookups of `burst` need, at stages from `begin` to before `end`, and has it wait. finish(burst)
// ends the one that waited so far. `burst` is the one that fills next then, of the same family, as it was left.
template <typename Finish>
void CpuRunner::next_burst(const Program& program, uint32_t begin, uint32_t end, BurstTurns& turns, FastBurst*& burst,
                           const Finish& finish) {
  for (uint32_t s = begin; s < end; ++s) {
    const FastPrefetch prefetch = cpu_fast_prefetch(program.stages[s].kind);
    if (prefetch != nullptr) prefetch(program.stages[s], *burst);
  }
  if (turns.waiting != nullptr) {
    finish(*turns.waiting);
    turns.spare = turns.waiting;
  }
  turns.waiting = burst;
  burst = turns.spare;
  burst->family = turns.waiting->family;
}

// Takes packets that enter at the first stage through the segment in bursts: while one waits for what its lookups ask
// for, the next one of either family fills. Returns those that have to go by tiles.
Selection CpuRunner::run_segment_fast(const PlanNode& node, const Program& program, const BatchView& view,
                                      const Selection& packets) {
  BurstTurns turns{bursts_[2].get()};
  const auto finish = [&](FastBurst& burst) { finish_fast(node, program, view, burst, burst.lanes(), 1); };
  auto next = [&](FastBurst* burst) {
    next_burst(program, 1, program.fast, turns, burst, finish);
    return burst;
  };
  const Selection left = gather_bursts(view, packets, &program.stages[0], NextBurst::of(next));
  if (turns.waiting != nullptr) finish(*turns.waiting);
  return left;
}

// The same for packets that were parsed before, by other segments or whoever generated them: from `entry` on, with what
// is known of them. Returns those that have to go by tiles.
Selection CpuRunner::run_segment_parsed(const PlanNode& node, const Program& program, const BatchView& view,
                                        const Selection& packets, uint8_t entry) {
  const uint32_t end = burst_end(program, entry);
  Selection left;
  FastBurst *four = bursts_[0].get(), *six = bursts_[1].get();
  BurstTurns turns{bursts_[2].get()};
  four->family = 4;
  six->family = 6;
  four->clear();
  six->clear();
  const auto finish = [&](FastBurst& burst) {
    burst.hopped = burst.rewritten = burst.detailed = 0;
    burst.marked = burst.lanes();
    account_.stats.fast += burst.count;
    run_burst(node, program, view, burst, burst.lanes(), entry, entry);
  };
  const auto run = [&](FastBurst*& burst) {
    code_.close(*burst, true);
    next_burst(program, entry, end, turns, burst, finish);
    burst->clear();
  };
  packets.for_each([&](uint32_t row) {
    Packet p;
    view.load(row, node.live_in, p);
    if (!is_as_parsed(p)) {
      left.add(row);
      return;
    }
    FastBurst*& burst = p.key.family == 6 ? six : four;
    const uint32_t lane = burst->count;
    append_parsed(p, row, p.end, *burst);
    // What registers_of finds in the header by itself.
    const bool df = p.key.family == 4 && (burst->ip[lane][6] & 0x40) != 0;
    if (p.ip_flags == (df ? Headers::kDontFragment : 0)) burst->odd &= ~(uint64_t{1} << lane);
    burst->rule[lane] = p.rule;
    burst->next_hop[lane] = p.next_hop;
    burst->mark[lane] = p.mark;
    if (burst->count == FastBurst::kLanes) run(burst);
  });
  if (four->count != 0) run(four);
  if (six->count != 0) run(six);
  if (turns.waiting != nullptr) finish(*turns.waiting);
  return left;
}

}  // namespace sluice
