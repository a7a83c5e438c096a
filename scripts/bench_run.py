#!/usr/bin/env python3
"""Measures whole runs of `sluice run` by what its packets are and what is asked for, one worker, in turns.

    scripts/bench_run.py --acl acl1_10k --routes rib4.txt,rib6.txt > bench/results/run_ways.json
    scripts/bench_run.py ... --peer build/old/sluice        the same of another build, interleaved
    scripts/bench_run.py ... --device cuda --workers 2      the kinds of packets on a device, all of them there

Kinds of packets: IPv4, IPv6, half and half, and IPv4 with one and with two VLAN tags, in frames of 64 bytes with tags and FCS, or as many
more as their headers have; and frames of 72 bytes, untagged and with two tags; destinations drawn from the routes; played from memory. Ways: plain, in batches of 256, --priorities (whose chunks and batches have 256), --qos that only counts, --hits, an idle --control, a graph with
a Queue and an Unqueue, capture to capture with files in memory (processor time per packet, reading and writing included, less
that of a short run), the packets that `bench pipeline` makes beside its own figure, a gzip capture by the clock, beside zlib alone on the same file, four captures in turn by one to four workers, and one that is played from memory by as many as there are processors. A row's `of_plain` is the median over the rounds of its rate by that of the row it belongs to, `of_peer` by that of the other build.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import rounds

KINDS = {"IPv4": ["--size", "64"], "IPv6": ["--size", "64", "--ipv6", "1"], "half IPv6": ["--size", "64", "--ipv6", "0.5"],
         "IPv4 of 72 bytes": ["--size", "72"]}
# Tags, and whether they come on top of 64 bytes.
TAGS = {"VLAN": (bytes.fromhex("8100002a"), False), "QinQ": (bytes.fromhex("88a800078100002a"), False),
        "QinQ of 72 bytes": (bytes.fromhex("88a800078100002a"), True)}
CLASSES = "class all dscp others\n"
# What packets pass between routes and the output, behind a classifier by codepoint where one is named. The time of packets is that
# of their time stamps, so that most of these are within the rates.
PASSED = {"queue": "Queue -> Unqueue", "police": "Police(40Gbps, 150000, EXCESS 300000)", "shape": "Shape(100Gbps, BURST 15000)",
          "classes": "Police(40Gbps, 150000, EXCESS 300000, BY class)"}
CLASSIFIED = {"classes": "c :: ClassifyDSCP -> routes :: IPRoute(TABLE main); c[1] -> routes; c[2] -> routes"}


def shortened(packet, cut):
    """An IPv4 packet without options with up to `cut` bytes of payload less; the transport's checksum, which no router reads, stays."""
    packet = bytearray(packet)
    cut = min(cut, len(packet) - 20 - (20 if packet[9] == 6 else 8))
    del packet[len(packet) - cut:]
    struct.pack_into(">H", packet, 2, len(packet))
    struct.pack_into(">H", packet, 10, 0)
    total = sum(struct.unpack_from(">10H", packet))
    total = (total & 0xffff) + (total >> 16)
    struct.pack_into(">H", packet, 10, ~((total & 0xffff) + (total >> 16)) & 0xffff)
    if packet[9] == 17:
        struct.pack_into(">H", packet, 24, len(packet) - 20)
    return packet


