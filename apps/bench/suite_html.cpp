// The report of `sluice bench suite` as a page and as comma-separated values. The page needs nothing beside itself.
// host only
#include <algorithm>
#include <cmath>

#include "suite.h"

namespace sluice::app {
namespace {

std::string html_text(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

// Three digits or more, never an exponent above 1.
std::string figure(double v) {
  const double size = std::abs(v);
  if (size >= 1000) return fmt::format("{:.0f}", v);
  if (size >= 100) return fmt::format("{:.1f}", v);
  return size >= 1 ? fmt::format("{:.2f}", v) : fmt::format("{:.3g}", v);
}

std::string unit_text(const std::string& unit) {
  if (unit == "Mpackets/s") return "million packets per second";
  if (unit == "Mlookups/s") return "million lookups per second";
  if (unit == "1" || unit == "x") return "ratio";
  return unit == "us" ? "microseconds" : unit;
}

// Bars from the median, whiskers from the least to the most of its values, a dashed line for a published figure.
std::string bars(const std::vector<const Json*>& rows, const std::string& unit) {
  double low = INFINITY, high = 0;
  for (const Json* row : rows) {
    // 0, a throughput of nothing, has no place on an axis of powers of ten.
    if (const double least = (*row)["min"]; least > 0) low = std::min(low, least);
    high = std::max(high, (*row)["max"].get<double>());
    if (const Json& p = (*row)["published"]; p.is_object()) {
      low = std::min(low, p["value"].get<double>());
      high = std::max(high, p["value"].get<double>());
    }
  }
  if (!(low < INFINITY) || !(high > 0)) return "";
  // A linear axis from 0, or powers of ten where short bars could not be told apart.
  const bool decades = high / low > 30;
  std::vector<double> ticks;
  if (decades) {
    for (int e = static_cast<int>(std::floor(std::log10(low) - 1e-9)); ticks.empty() || ticks.back() < high; ++e)
      ticks.push_back(std::pow(10, e));
  } else {
    double step = std::pow(10, std::floor(std::log10(high)));
    if (high / step < 5) step /= 2;
    while (ticks.empty() || ticks.back() < high) ticks.push_back(step * static_cast<double>(ticks.size()));
  }
  constexpr double kLeft = 376, kWide = 494, kLine = 20, kTop = 10;
  const auto x = [&](double v) {
    const double part =
        decades ? std::log(std::max(v, ticks.front()) / ticks.front()) / std::log(ticks.back() / ticks.front())
                : v / ticks.back();
    return kLeft + kWide * part;
  };
  const double bottom = kTop + kLine * static_cast<double>(rows.size());
  std::string svg = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n",
                                kLeft + kWide + 90, bottom + 46, html_text(unit_text(unit)));
  for (const double t : ticks) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/><text x=\"{0:.1f}\" "
        "y=\"{3:.0f}\" "
        "text-anchor=\"middle\">{4:g}</text>\n",
        x(t), kTop, bottom, bottom + 16, t);
  }
  double y = kTop;
  for (const Json* at : rows) {
    const Json& row = *at;
    const double value = row["value"], least = row["min"], most = row["max"];
    std::string name = row["case"];
    if (name.size() > 52) name = name.substr(0, 49) + "...";
    svg += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text><rect class=\"bar\" x=\"{:.0f}\" y=\"{:.1f}\" "
        "width=\"{:.1f}\" height=\"{:.0f}\"/>",
        kLeft - 8, y + 14, html_text(name), kLeft, y + 4, std::max(1.0, x(value) - kLeft), kLine - 8);
    svg += fmt::format("<path class=\"whisker\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}v6M{1:.1f} {3:.1f}v6\"/>",
                       x(least), x(most), y + 10, y + 7);
    double end = x(most);
    if (row["published"].is_object()) {
      const double p = x(row["published"]["value"]);
      svg += fmt::format("<line class=\"published\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>", p,
                         y, y + kLine);
      if (p > end - 4 && p < end + 60) end = p;
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"value\">{}</text>\n", end + 6, y + 14, figure(value));
    y += kLine;
  }
  svg += fmt::format(
      "<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\" class=\"title\">{}{}</text><text x=\"{:.0f}\" "
      "y=\"{:.0f}\" "
      "text-anchor=\"end\" class=\"title\">case</text></svg>\n",
      kLeft + kWide / 2, bottom + 38, html_text(unit_text(unit)), decades ? " (logarithmic)" : "", kLeft - 30,
      bottom + 16);
  return svg;
}

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--text:#1b1f24;--back:#fff;--soft:#57606a;--line:#d0d7de;--bar:#4078c0;--mark:#b35900;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--text:#e6edf3;--back:#0f1419;--soft:#9aa4af;--line:#343b44;--bar:#5b9bea;--mark:#f0a04b;--bad:#ff8a80}}
body{margin:2rem auto;max-width:72rem;padding:0 1rem;font:15px/1.45 system-ui,sans-serif;color:var(--text);background:var(--back)}
table{border-collapse:collapse;width:100%;font-size:13px;margin:.8rem 0}
th,td{border-bottom:1px solid var(--line);padding:.25rem .5rem;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
p.soft,td.soft,span.soft{color:var(--soft)}
.bad{color:var(--bad)}
code{font-size:12px;overflow-wrap:anywhere}
.wide{overflow-x:auto}
svg{display:block;width:100%;max-width:960px;font:12px system-ui,sans-serif}
svg text{fill:var(--text)}
svg .title{fill:var(--soft)}
.grid{stroke:var(--line)}
.bar{fill:var(--bar)}
.whisker{stroke:var(--text);fill:none;opacity:.75}
.published{stroke:var(--mark);stroke-width:2;stroke-dasharray:4 2}
@media print{body{max-width:none;margin:0}}
)";

