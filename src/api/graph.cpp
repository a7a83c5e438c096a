// host only
// Graphs that run in the caller's process: its threads push frames into sources and take them from sinks, and the
// engine runs on threads of its own.
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "api/border.h"
#include "base/input_file.h"
#include "base/thread.h"
#include "exec/engine/engine.h"
#include "exec/engine/generation.h"
#include "graph/click/library_file.h"
#include "ports/frame.h"

namespace sluice::api {

// A frame on one side of the graph.
struct Frame {
  std::vector<uint8_t> bytes;
  uint32_t wire_bytes = 0;
  uint64_t timestamp_ns = 0;
  uint64_t number = 0;  // of a packet that was pushed
  int32_t output = 0;
  uint32_t port = 0;
};

// What the caller's threads and the engine's share. All of it under one lock, which is held for copies alone.
struct Exchange {
  explicit Exchange(size_t most) : capacity(most), event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Exchange() {
    if (event >= 0) ::close(event);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Packets came, or the end.
  void wake() const {
    const uint64_t one = 1;
    // A full counter is a wake that nobody has seen yet.
    [[maybe_unused]] const auto written = ::write(event, &one, sizeof one);
  }

  const size_t capacity;
  const int event;  // readable while frames may wait
  mutable std::mutex mutex;
  std::condition_variable changed;        // fates came, or the run is over
  std::vector<std::deque<Frame>> inputs;  // by input: what the graph has not read yet
  size_t waiting = 0;                     // in all of them
  std::deque<uint64_t> read;              // numbers of packets that are inside, in the order of their reading
  std::deque<Frame> left;                 // by outputs, to be taken
  std::deque<sluice_fate> fates;
  uint64_t pushed = 0, ended = 0;
  bool closed = false, over = false;  // no more pushes; the run has ended
};

namespace {

class PushedSource final : public BatchSource {
 public:
  PushedSource(std::shared_ptr<Exchange> exchange, size_t input) : exchange_(std::move(exchange)), input_(input) {}

  bool live() const override { return true; }
  Result<void> read(Batch& batch) override {
    batch.clear();
    const std::lock_guard lock(exchange_->mutex);
    auto& frames = exchange_->inputs[input_];
    while (!frames.empty() && batch.size() < batch.limit()) {
      const Frame& frame = frames.front();
      const auto captured = static_cast<uint32_t>(frame.bytes.size());
      uint8_t* const to = batch.reserve(captured);
      if (to == nullptr) {
        if (batch.size() != 0) break;
        return Error("no memory for a frame of " + std::to_string(captured) + " bytes");
      }
      if (captured != 0) std::memcpy(to, frame.bytes.data(), captured);
      exchange_->read.push_back(frame.number);
      batch.push(to, captured, frame.wire_bytes, frame.timestamp_ns, batch.size());
      frames.pop_front();
      --exchange_->waiting;
    }
    return {};
  }
  bool wait_on(std::vector<pollfd>& fds) override {
    fds.push_back({exchange_->event, POLLIN, 0});
    return true;
  }
  // All inputs share the event: what was for another one is not lost.
  bool arm() override {
    uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(exchange_->event, &count, sizeof count);
    const std::lock_guard lock(exchange_->mutex);
    return exchange_->waiting == 0 && !exchange_->closed;
  }

 private:
  std::shared_ptr<Exchange> exchange_;
  size_t input_;
};

class TakenSink final : public PacketSink {
 public:
  TakenSink(std::shared_ptr<Exchange> exchange, int32_t output) : exchange_(std::move(exchange)), output_(output) {}

  Result<void> write(std::span<const TxRecord> records, size_t& written) override {
    written = 0;
    const std::lock_guard lock(exchange_->mutex);
    for (const TxRecord& r : records) {
      Frame& frame = exchange_->left.emplace_back();
      frame.bytes.assign(r.data, r.data + r.captured);
      frame.wire_bytes = r.wire;
      frame.timestamp_ns = r.timestamp_ns;
      frame.output = output_;
      frame.port = r.port;
      ++written;
    }
    return {};
  }
  std::string path_of(Ending) const override { return {}; }

