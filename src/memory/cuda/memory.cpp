#include "memory/cuda/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "memory/cuda/window.h"

namespace sluice {
namespace {

constexpr size_t kAlignment = 256;

size_t rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

std::string free_text() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "free memory is unknown";
  return fmt::format("{} of {} MiB are free", free >> 20, total >> 20);
}

}  // namespace

Error cuda_error(cudaError_t status, const std::string& doing) {
  std::string hint;
  switch (status) {
    case cudaErrorNoDevice:
      hint = "check `nvidia-smi`, or use --device cpu";
      break;
    case cudaErrorInsufficientDriver:
      hint = "install a driver that is as new as this program's CUDA runtime, or use --device cpu";
      break;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      hint = "build with this device's architecture in CMAKE_CUDA_ARCHITECTURES";
      break;
    case cudaErrorMemoryAllocation:
      hint = "use smaller tables, fewer channels or smaller batches";
      break;
    default:
      break;
  }
  return Error(fmt::format("CUDA: cannot {}: {} ({})", doing, cudaGetErrorName(status), cudaGetErrorString(status)),
               std::move(hint));
}

void prepare_cuda_runtime() {
  static const bool once = [] {
    // A lazily loaded kernel waits for resident ones, which never end.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    // Streams that share a queue wait for one another's kernels; 8 queues are the default, 32 the most.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    return true;
  }();
  (void)once;
}

Result<std::shared_ptr<CudaMemory>> CudaMemory::open(int ordinal, size_t reserve_bytes) {
  prepare_cuda_runtime();
  if (const cudaError_t e = cudaSetDevice(ordinal); e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, fmt::format("use device {}", ordinal));
  }
  // Makes the context, so that what is wrong with the device shows here.
  if (const cudaError_t e = cudaFree(nullptr); e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, fmt::format("start device {}", ordinal));
  }
  std::shared_ptr<CudaMemory> memory(new CudaMemory(ordinal));
  int host_tables = 0;
  if (cudaDeviceGetAttribute(&host_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, ordinal) == cudaSuccess)
    memory->coherent_ = host_tables != 0;
  (void)cudaGetLastError();
  if (const cudaError_t e = cudaStreamCreateWithFlags(&memory->stream_, cudaStreamNonBlocking); e != cudaSuccess) {
    return cuda_error(e, "create the copy stream");
  }
  for (int i = 0; i < 2; ++i) {
    void* staging = nullptr;
    if (const cudaError_t e = cudaHostAlloc(&staging, kStagingBytes, cudaHostAllocPortable); e != cudaSuccess) {
      (void)cudaGetLastError();
      return cuda_error(e, fmt::format("allocate {} MiB of pinned memory for copies", kStagingBytes >> 20));
    }
    memory->staging_[i] = static_cast<std::byte*>(staging);
    if (const cudaError_t e = cudaEventCreateWithFlags(&memory->copied_[i], cudaEventDisableTiming); e != cudaSuccess) {
      return cuda_error(e, "create an event");
    }
  }
  if (reserve_bytes != 0) {
    auto chunk = memory->add_chunk(rounded(reserve_bytes), true);
    if (!chunk) return std::move(chunk).error();
  }
  return memory;
}

CudaMemory::CudaMemory(int ordinal) : ordinal_(ordinal) {}

CudaMemory::~CudaMemory() {
  // Freeing waits for the device: with a kernel that does not leave, for ever.
  if (abandoned_ || has_resident()) return;
  use();
  for (void* p : late_pinned_) (void)cudaFreeHost(p);
  for (void* p : late_unpins_) (void)cudaHostUnregister(p);
  for (const auto& [p, bytes] : pinned_) (void)cudaHostUnregister(p);
  for (auto& chunk : chunks_) {
    if (chunk->host == nullptr) (void)cudaFree(chunk->base);
  }
  if (window_ != nullptr) DeviceWindow::give_back(window_);
  for (int i = 0; i < 2; ++i) {
    if (copied_[i] != nullptr) (void)cudaEventDestroy(copied_[i]);
    if (staging_[i] != nullptr) (void)cudaFreeHost(staging_[i]);
  }
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  (void)cudaGetLastError();
}

Result<CudaMemory::Chunk*> CudaMemory::add_chunk(size_t bytes, bool reserve) {
  void* base = nullptr;
  if (const cudaError_t e = cudaMalloc(&base, bytes); e != cudaSuccess) {
    (void)cudaGetLastError();
    Error error = cuda_error(e, fmt::format("allocate {} bytes on device {}", bytes, ordinal_));
    error.message += "; " + free_text();
    return error;
  }
  auto chunk = std::make_unique<Chunk>();
  chunk->base = static_cast<char*>(base);
  chunk->bytes = bytes;
  chunk->reserve = reserve;
  chunk->host = nullptr;
  chunk->free[0] = bytes;
  chunks_.push_back(std::move(chunk));
  return chunks_.back().get();
}

