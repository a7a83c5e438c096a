#include "generate/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "generate/random.h"
#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxFlows = 1u << 24;
constexpr uint32_t kFcs = 4;
constexpr uint32_t kMinimumFrame = 60;
constexpr uint8_t kTcp = 6, kUdp = 17, kIcmp = 1, kIcmp6 = 58, kUdpLite = 136, kSctp = 132, kDccp = 33;

struct Flow {
  uint64_t src_hi = 0, src_lo = 0, dst_hi = 0, dst_lo = 0;
  uint16_t src_port = 0, dst_port = 0;
  uint16_t vlan = 0;  // 0: untagged
  uint8_t protocol = 0;
  uint8_t family = 4;
  uint8_t tcp_flags = 0;
  uint8_t dscp = 0;
  uint32_t packets = 0;   // so far
  uint32_t sequence = 0;  // of TCP: payload bytes so far
};
static_assert(sizeof(Flow) == 56);

bool has_ports(uint8_t protocol) {
  return protocol == kTcp || protocol == kUdp || protocol == kUdpLite || protocol == kSctp || protocol == kDccp;
}

// Next-header values that announce another IPv6 header: a parser walks on, so no packet ends with them.
bool is_extension(uint8_t protocol) {
  return protocol == 0 || protocol == 43 || protocol == 44 || protocol == 51 || protocol == 60 || protocol == 135 ||
         protocol == 139 || protocol == 140;
}

void put16(uint8_t* p, uint32_t v) {
  p[0] = static_cast<uint8_t>(v >> 8);
  p[1] = static_cast<uint8_t>(v);
}
void put32(uint8_t* p, uint32_t v) {
  put16(p, v >> 16);
  put16(p + 2, v & 0xffff);
}
void put64(uint8_t* p, uint64_t v) {
  put32(p, static_cast<uint32_t>(v >> 32));
  put32(p + 4, static_cast<uint32_t>(v));
}

// One's complement sums (RFC 1071) of big-endian words, unfolded.
uint64_t sum_words(const uint8_t* p, size_t bytes) {
  uint64_t sum = 0;
  for (; bytes >= 2; p += 2, bytes -= 2) sum += static_cast<uint32_t>(p[0]) << 8 | p[1];
  if (bytes != 0) sum += static_cast<uint32_t>(p[0]) << 8;
  return sum;
}
uint64_t sum64(uint64_t v) {
  return (v >> 48) + (v >> 32 & 0xffff) + (v >> 16 & 0xffff) + (v & 0xffff);
}
uint16_t finish(uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

// Whether some well-formed packet lies inside: flags need TCP, ports need a protocol that has them (else they are 0).
bool hittable(const FlowRegion& r, uint8_t family, uint8_t protocol) {
  if (((protocol ^ r.protocol) & r.protocol_mask) != 0) return false;
  if (family == 6 && is_extension(protocol)) return false;
  const uint16_t wanted = r.flags & r.flags_mask;
  if (protocol == kTcp ? (wanted & 0xff) != 0 : wanted != 0) return false;
  return has_ports(protocol) || (r.src_port.low == 0 && r.dst_port.low == 0);
}

bool routable4(uint32_t a) {
  const uint32_t octet = a >> 24;
  return octet != 0 && octet != 127 && octet < 224;
}

}  // namespace

Result<std::vector<uint32_t>> sizes_of_genome(std::string_view genome) {
  static constexpr uint32_t kSizes[] = {64, 128, 256, 512, 1024, 1280, 1518, 2112, 9000};
  std::vector<uint32_t> sizes;
  for (const char letter : genome) {
    if (letter < 'a' || letter >= static_cast<char>('a' + std::size(kSizes)))
      return Error(fmt::format("'{}' is no letter of an IMIX genome that can be sent here", letter),
                   "a 64, b 128, c 256, d 512, e 1024, f 1280, g 1518, h 2112, i 9000 bytes, such as aaaaaaaddddg");
    sizes.push_back(kSizes[letter - 'a']);
  }
  if (sizes.empty()) return Error("an IMIX genome has a letter for each frame", "such as aaaaaaaddddg");
  return sizes;
}

