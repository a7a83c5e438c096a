// host only
// Long work that somebody waits for no more ends early: what takes seconds asks cancelled() now and then and gives an
// error. What changes something asks changes_are_unwanted() right before it does.
#pragma once

#include <poll.h>

#include <atomic>

#include "base/result.h"

namespace sluice {

// While it lives, the work of its thread is cancelled once `flag` is true, or that of a scope around it. `peer`: the
// connection of who waits for the work; -1: nobody has one.
class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>& flag, int peer = -1) : flag_(flag), peer_(peer), around_(innermost) {
    innermost = this;
  }
  ~CancelScope() { innermost = around_; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  friend bool cancelled();
  friend bool changes_are_unwanted();
  static inline thread_local const CancelScope* innermost = nullptr;

  const std::atomic<bool>& flag_;
  const int peer_;
  const CancelScope* const around_;
};

inline bool cancelled() {
  for (const CancelScope* s = CancelScope::innermost; s != nullptr; s = s->around_) {
    if (s->flag_.load(std::memory_order_relaxed)) return true;
  }
  return false;
}

// The same, or who waits has closed its connection by now: it has been told, or believes, that nothing was changed.
inline bool changes_are_unwanted() {
  for (const CancelScope* s = CancelScope::innermost; s != nullptr; s = s->around_) {
    pollfd peer{s->peer_, 0, 0};
    if (s->peer_ >= 0 && ::poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)) != 0) return true;
  }
  return cancelled();
}

inline Error cancelled_error() {
  return Error("interrupted");
}

}  // namespace sluice
