// host only
// What requests to a running process and their answers have in common (docs/design/control.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

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

}  // namespace sluice
