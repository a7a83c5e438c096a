// host only
// How a thread that receives from live ports waits for packets: it polls for a moment after the last ones, and then
// sleeps on their descriptors.
//
// Polling is in vain where the kernel receives on the same core: as long as the thread polls, nothing comes. So polls
// that found nothing are left out for a while, the longer the more of them there were in a row.
#pragma once

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"
#include "exec/engine/ports.h"
#include "exec/engine/run.h"

namespace sluice {

// One thread. A wait is: `polls` says no, `begin`, `add` for each source, `sleep`.
class LiveSleep {
 public:
  explicit LiveSleep(PollMode mode) : mode_(mode) {}

  // Packets have come.
  void came() { came(now_ns()); }
  void came(uint64_t now) {
    if (polling_) in_vain_ = left_out_ = 0;  // while it polled
    polling_ = slept_ = false;
    busy_ns_ = now;
  }
  // Whether it is too early to sleep: one moment has passed instead.
  bool polls() { return polls(now_ns()); }
  bool polls(uint64_t now) {
    if (!may_poll(now)) return false;
    cpu_pause();
    return true;
  }
  void begin(uint64_t at_most_ns) {
    limit_ns_ = std::min(at_most_ns, kLookNs);
    fds_.clear();
  }
  // False: it has packets, nobody may sleep.
  bool add(BatchSource& source) {
    if (!source.live()) {
      if (source.ready()) return false;
      limit_ns_ = std::min(limit_ns_, kBlindNs);
      return true;
    }
    if (!source.arm()) return false;
    if (!source.wait_on(fds_)) limit_ns_ = std::min(limit_ns_, kBlindNs);
    return true;
  }
  void sleep() {
    slept_ = true;
    const timespec time{0, static_cast<long>(limit_ns_)};
    (void)::ppoll(fds_.data(), fds_.size(), &time, nullptr);
  }

 private:
  // How long at a time: links, ends and whoever asks are looked at in between.
  static constexpr uint64_t kLookNs = 10'000'000;
  // Where nothing tells that packets have come.
  static constexpr uint64_t kBlindNs = 50'000;
  // How long an adaptive worker polls after the last packets.
  static constexpr uint64_t kSpinNs = 20'000;

  bool may_poll(uint64_t now) {
    if (mode_ != PollMode::kAdaptive) return mode_ == PollMode::kSpin;
    if (polling_) {
      if (now - busy_ns_ < kSpinNs) return true;
      polling_ = false;
      in_vain_ = std::min(in_vain_ + 1, kMostInVain);
      left_out_ = (1u << in_vain_) - 1;
      return false;
    }
    // Once after packets.
    if (slept_ || now - busy_ns_ >= kSpinNs) return false;
    if (left_out_ != 0) {
      --left_out_;
      slept_ = true;
      return false;
    }
    return polling_ = true;
  }

  PollMode mode_;
  // Of the adaptive mode. At most 63 polls are left out after one that was in vain.
  static constexpr uint32_t kMostInVain = 6;
  bool polling_ = false;   // since the last packets
  bool slept_ = false;     // since the last packets
  uint32_t in_vain_ = 0;   // polls in a row that found nothing
  uint32_t left_out_ = 0;  // how many are left out from here on

  uint64_t busy_ns_ = 0;  // when packets came last
  uint64_t limit_ns_ = 0;
  std::vector<pollfd> fds_;
};

}  // namespace sluice
