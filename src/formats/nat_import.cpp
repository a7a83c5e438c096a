// host only
#include "formats/nat_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "formats/iptables_words.h"
#include "formats/json_text.h"
#include "formats/names.h"
#include "formats/rule_files.h"
#include "formats/scanner.h"
#include "net/text.h"
#include "tables/acl/region.h"

namespace sluice {
namespace {

constexpr size_t kMaxNatLines = size_t{1} << 18;
constexpr size_t kMaxNatMembers = 65536;
constexpr const char* kNoIpv6 = "IPv6 is not translated";
constexpr const char* kNoRedirect = "redirect goes to the router itself";
constexpr const char* kNoInput = "the input is not known to NAT rules";
constexpr const char* kNatPort = "a port, 1..65535, or a range";

// Addresses, ports or protocols from low to high.
struct NatSpan {
  uint32_t low = 0, high = 0;
};

std::string nat_span_text(const NatSpan& s) {
  return s.low == s.high ? fmt::format("{}", s.low) : fmt::format("{}-{}", s.low, s.high);
}
std::string nat_addresses_text(const NatSpan& s) {
  const std::string low = to_string(IpAddress{0, s.low, 4});
  return s.low == s.high ? low : low + "-" + to_string(IpAddress{0, s.high, 4});
}
std::string nat_prefix_text(const IpPrefix& p) {
  return p.length == 32 ? to_string(p.address) : to_string(p);
}

bool has_nat_ports(uint32_t protocol) {
  return protocol == 6 || protocol == 17 || protocol == 132;
}
std::string nat_protocol_text(uint32_t protocol) {
  switch (protocol) {
    case 1:
      return "icmp";
    case 6:
      return "tcp";
    case 17:
      return "udp";
    case 132:
      return "sctp";
    default:
      return fmt::format("{}", protocol);
  }
}

// The name of an interface that the native language takes as one, where `wildcard` at its end would stand for several.
bool is_nat_interface(std::string_view name, char wildcard) {
  if (name.empty() || name.size() > 15 || name.back() == wildcard) return false;
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (std::all_of(name.begin(), name.end(), digit)) return false;  // the number of an output
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c > ' ' && c < 127 && std::string_view("#\"'\\/:!,").find(c) == std::string_view::npos;
  });
}

// One rule of another program, and what it becomes.
struct NatDraft {
  enum class Action : uint8_t { kNone, kItself, kDnat, kSnat, kMasquerade };
  struct Side {
    bool given = false, negated = false;
    std::vector<IpPrefix> prefixes;
  };

  bool destination = false;  // of a chain that translates destinations
  Side src, dst;
  std::optional<std::vector<uint32_t>> protocols;
  std::optional<std::vector<NatSpan>> src_ports, dst_ports;
  std::optional<std::vector<std::string>> outputs;
  Action action = Action::kNone;
  std::string to;                // addresses
  std::optional<NatSpan> ports;  // to translate to

  // Each says what is wrong, or nothing.
  static std::string add_side(Side& side, const std::vector<NatSpan>& values, bool negated);
  static std::string add_ports(std::optional<std::vector<NatSpan>>& ports, std::vector<NatSpan> values);
  std::string add_protocols(const std::vector<NatSpan>& values);
  std::string add_outputs(std::vector<std::string> names);
  std::string problem() const;
  // The alternatives of each part of a line.
  std::vector<std::vector<std::string>> parts() const;
};

std::string NatDraft::add_side(Side& side, const std::vector<NatSpan>& values, bool negated) {
  if (side.given) return "the rule looks at one address twice";
  side.given = true;
  side.negated = negated;
  for (const NatSpan& v : values) {
    for (const IpPrefix& p : prefixes_of_range(IpAddress{0, v.low, 4}, IpAddress{0, v.high, 4})) {
      side.prefixes.push_back(p);
      if (side.prefixes.size() > kMaxNatLines) return fmt::format("more than {} prefixes", kMaxNatLines);
    }
  }
  if (negated && side.prefixes.size() != 1) return "a NAT rule can except one prefix only";
  return {};
}

std::string NatDraft::add_ports(std::optional<std::vector<NatSpan>>& ports, std::vector<NatSpan> values) {
  if (ports) return "the rule looks at one port twice";
  ports = std::move(values);
  return {};
}

std::string NatDraft::add_protocols(const std::vector<NatSpan>& values) {
  std::vector<uint32_t> both;
  for (uint32_t p = 1; p < 256; ++p) {
    const bool now = std::any_of(values.begin(), values.end(), [&](NatSpan v) { return v.low <= p && p <= v.high; });
    const bool before = !protocols || std::find(protocols->begin(), protocols->end(), p) != protocols->end();
    if (now && before) both.push_back(p);
  }
  protocols = std::move(both);
  return protocols->empty() ? "no packet has this protocol" : "";
}

std::string NatDraft::add_outputs(std::vector<std::string> names) {
  if (destination) return "the output is not known before the packet is routed";
  if (outputs) return "the rule looks at the output twice";
  outputs = std::move(names);
  return {};
}

std::string NatDraft::problem() const {
  const bool ported = protocols && std::all_of(protocols->begin(), protocols->end(), has_nat_ports);
  if ((src_ports || dst_ports) && !ported) return "the rule looks at ports of packets that may have none";
  if (ports && !ported) return "the rule translates ports of packets that may have none";
  if (action == Action::kMasquerade && !outputs) return "masquerade without the output whose address it takes";
  return {};
}

std::vector<std::vector<std::string>> NatDraft::parts() const {
  std::vector<std::vector<std::string>> all;
  auto add = [&](const auto& values, auto text) {
    all.emplace_back();
    for (const auto& v : values) all.back().push_back(text(v));
  };
  auto side = [&](const Side& s, const std::string& word) {
    if (!s.given) return;
    add(s.prefixes, [&](const IpPrefix& p) { return word + (s.negated ? "!" : "") + nat_prefix_text(p); });
  };
  all.push_back({destination ? "dnat" : action == Action::kMasquerade ? "masquerade" : "snat"});
  const Side& own = destination ? dst : src;
  if (!own.negated) side(own, " ");
  if (protocols) add(*protocols, [](uint32_t p) { return " " + nat_protocol_text(p); });
  if (dst_ports) add(*dst_ports, [](const NatSpan& s) { return " " + nat_span_text(s); });
  if (own.negated) side(own, destination ? " dst " : " src ");
  side(destination ? src : dst, destination ? " src " : " dst ");
  if (src_ports) add(*src_ports, [](const NatSpan& s) { return " sport " + nat_span_text(s); });
  if (outputs) add(*outputs, [](const std::string& name) { return " via " + name; });
  return all;
}

