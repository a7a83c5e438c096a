"""What README.md shows of the package works as it is shown."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

import sluice

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_tour(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text()
    rules = re.search(r"```text file=edge.acl\n(.*?)```", text, re.S).group(1)
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    pathlib.Path("edge.acl").write_text(rules)
    gen = [sys.executable, "-m", "sluice", "gen"]
    subprocess.run([*gen, "routes", "--ipv4", "1000", "--ipv6", "100", "--out", "rib.txt"], check=True, capture_output=True)
    subprocess.run([*gen, "traffic", "--rules", "edge.acl", "--packets", "2000", "--out", "in.pcap"], check=True, capture_output=True)
    os.mkdir("captures")
    os.link("in.pcap", "captures/a.pcap")
    names = {}
    for block in blocks:
        exec(block, names)
    assert names["acl"].hits().packets.sum() == names["report"].packets_in == 2000
    assert isinstance(names["report"], sluice.Report)


def test_pip_installs_the_repositorys_root(tmp_path):
    """Beside what is tested here: that is an installation of python/, in the same build folder."""
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed here: ./dev python has it")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps", "--no-compile", "--no-build-isolation"]
    done = subprocess.run([*pip, "--target", str(tmp_path / "site"), "."], cwd=ROOT, env={**os.environ, "CC": "cc", "CXX": "c++"}, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    code = "import sluice, numpy as np; print(sluice.__file__, sluice.Acl.from_rules(['permit ip from any to any']).classify(src=np.zeros(1, np.uint32), dst=np.zeros(1, np.uint32)))"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, timeout=60)
    assert said.stdout == f"{tmp_path / 'site' / 'sluice' / '__init__.py'} [1]\n", said.stderr
