// The output of `nft -j list ruleset`: the base chains of ip, ip6 and inet tables that a packet meets, and all that
// these chains reach.
//
// Understood: matches with == != ! < > <= >= and in, on addresses, ports (tcp, udp, udplite, sctp, dccp, th), meta
// l4proto, nfproto and protocol, ip protocol, dscp, icmp and icmpv6 type and code, tcp flags, ip frag-off under the
// masks 0x1fff and 0x3fff; ct state, where a state is asked for (conn_state.h); right sides that are values, by number
// or by name, prefixes, ranges, sets (named ones too), concatenations and "*"; accept, drop, reject (as drop), return,
// jump, goto, vmap; log (as `log` of what decides the packet later), meta mark set (as mark(N) of what accepts it),
// counter, comments. Everything else is an error that names it.
//
// Where a rule that is read looks at a state, all that accept a packet of a new connection have it tracked
// (AclRule::keep). No packet is untracked.
//
// The chain that is asked for (CHAIN or TABLE/CHAIN) is read alone; one of an ip table and its namesake of an ip6 table
// are one list. Else the list is all chains of the type filter at prerouting, forward and postrouting, one behind the
// other: what one accepts goes on to the next. Where none at forward has rules or the policy drop, and one at input has
// rules, those at prerouting and input are read; else where one at output has, those at output and postrouting. Chains
// of other types and of interfaces are left out if nothing in them can drop, else they are an error. The log says what
// is not read.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/conn_state.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Errors: what is not JSON; every statement, expression and value that is not understood in the chains that are read,
// with its place; what flatten_chains finds. Limits: those of JsonText and flatten_chains, 65,536 members of a set, 32
// base chains.
Result<RuleSet> parse_nft_rules(std::string_view text, const std::string& file_name, std::string_view chain = {},
                                const StateReading& states = {});

}  // namespace sluice
