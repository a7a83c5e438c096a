#!/usr/bin/env python3
"""What a restart costs: packets that are lost between two processes, and how long none pass. Root, or user namespaces.

    scripts/bench_restart.py --acl edge.acl --routes rib4.txt,rib6.txt > restart.json

A run between two veth pairs of a network namespace of its own is ended by SIGTERM, and started again when it has ended,
as `systemctl restart` does it. Meanwhile `sluice bench wire` sends packets at --rate and counts those that do not arrive.
Cases: as configured, and with the tables compiled (`sluice compile`). Without --acl and --routes: one rule and one route.
"""
import argparse
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import rounds  # noqa: E402

LIMIT_S = 300


class Restart:
    def __init__(self, a, folder):
        self.a, self.folder, self.sluice = a, folder, str(pathlib.Path(a.sluice).resolve())
        self.run = None
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(str(folder / "notify"))
        self.told.settimeout(LIMIT_S)

    def command(self, *words):
        done = subprocess.run([str(w) for w in words], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    def prepare(self):
        for near, far in (("gen", "in"), ("sink", "out")):
            self.command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            for one in (near, far):
                self.command("sysctl", "-q", "-w", f"net.ipv6.conf.{one}.disable_ipv6=1")
                self.command("ip", "link", "set", one, "up")
        self.acl = [os.path.abspath(self.a.acl)] if self.a.acl else ["edge.acl"]
        # What is sent has a route and a neighbour, whatever the other routes are.
        self.routes = [os.path.abspath(one) for one in self.a.routes.split(",") if one] + ["rib.txt"]
        (self.folder / "edge.acl").write_text("permit from any to any\n")
        (self.folder / "rib.txt").write_text("198.19.0.0/16 via 192.0.2.1\n")
        (self.folder / "adj.txt").write_text("192.0.2.1 02:00:00:00:00:01 02:00:00:00:00:02 0\n")
        self.command(self.sluice, "compile", "--acl", self.acl[0], "--out", "acl.img")
        self.command(self.sluice, "compile", "--routes", ",".join(self.routes), "--out", "rib.img")

    def start(self, case):
        acl, routes = (["acl.img"], ["rib.img"]) if case == "compiled" else (self.acl, self.routes)
        (self.folder / "sluice.toml").write_text(
            f'[ports]\nin = ["in"]\nout = ["out"]\n[tables]\nacl = {json.dumps(acl[0])}\nroutes = {json.dumps(routes)}\nadjacencies = "adj.txt"\ndefault = "permit"\n')
        self.run = subprocess.Popen([self.sluice, "run", "--config", "sluice.toml", "-o", "json"], cwd=self.folder, stdout=subprocess.PIPE,
                                    stderr=open(self.folder / "run.err", "w"), text=True,
                                    env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify")})

    def ready(self):
        while not any(line == "READY=1" for line in self.told.recv(4096).decode().splitlines()):
            pass

    def end(self):
        self.run.terminate()
        report = json.loads(self.run.communicate(timeout=LIMIT_S)[0])
        if self.run.returncode != 0 or not report["conserved"]:
            raise RuntimeError("the run did not end well: " + (self.folder / "run.err").read_text())
        return report

    def once(self, case, restart):
        """Packets lost, seconds until the process ended, and until the next was ready."""
        self.start(case)
        self.ready()
        wire = subprocess.Popen([self.sluice, "bench", "wire", "--tx", "gen", "--rx", "sink", "--method", "af_packet", "--rate", self.a.rate, "--duration",
                                 str(self.a.seconds), "--to", "198.19.0.0/16", "--size", "64", "-o", "json"], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        time.sleep(self.a.seconds / 4)
        ended = ready = 0.0
        if restart:
            begin = time.monotonic()
            self.end()
            ended = time.monotonic() - begin
            self.start(case)
            self.ready()
            ready = time.monotonic() - begin
        out, errors = wire.communicate(timeout=LIMIT_S)
        if wire.returncode != 0:
            raise RuntimeError("sluice bench wire: " + errors)
        self.end()
        return json.loads(out), ended, ready


def lost_of(said):
    (trial,) = said["results"][0]["trials"]
    return trial["lost"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/cpu/sluice")
    parser.add_argument("--acl", default="")
    parser.add_argument("--routes", default="")
    parser.add_argument("--rate", default="10kpps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12, help="of traffic each time; a restart has to fit in three quarters of it")
    a = parser.parse_args()
    if "SLUICE_BENCH_NETWORK" not in os.environ:
        namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
        os.execvpe(namespace[0], [*namespace, sys.executable, *sys.argv], {**os.environ, "SLUICE_BENCH_NETWORK": "1"})
    with tempfile.TemporaryDirectory(prefix="sluice-restart-") as folder:
        bench = Restart(a, pathlib.Path(folder))
        try:
            bench.prepare()
            results = []
            whole, _, _ = bench.once("files", False)
            if lost_of(whole) != 0:
                print(f"bench_restart: {lost_of(whole)} packets were lost without a restart: give a lower --rate", file=sys.stderr)
                return 5
            for case in ("files", "compiled"):
                times = [bench.once(case, True) for _ in range(a.rounds)]
                results += [rounds.row(f"{case}: packets lost", "packets", [lost_of(r[0]) for r in times]),
                            rounds.row(f"{case}: until it ended", "ms", [1e3 * r[1] for r in times]),
                            rounds.row(f"{case}: until packets pass", "ms", [1e3 * r[2] for r in times])]
            said = json.loads(bench.command(bench.sluice, "doctor", "-o", "json"))
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"bench_restart: {error}", file=sys.stderr)
            return 1
        finally:
            if bench.run is not None and bench.run.poll() is None:
                bench.run.kill()
    words = ["scripts/bench_restart.py"] + [f"--{key} {getattr(a, key)}" for key in ("acl", "routes") if getattr(a, key)]
    print(json.dumps({
        "schema": 1, "name": "restart", "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(words + [f"--rate {a.rate} --rounds {a.rounds} --seconds {a.seconds:g}"]), "machine": said["machine"], "git": said["revision"],
        "seed": 1, "checked": "without a restart no packet is lost; every run is conserved", "device": "cpu", "results": results}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
