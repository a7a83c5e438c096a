#include "graph/click/config_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr size_t kNpos = std::string_view::npos;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool starts_comment(std::string_view text, size_t i) {
  return text[i] == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*');
}

// The byte after the comment at `i`; a line comment ends before its newline. npos: it does not end.
size_t skip_comment(std::string_view text, size_t i) {
  if (text[i + 1] == '/') return std::min(text.find('\n', i), text.size());
  const size_t close = text.find("*/", i + 2);
  return close == kNpos ? kNpos : close + 2;
}

// The byte after the string at `i`; npos: it does not end.
size_t skip_string(std::string_view text, size_t i) {
  const char quote = text[i];
  if (quote == '\'') {
    const size_t close = text.find('\'', i + 1);
    return close == kNpos ? kNpos : close + 1;
  }
  for (++i; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return kNpos;
}

// The byte after one unit (comment, string or character); faults run to the end.
size_t skip_unit(std::string_view text, size_t i) {
  if (starts_comment(text, i)) return std::min(skip_comment(text, i), text.size());
  if (text[i] == '"' || text[i] == '\'') return std::min(skip_string(text, i), text.size());
  return i + 1;
}

}  // namespace

ConfigEnd find_config_end(std::string_view text, size_t begin) {
  std::vector<size_t> open;
  size_t i = begin;
  while (i < text.size()) {
    const char c = text[i];
    if (starts_comment(text, i)) {
      const size_t next = skip_comment(text, i);
      if (next == kNpos) return {ConfigFault::kUnterminatedComment, i};
      i = next;
    } else if (c == '"' || c == '\'') {
      const size_t next = skip_string(text, i);
      if (next == kNpos) return {ConfigFault::kUnterminatedString, i};
      i = next;
    } else {
      if (c == '(') open.push_back(i);
      if (c == ')') {
        if (open.empty()) return {ConfigFault::kNone, i};
        open.pop_back();
      }
      ++i;
    }
  }
  if (!open.empty()) return {ConfigFault::kUnbalanced, open.back()};
  return {ConfigFault::kNone, text.size()};
}

bool is_closed_config(std::string_view text) {
  std::string closed(text);
  closed += ')';
  const ConfigEnd end = find_config_end(closed, 0);
  return end.fault == ConfigFault::kNone && end.offset == text.size();
}

ConfigSlice trim_config(std::string_view text, size_t begin, size_t end) {
  text = text.substr(0, end);
  size_t first = begin;
  while (first < end) {
    if (is_blank(text[first])) {
      ++first;
    } else if (starts_comment(text, first)) {
      first = std::min(skip_comment(text, first), end);
    } else {
      break;
    }
  }
  // Forward again: whether a byte is part of a comment is known from the left only.
  size_t last = first;
  for (size_t i = first; i < end;) {
    const size_t next = skip_unit(text, i);
    if (!is_blank(text[i]) && !starts_comment(text, i)) last = next;
    i = next;
  }
  return {first, last - first};
}

std::vector<ConfigSlice> split_arguments(std::string_view text) {
  std::vector<ConfigSlice> out;
  size_t depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t next = skip_unit(text, i);
    if (next == i + 1) {
      if (c == '(') ++depth;
      if (c == ')' && depth > 0) --depth;
      if (c == ',' && depth == 0) {
        out.push_back(trim_config(text, begin, i));
        begin = next;
      }
    }
    i = next;
  }
  const ConfigSlice last = trim_config(text, begin, text.size());
  if (last.length != 0) out.push_back(last);
  return out;
}

std::vector<ConfigSlice> split_words(std::string_view text) {
  std::vector<ConfigSlice> out;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const bool hex = text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '<';
    size_t next = skip_unit(text, i);
    if (hex) {
      const size_t close = text.find('>', i);
      next = close == kNpos ? text.size() : close + 1;
    }
    if (is_blank(text[i]) || starts_comment(text, i)) {
      in_word = false;
    } else {
      if (!in_word) out.push_back({i, 0});
      in_word = true;
      out.back().length = next - out.back().offset;
    }
    i = next;
  }
  return out;
}

