#include "tables/acl/rule_set.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice {
namespace {

uint8_t flat_length(const IpPrefix& prefix) {
  if (prefix.length == 0) return 0;
  return static_cast<uint8_t>(prefix.address.family == 4 ? 96 + prefix.length : prefix.length);
}

}  // namespace

const char* acl_rule_fault(const AclRule& rule) {
  if (rule.family != 0 && rule.family != 4 && rule.family != 6) return "the address family is not 4, 6 or 0";
  for (const IpPrefix* prefix : {&rule.src, &rule.dst}) {
    if (prefix->length == 0) continue;
    if (prefix->address.family != rule.family || rule.family == 0)
      return "a prefix is not of the rule's address family";
    if (prefix->length > (rule.family == 4 ? 32 : 128)) return "a prefix is longer than an address";
  }
  if (rule.src_port_low > rule.src_port_high || rule.dst_port_low > rule.dst_port_high) return "a port range is empty";
  if (rule.dscp != AclRule::kAnyDscp && rule.dscp > 63) return "the DSCP is above 63";
  if (rule.verb == AclVerb::kNone || rule.verb > AclVerb::kMark) return "the action is unknown";
  return nullptr;
}

AclMatchRule flatten(const AclRule& rule, uint32_t position) {
  AclMatchRule flat{};
  flat.src_length = flat_length(rule.src);
  flat.dst_length = flat_length(rule.dst);
  auto cut = [](const IpPrefix& prefix, unsigned length, uint64_t& hi, uint64_t& lo) {
    hi = prefix.address.hi & high_mask64(length < 64 ? length : 64);
    lo = prefix.address.lo & high_mask64(length > 64 ? length - 64 : 0);
  };
  cut(rule.src, flat.src_length, flat.src_hi, flat.src_lo);
  cut(rule.dst, flat.dst_length, flat.dst_hi, flat.dst_lo);
  flat.src_port_low = rule.src_port_low;
  flat.src_port_high = rule.src_port_high;
  flat.dst_port_low = rule.dst_port_low;
  flat.dst_port_high = rule.dst_port_high;
  flat.flags_mask = rule.flags_mask;
  flat.flags = rule.flags & rule.flags_mask;
  flat.icmp_mask = rule.icmp_mask;
  flat.icmp = rule.icmp & rule.icmp_mask;
  flat.protocol_mask = rule.protocol_mask;
  flat.protocol = rule.protocol & rule.protocol_mask;
  flat.family = rule.family;
  if (rule.dscp != AclRule::kAnyDscp) {
    flat.dscp = rule.dscp;
    flat.dscp_mask = 0xff;
  }
  flat.bits_mask = rule.bits_mask;
  flat.bits = rule.bits & rule.bits_mask;
  flat.bits_mask |= absence_bits(rule.flags_mask, rule.icmp_mask);
  if (rule.needs_ports) {
    flat.bits_mask |= FlowKey::kHasPorts;
    flat.bits |= FlowKey::kHasPorts;
  }
  flat.rule = position;
  return flat;
}

bool same_match(const AclMatchRule& a, const AclMatchRule& b) {
  return std::memcmp(&a, &b, offsetof(AclMatchRule, rule)) == 0;
}

Result<void> check_rule_set(const RuleSet& set) {
  if (set.rules.size() > RuleSet::kMaxRules) {
    return Error(fmt::format("{} rules are more than the limit of {}", set.rules.size(), RuleSet::kMaxRules),
                 "split the list");
  }
  Error error;
  size_t faults = 0;
  for (size_t i = 0; i < set.rules.size(); ++i) {
    const AclRule& rule = set.rules[i];
    const char* what = acl_rule_fault(rule);
    if (what == nullptr && !set.files.empty() && rule.file >= set.files.size())
      what = "the source file is not in the list of files";
    if (what == nullptr) continue;
    ++faults;
    if (error.diagnostics.size() >= Diagnostics::kLimit) continue;
    Diagnostic d;
    if (rule.file < set.files.size()) d.file = set.files[rule.file];
    d.line = rule.line;
    d.message = fmt::format("rule {}: {}", i + 1, what);
    error.diagnostics.push_back(std::move(d));
  }
  if (faults == 0) return {};
  error.message = fmt::format("{} of {} rules cannot be used", faults, set.rules.size());
  return error;
}

}  // namespace sluice
