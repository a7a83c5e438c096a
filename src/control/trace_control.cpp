// host only
#include "control/trace_control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/counted.h"
#include "control/json.h"
#include "control/key_text.h"
#include "control/packet_way.h"
#include "control/request.h"
#include "control/route_report.h"
#include "formats/native_rules.h"
#include "net/parse.h"
#include "net/text.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMostFilterRules = 1024;

FlowKey key_of(const FollowedPacket& packet) {
  Headers headers;
  const auto captured = static_cast<uint32_t>(packet.frame.size());
  (void)parse_ethernet(packet.frame.data(), captured, packet.wire_bytes, headers);
  return headers.key;
}

Json fate_json(const FollowedPacket& packet) {
  Json fate{{"forwarded", packet.left()}};
  const DropReason why = packet.why();
  fate["reason"] = why == DropReason::kNone ? Json(nullptr) : Json(to_string(why));
  if (!packet.element.empty()) {
    fate["element"] = packet.element;
  } else {
    fate["element"] = packet.ends.empty() ? Json(nullptr) : Json(packet.ends.front().element);
  }
  fate["ends"] = Json::array();
  for (const FollowedPacket::End& end : packet.ends) {
    fate["ends"].push_back({{"element", end.element},
                            {"port", end.port},
                            {"reason", end.reason == DropReason::kNone ? Json(nullptr) : Json(to_string(end.reason))}});
  }
  return fate;
}

// Whether what was explained is what was recorded. What a sink does with a packet that came to it (a rate, a full
// queue, a neighbour that does not answer) is no matter of the graph.
bool agrees(const FollowedPacket& packet, const Json& way) {
  if (way.at("packets").empty()) return false;
  const Json& first = way["packets"][0];
  const Json& end = first.at("end");
  if (packet.fate.reason != DropReason::kNone)
    return !end.is_null() && end["element"] == packet.element && end["reason"] == to_string(packet.fate.reason);
  if (packet.ends.empty()) return way["packets"].size() > 1;
  return !end.is_null() && end["reason"].is_null() &&
         std::any_of(packet.ends.begin(), packet.ends.end(),
                     [&](const FollowedPacket::End& e) { return end["element"] == e.element; });
}

void add_prefix(Json& route, const FollowedPacket& packet, LiveTables& tables) {
  const auto table = route.at("table").get<std::string>();
  // The routes that are known are those of now.
  if (tables.changed("routes", table) > packet.generation) return;
  const auto rib = tables.routes(table);
  if (!rib || *rib == nullptr) return;
  auto said = explain_routes(**rib, {}, route.at("destination").get<std::string>(), 1, 1);
  if (said.ok() && !(*said)["routes"].empty()) route["prefix"] = (*said)["routes"][0]["prefix"];
}

}  // namespace

Result<std::vector<AclMatchRule>> parse_packet_filter(const std::string& text) {
  std::vector<AclMatchRule> rules;
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return rules;
  if (text.find('\n') != std::string::npos) return Error("a filter is one line");
  const std::string word = text.substr(begin, text.find_first_of(" \t(", begin) - begin);
  const bool whole = word == "permit" || word == "deny" || word == "mark" || word == "src";
  if (word == "define" || word == "include")
    return Error(fmt::format("'{}' is no filter", word), "write a rule: udp from any to any port 53");
  auto set =
      parse_native_rules((whole ? "" : "permit ") + text.substr(begin), "filter", IncludeReader(), kMostFilterRules);
  if (!set) {
    Error error = std::move(set).error();
    if (error.hint.empty())
      error.hint = "a filter is a rule of the native language without its verb: udp from any to any port 53";
    return error;
  }
  for (size_t r = 0; r < set->rules.size(); ++r) rules.push_back(flatten(set->rules[r], static_cast<uint32_t>(r + 1)));
  return rules;
}