def tagged(capture, tags, on_top):
    """The same packets with tags behind the MAC addresses, and as much shorter as their payload allows but for tags `on_top`."""
    out = bytearray(capture[:24])
    at = 24
    while at < len(capture):
        seconds, fraction, captured, _ = struct.unpack_from("<4I", capture, at)
        frame = capture[at + 16:at + 16 + captured]
        made = frame[:12] + tags + frame[12:14] + (frame[14:] if on_top else shortened(frame[14:], len(tags)))
        out += struct.pack("<4I", seconds, fraction, len(made), len(made)) + made
        at += 16 + captured
    return bytes(out)


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.programs = {"": arguments.sluice} | ({"peer": arguments.peer} if arguments.peer else {})
        self.values = {}
        self.device = "cpu"
        self.there = []  # what runs of a device are given besides
        if arguments.device != "cpu":
            self.there = ["--device", arguments.device, "--workers", str(arguments.workers), "--batch", str(arguments.batch)]

    def call(self, program, *words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([program, *words], cwd=self.folder, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join([program, *words])}: exit code {done.returncode}\n{done.stderr.strip()}")
        return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    @staticmethod
    def about(program):
        """Its machine and revision. That something is missing on the machine is no error here."""
        return json.loads(subprocess.run([program, "doctor", "-o", "json"], capture_output=True, text=True).stdout)

    def prepare(self):
        size = ["--mix", "fixed", "--flows", str(self.arguments.flows), "--zipf", "0", "--seed", str(self.arguments.seed), "-q"]
        sluice = self.arguments.sluice
        digest = hashlib.sha256()
        # Destinations drawn from routes of both families are of both, whatever else is said.
        lines = [line for one in self.arguments.routes.split(",") for line in pathlib.Path(one).read_text().splitlines()]
        (self.folder / "rib4").write_text("".join(line + "\n" for line in lines if ":" not in line.split("#")[0]))
        for kind, words in KINDS.items():
            self.call(sluice, "gen", "traffic", "--packets", str(self.arguments.capture), "--routes",
                      self.arguments.routes if "--ipv6" in words else "rib4", *size, *words, "--out", kind + ".pcap")
        plain = (self.folder / "IPv4.pcap").read_bytes()
        # Those of `bench pipeline`, whose addresses are these routes' own.
        self.call(sluice, "gen", "traffic", "--packets", "65536", "--routes", "rib4", "--mix", "fixed", "--size", "64", "--flows", "262144",
                  "--zipf", "0", "--seed", str(self.arguments.seed), "-q", "--out", "pipeline.pcap")
        for kind, how in TAGS.items():
            (self.folder / f"{kind}.pcap").write_bytes(tagged(plain, *how))
        self.call(sluice, "gen", "traffic", "--packets", str(self.arguments.long), "--routes", "rib4", *size, "--size", "64",
                  "--out", "long.pcap")
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        with open(self.folder / "long.pcap", "rb") as plain, open(self.folder / "long.pcap.gz", "wb") as packed:
            while block := plain.read(1 << 20):
                packed.write(packer.compress(block))
            packed.write(packer.flush())
        for name in sorted(self.folder.glob("*.pcap")):
            digest.update(name.read_bytes())
        (self.folder / "all.qos").write_text(CLASSES)
        for key, program in self.programs.items():
            self.call(program, "compile", "-q", "--routes", self.arguments.routes, "--out", f"routes{key}.img")
            if self.arguments.acl:
                self.call(program, "compile", "-q", "--acl", self.arguments.acl, "--out", f"acl{key}.img")
            for name, elements in PASSED.items():
                (self.folder / f"{name}{key}.click").write_text(
                    f"RouteTable(main, FILE routes{key}.img);\n"
                    f"FromMemory(IPv4.pcap, LIMIT {self.arguments.packets}) -> IPInput -> {CLASSIFIED.get(name, 'IPRoute(TABLE main)')} "
                    f"-> DecIPTTL -> {elements} -> ToMemory();\n")
        return digest.hexdigest()

    def rate(self, key, *words):
        """Million packets per second of the run, as it says itself."""
        said = json.loads(self.call(self.programs[key], "run", "-q", "-o", "json", *words, *self.there)[0])
        if not said["conserved"] or said["packets_out"] == 0:
            raise RuntimeError(f"run {' '.join(words)}: packets are missing, or all are dropped")
        if "--repeat" in words or words[0].endswith(".click"):
            # Of a run that ends with its capture the beginning alone would be measured.
            if said["packets_in"] != self.arguments.packets:
                raise RuntimeError(f"run {' '.join(words)}: {said['packets_in']} packets, {self.arguments.packets} were asked for")
        if self.there:
            self.device = said["devices"][0]["name"]
            if said["offload"]["offloaded"] != said["packets_in"]:
                raise RuntimeError(f"run {' '.join(words)}: of {said['packets_in']} packets the device did {said['offload']['offloaded']}")
        return said["packets_in"] / said["seconds"] / 1e6

    def ways(self, key):
        """name -> (the row it is compared with, what gives a value)"""
        repeat = ["--repeat", "--limit", str(self.arguments.packets)]
        routes = ["--routes", f"routes{key}.img"]
        rows = {}

        def played(name, base, kind, *words):
            rows[name] = (base, lambda: self.rate(key, *words, *routes, "--in", kind + ".pcap", *repeat))

        for kind in (*KINDS, *TAGS):
            played(f"routes, {kind}", "routes, IPv4", kind)
        if not self.there:
            played("routes, IPv4, --batch 256", "routes, IPv4", "IPv4", "--batch", "256")
        if self.arguments.acl:
            for kind in ("IPv4", *TAGS):
                played(f"access list and routes, {kind}", "access list and routes, IPv4", kind, "--acl", f"acl{key}.img")
            played("access list and routes, IPv4, --hits", "access list and routes, IPv4", "IPv4", "--acl", f"acl{key}.img", "--hits", "hits.txt")
        for workers in (1, 2, 4, 8, 16):
            if workers > os.cpu_count() or self.there:
                break
            for what, words in (("routes", []), ("access list and routes", ["--acl", f"acl{key}.img"])):
                if words and not self.arguments.acl:
                    continue
                played(f"from memory, {what}, {workers} worker{'s'[:workers - 1]}", f"from memory, {what}, 1 worker", "IPv4", *words,
                       "--workers", str(workers))

        def passed(name, elements):
            rows[name] = ("routes, IPv4", lambda: self.rate(key, f"{elements}{key}.click"))

        passed("routes, IPv4, Police", "police")
        passed("routes, IPv4, Police BY class", "classes")
        passed("routes, IPv4, Shape", "shape")
        if self.there:
            return rows
        played("routes, IPv4, --priorities", "routes, IPv4, --batch 256", "IPv4", "--priorities")
        played("routes, IPv4, --qos that counts", "routes, IPv4", "IPv4", "--qos", "all.qos")
        played("routes, IPv4, --control idle", "routes, IPv4", "IPv4", "--control", "control.sock")
        if not key:
            passed("routes, IPv4, Queue and Unqueue", "queue")

        def captured():
            used = []
            for name in ("long.pcap", "IPv4.pcap"):
                used.append(self.call(self.programs[key], "run", "-q", *routes, "--in", name, "--out", "out.pcap")[1])
                (self.folder / "out.pcap").unlink()
            return (self.arguments.long - self.arguments.capture) / max(used[0] - used[1], 1e-9) / 1e6

        def unpacked():
            before, bytes_out = time.monotonic(), 0
            unpacker = zlib.decompressobj(31)
            with open(self.folder / "long.pcap.gz", "rb") as packed:
                while block := packed.read(1 << 20):
                    while block:
                        bytes_out += len(unpacker.decompress(block, 1 << 18))
                        block = unpacker.unconsumed_tail
            if not unpacker.eof or bytes_out != (self.folder / "long.pcap").stat().st_size:
                raise RuntimeError("zlib alone: not the capture")
            return self.arguments.long / (time.monotonic() - before) / 1e6

        def pipeline():
            said = json.loads(self.call(self.programs[key], "bench", "pipeline", "-q", "-o", "json", "--count", "10", "--seed",
                                        str(self.arguments.seed), "--routes", self.arguments.routes)[0])
            return next(row["median"] for row in said["results"] if row["case"] == "routes/64B/x1")

        if not key:
            rows["bench pipeline, routes"] = (None, pipeline)
            played("memory port, routes, packets of bench pipeline", "bench pipeline, routes", "pipeline")
        rows["capture to capture, IPv4"] = (None, captured)
        if not key:
            rows["zlib alone"] = (None, unpacked)
            rows["gzip capture, routes, IPv4"] = ("zlib alone", lambda: self.rate(key, *routes, "--in", "long.pcap.gz"))
            four = ["--in", "long.pcap"] * 4
            for workers in (1, 2, 4):
                rows[f"four captures, IPv4, {workers} worker{'s'[:workers - 1]}"] = (
                    "four captures, IPv4, 1 worker", lambda w=workers: self.rate(key, *routes, *four, "--workers", str(w)))
        return rows

    def measure(self):
        ways = {key: self.ways(key) for key in self.programs}
        end = time.monotonic() + self.arguments.seconds
        for repetition in range(self.arguments.rounds):
            if time.monotonic() > end:
                break
            for name in ways[""]:
                if self.arguments.only and self.arguments.only not in name:
                    continue
                for key in rounds.in_turns(ways, repetition):
                    if name not in ways[key]:
                        continue
                    self.values.setdefault((name, key), []).append(ways[key][name][1]())
        results = []
        revision = self.about(self.arguments.peer)["revision"] if self.arguments.peer else None
        for (name, key), values in self.values.items():
            if key:
                continue
            row = rounds.row(name, "Mpackets/s", values)
            base = ways[key][name][0]
            if base and base != name and (base, key) in self.values:
                row["of_plain"] = rounds.ratio(values, self.values[base, key])
            if theirs := self.values.get((name, "peer")):
                row |= rounds.peer(values, theirs, revision)
            results.append(row)
        return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/cpu/sluice", help="the program")
    parser.add_argument("--peer", help="another build of it, measured in turns")
    parser.add_argument("--acl", help="access list")
    parser.add_argument("--routes", required=True, help="route files, comma-separated")
    parser.add_argument("--device", default="cpu", help="of runs from memory; others are left out then")
    parser.add_argument("--workers", type=int, default=2, help="with --device")
    parser.add_argument("--batch", type=int, default=8192, help="with --device")
    parser.add_argument("--rounds", type=int, default=15, help="of all rows, one after the other")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after so long")
    parser.add_argument("--packets", type=int, default=20_000_000, help="of a run that is played from memory")
    parser.add_argument("--capture", type=int, default=200_000, help="packets of the captures that are played")
    parser.add_argument("--long", type=int, default=5_000_000, help="packets of the capture that is copied")
    parser.add_argument("--flows", type=int, default=100_000)
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="run_ways")
    arguments = parser.parse_args()
    for name in ("sluice", "peer", "acl"):
        if getattr(arguments, name):
            setattr(arguments, name, str(pathlib.Path(getattr(arguments, name)).resolve()))
    arguments.routes = ",".join(str(pathlib.Path(one).resolve()) for one in arguments.routes.split(","))
    memory = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="sluice-run-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        try:
            packets = bench.prepare()
            results = bench.measure()
            said = bench.about(arguments.sluice)
        except RuntimeError as error:
            print(f"bench_run: {error}", file=sys.stderr)
            return 1
    if not results:
        print(f"bench_run: no row has '{arguments.only}' in its name", file=sys.stderr)
        return 2
    words = ["scripts/bench_run.py"]
    for option in ("acl", "routes", "rounds", "packets", "only"):
        if value := getattr(arguments, option):
            words += [f"--{option}", ",".join(pathlib.Path(one).name for one in value.split(",")) if option in ("acl", "routes") else str(value)]
    if bench.there:
        words += bench.there
    document = {
        "schema": 1, "name": arguments.name, "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(words), "machine": said["machine"], "git": said["revision"], "seed": arguments.seed,
        "input_hash": f"sha256:{packets}", "checked": "every packet of every run left or was dropped with a reason", "device": bench.device}
    document["results"] = results
    print(json.dumps(document, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