// What both readers share: findings and the lines that come out.
class ForeignNat {
 protected:
  ForeignNat(std::string_view text, const std::string& file_name)
      : text_(text), file_(printable_columns(file_name)), found_(file_name, text) {
    for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1))
      newlines_.push_back(at);
  }

  bool fail(size_t at, size_t length, std::string message, std::string expected, std::string suggestion = {}) {
    Diagnostic& d = found_.error_at(at, std::min<size_t>(length, 200), std::move(message));
    d.expected = std::move(expected);
    d.suggestion = std::move(suggestion);
    return false;
  }
  bool enough() const { return found_.error_count() > Diagnostics::kLimit; }

  size_t line_of(size_t at) const {
    return 1 + static_cast<size_t>(std::lower_bound(newlines_.begin(), newlines_.end(), at) - newlines_.begin());
  }
  void warn(size_t at, std::string_view message) {
    if (warnings_.size() < Diagnostics::kLimit)
      warnings_.push_back(fmt::format("{}:{}: {}", file_, line_of(at), printable(message)));
  }
  void warn_once(size_t at, const std::string& message) {
    if (said_.insert(message).second) warn(at, message);
  }
  void warn_log(size_t at) { warn_once(at, "log is left out: NAT rules do not log"); }
  void warn_option(size_t at, std::string_view option) {
    warn_once(at, fmt::format("{} is left out: how a port or an address is chosen is not said", option));
  }

  // Writes the lines of a rule that stands there.
  bool write(const NatDraft& d, size_t at, size_t length) {
    using Action = NatDraft::Action;
    if (d.action == Action::kNone) return true;
    if (const std::string problem = d.problem(); !problem.empty()) {
      return fail(at, length, problem,
                  d.action == Action::kMasquerade && !d.outputs ? "one output" : "a match of tcp, udp or sctp");
    }
    std::vector<std::string> lines(1);
    for (const std::vector<std::string>& part : d.parts()) {
      if (part.size() * lines.size() > kMaxNatLines - lines_)
        return fail(at, length, fmt::format("the rules make more than {} lines", kMaxNatLines), "smaller sets");
      std::vector<std::string> longer;
      for (const std::string& line : lines) {
        for (const std::string& alternative : part) longer.push_back(line + alternative);
      }
      lines = std::move(longer);
    }
    std::string end;
    if (d.action == Action::kItself) end = " to itself";
    if (d.action == Action::kDnat || d.action == Action::kSnat) end = " to " + d.to;
    if (d.action == Action::kDnat && d.ports) end += ":" + nat_span_text(*d.ports);
    if (d.action != Action::kDnat && d.ports) end += fmt::format(" ports {}-{}", d.ports->low, d.ports->high);
    lines_ += lines.size();
    for (const std::string& line : lines) out_ += fmt::format("{}{} # {}:{}\n", line, end, file_, line_of(at));
    return true;
  }

  Result<std::string> finish(std::vector<std::string>* warnings) {
    if (warnings != nullptr) {
      warnings->insert(warnings->end(), warnings_.begin(), warnings_.end());
    } else {
      for (const std::string& w : warnings_) SLUICE_LOG(kWarning, "{}", w);
    }
    if (!found_.ok()) return found_.to_error();
    return std::move(out_);
  }

  std::string_view text_;
  std::string file_;
  Diagnostics found_;
  std::string out_;

 private:
  std::vector<size_t> newlines_;  // where each stands
  std::vector<std::string> warnings_;
  std::set<std::string> said_;  // by warn_once
  size_t lines_ = 0;
};

// ---- nft -----------------------------------------------------------------------------------------------------------
class NftNat : ForeignNat {
 public:
  NftNat(std::string_view text, const std::string& file_name) : ForeignNat(text, file_name) {}

  Result<std::string> run(std::vector<std::string>* warnings) {
    json_ = JsonText::parse(text_, found_);
    if (json_ && collect()) {
      std::vector<size_t> list = choose();
      // Destinations first, each in the order in which the kernel asks.
      std::stable_sort(list.begin(), list.end(), [&](size_t a, size_t b) {
        const Chain &x = chains_[a], &y = chains_[b];
        return x.destination != y.destination ? x.destination : x.priority < y.priority;
      });
      for (size_t i = 0; i < list.size() && !enough(); ++i) {
        const Chain& c = chains_[list[i]];
        next_ =
            i + 1 < list.size() && chains_[list[i + 1]].destination == c.destination ? &chains_[list[i + 1]] : nullptr;
        if (next_ != nullptr && next_->priority == c.priority) same_priority(c);
        for (JsonValue rule : c.rules) {
          if (!enough()) read_rule(c, rule);
        }
      }
    }
    return finish(warnings);
  }

 private:
  using Kind = JsonValue::Kind;
  using Action = NatDraft::Action;
  enum class Field : uint8_t { kAddress, kPort, kProtocol };

  struct Chain {
    std::string family, table, name;
    JsonValue declared;
    bool nat = false, destination = false;
    int priority = 0;
    std::vector<JsonValue> rules;
    std::string title() const { return table + "/" + name; }
  };

  // A rule while it is read.
  struct Reading {
    NatDraft draft;
    JsonValue rule;
    bool inet = false, only_ipv4 = false, only_ipv6 = false;
  };

  bool fail(JsonValue at, std::string message, std::string expected, std::string suggestion = {}) {
    return ForeignNat::fail(at.at(), at.length(), std::move(message), std::move(expected), std::move(suggestion));
  }
  // Names the value as it stands.
  bool not_understood(JsonValue v, std::string_view what, std::string expected) {
    const std::string_view whole = text_.substr(v.at(), v.length());
    return fail(v, fmt::format("{}{} is not {}", whole.substr(0, 60), whole.size() > 60 ? "..." : "", what),
                std::move(expected));
  }
  // What a step of NatDraft found.
  bool good(JsonValue at, const std::string& problem, const char* expected) {
    return problem.empty() || fail(at, problem, expected);
  }

