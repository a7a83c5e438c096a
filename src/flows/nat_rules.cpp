// host only
#include "flows/nat_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "net/l4.h"
#include "net/text.h"

namespace sluice {
namespace {

using Verb = NatRule::Verb;

struct NamedProtocol {
  std::string_view name;
  uint8_t number;
};
constexpr NamedProtocol kProtocols[] = {
    {"tcp", kProtocolTcp}, {"udp", kProtocolUdp}, {"icmp", kProtocolIcmp}, {"sctp", 132}, {"gre", 47}};

std::optional<uint32_t> number(std::string_view text, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::optional<uint8_t> protocol_of(std::string_view word) {
  for (const NamedProtocol& p : kProtocols) {
    if (p.name == word) return p.number;
  }
  if (const auto n = number(word, 255)) return static_cast<uint8_t>(*n);
  return std::nullopt;
}
std::string protocol_text(uint8_t number) {
  for (const NamedProtocol& p : kProtocols) {
    if (p.number == number) return std::string(p.name);
  }
  return fmt::format("{}", number);
}

std::optional<NatRule::Ports> ports_of(std::string_view word, uint32_t least) {
  const size_t dash = word.find('-');
  const auto low = number(word.substr(0, dash), 0xffff);
  const auto high = dash == std::string_view::npos ? low : number(word.substr(dash + 1), 0xffff);
  if (!low || !high || *low > *high || *low < least) return std::nullopt;
  return NatRule::Ports{static_cast<uint16_t>(*low), static_cast<uint16_t>(*high)};
}
std::string ports_text(const NatRule::Ports& p) {
  return p.low == p.high ? fmt::format("{}", p.low) : fmt::format("{}-{}", p.low, p.high);
}

uint32_t mask_of(unsigned length) {
  return length == 0 ? 0 : ~uint32_t{0} << (32 - length);
}
std::string address_text(uint32_t address) {
  return to_string(IpAddress{.lo = address, .family = 4});
}
std::string prefix_text(uint32_t address, uint32_t mask) {
  return mask == ~uint32_t{0} ? address_text(address)
                              : fmt::format("{}/{}", address_text(address), std::popcount(mask));
}

class Reader {
 public:
  explicit Reader(std::string_view line) {
    while (true) {
      const size_t begin = line.find_first_not_of(" \t\r");
      if (begin == std::string_view::npos) break;
      line.remove_prefix(begin);
      const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
      words_.push_back(line.substr(0, end));
      line.remove_prefix(end);
    }
  }

  Result<NatRule> rule() {
    const std::string_view verb = next();
    if (verb == "dnat") {
      rule_.verb = Verb::kDestination;
    } else if (verb == "snat") {
      rule_.verb = Verb::kSource;
    } else if (verb == "masquerade") {
      rule_.verb = Verb::kMasquerade;
    } else if (verb == "static") {
      rule_.verb = Verb::kBoth;
    } else {
      return Error(fmt::format("'{}' begins no rule", verb), "dnat, snat, masquerade or static");
    }
    Result<void> ok = rule_.verb == Verb::kBoth ? pair() : match();
    if (ok && rule_.verb != Verb::kMasquerade && rule_.verb != Verb::kBoth) ok = target();
    if (ok && (rule_.verb == Verb::kSource || rule_.verb == Verb::kMasquerade)) ok = options();
    if (!ok) return std::move(ok).error();
    if (!words_.empty() && at_ < words_.size()) return Error(fmt::format("'{}' is not understood here", peek()));
    return rule_;
  }

 private:
  std::string_view peek() const { return at_ < words_.size() ? words_[at_] : std::string_view(); }
  std::string_view next() { return at_ < words_.size() ? words_[at_++] : std::string_view(); }
  bool take(std::string_view word) {
    if (peek() != word) return false;
    ++at_;
    return true;
  }

  Result<NatRule::Addresses> addresses(std::string_view word) {
    NatRule::Addresses a;
    if (word.starts_with('!')) {
      a.negated = 1;
      word.remove_prefix(1);
    }
    bool host_bits = false;
    const auto prefix = parse_prefix(word, &host_bits);
    if (!prefix || prefix->address.family != 4)
      return Error(fmt::format("'{}' is no IPv4 address or prefix", word), "such as 10.0.0.0/8");
    if (host_bits) return Error(fmt::format("'{}' has bits behind its length", word), to_string(*prefix));
    a.address = static_cast<uint32_t>(prefix->address.lo);
    a.mask = mask_of(prefix->length);
    return a;
  }
  Result<void> ports(NatRule::Ports& to) {
    const auto p = ports_of(peek(), 0);
    if (!p) return Error(fmt::format("'{}' is no port", peek()), "N or LOW-HIGH, up to 65535");
    ++at_;
    to = *p;
    return {};
  }
  Result<void> side(NatRule::Addresses& to) {
    auto a = addresses(next());
    if (!a) return std::move(a).error();
    to = *a;
    return {};
  }
  static bool is_clause(std::string_view word) {
    constexpr std::string_view kClauses[] = {"src", "dst",   "sport",    "dport", "via",
                                             "to",  "ports", "per-host", "filter"};
    return word.empty() || std::ranges::find(kClauses, word) != std::end(kClauses);
  }
  Result<void> match() {
    const bool by_destination = rule_.verb == Verb::kDestination;
    Result<void> ok;
    if (peek().find('.') != std::string_view::npos) ok = side(by_destination ? rule_.destination : rule_.source);
    if (ok && !is_clause(peek())) {
      const auto protocol = protocol_of(peek());
      if (!protocol) return Error(fmt::format("'{}' is no protocol", peek()), "tcp, udp, icmp, sctp, gre or a number");
      rule_.any_protocol = 0;
      rule_.protocol = *protocol;
      ++at_;
      if (!is_clause(peek())) ok = ports(rule_.destination_ports);
    }
    while (ok) {
      if (take("src")) {
        ok = side(rule_.source);
      } else if (take("dst")) {
        ok = side(rule_.destination);
      } else if (take("sport")) {
        ok = ports(rule_.source_ports);
      } else if (take("dport")) {
        ok = ports(rule_.destination_ports);
      } else if (take("via")) {
        ok = via();
      } else {
        break;
      }
    }
    if (!ok) return ok;
    const bool ports_matter = !rule_.source_ports.any() || !rule_.destination_ports.any();
    const bool has_ports = !rule_.any_protocol &&
                           (rule_.protocol == kProtocolTcp || rule_.protocol == kProtocolUdp || rule_.protocol == 132);
    if (ports_matter && !has_ports) return Error("ports belong to a protocol that has some", "tcp, udp or sctp");
    if (rule_.verb == Verb::kMasquerade && rule_.via[0] == 0)
      return Error("masquerade needs an output", "masquerade via eth1");
    return {};
  }
  Result<void> via() {
    const std::string_view name = next();
    if (rule_.verb == Verb::kDestination) return Error("dnat acts before the output is known", "leave via out");
    // What a name of an interface may have, and a line with a comment can say.
    const bool said = std::ranges::all_of(name, [](char c) { return c > ' ' && c < 127 && c != '#'; });
    if (name.empty() || name.size() >= sizeof rule_.via || !said)
      return Error(fmt::format("'{}' is no output", name), "a port's number, or an interface's name");
    std::memcpy(rule_.via, name.data(), name.size());
    return {};
  }

  // What is behind `to`.
  Result<void> target() {
    if (!take("to")) return Error(fmt::format("'to' was expected, not '{}'", peek()), "to ADDRESS, or to itself");
    if (take("itself")) {
      rule_.itself = 1;
      return {};
    }
    std::string_view word = next();
    if (rule_.verb == Verb::kDestination) {
      if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
        const auto p = ports_of(word.substr(colon + 1), 1);
        if (!p) return Error(fmt::format("'{}' is no port", word.substr(colon + 1)), "N or LOW-HIGH, from 1");
        if (rule_.any_protocol || (rule_.protocol != kProtocolTcp && rule_.protocol != kProtocolUdp))
          return Error("only ports of tcp and udp are translated", "dnat ADDRESS tcp PORT to ADDRESS:PORT");
        rule_.to_ports = *p;
        word = word.substr(0, colon);
      }
    }
    return range(word);
  }
  Result<void> range(std::string_view word) {
    if (const size_t dash = word.find('-'); dash != std::string_view::npos) {
      const auto low = parse_ipv4(word.substr(0, dash)), high = parse_ipv4(word.substr(dash + 1));
      if (!low || !high || *low > *high) return Error(fmt::format("'{}' is no range of addresses", word), "A-B");
      rule_.to_low = *low;
      rule_.to_high = *high;
    } else {
      auto a = addresses(word);
      if (!a) return std::move(a).error();
      if (a->negated != 0) return Error(fmt::format("'{}' names no address", word));
      rule_.to_low = a->address;
      rule_.to_high = a->address | ~a->mask;
    }
    if (rule_.to_high - rule_.to_low > 0xffff) return Error("more than 65,536 addresses", "a smaller pool");
    if (rule_.to_low == 0) return Error("0.0.0.0 is nobody's address");
    return {};
  }
  Result<void> options() {
    while (true) {
      if (rule_.itself) return {};
      if (take("ports")) {
        const auto p = ports_of(peek(), 1);
        if (!p) return Error(fmt::format("'{}' are no ports", peek()), "LOW-HIGH, from 1 to 65535");
        rule_.to_ports = *p;
        ++at_;
      } else if (take("per-host")) {
        const auto n = number(peek(), 0xffff);
        if (!n || *n == 0) return Error(fmt::format("'{}' is no number of ports", peek()), "1 to 65535");
        rule_.per_host = *n;
        ++at_;
      } else if (take("filter")) {
        if (!take("any")) return Error(fmt::format("'{}' is no filter", peek()), "filter any");
        rule_.filter_any = 1;
      } else {
        return {};
      }
    }
  }
  // static INSIDE to OUTSIDE
  Result<void> pair() {
    auto inside = addresses(next());
    if (!inside) return std::move(inside).error();
    if (!take("to")) return Error(fmt::format("'to' was expected, not '{}'", peek()), "static INSIDE to OUTSIDE");
    auto outside = addresses(next());
    if (!outside) return std::move(outside).error();
    if (inside->mask != outside->mask || (inside->negated | outside->negated) != 0)
      return Error("static needs two addresses, or two prefixes of one length", "static 10.0.0.0/28 to 203.0.113.0/28");
    rule_.source = *inside;
    rule_.to_low = outside->address;
    rule_.to_high = outside->address | ~outside->mask;
    return {};
  }

  std::vector<std::string_view> words_;
  size_t at_ = 0;
  NatRule rule_;
};

std::string match_text(const NatRule& r) {
  const bool by_destination = r.verb == Verb::kDestination;
  const NatRule::Addresses &own = by_destination ? r.destination : r.source,
                           &other = by_destination ? r.source : r.destination;
  const auto side = [](const NatRule::Addresses& a) {
    return (a.negated != 0 ? "!" : "") + prefix_text(a.address, a.mask);
  };
  const auto any = [](const NatRule::Addresses& a) { return a.mask == 0 && a.negated == 0; };
  std::string t;
  if (!any(own) && own.negated == 0) t += " " + side(own);
  if (!r.any_protocol) t += " " + protocol_text(r.protocol);
  if (!r.destination_ports.any()) t += " " + ports_text(r.destination_ports);
  if (own.negated != 0) t += (by_destination ? " dst " : " src ") + side(own);
  if (!any(other)) t += (by_destination ? " src " : " dst ") + side(other);
  if (!r.source_ports.any()) t += " sport " + ports_text(r.source_ports);
  if (r.via[0] != 0) t += fmt::format(" via {}", r.via);
  return t;
}

}  // namespace

Result<NatRule> parse_nat_rule(std::string_view line) {
  return Reader(line).rule();
}

std::string to_string(const NatRule& r) {
  if (r.verb == Verb::kBoth)
    return fmt::format("static {} to {}", prefix_text(r.source.address, r.source.mask),
                       prefix_text(r.to_low, r.source.mask));
  std::string t = r.verb == Verb::kDestination ? "dnat" : r.verb == Verb::kSource ? "snat" : "masquerade";
  t += match_text(r);
  if (r.itself) return t + " to itself";
  if (r.verb != Verb::kMasquerade) {
    t += " to " + address_text(r.to_low);
    if (r.to_high != r.to_low) t += "-" + address_text(r.to_high);
  }
  if (r.verb == Verb::kDestination) {
    if (!r.to_ports.any()) t += ":" + ports_text(r.to_ports);
    return t;
  }
  if (!r.to_ports.any()) t += " ports " + ports_text(r.to_ports);
  if (r.per_host != 0) t += fmt::format(" per-host {}", r.per_host);
  if (r.filter_any) t += " filter any";
  return t;
}

}  // namespace sluice
