#!/usr/bin/env python3
"""Fills the tables of studies/NAME/README.md and of README: each figure that a study published, beside our stored rows of the same parameters.

    gen_studies.py            writes them, between `<!-- tables -->` and `<!-- end tables -->`, in README `<!-- studies -->`
    gen_studies.py --check    writes nothing and fails where one is stale, or where a row beside a figure has other parameters

studies/NAME/published.json has the figures, by table. A figure has an `id` that no other has, its `value` (None: a picture; two numbers: from
and to), `about` or `bound` where the study is not exact, and `parameters`, those of its table among them: what a row must be like to
stand beside it (scripts/row_parameters.py), None where the study does not say. `differs_in` names the parameters in which rows of the table may
differ, `differs` says so in words. A figure either names our rows, `*` standing for any text, or gives a reason, its own or its table's.
`ours` are cases of the study's suite (stored as bench/results/suite_*.json; `sluice-bench` shows the figure beside them, so that they may stand
beside a reason until a report has them), `results` other stored rows, as "FILE: CASE" or "SUITE: CASE". `columns`: what of a row is
the value, a sum. `not_measured`: no stored row has the figure's parameters. `not_comparable`: no row could stand beside it.
"""
import argparse
import fnmatch
import json
import pathlib
import re
import sys

import gen_tables
import result_schema
import row_parameters

ROOT = result_schema.ROOT
PAGE, FRONT = ("<!-- tables -->", "<!-- end tables -->"), ("<!-- studies -->", "<!-- end studies -->")
SUITES = {"spark": "frame-latency", "codilime": "acl-application", "ferraris": "ipv4-forwarding", "louvain": "network-functions",
          "stockholm": "data-plane"}
TIMES = {"us": 1.0, "ms": 1e3}  # in us
RATES = ("Mpackets/s", "Mlookups/s")
REASONS = {"not_measured": "Not measured", "not_comparable": "Not comparable"}
TABLE_KEYS = {"name", "title", "source", "unit", "hardware", "command", "differs", "differs_in", "note", "parameters", "figures", *REASONS}
KEYS = {"id", "case", "value", "unit", "about", "bound", "headline", "parameters", "hardware", "ours", "results", "columns", *REASONS}


