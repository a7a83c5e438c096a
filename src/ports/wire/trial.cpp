// host only
#include "ports/wire/trial.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/thread.h"
#include "net/bytes.h"

namespace sluice {
namespace {

// Between two looks at what has come back.
constexpr uint64_t kLookNs = 1'000'000;
// A receiver without frames polls so long before it sleeps, as `sluice run` does.
constexpr uint64_t kSpinNs = 20'000;
constexpr int kSleepMs = 1;

// Until frames come, or a moment has passed.
void wait_for_frames(RxQueue& queue) {
  pollfd ready{queue.wait_fd(), POLLIN, 0};
  if (ready.fd < 0) {
    std::this_thread::yield();
  } else if (queue.arm()) {
    (void)::poll(&ready, 1, kSleepMs);
  }
}

}  // namespace

uint64_t WireTrial::offered_pps() const {
  if (span_ns == 0) return 0;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(sent()) * 1'000'000'000 / span_ns);
}

Result<void> prepare_wire_frames(FrameStore& frames) {
  for (uint64_t i = 0; i < frames.size(); ++i) {
    const uint32_t at = wire_stamp_at(frames.frame(i), frames.header(i).captured);
    const bool ipv4 = at != 0 && frames.frame(i)[at - 8 - 20] >> 4 == 4;
    if (!ipv4) {
      return Error(fmt::format("frame {} of {} bytes has no room for a stamp of {} bytes in UDP over IPv4", i + 1,
                               frames.header(i).captured, WireStamp::kBytes));
    }
    store_be16(frames.frame(i) + at - 2, 0);
  }
  return {};
}

Result<WireTrial> run_wire_trial(FrameStore& frames, TxQueue& tx, WireMeter& meter, const WireTrialOptions& options) {
  SendOptions send = options.send;
  if (!send.clock_ns) send.clock_ns = now_ns;
  const auto pause = [&] {
    if (send.wait_ns) {
      send.wait_ns(kLookNs);
    } else {
      std::this_thread::sleep_for(std::chrono::nanoseconds(kLookNs));
    }
  };
  // Frames of one port look alike up to here.
  const uint32_t at = wire_stamp_at(frames.frame(0), frames.header(0).captured);
  send.loop = true;
  send.mark = [&, clock = send.clock_ns](std::span<const TxFrame> burst, uint64_t first) {
    const uint64_t now = clock();
    for (const TxFrame& frame : burst) WireStamp{first++, now}.write(frame.data + at, options.key);
  };

  meter.begin(options.key);
  RxQueue& rx = meter.queue();
  const uint64_t missed = rx.counters().missed, failed = tx.counters().failed;
  std::atomic<uint64_t> unique{0}, seen{0};
  std::atomic<bool> over{false};
  WireTrial trial;
  {
    auto receiver = start_thread([&] {
      uint64_t all = 0, busy_ns = now_ns();
      for (;;) {
        const bool last = over.load(std::memory_order_acquire);
        if (const uint32_t n = meter.poll(); n != 0) {
          all += n;
          unique.store(meter.unique(), std::memory_order_relaxed);
          seen.store(all, std::memory_order_relaxed);
          busy_ns = now_ns();
          continue;
        }
        // What was there when it was over has been taken.
        if (last) break;
        if (now_ns() - busy_ns < kSpinNs) {
          cpu_pause();
        } else {
          wait_for_frames(rx);
        }
      }
    });
    if (!receiver) return std::move(receiver).error();
    trial.send = send_frames(frames, tx, send);
    trial.failed = tx.counters().failed - failed;
    const uint64_t end = send.clock_ns();
    uint64_t quiet = end, before = seen.load(std::memory_order_relaxed);
    for (uint64_t now = end; now - end < options.straggler_ns; now = send.clock_ns()) {
      if (const uint64_t n = seen.load(std::memory_order_relaxed); n != before) {
        before = n;
        quiet = now;
      }
      if (unique.load(std::memory_order_relaxed) >= trial.sent() && now - quiet >= options.quiet_ns) break;
      pause();
    }
    over.store(true, std::memory_order_release);
  }
  trial.counts = meter.counts();
  trial.missed = rx.counters().missed - missed;
  // A trial that came to its end took its duration; the last frame was due before.
  trial.span_ns = trial.send.elapsed_ns;
  if (!trial.send.stopped && send.duration_ns != 0) trial.span_ns = std::max(trial.span_ns, send.duration_ns);
  return trial;
}

}  // namespace sluice