  static std::string nat_name(std::string_view family, std::string_view table, std::string_view name) {
    return fmt::format("{}/{}/{}", family, table, name);
  }

  // ---- chains ------------------------------------------------------------------------------------------------------
  bool collect() {
    const JsonValue list = json_->root()["nftables"];
    if (!list.is(Kind::kArray))
      return fail(json_->root(), "there is no list \"nftables\"", "the output of `nft -j list ruleset`");
    std::vector<JsonValue> rules;
    for (JsonValue entry = list.first(); entry && !enough(); entry = entry.next()) {
      const JsonValue object = entry.only();
      const std::string_view family = object["family"].text(), table = object["table"].text(),
                             name = object["name"].text();
      if (object.key() == "chain") {
        if (!index_.emplace(nat_name(family, table, name), chains_.size()).second) {
          fail(object, fmt::format("chain '{}' is declared twice", name), "each chain once");
          continue;
        }
        Chain c;
        c.family = std::string(family);
        c.table = std::string(table);
        c.name = std::string(name);
        c.declared = object;
        c.nat = object["type"].text() == "nat" && (family == "ip" || family == "ip6" || family == "inet");
        c.destination = object["hook"].text() == "prerouting";
        chains_.push_back(std::move(c));
      } else if (object.key() == "rule") {
        rules.push_back(object);
      } else if (object.key() == "set" || object.key() == "map") {
        sets_.emplace(nat_name(family, table, name), object);
      } else if (object.key() == "table") {
        tables_.emplace(nat_name(family, name, ""), object);
      } else if (object.key().empty()) {
        fail(entry, "an entry of \"nftables\" has not exactly one member", "{\"rule\": ...} and the like");
      }
    }
    for (JsonValue rule : rules) {
      const auto at = index_.find(nat_name(rule["family"].text(), rule["table"].text(), rule["chain"].text()));
      if (at != index_.end()) {
        chains_[at->second].rules.push_back(rule);
      } else if (!enough()) {
        fail(rule, fmt::format("there is no chain '{}'", rule["chain"].text()), "a chain that is listed");
      }
    }
    return found_.ok();
  }

  // The chains to read that have rules.
  std::vector<size_t> choose() {
    std::vector<size_t> list;
    bool any = false;
    for (size_t i = 0; i < chains_.size() && !enough(); ++i) {
      Chain& c = chains_[i];
      if (!c.nat) continue;
      any = true;
      const std::string_view hook = c.declared["hook"].text(), prio = c.declared["prio"].text();
      if (dormant(c)) continue;
      if (const JsonValue policy = c.declared["policy"]; policy && policy.text() != "accept") {
        fail(policy, fmt::format("NAT chain '{}' has the policy {}", c.title(), policy.text()), "the policy accept");
        continue;
      }
      if (c.rules.empty()) continue;
      if (hook == "input" || hook == "output") {
        warn(c.declared.at(), fmt::format("chain '{}' at {} is left out: it sees what the router itself sends or takes",
                                          c.title(), hook));
        continue;
      }
      if (hook != "prerouting" && hook != "postrouting") {
        fail(c.declared, fmt::format("NAT chain '{}' has no hook that is known", c.title()), "prerouting, postrouting");
        continue;
      }
      const auto [end, error] = std::from_chars(prio.data(), prio.data() + prio.size(), c.priority);
      if (error != std::errc() || end != prio.data() + prio.size()) {
        fail(c.declared, fmt::format("the priority of chain '{}' is not a number", c.title()), "\"prio\": NUMBER");
        continue;
      }
      if (c.family == "ip6") {
        refuse_ipv6(c);
      } else {
        list.push_back(i);
      }
    }
    if (!any) fail(json_->root()["nftables"], "there is no chain of the type nat", "a base chain of the type nat");
    return list;
  }

  // Whether the kernel asks none of the table's chains; also where that is not known, which is an error.
  bool dormant(const Chain& c) {
    const auto table = tables_.find(nat_name(c.family, c.table, ""));
    if (table == tables_.end()) return false;
    const JsonValue flags = table->second["flags"];
    for (JsonValue flag = flags.is(Kind::kArray) ? flags.first() : flags; flag; flag = flag.next()) {
      if (flag.text() == "dormant") {
        if (!c.rules.empty()) warn_once(flag.at(), fmt::format("table '{}' is left out: it is dormant", c.table));
        return true;
      }
      if (flag.text() != "owner" && flag.text() != "persist") {
        // Some versions of nft write a wrong word for dormant.
        fail(flag, fmt::format("table '{}' has the flag {}", c.table, flag.text().substr(0, 60)),
             "a table without flags");
        return true;
      }
      if (!flags.is(Kind::kArray)) break;
    }
    return false;
  }

  void refuse_ipv6(const Chain& c) {
    for (JsonValue rule : c.rules) {
      for (JsonValue entry = rule["expr"].first(); entry && !enough(); entry = entry.next()) {
        const std::string_view what = entry.only().key();
        if (what != "match" && what != "counter" && what != "comment" && what != "log" && what != "accept")
          fail(entry, kNoIpv6, "rules of IPv4");
      }
    }
  }

  void same_priority(const Chain& c) {
    fail(next_->declared,
         fmt::format("chains '{}' and '{}' have one priority, and the ruleset does not say which is asked first",
                     c.title(), next_->title()),
         "another priority for each chain of a hook");
  }

