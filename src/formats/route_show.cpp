// host only
// What routers show of their routes: FRR's `show ip route`, BIRD's `show route`, `route -n` of net-tools and busybox.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "formats/route_record.h"
#include "net/text.h"

namespace sluice {
namespace {

// The lines of a text, each without its end, and the words of a line by blanks.
class ShownLines {
 public:
  explicit ShownLines(std::string_view text) : rest_(text) {}
  bool next(std::string_view& line) {
    if (rest_.empty()) return false;
    line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(rest_.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
  }

 private:
  std::string_view rest_;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}
// The next word of `line`, which is taken off; at its end an empty one.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  line.remove_prefix(word.size());
  return word;
}
std::string_view without_blanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  const size_t end = text.find_last_not_of(" \t");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

// Which table of several is read: the main one if it is there, else the first.
class ShownTables {
 public:
  void saw(std::string_view name, bool main) {
    if (main) {
      main_ = true;
    } else if (first_.empty()) {
      first_ = name;
    }
  }
  bool is_read(std::string_view name, bool main) const { return main_ ? main : name == first_; }

 private:
  std::string_view first_;
  bool main_ = false;
};

// --- FRR ---

// "VRF red:", "VRF default table 10:", "IPv4 unicast VRF default:" -> what stands behind VRF.
std::string_view vrf_of(std::string_view line) {
  const size_t at = line.find("VRF ");
  if (at == std::string_view::npos || !line.ends_with(':') || (at != 0 && !line.starts_with("IPv"))) return {};
  return line.substr(at + 4, line.size() - at - 5);
}

class FrrReader {
 public:
  explicit FrrReader(RouteSink& sink) : sink_(sink) {}

  void read() {
    std::string_view line;
    for (ShownLines lines(sink_.text()); lines.next(line);) {
      if (const std::string_view vrf = vrf_of(line); !vrf.empty()) tables_.saw(vrf, vrf == "default");
    }
    bool legend = false;
    for (ShownLines lines(sink_.text()); lines.next(line) && !sink_.full();) {
      if (is_blank(line) || line[0] == '#') {
        legend = false;
      } else if (line.starts_with("Codes:")) {
        legend = true;
      } else if (legend && line[0] == ' ') {
        continue;
      } else if (const std::string_view vrf = vrf_of(line); !vrf.empty()) {
        finish();
        read_ = tables_.is_read(vrf, vrf == "default");
      } else if (looks_like_frr_route(line)) {
        legend = false;
        finish();
        route(line);
      } else if (open_ && line.starts_with("   b")) {
        continue;  // a backup, which is not in use
      } else if (open_ && line.size() > 3 && line.starts_with("  ") && line[3] == ' ') {
        hop(line.substr(3), line[2] == '*');
      } else {
        const size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
        sink_.error(line.substr(begin), fmt::format("'{}' is not a line of routes", shown_word(line.substr(begin))),
                    "CODE>* PREFIX [DISTANCE/METRIC] via ADDRESS, NAME");
      }
    }
    finish();
  }

 private:
  void route(std::string_view line) {
    open_ = true;
    route_.clear();
    selected_ = line[1] == '>';
    const bool in_fib = line[2] == '*';
    if (line[0] == 'L') {
      route_.name = "local";
      route_.assigned = true;
    }
    std::string_view rest = line.substr(3);
    route_.where = route_.prefix = take_word(rest);
    route_.first = true;
    std::string_view behind = rest;
    std::string_view word = take_word(behind);
    if (word == "from") {
      if (!is_any_source(take_word(behind))) route_.skip = RouteSkip::kSource;
      rest = behind;
      word = take_word(behind);
    }
    if (word.starts_with('[')) rest = behind;
    hop(rest, in_fib);
  }

