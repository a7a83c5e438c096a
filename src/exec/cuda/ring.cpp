// Persistent mode: one ring's resident servers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/scope_exit.h"
#include "exec/cuda/chains.h"
#include "exec/cuda/drivers.h"
#include "memory/buffer.h"

namespace sluice {
namespace {

// A ring's blocks: so many fit a device for 30 rings, two families of 15 workers.
constexpr uint32_t kRingBlocks = 8;

class CudaRing final : public RingDriver {
 public:
  CudaRing(std::shared_ptr<CudaShared> shared, const ChannelShape& shape) : shared_(std::move(shared)), shape_(shape) {}
  ~CudaRing() override {
    if (running_) {
      control_->order_stop(1);
      send_orders();
      (void)join(kStopLimitNs);
    }
    // Servers that do not leave still read and write this memory, and destroying their stream would wait for them.
    if (running_) return;
    CudaMemory& memory = *shared_->memory;
    memory.use();
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    if (window_ == nullptr) memory.free_pinned(in_);
    memory.free_device(device_in_);
    memory.free_device(orders_);
    memory.free_pinned(out_);
    memory.free_pinned(control_);
    memory.free_device(programs_);
    memory.free_device(histogram_);
  }
  CudaRing(const CudaRing&) = delete;
  CudaRing& operator=(const CudaRing&) = delete;

  Result<void> create() {
    const CudaOptions& options = shared_->options;
    stamps_ = options.stamps;

    CudaMemory& memory = *shared_->memory;
    memory.use();
    void* at = nullptr;
    const size_t bytes_in = size_t{shape_.capacity} * shape_.words_in() * sizeof(Word);
    if (options.ring_memory != RingMemory::kHost) {
      auto made = make_window(bytes_in);
      if (!made && options.ring_memory == RingMemory::kDevice) return made;
    }
    if (window_ == nullptr) {
      if (auto r = take(memory.allocate_pinned(bytes_in), at); !r) return r;
      in_ = static_cast<Word*>(at);
    }
    if (auto r = take(memory.allocate_pinned(size_t{shape_.capacity} * kResultBytes), at); !r) return r;
    out_ = static_cast<Word*>(at);
    if (auto r = take(memory.allocate_pinned(sizeof(RingControl)), at); !r) return r;
    control_ = static_cast<RingControl*>(at);
    send_orders();
    if (auto r = take(memory.allocate_device(2 * size_t{kProgramSlotBytes}), at); !r) return r;
    programs_ = static_cast<std::byte*>(at);
    if (stamps_) {
      if (auto r = take(memory.allocate_device(kRingBins * sizeof(uint32_t)), at); !r) return r;
      histogram_ = static_cast<uint32_t*>(at);
    }
    return {};
  }

  Word* in() override { return in_; }
  const void* out() override { return out_; }
  RecordWindow window() override {
    if (window_ == nullptr) return {};
    return {window_, whole_line_copy(), lines_combine(), column_put()};
  }
  RingControl* control() override { return control_; }
  void send_orders() override {
    if (window_ == nullptr) return;
    whole_line_copy()(window_orders_, reinterpret_cast<const std::byte*>(control_->orders),
                      sizeof control_->orders / 64);
    flush_lines();
  }
  uint32_t servers() const override { return servers_; }

  Result<void> write_program(uint32_t parity, const DeviceProgram& program) override {
    if (auto ok = check_program(shape_.record.kind, program); !ok) return ok;
    if (auto ok = check_ring_program(program); !ok) return ok;
    if (!running_) teams_ = gains_by_teams(program);
    alignas(16) std::byte slot[kProgramSlotBytes] = {};
    memcpy(slot, &program, sizeof program);
    return shared_->memory->upload(programs_ + size_t{parity & 1} * kProgramSlotBytes, slot, sizeof slot);
  }

