#!/usr/bin/env python3
"""Writes docs/performance.md and README's table of figures from the stored reports of `sluice-bench suite`.

    gen_performance.py                              writes them, from bench/results/suite_*.json
    gen_performance.py --check                      writes nothing and fails where one is stale
    gen_performance.py --store report --as quick    first takes report/report.json as bench/results/suite_quick.json

A report is taken only if the program was built from a clean revision, no row was refused, and every figure that the suite
checks was checked. README's table stands between `<!-- performance -->` and `<!-- end performance -->`: rows of
suite_quick, or where there is none of the first report.
"""
import argparse
import json
import pathlib
import re
import sys

import gen_studies

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- performance -->", "<!-- end performance -->"
# Of README's table, one row for each study: suite, case, what it is. One without a figure, or with a note (its figure is the tester's limit), is
# left out.
HEADLINES = [
    ("data-plane", "pipeline/routes/64B/x1", "frames in, routes, frames out, one core"),
    ("acl-application", "application/acl+routes/64B/x1/256", "frames in, 1,000 rules, routes, frames out, one core"),
    ("frame-latency", "cpu/1024 rules, 1 mask, last, tuple_merge", "256 packets through 1,024 rules, one core"),
    ("network-functions", "table/lookup/64B/routes_1000/dir24/x1/256", "frames in, lookup in 1,000 routes, frames out, one core"),
    ("ipv4-forwarding", "cpu/101_routes/linear/headers/x2/1000000", "headers of a batch, linear search of 101 routes, two cores"),
]
# Where less is better.
LESS_IS_BETTER = {"ns", "us", "ms", "s", "%"}

def number(value):
    """Three significant digits below 1000, whole numbers with thousands separators above."""
    return f"{value:.3g}" if value != 0 and abs(value) < 1000 else f"{value:,.0f}"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def problems_of(report):
    """Why a report is not for others to see, as a list of sentences."""
    if not isinstance(report, dict) or report.get("schema") != 1 or not isinstance(report.get("rows"), list) or not report["rows"]:
        return ["it is no report of `sluice-bench suite`"]
    found = []
    git = report.get("git") or "unknown"
    if git == "unknown" or git.endswith("-dirty"):
        found.append(f"its revision is {git}")
    if not isinstance(report.get("machine"), dict) or not report["machine"].get("cpu"):
        found.append("it does not name its machine")
    for row in report["rows"]:
        name = f"{row.get('suite')}/{row.get('case')}"
        if str(row.get("reason") or "").startswith("refused"):
            found.append(f"{name} was {row['reason']}")
        elif row.get("value") is None and not row.get("reason"):
            found.append(f"{name} has neither a figure nor a reason")
        elif row.get("value") is not None and report.get("passes", 1) > 1 and len(set(row.get("passes") or [])) < 2:
            # Values directly behind one another hide what the machine does within minutes.
            found.append(f"{name} was measured in one pass of {report['passes']} alone")
    return found


def read(path):
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    found = problems_of(report)
    if found:
        raise ValueError("\n".join(f"{path}: {one}" for one in found))
    documents = gen_studies.published()
    for row in report["rows"]:
        if row["value"] is not None:
            row["published"] = gen_studies.published_for(documents, row["suite"], row["case"], row["unit"])
    return report


def machine_line(report):
    m = report["machine"]
    where = [m["cpu"], f"{m['cores']} cores", *([m["gpu"]] if m.get("gpu") else []), m["os"], m["compiler"]]
    return f"{', '.join(where)}; revision {report['git']}, {report['when'][:10]}"


def deciding(suite, rows):
    """(best row, number of rows) of each kind of case: those of one first word and unit, and of a comparison with other programs, of one
    implementation. Rows beside a published figure are a kind of their own."""
    kinds = {}
    for row in rows:
        words = row["case"].split("/")
        itself = row["published"]["source"] if row["published"] else words[1] if suite == "peers" and len(words) > 1 else ""
        kinds.setdefault((words[0], itself, row["unit"]), []).append(row)
    return [(min(of, key=lambda row: abs(row["value"]) if row["unit"] in LESS_IS_BETTER else -row["value"]), len(of)) for of in kinds.values()]


def table(report):
    lines = ["| suite | case | best of | median | min - max | n | checked | published |", "|---|---|---|---|---|---|---|---|"]
    sources = []
    for suite in report["suites"]:
        title = suite["title"]
        for row, of in deciding(suite["name"], [row for row in report["rows"] if row["suite"] == suite["name"] and row["value"] is not None]):
            published = row["published"]
            if published and published not in sources:
                sources.append(published)
            cells = [title, row["case"] + (f" ({row['note']})" if row.get("note") else ""), of, f"{number(row['value'])} {row['unit']}",
                     f"{number(row['min'])} - {number(row['max'])}", row["n"], "yes" if row["checked"] else "no",
                     f"{number(published['value'])} {published['unit']} ({sources.index(published) + 1})" if published else ""]
            lines.append("| " + " | ".join(cell(one) for one in cells) + " |")
            title = ""
    lines.append("")
    return lines + [f"({i + 1}) {p['source']}; on {p['hardware']}. Differs: {p['differs']}.\n" for i, p in enumerate(sources)]


