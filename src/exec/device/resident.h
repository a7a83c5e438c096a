// host only
// Resident: the tables and programs of one generation in a device's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exec/device/device.h"
#include "exec/device/offload.h"
#include "exec/engine/snapshot.h"

namespace sluice {

// Immutable once made; kept alive by its Snapshot.
struct Resident {
  uint32_t parity = 0;                  // which program slot of the rings it took
  std::vector<DeviceProgram> programs;  // by node of the plan; empty programs for nodes on the host
  size_t bytes = 0;                     // of device memory, tables that other generations share included
  size_t uploaded_bytes = 0;            // what this generation had to copy
  std::vector<std::shared_ptr<DeviceBlob>> blobs;
};

// Makes a generation resident, its tables where device.table_memory() says. An image that is in global memory already
// is not copied again. Thread-safe. Errors: not enough device memory, those of check_tables, the device failed. Nothing
// of the generation is left behind then.
Result<std::shared_ptr<Resident>> make_resident(Device& device, const Snapshot& snapshot, const Plan& plan,
                                                const std::vector<Offload>& offloads);

// Whether the device has kernels for the programs (kernels_there.h), and the tables fit that memory. Errors: it has
// none; they do not fit, with both sizes; records of a kind whose kernels read global memory alone.
Result<void> check_tables(const Device& device, const Snapshot& snapshot, const Plan& plan,
                          const std::vector<Offload>& offloads);

// How a segment's program looks to a device before its pointers are translated.
DeviceProgram device_program(const PlanNode& node, const Program& program, const Offload& offload);

// Calls f(const T*& pointer) or f(const T*& pointer, count) for every pointer of the bound stage in `slot`.
struct PointerVisitor {
  virtual ~PointerVisitor() = default;
  // `count` bytes of an element's own, or 0: into an image.
  virtual const void* moved(const void* pointer, size_t bytes) = 0;
};
void visit_pointers(StageSlot& slot, PointerVisitor& visitor);

}  // namespace sluice
