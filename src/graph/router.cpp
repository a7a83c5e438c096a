// host only
#include "graph/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/processing.h"

namespace sluice {

const ElementClass* Registry::find(std::string_view name) const {
  for (const auto& c : classes_) {
    if (c->name == name || std::find(c->aliases.begin(), c->aliases.end(), name) != c->aliases.end()) return c.get();
  }
  return nullptr;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> names;
  for (const auto& c : classes_) {
    names.push_back(c->name);
    names.insert(names.end(), c->aliases.begin(), c->aliases.end());
  }
  return names;
}

Router::Target Router::target(unsigned element, unsigned output) const {
  const auto at = std::lower_bound(
      connections.begin(), connections.end(), std::pair(element, output),
      [](const RouterConnection& c, const auto& want) { return std::pair(c.from, c.from_port) < want; });
  if (at == connections.end() || at->from != element || at->from_port != output) return {};
  return {at->to, at->to_port};
}

const Element* Router::find(std::string_view name) const {
  for (const auto& e : elements) {
    if (e->name == name) return e.get();
  }
  return nullptr;
}

namespace {

constexpr FieldMask kAllFields = ~FieldMask{0};

// What an error message calls a field, and which elements write it.
struct FieldName {
  Field field;
  const char* name;
  const char* provider;
};
constexpr FieldName kFieldNames[] = {
    {kFieldKey, "the packet's key", "CheckIPHeader or IPInput"},
    {kFieldL3, "the packet's network header", "CheckIPHeader or IPInput"},
    {kFieldDestination, "the packet's destination", "CheckIPHeader or IPInput"},
    {kFieldNextHop, "the packet's next hop", "IPRoute"},
    {kFieldRule, "the packet's access-list rule", "ACL"},
};

const char* plural(size_t n) {
  return n == 1 ? "" : "s";
}

// "1", "1 or 2", "1 to 4", "at least 1".
std::string range_text(unsigned min, unsigned max, const char* noun) {
  if (max == 0) return fmt::format("no {}s", noun);
  if (max == kAnyPorts) return fmt::format("at least {} {}{}", min, noun, plural(min));
  if (min == max) return fmt::format("{} {}{}", min, noun, plural(min));
  return fmt::format("{} {} {} {}s", min, max == min + 1 ? "or" : "to", max, noun);
}

class RouterBuilder {
 public:
  RouterBuilder(const ClickGraph& graph, const Registry& registry) : graph_(graph), registry_(registry) {}

  Result<Router> run(std::string_view text, Router* sound) {
    make_elements();
    resolve();
    take_connections();
    check_ports();
    if (errors_ == 0) check_fields();
    std::stable_sort(findings_.begin(), findings_.end(), [](const Diagnostic& a, const Diagnostic& b) {
      return std::tie(a.line, a.column) < std::tie(b.line, b.column);
    });
    if (errors_ != 0) {
      for (size_t e = 0; sound != nullptr && e < configured_.size(); ++e) {
        if (configured_[e]) sound->elements.push_back(std::move(router_.elements[e]));
      }
      std::string file = findings_.front().file.empty() ? "configuration" : findings_.front().file;
      Diagnostics all(std::move(file), text);
      for (Diagnostic& d : findings_) all.add(std::move(d));
      for (size_t i = all.error_count(); i < errors_; ++i) all.add({});
      return all.to_error();
    }
    router_.warnings = std::move(findings_);
    router_.requirements = graph_.requirements;
    return std::move(router_);
  }

 private:
  // Keeps a bounded number of findings, so that no configuration makes the list grow without end, and counts the
  // errors.
  static constexpr size_t kStored = 4 * Diagnostics::kLimit;
  Diagnostic& add(Diagnostic d) {
    if (d.severity == Diagnostic::Severity::kError) ++errors_;
    if (findings_.size() >= kStored) return ignored_ = std::move(d);
    return findings_.emplace_back(std::move(d));
  }

  Diagnostic& report(const SourcePos& position, size_t length, std::string message) {
    if (position.source)
      return add(position.source->diagnostic(position.offset, std::max<size_t>(1, length), std::move(message)));
    Diagnostic d;
    d.message = std::move(message);
    return add(std::move(d));
  }

  // Those that name addresses first.
  void make_elements() {
    const size_t n = graph_.elements.size();
    router_.elements.resize(n);
    configured_.resize(n);
    std::vector<const ElementClass*> classes;
    for (const ClickElement& c : graph_.elements) classes.push_back(registry_.find(c.class_name));
    AddressNames names;
    for (const bool early : {true, false}) {
      for (size_t e = 0; e < n; ++e) {
        if ((classes[e] != nullptr && classes[e]->names_addresses) != early) continue;
        make_element(e, classes[e], names);
        if (early && configured_[e]) router_.elements[e]->add_names(names);
      }
    }
  }

