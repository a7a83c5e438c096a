// Frames by blocks that stay: the first forwards the host's work to the device's memory, the others take it in units.
#include "exec/cuda/launch_frame.cuh"
#include "exec/cuda/ring_program.cuh"

namespace sluice {
namespace {

using namespace cuda_walk;

constexpr uint32_t kWorkWords = WorkBoard<FrameWork>::kWords;
static_assert(kWorkWords <= 32 && sizeof(FrameWork) % 16 == 0 && offsetof(FrameWorkPlaces, entries) % 16 == 0);
constexpr uint32_t kNoUnit = ~0u;

__device__ __forceinline__ void fence_gpu() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
__device__ __forceinline__ uint64_t load_claim(const uint64_t* from) {
  uint64_t v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}

// The first warp of the first block. A look at the host's memory is a round trip over the bus, so that one look is for
// the next kAhead entries, and what came of them goes on together. What the host wrote before an entry happened before
// the claim word is there: words are found by relaxed loads, a fence follows, and the claim word is a release.
__device__ void forward_work(const ServeArguments& s, uint4* shared) {
  constexpr uint32_t kAhead = 4;
  const uint32_t lane = threadIdx.x & 31;
  auto* const words = reinterpret_cast<Word*>(shared);
  uint32_t idle = 0;
  bool stopping = false;
  for (uint32_t number = s.next;;) {
    Word ahead[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      ahead[k] = Word{};
      if (lane < kWorkWords) ahead[k] = DeviceWords::load(&s.board->words[work_place(number + k)][lane]);
    }
    const uint32_t stop = __shfl_sync(kAll, load_relaxed_sys(&s.board->stop), 0);
    uint32_t came = 0;
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      const bool whole = __all_sync(kAll, lane >= kWorkWords || word_tag(ahead[k]) == work_tag(number + k));
      if (whole && came == k) ++came;
    }
    if (came == 0) {
      // What was posted before the order to stop is found by the look after it.
      if (stopping) break;
      if (stop == s.number) {
        fence_sys();
        stopping = true;
        continue;
      }
      // After some milliseconds without work there are fewer looks.
      if (++idle > 4096) __nanosleep(1000);
      continue;
    }
    idle = 0;
    fence_sys();
#pragma unroll
    for (uint32_t k = 0; k < kAhead; ++k) {
      if (k < came && lane < kWorkWords) store_plain(words + k * 32 + lane, ahead[k]);
    }
    __syncwarp();
#pragma unroll 1
    for (uint32_t k = 0; k < came; ++k) {
      const uint32_t place = work_place(number + k);
      const auto* const bytes = reinterpret_cast<const uint8_t*>(words + k * 32);
      auto* const entry = reinterpret_cast<uint32_t*>(&s.places->entries[place]);
      for (uint32_t i = lane; i < sizeof(FrameWork) / 4; i += 32) {
        uint32_t v = 0;
        for (uint32_t b = 0; b < 4; ++b) {
          const uint32_t at = 4 * i + b;
          v |= uint32_t{bytes[at / kWordPayload * 16 + at % kWordPayload]} << 8 * b;
        }
        entry[i] = v;
      }
      if (lane == 0) s.places->came[place] = global_ns();
    }
    fence_gpu();
    __syncwarp();
#pragma unroll 1
    for (uint32_t k = 0; k < came; ++k, ++number) {
      if (lane != 0) continue;
      const FrameWork& entry = s.places->entries[work_place(number)];
      // Copies come in the order in which they were asked for, and the host waits for entries in theirs.
      if (entry.copied != nullptr) {
        while (load_acquire_sys(entry.copied) != entry.copied_serial) __nanosleep(100);
      }
      const uint64_t claim = make_claim(number, entry.units);
      asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(&s.places->claims[work_place(number)]), "l"(claim)
                   : "memory");
    }
    __syncwarp();
  }
  if (lane == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&s.places->stop), "r"(s.number) : "memory");
}

// A unit, and the place of its entry; kNoUnit: the servers leave. One thread of a block. The fence is an acquire of all
// that happened before the claim word was published, for all threads behind the next barrier, and nothing that is read
// then is older in this processor's cache.
__device__ __forceinline__ uint2 take_unit(const ServeArguments& s, uint32_t& next) {
  for (uint32_t polls = 0;;) {
    const uint32_t place = work_place(next);
    uint64_t claim = load_claim(&s.places->claims[place]);
    if (!has_come(claim, next)) {
      uint32_t stop;
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(stop) : "l"(&s.places->stop) : "memory");
      if (stop == s.number) {
        if (!has_come(load_claim(&s.places->claims[place]), next)) return make_uint2(kNoUnit, 0);
        continue;
      }
      if (++polls > 16) __nanosleep(polls < 4096 ? 100 : 1000);
      continue;
    }
    if (has_units(claim)) claim = atomicAdd(reinterpret_cast<unsigned long long*>(&s.places->claims[place]), 1ull);
    if (has_units(claim)) {
      fence_gpu();
      return make_uint2(claimed_unit(claim), place);
    }
    ++next;
  }
}

template <typename Chain>
__global__ void __launch_bounds__(launch_threads(RecordKind::kFrame))
    serve_frames_of(const __grid_constant__ ServeArguments s) {
  extern __shared__ uint4 shared[];
  __shared__ uint2 taken;
  if (blockIdx.x == 0) {
    if (threadIdx.x < 32) forward_work(s, shared);
    return;
  }
  auto* const work = reinterpret_cast<FrameWork*>(reinterpret_cast<uint8_t*>(shared) + serve_work_at());
  auto* const program = reinterpret_cast<DeviceProgram*>(reinterpret_cast<uint8_t*>(shared) + serve_program_at());
  uint32_t next = s.next, program_number = 0;
#pragma unroll 1
  for (;;) {
    if (threadIdx.x == 0) taken = take_unit(s, next);
    __syncthreads();
    const uint2 unit = taken;
    if (unit.x == kNoUnit) return;
    const auto* const entry = reinterpret_cast<const uint4*>(&s.places->entries[unit.y]);
    for (uint32_t i = threadIdx.x; i < sizeof(FrameWork) / 16; i += blockDim.x)
      reinterpret_cast<uint4*>(work)[i] = __ldcg(entry + i);
    __syncthreads();
    if (work->program_number != program_number) {
      program_number = work->program_number;
      if (threadIdx.x < 32) take_program(work->program, program, threadIdx.x);
      __syncthreads();
    }
    take_all_frames<Chain>(*program, work->a, unit.x, work->units, shared, GlobalTables{});
  }
}

}  // namespace

namespace kernels_detail {

const void* serve_frames(uint8_t chain) {
  static const auto kernels = frame_kernels(
      []<typename Chain>(TypeTag<Chain>) { return reinterpret_cast<const void*>(&serve_frames_of<Chain>); });
  return chain < kernels.size() ? kernels[chain] : kernels[0];
}

}  // namespace kernels_detail
}  // namespace sluice
