// IPFilter and IPClassifier as a program of comparisons, for patterns that an access list cannot say. Host and device.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "batch/packet.h"

namespace sluice {

// What a step looks at. A source that the packet does not have takes the `no` branch.
enum class PatternSource : uint8_t {
  kFamily,    // 4 or 6
  kProtocol,  //
  kDscp,      //
  kTtl,       // hop limit too
  kBits,      // FlowKey::bits
  kSrcPort,   //
  kDstPort,   //
  kTcpFlags,  // the byte
  kIcmpType,  //
  kIcmpCode,  //
  kAddress,   // word `offset` of the source (0..3) or the destination (4..7), from the high end of 128 bits
  // Of the frame's bytes, last:
  kIpBytes,     // `bytes` bytes at `offset` of the IP header, as a big-endian number
  kTransBytes,  // the same of the transport header
  kEtherBytes,  // the same of the Ethernet header, where there is one
};

// A value under a mask, compared with a range, and where to go then. Steps go forward only, so a program ends.
struct PatternStep {
  static constexpr uint16_t kDone = 0x8000;  // in a target: the low byte is the output, kDropOutput included
  static constexpr uint16_t kDenied = 0x80ff;
  static constexpr uint16_t kNoMatch = 0xc0ff;

  uint32_t mask;
  uint32_t low, span;  // low <= value <= low + span
  uint16_t yes, no;    // the next step, or kDone and an output
  uint16_t offset;
  PatternSource source;
  uint8_t bytes : 3;    // kIpBytes, kTransBytes, kEtherBytes: 1..4
  uint8_t outside : 1;  // the other way round: the value is not in the range
};
static_assert(sizeof(PatternStep) == 20);

struct PatternStage {
  static constexpr FieldMask kReads = kFieldFrame | kFieldExtent | kFieldL3 | kFieldKey;
  static constexpr FieldMask kWrites = kFieldReason;
  static constexpr FrameUse kFrameUse = FrameUse::kAnywhere;
  static constexpr int32_t kEtherHeader = 14;  // bytes before the IP header, without tags

  const PatternStep* steps = nullptr;
  uint32_t count = 0;
  uint32_t first = PatternStep::kNoMatch;  // where to begin: a step or an output

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(steps, count);
  }

  // `at` counts from the frame, and lies in front of it where a header was pushed there.
  SLUICE_HD static bool bytes_at(const Packet& p, int64_t at, uint32_t bytes, uint32_t& value) {
    if (at + bytes > p.end) return false;
    value = 0;
    for (uint32_t i = 0; i < bytes; ++i) value = value << 8 | p.frame[at + i];
    return true;
  }

  // The Ethernet header is where the data begin, or where the frame does if the data begin behind it (Strip).
  SLUICE_HD static bool ether_bytes_at(const Packet& p, const PatternStep& s, uint32_t& value) {
    const int32_t at = p.data + kEtherHeader <= p.l3 ? p.data : 0;
    return at + kEtherHeader <= p.l3 && bytes_at(p, int64_t{at} + s.offset, s.bytes, value);
  }

  SLUICE_HD static bool load(const Packet& p, const PatternStep& s, uint32_t& value) {
    const FlowKey& k = p.key;
    switch (s.source) {
      case PatternSource::kFamily:
        value = k.family;
        return true;
      case PatternSource::kProtocol:
        value = k.protocol;
        return true;
      case PatternSource::kDscp:
        value = k.dscp;
        return true;
      case PatternSource::kTtl:
        value = p.ttl;
        return true;
      case PatternSource::kBits:
        value = k.bits;
        return true;
      case PatternSource::kSrcPort:
        value = k.src_port;
        return true;
      case PatternSource::kDstPort:
        value = k.dst_port;
        return true;
      case PatternSource::kTcpFlags:
        value = k.flags >> 8;
        return true;
      case PatternSource::kIcmpType:
        value = k.icmp >> 8;
        return true;
      case PatternSource::kIcmpCode:
        value = k.icmp & 0xff;
        return true;
      case PatternSource::kAddress: {
        const uint64_t half =
            s.offset < 4 ? (s.offset < 2 ? k.src_hi : k.src_lo) : (s.offset < 6 ? k.dst_hi : k.dst_lo);
        value = static_cast<uint32_t>((s.offset & 1) == 0 ? half >> 32 : half);
        return true;
      }
      case PatternSource::kIpBytes:
        return bytes_at(p, int64_t{p.l3} + s.offset, s.bytes, value);
      case PatternSource::kTransBytes:
        return p.l4 != 0xffff && bytes_at(p, int64_t{p.l4} + s.offset, s.bytes, value);
      case PatternSource::kEtherBytes:
        return ether_bytes_at(p, s, value);
    }
    return false;
  }

  SLUICE_HD uint8_t operator()(Packet& p) const {
    // Without an IP header there is nothing to look at.
    uint32_t at = p.key.family != 0 ? first : uint32_t{PatternStep::kNoMatch};
    while ((at & PatternStep::kDone) == 0) {
      const PatternStep& s = steps[at];
      uint32_t value = 0;
      const bool has = load(p, s, value);
      at = has && ((value & s.mask) - s.low <= s.span) != (s.outside != 0) ? s.yes : s.no;
    }
    if (at == PatternStep::kNoMatch) return fail(p, DropReason::kClassifierNoMatch);
    if (at == PatternStep::kDenied) return fail(p, DropReason::kAclDeny);
    return static_cast<uint8_t>(at);
  }
};

}  // namespace sluice
