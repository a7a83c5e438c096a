// The body of every device kernel: a packet's way through the stages of a program, and one record's way through it.
// Host (emulated device, redone packets) and device, launch and persistent: one source, so they cannot disagree.
#pragma once

#include <cstdint>

#include "base/group.h"
#include "elements/stages.h"
#include "exec/device/program.h"

namespace sluice {

// One packet's state in a program.
struct Walker {
  Packet packet;
  uint32_t visited = 0;
  uint8_t path = kPathDropped;
  uint8_t output = 0;
  uint32_t tail = 0;  // frame records: what a stage appended, 4 bytes
};

namespace device_detail {

template <typename Stage>
inline constexpr bool kCooperative = requires(const Stage& stage, Packet* packets, uint8_t* outputs) {
  stage.team(OneLane{}, packets, 1u, outputs);
};

// One packet through the stage type at position `kind` of [kLow, kHigh): a binary search, so that a warp's uniform
// kind costs five comparisons.
template <size_t kLow, size_t kHigh, typename Group>
SLUICE_HD uint8_t dispatch(const StageSlot& slot, Packet& p, const Group& group) {
  if constexpr (kHigh - kLow == 1) {
    using Stage = typename AllStages::template At<kLow>;
    const Stage& stage = slot.template get<Stage>();
    if constexpr (kCooperative<Stage>) {
      uint8_t output = 0;
      stage.team(group, &p, 1u, &output);
      return output;
    } else {
      return stage(p);
    }
  } else {
    constexpr size_t kMiddle = (kLow + kHigh) / 2;
    return slot.kind < kMiddle ? dispatch<kLow, kMiddle>(slot, p, group) : dispatch<kMiddle, kHigh>(slot, p, group);
  }
}

}  // namespace device_detail

// One packet through one stage, whatever its kind; a lane by itself.
SLUICE_HD uint8_t run_stage_alone(const StageSlot& slot, Packet& p) {
  return device_detail::dispatch<0, AllStages::kSize>(slot, p, OneLane{});
}

SLUICE_HD void take_output(const DeviceProgram& program, const StageSlot& slot, uint32_t s, uint8_t output, Walker& w) {
  w.visited |= 1u << (s - program.begin);
  w.output = output;
  w.path = program.wide != 0 ? static_cast<uint8_t>(kPathExit) : slot.next[output & 15];
}

// The stages [begin, end) for one packet by itself.
SLUICE_HD void walk_alone(const DeviceProgram& program, Walker& w) {
  for (uint32_t s = program.begin; s < program.end; ++s) {
    if (w.path != s) continue;
    const StageSlot& slot = program.program.stages[s];
    take_output(program, slot, s, run_stage_alone(slot, w.packet), w);
  }
}

// -- records ----------------------------------------------------------------------------------------------------------

// Fills the walker from the words of a kKey4 or kKey6 record.
SLUICE_HD void read_record(RecordKind kind, const DeviceProgram& program, const Word* in, Walker& w) {
  w.packet = Packet{};
  w.visited = 0;
  w.output = 0;
  w.path = program.begin;
  if (kind == RecordKind::kKey4) {
    w.packet.key = unpack_key4(in[0]);
  } else {
    PayloadReader(in).get(&w.packet.key, kKeyBytes);
  }
}

// A fresh walker for destination `i` of a kRoute4 record.
SLUICE_HD void read_destination(const DeviceProgram& program, const Word& in, uint32_t i, Walker& w) {
  w.packet = Packet{};
  w.packet.key.family = 4;
  w.packet.key.dst_lo = in.w[i];
  w.visited = 0;
  w.output = 0;
  w.path = program.begin;
}

// The result of a key record.
SLUICE_HD uint64_t key_result(const Walker& w, uint32_t tag) {
  return pack_result(w.packet.rule, w.packet.mark, w.packet.next_hop, w.visited, w.output, w.packet.reason, tag);
}

// The result of a kRoute4 record by the stages of `program`, one destination after another.
SLUICE_HD uint64_t route_result(const DeviceProgram& program, const Word& in, uint32_t tag) {
  uint64_t result = uint64_t{tag} << 57;
  for (uint32_t i = 0; i < kRoutesPerRecord; ++i) {
    Walker w;
    read_destination(program, in, i, w);
    walk_alone(program, w);
    result |= route_part(w.packet.next_hop, i);
  }
  return result;
}

// -- frames -----------------------------------------------------------------------------------------------------------

// Whether a parser that starts at the frame's first byte reads nothing past kRecordRegion, although the frame goes on.
// IPv4: 14 bytes, four tags, 60 of header and 20 of TCP are 110 at most. IPv6 with extension headers may go anywhere.
SLUICE_HD bool headers_fit_region(const uint8_t* frame, uint32_t end) {
  static_assert(kEtherHeaderBytes + kMaxVlanTags * kVlanTagBytes + 60 + 20 <= kRecordRegion);
  Link link;
  if (read_link(frame, end, link) != LinkStatus::kOk || link.ether_type != kEtherTypeIpv6) return true;
  const uint32_t next = link.l3 + 6;
  if (next >= end) return true;
  return frame[next] == kProtocolTcp || frame[next] == kProtocolUdp || frame[next] == kProtocolIcmpv6;
}
// Whether it reads nothing past the first `line` bytes, of which there are 64 at least.
SLUICE_HD bool headers_fit_line(const uint8_t* frame, uint32_t line) {
  Link link;
  if (read_link(frame, line, link) != LinkStatus::kOk) return true;
  if (link.ether_type == kEtherTypeIpv4) return link.l3 + (frame[link.l3] & 15u) * 4 + 20 <= line;
  return link.ether_type != kEtherTypeIpv6;
}

// A fresh walker for a frame whose copy begins at `copy`. A frame that is not looked at meets no stage.
SLUICE_HD void read_frame(const DeviceProgram& program, const FrameRecord& record, const FrameSlots& slots,
                          uint8_t* copy, Walker& w) {
  w.packet = Packet{};
  w.packet.frame = copy;
  w.packet.end = record.bytes;
  w.packet.wire_end = uint32_t{record.bytes} + record.longer;
  w.packet.l4 = 0xffff;
  w.visited = 0;
  w.output = 0;
  w.tail = 0;
  w.path = slots.splits(record.bytes) && !headers_fit_region(copy, record.bytes) ? kPathDropped : program.begin;
}

// Whether no more of a frame goes back than its head.
SLUICE_HD bool is_frame_head(const FrameSlots& slots, const Packet& p) {
  return slots.head != 0 && static_cast<uint32_t>(p.data) <= FrameTrim::kMostFront;
}
// What of the copy goes back of a frame that is no head: from its first byte on.
SLUICE_HD uint32_t frame_bytes_back(const FrameRecord& record, const FrameSlots& slots, const Packet& p) {
  const int32_t end = static_cast<int32_t>(slots.crossing(record.bytes)) - p.data;
  return end > 0 ? static_cast<uint32_t>(end) : 0;
}
SLUICE_HD uint64_t frame_result(const FrameRecord& record, const FrameSlots& slots, const Walker& w) {
  const Packet& p = w.packet;
  // What was appended is a tail.
  const uint32_t end = p.end - p.appended;
  const uint32_t cut = uint32_t{record.bytes} - end;
  const uint32_t wire_end = cut != 0 ? end : uint32_t{record.bytes} + record.longer;
  const bool fits = end <= record.bytes && p.wire_end - p.appended == wire_end &&
                    (p.appended == 0 || (p.appended == kTailBytes && p.data == 0)) &&
                    p.data >= -static_cast<int32_t>(kFrameFront) &&
                    (is_frame_head(slots, p) ||
                     (frame_bytes_back(record, slots, p) <= slots.room(record.bytes) && !slots.splits(record.bytes)));
  return pack_frame_result(w.visited, w.output, p.reason, p.data, cut, p.port, !fits);
}
// Whether a packet with this word may be summed with others of its kind: it is dropped, and leaves nothing to the host.
SLUICE_HD bool is_summed_drop(uint64_t word, const Walker& w) {
  return w.path == kPathDropped && (word & kFrameRedo) == 0 && w.visited != 0;
}
SLUICE_HD uint8_t frame_net(const Walker& w) {
  const Packet& p = w.packet;
  return net_byte(p.l3 - static_cast<uint32_t>(p.data), p.key.family);
}
SLUICE_HD FrameDetail frame_detail(const Walker& w) {
  return {w.packet.rule, w.packet.next_hop};
}

}  // namespace sluice