def published(root=ROOT):
    """{study: what it published}. Raises ValueError where a file has other fields than the text above says."""
    found = {}
    for path in sorted(root.glob("studies/*/published.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for table in document["tables"]:
            where = f"{path.relative_to(root)}: {table['name']}"
            for one, keys, name in [(table, TABLE_KEYS, where)] + [(figure, KEYS, f"{where}: {figure.get('id')}") for figure in table["figures"]]:
                if set(one) - keys:
                    raise ValueError(f"{name}: unknown: {', '.join(sorted(set(one) - keys))}")
        found[path.parent.name] = document
    return found


def figures_of(document):
    """[(table, figure)], a figure with what it has of its table: unit, hardware, parameters, and `reason` as (kind, text) or None."""
    found = []
    for table in document["tables"]:
        for figure in table["figures"]:
            said = figure if any(kind in figure for kind in REASONS) else {} if figure.get("ours") or figure.get("results") else table
            found.append((table, {"unit": table["unit"], "hardware": table.get("hardware", document["hardware"]), **figure,
                                  "parameters": {**table.get("parameters", {}), **figure.get("parameters", {})},
                                  "reason": next(((kind, said[kind]) for kind in REASONS if kind in said), None)}))
    return found


def published_for(documents, suite, case, unit):
    """As sluice-bench does (apps/bench/suite_rows.cpp): the figure for a row of a suite, or None."""
    for study, document in documents.items():
        for table, figure in figures_of(document) if SUITES[study] == suite else []:
            if not any(fnmatch.fnmatchcase(case, pattern) for pattern in figure.get("ours", [])):
                continue
            value, packets = figure["value"], figure["parameters"].get("packets")
            if figure["unit"] == "ms" and packets and unit == "Mpackets/s":
                value = packets / value * 1e-3
            elif figure["unit"] != unit:
                continue
            return {"value": value, "unit": unit, "source": f"{document['title']}: {table['source']}", "hardware": figure["hardware"],
                    "differs": table["differs"]}
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


def matching_one(rows, name, pattern, is_suite):
    return [(stem, row) for (stem, suite), some in rows.items() if (suite == name if is_suite else suite is None and stem == name)
            for row in some if row.get("value") is not None and fnmatch.fnmatchcase(row["case"], pattern)]


def matching(rows, study, figure):
    """[(stem, row)] of a figure, those of the suite first."""
    asked = [(SUITES[study], pattern, True) for pattern in figure.get("ours", [])]
    for text in figure.get("results", []):
        name, _, pattern = text.partition(": ")
        asked.append((name, pattern, name in SUITES.values()))
    return [pair for one in asked for pair in matching_one(rows, *one)]


def value_of(row, figure):
    """Our value in the figure's unit. Raises ValueError where it has another one."""
    unit, packets, size = figure["unit"], figure["parameters"].get("packets"), figure["parameters"].get("bytes")
    value, own = row["value"], row["unit"]
    if "columns" in figure:
        value = sum(row[column] for column in figure["columns"])
        own = "bytes" if figure["columns"] == ["bytes"] else "ms"
    if own in TIMES and unit in TIMES:
        return value * TIMES[own] / TIMES[unit]
    if packets and (own in RATES and unit == "ms" or own == "ms" and unit in RATES):
        return packets / value * 1e-3
    if size and own in RATES and unit == "Gbit/s":
        return value * (size + 20) * 8e-3  # `size` has the frame's checksum; preamble and gap are the other 20
    if own == "bytes" and unit == "kB":
        return value * 1e-3
    if own != unit:
        raise ValueError(f"{row['case']} is in {own}, the published figure in {unit}")
    return value


def ratio(ours, figure):
    """How many times as fast ours is; of what is no speed, nothing."""
    theirs, unit = figure["value"], figure["unit"]
    if ours == 0 or unit not in TIMES and not unit.endswith("/s"):
        return ""
    return f"{gen_tables.number(theirs / ours if unit in TIMES else ours / theirs)}"


def problems_of(documents, rows):
    """What is wrong with figures and the rows beside them, as a list of sentences."""
    found, ids = [], set()
    for study, document in documents.items():
        for table, figure in figures_of(document):
            name = figure["id"]
            if name in ids or not name.startswith(f"{study}."):
                found.append(f"{name} is there twice, or of another study")
            ids.add(name)
            beside = matching(rows, study, figure)
            if (figure.get("ours") or beside) and not isinstance(figure["value"], (int, float)):
                found.append(f"{name} has rows and no single value")
            if bool(beside) == bool(figure["reason"]):
                found.append(f"{name} needs a stored row or a reason, one of them")
            for text in figure.get("results", []):
                stem, _, pattern = text.partition(": ")
                if not matching_one(rows, stem, pattern, stem in SUITES.values()):
                    found.append(f"{name}: no stored row is '{text}'")
            unstored = [("no report", {"case": case}) for case in figure.get("ours", []) if not matching_one(rows, SUITES[study], case, True)]
            for stem, row in beside + unstored:
                try:
                    wrong = row_parameters.differences(figure["parameters"], row, table.get("differs_in", []))
                    if (stem, row) in beside:
                        value_of(row, figure)
                except (ValueError, KeyError) as error:
                    wrong = [str(error)]
                found += [f"{name} beside '{row['case']}' ({stem}): {one}" for one in wrong]
    return found


def machine_of(document):
    machine = document["machine"]
    gpu = machine.get("gpu")
    return f"{machine['cpu']}, {machine['cores']} cores" + (f", {gpu}" if gpu else "")


def with_unit(value, unit):
    return f"{value} ({unit})" if unit == "ratio" else f"{value} {unit}"


def published_text(figure):
    """A figure's value with its unit; of a picture, nothing."""
    value = figure["value"]
    if value is None:
        return ""
    some = value if isinstance(value, list) else [value]
    text = (" to " if len(some) == 2 else ", ").join(f"{one:,}" for one in some)
    about = {"upper": "at most ", "lower": "at least "}.get(figure.get("bound"), "about " if figure.get("about") else "")
    return about + with_unit(text, figure["unit"])


def table_lines(study, document, table, rows):
    """The figures of a table that have rows of ours; nothing where none has."""
    used, cells = {}, []
    for of, figure in figures_of(document):
        if of is not table or figure["reason"]:
            continue
        head = f"| `{figure['id']}` | {figure['case']} | {published_text(figure)} |"
        for stem, row in matching(rows, study, figure):
            used[stem] = row["of"]
            value = value_of(row, figure)
            cells.append(f"{head} {with_unit(gen_tables.number(value), figure['unit'])} | {ratio(value, figure)} | `{row['case']}` ({stem}) |")
            head = "| | | |"
    if not cells:
        return []
    about = [f"Published: {table['source']}, on {table.get('hardware', document['hardware'])}."]
    about += [f"Differs: {table['differs']}."] if table["differs"] else []
    about += [table["note"]] if "note" in table else []
    lines = [f"### {table['title']}", "", "| id | what | published | ours | times as fast | our row |", "|---|---|---|---|---|---|", *cells, "", " ".join(about), ""]
    for stem, of in used.items():
        lines.append(f"- [{stem}](../../bench/results/{stem}.json): {machine_of(of)}; revision {of['git']}, {of['when'][:10]}.")
    return [*lines, "", f"    {table['command']}", ""]


def page_lines(study, document, rows):
    figures = [figure for _, figure in figures_of(document)]
    without = {}
    for figure in figures:
        if figure["reason"]:
            without.setdefault(figure["reason"], []).append(figure)
    reasons = sum(map(len, without.values()))
    lines = [f"{len(figures) - reasons} of {len(figures)} published figures have a row of ours; {reasons} have a reason.", ""]
    lines += [line for table in document["tables"] for line in table_lines(study, document, table, rows)]
    lines += ["### No row beside them", ""]
    for (kind, text), some in sorted(without.items(), key=lambda one: (list(REASONS).index(one[0][0]), -len(one[1]))):
        ids = "; ".join(f"`{figure['id']}` {published_text(figure)}".rstrip() for figure in some)
        lines.append(f"- {REASONS[kind]}: {text} ({len(some)}): {ids}.")
    return [*lines, ""]


def front_lines(documents, rows):
    """README's table: the headline of each study."""
    lines = ["| study | its headline | published | ours | times as fast |", "|---|---|---|---|---|"]
    for study in SUITES:
        figure = next(figure for _, figure in figures_of(documents[study]) if figure.get("headline"))
        start = f"| [{study}](studies/{study}/README.md) | {figure['case']} | {published_text(figure)}, {figure['hardware']} |"
        if figure["reason"]:
            kind, text = figure["reason"]
            lines.append(f"{start} {REASONS[kind].lower()}: {text} | |")
            continue
        row = matching(rows, study, figure)[-1][1]
        value, machine = value_of(row, figure), row["of"]["machine"]
        ours = with_unit(gen_tables.number(value), figure["unit"])
        lines.append(f"{start} {ours}, {machine.get('gpu') or machine['cpu']} | {ratio(value, figure)} |")
    return lines


def fill(text, path, lines, marks):
    match = re.search(rf"^{re.escape(marks[0])}\n(.*?)^{re.escape(marks[1])}$", text, re.M | re.S)
    if not match:
        raise ValueError(f"{path}: no '{marks[0]}' with '{marks[1]}' behind it")
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
        problems = problems_of(documents, rows)
        if problems:
            raise ValueError("\n".join(problems))
        pages = {ROOT / "studies" / study / "README.md": (page_lines(study, document, rows), PAGE) for study, document in documents.items()}
        pages[ROOT / "README.md"] = ([*front_lines(documents, rows), ""], FRONT)
        wanted = {path: fill(path.read_text(encoding="utf-8"), path.relative_to(ROOT), *how) for path, how in pages.items()}
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
