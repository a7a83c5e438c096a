#!/usr/bin/env python3
"""Minutes of `sluice run` under load while links flap, tables change and graphs are exchanged: every packet is accounted for. Root; network namespaces and
veth pairs of its own.

    scripts/live_soak.py --minutes 5 > live_soak.json
    scripts/live_soak.py --minutes 0.2 --only af_xdp        in short

`sluice send` sends by g0 - d0, the run forwards, d1 - s0 receives. Twice, each half of the minutes: by AF_PACKET and by AF_XDP. At the end, with nothing
on its way:

    what left g0 (its counter) = what the run received + what the run or d0 had no room for + what flaps lost (below)
    what the run received = what it sent + what it dropped for a reason     ("conserved")
    what the run's port sent = what s0 received + what d1 dropped afterwards + what flaps lost

An interface that is set down throws away what lies in the kernel's queues at that moment, and no counter has it: at most --lost-per-flap packets for each
change of a link. Any other difference, and any loss without a flap, is an error (exit code 5), as are a run that ends by itself, a change that is refused, and
frames that are "invalid" or "too long".
"""
import argparse
import datetime
import hashlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from bench_live import DUT_MACS, SINK_MAC, Network, command  # noqa: E402

METHODS = ("af_packet", "af_xdp")


class Soak:
    def __init__(self, arguments, folder, network, method):
        self.arguments, self.folder, self.network, self.method = arguments, folder, network, method
        self.random = random.Random(arguments.seed)
        self.done = {}  # events of each kind
        self.problems = []
        self.second_graph = False

    def link(self, where, name):
        return json.loads(command("ip", "-n", where, "-j", "-s", "link", "show", name))[0]["stats64"]

    def counters(self):
        n = self.network
        return {name: self.link(where, name) for where, name in ((n.bench, "g0"), (n.device, "d0"), (n.device, "d1"), (n.bench, "s0"))}

    def quiet(self):
        """Counters, once they stand still."""
        before = self.counters()
        for _ in range(100):
            time.sleep(0.1)
            now = self.counters()
            if all(now[name][side]["packets"] == before[name][side]["packets"] for name in now for side in ("rx", "tx")):
                return now
            before = now
        raise RuntimeError("packets still flow ten seconds after the last one was sent")

    # --- events ---

    def flap(self, where, name):
        command("ip", "-n", where, "link", "set", name, "down")
        time.sleep(self.random.uniform(0.02, 0.3))
        command("ip", "-n", where, "link", "set", name, "up")

    def control(self, *words):
        command(self.arguments.sluice, *words, "--socket", "control", cwd=self.folder)

    def change_rules(self):
        """A rule that denies some flows, or not."""
        self.control("acl", "replace", "acl", self.random.choice(("permit", "deny")))

    def change_routes(self):
        self.control("routes", "replace", "fib", self.random.choice(("few", "many")))

    def exchange_graph(self):
        self.second_graph = not self.second_graph
        self.control("graph", "swap", "second.click" if self.second_graph else "first.click")

    def event(self):
        n = self.network
        kinds = {
            "flaps of the sender": lambda: self.flap(n.bench, "g0"), "flaps of the run's input": lambda: self.flap(n.device, "d0"),
            "flaps of the run's output": lambda: self.flap(n.device, "d1"), "flaps of the sink": lambda: self.flap(n.bench, "s0"),
            "access lists": self.change_rules, "route tables": self.change_routes, "graphs": self.exchange_graph}
        kind = self.random.choice([k for k in kinds if not self.arguments.no_flaps or not k.startswith("flaps")])
        kinds[kind]()
        self.done[kind] = self.done.get(kind, 0) + 1

    # --- the run ---

    def graphs(self):
        tables = "AclTable(acl, FILE permit);\nRouteTable(fib, FILE few);\nAdjacencyTable(adj, FILE adjacencies, ROUTES fib);\n"
        ports = f"in :: FromDevice(d0, METHOD {self.method.upper()});\nout :: ToDevice(d1, METHOD {self.method.upper()});\n"
        way = "IPInput -> ACL(TABLE acl) -> IPRoute(TABLE fib) -> DecIPTTL -> AdjacencyRewrite(TABLE adj) -> out;\n"
        (self.folder / "first.click").write_text(f"{tables}{ports}in -> {way}")
        (self.folder / "second.click").write_text(f"{tables}{ports}in -> count :: Counter -> {way}")

    def spawn(self, where, *words):
        return subprocess.Popen(["ip", "netns", "exec", where, *[str(w) for w in words]], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=open(self.folder / f"{words[1]}.log", "w"), text=True)

    def end(self, process, name):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise RuntimeError(f"{name} did not end within a minute of SIGINT") from None
        log = (self.folder / f"{name}.log").read_text()[-2000:]
        try:
            return json.loads(out), process.returncode, log
        except ValueError:
            raise RuntimeError(f"{name}: exit code {process.returncode}\n{log}") from None

    def run(self, seconds):
        a, n = self.arguments, self.network
        self.graphs()
        (self.folder / "ready").unlink(missing_ok=True)
        before = self.counters()
        router = self.spawn(n.device, a.sluice, "run", "first.click", "-o", "json", "--ready-file", "ready", "--control", "control")
        sender = None
        try:
            end = time.monotonic() + 30
            while not (self.folder / "ready").exists() and router.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            if not (self.folder / "ready").exists():
                raise RuntimeError("the run did not start: " + (self.folder / "run.log").read_text())
            sender = self.spawn(n.bench, a.sluice, "send", "soak.pcap", "--out", "af_packet:g0", "--rate", a.rate, "--loop", "-o", "json")
            begin = time.monotonic()
            while time.monotonic() - begin < seconds:
                time.sleep(self.random.uniform(0.05, 0.4))
                self.event()
                if router.poll() is not None:
                    raise RuntimeError("the run has ended by itself: " + (self.folder / "run.log").read_text()[-2000:])
            # Down links are up again; what came last is through.
            time.sleep(0.5)
            sent, code, log = self.end(sender, "send")
            if code not in (0, 3, 130):
                raise RuntimeError(f"send: exit code {code}\n{log}")
            self.quiet()
            after = self.counters()
            report, code, log = self.end(router, "run")
            if code != 0:
                raise RuntimeError(f"run: exit code {code}\n{log}")
        finally:
            for process in (sender, router):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.communicate()
        return self.account(sent, report, before, after, seconds)

    def account(self, sent, report, before, after, seconds):
        def more(name, side, what):
            return after[name][side][what] - before[name][side][what]

        ports = {port["name"]: port for port in report["ports"]}
        rx = {key: sum(queue[key] for queue in ports["d0"]["rx"]) for key in ("packets", "missed", "too_long", "invalid")}
        tx = {key: sum(queue[key] for queue in ports["d1"]["tx"]) for key in ("packets", "failed")}
        flaps = sum(count for kind, count in self.done.items() if kind.startswith("flaps"))
        left = more("g0", "tx", "packets")
        lost_before = left - rx["packets"] - rx["missed"] - rx["too_long"] - rx["invalid"]
        # What an interface drops may have been refused at once (then the port says "failed" or "tx-full") or taken and dropped.
        missing = tx["packets"] - more("s0", "rx", "packets")
        lost_after = missing if missing < 0 else max(0, missing - more("d1", "tx", "dropped"))
        row = {"case": self.method, "unit": "Mpackets", "median": report["packets_out"] / 1e6, "n": 1, "minutes": seconds / 60, "sent": left,
               "refused_by_sender": sent["failed"], "packets_in": report["packets_in"], "packets_out": report["packets_out"], "drops": report["drops"],
               "rx": rx, "tx": tx, "received": more("s0", "rx", "packets"), "sender_interface_dropped": more("g0", "tx", "dropped"),
               "output_interface_dropped": more("d1", "tx", "dropped"), "events": self.done, "flaps": flaps,
               "lost_at_flaps_before": lost_before, "lost_at_flaps_after": lost_after,
               "link_changes": {name: port["link_changes"] for name, port in ports.items()}}
        row["min"] = row["max"] = row["median"]
        # For the table of docs/benchmarks.md.
        row |= {"dropped": report["dropped"], "missed": rx["missed"], "failed": tx["failed"] + more("d1", "tx", "dropped"),
                "lost_at_flaps": lost_before + lost_after, "changes": sum(self.done.values()) - flaps}
        bound = flaps * self.arguments.lost_per_flap
        if not report["conserved"]:
            self.problems.append("the run is not conserved")
        if report["packets_in"] != rx["packets"]:
            self.problems.append(f"the run's {report['packets_in']} packets are not the {rx['packets']} of its port")
        if report["packets_out"] != tx["packets"] + tx["failed"]:
            self.problems.append(f"{report['packets_out']} packets left the run, {tx['packets']} its port, {tx['failed']} failed there")
        if rx["too_long"] + rx["invalid"] != 0:
            self.problems.append(f"frames that are too long or invalid: {rx}")
        for what, lost in (("between g0 and the run", lost_before), ("between the run and s0", lost_after)):
            if not 0 <= lost <= bound:
                self.problems.append(f"{lost} packets were lost {what}; {flaps} flaps account for {bound} at most")
        if report["packets_out"] < 0.3 * left:
            self.problems.append(f"{report['packets_out']} packets of {left} left: that is no load")
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/cpu/sluice", help="the program")
    parser.add_argument("--minutes", type=float, default=5, help="of all methods together")
    parser.add_argument("--rate", default="50kpps", help="that is sent")
    parser.add_argument("--lost-per-flap", type=int, default=512, help="packets that the kernel may have in its queues when a link changes")
    parser.add_argument("--no-flaps", action="store_true", help="only tables and graphs: then nothing at all may be lost")
    parser.add_argument("--only", default="", help="one method: " + " or ".join(METHODS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="live_soak")
    a = parser.parse_args()
    a.sluice = str(pathlib.Path(a.sluice).resolve())
    methods = [m for m in METHODS if a.only in ("", m)]
    results, problems = [], []
    with tempfile.TemporaryDirectory(prefix="sluice-soak-") as folder:
        folder = pathlib.Path(folder)
        try:
            (folder / "few").write_text("0.0.0.0/0 10.2.0.1\n")
            (folder / "many").write_text("".join(f"{i >> 8}.{i & 255}.0.0/16 10.2.0.{1 + i % 2}\n" for i in range(1 << 8, 224 << 8)) + "0.0.0.0/0 10.2.0.1\n")
            (folder / "adjacencies").write_text("".join(f"10.2.0.{i} {SINK_MAC} {DUT_MACS['d1']} 0\n" for i in (1, 2)))
            (folder / "permit").write_text("permit ip from any to any\n")
            (folder / "deny").write_text("deny udp from any to any port 1024-32767\npermit ip from any to any\n")
            command(a.sluice, "gen", "traffic", "-q", "--packets", 20000, "--mix", "imix", "--flows", 2000, "--routes", "few", "--seed", a.seed, "--out", "soak.pcap",
                    cwd=folder)
            digest = hashlib.sha256((folder / "soak.pcap").read_bytes()).hexdigest()
            for method in methods:
                with Network() as network:
                    soak = Soak(a, folder, network, method)
                    results.append(soak.run(60 * a.minutes / len(methods)))
                    problems += [f"{method}: {problem}" for problem in soak.problems]
            said = json.loads(subprocess.run([a.sluice, "doctor", "-o", "json"], capture_output=True, text=True).stdout)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"live_soak: {error}", file=sys.stderr)
            return 1
    document = {
        "schema": 1, "name": a.name, "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": f"scripts/live_soak.py --minutes {a.minutes:g} --rate {a.rate}" + (" --no-flaps" if a.no_flaps else ""), "machine": said["machine"],
        "git": said["revision"], "seed": a.seed, "input_hash": f"sha256:{digest}",
        "checked": "every packet by the counters of the sender's interface, the run and the sink's interface", "device": "cpu", "results": results}
    print(json.dumps(document, indent=2, ensure_ascii=False))
    for problem in problems:
        print(f"live_soak: {problem}", file=sys.stderr)
    return 5 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
