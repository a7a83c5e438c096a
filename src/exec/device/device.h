// host only
// Device: what the executor asks of an accelerator, whatever it is (CUDA, or host threads that emulate one).
//
// Three parts: memory of the device (tables and programs are made resident there), drivers that run record bodies over
// slabs (launch mode) or rings (persistent mode), and facts about the device. Channels (channel.h) are the host's side
// of both modes and are written once for all devices.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/histogram.h"
#include "base/result.h"
#include "exec/device/copied_runs.h"
#include "exec/device/lines.h"
#include "exec/device/program.h"
#include "exec/device/record.h"
#include "tables/image.h"

namespace sluice {

enum class DeviceMode : uint8_t { kLaunch, kPersistent, kAdaptive };
enum class Transport : uint8_t {
  kStaged,    // pinned slabs, one copy in and one copy out around each kernel
  kZeroCopy,  // the kernel reads and writes mapped pinned memory
  kTagged,    // the ring of persistent mode
  kCommList,  // frames are read where batches have them, in mapped host memory
  kCommPool,  // frames are gathered and copied to device memory
};

inline const char* to_string(DeviceMode mode) {
  return mode == DeviceMode::kLaunch ? "launch" : mode == DeviceMode::kPersistent ? "persistent" : "adaptive";
}
inline const char* to_string(Transport transport) {
  switch (transport) {
    case Transport::kStaged:
      return "staged";
    case Transport::kZeroCopy:
      return "zerocopy";
    case Transport::kTagged:
      return "tagged";
    case Transport::kCommList:
      return "commlist";
    case Transport::kCommPool:
      return "commpool";
  }
  return "?";
}

struct DeviceInfo {
  std::string name;  // "emu", "NVIDIA H100 80GB HBM3"
  std::string kind;  // "emu", "cuda"
  unsigned ordinal = 0;
  size_t memory_bytes = 0;
  unsigned multiprocessors = 0;
  size_t shared_bytes = 0;  // of shared memory that a block of threads can have
  bool coherent = false;    // it reads and writes all of the host's memory as the host does: nothing is pinned
};

// Device utilisation and power, where the device can say. Negative: unknown.
struct DevicePower {
  double watts = -1;
  double utilisation = -1;  // 0..1
};

// Bytes of one memory space; freed with the last reference, never while a kernel may read them.
class DeviceBlob {
 public:
  virtual ~DeviceBlob() = default;
  virtual void* device() const = 0;  // address for kernels
  virtual void* host() const = 0;    // address for the host; nullptr where it has none
  virtual size_t size() const = 0;
};

enum class MemorySpace : uint8_t {
  kDevice,   // the device's own; the host has no address
  kMapped,   // pinned host memory that the device reads and writes over the bus
  kStaging,  // kMapped for the host, write-combining off; the device copies from and to it
  kConstant  // constant memory: written by upload() alone, while no kernel reads it. The host has no address
};

// How many records, of what shape, one slab or ring holds.
struct ChannelShape {
  RecordShape record;
  uint32_t capacity = 0;  // records; a power of two

