// The output of iptables-save and ip6tables-save: the filter table, one of its chains and all that this chain reaches.
//
// Understood, each also after '!': -s -d -p -f (later fragments), --sport --dport, -m multiport, --tcp-flags --syn,
// --icmp-type --icmpv6-type, -m iprange, -m dscp, -m tos; -m conntrack --ctstate and -m state --state, where a state is
// asked for (conn_state.h); -m comment; -m tcp (and the like) by itself, which asks for the header. Targets: ACCEPT,
// DROP, REJECT (as DROP), RETURN, LOG (as `log` of what decides the packet later), MARK (as mark(N) of what accepts
// it), chains by -j and -g. Everything else is an error that names it: interfaces, what else conntrack knows, limits,
// sets.
//
// The chain is the one that is asked for, else FORWARD where it has rules or the policy DROP, else INPUT or OUTPUT
// where one has rules, else FORWARD; the log names other ones with rules. Its policy is the last rule. One file may
// hold an IPv4 and an IPv6 table, one behind the other; which is which is said by the comment of the program, or by the
// addresses. The comment also says whether nf_tables or the older x_tables walks the headers of IPv6.
//
// Where a rule of the table looks at a state, all that accept a packet of a new connection have it tracked
// (AclRule::keep). No packet is UNTRACKED.
//
// A packet that ends inside a header is dropped before the first rule that leads to one which needs this header.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/conn_state.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Whether the line, the first that is no comment, begins such a file: "*TABLE".
bool is_iptables_start(std::string_view line);

// Errors: every option, match and target that is not understood in the chains that are read, with its place; rules in
// tables other than filter; what flatten_chains finds. Limits: 65,536 chains, 2^22 lines of rules, those of
// flatten_chains.
Result<RuleSet> parse_iptables_rules(std::string_view text, const std::string& file_name, std::string_view chain = {},
                                     const StateReading& states = {});

}  // namespace sluice
