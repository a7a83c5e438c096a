// host only
// Segments whose packets cross as frames: the device takes the frames of a batch in one piece,
// runs the whole segment, and gives back frames and a word per packet. What a word cannot say is done again here, from
// the frame as it came: the device works on a copy.
#include <algorithm>
#include <cstring>

#include "exec/device/body.h"
#include "exec/device/runner.h"
#include "exec/device/trace.h"

namespace sluice {
namespace {

// Frames in their source's memory: padded to kLentUnit, one behind the other. They stay there but for what is edited,
// and of long ones the headers alone cross.
constexpr FrameSlots kLentSlots{kFrameRegion, kLentUnit, 0, frame_stride(kFrameRegion), kFrameEdited};
// Frames that are gathered: whole, or the first bytes, and room for a tag.
constexpr FrameSlots kGatheredSlots{kRecordRegion, 16, kVlanTagBytes, frame_stride(kRecordRegion + 16)};
// Frames that stay where a batch has them: heads come back, and those that move, with a tag more, in places of their
// own.
constexpr FrameSlots kListedSlots{kFrameRegion,  16, kVlanTagBytes, frame_stride(kFrameMostRoom), kFrameEdited,
                                  kFrameMostRoom};

FrameRecord frame_record(uint64_t at, uint32_t bytes, uint32_t wire) {
  return {static_cast<uint32_t>(at), static_cast<uint16_t>(bytes), static_cast<uint16_t>(wire - bytes)};
}

}  // namespace

// Whether packets that leave a segment so need nothing any more but to be sent.
bool DeviceRunner::only_sent(const PlanNode& node, uint8_t path) const {
  if (path == kPathDropped || path < kPathExit) return false;
  const PlanNode& target = plan_.nodes[node.exits[path - kPathExit].node];
  return target.type == PlanNode::Type::kSink && target.leaves_as_is &&
         (node.live_out[path - kPathExit] & ~(kFieldFrame | kFieldExtent)) == 0;
}

// Whether packets that leave a segment so go on to what looks at their lengths and registers alone.
bool DeviceRunner::only_ordered(const Offload& offload, uint8_t path) {
  return path != kPathDropped && path >= kPathExit && path - kPathExit < 64 &&
         (offload.ordered_exits >> (path - kPathExit) & 1) != 0;
}

// Packets of a segment of frames that the host runs. `given_up`: by a device that may still read them where they lie.
void DeviceRunner::run_on_host(const PlanNode& node, Selection* inputs, Selection packets, bool given_up) {
  if (packets.empty()) return;
  cpu_.own_frames(node, packets, given_up);
  if (packets.empty()) return;
  // What a cycle has brought here meanwhile waits for its turn.
  const Selection others = inputs[0];
  inputs[0] = packets;
  cpu_.run(node, inputs);
  inputs[0].merge(others);
}

// A range of the source's memory crosses, and what the device makes of it comes to the batch's arena: `heads` bytes of
// heads of `head` bytes, then the frames, where `from` is the first byte. None is longer than `longest`.
void DeviceRunner::cross_lent(const uint8_t* from, uint64_t bytes, uint32_t head, uint32_t heads, uint32_t longest,
                              SlabDriver::Range& range) const {
  range.host = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(from));
  range.bytes = bytes;
  range.heads = walk_->batch->arena().data();
  range.to = range.heads + heads;
  range.host_there = device_.pinned->device_address(from, bytes);
  uint8_t* const there = device_.pinned->device_address(reinterpret_cast<const uint8_t*>(range.heads), heads + bytes);
  range.heads_there = there;
  range.to_there = there + heads;
  range.slots = kLentSlots;
  range.slots.head = static_cast<uint16_t>(head);
  range.slots.stride = static_cast<uint16_t>(frame_stride(kLentSlots.room(longest)));
  range.frames_there = device_.frames_there;
  if (range.frames_there) return;
  // With memory on the device they cross by a block of the host's, which is copied there.
  FlightFrames& pool = *walk_->in_flight[0].pool;
  if (pool.device == nullptr) return;
  std::memcpy(pool.host->host(), range.host, bytes);
  range.host = static_cast<std::byte*>(pool.host->host());
  range.device = range.host_there = pool.device->device();
}

