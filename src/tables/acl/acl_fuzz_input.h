// For fuzz targets: rules from the input's bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tables/acl/rule_set.h"

namespace sluice::acl_test {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool more() const { return at_ < size_; }
  uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint16_t half() {
    const unsigned high = byte();
    return static_cast<uint16_t>(high << 8 | byte());
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// Addresses differ in few places, so that rules meet.
inline uint64_t spread(uint8_t b) {
  return (b & 15) * 0x1000000010000001ull ^ uint64_t { b } << 24 ^ uint64_t(b >> 4) << 56;
}

inline IpPrefix prefix_from(Bytes& in, uint8_t family) {
  IpPrefix p;
  p.address.family = family;
  p.length = static_cast<uint8_t>(in.byte() % (family == 4 ? 33 : 129));
  p.address.hi = family == 4 ? 0 : spread(in.byte()) & high_mask64(std::min<unsigned>(p.length, 64));
  p.address.lo = spread(in.byte());
  p.address.lo &= family == 4 ? high_mask32(p.length) : high_mask64(p.length > 64 ? p.length - 64u : 0);
  return p;
}

inline AclRule rule_from(Bytes& in) {
  AclRule r;
  const uint8_t shape = in.byte();
  r.family = std::array<uint8_t, 4>{4, 4, 6, 0}[shape & 3];
  if (r.family != 0) {
    r.src = prefix_from(in, r.family);
    r.dst = prefix_from(in, r.family);
  }
  auto ports = [&](uint16_t& low, uint16_t& high) {
    low = in.byte();
    high = (shape & 4) != 0 ? low : static_cast<uint16_t>(low + in.half() % (65536u - low));
  };
  if ((shape & 8) != 0) ports(r.src_port_low, r.src_port_high);
  if ((shape & 16) != 0) ports(r.dst_port_low, r.dst_port_high);
  if ((shape & 32) != 0) {
    r.protocol_mask = (shape & 4) != 0 ? 0xff : in.byte();
    r.protocol = in.byte() & 7 & r.protocol_mask;
  }
  if ((shape & 64) != 0) {
    r.flags_mask = static_cast<uint16_t>(in.byte() << 8);
    r.flags = static_cast<uint16_t>(in.byte() << 8) & r.flags_mask;
    r.bits_mask = in.byte() & 127;
    r.bits = in.byte() & r.bits_mask;
  }
  if ((shape & 128) != 0) {
    r.needs_ports = (in.byte() & 1) != 0;
    r.dscp = (in.byte() & 1) != 0 ? in.byte() & 63 : AclRule::kAnyDscp;
    r.icmp_mask = in.half() & 0x0101;
    r.icmp = in.half() & r.icmp_mask;
  }
  return r;
}

}  // namespace sluice::acl_test
