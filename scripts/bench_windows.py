#!/usr/bin/env python3
"""What it costs a run to be looked at, and how soon a change takes effect. No root; memory ports.

    scripts/bench_windows.py --acl acl1_10k --routes rib4.txt,rib6.txt > bench/results/windows_cost.json
    scripts/bench_windows.py --acl acl1_10k --routes rib4.txt,rib6.txt --effect --minutes 5 > bench/results/windows_effect.json
    scripts/bench_windows.py --seconds 2 --rounds 1        in short, with rules and routes that are generated

Cost: runs in turns, round by round, each for --seconds: "plain" has no socket; "served" has --control and --http, which nobody uses, and so counts
rules; "beside" is served, and another process spins on a core: what a busy core beside it costs by itself;
"watched" is served and has, all at once, every second: /metrics, `show runtime`, `show rules --hits`, `sluice top`, a trace of one packet in 1,000 (whose answers are read, not parsed), a
reload of the configuration, whose access list was written again with another first rule (--reload acl: a replacement of the access list by such a one,
--reload none), and one rule with `log`. `of_peer` is the median over the rounds of
its rate by that of the served run, `of_beside` by that beside a busy process. A run that was not looked at as often as it had to be says so in `late`.

Effect: one run for --minutes; a minute has 100 replacements of one rule, 100 of the whole access list (--no-lists: none), and 100,000 changes of routes,
--route-batch at a time. A request is
answered once every packet meets the change, so "p99_us" is that of the time from the first byte of the request, which is written before, to the answer. Lost packets (the run is not conserved, or what came in is
not what left and was dropped) and memory that grows by more than 1 % after the first quarter end it with exit code 5.
"""
import argparse
import datetime
import hashlib
import json
import lzma
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import rounds  # noqa: E402


ROUTES = {"rib4.txt": "rib/ipv4-tier1-2024-01.nh256.txt.xz", "rib6.txt": "rib/ipv6-tier1-2024-01.nh256.txt.xz"}


