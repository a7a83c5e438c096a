// Any bytes as the output of iptables-save: no crash; what is accepted is valid and survives a round trip through the
// native language.
#include <cstddef>
#include <cstdint>

#include "formats/iptables_rules.h"
#include "formats/rules_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_readings([&](const StateReading& states) { return parse_iptables_rules(text, "fuzz", {}, states); });
  return 0;
}
