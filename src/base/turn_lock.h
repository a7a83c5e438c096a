// host only
// A mutex that is given on in the order in which it was asked for, and a scope that lets it go for a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace sluice {

// std::mutex lets who has just unlocked it lock it again before any that wait have woken up: one thread that works in
// many short pieces keeps all others out. Here unlock() gives it to whoever has waited for longest, so each waits for
// the pieces before its own and no others. TimedLockable, for std::unique_lock and std::lock_guard.
class TurnLock {
 public:
  TurnLock() = default;
  TurnLock(const TurnLock&) = delete;
  TurnLock& operator=(const TurnLock&) = delete;

  void lock() {
    std::unique_lock hold(mutex_);
    if (take()) return;
    Waiter self;
    enqueue(self);
    self.woken.wait(hold, [&] { return self.has_it; });
  }
  bool try_lock() {
    const std::lock_guard hold(mutex_);
    return take();
  }
  template <typename Rep, typename Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& limit) {
    return try_lock_until(std::chrono::steady_clock::now() + limit);
  }
  template <typename Clock, typename Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& end) {
    std::unique_lock hold(mutex_);
    if (take()) return true;
    Waiter self;
    enqueue(self);
    if (self.woken.wait_until(hold, end, [&] { return self.has_it; })) return true;
    leave(self);
    return false;
  }
  void unlock() {
    const std::lock_guard hold(mutex_);
    if (first_ == nullptr) {
      held_ = false;
      return;
    }
    // It stays held: it is the waiter's from here on. The waiter lies on its own stack and cannot leave before it has
    // mutex_ again, so that it is still there when it is woken.
    Waiter& next = *first_;
    leave(next);
    next.has_it = true;
    next.woken.notify_one();
  }
  // Threads that wait for it.
  size_t waiting() const {
    const std::lock_guard hold(mutex_);
    size_t all = 0;
    for (const Waiter* w = first_; w != nullptr; w = w->next) ++all;
    return all;
  }

 private:
  struct Waiter {
    std::condition_variable woken;
    bool has_it = false;
    Waiter* next = nullptr;
  };
  // All with mutex_ held.
  bool take() {
    if (held_) return false;
    return held_ = true;
  }
  void enqueue(Waiter& waiter) {
    Waiter** end = &first_;
    while (*end != nullptr) end = &(*end)->next;
    *end = &waiter;
  }
  void leave(Waiter& waiter) {
    Waiter** at = &first_;
    while (*at != &waiter) at = &(*at)->next;
    *at = waiter.next;
  }

  mutable std::mutex mutex_;
  bool held_ = false;
  Waiter* first_ = nullptr;  // in the order in which they came
};

// Lets a lock go that the thread holds, and takes it again at its end. nullptr: there is nobody to let in.
class LetGo {
 public:
  explicit LetGo(TurnLock* lock) : lock_(lock) {
    if (lock_ != nullptr) lock_->unlock();
  }
  ~LetGo() {
    if (lock_ != nullptr) lock_->lock();
  }
  LetGo(const LetGo&) = delete;
  LetGo& operator=(const LetGo&) = delete;

 private:
  TurnLock* lock_;
};

}  // namespace sluice
