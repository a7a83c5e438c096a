#include "graph/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/assert.h"
#include "net/text.h"

namespace sluice {
namespace {

// 0:1:2:3:4:5 with two digits a byte, as configurations for Click have them with one.
std::string padded_mac(std::string_view text) {
  std::string padded;
  size_t digits = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == ':' && digits == 1) padded.insert(padded.begin(), '0');
    digits = text[i] == ':' ? 0 : digits + 1;
    padded.insert(padded.begin(), text[i]);
  }
  if (digits == 1 && text.find(':') != std::string_view::npos) padded.insert(padded.begin(), '0');
  return padded.size() <= 17 ? padded : std::string(text);
}

using Kind = ArgumentKind;

constexpr std::string_view kKindNames[] = {"bool", "int",    "uint",    "double", "time", "bandwidth", "bytes",
                                           "ipv4", "ipv6",   "ip",      "prefix", "mac",  "string",    "filename",
                                           "word", "choice", "element", "port",   "raw"};
constexpr size_t kMaxArguments = 1000000;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  if (text.size() > 60) out += "...";
  return out;
}

bool looks_like_keyword(std::string_view word) {
  if (word.empty() || !(word[0] >= 'A' && word[0] <= 'Z')) return false;
  return std::all_of(word.begin(), word.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_'; });
}

// Bounds are doubles: whole ones are written without a fraction.
std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

std::string range_text(const ArgumentSpec& spec, double natural_min) {
  const double low = std::max(spec.min, natural_min);
  const bool has_low = std::isfinite(low);
  const bool has_high = std::isfinite(spec.max);
  if (has_low && has_high) return fmt::format(" from {} to {}", number_text(low), number_text(spec.max));
  if (has_low && low != 0) return fmt::format(" of at least {}", number_text(low));
  if (has_low) return ", not negative";
  if (has_high) return fmt::format(" of at most {}", number_text(spec.max));
  return "";
}

bool in_range(const ArgumentSpec& spec, double value) {
  return value >= spec.min && value <= spec.max;
}

// Digits with an optional fraction, times `scale`, exactly; false on overflow or when not such a number. What is past
// the resolution is cut off.
bool scaled_decimal(std::string_view text, uint64_t scale, uint64_t* out) {
  unsigned __int128 whole = 0;
  size_t i = 0;
  bool digits = false;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    digits = true;
    whole = whole * 10 + static_cast<unsigned>(text[i] - '0');
    if (whole > UINT64_MAX) return false;
  }
  unsigned __int128 total = whole * scale;
  if (i < text.size() && text[i] == '.') {
    uint64_t unit = scale;
    unsigned __int128 fraction = 0;
    unsigned __int128 divisor = 1;
    for (++i; i < text.size() && is_digit(text[i]); ++i) {
      digits = true;
      if (divisor > 1000000000000000000U) continue;
      fraction = fraction * 10 + static_cast<unsigned>(text[i] - '0');
      divisor *= 10;
    }
    total += fraction * unit / divisor;
  }
  if (!digits || i != text.size() || total > UINT64_MAX) return false;
  *out = static_cast<uint64_t>(total);
  return true;
}

size_t number_length(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && (is_digit(text[i]) || text[i] == '.')) ++i;
  return i;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool parse_magnitude(std::string_view text, uint64_t* out, std::string* problem) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0' && is_digit(text[1])) {
    *problem = "has a leading zero, which Click reads as octal; write it decimal or 0x";
    return false;
  }
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  if (code == std::errc::result_out_of_range) {
    *problem = "is out of range";
    return false;
  }
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) {
    *problem = "is not a number";
    return false;
  }
  return true;
}

}  // namespace