std::optional<std::string> unquote(std::string_view text, UnquoteFault* fault) {
  auto fail = [&](size_t offset, size_t length, std::string message, std::string expected) {
    if (fault != nullptr) *fault = {offset, length, std::move(message), std::move(expected)};
    return std::nullopt;
  };
  std::string out;
  // Appends the bytes of \<...> at `i` (the backslash); returns the byte after '>', or npos.
  std::string hex_message;
  size_t hex_at = 0;
  auto append_hex = [&](size_t i) -> size_t {
    int high = -1;
    size_t k = i + 2;
    for (; k < text.size() && text[k] != '>'; ++k) {
      if (is_blank(text[k])) continue;
      const int digit = hex_digit(text[k]);
      if (digit < 0) {
        hex_at = k;
        hex_message = "this is not a hexadecimal digit";
        return kNpos;
      }
      if (high < 0) {
        high = digit;
      } else {
        out += static_cast<char>(high << 4 | digit);
        high = -1;
      }
    }
    hex_at = i;
    if (k >= text.size()) {
      hex_message = "the hex data is not closed";
      return kNpos;
    }
    if (high >= 0) {
      hex_message = "the hex data has an odd number of digits";
      return kNpos;
    }
    return k + 1;
  };
  constexpr const char* kHexExpected = "pairs of hexadecimal digits: \\<48 45 4c>";
  bool in_double = false;
  size_t opened = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size() && text[i + 1] == '<') {
      i = append_hex(i);
      if (i == kNpos) return fail(hex_at, 1, hex_message, kHexExpected);
      continue;
    }
    if (!in_double) {
      if (starts_comment(text, i)) {
        const size_t next = skip_comment(text, i);
        if (next == kNpos) return fail(i, 2, "the comment does not end", "*/");
        out += ' ';
        i = next;
      } else if (c == '\'') {
        const size_t close = text.find('\'', i + 1);
        if (close == kNpos) return fail(i, 1, "the string does not end", "a closing '");
        out += text.substr(i + 1, close - i - 1);
        i = close + 1;
      } else if (c == '"') {
        in_double = true;
        opened = i++;
      } else {
        out += c;
        ++i;
      }
      continue;
    }
    if (c == '"') {
      in_double = false;
      ++i;
      continue;
    }
    if (c != '\\') {
      out += c;
      ++i;
      continue;
    }
    if (i + 1 >= text.size()) break;
    const char e = text[i + 1];
    i += 2;
    switch (e) {
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 't':
        out += '\t';
        break;
      case 'n':
        out += '\n';
        break;
      case 'v':
        out += '\v';
        break;
      case 'f':
        out += '\f';
        break;
      case 'r':
        out += '\r';
        break;
      case '\n':
        break;
      case '\r':
        if (i < text.size() && text[i] == '\n') ++i;
        break;
      case '0':
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7': {
        unsigned value = static_cast<unsigned>(e - '0');
        for (int k = 0; k < 2 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++k) {
          value = value * 8 + static_cast<unsigned>(text[i++] - '0');
        }
        out += static_cast<char>(value);
        break;
      }
      case 'x': {
        unsigned value = 0;
        const size_t first = i;
        while (i < text.size() && hex_digit(text[i]) >= 0) {
          value = (value << 4 | static_cast<unsigned>(hex_digit(text[i++]))) & 0xff;
        }
        if (i == first) return fail(i - 2, 2, "\\x has no digits", "hexadecimal digits: \\x41");
        out += static_cast<char>(value);
        break;
      }
      default:
        out += e;
        break;
    }
  }
  if (in_double) return fail(opened, 1, "the string does not end", "a closing \"");
  return out;
}

std::string escape_in_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || c == '$') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      // Hex data and not \x: a hexadecimal digit that follows would join a \x escape.
      out += fmt::format("\\<{:02x}>", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string quote(std::string_view text) {
  const bool bare = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_word(c) || c == '.' || c == ':' || c == '-' || c == '+' || c == '@' || c == '%' || c == '=';
  });
  return bare ? std::string(text) : "\"" + escape_in_quotes(text) + "\"";
}

std::string strip_comments(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t next = skip_unit(text, i);
    if (starts_comment(text, i)) {
      out += ' ';
    } else {
      out += text.substr(i, next - i);
    }
    i = next;
  }
  return out;
}

// Of ${name[...]}.
constexpr size_t kMaxIndexBytes = 256;

bool VariableScanner::next(VariableUse* use) {
  while (position_ < text_.size()) {
    const size_t i = position_;
    const char c = text_[i];
    if (!in_quotes_ && starts_comment(text_, i)) {
      position_ = std::min(skip_comment(text_, i), text_.size());
      continue;
    }
    if (!in_quotes_ && c == '\'') {
      position_ = std::min(skip_string(text_, i), text_.size());
      continue;
    }
    ++position_;
    if (c == '"') {
      in_quotes_ = !in_quotes_;
    } else if (c == '\\' && in_quotes_) {
      position_ = std::min(position_ + 1, text_.size());
    } else if (c == '$' && position_ < text_.size()) {
      size_t end = position_;
      use->or_handler = false;
      if (text_[end] == '(') {
        const size_t first = ++end;
        while (end < text_.size() && is_word(text_[end])) ++end;
        if (end == first || end >= text_.size() || text_[end] != ')') continue;
        use->name = text_.substr(first, end - first);
        use->fallback.reset();
        use->index.reset();
        use->or_handler = true;
        ++end;
      } else if (text_[end] == '{') {
        const size_t first = ++end;
        while (end < text_.size() && is_word(text_[end])) ++end;
        if (end == first || end >= text_.size()) continue;
        use->name = text_.substr(first, end - first);
        use->fallback.reset();
        use->index.reset();
        if (text_[end] == '[') {
          // Few bytes, so that a text full of ${a[ stays linear.
          const size_t close = text_.substr(0, std::min(text_.size(), end + kMaxIndexBytes)).find(']', end);
          if (close == kNpos || close + 1 >= text_.size()) continue;
          use->index = text_.substr(end + 1, close - end - 1);
          end = close + 1;
        }
        if (text_[end] == '-') {
          const size_t close = no_close_ ? kNpos : text_.find('}', end);
          no_close_ = close == kNpos;
          if (no_close_) continue;
          use->fallback = text_.substr(end + 1, close - end - 1);
          end = close;
        }
        if (text_[end] != '}') continue;
        ++end;
      } else {
        while (end < text_.size() && is_word(text_[end])) ++end;
        if (end == position_) continue;
        use->name = text_.substr(position_, end - position_);
        use->fallback.reset();
        use->index.reset();
      }
      use->offset = i;
      use->length = end - i;
      use->in_quotes = in_quotes_;
      position_ = end;
      return true;
    }
  }
  return false;
}

}  // namespace sluice
