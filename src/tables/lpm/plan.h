// What an LPM builder hands to the image assembler, and what every view's bulk lookup can be asked for. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace sluice {

// A FIB that is ready to be written: its exact size, and a function that fills that many zeroed, 64-byte-aligned bytes.
// The function may refer to the Rib that it was planned from.
struct FibPlan {
  size_t bytes = 0;
  uint32_t layout_version = 1;
  std::function<void(std::span<std::byte>)> write;
};

// The instruction sets of bulk lookups. All of them give the same results.
enum class LpmIsa : uint8_t { kScalar, kAvx2, kAvx512 };
const char* to_string(LpmIsa isa);
// Those that this processor runs, scalar first.
const std::vector<LpmIsa>& available_lpm_isas();

}  // namespace sluice
