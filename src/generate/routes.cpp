#include "generate/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "generate/random.h"
#include "generate/text_writer.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxRoutes = 2'000'000;

struct LengthShare {
  uint8_t length;
  uint32_t share;
};

// Prefixes of each length in the tables of a tier-1 router, January 2024: 901,899 and 160,147 in all.
constexpr LengthShare kLengths4[] = {{8, 16},     {9, 13},      {10, 38},    {11, 103},   {12, 299},
                                     {13, 581},   {14, 1203},   {15, 2100},  {16, 13490}, {17, 8235},
                                     {18, 13798}, {19, 24870},  {20, 42611}, {21, 50750}, {22, 108623},
                                     {23, 96510}, {24, 537698}, {25, 20},    {26, 3},     {27, 11},
                                     {28, 18},    {29, 17},     {30, 3},     {31, 3},     {32, 886}};
constexpr LengthShare kLengths6[] = {
    {16, 1},    {19, 1},    {20, 16},    {21, 3},    {22, 7},    {23, 8},    {24, 30},    {25, 8},
    {26, 15},   {27, 20},   {28, 193},   {29, 4371}, {30, 650},  {31, 284},  {32, 22548}, {33, 2926},
    {34, 2603}, {35, 1043}, {36, 5996},  {37, 880},  {38, 1617}, {39, 1377}, {40, 13418}, {41, 903},
    {42, 2301}, {43, 1001}, {44, 14365}, {45, 1553}, {46, 3039}, {47, 3153}, {48, 75488}, {49, 11},
    {50, 3},    {52, 1},    {55, 1},     {56, 24},   {58, 20},   {60, 2},    {64, 184},   {112, 2},
    {122, 1},   {124, 4},   {125, 9},    {126, 19},  {127, 42},  {128, 6}};

// How many prefixes of each length make `count` in all: largest remainders get the odd ones.
std::vector<uint32_t> scale(std::span<const LengthShare> shares, uint32_t count) {
  uint64_t total = 0;
  for (const LengthShare& s : shares) total += s.share;
  std::vector<uint32_t> counts;
  std::vector<std::pair<uint64_t, size_t>> remainders;
  uint32_t given = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const uint64_t exact = uint64_t{shares[i].share} * count;
    counts.push_back(static_cast<uint32_t>(exact / total));
    given += counts.back();
    remainders.push_back({exact % total, i});
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; given < count; ++i, ++given) ++counts[remainders[i].second];
  return counts;
}

class NextHops {
 public:
  NextHops(uint32_t count, Random& random) : random_(random), table_(zipf_weights(count, 1.0)) {}
  uint32_t any() { return table_.draw(random_) + 1; }

 private:
  Random& random_;
  AliasTable table_;
};

// Prefixes of a run: mostly one, sometimes many.
uint64_t run_length(Random& random, bool alone) {
  const uint64_t shape = random.below(32);
  if (shape < (alone ? 28 : 19)) return 1;
  if (shape < 28) return random.between(2, 4);
  if (shape < 31) return random.between(4, 16);
  return random.between(16, 96);
}

constexpr uint64_t kKeepParentHop = chance_threshold(0.85);
constexpr uint64_t kKeepRunHop = chance_threshold(0.93);

class Table4 {
 public:
  Table4(const RoutesOptions& options, std::vector<GeneratedRoute>& out)
      : random_(options.seed, 10), hops_(options.next_hops, random_), out_(out), covered_(size_t{1} << 18) {
    // The share of /24s that is announced differs wildly from one /16 to the next.
    std::vector<uint64_t> density(65536, 0);
    for (uint32_t site = 0x0100; site < 0xe000; ++site) {
      if (site >> 8 == 10 || site >> 8 == 127) continue;
      const uint64_t roll = random_.below(100);
      density[site] = roll < 35 ? 0 : roll < 50 ? 1 : roll < 80 ? random_.between(4, 16) : random_.between(16, 90);
    }
    sites_ = AliasTable(density);
  }

  void run(uint32_t count) {
    const std::vector<uint32_t> counts = scale(kLengths4, count);
    parents_.reserve(count);
    for (size_t i = 0; i < counts.size(); ++i) fill(kLengths4[i].length, counts[i]);
  }

 private:
  struct Parent {
    uint32_t address;
    uint16_t next_hop;
    uint8_t length;
    bool nested;
  };

