#include "base/counted.h"

#include <fmt/format.h>

namespace sluice {

std::string with_commas(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string counted(uint64_t n, std::string_view noun) {
  const std::string number = with_commas(n);
  if (n == 1) return fmt::format("{} {}", number, noun);
  for (const std::string_view end : {"s", "sh", "ch", "x"}) {
    if (noun.ends_with(end)) return fmt::format("{} {}es", number, noun);
  }
  const bool y = noun.size() > 1 && noun.ends_with('y') &&
                 std::string_view("aeiou").find(noun[noun.size() - 2]) == std::string_view::npos;
  if (y) return fmt::format("{} {}ies", number, noun.substr(0, noun.size() - 1));
  return fmt::format("{} {}s", number, noun);
}

}  // namespace sluice
