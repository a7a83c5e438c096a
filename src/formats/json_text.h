// JSON (RFC 8259) with the place of every value, for readers that report findings: 28 bytes a value, strings stay where
// they are in the text. Host only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

class JsonText;

// One value of a JsonText, or none. Valid as long as the JsonText and its text.
class JsonValue {
 public:
  enum class Kind : uint8_t { kNone, kNull, kBool, kNumber, kString, kArray, kObject };

  JsonValue() = default;
  Kind kind() const;
  explicit operator bool() const { return kind() != Kind::kNone; }
  bool is(Kind k) const { return kind() == k; }
  // Where the value stands in the text; a string with its quotes.
  size_t at() const;
  size_t length() const;
  // The characters of a string between its quotes, escapes as they are written; of others the whole text.
  std::string_view text() const;
  // The characters that a string stands for, as UTF-8; half of a surrogate pair is U+FFFD. Empty for others.
  std::string decoded() const;
  // Of a number that is an integer from 0 to 2^64 - 1; none for all else.
  std::optional<uint64_t> integer() const;
  // The key of a member of an object, escapes as they are written; empty for others.
  std::string_view key() const;
  std::string decoded_key() const;

  // The first member or item, and the one behind this one.
  JsonValue first() const;
  JsonValue next() const;
  // The member with this key; of several the first.
  JsonValue operator[](std::string_view key) const;
  // Of an object with exactly one member: that one. Else none.
  JsonValue only() const;

 private:
  friend class JsonText;
  JsonValue(const JsonText* json, uint32_t index) : json_(json), index_(index) {}
  const JsonText* json_ = nullptr;
  uint32_t index_ = 0;
};

class JsonText {
 public:
  static constexpr size_t kMaxValues = size_t{1} << 23;
  static constexpr size_t kMaxBytes = size_t{1} << 28;

  // `text` must outlive it. Errors, at their place: what is not JSON, more than 64 levels, `max_values` or kMaxBytes.
  static std::optional<JsonText> parse(std::string_view text, Diagnostics& found, size_t max_values = kMaxValues);

  // Not while the JsonText is moved.
  JsonValue root() const { return {this, 0}; }

 private:
  friend class JsonValue;
  friend class JsonReader;
  static constexpr uint32_t kNoValue = ~uint32_t{0};
  struct Node {
    uint32_t at = 0, length = 0;
    uint32_t key_at = 0, key_length = 0;
    uint32_t first = kNoValue, next = kNoValue;
    JsonValue::Kind kind = JsonValue::Kind::kNone;
  };
  std::string_view text_;
  std::vector<Node> nodes_;
};

}  // namespace sluice