std::string_view to_string(Malformed kind) {
  static constexpr std::string_view kNames[kMalformedKinds] = {
      "ip-checksum",     "version",  "header-length",  "total-length", "truncated",
      "short-transport", "ttl-zero", "martian-source", "l4-checksum",  "ether-type"};
  return kNames[static_cast<size_t>(kind)];
}

struct TrafficGenerator::State {
  TrafficOptions options;
  Random random;
  AliasTable popularity;
  AliasTable protocols;
  AliasTable dscps;  // none without options.dscps
  std::vector<Flow> flows;
  std::vector<uint32_t> regions;  // indices of those that can be hit
  std::vector<Malformed> kinds;
  std::vector<uint32_t> destinations[2];  // indices by family: 4, 6
  std::vector<uint8_t> payload;
  std::vector<uint64_t> payload_sums;  // of the first 2 i bytes
  uint64_t malformed = 0;
  TrafficStats stats;

  explicit State(const TrafficOptions& o) : options(o), random(o.seed, 20) {}

  void make_payload();
  Error make_flows();  // an empty message: fine
  uint8_t pick_protocol(uint8_t family, const FlowRegion* region, Random& r);
  void pick_address(uint8_t family, const IpPrefix& prefix, Random& r, uint64_t& hi, uint64_t& lo);
  Flow make_flow(Random& r);
  uint32_t frame_bytes(uint32_t link_bytes, uint32_t header_bytes);
  FrameHeader next(uint8_t* out);
  uint64_t put_ip(uint8_t* p, const Flow& flow, uint32_t ip_bytes);
  void put_l4(uint8_t* q, Flow& flow, uint32_t header_bytes, uint32_t data_bytes, uint64_t pseudo);
  uint32_t damage(Malformed kind, uint8_t* out, uint32_t ip, uint32_t l4, uint32_t bytes, const Flow& flow);
};

void TrafficGenerator::State::make_payload() {
  Random r(options.seed, 21);
  payload.resize(kMaxFrame + 16);
  for (size_t i = 0; i + 8 <= payload.size(); i += 8) put64(&payload[i], r.next());
  payload_sums.resize(payload.size() / 2 + 1);
  for (size_t i = 0; i + 1 < payload_sums.size(); ++i) {
    payload_sums[i + 1] = payload_sums[i] + (static_cast<uint32_t>(payload[2 * i]) << 8 | payload[2 * i + 1]);
  }
}

uint8_t TrafficGenerator::State::pick_protocol(uint8_t family, const FlowRegion* region, Random& r) {
  const auto from_mix = [&] {
    const uint8_t kMix[3] = {kTcp, kUdp, family == 6 ? kIcmp6 : kIcmp};
    return kMix[protocols.draw(r)];
  };
  if (region == nullptr) return from_mix();
  for (int tries = 0; tries < 8; ++tries) {
    const uint8_t p = from_mix();
    if (hittable(*region, family, p)) return p;
  }
  const auto start = static_cast<uint8_t>(r.below(256));
  const uint8_t usual[3] = {kTcp, kUdp, family == 6 ? kIcmp6 : kIcmp};
  for (const uint8_t p : usual) {
    if (hittable(*region, family, p)) return p;
  }
  for (unsigned i = 0; i < 256; ++i) {
    const auto p = static_cast<uint8_t>(start + i);
    if (hittable(*region, family, p)) return p;
  }
  return region->protocol;  // not reached: regions that nothing hits are left out
}

