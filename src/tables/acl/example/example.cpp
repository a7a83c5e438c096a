#include "tables/acl/example/example.h"

#include <cstring>
#include <vector>

namespace sluice {
namespace {

// Whether the rule can match a packet of that class.
bool can_match_example(const AclMatchRule& rule, uint32_t packets) {
  for (uint32_t protocol = 0; protocol < 256; ++protocol) {
    if (example_acl_class(static_cast<uint8_t>(protocol)) == packets &&
        ((protocol ^ rule.protocol) & rule.protocol_mask) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<ExampleAclView> ExampleAclView::open(const Image& image) {
  auto section = acl_section(image, SectionTag::kAclLookup, ExampleAcl::kSectionName);
  if (!section) return std::move(section).error();
  auto rules = AclRulesView::open(image);
  if (!rules) return std::move(rules).error();
  ExampleAclView view;
  view.rules_ = *rules;
  view.header_ = section_array<ExampleAclHeader>(*section, 0, 1);
  if (view.header_ == nullptr) return Error("ACL image: example: the section is too short");
  uint32_t end = 0;
  for (const uint32_t begin : view.header_->begins) {
    if (begin < end) return Error("ACL image: example: the lists are out of order");
    end = begin;
  }
  view.lists_ = section_array<uint32_t>(*section, sizeof(ExampleAclHeader), end);
  if (view.lists_ == nullptr || view.header_->begins[0] != 0) {
    return Error("ACL image: example: the lists do not fit into the section");
  }
  for (uint32_t i = 0; i < end; ++i) {
    if (view.lists_[i] == 0 || view.lists_[i] > rules->size()) {
      return Error("ACL image: example: a list has a rule that is not there");
    }
  }
  return view;
}

Result<Image> ExampleAcl::build(const RuleSet& set) {
  auto flat = flatten_all(set);
  if (!flat) return std::move(flat).error();
  ExampleAclHeader header{};
  std::vector<uint32_t> lists;
  for (uint32_t c = 0; c < kExampleAclClasses; ++c) {
    header.begins[c] = static_cast<uint32_t>(lists.size());
    for (const AclMatchRule& rule : *flat) {
      if (can_match_example(rule, c)) lists.push_back(rule.rule);
    }
  }
  header.begins[kExampleAclClasses] = static_cast<uint32_t>(lists.size());

  ImageBuilder builder(ImageKind::kAcl);
  AclSections sections(builder, set);
  const size_t own =
      builder.add(SectionTag::kAclLookup, kSectionName, kAclLayoutVersion, sizeof header + 4 * lists.size());
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  sections.fill(*flat);
  std::memcpy(builder.data(own).data(), &header, sizeof header);
  if (!lists.empty()) std::memcpy(builder.data(own).data() + sizeof header, lists.data(), 4 * lists.size());
  return builder.finish();
}

}  // namespace sluice
