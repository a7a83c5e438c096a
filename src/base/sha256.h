// SHA-256 (FIPS 180-4, section 6.2), to name inputs and outputs in reports. Not for secrets: not constant-time.
// host only
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

class Sha256 {
 public:
  void update(const void* bytes, size_t count);
  void update(std::string_view text) { update(text.data(), text.size()); }
  // Lower-case hexadecimal, 64 digits. Call once.
  std::string finish();

 private:
  void block(const uint8_t* bytes);
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t pending_[64];
  size_t pending_count_ = 0;
  uint64_t total_ = 0;
};

std::string sha256(std::string_view text);
// Errors: cannot open or read.
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace sluice
