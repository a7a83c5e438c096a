// host only
#include "app.h"

#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "app_state.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "control/json.h"
#include "control/report.h"

namespace sluice::app {
namespace {

std::atomic<bool> g_interrupted{false}, g_hangup{false};
std::atomic<void (*)()> g_restore{nullptr};
std::atomic<unsigned> g_in_order{0};  // EndsInOrder that live
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void leave_nothing() {
  remove_unfinished();
  if (void (*const restore)() = g_restore.load(std::memory_order_relaxed)) restore();
}

// SIGALRM in half a second; in ten where what was under way has ended and the process is about to.
void start_grace(bool ending = false) {
  const itimerval once{{0, 0}, {ending ? 10 : 0, ending ? 0 : 500'000}};
  (void)::setitimer(ITIMER_REAL, &once, nullptr);
}
void on_end_of_grace(int) {
  if (g_in_order.load() != 0) return;  // it begins again with the end of that
  leave_nothing();
  const char* text = json_output() ? R"({"error":{"message":"interrupted","exit_code":130}})"
                                     "\n"
                                   : "error: interrupted\n";
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(static_cast<int>(Exit::kInterrupted));
}

void on_signal(int number) {
  if (!g_interrupted.exchange(true)) {
    const int error = errno;
    start_grace();
    errno = error;
    return;
  }
  // The second one ends the program at once.
  leave_nothing();
  signal(number, SIG_DFL);
  raise(number);
}

void on_hangup(int) {
  g_hangup.store(true, std::memory_order_relaxed);
}

void to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

AppState& app_state() {
  static AppState state;
  return state;
}

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction alarm {};
  alarm.sa_handler = on_end_of_grace;
  alarm.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &alarm, nullptr);
  // The end of a terminal; not under nohup.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  InputFile::stop_when(&g_interrupted);
}

void take_hangups() {
  struct sigaction action {};
  action.sa_handler = on_hangup;
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, &action, nullptr);
}
bool hangup_came() {
  return g_hangup.exchange(false, std::memory_order_relaxed);
}

std::string_view exit_code_help() {
  return "Exit codes: 0 success; 1 the input or the configuration has errors; 2 wrong command line; 3 a file cannot "
         "be\n"
         "read or written, or no memory or thread; 4 not available here; 5 a check failed; 130 interrupted. Output of "
         "a\n"
         "run that is interrupted or meets damaged input is in NAME.partial; NAME stays as it was.";
}

bool reader_is_gone(const Error& error) {
  if (!error.system || !error.message.ends_with(std::strerror(EPIPE))) return false;
  pollfd out{STDOUT_FILENO, 0, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

void fail(Exit code, std::string message, std::string hint) {
  throw Failure{code, Error(std::move(message), std::move(hint))};
}
void fail(Exit code, Error error) {
  // What the system refuses is not an error of the input, whoever met it.
  if (error.system && code == Exit::kBadInput) code = Exit::kIo;
  throw Failure{code, std::move(error)};
}

namespace {

void complete_subcommand(Command sub, const std::string& group, const std::string& examples,
                         std::function<Exit()> run) {
  sub.group(group);
  AppState& state = app_state();
  sub->add_flag("-q,--quiet", state.quiet, "No progress or notes on stderr; errors are still printed");
  sub->add_option("--user", "NAME", state.user,
                  "Run as this user (needs root): switch before any file is opened, so that output directories must be "
                  "writable by it");
  std::string footer = "Examples:\n";
  for (size_t at = 0; at < examples.size();) {
    const size_t end = std::min(examples.find('\n', at), examples.size());
    footer += "  " + examples.substr(at, end - at) + "\n";
    at = end + 1;
  }
  sub->footer(footer + "\n" + std::string(exit_code_help()));
  if (run) {
    sub->callback([run = std::move(run), app = &sub.app()] {
      app_state().selected = run;
      app_state().selected_app = app;
    });
  }
}

}  // namespace

Command add_subcommand(Command root, const std::string& name, const std::string& group, const std::string& summary,
                       const std::string& examples, std::function<Exit()> run) {
  Command sub = root.add_subcommand(name, summary);
  sub->add_option("-o,--output", "FORMAT", app_state().format, "Format of results on stdout: table or json")
      ->check(OneOf{{"table", "json"}});
  complete_subcommand(sub, group, examples, std::move(run));
  return sub;
}

Command add_filing_subcommand(Command root, const std::string& name, const std::string& group,
                              const std::string& summary, const std::string& examples, std::function<Exit()> run) {
  Command sub = root.add_subcommand(name, summary);
  complete_subcommand(sub, group, examples, std::move(run));
  return sub;
}

bool json_output() {
  return app_state().format == "json";
}
bool quiet() {
  return app_state().quiet;
}
std::string command_line() {
  return app_state().command;
}

void print_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      fail(Exit::kIo, system_error("standard output: cannot write", errno));
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}
void print_json(const Json& json) {
  print_out(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}
void print_result(const Json& json, std::string_view text) {
  if (json_output()) return print_json(json);
  print_out(text);
}
void print_report(std::string_view text, const std::vector<std::string>& outputs) {
  const bool taken = std::any_of(outputs.begin(), outputs.end(), [](const std::string& path) {
    // "-", /dev/stdout or another name of the same descriptor.
    const auto place = find_output(path);
    return !path.empty() && place.ok() && place->kind == OutputPlace::Kind::kDescriptor &&
           place->descriptor == STDOUT_FILENO;
  });
  if (!taken) return print_out(text);
  if (text.ends_with('\n')) text.remove_suffix(1);
  note(text);
}
void note(std::string_view text) {
  if (quiet()) return;
  to_stderr(printable(text) + "\n");
}
void warn(std::string_view text) {
  to_stderr(fmt::format("warning: {}\n", printable(text)));
}
void print_warnings(const std::vector<Diagnostic>& diagnostics) {
  if (quiet()) return;
  for (const Diagnostic& d : diagnostics) to_stderr(to_string(d));
}

Json to_json(const Error& error, Exit code) {
  Json json = sluice::to_json(error);
  json["exit_code"] = static_cast<int>(code);
  return Json{{"error", json}};
}

Progress::Progress(std::string what, uint64_t total)
    : what_(std::move(what)),
      total_(total),
      on_(!quiet() && ::isatty(STDERR_FILENO) == 1),
      started_(std::chrono::steady_clock::now()),
      last_(started_) {}

void Progress::update(uint64_t done) {
  done_ = done;
  if (!on_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(200)) return;
  last_ = now;
  show();
}
void Progress::step(std::string what) {
  what_ = std::move(what);
  done_ = 0;
  if (on_) show();
}
void Progress::show() {
  std::string text = "\r\x1b[K" + what_;
  if (done_ != 0) text += fmt::format(" {}", with_commas(done_));
  if (done_ != 0 && total_ != 0) text += fmt::format(" of {}", with_commas(total_));
  to_stderr(text);
  shown_ = true;
}
void Progress::clear() {
  if (shown_) to_stderr("\r\x1b[K");
  shown_ = false;
}

const std::atomic<bool>& interrupted() {
  return g_interrupted;
}
void restore_when_killed(void (*restore)()) {
  g_restore.store(restore, std::memory_order_relaxed);
}
EndsInOrder::EndsInOrder() {
  g_in_order.fetch_add(1);
}
EndsInOrder::~EndsInOrder() {
  if (counts_ && g_in_order.fetch_sub(1) == 1 && g_interrupted.load()) start_grace(true);
}
void stop_if_interrupted() {
  if (g_interrupted.load(std::memory_order_relaxed)) fail(Exit::kInterrupted, "interrupted");
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file = need(AtomicFile::create(path), Exit::kIo);
  file.write(text);
  need(file.commit(), Exit::kIo);
}
RunFiles command_files() {
  RunFiles files;
  if (json_output()) files.output("-o json", "-");
  return files;
}
void check_files(const RunFiles& files) {
  need(files.check(), Exit::kUsage);
}

void output_file(RunFiles& files, const std::string& out) {
  if (out.empty() || out == "-") {
    files.output(out.empty() ? "standard output" : "--out", "-");
  } else {
    files.output("--out", out);
  }
}

Exit end_partial(const std::vector<std::string>& outputs, const std::optional<Error>& damage) {
  std::vector<std::string> partial;
  for (const std::string& output : outputs) {
    if (output.ends_with(kPartialSuffix)) partial.push_back(output);
  }
  const std::string places = fmt::format("the output up to that point is in {}", fmt::join(partial, ", "));
  if (damage) {
    Error error = *damage;
    if (!partial.empty()) error.hint += (error.hint.empty() ? "" : "; ") + places;
    fail(Exit::kBadInput, std::move(error));
  }
  warn(partial.empty() ? "interrupted" : "interrupted: " + places);
  return Exit::kInterrupted;
}

void add_workers_option(Command sub, unsigned& workers) {
  sub.add_number("--workers", "N", workers, "Worker threads, 1 to 256", Range(1, 256));
}
TemporaryFolder::TemporaryFolder(const std::string& name, const std::string& help) {
  const char* given = std::getenv("TMPDIR");
  const std::string folder = given == nullptr || *given == 0 ? "/tmp" : given;
  std::string pattern = fmt::format("{}/{}-XXXXXX", folder, name);
  if (::mkdtemp(pattern.data()) == nullptr) {
    const int why = errno;
    fail(Exit::kIo, system_error(fmt::format("cannot create a temporary directory in {}", folder), why).message, help);
  }
  path_ = pattern;
  listed_ = Unfinished(pattern + "/");
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}
void TemporaryFolder::keep() {
  listed_ = {};
  path_.clear();
}
void exactly_one(bool first, bool second, std::string_view names) {
  if (first == second) {
    fail(Exit::kUsage, first ? fmt::format("{} cannot be given together", names) : fmt::format("{} is missing", names));
  }
}

}  // namespace sluice::app
