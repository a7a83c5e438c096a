#!/usr/bin/env python3
"""Measures `sluice run` between live ports beside the kernel and other forwarders, in turns. Root; network namespaces and veth pairs of its own.

    scripts/bench_live.py --acl acl1_10k --routes rib4.txt > bench_live.json
    scripts/bench_live.py ... --xsk PATH --afp PATH --testpmd dpdk-testpmd       also these, where they are
    scripts/bench_live.py ... --peer build/old/sluice                            the same of another build, interleaved
    scripts/bench_live.py --latency --wire-method af_xdp --xsk PATH > live_latency.json      what a packet waits, and what an idle run takes
    scripts/bench_live.py --flood PATH --acl acl1_10k --routes rib4.txt --xsk PATH --afp PATH > live_overload.json      more than a device can take
    scripts/bench_live.py --try                                                  that all rows work, in short: figures mean nothing

Interfaces: `sluice bench wire` sends by g0 as fast as it goes and receives by s0; the device is a namespace between them (g0 - d0 ... d1 - s0).
A row's value are the packets that came back per second, of "denied" rows those that the device received. "cable" has no device: no row can
have more. The method that a run reports must be the one in the row's name. --xsk and --afp are bare forwarders without tables, called
as `xsk -t SECONDS fwd d0 d1` and `afp_fwd -t SECONDS d0 d1`.

DPDK without a NIC: net_null makes frames and takes them; a ring whose end is its beginning has real ones that go round: the same graph
but for the TTL, which would run out. A value are packets per second of the process's own processor time, both less those of a run with a tenth of
the packets (testpmd: of a shorter time): other load on the machine does not count, its use of the caches does.

--latency: rows in microseconds are the median of a trial from the sender's TX queue to the receiver's RX queue, at --load or at 20 packets a second, where each
finds everybody asleep (but a run that spins); the receiver's waking is part of all. An idle run's share of a core is its processor time in --seconds without packets.

--flood: a generator of several million packets a second, called as `flood -p CORE -i g0 -t SECONDS`, UDP from 10.1.0.1 to 10.2.0.1. It has the first core of
--cores and the device the second; s0 refuses by its MAC what comes, which costs least. Values are packets a second in the middle of the load by the interfaces' own
counters: what s0 received, of rows without forwarding what d0 received less what it dropped. A veth's receiving half (NAPI) runs on the core
of who sends, but in rows of "NAPI and device on a core" and of the kernel, where it is a thread of the device's core; of "all on a core" the generator is there too.
"Real-time" rows are begun by `chrt -f 1`: the run goes before NAPI. Ratios are to rows of the same places. At the end d0's packets must be those that the run received and those that it calls missed or too long, and
the packets that left those that s0 received.
"""
import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import rounds

DUT_MACS = {"d0": "02:00:00:00:00:02", "d1": "02:00:00:00:00:03"}
SINK_MAC = "02:00:00:00:00:04"
# Options that name programs that are no part of this project.
PROGRAMS = ("xsk", "xsk_reads", "afp", "flood", "redirect")
CHECKED = "every packet that a run received left or was dropped with a reason; its ports have the row's method"
AND_IN_OVERLOAD = "; interfaces count as many packets as its report, what it missed included"
FLOOD = {"from": "10.1.0.1", "to": "10.2.0.1"}
DENY = "deny ip from 198.18.0.0/15 to any\npermit ip from any to any\n"