// How many bytes of frames that are lent, and of their heads, may cross; 0: none.
size_t DeviceRunner::lent_room() const {
  const std::span<std::byte> arena = walk_->batch->arena();
  // One that was exchanged for another is out of the device's reach.
  const bool reached =
      device_.pinned->device_address(reinterpret_cast<const uint8_t*>(arena.data()), arena.size()) != nullptr;
  if (!reached) return 0;
  const FlightFrames& pool = *walk_->in_flight[0].pool;
  return pool.device == nullptr || device_.frames_there ? arena.size() : std::min(arena.size(), pool.host->size());
}

// Packets of one class, each where its source lent it, in the device's memory: their records go with the flight, and
// what becomes of them lies close and stays there. False: there is no room for it.
bool DeviceRunner::put_sparse(InFlight& a, SlabDriver::Range& range) const {
  const Batch& batch = *walk_->batch;
  const LentRows& rows = *batch.unfilled();
  const std::span<const std::byte> source = walk_->share->lent;
  const uint32_t count = batch.size();
  const uint32_t head = frame_head(rows.deepest), heads = heads_bytes(count, head);
  FrameSlots slots = kLentSlots;
  slots.apart = kFrameMostRoom;
  if (!device_.frames_there || a.pool->stays == nullptr || count > a.flight.limit) return false;
  if (heads + size_t{count} * slots.apart > a.pool->stays->size() ||
      reinterpret_cast<const std::byte*>(rows.memory) != source.data())
    return false;
  range.host = const_cast<std::byte*>(source.data());
  range.host_there = device_.pinned->device_address(rows.memory, source.size());
  if (range.host_there == nullptr) return false;
  std::memcpy(a.flight.in, rows.records, count * sizeof(FrameRecord));
  slots.head = static_cast<uint16_t>(head);
  slots.stride = static_cast<uint16_t>(frame_stride(slots.room(rows.longest)));
  range.slots = slots;
  range.frames_there = range.stays = true;
  range.heads_there = a.pool->stays->device();
  range.to_there = static_cast<std::byte*>(range.heads_there) + heads;
  a.sparse = a.stays = true;
  a.records = reinterpret_cast<const FrameRecord*>(a.flight.in);
  a.flight.count = count;
  return true;
}

// A whole batch as its source lent it: nothing of it is read here, and the device has the source's own records. False:
// it does not fit.
bool DeviceRunner::put_unfilled(InFlight& a, const RecordShape& shape, SlabDriver::Range& range) const {
  const Batch& batch = *walk_->batch;
  const LentRows& rows = *batch.unfilled();
  const uint32_t count = batch.size();
  range.records = reinterpret_cast<const FrameRecord*>(
      device_.pinned->device_address(reinterpret_cast<const uint8_t*>(rows.records), count * sizeof(FrameRecord)));
  if (range.records == nullptr) return false;
  const FrameRecord &first = rows.records[0], &last = rows.records[count - 1];
  const uint64_t bytes = uint64_t{last.at} - first.at + lent_bytes(last.bytes);
  const uint32_t head = frame_head(rows.deepest), heads = heads_bytes(count, head);
  const uint32_t tails = shape.tails != 0 ? count * (kLentTailRoom + kLentTail) : 0;
  if (count > a.flight.limit || heads + bytes + tails > lent_room()) return false;
  cross_lent(rows.memory + first.at, bytes, head, heads, rows.longest, range);
  range.first = first.at;
  a.back_bytes = heads + bytes;
  if (a.pool->stays != nullptr && a.back_bytes <= a.pool->stays->size()) {
    a.stays = range.stays = true;
    range.heads_there = a.pool->stays->device();
    range.to_there = static_cast<std::byte*>(range.heads_there) + heads;
  }
  // Whole frames come faster by a copy; for which to wait costs the host a microsecond, so that a small batch reads its
  // own over the bus, as blocks read what they have to parse.
  if (shape.sums != 0 && device_.copies_runs && !range.frames_there && bytes >= kRunBytes / 4) {
    range.run = run_of(rows, count);
  }
  a.records = rows.records;
  a.flight.count = count;
  return true;
}

