// host only
#include "elements/summary_dump/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "graph/arguments.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/text.h"

namespace sluice {
namespace {

struct Name {
  std::string_view name;
  SummaryField field;
};
// The first of each field is the one that is written.
constexpr Name kSummaryNames[] = {
    {"timestamp", SummaryField::kTimestamp},
    {"ts", SummaryField::kTimestamp},
    {"ts_sec", SummaryField::kSeconds},
    {"ip_src", SummaryField::kSource},
    {"src", SummaryField::kSource},
    {"ip_dst", SummaryField::kDestination},
    {"dst", SummaryField::kDestination},
    {"sport", SummaryField::kSourcePort},
    {"dport", SummaryField::kDestinationPort},
    {"ip_proto", SummaryField::kProtocol},
    {"proto", SummaryField::kProtocol},
    {"ip_len", SummaryField::kLength},
    {"length", SummaryField::kLength},
    {"len", SummaryField::kLength},
    {"ip_hl", SummaryField::kHeaderLength},
    {"ip_id", SummaryField::kId},
    {"ip_ttl", SummaryField::kTtl},
    {"ip_tos", SummaryField::kTos},
    {"tcp_off", SummaryField::kTcpHeaderLength},
    {"tcp_flags", SummaryField::kTcpFlags},
    {"tcp_seq", SummaryField::kTcpSequence},
    {"tcp_ack", SummaryField::kTcpAcknowledgement},
    {"tcp_window", SummaryField::kTcpWindow},
    {"tcp_urp", SummaryField::kTcpUrgent},
    {"tcp_opt", SummaryField::kTcpOptions},
    {"link", SummaryField::kLink},
};

constexpr std::string_view kFlags = "FSRPAUECN";  // from the lowest bit

template <typename T>
bool number(std::string_view word, uint64_t most, T* value) {
  uint64_t n = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), n);
  if (code != std::errc() || end != word.data() + word.size() || n > most) return false;
  *value = static_cast<T>(n);
  return true;
}

// Seconds with up to nine digits behind the point.
bool seconds(std::string_view word, uint64_t* ns) {
  const size_t dot = word.find('.');
  uint64_t whole = 0;
  if (!number(word.substr(0, dot), 10'000'000'000ull, &whole)) return false;
  std::string fraction(dot == std::string_view::npos ? std::string_view() : word.substr(dot + 1));
  if (fraction.size() > 9) return false;
  fraction.resize(9, '0');
  uint64_t part = 0;
  if (!number(fraction, 999'999'999, &part)) return false;
  *ns = whole * 1'000'000'000 + part;
  return true;
}

// The options of TCP that dumps name: mss1400, wscale10, sackok, nop.
bool parse_tcp_options(std::string_view text, std::vector<uint8_t>* to) {
  std::vector<uint8_t> bytes;
  while (!text.empty()) {
    const size_t end = text.find_first_of(",;");
    const std::string_view word = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    uint16_t value = 0;
    if (word == "nop") {
      bytes.push_back(1);
    } else if (word == "sackok") {
      bytes.insert(bytes.end(), {4, 2});
    } else if (word.starts_with("wscale") && number(word.substr(6), 255, &value)) {
      bytes.insert(bytes.end(), {3, 3, static_cast<uint8_t>(value)});
    } else if (word.starts_with("mss") && number(word.substr(3), 65535, &value)) {
      bytes.insert(bytes.end(), {2, 4, static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)});
    } else {
      return false;
    }
  }
  if (bytes.size() > 40) return false;
  *to = std::move(bytes);
  return true;
}

std::string tcp_options_text(std::span<const uint8_t> bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size();) {
    const uint8_t kind = bytes[i];
    if (kind == 0) break;
    if (kind == 1) {
      ++i;
      continue;
    }
    if (i + 1 >= bytes.size() || bytes[i + 1] < 2 || i + bytes[i + 1] > bytes.size()) return "?";
    const uint8_t size = bytes[i + 1];
    if (!text.empty()) text += ',';
    if (kind == 2 && size == 4) {
      text += fmt::format("mss{}", load_be16(&bytes[i + 2]));
    } else if (kind == 3 && size == 3) {
      text += fmt::format("wscale{}", bytes[i + 2]);
    } else if (kind == 4 && size == 2) {
      text += "sackok";
    } else {
      text += fmt::format("{}", kind);
    }
    i += size;
  }
  return text.empty() ? "." : text;
}

}  // namespace

