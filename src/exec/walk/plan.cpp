// host only
#include "exec/walk/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "exec/cpu/fast.h"
#include "exec/cpu/tile.h"

namespace sluice {
namespace {

constexpr unsigned kNone = ~0u;

// Depth-first order from the sources; edges that close a cycle are found and left out.
struct Order {
  std::vector<unsigned> elements;                // reachable, topologically sorted without the back edges
  std::set<std::pair<unsigned, unsigned>> back;  // (from, to)
};

Order topological_order(std::span<const unsigned> roots, const std::vector<std::vector<unsigned>>& successors) {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  const size_t n = successors.size();
  std::vector<Mark> mark(n, Mark::kNew);
  Order order;
  struct Frame {
    unsigned element;
    size_t next;
  };
  for (const unsigned root : roots) {
    if (mark[root] != Mark::kNew) continue;
    std::vector<Frame> stack{{root, 0}};
    mark[root] = Mark::kOpen;
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next == successors[top.element].size()) {
        mark[top.element] = Mark::kDone;
        order.elements.push_back(top.element);
        stack.pop_back();
        continue;
      }
      const unsigned to = successors[top.element][top.next++];
      if (mark[to] == Mark::kOpen) {
        order.back.insert({top.element, to});
      } else if (mark[to] == Mark::kNew) {
        mark[to] = Mark::kOpen;
        stack.push_back({to, 0});
      }
    }
  }
  std::reverse(order.elements.begin(), order.elements.end());
  return order;
}

class Planner {
 public:
  Planner(const Router& router, std::span<const unsigned> sources, std::vector<PassedQueue> passed, FieldMask at_sinks)
      : router_(router), n_(router.elements.size()), sources_(sources) {
    plan_.at_sinks = at_sinks;
    plan_.passed = std::move(passed);
  }

  Result<Plan> run() {
    successors_.resize(n_);
    predecessors_.resize(n_);
    for (const RouterConnection& c : router_.connections) {
      // What leaves a puller leaves its queue, and nothing else does.
      const auto passed = std::find_if(plan_.passed.begin(), plan_.passed.end(),
                                       [&](const PassedQueue& p) { return p.queue == c.from || p.puller == c.from; });
      if (passed != plan_.passed.end() && passed->queue == c.from) continue;
      const unsigned from = passed != plan_.passed.end() ? passed->queue : c.from;
      successors_[from].push_back(c.to);
      predecessors_[c.to].push_back(from);
    }
    order_ = topological_order(sources_, successors_);
    group_elements();
    make_nodes();
    if (auto ok = connect(); !ok) return std::move(ok).error();
    if (plan_.sources.empty()) {
      return Error("the configuration has no packet source",
                   "add FromDump(FILE), InfiniteSource(...), or give --in FILE");
    }
    compute_liveness();
    return std::move(plan_);
  }

 private:
  static PlanNode::Type type_of(ElementKind kind) {
    return kind == ElementKind::kSink      ? PlanNode::Type::kSink
           : kind == ElementKind::kOrdered ? PlanNode::Type::kOrdered
                                           : PlanNode::Type::kHost;
  }
  bool is_stage(unsigned e) const { return router_.elements[e]->kind() == ElementKind::kStage; }
  bool is_wide(unsigned e) const { return is_stage(e) && router_.elements[e]->outputs > kMaxFusedOutputs; }
  bool is_source(unsigned e) const { return router_.elements[e]->kind() == ElementKind::kSource; }

  unsigned find(unsigned e) {
    while (parent_[e] != e) e = parent_[e] = parent_[parent_[e]];
    return e;
  }

  // Depth counts the switches between programs and host nodes on the way to an element; stages of one depth that are
  // connected form a segment. An edge between two nodes therefore always goes to a larger depth.
  void group_elements() {
    parent_.resize(n_);
    std::iota(parent_.begin(), parent_.end(), 0u);
    depth_.assign(n_, 0);
    size_.assign(n_, 1);
    for (unsigned e : order_.elements) {
      if (is_source(e)) continue;
      unsigned depth = 0;
      for (unsigned p : predecessors_[e]) {
        if (is_source(p) || order_.back.contains({p, e})) continue;
        depth = std::max(depth, depth_[p] + (is_stage(p) && is_stage(e) && !is_wide(p) && !is_wide(e) ? 0 : 1));
      }
      depth_[e] = depth;
      if (!is_stage(e) || is_wide(e)) continue;
      std::set<unsigned> groups;
      unsigned total = 1;
      for (unsigned p : predecessors_[e]) {
        if (is_source(p) || !is_stage(p) || is_wide(p) || depth_[p] != depth || order_.back.contains({p, e})) continue;
        if (groups.insert(find(p)).second) total += size_[find(p)];
      }
      if (total > kMaxStages) {
        depth_[e] = depth + 1;
        continue;
      }
      for (unsigned g : groups) parent_[find(g)] = find(e);
      size_[find(e)] = total;
    }
  }

