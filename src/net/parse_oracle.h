// The parser written a second time, slowly: one byte at a time, each read checked, rules in the order of their
// documents. It is what parse.h is compared with in tests and fuzzing; host only, and nothing else may use it.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "net/parse.h"

namespace sluice::oracle {

// Thrown on a read at or past the captured length: the answer is then kCapturedTooShort.
struct NotCaptured {};

class Parser {
 public:
  Parser(const uint8_t* frame, uint64_t captured, uint64_t wire) : frame_(frame), captured_(captured), wire_(wire) {
    if (captured_ > wire_) captured_ = wire_;
  }

  ParseStatus ethernet(Headers& out, bool verify) {
    return guarded(out, [&] {
      if (wire_ < 14) return ParseStatus::kTruncatedL2;
      const std::vector<unsigned> header = bytes(0, 14);
      bool broadcast = true;
      for (int i = 0; i < 6; ++i) broadcast = broadcast && header[i] == 255;
      if (broadcast) {
        link_.flags = Headers::kLinkBroadcast;
      } else if (header[0] % 2 == 1) {
        link_.flags = Headers::kLinkMulticast;
      }
      unsigned type = header[12] * 256 + header[13];
      uint64_t at = 14;
      unsigned tags = 0;
      while (type == 0x8100 || type == 0x88a8 || type == 0x9100) {
        if (tags == 4) return ParseStatus::kTooManyVlans;
        if (wire_ < at + 4) return ParseStatus::kTruncatedL2;
        const std::vector<unsigned> tag = bytes(at, 4);
        if (tags == 0) link_.vlan_tci = static_cast<uint16_t>(tag[0] * 256 + tag[1]);
        type = tag[2] * 256 + tag[3];
        at += 4;
        ++tags;
        link_.vlan_count = static_cast<uint8_t>(tags);
      }
      link_.ether_type = static_cast<uint16_t>(type);
      link_.l3_offset = static_cast<uint16_t>(at);
      if (type == 0x0800) return ipv4(at, verify);
      if (type == 0x86dd) return ipv6(at);
      return ParseStatus::kNotIp;
    });
  }

  ParseStatus network(uint64_t l3, Headers& out, bool verify) {
    return guarded(out, [&] {
      if (l3 > wire_ || l3 > 32768) return ParseStatus::kTruncatedL2;
      link_.l3_offset = static_cast<uint16_t>(l3);
      if (l3 == wire_) return ParseStatus::kIpv4TooShort;
      return byte(l3) / 16 == 6 ? ipv6(l3) : ipv4(l3, verify);
    });
  }

 private:
  template <typename Body>
  ParseStatus guarded(Headers& out, Body body) {
    ParseStatus status;
    try {
      status = body();
    } catch (NotCaptured) {
      status = ParseStatus::kCapturedTooShort;
    }
    if (status == ParseStatus::kOk) {
      out = found_;
      out.flags |= link_.flags;
    } else {
      out = Headers{};
      out.flags = link_.flags;
    }
    out.ether_type = link_.ether_type;
    out.l3_offset = link_.l3_offset;
    out.vlan_tci = link_.vlan_tci;
    out.vlan_count = link_.vlan_count;
    return status;
  }

  unsigned byte(uint64_t at) const {
    if (at >= captured_) throw NotCaptured{};
    return frame_[at];
  }
  std::vector<unsigned> bytes(uint64_t at, uint64_t count) const {
    std::vector<unsigned> out;
    for (uint64_t i = 0; i < count; ++i) out.push_back(byte(at + i));
    return out;
  }
  static uint64_t number(const std::vector<unsigned>& from, size_t at, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value * 256 + from[at + i];
    return value;
  }