std::optional<SummaryField> summary_field(std::string_view name) {
  for (const Name& n : kSummaryNames) {
    if (n.name == name) return n.field;
  }
  return std::nullopt;
}
std::string_view summary_name(SummaryField field) {
  for (const Name& n : kSummaryNames) {
    if (n.field == field) return n.name;
  }
  return "?";
}
std::vector<std::string> summary_names() {
  std::vector<std::string> names;
  for (const Name& n : kSummaryNames) names.emplace_back(n.name);
  return names;
}

std::string SummaryPacket::set(SummaryField field, std::string_view word) {
  if (word == "-") return {};
  bool good = false;
  switch (field) {
    case SummaryField::kTimestamp:
    case SummaryField::kSeconds:
      good = seconds(word, &timestamp_ns);
      break;
    case SummaryField::kSource:
    case SummaryField::kDestination: {
      const auto ip = parse_ip(word);
      good = ip && ip->family == 4;
      if (good) (field == SummaryField::kSource ? source : destination) = static_cast<uint32_t>(ip->lo);
      break;
    }
    case SummaryField::kSourcePort:
      good = number(word, 65535, &source_port);
      break;
    case SummaryField::kDestinationPort:
      good = number(word, 65535, &destination_port);
      break;
    case SummaryField::kProtocol:
      if (word == "T" || word == "U" || word == "I") {
        protocol = word == "T" ? 6 : word == "U" ? 17 : 1;
        good = true;
      } else {
        good = number(word, 255, &protocol);
      }
      break;
    case SummaryField::kLength:
      good = number(word, 65535, &length);
      break;
    case SummaryField::kHeaderLength:
      good = number(word, 60, &header_length) && header_length >= 20 && header_length % 4 == 0;
      break;
    case SummaryField::kId:
      good = number(word, 65535, &id);
      break;
    case SummaryField::kTtl:
      good = number(word, 255, &ttl);
      break;
    case SummaryField::kTos:
      good = number(word, 255, &tos);
      break;
    case SummaryField::kTcpHeaderLength:
      good = number(word, 60, &tcp_header_length) && tcp_header_length >= 20 && tcp_header_length % 4 == 0;
      break;
    case SummaryField::kTcpFlags: {
      unsigned flags = 0;
      good = number(word, 255, &flags);
      if (!good) {
        good = word == "." || std::all_of(word.begin(), word.end(), [&](char c) {
                 const size_t bit = kFlags.find(c);
                 if (bit < 8) flags |= 1u << bit;
                 return bit < 8;
               });
      }
      tcp_flags = static_cast<uint8_t>(flags);
      break;
    }
    case SummaryField::kTcpSequence:
      good = number(word, 0xffffffffu, &tcp_sequence);
      break;
    case SummaryField::kTcpAcknowledgement:
      good = number(word, 0xffffffffu, &tcp_acknowledgement);
      break;
    case SummaryField::kTcpWindow:
      good = number(word, 65535, &tcp_window);
      break;
    case SummaryField::kTcpUrgent:
      good = number(word, 65535, &tcp_urgent);
      break;
    case SummaryField::kTcpOptions:
      good = word == "." || parse_tcp_options(word, &tcp_options);
      break;
    case SummaryField::kLink:
      good = number(word, 255, &link);
      break;
    case SummaryField::kCount:
      break;
  }
  return good ? std::string() : fmt::format("'{}' is not a value of {}", word, summary_name(field));
}

std::vector<uint8_t> SummaryPacket::headers() const {
  const size_t ip = header_length;
  const size_t options = (tcp_options.size() + 3) / 4 * 4;
  const size_t tcp = std::max<size_t>(tcp_header_length, 20 + options);
  const size_t l4 = protocol == 6 ? tcp : protocol == 17 || protocol == 1 ? 8 : 4;
  std::vector<uint8_t> bytes(ip + l4);
  uint8_t* p = bytes.data();
  p[0] = static_cast<uint8_t>(0x40 | ip / 4);
  p[1] = tos;
  store_be16(p + 2, static_cast<uint16_t>(wire_length(bytes.size())));
  store_be16(p + 4, id);
  p[8] = ttl;
  p[9] = protocol;
  store_be32(p + 12, source);
  store_be32(p + 16, destination);
  std::fill(p + 20, p + ip, uint8_t{1});  // no operation
  store_be16(p + 10, 0);
  store_be16(p + 10, ipv4_header_checksum(p, static_cast<uint32_t>(ip)));
  if (protocol != 1) {
    store_be16(p + ip, source_port);
    store_be16(p + ip + 2, destination_port);
  }
  if (protocol == 17) store_be16(p + ip + 4, static_cast<uint16_t>(wire_length(bytes.size()) - ip));
  if (protocol == 6) {
    store_be32(p + ip + 4, tcp_sequence);
    store_be32(p + ip + 8, tcp_acknowledgement);
    p[ip + 12] = static_cast<uint8_t>(tcp / 4 << 4);
    p[ip + 13] = tcp_flags;
    store_be16(p + ip + 14, tcp_window);
    store_be16(p + ip + 18, tcp_urgent);
    std::copy(tcp_options.begin(), tcp_options.end(), p + ip + 20);
  }
  return bytes;
}
uint32_t SummaryPacket::wire_length(size_t headers) const {
  return std::max<uint32_t>(length, static_cast<uint32_t>(headers));
}