  void make_nodes() {
    node_of_.assign(n_, kNone);
    slot_of_.assign(n_, 0);
    std::vector<unsigned> by_depth;
    for (unsigned e : order_.elements) {
      if (!is_source(e)) by_depth.push_back(e);
    }
    std::stable_sort(by_depth.begin(), by_depth.end(), [&](unsigned a, unsigned b) { return depth_[a] < depth_[b]; });
    std::map<unsigned, unsigned> node_of_group;
    for (unsigned e : by_depth) {
      if (is_stage(e)) {
        auto [it, fresh] = node_of_group.try_emplace(find(e), static_cast<unsigned>(plan_.nodes.size()));
        if (fresh) {
          PlanNode node;
          node.type = PlanNode::Type::kSegment;
          node.program = static_cast<unsigned>(plan_.programs.size());
          node.inputs = 0;
          node.wide = is_wide(e);
          plan_.programs.emplace_back();
          plan_.nodes.push_back(std::move(node));
        }
        node_of_[e] = it->second;
        PlanNode& node = plan_.nodes[it->second];
        slot_of_[e] = static_cast<unsigned>(node.elements.size());
        node.elements.push_back(e);
      } else {
        PlanNode node;
        node.type = type_of(router_.elements[e]->kind());
        node.elements = {e};
        node.inputs = std::max(1u, router_.elements[e]->inputs);
        for (unsigned p = 0; p < plan_.passed.size(); ++p) {
          if (plan_.passed[p].queue != e) continue;
          node.type = PlanNode::Type::kPassed;
          node.passed = p;
          node.elements.push_back(plan_.passed[p].puller);
        }
        node_of_[e] = static_cast<unsigned>(plan_.nodes.size());
        if (node.type == PlanNode::Type::kOrdered) {
          node.ordered = static_cast<unsigned>(plan_.ordered.size());
          node.by_lengths = router_.elements[e]->by_lengths();
          node.writes_frames = (router_.elements[e]->stage_traits().writes & kFieldFrame) != 0;
          plan_.ordered.push_back(e);
        }
        plan_.nodes.push_back(std::move(node));
      }
    }
  }

  // The node input that leads to a port of an element from outside of its node.
  PlanTarget enter(unsigned element, unsigned port) {
    PlanNode& node = plan_.nodes[node_of_[element]];
    if (node.type != PlanNode::Type::kSegment) return {node_of_[element], port};
    const auto path = static_cast<uint8_t>(slot_of_[element]);
    auto it = std::find(node.entries.begin(), node.entries.end(), path);
    if (it == node.entries.end()) {
      node.entries.push_back(path);
      node.inputs = static_cast<unsigned>(node.entries.size());
      it = node.entries.end() - 1;
    }
    return {node_of_[element], static_cast<uint32_t>(it - node.entries.begin())};
  }

  Result<void> connect() {
    for (unsigned i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode::Type type = plan_.nodes[i].type;
      if (type == PlanNode::Type::kHost || type == PlanNode::Type::kOrdered || type == PlanNode::Type::kPassed) {
        const unsigned e = plan_.nodes[i].elements.back();
        std::vector<PlanTarget> exits(router_.elements[e]->outputs);
        for (unsigned out = 0; out < exits.size(); ++out) {
          const auto to = router_.target(e, out);
          if (to.element != kNone) exits[out] = enter(to.element, to.port);
        }
        plan_.nodes[i].exits = std::move(exits);
      } else if (type == PlanNode::Type::kSegment) {
        if (auto ok = connect_segment(i); !ok) return ok;
      }
    }
    for (const unsigned e : sources_) {
      const auto to = router_.target(e, 0);
      if (to.element != kNone) plan_.sources.push_back({e, enter(to.element, to.port)});
    }
    for (unsigned e = 0; e < n_; ++e) {
      if (router_.elements[e]->kind() == ElementKind::kSink) plan_.sinks.push_back(e);
    }
    return {};
  }

