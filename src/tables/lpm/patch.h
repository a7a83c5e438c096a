// Routes that change while packets are looked up: a routes image, patched. Host only.
//
// set() changes the model, publish() brings the master image up to date and hands out a replica of it (replica.h): an
// image like any other. For IPv4 in `dir24` and `sail` each /16 with a change is painted anew from its routes and what
// differs is patched; every other table (IPv6 first of all) is built anew when it has changed, and patched in the same
// way. A full IPv6 table takes milliseconds to build, and the cost does not depend on the number of changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/rib.h"
#include "tables/replica.h"

namespace sluice {

struct PatchedRoutesOptions {
  std::string algorithm4 = kLpmAuto, algorithm6 = kLpmAuto;
  size_t max_bytes = ~size_t{0};  // of one image; the master and two replicas are three of them
};

// One control thread at a time. Images that publish() returned may be read and let go on any thread.
class PatchedRoutes {
 public:
  // Takes all routes and next hops of a Rib. Errors: unknown algorithms, limits of an algorithm, memory or max_bytes.
  static Result<std::unique_ptr<PatchedRoutes>> create(const Rib& rib, const PatchedRoutesOptions& options = {});
  ~PatchedRoutes();
  PatchedRoutes(const PatchedRoutes&) = delete;
  PatchedRoutes& operator=(const PatchedRoutes&) = delete;

  // The id of a next hop; a new name gets the next id, and makes the next publish() build a new image. 0: ids are used
  // up.
  uint32_t intern(std::string_view name);

  // The route's next hop from the next publish() on; 0 removes it. Host bits must be clear, the id must be known.
  // False: there was no such route to remove, or it had this next hop already.
  bool set(const IpPrefix& prefix, uint32_t next_hop);
  // The next hop of exactly this prefix as set last, or 0.
  uint32_t find(const IpPrefix& prefix) const;
  size_t size() const;
  // All routes and next hops as set last, settled.
  Rib rib() const;

  // The image of all that was set. Errors: those of ImageReplicas::publish and, when the image has no room left, of
  // create(); the changes are kept for another try.
  Result<std::shared_ptr<const Image>> publish();

  const ImageReplicas& replicas() const;
  // How often an image was built anew because there was no room or a new next hop.
  size_t rebuilds() const { return rebuilds_; }

 private:
  struct State;
  explicit PatchedRoutes(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  size_t rebuilds_ = 0;
};

}  // namespace sluice
