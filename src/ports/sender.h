// Sends the frames of a store by a queue of a live port, at a rate or as they were timed: a traffic generator that has
// nothing of the engine in it, so that it can measure the engine. host only
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "ports/memory/frame_store.h"
#include "ports/port.h"

namespace sluice {

// Frames that are given to a queue at once.
inline constexpr uint32_t kSendBurst = 64;

struct SendOptions {
  // At most one of the three; none: as fast as the port takes frames.
  uint64_t packets_per_second = 0;
  uint64_t bits_per_second = 0;  // of the frames as they are stored: without preamble, FCS and gap
  bool as_timed = false;         // with the gaps of the time stamps; one that goes back waits for nothing

  bool loop = false;              // again from the first frame after the last, until `limit` or `stop`
  uint64_t limit = ~uint64_t{0};  // frames
  uint64_t duration_ns = 0;       // ends then, and frames that have not left do not leave; 0: without
  const std::atomic<bool>* stop = nullptr;
  std::function<void(uint64_t packets)> progress;  // that were sent; now and then
  // Before frames are given to the queue, and anew before those that it did not take are given again: writes into them
  // what only this moment knows. `first` is the number of the first, from 0. The store has kSendBurst frames or more,
  // so that none is in one burst twice.
  std::function<void(std::span<const TxFrame> burst, uint64_t first)> mark;

  // What tests put in the place of the machine's clock; and of waiting, in nanoseconds.
  std::function<uint64_t()> clock_ns;
  std::function<void(uint64_t)> wait_ns;
};

struct SendReport {
  uint64_t packets = 0, bytes = 0;  // that the port took
  uint64_t full = 0;                // how often the port took fewer than it was given; they are given again
  // With a rate or as timed: the longest between the time at which a frame was to leave and when the port took it.
  uint64_t late_ns = 0;
  uint64_t in_flight = 0;   // that had not left a second after the last was taken
  uint64_t elapsed_ns = 0;  // from the first frame's time to when the last was taken
  bool stopped = false;     // by `stop`
};

// Frames leave in order, each once; whoever calls waits. Frames that the kernel or the NIC refuses are in the queue's
// own counters. The frames are as they were, but for `mark`. Precondition: there are frames.
SendReport send_frames(FrameStore& frames, TxQueue& queue, const SendOptions& options);

}  // namespace sluice
