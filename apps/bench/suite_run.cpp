// sluice bench suite: every case as a child process of this program, one after the other; what has finished is kept in
// the folder, so that the next run goes on where this one was interrupted. host only
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

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
};

// A file in memory, for what a child prints: it holds any amount, and nothing of it is left behind.
class Printed {
 public:
  explicit Printed(const char* name) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {
    if (descriptor_ < 0) fail(Exit::kIo, system_error("a file in memory for the output of a case", errno));
  }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  ~Printed() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }
  std::string text() const {
    std::string all;
    char some[65536];
    for (off_t at = 0;;) {
      const ssize_t n = ::pread(descriptor_, some, sizeof some, at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return all;
      all.append(some, static_cast<size_t>(n));
      at += n;
    }
  }

 private:
  int descriptor_;
};

struct Ended {
  int code = -1;  // 128 + signal
  std::string out, err;
};

// Runs this program with these arguments. Ends with kInterrupted, the child gone, where a signal comes.
Ended run_child(const std::vector<std::string>& arguments) {
  const Printed out("stdout"), err("stderr");
  std::string name = "sluice-bench";
  std::vector<char*> words{name.data()};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail(Exit::kIo, system_error("cannot start a process", errno));
  if (child == 0) {
    // It does not outlive this program, however that ends.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    if (::dup2(out.descriptor(), STDOUT_FILENO) < 0 || ::dup2(err.descriptor(), STDERR_FILENO) < 0) ::_exit(127);
    ::execv("/proc/self/exe", words.data());
    ::_exit(127);
  }
  int status = 0;
  bool asked = false;
  for (std::chrono::steady_clock::time_point since;;) {
    const pid_t done = ::waitpid(child, &status, WNOHANG);
    if (done == child) break;
    if (done < 0 && errno != EINTR) fail(Exit::kIo, system_error("cannot wait for a process", errno));
    if (interrupted().load(std::memory_order_relaxed)) {
      const auto now = std::chrono::steady_clock::now();
      if (!asked) {
        since = now;
        ::kill(child, SIGTERM);
        asked = true;
      } else if (now - since > std::chrono::seconds(2)) {
        ::kill(child, SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  stop_if_interrupted();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.text(), err.text()};
}

// What makes a finished case one of this build, machine and command.
Json identity(const std::vector<std::string>& arguments) {
  Json machine = to_json(describe_machine());
  machine.erase("hugepages_free");
  std::string build = sluice_revision();
  // Such a revision does not say what was built.
  if (struct stat file{}; (build == "unknown" || build.ends_with("-dirty")) && ::stat("/proc/self/exe", &file) == 0)
    build += fmt::format(" {} {}.{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  return {{"revision", build}, {"machine", machine}, {"command", fmt::format("{}", fmt::join(arguments, " "))}};
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

std::string reason_of(const Ended& ended) {
  // -o json puts errors on stderr as an object.
  const Json json = Json::parse(ended.err, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_object())
    return json["error"].value("message", "");
  if (ended.code > 128) return fmt::format("signal {} ended it", ended.code - 128);
  return fmt::format("it ended with exit code {}: {}", ended.code, ended.err.substr(0, ended.err.find('\n')));
}

Json row_of(const SuiteCase& c, const std::string& name) {
  return {{"suite", c.suite},
          {"case", name},
          {"value", nullptr},
          {"unit", nullptr},
          {"n", 0},
          {"min", nullptr},
          {"max", nullptr},
          {"values", Json::array()},
          {"checked", false},
          {"published", nullptr},
          {"command", c.command.empty() ? "" : fmt::format("sluice-bench {}", fmt::join(c.command, " "))},
          {"reason", nullptr}};
}

Json unmeasured_row(const SuiteCase& c, const std::string& reason, const Json& machine) {
  Json row = row_of(c, c.name);
  row["reason"] = reason;
  row["machine"] = machine;
  return row;
}

Json published_for(const std::string& suite, const std::string& name, const std::string& unit) {
  for (const Published& p : published_figures()) {
    if (p.suite == suite && p.unit == unit && name.starts_with(p.prefix) && name.find(p.part) != std::string::npos)
      return {
          {"value", p.value}, {"unit", p.unit}, {"source", p.source}, {"hardware", p.hardware}, {"differs", p.differs}};
  }
  return nullptr;
}

// The rows of a case that has finished. `result`: what it printed.
void add_rows(const SuiteCase& c, const Json& result, Json& rows) {
  const Json& verified = result.at("verified");
  const bool compared = verified.at("sample") > 0 && verified.at("mismatches") == 0;
  if (!c.reason.empty()) {
    Json row = unmeasured_row(c, c.reason, result.at("machine"));
    row["checked"] = compared;
    rows.push_back(row);
    return;
  }
  for (const Json& one : result.at("results")) {
    const std::string own = one.at("case");
    Json row = row_of(c, c.prefix + own);
    std::string unit = one.at("unit");
    std::vector<double> values = one.at("values");
    if (c.per_frame) {
      // Millions of packets a second to us per 256 packets.
      for (double& v : values) v = 256 / v;
      unit = "us";
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    row["value"] = median(values);
    row["unit"] = unit;
    row["n"] = values.size();
    row["min"] = *low;
    row["max"] = *high;
    row["values"] = values;
    row["checked"] = compared && own.starts_with(c.checked_prefix);
    row["published"] = published_for(c.suite, row["case"], unit);
    row["machine"] = result.at("machine");
    row["input_hash"] = result.value("input_hash", Json(nullptr));
    row["seed"] = result.value("seed", Json(nullptr));
    rows.push_back(row);
  }
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
  for (const SuiteCase& c : cases)
    table.add({c.id(), c.command.empty() ? "-" : fmt::format("sluice-bench {}", fmt::join(c.command, " "))});
  print_out(table.str());
}

void make_folder(const std::string& folder) {
  std::error_code wrong;
  std::filesystem::create_directories(folder + "/cases", wrong);
  if (wrong)
    fail(Exit::kIo, fmt::format("{}: cannot create the folder cases in it: {}", folder, wrong.message()),
         "give -o a folder that you may write to");
}

Exit bench_suite(const SuiteOptions& o) {
  const std::vector<SuiteCase> cases = chosen(o);
  if (o.list) {
    list_cases(cases);
    return Exit::kOk;
  }
  if (o.out.empty()) fail(Exit::kUsage, "-o is required: the folder of the report", "sluice-bench suite -o report");
  make_folder(o.out);
  const Json machine = to_json(describe_machine());
  Json rows = Json::array();
  const Stopwatch watch;
  size_t again = 0, ran = 0, refused = 0, absent = 0;
  std::string first_refused;
  for (size_t i = 0; i < cases.size(); ++i) {
    const SuiteCase& c = cases[i];
    if (c.command.empty()) {
      rows.push_back(unmeasured_row(c, c.reason, machine));
      ++absent;
      continue;
    }
    std::vector<std::string> arguments = c.command;
    if (o.spoil) arguments.push_back("--spoil-check");
    const Json what = identity(arguments);
    const std::string file = kept_file(o.out, c);
    if (o.fresh) {
      std::error_code wrong;
      std::filesystem::remove(file, wrong);
      if (wrong) fail(Exit::kIo, fmt::format("{}: cannot remove it: {}", file, wrong.message()));
    }
    std::optional<Json> document = kept(file, what);
    if (document) {
      ++again;
    } else {
      const std::string left = ran == 0
                                   ? ""
                                   : fmt::format(", about {:.0f} s left", watch.seconds() / static_cast<double>(ran) *
                                                                              static_cast<double>(cases.size() - i));
      note(fmt::format("[{}/{}] {}{}", i + 1, cases.size(), c.id(), left));
      arguments.insert(arguments.end(), {"-q", "-o", "json"});
      const Ended ended = run_child(arguments);
      ++ran;
      Json result = Json::parse(ended.out, nullptr, false);
      if (ended.code != 0 || !result.is_object()) {
        const bool unavailable = ended.code == static_cast<int>(Exit::kUnavailable);
        const std::string reason = (unavailable ? "not measured here: " : "refused: ") + reason_of(ended);
        rows.push_back(unmeasured_row(c, reason, machine));
        if (unavailable) {
          ++absent;
        } else {
          if (refused++ == 0) first_refused = c.id() + ": " + reason;
          warn(fmt::format("{}: {}", c.id(), reason));
        }
        continue;
      }
      document = what;
      (*document)["result"] = std::move(result);
      write_text(file, document->dump(1) + "\n");
    }
    add_rows(c, (*document)["result"], rows);
  }
  const Json report{{"schema", 1},       {"machine", machine}, {"git", sluice_revision()},
                    {"when", now_utc()}, {"quick", o.quick},   {"command", command_line()},
                    {"rows", rows}};
  write_text(o.out + "/report.json", report.dump(1) + "\n");
  write_text(o.out + "/report.csv", suite_csv(report));
  write_text(o.out + "/report.html", suite_html(report));
  print_out(
      fmt::format("{}/report.html, .csv, .json: {} rows of {} cases ({} kept from before, {} not measured here, {} "
                  "refused) in {}\n",
                  o.out, rows.size(), cases.size(), again, absent, refused, human_seconds(watch.seconds())));
  if (refused != 0)
    fail(Exit::kCheckFailed, fmt::format("{} of {} cases were refused; {}", refused, cases.size(), first_refused));
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
  sub->add_flag("--quick", o->quick, "Few cases and small inputs: some minutes");
  sub->add_option("--only", o->only, "Suites, or single cases as SUITE/CASE, comma-separated")
      ->delimiter(',')
      ->type_name("NAME,...");
  sub->add_flag("--list", o->list, "List the cases and their commands, and measure nothing");
  sub->add_flag("--fresh", o->fresh, "Measure again what is finished");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
