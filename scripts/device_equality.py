#!/usr/bin/env python3
"""Runs classify, route and run over a folder of test data on every device and way, and compares the bytes of what they
write with what the CPU writes on the same machine.

    scripts/device_equality.py --binary build/cuda/sluice --data FOLDER [--devices emu,cuda] [--jobs 6] [--quick]

FOLDER has acl/ (ClassBench rule sets, and traces named *_trace), rib/ (text route tables) and pcap/ (captures); files
may end in .xz. Prints one line a device and way; exit code 0 when every output is equal, 5 otherwise.
"""
import argparse
import concurrent.futures
import hashlib
import json
import lzma
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

WAYS = [("launch", "staged"), ("launch", "zerocopy"), ("launch", "commlist"), ("launch", "commpool"),
        ("persistent", "staged"), ("adaptive", "staged")]
COUNTED = ["packets_in", "packets_out", "dropped", "generated", "drops", "elements"]


def unpack(folder, to):
    """Every file below `folder`, without .xz, in `to`; the paths there."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.name.removesuffix(".xz")
        target = to / name
        data = path.read_bytes()
        target.write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
        found.append(target)
    return found


def call(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def prepare(binary, command):
    code, _, error = call(binary, *command)
    if code != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {code}\n{error}")


def addresses(path, routes, count, seed):
    """Half drawn evenly, half from the table's own prefixes: `count` of each family."""
    drawn = random.Random(seed)
    lines = [str_v4(drawn.getrandbits(32)) for _ in range(count)] + [str_v6(drawn) for _ in range(count)]
    prefixes = []
    for table in routes:
        for line in table.read_text().splitlines():
            word = line.split(" ", 1)[0].split("\t", 1)[0]
            if "/" in word:
                prefixes.append(word.split("/")[0])
    lines += drawn.sample(prefixes, min(len(prefixes), 2 * count))
    path.write_text("\n".join(lines) + "\n")


def str_v4(value):
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def str_v6(drawn):
    return ":".join(format(v, "x") for v in [0x2000 | drawn.getrandbits(11)] + [drawn.getrandbits(16) for _ in range(7)])


class Job:
    """One command whose output file counts."""

    def __init__(self, name, command, counted=False):
        self.name, self.command, self.counted = name, command, counted

    def run(self, binary, device, number, folder):
        """(digest, packets offloaded or None, error text)"""
        out = folder / f"{number}.out"
        code, text, error = call(binary, *self.command, "--out", out, "-q", *device,
                                 *(["-o", "json"] if self.counted else []))
        if code != 0:
            return None, None, f"exit code {code}: {error.strip()[-300:]}"
        digest = hashlib.sha256(out.read_bytes())
        out.unlink()
        offloaded = None
        if self.counted:
            report = json.loads(text)
            digest.update(json.dumps([report.get(key) for key in COUNTED], sort_keys=True).encode())
            offloaded = report.get("offload", {}).get("offloaded", 0)
        return digest.hexdigest(), offloaded, error.strip()


def jobs_over(binary, data, work, quick):
    jobs = []
    acl = unpack(data / "acl", work)
    traces = {path.name.removesuffix("_trace"): path for path in acl if path.name.endswith("_trace")}
    for rules in acl:
        if rules.name.endswith("_trace") or quick and not rules.name.startswith("acl1_1"):
            continue
        image = work / f"{rules.name}.img"
        prepare(binary, ["compile", "--acl", rules, "--out", image, "-q"])
        trace = traces.get(rules.name)
        if trace is None:
            trace = work / f"{rules.name}.made_trace"
            prepare(binary, ["gen", "trace", "--rules", rules, "--packets", 20000, "--out", trace, "-q"])
        jobs.append(Job(f"classify {rules.name}", ["classify", "--rules", image, "--trace", trace]))
    tables = [path for path in unpack(data / "rib", work) if ".txt" in path.name]
    asked = work / "addresses"
    addresses(asked, tables, 20000 if quick else 100000, 1)
    for algorithm in ["dir24,poptrie", "poptrie,poptrie", "trie,trie"]:
        image = work / f"routes-{algorithm.replace(',', '-')}.img"
        prepare(binary, ["compile", "--routes", ",".join(map(str, tables)), "--algorithm", algorithm, "--out", image,
                         "-q"])
        jobs.append(Job(f"route {algorithm}", ["route", "--routes", image, "--addresses", asked]))
    captures = [path for path in unpack(data / "pcap", work) if path.suffix in (".pcap", ".pcapng")]
    acl_image = next(work.glob("acl1_10k.img"))
    traffic = work / "generated.pcap"
    prepare(binary, ["gen", "traffic", "--rules", work / "acl1_10k", "--packets", 50000, "--out", traffic, "-q"])
    for capture in [*captures, traffic]:
        for records in ["auto", "frame"]:
            for workers in [1, 3]:
                if (records, workers) == ("frame", 3):
                    continue
                jobs.append(Job(f"run {capture.name} records {records} x{workers}",
                                ["run", "--acl", acl_image, "--default", "permit", "--routes",
                                 work / "routes-dir24-poptrie.img", "--in", capture, "--records", records, "--workers",
                                 workers], True))
    return jobs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--devices", default="emu,cuda")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3))
    parser.add_argument("--quick", action="store_true", help="two rule sets and fewer addresses")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    wrong = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = pathlib.Path(name)
        jobs = jobs_over(binary, options.data, work, options.quick)

        def numbered(way):
            device, number = way
            return list(pool.map(lambda i: jobs[i].run(binary, device, f"{number}-{i}", work), range(len(jobs))))

        want = numbered((["--device", "cpu"], "cpu"))
        for job, (digest, _, error) in zip(jobs, want):
            if digest is None:
                sys.exit(f"{job.name} on the CPU: {error}")
        print(f"{'device':10} {'mode':11} {'transport':10} {'equal':>7} {'of':>4} {'offloaded':>11} {'s':>6}")
        for device in options.devices.split(","):
            for mode, transport in WAYS:
                start = time.time()
                got = numbered((["--device", device, "--mode", mode, "--transport", transport], f"{device}{mode}"))
                equal = sum(1 for a, b in zip(want, got) if a[0] == b[0])
                offloaded = sum(b[1] or 0 for b in got)
                print(f"{device:10} {mode:11} {'tagged' if mode == 'persistent' else transport:10} {equal:7} "
                      f"{len(jobs):4} {offloaded:11,} {time.time() - start:6.1f}", flush=True)
                if offloaded == 0:
                    print("    nothing was offloaded")
                    wrong += 1
                for job, a, b in zip(jobs, want, got):
                    if a[0] != b[0]:
                        wrong += 1
                        print(f"    {job.name}: {b[2] or 'other bytes or counters'}")
    return 5 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