std::string_view kind_name(ArgumentKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::string describe(const ArgumentSpec& spec) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const std::string unit = spec.unit.empty() ? "" : fmt::format(" ({})", spec.unit);
  switch (spec.kind) {
    case Kind::kBool:
      return "true or false";
    case Kind::kInt:
      return "a whole number" + range_text(spec, kNone) + unit;
    case Kind::kUint:
      return "a whole number" + range_text(spec, 0) + unit;
    case Kind::kDouble:
      return "a number" + range_text(spec, kNone) + unit;
    case Kind::kTime: {
      const std::string range = range_text(spec, 0);
      return "a time such as 10ms" + (range == ", not negative" ? "" : range + " seconds") +
             " (seconds without a unit)";
    }
    case Kind::kBandwidth: {
      const std::string range = range_text(spec, 0);
      return "a rate such as 10Mbps" + (range == ", not negative" ? "" : range + " bytes per second") +
             " (bytes per second without a unit)";
    }
    case Kind::kBytes:
      return "bytes: \"text\" or \\<48 45 4c>" + unit;
    case Kind::kIpv4:
      return "an IPv4 address such as 10.0.0.1";
    case Kind::kIpv6:
      return "an IPv6 address such as 2001:db8::1";
    case Kind::kIp:
      return "an IP address such as 10.0.0.1 or 2001:db8::1";
    case Kind::kPrefix:
      return "a prefix such as 10.0.0.0/8 or 2001:db8::/32";
    case Kind::kMac:
      return "a MAC address such as 02:00:00:00:00:01";
    case Kind::kString:
      return "a text";
    case Kind::kFilename:
      return "a file name";
    case Kind::kWord:
      return "a word";
    case Kind::kChoice:
      return "one of " + fmt::format("{}", fmt::join(spec.choices, ", "));
    case Kind::kElement:
      return "the name of an element";
    case Kind::kPort:
      return "the name of a port such as eth0";
    case Kind::kRaw:
      return spec.help.empty() ? "text" : spec.help;
  }
  return {};
}

std::string synopsis(const std::vector<ArgumentSpec>& specs) {
  std::string out;
  auto add = [&](const std::string& piece) {
    if (!out.empty()) out += ", ";
    out += piece;
  };
  for (const ArgumentSpec& s : specs) {
    if (!s.positional) continue;
    const std::string name = s.repeated ? s.name + ", ..." : s.name;
    add(s.mandatory ? name : "[" + name + "]");
  }
  for (const ArgumentSpec& s : specs) {
    if (s.positional) continue;
    const std::string piece = fmt::format("{} {}{}", s.name, kind_name(s.kind), s.repeated ? " ..." : "");
    add(s.mandatory ? piece : "[" + piece + "]");
  }
  return out;
}

bool parse_time_ns(std::string_view text, uint64_t* ns) {
  text = trim(text);
  const size_t split = number_length(text);
  const std::string_view unit = trim(text.substr(split));
  uint64_t scale = 0;
  if (unit.empty() || unit == "s" || unit == "sec") scale = 1000000000;
  if (unit == "ms" || unit == "msec") scale = 1000000;
  if (unit == "us" || unit == "usec") scale = 1000;
  if (unit == "ns" || unit == "nsec") scale = 1;
  if (unit == "m" || unit == "min") scale = 60000000000;
  if (unit == "h" || unit == "hr") scale = 3600000000000;
  if (unit == "d" || unit == "day") scale = 86400000000000;
  return scale != 0 && scaled_decimal(text.substr(0, split), scale, ns);
}

bool parse_bandwidth_bps(std::string_view text, uint64_t* bps) {
  text = trim(text);
  const size_t split = number_length(text);
  std::string_view unit = trim(text.substr(split));
  uint64_t scale = 8;
  if (!unit.empty()) {
    uint64_t multiple = 1;
    if (unit.size() > 1 && unit[0] != 'b' && unit[0] != 'B') {
      if (unit[0] == 'k' || unit[0] == 'K') multiple = 1000;
      if (unit[0] == 'M') multiple = 1000000;
      if (unit[0] == 'G') multiple = 1000000000;
      if (unit[0] == 'T') multiple = 1000000000000;
      if (multiple == 1) return false;
      unit.remove_prefix(1);
    }
    if (unit == "bps" || unit == "b/s" || unit == "baud") {
      scale = multiple;
    } else if (unit == "Bps" || unit == "B/s") {
      scale = 8 * multiple;
    } else {
      return false;
    }
  }
  return scaled_decimal(text.substr(0, split), scale, bps);
}

