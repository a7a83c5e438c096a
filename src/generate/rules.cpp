#include "generate/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>
#include <unordered_set>

#include "generate/random.h"
#include "generate/text_writer.h"

namespace sluice {
namespace {

enum class PortClass : uint8_t { kWc, kHi, kLo, kAr, kEm };
using enum PortClass;

// How often a rule of a shape has this protocol and these port classes, in thousandths or so.
struct Kind {
  uint16_t weight;
  int16_t protocol;  // -1: any
  PortClass src, dst;
};

// How often it has these prefix lengths, before they are smeared.
struct LengthPair {
  uint16_t weight;
  uint8_t src, dst;
};

struct FlagsKind {
  uint16_t weight;
  uint16_t value, mask;
};

// Where the addresses of one side come from.
struct SideShape {
  double fresh;         // share of rules that bring a new prefix; the others reuse one of the same length
  double new_site;      // share of new prefixes that open a new /16
  uint8_t skew;         // 1: the early prefixes are reused more than the late ones; 2, 3: much more
  uint8_t branches[4];  // how many ways a site splits at bits 16, 20, 24 and 28
};

struct Shape {
  std::span<const Kind> kinds;
  std::span<const LengthPair> lengths;
  std::span<const FlagsKind> tcp_flags;
  SideShape src, dst;
  double same_pair;        // share of rules that repeat the addresses of another with other ports or protocol
  uint16_t smear[4];       // shares of length - 0, 1, 2, 3 for lengths of 25 and more
  uint16_t zero_smear[3];  // shares of length 0, 1, 2 for length 0
  uint16_t services;       // how many exact ports there are
  uint16_t ranges;         // how many arbitrary ranges
};

constexpr Kind kAclKinds[] = {{592, 6, kWc, kEm}, {166, 6, kWc, kWc}, {114, 6, kWc, kAr}, {84, -1, kWc, kWc},
                              {30, 1, kWc, kWc},  {11, 17, kWc, kEm}, {2, 17, kWc, kAr},  {2, 6, kWc, kLo}};
constexpr LengthPair kAclLengths[] = {{590, 32, 32}, {170, 32, 22}, {80, 24, 32}, {50, 32, 24}, {20, 25, 25},
                                      {20, 22, 16},  {15, 24, 24},  {20, 30, 15}, {12, 32, 7},  {5, 32, 3},
                                      {10, 32, 0},   {3, 8, 32},    {30, 0, 32},  {6, 0, 22},   {1, 8, 0}};
constexpr FlagsKind kAclFlags[] = {{80, 0, 0}, {10, 0, 0x0200}, {10, 0x1000, 0x1000}};

constexpr Kind kFwKinds[] = {{445, 6, kWc, kEm}, {138, 17, kWc, kEm}, {106, 17, kEm, kWc}, {86, 6, kWc, kWc},
                             {48, 47, kWc, kWc}, {39, 6, kHi, kHi},   {36, 1, kWc, kWc},   {26, 17, kEm, kEm},
                             {22, 17, kHi, kHi}, {21, 17, kEm, kHi},  {20, 17, kHi, kEm},  {11, -1, kWc, kWc},
                             {1, 17, kAr, kHi},  {1, 17, kHi, kAr}};
constexpr LengthPair kFwLengths[] = {{620, 0, 32}, {190, 32, 0}, {42, 32, 32}, {56, 28, 0}, {30, 22, 0},
                                     {60, 0, 0},   {20, 0, 28},  {18, 0, 22},  {14, 12, 0}, {4, 28, 29}};
constexpr FlagsKind kFwFlags[] = {{955, 0x0200, 0x1200}, {15, 0, 0},          {8, 0x0400, 0x0400},
                                  {7, 0x0100, 0x0100},   {6, 0x1000, 0x1000}, {5, 0, 0x0200}};

constexpr Kind kIpcKinds[] = {{327, -1, kWc, kWc}, {218, 17, kWc, kEm}, {139, 6, kWc, kEm}, {85, 17, kEm, kWc},
                              {80, 6, kEm, kWc},   {60, 17, kWc, kHi},  {22, 6, kWc, kWc},  {18, 6, kWc, kAr},
                              {15, 6, kAr, kWc},   {11, 1, kWc, kWc},   {6, 17, kWc, kAr},  {3, 17, kEm, kEm},
                              {3, 17, kAr, kWc},   {3, 17, kHi, kWc},   {3, 47, kWc, kWc},  {2, 17, kWc, kWc},
                              {2, 6, kWc, kLo},    {1, 50, kWc, kWc},   {1, 51, kWc, kWc}};
constexpr LengthPair kIpcLengths[] = {{160, 32, 32}, {170, 24, 32}, {170, 24, 24}, {95, 0, 32},  {65, 32, 24},
                                      {60, 24, 0},   {20, 32, 0},   {35, 16, 16},  {20, 16, 24}, {30, 24, 16},
                                      {30, 16, 32},  {45, 24, 27},  {35, 27, 24},  {3, 0, 0},    {20, 32, 16},
                                      {8, 0, 16},    {8, 16, 0},    {15, 27, 27},  {15, 0, 24},  {15, 28, 32}};
constexpr FlagsKind kIpcFlags[] = {{580, 0, 0}, {418, 0, 0x0200}, {2, 0x0200, 0x0200}};

constexpr Shape kShapes[] = {
    {.kinds = kAclKinds,
     .lengths = kAclLengths,
     .tcp_flags = kAclFlags,
     .src = {0.46, 0.03, 1, {1, 2, 4, 8}},
     .dst = {0.085, 0.55, 3, {1, 1, 1, 2}},
     .same_pair = 0.2,
     .smear = {63, 31, 6, 0},
     .zero_smear = {85, 12, 3},
     .services = 60,
     .ranges = 45},
    {.kinds = kFwKinds,
     .lengths = kFwLengths,
     .tcp_flags = kFwFlags,
     .src = {0.97, 0.96, 1, {1, 1, 1, 1}},
     .dst = {0.97, 0.97, 1, {1, 1, 1, 1}},
     .same_pair = 0.03,
     .smear = {48, 40, 9, 3},
     .zero_smear = {67, 30, 3},
     .services = 38,
     .ranges = 2},
    {.kinds = kIpcKinds,
     .lengths = kIpcLengths,
     .tcp_flags = kIpcFlags,
     .src = {0.2, 0.12, 1, {1, 2, 2, 2}},
     .dst = {0.36, 0.12, 1, {1, 2, 2, 3}},
     .same_pair = 0.12,
     .smear = {61, 28, 8, 3},
     .zero_smear = {62, 36, 2},
     .services = 46,
     .ranges = 7},
};

// Ports that access lists name most, roughly in that order.
constexpr uint16_t kServices[] = {80,  443,  25,   53,   22,   21,   123,  1521, 23,  161, 1433, 110,
                                  143, 20,   135,  139,  445,  389,  3306, 88,   514, 69,  137,  138,
                                  162, 119,  179,  500,  1720, 3389, 5060, 8080, 636, 993, 995,  111,
                                  113, 2049, 1812, 1813, 1645, 7,    9,    37,   49,  67,  68,   79};

struct KeyHash {
  size_t operator()(const FlowRegion& r) const {
    uint64_t h = mix64(r.src.address.lo ^ mix64(r.src.address.hi + r.src.length));
    h = mix64(h ^ r.dst.address.lo ^ mix64(r.dst.address.hi + r.dst.length));
    h = mix64(h ^ (uint64_t{r.src_port.low} << 48 | uint64_t{r.src_port.high} << 32 | uint64_t{r.dst_port.low} << 16 |
                   r.dst_port.high));
    return mix64(
        h ^ (uint64_t{r.protocol} << 40 | uint64_t{r.protocol_mask} << 32 | uint64_t{r.flags} << 16 | r.flags_mask));
  }
};

template <typename T>
AliasTable weigh(std::span<const T> items) {
  std::vector<uint64_t> weights;
  for (const T& item : items) weights.push_back(item.weight);
  return AliasTable(weights);
}

AliasTable weigh(std::span<const uint16_t> shares) {
  return AliasTable(std::vector<uint64_t>(shares.begin(), shares.end()));
}

// The prefixes of one side. Early ones are reused most, as the big servers and networks of a site are.
class AddressPool {
 public:
  AddressPool(const SideShape& shape, uint64_t seed) : shape_(shape), salt_(mix64(seed)) {
    fresh_ = chance_threshold(shape.fresh);
    new_site_ = chance_threshold(shape.new_site);
  }

