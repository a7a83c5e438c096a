#include "exec/cuda/resident.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>

#include "exec/cuda/open_cuda.h"
#include "exec/cuda/walk.cuh"
#include "memory/cuda/memory.h"

namespace sluice {
namespace {

using namespace cuda_walk;

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
  walk_warp<RecordKind::kKey4, Chain>(program, w, Scratch{});
  if (!here) return;
  uint32_t value = w.packet.rule;
  if (field == ResidentField::kNextHop) value = w.packet.next_hop;
  if (field == ResidentField::kSteps) {
    value = w.visited | uint32_t{w.output} << 8 | static_cast<uint32_t>(w.packet.reason) << 16;
  }
  out[record] = value;
}

// Four independent lookups a lane, in flight together.
template <typename View>
__global__ void __launch_bounds__(256)
    resident_addresses(const __grid_constant__ View view, const uint4* __restrict__ in, uint4* __restrict__ out,
                       uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint4 a = in[i];
  uint4 r;
  r.x = view.lookup(a.x);
  r.y = view.lookup(a.y);
  r.z = view.lookup(a.z);
  r.w = view.lookup(a.w);
  out[i] = r;
}

// The standard graph with an access list and routes.
using StandardChain =
    TypeList<IpInputStage, chains_detail::Acl, chains_detail::RouteDir24, DecTtlStage, AdjacencyStage>;

template <typename... Stages>
bool is_chain(TypeList<Stages...>, const DeviceProgram& program) {
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

__global__ void __launch_bounds__(128)
    resident_frames_kernel(const __grid_constant__ DeviceProgram program, uint8_t* __restrict__ frames,
                           const uint32_t* __restrict__ lengths, uint32_t* __restrict__ out, uint32_t stride,
                           uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Packet p;
  p.frame = frames + size_t{i} * stride;
  p.end = p.wire_end = lengths[i];
  out[i] = walk_frame(StandardChain{}, program, p);
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

template <typename View>
Result<std::vector<double>> lookups(Device& device, const View& view, std::span<const uint32_t> addresses,
                                    uint32_t* next_hops, unsigned repeats) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("device-resident rates are for CUDA devices");
  if (addresses.empty()) return Error("no addresses");
  const auto quads = static_cast<uint32_t>((addresses.size() + 3) / 4);
  Run run(*memory);
  return run.go(addresses.data(), addresses.size_bytes(), next_hops, addresses.size_bytes(), size_t{quads} * 16,
                size_t{quads} * 16, addresses.size(), repeats, [&](void* in, void* out, cudaStream_t stream) {
                  resident_addresses<View><<<(quads + 255) / 256, 256, 0, stream>>>(view, static_cast<const uint4*>(in),
                                                                                    static_cast<uint4*>(out), quads);
                });
}

}  // namespace

Result<std::vector<double>> resident_rate(Device& device, const DeviceProgram& program, std::span<const Word> records,
                                          ResidentField field, uint32_t* results, unsigned repeats) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("device-resident rates are for CUDA devices");
  if (records.empty()) return Error("no records");
  if (!runs_on(RecordKind::kKey4, program)) return Error("the program does not run on keys");
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
  if (!is_chain(StandardChain{}, program)) return Error("the program is not the standard graph's");
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
        resident_frames_kernel<<<(count + 127) / 128, 128, 0, stream>>>(
            program, base + ResidentFrames::kLead, reinterpret_cast<const uint32_t*>(base + lengths_at),
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

Result<std::vector<double>> resident_lookups(Device& device, const Dir24View& view, std::span<const uint32_t> addresses,
                                             uint32_t* next_hops, unsigned repeats) {
  return lookups(device, view, addresses, next_hops, repeats);
}
Result<std::vector<double>> resident_lookups(Device& device, const Poptrie4View& view,
                                             std::span<const uint32_t> addresses, uint32_t* next_hops,
                                             unsigned repeats) {
  return lookups(device, view, addresses, next_hops, repeats);
}

}  // namespace sluice
