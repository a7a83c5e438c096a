// host only
// CRC-32 on the host as fast as the processor allows: carry-less multiplication where it is there, Arm's own
// instruction.
//
// A block of 16 bytes that has d bits behind it counts for block * x^d. So the sum over a frame is one product of a
// block and x^d mod P each, all of them independent: constants by distance, no chain from block to block, and no
// combining of accumulators. Long inputs are folded first (Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel, 2009), four blocks at a time, so that the constants stay few. A last block that
// is not full is filled with zeros and the sum divided by x^(8 zeros), which is one more constant: x has an inverse
// modulo P.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "net/crc32.h"

namespace sluice {

// The register after `bytes` more bytes: any length, any alignment; nothing outside [data, data + bytes) is read. Equal
// to crc32_update.
using Crc32Kernel = uint32_t (*)(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes);

struct Crc32KernelName {
  const char* name;  // "table", "pclmul", "vpclmul"; on Arm "table", "crc32"
  Crc32Kernel kernel;
};

// What this processor can run, slowest first; never empty.
std::span<const Crc32KernelName> crc32_kernels();

// crc32_host (net/crc32.h) is the last of them.

}  // namespace sluice
