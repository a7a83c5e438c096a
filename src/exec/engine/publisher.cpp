// host only
#include "exec/engine/publisher.h"

#include <urcu/urcu-qsbr.h>

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(SLUICE_SANITIZED_THREADS)
// liburcu is not instrumented: tell ThreadSanitizer about the order that a grace period gives.
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace sluice {
namespace {

#if defined(SLUICE_SANITIZED_THREADS)
char grace_order;
void reader_left() {
  __tsan_release(&grace_order);
}
void writer_waited() {
  __tsan_acquire(&grace_order);
}
#else
void reader_left() {}
void writer_waited() {}
#endif

}  // namespace

QsbrReader::QsbrReader() {
  urcu_qsbr_register_thread();
}

QsbrReader::~QsbrReader() {
  reader_left();
  urcu_qsbr_unregister_thread();
}

void QsbrReader::quiescent() {
  reader_left();
  urcu_qsbr_quiescent_state();
}

void QsbrReader::offline() {
  reader_left();
  urcu_qsbr_thread_offline();
}

void QsbrReader::online() {
  urcu_qsbr_thread_online();
}

Publisher::~Publisher() {
  const Snapshot* last = current_.exchange(nullptr);
  delete last;
}

uint64_t Publisher::publish(std::unique_ptr<Snapshot> next) {
  const std::lock_guard publishing(publishing_);
  if (prepare_) prepare_(*next);
  const std::lock_guard lock(writer_);
  const uint64_t generation = generation_.load(std::memory_order_relaxed) + 1;
  next->generation = generation;
  // What can fail comes before the flip: behind it the generation is the current one, whatever the caller is told.
  retired_.reserve(retired_.size() + 1);
  const Snapshot* before = current_.exchange(next.release(), std::memory_order_acq_rel);
  generation_.store(generation, std::memory_order_relaxed);
  if (before != nullptr) {
    // After the grace period nobody can take a new reference to `before`; in_flight then only falls.
    urcu_qsbr_synchronize_rcu();
    writer_waited();
    retired_.emplace_back(before);
  }
  reap();
  return generation;
}

void Publisher::drain_retired() {
  while (true) {
    {
      const std::lock_guard lock(writer_);
      reap();
      if (retired_.empty()) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

size_t Publisher::retired() const {
  const std::lock_guard lock(writer_);
  return retired_.size();
}

void Publisher::reap() {
  std::erase_if(retired_, [](const std::unique_ptr<const Snapshot>& s) {
    return s->in_flight.load(std::memory_order_acquire) == 0;
  });
}

}  // namespace sluice