void TrafficGenerator::State::pick_address(uint8_t family, const IpPrefix& prefix, Random& r, uint64_t& hi,
                                           uint64_t& lo) {
  const unsigned length = prefix.length;
  if (family == 4) {
    hi = 0;
    const uint32_t mask = high_mask32(length);
    for (int tries = 0; tries < 64; ++tries) {
      const uint32_t a = (static_cast<uint32_t>(prefix.address.lo) & mask) | (static_cast<uint32_t>(r.next()) & ~mask);
      lo = a;
      if (routable4(a)) return;
    }
    return;
  }
  const uint64_t hi_mask = high_mask64(std::min(length, 64u));
  const uint64_t lo_mask = high_mask64(length > 64 ? length - 64 : 0);
  uint64_t random_hi = r.next();
  // A prefix that leaves the first bits open is filled from global unicast, 2000::/3.
  if (length < 3) random_hi = (random_hi >> 3) | uint64_t{1} << 61;
  hi = (prefix.address.hi & hi_mask) | (random_hi & ~hi_mask);
  lo = (prefix.address.lo & lo_mask) | (r.next() & ~lo_mask);
}

Flow TrafficGenerator::State::make_flow(Random& r) {
  Flow flow;
  const FlowRegion* region = regions.empty() ? nullptr : &options.regions[regions[r.below(regions.size())]];
  flow.family = r.chance(chance_threshold(options.ipv6_fraction)) ? 6 : 4;
  const uint8_t region_family = region == nullptr                 ? 0
                                : region->src.address.family != 0 ? region->src.address.family
                                                                  : region->dst.address.family;
  if (region_family != 0) {
    flow.family = region_family;
  } else if (!options.destinations.empty()) {
    // Without a fraction, or where one family is missing, the table's own mix decides.
    const std::vector<uint32_t>& chosen = destinations[flow.family == 6];
    if (options.ipv6_fraction == 0 || chosen.empty()) {
      flow.family = options.destinations[r.below(options.destinations.size())].address.family;
    }
    if (region != nullptr && !hittable(*region, flow.family, region->protocol) && region->protocol_mask == 255) {
      flow.family = flow.family == 4 ? 6 : 4;
    }
  }
  flow.protocol = pick_protocol(flow.family, region, r);
  if (region != nullptr && !hittable(*region, flow.family, flow.protocol)) {
    flow.family = flow.family == 4 ? 6 : 4;  // a rule for either family whose protocol exists in the other only
    flow.protocol = pick_protocol(flow.family, region, r);
  }

  static constexpr IpPrefix kAny;
  pick_address(flow.family, region != nullptr ? region->src : kAny, r, flow.src_hi, flow.src_lo);
  pick_address(flow.family, region != nullptr ? region->dst : kAny, r, flow.dst_hi, flow.dst_lo);
  const std::vector<uint32_t>& routes = destinations[flow.family == 6];
  if (!routes.empty()) {
    // A region's own destination holds; within a wide one, prefixes of the table that fall inside it are preferred.
    const IpPrefix any{{0, 0, flow.family}, 0};
    const IpPrefix& bound = region != nullptr && region->dst.address.family != 0 ? region->dst : any;
    for (int tries = 0; tries < 8; ++tries) {
      const IpPrefix& p = options.destinations[routes[r.below(routes.size())]];
      const uint64_t differs_hi =
          flow.family == 6 ? (p.address.hi ^ bound.address.hi) & high_mask64(std::min<unsigned>(bound.length, 64)) : 0;
      const uint64_t differs_lo =
          flow.family == 6 ? (p.address.lo ^ bound.address.lo) & high_mask64(bound.length > 64 ? bound.length - 64u : 0)
                           : (p.address.lo ^ bound.address.lo) & high_mask32(bound.length);
      if (p.length < bound.length || (differs_hi | differs_lo) != 0) continue;
      pick_address(flow.family, p, r, flow.dst_hi, flow.dst_lo);
      break;
    }
  }

  const RegionPorts src_ports = region != nullptr ? region->src_port : RegionPorts{};
  const RegionPorts dst_ports = region != nullptr ? region->dst_port : RegionPorts{};
  if (has_ports(flow.protocol)) {
    // Clients use high ports and servers known ones, where nothing says otherwise.
    static constexpr uint16_t kServers[] = {443, 443, 443, 443,  80,   80,   53,   22,
                                            25,  123, 993, 3478, 5060, 8080, 8443, 51820};
    const bool any_src = src_ports == RegionPorts{};
    const bool any_dst = dst_ports == RegionPorts{};
    flow.src_port = static_cast<uint16_t>(any_src ? r.between(1024, 65535) : r.between(src_ports.low, src_ports.high));
    flow.dst_port = any_dst ? r.below(4) == 0 ? static_cast<uint16_t>(r.between(1024, 65535)) : kServers[r.below(16)]
                            : static_cast<uint16_t>(r.between(dst_ports.low, dst_ports.high));
  } else {
    flow.src_port = static_cast<uint16_t>(r.next());  // ICMP identifier
  }
  constexpr uint8_t kAck = 0x10;
  flow.tcp_flags = kAck;
  if (region != nullptr) {
    const auto mask = static_cast<uint8_t>(region->flags_mask >> 8);
    flow.tcp_flags = static_cast<uint8_t>((region->flags >> 8 & mask) | (kAck & ~mask));
  }
  if (r.chance(chance_threshold(options.vlan_fraction))) flow.vlan = static_cast<uint16_t>(r.between(1, 4094));
  if (!options.dscps.empty()) flow.dscp = options.dscps[dscps.draw(r)].first;
  return flow;
}

