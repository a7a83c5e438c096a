// nvcc takes an assignment to a [[nodiscard]] type for a value that is thrown away.
#pragma nv_diag_suppress 2810
#include "studies/stockholm/cuda/priority_port.h"

#include <cuda_runtime_api.h>
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "qos/priority_buffers.h"
#include "studies/cuda/resident.h"
#include "studies/cuda/resident_parts.cuh"
#include "studies/stockholm/cuda/port_parts.cuh"

namespace sluice {
namespace {

using namespace cuda_walk;
using namespace cuda_resident;

// Words that groups share among themselves.
struct GroupAtomics {
  __device__ static uint64_t load(const uint64_t* from) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.b64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
  }
  __device__ static bool compare_exchange(uint64_t* at, uint64_t& expected, uint64_t value) {
    uint64_t seen;
    asm volatile("atom.relaxed.gpu.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(seen)
                 : "l"(at), "l"(expected), "l"(value)
                 : "memory");
    const bool same = seen == expected;
    expected = seen;
    return same;
  }
};

// What the host wrote before this word is seen after it.
__device__ __forceinline__ uint64_t load_from_host(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.b64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
// What was written before is seen by the host that sees this word.
__device__ __forceinline__ void store_for_host(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.b64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

constexpr uint32_t kFrameBytes = PriorityPortOptions::kFrameBytes;
constexpr uint32_t kEditBytes = PriorityPortOptions::kEditBytes;
// In shared memory, so that lanes at one offset of their frames meet few banks twice.
constexpr uint32_t kSharedStride = kFrameBytes + 16;

// Chunk memory by class and place. The rings are those of qos/priority_buffers.h, but that chunks that are done are
// committed by the host, which waits for each class's in order: a chain of commits through the device's memory would
// cost a round trip each.
struct PriorityArguments {
  const uint64_t* filled;    // written by the host: chunks that are ready, by class; the eighth asks to stop
  uint64_t* claimed;         // device: by class
  uint64_t* done;            // host: by place, 1 + the chunk's number
  const uint8_t* in;         // host: frames as they come
  uint8_t* out;              // host: as they leave
  const uint32_t* lengths;   // device: of each frame
  const uint64_t* arrivals;  // host: one a chunk
  uint32_t* outcomes;        // host
  uint64_t* departures;      // host
  ChunkLink* links;          // device: twice the capacity a class
  uint64_t* words;           // device: 0 .. 7 zeros, 8 the port's
  unsigned long long* stolen;
  uint32_t classes;
  uint32_t capacity;
  PortSchedules port;
  uint8_t homes[1024];  // of groups
};

// One look of a group (PriorityView::look), by its first warp: all classes at once. False: nothing is ready. The chunk
// found is not claimed yet.
__device__ __forceinline__ bool look(const PriorityArguments& a, uint32_t home, ChunkClaim& found, bool& stop) {
  const uint32_t lane = threadIdx.x & 31;
  // The acquiring load last: it holds up what follows it. A number that is old by then is one that the claim refuses.
  const uint64_t claimed = GroupAtomics::load(a.claimed + (lane & 7));
  const uint64_t filled = load_from_host(a.filled + (lane & 7));
  const uint32_t ready = __ballot_sync(kAll, lane < a.classes && filled > claimed);
  stop = __shfl_sync(kAll, filled, 7) != 0;
  if (ready == 0) return false;
  const uint32_t c = (ready >> home & 1) != 0 ? home : __ffs(static_cast<int>(ready)) - 1;
  found = {__shfl_sync(kAll, claimed, c), c, c != home};
  return true;
}

template <uint32_t kChunk>
__global__ void __launch_bounds__(kChunk)
    priority_kernel(const __grid_constant__ DeviceProgram program, const __grid_constant__ PriorityArguments a) {
  extern __shared__ uint4 memory[];
  __shared__ ChunkClaim claim;
  __shared__ uint32_t state;
  __shared__ uint64_t arrival;
  __shared__ uint64_t found[2];
  __shared__ uint32_t sums[kChunk / 32];
  auto* frames = reinterpret_cast<uint8_t*>(memory);
  const uint32_t t = threadIdx.x;
  const uint32_t home = a.homes[blockIdx.x];
  const bool shaped = !a.port.unlimited();
  unsigned long long stolen = 0;
  for (;;) {
    if (t < 32) {
      ChunkClaim got;
      bool stop = false;
      const bool some = look(a, home, got, stop);
      if (t == 0) {
        uint64_t expected = got.sequence;
        if (some && !GroupAtomics::compare_exchange(a.claimed + got.qos_class, expected, expected + 1)) {
          state = 3;  // somebody else has it: look again
        } else {
          claim = got;
          state = some ? 1 : stop ? 2 : 0;
        }
      }
    }
    __syncthreads();
    if (state == 2) break;
    if (state != 1) {
      // Few groups look all the time; many would be in each other's way.
      if (state == 0 && gridDim.x > 16) __nanosleep(100);
      __syncthreads();
      continue;
    }
    const uint32_t c = claim.qos_class;
    const uint64_t sequence = claim.sequence;
    const size_t chunk = size_t{c} * a.capacity + (sequence & (a.capacity - 1));
    const size_t first = chunk * kChunk;
    // Whole lines, next to each other, past the caches: the host writes them anew.
    const auto* in = reinterpret_cast<const uint4*>(a.in + first * kFrameBytes);
    uint4 words[kFrameBytes / 16];
#pragma unroll
    for (uint32_t k = 0; k < kFrameBytes / 16; ++k) words[k] = __ldcv(in + k * kChunk + t);
    const uint32_t length = a.lengths[first + t];
    if (t == kChunk - 1 && shaped) arrival = *reinterpret_cast<const volatile uint64_t*>(a.arrivals + chunk);
    if (t == 0) stolen += claim.stolen ? 1 : 0;
#pragma unroll
    for (uint32_t k = 0; k < kFrameBytes / 16; ++k) {
      const uint32_t at = k * kChunk + t;
      *reinterpret_cast<uint4*>(frames + at / 4 * kSharedStride + at % 4 * 16) = words[k];
    }
    __syncthreads();
    Packet p;
    p.frame = frames + t * kSharedStride;
    p.end = p.wire_end = length;
    const uint32_t outcome = walk_frame(PortChain{}, program, p);
    const bool leaves = resident_left(outcome, PortChain::kSize);
    a.outcomes[first + t] = outcome;
    if (shaped) {
      const uint32_t lane = t & 31, warp = t / 32;
      const uint32_t mine = leaves ? p.wire_length() : 0;
      uint32_t through = mine;
#pragma unroll
      for (uint32_t step = 1; step < 32; step <<= 1) {
        const uint32_t left = __shfl_up_sync(kAll, through, step);
        if (lane >= step) through += left;
      }
      if (lane == 31) sums[warp] = through;
      __syncthreads();
      uint32_t before = through - mine, all = 0;
#pragma unroll
      for (uint32_t w = 0; w < kChunk / 32; ++w) {
        if (w < warp) before += sums[w];
        all += sums[w];
      }
      const uint64_t now = arrival;
      const DepartureRate& of_class = a.port.rates[c];
      const DepartureRate& of_port = a.port.rates[a.port.port()];
      if (warp == 0) {
        const WordMap map = WordMap::of(of_class, now, all);
        uint64_t word = 0;
        if (!of_class.unlimited()) {
          pass_chunk<LinkAtomics>(WarpGroup{}, ChunkLinks{a.links + size_t{c} * 2 * a.capacity, 2 * a.capacity},
                                  sequence, 1, &map, a.words, nullptr, &word);
        }
        if (lane == 0) {
          found[0] = word;
          found[1] = charge_shared<GroupAtomics>(of_port, a.words + 8, now, all);
        }
      }
      __syncthreads();
      const uint64_t one = departure_in_chunk(of_class, found[0], now, of_class.units_at(now), before);
      const uint64_t other = departure_in_chunk(of_port, found[1], now, of_port.units_at(now), before);
      a.departures[first + t] = !leaves ? ResidentPort::kLost : one < other ? other : one;
    }
    __syncthreads();
    auto* out = reinterpret_cast<uint4*>(a.out + first * kEditBytes);
#pragma unroll
    for (uint32_t k = 0; k < kEditBytes / 16; ++k) {
      const uint32_t at = k * kChunk + t;
      out[at] = *reinterpret_cast<const uint4*>(frames + at / 2 * kSharedStride + at % 2 * 16);
    }
    // Released by one lane, behind the barrier: what all have written is there before it.
    __syncthreads();
    if (t == 0) store_for_host(a.done + chunk, sequence + 1);
  }
  if (t == 0) atomicAdd(a.stolen, stolen);
}

Result<void> check_options(const PriorityPortOptions& o, const std::vector<PriorityPortFrames>& frames) {
  const size_t classes = o.shares.size();
  if (o.chunk != 32 && o.chunk != 64 && o.chunk != 128 && o.chunk != 256)
    return Error("a chunk has 32, 64, 128 or 256 frames");
  if (o.capacity < 32 || o.capacity > 4096 || !std::has_single_bit(o.capacity))
    return Error("a class holds 32 to 4096 chunks, a power of two");
  if (classes == 0 || classes > 7 || o.mix.size() != classes || o.port.classes != classes || frames.size() != classes) {
    return Error("shares, mix, schedules and frames are not of as many classes");
  }
  if (std::accumulate(o.mix.begin(), o.mix.end(), uint64_t{0}) == 0) return Error("no class has traffic");
  for (const PriorityPortFrames& f : frames) {
    if (f.lengths.empty() || f.bytes.size() != f.lengths.size() * kFrameBytes) return Error("a class has no frames");
    for (const uint32_t length : f.lengths) {
      if (length < kFrameBytes || length > kMostFrameBytes) return Error("a frame is too short or too long");
    }
  }
  return {};
}

// Memory, a stream and the kernel's end, given back together.
class PriorityRun {
 public:
  explicit PriorityRun(CudaMemory& memory) : memory_(memory) {}
  ~PriorityRun() {
    memory_.use();
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    for (void* at : device_) memory_.free_device(at);
    for (void* at : pinned_) memory_.free_pinned(at);
  }
  PriorityRun(const PriorityRun&) = delete;
  PriorityRun& operator=(const PriorityRun&) = delete;

  template <typename T>
  T* device(size_t count) {
    return static_cast<T*>(take(memory_.allocate_device(count * sizeof(T)), device_));
  }
  template <typename T>
  T* pinned(size_t count) {
    return static_cast<T*>(take(memory_.allocate_pinned(count * sizeof(T)), pinned_));
  }
  // A line that the host writes and the device reads, in the device's memory where that can be.
  uint64_t* line(uint64_t*& host) {
    auto window = memory_.allocate_window(64);
    if (window) {
      device_.push_back(window->device);
      host = reinterpret_cast<uint64_t*>(window->host);
      return reinterpret_cast<uint64_t*>(window->device);
    }
    return host = pinned<uint64_t>(8);
  }
  Result<cudaStream_t> stream() {
    const cudaError_t e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (e != cudaSuccess) return cuda_error(e, "create a stream");
    return stream_;
  }
  Result<void> ok() const {
    if (error_) return *error_;
    return {};
  }

 private:
  void* take(Result<void*> made, std::vector<void*>& to) {
    if (!made) {
      if (!error_) error_ = std::move(made).error();
      return nullptr;
    }
    to.push_back(*made);
    return *made;
  }
  CudaMemory& memory_;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> device_, pinned_;
  std::optional<Error> error_;
};

// Eight words at once, behind everything that was written before.
void write_line(uint64_t* to, const uint64_t (&words)[8]) {
#if defined(__x86_64__)
  _mm_sfence();
  for (unsigned i = 0; i < 8; i += 2) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + i)));
  }
  _mm_sfence();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (unsigned i = 0; i < 8; ++i) __atomic_store_n(to + i, words[i], __ATOMIC_RELEASE);
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

