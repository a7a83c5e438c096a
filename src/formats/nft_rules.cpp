#include "formats/nft_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/log.h"
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
constexpr size_t kMaxPath = 32;     // base chains that a packet meets

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
  kState,
};
struct Selector {
  Field field = Field::kSrc;
  AclRegion within;           // packets that have the field
  uint8_t family = 0;         // of addresses; of ICMP names
  unsigned bits = 16;         // of numbers
  uint32_t mask = ~0u;        // of TCP flags, fragment offsets and states
  bool any_protocol = false;  // th: the bytes where ports would be
};

// The kernel's numbers. A packet has one of these, and it is never "untracked" here.
constexpr Named kStateBits[] = {{"invalid", 1}, {"established", 2}, {"related", 4}, {"new", 8}, {"untracked", 64}};
constexpr uint64_t kAllStates = 79;

// In the order in which a packet meets them.
enum class Hook : uint8_t { kNone, kIngress, kPrerouting, kInput, kForward, kOutput, kPostrouting, kEgress };

struct Chain {
  std::string family, table, name;
  uint8_t families = 0;  // none: of arp, bridge or netdev
  Hook hook = Hook::kNone;
  bool base = false, filter = false;
  int priority = 0;
  AclVerb policy = AclVerb::kPermit;
  JsonValue declared;
  std::vector<JsonValue> rules;

  // Whether it does anything else than to accept every packet.
  bool decides() const { return !rules.empty() || policy == AclVerb::kDeny; }
  std::string title() const { return table + "/" + name; }
};

