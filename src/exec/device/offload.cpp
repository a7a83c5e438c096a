// host only
#include "exec/device/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>

namespace sluice {
namespace {

// What a stage puts in front of a packet, it writes and moves the first byte to.
constexpr FieldMask kPushes = kFieldFrame | kFieldExtent;

// What a key record can bring and its result can take back.
constexpr FieldMask kKeyReads = kFieldKey | kFieldDestination;
constexpr FieldMask kKeyWrites = kFieldRule | kFieldMark | kFieldNextHop | kFieldReason;
constexpr FieldMask kLookups = kFieldRule | kFieldNextHop;
constexpr FieldMask kKeyFields = kFieldKey | kFieldDestination;
// Whoever writes one of these leaves another key, or a packet whose key has to stay with it.
constexpr FieldMask kParsed = kKeyFields | kFieldL3;

// Whether the first `end` stages of a segment need the key of some packet that enters it: packets enter at several
// stages, and branch, so that they may miss the stage that writes one. `comes_back`: it has to be there at their exits.
bool needs_key(const Program& program, const PlanNode& node, const Router& router, unsigned end, bool comes_back) {
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
      if (next < end) {
        written[next] = written[next] && there;
      } else if (next != kPathDropped && comes_back && !there) {
        return true;
      }
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
      if (!t.on_keys || (t.reads & ~kKeyReads) != 0 || (t.writes & ~kKeyWrites) != 0) break;
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

// Whether a stage of a segment uncovers bytes in front of a frame that the segment has not taken off itself, on some
// way to it: such bytes may be stale in a record. Returns that stage, or the number of stages.
size_t uncovers(const Program& program, const PlanNode& node, const Router& router) {
  // What every packet that comes to a stage has had taken off.
  int64_t off[kMaxStages];
  std::fill(std::begin(off), std::end(off), std::numeric_limits<int64_t>::max());
  for (const uint8_t entry : node.entries) off[entry] = 0;
  for (size_t s = 0; s < node.elements.size(); ++s) {
    const StageTraits t = router.elements[node.elements[s]]->stage_traits();
    if (off[s] == std::numeric_limits<int64_t>::max()) continue;
    int64_t behind = off[s] + t.moves_by;
    if (t.frame == FrameUse::kInFront && behind < 0) return s;
    // What else moves the first byte writes bytes there (frame_use_test.cpp).
    if ((t.writes & kPushes) == kPushes) behind = 0;
    for (unsigned out = 0; out < program.stages[s].outputs; ++out) {
      const uint8_t next = node.wide ? kPathExit : program.stages[s].next[out & 15];
      if (next < node.elements.size()) off[next] = std::min(off[next], behind);
    }
  }
  return node.elements.size();
}

// The bytes of a frame that stages of a segment touch, counted from the first byte with which a packet comes to the
// segment. Nothing: they depend on the packet, or on the way that it takes.
struct TouchedBytes {
  std::optional<ByteRanges> all = ByteRanges{};  // read or written
  std::optional<ByteRanges> written = ByteRanges{};
};

TouchedBytes touched_bytes(const Program& program, const PlanNode& node, const Router& router, unsigned end) {
  TouchedBytes touched;
  // What every packet that comes to a stage has had taken off, as far as that is one number.
  struct Off {
    bool met = false;
    std::optional<int32_t> bytes;
  };
  Off off[kMaxStages];
  for (const uint8_t entry : node.entries) off[entry] = {true, 0};
  for (unsigned s = 0; s < end; ++s) {
    if (!off[s].met) continue;
    const StageTraits t = router.elements[node.elements[s]]->stage_traits();
    const std::optional<ByteRanges> bytes = t.frame == FrameUse::kNone ? ByteRanges{} : t.bytes;
    const bool known = bytes && (bytes->empty() || off[s].bytes);
    const auto add = [&](std::optional<ByteRanges>& to) {
      if (!known) to.reset();
      if (!to) return;
      for (const ByteRange& r : *bytes) to->add({*off[s].bytes + r.from, *off[s].bytes + r.to});
    };
    add(touched.all);
    if ((t.writes & kFieldFrame) != 0) add(touched.written);
    Off behind = off[s];
    if ((t.writes & kPushes) == kPushes) behind.bytes.reset();
    if (behind.bytes) *behind.bytes += t.moves_by;
    for (unsigned out = 0; out < program.stages[s].outputs; ++out) {
      const uint8_t next = node.wide ? kPathExit : program.stages[s].next[out & 15];
      if (next >= end) continue;
      off[next] = {true, !off[next].met || off[next].bytes == behind.bytes ? behind.bytes : std::nullopt};
    }
  }
  return touched;
}

// Those at the packet's first byte and behind it.
ByteRanges from_first(const ByteRanges& ranges) {
  ByteRanges all;
  for (const ByteRange& r : ranges) all.add({std::max(r.from, 0), r.to});
  return all;
}

// What of a frame crosses with a header or address record: less than all that a packet may need, where the stages'
// bytes are the same for every packet.
void set_ranges(const TouchedBytes& touched, bool pushes, Offload& o) {
  RecordShape& shape = o.shape;
  const auto fits = [&](const std::optional<ByteRanges>& ranges) {
    return ranges && (shape.kind == RecordKind::kAddress || ranges->span().to <= int32_t{kRecordRegion});
  };
  if (fits(touched.all)) {
    o.whole_frames = false;
    shape.in_by_packet = 1;
    if (shape.kind == RecordKind::kHeader) {
      shape.in = from_first(*touched.all);
    } else {
      // One piece, since a record has one address, and whole units of a copy.
      const ByteRange span = touched.all->span();
      shape.in = ByteRanges{{span.from & ~15, (span.to + 15) & ~15}};
    }
  }
  bool in_front = pushes;
  if (!o.writes_frame) {
    shape.out = {};
  } else if (fits(touched.written)) {
    o.edits_anywhere = false;
    shape.out_by_packet = 1;
    in_front = touched.written->span().from < 0;
    shape.out = shape.kind == RecordKind::kHeader ? from_first(*touched.written) : *touched.written;
  }
  if (!in_front) shape.front = 0;
}

Offload by_frame(const Plan& plan, const PlanNode& node, const Router& router, RecordKind kind, bool one_list) {
  Offload o;
  o.shape.kind = kind;
  FieldMask written = 0;
  bool past_headers = false, pushes = false;
  std::string anywhere;  // the first stage that may read past the headers
  const Program& program = plan.programs[node.program];
  const size_t uncovering = uncovers(program, node, router);
  for (unsigned e : node.elements) {
    const Element& element = *router.elements[e];
    const StageTraits t = element.stage_traits();
    if (one_list && (written & t.writes & kFieldRule) != 0) break;
    ++o.end;
    written |= t.writes;
    past_headers |= t.frame == FrameUse::kPayload;
    // What a sum is appended to may end where bytes of the frame were.
    o.edits_anywhere |= t.frame == FrameUse::kPayload && (t.writes & kFieldFrame) != 0 && o.shape.moves != 0;
    if (t.frame == FrameUse::kAnywhere && !o.whole_frames) {
      o.whole_frames = true;
      anywhere = element.name;
    }
    if (o.end > uncovering) {
      o.why = fmt::format("{} uncovers bytes before the frame", element.name);
      return o;
    }
    // What was pushed there and stripped again does not come back with a record.
    if (plan.shows_headroom && (t.writes & kPushes) == kPushes) {
      o.why = fmt::format("what {} puts in front of frames may be uncovered again", element.name);
      return o;
    }
    if ((t.writes & kFieldExtent) != 0) ++o.shape.moves;
    pushes |= (t.writes & kPushes) == kPushes;
  }
  if (past_headers && kind == RecordKind::kHeader) {
    o.why = "a stage reads whole frames: address records only";
    return o;
  }
  o.on_device = true;
  o.edits_anywhere |= o.whole_frames;
  if (kind == RecordKind::kAddress) o.whole_frames |= past_headers;
  o.writes = written;
  o.writes_frame = (written & kFieldFrame) != 0;
  set_ranges(touched_bytes(program, node, router, o.end), pushes, o);
  o.shape.key_out = (written & kParsed) != 0 ? 1 : 0;
  o.shape.key_in = needs_key(program, node, router, o.end, o.shape.key_out != 0) ? 1 : 0;
  o.why = kind == RecordKind::kHeader ? "headers are sent" : "frames stay where they are, addresses are sent";
  if (kind == RecordKind::kHeader && o.shape.in_by_packet != 0) {
    o.stays = fmt::format(
        "frames of every length; packets that begin in front of their frame, or of which more than {} bytes were "
        "stripped, stay on the host",
        int32_t{kRecordRegion} - o.shape.in.span().to);
  } else if (kind == RecordKind::kHeader && o.whole_frames) {
    o.stays = fmt::format(
        "frames of up to {} bytes ({} with FCS) on the device, longer ones on the host: {} may read anywhere in a "
        "frame "
        "(--records address: all on the device)",
        kRecordRegion, kRecordRegion + 4, anywhere);
  } else if (kind == RecordKind::kHeader) {
    o.stays = fmt::format(
        "frames of over {} bytes go by their first {}, but stay on the host where IPv6 extension headers follow or "
        "something was stripped",
        kRecordRegion, kRecordRegion);
  }
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

// Whole segments, from the frame as it came to the frame as it leaves.
Offload by_whole_frame(const Plan& plan, const PlanNode& node, const Router& router, bool one_list, bool pooled) {
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
  // A sum over whole frames may be the last stage: what it appends comes back apart. What it cuts off is counted where
  // it is the only one.
  const auto sums = [&](size_t s) {
    const StageTraits t = traits(s);
    const bool appends = (t.writes & kFieldFrame) != 0;
    return t.frame == FrameUse::kPayload && s + 1 == node.elements.size() && (appends || s == 0) && !pooled;
  };
  if ((first.frame != FrameUse::kHeaders && !sums(0)) ||
      needs_key(plan.programs[node.program], node, router, stages, false)) {
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
  const Program& program = plan.programs[node.program];
  std::string ordered;  // who needs no frame
  for (size_t x = 0; x < node.exits.size(); ++x) {
    if (!node.connects(x)) continue;
    const PlanNode& target = plan.nodes[node.exits[x].node];
    const std::string& name = router.elements[target.elements[0]]->name;
    if (x < 64 && orders_frames(plan, node, x, o.writes)) {
      o.ordered_exits |= uint64_t{1} << x;
      ordered += fmt::format(" or to {}, which needs no frames,", name);
      const StageTraits last = traits(node.elements.size() - 1);
      const bool strips =
          node.elements.size() > 1 && (last.writes & kFieldExtent) != 0 && (last.writes & kPushes) != kPushes;
      if ((node.live_out[x] & kParsed) != 0) o.shape.net_out = 1;
      if ((node.live_out[x] & o.writes & kFieldRule) != 0) o.shape.key_out = 1;
      if ((node.live_out[x] & o.writes & kFieldMark) != 0) o.shape.mark_out = 1;
      if ((node.live_out[x] & o.writes & kFieldPaint) != 0) o.shape.paint_out = 1;
      if (o.shape.net_out != 0 && strips)
        return not_so(fmt::format("{} needs network headers of what was stripped", name));
    } else if (target.type != PlanNode::Type::kSink && program.stages[stages - 1].next[0] == kPathExit + x) {
      // What takes another exit is done again, which is few packets where it is not the usual one.
      return not_so(fmt::format("packets go on to {}, which needs more of them than a frame's result says", name));
    }
  }
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
    } else if (choice == RecordChoice::kFrame) {
      o = by_whole_frame(plan, node, router, one_list, pooled);
    } else if (choice == RecordChoice::kListed) {
      o = by_whole_frame(plan, node, router, one_list, pooled);
      if (!o.on_device) o = by_frame(plan, node, router, RecordKind::kAddress, one_list);
    } else if (choice == RecordChoice::kHeader || choice == RecordChoice::kAddress) {
      o = by_frame(plan, node, router, choice == RecordChoice::kHeader ? RecordKind::kHeader : RecordKind::kAddress,
                   one_list);
    } else {
      FieldMask writes = 0;
      for (unsigned e : node.elements) writes |= router.elements[e]->stage_traits().writes;
      bool sums = false;
      for (unsigned e : node.elements) sums |= router.elements[e]->stage_traits().frame == FrameUse::kPayload;
      if (choice == RecordChoice::kAutoFrames && ((writes & kLookups) != 0 || sums)) {
        o = by_whole_frame(plan, node, router, one_list, pooled);
        if (o.on_device) {
          o.why += ": batches are large, and the host neither parses nor edits";
          all.push_back(std::move(o));
          continue;
        }
      }
      // Fewest bytes first; a program with neither a lookup nor a sum over the frame gains nothing by the trip.
      o = by_key(node, router, one_list);
      if (sums) {
        o = by_frame(plan, node, router, RecordKind::kAddress, one_list);
      } else if (!o.on_device) {
        if ((writes & kLookups) != 0) {
          o = by_frame(plan, node, router, RecordKind::kHeader, one_list);
        } else {
          o.why = "no lookup: the transfer would cost more than the work";
        }
      }
    }
    all.push_back(std::move(o));
  }
  return all;
}

CrossingBytes crossing_bytes(const Offload& o) {
  if (!o.on_device) return {};
  RecordShape shape = o.shape;
  if (o.keys) shape.kind = RecordKind::kKey4;
  // Of packets that leave as most do.
  if (shape.kind == RecordKind::kFrame) {
    return {bytes_in(shape), uint32_t{(offsetof(FrameBlock, drops) + FrameBlock::kRecords - 1) / FrameBlock::kRecords} +
                                 frame_asked_bytes(shape)};
  }
  return {bytes_in(shape), bytes_out(shape)};
}

}  // namespace sluice