class Client:
    """The control socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(600)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def ask(self, command, **fields):
        return self.send(command, self.line(command, **fields))

    @staticmethod
    def line(command, **fields):
        return json.dumps({"v": 1, "command": command, **fields}).encode() + b"\n"

    def send(self, command, line):
        self.socket.sendall(line)
        answer = json.loads(self.lines.readline())
        if not answer["ok"]:
            raise RuntimeError(f"{command}: {answer['error']['message']}")
        return answer["result"]

    def take(self, command, **fields):
        """An answer that is read and not parsed: a megabyte of JSON takes Python longer than it takes sluice."""
        self.socket.sendall(self.line(command, **fields))
        if not self.lines.readline().startswith(b'{"v":1,"ok":true,'):
            raise RuntimeError(f"{command}: it was refused")

    def close(self):
        self.lines.close()
        self.socket.close()


class Run:
    """A run of the standard graph over memory ports, until `end`."""

    def __init__(self, bench, served):
        self.bench = bench
        words = ["--config", "served.toml" if served else "plain.toml", "-o", "json"]
        if served:
            for old in bench.folder.glob("control*"):
                old.unlink()
            words += ["--control", "control", "--http", "127.0.0.1:0"]
        self.errors = open(bench.folder / "run.err", "w+", encoding="utf-8")
        self.process = subprocess.Popen([bench.sluice, "run", *words], cwd=bench.folder, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.url = self.address() if served else None

    def said(self):
        return (self.bench.folder / "run.err").read_text(encoding="utf-8")

    def address(self):
        end = time.monotonic() + 600
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.said().splitlines():
                if line.startswith("live page "):
                    return line.split()[2].rstrip("/")
            time.sleep(0.02)
        raise RuntimeError("the run did not start: " + self.said())

    def memory(self):
        for line in open(f"/proc/{self.process.pid}/status", encoding="utf-8"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def end(self):
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=600)
        self.errors.close()
        report = json.loads(out)
        if self.process.returncode not in (0, 130):
            raise RuntimeError(f"the run ended with {self.process.returncode}: {self.said()}")
        if not report["conserved"]:
            raise RuntimeError("the run is not conserved")
        return report

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Looks:
    """Everything that looks at a run, each once a second in a thread or process of its own."""

    def __init__(self, bench, run):
        self.bench, self.run, self.stop, self.done, self.problems = bench, run, threading.Event(), {}, []
        self.packets = self.lists = 0
        works = {"metrics": self.metrics, "trace": self.trace, "change": self.change}
        self.threads = [threading.Thread(target=self.every_second, args=item, daemon=True) for item in works.items()]
        windows = (("show", "runtime", "--interval", "1"), ("show", "rules", "--hits", "--interval", "1"), ("top", "--interval", "1", "--times", "1000000"),
                   ("show", "log", "--follow"))
        self.windows = [subprocess.Popen([bench.sluice, *words, "--socket", "control"], cwd=bench.folder, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL) for words in windows]
        for thread in self.threads:
            thread.start()

    def every_second(self, name, work):
        due = time.monotonic()
        try:
            client = Client(self.bench.folder / "control")
            while not self.stop.is_set():
                if work(client):
                    self.done[name] = self.done.get(name, 0) + 1
                due = max(due + 1, time.monotonic())
                self.stop.wait(due - time.monotonic())
            client.close()
        except (OSError, RuntimeError, ValueError) as error:
            if not self.stop.is_set():
                self.problems.append(f"{name}: {error}")

    def metrics(self, _):
        with urllib.request.urlopen(self.run.url + "/metrics", timeout=60) as answer:
            return bool(answer.read())

    def trace(self, client):
        before, self.packets = self.packets, client.ask("show runtime")["packets_in"]
        left = (self.packets - before) // 1000 if before else 0
        while left > 0 and not self.stop.is_set():
            client.ask("trace add", packets=min(left, 1000))
            self.done["traced"] = self.done.get("traced", 0) + min(left, 1000)
            left -= 1000
            self.stop.wait(0.02)
            client.take("show trace")
        return before != 0

    def change(self, client):
        if self.bench.a.reload == "none":
            return True
        # Another file each time, so that no write is among what is measured.
        self.lists += 1
        next_list = self.bench.folder / "next.acl"
        os.link(self.bench.folder / f"list{self.lists % 2}.acl", next_list)
        os.replace(next_list, self.bench.folder / "logged.acl")
        if self.bench.a.reload == "reload":
            done = client.ask("reload")
        else:
            done = client.ask("acl replace", table="acl", file=str(self.bench.folder / "logged.acl"))
        if not done["differs"]:
            raise RuntimeError("a list with another rule is no change")
        return True

    def end(self):
        for window in self.windows:
            if window.poll() is not None:
                self.problems.append("a window has ended before the run")
        self.stop.set()
        for thread in self.threads:
            thread.join(600)
        for window in self.windows:
            window.send_signal(signal.SIGINT)
            window.wait(60)
        if self.problems:
            raise RuntimeError("; ".join(self.problems))
        return self.done


class Bench:
    def __init__(self, a, folder):
        self.a, self.folder, self.sluice, self.generated = a, folder, str(pathlib.Path(a.sluice).resolve()), []

    def command(self, *words):
        done = subprocess.run([self.sluice, *[str(w) for w in words]], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(str(w) for w in words)}: {done.stderr}")
        return done.stdout

    def take(self, name, to):
        """A file that is given, of $SLUICE_DATA where it is only a name."""
        data = pathlib.Path(os.environ.get("SLUICE_DATA", "/nowhere"))
        for place in (pathlib.Path(name), data / ROUTES.get(name, f"acl/{name}.xz")):
            if place.is_file():
                data = place.read_bytes()
                (self.folder / to).write_bytes(lzma.decompress(data) if place.suffix == ".xz" else data)
                return
        raise RuntimeError(f"{name}: no such file; set SLUICE_DATA to where acl/{name}.xz is")

    def prepare(self):
        a = self.a
        if a.acl:
            self.take(a.acl, "given.acl")
        else:
            self.generate("gen", "rules", "--shape", "acl", "--count", 10_000, "--seed", a.seed, "--out", "given.acl")
        names = []
        for i, name in enumerate(name for name in a.routes.split(",") if name):
            names.append(f"rib{i}.txt")
            self.take(name, names[-1])
        if not names:
            names = ["rib0.txt"]
            self.generate("gen", "routes", "--ipv4", 900_000, "--ipv6", 100_000, "--seed", a.seed, "--out", "rib0.txt")
        self.routes = names
        self.command("gen", "traffic", "-q", "--rules", "given.acl", "--routes", ",".join(names), "--packets", a.packets,
                     "--malformed", 0, "--seed", a.seed, "--out", "in.pcap")
        # Rules in the native language, and which of them matches most.
        self.toml("given", "given.acl")
        (self.folder / "served.toml").write_text((self.folder / "given.toml").read_text())
        run = Run(self, True)
        try:
            client = Client(self.folder / "control")
            time.sleep(1)
            native = client.ask("show text", kind="acl", table="acl")["text"]
            most = client.ask("show rules", hits=True, order="hits", count=1)["rules"]
            client.close()
            run.end()
        finally:
            run.kill()
        # What changes is the first rule's port: what it costs to have such a rule is every list's alike.
        first = "deny tcp from 198.18.0.0/15 to any port {}\n".format
        (self.folder / "plain.acl").write_text(first(9) + native)
        lines = native.splitlines()
        rules = [i for i, line in enumerate(lines) if line and not line.startswith(("#", "define", "include"))]
        at = rules[most[0]["rule"] - 1] if most else rules[0]
        lines[at] += " log"
        for i in (0, 1):
            (self.folder / f"list{i}.acl").write_text(first(10 - i) + "\n".join(lines) + "\n")
        self.toml("plain", "plain.acl")

    def generate(self, *words):
        self.command(*words)
        self.generated.append("sluice " + " ".join(str(w) for w in words))

    def toml(self, name, acl):
        routes = ", ".join(f'"{name}"' for name in self.routes)
        (self.folder / f"{name}.toml").write_text(
            f'[ports]\nin = ["in.pcap"]\nrepeat = true\n[workers]\nworkers = {self.a.workers}\n'
            f'[tables]\nacl = "{acl}"\nroutes = [{routes}]\ndefault = "permit"\n')

    def input_hash(self):
        digest = hashlib.sha256()
        for name in ("given.acl", *self.routes, "in.pcap"):
            digest.update((self.folder / name).read_bytes())
        return f"sha256:{digest.hexdigest()}"

    # --- what it costs ---

    def rate(self, case):
        self.toml("served", "logged.acl" if case == "watched" else "plain.acl")
        # It may be another name of a list that is replaced by the next run.
        (self.folder / "logged.acl").unlink(missing_ok=True)
        (self.folder / "logged.acl").write_text((self.folder / "list0.acl").read_text())
        run = Run(self, case != "plain")
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if case == "beside" else None
        try:
            if case == "plain":
                # It has no socket that says when packets pass.
                time.sleep(self.start_seconds)
            looks = Looks(self, run) if case == "watched" else None
            time.sleep(self.a.seconds)
            done = looks.end() if looks is not None else {}
            report = run.end()
        finally:
            run.kill()
            if busy is not None:
                busy.kill()
                busy.wait()
        return report["packets_in"] / report["seconds"] / 1e6, done

    def cost(self):
        begin = time.monotonic()
        self.start_seconds = 0
        run = None
        try:
            self.toml("served", "plain.acl")
            run = Run(self, True)
            self.start_seconds = time.monotonic() - begin
            run.end()
        finally:
            if run is not None:
                run.kill()
        cases = ["plain", "served", "beside", "watched"]
        rates, did = {case: [] for case in cases}, {}
        for r in range(self.a.rounds):
            for case in cases if r % 2 == 0 else reversed(cases):
                rate, done = self.rate(case)
                rates[case].append(rate)
                for name, n in done.items():
                    did[name] = did.get(name, 0) + n
                print(f"round {r + 1}, {case}: {rate:.3f} Mpackets/s {done or ''}", file=sys.stderr)
        rows = []
        for case in cases:
            row = rounds.row(case, "Mpackets/s", rates[case])
            if case != "served":
                row |= {"peer": "served", "peer_median": statistics.median(rates["served"]), "of_peer": rounds.ratio(rates[case], rates["served"])}
            if case == "watched":
                row |= {"looks": did, "of_beside": rounds.ratio(rates[case], rates["beside"]), "of_plain_run": rounds.ratio(rates[case], rates["plain"])}
                expected = 0.8 * self.a.rounds * self.a.seconds
                row["late"] = sorted(name for name in ("metrics", "trace", "change") if did.get(name, 0) < expected)
            rows.append(row)
        return rows, []

    # --- how soon ---

    def effect(self):
        seconds = 60 * self.a.minutes
        self.toml("served", "plain.acl")
        other = (self.folder / "plain.acl").read_text().splitlines()
        (self.folder / "other.acl").write_text("\n".join(["deny tcp from 198.18.0.0/15 to any port 9", *other]) + "\n")
        files = {name: {"name": name, "folder": str(self.folder), "text": (self.folder / name).read_text()} for name in ("plain.acl", "other.acl")}
        run = Run(self, True)
        times = {"rule replaced": [], "access list replaced": [], f"{self.a.route_batch} routes changed": []}
        try:
            client = Client(self.folder / "control")
            begin = time.monotonic()
            rules = lists = changes = 0
            early, last = 0, 0
            if self.a.no_lists:
                del times["access list replaced"]
            route_period = self.a.route_batch / (100_000 / 60)
            while (now := time.monotonic() - begin) < seconds:
                if now >= seconds / 4 and early == 0:
                    early = run.memory()
                rule_due, route_due = rules * 0.6, changes * route_period
                list_due = seconds if self.a.no_lists else lists * 0.6 + 0.3
                due = min(rule_due, list_due, route_due)
                if due > now:
                    time.sleep(min(due, seconds) - now)
                    continue
                if rule_due == due:
                    rules += 1
                    change = f"replace 1 deny tcp from 198.18.{rules // 250 % 250}.{rules % 250} to any port 9"
                    name, asked = "rule replaced", ("acl change", {"table": "acl", "changes": change, "name": "bench"})
                elif list_due == due:
                    lists += 1
                    name, asked = "access list replaced", ("acl replace", {"table": "acl", "file": files["other.acl" if lists % 2 else "plain.acl"]})
                else:
                    verb = "add" if changes % 2 == 0 else "delete"
                    base = changes // 2 * self.a.route_batch
                    changes += 1
                    text = "\n".join(f"{verb} 198.{18 + (n >> 15 & 1)}.{n >> 7 & 255}.{(n & 127) * 2}/31" + (" via 192.0.2.1" if verb == "add" else "")
                                     for n in range(base, base + self.a.route_batch))
                    name, asked = f"{self.a.route_batch} routes changed", ("routes change", {"table": "fib", "changes": text, "name": "bench"})
                line = client.line(asked[0], **asked[1])  # which takes Python longer than it takes sluice
                sent = time.monotonic()
                client.send(asked[0], line)
                times[name].append((time.monotonic() - sent) * 1e6)
            last = run.memory()
            client.close()
            report = run.end()
        finally:
            run.kill()
        problems = []
        if report["packets_in"] != report["packets_out"] + report["dropped"]:
            problems.append("packets were lost")
        if last > early * 1.01:
            problems.append(f"memory has grown from {early} KiB to {last} KiB")
        if min(rules, rules if self.a.no_lists else lists) < 0.95 * seconds / 0.6 - 1 or changes < 0.95 * seconds / route_period:
            problems.append(f"{rules} rules, {lists} access lists and {changes} times {self.a.route_batch} routes were changed in {seconds:g} s: "
                            "not as many as there were to be")
        rows = []
        for name, values in times.items():
            values.sort()
            row = rounds.row(name, "us", values)
            row |= {f"p{p}_us": values[min(len(values) - 1, len(values) * p // 100)] for p in (50, 99)}
            rows.append(row)
        rows[0] |= {"packets_in": report["packets_in"], "lost": 0 if not problems else None, "memory_kib": [early, last], "seconds": report["seconds"]}
        return rows, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default="build/cpu/sluice", help="the program")
    parser.add_argument("--acl", default="", help="rule file; without it, 10,000 generated rules")
    parser.add_argument("--routes", default="", help="route files, with commas between; without them, 1,000,000 generated routes")
    parser.add_argument("--packets", type=int, default=200_000, help="of the capture that is repeated")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10, help="of each run")
    parser.add_argument("--reload", choices=("reload", "acl", "none"), default="reload", help="what changes once a second")
    parser.add_argument("--effect", action="store_true", help="how soon changes take effect, in place of what looking costs")
    parser.add_argument("--minutes", type=float, default=5, help="with --effect")
    parser.add_argument("--route-batch", type=int, default=20, help="with --effect: routes of one request")
    parser.add_argument("--no-lists", action="store_true", help="with --effect: no whole access list is replaced")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-windows-") as folder:
        bench = Bench(a, pathlib.Path(folder))
        try:
            bench.prepare()
            results, problems = bench.effect() if a.effect else bench.cost()
            said = json.loads(bench.command("doctor", "-o", "json"))
            digest = bench.input_hash()
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"bench_windows: {error}", file=sys.stderr)
            return 1
    words = ["scripts/bench_windows.py"] + [f"--{key} {getattr(a, key)}" for key in ("acl", "routes") if getattr(a, key)]
    words += [f"--effect --minutes {a.minutes:g} --route-batch {a.route_batch}" + (" --no-lists" if a.no_lists else "")] if a.effect else [f"--rounds {a.rounds} --seconds {a.seconds:g} --reload {a.reload}"]
    document = {
        "schema": 1, "name": a.name or ("windows_effect" if a.effect else "windows_cost"),
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "command": " ".join(words), "machine": said["machine"],
        "git": said["revision"], "seed": a.seed, "input_hash": digest, "checked": "every run is conserved; every request was answered without an error",
        "device": "cpu", "results": results}
    if bench.generated:
        document["generated"] = "; ".join(bench.generated)
    print(json.dumps(document, indent=2, ensure_ascii=False))
    for problem in problems:
        print(f"bench_windows: {problem}", file=sys.stderr)
    return 5 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
