// host only
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "elements/stage_element.h"
#include "elements/table_use.h"
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

class IpLookup final : public Element {
 public:
  explicit IpLookup(std::string_view called) : algorithm_(algorithm_of(called)) {}

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (arguments.has("ALGORITHM")) algorithm_ = arguments.get_string("ALGORITHM");
    std::map<std::pair<uint32_t, uint32_t>, size_t> ids;  // (gateway, output) -> next-hop id
    std::map<std::pair<uint64_t, uint8_t>, size_t> seen;
    targets_.push_back({0, 0});
    for (const ArgumentValue& route : arguments.rest()) {
      const std::string_view text = route.text;
      const std::vector<ConfigSlice> words = split_words(text);
      auto word = [&](size_t i) { return text.substr(words[i].offset, words[i].length); };
      auto wrong = [&](std::string message, size_t i) {
        Diagnostic d = i < words.size()
                           ? arguments.error_in(route, std::move(message), words[i].offset, words[i].length)
                           : arguments.error_in(route, std::move(message));
        d.expected = "ADDRESS/MASK [GATEWAY] OUTPUT, such as 10.0.0.0/8 192.0.2.1 1";
        diagnostics.add(std::move(d));
      };
      if (words.size() != 2 && words.size() != 3) {
        wrong(fmt::format("a route has 2 or 3 words, not {}", words.size()), words.size());
        continue;
      }
      const auto prefix = parse_click_prefix(word(0));
      if (!prefix) {
        wrong(fmt::format("'{}' is not an IPv4 prefix", word(0)), 0);
        continue;
      }
      uint32_t gateway = 0;
      if (words.size() == 3 && word(1) != "-") {
        const auto address = parse_ipv4(word(1));
        if (!address) {
          wrong(fmt::format("'{}' is not an IPv4 address", word(1)), 1);
          continue;
        }
        gateway = *address;
      }
      const std::string_view last = word(words.size() - 1);
      uint32_t output = 0;
      const auto [end, code] = std::from_chars(last.data(), last.data() + last.size(), output);
      if (code != std::errc() || end != last.data() + last.size() || output >= kMaxOutputs) {
        wrong(fmt::format("'{}' is not an output from 0 to {}", last, kMaxOutputs - 1), words.size() - 1);
        continue;
      }
      const auto [it, fresh] = ids.try_emplace({gateway, output}, targets_.size());
      if (fresh) targets_.push_back({gateway, output});
      if (targets_.size() > Rib::kMaxNextHops) {
        wrong(fmt::format("more than {} different gateways", Rib::kMaxNextHops), 1);
        return;
      }
      if (!seen.try_emplace({prefix->address.lo, prefix->length}, 0).second) {
        Diagnostic d =
            arguments.error_in(route, fmt::format("a later route for {} replaces the one before", to_string(*prefix)));
        d.severity = Diagnostic::Severity::kWarning;
        diagnostics.add(std::move(d));
      }
      // The table reads text: next hops are called by their numbers, first use first, so that the names' ids are the
      // same numbers.
      text_ += fmt::format("{} {}\n", to_string(*prefix), it->second);
      used_.insert(output);
    }
    if (used_.empty() && diagnostics.ok()) text_.clear();
  }

  ElementKind kind() const override { return ElementKind::kStage; }
  StageTraits stage_traits() const override { return traits_of<IpLookupStage<Trie::View4>>(); }
  std::optional<unsigned> output_count() const override {
    return std::max(used_.empty() ? 1u : *used_.rbegin() + 1, outputs);
  }
  bool output_optional(unsigned output) const override { return !used_.contains(output); }
  std::vector<TableDeclaration> tables() const override {
    TableDeclaration own{.type = TableDeclaration::Type::kRoutes, .name = name};
    own.text = text_;
    own.algorithm = algorithm_;
    return {own};
  }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    auto image = find_table(tables.routes, "route table", name);
    if (!image) return std::move(image).error();
    return with_fib4(**image, [&](const auto& view) {
      IpLookupStage<std::decay_t<decltype(view)>> stage;
      stage.view = view;
      stage.targets = targets_.data();
      stage.target_count = static_cast<uint32_t>(targets_.size());
      place(slot, stage);
    });
  }

 private:
  std::string algorithm_;
  std::string text_;
  std::vector<IpLookupTarget> targets_;
  std::set<unsigned> used_;
};

}  // namespace

void register_ip_lookup(Registry& registry) {
  ElementClass c;
  c.name = "IPLookup";
  c.aliases = {"LinearIPLookup", "RadixIPLookup", "DirectIPLookup", "RangeIPLookup", "StaticIPLookup"};
  c.group = "Routing";
  c.summary = "longest prefix match over routes in the configuration, IPv4, one output a port";
  c.description =
      "Looks the packet's destination up, sets the destination to the route's gateway if it has one, and sends the "
      "packet to the route's "
      "output. Of two routes for one prefix the later wins, with a warning. Click's names are one element here; the "
      "name chooses the "
      "algorithm: DirectIPLookup and IPLookup `dir24`, RangeIPLookup `poptrie`, LinearIPLookup `linear`, the others "
      "`trie`.";
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
  registry.add(std::move(c));
}

}  // namespace sluice
