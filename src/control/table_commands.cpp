// host only
// Tables: `show tables`, `show text`, `save`, `reload`, and what changes them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/report.h"
#include "control/sent_file.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"
#include "graph/table_kind.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

Result<Json> show_tables(Control& c, Asked&) {
  Json json{{"generation", c.engine.publisher().generation()}, {"bytes", c.tables->bytes()}};
  if (c.tables->max_bytes() != 0) json["max_memory"] = c.tables->max_bytes();
  json["tables"] = Json::array();
  for (const TableLoad& load : c.tables->loads()) {
    Json one = to_json(load);
    one["changed_in_generation"] = c.tables->changed(load.kind, load.name);
    one["unsaved"] = c.tables->unsaved(load.kind, load.name);
    json["tables"].push_back(std::move(one));
  }
  if (!c.classes.path.empty()) json["qos"] = {{"unsaved", c.classes_changed}};
  return json;
}

std::string tables_text(const Json& r, Rates*) {
  TextTable table({"table", "kind", "algorithm", "entries", "memory", "built in", "changed in"});
  for (const Json& one : r.at("tables")) {
    const uint64_t changed = count_of(one, "changed_in_generation");
    table.add({word_of(one, "name"), word_of(one, "kind"), one.at("algorithm") == "" ? "-" : word_of(one, "algorithm"),
               with_commas(count_of(one, "entries")), human_bytes(one.at("bytes").get<double>()),
               human_seconds(one.at("build_seconds").get<double>()),
               changed == 0 ? "-" : fmt::format("generation {}", changed)});
  }
  return fmt::format(
      "generation {}, {}{}\n{}", count_of(r, "generation"), human_bytes(r.at("bytes").get<double>()),
      r.contains("max_memory") ? fmt::format(" of {}", human_bytes(r.at("max_memory").get<double>())) : "",
      table.str());
}

Result<Json> show_text(Control& c, Asked& asked) {
  const std::string& kind = asked.text("kind");
  std::string name;
  Result<std::string> text = std::string();
  if (kind == "qos") {
    text = classes_text(c);
  } else {
    const TableKind* const known = find_table_kind(kind);
    if (known == nullptr) return Error(fmt::format("'{}' is not a kind of table", kind), "acl, routes or adjacency");
    auto table = only_table(c.tables->tables().of(known->type), known->words.c_str(), asked.text("table"));
    if (!table) return std::move(table).error();
    name = std::move(*table);
    text = c.tables->text(kind, name);
  }
  if (!text) return std::move(text).error();
  return Json{{"kind", kind}, {"table", name}, {"text", std::move(*text)}};
}

Result<Json> save(Control& c, Asked&) {
  if (c.engine.by_packets()) return Error("the tables of this graph change with the graph: there is nothing to save");
  if (c.engine.swaps() != 0) {
    return Error(
        "another graph has taken the place of the one that was started: its tables have no files to go back to",
        "sluice save --to DIRECTORY writes them into files of their own");
  }
  std::optional<LiveTables::AlsoSaved> classes;
  if (c.classes_changed)
    classes.emplace(LiveTables::AlsoSaved{"qos", c.classes.path, c.classes.stamp, classes_text(c)});
  auto saved = c.tables->save(classes);
  if (!saved) return std::move(saved).error();
  if (classes) {
    c.classes_changed = false;
    c.classes.text = std::move(*classes->text);
  }
  Json json{{"saved", Json::array()}};
  for (const LiveTables::Saved& one : *saved) {
    Json said{{"table", one.table}, {"kind", one.kind}, {"file", one.path}, {"entries", one.entries}};
    if (one.in_place) said["in_place"] = true;
    if (one.table.empty()) {
      said.erase("table");
      said.erase("entries");
    }
    json["saved"].push_back(std::move(said));
  }
  return json;
}

std::string saved_text(const Json& r, Rates*) {
  std::string t;
  for (const Json& one : r.at("saved")) {
    t += word_of(one, "file") + ": ";
    if (const TableKind* const kind = find_table_kind(word_of(one, "kind")); kind != nullptr) {
      t += fmt::format("{} '{}', {}", kind->words, word_of(one, "table"),
                       counted(count_of(one, "entries"), kind->entry));
    } else {
      t += "classes of service";
    }
    t += one.contains("in_place") ? " (written in place)\n" : "\n";
  }
  return t.empty() ? "nothing was changed since its files were read\n" : t;
}

