// host only
// The functions of scripts: arithmetic, comparison and text, by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Their names, in the order of the reference page.
std::span<const std::string_view> script_functions();
// Errors: no such function, or arguments that it cannot take. `arguments` are words between blanks; quotes keep a word
// together and are removed where a function looks at one.
Result<std::string> call_script_function(std::string_view name, std::string_view arguments);

// A condition as scripts write it: true, yes, 1 or another number that is not 0; false, no, 0 or nothing.
Result<bool> script_truth(std::string_view text);

}  // namespace sluice
