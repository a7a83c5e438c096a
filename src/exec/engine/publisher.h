// host only
// Publication of snapshots: readers never wait, writers wait for the readers' quiescence (liburcu, QSBR flavour).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/engine/snapshot.h"

namespace sluice {

// Registers the calling thread as a QSBR reader for its lifetime. One a thread; the thread is online after
// construction.
class QsbrReader {
 public:
  QsbrReader();
  ~QsbrReader();
  QsbrReader(const QsbrReader&) = delete;
  QsbrReader& operator=(const QsbrReader&) = delete;

  // The thread holds no snapshot pointer from before this call, other than through in_flight.
  void quiescent();
  // While a thread is offline it holds no snapshot and never delays a writer. Wrap every wait in these two.
  void offline();
  void online();
};

class Publisher {
 public:
  Publisher() = default;
  ~Publisher();  // no reader may be left
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Makes `next` the current generation and retires the one before. Gives it its generation number and returns it.
  // Blocks for a grace period; never called from a QSBR reader. Thread-safe.
  uint64_t publish(std::unique_ptr<Snapshot> next);
  // Called by `publish` on each generation before it becomes current, one at a time. Set it before the first publish.
  void set_prepare(std::function<void(Snapshot&)> prepare) { prepare_ = std::move(prepare); }
  // Waits until no batch in flight holds a retired generation. For the publishing thread.
  void drain_retired();

  // The current generation; valid until the calling reader's next quiescent state. nullptr before the first publish.
  const Snapshot* current() const { return current_.load(std::memory_order_acquire); }
  // The same, counted in in_flight until `release`: valid beyond quiescent states, and on other threads.
  const Snapshot* acquire() const {
    const Snapshot* snapshot = current();
    if (snapshot != nullptr) snapshot->in_flight.fetch_add(1, std::memory_order_relaxed);
    return snapshot;
  }
  static void release(const Snapshot* snapshot) { snapshot->in_flight.fetch_sub(1, std::memory_order_release); }

  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }
  // Retired generations that batches in flight still hold.
  size_t retired() const;

 private:
  void reap();

  std::atomic<const Snapshot*> current_{nullptr};
  std::atomic<uint64_t> generation_{0};
  std::function<void(Snapshot&)> prepare_;
  std::mutex publishing_;  // held over prepare and flip; writer_ guards the list alone
  mutable std::mutex writer_;
  std::vector<std::unique_ptr<const Snapshot>> retired_;
};

}  // namespace sluice