  bool taken(uint32_t address, unsigned length) {
    const size_t index = address >> (32 - length);
    if (length <= 24) return (used_[index >> 6] >> (index & 63) & 1) != 0;
    return std::find(long_used_.begin(), long_used_.end(), address) != long_used_.end();
  }
  void take(uint32_t address, unsigned length) {
    const size_t index = address >> (32 - length);
    if (length <= 24) {
      used_[index >> 6] |= uint64_t{1} << (index & 63);
    } else {
      long_used_.push_back(address);
    }
  }
  // Whether a shorter prefix holds the whole of this one: its first /24 tells.
  bool inside(uint32_t address) const { return (covered_[address >> 14] >> (address >> 8 & 63) & 1) != 0; }
  static bool usable(uint32_t address) {
    const uint32_t octet = address >> 24;
    return octet >= 1 && octet <= 223 && octet != 10 && octet != 127;
  }

  void fill(unsigned length, uint32_t count) {
    if (count == 0) return;
    nested_.clear();
    used_.assign(length <= 24 ? std::max<size_t>(1, (size_t{1} << length) / 64) : 0, 0);
    long_used_.clear();
    const size_t first = out_.size();
    const size_t known = parents_.size();  // shorter ones only
    const uint64_t step = uint64_t{1} << (32 - length);
    // Short prefixes are fresh blocks; more and more of the longer ones split those.
    const uint64_t nested = chance_threshold(length < 16 ? 0.1 : length < 20 ? 0.35 : length <= 24 ? 0.5 : 0.9);
    uint32_t made = 0;
    uint32_t nested_made = 0;
    uint64_t failures = 0;
    uint64_t full = 0;  // times that the structure had no room; after a few, the rest of this length goes anywhere
    while (made < count) {
      uint64_t address = 0;
      uint64_t end = uint64_t{1} << 32;
      uint32_t hop = 0;
      uint32_t parent_hop = 0;
      bool fresh = false;
      const bool desperate = failures > 64 || full > 8;
      // The share counts prefixes, not draws: a fresh draw fails more often.
      if (!desperate && known != 0 && (uint64_t{nested_made} << 32) <= nested * made) {
        Parent parent = parents_[random_.below(known)];
        if (parent.nested) parent = parents_[random_.below(known)];
        const uint64_t slots = uint64_t{1} << (length - parent.length);
        // A split starts at the parent's beginning as often as not.
        address = parent.address + (random_.below(2) == 0 ? 0 : random_.below(slots)) * step;
        end = uint64_t{parent.address} + (uint64_t{1} << (32 - parent.length));
        parent_hop = parent.next_hop;
        hop = random_.chance(kKeepParentHop) ? parent_hop : hops_.any();
      } else {
        // A block outside all others; the short ones land anywhere, so that they do not bury the dense sites.
        for (int tries = 0; tries < 12; ++tries) {
          const uint64_t site = desperate || length < 20 ? random_.below(65536) : sites_.draw(random_);
          address = (site << 16 | random_.below(65536)) & high_mask32(length);
          if (desperate || length > 24 || !inside(static_cast<uint32_t>(address))) break;
        }
        fresh = !desperate;
        hop = hops_.any();
      }
      const uint64_t wanted = std::min<uint64_t>(run_length(random_, false), count - made);
      bool any = false;
      for (uint64_t i = 0; i < wanted && address < end; ++i, address += step) {
        const auto candidate = static_cast<uint32_t>(address);
        if (!usable(candidate) || taken(candidate, length) || (fresh && length <= 24 && inside(candidate))) continue;
        if (!random_.chance(kKeepRunHop))
          hop = parent_hop != 0 && random_.chance(kKeepParentHop) ? parent_hop : hops_.any();
        nested_.push_back(parent_hop != 0);
        nested_made += parent_hop != 0;
        take(candidate, length);
        out_.push_back({{{0, candidate, 4}, static_cast<uint8_t>(length)}, hop});
        any = true;
        ++made;
      }
      full += desperate;
      failures = any ? 0 : failures + 1;
    }
    for (size_t i = first; i < out_.size(); ++i) {
      const auto address = static_cast<uint32_t>(out_[i].prefix.address.lo);
      parents_.push_back(
          {address, static_cast<uint16_t>(out_[i].next_hop), static_cast<uint8_t>(length), nested_[i - first] != 0});
      if (length > 24) continue;
      const uint32_t from = address >> 8;
      const uint32_t to = from + (1u << (24 - length));
      for (uint32_t block = from; block < to;) {
        if ((block & 63) == 0 && to - block >= 64) {
          covered_[block >> 6] = ~uint64_t{0};
          block += 64;
        } else {
          covered_[block >> 6] |= uint64_t{1} << (block & 63);
          ++block;
        }
      }
    }
  }

