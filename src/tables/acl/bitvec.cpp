#include "tables/acl/bitvec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/prefetch.h"
#include "tables/acl/tuple_rules.h"

#include "base/intrinsics.h"

namespace sluice {
namespace {

struct Header {
  uint32_t narrow, wide;  // chunks
  uint64_t rows, words;
  uint64_t rows_offset, words_offset;  // the chunks follow this header
  uint64_t reserved[3];
};
static_assert(sizeof(Header) == 64);

constexpr size_t kKeyBytes = offsetof(FlowKey, reserved);
constexpr size_t kStep = 8;  // keys at once

// --- the conjunction of eight keys' rows ---

// What is left of eight keys' rows: bit w of `some[k]` says that word w of row k is not zero.
struct Left {
  BitvecRow row[kStep];
  uint8_t some[kStep];
};
using AndFn = void (*)(const BitvecChunk& chunk, const BitvecRow* rows, const uint8_t* const* keys, Left& out);

void and_scalar(const BitvecChunk& chunk, const BitvecRow* rows, const uint8_t* const* keys, Left& out) {
  for (size_t k = 0; k < kStep; ++k) {
    out.row[k] = rows[keys[k][chunk.at[0]]];
    for (uint32_t b = 1; b < chunk.count; ++b) {
      const BitvecRow& row = rows[b * 256 + keys[k][chunk.at[b]]];
      for (uint32_t w = 0; w < BitvecRow::kWords; ++w) out.row[k].bits[w] &= row.bits[w];
    }
    unsigned some = 0;
    for (uint32_t w = 0; w < BitvecRow::kWords; ++w) some |= unsigned{out.row[k].bits[w] != 0} << w;
    out.some[k] = static_cast<uint8_t>(some);
  }
}

#if defined(__x86_64__)

// Unrolled by hand, or the compiler keeps `left` in memory.
__attribute__((target("avx512f"))) void and_avx512(const BitvecChunk& chunk, const BitvecRow* rows,
                                                   const uint8_t* const* keys, Left& out) {
  __m512i left[kStep];
  std::fill(std::begin(left), std::end(left), _mm512_set1_epi32(-1));
  for (uint32_t b = 0; b < chunk.count; ++b, rows += 256) {
    const size_t at = chunk.at[b];
    [&]<size_t... k>(std::index_sequence<k...>) __attribute__((target("avx512f"), always_inline)) {
      ((left[k] = _mm512_and_si512(left[k], _mm512_load_si512(rows + keys[k][at]))), ...);
    }
    (std::make_index_sequence<kStep>{});
  }
  for (size_t k = 0; k < kStep; ++k) {
    _mm512_store_si512(out.row + k, left[k]);
    out.some[k] = static_cast<uint8_t>(_mm512_test_epi64_mask(left[k], left[k]));
  }
}

__attribute__((target("avx2"))) void and_avx2(const BitvecChunk& chunk, const BitvecRow* rows,
                                              const uint8_t* const* keys, Left& out) {
  constexpr size_t kKeys = 4;
  for (size_t first = 0; first < kStep; first += kKeys) {
    __m256i left[2 * kKeys];
    std::fill(std::begin(left), std::end(left), _mm256_set1_epi32(-1));
    const BitvecRow* of_byte = rows;
    for (uint32_t b = 0; b < chunk.count; ++b, of_byte += 256) {
      const size_t at = chunk.at[b];
      [&]<size_t... h>(std::index_sequence<h...>) __attribute__((target("avx2"), always_inline)) {
        ((left[h] = _mm256_and_si256(
              left[h], _mm256_load_si256(reinterpret_cast<const __m256i*>(of_byte + keys[first + h / 2][at]) + h % 2))),
         ...);
      }
      (std::make_index_sequence<2 * kKeys>{});
    }
    for (size_t h = 0; h < 2 * kKeys; ++h) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.row + first) + h, left[h]);
      const __m256i none = _mm256_cmpeq_epi64(left[h], _mm256_setzero_si256());
      const int some = ~_mm256_movemask_pd(_mm256_castsi256_pd(none)) & 15;
      out.some[first + h / 2] = static_cast<uint8_t>(h % 2 == 0 ? some : out.some[first + h / 2] | some << 4);
    }
  }
}

