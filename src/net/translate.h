// Addresses and ports of IPv4 packets replaced in place, with every checksum that covers them updated (RFC 1624, RFC
// 3022 section 4). A wrong checksum stays wrong. Host only.
#pragma once

#include <cstdint>

#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ipv4.h"
#include "net/l4.h"

namespace sluice {

// One side of a packet.
enum class Side : uint8_t { kSource, kDestination };

// 16-bit words of a packet that change, for the checksums over them.
class ChangedWords {
 public:
  void store16(uint8_t* at, uint16_t value) {
    before_ += load_le16(at);
    store_be16(at, value);
    after_ += load_le16(at);
  }
  void store32(uint8_t* at, uint32_t value) {
    store16(at, static_cast<uint16_t>(value >> 16));
    store16(at + 2, static_cast<uint16_t>(value));
  }
  void add(const ChangedWords& other) {
    before_ += other.before_;
    after_ += other.after_;
  }
  // Of a checksum over all of them.
  uint16_t update(uint16_t checksum) const { return checksum_update_sum(checksum, before_, after_); }

 private:
  uint64_t before_ = 0, after_ = 0;
};

// What to put where. Without `has_port` ports, and identifiers of ICMP queries, stay.
struct NewEnd {
  uint32_t address = 0;
  uint16_t port = 0;
  bool has_port = false;
};

// Of an IPv4 header at `ip` and of the L4 header behind it, of which bytes up to `end` are there. Returns all words
// that changed, those of checksums with them.
inline ChangedWords translate(uint8_t* ip, const uint8_t* end, Side side, const NewEnd& to) {
  ChangedWords header, all;
  header.store32(ip + (side == Side::kSource ? 12 : 16), to.address);
  all.add(header);
  all.store16(ip + 10, header.update(load_be16(ip + 10)));
  const uint8_t protocol = ip[9];
  const uint32_t length = (ip[0] & 15u) * 4;
  uint8_t* const l4 = ip + length;
  if (length < kIpv4HeaderBytes || l4 > end || (load_be16(ip + 6) & kIpv4OffsetMask) != 0) return all;
  ChangedWords upper = protocol == kProtocolIcmp ? ChangedWords() : header;
  uint32_t checksum = 0;  // its offset; 0: none covers the addresses or the port
  uint32_t port = side == Side::kSource ? 0 : 2;
  switch (protocol) {
    case kProtocolTcp:
      checksum = 16;
      break;
    case kProtocolUdp:
    case kProtocolUdpLite:
    case kProtocolDccp:
      checksum = 6;
      break;
    case kProtocolIcmp:
      checksum = 2;
      port = 4;
      break;
    default:
      return all;
  }
  const bool none = protocol == kProtocolUdp && l4 + 8 <= end && load_be16(l4 + 6) == 0;
  if (to.has_port && l4 + port + 2 <= end) {
    ChangedWords ports;
    ports.store16(l4 + port, to.port);
    upper.add(ports);
    all.add(ports);
  }
  if (none || l4 + checksum + 2 > end) return all;
  uint16_t sum = upper.update(load_be16(l4 + checksum));
  if (protocol == kProtocolUdp && sum == 0) sum = 0xffff;
  all.store16(l4 + checksum, sum);
  return all;
}

// The packet that an ICMP error quotes, where as much of it is there as addresses and ports need. `icmp`: the error's
// header, of which bytes up to `end` are there.
inline void translate_quoted(uint8_t* icmp, const uint8_t* end, Side side, const NewEnd& to) {
  uint8_t* const ip = icmp + 8;
  if (ip + kIpv4HeaderBytes > end) return;
  const ChangedWords changed = translate(ip, end, side, to);
  store_be16(icmp + 2, changed.update(load_be16(icmp + 2)));
}

}  // namespace sluice
