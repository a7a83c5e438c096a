// Which kernels a device has: what runs on records of each kind, in which mode, with tables in which memory. One answer
// for all devices: CUDA kernels are compiled by it, emulated devices refuse by it, and it is asked before a run starts.
#pragma once

#include "base/result.h"
#include "elements/record_needs.h"
#include "exec/device/body.h"
#include "exec/device/device.h"

namespace sluice {

// Whether kernels of records of this kind have code for a stage type. Those of frames have it for stages that sum whole
// frames as the last of a program alone (RecordShape::sums).
template <RecordKind K, typename Stage>
inline constexpr bool kCompiled =
    K == RecordKind::kRoute4 ? kRunsOnDestinations<Stage> : !is_key(K) || kRunsOnKeys<Stage>;

// Whether every stage of [begin, end) can run on a record of this kind, and the range is one. Host.
bool runs_on(RecordKind kind, const DeviceProgram& program);

// Whether a kernel takes records of this kind through this program, its tables being in the memory that it names.
// Errors: none does. Host.
Result<void> check_program(RecordKind kind, const DeviceProgram& program);

// Whether slabs of this shape can be made, of whose records there are `capacity`. Errors: what is wrong. Host.
Result<void> check_shape(const ChannelShape& shape);
Result<void> check_slabs(const ChannelShape& shape, Transport transport, DeviceMode mode);
// The same of a ring: flights of frames go by slabs alone.
Result<void> check_ring(const ChannelShape& shape);

}  // namespace sluice
