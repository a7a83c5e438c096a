// What benches of kernels over device memory share: a frame's way through a known chain of stages, memory and streams.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "exec/cuda/open_cuda.h"
#include "exec/cuda/walk.cuh"
#include "memory/cuda/memory.h"

namespace sluice::cuda_resident {

template <typename... Stages>
inline bool is_chain(TypeList<Stages...>, const DeviceProgram& program) {
  uint32_t s = program.begin;
  return program.end - program.begin == sizeof...(Stages) &&
         ((program.program.stages[s++].kind == kStageKind<Stages>)&&...);
}

template <typename... Stages>
__device__ __forceinline__ uint32_t walk_frame(TypeList<Stages...>, const DeviceProgram& program, Packet& p) {
  uint32_t s = program.begin;
  uint32_t path = s;
  uint32_t visited = 0;
  uint32_t output = 0;
  auto one = [&]<typename Stage>(TypeTag<Stage>) {
    if (path == s) {
      const StageSlot& slot = program.program.stages[s];
      output = slot.template get<Stage>()(p);
      visited |= 1u << (s - program.begin);
      path = slot.next[output & 15];
    }
    ++s;
  };
  (one(TypeTag<Stages>{}), ...);
  return visited | output << 16 | static_cast<uint32_t>(p.reason) << 24;
}

// Device memory, a stream and two events, given back together.
class Run {
 public:
  explicit Run(CudaMemory& memory) : memory_(memory) {}
  ~Run() {
    memory_.use();
    for (cudaEvent_t event : events_) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    memory_.free_device(in_);
    memory_.free_device(out_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // `launch(in, out, stream)` starts the kernel; `count` is what a rate counts; `restore`, if any, comes before each
  // and is not timed.
  Result<std::vector<double>> go(const void* input, size_t input_bytes, void* output, size_t output_bytes,
                                 size_t padded_input, size_t padded_output, size_t count, unsigned repeats,
                                 const std::function<void(void*, void*, cudaStream_t)>& launch,
                                 const std::function<cudaError_t(void*, cudaStream_t)>& restore = {}) {
    auto in = memory_.allocate_device(padded_input);
    if (!in) return std::move(in).error();
    in_ = *in;
    auto out = memory_.allocate_device(padded_output);
    if (!out) return std::move(out).error();
    out_ = *out;
    if (auto copied = memory_.upload(in_, input, input_bytes); !copied) return std::move(copied).error();
    cudaError_t e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    for (cudaEvent_t& event : events_) {
      if (e == cudaSuccess) e = cudaEventCreate(&event);
    }
    std::vector<double> rates;
    for (unsigned i = 0; e == cudaSuccess && i <= repeats; ++i) {
      if (restore) e = restore(in_, stream_);
      if (e == cudaSuccess) e = cudaEventRecord(events_[0], stream_);
      if (e == cudaSuccess) {
        launch(in_, out_, stream_);
        e = cudaGetLastError();
      }
      if (e == cudaSuccess) e = cudaEventRecord(events_[1], stream_);
      if (e == cudaSuccess) e = cudaEventSynchronize(events_[1]);
      float ms = 0;
      if (e == cudaSuccess) e = cudaEventElapsedTime(&ms, events_[0], events_[1]);
      if (e == cudaSuccess && i != 0) rates.push_back(static_cast<double>(count) / (ms / 1000.0));
    }
    if (e != cudaSuccess) return cuda_error(e, "run a benchmark's kernel");
    if (auto copied = memory_.download(output, out_, output_bytes); !copied) return std::move(copied).error();
    return rates;
  }

  // The input as the last run left it.
  const void* input() const { return in_; }

 private:
  CudaMemory& memory_;
  void* in_ = nullptr;
  void* out_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {nullptr, nullptr};
};

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Memory of both sides and streams, given back together.
class Feed {
 public:
  Feed(CudaMemory& memory, bool pinned) : memory_(memory), pinned_(pinned) {}
  ~Feed() {
    memory_.use();
    for (cudaStream_t stream : streams) {
      if (stream != nullptr) (void)cudaStreamDestroy(stream);
    }
    for (void* at : {static_cast<void*>(host_in), static_cast<void*>(host_out)}) {
      pinned_ ? memory_.free_pinned(at) : std::free(at);
    }
    memory_.free_device(device_in);
    memory_.free_device(device_out);
  }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  Result<void> create(size_t bytes_in, size_t bytes_out) {
    const auto host = [&](size_t bytes) -> Result<std::byte*> {
      if (!pinned_) {
        void* at = std::malloc(bytes);
        if (at == nullptr) return Error("out of memory");
        std::memset(at, 0, bytes);
        return static_cast<std::byte*>(at);
      }
      auto at = memory_.allocate_pinned(bytes);
      if (!at) return std::move(at).error();
      return static_cast<std::byte*>(*at);
    };
    const auto there = [&](size_t bytes) -> Result<std::byte*> {
      auto at = memory_.allocate_device(bytes);
      if (!at) return std::move(at).error();
      return static_cast<std::byte*>(*at);
    };
    Error error;
    const auto take = [&](Result<std::byte*> made, std::byte*& to) {
      if (made) {
        to = *made;
      } else {
        error = std::move(made).error();
      }
      return to != nullptr;
    };
    if (!take(host(bytes_in), host_in) || !take(host(bytes_out), host_out) || !take(there(bytes_in), device_in) ||
        !take(there(bytes_out), device_out)) {
      return error;
    }
    for (cudaStream_t& stream : streams) {
      if (const cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); e != cudaSuccess) {
        return cuda_error(e, "create a stream");
      }
    }
    return {};
  }

  std::byte *host_in = nullptr, *host_out = nullptr, *device_in = nullptr, *device_out = nullptr;
  static constexpr uint32_t kStreams = 4;
  cudaStream_t streams[kStreams] = {};

 private:
  CudaMemory& memory_;
  bool pinned_;
};

}  // namespace sluice::cuda_resident
