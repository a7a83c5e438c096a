#include "graph/click/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>

#include "graph/click/config_text.h"
#include "graph/click/parser.h"

namespace sluice::click {
namespace {

constexpr int kMaxDefineDepth = 100;
constexpr size_t kNone = SIZE_MAX;

// The variables of one instance of a scope.
struct Environment {
  Environment* parent = nullptr;
  const Scope* scope = nullptr;
  std::map<std::string, std::string, std::less<>> values;  // formals, command line, evaluated defines
  std::unordered_set<std::string> evaluating;
};

class Expander {
 public:
  Expander(const Tree& tree, Findings& findings, const ParseOptions& options)
      : tree_(tree), findings_(findings), options_(options) {}

  ClickGraph expand() {
    Environment global;
    global.scope = tree_.root.get();
    for (const auto& [name, value] : options_.defines) global.values[name] = value;
    expand_scope(*tree_.root, "", global, kNone, kNone, 0);
    // Level by level, so that what stands in the file itself comes first. Environments stay for those inside of them.
    for (size_t i = 0; i < pending_.size() && !stopped_; ++i) {
      const Pending& p = pending_[i];
      expand_scope(*p.scope, p.prefix, *p.environment, p.instance.in, p.instance.out, p.depth);
    }
    if (!stopped_) check_names();
    if (!stopped_) resolve_tunnels();
    graph_.requirements = tree_.requirements;
    graph_.normalize();
    return std::move(graph_);
  }

 private:
  // A node of the graph before tunnels are resolved: an element, or one side of a compound or group.
  struct Node {
    size_t element = kNone;  // kNone: a tunnel
  };
  struct Link {
    size_t from;
    uint32_t from_port;
    size_t to;
    uint32_t to_port;
    size_t offset;
  };
  struct Instance {
    size_t in = kNone;   // where edges to it arrive
    size_t out = kNone;  // where edges from it leave
  };

  std::string_view source(size_t offset, size_t length) const {
    return findings_.source().text().substr(offset, length);
  }

  void stop(size_t offset, size_t length, std::string message, std::string help = {}) {
    if (stopped_) return;
    stopped_ = true;
    findings_.error(offset, length, std::move(message)).suggestion = std::move(help);
  }

  bool charge(size_t bytes, size_t offset) {
    text_bytes_ += bytes;
    if (text_bytes_ <= options_.max_text_bytes) return true;
    stop(offset, 1, fmt::format("expansion writes more than {} bytes of text", options_.max_text_bytes));
    return false;
  }

  size_t add_node(size_t element) {
    nodes_.push_back({element});
    return nodes_.size() - 1;
  }

  // --- variables ---------------------------------------------------------------------------------------------------
  // The value of a variable seen from `environment`, or nullopt.
  std::optional<std::string> lookup(std::string_view name, Environment& environment, size_t offset, size_t length,
                                    int depth) {
    for (Environment* e = &environment; e != nullptr; e = e->parent) {
      if (const auto found = e->values.find(name); found != e->values.end()) return found->second;
      const auto define = e->scope->define_map.find(std::string(name));
      if (define == e->scope->define_map.end()) continue;
      const Define& d = e->scope->defines[define->second];
      if (depth >= kMaxDefineDepth || !e->evaluating.insert(d.name).second) {
        findings_.error(offset, length,
                        depth >= kMaxDefineDepth
                            ? fmt::format("variables are defined through more than {} others", kMaxDefineDepth)
                            : fmt::format("${} is defined through itself", shown(name)));
        return std::string();
      }
      std::string value =
          strip_comments(substitute(source(d.offset, d.length), d.offset, *e, false, nullptr, depth + 1));
      e->evaluating.erase(d.name);
      if (!stopped_) e->values[d.name] = value;
      return value;
    }
    return std::nullopt;
  }

  std::vector<std::string> visible_names(const Environment& environment) const {
    std::vector<std::string> names;
    for (const Environment* e = &environment; e != nullptr; e = e->parent) {
      for (const auto& [name, value] : e->values) names.push_back(name);
      for (const Define& d : e->scope->defines) names.push_back(d.name);
    }
    return names;
  }

