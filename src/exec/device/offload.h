// host only
// Which stages of a segment run on a device, and in which record format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exec/device/record.h"
#include "exec/walk/plan.h"

namespace sluice {

// What the user asks for: the planner's choice, keys, or frames of every segment that can have them and else keys.
// kAutoFrames: the planner's choice where batches are large, so that it pays to let the device parse and edit.
enum class RecordChoice : uint8_t { kAuto, kKey, kFrame, kAutoFrames };

// How one segment is split. Stages [0, begin) run on the host first, [begin, end) on the device, the rest on the host
// when the results are back (late edits). Every stage runs on both sides, so the split is a matter of cost alone.
struct Offload {
  bool on_device = false;
  bool keys = false;  // records are keys: IPv4 and IPv6 packets go their own ways
  RecordShape shape;  // of frames
  uint8_t begin = 0;
  uint8_t end = 0;
  bool writes_frame = false;  // bytes of the frame change
  bool marks_lost = false;    // keys: a mark is not that of the rule that comes back, where several lists give marks
  FieldMask writes = 0;       // of the stages on the device
  // Frames: exits, of the first 64, to elements that take batches in order and look at lengths and registers alone.
  uint64_t ordered_exits = 0;
  std::string why;    // one line: why on the device, or why not
  std::string stays;  // one line: which packets stay on the host nevertheless, and why; empty: none

  bool crosses_as_frames() const { return on_device && !keys && shape.kind == RecordKind::kFrame; }
};

// One offload per node (by node index; nodes that are no segment stay on the host). `one_list`: no two access lists of
// one segment go, since a result brings one rule back; the second one, and what follows it, stays on the host.
// `pooled`: frames are gathered for the device, so that it has the first bytes of long ones alone.
std::vector<Offload> plan_offloads(const Plan& plan, const Router& router, RecordChoice choice, bool one_list = false,
                                   bool pooled = false);

// Bytes per packet each way, for IPv4.
struct CrossingBytes {
  uint32_t in = 0;
  uint32_t out = 0;
};
CrossingBytes crossing_bytes(const Offload& offload);

}  // namespace sluice
