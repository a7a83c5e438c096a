// host only
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "elements/gpu_classes.h"
#include "elements/ip_lookup/stage.h"
#include "elements/stage_element.h"
#include "elements/table_use.h"
#include "elements/tables.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/text.h"

namespace sluice {
namespace {

// ADDR, ADDR/LENGTH or ADDR/NETMASK; host bits are cleared, as Click does. Before a '/', address bytes left out at the
// end are 0, also as in Click: 0/0, 10/8, 172.16/12.
std::optional<IpPrefix> parse_click_prefix(std::string_view given) {
  std::string whole(given);
  size_t slash = whole.find('/');
  if (slash != std::string::npos && slash != 0 && whole.find(':') == std::string::npos) {
    for (auto dots = std::count(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(slash), '.'); dots < 3; ++dots) {
      whole.insert(slash, ".0");
      slash += 2;
    }
  }
  const std::string_view word = whole;
  if (slash != std::string_view::npos) {
    if (const auto mask = parse_ipv4(word.substr(slash + 1))) {
      const auto address = parse_ipv4(word.substr(0, slash));
      const auto length = static_cast<uint8_t>(std::popcount(*mask));
      if (!address || *mask != high_mask32(length)) return std::nullopt;
      return IpPrefix{{0, *address & *mask, 4}, length};
    }
  }
  const auto prefix = parse_prefix(word);
  return prefix && prefix->address.family == 4 ? prefix : std::nullopt;
}

// The algorithm behind each of Click's names.
std::string algorithm_of(std::string_view class_name) {
  return class_name == "DirectIPLookup" || class_name == "IPLookup" ? "dir24"
         : class_name == "RangeIPLookup"                            ? "poptrie"
         : class_name == "LinearIPLookup"                           ? "linear"
                                                                    : "trie";
}

struct ClickRoute {
  IpPrefix prefix;
  uint32_t gateway = 0;
  uint32_t output = 0;

  bool same_prefix(const ClickRoute& o) const {
    return prefix.address.lo == o.prefix.address.lo && prefix.length == o.prefix.length;
  }
  std::string gateway_text() const { return gateway == 0 ? "-" : to_string(IpAddress{0, gateway, 4}); }
};

// What is wrong with a route's text: which of its words, and how.
struct RouteProblem {
  size_t word = ~size_t{0};  // past the end: the whole
  std::string message;
};

constexpr const char* kRouteForm = "ADDRESS/MASK [GATEWAY] OUTPUT, such as 10.0.0.0/8 192.0.2.1 1";

class IpLookup final : public Element {
 public:
  explicit IpLookup(std::string_view called) : algorithm_(algorithm_of(called)) {}

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (arguments.has("ALGORITHM")) algorithm_ = arguments.get_string("ALGORITHM");
    if (arguments.has("LOOKUP_TABLE")) {
      Diagnostic d = arguments.error_at("LOOKUP_TABLE",
                                        "tables are not called by number; FastClick-GPU reads ../saved_vector*.bin");
      d.suggestion = "write the routes as arguments, such as 10.0.0.0/8 0, or use RouteTable(FILE) and IPRoute";
      diagnostics.add(std::move(d));
    }
    RouteIndex seen;
    for (const ArgumentValue& argument : arguments.rest()) {
      const std::string_view text = argument.text;
      ClickRoute route;
      if (const auto problem = parse(text, arguments.names(), true, route)) {
        const std::vector<ConfigSlice> words = split_words(text);
        Diagnostic d = problem->word < words.size()
                           ? arguments.error_in(argument, problem->message, words[problem->word].offset,
                                                words[problem->word].length)
                           : arguments.error_in(argument, problem->message);
        d.expected = kRouteForm;
        diagnostics.add(std::move(d));
        continue;
      }
      const auto [at, fresh] = seen.try_emplace(key(route), routes_.size());
      if (fresh) {
        routes_.push_back(route);
      } else {
        routes_[at->second] = route;
        Diagnostic d = arguments.error_in(
            argument, fmt::format("a later route for {} replaces the one before", to_string(route.prefix)));
        d.severity = Diagnostic::Severity::kWarning;
        diagnostics.add(std::move(d));
      }
    }
    for (const ClickRoute& route : routes_) used_.insert(route.output);
    targets_ = targets_of(routes_);
    if (targets_.size() > Rib::kMaxNextHops)
      diagnostics.add(arguments.error_at("ROUTE", fmt::format("more than {} different gateways", Rib::kMaxNextHops)));
  }

  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override { return traits_of<IpLookupStage<Trie::View4>>(); }
  std::optional<unsigned> output_count() const override {
    return std::max(used_.empty() ? 1u : *used_.rbegin() + 1, outputs);
  }
  bool output_optional(unsigned output) const override { return !used_.contains(output); }
  std::vector<TableDeclaration> tables() const override { return {declaration(routes_, targets_)}; }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    auto image = changed_ != nullptr ? Result<std::shared_ptr<const Image>>(changed_)
                                     : find_table(tables.routes, "route table", name);
    if (!image) return std::move(image).error();
    return with_fib4(**image, [&](const auto& view) {
      IpLookupStage<std::decay_t<decltype(view)>> stage;
      stage.view = view;
      stage.targets = targets_.data();
      stage.target_count = static_cast<uint32_t>(targets_.size());
      place(slot, stage);
    });
  }

