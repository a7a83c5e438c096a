// host only
// How the images of a route table's versions come about.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/route_change.h"
#include "exec/engine/publisher.h"
#include "tables/image.h"

namespace sluice {

// One thread.
class RouteImages {
 public:
  virtual ~RouteImages() = default;
  // The image of the version that `steps` made of the one before; no steps: it has nothing to do with that one. Errors:
  // those of the builder. Whoever does not publish the image drops this, which then knows too much.
  virtual Result<std::shared_ptr<const Image>> make(const SourcedRib& next, const std::vector<RouteStep>& steps) = 0;
  // Bytes of images that it keeps, that of the last version included; 0: none.
  virtual size_t bytes() const { return 0; }
};

// Every version by itself. `algorithms`: "A4+A6".
std::unique_ptr<RouteImages> make_rebuilt_route_images(std::string_view algorithms);
// By patches, at the cost of the change.
std::unique_ptr<RouteImages> make_route_images(std::string_view algorithms, Publisher& publisher);

}  // namespace sluice
