// Sets of keys as products of sets, one a field: what negations, chains and coverage of rules are worked out with.
//
// The keys that count are those of IPv4 and IPv6 with bits that the parser sets together (a later fragment is a
// fragment and has no ports), where TCP flags, ICMP type and code are 0 if the bits say that they are absent.
// Everything else is taken as `matches` takes it: fields are independent, so a key that has TCP flags without being TCP
// counts too. What holds for all of these keys holds for all packets. Host only.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tables/acl/rule_set.h"

namespace sluice {

// A product of non-empty sets, at its defaults every key. Every function here keeps the sets non-empty; whoever fills
// one in by hand does so too.
struct AclRegion {
  static constexpr uint8_t kIpv4 = 1, kIpv6 = 2;
  // The values of FlowKey::bits that occur, 30 of 128: a later fragment, or the first one or none, with ports or
  // without, whole or short; each behind an Authentication Header or not.
  static constexpr std::array<uint8_t, 30> kOccurring = [] {
    constexpr unsigned kPorts = FlowKey::kHasPorts, kNoFlags = FlowKey::kNoFlags, kShort = FlowKey::kShortL4;
    std::array<uint8_t, 30> all{};
    size_t n = 0;
    for (const unsigned ah : {0u, unsigned{FlowKey::kAfterAh}}) {
      for (const unsigned fragment : {0u, unsigned{FlowKey::kFragment}}) {
        for (const unsigned l4 : {0u, kPorts, kShort, kShort | kPorts, kShort | kPorts | kNoFlags, kShort | kNoFlags,
                                  kShort | kNoFlags | FlowKey::kNoIcmpType}) {
          all[n++] = static_cast<uint8_t>(ah | fragment | l4);
        }
      }
      all[n++] = static_cast<uint8_t>(ah | FlowKey::kFragment | FlowKey::kLaterFragment);
    }
    return all;
  }();
  static constexpr uint32_t kBitsThatOccur = (uint32_t{1} << kOccurring.size()) - 1;
  // The bit of a value of FlowKey::bits in `bits`; 0 where it does not occur.
  static constexpr uint32_t bit_of(uint8_t value) {
    for (size_t i = 0; i < kOccurring.size(); ++i) {
      if (kOccurring[i] == value) return uint32_t{1} << i;
    }
    return 0;
  }

  struct Address {
    uint64_t hi = 0, lo = 0;  // FlowKey's form
    friend auto operator<=>(const Address&, const Address&) = default;
  };
  struct Addresses {
    Address low, high{~uint64_t{0}, ~uint64_t{0}};  // of IPv4 alone, high is at most 2^32 - 1
    friend bool operator==(const Addresses&, const Addresses&) = default;
  };
  struct Range {
    uint16_t low = 0, high = 65535;
    friend bool operator==(const Range&, const Range&) = default;
  };
  struct Cube {
    uint16_t value = 0, mask = 0;  // value has no bit outside of mask
    friend bool operator==(const Cube&, const Cube&) = default;
  };

  uint8_t families = kIpv4 | kIpv6;  // both only with all addresses
  uint32_t bits = kBitsThatOccur;    // bit i: keys with FlowKey::bits == kOccurring[i]
  Addresses src, dst;
  Range src_port, dst_port;
  Cube flags, icmp;
  std::array<uint64_t, 4> protocols{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0},
                                    ~uint64_t{0}};  // bit p % 64 of word p / 64
  uint64_t dscp = ~uint64_t{0};                     // bit d

  void only_protocol(uint8_t protocol) {
    protocols = {};
    protocols[protocol / 64] = uint64_t{1} << protocol % 64;
  }
  // Keeps the values of FlowKey::bits with (bits & mask) == value.
  void only_bits(uint8_t value, uint8_t mask);
  // Of one family, which must be left in `families`. A range is from low to high, both included.
  void only_families(uint8_t which);
  void only_src(const IpPrefix& prefix) { only_prefix(src, prefix); }
  void only_dst(const IpPrefix& prefix) { only_prefix(dst, prefix); }
  void only_src(const IpAddress& low, const IpAddress& high) { only_range(src, low, high); }
  void only_dst(const IpAddress& low, const IpAddress& high) { only_range(dst, low, high); }

  friend bool operator==(const AclRegion&, const AclRegion&) = default;

 private:
  void only_prefix(Addresses& field, const IpPrefix& prefix);
  void only_range(Addresses& field, const IpAddress& low, const IpAddress& high);
};

// The keys that the rule matches; nothing when only keys that cannot occur would.
std::optional<AclRegion> region_of(const AclMatchRule& rule);

bool contains(const AclRegion& outer, const AclRegion& inner);
bool contains(const AclRegion& region, const FlowKey& key);
bool overlap(const AclRegion& a, const AclRegion& b);
std::optional<AclRegion> intersect(const AclRegion& a, const AclRegion& b);
// The smallest region that contains both.
AclRegion hull(const AclRegion& a, const AclRegion& b);
// Appends what is left of `a` without `b`, as disjoint regions: none when b contains a, at most 44 otherwise.
void subtract(const AclRegion& a, const AclRegion& b, std::vector<AclRegion>& out);

// Unions, as lists of regions. Each function replaces `list`; false, with the list in no particular state, when it
// would have more than `limit` regions. Regions of `what` that differ in one field of addresses or ports alone cost
// what comes out, others a step for each pair: these are added to `work` where it is given, and false means also that
// there would be more than kMaxRegionWork of them.
inline constexpr uint64_t kMaxRegionWork = uint64_t{1} << 27;
bool keep_only(std::vector<AclRegion>& list, std::span<const AclRegion> what, size_t limit, uint64_t* work = nullptr);
bool take_away(std::vector<AclRegion>& list, std::span<const AclRegion> what, size_t limit, uint64_t* work = nullptr);

// A key of the region: for draw 0 and 1 a corner (all lowest, all highest), else any, always the same one for a draw.
FlowKey key_of(const AclRegion& region, uint64_t draw);

// The fewest prefixes that make up the addresses from low to high, in order; none when they are of two families or the
// range is empty.
std::vector<IpPrefix> prefixes_of_range(const IpAddress& low, const IpAddress& high);

// Prefixes, in order, that contain all addresses of the values (of one family) and that cost least where each costs
// `inside`, and `outside` for each prefix of the addresses in it that are not in the values. None when a prefix for
// each value costs no more.
std::vector<AclRegion::Addresses> cluster_addresses(std::span<const AclRegion::Addresses> values, uint8_t family,
                                                    uint64_t inside, uint64_t outside);

// How many rules append_rules would write, and the rules: together they match exactly the region's keys (of those that
// can occur). `like` says the action, file and line.
size_t rule_count(const AclRegion& region);
void append_rules(const AclRegion& region, const AclRule& like, std::vector<AclRule>& out);

}  // namespace sluice
