// host only
#include "control/command_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>

#include "formats/names.h"
#include "net/packet_builder.h"
#include "net/text.h"

namespace sluice {
namespace {

// tcp 10.0.0.1:1234 > 8.8.8.8:80 [flags S] [ttl N] [dscp N] [len N] [df] [frag OFFSET] [vlan N]
class PacketText {
  static constexpr unsigned kClientPort = 49152;  // RFC 6335, section 6: the first of the dynamic ports
  static constexpr const char* kFlagsHelp = "letters of F S R P . (or A) U E W, as tcpdump prints them, or SYN,ACK";

 public:
  PacketText(const std::string& text, const std::string& name) : text_(text), findings_(name, text) {
    for (size_t at = 0; at < text.size();) {
      while (at < text.size() &&
             (text[at] == ' ' || text[at] == '\t' || text[at] == ',' || text[at] == '[' || text[at] == ']'))
        ++at;
      const size_t begin = at;
      while (at < text.size() && text[at] != ' ' && text[at] != '\t' && text[at] != ',' && text[at] != '[' &&
             text[at] != ']')
        ++at;
      if (at > begin) words_.push_back({begin, at - begin});
    }
  }

  Result<std::vector<uint8_t>> build() {
    std::vector<uint8_t> frame;
    parse(frame);
    if (findings_.ok()) return frame;
    Error error = findings_.to_error();
    error.hint = "a whole one: 'tcp 10.0.0.1:1234 > 8.8.8.8:80 flags S'";
    return error;
  }

 private:
  struct Word {
    size_t begin, length;
  };
  bool done() const { return next_ >= words_.size(); }
  std::string peek() const { return done() ? std::string() : text_.substr(words_[next_].begin, words_[next_].length); }
  std::string take() {
    std::string word = peek();
    if (!done()) ++next_;
    return word;
  }
  // At the word that take() gave last, or at the end of the text.
  void wrong(const std::string& message, const std::string& expected, bool last = true) {
    const bool at_end = words_.empty() || (last ? next_ == 0 : done());
    const Word where = at_end ? Word{text_.size(), 1} : words_[last ? next_ - 1 : next_];
    Diagnostic& finding = findings_.error_at(where.begin, where.length, message);
    finding.expected = expected;
    if (!suggestion_.empty()) finding.suggestion = fmt::format("did you mean '{}'?", suggestion_);
  }
  std::optional<unsigned> number(unsigned limit, const char* what) {
    if (done()) {
      wrong(fmt::format("the {} is missing", what), fmt::format("a number from 0 to {}", limit), false);
      return std::nullopt;
    }
    const std::string word = take();
    unsigned value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value > limit) {
      wrong(fmt::format("'{}' is not a {}", word, what), fmt::format("a number from 0 to {}", limit));
      return std::nullopt;
    }
    return value;
  }
  // With its port, where one stands behind it: 10.0.0.1:80, [2001:db8::1]:80.
  std::optional<IpAddress> address(const char* what, std::optional<unsigned>& port) {
    if (done()) {
      wrong(fmt::format("the {} address is missing", what), "an IPv4 or IPv6 address", false);
      return std::nullopt;
    }
    std::string word = take();
    std::string behind;
    // Brackets stand between words.
    if (peek().size() > 1 && peek()[0] == ':' && parse_ip(word)) behind = take().substr(1);
    if (const size_t colon = word.find(':');
        behind.empty() && colon != std::string::npos && colon != 0 && word.find(':', colon + 1) == std::string::npos) {
      behind = word.substr(colon + 1);
      word.resize(colon);
    }
    if (!behind.empty()) {
      unsigned value = 0;
      const auto [end, error] = std::from_chars(behind.data(), behind.data() + behind.size(), value);
      if (error != std::errc() || end != behind.data() + behind.size() || value > 65535) {
        wrong(fmt::format("'{}' is not a {} port", behind, what), "a number from 0 to 65535");
        return std::nullopt;
      }
      port = value;
    }
    const auto parsed = parse_ip(word);
    if (!parsed) wrong(fmt::format("'{}' is not an address", word), "an IPv4 or IPv6 address");
    return parsed;
  }
  bool arrow() {
    if (take() == ">") return true;
    wrong("'>' is missing here", "SOURCE > DESTINATION");
    return false;
  }

  // As tcpdump prints them, letters; or as rules have them, names and what stands behind '/'.
  std::optional<unsigned> tcp_flags() {
    // Of a name, or of none.
    const auto bit_of = [](std::string_view word) {
      return word == "0" ? std::optional<uint32_t>(0) : names::find_named(names::kFlags, word);
    };
    if (done()) {
      wrong("the TCP flags are missing", kFlagsHelp, false);
      return std::nullopt;
    }
    unsigned bits = 0;
    bool tested = false;  // from here on: which flags a rule looks at
    if (!bit_of(peek().substr(0, peek().find('/')))) {
      for (const char c : take()) {
        const size_t bit = std::string_view("FSRP.UEW").find(c == 'A' ? '.' : c);
        if (bit == std::string_view::npos) {
          wrong(fmt::format("'{}' is not a TCP flag", c), kFlagsHelp);
          return std::nullopt;
        }
        bits |= 1u << bit;
      }
      return bits;
    }
    // Commas stand between words.
    while (!done()) {
      const std::string word = peek();
      const size_t slash = word.find('/');
      const auto bit = bit_of(word.substr(0, slash));
      if (!bit) return bits;
      take();
      if (!tested) bits |= *bit;
      tested |= slash != std::string::npos;
    }
    return bits;
  }