// What a name has to stand for in an argument of this kind; nothing: names stand for nothing.
static std::optional<AddressNames::Wanted> wanted_address(ArgumentKind kind) {
  switch (kind) {
    case Kind::kIpv4:
      return AddressNames::Wanted::kIpv4;
    case Kind::kIpv6:
      return AddressNames::Wanted::kIpv6;
    case Kind::kIp:
      return AddressNames::Wanted::kIp;
    case Kind::kPrefix:
      return AddressNames::Wanted::kPrefix;
    case Kind::kMac:
      return AddressNames::Wanted::kMac;
    default:
      return std::nullopt;
  }
}

// What is wrong with a text that is to be a number of some kind, or true or false; empty: nothing.
static std::string read_number(const ArgumentSpec& spec, const std::string& text, ArgumentValue* value) {
  switch (spec.kind) {
    case Kind::kBool: {
      const std::string word = lower(text);
      if (word == "true" || word == "yes" || word == "1") {
        value->boolean = true;
      } else if (word == "false" || word == "no" || word == "0") {
        value->boolean = false;
      } else {
        return "is neither true nor false";
      }
      return "";
    }
    case Kind::kInt: {
      const bool negative = !text.empty() && text[0] == '-';
      std::string_view digits = text;
      if (negative || (!text.empty() && text[0] == '+')) digits.remove_prefix(1);
      uint64_t magnitude = 0;
      std::string why;
      if (!parse_magnitude(digits, &magnitude, &why)) return why;
      constexpr uint64_t kLimit = uint64_t{1} << 63;
      if (magnitude > (negative ? kLimit : kLimit - 1)) return "is out of range";
      value->signed_number = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
      if (!in_range(spec, static_cast<double>(value->signed_number))) return "is out of range";
      return "";
    }
    case Kind::kUint: {
      std::string_view digits = text;
      if (!text.empty() && text[0] == '+') digits.remove_prefix(1);
      std::string why;
      if (text.size() > 1 && text[0] == '-' && is_digit(text[1])) return "is negative";
      if (!parse_magnitude(digits, &value->number, &why)) return why;
      if (!in_range(spec, static_cast<double>(value->number))) return "is out of range";
      return "";
    }
    case Kind::kDouble: {
      std::string_view digits = text;
      if (!text.empty() && text[0] == '+') digits.remove_prefix(1);
      const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value->real);
      if (code == std::errc::result_out_of_range) return "is out of range";
      if (digits.empty() || code != std::errc() || end != digits.data() + digits.size() ||
          !std::isfinite(value->real)) {
        value->real = 0;
        return "is not a number";
      }
      if (!in_range(spec, value->real)) return "is out of range";
      return "";
    }
    case Kind::kTime:
      if (!parse_time_ns(text, &value->number)) return "is not a time";
      if (!in_range(spec, static_cast<double>(value->number) / 1e9)) return "is out of range";
      return "";
    case Kind::kBandwidth:
      if (!parse_bandwidth_bps(text, &value->number)) return "is not a rate";
      if (!in_range(spec, static_cast<double>(value->number) / 8)) return "is out of range";
      return "";
    default:
      return "";
  }
}

