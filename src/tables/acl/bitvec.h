// Bit vectors for small lists: a bit for each rule, a row of bits for each value of each byte of the key, and the
// conjunction of a key's rows leaves the rules that match.
//
// After Lakshman and Stiliadis (SIGCOMM 1998), with two deviations: a row stands for a byte's value in place of an
// interval of a field, so a key finds its rows without a search; and rules go in chunks of 512, the first ones first,
// so that a row is one register of AVX-512 and a key that has its rule stops. Bytes that no rule of a chunk looks at
// have no rows there. A range of ports that is no product of two sets of bytes is compared (kFull).
//
//   chunk   which bytes have rows, and where they begin: `count` times 256 rows of 64 bytes
//   words   one a rule: its position, kFull
//
// IPv4 keys search the narrow chunks, all others the wide ones; rules without a family stand in both. 16 KiB for
// every byte and chunk: about 0.5 KiB a rule (IPv4), 1.3 (IPv6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bits.h"
#include "base/hd.h"
#include "base/result.h"
#include "tables/acl/isa.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/acl/tuple_space.h"
#include "tables/image.h"

namespace sluice {

struct alignas(64) BitvecRow {
  static constexpr uint32_t kRules = 512, kWords = kRules / 64;
  uint64_t bits[kWords];  // rule i of the chunk is bit i % 64 of word i / 64
};

// Up to 512 rules in order.
struct alignas(64) BitvecChunk {
  uint32_t first_row;
  uint32_t first_word;
  uint32_t rules;  // 1..512; bits past them are zero in every row
  uint32_t count;  // bytes with rows, at least 1
  uint8_t at[48];  // their offsets in FlowKey
};
static_assert(sizeof(BitvecChunk) == 64 && std::is_trivially_copyable_v<BitvecChunk>);

class BitvecView {
 public:
  static constexpr uint32_t kFull = 1u << 31;  // of a word: ask the full rule

  BitvecView() = default;
  // Checks every offset, bit and word. Errors: not an ACL image of `bitvec`, damaged.
  static Result<BitvecView> open(const Image& image);

  // 1-based position of the first matching rule, or 0.
  SLUICE_HD uint32_t lookup(const FlowKey& key, AclTally* tally = nullptr) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&key);
    const uint32_t first = key.family == 4 ? 0 : narrow_, end = first + (key.family == 4 ? narrow_ : wide_);
    for (uint32_t i = first; i < end; ++i) {
      const BitvecChunk& chunk = chunks_[i];
      if (tally != nullptr) tally->reads += chunk.count;
      for (uint32_t w = 0; w < BitvecRow::kWords; ++w) {
        uint64_t left = ~uint64_t{0};
        for (uint32_t b = 0; b < chunk.count && left != 0; ++b)
          left &= rows_[chunk.first_row + b * 256 + bytes[chunk.at[b]]].bits[w];
        if (const uint32_t found = first_of(chunk, w, left, key); found != 0) return found;
      }
    }
    return 0;
  }
  // Host only: `n` (at most 32) keys at once, with the widest vectors that the processor has. Returns whether all are
  // of IPv4.
  bool lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  // The same on a chosen instruction set, for tests and benches. Precondition: isa_available(isa).
  bool lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  static bool isa_available(AclIsa isa) { return acl_isa_available(isa); }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(chunks_);
    f(rows_);
    f(words_);
    rules_.each_pointer(f);
  }

 private:
  // The first rule that word `w` of the conjunction leaves, its full conditions included, or 0.
  SLUICE_HD uint32_t first_of(const BitvecChunk& chunk, uint32_t w, uint64_t left, const FlowKey& key) const {
    for (; left != 0; left &= left - 1) {
      const uint32_t word = words_[chunk.first_word + 64 * w + trailing_zeros64(left)];
      if ((word & kFull) == 0 || matches(rules_.rule(word & ~kFull), key)) return word & ~kFull;
    }
    return 0;
  }
  uint32_t first_of_all(const BitvecChunk& chunk, const uint64_t* words, const FlowKey& key) const {
    for (uint32_t w = 0; w < BitvecRow::kWords; ++w) {
      if (const uint32_t found = first_of(chunk, w, words[w], key); found != 0) return found;
    }
    return 0;
  }
  void burst(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, uint8_t* which, size_t n, bool wide) const;

  const BitvecChunk* chunks_ = nullptr;  // narrow ones first
  const BitvecRow* rows_ = nullptr;
  const uint32_t* words_ = nullptr;
  AclRulesView rules_;
  uint32_t narrow_ = 0, wide_ = 0;
};
static_assert(std::is_trivially_copyable_v<BitvecView>);

struct BitvecAcl {
  static constexpr const char* kName = "bitvec";
  static constexpr const char* kSectionName = "bitvec";
  static constexpr const char* kSummary = "bit vectors by bytes of the key, for lists of up to some hundred rules";
  static constexpr uint32_t kMaxRules = 1u << 17;
  using View = BitvecView;
  // Errors: a rule set that check_rule_set refuses, more than kMaxRules rules, memory.
  static Result<Image> build(const RuleSet& set);
};

}  // namespace sluice
