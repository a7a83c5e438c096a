// host only
#include "control/request.h"

#include <new>

#include "control/report.h"

namespace sluice {

using Json = nlohmann::ordered_json;

std::string answer_request(std::string_view line, const std::function<Result<Json>(const Json&)>& run) {
  Result<Json> result = Json();
  const Json request = Json::parse(line, nullptr, false);
  if (request.is_discarded()) {
    result = Error("the request is not JSON", R"(such as {"v": 1, "command": "show runtime"})");
  } else if (!request.is_object()) {
    result = Error("the request is not a JSON object");
  } else if (const auto version = request.find("v");
             version == request.end() || !version->is_number_integer() || version->get<int64_t>() != kControlVersion) {
    result = Error(fmt::format("the request is not of version {}, which this process speaks", kControlVersion),
                   "use the sluice program that the process was started with");
  } else {
    try {
      result = run(request);
    } catch (const std::bad_alloc&) {
      result = Error("out of memory");
    }
  }
  Json json{{"v", kControlVersion}, {"ok", result.ok()}};
  if (result.ok()) {
    json["result"] = std::move(*result);
  } else {
    json["error"] = sluice::to_json(result.error());
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
