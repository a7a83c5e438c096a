#!/usr/bin/env python3
"""Fills the generated tables of the Markdown files from bench/results/*.json.

    <!-- generated: NAME -->      from bench/results/NAME.json; everything up to the end marker is replaced
    <!-- end generated -->

    <!-- generated: NAME in words -->      the same results as one sentence instead of a table

NAME may hold '*': the rows of all files that fit make one table. NAME? may lack its file: then the text says so.

gen_tables.py writes the files; gen_tables.py --check writes nothing and fails where a file is stale.
"""
import argparse
import pathlib
import re
import sys

import result_schema

ROOT = result_schema.ROOT
BEGIN = re.compile(r"^<!-- generated: ([A-Za-z0-9_.*-]+)(\?)?( in words)? -->$")
END = "<!-- end generated -->"


def number(value):
    """Three significant digits below 1000, whole numbers with thousands separators above."""
    if value != 0 and abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}"


# Keys of a result that get a column where they are present: heading and text.
EXTRA = {
    "ns_per_packet": ("ns a packet", number),
    "allocate_ms": ("allocate, ms", number),
    "convert_ms": ("convert, ms", number),
    "to_device_ms": ("to the device, ms", number),
    "kernel_ms": ("kernel, ms", number),
    "to_host_ms": ("to the host, ms", number),
    "p50_us": ("p50, us", number),
    "p99_us": ("p99, us", number),
    "p999_us": ("p99.9, us", number),
    "of_plain": ("of plain IPv4", lambda value: f"{value:.2f}"),
    "of_bare": ("of the bare one", lambda value: f"{value:.2f}"),
    "of_reading": ("of the one that reads", lambda value: f"{value:.2f}"),
    "of_beside": ("of the one beside a busy core", lambda value: f"{value:.2f}"),
    "of_kernel": ("of the kernel", lambda value: f"{value:.2f}"),
    "of_peer": ("of the peer", lambda value: f"{value:.2f}"),
    "sent": ("sent", lambda value: f"{value:,}"),
    "dropped": ("dropped for a reason", lambda value: f"{value:,}"),
    "missed": ("missed", lambda value: f"{value:,}"),
    "failed": ("refused by a down link", lambda value: f"{value:,}"),
    "lost_at_flaps": ("lost by the kernel at flaps", lambda value: f"{value:,}"),
    "flaps": ("flaps", lambda value: f"{value:,}"),
    "changes": ("changes of tables and graphs", lambda value: f"{value:,}"),
    "watts": ("W", number),
    "packets_per_joule": ("M packets a joule", lambda value: number(value / 1e6)),
    "rules": ("rules", lambda value: f"{value:,}"),
    "routes": ("routes", lambda value: f"{value:,}"),
    "bytes": ("MiB", lambda value: number(value / 2**20)),
    "build_seconds": ("build, ms", lambda value: number(value * 1e3)),
}


def machine_line(document):
    machine = document["machine"]
    where = [machine["cpu"], f"{machine['cores']} cores"] + ([str(machine["gpu"])] if machine.get("gpu") else []) + \
        [machine["os"], machine["compiler"]]
    return f"Measured on {', '.join(where)}; revision {document['git']}, {document['when'][:10]}"


def origin(document):
    """Input, check and command of one measurement."""
    about = []
    if document.get("seed") is not None:
        about.append(f"seed {document['seed']}")
    if document.get("input_hash"):
        about.append(f"input {document['input_hash'][:20]}")
    if document.get("checked"):
        about.append(f"checked: {document['checked']}")
    if document.get("command"):
        about.append(f"`{document['command']}`")
    return "; ".join(about)


def table(*documents):
    """The rows of all documents as one table, and below it where and how they were measured."""
    results = [result for document in documents for result in document["results"]]
    peers = any("peer" in result for result in results)
    notes = any(result.get("note") for result in results)
    extra = [key for key in EXTRA if any(isinstance(result.get(key), (int, float)) for result in results)]
    head = ["case", "median", "unit", "min - max", "n"] + (["peer", "peer's median"] if peers else []) + \
        [EXTRA[key][0] for key in extra] + (["note"] if notes else [])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        if "reason" in result:
            row = [result["case"], result["reason"]] + [""] * (len(head) - 2)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
            continue
        row = [result["case"], number(result["median"]), result["unit"],
               f"{number(result['min'])} - {number(result['max'])}", str(result["n"])]
        if peers:
            median = result.get("peer_median")
            row += [result.get("peer", ""), "" if median is None else number(median)]
        for key in extra:
            row.append(EXTRA[key][1](result[key]) if isinstance(result.get(key), (int, float)) else "")
        if notes:
            row.append(result.get("note") or "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    lines.append("")
    if len(documents) == 1:
        about = origin(documents[0])
        return lines + [machine_line(documents[0]) + (f"; {about}" if about else "") + "."]
    # Each machine, revision and day once, with its measurements below it.
    for where in dict.fromkeys(machine_line(document) for document in documents):
        lines += [where + ":", ""]
        lines += [f"- {document['name']}: {origin(document) or 'no further details'}"
                  for document in documents if machine_line(document) == where]
        lines.append("")
    return lines[:-1]


def sentence(document):
    """The medians of a document, its machine, revision and day."""
    measured = [result for result in document["results"] if "reason" not in result]
    said = [f"**{number(result['median'])} {result['unit']}** {result['case']}" for result in measured]
    counts = sorted({result["n"] for result in measured})
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    where = machine_line(document)
    return [f"{', '.join(said)}: medians of {n}. {where}."]


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
        sources = sorted(results.glob(f"{match.group(1)}.json"))
        if match.group(3) and len(sources) > 1:
            raise ValueError(f"{path}:{i}: one sentence over {len(sources)} files")
        if sources and match.group(3):
            out += sentence(result_schema.read(sources[0])) + [END]
        elif sources:
            out += table(*map(result_schema.read, sources)) + [END]
        elif match.group(2):
            out += ["No measurement is stored yet.", END]
        else:
            raise ValueError(f"{path}:{i}: there is no {results / match.group(1)}.json")
        i = end + 1
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(prog="./dev docs", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    results = ROOT / "bench/results"
    bad = 0
    for path in result_schema.stored(results):  # also those that no document shows
        try:
            result_schema.read(path)
        except ValueError as error:
            print(error, file=sys.stderr)
            bad += 1
    files = [path for pattern in ("*.md", "docs/**/*.md", "src/**/*.md", "bench/**/*.md", "studies/**/*.md") for path in ROOT.glob(pattern)]
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
