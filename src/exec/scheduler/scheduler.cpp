// host only
#include "exec/scheduler/scheduler.h"

#include <fmt/format.h>

#include "elements/tables.h"
#include "exec/scheduler/node.h"
#include "graph/graph_files.h"

namespace sluice {

Result<std::unique_ptr<SchedulerGraph>> load_scheduler_graph(std::string_view text, const std::string& name,
                                                             const Registry& registry, const ParseOptions& options) {
  auto graph = parse_click(text, name, options);
  if (!graph.ok()) return std::move(graph).error();
  auto router = build_router(*graph, registry, text);
  if (!router.ok()) return std::move(router).error();
  if (auto ok = check_files(*router); !ok.ok()) return std::move(ok).error();
  auto made = std::make_unique<SchedulerGraph>();
  made->router = std::move(*router);
  TableReport report;
  auto tables = load_tables(made->router, {}, &report);
  if (!tables.ok()) return std::move(tables).error();
  RunFiles included;
  for (const TableLoad& load : report.loads) {
    for (const std::string& file : load.files) included.input(fmt::format("table '{}'", load.name), file);
  }
  if (auto ok = check_files(made->router, std::move(included)); !ok.ok()) return std::move(ok).error();
  made->tables = std::move(*tables);
  return made;
}

Scheduler::Scheduler(std::unique_ptr<Asked> asked) : asked_(std::move(asked)) {}
Scheduler::~Scheduler() = default;

Result<std::unique_ptr<Scheduler>> Scheduler::create(Router& router, const TableSet& tables,
                                                     const SchedulerOptions& options) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(std::make_unique<Asked>()));
  scheduler->impl_ = std::make_unique<Impl>(router, options, *scheduler->pool_, *scheduler, nullptr);
  Impl& impl = *scheduler->impl_;
  if (auto ok = check_files(router, options.files); !ok.ok()) return std::move(ok).error();
  if (auto ok = impl.bind(tables); !ok.ok()) return std::move(ok).error();
  if (auto ok = impl.open_ports(nullptr); !ok.ok()) return std::move(ok).error();
  if (auto ok = impl.start(); !ok.ok()) return std::move(ok).error();
  return scheduler;
}

uint64_t Scheduler::swaps() const {
  return swaps_;
}
const Router& Scheduler::router() const {
  return impl_->router;
}

bool Scheduler::ask(const std::function<void()>& what) {
  Asked::Call call{&what};
  std::unique_lock lock(asked_->mutex);
  if (!asked_->open) return false;
  asked_->calls.push_back(&call);
  asked_->waiting.store(true, std::memory_order_relaxed);
  asked_->changed.wait(lock, [&] { return call.done || !asked_->open; });
  if (call.done) return true;
  std::erase(asked_->calls, &call);
  return false;
}

Result<std::string> Scheduler::read(std::string_view name, std::string_view argument) {
  return impl_->read(nullptr, name, argument);
}
Result<void> Scheduler::write(std::string_view name, std::string_view value) {
  return impl_->write(nullptr, name, value);
}
bool Scheduler::wants_signal(int signal) const {
  return std::any_of(impl_->nodes.begin(), impl_->nodes.end(),
                     [&](const auto& node) { return node->flow_ != nullptr && node->flow_->wants_signal(signal); });
}
bool Scheduler::has_handler(std::string_view name, bool writes) const {
  return impl_->find(nullptr, name, writes).ok();
}
uint64_t Scheduler::now_ns() const {
  return impl_->now();
}

}  // namespace sluice
