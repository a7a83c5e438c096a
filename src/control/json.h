// Json: the values of reports, questions and answers, with everything that makes and reads them. A header that only
// names the type includes nlohmann/json_fwd.hpp. Its members are compiled once, in json.cpp. host only
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<nlohmann::ordered_map>;
