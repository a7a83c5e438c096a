#!/usr/bin/env python3
"""Measures `sluice run` between live ports beside the kernel and other forwarders, in turns. Root; network namespaces and veth pairs of its own.

    scripts/bench_live.py --acl acl1_10k --routes rib4.txt > bench_live.json
    scripts/bench_live.py ... --xsk PATH --afp PATH --testpmd dpdk-testpmd       also these, where they are
    scripts/bench_live.py ... --peer build/old/sluice                            the same of another build, interleaved
    scripts/bench_live.py --try                                                  that all rows work, in short: figures mean nothing

Interfaces: `sluice bench wire` sends by g0 as fast as it goes and receives by s0; the device is a namespace between them (g0 - d0 ... d1 - s0).
A row's value are the packets that came back per second, of "denied" rows those that the device received. "cable" has no device: no row can
have more. The method that a run reports must be the one in the row's name. --xsk and --afp are bare forwarders without tables, called
as `xsk -t SECONDS fwd d0 d1` and `afp_fwd -t SECONDS d0 d1`.

DPDK without a NIC: net_null makes frames and takes them; a ring whose end is its beginning has real ones that go round: the same graph
but for the TTL, which would run out. A value are packets per second of the process's own processor time, both less those of a run with a tenth of
the packets (testpmd: of a shorter time): other load on the machine does not count, its use of the caches does.
"""
import argparse
import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

DUT_MACS = {"d0": "02:00:00:00:00:02", "d1": "02:00:00:00:00:03"}
SINK_MAC = "02:00:00:00:00:04"
DENY = "deny ip from 198.18.0.0/15 to any\npermit ip from any to any\n"


