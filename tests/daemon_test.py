#!/usr/bin/env python3
"""run --config FILE.toml --http ADDRESS, as who operates it uses it.  daemon_test.py SLUICE"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

SLUICE = str(pathlib.Path(sys.argv.pop(1)).resolve())
LIMIT_S = 600


def wrong_metrics(text):
    """What the rules of `promtool check metrics` find in a page of metrics: names, HELP, TYPE, base units, suffixes and labels."""
    other_units = {"nanoseconds", "microseconds", "milliseconds", "minutes", "hours", "days", "kilobytes", "megabytes", "gigabytes", "kibibytes",
                   "mebibytes", "bits", "percent", "celsius", "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "kib", "mib", "gib", "pct"}
    wrong, types, helps, seen = [], {}, set(), set()
    at = None
    for line in text.splitlines():
        if comment := re.fullmatch(r"# (HELP|TYPE) ([a-z][a-z0-9_]*) (.+)", line):
            what, at, said = comment.groups()
            if at in (helps if what == "HELP" else types):
                wrong.append(f"{at}: a second {what}")
            if what == "HELP":
                helps.add(at)
            else:
                types[at] = said
            continue
        sample = re.fullmatch(r"([a-z][a-z0-9_]*)(?:\{(.*)\})? (-?[0-9.]+(?:e[+-]?[0-9]+)?)", line)
        if not sample:
            wrong.append(f"no line of the format: {line}")
            continue
        name, labels, _ = sample.groups()
        part = re.fullmatch(r"(.+)_(bucket|sum|count)", name)
        if part and types.get(part.group(1)) == "histogram":
            name = part.group(1)
            if ("le=" in (labels or "")) != (part.group(2) == "bucket"):
                wrong.append(f"{line}: buckets, and they alone, have le")
        if line.rsplit(" ", 1)[0] in seen:
            wrong.append(f"given twice: {line}")
        seen.add(line.rsplit(" ", 1)[0])
        if name != at:
            wrong.append(f"{name}: its lines do not stand together behind its HELP and TYPE")
        if "quantile=" in (labels or ""):
            wrong.append(f"{name}: a quantile, which nobody can add up")
    for name, kind in types.items():
        parts = name.split("_")
        if name not in helps:
            wrong.append(f"{name}: without HELP")
        if kind not in ("counter", "gauge", "histogram"):
            wrong.append(f"{name}: of type {kind}")
        if (kind == "counter") != name.endswith("_total"):
            wrong.append(f"{name}: counters, and they alone, end in _total")
        if re.search(r"_(count|sum|bucket|info_total)$", name):
            wrong.append(f"{name}: ends as a part of a histogram does")
        if set(parts) & other_units:
            wrong.append(f"{name}: is not in a base unit")
        if set(parts) & {"counter", "gauge", "summary", "histogram"}:
            wrong.append(f"{name}: has its type in its name")
    return wrong + [f"{name}: without TYPE" for name in helps - set(types)]


class Daemon(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("edge.acl", "deny udp from any to any port 53\npermit tcp from any to any\npermit udp from any to any\n")
        self.write("rib.txt", "0.0.0.0/0 via 192.0.2.1\n")
        done = self.sluice("gen", "traffic", "--rules", "edge.acl", "--routes", "rib.txt", "--packets", "1000", "--ipv6", "0",
                           "--malformed", "0", "--out", "in.pcap")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write("sluice.toml", '[ports]\nin = ["in.pcap"]\nlimit = 1000000000000\nrepeat = true\n'
                                  '[tables]\nacl = "edge.acl"\nroutes = ["rib.txt"]\ndefault = "permit"\n')

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def sluice(self, *words):
        return subprocess.run([SLUICE, *words], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)

    def start(self, *words, **environment):
        """Runs until the test ends; the address of its page."""
        errors = open(self.folder / "run.err", "w+", encoding="utf-8")
        self.addCleanup(errors.close)
        with open(self.folder / "run.out", "w", encoding="utf-8") as out:
            self.run_ = subprocess.Popen([SLUICE, "run", "--config", "sluice.toml", "-o", "json", *words], cwd=self.folder,
                                         stdout=out, stderr=errors, env={**os.environ, **environment})
        self.addCleanup(self.run_.wait)
        self.addCleanup(self.run_.kill)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            said = (self.folder / "run.err").read_text(encoding="utf-8")
            found = re.search(r"live page (http://\S+)/", said)
            if found:
                return found.group(1)
            if self.run_.poll() is not None:
                self.fail(said)
            time.sleep(0.05)
        self.fail("no address: " + said)

    def get(self, url, token=None):
        request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token} if token else {})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.read().decode()

    def test_every_window_is_open_while_packets_pass_and_the_run_ends_clean(self):
        url = self.start("--http", "127.0.0.1:0", "--control", "s")
        self.assertEqual(self.get(url + "/healthz"), "ok\n")
        end = time.monotonic() + LIMIT_S
        report = {"packets_in": 0}
        while report["packets_in"] == 0 and time.monotonic() < end:
            report = json.loads(self.get(url + "/api/v1/report"))
            time.sleep(0.1)
        self.assertGreater(report["packets_in"], 0)
        self.assertEqual({t["kind"] for t in report["tables"]}, {"acl", "routes", "adjacency"})
        names = {e["name"] for e in report["elements"]}
        self.assertTrue(report["edges"])
        self.assertTrue(all(e["from"] in names and e["to"] in names for e in report["edges"]))
        for path in json.loads(self.get(url + "/api/v1"))["paths"]:
            if path in ("qos", "routes"):
                continue
            self.assertIsInstance(json.loads(self.get(f"{url}/api/v1/{path}")), dict, path)
        rules = json.loads(self.get(url + "/api/v1/rules?hits=true&order=hits&count=2"))["rules"]
        self.assertTrue(rules and rules[0]["packets"] > 0)
        self.assertTrue(json.loads(self.get(url + "/api/v1/routes?for=8.8.8.8")))
        metrics = self.get(url + "/metrics")
        for line in metrics.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) (sluice|process)_\w+ .+|(sluice|process)_\w+(\{(\w+="([^"\\]|\\.)*",?)+\})? [0-9.e+-]+)$')
        self.assertIn("sluice_packets_in_total ", metrics)
        self.assertIn('reason="acl-deny"', metrics)
        self.assertEqual(wrong_metrics(metrics), [])
        page = self.get(url + "/")
        self.assertTrue(page.startswith("<!doctype html>") and page.rstrip().endswith("</html>"))
        self.assertNotRegex(page, r'(src|href)="(?!data:)')
        for path in ("/nothing", "/api/v1/ruels", "/api/v1/rules?count=x", "/api/v1/rules?nope=1"):
            with self.assertRaises(urllib.error.HTTPError) as wrong:
                self.get(url + path)
            self.assertIn(wrong.exception.code, (400, 404))
            wrong.exception.close()
        done = self.sluice("acl", "add", "acl", "deny", "icmp", "from", "any", "to", "any", "--socket", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        last = json.loads((self.folder / "run.out").read_text())
        self.assertTrue(last["conserved"])

    def promtool(self, metrics):
        """What promtool says of them; without promtool, nothing, and the test says so."""
        if not shutil.which("promtool"):
            return None
        done = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True, timeout=LIMIT_S)
        return (done.returncode, done.stdout + done.stderr)

    def finished(self, *words):
        """A run that has forwarded its capture and waits; its address."""
        self.write("sluice.toml", '[ports]\nin = ["in.pcap"]\nout = ["out.pcap"]\n[process]\nwait = true\n'
                                  '[tables]\nacl = "edge.acl"\nroutes = ["rib.txt"]\ndefault = "permit"\n')
        url = self.start("--http", "127.0.0.1:0", *words)
        end = time.monotonic() + LIMIT_S
        while json.loads(self.get(url + "/api/v1/report"))["packets_in"] < 1000:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        return url

    def test_a_quantile_recovers_from_the_histograms(self):
        url = self.finished()
        metrics = self.get(url + "/metrics")
        report = json.loads(self.get(url + "/api/v1/report"))
        for name in ("latency", "through"):
            buckets = [(float(le), int(n)) for le, n in re.findall(rf'^sluice_{name}_seconds_bucket{{le="(\S+)"}} (\d+)$', metrics, re.M)]
            self.assertEqual(buckets, sorted(buckets))
            self.assertEqual([n for _, n in buckets], sorted(n for _, n in buckets))
            count = int(re.search(rf"^sluice_{name}_seconds_count (\d+)$", metrics, re.M).group(1))
            self.assertEqual((buckets[-1], count), ((float("inf"), count), 1000))
            total = float(re.search(rf"^sluice_{name}_seconds_sum (\S+)$", metrics, re.M).group(1))
            self.assertTrue(0 < total <= 1000 * report[f"{name}_ns"]["max"] / 1e9)
            for quantile, field in ((0.5, "p50"), (0.99, "p99")):
                at = next(i for i, (_, n) in enumerate(buckets) if n >= quantile * count)
                said = report[f"{name}_ns"][field] / 1e9
                # In the bucket that the report's quantile lies in, whose ends are at most a quarter apart, above 1 us.
                self.assertLessEqual(said, buckets[at][0] * 1.02)
                if 0 < at and buckets[at][0] != float("inf"):
                    self.assertGreaterEqual(said, buckets[at - 1][0])
                    self.assertLess(buckets[at][0] / buckets[at - 1][0], 1.26)

    def test_metrics_say_what_the_process_takes_and_which_rules_match(self):
        url = self.finished()
        metrics = self.get(url + "/metrics")
        value = lambda name: float(re.search(rf"^{name} (\S+)$", metrics, re.M).group(1))
        status = pathlib.Path(f"/proc/{self.run_.pid}/status").read_text()
        self.assertLess(abs(value("process_resident_memory_bytes") / 1024 - int(re.search(r"VmRSS:\s+(\d+)", status).group(1))), 64 * 1024)
        self.assertTrue(0 < value("process_cpu_seconds_total") < LIMIT_S)
        self.assertTrue(0 < value("process_open_fds") <= value("process_max_fds"))
        self.assertTrue(time.time() - 2 * LIMIT_S < value("process_start_time_seconds") <= time.time() + 1)
        self.assertRegex(metrics, r'(?m)^sluice_build_info\{version="[\d.]+",revision="[^"]+"\} 1$')
        rules = {place: int(n) for place, n in re.findall(r'^sluice_rule_packets_total\{table="acl",place="\S*edge.acl:(\d+)",.*\} (\d+)$', metrics, re.M)}
        hits = json.loads(self.get(url + "/api/v1/rules?hits=true"))["rules"]
        self.assertEqual(rules, {str(r["line"]): r["packets"] for r in hits if r["packets"]})
        self.assertTrue(rules)
        self.assertIn('reason="acl-deny",kind="policy"', metrics)
        # A process that confines itself to its files still says what it takes.
        self.assertGreater(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"))

    def rules(self):
        return [r["text"] for r in json.loads(self.sluice("show", "rules", "-o", "json", "--control", "s").stdout)["rules"]]

    def test_a_reload_takes_effect_whole_or_not_at_all(self):
        self.start("--http", "127.0.0.1:0", "--control", "s", "--workers", "2")
        self.write("edge.acl", "deny tcp from any to any\npermit udp from any to any\n")
        self.write("rib.txt", "0.0.0.0/0 via 192.0.2.1\n10.0.0.0/8 via 192.0.2.9\n")
        done = self.sluice("reload", "--control", "s", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        generation = json.loads(done.stdout)["generation"]
        self.assertEqual(generation, 2)
        self.assertEqual({t["kind"]: t["entries"] for t in json.loads(done.stdout)["tables"]}["routes"], 2)
        self.assertEqual(self.rules(), ["deny tcp from any to any", "permit udp from any to any"])
        before = (self.rules(), self.sluice("show", "tables", "-o", "json", "--control", "s").stdout)
        # Errors of all files are shown, with their places, and nothing has changed.
        self.write("edge.acl", "deny tcp frm any to any\npermit upd from any to any\n")
        self.write("rib.txt", "0.0.0.0/0 via 192.0.2.1\n10.0.0.0/88 via 192.0.2.9\n")
        (self.folder / "sluice.toml").write_text((self.folder / "sluice.toml").read_text().replace(
            "limit = 1000000000000", "limit = 1000000000001") + "[workers]\nbatch = 17\n")
        done = self.sluice("reload", "--control", "s")
        self.assertEqual(done.returncode, 1)
        for place in ("edge.acl:1:10", "edge.acl:2:8", "rib.txt:2:", "'batch'", "'limit'", "restart needed", "nothing was changed"):
            self.assertIn(place, done.stderr)
        self.assertEqual((self.rules(), self.sluice("show", "tables", "-o", "json", "--control", "s").stdout), before)
        self.run_.send_signal(signal.SIGHUP)
        end = time.monotonic() + LIMIT_S
        while "SIGHUP: nothing was changed" not in (self.folder / "run.err").read_text() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertIn("SIGHUP: nothing was changed", (self.folder / "run.err").read_text())
        # The file is mended, and SIGHUP reads it again.
        self.write("edge.acl", "permit udp from any to any\n")
        self.write("rib.txt", "0.0.0.0/0 via 192.0.2.1\n")
        (self.folder / "sluice.toml").write_text((self.folder / "sluice.toml").read_text().replace(
            "limit = 1000000000001", "limit = 1000000000000").replace("[workers]\nbatch = 17\n", ""))
        self.run_.send_signal(signal.SIGHUP)
        while self.rules() != ["permit udp from any to any"] and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.rules(), ["permit udp from any to any"])
        # A live change that stands in no file is undone; live changes go on.
        self.assertEqual(self.sluice("acl", "add", "acl", "deny", "icmp", "from", "any", "to", "any", "--control", "s").returncode, 0)
        self.assertEqual(len(self.rules()), 2)
        self.assertEqual(self.sluice("reload", "--control", "s").returncode, 0)
        self.assertEqual(len(self.rules()), 1)
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        last = json.loads((self.folder / "run.out").read_text())
        self.assertTrue(last["conserved"])
        self.assertEqual(last["packets_in"], last["packets_out"] + last["dropped"])

    def settle(self):
        """Until what was written is older than the clock of any file system is coarse."""
        newest = max(one.stat().st_ctime for one in self.folder.iterdir())
        time.sleep(max(0, newest + 2.1 - time.time()))

    def test_a_reload_reads_what_was_written_and_what_was_changed(self):
        self.settle()
        self.start("--http", "127.0.0.1:0", "--control", "s")

        def reload(*words):
            done = self.sluice("reload", "--control", "s", "-o", "json", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            return {t["kind"]: t["change"] for t in json.loads(done.stdout)["tables"]}

        same = {"acl": "unchanged", "routes": "unchanged", "adjacency": "unchanged"}
        self.assertEqual(reload(), same)
        self.assertEqual(self.sluice("reload", "--control", "s").stdout.count(" unchanged"), 3)
        self.write("new.acl", "deny tcp from any to any\npermit udp from any to any\n")
        os.rename(self.folder / "new.acl", self.folder / "edge.acl")
        self.assertEqual(reload(), {**same, "acl": "replaced"})
        self.assertEqual(self.rules(), ["deny tcp from any to any", "permit udp from any to any"])
        self.settle()
        reload()  # what was just written when it was read is read once more
        self.assertEqual(reload(), same)
        # A change that stands in no file is undone, though the file is the same.
        done = self.sluice("routes", "add", "fib", "10.0.0.0/8", "via", "192.0.2.9", "--control", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(reload(), {**same, "routes": "replaced", "adjacency": "replaced"})
        # What is read and says the same is no change: no packet meets another generation.
        before = self.sluice("show", "tables", "-o", "json", "--control", "s").stdout
        self.write("rib.txt", (self.folder / "rib.txt").read_text())
        self.assertEqual(reload("--all"), same)
        self.assertRegex(self.sluice("reload", "--control", "s").stdout, "^no change, generation [0-9]+ stays\n")
        self.assertEqual(json.loads(self.sluice("show", "tables", "-o", "json", "--control", "s").stdout)["generation"], json.loads(before)["generation"])
        self.run_.send_signal(signal.SIGHUP)
        end = time.monotonic() + LIMIT_S
        while "SIGHUP: " not in (self.folder / "run.err").read_text() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertRegex((self.folder / "run.err").read_text(), "SIGHUP: no change, generation [0-9]+ stays, .*routes 'fib' unchanged")
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        self.assertTrue(json.loads((self.folder / "run.out").read_text())["conserved"])

    def test_what_changes_nothing_is_said_to_and_counters_stay(self):
        self.start("--http", "127.0.0.1:0", "--control", "s")

        def hits():
            return json.loads(self.sluice("show", "rules", "--hits", "-o", "json", "--control", "s").stdout)

        end = time.monotonic() + LIMIT_S
        while sum(r["packets"] for r in hits()["rules"]) == 0 and time.monotonic() < end:
            time.sleep(0.05)
        before = hits()
        for words in (["acl", "replace", "acl", "edge.acl"], ["acl", "replace", "acl", str(self.folder / "edge.acl")],
                      ["acl", "replace", "acl", "edge.acl", "--dry-run"], ["routes", "replace", "fib", "rib.txt"],
                      ["routes", "add", "fib", "0.0.0.0/0", "via", "192.0.2.1", "source", "static", "preference", "1"]):
            done = self.sluice(*words, "--control", "s")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, "^no change(: generation 1 stays)?\n", words)
        tables = json.loads(self.sluice("show", "tables", "-o", "json", "--control", "s").stdout)
        self.assertEqual(tables["generation"], 1)
        self.assertEqual({(t["changed_in_generation"], t["unsaved"]) for t in tables["tables"]}, {(0, False)})
        after = hits()
        self.assertEqual(after["removed"], {"packets": 0, "bytes": 0})
        self.assertTrue(all(a["packets"] >= b["packets"] for a, b in zip(after["rules"], before["rules"])))
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        self.assertNotIn("not saved", (self.folder / "run.err").read_text())

    def test_nobody_who_looks_waits_for_a_table_that_is_read(self):
        """A route file that is a FIFO: the reload that reads it goes on when this test lets it."""
        url = self.start("--http", "127.0.0.1:0", "--control", "s")
        os.remove(self.folder / "rib.txt")
        os.mkfifo(self.folder / "rib.txt")
        reload = subprocess.Popen([SLUICE, "reload", "--control", "s", "-o", "json"], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.addCleanup(reload.wait)
        self.addCleanup(reload.kill)
        with open(self.folder / "rib.txt", "w", encoding="utf-8") as fifo:  # once it is open on the other side
            change = subprocess.Popen([SLUICE, "acl", "add", "acl", "deny", "icmp", "from", "any", "to", "any", "--control", "s"],
                                      cwd=self.folder, stdout=subprocess.PIPE, text=True)
            self.addCleanup(change.wait)
            self.addCleanup(change.kill)
            # Every window, and twice, so that none of them is what it was before.
            counted = []
            for _ in range(2):
                self.assertEqual(self.get(url + "/healthz"), "ok\n")
                counted.append(int(re.search(r"^sluice_packets_in_total (\d+)$", self.get(url + "/metrics"), re.M).group(1)))
                for path in json.loads(self.get(url + "/api/v1"))["paths"]:
                    if path not in ("qos", "routes"):
                        self.assertIsInstance(json.loads(self.get(f"{url}/api/v1/{path}")), dict, path)
                self.assertTrue(json.loads(self.get(url + "/api/v1/routes?for=8.8.8.8")))
                for words in (["show", "runtime"], ["show", "rules", "--hits"], ["show", "drops"], ["show", "ports"], ["show", "tables"],
                              ["show", "routes", "8.8.8.8"], ["show", "adjacencies"], ["show", "log"], ["graph", "show"],
                              ["trace", "add", "3"], ["show", "trace"], ["clear", "counters", "drops"], ["top", "--times", "1"]):
                    done = self.sluice(*words, "--control", "s")
                    self.assertEqual(done.returncode, 0, (words, done.stderr))
                time.sleep(0.25)  # what was last asked for is given again for a moment
            self.assertGreater(counted[1], counted[0])
            self.assertIsNone(reload.poll())
            self.assertIsNone(change.poll(), "changes are made one after another")
            fifo.write("0.0.0.0/0 via 192.0.2.1\n10.0.0.0/8 via 192.0.2.9\n")
        self.assertEqual(reload.wait(LIMIT_S), 0)
        self.assertEqual({t["kind"]: t["entries"] for t in json.loads(reload.stdout.read())["tables"]}["routes"], 2)
        self.assertEqual(change.wait(LIMIT_S), 0)
        reload.stdout.close()
        change.stdout.close()
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        self.assertTrue(json.loads((self.folder / "run.out").read_text())["conserved"])

    def test_a_run_that_ends_says_which_changes_end_with_it(self):
        for saved in (False, True):
            self.start("--http", "127.0.0.1:0", "--control", "s")
            done = self.sluice("acl", "add", "acl", "deny", "icmp", "from", "any", "to", "any", "--control", "s")
            self.assertEqual(done.returncode, 0, done.stderr)
            if saved:
                done = self.sluice("save", "--control", "s")
                self.assertEqual(done.returncode, 0, done.stderr)
            self.run_.send_signal(signal.SIGTERM)
            self.assertEqual(self.run_.wait(LIMIT_S), 0)
            said = (self.folder / "run.err").read_text()
            self.assertEqual("not saved, and lost with this process: acl 'acl'\n" in said, not saved, said)

    CLASSES = "# edge\nclass voice dscp ef rate 20Mbps burst 10000  # calls\nclass rest dscp others\nport rate 2Gbps\n"

    def test_rates_that_were_changed_are_saved(self):
        self.write("edge.qos", self.CLASSES)
        self.write("sluice.toml", 'qos = "edge.qos"\n' + (self.folder / "sluice.toml").read_text())

        def control(*words):
            done = self.sluice(*words, "--control", "s")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        self.start("--http", "127.0.0.1:0", "--control", "s")
        control("qos", "set", "voice", "rate", "30Mbps")
        control("qos", "set", "rest", "rate", "1500kbps")
        control("acl", "add", "acl", "deny icmp from any to any")
        done = control("save")
        self.assertIn("edge.qos: classes of service\n", done)
        self.assertIn("edge.acl: access list 'acl', 4 rules\n", done)
        saved = self.CLASSES.replace("20Mbps", "30Mbps").replace("others", "others rate 1500kbps")
        self.assertEqual((self.folder / "edge.qos").read_text(), saved)
        self.assertEqual(control("save"), "nothing was changed since its files were read\n")
        # A rate of one port stands in no file: nothing is saved, the access list neither.
        control("qos", "set", "voice", "rate", "unlimited", "--port", "2")
        control("acl", "delete", "acl", "1")
        refused = self.sluice("save", "--control", "s")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("edge.qos: error: classes of service: a rate was set for one port alone", refused.stderr)
        self.assertIn("deny icmp", (self.folder / "edge.acl").read_text())
        self.assertEqual((self.folder / "edge.qos").read_text(), saved)
        # Another file, and a rate on top of it; --to, and back in the file of the configuration.
        self.write("other.qos", "class one dscp others\n")
        control("qos", "load", "other.qos")
        control("qos", "set", "port", "rate", "1Gbps")
        (self.folder / "to").mkdir()
        self.assertRegex(control("save", "--to", "to"), r'to/classes\.qos: classes of service; in the configuration: qos = "/.*/to/classes\.qos"\n')
        self.assertEqual((self.folder / "to/classes.qos").read_text(), "class one dscp others\nport rate 1Gbps\n")
        self.assertEqual((self.folder / "edge.qos").read_text(), saved)
        control("save")
        self.assertEqual((self.folder / "edge.qos").read_text(), "class one dscp others\nport rate 1Gbps\n")
        control("reload")
        # A file that somebody wrote since stays.
        control("qos", "set", "port", "rate", "2Gbps")
        self.write("edge.qos", self.CLASSES)
        self.assertIn("has been written since it was read", self.sluice("save", "--control", "s").stderr)
        self.assertEqual((self.folder / "edge.qos").read_text(), self.CLASSES)
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        self.assertIn("lost with this process: classes of service\n", (self.folder / "run.err").read_text())

    def test_check_shows_all_that_is_wrong_in_a_configuration_and_its_files(self):
        self.write("bad.toml", 'worker = 4\n[ports]\nin = ["in.pcap"]\nfrobnicate = true\n[tabels]\nx = 1\n[tables]\nacl = "bad.acl"\n'
                               'routes = ["bad.txt"]\nadjacencies = "bad.adj"\ndefault = "denyy"\n'
                               '[process]\nhttp = "127.0.0.1:99999"\n[workers]\nworkers = -3\n[qos]\nqos = "bad.qos"\n')
        self.write("bad.acl", "deny tcp frm any to any\npermit upd from any to any\n")
        self.write("bad.txt", "10.0.0.0/88 via 1.2.3.4\n")
        self.write("bad.adj", "192.0.2.1 nonsense\n")
        self.write("bad.qos", "clas voice\n")
        done = self.sluice("check", "bad.toml")
        self.assertEqual(done.returncode, 1, done.stderr)
        for place in ("bad.toml:1:1: ", "bad.toml:4:1: ", "bad.toml:5:2: ", "bad.toml:11:11: ", "bad.toml:13:8: ", "bad.toml:15:11: ",
                      "bad.acl:1:10: ", "bad.acl:2:8: ", "bad.txt:1:1: ", "bad.adj:1:", "bad.qos:1:1: "):
            self.assertIn(place, done.stderr)
        self.assertIn("6 errors in bad.toml; ", done.stderr)
        # A file that cannot be read hides no other.
        self.write("bad.toml", '[tables]\nacl = "gone.acl"\nroutes = ["gone.txt", "bad.txt"]\nadjacencies = "bad.adj"\n')
        done = self.sluice("check", "bad.toml")
        self.assertEqual(done.returncode, 3)
        for place in ("gone.acl", "gone.txt", "bad.txt:1:1: ", "bad.adj:1:"):
            self.assertIn(place, done.stderr)
        self.assertEqual(self.sluice("check", "sluice.toml").returncode, 0)

    def test_check_takes_several_adjacency_files_as_run_does(self):
        self.write("one.adj", "192.0.2.1 02:00:00:00:00:0a 02:00:00:00:00:01 0\n")
        self.write("two.adj", "192.0.2.2 02:00:00:00:00:0b 02:00:00:00:00:02 0\n")
        self.write("two.toml", '[ports]\nin = ["in.pcap"]\n[tables]\nroutes = ["two.txt"]\nadjacencies = "one.adj,two.adj"\n')
        self.write("two.txt", "10.0.0.0/8 192.0.2.1\n11.0.0.0/8 192.0.2.2\n")
        done = self.sluice("check", "two.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("one.adj,two.adj: no errors", done.stdout)
        self.write("two.adj", "192.0.2.2 nonsense\n")
        done = self.sluice("check", "two.toml")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("one.adj+two.adj:2:", done.stderr)

    def test_a_list_that_fits_takes_the_place_of_a_short_one(self):
        done = self.sluice("gen", "rules", "--shape", "acl", "--count", "20000", "--out", "many.acl")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.start("--http", "127.0.0.1:0", "--control", "s", "--max-memory", "25MiB")
        done = self.sluice("acl", "replace", "acl", "many.acl", "--control", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.sluice("gen", "rules", "--shape", "acl", "--count", "400000", "--out", "many.acl")
        done = self.sluice("acl", "replace", "acl", "many.acl", "--control", "s")
        self.assertEqual(done.returncode, 1)
        self.assertIn("more than the limit of 25.0 MiB", done.stderr)
        self.assertGreater(len(json.loads(self.sluice("show", "rules", "--count", "30000", "-o", "json", "--control", "s").stdout)["rules"]), 15000)

    def test_without_a_file_there_is_nothing_to_reload(self):
        errors = open(self.folder / "plain.err", "w", encoding="utf-8")
        self.addCleanup(errors.close)
        run = subprocess.Popen([SLUICE, "run", "--acl", "edge.acl", "--in", "in.pcap", "--repeat", "--control", "s"], cwd=self.folder,
                               stdout=errors, stderr=errors)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        end = time.monotonic() + LIMIT_S
        while self.sluice("show", "runtime", "--control", "s").returncode != 0 and time.monotonic() < end:
            time.sleep(0.05)
        done = self.sluice("reload", "--control", "s")
        self.assertEqual(done.returncode, 1)
        self.assertIn("without --config", done.stderr)
        run.send_signal(signal.SIGHUP)
        self.assertIsNotNone(run.wait(LIMIT_S))

    def test_traced_packets_say_what_became_of_them_and_why(self):
        for way in ([], ["--workers", "3"], ["--device", "emu"], ["--priorities"]):
            with self.subTest(way=way):
                url = self.start("--http", "127.0.0.1:0", "--control", "s", *way)
                done = self.sluice("trace", "add", "20", "udp", "from", "any", "to", "any", "port", "53", "--control", "s")
                self.assertEqual(done.returncode, 0, done.stderr)
                end = time.monotonic() + LIMIT_S
                trace = {"packets": []}
                while len(trace["packets"]) < 20 and time.monotonic() < end:
                    trace = json.loads(self.sluice("show", "trace", "-o", "json", "--control", "s").stdout)
                self.assertEqual(len(trace["packets"]), 20)
                for packet in trace["packets"]:
                    self.assertEqual(packet["fate"]["reason"], "acl-deny")
                    self.assertTrue(packet["agrees"])
                    rule = packet["explanation"]["packets"][0]["rule"]
                    self.assertEqual((rule["file"], rule["line"]), ("edge.acl", 1))
                self.assertEqual(any(p["on_device"] for p in trace["packets"]), way == ["--device", "emu"])
                text = self.sluice("show", "trace", "--control", "s").stdout
                self.assertIn("rule      edge.acl:1: deny udp from any to any port 53 (rule 1)", text)
                self.assertIn("fate      dropped: acl-deny at", text)
                self.assertEqual(len(json.loads(self.get(url + "/api/v1/trace"))["packets"]), 20)
                last = json.loads(self.get(url + "/api/v1/trace?count=3"))
                self.assertEqual((last["followed"], [p["number"] for p in last["packets"]]), (20, [18, 19, 20]))
                wrong = self.sluice("trace", "add", "5", "udp", "frm", "any", "--control", "s")
                self.assertEqual(wrong.returncode, 1)
                self.assertIn("'frm' is not 'from'", wrong.stderr)
                done = self.sluice("trace", "clear", "--control", "s")
                self.assertIn("20 packets forgotten", done.stdout)
                self.run_.send_signal(signal.SIGTERM)
                self.assertEqual(self.run_.wait(LIMIT_S), 0)
                self.assertTrue(json.loads((self.folder / "run.out").read_text())["conserved"])

    LOGGING = "deny udp from any to any port 53 log\npermit tcp from any to any\npermit udp from any to any\n"

    def test_rules_with_log_say_which_packets_they_decided(self):
        for way in ([], ["--workers", "3"], ["--device", "emu"], ["--priorities"]):
            with self.subTest(way=way):
                self.write("edge.acl", self.LOGGING)
                url = self.start("--http", "127.0.0.1:0", "--control", "s", "--log-rate", "5", *way)
                end = time.monotonic() + LIMIT_S
                said = {"events": [], "not_logged": 0}
                while (len(said["events"]) < 5 or said["not_logged"] == 0) and time.monotonic() < end:
                    said = json.loads(self.sluice("show", "log", "-o", "json", "--control", "s").stdout)
                self.assertGreater(said["not_logged"], 0)
                for event in said["events"]:
                    self.assertEqual((event["table"], event["rule"], event["file"], event["line"], event["verdict"]),
                                     ("acl", 1, "edge.acl", 1, "deny"))
                    self.assertEqual((event["proto"], event["dest_port"], event["input"]), (17, 53, "in"))
                    self.assertGreater(event["bytes"], event["ip_bytes"])
                self.assertEqual([e["number"] for e in said["events"]], list(range(1, len(said["events"]) + 1)))
                text = self.sluice("show", "log", "--count", "2", "--control", "s").stdout.splitlines()
                self.assertRegex(text[0], r"^\S+ \S+Z deny udp \S+ > \S+:53, \d+ bytes, acl edge.acl:1 \(rule 1\), from in$")
                self.assertEqual(len(text), 3)
                self.assertGreater(len(json.loads(self.get(url + "/api/v1/log?after=0&count=3"))["events"]), 0)
                # Another rule in front of it: its packets are still its own.
                done = self.sluice("acl", "add", "acl", "permit", "icmp", "from", "any", "to", "any", "--at", "1", "--control", "s")
                self.assertEqual(done.returncode, 0, done.stderr)
                while said["events"][-1]["rule"] != 2 and time.monotonic() < end:
                    said = json.loads(self.sluice("show", "log", "-o", "json", "--control", "s").stdout)
                self.assertEqual((said["events"][-1]["rule"], said["events"][-1]["line"]), (2, 1))
                # One that asks for a log while packets pass, and one that no longer does.
                self.write("tcp.acl", "deny udp from any to any port 53\npermit tcp from any to any log\npermit udp from any to any\n")
                done = self.sluice("acl", "replace", "acl", "tcp.acl", "--control", "s")
                self.assertEqual(done.returncode, 0, done.stderr)
                while said["events"][-1]["file"] != "tcp.acl" and time.monotonic() < end:
                    said = json.loads(self.sluice("show", "log", "-o", "json", "--control", "s").stdout)
                last = said["events"][-1]
                self.assertEqual((last["rule"], last["line"], last["verdict"], last["proto"]), (2, 2, "permit", 6))
                rules = json.loads(self.sluice("show", "rules", "--hits", "-o", "json", "--control", "s").stdout)["rules"]
                self.assertGreater(rules[1]["packets"], 0)
                self.run_.send_signal(signal.SIGTERM)
                self.assertEqual(self.run_.wait(LIMIT_S), 0)
                self.assertTrue(json.loads((self.folder / "run.out").read_text())["conserved"])
                log = (self.folder / "run.err").read_text()
                self.assertRegex(log, r"log: \S+ \S+Z deny udp \S+ > \S+:53, \d+ bytes, acl edge.acl:1 \(rule 1\), from in\n")
                self.assertRegex(log, r"log: [0-9,]+ more packets? not logged, acl edge.acl:1 \(rule \d\)\n")

    def test_a_log_is_followed_until_the_run_ends(self):
        self.write("edge.acl", self.LOGGING)
        self.start("--http", "127.0.0.1:0", "--control", "s", "--log-rate", "50")
        following = subprocess.Popen([SLUICE, "show", "log", "--follow", "-o", "json", "--control", "s"], cwd=self.folder,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(following.wait)
        self.addCleanup(following.kill)
        events = []
        while len(events) < 200:
            line = following.stdout.readline()
            self.assertTrue(line)
            events.append(json.loads(line))
        numbers = [e["number"] for e in events if "number" in e]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        self.assertTrue(any("not_logged" in e for e in events))
        interrupted = subprocess.Popen([SLUICE, "show", "log", "--follow", "--control", "s"], cwd=self.folder,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assertTrue(interrupted.stdout.readline())
        interrupted.send_signal(signal.SIGINT)
        interrupted.stdout.read()
        self.assertEqual(interrupted.wait(LIMIT_S), 130)
        interrupted.stdout.close()
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        following.stdout.read()
        following.stdout.close()
        self.assertEqual(following.wait(LIMIT_S), 3)

    def test_without_a_socket_events_go_to_the_log(self):
        self.write("edge.acl", self.LOGGING)
        counts = self.sluice("run", "--acl", "edge.acl", "--routes", "rib.txt", "--in", "in.pcap", "--hits", "-")
        denied = int(re.search(r"^(\d+) \d+ acl:1 ", counts.stdout, re.M).group(1))
        self.assertGreater(denied, 20)
        for rate, words in (("1000000", []), ("7", []), ("7", ["--workers", "2"]), ("7", ["--device", "emu"])):
            with self.subTest(rate=rate, words=words):
                done = self.sluice("run", "--acl", "edge.acl", "--routes", "rib.txt", "--in", "in.pcap", "--log-rate", rate, *words)
                self.assertEqual(done.returncode, 0, done.stderr)
                logged = len(re.findall(r"^log: .* deny udp .* acl edge.acl:1 \(rule 1\), from in$", done.stderr, re.M))
                missed = sum(int(n.replace(",", "")) for n in re.findall(r"^log: ([0-9,]+) more packets? not logged", done.stderr, re.M))
                self.assertEqual(logged + missed, denied)
                self.assertEqual(missed == 0, rate == "1000000")
        self.assertNotIn("log:", self.sluice("run", "--acl", "edge.acl", "--routes", "rib.txt", "--in", "in.pcap", "--quiet").stderr)
        wrong = self.sluice("run", "--acl", "edge.acl", "--routes", "rib.txt", "--in", "in.pcap", "--log-rate", "0")
        self.assertEqual(wrong.returncode, 2)

    def capture(self, *words, **more):
        return subprocess.Popen([SLUICE, "capture", "start", "--control", "s", *words], cwd=self.folder, text=True,
                                stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **more})

    def captured(self, name):
        """The interface and the comment of every packet, as tshark reads them."""
        done = subprocess.run(["tshark", "-r", name, "-T", "fields", "-e", "frame.interface_name", "-e", "frame.comment"],
                              cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def wait_for_packets(self):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            said = json.loads(self.sluice("show", "capture", "-o", "json", "--control", "s").stdout)
            if said["captured"] > 0:
                return
            time.sleep(0.05)
        self.fail("nothing was captured")

    def end_run(self):
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        self.assertTrue(json.loads((self.folder / "run.out").read_text())["conserved"])

    def test_captured_packets_have_their_fate_as_comment(self):
        for way in ([], ["--workers", "3"], ["--device", "emu"]):
            with self.subTest(way=way):
                self.start("--http", "127.0.0.1:0", "--control", "s", *way)
                self.assertEqual(self.sluice("trace", "add", "5", "--control", "s").returncode, 0)
                one = self.capture("--dropped", "--count", "200", "--out", "d.pcapng")
                said = one.communicate(timeout=LIMIT_S)
                self.assertEqual(one.returncode, 0, said)
                lines = self.captured("d.pcapng")
                self.assertEqual(len(lines), 200)
                for line in lines:
                    self.assertRegex(line, r"^\S+\tdropped: acl-deny at \S+, rule edge\.acl:1$")
                with open(self.folder / "all.pcapng", "wb") as pipe:
                    one = self.capture("--count", "50", "--snaplen", "40", "--out", "-", *"tcp from any to any".split(),
                                       stdout=pipe)
                    one.communicate(timeout=LIMIT_S)
                self.assertEqual(one.returncode, 0)
                lines = self.captured("all.pcapng")
                self.assertEqual(len(lines), 50)
                self.assertTrue(all("left by" in line or "dropped" in line for line in lines), lines)
                self.end_run()

    def test_a_capture_ends_whole_by_stop_by_a_signal_and_with_the_run(self):
        for how in ("stop", "signal", "run"):
            with self.subTest(how=how):
                self.start("--http", "127.0.0.1:0", "--control", "s")
                one = self.capture("-o", "json", "--dropped", "--out", "c.pcapng")
                self.wait_for_packets()
                if how == "stop":
                    self.assertEqual(self.sluice("capture", "stop", "--control", "s").returncode, 0)
                elif how == "signal":
                    # The run answers late: the capture waits for it beyond the time after which others end at once.
                    self.run_.send_signal(signal.SIGSTOP)
                    one.send_signal(signal.SIGINT)
                    time.sleep(1)
                    self.run_.send_signal(signal.SIGCONT)
                else:
                    self.end_run()
                out, err = one.communicate(timeout=LIMIT_S)
                self.assertEqual(one.returncode, 0, err)
                said = json.loads(out)
                self.assertEqual(said["ended"], "the run ended" if how == "run" else "it was stopped")
                self.assertEqual(len(self.captured("c.pcapng")), said["packets"])
                self.assertGreater(said["packets"], 0)
                if how != "run":
                    self.end_run()

    def test_a_capture_that_cannot_be_written_ends_and_the_run_goes_on(self):
        self.start("--http", "127.0.0.1:0", "--control", "s")
        one = self.capture("--out", "/dev/full")
        _, err = one.communicate(timeout=LIMIT_S)
        self.assertEqual(one.returncode, 3, err)
        self.assertIn("/dev/full: ", err)
        limited = "ulimit -f 64; trap '' XFSZ; exec \"$0\" capture start --control s --out small.pcapng"
        done = subprocess.run(["bash", "-c", limited, SLUICE], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("small.pcapng", done.stderr)
        self.assertFalse((self.folder / "small.pcapng").exists())
        for wrong in (["--dropped-at", "nowhere"], ["udp", "frm", "any"]):
            one = self.capture("--out", "w.pcapng", *wrong)
            _, err = one.communicate(timeout=LIMIT_S)
            self.assertEqual(one.returncode, 1, err)
            self.assertFalse((self.folder / "w.pcapng").exists())
        self.end_run()

    def test_clients_that_say_nothing_keep_nobody_out(self):
        url = self.start("--http", "127.0.0.1:0")
        host, port = url[7:].split(":")
        silent = [socket.create_connection((host, int(port)), timeout=LIMIT_S) for _ in range(200)]
        self.assertEqual(self.get(url + "/healthz"), "ok\n")
        for one in silent:
            one.close()

    def test_the_command_line_wins_over_the_file(self):
        self.write("sluice.toml", '[ports]\nin = "absent.pcap"\n[tables]\nacl = "edge.acl"\n')
        done = self.sluice("run", "--config", "sluice.toml", "--in", "in.pcap", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["packets_in"], 1000)

    def test_all_errors_of_a_file_are_shown_where_they_are(self):
        self.write("bad.toml", 'acll = "x"\nworkers = "many"\n[tables]\nbatch = 3\nrepeat = true\nuser = "me"\nicmp-denied = 1\n'
                               '[portz]\nin = 1\n')
        for command in (["check", "bad.toml"], ["run", "--config", "bad.toml"]):
            done = self.sluice(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            for place in ("bad.toml:1:1", "bad.toml:2:", "bad.toml:4:1", "bad.toml:5:1", "bad.toml:6:1", "bad.toml:7:", "bad.toml:8:2"):
                self.assertIn(place, done.stderr)
            self.assertIn("did you mean 'acl'?", done.stderr)
        self.write("broken.toml", "[tables\n")
        done = self.sluice("check", "broken.toml")
        self.assertEqual(done.returncode, 1)
        self.assertIn("broken.toml:1:", done.stderr)

    def test_errors_of_all_tables_are_shown(self):
        self.write("edge.acl", "".join(f"deny tcp frm any to any port {n}\n" for n in range(5)))
        self.write("rib.txt", "".join(f"10.{n}.0.0/88 via 192.0.2.9\n" for n in range(5)))
        done = self.sluice("check", "sluice.toml")
        self.assertEqual(done.returncode, 1)
        for n in range(1, 6):
            self.assertIn(f"edge.acl:{n}:10", done.stderr)
            self.assertIn(f"rib.txt:{n}:", done.stderr)

    def test_a_good_file_is_checked(self):
        done = self.sluice("check", "sluice.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("edge.acl: 3 rules", done.stdout)

    def test_another_machine_needs_a_token(self):
        done = self.sluice("run", "--config", "sluice.toml", "--http", "0.0.0.0:0")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.write("token", "0123456789abcdef0123\n")
        url = self.start("--http", "127.0.0.1:0", "--http-token", "token")
        for token in (None, "wrong-wrong-wrong-wrong"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.get(url + "/metrics", token)
            self.assertEqual(refused.exception.code, 401)
            refused.exception.close()
        self.assertIn("sluice_info", self.get(url + "/metrics", "0123456789abcdef0123"))
        self.assertIn("with a wrong token", (self.folder / "run.err").read_text())

    def test_the_dashboard_asks_for_what_metrics_gives(self):
        board = json.loads((pathlib.Path(__file__).parent.parent / "packaging/grafana/sluice.json").read_text())
        expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        asked = {name for one in expressions for name in re.findall(r"\b(?:sluice|process)_\w+", one)}
        self.assertEqual({v["name"] for v in board["templating"]["list"]}, {"datasource", "job", "instance"})
        names = lambda metrics: set(re.findall(r"^((?:sluice|process)_\w+)[{ ]", metrics, re.M))
        # Packets that wait in a queue are only where there is one.
        self.write("queue.click", "FromDump(in.pcap) -> t :: Tee; t[0] -> Queue(1000) -> Idle; t[1] -> Discard;\n")
        self.write("sluice.toml", 'graph = "queue.click"\nwait = true\n')
        url = self.start("--http", "127.0.0.1:0")
        end = time.monotonic() + LIMIT_S
        given = set()
        while "sluice_packets_queued" not in given and time.monotonic() < end:
            waits = self.get(url + "/metrics")
            given = names(waits)
            time.sleep(0.05)
        self.assertIn("sluice_packets_queued", given)
        # Ports are in a namespace of the test's own, where it scrapes as well.
        self.write("scrape.sh", """set -e
            ip link set lo up
            ip link add near type veth peer name far
            ip link set near up
            ip link set far up
            "$1" run --acl edge.acl --in near --out near --http 127.0.0.1:9090 -o json 2> live.err > live.out &
            while kill -0 $!; do
              if python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9090/metrics").read().decode())' 2> /dev/null; then break; fi
              sleep 0.1
            done
            kill $!
            wait $!
            """)
        for namespace in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
            if subprocess.run([*namespace, "true"], capture_output=True).returncode == 0:
                break
        else:
            self.skipTest("no network namespace here (root, or user namespaces)")
        done = subprocess.run([*namespace, "sh", "scrape.sh", SLUICE], cwd=self.folder, capture_output=True, text=True, timeout=2 * LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr + (self.folder / "live.err").read_text())
        # Rules are there once they have matched.
        rules = names(self.get(self.finished() + "/metrics"))
        self.assertIn("sluice_rule_packets_total", rules)
        live = names(done.stdout) | rules
        self.assertIn("sluice_port_up", live)
        self.assertEqual(wrong_metrics(waits) + wrong_metrics(done.stdout.rstrip("\n")), [])
        self.assertEqual(asked - given - live, set())
        # And what there is is shown; of the times that batches wait and packets take the mean is left out.
        self.assertEqual((given | live) - asked, {f"sluice_{name}_seconds_{part}" for name in ("wait", "through") for part in ("sum", "count")})
        if self.promtool(waits) is None:
            self.skipTest("all but promtool was asked: there is none here (Debian package prometheus)")
        # As Prometheus parses them, with what Grafana puts in place of its variables.
        written = [one.replace("$__rate_interval", "1m").replace("$job", "a").replace("$instance", "b") for one in expressions]
        self.write("rules.yml", json.dumps({"groups": [{"name": "dashboard", "rules": [{"record": f"panel:{n}", "expr": e} for n, e in enumerate(written)]}]}))
        checked = subprocess.run(["promtool", "check", "rules", self.folder / "rules.yml"], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn(f"{len(written)} rules found", checked.stdout)
        for metrics in (waits, done.stdout.rstrip("\n") + "\n", self.get(re.search(r"live page (http://\S+)/", (self.folder / "run.err").read_text()).group(1) + "/metrics")):
            self.assertEqual(self.promtool(metrics), (0, ""))

    def manager(self, name):
        """A service manager's socket, which is read only by `told`."""
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind("\0" + name[1:] if name.startswith("@") else name)
        manager.settimeout(LIMIT_S)
        return manager

    def told(self, manager, what):
        """Reads until a message has a line that matches; that message. None of the others says that the run ends."""
        while True:
            message = manager.recv(4096).decode()
            if any(re.fullmatch(what, line) for line in message.splitlines()):
                return message
            self.assertNotIn("STOPPING=1", message)

    def test_a_service_manager_is_told_how_the_run_is(self):
        for name in (str(self.folder / "notify"), "@sluice-daemon-test-%d" % os.getpid()):
            with self.subTest(name=name):
                manager = self.manager(name)
                self.start("--http", "127.0.0.1:0", "--control", "s", "--workers", "2", NOTIFY_SOCKET=name, WATCHDOG_USEC="500000")
                self.told(manager, "READY=1")
                # Whoever is told that it is ready finds its control socket open.
                self.assertEqual(self.sluice("show", "runtime", "--control", "s").returncode, 0)
                for _ in range(3):
                    self.told(manager, "WATCHDOG=1")
                self.told(manager, r"STATUS=RX [1-9][0-9,]* pps, TX [0-9,]+ pps, drops [0-9,]+ pps")
                for reload in (lambda: self.run_.send_signal(signal.SIGHUP), lambda: self.sluice("reload", "--control", "s")):
                    before = time.monotonic_ns() // 1000
                    reload()
                    message = self.told(manager, "RELOADING=1")
                    since = int(re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", message).group(1))
                    self.assertGreaterEqual(since, before)
                    self.assertLessEqual(since, time.monotonic_ns() // 1000)
                    self.told(manager, "READY=1")
                # One that fails has ended, too.
                self.write("edge.acl", "deny tcp frm any to any\n")
                self.assertEqual(self.sluice("reload", "--control", "s").returncode, 1)
                self.told(manager, "RELOADING=1")
                self.told(manager, "READY=1")
                self.write("edge.acl", "permit tcp from any to any\n")
                self.run_.send_signal(signal.SIGTERM)
                self.told(manager, "STOPPING=1")
                self.assertEqual(self.run_.wait(LIMIT_S), 0)
                manager.setblocking(False)
                with self.assertRaises(BlockingIOError):
                    manager.recv(4096)

    def test_a_run_without_windows_is_told_of_as_well(self):
        manager = self.manager(str(self.folder / "notify"))
        run = subprocess.Popen([SLUICE, "run", "--config", "sluice.toml"], cwd=self.folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify")})
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        self.told(manager, "READY=1")
        # A watchdog that nobody asked for is not fed.
        self.assertNotIn("WATCHDOG", self.told(manager, "STATUS=RX [1-9].*"))
        run.send_signal(signal.SIGTERM)
        self.told(manager, "STOPPING=1")
        self.assertEqual(run.wait(LIMIT_S), 0)

    def test_without_a_service_manager_there_is_no_socket(self):
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        for more, sockets in (({}, False), ({"NOTIFY_SOCKET": str(self.folder / "absent")}, True)):
            ready = self.folder / f"ready{sockets}"
            run = subprocess.Popen([SLUICE, "run", "--config", "sluice.toml", "--ready-file", str(ready)], cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env={**environment, **more, "WATCHDOG_USEC": "1000"})
            self.addCleanup(run.kill)
            end = time.monotonic() + LIMIT_S
            while not ready.exists() and time.monotonic() < end:
                time.sleep(0.02)
            links = [os.readlink(one) for one in pathlib.Path(f"/proc/{run.pid}/fd").iterdir()]
            self.assertEqual(any(link.startswith("socket:") for link in links), sockets, links)
            run.send_signal(signal.SIGTERM)
            said = run.communicate(timeout=LIMIT_S)[1]
            self.assertEqual(run.returncode, 0, said)
            # A manager that is not there is said once, however often it would be told.
            self.assertEqual(said.count("NOTIFY_SOCKET="), 1 if sockets else 0, said)

    def test_a_service_manager_that_does_not_read_keeps_no_run_from_its_work(self):
        name = str(self.folder / "notify")
        manager = self.manager(name)
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(stranger.close)
        stranger.setblocking(False)
        with self.assertRaises(BlockingIOError):
            while True:
                stranger.sendto(b"X_FULL=1", name)
        url = self.start("--http", "127.0.0.1:0", "--control", "s", NOTIFY_SOCKET=name, WATCHDOG_USEC="20000")
        end = time.monotonic() + LIMIT_S
        while json.loads(self.get(url + "/api/v1/report"))["packets_in"] == 0 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertGreater(json.loads(self.get(url + "/api/v1/report"))["packets_in"], 0)
        self.assertEqual(self.sluice("reload", "--control", "s").returncode, 0)
        # What it has to know reaches it when it reads again, in order.
        self.told(manager, "READY=1")
        self.told(manager, "RELOADING=1")
        self.told(manager, "READY=1")
        self.told(manager, "WATCHDOG=1")
        with self.assertRaises(BlockingIOError):
            while True:
                stranger.sendto(b"X_FULL=1", name)
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0)
        self.assertTrue(json.loads((self.folder / "run.out").read_text())["conserved"])

    def test_a_worker_that_hangs_leaves_the_watchdog_without_a_sign(self):
        manager = self.manager(str(self.folder / "notify"))
        os.mkfifo(self.folder / "out.fifo")
        reader = os.open(self.folder / "out.fifo", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.start("--http", "127.0.0.1:0", "--out", "out.fifo", NOTIFY_SOCKET=str(self.folder / "notify"), WATCHDOG_USEC="500000")
        self.told(manager, "READY=1")
        # Nobody reads the pipe, and a worker waits for room in it.
        self.told(manager, "STATUS=a thread .*did not answer.*")
        for _ in range(2):
            self.assertNotIn("WATCHDOG", manager.recv(4096).decode())
        manager.setblocking(False)
        end = time.monotonic() + LIMIT_S
        message = ""
        while "WATCHDOG=1" not in message and time.monotonic() < end:
            try:
                message = manager.recv(4096).decode()
            except BlockingIOError:
                pass
            try:
                os.read(reader, 1 << 16)
            except BlockingIOError:
                time.sleep(0.001)
        self.assertIn("WATCHDOG=1", message)

    def test_a_name_that_is_no_socket_is_said_and_the_run_goes_on(self):
        done = subprocess.run([SLUICE, "run", "--acl", "edge.acl", "--in", "in.pcap"], cwd=self.folder, capture_output=True, text=True,
                              timeout=LIMIT_S, env={**os.environ, "NOTIFY_SOCKET": "nowhere"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NOTIFY_SOCKET=nowhere names no socket", done.stderr)


if __name__ == "__main__":
    unittest.main()
