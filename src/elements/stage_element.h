// host only
// What most stage elements have in common: a stage value that `configure` fills and `bind` copies into its slot.
#pragma once

#include <memory>
#include <string_view>

#include "elements/stages.h"
#include "graph/element.h"

namespace sluice {

// For a stage without tables. A derived class fills `stage_` in configure().
template <typename Stage>
class StageElement : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override { return {Stage::kReads, Stage::kWrites}; }
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
