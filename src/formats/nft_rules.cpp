#include "formats/nft_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "formats/filter_chains.h"
#include "formats/json_text.h"
#include "formats/match_builder.h"
#include "formats/names.h"
#include "net/text.h"

namespace sluice {
namespace {

using namespace names;
using Kind = JsonValue::Kind;
using Target = FilterRule::Target;

constexpr size_t kMaxMembers = 65536;
constexpr unsigned kMaxParts = 16;  // of a concatenation

// What the left side of a match looks at.
enum class Field : uint8_t {
  kSrc,
  kDst,
  kSrcPort,
  kDstPort,
  kProtocol,
  kFamily,
  kDscp,
  kIcmpType,
  kIcmpCode,
  kTcpFlags,
  kFragment,
};
struct Selector {
  Field field = Field::kSrc;
  AclRegion within;     // packets that have the field
  uint8_t family = 0;   // of addresses; of ICMP names
  unsigned bits = 16;   // of numbers
  uint32_t mask = ~0u;  // of TCP flags and fragment offsets
};

struct Chain {
  std::string table, name;
  uint8_t families = 3;
  bool base = false, filter = false, forward = false;
  AclVerb policy = AclVerb::kPermit;
  JsonValue declared;
  std::vector<JsonValue> rules;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name, std::string_view chain)
      : text_(text), asked_(chain), found_(file_name, text) {
    set_.files.push_back(file_name);
  }

  Result<RuleSet> run() {
    json_ = JsonText::parse(text_, found_);
    if (!json_) return found_.to_error();
    index_lines();
    collect();
    if (!found_.ok()) return found_.to_error();
    for (size_t base : choose()) read_from(base);
    if (!found_.ok()) return found_.to_error();
    return std::move(set_);
  }

 private:
  bool fail(JsonValue at, std::string message, std::string expected, std::string suggestion = {}) {
    Diagnostic& d = found_.error_at(at.at(), std::min<size_t>(at.length(), 200), std::move(message));
    d.expected = std::move(expected);
    d.suggestion = std::move(suggestion);
    return false;
  }
  // Names the value as it stands.
  bool not_understood(JsonValue v, std::string_view what, std::string expected) {
    const std::string_view whole = text_.substr(v.at(), v.length());
    return fail(v, fmt::format("{} is not {}{}", whole.substr(0, 60), whole.size() > 60 ? "... " : "", what),
                std::move(expected));
  }
  bool enough() const { return found_.error_count() > Diagnostics::kLimit; }

  void index_lines() {
    for (size_t at = text_.find('\n'); at != std::string_view::npos; at = text_.find('\n', at + 1))
      lines_.push_back(at);
  }
  uint32_t line_of(JsonValue v) const {
    return 1 + static_cast<uint32_t>(std::lower_bound(lines_.begin(), lines_.end(), v.at()) - lines_.begin());
  }

  // ---- objects -----------------------------------------------------------------------------------------------------
  static std::string name_of(std::string_view family, std::string_view table, std::string_view name) {
    return fmt::format("{}/{}/{}", family, table, name);
  }
  static std::optional<uint8_t> families_of(std::string_view family) {
    if (family == "ip") return AclRegion::kIpv4;
    if (family == "ip6") return AclRegion::kIpv6;
    if (family == "inet") return AclRegion::kIpv4 | AclRegion::kIpv6;
    return std::nullopt;
  }

