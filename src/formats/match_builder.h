// The conditions of one filter rule, as they are read, to the packets that it matches. Host only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "net/types.h"
#include "tables/acl/region.h"

namespace sluice {

// Starts with all packets of the families and is narrowed by each condition.
class MatchBuilder {
 public:
  static constexpr size_t kLimit = 65536;  // regions of one rule

  explicit MatchBuilder(uint8_t families = 3) : all_(1) {
    all_[0].only_families(families);
    match_ = all_;
  }

  // Keeps the packets of the regions `within` that are in one of `values` (negated: in none). False when the rule would
  // need more than kLimit regions, or the file more than kMaxRegionWork.
  bool keep(std::vector<AclRegion> within, std::vector<AclRegion> values, bool negated, uint64_t* work) {
    const Condition c{std::move(within), std::move(values), negated};
    if (!narrow(match_, c, work)) return false;
    conditions_.push_back(std::make_shared<const Condition>(c));
    return true;
  }

  const std::vector<AclRegion>& match() const { return match_; }
  // The packets of the families that are not in match(); none when they would need more than the limits. Only returns
  // ask for them: of many conditions they are far more than what matches.
  std::optional<std::vector<AclRegion>> rest(uint64_t* work) const {
    std::vector<AclRegion> all = all_, rest;
    for (const auto& c : conditions_) {
      // A negated condition leaves few regions, its complement many.
      std::vector<AclRegion> outside = all;
      if (!take_away(outside, c->within, kLimit, work) || !keep_only(all, c->within, kLimit, work)) return std::nullopt;
      std::vector<AclRegion> other = all;
      if (!(c->negated ? keep_only(other, c->values, kLimit, work) : take_away(other, c->values, kLimit, work)) ||
          !(c->negated ? take_away(all, c->values, kLimit, work) : keep_only(all, c->values, kLimit, work)) ||
          rest.size() + outside.size() + other.size() > kLimit)
        return std::nullopt;
      rest.insert(rest.end(), outside.begin(), outside.end());
      rest.insert(rest.end(), other.begin(), other.end());
    }
    return rest;
  }

 private:
  struct Condition {
    std::vector<AclRegion> within, values;
    bool negated;
  };
  static bool narrow(std::vector<AclRegion>& list, const Condition& c, uint64_t* work) {
    return keep_only(list, c.within, kLimit, work) &&
           (c.negated ? take_away(list, c.values, kLimit, work) : keep_only(list, c.values, kLimit, work));
  }
  std::vector<AclRegion> all_, match_;
  std::vector<std::shared_ptr<const Condition>> conditions_;  // which copies share
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
