// The native rule language: one rule a line, IPv4 and IPv6 in one list, the first match wins.
//
//   permit|deny|mark(N) [PROTO] from ADDR [port PORTS] to ADDR [port PORTS] [OPTION]...
//   src ADDR dst ADDR proto PROTO sport PORTS dport PORTS tcp-flags V/M action pass|drop|mark(N)   (keys in any order)
//   define NAME = ITEM, ITEM ...          a group of addresses or of ports; defined before its use
//   include "FILE"                        relative to the including file
//
//   PROTO    ip | tcp | udp | icmp | icmp6 | sctp | gre | esp | ... | 0..255 | 0xV/0xM
//   ADDR     any | PREFIX | ADDRESS | NAME, or several with ',' and no blanks between
//   PORTS    80 | 1000-2000 | eq 80 | range 1000 2000 | gt N | lt N | any | http | NAME, or several with ','
//   OPTION   flags SYN,ACK/SYN,ACK,RST | flags SYN | flags 0xV/0xM (16 bits, TCP byte << 8, four digits)
//            tcp-flags V/M (the TCP byte) | dscp 0..63|ef|afXY|csN | frag | no-frag | first-frag | later-frag
//            bits 0xV/0xM | icmp-type N | icmp-code N | icmp-match 0xV/0xM | loose-ports | log
//            state STATE,STATE ... | keep-state
//   STATE    new | established | related | invalid, of the packet's connection
//
// '#' starts a comment. A rule that names ports matches only packets that have ports, unless it says loose-ports: then
// absent ports count as 0, as ClassBench has it. A line whose groups have several members becomes that many rules in a
// row, all with the line's number. `any` on both sides matches both families; 0.0.0.0/0 and ::/0 are of one family.
//
// The rules are read for packets of one state (conn_state.h): a rule with `state` that does not name this state makes
// no rule. `keep-state` has the connection tracked that a packet opens which the rule permits or marks; it becomes
// AclRule::keep, whatever the state.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "formats/conn_state.h"
#include "tables/acl/rule_set.h"

namespace sluice {

inline constexpr size_t kMaxNativeRules = size_t{1} << 22;

// Gives the text of an included file by its path (already joined to the including file's folder).
using IncludeReader = std::function<Result<std::string>(const std::string& path)>;

// Errors: everything that is wrong in the file and in its includes (in a line, each part is read for itself), with its
// place, the include chain, what was expected and the nearest word. Limits: 16 includes deep, 1024 includes and 256 MiB
// in all, 65,536 rules a line or members a group, 2^20 members of all groups, 2^22 rules.
// `folder`: what a relative name of an included file begins in; empty: this process's own. `included` receives the
// included files as they were opened.
Result<RuleSet> parse_native_rules(std::string_view text, const std::string& file_name, const std::string& folder = {},
                                   std::vector<FileStamp>* included = nullptr, const StateReading& states = {});
// `max_rules`: fewer than that limit. The rules that groups make are counted before they are made: a text of a few
// lines that stands for millions is refused for what it takes to read it, with how many they would be.
Result<RuleSet> parse_native_rules(std::string_view text, const std::string& file_name, const IncludeReader& reader,
                                   size_t max_rules = kMaxNativeRules, const StateReading& states = {});

// Writes the set as native rules that parse back to the same matches and actions, one line a rule; those with
// `keep-state` are read with StateReading::keeps or a state.
std::string to_native(const RuleSet& set);
// One rule in the native language, without a newline.
std::string to_native(const AclRule& rule);

}  // namespace sluice
