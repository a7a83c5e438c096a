// nvcc takes an assignment to a [[nodiscard]] type for a value that is thrown away.
#pragma nv_diag_suppress 2810
// The whole way of frames to a port: classes, routes, edits and departures, with everything in device memory or fed
// from the host.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

#include "qos/policer_scan.h"
#include "studies/cuda/resident.h"
#include "studies/cuda/resident_parts.cuh"
#include "studies/stockholm/cuda/port_parts.cuh"

namespace sluice {
namespace {

using namespace cuda_walk;
using namespace cuda_resident;

// Bytes of three classes in front of a frame of its chunk, and of the chunk, in one word: 256 frames of less than 8 KiB
// have less than 2^21.
constexpr uint32_t kClassBits = 21;
constexpr uint32_t kClassMask = (1u << kClassBits) - 1;
constexpr uint32_t kPortThreads = ResidentPort::kChunk;
constexpr uint32_t kPortClasses = ResidentPort::kClasses;

struct PortArguments {
  PortSchedules port;
  ChunkLink* links;          // of this launch, all clear
  uint32_t* ticket;          // 0
  const uint64_t* arrivals;  // by chunk
  const uint64_t* initial;
  uint64_t* next;
  uint64_t* departures;
  PolicerTurn* turns;    // by class
  uint64_t first_chunk;  // of this launch
  PolicerConfig police[kPortClasses];
};

// What policers are passed on in.
struct TurnWords {
  __device__ static PolicerTurn::Word load(const PolicerTurn::Word* from) {
    const Word word = DeviceWords::load(reinterpret_cast<const Word*>(from));
    return {word.w[0] | uint64_t{word.w[1]} << 32, word.w[2], 0};
  }
  __device__ static void store(PolicerTurn::Word* to, const PolicerTurn::Word& word) {
    DeviceWords::store(reinterpret_cast<Word*>(to), Word{{static_cast<uint32_t>(word.value),
                                                          static_cast<uint32_t>(word.value >> 32), word.chunk, 0}});
  }
  // A turn takes about a microsecond.
  __device__ static void pause(uint32_t away) {
    if (away > 1) __nanosleep(min(away, 64u) * 250);
  }
};

// One policer's part of a chunk, in shared memory.
struct SharedFrames {
  const uint32_t* ip_bytes;
  const uint8_t* classes;
  uint8_t* colors;
  uint32_t mine;
  __device__ bool here(uint32_t i) const { return classes[i] == mine; }
  __device__ uint32_t bytes(uint32_t i) const { return ip_bytes[i]; }
  __device__ Color before(uint32_t) const { return Color::kGreen; }
  __device__ void color(uint32_t i, Color color) const { colors[i] = static_cast<uint8_t>(color); }
};

// kStamped: departures, where there are schedules or policers; kPoliced: colors before.
template <bool kStamped, bool kPoliced>
__global__ void __launch_bounds__(kPortThreads)
    port_kernel(const __grid_constant__ DeviceProgram program, uint8_t* frames, const uint32_t* __restrict__ lengths,
                uint32_t* __restrict__ out, uint32_t stride, uint32_t count, const __grid_constant__ PortArguments a) {
  __shared__ uint32_t taken;
  __shared__ uint64_t sums[kPortThreads / 32];
  __shared__ uint64_t found[kPortClasses + 1];
  uint32_t chunk = blockIdx.x;
  if constexpr (kStamped) {
    // In the order in which blocks begin, so that those that this one waits for have begun.
    if (threadIdx.x == 0) taken = atomicAdd(a.ticket, 1);
    __syncthreads();
    chunk = taken;
  }
  const uint32_t i = chunk * kPortThreads + threadIdx.x;
  const bool here = i < count;
  Packet p;
  bool leaves = false, red = false;
  if (here) {
    p.frame = frames + size_t{i} * stride;
    p.end = p.wire_end = lengths[i];
    const uint32_t outcome = walk_frame(PortChain{}, program, p);
    out[i] = outcome;
    leaves = resident_left(outcome, PortChain::kSize);
  }
  if constexpr (kPoliced) {
    __shared__ uint32_t ip_bytes[kPortThreads];
    __shared__ uint8_t classes[kPortThreads], colors[kPortThreads];
    ip_bytes[threadIdx.x] = leaves ? policed_bytes(true, p.data, p.l3, p.wire_end) : 0;
    classes[threadIdx.x] = leaves ? p.paint : 0xff;
    __syncthreads();
    // A warp a policer.
    if (const uint32_t c = threadIdx.x / 32; c < kPortClasses) {
      police_chunk<TurnWords, kPortThreads / 32>(WarpGroup{}, a.police[c], a.turns[c], a.first_chunk + chunk,
                                                 a.arrivals[chunk], kPortThreads,
                                                 SharedFrames{ip_bytes, classes, colors, c});
    }
    __syncthreads();
    if (leaves) {
      out[i] |= uint32_t{colors[threadIdx.x]} << ResidentPort::kColorBit;
      red = colors[threadIdx.x] == static_cast<uint8_t>(Color::kRed);
      leaves = !red;
    }
  }
  if constexpr (kStamped) {
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t shift = p.paint * kClassBits;
    const uint64_t mine = leaves ? uint64_t{p.wire_length()} << shift : 0;
    uint64_t through = mine;
#pragma unroll
    for (uint32_t step = 1; step < 32; step <<= 1) {
      const uint64_t left = __shfl_up_sync(kAll, through, step);
      if (lane >= step) through += left;
    }
    if (lane == 31) sums[warp] = through;
    __syncthreads();
    uint64_t before = through - mine, all = 0;
#pragma unroll
    for (uint32_t w = 0; w < kPortThreads / 32; ++w) {
      if (w < warp) before += sums[w];
      all += sums[w];
    }
    const uint64_t now = a.arrivals[chunk];
    if (warp == 0) {
      uint64_t bytes[kPortClasses], words[PortSchedules::kMost];
#pragma unroll
      for (uint32_t c = 0; c < kPortClasses; ++c) bytes[c] = all >> (c * kClassBits) & kClassMask;
      const bool last = chunk == (count - 1) / kPortThreads;
      pass_chunk<LinkAtomics>(WarpGroup{}, a.port, ChunkLinks{a.links, 0}, chunk, now, bytes, a.initial,
                              last ? a.next : nullptr, words);
      if (lane < kPortClasses + 1) found[lane] = words[lane];
    }
    __syncthreads();
    if (!here) return;
    uint64_t at = red ? ResidentPort::kPoliced : ResidentPort::kLost;
    if (leaves) {
      const DepartureRate& of_class = a.port.rates[p.paint];
      const DepartureRate& of_port = a.port.rates[kPortClasses];
      const uint64_t bytes = (before & kClassMask) + (before >> kClassBits & kClassMask) + (before >> (2 * kClassBits));
      const uint64_t one =
          departure_in_chunk(of_class, found[p.paint], now, of_class.units_at(now), before >> shift & kClassMask);
      const uint64_t other = departure_in_chunk(of_port, found[kPortClasses], now, of_port.units_at(now), bytes);
      at = one < other ? other : one;
    }
    a.departures[i] = at;
  }
}

// Where things lie in the input's memory, whose frames come first.
struct PortLayout {
  PortLayout(const ResidentFrames& frames, const ResidentPort& port, bool stamped) {
    count = static_cast<uint32_t>(frames.lengths.size());
    chunks = (count + kPortThreads - 1) / kPortThreads;
    const auto place = [&](size_t& at, size_t bytes) {
      at = end;
      end = (end + bytes + 255) / 256 * 256;
    };
    place(frames_at, frames.bytes.size());
    place(lengths_at, size_t{count} * 4);
    place(arrivals_at, stamped ? port.arrivals_ns.size() * 8 : 0);
    place(full_at, sizeof(PolicerTurn) * kPortClasses);
    filled = end;
    place(turns_at, sizeof(PolicerTurn) * kPortClasses);
    place(words_at, 2 * PortSchedules::kMost * 8);
    // Tickets of as many launches as there are chunks at most.
    place(tickets_at, size_t{chunks} * 4);
    place(links_at, stamped ? size_t{chunks} * sizeof(ChunkLink) : 0);
  }
  uint32_t count = 0, chunks = 0;
  size_t frames_at = 0, lengths_at = 0, arrivals_at = 0, words_at = 0, tickets_at = 0, links_at = 0;
  size_t full_at = 0;   // policers as a run begins
  size_t turns_at = 0;  // and as it goes on
  size_t filled = 0;    // what comes from the host
  size_t end = 0;
};

}  // namespace

Result<std::vector<double>> resident_port(Device& device, const DeviceProgram& program, ResidentFrames& frames,
                                          ResidentPort& port, bool fed, uint32_t* outcomes, unsigned repeats) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("device-resident rates are for CUDA devices");
  if (frames.lengths.empty()) return Error("no frames");
  if (!is_chain(PortChain{}, program)) return Error("the program has no kernel of its own");
  if (port.port.classes != kPortClasses) return Error("the kernel is one of three classes");
  const bool stamped = port.policed || !port.port.unlimited();
  const PortLayout at(frames, port, stamped);
  if (*std::max_element(frames.lengths.begin(), frames.lengths.end()) > kMostFrameBytes)
    return Error("a frame is too long for the kernel");
  if (stamped && port.arrivals_ns.size() != at.chunks) return Error("not one arrival a chunk");
  memory->use();
  const uint32_t count = at.count;
  const size_t departures_at = (size_t{count} * 4 + 255) / 256 * 256;
  const size_t bytes_out = departures_at + (stamped ? size_t{count} * 8 : 0);
  port.departures_ns.assign(stamped ? count : 0, 0);