  bool digit_next() const { return !peek().empty() && std::isdigit(static_cast<unsigned char>(peek()[0])) != 0; }
  uint8_t icmp_number() const { return src_.family == 4 ? 1 : 58; }

  void parse(std::vector<uint8_t>& frame) {
    static constexpr std::pair<std::string_view, uint8_t> kFirst[] = {{"tcp", 6}, {"udp", 17}, {"sctp", 132}};
    if (peek() == "ip" || peek() == "ip6" || peek() == "IP" || peek() == "IP6") take();
    for (const auto& [name, number] : kFirst) {
      if (peek() != name) continue;
      take();
      protocol_ = number;
      given_ = true;
      break;
    }
    if (!given_ && (peek() == "icmp" || peek() == "icmp6")) {
      take();
      given_ = icmp_ = true;
    }
    const auto src = address("source", sport_);
    if (!src || !arrow()) return;
    const auto dst = address("destination", dport_);
    if (!dst) return;
    src_ = *src;
    dst_ = *dst;
    const bool attached = sport_.has_value() || dport_.has_value();
    if (attached && (!given_ || icmp_)) {
      wrong("ports without a protocol that has them", "tcp, udp or sctp in front: udp SOURCE > DESTINATION:53");
      return;
    }
    if (icmp_) {
      protocol_ = icmp_number();
      if (digit_next() && !(type_ = number(255, "ICMP type"))) return;
      if (digit_next() && !(code_ = number(255, "ICMP code"))) return;
    }
    // Where one port is given, the other is any that a client has.
    if (attached) {
      ports_ = true;
      sport_ = sport_.value_or(kClientPort);
      dport_ = dport_.value_or(kClientPort);
    }
    if (src_.family != dst_.family) {
      wrong("the two addresses are of different families", "two IPv4 or two IPv6 addresses");
      return;
    }
    if (!options()) return;
    if (!findings_.ok()) return;
    frame = packet();
  }

  // What stands behind the addresses. False: it is wrong.
  bool options() {
    static const std::vector<std::string> kOptions = {"tcp", "udp",  "sctp", "icmp", "icmp6", "proto", "flags",
                                                      "ttl", "dscp", "len",  "df",   "frag",  "vlan"};
    while (!done()) {
      const std::string word = take();
      if (word == "tcp" || word == "udp" || word == "sctp") {
        given_ = true;
        protocol_ = word == "tcp" ? 6 : word == "udp" ? 17 : 132;
        if (!digit_next()) continue;
        ports_ = true;
        sport_ = number(65535, "source port");
        if (!sport_ || !arrow()) return false;
        dport_ = number(65535, "destination port");
        if (!dport_) return false;
      } else if (word == "icmp" || word == "icmp6") {
        given_ = icmp_ = true;
        protocol_ = icmp_number();
        if (!digit_next()) continue;
        type_ = number(255, "ICMP type");
        if (digit_next()) code_ = number(255, "ICMP code");
      } else if (word == "proto") {
        given_ = true;
        const auto n = number(255, "protocol number");
        if (!n) return false;
        protocol_ = static_cast<uint8_t>(*n);
      } else if (word == "flags") {
        if (!(flags_ = tcp_flags())) return false;
      } else if (word == "ttl") {
        if (!(ttl_ = number(255, "TTL"))) return false;
      } else if (word == "dscp") {
        if (!(dscp_ = number(63, "DSCP"))) return false;
      } else if (word == "len") {
        if (!(length_ = number(9000, "length"))) return false;
      } else if (word == "frag") {
        if (!(fragment_ = number(65528, "fragment offset"))) return false;
      } else if (word == "vlan") {
        if (!(vlan_ = number(4094, "VLAN id"))) return false;
      } else if (word == "df") {
        df_ = true;
      } else {
        suggestion_ = closest_match(word, kOptions);
        wrong(fmt::format("'{}' is not understood here", word),
              "tcp SPORT > DPORT, udp, icmp TYPE CODE, proto N, flags S, ttl N, dscp N, len N, df, frag N, vlan N");
        return false;
      }
    }
    return true;
  }

