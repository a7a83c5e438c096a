#include "elements/ip_filter/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/result.h"
#include "formats/match_builder.h"
#include "formats/names.h"
#include "graph/arguments.h"
#include "net/text.h"

namespace sluice {
namespace {

using namespace names;
using Source = PatternSource;

// What a primitive is about, before its value.
enum class About : uint8_t {
  kNothing,
  kHost,
  kNet,
  kPort,
  kProtocol,
  kVersion,
  kHeaderLength,
  kId,
  kLength,
  kTos,
  kDscp,
  kTtl,
  kFragment,
  kUnfragmented,
  kEct,
  kCe,
  kTcpOption,
  kTcpWindow,
  kIcmpType,
  kEther,
};
enum class Side : uint8_t { kNone, kSrc, kDst, kEither, kBoth };

struct AboutWord {
  const char* word;
  About about;
};
constexpr AboutWord kAbouts[] = {{"host", About::kHost},
                                 {"net", About::kNet},
                                 {"port", About::kPort},
                                 {"proto", About::kProtocol},
                                 {"vers", About::kVersion},
                                 {"hl", About::kHeaderLength},
                                 {"id", About::kId},
                                 {"len", About::kLength},
                                 {"tos", About::kTos},
                                 {"dscp", About::kDscp},
                                 {"ttl", About::kTtl},
                                 {"frag", About::kFragment},
                                 {"unfrag", About::kUnfragmented},
                                 {"ect", About::kEct},
                                 {"ce", About::kCe},
                                 {"opt", About::kTcpOption},
                                 {"win", About::kTcpWindow},
                                 {"type", About::kIcmpType}};
constexpr Named kMoreIcmpTypes[] = {{"echo", 8},           {"unreachable", 3},       {"timestamp", 13},
                                    {"timeexceeded", 11},  {"parameterproblem", 12}, {"sourcequench", 4},
                                    {"routeradvert", 9},   {"routersolicit", 10},    {"inforeq", 15},
                                    {"inforeq-reply", 16}, {"maskreq", 17},          {"maskreq-reply", 18}};
constexpr Named kMoreProtocols[] = {{"ipip", 4}};

const ArgumentSpec kMacSpec{.name = "ADDRESS", .kind = ArgumentKind::kMac};

// What patterns call ports besides.
constexpr Named kMoreServices[] = {
    {"bootps", 67},   {"bootpc", 68},       {"finger", 79},      {"kerberos", 88},      {"sunrpc", 111},
    {"auth", 113},    {"nntp", 119},        {"netbios-ns", 137}, {"netbios-dgm", 138},  {"netbios-ssn", 139},
    {"imap2", 143},   {"snmp-trap", 162},   {"xdmcp", 177},      {"microsoft-ds", 445}, {"isakmp", 500},
    {"printer", 515}, {"rip", 520},         {"imaps", 993},      {"pop3s", 995},        {"nfs", 2049},
    {"mysql", 3306},  {"postgresql", 5432}, {"mdns", 5353},      {"x11", 6000},         {"http-alt", 8080},
    {"www", 80},      {"echo", 7},          {"discard", 9},      {"daytime", 13},       {"chargen", 19},
    {"irc", 194},     {"imap3", 220},       {"route", 520}};

std::optional<uint32_t> port_named(std::string_view word) {
  const auto n = find_named(kServices, word);
  return n ? n : find_named(kMoreServices, word);
}
std::optional<uint32_t> icmp_type_named(std::string_view word, bool six) {
  if (six) return find_named(kIcmp6Types, word);
  const auto n = find_named(kIcmpTypes, word);
  return n ? n : find_named(kMoreIcmpTypes, word);
}

// Each byte with one digit or two.
std::optional<MacAddress> mac_of(std::string_view text) {
  ArgumentValue value;
  std::string problem;
  if (std::count(text.begin(), text.end(), ':') != 5 || !parse_value(kMacSpec, text, &value, &problem))
    return parse_mac(text);
  return value.mac;
}

struct Qualifiers {
  Side side = Side::kNone;
  std::optional<uint8_t> protocol;  // tcp, udp, ...
  About about = About::kNothing;
  friend bool operator==(const Qualifiers&, const Qualifiers&) = default;
};

struct Token {
  std::string_view text;
  size_t at = 0;
};

}  // namespace

// Recursive descent; every function returns a node, or sets fault_.
class PatternParser {
 public:
  PatternParser(PatternList& list, std::string_view text, const AddressScope& names)
      : list_(list), text_(text), names_(names) {
    tokenize();
  }