  void collect() {
    const JsonValue list = json_->root()["nftables"];
    if (!list.is(Kind::kArray)) {
      fail(json_->root(), "there is no list \"nftables\"", "the output of `nft -j list ruleset`");
      return;
    }
    for (JsonValue entry = list.first(); entry; entry = entry.next()) {
      const JsonValue object = entry.only();
      const std::string_view family = object["family"].text(), table = object["table"].text(),
                             name = object["name"].text();
      if (object.key() == "chain") {
        const auto families = families_of(family);
        if (!families) continue;  // arp, bridge, netdev: not where packets are routed
        Chain c;
        c.table = std::string(table);
        c.name = std::string(name);
        c.families = *families;
        c.base = static_cast<bool>(object["hook"]);
        c.filter = object["type"].text() == "filter";
        c.forward = object["hook"].text() == "forward";
        if (object["policy"].text() == "drop") c.policy = AclVerb::kDeny;
        c.declared = object;
        if (!index_.emplace(name_of(family, table, name), chains_.size()).second) {
          fail(object, fmt::format("chain '{}' is declared twice", name), "each chain once");
          continue;
        }
        chains_.push_back(std::move(c));
      } else if (object.key() == "rule") {
        rules_.push_back(object);
      } else if (object.key() == "set" || object.key() == "map") {
        sets_.emplace(name_of(family, table, name), object);
      } else if (entry.only().key().empty()) {
        fail(entry, "an entry of \"nftables\" has not exactly one member", "{\"rule\": ...} and the like");
      }
    }
    for (JsonValue rule : rules_) {
      if (!families_of(rule["family"].text())) continue;
      const auto at = index_.find(name_of(rule["family"].text(), rule["table"].text(), rule["chain"].text()));
      if (at == index_.end()) {
        fail(rule, fmt::format("there is no chain '{}'", rule["chain"].text()), "a chain that is listed before it");
        if (enough()) return;
        continue;
      }
      chains_[at->second].rules.push_back(rule);
    }
  }

  // The base chains to read, one behind the other: see the header. Empty: reported.
  std::vector<size_t> choose() {
    std::vector<size_t> found, used, all;
    for (size_t c = 0; c < chains_.size(); ++c) {
      const Chain& chain = chains_[c];
      const bool named = !asked_.empty() && (chain.name == asked_ || chain.table + "/" + chain.name == asked_);
      if (named) found.push_back(c);
      if (!chain.base) continue;
      all.push_back(c);
      if (!chain.rules.empty()) used.push_back(c);
    }
    if (asked_.empty()) {
      found = used;
      if (used.empty()) {
        for (size_t c : all) {
          if (chains_[c].forward && chains_[c].filter) found.push_back(c);
        }
        if (found.empty()) found = all;
      }
    }
    const JsonValue list = json_->root()["nftables"];
    auto refuse = [&](JsonValue at, std::string message, std::string suggestion) {
      fail(at, std::move(message), "one base chain", std::move(suggestion));
      return std::vector<size_t>();
    };
    if (found.empty()) {
      return refuse(list, asked_.empty() ? "there is no base chain" : fmt::format("there is no chain '{}'", asked_),
                    "");
    }
    uint8_t families = 0;
    for (size_t c : found) {
      const Chain& chain = chains_[c];
      if ((families & chain.families) != 0 || chain.name != chains_[found[0]].name) {
        std::vector<std::string> names;
        for (size_t i : found) names.push_back(chains_[i].table + "/" + chains_[i].name);
        if (names.size() > 8) names.resize(8);
        return refuse(chain.declared, fmt::format("several base chains decide packets: {}", fmt::join(names, ", ")),
                      fmt::format("choose one with the format nft:{}", names[0]));
      }
      families |= chain.families;
      if (!chain.base)
        return refuse(chain.declared, fmt::format("chain '{}' has no hook and no policy", chain.name), "");
      if (!chain.filter)
        return refuse(chain.declared, fmt::format("chain '{}' is not of the type filter", chain.name), "");
    }
    return found;
  }

  // ---- chains ------------------------------------------------------------------------------------------------------
  void read_from(size_t base) {
    // The chains of one table are numbered anew: `local` of a chain is its place in `out`.
    std::vector<FilterChain> out;
    std::map<size_t, size_t> local;
    std::vector<size_t> todo{base};
    local[base] = 0;
    out.push_back({chains_[base].name, {}});
    while (!todo.empty() && !enough()) {
      const size_t c = todo.back();
      todo.pop_back();
      family_ = chains_[base].families;
      for (JsonValue rule : chains_[c].rules) {
        if (enough()) return;
        std::vector<FilterRule> made;
        if (!read_rule(rule, made)) continue;
        for (FilterRule& r : made) {
          if (r.target == Target::kJump || r.target == Target::kGoto) {
            const auto [at, added] = local.emplace(r.chain, out.size());
            if (added) {
              out.push_back({chains_[r.chain].name, {}});
              todo.push_back(r.chain);
            }
            r.chain = at->second;
          }
          out[local[c]].rules.push_back(std::move(r));
        }
      }
    }
    if (!found_.ok()) return;
    FilterPolicy policy;
    policy.verb = chains_[base].policy;
    policy.families = chains_[base].families;
    policy.line = line_of(chains_[base].declared);
    if (const auto problem = flatten_chains(out, 0, policy, 0, set_)) {
      Diagnostic& d = found_.error_at(problem->at, problem->length, problem->message);
      d.expected = problem->expected;
    }
  }