// The same of an address.
static std::string read_address(const ArgumentSpec& spec, const std::string& text, ArgumentValue* value) {
  switch (spec.kind) {
    case Kind::kIpv4:
    case Kind::kIpv6:
    case Kind::kIp: {
      const auto ip = parse_ip(text);
      if (!ip || (spec.kind == Kind::kIpv4 && ip->family != 4) || (spec.kind == Kind::kIpv6 && ip->family != 6)) {
        const bool other = ip.has_value();
        return other ? "is an address of the other family" : "is not an address";
      }
      value->ip = *ip;
      return "";
    }
    case Kind::kPrefix: {
      bool host_bits = false;
      const auto prefix = parse_prefix(text, &host_bits);
      if (!prefix) return "is not a prefix";
      if (host_bits) return fmt::format("has bits past its length; write it {}", to_string(*prefix));
      value->prefix = *prefix;
      return "";
    }
    case Kind::kMac: {
      const auto mac = parse_mac(padded_mac(text));
      if (!mac) return "is not a MAC address";
      value->mac = *mac;
      return "";
    }
    default:
      return "";
  }
}

bool parse_value(const ArgumentSpec& spec, std::string_view raw, ArgumentValue* value, std::string* problem,
                 const AddressScope& names) {
  auto fail = [&](std::string what) {
    *problem = std::move(what);
    return false;
  };
  auto wrong = [&](std::string_view text, std::string_view what) {
    return fail(fmt::format("'{}' {}", shown(text), what));
  };
  if (spec.kind == Kind::kRaw) {
    value->text = strip_comments(raw);
    return true;
  }
  UnquoteFault fault;
  const auto unquoted = unquote(raw, &fault);
  if (!unquoted) return fail(fault.message);
  value->text = *unquoted;
  if (names.names != nullptr) {
    if (const auto wanted = wanted_address(spec.kind)) {
      if (auto literal = names.find(value->text, *wanted)) value->text = std::move(*literal);
    }
  }
  const std::string& text = value->text;
  const size_t words = split_words(raw).size();
  const bool free_text = spec.kind == Kind::kBytes || spec.kind == Kind::kString || spec.kind == Kind::kFilename;
  if (words > 1 && spec.kind != Kind::kTime && spec.kind != Kind::kBandwidth && spec.kind != Kind::kBytes) {
    return wrong(raw, free_text ? "is more than one word; put it between double quotes" : "is more than one word");
  }
  if (words == 0) return fail("the value is empty");
  switch (spec.kind) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kUint:
    case Kind::kDouble:
    case Kind::kTime:
    case Kind::kBandwidth: {
      const std::string why = read_number(spec, text, value);
      return why.empty() || wrong(text, why);
    }
    case Kind::kIpv4:
    case Kind::kIpv6:
    case Kind::kIp:
    case Kind::kPrefix:
    case Kind::kMac: {
      const std::string why = read_address(spec, text, value);
      return why.empty() || wrong(text, why);
    }
    case Kind::kBytes:
    case Kind::kString:
      if (!in_range(spec, static_cast<double>(text.size()))) {
        return fail(fmt::format("the text has {} bytes, outside{}", text.size(), range_text(spec, 0)));
      }
      return true;
    case Kind::kFilename:
      if (text.empty()) return fail("the file name is empty");
      if (text.find('\0') != std::string::npos) return fail("the file name holds a zero byte");
      return true;
    case Kind::kWord:
    case Kind::kElement:
    case Kind::kPort: {
      const std::string_view more = spec.kind == Kind::kElement ? "_@/" : "_@/.:+-";
      const bool good = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
        return is_letter(c) || is_digit(c) || more.find(c) != std::string_view::npos;
      });
      if (!good) return wrong(text, spec.kind == Kind::kElement ? "is not the name of an element" : "is not a word");
      return true;
    }
    case Kind::kChoice: {
      const std::string wanted = lower(text);
      for (const std::string& choice : spec.choices) {
        if (lower(choice) != wanted) continue;
        value->text = choice;
        return true;
      }
      return wrong(text, "is not a choice");
    }
    case Kind::kRaw:
      break;
  }
  return true;
}

class ArgumentsParser {
 public:
  ArgumentsParser(Arguments& out, std::vector<Diagnostic>& findings) : out_(out), findings_(findings) {}

