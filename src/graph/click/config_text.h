// The text inside a configuration string: quotes, comments, escapes, commas and variables. Source: click(5),
// "Configuration strings", with one deviation: a comma inside parentheses does not split. Host only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// What stopped a scan.
enum class ConfigFault { kNone, kUnterminatedString, kUnterminatedComment, kUnbalanced };

struct ConfigEnd {
  ConfigFault fault = ConfigFault::kNone;
  size_t offset = 0;  // of the unbalanced ')' or of the thing that does not end; text.size() if all was balanced
};

// Scans from `begin` to the first `)` that no `(` after `begin` opens, honouring quotes and comments. When the text
// ends first, the fault is kUnbalanced if a parenthesis is still open, else kNone with offset == text.size().
ConfigEnd find_config_end(std::string_view text, size_t begin);

// True when `text` stands between two parentheses without closing them or swallowing what follows.
bool is_closed_config(std::string_view text);

// A slice of a configuration string.
struct ConfigSlice {
  size_t offset = 0;
  size_t length = 0;
};

// Arguments between top-level commas, without the blanks and comments around them; an empty last one is dropped.
std::vector<ConfigSlice> split_arguments(std::string_view text);
// Words between blanks and comments; quotes keep a word together. Offsets count from the start of `text`.
std::vector<ConfigSlice> split_words(std::string_view text);

// The slice without the blanks and comments at its ends.
ConfigSlice trim_config(std::string_view text, size_t begin, size_t end);

// Removes quotes and applies escapes: "..." has C escapes and \<48 45> hex data, '...' is raw, pieces side by side
// join; a comment counts as one space. On a fault returns nullopt with its offset and reason.
struct UnquoteFault {
  size_t offset = 0;
  size_t length = 1;
  std::string message;
  std::string expected;
};
std::optional<std::string> unquote(std::string_view text, UnquoteFault* fault = nullptr);

// `text` as one double-quoted word that unquote() reads back; bare if it needs no quotes.
std::string quote(std::string_view text);
// `text` as it stands between double quotes.
std::string escape_in_quotes(std::string_view text);

// Comments replaced by one space, quotes untouched.
std::string strip_comments(std::string_view text);

// The next variable ($v, ${v}, ${v-default}, ${v[index]}, $(v)) that a substitution would replace (none in '...' or in
// comments).
struct VariableUse {
  size_t offset = 0;  // of the '$'
  size_t length = 0;
  std::string_view name;
  std::optional<std::string_view> index;  // between the brackets: which word of the value, from 0; may be a variable
  std::optional<std::string_view> fallback;
  bool in_quotes = false;   // inside "..."
  bool or_handler = false;  // $(v): where there is no such variable it is a script's, and stays
};
class VariableScanner {
 public:
  explicit VariableScanner(std::string_view text) : text_(text) {}
  bool next(VariableUse* use);

 private:
  std::string_view text_;
  size_t position_ = 0;
  bool in_quotes_ = false;
  bool no_close_ = false;  // no '}' is left: keeps a text full of ${a- linear
};

}  // namespace sluice
