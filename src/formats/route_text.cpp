#include "formats/route_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "formats/route_record.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr size_t kMaxName = 255;

bool is_separator(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

// Both fast parsers take the plain forms only and return nullptr for anything else, right or wrong: parse_prefix
// decides those. On success they return the byte after the prefix.
const char* fast_prefix4(const char* p, const char* end, uint32_t& address, uint8_t& length) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    if (p == end) return nullptr;
    unsigned octet = static_cast<unsigned>(*p++ - '0');
    if (octet > 9) return nullptr;
    for (int k = 0; k < 2 && p != end; ++k) {
      const unsigned digit = static_cast<unsigned>(*p - '0');
      if (digit > 9) break;
      if (octet == 0) return nullptr;
      octet = octet * 10 + digit;
      ++p;
    }
    if (octet > 255 || p == end || *p != (i < 3 ? '.' : '/')) return nullptr;
    ++p;
    value = value << 8 | octet;
  }
  if (p == end) return nullptr;
  unsigned bits = static_cast<unsigned>(*p++ - '0');
  if (bits > 9) return nullptr;
  if (p != end && static_cast<unsigned>(*p - '0') <= 9) {
    if (bits == 0) return nullptr;
    bits = bits * 10 + static_cast<unsigned>(*p++ - '0');
  }
  if (bits > 32 || p == end || !is_separator(*p)) return nullptr;
  address = value;
  length = static_cast<uint8_t>(bits);
  return p;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// Groups, one "::" which ends the address: 2001:db8::/32, the form of almost every route.
const char* fast_prefix6(const char* p, const char* end, uint64_t& hi, uint64_t& lo, uint8_t& length) {
  uint64_t words[2] = {0, 0};
  unsigned groups = 0;
  for (;;) {
    unsigned group = 0;
    int digits = 0;
    for (; digits < 4 && p != end; ++digits, ++p) {
      const int d = hex_digit(*p);
      if (d < 0) break;
      group = group << 4 | static_cast<unsigned>(d);
    }
    if (digits == 0 || groups == 8 || end - p < 2) return nullptr;
    words[groups / 4] |= uint64_t{group} << (48 - 16 * (groups % 4));
    ++groups;
    if (*p == '/' && groups == 8) break;
    if (*p != ':') return nullptr;
    ++p;
    if (*p == ':') {
      ++p;
      if (groups == 8 || p == end || *p != '/') return nullptr;
      break;
    }
  }
  ++p;  // the '/'
  unsigned bits = 0;
  int digits = 0;
  for (; digits < 3 && p != end && static_cast<unsigned>(*p - '0') <= 9; ++digits, ++p) {
    if (digits > 0 && bits == 0) return nullptr;
    bits = bits * 10 + static_cast<unsigned>(*p - '0');
  }
  if (digits == 0 || bits > 128 || p == end || !is_separator(*p)) return nullptr;
  hi = words[0];
  lo = words[1];
  length = static_cast<uint8_t>(bits);
  return p;
}

// Lines of text: PREFIX NEXTHOP, and what `ip route` prints.
class RouteTextParser {
 public:
  explicit RouteTextParser(RouteSink& sink) : sink_(sink), text_(sink.text()), rib_(sink.rib()) {}

  void parse() {
    const char* p = text_.data();
    const char* const end = p + text_.size();
    while (p != end && !sink_.full()) {
      const void* newline = std::memchr(p, '\n', static_cast<size_t>(end - p));
      const char* stop = newline != nullptr ? static_cast<const char*>(newline) : end;
      next_line_ = newline != nullptr ? stop + 1 : end;
      line(p, stop);
      p = next_line_;
    }
  }

 private:
  void line(const char* p, const char* end) {
    const char* const begin = p;
    while (p != end && is_separator(*p)) ++p;
    if (p == end || *p == '#') return;
    uint32_t address;
    uint8_t length;
    if (const char* rest = fast_prefix4(p, end, address, length);
        rest != nullptr && (address & ~high_mask32(length)) == 0) {
      const uint32_t next_hop = fast_next_hop(rest, end);
      if (next_hop != 0) {
        sink_.add4(address, length, next_hop);
        sink_.note_line({{0, address, 4}, length}, offset(begin), offset(next_line_));
        return;
      }
    }
    uint64_t hi, lo;
    if (const char* rest = fast_prefix6(p, end, hi, lo, length);
        rest != nullptr && (hi & ~high_mask64(std::min<unsigned>(length, 64))) == 0 &&
        (lo & ~high_mask64(length > 64 ? length - 64u : 0)) == 0) {
      const uint32_t next_hop = fast_next_hop(rest, end);
      if (next_hop != 0) {
        sink_.add6(hi, lo, length, next_hop);
        sink_.note_line({{hi, lo, 6}, length}, offset(begin), offset(next_line_));
        return;
      }
    }
    slow_line(p, end);
    if (sink_.taken().address.family != 0 && taken_) sink_.note_line(sink_.taken(), offset(begin), offset(next_line_));
  }