  // Clears what a run leaves in the schedules.
  const auto clear = [&](std::byte* in, cudaStream_t stream) {
    const cudaError_t cleared = cudaMemsetAsync(in + at.words_at, 0, at.end - at.words_at, stream);
    if (cleared != cudaSuccess || !port.policed) return cleared;
    return cudaMemcpyAsync(in + at.turns_at, in + at.full_at, sizeof(PolicerTurn) * kPortClasses,
                           cudaMemcpyDeviceToDevice, stream);
  };
  // Chunks [first, first + n), as launch number `turn` of the run.
  const auto launch = [&](std::byte* in, std::byte* out, uint32_t first, uint32_t n, uint32_t turn,
                          cudaStream_t stream) {
    PortArguments a{};
    a.port = port.port;
    a.links = reinterpret_cast<ChunkLink*>(in + at.links_at) + first;
    a.ticket = reinterpret_cast<uint32_t*>(in + at.tickets_at) + turn;
    a.arrivals = reinterpret_cast<const uint64_t*>(in + at.arrivals_at) + first;
    auto* words = reinterpret_cast<uint64_t*>(in + at.words_at);
    a.initial = words + (turn % 2) * PortSchedules::kMost;
    a.next = words + (turn + 1) % 2 * PortSchedules::kMost;
    const size_t skip = size_t{first} * kPortThreads;
    const auto here = static_cast<uint32_t>(std::min<size_t>(size_t{n} * kPortThreads, count - skip));
    a.departures = reinterpret_cast<uint64_t*>(out + departures_at) + skip;
    a.turns = reinterpret_cast<PolicerTurn*>(in + at.turns_at);
    a.first_chunk = first;
    std::copy(std::begin(port.police), std::end(port.police), a.police);
    const auto kernel = port.policed ? &port_kernel<true, true>
                        : stamped    ? &port_kernel<true, false>
                                     : &port_kernel<false, false>;
    kernel<<<n, kPortThreads, 0, stream>>>(
        program, reinterpret_cast<uint8_t*>(in) + ResidentFrames::kLead + skip * frames.stride,
        reinterpret_cast<const uint32_t*>(in + at.lengths_at) + skip, reinterpret_cast<uint32_t*>(out) + skip,
        frames.stride, here, a);
  };
  std::vector<std::byte> input(at.filled);
  std::memcpy(input.data(), frames.bytes.data(), frames.bytes.size());
  std::memcpy(input.data() + at.lengths_at, frames.lengths.data(), size_t{count} * 4);
  if (stamped) std::memcpy(input.data() + at.arrivals_at, port.arrivals_ns.data(), port.arrivals_ns.size() * 8);
  for (unsigned c = 0; port.policed && c < kPortClasses; ++c) {
    const auto full = PolicerTurn::of(PolicerState::full(port.police[c], port.arrivals_ns[0]), 0);
    std::memcpy(input.data() + at.full_at + c * sizeof full, &full, sizeof full);
  }