// First fit.
void* CudaMemory::carve(size_t bytes, bool window) {
  for (auto& chunk : chunks_) {
    if ((chunk->host != nullptr) != window) continue;
    for (auto it = chunk->free.begin(); it != chunk->free.end(); ++it) {
      if (it->second < bytes) continue;
      const auto [offset, room] = *it;
      chunk->free.erase(it);
      if (room > bytes) chunk->free[offset + bytes] = room - bytes;
      void* address = chunk->base + offset;
      pieces_[address] = {chunk.get(), offset, bytes};
      return address;
    }
  }
  return nullptr;
}

Result<void*> CudaMemory::allocate_device(size_t bytes) {
  use();
  const size_t need = rounded(bytes);
  void* address = nullptr;
  {
    const std::lock_guard lock(mutex_);
    address = carve(need);
    if (address == nullptr) {
      if (auto chunk = add_chunk(need, false); !chunk) return std::move(chunk).error();
      address = carve(need);
    }
  }
  if (auto done = zero(address, need); !done) {
    free_device(address);
    return std::move(done).error();
  }
  return address;
}

Result<CudaMemory::Window> CudaMemory::allocate_window(size_t bytes) {
  use();
  const size_t need = rounded(bytes);
  const std::lock_guard lock(mutex_);
  if (window_ == nullptr && why_no_window_.empty()) {
    auto window = DeviceWindow::take(ordinal_, kWindowBytes);
    if (window) {
      window_ = *window;
      auto chunk = std::make_unique<Chunk>();
      chunk->base = reinterpret_cast<char*>(window_->device());
      chunk->bytes = window_->size();
      chunk->reserve = true;
      chunk->host = window_->host();
      chunk->free[0] = chunk->bytes;
      chunks_.push_back(std::move(chunk));
    } else {
      why_no_window_ = window.error().message;
    }
  }
  if (window_ == nullptr) return Error("device memory cannot be written from the host: " + why_no_window_);
  auto* device = static_cast<std::byte*>(carve(need, true));
  if (device == nullptr) {
    return Error(fmt::format("{} bytes are not free in the {} MiB of device memory that the host can write", need,
                             kWindowBytes >> 20));
  }
  return Window{window_->host() + (device - window_->device()), device};
}

Result<void> CudaMemory::zero(void* address, size_t bytes) {
  const std::lock_guard lock(copying_);
  cudaError_t e = cudaMemsetAsync(address, 0, bytes, stream_);
  if (e == cudaSuccess) e = cudaStreamSynchronize(stream_);
  if (e != cudaSuccess) return cuda_error(e, fmt::format("clear {} bytes on device {}", bytes, ordinal_));
  return {};
}

void CudaMemory::free_device(void* address) {
  if (address == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto at = pieces_.find(address);
  if (at == pieces_.end()) return;
  const Piece piece = at->second;
  pieces_.erase(at);
  auto& free = piece.chunk->free;
  auto it = free.emplace(piece.offset, piece.bytes).first;
  if (const auto next = std::next(it); next != free.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free.erase(next);
  }
  if (it != free.begin()) {
    const auto before = std::prev(it);
    if (before->first + before->second == it->first) {
      before->second += it->second;
      free.erase(it);
    }
  }
  if (!has_resident() && !abandoned_) drop_empty_chunks();
}

void CudaMemory::drop_empty_chunks() {
  use();
  std::erase_if(chunks_, [](const std::unique_ptr<Chunk>& chunk) {
    const bool empty = !chunk->reserve && chunk->free.size() == 1 && chunk->free.begin()->second == chunk->bytes;
    if (empty) (void)cudaFree(chunk->base);
    return empty;
  });
}

Result<void*> CudaMemory::allocate_pinned(size_t bytes) {
  use();
  void* address = nullptr;
  const size_t need = rounded(bytes);
  if (const cudaError_t e = cudaHostAlloc(&address, need, cudaHostAllocMapped | cudaHostAllocPortable);
      e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, fmt::format("allocate {} bytes of pinned host memory", need));
  }
  memset(address, 0, need);
  return address;
}

