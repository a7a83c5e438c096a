// host only
#include "graph/processing.h"

#include <algorithm>
#include <deque>

namespace sluice {
namespace {

constexpr uint32_t kNoNode = ~0u;
// More than anybody reads; they are compared with each other.
constexpr size_t kMostConflicts = 100;

bool is_side(std::string_view side) {
  return side.find_first_not_of("hla") == std::string_view::npos;
}

}  // namespace

std::string_view processing_code(const ElementClass& element_class, ElementKind kind) {
  if (!element_class.processing.empty()) return element_class.processing;
  switch (kind) {
    case ElementKind::kSource:
      return "/a";
    case ElementKind::kSink:
      return "a/";
    case ElementKind::kInfo:
      return "/";
    default:
      // A second output is for what is wrong with a packet; more are a choice, which is the packet's and not the
      // asker's.
      return element_class.outputs.max <= 2 ? "a/ah" : "h/h";
  }
}

bool is_processing_code(std::string_view code) {
  const size_t slash = code.find('/');
  if (slash == std::string_view::npos) return false;
  std::string_view outputs = code.substr(slash + 1);
  if (outputs.ends_with('#')) outputs.remove_suffix(1);
  return is_side(code.substr(0, slash)) && is_side(outputs);
}

Processing port_processing(std::string_view code, bool output, unsigned port) {
  const size_t slash = code.find('/');
  std::string_view side = output ? code.substr(slash + 1) : code.substr(0, slash);
  if (side.ends_with('#')) side.remove_suffix(1);
  if (side.empty()) return Processing::kPush;
  switch (side[std::min<size_t>(port, side.size() - 1)]) {
    case 'h':
      return Processing::kPush;
    case 'l':
      return Processing::kPull;
    default:
      return Processing::kAgnostic;
  }
}

namespace {

// Ports are nodes; an agnostic element's are joined by a node of its own. What is fixed spreads from node to node.
class Resolver {
 public:
  Resolver(const ClickGraph& graph, const std::vector<std::string_view>& codes) : graph_(graph), codes_(codes) {}

  std::vector<bool> run(std::vector<ProcessingConflict>* conflicts) {
    conflicts_ = conflicts;
    number_ports();
    by_node_.resize(node_count_);
    for (uint32_t c = 0; c < graph_.connections.size(); ++c) {
      by_node_[output_node(graph_.connections[c])].push_back(c);
      by_node_[input_node(graph_.connections[c])].push_back(c);
    }
    kind_.assign(node_count_, Processing::kAgnostic);
    origin_.assign(node_count_, kNoNode);
    for (uint32_t node = 0; node < node_count_; ++node) {
      const Place& place = places_[node];
      if (place.hub || codes_[place.element].empty()) continue;
      const Processing fixed = port_processing(codes_[place.element], place.output, place.port);
      if (fixed != Processing::kAgnostic) take(node, fixed, node);
    }
    while (!work_.empty()) {
      const uint32_t node = work_.front();
      work_.pop_front();
      spread(node);
    }
    std::vector<bool> pull;
    for (const ClickConnection& c : graph_.connections) pull.push_back(kind_[output_node(c)] == Processing::kPull);
    return pull;
  }

 private:
  struct Place {
    uint32_t element;
    uint32_t port;
    bool output;
    bool hub;
  };

  void number_ports() {
    const size_t n = graph_.elements.size();
    std::vector<uint32_t> inputs(n), outputs(n);
    for (const ClickConnection& c : graph_.connections) {
      outputs[c.from] = std::max(outputs[c.from], c.from_port + 1);
      inputs[c.to] = std::max(inputs[c.to], c.to_port + 1);
    }
    auto add = [&](uint32_t e, uint32_t port, bool output, bool hub) {
      places_.push_back({e, port, output, hub});
      ++node_count_;
    };
    for (uint32_t e = 0; e < n; ++e) {
      hub_.push_back(node_count_);
      add(e, 0, false, true);
      first_input_.push_back(node_count_);
      for (uint32_t p = 0; p < inputs[e]; ++p) add(e, p, false, false);
      first_output_.push_back(node_count_);
      for (uint32_t p = 0; p < outputs[e]; ++p) add(e, p, true, false);
    }
    hub_.push_back(node_count_);
  }
  uint32_t output_node(const ClickConnection& c) const { return first_output_[c.from] + c.from_port; }
  uint32_t input_node(const ClickConnection& c) const { return first_input_[c.to] + c.to_port; }

  bool agnostic(uint32_t node) const {
    const Place& place = places_[node];
    return !codes_[place.element].empty() &&
           port_processing(codes_[place.element], place.output, place.port) == Processing::kAgnostic;
  }
  bool joined(uint32_t element) const { return !codes_[element].empty() && !codes_[element].ends_with('#'); }

  void take(uint32_t node, Processing kind, uint32_t origin) {
    kind_[node] = kind;
    origin_[node] = origin;
    work_.push_back(node);
  }

  // `from` says what `to` is; both have been reached through `connection` or within `element`.
  void meet(uint32_t from, uint32_t to, const ClickConnection* connection, uint32_t element) {
    if (kind_[to] == kind_[from]) return;
    if (kind_[to] == Processing::kAgnostic) {
      take(to, kind_[from], origin_[from]);
      return;
    }
    if (conflicts_ == nullptr || conflicts_->size() >= kMostConflicts) return;
    const bool from_pushes = kind_[from] == Processing::kPush;
    ProcessingConflict conflict;
    conflict.connection = connection;
    conflict.element = element;
    conflict.push = end(origin_[from_pushes ? from : to]);
    conflict.pull = end(origin_[from_pushes ? to : from]);
    for (const ProcessingConflict& seen : *conflicts_) {
      if (seen.connection == connection && seen.element == element) return;
    }
    conflicts_->push_back(conflict);
  }
  ProcessingConflict::End end(uint32_t node) const {
    return {places_[node].element, places_[node].port, places_[node].output};
  }

  void spread(uint32_t node) {
    const Place place = places_[node];
    if (place.hub) {
      for (uint32_t port = node + 1; port < hub_[place.element + 1]; ++port) {
        if (agnostic(port)) meet(node, port, nullptr, place.element);
      }
      return;
    }
    for (uint32_t c : by_node_[node]) {
      const ClickConnection& connection = graph_.connections[c];
      const uint32_t other = place.output ? input_node(connection) : output_node(connection);
      if (codes_[places_[other].element].empty()) continue;
      meet(node, other, &connection, kNoNode);
    }
    if (agnostic(node) && joined(place.element)) meet(node, hub_[place.element], nullptr, place.element);
  }

  const ClickGraph& graph_;
  const std::vector<std::string_view>& codes_;
  std::vector<ProcessingConflict>* conflicts_ = nullptr;
  uint32_t node_count_ = 0;
  std::vector<uint32_t> hub_, first_input_, first_output_;
  std::vector<Place> places_;
  std::vector<std::vector<uint32_t>> by_node_;
  std::vector<Processing> kind_;
  std::vector<uint32_t> origin_;  // the port that decided
  std::deque<uint32_t> work_;
};

}  // namespace

std::vector<bool> resolve_processing(const ClickGraph& graph, const std::vector<std::string_view>& codes,
                                     std::vector<ProcessingConflict>* conflicts) {
  return Resolver(graph, codes).run(conflicts);
}

}  // namespace sluice
