// host only
#include "control/why.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "control/json.h"
#include "control/key_text.h"
#include "control/near_miss.h"
#include "control/packet_way.h"
#include "control/route_report.h"
#include "formats/native_rules.h"
#include "net/parse.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// Rules that are looked at for near misses: others wait for the answer.
constexpr uint32_t kMostCompared = 200'000;

// What a port of the graph is called outside of it; "": nothing.
std::string name_outside(const PortSpec& port) {
  if (port.type == PortSpec::Type::kDevice) return port.device.name;
  return port.type == PortSpec::Type::kNull ? std::string() : port.path;
}

Result<unsigned> find_input(const Router& router, const std::string& input) {
  std::vector<std::string> names;
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    const Element& element = *router.elements[e];
    if (element.kind() != ElementKind::kSource) continue;
    const std::string outside = name_outside(element.port());
    if (input.empty() || input == element.name || input == outside) return e;
    names.push_back(outside.empty() ? element.name : outside);
  }
  if (names.empty()) return Error("the graph has no input");
  return Error(fmt::format("'{}' is not an input of this process", input),
               fmt::format("inputs: {}", fmt::join(names, ", ")));
}

// The nearest first; `matched`: 0, none.
Json near_misses(const RuleList& rules, size_t matched, const FlowKey& key, size_t most) {
  Json near = Json::array();
  const auto end = static_cast<uint32_t>(rules.size());
  const uint32_t hit = matched > end ? 0 : static_cast<uint32_t>(matched);
  const uint32_t last = hit == 0 ? end : hit - 1;
  each_near_miss(
      key, hit, last, last > kMostCompared ? last - kMostCompared + 1 : 1, most,
      [&](uint32_t r) { return flatten(rules.at(r), r); },
      [&](uint32_t r) { return std::pair(rules.at(r).file, rules.at(r).line); },
      [&](uint32_t r, const std::string& fails) {
        const AclRule& rule = rules.at(r);
        Json one{{"rule", r}, {"text", to_native(rule)}};
        if (rule.line != 0 && rule.file < rules.files().size()) {
          one["file"] = rules.files()[rule.file];
          one["line"] = rule.line;
        }
        one["fails"] = fails;
        near.push_back(std::move(one));
      });
  return near;
}

Json verdict_of(const Router& router, const Json& packet) {
  Json verdict{{"forwarded", nullptr}, {"text", packet.at("verdict")}};
  const Json& end = packet.at("end");
  if (end.is_null()) return verdict;
  verdict["forwarded"] = end.at("reason").is_null();
  verdict["element"] = end.at("element");
  verdict["reason"] = end.at("reason");
  if (!end.at("reason").is_null()) return verdict;
  const Json& name = end.at("element");
  const Element* const sink = name.is_string() ? router.find(name.get_ref<const std::string&>()) : nullptr;
  const std::string outside = sink == nullptr ? std::string() : name_outside(sink->port());
  verdict["output"] = outside.empty() ? end.at("element") : Json(outside);
  verdict["port"] = end.at("port");
  return verdict;
}

}  // namespace