  // ---- rules -------------------------------------------------------------------------------------------------------
  void read_rule(const Chain& chain, JsonValue rule) {
    Reading r;
    r.rule = rule;
    r.inet = chain.family == "inet";
    r.draft.destination = chain.destination;
    bool good = true;
    const JsonValue expr = rule["expr"];
    if (expr && !expr.is(Kind::kArray)) {
      fail(expr, "\"expr\" is not a list", "a list of statements");
      return;
    }
    for (JsonValue entry = expr.first(); entry && !enough(); entry = entry.next()) {
      if (r.draft.action != Action::kNone) {
        good = fail(entry, "a statement follows the verdict", "the verdict at the end");
        break;
      }
      good &= statement(r, entry);
    }
    if (!good || (r.only_ipv6 && r.draft.action == Action::kItself)) return;
    if (r.only_ipv6 && r.draft.action != Action::kNone) {
      fail(rule, kNoIpv6, "rules of IPv4");
      return;
    }
    if (r.inet && !r.only_ipv4 && r.draft.action == Action::kMasquerade)
      warn_once(rule.at(), "masquerade of an inet table is read for IPv4 alone: " + std::string(kNoIpv6));
    write(r.draft, rule.at(), rule.length());
  }

  bool statement(Reading& r, JsonValue entry) {
    const JsonValue s = entry.only();
    const std::string_view what = s.key();
    if (what == "match") return condition(r, s);
    if (what == "counter" || what == "comment") return true;
    if (what == "log") return warn_log(entry.at()), true;
    if (what == "accept") {
      r.draft.action = Action::kItself;
      if (next_ == nullptr || r.only_ipv6) return true;
      return fail(entry,
                  fmt::format("what this rule accepts goes on to chain '{}', which a list cannot say", next_->title()),
                  "accept in the last chain of a hook, or where one chain alone has rules");
    }
    if (what == "dnat" || what == "snat" || what == "masquerade") return translation(r, s);
    if (what == "redirect") return fail(entry, kNoRedirect, "dnat, or accept");
    std::string suggestion;
    if (what == "return") suggestion = "'accept' does the same in a base chain";
    if (what == "xt") suggestion = "rules of iptables are read from the output of iptables-save";
    return fail(entry,
                what.empty() ? std::string("this statement is not understood")
                             : fmt::format("statement '{}' cannot be said as a NAT rule", what.substr(0, 60)),
                "match, dnat, snat, masquerade, accept or counter", suggestion);
  }

  bool translation(Reading& r, JsonValue s) {
    NatDraft& d = r.draft;
    const std::string_view what = s.key();
    if ((what == "dnat") != d.destination) {
      return fail(s, fmt::format("{} at {}", what, d.destination ? "prerouting" : "postrouting"),
                  d.destination ? "dnat" : "snat or masquerade");
    }
    d.action = what == "dnat" ? Action::kDnat : what == "snat" ? Action::kSnat : Action::kMasquerade;
    if (what != "masquerade" && !s["addr"])
      return fail(s, fmt::format("{} without an address keeps that of the packet", what), "an address");
    for (JsonValue m = s.first(); m; m = m.next()) {
      const std::string_view key = m.key();
      if (key == "family" && m.text() == "ip") {
        r.only_ipv4 = true;
      } else if (key == "family") {
        return fail(m, kNoIpv6, "ip");
      } else if (key == "addr" && what != "masquerade") {
        if (!target(r, m)) return false;
      } else if (key == "port") {
        std::vector<NatSpan> ports;
        if (!one(m, Field::kPort, ports) || ports.size() != 1 || ports[0].low == 0)
          return not_understood(m, "a port to translate to", kNatPort);
        d.ports = ports[0];
      } else if (key == "flags") {
        if (!options(m)) return false;
      } else {
        return fail(m, fmt::format("'{}' of {} is not understood", key.substr(0, 60), what), "an address and a port");
      }
    }
    return true;
  }

  // The addresses to translate to.
  bool target(Reading& r, JsonValue addr) {
    const std::string_view first = addr.only().key() == "range"    ? addr.only().first().text()
                                   : addr.only().key() == "prefix" ? addr.only()["addr"].text()
                                                                   : addr.text();
    if (const auto ip = parse_ip(first); ip && ip->family == 6) return fail(addr, kNoIpv6, "IPv4 addresses");
    std::vector<NatSpan> values;
    if (!one(addr, Field::kAddress, values) || values.size() != 1)
      return not_understood(addr, "what a NAT rule translates to", "an IPv4 address, range or prefix");
    r.draft.to = nat_addresses_text(values[0]);
    const JsonValue prefix = addr.only();
    if (prefix.key() == "prefix" && !r.draft.destination) {
      const auto whole = parse_prefix(fmt::format("{}/{}", first, *prefix["len"].integer()));
      if (whole) r.draft.to = nat_prefix_text(*whole);
    }
    return true;
  }

  bool options(JsonValue flags) {
    bool known = true;
    for (JsonValue flag = flags.is(Kind::kArray) ? flags.first() : flags; flag; flag = flag.next()) {
      const std::string_view word = flag.text();
      if (word == "random" || word == "fully-random" || word == "persistent") {
        warn_option(flag.at(), word);
      } else {
        known = fail(flag, fmt::format("option '{}' is not understood", word.substr(0, 60)),
                     "random, fully-random or persistent",
                     word == "netmap" ? "without `prefix`, any address of the prefix is taken" : "");
      }
      if (!flags.is(Kind::kArray)) break;
    }
    return known;
  }

  // ---- conditions --------------------------------------------------------------------------------------------------
  bool condition(Reading& r, JsonValue s) {
    const JsonValue left = s["left"], right = s["right"], what = left.only();
    const std::string_view op = s["op"].text();
    if (!right) return fail(s, "the match has no right side", "\"right\": VALUE");
    const bool negated = op == "!=";
    if (op != "==" && op != "!=" && op != "in")
      return fail(s, fmt::format("'{}' cannot be said in a NAT rule", op.substr(0, 60)), "== or !=");
    if (what.key() == "ct" && what["key"].text() == "state") return is_new(s, right, negated);
    if (what.key() == "meta") return meta(r, s, what["key"].text(), right, negated);
    if (what.key() == "payload") return header(r, s, what["protocol"].text(), what["field"].text(), right, negated);
    return not_understood(left, "what a NAT rule looks at", "addresses, ports, protocols or the output");
  }

