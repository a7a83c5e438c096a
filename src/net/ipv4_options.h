// IPv4 options as a router sees them: walking the list, and what RFC 791 section 3.1 and RFC 1812 section 5.3.13
// ask of a router that forwards the packet. Host and device; no allocation.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ipv4.h"

namespace sluice {

// One step of a walk over an option list, `kNext` and `kBad` with `type`, `at` and `length` filled.
enum class OptionStep : uint8_t {
  kNext,  // an option of `length` bytes at `at`; No Operation is one byte
  kEnd,   // no more: the list's end, or an End of Option List
  kBad,   // the option at `at` has a length below 2, or past the end of the list
};

// Walks `bytes` of options. Each step but the last consumes a byte at least, so a walk has 40 steps at most.
struct OptionWalk {
  const uint8_t* options;
  uint32_t bytes;
  uint32_t next = 0;
  uint32_t at = 0;  // from the start of the options
  uint32_t length = 0;
  uint8_t type = kIpv4OptionEnd;

  SLUICE_HD OptionStep step() {
    at = next;
    if (at >= bytes) return OptionStep::kEnd;
    type = options[at];
    length = 1;
    if (type == kIpv4OptionEnd) return OptionStep::kEnd;
    if (type != kIpv4OptionNop) {
      if (bytes - at < 2 || options[at + 1] < 2 || options[at + 1] > bytes - at) return OptionStep::kBad;
      length = options[at + 1];
    }
    next = at + length;
    return OptionStep::kNext;
  }
};

// What is done with an option of some kind: RFC 7126 asks for this choice, kind by kind.
enum class OptionPolicy : uint8_t {
  kProcess = 0,  // as RFC 791 says
  kIgnore = 1,   // the packet is forwarded as if it had not the option
  kDrop = 2,     // the packet is not forwarded
};

// The router's choices, and what it writes. Trivially copyable.
struct Ipv4OptionRules {
  OptionPolicy record_route = OptionPolicy::kProcess;
  OptionPolicy timestamp = OptionPolicy::kProcess;
  OptionPolicy source_route = OptionPolicy::kDrop;    // kProcess is not offered: see the element IPGWOptions
  OptionPolicy router_alert = OptionPolicy::kIgnore;  // kProcess likewise: nothing here listens
  OptionPolicy other = OptionPolicy::kIgnore;         // all that are not named, security options among them
  uint32_t address = 0;                               // the router's own, recorded; host order
  const uint32_t* other_addresses = nullptr;          // further own addresses, which prespecified timestamps may name
  uint32_t other_count = 0;
};

enum class OptionVerdict : uint8_t {
  kForward,  // the header may have changed; its checksum is as right as before
  kRefused,  // a rule drops such an option; nothing has changed
  kBad,      // the list is malformed: parameter problem, `pointer` says where; nothing has changed
};

namespace options_detail {

SLUICE_HD bool own_address(const Ipv4OptionRules& rules, uint32_t address) {
  if (address == rules.address) return true;
  for (uint32_t i = 0; i < rules.other_count; ++i) {
    if (rules.other_addresses[i] == address) return true;
  }
  return false;
}

// Not 0: the offset in the option at `o` of its first wrong byte, which is never the type.
SLUICE_HD uint32_t record_route_wrong(const uint8_t* o, uint32_t length) {
  if (length < 3) return 1;
  const uint32_t pointer = o[2];
  if (pointer < 4) return 2;
  return pointer <= length && pointer + 3 > length ? 2 : 0;  // some room, but not for an address
}
SLUICE_HD uint32_t timestamp_wrong(const uint8_t* o, uint32_t length) {
  if (length < 4) return 1;
  const uint32_t pointer = o[2];
  const uint32_t flag = o[3] & 0xfu;
  if (pointer < 5) return 2;
  if (flag != 0 && flag != 1 && flag != 3) return 3;
  // One more router that could not register: the count would wrap.
  if (pointer > length) return flag != 3 && o[3] >> 4 == 15 ? 3 : 0;
  return pointer - 1 + (flag == 0 ? 4 : 8) > length ? 2 : 0;
}

// Both write in an option of which nothing is wrong.
SLUICE_HD void record_route(uint8_t* o, uint32_t length, uint32_t address) {
  const uint32_t pointer = o[2];
  if (pointer > length) return;  // full: forwarded as it is
  store_be32(o + pointer - 1, address);
  o[2] = static_cast<uint8_t>(pointer + 4);
}
SLUICE_HD void timestamp(uint8_t* o, uint32_t length, const Ipv4OptionRules& rules, uint32_t now) {
  const uint32_t pointer = o[2];
  const uint32_t flag = o[3] & 0xfu;
  if (pointer > length) {
    // With flag 3 all whom the source named have had their turn.
    if (flag != 3) o[3] = static_cast<uint8_t>(o[3] + 0x10);
    return;
  }
  uint8_t* to = o + pointer - 1;
  if (flag == 3 && !own_address(rules, load_be32(to))) return;  // another router's turn
  if (flag == 1) store_be32(to, rules.address);
  const uint32_t need = flag == 0 ? 4 : 8;
  store_be32(to + need - 4, now);
  o[2] = static_cast<uint8_t>(pointer + need);
}

SLUICE_HD OptionPolicy policy_of(const Ipv4OptionRules& rules, uint8_t type) {
  switch (type) {
    case kIpv4OptionNop:
      return OptionPolicy::kIgnore;
    case kIpv4OptionRecordRoute:
      return rules.record_route;
    case kIpv4OptionTimestamp:
      return rules.timestamp;
    case kIpv4OptionLooseSourceRoute:
    case kIpv4OptionStrictSourceRoute:
      return rules.source_route;
    case kIpv4OptionRouterAlert:
      return rules.router_alert;
    default:
      return rules.other;
  }
}

}  // namespace options_detail

// Does to the option list at `list` (`bytes` of it, at most 40, a multiple of 4, all readable) what `rules` say.
// `now_ms`: milliseconds since midnight, universal time, for timestamps. With kBad, `pointer` is the offset in the
// header of the wrong byte (RFC 792): the length or pointer of an option, or the type of one that may stand only once.
// The whole list is judged before anything is written. The header's checksum is updated, not made anew (RFC 1624): what
// was wrong before stays so.
SLUICE_HD OptionVerdict process_option_list(uint8_t* list, uint32_t bytes, const Ipv4OptionRules& rules,
                                            uint32_t now_ms, uint32_t& pointer, uint16_t& checksum) {
  pointer = 0;
  bool refused = false;
  uint32_t record = bytes, stamp = bytes;  // where these options are; `bytes`: there is none
  OptionWalk walk{list, bytes};
  OptionStep step = walk.step();
  for (; step == OptionStep::kNext; step = walk.step()) {
    const OptionPolicy policy = options_detail::policy_of(rules, walk.type);
    refused |= policy == OptionPolicy::kDrop;
    if (policy != OptionPolicy::kProcess) continue;
    uint32_t wrong = 0;
    if (walk.type == kIpv4OptionRecordRoute || walk.type == kIpv4OptionTimestamp) {
      const bool records = walk.type == kIpv4OptionRecordRoute;
      uint32_t& its = records ? record : stamp;
      if (its != bytes) {  // RFC 791: at most once in a datagram
        pointer = kIpv4HeaderBytes + walk.at;
        return OptionVerdict::kBad;
      }
      its = walk.at;
      wrong = records ? options_detail::record_route_wrong(list + walk.at, walk.length)
                      : options_detail::timestamp_wrong(list + walk.at, walk.length);
    }
    if (wrong != 0) {
      pointer = kIpv4HeaderBytes + walk.at + wrong;
      return OptionVerdict::kBad;
    }
  }
  if (step == OptionStep::kBad) {
    pointer = kIpv4HeaderBytes + walk.at + (bytes - walk.at < 2 ? 0 : 1);
    return OptionVerdict::kBad;
  }
  if (refused) return OptionVerdict::kRefused;
  if (record == bytes && stamp == bytes) return OptionVerdict::kForward;
  const uint64_t before = checksum_words(list, bytes);
  if (record != bytes) options_detail::record_route(list + record, list[record + 1], rules.address);
  if (stamp != bytes) options_detail::timestamp(list + stamp, list[stamp + 1], rules, now_ms);
  checksum = checksum_update_sum(checksum, before, checksum_words(list, bytes));
  return OptionVerdict::kForward;
}

// The same of the options of the header at `ip`, of `header_bytes` from 20 to 60, a multiple of 4.
SLUICE_HD OptionVerdict process_ipv4_options(uint8_t* ip, uint32_t header_bytes, const Ipv4OptionRules& rules,
                                             uint32_t now_ms, uint32_t& pointer) {
  uint16_t checksum = load_be16(ip + 10);
  const OptionVerdict verdict =
      process_option_list(ip + kIpv4HeaderBytes, header_bytes - kIpv4HeaderBytes, rules, now_ms, pointer, checksum);
  if (verdict == OptionVerdict::kForward) store_be16(ip + 10, checksum);
  return verdict;
}

}  // namespace sluice
