// Key4: the FlowKey of an IPv4 packet in 16 bytes. Host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "net/flow_key.h"

namespace sluice {

// Addresses 64 bits, ports or ICMP 32, protocol 8, TCP flags 8, DSCP 6, bits 3. The upper 7 bits of `rest` are the
// user's (a tag, where keys cross a bus); they are 0 here.
struct alignas(16) Key4 {
  uint32_t source;
  uint32_t destination;
  uint32_t ports;  // source << 16 | destination; ICMP has no ports: its type and code take their place
  uint32_t rest;   // protocol | TCP flags << 8 | DSCP << 16 | FlowKey::Bits << 22

  SLUICE_HD uint8_t protocol() const { return static_cast<uint8_t>(rest); }
};
static_assert(sizeof(Key4) == 16 && std::is_trivially_copyable_v<Key4>);

// Whether a key has fields that the compact forms of keys do not hold: 16 bits of flags, as a ClassBench trace has and
// no packet, or bits that say what a short packet lacks.
SLUICE_HD bool is_rare_key(const FlowKey& k) {
  return (k.flags & 0xffu) != 0 || k.bits > 7;
}

// Whether the key has the compact form: family 4 and not rare.
SLUICE_HD bool fits_key4(const FlowKey& k) {
  return k.family == 4 && !is_rare_key(k);
}

SLUICE_HD Key4 pack_key4(const FlowKey& k) {
  Key4 out;
  out.source = static_cast<uint32_t>(k.src_lo);
  out.destination = static_cast<uint32_t>(k.dst_lo);
  out.ports = (k.bits & FlowKey::kHasPorts) != 0 ? uint32_t{k.src_port} << 16 | k.dst_port : uint32_t{k.icmp};
  out.rest = uint32_t{k.protocol} | uint32_t{k.flags} >> 8 << 8 | uint32_t{k.dscp} << 16 | uint32_t{k.bits} << 22;
  return out;
}

SLUICE_HD FlowKey unpack_key4(const Key4& in) {
  FlowKey k;
  k.src_lo = in.source;
  k.dst_lo = in.destination;
  k.protocol = static_cast<uint8_t>(in.rest);
  k.flags = static_cast<uint16_t>(in.rest & 0xff00u);
  k.dscp = static_cast<uint8_t>(in.rest >> 16 & 63u);
  k.bits = static_cast<uint8_t>(in.rest >> 22 & 7u);
  k.family = 4;
  if ((k.bits & FlowKey::kHasPorts) != 0) {
    k.src_port = static_cast<uint16_t>(in.ports >> 16);
    k.dst_port = static_cast<uint16_t>(in.ports);
  } else {
    k.icmp = static_cast<uint16_t>(in.ports);
  }
  return k;
}

}  // namespace sluice
