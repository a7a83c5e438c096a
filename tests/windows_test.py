#!/usr/bin/env python3
"""The windows of a running process as who operates it uses them: looked at again and again, cleared, saved, top.
windows_test.py SLUICE"""
import fcntl
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

SLUICE = str(pathlib.Path(sys.argv.pop(1)).resolve())
LIMIT_S = 60

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

    def start(self, *words, config=True):
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
            if done.returncode == 0 and json.loads(done.stdout)["packets_out"] > 0:
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
        for window, column in (("runtime", "dropped/s"), ("drops", "packets/s"), ("tables", "changed in")):
            looks = self.good("show", window, "--interval", "0.1", "--times", "3", "--control", "s")
            self.assertNotIn("\x1b", looks)
            self.assertEqual(looks.count(column), 3, looks)
        looks = self.good("show", "runtime", "--interval", "0.1", "--times", "2", "--control", "s")
        self.assertTrue(looks.count("now ") == 2 and "now - packets/s" in looks)
        rate = re.findall(r"^now ([\d,]+) packets/s in, ([\d,]+) out", looks, re.M)
        self.assertEqual(len(rate), 1, looks)
        self.assertGreater(int(rate[0][0].replace(",", "")), 0)
        rules = self.good("show", "rules", "--by-hits", "--interval", "0.1", "--times", "2", "--control", "s")
        self.assertEqual(rules.count("packets/s"), 2)
        self.assertNotIn("packets/s", self.good("show", "rules", "--hits", "--control", "s"))

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