  if (!fed) {
    // The frames as they came lie behind.
    std::vector<std::byte> both(at.end + frames.bytes.size());
    std::memcpy(both.data(), input.data(), input.size());
    std::memcpy(both.data() + at.end, frames.bytes.data(), frames.bytes.size());
    std::vector<std::byte> result(bytes_out);
    Run run(*memory);
    auto rates = run.go(
        both.data(), both.size(), result.data(), result.size(), both.size(), result.size(), count, repeats,
        [&](void* in, void* out, cudaStream_t stream) {
          auto* base = static_cast<std::byte*>(in);
          // Part of the work: the next run needs it.
          if (stamped) (void)clear(base, stream);
          launch(base, static_cast<std::byte*>(out), 0, at.chunks, 0, stream);
        },
        [&](void* in, cudaStream_t stream) {
          auto* base = static_cast<std::byte*>(in);
          return cudaMemcpyAsync(base, base + at.end, frames.bytes.size(), cudaMemcpyDeviceToDevice, stream);
        });
    if (!rates) return rates;
    std::memcpy(outcomes, result.data(), size_t{count} * 4);
    if (stamped) std::memcpy(port.departures_ns.data(), result.data() + departures_at, size_t{count} * 8);
    if (auto copied = memory->download(frames.bytes.data(), run.input(), frames.bytes.size()); !copied) {
      return std::move(copied).error();
    }
    return rates;
  }