  Random random_;
  NextHops hops_;
  std::vector<GeneratedRoute>& out_;
  AliasTable sites_;
  std::vector<uint64_t> used_;  // one bit per prefix of the length at hand
  std::vector<uint32_t> long_used_;
  std::vector<uint64_t> covered_;  // one bit per /24 under any prefix so far
  std::vector<Parent> parents_;
  std::vector<uint8_t> nested_;  // per prefix of the length at hand
};

// Open addressing over (high half, low half, length); 0 marks a free slot, which no prefix in 2000::/3 has for a high
// half.
class PrefixSet6 {
 public:
  explicit PrefixSet6(uint64_t count) {
    uint64_t slots = 64;
    while (slots < count * 2) slots *= 2;
    slots_.resize(slots);
  }
  bool insert(uint64_t hi, uint64_t lo, unsigned length) {
    Slot* slot = find(hi, lo, length);
    if (slot->hi != 0) return false;
    *slot = {hi, lo, length};
    return true;
  }
  bool contains(uint64_t hi, uint64_t lo, unsigned length) { return find(hi, lo, length)->hi != 0; }

 private:
  struct Slot {
    uint64_t hi = 0, lo = 0;
    uint64_t length = 0;
  };
  Slot* find(uint64_t hi, uint64_t lo, unsigned length) {
    uint64_t i = mix64(hi ^ mix64(lo + length)) & (slots_.size() - 1);
    while (slots_[i].hi != 0 && (slots_[i].hi != hi || slots_[i].lo != lo || slots_[i].length != length)) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return &slots_[i];
  }
  std::vector<Slot> slots_;
};

class Table6 {
 public:
  Table6(const RoutesOptions& options, std::vector<GeneratedRoute>& out)
      : random_(options.seed, 11),
        hops_(options.next_hops, random_),
        out_(out),
        set_(options.ipv6_count),
        salt_(mix64(options.seed)) {}

  void run(uint32_t count) {
    const std::vector<uint32_t> counts = scale(kLengths6, count);
    first_ = out_.size();
    for (size_t i = 0; i < counts.size(); ++i) {
      fill(kLengths6[i].length, counts[i]);
      if (counts[i] != 0) lengths_.push_back(kLengths6[i].length);
    }
  }

 private:
  static void mask(uint64_t& hi, uint64_t& lo, unsigned length) {
    hi &= high_mask64(std::min(length, 64u));
    lo &= high_mask64(length > 64 ? length - 64 : 0);
  }
  bool inside(uint64_t hi, uint64_t lo, unsigned length) {
    for (const uint8_t shorter : lengths_) {
      if (shorter >= length) break;
      uint64_t h = hi;
      uint64_t l = lo;
      mask(h, l, shorter);
      if (set_.contains(h, l, shorter)) return true;
    }
    return false;
  }

  // A block as registries hand them out: few values of the first 12 bits, then each level splits into a handful.
  uint64_t allocation() {
    static constexpr uint16_t kRegistries[10] = {0x200, 0x240, 0x240, 0x260, 0x280, 0x2a0, 0x2a0, 0x2a0, 0x2c0, 0x2a1};
    static constexpr uint8_t kBranches[] = {7, 12, 13, 6, 8, 10, 16, 16, 16};  // of 16, at bits 12, 16, ..., 44
    uint64_t address = uint64_t{kRegistries[random_.below(10)]} << 52;
    for (unsigned level = 0; level < std::size(kBranches); ++level) {
      const uint64_t branch = random_.below(kBranches[level]);
      const uint64_t nibble = mix64(salt_ ^ address ^ level << 8 ^ branch) & 15;
      address |= nibble << (48 - 4 * level);
    }
    return address | random_.below(65536);
  }

