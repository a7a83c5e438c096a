// host only
// ConstantBank: which parts of a device's constant memory are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/result.h"

namespace sluice {

// Thread-safe: tables come from the thread that publishes, and go with the last batch that reads them.
class ConstantBank {
 public:
  // Of parts: no line of a cache holds two of them, since one is written while kernels read another.
  static constexpr size_t kAlign = 256;

  // Where `bytes` bytes begin, a multiple of kAlign. Errors: there is no such room, with what there is.
  Result<uint32_t> take(size_t bytes);
  void leave(uint32_t at);

 private:
  std::mutex mutex_;
  std::map<uint32_t, uint32_t> taken_;  // where a part begins, and where it ends
};

}  // namespace sluice
