// host only
// The worker's side of segments whose packets cross as frames: the device takes the frames of a batch in one piece,
// runs the whole segment, and gives back frames and a word per packet. What a word cannot say is done again here, from
// the frame as it came: the device works on a copy.
#include <algorithm>
#include <bit>
#include <cstring>

#include "exec/device/body.h"
#include "exec/device/trace.h"
#include "exec/rule_log.h"
#include "exec/worker.h"

namespace sluice {
namespace {

// Frames in their source's memory: whole lines, one behind the other.
constexpr FrameSlots kLentSlots{kFrameRegion, 64, 0, frame_stride(kFrameRegion)};
// Frames that are gathered: whole, or the first bytes, and room for a tag.
constexpr FrameSlots kGatheredSlots{kRecordRegion, 16, kVlanTagBytes, frame_stride(kRecordRegion + 16)};

uint64_t frame_record(uint64_t at, uint32_t bytes, uint32_t wire) {
  return at | uint64_t{bytes} << 32 | uint64_t{wire - bytes} << 48;
}
static_assert(std::endian::native == std::endian::little);

FrameRecord record_at(const Flight& flight, uint32_t i) {
  FrameRecord record;
  std::memcpy(&record, reinterpret_cast<const std::byte*>(flight.in) + size_t{i} * sizeof record, sizeof record);
  return record;
}

}  // namespace

bool Worker::lies_in_source(const uint8_t* frame) const {
  const auto& lent = walk_->share->lent;
  const auto* at = reinterpret_cast<const std::byte*>(frame);
  return !lent.empty() && at >= lent.data() && at < lent.data() + lent.size();
}

// Frames that lie in their source's memory, which nobody may write to, get memory of the job's own.
void Worker::own_frames(const PlanNode& node, Selection& packets) {
  if (walk_->share->lent.empty() || walk_->batch != walk_->root) return;
  const BatchView view = walk_->batch->view();
  const auto room = [](uint32_t end) { return (size_t{kHeadroom} + end + kTailroom + 63) / 64 * 64; };
  size_t bytes = 0;
  packets.for_each([&](uint32_t row) {
    if (lies_in_source(view.frame[row])) bytes += room(view.extent[row].end);
  });
  if (bytes == 0) return;
  auto made = Buffer::allocate(bytes);
  if (!made) {
    Selection lost;
    packets.for_each([&](uint32_t row) {
      if (lies_in_source(view.frame[row])) lost.add(row);
    });
    lost.for_each([&](uint32_t row) { drop_row(node.elements[0], *walk_->batch, row, DropReason::kNoBuffer); });
    packets.subtract(lost);
    return;
  }
  auto* to = reinterpret_cast<uint8_t*>(made->data());
  packets.for_each([&](uint32_t row) {
    if (!lies_in_source(view.frame[row])) return;
    std::memcpy(to + kHeadroom, view.frame[row], view.extent[row].end);
    view.frame[row] = to + kHeadroom;
    to += room(view.extent[row].end);
  });
  walk_->share->own_frames.push_back(std::move(*made));
}

// Whether packets that leave a segment so need nothing any more but to be sent.
bool Worker::only_sent(const PlanNode& node, uint8_t path) const {
  if (path == kPathDropped || path < kPathExit) return false;
  const PlanNode& target = plan_.nodes[node.exits[path - kPathExit].node];
  return target.type == PlanNode::Type::kSink && target.leaves_as_is &&
         (node.live_out[path - kPathExit] & ~(kFieldFrame | kFieldExtent)) == 0;
}

// Packets of a segment of frames that the host runs.
void Worker::run_on_host(const PlanNode& node, Selection* inputs, Selection packets) {
  own_frames(node, packets);
  if (packets.empty()) return;
  // What a cycle has brought here meanwhile waits for its turn.
  const Selection others = inputs[0];
  inputs[0] = packets;
  run_segment(node, inputs);
  inputs[0].merge(others);
}

// Notes frames that lie one behind the other in their source's memory: one range of it crosses. Returns the others.
Selection Worker::put_lent(InFlight& a, const BatchView& view, const Selection& packets, SlabDriver::Range& range) {
  Flight& flight = a.flight;
  const uint8_t* first = nullptr;
  const std::span<std::byte> arena = walk_->batch->arena();
  // One that was exchanged for another is out of the device's reach.
  if (device_.pinned->device_address(reinterpret_cast<const uint8_t*>(arena.data()), arena.size()) == nullptr) {
    return packets;
  }
  const size_t room = std::min(arena.size(), a.pool->device->size());
  auto* records = reinterpret_cast<uint64_t*>(flight.in);
  const auto crosses = [&](const uint8_t* from, uint64_t bytes, uint32_t longest) {
    range.host = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(from));
    range.bytes = bytes;
    range.to = walk_->batch->arena().data();
    range.host_there = device_.pinned->device_address(from, bytes);
    range.to_there = device_.pinned->device_address(reinterpret_cast<const uint8_t*>(range.to), bytes);
    range.slots = kLentSlots;
    range.slots.stride = static_cast<uint16_t>(frame_stride(kLentSlots.room(longest)));
  };
  // Most often all of a batch crosses, as the source lent it.
  if (packets.count() == view.count && view.count <= flight.limit) {
    const uint32_t count = view.count;
    uint8_t* const* const frames = view.frame;
    const Extent* const extents = view.extent;
    const uint8_t* const begin = frames[0];
    uint32_t most = 0, most_longer = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t bytes = extents[i].end, longer = extents[i].wire_end - bytes;
      most = std::max(most, bytes);
      most_longer = std::max(most_longer, longer);
      records[i] = frame_record(static_cast<uint64_t>(frames[i] - begin), bytes, extents[i].wire_end);
    }
    const uint64_t bytes =
        static_cast<uint64_t>(frames[count - 1] - begin) + (uint64_t{extents[count - 1].end} + 63) / 64 * 64;
    if (most <= kFrameRegion && most_longer <= UINT16_MAX && bytes <= room && lies_in_source(begin) &&
        lies_in_source(frames[count - 1])) {
      flight.count = count;
      a.dense = true;
      crosses(begin, bytes, most);
      return {};
    }
  }
  uint64_t end = 0;
  uint32_t n = 0, longest = 0;
  Selection left;
  packets.for_each([&](uint32_t row) {
    const uint8_t* frame = view.frame[row];
    const Extent& extent = view.extent[row];
    if (first == nullptr) first = frame;
    const uint64_t at = static_cast<uint64_t>(frame - first);
    const uint64_t behind = at + (uint64_t{extent.end} + 63) / 64 * 64;
    const bool fits = at >= end && behind <= room && extent.end <= kFrameRegion && (at & 63) == 0 &&
                      extent.wire_end - extent.end <= UINT16_MAX && n < flight.limit;
    if (!fits || !lies_in_source(frame)) [[unlikely]] {
      left.add(row);
      return;
    }
    records[n] = frame_record(at, extent.end, extent.wire_end);
    a.rows[n++] = static_cast<uint16_t>(row);
    end = behind;
    longest = std::max(longest, extent.end);
  });
  flight.count = n;
  if (n == 0) return left;
  crosses(first, end, longest);
  return left;
}

