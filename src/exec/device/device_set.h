// host only
// The devices of a run: the channels of every worker, tables made resident, frames pinned, and their end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "exec/device/master.h"
#include "exec/device/offload.h"
#include "exec/device/resident.h"
#include "exec/engine/publisher.h"
#include "exec/engine/run.h"
#include "exec/walk/plan.h"
#include "exec/walk/worker.h"

namespace sluice {

class DeviceSet {
 public:
  using Workers = std::span<const std::unique_ptr<Worker>>;

  // Opens the channels of `workers` to options.device.devices and hands them over. `plan` outlives the set.
  // `counts_only`: what leaves is only counted, so that it need not come back (DeviceOptions::frames_there). Errors: a
  // channel that cannot be opened.
  static Result<std::unique_ptr<DeviceSet>> open(const Router& router, const Plan& plan, const RunOptions& options,
                                                 Workers workers, bool counts_only);
  // What devices may still write to outlives them: `memory` is freed with the last that has stopped (kept_runs).
  static void end(std::unique_ptr<DeviceSet> devices, Workers workers, std::shared_ptr<void> memory);

  // Whether the tables of a first generation fit the memory that the devices keep tables in (check_tables).
  static Result<void> check_tables(const Router& router, const Plan& plan, const RunOptions& options,
                                   const Snapshot& snapshot);

  // Puts a generation into the memory of every device before it becomes current.
  void make_resident(Snapshot& snapshot, Publisher& publisher, Workers workers);
  // Lets devices reach the memory of a batch, where some segment's frames are read or written there.
  void pin(std::span<std::byte> frames);
  // Whether every packet that comes in crosses as a frame, so that it may stay in its source's memory until then; and
  // whether that memory, which is only read, can be reached. A copy of its records lies on every device then.
  bool takes_lent() const;
  // Whether packets of classes may stay in their source's memory, too: a device has it, and nobody reads what becomes
  // of them. After open().
  bool chunks_stay() const;
  bool pin_source(const LentMemory& memory);
  // Waits until all are done with what they were given. No worker has a batch, and none gets one. Once.
  void stop(Workers workers);
  void fill(RunReport& report, Workers workers);

 private:
  struct State {
    std::shared_ptr<Device> device;
    PinnedRanges pinned;
    std::vector<void*> pins;
    // Of sources: records, and what they and the pinned frames belong to, so that no other memory gets their addresses.
    std::vector<std::shared_ptr<DeviceBlob>> records;
    std::vector<std::shared_ptr<const void>> lent;
    std::unique_ptr<MasterThread> master;  // with master threading
    DeviceReport report;
    std::mutex mutex;  // report, from the publishing thread
  };
  struct Kept;
  friend size_t kept_runs();

  DeviceSet(const Plan& plan, const DeviceOptions& options) : plan_(plan), options_(options) {}
  Result<void> open_channels(uint32_t batch, Workers workers);
  Result<void> open_pools(Device& device, const ChannelOptions& options, uint32_t batch, WorkerDevice& worker);
  bool pooled() const;
  bool frames() const;
  bool sums() const;
  Result<void> pin_on(State& state, std::span<std::byte> frames);
  static Result<void> copy_to(State& state, std::span<std::byte> memory);
  bool pin_source(State& state, const LentMemory& memory);
  static Result<void> stop_device(State& state, size_t index, const std::vector<const WorkerDevice*>& workers,
                                  uint64_t limit_ns);

  const Plan& plan_;
  DeviceOptions options_;
  bool counts_only_ = false;
  std::vector<Offload> offloads_;
  std::vector<std::unique_ptr<State>> devices_;
  uint32_t loads_ = 0;  // generations that were made resident
  bool stopped_ = false;
};

}  // namespace sluice
