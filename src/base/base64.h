// Bytes as text of RFC 4648, section 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

std::string to_base64(std::string_view bytes);
// Nothing: not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace sluice
