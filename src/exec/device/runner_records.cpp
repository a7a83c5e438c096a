// host only
// Segments whose packets go as keys.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

#include "base/assert.h"
#include "exec/device/runner.h"
#include "exec/device/trace.h"

namespace sluice {
namespace {

// The mark that a stage gives packets of a rule; 0 for a stage without rules.
template <typename Stage>
uint32_t mark_of_stage(const StageSlot& slot, uint32_t rule) {
  if constexpr (requires(const Stage& stage) { stage.actions.action(rule); }) {
    const Stage& stage = slot.get<Stage>();
    if (rule == 0 || stage.output_is_mark != 0) return 0;
    const AclAction action = stage.actions.action(rule);
    return action.verb == AclVerb::kMark ? action.mark : 0;
  } else {
    return 0;
  }
}

// The gateway of a next hop that a stage finds; 0: none, and for a stage without gateways.
template <typename Stage>
uint32_t gateway_of_stage(const StageSlot& slot, uint32_t next_hop) {
  if constexpr (requires(const Stage& stage) { stage.targets[next_hop].gateway; }) {
    const Stage& stage = slot.get<Stage>();
    return next_hop < stage.target_count ? stage.targets[next_hop].gateway : 0;
  } else {
    return 0;
  }
}

// The first that is not 0 of what the stages that a packet met have for `value`. `of`: by kind of stage.
using OfStage = uint32_t (*)(const StageSlot&, uint32_t value);
uint32_t first_of_met(std::span<const OfStage> of, const Offload& offload, const Program& program, uint32_t visited,
                      uint32_t value) {
  for (uint32_t bits = visited; bits != 0; bits &= bits - 1) {
    const StageSlot& slot = program.stages[offload.begin + static_cast<uint32_t>(std::countr_zero(bits))];
    if (const uint32_t found = of[slot.kind](slot, value); found != 0) return found;
  }
  return 0;
}

}  // namespace

DeviceRunner::DeviceRunner(const Plan& plan, CpuRunner& cpu, Account& account, WorkerDevice device,
                           std::span<const std::unique_ptr<Walk>> walks)
    : plan_(plan), cpu_(cpu), account_(account), device_(std::move(device)), counters_(plan.nodes.size()) {
  uint32_t records = 0;
  for (const auto& channels : {&device_.ipv4, &device_.others}) {
    for (const auto& channel : *channels) {
      if (channel != nullptr) records = std::max(records, channel->shape().capacity);
    }
  }
  records = std::min<uint32_t>(records, Batch::kMaxPackets);
  for (size_t w = 0; w < walks.size(); ++w) {
    const auto& walk = walks[w];
    if (!device_.pools.empty()) walk->in_flight[0].pool = &device_.pools[w];
    for (InFlight& a : walk->in_flight) {
      a.rows.resize(records + FastBurst::kLanes);
      a.paths.resize(records);
      for (auto* column : {&a.lengths, &a.ip_bytes, &a.hops}) column->resize(records + FastBurst::kLanes);
    }
  }
}

bool DeviceRunner::takes(size_t node) const {
  if (!(*device_.offloads)[node].on_device) return false;
  if (device_.ipv4[node] == nullptr || device_.ipv4[node]->failed()) return false;
  if (device_.others[node] != nullptr && device_.others[node]->failed()) return false;
  return walk_->snapshot->residents.size() > device_.index && walk_->snapshot->residents[device_.index] != nullptr;
}

bool DeviceRunner::start(size_t n, Selection* inputs) {
  if (crosses_as_frames(n)) return launch_frames(n, inputs);
  const PlanNode& node = plan_.nodes[n];
  const Offload& offload = (*device_.offloads)[n];
  const Program& program = walk_->program(node);
  const BatchView view = walk_->batch->view();
  DeviceCounters& counters = counters_[n];
  for (InFlight& a : walk_->in_flight) {
    a.channel = nullptr;
    a.applied = a.fast = 0;
  }
  TraceSpan trace;
  trace.begin("gather");
  // Keys that are made by parsing alone.
  const bool bursts = cpu_.takes_bursts() && offload.begin == 1 && program.fast >= offload.end && node.live_in == 0;
  const std::span<Selection> taken = cpu_.take_inputs(node, inputs);
  for (unsigned input = 0; bursts && input < node.inputs; ++input) {
    if (node.entries[input] == 0) taken[input] = launch_fast(n, view, Selection(taken[input]));
  }
  for (unsigned input = 0; input < node.inputs; ++input) {
    cpu_.gather(node, view, taken[input], node.entries[input], [&](Tile& tile) -> Tile& {
      cpu_.run_stages(program, node, tile, 0, offload.begin, false);
      for (uint32_t lane = 0; lane < tile.count; ++lane) {
        const uint8_t path = tile.path[lane];
        if (path < offload.begin || path >= offload.end) continue;
        if (send(n, offload, view, tile, lane)) {
          tile.path[lane] = kPathDropped;
          tile.dead |= uint32_t{1} << lane;  // not here any more
        } else {
          ++counters.on_host;
        }
      }
      cpu_.run_stages(program, node, tile, offload.begin, program.stage_count, false);
      cpu_.finish_tile(node, view, tile);
      return tile;
    });
  }
  trace.end();
  trace.begin("submit");
  bool any = false;
  const DeviceProgram& resident = walk_->snapshot->residents[device_.index]->programs[n];
  for (InFlight& a : walk_->in_flight) {
    if (a.channel == nullptr) continue;
    a.channel->submit(a.flight, resident);
    any = true;
  }
  return any;
}

// The flight for one packet, opened when it is the first; nullptr when there is no room.
InFlight* DeviceRunner::in_flight_for(size_t n, bool ipv4) {
  InFlight& a = walk_->in_flight[ipv4 ? 0 : 1];
  if (a.channel == nullptr) {
    RecordChannel* channel = (ipv4 ? device_.ipv4 : device_.others)[n].get();
    const uint32_t parity = walk_->snapshot->residents[device_.index]->parity;
    const auto records = static_cast<uint32_t>(std::min<size_t>(channel->options().records, a.paths.size()));
    if (!channel->open(a.flight, records, parity)) return nullptr;
    a.channel = channel;
  }
  return a.flight.count < a.flight.limit ? &a : nullptr;
}

// The device answers no more in time, but may go on with the records that it has, however late: what these name is not
// used again.
void DeviceRunner::give_up(const Offload& offload, InFlight& a) {
  const auto& resident = walk_->snapshot->residents[device_.index];
  if (device_.given_up.empty() || device_.given_up.back() != resident) device_.given_up.push_back(resident);
  if (offload.keys) return;
  // Frames as they came are nobody's but the host's; those that are listed may still be read.
  a.pool->given_up = true;
  if (a.lent || a.listed) walk_->share->given_up = true;
}

// Writes the packet's record. False: it has to stay on the host.
bool DeviceRunner::send(size_t n, const Offload& offload, const BatchView& view, Tile& tile, uint32_t lane) {
  const Packet& p = tile.packet[lane];
  const uint8_t path = tile.path[lane];
  // The device starts from cleared registers.
  if (path != offload.begin || (p.rule | p.mark | p.next_hop) != 0) return false;
  InFlight* a = in_flight_for(n, fits_key4(p.key));
  if (a == nullptr) return false;
  const uint32_t i = a->flight.count;
  cpu_.store(view, tile.index[lane], ~FieldMask{0}, p);
  a->rows[i] = static_cast<uint16_t>(tile.index[lane]);
  a->paths[i] = path;
  a->flight.put_key(p.key);
  return true;
}

bool DeviceRunner::poll(size_t n) {
  if (crosses_as_frames(n)) return collect_frames(n);
  const PlanNode& node = plan_.nodes[n];
  const Offload& offload = (*device_.offloads)[n];
  const Program& program = walk_->program(node);
  bool all = true;
  for (InFlight& a : walk_->in_flight) {
    if (a.channel == nullptr) continue;
    a.channel->poll(a.flight);
    // Whole tiles while more is to come: the stages behind are cheaper so.
    uint32_t ready = a.flight.ready;
    if (ready < a.flight.count) ready = a.applied + (ready - a.applied) / Tile::kLanes * Tile::kLanes;
    if (a.flight.failed) {
      ready = a.flight.count;
      give_up(offload, a);
    }
    if (ready != a.applied) apply(node, offload, program, a, ready);
    if (a.applied == a.flight.count) {
      a.channel->close(a.flight);
      a.channel = nullptr;
    } else {
      all = false;
    }
  }
  return all;
}

// Records [a.applied, ready) go on on the host; those past flight.ready are done here from the start.
void DeviceRunner::apply(const PlanNode& node, const Offload& offload, const Program& program, InFlight& a,
                         uint32_t ready) {
  const TraceRange trace("apply");
  const BatchView view = walk_->batch->view();
  DeviceCounters& counters = counters_of(node);
  Tile& tile = cpu_.tile();
  uint32_t source[Tile::kLanes];
  while (a.applied < ready) {
    const uint32_t n = std::min<uint32_t>(Tile::kLanes, ready - a.applied);
    // Records of the fast path that are done there; those that are left have no registers yet.
    const uint32_t gone = apply_fast(node, offload, program, view, a, n);
    tile.count = 0;
    const uint32_t all = n == Tile::kLanes ? ~uint32_t{0} : (uint32_t{1} << n) - 1;
    for (uint32_t left = all & ~gone; left != 0; left &= left - 1) {
      const uint32_t i = a.applied + static_cast<uint32_t>(std::countr_zero(left));
      const uint32_t lane = tile.count++;
      const bool fast = i < a.fast;
      tile.index[lane] = a.rows[i];
      tile.path[lane] = fast ? 0 : a.paths[i];
      source[lane] = i;
      view.load(a.rows[i], fast ? node.live_in : ~FieldMask{0}, tile.packet[lane]);
    }
    a.applied += n;
    if (tile.count == 0) continue;
    cpu_.start_tile(tile);
    cpu_.run_stages(program, node, tile, 0, offload.begin, false);
    uint32_t dead = 0;
    for (uint32_t lane = 0; lane < tile.count; ++lane) {
      const uint32_t i = source[lane];
      Packet& p = tile.packet[lane];
      if (i >= a.flight.ready) {
        ++counters.rescued;
        continue;
      }
      const uint32_t row = tile.index[lane];
      const Steps steps = take_key(offload, a.flight.key_result(i), row, p, program);
      if (steps.redo || steps.visited == 0) {
        ++counters.redone;
        continue;
      }
      ++counters.offloaded;
      note_device(row);
      const uint32_t last = offload.begin + static_cast<uint32_t>(std::bit_width(steps.visited)) - 1u;
      const StageSlot& slot = program.stages[last];
      tile.output[lane] = steps.output;
      tile.path[lane] = node.wide ? node.wide_path(steps.output) : slot.next[steps.output & 15];
      if (tile.path[lane] == kPathDropped) {
        drop(slot, row, p, p.reason);
        dead |= uint32_t{1} << lane;
      }
    }
    tile.dead = dead;
    cpu_.run_stages(program, node, tile, offload.begin, program.stage_count, false);
    cpu_.finish_tile(node, view, tile);
  }
}

// The mark of a packet whose result says that it has one: that of its rule in the one access list that it met.
uint32_t DeviceRunner::mark_by_rule(const Offload& offload, const Program& program, uint32_t visited, uint32_t rule) {
  static constexpr auto kMarks =
      AllStages::table<OfStage>([]<typename Stage>(TypeTag<Stage>) { return &mark_of_stage<Stage>; });
  return first_of_met(kMarks, offload, program, visited, rule);
}

// The gateway of a packet's next hop, which the one stage of those that it met gave that writes destinations, if it met
// it (plan_offloads).
uint32_t DeviceRunner::gateway_by_hop(const Offload& offload, const Program& program, uint32_t visited,
                                      uint32_t next_hop) {
  static constexpr auto kGateways =
      AllStages::table<OfStage>([]<typename Stage>(TypeTag<Stage>) { return &gateway_of_stage<Stage>; });
  return first_of_met(kGateways, offload, program, visited, next_hop);
}

// The rule of the access list among the stages that a packet met, of which there is one at most where rules are counted
// (plan_offloads), and the packet's length on arrival at the one that is counted.
struct DeviceRunner::MetPacket {
  const CpuRunner& cpu;
  uint32_t its_row;
  const Packet& p;
  uint32_t its_rule, bytes;
  static constexpr bool kRecords = true;
  uint32_t rule(uint32_t) const { return its_rule; }
  uint32_t length(uint32_t) const { return bytes; }
  static uint32_t near(LoggedRules::Range) { return 1; }
  void log(uint32_t, LoggedPacket& packet) const {
    cpu.fill_logged(packet, its_row, p.key, bytes, p.end - std::min<uint32_t>(p.end, p.l3));
  }
  DropReason reason(uint32_t) const { return p.reason; }
  uint32_t row(uint32_t) const { return its_row; }
  uint32_t next_hop(uint32_t) const { return p.next_hop; }
};

Steps DeviceRunner::take_key(const Offload& offload, uint64_t word, uint32_t row, Packet& p, const Program& program) {
  KeyResult r = unpack_result(word);
  r.steps.redo |= r.marked && offload.marks_lost;
  if (r.steps.redo || r.steps.visited == 0) return r.steps;
  if (r.marked) p.mark = mark_by_rule(offload, program, r.steps.visited, r.rule);
  count_visits(program, offload.begin, r.steps.visited, nullptr, MetPacket{cpu_, row, p, r.rule, p.length()});
  if ((offload.writes & kFieldRule) != 0) p.rule = r.rule;
  if ((offload.writes & kFieldNextHop) != 0) p.next_hop = r.next_hop;
  if ((offload.writes & kFieldDestination) != 0) {
    if (const uint32_t gateway = gateway_by_hop(offload, program, r.steps.visited, r.next_hop); gateway != 0)
      p.key.dst_lo = gateway;
  }
  if (r.steps.reason != DropReason::kNone) p.reason = r.steps.reason;
  return r.steps;
}

// Sends common packets off, as far as there is room. Returns the others.
Selection DeviceRunner::launch_fast(size_t n, const BatchView& view, const Selection& packets) {
  InFlight* a = nullptr;
  Selection unsent;
  auto next = [&](FastBurst* burst) {
    if (a == nullptr) a = in_flight_for(n, true);
    const uint32_t room = a == nullptr ? 0 : std::min(burst->count, a->flight.limit - a->flight.count);
    if (room != 0) {
      // Whole columns: there is room for as many lanes behind the last.
      cpu_.code().keep(*burst, a->fast_from(a->fast));
      a->fast += room;
      a->flight.put_keys(burst->source, burst->destination, burst->ports, burst->rest, room);
    }
    for (uint32_t i = room; i < burst->count; ++i) unsent.add(burst->row[i]);
    return burst;
  };
  Selection left = cpu_.gather_bursts(view, packets, nullptr, CpuRunner::NextBurst::of(next));
  left.merge(unsent);
  return left;
}

// Takes the results of records [applied, applied + n), n at most 32, that left as columns and went the usual way
// through the device's stages. Returns the records that are done.
uint32_t DeviceRunner::apply_fast(const PlanNode& node, const Offload& offload, const Program& program,
                                  const BatchView& view, InFlight& a, uint32_t n) {
  const uint32_t there = std::min(a.fast, a.flight.ready);
  if (a.applied >= there) return 0;
  const uint32_t usual = (1u << (offload.end - offload.begin)) - 1;
  FastBurst& burst = cpu_.burst();
  cpu_.code().restore(a.fast_from(a.applied), std::min(n, there - a.applied), view, burst);
  if (program.stages[0].get<IpInputStage>().trim_padding == 0) cpu_.code().close(burst, false);
  uint64_t words[FastBurst::kLanes];
  std::memset(words + burst.count, 0, (FastBurst::kLanes - burst.count) * sizeof words[0]);
  a.flight.key_results(a.applied, burst.count, words);
  uint32_t passed = cpu_.code().take(words, usual, burst) & burst.lanes();
  uint32_t marked = FastBurst::lanes_where([&](uint32_t i) { return (words[i] & kMarkedResult) != 0; }) & passed;
  if (offload.marks_lost) {
    passed &= ~marked;
    marked = 0;
  }
  if (passed == 0) return 0;
  for_lanes(marked, [&](uint32_t i) { burst.mark[i] = mark_by_rule(offload, program, usual, burst.rule[i]); });
  std::byte keys[FastBurst::kLanes * sizeof(Key4)];
  burst.late_keys = a.flight.key_records(a.applied, burst.count, keys);
  cpu_.finish_fast(node, program, view, burst, passed, offload.end, marked);
  counters_of(node).offloaded += static_cast<uint64_t>(std::popcount(passed));
  return passed;
}

}  // namespace sluice
