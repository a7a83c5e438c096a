// Any bytes as native rules: no crash; what is accepted is valid and survives a round trip. An include reads the same
// text again, so that the limits of includes are met.
#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "formats/native_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The reader's allowance keeps one input short; the parser's own limits are far above it.
  size_t allowance = 20;
  const auto set = parse_native_rules(text, "fuzz", [&](const std::string& path) -> Result<std::string> {
    if (path.size() > 3 || allowance == 0) return Error("cannot open");
    --allowance;
    return std::string(text.substr(0, std::min<size_t>(text.size(), 4096)));
  });
  if (!set) return to_string(set.error()).empty() ? (std::abort(), 0) : 0;
  if (!check_rule_set(*set).ok()) std::abort();
  RuleSet some;
  some.files = set->files;
  some.rules.assign(set->rules.begin(),
                    set->rules.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(set->rules.size(), 500)));
  const auto again = parse_native_rules(to_native(some), "again");
  if (!again || again->rules.size() != some.rules.size()) std::abort();
  for (size_t i = 0; i < some.rules.size(); ++i) {
    if (!same_match(flatten(some.rules[i], 1), flatten(again->rules[i], 1))) std::abort();
    if (some.rules[i].verb != again->rules[i].verb || some.rules[i].log != again->rules[i].log) std::abort();
  }
  return 0;
}
