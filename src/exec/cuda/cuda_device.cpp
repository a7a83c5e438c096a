#include "exec/cuda/chains.h"
#include "exec/cuda/open_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "exec/cuda/drivers.h"
#include "exec/cuda/nvml.h"
#include "exec/device/columns.h"

namespace sluice {
namespace {

class CudaBlob final : public DeviceBlob {
 public:
  CudaBlob(std::shared_ptr<CudaMemory> memory, MemorySpace space, void* address, size_t bytes)
      : memory_(std::move(memory)), space_(space), address_(address), bytes_(bytes) {}
  ~CudaBlob() override {
    if (space_ == MemorySpace::kDevice) {
      memory_->free_device(address_);
    } else {
      memory_->free_pinned(address_);
    }
  }
  CudaBlob(const CudaBlob&) = delete;
  CudaBlob& operator=(const CudaBlob&) = delete;

  // Pinned memory has one address for both sides.
  void* device() const override { return address_; }
  void* host() const override { return space_ == MemorySpace::kDevice ? nullptr : address_; }
  size_t size() const override { return bytes_; }

 private:
  std::shared_ptr<CudaMemory> memory_;
  MemorySpace space_;
  void* address_;
  size_t bytes_;
};

// A part of constant memory, in every module's bank.
class CudaConstant final : public DeviceBlob {
 public:
  CudaConstant(std::shared_ptr<CudaShared> shared, uint32_t at, size_t bytes)
      : shared_(std::move(shared)), at_(at), bytes_(bytes) {}
  ~CudaConstant() override { shared_->bank.leave(at_); }
  CudaConstant(const CudaConstant&) = delete;
  CudaConstant& operator=(const CudaConstant&) = delete;

  // In the first of the banks.
  void* device() const override { return shared_->banks[0] + at_; }
  void* host() const override { return nullptr; }
  size_t size() const override { return bytes_; }
  uint32_t at() const { return at_; }

 private:
  std::shared_ptr<CudaShared> shared_;
  uint32_t at_;
  size_t bytes_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<CudaShared> shared, DeviceInfo info, std::unique_ptr<Nvml> nvml)
      : shared_(std::move(shared)), info_(std::move(info)), nvml_(std::move(nvml)) {}

  const DeviceInfo& info() const override { return info_; }
  DevicePower power() override { return nvml_ == nullptr ? DevicePower{} : nvml_->read(); }

  Result<std::shared_ptr<DeviceBlob>> allocate(MemorySpace space, size_t bytes) override {
    if (space == MemorySpace::kConstant) return allocate_constant(bytes);
    auto address = space == MemorySpace::kDevice ? shared_->memory->allocate_device(bytes)
                                                 : shared_->memory->allocate_pinned(bytes);
    if (!address) return std::move(address).error();
    return std::shared_ptr<DeviceBlob>(std::make_shared<CudaBlob>(shared_->memory, space, *address, bytes));
  }
  Result<void> upload(DeviceBlob& to, size_t offset, const void* from, size_t bytes) override {
    if (offset > to.size() || bytes > to.size() - offset) {
      return Error(fmt::format("upload of {} bytes at {} into {} bytes of device memory", bytes, offset, to.size()));
    }
    if (const auto* constant = dynamic_cast<const CudaConstant*>(&to)) {
      for (std::byte* bank : shared_->banks) {
        if (auto ok = shared_->memory->upload(bank + constant->at() + offset, from, bytes); !ok) return ok;
      }
      return {};
    }
    return shared_->memory->upload(static_cast<std::byte*>(to.device()) + offset, from, bytes);
  }
  Result<void> download(void* to, const DeviceBlob& from, size_t offset, size_t bytes) override {
    if (offset > from.size() || bytes > from.size() - offset)
      return Error(fmt::format("download of {} bytes at {} of {} bytes of device memory", bytes, offset, from.size()));
    return shared_->memory->download(to, static_cast<const std::byte*>(from.device()) + offset, bytes);
  }
  const std::byte* constant_memory() const override { return shared_->banks.empty() ? nullptr : shared_->banks[0]; }
  Result<void*> pin(void* host, size_t bytes) override { return shared_->memory->pin(host, bytes); }
  void unpin(void* host) override { shared_->memory->unpin(host); }