  // Only of new connections is a NAT rule asked.
  bool is_new(JsonValue s, JsonValue right, bool negated) {
    JsonValue v = right.only().key() == "set" ? right.only() : right;
    if (v.is(Kind::kArray) && v.first() && !v.first().next()) v = v.first();
    return (!negated && v.text() == "new") ||
           not_understood(s, "what a NAT rule looks at", "no state of connections, or `ct state new`");
  }

  bool meta(Reading& r, JsonValue s, std::string_view key, JsonValue right, bool negated) {
    if (key == "iif" || key == "iifname") return fail(s, kNoInput, "no match of the input");
    auto plain = [&] {
      return !negated || fail(s, fmt::format("'!=' of meta {} cannot be said in a NAT rule", key), "==");
    };
    if (key == "oif" || key == "oifname") {
      std::vector<std::string> names;
      return plain() && interfaces(r, right, names) && good(s, r.draft.add_outputs(std::move(names)), "one output");
    }
    if (key == "l4proto") return plain() && protocol(r, s, right);
    if (key == "nfproto" || key == "protocol") {
      const std::string_view t = right.text();
      if (!plain()) return false;
      if (t == "ipv4" || t == "ip") return r.only_ipv4 = true;
      if (t == "ipv6" || t == "ip6") return r.only_ipv6 = true;
      return not_understood(right, "a family", "ipv4 or ipv6");
    }
    return fail(s, fmt::format("a NAT rule cannot match meta '{}'", key.substr(0, 60)), "meta l4proto or oifname");
  }

  bool protocol(Reading& r, JsonValue s, JsonValue right) {
    std::vector<NatSpan> values;
    return members(r, right, Field::kProtocol, values) &&
           good(s, r.draft.add_protocols(values), "one match of the protocol");
  }

  bool header(Reading& r, JsonValue s, std::string_view protocol_name, std::string_view field, JsonValue right,
              bool negated) {
    NatDraft& d = r.draft;
    std::vector<NatSpan> values;
    if (protocol_name == "ip6") return r.only_ipv6 = true;
    const bool ip = protocol_name == "ip";
    if (ip) r.only_ipv4 = true;
    if (ip && (field == "saddr" || field == "daddr")) {
      return members(r, right, Field::kAddress, values) &&
             good(s, NatDraft::add_side(field == "saddr" ? d.src : d.dst, values, negated), "one match of an address");
    }
    const bool ported = protocol_name == "tcp" || protocol_name == "udp" || protocol_name == "sctp";
    const bool ports = (ported || protocol_name == "th") && (field == "sport" || field == "dport");
    if (!ports && !(ip && field == "protocol")) {
      return fail(s, fmt::format("a NAT rule cannot match '{} {}'", protocol_name.substr(0, 60), field.substr(0, 60)),
                  "ip saddr, daddr and protocol; sport and dport of tcp, udp and sctp");
    }
    if (negated) {
      return fail(s, fmt::format("'!=' of {} {} cannot be said in a NAT rule", protocol_name, field),
                  "==, or '!=' of an address");
    }
    if (!ports) return protocol(r, s, right);
    if (ported) {
      const uint32_t p = *names::ip_protocol(protocol_name);
      if (!good(s, d.add_protocols({{p, p}}), "one match of the protocol")) return false;
    }
    return members(r, right, Field::kPort, values) &&
           good(s, NatDraft::add_ports(field == "sport" ? d.src_ports : d.dst_ports, std::move(values)),
                "one match of a port");
  }

  // ---- values ------------------------------------------------------------------------------------------------------
  // The members of a set, or none: reported.
  JsonValue set_of(const Reading& r, JsonValue v) {
    if (v.only().key() == "set") v = v.only();
    if (!v.is(Kind::kString)) return v;
    const std::string_view name = v.text();
    const auto at = sets_.find(nat_name(r.rule["family"].text(), r.rule["table"].text(), name.substr(1)));
    if (at == sets_.end())
      return fail(v, fmt::format("there is no set '{}'", name), "a set of this table"), JsonValue();
    const JsonValue flags = at->second["flags"];
    for (JsonValue flag = flags.is(Kind::kArray) ? flags.first() : flags; flag; flag = flag.next()) {
      if (flag.text() != "interval" && flag.text() != "constant") {
        fail(v, fmt::format("the members of set '{}' change while packets flow ({})", name, flag.text()),
             "a set of fixed members");
        return {};
      }
      if (!flags.is(Kind::kArray)) break;
    }
    if (const JsonValue elements = at->second["elem"]; elements.is(Kind::kArray)) return elements;
    fail(v, fmt::format("set '{}' has no members", name), "a set with members");
    return {};
  }
  static bool is_set(JsonValue v) {
    return v.only().key() == "set" || v.is(Kind::kArray) || (v.is(Kind::kString) && v.text().starts_with('@'));
  }

  // Calls `each` with the value, or with each of a set.
  template <typename Each>
  bool each_member(const Reading& r, JsonValue v, Each each) {
    if (!is_set(v)) return each(v);
    const JsonValue list = set_of(r, v);
    if (!list) return false;
    if (!list.is(Kind::kArray) || !list.first()) return not_understood(v, "a set with members", "a list of values");
    size_t count = 0;
    for (JsonValue item = list.first(); item; item = item.next()) {
      if (++count > kMaxNatMembers)
        return fail(item, fmt::format("more than {} members", kMaxNatMembers), "a smaller set");
      const JsonValue value = item.only().key() == "elem" ? item.only()["val"] : item;
      if (!each(value ? value : item)) return false;
    }
    return true;
  }

  bool members(const Reading& r, JsonValue v, Field field, std::vector<NatSpan>& out) {
    static constexpr const char* kExpected[] = {"IPv4 addresses, prefixes or ranges", "ports, 0..65535, or ranges",
                                                "protocols, 1..255, or their names"};
    return each_member(r, v, [&](JsonValue item) {
      return one(item, field, out) ||
             not_understood(item, "a value of this field", kExpected[static_cast<size_t>(field)]);
    });
  }

  bool interfaces(const Reading& r, JsonValue v, std::vector<std::string>& out) {
    return each_member(r, v, [&](JsonValue item) {
      if (!item.is(Kind::kString) || !is_nat_interface(item.text(), '*'))
        return not_understood(item, "one interface's name", "a name without '*' that is not a number");
      out.emplace_back(item.text());
      return true;
    });
  }