  // What stands behind the prefix, or on a line of its own: a next hop, and what is said of it.
  void hop(std::string_view rest, bool in_fib) {
    RouteHop hop;
    bool tunnel = false;
    const std::string_view all = without_blanks(rest);
    const auto item = [&] {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      return without_blanks(one);
    };
    const auto wrong = [&](std::string_view part) {
      sink_.error(part.empty() ? all : part, fmt::format("'{}' is not part of a next hop", shown_word(part)),
                  "via ADDRESS, NAME; is directly connected, NAME; or unreachable (REASON)");
    };
    std::string_view name;
    std::string_view words = item();
    const std::string_view how = words;
    const std::string_view key = take_word(words);
    if (key == "via") {
      hop.via = take_word(words);
      if (!parse_ip(hop.via)) return wrong(hop.via);
    } else if (how.starts_with("is directly connected") || how.starts_with("directly connected")) {
      words = {};
    } else if (key == "unreachable") {
      words = without_blanks(words);
      name = words == "(blackhole)"               ? "blackhole"
             : words == "(ICMP admin-prohibited)" ? "prohibit"
             : words.empty() || words[0] == '('   ? "unreachable"
                                                  : "";
      if (name.empty()) return wrong(words);
      words = {};
    } else {
      return wrong(how);
    }
    bool interface = false;  // or something that stands behind it
    for (;;) {
      // Behind an address and behind an interface.
      for (std::string_view word; !(word = take_word(words)).empty();) {
        if (word == "inactive" || word == "onlink" || word == "(recursive)") continue;
        if (word == "(duplicate" || word == "(vrf" || word == "(SVI:") {
          const size_t close = words.find(')');
          if (close == std::string_view::npos) return wrong(word);
          words.remove_prefix(close + 1);
          continue;
        }
        return wrong(word);
      }
      if (is_blank(rest)) break;
      words = item();
      const std::string_view one = words;
      const std::string_view first = take_word(words);
      if (first == "weight") {
        hop.weight = take_word(words);
      } else if (first == "label" || first.starts_with("seg6")) {
        tunnel |= without_blanks(words) != "implicit-null";
        words = {};
      } else if (first == "src" || first == "rmapsrc" || first == "backup") {
        words = {};
      } else if (!first.empty() && first[0] >= '0' && first[0] <= '9' &&
                 (interface || name.data() != nullptr || first.find(':') != std::string_view::npos)) {
        words = {};  // how long it has been there
      } else if (!interface && name.data() == nullptr && !first.empty()) {
        hop.dev = first;
      } else {
        return wrong(one);
      }
      interface = true;
    }
    if (!in_fib) return;
    if (tunnel && route_.skip == RouteSkip::kNo) route_.skip = RouteSkip::kTunnel;
    if (hop.via.empty() && hop.dev.empty() && name.empty()) return wrong(how);
    in_fib_ = true;
    if (name.empty()) {
      route_.hops.push_back(hop);
    } else if (route_.name.empty()) {
      route_.name = name;
      route_.assigned = true;
    }
  }

  void finish() {
    if (!open_) return;
    open_ = false;
    if (!in_fib_ || !selected_) route_.skip = RouteSkip::kUnused;
    if (!read_) route_.skip = RouteSkip::kTable;
    in_fib_ = false;
    sink_.take(route_);
  }

  RouteSink& sink_;
  ShownTables tables_;
  RouteRecord route_;
  bool open_ = false, selected_ = false, in_fib_ = false, read_ = true;
};

// --- BIRD ---

class BirdReader {
 public:
  explicit BirdReader(RouteSink& sink) : sink_(sink) {}

  void read() {
    std::string_view line;
    for (ShownLines lines(sink_.text()); lines.next(line);) {
      if (const std::string_view table = table_of(line); !table.empty()) tables_.saw(table, is_main(table));
    }
    for (ShownLines lines(sink_.text()); lines.next(line) && !sink_.full();) {
      if (is_blank(line) || line[0] == '#' || line.starts_with("BIRD ") || line == "Access restricted") continue;
      if (const std::string_view table = table_of(line); !table.empty()) {
        finish();
        read_ = tables_.is_read(table, is_main(table));
      } else if (!read_) {
        // Networks of other kinds than prefixes, too.
        if (line[0] != '\t') sink_.skip(RouteSkip::kTable, line.substr(0, line.find(' ')));
      } else if (line[0] == '\t') {
        detail(line);
      } else {
        finish();
        route(line);
      }
    }
    finish();
  }

 private:
  static std::string_view table_of(std::string_view line) {
    if (!line.starts_with("Table ") || !line.ends_with(':')) return {};
    return line.substr(6, line.size() - 7);
  }
  static bool is_main(std::string_view table) { return table == "master4" || table == "master6"; }

