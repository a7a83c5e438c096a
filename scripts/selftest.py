#!/usr/bin/env python3
"""Tests of the scripts in this folder; run by ./dev test."""
import argparse
import concurrent.futures
import contextlib
import fnmatch
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import bench_live
import check_headers
import check_layers
import check_results
import check_sources
import fit_prices
import gen_performance
import gen_reference
import gen_studies
import gen_tables
import measure
import new_from_example
import result_schema
import rounds
import store_result
import sysroot
import wheels

SCRIPTS = pathlib.Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
sys.path.insert(0, str(ROOT / "tests"))
import readme_test


def document(**changes):
    base = {"name": "x", "when": "2025-01-31T12:00:00Z", "machine": {"cpu": "c", "cores": 2, "os": "o", "compiler": "g"},
            "git": "abc", "seed": 1, "input_hash": None,
            "results": [{"case": "a|b", "unit": "Mpps", "median": 12.345, "min": 12.0, "max": 13.0, "n": 5}]}
    return {**base, **changes}


class Schema(unittest.TestCase):
    def test_good(self):
        self.assertEqual(result_schema.problems_of(document(), "x"), [])

    def test_a_stored_file_has_a_line_for_each_row(self):
        rows = document()["results"] * 3
        for one in (document(results=rows), document(results=[])):
            text = result_schema.text_of(one)
            self.assertEqual(json.loads(text), one)
            self.assertEqual(text.count("\n    {"), len(one["results"]))

    def test_each_lack_is_named(self):
        self.assertIn("the file is y.json", result_schema.problems_of(document(), "y")[0])
        self.assertIn("when", result_schema.problems_of(document(when="yesterday"))[0])
        self.assertIn("machine.cpu", result_schema.problems_of(document(machine={"cores": 1, "os": "", "compiler": ""}))[0])
        self.assertIn("empty", result_schema.problems_of(document(results=[]))[0])
        row = document()["results"][0]
        self.assertIn("outside", result_schema.problems_of(document(results=[{**row, "median": 14}]))[0])
        self.assertIn("twice", result_schema.problems_of(document(results=[row, row]))[0])
        self.assertIn("unit", result_schema.problems_of(document(results=[{**row, "unit": None}]))[0])

    def test_a_row_has_figures_or_a_reason(self):
        row = document()["results"][0]
        self.assertEqual(result_schema.problems_of(document(results=[{"case": "a", "reason": "on the host: why"}])), [])
        self.assertIn("no figures", result_schema.problems_of(document(results=[{**row, "reason": "why"}]))[0])
        for key in ("device_p50_ns", "answered_by_device"):
            self.assertIn("answered none", result_schema.problems_of(document(results=[{**row, key: 0}]))[0])

    def test_this_machine_fits_the_schema(self):
        self.assertEqual(result_schema.problems_of(document(machine=result_schema.machine())), [])


class Prices(unittest.TestCase):
    @staticmethod
    def rows(fixed, table, read):
        return [{"y": fixed + table * t + read * r, "fixed": 1.0, "tables": t, "reads": r}
                for t, r in ((1, 1), (2, 1), (5, 2), (3, 9), (8, 4))]

    def test_finds_what_it_was_made_of(self):
        score, prices, errors = fit_prices.fit(self.rows(4000, 300, 20))
        self.assertLess(score, 1e-9)
        self.assertAlmostEqual(prices["fixed"], 4000, places=3)
        self.assertAlmostEqual(prices["tables"], 300, places=3)
        self.assertAlmostEqual(prices["reads"], 20, places=3)
        self.assertLess(max(errors), 1e-6)

    def test_no_price_is_negative(self):
        _, prices, _ = fit_prices.fit(self.rows(4000, -100, 20))
        self.assertGreaterEqual(min(prices.values()), 0)


