// What a user writes on the command line that is more than a word or a number. The texts are untrusted: any bytes give
// a value or an error, in time and memory linear in their length (a packet is at most 9,000 bytes behind its link
// header). host only
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// One frame from its Ethernet header on, written as
//   tcp|udp|sctp SRC[:SPORT] > DST[:DPORT] [flags S|SYN,ACK] [OPTIONS]
//   icmp SRC > DST [TYPE [CODE]] [OPTIONS]
//   ip SRC > DST [tcp|udp|sctp SPORT > DPORT] [icmp TYPE CODE] [proto N] [flags ...] [OPTIONS]
// OPTIONS: [ttl N] [dscp N] [len N] [df] [frag OFFSET] [vlan N]. A port of IPv6 stands behind brackets. `name` stands
// for the text in messages ("--packet"). Errors: the first word that is not understood, with its place.
Result<std::vector<uint8_t>> parse_packet_text(const std::string& text, const std::string& name);

// Two hexadecimal digits a byte; blanks and colons between digits do not count. Errors: another character, half a byte.
Result<std::vector<uint8_t>> parse_hex_bytes(const std::string& text, const std::string& name);

// A time with its unit, such as 800ns, 50us, 1.5ms or 2s, or seconds, in nanoseconds. Errors: another unit, no number,
// less than 1 ns or more than an hour.
Result<uint64_t> parse_duration(std::string_view text);

// PORT=FILE, or FILE alone. A name such as out=1.pcap, or with more than five digits before '=', is a file.
struct PortFile {
  std::optional<uint16_t> port;
  std::string file;
};
// Errors: a port above 65535.
Result<PortFile> parse_port_file(std::string_view word);

}  // namespace sluice
