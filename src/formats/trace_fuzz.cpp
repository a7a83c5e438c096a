// Any bytes as a ClassBench trace: no crash; what is accepted survives a round trip.
#include <cstdlib>

#include "formats/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto keys = parse_trace({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!keys) return to_string(keys.error()).empty() ? (std::abort(), 0) : 0;
  const auto text = to_trace(*keys);
  if (!text) std::abort();
  const auto again = parse_trace(*text, "again");
  if (!again || *again != *keys) std::abort();
  return 0;
}
