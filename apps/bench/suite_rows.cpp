// What the children of `sluice bench suite` print, as rows of its report. host only
#include <fnmatch.h>

#include <algorithm>
#include <map>

#include "bench.h"
#include "control/machine.h"
#include "suite.h"

namespace sluice::app {
namespace {

Json row_of(const SuiteCase& c, const std::string& name, const Json& machine) {
  return {{"suite", c.suite},
          {"case", name},
          {"value", nullptr},
          {"unit", nullptr},
          {"n", 0},
          {"min", nullptr},
          {"max", nullptr},
          {"values", Json::array()},
          {"passes", Json::array()},
          {"checked", false},
          {"published", nullptr},
          {"command", c.command.empty() ? "" : command_text(c)},
          {"reason", nullptr},
          {"of_case", c.id()},
          {"machine", machine}};
}

Json published_for(const std::string& suite, const std::string& name, const std::string& unit) {
  for (const Published& p : published_figures()) {
    if (p.suite != suite || ::fnmatch(p.pattern.c_str(), name.c_str(), 0) != 0) continue;
    // A time of some packets is a rate, too.
    const bool as_rate = p.unit == "ms" && p.packets > 0 && unit == "Mpackets/s";
    if (!as_rate && p.unit != unit) continue;
    return {{"value", as_rate ? p.packets / p.value * 1e-3 : p.value},
            {"unit", unit},
            {"source", p.source},
            {"hardware", p.hardware},
            {"differs", p.differs}};
  }
  return nullptr;
}

void set_values(const SuiteCase& c, Json& row, const std::string& unit, const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  row["value"] = median(values);
  row["unit"] = unit;
  row["n"] = values.size();
  row["min"] = *low;
  row["max"] = *high;
  row["values"] = values;
  row["published"] = published_for(c.suite, row["case"], unit);
}

std::vector<Json> rows_of_bench(const SuiteCase& c, const Json& result, const Json& here) {
  const Json machine = result.value("machine", here);
  // Another program's libraries may be of another build than this one.
  if (const std::string revision = result.value("git", "unknown");
      !c.program.empty() && revision != sluice_revision()) {
    return {unmeasured_row(
        c, c.name,
        fmt::format("refused: it measured revision {}, and this is {}: build both", revision, sluice_revision()),
        machine)};
  }
  const Json& verified = result.at("verified");
  const bool compared = verified.at("sample") > 0 && verified.at("mismatches") == 0;
  if (!c.reason.empty()) {
    Json row = unmeasured_row(c, c.name, c.reason, machine);
    row["checked"] = compared;
    return {row};
  }
  std::vector<Json> rows;
  for (const Json& one : result.at("results")) {
    const std::string own = one.at("case");
    if (one.contains("reason")) {
      rows.push_back(
          unmeasured_row(c, c.prefix + own, "not measured here: " + one["reason"].get<std::string>(), machine));
      continue;
    }
    Json row = row_of(c, c.prefix + own, machine);
    set_values(c, row, one.at("unit"), one.at("values"));
    row["checked"] = compared && own.starts_with(c.checked_prefix);
    row["input_hash"] = result.value("input_hash", Json(nullptr));
    row["seed"] = result.value("seed", Json(nullptr));
    // Of all repetitions together.
    if (one.contains("note")) row["note"] = one["note"];
    for (const SuiteColumn& column : suite_columns())
      if (one.contains(column.key) && one[column.key].is_number()) row[column.key] = one[column.key];
    rows.push_back(std::move(row));
  }
  return rows;
}

// What a program says that cannot measure something here; anything else is a check that failed.
bool is_absence(const std::string& message) {
  return message.starts_with("not available here") || message.starts_with("the data set is not here") ||
         message.starts_with("no AVX2 here");
}

// google-benchmark's JSON: a repetition is a value, a rate or where there is none its time; a rate of changes that were
// made meanwhile is a row of its own. The programs compare results before they time them, or the case says otherwise.
std::vector<Json> rows_of_benchmark(const SuiteCase& c, const Json& result, const Json& machine) {
  struct Measured {
    std::vector<double> values;
    std::string unit, error;
  };
  std::vector<std::string> order;
  std::map<std::string, Measured> all;
  for (const Json& one : result.at("benchmarks")) {
    if (one.value("run_type", "iteration") != "iteration") continue;
    std::string name = one.value("run_name", one.value("name", ""));
    for (const char* tail : {"/iterations:", "/manual_time"}) name = name.substr(0, name.find(tail));
    if (const std::string label = one.value("label", ""); !label.empty()) name += ", " + label;
    const auto [at, fresh] = all.try_emplace(name);
    if (fresh) order.push_back(name);
    for (const char* counter : {"updates", "changes"}) {
      if (!one.contains(counter) || !one[counter].is_number()) continue;
      const auto [beside, first] = all.try_emplace(name + "/" + counter);
      if (first) order.push_back(name + "/" + counter);
      beside->second.unit = fmt::format("M{}/s", counter);
      beside->second.values.push_back(one[counter].get<double>() * 1e-6);
    }
    Measured& m = at->second;
    if (one.value("error_occurred", false)) {
      m.error = one.value("error_message", "it failed");
    } else if (one.contains("bytes_per_second")) {
      m.unit = "GB/s";
      m.values.push_back(one["bytes_per_second"].get<double>() * 1e-9);
    } else if (one.contains("items_per_second")) {
      m.unit = fmt::format("M{}/s", c.items);
      m.values.push_back(one["items_per_second"].get<double>() * 1e-6);
    } else if (one.contains("real_time") && is_time(one.value("time_unit", ""))) {
      m.unit = one["time_unit"];
      m.values.push_back(one["real_time"].get<double>());
    }
  }
  std::vector<Json> rows;
  for (const std::string& name : order) {
    const Measured& m = all[name];
    if (!m.error.empty() || m.values.empty()) {
      const std::string why = m.error.empty() ? "it gives no rate" : m.error;
      rows.push_back(
          unmeasured_row(c, c.prefix + name, (is_absence(why) ? "not measured here: " : "refused: ") + why, machine));
      continue;
    }
    Json row = row_of(c, c.prefix + name, machine);
    set_values(c, row, m.unit, m.values);
    row["checked"] = c.checks;
    rows.push_back(std::move(row));
  }
  for (const std::string& peer : c.peers) {
    const bool there = std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
      return row["case"].get<std::string>().find(peer) != std::string::npos;
    });
    if (!there)
      rows.push_back(unmeasured_row(c, c.name + "/" + peer, "not measured here: " + c.without_peers, machine));
  }
  return rows;
}

}  // namespace