  std::optional<PatternFault> run(uint32_t& root) {
    if (tokens_.empty()) {
      error({text_, 0}, "the pattern is empty", "a pattern, or - for all packets");
    } else {
      root = expression(0);
      if (!fault_ && more()) {
        error(peek(), fmt::format("unexpected '{}'", peek().text), "and, or, a primitive or the end");
      }
    }
    return fault_;
  }

 private:
  using Kind = PatternNode::Kind;

  // ---- tokens ------------------------------------------------------------------------------------------------------
  void tokenize() {
    auto word = [](char c) {
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c == '.' || c == '-' ||
             c == '/' || c == ':';
    };
    for (size_t at = 0; at < text_.size();) {
      const char c = text_[at];
      size_t to = at + 1;
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        at = to;
        continue;
      }
      if (word(c)) {
        // Inside of brackets ':' stands alone.
        while (to < text_.size() && word(text_[to]) && !(bracket_ && (text_[to] == ':' || c == ':'))) ++to;
      } else if (to < text_.size()) {
        const char next = text_[to];
        if ((c == '&' && next == '&') || (c == '|' && next == '|') ||
            ((c == '=' || c == '!' || c == '<' || c == '>') && next == '='))
          ++to;
      }
      if (c == '[') bracket_ = true;
      if (c == ']') bracket_ = false;
      tokens_.push_back({named(text_.substr(at, to - at)), at});
      at = to;
    }
  }
  // The address where the word is its name and no word of the language.
  std::string_view named(std::string_view word) {
    if (names_.names == nullptr || bracket_) return word;
    auto literal = names_.find(word, AddressNames::Wanted::kPrefix);
    if (!literal) literal = names_.find(word, AddressNames::Wanted::kMac);
    if (!literal || transport(word)) return word;
    const std::vector<std::string> words = language_words();
    if (std::any_of(words.begin(), words.end(), [&](const std::string& w) { return same_word(w, word); })) return word;
    return literals_.emplace_back(std::move(*literal));
  }
  static std::vector<std::string> language_words() {
    std::vector<std::string> words{"src", "dst", "ip",  "ether", "tcp",   "udp", "icmp",
                                   "and", "or",  "not", "true",  "false", "all"};
    for (const AboutWord& a : kAbouts) words.emplace_back(a.word);
    return words;
  }
  bool more() const { return next_ < tokens_.size(); }
  Token peek(size_t ahead = 0) const {
    return next_ + ahead < tokens_.size() ? tokens_[next_ + ahead] : Token{{}, text_.size()};
  }
  Token take() {
    const Token t = peek();
    if (more()) ++next_;
    return t;
  }
  bool is(std::string_view a, size_t ahead = 0) const {
    return same_word(peek(ahead).text, a) && next_ + ahead < tokens_.size();
  }
  bool take_if(std::string_view a) {
    if (!is(a)) return false;
    ++next_;
    return true;
  }

