// What the ways to a device share: the handle, and the graph whose one stage there is the lookup.
// host only
#pragma once

#include <sluice/sluice.h>

#include <memory>
#include <string>
#include <vector>

#include "api/table.h"
#include "exec/device/device.h"
#include "exec/device/offload.h"
#include "exec/device/resident.h"
#include "exec/engine/snapshot.h"
#include "exec/walk/plan.h"
#include "graph/router.h"

struct sluice_device {
  std::shared_ptr<sluice::Device> device;  // nullptr: the calling thread
  std::string name;
};

namespace sluice::api {

struct LookupGraph {
  static constexpr const char* kAcl = "ACL(TABLE acl)";
  static constexpr const char* kFib = "IPRoute(TABLE fib)";
  // Errors: those of the text; an element that is no lookup by key.
  static Result<std::unique_ptr<LookupGraph>> make(const std::string& element);
  // Puts tables into the device's memory; programs[node] looks up there. `snapshot` keeps what it was made of. Errors:
  // those of make_resident.
  Result<std::shared_ptr<Resident>> bring(Device& device, TableSet tables, std::unique_ptr<Snapshot>& snapshot) const;

  Router router;
  Plan plan;
  std::vector<Offload> offloads;
  size_t node = 0;
};

}  // namespace sluice::api
