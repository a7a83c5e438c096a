// host only
// Router: the checked graph of configured elements, from Click text to something that can be planned.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/arguments.h"
#include "graph/click/syntax.h"
#include "graph/element.h"

namespace sluice {

// The element classes that configurations may name.
class Registry {
 public:
  void add(ElementClass element_class) { classes_.push_back(std::make_unique<ElementClass>(std::move(element_class))); }
  const ElementClass* find(std::string_view name) const;  // by name or alias
  const std::vector<std::unique_ptr<ElementClass>>& classes() const { return classes_; }
  std::vector<std::string> names() const;  // with aliases

 private:
  std::vector<std::unique_ptr<ElementClass>> classes_;
};

struct RouterConnection {
  unsigned from;
  unsigned from_port;
  unsigned to;
  unsigned to_port;
  bool pull = false;  // the receiving end asks; else the sending end hands on
};

struct Router {
  std::vector<std::unique_ptr<Element>> elements;
  std::vector<RouterConnection> connections;
  std::vector<Diagnostic> warnings;
  std::vector<std::string> requirements;  // as written
  // Why the packet scheduler has to run it: an element that pulls, or keeps packets, time or a script. Empty: it need
  // not, and the engine can.
  std::string scheduled;

  // The element and input that an output leads to; element == ~0u when it is not connected.
  struct Target {
    unsigned element = ~0u;
    unsigned port = 0;
  };
  Target target(unsigned element, unsigned output) const;
  const Element* find(std::string_view name) const;
};

// Has an element of class `as` read its arguments. Returns what is wrong with them; none: it is configured.
std::vector<Diagnostic> configure(Element& element, const ElementClass& as, std::string_view configuration,
                                  const ConfigurationOrigin& origin, const AddressScope& names = {});

// Instantiates, configures and checks a parsed graph. All errors at once: unknown classes (with a suggestion),
// arguments, port numbers, unconnected ports, push outputs and pull inputs used twice, push ports that meet pull ports,
// and stages that read what no stage before them wrote. On failure `sound`, when given, receives the elements whose own
// arguments are right, without connections: what else they ask for (tables, files) can still be looked at.
Result<Router> build_router(const ClickGraph& graph, const Registry& registry, std::string_view text,
                            Router* sound = nullptr);

}  // namespace sluice