  // PREFIX [from PREFIX] TYPE [PROTOCOL TIME] [*|!] ...; without a prefix it is that of the line before.
  void route(std::string_view line) {
    std::string_view rest = line;
    route_.clear();
    broken_ = false;
    if (line[0] != ' ') network_ = take_word(rest), source_ = false;
    route_.where = route_.prefix = network_;
    route_.first = true;
    std::string_view type = take_word(rest);
    if (type == "from") {
      source_ = !is_any_source(take_word(rest));
      type = take_word(rest);
    }
    const size_t open = rest.find_first_not_of(" \t"), close = rest.find(']');
    route_.name = type == "prohibited" ? "prohibit" : is_dropping_type(type) ? type : "";
    if ((type != "unicast" && route_.name.empty()) || network_.empty() || open == std::string_view::npos ||
        rest[open] != '[' || close == std::string_view::npos) {
      sink_.error(line.substr(std::min(line.find_first_not_of(' '), line.size())),
                  fmt::format("'{}' is not a line of routes", shown_word(without_blanks(line))),
                  "PREFIX unicast|blackhole|unreachable|prohibited [PROTOCOL TIME] * (PREFERENCE)");
      broken_ = true;
      return;
    }
    route_.assigned = true;
    rest.remove_prefix(close + 1);
    // A '!' is the best one, which the kernel has refused.
    if (take_word(rest) != "*") {
      route_.skip = RouteSkip::kUnused;
    } else if (source_) {
      route_.skip = RouteSkip::kSource;
    }
    open_ = true;
  }

  // A next hop, or an attribute of `show route all`.
  void detail(std::string_view line) {
    std::string_view rest = line;
    const std::string_view key = take_word(rest);
    if (broken_) return;
    if (key != "via" && key != "dev") {
      if (line.starts_with("\t\t") || line.find(':') != std::string_view::npos) return;
      sink_.error(key, fmt::format("'{}' is not a part of a route", shown_word(without_blanks(line))),
                  "via ADDRESS on NAME, dev NAME, or ATTRIBUTE: VALUE");
      return;
    }
    RouteHop hop;
    std::string_view word = take_word(rest);
    const std::string_view address = word;
    if (key == "via") {
      hop.via = word;
      word = take_word(rest) == "on" ? take_word(rest) : std::string_view();
    }
    hop.dev = word;
    bool right = open_ && !hop.dev.empty() && (key == "dev" || parse_ip(address));
    while (right && !(word = take_word(rest)).empty()) {
      if (word == "weight") {
        hop.weight = take_word(rest);
      } else if (word == "mpls") {
        take_word(rest);
        if (route_.skip == RouteSkip::kNo) route_.skip = RouteSkip::kTunnel;
      } else if (word != "onlink") {
        right = false;
      }
    }
    if (!right) {
      sink_.error(word.empty() ? key : word, fmt::format("'{}' is not a next hop", shown_word(without_blanks(line))),
                  "via ADDRESS on NAME [onlink] [mpls LABELS] [weight N] or dev NAME");
      return;
    }
    route_.hops.push_back(hop);
  }

  void finish() {
    if (!open_) return;
    open_ = false;
    if (route_.skip == RouteSkip::kNo && route_.name.empty() && route_.hops.empty()) {
      sink_.error(route_.where, fmt::format("{} has no next hop", shown_word(route_.where)),
                  "a line of 'via' or 'dev'");
      return;
    }
    sink_.take(route_);
  }

  RouteSink& sink_;
  ShownTables tables_;
  RouteRecord route_;
  std::string_view network_;
  bool open_ = false, broken_ = false, source_ = false, read_ = true;
};

// --- net-tools ---

class NetToolsReader {
 public:
  explicit NetToolsReader(RouteSink& sink) : sink_(sink) {}

  void read() {
    std::string_view line;
    for (ShownLines lines(sink_.text()); lines.next(line) && !sink_.full();) {
      if (is_blank(line) || line[0] == '#' || line.starts_with("Kernel ")) continue;
      words_.clear();
      for (std::string_view rest = line, word; !(word = take_word(rest)).empty();) words_.push_back(word);
      if (words_[0] == "Destination") {
        head(line);
      } else if (columns_ == 0 || words_.size() != columns_) {
        sink_.error(line, "this is not a line of the table",
                    columns_ == 0 ? "the line 'Destination ...' above it" : fmt::format("{} columns", columns_));
      } else {
        route();
      }
    }
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  void head(std::string_view line) {
    six_ = line.find("Next Hop") != std::string_view::npos;
    std::vector<std::string_view> names = words_;
    if (six_) names.erase(std::find(names.begin(), names.end(), "Hop"));
    const auto column = [&](std::string_view a, std::string_view b) {
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i] == a || names[i] == b) return i;
      }
      return kNone;
    };
    columns_ = names.size();
    mask_ = column("Genmask", "Mask");
    flags_ = column("Flags", "Flag");
    metric_ = column("Metric", "Met");
    device_ = column("Iface", "If");
    if (flags_ == kNone || device_ == kNone || (six_ ? false : mask_ == kNone) || columns_ < 4) {
      sink_.error(line, "this table has other columns",
                  "Destination, Gateway, Genmask, Flags, Iface; or Destination, Next Hop, Flag, If");
      columns_ = 0;
    }
    if (six_) {
      sink_.warning(line, "'route -6' prints the routes of all tables and of all sources alike",
                    "ip -6 route tells them apart");
    }
  }