class Studies(unittest.TestCase):
    """Published figures stand beside rows with their parameters, in their unit, and nowhere else."""
    TABLE = {"name": "t", "title": "T", "source": "S", "unit": "ms", "differs": "d", "command": "c"}
    FIGURES = {"spark": 52, "codilime": 25, "ferraris": 102, "louvain": 189, "stockholm": 86}

    def documents(self, *figures, **changes):
        return {"ferraris": {"title": "Study", "hardware": "a GPU", "tables": [{**self.TABLE, **changes, "figures": list(figures)}]}}

    def figure(self, **changes):
        return {"id": "ferraris.a", "case": "a", "value": 2000, "parameters": {"packets": 10**7}, **changes}

    @classmethod
    def setUpClass(cls):
        cls.stored = gen_studies.rows_of(gen_studies.ROOT / "bench/results")

    def test_each_published_figure_has_an_id_and_a_row_or_a_reason(self):
        documents = gen_studies.published()
        self.assertEqual({study: len(gen_studies.figures_of(document)) for study, document in documents.items()}, self.FIGURES)
        self.assertEqual(sum(self.FIGURES.values()), 454)
        self.assertEqual(gen_studies.problems_of(documents, self.stored), [])
        self.assertEqual([sum(bool(figure.get("headline")) for _, figure in gen_studies.figures_of(document)) for document in documents.values()], [1] * 5)

    def spoilt(self, change):
        """The problems that a change of one figure or table makes: change({id: figure}, {table's name: table})."""
        documents = gen_studies.published()
        tables = {f"{study}/{table['name']}": table for study, document in documents.items() for table in document["tables"]}
        change({figure["id"]: figure for table in tables.values() for figure in table["figures"]}, tables)
        return "\n".join(gen_studies.problems_of(documents, self.stored))

    def test_a_row_with_other_parameters_is_refused(self):
        def set_to(name, key, value):
            return lambda figures, tables: (figures.get(name) or tables[name])["parameters"].update({key: value})
        for change, said in (
                (set_to("spark/no-match", "packets", 32), "packets of the row is 256, of the figure 32"),
                (set_to("spark.nomatch.1024.gpu", "rules", 512), "rules of the row is 1024, of the figure 512"),
                (set_to("spark.nomatch.64.gpu", "rules", 65), "rules of the row is 64, of the figure 65"),  # of a row that no report has yet
                (set_to("spark.prefix.8.gpu", "masks", 7), "masks of the row is 8, of the figure 7"),
                (set_to("spark.nomatch.1024.gpu", "algorithm", "linear"), "algorithm of the row is tuple_space"),
                (set_to("louvain.lists.crc.cpu16", "bytes", 64), "bytes of the row is 1024, of the figure 64"),
                (set_to("louvain.lists.crc.cpu16", "cores", 4), "cores of the row is 16, of the figure 4"),
                (set_to("ferraris.t5.lpm.pinned.ms", "memory", "pageable"), "memory of the row is pinned"),
                (set_to("stockholm.rate", "packets", 256), "packets of the row is 32, of the figure 256"),
                (set_to("stockholm.shaper.error", "kbps", [100, 1000]), "kbps of the row is 10, of the figure 100 to 1000"),
                (set_to("spark.nomatch.1.gpu", "cores", 1), "the row does not say its cores"),
                (lambda figures, tables: figures["stockholm.rate"]["parameters"].pop("shaped"), "the figure does not say its shaped"),
                (lambda figures, tables: tables["ferraris/V"].pop("differs_in"), "work of the row is lookup, of the figure forward"),
                (lambda figures, tables: figures["stockholm.rate"].update(results=["port_device: port/64B/persistent/shaped"]), "does not read the case"),
                (lambda figures, tables: figures["spark.nomatch.1.gpu"].update(unit="W"), "is in us, the published figure in W")):
            self.assertIn(said, self.spoilt(change))

    def test_a_figure_has_one_id_and_either_rows_or_a_reason(self):
        for change, said in (
                (lambda figures, tables: figures["spark.prefix.1.gpu"].update(id="spark.prefix.8.gpu"), "spark.prefix.8.gpu is there twice"),
                (lambda figures, tables: figures["spark.prefix.1.gpu"].update(id="louvain.new"), "of another study"),
                (lambda figures, tables: figures["spark.prefix.8.gpu"].update(not_measured="n"), "needs a stored row or a reason"),
                (lambda figures, tables: figures["spark.nomatch.8.gpu"].pop("not_measured"), "needs a stored row or a reason"),
                (lambda figures, tables: tables["spark/no-match"].pop("not_measured"), "spark.nomatch.1.acl needs a stored row or a reason"),
                (lambda figures, tables: figures["spark.prefix.8.gpu"].update(value=[1, 2]), "has rows and no single value"),
                (lambda figures, tables: figures["spark.prefix.16.gpu"].update(results=["device_latency: no such"]), "no stored row is 'device_latency: no such'")):
            self.assertIn(said, self.spoilt(change))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "studies/ferraris/published.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(self.documents(self.figure(row="x"))["ferraris"]))
            with self.assertRaisesRegex(ValueError, "unknown: row"):
                gen_studies.published(pathlib.Path(folder))

    def test_a_figure_is_for_the_rows_that_it_names(self):
        documents = self.documents(self.figure(ours=["cpu/x1/*"]))
        found = gen_studies.published_for(documents, "ipv4-forwarding", "cpu/x1/10", "Mpackets/s")
        self.assertAlmostEqual(found["value"], 5)
        self.assertEqual((found["source"], found["hardware"], found["differs"]), ("Study: S", "a GPU", "d"))
        for suite, case, unit in (("data-plane", "cpu/x1/10", "Mpackets/s"), ("ipv4-forwarding", "cpu/x10/10", "Mpackets/s"), ("ipv4-forwarding", "cpu/x1/10", "us")):
            self.assertIsNone(gen_studies.published_for(documents, suite, case, unit))

    def test_ours_is_in_the_published_unit(self):
        def value(row, unit, columns=None, **parameters):
            return gen_studies.value_of({"case": "a", **row}, {"unit": unit, "parameters": parameters, **({"columns": columns} if columns else {})})
        self.assertAlmostEqual(value({"unit": "us", "value": 1500}, "ms"), 1.5)
        self.assertAlmostEqual(value({"unit": "Mpackets/s", "value": 20}, "ms", packets=10**6), 50)
        self.assertAlmostEqual(value({"unit": "x", "value": 1, "k_ms": 2, "l_ms": 3}, "ms", ["k_ms", "l_ms"]), 5)
        self.assertAlmostEqual(value({"unit": "x", "value": 1, "k_ms": 2, "l_ms": 3}, "Mpackets/s", ["k_ms", "l_ms"], packets=10**6), 200)
        self.assertAlmostEqual(value({"unit": "Mpackets/s", "value": 10}, "Gbit/s", bytes=64), 6.72)
        self.assertAlmostEqual(value({"unit": "x", "value": 1, "bytes": 4000}, "kB", ["bytes"]), 4)
        with self.assertRaisesRegex(ValueError, "is in Gbit/s"):
            value({"unit": "Gbit/s", "value": 1}, "ms")

    def test_above_one_is_faster(self):
        for ours, theirs, unit, times in ((2, 4, "us", "2"), (2, 4, "ms", "2"), (8, 4, "Mpackets/s", "2"), (8, 4, "Gbit/s", "2"), (8, 4, "%", ""), (8, 4, "kB", "")):
            self.assertEqual(gen_studies.ratio(ours, {"value": theirs, "unit": unit}), times)

    def test_a_page_has_rows_in_tables_and_the_others_by_reason(self):
        row = {"case": "x", "unit": "ms", "value": 1, "of": {"machine": {"cpu": "c", "cores": 2}, "git": "abc", "when": "2025-01-31T12:00:00Z"}}
        document = self.documents(self.figure(results=["f: x"]), self.figure(id="ferraris.b", value=[3, 4], about=True), self.figure(id="ferraris.c", value=None),
                                  self.figure(id="ferraris.d", value=5, bound="upper", not_comparable="a limit"), not_measured="no GPU")["ferraris"]
        lines = gen_studies.page_lines("ferraris", document, {("f", None): [row]})
        self.assertEqual(lines[0], "1 of 4 published figures have a row of ours; 3 have a reason.")
        self.assertIn("| `ferraris.a` | a | 2,000 ms | 1 ms | 2,000 | `x` (f) |", lines)
        self.assertIn("- Not measured: no GPU (2): `ferraris.b` about 3 to 4 ms; `ferraris.c`.", lines)
        self.assertIn("- Not comparable: a limit (1): `ferraris.d` at most 5 ms.", lines)


