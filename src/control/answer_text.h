// host only
// What the texts of answers have in common, for people.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/counted.h"
#include "base/human.h"
#include "base/printable.h"
#include "control/json.h"

namespace sluice {

// Counters by name, and how fast they grow from one look to the next.
class Rates {
 public:
  // Another look, at this time; what `of` was given before is what the next rates count from.
  void look(uint64_t now_ns);
  // Per second since the look before. None: it was not seen then, or has become less (it was cleared).
  std::optional<double> of(const std::string& name, uint64_t count);
  // The same as a cell of a table: "-" where there is none.
  std::string cell(const std::string& name, uint64_t count);

 private:
  std::map<std::string, uint64_t> before_, now_;
  uint64_t before_ns_ = 0, now_ns_ = 0;
};

// Answers come from another process: these throw Json::exception where a field is not there, or is something else.
uint64_t count_of(const nlohmann::ordered_json& json, const char* field);
// For a terminal.
std::string word_of(const nlohmann::ordered_json& json, const char* field);

// ", cleared 12.3 s ago", where counters are those since then.
std::string cleared_text(const nlohmann::ordered_json& answer);
// What a list says where more lines follow the `shown` ones.
std::string more_text(const nlohmann::ordered_json& list, size_t shown);
// Where a rule stands: "edge.acl:3"; `otherwise`: of one that comes from no file.
std::string place_of(const nlohmann::ordered_json& rule, const std::string& otherwise = "-");
// A line for each class of what to_json gives of ports.
std::string qos_text(const nlohmann::ordered_json& ports);
// Which generation is live, by what `reload` answers.
std::string generation_text(const nlohmann::ordered_json& reload);
// What became of a table, by what `reload` answers of it.
std::string reload_text(const nlohmann::ordered_json& table);

}  // namespace sluice
