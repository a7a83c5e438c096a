// Numbers in sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

std::string with_commas(uint64_t n);  // 1,234,567
// "1 packet", "2 packets", "1,000 addresses": the noun in the singular, of which the last word takes the plural.
std::string counted(uint64_t n, std::string_view noun);

}  // namespace sluice
