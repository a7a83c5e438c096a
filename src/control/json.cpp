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
    using nlohmann::ordered_json;
    to += ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
}

}  // namespace sluice