Result<Json> reload(Control& c, Asked& asked) {
  if (!c.reload) return Error("this process has no configuration to read again", "start it with --config FILE");
  return c.reload(asked.flag("all"));
}

std::string difference_text(const Json& rules) {
  return fmt::format("{} added, {} deleted", counted(count_of(rules, "added"), "rule"),
                     with_commas(count_of(rules, "deleted")));
}

std::string reloaded_text(const Json& r, Rates*) {
  TextTable table({"table", "kind", "entries", "change"});
  for (const Json& one : r.at("tables"))
    table.add({word_of(one, "table"), word_of(one, "kind"), with_commas(count_of(one, "entries")), reload_text(one)});
  return fmt::format("{}\n{}", generation_text(r), table.str());
}

Json change_json(const TableChange& c) {
  Json json{{"table", c.table}, {"kind", c.kind}, {"algorithm", c.algorithm}, {"committed", c.generation != 0}};
  json["differs"] = c.differs;
  if (c.rules) json["rules"] = {{"added", c.rules->added}, {"deleted", c.rules->deleted}};
  if (c.generation != 0) json["generation"] = c.generation;
  json["entries"] = {{"before", c.entries_before}, {"after", c.entries_after}};
  json["bytes"] = {{"before", c.bytes_before}, {"after", c.bytes_after}, {"peak", c.bytes_peak}};
  json["parse_seconds"] = c.parse_seconds;
  json["build_seconds"] = c.build_seconds;
  if (c.refusing_devices != 0) json["refusing_devices"] = c.refusing_devices;
  json["publish_seconds"] = c.publish_seconds;
  json["seconds"] = c.parse_seconds + c.build_seconds + c.publish_seconds;
  return json;
}

// A change of the graph's tables. `make`: with the table's name and whether it is a dry run.
template <typename Make>
Result<Json> changed(Control& c, Asked& asked, Make&& make) {
  if (c.engine.by_packets())
    return Error("the tables of this graph change with the graph", "replace it: sluice graph swap FILE");
  auto change = make(asked.text("table"), asked.flag("dry_run"));
  if (!change.ok()) return std::move(change).error();
  Json json = change_json(*change);
  json["device"] = c.facts.device;
  return json;
}

template <Result<TableChange> (LiveTables::*kChange)(const std::string&, std::string_view, const std::string&, bool)>
Result<Json> change_by_text(Control& c, Asked& asked) {
  return changed(c, asked, [&](const std::string& table, bool dry_run) {
    return (c.tables->*kChange)(table, asked.text("changes"), asked.text("name"), dry_run);
  });
}

Result<Json> replace_acl(Control& c, Asked& asked) {
  return changed(c, asked, [&](const std::string& table, bool dry_run) -> Result<TableChange> {
    auto choice = parse_rule_format(asked.text("format"));
    if (!choice) return std::move(choice).error();
    auto file = read_sent_file(asked.value("file"));
    if (!file) return std::move(file).error();
    choice->folder = file->folder;
    return c.tables->replace_acl(table, file->input, *choice, dry_run);
  });
}

Result<Json> replace_routes(Control& c, Asked& asked) {
  return changed(c, asked, [&](const std::string& table, bool dry_run) -> Result<TableChange> {
    std::vector<std::string> files;
    InputSet inputs;
    for (const Json& one : asked.value("files")) {
      auto file = read_sent_file(one);
      if (!file) return std::move(file).error();
      const std::string path = path_of_route_file(file->name);
      file->input.set_name(path);
      files.push_back(std::move(file->name));
      inputs.put(path, std::move(file->input));
    }
    return c.tables->replace_routes(table, files, inputs, dry_run);
  });
}

// Of a list of lines: the first word of its commands is its kind's option.
const TableKind& kind_of_command(Asked& asked) {
  const std::string& command = asked.text("command");
  const TableKind* const kind = find_table_kind_by_option(std::string_view(command).substr(0, command.find(' ')));
  SLUICE_CHECK(kind != nullptr);
  return *kind;
}

Result<Json> change_list(Control& c, Asked& asked) {
  return changed(c, asked, [&](const std::string& table, bool dry_run) {
    return c.tables->change_list(kind_of_command(asked), table, asked.text("changes"), asked.text("name"), dry_run);
  });
}