  ParseStatus ipv4(uint64_t at, bool verify) {
    const uint64_t link_bytes = wire_ - at;
    if (link_bytes < 20) return ParseStatus::kIpv4TooShort;
    const std::vector<unsigned> header = bytes(at, 20);
    const unsigned ihl_bytes = header[0] % 16 * 4;
    if (verify) {
      const unsigned summed = ihl_bytes < 20 ? 20 : ihl_bytes;
      if (summed > link_bytes) return ParseStatus::kIpv4BadHeaderLength;
      const std::vector<unsigned> all = bytes(at, summed);
      uint64_t sum = 0;
      for (unsigned i = 0; i < summed; i += 2) sum += number(all, i, 2);
      while (sum > 0xffff) sum = sum % 65536 + sum / 65536;
      if (sum != 0xffff) return ParseStatus::kIpv4BadChecksum;
    }
    if (header[0] / 16 != 4) return ParseStatus::kIpv4BadVersion;
    if (ihl_bytes < 20 || ihl_bytes > link_bytes) return ParseStatus::kIpv4BadHeaderLength;
    const uint64_t total = number(header, 2, 2);
    if (total < ihl_bytes) return ParseStatus::kIpv4BadTotalLength;
    if (total > link_bytes) return ParseStatus::kIpv4TruncatedFrame;
    if (ihl_bytes > 20) {
      found_.flags |= Headers::kIpv4Options;
      const std::vector<unsigned> options = bytes(at + 20, ihl_bytes - 20);
      for (size_t i = 0; i < options.size() && options[i] != 0;) {
        if (options[i] == 1) {
          i += 1;
        } else if (i + 1 >= options.size() || options[i + 1] < 2 || i + options[i + 1] > options.size()) {
          found_.flags |= Headers::kBadOptions;
          break;
        } else {
          if (options[i] == 131 || options[i] == 137) found_.flags |= Headers::kSourceRoute;
          i += options[i + 1];
        }
      }
    }
    found_.key.family = 4;
    found_.key.src_lo = number(header, 12, 4);
    found_.key.dst_lo = number(header, 16, 4);
    found_.key.dscp = static_cast<uint8_t>(header[1] / 4);
    found_.key.protocol = static_cast<uint8_t>(header[9]);
    found_.ttl = static_cast<uint8_t>(header[8]);
    found_.ip_bytes = static_cast<uint32_t>(total);
    if (header[16] >= 224 && header[16] <= 239) found_.flags |= Headers::kIpMulticast;
    const uint64_t fragment = number(header, 6, 2);
    if (fragment / 0x4000 % 2 == 1) found_.flags |= Headers::kDontFragment;
    const bool more = fragment / 0x2000 % 2 == 1;
    const bool later = fragment % 0x2000 != 0;
    if (more || later) found_.key.bits |= FlowKey::kFragment;
    if (later) found_.key.bits |= FlowKey::kLaterFragment;
    if (fragment % 0x2000 == 1 && found_.key.protocol == 6) found_.flags |= Headers::kTinyFragment;
    if (!later) l4(at + ihl_bytes, at + total, 1);
    return ParseStatus::kOk;
  }

  ParseStatus ipv6(uint64_t at) {
    if (wire_ - at < 40) return ParseStatus::kIpv6TooShort;
    const std::vector<unsigned> header = bytes(at, 40);
    if (header[0] / 16 != 6) return ParseStatus::kIpv6BadVersion;
    const uint64_t total = 40 + number(header, 4, 2);
    if (at + total > wire_) return ParseStatus::kIpv6BadPayloadLength;
    found_.key.family = 6;
    found_.key.src_hi = number(header, 8, 8);
    found_.key.src_lo = number(header, 16, 8);
    found_.key.dst_hi = number(header, 24, 8);
    found_.key.dst_lo = number(header, 32, 8);
    found_.key.dscp = static_cast<uint8_t>((header[0] % 16 * 16 + header[1] / 16) / 4);
    found_.ttl = static_cast<uint8_t>(header[7]);
    found_.ip_bytes = static_cast<uint32_t>(total);
    if (header[24] == 255) found_.flags |= Headers::kIpMulticast;
    unsigned next = header[6];
    const uint64_t end = at + total;
    at += 40;
    for (int count = 0; next == 0 || next == 43 || next == 44 || next == 51 || next == 60; ++count) {
      if (count == 8) return ParseStatus::kIpv6TooManyExtensionHeaders;
      if (next == 0 && count > 0) return ParseStatus::kIpv6BadExtensionHeader;
      const bool fragment = found_.key.bits % 4 / 2 == 1;
      const ParseStatus past = fragment ? ParseStatus::kIpv6FragmentedHeaders : ParseStatus::kIpv6BadExtensionHeader;
      if (at + 8 > end) return past;
      const std::vector<unsigned> start = bytes(at, 8);
      found_.flags |= Headers::kExtensionHeaders;
      uint64_t length = 8;
      switch (next) {
        case 44: {
          const uint64_t word = number(start, 2, 2);
          if (word / 8 != 0) {
            found_.key.bits |= FlowKey::kFragment | FlowKey::kLaterFragment;
            found_.key.protocol = static_cast<uint8_t>(start[0]);
            if (word / 8 == 1 && start[0] == 6) found_.flags |= Headers::kTinyFragment;
            return ParseStatus::kOk;
          }
          if (word % 2 == 1) found_.key.bits |= FlowKey::kFragment;
          break;
        }
        case 51:
          length = (start[1] + 2) * 4;
          found_.key.bits |= FlowKey::kAfterAh;
          break;
        default:
          length = (start[1] + 1) * 8;
          break;
      }
      if (at + length > end) return past;
      if (next == 0) found_.flags |= Headers::kHopByHop;
      if (next == 43 && start[2] == 0 && start[3] > 0) return ParseStatus::kIpv6RoutingType0;
      next = start[0];
      at += length;
    }
    found_.key.protocol = static_cast<uint8_t>(next);
    if (next != 59) l4(at, end, 58);
    return ParseStatus::kOk;
  }

