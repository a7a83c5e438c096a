// nvcc takes an assignment to a [[nodiscard]] type for a value that is thrown away.
#pragma nv_diag_suppress 2810
#include "studies/cuda/resident.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>

#include "exec/cuda/crc32_warp.cuh"
#include "exec/cuda/open_cuda.h"
#include "exec/cuda/tables.cuh"
#include "exec/cuda/walk.cuh"
#include "memory/cuda/memory.h"
#include "studies/cuda/resident_parts.cuh"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

using namespace cuda_walk;
using namespace cuda_resident;

template <typename Chain>
__global__ void __launch_bounds__(128)
    resident_records(const __grid_constant__ DeviceProgram program, const Word* __restrict__ in,
                     uint32_t* __restrict__ out, uint32_t count, ResidentField field) {
  const uint32_t record = blockIdx.x * blockDim.x + threadIdx.x;
  if (record - (threadIdx.x & 31) >= count) return;
  const bool here = record < count;
  const Word word = load_plain(in + (here ? record : count - 1));
  Walker w;
  read_key<RecordKind::kKey4>(program, &word, w);
  if (!here) w.path = kPathDropped;
  walk_warp<RecordKind::kKey4, Chain>(program, w);
  if (!here) return;
  uint32_t value = w.packet.rule;
  if (field == ResidentField::kNextHop) value = w.packet.next_hop;
  if (field == ResidentField::kSteps) {
    value = w.visited | uint32_t{w.output} << 8 | static_cast<uint32_t>(w.packet.reason) << 16;
  }
  out[record] = value;
}

// Eight independent lookups a lane, in flight together. What is read and written once goes past the cache, which is the
// table's. kThreads: of the block, whose first pair of quads is `first`.
template <uint32_t kThreads, typename View>
__device__ __forceinline__ void look_up_quads(const View& view, const uint4* __restrict__ in, uint4* __restrict__ out,
                                              uint32_t count, uint32_t first) {
  uint4 a[2], r[2];
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) a[k] = __ldcs(in + min(first + k * kThreads, count - 1));
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    r[k].x = view.lookup(a[k].x);
    r[k].y = view.lookup(a[k].y);
    r[k].z = view.lookup(a[k].z);
    r[k].w = view.lookup(a[k].w);
  }
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    if (first + k * kThreads < count) __stcs(out + first + k * kThreads, r[k]);
  }
}
template <uint32_t kThreads, typename View>
__device__ __forceinline__ void look_up_pairs(const View& view, const ulonglong2* __restrict__ in,
                                              uint32_t* __restrict__ out, uint32_t count, uint32_t first) {
  ulonglong2 a[2];
  uint32_t r[2];
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) a[k] = __ldcs(in + min(first + k * kThreads, count - 1));
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) r[k] = view.lookup(a[k].x, a[k].y);
#pragma unroll
  for (uint32_t k = 0; k < 2; ++k) {
    if (first + k * kThreads < count) __stcs(out + first + k * kThreads, r[k]);
  }
}

