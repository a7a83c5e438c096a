"""Whole graphs, and the program in the wheel."""
import errno
import os
import signal
import subprocess
import sys
import time

import pytest

import sluice
from conftest import ipv4_frame, pcap


def test_a_standard_graph_accounts_for_all(capture, rules, tmp_path, frames):
    out = tmp_path / "out.pcap"
    graph = sluice.Graph.standard(acl=rules)
    report = sluice.run(graph, capture, out)
    acl = sluice.Acl.from_file(rules)
    verdicts = acl.classify(sluice.read_pcap(capture), returns="verdicts")
    assert report.packets_in == len(frames) and report.packets_out == int((verdicts == 1).sum()) > 0
    assert report.packets_in + report.generated == report.packets_out + report.dropped
    assert report.drops == {"acl-deny": len(frames) - report.packets_out} or sum(report.drops.values()) == report.dropped
    assert report.outputs == [str(out)] and sluice.read_pcap(out).read_all().num_rows == report.packets_out
    assert "packets" in str(report) and "acl-deny" in report._repr_html_() and "edge.acl" in repr(graph)


def test_a_graph_as_text_and_as_file(capture, rules, tmp_path):
    text = f"AclTable(edge, FILE {rules}); FromDump($IN) -> IPInput -> ACL(TABLE edge) -> ToDump($OUT);"
    first = sluice.run(text, capture, tmp_path / "a.pcap")
    file = tmp_path / "g.click"
    file.write_text(text)
    second = sluice.run(file, capture, tmp_path / "b.pcap", workers=2)
    assert (first.packets_out, first.drops) == (second.packets_out, second.drops) and first.packets_out > 0
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()
    assert "FromDump" in sluice.Graph(text)._repr_html_() and sluice.Graph.from_file(file).state() == []
    limited = "FromDump($IN) -> Truncate($N) -> ToDump($OUT);"
    assert sluice.run(limited, capture, tmp_path / "c.pcap", variables={"N": "20"}).bytes_out == 20 * 2000


def test_what_is_wrong_with_a_graph(capture, rules, tmp_path):
    out = tmp_path / "out.pcap"
    out.write_bytes(b"old")
    with pytest.raises(sluice.Error) as caught:
        sluice.run("FromDump($IN) -> IPInputt -> ToDump($OUT);", capture, out)
    error = caught.value
    assert (error.file, error.line) == ("graph", 1) and "IPInputt" in error.source and "IPInput" in error.help and error.expected
    with pytest.raises(ValueError, match=r"\$IN"):
        sluice.run("FromDump(x.pcap) -> ToDump($OUT);", capture, out)
    with pytest.raises(ValueError, match=r"\$OUT"):
        sluice.run("FromDump($IN) -> Discard;", capture, out)
    with pytest.raises(ValueError, match="output"):
        sluice.run("FromDump($IN) -> ToDump($OUT);", capture)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sluice.run(tmp_path / "nowhere.click", capture, out)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sluice.run(sluice.Graph.standard(acl=rules), tmp_path / "nowhere", out)
    with pytest.raises(ValueError, match="acl"):
        sluice.Graph.standard()
    with pytest.raises(sluice.Error, match="fpga"):
        sluice.run(sluice.Graph.standard(acl=rules), capture, out, device="fpga")
    assert out.read_bytes() == b"old" and not list(tmp_path.glob("*.partial"))


def test_a_damaged_capture_leaves_no_output_but_says_what_it_did(capture, rules, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:-3])
    with pytest.raises(sluice.Error) as caught:
        sluice.run(sluice.Graph.standard(acl=rules), cut, tmp_path / "out.pcap")
    assert not (tmp_path / "out.pcap").exists() and (tmp_path / "out.pcap.partial").exists()
    assert "cut.pcap" in str(caught.value)


