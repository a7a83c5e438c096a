// Requests are what the rows of commands say.
#include "control/command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "control/live_fuzz_input.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
using Type = CommandField::Type;

class Commands : public ::testing::Test {
 protected:
  Commands() {
    live_.control->graph.load = [](const std::string&, const std::string&, const std::string&) {
      return Result<std::unique_ptr<GraphGeneration>>(Error("no graph here"));
    };
  }
  // What is wrong with a request; empty: it was answered.
  std::string refused(const Json& request) {
    const Json answer = Json::parse(live_.control->answer(request.dump()));
    return answer["ok"].get<bool>() ? std::string() : answer["error"]["message"].get<std::string>();
  }
  // With the fields that it has to have.
  static Json request_of(const CommandRow& row) {
    Json request{{"v", 1}, {"command", row.name}};
    for (const CommandField& field : row.fields) {
      if (!field.required || field.is_local) continue;
      request[field.name] = field.type == Type::kNumber  ? Json(field.low)
                            : field.type == Type::kFiles ? Json{"none"}
                                                         : Json("none");
    }
    return request;
  }
  FuzzedRuntime live_;
};

bool is_of_the_request(const std::string& error) {
  for (const char* words : {"is not a command", "is not a field", "the field '"}) {
    if (error.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST_F(Commands, AnswerWhatTheirRowsSay) {
  size_t answered = 0;
  for (const CommandRow& row : command_rows()) {
    if (!row.answers()) continue;
    const std::string error = refused(request_of(row));
    EXPECT_FALSE(is_of_the_request(error)) << row.name << ": " << error;
    answered += error.empty() ? 1 : 0;
  }
  EXPECT_GE(answered, 15u);
}

TEST_F(Commands, RefuseOtherFieldsTypesAndNumbers) {
  for (const CommandRow& row : command_rows()) {
    if (!row.answers()) continue;
    Json request = request_of(row);
    request["fild"] = 1;
    EXPECT_EQ(refused(request), "'fild' is not a field of this command") << row.name;
    for (const CommandField& field : row.fields) {
      if (field.is_local || field.type == Type::kFile) continue;
      request = request_of(row);
      request[field.name] = Json::object();
      EXPECT_TRUE(refused(request).starts_with("the field '" + field.name + "' is not ")) << row.name;
      if (field.type == Type::kNumber && field.high != ~uint64_t{0}) {
        request[field.name] = field.high + 1;
        EXPECT_EQ(refused(request),
                  fmt::format("the field '{}' is not a number from {} to {}", field.name, field.low, field.high));
      }
      if (!field.required) continue;
      request.erase(field.name);
      EXPECT_EQ(refused(request), "the field '" + field.name + "' is missing");
    }
  }
}

TEST_F(Commands, AreRowsAndNothingElse) {
  std::set<std::string> names;
  for (const CommandRow& row : command_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    // Heads of groups and spellings of the command line are no requests.
    if (!row.answers()) {
      EXPECT_EQ(refused({{"v", 1}, {"command", row.name}}), "'" + row.name + "' is not a command");
    }
    EXPECT_TRUE(row.request.empty() || find_command(row.request) != nullptr) << row.name;
    EXPECT_TRUE(!row.on_command_line || !row.help.empty()) << row.name;
    EXPECT_EQ(row.patches && !row.changes, false) << row.name;
  }
  EXPECT_EQ(refused({{"v", 1}, {"command", "show nothing"}}), "'show nothing' is not a command");
  live_.control->graph.load = nullptr;
  EXPECT_EQ(refused({{"v", 1}, {"command", "graph show"}}), "'graph show' is not a command");
}

// A command that changes something and is not in this list would run beside another change.
TEST_F(Commands, ThatChangeSomethingAreThese) {
  std::set<std::string> changing, patching;
  for (const CommandRow& row : command_rows()) {
    EXPECT_EQ(Control::may_change({{"command", row.name}}), row.changes) << row.name;
    // Those of lists are the same for every kind (list_kinds_test.cpp).
    const bool of_list = std::ranges::any_of(table_kinds(), [&](const TableKind* kind) {
      return kind->is_list() && row.name.starts_with(kind->option + " ");
    });
    if (of_list) continue;
    if (row.changes) changing.insert(row.name);
    if (row.patches) patching.insert(row.name);
  }
  EXPECT_EQ(changing,
            (std::set<std::string>{"acl change", "acl replace", "adjacencies change", "graph swap", "graph write",
                                   "qos load", "qos set", "reload", "routes change", "routes replace", "save"}));
  EXPECT_EQ(patching, (std::set<std::string>{"acl change", "adjacencies change", "routes change"}));
}

}  // namespace
}  // namespace sluice