  // One rule becomes several where an effect stands before a further condition, and one for each member of a vmap.
  bool read_rule(JsonValue rule, std::vector<FilterRule>& out) {
    MatchBuilder match(family_);
    FilterRule proto;
    proto.line = line_of(rule);
    proto.at = rule.at();
    proto.length = std::min<size_t>(rule.length(), 200);
    FilterRule pending = proto;  // effects that wait for the verdict
    auto flush = [&] {
      if (!pending.log && !pending.mark) return;
      pending.match = match.match();
      out.push_back(pending);
      pending = proto;
    };
    scope_ = rule;
    bool good = true, decided = false;
    const JsonValue expr = rule["expr"];
    if (expr && !expr.is(Kind::kArray)) return fail(expr, "\"expr\" is not a list", "a list of statements");
    for (JsonValue entry = expr.first(); entry && !enough(); entry = entry.next()) {
      const JsonValue s = entry.only();
      const std::string_view what = s.key();
      if (decided) {
        good = fail(entry, "a statement follows the verdict", "the verdict at the end");
        break;
      }
      if (what == "match") {
        flush();
        good &= condition(s, match);
      } else if (what == "counter" || what == "comment") {
        // nothing to decide
      } else if (what == "log") {
        pending.log = true;
      } else if (what == "mangle") {
        const auto mark = s["value"].integer();
        if (s["key"]["meta"]["key"].text() != "mark" || !mark || *mark > 0xffffffff) {
          good = not_understood(entry, "an effect that a rule can have", "meta mark set to a number");
        } else {
          pending.mark = static_cast<uint32_t>(*mark);
        }
      } else if (what == "vmap") {
        flush();
        good &= verdict_map(s, match, proto, out);
        decided = true;
      } else {
        FilterRule r = pending;
        if (!verdict(entry, r)) {
          good = false;
          continue;
        }
        decided = true;
        pending = proto;
        set_match(r, match);
        out.push_back(std::move(r));
      }
    }
    flush();
    return good;
  }

  bool verdict(JsonValue entry, FilterRule& rule) {
    const JsonValue s = entry.only();
    const std::string_view what = s.key();
    if (what == "accept") {
      rule.target = Target::kAccept;
    } else if (what == "drop" || what == "reject") {
      rule.target = Target::kDrop;
    } else if (what == "return") {
      rule.target = Target::kReturn;
    } else if (what == "continue") {
      rule.target = Target::kContinue;
    } else if (what == "jump" || what == "goto") {
      rule.target = what == "jump" ? Target::kJump : Target::kGoto;
      const std::string_view name = s["target"].text();
      const auto at = index_.find(name_of(scope_["family"].text(), scope_["table"].text(), name));
      if (at == index_.end()) return fail(entry, fmt::format("there is no chain '{}'", name), "a chain of this table");
      rule.chain = at->second;
    } else {
      return fail(entry,
                  what.empty() ? std::string("this statement is not understood")
                               : fmt::format("statement '{}' is not understood", what.substr(0, 60)),
                  "match, accept, drop, reject, return, jump, goto, vmap, log, counter or meta mark set");
    }
    return true;
  }

