// host only
// Internal to the control layer: what the texts of changes have in common, and how images that are patched are had.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/engine/publisher.h"
#include "tables/image.h"

namespace sluice {

// The words of one line of a change, with their places in the whole text.
class Words {
 public:
  Words(std::string_view text, size_t begin, size_t end) : text_(text), at_(begin), end_(end) { skip(); }
  bool done() const { return at_ == end_ || text_[at_] == '#'; }
  size_t at() const { return at_; }
  std::string_view peek() const {
    size_t to = at_;
    while (to < end_ && !blank(text_[to]) && text_[to] != '#') ++to;
    return text_.substr(at_, to - at_);
  }
  std::string_view take() {
    const std::string_view word = peek();
    at_ += word.size();
    skip();
    return word;
  }

 private:
  static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  void skip() {
    while (at_ < end_ && blank(text_[at_])) ++at_;
  }
  std::string_view text_;
  size_t at_, end_;
};

inline std::optional<uint32_t> number(std::string_view word) {
  uint32_t n = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
  if (error != std::errc() || end != word.data() + word.size() || n == 0) return std::nullopt;
  return n;
}

// Calls f(line number, begin, end) for each line.
template <typename F>
void each_line(std::string_view text, F&& f) {
  uint32_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    f(++line, at, end);
    at = end + 1;
  }
}

inline void wrong_verb(Diagnostics& findings, const Words& words, std::string_view word,
                       const std::vector<std::string>& verbs) {
  Diagnostic& d = findings.error_at(words.at(), word.size(), fmt::format("'{}' is not a change", word));
  d.expected = fmt::format("{}", fmt::join(verbs, ", "));
  const std::string near = closest_match(word, verbs);
  if (!near.empty()) d.suggestion = fmt::format("did you mean '{}'?", near);
}

inline std::string line_of(std::string_view text, size_t begin, size_t end) {
  if (end > begin && text[end - 1] == '\r') --end;
  return std::string(text.substr(begin, end - begin));
}

inline Result<std::shared_ptr<const Image>> share(Result<Image> image) {
  if (!image) return std::move(image).error();
  return std::make_shared<const Image>(std::move(*image));
}

// The image of what was applied, once old generations have let a replica go.
template <typename Patched>
Result<std::shared_ptr<const Image>> publish_patched(Patched& patched, Publisher& publisher) {
  auto image = patched.publish();
  if (image) return image;
  publisher.drain_retired();
  return patched.publish();
}

}  // namespace sluice
