#include "formats/route_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <tuple>

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

// An address that means something on its link alone (RFC 4291, RFC 3927): the interface belongs to the next hop.
bool is_link_local(std::string_view word) {
  // Most words are seen to be others without being read.
  if (word.empty() || ((word[0] | 0x20) != 'f' && !word.starts_with("169.254."))) return false;
  const auto address = parse_ip(word);
  if (!address) return false;
  return address->family == 6 ? address->hi >> 54 == 0x3fa : address->lo >> 16 == 0xa9fe;
}

class RouteTextParser {
 public:
  RouteTextParser(std::string_view text, const std::string& file, Rib& rib, std::vector<RankedRoute>* ranked)
      : text_(text), rib_(rib), findings_(file, text), out_(ranked) {}

  Result<RouteReport> parse() {
    const Rib::Mark mark = rib_.mark();
    const char* p = text_.data();
    const char* const end = p + text_.size();
    while (p != end && !full_) {
      const void* newline = std::memchr(p, '\n', static_cast<size_t>(end - p));
      const char* stop = newline != nullptr ? static_cast<const char*>(newline) : end;
      next_line_ = newline != nullptr ? stop + 1 : end;
      line(p, stop);
      p = next_line_;
    }
    if (!findings_.ok()) {
      rib_.rollback(mark);
      return findings_.to_error();
    }
    report_.warnings = findings_.all();
    if (out_ != nullptr) {
      out_->insert(out_->end(), ranked_.begin(), ranked_.end());
    } else if (!ranked_.empty()) {
      fold_ranked();
    }
    return std::move(report_);
  }