  // ${name[index]}: the word of the value that the index says; without that many words, nothing, so that a default
  // stands. False: the index is no number, which was reported, or is a variable of somebody else's.
  bool pick_word(const VariableUse& use, size_t offset, Environment& environment, bool keep_unknown, int depth,
                 std::optional<std::string>* value) {
    if (depth >= kMaxDefineDepth) return false;
    const auto at = static_cast<size_t>(use.index->data() - use.name.data());
    const size_t name_offset = offset + 2;  // behind "${"
    const std::string text = substitute(*use.index, name_offset + at, environment, keep_unknown, nullptr, depth + 1);
    const ConfigSlice trimmed = trim_config(text, 0, text.size());
    const std::string_view digits = std::string_view(text).substr(trimmed.offset, trimmed.length);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      if (keep_unknown || stopped_) return false;
      findings_
          .error(name_offset + at, use.index->size(), fmt::format("'{}' is not the number of a word", shown(digits)))
          .expected = fmt::format("${{{}[N]}}, where the first word is 0", shown(use.name));
      return false;
    }
    if (!charge((*value)->size(), offset)) return false;
    const std::vector<ConfigSlice> words = split_words(**value);
    size_t n = 0;
    for (const char c : digits) n = std::min(n * 10 + static_cast<size_t>(c - '0'), words.size());
    if (n < words.size()) {
      *value = (*value)->substr(words[n].offset, words[n].length);
    } else if (use.fallback) {
      value->reset();
    } else {
      *value = std::string();
    }
    return true;
  }

  // `raw` (at `raw_offset` of the source) with its variables replaced.
  std::string substitute(std::string_view raw, size_t raw_offset, Environment& environment, bool keep_unknown,
                         ConfigurationOrigin* origin, int depth) {
    std::string out;
    size_t done = 0;
    VariableScanner scanner(raw);
    VariableUse use;
    auto literal = [&](size_t end) {
      if (origin != nullptr) origin->append_literal(out.size(), raw_offset + done);
      out += raw.substr(done, end - done);
      done = end;
    };
    while (!stopped_ && scanner.next(&use)) {
      std::optional<std::string> value = lookup(use.name, environment, raw_offset + use.offset, use.length, depth);
      if (value && use.index && !pick_word(use, raw_offset + use.offset, environment, keep_unknown, depth, &value))
        continue;
      if (!value && use.fallback) value = std::string(*use.fallback);
      if (!value) {
        if (keep_unknown || use.or_handler) continue;
        Diagnostic& d =
            findings_.error(raw_offset + use.offset, use.length, fmt::format("unknown variable ${}", shown(use.name)));
        d.expected = "a variable of this scope; '$...' between single quotes is left as it is";
        const std::string near = closest_match(use.name, visible_names(environment));
        if (!near.empty()) d.suggestion = fmt::format("did you mean '${}'?", near);
        continue;
      }
      if (use.in_quotes) {
        if (const auto plain = unquote(*value)) value = escape_in_quotes(*plain);
      }
      if (!charge(value->size(), raw_offset + use.offset)) break;
      literal(use.offset);
      if (origin != nullptr) origin->append_substitution(out.size(), raw_offset + use.offset, use.length);
      out += *value;
      done = use.offset + use.length;
    }
    literal(raw.size());
    charge(out.size(), raw_offset);
    return out;
  }

  // The configuration of an element: substituted, checked, blanks at its ends removed.
  std::string configure(const Element& e, Environment& environment, bool keep_unknown, ConfigurationOrigin* origin) {
    const std::string_view raw = source(e.config_offset, e.config_length);
    std::string out = substitute(raw, e.config_offset, environment, keep_unknown, origin, 0);
    if (stopped_) return out;
    const size_t first = std::min(out.find_first_not_of(" \t\r\n\v\f"), out.size());
    size_t last = out.find_last_not_of(" \t\r\n\v\f");
    last = last == std::string::npos ? first : last + 1;
    // A comment to the end of the line keeps its newline.
    if (last < out.size() && !is_closed_config(std::string_view(out).substr(0, last))) {
      last = std::min(out.find('\n', last), out.size() - 1) + 1;
    }
    out = out.substr(first, last - first);
    if (origin != nullptr) origin->drop_front(first);
    if (out.size() == raw.size() && out == raw) return out;  // nothing was replaced
    if (!is_closed_config(out)) {
      findings_
          .error(e.config_offset, e.config_length,
                 "the values of its variables leave this configuration without an end")
          .expected = "balanced parentheses, strings and comments";
      return out;
    }
    // A value must not make a new variable with what stands beside it.
    VariableScanner scanner(out);
    VariableUse use;
    while (scanner.next(&use)) {
      if ((keep_unknown && !use.fallback) || use.or_handler) continue;
      if (!findings_.ok()) break;  // an unknown variable was left in place and reported
      findings_
          .error(e.config_offset, e.config_length,
                 fmt::format("the value of a variable holds another variable, ${}", shown(use.name)))
          .expected = "values without '$'";
      break;
    }
    return out;
  }