template <typename Lookup, typename View>
__global__ void __launch_bounds__(256)
    resident_addresses(const __grid_constant__ View view, const typename Lookup::In* __restrict__ in,
                       typename Lookup::Out* __restrict__ out, uint32_t count) {
  Lookup::template look_up<256>(view, in, out, count, blockIdx.x * 512 + threadIdx.x);
}
// The view's pointers lie at `from`, of which constant memory holds a copy.
template <typename Lookup, typename View>
__global__ void __launch_bounds__(256)
    resident_addresses_constant(const __grid_constant__ View view, const std::byte* from,
                                const typename Lookup::In* __restrict__ in, typename Lookup::Out* __restrict__ out,
                                uint32_t count) {
  const View moved = moved_to(view, from, reinterpret_cast<const std::byte*>(constant_bank));
  Lookup::template look_up<256>(moved, in, out, count, blockIdx.x * 512 + threadIdx.x);
}
// Blocks that found a pointer of their view outside of shared memory.
__device__ uint32_t outside_shared;
// As many blocks as run at a time: each copies the table, of `bytes` bytes at `table`, and takes addresses until there
// are none.
template <typename Lookup, typename View>
__global__ void __launch_bounds__(1024)
    resident_addresses_shared(const __grid_constant__ View view, const std::byte* from, const std::byte* table,
                              uint32_t bytes, const typename Lookup::In* __restrict__ in,
                              typename Lookup::Out* __restrict__ out, uint32_t count) {
  extern __shared__ uint4 shared[];
  copy_tables(shared, table, bytes);
  View moved = moved_to(view, from, reinterpret_cast<const std::byte*>(shared));
  if (threadIdx.x == 0) {
    bool there = true;
    moved.each_pointer([&there]<typename T>(const T*& p) { there &= p == nullptr || __isShared(p); });
    if (!there) atomicAdd(&outside_shared, 1u);
  }
#pragma unroll 1
  for (uint32_t i = blockIdx.x * 2048; i < count; i += gridDim.x * 2048)
    Lookup::template look_up<1024>(moved, in, out, count, i + threadIdx.x);
}

// The standard graph with an access list of either kind and routes.
template <typename Acl>
using StandardChain = TypeList<IpInputStage, Acl, chains_detail::RouteDir24, DecTtlStage, AdjacencyStage>;

template <typename Chain>
__global__ void __launch_bounds__(128)
    resident_frames_kernel(const __grid_constant__ DeviceProgram program, uint8_t* __restrict__ frames,
                           const uint32_t* __restrict__ lengths, uint32_t* __restrict__ out, uint32_t stride,
                           uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Packet p;
  p.frame = frames + size_t{i} * stride;
  p.end = p.wire_end = lengths[i];
  out[i] = walk_frame(Chain{}, program, p);
}

// A warp takes eight frames at a time, blocks of eight warps.
constexpr uint32_t kCrc32Threads = 256;
constexpr uint32_t kCrc32FramesABlock = kCrc32Threads / 32 * cuda_crc::kFrames;

__global__ void __launch_bounds__(kCrc32Threads, 4)
    resident_crc32_kernel(Crc32Mode mode, const uint8_t* __restrict__ frames, const uint32_t* __restrict__ lengths,
                          uint32_t* __restrict__ out, uint32_t stride, uint32_t count) {
  const uint32_t i = (blockIdx.x * kCrc32Threads + threadIdx.x) / 4;
  const bool here = i < count;
  const uint8_t* frame = frames + size_t{here ? i : 0} * stride;
  const uint32_t bytes = here ? lengths[i] : 0;
  uint32_t crc = cuda_crc::eight_frames(mode, frame, bytes, kCrc32Start);
  if (bytes < cuda_crc::kLeastBytes) crc = crc32_bitwise(mode, kCrc32Start, frame, bytes);
  if (here && threadIdx.x % 4 == 0) out[i] = crc;
}

void launch_crc32(Crc32Mode mode, const uint8_t* frames, const uint32_t* lengths, uint32_t* out, uint32_t stride,
                  uint32_t count, cudaStream_t stream) {
  resident_crc32_kernel<<<(count + kCrc32FramesABlock - 1) / kCrc32FramesABlock, kCrc32Threads, 0, stream>>>(
      mode, frames, lengths, out, stride, count);
}

