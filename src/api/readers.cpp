// host only
#include "api/readers.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

namespace sluice::api {
namespace {

bool barrier(int command) {
  return ::syscall(__NR_membarrier, command, 0, 0) == 0;
}

// Never destroyed: threads may end after the process has begun to.
struct Registry {
  std::mutex mutex;  // the list
  ReaderWord* first = nullptr;
  std::mutex late;  // held by those inside who have no word any more
};
Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

// In the list from its thread's first reading to its end.
struct Membership {
  Membership() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    word.next = all.first;
    if (word.next != nullptr) word.next->before = &word;
    all.first = &word;
    reader_word = &word;
  }
  ~Membership() {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    (word.before != nullptr ? word.before->next : all.first) = word.next;
    if (word.next != nullptr) word.next->before = word.before;
    reader_word = nullptr;
    over = true;
  }
  ReaderWord word;
  static thread_local bool over;
};
thread_local bool Membership::over = false;

}  // namespace

constinit thread_local ReaderWord* reader_word = nullptr;

#if defined(SLUICE_SANITIZED_THREADS)
// It does not know the call.
const bool Readers::fenced_by_writer = false;
#else
const bool Readers::fenced_by_writer = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
#endif

ReaderWord* Readers::join() {
  if (Membership::over) {
    registry().late.lock();
    return nullptr;
  }
  thread_local Membership mine;
  return &mine.word;
}

void Readers::leave_late() {
  registry().late.unlock();
}

bool Readers::wait() {
  if (fenced_by_writer) {
    if (!barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return false;
  } else {
    // A reader's exchange is the other half.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    for (const ReaderWord* word = all.first; word != nullptr; word = word->next) {
      const uint64_t phase = word->phase.load(std::memory_order_acquire);
      if ((phase & 1) == 0) continue;
      for (int look = 0; word->phase.load(std::memory_order_acquire) == phase; ++look) {
        look < 100 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }
  const std::lock_guard late(all.late);
  return true;
}

}  // namespace sluice::api