#endif

AndFn and_of(AclIsa isa) {
#if defined(__x86_64__)
  if (isa == AclIsa::kAvx512) return and_avx512;
  if (isa == AclIsa::kAvx2) return and_avx2;
#endif
  SLUICE_ASSERT(isa == AclIsa::kScalar);
  return and_scalar;
}

// --- building ---

// What a rule asks of each byte of a key: value and mask, and of the ports a range.
struct Bytes {
  Bytes(const AclMatchRule& r, bool wide) {
    FlowKey v, m;
    v.src_hi = r.src_hi;
    v.src_lo = r.src_lo;
    v.dst_hi = r.dst_hi;
    v.dst_lo = r.dst_lo;
    const auto mask = [](unsigned length, uint64_t& hi, uint64_t& lo) {
      hi = high_mask64(std::min(length, 64u));
      lo = high_mask64(length > 64 ? length - 64 : 0);
    };
    mask(r.src_length, m.src_hi, m.src_lo);
    mask(r.dst_length, m.dst_hi, m.dst_lo);
    v.flags = r.flags;
    m.flags = r.flags_mask;
    v.protocol = r.protocol;
    m.protocol = r.protocol_mask;
    v.dscp = r.dscp;
    m.dscp = r.dscp_mask;
    v.bits = r.bits;
    m.bits = r.bits_mask;
    v.icmp = r.icmp;
    m.icmp = r.icmp_mask;
    if (wide) {
      v.family = r.family;
      m.family = r.family != 0 ? 255 : 0;
    } else {
      // Zero in every IPv4 key.
      m.src_hi = m.dst_hi = 0;
      m.src_lo &= 0xffffffff;
      m.dst_lo &= 0xffffffff;
    }
    std::memcpy(value, &v, kKeyBytes);
    std::memcpy(masks, &m, kKeyBytes);
    range(offsetof(FlowKey, src_port), r.src_port_low, r.src_port_high);
    range(offsetof(FlowKey, dst_port), r.dst_port_low, r.dst_port_high);
  }
  bool constrains(size_t at) const { return masks[at] != 0 || low[at] != 0 || high[at] != 255; }
  bool possible(size_t at, unsigned v) const {
    return ((v ^ value[at]) & masks[at]) == 0 && v >= low[at] && v <= high[at];
  }

  uint8_t value[kKeyBytes] = {}, masks[kKeyBytes] = {}, low[kKeyBytes] = {}, high[kKeyBytes];
  bool exact = true;  // the bytes say all that the rule does

 private:
  // A port is two bytes, the low one first; its low byte is bounded only where the high one is fixed.
  void range(size_t at, unsigned from, unsigned to) {
    if (at == offsetof(FlowKey, src_port)) std::fill(std::begin(high), std::end(high), uint8_t{255});
    low[at + 1] = static_cast<uint8_t>(from >> 8);
    high[at + 1] = static_cast<uint8_t>(to >> 8);
    if (from >> 8 == to >> 8) {
      low[at] = static_cast<uint8_t>(from);
      high[at] = static_cast<uint8_t>(to);
    } else {
      exact = exact && (from & 255) == 0 && (to & 255) == 255;
    }
  }
};
static_assert(std::endian::native == std::endian::little);

struct Parts {
  std::vector<BitvecChunk> chunks;
  std::vector<BitvecRow> rows;
  std::vector<uint32_t> words;

