#include "graph/click/lexer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "graph/click/config_text.h"

namespace sluice::click {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '@';
}

// Tokens of one character that begin no longer one.
constexpr std::pair<char, Token> kSingles[] = {
    {';', Token::kSemicolon},   {',', Token::kComma},        {'(', Token::kOpenParen}, {')', Token::kCloseParen},
    {'[', Token::kOpenBracket}, {']', Token::kCloseBracket}, {'{', Token::kOpenBrace}, {'}', Token::kCloseBrace},
};

}  // namespace

size_t Lexer::end_of_line(size_t offset) const {
  return std::min(text_.find('\n', offset), text_.size());
}

void Lexer::set(Token kind, size_t length) {
  current_ = {kind, position_, length};
  position_ += length;
}

void Lexer::take_word() {
  size_t end = position_;
  while (end < text_.size() && (is_word(text_[end]) || text_[end] == '/')) {
    if (text_[end] == '/' && end + 1 < text_.size() && (text_[end + 1] == '/' || text_[end + 1] == '*')) break;
    ++end;
  }
  const std::string_view word = text_.substr(position_, end - position_);
  Token kind = Token::kIdentifier;
  if (word == "elementclass") kind = Token::kElementclass;
  if (word == "require") kind = Token::kRequire;
  if (word == "provide") kind = Token::kProvide;
  if (word == "define") kind = Token::kDefine;
  if (word.back() == '/') findings_->error(end - 1, 1, "a name does not end in '/'");
  set(kind, word.size());
}

void Lexer::advance() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    const char next = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f') {
      ++position_;
      continue;
    }
    if (c == '/' && next == '/') {
      position_ = end_of_line(position_);
      continue;
    }
    if (c == '/' && next == '*') {
      const size_t close = text_.find("*/", position_ + 2);
      if (close == std::string_view::npos) {
        findings_->error(position_, 2, "this comment does not end").expected = "*/";
        position_ = resume_after_fault(position_);
        continue;
      }
      position_ = close + 2;
      continue;
    }
    if (c == '#' && (position_ == 0 || text_[position_ - 1] == '\n')) {
      const size_t end = end_of_line(position_);
      uint32_t line;
      std::string file;
      if (!parse_landmark(text_.substr(position_, end - position_), &line, &file)) {
        Diagnostic& d = findings_->error(position_, end - position_, "this is not a landmark");
        d.expected = "# LINE \"FILE\" or #line LINE \"FILE\"";
        d.suggestion = "comments start with //";
      }
      position_ = end;
      continue;
    }
    if (is_word(c)) return take_word();
    if (c == '$') {
      size_t end = position_ + 1;
      if (next == '{') {
        const size_t close = text_.substr(0, end + 256).find_first_of("}\n", end);
        end = close != std::string_view::npos && text_[close] == '}' ? close + 1 : end + 1;
      } else {
        while (end < text_.size() && is_word(text_[end]) && text_[end] != '@') ++end;
      }
      return set(Token::kVariable, end - position_);
    }
    for (const auto& [single, token] : kSingles) {
      if (c == single) return set(token, 1);
    }
    switch (c) {
      case '-':
        return next == '>' ? set(Token::kArrow, 2) : set(Token::kDash, 1);
      case '=':
        if (next == '>') return set(Token::kDoubleArrow, 2);
        break;
      case ':':
        if (next == ':') return set(Token::kDoubleColon, 2);
        break;
      case '|':
        return next == '|' ? set(Token::kDoubleBar, 2) : set(Token::kBar, 1);
      case '.':
        if (text_.substr(position_, 3) == "...") return set(Token::kDots, 3);
        break;
      default:
        break;
    }
    // One token for a whole run of what the language does not know, so that binary junk is one finding.
    size_t end = position_ + 1;
    while (end < text_.size() && end - position_ < 256) {
      const auto byte = static_cast<unsigned char>(text_[end]);
      if (byte < 0x80 && byte != 0 && byte != static_cast<unsigned char>(c)) break;
      ++end;
    }
    return set(Token::kUnknown, end - position_);
  }
  set(Token::kEnd, 0);
}

Lexer::Config Lexer::take_config() {
  const size_t open = current_.offset;
  const ConfigEnd end = find_config_end(text_, open + 1);
  if (end.fault == ConfigFault::kNone && end.offset < text_.size()) {
    position_ = end.offset + 1;
    advance();
    return {open + 1, end.offset - open - 1};
  }
  if (end.fault == ConfigFault::kUnterminatedString) {
    findings_->error(end.offset, 1, "this string does not end").expected =
        std::string("a closing ") + text_[end.offset];
  } else if (end.fault == ConfigFault::kUnterminatedComment) {
    findings_->error(end.offset, 2, "this comment does not end").expected = "*/";
  } else {
    const size_t at = end.fault == ConfigFault::kUnbalanced ? end.offset : open;
    findings_->error(at, 1, "no ')' closes this '('").expected = "a closing )";
  }
  position_ = resume_after_fault(open);
  const size_t begin = std::min(open + 1, position_);
  const Config config{begin, 0};
  advance();
  return config;
}

}  // namespace sluice::click
