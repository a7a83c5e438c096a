// host only
#include "control/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace sluice {

using Json = nlohmann::ordered_json;
using Type = CommandField::Type;

CommandField& CommandField::as(std::string option_name, std::string value_name, std::string option_help) {
  option = std::move(option_name);
  value = std::move(value_name);
  help = std::move(option_help);
  return *this;
}
CommandField& CommandField::as(std::string option_name, std::string option_help) {
  return as(std::move(option_name), {}, std::move(option_help));
}
CommandField& CommandField::shows(Json given) {
  shown = std::move(given);
  return *this;
}
CommandField& CommandField::one_of(std::vector<std::string> all) {
  words = std::move(all);
  return *this;
}
CommandField& CommandField::never_with(std::vector<std::string> options) {
  excludes = std::move(options);
  return *this;
}
CommandField& CommandField::checked(std::string (*problem)(const std::string&)) {
  check = problem;
  return *this;
}
CommandField& CommandField::needed() {
  required = true;
  return *this;
}
CommandField& CommandField::means(std::string text) {
  help = std::move(text);
  return *this;
}
CommandField& CommandField::local() {
  is_local = true;
  return *this;
}

namespace fields {

CommandField typed(Type type, std::string name) {
  CommandField field;
  field.name = std::move(name);
  field.type = type;
  field.required = true;
  return field;
}
CommandField text(std::string name) {
  return typed(Type::kText, std::move(name));
}
CommandField text(std::string name, std::string otherwise) {
  CommandField field = text(std::move(name));
  field.required = false;
  field.otherwise = std::move(otherwise);
  return field;
}
CommandField number(std::string name, uint64_t low, uint64_t high) {
  CommandField field = typed(Type::kNumber, std::move(name));
  field.required = false;
  field.low = low;
  field.high = high;
  return field;
}
CommandField number(std::string name, uint64_t low, uint64_t high, uint64_t otherwise) {
  CommandField field = number(std::move(name), low, high);
  field.otherwise = otherwise;
  return field;
}
CommandField flag(std::string name) {
  CommandField field = typed(Type::kFlag, std::move(name));
  field.required = false;
  field.otherwise = false;
  return field;
}
CommandField preset(std::string option, Json fields, std::string help) {
  CommandField field = typed(Type::kPreset, {});
  field.required = false;
  field.otherwise = std::move(fields);
  return field.as(std::move(option), std::move(help)).local();
}
CommandField from(uint64_t most, const std::string& what) {
  return number("from", 1, most, 1).as("--from", "N", fmt::format("First {} to show, from 1", what)).shows(1);
}
CommandField count(uint64_t most, uint64_t otherwise, uint64_t shown, std::string help) {
  return number("count", 1, most, otherwise).as("--count", "N", std::move(help)).shows(shown);
}

CommandField packet_filter() {
  CommandField field = text("filter", "");
  field.type = Type::kWords;
  return field.as(
      "filter", "FILTER...",
      "Which packets: a native rule without its verb, such as 'udp from any to any port 53' (default: all)");
}

}  // namespace fields

const std::vector<CommandRow>& command_rows() {
  static const std::vector<CommandRow> all = [] {
    std::vector<CommandRow> rows;
    for (const auto& group : {runtime_commands, rule_commands, route_commands, table_commands, qos_commands,
                              graph_commands, trace_commands, capture_commands, log_commands, flow_commands}) {
      for (CommandRow& row : group()) rows.push_back(std::move(row));
    }
    return rows;
  }();
  return all;
}

