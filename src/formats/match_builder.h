// The conditions of one filter rule, as they are read, to the packets that it matches. Host only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/types.h"
#include "tables/acl/region.h"

namespace sluice {

// Starts with all packets of the families and is narrowed by each condition.
class MatchBuilder {
 public:
  static constexpr size_t kLimit = 65536;  // regions of one rule

  explicit MatchBuilder(uint8_t families = 3) : match_(1) { match_[0].only_families(families); }

  // Keeps the packets of the regions `within` that are in one of `values` (negated: in none). False when the rule would
  // need more than kLimit regions.
  bool keep(std::span<const AclRegion> within, std::span<const AclRegion> values, bool negated = false) {
    // What does not match is noted as it is taken away: a negated condition leaves few regions, its complement many.
    auto outside = match_;
    bool noted = rest_known_ && take_away(outside, within, kLimit);
    if (!keep_only(match_, within, kLimit)) return false;
    auto other = match_;
    if (!(negated ? take_away(match_, values, kLimit) : keep_only(match_, values, kLimit))) return false;
    noted = noted && (negated ? keep_only(other, values, kLimit) : take_away(other, values, kLimit));
    rest_known_ = noted && rest_.size() + outside.size() + other.size() <= kLimit;
    if (!rest_known_) return true;
    rest_.insert(rest_.end(), outside.begin(), outside.end());
    rest_.insert(rest_.end(), other.begin(), other.end());
    return true;
  }

  const std::vector<AclRegion>& match() const { return match_; }
  // The packets of the families that are not in match(); none when they would need more than kLimit regions.
  std::optional<std::vector<AclRegion>> rest() const { return rest_known_ ? std::optional(rest_) : std::nullopt; }

 private:
  std::vector<AclRegion> match_;
  std::vector<AclRegion> rest_;
  bool rest_known_ = true;
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

}  // namespace sluice