  bool verdict_map(JsonValue s, const MatchBuilder& match, const FilterRule& proto, std::vector<FilterRule>& out) {
    std::vector<Selector> parts;
    if (!selectors(s["key"], match, parts)) return false;
    JsonValue data = s["data"];
    if (data.is(Kind::kString)) {
      data = named_set(data);
      if (!data) return false;
    } else {
      data = data["set"];
    }
    if (!data.is(Kind::kArray))
      return not_understood(s, "a map to verdicts", "{\"key\": ..., \"data\": {\"set\": [...]}}");
    size_t count = 0;
    for (JsonValue pair = data.first(); pair && !enough(); pair = pair.next()) {
      const JsonValue key = pair.first(), value = key.next();
      if (++count > kMaxMembers) return fail(pair, fmt::format("more than {} members", kMaxMembers), "a smaller map");
      FilterRule r = proto;
      if (!pair.is(Kind::kArray) || !value || value.next())
        return not_understood(pair, "a pair of a key and a verdict", "[KEY, VERDICT]");
      if (!verdict(value, r)) return false;
      std::vector<AclRegion> values;
      MatchBuilder own = match;
      if (!member(key, parts, values)) return false;
      if (!own.keep(within(parts), std::move(values), false, &region_work_)) return too_many(pair);
      set_match(r, own);
      out.push_back(std::move(r));
    }
    return true;
  }

  bool too_many(JsonValue at) {
    return fail(at,
                region_work_ > kMaxRegionWork
                    ? fmt::format("the conditions take more than {} steps to write out", kMaxRegionWork)
                    : fmt::format("the conditions of this rule make more than {} regions", MatchBuilder::kLimit),
                "simpler conditions");
  }
  void set_match(FilterRule& rule, const MatchBuilder& match) {
    rule.match = match.match();
    if (rule.target == Target::kReturn || rule.target == Target::kGoto) rule.rest = match.rest(&region_work_);
  }

  // ---- conditions --------------------------------------------------------------------------------------------------
  // Packets that have all the fields; none when no packet does.
  static std::vector<AclRegion> within(const std::vector<Selector>& parts) {
    std::vector<AclRegion> all(1);
    for (const Selector& s : parts) keep_only(all, {&s.within, 1}, 1);
    return all;
  }

  bool condition(JsonValue s, MatchBuilder& match) {
    std::vector<Selector> parts;
    if (!selectors(s["left"], match, parts)) return false;
    const std::string_view op = s["op"].text();
    const JsonValue right = s["right"];
    if (!right) return fail(s, "the match has no right side", "\"right\": VALUE");
    std::vector<AclRegion> values;
    bool negated = op == "!=";
    if (parts.size() == 1 && parts[0].field == Field::kTcpFlags && op == "in") {
      // Any of these flags: not none of them.
      const auto any = flag_bits(right, 0);
      if (!any) return not_understood(right, "TCP flags", "fin, syn, rst, psh, ack, urg, ecn, cwr or a list of them");
      AclRegion none;
      none.flags = {0, static_cast<uint16_t>(*any << 8)};
      values.push_back(none);
      negated = true;
    } else if (op == "==" || op == "!=" || op == "in") {
      if (!member(right, parts, values)) return false;
    } else if (op == "<" || op == ">" || op == "<=" || op == ">=") {
      if (parts.size() != 1 || !ordered(right, op, parts[0], values)) {
        return parts.size() == 1 ? false
                                 : fail(s, fmt::format("'{}' has no meaning for a concatenation", op), "==, != or in");
      }
    } else {
      return not_understood(s["op"] ? s["op"] : s, "an operator", "==, !=, <, >, <=, >= or in");
    }
    return match.keep(within(parts), std::move(values), negated, &region_work_) || too_many(s);
  }

  // The left side: one field, or the fields of a concatenation.
  bool selectors(JsonValue left, const MatchBuilder& match, std::vector<Selector>& out) {
    const JsonValue what = left.only();
    if (what.key() == "concat") {
      for (JsonValue part = what.first(); part; part = part.next()) {
        if (out.size() >= kMaxParts) return fail(part, "too many parts", fmt::format("at most {}", kMaxParts));
        if (!selector(part, match, out)) return false;
      }
      return !out.empty() || fail(left, "the concatenation is empty", "a list of fields");
    }
    return selector(left, match, out);
  }