  void run() {
    const std::string_view text = out_.configuration_;
    std::vector<ConfigSlice> slices = split_arguments(text);
    if (slices.size() > kMaxArguments) {
      error(slices[kMaxArguments], fmt::format("more than {} arguments", kMaxArguments));
      return;
    }
    std::vector<size_t> positional;
    std::vector<std::string> keywords;
    for (size_t i = 0; i < out_.specs_.size(); ++i) {
      if (out_.specs_[i].positional) positional.push_back(i);
      keywords.push_back(out_.specs_[i].name);
    }
    size_t next = 0;
    bool keyword_seen = false;
    for (size_t n = 0; n < slices.size(); ++n) {
      const ConfigSlice& slice = slices[n];
      const std::string_view argument = text.substr(slice.offset, slice.length);
      while (next < positional.size() && !out_.specs_[positional[next]].repeated &&
             !out_.given_[positional[next]].empty()) {
        ++next;
      }
      const bool slot = next < positional.size();
      if (slice.length == 0) {
        error({slice.offset, 1}, fmt::format("argument {} is empty", n + 1)).expected =
            slot ? expectation(out_.specs_[positional[next]]) : "a value, or no comma";
        if (slot && !out_.specs_[positional[next]].repeated) blocked_.insert(positional[next++]);
        continue;
      }
      const std::vector<ConfigSlice> words = split_words(argument);
      const ConfigSlice first = words.empty() ? ConfigSlice{0, argument.size()} : words[0];
      const std::string_view word = argument.substr(first.offset, first.length);
      size_t index = 0;
      const ArgumentSpec* named = out_.find(word, &index);
      const bool has_value = words.size() > 1;
      if (named != nullptr && !has_value && slot && !keyword_seen && named->kind != Kind::kBool &&
          index != positional[next]) {
        named = nullptr;  // a text that looks like a keyword, where a positional argument stands
      }
      if (named != nullptr) {
        keyword_seen = keyword_seen || !named->positional;
        const ConfigSlice at{slice.offset + first.offset, first.length};
        if (!has_value) {
          Diagnostic& d = error(at, fmt::format("{} has no value", named->name));
          d.expected = describe(*named);
          if (named->kind == Kind::kBool) d.suggestion = fmt::format("write {} true", named->name);
          blocked_.insert(index);
          continue;
        }
        if (!out_.given_[index].empty() && !named->repeated) {
          error(at, fmt::format("{} is given twice", named->name)).suggestion = "remove one of them";
          continue;
        }
        const ConfigSlice value = trim_config(argument, first.offset + first.length, argument.size());
        take(index, {slice.offset + value.offset, value.length});
        continue;
      }
      const std::string near = closest_match(word, keywords);
      const bool typo = has_value && looks_like_keyword(word) && (!slot || !near.empty());
      if (typo) {
        keyword_seen = true;
        unknown_keyword({slice.offset + first.offset, first.length}, word, near);
        continue;
      }
      if (!slot) {
        Diagnostic& d = error(slice, positional.empty() ? "this element takes no positional arguments"
                                                        : fmt::format("too many arguments, the last one is {}",
                                                                      out_.specs_[positional.back()].name));
        d.expected = keyword_list();
        continue;
      }
      if (keyword_seen && !out_.specs_[positional[next]].repeated) {
        Diagnostic& d = error(slice, "a positional argument follows a keyword");
        d.expected =
            fmt::format("positional arguments first, or {} {}", out_.specs_[positional[next]].name, shown(argument));
        blocked_.insert(positional[next++]);
        continue;
      }
      take(positional[next], slice);
      if (!out_.specs_[positional[next]].repeated) ++next;
    }
    find_missing(text);
  }

