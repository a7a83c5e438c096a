#include "tables/acl/region.h"

#include <algorithm>
#include <bit>

namespace sluice {
namespace {

using Address = AclRegion::Address;
using Addresses = AclRegion::Addresses;

constexpr Address kLastIpv4{0, 0xffffffff};

// The last address of the prefix that begins at `a`; its length on the scale of 128 bits.
Address last_of(Address a, unsigned length) {
  a.hi |= ~high_mask64(std::min(length, 64u));
  a.lo |= ~high_mask64(length > 64 ? length - 64 : 0);
  return a;
}
Address after(Address a) {
  if (++a.lo == 0) ++a.hi;
  return a;
}
Address before(Address a) {
  if (a.lo-- == 0) --a.hi;
  return a;
}

// The prefix on the scale of 128 bits; an IPv4 /0 is one of length 96.
Addresses addresses_of(Address first, unsigned length) {
  const Address ones = last_of({0, 0}, length);
  first.hi &= ~ones.hi;
  first.lo &= ~ones.lo;
  return {first, last_of(first, length)};
}

bool addresses_meet(const Addresses& a, const Addresses& b, Addresses& out) {
  out = {std::max(a.low, b.low), std::min(a.high, b.high)};
  return out.low <= out.high;
}

bool cube_meet(const AclRegion::Cube& a, const AclRegion::Cube& b, AclRegion::Cube& out) {
  out = {static_cast<uint16_t>(a.value | b.value), static_cast<uint16_t>(a.mask | b.mask)};
  return ((a.value ^ b.value) & a.mask & b.mask) == 0;
}

bool range_meet(const AclRegion::Range& a, const AclRegion::Range& b, AclRegion::Range& out) {
  out = {std::max(a.low, b.low), std::min(a.high, b.high)};
  return out.low <= out.high;
}

// Calls f(value, mask) for disjoint cubes that make up the set of bytes.
template <typename F>
void each_cube(const std::array<uint64_t, 4>& set, unsigned from, unsigned size, F&& f) {
  unsigned count = 0;
  for (unsigned p = from; p < from + size; ++p) count += static_cast<unsigned>(set[p / 64] >> p % 64 & 1);
  if (count == 0) return;
  if (count == size) {
    f(static_cast<uint8_t>(from), static_cast<uint8_t>(256 - size));
    return;
  }
  each_cube(set, from, size / 2, f);
  each_cube(set, from + size / 2, size / 2, f);
}

// A set of values of FlowKey::bits by the bits that it tests.
struct BitsCube {
  uint8_t value, mask;
  uint32_t set;
};

// Every different set, by its shortest condition; those with fewest tested bits first.
std::vector<BitsCube> make_bits_cubes() {
  constexpr unsigned kAll = FlowKey::kHasPorts | FlowKey::kFragment | FlowKey::kLaterFragment | FlowKey::kNoFlags |
                            FlowKey::kNoIcmpType | FlowKey::kShortL4 | FlowKey::kAfterAh;
  std::vector<BitsCube> cubes;
  for (int tested = 0; tested <= std::popcount(kAll); ++tested) {
    for (unsigned mask = 0; mask <= kAll; ++mask) {
      if (std::popcount(mask) != tested) continue;
      for (unsigned value = 0; value <= mask; ++value) {
        if ((value & ~mask) != 0) continue;
        uint32_t set = 0;
        for (size_t i = 0; i < AclRegion::kOccurring.size(); ++i) {
          if ((AclRegion::kOccurring[i] & mask) == value) set |= uint32_t{1} << i;
        }
        if (set == 0 || std::ranges::any_of(cubes, [&](const BitsCube& c) { return c.set == set; })) continue;
        cubes.push_back({static_cast<uint8_t>(value), static_cast<uint8_t>(mask), set});
      }
    }
  }
  return cubes;
}

// Few cubes that have all of `set` and nothing but that and `also`.
std::vector<BitsCube> bits_cubes_of(uint32_t set, uint32_t also) {
  static const std::vector<BitsCube> all = make_bits_cubes();
  std::vector<BitsCube> found;
  for (uint32_t left = set; left != 0; left &= ~found.back().set) {
    const BitsCube* best = nullptr;
    int gain = 0;
    // Of equal gains the shorter condition is taken.
    for (const BitsCube& cube : all) {
      if ((cube.set & ~(set | also)) != 0 || std::popcount(cube.set & left) <= gain) continue;
      best = &cube;
      gain = std::popcount(cube.set & left);
    }
    found.push_back(*best);
  }
  return found;
}

// The values of FlowKey::bits that have one of `absent`.
uint32_t values_with(uint8_t absent) {
  uint32_t set = 0;
  for (size_t i = 0; i < AclRegion::kOccurring.size(); ++i) {
    if ((AclRegion::kOccurring[i] & absent) != 0) set |= uint32_t{1} << i;
  }
  return set;
}

// Calls f with regions that make up `r`, each of which one rule can write as far as tests of TCP flags and ICMP are
// concerned: a rule with such a test matches no packet without the field (flatten), a region does where the field is 0.
template <typename F>
void each_part(const AclRegion& r, F&& f) {
  const uint32_t without = r.bits & values_with(absence_bits(r.flags.mask, r.icmp.mask));
  if (without != r.bits) {
    AclRegion part = r;
    part.bits &= ~without;
    f(part);
  }
  if (without == 0) return;
  constexpr uint8_t kNoFlags = FlowKey::kNoFlags | FlowKey::kLaterFragment,
                    kNoType = FlowKey::kNoIcmpType | FlowKey::kLaterFragment;
  for (const bool no_flags : {false, true}) {
    for (const bool no_type : {false, true}) {
      AclRegion part = r;
      part.bits = without & (no_flags ? values_with(kNoFlags) : ~values_with(kNoFlags)) &
                  (no_type ? values_with(kNoType) : ~values_with(kNoType));
      const unsigned zero =
          (no_flags ? unsigned{r.flags.value} | (r.icmp.value & 0xffu) : 0u) | (no_type ? r.icmp.value & 0xff00u : 0u);
      if (part.bits == 0 || zero != 0) continue;
      if (no_flags) {
        part.flags = {};
        part.icmp.mask &= 0xff00;
      }
      if (no_type) part.icmp.mask &= 0x00ff;
      f(part);
    }
  }
}

// Calls f(value, mask) for few conditions on FlowKey::bits that make up those of a part. What the tests of its fields
// say already is left out.
template <typename F>
void each_bits(const AclRegion& r, F&& f) {
  if (r.bits == AclRegion::kBitsThatOccur) return f(uint8_t{0}, uint8_t{0});
  const uint8_t said = absence_bits(r.flags.mask, r.icmp.mask);
  // Rules of a list share few sets.
  thread_local uint32_t last = 0;
  thread_local uint8_t last_said = 0;
  thread_local std::vector<BitsCube> cubes;
  if (last != r.bits || last_said != said) cubes = bits_cubes_of(r.bits, values_with(said));
  last = r.bits;
  last_said = said;
  for (const BitsCube& cube : cubes) f(cube.value, static_cast<uint8_t>(cube.mask & ~(said & ~cube.value)));
}

// The prefixes of a field of a rule; one of length 0 where it says nothing.
std::vector<IpPrefix> prefixes_of(const Addresses& field, uint8_t families) {
  const uint8_t family = families == AclRegion::kIpv4 ? 4 : 6;
  const Address last = family == 4 ? kLastIpv4 : Address{~uint64_t{0}, ~uint64_t{0}};
  if (field.low == Address{} && field.high >= last) return {IpPrefix{}};
  return prefixes_of_range({field.low.hi, field.low.lo, family}, {field.high.hi, field.high.lo, family});
}

}  // namespace

void AclRegion::only_bits(uint8_t value, uint8_t mask) {
  for (size_t i = 0; i < kOccurring.size(); ++i) {
    if (((kOccurring[i] ^ value) & mask) != 0) bits &= ~(uint32_t{1} << i);
  }
}

void AclRegion::only_families(uint8_t which) {
  families &= which;
  if (families != kIpv4) return;
  src.high = std::min(src.high, kLastIpv4);
  dst.high = std::min(dst.high, kLastIpv4);
}

void AclRegion::only_prefix(Addresses& field, const IpPrefix& prefix) {
  only_families(prefix.address.family == 4 ? kIpv4 : kIpv6);
  field = addresses_of({prefix.address.hi, prefix.address.lo}, (prefix.address.family == 4 ? 96u : 0u) + prefix.length);
}

void AclRegion::only_range(Addresses& field, const IpAddress& low, const IpAddress& high) {
  only_families(low.family == 4 ? kIpv4 : kIpv6);
  field = {{low.hi, low.lo}, {high.hi, high.lo}};
}

std::optional<AclRegion> region_of(const AclMatchRule& rule) {
  AclRegion r;
  if (rule.family != 0) r.only_families(rule.family == 4 ? AclRegion::kIpv4 : AclRegion::kIpv6);
  if (rule.src_length != 0) r.src = addresses_of({rule.src_hi, rule.src_lo}, rule.src_length);
  if (rule.dst_length != 0) r.dst = addresses_of({rule.dst_hi, rule.dst_lo}, rule.dst_length);
  r.src_port = {rule.src_port_low, rule.src_port_high};
  r.dst_port = {rule.dst_port_low, rule.dst_port_high};
  r.flags = {rule.flags, rule.flags_mask};
  r.icmp = {rule.icmp, rule.icmp_mask};
  r.only_bits(rule.bits, rule.bits_mask);
  if (rule.protocol_mask == 0xff) {
    r.only_protocol(rule.protocol);
  } else if (rule.protocol_mask != 0) {
    for (unsigned p = 0; p < 256; ++p) {
      if (((p ^ rule.protocol) & rule.protocol_mask) != 0) r.protocols[p / 64] &= ~(uint64_t{1} << p % 64);
    }
  }
  if (rule.dscp_mask != 0) {
    for (unsigned d = 0; d < 64; ++d) {
      if (((d ^ rule.dscp) & rule.dscp_mask) != 0) r.dscp &= ~(uint64_t{1} << d);
    }
  }
  if (r.bits == 0 || r.dscp == 0) return std::nullopt;
  return r;
}

bool contains(const AclRegion& outer, const AclRegion& inner) {
  for (size_t i = 0; i < 4; ++i) {
    if ((inner.protocols[i] & ~outer.protocols[i]) != 0) return false;
  }
  auto cube_has = [](const AclRegion::Cube& a, const AclRegion::Cube& b) {
    return (a.mask & ~b.mask) == 0 && ((a.value ^ b.value) & a.mask) == 0;
  };
  return (inner.families & ~outer.families) == 0 && (inner.bits & ~outer.bits) == 0 &&
         (inner.dscp & ~outer.dscp) == 0 && outer.src_port.low <= inner.src_port.low &&
         inner.src_port.high <= outer.src_port.high && outer.dst_port.low <= inner.dst_port.low &&
         inner.dst_port.high <= outer.dst_port.high && cube_has(outer.flags, inner.flags) &&
         cube_has(outer.icmp, inner.icmp) && outer.src.low <= inner.src.low && inner.src.high <= outer.src.high &&
         outer.dst.low <= inner.dst.low && inner.dst.high <= outer.dst.high;
}

bool contains(const AclRegion& r, const FlowKey& k) {
  const uint8_t family = k.family == 4 ? AclRegion::kIpv4 : k.family == 6 ? AclRegion::kIpv6 : 0;
  return (r.families & family) != 0 && (r.bits & AclRegion::bit_of(k.bits)) != 0 &&
         (r.dscp >> (k.dscp & 63) & 1) != 0 && (r.protocols[k.protocol / 64] >> k.protocol % 64 & 1) != 0 &&
         k.src_port >= r.src_port.low && k.src_port <= r.src_port.high && k.dst_port >= r.dst_port.low &&
         k.dst_port <= r.dst_port.high && ((k.flags ^ r.flags.value) & r.flags.mask) == 0 &&
         ((k.icmp ^ r.icmp.value) & r.icmp.mask) == 0 && r.src.low <= Address{k.src_hi, k.src_lo} &&
         Address{k.src_hi, k.src_lo} <= r.src.high && r.dst.low <= Address{k.dst_hi, k.dst_lo} &&
         Address{k.dst_hi, k.dst_lo} <= r.dst.high;
}

bool overlap(const AclRegion& a, const AclRegion& b) {
  const auto ranges = [](const auto& x, const auto& y) { return x.low <= y.high && y.low <= x.high; };
  const auto cubes = [](const AclRegion::Cube& x, const AclRegion::Cube& y) {
    return ((x.value ^ y.value) & x.mask & y.mask) == 0;
  };
  uint64_t protocols = 0;
  for (size_t i = 0; i < 4; ++i) protocols |= a.protocols[i] & b.protocols[i];
  return ranges(a.src, b.src) && ranges(a.dst, b.dst) && protocols != 0 && ranges(a.src_port, b.src_port) &&
         ranges(a.dst_port, b.dst_port) && cubes(a.flags, b.flags) && (a.families & b.families) != 0 &&
         (a.bits & b.bits) != 0 && (a.dscp & b.dscp) != 0 && cubes(a.icmp, b.icmp);
}

std::optional<AclRegion> intersect(const AclRegion& a, const AclRegion& b) {
  AclRegion r;
  r.families = a.families & b.families;
  r.bits = a.bits & b.bits;
  r.dscp = a.dscp & b.dscp;
  uint64_t any = 0;
  for (size_t i = 0; i < 4; ++i) any |= r.protocols[i] = a.protocols[i] & b.protocols[i];
  if (r.families == 0 || r.bits == 0 || r.dscp == 0 || any == 0) return std::nullopt;
  if (!range_meet(a.src_port, b.src_port, r.src_port) || !range_meet(a.dst_port, b.dst_port, r.dst_port) ||
      !cube_meet(a.flags, b.flags, r.flags) || !cube_meet(a.icmp, b.icmp, r.icmp) ||
      !addresses_meet(a.src, b.src, r.src) || !addresses_meet(a.dst, b.dst, r.dst)) {
    return std::nullopt;
  }
  return r;
}

AclRegion hull(const AclRegion& a, const AclRegion& b) {
  AclRegion r;
  r.families = a.families | b.families;
  r.bits = a.bits | b.bits;
  r.dscp = a.dscp | b.dscp;
  for (size_t i = 0; i < 4; ++i) r.protocols[i] = a.protocols[i] | b.protocols[i];
  for (auto field : {&AclRegion::src_port, &AclRegion::dst_port})
    r.*field = {std::min((a.*field).low, (b.*field).low), std::max((a.*field).high, (b.*field).high)};
  for (auto field : {&AclRegion::flags, &AclRegion::icmp}) {
    const AclRegion::Cube &x = a.*field, &y = b.*field;
    const auto mask = static_cast<uint16_t>(x.mask & y.mask & ~(x.value ^ y.value));
    r.*field = {static_cast<uint16_t>(x.value & mask), mask};
  }
  // Of two families it has all addresses.
  if (r.families == (AclRegion::kIpv4 | AclRegion::kIpv6)) return r;
  for (auto field : {&AclRegion::src, &AclRegion::dst})
    r.*field = {std::min((a.*field).low, (b.*field).low), std::max((a.*field).high, (b.*field).high)};
  return r;
}

void subtract(const AclRegion& a, const AclRegion& b, std::vector<AclRegion>& out) {
  const auto common = intersect(a, b);
  if (!common) {
    out.push_back(a);
    return;
  }
  // Field by field: what b leaves out there is a piece; the rest shrinks until it is the common part.
  AclRegion rest = a;
  auto piece = [&](auto&& change) {
    AclRegion p = rest;
    change(p);
    out.push_back(p);
  };
  if (rest.families != common->families) {
    piece([&](AclRegion& p) { p.only_families(static_cast<uint8_t>(~common->families)); });
    rest.only_families(common->families);
  }
  if (rest.protocols != common->protocols) {
    piece([&](AclRegion& p) {
      for (size_t i = 0; i < 4; ++i) p.protocols[i] &= ~common->protocols[i];
    });
    rest.protocols = common->protocols;
  }
  if (rest.bits != common->bits) {
    piece([&](AclRegion& p) { p.bits &= ~common->bits; });
    rest.bits = common->bits;
  }
  if (rest.dscp != common->dscp) {
    piece([&](AclRegion& p) { p.dscp &= ~common->dscp; });
    rest.dscp = common->dscp;
  }
  for (auto field : {&AclRegion::src_port, &AclRegion::dst_port}) {
    const AclRegion::Range to = (*common).*field;
    if ((rest.*field).low < to.low) piece([&](AclRegion& p) { (p.*field).high = static_cast<uint16_t>(to.low - 1); });
    if ((rest.*field).high > to.high) piece([&](AclRegion& p) { (p.*field).low = static_cast<uint16_t>(to.high + 1); });
    rest.*field = to;
  }
  for (auto field : {&AclRegion::flags, &AclRegion::icmp}) {
    const AclRegion::Cube to = (*common).*field;
    for (unsigned left = to.mask & ~(rest.*field).mask; left != 0; left &= left - 1) {
      const auto bit = static_cast<uint16_t>(left & (~left + 1));
      (rest.*field).mask |= bit;
      (rest.*field).value |= bit & static_cast<uint16_t>(~to.value);
      out.push_back(rest);
      (rest.*field).value = static_cast<uint16_t>(((rest.*field).value & ~bit) | (to.value & bit));
    }
  }
  for (auto field : {&AclRegion::src, &AclRegion::dst}) {
    const Addresses to = (*common).*field;
    if ((rest.*field).low < to.low) piece([&](AclRegion& p) { (p.*field).high = before(to.low); });
    if ((rest.*field).high > to.high) piece([&](AclRegion& p) { (p.*field).low = after(to.high); });
    rest.*field = to;
  }
}

namespace {

// Regions that are the same but for one field: what they have in common, and the field's values as ranges in order that
// do not touch each other.
template <typename Range>
struct Fan {
  AclRegion frame;  // the field holds what lies between the lowest and the highest value
  Range AclRegion::*field;
  std::vector<Range> ranges;
};

Address next_of(Address a) {
  return after(a);
}
Address previous_of(Address a) {
  return before(a);
}
uint32_t next_of(uint16_t a) {
  return a + 1u;
}
uint16_t previous_of(uint16_t a) {
  return static_cast<uint16_t>(a - 1);
}

// Large enough that sorting pays, and equal but for `field`; nothing otherwise.
template <typename Range>
std::optional<Fan<Range>> fan_of(std::span<const AclRegion> what, Range AclRegion::*field) {
  Fan<Range> fan{what[0], field, {}};
  AclRegion other = what[0];
  for (const AclRegion& r : what) {
    other.*field = r.*field;
    if (!(other == r)) return std::nullopt;
    fan.ranges.push_back(r.*field);
  }
  std::sort(fan.ranges.begin(), fan.ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  size_t kept = 0;
  for (const Range& r : fan.ranges) {
    Range& last = fan.ranges[kept];
    if (&r == &last) continue;
    // The highest value of all has no next one, but nothing begins behind it either.
    if (r.low <= last.high || next_of(last.high) == r.low) {
      last.high = std::max(last.high, r.high);
    } else {
      fan.ranges[++kept] = r;
    }
  }
  fan.ranges.resize(kept + 1);
  (fan.frame.*field).low = fan.ranges.front().low;
  (fan.frame.*field).high = fan.ranges.back().high;
  return fan;
}

// Calls f with the fan that `what` is, where the pairs are so many that it matters. False: it is none.
template <typename F>
bool as_fan(const std::vector<AclRegion>& list, std::span<const AclRegion> what, F&& f) {
  if (what.size() < 64) return false;
  for (auto field : {&AclRegion::src, &AclRegion::dst}) {
    if (const auto fan = fan_of(what, field)) return f(*fan), true;
  }
  if (list.size() < 64) return false;
  for (auto field : {&AclRegion::src_port, &AclRegion::dst_port}) {
    if (const auto fan = fan_of(what, field)) return f(*fan), true;
  }
  return false;
}

bool counted(size_t list, size_t what, uint64_t* work) {
  const uint64_t pairs = uint64_t{list} * what;
  if (work == nullptr) return pairs <= kMaxRegionWork;
  return (*work += pairs) <= kMaxRegionWork;
}

// The first of the fan's ranges that does not lie before `low`.
template <typename Range, typename Value>
size_t first_range(const Fan<Range>& fan, const Value& low) {
  return static_cast<size_t>(
      std::partition_point(fan.ranges.begin(), fan.ranges.end(), [&](const Range& r) { return r.high < low; }) -
      fan.ranges.begin());
}

}  // namespace

bool keep_only(std::vector<AclRegion>& list, std::span<const AclRegion> what, size_t limit, uint64_t* work) {
  std::vector<AclRegion> out;
  const auto each = [&](const auto& fan) {
    for (const AclRegion& a : list) {
      auto common = intersect(a, fan.frame);
      if (!common) continue;
      const auto within = (*common).*fan.field;
      for (size_t i = first_range(fan, within.low); i < fan.ranges.size() && fan.ranges[i].low <= within.high; ++i) {
        (*common).*fan.field = {std::max(fan.ranges[i].low, within.low), std::min(fan.ranges[i].high, within.high)};
        out.push_back(*common);
        if (out.size() > limit) return;
      }
    }
  };
  // For a single region the pairs are few already.
  if (list.size() > 1 && as_fan(list, what, each)) {
    list = std::move(out);
    return list.size() <= limit;
  }
  if (!counted(list.size(), what.size(), work)) return false;
  for (const AclRegion& a : list) {
    for (const AclRegion& b : what) {
      if (const auto common = intersect(a, b)) out.push_back(*common);
      if (out.size() > limit) return false;
    }
  }
  list = std::move(out);
  return true;
}

bool take_away(std::vector<AclRegion>& list, std::span<const AclRegion> what, size_t limit, uint64_t* work) {
  std::vector<AclRegion> out;
  const auto each = [&](const auto& fan) {
    for (const AclRegion& a : list) {
      subtract(a, fan.frame, out);
      if (out.size() > limit) return;
      auto common = intersect(a, fan.frame);
      if (!common) continue;
      // What lies between the ranges.
      const auto within = (*common).*fan.field;
      for (size_t i = first_range(fan, within.low); i + 1 < fan.ranges.size(); ++i) {
        if (fan.ranges[i].high >= within.high) break;
        auto gap = within;
        gap.low = std::max(within.low, static_cast<decltype(gap.low)>(next_of(fan.ranges[i].high)));
        gap.high = std::min(within.high, previous_of(fan.ranges[i + 1].low));
        if (gap.high < gap.low) continue;
        (*common).*fan.field = gap;
        out.push_back(*common);
        if (out.size() > limit) return;
      }
      // A region that begins in a gap.
      if (const size_t i = first_range(fan, within.low); i < fan.ranges.size() && within.low < fan.ranges[i].low) {
        (*common).*fan.field = {within.low, std::min(within.high, previous_of(fan.ranges[i].low))};
        out.push_back(*common);
        if (out.size() > limit) return;
      }
    }
  };
  if (as_fan(list, what, each)) {
    list = std::move(out);
    return list.size() <= limit;
  }
  for (const AclRegion& b : what) {
    if (!counted(list.size(), 1, work)) return false;
    out.clear();
    for (const AclRegion& a : list) {
      subtract(a, b, out);
      if (out.size() > limit) return false;
    }
    list.swap(out);
  }
  return true;
}

FlowKey key_of(const AclRegion& r, uint64_t draw) {
  uint64_t state = draw;
  // All zeros, all ones, or noise.
  auto noise = [&]() -> uint64_t {
    return draw == 0 ? 0 : draw == 1 ? ~uint64_t{0} : mix64(state += 0x9e3779b97f4a7c15);
  };
  // The member at or after a drawn place, round and round; for all ones the highest.
  auto member = [&](auto has, unsigned size) {
    unsigned at = static_cast<unsigned>(noise() % size);
    if (draw == 1) at = size - 1;
    while (!has(at)) at = draw == 1 ? at - 1 : (at + 1) % size;
    return at;
  };
  FlowKey k;
  k.family = r.families == 3 ? (noise() & 1) != 0 ? 6 : 4 : r.families == AclRegion::kIpv4 ? 4 : 6;
  auto address = [&](const Addresses& field, uint64_t& hi, uint64_t& lo) {
    Address last = field.high;
    if (k.family == 4) last = std::min(last, kLastIpv4);
    // Noise below the bits that low and high share, then back into the range.
    unsigned shared = 0;
    while (shared < 128 && prefix_agrees(field.low.hi ^ last.hi, field.low.lo ^ last.lo, shared + 1)) ++shared;
    const Address ones = last_of({0, 0}, shared);
    Address a{field.low.hi & ~ones.hi, field.low.lo & ~ones.lo};
    a.hi |= noise() & ones.hi;
    a.lo |= noise() & ones.lo;
    a = std::clamp(a, field.low, last);
    hi = a.hi;
    lo = a.lo;
  };
  address(r.src, k.src_hi, k.src_lo);
  address(r.dst, k.dst_hi, k.dst_lo);
  k.src_port = static_cast<uint16_t>(r.src_port.low + noise() % (r.src_port.high - r.src_port.low + 1u));
  k.dst_port = static_cast<uint16_t>(r.dst_port.low + noise() % (r.dst_port.high - r.dst_port.low + 1u));
  if (draw == 1) {
    k.src_port = r.src_port.high;
    k.dst_port = r.dst_port.high;
  }
  k.flags = static_cast<uint16_t>(r.flags.value | (noise() & ~r.flags.mask));
  k.icmp = static_cast<uint16_t>(r.icmp.value | (noise() & ~r.icmp.mask));
  k.bits =
      AclRegion::kOccurring[member([&](unsigned b) { return (r.bits >> b & 1) != 0; }, AclRegion::kOccurring.size())];
  k.dscp = static_cast<uint8_t>(member([&](unsigned d) { return (r.dscp >> d & 1) != 0; }, 64));
  k.protocol = static_cast<uint8_t>(member([&](unsigned p) { return (r.protocols[p / 64] >> p % 64 & 1) != 0; }, 256));
  return k;
}

std::vector<IpPrefix> prefixes_of_range(const IpAddress& low, const IpAddress& high) {
  std::vector<IpPrefix> out;
  const Address end{high.hi, high.lo};
  Address at{low.hi, low.lo};
  if (low.family != high.family || end < at) return out;
  const unsigned shortest = low.family == 4 ? 96 : 0;
  while (true) {
    // The shortest prefix that begins here and does not go past the end.
    unsigned length = 128;
    while (length > shortest) {
      const Address ones = last_of({0, 0}, length - 1);
      if ((at.hi & ones.hi) != 0 || (at.lo & ones.lo) != 0 || last_of(at, length - 1) > end) break;
      --length;
    }
    out.push_back({{at.hi, at.lo, low.family}, static_cast<uint8_t>(length - shortest)});
    at = last_of(at, length);
    if (at >= end) return out;
    at = after(at);
  }
}

namespace {

// What is best for the values from `begin` to before `end`, which are those that meet a prefix.
struct Clustering {
  uint64_t inside, outside;
  std::vector<Addresses> out{};