  bool selector(JsonValue left, const MatchBuilder& match, std::vector<Selector>& out) {
    const JsonValue what = left.only();
    Selector s;
    if (what.key() == "&" && what.is(Kind::kArray)) {
      const JsonValue inner = what.first(), mask = inner.next();
      if (!mask || mask.next() || !selector(inner, match, out)) {
        return found_.ok() ? fail(left, "'&' takes a field and a mask", "{\"&\": [FIELD, MASK]}") : false;
      }
      Selector& made = out.back();
      const auto bits = made.field == Field::kTcpFlags ? flag_bits(mask, 0) : mask.integer();
      const bool fragment = made.field == Field::kFragment && (bits == 0x1fff || bits == 0x3fff);
      if (!bits || (made.field != Field::kTcpFlags && !fragment))
        return not_understood(left, "a masked field that a rule can look at", "tcp flags, or ip frag-off & 0x1fff");
      made.mask = static_cast<uint32_t>(*bits);
      return true;
    }
    if (what.key() == "meta") {
      const std::string_view key = what["key"].text();
      if (key == "l4proto") {
        s.field = Field::kProtocol;
        s.bits = 8;
      } else if (key == "nfproto" || key == "protocol") {
        s.field = Field::kFamily;
      } else {
        return fail(left, fmt::format("a rule cannot match meta '{}'", key), "meta l4proto, nfproto or protocol");
      }
      out.push_back(s);
      return true;
    }
    if (what.key() == "payload") {
      if (!payload(left, what["protocol"].text(), what["field"].text(), match, s)) return false;
      out.push_back(s);
      return true;
    }
    return fail(left,
                what.key().empty() ? std::string("the left side of the match is not understood")
                                   : fmt::format("expression '{}' is not understood", what.key().substr(0, 60)),
                "payload, meta l4proto or nfproto, '&' of them, or concat",
                what.key() == "ct" ? "rules see one packet at a time and know no connections" : "");
  }

  bool payload(JsonValue at, std::string_view protocol, std::string_view field, const MatchBuilder& match,
               Selector& s) {
    const uint8_t family = protocol == "ip" ? 4 : protocol == "ip6" ? 6 : 0;
    if (family != 0) {
      s.family = family;
      s.within.only_families(family == 4 ? AclRegion::kIpv4 : AclRegion::kIpv6);
      if (field == "saddr" || field == "daddr") {
        s.field = field == "saddr" ? Field::kSrc : Field::kDst;
        return true;
      }
      if (field == "dscp") {
        s.field = Field::kDscp;
        s.bits = 6;
        return true;
      }
      if (family == 4 && field == "protocol") {
        s.field = Field::kProtocol;
        s.bits = 8;
        return true;
      }
      if (family == 4 && field == "frag-off") {
        s.field = Field::kFragment;
        return true;
      }
      return fail(at, fmt::format("a rule cannot match '{} {}'", protocol, field),
                  "saddr, daddr, dscp, or ip protocol and frag-off",
                  field == "nexthdr" ? "write meta l4proto, which looks past extension headers" : "");
    }
    const auto number_of = find_named(kProtocols, protocol);
    const bool ports = protocol == "th" || (number_of && (*number_of == 6 || *number_of == 17 || *number_of == 132 ||
                                                          *number_of == 33 || *number_of == 136));
    if (ports && (field == "sport" || field == "dport")) {
      s.field = field == "sport" ? Field::kSrcPort : Field::kDstPort;
      if (protocol != "th") {
        s.within = with_ports(protocol_region(static_cast<uint8_t>(*number_of)));
        return true;
      }
      // The bytes where ports would be: exact only where ports are.
      AclRegion have_ports;
      have_ports.protocols = {};
      for (uint32_t p : {6u, 17u, 33u, 132u, 136u}) have_ports.protocols[p / 64] |= uint64_t{1} << p % 64;
      for (const AclRegion& r : match.match()) {
        if (!contains(have_ports, r)) {
          return fail(at, "'th' is looked at in packets that may have no ports",
                      "meta l4proto of tcp, udp, udplite, sctp or dccp before it");
        }
      }
      s.within = with_ports(have_ports);
      return true;
    }
    if (protocol == "tcp" && field == "flags") {
      s.field = Field::kTcpFlags;
      s.within = with_ports(protocol_region(6));
      s.mask = 0xff;
      return true;
    }
    if ((protocol == "icmp" || protocol == "icmpv6") && (field == "type" || field == "code")) {
      s.field = field == "type" ? Field::kIcmpType : Field::kIcmpCode;
      s.family = protocol == "icmp" ? 4 : 6;
      s.bits = 8;
      s.within = not_later_fragment(protocol_region(protocol == "icmp" ? 1 : 58));
      s.within.only_families(protocol == "icmp" ? AclRegion::kIpv4 : AclRegion::kIpv6);
      return true;
    }
    return fail(at, fmt::format("a rule cannot match '{} {}'", protocol, field),
                "addresses, ports, tcp flags, icmp type and code, ip dscp, protocol and frag-off");
  }

