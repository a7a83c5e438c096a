// ClassBench traces: one packet a line as decimal numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/flow_key.h"

namespace sluice {

// Columns `sip dip sport dport proto [word] [rule]`: with 7 the sixth is `word`, whose upper 16 bits are the header's
// flags; with 6 the sixth is the rule that drew the packet; with 5 there is neither. `rule` is ignored. Every key is
// IPv4 and has ports (FlowKey::kHasPorts). Blank lines and '#' comments are skipped. Errors: every malformed line, with
// its place and what was expected.
Result<std::vector<FlowKey>> parse_trace(std::string_view text, std::string file_name);

// The keys as a 7-column trace (rule column 0). Only IPv4 keys can be written.
Result<std::string> to_trace(const std::vector<FlowKey>& keys);

}  // namespace sluice
