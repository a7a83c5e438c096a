// host only
#include "ports/sender.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/assert.h"
#include "base/clock.h"

namespace sluice {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
// Shorter waits are spent looking at the clock: the kernel wakes a thread some 50 us late.
constexpr uint64_t kSpinNs = 100'000;
// So often, at least, somebody looks whether it is over.
constexpr uint64_t kLookNs = 50'000'000;
// Between two tries of a port that is full.
constexpr uint64_t kFullNs = 20'000;

// When each frame is to leave, in nanoseconds from the first. Exact: what a division leaves goes to the next.
class Schedule {
 public:
  Schedule(const FrameStore& frames, const SendOptions& options) : frames_(frames), options_(options) {
    if (!options.as_timed || frames.size() < 2) return;
    const auto times = frames.timestamps_ns();
    const auto [first, last] = std::minmax_element(times.begin(), times.end());
    // From the last frame to the first of the next turn passes the mean gap.
    turn_ns_ = *last - *first + (*last - *first) / (frames.size() - 1);
  }

  uint64_t due_ns() const { return due_ns_; }
  // Frame `i` has its time; `next` comes after it.
  void step(uint64_t i, uint64_t next) {
    if (options_.packets_per_second != 0) {
      pass(1, options_.packets_per_second);
    } else if (options_.bits_per_second != 0) {
      pass(uint64_t{8} * frames_.header(i).captured, options_.bits_per_second);
    } else if (options_.as_timed) {
      if (next <= i) begin_ns_ += turn_ns_;
      const uint64_t first = frames_.timestamps_ns()[0], at = frames_.timestamps_ns()[next];
      due_ns_ = std::max(due_ns_, begin_ns_ + (at > first ? at - first : 0));
    }
  }

 private:
  void pass(uint64_t units, uint64_t per_second) {
    const unsigned __int128 all = static_cast<unsigned __int128>(units) * kSecondNs + left_;
    due_ns_ += static_cast<uint64_t>(all / per_second);
    left_ = static_cast<uint64_t>(all % per_second);
  }

  const FrameStore& frames_;
  const SendOptions& options_;
  uint64_t due_ns_ = 0, left_ = 0;
  uint64_t turn_ns_ = 0, begin_ns_ = 0;
};

void sleep(const SendOptions& options, uint64_t ns) {
  if (options.wait_ns) {
    options.wait_ns(ns);
  } else {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  }
}

// Until a frame's time, or not so long.
void wait(const SendOptions& options, uint64_t ns) {
  if (options.wait_ns) {
    sleep(options, ns);
  } else if (ns > kSpinNs) {
    sleep(options, std::min(ns - kSpinNs / 2, kLookNs));
  }
}

}  // namespace

SendReport send_frames(FrameStore& frames, TxQueue& queue, const SendOptions& options) {
  SLUICE_CHECK(!frames.empty() && (!options.mark || frames.size() >= kSendBurst));
  const auto clock = [&] { return options.clock_ns ? options.clock_ns() : now_ns(); };
  Schedule schedule(frames, options);
  SendReport report;
  std::array<TxFrame, kSendBurst> burst;
  std::array<uint64_t, kSendBurst> due;
  uint32_t held = 0;
  uint64_t at = 0, given = 0, shown_ns = 0;
  const uint64_t begin = clock();
  const bool paced = options.packets_per_second != 0 || options.bits_per_second != 0 || options.as_timed;
  const auto more = [&] { return given < options.limit && (options.loop || given < frames.size()); };
  for (;;) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      report.stopped = true;
      break;
    }
    uint64_t now = clock() - begin;
    if (options.duration_ns != 0 && now >= options.duration_ns) break;
    while (held < kSendBurst && more() && schedule.due_ns() <= now) {
      // The queue copies it: the frame is none of a pool's.
      burst[held] = {frames.frame(at), frames.header(at).captured, nullptr};
      due[held++] = schedule.due_ns();
      const uint64_t next = at + 1 == frames.size() ? 0 : at + 1;
      schedule.step(at, next);
      at = next;
      ++given;
    }
    if (held == 0) {
      if (!more()) break;
      wait(options, schedule.due_ns() - now);
      continue;
    }
    if (options.mark) options.mark(std::span(burst).first(held), report.packets);
    const uint32_t sent = queue.send(std::span(burst).first(held));
    queue.flush();
    if (sent != 0) {
      now = clock() - begin;
      report.elapsed_ns = now;
      if (paced) report.late_ns = std::max(report.late_ns, now - due[0]);
    }
    report.packets += sent;
    for (uint32_t i = 0; i < sent; ++i) report.bytes += burst[i].bytes;
    std::copy(burst.begin() + sent, burst.begin() + held, burst.begin());
    std::copy(due.begin() + sent, due.begin() + held, due.begin());
    held -= sent;
    if (held != 0) {
      ++report.full;
      if (sent == 0) sleep(options, kFullNs);
    }
    if (options.progress && now - shown_ns > kSecondNs / 4) {
      shown_ns = now;
      options.progress(report.packets);
    }
  }
  const uint64_t last = clock();
  while ((report.in_flight = queue.in_flight()) != 0 && clock() - last < kSecondNs) {
    queue.flush();
    sleep(options, kFullNs);
  }
  return report;
}

}  // namespace sluice
