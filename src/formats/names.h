// Words and numbers that the rule formats share: protocols, services, TCP flags, DSCP classes, ICMP types. Host only.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::names {

struct Named {
  std::string_view name;
  uint32_t value;
};
// Of several names for one number the first is written.
inline constexpr Named kProtocols[] = {
    {"ip", 256}, {"tcp", 6}, {"udp", 17},   {"icmp", 1},  {"icmp6", 58}, {"icmpv6", 58},   {"igmp", 2},  {"gre", 47},
    {"esp", 50}, {"ah", 51}, {"sctp", 132}, {"ospf", 89}, {"dccp", 33},  {"udplite", 136}, {"pim", 103}, {"vrrp", 112}};
inline constexpr Named kServices[] = {{"http", 80},  {"https", 443}, {"ssh", 22},     {"dns", 53},  {"domain", 53},
                                      {"ntp", 123},  {"smtp", 25},   {"telnet", 23},  {"ftp", 21},  {"ftp-data", 20},
                                      {"bgp", 179},  {"snmp", 161},  {"syslog", 514}, {"tftp", 69}, {"ldap", 389},
                                      {"pop3", 110}, {"imap", 143},  {"rdp", 3389}};
inline constexpr Named kFlags[] = {{"FIN", 1},  {"SYN", 2},  {"RST", 4},  {"PSH", 8},
                                   {"ACK", 16}, {"URG", 32}, {"ECE", 64}, {"CWR", 128}};
// RFC 792 and its followers; RFC 4443 and RFC 4861.
inline constexpr Named kIcmpTypes[] = {
    {"echo-reply", 0},         {"destination-unreachable", 3}, {"source-quench", 4},        {"redirect", 5},
    {"echo-request", 8},       {"router-advertisement", 9},    {"router-solicitation", 10}, {"time-exceeded", 11},
    {"parameter-problem", 12}, {"timestamp-request", 13},      {"timestamp-reply", 14},     {"info-request", 15},
    {"info-reply", 16},        {"address-mask-request", 17},   {"address-mask-reply", 18}};
inline constexpr Named kIcmp6Types[] = {
    {"destination-unreachable", 1}, {"packet-too-big", 2},        {"time-exceeded", 3},
    {"parameter-problem", 4},       {"echo-request", 128},        {"echo-reply", 129},
    {"mld-listener-query", 130},    {"mld-listener-report", 131}, {"mld-listener-done", 132},
    {"nd-router-solicit", 133},     {"nd-router-advert", 134},    {"nd-neighbor-solicit", 135},
    {"nd-neighbor-advert", 136},    {"nd-redirect", 137},         {"router-renumbering", 138},
    {"mld2-listener-report", 143}};

// Equal but for the case of letters.
inline bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

template <size_t N>
std::optional<uint32_t> find_named(const Named (&table)[N], std::string_view word) {
  for (const Named& n : table) {
    if (same_word(n.name, word)) return n.value;
  }
  return std::nullopt;
}

template <size_t N>
std::string nearest(const Named (&table)[N], std::string_view word) {
  std::vector<std::string> names;
  for (const Named& n : table) names.emplace_back(n.name);
  return closest_match(word, names);
}

// A decimal number or one with 0x, no larger than `limit`.
inline std::optional<uint32_t> number(std::string_view word, uint64_t limit) {
  uint64_t value = 0;
  const bool hex = word.size() > 2 && word[0] == '0' && (word[1] | 0x20) == 'x';
  if (hex) word.remove_prefix(2);
  if (word.empty() || word.size() > 10) return std::nullopt;
  for (char c : word) {
    unsigned d = c >= '0' && c <= '9' ? static_cast<unsigned>(c - '0') : 99;
    if (hex && (c | 0x20) >= 'a' && (c | 0x20) <= 'f') d = static_cast<unsigned>((c | 0x20) - 'a' + 10);
    if (d > (hex ? 15u : 9u)) return std::nullopt;
    value = value * (hex ? 16 : 10) + d;
  }
  if (value > limit) return std::nullopt;
  return static_cast<uint32_t>(value);
}

// 0..63, ef, va, le, default, af11..af43 (RFC 2597), cs0..cs7.
inline std::optional<uint32_t> dscp_value(std::string_view t) {
  if (const auto n = number(t, 63)) return n;
  if (same_word(t, "ef")) return 46;
  if (same_word(t, "va")) return 44;
  if (same_word(t, "le")) return 1;
  if (same_word(t, "default")) return 0;
  if (t.size() == 4 && same_word(t.substr(0, 2), "af") && t[2] >= '1' && t[2] <= '4' && t[3] >= '1' && t[3] <= '3')
    return static_cast<uint32_t>(8 * (t[2] - '0') + 2 * (t[3] - '0'));
  if (t.size() == 3 && same_word(t.substr(0, 2), "cs") && t[2] >= '0' && t[2] <= '7')
    return static_cast<uint32_t>(8 * (t[2] - '0'));
  return std::nullopt;
}

}  // namespace sluice::names