// Notes frames that lie one behind the other in their source's memory: one range of it crosses. Returns the others.
Selection DeviceRunner::put_lent(InFlight& a, const RecordShape& shape, const BatchView& view, const Selection& packets,
                                 SlabDriver::Range& range) {
  Flight& flight = a.flight;
  const uint32_t each = shape.tails != 0 ? kLentTailRoom : 0;
  const uint32_t heads = heads_bytes(std::min(flight.limit, packets.count()), kFrameEdited);
  const size_t room = lent_room();
  auto* records = reinterpret_cast<FrameRecord*>(flight.in);
  const uint8_t* first = nullptr;
  uint64_t end = 0;
  uint32_t n = 0, longest = 0;
  Selection left;
  packets.for_each([&](uint32_t row) {
    const uint8_t* frame = view.frame[row];
    const Extent& extent = view.extent[row];
    if (first == nullptr) first = frame;
    const uint64_t at = static_cast<uint64_t>(frame - first);
    const uint64_t behind = at + lent_bytes(extent.end);
    const bool crosses = extent.end <= kFrameRegion || shape.sums != 0;
    const bool fits = at >= end && heads + behind + uint64_t{n + 1} * each <= room && crosses && at % kLentUnit == 0 &&
                      extent.end <= UINT16_MAX && extent.wire_end - extent.end <= UINT16_MAX && n < flight.limit;
    if (!fits || !cpu_.lies_in_source(frame)) [[unlikely]] {
      left.add(row);
      return;
    }
    records[n] = frame_record(at, extent.end, extent.wire_end);
    a.rows[n++] = static_cast<uint16_t>(row);
    end = behind;
    longest = std::max(longest, extent.end);
  });
  flight.count = n;
  if (n != 0) cross_lent(first, end, kFrameEdited, heads, longest, range);
  return left;
}

// Gathers frames, or their first bytes, into the flight's memory. Returns those that do not fit.
// With memory on the device they are copied there, and come back as those that are listed.
Selection DeviceRunner::put_gathered(InFlight& a, const BatchView& view, const Selection& packets,
                                     SlabDriver::Range& range) {
  Flight& flight = a.flight;
  FlightFrames& pool = *a.pool;
  auto* records = reinterpret_cast<FrameRecord*>(flight.in);
  auto* to = reinterpret_cast<uint8_t*>(pool.host->host());
  FrameSlots slots = kGatheredSlots;
  size_t room = pool.host->size();
  if (pool.device != nullptr) {
    slots.head = kListedSlots.head;
    slots.apart = kListedSlots.apart;
    const size_t back = heads_bytes(flight.limit, slots.head) + size_t{flight.limit} * slots.apart;
    room = room < back ? 0 : (room - back) / 64 * 64;
  }
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
  range.host = reinterpret_cast<std::byte*>(to);
  range.bytes = used;
  range.to = range.host;
  range.host_there = range.to_there = pool.host->device();
  if (pool.device != nullptr) {
    range.device = range.host_there = pool.device->device();
    comes_back(pool, room, heads_bytes(flight.limit, slots.head), range);
  }
  range.slots = slots;
  range.slots.stride = static_cast<uint16_t>(frame_stride(longest));
  return left;
}

// Heads come to the flight's memory from `at` on, and what is longer behind them.
void DeviceRunner::comes_back(const FlightFrames& pool, size_t at, uint32_t heads, SlabDriver::Range& range) {
  range.heads = static_cast<std::byte*>(pool.host->host()) + at;
  range.heads_there = static_cast<std::byte*>(pool.host->device()) + at;
  range.to = range.heads + heads;
  range.to_there = static_cast<std::byte*>(range.heads_there) + heads;
}