  std::vector<Handler> handlers() override {
    Handler table{"table",
                  [this](FlowContext&, std::string_view) -> Result<std::string> {
                    std::string text;
                    for (const ClickRoute& r : routes_)
                      text += fmt::format("{}\t{}\t{}\n", to_string(r.prefix), r.gateway_text(), r.output);
                    return text;
                  },
                  {}};
    Handler lookup{"lookup", [this](FlowContext&, std::string_view argument) { return look_up(argument); }, {}};
    // One change, or with `ctrl` one a line: all of them or none.
    auto change = [this](const char* handler, const char* verb) {
      return Handler{handler, {}, [this, verb](FlowContext& context, std::string_view value) -> Result<void> {
                       return apply(context, *verb == 0 ? std::string(value) : fmt::format("{} {}", verb, value));
                     }};
    };
    return {std::move(table),           std::move(lookup),  change("add", "add"),    change("set", "set"),
            change("remove", "remove"), change("ctrl", ""), change("flush", "flush")};
  }

 private:
  using RouteKey = std::pair<uint64_t, uint8_t>;
  using RouteIndex = std::map<RouteKey, size_t>;
  static RouteKey key(const ClickRoute& r) { return {r.prefix.address.lo, r.prefix.length}; }

  // `whole`: with an output; else the prefix alone is a route as well.
  static std::optional<RouteProblem> parse(std::string_view text, const AddressScope& names, bool whole,
                                           ClickRoute& route) {
    const std::vector<ConfigSlice> words = split_words(text);
    auto word = [&](size_t i) { return text.substr(words[i].offset, words[i].length); };
    if (words.size() > 3 || words.size() < (whole ? 2 : 1))
      return RouteProblem{words.size(),
                          fmt::format("a route has {}2 or 3 words, not {}", whole ? "" : "1, ", words.size())};
    const auto named = names.find(word(0), AddressNames::Wanted::kPrefix);
    const auto prefix = parse_click_prefix(named ? std::string_view(*named) : word(0));
    if (!prefix) return RouteProblem{0, fmt::format("'{}' is not an IPv4 prefix", word(0))};
    route.prefix = *prefix;
    if (words.size() == 3 && word(1) != "-") {
      const auto literal = names.find(word(1), AddressNames::Wanted::kIpv4);
      const auto address = parse_ipv4(literal ? std::string_view(*literal) : word(1));
      if (!address) return RouteProblem{1, fmt::format("'{}' is not an IPv4 address", word(1))};
      route.gateway = *address;
    }
    if (words.size() == 1) return std::nullopt;
    const std::string_view last = word(words.size() - 1);
    const auto [end, code] = std::from_chars(last.data(), last.data() + last.size(), route.output);
    if (code != std::errc() || end != last.data() + last.size() || route.output >= kMaxOutputs)
      return RouteProblem{words.size() - 1, fmt::format("'{}' is not an output from 0 to {}", last, kMaxOutputs - 1)};
    return std::nullopt;
  }

