#include "graph/click/source.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr size_t kShownLine = 4096;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

}  // namespace

bool parse_landmark(std::string_view text, uint32_t* line, std::string* file) {
  size_t i = 0;
  auto skip_blanks = [&] {
    while (i < text.size() && is_blank(text[i])) ++i;
  };
  if (text.empty() || text[i++] != '#') return false;
  skip_blanks();
  if (text.substr(i, 4) == "line") {
    i += 4;
    skip_blanks();
  }
  const size_t digits = i;
  uint64_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
    if (value > 0x7fffffff) return false;
  }
  if (i == digits) return false;
  *line = std::max<uint32_t>(
      1, static_cast<uint32_t>(value));  // preprocessors write 0 for what they built in; lines count from 1
  file->clear();
  skip_blanks();
  if (i < text.size() && text[i] == '"') {
    const size_t close = text.find('"', i + 1);
    if (close == std::string_view::npos) return false;
    *file = std::string(text.substr(i + 1, close - i - 1));
  }
  return true;
}

SourceText::SourceText(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
  for (size_t i = 0; i < line_starts_.size(); ++i) {
    if (line_starts_[i] >= text_.size() || text_[line_starts_[i]] != '#') continue;
    const size_t end = std::min(text_.find('\n', line_starts_[i]), text_.size());
    Landmark mark;
    if (!parse_landmark(std::string_view(text_).substr(line_starts_[i], end - line_starts_[i]), &mark.line,
                        &mark.file)) {
      continue;
    }
    mark.physical_line = i + 1;
    if (mark.file.empty()) mark.file = landmarks_.empty() ? file_ : landmarks_.back().file;
    landmarks_.push_back(std::move(mark));
  }
}

SourceText::Place SourceText::place(size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const auto physical = static_cast<size_t>(after - line_starts_.begin()) - 1;
  Place place{file_, static_cast<uint32_t>(physical + 1), static_cast<uint32_t>(offset - line_starts_[physical] + 1)};
  const auto mark = std::upper_bound(landmarks_.begin(), landmarks_.end(), physical,
                                     [](size_t line, const Landmark& m) { return line < m.physical_line; });
  if (mark != landmarks_.begin()) {
    const Landmark& m = *std::prev(mark);
    place.file = m.file;
    place.line = m.line + static_cast<uint32_t>(physical - m.physical_line);
  }
  return place;
}

Diagnostic SourceText::diagnostic(size_t offset, size_t length, std::string message) const {
  offset = std::min(offset, text_.size());
  const Place at = place(offset);
  Diagnostic d;
  d.file = std::string(at.file);
  d.line = at.line;
  d.column = at.column;
  const size_t start = offset - (at.column - 1);
  const size_t end = std::min(text_.find('\n', offset), text_.size());
  // The underline stays on its line.
  d.length = static_cast<uint32_t>(std::max<size_t>(1, std::min(length, end - offset)));
  d.source_line = text_.substr(start, std::min(end - start, kShownLine));
  if (!d.source_line.empty() && d.source_line.back() == '\r') d.source_line.pop_back();
  d.message = std::move(message);
  return d;
}

ConfigurationOrigin::ConfigurationOrigin(std::shared_ptr<const SourceText> source, size_t offset)
    : source_(std::move(source)) {
  pieces_.push_back({0, offset, 0});
}

ConfigurationOrigin ConfigurationOrigin::of_text(std::string file, std::string_view configuration) {
  return ConfigurationOrigin(std::make_shared<const SourceText>(std::move(file), configuration), 0);
}

void ConfigurationOrigin::append_literal(size_t configuration_offset, size_t source_offset) {
  pieces_.push_back({configuration_offset, source_offset, 0});
}

void ConfigurationOrigin::append_substitution(size_t configuration_offset, size_t source_offset, size_t source_length) {
  pieces_.push_back({configuration_offset, source_offset, std::max<size_t>(1, source_length)});
}

void ConfigurationOrigin::drop_front(size_t bytes) {
  std::vector<Piece> kept;
  for (const Piece& p : pieces_) {
    Piece moved = p;
    if (p.begin >= bytes) {
      moved.begin = p.begin - bytes;
    } else {
      moved.begin = 0;
      if (p.substitution == 0) moved.source += bytes - p.begin;
      kept.clear();  // only the last piece that starts before the cut can reach past it
    }
    kept.push_back(moved);
  }
  pieces_ = std::move(kept);
}

const ConfigurationOrigin::Piece* ConfigurationOrigin::piece_at(size_t offset) const {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                      [](size_t value, const Piece& p) { return value < p.begin; });
  return after == pieces_.begin() ? nullptr : &*std::prev(after);
}

SourcePos ConfigurationOrigin::position(size_t offset) const {
  const Piece* p = piece_at(offset);
  if (p == nullptr) return {};
  return {source_, p->substitution != 0 ? p->source : p->source + (offset - p->begin)};
}

Diagnostic ConfigurationOrigin::diagnostic(std::string_view configuration, size_t offset, size_t length,
                                           std::string message) const {
  const Piece* p = piece_at(offset);
  if (p == nullptr || !source_) {
    return SourceText("<configuration>", configuration).diagnostic(offset, length, std::move(message));
  }
  return source_->diagnostic(p->substitution != 0 ? p->source : p->source + (offset - p->begin),
                             p->substitution != 0 ? p->substitution : length, std::move(message));
}

}  // namespace sluice
