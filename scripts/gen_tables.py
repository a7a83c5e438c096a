#!/usr/bin/env python3
"""Fills the generated tables of the Markdown files from bench/results/*.json.

    <!-- generated: NAME -->      from bench/results/NAME.json; everything up to the end marker is replaced
    <!-- end generated -->

gen_tables.py writes the files; gen_tables.py --check writes nothing and fails where a file is stale.
"""
import argparse
import pathlib
import re
import sys

import result_schema

ROOT = result_schema.ROOT
BEGIN = re.compile(r"^<!-- generated: ([A-Za-z0-9_.-]+) -->$")
END = "<!-- end generated -->"


def number(value):
    """Three significant digits below 1000, whole numbers with thousands separators above."""
    if value != 0 and abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def table(document):
    results = document["results"]
    peers = any("peer" in result for result in results)
    notes = any(result.get("note") for result in results)
    head = ["case", "median", "unit", "min - max", "n"] + (["peer", "peer's median"] if peers else []) + \
        (["note"] if notes else [])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        row = [result["case"], number(result["median"]), result["unit"],
               f"{number(result['min'])} - {number(result['max'])}", str(result["n"])]
        if peers:
            median = result.get("peer_median")
            row += [result.get("peer", ""), "" if median is None else number(median)]
        if notes:
            row.append(result.get("note") or "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    machine = document["machine"]
    where = [machine["cpu"], f"{machine['cores']} cores"] + ([machine["gpu"]] if machine.get("gpu") else []) + \
        [machine["os"], machine["compiler"]]
    about = [f"{', '.join(where)}; revision {document['git']}, {document['when'][:10]}"]
    if document.get("seed") is not None:
        about.append(f"seed {document['seed']}")
    if document.get("input_hash"):
        about.append(f"input {document['input_hash'][:20]}")
    if document.get("checked"):
        about.append(f"checked: {document['checked']}")
    if document.get("command"):
        about.append(f"`{document['command']}`")
    return lines + ["", "Measured on " + "; ".join(about) + "."]


def fill(text, path, results):
    """The text with its tables made new. Raises ValueError with a message for the user."""
    out = []
    lines = text.split("\n")
    i = 0
    fence = None
    while i < len(lines):
        line = lines[i]
        out.append(line)
        i += 1
        mark = re.match(r"^\s*(```+|~~~+)", line)
        if mark:  # a marker inside a code block is an example of a marker
            fence = None if fence == mark.group(1)[0] else fence or mark.group(1)[0]
        match = BEGIN.match(line)
        if fence or not match:
            continue
        try:
            end = lines.index(END, i)
        except ValueError:
            raise ValueError(f"{path}:{i}: no '{END}' after this line") from None
        source = results / f"{match.group(1)}.json"
        if not source.is_file():
            raise ValueError(f"{path}:{i}: there is no {source}")
        out += table(result_schema.read(source)) + [END]
        i = end + 1
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(prog="./dev docs", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    results = ROOT / "bench/results"
    bad = 0
    for path in sorted(results.glob("*.json")):  # also those that no document shows
        try:
            result_schema.read(path)
        except ValueError as error:
            print(error, file=sys.stderr)
            bad += 1
    files = [path for pattern in ("*.md", "docs/**/*.md", "src/**/*.md", "bench/**/*.md") for path in ROOT.glob(pattern)]
    changed = 0
    for path in sorted(files):
        before = path.read_text(encoding="utf-8")
        try:
            after = fill(before, path.relative_to(ROOT), results)
        except ValueError as error:
            print(error, file=sys.stderr)
            bad += 1
            continue
        if after == before:
            continue
        changed += 1
        if arguments.check:
            print(f"{path.relative_to(ROOT)} is stale: run ./dev docs", file=sys.stderr)
        else:
            path.write_text(after, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    print(f"documents: {len(files)} files, {changed} {'stale' if arguments.check else 'written'}, {bad} problems")
    return 1 if bad or (arguments.check and changed) else 0


if __name__ == "__main__":
    sys.exit(main())
