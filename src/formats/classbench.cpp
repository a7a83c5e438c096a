#include "formats/classbench.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/scanner.h"
#include "net/text.h"

namespace sluice {
namespace {

// Reads one line's fields; the first fault is reported and ends the line.
class Reader {
 public:
  Reader(std::string_view text, std::string file_name) : text_(text), scan_(text), found_(file_name, text) {
    set_.files.push_back(std::move(file_name));
  }

  Result<RuleSet> run() {
    set_.rules.reserve(std::min<size_t>(text_.size() / 40, 1 << 20));
    uint32_t line = 1;
    for (; !scan_.end_of_text(); ++line, scan_.skip_line()) {
      scan_.skip_blanks();
      if (scan_.end_of_line() || scan_.peek() == '#') continue;
      // Past the limit an error costs a scan for its line number and is not kept: stop, the count says "at least".
      if (found_.error_count() > Diagnostics::kLimit) break;
      AclRule rule;
      rule.line = line;
      if (!read(rule)) continue;
      if (set_.rules.size() >= RuleSet::kMaxRules) {
        found_.error_at(scan_.at(), 1, fmt::format("more than {} rules", RuleSet::kMaxRules));
        break;
      }
      set_.rules.push_back(rule);
    }
    if (!found_.ok()) return found_.to_error();
    return std::move(set_);
  }

 private:
  bool fail(std::string_view what, std::string_view expected, std::string suggestion = {}) {
    const auto word = scan_.word();
    const std::string shown(word.substr(0, 40));
    Diagnostic& d = found_.error_at(scan_.at(), word.size(),
                                    word.empty() ? fmt::format("the line ends where {} should be", what)
                                                 : fmt::format("'{}' is not {}", shown, what));
    d.expected = expected;
    d.suggestion = std::move(suggestion);
    return false;
  }

  bool read(AclRule& rule) {
    if (!scan_.take('@')) {
      return fail("a ClassBench rule", "@SRC/LEN DST/LEN LOW : HIGH LOW : HIGH 0xPROTO/0xMASK [0xFLAGS/0xMASK]",
                  "put @ in front of the source prefix, or read the file as native rules");
    }
    if (!prefix(rule, rule.src, "a source prefix")) return false;
    const size_t dst_at = (scan_.skip_blanks(), scan_.at());
    if (!prefix(rule, rule.dst, "a destination prefix")) return false;
    if (rule.src.address.family != rule.dst.address.family) {
      found_.error_at(dst_at, 1, "the source and the destination are of different address families").expected =
          "two IPv4 or two IPv6 prefixes";
      return false;
    }
    rule.family = rule.src.address.family;
    if (!ports(rule.src_port_low, rule.src_port_high, "a source port range")) return false;
    if (!ports(rule.dst_port_low, rule.dst_port_high, "a destination port range")) return false;
    uint64_t value = 0, mask = 0;
    scan_.skip_blanks();
    if (!value_mask(0xff, value, mask)) return fail("a protocol", "0xPROTO/0xMASK, for example 0x06/0xFF");
    rule.protocol_mask = static_cast<uint8_t>(mask);
    rule.protocol = static_cast<uint8_t>(value & mask);
    scan_.skip_blanks();
    if (!scan_.end_of_line() && scan_.peek() != '#') {
      if (!value_mask(0xffff, value, mask)) return fail("a flags field", "0xFLAGS/0xMASK, for example 0x1000/0x1000");
      rule.flags_mask = static_cast<uint16_t>(mask);
      rule.flags = static_cast<uint16_t>(value & mask);
      scan_.skip_blanks();
    }
    if (!scan_.end_of_line() && scan_.peek() != '#')
      return fail("the end of the line", "nothing after the flags field");
    return true;
  }

  bool value_mask(uint64_t limit, uint64_t& value, uint64_t& mask) {
    const size_t start = scan_.at();
    if (scan_.hex(limit, value) && scan_.take('/') && scan_.hex(limit, mask) && at_border()) return true;
    scan_.seek(start);
    return false;
  }

