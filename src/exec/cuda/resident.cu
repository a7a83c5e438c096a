#include "exec/cuda/resident.h"

#include <cuda_runtime_api.h>

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

  // `launch(in, out, stream)` starts the kernel; `count` is what a rate counts.
  Result<std::vector<double>> go(const void* input, size_t input_bytes, void* output, size_t output_bytes,
                                 size_t padded_input, size_t padded_output, size_t count, unsigned repeats,
                                 const std::function<void(void*, void*, cudaStream_t)>& launch) {
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
      e = cudaEventRecord(events_[0], stream_);
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
