#!/usr/bin/env python3
"""Measures the Python package beside the program and other readers of captures, in turns; prints the JSON of bench/results.

    scripts/bench_python.py > bench/results/python_package.json
    ... --rules FILE --keys 10000000 --packets 1000000 --rounds 5 --parts 200
    ... --try                       that all rows work, in short: figures mean nothing

Where this Python lacks the package, that of build/python-venv (./dev python) runs it. Readers that take part: scapy, dpkt (pip install dpkt),
and tshark from the PATH; a reader that is not there, and Ray, have a row that says so. On a quiet machine.

classify: keys of generated traffic for the rules, as NumPy columns, against `sluice bench classify` with as many of its own for the same
rules and seed; 10,000 of the answers are compared with those of `linear` before. Readers: the same capture to columns of time, length and five-tuple; what they
read is compared. Parts: sluice.ray.run of captures with ten packets, whose list is compiled before, and of large ones with a list that is
searched from its first rule (a run that computes), with one worker and two; files and reports are compared with those of sluice.run before.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

try:
    import numpy as np

    import sluice
    import sluice.ray
except ImportError as missing:
    python = ROOT / "build/python-venv/bin/python"
    if not python.exists() or os.path.samefile(sys.prefix, python.parent.parent):
        sys.exit(f"bench_python: {missing}; run ./dev python, or this by a Python that has the package")
    os.execv(python, [str(python), *sys.argv])

import result_schema

PROGRAM = [sys.executable, "-m", "sluice"]


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def processor_seconds():
    """Of this process and of its children that ended."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def row(case, unit, values, **more):
    return {"case": case, "unit": unit, "median": round(statistics.median(values), 4), "min": round(min(values), 4),
            "max": round(max(values), 4), "n": len(values), **more}


def columns_of(path, names):
    table = sluice.read_pcap(path, names).read_all().combine_chunks()
    return {name: np.ascontiguousarray(table[name].fill_null(0).to_numpy()) if table[name].null_count else table[name].to_numpy() for name in names}