Error TrafficGenerator::State::make_flows() {
  const TrafficOptions& o = options;
  if (o.flows < 1 || o.flows > kMaxFlows)
    return Error(fmt::format("{} flows are out of range", o.flows), fmt::format("1 to {}", kMaxFlows));
  if (!(o.zipf >= 0 && o.zipf <= 8))
    return Error(fmt::format("Zipf exponent {} is out of range", o.zipf), "0 (uniform) to 8");
  for (const uint32_t size : o.size_sequence) {
    if (size < 64 || size > 9618)
      return Error(fmt::format("frame size {} is out of range", size), "64 to 9618 bytes, with FCS");
  }
  if (o.size_mix == SizeMix::kFixed && (o.fixed_bytes < 64 || o.fixed_bytes > 9618)) {
    return Error(fmt::format("frame size {} is out of range", o.fixed_bytes), "64 to 9618 bytes, with FCS");
  }
  for (const auto& [name, value] :
       {std::pair{"IPv6", o.ipv6_fraction}, {"VLAN", o.vlan_fraction}, {"malformed", o.malformed_fraction}}) {
    if (!(value >= 0 && value <= 1)) return Error(fmt::format("{} fraction {} is out of range", name, value), "0 to 1");
  }
  std::vector<uint64_t> parts;
  for (const double part : {o.tcp, o.udp, o.icmp}) {
    if (!(part >= 0 && part <= 1e6))
      return Error(fmt::format("protocol part {} is out of range", part), "0 to 1000000");
    parts.push_back(static_cast<uint64_t>(part * 4294967296.0));
  }
  if (parts[0] + parts[1] + parts[2] == 0)
    return Error("the parts of TCP, UDP and ICMP are all 0", "give at least one");
  protocols = AliasTable(parts);
  if (!o.dscps.empty()) {
    std::vector<uint64_t> of_flows;
    uint64_t sum = 0;
    for (const auto& [dscp, part] : o.dscps) {
      if (dscp > 63) return Error(fmt::format("DSCP {} is out of range", dscp), "0 to 63");
      if (!(part >= 0 && part <= 1e6))
        return Error(fmt::format("the part {} of a DSCP class is out of range", part), "0 to 1000000");
      of_flows.push_back(static_cast<uint64_t>(part * 4294967296.0));
      sum += of_flows.back();
    }
    if (sum == 0) return Error("the parts of all DSCP classes are 0", "give at least one");
    dscps = AliasTable(of_flows);
  }
  for (size_t i = 0; i < kMalformedKinds; ++i) {
    if ((o.malformed_kinds >> i & 1) != 0) kinds.push_back(static_cast<Malformed>(i));
  }
  if (o.malformed_fraction > 0 && kinds.empty())
    return Error("no kind of malformed packet is chosen", "set malformed_kinds");
  malformed = chance_threshold(o.malformed_fraction);

  for (size_t i = 0; i < o.destinations.size(); ++i) {
    const IpPrefix& p = o.destinations[i];
    if (!(p.address.family == 4 && p.length <= 32) && !(p.address.family == 6 && p.length <= 128)) {
      return Error(fmt::format("destination {} is not a prefix", i + 1));
    }
    destinations[p.address.family == 6].push_back(static_cast<uint32_t>(i));
  }
  for (size_t i = 0; i < o.regions.size(); ++i) {
    const FlowRegion& g = o.regions[i];
    const uint8_t family = g.src.address.family != 0 ? g.src.address.family : g.dst.address.family;
    const unsigned limit = family == 4 ? 32 : family == 6 ? 128 : 0;
    const bool mixed =
        g.src.address.family != 0 && g.dst.address.family != 0 && g.src.address.family != g.dst.address.family;
    if (g.src.length > limit || g.dst.length > limit || mixed || g.src_port.low > g.src_port.high ||
        g.dst_port.low > g.dst_port.high) {
      continue;  // nothing lies inside
    }
    bool possible = false;
    for (unsigned p = 0; p < 256 && !possible; ++p) {
      possible = (family != 6 && hittable(g, 4, static_cast<uint8_t>(p))) ||
                 (family != 4 && hittable(g, 6, static_cast<uint8_t>(p)));
    }
    if (possible) regions.push_back(static_cast<uint32_t>(i));
  }
  if (!o.regions.empty() && regions.empty()) {
    return Error(fmt::format("no packet can match any of the {} rules", o.regions.size()),
                 "flags need TCP, and ports need TCP, UDP, UDP-Lite, SCTP or DCCP");
  }
  popularity = AliasTable(zipf_weights(o.flows, o.zipf));
  flows.reserve(o.flows);
  Random r(o.seed, 22);
  for (uint32_t i = 0; i < o.flows; ++i) flows.push_back(make_flow(r));
  return {};
}