 private:
  void find_missing(std::string_view text) {
    for (size_t i = 0; i < out_.specs_.size(); ++i) {
      const ArgumentSpec& spec = out_.specs_[i];
      if (!spec.mandatory || !out_.given_[i].empty() || blocked_.count(i)) continue;
      const size_t end = text.find_last_not_of(" \t\r\n");
      const size_t at = end == std::string_view::npos ? 0 : end + 1;
      error({at, 1}, fmt::format("{} is missing", spec.name)).expected = expectation(spec);
    }
  }

  void unknown_keyword(const ConfigSlice& at, std::string_view word, const std::string& near) {
    Diagnostic& d = error(at, fmt::format("unknown keyword '{}'", shown(word)));
    if (!near.empty()) {
      d.suggestion = fmt::format("did you mean '{}'?", near);
      size_t meant = 0;
      if (out_.find(near, &meant) != nullptr) blocked_.insert(meant);  // it is not missing as well
    } else {
      d.expected = keyword_list();
    }
  }

  std::string expectation(const ArgumentSpec& spec) const { return fmt::format("{}: {}", spec.name, describe(spec)); }

  std::string keyword_list() const {
    std::string list;
    for (const ArgumentSpec& s : out_.specs_) {
      if (s.positional) continue;
      if (!list.empty()) list += ", ";
      list += s.name;
    }
    return list.empty() ? std::string("no more arguments") : "one of " + list;
  }

  void take(size_t index, ConfigSlice slice) {
    const ArgumentSpec& spec = out_.specs_[index];
    const std::string_view raw = std::string_view(out_.configuration_).substr(slice.offset, slice.length);
    ArgumentValue value;
    value.slice = slice;
    std::string problem;
    if (parse_value(spec, raw, &value, &problem, out_.names_)) {
      out_.given_[index].push_back(std::move(value));
      return;
    }
    blocked_.insert(index);
    ConfigSlice at = slice;
    UnquoteFault fault;
    std::string expected = describe(spec);
    if (spec.kind != Kind::kRaw && !unquote(raw, &fault)) {
      at = {slice.offset + fault.offset, fault.length};
      expected = fault.expected;
    }
    Diagnostic& d = error(at, fmt::format("{}: {}", spec.name, problem));
    d.expected = std::move(expected);
    if (spec.kind == Kind::kChoice) {
      const std::string near = closest_match(value.text, spec.choices);
      if (!near.empty()) d.suggestion = fmt::format("did you mean '{}'?", near);
    }
  }

  Diagnostic& error(ConfigSlice slice, std::string message) {
    if (findings_.size() >= Diagnostics::kLimit * 4) return ignored_ = {};
    findings_.push_back(out_.origin_.diagnostic(out_.configuration_, slice.offset, slice.length, std::move(message)));
    return findings_.back();
  }

  Arguments& out_;
  std::vector<Diagnostic>& findings_;
  std::set<size_t> blocked_;  // specs with a finding of their own: not missing as well
  Diagnostic ignored_;
};

Arguments Arguments::parse(const std::vector<ArgumentSpec>& specs, std::string_view configuration,
                           const ConfigurationOrigin& origin, std::vector<Diagnostic>* findings,
                           const AddressScope& names) {
  Arguments out;
  out.names_ = names;
  out.specs_ = specs;
  out.given_.resize(specs.size());
  out.defaults_.resize(specs.size());
  out.configuration_ = std::string(configuration);
  out.origin_ = origin;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].default_text.empty()) continue;
    std::string problem;
    SLUICE_CHECK(parse_value(specs[i], specs[i].default_text, &out.defaults_[i], &problem));
  }
  ArgumentsParser(out, *findings).run();
  return out;
}

Result<Arguments> Arguments::parse(const std::vector<ArgumentSpec>& specs, std::string_view configuration,
                                   const ConfigurationOrigin& origin) {
  std::vector<Diagnostic> findings;
  Arguments out = parse(specs, configuration, origin, &findings);
  if (findings.empty()) return out;
  Error error(findings.size() == 1 ? std::string("1 wrong argument")
                                   : fmt::format("{} wrong arguments", findings.size()));
  error.diagnostics = std::move(findings);
  return error;
}