  // Appends one value, prefix or range. False: it is none.
  static bool one(JsonValue v, Field field, std::vector<NatSpan>& out) {
    const JsonValue inner = v.only();
    if (inner.key() == "range" && inner.is(Kind::kArray)) {
      const auto low = scalar(inner.first(), field), high = scalar(inner.first().next(), field);
      if (!low || !high || *low > *high || inner.first().next().next()) return false;
      out.push_back({*low, *high});
      return true;
    }
    if (inner.key() == "prefix" && field == Field::kAddress) {
      const auto address = scalar(inner["addr"], field);
      const auto length = inner["len"].integer();
      if (!address || !length || *length > 32) return false;
      const uint32_t mask = high_mask32(static_cast<unsigned>(*length));
      out.push_back({*address & mask, *address | ~mask});
      return true;
    }
    const auto value = scalar(v, field);
    if (value) out.push_back({*value, *value});
    return value.has_value();
  }

  static std::optional<uint32_t> scalar(JsonValue v, Field field) {
    const bool word = v.is(Kind::kString);
    if (field == Field::kAddress) return word ? parse_ipv4(v.text()) : std::nullopt;
    const uint32_t limit = field == Field::kPort ? 65535 : 255;
    std::optional<uint32_t> n;
    if (const auto integer = v.integer(); integer && *integer <= limit) n = static_cast<uint32_t>(*integer);
    if (word) n = names::number(v.text(), limit);
    if (word && !n)
      n = field == Field::kPort ? names::find_named(names::kServices, v.text()) : names::ip_protocol(v.text());
    if (field == Field::kProtocol && n == 0u) return std::nullopt;
    return n;
  }

  std::optional<JsonText> json_;
  std::vector<Chain> chains_;
  std::map<std::string, size_t, std::less<>> index_;  // of chains, by family/table/name
  std::map<std::string, JsonValue, std::less<>> sets_;
  std::map<std::string, JsonValue, std::less<>> tables_;
  const Chain* next_ = nullptr;  // what the kernel asks behind the chain that is read
};

// ---- iptables ------------------------------------------------------------------------------------------------------
class IptablesNat : ForeignNat {
 public:
  IptablesNat(std::string_view text, const std::string& file_name) : ForeignNat(text, file_name) {}

  Result<std::string> run(std::vector<std::string>* warnings) {
    read_lines();
    if (tables_ == 0 && found_.ok()) fail(text_.size(), 1, "there is no table nat", "the output of iptables-save");
    // Destinations first: their chain may stand behind the other.
    for (const bool destination : {true, false}) {
      for (const Line& line : lines_) {
        if (line.destination == destination && !enough()) read_rule(line);
      }
    }
    return finish(warnings);
  }

 private:
  using Action = NatDraft::Action;

  using Word = IptablesWord;
  // One -A line.
  struct Line {
    size_t begin = 0, rest = 0, end = 0;  // `rest`: behind the chain's name
    bool destination = false, ipv6 = false;
  };
  // A rule while it is read.
  struct Reading {
    NatDraft draft;
    Word target;
  };

  using ForeignNat::fail;
  bool fail(const Word& word, std::string message, std::string expected, std::string suggestion = {}) {
    return fail(word.at, word.text.size(), std::move(message), std::move(expected), std::move(suggestion));
  }
  bool wrong(const Word& word, std::string_view what, std::string expected) {
    return fail(word,
                word.text.empty() ? fmt::format("the line ends where {} should be", what)
                                  : fmt::format("'{}' is not {}", word.text.substr(0, 60), what),
                std::move(expected));
  }
  bool good(const Word& word, const std::string& problem, const char* expected) {
    return problem.empty() || fail(word, problem, expected);
  }

