// host only
// What connection tracking wants to know of a packet: whose connection it is, and what it says of it. Judges each
// packet alone, so that it may run beside other packets.
#pragma once

#include <cstdint>

#include "flows/tcp_state.h"
#include "net/flow_key.h"

namespace sluice {

// The two ends of a connection, the lower one first, so that both directions have the same.
struct FlowEnds {
  uint64_t low_hi = 0, low_lo = 0, high_hi = 0, high_lo = 0;  // addresses, as in FlowKey
  uint16_t low_port = 0, high_port = 0;                       // of ICMP queries both are the identifier
  uint8_t protocol = 0;
  uint8_t family = 0;
  uint8_t query = 0;      // of ICMP: the type of the request
  uint8_t high_asks = 0;  // of ICMP: 1: the higher end does; both may, each with its own identifiers

  friend bool operator==(const FlowEnds&, const FlowEnds&) = default;
};
static_assert(sizeof(FlowEnds) == 40);

struct TrackedPacket {
  enum class Kind : uint8_t {
    kInvalid,        // of no connection: a header that is not there, or a message that is no query's
    kTcp,            // `segment`
    kRequest,        // of an ICMP query
    kReply,          // the same
    kOther,          // UDP and whatever else; without ports one connection a pair of addresses
    kError,          // an ICMP error: the ends are those of the packet that it quotes
    kLaterFragment,  // of a packet that is told by its ends without ports, and `fragment`
  };
  FlowEnds ends;
  uint32_t fragment = 0;  // the identification of a fragment
  Kind kind = Kind::kInvalid;
  TcpSegment segment = TcpSegment::kBad;
  bool from_high = false;       // its source is the higher end
  bool first_fragment = false;  // others follow
};

// `frame`: of which `end` bytes are there; `l3` and `l4` (0xffff: none) are where headers begin; `key` is the
// packet's.
TrackedPacket tracked_packet(const FlowKey& key, const uint8_t* frame, uint32_t l3, uint32_t l4, uint32_t end);

}  // namespace sluice