  struct Cost {
    uint64_t around, all;  // prefixes of the addresses that are in no value; what it costs
  };
  Cost weigh(Address first, unsigned length, const Addresses* begin, const Addresses* end) {
    if (begin == end) return {1, 0};
    const Address last = last_of(first, length);
    if (begin->low <= first && last <= begin->high) {
      out.push_back({first, last});
      return {0, inside};
    }
    const size_t mark = out.size();
    const Address middle = last_of(first, length + 1), second = after(middle);
    const Addresses* left = begin;
    while (left != end && left->low <= middle) ++left;
    const Addresses* right = left != begin && middle < left[-1].high ? left - 1 : left;
    const Cost a = weigh(first, length + 1, begin, left), b = weigh(second, length + 1, right, end);
    Cost cost{a.around + b.around, a.all + b.all};
    if (const uint64_t whole = cost.around * outside + inside; whole <= cost.all) {
      out.resize(mark);
      out.push_back({first, last});
      cost.all = whole;
    }
    return cost;
  }
};

}  // namespace

std::vector<Addresses> cluster_addresses(std::span<const Addresses> values, uint8_t family, uint64_t inside,
                                         uint64_t outside) {
  std::vector<Addresses> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end(), [](const Addresses& a, const Addresses& b) { return a.low < b.low; });
  size_t kept = 0;
  for (const Addresses& v : sorted) {
    if (kept != 0 && (v.low <= sorted[kept - 1].high || v.low == after(sorted[kept - 1].high))) {
      sorted[kept - 1].high = std::max(sorted[kept - 1].high, v.high);
    } else {
      sorted[kept++] = v;
    }
  }
  Clustering best{inside, outside};
  const auto cost = best.weigh({}, family == 4 ? 96 : 0, sorted.data(), sorted.data() + kept);
  if (cost.all >= values.size() * inside) return {};
  return std::move(best.out);
}

size_t rule_count(const AclRegion& r) {
  size_t protocols = 0, bits = 0;
  each_cube(r.protocols, 0, 256, [&](uint8_t, uint8_t) { ++protocols; });
  each_part(r, [&](const AclRegion& part) { each_bits(part, [&](uint8_t, uint8_t) { ++bits; }); });
  return protocols * bits * (r.dscp == ~uint64_t{0} ? 1 : static_cast<size_t>(std::popcount(r.dscp))) *
         prefixes_of(r.src, r.families).size() * prefixes_of(r.dst, r.families).size();
}

namespace {

void append_part(const AclRegion& r, const AclRule& like, std::vector<AclRule>& out) {
  AclRule rule;
  rule.verb = like.verb;
  rule.mark = like.mark;
  rule.log = like.log;
  rule.keep = like.keep;
  rule.file = like.file;
  rule.line = like.line;
  rule.family = r.families == 3 ? 0 : r.families == AclRegion::kIpv4 ? 4 : 6;
  rule.src_port_low = r.src_port.low;
  rule.src_port_high = r.src_port.high;
  rule.dst_port_low = r.dst_port.low;
  rule.dst_port_high = r.dst_port.high;
  rule.flags = r.flags.value;
  rule.flags_mask = r.flags.mask;
  rule.icmp = r.icmp.value;
  rule.icmp_mask = r.icmp.mask;
  const auto sources = prefixes_of(r.src, r.families), destinations = prefixes_of(r.dst, r.families);
  each_cube(r.protocols, 0, 256, [&](uint8_t protocol, uint8_t protocol_mask) {
    rule.protocol = protocol;
    rule.protocol_mask = protocol_mask;
    each_bits(r, [&](uint8_t bits, uint8_t mask) {
      rule.needs_ports = (bits & mask & FlowKey::kHasPorts) != 0;
      const auto own = static_cast<uint8_t>(rule.needs_ports ? mask & ~FlowKey::kHasPorts : mask);
      rule.bits_mask = own;
      rule.bits = bits & own;
      for (unsigned d = 0; d < 64; ++d) {
        if (r.dscp == ~uint64_t{0}) {
          rule.dscp = AclRule::kAnyDscp;
          d = 63;
        } else if ((r.dscp >> d & 1) != 0) {
          rule.dscp = static_cast<uint8_t>(d);
        } else {
          continue;
        }
        for (const IpPrefix& src : sources) {
          rule.src = src;
          for (const IpPrefix& dst : destinations) {
            rule.dst = dst;
            out.push_back(rule);
          }
        }
      }
    });
  });
}

}  // namespace

void append_rules(const AclRegion& r, const AclRule& like, std::vector<AclRule>& out) {
  each_part(r, [&](const AclRegion& part) { append_part(part, like, out); });
}

}  // namespace sluice
