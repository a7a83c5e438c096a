// host only
#include "control/adjacency_change.h"

#include <algorithm>
#include <utility>

#include "control/change_text.h"
#include "formats/adjacency_text.h"

namespace sluice {

Result<std::map<std::string, NextHopDefinition>> parse_adjacency_change(std::string_view text,
                                                                        const std::string& name) {
  // As with rules: the reader of files finds the lines where they stand.
  std::string lines(text);
  std::map<std::string, NextHopDefinition> made;
  Diagnostics findings(name, text);
  each_line(text, [&](uint32_t, size_t begin, size_t end) {
    Words words(text, begin, end);
    if (words.done()) return;
    const std::string_view verb = words.peek();
    const bool set = verb == "set";
    if (!set && verb != "delete") {
      wrong_verb(findings, words, verb, {"set", "delete"});
    } else {
      words.take();
      if (words.done()) findings.error_at(words.at(), 1, "the next hop is missing").expected = "NEXTHOP";
      if (!set && !words.done()) {
        made[std::string(words.take())];
        if (!words.done())
          findings.error_at(words.at(), words.peek().size(), "more than a next hop").expected = "delete NEXTHOP";
      }
    }
    std::fill(lines.begin() + static_cast<ptrdiff_t>(begin),
              lines.begin() + static_cast<ptrdiff_t>(set ? words.at() : end), ' ');
  });
  auto parsed = parse_next_hops(lines, name);
  if (!parsed) {
    if (parsed.error().diagnostics.empty()) return std::move(parsed).error();
    for (const Diagnostic& d : parsed.error().diagnostics) findings.add(d);
  }
  if (!findings.ok()) return findings.to_error();
  for (auto& [hop, definition] : parsed->names) made[hop] = std::move(definition);
  return made;
}

}  // namespace sluice
