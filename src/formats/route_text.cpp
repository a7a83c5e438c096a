#include "formats/route_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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

class RouteTextParser {
 public:
  RouteTextParser(std::string_view text, const std::string& file, Rib& rib)
      : text_(text), rib_(rib), findings_(file, text) {}

  Result<RouteReport> parse() {
    const Rib::Mark mark = rib_.mark();
    const char* p = text_.data();
    const char* const end = p + text_.size();
    while (p != end && !full_) {
      const void* newline = std::memchr(p, '\n', static_cast<size_t>(end - p));
      const char* stop = newline != nullptr ? static_cast<const char*>(newline) : end;
      line(p, stop);
      p = newline != nullptr ? stop + 1 : end;
    }
    if (!findings_.ok()) {
      rib_.rollback(mark);
      return findings_.to_error();
    }
    report_.warnings = findings_.all();
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

  // The words that `ip route` puts before a prefix.
  static bool is_route_type(std::string_view word) {
    static constexpr std::string_view kTypes[] = {"blackhole", "unreachable", "prohibit",  "throw",   "unicast",
                                                  "local",     "broadcast",   "multicast", "anycast", "nat"};
    return std::find(std::begin(kTypes), std::end(kTypes), word) != std::end(kTypes);
  }

  void slow_line(const char* p, const char* end) {
    const std::string_view where = next_word(p, end);
    std::string_view next_hop;
    std::string_view word = next_word(p, end);
    const char* const expected = "PREFIX NEXTHOP, PREFIX via NEXTHOP or PREFIX dev NAME";
    if (is_route_type(where)) {
      Diagnostic& d = error(where, fmt::format("routes of the type '{}' are not understood", where));
      d.expected = expected;
      if (!word.empty() && (where == "blackhole" || where == "unreachable" || where == "prohibit")) {
        d.suggestion = fmt::format(
            "write '{} blackhole' to drop its packets; an adjacency file, where there is one, says 'blackhole drop'",
            printable(word));
      }
      return;
    }
    if (word == "via" || word == "dev") {
      const std::string_view key = word;
      next_hop = next_word(p, end);
      if (next_hop.empty()) {
        error(key, fmt::format("'{}' without a next hop", key)).expected = expected;
        return;
      }
      // The rest of a line of `ip route` says nothing about where the packet goes once the next hop is known.
    } else {
      next_hop = word;
      if (!next_hop.empty()) word = next_word(p, end);
      if (!next_hop.empty() && !word.empty() && word != "dev") {
        error(word, fmt::format("unexpected '{}' after the next hop", printable(word))).expected = expected;
        return;
      }
    }
    IpPrefix prefix;
    bool host_bits = false;
    if (where == "default") {
      prefix.address.family = next_hop.find(':') != std::string_view::npos && parse_ip(next_hop) ? 6 : 4;
    } else if (auto parsed = parse_prefix(where, &host_bits)) {
      prefix = *parsed;
    } else {
      bad_prefix(where);
      return;
    }
    if (next_hop.empty()) {
      findings_.error_at(offset(where) + where.size(), 1, fmt::format("{} has no next hop", where)).expected = expected;
      return;
    }
    if (next_hop.size() > kMaxName) {
      error(next_hop, fmt::format("a next hop of {} bytes", next_hop.size())).expected = "at most 255 bytes";
      return;
    }
    for (const char& c : next_hop) {
      if (c > ' ' && c < 0x7f) continue;
      error({&c, 1}, fmt::format("byte 0x{:02x} in a next hop", static_cast<unsigned char>(c))).expected =
          "printable ASCII";
      return;
    }
    const uint32_t id = rib_.intern(next_hop);
    if (id == 0) {
      error(next_hop, fmt::format("more than {} different next hops", Rib::kMaxNextHops));
      full_ = true;  // every further line would say the same
      return;
    }
    if (host_bits) {
      Diagnostic& d = findings_.warning_at(offset(where), where.size(), fmt::format("{} has host bits set", where));
      d.suggestion = fmt::format("taken as {}", to_string(prefix));
    }
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
  bool full_ = false;
};

}  // namespace

Result<RouteReport> parse_routes(std::string_view text, const std::string& file, Rib& rib) {
  return RouteTextParser(text, file, rib).parse();
}

}  // namespace sluice
