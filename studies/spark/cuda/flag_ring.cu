#include "studies/spark/cuda/flag_ring.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>

#include "exec/cuda/open_cuda.h"
#include "exec/cuda/ring.cuh"
#include "memory/cuda/memory.h"

namespace sluice {
namespace {

using namespace cuda_walk;

struct Flags {
  alignas(64) uint32_t doorbell;  // host: sequence number
  uint32_t count;                 // host: written before the doorbell; 0: leave
  alignas(64) uint32_t done;      // device: sequence number
};

__global__ void __launch_bounds__(FlagRing::kMaxRecords, 1)
    flag_server(const __grid_constant__ DeviceProgram program, const Word* in, uint64_t* out, Flags* flags) {
  __shared__ uint32_t count;
  for (uint32_t sequence = 1;; ++sequence) {
    if (threadIdx.x == 0) {
      while (load_acquire_sys(&flags->doorbell) != sequence) {
      }
      count = load_relaxed_sys(&flags->count);
    }
    __syncthreads();
    const uint32_t n = count;
    if (n == 0) return;
    const bool here = threadIdx.x < n;
    Walker w;
    const Word word = DeviceWords::load(in + (here ? threadIdx.x : 0));
    const uint32_t tag = word_tag(word);
    read_key<RecordKind::kKey4>(program, &word, w);
    if (!here) w.path = kPathDropped;
    walk_program<RecordKind::kKey4, 1>(program, w);
    if (here) {
      DeviceWords::store64(out + threadIdx.x, key_result(w, tag));
    }
    // Every lane's result before the flag.
    fence_sys();
    __syncthreads();
    if (threadIdx.x == 0) store_release_sys(&flags->done, sequence);
  }
}

class CudaFlagRing final : public FlagRing {
 public:
  explicit CudaFlagRing(CudaMemory& memory) : memory_(memory) {}
  ~CudaFlagRing() override {
    if (running_) (void)stop();
    if (running_) return;  // stuck: what it uses stays
    memory_.use();
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    memory_.free_pinned(in_);
    memory_.free_pinned(out_);
    memory_.free_pinned(flags_);
  }
  CudaFlagRing(const CudaFlagRing&) = delete;
  CudaFlagRing& operator=(const CudaFlagRing&) = delete;

  Result<void> create(const DeviceProgram& program, uint32_t records) {
    for (void** at : {reinterpret_cast<void**>(&in_), reinterpret_cast<void**>(&out_)}) {
      auto made = memory_.allocate_pinned(size_t{records} * sizeof(Word));
      if (!made) return std::move(made).error();
      *at = *made;
    }
    auto flags = memory_.allocate_pinned(sizeof(Flags));
    if (!flags) return std::move(flags).error();
    flags_ = static_cast<Flags*>(*flags);
    cudaError_t e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (e != cudaSuccess) return cuda_error(e, "create a stream for a flag ring");
    memory_.resident_started();
    flag_server<<<1, (records + 31) / 32 * 32, 0, stream_>>>(program, in_, out_, flags_);
    e = cudaGetLastError();
    if (e != cudaSuccess) {
      memory_.resident_left();
      return cuda_error(e, "start a flag ring");
    }
    running_ = true;
    return {};
  }

  Word* in() override { return in_; }
  const uint64_t* out() override { return out_; }
  void ring(uint32_t count) override {
    __atomic_store_n(&flags_->count, count, __ATOMIC_RELAXED);
    HostWords::store32(&flags_->doorbell, ++sequence_);
  }
  bool done() const override { return HostWords::load32(&flags_->done) == sequence_; }
  Result<void> stop() override {
    if (!running_) return {};
    ring(0);
    memory_.use();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    cudaError_t e = cudaErrorNotReady;
    while ((e = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
      (void)cudaGetLastError();
      if (std::chrono::steady_clock::now() > limit) {
        memory_.abandon();
        return Error("the kernel of a flag ring does not stop", "the device is stuck: restart the program");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    running_ = false;
    memory_.resident_left();
    if (e != cudaSuccess) return cuda_error(e, "stop a flag ring");
    return {};
  }

 private:
  CudaMemory& memory_;
  Word* in_ = nullptr;
  uint64_t* out_ = nullptr;
  Flags* flags_ = nullptr;
  cudaStream_t stream_ = nullptr;
  uint32_t sequence_ = 0;
  bool running_ = false;
};

}  // namespace

Result<std::unique_ptr<FlagRing>> FlagRing::start(Device& device, const DeviceProgram& program, uint32_t records) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("a flag ring is for CUDA devices");
  if (records == 0 || records > kMaxRecords) return Error("a flag ring has 1 to 512 records");
  if (!runs_on(RecordKind::kKey4, program)) return Error("the program does not run on keys");
  auto ring = std::make_unique<CudaFlagRing>(*memory);
  if (auto made = ring->create(program, records); !made) return std::move(made).error();
  return std::unique_ptr<FlagRing>(std::move(ring));
}

}  // namespace sluice