  // ---- values ------------------------------------------------------------------------------------------------------
  JsonValue named_set(JsonValue name) {
    const std::string_view text = name.text();
    const auto at = text.starts_with('@')
                        ? sets_.find(name_of(scope_["family"].text(), scope_["table"].text(), text.substr(1)))
                        : sets_.end();
    if (at == sets_.end()) {
      fail(name, fmt::format("there is no set '{}'", text), "'@' and the name of a set of this table");
      return {};
    }
    const JsonValue flags = at->second["flags"];  // a list, or one word
    for (JsonValue flag = flags.is(Kind::kString) ? flags : flags.first(); flag; flag = flag.next()) {
      if (flag.text() == "interval" || flag.text() == "constant") {
        if (flags.is(Kind::kString)) break;
        continue;
      }
      fail(name, fmt::format("the members of set '{}' change while packets flow ({})", text, flag.text()),
           "a set of fixed members");
      return {};
    }
    const JsonValue elements = at->second["elem"];
    if (elements.is(Kind::kArray)) return elements;
    if (elements) {
      fail(elements, "the members of the set are not a list", "a list");
    } else {
      fail(name, fmt::format("set '{}' has no members", text), "a set with members");
    }
    return {};
  }

  // Appends the keys whose fields have this value: one value, a set of them, a concatenation.
  bool member(JsonValue v, const std::vector<Selector>& parts, std::vector<AclRegion>& out, unsigned depth = 0) {
    if (depth > 8) return fail(v, "values are nested too deeply", "a value");
    JsonValue list;
    if (v.only().key() == "set") list = v.only();
    if (v.only().key() == "elem") return member(v.only()["val"], parts, out, depth + 1);
    if (v.is(Kind::kString) && v.text().starts_with('@')) {
      list = named_set(v);
      if (!list) return false;
    }
    const bool flag_list = parts.size() == 1 && parts[0].field == Field::kTcpFlags;
    if (v.is(Kind::kArray) && !flag_list) list = v;
    if (list) {
      if (list.is(Kind::kString)) return member(list, parts, out, depth + 1);
      size_t count = 0;
      for (JsonValue item = list.first(); item; item = item.next()) {
        if (++count > kMaxMembers || out.size() > MatchBuilder::kLimit)
          return fail(item, fmt::format("more than {} members", kMaxMembers), "a smaller set");
        if (!member(item, parts, out, depth + 1)) return false;
      }
      return true;
    }
    std::vector<AclRegion> made(1);
    const JsonValue concat = v.only().key() == "concat" ? v.only() : JsonValue();
    if (parts.size() > 1 && !concat.is(Kind::kArray))
      return not_understood(v, "a concatenation", fmt::format("{{\"concat\": [...]}} of {} values", parts.size()));
    JsonValue item = parts.size() > 1 ? concat.first() : v;
    for (const Selector& part : parts) {
      std::vector<AclRegion> values;
      if (!item) return fail(v, "the concatenation is too short", fmt::format("{} values", parts.size()));
      if (!value(item, part, values)) return false;
      if (!keep_only(made, values, MatchBuilder::kLimit)) return too_many(v);
      if (parts.size() > 1) item = item.next();
    }
    if (parts.size() > 1 && item)
      return fail(v, "the concatenation is too long", fmt::format("{} values", parts.size()));
    out.insert(out.end(), made.begin(), made.end());
    return true;
  }

  static uint64_t highest(const Selector& s) { return (uint64_t{1} << s.bits) - 1; }
  static const char* expected(const Selector& s) {
    switch (s.field) {
      case Field::kSrc:
      case Field::kDst:
        return s.family == 4 ? "an IPv4 address, prefix or range" : "an IPv6 address, prefix or range";
      case Field::kSrcPort:
      case Field::kDstPort:
        return "a port, 0..65535, or a range";
      case Field::kProtocol:
        return "a protocol, 0..255, or its name";
      case Field::kFamily:
        return "ipv4, ipv6, ip or ip6";
      case Field::kDscp:
        return "a DSCP, 0..63, or its class";
      case Field::kIcmpType:
      case Field::kIcmpCode:
        return "a number, 0..255, or its name";
      case Field::kTcpFlags:
        return "TCP flags";
      case Field::kFragment:
        return "0, under the mask 0x1fff or 0x3fff";
    }
    return "";
  }