  // The id of the one plain word that ends the line, or 0 where there is anything more to it.
  uint32_t fast_next_hop(const char* p, const char* end) {
    while (p != end && is_separator(*p)) ++p;
    const char* begin = p;
    while (p != end && *p > ' ' && *p < 0x7f && *p != ',' && *p != '#') ++p;
    const std::string_view name(begin, static_cast<size_t>(p - begin));
    while (p != end && is_separator(*p)) ++p;
    if (p != end || name.empty() || name.size() > kMaxName || name == "via" || name == "dev") return 0;
    return rib_.intern(name);
  }

  size_t offset(const char* p) const { return static_cast<size_t>(p - text_.data()); }

  static std::string_view next_word(const char*& p, const char* end) {
    while (p != end && is_separator(*p)) ++p;
    const char* begin = p;
    if (p != end && *p == '#') end = p;  // a comment: the empty word, here and from now on
    while (p != end && !is_separator(*p)) ++p;
    return {begin, static_cast<size_t>(p - begin)};
  }

  static bool has_word(const char* p, const char* end, std::string_view wanted) {
    for (std::string_view word = next_word(p, end); !word.empty(); word = next_word(p, end)) {
      if (word == wanted) return true;
    }
    return false;
  }
  static bool has_more(const char* p, const char* end) { return !next_word(p, end).empty(); }
  // Whether the next line begins with this word and goes on.
  bool next_begins(std::string_view wanted) const {
    const char* p = next_line_;
    const char* const end = text_.data() + text_.size();
    while (p != end && is_separator(*p)) ++p;
    const auto left = static_cast<size_t>(end - p);
    return left > wanted.size() && std::string_view(p, wanted.size()) == wanted &&
           (is_separator(p[wanted.size()]) || (p[wanted.size()] == '\n' && wanted == "cache"));
  }
  // The next line, which is taken with this one.
  std::string_view take_next_line() {
    const char* const begin = next_line_;
    const char* const text_end = text_.data() + text_.size();
    const void* newline = std::memchr(begin, '\n', static_cast<size_t>(text_end - begin));
    const char* const stop = newline != nullptr ? static_cast<const char*>(newline) : text_end;
    next_line_ = newline != nullptr ? stop + 1 : text_end;
    return {begin, static_cast<size_t>(stop - begin)};
  }
  // `ip -d route` says of a route's next hop object what the route says, `ip route get` that the route is a cached one.
  void skip_details() {
    while (next_begins("nh_info") || next_begins("cache")) take_next_line();
  }
  // Whether the line after this one goes on with `nexthop`.
  bool goes_on() {
    while (next_begins("nh_info")) {
      const char* const begin = next_line_;
      const std::string_view line = take_next_line();
      if (!has_word(line.data(), line.data() + line.size(), "nexthop")) continue;
      next_line_ = begin;  // with -o it begins the line of the members
      return true;
    }
    return next_begins("nexthop");
  }

  // What stands behind `via`: "inet6 ADDRESS" or "ADDRESS", which words are taken. False: an error was reported.
  bool gateway(const char*& q, const char* end, RouteHop& hop) {
    hop.via = next_word(q, end);
    hop.inet6 = hop.via == "inet6";
    const bool inet = hop.via == "inet";
    if (hop.inet6 || inet) hop.via = next_word(q, end);
    if (inet && route_.prefix == "default") {
      sink_.error(hop.via.empty() ? route_.where : hop.via, "'default' over 'inet' may be of either family",
                  "0.0.0.0/0 or ::/0");
      return false;
    }
    return true;
  }

  // The members of a multipath route that a line names. False: an error was reported.
  bool members(const char* p, const char* end) {
    const char* q = p;
    std::string_view word = next_word(q, end);
    while (!word.empty()) {
      if (word != "nexthop") {
        word = next_word(q, end);
        continue;
      }
      const std::string_view begin = word;
      RouteHop hop;
      bool dead = false;
      for (word = next_word(q, end); !word.empty() && word != "nexthop"; word = next_word(q, end)) {
        dead |= word == "dead";
        if (word == "encap") route_.skip = RouteSkip::kTunnel;
        if (word == "pref") route_.family = 6;
        if (word == "via") {
          if (!gateway(q, end, hop)) return false;
        } else if (word == "dev") {
          hop.dev = next_word(q, end);
        } else if (word == "weight") {
          hop.weight = next_word(q, end);
        }
      }
      if (hop.via.empty() && hop.dev.empty()) {
        sink_.error(begin, "'nexthop' without a next hop", "nexthop via ADDRESS dev NAME weight N");
        return false;
      }
      if (!dead) route_.hops.push_back(hop);
    }
    return true;
  }

