// What every subcommand shares: exit codes, errors, output formats, progress, interruption.
// host only
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/human.h"
#include "base/result.h"
#include "base/run_files.h"
#include "base/unfinished.h"
#include "command_line.h"

namespace sluice::app {

using Json = nlohmann::ordered_json;

enum class Exit : int {
  kOk = 0,
  kBadInput = 1,     // the input or the configuration has errors
  kUsage = 2,        // the command line is wrong
  kIo = 3,           // a file is missing or unreadable, an output failed, or there is no memory or no thread
  kUnavailable = 4,  // the device or feature is not available here
  kCheckFailed = 5,  // a check of our own results failed
  kInterrupted = 130,
};
std::string_view exit_code_help();
// The reader of standard output has gone (`| head`): such an error ends with kIo as any other, and nobody is told.
bool reader_is_gone(const Error& error);

// How a subcommand ends early; main prints it. The applications throw, the library never does.
struct Failure {
  Exit code;
  Error error;
};
[[noreturn]] void fail(Exit code, std::string message, std::string hint = {});
[[noreturn]] void fail(Exit code, Error error);
// The value, or the end.
template <typename T>
T need(Result<T> result, Exit code = Exit::kBadInput) {
  if (!result.ok()) fail(code, std::move(result).error());
  return std::move(result).value();
}
inline void need(Result<void> result, Exit code = Exit::kBadInput) {
  if (!result.ok()) fail(code, std::move(result).error());
}

// -- subcommands ----------------------------------------------------------------------------------------------------

// A subcommand with the options that all have (-o, --quiet). `examples` is one command a line.
Command add_subcommand(Command root, const std::string& name, const std::string& group, const std::string& summary,
                       const std::string& examples, std::function<Exit()> run);

// The same without -o, for a command whose results are files.
Command add_filing_subcommand(Command root, const std::string& name, const std::string& group,
                              const std::string& summary, const std::string& examples, std::function<Exit()> run);

bool json_output();  // -o json
bool quiet();
std::string command_line();  // as typed, for reports

void add_classify(Command root);
void add_flows(Command root);
void add_route(Command root);
void add_compile(Command root);
void add_tables(Command root);
void add_run(Command root);
void add_show(Command root);
void add_check(Command root);
void add_explain(Command root);
void add_gen(Command root);
void add_send(Command root);
void add_doctor(Command root);
void add_elements(Command root);
void add_demo(Command root);
void add_help(Command root);

// -- output -----------------------------------------------------------------------------------------------------------

// Prints to stdout. Errors end the program.
void print_out(std::string_view text);
void print_json(const Json& json);
// Whichever -o asks for.
void print_result(const Json& json, std::string_view text);
// The report of a run for people: on stdout, or on stderr where one of the outputs is stdout.
void print_report(std::string_view text, const std::vector<std::string>& outputs);
// A note for people, on stderr; nothing with --quiet.
void note(std::string_view text);
void warn(std::string_view text);
void print_warnings(const std::vector<Diagnostic>& diagnostics);

Json to_json(const Error& error, Exit code);

// --- long work ---

// One line on stderr that is rewritten, on a terminal only and not with --quiet.
class Progress {
 public:
  explicit Progress(std::string what, uint64_t total = 0);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(uint64_t done);
  void step(std::string what);
  void clear();

 private:
  void show();
  std::string what_;
  uint64_t total_;
  uint64_t done_ = 0;
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point started_, last_;
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Set by SIGINT, SIGTERM and SIGHUP. A second signal ends the program at once.
const std::atomic<bool>& interrupted();
// Ends the program with Exit::kInterrupted when a signal came.
void stop_if_interrupted();

// Where nothing looks at interrupted() for half a second after a signal, as while a table is built, the program ends
// there with Exit::kInterrupted, and what it has begun to write is removed. While one of these lives it does not: the
// command has outputs, a report or a process to bring to an end, and looks itself.
class EndsInOrder {
 public:
  EndsInOrder();
  EndsInOrder(EndsInOrder&& other) noexcept : counts_(std::exchange(other.counts_, false)) {}
  EndsInOrder& operator=(EndsInOrder&&) = delete;
  ~EndsInOrder();

 private:
  bool counts_ = true;
};

// Called by the signal that ends the program at once, in its handler; nullptr: nothing is.
void restore_when_killed(void (*restore)());

// --- outputs ---

// The whole of a file. Ends with kIo where it cannot be written.
void write_file(const std::string& path, std::string_view text);
// The files of a command, before it names any: standard output, where -o json puts an object there.
RunFiles command_files();
// Ends with kUsage where an output of the command line is another of its files, too, or two things want standard
// output. Before anything is read.
void check_files(const RunFiles& files);
// Declares --out, which is standard output where it is not given.
void output_file(RunFiles& files, const std::string& out);
// Ends a command whose outputs are partial, after its report: says where they are (names without .partial are left
// out), then ends with kBadInput for `damage`, or says kInterrupted.
Exit end_partial(const std::vector<std::string>& outputs, const std::optional<Error>& damage);

// --- devices ---

void add_workers_option(Command sub, unsigned& workers);
// A new folder in TMPDIR, else in /tmp, which goes with all that is in it. Ends with kIo where there can be none.
class TemporaryFolder {
 public:
  TemporaryFolder(const std::string& name, const std::string& help);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void keep();  // it stays

 private:
  std::string path_;
  Unfinished listed_;
};
// Ends with kUsage unless exactly one of the two was given.
void exactly_one(bool first, bool second, std::string_view names);

}  // namespace sluice::app