def test_reports_add_up():
    def made(n, dropped, drops):
        return sluice.Report(n, 10 * n, n - dropped, 0, 0, dropped, drops, {"0": {"packets": n - dropped, "bytes": 1}}, 0.5)

    both = sluice.Report.merged([made(10, 3, {"acl-deny": 3}), made(5, 2, {"no-route": 1, "acl-deny": 1})])
    assert (both.packets_in, both.dropped, both.parts, both.drops) == (15, 5, 2, {"acl-deny": 4, "no-route": 1})
    assert both.out == {"0": {"packets": 10, "bytes": 2}}
    with pytest.raises(sluice.Error, match="accounted"):
        sluice.Report.merged([made(10, 3, {"acl-deny": 2})])
    pytest.importorskip("matplotlib").use("Agg")
    assert [bar.get_width() for bar in both.plot().patches] == [10, 4, 1]


def test_the_program_is_in_the_package(tmp_path):
    for command in ([sys.executable, "-m", "sluice"], [os.path.join(os.path.dirname(sys.executable), "sluice")]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and sluice.__version__ in done.stdout
    done = subprocess.run([sys.executable, "-m", "sluice", "nothing"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "nothing" in done.stderr


def opened_by_reader(fifo, process, limit=60):
    """The FIFO for writing once somebody reads it. Fails where the process ends before, or nobody does."""
    end = time.monotonic() + limit
    while True:
        try:
            descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            return os.fdopen(descriptor, "wb")
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        assert process.poll() is None, "the process ended before it read"
        assert time.monotonic() < end, f"nobody reads within {limit} s"
        time.sleep(0.01)


def test_an_interrupt_ends_the_program_in_order(rules, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import sluice, sys\n"
        "try: sluice.run(sluice.Graph.standard(acl=sys.argv[1]), sys.argv[2], sys.argv[3])\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(rules), str(fifo), str(tmp_path / "out.pcap")], stdout=subprocess.PIPE, text=True)
    try:
        with opened_by_reader(fifo, process) as to:
            to.write(pcap([ipv4_frame(1, 2)]))
            to.flush()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert said == "interrupted\n" and process.returncode == 0
    assert not (tmp_path / "out.pcap").exists()


def test_many_errors_are_no_leak_of_files(rules, capture, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(sluice.Error):
            sluice.run("FromDump($IN) -> Nothing -> Discard;", capture)
    assert len(os.listdir("/proc/self/fd")) == before


def test_packets_are_counted_by_the_ports_that_next_hops_name(tmp_path):
    (tmp_path / "rib.txt").write_text("10.0.1.0/24 via 192.0.2.1\n10.0.2.0/24 via 192.0.2.2\n10.0.3.0/24 via 192.0.2.3\n")
    macs = "02:00:00:00:00:01 02:00:00:00:ff:01"
    (tmp_path / "adj.txt").write_text(f"192.0.2.1 {macs} 0\n192.0.2.2 {macs} 300\n192.0.2.3 {macs} 65535\n")
    graph = sluice.Graph.standard(routes=tmp_path / "rib.txt", adjacencies=tmp_path / "adj.txt")
    alike = [3] * 256
    mixed = [1 + (i * i) % 3 for i in range(300)]
    for name, nets in (("alike", alike), ("mixed", mixed), ("first", [1] * 70), ("both", alike + mixed)):
        (tmp_path / "in.pcap").write_bytes(pcap([ipv4_frame(0xC6336401, 0x0A000000 | net << 8 | 7) for net in nets]))
        expected = {str(port): nets.count(net) for net, port in ((1, 0), (2, 300), (3, 65535)) if net in nets}
        for more in ({}, {"options": ["--batch", "64"]}, {"workers": 2}):
            for output in (tmp_path / "out.pcap", "/dev/null"):
                report = sluice.run(graph, tmp_path / "in.pcap", output, **more)
                assert {port: sent["packets"] for port, sent in report.details["out"].items()} == expected, (name, more, output)
