#!/usr/bin/python3
"""Clocks per packet of access lists in VPP: its acl-plugin, this plug-in by the CPU, and by a device.

    VPP_SOURCE=... VPP_BUILD=... SLUICE_VPP_PLUGIN=... integrations/vpp/bench.py --lists acl1_1k,acl1_10k > vpp_acl.json
    scripts/measure.py --only vpp_acl --data DIR        # with the same variables: stores it
    sluice-bench suite --vpp build/vpp --only frame-latency -o report    # runs build/vpp/vpp_bench, which is this with all set

One VPP per case and column, with one thread and the packet generator's frames of 256; clocks per packet are those of
`show runtime`, of the node (with a device: of both nodes). The acl-plugin and the CPU take turns, window by window; a
window is some passes over the packets, and the median is over windows, of which a busy machine prolongs some. Before
anything is timed the counters of rules, the plug-in's and the acl-plugin's, are compared with what a linear search says
of the packets. A window in which a frame had other than 256 packets is refused. It ends with 77 where there is no VPP or
none that takes the plug-in, and with 5 where a check fails.

Rules of lists are taken as far as the acl-plugin can say them: without ports where the protocol is neither TCP nor UDP,
and without flags where it is not TCP.

Cases: `none/N`: no rule of N matches; `first/N`, `last/N`: the first, the last one does; `prefixes/K`: 1,024 rules of K
pairs of prefix lengths; then the lists. Packets of lists: a rule at random, then any packet of it, each anew; none
follows another of its flow.

With `-o json` it prints a report as `sluice-bench` does, and errors as an object on stderr; it ends with 4 in place of
77. Rows are named as those of `sluice-bench latency`, and have the time of the node per frame."""
import argparse
import contextlib
import datetime
import hashlib
import io
import ipaddress
import json
import lzma
import pathlib
import random
import re
import signal
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
FRAME = 256  # packets
COMPARED = 10_000_000  # rules and packets that a linear search looks at, of a case
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
        rule = Rule(prefix(words[0]), prefix(words[1]), (int(words[2]), int(words[4])), (int(words[5]), int(words[7])),
                    pair(words[8]), pair(words[9]) if len(words) > 9 else (0, 0))
        if rule.protocol[1] not in (0, 255):
            raise Failed(f"'{line}' is of several protocols, and the acl-plugin takes one or all")
        # What the acl-plugin cannot say is no part of the rule for anybody: ports of other protocols than TCP and UDP, and
        # flags of others than TCP, which lists have as well (the types of ICMP messages, in other formats).
        protocol = rule.protocol[0] if rule.protocol[1] else 0
        if protocol not in (6, 17):
            rule.sport = rule.dport = (0, 65535)
        if protocol != 6:
            rule.flags = (0, 0)
        return rule

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


def names_of(options):
    """The names of the cases that are wanted."""
    names = [f"{match}/{n}" for n in options.rules for match in ("none", "first", "last")]
    names += [f"prefixes/{k}" for k in options.masks]
    for path in map(pathlib.Path, options.lists):
        names.append(path.stem if path.suffix == ".xz" else path.name)
    return [name for name in names if re.search(options.cases, name)]


def make(name, options):
    """The rules and packets of a case: the same whichever other cases are measured."""
    rng = random.Random(f"{options.seed} {name}")
    kind, _, count = name.partition("/")
    if kind == "prefixes":
        rules = prefixes(int(count), rng)
    elif kind in ("none", "first", "last"):
        rules, other = counted(int(count), rng)
        of = {"none": other, "first": rules[0], "last": rules[-1]}[kind]
        return rules, [of.key(rng) for _ in range(options.packets)]
    else:
        path = next(p for p in map(pathlib.Path, options.lists) if name in (p.name, p.stem))
        text = lzma.open(path, "rt").read() if path.suffix == ".xz" else path.read_text()
        rules = [Rule.read(line) for line in text.splitlines() if line.startswith("@")]
        if not rules:
            raise Failed(f"{path} has no ClassBench rules")
    return rules, drawn(rules, options.packets, rng)


def row_name(name):
    """As `sluice-bench latency` names the same."""
    kind, _, count = name.partition("/")
    if kind == "prefixes":
        return f"1024 rules, {count} mask{'' if count == '1' else 's'}, all"
    matches = {"none": "no match", "first": "first", "last": "last"}
    return f"{count} rules, 1 mask, {matches[kind]}" if kind in matches else name