  Feed f(*memory, true);
  const size_t frames_back = (bytes_out + 255) / 256 * 256;
  if (auto ok = f.create(at.end, frames_back + frames.bytes.size()); !ok) return std::move(ok).error();
  std::memcpy(f.host_in, input.data(), input.size());
  // Long enough for the bus, short enough that the last kernel and the way back are few of all bytes.
  const auto piece =
      static_cast<uint32_t>(std::max<size_t>(1, (size_t{4} << 20) / (size_t{frames.stride} * kPortThreads)));
  std::vector<cudaEvent_t> done(std::size(f.streams));
  cudaError_t e = cudaSuccess;
  for (cudaEvent_t& event : done) {
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  std::vector<double> rates;
  for (unsigned turn = 0; e == cudaSuccess && turn <= repeats; ++turn) {
    std::memset(f.host_out, 0xff, frames_back + frames.bytes.size());
    const auto start = std::chrono::steady_clock::now();
    if (stamped) {
      // With the policers behind them.
      e = cudaMemcpyAsync(f.device_in + at.arrivals_at, f.host_in + at.arrivals_at, at.filled - at.arrivals_at,
                          cudaMemcpyHostToDevice, f.streams[0]);
    }
    if (e == cudaSuccess) e = clear(f.device_in, f.streams[0]);
    uint32_t turns = 0;
    for (uint32_t first = 0; e == cudaSuccess && first < at.chunks; first += piece, ++turns) {
      const uint32_t n = std::min(piece, at.chunks - first);
      const size_t skip = size_t{first} * kPortThreads;
      const size_t here = std::min<size_t>(size_t{n} * kPortThreads, count - skip);
      cudaStream_t stream = f.streams[turns % f.kStreams];
      const auto copy = [&](std::byte* to, const std::byte* from, size_t bytes, cudaMemcpyKind kind) {
        if (e == cudaSuccess && bytes != 0) e = cudaMemcpyAsync(to, from, bytes, kind, stream);
      };
      const size_t from = ResidentFrames::kLead + skip * frames.stride;
      copy(f.device_in + from, f.host_in + from, here * frames.stride, cudaMemcpyHostToDevice);
      copy(f.device_in + at.lengths_at + skip * 4, f.host_in + at.lengths_at + skip * 4, here * 4,
           cudaMemcpyHostToDevice);
      // Schedules go from one kernel to the next.
      if (e == cudaSuccess && turns != 0) e = cudaStreamWaitEvent(stream, done[(turns - 1) % f.kStreams], 0);
      if (e != cudaSuccess) break;
      launch(f.device_in, f.device_out, first, n, turns, stream);
      e = cudaGetLastError();
      if (e == cudaSuccess) e = cudaEventRecord(done[turns % f.kStreams], stream);
      copy(f.host_out + frames_back + from, f.device_in + from, here * frames.stride, cudaMemcpyDeviceToHost);
      copy(f.host_out + skip * 4, f.device_out + skip * 4, here * 4, cudaMemcpyDeviceToHost);
      if (stamped) {
        copy(f.host_out + departures_at + skip * 8, f.device_out + departures_at + skip * 8, here * 8,
             cudaMemcpyDeviceToHost);
      }
    }
    for (cudaStream_t stream : f.streams) {
      if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    }
    if (turn != 0) rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  for (cudaEvent_t event : done) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  if (e != cudaSuccess) return cuda_error(e, "feed frames from host memory");
  std::memcpy(outcomes, f.host_out, size_t{count} * 4);
  if (stamped) std::memcpy(port.departures_ns.data(), f.host_out + departures_at, size_t{count} * 8);
  const size_t some = frames.lengths.size() * frames.stride;
  std::memcpy(frames.bytes.data() + ResidentFrames::kLead, f.host_out + frames_back + ResidentFrames::kLead,
              std::min(some, frames.bytes.size() - ResidentFrames::kLead));
  return rates;
}

}  // namespace sluice