// The captured length of the next frame, without tag: what the mix says, but at least the headers and the Ethernet
// minimum.
uint32_t TrafficGenerator::State::frame_bytes(uint32_t link_bytes, uint32_t header_bytes) {
  static constexpr uint8_t kTwelve[12] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2};
  static constexpr uint32_t kSimple[3] = {64, 570, 1518};
  static constexpr uint32_t kStockholm[3] = {40, 576, 1500};
  uint32_t bytes = 0;
  if (const auto& sizes = options.size_sequence; !sizes.empty())
    return std::max(sizes[stats.packets % sizes.size()] - kFcs, link_bytes + header_bytes);
  switch (options.size_mix) {
    case SizeMix::kImix:
      bytes = kSimple[kTwelve[random.below(12)]] - kFcs;
      break;
    case SizeMix::kImixStockholm:
      bytes = kStockholm[kTwelve[random.below(12)]] + 14;
      break;
    case SizeMix::kFixed:
      bytes = options.fixed_bytes - kFcs;
      break;
  }
  return std::max(bytes, link_bytes + header_bytes);
}

// Writes the IP header; returns the sum of the pseudo header: of the addresses, the protocol and the length.
uint64_t TrafficGenerator::State::put_ip(uint8_t* p, const Flow& flow, uint32_t ip_bytes) {
  if (flow.family == 6) {
    const uint32_t l4_bytes = ip_bytes - 40;
    ++stats.ipv6;
    put32(p, 0x60000000u | uint32_t{flow.dscp} << 22 |
                 (static_cast<uint32_t>(mix64(flow.src_lo ^ flow.dst_lo)) & 0xfffff));
    put16(p + 4, l4_bytes);
    p[6] = flow.protocol;
    p[7] = 64;
    put64(p + 8, flow.src_hi);
    put64(p + 16, flow.src_lo);
    put64(p + 24, flow.dst_hi);
    put64(p + 32, flow.dst_lo);
    return sum64(flow.src_hi) + sum64(flow.src_lo) + sum64(flow.dst_hi) + sum64(flow.dst_lo) + flow.protocol + l4_bytes;
  }
  ++stats.ipv4;
  put16(p, 0x4500 | flow.dscp << 2);
  put16(p + 2, ip_bytes);
  put16(p + 4, flow.packets & 0xffff);
  put16(p + 6, ip_bytes > 576 ? 0x4000 : 0);
  p[8] = 64;
  p[9] = flow.protocol;
  put16(p + 10, 0);
  put32(p + 12, static_cast<uint32_t>(flow.src_lo));
  put32(p + 16, static_cast<uint32_t>(flow.dst_lo));
  put16(p + 10, finish(sum_words(p, 20)));
  return sum64(flow.src_lo) + sum64(flow.dst_lo) + flow.protocol + (ip_bytes - 20);
}

