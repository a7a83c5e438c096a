#include "tables/acl/linear.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace sluice {
namespace {

constexpr size_t kLanes = 32;

#if defined(__x86_64__)

// 32 keys as columns of 32-bit words: the addresses, most significant word first, the rest of the key as it lies in
// memory.
struct Columns {
  alignas(64) uint32_t word[8][kLanes];
  alignas(64) uint32_t src_port[kLanes], dst_port[kLanes];
  alignas(64) uint32_t first[kLanes], second[kLanes];  // flags, protocol, DSCP; family, fragment bits, ICMP
};

// What a rule asks of these words.
struct Wanted {
  uint32_t word[8], mask[8];
  uint32_t first, first_mask, second, second_mask;

  explicit Wanted(const AclMatchRule& r) {
    const uint64_t halves[4] = {r.src_hi, r.src_lo, r.dst_hi, r.dst_lo};
    for (unsigned h = 0; h < 4; ++h) {
      const unsigned length = h < 2 ? r.src_length : r.dst_length;
      const uint64_t bits = high_mask64(h % 2 == 0 ? std::min(length, 64u) : length > 64 ? length - 64 : 0);
      for (unsigned half = 0; half < 2; ++half) {
        word[2 * h + half] = static_cast<uint32_t>(halves[h] >> (half == 0 ? 32 : 0));
        mask[2 * h + half] = static_cast<uint32_t>(bits >> (half == 0 ? 32 : 0));
      }
    }
    first = r.flags | uint32_t{r.protocol} << 16 | uint32_t{r.dscp} << 24;
    first_mask = r.flags_mask | uint32_t{r.protocol_mask} << 16 | uint32_t{r.dscp_mask} << 24;
    second = r.family | uint32_t{r.bits} << 8 | uint32_t{r.icmp} << 16;
    second_mask = (r.family != 0 ? 255u : 0u) | uint32_t{r.bits_mask} << 8 | uint32_t{r.icmp_mask} << 16;
  }
};

// One register of AVX2. (GCC 12 takes comparisons of vectors twice as long apart into words; so AVX-512 runs this too.)
typedef uint32_t Eight __attribute__((vector_size(32), may_alias));

// Every rule in order against all columns, until each of the first n lanes has its rule.
__attribute__((target("avx2"))) void scan_avx2(const AclRulesView& rules, const Columns& c, size_t n, uint32_t* found) {
  constexpr size_t kVectors = kLanes / 8;
  Eight best[kVectors] = {};
  for (uint32_t r = 1; r <= rules.size(); ++r) {
    const AclMatchRule& rule = rules.rule(r);
    const Wanted w(rule);
    const auto column = [](const uint32_t* from) __attribute__((always_inline, target("avx2"))) {
      return reinterpret_cast<const Eight*>(from);
    };
    Eight differs[kVectors];
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      differs[v] = ((column(c.first)[v] ^ w.first) & w.first_mask) | ((column(c.second)[v] ^ w.second) & w.second_mask);
    }
    for (size_t i = 0; i < 8; ++i) {
      // The family's test covers the words that are zero in every IPv4 key.
      if (w.mask[i] == 0 || (rule.family == 4 && i % 4 != 3)) continue;
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) differs[v] |= (column(c.word[i])[v] ^ w.word[i]) & w.mask[i];
    }
    const uint32_t src_span = uint32_t{rule.src_port_high} - rule.src_port_low;
    const uint32_t dst_span = uint32_t{rule.dst_port_high} - rule.dst_port_low;
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      const auto hit = (differs[v] == 0) & (column(c.src_port)[v] - rule.src_port_low <= src_span) &
                       (column(c.dst_port)[v] - rule.dst_port_low <= dst_span) & (best[v] == 0);
      best[v] |= reinterpret_cast<Eight>(hit) & r;
    }
    if (r % 16 != 0) continue;
    std::memcpy(found, best, sizeof best);
    if (std::find(found, found + n, 0u) == found + n) return;
  }
  std::memcpy(found, best, sizeof best);
}

Columns columns_of(const FlowKey* const* keys, size_t n) {
  static_assert(offsetof(FlowKey, flags) == 36 && offsetof(FlowKey, protocol) == 38 && offsetof(FlowKey, dscp) == 39 &&
                offsetof(FlowKey, family) == 40 && offsetof(FlowKey, bits) == 41 && offsetof(FlowKey, icmp) == 42);
  Columns c = {};
  for (size_t i = 0; i < n; ++i) {
    const FlowKey& k = *keys[i];
    const uint64_t halves[4] = {k.src_hi, k.src_lo, k.dst_hi, k.dst_lo};
    for (size_t w = 0; w < 8; ++w) c.word[w][i] = static_cast<uint32_t>(halves[w / 2] >> (w % 2 == 0 ? 32 : 0));
    c.src_port[i] = k.src_port;
    c.dst_port[i] = k.dst_port;
    std::memcpy(&c.first[i], &k.flags, sizeof(uint32_t));
    std::memcpy(&c.second[i], &k.family, sizeof(uint32_t));
  }
  return c;
}

#endif

}  // namespace

Result<LinearView> LinearView::open(const Image& image) {
  auto section = acl_section(image, SectionTag::kAclLookup, LinearAcl::kSectionName);
  if (!section) return std::move(section).error();
  auto rules = AclRulesView::open(image);
  if (!rules) return std::move(rules).error();
  LinearView view;
  view.rules_ = *rules;
  return view;
}

void LinearView::lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  lookup_burst_on(acl_widest_isa(), keys, rules, n);
}

void LinearView::lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  SLUICE_ASSERT(isa_available(isa));
#if defined(__x86_64__)
  if (isa != AclIsa::kScalar) {
    for (size_t begin = 0; begin < n; begin += kLanes) {
      const size_t count = std::min(kLanes, n - begin);
      const Columns columns = columns_of(keys + begin, count);
      alignas(64) uint32_t found[kLanes];
      scan_avx2(rules_, columns, count, found);
      std::copy_n(found, count, rules + begin);
    }
    return;
  }
#endif
  for (size_t i = 0; i < n; ++i) rules[i] = lookup(*keys[i]);
}

Result<Image> LinearAcl::build(const RuleSet& set) {
  auto flat = flatten_all(set);
  if (!flat) return std::move(flat).error();
  ImageBuilder builder(ImageKind::kAcl);
  AclSections sections(builder, set);
  builder.add(SectionTag::kAclLookup, kSectionName, kAclLayoutVersion, 0);  // the rules themselves are the structure
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  sections.fill(*flat);
  return builder.finish();
}

}  // namespace sluice
