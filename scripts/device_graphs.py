#!/usr/bin/env python3
"""Runs random graphs on a device, by random ways, and compares every byte and counter with what the CPU gives.

    scripts/device_graphs.py --binary build/cuda/sluice --device cuda:0 --minutes 5 [--seed 1] [--jobs N] [--graphs 8]

The graphs, their tables and captures are those of `sluice gen graphs`; a folder for them is made and removed. Several
graphs run in one process, since a device takes longer to open than most graphs to run; one graph by one way is a run.
Needs the program and Python alone. Prints counts now and then, and each run that differs with the commands that repeat
it; exit code 0 when all are equal, 5 otherwise.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

# Resident kernels of many workers and segments may find no room, which the program says.
NO_ROOM = ["it takes no more", "multiprocessors take", "no room for more resident kernels"]
COUNTED = ["packets_in", "packets_out", "dropped", "generated", "drops", "elements", "qos", "dscp_bytes"]
OUTPUTS = 3


class Graph:
    """One of `sluice gen graphs`."""

    def __init__(self, folder, seed):
        self.seed, self.folder = seed, folder / str(seed)
        self.text = (self.folder / "graph.click").read_text()
        classes = self.folder / "classes.qos"
        self.qos = str(classes) if classes.exists() else None

    def text_into(self, out):
        return self.text.replace(f"ToDump({self.folder}/", f"ToDump({out}/")


def run(binary, graphs, options, work):
    """(exit code, what it said, outputs and counters) of one process that runs these graphs."""
    with tempfile.TemporaryDirectory(dir=work) as out:
        config = pathlib.Path(out) / "graph.click"
        config.write_text("".join(graph.text_into(out) for graph in graphs))
        classes = ["--qos", graphs[0].qos] if graphs[0].qos else []
        try:
            done = subprocess.run([binary, "run", str(config), "-q", "-o", "json", "--dscp", *classes, *map(str, options)],
                                  capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return 124, "no end within two minutes", None
        if done.returncode != 0:
            return done.returncode, done.stderr.strip()[-400:], None
        report = json.loads(done.stdout)
        failures = [device["failure"] for device in report.get("devices", []) if device.get("failure")]
        if failures:
            return 4, failures[0], None
        outputs = {}
        for graph in graphs:
            outputs[graph.seed] = [(pathlib.Path(out) / f"g{graph.seed}_out{o}.pcap").read_bytes()
                                   for o in range(1, OUTPUTS + 1)]
        return 0, "", (outputs, {key: report.get(key) for key in COUNTED})


def random_way(drawn, device, several):
    """Options of a run on the device. Several graphs have more segments than resident kernels have room."""
    mode = "launch" if several else drawn.choice(["launch", "persistent", "adaptive"])
    records = drawn.choice(["auto", "key", "frame", "frame"])
    frames = records == "frame"
    transports = ["staged", "zerocopy", "commlist", "commpool"]
    way = ["--device", device, "--mode", mode, "--records", records, "--transport", drawn.choice(transports),
           "--workers", drawn.randint(1, 3 if mode == "launch" else 2), "--batch", drawn.choice([1, 31, 32, 33, 100, 256, 1024, 4096]),
           "--flights", drawn.randint(1, 4), "--watchdog", 20000]
    if mode == "adaptive":
        way += ["--enter-after", drawn.randint(1, 4), "--leave-after", drawn.randint(1, 4)]
    if not frames and drawn.randrange(4) == 0:
        way += ["--threading", "master"]
    return way


def shown(binary, graph, options):
    classes = ["--qos", f"g/{graph.seed}/classes.qos"] if graph.qos else []
    words = " ".join(map(str, [*classes, *options]))
    return f"{binary} gen graphs --seed {graph.seed} --out g; {binary} run g/{graph.seed}/graph.click {words}"


class Batch:
    """Some graphs with consecutive seeds, and what became of them."""

    def __init__(self, binary, first, count, ways, device, work):
        self.graphs = self.runs = 0
        self.wrong = []
        folder = pathlib.Path(tempfile.mkdtemp(dir=work))
        try:
            self.compare(binary, first, count, ways, device, folder)
        finally:
            shutil.rmtree(folder)

    def compare(self, binary, first, count, ways, device, folder):
        made = subprocess.run([binary, "gen", "graphs", "--seed", str(first), "--count", str(count), "--out", str(folder),
                               "-q"], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(made.stderr)
        plain, others = [], []
        wanted = {}
        for seed in range(first, first + count):
            graph = Graph(folder, seed)
            code, _, want = run(binary, [graph], [], folder)
            # What the engine of devices does not run, such as graphs with something that reads what nothing wrote.
            refused = code != 0 or run(binary, [graph], ["--device", "emu"], folder)[0] in (1, 2)
            if refused:
                continue
            wanted[seed] = want
            (others if graph.qos else plain).append(graph)
        drawn = random.Random(first)
        # Together, and some of them alone.
        groups = ([plain] if plain else []) + [[graph] for graph in others + plain[: max(1, len(plain) // 3)]]
        for group in groups:
            self.graphs += len(group)
            want = wanted[group[0].seed] if len(group) == 1 else run(binary, group, [], folder)[2]
            for _ in range(ways):
                options = random_way(drawn, device, len(group) > 1)
                code, error, got = run(binary, group, options, folder)
                if any(text in error for text in NO_ROOM):
                    continue
                self.runs += len(group)
                if code == 0 and got == want:
                    continue
                before = len(self.wrong)
                for graph in group:
                    code, error, got = run(binary, [graph], options, folder)
                    if code != 0 or got != wanted[graph.seed]:
                        what = error or ("other bytes" if got[0] != wanted[graph.seed][0] else "other counters")
                        self.wrong.append((graph.seed, what, shown(binary, graph, options)))
                if len(self.wrong) == before:
                    seeds = ", ".join(str(graph.seed) for graph in group)
                    self.wrong.append((seeds, f"only together: {error or 'other bytes or counters'}",
                                       " ".join(map(str, options))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--minutes", type=float, default=5, help="how long graphs are begun (default: 5)")
    parser.add_argument("--runs", type=int, default=sys.maxsize, help="or until so many runs were made")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph")
    parser.add_argument("--jobs", type=int, default=min(6, max(1, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--graphs", type=int, default=8, help="in one process (default: 8)")
    parser.add_argument("--ways", type=int, default=6, help="of each graph (default: 6)")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    start = said = time.monotonic()
    graphs = runs = wrong = 0
    seed = options.seed
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        under_way = set()
        while True:
            while len(under_way) < options.jobs and time.monotonic() - start < 60 * options.minutes and runs < options.runs:
                under_way.add(pool.submit(Batch, binary, seed, options.graphs, options.ways, options.device, work))
                seed += options.graphs
            if not under_way:
                break
            done, under_way = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
            for each in done:
                batch = each.result()
                graphs, runs, wrong = graphs + batch.graphs, runs + batch.runs, wrong + len(batch.wrong)
                for seeds, what, again in batch.wrong:
                    print(f"WRONG seed {seeds}: {what}\n    {again}", flush=True)
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(f"{said - start:6.0f} s: {graphs} graphs, {runs} runs, {wrong} wrong", flush=True)
    print(f"seeds {options.seed} to {seed - 1}: {graphs} graphs, {runs} runs on {options.device}, {wrong} wrong, "
          f"{time.monotonic() - start:.0f} s")
    return 5 if wrong or runs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
