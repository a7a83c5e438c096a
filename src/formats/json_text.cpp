#include "formats/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace sluice {

using Kind = JsonValue::Kind;

namespace {
constexpr unsigned kMaxDepth = 64;

// Four hexadecimal digits, which are there.
uint32_t code_unit(std::string_view digits) {
  uint32_t unit = 0;
  std::from_chars(digits.data(), digits.data() + 4, unit, 16);
  return unit;
}

void append_utf8(uint32_t c, std::string& out) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

// What the characters between two quotes stand for; their escapes are whole.
std::string decode(std::string_view in) {
  std::string out;
  out.reserve(in.size());
  for (size_t at = 0; at < in.size();) {
    // Up to the next escape in one piece.
    const size_t escape = std::min(in.find('\\', at), in.size());
    out.append(in, at, escape - at);
    if (escape == in.size()) break;
    const char e = in[escape + 1];
    at = escape + 2;
    static constexpr std::string_view kEscapes = "bfnrt", kMeanings = "\b\f\n\r\t";
    if (const size_t which = kEscapes.find(e); which != std::string_view::npos) {
      out += kMeanings[which];
    } else if (e != 'u') {
      out += e;
    } else {
      uint32_t c = code_unit(in.substr(at));
      at += 4;
      if (c >= 0xd800 && c < 0xdc00 && in.substr(at).starts_with("\\u")) {
        if (const uint32_t low = code_unit(in.substr(at + 2)); low >= 0xdc00 && low < 0xe000) {
          c = 0x10000 + (c - 0xd800) * 0x400 + (low - 0xdc00);
          at += 6;
        }
      }
      append_utf8(c >= 0xd800 && c < 0xe000 ? 0xfffd : c, out);
    }
  }
  return out;
}
}  // namespace

class JsonReader {
 public:
  JsonReader(std::string_view text, Diagnostics& found, JsonText& out, size_t max_values)
      : text_(text), found_(found), out_(out), max_values_(max_values) {}

  bool run() {
    blanks();
    if (!value(0, {})) return false;
    blanks();
    return at_ == text_.size() || fail("there is text after the JSON value", "its end");
  }

 private:
  bool fail(std::string message, std::string expected) {
    found_.error_at(at_, 1, std::move(message)).expected = std::move(expected);
    return false;
  }
  bool unexpected(std::string expected) {
    return fail(at_ >= text_.size()
                    ? "the JSON text ends too early"
                    : fmt::format("0x{:02x} is not valid here in JSON", static_cast<uint8_t>(text_[at_])),
                std::move(expected));
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  struct Key {
    size_t at = 0, length = 0;
  };

  // The value here becomes a node; at_ is moved behind it.
  bool value(unsigned depth, Key key) {
    if (out_.nodes_.size() >= max_values_) return fail(fmt::format("more than {} values", max_values_), "fewer");
    if (depth > kMaxDepth) return fail(fmt::format("values are nested deeper than {}", kMaxDepth), "fewer levels");
    const auto index = static_cast<uint32_t>(out_.nodes_.size());
    out_.nodes_.emplace_back();
    const size_t start = at_;
    Kind kind = Kind::kNone;
    const char c = peek();
    if (c == '{' || c == '[') {
      kind = c == '{' ? Kind::kObject : Kind::kArray;
      if (!members(index, depth, c == '{')) return false;
    } else if (c == '"') {
      kind = Kind::kString;
      if (!string()) return false;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      kind = Kind::kNumber;
      if (!number()) return false;
    } else {
      const std::string_view rest = text_.substr(at_);
      for (const auto& [word, k] : {std::pair{"true", Kind::kBool}, {"false", Kind::kBool}, {"null", Kind::kNull}}) {
        if (!rest.starts_with(word)) continue;
        kind = k;
        at_ += std::string_view(word).size();
      }
      if (kind == Kind::kNone) return unexpected("a JSON value");
    }
    JsonText::Node& node = out_.nodes_[index];
    node.kind = kind;
    node.at = static_cast<uint32_t>(start);
    node.length = static_cast<uint32_t>(at_ - start);
    node.key_at = static_cast<uint32_t>(key.at);
    node.key_length = static_cast<uint32_t>(key.length);
    return true;
  }

  bool members(uint32_t index, unsigned depth, bool object) {
    ++at_;
    const char close = object ? '}' : ']';
    uint32_t last = JsonText::kNoValue;
    blanks();
    if (take(close)) return true;
    while (true) {
      Key key;
      blanks();
      if (object) {
        key.at = at_ + 1;
        if (peek() != '"') return unexpected("a key in quotes");
        if (!string()) return false;
        key.length = at_ - 1 - key.at;
        blanks();
        if (!take(':')) return unexpected("':'");
        blanks();
      }
      const auto child = static_cast<uint32_t>(out_.nodes_.size());
      if (!value(depth + 1, key)) return false;
      (last == JsonText::kNoValue ? out_.nodes_[index].first : out_.nodes_[last].next) = child;
      last = child;
      blanks();
      if (take(close)) return true;
      if (!take(',')) return unexpected(fmt::format("',' or '{}'", close));
    }
  }

  // Of eight characters, how many stand before the first that ends a string, begins an escape or is a control
  // character.
  static unsigned plain(const char* at) {
    constexpr uint64_t kEach = 0x0101010101010101, kHigh = 0x80 * kEach;
    uint64_t eight;
    std::memcpy(&eight, at, sizeof eight);
    const uint64_t quote = eight ^ '"' * kEach, escape = eight ^ '\\' * kEach;
    const uint64_t found =
        ((quote - kEach) & ~quote) | ((escape - kEach) & ~escape) | ((eight - 0x20 * kEach) & ~eight);
    // The lowest bit that is set is right; those above it may follow from a borrow.
    const uint64_t ends = found & kHigh;
    return ends == 0 ? 8 : static_cast<unsigned>(std::countr_zero(ends)) / 8;
  }

  bool string() {
    ++at_;
    while (at_ < text_.size()) {
      if (std::endian::native == std::endian::little && at_ + sizeof(uint64_t) <= text_.size()) {
        const unsigned plain_ones = plain(text_.data() + at_);
        at_ += plain_ones;
        if (plain_ones == sizeof(uint64_t)) continue;
      }
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<uint8_t>(c) < 0x20) return unexpected("an escape such as \\n");
      if (c == '\\') {
        ++at_;
        const char e = peek();
        if (e == 'u') {
          for (int i = 0; i < 4; ++i) {
            ++at_;
            const char h = peek();
            const bool hex = (h >= '0' && h <= '9') || ((h | 0x20) >= 'a' && (h | 0x20) <= 'f');
            if (!hex) return unexpected("four hexadecimal digits");
          }
        } else if (e == '\0' || std::string_view("\"\\/bfnrt").find(e) == std::string_view::npos) {
          return unexpected("one of \" \\ / b f n r t u");
        }
      }
      ++at_;
    }
    return unexpected("'\"'");
  }

