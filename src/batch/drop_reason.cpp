#include "batch/drop_reason.h"

#include <cstddef>

namespace sluice {
namespace {

struct Row {
  DropReason reason;
  const char* name;
  const char* text;
};

constexpr Row kRows[] = {
#define SLUICE_DROP_REASON(enumerator, number, name, text) {DropReason::enumerator, name, text},
#include "batch/drop_reasons.inc"
#undef SLUICE_DROP_REASON
};
constexpr size_t kRowCount = sizeof(kRows) / sizeof(kRows[0]);

// Counters are indexed by reason and rows by number: no number is left out or used twice.
constexpr bool in_order() {
  for (size_t i = 0; i < kRowCount; ++i) {
    if (static_cast<size_t>(kRows[i].reason) != i) return false;
  }
  return kRowCount == static_cast<size_t>(DropReason::kCount);
}
static_assert(in_order(), "the numbers in drop_reasons.inc are 0, 1, 2, ...");

}  // namespace

const char* to_string(DropReason reason) {
  return reason < DropReason::kCount ? kRows[static_cast<size_t>(reason)].name : "?";
}

const char* describe(DropReason reason) {
  return reason < DropReason::kCount ? kRows[static_cast<size_t>(reason)].text : "unknown";
}

}  // namespace sluice