  // Each pair of gateway and output once, first use first; entry 0 is none.
  static std::vector<IpLookupTarget> targets_of(const std::vector<ClickRoute>& routes) {
    std::vector<IpLookupTarget> targets{{0, 0}};
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (const ClickRoute& r : routes) {
      if (seen.emplace(r.gateway, r.output).second) targets.push_back({r.gateway, r.output});
    }
    return targets;
  }
  // The table reads text: next hops are called by their numbers, first use first, so that the names' ids are the same
  // numbers.
  TableDeclaration declaration(const std::vector<ClickRoute>& routes,
                               const std::vector<IpLookupTarget>& targets) const {
    std::map<std::pair<uint32_t, uint32_t>, size_t> ids;
    for (size_t i = 1; i < targets.size(); ++i) ids.emplace(std::pair(targets[i].gateway, targets[i].output), i);
    TableDeclaration own{.type = TableDeclaration::Type::kRoutes, .name = name};
    for (const ClickRoute& r : routes)
      own.text += fmt::format("{} {}\n", to_string(r.prefix), ids.at({r.gateway, r.output}));
    own.algorithm = algorithm_;
    return own;
  }

  // "OUTPUT [GATEWAY]", or -1.
  Result<std::string> look_up(std::string_view text) const {
    const std::vector<ConfigSlice> words = split_words(text);
    const auto address = words.size() == 1 ? parse_ipv4(text.substr(words[0].offset, words[0].length)) : std::nullopt;
    if (!address) return Error(fmt::format("'{}' is not an IPv4 address", text));
    const ClickRoute* best = nullptr;
    for (const ClickRoute& r : routes_) {
      if ((*address & high_mask32(r.prefix.length)) != static_cast<uint32_t>(r.prefix.address.lo)) continue;
      if (best == nullptr || r.prefix.length > best->prefix.length) best = &r;
    }
    if (best == nullptr) return std::string("-1");
    return best->gateway == 0 ? std::to_string(best->output) : fmt::format("{} {}", best->output, best->gateway_text());
  }

  Result<void> apply(FlowContext& context, const std::string& text) {
    std::vector<ClickRoute> routes = routes_;
    std::vector<bool> gone(routes.size());
    RouteIndex index;
    for (size_t i = 0; i < routes.size(); ++i) index.emplace(key(routes[i]), i);
    size_t line_number = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = std::string_view(text).substr(at, end - at);
      at = end + 1;
      ++line_number;
      const std::vector<ConfigSlice> words = split_words(line);
      if (words.empty()) continue;
      if (auto ok = apply_line(line, words[0], routes, gone, index); !ok.ok()) {
        if (line_number > 1 || at < text.size())
          return Error(fmt::format("line {}: {}", line_number, ok.error().message), ok.error().hint);
        return ok;
      }
    }
    std::vector<ClickRoute> left;
    for (size_t i = 0; i < routes.size(); ++i) {
      if (!gone[i]) left.push_back(routes[i]);
    }
    std::vector<IpLookupTarget> targets = targets_of(left);
    if (targets.size() > Rib::kMaxNextHops)
      return Error(fmt::format("more than {} different gateways", Rib::kMaxNextHops));
    TableLoad load;
    std::vector<Diagnostic> warnings;
    auto image = load_table(declaration(left, targets), nullptr, &load, &warnings);
    if (!image.ok()) return std::move(image).error();
    routes_ = std::move(left);
    targets_ = std::move(targets);
    changed_ = std::move(*image);
    return context.rebind();
  }

  // One change: verb and route.
  Result<void> apply_line(std::string_view line, const ConfigSlice& first, std::vector<ClickRoute>& routes,
                          std::vector<bool>& gone, RouteIndex& index) const {
    const std::string_view verb = line.substr(first.offset, first.length);
    const std::string_view rest = line.substr(first.offset + first.length);
    if (verb == "flush") {
      std::fill(gone.begin(), gone.end(), true);
      index.clear();
      return {};
    }
    if (verb != "add" && verb != "set" && verb != "remove")
      return Error(fmt::format("'{}' is not a change of routes", verb), "add, set, remove or flush");
    const bool removes = verb == "remove";
    ClickRoute route;
    if (const auto problem = parse(rest, {}, !removes, route)) return Error(problem->message, kRouteForm);
    const bool whole = split_words(rest).size() > 1;
    if (whole && route.output >= outputs) return Error(fmt::format("output {} is not connected", route.output));
    const auto at = index.find(key(route));
    if (removes) {
      const bool there =
          at != index.end() &&
          (!whole || (routes[at->second].gateway == route.gateway && routes[at->second].output == route.output));
      if (!there) return Error(fmt::format("there is no route '{}'", shown(route, whole)));
      gone[at->second] = true;
      index.erase(at);
      return {};
    }
    if (at != index.end()) {
      if (verb == "add")
        return Error(fmt::format("conflict with existing route '{}'", shown(routes[at->second], true)));
      routes[at->second] = route;
      return {};
    }
    index.emplace(key(route), routes.size());
    routes.push_back(route);
    gone.push_back(false);
    return {};
  }
  static std::string shown(const ClickRoute& r, bool whole) {
    return whole ? fmt::format("{} {} {}", to_string(r.prefix), r.gateway_text(), r.output) : to_string(r.prefix);
  }

  std::string algorithm_;
  std::vector<ClickRoute> routes_;
  std::vector<IpLookupTarget> targets_;
  std::set<unsigned> used_;
  std::shared_ptr<const Image> changed_;  // after the first change by a handler
};

}  // namespace