  void add(const std::vector<const AclMatchRule*>& rules, bool wide) {
    for (size_t first = 0; first < rules.size(); first += BitvecRow::kRules) {
      const size_t n = std::min<size_t>(rules.size() - first, BitvecRow::kRules);
      BitvecChunk chunk{};
      chunk.first_row = static_cast<uint32_t>(rows.size());
      chunk.first_word = static_cast<uint32_t>(words.size());
      chunk.rules = static_cast<uint32_t>(n);
      std::vector<Bytes> bytes;
      BitvecRow all{};
      for (size_t i = 0; i < n; ++i) {
        const AclMatchRule& r = *rules[first + i];
        bytes.emplace_back(r, wide);
        words.push_back(r.rule | (bytes.back().exact ? 0 : BitvecView::kFull));
        all.bits[i / 64] |= uint64_t{1} << i % 64;
      }
      for (size_t at = 0; at < kKeyBytes; ++at) {
        const bool any = std::any_of(bytes.begin(), bytes.end(), [&](const Bytes& b) { return b.constrains(at); });
        // Something has to tell which rules there are.
        if (!any && (chunk.count != 0 || at + 1 < kKeyBytes)) continue;
        chunk.at[chunk.count++] = static_cast<uint8_t>(at);
        const size_t row = rows.size();
        rows.resize(row + 256, all);
        for (size_t i = 0; i < n; ++i) {
          if (!bytes[i].constrains(at)) continue;
          for (unsigned v = 0; v < 256; ++v) {
            if (!bytes[i].possible(at, v)) rows[row + v].bits[i / 64] &= ~(uint64_t{1} << i % 64);
          }
        }
      }
      chunks.push_back(chunk);
    }
  }
};

}  // namespace

Result<Image> BitvecAcl::build(const RuleSet& set) {
  auto flat = flatten_all(set);
  if (!flat) return std::move(flat).error();
  if (flat->size() > kMaxRules)
    return Error(fmt::format("the access list has {} rules; bitvec takes {} at most", flat->size(), kMaxRules),
                 "take tuple_merge");
  Parts parts;
  parts.add(tuple_detail::distinct_rules(*flat, 4), false);
  Header header{};
  header.narrow = static_cast<uint32_t>(parts.chunks.size());
  parts.add(tuple_detail::distinct_rules(*flat, 6), true);
  header.wide = static_cast<uint32_t>(parts.chunks.size()) - header.narrow;
  header.rows = parts.rows.size();
  header.words = parts.words.size();
  header.rows_offset = sizeof header + parts.chunks.size() * sizeof(BitvecChunk);
  header.words_offset = header.rows_offset + header.rows * sizeof(BitvecRow);

  ImageBuilder builder(ImageKind::kAcl);
  AclSections sections(builder, set);
  const size_t lookup =
      builder.add(SectionTag::kAclLookup, kSectionName, kAclLayoutVersion, header.words_offset + 4 * header.words);
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  sections.fill(*flat);
  std::byte* const base = builder.data(lookup).data();
  const auto write = [&](uint64_t offset, const auto& list) {
    if (!list.empty()) std::memcpy(base + offset, list.data(), list.size() * sizeof list[0]);
  };
  std::memcpy(base, &header, sizeof header);
  write(sizeof header, parts.chunks);
  write(header.rows_offset, parts.rows);
  write(header.words_offset, parts.words);
  return builder.finish();
}

