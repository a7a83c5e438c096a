// host only
// What most stage elements have in common: a stage value that `configure` fills and `bind` copies into its slot.
#pragma once

#include <memory>
#include <string_view>

#include "elements/record_needs.h"
#include "elements/stage_kind.h"
#include "graph/element.h"

namespace sluice {

// What a stage type says of itself.
template <typename Stage>
constexpr StageTraits traits_of() {
  StageTraits traits{Stage::kReads, Stage::kWrites};
  if constexpr (requires { Stage::kFrameUse; }) {
    traits.frame = Stage::kFrameUse;
  } else if ((Stage::kReads & kFieldFrame) == 0 && (Stage::kWrites & (kFieldFrame | kFieldExtent)) == 0) {
    traits.frame = FrameUse::kNone;
  }
  if constexpr (requires { Stage::kWritesBefore; }) traits.writes_before = Stage::kWritesBefore;
  traits.on_keys = kRunsOnKeys<Stage>;
  return traits;
}

// For a stage without tables. A derived class fills `stage_` in configure().
template <typename Stage>
class StageElement : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override { return traits_of<Stage>(); }
  Result<void> bind(const TableSet&, StageSlot& slot) const override {
    place(slot, stage_);
    return {};
  }

 protected:
  Stage stage_{};
};

// A factory for ElementClass::make of a class that does not care which name it was called by.
template <typename T>
std::function<std::unique_ptr<Element>(std::string_view)> make_element() {
  return [](std::string_view) { return std::make_unique<T>(); };
}

}  // namespace sluice
