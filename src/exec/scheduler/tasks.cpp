// host only
// Tasks, timers and the loop over both.
#include <chrono>
#include <thread>

#include "exec/scheduler/node.h"

namespace sluice {
namespace {

// Turns at one instant of simulated time before time goes on by itself, and by how much a turn.
constexpr uint64_t kFreeTurns = 100'000;
constexpr uint64_t kTurnNs = 1000;
constexpr uint64_t kLongestSleepNs = 20'000'000;

}  // namespace

// `gently`: where no script manages it, the run goes on.
void Scheduler::Impl::ask_stop(bool gently) {
  bool managed = false;
  for (auto& node : nodes) {
    if (node->flow_ == nullptr || !node->flow_->manages_stop()) continue;
    managed = true;
    node->flow_->stop_requested(*node);
  }
  if (!managed && !gently) ended = true;
}

void Scheduler::Impl::run_task(unsigned index) {
  Node& node = *nodes[index];
  node.in_ring_ = false;
  retry = ~uint64_t{0};
  ++node.retry_version_;
  if (node.task()) {
    node.wake();
  } else if (retry != ~uint64_t{0}) {
    timers.push({retry, timer_order++, index, node.retry_version_, true});
  }
}

void Scheduler::Impl::fire(const Timer& timer) {
  Node& node = *nodes[timer.node];
  if (timer.retry) {
    if (timer.version == node.retry_version_) node.wake();
  } else if (timer.version == node.timer_version_ && node.flow_ != nullptr) {
    node.flow_->timer(node);
  }
}

// What is due by then happens first.
void Scheduler::Impl::packet_comes(uint64_t timestamp_ns) {
  while (!timers.empty() && timers.top().at <= timestamp_ns) {
    const Timer timer = timers.top();
    timers.pop();
    simulated_ns = std::max(simulated_ns, timer.at);
    fire(timer);
  }
  simulated_ns = std::max(simulated_ns, timestamp_ns);
}

// No task can run. False: nothing can happen any more.
bool Scheduler::Impl::rest() {
  while (!timers.empty()) {
    const Timer& next = timers.top();
    const Node& node = *nodes[next.node];
    if (next.version == (next.retry ? node.retry_version_ : node.timer_version_)) break;
    timers.pop();
  }
  if (timers.empty()) {
    hand_over();
    return false;
  }
  turns = 0;
  if (simulated()) {
    simulated_ns = std::max(simulated_ns, timers.top().at);
    return true;
  }
  hand_over();
  const uint64_t at = timers.top().at;
  const uint64_t current = now();
  if (at > current) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(at - current, kLongestSleepNs)));
  return true;
}

Result<void> Scheduler::Impl::loop() {
  while (!ended && !replaced) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      interrupted = true;
      break;
    }
    if (owner.asked_->waiting.load(std::memory_order_relaxed)) {
      settle();
      owner.asked_->serve();
      continue;
    }
    while (options.next_signal) {
      const int signal = options.next_signal();
      if (signal == 0) break;
      for (auto& node : nodes) {
        if (node->flow_ != nullptr && node->flow_->wants_signal(signal)) node->flow_->signal(*node, signal);
      }
    }
    while (!ended && stops != 0) {
      --stops;
      ask_stop();
    }
    while (!ended && stops == 0 && !timers.empty() && timers.top().at <= now()) {
      const Timer timer = timers.top();
      timers.pop();
      fire(timer);
    }
    if (ended) break;
    if (stops != 0) continue;
    if (!ring.empty()) {
      run_task(ring.pop_front());
      // Time goes on although somebody is always busy.
      if (options.simulated && ++turns > kFreeTurns) simulated_ns += kTurnNs;
      continue;
    }
    if (rest()) continue;
    // Nothing can happen any more, unless a driver script was waiting for just this.
    if (idle_told) {
      if (!options.stay) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    idle_told = true;
    ask_stop(options.stay);
  }
  settle();
  if (!failure.message.empty() || !failure.diagnostics.empty()) return failure;
  return {};
}

void Scheduler::Impl::wake_tasks() {
  for (auto& node : nodes) {
    const bool task = node->flow_ != nullptr || node->source_ != nullptr || node->pulls_input();
    if (task) node->wake();
  }
}

}  // namespace sluice