  Result<void> start(uint64_t next, uint64_t lap0) override {
    if (running_) return Error("the servers of this ring run already");
    // A ring that never runs has no stream: past the number of the driver's queues, streams share one, and what shares
    // it with a resident kernel waits for ever.
    const uint32_t most = shared_->most_rings();
    if (shared_->resident_rings.fetch_add(1) >= most) {
      shared_->resident_rings.fetch_sub(1);
      return Error(fmt::format("{} rings run on the device, and it takes no more", most),
                   "use fewer workers, or launch mode");
    }
    bool started = false;
    const ScopeExit uncount([&] {
      if (!started) shared_->resident_rings.fetch_sub(1);
    });
    share_out();
    shared_->memory->use();
    if (stream_ == nullptr) {
      if (const cudaError_t e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); e != cudaSuccess) {
        (void)cudaGetLastError();
        return cuda_error(e, "create a stream for a ring");
      }
    }
    // Two blocks per multiprocessor fit with room for launch kernels beside them.
    const uint32_t limit = most_resident_blocks(*shared_);
    // Few servers a block spread a ring over the device; more of them when there are many rings.
    uint32_t block_servers = block_servers_;
    uint32_t blocks = 0;
    for (;; block_servers *= 2) {
      block_servers = std::min({block_servers, kRingBlockWarps, servers_});
      blocks = (servers_ + block_servers - 1) / block_servers;
      const uint32_t before = shared_->resident_blocks.fetch_add(blocks);
      if (before + blocks <= limit) break;
      shared_->resident_blocks.fetch_sub(blocks);
      if (block_servers == kRingBlockWarps || block_servers == servers_) {
        return Error(fmt::format("a ring needs {} blocks, but rings hold {} of the {} that {} multiprocessors take",
                                 blocks, before, limit, shared_->processors),
                     "use fewer workers, fewer rings per worker, or launch mode");
      }
    }
    for (uint32_t i = 0; i < servers_; ++i) __atomic_store_n(&control_->servers[i].left, 0u, __ATOMIC_RELAXED);
    RingArguments a{};
    a.in = window_ != nullptr ? reinterpret_cast<const Word*>(device_in_) : in_;
    a.orders = window_ != nullptr ? reinterpret_cast<const RingControl::Order*>(orders_) : control_->orders;
    a.out = out_;
    a.control = control_;
    a.programs = reinterpret_cast<const DeviceProgram*>(programs_);
    a.histogram = histogram_;
    a.next = next;
    a.lap0 = lap0;
    a.capacity = shape_.capacity;
    a.servers = servers_;
    void* arguments[] = {&a};
    CudaMemory& memory = *shared_->memory;
    memory.use();
    memory.resident_started();
    const uint32_t bytes = ring_shared_bytes(block_servers);
    if (const cudaError_t e =
            cudaLaunchKernel(kernel_, dim3(blocks), dim3(block_servers * 32), arguments, bytes, stream_);
        e != cudaSuccess) {
      (void)cudaGetLastError();
      memory.resident_left();
      shared_->resident_blocks.fetch_sub(blocks);
      return cuda_error(e, "start the servers of a ring");
    }
    blocks_ = blocks;
    running_ = started = true;
    return {};
  }

  Result<void> join(uint64_t limit_ns) override {
    if (!running_) return {};
    shared_->memory->use();
    const cudaError_t e = wait_for_stream(stream_, limit_ns);
    if (e == cudaErrorNotReady) {
      uint32_t there = 0;
      for (uint32_t i = 0; i < servers_; ++i) there += HostWords::load32(&control_->servers[i].left) == 0 ? 1 : 0;
      shared_->memory->abandon();
      return Error(fmt::format("{} of {} servers of a ring do not stop", there, servers_),
                   "the device is stuck: restart the program");
    }
    // A failed device runs nothing any more.
    left();
    if (e != cudaSuccess) return cuda_error(e, "stop the servers of a ring");
    return {};
  }

  Result<void> check() override {
    // A resident kernel that still runs is cudaErrorNotReady; one that failed is the failure.
    if (!running_) return {};
    shared_->memory->use();
    const cudaError_t e = cudaStreamQuery(stream_);
    if (e == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return {};
    }
    if (e != cudaSuccess) return cuda_error(e, "run the servers of a ring");
    if (!control_->stopping()) {
      return Error("the servers of a ring have exited unexpectedly");
    }
    return {};
  }

  Result<void> add_kernel_times(Histogram& to) override {
    if (histogram_ == nullptr) return {};
    std::vector<uint32_t> bins(kRingBins);
    if (auto copied = shared_->memory->download(bins.data(), histogram_, bins.size() * sizeof(uint32_t)); !copied) {
      return copied;
    }
    for (uint32_t i = 0; i < kRingBins; ++i) to.record(uint64_t{i} * kRingBinNs + kRingBinNs / 2, bins[i]);
    return {};
  }

