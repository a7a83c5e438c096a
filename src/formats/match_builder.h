// The conditions of one filter rule, as they are read, to the packets that it matches. Host only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "net/types.h"
#include "tables/acl/region.h"

namespace sluice {

// Starts with all packets of the families and is narrowed by each condition.
class MatchBuilder {
 public:
  static constexpr size_t kLimit = 65536;  // regions of one rule

  explicit MatchBuilder(uint8_t families = 3) : match_(1) { match_[0].families = families; }

  // Keeps the packets of the regions `within` that are in one of `values` (negated: in none). False when the rule would
  // need more than kLimit regions.
  bool keep(std::span<const AclRegion> within, std::span<const AclRegion> values, bool negated = false) {
    if (!keep_only(match_, within, kLimit)) return false;
    return negated ? take_away(match_, values, kLimit) : keep_only(match_, values, kLimit);
  }

  const std::vector<AclRegion>& match() const { return match_; }
  std::vector<AclRegion> take() { return std::move(match_); }

 private:
  std::vector<AclRegion> match_;
};

// Packets of one IP protocol, and of a region those that have ports, or that have what stands behind the IP header.
inline AclRegion protocol_region(uint8_t protocol) {
  AclRegion r;
  r.only_protocol(protocol);
  return r;
}
inline AclRegion with_ports(AclRegion r) {
  r.only_bits(FlowKey::kHasPorts, FlowKey::kHasPorts);
  return r;
}
inline AclRegion not_later_fragment(AclRegion r) {
  r.only_bits(0, FlowKey::kLaterFragment);
  return r;
}

// The fewest prefixes that make up the addresses from low to high, in order; none when they are of two families or the
// range is empty.
std::vector<IpPrefix> prefixes_of_range(const IpAddress& low, const IpAddress& high);

}  // namespace sluice
