#!/usr/bin/python3
"""Clocks per packet of access lists in VPP: its acl-plugin, this plug-in by the CPU, and by a device.

    VPP_SOURCE=... VPP_BUILD=... SLUICE_VPP_PLUGIN=... integrations/vpp/bench.py --lists acl1_1k,acl1_10k > vpp_acl.json
    scripts/measure.py --only vpp_acl --data DIR        # with the same variables: stores it

One VPP per case and column, with one thread and the packet generator's frames of 256; clocks per packet are those of
`show runtime`, of the node (with a device: of both nodes). The acl-plugin and the CPU take turns, window by window; a
window is some passes over the packets, and the median is over windows, of which a busy machine prolongs some. Before
anything is timed the counters of rules are compared with what a linear search says of the packets. It ends with 77
where there is no VPP, and refuses one that is not built for release.

Cases: `none/N`: no rule of N matches; `first/N`, `last/N`: the first, the last one does; `prefixes/K`: 1,024 rules of K
pairs of prefix lengths; then the lists. Packets of lists: a rule at random, then any packet of it, each anew; none
follows another of its flow."""
import argparse
import contextlib
import datetime
import hashlib
import ipaddress
import json
import lzma
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "tests"))
sys.path.insert(0, str(HERE.parent.parent / "scripts"))
import result_schema  # noqa: E402
import vpp_process  # noqa: E402

PASSES = 8  # over the packets, a window
TAKE_S = 150  # for the acl-plugin to take a list

MAC = bytes.fromhex("02fe00000001"), bytes.fromhex("020000000099")


class Rule:
    """A ClassBench rule of IPv4: prefixes as (address, length), ranges as (low, high), pairs of value and mask."""

    def __init__(self, src, dst, sport=(0, 65535), dport=(0, 65535), protocol=(6, 255), flags=(0, 0)):
        self.src, self.dst, self.sport, self.dport, self.protocol, self.flags = src, dst, sport, dport, protocol, flags

    @staticmethod
    def read(line):
        words = line.lstrip("@").split()
        prefix = lambda w: (int(ipaddress.ip_address(w.split("/")[0])), int(w.split("/")[1]))  # noqa: E731
        pair = lambda w: tuple(int(x, 16) for x in w.split("/"))  # noqa: E731
        return Rule(prefix(words[0]), prefix(words[1]), (int(words[2]), int(words[4])), (int(words[5]), int(words[7])),
                    pair(words[8]), pair(words[9]) if len(words) > 9 else (0, 0))

    def matches(self, key):
        src, dst, protocol, sport, dport, flags = key
        inside = lambda a, p: p[1] == 0 or (a ^ p[0]) >> (32 - p[1]) == 0  # noqa: E731
        return (inside(src, self.src) and inside(dst, self.dst) and self.sport[0] <= sport <= self.sport[1]
                and self.dport[0] <= dport <= self.dport[1] and (protocol ^ self.protocol[0]) & self.protocol[1] == 0
                and (flags << 8 ^ self.flags[0]) & self.flags[1] == 0)

    def key(self, rng):
        """A packet that it matches, as far as TCP and UDP go."""
        def host(prefix):
            # Multicast and 0.0.0.0/8 do not reach the feature arc of unicast, as far as the prefix leaves a choice.
            for _ in range(100):
                address = prefix[0] | rng.getrandbits(32) & ((1 << (32 - prefix[1])) - 1)
                if 1 <= address >> 24 < 224 and address >> 24 != 127:
                    break
            return address

        protocol = self.protocol[0] if self.protocol[1] else 6
        flags = (self.flags[0] | rng.getrandbits(16) & ~self.flags[1]) >> 8 & 255 if protocol == 6 else 0
        ports = protocol in (6, 17)
        return (host(self.src), host(self.dst), protocol, rng.randint(*self.sport) if ports else 0,
                rng.randint(*self.dport) if ports else 0, flags)

    def classbench(self):
        text = lambda p: f"{ipaddress.ip_address(p[0])}/{p[1]}"  # noqa: E731
        return (f"@{text(self.src)}\t{text(self.dst)}\t{self.sport[0]} : {self.sport[1]}\t{self.dport[0]} : {self.dport[1]}\t"
                f"0x{self.protocol[0]:02x}/0x{self.protocol[1]:02x}\t0x{self.flags[0]:04x}/0x{self.flags[1]:04x}")

    def vpp(self):
        text = lambda p: f"{ipaddress.ip_address(p[0])}/{p[1]}"  # noqa: E731
        out = f"permit src {text(self.src)} dst {text(self.dst)}"
        if self.protocol[1]:
            out += f" proto {self.protocol[0]}"
            if self.protocol[0] in (6, 17):
                out += f" sport {self.sport[0]}-{self.sport[1]} dport {self.dport[0]}-{self.dport[1]}"
            if self.protocol[0] == 6 and self.flags[1] >> 8:
                out += f" tcpflags {self.flags[0] >> 8} mask {self.flags[1] >> 8}"
        return out


