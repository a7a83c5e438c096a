#!/usr/bin/env python3
"""Draws docs/plots/*.svg from bench/results/*.json: pictures of tables that docs/benchmarks.md has in numbers.

gen_plots.py writes the files; gen_plots.py --check writes nothing and fails where a file is stale.
"""
import argparse
import json
import math
import pathlib
import sys

import result_schema

ROOT = result_schema.ROOT
RESULTS = ROOT / "bench" / "results"
PLOTS = ROOT / "docs" / "plots"
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 46, 52
# Told apart without colour too: each line has a marker and a dash of its own.
COLOURS = ["#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#b8860b", "#444444", "#2a9d8f", "#9d2a5b"]
DASHES = ["", "6 3", "2 3", "8 3 2 3", "", "4 4", "1 3", "10 4"]


def documents(pattern):
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(pattern))]


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def label(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:g}"


class Axis:
    """A scale from the values' range to pixels; logarithmic: to the base 2 across, 10 upwards."""

    def __init__(self, values, low, high, base):
        self.low, self.high, self.base = low, high, base
        bottom, top = min(values), max(values)
        self.first = math.floor(math.log(bottom, base) + 1e-9)
        self.last = max(math.ceil(math.log(top, base) - 1e-9), self.first + 1)

    def at(self, value):
        part = (math.log(value, self.base) - self.first) / (self.last - self.first)
        return self.low + part * (self.high - self.low)

    def ticks(self):
        return [self.base**k for k in range(self.first, self.last + 1)]


def marker(kind, x, y, colour):
    if kind % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    if kind % 4 == 1:
        return f'<rect x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4" fill="{colour}"/>'
    if kind % 4 == 2:
        return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z" fill="{colour}"/>'