Result<PriorityPortReport> run_priority_port(Device& device, const DeviceProgram& program,
                                             const DeviceProgram& host_program,
                                             const std::vector<PriorityPortFrames>& frames,
                                             const PriorityPortOptions& o) {
  CudaMemory* memory = cuda_memory(device);
  if (memory == nullptr) return Error("priorities in persistent mode are for CUDA devices");
  if (!is_chain(PortChain{}, program)) return Error("the program has no kernel of its own");
  if (auto ok = check_options(o, frames); !ok) return std::move(ok).error();
  memory->use();
  const auto classes = static_cast<uint32_t>(o.shares.size());
  const auto kernel = o.chunk == 32    ? &priority_kernel<32>
                      : o.chunk == 64  ? &priority_kernel<64>
                      : o.chunk == 128 ? &priority_kernel<128>
                                       : &priority_kernel<256>;
  const size_t shared = size_t{o.chunk} * kSharedStride;
  // All groups run at once, or those that others wait for might not.
  int blocks = 0, multiprocessors = 0;
  cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(o.chunk), shared);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, memory->ordinal());
  if (e != cudaSuccess) return cuda_error(e, "ask for a kernel's size");
  const uint32_t most = std::min<uint32_t>(static_cast<uint32_t>(blocks * multiprocessors), 1024);
  const uint32_t groups = o.groups == 0 ? std::min(most, static_cast<uint32_t>(multiprocessors)) : o.groups;
  if (groups > most || groups < classes) {
    return Error(std::to_string(groups) + " groups are out of range",
                 "use " + std::to_string(classes) + " to " + std::to_string(most));
  }

  const size_t places = size_t{classes} * o.capacity;
  const size_t count = places * o.chunk;
  auto owned = std::make_unique<PriorityRun>(*memory);
  PriorityRun& run = *owned;
  PriorityArguments a{};
  uint64_t* host_line = nullptr;
  uint64_t* filled = run.line(host_line);
  uint64_t* done = run.pinned<uint64_t>(places);
  a.claimed = run.device<uint64_t>(8);
  uint8_t* in = run.pinned<uint8_t>(count * kFrameBytes);
  uint8_t* out = run.pinned<uint8_t>(count * kEditBytes);
  uint64_t* arrivals = run.pinned<uint64_t>(places);
  uint32_t* outcomes = run.pinned<uint32_t>(count);
  uint64_t* departures = run.pinned<uint64_t>(count);
  uint32_t* lengths = run.device<uint32_t>(count);
  a.links = run.device<ChunkLink>(2 * places);
  a.words = run.device<uint64_t>(16);
  a.stolen = run.device<unsigned long long>(1);
  if (auto ok = run.ok(); !ok) return std::move(ok).error();
  uint64_t line[8] = {};
  write_line(host_line, line);
  auto stream = run.stream();
  if (!stream) return std::move(stream).error();
  a.in = in;
  a.out = out;
  a.lengths = lengths;
  a.arrivals = arrivals;
  a.outcomes = outcomes;
  a.departures = departures;
  a.port = o.port;
  a.filled = filled;
  a.done = done;
  a.classes = classes;
  a.capacity = o.capacity;
  const HomePlan homes(groups, o.shares);
  for (uint32_t g = 0; g < groups; ++g) a.homes[g] = static_cast<uint8_t>(homes.home(g, 0));

  // Every place has its frames for the whole run; what the host's own stages make of them is known before.
  std::vector<uint32_t> bytes_of(count), want_outcome(count), chunk_bytes(places);
  std::vector<uint8_t> want(count * kFrameBytes);
  std::vector<uint32_t> all_lengths(count);
  for (uint32_t c = 0; c < classes; ++c) {
    size_t next = 0;
    for (size_t i = size_t{c} * o.capacity * o.chunk; i < size_t{c + 1} * o.capacity * o.chunk; ++i) {
      const size_t from = next++ % frames[c].lengths.size();
      std::memcpy(in + i * kFrameBytes, frames[c].bytes.data() + from * kFrameBytes, kFrameBytes);
      std::memcpy(want.data() + i * kFrameBytes, in + i * kFrameBytes, kFrameBytes);
      all_lengths[i] = frames[c].lengths[from];
      Walker w;
      w.packet.frame = want.data() + i * kFrameBytes;
      w.packet.end = w.packet.wire_end = all_lengths[i];
      w.path = host_program.begin;
      walk_alone(host_program, w);
      // What comes back of a frame is what a program of this chain can change.
      if (std::memcmp(want.data() + i * kFrameBytes + kEditBytes, in + i * kFrameBytes + kEditBytes,
                      kFrameBytes - kEditBytes) != 0) {
        return Error("a frame is edited behind its first " + std::to_string(kEditBytes) + " bytes");
      }
      want_outcome[i] = frame_outcome(w);
      bytes_of[i] = resident_left(want_outcome[i], 5) ? w.packet.wire_length() : 0;
      if (bytes_of[i] != 0 && w.packet.paint != c)
        return Error("a frame of class " + std::to_string(c) + " is not of that class");
      chunk_bytes[i / o.chunk] += bytes_of[i];
    }
  }
  if (auto ok = memory->upload(lengths, all_lengths.data(), count * 4); !ok) return std::move(ok).error();

  PriorityPortReport report;
  report.groups = groups;
  e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (e != cudaSuccess) return cuda_error(e, "set a kernel's memory");
  kernel<<<groups, o.chunk, shared, *stream>>>(program, a);
  if (e = cudaGetLastError(); e != cudaSuccess) return cuda_error(e, "start a kernel");
  memory->resident_started();

  struct Fed {
    uint64_t handed = 0, back = 0;
    uint64_t word = 0;  // of the class's schedule, as one owner has it
    std::vector<uint64_t> at_ns;
    uint64_t last_departure = 0;
    int64_t credit = 0;
  };
  std::vector<Fed> fed(classes);
  for (Fed& f : fed) f.at_ns.resize(o.capacity);
  const bool shaped = !o.port.unlimited();
  const bool exact = o.port.rates[o.port.port()].unlimited();
  int64_t parts = 0;
  for (const uint32_t part : o.mix) parts += part;
  const auto check = [&](uint32_t c, uint64_t sequence, uint64_t word) {
    const size_t place = size_t{c} * o.capacity + (sequence & (o.capacity - 1));
    const uint64_t now = arrivals[place];
    uint64_t before = 0;
    for (size_t i = place * o.chunk; i < (place + 1) * o.chunk; ++i) {
      bool same = outcomes[i] == want_outcome[i] &&
                  std::memcmp(out + i * kEditBytes, want.data() + i * kFrameBytes, kEditBytes) == 0;
      if (shaped) {
        uint64_t at = ResidentPort::kLost;
        if (bytes_of[i] != 0)
          at = departure_in_chunk(o.port.rates[c], word, now, o.port.rates[c].units_at(now), before);
        before += bytes_of[i];
        // With a port's schedule the order of the classes' chunks is not known here.
        same &= exact ? departures[i] == at : departures[i] >= at;
        if (bytes_of[i] != 0) {
          same &= departures[i] >= fed[c].last_departure;
          fed[c].last_departure = departures[i];
        }
      }
      ++report.checked;
      report.wrong += same ? 0 : 1;
    }
  };
  uint32_t out_now = 0;
  bool failed = false;
  const auto collect = [&] {
    bool any = false;
    for (uint32_t c = 0; c < classes; ++c) {
      Fed& f = fed[c];
      // The delay commit: whatever is done behind the oldest waits for it.
      uint64_t end = f.back;
      while (end != f.handed &&
             __atomic_load_n(done + size_t{c} * o.capacity + (end & (o.capacity - 1)), __ATOMIC_ACQUIRE) == end + 1) {
        ++end;
      }
      if (end == f.back) continue;
      any = true;
      const uint64_t now = now_ns();  // when all of them had come
      for (; f.back != end; ++f.back) {
        const size_t slot = f.back & (o.capacity - 1);
        const size_t place = size_t{c} * o.capacity + slot;
        report.latency_ns[c].record(now - f.at_ns[slot]);
        if (o.check_every != 0 && f.back % o.check_every == 0) check(c, f.back, f.word);
        if (shaped) f.word = WordMap::of(o.port.rates[c], arrivals[place], chunk_bytes[place])(f.word);
        --out_now;
      }
    }
    return any;
  };
  const uint64_t start = now_ns();
  uint64_t heard = start;
  for (uint64_t now = start; !failed && (now - start < o.duration_ns || out_now != 0);) {
    bool more = false;
    const bool open = now - start < o.duration_ns;
    now = now_ns();
    while (open && out_now < o.in_flight) {
      // By smooth weighted round robin; a class whose ring is full holds the others up, as a wire does.
      uint32_t best = 0;
      for (uint32_t c = 1; c < classes; ++c) {
        if (fed[c].credit + o.mix[c] > fed[best].credit + o.mix[best]) best = c;
      }
      Fed& f = fed[best];
      if (f.handed - f.back >= o.capacity) break;
      for (uint32_t c = 0; c < classes; ++c) fed[c].credit += o.mix[c];
      f.credit -= parts;
      const size_t slot = f.handed & (o.capacity - 1);
      f.at_ns[slot] = now;
      arrivals[size_t{best} * o.capacity + slot] = f.at_ns[slot];
      line[best] = ++f.handed;
      ++out_now;
      more = true;
    }
    if (more) write_line(host_line, line);
    const bool any = collect();
    now = now_ns();
    if (any || more) heard = now;
    failed = now - heard > 2'000'000'000;
  }
  report.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  line[7] = 1;
  write_line(host_line, line);
  for (uint64_t since = now_ns(); (e = cudaStreamQuery(*stream)) == cudaErrorNotReady;) {
    if (now_ns() - since > 2'000'000'000) {
      // It may go on for ever: what it has is never freed.
      (void)owned.release();
      return Error("the device's groups do not stop");
    }
  }
  memory->resident_left();
  if (e != cudaSuccess) return cuda_error(e, "run a persistent kernel");
  if (failed) return Error("the device did not answer within two seconds");
  unsigned long long stolen = 0;
  if (auto ok = memory->download(&stolen, a.stolen, sizeof stolen); !ok) return std::move(ok).error();
  report.stolen = stolen;
  for (uint32_t c = 0; c < classes; ++c) {
    report.chunks[c] = fed[c].back;
    report.packets += fed[c].back * o.chunk;
  }
  return report;
}

}  // namespace sluice