def frame(key):
    src, dst, protocol, sport, dport, flags = key
    l4 = {6: lambda: struct.pack("!HHIIBBHHH", sport, dport, 1, 1, 0x50, flags, 1024, 0, 0),
          17: lambda: struct.pack("!HHHH", sport, dport, 26, 0)}.get(protocol, lambda: bytes(8))()
    l4 = l4.ljust(26, b"\0")
    header = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(l4), 0, 0, 64, protocol, 0, src, dst)
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xffff) + (total >> 16)
    total = ~((total & 0xffff) + (total >> 16)) & 0xffff
    return MAC[0] + MAC[1] + b"\x08\x00" + header[:10] + struct.pack("!H", total) + header[12:] + l4


def write_capture(path, keys):
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for key in keys:
            data = frame(key)
            f.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)


def counted(n, rng):
    """N rules of one pair of lengths, and those that match none."""
    rules = [Rule((0x0a000000 | i << 8, 24), (0xc0a80000 | rng.getrandbits(8), 32), dport=(80, 80)) for i in range(n)]
    return rules, Rule((0x0b000000, 8), (0xc0a80000, 16), dport=(80, 80))


def prefixes(k, rng):
    lengths = [(8 + i % 7 * 4, 12 + i // 7 * 8) for i in range(k)]
    rules = []
    for i in range(1024):
        s, d = lengths[i % k]
        cut = lambda a, l: a >> (32 - l) << (32 - l)  # noqa: E731
        rules.append(Rule((cut(rng.getrandbits(32), s), s), (cut(rng.getrandbits(32), d), d), dport=(80, 80)))
    return rules


def drawn(rules, packets, rng):
    """Packets of rules that are drawn, unicast ones."""
    unicast = lambda a: 1 <= a >> 24 < 224 and a >> 24 != 127  # noqa: E731
    keys = []
    while len(keys) < packets:
        key = rng.choice(rules).key(rng)
        if unicast(key[0]) and unicast(key[1]):
            keys.append(key)
    return keys


def cases(lists, seed, packets):
    """(name, rules, keys): each case's rules and packets."""
    rng = random.Random(seed)
    for n in (1, 16, 128, 1024):
        rules, other = counted(n, rng)
        yield f"none/{n}", rules, [other.key(rng) for _ in range(packets)]
        yield f"first/{n}", rules, [rules[0].key(rng) for _ in range(packets)]
        yield f"last/{n}", rules, [rules[-1].key(rng) for _ in range(packets)]
    for k in (1, 7, 21):
        rules = prefixes(k, rng)
        yield f"prefixes/{k}", rules, drawn(rules, packets, rng)
    for path in map(pathlib.Path, lists):
        text = lzma.open(path, "rt").read() if path.suffix == ".xz" else path.read_text()
        rules = [Rule.read(line) for line in text.splitlines() if line.startswith("@")]
        if not rules:
            sys.exit(f"error: {path} has no ClassBench rules")
        yield path.stem if path.suffix == ".xz" else path.name, rules, drawn(rules, packets, rng)


def first_match(rules, key):
    return next((i for i, rule in enumerate(rules, 1) if rule.matches(key)), 0)


class NotMeasured(Exception):
    """Why a column has no figures, as a sentence."""


class Bench(vpp_process.Vpp):
    """A VPP whose packet generator has the packets of a case, and what `column` looks them up by."""

    def __init__(self, column, rules, keys):
        super().__init__(plugins=("acl",) if column == "acl-plugin" else ("sluice",), heap="4G")
        self.column, self.rules, self.keys = column, rules, keys
        self.nodes, self.checked = [], 0

    def start(self):
        self.cli("create packet-generator interface pg0")
        self.do("set interface mac address pg0 02:fe:00:00:00:01", "set interface state pg0 up",
                "set interface ip address pg0 172.16.0.1/24", "ip route add 0.0.0.0/0 via drop")
        write_capture(self.folder / "in.pcap", self.keys)
        self.do(f"packet-generator new pcap {self.folder}/in.pcap source pg0 name s limit {PASSES * len(self.keys)}")
        if self.column == "acl-plugin":
            self.take_by_acl_plugin()
            self.nodes = ["acl-plugin-in-ip4-fa"]
            return
        path = self.folder / "rules"
        path.write_text("\n".join(rule.classbench() for rule in self.rules) + "\n")
        self.do(f"gpu-classify file {path} format classbench", "gpu-classify enable pg0")
        self.checked = check(self, self.rules, self.keys)
        self.nodes = ["sluice-classify-ip4"]
        if self.column != "cpu":
            self.do(f"gpu-classify device {self.column} mode persistent")
            self.nodes.append("sluice-classify-poll")

    def take_by_acl_plugin(self):
        script = self.folder / "acl"
        script.write_text("set acl-plugin acl " + ", ".join(rule.vpp() for rule in self.rules) + "\n")
        try:
            self.cli(f"exec {script}", TAKE_S)
            if "acl-index 0" not in self.cli("show acl-plugin acl index 0")[:200]:
                raise NotMeasured("the acl-plugin has not taken the list")
            self.cli("set acl-plugin interface pg0 input acl 0", TAKE_S)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"the acl-plugin has not taken the list within {TAKE_S} s") from None
        if not self.lives():
            raise NotMeasured("VPP has ended when the acl-plugin took the list")

    def lives(self):
        return "vpp v" in self.cli("show version") and self.process.poll() is None

    def window(self):
        """Clocks per packet of the nodes."""
        packets = PASSES * len(self.keys)
        self.cli("clear runtime")
        self.cli("packet-generator enable-stream")
        self.wait(lambda: self.runtime(self.nodes[0])[1] >= packets, f"{packets} packets through {self.nodes[0]}")
        if len(self.nodes) > 1:
            self.wait(lambda: " 0 waiting" in self.cli("show gpu-classify device"), "the device has answered")
        clocks = 0
        for node in self.nodes:
            _, vectors, per_packet = self.runtime(node)
            clocks += vectors * per_packet
        return clocks / packets

    def note(self):
        if self.column == "acl-plugin":
            return ""
        about = re.search(r"algorithm (\w+), (\d+) tables", self.cli("show gpu-classify"))
        note = f"{about[1]}, {about[2]} tables"
        stages = {}
        for line in self.cli("show gpu-classify latency").splitlines():
            words = re.split(r"  +", line.strip())
            if len(words) > 3 and words[0] != "stage" and words[1] != "0":
                stages[words[0]] = words[2:4]
        if self.column != "cpu":
            if "device" not in stages:
                raise NotMeasured("the device has answered no frame")
            note += f"; device p50 {stages['device'][0]} us, p99 {stages['device'][1]} us"
        else:
            note += "; p50 per frame: " + ", ".join(f"{name} {time[0]} us" for name, time in stages.items())
        return note


def check(vpp, rules, keys):
    """Compares the counters of rules with a linear search over the first 500 packets. Returns how many were equal."""
    some = keys[:500]
    write_capture(vpp.folder / "check.pcap", some)
    vpp.do(f"packet-generator new pcap {vpp.folder}/check.pcap source pg0 name check limit {len(some)}")
    vpp.cli("packet-generator disable-stream s")
    vpp.cli("packet-generator enable-stream check")
    counters = {}

    def counters_now():
        counters.clear()
        for line in vpp.cli("show gpu-classify rules").splitlines()[1:]:
            words = line.split()
            if words and words[1] != "0":
                counters[0 if words[0] == "none" else int(words[0])] = int(words[1])
        return sum(counters.values()) >= len(some)

    vpp.wait(counters_now, "all packets are counted")
    want = {}
    for key in some:
        position = first_match(rules, key)
        want[position] = want.get(position, 0) + 1
    if counters != want:
        raise SystemExit("error: rules have counted other packets than a linear search finds; nothing is reported")
    vpp.cli("packet-generator delete check")
    return len(some)


def measure(columns, rules, keys, windows):
    """{column: (samples, checked, note)} of columns that take turns; samples None: nothing was measured, and why."""
    found, running = {}, {}
    with contextlib.ExitStack() as stack:
        for column in columns:
            try:
                with contextlib.ExitStack() as alone:
                    vpp = alone.enter_context(Bench(column, rules, keys))
                    vpp.start()
                    vpp.window()
                    stack.push(alone.pop_all())
                running[column] = vpp, []
            except NotMeasured as why:
                found[column] = None, 0, str(why)
        for _ in range(windows):
            for vpp, samples in running.values():
                samples.append(vpp.window())
        for column, (vpp, samples) in running.items():
            try:
                found[column] = samples, vpp.checked, vpp.note()
            except NotMeasured as why:
                found[column] = None, vpp.checked, str(why)
    return found


def vpp_built():
    """(version, revision) of the VPP that is measured. Ends the program where it is not built for release."""
    source, build, _ = vpp_process.find()
    cache = build / "CMakeCache.txt"
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(\w*)", cache.read_text(), re.M) if cache.is_file() else None
    if kind is None or kind[1].lower() != "release":
        sys.exit(f"error: VPP_BUILD={build} is a build of type '{kind[1] if kind else ''}', whose clocks say nothing: configure it with "
                 "-DCMAKE_BUILD_TYPE=release")
    with vpp_process.Vpp(plugins=()) as vpp:
        version = re.search(r"vpp v(\S+)", vpp.cli("show version"))
    head = subprocess.run(["git", "-C", source, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True).stdout.strip()
    return (version[1] if version else "of unknown version"), head or "unknown"


def revision(sluice):
    if sluice is None:
        return result_schema.git_revision()
    said = subprocess.run([sluice, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\b[0-9a-f]{7}(-dirty)?\b", said)
    return found[0] if found else "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", default="", help="files of ClassBench rules, with commas")
    parser.add_argument("--sluice", help="the program of the build that libsluice is of, for the revision")
    parser.add_argument("--columns", default="acl-plugin,cpu,emu", help="acl-plugin, cpu, emu, cuda, cuda:N (default %(default)s)")
    parser.add_argument("--cases", default="", help="regular expression of the cases to run (default all)")
    parser.add_argument("--windows", type=int, default=25, help="windows per case and column (default %(default)s)")
    parser.add_argument("--packets", type=int, default=10240, help="packets per window (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="vpp_acl", help="of the result (default %(default)s)")
    options = parser.parse_args()
    if options.windows < 1 or options.packets < 500:
        parser.error("a window at least, of 500 packets at least")
    try:
        version, vpp_revision = vpp_built()
    except vpp_process.Missing as missing:
        print(missing, file=sys.stderr)
        sys.exit(77)
    results, checked, digest = [], 0, hashlib.sha256()
    columns = options.columns.split(",")
    # A device's threads would take the processor of those who take turns.
    turns = [c for c in columns if c in ("acl-plugin", "cpu")]
    for name, rules, keys in cases([n for n in options.lists.split(",") if n], options.seed, options.packets):
        if not re.search(options.cases, name):
            continue
        for key in keys:
            digest.update(frame(key))
        begin = time.monotonic()
        found = {}
        for group in ([turns] if turns else []) + [[c] for c in columns if c not in turns]:
            found |= measure(group, rules, keys, options.windows)
        peer = None
        for column in columns:
            samples, equal, note = found[column]
            checked += equal
            row = {"case": f"{name}/{column}"}
            if samples is None:
                row["reason"] = note
            else:
                row.update(unit="clocks/packet", median=round(statistics.median(samples), 1), min=round(min(samples), 1),
                           max=round(max(samples), 1), n=len(samples), rules=len(rules))
                if column == "acl-plugin":
                    peer = row["median"]
                elif peer is not None:
                    row.update(peer="acl-plugin", peer_median=peer, of_peer=round(row["median"] / peer, 3))
                if note:
                    row["note"] = note
            results.append(row)
            print(f"{row}", file=sys.stderr)
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if not results:
        sys.exit(f"error: no case matches '{options.cases}'")
    machine = result_schema.machine("clang")
    machine["compiler"] += f", VPP {version} ({vpp_revision}) built for release"
    if not any("cuda" in column for column in options.columns.split(",")):
        machine.update(gpu=None, driver=None)
    document = {"schema": 1, "name": options.name,
                "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "command": f"bench.py --lists {options.lists} --columns {options.columns} --windows {options.windows} "
                           f"--packets {options.packets} --seed {options.seed}",
                "machine": machine, "git": revision(options.sluice), "seed": options.seed,
                "input_hash": f"sha256:{digest.hexdigest()[:13]}",
                "checked": f"{checked} of {checked} packets counted by the rule that a linear search finds",
                "results": results}
    problems = result_schema.problems_of(document, options.name)
    if problems:
        sys.exit("error: " + "; ".join(problems))
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
