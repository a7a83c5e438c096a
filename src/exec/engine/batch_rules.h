// host only
// What the elements of a graph ask of batches (MinBatch, ConstantBatch), as options of its run.
#pragma once

#include "base/result.h"
#include "exec/engine/run.h"
#include "graph/router.h"

namespace sluice {

// Makes options.batch and options.least_batch what the elements ask for. Errors: two elements ask for exactly so many
// packets, and not for the same; one asks for more than another one's exactly.
Result<void> apply_batch_rules(const Router& router, RunOptions& options);

}  // namespace sluice
