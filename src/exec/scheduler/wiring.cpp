// host only
// Who is connected to whom, and who wakes whom.
#include <set>

#include "exec/scheduler/node.h"

namespace sluice {

FlowClock flow_clock(const Router& router, bool simulated) {
  bool waits = false, looks = false, keeps = false, makes = false, live = false, captures = false;
  for (const auto& element : router.elements) {
    const PortSpec::Type port = element->port().type;
    live |= port == PortSpec::Type::kDevice;
    captures |= element->kind() == ElementKind::kSource &&
                (port == PortSpec::Type::kCapture || port == PortSpec::Type::kMemory);
    const Flow* flow = element->flow();
    if (flow == nullptr) continue;
    waits |= flow->time() == Flow::Time::kWaits;
    looks |= flow->time() == Flow::Time::kLooks;
    makes |= flow->time() == Flow::Time::kMakes;
    keeps |= element->kind() == ElementKind::kFlow && flow->time() != Flow::Time::kNone;
  }
  if (live) return FlowClock::kRun;  // they have the time of day
  keeps |= std::any_of(router.connections.begin(), router.connections.end(), [](const auto& c) { return c.pull; });
  if (!keeps) return FlowClock::kOwn;
  return captures && !makes && (looks || (waits && !simulated)) ? FlowClock::kPackets : FlowClock::kRun;
}

namespace {

// Along the links of one kind from `start` to the last nodes, and past none where `reached(node, whether it is a last
// one)` says so.
template <typename Nodes, typename Sides, typename Reached>
void walk_links(const Nodes& nodes, unsigned start, Sides sides, bool pull, Reached&& reached) {
  std::set<unsigned> seen;
  std::vector<unsigned> stack{start};
  while (!stack.empty()) {
    const unsigned at = stack.back();
    stack.pop_back();
    if (!seen.insert(at).second) continue;
    bool further = false;
    if (at == start || !reached(at, false)) {
      for (const auto& port : (*nodes[at]).*sides) {
        for (const auto& link : port) {
          if (link.pull != pull) continue;
          further = true;
          stack.push_back(link.node);
        }
      }
      if (!further && at != start) reached(at, true);
    }
  }
}

}  // namespace

Scheduler::Impl::Impl(Router& r, const Plan& pl, const RunOptions& o, FlowPool& p, Scheduler& s, HitLedger* hits,
                      LivePorts* ports, Impl* before)
    : router(r), plan(pl), options(o), owner(s), ledger(hits), live_ports(ports), pool(p), sleep(o.poll) {
  const size_t n = router.elements.size();
  account.stats.elements.resize(n);
  if (options.count_dscp) account.stats.count_dscp();
  clock = flow_clock(router, options.simulated || options.clock_ns != nullptr);
  past = before == nullptr ? options.files : files_besides(before->past, before->router, router);
  if (before != nullptr) {
    clock_goes_on(*before);
    egress = before->egress;
    follows = true;
  }
  add_nodes(before);
  for (size_t i = 0; i < plan.sinks.size(); ++i) nodes[plan.sinks[i]]->sink_ = i;
  number_inputs(before);
  connect_nodes();
  ring.resize(n);
  plan_runs();
  find_wakers();
  find_queues_below();
}

void Scheduler::Impl::add_nodes(const Impl* before) {
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    Element* element = router.elements[e].get();
    by_name.emplace(element->name, e);
    unsigned same = kNobody, kin = kNobody;
    if (before != nullptr) {
      const auto at = before->by_name.find(element->name);
      if (at != before->by_name.end()) {
        Element& old = before->nodes[at->second]->element_;
        if (old.class_name == element->class_name) kin = at->second;
        if (goes_on(old, *element)) {
          same = at->second;
          element = &old;
        }
      }
    }
    nodes.push_back(std::make_unique<Node>(*this, e, *element));
    if (element->kind() == ElementKind::kSource && element->port().type == PortSpec::Type::kDevice)
      live_.push_back(nodes.back().get());
    nodes.back()->same_ = same;
    nodes.back()->kin_ = kin;
  }
}

// Packets that wait in queues keep their numbers while graphs change.
void Scheduler::Impl::number_inputs(const Impl* before) {
  std::vector<std::string> names;
  if (before != nullptr) names = *before->inputs;
  for (const PlanSource& source : plan.sources) {
    const std::string& name = router.elements[source.element]->name;
    const auto at = std::find(names.begin(), names.end(), name);
    nodes[source.element]->input_ =
        static_cast<uint16_t>(std::min<size_t>(static_cast<size_t>(at - names.begin()), FlowPacket::kNoInput));
    if (at == names.end() && names.size() < FlowPacket::kNoInput) names.push_back(name);
  }
  inputs = std::make_shared<const std::vector<std::string>>(std::move(names));
}

void Scheduler::Impl::connect_nodes() {
  auto add = [](auto& links, unsigned port, Node::Link link) {
    if (links.size() <= port) links.resize(port + 1);
    links[port].push_back(link);
  };
  for (const RouterConnection& c : router.connections) {
    add(nodes[c.from]->outputs_, c.from_port, {c.to, c.to_port, c.pull});
    add(nodes[c.to]->inputs_, c.to_port, {c.from, c.from_port, c.pull});
  }

  auto places = [&](const auto& links, bool pull) {
    std::vector<Place> to;
    for (const auto& port : links) {
      const bool known = !port.empty() && port[0].pull == pull;
      to.push_back(known ? Place{nodes[port[0].node].get(), port[0].port} : Place{});
    }
    return to;
  };
  for (auto& node : nodes) {
    node->push_to_ = places(node->outputs_, false);
    node->pull_from_ = places(node->inputs_, true);
  }
}

// Who wakes whom: along pull connections down to whoever asks, along push connections up to whoever begins.
void Scheduler::Impl::find_wakers() {
  for (auto& node : nodes) {
    const bool source = node->kind_ == ElementKind::kSource;
    if (node->flow_ == nullptr && !source) continue;
    if (!node->outputs_.empty()) {
      walk_links(nodes, node->index_, &Node::outputs_, true, [&](unsigned at, bool last) {
        if (last) node->pullers_.push_back(at);
        return false;
      });
    }
    if (!source && node->flow_->holds_back()) {
      walk_links(nodes, node->index_, &Node::inputs_, false, [&](unsigned at, bool last) {
        if (last) node->pushers_.push_back(at);
        return false;
      });
    }
  }
}

// And down to the first queue that holds back.
void Scheduler::Impl::find_queues_below() {
  for (auto& node : nodes) {
    const bool begins = node->element_.kind() == ElementKind::kSource || node->flow_ != nullptr;
    if (!begins) continue;
    node->below_.resize(node->outputs_.size());
    for (unsigned out = 0; out < node->outputs_.size(); ++out) {
      Node::Below& below = node->below_[out];
      for (const Node::Link& link : node->outputs_[out]) {
        if (link.pull) continue;
        auto reached = [&](unsigned at, bool last) {
          const Flow* flow = nodes[at]->flow_;
          if (flow != nullptr && flow->holds_back()) {
            if (std::find(below.queues.begin(), below.queues.end(), flow) == below.queues.end())
              below.queues.push_back(flow);
            return true;
          }
          below.open |= last;
          return false;
        };
        if (!reached(link.node, false)) {
          bool any = false;
          for (const auto& port : nodes[link.node]->outputs_) any |= !port.empty() && !port[0].pull;
          if (any) {
            walk_links(nodes, link.node, &Node::outputs_, false, reached);
          } else {
            below.open = true;
          }
        }
      }
    }
  }
}

}  // namespace sluice
