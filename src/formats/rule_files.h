// Rule files of any format, told apart by content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "tables/acl/rule_set.h"

namespace sluice {

enum class RuleFormat : uint8_t { kAuto, kClassBench, kNative, kVpp, kIptables, kNft };

// What a user asks for: a format, and for iptables and nft the chain to read (empty: the reader's choice).
struct RuleFormatChoice {
  RuleFormat format = RuleFormat::kAuto;
  std::string chain;
  std::string folder;  // what relative names of files and of what they include begin in; empty: this process's own
  std::vector<FileStamp>* included = nullptr;  // receives the files that others include, as they were opened
};

// For help texts: "auto, classbench, native, vpp, iptables[:CHAIN] or nft[:CHAIN]".
inline constexpr const char* kRuleFormatHelp = "auto, classbench, native, vpp, iptables[:CHAIN] or nft[:[TABLE/]CHAIN]";

const char* to_string(RuleFormat format);
// One of the words of the help. Errors: another word, with the nearest; a chain where there are none.
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
