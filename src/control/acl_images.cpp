// host only
#include "control/acl_images.h"

#include "control/change_text.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"

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
    if (patched_ == nullptr || numbering_ != list.numbering() || !patched_->apply(named(list.change())).ok()) {
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
  // The image has no names but those that it was made with.
  AclChange named(const AclChange& change) const {
    AclChange out;
    for (const auto& [kind, each] : change.operations()) {
      if (kind == AclChange::Kind::kRemove) {
        out.remove(each.priority);
        continue;
      }
      AclRule rule = each.rule;
      if (rule.file >= files_) rule.file = rule.line = 0;
      out.add(each.priority, rule);
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

}  // namespace sluice
