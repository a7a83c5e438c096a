// Why a packet did not leave: a closed list with stable numbers (drop_reasons.inc), counted per element.
#pragma once

#include <cstdint>

namespace sluice {

// Whatever stores a reason has room for every value of the type.
enum class DropReason : uint8_t {
#define SLUICE_DROP_REASON(enumerator, number, name, text) enumerator = number,
#include "batch/drop_reasons.inc"
#undef SLUICE_DROP_REASON
  kCount
};

// The name used in statistics and documents, e.g. "ttl-expired"; "?" for a number out of range.
const char* to_string(DropReason reason);
// One sentence for the reference page.
const char* describe(DropReason reason);

}  // namespace sluice