void CudaMemory::free_pinned(void* address) {
  if (address == nullptr || abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (has_resident()) {
    late_pinned_.push_back(address);
  } else {
    use();
    (void)cudaFreeHost(address);
  }
}

Result<void*> CudaMemory::pin(void* host, size_t bytes) {
  if (coherent_) return host;
  use();
  const std::lock_guard lock(mutex_);
  // Some pin the same memory, each for itself: the last one unpins it.
  if (const auto at = users_.find(host); at != users_.end() && pinned_[static_cast<char*>(host)] >= bytes) {
    void* device = nullptr;
    if (cudaHostGetDevicePointer(&device, host, 0) == cudaSuccess) {
      ++at->second;
      return device;
    }
    (void)cudaGetLastError();
  }
  // What waits to be unpinned may be what is pinned anew.
  if (const auto late = std::find(late_unpins_.begin(), late_unpins_.end(), host); late != late_unpins_.end()) {
    if (pinned_[static_cast<char*>(host)] >= bytes) {
      late_unpins_.erase(late);
      void* device = nullptr;
      if (cudaHostGetDevicePointer(&device, host, 0) == cudaSuccess) {
        users_[host] = 1;
        return device;
      }
    }
  }
  if (const cudaError_t e = cudaHostRegister(host, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
      e == cudaErrorHostMemoryAlreadyRegistered) {
    // Pinned through another device, which pins for all of them; it unpins, too.
    (void)cudaGetLastError();
    void* device = nullptr;
    if (const cudaError_t mapped = cudaHostGetDevicePointer(&device, host, 0); mapped != cudaSuccess) {
      (void)cudaGetLastError();
      return cuda_error(mapped, "map host memory that another device has pinned");
    }
    return device;
  } else if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, fmt::format("pin {} bytes of host memory", bytes));
  }
  pinned_[static_cast<char*>(host)] = bytes;
  users_[host] = 1;
  void* device = nullptr;
  if (const cudaError_t e = cudaHostGetDevicePointer(&device, host, 0); e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, "map pinned host memory");
  }
  return device;
}

void CudaMemory::unpin(void* host) {
  if (abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (pinned_.find(static_cast<char*>(host)) == pinned_.end()) return;
  if (const auto at = users_.find(host); at != users_.end()) {
    if (--at->second != 0) return;
    users_.erase(at);
  }
  if (has_resident()) {
    late_unpins_.push_back(host);
    return;
  }
  use();
  pinned_.erase(static_cast<char*>(host));
  (void)cudaHostUnregister(host);
}

void CudaMemory::resident_left() {
  if (resident_.fetch_sub(1) != 1 || abandoned_) return;
  const std::lock_guard lock(mutex_);
  if (has_resident()) return;  // another one has started since
  use();
  for (void* p : late_pinned_) (void)cudaFreeHost(p);
  late_pinned_.clear();
  for (void* p : late_unpins_) {
    pinned_.erase(static_cast<char*>(p));
    (void)cudaHostUnregister(p);
  }
  late_unpins_.clear();
  drop_empty_chunks();
}

Result<void> CudaMemory::upload(void* to, const void* from, size_t bytes) {
  use();
  const std::lock_guard lock(copying_);
  cudaError_t e = cudaSuccess;
  for (size_t at = 0, turn = 0; at < bytes && e == cudaSuccess; at += kStagingBytes, turn ^= 1) {
    const size_t n = std::min(kStagingBytes, bytes - at);
    if (at >= 2 * kStagingBytes) e = cudaEventSynchronize(copied_[turn]);
    if (e != cudaSuccess) break;
    memcpy(staging_[turn], static_cast<const std::byte*>(from) + at, n);
    e = cudaMemcpyAsync(static_cast<std::byte*>(to) + at, staging_[turn], n, cudaMemcpyHostToDevice, stream_);
    if (e == cudaSuccess) e = cudaEventRecord(copied_[turn], stream_);
  }
  const cudaError_t end = cudaStreamSynchronize(stream_);
  if (e == cudaSuccess) e = end;
  if (e != cudaSuccess) return cuda_error(e, fmt::format("copy {} bytes to device {}", bytes, ordinal_));
  return {};
}

Result<void> CudaMemory::download(void* to, const void* from, size_t bytes) {
  use();
  const std::lock_guard lock(copying_);
  cudaError_t e = cudaSuccess;
  for (size_t at = 0; at < bytes && e == cudaSuccess; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, bytes - at);
    e = cudaMemcpyAsync(staging_[0], static_cast<const std::byte*>(from) + at, n, cudaMemcpyDeviceToHost, stream_);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream_);
    if (e == cudaSuccess) memcpy(static_cast<std::byte*>(to) + at, staging_[0], n);
  }
  if (e != cudaSuccess) return cuda_error(e, fmt::format("copy {} bytes from device {}", bytes, ordinal_));
  return {};
}

}  // namespace sluice