Result<BitvecView> BitvecView::open(const Image& image) {
  auto section = acl_section(image, SectionTag::kAclLookup, BitvecAcl::kSectionName);
  if (!section) return std::move(section).error();
  auto rules = AclRulesView::open(image);
  if (!rules) return std::move(rules).error();
  auto broken = [](const char* what) {
    return Error(std::string("ACL image: bitvec: ") + what, "make the image again with `sluice compile`");
  };
  const auto* header = section_array<Header>(*section, 0, 1);
  if (header == nullptr) return broken("the header is damaged");
  const uint64_t count = uint64_t{header->narrow} + header->wide;
  BitvecView view;
  view.rules_ = *rules;
  view.narrow_ = header->narrow;
  view.wide_ = header->wide;
  view.chunks_ = section_array<BitvecChunk>(*section, sizeof(Header), count);
  view.rows_ = section_array<BitvecRow>(*section, header->rows_offset, header->rows);
  view.words_ = section_array<uint32_t>(*section, header->words_offset, header->words);
  if (count >= uint64_t{1} << 32 || view.chunks_ == nullptr || view.rows_ == nullptr || view.words_ == nullptr)
    return broken("an array lies outside the section");
  if (image.checked(SectionTag::kAclLookup)) return view;
  for (uint64_t w = 0; w < header->words; ++w) {
    const uint32_t rule = view.words_[w] & ~kFull;
    if (rule < 1 || rule > rules->size()) return broken("a rule is out of range");
  }
  for (uint64_t i = 0; i < count; ++i) {
    const BitvecChunk& c = view.chunks_[i];
    if (c.rules < 1 || c.rules > BitvecRow::kRules || uint64_t{c.first_word} + c.rules > header->words || c.count < 1 ||
        c.count > kKeyBytes || uint64_t{c.first_row} + uint64_t{c.count} * 256 > header->rows ||
        std::any_of(c.at, c.at + c.count, [](uint8_t at) { return at >= kKeyBytes; })) {
      return broken("a chunk is damaged");
    }
    for (uint32_t r = 0; r < c.count * 256; ++r) {
      for (uint32_t bit = c.rules; bit < BitvecRow::kRules; bit = (bit / 64 + 1) * 64) {
        if (view.rows_[c.first_row + r].bits[bit / 64] >> bit % 64 != 0) return broken("a row has a rule too many");
      }
    }
  }
  image.note_checked(SectionTag::kAclLookup);
  return view;
}

// Searches the keys keys[which[0..n)], chunk by chunk; those that have their rule leave `which`.
void BitvecView::burst(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, uint8_t* which, size_t n,
                       bool wide) const {
  const AndFn conjunction = and_of(isa);
  for (size_t i = 0; i < n; ++i) rules[which[i]] = 0;
  const BitvecChunk* const begin = chunks_ + (wide ? narrow_ : 0);
  for (const BitvecChunk* chunk = begin; chunk != begin + (wide ? wide_ : narrow_) && n > 0; ++chunk) {
    size_t left = 0;
    for (size_t first = 0; first < n; first += kStep) {
      const size_t count = std::min(kStep, n - first);
      const uint8_t* bytes[kStep];
      for (size_t k = 0; k < kStep; ++k)
        bytes[k] = reinterpret_cast<const uint8_t*>(keys[which[first + std::min(k, count - 1)]]);
      Left rows;
      conjunction(*chunk, rows_ + chunk->first_row, bytes, rows);
      for (size_t k = 0; k < count; ++k) {
        const uint8_t at = which[first + k];
        // Without a branch on the rule's place: the first word that is not zero.
        const uint32_t w = trailing_zeros32(rows.some[k] | 1u << (BitvecRow::kWords - 1));
        const uint64_t bits = rows.row[k].bits[w];
        if (bits != 0) {
          const uint32_t word = words_[chunk->first_word + 64 * w + trailing_zeros64(bits)];
          rules[at] = (word & kFull) == 0 ? word : first_of_all(*chunk, rows.row[k].bits, *keys[at]);
        }
        if (rules[at] == 0) which[left++] = at;
      }
    }
    n = left;
  }
}

bool BitvecView::lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  bool all_narrow = true;
  SLUICE_ASSERT(isa_available(isa));
  for (size_t begin = 0; begin < n; begin += 32) {
    uint8_t which[2][32];
    size_t counts[2] = {};
    for (size_t i = begin; i < std::min(n, begin + 32); ++i) {
      const size_t wide = keys[i]->family == 4 ? 0 : 1;
      which[wide][counts[wide]++] = static_cast<uint8_t>(i - begin);
    }
    for (const size_t wide : {0, 1}) burst(isa, keys + begin, rules + begin, which[wide], counts[wide], wide != 0);
    all_narrow &= counts[1] == 0;
  }
  return all_narrow;
}

bool BitvecView::lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const {
  return lookup_burst_on(acl_widest_isa(), keys, rules, n);
}

}  // namespace sluice