Json followed_json(const FollowedPacket& packet, const Router* router, LiveTables* tables) {
  Json json{{"number", packet.number},         {"timestamp_ns", packet.timestamp_ns},
            {"input", packet.input},           {"bytes", packet.wire_bytes},
            {"captured", packet.frame.size()}, {"flow", five_tuple(key_of(packet))},
            {"generation", packet.generation}, {"worker", packet.worker},
            {"on_device", packet.on_device},   {"fate", fate_json(packet)},
            {"explanation", nullptr},          {"agrees", nullptr}};
  if (router == nullptr || packet.tables == nullptr) {
    json["why_not"] = router == nullptr ? "the graph was replaced since" : "too many generations at once";
    return json;
  }
  unsigned source = 0;
  while (source < router->elements.size() && router->elements[source]->name != packet.input) ++source;
  if (source == router->elements.size()) return json;
  json["explanation"] =
      packet_way(*router, *packet.tables, source, packet.frame, packet.wire_bytes, packet.timestamp_ns);
  json["agrees"] = agrees(packet, json["explanation"]);
  for (Json& one : json["explanation"]["packets"]) {
    if (one.contains("route") && tables != nullptr) add_prefix(one["route"], packet, *tables);
  }
  return json;
}

std::string trace_text(const Json& trace) {
  const auto word = [](const Json& json) { return json.get<std::string>(); };
  std::string t;
  for (const Json& p : trace.at("packets")) {
    t += fmt::format("packet {}: {} {}, {} bytes, {}\n", p.at("number").get<uint64_t>(),
                     time_text(p.at("timestamp_ns").get<uint64_t>()), word(p.at("input")),
                     p.at("bytes").get<uint64_t>(), word(p.at("flow")));
    t += fmt::format("  generation {}, worker {}{}\n", p.at("generation").get<uint64_t>(),
                     p.at("worker").get<uint64_t>(), p.at("on_device").get<bool>() ? ", looked up on the device" : "");
    const Json& fate = p.at("fate");
    const Json& explanation = p.at("explanation");
    std::string explained = "nothing";
    if (!explanation.is_null()) {
      std::string way = packet_way_text(explanation);
      if (!explanation.at("packets").empty()) {
        const Json& first = explanation["packets"][0];
        explained = word(first.at("verdict"));
        // The verdict is said below, beside what was recorded.
        const std::string line = fmt::format("  verdict  {}\n", explained);
        if (const size_t at = way.find(line); at != std::string::npos) way.erase(at, line.size());
        t += way;
        if (first.contains("rule")) {
          const Json& rule = first["rule"];
          t += rule.is_null()
                   ? std::string("  rule      none matched\n")
                   : fmt::format("  rule      {}{}{}\n", rule.at("rule").get<uint64_t>(),
                                 rule.contains("file")
                                     ? fmt::format(" at {}:{}", word(rule["file"]), rule["line"].get<uint64_t>())
                                     : "",
                                 rule.contains("text") ? ": " + word(rule["text"]) : "");
        }
        if (first.contains("route")) {
          const Json& route = first["route"];
          t += fmt::format("  route     {} -> {}\n",
                           route.contains("prefix") ? word(route["prefix"]) : word(route.at("destination")),
                           word(route.at("next_hop")));
        }
        if (first.contains("adjacency")) {
          const Json& a = first["adjacency"];
          const auto port = a.at("port").get<uint64_t>();
          t += a.at("destination").is_null()
                   ? fmt::format("  adjacency not resolved yet, port {}\n", port)
                   : fmt::format("  adjacency {} <- {} port {}\n", word(a["destination"]), word(a.at("source")), port);
        }
      }
    } else if (p.contains("why_not")) {
      t += fmt::format("  not explained: {}\n", word(p["why_not"]));
    }
    std::vector<std::string> ends;
    for (const Json& end : fate.at("ends")) {
      ends.push_back(end.at("reason").is_null()
                         ? fmt::format("left by {} (port {})", word(end.at("element")), end.at("port").get<uint64_t>())
                         : fmt::format("dropped: {} at {}", word(end.at("reason")), word(end.at("element"))));
    }
    if (ends.empty()) {
      ends.push_back(fate.at("reason").is_null()
                         ? std::string("other packets were made of it")
                         : fmt::format("dropped: {} at {}", word(fate["reason"]), word(fate.at("element"))));
    }
    t += fmt::format("  fate      {}\n", fmt::join(ends, ", "));
    if (p.at("agrees").is_boolean() && !p["agrees"].get<bool>())
      t += fmt::format("  DIFFERS   the explanation says: {}\n", explained);
    t += "\n";
  }
  const uint64_t asked = trace.at("asked").get<uint64_t>(), followed = trace.at("followed").get<uint64_t>();
  t += asked == 0 ? std::string("no packets are traced; sluice trace add N\n")
                  : fmt::format("{} of {} traced, {} on their way{}\n", with_commas(followed), counted(asked, "packet"),
                                with_commas(trace.at("on_their_way").get<uint64_t>()),
                                trace.at("filter") == "" ? "" : "; filter: " + word(trace.at("filter")));
  if (const uint64_t missed = trace.at("missed").get<uint64_t>(); missed != 0)
    t += fmt::format("{} more found no room: show the trace to make some\n", counted(missed, "packet"));
  return t;
}

