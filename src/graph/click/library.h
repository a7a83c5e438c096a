// `require(library NAME)`: the texts of libraries put into the text that requires them. Internal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "graph/click/syntax.h"

namespace sluice::click {

// A text with its libraries in place, each once, behind the statement that required it first; landmarks keep the names
// and lines of all of them.
struct LinkedText {
  std::string text;
  std::unordered_set<size_t> linked;  // where in `text` the arguments are that were followed, or found wrong
  struct Problem {
    size_t offset = 0, length = 0;  // of the argument, in `text`
    std::string message, expected, suggestion;
  };
  std::vector<Problem> problems;
};

// Asks options.library for every library, and for those that they require. Bounded by options.max_source_bytes in all.
LinkedText link_libraries(std::string_view text, const std::string& file, const ParseOptions& options);

// The NAME of an argument `library NAME` of `require`. False: it is another argument. An empty name: it is missing.
bool names_library(std::string_view argument, std::string* name);

}  // namespace sluice::click
