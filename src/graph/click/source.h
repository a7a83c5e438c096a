// Where a piece of configuration stands in the text that its author wrote. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// One immutable text with its landmarks (`# 12 "file"` and `#line 12 "file"` rename what follows them). Shared by every
// position that points into it, so that an error found long after parsing still shows the line and a caret.
class SourceText {
 public:
  SourceText(std::string file, std::string_view text);

  const std::string& file() const { return file_; }
  std::string_view text() const { return text_; }

  struct Place {
    std::string_view file;  // lives as long as the SourceText
    uint32_t line;          // from 1
    uint32_t column;        // from 1, in bytes
  };
  // The place of byte `offset` (clamped to the end of the text), landmarks applied.
  Place place(size_t offset) const;
  // An error finding over `length` bytes from `offset`; the caller fills in `expected` and `suggestion`.
  Diagnostic diagnostic(size_t offset, size_t length, std::string message) const;

 private:
  struct Landmark {
    size_t physical_line;  // the first line (from 0) that it renames
    uint32_t line;
    std::string file;
  };
  std::string file_;
  std::string text_;
  std::vector<size_t> line_starts_;
  std::vector<Landmark> landmarks_;
};

// True when the line that starts at `offset` is a landmark; `line` and `file` (empty: unchanged) say what it sets.
bool parse_landmark(std::string_view line_text, uint32_t* line, std::string* file);

// A byte of a SourceText. A default one points nowhere (a graph that a program built).
struct SourcePos {
  std::shared_ptr<const SourceText> source;
  size_t offset = 0;

  std::string file() const { return source ? std::string(source->place(offset).file) : std::string(); }
  uint32_t line() const { return source ? source->place(offset).line : 0; }
  uint32_t column() const { return source ? source->place(offset).column : 0; }
};

// Maps bytes of a substituted configuration string back to the source: a run of literal text maps byte for byte, the
// value of a variable maps to the whole `$name` that it replaced.
class ConfigurationOrigin {
 public:
  ConfigurationOrigin() = default;
  // The configuration stands in the source as it is, from `offset`.
  ConfigurationOrigin(std::shared_ptr<const SourceText> source, size_t offset);
  // For a configuration without a file (tests, graphs built by a program): errors show the configuration itself.
  static ConfigurationOrigin of_text(std::string file, std::string_view configuration);

  void append_literal(size_t configuration_offset, size_t source_offset);
  void append_substitution(size_t configuration_offset, size_t source_offset, size_t source_length);
  // Drops the first `bytes` bytes of the configuration (leading blanks).
  void drop_front(size_t bytes);

  SourcePos position(size_t configuration_offset) const;
  // An error finding over `length` bytes of the configuration. Without a source it shows `configuration`.
  Diagnostic diagnostic(std::string_view configuration, size_t offset, size_t length, std::string message) const;

 private:
  struct Piece {
    size_t begin;         // in the configuration
    size_t source;        // in the source
    size_t substitution;  // bytes of the `$name`, or 0: literal
  };
  const Piece* piece_at(size_t configuration_offset) const;
  std::shared_ptr<const SourceText> source_;
  std::vector<Piece> pieces_;
};

}  // namespace sluice