// A table in device memory for as long as this is.
class Table {
 public:
  Table(CudaMemory& memory, std::span<const std::byte> host) : memory_(memory), host_(host) {}
  ~Table() {
    memory_.use();
    memory_.free_device(device_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  Result<void> upload() {
    auto device = memory_.allocate_device((host_.size() + 15) / 16 * 16);
    if (!device) return std::move(device).error();
    device_ = *device;
    return memory_.upload(device_, host_.data(), host_.size());
  }
  const std::byte* device() const { return static_cast<const std::byte*>(device_); }
  // Kernels of the stream find the table in the second-level cache, where it was once.
  cudaError_t keep_in_cache(cudaStream_t stream) const {
    int device = 0, most = 0, window = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&window, cudaDevAttrMaxAccessPolicyWindowSize, device);
    if (e == cudaSuccess) e = cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, static_cast<size_t>(most));
    if (e != cudaSuccess) return e;
    cudaStreamAttrValue value{};
    auto& policy = value.accessPolicyWindow;
    policy.base_ptr = device_;
    policy.num_bytes = std::min(host_.size(), static_cast<size_t>(window));
    policy.hitRatio = std::min(1.0f, static_cast<float>(most) / static_cast<float>(policy.num_bytes));
    policy.hitProp = cudaAccessPropertyPersisting;
    policy.missProp = cudaAccessPropertyStreaming;
    return cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value);
  }

 private:
  CudaMemory& memory_;
  std::span<const std::byte> host_;
  void* device_ = nullptr;
};

// One launch each, of any number of addresses that lie one after another.
struct Lookup4 {
  using Address = uint32_t;
  using In = uint4;
  using Out = uint4;
  static constexpr size_t kPiece = size_t{1} << 20;
  static uint32_t count_of(size_t addresses) { return static_cast<uint32_t>((addresses + 3) / 4); }
  template <uint32_t kThreads, typename View>
  __device__ static __forceinline__ void look_up(const View& view, const In* in, Out* out, uint32_t count,
                                                 uint32_t first) {
    look_up_quads<kThreads>(view, in, out, count, first);
  }
};
struct Lookup6 {
  using Address = ulonglong2;
  using In = ulonglong2;
  using Out = uint32_t;
  static constexpr size_t kPiece = size_t{1} << 18;
  static uint32_t count_of(size_t addresses) { return static_cast<uint32_t>(addresses); }
  template <uint32_t kThreads, typename View>
  __device__ static __forceinline__ void look_up(const View& view, const In* in, Out* out, uint32_t count,
                                                 uint32_t first) {
    look_up_pairs<kThreads>(view, in, out, count, first);
  }
};

template <typename Lookup, typename View>
void launch_lookup(const View& view, const std::byte* in, uint32_t* out, size_t addresses, cudaStream_t stream) {
  const uint32_t n = Lookup::count_of(addresses);
  resident_addresses<Lookup, View><<<(n + 511) / 512, 256, 0, stream>>>(
      view, reinterpret_cast<const typename Lookup::In*>(in), reinterpret_cast<typename Lookup::Out*>(out), n);
}

// The table's section in constant or shared memory, and lookups in it.
template <typename Lookup, typename View>
class TableElsewhere {
 public:
  TableElsewhere(CudaMemory& memory, const View& view, std::span<const std::byte> section)
      : memory_(memory), view_(view), section_(section), copy_(memory, section) {}