  uint32_t pick(unsigned length, bool force_new, Random& random) {
    if (length == 0) return 0;
    std::vector<uint32_t>& known = known_[length];
    if (!force_new && !known.empty() && !random.chance(fresh_)) return known[skewed(known.size(), shape_.skew, random)];
    const uint32_t prefix = make(length, force_new, random) & high_mask32(length);
    known.push_back(prefix);
    return prefix;
  }

 private:
  static size_t skewed(size_t size, unsigned skew, Random& random) {
    for (; skew > 0; --skew) size = random.below(size) + 1;
    return random.below(size);
  }

  uint32_t make(unsigned length, bool force_new, Random& random) {
    uint32_t site;
    if (sites_.empty() || random.chance(new_site_)) {
      // 1.0 to 223.255, without 10 and 127.
      uint32_t octet = static_cast<uint32_t>(random.between(1, 221));
      octet += octet >= 10;
      octet += octet >= 127;
      site = octet << 24 | static_cast<uint32_t>(random.below(256)) << 16;
      sites_.push_back(site);
    } else {
      site = length <= 16 ? sites_[random.below(sites_.size())] : sites_[skewed(sites_.size(), 1, random)];
    }
    // A list that has used up its structure gets loose hosts.
    if (force_new) return site | static_cast<uint32_t>(random.below(65536));
    // Most prefixes of different lengths lie side by side in a site; one in four follows the common branches and nests.
    const uint64_t lane = random.below(4) == 0 ? 0 : length;
    uint32_t address = site;
    for (unsigned step = 0; step < 4; ++step) {
      const unsigned shift = 12 - 4 * step;
      const uint64_t branch = random.below(shape_.branches[step]);
      address |= static_cast<uint32_t>(mix64(salt_ ^ (lane << 48 | uint64_t{address} << 16 | step << 8 | branch)) & 15)
                 << shift;
    }
    return address;
  }

