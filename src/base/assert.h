// Checks of the program itself: programmer's errors only, never user input, never packet content.
//
// SLUICE_CHECK holds in every build: what it guards would change a verdict, a route, a counter or memory that is not
// the caller's. SLUICE_ASSERT is for the rest: where a false condition has no such consequence, or where checking it
// would cost a packet something and it holds by construction, which the place says (docs/design/checks.md).
#pragma once

#include <cassert>

#define SLUICE_ASSERT(condition) assert(condition)

// Logs the condition with its place and aborts when it is false. Host code.
#define SLUICE_CHECK(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::sluice::check_failed(#condition, __FILE__, __LINE__))

namespace sluice {

// What SLUICE_CHECK calls.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace sluice