  // Errors: it does not fit; the device failed.
  Result<void> prepare(TableMemory where, size_t shared_bytes) {
    where_ = where;
    const size_t room = table_room(where, RecordKind::kKey4, shared_bytes);
    if (section_.size() > room) {
      return Error(std::string("the table does not fit ") + to_string(where) + " memory: it has " +
                       std::to_string(section_.size()) + " bytes, and there is room for " + std::to_string(room),
                   "use --table-memory global, or a smaller table");
    }
    if (where == TableMemory::kConstant) {
      // No other memory of the device has a copy: whoever finds the right next hops has read this one.
      void* bank = nullptr;
      if (const cudaError_t e = cudaGetSymbolAddress(&bank, constant_bank); e != cudaSuccess)
        return cuda_error(e, "find constant memory");
      return memory_.upload(bank, section_.data(), section_.size());
    }
    if (auto ok = copy_.upload(); !ok) return ok;
    const void* const kernel = reinterpret_cast<const void*>(&resident_addresses_shared<Lookup, View>);
    int device = 0, processors = 0, blocks = 0;
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(rounded()));
    if (e == cudaSuccess) e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (e == cudaSuccess) e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 1024, rounded());
    if (e == cudaSuccess) e = cudaGetSymbolAddress(&outside_, outside_shared);
    if (e != cudaSuccess) return cuda_error(e, "make room for a table in shared memory");
    if (blocks < 1) return Error("the device runs no block with the table in its shared memory");
    most_blocks_ = static_cast<uint32_t>(processors * blocks);
    const uint32_t none = 0;
    return memory_.upload(outside_, &none, sizeof none);
  }
  void launch(const std::byte* in, uint32_t* out, size_t addresses, cudaStream_t stream) const {
    const uint32_t n = Lookup::count_of(addresses);
    const auto* from = reinterpret_cast<const typename Lookup::In*>(in);
    auto* to = reinterpret_cast<typename Lookup::Out*>(out);
    if (where_ == TableMemory::kConstant) {
      resident_addresses_constant<Lookup, View>
          <<<(n + 511) / 512, 256, 0, stream>>>(view_, section_.data(), from, to, n);
      return;
    }
    resident_addresses_shared<Lookup, View><<<std::min((n + 2047) / 2048, most_blocks_), 1024, rounded(), stream>>>(
        view_, section_.data(), copy_.device(), static_cast<uint32_t>(section_.size()), from, to, n);
  }
  // After the lookups. Errors: some block's table lay elsewhere.
  Result<void> check() const {
    if (where_ != TableMemory::kShared) return {};
    uint32_t outside = 0;
    if (auto ok = memory_.download(&outside, outside_, sizeof outside); !ok) return ok;
    if (outside != 0) return Error("a block's table did not lie in its shared memory");
    return {};
  }

 private:
  size_t rounded() const { return (section_.size() + 15) / 16 * 16; }

  CudaMemory& memory_;
  View view_;
  std::span<const std::byte> section_;
  Table copy_;
  TableMemory where_ = TableMemory::kShared;
  uint32_t most_blocks_ = 0;
  void* outside_ = nullptr;  // outside_shared's address
};

template <typename Lookup, typename View>
Result<std::vector<double>> lookups(Device& device, const View& view, std::span<const std::byte> section,
                                    std::span<const std::byte> addresses, uint32_t* next_hops, unsigned repeats,
                                    const LookupTable& where) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("device-resident rates are for CUDA devices");
  const size_t count = addresses.size() / sizeof(typename Lookup::Address);
  if (count == 0) return Error("no addresses");
  memory->use();
  Run run(*memory);
  // Kernels read and write whole 16 bytes.
  const auto go = [&](const std::function<void(void*, void*, cudaStream_t)>& launch) {
    return run.go(addresses.data(), addresses.size(), next_hops, count * 4, (addresses.size() + 15) / 16 * 16,
                  (count + 3) / 4 * 16, count, repeats, launch);
  };
  if (where.memory != TableMemory::kGlobal) {
    TableElsewhere<Lookup, View> table(*memory, view, section);
    if (auto ok = table.prepare(where.memory, device.info().shared_bytes); !ok) return std::move(ok).error();
    auto rates = go([&](void* from, void* to, cudaStream_t stream) {
      table.launch(static_cast<const std::byte*>(from), static_cast<uint32_t*>(to), count, stream);
    });
    if (auto ok = table.check(); rates && !ok) return std::move(ok).error();
    return rates;
  }
  Table table(*memory, section);
  if (auto ok = table.upload(); !ok) return std::move(ok).error();
  const View moved = moved_to(view, section.data(), table.device());
  cudaError_t policy = cudaSuccess;
  bool first = true;
  auto rates = go([&](void* from, void* to, cudaStream_t stream) {
    if (where.window && first) policy = table.keep_in_cache(stream);
    first = false;
    launch_lookup<Lookup>(moved, static_cast<const std::byte*>(from), static_cast<uint32_t*>(to), count, stream);
  });
  if (where.window) (void)cudaCtxResetPersistingL2Cache();
  if (policy != cudaSuccess) return cuda_error(policy, "keep a table in the cache");
  return rates;
}