std::span<const SuiteColumn> suite_columns() {
  static constexpr SuiteColumn kColumns[] = {{"mpackets_per_second", "Mpackets/s"},
                                             {"of_cpu", "times the CPU's"},
                                             {"clocks_per_packet", "clocks/packet"},
                                             {"acl_plugin_ratio", "acl-plugin : this"},
                                             {"mean_us", "mean, us"},
                                             {"p50_us", "p50, us"},
                                             {"p99_us", "p99, us"},
                                             {"p999_us", "p99.9, us"},
                                             {"device_p50_us", "device p50, us"},
                                             {"kernel_p50_us", "kernel p50, us"},
                                             {"transfer_p50_us", "launch and copies p50, us"},
                                             {"convert_ms", "convert, ms"},
                                             {"allocate_ms", "allocate, ms"},
                                             {"to_device_ms", "to the device, ms"},
                                             {"kernel_ms", "kernel, ms"},
                                             {"to_host_ms", "to the host, ms"},
                                             {"corrected_buffer_time_s", "corrected buffer time, s"},
                                             {"build_seconds", "build, s"},
                                             {"bytes", "bytes"},
                                             {"cpu_cores", "cores busy"},
                                             {"cpu_watts", "CPU, W"},
                                             {"watts", "GPU, W"},
                                             {"idle_watts", "GPU idle, W"},
                                             {"utilisation", "GPU busy, 0 to 1"},
                                             {"packets_per_joule", "packets/J of the GPU"}};
  return kColumns;
}

std::vector<Json> join_passes(const SuiteCase& c, const std::vector<std::pair<unsigned, std::vector<Json>>>& passes) {
  struct Joined {
    Json row;
    std::vector<double> values;
    std::vector<unsigned> of;
    std::map<std::string, std::vector<double>> columns;
    std::vector<std::pair<unsigned, std::string>> notes;
  };
  std::vector<Joined> all;
  for (const auto& [pass, rows] : passes) {
    for (const Json& row : rows) {
      auto at = std::find_if(all.begin(), all.end(), [&](const Joined& j) { return j.row["case"] == row["case"]; });
      if (at == all.end()) at = all.insert(all.end(), {row, {}, {}, {}, {}});
      if (is_refused(at->row)) continue;
      // A figure stands over its absence in another pass, a refusal over both.
      if (is_refused(row) || at->row["value"].is_null()) at->row = row;
      if (row["value"].is_null()) continue;
      for (const double value : row["values"]) {
        at->values.push_back(value);
        at->of.push_back(pass);
      }
      for (const SuiteColumn& column : suite_columns())
        if (row.contains(column.key) && row[column.key].is_number()) at->columns[column.key].push_back(row[column.key]);
      if (const std::string note = row.value("note", ""); !note.empty()) at->notes.emplace_back(pass, note);
      at->row["checked"] = at->row["checked"] == true && row["checked"] == true;
    }
  }
  std::vector<Json> joined;
  for (Joined& j : all) {
    Json& row = j.row;
    if (!row["value"].is_null()) {
      set_values(c, row, row["unit"], j.values);
      row["passes"] = j.of;
      for (const auto& [key, values] : j.columns) row[key] = median(values);
      const bool one_note = j.notes.size() == passes.size() &&
                            std::all_of(j.notes.begin(), j.notes.end(),
                                        [&](const auto& note) { return note.second == j.notes.front().second; });
      if (!one_note && !j.notes.empty()) {
        std::string text;
        for (const auto& [pass, note] : j.notes)
          text += fmt::format("{}pass {}: {}", text.empty() ? "" : "; ", pass, note);
        row["note"] = text;
      }
    }
    joined.push_back(std::move(row));
  }
  return joined;
}

