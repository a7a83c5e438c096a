// host only
// What a graph is bound to before it runs: tables, ports and files; and its start.
#include <fmt/format.h>

#include "exec/scheduler/node.h"
#include "graph/graph_files.h"

namespace sluice {
namespace {

constexpr uint32_t kSourceBatch = 64;

bool same_output(const PortSpec& a, const PortSpec& b) {
  return a.type == b.type && a.path == b.path && a.nanosecond == b.nanosecond && a.snaplen == b.snaplen;
}

}  // namespace

Result<void> Scheduler::Impl::bind_one(unsigned index) {
  Node& node = *nodes[index];
  node.slot_ = StageSlot{};
  node.slot_.element = static_cast<uint16_t>(index);
  node.slot_.outputs = static_cast<uint8_t>(std::min(node.element_.outputs, kMaxOutputs));
  if (auto ok = node.element_.bind(tables, node.slot_); !ok.ok()) return ok;
  node.kernel_ = cpu_stage_kernel(node.slot_.kind);
  return {};
}

Result<void> Scheduler::Impl::bind(const TableSet& given) {
  tables = given;
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
void Scheduler::Impl::flush_ports() {
  hand_over();
  for (auto& node : nodes) {
    if (node->port_ == nullptr) continue;
    if (auto ok = node->port_->flush(); !ok.ok()) fail_output(std::move(ok).error());
  }
}

// The sink whose port writes to `path` and which the next graph may not have; kNobody: none.
unsigned Scheduler::Impl::writer_of(const std::string& path) const {
  for (unsigned e = 0; e < nodes.size(); ++e) {
    if (!path.empty() && nodes[e]->port_ != nullptr && nodes[e]->element_.port().path == path) return e;
  }
  return kNobody;
}

Result<void> Scheduler::Impl::open_ports(const Impl* before) {
  auto made = Batch::create(1, 0);
  if (!made.ok()) return std::move(made).error();
  scratch = std::make_unique<Batch>(std::move(*made));
  Error errors;
  // Sources first: what they hold decides what is written.
  std::vector<Node*> in_turn;
  for (auto& node : nodes) in_turn.push_back(node.get());
  std::stable_partition(in_turn.begin(), in_turn.end(),
                        [](const Node* node) { return node->element_.kind() == ElementKind::kSource; });
  std::vector<LinkType> links;
  for (Node* node : in_turn) {
    const Element& element = node->element_;
    if (node->same_ != kNobody) {
      if (node->source_ != nullptr) links.push_back(node->source_->link());
      continue;
    }
    if (node->flow_ != nullptr) continue;
    Result<void> ok;
    if (element.kind() == ElementKind::kSource) {
      auto source = open_source(element.port(), frames, options.inputs);
      auto batch = Batch::create(kSourceBatch, size_t{1} << 18);
      if (source.ok() && batch.ok()) {
        node->source_ = std::move(*source);
        links.push_back(node->source_->link());
        node->batch_ = std::make_unique<Batch>(std::move(*batch));
      } else {
        ok = source.ok() ? std::move(batch).error() : std::move(source).error();
      }
    } else if (element.kind() == ElementKind::kSink) {
      const PortSpec port = element.port();
      const auto writer = before == nullptr ? kNobody : before->writer_of(port.path);
      if (writer != kNobody) {
        if (!same_output(before->nodes[writer]->element_.port(), port)) {
          errors.diagnostics.push_back(element.diagnostic(fmt::format(
              "'{}' is being written by '{}' in another way", port.path, before->nodes[writer]->element_.name)));
          continue;
        }
        node->takes_port_ = writer;
        continue;
      }
      auto sink = open_sink(port, sink_link(router, node->index_, links));
      if (sink.ok()) {
        node->port_ = std::move(*sink);
      } else {
        ok = std::move(sink).error();
      }
    }
    if (!ok.ok()) {
      errors.system = ok.error().system && (errors.system || errors.diagnostics.empty());
      Diagnostic d = element.diagnostic(ok.error().message);
      d.suggestion = ok.error().hint;
      errors.diagnostics.push_back(std::move(d));
    }
  }
  if (errors.diagnostics.empty()) return {};
  errors.message =
      fmt::format("{} port{} cannot be opened", errors.diagnostics.size(), errors.diagnostics.size() == 1 ? "" : "s");
  return errors;
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