void register_ip_lookup(Registry& registry) {
  ElementClass c;
  c.name = "IPLookup";
  c.aliases = {"LinearIPLookup", "RadixIPLookup", "DirectIPLookup", "RangeIPLookup", "StaticIPLookup"};
  c.group = "Routing";
  c.summary = "longest prefix match over routes in the configuration, IPv4, one output per port";
  c.description =
      "Looks the packet's destination up, sets the destination to the route's gateway if it has one, and sends the "
      "packet to the route's output. Of two routes for one prefix the later wins, with a warning. Click's names are "
      "one element here; the name chooses the algorithm: DirectIPLookup and IPLookup `dir24`, RangeIPLookup `poptrie`, "
      "LinearIPLookup `linear`, the others `trie`. Handlers under the packet scheduler: `table`, `lookup ADDRESS` "
      "(output and gateway, or -1), `add ROUTE` (an error where the prefix has a route), `set ROUTE`, `remove PREFIX` "
      "or `remove ROUTE`, `flush`, `ctrl` (one `add`, `set`, `remove` or `flush` per line: all or none).";
  c.arguments = {
      {.name = "ROUTE",
       .kind = ArgumentKind::kRaw,
       .positional = true,
       .repeated = true,
       .help = "ADDRESS/MASK [GATEWAY] OUTPUT"},
      {.name = "ALGORITHM",
       .kind = ArgumentKind::kChoice,
       .help = "instead of the one that the name chooses",
       .choices = lpm_algorithm_choices4()},
  };
  c.outputs = {1, kMaxOutputs};
  c.drops = {DropReason::kNoRoute};
  c.example =
      "rt :: RadixIPLookup(10.0.0.0/8 0, 0.0.0.0/0 192.0.2.1 1); in -> CheckIPHeader -> rt; rt[0] -> lan; rt[1] -> "
      "wan;";
  c.make = [](std::string_view called) { return std::make_unique<IpLookup>(called); };
  for (const char* name : {"GPUIPLookup", "GPUIPLookupWithCopy"}) {
    ElementClass gpu = gpu_class(c, name, gpu_lists(name), false);
    gpu.arguments.push_back({.name = "LOOKUP_TABLE",
                             .kind = ArgumentKind::kUint,
                             .help = "refused: routes are in the configuration, or in a file that IPRoute reads"});
    gpu.example = fmt::format("in -> CheckIPHeader(14) -> {}(0.0.0.0/0 0, MAX_BATCH 1024) -> out;", name);
    registry.add(std::move(gpu));
  }
  registry.add(std::move(c));
}

}  // namespace sluice
