// host only
#include "exec/device/constant_bank.h"

#include <fmt/format.h>

#include "base/assert.h"
#include "exec/device/table_memory.h"

namespace sluice {

static_assert(ConstantBank::kAlign % kTableAlign == 0 && kConstantBytes % ConstantBank::kAlign == 0);

Result<uint32_t> ConstantBank::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  uint32_t at = 0;
  size_t used = 0;
  const size_t wanted = (bytes + kAlign - 1) / kAlign * kAlign;
  for (const auto& [begin, end] : taken_) {
    used += end - begin;
    if (wanted > size_t{begin} - at) at = end;
  }
  if (wanted > kConstantBytes - at)
    return Error(fmt::format("tables of {} bytes do not fit constant memory: {} of {} bytes are in use", bytes, used,
                             kConstantBytes),
                 "use --table-memory global");
  taken_.emplace(at, at + static_cast<uint32_t>(wanted));
  return at;
}

void ConstantBank::leave(uint32_t at) {
  const std::lock_guard lock(mutex_);
  SLUICE_CHECK(taken_.erase(at) == 1);
}

}  // namespace sluice
