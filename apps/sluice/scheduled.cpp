// host only
#include "scheduled.h"

#include <cerrno>
#include <cstdio>

namespace sluice::app {
namespace {

int g_output_failed = 0;  // errno, where elements could not print to standard output

}  // namespace

void print_lines(RunOptions& options) {
  options.print = [line = std::string()](std::string_view text) mutable {
    line.assign(text).push_back('\n');
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
  options.print_out = [](std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!written && g_output_failed == 0) g_output_failed = errno;
  };
  options.print_error = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
}

void check_printed() {
  if (g_output_failed != 0) fail(Exit::kIo, system_error("standard output: cannot write", g_output_failed));
}

}  // namespace sluice::app
