#include "formats/vpp_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/match_builder.h"
#include "formats/names.h"
#include "formats/scanner.h"
#include "net/text.h"

namespace sluice {
namespace {

using namespace names;

constexpr size_t kMaxRules = size_t{1} << 22;
constexpr const char* kRuleWords =
    "src PREFIX, dst PREFIX, proto N, sport X[-Y], dport X[-Y], tcpflags V mask M, tag TAG, or ',' and the next rule";

struct Word {
  std::string_view text;
  size_t at = 0;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name) : text_(text), found_(file_name, text) {
    set_.files.push_back(file_name);
  }

  Result<RuleSet> run() {
    size_t at = 0;
    for (line_ = 1; at < text_.size(); ++line_) {
      if (found_.error_count() > Diagnostics::kLimit || full_) break;
      const size_t end = std::min(text_.find('\n', at), text_.size());
      split(at, end);
      if (!words_.empty()) command();
      at = end + 1;
    }
    if (!found_.ok()) return found_.to_error();
    return std::move(set_);
  }

 private:
  // Words; a comma is one of its own.
  void split(size_t at, size_t end) {
    words_.clear();
    next_ = 0;
    auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (at < end && text_[at] != '#') {
      size_t to = at + 1;
      if (!blank(text_[at])) {
        if (text_[at] != ',') {
          while (to < end && !blank(text_[to]) && text_[to] != ',' && text_[to] != '#') ++to;
        }
        words_.push_back({text_.substr(at, to - at), at});
      }
      at = to;
    }
    if (!words_.empty()) end_ = words_.back().at + words_.back().text.size();
  }
  bool more() const { return next_ < words_.size(); }
  Word take() { return more() ? words_[next_++] : Word{{}, end_}; }
  bool take_if(std::string_view word) {
    if (!more() || words_[next_].text != word) return false;
    ++next_;
    return true;
  }

  bool fail(const Word& word, std::string message, std::string expected, std::string suggestion = {}) {
    Diagnostic& d = found_.error_at(word.at, word.text.size(), std::move(message));
    d.expected = std::move(expected);
    d.suggestion = std::move(suggestion);
    return false;
  }
  bool wrong(const Word& word, std::string_view what, std::string expected, std::string suggestion = {}) {
    return fail(word,
                word.text.empty() ? fmt::format("the line ends where {} should be", what)
                                  : fmt::format("'{}' is not {}", word.text.substr(0, 60), what),
                std::move(expected), std::move(suggestion));
  }

  void command() {
    const Word first = words_[0];
    if (!(take_if("set") && take_if("acl-plugin") && take_if("acl"))) {
      fail(first,
           fmt::format("'{}' is a command that is not understood",
                       text_.substr(first.at, std::min<size_t>(end_ - first.at, 60))),
           "set acl-plugin acl RULE, RULE ...", "only the rules are read; leave other commands out");
      return;
    }
    do {
      if (!rule()) {
        // The next rule is still read.
        while (more() && words_[next_].text != ",") ++next_;
      }
    } while (take_if(",") && found_.error_count() <= Diagnostics::kLimit && !full_);
  }

  struct Draft {
    AclRule rule;
    std::optional<Word> sport, dport, flags;  // as given, for findings
    uint32_t protocol = 0;
  };