def page(reports):
    """`reports`: by the names of their files."""
    lines = ["# Performance", "",
             "Generated from stored reports of `sluice-bench suite` (bench/results/suite_*.json) by `scripts/gen_performance.py`; no figure is typed",
             "by hand. Each row is the best of its kind of case, of as many as *best of* says; the reports have all rows with their commands.",
             "*median* and *min - max* are over n repetitions. *checked*: a sample of the results was compared with a reference and equals it; a row",
             "whose check fails has no figure. A published figure stands beside rows with its parameters alone; its hardware and what differs are",
             "named below the table. [Studies](../studies/README.md) has all published figures, [Benchmarks](benchmarks.md) has single measurements of",
             "more kinds and other machines. The [suite](design/suite.md) describes the cases.", "",
             "    sluice-bench suite --quick -o report          # the same on your machine: report/report.html has every row",
             "    sluice-bench compare report another           # two reports, row by row", "",
             "![The report of the suite in a browser](performance.png)", ""]
    if not reports:
        return "\n".join(lines + ["No report is stored yet.", ""])
    for name, report in reports.items():
        lines += [f"## {name}", "", f"Measured on {machine_line(report)}; `{report['command']}`.", ""]
        said = []
        if isinstance(report.get("load_average"), (int, float)):
            said.append(f"Load average of the minute before, of other work: {report['load_average']:.2f}.")
        if isinstance(report.get("passes"), int) and report["passes"] > 1:
            said.append(f"All cases were gone through {report['passes']} times: the values of a row are minutes apart.")
        if report["machine"].get("virtual"):
            said.append("A virtual machine: its rates vary with other load on its host.")
        absent = sum(row["value"] is None for row in report["rows"])
        if absent:
            said.append(f"{absent} case{'s' if absent > 1 else ''} without a figure there: the report says why.")
        if said:
            lines += [" ".join(said), ""]
        lines += table(report)
    return "\n".join(lines)


def headline_lines(reports):
    if not reports:
        return ["No report is stored yet."]
    report = reports.get("suite_quick") or next(iter(reports.values()))
    lines = ["| | median | min - max |", "|---|---|---|"]
    for suite, case, label in HEADLINES:
        for row in report["rows"]:
            if row["suite"] != suite or row["case"] != case or row["value"] is None or row.get("note"):
                continue
            lines.append(f"| {cell(label)} | {number(row['value'])} {row['unit']} | {number(row['min'])} - {number(row['max'])} |")
            break
    return lines + ["", f"Measured on {machine_line(report)}; [all rows and commands](docs/performance.md); [five published studies, their figures beside ours](studies/README.md)."]


def fill(text, reports):
    """README's text with its table made new."""
    match = re.search(rf"^{re.escape(BEGIN)}\n(.*?)^{re.escape(END)}$", text, re.M | re.S)
    if not match:
        raise ValueError(f"README.md: no '{BEGIN}' with '{END}' behind it")
    return text[:match.start(1)] + "\n".join(headline_lines(reports)) + "\n" + text[match.end(1):]


def slim(report):
    """Without what stands in the report once already."""
    rows = [{key: value for key, value in row.items() if key != "machine" or value != report["machine"]} for row in report["rows"]]
    return {**report, "rows": rows}


def store(folder, name, results):
    source = folder / "report.json" if folder.is_dir() else folder
    target = results / f"suite_{name}.json"
    target.write_text(json.dumps(slim(read(source)), separators=(",", ":")).replace('{"suite":', '\n{"suite":') + "\n", encoding="utf-8")
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--store", type=pathlib.Path, metavar="REPORT", help="a report's folder, or its report.json")
    parser.add_argument("--as", dest="name", default="quick", metavar="NAME", help="with --store: bench/results/suite_NAME.json")
    arguments = parser.parse_args()
    if arguments.check and arguments.store:
        parser.error("--store writes and --check does not")
    results = ROOT / "bench/results"
    try:
        if arguments.store:
            print(f"wrote {store(arguments.store, arguments.name, results).relative_to(ROOT)}")
        reports = {path.stem: read(path) for path in sorted(results.glob("suite_*.json"))}
        readme = ROOT / "README.md"
        wanted = {ROOT / "docs/performance.md": page(reports), readme: fill(readme.read_text(encoding="utf-8"), reports)}
    except (OSError, ValueError, KeyError) as error:
        print(f"gen_performance: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments.check:
            print(f"{path.relative_to(ROOT)} is stale: run ./dev docs", file=sys.stderr)
        else:
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    print(f"performance: {len(reports)} reports, {len(stale)} {'stale' if arguments.check else 'written'}")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
