// host only
#include "control/trace_control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/counted.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/json.h"
#include "control/key_text.h"
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

void append_reason(std::string& to, DropReason reason) {
  if (reason == DropReason::kNone)
    to += "null";
  else
    append_json(to, to_string(reason));
}

void append_fate(std::string& to, const FollowedPacket& packet) {
  to += packet.left() ? R"({"forwarded":true,"reason":)" : R"({"forwarded":false,"reason":)";
  append_reason(to, packet.why());
  to += R"(,"element":)";
  if (!packet.element.empty())
    append_json(to, packet.element);
  else if (!packet.ends.empty())
    append_json(to, packet.ends.front().element);
  else
    to += "null";
  to += R"(,"ends":[)";
  for (const FollowedPacket::End& end : packet.ends) {
    to += &end == packet.ends.data() ? R"({"element":)" : R"(,{"element":)";
    append_json(to, end.element);
    fmt::format_to(std::back_inserter(to), R"(,"port":{},"reason":)", end.port);
    append_reason(to, end.reason);
    to += '}';
  }
  to += "]}";
}

// Whether what was explained is what was recorded. What a sink does with a packet that came to it (a rate, a full
// queue, a neighbour that does not answer) is no matter of the graph.
bool agrees(const FollowedPacket& packet, const WayEnd& end) {
  if (end.packets == 0) return false;
  if (packet.fate.reason != DropReason::kNone)
    return end.element != nullptr && end.element->name == packet.element && end.reason == packet.fate.reason;
  if (packet.ends.empty()) return end.packets > 1;
  return end.element != nullptr && end.reason == DropReason::kNone &&
         std::any_of(packet.ends.begin(), packet.ends.end(),
                     [&](const FollowedPacket::End& e) { return e.element == end.element->name; });
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

PacketWays& FollowedTexts::ways_of(const FollowedPacket& packet) {
  for (const auto& [tables, ways] : ways_) {
    if (tables == packet.tables) return *ways;
  }
  // The routes that are known are those of now.
  const auto prefix_of = [this, generation = packet.generation](std::string_view table, const IpAddress& destination) {
    const std::string name(table);
    if (tables_.changed("routes", name) > generation) return std::optional<IpPrefix>();
    const auto rib = tables_.routes(name);
    if (!rib.ok() || *rib == nullptr) return std::optional<IpPrefix>();
    const Rib::Match match = (*rib)->match(destination);
    if (match.next_hop == 0) return std::optional<IpPrefix>();
    return std::optional(prefix_around(destination, match.length));
  };
  ways_.emplace_back(packet.tables, std::make_unique<PacketWays>(router_, *packet.tables, prefix_of, neighbours_));
  return *ways_.back().second;
}

std::string FollowedTexts::text(const FollowedPacket& packet) {
  std::string json = fmt::format(R"({{"number":{},"timestamp_ns":{},"input":)", packet.number, packet.timestamp_ns);
  append_json(json, packet.input);
  fmt::format_to(std::back_inserter(json), R"(,"bytes":{},"captured":{},"flow":"{}")", packet.wire_bytes,
                 packet.frame.size(), five_tuple(key_of(packet)));
  fmt::format_to(std::back_inserter(json), R"(,"generation":{},"worker":{},"on_device":{},"fate":)", packet.generation,
                 packet.worker, packet.on_device);
  append_fate(json, packet);
  json += R"(,"explanation":)";
  const bool replaced = packet.generation < first_generation_;
  if (replaced || packet.tables == nullptr) {
    json += R"(null,"agrees":null,"why_not":)";
    append_json(json, replaced ? "the graph was replaced since" : "too many generations at once");
    json += '}';
    return json;
  }
  unsigned source = 0;
  while (source < router_.elements.size() && router_.elements[source]->name != packet.input) ++source;
  if (source == router_.elements.size()) {
    json += R"(null,"agrees":null)";
  } else {
    const WayEnd end = ways_of(packet).explain(source, packet.frame, packet.wire_bytes, packet.timestamp_ns, json);
    json += agrees(packet, end) ? R"(,"agrees":true)" : R"(,"agrees":false)";
  }
  json += '}';
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
          t +=
              rule.is_null()
                  ? std::string("  rule      none matched\n")
                  : fmt::format("  rule      {}{}(rule {})\n",
                                rule.contains("file")
                                    ? fmt::format("{}:{}: ", word(rule["file"]), rule["line"].get<uint64_t>())
                                    : "",
                                rule.contains("text") ? word(rule["text"]) + " " : "", rule.at("rule").get<uint64_t>());
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
          const std::string who = a.contains("neighbour") ? fmt::format("neighbour {}: ", word(a["neighbour"])) : "";
          t += a.at("destination").is_null()
                   ? fmt::format("  adjacency {}link-layer address not known, port {}\n", who, port)
                   : fmt::format("  adjacency {}{} <- {} port {}\n", who, word(a["destination"]), word(a.at("source")),
                                 port);
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

TraceControl::TraceControl(Engine& engine, std::shared_ptr<PacketTaps> taps)
    : engine_(engine), taps_(std::move(taps)) {}

void TraceControl::digest(LiveTables& tables) {
  if (order_ == nullptr) return;
  const auto through = order_->take();
  FollowedTexts texts(engine_.router(), tables, first_generation_, engine_.neighbours());
  for (const auto& packet : through) shown_.push_back({packet->number, texts.text(*packet)});
}

Json TraceControl::clear() {
  taps_->stop(Tap::kTrace);
  const size_t cleared = shown_.size();
  shown_.clear();
  order_.reset();
  asked_ = 0;
  filter_.clear();
  return {{"cleared", cleared}};
}

Result<Json> TraceControl::add(uint64_t packets, const std::string& filter) {
  if (engine_.by_packets())
    return Error("the packet scheduler runs this graph, and follows no packets",
                 "put Print elements into it, or run it without queues, timers and scripts");
  auto rules = parse_packet_filter(filter);
  if (!rules) return std::move(rules).error();
  shown_.clear();
  order_ = taps_->start(Tap::kTrace, std::move(*rules), packets, kMostBytes);
  asked_ = packets;
  filter_ = filter;
  return Json{{"asked", packets}, {"filter", filter}};
}

std::string TraceControl::show(size_t count) {
  const uint64_t followed = order_ == nullptr ? 0 : order_->followed();
  std::string json =
      fmt::format(R"({{"asked":{},"followed":{},"on_their_way":{},"missed":{},"filter":)", asked_, followed,
                  followed - std::min<uint64_t>(followed, shown_.size()), order_ == nullptr ? 0 : order_->missed());
  append_json(json, filter_);
  json += R"(,"packets":[)";
  std::sort(shown_.begin(), shown_.end(), [](const Shown& a, const Shown& b) { return a.number < b.number; });
  const size_t first = shown_.size() - std::min(shown_.size(), count);
  size_t bytes = json.size();
  for (size_t i = first; i < shown_.size(); ++i) bytes += shown_[i].json.size() + 1;
  json.reserve(bytes + 2);
  for (size_t i = first; i < shown_.size(); ++i) {
    if (i != first) json += ',';
    json += shown_[i].json;
  }
  json += "]}";
  return json;
}

namespace {
bool has_trace(const Control& c) {
  return c.trace != nullptr;
}
}  // namespace

std::vector<CommandRow> trace_commands() {
  using namespace fields;
  constexpr uint64_t kMost = TraceControl::kMostPackets;
  return {
      {.name = "show trace",
       .help = "The packets that 'sluice trace add' asked for: when and where each came in, its elements and their "
               "edits, the rule, route and adjacency that decided, what became of it, the generation of tables it met, "
               "and the worker or device.",
       .examples = "sluice show trace\nsluice show trace -o json --control /run/sluice/control",
       .fields = {number("count", 1, kMost, kMost).means("the last so many of the packets that are through")},
       .run_as_text = [](Control& c, Asked& asked) -> Result<std::string> {
         return c.trace->show(asked.number("count"));
       },
       .text = [](const Json& r, Rates*) { return printable(trace_text(r)); },
       .watched = true,
       .path = "trace",
       .there = has_trace},
      {.name = "trace",
       .help = "Follows packets through a running process: 'trace add' follows the next N that are received, 'show "
               "trace' shows the path of each and the reason of each drop, 'trace clear' ends it. Packets that are not "
               "followed cost nothing; at most 1,000 packets of 16 KiB are kept.",
       .examples = "sluice trace add 20 udp from any to any port 53\nsluice show trace\nsluice trace clear"},
      {.name = "trace add",
       .help = "Follows the next packets that are received and match. Earlier traces are forgotten.",
       .examples = "sluice trace add 10\n"
                   "sluice trace add 100 tcp from 10.0.0.0/8 to any port 443 --control /run/sluice/control",
       .fields = {number("packets", 1, kMost).needed().as("packets", "N", "How many packets, 1 to 1000"),
                  packet_filter()},
       .run = [](Control& c, Asked& asked) { return c.trace->add(asked.number("packets"), asked.text("filter")); },
       .text =
           [](const Json& r, Rates*) {
             return fmt::format("the next {} will be traced; see them with: sluice show trace\n",
                                counted(count_of(r, "asked"), "packet"));
           },
       .there = has_trace},
      {.name = "trace clear",
       .help = "Ends tracing and forgets the traced packets.",
       .examples = "sluice trace clear",
       .run = [](Control& c, Asked&) -> Result<Json> { return c.trace->clear(); },
       .text = [](const Json& r,
                  Rates*) { return fmt::format("{} forgotten\n", counted(count_of(r, "cleared"), "packet")); },
       .there = has_trace},
  };
}

}  // namespace sluice