// Writes the L4 header and the payload.
void TrafficGenerator::State::put_l4(uint8_t* q, Flow& flow, uint32_t header_bytes, uint32_t data_bytes,
                                     uint64_t pseudo) {
  const bool ipv6 = flow.family == 6;
  // The payload's words are summed once and for all; only its first 8 bytes differ.
  uint8_t* data = q + header_bytes;
  std::memcpy(data, payload.data(), data_bytes);
  uint64_t data_sum = payload_sums[data_bytes / 2];
  if ((data_bytes & 1) != 0) data_sum += static_cast<uint32_t>(payload[data_bytes - 1]) << 8;
  if (data_bytes >= 8) {
    put64(data, stats.packets);
    data_sum = data_sum - payload_sums[4] + sum64(stats.packets);
  }

  if (flow.protocol == kTcp) {
    ++stats.tcp;
    put16(q, flow.src_port);
    put16(q + 2, flow.dst_port);
    put32(q + 4, flow.sequence);
    flow.sequence += data_bytes;
    put32(q + 8, (flow.tcp_flags & 0x10) != 0 ? 1 : 0);
    q[12] = 0x50;
    q[13] = flow.tcp_flags;
    put16(q + 14, 0xffff);
    put32(q + 16, 0);
    put16(q + 16, finish(pseudo + sum_words(q, 20) + data_sum));
  } else if (flow.protocol == kUdp) {
    ++stats.udp;
    put16(q, flow.src_port);
    put16(q + 2, flow.dst_port);
    put16(q + 4, header_bytes + data_bytes);
    put16(q + 6, 0);
    const uint16_t checksum = finish(pseudo + sum_words(q, 8) + data_sum);
    put16(q + 6, checksum == 0 ? 0xffff : checksum);  // RFC 768: 0 means none
  } else if (flow.protocol == (ipv6 ? kIcmp6 : kIcmp)) {
    ++stats.icmp;
    const bool reply = (flow.packets & 1) != 0;
    q[0] = ipv6 ? (reply ? 129 : 128) : (reply ? 0 : 8);
    q[1] = 0;
    put16(q + 2, 0);
    put16(q + 4, flow.src_port);
    put16(q + 6, flow.packets & 0xffff);
    put16(q + 2, finish((ipv6 ? pseudo : 0) + sum_words(q, 8) + data_sum));
  } else {
    ++stats.other;
    std::memset(q, 0, header_bytes);
    if (has_ports(flow.protocol)) {
      put16(q, flow.src_port);
      put16(q + 2, flow.dst_port);
    }
  }
}