def matches_of(rules, keys):
    """{position, 0 for none: packets} of the first rules that match, one rule after another."""
    def prefix(p):
        mask = (1 << 32) - (1 << (32 - p[1]))
        return mask, p[0] & mask

    flat = [(i, *prefix(r.src), *prefix(r.dst), *r.sport, *r.dport, r.protocol[1], r.protocol[0] & r.protocol[1], r.flags[1],
             r.flags[0] & r.flags[1]) for i, r in enumerate(rules, 1)]
    found = {}
    for src, dst, protocol, sport, dport, flags in keys:
        position, flags = 0, flags << 8
        for i, src_mask, src_is, dst_mask, dst_is, s0, s1, d0, d1, protocol_mask, protocol_is, flags_mask, flags_are in flat:
            if (src & src_mask == src_is and dst & dst_mask == dst_is and s0 <= sport <= s1 and d0 <= dport <= d1
                    and protocol & protocol_mask == protocol_is and flags & flags_mask == flags_are):
                position = i
                break
        found[position] = found.get(position, 0) + 1
    return found


class NotMeasured(Exception):
    """Why a column has no figures, as a sentence."""


class Failed(Exception):
    """Why nothing is measured, as a sentence: what is asked for cannot be."""


class Refused(Exception):
    """What is wrong with answers or figures, as a sentence."""


class Bench(vpp_process.Vpp):
    """A VPP whose packet generator has the packets of a case, and what `column` looks them up by."""

    def __init__(self, column, rules, keys, expected):
        super().__init__(plugins=("acl",) if column == "acl-plugin" else ("sluice",), heap="4G")
        self.column, self.rules, self.keys, self.expected = column, rules, keys, expected
        self.nodes, self.checked = [], 0

    def start(self):
        self.cli("create packet-generator interface pg0")
        self.do("set interface mac address pg0 02:fe:00:00:00:01", "set interface state pg0 up",
                "set interface ip address pg0 172.16.0.1/24", "ip route add 0.0.0.0/0 via drop")
        write_capture(self.folder / "in.pcap", self.keys)
        self.do(f"packet-generator new pcap {self.folder}/in.pcap source pg0 name s limit {PASSES * len(self.keys)}")
        self.clocks_per_second = float(re.search(r"clocks/sec ([0-9.]+)", self.cli("show clock verbose"))[1])
        if self.column == "acl-plugin":
            self.take_by_acl_plugin()
            self.nodes = ["acl-plugin-in-ip4-fa"]
            self.api().acl_stats_intf_counters_enable(enable=True)
            self.check()
            # They are no part of what is timed: by default it counts no rules.
            self.api().acl_stats_intf_counters_enable(enable=False)
            return
        path = self.folder / "rules"
        path.write_text("\n".join(rule.classbench() for rule in self.rules) + "\n")
        self.do(f"gpu-classify file {path} format classbench", "gpu-classify enable pg0")
        self.nodes = ["sluice-classify-ip4"]
        self.check()
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

    def counters(self):
        """{position: packets} since the list was taken; `check` knows how many packets there are in all."""
        if self.column == "acl-plugin":
            per_thread = self.statistics("/acl/0/matches")
            counts = {i + 1: sum(thread[i][0] for thread in per_thread) for i in range(len(self.rules))}
        else:
            counts = {}
            for line in self.cli("show gpu-classify rules").splitlines()[1:]:
                words = line.split()
                if words and words[0] != "none":
                    counts[int(words[0])] = int(words[1])
        return {position: count for position, count in counts.items() if count != 0}

    def check(self):
        """Compares the counters of rules with a linear search over the first packets."""
        some, want = self.expected
        write_capture(self.folder / "check.pcap", self.keys[:some])
        self.do(f"packet-generator new pcap {self.folder}/check.pcap source pg0 name check limit {some}")
        self.cli("packet-generator disable-stream s")
        self.cli("clear runtime")
        self.cli("packet-generator enable-stream check")
        self.wait(lambda: self.runtime(self.nodes[0])[1] >= some, "all packets are looked up")
        # None may have another rule or no rule: the sum is that of all packets.
        counters, want = self.counters(), {position: count for position, count in want.items() if position != 0}
        if counters != want:
            wrong = sorted(i for i in {*counters, *want} if counters.get(i) != want.get(i))
            raise Refused(f"{self.column}: {len(wrong)} rules have counted other packets than a linear search finds; rule {wrong[0]}: "
                          f"{counters.get(wrong[0], 0)}, not {want.get(wrong[0], 0)}; nothing is reported")
        self.checked = some
        self.cli("packet-generator delete check")

    def lives(self):
        return "vpp v" in self.cli("show version") and self.process.poll() is None

    def window(self):
        """Clocks per packet of the nodes."""
        packets = PASSES * len(self.keys)
        self.cli("clear runtime")
        self.cli("packet-generator enable-stream")
        self.wait(lambda: self.runtime(self.nodes[0])[1] >= packets, f"{packets} packets through {self.nodes[0]}")
        calls, vectors, _ = self.runtime(self.nodes[0])
        if vectors != packets or calls * FRAME != packets:
            raise Refused(f"{self.nodes[0]} had {vectors:.0f} packets in {calls:.0f} frames, not {packets} in frames of {FRAME}")
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