const ArgumentSpec* Arguments::find(std::string_view name, size_t* index) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].name != name) continue;
    *index = i;
    return &specs_[i];
  }
  return nullptr;
}

bool Arguments::has(std::string_view name) const {
  size_t index = 0;
  return find(name, &index) != nullptr && !given_[index].empty();
}
size_t Arguments::count(std::string_view name) const {
  return all(name).size();
}

const ArgumentValue& Arguments::value(std::string_view name) const {
  size_t index = 0;
  SLUICE_CHECK(find(name, &index) != nullptr);
  return given_[index].empty() ? defaults_[index] : given_[index].front();
}

bool Arguments::get_bool(std::string_view name) const {
  return value(name).boolean;
}
int64_t Arguments::get_int(std::string_view name) const {
  return value(name).signed_number;
}
uint64_t Arguments::get_uint(std::string_view name) const {
  return value(name).number;
}
double Arguments::get_double(std::string_view name) const {
  return value(name).real;
}
uint64_t Arguments::get_time_ns(std::string_view name) const {
  return value(name).number;
}
uint64_t Arguments::get_bandwidth_bps(std::string_view name) const {
  return value(name).number;
}
uint32_t Arguments::get_ipv4(std::string_view name) const {
  return static_cast<uint32_t>(value(name).ip.lo);
}
IpAddress Arguments::get_ip(std::string_view name) const {
  return value(name).ip;
}
IpPrefix Arguments::get_prefix(std::string_view name) const {
  return value(name).prefix;
}
MacAddress Arguments::get_mac(std::string_view name) const {
  return value(name).mac;
}
const std::string& Arguments::get_string(std::string_view name) const {
  return value(name).text;
}

const std::vector<ArgumentValue>& Arguments::all(std::string_view name) const {
  size_t index = 0;
  SLUICE_CHECK(find(name, &index) != nullptr);
  return given_[index];
}

const std::vector<ArgumentValue>& Arguments::rest() const {
  static const std::vector<ArgumentValue> kNone;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].positional && specs_[i].repeated) return given_[i];
  }
  return kNone;
}

Diagnostic Arguments::error_in(const ArgumentValue& value, std::string message, size_t offset, size_t length) const {
  offset = std::min(offset, value.slice.length);
  const size_t most = value.slice.length - offset;
  return origin_.diagnostic(configuration_, value.slice.offset + offset, length == 0 ? most : std::min(length, most),
                            std::move(message));
}

Diagnostic Arguments::error_at(std::string_view name, std::string message) const {
  const std::vector<ArgumentValue>& values = all(name);
  if (!values.empty()) return error_in(values.front(), std::move(message));
  return origin_.diagnostic(configuration_, 0, configuration_.size(), std::move(message));
}

std::string check_specs(const std::vector<ArgumentSpec>& specs) {
  std::set<std::string> names;
  bool optional_positional = false;
  bool repeated_positional = false;
  for (const ArgumentSpec& s : specs) {
    if (s.name.empty()) return "an argument has no name";
    if (!names.insert(s.name).second) return s.name + " is given twice";
    if (s.kind == ArgumentKind::kChoice && s.choices.empty()) return s.name + " has no choices";
    if (s.min > s.max) return s.name + " has an empty range";
    if (s.mandatory && !s.default_text.empty()) return s.name + " is mandatory and has a default";
    if (s.positional) {
      if (repeated_positional) return s.name + " follows a repeated positional argument";
      if (s.mandatory && optional_positional) return s.name + " is mandatory and follows an optional one";
      optional_positional |= !s.mandatory;
      repeated_positional |= s.repeated;
    }
    ArgumentValue value;
    std::string problem;
    if (!s.default_text.empty() && !parse_value(s, s.default_text, &value, &problem)) {
      return fmt::format("the default of {}: {}", s.name, problem);
    }
  }
  return {};
}

}  // namespace sluice