  Result<void> connect_segment(unsigned index) {
    Program& program = plan_.programs[plan_.nodes[index].program];
    const std::vector<unsigned> elements = plan_.nodes[index].elements;
    program.stage_count = static_cast<uint32_t>(elements.size());
    std::vector<PlanTarget> exits;
    for (unsigned s = 0; s < elements.size(); ++s) {
      const unsigned e = elements[s];
      StageSlot& slot = program.stages[s];
      slot.element = static_cast<uint16_t>(e);
      slot.moves_extent = (router_.elements[e]->stage_traits().writes & kFieldExtent) != 0 ? 1 : 0;
      slot.outputs = static_cast<uint8_t>(std::min(router_.elements[e]->outputs, kMaxOutputs));
      if (plan_.nodes[index].wide) {
        exits.resize(slot.outputs);
        for (unsigned out = 0; out < slot.outputs; ++out) {
          const auto to = router_.target(e, out);
          if (to.element != kNone) exits[out] = enter(to.element, to.port);
        }
        continue;
      }
      std::fill(std::begin(slot.next), std::end(slot.next), kPathDropped);
      for (unsigned out = 0; out < slot.outputs; ++out) {
        const auto to = router_.target(e, out);
        if (to.element == kNone) continue;
        // Inside the segment a packet only ever moves to a later stage; a cycle leaves and comes back in.
        if (node_of_[to.element] == index && slot_of_[to.element] > s) {
          slot.next[out] = static_cast<uint8_t>(slot_of_[to.element]);
          continue;
        }
        const PlanTarget target = enter(to.element, to.port);
        auto it = std::find_if(exits.begin(), exits.end(),
                               [&](const PlanTarget& x) { return x.node == target.node && x.input == target.input; });
        if (it == exits.end()) {
          if (exits.size() == kMaxExits) return Error(fmt::format("a segment has more than {} exits", kMaxExits));
          exits.push_back(target);
          it = exits.end() - 1;
        }
        slot.next[out] = static_cast<uint8_t>(kPathExit + (it - exits.begin()));
      }
    }
    plan_.nodes[index].exits = std::move(exits);
    return {};
  }

  // Whether an element writes bytes of frames that others may have, where these lie close.
  static bool stays_close(const StageTraits& traits) {
    constexpr FieldMask kMoves = kFieldFrame | kFieldExtent;
    if ((traits.writes & kMoves) == 0 || traits.frame == FrameUse::kNone) return true;
    // Elsewhere a network header may begin at the frame's first byte, or what is pushed may grow with each.
    if (traits.frame != FrameUse::kHeaders) return false;
    return (traits.writes & kMoves) != kMoves || traits.writes_before <= kCloseHeadroom;
  }

  void compute_liveness() {
    plan_.stays_close = true;
    for (PlanNode& node : plan_.nodes) {
      if (node.type != PlanNode::Type::kSegment) {
        if (node.type == PlanNode::Type::kSink) continue;
        for (unsigned e : node.elements) plan_.stays_close &= stays_close(router_.elements[e]->stage_traits());
        continue;
      }
      for (unsigned e : node.elements) {
        const StageTraits traits = router_.elements[e]->stage_traits();
        plan_.shows_headroom |= traits.frame == FrameUse::kInFront;
        plan_.stays_close &= stays_close(traits);
        node.reads |= traits.reads;
        node.writes |= traits.writes;
      }
    }
    // A sink reads the frame and its extent alone; an element that takes batches in order reads what it says, and what
    // those behind it read; whatever else may read every register. Behind an ordered node there are no cycles to it.
    std::vector<FieldMask> wanted(plan_.nodes.size(), ~FieldMask{0});
    for (size_t i = plan_.nodes.size(); i-- > 0;) {
      PlanNode& node = plan_.nodes[i];
      if (node.type == PlanNode::Type::kSegment || node.type == PlanNode::Type::kHost) continue;
      wanted[i] = kFieldFrame | kFieldExtent;
      node.leaves_as_is = true;
      if (node.type == PlanNode::Type::kSink) wanted[i] |= plan_.at_sinks;
      if (node.type == PlanNode::Type::kSink) continue;
      if (node.type == PlanNode::Type::kOrdered) {
        const StageTraits traits = router_.elements[node.elements[0]]->stage_traits();
        wanted[i] |= traits.reads;
        node.leaves_as_is = (traits.writes & (kFieldFrame | kFieldExtent | kFieldL3 | kFieldPort)) == 0;
      }
      for (size_t x = 0; x < node.exits.size(); ++x) {
        if (!node.connects(x)) continue;
        wanted[i] |= wanted[node.exits[x].node];
        const PlanNode& target = plan_.nodes[node.exits[x].node];
        node.leaves_as_is &= target.leaves_as_is;
        node.by_lengths &= target.type == PlanNode::Type::kSink || target.by_lengths;
      }
    }
    for (PlanNode& node : plan_.nodes) {
      node.live_out.resize(node.exits.size());
      for (size_t x = 0; x < node.exits.size(); ++x) {
        if (!node.connects(x)) continue;
        const FieldMask fields = wanted[node.exits[x].node];
        node.live_out[x] = fields;
        plan_.nodes[node.exits[x].node].live_in |= fields;
      }
    }
  }

