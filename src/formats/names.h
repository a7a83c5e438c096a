// Words and numbers that the rule formats share: protocols, services, TCP flags, DSCP classes, ICMP types and codes.
// Host only.
#pragma once

#include <algorithm>
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
// The protocols that `nft` and `iptables-save` print by name: those of /etc/protocols of several systems, whatever this
// machine has there, and those that iptables knows by itself. Each name is followed by its number; "ip" is 0 here.
inline constexpr std::string_view kIpProtocols =
    "ip 0 hopopt 0 icmp 1 igmp 2 ggp 3 ipencap 4 ip-encap 4 ipv4 4 st 5 tcp 6 cbt 7 egp 8 igp 9 bbn-rcc 10 nvp 11 "
    "pup 12 argus 13 emcon 14 xnet 15 chaos 16 udp 17 mux 18 dcn 19 hmp 20 prm 21 xns-idp 22 trunk-1 23 trunk-2 24 "
    "leaf-1 25 leaf-2 26 rdp 27 irtp 28 iso-tp4 29 netblt 30 mfe-nsp 31 merit-inp 32 dccp 33 3pc 34 idpr 35 xtp 36 "
    "ddp 37 idpr-cmtp 38 tp++ 39 il 40 ipv6 41 sdrp 42 ipv6-route 43 ipv6-frag 44 idrp 45 rsvp 46 gre 47 dsr 48 "
    "bna 49 esp 50 ipsec-esp 50 ipv6-crypt 50 ah 51 ipsec-ah 51 ipv6-auth 51 i-nlsp 52 swipe 53 narp 54 mobile 55 "
    "tlsp 56 skip 57 ipv6-icmp 58 icmpv6 58 icmp6 58 ipv6-nonxt 59 ipv6-opts 60 cftp 62 sat-expak 64 kryptolan 65 "
    "rvd 66 ippc 67 sat-mon 69 visa 70 ipcv 71 cpnx 72 rspf 73 cphb 73 wsn 74 pvp 75 br-sat-mon 76 sun-nd 77 "
    "wb-mon 78 wb-expak 79 iso-ip 80 vmtp 81 secure-vmtp 82 vines 83 ttp 84 nsfnet-igp 85 dgp 86 tcf 87 eigrp 88 "
    "ospf 89 ospfigp 89 sprite-rpc 90 larp 91 mtp 92 ax.25 93 ipip 94 micp 95 scc-sp 96 etherip 97 encap 98 "
    "gmtp 100 ifmp 101 pnni 102 pim 103 aris 104 scps 105 qnx 106 a/n 107 ipcomp 108 snp 109 compaq-peer 110 "
    "ipx-in-ip 111 vrrp 112 carp 112 pgm 113 l2tp 115 ddx 116 iatp 117 stp 118 srp 119 uti 120 smp 121 sm 122 "
    "ptp 123 isis 124 fire 125 crtp 126 crudp 127 sscopmce 128 iplt 129 sps 130 pipe 131 sctp 132 fc 133 "
    "rsvp-e2e-ignore 134 mobility-header 135 ipv6-mh 135 mh 135 udplite 136 mpls-in-ip 137 manet 138 hip 139 "
    "shim6 140 wesp 141 rohc 142 ethernet 143 aggfrag 144 nsh 145";
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
inline constexpr Named kIcmpCodes[] = {{"net-unreachable", 0},  {"host-unreachable", 1}, {"prot-unreachable", 2},
                                       {"port-unreachable", 3}, {"frag-needed", 4},      {"net-prohibited", 9},
                                       {"host-prohibited", 10}, {"admin-prohibited", 13}};
inline constexpr Named kIcmp6Types[] = {
    {"destination-unreachable", 1},  {"packet-too-big", 2},         {"time-exceeded", 3},
    {"parameter-problem", 4},        {"echo-request", 128},         {"echo-reply", 129},
    {"mld-listener-query", 130},     {"mld-listener-report", 131},  {"mld-listener-done", 132},
    {"mld-listener-reduction", 132}, {"nd-router-solicit", 133},    {"nd-router-advert", 134},
    {"nd-neighbor-solicit", 135},    {"nd-neighbor-advert", 136},   {"nd-redirect", 137},
    {"router-renumbering", 138},     {"ind-neighbor-solicit", 141}, {"ind-neighbor-advert", 142},
    {"mld2-listener-report", 143}};
inline constexpr Named kIcmp6Codes[] = {{"no-route", 0},         {"admin-prohibited", 1}, {"addr-unreachable", 3},
                                        {"port-unreachable", 4}, {"policy-fail", 5},      {"reject-route", 6}};

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

// Of one of the words of kIpProtocols.
inline std::optional<uint32_t> ip_protocol(std::string_view word) {
  std::string_view rest = kIpProtocols;
  auto next = [&] {
    const size_t blank = std::min(rest.find(' '), rest.size());
    const std::string_view token = rest.substr(0, blank);
    rest.remove_prefix(std::min(blank + 1, rest.size()));
    return token;
  };
  while (!rest.empty()) {
    const std::string_view name = next(), value = next();
    if (same_word(name, word)) return number(value, 255);
  }
  return std::nullopt;
}

// 0..63, ef, va, le (lephb), default (df, be), af11..af43 (RFC 2597), cs0..cs7.
inline std::optional<uint32_t> dscp_value(std::string_view t) {
  if (const auto n = number(t, 63)) return n;
  if (same_word(t, "ef")) return 46;
  if (same_word(t, "va")) return 44;
  if (same_word(t, "le") || same_word(t, "lephb")) return 1;
  if (same_word(t, "default") || same_word(t, "df") || same_word(t, "be")) return 0;
  if (t.size() == 4 && same_word(t.substr(0, 2), "af") && t[2] >= '1' && t[2] <= '4' && t[3] >= '1' && t[3] <= '3')
    return static_cast<uint32_t>(8 * (t[2] - '0') + 2 * (t[3] - '0'));
  if (t.size() == 3 && same_word(t.substr(0, 2), "cs") && t[2] >= '0' && t[2] <= '7')
    return static_cast<uint32_t>(8 * (t[2] - '0'));
  return std::nullopt;
}

}  // namespace sluice::names