class Found:
    """What a column gave: clocks per packet, a window each; none: nothing was measured, and `note` says why."""

    def __init__(self, samples=(), checked=0, note="", clocks_per_second=0.0):
        self.samples, self.checked, self.note, self.clocks_per_second = list(samples), checked, note, clocks_per_second

    def us_per_frame(self):
        return [clocks * FRAME / self.clocks_per_second * 1e6 for clocks in self.samples]


def measure(columns, rules, keys, expected, windows):
    """{column: Found} of columns that take turns."""
    found, running = {}, {}
    with contextlib.ExitStack() as stack:
        for column in columns:
            try:
                with contextlib.ExitStack() as alone:
                    vpp = alone.enter_context(Bench(column, rules, keys, expected))
                    vpp.start()
                    vpp.window()
                    stack.push(alone.pop_all())
                running[column] = vpp, []
            except NotMeasured as why:
                found[column] = Found(note=str(why))
        for _ in range(windows):
            for vpp, samples in running.values():
                samples.append(vpp.window())
        for column, (vpp, samples) in running.items():
            try:
                found[column] = Found(samples, vpp.checked, vpp.note(), vpp.clocks_per_second)
            except NotMeasured as why:
                found[column] = Found(checked=vpp.checked, note=str(why))
    return found


def vpp_built(columns):
    """(version, revision) of the VPP that is measured, and the revision of libsluice. Raises Missing where the VPP is not
    built for release, or does not take the plug-in."""
    source, build, plugin = vpp_process.find()
    cache = build / "CMakeCache.txt"
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(\w*)", cache.read_text(), re.M) if cache.is_file() else None
    if kind is None or kind[1].lower() != "release":
        raise vpp_process.Missing(f"VPP_BUILD={build} is a build of type '{kind[1] if kind else ''}', whose clocks say nothing: "
                                  "configure it with -DCMAKE_BUILD_TYPE=release")
    wanted = [p for p in ("acl", "sluice") if p == "sluice" or "acl-plugin" in columns]
    with vpp_process.Vpp(plugins=wanted) as vpp:
        version = re.search(r"vpp v(\S+)", vpp.cli("show version"))
        there = vpp.cli("show plugins")
        lacking = [p for p in wanted if f"{p}_plugin.so" not in there]
        if lacking:
            log = vpp.cli("show logging") + (vpp.folder / "output").read_text(errors="replace")
            said = next((line.strip() for line in log.splitlines() if f"{lacking[0]}_plugin.so" in line), "")
            raise vpp_process.Missing(f"this VPP does not load the plug-in {lacking[0]}_plugin.so of {build if lacking[0] == 'acl' else plugin}"
                                      + (f": {said}" if said else ""))
        library = re.search(r"^libsluice \S+ \((\S+)\)", vpp.cli("show gpu-classify"), re.M)
    head = subprocess.run(["git", "-C", source, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True).stdout.strip()
    return (version[1] if version else "of unknown version"), head or "unknown", library[1] if library else "unknown"


def revision_of(sluice):
    said = subprocess.run([sluice, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\b[0-9a-f]{7}(-dirty)?\b", said)
    return found[0] if found else "unknown"


def stored_rows(name, rules, found):
    """As bench/results has them."""
    peer = None
    for column, of in found.items():
        row = {"case": f"{name}/{column}"}
        if not of.samples:
            row["reason"] = of.note
        else:
            row.update(unit="clocks/packet", median=round(statistics.median(of.samples), 1), min=round(min(of.samples), 1),
                       max=round(max(of.samples), 1), n=len(of.samples), rules=rules)
            if column == "acl-plugin":
                peer = row["median"]
            elif peer is not None:
                row.update(peer="acl-plugin", peer_median=peer, of_peer=round(row["median"] / peer, 3))
            if of.note:
                row["note"] = of.note
        yield row


def suite_rows(name, found):
    """As `sluice-bench latency` has them."""
    peer = found.get("acl-plugin")
    for column, of in found.items():
        row = {"case": f"{row_name(name)}, {'sluice' if column == 'cpu' else column}"}
        if not of.samples:
            row["reason"] = of.note
        else:
            values = of.us_per_frame()
            row.update(unit="us", values=values, median=statistics.median(values), min=min(values), max=max(values), n=len(values),
                       mpackets_per_second=FRAME / statistics.median(values), clocks_per_packet=statistics.median(of.samples))
            if column != "acl-plugin" and peer is not None and peer.samples:
                row["acl_plugin_ratio"] = statistics.median(peer.us_per_frame()) / row["median"]
            if of.note:
                # What changes from run to run is no part of a note.
                row["note"] = of.note.split(";")[0]
        yield row


def run(options):
    """The document of what was measured."""
    columns = options.columns.split(",")
    version, vpp_revision, revision = vpp_built(columns)
    if options.sluice and revision_of(options.sluice) != revision:
        raise Failed(f"libsluice in this VPP is of revision {revision}, {options.sluice} of {revision_of(options.sluice)}: build both")
    names = names_of(options)
    if not names:
        raise Failed(f"no case matches '{options.cases}'")
    rows, checked, digest = [], 0, hashlib.sha256()
    # A device's threads would take the processor of those who take turns.
    turns = [c for c in columns if c in ("acl-plugin", "cpu")]
    for name in names:
        rules, keys = make(name, options)
        some = min(len(keys), max(500, COMPARED // len(rules)))
        expected = some, matches_of(rules, keys[:some])
        if options.spoil_check:
            first = next(iter(expected[1]))
            expected[1][first + 1] = expected[1].pop(first)
        for key in keys:
            digest.update(frame(key))
        begin = time.monotonic()
        groups = ([turns] if turns else []) + [[c] for c in columns if c not in turns]
        found = {}
        for group in groups:
            found |= measure(group, rules, keys, expected, options.windows)
        found = {column: found[column] for column in columns}
        checked += sum(of.checked for of in found.values())
        new = list(suite_rows(name, found) if options.output == "json" else stored_rows(name, len(rules), found))
        rows += new
        if not options.quiet:
            for row in new:
                print(f"{row}", file=sys.stderr)
            print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    common = {"schema": 1, "name": options.name, "when": when, "git": revision, "seed": options.seed,
              "input_hash": f"sha256:{digest.hexdigest()[:13]}",
              "checked": f"{checked} of {checked} packets counted by the rule that a linear search finds", "results": rows}
    if options.output == "json":
        for row in rows:
            if row.get("values"):
                row["note"] = f"VPP {version}" + (f", {row['note']}" if "note" in row else "")
        return {**common, "command": " ".join(sys.argv), "verified": {"sample": checked, "oracle": "linear", "mismatches": 0}}
    machine = result_schema.machine("clang")
    machine["compiler"] += f", VPP {version} ({vpp_revision}) built for release"
    if "cuda" not in options.columns:
        machine.update(gpu=None, driver=None)
    document = {**common, "machine": machine,
                "command": f"bench.py --lists {','.join(options.lists)} --columns {options.columns} --windows {options.windows} "
                           f"--packets {options.packets} --seed {options.seed}"}
    problems = result_schema.problems_of(document, options.name)
    if problems:
        raise Failed("; ".join(problems))
    return document


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", type=numbers, default=[1, 16, 128, 1024], help="of none/N, first/N, last/N (default 1,16,128,1024)")
    parser.add_argument("--masks", type=numbers, default=[1, 7, 21], help="of prefixes/K (default 1,7,21)")
    parser.add_argument("--lists", type=lambda text: [n for n in text.split(",") if n], default=[], help="files of ClassBench rules, with commas")
    parser.add_argument("--sluice", help="the program whose revision libsluice has to be of")
    parser.add_argument("--columns", default="acl-plugin,cpu,emu", help="acl-plugin, cpu, emu, cuda, cuda:N (default %(default)s)")
    parser.add_argument("--cases", default="", help="regular expression of the cases to run (default all)")
    parser.add_argument("--windows", type=int, default=25, help="windows per case and column (default %(default)s)")
    parser.add_argument("--packets", type=int, default=10240, help="packets per window (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="vpp_acl", help="of the result (default %(default)s)")
    parser.add_argument("-o", "--output", choices=("stored", "json"), default="stored", help="the form of the result (default %(default)s)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("--spoil-check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.windows < 1 or options.packets < 500 or options.packets % FRAME != 0:
        parser.error(f"a window at least, of 500 packets at least, in frames of {FRAME}")
    if any(not 1 <= n <= 4096 for n in options.rules) or any(not 1 <= k <= 35 for k in options.masks):
        parser.error("rules from 1 to 4096, masks from 1 to 35")
    return options


def interrupted(number, _):
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    if options.output == "json":
        vpp_process.Vpp.diagnostics = io.StringIO()

    def end(code, message):
        print(json.dumps({"error": {"message": message}}) if options.output == "json" else f"error: {message}", file=sys.stderr)
        sys.exit(code)

    try:
        document = run(options)
    except KeyboardInterrupt:
        end(130, "interrupted")
    except Refused as wrong:
        end(5, str(wrong))
    except Failed as wrong:
        end(2, str(wrong))
    except vpp_process.Missing as missing:
        end(4 if options.output == "json" else 77, str(missing))
    except (AssertionError, OSError, subprocess.SubprocessError) as wrong:
        # VPP has ended, does not answer, or answers something else than expected.
        end(4 if options.output == "json" else 1, f"VPP: {wrong}")
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