// All addresses in pieces, copies both ways beside kernels.
template <typename Lookup, typename View>
cudaError_t feed_all(Feed& f, const View& moved, size_t count) {
  constexpr size_t kBytes = sizeof(typename Lookup::Address);
  auto* device_out = reinterpret_cast<uint32_t*>(f.device_out);
  cudaError_t e = cudaSuccess;
  size_t piece = 0;
  for (size_t at = 0; e == cudaSuccess && at < count; at += Lookup::kPiece, ++piece) {
    const size_t n = std::min(Lookup::kPiece, count - at);
    cudaStream_t stream = f.streams[piece % std::size(f.streams)];
    e = cudaMemcpyAsync(f.device_in + at * kBytes, f.host_in + at * kBytes, n * kBytes, cudaMemcpyHostToDevice, stream);
    if (e != cudaSuccess) break;
    launch_lookup<Lookup>(moved, f.device_in + at * kBytes, device_out + at, n, stream);
    e = cudaGetLastError();
    if (e == cudaSuccess) {
      e = cudaMemcpyAsync(f.host_out + at * 4, device_out + at, n * 4, cudaMemcpyDeviceToHost, stream);
    }
  }
  for (cudaStream_t stream : f.streams) {
    const cudaError_t waited = cudaStreamSynchronize(stream);
    if (e == cudaSuccess) e = waited;
  }
  return e;
}

template <typename Lookup, typename View>
Result<FedLookups> feed(Device& device, const View& view, std::span<const std::byte> section,
                        std::span<const std::byte> addresses, uint32_t* next_hops, unsigned repeats, bool pinned) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("these rates are for CUDA devices");
  constexpr size_t kBytes = sizeof(typename Lookup::Address);
  const size_t count = addresses.size() / kBytes;
  if (count == 0) return Error("no addresses");
  memory->use();
  Table table(*memory, section);
  if (auto ok = table.upload(); !ok) return std::move(ok).error();
  const View moved = moved_to(view, section.data(), table.device());
  FedLookups result;
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  auto start = clock();
  Feed f(*memory, pinned);
  // Kernels read and write whole 16 bytes.
  if (auto ok = f.create((addresses.size() + 15) / 16 * 16, (count + 3) / 4 * 16); !ok) return std::move(ok).error();
  result.allocate = seconds_since(start);
  start = clock();
  std::memcpy(f.host_in, addresses.data(), addresses.size());
  result.convert = seconds_since(start);

  auto* device_out = reinterpret_cast<uint32_t*>(f.device_out);
  cudaStream_t one = f.streams[0];
  cudaError_t e = cudaSuccess;
  const auto step = [&](double& seconds, auto&& what) {
    if (e != cudaSuccess) return;
    const auto from = clock();
    what();
    if (e == cudaSuccess) e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaStreamSynchronize(one);
    seconds = seconds_since(from);
  };
  // The second time counts: the first one loads the kernel.
  for (int turn = 0; turn < 2; ++turn) {
    step(result.to_device,
         [&] { e = cudaMemcpyAsync(f.device_in, f.host_in, addresses.size(), cudaMemcpyHostToDevice, one); });
    step(result.kernel, [&] { launch_lookup<Lookup>(moved, f.device_in, device_out, count, one); });
    step(result.to_host, [&] { e = cudaMemcpyAsync(f.host_out, device_out, count * 4, cudaMemcpyDeviceToHost, one); });
  }
  for (unsigned turn = 0; e == cudaSuccess && turn <= repeats; ++turn) {
    std::memset(f.host_out, 0xff, count * 4);
    start = clock();
    e = feed_all<Lookup>(f, moved, count);
    if (turn != 0) result.rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  if (e != cudaSuccess) return cuda_error(e, "feed lookups from host memory");
  std::memcpy(next_hops, f.host_out, count * 4);
  return result;
}

