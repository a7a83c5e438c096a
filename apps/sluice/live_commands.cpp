// The commands that ask and change a running process: each as its row says (control/command.h). host only
#include <cctype>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "base/atomic_file.h"
#include "control/answer_text.h"
#include "control/command_text.h"
#include "control/control_socket.h"
#include "control/sent_file.h"
#include "graph/table_kind.h"
#include "inputs.h"
#include "live.h"
#include "live_commands.h"
#include "run_standard.h"

namespace sluice::app {
namespace {

using Type = CommandField::Type;

// What the other fields of a request take.
constexpr uint64_t kFieldRoom = 65536;

// Files as requests have them: read here, where the user named them, and sent.
Json sent(const std::vector<std::string>& files) {
  NamedInputs named;
  add_route_inputs(named, "FILE", files);
  check_read_once(named);
  Json all = Json::array();
  uint64_t room = ControlSocket::kMaxLine - kFieldRoom;
  for (const std::string& file : files) {
    const std::string path = path_of_route_file(file);
    all.push_back(need(send_file(path, room, file.substr(path.size())), Exit::kIo));
  }
  return all;
}
Json sent(const std::string& file) {
  uint64_t room = ControlSocket::kMaxLine - kFieldRoom;
  return need(send_file(file, room), Exit::kIo);
}

// --- options ---

constexpr uint64_t kNone = ~uint64_t{0};  // of a number that was not given

bool is_many(const CommandField& field) {
  return field.type == Type::kWords || field.type == Type::kLine || field.type == Type::kPacket;
}

void add_field(Command sub, const CommandField& field, AskedFor::Value& value) {
  Option option = field.type == Type::kFlag || field.type == Type::kPreset
                      ? sub.add_flag(field.option, value.flag, field.help)
                  : field.type == Type::kNumber ? sub.add_option(field.option, value.number, field.help)
                  : is_many(field)              ? sub.add_option(field.option, value.words, field.help)
                                                : sub.add_option(field.option, value.text, field.help);
  if (field.type == Type::kNumber) {
    value.number = field.shown.is_null() ? kNone : field.shown.get<uint64_t>();
    option.check(Range(field.low, field.high));
  } else if (field.shown.is_string()) {
    value.text = field.shown.get<std::string>();
  }
  if (!field.value.empty()) option.type_name(field.value);
  if (!field.words.empty()) option.check(OneOf{field.words});
  if (field.check != nullptr) option.check(field.check);
  if (field.required) option.required();
  if (!field.shown.is_null()) option.capture_default_str();
  // One word of a line.
  if (field.type == Type::kLine && !field.value.ends_with("...")) option.expected(1);
  for (const std::string& other : field.excludes) option.excludes(other.c_str());
}

// The step of a change: the command's last word, where it goes, what was written.
std::string line_of(const CommandRow& row, const Json& body, const std::vector<std::string>& words) {
  std::string line = row.name.substr(row.name.rfind(' ') + 1);
  if (body.contains("at")) line += fmt::format(" at {}", count_of(body, "at"));
  line += fmt::format(" {}", fmt::join(words, " "));
  if (line.find('\n') != std::string::npos) fail(Exit::kUsage, "a change on the command line is one line");
  return line;
}

std::string frame_of(const std::vector<std::string>& words) {
  std::string hex;
  for (const uint8_t byte : need(parse_packet_text(fmt::format("{}", fmt::join(words, " ")), "PACKET")))
    hex += fmt::format("{:02x}", byte);
  return hex;
}

void put_field(Json& body, const CommandRow& row, const CommandField& field, const AskedFor::Value& value) {
  switch (field.type) {
    case Type::kText:
      if (field.required || !value.text.empty()) body[field.name] = value.text;
      break;
    case Type::kWords:
      if (!value.words.empty()) body[field.name] = fmt::format("{}", fmt::join(value.words, " "));
      break;
    case Type::kLine:
      body[field.name] = line_of(row, body, value.words);
      body["name"] = "command line";
      break;
    case Type::kContents: {
      InputFile file = need(InputFile::open(value.text), Exit::kIo);
      body[field.name] = need(file.text(ControlSocket::kMaxLine));
      body["name"] = file.name();
      break;
    }
    case Type::kPacket:
      body[field.name] = frame_of(value.words);
      break;
    case Type::kNumber:
      if (value.number != kNone) body[field.name] = value.number;
      break;
    case Type::kFlag:
      if (value.flag) body[field.name] = true;
      break;
    case Type::kFile:
      body[field.name] = sent(value.text);
      break;
    case Type::kFiles:
      body[field.name] = sent(split_route_files(value.text));
      break;
    case Type::kPreset:
      if (value.flag) body.update(field.otherwise);
      break;
  }
}

// --- what is more than a request ---

// The tables that were changed, as files of a folder: for those that cannot go back to where they came from.
Exit save_to(ClientFlags flags, const std::string& folder) {
  flags.socket = socket_of(flags);
  const bool standard = request(flags, {{"command", "show runtime"}}).at("configuration") == kStandardGraph;
  struct Text {
    std::string kind, table, path;
  };
  std::vector<Text> texts;
  std::vector<AtomicFile> files;  // of those
  std::set<std::string> paths;
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(folder, error).lexically_normal().string();
  const Json tables = request(flags, {{"command", "show tables"}});
  std::vector<std::pair<std::string, std::string>> unsaved;  // kind and name
  for (const Json& table : tables.at("tables")) {
    if (table.at("unsaved").get<bool>()) unsaved.emplace_back(table.at("kind"), table.at("name"));
  }
  if (tables.contains("qos") && tables.at("qos").at("unsaved").get<bool>()) unsaved.emplace_back("qos", "");
  for (const auto& [kind, name] : unsaved) {
    const Json r = request(flags, {{"command", "show text"}, {"kind", kind}, {"table", name}});
    // Names come from another process, and stay in the folder.
    std::string word;
    for (const char c : kind == "qos" ? "classes" : name)
      word += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
    const TableKind* const known = find_table_kind(kind);
    const std::string path =
        (std::filesystem::path(absolute) / fmt::format("{}.{}", word, known == nullptr ? "qos" : known->option))
            .string();
    if (!paths.insert(path).second) fail(Exit::kIo, fmt::format("two tables would be written to {}", path));
    AtomicFile file = need(AtomicFile::create(path), Exit::kIo);
    file.write(r.at("text").get_ref<const std::string&>());
    need(file.settle(), Exit::kIo);
    texts.push_back({kind, name, path});
    files.push_back(std::move(file));
  }
  need(AtomicFile::commit(files), Exit::kIo);
  Json saved = Json::array();
  std::string t;
  for (const Text& one : texts) {
    const TableKind* const known = find_table_kind(one.kind);
    const std::string line =
        !standard && known != nullptr ? fmt::format("{}({}, FILE {})", known->element, one.table, one.path)
        : one.kind == "routes"        ? fmt::format("routes = [\"{}\"]", one.path)
                                      : fmt::format("{} = \"{}\"", known == nullptr ? "qos" : known->option, one.path);
    saved.push_back({{"table", one.table}, {"kind", one.kind}, {"file", one.path}, {"configuration", line}});
    t += fmt::format("{}: {}; in the configuration: {}\n", printable(one.path),
                     known == nullptr ? std::string("classes of service")
                                      : fmt::format("{} '{}'", known->words, printable(one.table)),
                     printable(line));
  }
  if (texts.empty()) t = "nothing was changed since its files were read\n";
  print_result(Json{{"saved", saved}}, t);
  return Exit::kOk;
}

std::function<Exit()> add_save_option(Command sub, const AskedFor& asked) {
  auto folder = std::make_shared<std::string>();
  sub.add_option("--to", "DIRECTORY", *folder, "Write each changed table into a file of its own in this directory");
  return [folder, &asked] { return folder->empty() ? show_answer(asked) : save_to(asked, *folder); };
}

// Adds options, and returns what is done in the place of a request alone.
struct More {
  const char* name;
  std::function<Exit()> (*add)(Command sub, const AskedFor& asked);
};
constexpr More kMore[] = {
    {"save", add_save_option}, {"show log", add_follow_option}, {"capture start", add_capture_options}};

void add_row(Command group, const CommandRow& row, const std::string& section) {
  auto asked = std::make_shared<AskedFor>();
  asked->row = &row;
  asked->values.resize(row.fields.size());
  auto run = std::make_shared<std::function<Exit()>>([asked] { return show_answer(*asked); });
  Command sub = add_subcommand(group, row.name.substr(row.name.rfind(' ') + 1), section, row.help, row.examples,
                               [run, asked] { return answered(*run); });
  add_socket_option(sub, *asked);
  if (row.watched) add_watch_options(sub, *asked);
  for (const bool last : {false, true}) {
    // An option that excludes others stands behind them.
    for (size_t f = 0; f < row.fields.size(); ++f) {
      const CommandField& field = row.fields[f];
      if (!field.option.empty() && field.excludes.empty() != last) add_field(sub, field, asked->values[f]);
    }
  }
  for (const More& more : kMore) {
    if (row.name == more.name) *run = more.add(sub, *asked);
  }
}

}  // namespace

Json request_of(const AskedFor& asked) {
  const CommandRow& row = *asked.row;
  Json body{{"command", row.request.empty() ? row.name : row.request}};
  // What a line is made of comes before it.
  for (const bool line : {false, true}) {
    for (size_t f = 0; f < row.fields.size(); ++f) {
      if (!row.fields[f].option.empty() && (row.fields[f].type == Type::kLine) == line)
        put_field(body, row, row.fields[f], asked.values[f]);
    }
  }
  // Some options are for the command line alone, or ask something else.
  const CommandRow* const whole = find_command(body.at("command").get<std::string>());
  Json request{{"command", body.at("command")}};
  for (const CommandField& field : whole->fields) {
    if (!field.is_local && body.contains(field.name)) request[field.name] = std::move(body[field.name]);
  }
  return request;
}

Exit show_answer(const AskedFor& asked) {
  const Json body = request_of(asked);
  const auto text = find_command(body.at("command").get<std::string>())->text;
  // The same process each time.
  ClientFlags client = asked;
  client.socket = socket_of(asked);
  const auto ask = [&] {
    Json answer = request(client, body);
    if (answer.contains("refusing_devices"))
      warn("a device did not take the generation: its packets are processed on the host");
    return answer;
  };
  return watch(asked, ask,
               [&](const Json& r, Rates* rates) { return text == nullptr ? std::string() : text(r, rates); });
}

void add_running(Command root, std::string_view name) {
  Command group = root;
  for (const CommandRow& row : command_rows()) {
    if (!row.on_command_line || row.name.substr(0, row.name.find(' ')) != name) continue;
    const bool alone = row.name == name;
    if (!alone || row.answers()) {
      add_row(group, row, !alone ? "Subcommands" : name == "why" ? "Start here" : "Running process");
      continue;
    }
    group = add_subcommand(root, row.name, "Running process", row.help, row.examples, nullptr);
    group.require_subcommand(1);
  }
}

void add_live_shows(Command show) {
  for (const CommandRow& row : command_rows()) {
    if (row.on_command_line && row.name.starts_with("show ")) add_row(show, row, "Subcommands");
  }
}

}  // namespace sluice::app
