// host only
#include "tests/testing/json.h"

template class nlohmann::basic_json<>;

namespace sluice::testing {

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace sluice::testing