  bool rule() {
    Draft d;
    d.rule.line = line_;
    const Word action = take();
    if (action.text == "permit") {
      d.rule.verb = AclVerb::kPermit;
    } else if (action.text == "deny") {
      d.rule.verb = AclVerb::kDeny;
    } else if (action.text == "permit+reflect") {
      return fail(action, "'permit+reflect' opens a session for the packets of the other direction", "permit or deny",
                  "there are no sessions here: write permit, and a rule for what comes back");
    } else {
      const std::string near = closest_match(action.text, {"permit", "deny"});
      return wrong(action, "an action", "permit or deny",
                   near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
    }
    IpPrefix src, dst;
    bool good = true;
    while (more() && words_[next_].text != ",") {
      const Word key = take();
      if (key.text == "src" || key.text == "dst") {
        good &= prefix(take(), key.text == "src" ? src : dst);
      } else if (key.text == "proto") {
        const Word v = take();
        const auto n = number(v.text, 255);
        const auto named = find_named(kProtocols, v.text);
        if (!n && !(named && *named < 256))
          good = wrong(v, "a protocol", "0..255, tcp, udp or another name", nearest(kProtocols, v.text));
        d.protocol = n ? *n : named.value_or(0);
      } else if (key.text == "sport") {
        d.sport = Word{{}, key.at};
        good &= range(*d.sport, d.rule.src_port_low, d.rule.src_port_high);
      } else if (key.text == "dport") {
        d.dport = Word{{}, key.at};
        good &= range(*d.dport, d.rule.dst_port_low, d.rule.dst_port_high);
      } else if (key.text == "tcpflags") {
        d.flags = key;
        good &= flags(d.rule);
      } else if (key.text == "tag") {
        take();  // a name for the whole list
      } else {
        const std::string near =
            closest_match(key.text, {"src", "dst", "proto", "sport", "dport", "tcpflags", "tag", ","});
        return wrong(key, "a part of a rule", kRuleWords,
                     near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
      }
    }
    if (!good) return false;
    return finish(d, src, dst, action);
  }

  bool prefix(const Word& word, IpPrefix& out) {
    const auto parsed = parse_prefix(word.text);
    if (!parsed || word.text.find('/') == std::string_view::npos)
      return wrong(word, "a prefix", "ADDRESS/LENGTH, such as 10.0.0.0/8 or 2001:db8::/32");
    out = *parsed;
    return true;
  }

  // "80" or "80-90"; `word` gets its text and place.
  bool range(Word& word, uint16_t& low, uint16_t& high) {
    word = take();
    const size_t dash = word.text.find('-');
    const auto a = number(word.text.substr(0, dash), 65535);
    const auto b = dash == std::string_view::npos ? a : number(word.text.substr(dash + 1), 65535);
    if (!a || !b) return wrong(word, "a port range", "X or X-Y, each 0..65535");
    if (*a > *b) {
      return fail(word, fmt::format("port range {} is empty", word.text), "X-Y with X <= Y",
                  fmt::format("write it {}-{}", *b, *a));
    }
    low = static_cast<uint16_t>(*a);
    high = static_cast<uint16_t>(*b);
    return true;
  }

  bool flags(AclRule& rule) {
    const Word v = take();
    const auto value = number(v.text, 255);
    if (!value) return wrong(v, "the TCP flags", "tcpflags V mask M, each 0..255");
    take_if("mask");
    const Word m = take();
    const auto mask = number(m.text, 255);
    if (!mask) return wrong(m, "the mask of the TCP flags", "tcpflags V mask M, each 0..255");
    if ((*value & ~*mask) != 0) {
      return fail(v,
                  fmt::format("the flags {} have bits that the mask {} leaves out: no packet matches", *value, *mask),
                  "a value with no bit outside of the mask");
    }
    rule.flags = static_cast<uint16_t>(*value << 8);
    rule.flags_mask = static_cast<uint16_t>(*mask << 8);
    return true;
  }

  // Puts what was given together; ports by protocol.
  bool finish(Draft& d, const IpPrefix& src, const IpPrefix& dst, const Word& action) {
    AclRule& rule = d.rule;
    const uint8_t src_family = src.address.family, dst_family = dst.address.family;
    if (src_family != 0 && dst_family != 0 && src_family != dst_family) {
      return fail(action, "the source and the destination are of different address families",
                  "two IPv4 or two IPv6 prefixes");
    }
    rule.family = src_family != 0 ? src_family : dst_family != 0 ? dst_family : uint8_t{4};
    rule.src = src;
    rule.dst = dst;
    if (rule.src.length == 0) rule.src = {};
    if (rule.dst.length == 0) rule.dst = {};
    const bool ports =
        rule.src_port_low != 0 || rule.src_port_high != 65535 || rule.dst_port_low != 0 || rule.dst_port_high != 65535;
    const Word& port_word = d.sport ? *d.sport : d.dport ? *d.dport : action;
    const uint32_t icmp = rule.family == 4 ? 1 : 58;
    if (d.protocol == 0) {
      if (ports) return fail(port_word, "ports without a protocol are not matched", "proto N with the ports");
      if (rule.flags_mask != 0) return fail(*d.flags, "TCP flags without a protocol are not matched", "proto 6");
      return add(rule);
    }
    rule.protocol = static_cast<uint8_t>(d.protocol);
    rule.protocol_mask = 0xff;
    if (rule.flags_mask != 0 && d.protocol != 6) return fail(*d.flags, "TCP flags are matched in TCP only", "proto 6");
    if (d.protocol == 6 || d.protocol == 17) {
      if (ports || rule.flags_mask != 0) {
        rule.needs_ports = true;
      } else {
        rule.bits_mask = FlowKey::kLaterFragment;
      }
      return add(rule);
    }
    rule.bits_mask = FlowKey::kLaterFragment;
    if (d.protocol != icmp) {
      if (ports) return fail(port_word, "ports are matched in TCP and UDP only", "proto 6 or proto 17");
      return add(rule);
    }
    const AclRule given = rule;
    rule.src_port_low = rule.dst_port_low = 0;
    rule.src_port_high = rule.dst_port_high = 65535;
    // Types and codes are bytes.
    if (given.src_port_low > 255 || given.dst_port_low > 255)
      return fail(port_word, "no ICMP type or code is in this range",
                  "sport TYPE[-TYPE] and dport CODE[-CODE], 0..255");
    const auto types = byte_cubes(given.src_port_low, given.src_port_high);
    const auto codes = byte_cubes(given.dst_port_low, given.dst_port_high);
    for (const auto& [type, type_mask] : types) {
      for (const auto& [code, code_mask] : codes) {
        rule.icmp = static_cast<uint16_t>(type << 8 | code);
        rule.icmp_mask = static_cast<uint16_t>(type_mask << 8 | code_mask);
        if (!add(rule)) return false;
      }
    }
    return true;
  }

  // Values and masks that make up the bytes from low to high (a range of 16 bits).
  static std::vector<std::pair<unsigned, unsigned>> byte_cubes(unsigned low, unsigned high) {
    const IpAddress from{0, low, 4}, to{0, std::min(high, 255u), 4};
    std::vector<std::pair<unsigned, unsigned>> out;
    for (const IpPrefix& p : prefixes_of_range(from, to))
      out.emplace_back(static_cast<unsigned>(p.address.lo), high_mask32(p.length) & 0xff);
    return out;
  }

  bool add(const AclRule& rule) {
    if (set_.rules.size() >= kMaxRules) {
      full_ = true;
      return fail(words_[0], fmt::format("more than {} rules", kMaxRules), "fewer rules");
    }
    set_.rules.push_back(rule);
    return true;
  }

  std::string_view text_;
  Diagnostics found_;
  RuleSet set_;
  std::vector<Word> words_;
  size_t next_ = 0;
  size_t end_ = 0;  // of the line's text
  uint32_t line_ = 0;
  bool full_ = false;
};

}  // namespace

bool is_vpp_command(std::string_view line) {
  Scanner scan(line);
  for (const char* word : {"set", "acl-plugin"}) {
    scan.skip_blanks();
    if (scan.word() != word) return false;
    scan.seek(scan.at() + scan.word().size());
  }
  return true;
}

Result<RuleSet> parse_vpp_rules(std::string_view text, const std::string& file_name) {
  return Reader(text, file_name).run();
}

}  // namespace sluice