  SideShape shape_;
  uint64_t salt_, fresh_, new_site_;
  std::vector<uint32_t> sites_;
  std::array<std::vector<uint32_t>, 33> known_;
};

// Stretches an IPv4 prefix over 2000::/3 so that nesting stays: bit i of the IPv4 address goes to its own place, and
// the places between are filled from a hash of the bits before. /16 becomes /32, /24 becomes /64, /32 becomes /128.
constexpr unsigned stretched(unsigned length) {
  if (length == 0) return 0;
  if (length <= 16) return 3 + (length * 29 + 15) / 16;
  if (length <= 24) return 32 + (length - 16) * 4;
  return 64 + (length - 24) * 8;
}

IpPrefix stretch(uint32_t address, unsigned length, uint64_t salt) {
  IpPrefix out;
  out.address.family = 6;
  out.length = static_cast<uint8_t>(stretched(length));
  if (length == 0) return out;
  uint64_t words[2] = {uint64_t{1} << 61, 0};
  for (unsigned bit = 0; bit < length; ++bit) {
    const unsigned begin = bit == 0 ? 3 : stretched(bit);
    const uint64_t fill = mix64(salt ^ (uint64_t{address & high_mask32(bit)} << 8 | bit));
    for (unsigned place = begin; place < stretched(bit + 1); ++place) {
      const uint64_t value = place == begin ? address >> (31 - bit) & 1 : fill >> (place - begin) & 1;
      words[place / 64] |= value << (63 - place % 64);
    }
  }
  out.address.hi = words[0];
  out.address.lo = words[1];
  return out;
}

class RuleGenerator {
 public:
  explicit RuleGenerator(const RulesOptions& options)
      : options_(options),
        shape_(kShapes[static_cast<size_t>(options.shape)]),
        random_(options.seed, 1),
        kinds_(weigh(shape_.kinds)),
        lengths_(weigh(shape_.lengths)),
        flags_(weigh(shape_.tcp_flags)),
        smear_(weigh(std::span<const uint16_t>(shape_.smear))),
        zero_smear_(weigh(std::span<const uint16_t>(shape_.zero_smear))),
        src_(shape_.src, options.seed * 2),
        dst_(shape_.dst, options.seed * 2 + 1),
        same_pair_(chance_threshold(shape_.same_pair)) {
    Random setup(options.seed, 2);
    for (size_t i = 0; i < shape_.services; ++i) {
      services_.push_back(i < std::size(kServices) && setup.below(4) != 0
                              ? kServices[i]
                              : static_cast<uint16_t>(setup.between(1024, 65535)));
    }
    static constexpr uint16_t kWidths[] = {2, 2, 3, 5, 8, 10, 11, 16, 50, 51, 100, 256, 1000};
    for (size_t i = 0; i < shape_.ranges; ++i) {
      const bool open = setup.below(16) == 0;
      const uint32_t width = kWidths[setup.below(std::size(kWidths))];
      const bool low = setup.below(4) == 0;
      const auto from = static_cast<uint32_t>(low ? setup.between(7, 1000) : setup.between(1025, 64000) / 10 * 10);
      ranges_.push_back(
          {static_cast<uint16_t>(from), static_cast<uint16_t>(open ? 65535 : std::min(from + width - 1, 65535u))});
    }
    service_ranks_ = AliasTable(zipf_weights(services_.size(), 1.0));
    range_ranks_ = AliasTable(zipf_weights(ranges_.size(), 0.7));
  }

