// host only
// Text from outside (files, other processes, the command line) as a terminal may be shown it.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// `text` with every character that a terminal acts on, or that changes how others are read, written as \x1b and the
// like: control characters but newline and tab, U+0080 to U+009F, the marks that turn the direction of text, and bytes
// that are not UTF-8.
std::string printable(std::string_view text);
// The same with '?' for every byte that is not shown, and for newlines and tabs a blank: as long as `text`.
std::string printable_columns(std::string_view text);

}  // namespace sluice
