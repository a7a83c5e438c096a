// Readers of tables: any thread, at any time, for less than what a burst of lookups notices.
// host only
//
// A thread says in a word of its own that it is inside, before it looks which generation is current; who publishes
// makes another current and waits for each thread that is still inside since before. That needs the reader's store to
// come before its load, which is a fence that costs as much as ten lookups. So the writer pays for both: membarrier(2)
// makes every thread of the process pass a fence. Where the kernel has no such call, readers have the fence.
// (QSBR, by which the engine's workers read, wants a thread that says when it is quiescent, and fences where it
// sleeps.)
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::api {

struct ReaderWord {
  alignas(64) std::atomic<uint64_t> phase{0};  // odd: inside
  ReaderWord* next = nullptr;
  ReaderWord* before = nullptr;
};

class Readers {
 public:
  // Waits until every thread that was inside has left. After what it may have found was replaced; any thread that is
  // not inside. False: the kernel refuses what it took before (a filter of system calls): nobody knows who is inside.
  [[nodiscard]] static bool wait();

 private:
  friend class Reading;
  // The calling thread's word from now on; nullptr: the thread is at its very end, and holds a lock instead.
  static ReaderWord* join();
  static void leave_late();
  // Whether the writer has the fence.
  static const bool fenced_by_writer;
};

// nullptr: the thread has not read yet. In a shared library a call finds it, once for each burst of lookups. A fixed
// place (the model initial-exec) would save that call and make the whole library one that dlopen refuses where other
// libraries have taken the room for such words.
extern constinit thread_local ReaderWord* reader_word;

// While one lives, what its thread finds current stays. They may nest, as in a signal handler.
class Reading {
 public:
  Reading() : word_(reader_word) {
    if (word_ == nullptr) [[unlikely]] {
      word_ = Readers::join();
      if (word_ == nullptr) return;
    }
    phase_ = word_->phase.load(std::memory_order_relaxed);
    if ((phase_ & 1) != 0) [[unlikely]]
      return;
    if (Readers::fenced_by_writer) [[likely]] {
      word_->phase.store(phase_ + 1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      word_->phase.exchange(phase_ + 1, std::memory_order_seq_cst);
    }
  }
  ~Reading() {
    if (!left_) leave();
  }
  // Before its end, once.
  void leave() {
    left_ = true;
    if (word_ == nullptr) [[unlikely]] {
      Readers::leave_late();
    } else if ((phase_ & 1) == 0) [[likely]] {
      word_->phase.store(phase_ + 2, std::memory_order_release);
    }
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  ReaderWord* word_;
  uint64_t phase_ = 0;
  bool left_ = false;
};

}  // namespace sluice::api
