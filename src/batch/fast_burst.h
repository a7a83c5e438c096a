// host only
// FastBurst: up to 32 packets of one family as columns. What stages with a burst form work on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "batch/drop_reason.h"
#include "batch/packet.h"
#include "net/key_columns.h"

namespace sluice {

// Stages that can take bursts have
//
//   uint32_t burst(FastBurst& burst, uint32_t mask) const;
//
// which gives the lanes of `mask` that leave by output 0; for each other lane it sets output and reason. No frame is
// changed by a stage: edits are noted in the columns, of lanes that leave by output 0 alone, and made when the packet
// leaves the burst.
//
// Columns of lanes outside a mask hold stale values: reading them is allowed, and means nothing.
struct alignas(64) FastBurst {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kRoom = kLanes + 16;  // columns are written a whole vector at a time
  // Where headers lie: l3 | l4 << 16, as in Extent.
  static constexpr uint32_t kPlain = 14 | 34 << 16;  // an untagged frame with IPv4 without options

  // The key's parts (net/key4.h); see fill_keys. A burst of one family has its addresses alone.
  uint32_t source[kRoom];
  uint32_t destination[kRoom];
  uint32_t ports[kRoom];
  uint32_t rest[kRoom];
  uint8_t* ip[kRoom];        // the network header
  uint32_t row[kRoom];       // of the batch
  uint32_t length[kRoom];    // bytes of the frame on arrival
  uint32_t ip_bytes[kRoom];  // from the network header to the end: what lies behind is padding
  uint32_t places[kRoom];    // of the headers, from the frame's first byte
  uint32_t link[kRoom];      // bytes before the network header that belong to the packet
  uint32_t tci[kRoom];       // of the outermost tag on arrival, where there is one
  uint32_t hop[kRoom];       // IPv4: TTL, protocol, checksum, as they are to lie in the frame (net/edit.h, kHopWord);
                             // IPv6: the hop limit
  uint32_t rule[kRoom];
  uint32_t next_hop[kRoom];
  uint32_t place[kRoom];          // what the stage `asked_by` noted in its early prefetch
  const uint8_t* rewrite[kRoom];  // 12 bytes for the start of the link header, where `rewritten` says so
  uint16_t port[kRoom];
  uint16_t tag[kRoom];     // VLAN id for the link header, where `link` leaves room for one
  uint16_t flags[kRoom];   // Headers::Flags of lanes that are `odd`
  uint16_t detail[kRoom];  // Packet::icmp_detail of lanes that are `detailed`
  uint32_t mark[kRoom];    // of lanes that are `marked`
  uint8_t output[kRoom];
  DropReason reason[kRoom];
  uint64_t odd;        // lanes whose flags are not those of common packets (net/fast_parse.h), past kLanes as well
  uint32_t count;      // lanes in use
  uint32_t hopped;     // lanes whose TTL has changed
  uint32_t rewritten;  // lanes whose link header is replaced, and whose port is set
  uint32_t marked;
  uint32_t detailed;
  uint8_t family;  // 4 or 6
  bool one_run;    // all lanes are in use and their rows follow one another: found by find_run
  // The stage whose notes `place` holds, or null. Of several that take notes the last has its own there.
  const void* asked_by;
  // Not null: the key's columns hold nothing yet. The lanes' keys lie here as records, 16 bytes each: a Key4 whose
  // upper seven bits are another's. Most stages after a device never read it.
  const std::byte* late_keys;
  // Of a burst of IPv6, host order.
  uint64_t source_high[kRoom];
  uint64_t source_low[kRoom];
  uint64_t destination_high[kRoom];
  uint64_t destination_low[kRoom];

