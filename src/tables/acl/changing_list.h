// For tests: an access list that changes at random, and the model that says what it should be.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tables/acl/acl_test_support.h"
#include "tables/acl/patch.h"

namespace sluice::acl_test {

// `rules` in order and, from then on, at random places. A rule that comes is one of `rules`, as it was or with
// another's ports and protocol, so that sets of a shape keep it; one in eight is of any shape.
class ChangingList {
 public:
  explicit ChangingList(std::vector<AclRule> rules) : pool_(std::move(rules)) {
    for (const AclRule& rule : pool_) rules_.emplace((rules_.size() + 1) << 32, rule);
  }

  std::vector<OrderedRule> ordered() const {
    std::vector<OrderedRule> out;
    for (const auto& [priority, rule] : rules_) out.push_back({priority, rule});
    return out;
  }
  RuleSet set() const {
    RuleSet set;
    for (const auto& [priority, rule] : rules_) set.rules.push_back(rule);
    return set;
  }
  // priorities()[n] is that of the n-th rule of set(), from 1; 0: no rule.
  std::vector<uint64_t> priorities() const {
    std::vector<uint64_t> out = {0};
    for (const auto& [priority, rule] : rules_) out.push_back(priority);
    return out;
  }

  // One rule comes, goes or gives way to another; the model has it already.
  AclChange step(Random& random) {
    AclChange change;
    const uint64_t places = pool_.size() + 1;
    const auto at = rules_.lower_bound(below(random, places) << 32);
    const uint64_t fresh = below(random, places) << 32 | (random() & 0xffffffff);
    switch (at == rules_.end() ? 0 : below(random, rules_.size() < pool_.size() * 5 / 6 ? 2 : 3)) {
      case 0:
        if (!rules_.contains(fresh)) change.add(fresh, (rules_[fresh] = draw(random)));
        break;
      case 1:
        change.replace(at->first, (at->second = draw(random)));
        break;
      default:
        change.remove(at->first);
        rules_.erase(at);
    }
    return change;
  }

 private:
  AclRule draw(Random& random) const {
    if (pool_.empty() || chance(random, 12)) return random_rule(random);
    AclRule rule = pool_[below(random, pool_.size())];
    if (chance(random, 50)) return rule;
    const AclRule& other = pool_[below(random, pool_.size())];
    rule.src_port_low = other.src_port_low;
    rule.src_port_high = other.src_port_high;
    rule.dst_port_low = other.dst_port_low;
    rule.dst_port_high = other.dst_port_high;
    rule.protocol = other.protocol;
    rule.protocol_mask = other.protocol_mask;
    return rule;
  }

  std::vector<AclRule> pool_;
  std::map<uint64_t, AclRule> rules_;
};

}  // namespace sluice::acl_test