  void route() {
    const std::string_view flags = words_[flags_], device = words_[device_];
    route_.clear();
    route_.where = words_[0];
    route_.first = true;
    std::string prefix = words_[0] == "default" ? six_ ? "::/0" : "0.0.0.0" : std::string(words_[0]);
    if (six_ && prefix.starts_with("[")) {  // "[::]/0": as some write it
      prefix.erase(0, 1);
      prefix.erase(std::min(prefix.find(']'), prefix.size() - 1), 1);
    }
    if (!six_) {
      const auto mask = parse_ipv4(words_[mask_]);
      const auto length = mask ? static_cast<unsigned>(std::popcount(*mask)) : 0;
      if (!mask || *mask != high_mask32(length)) {
        sink_.error(words_[mask_], fmt::format("'{}' is not a mask", shown_word(words_[mask_])), "such as 255.255.0.0");
        return;
      }
      prefix += fmt::format("/{}", length);
    }
    const auto parsed = parse_prefix(prefix);
    if (!parsed || parsed->address.family != (six_ ? 6 : 4)) {
      sink_.error(words_[0], fmt::format("'{}' is not an address", shown_word(words_[0])),
                  "an address, as -n prints it");
      return;
    }
    route_.prefix = prefix;
    int64_t metric = 0;
    if (metric_ != kNone) {
      const std::string_view word = words_[metric_];
      const auto [stop, code] = std::from_chars(word.data(), word.data() + word.size(), metric);
      if (code != std::errc() || stop != word.data() + word.size() || metric < INT32_MIN || metric > UINT32_MAX) {
        sink_.error(word, fmt::format("'{}' is not a metric", shown_word(word)), "a number");
        return;
      }
      route_.metric = static_cast<uint32_t>(metric);  // -1 is how it prints 4294967295
    }
    const bool rejected = flags.find('!') != std::string_view::npos;
    RouteHop hop{.via = words_[1], .dev = device, .weight = {}};
    if (hop.via == "*" || hop.via == "-" || hop.via == "0.0.0.0" || hop.via == "::" || hop.via == "[::]") hop.via = {};
    if (six_ && rejected && metric == -1 && prefix == "::/0") {
      route_.skip = RouteSkip::kUnused;  // stands for no route at all
    } else if (six_ && parsed->address.hi >> 56 == 0xff) {
      route_.skip = RouteSkip::kUnused;  // multicast
    } else if (rejected) {
      route_.name = "unreachable";
    } else if (six_ && flags.find('n') != std::string_view::npos) {
      route_.name = "local";
    } else if (hop.via.empty() && flags.find('G') != std::string_view::npos) {
      Diagnostic& d = sink_.error(words_[1], "the gateway of this route is not printed: it is an IPv6 address",
                                  "the output of ip route");
      d.suggestion = "ip -4 route prints it as 'via inet6 ADDRESS'";
      return;
    } else if (!hop.via.empty() && !parse_ip(hop.via)) {
      sink_.error(hop.via, fmt::format("'{}' is not an address", shown_word(hop.via)), "an address, as -n prints it");
      return;
    } else if (hop.via.empty() && device == "*") {
      route_.name = "blackhole";
    } else {
      route_.hops.push_back(hop);
    }
    route_.assigned = !route_.name.empty();
    sink_.take(route_);
  }

  RouteSink& sink_;
  RouteRecord route_;
  std::vector<std::string_view> words_;
  size_t columns_ = 0, mask_ = kNone, flags_ = kNone, metric_ = kNone, device_ = kNone;
  bool six_ = false;
};

}  // namespace

bool looks_like_frr_route(std::string_view line) {
  if (line.size() < 5 || static_cast<unsigned>((line[0] | 0x20) - 'a') > 25 || (line[1] != ' ' && line[1] != '>'))
    return false;
  if (std::string_view(" *qrbto").find(line[2]) == std::string_view::npos || line[3] != ' ') return false;
  std::string_view rest = line.substr(3);
  return parse_prefix(take_word(rest)).has_value();
}
bool is_vrf_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return !vrf_of(line).empty();
}

void read_frr_routes(RouteSink& sink) {
  FrrReader(sink).read();
}
void read_bird_routes(RouteSink& sink) {
  BirdReader(sink).read();
}
void read_net_tools(RouteSink& sink) {
  NetToolsReader(sink).read();
}

}  // namespace sluice