std::vector<Json> machine_rows(const std::vector<ProbesTaken>& taken, const Json& machine) {
  std::vector<Json> rows;
  if (taken.empty()) return rows;
  for (const ProbeKind& kind : probe_kinds()) {
    std::vector<double> values;
    std::vector<unsigned> passes;
    Json beside = Json::array();
    for (const ProbesTaken& one : taken) {
      const auto at = one.values.find(kind.name);
      if (at == one.values.end()) continue;
      values.push_back(at->second);
      passes.push_back(one.pass);
      beside.push_back(one.beside);
    }
    SuiteCase c;
    c.suite = kMachineSuite;
    c.name = kind.name;
    if (values.empty()) continue;
    Json row = row_of(c, kind.name, machine);
    set_values(c, row, kind.unit, values);
    row["passes"] = passes;
    row["beside"] = beside;
    rows.push_back(std::move(row));
  }
  return rows;
}

void put_ratios(Json& rows) {
  static const std::string kCpu = "cpu/", kCuda = "cuda/";
  std::map<std::string, double> of_cpu;
  const auto is_one = [](const Json& row) { return row["suite"] == "frame-latency" && row["value"].is_number(); };
  for (const Json& row : rows)
    if (const std::string name = row["case"]; is_one(row) && name.starts_with(kCpu))
      of_cpu[name.substr(kCpu.size())] = row["value"];
  for (Json& row : rows) {
    const std::string name = row["case"];
    if (!is_one(row) || !name.starts_with(kCuda)) continue;
    // cuda/MODE/ROW
    const auto at = of_cpu.find(name.substr(name.find('/', kCuda.size()) + 1));
    if (at != of_cpu.end() && row["value"] > 0) row["of_cpu"] = at->second / row["value"].get<double>();
  }
}

Json idle_row(double watts, const Json& machine) {
  SuiteCase c;
  c.suite = c.name = kMachineSuite;
  Json row = row_of(c, "idle", machine);
  set_values(c, row, "W", {watts});
  return row;
}

Json unmeasured_row(const SuiteCase& c, const std::string& name, const std::string& reason, const Json& machine) {
  Json row = row_of(c, name, machine);
  row["reason"] = reason;
  return row;
}

std::vector<Json> rows_without_program(const SuiteCase& c, const Json& machine) {
  std::vector<std::string> names;
  for (const std::string& peer : c.peers) names.push_back(c.name + "/" + peer);
  if (names.empty()) names.push_back(c.name);
  std::vector<Json> rows;
  for (const std::string& name : names)
    rows.push_back(unmeasured_row(c, name,
                                  fmt::format("not measured here: {} is neither beside this program nor in PATH (a "
                                              "build folder with -DSLUICE_BENCH_PEERS=ON: ninja {})",
                                              c.program, c.program),
                                  machine));
  return rows;
}

bool is_refused(const Json& row) {
  return row["reason"].is_string() && row["reason"].get<std::string>().starts_with("refused: ");
}

std::string command_text(const SuiteCase& c) {
  std::string text = c.program.empty() ? "sluice-bench" : c.program;
  for (const std::string& word : c.command) {
    const bool plain = word.find_first_of(" '\"$*|()[]^\\") == std::string::npos;
    text += plain ? " " + word : " '" + word + "'";
  }
  return text;
}

std::string reason_of(const Ended& ended) {
  // -o json puts errors on stderr as an object.
  const Json json = Json::parse(ended.err, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    const Json& error = json["error"];
    std::string text = error.value("message", "");
    // What is wrong in a file, where it says how many errors there are.
    const Json all = error.value("diagnostics", Json::array());
    if (all.is_array() && !all.empty() && all[0].is_object())
      text += fmt::format(": line {}: {}", all[0].value("line", 0), all[0].value("message", ""));
    return text;
  }
  if (ended.code > 128) return fmt::format("signal {} ended it", ended.code - 128);
  return fmt::format("it ended with exit code {}: {}", ended.code, ended.err.substr(0, ended.err.find('\n')));
}

std::vector<Json> rows_of(const SuiteCase& c, const Json& result, const Json& machine) {
  try {
    return c.output == SuiteOutput::kBenchmark ? rows_of_benchmark(c, result, machine)
                                               : rows_of_bench(c, result, machine);
  } catch (const Json::exception& wrong) {
    return {unmeasured_row(c, c.name, fmt::format("refused: it printed something else than a report: {}", wrong.what()),
                           machine)};
  }
}

}  // namespace sluice::app