def command(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(w) for w in words)}: exit code {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


class Network:
    """A bench with g0 and s0, and a device with d0 and d1 between them; nobody else sees them. Gone at its end."""

    def __init__(self):
        self.bench, self.device = (f"sluice-{os.getpid()}-{name}" for name in ("bench", "device"))

    def __enter__(self):
        try:
            for name in (self.bench, self.device):
                command("ip", "netns", "add", name)
                self.run(name, "ip", "link", "set", "lo", "up")
                self.run(name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            for near, far in (("g0", "d0"), ("s0", "d1")):
                command("ip", "-n", self.bench, "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.device)
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

    def forwarding(self, on):
        self.run(self.device, "sysctl", "-qw", f"net.ipv4.ip_forward={int(on)}")


class Bench:
    def __init__(self, arguments, folder, network):
        self.arguments, self.folder, self.network = arguments, folder, network
        self.programs = {"": arguments.sluice} | ({"peer": arguments.peer} if arguments.peer else {})
        self.values = {}

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

    def wire(self, tx="g0", rx="s0", to=DUT_MACS["d0"], nothing_back=False):
        """The only trial of a measurement."""
        a = self.arguments
        words = ["ip", "netns", "exec", self.network.bench, a.sluice, "bench", "wire", "-q", "-o", "json", "--tx", tx, "--rx", rx,
                 "--dst-mac", to, "--routes", a.routes, "--duration", str(a.seconds), "--method", a.wire_method]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120)
        # Where the device drops all, nothing comes back.
        if done.returncode != 0 and not (nothing_back and done.returncode == 3):
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr.strip()}")
        said = json.loads(done.stdout)
        assert said["tx"]["method"] == said["rx"]["method"] == a.wire_method
        trial = said["results"][0]["trials"][0]
        if trial["missed"]:
            print(f"bench_live: {rx} had no room for {trial['missed']} packets: the row is the meter's", file=sys.stderr)
        return trial

    def cable(self):
        address = json.loads(command("ip", "-n", self.network.bench, "-j", "link", "show", "c1"))[0]["address"]
        trial = self.wire("c0", "c1", address)
        return trial["received"] / trial["seconds"] / 1e6

    def kernel(self):
        self.network.forwarding(True)
        try:
            trial = self.wire()
        finally:
            self.network.forwarding(False)
        return trial["received"] / trial["seconds"] / 1e6

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

    def bare(self, program, *words):
        try:
            with self.device(program, "-t", str(self.arguments.seconds + 3), *words) as process:
                time.sleep(0.7)
                if process.poll() is not None:
                    raise RuntimeError(f"{program} ended before its time")
                trial = self.wire()
        finally:
            # Such programs leave theirs attached when they are interrupted.
            self.run_device("ip", "link", "set", "d0", "xdp", "off")
        return trial["received"] / trial["seconds"] / 1e6

    def sluice(self, key, method, *tables, denied=False):
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        words = [self.programs[key], "run", "-q", "-o", "json", *tables, "--in", f"{method}:d0", "--out", f"{method}:d1", "--ready-file", "ready"]
        with self.device(*words) as process:
            end = time.monotonic() + 30
            while not ready.exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            if not ready.exists():
                process.kill()
                raise RuntimeError(f"{' '.join(words)}: {process.communicate()[1].strip()}")
            trial = self.wire(nothing_back=denied)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit code {process.returncode}\n{process.said[1].strip()}")
        said = json.loads(process.said[0])
        for port in said["interfaces"]:
            if port["method"] != method:
                raise RuntimeError(f"{port['name']} was opened by {port['method']} and not by {method}")
        if not said["conserved"]:
            raise RuntimeError(f"{' '.join(words)}: packets are missing")
        if denied:
            if said["drops"].get("acl-deny") != said["packets_in"]:
                raise RuntimeError(f"not all were denied: {said['drops']}")
            return said["packets_in"] / trial["seconds"] / 1e6
        return trial["received"] / trial["seconds"] / 1e6

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
            if any(port["method"] != "dpdk" for port in said["interfaces"]) or not said["conserved"]:
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

    def rows(self, key):
        a = self.arguments
        routes = ["--routes", f"routes{key}.img", "--adjacencies", "adjacencies"]
        acl = ["--acl", f"acl{key}.img"]
        rows = {}
        if not key:
            rows["cable"] = self.cable
            rows["kernel forwarding, no rules"] = self.kernel
            if a.xsk:
                rows["bare forwarder, af_xdp"] = lambda: self.bare(a.xsk, "-P", "fwd", "d0", "d1")
            if a.afp:
                rows["bare forwarder, af_packet"] = lambda: self.bare(a.afp, "d0", "d1")
        for method in ("af_xdp", "af_packet"):
            rows[f"run, {method}, routes"] = lambda m=method: self.sluice(key, m, *routes)
            if a.acl:
                rows[f"run, {method}, access list and routes"] = lambda m=method: self.sluice(key, m, *acl, *routes)
            rows[f"run, {method}, denied by access list"] = lambda m=method: self.sluice(key, m, "--acl", "deny", denied=True)
        if not key and a.testpmd:
            rows["testpmd io, net_null"] = lambda: self.testpmd(0)
            rows["testpmd io, net_null, copy"] = lambda: self.testpmd(1)
        rows["run, net_null to net_null"] = lambda: self.graph(key, 'FromDPDKDevice("net_null0,size=60") -> ToDPDKDevice(net_null1);\n')
        rows["run, net_ring"] = lambda: self.ring(key)
        way = ["IPInput", "IPRoute(TABLE fib)", "AdjacencyRewrite(TABLE adj)"]
        rows["run, net_ring, routes"] = lambda: self.ring(key, *way)
        if a.acl:
            rows["run, net_ring, access list and routes"] = lambda: self.ring(key, way[0], "ACL(TABLE acl)", *way[1:])
        return {name: value for name, value in rows.items() if a.only in name}

    def measure(self):
        rows = {key: self.rows(key) for key in self.programs}
        for repetition in range(self.arguments.rounds):
            for name in rows[""]:
                for key in sorted(rows, reverse=repetition % 2 == 1):
                    if name in rows[key]:
                        try:
                            self.values.setdefault((name, key), []).append(rows[key][name]())
                        except RuntimeError as error:
                            raise RuntimeError(f"{name}: {error}") from error
        results = []
        for name in rows[""]:
            values = self.values[name, ""]
            row = {"case": name, "unit": "Mpackets/s", "median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}
            if theirs := self.values.get((name, "peer")):
                row["peer_median"] = statistics.median(theirs)
                row["of_peer"] = statistics.median(a / b for a, b in zip(values, theirs))
            results.append(row)
        return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/cpu/sluice", help="the program")
    parser.add_argument("--peer", help="another build of it, measured in turns")
    parser.add_argument("--acl", help="access list that permits all of 198.18.0.0/15")
    parser.add_argument("--routes", help="IPv4 routes; without: made by sluice gen")
    parser.add_argument("--xsk", help="a bare AF_XDP forwarder")
    parser.add_argument("--afp", help="a bare AF_PACKET forwarder")
    parser.add_argument("--testpmd", help="DPDK's forwarder")
    parser.add_argument("--wire-method", default="af_packet", help="how g0 and s0 are opened")
    parser.add_argument("--rounds", type=int, default=9, help="of all rows, one after the other")
    parser.add_argument("--seconds", type=float, default=3, help="of a measurement")
    parser.add_argument("--packets", type=int, default=50_000_000, help="of a run over DPDK")
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="run_live")
    parser.add_argument("--try", dest="try_", action="store_true", help="one short round")
    a = parser.parse_args()
    if a.try_:
        a.rounds, a.seconds, a.packets = 1, 0.5, 5_000_000
    for name in ("sluice", "peer", "acl", "xsk", "afp"):
        if getattr(a, name):
            setattr(a, name, str(pathlib.Path(getattr(a, name)).resolve()))
    with tempfile.TemporaryDirectory(prefix="sluice-live-") as folder:
        folder = pathlib.Path(folder)
        try:
            if not a.routes:
                command(a.sluice, "gen", "routes", "-q", "--ipv4", 100_000, "--ipv6", 0, "--seed", a.seed, "--out", folder / "rib4.txt")
                a.routes = str(folder / "rib4.txt")
            a.routes = ",".join(str(pathlib.Path(one).resolve()) for one in a.routes.split(","))
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
    words = ["scripts/bench_live.py"]
    for option in ("acl", "routes", "xsk", "afp", "testpmd", "wire_method", "rounds", "seconds", "packets", "only"):
        if value := getattr(a, option):
            names = option in ("acl", "routes", "xsk", "afp", "testpmd")
            words += ["--" + option.replace("_", "-"), ",".join(pathlib.Path(one).name for one in value.split(",")) if names else str(value)]
    document = {
        "schema": 1, "name": a.name, "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(words), "machine": said["machine"], "git": said["revision"], "seed": a.seed,
        "input_hash": f"sha256:{packets}", "checked": "every packet that a run received left or was dropped with a reason; its ports have the row's method",
        "device": "cpu", "results": results}
    print(json.dumps(document, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