// Gathers frames, or their first bytes, into the flight's memory. Returns those that do not fit.
Selection Worker::put_gathered(InFlight& a, const BatchView& view, const Selection& packets, SlabDriver::Range& range) {
  Flight& flight = a.flight;
  FlightFrames& pool = *a.pool;
  auto* records = reinterpret_cast<uint64_t*>(flight.in);
  auto* to = reinterpret_cast<uint8_t*>(pool.host->host());
  const size_t room = pool.host->size();
  constexpr FrameSlots slots = kGatheredSlots;
  size_t used = 0;
  uint32_t n = 0, longest = 0;
  Selection left;
  packets.for_each([&](uint32_t row) {
    const Extent& extent = view.extent[row];
    const uint8_t* frame = view.frame[row];
    const uint32_t bytes = slots.crossing(extent.end), slot = slots.room(extent.end);
    const bool fits = extent.data == 0 && extent.end <= UINT16_MAX && extent.wire_end - extent.end <= UINT16_MAX &&
                      n < flight.limit && used + slot <= room &&
                      (extent.end <= slots.region || headers_fit_region(frame, extent.end));
    if (!fits) [[unlikely]] {
      left.add(row);
      return;
    }
    std::memcpy(to + used, frame, bytes);
    records[n] = frame_record(used, extent.end, extent.wire_end);
    a.rows[n++] = static_cast<uint16_t>(row);
    used += slot;
    longest = std::max(longest, slot);
  });
  flight.count = n;
  if (n == 0) return left;
  pool.used = static_cast<uint32_t>(used);
  range.host = reinterpret_cast<std::byte*>(to);
  range.bytes = used;
  range.to = range.host;
  range.host_there = range.to_there = pool.host->device();
  range.slots = slots;
  range.slots.stride = static_cast<uint16_t>(frame_stride(longest));
  return left;
}

