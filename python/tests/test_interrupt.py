"""Ctrl-C in the middle of a run over many captures: what was complete stays, the rest leaves nothing, and it goes on."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import pytest

import sluice
import sluice.ray
from conftest import pcap

LIMIT = 120

# Of five captures one comes slowly and without end, as from a store that is far away, and one is run until it is told to
# end: that part waits for the program alone.
CHILD = """
import dataclasses, os, pathlib, sys, time
import sluice, sluice.ray

folder, engine = pathlib.Path(sys.argv[1]), sys.argv[2]
real = sluice.ray.run_part


class Slow(sluice.ray.Part):
    def feed(self):
        data = pathlib.Path(self.source.path).read_bytes()

        def give(to):
            to.write(data)
            to.flush()
            (folder / ("slow-" + self.name)).touch()
            while True:
                time.sleep(0.01)
                to.write(data[24:])
                to.flush()

        return give


def run_part(part, job, worker):
    if part.name.startswith("000002"):
        part = Slow(part.name, part.source)
    elif part.name.startswith("000003"):
        job = dataclasses.replace(job, run_options=[*job.run_options, "--wait", "--control", str(folder / "slow-socket")])
    return real(part, job, worker)


sluice.ray.run_part = run_part
if engine == "ray":
    import ray

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
try:
    sluice.ray.run(
        sluice.Graph.standard(acl=folder / "edge.acl"), folder / "in" / "*.pcap", folder / "out", engine=engine, workers=2, verdicts=True
    )
except KeyboardInterrupt:
    # Now, and not when this process has ended: in a notebook it goes on.
    print("interrupted", os.listdir(folder / "out" / ".attempts"), (folder / "slow-socket").exists())
"""


def eventually(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"{what} within {LIMIT} s"
        time.sleep(0.05)


def marked(mark):
    """The processes whose environment has the mark, by their command lines."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has ended meanwhile
            pass
    return [line for line in found if line]  # without those that nobody has waited for yet


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_an_interrupted_run_leaves_what_is_complete_and_goes_on(graph, frames, tmp_path, engine):
    if engine == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    (tmp_path / "in").mkdir()
    for i in range(5):
        (tmp_path / "in" / f"{i}.pcap").write_bytes(pcap(frames[i * 100 : i * 100 + 100]))
    out, mark = tmp_path / "out", f"SLUICE_MARK={uuid.uuid4().hex}"
    name, value = mark.split("=")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), engine], env={**os.environ, name: value},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        eventually("both slow parts run", lambda: child.poll() is not None or len(list(tmp_path.glob("slow-*"))) == 2)
        assert child.poll() is None, child.communicate()
        assert marked(mark) and os.listdir(out / ".attempts")
        child.send_signal(signal.SIGINT)
        said, error = child.communicate(timeout=LIMIT)
    finally:
        child.kill()
        child.wait()
    assert said == "interrupted [] False\n" and child.returncode == 0, error
    eventually("all its processes end", lambda: not marked(mark))

    complete = {f"00000{i}-{i}{ending}" for i in (0, 1) for ending in (".json", ".pcap", ".parquet")}
    left = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert left == complete | {"run.json"}
    when = {name: (out / name).stat().st_mtime_ns for name in complete}
    arguments = {"engine": "local", "workers": 2, "verdicts": True}
    again = sluice.ray.run(graph, tmp_path / "in" / "*.pcap", out, **arguments)
    assert again.packets_in == 500 and again.parts == 5
    assert {name: (out / name).stat().st_mtime_ns for name in complete} == when, "complete parts are not run again"
    sluice.ray.run(graph, tmp_path / "in" / "*.pcap", tmp_path / "whole", **arguments)
    for path in (tmp_path / "whole").iterdir():
        if path.suffix == ".pcap" or path.name == "report.json":
            assert (out / path.name).read_bytes() == path.read_bytes()
    assert not (out / ".attempts").exists()