Result<Json> replace_list(Control& c, Asked& asked) {
  return changed(c, asked, [&](const std::string& table, bool dry_run) -> Result<TableChange> {
    auto file = read_sent_file(asked.value("file"));
    if (!file) return std::move(file).error();
    return c.tables->replace_list(kind_of_command(asked), table, file->input, dry_run);
  });
}

std::string change_text(const Json& r, Rates*) {
  const TableKind* const kind = find_table_kind(word_of(r, "kind"));
  const Json &entries = r.at("entries"), &bytes = r.at("bytes");
  const bool committed = r.at("committed").get<bool>();
  const std::string what =
      fmt::format("{} '{}': {} -> {} {}s, {}", kind == nullptr ? "table" : kind->words, word_of(r, "table"),
                  with_commas(count_of(entries, "before")), with_commas(count_of(entries, "after")),
                  kind == nullptr ? "line" : kind->entry, human_bytes(bytes.at("after").get<double>()));
  if (!r.at("differs").get<bool>()) {
    return committed ? fmt::format("no change: generation {} stays\n{}\n", count_of(r, "generation"), what)
                     : fmt::format("no change\n{}\n", what);
  }
  if (!committed) {
    return fmt::format("nothing was changed; the result would be\n{} ({} with the current tables), built in {}\n", what,
                       human_bytes(bytes.at("peak").get<double>()), human_seconds(r.at("build_seconds").get<double>()));
  }
  return fmt::format("generation {} live on {} after {}\n{}{}\n", count_of(r, "generation"), word_of(r, "device"),
                     human_seconds(r.at("seconds").get<double>()), what,
                     r.contains("rules") ? ", " + difference_text(r.at("rules")) : "");
}

// --- rows ---

using Type = CommandField::Type;

// What all commands have that change a table.
std::vector<CommandField> change_fields(CommandField what) {
  using namespace fields;
  return {text("table").as("table", "TABLE", "The table's name (see 'sluice show tables')"),
          flag("dry_run").as("--dry-run", "Build it and report its size, but change nothing"), std::move(what)};
}
// The request that changes a table by text.
CommandRow text_change(std::string name, Result<Json> (*run)(Control&, Asked&)) {
  using namespace fields;
  CommandRow row{.name = std::move(name), .fields = change_fields(text("changes").means("lines of a change"))};
  row.fields.push_back(text("name").means("of the text, for messages"));
  row.run = run;
  row.text = change_text;
  row.changes = row.patches = true;
  row.on_command_line = false;
  return row;
}
// The same, spelled on the command line: of "acl add" the request is "acl change".
CommandRow spelled(std::string name, std::string help, std::string examples, Type type, const char* option,
                   const char* value, const char* what) {
  CommandRow row{.name = std::move(name), .help = std::move(help), .examples = std::move(examples)};
  row.fields = change_fields(fields::typed(type, "changes").as(option, value, what));
  row.request = row.name.substr(0, row.name.find(' ')) + " change";
  return row;
}
// `table`: the name of one in the example.
CommandRow applied(std::string name, const char* table, std::string lines) {
  const std::string example = fmt::format("sluice {} {} --changes today.txt", name, table);
  return spelled(std::move(name), "Applies the changes of a file, all or none: lines " + std::move(lines), example,
                 Type::kContents, "changes,--changes", "FILE", "The changes, one per line ('-': stdin)");
}
CommandRow replaced(std::string name, std::string help, std::string examples, CommandField what,
                    Result<Json> (*run)(Control&, Asked&)) {
  CommandRow row{.name = std::move(name), .help = std::move(help), .examples = std::move(examples)};
  row.fields = change_fields(std::move(what));
  row.run = run;
  row.text = change_text;
  row.changes = true;
  return row;
}

