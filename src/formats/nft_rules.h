// The output of `nft -j list ruleset`: one base chain of an ip, ip6 or inet table and all that this chain reaches.
//
// Understood: matches with == != < > <= >= and in, on addresses, ports (tcp, udp, udplite, sctp, dccp, th), meta
// l4proto, nfproto and protocol, ip protocol, dscp, icmp and icmpv6 type and code, tcp flags, ip frag-off under the
// masks 0x1fff and 0x3fff; right sides that are values, prefixes, ranges, sets (named ones too) and concatenations;
// accept, drop, reject (as drop), return, jump, goto, vmap; log (as `log` of what decides the packet later), meta mark
// set (as mark(N) of what accepts it), counter, comments. Everything else is an error that names it.
//
// The chain is the one that is asked for (CHAIN or TABLE/CHAIN), else the only base chain with rules, else the one of
// the forward hook; its policy is the last rule. A chain of an ip table and its namesake of an ip6 table are one list.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Errors: what is not JSON; every statement, expression and value that is not understood in the chains that are read,
// with its place; what flatten_chains finds. Limits: those of JsonText and flatten_chains, 65,536 members of a set.
Result<RuleSet> parse_nft_rules(std::string_view text, const std::string& file_name, std::string_view chain = {});

}  // namespace sluice