// Notes frames where they lie, in memory that the device reaches, which reads their first bytes there; what it makes of
// them comes to the flight's memory. Returns those that it does not reach so.
Selection DeviceRunner::put_listed(InFlight& a, const BatchView& view, const Selection& packets,
                                   SlabDriver::Range& range) const {
  Flight& flight = a.flight;
  FlightFrames& pool = *a.pool;
  auto* records = reinterpret_cast<FrameRecord*>(flight.in);
  constexpr FrameSlots slots = kListedSlots;
  const uint32_t heads = heads_bytes(std::min(flight.limit, packets.count()), slots.head);
  const size_t room = pool.host->size() < heads ? 0 : (pool.host->size() - heads) / slots.apart;
  const auto most = static_cast<uint32_t>(std::min<size_t>(flight.limit, room));
  const PinnedRanges::Range* pinned = nullptr;
  const uint8_t* base = nullptr;
  uint64_t all = 0, bytes = 0;
  uint32_t n = 0, longest = 0;
  Selection left;
  packets.for_each([&](uint32_t row) {
    const uint8_t* const frame = view.frame[row];
    const Extent& extent = view.extent[row];
    if (pinned == nullptr && n == 0 && (pinned = device_.pinned->range_of(frame)) != nullptr) {
      base = reinterpret_cast<const uint8_t*>(pinned->host);
      all = pinned->bytes;
    }
    // Below the base it wraps, and is past all. What the last load of a frame reads behind it is there: kTailroom.
    const uint64_t at = reinterpret_cast<uintptr_t>(frame) - reinterpret_cast<uintptr_t>(base);
    const bool fits = base != nullptr && at < all && all - at >= extent.end + kTailroom && at <= UINT32_MAX &&
                      (reinterpret_cast<uintptr_t>(pinned->device) + at) % kLentUnit == 0 && extent.data == 0 &&
                      extent.end <= UINT16_MAX && extent.wire_end - extent.end <= UINT16_MAX && n < most;
    if (!fits) [[unlikely]] {
      left.add(row);
      return;
    }
    records[n] = frame_record(at, extent.end, extent.wire_end);
    a.rows[n++] = static_cast<uint16_t>(row);
    bytes += slots.crossing(extent.end);
    longest = std::max(longest, slots.room(extent.end));
  });
  flight.count = n;
  if (n == 0) return left;
  range.host = pinned->host;
  range.bytes = bytes;
  range.host_there = pinned->device;
  comes_back(pool, 0, heads, range);
  range.slots = slots;
  range.slots.stride = static_cast<uint16_t>(frame_stride(longest));
  return left;
}

// False: nothing is on its way.
bool DeviceRunner::launch_frames(size_t n, Selection* inputs) {
  const PlanNode& node = plan_.nodes[n];
  InFlight& a = walk_->in_flight[0];
  for (InFlight& each : walk_->in_flight) each.channel = nullptr;
  TraceSpan trace;
  trace.begin("gather");
  Batch& batch = *walk_->batch;
  Selection left = inputs[0];
  inputs[0].clear();
  RecordChannel* channel = device_.ipv4[n].get();
  const auto& resident = walk_->snapshot->residents[device_.index];
  const auto most = static_cast<uint32_t>(std::min<size_t>(channel->options().records, a.paths.size()));
  const RecordShape& shape = (*device_.offloads)[n].shape;
  if (!a.pool->given_up && channel->open(a.flight, most, resident->parity)) {
    SlabDriver::Range range;
    a.listed = a.stays = a.sparse = false;
    a.lent = !walk_->share->lent.empty() && walk_->at_root() && walk_->round == 0;
    a.dense = batch.unfilled() != nullptr && left.count() == batch.size() &&
              (put_unfilled(a, shape, range) || put_sparse(a, range));
    if (a.dense) {
      left.clear();
    } else {
      const BatchView view = batch.view();
      if (a.lent) {
        left = put_lent(a, shape, view, left, range);
      } else {
        // What is gathered has the first bytes of a frame alone.
        const bool whole = shape.sums != 0;
        if (device_.lists || whole) {
          const Selection all = left;
          left = put_listed(a, view, all, range);
          // Where it reaches none: frames of another batch's memory, or of a port's.
          a.listed = a.flight.count != 0;
          if (!a.listed) left = all;
        }
        if (!a.listed && !whole) left = put_gathered(a, view, left, range);
      }
      a.records = reinterpret_cast<const FrameRecord*>(a.flight.in);
    }
    a.first = range.first;
    a.slots = range.slots;
    a.to = reinterpret_cast<uint8_t*>(range.to);
    a.heads = reinterpret_cast<const uint8_t*>(range.heads);
    if (a.flight.count != 0) {
      a.channel = channel;
      trace.end();
      trace.begin("submit");
      channel->submit(a.flight, resident->programs[n], range);
    } else {
      channel->close(a.flight);
    }
  }
  counters_[n].on_host += left.count();
  run_on_host(node, inputs, left, false);
  return a.channel != nullptr;
}

}  // namespace sluice