  const Router& router_;
  size_t n_;
  std::span<const unsigned> sources_;
  std::vector<std::vector<unsigned>> successors_, predecessors_;
  Order order_;
  std::vector<unsigned> parent_, depth_, size_, node_of_, slot_of_;
  Plan plan_;
};

std::string field_names(FieldMask mask) {
  static constexpr const char* kNames[] = {"frame",    "extent", "l3",    "key",         "rule",  "mark",
                                           "next_hop", "port",   "paint", "destination", "reason"};
  std::string out;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if ((mask >> i & 1) != 0) out += (out.empty() ? "" : " ") + std::string(kNames[i]);
  }
  return out.empty() ? "-" : out;
}

}  // namespace

Result<Plan> make_plan(const Router& router, FieldMask at_sinks) {
  if (!router.scheduled.empty()) {
    return Error(fmt::format("the packet scheduler has to run this graph: {}", router.scheduled),
                 "`sluice run` and `click` have it");
  }
  std::vector<unsigned> sources;
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    if (router.elements[e]->kind() == ElementKind::kSource) sources.push_back(e);
  }
  return Planner(router, sources, {}, at_sinks).run();
}

Result<Plan> plan_passages(const Router& router, std::span<const unsigned> sources, std::vector<PassedQueue> passed,
                           FieldMask at_sinks) {
  return Planner(router, sources, std::move(passed), at_sinks).run();
}

Plan plan_by_packets(const Router& router, FieldMask at_sinks) {
  Plan plan;
  plan.by_packets = true;
  plan.at_sinks = at_sinks;
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    Element& element = *router.elements[e];
    if (element.flow() != nullptr) continue;
    if (element.kind() == ElementKind::kSource) plan.sources.push_back({e, {}});
    if (element.kind() == ElementKind::kSink) plan.sinks.push_back(e);
  }
  return plan;
}

Result<std::unique_ptr<Snapshot>> bind_plan(const Plan& plan, const Router& router, TableSet tables) {
  auto snapshot = std::make_unique<Snapshot>();
  snapshot->tables = std::move(tables);
  snapshot->programs = plan.programs;
  Error errors;
  const auto need = [&](const Element& element, const Result<void>& ok) {
    if (ok.ok()) return;
    Diagnostic d = element.diagnostic(ok.error().message);
    d.suggestion = ok.error().hint;
    errors.diagnostics.push_back(std::move(d));
  };
  for (Program& program : snapshot->programs) {
    for (uint32_t s = 0; s < program.stage_count; ++s) {
      StageSlot& slot = program.stages[s];
      const Element& element = *router.elements[slot.element];
      need(element, element.bind(snapshot->tables, slot));
    }
  }
  for (const unsigned e : plan.ordered) need(*router.elements[e], router.elements[e]->check_tables(snapshot->tables));
  if (!errors.diagnostics.empty()) {
    errors.message = fmt::format("{} element{} cannot be bound", errors.diagnostics.size(),
                                 errors.diagnostics.size() == 1 ? "" : "s");
    return errors;
  }
  for (Program& program : snapshot->programs) {
    program.front = 0;
    while (program.front < program.stage_count && cpu_stage_prefetch(program.stages[program.front].kind) == nullptr) {
      ++program.front;
    }
    program.fast = fast_stages(program);
  }
  return snapshot;
}

std::string describe(const Plan& plan, const Router& router) {
  std::string out;
  auto target_name = [&](const PlanTarget& t) {
    return t.node == kNone ? std::string("drop") : fmt::format("node {}", t.node);
  };
  for (const PlanSource& s : plan.sources) {
    out += fmt::format("source {} :: {} -> {}\n", router.elements[s.element]->name,
                       router.elements[s.element]->class_name, target_name(s.target));
  }
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    if (node.type == PlanNode::Type::kSegment) {
      out += fmt::format("node {}: segment, {} stages, program {} bytes\n", i, node.elements.size(), sizeof(Program));
      for (unsigned e : node.elements)
        out += fmt::format("    {} :: {}\n", router.elements[e]->name, router.elements[e]->class_name);
      out += fmt::format("    reads  {}\n    writes {}\n", field_names(node.reads), field_names(node.writes));
    } else {
      const Element& e = *router.elements[node.elements[0]];
      out += fmt::format("node {}: {} {} :: {}\n", i,
                         node.type == PlanNode::Type::kSink      ? "sink"
                         : node.type == PlanNode::Type::kOrdered ? "ordered"
                         : node.type == PlanNode::Type::kPassed  ? "passed"
                                                                 : "host",
                         e.name, e.class_name);
    }
    for (size_t x = 0; x < node.exits.size(); ++x)
      out += fmt::format("    exit {} -> {}\n", x, target_name(node.exits[x]));
  }
  return out;
}

}  // namespace sluice