  uint32_t words_in() const { return sluice::words_in(record.kind); }
  size_t record_bytes() const { return bytes_in(record.kind); }
  // Of all of them, and what follows them.
  size_t results_bytes(uint32_t count) const { return sluice::results_bytes(record, count); }
};

// How long a device is waited for at the end, before it counts as one that does not stop.
inline constexpr uint64_t kStopLimitNs = 1'000'000'000;

// Runs the body over the records of a slab, by a kernel that is launched for it, or by servers that stay on the device
// (frame records alone). One driver per channel; used by one thread.
class SlabDriver {
 public:
  virtual ~SlabDriver() = default;
  // Slab `slab`'s words as the host sees them. They stay where they are for the driver's life.
  virtual Word* in(uint32_t slab) = 0;
  virtual const void* out(uint32_t slab) = 0;
  // Starts `count` records of a slab. `program` is copied. `pool`: of frame records, where the frames lie (empty
  // otherwise). With kCommPool they are copied to `device` first. Errors: the device failed.
  struct Range {
    std::byte* host = nullptr;
    size_t bytes = 0;
    void* device = nullptr;
    // Where the frames come back to, and how they lie there. FrameRecord::at counts from `first`.
    // With FrameSlots::apart `host` is the memory that they lie in, of which they are `bytes`. With FrameSlots::head,
    // `heads` is where heads come to, record by record.
    std::byte* to = nullptr;
    std::byte* heads = nullptr;
    FrameSlots slots;
    uint32_t first = 0;
    // What `host` is a part of, if it crosses with more than this.
    LentRun run;
    // In the device's memory, where they are not those of the slab.
    const FrameRecord* records = nullptr;
    bool frames_there = false;  // the frames lie in its memory, too
    bool stays = false;         // so does what becomes of them
    // The device's addresses of `host`, `to` and `heads`: it may go there itself.
    void *host_there = nullptr, *to_there = nullptr, *heads_there = nullptr;
  };
  virtual Result<void> start(uint32_t slab, uint32_t count, const DeviceProgram& program, const Range& pool) = 0;
  // Slabs that are started from now on go to servers, which the first of them starts, or to launched kernels. A driver
  // has the ways that its mode has (Device::make_slabs); with both, slabs are launched where the device has no room for
  // servers, and served where others' servers run.
  virtual void serve(bool on) { (void)on; }
  // Whether a slab that was started went to servers.
  virtual bool is_served(uint32_t slab) const {
    (void)slab;
    return false;
  }
  // The servers leave, which have no slab; waits at most `limit_ns`. Errors: they do not.
  virtual Result<void> dismiss(uint64_t limit_ns) {
    (void)limit_ns;
    return {};
  }
  // Whether a started slab is done. Errors: the device failed.
  virtual Result<bool> done(uint32_t slab) = 0;
  // Waits until nothing runs over any slab and no server is left, at most `limit_ns`. Errors: something does; the
  // driver's memory, and what its records name, has to stay.
  virtual Result<void> join(uint64_t limit_ns) = 0;
  // How long the kernel of a slab that is done took, in nanoseconds; 0: not measured (Device::time_kernels).
  virtual uint64_t kernel_ns(uint32_t slab) {
    (void)slab;
    return 0;
  }
};

// The words in mapped memory through which a host and the servers of one ring speak. A server is one warp (or one
// emulating thread): it polls the records i with (i / kLanes) % servers == its number.
struct RingControl {
  static constexpr uint32_t kMaxServers = 64;
  // Host writes, each server's own line: loads of one host line by several multiprocessors wait for one another, a bus
  // round trip each.
  struct alignas(64) Order {
    uint32_t stop;   // not 0: the server leaves
    uint32_t epoch;  // counts program changes; servers take the program slot of its parity and acknowledge
    uint32_t reserved[14];
  };
  Order orders[kMaxServers];
  // Servers write, one slot each.
  struct alignas(64) Server {
    uint32_t ack;   // the last epoch taken
    uint32_t beat;  // counts while it lives
    uint32_t left;  // 1: it has obeyed `stop`
    uint32_t reserved[13];
  };
  Server servers[kMaxServers];

  // The host's side of the orders.
  void order_stop(uint32_t stop) {
    for (Order& order : orders) HostWords::store32(&order.stop, stop);
  }
  void order_epoch(uint32_t epoch) {
    for (Order& order : orders) HostWords::store32(&order.epoch, epoch);
  }
  bool stopping() const { return __atomic_load_n(&orders[0].stop, __ATOMIC_RELAXED) != 0; }
  uint32_t epoch() const { return __atomic_load_n(&orders[0].epoch, __ATOMIC_RELAXED); }
};

// Where the servers of a ring find its records.
enum class RingMemory : uint8_t {
  kAuto,   // kDevice where there is such memory
  kHost,   // in pinned host memory: each look is a round trip over the bus
  kDevice  // in device memory, into which the host writes whole lines
};

// Memory of the device that takes records in place of in(): the host writes in(), then copies its lines there.
struct RecordWindow {
  std::byte* to = nullptr;  // of the ring's place 0, 64-byte aligned; nullptr: the device reads in()
  CopyLines copy = nullptr;
  bool combines = false;     // lines are on their way after flush_lines() only
  PutColumns put = nullptr;  // into in(), which the host alone reads then
};

// Persistent mode: resident servers for one ring.
class RingDriver {
 public:
  static constexpr uint32_t kLanes = 32;
  virtual ~RingDriver() = default;
  virtual Word* in() = 0;         // capacity x words_in, 64-byte aligned
  virtual const void* out() = 0;  // capacity x kResultBytes
  virtual RecordWindow window() { return {}; }
  virtual RingControl* control() = 0;
  // control()'s orders have changed.
  virtual void send_orders() {}
  virtual uint32_t servers() const = 0;  // of the last start
  // Puts a program into slot `parity` of the device's memory; complete on return. Never called for a slot that records
  // on their way may name. Errors: the device failed.
  virtual Result<void> write_program(uint32_t parity, const DeviceProgram& program) = 0;
  // Starts the servers at record serial `next` (a multiple of kLanes x servers is not required). It is not told to
  // stop.
  virtual Result<void> start(uint64_t next, uint64_t lap0) = 0;
  // After it was told to stop: waits until the servers are gone, at most `limit_ns`. Errors: they are not.
  virtual Result<void> join(uint64_t limit_ns) = 0;
  // Errors: the device failed (a sticky CUDA error); never blocks.
  virtual Result<void> check() = 0;
  // Adds the times from finding a group of records to having stored its results, in nanoseconds, since the ring was
  // made. None where they are not measured (Device::time_kernels). Errors: the device failed.
  virtual Result<void> add_kernel_times(Histogram& to) {
    (void)to;
    return {};
  }
};

// Resident kernels keep their shared memory for programs and records. Errors: the program's tables are not in global
// memory.
inline Result<void> check_ring_program(const DeviceProgram& program) {
  if (program.memory == TableMemory::kGlobal) return {};
  return Error(std::string("tables in ") + to_string(program.memory) + " memory: launch mode only",
               "use --mode launch, or --table-memory global");
}

// Images that are in a device's memory already, by their bytes on the host. Thread-safe through `mutex`.
struct DeviceImages {
  std::mutex mutex;
  std::map<const Image*, std::pair<std::weak_ptr<const Image>, std::weak_ptr<DeviceBlob>>> images;
  // Copies of tables that change (tables/replica.h). They outlive their generation, because the next but one takes the
  // same memory and needs the lines that changed since.
  struct Patched {
    std::weak_ptr<const PatchLog> log;
    uint64_t version = 0;
    std::shared_ptr<DeviceBlob> blob;
    // Generations that read it. shared_ptr's own count would not do: a thread that finds it at one has not thereby
    // waited for what the others read before they let go.
    std::atomic<unsigned> holders{0};
  };
  std::vector<std::shared_ptr<Patched>> patched;
};

struct ColumnLookup;  // columns.h

class Device {
 public:
  virtual ~Device() = default;
  DeviceImages& images() { return images_; }
  virtual const DeviceInfo& info() const = 0;
  virtual DevicePower power() { return {}; }
  // Drivers that are made from now on measure their kernels: two events a launch, two looks at the clock a group.
  virtual void time_kernels(bool on) { (void)on; }
  // Where rings that are made from now on take their records. Errors: kDevice, and the device has no such memory.
  virtual Result<void> use_ring_memory(RingMemory memory) = 0;
  // Where the tables lie of generations that are made resident from now on (resident.h): launch mode alone has other
  // memory than kGlobal. Not while another thread makes one resident.
  void use_table_memory(TableMemory memory) { table_memory_ = memory; }
  TableMemory table_memory() const { return table_memory_; }
  // The address of constant memory's first byte, as kConstant blobs count theirs; nullptr before the first of them.
  virtual const std::byte* constant_memory() const = 0;
  // Chooses a specialised kernel for the program (DeviceProgram::chain), where the device has one.
  virtual void specialise(DeviceProgram& program) const { (void)program; }