  bool digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ != start || unexpected("a digit");
  }
  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if ((peek() | 0x20) != 'e') return true;
    ++at_;
    if (!take('+')) take('-');
    return digits();
  }

  std::string_view text_;
  Diagnostics& found_;
  JsonText& out_;
  size_t max_values_;
  size_t at_ = 0;
};

std::optional<JsonText> JsonText::parse(std::string_view text, Diagnostics& found, size_t max_values) {
  if (text.size() > kMaxBytes) {
    found.error_at(0, 1, fmt::format("the JSON text is larger than {} bytes", kMaxBytes));
    return std::nullopt;
  }
  JsonText json;
  json.text_ = text;
  if (!JsonReader(text, found, json, max_values).run()) return std::nullopt;
  return json;
}

Kind JsonValue::kind() const {
  return json_ == nullptr || index_ == JsonText::kNoValue ? Kind::kNone : json_->nodes_[index_].kind;
}
size_t JsonValue::at() const {
  return kind() == Kind::kNone ? 0 : json_->nodes_[index_].at;
}
size_t JsonValue::length() const {
  return kind() == Kind::kNone ? 0 : json_->nodes_[index_].length;
}
std::string_view JsonValue::text() const {
  if (kind() == Kind::kNone) return {};
  const std::string_view whole = json_->text_.substr(at(), length());
  return is(Kind::kString) ? whole.substr(1, whole.size() - 2) : whole;
}
std::string JsonValue::decoded() const {
  return is(Kind::kString) ? decode(text()) : std::string();
}
std::string JsonValue::decoded_key() const {
  return decode(key());
}
std::optional<uint64_t> JsonValue::integer() const {
  if (!is(Kind::kNumber)) return std::nullopt;
  const std::string_view t = text();
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(t.data(), t.data() + t.size(), value);
  if (code != std::errc() || end != t.data() + t.size()) return std::nullopt;
  return value;
}
std::string_view JsonValue::key() const {
  return kind() == Kind::kNone ? std::string_view()
                               : json_->text_.substr(json_->nodes_[index_].key_at, json_->nodes_[index_].key_length);
}
JsonValue JsonValue::first() const {
  return kind() == Kind::kNone ? JsonValue() : JsonValue(json_, json_->nodes_[index_].first);
}
JsonValue JsonValue::next() const {
  return kind() == Kind::kNone ? JsonValue() : JsonValue(json_, json_->nodes_[index_].next);
}
JsonValue JsonValue::operator[](std::string_view key) const {
  if (!is(Kind::kObject)) return {};
  for (JsonValue v = first(); v; v = v.next()) {
    if (v.key() == key) return v;
  }
  return {};
}
JsonValue JsonValue::only() const {
  const JsonValue v = is(Kind::kObject) ? first() : JsonValue();
  return v && !v.next() ? v : JsonValue();
}

}  // namespace sluice