  bool at_border() const { return scan_.end_of_line() || scan_.peek() == ' ' || scan_.peek() == '\t'; }

  // Dotted quads are read in place; anything else goes to the general reader.
  bool prefix(AclRule&, IpPrefix& prefix, std::string_view what) {
    scan_.skip_blanks();
    const size_t start = scan_.at();
    uint64_t octet = 0, address = 0, length = 0;
    bool good = true;
    for (int i = 0; i < 4 && good; ++i) {
      good = (i == 0 || scan_.take('.')) && scan_.decimal(255, octet);
      address = address << 8 | octet;
    }
    if (good && scan_.take('/') && scan_.decimal(32, length) && at_border()) {
      prefix.address.family = 4;
      prefix.length = static_cast<uint8_t>(length);
      prefix.address.lo = address & high_mask32(static_cast<unsigned>(length));
      return true;
    }
    scan_.seek(start);
    const auto word = scan_.word();
    if (word.find('/') != std::string_view::npos) {
      if (const auto parsed = parse_prefix(word)) {
        prefix = *parsed;
        scan_.seek(start + word.size());
        return true;
      }
    }
    return fail(what, "ADDRESS/LENGTH, for example 10.0.0.0/8 or 2001:db8::/32");
  }

  bool ports(uint16_t& low, uint16_t& high, std::string_view what) {
    scan_.skip_blanks();
    const size_t start = scan_.at();
    uint64_t a = 0, b = 0;
    bool good = scan_.decimal(65535, a);
    scan_.skip_blanks();
    good = good && scan_.take(':');
    scan_.skip_blanks();
    good = good && scan_.decimal(65535, b) && at_border();
    if (!good) {
      scan_.seek(start);
      return fail(what, "LOW : HIGH, each 0..65535");
    }
    if (a > b) {
      Diagnostic& d = found_.error_at(start, scan_.at() - start, fmt::format("port range {} : {} is empty", a, b));
      d.expected = "LOW : HIGH with LOW <= HIGH";
      d.suggestion = fmt::format("write it {} : {}", b, a);
      return false;
    }
    low = static_cast<uint16_t>(a);
    high = static_cast<uint16_t>(b);
    return true;
  }

  std::string_view text_;
  Scanner scan_;
  Diagnostics found_;
  RuleSet set_;
};

}  // namespace

Result<RuleSet> parse_classbench(std::string_view text, std::string file_name) {
  return Reader(text, std::move(file_name)).run();
}

Result<std::string> to_classbench(const RuleSet& set) {
  std::string out;
  for (size_t i = 0; i < set.rules.size(); ++i) {
    const AclRule& r = set.rules[i];
    const char* fault = nullptr;
    if (r.family == 0) fault = "has no address family";
    if (r.dscp != AclRule::kAnyDscp) fault = "matches on DSCP";
    if (r.bits_mask != 0) fault = "matches on fragments";
    if (r.icmp_mask != 0) fault = "matches on ICMP types";
    if (r.needs_ports) fault = "asks that ports are present";
    if (r.verb != AclVerb::kPermit || r.log || r.keep) fault = "has an action other than permit";
    if (fault != nullptr) {
      return Error(fmt::format("rule {} {}, which ClassBench text cannot express", i + 1, fault), "write native rules");
    }
    auto prefix = [&](IpPrefix p) {
      p.address.family = r.family;  // a prefix of length 0 may have none
      return to_string(p);
    };
    fmt::format_to(std::back_inserter(out), "@{}\t{}\t{} : {}\t{} : {}\t0x{:02X}/0x{:02X}\t0x{:04X}/0x{:04X}\n",
                   prefix(r.src), prefix(r.dst), r.src_port_low, r.src_port_high, r.dst_port_low, r.dst_port_high,
                   r.protocol, r.protocol_mask, r.flags, r.flags_mask);
  }
  return out;
}

}  // namespace sluice
