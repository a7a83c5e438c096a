#include "formats/rule_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "formats/classbench.h"
#include "formats/file_kind.h"
#include "formats/iptables_rules.h"
#include "formats/native_rules.h"
#include "formats/nft_rules.h"
#include "formats/vpp_rules.h"

namespace sluice {
namespace {

constexpr RuleFormat kFormats[] = {RuleFormat::kAuto, RuleFormat::kClassBench, RuleFormat::kNative,
                                   RuleFormat::kVpp,  RuleFormat::kIptables,   RuleFormat::kNft};

}  // namespace

const char* to_string(RuleFormat format) {
  switch (format) {
    case RuleFormat::kAuto:
      return "auto";
    case RuleFormat::kClassBench:
      return "classbench";
    case RuleFormat::kNative:
      return "native";
    case RuleFormat::kVpp:
      return "vpp";
    case RuleFormat::kIptables:
      return "iptables";
    case RuleFormat::kNft:
      return "nft";
  }
  return "";
}

Result<RuleFormatChoice> parse_rule_format(std::string_view word) {
  std::optional<ConnState> state;
  if (const size_t at = word.rfind('@'); at != std::string_view::npos) {
    const std::string_view asked = word.substr(at + 1);
    const auto known = names::find_named(kConnStates, asked);
    if (!known) {
      const std::string near = names::nearest(kConnStates, asked);
      return Error(
          fmt::format("'{}' is not a state of a connection; there are: new, established, related, invalid",
                      asked.substr(0, 60)),
          near.empty() ? std::string("FORMAT@STATE, such as auto@new") : fmt::format("did you mean '{}'?", near));
    }
    state = static_cast<ConnState>(*known);
    word = word.substr(0, at);
  }
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  std::vector<std::string> all;
  for (RuleFormat format : kFormats) {
    all.emplace_back(to_string(format));
    if (name != all.back()) continue;
    RuleFormatChoice choice{.format = format};
    choice.state = state;
    if (colon == std::string_view::npos) return choice;
    choice.chain = word.substr(colon + 1);
    if (format != RuleFormat::kIptables && format != RuleFormat::kNft)
      return Error(fmt::format("the rule format '{}' has no chains", name), "write it without ':'");
    if (choice.chain.empty()) return Error(fmt::format("'{}' names no chain", word), "write it without ':'");
    return choice;
  }
  const std::string near = closest_match(name, all);
  return Error(fmt::format("unknown rule format '{}'; there are: {}, each with @STATE for packets of new, established, "
                           "related or invalid connections",
                           word, fmt::join(all, ", ")),
               near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
}

std::string rule_format_problem(const std::string& word) {
  const auto choice = parse_rule_format(word);
  if (choice.ok()) return {};
  const Error& e = choice.error();
  return e.hint.empty() ? e.message : fmt::format("{} ({})", e.message, e.hint);
}

RuleFormat detect_rule_format(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '{') return RuleFormat::kNft;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t first = text.find_first_not_of(" \t\r", at);
    if (first < end && text[first] != '#') {
      const std::string_view line = text.substr(first, end - first);
      if (line[0] == '@') return RuleFormat::kClassBench;
      if (is_iptables_start(line)) return RuleFormat::kIptables;
      return is_vpp_command(line) ? RuleFormat::kVpp : RuleFormat::kNative;
    }
    at = end + 1;
  }
  return RuleFormat::kNative;
}

namespace {

Result<RuleSet> parse_as(RuleFormat format, std::string_view text, const std::string& file_name,
                         const RuleFormatChoice& choice) {
  const StateReading states{.state = choice.state, .stateful = choice.stateful};
  switch (format) {
    case RuleFormat::kClassBench:
      return parse_classbench(text, file_name);
    case RuleFormat::kVpp:
      return parse_vpp_rules(text, file_name);
    case RuleFormat::kIptables:
      return parse_iptables_rules(text, file_name, choice.chain, states);
    case RuleFormat::kNft:
      return parse_nft_rules(text, file_name, choice.chain, states);
    default:
      return parse_native_rules(text, file_name, choice.folder, choice.included, states);
  }
}

}  // namespace

Result<RuleSet> parse_rules(std::string_view text, const std::string& file_name, const RuleFormatChoice& choice,
                            RuleFormat* found) {
  const RuleFormat format = choice.format == RuleFormat::kAuto ? detect_rule_format(text) : choice.format;
  if (found != nullptr) *found = format;
  auto rules = parse_as(format, text, file_name, choice);
  if (rules.ok() || rules.error().system) return rules;
  if (auto other = other_kind(text, file_name, KindWanted::kRules)) return std::move(*other);
  return rules;
}

Result<RuleSet> read_rules_file(InputFile& file, const RuleFormatChoice& choice, RuleFormat* found, std::string* text) {
  auto read = file.table();
  if (!read) return std::move(read).error();
  auto rules = parse_rules(*read, file.name(), choice, found);
  if (text != nullptr) *text = std::move(*read);
  return rules;
}

Result<RuleSet> read_rules_file(const std::string& path, const RuleFormatChoice& choice, RuleFormat* found) {
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  return read_rules_file(*file, choice, found);
}

}  // namespace sluice