FrameHeader TrafficGenerator::State::next(uint8_t* out) {
  const uint64_t number = stats.packets;
  Flow& flow = flows[popularity.draw(random)];
  const bool ipv6 = flow.family == 6;
  const uint32_t ip_header = ipv6 ? 40 : 20;
  const uint32_t l4_header = flow.protocol == kTcp ? 20 : flow.protocol == kDccp || flow.protocol == kSctp ? 12 : 8;

  uint32_t frame = frame_bytes(14, ip_header + l4_header);
  const uint32_t ip_bytes = frame - 14;
  frame = std::max(frame, kMinimumFrame);

  std::memcpy(out, options.dst_mac.bytes, 6);
  std::memcpy(out + 6, options.src_mac.bytes, 6);
  uint32_t at = 12;
  if (flow.vlan != 0) {
    put16(out + 12, 0x8100);
    put16(out + 14, flow.vlan);
    at = 16;
    frame += 4;
    ++stats.vlan;
  }
  put16(out + at, ipv6 ? 0x86dd : 0x0800);
  const uint32_t ip = at + 2;
  const uint32_t l4 = ip + ip_header;
  const uint32_t l4_bytes = ip_bytes - ip_header;
  const uint64_t pseudo = put_ip(out + ip, flow, ip_bytes);
  put_l4(out + l4, flow, l4_header, l4_bytes - l4_header, pseudo);
  const uint32_t used = l4 + l4_bytes;
  if (used < frame) std::memset(out + used, 0, frame - used);
  ++flow.packets;

  if (malformed != 0 && random.chance(malformed)) {
    const Malformed kind = kinds[random.below(kinds.size())];
    frame = damage(kind, out, ip, l4, frame, flow);
    ++stats.malformed[static_cast<size_t>(kind)];
  }
  ++stats.packets;
  stats.bytes += frame;
  return {frame, frame, options.start_ns + number * options.gap_ns};
}

// Breaks a finished frame and returns its new length. Where a kind makes no sense for the packet, the nearest one that
// drops it for a kindred reason is applied: an IPv6 header has no checksum and no length of its own.
uint32_t TrafficGenerator::State::damage(Malformed kind, uint8_t* out, uint32_t ip, uint32_t l4, uint32_t bytes,
                                         const Flow& flow) {
  uint8_t* p = out + ip;
  const bool ipv6 = flow.family == 6;
  auto header_checksum = [&] {
    if (ipv6) return;
    put16(p + 10, 0);
    put16(p + 10, finish(sum_words(p, 20)));
  };
  switch (kind) {
    case Malformed::kIpChecksum:
      if (ipv6) {
        p[0] = 0x40;  // says IPv4 under IPv6's EtherType
      } else {
        p[10 + random.below(2)] ^= static_cast<uint8_t>(1u << random.below(8));
      }
      break;
    case Malformed::kVersion: {
      static constexpr uint8_t kWrong[] = {0x0, 0x1, 0x5, 0x7, 0xf};
      p[0] = static_cast<uint8_t>((p[0] & 0x0f) | kWrong[random.below(5)] << 4);
      header_checksum();
      break;
    }
    case Malformed::kHeaderLength:
      if (ipv6) {
        put16(p + 4, bytes);  // a payload longer than the frame
      } else {
        p[0] = static_cast<uint8_t>(0x40 | random.below(5));
        header_checksum();
      }
      break;
    case Malformed::kTotalLength: {
      const auto excess = static_cast<uint32_t>(random.between(1, 2000));
      put16(p + (ipv6 ? 4 : 2), (ipv6 ? bytes - l4 : bytes - ip) + excess);
      header_checksum();
      break;
    }
    case Malformed::kTruncated:
      return static_cast<uint32_t>(random.between(ip, l4 - 1));
    case Malformed::kShortTransport: {
      const uint32_t least = flow.protocol == kTcp ? 20 : 8;
      const auto kept = static_cast<uint32_t>(random.below(least));
      put16(p + (ipv6 ? 4 : 2), ipv6 ? kept : 20 + kept);
      header_checksum();
      break;
    }
    case Malformed::kTtlZero:
      p[ipv6 ? 7 : 8] = 0;
      header_checksum();
      break;
    case Malformed::kMartianSource: {
      // Both checksums cover the address; mend the transport's by the difference (RFC 1624, eq. 3).
      const uint32_t source = ipv6 ? 8 : 12;
      const uint32_t size = ipv6 ? 16 : 4;
      const uint64_t before = sum_words(p + source, size);
      std::memset(p + source, 0, size);
      p[source + size - 1] = 1;
      if (!ipv6) p[source] = 127;
      const uint64_t after = sum_words(p + source, size);
      header_checksum();
      const uint32_t field = flow.protocol == kTcp             ? 16
                             : flow.protocol == kUdp           ? 6
                             : flow.protocol == kIcmp6 && ipv6 ? 2
                                                               : 0;
      if (field == 0) break;
      uint8_t* checksum = out + l4 + field;
      const uint64_t old = static_cast<uint16_t>(~(checksum[0] << 8 | checksum[1]));
      uint16_t fixed = finish(old + after + (0xffffull * 8 - before % 0xffff));
      if (flow.protocol == kUdp && fixed == 0) fixed = 0xffff;
      put16(checksum, fixed);
      break;
    }
    case Malformed::kL4Checksum: {
      const uint32_t field = flow.protocol == kTcp ? 16 : flow.protocol == kUdp ? 6 : 2;
      uint8_t* byte = out + l4 + field + random.below(2);
      *byte ^= static_cast<uint8_t>(1u << random.below(8));
      // An all-zero UDP checksum would mean "none", which IPv4 accepts.
      // (two bits, so that this is not the right one again)
      if (flow.protocol == kUdp && out[l4 + 6] == 0 && out[l4 + 7] == 0) out[l4 + 6] = out[l4 + 7] = 0x80;
      break;
    }
    case Malformed::kEtherType:
      put16(out + ip - 2, 0x88b5);
      break;  // local experimental (IEEE 802)
  }
  return bytes;
}

