// Control-path errors: Result<T> carries a value or an Error with every diagnostic that was found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace sluice {

// One finding in a text that a user wrote. Lines and columns count from 1; column counts bytes; 0 means unknown.
struct Diagnostic {
  enum class Severity : uint8_t { kError, kWarning };
  Severity severity = Severity::kError;
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  uint32_t length = 1;      // bytes to underline, from column
  std::string source_line;  // the line as it stands in the file, without its newline
  std::string message;      // what is wrong, with the offending value
  std::string expected;     // what was expected; may be empty
  std::string suggestion;   // "did you mean ..."; may be empty
};

// Renders one diagnostic the way compilers do:
//   edge.acl:17:9: error: port range 90-80 is empty
//     permit tcp from any port 90-80
//                              ^~~~~
//     expected: LOW-HIGH with LOW <= HIGH
//     help: write it 80-90
std::string to_string(const Diagnostic& diagnostic);

// What went wrong, for a person: message, the next step, and each located finding. Never thrown.
struct Error {
  std::string message;                  // one sentence: what, value, limit
  std::string hint;                     // the next step; may be empty
  std::vector<Diagnostic> diagnostics;  // all findings, in file order; may be empty
  bool system = false;                  // the machine refused a file, memory or a thread: the input may well be right

  // Not inline: every function that returns a Result has them.
  Error();
  explicit Error(std::string what, std::string next_step = {});
  Error(const Error& other);
  Error(Error&& other) noexcept;
  Error& operator=(const Error& other);
  Error& operator=(Error&& other) noexcept;
  ~Error();
};

// All of it, ready for stderr, ending in a newline.
std::string to_string(const Error& error);

// What the system refused: "`what`: `code` in words", with the limit to raise where there is one.
Error system_error(const std::string& what, int code);

// Collects the findings of one text. It keeps the first kLimit and counts the rest, so that no input makes it
// grow without bound.
class Diagnostics {
 public:
  static constexpr size_t kLimit = 100;

  Diagnostics(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {}

  // Adds an error at byte `offset` of the text; computes line, column and the source line.
  Diagnostic& error_at(size_t offset, size_t length, std::string message);
  Diagnostic& warning_at(size_t offset, size_t length, std::string message);
  void add(Diagnostic diagnostic);

  size_t error_count() const { return errors_; }
  bool ok() const { return errors_ == 0; }
  const std::vector<Diagnostic>& all() const { return all_; }
  // An Error that holds every finding; `message` says how many there are and in which file.
  Error to_error() const;

 private:
  std::string file_;
  std::string_view text_;
  std::vector<Diagnostic> all_;
  size_t errors_ = 0;
  Diagnostic overflow_;  // where findings past kLimit land
};

// The closest of `candidates` to `word` by edit distance, or empty when none is near (distance > 1 + length / 4).
std::string closest_match(std::string_view word, const std::vector<std::string>& candidates);

// Not by std::variant, whose visits took three percent of a build's time.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)), ok_(true) {}
  Result(Error error) : error_(std::move(error)), ok_(false) {}
  Result(const Result& other) requires std::is_copy_constructible_v<T> : ok_(other.ok_) { take(other); }
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) : ok_(other.ok_) { take(std::move(other)); }
  Result& operator=(const Result& other) requires std::is_copy_constructible_v<T> { return *this = Result(other); }
  Result& operator=(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (this == &other) return *this;
    destroy();
    ok_ = other.ok_;
    if constexpr (std::is_nothrow_move_constructible_v<T>) {
      take(std::move(other));
    } else {
      try {
        take(std::move(other));
      } catch (...) {
        ok_ = false;
        std::construct_at(&error_);
        throw;
      }
    }
    return *this;
  }
  ~Result() { destroy(); }

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  // An error has no value, a value no error: SLUICE_CHECK.
  T& value() & { return SLUICE_CHECK(ok_), value_; }
  const T& value() const& { return SLUICE_CHECK(ok_), value_; }
  // By value: `for (auto& x : *make())` must not keep a reference into a temporary.
  T value() && { return SLUICE_CHECK(ok_), std::move(value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return SLUICE_CHECK(!ok_), error_; }
  Error&& error() && { return SLUICE_CHECK(!ok_), std::move(error_); }

 private:
  // What `other` has, which is what ok_ says.
  template <typename Other>
  void take(Other&& other) {
    if (ok_) {
      std::construct_at(std::addressof(value_), std::forward<Other>(other).value_);
    } else {
      std::construct_at(&error_, std::forward<Other>(other).error_);
    }
  }
  void destroy() {
    if (ok_) {
      std::destroy_at(std::addressof(value_));
    } else {
      std::destroy_at(&error_);
    }
  }

  union {
    T value_;
    Error error_;
  };
  bool ok_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace sluice
