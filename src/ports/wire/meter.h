// host only
// Receives the frames of a generator and counts them; one trial after the other, each with a key of its own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "base/histogram.h"
#include "batch/batch.h"
#include "ports/port.h"
#include "ports/wire/sequence_account.h"
#include "ports/wire/stamp.h"

namespace sluice {

// Where the stamp of a frame is: the payload of UDP over IPv4 or IPv6, behind any VLAN tags. 0: there is no room for
// one. `bad_checksum`: whether the IPv4 header's is wrong, which a device that changes the header may leave.
uint32_t wire_stamp_at(const uint8_t* frame, uint32_t bytes, bool* bad_checksum = nullptr);

struct WireCounts {
  uint64_t received = 0, bytes = 0;                                 // frames of this trial, duplicates too
  uint64_t unique = 0, duplicated = 0, reordered = 0, too_old = 0;  // see SequenceAccount
  uint64_t bad_checksum = 0;                                        // of the received: IPv4 headers
  uint64_t earlier = 0;                                             // of the trial before
  uint64_t foreign = 0;  // whatever else came, and what does not have its check any more
};

class WireMeter {
 public:
  // `clock_ns` is the one that the sender stamps by. Without `latency` no time is kept.
  WireMeter(RxQueue& queue, std::function<uint64_t()> clock_ns, bool latency);

  // Whatever comes from here on is counted by this trial. Not while another thread polls.
  void begin(uint64_t key);

  // Takes what has come, up to a batch; 0: nothing has.
  uint32_t poll();

  WireCounts counts() const;
  uint64_t unique() const { return sequences_.unique(); }
  // Of unique frames, in nanoseconds.
  const Histogram& latency() const { return latency_; }
  RxQueue& queue() const { return queue_; }

 private:
  static constexpr uint32_t kBurst = 256;

  void count(const uint8_t* frame, uint32_t bytes, uint64_t now_ns);

  RxQueue& queue_;
  std::function<uint64_t()> clock_ns_;
  const bool keeps_latency_;
  uint64_t key_ = 0, key_before_ = 0;
  bool has_before_ = false, has_key_ = false;
  SequenceAccount sequences_;
  WireCounts counts_;
  Histogram latency_;
  std::array<uint8_t*, kBurst> frames_;
  std::array<Extent, kBurst> extents_;
  std::array<uint64_t, kBurst> timestamps_;
};

}  // namespace sluice