const CommandRow* find_command(std::string_view name) {
  const auto& rows = command_rows();
  const auto found = std::ranges::find_if(rows, [&](const CommandRow& r) { return r.answers() && r.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

Error no_command(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandRow& row : command_rows()) {
    if (row.answers()) names.push_back(row.name);
  }
  const std::string near = closest_match(name, names);
  return Error(fmt::format("'{}' is not a command", name), near.empty()
                                                               ? fmt::format("commands: {}", fmt::join(names, ", "))
                                                               : fmt::format("did you mean '{}'?", near));
}

namespace {

// What a value has to be; empty: it is.
std::string expected_of(const CommandField& field, const Json& value) {
  if (field.type == Type::kNumber) {
    const bool good =
        value.is_number_unsigned() && value.get<uint64_t>() >= field.low && value.get<uint64_t>() <= field.high;
    return good ? std::string() : fmt::format("a number from {} to {}", field.low, field.high);
  }
  if (field.type == Type::kFlag) return value.is_boolean() ? "" : "true or false";
  if (field.type == Type::kFiles) return value.is_array() && !value.empty() ? "" : "a list of files";
  if (field.type == Type::kFile) return {};  // read_sent_file says it
  return value.is_string() ? "" : "a string";
}

}  // namespace

Result<void> read_fields(const CommandRow& row, Json& request) {
  std::vector<std::string> known = {"command"};
  Error error;
  for (const CommandField& field : row.fields) {
    if (field.is_local) continue;
    known.push_back(field.name);
    std::string problem;
    if (const auto value = request.find(field.name); value != request.end()) {
      if (const std::string expected = expected_of(field, *value); !expected.empty())
        problem = fmt::format("the field '{}' is not {}", field.name, expected);
    } else if (field.required) {
      problem = fmt::format("the field '{}' is missing", field.name);
    } else if (!field.otherwise.is_null()) {
      request[field.name] = field.otherwise;
    }
    if (error.message.empty() && !problem.empty()) error = Error(std::move(problem));
  }
  for (const auto& [name, value] : request.items()) {
    if (!error.message.empty()) break;
    if (name == "v" || std::ranges::find(known, name) != known.end()) continue;
    const std::string near = closest_match(name, known);
    error = Error(fmt::format("'{}' is not a field of this command", name),
                  near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
  }
  if (!error.message.empty()) return error;
  return {};
}

namespace {

std::string field_text(const CommandField& field) {
  std::string t = fmt::format("`{}`: ", field.name);
  if (field.type == Type::kNumber) {
    t += field.high == ~uint64_t{0} ? std::string("a number") : fmt::format("{} to {}", field.low, field.high);
  } else {
    t += field.type == Type::kFlag    ? "true or false"
         : field.type == Type::kFile  ? "a file"
         : field.type == Type::kFiles ? "files"
                                      : "text";
  }
  if (field.required) t += ", needed";
  if (field.type == Type::kNumber && !field.otherwise.is_null()) t += fmt::format(" ({})", field.otherwise.dump());
  if (field.otherwise.is_string() && field.otherwise != "")
    t += fmt::format(" ({})", field.otherwise.get<std::string>());
  // On the command line it is written in words.
  if (field.type == Type::kPacket) return t + "; bytes in hexadecimal, from the Ethernet header on";
  return field.help.empty() ? t : t + "; " + field.help;
}

// For the cell of a table.
std::string in_cell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, "\\");
  return text;
}

}  // namespace

std::string requests_page() {
  std::string t =
      "# Requests to a running process\n\nGenerated by `./dev docs` from the rows that requests are read by. A request "
      "is one JSON object on a line, `{\"v\": 1, \"command\": ..., fields}`; [control](../design/control.md) says what "
      "answers and files are. In brackets stands what a field is where it is absent. Requests of the third column take "
      "their turn as changes; a path is that of HTTP behind `/api/v1/`.\n\n"
      "| command | fields | changes | path |\n|---|---|---|---|\n";
  for (const CommandRow& row : command_rows()) {
    if (!row.answers()) continue;
    std::vector<std::string> fields;
    for (const CommandField& field : row.fields) {
      if (!field.is_local) fields.push_back(field_text(field));
    }
    t += fmt::format("| `{}` | {} | {} | {} |\n", row.name, in_cell(fmt::format("{}", fmt::join(fields, "<br>"))),
                     row.changes ? "yes" : "", row.path);
  }
  return t;
}

}  // namespace sluice