  void make_element(size_t index, const ElementClass* found, const AddressNames& names) {
    const ClickElement& c = graph_.elements[index];
    std::unique_ptr<Element> element;
    if (found == nullptr) {
      Diagnostic& d =
          report(c.class_position, c.class_name.size(), fmt::format("unknown element class '{}'", c.class_name));
      const std::string near = closest_match(c.class_name, registry_.names());
      d.suggestion = near.empty() ? "`sluice elements` lists the classes" : fmt::format("did you mean {}?", near);
    } else {
      element = found->make(c.class_name);
      element->name = c.name;
      element->element_class = found;
      element->class_name = c.class_name;
      element->configuration = c.configuration;
      element->position = c.name_position.source ? c.name_position : c.class_position;
      const size_t before = errors_;
      for (Diagnostic& d :
           configure(*element, *found, c.configuration, c.configuration_origin, {&names, scope_of(c.name)}))
        add(std::move(d));
      // A port count that rests on wrong arguments would only add noise.
      configured_[index] = errors_ == before;
    }
    router_.elements[index] = std::move(element);
  }

  static std::string port_text(const ProcessingConflict::End& end, const char* kind, const std::string& name) {
    return fmt::format("{} {} {} of '{}'", kind, end.output ? "output" : "input", end.port, name);
  }

  // Push and pull, and whether the packet scheduler is needed.
  void resolve() {
    std::vector<std::string_view> codes;
    for (const auto& element : router_.elements)
      codes.push_back(element == nullptr ? std::string_view()
                                         : processing_code(*element->element_class, element->kind()));
    std::vector<ProcessingConflict> conflicts;
    pull_ = resolve_processing(graph_, codes, &conflicts);
    for (const ProcessingConflict& conflict : conflicts) {
      const ClickElement& push = graph_.elements[conflict.push.element];
      const ClickElement& pull = graph_.elements[conflict.pull.element];
      const std::string ends = fmt::format("{} and {}", port_text(conflict.push, "push", push.name),
                                           port_text(conflict.pull, "pull", pull.name));
      Diagnostic* d = nullptr;
      if (conflict.connection != nullptr) {
        d = &report(conflict.connection->position, 2, fmt::format("{} meet", ends));
      } else {
        const ClickElement& c = graph_.elements[conflict.element];
        d = &report(c.name_position.source ? c.name_position : c.class_position, c.name.size(),
                    fmt::format("{} meet at '{}' ({})", ends, c.name, c.class_name));
      }
      // Packets that are handed to somebody who asks must wait in between; what waits must be fetched.
      d->suggestion = conflict.push.output ? "put a Queue between them" : "put an Unqueue between them";
    }
    for (size_t c = 0; c < pull_.size() && router_.scheduled.empty(); ++c) {
      if (pull_[c]) {
        router_.scheduled = fmt::format("'{}' pulls packets from '{}'", graph_.elements[graph_.connections[c].to].name,
                                        graph_.elements[graph_.connections[c].from].name);
      }
    }
    for (const auto& element : router_.elements) {
      if (element == nullptr || element->kind() != ElementKind::kFlow || !router_.scheduled.empty()) continue;
      router_.scheduled = fmt::format("'{}' ({}) handles one packet at a time", element->name, element->class_name);
    }
    check_order();
  }

  // Elements that take whole batches in order must see all packets of a batch at once, at the times at which these
  // arrived: nothing in front of them makes packets, delays them or leads them in a circle, and nothing behind one that
  // delays makes packets, whose times would not be known. The packet scheduler can do all that.
  void check_order() {
    const size_t n = router_.elements.size();
    std::vector<std::vector<unsigned>> successors(n);
    for (const ClickConnection& c : graph_.connections) successors[c.from].push_back(c.to);
    const auto reach = [&](unsigned from) {
      std::vector<bool> seen(n);
      std::vector<unsigned> open{from};
      while (!open.empty()) {
        const unsigned at = open.back();
        open.pop_back();
        for (const unsigned to : successors[at]) {
          if (seen[to]) continue;
          seen[to] = true;
          open.push_back(to);
        }
      }
      return seen;
    };
    const auto ordered = [&](unsigned e) {
      return router_.elements[e] != nullptr && router_.elements[e]->kind() == ElementKind::kOrdered;
    };
    std::vector<unsigned> all;
    for (unsigned e = 0; e < n; ++e) {
      if (ordered(e)) all.push_back(e);
    }
    if (all.empty() || !router_.scheduled.empty()) return;
    const auto name = [&](unsigned e) {
      return fmt::format("'{}' ({})", router_.elements[e]->name, router_.elements[e]->class_name);
    };
    for (unsigned e = 0; e < n && router_.scheduled.empty(); ++e) {
      if (router_.elements[e] == nullptr) continue;
      const Element& element = *router_.elements[e];
      const std::vector<bool> behind = reach(e);
      const char* what = behind[e]                 ? "leads packets in a loop"
                         : element.makes_packets() ? "makes packets"
                         : element.delays() != 0   ? "delays packets"
                                                   : nullptr;
      for (const unsigned o : all) {
        if (what != nullptr && behind[o]) {
          router_.scheduled = fmt::format("{} {} in front of {}", name(e), what, name(o));
          break;
        }
      }
      if (element.delays() == 0) continue;
      for (unsigned m = 0; m < n && router_.scheduled.empty(); ++m) {
        if (behind[m] && router_.elements[m] != nullptr && router_.elements[m]->makes_packets())
          router_.scheduled = fmt::format("{} makes packets behind {}, which delays them", name(m), name(e));
      }
    }
  }

