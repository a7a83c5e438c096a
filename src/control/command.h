// host only
// The commands of a running process, a row each: what a request may say, who answers it, and how the command line asks
// for it and shows the answer. Requests are read and refused by these rows; the paths of HTTP, `sluice show` and the
// like, completion and the reference come from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/json.h"

namespace sluice {

struct Control;
class Rates;

// A field of a request, and what asks for it on the command line.
struct CommandField {
  using Json = nlohmann::ordered_json;
  // In a request all before kNumber are strings. On the command line kWords is the rest of the line; kLine, too: with
  // the command's last word before it, the line of a change; kContents the text of a file; kPacket a packet in words
  // (command_text.h), for its bytes in hexadecimal. kPreset is an option that sets other fields to `otherwise`.
  enum class Type : uint8_t { kText, kWords, kLine, kContents, kPacket, kNumber, kFlag, kFile, kFiles, kPreset };

  CommandField& as(std::string option_name, std::string value_name, std::string option_help);
  CommandField& as(std::string option_name, std::string option_help);
  // What the command line asks for where it is told nothing else, and its help shows.
  CommandField& shows(Json given);
  CommandField& one_of(std::vector<std::string> all);
  CommandField& never_with(std::vector<std::string> options);
  CommandField& checked(std::string (*problem)(const std::string&));
  CommandField& needed();
  // What the reference says of one that the command line does not have.
  CommandField& means(std::string text);
  // The command line alone has it.
  CommandField& local();

  std::string name;
  Type type = Type::kText;
  bool required = false, is_local = false;
  Json otherwise = nullptr;  // where it is absent; null: it stays absent
  uint64_t low = 0, high = 0;
  std::string option, value, help;  // option: "--from", or the name of a positional; empty: it has none
  Json shown = nullptr;
  std::vector<std::string> words, excludes;
  std::string (*check)(const std::string& text) = nullptr;  // what is wrong with it; empty: nothing
};

namespace fields {
CommandField text(std::string name);
CommandField text(std::string name, std::string otherwise);
CommandField typed(CommandField::Type type, std::string name);  // required
CommandField number(std::string name, uint64_t low, uint64_t high);
CommandField number(std::string name, uint64_t low, uint64_t high, uint64_t otherwise);
CommandField flag(std::string name);  // false where it is absent
CommandField preset(std::string option, CommandField::Json fields, std::string help);
// A list in parts: `most` lines at most, `count` where the request does not say; the command line shows `shown`.
CommandField from(uint64_t most, const std::string& what);
CommandField count(uint64_t most, uint64_t otherwise, uint64_t shown, std::string help);
// Which packets: a rule without its verb; all.
CommandField packet_filter();
}  // namespace fields

// The fields of a request that its row has found good.
class Asked {
 public:
  explicit Asked(nlohmann::ordered_json& request) : request_(request) {}
  bool has(const char* name) const { return request_.contains(name); }
  std::string& text(const char* name) { return request_[name].get_ref<std::string&>(); }
  uint64_t number(const char* name) const { return request_[name].get<uint64_t>(); }
  bool flag(const char* name) const { return request_[name].get<bool>(); }
  const nlohmann::ordered_json& value(const char* name) const { return request_[name]; }

 private:
  nlohmann::ordered_json& request_;
};

struct CommandRow {
  using Json = nlohmann::ordered_json;
  std::string name, help, examples;  // examples: one a line
  std::vector<CommandField> fields;
  // One that answers; none: the row is the head of a group, or another spelling of `request` on the command line.
  Result<Json> (*run)(Control& control, Asked& asked) = nullptr;
  // In its place, where the result is much and written without values.
  Result<std::string> (*run_as_text)(Control& control, Asked& asked) = nullptr;
  std::string (*text)(const Json& result, Rates* rates) = nullptr;  // for people; none: nothing is said
  bool watched = false;  // the command line shows it again and again, then with rates
  // It may change tables, classes of service or the graph: one at a time does that, and it may take long. All others
  // are answered at once, from what is there.
  bool changes = false;
  bool patches = false;  // it changes a table by text: a short one takes no longer than a look
  std::string path;      // of HTTP, behind /api/v1/; empty: it has none
  std::string request;   // empty: `name`
  bool on_command_line = true;
  bool (*there)(const Control& control) = nullptr;  // whether this process has what it asks; none: every process has

  bool answers() const { return run != nullptr || run_as_text != nullptr; }
};

// All of them, those of each kind of tables that is registered at the first call among them; a head stands before its
// group.
const std::vector<CommandRow>& command_rows();
// What answers requests of this name, or nullptr.
const CommandRow* find_command(std::string_view name);
// Fills in what a request leaves out. Errors: a field is absent, of another type, out of range, or none of the row's.
Result<void> read_fields(const CommandRow& row, nlohmann::ordered_json& request);
// docs/reference/requests.md: every request with its fields.
std::string requests_page();
// The error of a request whose command is none of these.
Error no_command(const std::string& name);

// By folder of what they ask; command.cpp joins them.
std::vector<CommandRow> runtime_commands();
std::vector<CommandRow> rule_commands();
std::vector<CommandRow> route_commands();
std::vector<CommandRow> table_commands();
std::vector<CommandRow> qos_commands();
std::vector<CommandRow> graph_commands();
std::vector<CommandRow> trace_commands();
std::vector<CommandRow> capture_commands();
std::vector<CommandRow> log_commands();
std::vector<CommandRow> flow_commands();

}  // namespace sluice