struct TraceControl::Shown {
  std::vector<Json> packets;
};

TraceControl::TraceControl(Engine& engine, std::shared_ptr<PacketTaps> taps)
    : engine_(engine), taps_(std::move(taps)), shown_(std::make_unique<Shown>()) {}
TraceControl::~TraceControl() = default;

void TraceControl::digest(LiveTables& tables) {
  if (order_ == nullptr) return;
  for (const auto& packet : order_->take()) {
    const Router* const router = packet->generation >= first_generation_ ? &engine_.router() : nullptr;
    shown_->packets.push_back(followed_json(*packet, router, &tables));
  }
}

bool TraceControl::answers(std::string_view command) const {
  return command == "trace add" || command == "trace clear" || command == "show trace";
}

Result<Json> TraceControl::run(Json& request) {
  RequestFields fields(request);
  const std::string command = fields.text("command");
  if (command == "trace add") {
    const uint64_t packets = fields.number("packets", 1, kMostPackets, 0);
    const std::string filter = fields.text("filter", "");
    if (auto ok = fields.done(); !ok) return std::move(ok).error();
    if (packets == 0) return Error("the field 'packets' is missing");
    return add(packets, filter);
  }
  const uint64_t count = command == "show trace" ? fields.number("count", 1, kMostPackets, kMostPackets) : 0;
  if (auto ok = fields.done(); !ok) return std::move(ok).error();
  if (command == "show trace") return show(count);
  taps_->stop(Tap::kTrace);
  const size_t cleared = shown_->packets.size();
  shown_->packets.clear();
  order_.reset();
  asked_ = 0;
  filter_.clear();
  return Json{{"cleared", cleared}};
}

Result<Json> TraceControl::add(uint64_t packets, const std::string& filter) {
  if (engine_.by_packets())
    return Error("the packet scheduler runs this graph, and follows no packets",
                 "put Print elements into it, or run it without queues, timers and scripts");
  auto rules = parse_packet_filter(filter);
  if (!rules) return std::move(rules).error();
  shown_->packets.clear();
  order_ = taps_->start(Tap::kTrace, std::move(*rules), packets, kMostBytes);
  asked_ = packets;
  filter_ = filter;
  return Json{{"asked", packets}, {"filter", filter}};
}

Json TraceControl::show(size_t count) const {
  Json json{{"asked", asked_}, {"followed", 0}, {"on_their_way", 0}, {"missed", 0}, {"filter", filter_}};
  if (order_ != nullptr) {
    json["followed"] = order_->followed();
    json["on_their_way"] = order_->followed() - std::min<uint64_t>(order_->followed(), shown_->packets.size());
    json["missed"] = order_->missed();
  }
  json["packets"] = Json::array();
  for (const Json& packet : shown_->packets) json["packets"].push_back(packet);
  std::stable_sort(json["packets"].begin(), json["packets"].end(), [](const Json& a, const Json& b) {
    return a["number"].get<uint64_t>() < b["number"].get<uint64_t>();
  });
  auto& packets = json["packets"];
  if (packets.size() > count) packets.erase(packets.begin(), packets.end() - static_cast<ptrdiff_t>(count));
  return json;
}

}  // namespace sluice
