// host only
#include "exec/engine/batch_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

Result<void> apply_batch_rules(const Router& router, RunOptions& options) {
  const Element* exact = nullptr;
  const Element* least = nullptr;
  Error errors;
  auto conflict = [&](const Element& a, const Element& b) {
    Diagnostic d = a.diagnostic(fmt::format("'{}' asks for batches of {} packets and '{}' for {}", a.name,
                                            a.batch_rule().least, b.name, b.batch_rule().least));
    d.suggestion = "the batch size applies to the whole graph";
    errors.diagnostics.push_back(std::move(d));
  };
  for (const auto& element : router.elements) {
    const Element::BatchRule rule = element->batch_rule();
    if (rule.least == 0) continue;
    if (!rule.exact) {
      if (least == nullptr || rule.least > least->batch_rule().least) least = element.get();
    } else if (exact == nullptr) {
      exact = element.get();
    } else if (rule.least != exact->batch_rule().least) {
      conflict(*element, *exact);
    }
  }
  if (exact != nullptr && least != nullptr && least->batch_rule().least > exact->batch_rule().least)
    conflict(*least, *exact);
  if (!errors.diagnostics.empty()) {
    errors.message = "the elements do not agree on batches";
    return errors;
  }
  if (exact != nullptr) {
    options.batch = options.least_batch = exact->batch_rule().least;
  } else if (least != nullptr) {
    options.least_batch = least->batch_rule().least;
    options.batch = std::max(options.batch, options.least_batch);
  }
  return {};
}

}  // namespace sluice
