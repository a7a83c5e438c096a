// host only
#include "exec/scheduler/scheduler.h"

#include "exec/scheduler/node.h"

namespace sluice {

Scheduler::~Scheduler() = default;

Result<std::unique_ptr<Scheduler>> Scheduler::create(Router& router, const Plan& plan, const TableSet& tables,
                                                     const RunOptions& options, HitLedger* ledger,
                                                     LivePorts* live_ports, Error& ports) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler);
  scheduler->impl_ =
      std::make_unique<Impl>(router, plan, options, *scheduler->pool_, *scheduler, ledger, live_ports, nullptr);
  Impl& impl = *scheduler->impl_;
  if (auto ok = impl.bind(tables); !ok) return std::move(ok).error();
  if (auto ok = impl.open_sources(ports); !ok) return std::move(ok).error();
  return scheduler;
}

std::vector<LinkType> Scheduler::links() const {
  return impl_->links();
}

Result<void> Scheduler::start(Egress& egress) {
  egress_ = impl_->egress = &egress;
  return impl_->start();
}

Polled Scheduler::poll() {
  const Polled polled = impl_->turn();
  if (!impl_->replaced || impl_->ended) return polled;
  change();
  (void)close_ports();
  return Polled::kFrames;
}

void Scheduler::take_over() {
  if (impl_->replaced && !impl_->ended) change();
}

std::vector<LivePorts::Closing> Scheduler::close_ports() {
  if (impl_->live_ports != nullptr && next_ == nullptr)
    closing_.push_back(impl_->live_ports->close_all_but(impl_->router, impl_->plan));
  return std::exchange(closing_, {});
}

Result<void> Scheduler::use_tables(const TableSet& tables) {
  impl_->settle();
  return impl_->bind(tables);
}

void Scheduler::wait(uint64_t at_most_ns) {
  impl_->wait(at_most_ns);
}
bool Scheduler::live() const {
  return !impl_->live_.empty();
}
void Scheduler::settle() {
  impl_->settle();
}
const Result<void>& Scheduler::result() const {
  return impl_->failure;
}
bool Scheduler::damaged() const {
  return impl_->damaged;
}
bool Scheduler::interrupted() const {
  return impl_->interrupted;
}
bool Scheduler::failed_by_output() const {
  return impl_->output_failed;
}
const Router& Scheduler::router() const {
  return impl_->router;
}
const Plan& Scheduler::plan() const {
  return impl_->plan;
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