Result<Json> why(const Router& router, LiveTables& tables, const Neighbours* neighbours, std::span<const uint8_t> frame,
                 const std::string& input, size_t near) {
  auto source = find_input(router, input);
  if (!source) return std::move(source).error();
  const auto bytes = static_cast<uint32_t>(frame.size());
  Headers headers;
  (void)parse_ethernet(frame.data(), bytes, bytes, headers);
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  std::string text;
  (void)PacketWays(router, tables.tables(), {}, neighbours)
      .explain(*source, frame, bytes, static_cast<uint64_t>(now.count()), text);
  Json ways = Json::parse(text);
  Json json{{"packet", key_text(headers.key)}, {"bytes", bytes}, {"input", router.elements[*source]->name}};
  if (const std::string outside = name_outside(router.elements[*source]->port()); !outside.empty())
    json["interface"] = outside;
  if (ways.at("packets").empty())
    return Error(fmt::format("nothing is behind the input '{}'", json["input"].get<std::string>()));
  const Json& packet = ways["packets"][0];
  json["verdict"] = verdict_of(router, packet);
  if (packet.contains("rule")) {
    const Json& rule = packet["rule"];
    json["rule"] = rule;
    std::string table = rule.is_null() ? std::string() : rule.at("table").get<std::string>();
    if (table.empty() && tables.tables().acls.size() == 1) table = tables.tables().acls.begin()->first;
    if (!table.empty()) {
      auto rules = tables.rules(table);
      if (!rules) return std::move(rules).error();
      json["near_misses"] = near_misses(**rules, rule.is_null() ? 0 : rule.at("rule").get<size_t>(), headers.key, near);
    }
  }
  if (packet.contains("route")) {
    const std::string table = packet["route"].at("table").get<std::string>();
    json["route"] = packet["route"];
    auto rib = tables.routes(table);
    if (rib.ok() && *rib != nullptr) {
      auto said =
          explain_routes(**rib, tables.next_hops_of(table), packet["route"].at("destination").get<std::string>(), 1, 1);
      if (!said) return std::move(said).error();
      if (!said->at("routes").empty()) json["route"].update((*said)["routes"][0]);
    }
  }
  if (packet.contains("adjacency")) json["adjacency"] = packet["adjacency"];
  json["ways"] = std::move(ways["packets"]);
  return json;
}

std::string rule_line(const Json& rule) {
  std::string line;
  if (rule.contains("file"))
    line += fmt::format("{}:{}: ", rule.at("file").get<std::string>(), rule.at("line").get<uint64_t>());
  if (rule.contains("text")) line += rule.at("text").get<std::string>() + " ";
  return printable(line + fmt::format("(rule {})", rule.at("rule").get<uint64_t>()));
}

std::string why_text(const Json& r) {
  const auto word = [](const Json& json, const char* field) {
    return printable(json.at(field).get_ref<const std::string&>());
  };
  const Json& verdict = r.at("verdict");
  std::string t = fmt::format("packet     {}, {} bytes, in by {}\n", word(r, "packet"), r.at("bytes").get<uint64_t>(),
                              r.contains("interface") ? word(r, "interface") : word(r, "input"));
  t += fmt::format("verdict    {}\n", word(verdict, "text"));
  if (r.contains("rule"))
    t += fmt::format("rule       {}\n", r["rule"].is_null() ? std::string("none matches") : rule_line(r["rule"]));
  if (r.contains("near_misses")) {
    for (const Json& near : r["near_misses"])
      t += fmt::format("near miss  {}\n           because {}\n", rule_line(near), word(near, "fails"));
  }
  if (r.contains("route")) {
    const Json& route = r["route"];
    t += fmt::format("route      {} -> {}",
                     route.contains("prefix") ? word(route, "prefix") : word(route, "destination"),
                     word(route, "next_hop"));
    if (route.contains("candidates")) {
      const Json& best = route["candidates"][0];
      t += fmt::format(", source {}, preference {}, metric {} ({})", word(best, "source"),
                       best.at("preference").get<unsigned>(), best.at("metric").get<uint32_t>(), word(route, "why"));
    }
    t += '\n';
    if (route.contains("adjacencies")) {
      for (const Json& table : route["adjacencies"]) {
        for (const Json& step : table.at("steps"))
          t += fmt::format("           {}\n", printable(step.get_ref<const std::string&>()));
      }
    }
  }
  if (r.contains("adjacency")) {
    const Json& a = r["adjacency"];
    const std::string whose = a.contains("neighbour") ? word(a, "neighbour") + ": " : "";
    t += a.at("destination").is_null()
             ? fmt::format("neighbour  {}not resolved yet: the kernel is asked for its address\n", whose)
             : fmt::format("neighbour  {}{}, from {}\n", whose, word(a, "destination"), word(a, "source"));
  }
  if (verdict.contains("output"))
    t += fmt::format("output     {}, port {}\n", word(verdict, "output"), verdict.at("port").get<uint64_t>());
  // What elements made of it: answers, fragments.
  for (size_t i = 1; i < r.at("ways").size(); ++i)
    t += fmt::format("also       {}: {}\n", word(r["ways"][i], "from"), word(r["ways"][i], "verdict"));
  return t;
}

}  // namespace sluice
