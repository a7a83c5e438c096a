// host only
// What packets are led by: `show routes`, `neighbours`, `adjacencies`; `why`.
#include <fmt/format.h>
#include <linux/neighbour.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "control/answer_text.h"
#include "control/command.h"
#include "control/command_text.h"
#include "control/control.h"
#include "control/route_report.h"
#include "control/why.h"
#include "exec/engine/live_ports.h"
#include "net/text.h"
#include "ports/netlink/link_watch.h"
#include "ports/netlink/neighbour_watch.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// As `ip neigh` writes it.
const char* state_text(uint16_t state) {
  constexpr std::pair<uint16_t, const char*> kStates[] = {
      {NUD_PERMANENT, "permanent"}, {NUD_NOARP, "noarp"}, {NUD_REACHABLE, "reachable"},   {NUD_STALE, "stale"},
      {NUD_DELAY, "delay"},         {NUD_PROBE, "probe"}, {NUD_INCOMPLETE, "incomplete"}, {NUD_FAILED, "failed"}};
  for (const auto& [bit, name] : kStates)
    if ((state & bit) != 0) return name;
  return "none";
}

// What `say` says of the routes of the table that is meant, and its name.
Result<Json> of_routes(Control& c, const std::string& asked,
                       const std::function<Result<Json>(const SourcedRib&, const std::string& table)>& say) {
  auto table = only_table(c.tables->tables().routes, "route table", asked);
  if (!table) return std::move(table).error();
  auto rib = c.tables->routes(*table);
  if (!rib) return std::move(rib).error();
  if (*rib == nullptr) {
    return Error(fmt::format("the route table '{}' is a compiled image: its routes are not known", *table),
                 "run with the route files");
  }
  auto said = say(**rib, *table);
  if (!said) return said;
  Json json{{"table", *table}};
  json.update(*said);
  return json;
}

Result<Json> show_routes(Control& c, Asked& asked) {
  const std::string &what = asked.text("for"), &prefix = asked.text("prefix"), &next_hop = asked.text("next_hop");
  const uint64_t from = asked.number("from"), count = asked.number("count");
  if (!what.empty() && (!prefix.empty() || !next_hop.empty()))
    return Error("an address is looked up alone", "leave the address out to list routes by prefix or next hop");
  return of_routes(c, asked.text("table"), [&](const SourcedRib& rib, const std::string& table) {
    return what.empty() ? list_routes(rib, prefix, next_hop, from, count)
                        : explain_routes(rib, c.tables->next_hops_of(table), what, from, count);
  });
}

std::string routes_text(const Json& r, Rates*) {
  return r.contains("for") ? route_explanation_text(r) : route_list_text(r);
}

// As the kernel has them at the interfaces of the run's live ports.
Result<Json> show_neighbours(Control& c, Asked& asked) {
  if (c.engine.live_ports() == nullptr)
    return Error("this run has no live port: its neighbours stand in its adjacency file", "sluice show adjacencies");
  auto links = LinkWatch::create();
  if (!links) return std::move(links).error();
  std::vector<int> indexes;
  for (const auto& [index, link] : (*links)->links()) {
    if (!c.engine.live_ports()->name_of(index).empty()) indexes.push_back(index);
  }
  std::vector<Neighbour> all;
  if (!indexes.empty()) {
    auto watch = NeighbourWatch::create(indexes);
    if (!watch) return std::move(watch).error();
    (*watch)->for_each([&all](const Neighbour& n) { all.push_back(n); });
  }
  std::sort(all.begin(), all.end(), [](const Neighbour& a, const Neighbour& b) {
    return std::tuple(a.ifindex, a.address.family, a.address.hi, a.address.lo) <
           std::tuple(b.ifindex, b.address.family, b.address.hi, b.address.lo);
  });
  const uint64_t from = asked.number("from"), count = asked.number("count");
  Json json{{"total", all.size()}, {"from", from}, {"neighbours", Json::array()}};
  for (size_t i = from - 1; i < all.size() && i - (from - 1) < count; ++i) {
    const Neighbour& n = all[i];
    const KernelLink* const link = (*links)->find(n.ifindex);
    json["neighbours"].push_back({{"address", to_string(n.address)},
                                  {"mac", n.usable() ? Json(to_string(n.mac)) : Json(nullptr)},
                                  {"interface", link == nullptr ? std::string() : link->name},
                                  {"state", state_text(n.state)}});
  }
  return json;
}

std::string neighbours_text(const Json& r, Rates*) {
  TextTable table({"address", "MAC", "interface", "state"});
  for (const Json& n : r.at("neighbours"))
    table.add({word_of(n, "address"), n.at("mac").is_null() ? "-" : word_of(n, "mac"), word_of(n, "interface"),
               word_of(n, "state")});
  if (table.empty()) return "the kernel knows no neighbour at an interface of this process\n";
  return table.str() + more_text(r, r.at("neighbours").size());
}

