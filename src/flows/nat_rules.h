// host only
// Rules of network address translation, a line each; docs/flows.md has the language. IPv4.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace sluice {

// The addresses and ports of a packet, from whoever sent it. Of ICMP queries both ports are the identifier.
struct NatTuple {
  uint32_t source = 0, destination = 0;
  uint16_t source_port = 0, destination_port = 0;
  uint8_t protocol = 0;

  friend bool operator==(const NatTuple&, const NatTuple&) = default;
};

// As it lies in the table's image.
struct NatRule {
  enum class Verb : uint8_t {
    kDestination,  // dnat
    kSource,       // snat
    kMasquerade,   // snat to the address of the output
    kBoth,         // static
  };
  struct Addresses {
    uint32_t address = 0, mask = 0;
    uint32_t negated = 0;
    bool has(uint32_t a) const { return ((a & mask) == address) != (negated != 0); }
  };
  struct Ports {
    uint16_t low = 0, high = 0xffff;
    bool has(uint16_t port) const { return port >= low && port <= high; }
    bool any() const { return low == 0 && high == 0xffff; }
  };
  Verb verb = Verb::kSource;
  uint8_t any_protocol = 1, protocol = 0;
  uint8_t itself = 0;      // no translation
  uint8_t filter_any = 0;  // anybody may send to the ports that are given out (RFC 4787 section 5)
  uint8_t reserved[3] = {};
  Addresses source, destination;
  Ports source_ports, destination_ports;
  char via[16] = {};  // the output: its number, or its interface's name; empty: any
  uint32_t to_low = 0, to_high = 0;
  Ports to_ports{};       // any: the port stays, as far as it is free
  uint32_t per_host = 0;  // translated ports that one address may have at a time; 0: any number

  // Whether it is for a connection that begins with this packet, but for the output by which it leaves.
  bool matches(const NatTuple& t) const {
    return matches_addresses(t) && source_ports.has(t.source_port) && destination_ports.has(t.destination_port);
  }
  bool matches_addresses(const NatTuple& t) const {
    return (any_protocol || t.protocol == protocol) && source.has(t.source) && destination.has(t.destination);
  }
};
static_assert(std::is_trivially_copyable_v<NatRule> && sizeof(NatRule) == 72);

// Errors: the line is no rule.
Result<NatRule> parse_nat_rule(std::string_view line);
// The rule as it is kept and compared: parse_nat_rule reads it back.
std::string to_string(const NatRule& rule);

}  // namespace sluice
