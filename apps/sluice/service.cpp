// host only
#include "service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>

#include "base/clock.h"
#include "base/counted.h"
#include "base/thread.h"

namespace sluice::app {
namespace {

constexpr std::chrono::milliseconds kTurn{100};
constexpr uint64_t kStatusNs = 2'000'000'000;

uint64_t number_in(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

}  // namespace

std::unique_ptr<ServiceNotice> ServiceNotice::from_environment() {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') return nullptr;
  auto socket = NotifySocket::create(name);
  if (!socket) {
    warn(fmt::format("{}: nobody is told that the run is ready", socket.error().message));
    return nullptr;
  }
  std::unique_ptr<ServiceNotice> made(new ServiceNotice(std::move(*socket)));
  // Another process's watchdog is none of ours.
  const uint64_t of = number_in("WATCHDOG_PID");
  if (of == 0 || of == static_cast<uint64_t>(::getpid()))
    made->watchdog_ns_ = std::min<uint64_t>(number_in("WATCHDOG_USEC"), uint64_t{1} << 50) * 1000;
  return made;
}

void ServiceNotice::start(Look look) {
  thread_ =
      need(start_thread([this, look = std::move(look)](const std::stop_token& stop) { watch(stop, look); }), Exit::kIo);
}

// Within mutex_.
void ServiceNotice::warn_once(const Result<void>& told) {
  if (told.ok() || warned_) return;
  warned_ = true;
  warn(fmt::format("{}: the service manager is not told how the run is", told.error().message));
}

void ServiceNotice::ready() {
  const std::lock_guard lock(mutex_);
  if (!stopping_) warn_once(socket_->tell("READY=1"));
}

void ServiceNotice::say_reloading() {
  const std::lock_guard lock(mutex_);
  if (!stopping_) warn_once(socket_->tell(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now_ns() / 1000)));
}

void ServiceNotice::say_stopping() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  stopping_ = true;
  warn_once(socket_->tell("STOPPING=1"));
}

void ServiceNotice::stopping() {
  say_stopping();
  thread_ = {};
}

void ServiceNotice::watch(const std::stop_token& stop, const Look& look) {
  // Half of what is expected, as sd_watchdog_enabled(3) has it.
  const uint64_t every_ns = watchdog_ns_ == 0 ? kStatusNs : std::min(kStatusNs, watchdog_ns_ / 2);
  uint64_t next_ns = now_ns();
  while (!stop.stop_requested()) {
    // What is on its way still leaves: the manager knows why this takes its time.
    if (interrupted().load(std::memory_order_relaxed)) say_stopping();
    try {
      if (const uint64_t now = now_ns(); now >= next_ns) {
        look_once(look);
        next_ns = now + every_ns;
      }
      const std::lock_guard lock(mutex_);
      warn_once(socket_->flush());
    } catch (const std::bad_alloc&) {
      // No sign of life is given without a look.
    }
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, stop, std::min<std::chrono::nanoseconds>(kTurn, std::chrono::nanoseconds(every_ns)),
                    [] { return false; });
  }
}

void ServiceNotice::look_once(const Look& look) {
  auto seen = look();
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  if (!seen) {
    warn_once(socket_->tell_now(fmt::format("STATUS={}", seen.error().message)));
    return;
  }
  std::string text;
  if (watchdog_ns_ != 0) text = "WATCHDOG=1";
  const uint64_t now = now_ns();
  if (seen->has_value() && now - told_ns_ >= kStatusNs) {
    RunReport& report = **seen;
    if (told_then_) {
      const double seconds = static_cast<double>(now - told_ns_) * 1e-9;
      const auto rate = [seconds](uint64_t packets, uint64_t before) {
        return with_commas(static_cast<uint64_t>(static_cast<double>(packets - std::min(packets, before)) / seconds));
      };
      text += fmt::format("{}STATUS=RX {} pps, TX {} pps, drops {} pps", text.empty() ? "" : "\n",
                          rate(report.packets_in, told_then_->packets_in),
                          rate(report.packets_out, told_then_->packets_out), rate(report.dropped, told_then_->dropped));
    }
    told_ns_ = now;
    told_then_ = std::move(report);
  }
  if (!text.empty()) warn_once(socket_->tell_now(text));
}

}  // namespace sluice::app