  uint32_t error(const Token& at, std::string message, std::string expected, std::string suggestion = {}) {
    if (!fault_) {
      fault_ = PatternFault{at.at, at.text.size(), std::move(message), std::move(expected), std::move(suggestion)};
    }
    return 0;
  }
  uint32_t wrong(const Token& at, std::string_view what, std::string expected, std::string_view near = {}) {
    return error(at,
                 at.text.empty() ? fmt::format("the pattern ends where {} should be", what)
                                 : fmt::format("'{}' is not {}", at.text.substr(0, 60), what),
                 std::move(expected), near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
  }

  // ---- nodes -------------------------------------------------------------------------------------------------------
  uint32_t node(PatternNode n) {
    // An address is its family and up to four words.
    list_.steps_ += n.kind == Kind::kTest ? 1 : n.kind == Kind::kPrefix ? 5 : 0;
    if (list_.nodes_.size() >= PatternList::kMaxParts || list_.steps_ > PatternList::kMaxParts)
      return error({text_, 0}, fmt::format("the patterns have more than {} parts", PatternList::kMaxParts), "fewer");
    list_.nodes_.push_back(n);
    return static_cast<uint32_t>(list_.nodes_.size() - 1);
  }
  uint32_t constant(bool value) { return node({.kind = Kind::kConst, .value = value}); }
  uint32_t join(Kind kind, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
    return node({.kind = kind, .a = a, .b = b, .c = c});
  }
  uint32_t test(Source source, uint32_t mask, uint32_t low, uint32_t high, bool outside = false, uint16_t offset = 0,
                unsigned bytes = 0) {
    PatternNode n{.kind = Kind::kTest};
    n.test.source = source;
    n.test.mask = mask;
    n.test.low = low;
    n.test.span = high - low;
    n.test.outside = outside ? 1 : 0;
    n.test.offset = offset;
    n.test.bytes = bytes & 7;
    list_.uses_frame_ |= source >= Source::kIpBytes;
    list_.uses_ttl_ |= source == Source::kTtl;
    return node(n);
  }
  uint32_t equals(Source source, uint32_t value) { return test(source, ~0u, value, value); }
  // Ports and what else is behind the IP header of a first fragment: some bits are set or clear.
  uint32_t bits(uint8_t value, uint8_t mask) { return test(Source::kBits, mask, value, value); }

  // ---- expressions -------------------------------------------------------------------------------------------------
  uint32_t expression(unsigned depth) {
    if (depth > PatternList::kMaxDepth)
      return error(peek(), fmt::format("more than {} levels", PatternList::kMaxDepth), "a flatter pattern");
    const uint32_t condition = alternatives(depth);
    if (fault_ || !take_if("?")) return condition;
    const uint32_t yes = expression(depth + 1);
    if (fault_) return 0;
    if (!take_if(":")) return wrong(peek(), "':'", "CONDITION ? PATTERN : PATTERN");
    const uint32_t no = expression(depth + 1);
    return fault_ ? 0 : join(Kind::kIf, condition, yes, no);
  }
  // Joined as a balanced tree, so that a long list is no deep one; the order stays.
  uint32_t joined(Kind kind, const std::vector<uint32_t>& parts, size_t from, size_t to) {
    if (fault_) return 0;
    if (to - from == 1) return parts[from];
    const size_t middle = from + (to - from) / 2;
    const uint32_t left = joined(kind, parts, from, middle), right = joined(kind, parts, middle, to);
    return fault_ ? 0 : join(kind, left, right);
  }
  uint32_t alternatives(unsigned depth) {
    std::vector<uint32_t> parts{conjunction(depth)};
    while (!fault_ && (take_if("or") || take_if("||"))) parts.push_back(conjunction(depth));
    return joined(Kind::kOr, parts, 0, parts.size());
  }
  bool at_end_of_conjunction() const { return !more() || is("or") || is("||") || is(")") || is("?") || is(":"); }
  uint32_t conjunction(unsigned depth) {
    std::vector<uint32_t> parts{factor(depth)};
    while (!fault_ && (take_if("and") || take_if("&&") || !at_end_of_conjunction())) parts.push_back(factor(depth));
    return joined(Kind::kAnd, parts, 0, parts.size());
  }
  uint32_t factor(unsigned depth) {
    if (depth > PatternList::kMaxDepth)
      return error(peek(), fmt::format("more than {} levels", PatternList::kMaxDepth), "a flatter pattern");
    if (take_if("not") || take_if("!")) {
      const uint32_t inner = factor(depth + 1);
      return fault_ ? 0 : join(Kind::kNot, inner);
    }
    if (take_if("(")) {
      const uint32_t inner = expression(depth + 1);
      if (fault_) return 0;
      if (!take_if(")")) return wrong(peek(), "')'", "')'");
      return inner;
    }
    if (take_if("true") || take_if("all") || take_if("any") || take_if("-")) return constant(true);
    if (take_if("false") || take_if("none")) return constant(false);
    return primitive();
  }

  // ---- primitives --------------------------------------------------------------------------------------------------
  static std::optional<uint8_t> transport(std::string_view word) {
    auto n = find_named(kProtocols, word);
    if (!n) n = find_named(kMoreProtocols, word);
    return n && *n < 256 ? std::optional(static_cast<uint8_t>(*n)) : std::nullopt;
  }

  uint32_t primitive() {
    Qualifiers q;
    const Token start = peek();
    bool ip_word = false;
    while (more()) {
      if (is("src") || is("dst")) {
        const bool src = is("src");
        if (q.side != Side::kNone)
          return error(peek(), "there are two directions", "src, dst, src or dst, src and dst");
        const bool both = is("and", 1), either = is("or", 1);
        if ((both || either) && is(src ? "dst" : "src", 2)) {
          q.side = both ? Side::kBoth : Side::kEither;
          next_ += 3;
        } else {
          q.side = src ? Side::kSrc : Side::kDst;
          ++next_;
        }
        continue;
      }
      if (is("[", 1) && (is("ip") || is("transp") || transport(peek().text))) return raw();
      if (is("ip")) {
        ip_word = true;
        ++next_;
        continue;
      }
      // What ports are of anyway where no protocol is said.
      if (is("tcpudp") && q.about == About::kNothing && !q.protocol) {
        ++next_;
        continue;
      }
      // `syn` alone is a flag of TCP, as after `tcp opt`.
      if (q == Qualifiers{} && !ip_word && find_named(kFlags, peek().text)) {
        q.about = About::kTcpOption;
        break;
      }
      if (is("ether") && q.about == About::kNothing) {
        q.about = About::kEther;
        ++next_;
        continue;
      }
      if (is("host") && q.about == About::kEther) {
        ++next_;
        continue;
      }
      const auto protocol = transport(peek().text);
      if (protocol && q.about == About::kNothing && !q.protocol) {
        q.protocol = protocol;
        ++next_;
        continue;
      }
      const auto* about = std::find_if(std::begin(kAbouts), std::end(kAbouts),
                                       [&](const AboutWord& a) { return same_word(a.word, peek().text); });
      if (about == std::end(kAbouts) || q.about != About::kNothing) break;
      q.about = about->about;
      ++next_;
    }
    const bool value_follows = !at_end_of_conjunction() && !is("and") && !is("&&");
    switch (q.about) {
      case About::kFragment:
        return bits(FlowKey::kFragment, FlowKey::kFragment);
      case About::kUnfragmented:
        return bits(0, FlowKey::kFragment);
      case About::kEct:
        return with_ipv4(join(Kind::kOr, ip_bytes(1, 1, 3, 1), ip_bytes(1, 1, 3, 2)));
      case About::kCe:
        return with_ipv4(ip_bytes(1, 1, 3, 3));
      case About::kNothing:
        if (q.protocol && q.side == Side::kNone && !begins_value() && !type_follows(q)) return protocol_is(*q.protocol);
        if (ip_word && !q.protocol && q.side == Side::kNone && !begins_value()) return constant(true);
        break;
      default:
        break;
    }
    if (!value_follows) {
      if (next_ == 0 || peek().at == start.at) return unknown(peek());
      return wrong(peek(), "a value", "a value of what precedes it");
    }
    return compared(q, ip_word);
  }

  uint32_t unknown(const Token& t) {
    return wrong(t, "a primitive", "src, dst, host, net, port, ip ..., tcp ..., icmp type, ip[P:L] and the like",
                 closest_match(t.text, language_words()));
  }

  // Whether a value or a comparison stands here, rather than the next primitive.
  bool begins_value() const {
    if (!more()) return false;
    const std::string_view t = peek().text;
    if (is("=") || is("==") || is("!=") || is("<") || is(">") || is("<=") || is(">=") || is("&")) return true;
    return (t[0] >= '0' && t[0] <= '9') || parse_prefix(t).has_value() || mac_of(t).has_value();
  }

  // Whether the name of an ICMP type follows `icmp`: `icmp echo` is `icmp type echo`.
  bool type_follows(const Qualifiers& q) const {
    return more() && (q.protocol == 1 || q.protocol == 58) &&
           icmp_type_named(peek().text, q.protocol == 58).has_value();
  }

  struct Comparison {
    uint32_t mask = ~0u;
    std::string_view op = "==";
    Token value;
    bool explicit_op = false;
  };

  // [& MASK] [OPERATOR] VALUE, or & MASK alone: some of these bits are set. `values`: what a missing value could be.
  // The result, where there is a fault.
  std::optional<uint32_t> comparison(Comparison& c, const char* values) {
    if (take_if("&")) {
      const Token m = take();
      const auto mask = number(m.text, 0xffffffff);
      if (!mask) return wrong(m, "a mask", "a number");
      c.mask = *mask;
      c.explicit_op = true;
      if (at_end_of_conjunction() || is("and") || is("&&")) {
        c.op = "!=";
        c.value = {"0", m.at};
        return std::nullopt;
      }
    }
    for (const char* op : {"==", "=", "!=", "<=", ">=", "<", ">"}) {
      if (!take_if(op)) continue;
      c.op = std::string_view(op) == "=" ? "==" : op;
      c.explicit_op = true;
      break;
    }
    if (at_end_of_conjunction()) return wrong(peek(), "a value", values);
    c.value = take();
    return std::nullopt;
  }

  uint32_t compared(Qualifiers q, bool ip_word) {
    Comparison c;
    if (const auto fault = comparison(c, "a number, an address or a name")) return *fault;
    const bool bare = q == Qualifiers{} && !ip_word;
    const auto prefix = parse_prefix(c.value.text);
    const bool address = prefix && c.value.text.find_first_of(".:") != std::string_view::npos;
    if ((q.about == About::kNothing || q.about == About::kHost) && !ip_word && mac_of(c.value.text)) {
      if (bare && previous_.about == About::kEther) q.side = previous_.side;
      q.about = About::kEther;
    } else if (q.about == About::kNothing) {
      // What is left out is as before.
      if (bare) {
        // An address after an address, anything else after its own kind; else it starts anew.
        const bool addresses = previous_.about == About::kHost || previous_.about == About::kNet;
        if (address == addresses) q = previous_;
        if (address) q.about = About::kNothing;
      } else if (!address) {
        q.about = previous_.about;
        if (!q.protocol) q.protocol = previous_.protocol;
      }
      if (address && q.about == About::kNothing)
        q.about = c.value.text.find('/') != std::string_view::npos ? About::kNet : About::kHost;
    }
    // A name says what it is of: `www` is `port www`, as `syn` is `tcp opt syn`.
    if (q.about == About::kNothing && !ip_word) {
      const bool icmp = q.protocol == 1 || q.protocol == 58;
      const bool type =
          (icmp || !q.protocol) && q.side == Side::kNone && icmp_type_named(c.value.text, q.protocol == 58).has_value();
      const bool port = !icmp && port_named(c.value.text).has_value();
      if (type && port)
        return error(c.value, fmt::format("'{}' is a port and an ICMP type", c.value.text), "port P or icmp type T");
      if (type) q.about = About::kIcmpType;
      if (port) q.about = About::kPort;
    }
    if (q.about == About::kNothing) return unknown(c.value);
    previous_ = q;
    const uint32_t n = primitive_of(q, c, prefix);
    if (fault_) return 0;
    // Ports, flags and types ask for their protocol themselves.
    const bool own = q.about == About::kPort || q.about == About::kTcpOption || q.about == About::kTcpWindow ||
                     q.about == About::kIcmpType;
    return q.protocol && !own ? both(protocol_is(*q.protocol), n) : n;
  }

  // make(source?) for the sides that are asked about; either one where nothing is said.
  template <typename Make>
  uint32_t of_side(Side side, Make&& make) {
    if (side == Side::kSrc || side == Side::kDst) return make(side == Side::kSrc);
    const uint32_t src = make(true), dst = fault_ ? 0 : make(false);
    return fault_ ? 0 : join(side == Side::kBoth ? Kind::kAnd : Kind::kOr, src, dst);
  }
  uint32_t both(uint32_t a, uint32_t b) { return fault_ ? 0 : join(Kind::kAnd, a, b); }
  uint32_t protocol_is(uint8_t protocol) { return equals(Source::kProtocol, protocol); }
  uint32_t with_ipv4(uint32_t n) { return both(equals(Source::kFamily, 4), n); }
  uint32_t ip_bytes(uint16_t offset, unsigned bytes, uint32_t mask, uint32_t value) {
    return test(Source::kIpBytes, mask, value, value, false, offset, bytes);
  }

  uint32_t ether(const Qualifiers& q, const Comparison& c) {
    const auto mac = mac_of(c.value.text);
    if (!mac) return wrong(c.value, "an Ethernet address", "ether host 02:00:00:00:00:01");
    if (q.protocol) return error(c.value, "an Ethernet address has no protocol", "tcp and ether host ADDRESS");
    if (c.mask != ~0u || (c.op != "==" && c.op != "!="))
      return error(c.value, "addresses are equal or not", "ether host ADDRESS, with == or !=");
    const uint8_t* b = mac->bytes;
    const uint32_t high = uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
    const uint32_t low = uint32_t{b[4]} << 8 | b[5];
    const auto side = [&](uint16_t offset) {
      const uint32_t n = test(Source::kEtherBytes, ~0u, high, high, false, offset, 4);
      return both(n,
                  fault_ ? 0 : test(Source::kEtherBytes, ~0u, low, low, false, static_cast<uint16_t>(offset + 4), 2));
    };
    const uint32_t n = of_side(q.side, [&](bool source) { return side(source ? 6 : 0); });
    if (fault_ || c.op == "==") return n;
    // Only packets that have an Ethernet header have another address.
    return both(test(Source::kEtherBytes, 0, 0, 0, false, 0, 1), join(Kind::kNot, n));
  }

  uint32_t primitive_of(const Qualifiers& q, const Comparison& c, const std::optional<IpPrefix>& prefix) {
    switch (q.about) {
      case About::kHost:
      case About::kNet:
        return address(q, c, prefix);
      case About::kEther:
        return ether(q, c);
      case About::kPort:
        return port(q, c);
      case About::kProtocol:
        return numeric(c, Source::kProtocol, 255,
                       [](std::string_view t) -> std::optional<uint32_t> { return transport(t); });
      case About::kVersion:
        return numeric(c, Source::kFamily, 15);
      case About::kHeaderLength:
        return with_ipv4(numeric(c, Source::kIpBytes, 15, {}, 0, 1, 0x0f));
      case About::kId:
        return with_ipv4(numeric(c, Source::kIpBytes, 65535, {}, 4, 2));
      case About::kLength:
        return with_ipv4(numeric(c, Source::kIpBytes, 65535, {}, 2, 2));
      case About::kTos:
        return with_ipv4(numeric(c, Source::kIpBytes, 255, {}, 1, 1));
      case About::kDscp:
        return numeric(c, Source::kDscp, 63, dscp_value);
      case About::kTtl:
        return numeric(c, Source::kTtl, 255);
      case About::kTcpOption:
        return tcp_option(q, c);
      case About::kTcpWindow:
        return both(tcp_header(q, c, FlowKey::kShortL4), numeric(c, Source::kTransBytes, 65535, {}, 14, 2));
      case About::kIcmpType: {
        const bool six = q.protocol == 58;
        const uint32_t n =
            numeric(c, Source::kIcmpType, 255, [six](std::string_view t) { return icmp_type_named(t, six); });
        if (fault_) return 0;
        if (q.protocol && *q.protocol != 1 && *q.protocol != 58)
          return error(c.value, "only ICMP has types", "icmp type T");
        return both(both(protocol_is(six ? 58 : 1), bits(0, FlowKey::kLaterFragment | FlowKey::kNoIcmpType)),
                    both(equals(Source::kFamily, six ? 6 : 4), n));
      }
      default:
        return unknown(c.value);
    }
  }

  // VALUE, or a range that the operator makes of it, of a number with a mask. `all` is the field's largest value.
  template <typename Names = std::optional<uint32_t> (*)(std::string_view)>
  uint32_t numeric(const Comparison& c, Source source, uint32_t all, Names known = {}, uint16_t offset = 0,
                   unsigned bytes = 0, uint32_t field = ~0u) {
    std::optional<uint32_t> v = number(c.value.text, all);
    if constexpr (std::is_pointer_v<Names>) {
      if (!v && known != nullptr) v = known(c.value.text);
    } else {
      if (!v) v = known(c.value.text);
    }
    if (!v) return wrong(c.value, "a value of this field", fmt::format("a number, 0..{}, or a name", all));
    const uint32_t mask = c.mask & field;
    uint32_t low = *v, high = *v;
    if (c.op == "<=" || c.op == "<") low = 0;
    if (c.op == ">=" || c.op == ">") high = ~0u;
    if (c.op == "<") {
      if (*v == 0) return constant(false);
      high = *v - 1;
    }
    if (c.op == ">") {
      if (*v == ~0u) return constant(false);
      low = *v + 1;
    }
    return test(source, mask, low, high, c.op == "!=", offset, bytes);
  }

  uint32_t address(const Qualifiers& q, const Comparison& c, std::optional<IpPrefix> prefix) {
    if (c.mask != ~0u || (c.op != "==" && c.op != "!="))
      return error(c.value, "addresses are equal or not", "host ADDRESS, net PREFIX, with == or !=");
    if (q.about == About::kNet && prefix && is("mask")) {
      take();
      const Token m = take();
      const auto mask = parse_ip(m.text);
      uint32_t length = 0;
      while (mask && length < 32 && (mask->lo >> (31 - length) & 1) != 0) ++length;
      if (!mask || mask->family != 4 || prefix->address.family != 4 || mask->lo != high_mask32(length))
        return wrong(m, "a mask", "an IPv4 mask whose ones have no gaps");
      prefix->length = static_cast<uint8_t>(length);
      prefix->address.lo &= high_mask32(length);
    }
    const bool whole = prefix && prefix->length == (prefix->address.family == 4 ? 32 : 128);
    if (!prefix || (q.about == About::kHost && (!whole || c.value.text.find('/') != std::string_view::npos)))
      return wrong(c.value, q.about == About::kHost ? "an address" : "a prefix",
                   q.about == About::kHost ? "10.0.0.1 or 2001:db8::1" : "10.0.0.0/8, 2001:db8::/32, or net A mask M");
    const uint32_t n = of_side(
        q.side, [&](bool source) { return node({.kind = Kind::kPrefix, .source = source, .prefix = *prefix}); });
    if (fault_ || c.op == "==") return n;
    return both(equals(Source::kFamily, prefix->address.family), join(Kind::kNot, n));
  }

  uint32_t port(const Qualifiers& q, const Comparison& c) {
    uint32_t protocols = 0;
    if (q.protocol) {
      if (*q.protocol != 6 && *q.protocol != 17 && *q.protocol != 132 && *q.protocol != 33 && *q.protocol != 136)
        return error(c.value, fmt::format("protocol {} has no ports", *q.protocol), "tcp, udp, sctp, dccp or udplite");
      protocols = protocol_is(*q.protocol);
    } else {
      const uint32_t tcp = protocol_is(6), udp = protocol_is(17);
      protocols = fault_ ? 0 : join(Kind::kOr, tcp, udp);
    }
    Comparison plain = c;
    const bool unequal = c.op == "!=";
    if (unequal) plain.op = "==";
    uint32_t n = of_side(q.side, [&](bool source) {
      return numeric(plain, source ? Source::kSrcPort : Source::kDstPort, 65535, port_named);
    });
    if (fault_) return 0;
    if (unequal) n = join(Kind::kNot, n);
    return both(both(protocols, bits(FlowKey::kHasPorts, FlowKey::kHasPorts)), n);
  }

  // Of TCP whose header is there as far as a field that `absent` would say is missing.
  uint32_t tcp_header(const Qualifiers& q, const Comparison& c, uint8_t absent = FlowKey::kNoFlags) {
    if (q.protocol && *q.protocol != 6) return error(c.value, "only TCP has this field", "tcp");
    return both(protocol_is(6), bits(FlowKey::kHasPorts, FlowKey::kHasPorts | absent));
  }

  uint32_t tcp_option(const Qualifiers& q, const Comparison& c) {
    const auto flag = find_named(kFlags, c.value.text);
    if (!c.explicit_op) {  // has the flag
      const auto v = flag ? flag : number(c.value.text, 255);
      if (!v) return wrong(c.value, "a TCP flag", "syn, ack, fin, rst, psh, urg", nearest(kFlags, c.value.text));
      return both(tcp_header(q, c), test(Source::kTcpFlags, *v, *v, *v));
    }
    return both(tcp_header(q, c),
                numeric(c, Source::kTcpFlags, 255, [](std::string_view t) { return find_named(kFlags, t); }));
  }

  // NAME[P:L], NAME[P]
  uint32_t raw() {
    const Token name = take();
    take();  // the bracket
    const Token p = take();
    const auto offset = number(p.text, 65000);
    if (!offset) return wrong(p, "an offset", "ip[OFFSET:LENGTH]");
    uint32_t bytes = 1;
    if (take_if(":")) {
      const Token l = take();
      const auto length = number(l.text, 4);
      if (!length || *length == 0) return wrong(l, "a length", "1 to 4 bytes");
      bytes = *length;
    }
    if (!take_if("]")) return wrong(peek(), "']'", "ip[OFFSET:LENGTH]");
    Comparison c;
    if (const auto fault = comparison(c, "a number")) return *fault;
    const bool ip = same_word(name.text, "ip");
    const uint32_t n = numeric(c, ip ? Source::kIpBytes : Source::kTransBytes, bytes == 4 ? ~0u : (1u << 8 * bytes) - 1,
                               {}, static_cast<uint16_t>(*offset), bytes);
    const auto protocol = transport(name.text);
    return protocol && !fault_ ? both(protocol_is(*protocol), n) : n;
  }

  PatternList& list_;
  std::string_view text_;
  const AddressScope& names_;
  std::deque<std::string> literals_;  // what names stand for
  std::vector<Token> tokens_;
  size_t next_ = 0;
  bool bracket_ = false;
  Qualifiers previous_;
  std::optional<PatternFault> fault_;
};

std::optional<PatternFault> PatternList::add(std::string_view text, uint8_t output, const AddressScope& names) {
  uint32_t root = 0;
  if (auto fault = PatternParser(*this, text, names).run(root)) return fault;
  patterns_.push_back({root, output});
  return std::nullopt;
}

}  // namespace sluice
