// host only
// Tasks, timers and the loop over both.
#include <chrono>
#include <thread>

#include "exec/scheduler/node.h"

namespace sluice {
namespace {

constexpr uint64_t kLongestSleepNs = 20'000'000;
// Where nothing can happen before somebody writes a handler.
constexpr uint64_t kIdleNs = 1'000'000;
// How long the end of a run waits for what live ports gave.
constexpr uint64_t kDrainNs = 200'000'000;
// Turns between two looks at whoever asks for something.
constexpr unsigned kTurns = 256;

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

// The clock shows the time of the first packet: whoever waits has waited for nothing yet.
void Scheduler::Impl::begin_clock(uint64_t timestamp_ns) {
  begun = true;
  if (timestamp_ns <= simulated_ns) return;
  const uint64_t later = timestamp_ns - simulated_ns;
  simulated_ns = timestamp_ns;
  std::vector<Timer> all;
  for (; !timers.empty(); timers.pop()) all.push_back(timers.top());
  for (Timer& timer : all) {
    timer.at += std::min(later, ~uint64_t{0} - timer.at);
    timers.push(timer);
  }
  for (auto& node : nodes) {
    if (node->flow_ != nullptr) node->flow_->clock_begins(*node);
  }
}

// What is due by then happens first. False: somebody else may have a turn before.
bool Scheduler::Impl::packet_comes(uint64_t timestamp_ns) {
  if (!begun) begin_clock(timestamp_ns);
  if (!packet_time()) return timestamp_ns <= simulated_ns;
  while (!timers.empty() && timers.top().at <= timestamp_ns) {
    const Timer timer = timers.top();
    timers.pop();
    simulated_ns = std::max(simulated_ns, timer.at);
    fire(timer);
  }
  simulated_ns = std::max(simulated_ns, timestamp_ns);
  return true;
}

// Another graph follows: the clock goes on from where it is, whoever moves it.
void Scheduler::Impl::clock_goes_on(const Impl& before) {
  simulated_ns = before.now();
  begun = before.packet_clock() && before.begun;
  ahead_ns = before.simulated() ? before.simulated_ns - real_ns() : before.ahead_ns;
}

// No task can run. False: nothing can happen any more.
bool Scheduler::Impl::rest() {
  while (!timers.empty()) {
    const Timer& next = timers.top();
    const Node& node = *nodes[next.node];
    if (next.version == (next.retry ? node.retry_version_ : node.timer_version_)) break;
    timers.pop();
  }
  hand_over();
  if (timers.empty()) return false;
  turns = 0;
  if (simulated()) simulated_ns = std::max(simulated_ns, timers.top().at);
  return true;
}

void Scheduler::Impl::wait(uint64_t at_most_ns) {
  uint64_t limit = timers.empty() && live_.empty() ? kIdleNs : kLongestSleepNs;
  if (!timers.empty()) {
    const uint64_t at = timers.top().at, current = now();
    limit = std::min(at > current ? at - current : 0, limit);
  }
  limit = std::min(limit, drained_ns != 0 ? kIdleNs : at_most_ns);
  if (limit == 0) return;
  if (live_.empty()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(limit));
    return;
  }
  if (drained_ns == 0 && sleep.polls()) return;
  sleep.begin(limit);
  for (Node* node : live_) {
    if (drained_ns == 0 && !node->source_done_ && !sleep.add(*node->source_)) return;
  }
  sleep.sleep();
}

// Whether packets may still come by a live port.
bool Scheduler::Impl::receives() const {
  return std::any_of(live_.begin(), live_.end(), [](const Node* node) { return !node->source_done_; });
}

// The end was asked for. Whether it waits for what live ports gave, which leaves first where it soon can.
bool Scheduler::Impl::drains() {
  if (live_.empty()) return false;
  if (drained_ns == 0) drained_ns = sluice::now_ns() + kDrainNs;
  if (sluice::now_ns() >= drained_ns) return false;
  const auto has_rows = [](const Node* node) { return node->row_ < node->batch_->size(); };
  return !ring.empty() || std::any_of(live_.begin(), live_.end(), has_rows) ||
         std::any_of(nodes.begin(), nodes.end(),
                     [](const auto& node) { return node->flow_ != nullptr && node->flow_->held() != 0; });
}

Polled Scheduler::Impl::turn() {
  const Polled polled = ended ? Polled::kEnd : some_turns();
  if (polled == Polled::kEnd) {
    // A signal ends the waits of inputs: to their elements that is their end.
    interrupted |= options.stopped();
    settle();
    ended = true;
  }
  if (options.progress) options.progress(account.stats.packets_in);
  return polled;
}

Polled Scheduler::Impl::some_turns() {
  if (options.stopped()) {
    interrupted = true;
    if (!drains()) return Polled::kEnd;
  }
  for (Node* node : live_) {
    if (!node->source_done_) node->pushes(0) ? node->wake() : node->has_packets();
  }
  while (options.next_signal) {
    const int signal = options.next_signal();
    if (signal == 0) break;
    for (auto& node : nodes) {
      if (node->flow_ != nullptr && node->flow_->wants_signal(signal)) node->flow_->signal(*node, signal);
    }
  }
  for (unsigned n = 0; n < kTurns && !ended && !replaced; ++n) {
    while (!ended && stops != 0) {
      --stops;
      ask_stop();
    }
    while (!ended && stops == 0 && !timers.empty() && timers.top().at <= now()) {
      const Timer timer = timers.top();
      timers.pop();
      fire(timer);
    }
    if (ended || stops != 0) continue;
    if (!ring.empty()) {
      run_task(ring.pop_front());
      count_turn();
      continue;
    }
    if (rest()) {
      if (simulated()) continue;
      return Polled::kIdle;
    }
    if (receives()) return Polled::kIdle;
    // Nothing can happen any more, unless a driver script was waiting for just this.
    if (idle_reported) return options.hold ? Polled::kIdle : Polled::kEnd;
    idle_reported = true;
    ask_stop(options.hold != nullptr);
  }
  return ended ? Polled::kEnd : Polled::kFrames;
}

void Scheduler::Impl::wake_tasks() {
  for (auto& node : nodes) {
    const bool task = node->flow_ != nullptr || node->source_ != nullptr || node->pulls_input();
    if (task) node->wake();
  }
}

}  // namespace sluice
