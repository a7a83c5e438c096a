// host only
// What host elements share that judge packets one by one.
#pragma once

#include "graph/element.h"

namespace sluice {

// Forwards packets of which `judge(i)` says kNone by output 0. All others get what it says as their reason, and leave
// by output 1, or are dropped where the element has fewer than two `outputs`.
template <typename Judge>
void forward_by_verdict(HostContext& context, Batch& batch, const Selection& packets, unsigned outputs, Judge&& judge) {
  Selection good;
  Selection bad;
  packets.for_each([&](uint32_t i) {
    const DropReason why = judge(i);
    batch.annotation(i).reason = why;
    if (why == DropReason::kNone) {
      good.add(i);
    } else if (outputs > 1) {
      bad.add(i);
    } else {
      context.drop(batch, i, why);
    }
  });
  if (!good.empty()) context.forward(0, good);
  if (!bad.empty()) context.forward(1, bad);
}

}  // namespace sluice
