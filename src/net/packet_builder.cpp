#include "net/packet_builder.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "net/checksum.h"
#include "net/ether.h"
#include "net/ipv4.h"
#include "net/ipv6.h"
#include "net/l4.h"
#include "net/text.h"

namespace sluice {
namespace {

void append16(std::vector<uint8_t>& out, uint16_t value) {
  out.push_back(static_cast<uint8_t>(value >> 8));
  out.push_back(static_cast<uint8_t>(value));
}
void append32(std::vector<uint8_t>& out, uint32_t value) {
  append16(out, static_cast<uint16_t>(value >> 16));
  append16(out, static_cast<uint16_t>(value));
}
void append64(std::vector<uint8_t>& out, uint64_t value) {
  append32(out, static_cast<uint32_t>(value >> 32));
  append32(out, static_cast<uint32_t>(value));
}

IpAddress address_of(std::string_view text, uint8_t family) {
  const auto address = parse_ip(text);
  SLUICE_CHECK(address && address->family == family);
  return *address;
}

}  // namespace

PacketBuilder PacketBuilder::ether(uint16_t ether_type) {
  PacketBuilder builder;
  builder.ether_type_ = ether_type;
  return builder;
}

PacketBuilder PacketBuilder::ip(IpAddress source, IpAddress destination, uint8_t protocol) {
  SLUICE_CHECK(source.family == destination.family);
  SLUICE_CHECK(source.family == 4 || source.family == 6);
  PacketBuilder builder;
  builder.source_ = source;
  builder.destination_ = destination;
  builder.protocol_ = protocol;
  if (protocol == kProtocolIcmpv6) builder.icmp_type_ = 128;
  return builder;
}

PacketBuilder& PacketBuilder::macs(const MacAddress& destination, const MacAddress& source) {
  destination_mac_ = destination;
  source_mac_ = source;
  return *this;
}
PacketBuilder& PacketBuilder::vlan(uint16_t id, uint8_t priority, uint16_t tag_type) {
  vlans_.push_back({static_cast<uint16_t>(priority << 13 | (id & 0xfff)), tag_type});
  return *this;
}
PacketBuilder& PacketBuilder::ether_type(uint16_t type) {
  ether_type_ = type;
  return *this;
}
PacketBuilder& PacketBuilder::no_link() {
  link_ = false;
  return *this;
}
PacketBuilder& PacketBuilder::ttl(uint8_t value) {
  ttl_ = value;
  return *this;
}
PacketBuilder& PacketBuilder::dscp(uint8_t value) {
  dscp_ = value & 0x3f;
  return *this;
}
PacketBuilder& PacketBuilder::ecn(uint8_t value) {
  ecn_ = value & 3;
  return *this;
}
PacketBuilder& PacketBuilder::id(uint16_t value) {
  id_ = value;
  return *this;
}
PacketBuilder& PacketBuilder::flow_label(uint32_t value) {
  flow_label_ = value & 0xfffff;
  return *this;
}
PacketBuilder& PacketBuilder::dont_fragment(bool set) {
  fragment_ = static_cast<uint16_t>(set ? fragment_ | kIpv4DontFragment : fragment_ & ~kIpv4DontFragment);
  return *this;
}

PacketBuilder& PacketBuilder::fragment(uint32_t offset_bytes, bool more, uint32_t id) {
  SLUICE_CHECK(offset_bytes % 8 == 0 && offset_bytes < 65536);
  later_fragment_ = offset_bytes > 0;
  any_fragment_ = later_fragment_ || more;
  if (source_.family == 4) {
    fragment_ = static_cast<uint16_t>((fragment_ & kIpv4DontFragment) | (more ? kIpv4MoreFragments : 0) |
                                      (offset_bytes / 8 & kIpv4OffsetMask));
    id_ = static_cast<uint16_t>(id);
    return *this;
  }
  Extension header{kIpv6Fragment, {0, 0}};
  append16(header.bytes, static_cast<uint16_t>(offset_bytes | (more ? 1 : 0)));
  append32(header.bytes, id);
  extensions_.push_back(std::move(header));
  return *this;
}

PacketBuilder& PacketBuilder::ipv4_options(std::span<const uint8_t> bytes) {
  options_.insert(options_.end(), bytes.begin(), bytes.end());
  SLUICE_CHECK(options_.size() <= 40);
  return *this;
}
PacketBuilder& PacketBuilder::hop_by_hop(uint32_t units) {
  // PadN options would fill it in earnest; the parser reads only the length, so zeros (Pad1) do.
  Extension header{kIpv6HopByHop, std::vector<uint8_t>(units * 8)};
  header.bytes[1] = static_cast<uint8_t>(units - 1);
  extensions_.push_back(std::move(header));
  return *this;
}
PacketBuilder& PacketBuilder::destination_options(uint32_t units) {
  hop_by_hop(units);
  extensions_.back().type = kIpv6DestinationOptions;
  return *this;
}
PacketBuilder& PacketBuilder::routing(uint8_t type, uint8_t segments_left, uint32_t units) {
  hop_by_hop(units);
  extensions_.back().type = kIpv6Routing;
  extensions_.back().bytes[2] = type;
  extensions_.back().bytes[3] = segments_left;
  return *this;
}
PacketBuilder& PacketBuilder::authentication(uint32_t words) {
  Extension header{kIpv6Authentication, std::vector<uint8_t>(words * 4)};
  header.bytes[1] = static_cast<uint8_t>(words - 2);
  extensions_.push_back(std::move(header));
  return *this;
}
PacketBuilder& PacketBuilder::ports(uint16_t source, uint16_t destination) {
  source_port_ = source;
  destination_port_ = destination;
  return *this;
}
PacketBuilder& PacketBuilder::tcp_flags(uint8_t flags) {
  tcp_flags_ = flags;
  return *this;
}
PacketBuilder& PacketBuilder::sequence(uint32_t sequence, uint32_t acknowledgement) {
  sequence_ = sequence;
  acknowledgement_ = acknowledgement;
  return *this;
}
PacketBuilder& PacketBuilder::icmp(uint8_t type, uint8_t code, uint32_t rest) {
  icmp_type_ = type;
  icmp_code_ = code;
  icmp_rest_ = rest;
  return *this;
}
PacketBuilder& PacketBuilder::no_udp_checksum() {
  udp_checksum_ = false;
  return *this;
}
PacketBuilder& PacketBuilder::payload(size_t bytes) {
  payload_.emplace(bytes);
  for (size_t i = 0; i < bytes; ++i) (*payload_)[i] = static_cast<uint8_t>(i);
  return *this;
}
PacketBuilder& PacketBuilder::payload(std::vector<uint8_t> bytes) {
  payload_ = std::move(bytes);
  return *this;
}
PacketBuilder& PacketBuilder::size(size_t frame_bytes) {
  size_ = frame_bytes;
  return *this;
}
PacketBuilder& PacketBuilder::ip_version(uint8_t version) {
  version_ = version;
  return *this;
}
PacketBuilder& PacketBuilder::ihl(uint8_t words) {
  ihl_ = words;
  return *this;
}
PacketBuilder& PacketBuilder::total_length(uint16_t bytes) {
  total_length_ = bytes;
  return *this;
}
PacketBuilder& PacketBuilder::payload_length(uint16_t bytes) {
  return total_length(bytes);
}
PacketBuilder& PacketBuilder::ip_checksum(uint16_t value) {
  ip_checksum_ = value;
  return *this;
}
PacketBuilder& PacketBuilder::bad_ip_checksum() {
  ip_checksum_flip_ = 1;
  return *this;
}
PacketBuilder& PacketBuilder::bad_l4_checksum() {
  bad_l4_checksum_ = true;
  return *this;
}
PacketBuilder& PacketBuilder::truncate(size_t frame_bytes) {
  truncate_ = frame_bytes;
  return *this;
}

uint32_t PacketBuilder::l4_header_bytes() const {
  if (source_.family == 0 || later_fragment_) return 0;
  const bool icmp = protocol_ == (source_.family == 4 ? kProtocolIcmp : kProtocolIcmpv6);
  return sluice::l4_header_bytes(protocol_, icmp ? protocol_ : uint8_t{0});
}

std::vector<uint8_t> PacketBuilder::build_l4(uint32_t payload_bytes) const {
  const uint32_t header_bytes = l4_header_bytes();
  std::vector<uint8_t> out;
  out.reserve(header_bytes + payload_bytes);
  size_t checksum_at = 0;
  switch (header_bytes == 0 ? 255 : protocol_) {
    case kProtocolTcp:
      append16(out, source_port_);
      append16(out, destination_port_);
      append32(out, sequence_);
      append32(out, acknowledgement_);
      append16(out, static_cast<uint16_t>(0x5000 | tcp_flags_));
      append16(out, 0xffff);
      append32(out, 0);
      checksum_at = 16;
      break;
    case kProtocolUdp:
    case kProtocolUdpLite:
      append16(out, source_port_);
      append16(out, destination_port_);
      append16(out, static_cast<uint16_t>(8 + payload_bytes));
      append16(out, 0);
      checksum_at = 6;
      break;
    case kProtocolSctp:  // its CRC32c stays zero: nothing here reads it
    case kProtocolDccp:
      append16(out, source_port_);
      append16(out, destination_port_);
      append64(out, 0);
      break;
    case kProtocolIcmp:
    case kProtocolIcmpv6:
      out.push_back(icmp_type_);
      out.push_back(icmp_code_);
      append16(out, 0);
      append32(out, icmp_rest_);
      checksum_at = 2;
      break;
    default:
      break;
  }
  if (payload_) {
    out.insert(out.end(), payload_->begin(), payload_->end());
  } else {
    for (uint32_t i = 0; i < payload_bytes; ++i) out.push_back(static_cast<uint8_t>(i));
  }
  const bool no_checksum = protocol_ == kProtocolUdp && !udp_checksum_;
  if (checksum_at == 0 || no_checksum) return out;
  const auto bytes = static_cast<uint32_t>(out.size());
  uint32_t pseudo = 0;
  if (source_.family == 6) {
    pseudo = pseudo_sum_v6(source_.hi, source_.lo, destination_.hi, destination_.lo, protocol_, bytes);
  } else if (protocol_ != kProtocolIcmp) {
    pseudo = pseudo_sum_v4(static_cast<uint32_t>(source_.lo), static_cast<uint32_t>(destination_.lo), protocol_, bytes);
  }
  const bool udp = protocol_ == kProtocolUdp || protocol_ == kProtocolUdpLite;
  uint16_t checksum = udp ? udp_checksum(pseudo, out.data(), bytes) : l4_checksum(pseudo, out.data(), bytes);
  if (bad_l4_checksum_) checksum ^= 0x0100;
  store_be16(out.data() + checksum_at, checksum);
  return out;
}

std::vector<uint8_t> PacketBuilder::build() const {
  std::vector<uint8_t> out;
  if (link_) {
    out.insert(out.end(), destination_mac_.bytes, destination_mac_.bytes + 6);
    out.insert(out.end(), source_mac_.bytes, source_mac_.bytes + 6);
    for (const Vlan& vlan : vlans_) {
      append16(out, vlan.tag_type);
      append16(out, vlan.tci);
    }
    append16(out, ether_type_.value_or(source_.family == 6 ? kEtherTypeIpv6 : kEtherTypeIpv4));
  }
  std::vector<uint8_t> options = options_;
  options.resize((options.size() + 3) / 4 * 4);
  size_t headers = l4_header_bytes();
  if (source_.family == 4) headers += kIpv4HeaderBytes + options.size();
  if (source_.family == 6) headers += kIpv6HeaderBytes;
  for (const Extension& extension : extensions_) headers += extension.bytes.size();
  size_t payload_bytes = payload_ ? payload_->size() : 0;
  if (!payload_ && size_ > out.size() + headers) payload_bytes = size_ - out.size() - headers;
  const std::vector<uint8_t> l4 = build_l4(static_cast<uint32_t>(payload_bytes));

  if (source_.family == 4) {
    const size_t at = out.size();
    const size_t header_bytes = kIpv4HeaderBytes + options.size();
    out.push_back(static_cast<uint8_t>(version_.value_or(4) << 4 | (ihl_.value_or(header_bytes / 4) & 0xf)));
    out.push_back(static_cast<uint8_t>(dscp_ << 2 | ecn_));
    append16(out, total_length_.value_or(static_cast<uint16_t>(header_bytes + l4.size())));
    append16(out, id_);
    append16(out, fragment_);
    out.push_back(ttl_);
    out.push_back(protocol_);
    append16(out, 0);
    append32(out, static_cast<uint32_t>(source_.lo));
    append32(out, static_cast<uint32_t>(destination_.lo));
    out.insert(out.end(), options.begin(), options.end());
    const uint16_t right = ipv4_header_checksum(out.data() + at, static_cast<uint32_t>(header_bytes));
    store_be16(out.data() + at + 10, static_cast<uint16_t>(ip_checksum_.value_or(right) ^ ip_checksum_flip_));
  } else if (source_.family == 6) {
    append32(out, uint32_t{version_.value_or(6)} << 28 | uint32_t{dscp_} << 22 | uint32_t{ecn_} << 20 | flow_label_);
    append16(out,
             total_length_.value_or(static_cast<uint16_t>(headers - l4_header_bytes() - kIpv6HeaderBytes + l4.size())));
    out.push_back(extensions_.empty() ? protocol_ : extensions_.front().type);
    out.push_back(ttl_);
    append64(out, source_.hi);
    append64(out, source_.lo);
    append64(out, destination_.hi);
    append64(out, destination_.lo);
    for (size_t i = 0; i < extensions_.size(); ++i) {
      const size_t at = out.size();
      out.insert(out.end(), extensions_[i].bytes.begin(), extensions_[i].bytes.end());
      out[at] = i + 1 < extensions_.size() ? extensions_[i + 1].type : protocol_;
    }
  }
  out.insert(out.end(), l4.begin(), l4.end());
  if (out.size() < size_) out.resize(size_);
  if (truncate_) out.resize(std::min(out.size(), *truncate_));
  return out;
}

PacketBuilder ip4(std::string_view source, std::string_view destination, uint8_t protocol) {
  return PacketBuilder::ip(address_of(source, 4), address_of(destination, 4), protocol);
}
PacketBuilder ip6(std::string_view source, std::string_view destination, uint8_t protocol) {
  return PacketBuilder::ip(address_of(source, 6), address_of(destination, 6), protocol);
}
PacketBuilder udp4(std::string_view source, std::string_view destination) {
  return ip4(source, destination, kProtocolUdp);
}
PacketBuilder udp6(std::string_view source, std::string_view destination) {
  return ip6(source, destination, kProtocolUdp);
}
PacketBuilder tcp4(std::string_view source, std::string_view destination) {
  return ip4(source, destination, kProtocolTcp);
}
PacketBuilder tcp6(std::string_view source, std::string_view destination) {
  return ip6(source, destination, kProtocolTcp);
}
PacketBuilder icmp4(std::string_view source, std::string_view destination) {
  return ip4(source, destination, kProtocolIcmp);
}
PacketBuilder icmp6(std::string_view source, std::string_view destination) {
  return ip6(source, destination, kProtocolIcmpv6);
}

}  // namespace sluice