  void take_connections() {
    const size_t n = graph_.elements.size();
    inputs_.resize(n);
    outputs_.resize(n);
    for (size_t i = 0; i < graph_.connections.size(); ++i) {
      const ClickConnection& c = graph_.connections[i];
      router_.connections.push_back({c.from, c.from_port, c.to, c.to_port, pull_[i]});
      note(outputs_[c.from], c.from_port, &c);
      note(inputs_[c.to], c.to_port, &c);
    }
    std::stable_sort(router_.connections.begin(), router_.connections.end(),
                     [](const RouterConnection& a, const RouterConnection& b) {
                       return std::tie(a.from, a.from_port) < std::tie(b.from, b.from_port);
                     });
    for (size_t e = 0; e < n; ++e) {
      if (router_.elements[e] == nullptr) continue;
      router_.elements[e]->inputs = static_cast<unsigned>(inputs_[e].size());
      router_.elements[e]->outputs = static_cast<unsigned>(outputs_[e].size());
    }
  }

  using Port = std::vector<const ClickConnection*>;
  static void note(std::vector<Port>& ports, uint32_t port, const ClickConnection* connection) {
    if (ports.size() <= port) ports.resize(port + 1);
    ports[port].push_back(connection);
  }

  void check_ports() {
    for (size_t e = 0; e < graph_.elements.size(); ++e) {
      for (size_t port = 0; port < outputs_[e].size(); ++port) {
        for (size_t i = 1; i < outputs_[e][port].size(); ++i) {
          const ClickConnection& again = *outputs_[e][port][i];
          if (pulls(again)) continue;  // whoever asks gets it
          Diagnostic& d = report(
              again.position, 2,
              fmt::format("output {} of '{}' is connected twice: to '{}' and to '{}'", port, graph_.elements[e].name,
                          graph_.elements[outputs_[e][port][0]->to].name, graph_.elements[again.to].name));
          d.suggestion = "put a Tee between them to send each packet both ways, or a Classifier to choose";
        }
      }
      for (size_t port = 0; port < inputs_[e].size(); ++port) {
        for (size_t i = 1; i < inputs_[e][port].size(); ++i) {
          const ClickConnection& again = *inputs_[e][port][i];
          if (!pulls(again)) continue;
          Diagnostic& d = report(again.position, 2,
                                 fmt::format("pull input {} of '{}' is connected twice: to '{}' and to '{}'", port,
                                             graph_.elements[e].name, graph_.elements[inputs_[e][port][0]->from].name,
                                             graph_.elements[again.from].name));
          d.suggestion = "put a RoundRobinSched or PrioSched between them to choose the input";
        }
      }
      if (!configured_[e]) continue;
      const Element& element = *router_.elements[e];
      check_side(e, inputs_[e], "input", element.element_class->inputs, element.input_count(),
                 [](unsigned) { return false; });
      check_side(e, outputs_[e], "output", element.element_class->outputs, element.output_count(),
                 [&](unsigned port) { return element.output_optional(port); });
    }
  }

  bool pulls(const ClickConnection& c) const { return pull_[static_cast<size_t>(&c - graph_.connections.data())]; }

  template <typename Optional>
  void check_side(size_t e, const std::vector<Port>& ports, const char* noun, PortRange range,
                  std::optional<unsigned> exact, Optional optional) {
    const ClickElement& c = graph_.elements[e];
    if (exact) range = {*exact, *exact};
    const size_t used = ports.size();
    for (size_t port = range.max; port < used; ++port) {
      if (ports[port].empty()) continue;
      Diagnostic& d = report(ports[port][0]->position, 2, fmt::format("'{}' has no {} {}", c.name, noun, port));
      d.expected = fmt::format("{}{} has {}", c.class_name, exact && !c.configuration.empty() ? "(...)" : "",
                               range_text(range.min, range.max, noun));
    }
    const size_t needed = std::max<size_t>(range.min, std::min<size_t>(used, range.max));
    for (unsigned port = 0; port < needed; ++port) {
      if (port < used && !ports[port].empty()) continue;
      if (optional(port)) continue;
      Diagnostic& d = report(c.name_position.source ? c.name_position : c.class_position, c.name.size(),
                             fmt::format("{} {} of '{}' ({}) is not connected", noun, port, c.name, c.class_name));
      d.suggestion = noun[0] == 'o' ? "connect it to Discard to drop its packets" : "connect something to it, or Idle";
    }
  }

