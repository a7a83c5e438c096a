// How reports write a packet's five-tuple and time.
// host only
#pragma once

#include <cstdint>
#include <string>

#include "net/flow_key.h"

namespace sluice {

// As rules and tcpdump write it: "tcp"; "proto 47" where it has no name.
std::string protocol_text(uint8_t protocol);
// TCP flags as tcpdump writes them: "SA"; "none".
std::string flags_text(uint16_t flags);
// "tcp 10.0.0.1:1234 > 8.8.8.8:80"; without ports "icmp 10.0.0.1 > 8.8.8.8".
std::string five_tuple(const FlowKey& k);
// The same with all that a rule can ask for: "ip 10.0.0.1 > 192.0.2.7 tcp 1000 > 80 flags S".
std::string key_text(const FlowKey& k);
// A packet's time stamp: "2026-11-25 11:40:12.079362000Z".
std::string time_text(uint64_t ns);

}  // namespace sluice