  void time_kernels(bool on) override { shared_->options.stamps = on; }
  Result<void> use_ring_memory(RingMemory memory) override {
    if (memory == RingMemory::kDevice) {
      // A little of it says whether there is any.
      if (auto ok = can_push(); !ok) return ok;
      auto window = shared_->memory->allocate_window(1);
      if (!window) return std::move(window).error();
      shared_->memory->free_device(window->device);
    }
    shared_->options.ring_memory = memory;
    return {};
  }
  void specialise(DeviceProgram& program) const override { program.chain = chain_of(program); }
  Result<std::unique_ptr<SlabDriver>> make_slabs(const ChannelShape& shape, uint32_t slabs, Transport transport,
                                                 DeviceMode mode) override {
    return make_cuda_slabs(shared_, shape, slabs, transport, mode);
  }
  Result<std::unique_ptr<RingDriver>> make_ring(const ChannelShape& shape) override {
    return make_cuda_ring(shared_, shape);
  }

  Result<void> look_up(const StageSlot& slot, const ColumnLookup& work, void* stream) override {
    auto on = stream != nullptr ? Result<cudaStream_t>(static_cast<cudaStream_t>(stream)) : shared_->lookup_stream();
    if (!on) return std::move(on).error();
    shared_->memory->use();
    // What a failed launch before has left is not this one's.
    (void)cudaGetLastError();
    if (auto ok = launch_columns(slot, work, *on); !ok) return ok;
    cudaError_t e = cudaGetLastError();
    // An event, since other threads may have put more into the stream by now.
    cudaEvent_t done = nullptr;
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventRecord(done, *on);
    if (e == cudaSuccess) e = cudaEventSynchronize(done);
    if (done != nullptr) (void)cudaEventDestroy(done);
    if (e != cudaSuccess) return cuda_error(e, fmt::format("look up {} keys", work.n));
    return {};
  }
  Result<void*> lookup_stream() override {
    auto stream = shared_->lookup_stream();
    if (!stream) return std::move(stream).error();
    return static_cast<void*>(*stream);
  }
  void wait_for_all() override {
    shared_->memory->use();
    (void)cudaDeviceSynchronize();
  }

  CudaMemory* memory() { return shared_->memory.get(); }

 private:
  // As allocate() is called: by one thread at a time (make_resident).
  Result<std::shared_ptr<DeviceBlob>> allocate_constant(size_t bytes) {
    shared_->memory->use();
    std::vector<std::byte*> banks;
    if (shared_->banks.empty()) {
      for (const void* symbol : constant_banks()) {
        void* at = nullptr;
        if (const cudaError_t e = cudaGetSymbolAddress(&at, symbol); e != cudaSuccess) {
          (void)cudaGetLastError();
          return cuda_error(e, "find constant memory");
        }
        banks.push_back(static_cast<std::byte*>(at));
      }
      shared_->banks = std::move(banks);
    }
    auto at = shared_->bank.take(bytes);
    if (!at) return std::move(at).error();
    return std::shared_ptr<DeviceBlob>(std::make_shared<CudaConstant>(shared_, *at, bytes));
  }