 private:
  std::shared_ptr<Exchange> exchange_;
  int32_t output_;
};

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

struct sluice_graph {
  std::unique_ptr<GraphGeneration> graph;
  std::vector<std::string> inputs, outputs;  // names of elements, by number
  std::shared_ptr<Exchange> exchange;
  std::atomic<bool> stop{false};
  std::unique_ptr<Engine> engine;
  RunReport report;
  Result<void> result;
  std::deque<Frame> taken;  // whose bytes the caller looks at
  std::jthread runner;
  bool finished = false;
};

namespace sluice::api {
namespace {

// Ends the run when what is inside is through; what was not read yet is lost with `at_once`.
void end(sluice_graph& g, bool at_once) {
  if (!g.runner.joinable()) return;
  {
    std::unique_lock lock(g.exchange->mutex);
    g.exchange->closed = true;
    if (!at_once)
      g.exchange->changed.wait(lock, [&] { return g.exchange->over || g.exchange->ended == g.exchange->pushed; });
  }
  g.stop.store(true);
  g.exchange->wake();
  g.runner.join();
}

Result<void> run(sluice_graph& g, const sluice_graph_options& o) {
  RunOptions options;
  options.workers = o.workers != 0 ? o.workers : 1;
  options.stop = &g.stop;
  options.stop_is_end = true;
  options.source = [&g](const Element& element) -> Result<std::unique_ptr<BatchSource>> {
    const auto at = std::find(g.inputs.begin(), g.inputs.end(), element.name) - g.inputs.begin();
    return std::unique_ptr<BatchSource>(std::make_unique<PushedSource>(g.exchange, static_cast<size_t>(at)));
  };
  options.sink = [&g](const Element& element) -> Result<std::unique_ptr<PacketSink>> {
    const auto at = std::find(g.outputs.begin(), g.outputs.end(), element.name);
    if (at == g.outputs.end()) return std::unique_ptr<PacketSink>();
    return std::unique_ptr<PacketSink>(
        std::make_unique<TakenSink>(g.exchange, static_cast<int32_t>(at - g.outputs.begin())));
  };
  options.ended = [exchange = g.exchange](const PacketEnd& packet) {
    const std::lock_guard lock(exchange->mutex);
    sluice_fate fate{};
    fate.number = exchange->read.front();
    exchange->read.pop_front();
    fate.reason = static_cast<uint32_t>(packet.fate.reason);
    fate.element = packet.fate.element;
    fate.rule = packet.fate.rule;
    fate.next_hop = packet.fate.next_hop;
    exchange->fates.push_back(fate);
    if (++exchange->ended == exchange->pushed) exchange->changed.notify_all();
  };
  auto engine = Engine::create(g.graph->router, g.graph->plan, g.graph->tables, options);
  if (!engine) return std::move(engine).error();
  g.engine = std::move(*engine);
  auto first = bind_plan(g.graph->plan, g.graph->router, g.graph->tables);
  if (!first) return std::move(first).error();
  g.engine->publisher().publish(std::move(*first));
  // Signals are for the caller's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = start_thread([&g] {
    try {
      g.result = g.engine->run(g.report);
    } catch (const std::bad_alloc&) {
      g.result = Error("out of memory");
    }
    const std::lock_guard lock(g.exchange->mutex);
    g.exchange->over = g.exchange->closed = true;
    g.exchange->changed.notify_all();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread) return std::move(thread).error();
  g.runner = std::move(*thread);
  return {};
}

Result<sluice_graph*> load(std::string text, const std::string& name, const sluice_graph_options* options) {
  auto o = options_or(options, sluice_graph_options SLUICE_GRAPH_OPTIONS_INIT);
  if (!o) return std::move(o).error();
  auto g = std::make_unique<sluice_graph>();
  LoadOptions how;
  how.parse.known_classes = element_classes().names();
  how.parse.library = [](const std::string& library, const std::string& from) {
    return read_library({}, library, from);
  };
  auto made = load_generation(text, name, element_classes(), how);
  if (!made) return std::move(made).error();
  g->graph = std::move(*made);
  Error errors;
  if (!g->graph->router.scheduled.empty())
    return Error("this graph needs the packet scheduler, which does not run in process: " + g->graph->router.scheduled,
                 "leave queues, timers and scripts out");
  for (const auto& element : g->graph->router.elements) {
    const bool source = element->kind() == ElementKind::kSource;
    if (!source && element->kind() != ElementKind::kSink) continue;
    const PortSpec port = element->port();
    if (port.type == PortSpec::Type::kDevice) {
      errors.diagnostics.push_back(element->diagnostic("live ports do not run in process"));
      errors.diagnostics.back().suggestion = source ? "write FromDump" : "write ToDump";
    }
    // What drops, and what makes packets of its own, stays what it is.
    if (source && port.type == PortSpec::Type::kPattern) {
      errors.diagnostics.push_back(element->diagnostic("a source that makes packets does not run in process"));
      errors.diagnostics.back().suggestion = "write FromDump";
    }
    if (port.type != PortSpec::Type::kNull) (source ? g->inputs : g->outputs).push_back(element->name);
  }
  if (!errors.diagnostics.empty()) {
    errors.message = "this graph does not run in process";
    return errors;
  }
  g->exchange = std::make_shared<Exchange>(o->capacity != 0 ? o->capacity : 8192);
  if (g->exchange->event < 0) return system_error("an event", errno);
  g->exchange->inputs.resize(g->inputs.size());
  if (auto ok = run(*g, *o); !ok) return std::move(ok).error();
  return g.release();
}

int number_of(const std::vector<std::string>& names, const char* name) {
  const auto at = std::find(names.begin(), names.end(), text_or(name, ""));
  return at == names.end() ? -1 : static_cast<int>(at - names.begin());
}

}  // namespace
}  // namespace sluice::api

extern "C" {

sluice_graph* sluice_graph_open(const char* path, const sluice_graph_options* options, sluice_errors** errors) {
  return guarded<sluice_graph*>(errors, nullptr, [&]() -> Result<sluice_graph*> {
    if (path == nullptr) return bad_argument("the path is NULL");
    auto text = read_text_file(path, ParseOptions().max_source_bytes);
    if (!text) return std::move(text).error();
    return load(std::move(*text), path, options);
  });
}

sluice_graph* sluice_graph_read(const char* text, const char* name, const sluice_graph_options* options,
                                sluice_errors** errors) {
  return guarded<sluice_graph*>(errors, nullptr, [&]() -> Result<sluice_graph*> {
    if (text == nullptr) return bad_argument("the text is NULL");
    return load(text, std::string(text_or(name, "graph")), options);
  });
}

void sluice_graph_free(sluice_graph* graph) {
  if (graph == nullptr) return;
  quiet(0, [&] { return end(*graph, true), delete graph, 0; });
}

int sluice_graph_input(const sluice_graph* graph, const char* name) {
  return graph == nullptr ? -1 : number_of(graph->inputs, name);
}

int sluice_graph_output(const sluice_graph* graph, const char* name) {
  return graph == nullptr ? -1 : number_of(graph->outputs, name);
}

size_t sluice_graph_push(sluice_graph* graph, int input, const sluice_frame* frames, size_t n) {
  if (graph == nullptr || frames == nullptr || input < 0 || static_cast<size_t>(input) >= graph->inputs.size())
    return 0;
  size_t taken = 0;
  Exchange& exchange = *graph->exchange;
  quiet(0, [&] {
    for (; taken < n; ++taken) {
      const sluice_frame& from = frames[taken];
      if ((from.data == nullptr && from.captured != 0) || from.captured > kMaxCapturedBytes) break;
      Frame frame;
      // The copy is made outside of the lock.
      frame.bytes.assign(from.data, from.data + from.captured);
      frame.wire_bytes = wire_length(from.wire_bytes, from.captured);
      frame.timestamp_ns = from.timestamp_ns;
      const std::lock_guard lock(exchange.mutex);
      const size_t held = exchange.pushed - exchange.ended + exchange.left.size() + exchange.fates.size();
      if (exchange.closed || held >= exchange.capacity) break;
      frame.number = exchange.pushed + 1;
      exchange.inputs[static_cast<size_t>(input)].push_back(std::move(frame));
      ++exchange.pushed;
      ++exchange.waiting;
    }
    return 0;
  });
  if (taken != 0) exchange.wake();
  return taken;
}

size_t sluice_graph_take(sluice_graph* graph, sluice_packet* packets, size_t n) {
  if (graph == nullptr || packets == nullptr) return 0;
  return quiet(size_t{0}, [&] {
    graph->taken.clear();
    {
      const std::lock_guard lock(graph->exchange->mutex);
      auto& left = graph->exchange->left;
      while (!left.empty() && graph->taken.size() < n) {
        graph->taken.push_back(std::move(left.front()));
        left.pop_front();
      }
    }
    size_t i = 0;
    for (const Frame& frame : graph->taken) {
      packets[i++] = {frame.bytes.data(), static_cast<uint32_t>(frame.bytes.size()),
                      frame.wire_bytes,   frame.timestamp_ns,
                      frame.output,       frame.port};
    }
    return i;
  });
}

size_t sluice_graph_fates(sluice_graph* graph, sluice_fate* fates, size_t n) {
  if (graph == nullptr || fates == nullptr) return 0;
  return quiet(size_t{0}, [&] {
    const std::lock_guard lock(graph->exchange->mutex);
    auto& all = graph->exchange->fates;
    size_t i = 0;
    for (; i < n && !all.empty(); ++i) {
      fates[i] = all.front();
      all.pop_front();
    }
    return i;
  });
}

const char* sluice_drop_reason(uint32_t reason) {
  return reason == 0 || reason >= kDropReasons ? "" : to_string(static_cast<DropReason>(reason));
}

const char* sluice_graph_element(const sluice_graph* graph, uint32_t element) {
  if (graph == nullptr || element >= graph->graph->router.elements.size()) return "";
  return graph->graph->router.elements[element]->name.c_str();
}

int sluice_graph_wait(sluice_graph* graph, uint64_t timeout_ns) {
  if (graph == nullptr) return -1;
  return quiet(-1, [&] {
    Exchange& exchange = *graph->exchange;
    std::unique_lock lock(exchange.mutex);
    const auto through = [&] { return exchange.over || exchange.ended == exchange.pushed; };
    // More than a century is for ever: the clock cannot name it.
    constexpr uint64_t kMost = uint64_t{3'600'000'000'000} * 24 * 365 * 100;
    exchange.changed.wait_for(lock, std::chrono::nanoseconds(std::min(timeout_ns, kMost)), through);
    return exchange.ended == exchange.pushed ? 0 : -1;
  });
}

int sluice_graph_finish(sluice_graph* graph, sluice_graph_counts* counts, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (graph == nullptr) return bad_argument("the graph is NULL");
    if (counts != nullptr && counts->size != sizeof(sluice_graph_counts))
      return bad_argument("the field `size` of the counts is not that of this version");
    if (graph->finished) return Error("this graph has been finished already");
    graph->finished = true;
    end(*graph, false);
    if (!graph->result.ok()) return graph->result.error();
    const RunReport& r = graph->report;
    if (counts != nullptr) {
      counts->pushed = r.packets_in;
      counts->made = r.generated;
      counts->out = r.packets_out;
      counts->dropped = r.dropped;
    }
    if (!r.conserved() || r.packets_in != graph->exchange->pushed || r.queued != 0)
      return Error("the packets do not add up: an error of the library");
    return 0;
  });
}

}  // extern "C"
