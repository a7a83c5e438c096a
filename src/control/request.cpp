// host only
#include "control/request.h"

#include <fmt/format.h>

#include <new>

#include "control/report.h"
#include "formats/json_text.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

using Kind = JsonValue::Kind;

// Nested as deep as JsonText allows at most.
Result<Json> to_value(JsonValue in, const char* what, const JsonLimits& limits) {
  switch (in.kind()) {
    case Kind::kString:
      return Json(in.decoded());
    case Kind::kArray: {
      Json list = Json::array();
      for (JsonValue item = in.first(); item; item = item.next()) {
        auto one = to_value(item, what, limits);
        if (!one) return one;
        list.push_back(std::move(*one));
      }
      return list;
    }
    case Kind::kObject: {
      Json object = Json::object();
      for (JsonValue member = in.first(); member; member = member.next()) {
        if (object.size() >= limits.fields)
          return Error(fmt::format("an object of {} has more than {} fields", what, limits.fields));
        auto one = to_value(member, what, limits);
        if (!one) return one;
        std::string name = member.decoded_key();
        if (object.contains(name)) return Error(fmt::format("the field '{}' is given twice in {}", name, what));
        object[std::move(name)] = std::move(*one);
      }
      return object;
    }
    case Kind::kBool:
      return Json(in.text() == "true");
    case Kind::kNumber: {
      if (const auto n = in.integer()) return Json(*n);
      Json number = Json::parse(in.text(), nullptr, false);
      if (number.is_discarded()) return Error(fmt::format("a number of {} is out of range", what));
      return number;
    }
    default:
      return Json();
  }
}

}  // namespace

Result<Json> read_json(std::string_view line, const char* what, const JsonLimits& limits) {
  Diagnostics found(what, line);
  const auto parsed = JsonText::parse(line, found, limits.values);
  if (!parsed) {
    return Error(fmt::format("{} is not JSON: {}", what,
                             found.all().empty() ? std::string("it cannot be read") : found.all()[0].message));
  }
  return to_value(parsed->root(), what, limits);
}

std::string refusal(const Error& error) {
  Json said = sluice::to_json(error);
  if (error.system) said["system"] = true;
  return result_text(Json{{"v", kControlVersion}, {"ok", false}, {"error", std::move(said)}});
}

std::string result_text(const Json& result) {
  return result.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Json> read_request(std::string_view line) {
  try {
    auto request = read_json(line, "the request", kRequestLimits);
    if (!request) return Error(request.error().message, R"(such as {"v": 1, "command": "show runtime"})");
    if (!request->is_object()) return Error("the request is not a JSON object");
    const auto version = request->find("v");
    if (version == request->end() || !version->is_number_integer() || version->get<int64_t>() != kControlVersion) {
      return Error(fmt::format("the request is not of version {}, which this process supports", kControlVersion),
                   "use the sluice version of the running process");
    }
    return request;
  } catch (const std::bad_alloc&) {
    return Error("out of memory");
  }
}

std::string answer_request(Json& request, const std::function<Result<std::string>(Json&)>& run) {
  try {
    const Result<std::string> result = run(request);
    if (!result) return refusal(result.error());
    return fmt::format(R"({{"v":{},"ok":true,"result":)", kControlVersion).append(*result) + '}';
  } catch (const std::bad_alloc&) {
    return refusal(Error("out of memory"));
  }
}

std::string answer_request(std::string_view line, const std::function<Result<std::string>(Json&)>& run) {
  auto request = read_request(line);
  return request.ok() ? answer_request(*request, run) : refusal(request.error());
}

Result<Json> read_answer(std::string_view line, bool* theirs) {
  *theirs = false;
  auto answer = read_json(line, "the answer", kAnswerLimits);
  if (!answer) return answer;
  const auto no_answer = [](const char* what) { return Error(fmt::format("the answer {}", what)); };
  if (!answer->is_object()) return no_answer("is not an object");
  const auto ok = answer->find("ok");
  if (ok == answer->end() || !ok->is_boolean()) return no_answer("does not say whether it is an error");
  const bool good = ok->get<bool>();
  const auto said = answer->find(good ? "result" : "error");
  if (said == answer->end() || !said->is_object()) return no_answer(good ? "has no result" : "has no error");
  if (good) return std::move(*said);
  Error error = error_of(*said);
  if (error.message.empty()) return no_answer("is an error without a message");
  *theirs = true;
  return error;
}

}  // namespace sluice
