#!/usr/bin/env python3
"""bench.py, with fake_vpp.py in VPP's place: what it prints, what it refuses, and that nothing is left behind it."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
import bench  # noqa: E402
import fake_vpp  # noqa: E402

FEW = ("--rules=4", "--masks=2", "--windows", "3", "--packets", "512", "--columns", "acl-plugin,cpu", "--cases", "^last/")


class InVpp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice_fake_vpp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = dict(os.environ, TMPDIR=str(self.folder), PYTHONDONTWRITEBYTECODE="1", **fake_vpp.make(folder.name))

    def start(self, *more, wrong=""):
        return subprocess.Popen([sys.executable, HERE.parent / "bench.py", *FEW, *more], env=dict(self.environment, FAKE_VPP=wrong),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_bench(self, *more, wrong=""):
        done = self.start(*more, wrong=wrong)
        out, err = done.communicate(timeout=1500)
        return done.returncode, out, err

    def vpps(self):
        """Processes that are this test's VPP."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
                mine = str(self.folder / "build").encode() in (path.parent / "environ").read_bytes()
            except OSError:
                continue
            if mine and b"vpp" in words and b"-c" in words:
                found.append(int(path.parent.name))
        return found

    def failed(self, code, *more, wrong=""):
        """What a run as the suite makes it says that ends with this code."""
        got, out, err = self.run_bench("-q", "-o", "json", *more, wrong=wrong)
        self.assertEqual((got, out), (code, ""), err)
        self.assertEqual(self.vpps(), [])
        return json.loads(err)["error"]["message"]

    def test_a_report_is_one_of_the_suite(self):
        code, out, err = self.run_bench("-q", "-o", "json", "--cases", "^(last|prefixes)/")
        self.assertEqual((code, err), (0, ""))
        report = json.loads(out)
        self.assertEqual(report["git"], fake_vpp.REVISION)
        self.assertEqual(report["verified"], {"sample": 2 * 2 * 512, "oracle": "linear", "mismatches": 0})
        rows = {row["case"]: row for row in report["results"]}
        self.assertEqual(sorted(rows), sorted(f"{case}, {column}" for column in ("acl-plugin", "sluice") for case in (
            "4 rules, 1 mask, last", "1024 rules, 2 masks, all")))
        own, peer = rows["4 rules, 1 mask, last, sluice"], rows["4 rules, 1 mask, last, acl-plugin"]
        # 256 packets of 40 clocks at 2 GHz.
        self.assertEqual(own["unit"], "us")
        self.assertEqual(len(own["values"]), 3)
        self.assertAlmostEqual(own["median"], 256 * 40 / 2000, 6)
        self.assertAlmostEqual(own["mpackets_per_second"], 50, 6)
        self.assertAlmostEqual(own["clocks_per_packet"], 40, 6)
        self.assertAlmostEqual(own["acl_plugin_ratio"], 3, 6)
        self.assertAlmostEqual(peer["median"], 256 * 120 / 2000, 6)
        self.assertNotIn("acl_plugin_ratio", peer)
        self.assertEqual(own["note"], "VPP 25.10-fake, tuple_merge, 1 tables")
        self.assertEqual(self.vpps(), [])
        self.assertEqual(list(self.folder.glob("vpp*")), [])

    def test_a_result_to_store_fits_its_schema(self):
        code, out, err = self.run_bench()
        self.assertEqual(code, 0, err)
        result = json.loads(out)
        self.assertEqual([row["case"] for row in result["results"]], ["last/4/acl-plugin", "last/4/cpu"])
        self.assertEqual(result["results"][1]["of_peer"], round(1 / 3, 3))
        self.assertEqual(bench.result_schema.problems_of(result, "vpp_acl"), [])

    def test_answers_other_than_those_of_a_linear_search_are_refused(self):
        for column in ("acl-plugin", "cpu"):
            said = self.failed(5, "--columns", column, wrong="counts")
            self.assertRegex(said, f"^{column}: .* rules have counted other packets")
        self.assertIn("counted other packets", self.failed(5, "--spoil-check"))

    def test_both_have_the_same_rules_of_a_list(self):
        path = self.folder / "mixed"
        # Flags of ICMP, of UDP and of all protocols; ports of ICMP and of all.
        path.write_text("".join(f"@10.{i}.0.0/16\t20.0.0.0/8\t{ports}\t{protocol}\t{flags}\n" for i, (ports, protocol, flags) in enumerate((
            ("0 : 65535\t80 : 80", "0x06/0xff", "0x0200/0x0200"), ("0 : 65535\t0 : 65535", "0x01/0xff", "0x0d00/0xff00"),
            ("0 : 65535\t53 : 53", "0x11/0xff", "0x1000/0x1000"), ("5 : 6\t7 : 8", "0x00/0x00", "0x0200/0x0200"),
            ("0 : 65535\t9 : 9", "0x2f/0xff", "0x0000/0x0000"), ("0 : 65535\t0 : 65535", "0x06/0xff", "0x0000/0x1000")))))
        code, out, err = self.run_bench("-q", "-o", "json", "--rules=", "--masks=", "--cases", "", "--lists", str(path))
        self.assertEqual(code, 0, err)
        self.assertEqual([row["case"] for row in json.loads(out)["results"]], ["mixed, acl-plugin", "mixed, sluice"])
        path.write_text("@1.0.0.0/8\t2.0.0.0/8\t0 : 65535\t0 : 65535\t0x06/0xfe\t0x0000/0x0000\n")
        self.assertIn("several protocols", self.failed(2, "--rules=", "--masks=", "--cases", "", "--lists", str(path)))

    def test_frames_of_another_size_are_refused(self):
        self.assertIn("not 4096 in frames of 256", self.failed(5, wrong="frames"))

    def test_what_is_not_there_is_said(self):
        said = self.failed(4, wrong="plugin")
        self.assertIn("does not load the plug-in sluice_plugin.so", said)
        self.assertIn("undefined symbol: sluice_acl_open", said)
        self.assertIn("the heap has no room", self.failed(4, wrong="dies"))
        (self.folder / "build/CMakeCache.txt").write_text("CMAKE_BUILD_TYPE:STRING=debug\n")
        self.assertIn("a build of type 'debug'", self.failed(4))
        del self.environment["VPP_BUILD"]
        self.assertIn("VPP_BUILD is not set", self.failed(4))
        self.assertEqual(self.run_bench()[0], 77)

    def test_a_list_that_one_does_not_take_leaves_the_other(self):
        code, out, err = self.run_bench("-q", "-o", "json", "--cases", "^first/", wrong="list")
        self.assertEqual(code, 0, err)
        peer, own = json.loads(out)["results"]
        self.assertEqual(peer, {"case": "4 rules, 1 mask, first, acl-plugin", "reason": "the acl-plugin has not taken the list"})
        self.assertEqual(len(own["values"]), 3)
        self.assertNotIn("acl_plugin_ratio", own)

    def test_a_libsluice_of_another_revision_is_refused(self):
        program = self.folder / "sluice"
        program.write_text("#!/bin/sh\necho 'sluice 0.1.0 (1234567)'\n")
        program.chmod(0o755)
        self.assertIn("of revision a1b2c3d", self.failed(2, "--sluice", str(program)))

    def test_an_interruption_leaves_no_vpp(self):
        for number, code in ((signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -9)):
            process = self.start("-q", "-o", "json", "--windows", "100000")
            end = time.monotonic() + 60
            while len(self.vpps()) < 2 and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(len(self.vpps()), 2)
            process.send_signal(number)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, code)
            if number != signal.SIGKILL:
                self.assertEqual(list(self.folder.glob("vpp*")), [])
            while self.vpps() and time.monotonic() < end:
                time.sleep(0.02)
            self.assertEqual(self.vpps(), [], number)