template <typename Lookup, typename View>
Result<std::vector<double>> in_a_row(Device& device, const View& view, std::span<const std::byte> section,
                                     std::span<const std::byte> addresses, uint32_t* next_hops, unsigned batches,
                                     bool pinned, bool fresh) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("these rates are for CUDA devices");
  const size_t count = addresses.size() / sizeof(typename Lookup::Address);
  if (count == 0) return Error("no addresses");
  memory->use();
  Table table(*memory, section);
  if (auto ok = table.upload(); !ok) return std::move(ok).error();
  const View moved = moved_to(view, section.data(), table.device());
  std::optional<Feed> f;
  std::vector<double> rates;
  // The first batch loads the kernel, and where memory is reused it is made for that one: it is not counted.
  for (unsigned batch = 0; batch <= batches; ++batch) {
    std::memset(next_hops, 0xff, count * 4);
    const auto start = std::chrono::steady_clock::now();
    if (!f || fresh) {
      f.emplace(*memory, pinned);
      if (auto ok = f->create((addresses.size() + 15) / 16 * 16, (count + 3) / 4 * 16); !ok)
        return std::move(ok).error();
    }
    std::memcpy(f->host_in, addresses.data(), addresses.size());
    if (const cudaError_t e = feed_all<Lookup>(*f, moved, count); e != cudaSuccess)
      return cuda_error(e, "feed lookups from host memory");
    std::memcpy(next_hops, f->host_out, count * 4);
    if (fresh) f.reset();
    if (batch != 0) rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  return rates;
}

}  // namespace

Result<std::vector<double>> resident_rate(Device& device, const DeviceProgram& program, std::span<const Word> records,
                                          ResidentField field, uint32_t* results, unsigned repeats) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("device-resident rates are for CUDA devices");
  if (records.empty()) return Error("no records");
  if (!runs_on(RecordKind::kKey4, program)) return Error("the program does not run on keys");
  if (program.memory != TableMemory::kGlobal)
    return Error("device-resident programs have their tables in global memory");
  const auto count = static_cast<uint32_t>(records.size());
  const uint32_t blocks = (count + 127) / 128;
  Run run(*memory);
  return run.go(records.data(), records.size_bytes(), results, size_t{count} * 4, records.size_bytes(),
                size_t{count} * 4, count, repeats, [&](void* in, void* out, cudaStream_t stream) {
                  const auto* from = static_cast<const Word*>(in);
                  auto* to = static_cast<uint32_t*>(out);
                  uint8_t number = 0;
                  bool started = false;
                  AllChains::for_each([&]<typename Chain>(TypeTag<Chain>) {
                    if (++number != program.chain) return;
                    resident_records<Chain><<<blocks, 128, 0, stream>>>(program, from, to, count, field);
                    started = true;
                  });
                  if (!started) resident_records<NoChain><<<blocks, 128, 0, stream>>>(program, from, to, count, field);
                });
}

