// The positions of an access list's rules, where its image keeps them at numbers with gaps between.
// host only
//
// What a lookup in a patched image returns is a number that grows with the rule's position (tables/acl/patch.h). The
// position is its rank: the rules before its 64 numbers, and the bits before its own in their word.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tables/acl/sections.h"
#include "tables/image.h"

namespace sluice::api {

class RulePositions {
 public:
  // Of a patched image; `before`, or nullptr, are those of an older version: of the same image, then only what the
  // versions differ in is looked at. Throws std::bad_alloc.
  RulePositions(const Image& image, const AclRulesView& rules, const RulePositions* before);

  // Of a number that a lookup in the image returned, or 0.
  uint32_t position(uint32_t number) const {
    return before_[number / 64] + static_cast<uint32_t>(std::popcount(used_[number / 64] << (63 - number % 64)));
  }
  // Precondition: 1 <= position <= size().
  uint32_t number(uint32_t position) const;
  uint32_t size() const { return before_.back(); }
  // What position() reads, for copies in another memory: bits of numbers, and the rules before each 64 of them.
  std::span<const uint64_t> used() const { return used_; }
  std::span<const uint32_t> before() const { return before_; }

 private:
  void look(const AclRulesView& rules, uint32_t first, uint32_t last);

  std::shared_ptr<const PatchLog> log_;
  uint64_t version_ = 0;
  std::vector<uint64_t> used_;    // bit n: number n is a rule
  std::vector<uint32_t> before_;  // rules with numbers below 64 i; one more at the end
};

}  // namespace sluice::api
