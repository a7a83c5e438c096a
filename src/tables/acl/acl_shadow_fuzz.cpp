// Rules from the input's bytes: what find_shadowed reports can go, for every key, and all of it together.
#include <cstdlib>

#include "tables/acl/acl_fuzz_input.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/linear.h"
#include "tables/acl/region.h"
#include "tables/acl/shadow.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  acl_test::Bytes in(data, size);
  acl_test::Random random(in.half());
  RuleSet set;
  while (in.more() && set.rules.size() < 100) {
    set.rules.push_back(acl_test::rule_from(in));
    if ((in.byte() & 1) != 0) set.rules.back().verb = AclVerb::kDeny;
  }
  const auto image = LinearAcl::build(set);
  if (!image) std::abort();
  const auto rules = AclRulesView::open(*image);
  const auto actions = AclActionsView::open(*image);
  if (!rules || !actions) std::abort();
  ShadowOptions options;
  options.rule_steps = 1 << 16;
  const auto findings = find_shadowed(*rules, *actions, options);
  RuleSet kept = set;
  for (size_t i = findings.size(); i-- > 0;) {
    if (findings[i].kind != RuleFinding::Kind::kUndecided)
      kept.rules.erase(kept.rules.begin() + static_cast<std::ptrdiff_t>(findings[i].rule - 1));
  }
  auto verdict = [](const RuleSet& of, const FlowKey& key) {
    for (const AclRule& rule : of.rules) {
      if (matches(flatten(rule, 1), key)) return rule.verb;
    }
    return AclVerb::kNone;
  };
  for (const FlowKey& key : acl_test::keys_for(set, 64, random)) {
    const bool counts = key.family != 0 && AclRegion::bit_of(key.bits) != 0;
    if (counts && verdict(set, key) != verdict(kept, key)) std::abort();
  }
  return 0;
}
