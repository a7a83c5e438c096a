// Packet registers: what stages see of one packet, in registers or L1 while a program runs over it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "batch/drop_reason.h"
#include "net/flow_key.h"

namespace sluice {

// Bytes that are free before every frame, so that headers can be pushed in place.
inline constexpr int32_t kHeadroom = 128;
// Bytes that are free after every frame for what stages append.
inline constexpr uint32_t kTailroom = 64;
// Of frames that lie as a capture has them, one behind the other: the bytes of the record in front of each.
inline constexpr int32_t kCloseHeadroom = 16;
// Bytes that one stage puts in front of a packet at most: an Ethernet header with a VLAN tag.
inline constexpr int32_t kMostPushed = 18;

// Which registers a stage reads or writes. The planner checks that what is read was written before, decides what
// crosses a bus, and keeps only live fields between segments.
using FieldMask = uint32_t;
enum Field : FieldMask {
  kFieldFrame = 1u << 0,        // bytes of the frame
  kFieldExtent = 1u << 1,       // data, end, wire_end
  kFieldL3 = 1u << 2,           // l3, l4, ether_type, VLANs, ttl, ip_flags: a parsed and checked network header
  kFieldKey = 1u << 3,          // key
  kFieldRule = 1u << 4,         // rule
  kFieldMark = 1u << 5,         // mark
  kFieldNextHop = 1u << 6,      // next_hop
  kFieldPort = 1u << 7,         // port
  kFieldPaint = 1u << 8,        // paint
  kFieldDestination = 1u << 9,  // the destination address in key (set by a header check or SetIPAddress)
  kFieldReason = 1u << 10,
};
// How a stage uses the bytes of the frame (a stage type's kFrameUse): decides what of a frame must reach the stage
// where it runs away from the host. A stage that reads the frame, or writes it or its extent, and does not say is
// kAnywhere.
enum class FrameUse : uint8_t {
  kNone,  // not at all; lengths are in registers
  // From the first byte over the headers as far as net/parse.h goes; edits the first kHeaderEdited bytes of the network
  // header and what is in front of it; kMostPushed in front.
  kHeaders,
  kPayload,   // all bytes, of every packet; writes behind the last
  kAnywhere,  // at places that its configuration names, or it moves the first byte there for those behind it
  kInFront,   // uncovers bytes in front of the frame
};
// DSCP and ECN, TTL or hop limit, and IPv4's checksum.
inline constexpr uint32_t kHeaderEdited = 12;
// What every packet has when it enters the graph.
inline constexpr FieldMask kFieldsAtIngress =
    kFieldFrame | kFieldExtent | kFieldMark | kFieldPaint | kFieldReason | kFieldPort;

// Offsets count from `frame`; `data` may be negative, down to -kHeadroom. The bytes that exist are [data, end); the
// packet on the wire was [data, wire_end): captures cut by a snap length have end < wire_end.
struct Packet {
  uint8_t* frame = nullptr;
  // From here on as in Extent (batch.h).
  int32_t data = 0;
  uint32_t end = 0;
  uint32_t wire_end = 0;
  uint16_t l3 = 0;
  uint16_t l4 = 0xffff;  // 0xffff: none
  // From here on as in Annotation (batch.h).
  uint32_t rule = 0;      // 1-based rule of the last ACL, 0: none matched
  uint32_t mark = 0;      // set by mark(N)
  uint32_t next_hop = 0;  // id in the last route table, 0: none
  uint16_t ether_type = 0;
  uint16_t vlan_tci = 0;
  // What an ICMP error about this packet says: the MTU of the output that refused it (kTooBig, kNeedsFragmentation), or
  // the offset of the wrong byte in its header (kBadOptions).
  uint16_t icmp_detail = 0;
  uint16_t ip_flags = 0;  // Headers::Flags
  uint8_t vlan_count = 0;
  uint8_t ttl = 0;
  uint8_t paint = 0;
  DropReason reason = DropReason::kNone;  // why it left by an error output, or was dropped
  uint8_t limiter = 0;                    // 1-based egress rate limiter that this packet is subject to, 0: none
  uint8_t appended = 0;                   // bytes of the tail room that stages have used; never goes down
  uint16_t port = 0;                      // output port of the adjacency
  FlowKey key;

  SLUICE_HD uint32_t length() const { return end - static_cast<uint32_t>(data); }
  SLUICE_HD uint32_t wire_length() const { return wire_end - static_cast<uint32_t>(data); }
  SLUICE_HD uint8_t* bytes() const { return frame + data; }
};
static_assert(std::is_trivially_copyable_v<Packet> && sizeof(Packet) <= 128);

// Stage outputs: 0 .. 254 are the element's ports; kDropOutput always drops with packet.reason. A stage with more than
// kMaxFusedOutputs outputs runs alone, not fused with others.
inline constexpr uint8_t kDropOutput = 0xff;
inline constexpr unsigned kMaxOutputs = 255;
inline constexpr unsigned kMaxFusedOutputs = 15;

// Leaves by `output` as bad: where that output is not connected the packet is dropped with `reason`.
SLUICE_HD uint8_t fail(Packet& packet, DropReason reason, uint8_t output = kDropOutput) {
  packet.reason = reason;
  return output;
}

}  // namespace sluice
