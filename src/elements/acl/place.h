// host only
// Puts the stage of an access list's image into a slot.
#pragma once

#include <type_traits>

#include "elements/acl/stage.h"
#include "elements/stage_element.h"

namespace sluice {

struct AclStageOptions {
  bool permit_by_default = false;
  bool output_is_mark = false;
};

namespace detail {

template <typename... Algorithms>
Result<void> place_acl_of(AclAlgorithmList<Algorithms...>, const Image& image, const AclStageOptions& options,
                          StageSlot& slot) {
  auto actions = AclActionsView::open(image);
  if (!actions) return std::move(actions).error();
  const std::string_view name = acl_image_algorithm(image);
  Result<void> result =
      Error("the ACL image's algorithm is unknown to this program", "make it again with `sluice compile`");
  auto try_one = [&]<typename A>(std::type_identity<A>) {
    if (name != A::kName) return;
    auto view = A::View::open(image);
    if (!view) {
      result = std::move(view).error();
      return;
    }
    AclStage<typename A::View> stage;
    stage.view = *view;
    stage.actions = *actions;
    stage.permit_by_default = options.permit_by_default ? 1 : 0;
    stage.output_is_mark = options.output_is_mark ? 1 : 0;
    place(slot, stage);
    result = {};
  };
  (try_one(std::type_identity<Algorithms>{}), ...);
  return result;
}

}  // namespace detail

// Errors: an algorithm that this program does not know, a damaged image.
inline Result<void> place_acl(const Image& image, const AclStageOptions& options, StageSlot& slot) {
  return detail::place_acl_of(AclAlgorithms{}, image, options, slot);
}

}  // namespace sluice