Result<std::vector<double>> resident_frames(Device& device, const DeviceProgram& program, ResidentFrames& frames,
                                            uint32_t* outcomes, unsigned repeats) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("device-resident rates are for CUDA devices");
  if (frames.lengths.empty()) return Error("no frames");
  if (program.memory != TableMemory::kGlobal)
    return Error("device-resident programs have their tables in global memory");
  void (*kernel)(DeviceProgram, uint8_t*, const uint32_t*, uint32_t*, uint32_t, uint32_t) = nullptr;
  const auto choose = [&]<typename Chain>(Chain chain) {
    if (is_chain(chain, program)) kernel = &resident_frames_kernel<Chain>;
  };
  choose(StandardChain<chains_detail::Acl>{});
  choose(StandardChain<chains_detail::AclMerge>{});
  choose(TypeList<EtherMirrorStage>{});
  if (kernel == nullptr) return Error("the program has no kernel of its own");
  const auto count = static_cast<uint32_t>(frames.lengths.size());
  const size_t bytes = frames.bytes.size();
  const size_t lengths_at = (bytes + 255) / 256 * 256;
  const size_t pristine_at = lengths_at + (size_t{count} * 4 + 255) / 256 * 256;
  // One piece of memory: the frames, their lengths, and the frames as they came.
  std::vector<uint8_t> input(pristine_at + bytes);
  memcpy(input.data(), frames.bytes.data(), bytes);
  memcpy(input.data() + lengths_at, frames.lengths.data(), size_t{count} * 4);
  memcpy(input.data() + pristine_at, frames.bytes.data(), bytes);
  Run run(*memory);
  auto rates = run.go(
      input.data(), input.size(), outcomes, size_t{count} * 4, input.size(), size_t{count} * 4, count, repeats,
      [&](void* in, void* out, cudaStream_t stream) {
        auto* base = static_cast<uint8_t*>(in);
        kernel<<<(count + 127) / 128, 128, 0, stream>>>(program, base + ResidentFrames::kLead,
                                                        reinterpret_cast<const uint32_t*>(base + lengths_at),
                                                        static_cast<uint32_t*>(out), frames.stride, count);
      },
      [&](void* in, cudaStream_t stream) {
        auto* base = static_cast<uint8_t*>(in);
        return cudaMemcpyAsync(base, base + pristine_at, bytes, cudaMemcpyDeviceToDevice, stream);
      });
  if (!rates) return rates;
  if (auto copied = memory->download(frames.bytes.data(), run.input(), bytes); !copied) {
    return std::move(copied).error();
  }
  return rates;
}

Result<std::vector<double>> resident_crc32(Device& device, Crc32Mode mode, const ResidentFrames& frames, bool fed,
                                           uint32_t* crcs, unsigned repeats) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("these rates are for CUDA devices");
  if (frames.lengths.empty()) return Error("no frames");
  memory->use();
  const size_t count = frames.lengths.size();
  const size_t bytes = count * frames.stride;
  const size_t lengths_at = (bytes + 255) / 256 * 256;
  const uint8_t* const first = frames.bytes.data() + ResidentFrames::kLead;
  if (!fed) {
    std::vector<uint8_t> input(lengths_at + count * 4);
    memcpy(input.data(), first, bytes);
    memcpy(input.data() + lengths_at, frames.lengths.data(), count * 4);
    Run run(*memory);
    return run.go(input.data(), input.size(), crcs, count * 4, input.size(), count * 4, count, repeats,
                  [&](void* in, void* out, cudaStream_t stream) {
                    const auto* base = static_cast<const uint8_t*>(in);
                    launch_crc32(mode, base, reinterpret_cast<const uint32_t*>(base + lengths_at),
                                 static_cast<uint32_t*>(out), frames.stride, static_cast<uint32_t>(count), stream);
                  });
  }
  Feed f(*memory, true);
  if (auto ok = f.create(lengths_at + count * 4, count * 4); !ok) return std::move(ok).error();
  memcpy(f.host_in, first, bytes);
  memcpy(f.host_in + lengths_at, frames.lengths.data(), count * 4);
  auto* device_out = reinterpret_cast<uint32_t*>(f.device_out);
  const auto* device_lengths = reinterpret_cast<const uint32_t*>(f.device_in + lengths_at);
  // Long enough for the bus, short enough that the last kernel and the way back are few of all bytes.
  const size_t piece = std::max<size_t>(1, (size_t{8} << 20) / frames.stride);
  std::vector<double> rates;
  cudaError_t e = cudaSuccess;
  for (unsigned turn = 0; e == cudaSuccess && turn <= repeats; ++turn) {
    std::memset(f.host_out, 0xff, count * 4);
    const auto start = std::chrono::steady_clock::now();
    size_t turns = 0;
    for (size_t at = 0; e == cudaSuccess && at < count; at += piece, ++turns) {
      const size_t n = std::min(piece, count - at);
      cudaStream_t stream = f.streams[turns % std::size(f.streams)];
      e = cudaMemcpyAsync(f.device_in + at * frames.stride, f.host_in + at * frames.stride, n * frames.stride,
                          cudaMemcpyHostToDevice, stream);
      if (e == cudaSuccess) {
        e = cudaMemcpyAsync(f.device_in + lengths_at + at * 4, f.host_in + lengths_at + at * 4, n * 4,
                            cudaMemcpyHostToDevice, stream);
      }
      if (e != cudaSuccess) break;
      launch_crc32(mode, reinterpret_cast<const uint8_t*>(f.device_in) + at * frames.stride, device_lengths + at,
                   device_out + at, frames.stride, static_cast<uint32_t>(n), stream);
      e = cudaGetLastError();
      if (e == cudaSuccess) {
        e = cudaMemcpyAsync(f.host_out + at * 4, device_out + at, n * 4, cudaMemcpyDeviceToHost, stream);
      }
    }
    for (cudaStream_t stream : f.streams) {
      if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    }
    if (turn != 0) rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  if (e != cudaSuccess) return cuda_error(e, "feed frames from host memory");
  std::memcpy(crcs, f.host_out, count * 4);
  return rates;
}

