// host only
// What a graph is bound to before it runs: tables, ports and files; and its start.
#include <fmt/format.h>

#include "exec/account/rule_log.h"
#include "exec/scheduler/node.h"
#include "graph/graph_files.h"

namespace sluice {
namespace {

constexpr uint32_t kSourceBatch = 256;
constexpr size_t kSourceArena = size_t{1} << 19;

}  // namespace

Result<void> Scheduler::Impl::bind_one(unsigned index) {
  Node& node = *nodes[index];
  if (passage != nullptr) passage->bound = nullptr;
  node.slot_ = StageSlot{};
  node.slot_.element = static_cast<uint16_t>(index);
  node.slot_.outputs = static_cast<uint8_t>(std::min(node.element_.outputs, kMaxOutputs));
  if (auto ok = node.element_.bind(tables, node.slot_); !ok.ok()) return ok;
  node.kernel_ = cpu_stage_kernel(node.slot_.kind);
  if (ledger == nullptr && options.rule_log == nullptr) return {};
  const std::string* const table = counted_table(node.slot_, tables);
  const auto image = table != nullptr ? tables.acls.find(*table)->second : nullptr;
  std::shared_ptr<RuleHits> hits;
  std::shared_ptr<const LoggedRules> logs;
  if (image != nullptr && ledger != nullptr) hits = ledger->of(*table, image);
  if (image != nullptr && options.rule_log != nullptr)
    logs = options.rule_log->of(*table, image, node.element_.name, inputs);
  records_rules |= logs != nullptr;
  RuleAccounts::put(rules.hits, index, std::move(hits));
  RuleAccounts::put(rules.logs, index, std::move(logs));
  account.to(rules, nullptr);
  return {};
}

Result<void> Scheduler::Impl::bind(const TableSet& given) {
  tables = given;
  records_rules = false;
  Error errors;
  for (unsigned e = 0; e < nodes.size(); ++e) {
    if (router.elements[e]->kind() != ElementKind::kStage) continue;
    if (auto ok = bind_one(e); !ok.ok()) {
      Diagnostic d = router.elements[e]->diagnostic(ok.error().message);
      d.suggestion = ok.error().hint;
      errors.diagnostics.push_back(std::move(d));
    }
  }
  if (errors.diagnostics.empty()) return {};
  errors.message =
      fmt::format("{} element{} cannot be bound", errors.diagnostics.size(), errors.diagnostics.size() == 1 ? "" : "s");
  return errors;
}

// Before a read that waits: whoever reads an output gets what there is.
void Scheduler::Impl::flush() {
  hand_over();
  egress->flush();
  if (egress->failed()) ended = true;
}

Result<void> Scheduler::Impl::open_sources(Error& errors) {
  auto made = Batch::create(1, 0);
  if (!made.ok()) return std::move(made).error();
  scratch = std::make_unique<Batch>(std::move(*made));
  FrameCache own;
  for (const PlanSource& s : plan.sources) {
    Node& node = *nodes[s.element];
    if (node.same_ != kNobody) continue;
    const PortSpec spec = node.element_.port();
    const bool live = spec.type == PortSpec::Type::kDevice && live_ports != nullptr;
    auto source = live ? live_ports->open_source(spec)
                       : open_source(spec, options.frames != nullptr ? *options.frames : own, options.inputs);
    if (!source.ok()) {
      add_port_error(router, s.element, source.error(), errors);
      continue;
    }
    // Frames of live ports stay in their chunks.
    auto batch = Batch::create(kSourceBatch, live ? 0 : kSourceArena);
    if (!batch.ok()) return std::move(batch).error();
    if (options.qos != nullptr) batch->keep_egress_notes();
    node.source_ = std::move(*source);
    node.batch_ = std::make_unique<Batch>(std::move(*batch));
  }
  return {};
}

// The sources of elements that go on are still those of the graph before.
std::vector<LinkType> Scheduler::Impl::links() const {
  std::vector<LinkType> links;
  for (const PlanSource& s : plan.sources) {
    const Node& node = *nodes[s.element];
    if (node.source_ != nullptr) {
      links.push_back(node.source_->link());
    } else if (node.same_ != kNobody) {
      links.push_back(owner.impl_->nodes[node.same_]->source_->link());
    }
  }
  return links;
}

Result<void> Scheduler::Impl::start() {
  for (auto& node : nodes) {
    if (node->same_ != kNobody) continue;
    if (node->flow_ != nullptr) {
      if (auto ok = node->flow_->start(*node); !ok.ok()) {
        if (!ok.error().diagnostics.empty()) return ok;
        Error error;
        error.message = fmt::format("'{}' cannot start", node->element_.name);
        error.system = ok.error().system;
        error.diagnostics.push_back(node->element_.diagnostic(ok.error().message));
        error.diagnostics.back().suggestion = ok.error().hint;
        return error;
      }
      continue;
    }
    const ElementKind kind = node->element_.kind();
    if ((kind == ElementKind::kSource && node->pushes(0)) || (kind == ElementKind::kSink && node->pulls_input()))
      node->wake();
  }
  return {};
}

}  // namespace sluice
