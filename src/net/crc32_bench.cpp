// Bytes a second of each CRC-32, over frames that stand in the second-level cache; zlib and ISA-L beside them. What
// does not give the bitwise definition's value is not timed.
#include <benchmark/benchmark.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "net/crc32_host.h"

#if defined(SLUICE_HAVE_ISAL)
#include <isa-l/crc.h>
#endif

namespace sluice {
namespace {

constexpr size_t kWorkingSet = size_t{128} << 10;

template <typename Crc>
void frames(benchmark::State& state, Crc32Mode mode, Crc crc) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const size_t stride = (bytes + 63) / 64 * 64;
  const size_t count = kWorkingSet / stride;
  std::vector<uint8_t> memory(count * stride);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* frame = memory.data() + i * stride;
    const uint32_t got = crc(frame, bytes);
    const uint32_t want = crc32_bitwise(mode, kCrc32Start, frame, static_cast<uint32_t>(bytes));
    // The libraries invert the register at the end.
    if (got != want && ~got != want) return state.SkipWithError("a checksum differs from the bitwise definition's");
  }
  uint32_t sum = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < count; ++i) sum ^= crc(memory.data() + i * stride, bytes);
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(count * bytes));
}

template <typename Crc>
void add(const std::string& name, Crc32Mode mode, Crc crc) {
  benchmark::RegisterBenchmark(("crc32/" + name).c_str(), [mode, crc](benchmark::State& state) {
    frames(state, mode, crc);
  })->ArgsProduct({{64, 128, 256, 512, 1024, 1518, 9000}});
}

const bool kAdded = [] {
  for (const Crc32KernelName& k : crc32_kernels()) {
    const Crc32Kernel kernel = k.kernel;
    add(std::string(k.name) + "/click", Crc32Mode::kClick,
        [kernel](const uint8_t* data, size_t n) { return kernel(Crc32Mode::kClick, kCrc32Start, data, n); });
    add(std::string(k.name) + "/fcs", Crc32Mode::kFcs,
        [kernel](const uint8_t* data, size_t n) { return kernel(Crc32Mode::kFcs, kCrc32Start, data, n); });
  }
  add("zlib/fcs", Crc32Mode::kFcs,
      [](const uint8_t* data, size_t n) { return static_cast<uint32_t>(::crc32(0, data, static_cast<unsigned>(n))); });
#if defined(SLUICE_HAVE_ISAL)
  add("isal/fcs", Crc32Mode::kFcs, [](const uint8_t* data, size_t n) { return crc32_gzip_refl(0, data, n); });
  add("isal/click", Crc32Mode::kClick,
      [](const uint8_t* data, size_t n) { return crc32_ieee(0, const_cast<uint8_t*>(data), n); });
#endif
  return true;
}();

}  // namespace
}  // namespace sluice