 private:
  void line(const char* p, const char* end) {
    while (p != end && is_separator(*p)) ++p;
    if (p == end || *p == '#') return;
    uint32_t address;
    uint8_t length;
    if (const char* rest = fast_prefix4(p, end, address, length);
        rest != nullptr && (address & ~high_mask32(length)) == 0) {
      const uint32_t next_hop = fast_next_hop(rest, end);
      if (next_hop != 0) {
        rib_.add4(address, length, next_hop);
        ++report_.routes4;
        return;
      }
    }
    uint64_t hi, lo;
    if (const char* rest = fast_prefix6(p, end, hi, lo, length);
        rest != nullptr && (hi & ~high_mask64(std::min<unsigned>(length, 64))) == 0 &&
        (lo & ~high_mask64(length > 64 ? length - 64u : 0)) == 0) {
      const uint32_t next_hop = fast_next_hop(rest, end);
      if (next_hop != 0) {
        rib_.add6(hi, lo, length, next_hop);
        ++report_.routes6;
        return;
      }
    }
    slow_line(p, end);
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

  size_t offset(std::string_view word) const { return static_cast<size_t>(word.data() - text_.data()); }

  Diagnostic& error(std::string_view word, std::string message) {
    return findings_.error_at(offset(word), word.size(), std::move(message));
  }

  static std::string_view next_word(const char*& p, const char* end) {
    while (p != end && is_separator(*p)) ++p;
    const char* begin = p;
    if (p != end && *p == '#') end = p;  // a comment: the empty word, here and from now on
    while (p != end && !is_separator(*p)) ++p;
    return {begin, static_cast<size_t>(p - begin)};
  }

  // The words that `ip route` puts before a prefix: those that are the next hop themselves, those of the host itself,
  // and those that no packet goes by here.
  static bool is_dropping_type(std::string_view word) {
    return word == "blackhole" || word == "unreachable" || word == "prohibit" || word == "throw";
  }
  static bool is_own_type(std::string_view word) { return word == "local" || word == "broadcast" || word == "anycast"; }
  static bool is_other_type(std::string_view word) { return word == "multicast" || word == "nat"; }
  static bool is_used_table(std::string_view word) {
    return word == "main" || word == "254" || word == "local" || word == "255";
  }
  static bool has_word(const char* p, const char* end, std::string_view wanted) {
    for (std::string_view word = next_word(p, end); !word.empty(); word = next_word(p, end)) {
      if (word == wanted) return true;
    }
    return false;
  }
  // Whether the line after this one goes on with `nexthop`.
  bool goes_on() const {
    const char* p = next_line_;
    const char* const end = text_.data() + text_.size();
    while (p != end && is_separator(*p)) ++p;
    constexpr std::string_view kWord = "nexthop";
    const auto left = static_cast<size_t>(end - p);
    return left > kWord.size() && std::string_view(p, kWord.size()) == kWord && is_separator(p[kWord.size()]);
  }

  // The members of a multipath route that a line names, added to `name`. False: an error was reported.
  bool members(const char* p, const char* end, std::string& name) {
    const char* q = p;
    std::string_view word = next_word(q, end);
    while (!word.empty()) {
      if (word != "nexthop") {
        word = next_word(q, end);
        continue;
      }
      const std::string_view begin = word;
      std::string_view hop, device, weight;
      bool dead = false;
      for (word = next_word(q, end); !word.empty() && word != "nexthop"; word = next_word(q, end)) {
        dead |= word == "dead";
        if (word == "via") {
          hop = next_word(q, end);
          if (hop == "inet6" || hop == "inet") hop = next_word(q, end);
        } else if (word == "dev") {
          device = next_word(q, end);
        } else if (word == "weight") {
          weight = next_word(q, end);
        }
      }
      if (hop.empty()) std::swap(hop, device);
      if (hop.empty()) {
        error(begin, "'nexthop' without a next hop").expected = "nexthop via ADDRESS dev NAME weight N";
        return false;
      }
      if (dead) continue;
      if (!name.empty()) name += '+';
      name += hop;
      if (!device.empty() && is_link_local(hop)) name.append("%").append(device);
      if (!weight.empty() && weight != "1") {
        name += '*';
        name += weight;
      }
      if (name.size() > 4 * kMaxName) break;  // refused by its length below
    }
    return true;
  }

  using PrefixKey = std::tuple<uint8_t, uint64_t, uint64_t, uint8_t>;
  static PrefixKey key_of(const IpPrefix& p) { return {p.address.family, p.address.hi, p.address.lo, p.length}; }

  // A line with a metric. Of equal ones the first stands; IPv6 gateways share the traffic, as the kernel has it, whose
  // older tools print a line for each.
  bool rank(const IpPrefix& prefix, std::string_view next_hop, uint32_t metric, bool gateway) {
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
    if (prefix.address.family != 6 || !gateway || !gateways_[at->second] || together.size() > kMaxName) {
      ++report_.skipped;
      return true;
    }
    const uint32_t id = rib_.intern(together);
    if (id != 0) first.next_hop = id;
    return id != 0;
  }
  void fold_ranked() {
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

  void slow_line(const char* p, const char* end) {
    const std::string_view first = next_word(p, end);
    std::string_view where = first;
    std::string_view next_hop;
    const char* const expected = "PREFIX NEXTHOP, PREFIX via NEXTHOP or PREFIX dev NAME";
    const bool dropping = is_dropping_type(first), own = is_own_type(first), other = is_other_type(first);
    if (dropping || own || other || first == "unicast") {
      where = next_word(p, end);
      if (where.empty()) {
        error(first, fmt::format("'{}' without a prefix", first)).expected = expected;
        return;
      }
    }
    uint32_t metric = 0;
    bool six = false;  // words that only `ip -6 route` prints: what `default` alone does not say
    bool unused = other, encapsulated = false;
    {
      const char* q = p;
      bool first_word = true;
      for (std::string_view w = next_word(q, end); !w.empty() && w != "nexthop"; w = next_word(q, end)) {
        // The first word may be a next hop of any name, where it is the only one, and so may what comes after `via` and
        // `dev`.
        const char* ahead = q;
        const bool key = w == "via" || w == "dev" || w == "proto" || w == "metric" || w == "table" || w == "encap";
        const bool name = first_word && (!key || next_word(ahead, end).empty());
        first_word = false;
        if (name) continue;
        if (w == "via" || w == "dev") next_word(q, end);
        if (w == "metric") {
          const std::string_view word = next_word(q, end);
          const auto [stop, code] = std::from_chars(word.data(), word.data() + word.size(), metric);
          if (code != std::errc() || stop != word.data() + word.size()) {
            error(word.empty() ? w : word, fmt::format("'{}' is not a metric", printable(word))).expected =
                "0 to 4294967295";
            return;
          }
        }
        if (w == "table") unused |= !is_used_table(next_word(q, end));
        unused |= w == "dead";
        encapsulated |= w == "encap";
        six |= w == "pref" || w == "hoplimit" || w == "error";
      }
    }
    std::string together;  // the name of a multipath route, or of an address and its interface
    bool gateway = false;
    std::string_view word = next_word(p, end);
    if (word == "nhid") {
      next_word(p, end);
      word = next_word(p, end);
    }
    const bool here = word == "nexthop" || (word != "via" && word != "dev" && has_word(p, end, "nexthop"));
    if (dropping) {
      next_hop = first;
    } else if (here || (word != "via" && word != "dev" && goes_on())) {
      const char* const line_begin = word.empty() ? end : word.data();
      encapsulated |= has_word(line_begin, end, "encap");
      if (!members(line_begin, end, together)) return;
      const char* const text_end = text_.data() + text_.size();
      while (goes_on()) {
        const void* newline = std::memchr(next_line_, '\n', static_cast<size_t>(text_end - next_line_));
        const char* const stop = newline != nullptr ? static_cast<const char*>(newline) : text_end;
        const char* const begin = next_line_;
        next_line_ = newline != nullptr ? stop + 1 : text_end;
        encapsulated |= has_word(begin, stop, "encap");
        if (!members(begin, stop, together)) return;
      }
      next_hop = together;
      unused |= together.empty();  // every member is dead
    } else if (word == "via" || word == "dev") {
      const std::string_view key = word;
      next_hop = next_word(p, end);
      gateway = key == "via";
      if (gateway && (next_hop == "inet6" || next_hop == "inet")) next_hop = next_word(p, end);
      if (next_hop.empty()) {
        error(key, fmt::format("'{}' without a next hop", key)).expected = expected;
        return;
      }
      // The rest of a line of `ip route` says nothing about where the packet goes once the next hop is known.
    } else if (!own && !other && !encapsulated) {
      next_hop = word;
      if (!next_hop.empty()) word = next_word(p, end);
      if (!next_hop.empty() && !word.empty() && word != "dev" && word != "metric") {
        error(word, fmt::format("unexpected '{}' after the next hop", printable(word))).expected = expected;
        return;
      }
    }
    if (together.empty() && is_link_local(next_hop)) {
      while (!word.empty() && word != "dev") word = next_word(p, end);
      if (const std::string_view device = next_word(p, end); word == "dev" && !device.empty())
        next_hop = together = fmt::format("{}%{}", next_hop, device);
    }
    IpPrefix prefix;
    bool host_bits = false;
    if (where == "default") {
      const std::string_view one = next_hop.substr(0, next_hop.find_first_of("+*%"));
      const bool six_hop = one.find(':') != std::string_view::npos && parse_ip(one);
      prefix.address.family = six_hop || six ? 6 : 4;
    } else if (auto parsed = parse_prefix(where, &host_bits)) {
      prefix = *parsed;
    } else {
      bad_prefix(where);
      return;
    }
    if (own) next_hop = "local";
    if (encapsulated && !unused) {
      findings_
          .warning_at(offset(where), where.size(), fmt::format("{} goes into a tunnel, which is not supported", where))
          .suggestion = "the route is skipped";
    }
    if (unused || encapsulated) {
      ++report_.skipped;
      return;
    }
    if (next_hop.empty()) {
      findings_.error_at(offset(where) + where.size(), 1, fmt::format("{} has no next hop", where)).expected = expected;
      return;
    }
    // Where to point: a name put together here stands nowhere in the text.
    const std::string_view at = together.empty() && !own ? next_hop : where;
    if (next_hop.size() > kMaxName) {
      error(at, fmt::format("a next hop of {} bytes", next_hop.size())).expected = "at most 255 bytes";
      return;
    }
    for (const char& c : next_hop) {
      if (c > ' ' && c < 0x7f) continue;
      error(together.empty() ? std::string_view(&c, 1) : where,
            fmt::format("byte 0x{:02x} in a next hop", static_cast<unsigned char>(c)))
          .expected = "printable ASCII";
      return;
    }
    const uint32_t id = metric == 0 ? rib_.intern(next_hop) : 0;
    if (metric == 0 ? id == 0 : !rank(prefix, next_hop, metric, gateway)) {
      error(at, fmt::format("more than {} different next hops", Rib::kMaxNextHops));
      full_ = true;  // every further line would say the same
      return;
    }
    if (host_bits) {
      Diagnostic& d = findings_.warning_at(offset(where), where.size(), fmt::format("{} has host bits set", where));
      d.suggestion = fmt::format("taken as {}", to_string(prefix));
    }
    if (metric != 0) return;  // it was counted
    rib_.add(prefix, id);
    ++(prefix.address.family == 4 ? report_.routes4 : report_.routes6);
  }

  static std::string printable(std::string_view word) {
    std::string out(word.substr(0, 64));
    for (char& c : out) {
      if (c < ' ' || c > '~') c = '?';
    }
    return out;
  }

  void bad_prefix(std::string_view where) {
    Diagnostic& d = error(where, fmt::format("'{}' is not a prefix", printable(where)));
    d.expected = "an IPv4 or IPv6 prefix, for example 192.0.2.0/24 or 2001:db8::/32";
    const size_t slash = where.find('/');
    const auto address = parse_ip(where.substr(0, slash));
    if (address && slash != std::string_view::npos) {
      d.message =
          fmt::format("'{}' is not a prefix length of IPv{}", printable(where.substr(slash + 1)), address->family);
      d.expected = address->family == 4 ? "0 to 32" : "0 to 128";
      // 10.0.0.0/255.0.0.0 is how older tools write it.
      const auto mask = parse_ipv4(where.substr(slash + 1));
      if (address->family == 4 && mask) {
        const auto length = static_cast<unsigned>(__builtin_popcount(*mask));
        if (*mask == high_mask32(length)) d.suggestion = fmt::format("write {}/{}", where.substr(0, slash), length);
      }
    }
  }

  std::string_view text_;
  Rib& rib_;
  Diagnostics findings_;
  RouteReport report_;
  const char* next_line_ = nullptr;
  std::vector<RankedRoute> ranked_, best_;
  std::vector<bool> gateways_;                               // of ranked_
  std::map<std::pair<PrefixKey, uint32_t>, size_t> places_;  // in ranked_
  std::vector<RankedRoute>* out_;
  bool full_ = false;
};

}  // namespace

Result<RouteReport> parse_routes(std::string_view text, const std::string& file, Rib& rib,
                                 std::vector<RankedRoute>* ranked) {
  return RouteTextParser(text, file, rib, ranked).parse();
}

}  // namespace sluice