  void fill(unsigned length, uint32_t count) {
    const size_t known = out_.size() - first_;
    const uint64_t nested = chance_threshold(length < 29    ? 0.1
                                             : length <= 32 ? 0.2
                                             : length < 40  ? 0.72
                                             : length <= 64 ? 0.67
                                                            : 1.0);
    const bool high_half = length <= 64;
    const uint64_t step = uint64_t{1} << ((high_half ? 64 : 128) - length);  // of the half that it ends in
    uint64_t failures = 0;
    uint64_t full = 0;  // times that the structure had no room; after a few, the rest of this length goes anywhere
    uint32_t nested_made = 0;
    for (uint32_t made = 0; made < count;) {
      uint64_t hi;
      uint64_t lo = 0;
      uint64_t slots;  // of a run, from here
      uint32_t hop;
      uint32_t parent_hop = 0;
      const bool desperate = failures > 64 || full > 8;
      const bool fresh = desperate || known == 0 || (uint64_t{nested_made} << 32) > nested * made;
      if (fresh) {
        hi = desperate ? uint64_t{1} << 61 | (random_.next() >> 3) : allocation();
        if (!high_half) lo = random_.next();
        mask(hi, lo, length);
        slots = UINT64_MAX;
        hop = hops_.any();
      } else {
        const GeneratedRoute& parent = out_[first_ + random_.below(known)];
        const unsigned parent_length = parent.prefix.length;
        hi = parent.prefix.address.hi;
        lo = parent.prefix.address.lo;
        const bool at_start = random_.below(2) == 0;
        if (high_half) {
          const uint64_t splits = uint64_t{1} << (length - parent_length);
          const uint64_t offset = at_start ? 0 : random_.below(splits);
          hi += offset * step;
          slots = splits - offset;
        } else {
          if (parent_length < 64) hi |= random_.below(uint64_t{1} << std::min(64 - parent_length, 8u));
          lo |= random_.below(256) * step & ~high_mask64(parent_length > 64 ? parent_length - 64 : 0);
          mask(hi, lo, length);
          slots = 1;
        }
        parent_hop = parent.next_hop;
        hop = random_.chance(kKeepParentHop) ? parent_hop : hops_.any();
      }
      const uint64_t wanted = std::min({run_length(random_, length <= 32), uint64_t{count} - made, slots});
      bool any = false;
      for (uint64_t i = 0; i < wanted && hi >> 61 == 1; ++i) {
        if ((!fresh || desperate || !inside(hi, lo, length)) && set_.insert(hi, lo, length)) {
          if (!random_.chance(kKeepRunHop))
            hop = parent_hop != 0 && random_.chance(kKeepParentHop) ? parent_hop : hops_.any();
          out_.push_back({{{hi, lo, 6}, static_cast<uint8_t>(length)}, hop});
          any = true;
          nested_made += parent_hop != 0;
          ++made;
        }
        (high_half ? hi : lo) += step;
      }
      full += desperate;
      failures = any ? 0 : failures + 1;
    }
  }

  Random random_;
  NextHops hops_;
  std::vector<GeneratedRoute>& out_;
  PrefixSet6 set_;
  uint64_t salt_;
  size_t first_ = 0;
  std::vector<uint8_t> lengths_;  // that exist so far
};

}  // namespace

Result<std::vector<GeneratedRoute>> generate_route_list(const RoutesOptions& options) {
  if (options.ipv4_count > kMaxRoutes || options.ipv6_count > kMaxRoutes) {
    return Error(fmt::format("{} routes are out of range", std::max(options.ipv4_count, options.ipv6_count)),
                 fmt::format("0 to {} of each family", kMaxRoutes));
  }
  if (options.next_hops < 1 || options.next_hops > 65535) {
    return Error(fmt::format("{} next hops are out of range", options.next_hops), "1 to 65535");
  }
  std::vector<GeneratedRoute> routes;
  routes.reserve(size_t{options.ipv4_count} + options.ipv6_count);
  if (options.ipv4_count != 0) Table4(options, routes).run(options.ipv4_count);
  if (options.ipv6_count != 0) Table6(options, routes).run(options.ipv6_count);
  std::sort(routes.begin(), routes.end(), [](const GeneratedRoute& a, const GeneratedRoute& b) {
    const IpAddress& x = a.prefix.address;
    const IpAddress& y = b.prefix.address;
    if (x.family != y.family) return x.family < y.family;
    if (x.hi != y.hi) return x.hi < y.hi;
    if (x.lo != y.lo) return x.lo < y.lo;
    return a.prefix.length < b.prefix.length;
  });
  return routes;
}

Result<std::string> generate_routes(const RoutesOptions& options) {
  Result<std::vector<GeneratedRoute>> routes = generate_route_list(options);
  if (!routes.ok()) return std::move(routes).error();
  TextWriter out(routes->size() * 24);
  for (const GeneratedRoute& route : *routes) out.prefix(route.prefix).put(' ').number(route.next_hop).put('\n');
  return out.take();
}

}  // namespace sluice
