#!/usr/bin/env python3
"""Fills the tables of studies/NAME/README.md: each figure that the study published beside our stored rows of the same parameters.

    gen_studies.py            writes them, between `<!-- tables -->` and `<!-- end tables -->`
    gen_studies.py --check    writes nothing and fails where one is stale

studies/NAME/published.json has the figures, by table. A figure names our rows, `*` standing for any text: `ours` are cases of
the study's suite (stored as bench/results/suite_*.json; `sluice-bench` shows the figure beside them), `results` other stored
rows, as "FILE: CASE", and cases of a suite that sluice-bench shows without the figure, as "SUITE: CASE". `packets`: of a time,
to compare it with a rate; `columns`: what of a row is the time, a sum. A figure with `not_measured` says why it has none.
"""
import argparse
import fnmatch
import json
import pathlib
import re
import sys

import gen_tables
import result_schema

ROOT = result_schema.ROOT
BEGIN, END = "<!-- tables -->", "<!-- end tables -->"
SUITES = {"ferraris": "ipv4-forwarding", "codilime": "acl-application", "stockholm": "data-plane", "louvain": "network-functions",
          "spark": "frame-latency"}
TIMES = {"us": 1.0, "ms": 1e3}  # in us
KEYS = {"case", "value", "hardware", "packets", "columns", "ours", "results", "not_measured"}


def published(root=ROOT):
    """{study: what it published}. Raises ValueError where a figure neither has a row nor says why."""
    found = {}
    for path in sorted(root.glob("studies/*/published.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for table in document["tables"]:
            for figure in table["figures"]:
                where = f"{path.relative_to(root)}: {table['name']}: {figure.get('case')}"
                if set(figure) - KEYS:
                    raise ValueError(f"{where}: unknown: {', '.join(sorted(set(figure) - KEYS))}")
                if bool(figure.get("ours") or figure.get("results")) == ("not_measured" in figure):
                    raise ValueError(f"{where}: needs rows of ours, or 'not_measured'")
        found[path.parent.name] = document
    return found


def published_for(documents, suite, case, unit):
    """As sluice-bench does (apps/bench/suite_rows.cpp): the figure for a row of a suite, or None."""
    for study, document in documents.items():
        for table in document["tables"] if SUITES[study] == suite else []:
            for figure in table["figures"]:
                if not any(fnmatch.fnmatchcase(case, pattern) for pattern in figure.get("ours", [])):
                    continue
                value = figure["value"]
                if table["unit"] == "ms" and "packets" in figure and unit == "Mpackets/s":
                    value = figure["packets"] / value * 1e-3
                elif table["unit"] != unit:
                    continue
                return {"value": value, "unit": unit, "source": f"{document['title']}: {table['source']}",
                        "hardware": figure.get("hardware", table.get("hardware", document["hardware"])), "differs": table["differs"]}
    return None


def rows_of(results):
    """{(stem of the file, suite or None): [row]} of all that is stored, a row as {case, value, unit, ...}."""
    rows = {}
    for path in sorted(results.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for row in document.get("rows", []):
            rows.setdefault((path.stem, row["suite"]), []).append({**row, "of": document})
        for row in document.get("results", []):
            rows.setdefault((path.stem, None), []).append({**row, "value": row.get("median"), "of": document})
    return rows


def matching(rows, study, figure):
    """[(stem, row)] of a figure, those of the suite first."""
    asked = [(SUITES[study], pattern, True) for pattern in figure.get("ours", [])]
    for text in figure.get("results", []):
        name, _, pattern = text.partition(": ")
        asked.append((name, pattern, name in SUITES.values()))
    return [(stem, row) for name, pattern, is_suite in asked for (stem, suite), some in rows.items()
            if (suite == name if is_suite else suite is None and stem == name)
            for row in some if row.get("value") is not None and fnmatch.fnmatchcase(row["case"], pattern)]


def value_of(row, figure, unit):
    """Our value in the figure's unit. Raises ValueError where it has another one."""
    if "columns" in figure:
        value, own = sum(row[column] for column in figure["columns"]), "ms"
    elif "packets" in figure and row["unit"] == "Mpackets/s":
        value, own = figure["packets"] / row["value"] * 1e-3, "ms"
    else:
        value, own = row["value"], row["unit"]
    if own in TIMES and unit in TIMES:
        return value * TIMES[own] / TIMES[unit]
    if own != unit:
        raise ValueError(f"{row['case']} is in {own}, the published figure in {unit}")
    return value


def ratio(ours, theirs, unit):
    """How many times as fast ours is; of what is no speed, nothing."""
    if unit == "%" or ours == 0:
        return ""
    return f"{gen_tables.number(theirs / ours if unit in TIMES else ours / theirs)}"


def machine_of(document):
    machine = document["machine"]
    gpu = machine.get("gpu")
    return f"{machine['cpu']}, {machine['cores']} cores" + (f", {gpu}" if gpu else "")


def table_lines(study, document, table, rows):
    unit = table["unit"]
    lines = [f"### {table['title']}", "", f"| case | published, {unit} | ours, {unit} | times as fast | our row |", "|---|---|---|---|---|"]
    used = {}
    for figure in table["figures"]:
        head = f"| {figure['case']} | {gen_tables.number(figure['value'])} |"
        if "not_measured" in figure:
            lines.append(f"{head} not measured: {figure['not_measured']} | | |")
            continue
        found = matching(rows, study, figure)
        if not found:
            lines.append(f"{head} no stored row | | |")
        for stem, row in found:
            used[stem] = row["of"]
            value = value_of(row, figure, unit)
            lines.append(f"{head} {gen_tables.number(value)} | {ratio(value, figure['value'], unit)} | `{row['case']}` ({stem}) |")
    lines.append("")
    about = [f"Published: {table['source']}, on {table.get('hardware', document['hardware'])}."]
    if table["differs"]:
        about.append(f"Differs: {table['differs']}.")
    lines += [" ".join(about), ""]
    for stem, of in used.items():
        lines.append(f"- [{stem}](../../bench/results/{stem}.json): {machine_of(of)}; revision {of['git']}, {of['when'][:10]}.")
    return lines + ([""] if used else []) + [f"    {table['command']}", ""]


def fill(text, path, lines):
    match = re.search(rf"^{re.escape(BEGIN)}\n(.*?)^{re.escape(END)}$", text, re.M | re.S)
    if not match:
        raise ValueError(f"{path}: no '{BEGIN}' with '{END}' behind it")
    return text[:match.start(1)] + "\n".join(lines) + text[match.end(1):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    try:
        documents = published()
        if set(documents) != set(SUITES):
            raise ValueError(f"studies: {', '.join(documents)}; scripts/gen_studies.py knows {', '.join(SUITES)}")
        rows = rows_of(ROOT / "bench/results")
        wanted = {}
        for study, document in documents.items():
            path = ROOT / "studies" / study / "README.md"
            lines = [line for table in document["tables"] for line in table_lines(study, document, table, rows)]
            wanted[path] = fill(path.read_text(encoding="utf-8"), path.relative_to(ROOT), lines)
    except (OSError, ValueError, KeyError) as error:
        print(f"gen_studies: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments.check:
            print(f"{path.relative_to(ROOT)} is stale: run ./dev docs", file=sys.stderr)
        else:
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    print(f"studies: {len(documents)} pages, {len(stale)} {'stale' if arguments.check else 'written'}")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
