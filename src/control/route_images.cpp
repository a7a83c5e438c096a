// host only
#include "control/route_images.h"

#include <string>
#include <utility>

#include "control/change_text.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/patch.h"

namespace sluice {
namespace {

// Images that are built anew for every version.
class RebuiltRouteImages final : public RouteImages {
 public:
  RebuiltRouteImages(std::string algorithm4, std::string algorithm6)
      : algorithm4_(std::move(algorithm4)), algorithm6_(std::move(algorithm6)) {}
  Result<std::shared_ptr<const Image>> make(const SourcedRib& next, const std::vector<RouteStep>&) override {
    return share(build_routes(next.best_routes(), algorithm4_, algorithm6_));
  }

 private:
  std::string algorithm4_, algorithm6_;
};

class PatchedRouteImages final : public RouteImages {
 public:
  PatchedRouteImages(std::string algorithm4, std::string algorithm6, Publisher& publisher) : publisher_(publisher) {
    options_.algorithm4 = std::move(algorithm4);
    options_.algorithm6 = std::move(algorithm6);
  }

  Result<std::shared_ptr<const Image>> make(const SourcedRib& next, const std::vector<RouteStep>& steps) override {
    const NextHopIds& ids = next.next_hops();
    if (patched_ == nullptr || steps.empty()) {
      auto made = PatchedRoutes::create(next.best_routes(), options_);
      if (!made) return std::move(made).error();
      patched_ = std::move(*made);
    } else {
      for (; names_ < ids.count(); ++names_) patched_->intern(ids.name(names_ + 1));
      for (const RouteStep& step : steps) patched_->set(step.prefix, step.next_hop);
    }
    names_ = ids.count();
    return publish_patched(*patched_, publisher_);
  }
  size_t bytes() const override {
    return patched_ == nullptr ? 0 : (1 + patched_->replicas().replicas()) * patched_->replicas().size();
  }

 private:
  Publisher& publisher_;
  PatchedRoutesOptions options_;
  std::unique_ptr<PatchedRoutes> patched_;
  uint32_t names_ = 0;
};

std::pair<std::string, std::string> split(std::string_view algorithms) {
  const size_t plus = algorithms.find('+');
  return {std::string(algorithms.substr(0, plus)), std::string(algorithms.substr(plus + 1))};
}

}  // namespace

std::unique_ptr<RouteImages> make_rebuilt_route_images(std::string_view algorithms) {
  auto [four, six] = split(algorithms);
  return std::make_unique<RebuiltRouteImages>(std::move(four), std::move(six));
}

std::unique_ptr<RouteImages> make_route_images(std::string_view algorithms, Publisher& publisher) {
  auto [four, six] = split(algorithms);
  return std::make_unique<PatchedRouteImages>(std::move(four), std::move(six), publisher);
}

}  // namespace sluice
