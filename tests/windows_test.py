#!/usr/bin/env python3
"""The windows of a running process as who operates it uses them: looked at again and again, cleared, saved, top.
windows_test.py SLUICE"""
import fcntl
import gzip
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import urllib.request

SLUICE = str(pathlib.Path(sys.argv.pop(1)).resolve())
LIMIT_S = 600

RULES = "deny udp from any to any port 53\npermit tcp from any to any\npermit udp from any to any\n"
ROUTES = "0.0.0.0/0 via 192.0.2.1\n"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, words, folder, rows=24, columns=80):
        self.master, slave = pty.openpty()
        self.slave = slave  # its settings are looked at
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen([SLUICE, *words], cwd=folder, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.1):
        if select.select([self.master], [], [], seconds)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")

    def until(self, pattern):
        """Waits for the pattern in what came since the last call; what came with it."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            found = re.search(pattern, self.text, re.S)
            if found:
                seen, self.text = self.text[:found.end()], self.text[found.end():]
                return seen
            self.read()
        raise AssertionError(f"no {pattern!r} in {self.text!r}")

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self):
        """The exit code, once it has ended by itself."""
        end = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read(0)
        return self.process.wait(1)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class Run(unittest.TestCase):
    """A configured run that goes on until the test ends."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("edge.acl", RULES)
        self.write("rib.txt", ROUTES)
        self.good("gen", "traffic", "--rules", "edge.acl", "--routes", "rib.txt", "--packets", "1000", "--ipv6", "0",
                  "--malformed", "0", "--out", "in.pcap")
        self.write("sluice.toml", '[ports]\nin = ["in.pcap"]\nlimit = 1000000000000\nrepeat = true\n'
                                  '[tables]\nacl = "edge.acl"\nroutes = ["rib.txt"]\ndefault = "permit"\n')

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def read(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def sluice(self, *words, stdin=None):
        return subprocess.run([SLUICE, *words], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S,
                              input=stdin)

    def good(self, *words, stdin=None):
        done = self.sluice(*words, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ask(self, *words):
        return json.loads(self.good(*words, "-o", "json", "--control", "s"))

    def start(self, *words, config=True, some_out=True):
        """Until packets have come in and out."""
        errors = open(self.folder / "run.err", "w+", encoding="utf-8")
        self.addCleanup(errors.close)
        out = open(self.folder / "run.out", "w", encoding="utf-8")
        self.addCleanup(out.close)
        configured = ["--config", "sluice.toml"] if config else []
        self.run_ = subprocess.Popen([SLUICE, "run", *configured, "-o", "json", "--control", "s", *words],
                                     cwd=self.folder, stdout=out, stderr=errors)
        self.addCleanup(self.run_.wait)
        self.addCleanup(self.run_.kill)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            done = self.sluice("show", "runtime", "-o", "json", "--control", "s")
            if done.returncode == 0 and (not some_out or json.loads(done.stdout)["packets_out"] > 0):
                return
            if self.run_.poll() is not None:
                break
            time.sleep(0.05)
        self.fail(self.read("run.err"))

    def stop(self):
        """Its report."""
        self.run_.send_signal(signal.SIGTERM)
        self.assertEqual(self.run_.wait(LIMIT_S), 0, self.read("run.err"))
        return json.loads(self.read("run.out"))

    def popen(self, *words, **options):
        process = subprocess.Popen([SLUICE, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def terminal(self, *words, **size):
        made = Terminal(words, self.folder, **size)
        self.addCleanup(made.close)
        return made


class Again(Run):
    """show WHAT --interval."""

    def test_a_window_is_repeated_with_rates_in_a_pipe(self):
        self.start()
        for window, column in (("runtime", "dropped/s"), ("drops", "pps"), ("tables", "changed in")):
            looks = self.good("show", window, "--interval", "0.1", "--times", "3", "--control", "s")
            self.assertNotIn("\x1b", looks)
            self.assertEqual(looks.count(column), 3, looks)
        looks = self.good("show", "runtime", "--interval", "0.1", "--times", "2", "--control", "s")
        self.assertTrue(looks.count("now ") == 2 and "now - pps" in looks)
        rate = re.findall(r"^now ([\d,]+) pps in, ([\d,]+) out", looks, re.M)
        self.assertEqual(len(rate), 1, looks)
        self.assertGreater(int(rate[0][0].replace(",", "")), 0)
        rules = self.good("show", "rules", "--by-hits", "--interval", "0.1", "--times", "2", "--control", "s")
        self.assertEqual(rules.count("pps"), 2)
        self.assertNotIn("pps", self.good("show", "rules", "--hits", "--control", "s"))

    def test_json_is_a_line_each_time(self):
        self.start()
        lines = self.good("show", "drops", "--interval", "0.1", "--times", "3", "-o", "json", "--control", "s").splitlines()
        looks = [json.loads(line) for line in lines]
        self.assertEqual(len(looks), 3)
        for before, after in zip(looks, looks[1:]):
            self.assertLess(before["unix_seconds"], after["unix_seconds"])
            self.assertLessEqual(before["packets_in"], after["packets_in"])

    def test_a_terminal_shows_it_in_place_and_cut_to_its_size(self):
        self.start()
        shown = self.terminal("show", "runtime", "--interval", "0.1", "--control", "s", rows=8, columns=30)
        frame = shown.until(r"\x1b\[H.*?\x1b\[J")
        frame = shown.until(r"\x1b\[H.*?\x1b\[J")
        lines = re.sub(r"\x1b\[\d*[HJK]", "", frame).replace("\r", "").split("\n")
        self.assertLessEqual(len(lines), 8)
        self.assertTrue(all(len(line) <= 30 for line in lines), lines)
        self.assertRegex(frame, r"\(\d+ more lines\)")
        shown.type("\x03")
        self.assertEqual(shown.end(), 130)

    def test_it_ends_with_its_reader_with_a_signal_and_with_the_run(self):
        self.start()
        reader = self.popen("show", "drops", "--interval", "3600", "--control", "s")
        self.assertIn("dropped", reader.stdout.readline())
        reader.stdout.close()  # while it waits for the next time
        self.assertEqual(reader.wait(LIMIT_S), 3)
        self.assertEqual(reader.stderr.read(), "")
        interrupted = self.popen("show", "drops", "--interval", "3600", "--control", "s")
        interrupted.stdout.readline()
        interrupted.send_signal(signal.SIGINT)
        self.assertEqual(interrupted.wait(LIMIT_S), 130)
        self.assertEqual(interrupted.stderr.read(), "")
        left = self.popen("show", "drops", "--interval", "0.1", "--control", "s")
        left.stdout.readline()
        self.stop()
        self.assertEqual(left.wait(LIMIT_S), 3)
        self.assertRegex(left.stderr.read(), "^error: s: ")

    def test_wrong_words_are_told(self):
        for words, said in ((["--times", "3"], "--times needs --interval"), (["--interval", "0"], "--interval: '0' is not"),
                            (["--interval", "nan"], "--interval: 'nan' is not"),
                            (["--interval", "1", "--times", "0"], "--times: '0' is not")):
            done = self.sluice("show", "runtime", *words, "--control", "s")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)
        with open("/dev/full", "w") as full:
            self.start()
            done = subprocess.run([SLUICE, "show", "drops", "--interval", "1", "--control", "s"], cwd=self.folder,
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 3)
            self.assertIn("No space left", done.stderr)


class Clear(Run):
    """clear counters."""

    def metric(self, url, name):
        with urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S) as answer:
            return int(re.search(rf"^sluice_{name} (\d+)$", answer.read().decode(), re.M).group(1))

    def test_windows_count_from_there_for_everybody_and_the_run_counts_on(self):
        self.start("--http", "127.0.0.1:0", "--top-rules", "3", "--hits", "hits.txt")
        url = re.search(r"live page (http://\S+)/", self.read("run.err")).group(1)
        total = self.metric(url, "packets_in_total")
        before = {w: self.ask("show", *w) for w in (("runtime",), ("drops",), ("rules", "--hits"), ("ports",))}
        self.assertNotIn("cleared_seconds_ago", json.dumps(before[("runtime",)]))
        # One window, and no other.
        self.assertEqual(self.ask("clear", "counters", "drops"), {"cleared": ["drops"]})
        drops = self.ask("show", "drops")
        self.assertIn("cleared_seconds_ago", drops)
        self.assertEqual(drops["dropped"], sum(d["packets"] for d in drops["drops"]))
        self.assertGreaterEqual(self.ask("show", "runtime")["packets_in"], before[("runtime",)]["packets_in"])
        self.assertNotIn("cleared_seconds_ago", self.ask("show", "rules", "--hits"))
        # What came since is less than what the run has, by what it had when it was cleared.
        at_least = self.metric(url, "packets_in_total")
        self.assertEqual(self.ask("clear", "counters")["cleared"], ["runtime", "drops", "rules", "ports", "latency"])
        runtime = self.ask("show", "runtime")
        rules = self.ask("show", "rules", "--hits")
        outputs = self.ask("show", "ports")["outputs"]
        end = time.monotonic() + LIMIT_S
        while (now := self.metric(url, "packets_in_total")) < runtime["packets_in"] + at_least and time.monotonic() < end:
            time.sleep(0.05)  # what was last asked for is given again for a moment
        self.assertGreaterEqual(now, runtime["packets_in"] + at_least)
        self.assertGreater(at_least, total - 1)
        self.assertLess(runtime["seconds"], runtime["cleared_seconds_ago"] + 1)
        self.assertEqual([e["name"] for e in runtime["elements"]], [e["name"] for e in before[("runtime",)]["elements"]])
        # All windows were cleared at one moment and looked at one after another.
        since = sum(r["packets"] for r in rules["rules"]) + rules["no_match"]["packets"]
        later = self.ask("show", "runtime")
        self.assertLessEqual(runtime["packets_in"], later["packets_in"])
        self.assertLessEqual(since, later["packets_in"])
        self.assertLessEqual(outputs[0]["packets"], later["packets_out"])
        self.assertRegex(self.good("show", "runtime", "--control", "s"), r"cleared [\d.]+ \w+ ago")
        # By HTTP the windows are the same, and the report of the run is not cleared.
        with urllib.request.urlopen(url + "/api/v1/drops", timeout=LIMIT_S) as answer:
            self.assertIn("cleared_seconds_ago", json.loads(answer.read()))
        with urllib.request.urlopen(url + "/api/v1/report", timeout=LIMIT_S) as answer:
            self.assertGreaterEqual(json.loads(answer.read())["packets_in"], at_least)
        report = self.stop()
        self.assertGreater(report["packets_in"], at_least)
        self.assertEqual(report["packets_in"], report["packets_out"] + report["dropped"])
        counted = sum(r["packets"] for t in json.loads(self.read("hits.txt"))["hits"]
                      for r in t["rules"] + [t["no_match"], t["removed"]])
        self.assertEqual(counted, report["packets_in"], "the counts at the end are of the whole run")

    def test_a_finished_run_counts_nothing_since(self):
        self.write("few.toml", '[ports]\nin = ["in.pcap"]\nout = ["out.pcap"]\n[process]\nwait = true\n'
                               '[tables]\nacl = "edge.acl"\nroutes = ["rib.txt"]\n')
        self.start("--config", "few.toml", config=False)
        end = time.monotonic() + LIMIT_S
        while self.ask("show", "runtime")["packets_in"] < 1000 and time.monotonic() < end:
            time.sleep(0.05)
        self.good("clear", "counters", "--control", "s")
        runtime = self.ask("show", "runtime")
        self.assertEqual([runtime[f] for f in ("packets_in", "bytes_in", "packets_out", "bytes_out", "dropped")], [0] * 5)
        self.assertEqual(runtime["latency_ns"], {"p50": 0, "p99": 0, "p999": 0, "max": 0})
        self.assertEqual({(e["packets"], e["bytes"], str(e["drops"])) for e in runtime["elements"]}, {(0, 0, "{}")})
        self.assertEqual(self.ask("show", "drops")["drops"], [])
        self.assertEqual({r["packets"] for r in self.ask("show", "rules", "--hits")["rules"]}, {0})
        self.assertEqual(self.ask("show", "rules", "--by-hits")["rules"], [])
        self.assertEqual({o["packets"] for o in self.ask("show", "ports")["outputs"]}, {0})
        # A rule keeps its count from then wherever it goes.
        self.good("acl", "add", "acl", "permit", "icmp", "from", "any", "to", "any", "--at", "1", "--control", "s")
        self.assertEqual({r["packets"] for r in self.ask("show", "rules", "--hits")["rules"]}, {0})
        report = self.stop()
        self.assertEqual(report["packets_in"], 1000)

    def test_wrong_words_are_told(self):
        done = self.sluice("clear", "counters", "everything", "--control", "s")
        self.assertEqual(done.returncode, 2)
        self.assertIn("runtime", done.stderr)
        done = self.sluice("clear", "counters", "--control", "s")
        self.assertEqual(done.returncode, 3)


class Save(Run):
    """save, and show rules --native."""

    COMMENTED = """# the edge
define resolvers = 53,853

deny udp from any to any port resolvers log   # no DNS
# the web
permit tcp from 10.0.0.0/8 to any port http,https
permit tcp from any to any
permit udp from any to any
# the end
"""
    ADJACENCIES = """# neighbours
192.0.2.1 02:00:00:00:00:01 02:00:00:00:00:02 1   # the upstream
192.0.2.9 02:00:00:00:00:09 02:00:00:00:00:02 2 mtu 9000
"""

    def setUp(self):
        super().setUp()
        self.write("edge.acl", self.COMMENTED)
        self.write("rib.txt", "# upstream\n0.0.0.0/0 via 192.0.2.1\n10.0.0.0/8 via 192.0.2.9 metric 20   # core\n"
                              "10.1.0.0/16 via 192.0.2.9\n")
        self.write("adj.txt", self.ADJACENCIES)
        self.write("sluice.toml", self.read("sluice.toml") + 'adjacencies = "adj.txt"\n')

    def control(self, *words):
        return self.good(*words, "--control", "s")

    def owner(self, name):
        status = os.stat(self.folder / name)
        return status.st_uid, status.st_gid

    def tables(self):
        """What a stranger sees of the tables, without what tells when and where they were read."""
        rules = self.ask("show", "rules")
        routes = {p: self.ask("show", "routes", p) for p in ("0.0.0.0/0", "10.2.3.4", "10.1.2.3", "192.0.2.0/24", "2001:db8::1",
                                                             "198.51.100.7")}
        for answer in routes.values():
            for route in answer.get("routes", []):
                route.pop("generation", None)
        return ([r["text"] for r in rules["rules"]], routes, self.ask("show", "adjacencies"))

    def change(self):
        self.control("acl", "add", "acl", "deny", "tcp", "from", "192.0.2.0/24", "to", "any", "port", "1000-2000", "log", "--at", "1")
        self.control("acl", "delete", "acl", "permit", "tcp", "from", "any", "to", "any")
        self.control("acl", "add", "acl", "mark(7)", "icmp", "from", "2001:db8::/32", "to", "any", "icmp-type", "8")
        self.control("routes", "add", "fib", "192.0.2.0/24", "via", "192.0.2.1")
        self.control("routes", "add", "fib", "10.1.0.0/16", "via", "192.0.2.1", "source", "ospf", "metric", "5")
        self.control("routes", "add", "fib", "2001:db8::/32", "via", "192.0.2.9", "source", "bgp", "preference", "77")
        self.control("routes", "delete", "fib", "10.0.0.0/8")
        self.control("adjacencies", "set", "adj", "192.0.2.9", "02:00:00:00:00:0a", "02:00:00:00:00:02", "3", "vlan", "12")
        self.control("adjacencies", "set", "adj", "10.9.9.9", "blackhole")

    def test_a_reload_and_a_restart_find_what_was_saved(self):
        os.chmod(self.folder / "edge.acl", 0o640)
        if os.geteuid() == 0:  # root keeps any owner, others their own
            os.chown(self.folder / "edge.acl", 65534, 65533)
        owner = self.owner("edge.acl")
        self.start()
        self.assertEqual(self.ask("save"), {"saved": []})
        self.change()
        before = self.tables()
        said = self.control("save")
        for line in ("edge.acl: access list 'acl', 7 rules", "rib.txt: route table 'fib', 4 routes", "adj.txt: adjacency table 'adj', "):
            self.assertIn(line, said)
        for again in range(2):  # what is saved is edited again
            self.assertEqual(self.ask("save")["saved"], [], "there is nothing more to save")
            text = self.read("edge.acl")
            for kept in ("# the edge", "define resolvers", "port resolvers log   # no DNS", "# the web", "port http,https", "# the end"):
                self.assertIn(kept, text)
            self.assertNotIn("permit tcp from any to any\n", text)
            self.assertEqual(text.splitlines()[0], "deny tcp from 192.0.2.0/24 to 0.0.0.0/0 port 1000-2000 log")
            self.assertIn("# upstream\n0.0.0.0/0 via 192.0.2.1\n", self.read("rib.txt"))
            self.assertNotIn("# core", self.read("rib.txt"))
            self.assertIn("# the upstream", self.read("adj.txt"))
            self.assertNotIn("mtu 9000", self.read("adj.txt"))
            self.assertEqual(os.stat(self.folder / "edge.acl").st_mode & 0o777, 0o640)
            self.assertEqual(self.owner("edge.acl"), owner)
            self.assertEqual([n for n in os.listdir(self.folder) if ".tmp" in n], [])
            self.control("reload")
            self.assertEqual(self.tables(), before)
            if again == 0:
                self.control("routes", "add", "fib", "198.51.100.0/24", "via", "192.0.2.9")
                self.control("routes", "add", "fib", "10.1.0.0/16", "via", "192.0.2.9", "source", "ospf", "metric", "5")
                before = self.tables()
                self.assertEqual([s["table"] for s in self.ask("save")["saved"]], ["fib"])
        report = self.stop()
        self.assertEqual(report["packets_in"], report["packets_out"] + report["dropped"])
        self.good("check", "sluice.toml")
        self.start()
        self.assertEqual(self.tables(), before)

    def test_without_a_change_the_files_are_not_touched(self):
        self.start()
        self.control("acl", "add", "acl", "permit", "gre", "from", "any", "to", "any", "--dry-run")
        self.sluice("acl", "delete", "acl", "99", "--control", "s")
        stamps = {n: os.stat(self.folder / n).st_mtime_ns for n in ("edge.acl", "rib.txt", "adj.txt")}
        self.assertIn("nothing was changed since its files were read", self.control("save"))
        self.assertEqual(stamps, {n: os.stat(self.folder / n).st_mtime_ns for n in stamps})

    def test_what_cannot_go_back_is_refused_and_nothing_is_written(self):
        self.start()
        self.change()
        mine = "# somebody else's edit\n" + self.COMMENTED
        self.write("edge.acl", mine)
        rib = self.read("rib.txt")
        done = self.sluice("save", "--control", "s")
        self.assertEqual(done.returncode, 1)
        for said in ("access list 'acl': edge.acl has been written since it was read", "nothing was saved", "save --to"):
            self.assertIn(said, done.stderr)
        self.assertEqual((self.read("edge.acl"), self.read("rib.txt")), (mine, rib))
        self.assertEqual([n for n in os.listdir(self.folder) if ".tmp" in n], [])
        # What it has is not lost: files of their own, which load again.
        before = self.tables()
        os.mkdir(self.folder / "saved")
        saved = self.ask("save", "--to", "saved")["saved"]
        self.assertEqual(sorted(os.path.basename(s["file"]) for s in saved), ["acl.acl", "adj.adjacencies", "fib.routes"])
        toml = self.read("sluice.toml")
        for table in saved:
            option = table["configuration"].split(" = ")[0]
            toml = re.sub(rf"^{option} = .*$", table["configuration"], toml, flags=re.M)
        self.stop()
        self.write("sluice.toml", toml)
        self.start()
        self.assertEqual(self.tables(), before)
        self.assertEqual(self.sluice("save", "--to", "nowhere/at/all", "--control", "s").returncode, 0, "nothing was changed")

    def test_files_of_other_kinds_are_refused_with_the_reason(self):
        compressed = gzip.compress(ROUTES.encode())
        (self.folder / "rib.txt.gz").write_bytes(compressed)
        self.write("more.acl", RULES)
        self.write("edge.acl", 'include "more.acl"\n')
        (self.folder / "adj.txt.gz").write_bytes(gzip.compress(self.ADJACENCIES.encode()))
        toml = self.read("sluice.toml").replace('["rib.txt"]', '["rib.txt", "rib.txt.gz"]').replace("adj.txt", "adj.txt.gz")
        self.write("sluice.toml", toml)
        self.start()
        self.control("acl", "add", "acl", "permit", "gre", "from", "any", "to", "any")
        self.control("routes", "add", "fib", "192.0.2.0/24", "via", "192.0.2.1")
        self.control("adjacencies", "set", "adj", "10.9.9.9", "blackhole")
        done = self.sluice("save", "--control", "s")
        self.assertEqual(done.returncode, 1)
        for said in ("edge.acl: error: access list 'acl': it includes more.acl", "adj.txt.gz is compressed (gzip)", "it comes from 2 files"):
            self.assertIn(said, done.stderr)
        self.assertEqual((self.folder / "rib.txt.gz").read_bytes(), compressed)

    def test_a_list_as_a_file_of_rules(self):
        self.start()
        self.change()
        text = self.control("show", "rules", "--native")
        self.write("again.acl", text)
        self.control("acl", "replace", "acl", "again.acl")
        self.assertEqual(self.control("show", "rules", "--native"), text)
        self.assertEqual(self.sluice("show", "rules", "--native", "--hits", "--control", "s").returncode, 2)


class Top(Run):
    """top, on a terminal and without one."""

    FRAME = r"\x1b\[H.*?\x1b\[J"
    BEGIN, END = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"

    def lines(self, frame):
        last = frame[frame.rindex("\x1b[H"):]
        return re.sub(r"\x1b\[[\d?]*[A-Za-z]", "", last).replace("\r", "").split("\n")

    def frame_with(self, shown, word):
        """The next frame that has the word."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            lines = self.lines(shown.until(self.FRAME))
            if any(word in line for line in lines):
                return lines
        self.fail(f"no frame with {word}")

    def same_settings(self, shown):
        now = termios.tcgetattr(shown.slave)
        self.assertEqual(now[:4], shown.before[:4])
        self.assertEqual(now[6], shown.before[6])

    def test_what_it_shows_and_what_its_keys_do(self):
        self.start()
        shown = self.terminal("top", "--interval", "0.1", "--control", "s", rows=50, columns=120)
        shown.until(re.escape(self.BEGIN))
        lines = self.frame_with(shown, "pps, out")
        text = "\n".join(lines)
        self.assertLessEqual(len(lines), 50)
        for said in ("standard graph on cpu x1", "elements: ", "drops: 1, by pps", "acl-deny", "ports: 1", "rules: ",
                     "deny udp from any to any port 53", "q quit"):
            self.assertIn(said, text)
        self.assertRegex(text, r"in [\d.]+ [kM]?pps, out [\d.]+ [kM]?pps, dropped [\d.]+ [kM]?pps")
        # The rows of the chosen pane are in order.
        rates = [int(l.split()[2].replace(",", "")) for l in lines if re.match(r"(in|input|acl_check|route|ttl|out) +[A-Z]\w+ ", l)]
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertEqual(len(rates), 6)
        shown.type("s")
        self.frame_with(shown, "elements: 9, by dropped/s")
        shown.type("\t")
        shown.until(r"\x1b\[7m drops")
        shown.type("\x1b[C")
        shown.until(r"\x1b\[7m ports")
        shown.type("\x1b[D\x1b[Z")
        shown.until(r"\x1b\[7m elements")
        shown.type("h")
        self.frame_with(shown, "this help, and back")
        shown.type("h")
        self.frame_with(shown, "elements: 9")
        shown.type("p")
        self.frame_with(shown, "PAUSED")
        shown.type("p")
        self.frame_with(shown, "every 0.1 s")
        shown.type("xyz\x1b\x00")  # keys that mean nothing
        shown.resize(24, 80)
        end = time.monotonic() + LIMIT_S
        while len(self.lines(shown.until(self.FRAME))) > 24:
            self.assertLess(time.monotonic(), end)
        shown.type("q")
        self.assertEqual(shown.end(), 0)
        self.assertTrue(shown.text.endswith(self.END), shown.text[-60:])
        self.same_settings(shown)

    def test_a_small_terminal_shows_the_chosen_pane(self):
        self.start()
        for rows, columns in ((24, 80), (10, 40), (4, 20), (1, 5)):
            shown = self.terminal("top", "--interval", "0.1", "--control", "s", rows=rows, columns=columns)
            shown.until(self.FRAME)
            lines = self.lines(shown.until(self.FRAME))
            self.assertLessEqual(len(lines), max(rows, 3))
            self.assertLessEqual(max(map(len, lines)), max(columns, 10))
            shown.type("q")
            self.assertEqual(shown.end(), 0)

    def test_whatever_ends_it_the_terminal_is_as_it_was(self):
        self.start()
        for end in ("\x03", signal.SIGTERM, signal.SIGHUP):
            shown = self.terminal("top", "--interval", "0.1", "--control", "s")
            shown.until(self.FRAME)
            shown.type(end) if isinstance(end, str) else shown.process.send_signal(end)
            self.assertEqual(shown.end(), 130)
            self.assertIn(self.END, shown.text)
            self.same_settings(shown)
        # The run crashes: the error stands on the screen that was there before.
        shown = self.terminal("top", "--interval", "0.1", "--control", "s")
        shown.until(self.FRAME)
        self.run_.kill()
        self.assertEqual(shown.end(), 3)
        self.assertRegex(shown.text, re.escape(self.END) + r"error: s: ")
        self.same_settings(shown)
        # There is none: nothing is drawn.
        shown = self.terminal("top", "--control", "s")
        self.assertEqual(shown.end(), 3)
        self.assertNotIn("\x1b", shown.text)

    def test_a_run_that_hangs_is_left_with_a_second_signal(self):
        self.start()
        shown = self.terminal("top", "--interval", "0.1", "--control", "s")
        shown.until(self.FRAME)
        self.run_.send_signal(signal.SIGSTOP)
        try:
            for _ in range(20):
                shown.type("\x03")
                shown.read(0.2)
                if shown.process.poll() is not None:
                    break
            shown.end()
            self.assertIn(self.END, shown.text)
            self.same_settings(shown)
        finally:
            self.run_.send_signal(signal.SIGCONT)

    def test_without_a_terminal_it_prints_frames_and_says_so(self):
        self.start()
        done = self.sluice("top", "--interval", "0.1", "--control", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not a terminal: one frame", done.stderr)
        self.assertNotIn("\x1b", done.stdout)
        self.assertEqual(done.stdout.count("sluice top:"), 1)
        for said in (" elements: ", " drops: ", " ports: ", " rules: "):
            self.assertIn(said, done.stdout)
        self.assertRegex(done.stdout, r"in [\d.]+ [kM]?pps")
        done = self.sluice("top", "--interval", "0.1", "--times", "3", "--control", "s")
        self.assertEqual((done.stdout.count("sluice top:"), done.stderr), (3, ""))
        with open("/dev/full", "w") as full:
            done = subprocess.run([SLUICE, "top", "--interval", "0.1", "--control", "s"], cwd=self.folder, stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 3)

    def test_a_graph_of_the_packet_scheduler(self):
        self.write("slow.click", "source :: RatedSource(DATA \\<00 01 02 03>, RATE 1000, LIMIT -1)\n"
                                 "  -> queue :: Queue(200) -> shaper :: RatedUnqueue(500) -> Discard;\n")
        self.start("slow.click", config=False, some_out=False)
        done = self.sluice("top", "--interval", "0.2", "--control", "s")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("shaper", done.stdout)
        self.good("clear", "counters", "--control", "s")
        self.assertIn("cleared_seconds_ago", self.ask("show", "runtime"))
        self.assertRegex(self.good("show", "runtime", "--interval", "0.1", "--times", "2", "--control", "s"), "pps")


if __name__ == "__main__":
    unittest.main(verbosity=2)