class Performance(unittest.TestCase):
    MACHINE = {"cpu": "c", "cores": 2, "os": "o", "compiler": "g", "gpu": None, "virtual": True}
    PUBLISHED = {"value": 25, "unit": "Mpackets/s", "source": "Study: 25", "hardware": "a GPU", "differs": "the CPU | here"}

    def row(self, **changes):
        return {"suite": "data-plane", "case": "pipeline/routes/64B/x1", "value": 12.345, "unit": "Mpackets/s", "n": 5, "min": 12, "max": 13,
                "values": [12.345], "checked": True, "published": self.PUBLISHED, "command": "sluice-bench pipeline", "reason": None,
                "machine": self.MACHINE, **changes}

    def report(self, *rows, **changes):
        return {"schema": 1, "machine": self.MACHINE, "git": "abc", "when": "2025-01-31T12:00:00Z", "quick": True,
                "command": "sluice-bench suite --quick -o r", "suites": [{"name": "data-plane", "title": "T", "about": "A"}],
                "rows": list(rows), **changes}

    def test_the_page_has_figures_reasons_and_sources(self):
        absent = self.row(case="cuda", value=None, unit=None, min=None, max=None, published=None, reason="not measured here: no GPU")
        text = gen_performance.page({"suite_quick": self.report(self.row(p99_us=3.21), absent, self.row(value=10), *(self.row(case="z", unit="us", value=v, published=None, note="by N" if v < 1 else None) for v in (2, 0.5)))})
        self.assertIn("| T | pipeline/routes/64B/x1 | 2 | 12.3 Mpackets/s | 12 - 13 | 5 | yes | 25 Mpackets/s (1) |", text)
        self.assertIn("|  | z (by N) | 2 | 0.5 us |", text)
        self.assertIn("1 case without a figure there", text)
        self.assertIn("(1) Study: 25; on a GPU. Differs: the CPU | here.", text)
        self.assertIn("Measured on c, 2 cores, o, g; revision abc, 2025-01-31", text)
        self.assertIn("of other work: 1.50.", gen_performance.page({"x": self.report(self.row(), load_average=1.5)}))
        self.assertIn("gone through 3 times", gen_performance.page({"x": self.report(self.row(), passes=3)}))
        self.assertNotIn("gone through", gen_performance.page({"x": self.report(self.row())}))
        self.assertIn("No report is stored yet.", gen_performance.page({}))

    def test_readme_has_the_rows_that_were_measured(self):
        text = f"a\n{gen_performance.BEGIN}\nold\n{gen_performance.END}\nb\n"
        once = gen_performance.fill(text, {"suite_quick": self.report(self.row())})
        self.assertIn("| frames in, routes, frames out, one core | 12.3 Mpackets/s | 12 - 13 |", once)
        self.assertNotIn("old", once)
        self.assertTrue(once.startswith("a\n") and once.endswith("b\n"))
        self.assertEqual(gen_performance.fill(once, {"suite_quick": self.report(self.row())}), once)
        self.assertNotIn("frames in, routes", gen_performance.fill(text, {"x": self.report(self.row(value=None, reason="not measured here"))}))
        self.assertNotIn("frames in, routes", gen_performance.fill(text, {"x": self.report(self.row(note="the tester's limit"))}))
        with self.assertRaises(ValueError):
            gen_performance.fill("nothing", {})

    def test_refuses_what_nobody_should_see(self):
        for report, said in ((self.report(self.row(), git="abc-dirty"), "abc-dirty"), (self.report(self.row(), git="unknown"), "unknown"),
                             (self.report(self.row(value=None, reason="refused: 3 differ")), "refused: 3 differ"),
                             (self.report(self.row(value=None)), "neither"), (self.report(), "no report"), ([], "no report"),
                             (self.report(self.row(), schema=2), "no report"), (self.report(self.row(), machine={}), "machine")):
            self.assertIn(said, " ".join(gen_performance.problems_of(report)))
        self.assertEqual(gen_performance.problems_of(self.report(self.row())), [])
        self.assertIn("one pass of 3", " ".join(gen_performance.problems_of(self.report(self.row(passes=[2, 2]), passes=3))))
        self.assertEqual(gen_performance.problems_of(self.report(self.row(passes=[1, 2]), passes=3)), [])

    def test_stores_without_repetition(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder)
            (results / "report.json").write_text(json.dumps(self.report(self.row(), self.row(case="other", machine={"cpu": "d"}))))
            target = gen_performance.store(results, "quick", results)
            stored = gen_performance.read(target)
            self.assertEqual(target.name, "suite_quick.json")
            self.assertNotIn("machine", stored["rows"][0])
            self.assertEqual(stored["rows"][1]["machine"], {"cpu": "d"})
            self.assertNotIn(target, result_schema.stored(results))
            (results / "report.json").write_text(json.dumps(self.report(self.row(), git="x-dirty")))
            with self.assertRaises(ValueError):
                gen_performance.store(results, "quick", results)