  // ---- lines -------------------------------------------------------------------------------------------------------
  void read_lines() {
    bool ipv6 = false, open = false, nat = false;  // the table that is open
    size_t table_at = 0;
    for (size_t at = 0; at < text_.size() && !enough();) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      Scanner scan(text_, at);
      at = end + 1;
      scan.skip_blanks();
      const size_t begin = scan.at();
      if (scan.end_of_line()) continue;
      const std::string_view word = scan.word();
      if (word[0] == '#') {
        const std::string_view comment = text_.substr(begin, end - begin);
        if (comment.find("Generated by ") != std::string_view::npos)
          ipv6 = comment.find("Generated by ip6tables") != std::string_view::npos;
      } else if (word[0] == '*') {
        if (open)
          fail(begin, word.size(), fmt::format("table '{}' begins inside of another one", word), "COMMIT before it");
        open = true;
        nat = word == "*nat";
        table_at = begin;
        chains_.clear();
        if (nat && !ipv6 && ++tables_ > 1) fail(begin, word.size(), "there are two tables nat", "one");
      } else if (word == "COMMIT") {
        open = nat = false;
      } else if (!open) {
        fail(begin, word.size(), fmt::format("'{}' is outside of a table", word.substr(0, 40)),
             "a line with '*' and a table's name, or '#'");
        return;
      } else if (nat && word[0] == ':') {
        declare(scan);
      } else if (nat) {
        if (word[0] == '[') {  // counters
          scan.seek(begin + word.size());
          scan.skip_blanks();
        }
        take_line(scan, begin, end, ipv6);
      }
    }
    if (open && found_.ok()) fail(table_at, 4, "the table has no end", "COMMIT");
  }

  void declare(Scanner& scan) {
    const Word name{scan.word().substr(1), scan.at() + 1};
    scan.seek(scan.at() + scan.word().size());
    scan.skip_blanks();
    const Word policy{scan.word(), scan.at()};
    if (policy.text != "ACCEPT" && policy.text != "-")
      wrong(policy, "a policy of NAT", "ACCEPT, or '-' for a user's chain");
    if (!chains_.emplace(name.text, policy.text == "-").second)
      fail(name, fmt::format("chain '{}' is declared twice", name.text.substr(0, 60)), "each chain once");
  }

  // A rule from its verb on, of one of the chains to read.
  void take_line(Scanner& scan, size_t begin, size_t end, bool ipv6) {
    const Word verb{scan.word(), scan.at()};
    if (verb.text != "-A" && verb.text != "--append") {
      wrong(verb, "understood", "-A CHAIN ..., :CHAIN POLICY, *TABLE, COMMIT or '#'");
      return;
    }
    scan.seek(verb.at + verb.text.size());
    scan.skip_blanks();
    const Word name{scan.word(), scan.at()};
    const auto chain = chains_.find(name.text);
    if (chain == chains_.end()) {
      fail(name, fmt::format("there is no chain '{}'", name.text.substr(0, 60)),
           "a chain that a line with ':' has declared");
    } else if (name.text == "PREROUTING" || name.text == "POSTROUTING") {
      lines_.push_back({begin, name.at + name.text.size(), end, name.text == "PREROUTING", ipv6});
    } else if (chain->second) {
      fail(name, fmt::format("'{}' is a user's chain, which a list of NAT rules has not", name.text.substr(0, 60)),
           "rules of PREROUTING and POSTROUTING");
    } else {
      warn_once(begin, fmt::format("chain {} is left out: it sees what the router itself sends or takes",
                                   name.text.substr(0, 60)));
    }
  }

  bool more() const { return words_.more(); }
  Word take() { return words_.take(); }

  // ---- rules -------------------------------------------------------------------------------------------------------
  void read_rule(const Line& line) {
    words_.split(text_, line.rest, line.end);
    Reading r;
    r.draft.destination = line.destination;
    bool good = true;
    while (more() && !enough()) {
      Word word = take();
      const bool negated = word.text == "!";
      if (negated) word = take();
      if (option(r, word, negated, line.ipv6)) continue;
      good = false;
      // On to the next word that looks like an option.
      words_.skip_to_option();
    }
    if (!good || line.ipv6) return;
    NatDraft& d = r.draft;
    if ((d.action == Action::kDnat || d.action == Action::kSnat) && d.to.empty()) {
      fail(r.target, fmt::format("{} without an address keeps that of the packet", r.target.text), "an address");
      return;
    }
    write(d, line.begin, line.end - line.begin);
  }

  bool option(Reading& r, const Word& word, bool negated, bool ipv6) {
    const std::string_view o = word.text;
    NatDraft& d = r.draft;
    auto is = [&](std::string_view a, std::string_view b) { return o == a || o == b; };
    if (ipv6) return is("-j", "--jump") || is("-g", "--goto") ? target_of_ipv6(take()) : true;
    if (is("-s", "--source")) return address(word, d.src, negated);
    if (is("-d", "--destination")) return address(word, d.dst, negated);
    if (is("-i", "--in-interface")) return fail(word, kNoInput, "no match of the input");
    if (negated)
      return fail(word, fmt::format("'!' before {} cannot be said in a NAT rule", o.substr(0, 60)), "no '!'");
    if (is("-o", "--out-interface")) {
      const Word v = take();
      if (!is_nat_interface(v.text, '+'))
        return wrong(v, "one interface's name", "a name without '+' that is not a number");
      return good(word, d.add_outputs({std::string(v.text)}), "one output");
    }
    if (is("-p", "--protocol")) return protocol(r, word);
    if (is("-m", "--match")) return module(r, take());
    if (is("--sport", "--source-port")) return ports(word, d.src_ports, false);
    if (is("--dport", "--destination-port")) return ports(word, d.dst_ports, false);
    if (is("--sports", "--source-ports")) return ports(word, d.src_ports, true);
    if (is("--dports", "--destination-ports")) return ports(word, d.dst_ports, true);
    if (o == "--comment") return take(), true;
    if (is("--ctstate", "--state")) {
      const Word v = take();
      return v.text == "NEW" || wrong(v, "a state that a NAT rule can look at", "NEW, which it has anyway");
    }
    if (is("-c", "--set-counters")) return take(), take(), true;
    if (is("-j", "--jump")) return target(r, take());
    if (!r.target.text.empty()) return target_option(r, word);
    return fail(word, fmt::format("'{}' cannot be said in a NAT rule", o.substr(0, 60)),
                "-s, -d, -p, ports, -o, -m comment and -j");
  }

  bool module(Reading& r, const Word& name) {
    for (const char* p : {"tcp", "udp", "sctp"}) {
      if (name.text != p) continue;
      const uint32_t n = *names::ip_protocol(p);
      return good(name, r.draft.add_protocols({{n, n}}), "one protocol");
    }
    for (const char* known : {"icmp", "comment", "multiport", "conntrack", "state"}) {
      if (name.text == known) return true;
    }
    fail(name, fmt::format("match '{}' cannot be said in a NAT rule", name.text.substr(0, 60)),
         "tcp, udp, sctp, multiport or comment");
    // Its options would only be further findings of the same thing.
    words_.skip_match();
    return false;
  }

  bool address(const Word& word, NatDraft::Side& side, bool negated) {
    const Word v = take();
    std::optional<IpPrefix> prefix = parse_prefix(v.text);
    const size_t slash = v.text.find('/');
    if (!prefix && slash != std::string_view::npos) {
      // A mask in the form of an address.
      const auto a = parse_ipv4(v.text.substr(0, slash)), m = parse_ipv4(v.text.substr(slash + 1));
      if (a && m) {
        const unsigned ones = static_cast<unsigned>(std::popcount(*m));
        if (*m != high_mask32(ones)) return fail(v, "the ones of the mask have gaps", "a prefix", "ADDRESS/LENGTH");
        prefix = IpPrefix{{0, *a & *m, 4}, static_cast<uint8_t>(ones)};
      }
    }
    if (!prefix || prefix->address.family != 4) return wrong(v, "an IPv4 address", "ADDRESS or ADDRESS/LENGTH");
    const uint32_t low = static_cast<uint32_t>(prefix->address.lo);
    return good(word, NatDraft::add_side(side, {{low, low | ~high_mask32(prefix->length)}}, negated),
                "one match of an address");
  }

  bool protocol(Reading& r, const Word& word) {
    const Word v = take();
    auto n = names::number(v.text, 255);
    if (!n) n = names::same_word(v.text, "all") ? std::optional(0u) : names::ip_protocol(v.text);
    if (!n) return wrong(v, "a protocol", "tcp, udp, icmp, sctp, or a number 0..255");
    return *n == 0 || good(word, r.draft.add_protocols({{*n, *n}}), "one protocol");
  }

  // LOW or LOW`dash`HIGH, where an end that is left out is the outermost where `open`.
  static std::optional<NatSpan> span(std::string_view text, char dash, bool open) {
    const size_t at = text.find(dash);
    if (at == std::string_view::npos) {
      auto one = names::number(text, 65535);
      if (!one) one = names::find_named(names::kServices, text);
      return one ? std::optional(NatSpan{*one, *one}) : std::nullopt;
    }
    const std::string_view a = text.substr(0, at), b = text.substr(at + 1);
    const auto low = open && a.empty() ? std::optional(0u) : names::number(a, 65535);
    const auto high = open && b.empty() ? std::optional(65535u) : names::number(b, 65535);
    if (!low || !high || *low > *high) return std::nullopt;
    return NatSpan{*low, *high};
  }

  bool ports(const Word& word, std::optional<std::vector<NatSpan>>& out, bool many) {
    const Word v = take();
    std::vector<NatSpan> values;
    for (size_t begin = 0; begin <= v.text.size();) {
      const size_t end = many ? std::min(v.text.find(',', begin), v.text.size()) : v.text.size();
      const Word item{v.text.substr(begin, end - begin), v.at + begin};
      const auto s = span(item.text, ':', true);
      if (!s) return wrong(item, "a port", many ? "ports separated by ','" : "N or LOW:HIGH");
      values.push_back(*s);
      begin = end + 1;
    }
    return good(word, NatDraft::add_ports(out, std::move(values)), "one match of a port");
  }

  // ---- targets -----------------------------------------------------------------------------------------------------
  bool target_of_ipv6(const Word& v) {
    return v.text == "ACCEPT" || v.text == "LOG" || fail(v, kNoIpv6, "rules of IPv4");
  }

  bool target(Reading& r, const Word& v) {
    NatDraft& d = r.draft;
    r.target = v;
    if (v.text == "ACCEPT") return d.action = Action::kItself, true;
    if (v.text == "LOG") return warn_log(v.at), true;
    const bool dnat = v.text == "DNAT", snat = v.text == "SNAT", masquerade = v.text == "MASQUERADE";
    if (dnat || snat || masquerade) {
      d.action = dnat ? Action::kDnat : snat ? Action::kSnat : Action::kMasquerade;
      return dnat == d.destination ||
             fail(v, fmt::format("{} in {}", v.text, d.destination ? "PREROUTING" : "POSTROUTING"),
                  d.destination ? "DNAT" : "SNAT or MASQUERADE");
    }
    words_.skip_all();  // its options are its own
    if (v.text == "REDIRECT") return fail(v, kNoRedirect, "DNAT or ACCEPT");
    return fail(v,
                v.text.empty() ? std::string("the line ends where a target should be")
                               : fmt::format("target '{}' cannot be said as a NAT rule", v.text.substr(0, 60)),
                "DNAT, SNAT, MASQUERADE, ACCEPT or LOG",
                v.text == "RETURN" ? "ACCEPT does the same in PREROUTING and POSTROUTING" : "");
  }

  bool target_option(Reading& r, const Word& word) {
    const std::string_view o = word.text, t = r.target.text;
    NatDraft& d = r.draft;
    if (t == "LOG") {
      if (o == "--log-prefix" || o == "--log-level") return take(), true;
      if (o.starts_with("--log-")) return true;
    } else if (t != "ACCEPT") {
      if (o == "--random" || o == "--random-fully" || o == "--persistent") return warn_option(word.at, o), true;
      if ((t == "DNAT" && o == "--to-destination") || (t == "SNAT" && o == "--to-source")) return translated(d, word);
      if (t == "MASQUERADE" && o == "--to-ports") {
        const Word v = take();
        d.ports = span(v.text, '-', false);
        return (d.ports && d.ports->low > 0) || wrong(v, "a port to translate to", kNatPort);
      }
    }
    return fail(word, fmt::format("'{}' is no option of {} that is understood", o.substr(0, 60), t), "an option of it");
  }

  // ADDRESS[-ADDRESS][:PORT[-PORT]]
  bool translated(NatDraft& d, const Word& word) {
    const Word v = take();
    if (!d.to.empty()) return fail(word, "a rule translates to one address or range", "one " + std::string(word.text));
    const size_t colon = v.text.find(':');
    const std::string_view addresses = v.text.substr(0, colon);
    if (colon == 0) return fail(v, "a port without an address keeps that of the packet", "an address before it");
    const size_t dash = addresses.find('-');
    const auto low = parse_ipv4(addresses.substr(0, dash));
    const auto high = dash == std::string_view::npos ? low : parse_ipv4(addresses.substr(dash + 1));
    if (!low || !high) return wrong(v, "what a NAT rule translates to", "an IPv4 ADDRESS[-ADDRESS][:PORT[-PORT]]");
    if (*low > *high) return fail(v, "the range of addresses is empty", "LOW-HIGH with LOW <= HIGH");
    d.to = nat_addresses_text({*low, *high});
    if (colon == std::string_view::npos) return true;
    d.ports = span(v.text.substr(colon + 1), '-', false);
    return (d.ports && d.ports->low > 0) || wrong(v, "what a NAT rule translates to", kNatPort);
  }

  std::vector<Line> lines_;
  std::map<std::string, bool, std::less<>> chains_;  // of the table that is open; whether a user's
  IptablesWords words_;
  unsigned tables_ = 0;  // named nat, of IPv4
};

}  // namespace

bool is_foreign_nat(std::string_view text) {
  const RuleFormat format = detect_rule_format(text);
  return format == RuleFormat::kNft || format == RuleFormat::kIptables;
}

Result<std::string> import_nat(std::string_view text, const std::string& file_name,
                               std::vector<std::string>* warnings) {
  if (detect_rule_format(text) == RuleFormat::kNft) return NftNat(text, file_name).run(warnings);
  return IptablesNat(text, file_name).run(warnings);
}

}  // namespace sluice
