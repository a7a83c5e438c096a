#include "exec/cuda/kernels.h"

#include "exec/cuda/chains.h"
#include "exec/cuda/frame_chains.h"

namespace sluice {

namespace {

const void* kernel_in(RecordKind kind, TableMemory memory) {
  switch (kind) {
    case RecordKind::kKey4:
      return kernels_detail::launch_key4_in(memory);
    case RecordKind::kKey6:
      return kernels_detail::launch_key6_in(memory);
    case RecordKind::kRoute4:
      return kernels_detail::launch_route4_in(memory);
    case RecordKind::kFrame:
      return kernels_detail::launch_frame_in(memory);
  }
  return nullptr;
}

}  // namespace

std::vector<const void*> constant_banks() {
  using namespace kernels_detail;
  return {constant_bank_key4(), constant_bank_key6(), constant_bank_route4(), constant_bank_frame()};
}

const void* launch_kernel(RecordKind kind, uint8_t chain, TableMemory memory) {
  if (memory != TableMemory::kGlobal) return kernel_in(kind, memory);
  switch (kind) {
    case RecordKind::kKey4:
      return kernels_detail::launch_key4(chain);
    case RecordKind::kKey6:
      return kernels_detail::launch_key6(chain);
    case RecordKind::kRoute4:
      return kernels_detail::launch_route4(chain);
    case RecordKind::kFrame:
      return kernels_detail::launch_frame(chain);
  }
  return nullptr;
}

const void* serve_frames_kernel(uint8_t chain) {
  return kernels_detail::serve_frames(chain);
}

const void* ring_team_kernel() {
  return kernels_detail::ring_team4();
}

const void* ring_kernel(RecordKind kind) {
  switch (kind) {
    case RecordKind::kKey4:
      return kernels_detail::ring_key4();
    case RecordKind::kKey6:
      return kernels_detail::ring_key6();
    case RecordKind::kRoute4:
      return kernels_detail::ring_route4();
    case RecordKind::kFrame:
      return nullptr;  // flights of frames go by slabs alone
  }
  return nullptr;
}

std::vector<const void*> all_kernels() {
  std::vector<const void*> all;
  for (RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4}) {
    for (uint8_t chain = 0; chain <= kChains; ++chain) all.push_back(launch_kernel(kind, chain, TableMemory::kGlobal));
    all.push_back(ring_kernel(kind));
  }
  for (uint8_t chain = 0; chain <= kFrameChains; ++chain) {
    all.push_back(launch_kernel(RecordKind::kFrame, chain, TableMemory::kGlobal));
    all.push_back(serve_frames_kernel(chain));
  }
  all.push_back(ring_team_kernel());
  for (RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4, RecordKind::kFrame}) {
    for (TableMemory memory : {TableMemory::kConstant, TableMemory::kShared}) all.push_back(kernel_in(kind, memory));
  }
  return all;
}

}  // namespace sluice
