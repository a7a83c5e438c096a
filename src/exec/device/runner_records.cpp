// host only
// Segments whose packets go as records of their own: keys, headers, addresses.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/assert.h"
#include "exec/device/body.h"
#include "exec/device/runner.h"
#include "exec/device/trace.h"
#include "net/ipv4.h"
#include "net/ipv6.h"
#include "net/l4.h"
#include "net/link.h"

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

// Whether a header record carries what the stages may need of a packet's frame.
bool fits_header(const Offload& offload, const Packet& p) {
  const RecordShape& shape = offload.shape;
  if (p.data < 0) return false;
  // What counts from the packet's first byte has its place within the region.
  if (in_from(shape, p.data) + shape.in.span().to > int32_t{kRecordRegion}) return false;
  if (out_from(shape, p.data) + shape.out.span().to > int32_t{kRecordRegion}) return false;
  if (shape.in_by_packet != 0 || p.end <= kRecordRegion) return true;
  return !offload.whole_frames && p.data == 0 && p.l3 + 60u <= kRecordRegion && headers_fit_region(p.frame, p.end);
}

// Room for a frame as a batch has it.
size_t frame_room(uint32_t end) {
  return (static_cast<size_t>(kHeadroom) + end + kTailroom + 63) / 64 * 64;
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
  bool addresses = false;
  for (const Offload& o : *device_.offloads) {
    addresses |= o.on_device && !o.keys && o.shape.kind == RecordKind::kAddress && o.writes_frame;
  }
  for (size_t w = 0; w < walks.size(); ++w) {
    const auto& walk = walks[w];
    if (!device_.pools.empty()) walk->in_flight[0].pool = &device_.pools[w];
    for (InFlight& a : walk->in_flight) {
      a.rows.resize(records + FastBurst::kLanes);
      a.paths.resize(records);
      a.kept.resize(addresses ? records : 0);
      for (auto* column : {&a.lengths, &a.ip_bytes, &a.hops}) column->resize(records + FastBurst::kLanes);
      a.pooled.resize(device_.pools.empty() ? 0 : records);
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
    a.kept_used = 0;
    if (a.pool != nullptr) a.pool->used = 0;
  }
  TraceSpan trace;
  trace.begin("gather");
  // Records of one word, made by parsing alone.
  const bool bursts =
      cpu_.takes_bursts() && offload.keys && offload.begin == 1 && program.fast >= offload.end && node.live_in == 0;
  const std::span<Selection> taken = cpu_.take_inputs(node, inputs);
  for (unsigned input = 0; bursts && input < node.inputs; ++input) {
    if (node.entries[input] == 0) taken[input] = launch_fast(n, offload, view, Selection(taken[input]));
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
    SlabDriver::Range frames;
    if (a.pool != nullptr && a.pool->used != 0) {
      frames = {static_cast<std::byte*>(a.pool->host->host()), a.pool->used, a.pool->device->device(),
                offload.writes_frame};
    }
    a.channel->submit(a.flight, resident, frames);
    any = true;
  }
  return any;
}

// The flight for one packet, opened when it is the first; nullptr when there is no room.
InFlight* DeviceRunner::in_flight_for(size_t n, const Offload& offload, bool ipv4) {
  const bool other = offload.keys && !ipv4;
  InFlight& a = walk_->in_flight[other ? 1 : 0];
  if (a.channel == nullptr) {
    RecordChannel* channel = (other ? device_.others : device_.ipv4)[n].get();
    const uint32_t parity = walk_->snapshot->residents[device_.index]->parity;
    const auto records = static_cast<uint32_t>(std::min<size_t>(channel->options().records, a.paths.size()));
    if (!channel->open(a.flight, records, parity)) return nullptr;
    a.channel = channel;
  }
  return a.flight.count < a.flight.limit ? &a : nullptr;
}

// Copies what the stages may read of a frame behind the others of its flight. False: there is no room, or a device that
// was given up may still write there.
bool DeviceRunner::put_in_pool(const Offload& offload, const Packet& p, FlightFrames& pool, InFlight::Pooled& place) {
  if (pool.given_up) return false;
  const RecordShape& shape = offload.shape;
  // Where no stage moves the extent, nothing is pushed in front or appended behind.
  const bool moves = shape.moves != 0;
  auto end = static_cast<int32_t>(p.end);
  int32_t first = std::min(p.data, 0);
  int32_t before = moves ? kHeadroom : (-first + 15) / 16 * 16;
  uint32_t behind = moves ? kTailroom : 0;
  if (shape.in_by_packet != 0) {
    // Stages touch nothing else, whatever they push or strip.
    const ByteRange bytes = shape.in.span();
    first = std::max(p.data + bytes.from, -kHeadroom);
    end = std::max(std::min(p.data + bytes.to, end), first);
    before = -first;
    behind = 0;
  } else if (!offload.whole_frames && p.data == 0 && p.l3 + 60u <= kRecordRegion &&
             headers_fit_region(p.frame, p.end)) {
    end = std::min(end, int32_t{kRecordRegion});
  }
  const uint64_t need = static_cast<uint64_t>(int64_t{before} + end) + behind;
  if (pool.used + need > pool.host->size()) return false;
  place = {static_cast<int32_t>(pool.used) + before, first, end};
  std::memcpy(static_cast<std::byte*>(pool.host->host()) + (place.at + first), p.frame + first,
              static_cast<size_t>(end - first));
  pool.used = static_cast<uint32_t>((pool.used + need + 15) / 16 * 16);
  if (pool.used > pool.host->size()) pool.used = static_cast<uint32_t>(pool.host->size());
  return true;
}

// Keeps the bytes of a frame that the device may change.
void DeviceRunner::keep(const Offload& offload, const Packet& p, InFlight& a, uint32_t i) {
  InFlight::Kept& k = a.kept[i];
  k = {a.kept_used, -kHeadroom, p.end};
  if (offload.shape.out_by_packet != 0) {
    const ByteRange out = offload.shape.out.span();
    const auto end = static_cast<int32_t>(p.end);
    k.first = std::clamp(p.data + out.from, -kHeadroom, end);
    k.end = static_cast<uint32_t>(std::clamp(p.data + out.to, std::max(k.first, 0), end));
  } else if (!offload.edits_anywhere) {
    // Headers alone: from what the stages may push, before the first byte or before the network header, to where the
    // headers end, counted from either.
    const auto l3 = int32_t{p.l3};
    k.first = std::max(-kHeadroom, std::min(p.data, l3) - kMostPushed * offload.shape.moves);
    k.end = std::min(p.end, static_cast<uint32_t>(std::max(p.data, l3)) + kRecordRegion);
  }
  const auto bytes = static_cast<uint32_t>(static_cast<int32_t>(k.end) - k.first);
  if (a.kept_bytes.size() - a.kept_used < bytes) a.kept_bytes.resize(2 * (size_t{a.kept_used} + bytes));
  std::memcpy(a.kept_bytes.data() + a.kept_used, p.frame + k.first, bytes);
  a.kept_used += bytes;
}

// Gives a packet whose record was given up a frame of its own. Not a byte is read that the device may be changing.
// False: there is no memory.
bool DeviceRunner::move_frame(const Offload& offload, InFlight& a, uint32_t i, Packet& p) {
  if (a.own == nullptr) return false;
  const uint8_t* from = p.frame;
  p.frame = a.own + kHeadroom;
  a.own += frame_room(p.end);
  const auto copy = [&](const uint8_t* bytes, int32_t first, uint32_t end) {
    std::memcpy(p.frame + first, bytes, static_cast<size_t>(static_cast<int32_t>(end) - first));
  };
  if (!offload.writes_frame) {
    copy(from - kHeadroom, -kHeadroom, p.end);
    return true;
  }
  const InFlight::Kept& k = a.kept[i];
  std::memcpy(p.frame - kHeadroom, from - kHeadroom, static_cast<size_t>(k.first + kHeadroom));
  copy(a.kept_bytes.data() + k.at, k.first, k.end);
  copy(from + k.end, static_cast<int32_t>(k.end), p.end);
  return true;
}

// The device answers no more in time, but may go on with the records that it has, however late: what these name is not
// used again.
void DeviceRunner::give_up(const Offload& offload, InFlight& a) {
  const auto& resident = walk_->snapshot->residents[device_.index];
  if (device_.given_up.empty() || device_.given_up.back() != resident) device_.given_up.push_back(resident);
  if (!offload.keys && offload.shape.kind == RecordKind::kFrame) {
    // Frames as they came are nobody's but the host's; those that are listed may still be read.
    a.pool->given_up = true;
    if (a.lent || a.listed) walk_->share->given_up = true;
    return;
  }
  if (offload.keys || offload.shape.kind != RecordKind::kAddress) return;
  if (a.pooled_frames()) {
    a.pool->given_up = true;
    return;
  }
  JobShare& share = *walk_->share;
  share.given_up = true;
  const Extent* extents = walk_->batch->view().extent;
  size_t bytes = 0;
  for (uint32_t i = a.flight.ready; i < a.flight.count; ++i) bytes += frame_room(extents[a.rows[i]].end);
  auto own = Buffer::allocate(bytes);
  a.own = own ? reinterpret_cast<uint8_t*>(own->data()) : nullptr;
  if (own) share.own_frames.push_back(std::move(*own));
}

// Writes the packet's record. False: it has to stay on the host.
bool DeviceRunner::send(size_t n, const Offload& offload, const BatchView& view, Tile& tile, uint32_t lane) {
  const Packet& p = tile.packet[lane];
  const uint8_t path = tile.path[lane];
  uint8_t* device_frame = nullptr;
  if (offload.keys) {
    // The device starts from cleared registers.
    if (path != offload.begin || (p.rule | p.mark | p.next_hop) != 0) return false;
  } else if (offload.shape.kind == RecordKind::kHeader) {
    if (!fits_header(offload, p)) return false;
  } else if (!walk_->in_flight[0].pooled_frames()) {
    device_frame = device_.pinned->device_address(p.frame - kHeadroom, size_t{kHeadroom} + p.end + kTailroom);
    if (device_frame == nullptr) return false;
    device_frame += kHeadroom;
  }
  InFlight* a = in_flight_for(n, offload, fits_key4(p.key));
  if (a == nullptr) return false;
  Flight& flight = a->flight;
  const uint32_t i = flight.count;
  if (a->pooled_frames() && !offload.keys && offload.shape.kind == RecordKind::kAddress) {
    if (!put_in_pool(offload, p, *a->pool, a->pooled[i])) return false;
    // Of bytes in the frame's middle the pool may begin behind the frame's first.
    device_frame = reinterpret_cast<uint8_t*>(reinterpret_cast<intptr_t>(a->pool->device->device()) + a->pooled[i].at);
  }
  cpu_.store(view, tile.index[lane], ~FieldMask{0}, p);
  a->rows[i] = static_cast<uint16_t>(tile.index[lane]);
  a->paths[i] = path;
  if (offload.keys) {
    flight.put_key(p.key);
    return true;
  }
  Word* to = flight.record(i);
  auto put = [&](uint32_t w, const Word& word) { HostWords::store(to + w, word); };
  RegisterRecord r{};
  std::memcpy(&r.extent, &p.data, sizeof(Extent));
  std::memcpy(&r.annotation, &p.rule, sizeof(Annotation));
  r.path = path;
  PayloadWriter writer(flight.tag(i), put);
  writer.put(&r, sizeof r);
  if (offload.shape.kind == RecordKind::kAddress) {
    if (offload.writes_frame && !a->pooled_frames()) keep(offload, p, *a, i);
    const auto address = reinterpret_cast<uint64_t>(device_frame);
    writer.put(&address, sizeof address);
  }
  if (offload.shape.key_in != 0) writer.put(&p.key, kKeyBytes);
  if (offload.shape.kind == RecordKind::kHeader) {
    for (const ByteRange& range : offload.shape.in) {
      const int32_t from = in_from(offload.shape, p.data) + range.from;
      const int32_t there = std::clamp(static_cast<int32_t>(p.end) - from, 0, range.to - range.from);
      writer.put(p.frame + from, static_cast<uint32_t>(there));
      static constexpr uint8_t kZeros[kRecordRegion] = {};
      writer.put(kZeros, range.size() - static_cast<uint32_t>(there));
    }
  }
  writer.finish();
  ++flight.count;
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
        if (offload.keys || offload.shape.kind != RecordKind::kAddress || a.pooled_frames()) continue;
        if (move_frame(offload, a, i, p)) {
          view.frame[a.rows[i]] = p.frame;
        } else {
          drop(program.stages[tile.path[lane]], tile.index[lane], p, DropReason::kNoBuffer);
          tile.path[lane] = kPathDropped;
          dead |= uint32_t{1} << lane;
        }
        continue;
      }
      const uint32_t row = tile.index[lane];
      const Steps steps = offload.keys ? take_key(offload, a.flight.key_result(i), row, p, program)
                                       : take_registers(offload, a, i, row, p, program);
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
  using MarkOf = uint32_t (*)(const StageSlot&, uint32_t);
  static constexpr auto kMarks =
      AllStages::table<MarkOf>([]<typename Stage>(TypeTag<Stage>) { return &mark_of_stage<Stage>; });
  for (uint32_t bits = visited; bits != 0; bits &= bits - 1) {
    const StageSlot& slot = program.stages[offload.begin + static_cast<uint32_t>(std::countr_zero(bits))];
    if (const uint32_t mark = kMarks[slot.kind](slot, rule); mark != 0) return mark;
  }
  return 0;
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
  if (r.steps.reason != DropReason::kNone) p.reason = r.steps.reason;
  return r.steps;
}