  std::vector<uint8_t> packet() const {
    // RFC 3692: 253 is for experiments; no L4 header.
    PacketBuilder b = PacketBuilder::ip(src_, dst_, given_ ? protocol_ : uint8_t{253});
    if (ports_) b.ports(static_cast<uint16_t>(*sport_), static_cast<uint16_t>(*dport_));
    if (icmp_)
      b.icmp(static_cast<uint8_t>(type_.value_or(src_.family == 4 ? 8 : 128)), static_cast<uint8_t>(code_.value_or(0)));
    if (flags_) b.tcp_flags(static_cast<uint8_t>(*flags_));
    if (ttl_) b.ttl(static_cast<uint8_t>(*ttl_));
    if (dscp_) b.dscp(static_cast<uint8_t>(*dscp_));
    if (df_) b.dont_fragment();
    if (fragment_) b.fragment(*fragment_ & ~7u, true);
    if (vlan_ && *vlan_ != 0) b.vlan(static_cast<uint16_t>(*vlan_));
    b.size(length_ ? *length_ + 14 + (vlan_ ? 4u : 0u) : 60);
    return b.build();
  }

  const std::string& text_;
  Diagnostics findings_;
  std::vector<Word> words_;
  size_t next_ = 0;
  std::string suggestion_;
  // What was read of the packet.
  IpAddress src_, dst_;
  uint8_t protocol_ = 17;
  bool ports_ = false, icmp_ = false, given_ = false, df_ = false;
  std::optional<unsigned> sport_, dport_, type_, code_, flags_, ttl_, dscp_, length_, fragment_, vlan_;
};

}  // namespace

Result<std::vector<uint8_t>> parse_packet_text(const std::string& text, const std::string& name) {
  return PacketText(text, name).build();
}

Result<std::vector<uint8_t>> parse_hex_bytes(const std::string& text, const std::string& name) {
  std::vector<uint8_t> bytes;
  int high = -1;
  Diagnostics findings(name, text);
  for (size_t i = 0; i < text.size() && findings.ok(); ++i) {
    const char c = text[i];
    if (c == ' ' || c == ':' || c == '\n' || c == '\t') continue;
    const char* digits = "0123456789abcdef";
    const char* at = c == '\0' ? nullptr : std::strchr(digits, std::tolower(static_cast<unsigned char>(c)));
    if (at == nullptr) {
      findings.error_at(i, 1, fmt::format("'{}' is not a hexadecimal digit", c)).expected =
          "the frame from its Ethernet header on, two digits per byte";
    } else if (high < 0) {
      high = static_cast<int>(at - digits);
    } else {
      bytes.push_back(static_cast<uint8_t>(high << 4 | static_cast<int>(at - digits)));
      high = -1;
    }
  }
  if (findings.ok() && high >= 0)
    findings.error_at(text.size() - 1, 1, "the last byte has one digit only").expected = "two digits per byte";
  if (!findings.ok()) return findings.to_error();
  return bytes;
}

Result<uint64_t> parse_duration(std::string_view text) {
  constexpr uint64_t kLongest = 3'600'000'000'000;
  const auto wrong = [&] {
    return Error(fmt::format("'{}' is not a time", text),
                 "write seconds, or a number and its unit: 800ns, 50us, 1.5ms or 2s");
  };
  size_t digits = 0;
  size_t point = std::string_view::npos;
  for (; digits < text.size(); ++digits) {
    if (text[digits] == '.' && point == std::string_view::npos && digits != 0) {
      point = digits;
    } else if (text[digits] < '0' || text[digits] > '9') {
      break;
    }
  }
  const std::string_view unit = text.substr(digits);
  const uint64_t scale = unit == "ns"   ? 1
                         : unit == "us" ? 1'000
                         : unit == "ms" ? 1'000'000
                         : unit == "s"  ? 1'000'000'000
                         : unit.empty() ? 1'000'000'000
                                        : 0;
  if (digits == 0 || point == digits - 1 || scale == 0) return wrong();
  // Exact: digits before the point in units, those behind it in ever smaller ones.
  uint64_t ns = 0;
  for (const char c : text.substr(0, std::min(point, digits))) {
    ns = std::min(kLongest + 1, ns * 10 + static_cast<uint64_t>(c - '0') * scale);
  }
  uint64_t part = scale;
  for (const char c : point < digits ? text.substr(point + 1, digits - point - 1) : std::string_view()) {
    part /= 10;
    ns += static_cast<uint64_t>(c - '0') * part;
  }
  if (ns == 0 || ns > kLongest) return Error(fmt::format("'{}' is out of range", text), "use 1ns to 3600s");
  return ns;
}

Result<PortFile> parse_port_file(std::string_view word) {
  const size_t equals = word.find('=');
  const bool numbered = equals != std::string_view::npos && equals > 0 && equals <= 5 &&
                        std::all_of(word.begin(), word.begin() + static_cast<ptrdiff_t>(equals),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!numbered) return PortFile{std::nullopt, std::string(word)};
  uint32_t port = 0;  // at most five digits
  std::from_chars(word.data(), word.data() + equals, port);
  if (port > 65535) return Error(fmt::format("port {} is larger than 65535", port));
  return PortFile{static_cast<uint16_t>(port), std::string(word.substr(equals + 1))};
}

}  // namespace sluice
