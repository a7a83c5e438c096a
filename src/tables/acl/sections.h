// The sections that every ACL image has besides its search structure: rules, actions, sources; and their Views.
//
//   kAclRules    CountHeader, AclMatchRule[count]           rule r (1-based) at r - 1
//   kAclActions  CountHeader, AclAction[count + 1]          slot 0: "no rule matched"
//   kAclSource   SourceHeader, {file, line}[count], {offset, length}[files], text
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hd.h"
#include "base/result.h"
#include "tables/acl/rule_set.h"
#include "tables/image.h"

namespace sluice {

inline constexpr uint32_t kAclLayoutVersion = 2;  // 1: a test of flags or ICMP matched packets without

struct AclCountHeader {
  uint64_t count;
  uint64_t reserved[7];
};
static_assert(sizeof(AclCountHeader) == 64);

// The rules of an image, for verification and for explaining a match.
class AclRulesView {
 public:
  AclRulesView() = default;
  // Errors: section absent, of another version, truncated, or with a rule out of its ranges.
  static Result<AclRulesView> open(const Image& image);

  SLUICE_HD uint32_t size() const { return count_; }
  // Precondition: 1 <= rule <= size().
  SLUICE_HD const AclMatchRule& rule(uint32_t rule) const { return rules_[rule - 1]; }
  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(rules_);
  }

 private:
  const AclMatchRule* rules_ = nullptr;
  uint32_t count_ = 0;
};
static_assert(std::is_trivially_copyable_v<AclRulesView>);

// What each rule does. Rule 0 (no match) and rules out of range have the verb kNone.
class AclActionsView {
 public:
  AclActionsView() = default;
  static Result<AclActionsView> open(const Image& image);

  SLUICE_HD uint32_t size() const { return count_; }
  SLUICE_HD AclAction action(uint32_t rule) const {
    return rule <= count_ && actions_ != nullptr ? actions_[rule] : AclAction{};
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(actions_);
  }

 private:
  const AclAction* actions_ = nullptr;
  uint32_t count_ = 0;
};
static_assert(std::is_trivially_copyable_v<AclActionsView>);

// Where each rule was written. Host only.
class AclSourceView {
 public:
  AclSourceView() = default;
  static Result<AclSourceView> open(const Image& image);

  uint32_t size() const { return count_; }
  // The file's name, empty when unknown or for a rule out of range. Valid as long as the image.
  std::string_view file(uint32_t rule) const;
  // 1-based line, 0 when unknown.
  uint32_t line(uint32_t rule) const;

  // As an image has it.
  struct Place {
    uint32_t file, line;
  };

 private:
  struct Name {
    uint32_t offset, length;
  };
  friend class AclSections;
  const Place* places_ = nullptr;
  const Name* names_ = nullptr;
  const char* text_ = nullptr;
  uint32_t count_ = 0;
  uint32_t files_ = 0;
};

// Writes the common sections: construct, let the algorithm add its own section to the same builder, allocate, fill.
class AclSections {
 public:
  AclSections(ImageBuilder& builder, const RuleSet& set);
  // After ImageBuilder::allocate().
  void fill(std::span<const AclMatchRule> flat);

  // Where rule r of an image lies in the writable bytes `base` of it.
  struct Arrays {
    AclMatchRule* rules;           // r at r - 1
    AclAction* actions;            // r at r
    AclSourceView::Place* places;  // r at r - 1
  };
  static Arrays arrays(const Image& image, std::byte* base);
  // Where those arrays begin, in bytes of the image.
  struct Places {
    uint64_t rules, actions, places;
  };
  static Places places(const Image& image);

 private:
  ImageBuilder& builder_;
  const RuleSet& set_;
  size_t rules_ = 0, actions_ = 0, source_ = 0;
};

AclAction acl_action_of(const AclRule& rule);

// check_rule_set, then the flat form of every rule in order.
Result<std::vector<AclMatchRule>> flatten_all(const RuleSet& set);

// The section `tag` when it is there, of `algorithm` (8 bytes at most) and of this layout version.
Result<std::span<const std::byte>> acl_section(const Image& image, SectionTag tag, std::string_view algorithm);

}  // namespace sluice
