// Makes rule sets with the shape of real access lists, firewalls and IP chains, at any size, from a seed.
//
// The shapes follow what Taylor and Turner describe for real filter sets ("ClassBench: a packet classification
// benchmark", IEEE/ACM ToN 15:3, 2007): joint prefix lengths, clustered and nested addresses, five port classes (WC
// any, HI 1024-65535, LO 0-1023, AR another range, EM one port) that go with the protocol, and TCP flags. The
// histograms are small and our own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "generate/flow_region.h"

namespace sluice {

enum class RuleShape : uint8_t { kAcl, kFw, kIpc };

struct RulesOptions {
  RuleShape shape = RuleShape::kAcl;
  uint32_t count = 10'000;  // 10..1,000,000, exactly so many come out
  uint64_t seed = 1;
  double ipv6_fraction = 0;   // 0..1 of the rules
  bool default_rule = false;  // the last rule matches everything (one a family when both occur)
};

// The rules, first = highest priority. No two are equal, and none lies inside an earlier one: specific before general.
// IPv6 rules have the same structure, stretched over 2000::/3. Deterministic in `options`. Errors: an option out of
// range.
Result<std::vector<FlowRegion>> generate_rule_regions(const RulesOptions& options);

// The same as text: ClassBench lines when all rules are IPv4, else the native language, a permit or a deny a rule.
Result<std::string> generate_rules(const RulesOptions& options);

// "@src/len TAB dst/len TAB lo : hi TAB lo : hi TAB 0xPP/0xMM TAB 0xFFFF/0xMMMM" a line. Errors: a rule that is not
// IPv4.
Result<std::string> to_classbench(std::span<const FlowRegion> rules);
// "permit tcp from P [port R] to P [port R] [tcp-flags V/M]"; every fourth or so is a deny, as `seed` says.
// Errors: what that language cannot say (a partial protocol mask, flags without TCP).
Result<std::string> to_native(std::span<const FlowRegion> rules, uint64_t seed);

struct TraceOptions {
  uint64_t count = 100'000;
  uint64_t seed = 1;
};

// A ClassBench trace for the rules: "sip dip sport dport proto word rule" in decimal, a line a header; `word` carries
// the flags in its upper 16 bits, `rule` (from 0) is the rule that drew the header, not always its best match. Rules
// are drawn uniformly; each field is its lowest value, its highest or uniform between, a third each. Errors: no rules,
// or not IPv4.
Result<std::string> generate_trace(std::span<const FlowRegion> rules, const TraceOptions& options);

std::string_view to_string(RuleShape shape);

}  // namespace sluice
