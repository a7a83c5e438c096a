// host only
#include "control/route_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "control/answer_text.h"
#include "control/json.h"
#include "net/text.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

std::string why_best(const SourcedRib& rib, const std::vector<RouteCandidate>& all) {
  if (all.size() == 1) return "the only one";
  const RouteCandidate &best = all[0], &next = all[1];
  const std::string& other = rib.source_name(next.source);
  if (best.preference != next.preference)
    return fmt::format("preference {} before {} of {}", best.preference, next.preference, other);
  if (best.source == next.source && next.note != 0) return fmt::format("the next one: {}", rib.note(next.note).behind);
  if (best.metric != next.metric) return fmt::format("metric {} before {} of {}", best.metric, next.metric, other);
  return fmt::format("same preference and metric as {}, which was given before {}", other,
                     rib.source_name(best.source));
}

std::vector<std::string> flag_words(uint16_t flags) {
  std::vector<std::string> words;
  for (const char* word : {"blackhole", "drop", "unreachable", "throw", "prohibit", "local", "punt"}) {
    const uint16_t bits = next_hop_flags(word);
    if ((flags & bits) != bits) continue;
    words.emplace_back(word);
    flags = static_cast<uint16_t>(flags & ~bits);
  }
  return words;
}

// Whether the MACs of a neighbour of the kernel are known.
bool is_known(const NextHops& hops, const std::string& name) {
  const AdjacencyModel::Group* group = hops.find(name);
  return group != nullptr && !group->members.empty() &&
         !Neighbours::marked(hops.neighbours()[group->members[0].neighbour]);
}

// One sentence about one name.
std::string step_of(const NextHops& hops, const std::string& name, std::vector<std::string>& next) {
  const NextHops::Explanation e = hops.explain(name);
  const auto through = [&] { return to_string(prefix_around(*parse_ip(name), e.match.length)); };
  std::vector<std::string> members;
  for (const NextHopMember& m : e.members) {
    members.push_back(m.weight == 1 ? m.name : fmt::format("{}*{}", m.name, m.weight));
    next.push_back(m.name);
  }
  switch (e.why) {
    case NextHops::Why::kDefined:
      if (hops.definitions().made_up && !hops.definitions().names.contains(name) && next_hop_flags(name) == 0)
        return fmt::format("{}: synthetic", name);
      return fmt::format("{}: as configured", name);
    case NextHops::Why::kNeighbour:
      next.clear();
      if (e.whoever) return fmt::format("{}: whoever a packet is for, at {}", name, e.interface);
      return fmt::format("{}: a neighbour at {}, {}", name, e.interface,
                         is_known(hops, name) ? "as the kernel knows it" : "which the kernel does not know (yet)");
    case NextHops::Why::kGroup:
      return fmt::format("{}: a group of {}", name, fmt::join(members, ", "));
    case NextHops::Why::kRoute:
      return fmt::format("{}: by the route {} to {}", name, through(), fmt::join(members, ", "));
    case NextHops::Why::kNoNeighbour:
      return fmt::format("{}: not defined", name);
    case NextHops::Why::kNoRoute:
      return fmt::format("{}: no route covers it", name);
    case NextHops::Why::kOnlyDefault:
      return fmt::format("{}: only the default route covers it, which is not used for next hops", name);
    case NextHops::Why::kLoop:
      return fmt::format("{}: leads back to itself, through {}", name, fmt::join(members, ", "));
    case NextHops::Why::kNoMember:
      return fmt::format("{}: leads to {}, which leads nowhere", name, fmt::join(members, ", "));
  }
  return name;
}

Json leads_to(const NamedNextHops& table, const std::string& name) {
  const NextHops& hops = *table.second;
  Json json{{"table", table.first}, {"steps", Json::array()}};
  // Each name once, in the order in which it is come to.
  constexpr size_t kMostFollowed = 64;
  std::vector<std::string> names = {name};
  std::set<std::string> seen = {name};
  for (size_t i = 0; i < names.size() && i < kMostFollowed; ++i) {
    std::vector<std::string> next;
    json["steps"].push_back(step_of(hops, names[i], next));
    for (std::string& n : next) {
      if (seen.insert(n).second) names.push_back(std::move(n));
    }
  }
  const AdjacencyModel::Group* group = hops.find(name);
  json["flags"] = group == nullptr ? std::vector<std::string>() : flag_words(group->flags);
  json["neighbours"] = Json::array();
  if (group == nullptr) return json;
  std::map<uint32_t, uint64_t> buckets;
  uint64_t all = 0;
  for (const uint32_t b : group->buckets) ++buckets[b], ++all;
  if (group->buckets.empty()) {
    for (const auto& m : group->members) buckets[m.neighbour] += m.weight, all += m.weight;
  }
  for (const auto& m : group->members) {
    const auto at = buckets.find(m.neighbour);
    if (at == buckets.end()) continue;  // said already
    const auto& n = hops.neighbours()[m.neighbour];
    // Without MACs: each packet is given them on its way out, where they are known then.
    Json one = Json::object();
    if (!Neighbours::marked(n))
      one.update({{"destination", to_string(n.destination)}, {"source", to_string(n.source)}});
    one["port"] = n.port;
    if (n.vlan != 0) one["vlan"] = n.vlan;
    one["mtu"] = n.mtu;
    one["buckets"] = at->second;
    one["share"] = static_cast<double>(at->second) / static_cast<double>(all);
    json["neighbours"].push_back(std::move(one));
    buckets.erase(at);
  }
  json["resilient"] = !group->buckets.empty();
  return json;
}

}  // namespace

