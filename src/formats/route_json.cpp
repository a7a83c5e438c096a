// host only
// Routes as JSON: `ip -j route`, and FRR's `show ip route json`.
#include <fmt/format.h>

#include <deque>
#include <string>
#include <string_view>

#include "formats/json_text.h"
#include "formats/route_record.h"

namespace sluice {
namespace {

using JsonKind = JsonValue::Kind;

class JsonRoutes {
 public:
  explicit JsonRoutes(RouteSink& sink) : sink_(sink) {}

  void read_ip() {
    const auto json = parse();
    if (!json) return;
    for (JsonValue v = json->root().first(); v; v = v.next()) sink_.saw(said(v["dst"]));
    for (JsonValue v = json->root().first(); v && !sink_.full(); v = v.next()) ip_route(v);
  }

  void read_frr() {
    const auto json = parse();
    if (!json) return;
    // With `vrf all` there is an object for each VRF.
    const JsonValue main = json->root()["default"];
    for (JsonValue v = json->root().first(); v && !sink_.full(); v = v.next()) {
      if (!v.is(JsonKind::kObject)) {
        frr_prefix(v, true);
        continue;
      }
      const bool read = main ? v.key() == "default" : v.at() == json->root().first().at();
      for (JsonValue p = v.first(); p && !sink_.full(); p = p.next()) frr_prefix(p, read);
    }
  }

 private:
  std::optional<JsonText> parse() {
    Diagnostics found({}, sink_.text());
    auto json = JsonText::parse(sink_.text(), found);
    for (Diagnostic d : found.all()) sink_.add(std::move(d));
    return json;
  }
  std::string_view place(const JsonValue& v) const { return sink_.text().substr(v.at(), v.length()); }

  // What a string or a number says; empty: it is neither.
  std::string_view said(const JsonValue& v) {
    if (v.is(JsonKind::kNumber)) return v.text();
    if (!v.is(JsonKind::kString)) return {};
    if (v.text().find('\\') == std::string_view::npos) return v.text();
    return decoded_.emplace_back(v.decoded());
  }
  static bool is_true(const JsonValue& v) { return v.is(JsonKind::kBool) && v.text() == "true"; }
  static bool has_flag(const JsonValue& flags, std::string_view flag) {
    for (JsonValue v = flags.first(); v; v = v.next()) {
      if (v.text() == flag) return true;
    }
    return false;
  }

  // Begins a record whose prefix is this. False: an error was reported.
  bool begin(const JsonValue& route, const char* key) {
    decoded_.clear();
    route_.clear();
    const JsonValue prefix = route[key];
    if (!prefix.is(JsonKind::kString)) {
      sink_.error(place(route).substr(0, 1), fmt::format("there is no '{}' here", key), "a route");
      return false;
    }
    route_.where = prefix.text();
    route_.prefix = said(prefix);
    route_.first = true;
    return true;
  }
  void take(const JsonValue& at) {
    if (route_.skip == RouteSkip::kNo && route_.name.empty() && route_.hops.empty()) {
      sink_.error(place(at).substr(0, 1), fmt::format("{} has no next hop", shown_word(route_.prefix)),
                  "a gateway or an interface");
      return;
    }
    sink_.take(route_);
  }

  // A next hop of `ip -j route`, which may be the route itself.
  void ip_hop(const JsonValue& v) {
    RouteHop hop;
    hop.via = said(v["gateway"]);
    if (const JsonValue via = v["via"]) {
      hop.via = said(via["host"]);
      hop.inet6 = via["family"].text() == "inet6";
    }
    hop.dev = said(v["dev"]);
    hop.weight = said(v["weight"]);
    if (v["encap"] && route_.skip == RouteSkip::kNo) route_.skip = RouteSkip::kTunnel;
    if (has_flag(v["flags"], "dead") || (hop.via.empty() && hop.dev.empty())) return;
    route_.hops.push_back(hop);
  }

