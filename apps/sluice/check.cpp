// sluice check: what is wrong with a configuration, rules or routes, without packets.
// host only
#include <algorithm>
#include <memory>
#include <set>

#include "app.h"
#include "base/input_file.h"
#include "formats/adjacency_text.h"
#include "formats/qos_text.h"
#include "inputs.h"
#include "pipeline.h"
#include "run_options.h"
#include "run_standard.h"
#include "shadowed.h"

namespace sluice::app {
namespace {

struct CheckOptions {
  std::vector<std::string> words, maps;
  std::string rules, format = "auto", routes, adjacencies, policy, qos;
  ListFiles lists;
  bool shadowed = false;
  bool names_nothing() const {
    return words.empty() && rules.empty() && routes.empty() && adjacencies.empty() && qos.empty() &&
           std::ranges::all_of(lists, [](const auto& one) { return one.second.empty(); });
  }
};

// What is wrong in one place hides nothing of the others.
class Wrong {
 public:
  void add(Failure& failure) {
    Error& error = failure.error;
    if (code_ == Exit::kOk || failure.code < code_) code_ = failure.code;
    all_.system |= error.system;
    all_.message += (all_.message.empty() ? "" : "; ") + error.message;
    if (all_.hint.empty()) all_.hint = std::move(error.hint);
    all_.diagnostics.insert(all_.diagnostics.end(), error.diagnostics.begin(), error.diagnostics.end());
  }
  template <typename F>
  void look(F&& part) {
    try {
      part();
    } catch (Failure& failure) {
      add(failure);
    }
  }
  bool any() const { return code_ != Exit::kOk; }
  // Ends the command where anything is wrong.
  void end() {
    if (any()) fail(code_, std::move(all_));
  }