// The base chains that packets of some families meet, one behind the other.
struct Path {
  uint8_t families = 0;
  std::vector<size_t> chains;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name, std::string_view chain, const StateReading& states)
      : text_(text), asked_(chain), states_(states), found_(file_name, text) {
    set_.files.push_back(file_name);
  }

  Result<RuleSet> run() {
    json_ = JsonText::parse(text_, found_);
    if (!json_) return found_.to_error();
    index_lines();
    collect();
    if (!found_.ok()) return found_.to_error();
    for (const Path& path : choose()) read_path(path);
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

  static Hook hook_of(std::string_view word) {
    constexpr std::pair<std::string_view, Hook> kHooks[] = {
        {"ingress", Hook::kIngress}, {"prerouting", Hook::kPrerouting}, {"input", Hook::kInput},
        {"forward", Hook::kForward}, {"output", Hook::kOutput},         {"postrouting", Hook::kPostrouting},
        {"egress", Hook::kEgress}};
    for (const auto& [name, hook] : kHooks) {
      if (word == name) return hook;
    }
    return Hook::kNone;
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
        Chain c;
        c.family = std::string(family);
        c.table = std::string(table);
        c.name = std::string(name);
        c.families = families_of(family).value_or(0);
        c.base = static_cast<bool>(object["hook"]);
        c.hook = hook_of(object["hook"].text());
        c.filter = object["type"].text() == "filter";
        const std::string_view priority = object["prio"].text();
        std::from_chars(priority.data(), priority.data() + priority.size(), c.priority);
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
      const auto at = index_.find(name_of(rule["family"].text(), rule["table"].text(), rule["chain"].text()));
      if (at == index_.end()) {
        fail(rule, fmt::format("there is no chain '{}'", rule["chain"].text()), "a chain that is listed before it");
        if (enough()) return;
        continue;
      }
      chains_[at->second].rules.push_back(rule);
    }
  }

  // ---- which chains ------------------------------------------------------------------------------------------------
  std::vector<Path> refuse(JsonValue at, std::string message, std::string suggestion = {}) {
    fail(at, std::move(message), "one base chain", std::move(suggestion));
    return {};
  }
  std::string titles(const std::vector<size_t>& which) const {
    std::vector<std::string> names;
    for (size_t c : which) names.push_back(chains_[c].title());
    if (names.size() > 8) names.resize(8);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  // The chains to read: see the header. Empty: reported.
  std::vector<Path> choose() { return asked_.empty() ? choose_path() : choose_asked(); }

  std::vector<Path> choose_asked() {
    std::vector<size_t> found, left_out;
    for (size_t c = 0; c < chains_.size(); ++c) {
      const Chain& chain = chains_[c];
      const bool named = chain.families != 0 && (chain.name == asked_ || chain.title() == asked_);
      if (named) {
        found.push_back(c);
      } else if (chain.base && chain.families != 0 && chain.decides()) {
        left_out.push_back(c);
      }
    }
    if (found.empty()) return refuse(json_->root()["nftables"], fmt::format("there is no chain '{}'", asked_));
    std::vector<Path> paths;
    uint8_t families = 0;
    for (size_t c : found) {
      const Chain& chain = chains_[c];
      if ((families & chain.families) != 0 || chain.name != chains_[found[0]].name) {
        return refuse(chain.declared, fmt::format("several base chains decide packets: {}", titles(found)),
                      fmt::format("choose one with the format nft:{}", chains_[found[0]].title()));
      }
      families |= chain.families;
      if (!chain.base) return refuse(chain.declared, fmt::format("chain '{}' has no hook and no policy", chain.name));
      if (!chain.filter) return refuse(chain.declared, fmt::format("chain '{}' is not of the type filter", chain.name));
      paths.push_back({chain.families, {c}});
    }
    if (!left_out.empty() && states_.warns())
      SLUICE_LOG(kWarning, "{}: only {} is read; not read: {}", name(), titles(found), titles(left_out));
    return paths;
  }

  // What a packet meets that is forwarded; where no chain says anything of such packets, what one meets that comes in
  // or goes out.
  std::vector<Path> choose_path() {
    auto some = [&](Hook hook, bool (*says)(const Chain&)) {
      return std::any_of(chains_.begin(), chains_.end(), [&](const Chain& c) {
        return c.families != 0 && c.base && c.filter && (hook == Hook::kNone || c.hook == hook) && says(c);
      });
    };
    constexpr auto kDecides = [](const Chain& c) { return c.decides(); };
    constexpr auto kHasRules = [](const Chain& c) { return !c.rules.empty(); };
    constexpr auto kAny = [](const Chain&) { return true; };
    Hook through = Hook::kForward;
    if (!some(Hook::kForward, kDecides)) {
      if (some(Hook::kInput, kHasRules)) {
        through = Hook::kInput;
      } else if (some(Hook::kOutput, kHasRules)) {
        through = Hook::kOutput;
      } else if (!some(Hook::kForward, kAny) && !some(Hook::kPrerouting, kDecides) &&
                 !some(Hook::kPostrouting, kDecides)) {
        through = some(Hook::kInput, kAny) ? Hook::kInput : some(Hook::kOutput, kAny) ? Hook::kOutput : Hook::kForward;
      }
    }
    auto met = [&](const Chain& c) {
      return c.base && (c.hook == through || c.hook == Hook::kIngress || c.hook == Hook::kEgress ||
                        (c.hook == Hook::kPrerouting && through != Hook::kOutput) ||
                        (c.hook == Hook::kPostrouting && through != Hook::kInput));
    };
    std::vector<size_t> read, left_out, translating;
    for (size_t c = 0; c < chains_.size(); ++c) {
      const Chain& chain = chains_[c];
      if (chain.family == "arp" || !chain.base) continue;
      const bool ip = chain.families != 0, rest = chain.family == "bridge" || !met(chain);
      if (!rest && chain.hook != Hook::kIngress && chain.hook != Hook::kEgress && ip && chain.filter) {
        read.push_back(c);
      } else if (rest && chain.decides()) {
        left_out.push_back(c);
      } else if (!rest && may_drop(c)) {
        // An interface's, or one that sees the first packet of a connection.
        return refuse(
            chain.declared,
            fmt::format("base chain '{}' may drop packets too, and only chains of the type filter that see the "
                        "packets of all interfaces are read",
                        chain.title()),
            "choose the chain to read with the format nft:TABLE/CHAIN");
      } else if (chain.decides()) {
        translating.push_back(c);
      }
    }
    if (read.empty()) return refuse(json_->root()["nftables"], "there is no base chain of the type filter");
    std::stable_sort(read.begin(), read.end(), [&](size_t a, size_t b) {
      return std::pair(chains_[a].hook, chains_[a].priority) < std::pair(chains_[b].hook, chains_[b].priority);
    });
    std::vector<Path> paths;
    for (uint8_t family : {AclRegion::kIpv4, AclRegion::kIpv6}) {
      Path path{family, {}};
      std::optional<size_t> empty;
      for (size_t c : read) {
        if ((chains_[c].families & family) == 0) continue;
        if (chains_[c].decides()) {
          path.chains.push_back(c);
        } else if (!empty || chains_[c].hook == through) {
          empty = c;
        }
      }
      if (path.chains.size() > kMaxPath) {
        return refuse(chains_[path.chains[0]].declared,
                      fmt::format("more than {} base chains decide packets", kMaxPath),
                      "choose one with the format nft:TABLE/CHAIN");
      }
      if (path.chains.empty() && empty) path.chains.push_back(*empty);
      if (!path.chains.empty()) paths.push_back(path);
    }
    if (paths.size() == 2 && paths[0].chains == paths[1].chains) {
      paths.pop_back();
      paths[0].families = AclRegion::kIpv4 | AclRegion::kIpv6;
    }
    read.clear();
    for (const Path& path : paths) {
      for (size_t c : path.chains) {
        if (std::find(read.begin(), read.end(), c) == read.end()) read.push_back(c);
      }
    }
    if (!left_out.empty() && states_.warns()) {
      SLUICE_LOG(kWarning, "{}: read: {}; not read: {}; the format nft:TABLE/CHAIN chooses one", name(), titles(read),
                 titles(left_out));
    }
    if (!translating.empty() && states_.warns())
      SLUICE_LOG(kWarning, "{}: not read, as they drop nothing: {}; rules match the addresses that packets arrive with",
                 name(), titles(translating));
    return paths;
  }
  const std::string& name() const { return set_.files[0]; }

  // Whether a packet may end in the chain or in one that it reaches.
  bool may_drop(size_t base) {
    std::set<size_t> seen{base};
    std::set<std::string_view> maps;
    std::vector<size_t> todo{base};
    while (!todo.empty()) {
      const Chain& chain = chains_[todo.back()];
      todo.pop_back();
      if (chain.policy == AclVerb::kDeny) return true;
      for (JsonValue rule : chain.rules) {
        std::vector<JsonValue> values{rule["expr"]};
        while (!values.empty()) {
          const JsonValue v = values.back();
          values.pop_back();
          const std::string_view key = v.key(), word = v.text();
          if (key == "drop" || key == "reject" || key == "queue" || key == "synproxy") return true;
          if (key == "jump" || key == "goto") {
            const auto to = index_.find(name_of(chain.family, chain.table, v["target"].text()));
            if (to != index_.end() && seen.insert(to->second).second) todo.push_back(to->second);
          }
          if (v.is(Kind::kString) && word.starts_with('@') && maps.insert(word).second) {
            const auto set = sets_.find(name_of(chain.family, chain.table, word.substr(1)));
            if (set != sets_.end()) values.push_back(set->second["elem"]);
          }
          for (JsonValue inner = v.first(); inner; inner = inner.next()) values.push_back(inner);
        }
      }
    }
    return false;
  }

  // ---- chains ------------------------------------------------------------------------------------------------------
  FilterRule whole_path(const Path& path, size_t at, Target target) const {
    FilterRule rule;
    rule.match.emplace_back().only_families(path.families);
    rule.target = target;
    const JsonValue declared = chains_[path.chains[at]].declared;
    rule.line = line_of(declared);
    rule.at = declared.at();
    rule.length = std::min<size_t>(declared.length(), 200);
    return rule;
  }

  void read_path(const Path& path) {
    // Chains are numbered anew. bodies[k] is base chain k of the path, enter[k] the path from there on: what base chain
    // k accepts goes on in enter[k + 1]. A chain that two base chains reach is there twice.
    std::vector<FilterChain> out;
    std::vector<size_t> enter, bodies;
    const size_t count = path.chains.size();
    stateful_ = false;
    for (size_t c : path.chains) {
      if (count > 1) {
        enter.push_back(out.size());
        out.push_back({chains_[c].name, {}});
      }
      bodies.push_back(out.size());
      out.push_back({chains_[c].name, {}});
    }
    for (size_t k = 0; k < count && !enough(); ++k)
      read_chains(path, k, bodies[k], k + 1 < count ? std::optional(enter[k + 1]) : std::nullopt, out);
    if (!found_.ok()) return;
    FilterPolicy policy;
    policy.families = path.families;
    policy.keep = stateful_ && states_.state == ConnState::kNew;
    auto drops = [&](size_t k) { return chains_[path.chains[k]].policy == AclVerb::kDeny; };
    size_t end = 0;  // whose policy decides what nothing else does
    while (end + 1 < count && !drops(end)) ++end;
    policy.verb = chains_[path.chains[end]].policy;
    policy.line = line_of(chains_[path.chains[end]].declared);
    for (size_t k = 0; k < enter.size(); ++k) {
      std::vector<FilterRule>& rules = out[enter[k]].rules;
      for (size_t i = k;; ++i) {
        if (!out[bodies[i]].rules.empty()) {
          rules.push_back(whole_path(path, i, Target::kJump));
          rules.back().chain = bodies[i];
        }
        if (!drops(i) && i + 1 < count) continue;
        if (k > 0) rules.push_back(whole_path(path, i, drops(i) ? Target::kDrop : Target::kAccept));
        break;
      }
    }
    if (const auto problem = flatten_chains(out, 0, policy, 0, set_)) {
      Diagnostic& d = found_.error_at(problem->at, problem->length, problem->message);
      d.expected = problem->expected;
    }
  }

  // Base chain k of the path as chain `to` of `out`, and all that it reaches behind what is there.
  void read_chains(const Path& path, size_t k, size_t to, std::optional<size_t> accepted,
                   std::vector<FilterChain>& out) {
    family_ = path.families;
    std::map<size_t, size_t> local{{path.chains[k], to}};
    std::vector<size_t> todo{path.chains[k]};
    while (!todo.empty() && !enough()) {
      const size_t c = todo.back();
      todo.pop_back();
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
          } else if (r.target == Target::kAccept && accepted) {
            r.target = Target::kJump;  // nothing comes back from there
            r.chain = *accepted;
          }
          out[local[c]].rules.push_back(std::move(r));
        }
      }
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
      put_into(match, pending);
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
        put_into(match, r);
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
    if (!selectors(s["key"], parts)) return false;
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
    JsonValue other;  // of "*", which any key matches that no member has
    FilterRule other_rule = proto;
    std::vector<AclRegion> back;  // keys of members after which the next statement comes: not "*"
    for (JsonValue pair = data.first(); pair && !enough(); pair = pair.next()) {
      const JsonValue key = pair.first(), value = key.next();
      if (++count > kMaxMembers) return fail(pair, fmt::format("more than {} members", kMaxMembers), "a smaller map");
      FilterRule r = proto;
      if (!pair.is(Kind::kArray) || !value || value.next())
        return not_understood(pair, "a pair of a key and a verdict", "[KEY, VERDICT]");
      if (!verdict(value, r)) return false;
      if (is_catch_all(key)) {
        other = pair;
        other_rule = r;
        continue;
      }
      std::vector<AclRegion> values;
      MatchBuilder own = match;
      if (!member(key, parts, values) || !have_ports(pair, parts, values, match)) return false;
      if (r.target == Target::kJump || r.target == Target::kContinue)
        back.insert(back.end(), values.begin(), values.end());
      if (!own.keep(within(parts), std::move(values), false, &region_work_)) return too_many(pair);
      put_into(own, r);
      out.push_back(std::move(r));
    }
    if (other) {
      MatchBuilder own = match;
      if (!have_ports(other, parts, std::vector<AclRegion>(1), match)) return false;
      if (!own.keep(within(parts), std::move(back), true, &region_work_)) return too_many(other);
      put_into(own, other_rule);
      out.push_back(std::move(other_rule));
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
  // Without tests of IPv4 packets for a header that they do not have.
  static void put_into(const MatchBuilder& match, FilterRule& rule) {
    match.put_into(rule);
    AclRegion behind;
    behind.only_bits(FlowKey::kAfterAh, FlowKey::kAfterAh);
    std::vector<AclRegion> all;
    for (AclRegion r : rule.match) {
      if (r.families == AclRegion::kIpv4) {
        if ((r.bits &= ~behind.bits) == 0) continue;
        for (const uint8_t bits : AclRegion::kOccurring) {
          if ((r.bits & AclRegion::bit_of(bits)) != 0) r.bits |= AclRegion::bit_of(bits | FlowKey::kAfterAh);
        }
      }
      all.push_back(r);
    }
    rule.match = std::move(all);
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
    if (!selectors(s["left"], parts)) return false;
    const std::string_view op = s["op"].text();
    const JsonValue right = s["right"];
    if (!right) return fail(s, "the match has no right side", "\"right\": VALUE");
    std::vector<AclRegion> values;
    bool negated = op == "!=";
    if (parts.size() == 1 && parts[0].field == Field::kTcpFlags && (op == "in" || op == "!")) {
      // Any of these flags, or none of them.
      const auto any = flag_bits(right, 0);
      if (!any) return not_understood(right, "TCP flags", "fin, syn, rst, psh, ack, urg, ecn, cwr or a list of them");
      values.emplace_back().flags = {0, static_cast<uint16_t>((*any & parts[0].mask) << 8)};
      negated = op == "in";
    } else if (parts.size() == 1 && parts[0].field == Field::kState && (op == "in" || op == "!") &&
               state_bits(right, 0)) {
      // Any of these states, or none of them.
      if ((*state_bits(right, 0) & parts[0].mask & asked_bit()) != 0) values.emplace_back();
      negated = op == "!";
    } else if (op == "==" || op == "!=" || op == "in") {
      if (!member(right, parts, values)) return false;
    } else if (op == "<" || op == ">" || op == "<=" || op == ">=") {
      if (parts.size() != 1 || !ordered(right, op, parts[0], values)) {
        return parts.size() == 1 ? false
                                 : fail(s, fmt::format("'{}' has no meaning for a concatenation", op), "==, != or in");
      }
    } else {
      return not_understood(s["op"] ? s["op"] : s, "an operator", "==, !=, !, <, >, <=, >= or in");
    }
    if (parts.size() == 1 && parts[0].field == Field::kState) {
      // All packets or none.
      return values.empty() == negated || match.keep(within(parts), {}, false, &region_work_) || too_many(s);
    }
    const std::vector<AclRegion> any(1);
    if (!have_ports(s["left"], parts, negated ? any : values, match)) return false;
    return match.keep(within(parts), std::move(values), negated, &region_work_) || too_many(s);
  }

  // `th` looks at the bytes where ports would be: what it finds is known where ports are.
  bool have_ports(JsonValue at, const std::vector<Selector>& parts, const std::vector<AclRegion>& values,
                  const MatchBuilder& match) {
    if (std::none_of(parts.begin(), parts.end(), [](const Selector& s) { return s.any_protocol; })) return true;
    const AclRegion ports = protocols_with_ports();
    auto good = [&](const AclRegion& r) { return contains(ports, r); };
    if (std::all_of(match.match().begin(), match.match().end(), good)) return true;
    for (const AclRegion& value : values) {
      if (good(value)) continue;
      for (const AclRegion& r : match.match()) {
        const auto both = intersect(value, r);
        if (both && !good(*both)) {
          return fail(at, "'th' is looked at in packets that may have no ports",
                      "meta l4proto of tcp, udp, udplite, sctp or dccp before it, or in the same key");
        }
      }
    }
    return true;
  }

  // The left side: one field, or the fields of a concatenation.
  bool selectors(JsonValue left, std::vector<Selector>& out) {
    const JsonValue what = left.only();
    if (what.key() == "concat") {
      for (JsonValue part = what.first(); part; part = part.next()) {
        if (out.size() >= kMaxParts) return fail(part, "too many parts", fmt::format("at most {}", kMaxParts));
        if (!selector(part, out)) return false;
      }
      return !out.empty() || fail(left, "the concatenation is empty", "a list of fields");
    }
    return selector(left, out);
  }

  bool selector(JsonValue left, std::vector<Selector>& out) {
    const JsonValue what = left.only();
    Selector s;
    if (what.key() == "&" && what.is(Kind::kArray)) {
      const JsonValue inner = what.first(), mask = inner.next();
      if (!mask || mask.next() || !selector(inner, out)) {
        return found_.ok() ? fail(left, "'&' takes a field and a mask", "{\"&\": [FIELD, MASK]}") : false;
      }
      Selector& made = out.back();
      const bool state = made.field == Field::kState;
      const auto bits = made.field == Field::kTcpFlags ? flag_bits(mask, 0)
                        : state                        ? state_bits(mask, 0)
                                                       : mask.integer();
      const bool fragment = made.field == Field::kFragment && (bits == 0x1fff || bits == 0x3fff);
      if (!bits || (made.field != Field::kTcpFlags && !fragment && !state)) {
        return not_understood(left, "a masked field that a rule can look at",
                              "tcp flags, ct state, or ip frag-off & 0x1fff");
      }
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
    if (what.key() == "ct") {
      const std::string_view key = what["key"].text();
      if (key != "state") return fail(left, fmt::format("a rule cannot match ct '{}'", key.substr(0, 60)), "ct state");
      stateful_ = true;
      states_.found();
      if (!states_.state) return fail(left, kNeedsState, kStateWanted);
      s.field = Field::kState;
      out.push_back(s);
      return true;
    }
    if (what.key() == "payload") {
      if (!payload(left, what["protocol"].text(), what["field"].text(), s)) return false;
      out.push_back(s);
      return true;
    }
    return fail(left,
                what.key().empty() ? std::string("the left side of the match is not understood")
                                   : fmt::format("expression '{}' is not understood", what.key().substr(0, 60)),
                "payload, meta l4proto or nfproto, ct state, '&' of them, or concat");
  }

  static AclRegion protocols_with_ports() {
    AclRegion r;
    r.protocols = {};
    for (uint32_t p : {6u, 17u, 33u, 132u, 136u}) r.protocols[p / 64] |= uint64_t{1} << p % 64;
    return r;
  }

  bool payload(JsonValue at, std::string_view protocol, std::string_view field, Selector& s) {
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
    const auto number_of = ip_protocol(protocol);
    const bool ports = protocol == "th" || (number_of && (*number_of == 6 || *number_of == 17 || *number_of == 132 ||
                                                          *number_of == 33 || *number_of == 136));
    if (ports && (field == "sport" || field == "dport")) {
      s.field = field == "sport" ? Field::kSrcPort : Field::kDstPort;
      if (protocol != "th") {
        s.within = before_ah(with_ports(protocol_region(static_cast<uint8_t>(*number_of))), family_);
        return true;
      }
      s.any_protocol = true;
      s.within = before_ah(with_ports(protocols_with_ports()), family_);
      return true;
    }
    if (protocol == "tcp" && field == "flags") {
      s.field = Field::kTcpFlags;
      s.within = before_ah(with_flags(protocol_region(6)), family_);
      s.mask = 0xff;
      return true;
    }
    if ((protocol == "icmp" || protocol == "icmpv6") && (field == "type" || field == "code")) {
      s.field = field == "type" ? Field::kIcmpType : Field::kIcmpCode;
      s.family = protocol == "icmp" ? 4 : 6;
      s.bits = 8;
      const bool six = protocol == "icmpv6";
      const AclRegion all = protocol_region(six ? 58 : 1);
      s.within = field == "type" ? with_icmp_type(all) : with_flags(all);
      if (six) s.within = before_ah(s.within);
      s.within.only_families(six ? AclRegion::kIpv6 : AclRegion::kIpv4);
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

  static bool is_catch_all(JsonValue v) {
    for (unsigned depth = 0; depth < 8 && v.only().key() == "elem"; ++depth) v = v.only()["val"];
    return v.is(Kind::kString) && v.text() == "*";
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
    const bool flag_list = parts.size() == 1 && (parts[0].field == Field::kTcpFlags || parts[0].field == Field::kState);
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
    if (depth > 0 && is_catch_all(v)) {
      out.emplace_back();
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
      case Field::kState:
        return "new, established, related, invalid or untracked";
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
      if (s.field == Field::kProtocol && !n) n = ip_protocol(t);
      if ((s.field == Field::kSrcPort || s.field == Field::kDstPort) && !n) n = find_named(kServices, t);
      if (s.field == Field::kDscp && !n) n = dscp_value(t);
      if (s.field == Field::kIcmpType && !n) n = s.family == 4 ? find_named(kIcmpTypes, t) : find_named(kIcmp6Types, t);
      if (s.field == Field::kIcmpCode && !n) n = s.family == 4 ? find_named(kIcmpCodes, t) : find_named(kIcmp6Codes, t);
    }
    if (!n || *n > highest(s)) return std::nullopt;
    return IpAddress{0, *n, 4};
  }

  // Appends the keys with the field from low to high.
  void between(const IpAddress& low, const IpAddress& high, const Selector& s, std::vector<AclRegion>& out) {
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
        for (const AclRegion& one : nf_tables_protocols(r, s.family == 4 ? AclRegion::kIpv4 : family_))
          out.push_back(one);
        return;
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
    if (s.field == Field::kState) {
      const auto bits = state_bits(v, 0);
      if (!bits) return wrong();
      if ((asked_bit() & s.mask) == *bits) out.emplace_back();
      return true;
    }
    if (s.field == Field::kFamily) {
      const std::string_view t = v.text();
      const bool four = t == "ipv4" || t == "ip", six = t == "ipv6" || t == "ip6";
      if (t == "arp" || t == "8021q" || t == "8021ad" || t == "vlan") return true;  // no packet of these tables
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
    if (s.field == Field::kTcpFlags || s.field == Field::kFamily || s.field == Field::kFragment ||
        s.field == Field::kState)
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
    return bits_of(v, depth, [](JsonValue one) -> std::optional<uint64_t> {
      if (const auto n = one.integer()) return *n <= 255 ? n : std::nullopt;
      if (one.text() == "ecn") return 64;
      return find_named(kFlags, one.text());
    });
  }
  // The same of states.
  static std::optional<uint64_t> state_bits(JsonValue v, unsigned depth) {
    return bits_of(v, depth, [](JsonValue one) -> std::optional<uint64_t> {
      if (const auto n = one.integer()) return (*n & ~kAllStates) == 0 ? n : std::nullopt;
      return find_named(kStateBits, one.text());
    });
  }
  template <typename One>
  static std::optional<uint64_t> bits_of(JsonValue v, unsigned depth, One one) {
    if (depth > 8) return std::nullopt;
    if (v.integer() || v.is(Kind::kString)) return one(v);
    JsonValue list = v;
    if (v.only().key() == "|") list = v.only();
    if (!list.is(Kind::kArray)) return std::nullopt;
    uint64_t bits = 0;
    for (JsonValue item = list.first(); item; item = item.next()) {
      const auto each = bits_of(item, depth + 1, one);
      if (!each) return std::nullopt;
      bits |= *each;
    }
    return bits;
  }
  // Of the state that is asked for.
  uint64_t asked_bit() const { return *find_named(kStateBits, to_string(*states_.state)); }

  std::string_view text_;
  std::string_view asked_;
  StateReading states_;
  bool stateful_ = false;  // a rule of the path looks at a state
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

Result<RuleSet> parse_nft_rules(std::string_view text, const std::string& file_name, std::string_view chain,
                                const StateReading& states) {
  return Reader(text, file_name, chain, states).run();
}

}  // namespace sluice