// False: nothing is on its way.
bool Worker::launch_frames(size_t n, Selection* inputs) {
  const PlanNode& node = plan_.nodes[n];
  InFlight& a = walk_->in_flight[0];
  for (InFlight& each : walk_->in_flight) each.channel = nullptr;
  TraceSpan trace;
  trace.begin("gather");
  Selection left = inputs[0];
  inputs[0].clear();
  RecordChannel* channel = device_.ipv4[n].get();
  const auto& resident = walk_->snapshot->residents[device_.index];
  const auto most = static_cast<uint32_t>(std::min<size_t>(channel->options().records, a.paths.size()));
  if (!a.pool->given_up && channel->open(a.flight, most, resident->parity)) {
    SlabDriver::Range range;
    range.device = a.pool->device->device();
    const BatchView view = walk_->batch->view();
    a.dense = false;
    const bool lent = !walk_->share->lent.empty() && walk_->batch == walk_->root && walk_->round == 0;
    left = lent ? put_lent(a, view, left, range) : put_gathered(a, view, left, range);
    a.lent = lent;
    a.slots = range.slots;
    if (a.flight.count != 0) {
      a.channel = channel;
      trace.end();
      trace.begin("submit");
      channel->submit(a.flight, resident->programs[n], range);
    } else {
      channel->close(a.flight);
    }
  }
  device_counters_[n].on_host += left.count();
  run_on_host(node, inputs, left);
  return a.channel != nullptr;
}

// Takes the results, which come all at once. False: they have not.
bool Worker::collect_frames(size_t n) {
  const PlanNode& node = plan_.nodes[n];
  InFlight& a = walk_->in_flight[0];
  a.channel->poll(a.flight);
  if (!a.flight.failed && a.flight.ready < a.flight.count) return false;
  Selection again;
  if (a.flight.failed) {
    give_up((*device_.offloads)[n], a);
    for (uint32_t i = 0; i < a.flight.count; ++i) again.add(a.row_of(i));
    counters_of(node).rescued += a.flight.count;
  } else {
    const TraceRange trace("apply");
    again = take_frames(n, a);
    const uint32_t redone = again.count();
    counters_of(node).redone += redone;
    counters_of(node).offloaded += a.flight.count - redone;
  }
  a.channel->close(a.flight);
  a.channel = nullptr;
  run_on_host(node, &walk_->pending[first_input_[n]], again);
  return true;
}

// Whether a packet that met these stages is one whose record would be taken.
bool Worker::gives_record(const Program& program, uint32_t visited, uint32_t rule) const {
  if (walk_->snapshot->logs.empty()) return false;
  for (uint32_t bits = visited; bits != 0; bits &= bits - 1) {
    const LoggedRules* const logs = logs_at(program.stages[std::countr_zero(bits)]);
    if (logs != nullptr && logs->has(rule) && logs->grants(rule)) return true;
  }
  return false;
}

