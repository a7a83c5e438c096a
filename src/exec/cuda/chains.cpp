#include "exec/cuda/chains.h"

#include <array>

#include "exec/cuda/frame_chains.h"

namespace sluice {
namespace {

template <typename... Stages>
bool is_chain(const DeviceProgram& program, TypeTag<TypeList<Stages...>>) {
  if (program.end - program.begin != static_cast<int>(sizeof...(Stages))) return false;
  uint32_t s = program.begin;
  return ((program.program.stages[s++].kind == kStageKind<Stages>)&&...);
}

template <typename Stage>
constexpr bool kTakesTeams = requires(const Stage& stage, Packet& packet) {
  stage.team(OneLane{}, packet);
};

constexpr auto kRuleStages = [] {
  std::array<bool, AllStages::kSize> finds{};
  size_t i = 0;
  AllStages::for_each([&](auto tag) { finds[i++] = (decltype(tag)::type::kWrites & kFieldRule) != 0; });
  return finds;
}();

constexpr auto kTeamStages = [] {
  std::array<bool, AllStages::kSize> takes{};
  size_t i = 0;
  AllStages::for_each([&](auto tag) { takes[i++] = kTakesTeams<typename decltype(tag)::type>; });
  return takes;
}();

}  // namespace

uint8_t chain_of(const DeviceProgram& program) {
  uint8_t found = 0;
  uint8_t number = 0;
  const auto look = [&](auto tag) {
    ++number;
    if (found == 0 && is_chain(program, tag)) found = number;
  };
  if (program.shape.sums != 0 && program.shape.kind == RecordKind::kFrame) return kFrameChains;
  if (program.shape.kind == RecordKind::kFrame) {
    AllFrameChains::for_each(look);
  } else {
    AllChains::for_each(look);
  }
  return found;
}

namespace {
bool any_of(const DeviceProgram& program, const std::array<bool, AllStages::kSize>& stages) {
  for (uint32_t s = program.begin; s < program.end; ++s) {
    if (stages[program.program.stages[s].kind]) return true;
  }
  return false;
}
}  // namespace

bool finds_rules(const DeviceProgram& program) {
  return any_of(program, kRuleStages);
}
bool gains_by_teams(const DeviceProgram& program) {
  return any_of(program, kTeamStages);
}

}  // namespace sluice
