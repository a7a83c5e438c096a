// Addresses as text, for `sluice route --addresses`.
//
//   192.0.2.1      one per line; blanks around it and blank lines are skipped, # to the end of the line is a comment
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/types.h"

namespace sluice {

// In order. Errors: every line that holds something else (the first Diagnostics::kLimit in full).
Result<std::vector<IpAddress>> parse_addresses(std::string_view text, const std::string& file);

}  // namespace sluice