  std::vector<FlowRegion> run() {
    const uint32_t drawn = options_.count - (options_.default_rule ? 1 : 0);
    const auto six = static_cast<uint32_t>(std::lround(static_cast<double>(drawn) * options_.ipv6_fraction));
    std::unordered_set<FlowRegion, KeyHash> seen;
    seen.reserve(drawn * 2);
    std::vector<FlowRegion> rules;
    rules.reserve(options_.count);
    uint32_t made6 = 0;
    for (uint32_t i = 0; i < drawn; ++i) {
      // Spread evenly: exactly `six` of the rules, wherever the list is cut.
      const bool ipv6 = uint64_t{i + 1} * six / drawn > made6;
      made6 += ipv6;
      for (uint32_t attempt = 0;; ++attempt) {
        const FlowRegion rule = draw(ipv6, attempt >= 4);
        // The default rule is the last one's alone.
        const bool everything = rule.src.length == 0 && rule.dst.length == 0 && rule.protocol_mask == 0;
        if (everything && options_.default_rule) continue;
        if (!seen.insert(rule).second) continue;
        rules.push_back(rule);
        break;
      }
    }
    order(rules);
    if (options_.default_rule) {
      FlowRegion last;
      if (six == 0) last.src.address.family = last.dst.address.family = 4;
      if (six != 0 && six == drawn) last.src.address.family = last.dst.address.family = 6;
      rules.push_back(last);
    }
    return rules;
  }

 private:
  struct Pair {
    uint32_t src = 0, dst = 0;
    unsigned src_length = 0, dst_length = 0;
  };

  unsigned smear(unsigned length) {
    if (length == 0) return zero_smear_.draw(random_);
    if (length >= 25) return length - smear_.draw(random_);
    // Subnet sizes spread to both sides.
    static constexpr int kStep[16] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, 1, 1, 1, -2};
    return static_cast<unsigned>(std::clamp(static_cast<int>(length) + kStep[random_.below(16)], 1, 32));
  }

  RegionPorts port(PortClass port_class) {
    switch (port_class) {
      case kWc:
        return {0, 65535};
      case kHi:
        return {1024, 65535};
      case kLo:
        return {0, 1023};
      case kAr:
        return ranges_[range_ranks_.draw(random_)];
      case kEm:
        break;
    }
    const uint16_t service = services_[service_ranks_.draw(random_)];
    return {service, service};
  }

