"""Many captures in parts: the bytes are those of one run, whatever the engine, the parts and what happens on the way."""
import json
import os
import random
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

import sluice
import sluice.ray
from conftest import block, interface, ipv4_frame, packet, pcap, pcapng, section
from sluice._program import Worker
from sluice._sources import Source


@pytest.fixture
def captures(tmp_path, frames):
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(4):
        (folder / f"{i}.pcap").write_bytes(pcap(frames[i * 400 : (i + 1) * 400 + 100]))
    (folder / "large.pcap").write_bytes(pcap(frames))
    return folder


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.suffix == ".pcap"} | {"report": (folder / "report.json").read_bytes()}


def test_parts_are_the_whole(graph, captures, tmp_path):
    whole = sluice.run(graph, captures / "large.pcap", tmp_path / "whole.pcap")
    report = sluice.ray.run(graph, captures / "large.pcap", tmp_path / "out", engine="local", part_bytes=20_000, workers=3)
    assert report.parts > 4 and report.packets_in == whole.packets_in
    assert (report.packets_out, report.drops, report.bytes_out) == (whole.packets_out, whole.drops, whole.bytes_out)
    joined = b"".join(open(path, "rb").read()[24:] for path in report.outputs)
    assert joined == (tmp_path / "whole.pcap").read_bytes()[24:]


def test_a_folder_of_captures(graph, captures, tmp_path):
    report = sluice.ray.run(graph, str(captures / "*.pcap"), tmp_path / "out", engine="local", dropped=True, verdicts=True)
    one_by_one = [sluice.run(graph, p, tmp_path / "one.pcap") for p in sorted(captures.iterdir())]
    merged = sluice.Report.merged(one_by_one)
    assert (report.packets_in, report.packets_out, report.drops) == (merged.packets_in, merged.packets_out, merged.drops)
    import pyarrow.parquet

    tables = [pyarrow.parquet.read_table(p) for p in report.outputs if p.endswith(".parquet")]
    assert sum(t.num_rows for t in tables) == report.packets_in
    dropped = [p for p in report.outputs if p.endswith(".dropped.pcapng")]
    assert sum(sluice.read_pcap(p, ["number"]).read_all().num_rows for p in dropped) == report.dropped
    summary = json.loads((tmp_path / "out" / "report.json").read_text())
    assert summary["packets_in"] + summary["generated"] == summary["packets_out"] + summary["dropped"]
    assert not [p for p in os.listdir(tmp_path / "out") if "partial" in p or p.startswith(".")]


def test_an_interrupted_run_goes_on_with_what_is_missing(graph, captures, tmp_path):
    out = tmp_path / "out"
    first = sluice.ray.run(graph, captures / "*.pcap", out, engine="local", part_bytes=30_000)
    expected = contents(out)
    lost = sorted(p for p in out.iterdir() if p.suffix == ".json" and p.name[0].isdigit())[1::2]
    for path in lost:
        path.unlink()
    kept = {p.name: p.stat().st_mtime_ns for p in out.iterdir() if p.suffix == ".json" and p.name[0].isdigit()}
    again = sluice.ray.run(graph, captures / "*.pcap", out, engine="local", part_bytes=30_000)
    assert (again.packets_in, again.drops) == (first.packets_in, first.drops) and contents(out) == expected
    assert all((out / name).stat().st_mtime_ns == when for name, when in kept.items())


def test_an_output_of_another_run_is_refused(graph, captures, tmp_path):
    sluice.ray.run(graph, captures / "0.pcap", tmp_path / "out", engine="local")
    with pytest.raises(sluice.Error, match="another run"):
        sluice.ray.run(graph, captures / "1.pcap", tmp_path / "out", engine="local")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(sluice.Error, match="not empty"):
        sluice.ray.run(graph, captures / "1.pcap", tmp_path / "full", engine="local")


