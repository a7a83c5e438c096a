#include "formats/iptables_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <map>
#include <optional>
#include <span>

#include "base/log.h"
#include "formats/filter_chains.h"
#include "formats/iptables_words.h"
#include "formats/match_builder.h"
#include "formats/names.h"
#include "formats/scanner.h"
#include "net/text.h"

namespace sluice {
namespace {

using namespace names;

constexpr size_t kMaxChains = 65536;
constexpr size_t kMaxLines = size_t{1} << 22;

// Names of ICMP types with their codes, besides those of nft; code -1: all of the type.
struct NamedIcmp {
  std::string_view name;
  uint8_t type;
  int16_t code = -1;
};
constexpr NamedIcmp kMoreIcmp[] = {{"pong", 0},
                                   {"ping", 8},
                                   {"ttl-exceeded", 11},
                                   {"network-unreachable", 3, 0},
                                   {"host-unreachable", 3, 1},
                                   {"protocol-unreachable", 3, 2},
                                   {"port-unreachable", 3, 3},
                                   {"fragmentation-needed", 3, 4},
                                   {"source-route-failed", 3, 5},
                                   {"network-unknown", 3, 6},
                                   {"host-unknown", 3, 7},
                                   {"network-prohibited", 3, 9},
                                   {"host-prohibited", 3, 10},
                                   {"TOS-network-unreachable", 3, 11},
                                   {"TOS-host-unreachable", 3, 12},
                                   {"communication-prohibited", 3, 13},
                                   {"host-precedence-violation", 3, 14},
                                   {"precedence-cutoff", 3, 15},
                                   {"network-redirect", 5, 0},
                                   {"host-redirect", 5, 1},
                                   {"TOS-network-redirect", 5, 2},
                                   {"TOS-host-redirect", 5, 3},
                                   {"ttl-zero-during-transit", 11, 0},
                                   {"ttl-zero-during-reassembly", 11, 1},
                                   {"ip-header-bad", 12, 0},
                                   {"required-option-missing", 12, 1}};
constexpr NamedIcmp kMoreIcmp6[] = {{"ping", 128},
                                    {"pong", 129},
                                    {"ttl-exceeded", 3},
                                    {"router-solicitation", 133},
                                    {"router-advertisement", 134},
                                    {"neighbour-solicitation", 135},
                                    {"neighbor-solicitation", 135},
                                    {"neighbour-advertisement", 136},
                                    {"neighbor-advertisement", 136},
                                    {"redirect", 137},
                                    {"no-route", 1, 0},
                                    {"communication-prohibited", 1, 1},
                                    {"beyond-scope", 1, 2},
                                    {"address-unreachable", 1, 3},
                                    {"port-unreachable", 1, 4},
                                    {"failed-policy", 1, 5},
                                    {"reject-route", 1, 6},
                                    {"ttl-zero-during-transit", 3, 0},
                                    {"ttl-zero-during-reassembly", 3, 1},
                                    {"bad-header", 4, 0},
                                    {"unknown-header-type", 4, 1},
                                    {"unknown-option", 4, 2}};
constexpr const char* kBuiltIn[] = {"INPUT", "FORWARD", "OUTPUT"};

using Word = IptablesWord;

// One -A line.
struct Line {
  size_t at = 0, end = 0;  // behind the chain's name
  uint32_t line = 0;
};

struct Table {
  uint8_t family = 0;      // 0: not known yet
  bool nf_tables = false;  // loaded by iptables-nft: the walk of IPv6 headers ends at an Authentication Header
  size_t at = 0;
  std::vector<FilterChain> chains;
  std::vector<std::vector<Line>> lines;  // by chain
  std::vector<AclVerb> policies;         // kNone: a chain of the user's
  std::vector<uint32_t> policy_lines;
  std::map<std::string, size_t, std::less<>> index;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name, std::string_view chain, const StateReading& states)
      : text_(text), asked_(chain), states_(states), found_(file_name, text) {
    set_.files.push_back(file_name);
  }

  Result<RuleSet> run() {
    read_lines();
    if (tables_.empty() && found_.ok()) {
      found_.error_at(text_.size(), 1, "there is no filter table").expected = "the output of iptables-save";
    }
    if (!found_.ok()) return found_.to_error();
    const std::string base = choose_chain();
    for (Table& table : tables_) {
      if (!base.empty()) read_table(table, base);
    }
    if (!found_.ok()) return found_.to_error();
    return std::move(set_);
  }

