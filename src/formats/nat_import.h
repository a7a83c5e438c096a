// host only
// NAT rules of other programs as lines of the native language: those of `nft -j list ruleset` and of iptables-save.
//
// Of nft, the base chains of the type nat at prerouting and postrouting of ip and inet tables, by priority. Understood:
// ip saddr and daddr, tcp, udp, sctp and th sport and dport, meta l4proto, ip protocol, each with values, prefixes,
// ranges and sets (named ones too); meta oif and oifname; meta nfproto and protocol; ct state new, which holds for each
// rule; != of one prefix; dnat, snat, masquerade, accept; counter, comment, log.
//
// Of iptables-save, the IPv4 table nat. Understood: -s -d (also after '!'), -p, --sport --dport, -m multiport, -o, -m
// comment, -m conntrack --ctstate NEW; DNAT, SNAT, MASQUERADE, ACCEPT, LOG. Other tables are not read.
//
// All else is an error that names it. Left out, with a warning: chains at input and output, log, `random`,
// `fully-random` and `persistent`, dormant tables; that a rule of an inet table translates IPv6 too.
//
// Several chains of nft at one hook are one list, as each is asked until one has translated. What one accepts would go
// on to the next, which a list cannot say; of two with one priority the kernel first asks the one that was made last,
// which the ruleset does not tell: both are errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// Whether the text is a ruleset of nft in JSON or of iptables-save, and not lines of the native language.
bool is_foreign_nat(std::string_view text);

// One rule a line, in an order in which the first match decides, each with `# FILE:LINE` behind it. A rule of sets is
// several lines. `warnings`, when given, receives what is left out, with its place; else the log says it. Errors: every
// rule in a chain of NAT that cannot be said, with its place; IPv6 that is translated; a text without a chain of NAT.
// Limits: those of JsonText, 65,536 members of a set, 262,144 lines.
Result<std::string> import_nat(std::string_view text, const std::string& file_name,
                               std::vector<std::string>* warnings = nullptr);

}  // namespace sluice
