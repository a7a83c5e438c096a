// The conditions of one filter rule, as they are read, to the packets that it matches. Host only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "formats/filter_chains.h"
#include "net/types.h"
#include "tables/acl/region.h"

namespace sluice {

// Starts with all packets of the families and is narrowed by each condition. What a negated condition leaves out is
// kept as it was written, because the complement of one IPv6 address alone is 128 prefixes.
class MatchBuilder {
 public:
  static constexpr size_t kLimit = 65536;  // regions of one rule

  explicit MatchBuilder(uint8_t families = 3) : match_(1) { match_[0].only_families(families); }

  // Keeps the packets of the regions `within` that are in one of `values` (negated: in none). False when the rule would
  // need more than kLimit regions, or the file more than kMaxRegionWork.
  bool keep(const std::vector<AclRegion>& within, std::vector<AclRegion> values, bool negated, uint64_t* work) {
    if (!keep_only(match_, within, kLimit, work)) return false;
    if (!negated) return keep_only(match_, values, kLimit, work);
    if (!values.empty()) except_.push_back(std::make_shared<const std::vector<AclRegion>>(std::move(values)));
    return true;
  }

  // The packets that the conditions that are not negated leave.
  const std::vector<AclRegion>& match() const { return match_; }
  void put_into(FilterRule& rule) const {
    rule.match = match_;
    rule.except = except_;
  }

 private:
  std::vector<AclRegion> match_;
  std::vector<std::shared_ptr<const std::vector<AclRegion>>> except_;
};

// Packets of one IP protocol, and of a region those that have a field behind the IP header.
inline AclRegion protocol_region(uint8_t protocol) {
  AclRegion r;
  r.only_protocol(protocol);
  return r;
}
inline AclRegion with_ports(AclRegion r) {
  r.only_bits(FlowKey::kHasPorts, FlowKey::kHasPorts);
  return r;
}
inline AclRegion with_flags(AclRegion r) {  // or with an ICMP code
  r.only_bits(0, FlowKey::kLaterFragment | FlowKey::kNoFlags);
  return r;
}
inline AclRegion with_icmp_type(AclRegion r) {
  r.only_bits(0, FlowKey::kLaterFragment | FlowKey::kNoIcmpType);
  return r;
}
// Without what stands behind an Authentication Header of IPv6, where nf_tables ends its walk.
inline AclRegion before_ah(AclRegion r, uint8_t families = AclRegion::kIpv6) {
  if ((families & AclRegion::kIpv6) != 0) r.only_bits(0, FlowKey::kAfterAh);
  return r;
}
// What nf_tables takes for packets of these protocols; 51 in IPv6 is what stands behind an Authentication Header.
inline std::vector<AclRegion> nf_tables_protocols(const AclRegion& protocols, uint8_t families) {
  std::vector<AclRegion> all{before_ah(protocols, families)};
  if ((families & AclRegion::kIpv6) != 0 && (protocols.protocols[0] >> 51 & 1) != 0) {
    AclRegion behind;
    behind.only_families(AclRegion::kIpv6);
    behind.only_bits(FlowKey::kAfterAh, FlowKey::kAfterAh);
    all.push_back(behind);
  }
  return all;
}

}  // namespace sluice