  void l4(uint64_t at, uint64_t end, unsigned icmp_protocol) {
    const unsigned protocol = found_.key.protocol;
    bool has_ports = true;
    uint64_t need = 0;
    switch (protocol) {
      case 6:
        need = 20;
        break;
      case 17:
      case 136:
        need = 8;
        break;
      case 33:
      case 132:
        need = 12;
        break;
      default:
        has_ports = false;
        need = protocol == icmp_protocol ? 8 : 0;
    }
    if (at > captured_) throw NotCaptured{};
    const std::vector<unsigned> header = bytes(at, std::min(need, end - at));
    const bool whole = header.size() == need;
    const bool first_fragment = found_.key.bits % 4 / 2 == 1;
    bool tiny = !whole && protocol == 6;
    auto missing = [&](unsigned bit) { found_.key.bits = static_cast<uint8_t>(found_.key.bits + bit); };
    if (whole) {
      found_.l4_offset = static_cast<uint16_t>(at);
    } else {
      found_.flags |= Headers::kL4Truncated;
      missing(FlowKey::kShortL4);
    }
    if (has_ports) {
      if (header.size() >= 4) {
        found_.key.bits |= FlowKey::kHasPorts;
        found_.key.src_port = static_cast<uint16_t>(number(header, 0, 2));
        found_.key.dst_port = static_cast<uint16_t>(number(header, 2, 2));
      } else {
        tiny = true;
      }
      if (protocol == 6 && header.size() > 13) found_.key.flags = static_cast<uint16_t>(header[13] * 256);
      if (protocol == 6 && header.size() <= 13) missing(FlowKey::kNoFlags);
    } else if (need != 0) {
      if (!header.empty()) found_.key.icmp = static_cast<uint16_t>(header[0] * 256);
      if (header.empty()) missing(FlowKey::kNoIcmpType);
      if (header.size() > 1) found_.key.icmp = static_cast<uint16_t>(found_.key.icmp + header[1]);
      if (header.size() < 2) missing(FlowKey::kNoFlags);
      tiny = header.size() < 2;
    }
    if (tiny && first_fragment) found_.flags |= Headers::kTinyFragment;
  }

  const uint8_t* frame_;
  uint64_t captured_;
  uint64_t wire_;
  Headers link_;
  Headers found_;
};

inline ParseStatus parse_ethernet(const uint8_t* frame, uint32_t captured, uint32_t wire, Headers& out,
                                  bool verify = true) {
  return Parser(frame, captured, wire).ethernet(out, verify);
}
inline ParseStatus parse_ip(const uint8_t* frame, uint32_t captured, uint32_t wire, uint32_t l3, Headers& out,
                            bool verify = true) {
  return Parser(frame, captured, wire).network(l3, out, verify);
}

// Every byte, the reserved ones included: results must be identical, not only equal.
inline bool same(const Headers& a, const Headers& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace sluice::oracle