  FlowRegion draw(bool ipv6, bool force_new) {
    uint32_t kind_index = 0;
    uint32_t length_index = 0;
    // What is rare in one field goes with a part of what is rare in another only: fields are not independent.
    for (int tries = 0; tries < 4; ++tries) {
      kind_index = kinds_.draw(random_);
      length_index = lengths_.draw(random_);
      const bool rare = shape_.kinds[kind_index].weight < 90 && shape_.lengths[length_index].weight < 60;
      if (!rare || mix64(kind_index << 8 | length_index) % 4 == 0) break;
    }
    const Kind& kind = shape_.kinds[kind_index];
    Pair addresses;
    if (!force_new && !pairs_.empty() && random_.chance(same_pair_)) {
      addresses = pairs_[random_.below(pairs_.size())];
    } else {
      const LengthPair& pair = shape_.lengths[length_index];
      addresses.src_length = smear(pair.src);
      addresses.dst_length = smear(pair.dst);
      addresses.src = src_.pick(addresses.src_length, force_new, random_);
      addresses.dst = dst_.pick(addresses.dst_length, force_new, random_);
      pairs_.push_back(addresses);
    }
    const auto& [src, dst, src_length, dst_length] = addresses;
    FlowRegion rule;
    if (ipv6) {
      rule.src = stretch(src, src_length, options_.seed);
      rule.dst = stretch(dst, dst_length, ~options_.seed);
    } else {
      rule.src = {{0, src, 4}, static_cast<uint8_t>(src_length)};
      rule.dst = {{0, dst, 4}, static_cast<uint8_t>(dst_length)};
    }
    rule.src_port = port(kind.src);
    rule.dst_port = port(kind.dst);
    if (kind.protocol >= 0) {
      rule.protocol = static_cast<uint8_t>(kind.protocol);
      // ICMPv6; and 51 is an extension header there, which classifiers walk past.
      if (ipv6 && rule.protocol == 1) rule.protocol = 58;
      if (ipv6 && rule.protocol == 51) rule.protocol = 50;
      rule.protocol_mask = 255;
    }
    if (rule.protocol == 6) {
      const FlagsKind& flags = shape_.tcp_flags[flags_.draw(random_)];
      rule.flags = flags.value;
      rule.flags_mask = flags.mask;
    }
    return rule;
  }

  // A rule inside another is at least as long in both prefixes, no wider in ports, and constrains no fewer bits; so
  // this order puts it first. Equal keys keep the order in which they were drawn.
  static void order(std::vector<FlowRegion>& rules) {
    auto key = [](const FlowRegion& r) {
      // Families never contain each other; IPv4 lengths count fourfold, so that the two are mixed.
      const int bits = (r.src.length + r.dst.length) * (r.src.address.family == 6 ? 1 : 4);
      return std::tuple(256 - bits, uint32_t{r.src_port.high} - r.src_port.low + r.dst_port.high - r.dst_port.low,
                        16 - std::popcount(r.protocol_mask) - std::popcount(r.flags_mask));
    };
    std::stable_sort(rules.begin(), rules.end(),
                     [&](const FlowRegion& a, const FlowRegion& b) { return key(a) < key(b); });
  }

  RulesOptions options_;
  const Shape& shape_;
  Random random_;
  AliasTable kinds_, lengths_, flags_, smear_, zero_smear_, service_ranks_, range_ranks_;
  AddressPool src_, dst_;
  uint64_t same_pair_;
  std::vector<Pair> pairs_;
  std::vector<uint16_t> services_;
  std::vector<RegionPorts> ranges_;
};

void put_ports(TextWriter& out, const RegionPorts& range) {
  if (range.low == 0 && range.high == 65535) return;
  out.put(" port ").number(range.low);
  if (range.high != range.low) out.put('-').number(range.high);
}

void put_native_prefix(TextWriter& out, const IpPrefix& prefix) {
  if (prefix.address.family == 0) {
    out.put("any");
  } else {
    out.prefix(prefix);
  }
}

}  // namespace

std::string_view to_string(RuleShape shape) {
  static constexpr std::string_view kNames[] = {"acl", "fw", "ipc"};
  return kNames[static_cast<size_t>(shape)];
}

Result<std::vector<FlowRegion>> generate_rule_regions(const RulesOptions& options) {
  if (options.count < 10 || options.count > 1'000'000) {
    return Error(fmt::format("rule count {} is out of range", options.count), "10 to 1000000");
  }
  if (!(options.ipv6_fraction >= 0 && options.ipv6_fraction <= 1)) {
    return Error(fmt::format("IPv6 fraction {} is out of range", options.ipv6_fraction), "0 to 1");
  }
  return RuleGenerator(options).run();
}

Result<std::string> generate_rules(const RulesOptions& options) {
  Result<std::vector<FlowRegion>> rules = generate_rule_regions(options);
  if (!rules.ok()) return std::move(rules).error();
  return options.ipv6_fraction > 0 ? to_native(*rules, options.seed) : to_classbench(*rules);
}