def plot(title, about, x_name, y_name, series):
    """series: name -> [(x, y)], all positive."""
    points = [point for line in series.values() for point in line]
    x_axis = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, 2)
    y_axis = Axis([y for _, y in points], HEIGHT - BOTTOM, TOP, 10)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12" role="img" aria-label="{escaped(title)}">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escaped(title)}</text>',
           f'<text x="{LEFT}" y="36" fill="#555555" font-size="11">{escaped(about)}</text>']
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        out.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>')
        if (math.log2(tick) - x_axis.first) % 2 == 0:
            out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label(tick)}</text>')
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label(tick)}</text>')
    out.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#333333"/>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 14}" text-anchor="middle">'
               f'{escaped(x_name)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(f'<text transform="translate(16 {middle:.1f}) rotate(-90)" text-anchor="middle">{escaped(y_name)}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in sorted(line)]
        path = " ".join(f"{'M' if i == 0 else 'L'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}/>')
        out += [marker(number, x, y, colour) for x, y in places]
        y = TOP + 14 + 20 * number
        x = WIDTH - RIGHT + 16
        out.append(f'<path d="M{x} {y}h26" stroke="{colour}" stroke-width="1.8"{dashed}/>')
        out.append(marker(number, x + 13, y, colour))
        out.append(f'<text x="{x + 32}" y="{y + 4}">{escaped(name)}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def where(document):
    machine = document["machine"]
    device = machine.get("gpu") or machine["cpu"]
    return f"{device}, {machine['cores']} host cores; revision {document['git']}, {document['when'][:10]}"


def sweeps():
    """Batch size against rate and latency, a line a mode and transport."""
    found = documents("device_sweep_*.json")
    if not found:
        return {}
    rate, middle, tail = {}, {}, {}
    for document in found:
        for result in document["results"]:
            if "frame" not in result:
                continue
            name = " ".join(result["case"].split("/")[-4:-2])
            rate.setdefault(name, []).append((result["frame"], result["median"]))
            middle.setdefault(name, []).append((result["frame"], result["p50_us"]))
            tail.setdefault(name, []).append((result["frame"], result["p99_us"]))
    about = f"1,000 rules, {found[0]['workers']} host threads, 4 batches each on their way. {where(found[0])}"
    return {
        "device_rate.svg": plot("Rate by batch size", about, "packets a batch", "million packets a second", rate),
        "device_p50.svg": plot("Median time of a batch", about, "packets a batch", "microseconds, p50", middle),
        "device_p99.svg": plot("99th percentile of a batch's time", about, "packets a batch", "microseconds, p99", tail),
    }


def frame_sweeps():
    """The pipeline's batch size against rate and latency, a line a transport."""
    found = documents("device_pipeline_sweep_*.json")
    if not found:
        return {}
    rate, middle = {}, {}
    for document in found:
        name = document["name"].rsplit("_", 1)[-1]
        for result in document["results"]:
            if not result["case"].startswith("acl+routes/") or "batch" not in result:
                continue
            size = result["batch"]["limit"]
            rate.setdefault(name, []).append((size, result["median"]))
            middle.setdefault(name, []).append((size, result["latency_ns"]["p50"] / 1e3))
    about = f"launch mode, 10,000 rules and the full table, {found[0]['workers']} workers. {where(found[0])}"
    return {
        "frames_rate.svg": plot("Rate of the pipeline by batch size", about, "packets a batch",
                                "million packets a second", rate),
        "frames_p50.svg": plot("Median time of a batch in the pipeline", about, "packets a batch", "microseconds, p50",
                               middle),
    }


def round_trips():
    """One batch of 256 at a time: the ring, the usual flags, and a linear scan, by rules that all match last."""
    found = documents("device_latency.json")
    if not found:
        return {}
    lines = {}
    for result in found[0]["results"]:
        parts = result["case"].split(", ")
        if parts[1] != "1 mask" or parts[2] not in ("last", "first"):
            continue
        rules = int(parts[0].split()[0])
        if parts[2] == "first" and rules != 1:
            continue
        name = {"tuple_space": "ring, tuple_space", "linear": "ring, linear"}[parts[3]]
        if len(parts) > 4:
            name = "flags, tuple_space"
        lines.setdefault(name, []).append((rules, result["median"]))
    about = f"first record written to last result read, p50. {where(found[0])}"
    return {"device_round_trip.svg": plot("Round trip of 256 packets by rules", about, "rules of one mask, the last "
                                          "one matches", "microseconds", lines)}


def by_rules(document, ending):
    """Results of `sluice bench classify --count ...` by line: the shape of the rules and the algorithm."""
    lines = {}
    for result in document["results"]:
        parts = result["case"].split("/")
        if parts[2:] == ending:
            lines.setdefault(f"{parts[0].rsplit('_', 1)[0]}, {parts[1]}", []).append(result)
    return lines


def route_growth():
    """What a route table costs as it grows, a family a plot and an algorithm a line."""
    wanted = {}
    for name, ending, place in (("routes_cpu", [], "one core"),
                                ("device_routes", ["resident", "addresses"], "from device memory")):
        found = documents(f"{name}.json")
        if not found:
            continue
        for family in ("4", "6"):
            lines = {}
            for result in found[0]["results"]:
                parts = result["case"].split("/")
                if parts[2:] == ending and parts[0].startswith(f"ipv{family}_"):
                    lines.setdefault(parts[1], []).append(result)

            def series(of, lines=lines):
                return {line: [(r["routes"], of(r)) for r in results] for line, results in lines.items()}

            about = f"prefixes of a full table, and splits of them; prefix-weighted addresses; {place}. {where(found[0])}"
            wanted[f"{name}{family}_rate.svg"] = plot(f"IPv{family} lookups by routes", about, "routes",
                                                      "million lookups a second", series(lambda r: r["median"]))
            if ending:
                continue
            wanted[f"{name}{family}_memory.svg"] = plot(f"Memory of an IPv{family} table by routes", about, "routes",
                                                        "bytes a route", series(lambda r: r["bytes"] / r["routes"]))
            wanted[f"{name}{family}_build.svg"] = plot(f"Build time of an IPv{family} table by routes", about, "routes",
                                                       "milliseconds", series(lambda r: r["build_seconds"] * 1e3))
    return wanted


def growth():
    """What an access list costs as it grows."""
    wanted = {}
    for name, where_to, ending, place in (("rules_cpu", "rules", [], "one core"),
                                          ("device_rules", "device_rules", ["resident"], "from device memory")):
        found = documents(f"{name}.json")
        if not found:
            continue
        lines = by_rules(found[0], ending)

        def series(of, lines=lines):
            return {line: [(r["rules"], of(r)) for r in results] for line, results in lines.items()}

        about = f"generated rules, packets drawn from them; {place}. {where(found[0])}"
        wanted[f"{where_to}_rate.svg"] = plot("Lookups by rules", about, "rules", "million packets a second",
                                              series(lambda r: r["median"]))
        if ending:
            continue
        wanted[f"{where_to}_memory.svg"] = plot("Memory of the search structure by rules", about, "rules",
                                                "bytes a rule", series(lambda r: r["search_bytes"] / r["rules"]))
        wanted[f"{where_to}_build.svg"] = plot("Build time by rules", about, "rules", "milliseconds",
                                               series(lambda r: r["build_seconds"] * 1e3))
    return wanted


def port_priorities():
    """Persistent mode with priorities: what groups, chunks and the mix of classes do."""
    wanted = {}
    for document in documents("port_device.json"):
        rows = {row["case"].split("/persistent/", 1)[1]: row for row in document["results"]
                if "/persistent/" in row["case"]}
        about = where(document)
        groups = {"shaped": [(row["groups"], row["median"]) for name, row in rows.items() if name.startswith("groups/")]}
        wanted["port_groups.svg"] = plot("Rate by groups of lanes", about, "groups", "million packets a second", groups)
        latency, rate = {}, {}
        for name, row in rows.items():
            parts = name.split("/")
            if parts[0] != "buffer":
                continue
            line = f"{parts[2]} at a time" + (", unshaped" if len(parts) > 3 else "")
            latency.setdefault(line, []).append((row["chunk"], row["latency_ns"]["p50"] / 1e3))
            rate.setdefault(line, []).append((row["chunk"], row["median"]))
        wanted["port_latency.svg"] = plot("Time of a chunk by its size", about, "packets a chunk", "microseconds, p50",
                                          latency)
        wanted["port_chunks.svg"] = plot("Rate by size of chunks", about, "packets a chunk", "million packets a second",
                                         rate)
        even = rows["mix/1-1-1"]["median"]
        mixes = {"highest class": [(100 / 3, even), (90, rows["mix/90-5-5"]["median"]), (100, rows["mix/1-0-0"]["median"])],
                 "lowest class": [(100 / 3, even), (90, rows["mix/5-5-90"]["median"]), (100, rows["mix/0-0-1"]["median"])]}
        wanted["port_mix.svg"] = plot("Rate by the part of one class", about, "percent of the packets",
                                      "million packets a second", mixes)
    for document in documents("port_latency.json"):
        lines = {}
        for row in document["results"]:
            parts = row["case"].split("/")
            if len(parts) == 5 and parts[2].startswith("x"):
                lines.setdefault(parts[4], []).append((int(parts[3]), row["through_ns"]["p50"] / 1e3))
        wanted["port_batch_latency.svg"] = plot("Time of a batch by its size", where(document), "packets a batch",
                                                "microseconds, p50", lines)
    return wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = sweeps() | frame_sweeps() | round_trips() | growth() | route_growth() | port_priorities()
    stale = []
    for name, text in wanted.items():
        path = PLOTS / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            PLOTS.mkdir(exist_ok=True)
            path.write_text(text)
    if PLOTS.is_dir():
        for path in sorted(PLOTS.glob("*.svg")):
            if path.name not in wanted:
                stale.append(path.name)
                if not check:
                    path.unlink()
    if check and stale:
        print(f"gen_plots: stale: {', '.join(stale)}; run ./dev docs", file=sys.stderr)
        return 1
    print(f"gen_plots: {len(wanted)} plots" + (f", {len(stale)} written" if stale else ", all current"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
