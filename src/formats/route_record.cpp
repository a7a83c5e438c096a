// host only
#include "formats/route_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "net/text.h"

namespace sluice {
namespace {

constexpr size_t kMaxHopName = 255;

// An address that means something on its link alone (RFC 4291, RFC 3927): the interface belongs to the next hop.
bool is_link_local(std::string_view word) {
  // Most words are seen to be others without being read.
  if (word.empty() || ((word[0] | 0x20) != 'f' && !word.starts_with("169.254."))) return false;
  const auto address = parse_ip(word);
  if (!address) return false;
  return address->family == 6 ? address->hi >> 54 == 0x3fa : address->lo >> 16 == 0xa9fe;
}

constexpr std::string_view kRouteTypes[] = {"unicast",   "local",       "broadcast", "anycast", "multicast",
                                            "blackhole", "unreachable", "prohibit",  "throw",   "nat"};

}  // namespace

std::string_view route_type(std::string_view word) {
  for (size_t i = 0; i < std::size(kRouteTypes); ++i) {
    if (word == kRouteTypes[i] || (word.size() <= 2 && word == std::to_string(i + 1))) return kRouteTypes[i];
  }
  return {};
}
bool is_dropping_type(std::string_view type) {
  return type == "blackhole" || type == "unreachable" || type == "prohibit" || type == "throw";
}
bool is_own_type(std::string_view type) {
  return type == "local" || type == "broadcast" || type == "anycast";
}
bool is_other_type(std::string_view type) {
  return type == "multicast" || type == "nat";
}
bool is_used_route_table(std::string_view table) {
  return table == "main" || table == "254" || table == "local" || table == "255";
}
bool is_any_source(std::string_view word) {
  return word == "all" || word == "any" || word == "default" || word == "::" || word == "::/0" || word == "0.0.0.0/0";
}
std::string shown_word(std::string_view word) {
  std::string out(word.substr(0, 64));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

RouteSink::RouteSink(std::string_view text, const std::string& file, Rib& rib, std::vector<RankedRoute>* ranked,
                     std::vector<RouteLine>* lines)
    : text_(text), file_(file), rib_(rib), mark_(rib.mark()), findings_(file, text), out_(ranked), lines_(lines) {}

Diagnostic& RouteSink::error(std::string_view word, std::string message, std::string expected) {
  Diagnostic& d = findings_.error_at(offset(word), word.size(), std::move(message));
  d.expected = std::move(expected);
  return d;
}

void RouteSink::warning(std::string_view word, std::string message, std::string suggestion) {
  Diagnostics one(file_, text_);
  Diagnostic d = one.warning_at(offset(word), word.size(), std::move(message));
  d.suggestion = std::move(suggestion);
  notes_.push_back(std::move(d));
}

void RouteSink::skip(RouteSkip why, std::string_view where) {
  ++report_.skipped;
  Skipped& s = skipped_[static_cast<size_t>(why)];
  if (s.count++ == 0) s.first = where;
}

Result<RouteReport> RouteSink::finish() {
  if (!findings_.ok()) {
    rib_.rollback(mark_);
    return findings_.to_error();
  }
  struct Reason {
    RouteSkip why;
    const char *which, *reason;
  };
  constexpr Reason kReasons[] = {
      {RouteSkip::kTunnel, "into a tunnel", "tunnels are not supported"},
      {RouteSkip::kSource, "for one source of packets ('from')", "routes by source are not supported"},
      {RouteSkip::kTos, "for one type of service ('tos')", "routes by type of service are not supported"},
      {RouteSkip::kTable, "of another table or VRF", "one table of a file is read"}};
  for (const auto& [why, which, reason] : kReasons) {
    const Skipped& s = skipped_[static_cast<size_t>(why)];
    if (s.count == 0) continue;
    const bool one = s.count == 1;
    warning(s.first,
            fmt::format("{} route{} {} {} left out: {}", s.count, one ? "" : "s", which, one ? "is" : "are", reason),
            one ? "" : "this is the first");
  }
  report_.warnings = std::move(notes_);
  for (const Diagnostic& d : findings_.all()) {
    if (report_.warnings.size() < Diagnostics::kLimit) report_.warnings.push_back(d);
  }
  if (out_ != nullptr) {
    out_->insert(out_->end(), ranked_.begin(), ranked_.end());
  } else if (!ranked_.empty()) {
    fold_ranked();
  }
  return std::move(report_);
}

// A route with a metric. Of equal ones the first stands; IPv6 gateways share the traffic, as the kernel has it, whose
// older tools print a line for each.
bool RouteSink::rank(const IpPrefix& prefix, std::string_view next_hop, uint32_t metric, bool gateway) {
  const auto [at, fresh] = places_.try_emplace({key_of(prefix), metric}, ranked_.size());
  if (fresh) {
    const uint32_t id = rib_.intern(next_hop);
    if (id != 0) ranked_.push_back({prefix, id, metric});
    gateways_.push_back(gateway);
    ++(prefix.address.family == 4 ? report_.routes4 : report_.routes6);
    return id != 0;
  }
  RankedRoute& first = ranked_[at->second];
  const std::string together = fmt::format("{}+{}", rib_.next_hop_name(first.next_hop), next_hop);
  if (prefix.address.family != 6 || !gateway || !gateways_[at->second] || together.size() > kMaxHopName) {
    ++report_.skipped;
    return true;
  }
  const uint32_t id = rib_.intern(together);
  if (id != 0) first.next_hop = id;
  return id != 0;
}

void RouteSink::fold_ranked() {
  rib_.settle();
  std::stable_sort(ranked_.begin(), ranked_.end(), [](const RankedRoute& a, const RankedRoute& b) {
    return std::tuple(key_of(a.prefix), a.metric) < std::tuple(key_of(b.prefix), b.metric);
  });
  for (size_t i = 0; i < ranked_.size(); ++i) {
    const RankedRoute& r = ranked_[i];
    const bool first = i == 0 || ranked_[i - 1].prefix != r.prefix;
    if (first && rib_.find(r.prefix) == 0) {
      best_.push_back(r);
    } else {
      ++report_.skipped;
      --(r.prefix.address.family == 4 ? report_.routes4 : report_.routes6);
    }
  }
  for (const RankedRoute& r : best_) rib_.add(r.prefix, r.next_hop);
}

void RouteSink::saw(std::string_view prefix) {
  looked_ = true;
  if (const auto parsed = parse_prefix(prefix)) (parsed->address.family == 4 ? has4_ : has6_) = true;
}

// Which families the prefixes of the text have, those called `default` aside.
void RouteSink::look_for_families() {
  if (looked_) return;
  looked_ = true;
  for (size_t at = 0; at < text_.size() && !(has4_ && has6_);) {
    const size_t end = std::min(text_.find('\n', at), text_.size());
    std::string_view line = text_.substr(at, end - at);
    at = end + 1;
    const auto word = [&] {
      line.remove_prefix(std::min(line.find_first_not_of(" \t,\r"), line.size()));
      const std::string_view w = line.substr(0, line.find_first_of(" \t,\r#"));
      line.remove_prefix(w.size());
      return w;
    };
    std::string_view first = word();
    if (!route_type(first).empty()) first = word();
    if (const auto prefix = parse_prefix(first)) (prefix->address.family == 4 ? has4_ : has6_) = true;
  }
}

// What `default` means is in the next hop, in a word that prints for one family alone, or in the other lines.
uint8_t RouteSink::family_of_default(const RouteRecord& route) {
  bool six = false;
  for (const RouteHop& hop : route.hops) {
    if (hop.inet6) return 4;
    const auto address = parse_ip(hop.via);
    if (address && address->family == 4) return 4;
    six |= address.has_value();
  }
  const std::string_view one = route.name.substr(0, route.name.find_first_of("+*%"));
  if (const auto address = parse_ip(one); address && address->family == 6) six = true;
  if (six) return 6;
  if (route.family != 0) return route.family;
  if (const auto address = parse_ip(one)) return address->family;
  look_for_families();
  if (!has6_) return 4;
  const uint8_t family = has4_ ? 4 : 6;
  findings_
      .warning_at(offset(route.where), route.where.size(),
                  "nothing here says of which family this 'default' is, and the file has IPv6 routes")
      .suggestion = fmt::format("taken as {}; write 0.0.0.0/0 or ::/0", family == 4 ? "0.0.0.0/0" : "::/0");
  return family;
}

void RouteSink::take(const RouteRecord& route) {
  taken_ = {};
  taken_.address.family = 0;
  // The next hop's name.
  std::string_view next_hop = route.name;
  bool gateway = false, put_together = false;
  if (next_hop.empty()) {
    together_.clear();
    for (const RouteHop& hop : route.hops) {
      const std::string_view one = hop.via.empty() ? hop.dev : hop.via;
      gateway |= !hop.via.empty();
      if (!together_.empty()) together_ += '+';
      together_ += one;
      if (!hop.via.empty() && !hop.dev.empty() && is_link_local(one)) together_.append("%").append(hop.dev);
      if (!hop.weight.empty() && hop.weight != "1") together_.append("*").append(hop.weight);
      if (together_.size() > 4 * kMaxHopName) break;  // refused by its length below
      next_hop = one;
    }
    put_together = route.hops.size() > 1 || together_ != next_hop;
    if (put_together) next_hop = together_;
  }
  IpPrefix prefix;
  bool host_bits = false;
  if (route.prefix == "default") {
    if (route.skip != RouteSkip::kNo) return skip(route.skip, route.where);
    prefix.address.family = family_of_default(route);
  } else if (const auto parsed = parse_prefix(route.prefix, &host_bits)) {
    prefix = *parsed;
  } else {
    return bad_prefix(route);
  }
  if (route.skip != RouteSkip::kNo) return skip(route.skip, route.where);
  const std::string_view at = put_together || route.assigned || !inside(next_hop) ? route.where : next_hop;
  if (next_hop.size() > kMaxHopName) {
    error(at, fmt::format("a next hop of {} bytes", next_hop.size()), "at most 255 bytes");
    return;
  }
  for (const char& c : next_hop) {
    if (c > ' ' && c < 0x7f && c != ',' && (c != '#' || &c != next_hop.data())) continue;
    error(at.data() == next_hop.data() ? std::string_view(&c, 1) : route.where,
          fmt::format("byte 0x{:02x} in a next hop", static_cast<unsigned char>(c)), "printable ASCII without commas");
    return;
  }
  const bool ranked = route.metric.value_or(0) != 0;
  if (!ranked && route.first && !places_.try_emplace({key_of(prefix), 0}, 0).second) {
    ++report_.skipped;
    taken_ = prefix;
    return;
  }
  const uint32_t id = ranked ? 0 : rib_.intern(next_hop);
  if (ranked ? !rank(prefix, next_hop, *route.metric, gateway) : id == 0) {
    error(at, fmt::format("more than {} different next hops", Rib::kMaxNextHops));
    full_ = true;  // every further line would say the same
    return;
  }
  if (host_bits) {
    findings_.warning_at(offset(route.where), route.where.size(), fmt::format("{} has host bits set", route.prefix))
        .suggestion = fmt::format("taken as {}", to_string(prefix));
  }
  taken_ = prefix;
  if (ranked) return;  // it was counted
  rib_.add(prefix, id);
  ++(prefix.address.family == 4 ? report_.routes4 : report_.routes6);
}

void RouteSink::bad_prefix(const RouteRecord& route) {
  const std::string_view word = route.prefix;
  Diagnostic& d = error(route.where, fmt::format("'{}' is not a prefix", shown_word(word)),
                        "an IPv4 or IPv6 prefix, for example 192.0.2.0/24 or 2001:db8::/32");
  const size_t slash = word.find('/');
  const auto address = parse_ip(word.substr(0, slash));
  if (!address || slash == std::string_view::npos) return;
  d.message = fmt::format("'{}' is not a prefix length of IPv{}", shown_word(word.substr(slash + 1)), address->family);
  d.expected = address->family == 4 ? "0 to 32" : "0 to 128";
  // 10.0.0.0/255.0.0.0 is how older tools write it.
  const auto mask = parse_ipv4(word.substr(slash + 1));
  if (address->family == 4 && mask) {
    const auto length = static_cast<unsigned>(__builtin_popcount(*mask));
    if (*mask == high_mask32(length)) d.suggestion = fmt::format("write {}/{}", word.substr(0, slash), length);
  }
}

}  // namespace sluice
