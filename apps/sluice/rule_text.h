// How reports name a rule: its position, its place in the file, its text.
// host only
#pragma once

#include <cstdint>
#include <string>

#include "inputs.h"

namespace sluice::app {

// {"rule", "action"} and, where they are known, "file", "line" and "text": the line as the file has it today, or the
// rule in the native language where that line is too long to be shown.
Json rule_json(const LoadedAcl& acl, uint32_t rule);

}  // namespace sluice::app
