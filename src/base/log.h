// Log lines for operators: what changed, what was refused, what degraded. Never per packet, never results.
// host only
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

enum class LogLevel : int { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// SLUICE_LOG(kInfo, "generation {} live after {} us", n, us): the format is checked when it is compiled, the arguments
// are evaluated only where the level is on. Any thread.
#define SLUICE_LOG(level, ...)                                                          \
  do {                                                                                  \
    if (::sluice::log_enabled(::sluice::LogLevel::level)) {                             \
      ::sluice::log_line(::sluice::LogLevel::level, ::sluice::log_format(__VA_ARGS__)); \
    }                                                                                   \
  } while (false)

// The lowest level that is written; kInfo at the start. Any thread.
void set_log_level(LogLevel level);
LogLevel log_level();
bool log_enabled(LogLevel level);
// trace, debug, info, warning, error, off; none for any other word.
std::optional<LogLevel> parse_log_level(std::string_view word);

// Where lines go: the default (also for an empty function) is stderr with time and level, never stdout. The function is
// called by one thread at a time; it must not log.
using LogSink = std::function<void(LogLevel, std::string_view line)>;
void set_log_sink(LogSink sink);

// What SLUICE_LOG calls.
void log_line(LogLevel level, std::string_view line);
template <typename... Args>
std::string log_format(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace sluice
