#include "net/text.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>

namespace sluice {
namespace {

std::optional<unsigned> parse_small(std::string_view text, unsigned limit) {
  if (text.empty() || text.size() > 3 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  unsigned value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  if (value > limit) return std::nullopt;
  return value;
}

// Lists of rules and routes are made of these: one pass. The end of the address that stands at `at`; nullptr: none
// does.
const char* leading_ipv4(const char* at, const char* end, uint32_t& address) {
  address = 0;
  for (int i = 0; i < 4; ++i) {
    if (i != 0 && (at == end || *at++ != '.')) return nullptr;
    const char* const first = at;
    unsigned octet = 0;
    for (; at != end && at - first < 3 && *at >= '0' && *at <= '9'; ++at)
      octet = octet * 10 + static_cast<unsigned>(*at - '0');
    // No digit, a zero in front of others, or too large.
    if (at == first || (at - first > 1 && *first == '0') || octet > 255) return nullptr;
    address = address << 8 | octet;
  }
  return at;
}

}  // namespace

std::optional<uint32_t> parse_ipv4(std::string_view text) {
  uint32_t address = 0;
  const char* const end = text.data() + text.size();
  const char* const behind = leading_ipv4(text.data(), end, address);
  if (behind == nullptr || behind != end) return std::nullopt;
  return address;
}

std::optional<IpAddress> parse_ip(std::string_view text) {
  if (text.find(':') == std::string_view::npos) {
    const auto v4 = parse_ipv4(text);
    if (!v4) return std::nullopt;
    return IpAddress{0, *v4, 4};
  }
  if (text.size() > 45 || text.find('\0') != std::string_view::npos) return std::nullopt;
  char buffer[48] = {};
  std::memcpy(buffer, text.data(), text.size());
  Be64 words[2];
  if (inet_pton(AF_INET6, buffer, words) != 1) return std::nullopt;
  return IpAddress{words[0].host(), words[1].host(), 6};
}

std::optional<IpPrefix> parse_prefix(std::string_view text, bool* had_host_bits) {
  uint32_t v4 = 0;
  const char* const behind = leading_ipv4(text.data(), text.data() + text.size(), v4);
  size_t slash = behind == nullptr ? std::string_view::npos : static_cast<size_t>(behind - text.data());
  std::optional<IpAddress> address;
  if (slash == text.size() || (slash < text.size() && text[slash] == '/')) {
    address = IpAddress{0, v4, 4};
    if (slash == text.size()) slash = std::string_view::npos;
  } else {
    slash = text.find('/');
    address = parse_ip(text.substr(0, slash));
  }
  if (!address) return std::nullopt;
  IpPrefix prefix{*address, static_cast<uint8_t>(address->family == 4 ? 32 : 128)};
  if (slash != std::string_view::npos) {
    const auto length = parse_small(text.substr(slash + 1), prefix.length);
    if (!length) return std::nullopt;
    prefix.length = static_cast<uint8_t>(*length);
  }
  prefix = prefix_around(*address, prefix.length);
  if (had_host_bits != nullptr) *had_host_bits = !(prefix.address == *address);
  return prefix;
}

std::optional<MacAddress> parse_mac(std::string_view text) {
  if (text.size() != 17) return std::nullopt;
  MacAddress mac{};
  auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  const char separator = text[2];
  if (separator != ':' && separator != '-') return std::nullopt;
  for (size_t i = 0; i < 6; ++i) {
    const int high = digit(text[3 * i]);
    const int low = digit(text[3 * i + 1]);
    if (high < 0 || low < 0 || (i < 5 && text[3 * i + 2] != separator)) return std::nullopt;
    mac.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return mac;
}

std::string to_string(const IpAddress& address) {
  if (address.family == 0) return "-";
  if (address.family == 4) {
    const auto v = static_cast<uint32_t>(address.lo);
    return fmt::format("{}.{}.{}.{}", v >> 24, v >> 16 & 255, v >> 8 & 255, v & 255);
  }
  Be64 words[2];
  words[0].set(address.hi);
  words[1].set(address.lo);
  char buffer[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, words, buffer, sizeof buffer);
  return buffer;
}

std::string to_string(const IpPrefix& prefix) {
  return fmt::format("{}/{}", to_string(prefix.address), prefix.length);
}

std::string to_string(const MacAddress& mac) {
  const uint8_t* b = mac.bytes;
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4], b[5]);
}

}  // namespace sluice
