#include "base/assert.h"

#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace sluice {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::string_view name = file;
  name.remove_prefix(name.find_last_of('/') + 1);  // npos + 1 is 0
  // Whatever the level of the log is: these are the last words.
  log_line(LogLevel::kError, log_format("{}:{}: '{}' does not hold: an error of the program", name, line, condition));
  std::abort();
}

}  // namespace sluice