  // One end of a value, in the low bits of an address.
  std::optional<IpAddress> scalar(JsonValue v, const Selector& s) {
    if (s.field == Field::kSrc || s.field == Field::kDst) {
      const auto a = v.is(Kind::kString) ? parse_ip(v.text()) : std::nullopt;
      return a && a->family == s.family ? a : std::nullopt;
    }
    std::optional<uint32_t> n;
    if (const auto integer = v.integer(); integer && *integer <= highest(s)) n = static_cast<uint32_t>(*integer);
    if (v.is(Kind::kString)) {
      const std::string_view t = v.text();
      n = number(t, highest(s));
      if (s.field == Field::kProtocol && !n) n = t == "ipv6-icmp" ? std::optional(58u) : find_named(kProtocols, t);
      if ((s.field == Field::kSrcPort || s.field == Field::kDstPort) && !n) n = find_named(kServices, t);
      if (s.field == Field::kDscp && !n) n = dscp_value(t);
      if (s.field == Field::kIcmpType && !n) n = s.family == 4 ? find_named(kIcmpTypes, t) : find_named(kIcmp6Types, t);
    }
    if (!n || *n > highest(s)) return std::nullopt;
    return IpAddress{0, *n, 4};
  }

  // Appends the keys with the field from low to high.
  static void between(const IpAddress& low, const IpAddress& high, const Selector& s, std::vector<AclRegion>& out) {
    AclRegion r;
    const AclRegion::Range ports{static_cast<uint16_t>(low.lo), static_cast<uint16_t>(high.lo)};
    switch (s.field) {
      case Field::kSrc:
      case Field::kDst:
        s.field == Field::kSrc ? r.only_src(low, high) : r.only_dst(low, high);
        break;
      case Field::kSrcPort:
      case Field::kDstPort:
        (s.field == Field::kSrcPort ? r.src_port : r.dst_port) = ports;
        break;
      case Field::kProtocol:
        r.protocols = {};
        for (uint64_t p = low.lo; p <= high.lo; ++p) r.protocols[p / 64] |= uint64_t{1} << p % 64;
        break;
      case Field::kDscp:
        r.dscp = 0;
        for (uint64_t d = low.lo; d <= high.lo; ++d) r.dscp |= uint64_t{1} << d;
        break;
      case Field::kIcmpType:
      case Field::kIcmpCode: {
        const unsigned shift = s.field == Field::kIcmpType ? 8 : 0;
        for (const IpPrefix& prefix : prefixes_of_range(low, high)) {
          out.emplace_back();
          out.back().icmp = {static_cast<uint16_t>(prefix.address.lo << shift),
                             static_cast<uint16_t>((high_mask32(prefix.length) & 0xff) << shift)};
        }
        return;
      }
      default:
        return;
    }
    out.push_back(r);
  }

