// VPP's access lists, as its command line takes them:
//
//   set acl-plugin acl permit|deny [src PREFIX] [dst PREFIX] [proto N] [sport X[-Y]] [dport X[-Y]]
//                      [tcpflags V mask M | tcpflags V M] [tag TAG] , permit|deny ...
//
// One rule for each part between commas; several lines follow one another, as lists do on an interface. What a rule
// matches is what VPP matches with its default, hash lookups: a rule without addresses is for IPv4; a rule with a
// protocol matches no later fragment; without one its ports and flags would not be looked at, and are an error here.
// With proto 1 (IPv4) and 58 (IPv6) sport is a range of types and dport of codes.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// Whether the line begins as one of the format's commands.
bool is_vpp_command(std::string_view line);

// Errors: every word that is not understood, other commands (permit+reflect and its sessions among them), with place
// and suggestion. Limit: 2^22 rules.
Result<RuleSet> parse_vpp_rules(std::string_view text, const std::string& file_name);

}  // namespace sluice