  void ip_route(const JsonValue& v) {
    if (v.is(JsonKind::kObject) && !v.first()) return;  // ip leaves one where it shows nothing
    if (!begin(v, "dst")) return;
    const std::string_view said_type = said(v["type"]);
    const std::string_view type = said_type.empty() ? "unicast" : route_type(said_type);
    if (type.empty()) {
      sink_.error(place(v["type"]), fmt::format("'{}' is not a type of route", shown_word(said_type)),
                  "unicast, local, blackhole, ...");
      return;
    }
    if (const JsonValue metric = v["metric"]) {
      const auto n = metric.integer();
      if (!n || *n > UINT32_MAX) {
        sink_.error(place(metric), fmt::format("'{}' is not a metric", shown_word(metric.text())), "0 to 4294967295");
        return;
      }
      route_.metric = static_cast<uint32_t>(*n);
    }
    if (v["pref"] || said(v["protocol"]) == "ra") route_.family = 6;
    if (const std::string_view scope = said(v["scope"]); !scope.empty() && scope != "global" && scope != "0")
      route_.family = 4;
    if (const std::string_view from = said(v["from"]); !from.empty() && !is_any_source(from))
      route_.skip = RouteSkip::kSource;
    if (const std::string_view tos = said(v["tos"]); !tos.empty() && tos != "0x00" && tos != "0")
      route_.skip = RouteSkip::kTos;
    if (const JsonValue hops = v["nexthops"]) {
      for (JsonValue hop = hops.first(); hop; hop = hop.next()) ip_hop(hop);
      if (route_.hops.empty() && route_.skip == RouteSkip::kNo) route_.skip = RouteSkip::kUnused;  // all are dead
    } else {
      ip_hop(v);
    }
    const std::string_view table = said(v["table"]);
    if (is_other_type(type) || has_flag(v["flags"], "dead") || (!table.empty() && !is_used_route_table(table)))
      route_.skip = RouteSkip::kUnused;
    if (is_dropping_type(type)) route_.name = type;
    if (is_own_type(type)) route_.name = "local";
    route_.assigned = !route_.name.empty();
    take(v);
  }

  void frr_prefix(const JsonValue& routes, bool read) {
    if (!routes.is(JsonKind::kArray)) {
      sink_.error(place(routes), fmt::format("'{}' is not a list of routes", shown_word(routes.key())),
                  "PREFIX: [ROUTE, ...]");
      return;
    }
    for (JsonValue v = routes.first(); v && !sink_.full(); v = v.next()) {
      // Its key is the source where there is one, not the destination.
      if (!begin(v, "prefix")) return;
      if (const size_t from = route_.prefix.find(" from "); from != std::string_view::npos) {
        if (!is_any_source(route_.prefix.substr(from + 6))) route_.skip = RouteSkip::kSource;
        route_.prefix = route_.prefix.substr(0, from);
      }
      std::string_view name = said(v["protocol"]) == "local" ? "local" : "";
      bool in_fib = false;
      for (JsonValue h = v["nexthops"].first(); h; h = h.next()) {
        if (!is_true(h["fib"])) continue;
        in_fib = true;
        if (h["labels"] || h["seg6"] || h["seg6local"]) {
          if (route_.skip == RouteSkip::kNo) route_.skip = RouteSkip::kTunnel;
        }
        if (is_true(h["unreachable"])) {
          if (name.empty())
            name = is_true(h["blackhole"]) ? "blackhole" : is_true(h["admin-prohibited"]) ? "prohibit" : "unreachable";
          continue;
        }
        RouteHop hop{.via = said(h["ip"]), .dev = said(h["interfaceName"]), .weight = said(h["weight"])};
        if (!hop.via.empty() || !hop.dev.empty()) route_.hops.push_back(hop);
      }
      route_.name = name;
      route_.assigned = true;
      if (!in_fib || !is_true(v["selected"])) route_.skip = RouteSkip::kUnused;
      if (!read) route_.skip = RouteSkip::kTable;
      take(v);
    }
  }

  RouteSink& sink_;
  RouteRecord route_;
  std::deque<std::string> decoded_;
};

}  // namespace

void read_ip_json(RouteSink& sink) {
  JsonRoutes(sink).read_ip();
}
void read_frr_json(RouteSink& sink) {
  JsonRoutes(sink).read_frr();
}

}  // namespace sluice
