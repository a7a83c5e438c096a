// Any bytes as the output of iptables-save: no crash; what is accepted is valid and survives a round trip through the
// native language.
#include <cstddef>
#include <cstdint>

#include "formats/iptables_rules.h"
#include "formats/rules_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto set = parse_iptables_rules({reinterpret_cast<const char*>(data), size}, "fuzz");
  set ? check_accepted(*set) : check_refused(set.error());
  return 0;
}
