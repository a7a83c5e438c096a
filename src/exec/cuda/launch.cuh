// The launch kernel of keys: a lane a record of a slab. Instantiated once a record kind and chain.
#pragma once

#include "exec/cuda/walk.cuh"

namespace sluice::cuda_walk {

__device__ __forceinline__ uint32_t record_count(const LaunchArguments& a) {
  return a.count_at != nullptr ? *a.count_at : a.count;
}

// A warp's records, of which this lane has `record`.
template <RecordKind K, typename Chain, typename Tables>
__device__ __forceinline__ void take_records(const DeviceProgram& program, const LaunchArguments& a, uint32_t count,
                                             uint32_t record, const Tables& tables) {
  const uint32_t lane = threadIdx.x & 31;
  const uint32_t first = record - lane;
  if (first >= count) return;
  const bool here = record < count;
  constexpr uint32_t kWords = words_in(K);
  Word words[kWords];
#pragma unroll
  // A lane past the end reads the last record, and does nothing with it: cheaper than a second path.
  for (uint32_t i = 0; i < kWords; ++i) words[i] = load_plain(a.in + size_t{here ? record : count - 1} * kWords + i);
  const uint32_t tag = word_tag(words[0]);
  if constexpr (K == RecordKind::kRoute4) {
    uint64_t result = uint64_t{tag} << 57;
#pragma unroll 1
    for (uint32_t i = 0; i < kRoutesPerRecord; ++i) {
      Walker one;
      read_route(program, words[0], i, one);
      if (!here) one.path = kPathDropped;
      walk_warp<K, Chain>(program, one, tables);
      result |= route_part(one.packet.next_hop, i);
    }
    if (here) reinterpret_cast<uint64_t*>(a.out)[record] = result;
  } else {
    Walker w;
    read_key<K>(program, words, w);
    if (!here) w.path = kPathDropped;
    walk_warp<K, Chain>(program, w, tables);
    if (here) reinterpret_cast<uint64_t*>(a.out)[record] = key_result(w, tag);
  }
}

template <RecordKind K, typename Chain>
__global__ void __launch_bounds__(launch_threads(K))
    launch(const __grid_constant__ DeviceProgram program, const __grid_constant__ LaunchArguments a) {
  take_records<K, Chain>(program, a, record_count(a), blockIdx.x * blockDim.x + threadIdx.x, GlobalTables{});
}

}  // namespace sluice::cuda_walk