  // Call before reading the key columns.
  void fill_keys() {
    if (late_keys == nullptr) return;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t k[4];
      std::memcpy(k, late_keys + size_t{i} * sizeof(Key4), sizeof k);
      source[i] = k[0];
      destination[i] = k[1];
      ports[i] = k[2];
      rest[i] = k[3] & 0x01ffffffu;
    }
    late_keys = nullptr;
  }
  // Of a burst of IPv4.
  Key4 key4(uint32_t lane) const { return {source[lane], destination[lane], ports[lane], rest[lane]}; }
  KeyColumns keys() const {
    const bool six = family == 6;
    return {family,
            ports,
            rest,
            six ? nullptr : source,
            six ? nullptr : destination,
            six ? source_high : nullptr,
            six ? source_low : nullptr,
            six ? destination_high : nullptr,
            six ? destination_low : nullptr};
  }
  FlowKey key(uint32_t lane) const { return keys().key(lane); }
  void set_key(uint32_t lane, const FlowKey& key) {
    const Key4 packed = pack_key4(key);
    ports[lane] = packed.ports;
    rest[lane] = packed.rest;
    if (family == 6) {
      source_high[lane] = key.src_hi;
      source_low[lane] = key.src_lo;
      destination_high[lane] = key.dst_hi;
      destination_low[lane] = key.dst_lo;
    } else {
      source[lane] = packed.source;
      destination[lane] = packed.destination;
    }
  }
  uint32_t l3(uint32_t lane) const { return places[lane] & 0xffff; }
  // The packet's bytes as they are now.
  uint32_t bytes(uint32_t lane) const { return ip_bytes[lane] + link[lane]; }

  void clear() {
    count = 0;
    odd = 0;
    asked_by = nullptr;
    late_keys = nullptr;
  }
  uint32_t odd_lanes() const { return static_cast<uint32_t>(odd); }
  // Begins, cleared and of the family of `from`, with its `extra` lanes past kLanes: at most 16. `from` may be this
  // burst.
  void take_extra(const FastBurst& from, uint32_t extra) {
    static_assert(kLanes >= 16);
    const auto move = [](auto* to, const auto* of) { std::memcpy(to, of + kLanes, 16 * sizeof *to); };
    const uint64_t odd_extra = from.odd >> kLanes;
    clear();
    count = extra;
    odd = odd_extra;
    if (odd != 0) move(flags, from.flags);
    move(ports, from.ports);
    move(rest, from.rest);
    move(ip, from.ip);
    move(row, from.row);
    move(length, from.length);
    move(ip_bytes, from.ip_bytes);
    move(places, from.places);
    move(link, from.link);
    move(tci, from.tci);
    move(hop, from.hop);
    std::memset(rule, 0, 16 * sizeof rule[0]);
    std::memset(next_hop, 0, 16 * sizeof next_hop[0]);
    if (family == 6) {
      move(source_high, from.source_high);
      move(source_low, from.source_low);
      move(destination_high, from.destination_high);
      move(destination_low, from.destination_low);
    } else {
      move(source, from.source);
      move(destination, from.destination);
    }
  }
  uint32_t lanes() const { return count == kLanes ? ~uint32_t{0} : (uint32_t{1} << count) - 1; }
  void find_run() {
    uint32_t differ = count ^ kLanes;
    for (uint32_t i = 0; i < kLanes; ++i) differ |= (row[i] - row[0]) ^ i;
    one_run = differ == 0;
  }
  // The lanes for which `holds(lane)` is true, which may look at columns alone; of lanes past `count` it says nothing.
  // The constant trip count lets the compiler vectorise it.
  template <typename Holds>
  static uint32_t lanes_where(Holds&& holds) {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kLanes; ++i) lanes |= kLane[i] & (0u - uint32_t{holds(i)});
    return lanes;
  }
  // Lane i's bit.
  static constexpr std::array<uint32_t, kLanes> kLane = [] {
    std::array<uint32_t, kLanes> bits{};
    for (uint32_t i = 0; i < kLanes; ++i) bits[i] = uint32_t{1} << i;
    return bits;
  }();
};

}  // namespace sluice