@pytest.mark.parametrize("seed", range(5))
def test_cuts_are_where_packets_begin_whatever_the_payload(graph, tmp_path, seed):
    """Payloads that are captures themselves show chains of records that are none of the file's."""
    chance = random.Random(seed)
    inner = pcap([ipv4_frame(i, i, payload=bytes(chance.randrange(30))) for i in range(300)])[24:]
    frames = []
    for i in range(60):
        cut = chance.randrange(0, 20_000)
        payload = inner[cut : cut + chance.choice([0, 10, 1000, 20_000])] if chance.random() < 0.7 else chance.randbytes(50)
        frames.append(ipv4_frame(i, 7, payload=payload) if len(payload) < 60_000 else ipv4_frame(i, 7))
    path = tmp_path / "nested.pcap"
    path.write_bytes(pcap(frames))
    whole = sluice.run(graph, path, tmp_path / "whole.pcap")
    report = sluice.ray.run(graph, path, tmp_path / "out", engine="local", part_bytes=chance.randrange(3_000, 40_000))
    assert (report.packets_in, report.packets_out, report.drops) == (60, whole.packets_out, whole.drops)
    joined = b"".join(open(p, "rb").read()[24:] for p in report.outputs)
    assert joined == (tmp_path / "whole.pcap").read_bytes()[24:]


@pytest.mark.parametrize("order", ["<", ">"])
def test_parts_of_pcapng_are_the_whole(graph, frames, tmp_path, order):
    path = tmp_path / "large.pcapng"
    path.write_bytes(pcapng(frames, order, interfaces=3))
    sluice.run(graph, path, tmp_path / "whole.pcap")
    report = sluice.ray.run(graph, path, tmp_path / "out", engine="local", part_bytes=20_000)
    assert report.parts > 5 and report.packets_in == len(frames)
    assert b"".join(open(p, "rb").read()[24:] for p in report.outputs) == (tmp_path / "whole.pcap").read_bytes()[24:]
    heads = {open(p, "rb").read(24) for p in report.outputs}
    assert heads == {(tmp_path / "whole.pcap").read_bytes()[:24]}


@pytest.mark.parametrize("seed", range(5))
def test_cuts_of_pcapng_are_where_blocks_begin_whatever_the_payload(graph, tmp_path, seed):
    """Payloads show chains of blocks that are none of the file's."""
    chance = random.Random(seed)
    inner = b"".join(packet(ipv4_frame(i, i, payload=bytes(chance.randrange(30))), i) for i in range(300))
    frames = []
    for i in range(60):
        cut = 4 * chance.randrange(0, 5_000)
        payload = bytes(2) + inner[cut : cut + chance.choice([0, 10, 1000, 20_000])] if chance.random() < 0.7 else chance.randbytes(50)
        frames.append(ipv4_frame(i, 7, payload=payload))
    path = tmp_path / "nested.pcapng"
    path.write_bytes(pcapng(frames))
    sluice.run(graph, path, tmp_path / "whole.pcap")
    report = sluice.ray.run(graph, path, tmp_path / "out", engine="local", part_bytes=chance.randrange(3_000, 40_000))
    assert report.packets_in == 60
    assert b"".join(open(p, "rb").read()[24:] for p in report.outputs) == (tmp_path / "whole.pcap").read_bytes()[24:]