Result<std::vector<double>> resident_lookups4(Device& device, const Image& image, std::span<const uint32_t> addresses,
                                              uint32_t* next_hops, unsigned repeats, const LookupTable& where) {
  Result<std::vector<double>> rates = std::vector<double>{};
  auto opened = with_fib4(image, [&]<typename View>(const View& view) {
    rates = lookups<Lookup4>(device, view, image.section(SectionTag::kFib4), std::as_bytes(addresses), next_hops,
                             repeats, where);
  });
  if (!opened) return std::move(opened).error();
  return rates;
}

Result<std::vector<double>> resident_lookups6(Device& device, const Image& image, std::span<const uint64_t> addresses,
                                              uint32_t* next_hops, unsigned repeats, const LookupTable& where) {
  Result<std::vector<double>> rates = std::vector<double>{};
  auto opened = with_fib6(image, [&]<typename View>(const View& view) {
    rates = lookups<Lookup6>(device, view, image.section(SectionTag::kFib6), std::as_bytes(addresses), next_hops,
                             repeats, where);
  });
  if (!opened) return std::move(opened).error();
  return rates;
}

Result<FedLookups> fed_lookups4(Device& device, const Image& image, std::span<const uint32_t> addresses,
                                uint32_t* next_hops, unsigned repeats, bool pinned) {
  Result<FedLookups> fed = FedLookups{};
  auto opened = with_fib4(image, [&](const auto& view) {
    fed = feed<Lookup4>(device, view, image.section(SectionTag::kFib4), std::as_bytes(addresses), next_hops, repeats,
                        pinned);
  });
  if (!opened) return std::move(opened).error();
  return fed;
}

Result<FedLookups> fed_lookups6(Device& device, const Image& image, std::span<const uint64_t> addresses,
                                uint32_t* next_hops, unsigned repeats, bool pinned) {
  Result<FedLookups> fed = FedLookups{};
  auto opened = with_fib6(image, [&](const auto& view) {
    fed = feed<Lookup6>(device, view, image.section(SectionTag::kFib6), std::as_bytes(addresses), next_hops, repeats,
                        pinned);
  });
  if (!opened) return std::move(opened).error();
  return fed;
}

Result<std::vector<double>> lookups_in_a_row4(Device& device, const Image& image, std::span<const uint32_t> addresses,
                                              uint32_t* next_hops, unsigned batches, bool pinned, bool fresh) {
  Result<std::vector<double>> rates = std::vector<double>{};
  auto opened = with_fib4(image, [&](const auto& view) {
    rates = in_a_row<Lookup4>(device, view, image.section(SectionTag::kFib4), std::as_bytes(addresses), next_hops,
                              batches, pinned, fresh);
  });
  if (!opened) return std::move(opened).error();
  return rates;
}

}  // namespace sluice
