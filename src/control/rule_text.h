// host only
// The text that an access list was read from: a text much like it is read only where the two differ.
#pragma once

#include <string>
#include <string_view>

#include "control/rule_list.h"
#include "formats/rule_files.h"

namespace sluice {

class RuleText {
 public:
  // The rules of `text`, as parse_rules() gives them, with its errors. `list`: the rules of this text, with its lines.
  // Lines that both texts begin and end with are not parsed: the rules that they stood for are taken from the list.
  Result<RuleSet> read(std::string_view text, const std::string& name, const RuleFormatChoice& choice,
                       const RuleList& list) const;
  // From here on it is this text, which was read without an error. One whose lines mean something by those before them
  // (groups, includes), of another format, or too long to be kept, is none.
  void keep(std::string text, const RuleFormatChoice& choice);
  // The list is no more that of the text.
  void forget() { text_ = {}; }
  // That is kept; empty: none.
  const std::string& text() const { return text_; }

 private:
  std::string text_;  // empty: none
};

}  // namespace sluice
