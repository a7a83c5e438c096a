// Any bytes as native rules: no crash; what is accepted is valid and survives a round trip. An include reads the same
// text again, so that the limits of includes are met.
#include <algorithm>
#include <cstddef>

#include "formats/rules_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The reader's allowance keeps one input short; the parser's own limits are far above it.
  check_readings([&](const StateReading& states) {
    size_t allowance = 20;
    const IncludeReader reader = [&](const std::string& path) -> Result<std::string> {
      if (path.size() > 3 || allowance == 0) return Error("cannot open");
      --allowance;
      return std::string(text.substr(0, std::min<size_t>(text.size(), 4096)));
    };
    return parse_native_rules(text, "fuzz", reader, kMaxNativeRules, states);
  });
  return 0;
}
