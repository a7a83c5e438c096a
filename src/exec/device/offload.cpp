// host only
#include "exec/device/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace sluice {
namespace {

// What a stage puts in front of a packet, it writes and moves the first byte to.
constexpr FieldMask kPushes = kFieldFrame | kFieldExtent;

// What a key record can bring and its result can take back. A destination that a stage writes beside a next hop is that
// hop's gateway (IPLookup), which the host finds by it.
constexpr FieldMask kKeyReads = kFieldKey | kFieldDestination;
constexpr FieldMask kKeyWrites = kFieldRule | kFieldMark | kFieldNextHop | kFieldReason;
constexpr FieldMask kGateway = kFieldNextHop | kFieldDestination;
constexpr FieldMask kLookups = kFieldRule | kFieldNextHop;
constexpr FieldMask kKeyFields = kFieldKey | kFieldDestination;
// Whoever writes one of these leaves another key, or another place for the network header.
constexpr FieldMask kParsed = kKeyFields | kFieldL3;

// Whether the first `end` stages of a segment need the key of some packet that enters it: packets enter at several
// stages, and branch, so that they may miss the stage that writes one.
bool needs_key(const Program& program, const PlanNode& node, const Router& router, unsigned end) {
  bool written[kMaxStages];  // on every way to the stage
  std::fill(std::begin(written), std::end(written), true);
  for (const uint8_t entry : node.entries) written[entry] = false;
  for (unsigned s = 0; s < end; ++s) {
    const StageTraits t = router.elements[node.elements[s]]->stage_traits();
    if (!written[s] && (t.reads & kKeyFields) != 0) return true;
    // A new destination alone is no key.
    const bool there = written[s] || (t.writes & kFieldKey) != 0;
    for (unsigned out = 0; out < program.stages[s].outputs; ++out) {
      const uint8_t next = node.wide ? kPathExit : program.stages[s].next[out & 15];
      if (next < end) written[next] = written[next] && there;
    }
  }
  return false;
}

Offload by_key(const PlanNode& node, const Router& router, bool one_list) {
  Offload o;
  if (node.wide) {
    o.why = "one stage with many outputs: its result does not fit a key's";
    return o;
  }
  // The longest run of stages that need the key alone, with a lookup among them.
  for (unsigned begin = 0; begin < node.elements.size(); ++begin) {
    unsigned end = begin;
    FieldMask writes = 0;
    unsigned marking = 0;
    for (; end < node.elements.size() && end - begin < kMaxKeyStages; ++end) {
      const StageTraits t = router.elements[node.elements[end]]->stage_traits();
      const bool gateway = (t.writes & kGateway) == kGateway;
      if (!t.on_keys || (t.reads & ~kKeyReads) != 0) break;
      if ((t.writes & ~(kKeyWrites | (gateway ? FieldMask{kFieldDestination} : FieldMask{0}))) != 0) break;
      // The next hop that comes back has to be the one of the gateway.
      if ((writes & kFieldDestination) != 0 && (t.writes & kFieldNextHop) != 0) break;
      if (one_list && (writes & t.writes & kFieldRule) != 0) break;
      writes |= t.writes;
      if ((t.writes & kFieldMark) != 0) ++marking;
    }
    if ((writes & kLookups) == 0 || end - begin <= unsigned{o.end} - o.begin) continue;
    o.on_device = true;
    o.keys = true;
    o.begin = static_cast<uint8_t>(begin);
    o.end = static_cast<uint8_t>(end);
    o.writes = writes;
    o.marks_lost = marking > 1;
  }
  o.why = o.on_device
              ? (o.end < node.elements.size() ? "keys are sent, edits are applied at write-back" : "keys are sent")
              : "no lookup by key";
  if (o.on_device && (node.live_in & kLookups) != 0)
    o.stays = "packets that come with a rule or a next hop stay on the host: a key's registers start empty";
  return o;
}

// Whether what leaves a segment by exit `x` as frames may go on to an element that takes batches in order: it looks at
// lengths and registers alone, as does what follows it, and the registers that a stage has written come back.
bool orders_frames(const Plan& plan, const PlanNode& node, size_t x, FieldMask written) {
  const PlanNode& target = plan.nodes[node.exits[x].node];
  constexpr FieldMask kRestored = kFieldFrame | kFieldExtent | kFieldL3 | kFieldKey | kFieldPort | kFieldReason |
                                  kFieldRule | kFieldMark | kFieldPaint;
  // What sinks ask for has to be in the batch's columns.
  return target.type == PlanNode::Type::kOrdered && target.by_lengths &&
         (node.live_out[x] & written & (~kRestored | plan.at_sinks)) == 0;
}

// Who takes what leaves as frames, and what has to come back for that. `ordered`: who needs no frame. Returns why a
// segment cannot be offloaded; empty: it can.
std::string exits_of_frames(const Plan& plan, const PlanNode& node, const Router& router, Offload& o,
                            std::string& ordered) {
  const Program& program = plan.programs[node.program];
  for (size_t x = 0; x < node.exits.size(); ++x) {
    if (!node.connects(x)) continue;
    const PlanNode& target = plan.nodes[node.exits[x].node];
    const std::string& name = router.elements[target.elements[0]]->name;
    if (x < 64 && orders_frames(plan, node, x, o.writes)) {
      o.ordered_exits |= uint64_t{1} << x;
      ordered += fmt::format(" or to {}, which needs no frames,", name);
      const StageTraits last = router.elements[node.elements.back()]->stage_traits();
      const bool strips =
          node.elements.size() > 1 && (last.writes & kFieldExtent) != 0 && (last.writes & kPushes) != kPushes;
      if ((node.live_out[x] & kParsed) != 0) o.shape.net_out = 1;
      if ((node.live_out[x] & o.writes & kFieldRule) != 0) o.shape.key_out = 1;
      if ((node.live_out[x] & o.writes & kFieldMark) != 0) o.shape.mark_out = 1;
      if ((node.live_out[x] & o.writes & kFieldPaint) != 0) o.shape.paint_out = 1;
      if (o.shape.net_out != 0 && strips) return fmt::format("{} needs network headers of what was stripped", name);
    } else if (target.type != PlanNode::Type::kSink &&
               program.stages[node.elements.size() - 1].next[0] == kPathExit + x) {
      // What takes another exit is done again, which is few packets where it is not the usual one.
      return fmt::format("packets go on to {}, which needs more of them than a frame's result says", name);
    }
  }
  return {};
}

// Whole segments, from the frame as it came to the frame as it leaves.
Offload by_frame(const Plan& plan, const PlanNode& node, const Router& router, bool one_list, bool pooled) {
  Offload o;
  const auto not_so = [&](std::string why) {
    o.why = std::move(why);
    return o;
  };
  const auto traits = [&](size_t s) { return router.elements[node.elements[s]]->stage_traits(); };
  const StageTraits first = traits(0);
  if (node.wide || node.entries.size() != 1 || node.entries[0] != 0 || node.live_in != 0) {
    return not_so("frames are sent where packets come from a source alone, to one stage");
  }
  const auto stages = static_cast<unsigned>(node.elements.size());
  for (size_t s = 0; pooled && s < node.elements.size(); ++s) {
    if (traits(s).frame == FrameUse::kPayload) {
      return not_so(fmt::format("{} sums whole frames, and a pool has their first bytes alone",
                                router.elements[node.elements[s]]->name));
    }
  }
  // A sum over whole frames may be the last stage: what it appends comes back apart. What it cuts off is counted where
  // it is the only one.
  const auto sums = [&](size_t s) {
    const StageTraits t = traits(s);
    const bool appends = (t.writes & kFieldFrame) != 0;
    return t.frame == FrameUse::kPayload && s + 1 == node.elements.size() && (appends || s == 0);
  };
  if ((first.frame != FrameUse::kHeaders && !sums(0)) || needs_key(plan.programs[node.program], node, router, stages)) {
    return not_so(
        fmt::format("{} does not parse frames from their first byte", router.elements[node.elements[0]]->name));
  }
  unsigned lists = 0;
  for (size_t s = 0; s < node.elements.size(); ++s) {
    const Element& element = *router.elements[node.elements[s]];
    const StageTraits t = traits(s);
    if (sums(s)) {
      o.shape.sums = 1;
      o.shape.tails = (t.writes & kFieldFrame) != 0 ? 1 : 0;
      o.writes |= t.writes;
      continue;
    }
    if (t.frame != FrameUse::kNone && t.frame != FrameUse::kHeaders) {
      return not_so(fmt::format("{} may read more of a frame than its headers", element.name));
    }
    // What is cut off is counted as the parser's, which is the first.
    if ((first.writes & kFieldKey) == 0 && (t.writes & kFieldExtent) != 0) {
      return not_so(fmt::format("{} changes where frames begin or end, and nothing is parsed", element.name));
    }
    // Stages in between would be counted as if the parser had cut off what such a stage does.
    if (t.frame == FrameUse::kNone && (t.writes & kFieldExtent) != 0) {
      return not_so(fmt::format("{} cuts frames off behind stages that have them whole", element.name));
    }
    if (s != 0 && t.frame == FrameUse::kHeaders && (t.writes & kFieldExtent) != 0 && (t.writes & kPushes) != kPushes) {
      return not_so(fmt::format("{} cuts frames off behind stages that have them whole", element.name));
    }
    // A result has one place for what was cut off and one for where the frame begins.
    if (s != 0 && s + 1 != node.elements.size() && (t.writes & kFieldExtent) != 0) {
      return not_so(fmt::format("{} moves the frame's beginning or end, and stages follow", element.name));
    }
    if ((t.writes & kFieldRule) != 0) ++lists;
    o.writes |= t.writes;
  }
  if (one_list && lists > 1) return not_so("a result brings one rule back, and there are more access lists");
  std::string ordered;
  if (std::string why = exits_of_frames(plan, node, router, o, ordered); !why.empty()) return not_so(std::move(why));
  o.on_device = true;
  o.shape.kind = RecordKind::kFrame;
  if (one_list) o.shape.key_out = 1;
  o.end = static_cast<uint8_t>(node.elements.size());
  o.writes_frame = (o.writes & kFieldFrame) != 0;
  o.why = o.shape.sums == 0    ? "frames are sent and come back edited"
          : o.shape.tails != 0 ? "whole frames are sent, what was edited and appended comes back"
                               : "whole frames are sent";
  o.stays = fmt::format(
      "frames of over {} bytes go by their first {}, but stay on the host where IPv6 extension headers follow; packets "
      "that go on elsewhere than to a sink{} are done again on the host",
      kRecordRegion, kRecordRegion, ordered);
  return o;
}

// The kind of record that is asked for, or that is best for a segment; the other kind where that cannot be.
Offload by_choice(const Plan& plan, const PlanNode& node, const Router& router, RecordChoice choice, bool one_list,
                  bool pooled) {
  FieldMask writes = 0;
  bool sums = false;
  for (const unsigned e : node.elements) {
    const StageTraits t = router.elements[e]->stage_traits();
    writes |= t.writes;
    sums |= t.frame == FrameUse::kPayload;
  }
  if (choice != RecordChoice::kFrame && (writes & kLookups) == 0 && !sums) {
    Offload o;
    o.why = "no lookup: the transfer would cost more than the work";
    return o;
  }
  Offload key = by_key(node, router, one_list);
  // A key has the fewest bytes, and tells nothing of a sum.
  if (choice == RecordChoice::kAuto && !sums && key.on_device) return key;
  Offload frame = by_frame(plan, node, router, one_list, pooled);
  if (!frame.on_device && key.on_device) return key;
  if (!frame.on_device) frame.why = fmt::format("{}; {}", key.why, frame.why);
  if (frame.on_device && choice == RecordChoice::kAutoFrames)
    frame.why += ": batches are large, and the host neither parses nor edits";
  return frame;
}

}  // namespace

std::vector<Offload> plan_offloads(const Plan& plan, const Router& router, RecordChoice choice, bool one_list,
                                   bool pooled) {
  std::vector<Offload> all;
  for (const PlanNode& node : plan.nodes) {
    Offload o;
    if (node.type != PlanNode::Type::kSegment) {
      o.why = "a host element";
    } else if (choice == RecordChoice::kKey) {
      o = by_key(node, router, one_list);
    } else {
      o = by_choice(plan, node, router, choice, one_list, pooled);
    }
    all.push_back(std::move(o));
  }
  return all;
}

CrossingBytes crossing_bytes(const Offload& o) {
  if (!o.on_device) return {};
  if (o.keys) return {bytes_in(RecordKind::kKey4), kResultBytes};
  // Of packets that leave as most do.
  constexpr uint32_t kUsual = (offsetof(FrameBlock, drops) + FrameBlock::kRecords - 1) / FrameBlock::kRecords;
  return {bytes_in(RecordKind::kFrame), kUsual + frame_asked_bytes(o.shape)};
}

}  // namespace sluice
