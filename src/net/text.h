// Addresses, prefixes and MACs as text. Host only, strict: no octal, no leading zeros past one digit, no partial forms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/types.h"

namespace sluice {

std::optional<uint32_t> parse_ipv4(std::string_view text);
std::optional<IpAddress> parse_ip(std::string_view text);  // either family
// "10.0.0.0/8", "2001:db8::/32", or a bare address (host prefix). Host bits are cleared; `had_host_bits` says if any
// was set.
std::optional<IpPrefix> parse_prefix(std::string_view text, bool* had_host_bits = nullptr);
// "02:00:00:00:00:01", also with '-' between the bytes.
std::optional<MacAddress> parse_mac(std::string_view text);

std::string to_string(const IpAddress& address);  // RFC 5952 for IPv6
std::string to_string(const IpPrefix& prefix);
std::string to_string(const MacAddress& mac);

}  // namespace sluice
