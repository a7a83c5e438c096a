// Tokens of the Click language. Internal. Never recursive; every call moves forward or is at the end.
#pragma once

#include <cstddef>
#include <string_view>

#include "graph/click/findings.h"

namespace sluice::click {

enum class Token : uint8_t {
  kEnd,
  kIdentifier,
  kVariable,
  kArrow,
  kDoubleArrow,
  kDoubleColon,
  kSemicolon,
  kComma,
  kOpenParen,
  kCloseParen,
  kOpenBracket,
  kCloseBracket,
  kOpenBrace,
  kCloseBrace,
  kBar,
  kDoubleBar,
  kDots,
  kDash,
  kElementclass,
  kRequire,
  kProvide,
  kDefine,
  kUnknown,
};

struct Lexeme {
  Token kind = Token::kEnd;
  size_t offset = 0;
  size_t length = 0;
};

class Lexer {
 public:
  explicit Lexer(Findings& findings) : findings_(&findings), text_(findings.source().text()) { advance(); }

  const Lexeme& peek() const { return current_; }
  Lexeme take() {
    const Lexeme taken = current_;
    advance();
    return taken;
  }
  // Nothing but kEnd follows.
  void finish() {
    position_ = text_.size();
    set(Token::kEnd, 0);
  }
  std::string_view text(const Lexeme& lexeme) const { return text_.substr(lexeme.offset, lexeme.length); }

  // peek() is the '(' of a configuration: takes all up to its ')'. What does not end is reported, and the
  // configuration is taken to end with its line.
  struct Config {
    size_t offset = 0;
    size_t length = 0;
  };
  Config take_config();
  size_t end_of_line(size_t offset) const;

 private:
  void advance();
  void take_word();
  void set(Token kind, size_t length);
  size_t resume_after_fault(size_t offset) { return ++faults_ >= kMaxFaults ? text_.size() : end_of_line(offset); }

  Findings* findings_;  // a pointer, so that a Lexer can be copied back to where it was
  std::string_view text_;
  size_t position_ = 0;
  Lexeme current_;
  // A fault may have scanned to the end of the text; so that they stay linear together, the text ends after a few.
  static constexpr int kMaxFaults = 16;
  int faults_ = 0;
};

}  // namespace sluice::click
