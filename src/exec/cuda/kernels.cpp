#include "exec/cuda/kernels.h"

#include "exec/cuda/chains.h"
#include "exec/cuda/frame_chains.h"

namespace sluice {

const void* launch_kernel(RecordKind kind, uint8_t chain) {
  switch (kind) {
    case RecordKind::kKey4:
      return kernels_detail::launch_key4(chain);
    case RecordKind::kKey6:
      return kernels_detail::launch_key6(chain);
    case RecordKind::kRoute4:
      return kernels_detail::launch_route4(chain);
    case RecordKind::kHeader:
      return kernels_detail::launch_header();
    case RecordKind::kAddress:
      return kernels_detail::launch_address();
    case RecordKind::kFrame:
      return kernels_detail::launch_frame(chain);
  }
  return nullptr;
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
    case RecordKind::kHeader:
      return kernels_detail::ring_header();
    case RecordKind::kAddress:
      return kernels_detail::ring_address();
    case RecordKind::kFrame:
      return nullptr;  // flights of frames go by slabs alone
  }
  return nullptr;
}

std::vector<const void*> all_kernels() {
  std::vector<const void*> all;
  for (RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4}) {
    for (uint8_t chain = 0; chain <= kChains; ++chain) all.push_back(launch_kernel(kind, chain));
  }
  for (uint8_t chain = 0; chain <= kFrameChains; ++chain) all.push_back(launch_kernel(RecordKind::kFrame, chain));
  for (RecordKind kind : {RecordKind::kHeader, RecordKind::kAddress}) all.push_back(launch_kernel(kind, 0));
  for (RecordKind kind :
       {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4, RecordKind::kHeader, RecordKind::kAddress}) {
    all.push_back(ring_kernel(kind));
  }
  all.push_back(ring_team_kernel());
  return all;
}

}  // namespace sluice
