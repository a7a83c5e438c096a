// What is done at the end of a scope, however it ends: by an error or an exception, too.
// host only
#pragma once

#include <utility>

namespace sluice {

template <typename F>
class ScopeExit {
 public:
  explicit ScopeExit(F f) : f_(std::move(f)) {}
  ~ScopeExit() {
    if (!released_) f_();
  }
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;
  // It is not done.
  void release() { released_ = true; }

 private:
  F f_;
  bool released_ = false;
};

}  // namespace sluice