Result<Json> show_adjacencies(Control& c, Asked& asked) {
  auto table = only_table(c.tables->tables().adjacencies, "adjacency table", asked.text("table"));
  if (!table) return std::move(table).error();
  auto hops = c.tables->next_hops(*table);
  if (!hops) return std::move(hops).error();
  return list_next_hops({*table, *hops}, asked.number("from"), asked.number("count"));
}

// One packet, as hexadecimal bytes.
Result<Json> explain_packet(Control& c, Asked& asked) {
  constexpr size_t kMostBytes = 16384;
  auto bytes = parse_hex_bytes(asked.text("frame"), "frame");
  if (!bytes) return std::move(bytes).error();
  if (bytes->empty() || bytes->size() > kMostBytes) return Error(fmt::format("a packet has 1 to {} bytes", kMostBytes));
  Result<Json> said = Error();
  const auto explain = [&] {
    said = why(c.engine.router(), *c.tables, c.engine.neighbours(), *bytes, asked.text("in"), asked.number("near"));
  };
  if (c.engine.by_packets()) {
    // Its elements carry state from packet to packet.
    if (auto ok = c.engine.ask(explain); !ok) return std::move(ok).error();
  } else {
    explain();
  }
  if (said.ok()) (*said)["generation"] = c.engine.publisher().generation();
  return said;
}

}  // namespace

std::vector<CommandRow> route_commands() {
  using namespace fields;
  constexpr uint64_t kMost = uint64_t{1} << 28, kAtOnce = 1000;
  return {
      {.name = "show routes",
       .help = "The routes of a running process. With an address or a prefix: those that cover it, longest prefix "
               "first, the route of every source, which one is used and why, and its neighbours.",
       .examples = "sluice show routes\nsluice show routes 8.8.8.8\nsluice show routes --prefix 10.0.0.0/8 --from 51\n"
                   "sluice show routes --next-hop 10.0.0.1",
       .fields = {text("for", "").as("for", "ADDRESS|PREFIX",
                                     "An address or a prefix to look up (default: list the routes)"),
                  text("prefix", "").as("--prefix", "PREFIX", "List routes within this prefix").never_with({"for"}),
                  text("next_hop", "")
                      .as("--next-hop", "NEXTHOP", "List routes to this next hop, as it is written")
                      .never_with({"for"}),
                  text("table", "").as("--table", "NAME", "Which route table (default: the only one)"),
                  from(kMost, "route"), count(kAtOnce, kAtOnce, 50, "How many to show, 1 to 1000")},
       .run = show_routes,
       .text = routes_text,
       .watched = true,
       .path = "routes"},
      {.name = "show neighbours",
       .help = "The kernel's neighbours (ARP, ND) at the interfaces of a running process: addresses, MACs, states.",
       .examples = "sluice show neighbours\nsluice show neighbours -o json",
       .fields = {from(kMost, "neighbour"), count(kAtOnce, kAtOnce, 50, "How many to show, 1 to 1000")},
       .run = show_neighbours,
       .text = neighbours_text,
       .watched = true},
      {.name = "show adjacencies",
       .help = "The neighbours that the next hops of a running process lead to, and the source of their link-layer "
               "addresses: the adjacency file (static) or the kernel's neighbour table.",
       .examples = "sluice show adjacencies\nsluice show adjacencies --table adj -o json",
       .fields = {text("table", "").as("--table", "NAME", "Which adjacency table (default: the only one)"),
                  from(NextHopIds::kMost, "next hop"),
                  count(kAtOnce, kAtOnce, kAtOnce, "Next hops to show, 1 to 1000")},
       .run = show_adjacencies,
       .text = [](const Json& r, Rates*) { return next_hops_text(r); },
       .watched = true,
       .path = "adjacencies"},
      {.name = "why",
       .help =
           "Asks a running process what it would do with a packet, and why: the verdict, the rule that decides with "
           "its file and line, the rules that almost match, the route with its source, the neighbour, the output. "
           "Nothing is sent, and nothing counted. 'sluice explain' asks files.",
       .examples = "sluice why 'udp 10.0.0.1 > 10.0.0.2:53'\n"
                   "sluice why 'tcp 10.0.0.1:1234 > 192.0.2.7:443 flags S' --in eth0\n"
                   "sluice why 'icmp 2001:db8::1 > 2001:db8::2' -o json",
       .fields = {typed(CommandField::Type::kPacket, "frame")
                      .as("packet", "PACKET",
                          "PROTOCOL SRC[:PORT] > DST[:PORT], with tcp, udp, sctp, icmp or ip as the protocol, then "
                          "[flags SYN] [ttl N] [dscp N] [len N] [df] [frag N] [vlan N]"),
                  text("in", "").as("--in", "IF",
                                    "The input by which it comes in: an interface, or an element (default: the first)"),
                  number("near", 0, 100, 3).as("--near", "N", "Near misses to show").shows(3)},
       .run = explain_packet,
       .text = [](const Json& r, Rates*) { return why_text(r); }},
  };
}

}  // namespace sluice