std::string suite_section(const Suite& suite, const std::vector<const Json*>& rows) {
  std::string html = fmt::format("<section><h2 id=\"{0}\">{1} <code>{0}</code></h2>\n<p>{2}</p>\n", suite.name,
                                 html_text(suite.title), html_text(suite.about));
  std::vector<std::string> units;
  for (const Json* row : rows) {
    // A percentage is an error about zero: nothing for bars.
    if ((*row)["value"].is_null() || (*row)["unit"] == "%") continue;
    const auto unit = (*row)["unit"].get<std::string>();
    if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
  }
  for (const std::string& unit : units) {
    std::vector<const Json*> some;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(some),
                 [&](const Json* row) { return (*row)["unit"] == unit; });
    const std::string plot = bars(some, unit);
    if (!plot.empty()) html += "<figure class=\"wide\" style=\"margin:1rem 0\">" + plot + "</figure>\n";
  }
  std::vector<SuiteColumn> columns;
  for (const SuiteColumn& column : suite_columns())
    if (std::any_of(rows.begin(), rows.end(), [&](const Json* row) { return row->contains(column.key); }))
      columns.push_back(column);
  html +=
      "<div class=\"wide\"><table><thead><tr><th>case</th><th class=\"n\">median</th><th>unit</th><th "
      "class=\"n\">least - "
      "most</th><th class=\"n\">runs</th>";
  for (const SuiteColumn& column : columns) html += fmt::format("<th class=\"n\">{}</th>", column.heading);
  html += "<th>checked</th><th>published</th></tr></thead><tbody>\n";
  std::vector<std::string> commands;
  std::vector<const Json*> sources;
  for (const Json* at : rows) {
    const Json& row = *at;
    const Json& p = row["published"];
    html += fmt::format("<tr><td>{}", html_text(row["case"].get<std::string>()));
    if (const std::string note = row.value("note", ""); !note.empty())
      html += fmt::format("<br><span class=\"soft\">{}</span>", html_text(note));
    html += "</td>";
    if (row["value"].is_null()) {
      const std::string reason = row["reason"];
      html += fmt::format("<td colspan=\"{}\" class=\"{}\">{}</td>", 4 + columns.size(),
                          reason.starts_with("refused") ? "bad" : "soft", html_text(reason));
    } else {
      html += fmt::format("<td class=\"n\">{}</td><td>{}</td><td class=\"n\">{} - {}</td><td class=\"n\">{}</td>",
                          figure(row["value"]), html_text(row["unit"].get<std::string>()), figure(row["min"]),
                          figure(row["max"]), row["n"].get<size_t>());
      for (const SuiteColumn& column : columns)
        html += fmt::format("<td class=\"n\">{}</td>", row.contains(column.key) ? figure(row[column.key]) : "");
    }
    std::string published;
    if (p.is_object()) {
      size_t number = 0;
      while (number < sources.size() && *sources[number] != p) ++number;
      if (number == sources.size()) sources.push_back(&p);
      published = fmt::format("{} {} [{}]", figure(p["value"]), html_text(p["unit"].get<std::string>()), number + 1);
    }
    html += fmt::format("<td>{}</td><td>{}</td></tr>\n", row["checked"].get<bool>() ? "yes" : "no", published);
    const std::string command = row["command"];
    if (!command.empty() && std::find(commands.begin(), commands.end(), command) == commands.end())
      commands.push_back(command);
  }
  html += "</tbody></table></div>\n";
  for (size_t i = 0; i < sources.size(); ++i) {
    const Json& p = *sources[i];
    html += fmt::format("<p class=\"soft\">[{}] {}; on {}. Differs: {}.</p>\n", i + 1,
                        html_text(p["source"].get<std::string>()), html_text(p["hardware"].get<std::string>()),
                        html_text(p["differs"].get<std::string>()));
  }
  if (!commands.empty()) {
    html += "<details><summary>Commands</summary><p>";
    for (const std::string& command : commands) html += fmt::format("<code>{}</code><br>\n", html_text(command));
    html += "</p></details>\n";
  }
  return html + "</section>\n";
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string suite_html(const Json& report) {
  const Json& m = report["machine"];
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Sluice measured</title><style>{}</style></head><body>\n<h1>Sluice "
      "measured</h1>\n",
      kStyle);
  html += fmt::format("<p>{}, {} cores, {:.0f} GiB{}{}; {}, Linux {}; {}, {}. Revision {}, {}{}.</p>\n",
                      html_text(m["cpu"].get<std::string>()), m["cores"].dump(), m["memory_gib"].get<double>(),
                      m["virtual"] == true ? ", a virtual machine" : "",
                      m["gpu"].is_string() ? ", " + html_text(m["gpu"].get<std::string>()) : ", no GPU",
                      html_text(m["os"].get<std::string>()), html_text(m["kernel"].get<std::string>()),
                      html_text(m["compiler"].get<std::string>()), html_text(m["build"].get<std::string>()),
                      html_text(report["git"].get<std::string>()), html_text(report["when"].get<std::string>()),
                      report["quick"] == true ? ", small inputs (--quick)" : "");
  if (report["load_average"].is_number())
    html += fmt::format("<p>Load average of the minute before: {:.2f}, of other work.</p>\n",
                        report["load_average"].get<double>());
  if (report.contains("cpu_busy"))
    html += fmt::format("<p>Cores busy: {}.</p>\n", html_text(report["cpu_busy"].get<std::string>()));
  if (report.contains("cpu_power"))
    html += fmt::format("<p>Gone through {} times. Watts of the processors: {}.</p>\n",
                        report["passes"].get<unsigned>(), html_text(report["cpu_power"].get<std::string>()));
  html +=
      "<p class=\"soft\">Bars are medians; whiskers go from the least to the most of the runs; a dashed line is a "
      "published "
      "figure, of the hardware named below its table. Checked: a sample of results has been compared with a reference "
      "and is equal to it.</p>\n";
  for (const Suite& suite : suites()) {
    std::vector<const Json*> rows;
    for (const Json& row : report["rows"])
      if (row["suite"] == suite.name) rows.push_back(&row);
    if (!rows.empty()) html += suite_section(suite, rows);
  }
  return html + fmt::format("<p class=\"soft\"><code>{}</code></p></body></html>\n",
                            html_text(report["command"].get<std::string>()));
}

std::string suite_csv(const Json& report) {
  std::string csv =
      "suite,case,value,unit,n,min,max,checked,published,published_unit,source,hardware,differs,reason,command\n";
  for (const Json& row : report["rows"]) {
    const Json& p = row["published"];
    const auto of = [&](const char* key) { return p.is_object() ? csv_field(p[key]) : std::string(); };
    csv +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(row["suite"]), csv_field(row["case"]),
                    csv_field(row["value"]), csv_field(row["unit"]), csv_field(row["n"]), csv_field(row["min"]),
                    csv_field(row["max"]), csv_field(row["checked"]), of("value"), of("unit"), of("source"),
                    of("hardware"), of("differs"), csv_field(row["reason"]), csv_field(row["command"]));
  }
  return csv;
}

}  // namespace sluice::app
