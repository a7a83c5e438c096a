// The oracle: every rule in order, the first match wins. O(rules) a packet; right by inspection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "base/result.h"
#include "tables/acl/isa.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/image.h"

namespace sluice {

class LinearView {
 public:
  LinearView() = default;
  // Checks every rule. Errors: not an ACL image of `linear`, damaged.
  static Result<LinearView> open(const Image& image);

  // 1-based position of the first matching rule, or 0.
  SLUICE_HD uint32_t lookup(const FlowKey& key) const {
    for (uint32_t r = 1; r <= rules_.size(); ++r) {
      if (matches(rules_.rule(r), key)) return r;
    }
    return 0;
  }
  // Host only: `n` keys at once, a rule compared with 32 of them, with the widest vectors that the processor has.
  void lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  // The same on a chosen instruction set, for tests and benches. Precondition: isa_available(isa).
  void lookup_burst_on(AclIsa isa, const FlowKey* const* keys, uint32_t* rules, size_t n) const;
  static bool isa_available(AclIsa isa) { return acl_isa_available(isa); }
  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    rules_.each_pointer(f);
  }

 private:
  AclRulesView rules_;
};
static_assert(std::is_trivially_copyable_v<LinearView>);

struct LinearAcl {
  static constexpr const char* kName = "linear";
  static constexpr const char* kSectionName = "linear";  // as images carry it: 8 bytes at most
  static constexpr const char* kSummary = "every rule in order; the reference";
  static constexpr bool kComparesAll = true;
  using View = LinearView;
  static Result<Image> build(const RuleSet& set);
};

}  // namespace sluice
