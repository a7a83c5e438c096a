// What stands at the border to C: errors as lists, and no exception across.
// host only
#pragma once

#include <sluice/sluice.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/router.h"

struct sluice_errors {
  std::vector<sluice::Diagnostic> findings;
  std::vector<sluice_error> shown;  // their texts are those of `findings`
  std::string text;
};

namespace sluice::api {

// Gives the caller the error, where it asked for one. What there is no memory for is said by a list of its own.
void give_error(sluice_errors** errors, const Error& error) noexcept;
void give_no_memory(sluice_errors** errors) noexcept;
// What the caller said that cannot be: NULL, a size of no version.
inline Error bad_argument(std::string what) {
  return Error(std::move(what));
}

// The classes of all elements.
const Registry& element_classes();

// What every function does once before its first work: the library never prints, so it does not log either.
void enter() noexcept;

// Runs the body of a C function, which returns a Result. `failed`: what the function returns on failure.
template <typename R, typename F>
R guarded(sluice_errors** errors, R failed, F&& body) noexcept {
  if (errors != nullptr) *errors = nullptr;
  try {
    enter();
    auto result = body();
    if (result.ok()) {
      if constexpr (std::is_same_v<decltype(result), Result<void>>) {
        return R{};
      } else {
        return std::move(*result);
      }
    }
    give_error(errors, result.error());
  } catch (const std::bad_alloc&) {
    give_no_memory(errors);
  } catch (const std::exception& e) {
    try {
      give_error(errors, Error(std::string("an unexpected failure: ") + e.what()));
    } catch (...) {
      give_no_memory(errors);
    }
  } catch (...) {
    give_no_memory(errors);
  }
  return failed;
}

// The same of what cannot say why it failed.
template <typename R, typename F>
R quiet(R failed, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return failed;
  }
}

inline std::string_view text_or(const char* text, const char* other) {
  return text != nullptr ? text : other;
}

// Options of a caller: the defaults where there are none. Errors: a size of another version.
template <typename Options>
Result<Options> options_or(const Options* given, Options defaults) {
  if (given == nullptr) return defaults;
  if (given->size != sizeof(Options)) {
    return Error(
        "the options' field `size` is " + std::to_string(given->size) + ", not " + std::to_string(sizeof(Options)),
        "begin with the SLUICE_..._OPTIONS_INIT of this version's header");
  }
  return *given;
}

}  // namespace sluice::api
