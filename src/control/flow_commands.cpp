// host only
// Connections of a running process: `show flows`, `clear flows`.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/flow_text.h"
#include "net/l4.h"
#include "net/text.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// Entries that are looked at while packets wait: a few milliseconds.
constexpr uint32_t kAtOnce = 1u << 15;

IpAddress address_of(const FlowEnds& ends, bool high) {
  IpAddress a;
  a.family = ends.family;
  a.hi = high ? ends.high_hi : ends.low_hi;
  a.lo = high ? ends.high_lo : ends.low_lo;
  return a;
}

std::string protocol_of(uint8_t number) {
  switch (number) {
    case kProtocolTcp:
      return "tcp";
    case kProtocolUdp:
      return "udp";
    case kProtocolIcmp:
      return "icmp";
    case kProtocolIcmpv6:
      return "icmp6";
    default:
      return fmt::format("{}", number);
  }
}

uint64_t bytes_of(const FlowEntry& e) {
  return e.bytes[0] + e.bytes[1];
}

Result<void> each_table(Control& c, const std::function<void(const Element&, FlowTable&)>& f) {
  return c.engine.with_ordered([&](const Element& element, Element::Ordered& ordered) {
    if (FlowTable* const table = ordered.connections(); table != nullptr) f(element, *table);
  });
}

struct Shown {
  FlowEntry entry;
  std::optional<FlowEntry> replies;
};

Result<Json> show_flows(Control& c, Asked& asked) {
  const uint64_t most = asked.number("count");
  Json tables = Json::array();
  std::vector<Shown> top;
  uint32_t slots = 0;
  auto done = each_table(c, [&](const Element& element, FlowTable& table) {
    const FlowTable::Counts& n = table.counts();
    slots = std::max(slots, table.slots());
    tables.push_back({{"element", element.name},
                      {"connections", table.size()},
                      {"capacity", table.capacity()},
                      {"opened", n.opened},
                      {"expired", n.expired},
                      {"refused", n.full}});
  });
  if (!done) return std::move(done).error();
  // The first of them, by bytes; packets go on between the parts.
  const auto more = [](const Shown& a, const Shown& b) { return bytes_of(a.entry) > bytes_of(b.entry); };
  for (uint32_t from = 0; from < slots; from += kAtOnce) {
    done = each_table(c, [&](const Element&, FlowTable& table) {
      table.each_of(from, kAtOnce, [&](const FlowEntry& e, const FlowEntry* replies) {
        top.push_back({e, replies != nullptr ? std::optional(*replies) : std::nullopt});
        if (top.size() < 2 * most + 1024) return;
        std::ranges::nth_element(top, top.begin() + static_cast<long>(most), more);
        top.resize(most);
      });
    });
    if (!done) return std::move(done).error();
  }
  std::ranges::sort(top, more);
  if (top.size() > most) top.resize(most);
  Json flows = Json::array();
  for (const Shown& s : top) flows.push_back(flow_json(s.entry, s.replies ? &*s.replies : nullptr));
  return Json{{"tables", tables}, {"flows", flows}};
}

Result<Json> clear_flows(Control& c, Asked&) {
  uint64_t ended = 0;
  auto done = each_table(c, [&](const Element&, FlowTable& table) {
    ended += table.size();
    table.clear();
  });
  if (!done) return std::move(done).error();
  return Json{{"ended", ended}};
}

std::string flows_text(const Json& r, Rates*) {
  if (r.at("tables").empty()) return "this graph tracks no connections: no rule looks at their state\n";
  TextTable tables({"element", "connections", "capacity", "opened", "expired", "refused"});
  for (const Json& t : r.at("tables")) {
    tables.add({word_of(t, "element"), with_commas(count_of(t, "connections")), with_commas(count_of(t, "capacity")),
                with_commas(count_of(t, "opened")), with_commas(count_of(t, "expired")),
                with_commas(count_of(t, "refused"))});
  }
  TextTable flows(
      {"protocol", "source", "destination", "translated", "packets", "reply", "bytes", "reply bytes", "state"});
  const auto end = [](const Json& f, const char* address, const char* port) {
    const std::string name = word_of(f, address);
    return fmt::format("{} {}", name, count_of(f, port));
  };
  for (const Json& f : r.at("flows")) {
    const auto both = [&](const char* what, size_t i) { return with_commas(f.at(what).at(i).get<uint64_t>()); };
    const std::string translated =
        f.contains("translated") ? end(f["translated"], "src", "sport") + " > " + end(f["translated"], "dst", "dport")
                                 : "";
    flows.add({word_of(f, "protocol"), end(f, "src", "sport"), end(f, "dst", "dport"), translated, both("packets", 0),
               both("packets", 1), both("bytes", 0), both("bytes", 1), word_of(f, "state")});
  }
  return tables.str() + (r.at("flows").empty() ? std::string() : "\n" + flows.str());
}

}  // namespace

Json flow_json(const FlowEntry& e, const FlowEntry* replies) {
  const bool tcp = e.ends.protocol == kProtocolTcp;
  const uint16_t low = e.ends.low_port, high = e.ends.high_port;
  Json json{{"protocol", protocol_of(e.ends.protocol)},
            {"src", to_string(address_of(e.ends, e.from_high))},
            {"sport", e.from_high ? high : low},
            {"dst", to_string(address_of(e.ends, !e.from_high))},
            {"dport", e.from_high ? low : high},
            {"packets", {e.packets[0], e.packets[1]}},
            {"bytes", {e.bytes[0], e.bytes[1]}},
            {"start", static_cast<double>(e.start_ns) / 1e9},
            {"end", static_cast<double>(e.last_ns) / 1e9},
            {"state", tcp ? to_string(e.tcp) : e.replied ? "replied" : "unreplied"}};
  if (replies == nullptr) return json;
  const FlowEnds& r = replies->ends;
  const bool high_sent = !replies->from_high;  // what replies go to is where packets come from
  json["translated"] = {{"src", to_string(address_of(r, high_sent))},
                        {"sport", high_sent ? r.high_port : r.low_port},
                        {"dst", to_string(address_of(r, !high_sent))},
                        {"dport", high_sent ? r.low_port : r.high_port}};
  return json;
}

std::vector<CommandRow> flow_commands() {
  using namespace fields;
  return {
      {.name = "show flows",
       .help = "Connections that a running process tracks: how many there are, and those with the most bytes.",
       .examples = "sluice show flows\nsluice show flows --count 100 -o json",
       .fields = {count(10'000, 100, 20, "Connections to show, 1 to 10000")},
       .run = show_flows,
       .text = flows_text,
       .watched = true,
       .path = "flows"},
      {.name = "clear flows",
       .help =
           "Ends all connections that a running process tracks: their next packets are judged as those of new ones.",
       .examples = "sluice clear flows",
       .run = clear_flows,
       .text = [](const Json& r,
                  Rates*) { return fmt::format("{} ended\n", counted(count_of(r, "ended"), "connection")); }},
  };
}

}  // namespace sluice