  // Zero-filled. Errors: out of memory, with the size asked for and what is free.
  virtual Result<std::shared_ptr<DeviceBlob>> allocate(MemorySpace space, size_t bytes) = 0;
  // Copies host bytes into a kDevice or kConstant blob; complete on return. Works while persistent kernels run.
  virtual Result<void> upload(DeviceBlob& to, size_t offset, const void* from, size_t bytes) = 0;
  // Copies bytes of a kDevice blob to the host; complete on return.
  virtual Result<void> download(void* to, const DeviceBlob& from, size_t offset, size_t bytes) = 0;
  // Makes host memory that exists readable and writable for kernels, until `unpin`. Returns its device address.
  virtual Result<void*> pin(void* host, size_t bytes) = 0;
  virtual void unpin(void* host) = 0;

  // `mode` other than kLaunch: for frame records, which have no rings.
  virtual Result<std::unique_ptr<SlabDriver>> make_slabs(const ChannelShape& shape, uint32_t slabs, Transport transport,
                                                         DeviceMode mode = DeviceMode::kLaunch) = 0;
  virtual Result<std::unique_ptr<RingDriver>> make_ring(const ChannelShape& shape) = 0;

  // Looks up keys in the device's memory by the stage in `slot`, which points there, too (columns.h), after all that
  // `stream` was given before; its answers are there on return. `stream`: of this device, or nullptr, which is its own
  // (lookup_stream). Any thread. Errors: `slot` is no lookup; the device failed.
  virtual Result<void> look_up(const StageSlot& slot, const ColumnLookup& work, void* stream) = 0;
  // What whoever fills columns orders them by; lasts as long as the device. Errors: the device failed.
  virtual Result<void*> lookup_stream() = 0;
  // Waits for all that runs on the device, whose ever it is. Not beside rings, which never end.
  virtual void wait_for_all() = 0;

 private:
  DeviceImages images_;
  TableMemory table_memory_ = TableMemory::kGlobal;
};

// "emu", "emu:N", "emu:fail-after=N", "emu:stop-after=N", "cuda", "cuda:N". Errors: no such device, with what there is.
Result<std::unique_ptr<Device>> open_device(const std::string& name);
// Whatever the calling thread's current device is, it is that again at the end of what this returns: other libraries go
// by it. nullptr: there is no such thing.
std::shared_ptr<void> keep_current_device();
// How many CUDA devices can be used; 0 with the reason where there are none.
struct DeviceCount {
  unsigned count = 0;
  std::string why_none;
};
DeviceCount count_cuda_devices();

}  // namespace sluice