Result<Json> explain_routes(const SourcedRib& rib, const std::vector<NamedNextHops>& adjacencies,
                            const std::string& text, size_t from, size_t count) {
  const auto prefix = parse_prefix(text);
  if (!prefix) return Error(fmt::format("'{}' is neither an address nor a prefix", text));
  Json json{{"for", to_string(*prefix)}, {"total", 0}, {"from", from}, {"routes", Json::array()}};
  size_t total = 0;
  for (int length = prefix->length; length >= 0; --length) {
    const IpPrefix covering = prefix_around(prefix->address, static_cast<unsigned>(length));
    const std::vector<RouteCandidate> all = rib.candidates(covering);
    if (all.empty()) continue;
    ++total;
    if (total < from || total - from >= count) continue;
    const std::string& hop = rib.next_hops().name(all[0].next_hop);
    Json one{{"prefix", to_string(covering)}, {"next_hop", hop}, {"why", why_best(rib, all)}};
    for (const RouteCandidate& c : all) {
      one["candidates"].push_back({{"source", rib.source_name(c.source)},
                                   {"preference", c.preference},
                                   {"metric", c.metric},
                                   {"next_hop", rib.next_hops().name(c.next_hop)}});
      if (c.note == 0) continue;
      one["candidates"].back()["path"] = rib.note(c.note).path;
      if (!rib.note(c.note).behind.empty()) one["candidates"].back()["behind"] = rib.note(c.note).behind;
    }
    one["adjacencies"] = Json::array();
    for (const NamedNextHops& table : adjacencies) one["adjacencies"].push_back(leads_to(table, hop));
    json["routes"].push_back(std::move(one));
  }
  json["total"] = total;
  return json;
}

Result<Json> list_routes(const SourcedRib& rib, const std::string& within, const std::string& next_hop, size_t from,
                         size_t count) {
  std::optional<IpPrefix> around;
  if (!within.empty() && !(around = parse_prefix(within)))
    return Error(fmt::format("'{}' is not a prefix", within), "write it as 10.0.0.0/8 or 2001:db8::/32");
  const uint32_t hop = next_hop.empty() ? 0 : rib.next_hops().find(next_hop);
  Json json{{"total", 0}, {"from", from}, {"routes", Json::array()}};
  if (!next_hop.empty() && hop == 0) return json;
  const Rib best = rib.best_routes();
  size_t total = 0;
  const auto take = [&](const IpPrefix& prefix, uint32_t id) {
    if (hop != 0 && id != hop) return;
    if (around && (prefix.length < around->length || prefix.address.family != around->address.family ||
                   !(prefix_around(prefix.address, around->length) == prefix_around(around->address, around->length))))
      return;
    ++total;
    if (total < from || total - from >= count) return;
    const auto all = rib.candidates(prefix);
    json["routes"].push_back({{"prefix", to_string(prefix)},
                              {"next_hop", rib.next_hops().name(id)},
                              {"source", rib.source_name(all[0].source)},
                              {"preference", all[0].preference},
                              {"metric", all[0].metric},
                              {"others", all.size() - 1}});
  };
  for (const Route4& r : best.routes4()) take({{0, r.address, 4}, r.length}, r.next_hop);
  for (const Route6& r : best.routes6()) take({{r.hi, r.lo, 6}, r.length}, r.next_hop);
  json["total"] = total;
  return json;
}

