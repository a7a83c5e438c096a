#include "base/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/printable.h"

namespace sluice {

std::string to_string(const Diagnostic& d) {
  std::string out = d.file.empty() ? std::string("<input>") : printable(d.file);
  if (d.line != 0) out += fmt::format(":{}", d.line);
  if (d.line != 0 && d.column != 0) out += fmt::format(":{}", d.column);
  out +=
      fmt::format(": {}: {}\n", d.severity == Diagnostic::Severity::kError ? "error" : "warning", printable(d.message));
  if (!d.source_line.empty() && d.column != 0) {
    // A long line is shown as a window around the caret, so that the caret stays on a screen.
    constexpr size_t kWindow = 110;
    size_t caret = d.column - 1;
    size_t begin = caret > kWindow * 3 / 4 ? caret - kWindow / 2 : 0;
    begin = std::min(begin, d.source_line.size());
    const std::string shown = printable_columns(std::string_view(d.source_line).substr(begin, kWindow));
    const bool cut_left = begin > 0;
    const bool cut_right = begin + shown.size() < d.source_line.size();
    out += fmt::format("  {}{}{}\n", cut_left ? "..." : "", shown, cut_right ? "..." : "");
    caret = std::min(caret - begin, shown.size()) + (cut_left ? 3 : 0);
    const size_t room = shown.size() + (cut_left ? 3 : 0);
    const size_t tail = d.length > 1 && room > caret + 1 ? std::min<size_t>(d.length - 1, room - caret - 1) : 0;
    out += fmt::format("  {}^{}\n", std::string(caret, ' '), std::string(tail, '~'));
  }
  if (!d.expected.empty()) out += fmt::format("  expected: {}\n", printable(d.expected));
  if (!d.suggestion.empty()) out += fmt::format("  help: {}\n", printable(d.suggestion));
  return out;
}

Error::Error() = default;
Error::Error(std::string what, std::string next_step) : message(std::move(what)), hint(std::move(next_step)) {}
Error::Error(const Error& other) = default;
Error::Error(Error&& other) noexcept = default;
Error& Error::operator=(const Error& other) = default;
Error& Error::operator=(Error&& other) noexcept = default;
Error::~Error() = default;

std::string to_string(const Error& error) {
  std::string out;
  for (const Diagnostic& d : error.diagnostics) out += to_string(d);
  if (!error.message.empty()) out += fmt::format("error: {}\n", printable(error.message));
  if (!error.hint.empty()) out += fmt::format("  help: {}\n", printable(error.hint));
  return out;
}

Error system_error(const std::string& what, int code) {
  Error error(fmt::format("{}: {}", what, std::strerror(code)));
  error.system = true;
  if (code == EMFILE) error.hint = "raise the limit of open files: ulimit -n";
  if (code == ENOMEM) error.hint = "raise the memory limit (ulimit -v, the container's), or use smaller input";
  return error;
}

Diagnostic& Diagnostics::error_at(size_t offset, size_t length, std::string message) {
  ++errors_;
  if (all_.size() >= kLimit) return overflow_ = {};
  offset = std::min(offset, text_.size());
  Diagnostic d;
  d.file = file_;
  const size_t start = text_.substr(0, offset).rfind('\n') + 1;  // npos + 1 == 0
  const size_t end = std::min(text_.find('\n', offset), text_.size());
  d.line = 1 + static_cast<uint32_t>(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(start), '\n'));
  d.column = 1 + static_cast<uint32_t>(offset - start);
  d.length = static_cast<uint32_t>(std::max<size_t>(1, length));
  // Lines without end must not make a diagnostic without end.
  d.source_line = std::string(text_.substr(start, std::min<size_t>(end - start, 4096)));
  if (!d.source_line.empty() && d.source_line.back() == '\r') d.source_line.pop_back();
  d.message = std::move(message);
  return all_.emplace_back(std::move(d));
}

Diagnostic& Diagnostics::warning_at(size_t offset, size_t length, std::string message) {
  Diagnostic& d = error_at(offset, length, std::move(message));
  d.severity = Diagnostic::Severity::kWarning;
  --errors_;
  return d;
}

void Diagnostics::add(Diagnostic diagnostic) {
  if (diagnostic.severity == Diagnostic::Severity::kError) ++errors_;
  if (diagnostic.file.empty()) diagnostic.file = file_;
  if (all_.size() < kLimit) all_.push_back(std::move(diagnostic));
}

Error Diagnostics::to_error() const {
  Error error(errors_ == 1 ? fmt::format("1 error in {}", file_) : fmt::format("{} errors in {}", errors_, file_));
  error.diagnostics = all_;
  if (errors_ > kLimit) error.hint = fmt::format("only the first {} are shown", kLimit);
  return error;
}

std::string closest_match(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > 64) return {};
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  size_t best = 2 + word.size() / 4;
  std::string found;
  std::vector<size_t> row;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 64) continue;
    row.resize(candidate.size() + 1);
    for (size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t above = row[j];
        const size_t same = lower(word[i - 1]) == lower(candidate[j - 1]) ? 0 : 1;
        row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + same});
        diagonal = above;
      }
    }
    if (row.back() < best) {
      best = row.back();
      found = candidate;
    }
  }
  return found;
}

}  // namespace sluice
