// Internal to tuple_space and tuple_merge: tuples, and the rules that a search structure has to hold. Host only.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "tables/acl/rule_set.h"

namespace sluice::tuple_detail {

// Address lengths and which of the other fields are hashed.
struct Tuple {
  uint8_t src = 0, dst = 0;
  uint8_t fields = 0;  // kSrcPort | kDstPort | kProtocol

  static constexpr uint8_t kSrcPort = 1, kDstPort = 2, kProtocol = 4;
  // Whether a table of this tuple can hold a rule of tuple `rule`.
  bool covers(const Tuple& rule) const { return src <= rule.src && dst <= rule.dst && (fields & ~rule.fields) == 0; }
  uint32_t id() const { return uint32_t{src} << 16 | uint32_t{dst} << 8 | fields; }
  // How many key bits it hashes.
  unsigned weight() const {
    return unsigned{src} + dst + 16u * static_cast<unsigned>(std::popcount(static_cast<uint8_t>(fields & 3u))) +
           ((fields & kProtocol) != 0 ? 8u : 0u);
  }
};

// The finest tuple of a rule; lengths count from the first of `bits` (32 or 128) address bits.
inline Tuple tuple_of(const AclMatchRule& r, uint8_t bits) {
  const auto length = [&](uint8_t l) { return static_cast<uint8_t>(l == 0 ? 0 : l - (128 - bits)); };
  Tuple tuple{length(r.src_length), length(r.dst_length), 0};
  if (r.src_port_low == r.src_port_high) tuple.fields |= Tuple::kSrcPort;
  if (r.dst_port_low == r.dst_port_high) tuple.fields |= Tuple::kDstPort;
  if (r.protocol_mask == 0xff) tuple.fields |= Tuple::kProtocol;
  return tuple;
}

// The rules that can match keys of one kind (4: IPv4; 6: all others), each distinct match once: the first, because no
// later twin can ever win. Pointers into `flat`.
std::vector<const AclMatchRule*> distinct_rules(const std::vector<AclMatchRule>& flat, uint8_t family);

}  // namespace sluice::tuple_detail