 private:
  bool fail(size_t at, size_t length, std::string message, std::string expected, std::string suggestion = {}) {
    Diagnostic& d = found_.error_at(at, length, std::move(message));
    d.expected = std::move(expected);
    d.suggestion = std::move(suggestion);
    return false;
  }
  bool fail(const Word& word, std::string message, std::string expected, std::string suggestion = {}) {
    return fail(word.at, word.text.size(), std::move(message), std::move(expected), std::move(suggestion));
  }
  bool wrong(const Word& word, std::string_view what, std::string expected) {
    return fail(word,
                word.text.empty() ? fmt::format("the line ends where {} should be", what)
                                  : fmt::format("'{}' is not {}", word.text.substr(0, 60), what),
                std::move(expected));
  }
  bool enough() const { return found_.error_count() > Diagnostics::kLimit; }

  // ---- lines -------------------------------------------------------------------------------------------------------
  void read_lines() {
    size_t at = 0, rules = 0;
    uint8_t family = 0;
    bool nf_tables = false;
    Table* table = nullptr;  // the filter table that is open
    std::string_view other;  // the name of another one that is open
    bool other_reported = false;
    for (uint32_t line = 1; at < text_.size() && !enough(); ++line) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      size_t begin = at;
      at = end + 1;
      auto blank = [&](size_t i) { return i < end && (text_[i] == ' ' || text_[i] == '\t' || text_[i] == '\r'); };
      while (blank(begin)) ++begin;
      if (begin == end) continue;
      std::string_view whole = text_.substr(begin, end - begin);
      if (whole[0] == '#') {
        if (whole.find("ip6tables-") != std::string_view::npos) family = 6;
        if (whole.find(" iptables-") != std::string_view::npos) family = 4;
        if (whole.find("Generated by") != std::string_view::npos)
          nf_tables = whole.find("(nf_tables)") != std::string_view::npos;
        continue;
      }
      Scanner scan(text_, begin);
      if (whole[0] == '*') {
        const std::string_view name = scan.word().substr(1);
        if (table != nullptr || !other.empty()) {
          fail(begin, name.size() + 1, fmt::format("table '{}' begins inside of another one", name),
               "COMMIT before it");
        }
        table = nullptr;
        other = {};
        other_reported = false;
        if (name == "filter") {
          table = &tables_.emplace_back();
          table->family = family;
          table->nf_tables = nf_tables;
          table->at = begin;
          family = 0;
        } else {
          other = name.empty() ? std::string_view("?") : name;
        }
      } else if (scan.word() == "COMMIT") {
        table = nullptr;
        other = {};
      } else if (table == nullptr && other.empty()) {
        fail(begin, scan.word().size(), fmt::format("'{}' is outside of a table", scan.word().substr(0, 40)),
             "a line with '*' and a table's name, or '#'");
        return;
      } else if (!other.empty()) {
        // Chains of other tables do nothing while they are empty and accept.
        const bool policy = whole[0] == ':' && whole.find(" DROP") != std::string_view::npos;
        if ((whole[0] != ':' || policy) && !other_reported) {
          other_reported = true;
          fail(begin, whole.size(), fmt::format("table '{}' is not empty, and only the filter table is read", other),
               "only the filter table", "save it with `iptables-save -t filter`");
        }
      } else if (whole[0] == ':') {
        declare(*table, begin, line);
      } else {
        if (whole[0] == '[') {  // counters
          scan.seek(begin + scan.word().size());
          scan.skip_blanks();
        }
        if (!read_rule(*table, scan, begin, end, line, rules)) return;
      }
    }
  }