  bool value(JsonValue v, const Selector& s, std::vector<AclRegion>& out) {
    auto wrong = [&] { return not_understood(v, "a value of this field", expected(s)); };
    if (v.only().key() == "elem") return value(v.only()["val"], s, out);
    if (s.field == Field::kTcpFlags) {
      const auto bits = flag_bits(v, 0);
      if (!bits) return wrong();
      if ((*bits & ~s.mask) != 0) return true;  // no packet
      out.emplace_back();
      out.back().flags = {static_cast<uint16_t>(*bits << 8), static_cast<uint16_t>(s.mask << 8)};
      return true;
    }
    if (s.field == Field::kFamily) {
      const std::string_view t = v.text();
      const bool four = t == "ipv4" || t == "ip", six = t == "ipv6" || t == "ip6";
      if (!four && !six) return wrong();
      out.emplace_back();
      out.back().only_families(four ? AclRegion::kIpv4 : AclRegion::kIpv6);
      return true;
    }
    if (s.field == Field::kFragment) {
      if (v.integer() != 0 || (s.mask != 0x1fff && s.mask != 0x3fff)) return wrong();
      out.emplace_back();
      out.back().only_bits(0, s.mask == 0x1fff ? FlowKey::kLaterFragment : FlowKey::kFragment);
      return true;
    }
    if (const JsonValue range = v.only(); range.key() == "range") {
      const auto low = scalar(range.first(), s), high = scalar(range.first().next(), s);
      if (!low || !high) return wrong();
      if (high->hi < low->hi || (high->hi == low->hi && high->lo < low->lo))
        return fail(v, "the range is empty", "LOW before HIGH");
      between(*low, *high, s, out);
      return true;
    }
    if (const JsonValue prefix = v.only(); prefix.key() == "prefix") {
      const auto address = scalar(prefix["addr"], s);
      const auto length = prefix["len"].integer();
      const bool addresses = s.field == Field::kSrc || s.field == Field::kDst;
      if (!addresses || !address || !length || *length > (s.family == 4 ? 32u : 128u)) return wrong();
      out.emplace_back();
      const IpPrefix p{*address, static_cast<uint8_t>(*length)};
      s.field == Field::kSrc ? out.back().only_src(p) : out.back().only_dst(p);
      return true;
    }
    const auto one = scalar(v, s);
    if (!one) return wrong();
    between(*one, *one, s, out);
    return true;
  }

  // < > <= >= of a number or an address.
  bool ordered(JsonValue right, std::string_view op, const Selector& s, std::vector<AclRegion>& out) {
    if (s.field == Field::kTcpFlags || s.field == Field::kFamily || s.field == Field::kFragment)
      return fail(right, fmt::format("'{}' has no meaning for this field", op), "==, != or in");
    const auto edge = scalar(right, s);
    if (!edge) return not_understood(right, "a value of this field", expected(s));
    const bool addresses = s.field == Field::kSrc || s.field == Field::kDst;
    IpAddress lowest{0, 0, edge->family}, last{0, highest(s), edge->family};
    if (addresses) last = edge->family == 4 ? IpAddress{0, 0xffffffff, 4} : IpAddress{~0ull, ~0ull, 6};
    IpAddress low = *edge, high = *edge;
    if (op[0] == '<') {
      low = lowest;
      if (op == "<") {
        if (*edge == lowest) return true;  // nothing is below
        if (high.lo-- == 0) --high.hi;
      }
    } else {
      high = last;
      if (op == ">") {
        if (*edge == last) return true;
        if (++low.lo == 0) ++low.hi;
      }
    }
    between(low, high, s, out);
    return true;
  }

  // "syn", 2, ["syn", "ack"] or {"|": [...]}.
  static std::optional<uint64_t> flag_bits(JsonValue v, unsigned depth) {
    if (depth > 8) return std::nullopt;
    if (const auto n = v.integer()) return *n <= 255 ? n : std::nullopt;
    if (v.is(Kind::kString)) {
      if (v.text() == "ecn") return 64;
      return find_named(kFlags, v.text());
    }
    JsonValue list = v;
    if (v.only().key() == "|") list = v.only();
    if (!list.is(Kind::kArray)) return std::nullopt;
    uint64_t bits = 0;
    for (JsonValue item = list.first(); item; item = item.next()) {
      const auto one = flag_bits(item, depth + 1);
      if (!one) return std::nullopt;
      bits |= *one;
    }
    return bits;
  }

  std::string_view text_;
  std::string_view asked_;
  Diagnostics found_;
  RuleSet set_;
  std::optional<JsonText> json_;
  std::vector<size_t> lines_;  // where each newline stands
  std::vector<Chain> chains_;
  std::vector<JsonValue> rules_;
  std::map<std::string, size_t, std::less<>> index_;  // of chains, by family/table/name
  std::map<std::string, JsonValue, std::less<>> sets_;
  JsonValue scope_;     // the rule that is read: its family and table
  uint8_t family_ = 3;  // of the base chain
  uint64_t region_work_ = 0;
};

}  // namespace

Result<RuleSet> parse_nft_rules(std::string_view text, const std::string& file_name, std::string_view chain) {
  return Reader(text, file_name, chain).run();
}

}  // namespace sluice
