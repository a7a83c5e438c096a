// The words of a rule of iptables-save, for the readers of its tables. Host only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace sluice {

struct IptablesWord {
  std::string_view text;  // without its quotes
  size_t at = 0;
};

// The words of a part of a line, taken one after the other.
class IptablesWords {
 public:
  // Those of bytes [at, end) of `text`; quotes hold a word together, '\' in them takes the next character as it is.
  void split(std::string_view text, size_t at, size_t end) {
    all_.clear();
    next_ = 0;
    end_ = end;
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (at < end) {
      if (blank(text[at])) {
        ++at;
        continue;
      }
      const bool quoted = text[at] == '"';
      const size_t begin = at + (quoted ? 1 : 0);
      size_t to = begin;
      while (to < end && (quoted ? text[to] != '"' : !blank(text[to]))) to += quoted && text[to] == '\\' ? 2 : 1;
      to = std::min(to, end);
      all_.push_back({text.substr(begin, to - begin), begin});
      at = to + (quoted ? 1 : 0);
    }
  }
  const std::vector<IptablesWord>& all() const { return all_; }
  bool more() const { return next_ < all_.size(); }
  // Behind the last one an empty word at the end.
  IptablesWord take() { return more() ? all_[next_++] : IptablesWord{{}, end_}; }
  // On to the next word that looks like an option.
  void skip_to_option() {
    while (more() && !all_[next_].text.starts_with('-') && all_[next_].text != "!") ++next_;
  }
  // On to the next match or target: what is between are options of a match.
  void skip_match() {
    while (more() && all_[next_].text != "-m" && all_[next_].text != "-j" && all_[next_].text != "-g") ++next_;
  }
  void skip_all() { next_ = all_.size(); }

 private:
  std::vector<IptablesWord> all_;
  size_t next_ = 0;
  size_t end_ = 0;
};

}  // namespace sluice