  // A rule from its verb on. False: there are too many.
  bool read_rule(Table& table, Scanner& scan, size_t begin, size_t end, uint32_t line, size_t& rules) {
    const size_t verb_at = scan.at();
    const std::string_view verb = scan.word();
    scan.seek(verb_at + verb.size());
    scan.skip_blanks();
    const std::string_view name = scan.word();
    if (verb != "-A" && verb != "--append") {
      fail(verb_at, verb.size(), fmt::format("'{}' is not understood", verb.substr(0, 40)),
           "-A CHAIN ..., :CHAIN POLICY, *TABLE, COMMIT or '#'");
      return true;
    }
    const auto chain = table.index.find(name);
    if (chain == table.index.end()) {
      std::vector<std::string> known;
      for (const FilterChain& c : table.chains) known.push_back(c.name);
      if (known.size() > 1000) known.clear();
      const std::string near = closest_match(name, known);
      fail(scan.at(), name.size(), fmt::format("there is no chain '{}'", name.substr(0, 60)),
           "a chain that a line with ':' has declared",
           near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
      return true;
    }
    if (++rules > kMaxLines) {
      fail(begin, 1, fmt::format("more than {} rules", kMaxLines), "fewer rules");
      return false;
    }
    scan.seek(scan.at() + name.size());
    table.lines[chain->second].push_back({scan.at(), end, line});
    return true;
  }

  void declare(Table& table, size_t at, uint32_t line) {
    Scanner scan(text_, at + 1);
    const std::string_view name = scan.word();
    scan.seek(scan.at() + name.size());
    scan.skip_blanks();
    const Word policy{scan.word(), scan.at()};
    AclVerb verb = AclVerb::kNone;
    if (policy.text == "ACCEPT") verb = AclVerb::kPermit;
    if (policy.text == "DROP") verb = AclVerb::kDeny;
    if (verb == AclVerb::kNone && policy.text != "-") {
      wrong(policy, "a policy", "ACCEPT, DROP, or '-' for a chain of your own");
      return;
    }
    if (name.empty() || table.index.contains(name)) {
      fail(at, name.size() + 1, fmt::format("chain '{}' is declared twice", name), "each chain once");
      return;
    }
    if (table.chains.size() >= kMaxChains) {
      fail(at, 1, fmt::format("more than {} chains", kMaxChains), "fewer chains");
      return;
    }
    table.index.emplace(std::string(name), table.chains.size());
    table.chains.push_back({std::string(name), {}});
    table.lines.emplace_back();
    table.policies.push_back(verb);
    table.policy_lines.push_back(line);
  }

  // The chain to read: see the header. Empty: reported.
  std::string choose_chain() {
    uint8_t seen = 0;
    for (Table& table : tables_) {
      if (table.family == 0) table.family = family_of(table);
      const uint8_t bit = table.family == 4 ? 1 : 2;
      if ((seen & bit) != 0) {
        fail(table.at, 7, fmt::format("there are two IPv{} filter tables", table.family), "one of each family");
        return {};
      }
      seen |= bit;
    }
    auto some = [&](std::string_view name, auto says) {
      return std::any_of(tables_.begin(), tables_.end(), [&](const Table& t) {
        const auto at = t.index.find(name);
        return at != t.index.end() && says(t, at->second);
      });
    };
    auto declared = [](const Table&, size_t) { return true; };
    auto has_rules = [](const Table& t, size_t c) { return !t.lines[c].empty(); };
    auto decides = [&](const Table& t, size_t c) { return has_rules(t, c) || t.policies[c] == AclVerb::kDeny; };
    std::string taken(asked_);
    if (!asked_.empty()) {
      if (!some(asked_, declared)) {
        fail(tables_[0].at, 7, fmt::format("there is no chain '{}'", asked_), "a chain of the filter table");
        return {};
      }
    } else if (some("FORWARD", decides)) {
      taken = "FORWARD";
    } else {
      taken = some("INPUT", has_rules) ? "INPUT" : some("OUTPUT", has_rules) ? "OUTPUT" : "FORWARD";
      if (!some(taken, declared)) {
        fail(tables_[0].at, 7, "no built-in chain is declared", "one of INPUT, FORWARD and OUTPUT",
             "choose one with the format iptables:CHAIN");
        return {};
      }
    }
    std::vector<std::string> left_out;
    for (const char* name : kBuiltIn) {
      if (name != taken && some(name, has_rules)) left_out.emplace_back(name);
    }
    if (!left_out.empty() && states_.warns()) {
      SLUICE_LOG(kWarning, "{}: read: {}; not read: {}; the format iptables:CHAIN chooses one", set_.files[0], taken,
                 fmt::join(left_out, ", "));
    }
    return taken;
  }

  // By what its rules mention.
  uint8_t family_of(const Table& table) {
    for (const auto& chain : table.lines) {
      for (const Line& line : chain) {
        words_.split(text_, line.at, line.end);
        for (size_t i = 0; i + 1 < words_.all().size(); ++i) {
          const std::string_view w = words_.all()[i].text, v = words_.all()[i + 1].text;
          if ((w == "-s" || w == "-d") && v.find(':') != std::string_view::npos) return 6;
          if (w == "-p" && (v == "ipv6-icmp" || v == "icmp6" || v == "icmpv6")) return 6;
        }
      }
    }
    return 4;
  }

  // ---- rules -------------------------------------------------------------------------------------------------------
  void read_table(Table& table, const std::string& base) {
    const auto at = table.index.find(base);
    if (at == table.index.end()) return;  // the other family's table has it
    const size_t first = at->second;
    if (table.policies[first] == AclVerb::kNone) {
      fail(table.at, 7, fmt::format("chain '{}' has no policy: packets come back from it undecided", base),
           "INPUT, FORWARD or OUTPUT");
      return;
    }
    table_ = &table;
    stateful_ = false;
    std::vector<size_t> todo{first};
    std::vector<bool> reached(table.chains.size());
    reached[first] = true;
    needs_.assign(table.chains.size(), {});
    while (!todo.empty() && !enough()) {
      const size_t c = todo.back();
      todo.pop_back();
      for (const Line& line : table.lines[c]) {
        if (enough()) return;
        FilterRule rule;
        rule.line = line.line;
        rule.at = line.at;
        words_.split(text_, line.at, line.end);
        rule_needs_ = {};
        const bool good = read_rule(rule);
        needs_[c].push_back(rule_needs_);
        if (!good) continue;
        const bool jumps = rule.target == FilterRule::Target::kJump || rule.target == FilterRule::Target::kGoto;
        if (jumps && !reached[rule.chain]) {
          reached[rule.chain] = true;
          todo.push_back(rule.chain);
        }
        table.chains[c].rules.push_back(std::move(rule));
      }
    }
    if (!found_.ok()) return;
    FilterPolicy policy;
    policy.verb = table.policies[first];
    policy.line = table.policy_lines[first];
    policy.families = everything().families;
    policy.keep = stateful_ && states_.state == ConnState::kNew;
    drop_short(table, first);
    if (const auto problem = flatten_chains(table.chains, first, policy, 0, set_))
      fail(problem->at, problem->length, problem->message, problem->expected);
  }

  // What rules of a chain, and of those that it reaches, need of a packet.
  struct Needs {
    std::bitset<256> headers;  // whole ones of these protocols
    bool protocol = false;     // -p
    Needs& operator|=(const Needs& other) {
      headers |= other.headers;
      protocol |= other.protocol;
      return *this;
    }
  };
  // Chains that are nested too deeply, or call each other in a circle, are an error later.
  Needs needs_of(const Table& table, size_t c, std::vector<std::optional<Needs>>& known, unsigned depth = 0) const {
    if (known[c] || depth > 64) return known[c].value_or(Needs());
    known[c].emplace();
    Needs all;
    for (size_t r = 0; r < needs_[c].size(); ++r) all |= needs_of_rule(table, c, r, known, depth);
    known[c] = all;
    return all;
  }
  Needs needs_of_rule(const Table& table, size_t c, size_t r, std::vector<std::optional<Needs>>& known,
                      unsigned depth = 0) const {
    Needs needs = needs_[c][r];
    const FilterRule& rule = table.chains[c].rules[r];
    if (rule.target == FilterRule::Target::kJump || rule.target == FilterRule::Target::kGoto)
      needs |= needs_of(table, rule.chain, known, depth + 1);
    return needs;
  }
  // Netfilter drops a packet when a rule looks at a header that is cut, and in IPv6 when one asks for the protocol of a
  // later fragment of extension headers. Here both are dropped before the first rule of the base chain that leads
  // there, so also packets that this rule's other conditions leave out.
  void drop_short(Table& table, size_t base) {
    std::vector<std::optional<Needs>> known(table.chains.size());
    std::vector<FilterRule> rules;
    Needs done;
    for (size_t r = 0; r < needs_[base].size(); ++r) {
      const Needs needs = needs_of_rule(table, base, r, known);
      FilterRule drop;
      drop.target = FilterRule::Target::kDrop;
      drop.line = table.chains[base].rules[r].line;
      drop.at = table.chains[base].rules[r].at;
      drop.length = table.chains[base].rules[r].length;
      for (unsigned p = 0; p < 256; ++p) {
        if (!needs.headers[p] || done.headers[p]) continue;
        AclRegion cut = everything();
        cut.protocols = protocol_region(static_cast<uint8_t>(p)).protocols;
        cut.only_bits(FlowKey::kShortL4, FlowKey::kShortL4);
        drop.match.push_back(table.nf_tables ? before_ah(cut, cut.families) : cut);
      }
      if (needs.protocol && !done.protocol && table.family == 6) {
        AclRegion unknown = everything();
        unknown.only_bits(FlowKey::kLaterFragment, FlowKey::kLaterFragment);
        unknown.protocols = {};
        for (unsigned p : {0u, 43u, 44u, 51u, 60u}) unknown.protocols[0] |= uint64_t{1} << p;
        drop.match.push_back(unknown);
      }
      done |= needs;
      if (!drop.match.empty()) rules.push_back(std::move(drop));
      rules.push_back(std::move(table.chains[base].rules[r]));
    }
    table.chains[base].rules = std::move(rules);
  }

  bool more() const { return words_.more(); }
  Word take() { return words_.take(); }

  AclRegion everything() const {
    AclRegion r;
    r.only_families(table_->family == 4 ? AclRegion::kIpv4 : AclRegion::kIpv6);
    return r;
  }

  struct Draft {
    MatchBuilder match;
    std::optional<uint8_t> protocol;  // of -p, not negated
    bool has_target = false;
    Word target;
    explicit Draft(uint8_t families) : match(families) {}
  };

  bool keep(Draft& d, const Word& word, const AclRegion& within, const std::vector<AclRegion>& values, bool negated) {
    return d.match.keep({within}, values, negated, &region_work_) ||
           fail(word,
                region_work_ > kMaxRegionWork
                    ? fmt::format("the conditions take more than {} steps to write out", kMaxRegionWork)
                    : fmt::format("the conditions of this rule make more than {} regions", MatchBuilder::kLimit),
                "simpler conditions");
  }

  bool read_rule(FilterRule& rule) {
    Draft d(everything().families);
    bool good = true;
    if (more()) {
      rule.at = words_.all()[0].at;
      rule.length = words_.all().back().at + words_.all().back().text.size() - rule.at;
    }
    while (more() && !enough()) {
      bool negated = false;
      Word word = take();
      if (word.text == "!") {
        negated = true;
        word = take();
      }
      if (!option(d, rule, word, negated)) {
        good = false;
        // On to the next word that looks like an option.
        words_.skip_to_option();
      }
    }
    d.match.put_into(rule);
    return good;
  }

  bool option(Draft& d, FilterRule& rule, const Word& word, bool negated) {
    const std::string_view o = word.text;
    auto is = [&](std::string_view a, std::string_view b) { return o == a || o == b; };
    auto plain = [&] { return !negated || fail(word, fmt::format("'!' has no meaning before {}", o), "no '!'"); };
    if (is("-s", "--source") || is("-d", "--destination")) return address(d, word, o[1] == 's' || o[2] == 's', negated);
    if (is("-p", "--protocol")) return protocol(d, word, negated);
    if (is("-f", "--fragment")) {
      if (table_->family == 6) return fail(word, "-f is for IPv4", "rules of ip6tables have -m frag");
      AclRegion later;
      later.only_bits(FlowKey::kLaterFragment, FlowKey::kLaterFragment);
      return keep(d, word, everything(), {later}, negated);
    }
    if (is("-m", "--match")) return plain() && module(d, take());
    if (is("--sport", "--source-port") || is("--dport", "--destination-port"))
      return ports(d, word, o[2] == 's', o[2] == 'd', false, negated);
    if (is("--sports", "--source-ports") || is("--dports", "--destination-ports"))
      return ports(d, word, o[2] == 's', o[2] == 'd', true, negated);
    if (o == "--ports") return ports(d, word, true, true, true, negated);
    if (o == "--syn") return flags(d, word, 0x17, 0x02, negated);
    if (o == "--tcp-flags") {
      const auto mask = flag_list(take()), value = flag_list(take());
      return mask && value && flags(d, word, *mask, *value, negated);
    }
    if (o == "--icmp-type" || o == "--icmpv6-type") return icmp(d, word, negated);
    if (o == "--comment") return plain() && (take(), true);
    if (o == "--ctstate" || o == "--state") return conn_states(d, word, negated);
    if (o == "--src-range" || o == "--dst-range") return range(d, o[2] == 's', negated);
    if (o == "--dscp" || o == "--dscp-class") {
      const Word v = take();
      const auto n = dscp_value(v.text);
      if (!n) return wrong(v, "a DSCP", "0..63 or a class");
      return dscp(d, word, 0x3f, *n, negated);
    }
    if (o == "--tos") {
      const Word v = take();
      const size_t slash = v.text.find('/');
      const auto value = number(v.text.substr(0, slash), 255);
      const auto mask = slash == std::string_view::npos ? std::optional(255u) : number(v.text.substr(slash + 1), 255);
      if (!value || !mask) return wrong(v, "a type of service", "V or V/M, each 0..255");
      if ((*mask & 3) != 0) {
        return fail(v, "the two ECN bits of the type of service are not part of a rule", "a mask below 0xfc or --dscp",
                    fmt::format("write {:#04x}/0xfc when they do not matter", *value & 0xfc));
      }
      return dscp(d, word, *mask >> 2, *value >> 2, negated);
    }
    if (is("-j", "--jump") || is("-g", "--goto")) return plain() && target(d, rule, o == "-g" || o == "--goto");
    if (is("-c", "--set-counters")) return take(), take(), true;
    if (d.has_target && target_option(d, rule, word)) return found_.ok() || !enough();
    static constexpr const char* kStateful = "a rule cannot match interfaces, rates and sets";
    if (is("-i", "--in-interface") || is("-o", "--out-interface")) {
      take();
      return fail(word, fmt::format("'{}' matches an interface, which a rule cannot", o), kStateful);
    }
    if (o.starts_with("--ct")) {
      words_.skip_to_option();
      return fail(word, fmt::format("'{}' is not understood", o.substr(0, 60)),
                  "--ctstate alone of conntrack's options");
    }
    return fail(word, fmt::format("'{}' is not understood", o.substr(0, 60)), kStateful);
  }

  bool address(Draft& d, const Word&, bool source, bool negated) {
    const Word v = take();
    std::optional<IpPrefix> prefix = parse_prefix(v.text);
    const size_t slash = v.text.find('/');
    if (!prefix && slash != std::string_view::npos) {
      // A mask in the form of an address.
      const auto a = parse_ip(v.text.substr(0, slash)), m = parse_ip(v.text.substr(slash + 1));
      if (a && m && a->family == m->family) {
        const unsigned width = a->family == 4 ? 32 : 128;
        const unsigned ones = static_cast<unsigned>(std::popcount(m->hi) + std::popcount(m->lo));
        const uint64_t hi = a->family == 4 ? 0 : high_mask64(std::min(ones, 64u));
        const uint64_t lo = a->family == 4 ? high_mask32(ones) : high_mask64(ones > 64 ? ones - 64 : 0);
        if (m->hi != hi || m->lo != lo) return fail(v, "the ones of the mask have gaps", "a prefix", "ADDRESS/LENGTH");
        prefix = IpPrefix{{a->hi & hi, a->lo & lo, a->family}, static_cast<uint8_t>(std::min(ones, width))};
      }
    }
    if (!prefix || prefix->address.family != table_->family)
      return wrong(v, fmt::format("an IPv{} address", table_->family), "ADDRESS or ADDRESS/LENGTH");
    AclRegion r = everything();
    source ? r.only_src(*prefix) : r.only_dst(*prefix);
    return keep(d, v, everything(), {r}, negated);
  }

  bool range(Draft& d, bool source, bool negated) {
    const Word v = take();
    const size_t dash = v.text.find('-');
    const auto low = parse_ip(v.text.substr(0, dash));
    const auto high = dash == std::string_view::npos ? low : parse_ip(v.text.substr(dash + 1));
    if (!low || !high || low->family != table_->family || high->family != table_->family)
      return wrong(v, fmt::format("a range of IPv{} addresses", table_->family), "LOW-HIGH");
    if (high->hi < low->hi || (high->hi == low->hi && high->lo < low->lo))
      return fail(v, "the range is empty", "LOW-HIGH with LOW <= HIGH");
    AclRegion r;
    source ? r.only_src(*low, *high) : r.only_dst(*low, *high);
    return keep(d, v, everything(), {r}, negated);
  }

  bool protocol(Draft& d, const Word& word, bool negated) {
    const Word v = take();
    auto n = number(v.text, 255);
    if (!n) n = same_word(v.text, "all") ? std::optional(0u) : ip_protocol(v.text);
    if (!n) return wrong(v, "a protocol", "tcp, udp, icmp, ipv6-icmp, ..., or a number 0..255");
    if (*n == 0) {  // any
      if (negated) return fail(word, "no packet is of no protocol", "a protocol");
      return true;
    }
    if (!negated) d.protocol = static_cast<uint8_t>(*n);
    rule_needs_.protocol = true;
    const AclRegion all = protocol_region(static_cast<uint8_t>(*n));
    return keep(d, word, everything(),
                table_->nf_tables ? nf_tables_protocols(all, everything().families) : std::vector<AclRegion>{all},
                negated);
  }

  static std::optional<uint8_t> port_protocol(std::string_view module) {
    for (const Named& n : {Named{"tcp", 6}, {"udp", 17}, {"sctp", 132}, {"dccp", 33}}) {
      if (module == n.name) return static_cast<uint8_t>(n.value);
    }
    return std::nullopt;
  }

  // Packets with the header of the protocol, which a match looks at; drop_short takes those away where it is cut.
  AclRegion header_of(uint8_t protocol, bool ports) {
    rule_needs_.headers.set(protocol);
    const AclRegion all = protocol_region(protocol), r = ports ? with_ports(all) : with_flags(all);
    return table_->nf_tables ? before_ah(r, everything().families) : r;
  }

  bool module(Draft& d, const Word& name) {
    if (const auto p = port_protocol(name.text)) return keep(d, name, header_of(*p, true), {AclRegion{}}, false);
    if (name.text == "icmp" || name.text == "icmp6") {
      const uint8_t p = name.text == "icmp" ? 1 : 58;
      return keep(d, name, header_of(p, false), {AclRegion{}}, false);
    }
    for (const char* known : {"comment", "multiport", "iprange", "dscp", "tos", "conntrack", "state"}) {
      if (name.text == known) return true;
    }
    fail(name, fmt::format("match '{}' is not understood", name.text.substr(0, 60)),
         "tcp, udp, sctp, dccp, icmp, icmp6, multiport, iprange, dscp, tos, conntrack, state or comment");
    // Its options would only be further findings of the same thing.
    words_.skip_match();
    return false;
  }

  // The state that is asked for is known: the condition leaves all packets or none.
  bool conn_states(Draft& d, const Word& word, bool negated) {
    const Word v = take();
    stateful_ = true;
    states_.found();
    unsigned states = 0;
    if (v.text.empty()) return wrong(v, "a state", "NEW, ESTABLISHED, RELATED, INVALID or UNTRACKED");
    for (size_t begin = 0; begin <= v.text.size();) {
      const size_t end = std::min(v.text.find(',', begin), v.text.size());
      const Word item{v.text.substr(begin, end - begin), v.at + begin};
      if (same_word(item.text, "SNAT") || same_word(item.text, "DNAT"))
        return fail(item, fmt::format("'{}' is a state of address translation, which is not looked at", item.text),
                    "NEW, ESTABLISHED, RELATED, INVALID or UNTRACKED");
      const auto state = find_named(kConnStates, item.text);
      if (!state && !same_word(item.text, "UNTRACKED")) {
        return fail({item.text, item.at}, fmt::format("'{}' is not a state", item.text.substr(0, 60)),
                    "NEW, ESTABLISHED, RELATED, INVALID or UNTRACKED, separated by ','");
      }
      if (state) states |= bit_of(static_cast<ConnState>(*state));
      begin = end + 1;
    }
    if (!states_.state) return fail(word, kNeedsState, kStateWanted);
    const bool holds = ((states & bit_of(*states_.state)) != 0) != negated;
    return holds || keep(d, word, everything(), {}, false);
  }

  bool ports(Draft& d, const Word& word, bool source, bool destination, bool many, bool negated) {
    const Word v = take();
    const bool known = d.protocol && (*d.protocol == 6 || *d.protocol == 17 || *d.protocol == 132 ||
                                      *d.protocol == 33 || (many && *d.protocol == 136));
    if (!known)
      return fail(word, fmt::format("{} needs a protocol with ports", word.text), "-p tcp, udp, sctp or dccp");
    std::vector<AclRegion> values;
    for (size_t begin = 0; begin <= v.text.size();) {
      const size_t end = many ? std::min(v.text.find(',', begin), v.text.size()) : v.text.size();
      const std::string_view item = v.text.substr(begin, end - begin);
      const size_t colon = item.find(':');
      const std::string_view a = item.substr(0, colon),
                             b = colon == std::string_view::npos ? a : item.substr(colon + 1);
      const bool open = colon != std::string_view::npos;
      auto low = open && a.empty() ? std::optional(0u) : number(a, 65535);
      auto high = open && b.empty() ? std::optional(65535u) : number(b, 65535);
      if (!open && !low) low = high = find_named(kServices, item);
      if (!low || !high)
        return wrong({item, v.at + begin}, "a port", many ? "ports separated by ','" : "N or LOW:HIGH");
      if (*low > *high) return fail({item, v.at + begin}, fmt::format("port range {} is empty", item), "LOW <= HIGH");
      const AclRegion::Range range{static_cast<uint16_t>(*low), static_cast<uint16_t>(*high)};
      for (const bool of_source : {true, false}) {
        if (!(of_source ? source : destination)) continue;
        AclRegion r;
        (of_source ? r.src_port : r.dst_port) = range;
        values.push_back(r);
      }
      begin = end + 1;
    }
    return keep(d, word, header_of(*d.protocol, true), values, negated);
  }

  std::optional<uint32_t> flag_list(const Word& v) {
    if (v.text == "ALL") return 0x3f;
    if (v.text == "NONE") return 0;
    uint32_t bits = 0;
    for (size_t begin = 0; begin <= v.text.size();) {
      const size_t end = std::min(v.text.find(',', begin), v.text.size());
      const std::string_view item = v.text.substr(begin, end - begin);
      auto bit = find_named(kFlags, item);
      if (!bit) bit = number(item, 255);
      if (!bit) {
        wrong({item, v.at + begin}, "a TCP flag", "FIN, SYN, RST, PSH, ACK, URG, ALL or NONE");
        return std::nullopt;
      }
      bits |= *bit;
      begin = end + 1;
    }
    return bits;
  }

  bool flags(Draft& d, const Word& word, uint32_t mask, uint32_t value, bool negated) {
    if (d.protocol != 6) return fail(word, fmt::format("{} needs the protocol", word.text), "-p tcp before it");
    std::vector<AclRegion> values;
    if ((value & ~mask) == 0) {  // else nothing has them
      values.emplace_back();
      values.back().flags = {static_cast<uint16_t>(value << 8), static_cast<uint16_t>(mask << 8)};
    }
    return keep(d, word, header_of(6, false), values, negated);
  }

  bool icmp(Draft& d, const Word& word, bool negated) {
    const Word v = take();
    const bool six = word.text == "--icmpv6-type";
    const uint8_t p = six ? 58 : 1;
    if (d.protocol != p)
      return fail(word, fmt::format("{} needs the protocol", word.text), six ? "-p ipv6-icmp" : "-p icmp");
    AclRegion r;
    if (v.text != "any") {
      const size_t slash = v.text.find('/');
      const std::string_view type = v.text.substr(0, slash);
      auto known = number(type, 255);
      if (!known) known = six ? find_named(kIcmp6Types, type) : find_named(kIcmpTypes, type);
      int n = known ? static_cast<int>(*known) : -1, code = -1;  // -1: no such type; any code
      if (slash != std::string_view::npos) {
        const auto c = number(v.text.substr(slash + 1), 255);
        if (!c) n = -1;
        code = static_cast<int>(c.value_or(0));
      } else if (n < 0) {
        for (const NamedIcmp& named : six ? std::span<const NamedIcmp>(kMoreIcmp6) : kMoreIcmp) {
          if (!same_word(named.name, type)) continue;
          n = named.type;
          code = named.code;
        }
      }
      if (n < 0) return wrong(v, "an ICMP type", "TYPE or TYPE/CODE, each 0..255, a name, or any");
      // To iptables, type 255 of IPv4 is all types.
      if (six || n != 255)
        r.icmp = {static_cast<uint16_t>(n << 8 | std::max(code, 0)), static_cast<uint16_t>(code < 0 ? 0xff00 : 0xffff)};
    }
    return keep(d, word, header_of(p, false), {r}, negated);
  }

  bool dscp(Draft& d, const Word& word, uint32_t mask, uint32_t value, bool negated) {
    AclRegion r;
    for (uint32_t n = 0; n < 64; ++n) {
      if ((n & mask) != value) r.dscp &= ~(uint64_t{1} << n);
    }
    std::vector<AclRegion> values;
    if (r.dscp != 0) values.push_back(r);
    return keep(d, word, everything(), values, negated);
  }

  // ---- targets -----------------------------------------------------------------------------------------------------
  bool target(Draft& d, FilterRule& rule, bool away) {
    const Word v = take();
    d.has_target = true;
    d.target = v;
    using Target = FilterRule::Target;
    const auto chain = table_->index.find(v.text);
    if (chain != table_->index.end() && table_->policies[chain->second] == AclVerb::kNone) {
      rule.target = away ? Target::kGoto : Target::kJump;
      rule.chain = chain->second;
      return true;
    }
    if (away) return wrong(v, "a chain", "a chain that a line with ':' has declared");
    if (v.text == "ACCEPT") {
      rule.target = Target::kAccept;
    } else if (v.text == "DROP" || v.text == "REJECT") {
      rule.target = Target::kDrop;
    } else if (v.text == "RETURN") {
      rule.target = Target::kReturn;
    } else if (v.text == "LOG") {
      rule.log = true;
    } else if (v.text != "MARK") {
      std::vector<std::string> known{"ACCEPT", "DROP", "REJECT", "RETURN", "LOG", "MARK"};
      for (const FilterChain& c : table_->chains) {
        if (known.size() < 1000) known.push_back(c.name);
      }
      const std::string near = closest_match(v.text, known);
      fail(v,
           v.text.empty() ? "the line ends where a target should be"
                          : fmt::format("target '{}' is not understood", v.text.substr(0, 60)),
           "ACCEPT, DROP, REJECT, RETURN, LOG, MARK or a declared chain",
           near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
      words_.skip_all();  // its options are its own
      return false;
    }
    return true;
  }

  // Whether the word is an option of the target; what it says that matters is put into the rule.
  bool target_option(Draft& d, FilterRule& rule, const Word& word) {
    const std::string_view o = word.text, t = d.target.text;
    if (t == "REJECT" && o == "--reject-with") return take(), true;
    if (t == "LOG") {
      if (o == "--log-prefix" || o == "--log-level") return take(), true;
      return o == "--log-tcp-sequence" || o == "--log-tcp-options" || o == "--log-ip-options" || o == "--log-uid";
    }
    if (t != "MARK" || (o != "--set-mark" && o != "--set-xmark")) return false;
    const Word v = take();
    const size_t slash = v.text.find('/');
    const auto value = number(v.text.substr(0, slash), 0xffffffff);
    const auto mask =
        slash == std::string_view::npos ? std::optional(0xffffffffu) : number(v.text.substr(slash + 1), 0xffffffff);
    if (!value || mask != 0xffffffffu) {
      fail(v, "a mark that keeps bits of an earlier mark cannot be expressed", "a value, with the mask 0xffffffff");
    } else {
      rule.mark = *value;
    }
    return true;
  }

  std::string_view text_;
  std::string_view asked_;
  StateReading states_;
  bool stateful_ = false;  // a rule of the table looks at a state
  Diagnostics found_;
  RuleSet set_;
  std::vector<Table> tables_;
  Table* table_ = nullptr;
  std::vector<std::vector<Needs>> needs_;  // of the rules of each chain
  Needs rule_needs_;
  IptablesWords words_;
  uint64_t region_work_ = 0;
};

}  // namespace

bool is_iptables_start(std::string_view line) {
  Scanner scan(line);
  scan.skip_blanks();
  return scan.peek() == '*';
}

Result<RuleSet> parse_iptables_rules(std::string_view text, const std::string& file_name, std::string_view chain,
                                     const StateReading& states) {
  return Reader(text, file_name, chain, states).run();
}

}  // namespace sluice
