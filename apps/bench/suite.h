// What the parts of `sluice bench suite` and `compare` share: what is measured, and the rows that come of it.
// host only
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/sluice/app.h"
#include "child.h"
#include "control/json.h"
#include "machine_probe.h"

namespace sluice::app {

// A figure that a study published (studies/NAME/published.json), for the rows of its suite with the same parameters:
// those whose case is `pattern`, where `*` stands for any text.
struct Published {
  std::string suite, pattern, unit;
  double value = 0;
  double packets = 0;  // of a time: those that are processed in it; 0: it is no such time
  std::string source, hardware, differs;
};

// A published study or a set of tables, and what is measured in its place.
struct Suite {
  std::string name, title, about;
};

// What a child prints.
enum class SuiteOutput : uint8_t {
  kBench,      // the report of a command of this program: `bench_report`
  kBenchmark,  // google-benchmark's JSON
};

// One command that is run as a child process; each of its results becomes a row.
struct SuiteCase {
  std::string suite, name;           // file-safe; together unique
  std::vector<std::string> command;  // arguments of sluice-bench without -q -o json; empty: nothing is run
  std::string prefix;                // put before the case of each result
  std::string reason;                // why nothing is run, or why the figures of what is run are left out
  std::string checked_prefix;        // the child's check covers the results whose case begins so
  std::string program;               // run in place of sluice-bench; one that reports as it does takes its options
  std::string measured;              // a file that such a program measures: another one is another build
  SuiteOutput output = SuiteOutput::kBench;
  std::vector<std::string> peers;  // names, or parts of them, of results that must be there; one that is not has a row
  std::string without_peers;       // that says so
  std::string items = "lookups";   // of google-benchmark's items: the unit is millions of them a second
  bool checks = true;              // that program compares what it times with a reference
  ProbeSet probes = ProbeSet::kOneCore;  // of the machine, beside it
  unsigned devices = 0;                  // CUDA devices that it needs beyond what its command says

  std::string id() const { return suite + "/" + name; }
};

const std::vector<Suite>& suites();  // the studies' among them
// quick: few cases and small counts, some minutes on two cores. `cores`: workers are 1 and that many. `vpp`: the build
// folder of integrations/vpp, or "".
std::vector<SuiteCase> suite_cases(bool quick, unsigned cores, const std::string& vpp);
const std::vector<Published>& published_figures();

// What `suite` and `study` are asked for.
struct SuiteOptions {
  std::string out;
  std::vector<std::string> only;
  bool quick = false, list = false, fresh = false, spoil = false;
  std::string vpp;  // the build folder of integrations/vpp; "": there is none
  std::string rapl = "/sys/class/powercap";
  unsigned passes = 0;  // 0: kPasses, or with --quick kQuickPasses
  // Of --quick: what has not begun by then, or does not end, has a row that says so.
  double limit_s = 9 * 60, case_limit_s = 90;
};
// What its caller left open: limits, passes, the folder of the plug-in for VPP.
void settle(SuiteOptions& o);
void add_vpp_option(Command sub, SuiteOptions& o);
void list_cases(const std::vector<SuiteCase>& cases);

struct SuiteReport {
  Json json;  // as report.json
  size_t cases = 0, kept = 0, absent = 0, refused = 0;
  std::string first_refused;
  std::vector<std::string> warnings;
};
// Measures the cases. What has finished is kept in o.out, which is made.
SuiteReport run_suite(const SuiteOptions& o, std::vector<SuiteCase> cases);

// What some rows have besides their value: percentiles of all repetitions, the parts of a device's time.
struct SuiteColumn {
  const char *key, *heading;
};
std::span<const SuiteColumn> suite_columns();

// The rows of a case that has finished. `result`: what it printed. A result that its check does not allow has a reason
// that begins with "refused: " and no figure.
std::vector<Json> rows_of(const SuiteCase& c, const Json& result, const Json& machine);
// One row of each name of what a case gave in its passes: the values of all of them, and in "passes" the pass of each
// value. A row that a check refused in any pass is that row. `passes`: number of the pass (from 1) and its rows.
std::vector<Json> join_passes(const SuiteCase& c, const std::vector<std::pair<unsigned, std::vector<Json>>>& passes);
// The rows of the suite "machine". taken: case, number of its pass, what the probes gave before or after it.
struct ProbesTaken {
  std::string beside;
  unsigned pass = 0;
  std::map<std::string, double> values;
};
std::vector<Json> machine_rows(const std::vector<ProbesTaken>& taken, const Json& machine);
inline constexpr const char* kMachineSuite = "machine";
// The watts of the processors while nothing ran, as a row of that suite.
Json idle_row(double watts, const Json& machine);
// In rows of frame-latency, how many times as fast a device is as the CPU in the row of the same name: "of_cpu".
void put_ratios(Json& rows);
// A row without a figure.
Json unmeasured_row(const SuiteCase& c, const std::string& name, const std::string& reason, const Json& machine);
std::vector<Json> rows_without_program(const SuiteCase& c, const Json& machine);
bool is_refused(const Json& row);
// As a shell takes it.
std::string command_text(const SuiteCase& c);
// What a child that failed said.
std::string reason_of(const Ended& ended);

// A unit of which less is better: a time.
bool is_time(const std::string& unit);

// The whole page, without anything from elsewhere. `report`: as report.json.
std::string suite_html(const Json& report);
std::string suite_csv(const Json& report);

}  // namespace sluice::app
