// host only
#include "elements/stages.h"

#include <array>

namespace sluice {

template <typename Stage>
uint16_t stage_kind() {
  return kStageKind<Stage>;
}

namespace {

// Makes one function for each stage of the list, for the files that only see its declaration.
template <typename... Stages>
constexpr auto kinds_of(TypeList<Stages...>) {
  return std::array<uint16_t (*)(), sizeof...(Stages)>{&stage_kind<Stages>...};
}
[[gnu::used]] constinit const auto kKinds = kinds_of(AllStages{});

}  // namespace
}  // namespace sluice