  // --- compounds ---------------------------------------------------------------------------------------------------
  // Binds arguments to the formals of one alternative. Empty string: done; otherwise why not.
  std::string bind(const Scope& scope, std::string_view config, const std::vector<ConfigSlice>& arguments,
                   Environment* into) const {
    std::vector<bool> taken(arguments.size());
    auto text = [&](size_t i) { return config.substr(arguments[i].offset, arguments[i].length); };
    for (const Formal& f : scope.formals) {
      if (f.keyword.empty() || f.keyword == "__REST__") continue;
      bool found = false;
      for (size_t i = 0; i < arguments.size() && !found; ++i) {
        if (taken[i]) continue;
        const std::string_view argument = text(i);
        if (argument.substr(0, f.keyword.size()) != f.keyword) continue;
        const std::string_view rest = argument.substr(f.keyword.size());
        if (rest.empty() || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '\n' && rest[0] != '\r')) continue;
        const ConfigSlice value = trim_config(rest, 0, rest.size());
        into->values[f.name] = strip_comments(rest.substr(value.offset, value.length));
        taken[i] = found = true;
      }
      if (!found) return fmt::format("{} is missing", f.keyword);
    }
    size_t next = 0;
    for (const Formal& f : scope.formals) {
      if (!f.keyword.empty()) continue;
      while (next < arguments.size() && taken[next]) ++next;
      if (next == arguments.size()) return "too few arguments";
      into->values[f.name] = strip_comments(text(next));
      taken[next] = true;
    }
    const bool rest = !scope.formals.empty() && scope.formals.back().keyword == "__REST__";
    std::string joined;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (taken[i]) continue;
      if (!rest) return "too many arguments";
      if (!joined.empty()) joined += ", ";
      joined += strip_comments(text(i));
    }
    if (rest) into->values[scope.formals.back().name] = joined;
    return {};
  }

  static std::string signature(const Scope& scope) {
    std::string out;
    for (const Formal& f : scope.formals) {
      if (!out.empty()) out += ", ";
      if (!f.keyword.empty()) out += shown(f.keyword) + " ";
      out += "$" + shown(f.name);
    }
    return "(" + out + ")";
  }

  static std::string ports_text(const char* what, uint32_t count) {
    if (count == 0) return fmt::format("no {}s", what);
    return count == 1 ? fmt::format("{} 0 only", what) : fmt::format("{}s 0 to {}", what, count - 1);
  }

  // The alternative of a class that an element stands for: the first with its arguments and ports, one with exactly its
  // ports before others. A class that extends another goes on with that one's.
  struct Choice {
    const Scope* scope = nullptr;
    const CompoundClass* owner = nullptr;
    const std::string* primitive = nullptr;  // the class that was extended is none of ours
  };
  // Nothing: it was reported.
  std::optional<Choice> choose(const Element& e, std::string_view config, const std::vector<ConfigSlice>& arguments) {
    const Scope* fitting = nullptr;
    std::string why, signatures;
    size_t alternatives = 0;
    const CompoundClass* compound = e.type.compound.get();
    while (true) {
      Choice choice;
      for (const auto& alternative : compound->alternatives) {
        ++alternatives;
        if (signatures.size() <= 200) signatures += (signatures.empty() ? "" : " or ") + signature(*alternative);
        Environment probe;
        const std::string problem = bind(*alternative, config, arguments, &probe);
        if (!problem.empty()) {
          why = problem;
          continue;
        }
        if (fitting == nullptr) fitting = alternative.get();
        if (e.inputs_used > alternative->inputs || e.outputs_used > alternative->outputs) continue;
        const bool exact = e.inputs_used == alternative->inputs && e.outputs_used == alternative->outputs;
        if (choice.scope == nullptr || exact) choice = {alternative.get(), compound, nullptr};
        if (exact) break;
      }
      if (choice.scope != nullptr) return choice;
      if (!compound->extends) break;
      if (!compound->extends->compound) return Choice{nullptr, compound, &compound->extends->primitive};
      compound = compound->extends->compound.get();
    }
    compound = e.type.compound.get();
    const std::string title = !compound->name.empty() ? fmt::format("'{}'", shown(compound->name))
                              : e.anonymous           ? std::string("this compound element")
                                                      : fmt::format("'{}'", shown(e.name));
    if (fitting == nullptr) {
      const size_t at = e.config_length != 0 ? e.config_offset : e.class_offset;
      const size_t length = e.config_length != 0 ? e.config_length : e.class_length;
      findings_
          .error(at, length,
                 fmt::format("{} does not take {} argument{}{}", title, arguments.size(),
                             arguments.size() == 1 ? "" : "s", alternatives == 1 ? ": " + why : ""))
          .expected = signatures;
      return std::nullopt;
    }
    const bool input = e.inputs_used > fitting->inputs;
    const uint32_t port = (input ? e.inputs_used : e.outputs_used) - 1;
    findings_
        .error(e.name_offset, e.name_length, fmt::format("{} has no {} {}", title, input ? "input" : "output", port))
        .expected = input ? ports_text("input", fitting->inputs) : ports_text("output", fitting->outputs);
    return std::nullopt;
  }

  // A compound whose elements come later, after those of the scopes that were met before.
  struct Pending {
    const Scope* scope;
    std::string prefix;
    std::unique_ptr<Environment> environment;
    Instance instance;
    uint32_t depth;
  };

  Instance expand_compound(const Element& e, const std::string& name, Environment& environment, uint32_t depth) {
    Instance instance{add_node(kNone), add_node(kNone)};
    if (++instances_ > options_.max_elements) {
      stop(e.name_offset, e.name_length, fmt::format("more than {} compound elements", options_.max_elements));
      return instance;
    }
    if (depth >= options_.max_depth) {
      stop(e.name_offset, e.name_length, fmt::format("compound elements nest deeper than {}", options_.max_depth));
      return instance;
    }
    const std::string config = configure(e, environment, false, nullptr);
    if (stopped_) return instance;
    const std::vector<ConfigSlice> arguments = split_arguments(config);
    const auto choice = choose(e, config, arguments);
    if (!choice) return instance;
    if (choice->primitive != nullptr) return expand_primitive(e, *choice->primitive, name, environment);
    // The environment of the scope that the class was written in: lexical, not the caller's.
    Environment* home = &environment;
    while (home != nullptr && home->scope != choice->owner->defined_in) home = home->parent;
    auto inner = std::make_unique<Environment>();
    bind(*choice->scope, config, arguments, inner.get());
    inner->parent = home;
    inner->scope = choice->scope;
    size_t bytes = 0;
    for (const auto& [key, value] : inner->values) bytes += value.size();
    if (!charge(bytes, e.name_offset)) return instance;
    pending_.push_back({choice->scope, name + "/", std::move(inner), instance, depth + 1});
    return instance;
  }

  Instance expand_primitive(const Element& e, const std::string& class_name, std::string name,
                            Environment& environment) {
    if (graph_.elements.size() >= options_.max_elements) {
      stop(e.name_offset, e.name_length, fmt::format("more than {} elements", options_.max_elements));
      return {};
    }
    ClickElement made;
    made.name = std::move(name);
    made.class_name = class_name;
    const bool free = std::find(options_.free_variable_classes.begin(), options_.free_variable_classes.end(),
                                made.class_name) != options_.free_variable_classes.end();
    made.configuration_origin = ConfigurationOrigin(findings_.shared_source(), e.config_offset);
    if (e.config_length != 0) {
      ConfigurationOrigin origin(findings_.shared_source(), e.config_offset);
      made.configuration = configure(e, environment, free, &origin);
      made.configuration_origin = std::move(origin);
    }
    made.name_position = {findings_.shared_source(), e.name_offset};
    made.class_position = {findings_.shared_source(), e.class_offset};
    const size_t node = add_node(graph_.elements.size());
    graph_.elements.push_back(std::move(made));
    return {node, node};
  }

  void expand_scope(const Scope& scope, const std::string& prefix, Environment& environment, size_t in, size_t out,
                    uint32_t depth) {
    std::vector<Instance> instances(scope.elements.size());
    for (size_t i = 0; i < scope.elements.size() && !stopped_; ++i) {
      const Element& e = scope.elements[i];
      std::string name = prefix + e.name;
      if (!charge(name.size(), e.name_offset)) return;
      if (e.group) {
        instances[i] = {add_node(kNone), add_node(kNone)};
      } else if (e.type.compound) {
        instances[i] = expand_compound(e, name, environment, depth);
      } else {
        instances[i] = expand_primitive(e, e.type.primitive, std::move(name), environment);
      }
    }
    for (const Edge& edge : scope.edges) {
      if (stopped_) return;
      const size_t from = edge.from.element == Endpoint::kOwner
                              ? in
                              : (edge.from.inner ? instances[static_cast<size_t>(edge.from.element)].in
                                                 : instances[static_cast<size_t>(edge.from.element)].out);
      const size_t to = edge.to.element == Endpoint::kOwner
                            ? out
                            : (edge.to.inner ? instances[static_cast<size_t>(edge.to.element)].out
                                             : instances[static_cast<size_t>(edge.to.element)].in);
      if (from == kNone || to == kNone) continue;  // an error was reported where the element is
      if (links_.size() >= 2 * options_.max_connections) {
        return stop(edge.offset, 2, fmt::format("more than {} connections", 2 * options_.max_connections));
      }
      links_.push_back({from, edge.from.port, to, edge.to.port, edge.offset});
    }
  }

  void check_names() {
    std::unordered_map<std::string_view, const ClickElement*> seen;
    for (const ClickElement& e : graph_.elements) {
      const auto [it, fresh] = seen.emplace(e.name, &e);
      if (fresh) continue;
      const bool later = e.name_position.offset >= it->second->name_position.offset;
      const ClickElement& second = later ? e : *it->second;
      const ClickElement& first = later ? *it->second : e;
      Diagnostic& d = findings_.error(second.name_position.offset, 1,
                                      fmt::format("two elements are named '{}' after expansion", shown(e.name)));
      d.suggestion = fmt::format("the other one is on line {}; avoid '/' in names", first.name_position.line());
    }
  }

  // --- tunnels -----------------------------------------------------------------------------------------------------
  // Follows each edge out of an element through tunnels to the elements at the far ends.
  void resolve_tunnels() {
    // Links by their source, sorted, so that a (node, port) is one range.
    std::vector<size_t> order(links_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    auto key = [&](size_t i) { return std::pair(links_[i].from, links_[i].from_port); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    std::vector<std::pair<size_t, uint32_t>> pending;
    std::vector<std::pair<size_t, uint32_t>> seen;
    size_t steps = 0;
    for (const Link& link : links_) {
      if (nodes_[link.from].element == kNone) continue;
      pending.assign(1, {link.to, link.to_port});
      seen.clear();
      while (!pending.empty()) {
        const auto at = pending.back();
        pending.pop_back();
        if (++steps > 8 * options_.max_connections) {
          return stop(link.offset, 2, fmt::format("more than {} connections", options_.max_connections));
        }
        if (nodes_[at.first].element != kNone) {
          if (graph_.connections.size() >= options_.max_connections) {
            return stop(link.offset, 2, fmt::format("more than {} connections", options_.max_connections));
          }
          graph_.connections.push_back({static_cast<uint32_t>(nodes_[link.from].element),
                                        link.from_port,
                                        static_cast<uint32_t>(nodes_[at.first].element),
                                        at.second,
                                        {findings_.shared_source(), link.offset}});
          continue;
        }
        // A tunnel that leads back into itself carries nothing.
        if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
        seen.push_back(at);
        steps += seen.size() / 16;
        auto it = std::lower_bound(order.begin(), order.end(), at, [&](size_t i, const auto& k) { return key(i) < k; });
        for (; it != order.end() && key(*it) == at; ++it) pending.emplace_back(links_[*it].to, links_[*it].to_port);
      }
    }
  }

  const Tree& tree_;
  Findings& findings_;
  const ParseOptions& options_;
  ClickGraph graph_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::deque<Pending> pending_;  // grows while it is gone through
  size_t text_bytes_ = 0;
  size_t instances_ = 0;
  bool stopped_ = false;
};

}  // namespace

ClickGraph expand_tree(const Tree& tree, Findings& findings, const ParseOptions& options) {
  return Expander(tree, findings, options).expand();
}

}  // namespace sluice::click