namespace {

// What leads_to said.
std::string leads_to_text(const Json& a, const std::string& indent) {
  std::string t;
  for (const char* list : {"steps", "flags"}) {
    for (const Json& line : a.at(list))
      t += fmt::format("{}{}\n", indent, printable(line.get_ref<const std::string&>()));
  }
  for (const Json& n : a.at("neighbours")) {
    const std::string macs = n.contains("destination")
                                 ? fmt::format("{} <- {}", word_of(n, "destination"), word_of(n, "source"))
                                 : "no address";
    t += fmt::format("{}{} port {}{} mtu {}  {} bucket{}, {:.1f} %\n", indent, macs, n.at("port").get<unsigned>(),
                     n.contains("vlan") ? fmt::format(" vlan {}", n.at("vlan").get<unsigned>()) : "",
                     n.at("mtu").get<unsigned>(), n.at("buckets").get<uint64_t>(), n.at("buckets") == 1 ? "" : "s",
                     n.at("share").get<double>() * 100);
  }
  return t;
}

// Where its addresses come from.
const char* origin_of(const NextHops& hops, const std::string& name) {
  switch (hops.explain(name).why) {
    case NextHops::Why::kDefined:
      return hops.definitions().names.contains(name) ? "static" : next_hop_flags(name) != 0 ? "word" : "made up";
    case NextHops::Why::kNeighbour:
      return hops.explain(name).whoever ? "kernel, by each packet"
             : is_known(hops, name)     ? "kernel"
                                        : "kernel, unresolved";
    case NextHops::Why::kGroup:
      return "group";
    case NextHops::Why::kRoute:
      return "route";
    default:
      return "none";
  }
}

}  // namespace

std::string route_explanation_text(const Json& r) {
  if (r.at("total") == 0) return fmt::format("no route covers {}\n", word_of(r, "for"));
  std::string t;
  for (const Json& route : r.at("routes")) {
    t += fmt::format("{} -> {}\n", word_of(route, "prefix"), word_of(route, "next_hop"));
    bool best = true;
    for (const Json& c : route.at("candidates")) {
      t += fmt::format("  {} {} preference {} metric {} -> {}{}\n", best ? "*" : " ", word_of(c, "source"),
                       c.at("preference").get<unsigned>(), c.at("metric").get<uint32_t>(), word_of(c, "next_hop"),
                       best ? fmt::format("   ({})", word_of(route, "why")) : "");
      if (c.contains("path")) {
        t += fmt::format("      {}{}{}\n", word_of(c, "path"), c.contains("behind") ? "; " : "",
                         c.contains("behind") ? word_of(c, "behind") : "");
      }
      best = false;
    }
    for (const Json& a : route.at("adjacencies")) {
      t += leads_to_text(a, fmt::format("    {}: ", word_of(a, "table")));
    }
  }
  return t + more_text(r, r.at("routes").size());
}

std::string route_list_text(const Json& r) {
  if (r.at("routes").empty()) return "no routes\n";
  size_t prefixes = 6, hops = 8;
  for (const Json& route : r.at("routes")) {
    prefixes = std::max(prefixes, word_of(route, "prefix").size());
    hops = std::max(hops, word_of(route, "next_hop").size());
  }
  std::string t = fmt::format("{:<{}}  {:<{}}  source\n", "prefix", prefixes, "next hop", hops);
  for (const Json& route : r.at("routes")) {
    const auto others = route.at("others").get<size_t>();
    t += fmt::format("{:<{}}  {:<{}}  {}{}{}\n", word_of(route, "prefix"), prefixes, word_of(route, "next_hop"), hops,
                     word_of(route, "source"),
                     route.at("metric") == 0 ? "" : fmt::format(", metric {}", route.at("metric").get<uint32_t>()),
                     others == 0 ? "" : fmt::format(", {} more", others));
  }
  return t + more_text(r, r.at("routes").size());
}

Json list_next_hops(const NamedNextHops& adjacencies, size_t from, size_t count) {
  const NextHops& hops = *adjacencies.second;
  Json json{{"table", adjacencies.first}, {"total", hops.count()}, {"from", from}, {"next_hops", Json::array()}};
  for (size_t id = from; id <= hops.count() && id - from < count; ++id) {
    const std::string& name = hops.name(static_cast<uint32_t>(id));
    Json one{{"next_hop", name}, {"origin", origin_of(hops, name)}};
    one.update(leads_to(adjacencies, name));
    one.erase("table");
    json["next_hops"].push_back(std::move(one));
  }
  return json;
}

std::string next_hops_text(const Json& r) {
  std::string t;
  for (const Json& hop : r.at("next_hops")) {
    t += fmt::format("{}   ({})\n", word_of(hop, "next_hop"), word_of(hop, "origin"));
    t += leads_to_text(hop, "  ");
  }
  return t + more_text(r, r.at("next_hops").size());
}

}  // namespace sluice