class Cases(unittest.TestCase):
    def options(self, *words):
        sys.argv = ["bench.py", *words]
        return bench.arguments()

    def test_packets_are_those_that_the_name_says(self):
        options = self.options("--packets", "512")
        for name, want in (("none/16", {0: 512}), ("first/16", {1: 512}), ("last/16", {16: 512})):
            self.assertEqual(bench.matches_of(*bench.make(name, options)), want)
        rules, keys = bench.make("prefixes/7", options)
        self.assertEqual(len({(r.src[1], r.dst[1]) for r in rules}), 7)
        self.assertEqual(len(rules), 1024)
        self.assertNotIn(0, bench.matches_of(rules, keys))

    def test_rows_are_named_as_those_of_the_cpu(self):
        for name, want in (("none/1", "1 rules, 1 mask, no match"), ("first/2", "2 rules, 1 mask, first"), ("last/1024", "1024 rules, 1 mask, last"),
                           ("prefixes/1", "1024 rules, 1 mask, all"), ("prefixes/21", "1024 rules, 21 masks, all"), ("acl1_1k", "acl1_1k")):
            self.assertEqual(bench.row_name(name), want)

    def test_a_case_is_the_same_alone(self):
        for words in ((), ("--cases", "last/128"), ("--rules", "2,128")):
            rules, keys = bench.make("last/128", self.options(*words))
            self.assertEqual(bench.frame(keys[0]), bench.frame(bench.make("last/128", self.options())[1][0]))
        self.assertNotEqual(keys, bench.make("last/128", self.options("--seed", "2"))[1])

    def test_the_search_takes_the_first_rule_that_matches(self):
        rules = [bench.Rule((10 << 24, 8), (0, 0), dport=(80, 90), protocol=(6, 255), flags=(0x0200, 0x0200)),
                 bench.Rule((10 << 24, 8), (0, 0), protocol=(17, 255)), bench.Rule((0, 0), (20 << 24, 8), sport=(5, 5))]
        a, b = 10 << 24 | 1, 20 << 24 | 1
        for key, want in (((a, b, 6, 5, 85, 2), 1), ((a, b, 6, 5, 85, 16), 3), ((a, b, 6, 6, 91, 2), 0), ((a, b, 17, 5, 85, 0), 2),
                          ((b, b, 6, 5, 1, 0), 3), ((b, a, 6, 5, 1, 0), 0)):
            self.assertEqual(bench.matches_of(rules, [key]), {want: 1}, key)

    def test_lists_are_named_after_their_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "acl1"
            path.write_text("@1.0.0.0/8\t2.0.0.0/8\t0 : 65535\t80 : 80\t0x06/0xff\t0x0000/0x0000\n")
            options = self.options("--rules=", "--masks=", "--lists", str(path), "--packets", "512")
            self.assertEqual(bench.names_of(options), ["acl1"])
            self.assertEqual(bench.matches_of(*bench.make("acl1", options)), {1: 512})


if __name__ == "__main__":
    unittest.main()
