// host only
// EmuDevice: host threads in a GPU's place. The same records, bodies, slabs and ring protocol, so that everything but
// the CUDA calls is tested, under the thread sanitizer too, where there is no GPU; and faults that a real device is not
// asked for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/device/constant_bank.h"
#include "exec/device/device.h"

namespace sluice {

struct EmuFaults {
  std::atomic<uint64_t> late_ns{0};  // every answer comes so much later
  // Records past so many (of the whole device) wait, in the device's hands, until this is raised: a device that is
  // late, for as long as is wanted. Its threads do not leave before.
  std::atomic<uint64_t> held_after{~0ull};
  std::atomic<uint64_t> stuck_after{~0ull};  // after so many records (of the whole device) nothing is answered any more
  std::atomic<uint64_t> killed_after{~0ull};  // after so many the device reports an error and its threads are gone
  std::atomic<uint64_t> memory_limit{~0ull};  // bytes of kDevice memory
  std::atomic<bool> refuse_start{false};      // slabs and rings cannot be started
  std::atomic<bool> no_servers{false};        // there is no room for servers of slabs and rings
};

class EmuDevice final : public Device {
 public:
  // Of an H100's blocks.
  static constexpr size_t kSharedBytes = 232'448;

  // `ordinal` is for show. `servers`: threads a ring, 1 to RingControl::kMaxServers. `shared_bytes`: of a block.
  explicit EmuDevice(unsigned ordinal = 0, uint32_t servers = 1, size_t shared_bytes = kSharedBytes);
  ~EmuDevice() override;

  const DeviceInfo& info() const override { return info_; }
  EmuFaults& faults() { return shared_->faults; }
  // Records that were answered, by all drivers.
  uint64_t records() const { return shared_->records.load(std::memory_order_relaxed); }

  Result<std::shared_ptr<DeviceBlob>> allocate(MemorySpace space, size_t bytes) override;
  Result<void> upload(DeviceBlob& to, size_t offset, const void* from, size_t bytes) override;
  const std::byte* constant_memory() const override { return shared_->constant.get(); }
  void time_kernels(bool on) override { shared_->timed = on; }
  // kAuto is kDevice: memory of its own beside the host's.
  Result<void> use_ring_memory(RingMemory memory) override {
    ring_memory_ = memory;
    return {};
  }
  Result<void> download(void* to, const DeviceBlob& from, size_t offset, size_t bytes) override;
  Result<void*> pin(void* host, size_t bytes) override;
  void unpin(void* host) override;
  Result<std::unique_ptr<SlabDriver>> make_slabs(const ChannelShape& shape, uint32_t slabs, Transport transport,
                                                 DeviceMode mode) override;
  Result<std::unique_ptr<RingDriver>> make_ring(const ChannelShape& shape) override;
  // In the calling thread: all that was given to a stream has run by then.
  Result<void> look_up(const StageSlot& slot, const ColumnLookup& work, void* stream) override;
  // An address that stands for one.
  Result<void*> lookup_stream() override { return static_cast<void*>(shared_.get()); }
  void wait_for_all() override {}

  // What the device's threads share; it outlives the device while they run.
  struct Shared {
    EmuFaults faults;
    std::atomic<uint64_t> begun{0};  // records that a thread took up
    std::atomic<uint64_t> records{0};
    std::atomic<uint64_t> used{0};
    std::atomic<bool> timed{false};  // kernels are measured
    CopiedRuns runs;
    std::array<std::vector<std::byte>, CopiedRuns::kPlaces> run_bytes;
    ConstantBank bank;
    std::unique_ptr<std::byte[]> constant = std::make_unique<std::byte[]>(kConstantBytes);  // bank's
    bool stuck() const {
      return records.load(std::memory_order_relaxed) >= faults.stuck_after.load(std::memory_order_relaxed);
    }
    bool killed() const {
      return records.load(std::memory_order_relaxed) >= faults.killed_after.load(std::memory_order_relaxed);
    }
  };

 private:
  DeviceInfo info_;
  uint32_t servers_;
  RingMemory ring_memory_ = RingMemory::kAuto;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sluice
