#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace sluice {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warning", "error", "off"};

std::atomic<LogLevel> g_level{LogLevel::kInfo};

struct Output {
  std::mutex mutex;
  LogSink sink;
  std::shared_ptr<spdlog::logger> to_stderr;
};

// Never destroyed: threads may log while the process ends.
Output& output() {
  static Output* const instance = new Output;
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void set_log_level(LogLevel level) {
  g_level.store(level, std::memory_order_relaxed);
}

LogLevel log_level() {
  return g_level.load(std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return level >= log_level() && level != LogLevel::kOff;
}

std::optional<LogLevel> parse_log_level(std::string_view word) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (word == kNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void set_log_sink(LogSink sink) {
  Output& out = output();
  const std::lock_guard lock(out.mutex);
  out.sink = std::move(sink);
}

void log_line(LogLevel level, std::string_view line) {
  Output& out = output();
  const std::lock_guard lock(out.mutex);
  if (out.sink) {
    out.sink(level, line);
    return;
  }
  if (!out.to_stderr) {
    // A logger of our own, outside spdlog's registry: a host program keeps its default logger as it was.
    out.to_stderr = std::make_shared<spdlog::logger>("sluice", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
    out.to_stderr->set_level(spdlog::level::trace);
    out.to_stderr->flush_on(spdlog::level::warn);
  }
  out.to_stderr->log(to_spdlog(level), "{}", line);
}

}  // namespace sluice
