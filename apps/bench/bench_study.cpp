// sluice bench study: the cases of one study (studies/NAME), measured and checked, as rows beside what was published.
// host only
#include <algorithm>
#include <limits>

#include "bench.h"
#include "control/machine.h"
#include "studies/study.h"
#include "suite.h"

namespace sluice::app {
namespace {

struct StudyOptions : SuiteOptions {
  std::string name;
  std::vector<std::string> tables;
};

// The study's cases, or of them those of `tables`.
std::vector<SuiteCase> cases_of(const StudyOptions& o, const Study& study) {
  CaseList list(o.quick, describe_machine().cores, o.vpp);
  study.add_cases(list);
  std::vector<SuiteCase> all = list.take();
  if (o.tables.empty()) return all;
  std::vector<SuiteCase> some;
  for (const std::string& table : o.tables) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const SuiteCase& c) { return c.name == table; });
    if (at == all.end()) {
      std::vector<std::string> names;
      for (const SuiteCase& c : all) names.push_back(c.name);
      fail(Exit::kUsage, fmt::format("--table: {} has no table '{}'", o.name, table),
           fmt::format("one of {}", fmt::join(names, ", ")));
    }
    some.push_back(*at);
  }
  return some;
}

std::string figure(const Json& value) {
  return value.is_number() ? fmt::format("{:.3f}", value.get<double>()) : "";
}

void print_rows(const Json& rows) {
  TextTable table({"case", "median", "min", "max", "n", "unit", "checked", "published"});
  std::vector<std::string> reasons;
  for (const Json& row : rows) {
    const std::string name = row["case"];
    if (row["value"].is_null()) {
      table.add({name, "-", "-", "-", "-", "-", "-", "-"});
      reasons.push_back(fmt::format("{}: {}\n", name, row["reason"].get<std::string>()));
      continue;
    }
    table.add({name, figure(row["value"]), figure(row["min"]), figure(row["max"]),
               fmt::format("{}", row["n"].get<size_t>()), row["unit"].get<std::string>(),
               row["checked"] == true ? "yes" : "no",
               row["published"].is_null() ? "" : figure(row["published"]["value"])});
  }
  print_out(table.str());
  if (!reasons.empty()) print_out(fmt::format("\nnot measured:\n{}", fmt::join(reasons, "")));
}

Exit bench_study(StudyOptions o) {
  settle(o);
  o.limit_s = o.case_limit_s = std::numeric_limits<double>::infinity();
  const Study& study =
      **std::find_if(studies().begin(), studies().end(), [&](const Study* s) { return s->name == o.name; });
  std::vector<SuiteCase> cases = cases_of(o, study);
  if (o.list) {
    list_cases(cases);
    return Exit::kOk;
  }
  const BenchFolder folder;
  o.out = folder / "study";
  SuiteReport made = run_suite(o, std::move(cases));
  Json rows = Json::array();
  for (Json& row : made.json["rows"])
    if (row["suite"] != kMachineSuite) rows.push_back(std::move(row));
  made.json["rows"] = std::move(rows);
  made.json["study"] = o.name;
  if (json_output()) {
    print_json(made.json);
  } else {
    print_rows(made.json["rows"]);
  }
  for (const std::string& warning : made.warnings) warn(warning);
  if (made.refused != 0)
    fail(Exit::kCheckFailed,
         fmt::format("{} of {} rows were refused; {}", made.refused, made.json["rows"].size(), made.first_refused));
  return Exit::kOk;
}

}  // namespace

void add_bench_study(Command bench) {
  auto o = std::make_shared<StudyOptions>();
  o->passes = 1;
  std::vector<std::string> names;
  for (const Study* study : studies()) names.push_back(study->name);
  Command sub = add_subcommand(
      bench, "study", "Subcommands",
      "Measures the tables of a published study: each row is checked, and stands beside the figure that was published "
      "for the same parameters. A row whose device is not here gives the reason.",
      "sluice bench study spark --quick\nsluice bench study ferraris --table 101-routes,layouts\nsluice bench study "
      "louvain --list",
      [o] { return bench_study(*o); });
  sub->add_option("study", o->name, fmt::format("One of: {}", fmt::join(names, ", ")))
      ->required()
      ->check(OneOf{names})
      ->type_name("STUDY");
  sub->add_option("--table", o->tables, "Of its tables these alone, comma-separated; --list names them")
      ->delimiter(',')
      ->type_name("NAME,...");
  sub->add_flag("--quick", o->quick, "Few cases and small inputs");
  sub->add_number("--passes", "N", o->passes, "How many times all cases are gone through", Range(1u, 99u));
  add_vpp_option(*sub, *o);
  sub->add_flag("--list", o->list, "List the tables and their commands, and measure nothing");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
