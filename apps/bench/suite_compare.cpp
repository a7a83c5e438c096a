// sluice bench compare: two reports of `sluice bench suite`, row by row. host only
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "base/input_file.h"
#include "bench.h"
#include "suite.h"
#include "suite_judge.h"

namespace sluice::app {
namespace {

struct CompareOptions {
  std::string a, b;
  double threshold = 0.05;
};

struct ComparedRow {
  std::string unit;
  std::vector<double> values;                      // empty: not measured
  std::map<uint64_t, std::vector<double>> passes;  // the same by pass
  std::string of_case;
};

struct LoadedReport {
  std::vector<std::string> order;
  std::map<std::string, ComparedRow> rows;
  std::map<std::string, std::map<std::string, std::vector<double>>> probes;  // case -> probe -> how fast
  std::vector<std::string> measured;  // the cases of probes, in the order in which they were measured
  bool has_passes = true;
  Json machine;
};

[[noreturn]] void no_report(const std::string& file, const std::string& what) {
  fail(Exit::kBadInput, fmt::format("{}: {}", file, what), "give a report.json of `sluice bench suite`, or its folder");
}

LoadedReport load_report(const std::string& given) {
  std::error_code unknown;
  const std::string file = std::filesystem::is_directory(given, unknown) ? given + "/report.json" : given;
  const Json json = Json::parse(need(read_text_file(file), Exit::kIo), nullptr, false);
  if (json.is_discarded()) no_report(file, "no report: this is no JSON, or the end of it is missing");
  if (!json.is_object() || !json.contains("rows") || !json["rows"].is_array())
    no_report(file, "no report: it has no rows");
  if (json.value("schema", Json(nullptr)) != 1) no_report(file, "a report of another schema than 1");
  LoadedReport report;
  report.machine = json.value("machine", Json(nullptr));
  for (const Json& row : json["rows"]) {
    const std::string at = fmt::format("row {}", report.order.size() + 1);
    if (!row.is_object()) no_report(file, at + " is no object");
    for (const char* key : {"suite", "case"})
      if (!row.contains(key) || !row[key].is_string()) no_report(file, fmt::format("{} has no {}", at, key));
    const std::string name = row["suite"].get<std::string>() + "/" + row["case"].get<std::string>();
    ComparedRow one;
    if (row.contains("of_case") && row["of_case"].is_string()) one.of_case = row["of_case"];
    if (row.contains("value") && row["value"].is_number()) {
      if (!row.contains("unit") || !row["unit"].is_string()) no_report(file, fmt::format("{}: no unit", name));
      if (!row.contains("values") || !row["values"].is_array() || row["values"].empty())
        no_report(file, fmt::format("{}: no values", name));
      one.unit = row["unit"];
      const Json& values = row["values"];
      // One for each value, in the order of these.
      const Json passes = row.value("passes", Json(nullptr)), beside = row.value("beside", Json(nullptr));
      report.has_passes = report.has_passes && !passes.is_null();
      for (const auto& [what, list] : {std::pair{"passes", &passes}, {"beside", &beside}})
        if (!list->is_null() && (!list->is_array() || list->size() != values.size()))
          no_report(file, fmt::format("{}: {} is no list of one for each value", name, what));
      for (size_t i = 0; i < values.size(); ++i) {
        if (!values[i].is_number()) no_report(file, fmt::format("{}: a value that is no number", name));
        if (!passes.is_null() && !passes[i].is_number_unsigned())
          no_report(file, fmt::format("{}: a pass that is no number", name));
        const double value = values[i];
        one.values.push_back(value);
        one.passes[passes.is_null() ? i : passes[i].get<uint64_t>()].push_back(value);
        if (row["suite"] != kMachineSuite || beside.is_null()) continue;
        if (!beside[i].is_string()) no_report(file, fmt::format("{}: beside names no case", name));
        if (!(value > 0) || !std::isfinite(value))
          no_report(file, fmt::format("{}: a value that is not above 0", name));
        const auto [probe, first] = report.probes.try_emplace(beside[i]);
        if (first) report.measured.push_back(beside[i]);
        probe->second[row["case"]].push_back(is_time(one.unit) ? 1 / value : value);
      }
    }
    if (!report.rows.emplace(name, std::move(one)).second) no_report(file, fmt::format("{} stands twice", name));
    report.order.push_back(name);
  }
  return report;
}

// Logarithms of how fast a row is in each pass: of the median, for a time of what is done in it.
std::vector<double> speeds(const ComparedRow& row) {
  std::vector<double> all;
  for (const auto& [pass, values] : row.passes) all.push_back((is_time(row.unit) ? -1 : 1) * std::log(median(values)));
  return all;
}

// By how much the slowest and the fastest probe about a case changed; 1 where there is none.
struct MachineChange {
  double slowest = 1, fastest = 1;
  std::string slowest_name, fastest_name;
};

bool is_of_scheduler(const std::string& probe) {
  const auto& kinds = probe_kinds();
  return std::any_of(kinds.begin(), kinds.end(), [&](const ProbeKind& k) { return k.of_scheduler && k.name == probe; });
}

// How many cases before and after it a case's probes are taken together with: six values of one case, on a machine with
// other work, are noise of tens of percent, and the slowest of some such changes would excuse everything.
constexpr size_t kNeighbours = 2;

// The median of a probe beside a case and `neighbours` on either side; nothing where it was not taken beside the case.
std::optional<double> probe_about(const LoadedReport& report, const std::string& of_case, const std::string& probe,
                                  size_t neighbours) {
  const auto own = report.probes.find(of_case);
  if (own == report.probes.end() || !own->second.contains(probe)) return std::nullopt;
  const auto& order = report.measured;
  const auto at = static_cast<size_t>(std::find(order.begin(), order.end(), of_case) - order.begin());
  std::vector<double> all;
  for (size_t i = at < neighbours ? 0 : at - neighbours; i < std::min(order.size(), at + neighbours + 1); ++i) {
    const auto& near = report.probes.at(order[i]);
    if (const auto values = near.find(probe); values != near.end())
      all.insert(all.end(), values->second.begin(), values->second.end());
  }
  return median(all);
}

MachineChange machine_change(const LoadedReport& a, const LoadedReport& b, const std::string& of_case) {
  MachineChange change;
  const auto own = a.probes.find(of_case);
  if (own == a.probes.end()) return change;
  for (const auto& [name, values] : own->second) {
    // What the scheduler decides may lie within the case's own seconds, or be chance of these: both bound it.
    for (const size_t neighbours : {kNeighbours, is_of_scheduler(name) ? size_t{0} : kNeighbours}) {
      const auto before = probe_about(a, of_case, name, neighbours), after = probe_about(b, of_case, name, neighbours);
      if (!before || !after) continue;
      const double ratio = *after / *before;
      if (ratio < change.slowest) {
        change.slowest = ratio;
        change.slowest_name = name;
      }
      if (ratio > change.fastest) {
        change.fastest = ratio;
        change.fastest_name = name;
      }
    }
  }
  return change;
}

const char* verdict_text(Verdict change) {
  switch (change) {
    case Verdict::kSame:
      return "same";
    case Verdict::kUnclear:
      return "not told apart";
    case Verdict::kSlowerAsMachine:
      return "slower, as the machine is";
    case Verdict::kFasterAsMachine:
      return "faster, as the machine is";
    case Verdict::kSlower:
      return "regression";
    case Verdict::kFaster:
      return "faster";
  }
  return "";
}

// Why two rows are not judged; empty: they are.
std::string not_judged(const std::string& name, const ComparedRow& a, const ComparedRow& b) {
  if (name.starts_with(kMachineSuite + std::string("/"))) return "the machine itself";
  if (a.values.empty() || b.values.empty())
    return a.values.empty() && b.values.empty() ? "measured in neither"
           : a.values.empty()                   ? "measured only in B"
                                                : "measured only in A";
  if (a.unit != b.unit) return fmt::format("units differ: {} and {}", a.unit, b.unit);
  // An error about zero; a ratio of times. Neither is better for being more.
  if (a.unit == "%") return "a percentage is not judged";
  if (a.unit == "1") return "a ratio is not judged";
  if (a.passes.size() < 2 || b.passes.size() < 2) return "fewer than 2 passes";
  for (const auto* values : {&a.values, &b.values})
    for (const double v : *values)
      if (!(v > 0) || !std::isfinite(v)) return "a ratio needs values above 0";
  return "";
}

void warn_of_reports(const CompareOptions& o, const LoadedReport& a, const LoadedReport& b) {
  const auto same = [](const char* key, const Json& x, const Json& y) {
    return x.value(key, Json(nullptr)) == y.value(key, Json(nullptr));
  };
  if (a.machine.is_object() && b.machine.is_object() &&
      !(same("cpu", a.machine, b.machine) && same("cores", a.machine, b.machine) && same("gpu", a.machine, b.machine)))
    warn("the two reports are of different machines");
  for (const auto& [report, file] : {std::pair{&a, &o.a}, {&b, &o.b}}) {
    if (!report->has_passes)
      warn(fmt::format(
          "{} was made without passes: its repetitions, which lie directly behind one another, are taken as "
          "passes, and their spread says too little",
          *file));
    if (report->probes.empty())
      warn(fmt::format("{} has no measurements of the machine itself: what the machine did is taken for the program's",
                       *file));
  }
}

struct CompareLine {
  std::string name, reason;  // of one that is not judged
  MachineChange machine;
};

// The rows of both reports; `pairs`: those that are judged. Ends with kBadInput where there are none.
std::vector<CompareLine> pair_rows(const CompareOptions& o, LoadedReport& a, const LoadedReport& b,
                                   std::vector<PairedRow>& pairs) {
  std::vector<CompareLine> lines;
  for (const std::string& name : a.order) {
    const auto other = b.rows.find(name);
    CompareLine& line = lines.emplace_back(CompareLine{name, "only in A", {}});
    if (other == b.rows.end()) continue;
    const ComparedRow &x = a.rows[name], &y = other->second;
    line.reason = not_judged(name, x, y);
    if (!line.reason.empty()) continue;
    line.machine = machine_change(a, b, x.of_case);
    pairs.push_back({speeds(x), speeds(y), name.substr(0, name.find('/')) + " " + x.unit,
                     std::log(line.machine.slowest), std::log(line.machine.fastest)});
  }
  for (const std::string& name : b.order)
    if (!a.rows.contains(name)) lines.push_back({name, "only in B", {}});
  if (pairs.empty()) {
    std::string why = "there is no row";
    for (const CompareLine& line : lines)
      if (!line.reason.empty() && line.reason != "the machine itself") why = line.reason;
    fail(Exit::kBadInput, fmt::format("{} and {}: no row can be judged: {}", o.a, o.b, why),
         "compare two reports of the same suites, each of 2 passes or more");
  }
  return lines;
}

Exit bench_compare(const CompareOptions& o) {
  LoadedReport a = load_report(o.a), b = load_report(o.b);
  warn_of_reports(o, a, b);
  std::vector<PairedRow> pairs;
  const std::vector<CompareLine> lines = pair_rows(o, a, b, pairs);
  const std::vector<Judged> judged = judge(pairs, -std::log(1 - o.threshold));
  TextTable table({"row", "unit", "A", "B", "ratio", "95 % interval", "machine", "verdict"});
  Json rows = Json::array();
  std::map<Verdict, size_t> counts;
  size_t next = 0;
  for (const CompareLine& line : lines) {
    if (!line.reason.empty()) {
      rows.push_back({{"row", line.name}, {"verdict", line.reason}});
      table.add({line.name, "-", "-", "-", "-", "-", "-", line.reason});
      continue;
    }
    const Judged& j = judged[next++];
    ++counts[j.verdict];
    const ComparedRow &x = a.rows[line.name], &y = b.rows[line.name];
    const double from = median(x.values), to = median(y.values), ratio = std::exp(j.change), low = std::exp(j.low),
                 high = std::exp(j.high);
    // What the row is held against.
    const double machine = j.change < 0 ? line.machine.slowest : line.machine.fastest;
    const std::string& probe = j.change < 0 ? line.machine.slowest_name : line.machine.fastest_name;
    rows.push_back({{"row", line.name},
                    {"unit", x.unit},
                    {"a", from},
                    {"b", to},
                    {"ratio", ratio},
                    {"low", low},
                    {"high", high},
                    {"machine", machine},
                    {"probe", probe.empty() ? Json(nullptr) : Json(probe)},
                    {"verdict", verdict_text(j.verdict)}});
    table.add({line.name, x.unit, fmt::format("{:.4g}", from), fmt::format("{:.4g}", to), fmt::format("{:.3f}", ratio),
               fmt::format("{:.3f}-{:.3f}", low, high), probe.empty() ? "-" : fmt::format("{:.3f} {}", machine, probe),
               verdict_text(j.verdict)});
  }
  const size_t regressions = counts[Verdict::kSlower];
  if (json_output()) {
    print_json({{"schema", 1},
                {"a", o.a},
                {"b", o.b},
                {"threshold", o.threshold},
                {"interval",
                 "95 % of the ratio of geometric means over passes: Student's, of variances moderated over "
                 "the rows of a suite and unit"},
                {"correction", "Holm, 5 % for all rows together"},
                {"judged", judged.size()},
                {"regressions", regressions},
                {"rows", rows}});
  } else {
    print_out(
        table.str() +
        fmt::format(
            "{} rows judged: {} regressions, {} slower as the machine is, {} not told apart, {} same, {} faster as "
            "the machine is, {} faster\n"
            "ratio: how many times as fast B is, of the means over the passes, with the 95 % interval of this row "
            "alone\n"
            "machine: of its own measurements about the row's case the slowest, of a faster row the fastest, B by A\n"
            "regression: slower by more than {:g} % beyond that, which in equal builds 5 % of comparisons show in any "
            "of "
            "their rows (Holm)\n",
            judged.size(), regressions, counts[Verdict::kSlowerAsMachine], counts[Verdict::kUnclear],
            counts[Verdict::kSame], counts[Verdict::kFasterAsMachine], counts[Verdict::kFaster], 100 * o.threshold));
  }
  if (regressions != 0)
    fail(Exit::kCheckFailed,
         fmt::format("{} of {} rows are slower in {} by more than {:g} % beyond what the machine was", regressions,
                     judged.size(), o.b, 100 * o.threshold));
  return Exit::kOk;
}

}  // namespace

void add_bench_compare(Command bench) {
  auto o = std::make_shared<CompareOptions>();
  Command sub = add_subcommand(
      bench, "compare", "Subcommands",
      "Compares two reports of `bench suite`, row by row: how many times as fast B is as A. A regression is slower by "
      "more than "
      "the threshold beyond the slowest of the machine's own measurements about that case, told from chance over the "
      "passes at 5 % for all rows together (Holm). A row that is slower by as much as the machine, or that cannot be "
      "told apart, is no regression. Ends with 5 where there is a regression",
      "sluice bench compare before after\nsluice bench compare before/report.json after/report.json --threshold 0.1",
      [o] { return bench_compare(*o); });
  sub->add_option("A", "A", o->a, "Report, or its folder: before")->required();
  sub->add_option("B", "B", o->b, "Report, or its folder: after")->required();
  sub->add_number("--threshold", "PART", o->threshold, "What part slower is no regression yet", Range(0.0, 0.99));
}

}  // namespace sluice::app
