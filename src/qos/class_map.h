// Classes by differentiated services codepoint, and codepoints by class and colour. Host and device.
//
// Source: RFC 2474 (the field; an unknown codepoint is treated as the default), RFC 4594 (what codepoints are for), RFC
// 3168 (ECN, which is not touched).
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/edit.h"

namespace sluice {

inline constexpr unsigned kMaxQosClasses = 8;
inline constexpr unsigned kDefaultQosClasses = 3;

// What a policer says of a packet (RFC 2697, RFC 2698).
enum class Color : uint8_t { kGreen = 0, kYellow = 1, kRed = 2 };
inline constexpr unsigned kColors = 3;

// 64 codepoints, four bits each: class 0 goes first.
struct ClassMap {
  uint32_t words[8] = {};

  // Bits of `dscp` above the sixth are ignored.
  SLUICE_HD constexpr unsigned class_of(unsigned dscp) const {
    return words[(dscp & 63) >> 3] >> ((dscp & 7) * 4) & 15u;
  }
  // `value` below kMaxQosClasses.
  SLUICE_HD constexpr void set(unsigned dscp, unsigned value) {
    uint32_t& word = words[(dscp & 63) >> 3];
    const unsigned shift = (dscp & 7) * 4;
    word = (word & ~(15u << shift)) | (value & 15u) << shift;
  }
  SLUICE_HD constexpr void fill(unsigned value) {
    for (unsigned dscp = 0; dscp < 64; ++dscp) set(dscp, value);
  }
  bool operator==(const ClassMap&) const = default;

  // Three priorities by RFC 4594, figure 3:
  //   0  telephony, its signalling and network control: EF, VOICE-ADMIT (RFC 5865), CS5, CS6, CS7
  //   1  video, transactions, bulk data with an assurance, OAM: AF11 to AF43, CS2, CS3, CS4
  //   2  the rest: default, CS1 and LE (lower effort, RFC 8622), all that is unknown
  static constexpr ClassMap three_priorities() {
    ClassMap map;
    map.fill(2);
    constexpr unsigned kFirst[] = {46, 44, 40, 48, 56};
    for (const unsigned dscp : kFirst) map.set(dscp, 0);
    for (unsigned group = 1; group <= 4; ++group) {
      for (unsigned precedence = 1; precedence <= 3; ++precedence) map.set(8 * group + 2 * precedence, 1);
    }
    constexpr unsigned kSelectors[] = {16, 24, 32};
    for (const unsigned dscp : kSelectors) map.set(dscp, 1);
    return map;
  }
};
static_assert(std::is_trivially_copyable_v<ClassMap> && sizeof(ClassMap) == 32);

// The codepoint of an IP header of which at least two bytes are there. `family` is 4 or 6.
SLUICE_HD unsigned dscp_of(const uint8_t* ip, unsigned family) {
  return family == 6 ? load_be16(ip) >> 6 & 63u : ip[1] >> 2;
}

// The codepoint that packets of a class and colour leave with.
struct RemarkMap {
  static constexpr uint8_t kKeep = 0xff;
  uint8_t dscp[kMaxQosClasses][kColors] = {{kKeep, kKeep, kKeep}, {kKeep, kKeep, kKeep}, {kKeep, kKeep, kKeep},
                                           {kKeep, kKeep, kKeep}, {kKeep, kKeep, kKeep}, {kKeep, kKeep, kKeep},
                                           {kKeep, kKeep, kKeep}, {kKeep, kKeep, kKeep}};

  bool operator==(const RemarkMap&) const = default;
};
static_assert(std::is_trivially_copyable_v<RemarkMap> && sizeof(RemarkMap) == 24);

// Remarks an IP header that has been parsed; keeps ECN and mends IPv4's checksum. What keeps its codepoint is not
// written.
SLUICE_HD void remark(const RemarkMap& map, unsigned qos_class, Color color, uint8_t* ip, unsigned family) {
  const uint8_t dscp = map.dscp[qos_class % kMaxQosClasses][static_cast<unsigned>(color) % kColors];
  if (dscp == RemarkMap::kKeep || dscp_of(ip, family) == dscp) return;
  set_dscp(ip, family, dscp);
}

}  // namespace sluice
