// host only
#include "control/acl_images.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "control/change_text.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"
#include "tables/acl/sections.h"

namespace sluice {
namespace {

class Rebuilt final : public AclImages {
 public:
  explicit Rebuilt(std::string algorithm) : algorithm_(std::move(algorithm)) {}
  Result<std::shared_ptr<const Image>> make(const RuleList& list) override {
    return share(build_acl(list.set(), algorithm_));
  }

 private:
  std::string algorithm_;
};

// tuple_merge, rule by rule.
class Patched final : public AclImages {
 public:
  explicit Patched(Publisher& publisher) : publisher_(publisher) {}

  Result<std::shared_ptr<const Image>> make(const RuleList& list) override {
    if (patched_ == nullptr || numbering_ != list.numbering() || !apply(list.change())) {
      auto made = PatchedAcl::create(list.ordered(), {.files = list.files()});
      if (!made) return std::move(made).error();
      patched_ = std::move(*made);
      files_ = list.files().size();
      numbering_ = list.numbering();
    }
    return publish_patched(*patched_, publisher_);
  }
  size_t bytes() const override {
    return patched_ == nullptr ? 0 : (1 + patched_->replicas().replicas()) * patched_->replicas().size();
  }

 private:
  bool apply(const AclChange& change) {
    const bool known = std::ranges::all_of(change.operations(), [&](const AclChange::Operation& one) {
      return one.kind == AclChange::Kind::kRemove ||
             (one.kind == AclChange::Kind::kAdd ? change.rule(one).file : one.file) < files_;
    });
    return patched_->apply(known ? change : named(change)).ok();
  }
  // The image has no names but those that it was made with.
  AclChange named(const AclChange& change) const {
    AclChange out;
    for (const AclChange::Operation& each : change.operations()) {
      if (each.kind == AclChange::Kind::kRemove) {
        out.remove(each.priority);
      } else if (each.kind == AclChange::Kind::kPlace) {
        each.file < files_ ? out.place(each.priority, each.file, each.line) : out.place(each.priority, 0, 0);
      } else {
        AclRule rule = change.rule(each);
        if (rule.file >= files_) rule.file = rule.line = 0;
        out.add(each.priority, rule);
      }
    }
    return out;
  }

  Publisher& publisher_;
  std::unique_ptr<PatchedAcl> patched_;
  size_t files_ = 0;
  uint64_t numbering_ = 0;
};

}  // namespace

std::unique_ptr<AclImages> make_rebuilt_acl_images(std::string algorithm) {
  return std::make_unique<Rebuilt>(std::move(algorithm));
}

std::unique_ptr<AclImages> make_acl_images(const std::string& algorithm, Publisher& publisher) {
  if (algorithm == TupleMergeAcl::kName) return std::make_unique<Patched>(publisher);
  return make_rebuilt_acl_images(algorithm);
}

AclRule configured_rule(const AclMatchRule& flat, const AclAction& action) {
  AclRule rule;
  rule.family = flat.family;
  const auto prefix = [&](uint64_t hi, uint64_t lo, uint8_t length) {
    const auto own = static_cast<uint8_t>(length != 0 && flat.family == 4 ? length - 96 : length);
    return IpPrefix{IpAddress{hi, lo, own == 0 ? uint8_t{0} : flat.family}, own};
  };
  rule.src = prefix(flat.src_hi, flat.src_lo, flat.src_length);
  rule.dst = prefix(flat.dst_hi, flat.dst_lo, flat.dst_length);
  rule.src_port_low = flat.src_port_low;
  rule.src_port_high = flat.src_port_high;
  rule.dst_port_low = flat.dst_port_low;
  rule.dst_port_high = flat.dst_port_high;
  rule.protocol = flat.protocol;
  rule.protocol_mask = flat.protocol_mask;
  rule.flags = flat.flags;
  rule.flags_mask = flat.flags_mask;
  if (flat.dscp_mask != 0) rule.dscp = flat.dscp;
  rule.needs_ports = (flat.bits & flat.bits_mask & FlowKey::kHasPorts) != 0;
  unsigned without = rule.needs_ports ? ~unsigned{FlowKey::kHasPorts} : ~0u;
  without &= ~(absence_bits(flat.flags_mask, flat.icmp_mask) & ~unsigned{flat.bits});
  rule.bits = static_cast<uint8_t>(flat.bits & without);
  rule.bits_mask = static_cast<uint8_t>(flat.bits_mask & without);
  rule.icmp = flat.icmp;
  rule.icmp_mask = flat.icmp_mask;
  rule.verb = action.verb;
  rule.mark = action.mark;
  rule.log = action.log != 0;
  rule.keep = action.keep != 0;
  return rule;
}

Result<RuleSet> configured_rules(const Image& image) {
  auto rules = AclRulesView::open(image);
  auto actions = AclActionsView::open(image);
  auto source = AclSourceView::open(image);
  if (!rules) return std::move(rules).error();
  if (!actions) return std::move(actions).error();
  if (!source) return std::move(source).error();
  RuleSet set;
  std::map<std::string, uint32_t, std::less<>> files;
  for (uint32_t r = 1; r <= rules->size(); ++r) {
    // A patched image has numbers between its rules that are none: there the range of ports is empty.
    if (rules->rule(r).src_port_low > rules->rule(r).src_port_high) continue;
    AclRule rule = configured_rule(rules->rule(r), actions->action(r));
    rule.line = source->line(r);
    const auto [it, fresh] = files.try_emplace(std::string(source->file(r)), static_cast<uint32_t>(files.size()));
    if (fresh) set.files.push_back(it->first);
    rule.file = it->second;
    set.rules.push_back(rule);
  }
  return set;
}

}  // namespace sluice
