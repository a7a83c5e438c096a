// host only
#include "control/answer_text.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace sluice {

using Json = nlohmann::ordered_json;

void Rates::look(uint64_t now_ns) {
  before_ = std::move(now_);
  now_.clear();
  before_ns_ = now_ns_;
  now_ns_ = now_ns;
}

std::optional<double> Rates::of(const std::string& name, uint64_t count) {
  now_[name] = count;
  const auto before = before_.find(name);
  if (before == before_.end() || count < before->second || now_ns_ <= before_ns_) return std::nullopt;
  return static_cast<double>(count - before->second) * 1e9 / static_cast<double>(now_ns_ - before_ns_);
}

std::string Rates::cell(const std::string& name, uint64_t count) {
  const auto rate = of(name, count);
  return rate ? with_commas(static_cast<uint64_t>(std::llround(*rate))) : "-";
}

uint64_t count_of(const Json& json, const char* field) {
  return json.at(field).get<uint64_t>();
}
std::string word_of(const Json& json, const char* field) {
  return printable(json.at(field).get_ref<const std::string&>());
}

std::string cleared_text(const Json& answer) {
  if (!answer.contains("cleared_seconds_ago")) return {};
  return fmt::format(", cleared {} ago", human_seconds(answer.at("cleared_seconds_ago").get<double>()));
}

std::string more_text(const Json& list, size_t shown) {
  const uint64_t from = count_of(list, "from"), last = from + shown - 1, total = count_of(list, "total");
  if (last >= total) return {};
  return fmt::format("{} to {} of {}; continue with --from {}\n", with_commas(from), with_commas(last),
                     with_commas(total), last + 1);
}

std::string place_of(const Json& rule, const std::string& otherwise) {
  return rule.contains("file") ? fmt::format("{}:{}", word_of(rule, "file"), count_of(rule, "line")) : otherwise;
}

}  // namespace sluice
