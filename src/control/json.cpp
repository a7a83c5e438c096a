// host only
#include "control/json.h"

#include <algorithm>

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace sluice {

void append_json(std::string& to, std::string_view text) {
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (plain) {
    to += '"';
    to += text;
    to += '"';
  } else {
    using Json = nlohmann::ordered_json;
    to += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace sluice
