// host only
// How the images of an access list's versions come about.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"
#include "control/rule_list.h"
#include "exec/engine/publisher.h"
#include "tables/image.h"

namespace sluice {

// One thread.
class AclImages {
 public:
  virtual ~AclImages() = default;
  // The image of the list, whose change() is what it differs in from the one before. Errors: those of the builder.
  // Whoever does not publish the image drops this, which then knows too much.
  virtual Result<std::shared_ptr<const Image>> make(const RuleList& list) = 0;
  // Bytes of images that it keeps, that of the last version included; 0: none.
  virtual size_t bytes() const { return 0; }
};

// Every version by itself.
std::unique_ptr<AclImages> make_rebuilt_acl_images(std::string algorithm);
// By patches where the algorithm has them, at the cost of the change; else every version by itself.
std::unique_ptr<AclImages> make_acl_images(const std::string& algorithm, Publisher& publisher);

// A rule of a compiled image as it was configured, without its file and line.
AclRule configured_rule(const AclMatchRule& flat, const AclAction& action);
// The rules of a compiled image as they were configured. Errors: those of its views.
Result<RuleSet> configured_rules(const Image& image);

}  // namespace sluice
