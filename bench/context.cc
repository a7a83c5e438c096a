// What stored results of a benchmark program need to know about it, in google-benchmark's JSON:
// scripts/store_result.py. host only
#include <benchmark/benchmark.h>

#include <string>

namespace sluice {
extern const char kRevision[];
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang++ " __clang_version__;
#else
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

const bool g_said = [] {
  benchmark::AddCustomContext("revision", kRevision);
  benchmark::AddCustomContext("compiler", compiler());
  return true;
}();

}  // namespace
}  // namespace sluice
