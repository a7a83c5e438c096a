#!/usr/bin/env python3
"""Converts google-benchmark JSON to the schema of bench/results/ and stores it.

    build/cpu/net_benches --benchmark_repetitions=5 --benchmark_format=json > raw.json
    scripts/store_result.py raw.json --name net_parse

A benchmark with a counter `ratio` is stored as that, one that sets bytes_per_second or items_per_second as a rate (GB/s,
Mitems/s), any other as its time (ns). Repetitions of a
benchmark become one row with median, min, max and n.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import sys

import result_schema

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def convert(raw, name, seed, input_hash, checked, command):
    samples = {}
    for run in raw.get("benchmarks", []):
        if run.get("run_type", "iteration") != "iteration":
            continue  # google-benchmark's own aggregates; they lack min and max
        case = re.sub(r"/(iterations:[0-9]+|manual_time)", "", run.get("run_name", run["name"]))
        if run.get("error_occurred"):
            raise ValueError(f"{case}: {run.get('error_message', 'the benchmark failed')}")
        if "ratio" in run:
            unit, value = "x", run["ratio"]
        elif "bytes_per_second" in run:
            unit, value = "GB/s", run["bytes_per_second"] / 1e9
        elif "items_per_second" in run:
            unit, value = "Mitems/s", run["items_per_second"] / 1e6
        else:
            unit, value = "ns", run["real_time"] * NS[run.get("time_unit", "ns")]
        samples.setdefault((case, unit), []).append(value)
    if not samples:
        raise ValueError("no benchmark runs in the input")
    results = [{"case": case, "unit": unit, "median": statistics.median(values), "min": min(values), "max": max(values),
                "n": len(values)} for (case, unit), values in samples.items()]
    if "interleaving" in command:  # they come in no order
        results.sort(key=lambda row: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", row["case"])])
    # What the program says of itself (bench/context.cc); it may run elsewhere, long after it was built.
    said = raw.get("context", {})
    machine = result_schema.machine()
    machine.update({"gpu": None, "driver": None}, **({"compiler": said["compiler"]} if "compiler" in said else {}))
    return {"schema": 1, "name": name,
            "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "command": command,
            "machine": machine, "git": said.get("revision") or result_schema.git_revision(), "seed": seed,
            "input_hash": input_hash, "checked": checked, "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="google-benchmark's JSON; - is stdin")
    parser.add_argument("--name", required=True, help="the measurement: bench/results/NAME.json")
    parser.add_argument("--command", help="what reproduces it; default: the program that google-benchmark names")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--input-hash")
    parser.add_argument("--checked", help="what was compared with the oracle before timing")
    parser.add_argument("--out", help="default: bench/results/NAME.json")
    arguments = parser.parse_args()
    try:
        raw = json.loads(sys.stdin.read() if arguments.input == "-" else pathlib.Path(arguments.input).read_text())
        program = pathlib.Path(raw.get("context", {}).get("executable", "")).name
        document = convert(raw, arguments.name, arguments.seed, arguments.input_hash, arguments.checked,
                           arguments.command or program)
        problems = result_schema.problems_of(document, arguments.name)
        if problems:
            raise ValueError("; ".join(problems))
    except (OSError, ValueError, KeyError) as error:
        print(f"store_result: {error}", file=sys.stderr)
        return 1
    out = pathlib.Path(arguments.out) if arguments.out else result_schema.ROOT / "bench/results" / f"{arguments.name}.json"
    out.write_text(result_schema.text_of(document), encoding="utf-8")
    print(f"wrote {out}: {len(document['results'])} results")
    return 0


if __name__ == "__main__":
    sys.exit(main())
