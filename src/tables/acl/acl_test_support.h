// For the tests, fuzz targets and benches of ACLs: rules and keys drawn from a seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "net/flow_key.h"
#include "net/types.h"
#include "tables/acl/rule_set.h"

namespace sluice::acl_test {

using Random = std::mt19937_64;

inline uint64_t below(Random& random, uint64_t n) {
  return n == 0 ? 0 : random() % n;
}
inline bool chance(Random& random, unsigned percent) {
  return below(random, 100) < percent;
}

// A prefix of `family`; addresses come from a small pool, so that rules overlap.
inline IpPrefix random_prefix(Random& random, uint8_t family) {
  static constexpr uint8_t kLengths4[] = {0, 0, 8, 12, 16, 20, 23, 24, 24, 27, 28, 30, 32, 32, 32};
  static constexpr uint8_t kLengths6[] = {0, 0, 16, 29, 32, 40, 48, 56, 63, 64, 65, 96, 127, 128, 128};
  IpPrefix prefix;
  prefix.address.family = family;
  const uint64_t noise = below(random, 6) * 0x0101010101010101ull;
  if (family == 4) {
    prefix.length =
        chance(random, 80) ? kLengths4[below(random, std::size(kLengths4))] : static_cast<uint8_t>(below(random, 33));
    prefix.address.lo = (0x0a000000u ^ (noise & 0x03ffffffu) ^ below(random, 8)) & high_mask32(prefix.length);
  } else {
    prefix.length =
        chance(random, 80) ? kLengths6[below(random, std::size(kLengths6))] : static_cast<uint8_t>(below(random, 129));
    prefix.address.hi =
        (0x20010db800000000ull ^ (noise & 0x0000ffffffffull)) & high_mask64(std::min<unsigned>(prefix.length, 64));
    prefix.address.lo = (noise ^ below(random, 8)) & high_mask64(prefix.length > 64 ? prefix.length - 64u : 0);
  }
  return prefix;
}

inline void random_ports(Random& random, uint16_t& low, uint16_t& high) {
  static constexpr uint16_t kKnown[] = {0, 22, 53, 80, 443, 1024, 8080, 65535};
  switch (below(random, 4)) {
    case 0:
      break;  // any
    case 1:
      low = high = kKnown[below(random, std::size(kKnown))];
      break;
    case 2:
      low = static_cast<uint16_t>(below(random, 2000));
      high = static_cast<uint16_t>(low + below(random, 3000));
      break;
    default:
      low = 1024;
      high = 65535;
  }
}

// A rule of any shape; `family` 4, 6, or 0 for a draw among 4, 6 and any.
inline AclRule random_rule(Random& random, uint8_t family = 0) {
  AclRule rule;
  rule.family = family != 0 ? family : std::array<uint8_t, 5>{4, 4, 6, 6, 0}[below(random, 5)];
  if (rule.family != 0) {
    rule.src = random_prefix(random, rule.family);
    rule.dst = random_prefix(random, rule.family);
  }
  random_ports(random, rule.src_port_low, rule.src_port_high);
  random_ports(random, rule.dst_port_low, rule.dst_port_high);
  if (chance(random, 70)) {
    rule.protocol = std::array<uint8_t, 4>{6, 17, 1, 58}[below(random, 4)];
    rule.protocol_mask = chance(random, 95) ? 0xff : static_cast<uint8_t>(random());
    rule.protocol &= rule.protocol_mask;
  }
  if (chance(random, 20)) {
    rule.flags_mask = static_cast<uint16_t>((1u << below(random, 6) | 1u << below(random, 6)) << 8);
    rule.flags = static_cast<uint16_t>(random()) & rule.flags_mask;
  }
  if (chance(random, 8)) rule.dscp = static_cast<uint8_t>(below(random, 64));
  if (chance(random, 8)) {
    rule.bits_mask = static_cast<uint8_t>(1u << below(random, 7));
    rule.bits = chance(random, 50) ? rule.bits_mask : uint8_t{0};
  }
  if (chance(random, 8)) rule.needs_ports = true;
  if (chance(random, 8)) {
    rule.icmp_mask = chance(random, 50) ? 0xff00 : 0xffff;
    rule.icmp = static_cast<uint16_t>(below(random, 4) << 8) & rule.icmp_mask;
  }
  rule.verb = std::array<AclVerb, 3>{AclVerb::kPermit, AclVerb::kDeny, AclVerb::kMark}[below(random, 3)];
  if (rule.verb == AclVerb::kMark) rule.mark = static_cast<uint32_t>(below(random, 1000));
  rule.log = chance(random, 10);
  return rule;
}

inline RuleSet random_set(Random& random, size_t rules, uint8_t family = 0) {
  RuleSet set;
  set.files = {"random.acl"};
  for (size_t i = 0; i < rules; ++i) {
    set.rules.push_back(random_rule(random, family));
    set.rules.back().line = static_cast<uint32_t>(i + 1);
  }
  return set;
}

// Source and destination prefixes of every pair of lengths, with and without exact ports: no tuple holds more than a
// rule or two.
inline RuleSet every_pair_of_lengths(Random& random) {
  RuleSet set;
  for (unsigned src = 0; src <= 32; ++src) {
    for (unsigned dst = 0; dst <= 32; ++dst) {
      for (const bool ports : {false, true}) {
        AclRule r;
        r.family = 4;
        r.src = {{0, random() & high_mask32(src), 4}, static_cast<uint8_t>(src)};
        r.dst = {{0, random() & high_mask32(dst), 4}, static_cast<uint8_t>(dst)};
        if (ports) {
          r.src_port_low = r.src_port_high = static_cast<uint16_t>(random());
          r.dst_port_low = r.dst_port_high = static_cast<uint16_t>(random());
        }
        set.rules.push_back(r);
      }
    }
  }
  std::shuffle(set.rules.begin(), set.rules.end(), random);
  return set;
}

// Prefixes of one address, each inside of the one before: every lookup of that address passes all of them.
inline RuleSet nested_prefixes() {
  RuleSet set;
  for (unsigned src = 33; src-- > 0;) {
    for (unsigned dst = 33; dst-- > 0;) {
      AclRule r;
      r.family = 4;
      r.src = {{0, 0x0a0b0c0d & high_mask32(src), 4}, static_cast<uint8_t>(src)};
      r.dst = {{0, 0xc0a80101 & high_mask32(dst), 4}, static_cast<uint8_t>(dst)};
      set.rules.push_back(r);
    }
  }
  return set;
}

// One pair of prefixes, and ranges of ports that overlap: nothing that is hashed tells the rules apart.
inline RuleSet overlapping_ranges(unsigned count) {
  RuleSet set;
  for (unsigned i = 0; i < count; ++i) {
    AclRule rule;
    rule.family = 4;
    rule.src = {{0, 0x0a000000, 4}, 8};
    rule.dst = {{0, 0x0a010000, 4}, 16};
    rule.src_port_low = static_cast<uint16_t>(i * 3);
    rule.src_port_high = static_cast<uint16_t>(i * 3 + 2000);
    rule.dst_port_low = static_cast<uint16_t>(60000 - i * 5);
    rule.dst_port_high = static_cast<uint16_t>(60000 - i * 5 + 800);
    set.rules.push_back(rule);
  }
  return set;
}

// Wildcards but for a field that is never hashed.
inline RuleSet wildcards_by_flags(unsigned count) {
  RuleSet set;
  for (unsigned i = 0; i < count; ++i) {
    AclRule rule;
    rule.flags_mask = 0xffff;
    rule.flags = static_cast<uint16_t>(i * 6);
    set.rules.push_back(rule);
  }
  return set;
}

// A key with no relation to any rule.
inline FlowKey random_key(Random& random) {
  FlowKey key;
  key.family = std::array<uint8_t, 8>{4, 4, 4, 4, 6, 6, 6, 0}[below(random, 8)];
  key.src_lo = key.family == 4 ? random() & 0xffffffffu : random();
  key.dst_lo = key.family == 4 ? random() & 0xffffffffu : random();
  if (key.family == 6) {
    key.src_hi = random();
    key.dst_hi = random();
  }
  key.protocol = static_cast<uint8_t>(random());
  key.bits = static_cast<uint8_t>(chance(random, 80) ? below(random, 8) : below(random, 128));
  if ((key.bits & FlowKey::kHasPorts) != 0) {
    key.src_port = static_cast<uint16_t>(random());
    key.dst_port = static_cast<uint16_t>(random());
  }
  key.flags = static_cast<uint16_t>(below(random, 256) << 8);
  key.dscp = static_cast<uint8_t>(below(random, 64));
  key.icmp = static_cast<uint16_t>(below(random, 4) << 8 | below(random, 2));
  return key;
}

// A key of the rule's region: the rule matches it.
inline FlowKey key_in(const AclRule& rule, Random& random) {
  FlowKey key = random_key(random);
  key.family = rule.family != 0 ? rule.family : std::array<uint8_t, 3>{4, 6, 0}[below(random, 3)];
  auto draw = [&](const IpPrefix& prefix, uint64_t& hi, uint64_t& lo) {
    if (key.family == 4) {
      hi = 0;
      lo = prefix.address.lo | (random() & 0xffffffffu & ~high_mask32(prefix.length));
    } else {
      hi = prefix.address.hi | (random() & ~high_mask64(std::min<unsigned>(prefix.length, 64)));
      lo = prefix.address.lo | (random() & ~high_mask64(prefix.length > 64 ? prefix.length - 64u : 0));
    }
  };
  draw(rule.src, key.src_hi, key.src_lo);
  draw(rule.dst, key.dst_hi, key.dst_lo);
  key.src_port = static_cast<uint16_t>(rule.src_port_low + below(random, rule.src_port_high - rule.src_port_low + 1u));
  key.dst_port = static_cast<uint16_t>(rule.dst_port_low + below(random, rule.dst_port_high - rule.dst_port_low + 1u));
  auto mix = [](auto value, auto mask, auto drawn) {
    return static_cast<decltype(value)>((value & mask) | (drawn & ~mask));
  };
  key.protocol = mix(rule.protocol, rule.protocol_mask, chance(random, 50) ? uint8_t{6} : key.protocol);
  key.flags = mix(rule.flags, rule.flags_mask, key.flags);
  key.icmp = mix(rule.icmp, rule.icmp_mask, key.icmp);
  if (rule.dscp != AclRule::kAnyDscp) key.dscp = rule.dscp;
  const AclMatchRule flat = flatten(rule, 1);
  key.bits = mix(flat.bits, flat.bits_mask, static_cast<uint8_t>(key.bits | FlowKey::kHasPorts));
  return key;
}

// Keys of rule regions (each rule equally likely), one in eight without relation to the rules.
inline std::vector<FlowKey> keys_for(const RuleSet& set, size_t n, Random& random, unsigned unrelated_percent = 12) {
  std::vector<FlowKey> keys;
  keys.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    keys.push_back(set.rules.empty() || chance(random, unrelated_percent)
                       ? random_key(random)
                       : key_in(set.rules[below(random, set.rules.size())], random));
  }
  return keys;
}

}  // namespace sluice::acl_test
