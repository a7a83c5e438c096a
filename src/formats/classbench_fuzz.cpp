// Any bytes as ClassBench rules: no crash; what is accepted is valid and survives a round trip.
#include <cstdlib>

#include "formats/classbench.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto set = parse_classbench({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!set) return to_string(set.error()).empty() ? (std::abort(), 0) : 0;
  if (!check_rule_set(*set).ok()) std::abort();
  const auto text = to_classbench(*set);
  if (!text) std::abort();
  const auto again = parse_classbench(*text, "again");
  if (!again || again->rules.size() != set->rules.size()) std::abort();
  for (size_t i = 0; i < set->rules.size(); ++i) {
    if (!same_match(flatten(set->rules[i], 1), flatten(again->rules[i], 1))) std::abort();
  }
  return 0;
}