  // Packets begin here.
  bool begins(unsigned e) const {
    const Element& element = *router_.elements[e];
    return element.kind() == ElementKind::kSource ||
           (element.kind() == ElementKind::kFlow && element.element_class->inputs.max == 0);
  }

  // Forward data flow to a fixed point: a field is there when it was written on every path from a source. What no
  // source reaches starts with everything, so that it says nothing. An element is taken up again only when it lost a
  // field, so that the work is linear in the connections.
  void check_fields() {
    const size_t n = router_.elements.size();
    std::vector<FieldMask> in(n, kAllFields);
    std::vector<unsigned> work;
    std::vector<bool> queued(n);
    for (unsigned e = 0; e < n; ++e) {
      if (!begins(e)) continue;
      work.push_back(e);
      queued[e] = true;
    }
    while (!work.empty()) {
      const unsigned e = work.back();
      work.pop_back();
      queued[e] = false;
      const Element& element = *router_.elements[e];
      const FieldMask before = begins(e) ? kFieldsAtIngress : in[e];
      const FieldMask after = before | element.stage_traits().writes;
      for (const Port& port : outputs_[e]) {
        for (const ClickConnection* c : port) {
          const FieldMask now = in[c->to] & after;
          if (now == in[c->to]) continue;
          in[c->to] = now;
          if (!queued[c->to]) work.push_back(c->to);
          queued[c->to] = true;
        }
      }
    }
    for (unsigned e = 0; e < n; ++e) {
      const Element& element = *router_.elements[e];
      const FieldMask missing = element.stage_traits().reads & ~in[e];
      if (missing == 0) continue;
      for (const FieldName& f : kFieldNames) {
        if ((missing & f.field) == 0) continue;
        const ClickElement& c = graph_.elements[e];
        Diagnostic& d = report(element.position, c.name.size(),
                               fmt::format("{} reads {}, which nothing before it writes{}", element.class_name, f.name,
                                           way(e, f.field, in)));
        d.suggestion = fmt::format("put {} before it", f.provider);
        break;
      }
    }
  }

  // " on the way from 'a'": the source from which the field is missing, when there are several sources.
  std::string way(unsigned e, FieldMask field, const std::vector<FieldMask>& in) const {
    if (errors_ >= kStored) return {};
    const auto is_source = [&](unsigned at) { return begins(at); };
    size_t sources = 0;
    for (unsigned at = 0; at < router_.elements.size(); ++at) sources += is_source(at) ? 1 : 0;
    if (sources < 2) return {};
    std::vector<bool> seen(router_.elements.size());
    std::vector<unsigned> stack{e};
    while (!stack.empty()) {
      const unsigned at = stack.back();
      stack.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      if (is_source(at)) return fmt::format(" on the way from '{}'", router_.elements[at]->name);
      for (const Port& port : inputs_[at]) {
        for (const ClickConnection* c : port) {
          if ((router_.elements[c->from]->stage_traits().writes & field) != 0) continue;
          if (is_source(c->from) || (in[c->from] & field) == 0) stack.push_back(c->from);
        }
      }
    }
    return {};
  }

  const ClickGraph& graph_;
  const Registry& registry_;
  Router router_;
  std::vector<Diagnostic> findings_;
  Diagnostic ignored_;
  size_t errors_ = 0;
  std::vector<bool> configured_;
  std::vector<bool> pull_;  // by connection of the graph
  std::vector<std::vector<Port>> inputs_, outputs_;
};

}  // namespace

std::vector<Diagnostic> configure(Element& element, const ElementClass& as, std::string_view configuration,
                                  const ConfigurationOrigin& origin, const AddressScope& names) {
  std::vector<Diagnostic> wrong;
  const Arguments arguments = Arguments::parse(as.arguments, configuration, origin, &wrong, names);
  if (!wrong.empty()) return wrong;
  Diagnostics own(element.position.file(), {});
  element.configure(arguments, own);
  return own.all();
}

Result<Router> build_router(const ClickGraph& graph, const Registry& registry, std::string_view text, Router* sound) {
  return RouterBuilder(graph, registry).run(text, sound);
}

}  // namespace sluice
