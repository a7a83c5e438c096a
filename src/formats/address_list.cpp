#include "formats/address_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "net/text.h"

namespace sluice {

Result<std::vector<IpAddress>> parse_addresses(std::string_view text, const std::string& file) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<IpAddress> addresses;
  Diagnostics findings(file, text);
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    std::string_view word = text.substr(at, end - at);
    word = word.substr(0, word.find('#'));
    const size_t begin = word.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) continue;
    word = word.substr(begin, word.find_last_not_of(kBlanks) + 1 - begin);
    if (const auto address = parse_ip(word)) {
      addresses.push_back(*address);
      continue;
    }
    findings.error_at(at + begin, word.size(), fmt::format("'{}' is not an address", word.substr(0, 60))).expected =
        "one IPv4 or IPv6 address per line, such as 192.0.2.1 or 2001:db8::1";
  }
  if (!findings.ok()) return findings.to_error();
  return addresses;
}

}  // namespace sluice
