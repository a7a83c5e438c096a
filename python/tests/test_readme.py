"""What docs/tour.md shows of the package works as it is shown."""
import os
import pathlib
import re
import subprocess
import sys

import sluice

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_tour(tmp_path, monkeypatch):
    text = (ROOT / "docs/tour.md").read_text()
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
