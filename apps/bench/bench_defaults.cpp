// What a measurement took for granted: the defaults that its command line left standing, and what `auto` means. A
// stored figure is of today's program while these are today's (scripts/check_results.py). host only
#include <CLI/CLI.hpp>

#include "apps/sluice/app_state.h"
#include "apps/sluice/inputs.h"
#include "bench.h"
#include "formats/classbench.h"
#include "generate/rules.h"

namespace sluice::app {

// gen.cpp
RuleShape shape_of(const std::string& name);

namespace {

// What `auto` chooses for lists of every shape and some sizes. The same on every machine.
std::string lists_text(TableTarget target) {
  std::string text = kDefaultAclAlgorithm;
  for (const char* shape : {"acl", "fw", "ipc"}) {
    for (const uint32_t count : {64u, 1000u, 10'000u}) {
      const std::string rules = need(generate_rules({.shape = shape_of(shape), .count = count, .seed = 1}));
      text += fmt::format(
          " {}_{}={}", shape, count,
          build_loaded_acl(need(parse_classbench(rules, shape)), shape, "", kDefaultAclAlgorithm, target).algorithm);
    }
  }
  return text;
}

std::string routes_text(TableTarget target) {
  const LpmChoice choice = choose_lpm(Rib(), target);
  return choice.algorithm4 + "," + choice.algorithm6;
}

const char* routes_key(TableTarget target) {
  return target == TableTarget::kGpu ? "routes on a device" : "routes";
}

const char* lists_key(TableTarget target) {
  return target == TableTarget::kGpu ? "access lists on a device" : "access lists";
}

// Options with a default; where `left` those alone that were not given.
Json options_of(const CLI::App& sub, bool left) {
  Json json = Json::object();
  for (const CLI::Option* option : sub.get_options()) {
    if (option->get_group().empty() || option->get_default_str().empty() || option->get_lnames().empty()) continue;
    if (left && option->count() != 0) continue;
    json["--" + option->get_lnames().front()] = option->get_default_str();
  }
  return json;
}

}  // namespace

Json defaults_left(const StandingDefaults& standing, bool on_device) {
  Json json{{"options", Json::object()}};
  if (const CLI::App* sub = app_state().selected_app; sub != nullptr) json["options"] = options_of(*sub, true);
  const TableTarget target = on_device ? TableTarget::kGpu : TableTarget::kCpu;
  if (standing.lists) json[lists_key(target)] = lists_text(target);
  if (standing.routes) json[routes_key(target)] = routes_text(target);
  return json;
}

Json all_defaults(Command root) {
  Json json{{"bench", Json::object()}};
  for (const CLI::App* sub : root.app().get_subcommand("bench")->get_subcommands({}))
    json["bench"][sub->get_name()] = options_of(*sub, false);
  for (const TableTarget target : {TableTarget::kCpu, TableTarget::kGpu}) {
    json[lists_key(target)] = lists_text(target);
    json[routes_key(target)] = routes_text(target);
  }
  json["algorithms"] = Json::array();
  for (const std::vector<std::string>& names :
       {acl_algorithm_names(), lpm_algorithm_names4(), lpm_algorithm_names6()}) {
    for (const std::string& name : names) json["algorithms"].push_back(name);
  }
  return json;
}

}  // namespace sluice::app
