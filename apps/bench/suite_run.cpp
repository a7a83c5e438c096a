// sluice bench suite: every case as a child process of this program, one after the other, and all of them again in each
// pass; what has finished is kept in the folder, so that the next run goes on where this one was interrupted. host only
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "base/input_file.h"
#include "bench.h"
#include "control/machine.h"
#include "rapl.h"
#include "suite.h"

namespace sluice::app {
namespace {

constexpr unsigned kPasses = 5, kQuickPasses = 3, kMostPasses = 99;

// What makes a finished case one of this build, machine and command.
Json identity(const std::string& program, const std::string& measured, const std::vector<std::string>& arguments) {
  Json machine = to_json(describe_machine());
  machine.erase("hugepages_free");
  std::string build = sluice_revision();
  // Such a revision does not say what was built, and another program's is not known.
  const auto add_file = [&build](const char* name) {
    if (struct stat file{}; ::stat(name, &file) == 0)
      build += fmt::format(" {} {}.{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  };
  if (!program.empty() || build == "unknown" || build.ends_with("-dirty"))
    add_file(program.empty() ? "/proc/self/exe" : program.c_str());
  if (!measured.empty()) add_file(measured.c_str());
  // The folder that another program takes its tables and lists from.
  const char* data = program.empty() ? nullptr : std::getenv("SLUICE_DATA");
  return {{"revision", build},
          {"machine", machine},
          {"command", fmt::format("{}", fmt::join(arguments, " "))},
          {"data", data == nullptr ? "" : data}};
}

std::string kept_file(const std::string& folder, const SuiteCase& c, unsigned pass) {
  return fmt::format("{}/cases/{}-{}.{}.json", folder, c.suite, c.name, pass);
}

// The document of a finished case; nothing where there is none, or of something else.
std::optional<Json> kept(const std::string& file, const Json& what) {
  const Result<std::string> text = read_text_file(file);
  if (!text.ok()) return std::nullopt;
  Json json = Json::parse(text.value(), nullptr, false);
  if (!json.is_object() || !json.contains("result") || !json["result"].is_object()) return std::nullopt;
  if (!json.contains("seconds") || !json["seconds"].is_number() || !json.contains("probes")) return std::nullopt;
  // Of each probe its value.
  if (!json["probes"].is_array()) return std::nullopt;
  for (const Json& probes : json["probes"]) {
    if (!probes.is_object()) return std::nullopt;
    for (const Json& value : probes)
      if (!value.is_number()) return std::nullopt;
  }
  for (const auto& [key, value] : what.items())
    if (!json.contains(key) || json[key] != value) return std::nullopt;
  return json;
}

std::vector<SuiteCase> chosen(const SuiteOptions& o) {
  std::vector<SuiteCase> all = suite_cases(o.quick, describe_machine().cores, o.vpp);
  if (o.only.empty()) return all;
  std::vector<SuiteCase> some;
  for (const std::string& name : o.only) {
    const auto is_named = [&](const SuiteCase& c) { return c.suite == name || c.id() == name; };
    if (std::none_of(all.begin(), all.end(), is_named)) {
      std::vector<std::string> names;
      for (const Suite& s : suites())
        if (s.name != kMachineSuite) names.push_back(s.name);
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

void make_folder(const std::string& folder) {
  std::error_code wrong;
  std::filesystem::create_directories(folder + "/cases", wrong);
  if (wrong)
    fail(Exit::kIo, fmt::format("{}: cannot create the folder cases in it: {}", folder, wrong.message()),
         "give -o a folder that you may write to");
  // Now rather than after hours.
  for (const std::string& where : {folder, folder + "/cases"}) {
    if (::access(where.c_str(), W_OK | X_OK) != 0) {
      const int why = errno;
      fail(Exit::kIo, system_error(fmt::format("{}: cannot write to this folder", where), why).message,
           "give -o a folder that you may write to");
    }
  }
  for (const char* name : {"report.html", "report.json", "report.csv"}) {
    const std::string file = folder + "/" + name;
    if (std::error_code none; std::filesystem::is_directory(file, none))
      fail(Exit::kIo, fmt::format("{}: cannot write the report: it is a directory", file),
           "remove it, or give -o another folder");
  }
}

// Of the last minute: processes that want a core. Before the first case all of it is other work.
Json load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? Json(std::round(load * 100) / 100) : Json(nullptr);
}

// What a child printed; no object where it is none. google-benchmark writes NaN where a counter is 0 in every
// repetition.
Json document_of(std::string text) {
  for (const std::string wrong : {": NaN", ": -NaN", ": Infinity", ": -Infinity"})
    for (size_t at = 0; (at = text.find(wrong, at)) != std::string::npos;) text.replace(at, wrong.size(), ": null");
  return Json::parse(text, nullptr, false);
}

// A case on its way through the passes.
struct Measured {
  SuiteCase c;
  std::string program;                 // path, or "": this program
  std::vector<std::string> arguments;  // without -q -o json
  Json identity;
  std::map<unsigned, Json> passes;  // pass -> document, as it is kept
  std::vector<Json> instead;        // rows in place of figures
  bool over = false;                // no further pass is tried
  double seconds = 0;               // that a pass took
};

class SuiteRun {
 public:
  explicit SuiteRun(const SuiteOptions& o) : o_(o), machine_(to_json(describe_machine())) {}

  SuiteReport run(std::vector<SuiteCase> cases) {
    make_folder(o_.out);
    const Json load = load_average();
    idle_watts_ = idle_watts();
    for (SuiteCase& c : cases) prepare(std::move(c));
    const std::vector<size_t> order = measuring_order();
    for (unsigned pass = 1; pass <= o_.passes && fits(pass); ++pass)
      for (size_t at = 0; at < order.size(); ++at)
        if (Measured& m = cases_[order[at]]; is_left(m, pass)) measure(m, at, pass);
    return report(load);
  }

 private:
  bool is_left(const Measured& m, unsigned pass) const { return !m.over && !m.passes.contains(pass); }

  void instead(Measured& m, std::vector<Json> rows) {
    m.instead = std::move(rows);
    m.over = true;
    say_refused(m.c, m.instead);
  }
  void without(Measured& m, const std::string& reason) {
    instead(m, {unmeasured_row(m.c, m.c.name, reason, machine_)});
  }

  static void say_refused(const SuiteCase& c, const std::vector<Json>& rows) {
    for (const Json& row : rows)
      if (is_refused(row))
        warn(fmt::format("{}/{}: {}", c.suite, row["case"].get<std::string>(), row["reason"].get<std::string>()));
  }

  void prepare(SuiteCase&& given) {
    Measured& m = cases_.emplace_back();
    m.c = std::move(given);
    const SuiteCase& c = m.c;
    if (c.command.empty()) return without(m, c.reason);
    if (const unsigned there = c.devices == 0 ? 0 : count_cuda_devices().count; there < c.devices)
      return without(m, fmt::format("not measured here: it needs {} CUDA devices, and there are {}", c.devices, there));
    const bool is_path = c.program.find('/') != std::string::npos;
    if (!c.program.empty() && (m.program = is_path ? c.program : find_program(c.program)).empty())
      return instead(m, rows_without_program(c, machine_));
    m.arguments = c.command;
    if (o_.spoil && c.output == SuiteOutput::kBench) m.arguments.push_back("--spoil-check");
    m.identity = identity(m.program, c.measured, m.arguments);
    for (unsigned pass = 1; pass <= o_.passes; ++pass) {
      const std::string file = kept_file(o_.out, c, pass);
      if (o_.fresh) {
        std::error_code wrong;
        std::filesystem::remove(file, wrong);
        if (wrong) fail(Exit::kIo, fmt::format("{}: cannot remove it: {}", file, wrong.message()));
      } else if (std::optional<Json> document = kept(file, m.identity)) {
        m.seconds = (*document)["seconds"];
        m.passes.emplace(pass, *std::move(document));
        ++kept_;
      }
    }
  }

  // With a limit the first case of every suite, then the second of each: where time ends, each suite has figures.
  std::vector<size_t> measuring_order() const {
    std::vector<std::pair<size_t, size_t>> turns;  // place in its suite, case
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < cases_.size(); ++i) turns.emplace_back(o_.quick ? places[cases_[i].c.suite]++ : 0, i);
    std::sort(turns.begin(), turns.end());
    std::vector<size_t> order;
    for (const auto& turn : turns) order.push_back(turn.second);
    return order;
  }

  // Whether a pass after the first ends within the limit, by what its cases took before. If not, no pass follows.
  bool fits(unsigned pass) {
    if (pass == 1) return true;
    double needed_s = 0;
    for (const Measured& m : cases_)
      if (is_left(m, pass)) needed_s += m.seconds;
    const double left_s = std::max(0.0, o_.limit_s - watch_.seconds());
    if (needed_s <= left_s) return true;
    fewer_ = fmt::format(
        "fewer passes, {} of {}: another one takes about {:.0f} s on this machine as it is, and "
        "{:.0f} s of {:.0f} s are left",
        pass - 1, o_.passes, needed_s, left_s, o_.limit_s);
    o_.passes = pass - 1;
    return false;
  }

  // Of what is left: a case takes as long as in another pass, else as long as those that were measured take on average;
  // with a limit not more than is left of that.
  std::string time_left(unsigned from_pass) const {
    double known = 0, sum = 0;
    size_t unknown = 0, measured = 0;
    for (const Measured& m : cases_) {
      if (m.seconds <= 0) continue;
      sum += m.seconds;
      ++measured;
    }
    if (measured == 0) return "";
    for (unsigned pass = from_pass; pass <= o_.passes; ++pass) {
      for (const Measured& m : cases_) {
        if (!is_left(m, pass)) continue;
        known += m.seconds;
        unknown += m.seconds <= 0 ? 1 : 0;
      }
    }
    const double left_s = known + static_cast<double>(unknown) * sum / static_cast<double>(measured);
    const double limit_s = std::max(0.0, o_.limit_s - watch_.seconds());
    return left_s <= limit_s ? fmt::format(", about {:.0f} s left", left_s)
                             : fmt::format(", at most {:.0f} s left: this machine is busy, or slow", limit_s);
  }

  void measure(Measured& m, size_t at, unsigned pass) {
    const double left_s = o_.limit_s - watch_.seconds();
    if (left_s <= 0) {
      ++missing_;
      if (m.passes.empty() && m.instead.empty())
        m.instead = {unmeasured_row(m.c, m.c.name,
                                    fmt::format("not measured here: {} were over; the same command goes on from here",
                                                human_seconds(o_.limit_s)),
                                    machine_)};
      return;
    }
    note(fmt::format("[pass {}/{}, {}/{}] {}{}", pass, o_.passes, at + 1, cases_.size(), m.c.id(), time_left(pass)));
    if (!probes_) probes_.emplace(machine_["cores"].get<unsigned>());
    const Stopwatch watch;
    const auto before = probes_->take(m.c.probes);
    std::vector<std::string> arguments = m.arguments;
    if (m.c.output == SuiteOutput::kBench) arguments.insert(arguments.end(), {"-q", "-o", "json"});
    const double limit_s = std::min(left_s, o_.case_limit_s);
    const auto energy = rapl_.read();
    const Stopwatch child_watch;
    Child child(m.program, arguments);
    const Ended ended = child.wait(std::chrono::duration<double>(limit_s));
    const double child_s = child_watch.seconds();
    const auto energy_after = energy ? rapl_.read() : std::nullopt;
    const auto after = probes_->take(m.c.probes);
    m.seconds = watch.seconds();
    if (ended.late) {
      // What earlier passes gave stands.
      m.over = true;
      ++missing_;
      if (m.passes.empty())
        without(m, fmt::format("not measured here: it did not end within {}", human_seconds(limit_s)));
      return;
    }
    Json result = document_of(ended.out);
    if (ended.code != 0 || !result.is_object()) {
      const bool unavailable = ended.code == static_cast<int>(Exit::kUnavailable);
      return without(m, (unavailable ? "not measured here: " : "refused: ") + reason_of(ended));
    }
    const std::vector<Json> rows = rows_of(m.c, result, machine_);
    Json document = m.identity;
    document["result"] = std::move(result);
    document["seconds"] = m.seconds;
    document["probes"] = {before, after};
    document["cpu_cores"] = ended.cpu_s / child_s;
    if (energy_after) document["cpu_watts"] = rapl_.joules(*energy, *energy_after) / child_s;
    if (std::none_of(rows.begin(), rows.end(), is_refused))
      write_file(kept_file(o_.out, m.c, pass), document.dump(1) + "\n");
    else
      say_refused(m.c, rows);
    m.passes.emplace(pass, std::move(document));
  }

  SuiteReport report(const Json& load) {
    SuiteReport made;
    Json rows = Json::array();
    std::vector<ProbesTaken> taken;
    for (const Measured& m : cases_) {
      std::vector<std::pair<unsigned, std::vector<Json>>> passes;
      for (const auto& [pass, document] : m.passes) {
        std::vector<Json>& of_pass = passes.emplace_back(pass, rows_of(m.c, document["result"], machine_)).second;
        for (const char* key : {"cpu_cores", "cpu_watts"}) {
          if (!document.contains(key) || !document[key].is_number()) continue;
          for (Json& row : of_pass)
            if (!row["value"].is_null()) row[key] = document[key];
        }
        for (const Json& probes : document["probes"])
          taken.push_back({m.c.id(), pass, probes.get<std::map<std::string, double>>()});
      }
      std::vector<Json> some = m.instead;
      if (some.empty()) some = join_passes(m.c, passes);
      for (Json& row : some) {
        if (is_refused(row) && made.refused++ == 0)
          made.first_refused =
              fmt::format("{}/{}: {}", m.c.suite, row["case"].get<std::string>(), row["reason"].get<std::string>());
        made.absent += row["value"].is_null() && !is_refused(row) ? 1 : 0;
        rows.push_back(std::move(row));
      }
    }
    put_ratios(rows);
    for (Json& row : machine_rows(taken, machine_)) rows.push_back(std::move(row));
    if (idle_watts_) rows.push_back(idle_row(*idle_watts_, machine_));
    Json about = Json::array();
    for (const Suite& s : suites()) about.push_back({{"name", s.name}, {"title", s.title}, {"about", s.about}});
    made.json = {{"schema", 1},
                 {"machine", machine_},
                 {"git", sluice_revision()},
                 {"when", now_utc()},
                 {"quick", o_.quick},
                 {"command", command_line()},
                 {"load_average", load},
                 {"passes", o_.passes},
                 {"suites", about},
                 {"cpu_busy", "processor time of a case by its wall time, with all that it prepares"},
                 {"cpu_power", rapl_.read() ? "RAPL, all packages, mean over a case with all that it prepares"
                                            : "no RAPL here, or this user may not read it"},
                 {"rows", rows}};
    made.cases = cases_.size();
    made.kept = kept_;
    if (!fewer_.empty()) made.warnings.push_back(fewer_);
    if (missing_ != 0)
      made.warnings.push_back(fmt::format(
          "{} measurements of cases are missing: time was over; the same command goes on from there", missing_));
    return made;
  }

  // Of the processors, over half a second of nothing; none without RAPL.
  std::optional<double> idle_watts() const {
    const auto before = rapl_.read();
    if (!before) return std::nullopt;
    const Stopwatch watch;
    for (unsigned i = 0; i < 50; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      stop_if_interrupted();
    }
    const auto after = rapl_.read();
    if (!after) return std::nullopt;
    return rapl_.joules(*before, *after) / watch.seconds();
  }

  SuiteOptions o_;
  const Json machine_;
  const Stopwatch watch_;
  const Rapl rapl_{o_.rapl};
  std::optional<MachineProbes> probes_;  // made by the first measurement
  std::vector<Measured> cases_;
  size_t kept_ = 0, missing_ = 0;
  std::string fewer_;  // why there were fewer passes than asked for
  std::optional<double> idle_watts_;
};

Exit bench_suite(SuiteOptions o) {
  settle(o);
  std::vector<SuiteCase> cases = chosen(o);
  if (o.list) {
    list_cases(cases);
    return Exit::kOk;
  }
  if (o.out.empty()) fail(Exit::kUsage, "-o is required: the folder of the report", "sluice-bench suite -o report");
  if (o.out == "-") fail(Exit::kUsage, "-o: the report is a folder and cannot be '-'", "sluice-bench suite -o report");
  const Stopwatch watch;
  const SuiteReport made = run_suite(o, std::move(cases));
  write_file(o.out + "/report.json", made.json.dump(1) + "\n");
  write_file(o.out + "/report.csv", suite_csv(made.json));
  write_file(o.out + "/report.html", suite_html(made.json));
  const size_t rows = made.json["rows"].size();
  print_out(
      fmt::format("{}/report.html, .csv, .json: {} rows of {} cases in {} passes ({} kept from before, {} not measured "
                  "here, {} refused) in {}\n",
                  o.out, rows, made.cases, made.json["passes"].get<unsigned>(), made.kept, made.absent, made.refused,
                  human_seconds(watch.seconds())));
  for (const std::string& warning : made.warnings) warn(warning);
  if (made.refused != 0)
    fail(Exit::kCheckFailed, fmt::format("{} of {} rows were refused; {}", made.refused, rows, made.first_refused));
  return Exit::kOk;
}

}  // namespace

void settle(SuiteOptions& o) {
  if (!o.quick) o.limit_s = o.case_limit_s = std::numeric_limits<double>::infinity();
  if (o.vpp.empty()) {
    if (const char* folder = std::getenv("SLUICE_VPP_PLUGIN"); folder != nullptr) o.vpp = folder;
  } else if (std::error_code none; !std::filesystem::exists(o.vpp + "/vpp_bench", none)) {
    fail(Exit::kUsage, fmt::format("--vpp: {} is no build folder of integrations/vpp: it has no vpp_bench", o.vpp),
         "cmake -S integrations/vpp -B build/vpp ... && cmake --build build/vpp; then --vpp build/vpp");
  }
  if (o.passes == 0) o.passes = o.quick ? kQuickPasses : kPasses;
}

void list_cases(const std::vector<SuiteCase>& cases) {
  TextTable table({"case", "command"});
  for (const SuiteCase& c : cases) table.add({c.id(), c.command.empty() ? "-" : command_text(c)});
  print_out(table.str());
}

SuiteReport run_suite(const SuiteOptions& o, std::vector<SuiteCase> cases) {
  return SuiteRun(o).run(std::move(cases));
}

void add_vpp_option(Command sub, SuiteOptions& o) {
  sub.add_option("--vpp", "DIR", o.vpp,
                 "The build folder of the VPP plug-in (integrations/vpp), to measure it in VPP beside VPP's acl-plugin "
                 "(default: SLUICE_VPP_PLUGIN of the environment)");
}

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
  sub->add_option("-o,--out", "DIR", o->out, "Folder of the report and of the finished cases (cases/)");
  sub->add_flag("--quick", o->quick,
                "Few cases and small inputs: nine minutes at most, on a busy machine with fewer passes; one case takes "
                "90 seconds at most");
  sub->add_option(
         "--passes", "N", o->passes,
         fmt::format("How many times all cases are gone through: a case's values are minutes apart (default {}, "
                     "with --quick {})",
                     kPasses, kQuickPasses))
      ->check(Range(1u, kMostPasses));
  sub->add_option("--only", o->only, "Suites, or single cases as SUITE/CASE, comma-separated")
      ->delimiter(',')
      ->type_name("NAME,...");
  add_vpp_option(*sub, *o);
  sub->add_flag("--list", o->list, "List the cases and their commands, and measure nothing");
  sub->add_flag("--fresh", o->fresh, "Measure again what is finished");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
  sub->add_option("--rapl", o->rapl, "")->group("");
  // So that a test can see what comes of a slow machine.
  sub->add_option("--limit", o->limit_s, "")->check(Range(0.0, 86400.0))->group("");
  sub->add_option("--case-limit", o->case_limit_s, "")->check(Range(0.0, 86400.0))->group("");
}

}  // namespace sluice::app
