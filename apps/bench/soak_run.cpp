// host only
#include "soak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/scope_exit.h"
#include "base/thread.h"

namespace sluice::app {
namespace {

uint64_t ns_since(std::chrono::steady_clock::time_point begin) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count());
}

// Workers are independent, as with one receive queue each, or share one reader: a line is a runtime.
class SoakLines {
 public:
  SoakLines(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, Progress& progress);
  SoakRun run();

 private:
  // A cache line each.
  struct alignas(64) Count {
    std::atomic<uint64_t> packets{0};
  };

  size_t lines() const { return counts_.size(); }
  std::unique_ptr<Snapshot> bind(uint64_t generation) const;
  void start(SoakRun& run, std::vector<std::jthread>& threads);
  bool more() const { return !interrupted().load() && running_.load() == lines(); }
  // Until so many seconds have passed, or nothing runs any more.
  void wait_until(double at, uint64_t done);
  bool all_met() const;  // whether each runtime has processed packets since the last swap
  void swap(SoakRun& run);

  const SoakOptions& o_;
  const SoakInputs& inputs_;
  Progress& progress_;
  const double seconds_;
  std::vector<Count> counts_;
  std::vector<uint64_t> before_;  // the counts at the change before
  std::vector<std::unique_ptr<Engine>> runtimes_;
  std::vector<std::exception_ptr> failures_;
  std::atomic<unsigned> running_;
  std::atomic<bool> stop_{false};
  Stopwatch watch_;
  double shown_ = 0;  // when progress was
};

SoakLines::SoakLines(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, Progress& progress)
    : o_(o),
      inputs_(inputs),
      progress_(progress),
      seconds_(o.minutes * 60),
      counts_(o.shared ? 1 : o.workers),
      before_(counts_.size()),
      failures_(counts_.size()),
      running_(static_cast<unsigned>(counts_.size())) {
  for (size_t l = 0; l < lines(); ++l) {
    RunOptions options;
    options.workers = o.shared ? o.workers : 1;
    options.batch = o.batch;
    options.stop = &stop_;
    options.progress = [this, l](uint64_t packets) { counts_[l].packets.store(packets, std::memory_order_relaxed); };
    options.device = devices.options;
    if (!devices.options.devices.empty() && !o.shared) {
      options.device.devices = {devices.options.devices[l % devices.options.devices.size()]};
    }
    runtimes_.push_back(need(Engine::create(inputs.pipeline->router, inputs.pipeline->plan, options)));
    runtimes_.back()->publisher().publish(bind(0));
  }
}

std::unique_ptr<Snapshot> SoakLines::bind(uint64_t generation) const {
  const auto v = static_cast<uint32_t>(generation % kVariants);
  TableSet set = inputs_.tables[v];
  if (!o_.spoil.empty() && generation == 1) {
    const TableSet& other = inputs_.tables[(v + 1) % kVariants];
    if (o_.spoil == "rules") set.acls = other.acls;
    if (o_.spoil == "adjacencies") set.adjacencies = other.adjacencies;
  }
  return need(bind_plan(inputs_.pipeline->plan, inputs_.pipeline->router, std::move(set)));
}

void SoakLines::start(SoakRun& run, std::vector<std::jthread>& threads) {
  for (size_t l = 0; l < lines(); ++l) {
    threads.push_back(need(start_thread([this, &run, l] {
                             try {
                               need(runtimes_[l]->run(run.reports[l]));
                             } catch (...) {
                               failures_[l] = std::current_exception();
                             }
                             --running_;
                           }),
                           Exit::kIo));
  }
}

void SoakLines::wait_until(double at, uint64_t done) {
  while (more() && watch_.seconds() < at) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(at - watch_.seconds(), 0.0, 0.1)));
    if (watch_.seconds() - shown_ < 1) continue;
    shown_ = watch_.seconds();
    uint64_t packets = 0;
    for (const Count& c : counts_) packets += c.packets.load(std::memory_order_relaxed);
    progress_.step(
        fmt::format("{:.0f} of {:.0f} s, {} swaps, {} packets", shown_, seconds_, done, with_commas(packets)));
  }
}

bool SoakLines::all_met() const {
  for (size_t l = 0; l < lines(); ++l) {
    if (counts_[l].packets.load(std::memory_order_relaxed) == before_[l]) return false;
  }
  return true;
}

void SoakLines::swap(SoakRun& run) {
  // A generation that no packet met would say nothing.
  for (size_t l = 0; l < lines(); ++l) {
    const uint64_t now = counts_[l].packets.load(std::memory_order_relaxed);
    run.unseen += now == before_[l] ? 1 : 0;
    before_[l] = now;
  }
  const uint64_t generation = run.done + 1;
  const auto begin_all = std::chrono::steady_clock::now();
  uint64_t bound_ns = 0;
  for (auto& runtime : runtimes_) {
    const auto begin_bind = std::chrono::steady_clock::now();
    auto snapshot = bind(generation);
    bound_ns += ns_since(begin_bind);
    const auto begin = std::chrono::steady_clock::now();
    run.out_of_turn += runtime->publisher().publish(std::move(snapshot)) != generation + 1 ? 1 : 0;
    run.publish.record(ns_since(begin));
  }
  run.all_lines.record(ns_since(begin_all) - bound_ns);
  ++run.done;
}

SoakRun SoakLines::run() {
  SoakRun run;
  run.reports.resize(lines());
  watch_ = Stopwatch();
  {
    std::vector<std::jthread> threads;
    threads.reserve(lines());
    // However this ends, the threads stop.
    const ScopeExit stop_at_end([this] { stop_ = true; });
    start(run, threads);
    // A machine that cannot keep up gets as long again, and a minute; one that is slow longer between two swaps.
    const double end = 2 * seconds_ + 60;
    while (run.done < o_.swaps && more() && watch_.seconds() < end) {
      wait_until(seconds_ * static_cast<double>(run.done + 1) / static_cast<double>(o_.swaps + 1), run.done);
      while (more() && !all_met() && watch_.seconds() < end) wait_until(watch_.seconds() + 0.001, run.done);
      if (!more()) break;
      swap(run);
    }
    wait_until(seconds_, run.done);
  }
  run.seconds = watch_.seconds();
  progress_.clear();
  for (const std::exception_ptr& failure : failures_) {
    if (failure) std::rethrow_exception(failure);
  }
  return run;
}

}  // namespace

SoakRun run_soak(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, Progress& progress) {
  return SoakLines(o, devices, inputs, progress).run();
}

}  // namespace sluice::app
