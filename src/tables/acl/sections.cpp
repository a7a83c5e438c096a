#include "tables/acl/sections.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice {
namespace {

constexpr const char* kAgain = "make the image again with `sluice compile`";

struct SourceHeader {
  uint64_t rules, files, names_offset, text_offset, text_bytes;
  uint64_t reserved[3];
};
static_assert(sizeof(SourceHeader) == 64);

Error broken(const char* what) {
  return Error(fmt::format("ACL image: {}", what), kAgain);
}

bool rule_in_range(const AclMatchRule& rule, uint32_t position) {
  return rule.rule == position && rule.src_length <= 128 && rule.dst_length <= 128 &&
         (rule.family == 0 || rule.family == 4 || rule.family == 6);
}

}  // namespace

Result<std::span<const std::byte>> acl_section(const Image& image, SectionTag tag, std::string_view algorithm) {
  const ImageSection* section = image.empty() ? nullptr : image.find(tag);
  if (section == nullptr) return broken("a section is missing");
  char name[sizeof section->algorithm] = {};
  std::memcpy(name, algorithm.data(), std::min(algorithm.size(), sizeof name));
  if (std::memcmp(name, section->algorithm, sizeof name) != 0) {
    return Error(fmt::format("ACL image: the search structure is '{}', not '{}'",
                             std::string_view(section->algorithm, strnlen(section->algorithm, sizeof name)), algorithm),
                 "open it with the algorithm that built it");
  }
  if (section->layout_version != kAclLayoutVersion) {
    return Error(fmt::format("ACL image: layout version {} is not {}, which this program reads",
                             section->layout_version, kAclLayoutVersion),
                 kAgain);
  }
  return image.section(tag);
}

Result<AclRulesView> AclRulesView::open(const Image& image) {
  auto bytes = acl_section(image, SectionTag::kAclRules, "");
  if (!bytes) return std::move(bytes).error();
  const auto* header = section_array<AclCountHeader>(*bytes, 0, 1);
  if (header == nullptr || header->count > RuleSet::kMaxRules) return broken("the rules section is damaged");
  AclRulesView view;
  view.count_ = static_cast<uint32_t>(header->count);
  view.rules_ = section_array<AclMatchRule>(*bytes, sizeof *header, header->count);
  if (view.rules_ == nullptr) return broken("the rules section is truncated");
  if (image.checked(SectionTag::kAclRules)) return view;
  for (uint32_t i = 0; i < view.count_; ++i) {
    if (!rule_in_range(view.rules_[i], i + 1)) return broken("a rule is out of range");
  }
  image.note_checked(SectionTag::kAclRules);
  return view;
}

Result<AclActionsView> AclActionsView::open(const Image& image) {
  auto bytes = acl_section(image, SectionTag::kAclActions, "");
  if (!bytes) return std::move(bytes).error();
  const auto* header = section_array<AclCountHeader>(*bytes, 0, 1);
  if (header == nullptr || header->count > RuleSet::kMaxRules) return broken("the actions section is damaged");
  AclActionsView view;
  view.count_ = static_cast<uint32_t>(header->count);
  view.actions_ = section_array<AclAction>(*bytes, sizeof *header, header->count + 1);
  if (view.actions_ == nullptr) return broken("the actions section is truncated");
  if (image.checked(SectionTag::kAclActions)) return view;
  for (uint32_t i = 0; i <= view.count_; ++i) {
    const auto verb = view.actions_[i].verb;
    if (verb > AclVerb::kMark || (i == 0) != (verb == AclVerb::kNone)) return broken("an action is unknown");
  }
  image.note_checked(SectionTag::kAclActions);
  return view;
}

Result<AclSourceView> AclSourceView::open(const Image& image) {
  auto bytes = acl_section(image, SectionTag::kAclSource, "");
  if (!bytes) return std::move(bytes).error();
  const auto* header = section_array<SourceHeader>(*bytes, 0, 1);
  if (header == nullptr || header->rules > RuleSet::kMaxRules || header->files > RuleSet::kMaxRules) {
    return broken("the source section is damaged");
  }
  AclSourceView view;
  view.count_ = static_cast<uint32_t>(header->rules);
  view.files_ = static_cast<uint32_t>(header->files);
  view.places_ = section_array<Place>(*bytes, sizeof *header, header->rules);
  view.names_ = section_array<Name>(*bytes, header->names_offset, header->files);
  view.text_ = section_array<char>(*bytes, header->text_offset, header->text_bytes);
  if (view.places_ == nullptr || view.names_ == nullptr || view.text_ == nullptr)
    return broken("the source section is truncated");
  for (uint32_t i = 0; i < view.files_; ++i) {
    const Name& name = view.names_[i];
    if (name.offset > header->text_bytes || name.length > header->text_bytes - name.offset) {
      return broken("a file name lies outside the source section");
    }
  }
  return view;
}