  // Reads the words of `ip route` behind the prefix, and of a multipath route those before its members. False: an error
  // was reported.
  bool keys(const char* q, const char* end) {
    bool first_word = true;
    for (std::string_view w = next_word(q, end); !w.empty() && w != "nexthop" && w != "nh_info";
         w = next_word(q, end)) {
      // The first word may be a next hop of any name, where it is the only one, and so may what comes after `via` and
      // `dev`.
      const char* ahead = q;
      const std::string_view value = next_word(ahead, end);
      const bool key = w == "via" || w == "dev" || w == "proto" || w == "metric" || w == "table" || w == "encap" ||
                       w == "from" || w == "tos" || w == "dsfield";
      const bool name = first_word && (!key || value.empty());
      first_word = false;
      if (name) continue;
      if (w == "via" || w == "dev" || w == "src") q = ahead;
      if (w == "via" && (value == "inet6" || value == "inet")) next_word(q, end);
      if (w == "dev") route_.first = true;
      if (w == "metric") {
        q = ahead;
        uint32_t metric = 0;
        const auto [stop, code] = std::from_chars(value.data(), value.data() + value.size(), metric);
        if (code != std::errc() || stop != value.data() + value.size()) {
          sink_.error(value.empty() ? w : value, fmt::format("'{}' is not a metric", shown_word(value)),
                      "0 to 4294967295");
          return false;
        }
        route_.metric = metric;
      }
      const auto skip = [&](RouteSkip why) {
        if (route_.skip != RouteSkip::kUnused) route_.skip = why;
      };
      if (w == "table") {
        q = ahead;
        if (!is_used_route_table(value)) skip(RouteSkip::kUnused);
      }
      if (w == "dead") skip(RouteSkip::kUnused);
      if (w == "encap") skip(RouteSkip::kTunnel);
      if (w == "from" && !is_any_source(value)) skip(RouteSkip::kSource);
      if ((w == "tos" || w == "dsfield") && value != "0x00" && value != "0") skip(RouteSkip::kTos);
      // What `default` alone does not say: words that `ip -6 route` or `ip -4 route` alone prints.
      if (w == "pref" || w == "hoplimit" || w == "error" || (w == "proto" && value == "ra")) route_.family = 6;
      if (w == "scope" && value != "global" && value != "0") route_.family = 4;
      if (w == "src") {
        if (const auto source = parse_ip(value)) route_.family = source->family;
      }
    }
    return true;
  }

  // Whether there is no prefix, which is reported then.
  bool wrong_prefix() {
    if (route_.prefix == "default" || parse_prefix(route_.prefix)) return false;
    route_.skip = RouteSkip::kNo;
    sink_.take(route_);
    return true;
  }