// Returns the packets that are to be done again.
Selection Worker::take_frames(size_t n, InFlight& a) {
  const PlanNode& node = plan_.nodes[n];
  const Offload& offload = (*device_.offloads)[n];
  const Program& program = walk_->snapshot->programs[node.program];
  const BatchView view = walk_->batch->view();
  const Flight& flight = a.flight;
  const bool detail = offload.shape.key_out != 0;
  const auto* results = reinterpret_cast<const uint64_t*>(flight.out);
  const auto* blocks = reinterpret_cast<const FrameBlock*>(results + flight.count);  // without detail
  const uint64_t usual = usual_stages(offload.end);
  const auto word_of = [&](uint32_t i) {
    if (detail) return results[2 * size_t{i}];
    const FrameBlock& block = blocks[i / FrameBlock::kRecords];
    return block.is_usual(i) ? usual | uint64_t{block.ports[i % FrameBlock::kRecords]} << 48 : results[i];
  };
  const uint8_t usual_path = program.stages[offload.end - 1].next[0];
  const auto to_path = [&](uint8_t path) -> Selection& {
    const PlanTarget target = node.exits[path - kPathExit];
    walk_->dirty[target.node] = 1;
    return walk_->pending[first_input_[target.node] + target.input];
  };
  auto* const back =
      reinterpret_cast<uint8_t*>(a.lent ? walk_->batch->arena().data() : static_cast<std::byte*>(a.pool->host->host()));
  // What came back of a frame takes its place, or is put there.
  const auto place = [&](uint32_t row, const FrameRecord& record, uint64_t word) {
    const int32_t moved = static_cast<int8_t>(word >> 29 & 0xff);
    const uint32_t cut = static_cast<uint32_t>(word >> 37) & kFrameMostCut;
    const uint32_t end = record.bytes - cut;
    const uint32_t wire_end = cut != 0 ? end : uint32_t{record.bytes} + record.longer;
    Extent& extent = view.extent[row];
    if (a.lent) {
      view.frame[row] = back + record.at;
      if ((moved | static_cast<int32_t>(cut)) != 0) {
        extent.end = static_cast<uint32_t>(static_cast<int32_t>(end) - moved);
        extent.wire_end = static_cast<uint32_t>(static_cast<int32_t>(wire_end) - moved);
      }
    } else {
      const auto bytes = static_cast<int32_t>(a.slots.crossing(record.bytes)) - moved;
      if (offload.writes_frame && bytes > 0) {
        std::memcpy(view.frame[row] + moved, back + record.at, static_cast<size_t>(bytes));
      }
      extent.data = moved;
      extent.end = end;
      extent.wire_end = wire_end;
    }
    view.port[row] = static_cast<uint16_t>(word >> 48);
  };
  Selection again;
  uint64_t passed = 0, came = 0, cut = 0;
  Selection* const sent = !detail && only_sent(node, usual_path) ? &to_path(usual_path) : nullptr;
  // Whole words of a selection that went the usual way and keep their extents: their frames take the others' place.
  const auto* records = reinterpret_cast<const uint64_t*>(flight.in);
  static_assert(FrameBlock::kRecords == 64);
  const auto take_word = [&](uint32_t first) {
    const FrameBlock& block = blocks[first / 64];
    if ((block.usual[0] & block.usual[1]) != ~uint32_t{0}) return false;
    uint8_t** const frames = view.frame + first;
    for (uint32_t i = 0; i < 64; ++i) frames[i] = back + static_cast<uint32_t>(records[first + i]);
    std::memcpy(view.port + first, block.ports, sizeof block.ports);
    sent->or_word(first / 64, ~uint64_t{0});
    passed += 64;
    came += uint64_t{block.bytes[0]} + block.bytes[1];
    return true;
  };
  const bool by_words = sent != nullptr && a.lent && a.dense && walk_->share->followed.empty();
  for (uint32_t i = 0; i < flight.count; ++i) {
    if (by_words && i % 64 == 0 && i + 64 <= flight.count && take_word(i)) {
      i += 63;
      continue;
    }
    const uint64_t word = word_of(i);
    const FrameRecord record = record_at(flight, i);
    const uint32_t row = a.row_of(i);
    if (sent != nullptr && (word & kFrameStepBits) == usual) {
      note_device(row);
      place(row, record, word);
      sent->add(row);
      ++passed;
      came += record.bytes;
      cut += word >> 37 & kFrameMostCut;
      continue;
    }
    const FrameResult r = unpack_frame_result(word);
    if (r.steps.redo || r.steps.visited == 0) {
      again.add(row);
      continue;
    }
    const StageSlot& last = program.stages[std::bit_width(uint32_t{r.steps.visited}) - 1u];
    const uint8_t path = last.next[r.steps.output & 15];
    const bool dropped = path == kPathDropped;
    if (!dropped && !only_sent(node, path)) {
      again.add(row);
      continue;
    }
    uint32_t rule = 0, next_hop = 0;
    if (detail) {
      const uint64_t more = results[2 * size_t{i} + 1];
      rule = static_cast<uint32_t>(more);
      next_hop = static_cast<uint32_t>(more >> 32);
    }
    // A word has no five-tuple: the host, which does it again, records it.
    if (gives_record(program, r.steps.visited, rule)) {
      again.add(row);
      continue;
    }
    note_device(row);
    met_log_.logs = nullptr;
    // The first stage cuts padding off; behind one that moves the frame's beginning there is none.
    const uint32_t lengths[kMaxStages] = {record.bytes - r.cut};
    count_visits(program, 0, r.steps.visited, record.bytes, lengths, rule);
    if (met_log_.logs != nullptr) met_log_.logs->miss(id_, rule);
    if (dropped) {
      drop_at(last, r.steps.reason);
      note_fate(row, rule, next_hop, last.element,
                r.steps.reason == DropReason::kNone ? DropReason::kUnconnectedOutput : r.steps.reason);
      continue;
    }
    place(row, record, word);
    if (detail) {
      view.annotation[row].rule = rule;
      view.annotation[row].next_hop = next_hop;
      if (walk_->batch == walk_->root) walk_->share->annotated.add(row);
    }
    to_path(path).add(row);
  }
  for (uint32_t s = 0; passed != 0 && s < offload.end; ++s) {
    ElementCounters& counters = stats_.elements[program.stages[s].element];
    counters.packets += passed;
    counters.bytes += s == 0 ? came : came - cut;
  }
  return again;
}

}  // namespace sluice