@pytest.mark.parametrize("between", [interface(), section() + interface()])
def test_a_pcapng_file_that_describes_an_interface_later_is_right_all_the_same(graph, frames, tmp_path, between):
    first, second = frames[:1000], frames[1000:]
    path = tmp_path / "late.pcapng"
    of = 0 if between.startswith(section()) else 1
    others = block(4, bytes(4)) + block(5, struct.pack("<III", 0, 0, 0))  # name resolution, statistics
    path.write_bytes(pcapng(first) + between + others + b"".join(packet(f, i, of=of) for i, f in enumerate(second)) + others)
    sluice.run(graph, path, tmp_path / "whole.pcap")
    report = sluice.ray.run(graph, path, tmp_path / "out", engine="local", part_bytes=20_000)
    assert report.packets_in == len(frames) and report.parts == 1
    assert open(report.outputs[0], "rb").read() == (tmp_path / "whole.pcap").read_bytes()
    # In the last part nothing else follows.
    (tmp_path / "last.pcapng").write_bytes(pcapng(first) + between + packet(second[0], 0, of=of))
    report = sluice.ray.run(graph, tmp_path / "last.pcapng", tmp_path / "last", engine="local", part_bytes=len(pcapng(first)) // 2)
    assert report.packets_in == 1001


def test_images_are_taken_as_they_are(graph, captures, tmp_path):
    sluice.Acl.from_file(tmp_path / "edge.acl").save(tmp_path / "edge.img")
    compiled = sluice.Graph.standard(acl=tmp_path / "edge.img")
    one = sluice.ray.run(graph, captures / "0.pcap", tmp_path / "one", engine="local")
    other = sluice.ray.run(compiled, captures / "0.pcap", tmp_path / "other", engine="local")
    assert one.packets_in > 0 and contents(tmp_path / "one") == contents(tmp_path / "other") and one.drops == other.drops


def test_damage_and_missing_files_are_told_and_nothing_counts(graph, captures, tmp_path):
    (captures / "bad.pcap").write_bytes((captures / "0.pcap").read_bytes()[:-3])
    with pytest.raises(sluice.Error, match="bad.pcap"):
        sluice.ray.run(graph, captures / "*.pcap", tmp_path / "out", engine="local")
    assert not (tmp_path / "out" / "report.json").exists()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sluice.ray.run(graph, captures / "nowhere*.pcap", tmp_path / "other", engine="local")
    assert not (tmp_path / "other").exists()
    part = sluice.ray.Part("x", Source(str(tmp_path / "gone.pcap"), str(tmp_path / "gone.pcap"), 24, 0))
    job = sluice.ray._Job("", "", {}, graph.options, [], str(tmp_path), ".pcap", False, False)
    with pytest.raises(sluice.Error, match="no such file on"):
        sluice.ray.run_part(part, job, Worker())
    with pytest.raises(ValueError, match="engine"):
        sluice.ray.run(graph, captures / "0.pcap", tmp_path / "other", engine="slurm")


def test_what_a_failed_part_says_of_its_files_is_so(graph, captures, tmp_path):
    (captures / "bad.pcap").write_bytes((captures / "0.pcap").read_bytes()[:-3])
    out = tmp_path / "out"
    for part_bytes in (None, 20_000):
        with pytest.raises(sluice.Error, match="bad.pcap") as caught:
            sluice.ray.run(graph, captures / "bad.pcap", out, engine="local", part_bytes=part_bytes)
        assert "partial" not in str(caught.value) and "before it can be read" in caught.value.help and ".attempts" not in str(caught.value)
        assert [p.name for p in out.iterdir() if not p.name.startswith((".attempts", "000000-bad.0"))] == ["run.json"] and not list((out / ".attempts").iterdir())
        shutil.rmtree(out)


def test_a_run_that_failed_before_any_part_ended_is_no_other_run(graph, captures, tmp_path):
    for wrong in ({"device": "gpu"}, {"options": ["--no-such-option"]}):
        with pytest.raises(sluice.Error):
            sluice.ray.run(graph, captures / "0.pcap", tmp_path / "out", engine="local", **wrong)
    report = sluice.ray.run(graph, captures / "0.pcap", tmp_path / "out", engine="local")
    assert report.packets_in == 500
    with pytest.raises(sluice.Error, match="another run"):
        sluice.ray.run(graph, captures / "0.pcap", tmp_path / "out", engine="local", options=["--default", "permit"])


def test_arguments_that_cannot_be_meant_are_named(graph, captures, tmp_path):
    one = captures / "0.pcap"
    for error, match, given in (
        (TypeError, "workers is 1.5", {"workers": 1.5}),
        (TypeError, "workers is '2'", {"workers": "2"}),
        (ValueError, "workers is 0", {"workers": 0}),
        (TypeError, "retries is None", {"retries": None}),
        (ValueError, "retries is -1", {"retries": -1}),
        (TypeError, "part_bytes is 1000.0", {"part_bytes": 1e3}),
        (ValueError, "part_bytes is 0", {"part_bytes": 0}),
        (TypeError, "options is the string", {"options": "--default permit"}),
        (TypeError, "inputs is 5", {"inputs": 5}),
        (TypeError, "inputs has 5", {"inputs": [one, 5]}),
        (TypeError, "inputs is b'", {"inputs": os.fsencode(one)}),
        (TypeError, "output is 7", {"output": 7}),
        (TypeError, "output is b'", {"output": os.fsencode(tmp_path / "out")}),
        (NotADirectoryError, "0.pcap'", {"output": one}),
    ):
        with pytest.raises(error, match=match):
            sluice.ray.run(**{"graph": graph, "inputs": one, "output": tmp_path / "out", "engine": "local", **given})
    assert not (tmp_path / "out").exists()
    with pytest.raises(TypeError, match="options is the string"):
        sluice.run(graph, one, tmp_path / "out.pcap", options="--default permit")


def test_a_graph_with_state_is_not_cut(captures, tmp_path):
    text = "FromDump($IN) -> Queue(10) -> Unqueue -> ToDump($OUT);"
    assert sluice.Graph(text).state()
    with pytest.raises(sluice.Error, match="state"):
        sluice.ray.run(text, captures / "*.pcap", tmp_path / "out", engine="local")


def test_parts_of_a_graph_in_clicks_language(captures, tmp_path):
    text = "FromDump($IN) -> Truncate(34) -> ToDump($OUT);"
    sluice.run(text, captures / "large.pcap", tmp_path / "whole.pcap")
    report = sluice.ray.run(text, captures / "large.pcap", tmp_path / "out", engine="local", part_bytes=10_000)
    assert b"".join(open(p, "rb").read()[24:] for p in report.outputs) == (tmp_path / "whole.pcap").read_bytes()[24:]
    assert report.parts > 5


RAY = """
import os, pathlib, sys
import ray
from ray.cluster_utils import Cluster
import sluice, sluice.ray
folder = pathlib.Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
real = sluice.ray.run_part
# The worker of one part dies in the middle, once.
def dying(part, job, worker):
    flag = folder / "died"
    if part.name.startswith("000001") and not flag.exists():
        flag.touch()
        (pathlib.Path(job.output) / ".attempts" / (part.name + ".half.pcap")).write_bytes(b"half")
        os._exit(9)
    return real(part, job, worker)
sluice.ray.run_part = dying
graph = sluice.Graph.standard(acl=folder / "edge.acl")
report = sluice.ray.run(graph, folder / "in" / "*.pcap", folder / "ray", part_bytes=30_000)
from pyarrow import fs
below = fs.SubTreeFileSystem(str(folder / "in"), fs.LocalFileSystem())
sluice.ray.run(graph, "*.pcap", folder / "below", part_bytes=30_000, filesystem=below)
print(report.packets_in, report.parts, len([n for n in ray.nodes() if n["Alive"]]))
ray.shutdown()
cluster.shutdown()
"""


def test_ray_gives_the_same_bytes_also_where_a_worker_dies(graph, captures, tmp_path):
    """Two nodes in one machine."""
    pytest.importorskip("ray", reason="ray is not installed")
    local = sluice.ray.run(graph, captures / "*.pcap", tmp_path / "local", engine="local", part_bytes=30_000)
    done = subprocess.run([sys.executable, "-c", RAY, str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == [str(local.packets_in), str(local.parts), "2"]
    assert contents(tmp_path / "ray") == contents(tmp_path / "below") == contents(tmp_path / "local")
    assert (tmp_path / "died").exists()


def test_resynchronisation_says_nothing_of_what_is_no_capture():
    from sluice import _sluice

    with pytest.raises(ValueError, match="data"):
        _sluice.capture_resynchronise(np.zeros(100, np.uint8), 24, 30, 4)
    with pytest.raises(ValueError, match="data"):
        _sluice.capture_walk(np.zeros(0, np.uint8), 24, 30, 40)
    assert _sluice.capture_prefix(np.zeros(100, np.uint8)) == _sluice.capture_prefix(np.zeros(0, np.uint8)) == 0
    data = np.frombuffer(pcap([ipv4_frame(1, 2)] * 10), np.uint8)
    record = 16 + len(ipv4_frame(1, 2))
    assert _sluice.capture_prefix(data) == 24
    assert _sluice.capture_resynchronise(data, 24, 25, 4) == 24 + record
    assert _sluice.capture_resynchronise(data, 24, len(data) - 3, 4) == -1
    assert _sluice.capture_walk(data, 24, 24, 24 + 3 * record) == (24 + 3 * record, 3)
    assert _sluice.capture_walk(data, 24, 24, 25 + 3 * record) == (24 + 4 * record, 4)
