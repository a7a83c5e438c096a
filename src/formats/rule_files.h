// Rule files of any format, told apart by content.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "formats/conn_state.h"
#include "tables/acl/rule_set.h"

namespace sluice {

enum class RuleFormat : uint8_t { kAuto, kClassBench, kNative, kVpp, kIptables, kNft };

// What a user asks for: a format, for iptables and nft the chain to read (empty: the reader's choice), and the state of
// the connections whose packets meet the list (conn_state.h).
struct RuleFormatChoice {
  RuleFormat format = RuleFormat::kAuto;
  std::string chain;
  std::string folder;  // what relative names of files and of what they include begin in; empty: this process's own
  std::vector<FileStamp>* included = nullptr;  // receives the files that others include, as they were opened
  std::optional<ConnState> state;
  bool* stateful = nullptr;  // as StateReading has it
};

inline constexpr const char* kRuleFormatHelp =
    "auto, classbench, native, vpp, iptables[:CHAIN] or nft[:[TABLE/]CHAIN]; with @STATE behind it, the rules for "
    "packets of new, established, related or invalid connections";

const char* to_string(RuleFormat format);
// One of the words of the help, such as "nft:fw/forward@established"; the last '@' begins the state. Errors: another
// word, with the nearest; a chain where there are none; an unknown state.
Result<RuleFormatChoice> parse_rule_format(std::string_view word);
// What is wrong with one on a command line; empty: nothing.
std::string rule_format_problem(const std::string& word);

// By the first line that is neither blank nor a comment: '@' begins a ClassBench rule, '*' an iptables table, "set
// acl-plugin" a VPP command; '{' at the very start is JSON, of nft. Else native.
RuleFormat detect_rule_format(std::string_view text);

// Rules of a text. Errors: those of the format's parser.
Result<RuleSet> parse_rules(std::string_view text, const std::string& file_name, const RuleFormatChoice& choice = {},
                            RuleFormat* found = nullptr);
// Rules of a file, plain or compressed (input_file.h), as the files that it includes; "-" is standard input. `found`,
// when given, receives the format, and `text` what was read. Errors: those of the input and of parse_rules. Limit: 1
// GiB of text.
Result<RuleSet> read_rules_file(InputFile& file, const RuleFormatChoice& choice = {}, RuleFormat* found = nullptr,
                                std::string* text = nullptr);
Result<RuleSet> read_rules_file(const std::string& path, const RuleFormatChoice& choice = {},
                                RuleFormat* found = nullptr);

}  // namespace sluice