Result<std::string> to_classbench(std::span<const FlowRegion> rules) {
  TextWriter out(rules.size() * 96);
  for (const FlowRegion& r : rules) {
    if (r.src.address.family != 4 || r.dst.address.family != 4) {
      return Error(fmt::format("rule {} is not IPv4: ClassBench has no form for it", &r - rules.data() + 1),
                   "write the native language");
    }
    out.put('@').prefix(r.src).put('\t').prefix(r.dst).put('\t');
    out.number(r.src_port.low).put(" : ").number(r.src_port.high).put('\t');
    out.number(r.dst_port.low).put(" : ").number(r.dst_port.high).put('\t');
    out.hex(r.protocol, 2).put('/').hex(r.protocol_mask, 2).put('\t');
    out.hex(r.flags, 4).put('/').hex(r.flags_mask, 4).put('\n');
  }
  return out.take();
}

Result<std::string> to_native(std::span<const FlowRegion> rules, uint64_t seed) {
  TextWriter out(rules.size() * 96);
  Random random(seed, 3);
  for (const FlowRegion& r : rules) {
    const size_t number = static_cast<size_t>(&r - rules.data()) + 1;
    if (r.protocol_mask != 0 && r.protocol_mask != 255) {
      return Error(
          fmt::format("rule {}: protocol mask 0x{:02X} has no form in the native language", number, r.protocol_mask));
    }
    if (r.flags_mask != 0 && (r.protocol_mask == 0 || r.protocol != 6 || (r.flags_mask & 255) != 0)) {
      return Error(fmt::format("rule {}: flags without TCP have no form in the native language", number));
    }
    out.put(random.below(4) == 0 ? "deny " : "permit ");
    if (r.protocol_mask == 0) {
      out.put("ip");
    } else if (r.protocol == 6) {
      out.put("tcp");
    } else if (r.protocol == 17) {
      out.put("udp");
    } else {
      out.number(r.protocol);
    }
    out.put(" from ");
    put_native_prefix(out, r.src);
    put_ports(out, r.src_port);
    out.put(" to ");
    put_native_prefix(out, r.dst);
    put_ports(out, r.dst_port);
    if (r.flags_mask != 0) out.put(" flags ").hex(r.flags, 4).put('/').hex(r.flags_mask, 4);
    out.put('\n');
  }
  return out.take();
}

Result<std::string> generate_trace(std::span<const FlowRegion> rules, const TraceOptions& options) {
  if (rules.empty()) return Error("a trace needs at least one rule");
  for (const FlowRegion& r : rules) {
    if (r.src.address.family != 4 || r.dst.address.family != 4) {
      return Error(fmt::format("rule {} is not IPv4: ClassBench traces have no form for it", &r - rules.data() + 1),
                   "generate a capture instead");
    }
  }
  Random random(options.seed, 4);
  auto corner = [&](uint64_t low, uint64_t high) {
    const uint64_t which = random.below(3);
    return which == 0 ? low : which == 1 ? high : random.between(low, high);
  };
  TextWriter out(std::min<uint64_t>(options.count, 100'000'000) * 56);
  for (uint64_t i = 0; i < options.count; ++i) {
    const uint64_t index = random.below(rules.size());
    const FlowRegion& r = rules[index];
    auto address = [&](const IpPrefix& p) {
      const uint32_t host = ~high_mask32(p.length);
      return (static_cast<uint32_t>(p.address.lo) & ~host) | static_cast<uint32_t>(corner(0, host));
    };
    const uint32_t src = address(r.src);
    const uint32_t dst = address(r.dst);
    const uint64_t src_port = corner(r.src_port.low, r.src_port.high);
    const uint64_t dst_port = corner(r.dst_port.low, r.dst_port.high);
    static constexpr uint8_t kUsual[4] = {6, 6, 17, 1};
    const uint8_t any = kUsual[random.below(4)];
    const auto protocol = static_cast<uint8_t>((r.protocol & r.protocol_mask) | (any & ~r.protocol_mask));
    const auto flags = static_cast<uint32_t>((r.flags & r.flags_mask) | (random.below(65536) & ~r.flags_mask & 0xffff));
    out.number(src).put('\t').number(dst).put('\t').number(src_port).put('\t').number(dst_port).put('\t');
    out.number(protocol).put('\t').number(uint64_t{flags} << 16).put('\t').number(index).put('\n');
  }
  return out.take();
}

}  // namespace sluice