TrafficGenerator::TrafficGenerator(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrafficGenerator::TrafficGenerator(TrafficGenerator&&) noexcept = default;
TrafficGenerator& TrafficGenerator::operator=(TrafficGenerator&&) noexcept = default;
TrafficGenerator::~TrafficGenerator() = default;
FrameHeader TrafficGenerator::next(uint8_t* out) {
  return state_->next(out);
}
const TrafficStats& TrafficGenerator::stats() const {
  return state_->stats;
}
uint64_t TrafficGenerator::hittable_regions() const {
  return state_->regions.size();
}

Result<TrafficGenerator> TrafficGenerator::create(const TrafficOptions& options) {
  auto state = std::make_unique<State>(options);
  Error error = state->make_flows();
  if (!error.message.empty()) return error;
  state->make_payload();
  return TrafficGenerator(std::move(state));
}

namespace {

bool stopped(const TrafficOptions& options) {
  return options.stop != nullptr && options.stop->load(std::memory_order_relaxed);
}

}  // namespace

Result<TrafficStats> generate_traffic(const TrafficOptions& options, CaptureWriter& writer) {
  Result<TrafficGenerator> generator = TrafficGenerator::create(options);
  if (!generator.ok()) return std::move(generator).error();
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  for (uint64_t i = 0; i < options.packets && !stopped(options); ++i) {
    const FrameHeader header = generator->next(frame.data());
    if (!writer.append(header, frame.data())) return Error(writer.error());
  }
  return generator->stats();
}

Result<TrafficStats> generate_traffic(const TrafficOptions& options, FrameStore& store) {
  Result<TrafficGenerator> generator = TrafficGenerator::create(options);
  if (!generator.ok()) return std::move(generator).error();
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  for (uint64_t i = 0; i < options.packets && !stopped(options); ++i) {
    const FrameHeader header = generator->next(frame.data());
    if (!store.add(header, frame.data())) return Error(store.error());
  }
  return generator->stats();
}

}  // namespace sluice
