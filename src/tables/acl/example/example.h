// `example`: the skeleton of a rule lookup; copy it with `./dev new acl NAME`. Host and device.
//
// Four lists of rules, by what a packet's protocol is: TCP, UDP, ICMP or another. A rule stands in each list whose
// packets it can match, in order; the first that matches is the answer. O(rules of the list) a packet.
//
//   section: ExampleAclHeader (64 bytes) | rules of class 0 | of class 1 | ... (u32, 1-based)
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "base/result.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/image.h"

namespace sluice {

inline constexpr uint32_t kExampleAclClasses = 4;

struct ExampleAclHeader {
  uint32_t begins[kExampleAclClasses + 1];  // class c: rules[begins[c]] up to rules[begins[c + 1]]
  uint8_t reserved[44];
};
static_assert(sizeof(ExampleAclHeader) == 64);

SLUICE_HD uint32_t example_acl_class(uint8_t protocol) {
  return protocol == 6 ? 0 : protocol == 17 ? 1 : protocol == 1 || protocol == 58 ? 2 : 3;
}

// Non-owning, trivially copyable.
class ExampleAclView {
 public:
  ExampleAclView() = default;
  // An image from disk is untrusted: everything that a lookup relies on is checked here, once. Errors: not an ACL image
  // of this algorithm, a list or a rule that lies outside.
  static Result<ExampleAclView> open(const Image& image);

  // 1-based position of the first matching rule, or 0.
  SLUICE_HD uint32_t lookup(const FlowKey& key) const {
    const uint32_t c = example_acl_class(key.protocol);
    for (uint32_t i = header_->begins[c]; i < header_->begins[c + 1]; ++i) {
      if (matches(rules_.rule(lists_[i]), key)) return lists_[i];
    }
    return 0;
  }
  // Host only: `n` keys (at most 32) at once.
  void lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const {
    for (size_t i = 0; i < n; ++i) rules[i] = lookup(*keys[i]);
  }
  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    rules_.each_pointer(f);
    f(header_);
    f(lists_);
  }

 private:
  AclRulesView rules_;
  const ExampleAclHeader* header_ = nullptr;
  const uint32_t* lists_ = nullptr;
};
static_assert(std::is_trivially_copyable_v<ExampleAclView>);

struct ExampleAcl {
  static constexpr const char* kName = "example";
  static constexpr const char* kSectionName = "example";  // as images carry it: 8 bytes at most
  static constexpr const char* kSummary = "every rule in order, by the packet's protocol";
  // Tested with all others, but in no product. Without this line it is.
  static constexpr bool kOffered = false;
  // A lookup may compare every rule: tests ask long lists for few keys.
  static constexpr bool kComparesAll = true;
  using View = ExampleAclView;
  // Errors: a rule set that check_rule_set refuses, out of memory. An algorithm whose images differ by target takes an
  // TableTarget too.
  static Result<Image> build(const RuleSet& set);
};

}  // namespace sluice
