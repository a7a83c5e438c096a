#include "tables/acl/linear.h"

namespace sluice {

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
  for (size_t i = 0; i < n; ++i) rules[i] = lookup(*keys[i]);
}

LinearView LinearView::relocated(const std::byte* from, const std::byte* to) const {
  LinearView view = *this;
  view.rules_ = rules_.relocated(from, to);
  return view;
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
