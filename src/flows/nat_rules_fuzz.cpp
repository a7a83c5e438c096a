// Any bytes as a NAT rule: no crash; what is accepted is read back as it was.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "flows/nat_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto rule = parse_nat_rule({reinterpret_cast<const char*>(data), size});
  if (!rule.ok()) return 0;
  const auto again = parse_nat_rule(to_string(*rule));
  if (!again.ok() || std::memcmp(&*again, &*rule, sizeof *rule) != 0) std::abort();
  return 0;
}
