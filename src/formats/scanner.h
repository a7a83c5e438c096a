// A cursor over text for the rule and trace readers: no allocation, positions are byte offsets of the whole text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

class Scanner {
 public:
  explicit Scanner(std::string_view text, size_t at = 0) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  void seek(size_t at) { at_ = at; }
  bool end_of_text() const { return at_ >= text_.size(); }
  // At the end of the line or of the text.
  bool end_of_line() const {
    return at_ >= text_.size() || text_[at_] == '\n' ||
           (text_[at_] == '\r' && (at_ + 1 >= text_.size() || text_[at_ + 1] == '\n'));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  void skip_line() {
    const size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  // The run of non-blank characters here; may be empty. Does not move.
  std::string_view word() const {
    size_t end = at_;
    while (end < text_.size() && text_[end] != ' ' && text_[end] != '\t' && text_[end] != '\n' && text_[end] != '\r')
      ++end;
    return text_.substr(at_, end - at_);
  }
  // An unsigned decimal no larger than `limit`; false (and no move) when there is none or it is larger.
  bool decimal(uint64_t limit, uint64_t& value) {
    size_t i = at_;
    uint64_t v = 0;
    while (i < text_.size() && text_[i] >= '0' && text_[i] <= '9') {
      v = v * 10 + static_cast<uint64_t>(text_[i] - '0');
      if (v > limit) return false;
      ++i;
    }
    if (i == at_) return false;
    at_ = i;
    value = v;
    return true;
  }
  // "0x" and hexadecimal digits, no larger than `limit` (below 2^60).
  bool hex(uint64_t limit, uint64_t& value) {
    size_t i = at_;
    if (i + 2 >= text_.size() || text_[i] != '0' || (text_[i + 1] | 0x20) != 'x') return false;
    i += 2;
    const size_t digits = i;
    uint64_t v = 0;
    for (; i < text_.size(); ++i) {
      const char c = text_[i];
      unsigned d;
      if (c >= '0' && c <= '9') {
        d = static_cast<unsigned>(c - '0');
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        d = static_cast<unsigned>((c | 0x20) - 'a' + 10);
      } else {
        break;
      }
      v = v << 4 | d;
      if (v > limit) return false;
    }
    if (i == digits) return false;
    at_ = i;
    value = v;
    return true;
  }

 private:
  std::string_view text_;
  size_t at_;
};

}  // namespace sluice
