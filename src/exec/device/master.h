// host only
// MasterThread: one thread that speaks to a device for all workers.
//
// With full-path threading every worker owns channels of its own. Here the workers own MasteredChannels: a flight is a
// slab of host memory, which the worker hands over by its queue and polls by one word. The master copies the records of
// all flights that wait for the same program into one flight of the real channel, and their results back. It costs a
// copy each way and a thread; it gives larger launches and one caller of the driver (the master of PacketShader,
// SIGCOMM 2010).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/spsc_queue.h"
#include "exec/device/channel.h"

namespace sluice {

class MasteredChannel;

class MasterThread {
 public:
  // For workers 0 .. workers - 1. `device` outlives the master.
  MasterThread(Device& device, unsigned workers);
  // Stops the thread.
  ~MasterThread();
  MasterThread(const MasterThread&) = delete;
  MasterThread& operator=(const MasterThread&) = delete;

  // Worker `worker`'s way to the real channel number `line`, which the first call for it makes. All calls come before
  // `start` and name a line with the same shape and options; the channel must not outlive the master. Errors: those of
  // Channel::create.
  Result<std::unique_ptr<RecordChannel>> channel(unsigned worker, uint32_t line, const RecordShape& shape,
                                                 const ChannelOptions& options);
  // Errors: no thread can be started.
  Result<void> start();
  // No worker has a flight any more, and none will. Waits until the device is done with what it was given, at most
  // `limit_ns` for each real channel. Errors: as RecordChannel::stop.
  Result<void> stop(uint64_t limit_ns);
  // Of the real channels: flights, launches, switches and what crossed. After `stop`.
  ChannelStats stats() const;

 private:
  friend class MasteredChannel;
  struct Line;
  struct Request {
    MasteredChannel* channel = nullptr;
    uint32_t slot = 0;
  };
  static constexpr uint32_t kMostRecords = 16'384;  // of one flight of a real channel

  void stop_thread();
  void hand_over(unsigned worker, Request request);
  void ring();  // the bell: there is something in a queue
  void run();
  void take(Request request);
  bool gather(Line& line);
  bool poll(Line& line);

  Device& device_;
  bool spin_;                                                // the device has cores of its own, and so has every thread
  std::vector<uint32_t> slots_;                              // by worker: flights of all its channels
  std::vector<std::unique_ptr<SpscQueue<Request>>> queues_;  // by worker, from `start` on
  std::vector<std::unique_ptr<Line>> lines_;
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<bool> stop_{false};
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace sluice
