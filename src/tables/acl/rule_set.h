// The Model of an access list, and the flat form of one rule that every algorithm verifies against.
//
// A rule constrains any subset of: address family, source and destination prefix, port ranges, protocol, header flags,
// DSCP, fragment bits, ICMP type and code. The first rule of the list that matches wins.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/hd.h"
#include "base/result.h"
#include "net/flow_key.h"
#include "net/types.h"

namespace sluice {

// Stable numbers: images on disk carry them.
enum class AclVerb : uint8_t {
  kNone = 0,  // no rule matched
  kPermit = 1,
  kDeny = 2,
  kMark = 3,  // permit, and set the packet's mark
};

// What a rule does with a packet.
struct AclAction {
  uint32_t mark = 0;  // only for kMark
  AclVerb verb = AclVerb::kNone;
  uint8_t log = 0;   // 1: the rule asks for a log line
  uint8_t keep = 0;  // 1: the connection that the packet opens is tracked
  uint8_t reserved = 0;

  friend bool operator==(const AclAction&, const AclAction&) = default;
};
static_assert(sizeof(AclAction) == 8 && std::is_trivially_copyable_v<AclAction>);

// One rule as configured. Fields that are left at their defaults constrain nothing.
struct AclRule {
  static constexpr uint8_t kAnyDscp = 255;

  uint8_t family = 0;  // 4, 6, or 0: any; 0 only with both prefixes of length 0
  IpPrefix src, dst;   // length 0: any; bits past the length are zero
  uint16_t src_port_low = 0, src_port_high = 65535;
  uint16_t dst_port_low = 0, dst_port_high = 65535;
  uint8_t protocol = 0, protocol_mask = 0;
  uint16_t flags = 0, flags_mask = 0;  // FlowKey::flags form: TCP flags byte << 8
  uint8_t dscp = kAnyDscp;             // 0..63 or kAnyDscp
  uint8_t bits = 0, bits_mask = 0;     // value/mask over FlowKey::bits, for fragments
  // Matches only keys with FlowKey::kHasPorts. A rule of the native language that names a port sets it; a ClassBench
  // rule never does, because there an absent port counts as 0.
  bool needs_ports = false;
  uint16_t icmp = 0, icmp_mask = 0;  // value/mask over FlowKey::icmp (type << 8 | code)
  AclVerb verb = AclVerb::kPermit;
  bool log = false;
  bool keep = false;  // the connection that a packet opens is tracked; not of kDeny
  uint32_t mark = 0;
  uint32_t file = 0;  // index into RuleSet::files
  uint32_t line = 0;  // 1-based; 0: unknown

  friend bool operator==(const AclRule&, const AclRule&) = default;
};

// An ordered access list: rules[0] is looked at first. Its 1-based position is what lookups return.
struct RuleSet {
  static constexpr size_t kMaxRules = size_t{1} << 28;

  std::vector<AclRule> rules;
  std::vector<std::string> files;
};

// One rule as matched, flat, 64 bytes: what images hold. Lengths count on the 128-bit scale, so that an IPv4 /n is
// 96 + n and only /0 is 0; needs_ports is folded into bits.
//
//    0  src_hi src_lo dst_hi dst_lo                                   (FlowKey's form)
//   32  src_port_low src_port_high dst_port_low dst_port_high
//   40  flags flags_mask icmp icmp_mask
//   48  src_length dst_length protocol protocol_mask family dscp dscp_mask bits
//   56  bits_mask (3 zero bytes) rule
struct AclMatchRule {
  uint64_t src_hi, src_lo, dst_hi, dst_lo;
  uint16_t src_port_low, src_port_high, dst_port_low, dst_port_high;
  uint16_t flags, flags_mask, icmp, icmp_mask;
  uint8_t src_length, dst_length, protocol, protocol_mask;
  uint8_t family, dscp, dscp_mask, bits;
  uint8_t bits_mask, reserved[3];
  uint32_t rule;  // 1-based position; algorithms may keep a flag in the highest bit of their own copies
};
static_assert(sizeof(AclMatchRule) == 64 && std::is_trivially_copyable_v<AclMatchRule>);

// Whether the `length` (0..128) highest bits of two addresses agree; `hi` and `lo` are the XOR of their halves.
SLUICE_HD bool prefix_agrees(uint64_t hi, uint64_t lo, unsigned length) {
  const uint64_t hi_mask = high_mask64(length < 64 ? length : 64);
  const uint64_t lo_mask = high_mask64(length > 64 ? length - 64 : 0);
  return ((hi & hi_mask) | (lo & lo_mask)) == 0;
}

// THE definition of a match; every algorithm must agree with it. Precondition: lengths <= 128.
SLUICE_HD bool matches(const AclMatchRule& rule, const FlowKey& key) {
  const unsigned differs = ((key.protocol ^ rule.protocol) & rule.protocol_mask) |
                           ((key.flags ^ rule.flags) & rule.flags_mask) | ((key.icmp ^ rule.icmp) & rule.icmp_mask) |
                           ((key.dscp ^ rule.dscp) & rule.dscp_mask) | ((key.bits ^ rule.bits) & rule.bits_mask);
  return differs == 0 && (rule.family == 0 || rule.family == key.family) && key.src_port >= rule.src_port_low &&
         key.src_port <= rule.src_port_high && key.dst_port >= rule.dst_port_low &&
         key.dst_port <= rule.dst_port_high &&
         prefix_agrees(rule.src_hi ^ key.src_hi, rule.src_lo ^ key.src_lo, rule.src_length) &&
         prefix_agrees(rule.dst_hi ^ key.dst_hi, rule.dst_lo ^ key.dst_lo, rule.dst_length);
}

// Bits of FlowKey::bits that are 0 in every key that has the fields that these masks test.
SLUICE_HD uint8_t absence_bits(uint16_t flags_mask, uint16_t icmp_mask) {
  unsigned bits = 0;
  if (flags_mask != 0 || (icmp_mask & 0xff) != 0) bits |= FlowKey::kNoFlags | FlowKey::kLaterFragment;
  if ((icmp_mask & 0xff00) != 0) bits |= FlowKey::kNoIcmpType | FlowKey::kLaterFragment;
  return static_cast<uint8_t>(bits);
}

// The flat form of `rule` at 1-based `position`. The rule must be valid (check_rule_set). A test of TCP flags, ICMP
// type or code is also one that the packet has them: absence_bits are tested, unless the rule itself tests them.
AclMatchRule flatten(const AclRule& rule, uint32_t position);

// Whether any key can tell the two apart: equal flat forms but for the position.
bool same_match(const AclMatchRule& a, const AclMatchRule& b);

// What is wrong with one rule as check_rule_set has it, its file apart; nullptr: nothing.
const char* acl_rule_fault(const AclRule& rule);

// Errors: too many rules; per rule, with its file and line: empty port range, prefix length or family out of range or
// in conflict, DSCP above 63, file index out of range.
Result<void> check_rule_set(const RuleSet& set);

}  // namespace sluice
