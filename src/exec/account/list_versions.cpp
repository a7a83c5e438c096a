// host only
#include "exec/account/list_versions.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "tables/replica.h"

namespace sluice {

std::optional<ListRules> ListRules::of(const Image& image) {
  auto match = AclRulesView::open(image);
  auto actions = AclActionsView::open(image);
  if (!match || !actions) return std::nullopt;
  return ListRules{*match, *actions};
}

std::string rule_identity(const ListRules& rules, uint32_t rule) {
  const AclAction action = rules.actions.action(rule);
  std::string id(offsetof(AclMatchRule, rule) + sizeof action, '\0');
  std::memcpy(id.data(), &rules.match.rule(rule), offsetof(AclMatchRule, rule));
  std::memcpy(id.data() + offsetof(AclMatchRule, rule), &action, sizeof action);
  return id;
}

std::optional<std::vector<uint32_t>> touched_rules(const Image& before, const Image& after) {
  if (before.patches() == nullptr || before.patches() != after.patches()) return std::nullopt;
  const auto rules = AclRulesView::open(after), rules_before = AclRulesView::open(before);
  if (!rules || !rules_before || rules->size() != rules_before->size()) return std::nullopt;
  const auto patches = before.patches()->between(before.version(), after.version());
  if (!patches) return std::nullopt;
  const uint32_t n = rules->size();
  std::vector<uint64_t> touched((n + 64) / 64, 0);  // a bit for each rule
  const AclSections::Places at = AclSections::places(after);
  const auto add = [&](const Patch& p, uint64_t begin, uint64_t bytes) {
    if (p.offset + p.bytes <= begin || p.offset >= begin + n * bytes) return;
    const uint64_t from = p.offset > begin ? (p.offset - begin) / bytes : 0;
    const uint64_t to = std::min<uint64_t>(n, (p.offset + p.bytes - begin + bytes - 1) / bytes);
    for (uint64_t i = from; i < to; ++i) touched[i / 64] |= uint64_t{1} << i % 64;
  };
  for (const Patch& p : *patches) {
    add(p, at.rules, sizeof(AclMatchRule));
    add(p, at.actions + sizeof(AclAction), sizeof(AclAction));
  }
  std::vector<uint32_t> all;
  for (size_t word = 0; word < touched.size(); ++word) {
    for (uint64_t bits = touched[word]; bits != 0; bits &= bits - 1)
      all.push_back(static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)) + 1));
  }
  return all;
}

}  // namespace sluice