std::optional<std::string> summary_of(const FlowPacket& packet, SummaryField field) {
  const Packet& r = packet.registers;
  // The network header where one was found, else the packet's first byte.
  const auto at = static_cast<int32_t>(r.l3);
  const int32_t begin = r.key.family != 0 && at >= r.data ? at : r.data;
  const uint8_t* p = r.frame + begin;
  const auto n = static_cast<size_t>(std::max<int64_t>(0, int64_t{r.end} - begin));
  switch (field) {
    case SummaryField::kTimestamp:
      return fmt::format("{}.{:06}", packet.timestamp_ns / 1'000'000'000, packet.timestamp_ns % 1'000'000'000 / 1000);
    case SummaryField::kSeconds:
      return std::to_string(packet.timestamp_ns / 1'000'000'000);
    case SummaryField::kLink:
      return std::to_string(r.paint);
    default:
      break;
  }
  if (n < 20 || p[0] >> 4 != 4) return std::nullopt;
  const size_t ip = static_cast<size_t>(p[0] & 15) * 4;
  switch (field) {
    case SummaryField::kSource:
      return to_string(IpAddress{0, load_be32(p + 12), 4});
    case SummaryField::kDestination:
      return to_string(IpAddress{0, load_be32(p + 16), 4});
    case SummaryField::kProtocol:
      return p[9] == 6 ? "T" : p[9] == 17 ? "U" : p[9] == 1 ? "I" : std::to_string(p[9]);
    case SummaryField::kLength:
      return std::to_string(load_be16(p + 2));
    case SummaryField::kHeaderLength:
      return std::to_string(ip);
    case SummaryField::kId:
      return std::to_string(load_be16(p + 4));
    case SummaryField::kTtl:
      return std::to_string(p[8]);
    case SummaryField::kTos:
      return std::to_string(p[1]);
    default:
      break;
  }
  const bool first = (load_be16(p + 6) & 0x1fff) == 0;
  const uint8_t* t = p + ip;
  const auto has = [&](size_t bytes) { return ip >= 20 && first && n >= ip + bytes; };
  const bool ports = p[9] == 6 || p[9] == 17 || p[9] == 33 || p[9] == 132;
  if (field == SummaryField::kSourcePort)
    return ports && has(2) ? std::optional(std::to_string(load_be16(t))) : std::nullopt;
  if (field == SummaryField::kDestinationPort)
    return ports && has(4) ? std::optional(std::to_string(load_be16(t + 2))) : std::nullopt;
  if (p[9] != 6) return std::nullopt;
  switch (field) {
    case SummaryField::kTcpSequence:
      return has(8) ? std::optional(std::to_string(load_be32(t + 4))) : std::nullopt;
    case SummaryField::kTcpAcknowledgement:
      return has(12) ? std::optional(std::to_string(load_be32(t + 8))) : std::nullopt;
    case SummaryField::kTcpHeaderLength:
      return has(13) ? std::optional(std::to_string((t[12] >> 4) * 4)) : std::nullopt;
    case SummaryField::kTcpFlags: {
      if (!has(14)) return std::nullopt;
      std::string text;
      for (unsigned bit = 0; bit < 8; ++bit) {
        if ((t[13] >> bit & 1) != 0) text += kFlags[bit];
      }
      return text.empty() ? "." : text;
    }
    case SummaryField::kTcpWindow:
      return has(16) ? std::optional(std::to_string(load_be16(t + 14))) : std::nullopt;
    case SummaryField::kTcpUrgent:
      return has(20) ? std::optional(std::to_string(load_be16(t + 18))) : std::nullopt;
    case SummaryField::kTcpOptions: {
      if (!has(20)) return std::nullopt;
      const size_t size = static_cast<size_t>(t[12] >> 4) * 4;
      if (size < 20 || !has(size)) return std::nullopt;
      return tcp_options_text({t + 20, size - 20});
    }
    default:
      return std::nullopt;
  }
}

}  // namespace sluice
