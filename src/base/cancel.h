// host only
// Long work that somebody waits for no more ends early: what takes seconds asks cancelled() now and then and gives an
// error.
#pragma once

#include <atomic>

#include "base/result.h"

namespace sluice {

namespace detail {
inline thread_local const std::atomic<bool>* cancel_flag = nullptr;
}

// While it lives, the work of its thread is cancelled once `flag` is true. They may nest.
class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>& flag) : before_(detail::cancel_flag) { detail::cancel_flag = &flag; }
  ~CancelScope() { detail::cancel_flag = before_; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const std::atomic<bool>* before_;
};

inline bool cancelled() {
  return detail::cancel_flag != nullptr && detail::cancel_flag->load(std::memory_order_relaxed);
}
inline Error cancelled_error() {
  return Error("interrupted");
}

}  // namespace sluice