def classify_rows(a, folder, rounds):
    names = ["src", "dst", "sport", "dport", "proto", "flags", "bits", "icmp"]
    capture = folder / "keys.pcap"
    subprocess.run([*PROGRAM, "gen", "traffic", "--rules", a.rules, "--packets", str(a.keys), "--seed", str(a.seed), "--out", str(capture)],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    keys = columns_of(capture, names)
    capture.unlink()
    keys["flags"] = keys["flags"].astype(np.uint16) << 8
    acl = sluice.Acl.from_file(a.rules)
    linear = sluice.Acl.from_file(a.rules, algorithm="linear")
    some = {name: column[:: max(1, len(column) // 10_000)] for name, column in keys.items()}
    if not np.array_equal(acl.classify(**some), linear.classify(**some)):
        sys.exit("the answers differ from those of linear")
    out = np.empty(len(keys["src"]), np.uint32)
    acl.classify(**keys, out=out)
    ours, theirs, ratios = [], [], []
    for _ in range(rounds):
        said = json.loads(subprocess.run([*PROGRAM, "bench", "classify", "--rules", a.rules, "--packets", str(a.keys), "--seed", str(a.seed),
                                          "--algorithm", acl.algorithm, "--repetitions", "5", "--sample", "100", "-o", "json"], check=True,
                                         capture_output=True, text=True).stdout)
        theirs.append(said["results"][0]["median"])
        seconds, _ = timed(lambda: acl.classify(**keys, out=out))
        ours.append(len(out) / seconds / 1e6)
        ratios.append(ours[-1] / theirs[-1])
    return [row(f"classify/{pathlib.Path(a.rules).stem}/{acl.algorithm}", "Mkeys/s", ours, peer="sluice bench classify",
                peer_median=round(statistics.median(theirs), 4), of_peer=round(statistics.median(ratios), 4))], len(some["src"])


def five_tuples_scapy(path):
    from scapy.all import IP, TCP, UDP, PcapReader

    found = []
    with PcapReader(str(path)) as reader:
        for p in reader:
            ip = p.getlayer(IP)
            if ip is None:
                continue
            l4 = p.getlayer(TCP) or p.getlayer(UDP)
            found.append((float(p.time), p.wirelen, ip.src, ip.dst, ip.proto, l4.sport if l4 else 0, l4.dport if l4 else 0))
    return len(found), sum(f[6] for f in found)


def five_tuples_dpkt(path):
    import dpkt

    found = []
    with open(path, "rb") as file:
        for stamp, data in dpkt.pcap.Reader(file):
            eth = dpkt.ethernet.Ethernet(data)
            ip = eth.data
            if not isinstance(ip, dpkt.ip.IP):
                continue
            l4 = ip.data if isinstance(ip.data, (dpkt.tcp.TCP, dpkt.udp.UDP)) else None
            found.append((stamp, len(data), ip.src, ip.dst, ip.p, l4.sport if l4 else 0, l4.dport if l4 else 0))
    return len(found), sum(f[6] for f in found)


def five_tuples_tshark(path):
    said = subprocess.run(["tshark", "-n", "-r", str(path), "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "ip.src", "-e", "ip.dst", "-e",
                           "ip.proto", "-e", "tcp.srcport", "-e", "tcp.dstport", "-e", "udp.srcport", "-e", "udp.dstport"], check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in said.splitlines()]
    return len(rows), sum(int((r[6] or r[8] or "0").split(",")[0]) for r in rows)


def five_tuples_sluice(path):
    packets = ports = 0
    for batch in sluice.read_pcap(path, ["timestamp", "length", "src", "dst", "proto", "sport", "dport"]):
        packets += batch.num_rows
        ports += int(np.asarray(batch["dport"].fill_null(0)).sum())
    return packets, ports


def reader_rows(a, folder, rounds):
    capture = folder / "read.pcap"
    rules = folder / "any.acl"
    rules.write_text("permit tcp from any to any\npermit udp from any to any\n")
    subprocess.run([*PROGRAM, "gen", "traffic", "--rules", str(rules), "--packets", str(a.packets), "--seed", str(a.seed), "--ipv6", "0", "--out", str(capture)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    expected = five_tuples_sluice(capture)
    # Slow readers read a part, which says as much of their rate.
    few = folder / "few.pcap"
    few_packets = max(1000, a.packets // 20)
    subprocess.run([*PROGRAM, "gen", "traffic", "--rules", str(rules), "--packets", str(few_packets), "--seed", str(a.seed), "--ipv6", "0", "--out", str(few)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    expected_few = five_tuples_sluice(few)
    rates = {"sluice": []}
    others = {"tshark": five_tuples_tshark, "scapy": five_tuples_scapy, "dpkt": five_tuples_dpkt}
    reasons = {}
    for _ in range(rounds):
        seconds, got = timed(lambda: five_tuples_sluice(capture))
        if got != expected:
            sys.exit("two readings of one capture differ")
        rates["sluice"].append(expected[0] / seconds / 1e6)
        for name, read in others.items():
            if name in reasons:
                continue
            try:
                seconds, got = timed(lambda: read(few))
            except (ImportError, FileNotFoundError) as error:
                reasons[name] = f"{name} is not installed: {error}"
                continue
            if got != expected_few:
                sys.exit(f"{name} reads {got}, and sluice {expected_few}")
            rates.setdefault(name, []).append(expected_few[0] / seconds / 1e6)
    rows = [row("read_pcap to columns", "Mpackets/s", rates["sluice"])]
    for name in others:
        if name in reasons:
            rows.append({"case": f"{name} to five-tuples", "reason": reasons[name]})
        else:
            times = [s / o for s, o in zip(rates["sluice"], rates[name])]
            rows.append(row(f"{name} to five-tuples", "Mpackets/s", rates[name], note=f"read_pcap is {statistics.median(times):.1f} times as fast"))
    return rows


def part_rows(a, folder, rounds):
    small, large = folder / "small", folder / "large"
    small.mkdir()
    large.mkdir()

    def gen(path, packets, seed):
        subprocess.run([*PROGRAM, "gen", "traffic", "--rules", a.rules, "--packets", str(packets), "--seed", str(seed), "--out", str(path)], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    gen(folder / "part.pcap", 10, 1)
    for i in range(a.parts):
        os.link(folder / "part.pcap", small / f"{i:04}.pcap")
    for i in range(4):
        gen(large / f"{i}.pcap", a.packets, i + 1)
    images = {}
    for algorithm in ("tuple_merge", "linear"):
        sluice.Acl.from_file(a.rules, algorithm=algorithm).save(folder / f"{algorithm}.img")
        images[algorithm] = sluice.Graph.standard(acl=folder / f"{algorithm}.img")
    runs = 0

    def run(inputs, graph, engine, workers, compared):
        """Seconds of a run of all captures of a folder, and seconds of processors of what this process started (not of Ray's workers). Files
        and reports are those of the captures one by one."""
        nonlocal runs
        runs += 1
        out = folder / f"out{runs}"
        before = processor_seconds()
        seconds, report = timed(lambda: sluice.ray.run(graph, inputs / "*.pcap", out, engine=engine, workers=workers))
        used = processor_seconds() - before
        wanted, files = compared
        found = [pathlib.Path(path).read_bytes() for path in report.outputs]
        if (report.packets_in, report.packets_out, report.drops) != wanted or found != files:
            sys.exit(f"{engine} with {workers}: another result than that of the captures one by one")
        for path in [*out.iterdir()]:
            path.unlink()
        return seconds, used

    def alone(paths, graph, times=1):
        reports, files = [], []
        for path in paths:
            reports.append(sluice.run(graph, path, folder / "alone.pcap"))
            files.append((folder / "alone.pcap").read_bytes())
        merged = sluice.Report.merged(reports * times)
        return (merged.packets_in, merged.packets_out, merged.drops), files * times

    few = alone([folder / "part.pcap"], images["tuple_merge"], a.parts)
    many = alone(sorted(large.iterdir()), images["linear"])
    engines = {"local": "this machine's cores"}
    reasons = {}
    try:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        engines["ray"] = "Ray"
    except ImportError as error:
        reasons["ray"] = f"Ray is not installed: {error}"
    each = {(engine, workers): [] for engine in engines for workers in (1, 2)}
    processors = {workers: [] for workers in (1, 2)}
    speedups = {engine: [] for engine in engines}
    for k in range(rounds + 1):
        for engine in engines:
            for workers in (1, 2):
                seconds, used = run(small, images["tuple_merge"], engine, workers, few)
                if k:  # the first round starts Ray's workers
                    each[engine, workers].append(seconds / a.parts * 1e3)
                    if engine == "local":
                        processors[workers].append(used / a.parts * 1e3)
            one, two = (run(large, images["linear"], engine, workers, many)[0] for workers in (1, 2))
            if k:
                speedups[engine].append(one / two)
    rows = []
    for engine in ("local", "ray"):
        for workers in (1, 2):
            case = f"parts/{engine}/{workers} worker{'s' if workers > 1 else ''}/whole time of a part of 10 packets"
            rows.append(row(case, "ms", each[engine, workers]) if engine in engines else {"case": case, "reason": reasons[engine]})
            if engine == "local":
                rows.append(row(case.replace("whole time", "processor time"), "ms", processors[workers]))
        case = f"parts/{engine}/two workers by one, linear"
        rows.append(row(case, "1", speedups[engine]) if engine in engines else {"case": case, "reason": reasons[engine]})
    if "ray" in engines:
        ray.shutdown()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", help="a list in any format (default: 1,000 generated ones)")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="python_package")
    parser.add_argument("--sluice", help="the program that is measured beside (default: that of the package)")
    parser.add_argument("--try", dest="attempt", action="store_true")
    a = parser.parse_args()
    if a.sluice:
        PROGRAM[:] = [os.path.abspath(a.sluice)]
    if a.attempt:
        a.keys, a.packets, a.rounds, a.parts = 20_000, 2_000, 2, 3
    words = ["scripts/bench_python.py"]
    for option in ("rules", "keys", "packets", "rounds", "parts", "seed"):
        if (value := getattr(a, option)) != parser.get_default(option):
            words += [f"--{option}", pathlib.Path(value).name if option == "rules" else str(value)]
    generated = {}
    # Files in memory: the rates of a disk are not those of the package.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bench-python-", dir=memory) as name:
        folder = pathlib.Path(name)
        if a.rules is None:
            a.rules = str(folder / "acl_1k.rules")
            words_of_rules = ["gen", "rules", "--shape", "acl", "--count", "1000", "--seed", str(a.seed)]
            generated["acl_1k.rules"] = " ".join(["sluice", *words_of_rules])
            subprocess.run([*PROGRAM, *words_of_rules, "--out", a.rules], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        digest = hashlib.sha256(pathlib.Path(a.rules).read_bytes()).hexdigest()
        rows, compared = classify_rows(a, folder, a.rounds)
        rows += reader_rows(a, folder, a.rounds)
        rows += part_rows(a, folder, a.rounds)
    said = json.loads(subprocess.run([*PROGRAM, "doctor", "-o", "json"], capture_output=True, text=True).stdout)
    document = {
        "schema": 1, "name": a.name, "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(words), "machine": said["machine"], "git": said["revision"], "seed": a.seed,
        "input_hash": f"sha256:{digest}",
        "checked": f"{compared} of {a.keys} answers equal those of linear; readers give as many packets and the same sum of ports; files and reports of "
                   "every run in parts equal those of the captures one by one",
        "results": rows,
    }  # fmt: skip
    if generated:
        document["generated"] = generated
    problems = result_schema.problems_of(document, a.name)
    if problems:
        sys.exit("\n".join(problems))
    print(json.dumps(document, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
