// host only
// What requests to a running process and their answers have in common (docs/design/control.md).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/json.h"

namespace sluice {

inline constexpr int kControlVersion = 1;

// What one line may hold, in which case reading it takes time and memory in proportion to its length: a line, which may
// be a stranger's, costs no more than that.
struct JsonLimits {
  size_t values;
  size_t fields;  // of one object
};
inline constexpr JsonLimits kRequestLimits{size_t{1} << 16, 64};
inline constexpr JsonLimits kAnswerLimits{size_t{1} << 23, 1024};

// The value that a line of JSON is; a string is copied once. Errors: `what` is not JSON, a name that an object has
// twice, more than the limits, more than 64 levels.
Result<nlohmann::ordered_json> read_json(std::string_view line, const char* what, const JsonLimits& limits);

// A request, whatever its bytes are: an object of our version. Errors: it is none; no memory for it.
Result<nlohmann::ordered_json> read_request(std::string_view line);
// The answer to one: an object without newlines. `run` may take the request's strings, and returns the result as text:
// an object without newlines.
std::string answer_request(nlohmann::ordered_json& request,
                           const std::function<Result<std::string>(nlohmann::ordered_json&)>& run);
// Both.
std::string answer_request(std::string_view line,
                           const std::function<Result<std::string>(nlohmann::ordered_json&)>& run);
// A result as text; what is not UTF-8 in it becomes U+FFFD.
std::string result_text(const nlohmann::ordered_json& result);
// The answer that is this error.
std::string refusal(const Error& error);
// What an answer says: its result, which is an object, or its error, where `theirs` is set to true. Other errors: it is
// no answer.
Result<nlohmann::ordered_json> read_answer(std::string_view line, bool* theirs);

// The fields of a request. What is asked for and absent, of another type or out of range, is the error; fields that
// nobody asks for are errors at the end. A text is taken out of the request.
class RequestFields {
 public:
  using Json = nlohmann::ordered_json;
  explicit RequestFields(Json& request) : request_(request) {}

  std::string text(const char* name, std::optional<std::string> otherwise = std::nullopt) {
    Json* value = find(name, otherwise.has_value());
    if (value == nullptr) return otherwise.value_or(std::string());
    if (!value->is_string()) return wrong(name, "a string"), std::string();
    return std::move(value->get_ref<std::string&>());
  }
  uint64_t number(const char* name, uint64_t low, uint64_t high, uint64_t otherwise) {
    const Json* value = find(name, true);
    if (value == nullptr) return otherwise;
    if (!value->is_number_unsigned() || value->get<uint64_t>() < low || value->get<uint64_t>() > high)
      return wrong(name, fmt::format("a number from {} to {}", low, high)), otherwise;
    return value->get<uint64_t>();
  }
  bool flag(const char* name) {
    const Json* value = find(name, true);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return wrong(name, "true or false"), false;
    return value->get<bool>();
  }
  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> all;
    Json* value = find(name, false);
    if (value == nullptr) return all;
    if (!value->is_array() || value->empty()) return wrong(name, "a list of strings"), all;
    for (Json& one : *value) {
      if (!one.is_string()) return wrong(name, "a list of strings"), all;
      all.push_back(std::move(one.get_ref<std::string&>()));
    }
    return all;
  }
  // A field of any type, which has to be there; else nullptr.
  const Json* value(const char* name) { return find(name, false); }
  // Once all have been asked for.
  Result<void> done() {
    for (const auto& [name, value] : request_.items()) {
      if (name == "v" || std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      const std::string near = closest_match(name, known_);
      if (error_.message.empty()) {
        error_ = Error(fmt::format("'{}' is not a field of this command", name),
                       near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
      }
    }
    if (!error_.message.empty()) return std::move(error_);
    return {};
  }

 private:
  Json* find(const char* name, bool optional) {
    known_.emplace_back(name);
    const auto it = request_.find(name);
    if (it != request_.end()) return &*it;
    if (!optional && error_.message.empty()) error_ = Error(fmt::format("the field '{}' is missing", name));
    return nullptr;
  }
  void wrong(const char* name, const std::string& expected) {
    if (error_.message.empty()) error_ = Error(fmt::format("the field '{}' is not {}", name, expected));
  }
  Json& request_;
  std::vector<std::string> known_;
  Error error_;
};

}  // namespace sluice