def command(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(w) for w in words)}: exit code {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


@dataclasses.dataclass
class Counted:
    when: float
    packets: int
    dropped: int  # received or not: what d0's ring had no room for is dropped both there and by g0's sending
    refused: int  # of those that it sends, by the other end

    def rate(self, before, room=(0, 0)):
        """Packets a second since then that were received and not dropped, in millions. `room`: what found none before it was received."""
        taken = self.packets - before.packets - (self.dropped - before.dropped - (room[1] - room[0]))
        return taken / (self.when - before.when) / 1e6


class Network:
    """A bench with g0 and s0, and a device with d0 and d1 between them; nobody else sees them. Gone at its end."""

    def __init__(self, queues=None):
        # As many as there are cores, where nothing is said.
        self.queues = ["numtxqueues", str(queues), "numrxqueues", str(queues)] if queues else []
        self.bench, self.device = (f"sluice-{os.getpid()}-{name}" for name in ("bench", "device"))

    def __enter__(self):
        try:
            for name in (self.bench, self.device):
                command("ip", "netns", "add", name)
                self.run(name, "ip", "link", "set", "lo", "up")
                self.run(name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            for near, far in (("g0", "d0"), ("s0", "d1")):
                command("ip", "-n", self.bench, "link", "add", near, *self.queues, "type", "veth", "peer", "name", far, "netns", self.device, *self.queues)
            command("ip", "-n", self.bench, "link", "add", "c0", "type", "veth", "peer", "name", "c1")
            for name, address in DUT_MACS.items():
                command("ip", "-n", self.device, "link", "set", name, "address", address)
            command("ip", "-n", self.bench, "link", "set", "s0", "address", SINK_MAC)
            for where, names in ((self.bench, ("g0", "s0", "c0", "c1")), (self.device, ("d0", "d1"))):
                for name in names:
                    command("ip", "-n", where, "link", "set", name, "up")
            # The kernel's way; off but in its row.
            command("ip", "-n", self.device, "addr", "add", "10.2.0.2/24", "dev", "d1")
            command("ip", "-n", self.device, "neigh", "add", "10.2.0.1", "lladdr", SINK_MAC, "dev", "d1", "nud", "permanent")
            command("ip", "-n", self.device, "route", "add", "default", "via", "10.2.0.1")
            self.forwarding(False)
            self.run(self.device, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.d0.rp_filter=0")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (self.bench, self.device):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)

    def run(self, where, *words):
        return command("ip", "netns", "exec", where, *words)

    def counted(self, where, name):
        """What an interface received and dropped until now, and when that was."""
        begin = time.monotonic()
        said = json.loads(command("ip", "-n", where, "-s", "-j", "link", "show", "dev", name))[0]["stats64"]
        return Counted((begin + time.monotonic()) / 2, said["rx"]["packets"], said["rx"]["dropped"], said["tx"]["dropped"])

    def forwarding(self, on):
        self.run(self.device, "sysctl", "-qw", f"net.ipv4.ip_forward={int(on)}")


class Bench:
    def __init__(self, arguments, folder, network):
        self.arguments, self.folder, self.network = arguments, folder, network
        self.programs = {"": arguments.sluice} | ({"peer": arguments.peer} if arguments.peer else {})
        self.values = {}
        self.peer_revision = None
        if arguments.peer:
            self.peer_revision = json.loads(subprocess.run([arguments.peer, "doctor", "-o", "json"], capture_output=True, text=True).stdout)["revision"]

    def prepare(self):
        a = self.arguments
        for key, program in self.programs.items():
            command(program, "compile", "-q", "--routes", a.routes, "--out", f"routes{key}.img", cwd=self.folder)
            if a.acl:
                command(program, "compile", "-q", "--acl", a.acl, "--out", f"acl{key}.img", cwd=self.folder)
        (self.folder / "deny").write_text(DENY)
        # Every next hop of the routes leads to the sink.
        hops = {line.split()[1] for line in pathlib.Path(a.routes.split(",")[0]).read_text().splitlines() if len(line.split()) > 1}
        (self.folder / "adjacencies").write_text("".join(f"{hop} {SINK_MAC} {DUT_MACS['d1']} 0\n" for hop in sorted(hops)))
        # Fewer than the ring has room for.
        command(a.sluice, "gen", "traffic", "-q", "--packets", "960", "--routes", a.routes, "--mix", "fixed", "--size", "64", "--flows", "960",
                "--zipf", "0", "--seed", a.seed, "--out", "ring.pcap", cwd=self.folder)
        digest = hashlib.sha256((self.folder / "ring.pcap").read_bytes())
        for name in [a.acl, *a.routes.split(",")]:
            if name:
                digest.update(pathlib.Path(name).read_bytes())
        return digest.hexdigest()

    # --- between interfaces ---

    def wire(self, tx="g0", rx="s0", to=DUT_MACS["d0"], nothing_back=False, more=()):
        """The only trial of a measurement."""
        a = self.arguments
        words = ["ip", "netns", "exec", self.network.bench, a.sluice, "bench", "wire", "-q", "-o", "json", "--tx", tx, "--rx", rx,
                 "--dst-mac", to, "--routes", a.routes, "--duration", str(a.seconds), "--method", a.wire_method, *more]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120)
        try:
            said = json.loads(done.stdout)
            trial = said["results"][0]["trials"][0]
        except (ValueError, KeyError, IndexError):
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr.strip()}") from None
        # Where the device drops all, nothing comes back; and a load of latencies may be somewhat less than what was asked for.
        short = trial["generator_short"] and trial["asked_pps"] and trial["offered_pps"] > 0.8 * trial["asked_pps"]
        if done.returncode != 0 and not ((nothing_back or short) and done.returncode == 3):
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr.strip()}")
        assert said["tx"]["method"] == said["rx"]["method"] == a.wire_method
        if trial["missed"]:
            print(f"bench_live: {rx} had no room for {trial['missed']} packets: the row is the meter's", file=sys.stderr)
        return trial

    @staticmethod
    def rate(trial):
        return trial["received"] / trial["seconds"] / 1e6

    def cable(self, *more):
        address = json.loads(command("ip", "-n", self.network.bench, "-j", "link", "show", "c1"))[0]["address"]
        return self.wire("c0", "c1", address, more=more)

    def kernel(self, *more):
        self.network.forwarding(True)
        try:
            return self.wire(more=more)
        finally:
            self.network.forwarding(False)

    @contextlib.contextmanager
    def device(self, *words):
        """A program in the device's namespace until SIGINT."""
        process = subprocess.Popen(["ip", "netns", "exec", self.network.device, *[str(w) for w in words]], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.said = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.said = process.communicate()

    def run_device(self, *words):
        return self.network.run(self.network.device, *words)

    def bare(self, program, *words, more=()):
        try:
            with self.device(program, "-t", str(self.arguments.seconds + 3), *words) as process:
                time.sleep(0.7)
                if process.poll() is not None:
                    raise RuntimeError(f"{program} ended before its time")
                return self.wire(more=more)
        finally:
            # Such programs leave theirs attached when they are interrupted.
            self.run_device("ip", "link", "set", "d0", "xdp", "off")

    @contextlib.contextmanager
    def running(self, key, method, *options, before=()):
        """A run from d0 to d1, as long as this lasts; afterwards its report is the process's `report`."""
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        words = [*before, self.programs[key], "run", "-q", "-o", "json", *options, "--in", f"{method}:d0", "--out", f"{method}:d1", "--ready-file", "ready"]
        with self.device(*words) as process:
            end = time.monotonic() + 30
            while not ready.exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            if not ready.exists():
                process.kill()
                raise RuntimeError(f"{' '.join(words)}: {process.communicate()[1].strip()}")
            yield process
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit code {process.returncode}\n{process.said[1].strip()}")
        process.report = json.loads(process.said[0])
        for port in process.report["ports"]:
            if port["method"] != method:
                raise RuntimeError(f"{port['name']} was opened by {port['method']} and not by {method}")
        if not process.report["conserved"]:
            raise RuntimeError(f"{' '.join(words)}: packets are missing")

    def sluice(self, key, method, *options, denied=False, more=()):
        with self.running(key, method, *options) as process:
            trial = self.wire(nothing_back=denied, more=more)
        if denied:
            said = process.report
            if said["drops"].get("acl-deny") != said["packets_in"]:
                raise RuntimeError(f"not all were denied: {said['drops']}")
            trial["received"] = said["packets_in"]
        return trial

    # --- latency, idleness ---

    @staticmethod
    def delay(trial):
        """The median in microseconds, and what one of a thousand packets takes at least."""
        if trial["lost"]:
            print(f"bench_live: {trial['lost']} packets of {trial['sent']} were lost: their latency is not known", file=sys.stderr)
        return trial["latency_ns"]["p50"] / 1e3, trial["latency_ns"]["p99_9"] / 1e3

    def idle(self, key, method, *options):
        """Percent of a core."""
        def used(process):
            return sum(int(pathlib.Path(path).read_text().split()[0]) for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/schedstat"))

        with self.running(key, method, *options) as process:
            time.sleep(0.2)
            begin, before = time.monotonic_ns(), used(process)
            time.sleep(self.arguments.seconds)
            share = 100 * (used(process) - before) / (time.monotonic_ns() - begin)
        return share

    def latency_rows(self, key):
        a = self.arguments
        routes = ["--routes", f"routes{key}.img", "--adjacencies", "adjacencies"]
        load, rare = ("--rate", a.load, "--latency"), ("--rate", "20pps", "--latency")
        rows = {}
        if not key:
            for name, more in ((f"at {a.load}", load), ("after idleness", rare)):
                rows[f"cable, {name}"] = lambda m=more: self.delay(self.cable(*m))
                rows[f"kernel forwarding, no rules, {name}"] = lambda m=more: self.delay(self.kernel(*m))
                if a.xsk:
                    rows[f"bare forwarder, af_xdp, {name}"] = lambda m=more: self.delay(self.bare(a.xsk, "-P", "fwd", "d0", "d1", more=m))
        for method in ("af_xdp", "af_packet"):
            rows[f"run, {method}, at {a.load}"] = lambda m=method: self.delay(self.sluice(key, m, *routes, more=load))
            for poll in ("adaptive", "spin"):
                rows[f"run, {method}, {poll}, after idleness"] = lambda m=method, p=poll: self.delay(self.sluice(key, m, *routes, "--poll", p, more=rare))
            rows[f"idle run, {method}"] = lambda m=method: self.idle(key, m, *routes)
        return {name: value for name, value in rows.items() if a.only in name}

    # --- DPDK ---

    def timed(self, seconds, *words):
        """stdout and processor time of a program that is ended after a while, where it does not end before."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen([str(w) for w in words], cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(str(w) for w in words)}: exit code {process.returncode}\n{err.strip()}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    @staticmethod
    def twice(once, short, long):
        """Million packets per second of processor time: of a long run less a short one."""
        (few, little), (many, much) = once(short), once(long)
        if many <= few or much <= little:
            raise RuntimeError(f"{many} packets in {much:.2f} s and {few} in {little:.2f} s: too short to tell")
        return (many - few) / (much - little) / 1e6

    def graph(self, key, text):
        (self.folder / "graph.click").write_text(text)

        def once(packets):
            out, used = self.timed(120, self.programs[key], "run", "graph.click", "--limit", packets, "-q", "-o", "json")
            said = json.loads(out)
            if said["packets_in"] < packets:
                raise RuntimeError(f"{said['packets_in']} packets of {packets} in 120 s")
            if any(port["method"] != "dpdk" for port in said["ports"]) or not said["conserved"]:
                raise RuntimeError("a run by another method, or packets are missing")
            if said["packets_out"] < 0.99 * said["packets_in"]:
                raise RuntimeError(f"not all packets leave: {said['drops']}")
            return said["packets_in"], used

        return self.twice(once, self.arguments.packets // 10, self.arguments.packets)

    def ring(self, key, *steps):
        tables = f"RouteTable(fib, FILE routes{key}.img);\nAdjacencyTable(adj, ROUTES fib);\n"
        if self.arguments.acl:
            tables += f"AclTable(acl, FILE acl{key}.img);\n"
        way = "".join(f"{step} -> " for step in steps)
        return self.graph(key, f"{tables}FromDump(ring.pcap) -> ToDPDKDevice(net_ring0);\nFromDPDKDevice(net_ring0) -> {way}ToDPDKDevice(net_ring0);\n")

    def two_rings(self, key, *steps):
        """Million packets a second by the clock: from one ring to the other and back, each by a worker of its own. A packet counts at each."""
        way = "".join(f"{step} -> " for step in steps)
        (self.folder / "two.click").write_text(
            f"RouteTable(fib, FILE routes{key}.img);\nAdjacencyTable(adj, ROUTES fib);\nFromDump(ring.pcap) -> ToDPDKDevice(net_ring0);\n" +
            "".join(f"FromDPDKDevice(net_ring{one}) -> {way}ToDPDKDevice(net_ring{1 - one});\n" for one in (0, 1)))

        def once(packets):
            out, _ = self.timed(120, self.programs[key], "run", "two.click", "--workers", 2, "--limit", packets, "-q", "-o", "json")
            said = json.loads(out)
            if any(port["method"] != "dpdk" for port in said["ports"]) or not said["conserved"] or said["workers"] != 2:
                raise RuntimeError("a run by another method or one worker, or packets are missing")
            return said["packets_in"], said["seconds"]

        return self.twice(once, self.arguments.packets // 10, self.arguments.packets)

    def testpmd(self, copy):
        def once(seconds):
            out, used = self.timed(seconds, self.arguments.testpmd, "--no-huge", "-m", "512", "--no-pci", "-l", "0,1", f"--vdev=net_null0,copy={copy}",
                                   f"--vdev=net_null1,copy={copy}", "--file-prefix", f"bench{os.getpid()}", "--", "--forward-mode=io", "--no-lsc-interrupt",
                                   "--total-num-mbufs=16384")
            totals = re.findall(r"RX-total:\s*(\d+)", out)
            if not totals:
                raise RuntimeError(f"testpmd said no totals: {out[-300:]}")
            return int(totals[-1]), used

        return self.twice(once, self.arguments.seconds, 3 * self.arguments.seconds)

    # --- all of it ---

    @staticmethod
    def bases(_):
        """column -> the row that this one is compared with, round by round"""
        return {}

    def rows(self, key):
        a = self.arguments
        routes = ["--routes", f"routes{key}.img", "--adjacencies", "adjacencies"]
        acl = ["--acl", f"acl{key}.img"]
        rows = {}
        if not key:
            rows["cable"] = lambda: self.rate(self.cable())
            rows["kernel forwarding, no rules"] = lambda: self.rate(self.kernel())
            if a.xsk:
                rows["bare forwarder, af_xdp"] = lambda: self.rate(self.bare(a.xsk, "-P", "fwd", "d0", "d1"))
            if a.afp:
                rows["bare forwarder, af_packet"] = lambda: self.rate(self.bare(a.afp, "d0", "d1"))
        for method in ("af_xdp", "af_packet"):
            rows[f"run, {method}, routes"] = lambda m=method: self.rate(self.sluice(key, m, *routes))
            if a.acl:
                rows[f"run, {method}, access list and routes"] = lambda m=method: self.rate(self.sluice(key, m, *acl, *routes))
            rows[f"run, {method}, denied by access list"] = lambda m=method: self.rate(self.sluice(key, m, "--acl", "deny", denied=True))
        if not key and a.testpmd:
            rows["testpmd io, net_null"] = lambda: self.testpmd(0)
            rows["testpmd io, net_null, copy"] = lambda: self.testpmd(1)
        rows["run, net_null to net_null"] = lambda: self.graph(key, 'FromDPDKDevice("net_null0,size=60") -> ToDPDKDevice(net_null1);\n')
        rows["run, net_ring"] = lambda: self.ring(key)
        way = ["IPInput", "IPRoute(TABLE fib)", "AdjacencyRewrite(TABLE adj)"]
        rows["run, net_ring, routes"] = lambda: self.ring(key, *way)
        rows["run, two net_rings, routes, a worker each"] = lambda: self.two_rings(key, *way)
        if a.acl:
            rows["run, net_ring, access list and routes"] = lambda: self.ring(key, way[0], "ACL(TABLE acl)", *way[1:])
        return {name: value for name, value in rows.items() if a.only in name}

    def measure(self):
        rows = {key: (self.latency_rows if self.arguments.latency else self.rows)(key) for key in self.programs}
        for repetition in range(self.arguments.rounds):
            for name in rows[""]:
                for key in rounds.in_turns(rows, repetition):
                    if name in rows[key]:
                        try:
                            self.values.setdefault((name, key), []).append(rows[key][name]())
                            if self.arguments.verbose:
                                print(f"{name} {key}: {self.values[name, key][-1]}", file=sys.stderr)
                        except RuntimeError as error:
                            raise RuntimeError(f"{name}: {error}") from error
        results = []
        for name in rows[""]:
            values = self.values[name, ""]
            more = {}
            if isinstance(values[0], tuple):
                more["p999_us"] = statistics.median(late for _, late in values)
                values = [value for value, _ in values]
            unit = "Mpackets/s" if not self.arguments.latency else "us" if more else "% of a core"
            row = rounds.row(name, unit, values) | more
            for column, base in self.bases(name).items():
                if others := self.values.get((base, "")):
                    row[column] = rounds.ratio(values, others)
            if (theirs := self.values.get((name, "peer"))) and not more:
                row |= rounds.peer(values, theirs, self.peer_revision)
            results.append(row)
        return results


ON_THE_SENDERS, ON_THE_DEVICES, ON_ONE = "", ", NAPI and device on a core", ", all on a core"

# In the device's namespace: GRO of d0 on, so that a veth without an XDP program takes frames of redirects too.
GRO_ON = """
import array, fcntl, socket, struct
value = array.array("B", struct.pack("II", 0x2c, 1))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, struct.pack("16sP", b"d0", value.buffer_info()[0]))
"""


class Overload(Bench):
    """More packets than a device can take."""

    def prepare(self):
        a = self.arguments
        digest = hashlib.sha256()
        for name in [a.acl, *a.routes.split(",")]:
            if name:
                digest.update(pathlib.Path(name).read_bytes())
        hop = next(line.split()[1] for line in pathlib.Path(a.routes.split(",")[0]).read_text().splitlines() if len(line.split()) > 1)
        (self.folder / "sink.txt").write_text(f"{FLOOD['to']}/32 {hop}\n")
        (self.folder / "adjacencies").write_text(f"{hop} {SINK_MAC} {DUT_MACS['d1']} 0\n")
        (self.folder / "deny").write_text(f"deny ip from {FLOOD['from']}/32 to any\npermit ip from any to any\n")
        for key, program in self.programs.items():
            command(program, "compile", "-q", "--routes", f"{a.routes},sink.txt", "--out", f"routes{key}.img", cwd=self.folder)
            if a.acl:
                command(program, "compile", "-q", "--acl", a.acl, "--out", f"acl{key}.img", cwd=self.folder)
        return digest.hexdigest()

    @contextlib.contextmanager
    def fresh(self, place):
        """Interfaces that nothing was done to: a veth keeps its thread."""
        flood, device = self.arguments.cores.split(",")
        self.flood_core, self.device_core = (device if place == ON_ONE else flood), device
        with Network(queues=1) as self.network:
            # s0 has another MAC than what is sent has.
            command("ip", "-n", self.network.bench, "link", "set", "s0", "address", "02:00:00:00:00:05")
            yield

    def napi_with_device(self):
        """d0 receives in a thread of the device's core, as a NIC with its interrupts there would."""
        before = self.napi_threads()
        self.run_device("sh", "-c", "echo 1 > /sys/class/net/d0/threaded")
        threads = self.napi_threads() - before
        if not threads:
            raise RuntimeError("d0 has no thread for NAPI: /sys/class/net/d0/threaded")
        for thread in threads:
            os.sched_setaffinity(thread, {int(self.device_core)})
            os.setpriority(os.PRIO_PROCESS, thread, -10)  # other work of the machine is not to hold it up

    @staticmethod
    def napi_threads():
        found = set()
        for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                if path.read_text().startswith("napi/d0-"):
                    found.add(int(path.parent.name))
        return found

    def load(self, place, forwards=True):
        """Packets a second while the flood lasts: those that s0 or d0 received."""
        a = self.arguments
        where, name = (self.network.bench, "s0") if forwards else (self.network.device, "d0")
        if place == ON_THE_DEVICES:
            self.napi_with_device()
        words = ["taskset", "-c", self.flood_core, "ip", "netns", "exec", self.network.bench, a.flood, "-p", self.flood_core, "-i", "g0", "-t", str(a.seconds + 2)]
        flood = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(0.4)
            before, sender = self.network.counted(where, name), self.network.counted(self.network.bench, "g0")
            time.sleep(a.seconds)
            after, sent = self.network.counted(where, name), self.network.counted(self.network.bench, "g0")
            if flood.poll() is not None:
                raise RuntimeError(f"{' '.join(words)} ended before its time: exit code {flood.returncode}\n{flood.stderr.read().strip()}")
        finally:
            flood.terminate()
            flood.communicate(timeout=30)
        return after.rate(before, (0, 0) if forwards else (sender.refused, sent.refused))

    def kernel(self, place):
        with self.fresh(place):
            self.run_device(sys.executable, "-c", GRO_ON)
            self.network.forwarding(True)
            return self.load(ON_THE_DEVICES if place == ON_THE_SENDERS else place)

    def bare(self, place, program, *words, forwards=True):
        with self.fresh(place):
            self.run_device(sys.executable, "-c", GRO_ON)
            with self.device("taskset", "-c", self.device_core, program, "-t", str(self.arguments.seconds + 2.5), *words) as process:
                time.sleep(0.5)
                if process.poll() is not None:
                    raise RuntimeError(f"{program} ended before its time")
                return self.load(place, forwards)

    def redirect(self, place):
        """A program of XDP that forwards all, and one at s0 that drops them: no process and no packet of the kernel's takes part."""
        a = self.arguments
        with self.fresh(place):
            self.run_device(sys.executable, "-c", GRO_ON)
            self.network.run(self.network.bench, a.redirect, "-k", "drop", "s0")
            with self.device(a.redirect, "-t", str(a.seconds + 3), "redirect", "d0", "d1"):
                time.sleep(0.5)
                return self.load(ON_THE_DEVICES if place == ON_THE_SENDERS else place)

    def sluice(self, place, key, method, *options, denied=False, before=()):
        with self.fresh(place):
            self.run_device(sys.executable, "-c", GRO_ON)
            sides = ((self.network.device, "d0"), (self.network.bench, "s0"))
            began = [self.network.counted(*side) for side in sides]
            with self.running(key, method, *options, before=("taskset", "-c", self.device_core, *before)) as process:
                rate = self.load(place, not denied)
                time.sleep(0.2)
            came, left = (self.network.counted(*side).packets - then.packets for side, then in zip(sides, began))
            self.account(process.report, came, left, denied)
            return rate

    @staticmethod
    def account(said, came, left, denied):
        """That every packet of the interfaces is in the report, and has a name there where it was lost."""
        queues = next(port["rx"] for port in said["ports"] if port["name"] == "d0")
        received = said["packets_in"]
        lost = {why: sum(queue[why] for queue in queues) for why in ("missed", "too_long", "invalid")}
        if came != received + sum(lost.values()):
            raise RuntimeError(f"d0 had {came} packets; the run says {received} and {lost}")
        if left != said["packets_out"]:
            raise RuntimeError(f"s0 had {left} packets; the run says that {said['packets_out']} left")
        unnamed = received - said["packets_out"] - sum(said["drops"].values())
        if unnamed != 0:
            raise RuntimeError(f"{unnamed} packets have no name: {said['drops']}")
        if denied and said["drops"].get("acl-deny") != received:
            raise RuntimeError(f"not all were denied: {said['drops']}")
        if not denied and set(said["drops"]) - {"tx-full"}:
            raise RuntimeError(f"dropped by the graph: {said['drops']}")

    def rows(self, key):
        a = self.arguments
        routes = ["--routes", f"routes{key}.img", "--adjacencies", "adjacencies"]
        acl = ["--acl", f"acl{key}.img"] if a.acl else []
        both = "access list and routes" if a.acl else "routes"
        xsk = ["-U", "2112", "-X", "1024", "-b", "256"]
        rows = {}
        for place in (ON_THE_SENDERS, ON_THE_DEVICES, ON_ONE):
            # Who shares a core with NAPI may not spin.
            sleeps = [] if place == ON_THE_SENDERS else ["-P"]
            if not key:
                if place != ON_THE_DEVICES:
                    rows[f"kernel forwarding, no rules{place}"] = lambda p=place: self.kernel(p)
                if a.redirect and place != ON_THE_DEVICES:
                    rows[f"XDP redirect{place}"] = lambda p=place: self.redirect(p)
                if a.xsk:
                    rows[f"bare forwarder, af_xdp{place}"] = lambda p=place, s=sleeps: self.bare(p, a.xsk, *xsk, "-H", *s, "fwd", "d0", "d1")
                    rows[f"bare reception, af_xdp{place}"] = lambda p=place, s=sleeps: self.bare(p, a.xsk, *xsk, *s, "drop", "d0", forwards=False)
                if a.xsk_reads:
                    rows[f"bare reception that reads, af_xdp{place}"] = lambda p=place, s=sleeps: self.bare(p, a.xsk_reads, *xsk, *s, "drop", "d0", forwards=False)
                if a.afp:
                    rows[f"bare forwarder, af_packet{place}"] = lambda p=place: self.bare(p, a.afp, "d0", "d1")
            if a.acl and place == ON_THE_SENDERS:
                rows[f"run, af_xdp, routes{place}"] = lambda p=place: self.sluice(p, key, "af_xdp", *routes)
            rows[f"run, af_xdp, {both}{place}"] = lambda p=place: self.sluice(p, key, "af_xdp", *acl, *routes)
            rows[f"run, af_xdp, denied by access list{place}"] = lambda p=place: self.sluice(p, key, "af_xdp", "--acl", "deny", denied=True)
            if place != ON_THE_SENDERS:
                rows[f"run, af_xdp, {both}, real-time{place}"] = lambda p=place: self.sluice(p, key, "af_xdp", *acl, *routes, before=("chrt", "-f", "1"))
            rows[f"run, af_packet, {both}{place}"] = lambda p=place: self.sluice(p, key, "af_packet", *acl, *routes)
        return {name: value for name, value in rows.items()
                if any(only in name for only in a.only.split("|")) and not (a.without and a.without in name)}

    @staticmethod
    def bases(name):
        if not name.startswith("run, "):
            return {}
        method = name.split(", ")[1]
        place = next((p for p in (ON_THE_DEVICES, ON_ONE) if name.endswith(p)), ON_THE_SENDERS)
        if "denied" in name:
            return {"of_bare": f"bare reception, {method}{place}", "of_reading": f"bare reception that reads, {method}{place}"}
        kernel = ON_ONE if place == ON_ONE else ON_THE_SENDERS
        return {"of_bare": f"bare forwarder, {method}{place}", "of_kernel": f"kernel forwarding, no rules{kernel}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/cpu/sluice", help="the program")
    parser.add_argument("--peer", help="another build of it, measured in turns")
    parser.add_argument("--acl", help="access list that permits all of 198.18.0.0/15")
    parser.add_argument("--routes", help="IPv4 routes; without: made by sluice gen")
    parser.add_argument("--xsk", help="a bare AF_XDP forwarder")
    parser.add_argument("--xsk-reads", help="with --flood: the same program, but `drop` loads the first line of each frame")
    parser.add_argument("--afp", help="a bare AF_PACKET forwarder")
    parser.add_argument("--redirect", help="with --flood: what forwards by a program of XDP alone, called as `xdpp -t SECONDS redirect d0 d1` and `xdpp -k drop s0`")
    parser.add_argument("--testpmd", help="DPDK's forwarder")
    parser.add_argument("--wire-method", default="af_packet", help="how g0 and s0 are opened")
    parser.add_argument("--rounds", type=int, default=9, help="of all rows, one after the other")
    parser.add_argument("--seconds", type=float, default=3, help="of a measurement")
    parser.add_argument("--packets", type=int, default=50_000_000, help="of a run over DPDK")
    parser.add_argument("--flood", help="a generator of more packets than a device can take: overload, in the place of the other rows")
    parser.add_argument("--cores", default="0,1", help="with --flood: the generator's, the device's")
    parser.add_argument("--latency", action="store_true", help="what packets wait and idle runs take, in the place of rates")
    parser.add_argument("--load", default="60kpps", help="with --latency: a tenth of what the slowest row forwards")
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    parser.add_argument("--without", default="", help="with --flood: not those whose names have this in them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", help="of the result; run_live, with --latency live_latency, with --flood live_overload")
    parser.add_argument("--verbose", action="store_true", help="each value as it comes, on stderr")
    parser.add_argument("--try", dest="try_", action="store_true", help="one short round")
    a = parser.parse_args()
    a.name = a.name or ("live_latency" if a.latency else "live_overload" if a.flood else "run_live")
    if a.try_:
        a.rounds, a.seconds, a.packets = 1, 0.5, 5_000_000
    for name in ("sluice", "peer", "acl", *PROGRAMS):
        if value := getattr(a, name):
            # These may be named as a shell would.
            found = shutil.which(value) if name in PROGRAMS else None
            setattr(a, name, str(pathlib.Path(found or value).resolve()))
    with tempfile.TemporaryDirectory(prefix="sluice-live-") as folder:
        folder = pathlib.Path(folder)
        try:
            if not a.routes:
                command(a.sluice, "gen", "routes", "-q", "--ipv4", 100_000, "--ipv6", 0, "--seed", a.seed, "--out", folder / "rib4.txt")
                a.routes = str(folder / "rib4.txt")
            a.routes = ",".join(str(pathlib.Path(one).resolve()) for one in a.routes.split(","))
            if a.flood:
                bench = Overload(a, folder, None)
                packets = bench.prepare()
                results = bench.measure()
            else:
                with Network() as network:
                    bench = Bench(a, folder, network)
                    packets = bench.prepare()
                    results = bench.measure()
            said = json.loads(subprocess.run([a.sluice, "doctor", "-o", "json"], capture_output=True, text=True).stdout)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"bench_live: {error}", file=sys.stderr)
            return 1
    if not results:
        print(f"bench_live: no row has '{a.only}' in its name", file=sys.stderr)
        return 2
    words = ["scripts/bench_live.py"] + (["--latency", "--load", a.load] if a.latency else [])
    elsewhere = ("testpmd", "wire_method", "packets") if a.flood else ("flood", "cores", "xsk_reads", "redirect", "without")
    for option in ("flood", "cores", "acl", "routes", "xsk", "xsk_reads", "afp", "redirect", "testpmd", "wire_method", "rounds", "seconds", "packets", "only", "without"):
        if (value := getattr(a, option)) and option not in elsewhere:
            names = option in ("acl", "routes", "testpmd", *PROGRAMS)
            words += ["--" + option.replace("_", "-"), ",".join(pathlib.Path(one).name for one in value.split(",")) if names else str(value)]
    document = {
        "schema": 1, "name": a.name, "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": shlex.join(words), "machine": said["machine"], "git": said["revision"], "seed": a.seed,
        "input_hash": f"sha256:{packets}", "checked": CHECKED + (AND_IN_OVERLOAD if a.flood else ""),
        "device": "cpu", "results": results}
    print(json.dumps(document, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