std::string_view AclSourceView::file(uint32_t rule) const {
  if (rule == 0 || rule > count_ || places_[rule - 1].file >= files_) return {};
  const Name& name = names_[places_[rule - 1].file];
  return {text_ + name.offset, name.length};
}

uint32_t AclSourceView::line(uint32_t rule) const {
  return rule == 0 || rule > count_ ? 0 : places_[rule - 1].line;
}

AclSections::AclSections(ImageBuilder& builder, const RuleSet& set) : builder_(builder), set_(set) {
  const size_t n = set.rules.size();
  size_t text = 0;
  for (const std::string& file : set.files) text += file.size();
  rules_ = builder.add(SectionTag::kAclRules, "", kAclLayoutVersion, sizeof(AclCountHeader) + n * sizeof(AclMatchRule));
  actions_ =
      builder.add(SectionTag::kAclActions, "", kAclLayoutVersion, sizeof(AclCountHeader) + (n + 1) * sizeof(AclAction));
  source_ = builder.add(
      SectionTag::kAclSource, "", kAclLayoutVersion,
      sizeof(SourceHeader) + n * sizeof(AclSourceView::Place) + set.files.size() * sizeof(AclSourceView::Name) + text);
}

void AclSections::fill(std::span<const AclMatchRule> flat) {
  const size_t n = set_.rules.size();
  auto rules = builder_.data(rules_);
  auto actions = builder_.data(actions_);
  auto source = builder_.data(source_);
  const AclCountHeader count{n, {}};
  std::memcpy(rules.data(), &count, sizeof count);
  if (n > 0) std::memcpy(rules.data() + sizeof count, flat.data(), n * sizeof(AclMatchRule));
  std::memcpy(actions.data(), &count, sizeof count);
  auto* action = reinterpret_cast<AclAction*>(actions.data() + sizeof count);
  auto* place = reinterpret_cast<AclSourceView::Place*>(source.data() + sizeof(SourceHeader));
  action[0] = AclAction{};
  for (size_t i = 0; i < n; ++i) {
    const AclRule& rule = set_.rules[i];
    action[i + 1] = acl_action_of(rule);
    place[i] = {rule.file, rule.line};
  }
  SourceHeader header{};
  header.rules = n;
  header.files = set_.files.size();
  header.names_offset = sizeof header + n * sizeof(AclSourceView::Place);
  header.text_offset = header.names_offset + header.files * sizeof(AclSourceView::Name);
  header.text_bytes = source.size() - header.text_offset;
  std::memcpy(source.data(), &header, sizeof header);
  auto* name = reinterpret_cast<AclSourceView::Name*>(source.data() + header.names_offset);
  uint32_t at = 0;
  for (const std::string& file : set_.files) {
    *name++ = {at, static_cast<uint32_t>(file.size())};
    if (!file.empty()) std::memcpy(source.data() + header.text_offset + at, file.data(), file.size());
    at += static_cast<uint32_t>(file.size());
  }
}

AclAction acl_action_of(const AclRule& rule) {
  AclAction action;
  action.mark = rule.verb == AclVerb::kMark ? rule.mark : 0;
  action.verb = rule.verb;
  action.log = rule.log ? 1 : 0;
  action.keep = rule.keep ? 1 : 0;
  return action;
}

AclSections::Places AclSections::places(const Image& image) {
  return {image.find(SectionTag::kAclRules)->offset + sizeof(AclCountHeader),
          image.find(SectionTag::kAclActions)->offset + sizeof(AclCountHeader),
          image.find(SectionTag::kAclSource)->offset + sizeof(SourceHeader)};
}

AclSections::Arrays AclSections::arrays(const Image& image, std::byte* base) {
  const Places at = places(image);
  return {reinterpret_cast<AclMatchRule*>(base + at.rules), reinterpret_cast<AclAction*>(base + at.actions),
          reinterpret_cast<AclSourceView::Place*>(base + at.places)};
}

Result<std::vector<AclMatchRule>> flatten_all(const RuleSet& set) {
  if (auto ok = check_rule_set(set); !ok) return std::move(ok).error();
  std::vector<AclMatchRule> flat;
  flat.reserve(set.rules.size());
  for (const AclRule& rule : set.rules) flat.push_back(flatten(rule, static_cast<uint32_t>(flat.size() + 1)));
  return flat;
}

}  // namespace sluice
