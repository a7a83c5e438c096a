// sluice bench suite: every case as a child process of this program, one after the other; what has finished is kept in
// the folder, so that the next run goes on where this one was interrupted. host only
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>

#include "base/input_file.h"
#include "bench.h"
#include "control/machine.h"
#include "suite.h"

namespace sluice::app {
namespace {

struct SuiteOptions {
  std::string out;
  std::vector<std::string> only;
  bool quick = false, list = false, fresh = false, spoil = false;
  // Of --quick: what has not begun by then, or does not end, has a row that says so.
  double limit_s = 9 * 60, case_limit_s = 90;
};

// What makes a finished case one of this build, machine and command.
Json identity(const std::string& program, const std::vector<std::string>& arguments) {
  Json machine = to_json(describe_machine());
  machine.erase("hugepages_free");
  std::string build = sluice_revision();
  // Such a revision does not say what was built, and another program's is not known.
  if (struct stat file{}; (!program.empty() || build == "unknown" || build.ends_with("-dirty")) &&
                          ::stat(program.empty() ? "/proc/self/exe" : program.c_str(), &file) == 0)
    build += fmt::format(" {} {}.{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  // The folder that another program takes its tables and lists from.
  const char* data = program.empty() ? nullptr : std::getenv("SLUICE_DATA");
  return {{"revision", build},
          {"machine", machine},
          {"command", fmt::format("{}", fmt::join(arguments, " "))},
          {"data", data == nullptr ? "" : data}};
}

std::string kept_file(const std::string& folder, const SuiteCase& c) {
  return folder + "/cases/" + c.suite + "-" + c.name + ".json";
}

// The document of a finished case; nothing where there is none, or of something else.
std::optional<Json> kept(const std::string& file, const Json& what) {
  const Result<std::string> text = read_text_file(file);
  if (!text.ok()) return std::nullopt;
  Json json = Json::parse(text.value(), nullptr, false);
  if (!json.is_object() || !json.contains("result") || !json["result"].is_object()) return std::nullopt;
  for (const auto& [key, value] : what.items())
    if (!json.contains(key) || json[key] != value) return std::nullopt;
  return json;
}

std::vector<SuiteCase> chosen(const SuiteOptions& o) {
  std::vector<SuiteCase> all = suite_cases(o.quick, describe_machine().cores);
  if (o.only.empty()) return all;
  std::vector<SuiteCase> some;
  for (const std::string& name : o.only) {
    const auto is_named = [&](const SuiteCase& c) { return c.suite == name || c.id() == name; };
    if (std::none_of(all.begin(), all.end(), is_named)) {
      std::vector<std::string> names;
      for (const Suite& s : suites()) names.push_back(s.name);
      fail(Exit::kUsage, fmt::format("--only: there is no suite or case '{}'", name),
           fmt::format("one of {}; sluice-bench suite --list shows their cases", fmt::join(names, ", ")));
    }
  }
  for (SuiteCase& c : all) {
    if (std::any_of(o.only.begin(), o.only.end(), [&](const std::string& n) { return c.suite == n || c.id() == n; }))
      some.push_back(std::move(c));
  }
  return some;
}

void list_cases(const std::vector<SuiteCase>& cases) {
  TextTable table({"case", "command"});
  for (const SuiteCase& c : cases) table.add({c.id(), c.command.empty() ? "-" : command_text(c)});
  print_out(table.str());
}

void make_folder(const std::string& folder) {
  std::error_code wrong;
  std::filesystem::create_directories(folder + "/cases", wrong);
  if (wrong)
    fail(Exit::kIo, fmt::format("{}: cannot create the folder cases in it: {}", folder, wrong.message()),
         "give -o a folder that you may write to");
}

// Of the last minute: processes that want a core. Before the first case all of it is other work.
Json load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? Json(std::round(load * 100) / 100) : Json(nullptr);
}

Exit bench_suite(const SuiteOptions& given) {
  SuiteOptions o = given;
  if (!o.quick) o.limit_s = o.case_limit_s = std::numeric_limits<double>::infinity();
  const std::vector<SuiteCase> cases = chosen(o);
  if (o.list) {
    list_cases(cases);
    return Exit::kOk;
  }
  if (o.out.empty()) fail(Exit::kUsage, "-o is required: the folder of the report", "sluice-bench suite -o report");
  make_folder(o.out);
  const Json machine = to_json(describe_machine()), load = load_average();
  Json rows = Json::array();
  const Stopwatch watch;
  size_t again = 0, ran = 0, refused = 0, absent = 0;
  std::string first_refused;
  const auto add = [&](const SuiteCase& c, std::vector<Json> some) {
    for (Json& row : some) {
      if (const std::string why = row["reason"].is_string() ? row["reason"] : ""; why.starts_with("refused: ")) {
        const std::string what = fmt::format("{}/{}: {}", c.suite, row["case"].get<std::string>(), why);
        if (refused++ == 0) first_refused = what;
        warn(what);
      } else if (row["value"].is_null()) {
        ++absent;
      }
      rows.push_back(std::move(row));
    }
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const SuiteCase& c = cases[i];
    if (c.command.empty()) {
      add(c, {unmeasured_row(c, c.name, c.reason, machine)});
      continue;
    }
    std::string program;
    if (!c.program.empty() && (program = find_program(c.program)).empty()) {
      add(c, rows_without_program(c, machine));
      continue;
    }
    std::vector<std::string> arguments = c.command;
    if (o.spoil && c.program.empty()) arguments.push_back("--spoil-check");
    const Json what = identity(program, arguments);
    const std::string file = kept_file(o.out, c);
    if (o.fresh) {
      std::error_code wrong;
      std::filesystem::remove(file, wrong);
      if (wrong) fail(Exit::kIo, fmt::format("{}: cannot remove it: {}", file, wrong.message()));
    }
    if (const std::optional<Json> document = kept(file, what)) {
      ++again;
      add(c, rows_of(c, (*document)["result"], machine));
      continue;
    }
    const double left_s = o.limit_s - watch.seconds();
    if (left_s <= 0) {
      add(c, {unmeasured_row(c, c.name,
                             fmt::format("not measured here: {} were over; the same command goes on from here",
                                         human_seconds(o.limit_s)),
                             machine)});
      continue;
    }
    note(fmt::format("[{}/{}] {}{}", i + 1, cases.size(), c.id(),
                     ran == 0 ? ""
                              : fmt::format(", about {:.0f} s left", watch.seconds() / static_cast<double>(ran) *
                                                                         static_cast<double>(cases.size() - i))));
    if (c.program.empty()) arguments.insert(arguments.end(), {"-q", "-o", "json"});
    Child child(program, arguments);
    const double limit_s = std::min(left_s, o.case_limit_s);
    const Ended ended = child.wait(std::chrono::duration<double>(limit_s));
    ++ran;
    if (ended.late) {
      add(c,
          {unmeasured_row(c, c.name, fmt::format("not measured here: it did not end within {}", human_seconds(limit_s)),
                          machine)});
      continue;
    }
    Json result = Json::parse(ended.out, nullptr, false);
    if (ended.code != 0 || !result.is_object()) {
      const bool unavailable = ended.code == static_cast<int>(Exit::kUnavailable);
      add(c,
          {unmeasured_row(c, c.name, (unavailable ? "not measured here: " : "refused: ") + reason_of(ended), machine)});
      continue;
    }
    std::vector<Json> some = rows_of(c, result, machine);
    const bool good = std::none_of(some.begin(), some.end(), is_refused);
    add(c, std::move(some));
    if (!good) continue;
    Json document = what;
    document["result"] = std::move(result);
    write_text(file, document.dump(1) + "\n");
  }
  Json about = Json::array();
  for (const Suite& s : suites()) about.push_back({{"name", s.name}, {"title", s.title}, {"about", s.about}});
  const Json report{{"schema", 1},          {"machine", machine}, {"git", sluice_revision()},
                    {"when", now_utc()},    {"quick", o.quick},   {"command", command_line()},
                    {"load_average", load}, {"suites", about},    {"rows", rows}};
  write_text(o.out + "/report.json", report.dump(1) + "\n");
  write_text(o.out + "/report.csv", suite_csv(report));
  write_text(o.out + "/report.html", suite_html(report));
  print_out(
      fmt::format("{}/report.html, .csv, .json: {} rows of {} cases ({} kept from before, {} not measured here, {} "
                  "refused) in {}\n",
                  o.out, rows.size(), cases.size(), again, absent, refused, human_seconds(watch.seconds())));
  if (refused != 0)
    fail(Exit::kCheckFailed, fmt::format("{} of {} rows were refused; {}", refused, rows.size(), first_refused));
  return Exit::kOk;
}

}  // namespace

void add_bench_suite(Command bench) {
  auto o = std::make_shared<SuiteOptions>();
  Command sub = add_filing_subcommand(
      bench, "suite", "Subcommands",
      "Everything that this machine can measure, in one report beside the published figures: report.html, report.csv "
      "and "
      "report.json. Interrupted, it goes on from there the next time",
      "sluice bench suite --quick -o report\nsluice bench suite --only classbench,data-plane/shaper -o report\nsluice "
      "bench suite --list",
      [o] { return bench_suite(*o); });
  sub->add_option("-o,--out", o->out, "Folder of the report and of the finished cases (cases/)")->type_name("DIR");
  sub->add_flag("--quick", o->quick,
                "Few cases and small inputs: nine minutes at most, of which one case takes 90 seconds at most");
  sub->add_option("--only", o->only, "Suites, or single cases as SUITE/CASE, comma-separated")
      ->delimiter(',')
      ->type_name("NAME,...");
  sub->add_flag("--list", o->list, "List the cases and their commands, and measure nothing");
  sub->add_flag("--fresh", o->fresh, "Measure again what is finished");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
  // So that a test can see what comes of a slow machine.
  sub->add_option("--limit", o->limit_s, "")->check(Range(0.0, 86400.0))->group("");
  sub->add_option("--case-limit", o->case_limit_s, "")->check(Range(0.0, 86400.0))->group("");
}

}  // namespace sluice::app
