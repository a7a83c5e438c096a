// For fuzz targets of rule readers: what every set that a reader accepts must bear.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "formats/native_rules.h"

namespace sluice {

// It is valid, and the native text of its rules reads back to the same rules (of a large set, the first 500).
inline void check_accepted(const RuleSet& set) {
  if (!check_rule_set(set).ok()) std::abort();
  RuleSet some;
  some.files = set.files;
  some.rules.assign(set.rules.begin(),
                    set.rules.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(set.rules.size(), 500)));
  const auto again = parse_native_rules(to_native(some), "again", {}, nullptr, {.keeps = true});
  if (!again || again->rules.size() != some.rules.size()) std::abort();
  for (size_t i = 0; i < some.rules.size(); ++i) {
    if (!same_match(flatten(some.rules[i], 1), flatten(again->rules[i], 1))) std::abort();
    if (some.rules[i].verb != again->rules[i].verb || some.rules[i].mark != again->rules[i].mark ||
        some.rules[i].log != again->rules[i].log || some.rules[i].keep != again->rules[i].keep) {
      std::abort();
    }
  }
}

// A refusal says why.
inline void check_refused(const Error& error) {
  if (to_string(error).empty()) std::abort();
}

// Reads without a state, and for each state what looks at one; without one, such a text is refused.
template <typename Read>
void check_readings(Read read) {
  bool stateful = false;
  const auto check = [](const Result<RuleSet>& set) { set.ok() ? check_accepted(*set) : check_refused(set.error()); };
  const Result<RuleSet> whole = read(StateReading{.stateful = &stateful});
  check(whole);
  if (!stateful) return;
  if (whole.ok()) std::abort();
  for (const auto& named : kConnStates) {
    bool again = false;
    check(read(StateReading{.state = static_cast<ConnState>(named.value), .stateful = &again}));
    if (!again) std::abort();
  }
}

}  // namespace sluice