  std::shared_ptr<CudaShared> shared_;
  DeviceInfo info_;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace

namespace {
// The driver has 32 queues at most (prepare_cuda_runtime asks for them); uploads need one.
constexpr uint32_t kMostStreams = 30;
// Graphs run on queues of the driver's own besides: with 30 rings a graph was never started (H100).
constexpr uint32_t kMostRingsBesideGraphs = 22;
}  // namespace

CudaShared::~CudaShared() {
  // Destroying a stream waits for what runs in it.
  if (memory == nullptr || memory->abandoned()) return;
  memory->use();
  for (cudaStream_t stream : slab_streams_) (void)cudaStreamDestroy(stream);
  if (run_stream_ != nullptr) (void)cudaStreamDestroy(run_stream_);
  if (lookup_stream_ != nullptr) (void)cudaStreamDestroy(lookup_stream_);
  for (cudaEvent_t event : run_copied_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  memory->free_device(run_memory_);
  memory->free_device(runs_copied_);
  memory->free_pinned(run_serials_);
}

Result<void> CudaShared::prepare_runs() {
  const std::lock_guard lock(mutex_);
  if (run_memory_ != nullptr) return {};
  memory->use();
  cudaError_t e = cudaStreamCreateWithFlags(&run_stream_, cudaStreamNonBlocking);
  for (size_t i = 0; i < run_copied_.size() && e == cudaSuccess; ++i)
    e = cudaEventCreateWithFlags(&run_copied_[i], cudaEventDisableTiming);
  if (e != cudaSuccess) return cuda_error(e, "create a stream for runs of frames");
  auto serials = memory->allocate_pinned(CopiedRuns::kPlaces * sizeof(uint32_t));
  if (!serials) return std::move(serials).error();
  run_serials_ = static_cast<uint32_t*>(*serials);
  auto copied = memory->allocate_device(CopiedRuns::kPlaces * sizeof(uint32_t));
  if (!copied) return std::move(copied).error();
  runs_copied_ = static_cast<uint32_t*>(*copied);
  auto made = memory->allocate_device(CopiedRuns::kPlaces * kPlaceBytes);
  if (!made) return std::move(made).error();
  run_memory_ = static_cast<std::byte*>(*made);
  return {};
}

Result<CudaShared::RunPlace> CudaShared::take_run(const LentRun& run, cudaStream_t stream) {
  const auto copy = [&](uint32_t place) -> Result<void> {
    std::byte* const to = run_memory_ + place * kPlaceBytes;
    cudaError_t e = cudaMemcpyAsync(to, run.host, run.bytes, cudaMemcpyHostToDevice, run_stream_);
    // Whoever had the place has waited for the serial before this one, or for an event behind it.
    ++run_serials_[place];
    if (e == cudaSuccess)
      e = cudaMemcpyAsync(runs_copied_ + place, run_serials_ + place, sizeof(uint32_t), cudaMemcpyHostToDevice,
                          run_stream_);
    if (e == cudaSuccess) e = cudaEventRecord(run_copied_[place], run_stream_);
    if (e == cudaSuccess) return {};
    return cuda_error(e, fmt::format("copy a run of {} bytes of frames", run.bytes));
  };
  auto place = runs.take(run, copy);
  if (!place) return std::move(place).error();
  if (*place == CopiedRuns::kNone) return RunPlace();
  const RunPlace at{*place, run_memory_ + *place * kPlaceBytes, runs_copied_ + *place, run_serials_[*place]};
  if (stream == nullptr) return at;
  if (const cudaError_t e = cudaStreamWaitEvent(stream, run_copied_[*place]); e != cudaSuccess) {
    runs.leave(*place);
    return cuda_error(e, "wait for a run of frames");
  }
  return at;
}

Result<void> CudaShared::wait_for_launched() {
  const std::lock_guard lock(mutex_);
  memory->use();
  for (cudaStream_t stream : slab_streams_) {
    const cudaError_t e = wait_for_stream(stream, kStopLimitNs);
    if (e == cudaErrorNotReady) return Error("launched kernels do not end");
    if (e != cudaSuccess) return cuda_error(e, "wait for launched kernels");
  }
  return {};
}

cudaError_t wait_for_stream(cudaStream_t stream, uint64_t limit_ns) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit_ns);
  for (;;) {
    const cudaError_t e = cudaStreamQuery(stream);
    if (e == cudaSuccess) return e;
    (void)cudaGetLastError();
    if (e != cudaErrorNotReady || std::chrono::steady_clock::now() > limit) return e;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Result<cudaStream_t> CudaShared::slab_stream() {
  const std::lock_guard lock(mutex_);
  const bool room = slab_streams_.size() < kMostSlabStreams &&
                    slab_streams_.size() + resident_rings + (lookup_stream_ != nullptr ? 1 : 0) < kMostStreams;
  if (room || slab_streams_.empty()) {
    cudaStream_t stream = nullptr;
    memory->use();
    if (const cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); e != cudaSuccess) {
      return cuda_error(e, "create a stream for slabs");
    }
    slab_streams_.push_back(stream);
    return stream;
  }
  return slab_streams_[next_stream_++ % slab_streams_.size()];
}

Result<cudaStream_t> CudaShared::lookup_stream() {
  const std::lock_guard lock(mutex_);
  if (lookup_stream_ == nullptr) {
    memory->use();
    if (const cudaError_t e = cudaStreamCreateWithFlags(&lookup_stream_, cudaStreamNonBlocking); e != cudaSuccess)
      return cuda_error(e, "create a stream for lookups");
  }
  return lookup_stream_;
}

uint32_t CudaShared::most_rings() {
  const std::lock_guard lock(mutex_);
  const uint32_t used = static_cast<uint32_t>(slab_streams_.size()) + (lookup_stream_ != nullptr ? 1 : 0) +
                        (run_stream_ != nullptr ? 1 : 0);
  const uint32_t left = kMostStreams - std::min(kMostStreams, used);
  return options.graphs ? std::min(kMostRingsBesideGraphs, left) : left;
}

namespace {

// The driver's, which all copies of the runtime in one process share.
struct CurrentContext {
  CurrentContext() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return;
    get = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
    set = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
  }
  int (*get)(void**) = nullptr;
  int (*set)(void*) = nullptr;
};

}  // namespace

std::shared_ptr<void> keep_current_device() {
  static const CurrentContext current;
  void* context = nullptr;
  // No context, or a driver that nobody has called yet: the thread has no current device.
  if (current.get == nullptr || current.set == nullptr || current.get(&context) != 0 || context == nullptr)
    return nullptr;
  return std::shared_ptr<void>(context, [](void* before) { (void)current.set(before); });
}

DeviceCount count_cuda_devices() {
  prepare_cuda_runtime();
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (e != cudaSuccess) {
    return {0, fmt::format("{} ({})", cudaGetErrorName(e), cudaGetErrorString(e))};
  }
  if (count <= 0) return {0, "the driver knows no device"};
  return {static_cast<unsigned>(count), {}};
}

Result<std::unique_ptr<Device>> open_cuda_device(unsigned ordinal, const CudaOptions& options) {
  const DeviceCount found = count_cuda_devices();
  if (found.count == 0) return Error("no CUDA device: " + found.why_none, "check `nvidia-smi`, or use --device cpu");
  if (ordinal >= found.count) {
    return Error(fmt::format("no CUDA device {}: there {} {}", ordinal, found.count == 1 ? "is" : "are", found.count),
                 fmt::format("devices count from 0: use cuda:0{}",
                             found.count > 1 ? fmt::format(" .. cuda:{}", found.count - 1) : ""));
  }
  const int device = static_cast<int>(ordinal);
  auto memory = CudaMemory::open(device, options.reserve_bytes);
  if (!memory) return std::move(memory).error();

  cudaDeviceProp properties{};
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, device); e != cudaSuccess) {
    return cuda_error(e, fmt::format("read the properties of device {}", ordinal));
  }
  // Loads each kernel now, and shows now whether there is code for this device.
  size_t local_bytes = 0;
  for (const void* kernel : all_kernels()) {
    cudaFuncAttributes attributes{};
    cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
    local_bytes = std::max(local_bytes, attributes.localSizeBytes);
    if (e == cudaSuccess) {
      e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(properties.sharedMemPerBlockOptin - attributes.sharedSizeBytes));
    }
    if (e != cudaSuccess) {
      (void)cudaGetLastError();
      return cuda_error(e, fmt::format("load the kernels on {} (compute capability {}.{})", properties.name,
                                       properties.major, properties.minor));
    }
  }

  // Local memory that a launch finds too small grows when nothing runs any more, and resident kernels never end: the
  // launch of a second ring would wait for the first one for ever.
  size_t room = 0;
  cudaError_t e = cudaDeviceGetLimit(&room, cudaLimitStackSize);
  if (e == cudaSuccess && room < local_bytes) e = cudaDeviceSetLimit(cudaLimitStackSize, local_bytes);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, fmt::format("reserve {} bytes of local memory per thread", local_bytes));
  }

  auto shared = std::make_shared<CudaShared>();
  shared->memory = std::move(*memory);
  shared->options = options;
  shared->processors = static_cast<uint32_t>(properties.multiProcessorCount);
  DeviceInfo info;
  info.name = properties.name;
  info.kind = "cuda";
  info.ordinal = ordinal;
  info.memory_bytes = properties.totalGlobalMem;
  info.multiprocessors = shared->processors;
  info.shared_bytes = properties.sharedMemPerBlockOptin;
  info.coherent = shared->memory->coherent();
  char bus_id[32] = {};
  std::unique_ptr<Nvml> nvml;
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) == cudaSuccess) nvml = Nvml::open(bus_id);
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(shared), std::move(info), std::move(nvml)));
}

CudaMemory* cuda_memory(Device& device) {
  auto* cuda = dynamic_cast<CudaDevice*>(&device);
  return cuda == nullptr ? nullptr : cuda->memory();
}

Result<void> cuda_download(Device& device, void* to, const void* from, size_t bytes) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("not a CUDA device");
  return memory->download(to, from, bytes);
}

}  // namespace sluice
