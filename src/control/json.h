// Json: the values of reports, questions and answers, with everything that makes and reads them. A header that only
// names the type includes nlohmann/json_fwd.hpp. Its members are compiled once, in json.cpp. host only
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace sluice {

// For text that is written without values, because there is much of it. Appends `text` as a string of JSON, as dump()
// writes it; what is not UTF-8 becomes U+FFFD.
void append_json(std::string& to, std::string_view text);

}  // namespace sluice