 private:
  Error all_;
  Exit code_ = Exit::kOk;
};

// What a file for `run --config` names, as options of this command.
CheckOptions options_in(const std::string& file, Wrong& wrong) {
  const RunFlags run = read_run_config(file, [&](Failure& failure) { wrong.add(failure); });
  CheckOptions o;
  o.words = run.words;
  wrong.look([&] { check_run_options(run, o.words.empty() ? "" : o.words.front()); });
  if (o.words.empty()) wrong.look([&] { (void)run_ends(run); });
  o.rules = run.acl;
  o.format = run.format;
  o.routes = run.routes;
  o.adjacencies = run.adjacencies;
  o.qos = run.qos;
  o.maps = run.maps;
  return o;
}

// Opens them all. Returns those that cannot be read.
std::set<std::string> open_each(const NamedInputs& named, InputSet& inputs, Wrong& wrong) {
  std::set<std::string> closed;
  for (const auto& [option, path] : named) {
    if (path.empty()) continue;
    if (auto opened = inputs.open(path); !opened) {
      closed.insert(path);
      wrong.look([&] { fail(Exit::kIo, std::move(opened).error()); });
    }
  }
  return closed;
}

void check_adjacencies(const std::vector<std::string>& files, InputSet& inputs) {
  // One table, as a run reads them.
  std::string lines;
  std::vector<std::string> names;
  for (const std::string& one : files) {
    InputFile input = need(inputs.take(one), Exit::kIo);
    if (need(Image::is_next(input))) {
      (void)need(Image::read(input, ImageKind::kAdjacency));
      continue;
    }
    names.push_back(input.name());
    lines += need(input.table());
    if (!lines.empty() && lines.back() != '\n') lines += '\n';
  }
  (void)need(parse_next_hops(lines, fmt::format("{}", fmt::join(names, "+"))));
}

// Returns what there is to say.
std::string check_graph_file(const std::string& file, Defines& defines, Json& json) {
  if (file.empty()) fail(Exit::kUsage, "no configuration is given");
  std::string configuration = read_configuration(file, defines);
  const auto pipeline = load_pipeline(parse_text(std::move(configuration), title_of(file), defines), defines, {}, false,
                                      false, Scheduled::kAllowed);
  json["elements"] = pipeline->router.elements.size();
  json["warnings"] = pipeline->router.warnings.size();
  json["tables"] = Json::array();
  for (const TableLoad& load : pipeline->table_report.loads) json["tables"].push_back(to_json(load));
  return fmt::format("{}: {}, {}, no errors\n", file, counted(pipeline->router.elements.size(), "element"),
                     counted(pipeline->table_report.loads.size(), "table"));
}

Exit check_named(const CheckOptions& o, Wrong& wrong);
Exit check_config(const std::string& file);

Exit check(const CheckOptions& o) {
  if (o.words.size() == 1 && is_config_file(o.words.front())) {
    if (!o.rules.empty() || !o.routes.empty() || o.shadowed)
      fail(Exit::kUsage, fmt::format("'{}' names its rules and routes itself", o.words.front()));
    return check_config(o.words.front());
  }
  if (o.names_nothing()) fail(Exit::kUsage, "nothing to check", "give a .click file, --rules FILE or --routes FILE");
  if (o.shadowed && o.rules.empty()) fail(Exit::kUsage, "--shadowed needs --rules");
  if (!o.policy.empty() && !o.shadowed) fail(Exit::kUsage, "--default needs --shadowed");
  Wrong wrong;
  return check_named(o, wrong);
}

Exit check_named(const CheckOptions& o, Wrong& wrong) {
  auto named_words = read_words(o.words, o.maps);
  const std::string& file = named_words.first;
  Defines& defines = named_words.second;
  std::vector<std::string> route_files = split_route_files(o.routes);
  std::vector<std::string> adjacency_files = split_commas(o.adjacencies);
  NamedInputs named = {{"--rules", o.rules}};
  for (const std::string& one : adjacency_files) named.emplace_back("--adjacencies", one);
  for (const auto& [kind, list] : o.lists) named.emplace_back("--" + kind->option, list);
  add_route_inputs(named, "--routes", route_files);
  named.emplace_back("--qos", o.qos);
  NamedInputs all = named;
  all.emplace_back("the configuration", file);
  try {
    check_read_once(all);
  } catch (Failure& failure) {
    // Reading on would wait for what is not there any more.
    wrong.add(failure);
    wrong.end();
  }
  InputSet inputs;
  const std::set<std::string> closed = open_each(named, inputs, wrong);
  std::erase_if(route_files, [&](const std::string& one) { return closed.contains(path_of_route_file(one)); });
  std::erase_if(adjacency_files, [&](const std::string& one) { return closed.contains(one); });
  for (const auto& [option, path] : all) {
    if (const auto id = read_once_id(path)) defines.read_once.emplace(*id, option);
  }
  Json json{{"ok", true}};
  std::string text;
  if (!o.rules.empty() && !closed.contains(o.rules))
    wrong.look([&] {
      const LoadedAcl acl = load_acl(inputs, o.rules, o.format, "");
      json["rules"] = acl.count;
      text += fmt::format("{}: {} ({}), no errors\n", o.rules, counted(acl.count, "rule"), acl.format);
      if (o.shadowed) text += report_shadowed(acl, o.policy, json);
    });
  if (!route_files.empty())
    wrong.look([&] {
      const LoadedRoutes routes = load_routes(inputs, route_files, "");
      json["routes4"] = routes.rib.routes4().size();
      json["routes6"] = routes.rib.routes6().size();
      json["warnings"] = routes.report.warnings.size();
      text += fmt::format("{}: {} and {}, no errors\n", o.routes, counted(routes.rib.routes4().size(), "IPv4 route"),
                          counted(routes.rib.routes6().size(), "IPv6 route"));
    });
  if (!adjacency_files.empty())
    wrong.look([&] {
      check_adjacencies(adjacency_files, inputs);
      text += fmt::format("{}: no errors\n", o.adjacencies);
    });
  for (const auto& [kind, list] : o.lists) {
    if (list.empty() || closed.contains(list)) continue;
    wrong.look([&] {
      InputFile input = need(inputs.take(list), Exit::kIo);
      const size_t entries = need(read_list(*kind, input)).size();
      json[kind->option] = entries;
      text += fmt::format("{}: {}, no errors\n", list, counted(entries, kind->entry));
    });
  }
  if (!o.qos.empty() && !closed.contains(o.qos))
    wrong.look([&] {
      InputFile input = need(inputs.take(o.qos), Exit::kIo);
      const QosModel model = need(parse_qos(need(input.table()), input.name()));
      json["classes"] = model.classes.size();
      text += fmt::format("{}: {}, no errors\n", o.qos, counted(model.classes.size(), "class"));
    });
  if (!o.words.empty()) wrong.look([&] { text += check_graph_file(file, defines, json); });
  wrong.end();
  print_result(json, text);
  return Exit::kOk;
}

Exit check_config(const std::string& file) {
  Wrong wrong;
  const CheckOptions named = options_in(file, wrong);
  if (!wrong.any()) note(fmt::format("{}: no errors", file));
  if (!named.names_nothing()) return check_named(named, wrong);
  wrong.end();
  if (json_output()) print_json({{"ok", true}});
  return Exit::kOk;
}

}  // namespace

void add_check(Command root) {
  auto o = std::make_shared<CheckOptions>();
  Command sub = add_subcommand(
      root, "check", "Start here",
      "Reports every error in a configuration, rules or routes, with its location. Nothing is run.",
      "sluice check edge.click\nsluice check sluice.toml\nsluice check --rules edge.acl --shadowed\nsluice check "
      "--routes rib4.txt,rib6.txt -o "
      "json",
      [o] { return check(*o); });
  sub->add_option("configuration", "FILE [NAME=VALUE...]", o->words,
                  "A Click file ('-': stdin) and NAME=VALUE for its variables, or a TOML file of run's --config");
  add_map_option(*sub, o->maps);
  sub->add_option("--rules", "FILE", o->rules, "Rule file or image");
  add_format_option(*sub, o->format);
  sub->add_flag("--shadowed", o->shadowed,
                "Also report unneeded rules of --rules: those that no packet reaches, and those whose removal changes "
                "no verdict");
  sub->add_option("--default", "ACTION", o->policy,
                  "With --shadowed: action for packets that no rule matches: deny or permit (default: unknown)")
      ->check(OneOf{{"deny", "permit"}});
  sub->add_option("--routes", "FILE[,FILE]", o->routes, "Route files or an image");
  add_list_options(*sub, o->lists);
}

}  // namespace sluice::app