std::vector<CommandRow> acl_rows() {
  using namespace fields;
  std::vector<CommandRow> rows = {
      {.name = "acl",
       .help = "Changes an access list of a running process. A change takes effect as a whole or not at all; every "
               "packet meets the list before it or the list after it; no packet waits.",
       .examples = "sluice acl add acl deny udp from 192.0.2.0/24 to any --at 1\nsluice acl replace acl edge.acl"},
      spelled("acl add", "Adds a native rule, at the end or at a position.",
              "sluice acl add acl deny tcp from any to 192.0.2.7 port 22 --at 1", Type::kLine, "rule", "RULE...",
              "The rule"),
      spelled("acl delete", "Deletes a rule by position, or the first rule equal to the one given.",
              "sluice acl delete acl 17\nsluice acl delete acl deny udp from 192.0.2.0/24 to any", Type::kLine, "rule",
              "N|RULE...", "The rule or its position"),
      replaced("acl replace", "Replaces the whole list by the rules of a file.",
               "sluice acl replace acl edge.acl\nsluice acl replace acl edge.acl --dry-run",
               typed(Type::kFile, "file").as("file", "FILE", "Rules of any format, or an image ('-': stdin)"),
               replace_acl),
      applied("acl apply", "acl", "'add [at N] RULE', 'delete N|RULE', 'replace N RULE'."),
      text_change("acl change", change_by_text<&LiveTables::change_acl>),
  };
  rows[1].fields.push_back(number("at", 1, RuleSet::kMaxRules)
                               .as("--at", "N", "Position of the new rule, from 1 (default: the last)")
                               .local());
  rows[3].fields.push_back(text("format", "auto")
                               .as("--format", "FORMAT", fmt::format("Format of the rule file: {}", kRuleFormatHelp))
                               .shows("auto")
                               .checked(rule_format_problem));
  return rows;
}

std::vector<CommandRow> routes_rows() {
  using namespace fields;
  const char* const words =
      "PREFIX [via] NEXTHOP [metric N] [source NAME] [preference N]: as in a route file; the default source is "
      "'control', which is preferred to all others";
  return {
      {.name = "routes",
       .help = "Changes a route table of a running process. A change takes effect as a whole or not at all; every "
               "packet meets the table before it or the table after it; no packet waits.",
       .examples = "sluice routes add fib 192.0.2.0/24 via 10.0.0.1\nsluice routes replace fib rib4.txt,rib6.txt"},
      spelled("routes add",
              "Adds a route, or changes the next hop of the route with the same prefix, source and metric.",
              "sluice routes add fib 192.0.2.0/24 via 10.0.0.1\n"
              "sluice routes add fib 192.0.2.0/24 via 10.0.0.9 source ospf metric 20",
              Type::kLine, "route", "ROUTE...", words),
      spelled("routes append", "Adds a next hop to the route with the same prefix, source and metric.",
              "sluice routes append fib 192.0.2.0/24 via 10.0.0.2", Type::kLine, "route", "ROUTE...", words),
      spelled("routes delete", "Deletes the route in use for a prefix, one source's route, or all routes of a source.",
              "sluice routes delete fib 192.0.2.0/24\nsluice routes delete fib 192.0.2.0/24 source ospf\n"
              "sluice routes delete fib all source bgp",
              Type::kLine, "prefix", "PREFIX...", "PREFIX [metric N] [source NAME], or 'all source NAME'"),
      replaced("routes replace", "Replaces the whole table by the routes of files.",
               "sluice routes replace fib rib4.txt,rib6.txt",
               typed(Type::kFiles, "files")
                   .as("files", "FILE[,FILE]",
                       "Route files (text, MRT, or as ip, FRR, BIRD or route print them), comma-separated, each "
                       "optionally followed by ,source=NAME, ,preference=N or (MRT) ,peer=PEER"),
               replace_routes),
      applied("routes apply", "fib",
              "'add ROUTE', 'append ROUTE' and 'delete PREFIX', with the arguments of the commands of the same names."),
      text_change("routes change", change_by_text<&LiveTables::change_routes>),
  };
}

std::vector<CommandRow> adjacencies_rows() {
  return {
      {.name = "adjacencies",
       .help = "Changes the adjacencies of a running process.",
       .examples = "sluice adjacencies set adj 10.0.0.1 02:00:00:00:00:01 02:00:00:00:00:02 3"},
      spelled("adjacencies set", "Sets the adjacencies of a next hop, replacing all earlier ones.",
              "sluice adjacencies set adj 10.0.0.1 02:00:00:00:00:01 02:00:00:00:00:02 3 mtu 9000\n"
              "sluice adjacencies set adj core group 10.0.0.1 10.0.0.2*3 resilient 128",
              Type::kLine, "line", "LINE...", "A line of an adjacency file"),
      spelled("adjacencies delete", "Deletes the adjacencies of a next hop.", "sluice adjacencies delete adj 10.0.0.1",
              Type::kLine, "next-hop", "NEXTHOP", "The next hop"),
      applied("adjacencies apply", "adj", "'set LINE' and 'delete NEXTHOP'."),
      text_change("adjacencies change", change_by_text<&LiveTables::change_adjacencies>),
  };
}

