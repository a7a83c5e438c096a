// sluice bench compare: two reports of `sluice bench suite`, row by row. host only
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/input_file.h"
#include "bench.h"
#include "generate/random.h"
#include "suite.h"

namespace sluice::app {
namespace {

struct CompareOptions {
  std::string a, b;
  double threshold = 0.05;
};

struct ComparedRow {
  std::string unit;
  std::vector<double> values;  // empty: not measured
};

struct LoadedReport {
  std::vector<std::string> order;
  std::map<std::string, ComparedRow> rows;
  Json machine;
};

[[noreturn]] void no_report(const std::string& file, const std::string& what) {
  fail(Exit::kBadInput, fmt::format("{}: {}", file, what), "give a report.json of `sluice bench suite`, or its folder");
}

LoadedReport load_report(const std::string& given) {
  std::error_code unknown;
  const std::string file = std::filesystem::is_directory(given, unknown) ? given + "/report.json" : given;
  const Json json = Json::parse(need(read_text_file(file), Exit::kIo), nullptr, false);
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
    if (row.contains("value") && row["value"].is_number()) {
      if (!row.contains("unit") || !row["unit"].is_string()) no_report(file, fmt::format("{}: no unit", name));
      if (!row.contains("values") || !row["values"].is_array() || row["values"].empty())
        no_report(file, fmt::format("{}: no values", name));
      one.unit = row["unit"];
      for (const Json& value : row["values"]) {
        if (!value.is_number()) no_report(file, fmt::format("{}: a value that is no number", name));
        one.values.push_back(value);
      }
    }
    if (!report.rows.emplace(name, std::move(one)).second) no_report(file, fmt::format("{} stands twice", name));
    report.order.push_back(name);
  }
  return report;
}

struct Interval {
  double ratio = 0, low = 0, high = 0;
};

// The ratio of medians b/a and its 95 % interval: percentiles of the bootstrap (Efron, Annals of Statistics 7:1, 1979),
// both samples drawn anew, by a fixed seed.
Interval bootstrap(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr size_t kDraws = 10'000;
  Random random(1);
  std::vector<double> ratios, x(a.size()), y(b.size());
  for (size_t i = 0; i < kDraws; ++i) {
    for (double& v : x) v = a[random.below(a.size())];
    for (double& v : y) v = b[random.below(b.size())];
    ratios.push_back(median(y) / median(x));
  }
  std::sort(ratios.begin(), ratios.end());
  return {median(b) / median(a), ratios[kDraws * 25 / 1000], ratios[kDraws * 975 / 1000 - 1]};
}

// Why two rows are not judged; empty: they are.
std::string not_judged(const ComparedRow& a, const ComparedRow& b) {
  if (a.values.empty() || b.values.empty())
    return a.values.empty() && b.values.empty() ? "measured in neither"
           : a.values.empty()                   ? "measured only in B"
                                                : "measured only in A";
  if (a.unit != b.unit) return fmt::format("units differ: {} and {}", a.unit, b.unit);
  // An error about zero; a ratio of times. Neither is better for being more.
  if (a.unit == "%") return "a percentage is not judged";
  if (a.unit == "1") return "a ratio is not judged";
  if (a.values.size() < 3 || b.values.size() < 3) return "fewer than 3 values";
  for (const auto* values : {&a.values, &b.values})
    for (const double v : *values)
      if (!(v > 0) || !std::isfinite(v)) return "a ratio needs values above 0";
  return "";
}

Exit bench_compare(const CompareOptions& o) {
  LoadedReport a = load_report(o.a), b = load_report(o.b);
  const auto same = [](const char* key, const Json& x, const Json& y) {
    return x.value(key, Json(nullptr)) == y.value(key, Json(nullptr));
  };
  if (a.machine.is_object() && b.machine.is_object() &&
      !(same("cpu", a.machine, b.machine) && same("cores", a.machine, b.machine) && same("gpu", a.machine, b.machine)))
    warn("the two reports are of different machines");
  TextTable table({"row", "unit", "A", "B", "ratio", "95 % interval", "verdict"});
  Json rows = Json::array();
  size_t regressions = 0, judged = 0;
  for (const std::string& name : a.order) {
    const auto other = b.rows.find(name);
    if (other == b.rows.end()) {
      rows.push_back({{"row", name}, {"verdict", "only in A"}});
      table.add({name, "-", "-", "-", "-", "-", "only in A"});
      continue;
    }
    ComparedRow &x = a.rows[name], &y = other->second;
    if (const std::string why = not_judged(x, y); !why.empty()) {
      rows.push_back({{"row", name}, {"verdict", why}});
      table.add({name, "-", "-", "-", "-", "-", why});
      continue;
    }
    ++judged;
    // How many times as fast B is: of times, A over B.
    const bool time = is_time(x.unit);
    const Interval i = time ? bootstrap(y.values, x.values) : bootstrap(x.values, y.values);
    const bool slower = i.high<1 - o.threshold, faster = i.low> 1 / (1 - o.threshold);
    regressions += slower ? 1 : 0;
    const std::string verdict = slower ? "regression" : faster ? "faster" : "same";
    const double from = median(x.values), to = median(y.values);
    rows.push_back({{"row", name},
                    {"unit", x.unit},
                    {"a", from},
                    {"b", to},
                    {"ratio", i.ratio},
                    {"low", i.low},
                    {"high", i.high},
                    {"verdict", verdict}});
    table.add({name, x.unit, fmt::format("{:.4g}", from), fmt::format("{:.4g}", to), fmt::format("{:.3f}", i.ratio),
               fmt::format("{:.3f}-{:.3f}", i.low, i.high), verdict});
  }
  for (const std::string& name : b.order) {
    if (a.rows.contains(name)) continue;
    rows.push_back({{"row", name}, {"verdict", "only in B"}});
    table.add({name, "-", "-", "-", "-", "-", "only in B"});
  }
  if (json_output()) {
    print_json({{"schema", 1},
                {"a", o.a},
                {"b", o.b},
                {"threshold", o.threshold},
                {"interval", "95 % of the ratio of medians, bootstrap percentiles of 10,000 draws"},
                {"judged", judged},
                {"regressions", regressions},
                {"rows", rows}});
  } else {
    print_out(table.str() +
              fmt::format("{} rows judged, {} regressions; ratio: how many times as fast B is, with the 95 % "
                          "interval of a bootstrap of the medians\n",
                          judged, regressions));
  }
  if (regressions != 0)
    fail(Exit::kCheckFailed, fmt::format("{} of {} rows are slower in {} by more than {:g} %", regressions, judged, o.b,
                                         100 * o.threshold));
  return Exit::kOk;
}

}  // namespace

void add_bench_compare(Command bench) {
  auto o = std::make_shared<CompareOptions>();
  Command sub = add_subcommand(
      bench, "compare", "Subcommands",
      "Two reports of `bench suite`, row by row: how many times as fast B is as A, with a 95 % interval (bootstrap of "
      "the "
      "medians). Ends with 5 where a whole interval is below 1 - threshold",
      "sluice bench compare before after\nsluice bench compare before/report.json after/report.json --threshold 0.1",
      [o] { return bench_compare(*o); });
  sub->add_option("A", o->a, "Report, or its folder: before")->required()->type_name("A");
  sub->add_option("B", o->b, "Report, or its folder: after")->required()->type_name("B");
  sub->add_option("--threshold", o->threshold, "What part slower is no regression yet")
      ->check(Range(0.0, 0.99))
      ->type_name("PART")
      ->capture_default_str();
}

}  // namespace sluice::app