 private:
  // Which server takes which records, and how many servers there are: by the program that is there at the start.
  void share_out() {
    const CudaOptions& options = shared_->options;
    const RecordKind kind = shape_.record.kind;
    const uint32_t groups = shape_.capacity / kLanes;
    kernel_ = ring_kernel(kind);
    if (options.ring_servers != 0) {
      servers_ = std::min({options.ring_servers, RingControl::kMaxServers, groups});
      block_servers_ = options.ring_block_servers;
    } else if (teams_ && window_ != nullptr && kind == RecordKind::kKey4 && groups <= kRingBlocks) {
      // A small ring is there for its round trip: that of a record, which a team takes on together, and not of the
      // slowest of 32. Short lookups gain nothing by it, and 64 servers' results come in more pieces.
      kernel_ = ring_team_kernel();
      servers_ = std::min(RingControl::kMaxServers, groups * kRingTeam);
      block_servers_ = shared_->resident_blocks.load() == 0 ? 4 : 8;
    } else {
      // Lookups wait for memory, so that more servers are more packets; polls over the bus are better few.
      servers_ = std::min(window_ != nullptr ? RingControl::kMaxServers : 32u, groups);
      block_servers_ = (servers_ + kRingBlocks - 1) / kRingBlocks;
    }
    block_servers_ = std::clamp(block_servers_, 1u, std::min(kRingBlockWarps, servers_));
  }

  static Result<void> take(Result<void*> from, void*& to) {
    if (!from) return std::move(from).error();
    to = *from;
    return {};
  }
  // Records and orders in device memory that the host writes; what the host has of the records is ordinary memory.
  Result<void> make_window(size_t bytes_in) {
    CudaMemory& memory = *shared_->memory;
    if (auto ok = can_push(); !ok) return ok;
    auto words = memory.allocate_window(bytes_in);
    if (!words) return std::move(words).error();
    auto orders = memory.allocate_window(sizeof control_->orders);
    auto copy = Buffer::allocate(bytes_in);
    if (!orders || !copy) {
      memory.free_device(words->device);
      if (orders) memory.free_device(orders->device);
      return orders ? std::move(copy).error() : std::move(orders).error();
    }
    copy_ = std::move(*copy);
    in_ = reinterpret_cast<Word*>(copy_.data());
    window_ = words->host;
    device_in_ = words->device;
    window_orders_ = orders->host;
    orders_ = orders->device;
    whole_line_copy()(window_, copy_.data(), bytes_in / 64);  // zeros
    return {};
  }
  void left() {
    running_ = false;
    shared_->resident_rings.fetch_sub(1);
    shared_->resident_blocks.fetch_sub(blocks_);
    shared_->memory->resident_left();
  }

  std::shared_ptr<CudaShared> shared_;
  ChannelShape shape_;
  const void* kernel_ = nullptr;
  uint32_t servers_ = 0;
  uint32_t block_servers_ = 0;
  bool teams_ = false;  // the program that the ring will start with gains by them
  uint32_t blocks_ = 0;
  bool stamps_ = false;
  bool running_ = false;
  Word* in_ = nullptr;
  Buffer copy_;                         // in_, where there is a window
  std::byte* window_ = nullptr;         // records as the device sees them, for the host to write
  std::byte* device_in_ = nullptr;      // the same for the device
  std::byte* window_orders_ = nullptr;  // the control's orders as the device sees them, for the host
  std::byte* orders_ = nullptr;         // the same for the device
  Word* out_ = nullptr;
  RingControl* control_ = nullptr;
  std::byte* programs_ = nullptr;
  uint32_t* histogram_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

Result<void> can_push() {
  if (whole_line_copy() == nullptr) {
    return Error("this processor has no 64-byte stores: records cannot be written into device memory",
                 "use --ring-memory host");
  }
  return {};
}

Result<std::unique_ptr<RingDriver>> make_cuda_ring(std::shared_ptr<CudaShared> shared, const ChannelShape& shape) {
  if (auto fits = check_ring(shape); !fits) return std::move(fits).error();
  auto ring = std::make_unique<CudaRing>(std::move(shared), shape);
  if (auto made = ring->create(); !made) return std::move(made).error();
  return std::unique_ptr<RingDriver>(std::move(ring));
}

}  // namespace sluice
