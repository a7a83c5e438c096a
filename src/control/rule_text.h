// host only
// A text that rules were read from, and the rules: a text much like it is read only where the two differ.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "formats/rule_files.h"

namespace sluice {

class RuleText {
 public:
  // The rules of `text`, as parse_rules() gives them, with its errors. Lines that the text that is kept begins and ends
  // with, too, are not parsed: what they stood for is among the rules that are kept.
  Result<RuleSet> read(std::string_view text, const std::string& name, const RuleFormatChoice& choice) const;

  static constexpr size_t kMostRules = 1 << 19;
  // Keeps this text and its rules in place of those before. A text whose lines mean something by those before them
  // (groups, includes), of another format, too long or of more than kMostRules rules is not kept, and nothing is.
  void keep(std::string text, RuleSet rules, const RuleFormatChoice& choice);
  void forget() { *this = RuleText(); }
  // That is kept; empty: none.
  const std::string& text() const { return text_; }

 private:
  std::string text_;                // empty: none
  RuleSet rules_;                   // of the text
  std::optional<ConnState> state_;  // that they were read for
};

}  // namespace sluice
