// host only
#include "exec/device/kernels_there.h"

#include <fmt/format.h>

#include <array>

#include "elements/stages.h"

namespace sluice {
namespace {

template <RecordKind K>
constexpr auto kStagesOf = [] {
  std::array<bool, AllStages::kSize> runs{};
  size_t i = 0;
  AllStages::for_each([&](auto tag) { runs[i++] = kCompiled<K, typename decltype(tag)::type>; });
  return runs;
}();

// Frame records bring no room for lanes to work together on one packet's bytes.
constexpr auto kAloneStages = [] {
  std::array<bool, AllStages::kSize> runs{};
  size_t i = 0;
  AllStages::for_each([&](auto tag) { runs[i++] = !device_detail::kCooperative<typename decltype(tag)::type>; });
  return runs;
}();

bool has_code(RecordKind kind, uint16_t stage) {
  switch (kind) {
    case RecordKind::kKey4:
      return kStagesOf<RecordKind::kKey4>[stage];
    case RecordKind::kKey6:
      return kStagesOf<RecordKind::kKey6>[stage];
    case RecordKind::kRoute4:
      return kStagesOf<RecordKind::kRoute4>[stage];
    case RecordKind::kFrame:
      return true;
  }
  return false;
}

}  // namespace

bool runs_on(RecordKind kind, const DeviceProgram& program) {
  if (program.begin >= program.end || program.end > program.program.stage_count || program.end > kMaxStages) {
    return false;
  }
  for (uint32_t s = program.begin; s < program.end; ++s) {
    const uint16_t stage = program.program.stages[s].kind;
    if (stage >= AllStages::kSize || !has_code(kind, stage)) return false;
    const bool sums = program.shape.sums != 0 && s + 1 == program.end;
    if (kind == RecordKind::kFrame && !kAloneStages[stage] && !sums) return false;
  }
  return kind != RecordKind::kRoute4 || program.end - program.begin == 1;
}

Result<void> check_program(RecordKind kind, const DeviceProgram& program) {
  if (!runs_on(kind, program)) {
    return Error(fmt::format("stages [{}, {}) of a program of {} do not run on {} records", program.begin, program.end,
                             program.program.stage_count, to_string(kind)));
  }
  const bool elsewhere = program.memory != TableMemory::kGlobal;
  const bool sums = kind == RecordKind::kFrame && program.shape.sums != 0;
  if (elsewhere && sums) {
    return Error(
        fmt::format("tables in {} memory: kernels that take frame records and sum them read global memory alone",
                    to_string(program.memory)),
        "use --table-memory global");
  }
  return {};
}

Result<void> check_shape(const ChannelShape& shape) {
  if (shape.capacity < 32 || (shape.capacity & (shape.capacity - 1)) != 0) {
    return Error(fmt::format("a channel of {} records: it must be a power of two, at least 32", shape.capacity));
  }
  return {};
}

Result<void> check_slabs(const ChannelShape& shape, Transport transport, DeviceMode mode) {
  if (transport == Transport::kTagged) return Error("slabs do not go by the tagged transport: it is the rings'");
  if (mode != DeviceMode::kLaunch && shape.record.kind != RecordKind::kFrame)
    return Error("servers take slabs of frame records alone");
  return check_shape(shape);
}

Result<void> check_ring(const ChannelShape& shape) {
  if (shape.record.kind == RecordKind::kFrame) return Error("rings take no frame records: these go by slabs");
  return check_shape(shape);
}

}  // namespace sluice