Steps DeviceRunner::take_registers(const Offload& offload, const InFlight& a, uint32_t i, uint32_t row, Packet& p,
                                   const Program& program) {
  const Flight& flight = a.flight;
  Word words[kMaxWordsOut];
  const Word* from = flight.result(i);
  for (uint32_t w = 0; w < flight.words_out; ++w) words[w] = HostWords::load(from + w);
  PayloadReader reader(words);
  RegisterRecord r;
  reader.get(&r, sizeof r);
  Steps steps;
  steps.visited = r.visited;
  steps.output = r.path;
  steps.redo = r.redo != 0;
  if (steps.redo || steps.visited == 0) return steps;
  uint32_t lengths[kMaxStages] = {};
  reader.get(lengths, 4u * offload.shape.moves);
  const uint32_t came = p.length();
  const RecordShape& shape = offload.shape;
  const auto end = static_cast<int32_t>(p.end);
  const int32_t base = out_from(shape, p.data);
  std::memcpy(&p.data, &r.extent, sizeof(Extent));
  std::memcpy(&p.rule, &r.annotation, sizeof(Annotation));
  if (offload.shape.key_out != 0) reader.get(&p.key, kKeyBytes);
  count_visits(program, offload.begin, r.visited, lengths, MetPacket{cpu_, row, p, r.annotation.rule, came});
  if (shape.kind == RecordKind::kHeader && offload.writes_frame) {
    // In front, what was pushed there and no more.
    uint8_t bytes[kRecordRegion];
    static_assert(kRecordHeadroom <= int32_t{kRecordRegion});
    reader.get(bytes, shape.front);
    const int32_t pushed = base - p.data;
    if (pushed > 0) std::memcpy(p.frame + p.data, bytes + shape.front - pushed, static_cast<size_t>(pushed));
    for (const ByteRange& range : shape.out) {
      reader.get(bytes, range.size());
      const int32_t to = std::min(base + range.to, end);
      if (to > base + range.from)
        std::memcpy(p.frame + base + range.from, bytes, static_cast<size_t>(to - base - range.from));
    }
  }
  if (shape.kind == RecordKind::kAddress && offload.writes_frame && a.pooled_frames()) {
    const InFlight::Pooled& place = a.pooled[i];
    const auto put_back = [&](int32_t first, int32_t to) {
      if (to > first)
        std::memcpy(p.frame + first, static_cast<const std::byte*>(a.pool->host->host()) + (place.at + first),
                    static_cast<size_t>(to - first));
    };
    // Of what did not go, only what was pushed in front or appended behind can have changed.
    const int32_t first = std::min(p.data, place.first);
    if (shape.out_by_packet == 0)
      put_back(std::min(p.data, 0), place.end < end ? place.end : static_cast<int32_t>(p.end));
    for (const ByteRange& range : shape.out) {
      if (shape.out_by_packet != 0) put_back(std::max(base + range.from, first), std::min(base + range.to, place.end));
    }
  }
  steps.reason = p.reason;
  return steps;
}

// Sends common packets off, as far as there is room. Returns the others.
Selection DeviceRunner::launch_fast(size_t n, const Offload& offload, const BatchView& view, const Selection& packets) {
  InFlight* a = nullptr;
  Selection unsent;
  auto next = [&](FastBurst* burst) {
    if (a == nullptr) a = in_flight_for(n, offload, true);
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
