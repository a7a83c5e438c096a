// host only
// Memory of one CUDA device and pinned host memory: the only place that allocates either.
//
// While a resident kernel runs, nothing may be freed or unpinned: both wait for all kernels of the device. What is
// given back then is kept until the last resident kernel has left. Device bytes come out of a reserve that is allocated
// at the start; past it each request is an allocation of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace sluice {

class DeviceWindow;

// "cannot DOING: NAME (TEXT)", with the next step where one is known.
Error cuda_error(cudaError_t status, const std::string& doing);

// Sets what the runtime reads when it starts: every module is loaded before a resident kernel can be in the way. Called
// before any other use of the runtime in this process; later calls do nothing.
void prepare_cuda_runtime();

class CudaMemory {
 public:
  // Errors: no such device, the device cannot be used, the reserve does not fit.
  static Result<std::shared_ptr<CudaMemory>> open(int ordinal, size_t reserve_bytes);
  // Every resident kernel has left, or what is held is leaked.
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  int ordinal() const { return ordinal_; }
  // Makes the device the calling thread's current one.
  void use() const { (void)cudaSetDevice(ordinal_); }

  // Zero-filled, 256-byte aligned. Errors: out of memory, with the size asked for and what is free.
  Result<void*> allocate_device(size_t bytes);
  void free_device(void* address);
  // Zero-filled pinned host memory, page-aligned; host and device use the same address.
  Result<void*> allocate_pinned(size_t bytes);
  void free_pinned(void* address);
  // Device memory that the host writes straight, by whole lines (window.h). Not cleared, 256-byte aligned, freed by
  // free_device. Errors: there is none on this machine, or no more of it.
  struct Window {
    std::byte* host;
    std::byte* device;
  };
  Result<Window> allocate_window(size_t bytes);
  // Whether the device goes by the host's own page tables (Grace: NVLink-C2C), so that all host memory is its as well.
  bool coherent() const { return coherent_; }
  // Pins host memory that exists, until as many `unpin`; returns its address for the device. Where memory is coherent
  // that is the host's, and nothing is pinned. Errors: a part of it is pinned, or more.
  Result<void*> pin(void* host, size_t bytes);
  void unpin(void* host);

  // Copies host bytes to device memory; complete on return. Any thread, also while kernels are resident.
  Result<void> upload(void* to, const void* from, size_t bytes);
  // The other way.
  Result<void> download(void* to, const void* from, size_t bytes);

  // Brackets a resident kernel's life.
  void resident_started() {
    const std::lock_guard lock(mutex_);  // nobody is in the middle of freeing
    resident_.fetch_add(1);
  }
  void resident_left();
  bool has_resident() const { return resident_.load() != 0; }
  // A kernel does not leave: nothing of this device is freed any more, so that nothing waits for it.
  void abandon() { abandoned_.store(true); }
  bool abandoned() const { return abandoned_.load(); }

 private:
  explicit CudaMemory(int ordinal);
  struct Chunk {
    char* base;
    size_t bytes;
    bool reserve;
    std::byte* host;                // of a window; else nullptr
    std::map<size_t, size_t> free;  // offset -> bytes
  };
  struct Piece {
    Chunk* chunk;
    size_t offset, bytes;
  };
  Result<Chunk*> add_chunk(size_t bytes, bool reserve);
  // From chunks that are windows, or from those that are not.
  void* carve(size_t bytes, bool window = false);
  void drop_empty_chunks();
  Result<void> zero(void* address, size_t bytes);

  static constexpr size_t kStagingBytes = size_t{4} << 20;
  // One window for everything: what it takes to make and to free one must not happen beside a resident kernel.
  static constexpr size_t kWindowBytes = size_t{64} << 20;

  const int ordinal_;
  bool coherent_ = false;
  std::atomic<uint32_t> resident_{0};
  std::atomic<bool> abandoned_{false};
  std::mutex mutex_;  // of all below
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unordered_map<void*, Piece> pieces_;
  DeviceWindow* window_ = nullptr;
  std::string why_no_window_;
  std::map<char*, size_t> pinned_;   // by pin()
  std::map<void*, unsigned> users_;  // of these, that have not unpinned it
  std::vector<void*> late_pinned_;   // freed, but kept while kernels are resident
  std::vector<void*> late_unpins_;
  std::mutex copying_;  // of the stream and its staging
  cudaStream_t stream_ = nullptr;
  std::byte* staging_[2] = {nullptr, nullptr};
  cudaEvent_t copied_[2] = {nullptr, nullptr};
};

}  // namespace sluice