class Tables(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.results = pathlib.Path(self.folder.name)
        (self.results / "x.json").write_text(json.dumps(document()))

    def test_fills_and_is_stable(self):
        text = "a\n<!-- generated: x -->\nold\n<!-- end generated -->\nb\n"
        once = gen_tables.fill(text, "f.md", self.results)
        self.assertIn("| a\\|b | 12.3 | Mpps | 12 - 13 | 5 |", once)
        self.assertNotIn("old", once)
        self.assertTrue(once.startswith("a\n") and once.endswith("\nb\n"))
        self.assertEqual(gen_tables.fill(once, "f.md", self.results), once)

    def test_a_row_without_figures_shows_its_reason(self):
        rows = [document()["results"][0], {"case": "b", "reason": "on the host: why"}]
        (self.results / "x.json").write_text(json.dumps(document(results=rows)))
        text = gen_tables.fill("<!-- generated: x -->\n<!-- end generated -->\n", "f.md", self.results)
        self.assertIn("| b | on the host: why |  |  |  |\n", text)
        text = gen_tables.fill("<!-- generated: x in words -->\n<!-- end generated -->\n", "f.md", self.results)
        self.assertIn("**12.3 Mpps** a|b: medians of 5.", text)

    def test_a_question_mark_lets_the_file_be_absent(self):
        text = "<!-- generated: y? -->\nold\n<!-- end generated -->\n"
        once = gen_tables.fill(text, "f.md", self.results)
        self.assertIn("No measurement is stored yet.", once)
        self.assertNotIn("old", once)
        present = gen_tables.fill("<!-- generated: x? -->\n<!-- end generated -->\n", "f.md", self.results)
        self.assertIn("| 12.3 | Mpps |", present)

    def test_a_star_joins_files_into_one_table(self):
        row = {**document()["results"][0], "case": "second", "build_seconds": 0.25, "bytes": 3 * 2**20}
        (self.results / "x2.json").write_text(json.dumps(document(name="x2", command="do it", results=[row])))
        lines = gen_tables.fill("<!-- generated: x* -->\n<!-- end generated -->\n", "f.md", self.results).split("\n")
        self.assertEqual(sum(line.startswith("| case") for line in lines), 1)
        self.assertIn("| second | 12.3 | Mpps | 12 - 13 | 5 | 3 | 250 |", lines)
        self.assertIn("| a\\|b | 12.3 | Mpps | 12 - 13 | 5 |  |  |", lines)
        self.assertEqual(sum(line.startswith("Measured on") for line in lines), 1)
        self.assertIn("- x2: seed 1; `do it`", lines)

    def test_in_words_is_one_sentence(self):
        text = "<!-- generated: x in words -->\nold\n<!-- end generated -->\n"
        once = gen_tables.fill(text, "f.md", self.results)
        self.assertEqual(once.split("\n")[1].split(" Measured on ")[0], "**12.3 Mpps** a|b: medians of 5.")
        self.assertIn("; revision ", once)
        self.assertEqual(len(once.split("\n")), 4)
        self.assertEqual(gen_tables.fill(once, "f.md", self.results), once)
        (self.results / "x2.json").write_text(json.dumps(document(name="x2")))
        with self.assertRaisesRegex(ValueError, "f.md:1: one sentence over 2 files"):
            gen_tables.fill("<!-- generated: x* in words -->\n<!-- end generated -->\n", "f.md", self.results)

    def test_markers_in_code_blocks_are_examples(self):
        text = "```\n<!-- generated: nothing -->\n```\n"
        self.assertEqual(gen_tables.fill(text, "f.md", self.results), text)

    def test_errors_name_file_and_line(self):
        with self.assertRaisesRegex(ValueError, "f.md:2: no '<!-- end"):
            gen_tables.fill("\n<!-- generated: x -->\n", "f.md", self.results)
        with self.assertRaisesRegex(ValueError, "f.md:1: there is no"):
            gen_tables.fill("<!-- generated: y -->\n<!-- end generated -->\n", "f.md", self.results)


class Results(unittest.TestCase):
    today = {"bench": {"pipeline": {"--batch": "[256]", "--flights": "4"}}, "access lists": "auto acl_64=bitvec",
             "access lists on a device": "auto acl_64=tuple_merge", "routes": "sail,range24", "algorithms": ["tuple_space"]}

    def said(self, **changes):
        return check_results.problems_of(document(command="sluice bench pipeline", **changes), self.today)

    def test_todays_defaults_are_no_problem(self):
        self.assertEqual(self.said(defaults={"options": {"--batch": "[256]"}, "routes": "sail,range24"}), [])
        # An option that was added since, or is gone, changes nothing that was measured.
        self.assertEqual(self.said(defaults={"options": {"--gone": "1"}}), [])

    def test_each_other_default_is_named(self):
        self.assertIn("--batch was '[64]' and is '[256]'", self.said(defaults={"options": {"--batch": "[64]"}})[0])
        self.assertIn("routes was 'a'", self.said(defaults={"options": {}, "routes": "a"})[0])
        self.assertIn("access lists was", self.said(defaults={"options": {}, "access lists": "auto acl_64=linear"})[0])

    def test_without_defaults_rows_or_command_name_the_algorithm(self):
        self.assertIn("nothing of the defaults", self.said()[0])
        row = {**document()["results"][0], "case": "acl1_1k/tuple_space/x1"}
        self.assertEqual(self.said(results=[row]), [])
        self.assertEqual(self.said(results=[{**row, "case": "1 rules, tuple_space"}]), [])
        self.assertEqual(check_results.problems_of(document(command="sluice bench pipeline --algorithm x"), self.today), [])
        self.assertEqual(check_results.problems_of(document(command="net_benches --benchmark_filter=x"), self.today), [])

    def test_a_changed_tree_is_no_revision(self):
        for git in ("abc-dirty", "unknown"):
            self.assertIn(git, check_results.problems_of(document(command="net_benches", git=git), self.today)[0])

    def test_every_stored_result_has_its_command_and_the_other_way_round(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "x.json").write_text(json.dumps(document(command="net_benches")))
            found = check_results.check(pathlib.Path(folder), {"y"}, self.today)
        self.assertEqual([name for name, _ in found], ["x", "y"])
        stored = {path.stem for path in result_schema.stored(ROOT / "bench/results")}
        self.assertEqual(stored, {m.name for m in measure.TABLE})


class Live(unittest.TestCase):
    """bench_live without a network: a device that says what it is told to."""

    def bench(self, folder, report, code=0):
        class Said(bench_live.Bench):
            @contextlib.contextmanager
            def device(self, *words):
                (self.folder / "ready").touch()
                process = argparse.Namespace(poll=lambda: None, returncode=code, said=(json.dumps(report), "why"))
                yield process

            def wire(self, *words, **more):
                return {"received": 3_000_000, "seconds": 2.0, "missed": 0}

        arguments = argparse.Namespace(sluice="sluice", peer=None, acl="rules", xsk=None, afp=None, testpmd=None, only="", rounds=1)
        return Said(arguments, pathlib.Path(folder), None)

    def report(self, method="af_xdp", **changes):
        return {"ports": [{"name": "d0", "method": "af_xdp"}, {"name": "d1", "method": method}], "conserved": True, "packets_in": 4_000_000,
                "drops": {"acl-deny": 4_000_000}, **changes}

    def test_a_row_is_what_came_back_and_of_the_method_in_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = self.bench(folder, self.report())
            self.assertEqual(bench.rate(bench.sluice("", "af_xdp")), 1.5)
            self.assertEqual(bench.rate(bench.sluice("", "af_xdp", denied=True)), 2.0)
            with self.assertRaisesRegex(RuntimeError, "d1 was opened by af_packet and not by af_xdp"):
                self.bench(folder, self.report("af_packet")).sluice("", "af_xdp")
            with self.assertRaisesRegex(RuntimeError, "packets are missing"):
                self.bench(folder, self.report(conserved=False)).sluice("", "af_xdp")
            with self.assertRaisesRegex(RuntimeError, "not all were denied"):
                self.bench(folder, self.report(drops={})).sluice("", "af_xdp", denied=True)
            with self.assertRaisesRegex(RuntimeError, "exit code 3"):
                self.bench(folder, self.report(), code=3).sluice("", "af_xdp")

    def test_rows_are_those_of_what_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = self.bench(folder, {})
            self.assertIn("run, af_packet, access list and routes", bench.rows(""))
            self.assertNotIn("bare forwarder, af_xdp", bench.rows(""))
            self.assertEqual([name for name in bench.rows("peer") if not name.startswith("run, ")], [])
            bench.arguments.acl, bench.arguments.xsk, bench.arguments.only = None, "xsk", "af_xdp"
            self.assertEqual(list(bench.rows("")), ["bare forwarder, af_xdp", "run, af_xdp, routes", "run, af_xdp, denied by access list"])

    def test_processor_time_of_a_short_run_is_taken_off(self):
        self.assertEqual(bench_live.Bench.twice(lambda packets: (packets, 0.5 + packets / 10_000_000), 3_000_000, 30_000_000), 10.0)
        with self.assertRaisesRegex(RuntimeError, "too short to tell"):
            bench_live.Bench.twice(lambda packets: (packets, 1.0), 3_000_000, 30_000_000)


class Overload(unittest.TestCase):
    """bench_live --flood without a network."""

    def report(self, **changes):
        return {"ports": [{"name": "d0", "rx": [{"missed": 500, "too_long": 0, "invalid": 0}, {"missed": 40, "too_long": 2, "invalid": 0}]}, {"name": "d1"}],
                "packets_in": 1000, "packets_out": 900, "drops": {"tx-full": 100}, **changes}

    def test_every_packet_of_the_interfaces_has_a_name_in_the_report(self):
        account = bench_live.Overload.account
        account(self.report(), 1542, 900, False)
        with self.assertRaisesRegex(RuntimeError, "d0 had 1543 packets"):
            account(self.report(), 1543, 900, False)
        with self.assertRaisesRegex(RuntimeError, "s0 had 899 packets"):
            account(self.report(), 1542, 899, False)
        with self.assertRaisesRegex(RuntimeError, "10 packets have no name"):
            account(self.report(drops={"tx-full": 90}), 1542, 900, False)
        with self.assertRaisesRegex(RuntimeError, "dropped by the graph"):
            account(self.report(drops={"tx-full": 90, "no-route": 10}), 1542, 900, False)
        account(self.report(packets_out=0, drops={"acl-deny": 1000}), 1542, 0, True)
        with self.assertRaisesRegex(RuntimeError, "not all were denied"):
            account(self.report(packets_out=0, drops={"acl-deny": 990, "no-route": 10}), 1542, 0, True)

    def test_rates_are_of_what_was_received(self):
        before, after = bench_live.Counted(1.0, 0, 0, 0), bench_live.Counted(3.0, 8_000_000, 5_000_000, 0)
        self.assertEqual(after.rate(before), 1.5)
        # 3,000,000 of those that were dropped never were in the ring.
        self.assertEqual(after.rate(before, (1, 3_000_001)), 3.0)

    def test_rows_have_bases_of_the_same_places(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = argparse.Namespace(sluice="sluice", peer=None, acl="rules", xsk="xsk", xsk_reads="xskr", afp="afp", redirect="xdpp", only="", without="", rounds=1)
            bench = bench_live.Overload(arguments, pathlib.Path(folder), None)
            rows = bench.rows("")
            for name in rows:
                for base in bench.bases(name).values():
                    self.assertIn(base, rows, name)
            self.assertEqual([name for name in bench.rows("peer") if not name.startswith("run, ")], [])
            one = "run, af_xdp, access list and routes, all on a core"
            self.assertEqual(bench.bases(one), {"of_bare": "bare forwarder, af_xdp, all on a core", "of_kernel": "kernel forwarding, no rules, all on a core"})
            arguments.acl = arguments.xsk = arguments.xsk_reads = arguments.afp = None
            arguments.only = "reception|af_packet"
            self.assertTrue(bench.rows("") and all(name.startswith("run, af_packet, routes") for name in bench.rows("")))


class Rounds(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        self.assertEqual(rounds.ratio([1, 4, 9], [1, 2, 3]), 2)
        self.assertEqual(rounds.peer([2, 4, 6], [1, 4, 12], "abc"), {"peer": "revision abc", "peer_median": 4, "of_peer": 1})
        self.assertEqual(rounds.row("a", "us", [3, 1, 2]), {"case": "a", "unit": "us", "median": 2, "min": 1, "max": 3, "n": 3})
        self.assertEqual([rounds.in_turns({"": 1, "peer": 2}, i) for i in (0, 1)], [["", "peer"], ["peer", ""]])


class Wheels(unittest.TestCase):
    def test_an_interpreter_that_cannot_build_has_a_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            def said(name, text):
                path = pathlib.Path(folder) / name
                path.write_text(f"#!/bin/sh\n{text}\n")
                path.chmod(0o755)
                return str(path)

            good = said("good", "echo cpython 3 12 True")
            reasons = {
                said("old", "echo cpython 3 9 True"): "3.10 or later",
                said("other", "echo pypy 3 11 True"): "is pypy",
                said("bare", "echo cpython 3 11 False"): "no Python.h",
                said("shim", "echo command not found >&2; exit 127"): "does not run: command not found",
                str(pathlib.Path(folder) / "absent"): "not found",
            }
            found, left_out = wheels.interpreters([*reasons, good])
            self.assertEqual(found, {(3, 12): good})
            self.assertEqual([name for name, _ in left_out], list(reasons))
            for name, reason in left_out:
                self.assertIn(reasons[name], reason)
            none = subprocess.run([sys.executable, str(SCRIPTS / "wheels.py"), str(pathlib.Path(folder) / "absent")], capture_output=True, text=True)
            self.assertEqual((none.returncode, none.stdout.count("left out")), (1, 1))


class Measure(unittest.TestCase):
    def test_commands_name_their_inputs(self):
        by_name = {m.name: m for m in measure.TABLE}
        self.assertEqual(set(by_name["bench_pipeline_fw1_10k"].inputs()), {"fw1_10k", "rib4.txt", "rib6.txt"})
        self.assertEqual(len(by_name["device_classes_10k"].inputs()), 12)
        self.assertEqual(by_name["rules_cpu"].inputs(), {})
        self.assertEqual(len(by_name["acl_peers"].data_sets()), 9)

    def test_a_try_is_short_and_asks_for_no_gpu(self):
        for m in measure.TABLE:
            words = measure.shortened(m.command, True)
            self.assertNotIn("cuda", words)
            self.assertEqual(words.split()[0], m.program)
            self.assertLessEqual(words.count("--packets"), 1)

    def test_stored_results_are_not_overwritten_by_a_try(self):
        done = subprocess.run([sys.executable, str(SCRIPTS / "measure.py"), "--only", "shaper", "--try"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--out", done.stderr)

    def test_what_this_machine_lacks_is_left_out_and_named(self):
        arguments = argparse.Namespace(bin="nowhere", data=None, generate=False, try_=False, emulate=False)
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("VPP_SOURCE", None)
            with self.assertRaisesRegex(measure.Absent, "VPP_SOURCE is not set"):
                measure.Runner(arguments).document(measure.M("vpp_acl", "vpp", 1, "integrations/vpp/bench.py"))

    def test_a_program_of_a_changed_tree_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "sluice"
            # Says what a program of revision $1 would.
            text = json.dumps(document(name="rules_cpu", git="abc-dirty"))
            program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
            program.chmod(0o755)
            words = [sys.executable, str(SCRIPTS / "measure.py"), "--only", "rules_cpu", "--bin", folder, "--out", folder]
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("abc-dirty", done.stderr)
            self.assertFalse((pathlib.Path(folder) / "rules_cpu.json").exists())
            done = subprocess.run([*words, "--allow-dirty", "--bundle", folder + "/all"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads((pathlib.Path(folder) / "all").read_text())["rules_cpu"]["git"], "abc-dirty")


class Sources(unittest.TestCase):
    def test_a_command_loses_its_output_alone(self):
        self.assertEqual(check_sources.syntax_command("ccache g++ -DX=1 -o a.o -c a.cpp"), ["ccache", "g++", "-DX=1", "a.cpp", "-fsyntax-only"])

    def test_cuda_counts_where_the_file_knows_it(self):
        words = ["g++", "-DSLUICE_WITH_CUDA=1", "-isystem", "/usr/local/cuda/include", "-Isrc", "a.cpp"]
        self.assertEqual(check_sources.meaning(words, False), ["g++", "-Isrc", "a.cpp"])
        self.assertEqual(check_sources.meaning(words, True), words)

    def test_a_missing_include_is_found_once_and_remembered_when_mended(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "src").mkdir()
            (root / "ok").mkdir()
            source = root / "src/a.cpp"

            def check(text):
                source.write_text(text)
                entry = {"file": str(source), "directory": str(root), "command": f"g++ -o a.o -c {source}"}
                return check_sources.Check(check_sources.Files(root), root, "cpu", entry, "1")

            bad = check("std::string text() { return {}; }\n")
            self.assertIn("string", bad.run())
            self.assertFalse(bad.stamp.exists())
            good = check("#include <string>\nstd::string text() { return {}; }\n")
            self.assertNotEqual(good.stamp, bad.stamp)
            self.assertIsNone(good.run())
            self.assertTrue(good.stamp.exists())


class Reference(unittest.TestCase):
    said = {"drop_reasons": [{"number": i, "name": name, "description": f"is {name}"} for i, name in
                             enumerate(["none", "unconnected-output", "loop", "icmp-rate-limited", "output-failed", "bad|x"])],
            "elements": [{"name": "B", "aliases": ["Bee"], "group": "Basics", "summary": "Does b.", "description": "Long.",
                          "synopsis": "SIZE [, MODE m]", "processing": "a/ah", "inputs": {"min": 1, "max": 1}, "outputs": {"min": 1, "max": None},
                          "output_docs": ["good"], "drops": ["bad|x"], "example": "B(3)",
                          "arguments": [{"name": "SIZE", "positional": True, "mandatory": True, "repeated": False,
                                         "accepts": "a|b", "unit": "bytes", "help": "How much", "kind": "integer"},
                                        {"name": "MODE", "positional": False, "mandatory": False, "repeated": True,
                                         "default": "m", "accepts": "m or n", "help": "How", "kind": "choice"}]}]}

    def test_elements_show_their_schema(self):
        page = gen_reference.elements_page(self.said)
        self.assertIn("| `SIZE` | a\\|b, bytes | mandatory | position or keyword | How much |", page)
        self.assertIn("| `MODE` | m or n | `m` | keyword, repeated | How |", page)
        for text in ("Also called Bee.", "Inputs: 1. Outputs: 1 or more. Processing: `a/ah`.", "- output 0: good", "B(SIZE [, MODE m])", "```click\nB(3)"):
            self.assertIn(text, page)

    def test_drops_name_their_givers(self):
        page = gen_reference.drops_page(self.said)
        self.assertIn("is bad\\|x | [B](elements.md#b) |", page)
        self.assertIn("| 2 | <a id=\"loop\"></a>`loop` | is loop | any element", page)
        with self.assertRaisesRegex(ValueError, "no such drop reason: loop"):
            gen_reference.drops_page({"elements": [], "drop_reasons": [r for r in self.said["drop_reasons"]
                                                                       if r["name"] != "loop"]})


class Readme(unittest.TestCase):
    def test_numbers_may_differ_and_words_may_not(self):
        self.assertTrue(readme_test.fits(["in  5 packets, 67.0 MiB"], ["in     200,000 packets, 1.2 KiB"]))
        self.assertTrue(readme_test.fits(["time 2.0 ms, 1.1 Mpps, 3 bit/s"], ["time 3 s, 900.0 kpps, 2.5 Gbit/s"]))
        self.assertFalse(readme_test.fits(["in 5 packets"], ["out 5 packets"]))
        self.assertFalse(readme_test.fits(["in 5"], ["in 5", "more"]))
        self.assertFalse(readme_test.fits(["in 5", "more"], ["in 5"]))

    def test_dots_are_any_lines(self):
        self.assertTrue(readme_test.fits(["a", "...", "c"], ["a", "b", "c", "c"]))
        self.assertTrue(readme_test.fits(["..."], []))
        self.assertFalse(readme_test.fits(["a", "...", "c"], ["a", "b"]))

    def test_sessions_join_continued_commands(self):
        self.assertEqual(readme_test.sessions("$ a \\\n  b\nsaid\n$ c\n"), [("a \\\n  b", ["said"]), ("c", [])])
        with self.assertRaisesRegex(ValueError, "begins with"):
            readme_test.sessions("said\n")


class Links(unittest.TestCase):
    def test_each_relative_link_leads_to_a_file_and_heading(self):
        files = [path for pattern in ("*.md", *(f"{folder}/**/*.md" for folder in
                 ("docs", "src", "apps", "bench", "studies", "tests", "scripts", "examples", "integrations"))) for path in ROOT.glob(pattern)]
        self.assertGreater(len(files), 20)
        broken = []
        for path in files:
            text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
            for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
                if link.startswith(("http:", "https:", "mailto:")):
                    continue
                name, _, heading = link.partition("#")
                target = (path.parent / name) if name else path
                if not target.exists():
                    broken.append(f"{path.relative_to(ROOT)}: {link}")
                elif heading and target.suffix == ".md":
                    there = target.read_text(encoding="utf-8")
                    anchors = {gen_reference.anchor(h) for h in re.findall(r"^#+ (.*)$", there, re.M)}
                    if heading not in anchors | set(re.findall(r'<a id="([^"]+)"', there)):
                        broken.append(f"{path.relative_to(ROOT)}: {link} has no such heading")
        self.assertEqual(broken, [])


class Names(unittest.TestCase):
    """What the documents call by name is there."""
    def test_files_of_code(self):
        files = {str(path.relative_to(ROOT)) for folder in
                 ("src", "apps", "tests", "scripts", "docs", "bench", "studies", "cmake", "examples", "include", "integrations", "packaging", "python") for path in (ROOT / folder).rglob("*.*")}
        # `stockholm.t1.cc` is a figure's id.
        ids = {figure["id"] for document in gen_studies.published().values() for _, figure in gen_studies.figures_of(document)}
        missing = []
        for page in [*ROOT.glob("*.md"), *(ROOT / file for file in files if file.endswith(".md"))]:
            text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
            for name in re.findall(r"`([\w/.-]+\.(?:h|cpp|cc|py|sh|cu|cuh|cmake|click))`", text):
                if name.startswith("NAME/") or name in ids:
                    continue
                at = "/" + name.removeprefix("./").removeprefix("../")
                if not any(("/" + file).endswith(at) for file in files):
                    missing.append(f"{page.relative_to(ROOT)}: {name}")
        self.assertEqual(missing, [])

    def test_each_folder_of_code_says_what_it_is(self):
        without = []
        for top in ("src", "apps", "tests", "scripts", "bench", "studies", "examples", "integrations", "docs"):
            for folder in [ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())]:
                relative = folder.relative_to(ROOT)
                # A folder that its parent describes: inputs, and helpers of one program.
                if (len(relative.parts) > 2 and relative.parts[:2] in (("tests", "corpus"), ("bench", "results"))) or folder.name == "__pycache__":
                    continue
                if relative.parts == ("docs",):  # index.md
                    continue
                if relative.parts[-2:] in (("ports", "memory"), ("ports", "pcap"), ("memory", "cuda"), ("spark", "cuda"), ("stockholm", "cuda")):
                    continue
                if not (folder / "README.md").exists():
                    without.append(str(relative))
        self.assertEqual(without, [])


class Store(unittest.TestCase):
    def test_repetitions_become_one_row(self):
        runs = [{"name": "BM/8", "run_name": "BM/8", "run_type": "iteration", "real_time": t, "time_unit": "us"}
                for t in (3.0, 1.0, 2.0)]
        runs.append({"name": "BM/8_mean", "run_name": "BM/8", "run_type": "aggregate", "real_time": 2.0, "time_unit": "us"})
        runs.append({"name": "Rate", "real_time": 1.0, "items_per_second": 5e6})
        made = store_result.convert({"benchmarks": runs}, "n", None, None, None, "c")
        self.assertEqual(made["results"][0], {"case": "BM/8", "unit": "ns", "median": 2000.0, "min": 1000.0, "max": 3000.0,
                                              "n": 3})
        self.assertEqual((made["results"][1]["unit"], made["results"][1]["median"]), ("Mitems/s", 5.0))
        self.assertEqual(result_schema.problems_of(made, "n"), [])

    def test_failed_or_empty_runs_are_refused(self):
        with self.assertRaisesRegex(ValueError, "wrong answer"):
            store_result.convert({"benchmarks": [{"name": "B", "error_occurred": True, "error_message": "wrong answer"}]},
                                 "n", None, None, None, "c")
        with self.assertRaisesRegex(ValueError, "no benchmark runs"):
            store_result.convert({}, "n", None, None, None, "c")


class New(unittest.TestCase):
    """The skeletons that are there, copied inside a copy of the tree, and the copy compiled."""
    # A file of the copy or of its tests, and what must hold where it is included.
    COMPILED = {
        "element": ["elements/two_level/element.cpp", "elements/two_level/two_level_length_test.cpp",
                    "elements/register_all.cpp", "elements/stages.h",
                    "static_assert(sluice::PlainStages::contains<sluice::TwoLevelStage>());"],
        "lpm": ["tables/lpm/two_tree/two_tree.cpp", "tables/lpm/lpm_conformance_test.cpp",
                "template <typename... A> constexpr bool has(std::tuple<A...>*) "
                "{ return (std::is_same_v<A, sluice::TwoTreeLpm> || ...); }\n"
                "static_assert(has((sluice::AllLpm4*)nullptr) && has((sluice::AllLpm6*)nullptr) && "
                "!has((sluice::LpmAlgorithms4*)nullptr));"],
        "acl": ["tables/acl/two_tree/two_tree.cpp", "tables/acl/acl_conformance_test.cpp",
                "template <typename... A> constexpr bool has(sluice::AclAlgorithmList<A...>) "
                "{ return (std::is_same_v<A, sluice::TwoTreeAcl> || ...); }\n"
                "static_assert(has(sluice::AllAcl{}) && !has(sluice::AclAlgorithms{}));"],
        "flow": ["elements/two_flow/element.cpp", "elements/two_flow/two_flow_test.cpp", "elements/register_all.cpp"],
        "tunnel": ["elements/two_ends/element.cpp", "elements/two_ends/two_ends_test.cpp", "elements/stages.h",
                   "static_assert(sluice::PlainStages::contains<sluice::TwoEndsStage>());"],
        "table": ["elements/two_table/element.cpp", "elements/two_table/two_table_test.cpp", "elements/stages.h",
                  "static_assert(sluice::PlainStages::contains<sluice::TwoTableStage>());"],
        "port": ["ports/tap/tap_port.cpp", "ports/two_tree/two_tree_port.cpp", "ports/port.cpp", "ports/live_port_test.cpp", "elements/device/element.cpp",
                 "static_assert(sluice::PortMethod::kTwoTree != sluice::PortMethod::kTap);"],
    }

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        shutil.copytree(ROOT / "src", self.root / "src")
        (self.root / "scripts").mkdir()
        shutil.copy(SCRIPTS / "new_from_example.py", self.root / "scripts")
        shutil.copy(ROOT / ".clang-format", self.root)

    def new(self, kind, name):
        return subprocess.run([sys.executable, "-B", str(self.root / "scripts/new_from_example.py"), kind, name],
                              capture_output=True, text=True)

    def test_copies_compile_and_join_the_tests(self):
        for kind, parts in self.COMPILED.items():
            name = {"element": "two_level", "flow": "two_flow", "tunnel": "two_ends", "table": "two_table"}.get(kind, "two_tree")
            made = self.new(kind, name)
            self.assertEqual((made.returncode, made.stderr), (0, ""))
            self.assertIn("added src/", made.stdout)
            self.assertLessEqual(made.stdout.count("added src/"), 3)
            for path in (self.root / new_from_example.SKELETONS[kind]).parent.glob(f"{name}/*"):
                self.assertNotRegex(path.read_text(), r"Example|(?<!\.)example(?!s)")
                self.assertIn(str(path.relative_to(self.root)), made.stdout)

        def compiled(kind, parts):
            unit = self.root / f"{kind}.cpp"
            unit.write_text("".join(f'#include "{part}"\n' if part.endswith((".h", ".cpp")) else part + "\n" for part in parts))
            return subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror",
                                   "-Wno-missing-field-initializers", "-march=x86-64-v2", "-I", str(self.root / "src"), str(unit)],
                                  capture_output=True, text=True, timeout=1500)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            done = {kind: pool.submit(compiled, kind, parts) for kind, parts in self.COMPILED.items()}
            for kind, said in done.items():
                self.assertEqual(said.result().returncode, 0, f"{kind}:\n{said.result().stderr[:4000]}")

    def test_says_why_not_and_writes_nothing(self):
        before = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        for kind, name, words in (("acl", "Two", "snake_case"), ("lpm", "example", "itself"), ("lpm", "../x", "snake_case"),
                                  ("lpm", "longer_than_8", "8 bytes"), ("port", "tap", "itself"),
                                  ("port", "longer_than_14_x", "15 bytes"), ("element", "queue", "exists")):
            made = self.new(kind, name)
            self.assertEqual(made.returncode, 1)
            self.assertIn(words, made.stderr)
        list_of = self.root / "src/tables/acl/algorithms.h"
        list_of.write_text(list_of.read_text().replace(", ExampleAcl", ""))
        self.assertIn("0 times", self.new("acl", "two").stderr)
        list_of.write_bytes(before[list_of])
        self.assertEqual({path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}, before)


class Headers(unittest.TestCase):
    def test_host_only_counts_in_the_first_comment_alone(self):
        self.assertTrue(check_headers.is_host_only("// A thing.\n// host only\n#pragma once\n"))
        self.assertTrue(check_headers.is_host_only("// Host only: it has threads.\n"))
        self.assertFalse(check_headers.is_host_only("// A thing.\n#pragma once\n// host only\n"))

    def test_rule(self):
        src = check_headers.ROOT / "src"
        self.assertTrue(check_headers.is_shared(src / "net/a.h", ""))
        self.assertTrue(check_headers.is_shared(src / "elements/x/stage.h", ""))
        self.assertTrue(check_headers.is_shared(src / "base/a.h", "SLUICE_HD int f();"))
        self.assertFalse(check_headers.is_shared(src / "base/a.h", "int f();"))

    def test_what_stands_before_a_header_does_not_help_it(self):
        headers = {"one": "#pragma once\n#include <vector>\n", "two": "#pragma once\ninline std::vector<int> v;\n",
                   "three": '#pragma once\n#include "a/one.h"\n#include "a/two.h"\n',
                   "four": '#pragma once\n#include "a/three.h"\nstd::vector<int> w();\n',
                   "five": '#include "a/four.h"\ninline int defined_twice;\n'}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(check_headers, "ROOT", pathlib.Path(folder).resolve()), \
                unittest.mock.patch.object(sys, "argv", ["check_headers.py"]), contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            (check_headers.ROOT / "src/a").mkdir(parents=True)
            for name, text in headers.items():
                (check_headers.ROOT / f"src/a/{name}.h").write_text(text)
            self.assertEqual(check_headers.main(), 1)
            self.assertEqual(sorted(re.findall(r"^src/(\S+) does not compile alone", said.getvalue(), re.M)), ["a/five.h", "a/two.h"])
            found = check_headers.chains([check_headers.Check("g++", "g++", [], "", path)
                                          for path in sorted((check_headers.ROOT / "src").rglob("*.h"))])
            self.assertEqual(len(found), 2)
            self.assertEqual(sorted(check.path.stem for chain in found for check in chain), sorted(headers))
            for chain in found:
                for before, behind in zip(chain, chain[1:]):
                    self.assertIn(before.path, behind.includes)


class Sum(unittest.TestCase):
    def run_sum(self, xml, *phases):
        with tempfile.TemporaryDirectory() as folder:
            if xml:
                (pathlib.Path(folder) / "a.xml").write_text(xml)
            said = subprocess.run([sys.executable, str(SCRIPTS / "sum_tests.py"), "--results", folder,
                                   *(f"--phase={phase}" for phase in phases)], capture_output=True, text=True)
            return said.returncode, said.stdout.splitlines()

    def test_counts(self):
        rc, lines = self.run_sum(
            '<testsuites><testsuite name="S"><testcase name="a" classname="S" status="run"/>'
            '<testcase name="b" classname="S" status="run"><skipped message="f.cpp:1&#10;no data here"/></testcase>'
            '</testsuite></testsuites>', "ok")
        self.assertEqual((rc, lines[-1]), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertIn("no data here", lines[0])

    def test_failures(self):
        rc, lines = self.run_sum('<testsuites><testcase name="a" classname="S"><failure/></testcase></testsuites>', "FAILED")
        self.assertEqual((rc, lines[-1]), (1, "0 passed, 2 failed, 0 skipped"))

    def test_errors_of_pytest_are_failures(self):
        rc, lines = self.run_sum('<testsuites><testcase name="a" classname="t"><error message="fixture"/></testcase></testsuites>', "ok")
        self.assertEqual((rc, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))

    def test_an_empty_run_fails(self):
        rc, lines = self.run_sum(None, "ok")
        self.assertEqual((rc, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))


@unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg-deb here")
class Setup(unittest.TestCase):
    """`./dev setup` with an apt-get that this test wrote: it finds a lock held as often as `locked` says."""

    APT = """#!/bin/sh
echo "$@" >> calls
if [ "$2" = update ]; then
  left=$(cat locked); echo $((left - 1)) > locked
  if [ "$left" -gt 0 ]; then echo "$(cat why)" >&2; exit 100; fi
else
  touch installed
fi
"""
    DPKG = """#!/bin/sh
shift 2
if [ -e installed ]; then for name in "$@"; do echo "ii |$name"; done; fi
"""

    def set_up(self, locked, why="E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7"):
        with tempfile.TemporaryDirectory(prefix="sluice-setup-") as name:
            folder = pathlib.Path(name)
            text = (ROOT / "dev").read_text().replace("LOCK_WAIT_S=600", "LOCK_WAIT_S=20")
            for file, text in {"dev": text, "bin/apt-get": self.APT, "bin/dpkg-query": self.DPKG, "bin/sleep": "#!/bin/sh\n",
                               "bin/sudo": "#!/bin/sh\nshift; exec \"$@\"\n", "locked": str(locked), "why": why}.items():
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).write_text(text)
                (folder / file).chmod(0o755)
            done = subprocess.run([folder / "dev", "setup"], env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"},
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
            return done, (folder / "calls").read_text().splitlines()

    def test_waits_for_a_lock_that_is_held(self):
        done, calls = self.set_up(locked=3)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([call.split()[1] for call in calls[:4]], ["update"] * 4)
        self.assertEqual(done.stdout.count("waiting for it"), 3)
        self.assertIn("-o DPkg::Lock::Timeout=20 install -y", calls[-1])

    def test_other_errors_and_endless_locks_are_errors(self):
        done, calls = self.set_up(locked=1, why="E: The repository has no Release file.")
        self.assertEqual((done.returncode, len(calls)), (1, 1))
        done, calls = self.set_up(locked=100_000)
        self.assertEqual((done.returncode, len(calls)), (1, 5))


class Sysroot(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def package(self, name, **files):
        """A Debian package that has these files; a text that begins with -> is where a link points."""
        tree = self.folder / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.org>\nDescription: d\n")
        for path, text in files.items():
            at = tree / path
            at.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("->"):
                at.symlink_to(text[2:])
            else:
                at.write_text(text)
        archive = self.folder / f"{name}_1_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(tree), str(archive)], check=True, stdout=subprocess.DEVNULL)
        return archive

    def test_is_merged_and_its_links_stay_inside(self):
        archives = [self.package("libz1", **{"lib/x/libz.so.1": "of z", "usr/share/doc/libz1/copyright": "c"}),
                    self.package("libz-dev", **{"usr/lib/x/libz.so": "->/lib/x/libz.so.1"}),
                    self.package("sed", **{"bin/sed": "a tool"})]
        root = self.folder / "root"
        sysroot.lay(archives, root)
        self.assertEqual((root / "usr/lib/x/libz.so").read_text(), "of z")
        self.assertEqual((root / "usr/lib/x/libz.so").resolve(), (root / "usr/lib/x/libz.so.1").resolve())
        self.assertTrue((root / "lib").is_symlink())
        self.assertFalse((root / "bin").exists())
        self.assertFalse((root / "usr/share/doc").exists())

    def test_a_failure_leaves_nothing_and_keeps_what_was_there(self):
        folder = self.folder / "there"
        folder.mkdir()
        (folder / "packages.txt").write_text("another list")
        with unittest.mock.patch.object(sysroot, "fetch", side_effect=OSError("no archive")), \
                unittest.mock.patch.object(sys, "argv", ["sysroot.py", str(folder)]):
            with self.assertRaises(OSError):
                sysroot.main()
        self.assertEqual([p.name for p in self.folder.iterdir()], ["there"])
        self.assertEqual((folder / "packages.txt").read_text(), "another list")

    def test_what_is_there_is_not_fetched_again(self):
        archive = self.package("libz1", **{"usr/lib/libz.so.1": "z"})
        folder = self.folder / "new"
        with unittest.mock.patch.object(sysroot, "fetch", return_value=[archive]) as fetch, \
                contextlib.redirect_stdout(None), \
                unittest.mock.patch.object(sys, "argv", ["sysroot.py", str(folder)]):
            sysroot.main()
            sysroot.main()
        self.assertEqual(fetch.call_count, 1)
        self.assertEqual((folder / "usr/lib/libz.so.1").read_text(), "z")


class Layers(unittest.TestCase):
    def test_allowed_is_closed(self):
        for layer, may in check_layers.ALLOWED.items():
            self.assertNotIn(layer, may)
            for below in may:
                self.assertLessEqual(check_layers.ALLOWED[below], may, f"{layer} includes {below}")


class LeftOut(unittest.TestCase):
    def test_each_name_is_of_a_test(self):
        text = "".join(path.read_text(encoding="utf-8") for folder in ("src", "tests", "apps", "studies") for path in (ROOT / folder).rglob("*_test.cpp"))
        names = {f"{suite}.{test}" for suite, test in re.findall(r"^(?:TEST|TEST_F|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)", text, re.M)}
        names |= {f"{suite}/0.{test}" for suite, test in re.findall(r"^TYPED_TEST\(\s*(\w+),\s*(\w+)", text, re.M)}
        instances = re.findall(r"^INSTANTIATE_(TYPED_)?TEST_SUITE_P\(\s*(\w+),\s*(\w+)", text, re.M)
        for suite, test in re.findall(r"^(?:TYPED_)?TEST_P\(\s*(\w+),\s*(\w+)", text, re.M):
            names |= {f"{prefix}/{suite}/0.{test}" if typed else f"{prefix}/{suite}.{test}/0" for typed, prefix, of in instances if of == suite}
        lines = [line.split() for line in (ROOT / "tests/left_out.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        self.assertEqual({len(line) for line in lines}, {2})
        self.assertEqual({preset for preset, _ in lines}, {"asan", "aarch64", "tsan"})
        for preset, pattern in lines:
            first = re.sub(r"(\..*/).*", r"\g<1>0", pattern)  # of a test's instances
            self.assertTrue(fnmatch.filter(names, first), f"{preset} {pattern}: no test has such a name")


if __name__ == "__main__":
    unittest.main()
