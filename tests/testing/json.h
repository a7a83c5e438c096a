// host only
// What programs say as JSON, for tests to look into. The class and its parser are compiled once.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

extern template class nlohmann::basic_json<>;

namespace sluice::testing {

// A discarded value where the text is none of JSON.
nlohmann::json parse_json(std::string_view text);

}  // namespace sluice::testing
