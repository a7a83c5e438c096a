// Makes packet captures: five-tuple flows of Zipf popularity, size mixes, both families, VLANs, and broken packets on
// request.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generate/flow_region.h"
#include "net/types.h"
#include "ports/frame.h"

namespace sluice {

class CaptureWriter;
class FrameStore;

// Sizes count as RFC 2544 and RFC 6985 count them: the Ethernet frame with its 4-byte FCS, which a capture does not
// hold, so a "64-byte" frame is 60 bytes here. A size that is too small for the packet's headers is raised to fit them;
// an 802.1Q tag comes on top.
enum class SizeMix : uint8_t {
  kImix,           // 7:4:1 of 64, 570 and 1518 (the simple IMIX, RFC 6985)
  kImixStockholm,  // 7:4:1 of IP packets of 40, 576 and 1500 bytes; frames are padded to the Ethernet minimum
  kFixed,          // every frame TrafficOptions::fixed_bytes
};

// Ways to break a packet. Each breaks one thing and leaves the rest right; what depends on the broken field is not
// redone.
enum class Malformed : uint8_t {
  kIpChecksum,      // IPv4 header checksum off by one bit
  kVersion,         // version nibble neither 4 nor 6
  kHeaderLength,    // IPv4 IHL below 5
  kTotalLength,     // IP length beyond the end of the frame
  kTruncated,       // the frame ends inside the IP header
  kShortTransport,  // IP length ends inside the transport header
  kTtlZero,         // TTL or hop limit 0, checksum right
  kMartianSource,   // source 127/8 or ::1, checksums right
  kL4Checksum,      // TCP, UDP or ICMP checksum off by one bit; another protocol's payload byte instead
  kEtherType,       // an EtherType that nothing uses
};
inline constexpr size_t kMalformedKinds = 10;
inline constexpr uint32_t kAllMalformed = (1u << kMalformedKinds) - 1;
std::string_view to_string(Malformed kind);

struct TrafficOptions {
  uint64_t packets = 1'000'000;
  uint32_t flows = 10'000;  // 1..16,777,216 five-tuples; more than there are packets is fine
  double zipf = 1.0;        // popularity of the k-th flow is k^-zipf; 0 is uniform; 0..8
  SizeMix size_mix = SizeMix::kImix;
  uint32_t fixed_bytes = 64;  // 64..9,618, with FCS
  // When given, in place of size_mix: the sizes of successive packets, again from the first after the last, so that the
  // sequence is the same in each round (an IMIX genome, RFC 6985). Each 64..9,618, with FCS.
  std::vector<uint32_t> size_sequence;
  double ipv6_fraction = 0;                   // 0..1 of the flows, where regions and destinations leave the choice
  double vlan_fraction = 0;                   // of the flows; the tag is one of 1..4094
  double tcp = 0.8, udp = 0.15, icmp = 0.05;  // parts of the flows, any positive scale, where regions leave the choice
  // Each flow has one of these DSCPs (0..63), in these parts of the flows, any positive scale; none given: 0.
  std::vector<std::pair<uint8_t, double>> dscps;
  double malformed_fraction = 0;             // of the packets
  uint32_t malformed_kinds = kAllMalformed;  // bit 1 << Malformed, drawn evenly
  uint64_t seed = 1;
  uint64_t start_ns = 1'700'000'000'000'000'000;
  uint64_t gap_ns = 1000;  // between stamps
  MacAddress dst_mac{{0x02, 0, 0, 0, 0, 0x01}};
  MacAddress src_mac{{0x02, 0, 0, 0, 0, 0x02}};

  // When given, each flow lies inside one of these, drawn evenly. Regions that no well-formed packet can hit (flags
  // without TCP, ports without a protocol that has them) are passed over. FlowKey's meaning of every field.
  std::vector<FlowRegion> regions;
  // When given, a flow's destination is a random host of a random one of these, unless its region says otherwise.
  std::vector<IpPrefix> destinations;

  const std::atomic<bool>* stop = nullptr;  // generate_traffic: set from elsewhere (a signal), it ends early
};

// The sizes that the letters of an IMIX genome stand for, with FCS: a 64, b 128, c 256, d 512, e 1024, f 1280, g 1518,
// h 2112, i 9000 (RFC 6985 section 4). Errors: a letter that is none of these (j, 16,000 bytes, and z, the interface's
// MTU, among them), or no letter.
Result<std::vector<uint32_t>> sizes_of_genome(std::string_view genome);

struct TrafficStats {
  uint64_t packets = 0;
  uint64_t bytes = 0;  // captured
  uint64_t ipv4 = 0, ipv6 = 0, vlan = 0;
  uint64_t tcp = 0, udp = 0, icmp = 0, other = 0;
  std::array<uint64_t, kMalformedKinds> malformed{};
};

// Makes one frame after the other, forever; the same on every machine for the same options. Move-only, not thread-safe.
//
// IPv4 and IPv6, TCP, UDP, ICMP and ICMPv6 carry right lengths and checksums. UDP-Lite, SCTP and DCCP, which only a
// region can ask for, get ports and no checksum of their own; any other protocol an opaque payload. TTL and hop limit
// are 64. ICMP is echo request and reply. A payload of 8 bytes or more starts with the packet's number, big-endian,
// from 0.
class TrafficGenerator {
 public:
  static constexpr size_t kMaxFrame = 9618 + 4;

  // Errors: an option out of range, no region that a packet can hit, a destination that is no prefix.
  static Result<TrafficGenerator> create(const TrafficOptions& options);
  TrafficGenerator(TrafficGenerator&&) noexcept;
  TrafficGenerator& operator=(TrafficGenerator&&) noexcept;
  ~TrafficGenerator();

  // Writes a frame of at most kMaxFrame bytes at `out` and returns its header. `out` has kMaxFrame bytes of room.
  FrameHeader next(uint8_t* out);
  const TrafficStats& stats() const;
  uint64_t hittable_regions() const;  // of options.regions

 private:
  struct State;
  explicit TrafficGenerator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// options.packets frames into a capture (the caller commits it) or a store. Errors: create()'s, the writer's or the
// store's.
Result<TrafficStats> generate_traffic(const TrafficOptions& options, CaptureWriter& writer);
Result<TrafficStats> generate_traffic(const TrafficOptions& options, FrameStore& store);

}  // namespace sluice