std::vector<CommandRow> list_rows(const TableKind& kind) {
  using namespace fields;
  const std::string& name = kind.option;
  const std::string example = fmt::format("sluice {} add list {}", name, kind.examples[0]);
  std::vector<CommandRow> rows = {
      {.name = name,
       .help = fmt::format("Changes a {} of a running process. A change takes effect as a whole or not at all; every "
                           "packet meets the table before it or the table after it; no packet waits.",
                           kind.words),
       .examples = example},
      spelled(name + " add", fmt::format("Adds a {}, at the end.", kind.entry), example, Type::kLine, "entry",
              "ENTRY...", "The line to add"),
      spelled(name + " delete", fmt::format("Deletes a {}.", kind.entry),
              fmt::format("sluice {} delete list {}", name, kind.examples[0]), Type::kLine, "entry", "ENTRY...",
              "The line to delete"),
      replaced(name + " replace", "Replaces the whole table by the lines of a file.",
               fmt::format("sluice {} replace list list.{}", name, name),
               typed(Type::kFile, "file").as("file", "FILE", "Lines, or an image ('-': stdin)"), replace_list),
      applied(name + " apply", "list", "'add ENTRY' and 'delete ENTRY'."),
      text_change(name + " change", change_list),
  };
  rows.back().patches = false;
  return rows;
}

}  // namespace

std::string generation_text(const Json& reload) {
  const uint64_t generation = count_of(reload, "generation");
  return reload.at("differs").get<bool>() ? fmt::format("generation {} live", generation)
                                          : fmt::format("no change, generation {} stays", generation);
}

std::string reload_text(const Json& table) {
  const std::string how = word_of(table, "change");
  return how == "rules" ? difference_text(table.at("rules")) : how;
}

std::vector<CommandRow> table_commands() {
  using namespace fields;
  std::vector<CommandRow> rows = {
      {.name = "show tables",
       .help = "The tables of a running process: algorithm, size, memory, last change.",
       .examples = "sluice show tables",
       .run = show_tables,
       .text = tables_text,
       .watched = true,
       .path = "tables"},
      {.name = "show text",
       .help = "The text that a table, or the classes of service, would be read from.",
       .fields = {text("kind").means("acl, routes, adjacency or qos"), text("table", "")},
       .run = show_text,
       .text = [](const Json& r, Rates*) { return word_of(r, "text"); },
       .on_command_line = false},
      {.name = "save",
       .help = "Saves the changes of a running process: the tables that 'sluice acl', 'routes' and 'adjacencies' have "
               "changed, and the classes of service that 'sluice qos' has changed, go into the files that they were "
               "read from, so that a reload or a restart keeps them. Lines that are still true stay as they are, with "
               "their comments. All files are written, or none: it is an error if a table comes from several files, "
               "from a compressed or compiled file or from one of another format, if a rate is that of one port alone, "
               "or if a file was written since it was read. --to writes the changes into a directory instead, and "
               "prints the lines of the configuration to edit.",
       .examples = "sluice save\nsluice save --control /run/sluice/control\nsluice save --to /etc/sluice/saved",
       .run = save,
       .text = saved_text,
       .changes = true},
      {.name = "reload",
       .help = "Reads the configuration of a running process again: its file (run --config), tables and classes of "
               "service. All take effect with one generation, or nothing does: then every error is shown. Tables whose "
               "files have not changed are not read; changes that stand in no file are undone. Options that need a "
               "restart are named. SIGHUP does the same.",
       .examples = "sluice reload\nsluice reload --control /run/sluice/control\nsluice reload --all",
       .fields = {flag("all").as("--all", "Read all files, also those that have not changed since they were read")},
       .run = reload,
       .text = reloaded_text,
       .changes = true},
  };
  for (const auto& kind : {acl_rows, routes_rows, adjacencies_rows}) {
    for (CommandRow& row : kind()) rows.push_back(std::move(row));
  }
  for (const TableKind* kind : table_kinds()) {
    if (!kind->is_list()) continue;
    for (CommandRow& row : list_rows(*kind)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice
