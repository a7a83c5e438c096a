// host only
// Handlers by name.
#include <fmt/format.h>

#include "exec/scheduler/node.h"

namespace sluice {

void Scheduler::Node::add_default(const char* name) {
  for (const Handler& own : handlers_) {
    if (own.name == name) return;
  }
  Handler handler;
  handler.name = name;
  handler.read = [this, what = std::string_view(name)](FlowContext&, std::string_view) -> Result<std::string> {
    if (what == "class") return element_.class_name;
    if (what == "name") return element_.name;
    if (what == "config") return element_.configuration;
    if (what == "count") return std::to_string(packets());
    if (what == "drops") return std::to_string(dropped());
    if (what == "ports") return ports_text();
    std::string text;
    for (const Handler& h : handlers_) text += fmt::format("{}\t{}{}\n", h.name, h.read ? "r" : "", h.write ? "w" : "");
    return text;
  };
  handlers_.push_back(std::move(handler));
}
std::string Scheduler::Node::ports_text() const {
  std::string text;
  auto side = [&](const char* noun, const std::vector<std::vector<Link>>& ports, const char* arrow) {
    text += fmt::format("{} {}{}\n", ports.size(), noun, ports.size() == 1 ? "" : "s");
    for (const auto& port : ports) {
      text += port.empty() || !port[0].pull ? "push" : "pull";
      for (const Link& link : port)
        text += fmt::format(" {} {}[{}]", arrow, impl_.router.elements[link.node]->name, link.port);
      text += '\n';
    }
  };
  side("input", inputs_, "<-");
  side("output", outputs_, "->");
  return text;
}

Result<Scheduler::Impl::Found> Scheduler::Impl::find(const Node* from, std::string_view name, bool writes) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return Error(fmt::format("there is no handler '{}'", name), "write ELEMENT.HANDLER");
  }
  const std::string_view wanted = name.substr(0, dot);
  const std::string_view handler = name.substr(dot + 1);
  // The compounds around the asking element first, innermost first.
  std::string scope = from == nullptr ? std::string() : from->element_.name;
  auto at = by_name.end();
  do {
    const size_t slash = scope.rfind('/');
    scope.resize(slash == std::string::npos ? 0 : slash);
    at = by_name.find(scope.empty() ? std::string(wanted) : scope + "/" + std::string(wanted));
  } while (at == by_name.end() && !scope.empty());
  if (at == by_name.end()) {
    std::vector<std::string> names;
    for (const auto& [known, index] : by_name) names.push_back(known);
    const std::string near = closest_match(wanted, names);
    return Error(fmt::format("there is no element '{}'", wanted),
                 near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  Node& node = *nodes[at->second];
  std::vector<std::string> names;
  for (Handler& h : node.handlers_) {
    if (h.name == handler || h.name == "*") {
      if (writes ? !h.write : !h.read) {
        return Error(fmt::format("'{}.{}' cannot be {}", at->first, handler, writes ? "written" : "read"));
      }
      return Found{&node, &h, fmt::format("{}.{}", at->first, handler)};
    }
    if (writes ? h.write != nullptr : h.read != nullptr) names.push_back(h.name);
  }
  const std::string near = closest_match(handler, names);
  return Error(fmt::format("'{}' ({}) has no handler '{}'", at->first, node.element_.class_name, handler),
               near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

std::string Scheduler::Impl::list(std::string_view what) const {
  std::string text;
  if (what == "list") {
    text = fmt::format("{}\n", nodes.size());
    for (const auto& node : nodes) text += node->element_.name + "\n";
  } else if (what == "requirements") {
    for (const std::string& requirement : router.requirements) text += requirement + "\n";
  } else {
    text = graph_text(router);
  }
  return text;
}

Result<std::string> Scheduler::Impl::read(const Node* from, std::string_view name, std::string_view argument) {
  settle();
  if (name == "list" || name == "config" || name == "flatconfig" || name == "requirements") return list(name);
  auto found = find(from, name, false);
  if (!found.ok()) return std::move(found).error();
  // The last part of the name, for handlers that take any.
  if (found->handler->name == "*") {
    const std::string full(name.substr(name.rfind('.') + 1));
    return found->handler->read(*found->node, argument.empty() ? full : full + " " + std::string(argument));
  }
  return found->handler->read(*found->node, argument);
}

Result<void> Scheduler::Impl::write(const Node* from, std::string_view name, std::string_view value) {
  settle();
  if (name == "stop") {
    ask_stop();
    return {};
  }
  if (name == "hotconfig" && options.load) {
    auto next = options.load(value);
    if (!next.ok()) return std::move(next).error();
    return owner.swap(std::move(*next));
  }
  auto found = find(from, name, true);
  if (!found.ok()) return std::move(found).error();
  Result<void> done;
  if (found->handler->name == "*") {
    const std::string full(name.substr(name.rfind('.') + 1));
    done = found->handler->write(*found->node, value.empty() ? full : full + " " + std::string(value));
  } else {
    done = found->handler->write(*found->node, value);
  }
  // What somebody waits for may have become true.
  wake_tasks();
  return done;
}

}  // namespace sluice
