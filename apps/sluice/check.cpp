// sluice check: what is wrong with a configuration, rules or routes, without packets.
// host only
#include <memory>

#include "app.h"
#include "base/input_file.h"
#include "formats/qos_text.h"
#include "inputs.h"
#include "pipeline.h"
#include "run_options.h"
#include "shadowed.h"

namespace sluice::app {
namespace {

struct CheckOptions {
  std::vector<std::string> words, maps;
  std::string rules, format = "auto", routes, policy, qos;
  bool shadowed = false;
};

// What a file for `run --config` names, as options of this command.
CheckOptions options_in(const std::string& file) {
  const RunFlags run = read_run_config(file);
  CheckOptions o;
  o.words = run.words;
  check_run_options(run, o.words.empty() ? "" : o.words.front());
  o.rules = run.acl;
  o.format = run.format;
  o.routes = run.routes;
  o.qos = run.qos;
  o.maps = run.maps;
  return o;
}

Exit check_config(const std::string& file);

Exit check(const CheckOptions& o) {
  if (o.words.size() == 1 && is_config_file(o.words.front())) {
    if (!o.rules.empty() || !o.routes.empty() || o.shadowed)
      fail(Exit::kUsage, fmt::format("'{}' names its rules and routes itself", o.words.front()));
    return check_config(o.words.front());
  }
  const bool given = !o.words.empty() || !o.rules.empty() || !o.routes.empty() || !o.qos.empty();
  if (!given) fail(Exit::kUsage, "nothing to check", "give a .click file, --rules FILE or --routes FILE");
  if (o.shadowed && o.rules.empty()) fail(Exit::kUsage, "--shadowed needs --rules");
  if (!o.policy.empty() && !o.shadowed) fail(Exit::kUsage, "--default needs --shadowed");
  auto named_words = read_words(o.words, o.maps);
  const std::string& file = named_words.first;
  Defines& defines = named_words.second;
  const std::vector<std::string> route_files = split_route_files(o.routes);
  NamedInputs named = {{"--rules", o.rules}};
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  named.emplace_back("the configuration", file);
  check_read_once(named);
  for (const auto& [option, path] : named) {
    if (const auto id = read_once_id(path)) defines.read_once.emplace(*id, option);
  }
  Json json{{"ok", true}};
  std::string text;
  // What is wrong in one of them hides nothing of the others.
  Error wrong;
  Exit code = Exit::kOk;
  const auto each = [&](auto&& part) {
    try {
      part();
    } catch (Failure& failure) {
      Error& error = failure.error;
      if (code == Exit::kOk || failure.code < code) code = failure.code;
      wrong.system |= error.system;
      wrong.message += (wrong.message.empty() ? "" : "; ") + error.message;
      if (wrong.hint.empty()) wrong.hint = std::move(error.hint);
      wrong.diagnostics.insert(wrong.diagnostics.end(), error.diagnostics.begin(), error.diagnostics.end());
    }
  };
  if (!o.rules.empty())
    each([&] {
      const LoadedAcl acl = load_acl(inputs, o.rules, o.format, "");
      json["rules"] = acl.count;
      text += fmt::format("{}: {} ({}), no errors\n", o.rules, counted(acl.count, "rule"), acl.format);
      if (o.shadowed) text += report_shadowed(acl, o.policy, json);
    });
  if (!o.routes.empty())
    each([&] {
      const LoadedRoutes routes = load_routes(inputs, route_files, "");
      json["routes4"] = routes.rib.routes4().size();
      json["routes6"] = routes.rib.routes6().size();
      json["warnings"] = routes.report.warnings.size();
      text += fmt::format("{}: {} and {}, no errors\n", o.routes, counted(routes.rib.routes4().size(), "IPv4 route"),
                          counted(routes.rib.routes6().size(), "IPv6 route"));
    });
  if (!o.qos.empty())
    each([&] {
      InputFile input = need(InputFile::open(o.qos), Exit::kIo);
      const QosModel model = need(parse_qos(need(input.table()), input.name()));
      json["classes"] = model.classes.size();
      text += fmt::format("{}: {}, no errors\n", o.qos, counted(model.classes.size(), "class"));
    });
  if (!o.words.empty())
    each([&] {
      if (file.empty()) fail(Exit::kUsage, "no configuration is given");
      std::string configuration = read_configuration(file, defines);
      const auto pipeline = load_pipeline(parse_text(std::move(configuration), title_of(file), defines), defines, {},
                                          false, false, Scheduled::kAllowed);
      json["elements"] = pipeline->router.elements.size();
      json["warnings"] = pipeline->router.warnings.size();
      json["tables"] = Json::array();
      for (const TableLoad& load : pipeline->table_report.loads) json["tables"].push_back(to_json(load));
      text += fmt::format("{}: {}, {}, no errors\n", file, counted(pipeline->router.elements.size(), "element"),
                          counted(pipeline->table_report.loads.size(), "table"));
    });
  if (code != Exit::kOk) fail(code, std::move(wrong));
  if (json_output()) {
    print_json(json);
  } else {
    print_out(text);
  }
  return Exit::kOk;
}

Exit check_config(const std::string& file) {
  const CheckOptions named = options_in(file);
  note(fmt::format("{}: no errors", file));
  if (named.rules.empty() && named.routes.empty() && named.words.empty() && named.qos.empty()) {
    if (json_output()) print_json({{"ok", true}});
    return Exit::kOk;
  }
  return check(named);
}

}  // namespace

void add_check(Command root) {
  auto o = std::make_shared<CheckOptions>();
  Command sub = add_subcommand(
      root, "check", "Packets",
      "Reads a configuration, rules or routes and reports every error with its location, without running anything.",
      "sluice check edge.click\nsluice check sluice.toml\nsluice check --rules edge.acl --shadowed\nsluice check "
      "--routes rib4.txt,rib6.txt -o "
      "json",
      [o] { return check(*o); });
  sub->add_option("configuration", o->words,
                  "A Click file ('-': stdin) and NAME=VALUE for its variables, or a TOML file of run's --config")
      ->type_name("FILE [NAME=VALUE...]");
  add_map_option(*sub, o->maps);
  sub->add_option("--rules", o->rules, "Rule file or image")->type_name("FILE");
  add_format_option(*sub, o->format);
  sub->add_flag("--shadowed", o->shadowed,
                "Also report unneeded rules of --rules: those that no packet reaches, and those whose removal changes "
                "no verdict");
  sub->add_option("--default", o->policy,
                  "With --shadowed: action for packets that no rule matches: deny or permit (default: unknown)")
      ->check(OneOf{{"deny", "permit"}})
      ->type_name("ACTION");
  sub->add_option("--routes", o->routes, "Route files or an image")->type_name("FILE[,FILE]");
}

}  // namespace sluice::app