  // Hands the line, and those that belong to it, to the sink, or reports what is wrong with it.
  void slow_line(const char* p, const char* end) {
    taken_ = false;
    route_.clear();
    std::string_view where = next_word(p, end);
    const std::string_view first = where;
    const char* const expected = "PREFIX NEXTHOP, PREFIX via NEXTHOP or PREFIX dev NAME";
    const std::string_view type = route_type(first);
    const bool dropping = is_dropping_type(type), own = is_own_type(type), other = is_other_type(type);
    if (!type.empty()) {
      where = next_word(p, end);
      if (where.empty()) {
        sink_.error(first, fmt::format("'{}' without a prefix", first), expected);
        return;
      }
      route_.first = true;
    }
    route_.where = route_.prefix = where;
    if (other) route_.skip = RouteSkip::kUnused;
    if (!keys(p, end)) return;
    std::string_view word = next_word(p, end);
    // Pairs of words that stand before the next hop.
    for (const char* ahead = p; word == "nhid" || word == "from" || word == "tos" || word == "dsfield"; ahead = p) {
      if (next_word(ahead, end).empty()) break;
      p = ahead;
      word = next_word(p, end);
    }
    const bool here =
        (word == "nexthop" && has_more(p, end)) || (word != "via" && word != "dev" && has_word(p, end, "nexthop"));
    if (dropping) {
      route_.name = type;
      route_.assigned = type != first;
    } else if (here || (word != "via" && word != "dev" && goes_on())) {
      route_.first = true;
      if (!members(word.empty() ? end : word.data(), end)) return;
      while (goes_on()) {
        const std::string_view next = take_next_line();
        if (!members(next.data(), next.data() + next.size())) return;
      }
      if (route_.hops.empty()) route_.skip = RouteSkip::kUnused;  // every member is dead
    } else if (word == "via" || word == "dev") {
      RouteHop hop;
      const std::string_view key = word;
      if (key == "dev") {
        hop.dev = next_word(p, end);
      } else {
        if (!gateway(p, end, hop)) return;
        find_device(p, end, hop);
      }
      if (hop.via.empty() && (hop.dev.empty() || key == "via")) {
        sink_.error(key, fmt::format("'{}' without a next hop", key), expected);
        return;
      }
      // The rest of a line of `ip route` says nothing about where the packet goes once the next hop is known.
      route_.hops.push_back(hop);
    } else if (!own && !other && route_.skip != RouteSkip::kTunnel) {
      RouteHop hop{.via = word, .dev = {}, .weight = {}};
      if (!word.empty()) word = next_word(p, end);
      if (!word.empty() && word != "dev" && word != "metric") {
        if (!wrong_prefix())
          sink_.error(word, fmt::format("unexpected '{}' after the next hop", shown_word(word)), expected);
        return;
      }
      if (word == "dev") {
        hop.dev = next_word(p, end);
      } else {
        find_device(p, end, hop);
      }
      if (hop.dev.empty()) {
        route_.name = hop.via;
      } else {
        route_.hops.push_back(hop);
      }
    }
    if (own) {
      route_.name = "local";
      route_.assigned = true;
    }
    if (route_.skip == RouteSkip::kNo && route_.name.empty() && route_.hops.empty()) {
      if (wrong_prefix()) return;
      sink_.error({where.data() + where.size(), 1}, fmt::format("{} has no next hop", where), expected);
      return;
    }
    skip_details();
    sink_.take(route_);
    taken_ = true;
  }

  // The interface of an address: that of `dev` further on in the line.
  static void find_device(const char* p, const char* end, RouteHop& hop) {
    for (std::string_view word = next_word(p, end); !word.empty() && word != "nh_info"; word = next_word(p, end)) {
      if (word != "dev") continue;
      hop.dev = next_word(p, end);
      return;
    }
  }

  RouteSink& sink_;
  const std::string_view text_;
  Rib& rib_;
  const char* next_line_ = nullptr;
  RouteRecord route_;
  bool taken_ = false;
};

// The first line of a text that says something.
std::string_view first_line_of(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t begin = line.find_first_not_of(" \t\r,");
    if (begin != std::string_view::npos && line[begin] != '#') return line;
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

}  // namespace

RouteFormat detect_route_format(std::string_view text) {
  std::string_view line = first_line_of(text);
  if (looks_like_frr_route(line) || line.starts_with("Codes:")) return RouteFormat::kFrr;
  line.remove_prefix(std::min(line.find_first_not_of(" \t\r,"), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  if (line.starts_with('[')) return RouteFormat::kIpJson;
  if (line.starts_with('{')) return RouteFormat::kFrrJson;
  if (word == "Kernel" || word == "Destination") return RouteFormat::kNetTools;
  if (word == "BIRD" || word == "Table") return RouteFormat::kBird;
  if (is_vrf_line(line)) return RouteFormat::kFrr;
  return RouteFormat::kLines;
}

const char* to_string(RouteFormat format) {
  constexpr const char* kNames[] = {
      "lines", "ip -j route", "FRR's show ip route json", "FRR's show ip route", "BIRD's show route", "route -n"};
  return kNames[static_cast<size_t>(format)];
}

Result<RouteReport> parse_routes(std::string_view text, const std::string& file, Rib& rib,
                                 std::vector<RankedRoute>* ranked) {
  RouteSink sink(text, file, rib, ranked);
  switch (detect_route_format(text)) {
    case RouteFormat::kLines:
      RouteTextParser(sink).parse();
      break;
    case RouteFormat::kIpJson:
      read_ip_json(sink);
      break;
    case RouteFormat::kFrrJson:
      read_frr_json(sink);
      break;
    case RouteFormat::kFrr:
      read_frr_routes(sink);
      break;
    case RouteFormat::kBird:
      read_bird_routes(sink);
      break;
    case RouteFormat::kNetTools:
      read_net_tools(sink);
      break;
  }
  return sink.finish();
}

Result<RouteReport> parse_route_lines(std::string_view text, const std::string& file, Rib& rib,
                                      std::vector<RankedRoute>* ranked, std::vector<RouteLine>* lines) {
  RouteSink sink(text, file, rib, ranked, lines);
  RouteTextParser(sink).parse();
  return sink.finish();
}

}  // namespace sluice
