"""Captures as columns against what the frames were made of."""
import gzip
import struct

import numpy as np
import pyarrow as pa
import pytest

import sluice
from conftest import ipv4_frame, ipv6_frame, pcap


def test_columns_are_what_the_frames_say():
    four = ipv4_frame(0x0A000001, 0xC0000207, 6, 1234, 443, flags=0x12, ttl=7, dscp=46)
    six = ipv6_frame(bytes(range(16)), bytes(range(16, 32)), 17, 9, 53)
    ping = ipv4_frame(1, 2, proto=1)
    tagged = four[:12] + b"\x81\x00\x20\x0a" + four[12:]
    arp = b"\xff" * 12 + b"\x08\x06" + bytes(46)
    table = sluice.read_pcap(pcap([four, six, ping, tagged, arp]), sluice.COLUMNS).read_all()
    rows = table.to_pylist()
    assert [r["number"] for r in rows] == [1, 2, 3, 4, 5]
    assert [r["family"] for r in rows] == [4, 6, 4, 4, 0]
    first = rows[0]
    assert (first["src"], first["dst"], first["sport"], first["dport"], first["proto"]) == (0x0A000001, 0xC0000207, 1234, 443, 6)
    assert (first["flags"], first["ttl"], first["dscp"], first["bits"], first["vlan"], first["src6"]) == (0x12, 7, 46, 1, None, None)
    assert first["frame"] == four and (first["length"], first["captured"]) == (len(four), len(four))
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert rows[1]["src6"] == bytes(range(16)) and rows[1]["dst6"] == bytes(range(16, 32)) and rows[1]["src"] is None
    assert rows[1]["dport"] == 53
    assert (rows[2]["sport"], rows[2]["icmp"], rows[2]["bits"]) == (None, 8 << 8, 0)
    assert rows[3]["vlan"] == 10 and rows[3]["src"] == first["src"]
    assert (rows[4]["status"], rows[4]["proto"], rows[4]["ttl"], first["status"]) == ("not-ip", None, None, "ok")
    assert table.schema == sluice.schema(sluice.COLUMNS)
    table.validate(full=True)


@pytest.mark.parametrize("rows", [1, 7, 8, 64, 65, 1999, 2000, 65_536])
def test_batches_of_any_size_are_the_same_table(capture, frames, rows):
    reader = sluice.read_pcap(capture, ["number", "src", "sport", "frame"], batch_rows=rows)
    batches = list(reader)
    assert [b.num_rows for b in batches[:-1]] == [rows] * (len(batches) - 1)
    table = pa.Table.from_batches(batches)
    table.validate(full=True)
    assert table["frame"].to_pylist() == frames
    assert table.to_pylist() == sluice.read_pcap(capture, ["number", "src", "sport", "frame"]).read_all().to_pylist()


def test_batches_are_keys(capture, frames):
    acl = sluice.Acl.from_rules(["permit icmp from any to any", "permit udp from any to any port 53", "deny tcp from any to any port 81", "permit ip from 2001:db8::/32 to any"])
    found = np.concatenate([acl.classify(batch) for batch in sluice.read_pcap(capture, batch_rows=300)])
    assert found.tolist() == acl.classify(sluice.read_pcap(capture)).tolist() == acl.classify(sluice.read_pcap(capture).to_pandas()).tolist()
    expected = [acl.explain(frame).position for frame in frames[:40]]
    assert found[:40].tolist() == expected and len(set(expected)) >= 4


def test_other_libraries_take_the_stream(capture):
    import polars

    assert pa.table(sluice.read_pcap(capture)).num_rows == 2000
    assert len(polars.from_arrow(sluice.read_pcap(capture, ["number", "sport"]).reader())) == 2000
    assert sluice.read_pcap(capture, ["number"]).to_pandas()["number"].sum() == 2000 * 2001 // 2


def test_compressed_captures_and_bytes(capture, tmp_path):
    plain = sluice.read_pcap(capture).read_all()
    squeezed = tmp_path / "in.pcap.gz"
    squeezed.write_bytes(gzip.compress(capture.read_bytes()))
    assert sluice.read_pcap(squeezed).read_all().equals(plain)
    assert sluice.read_pcap(capture.read_bytes()).read_all().equals(plain)


def test_a_capture_that_ends_early_gives_all_before_and_then_an_error(capture, frames, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:-3])
    reader = sluice.read_pcap(cut, ["frame"], batch_rows=1500)
    got = []
    with pytest.raises(sluice.Error, match="cut.pcap"):
        for batch in reader:
            got += batch["frame"].to_pylist()
    assert got == frames[:-1]


def test_wrong_arguments(capture, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sluice.read_pcap(tmp_path / "nowhere")
    text = tmp_path / "text"
    text.write_text("no capture at all, but a text of some length")
    for wrong in (text, b"", b"\xd4\xc3"):
        with pytest.raises(sluice.Error):
            sluice.read_pcap(wrong)
    with pytest.raises(ValueError, match="columns.*ports.*sport"):
        sluice.read_pcap(capture, ["ports"])
    for columns in ([], ["src", "src"]):
        with pytest.raises(ValueError, match="columns"):
            sluice.read_pcap(capture, columns)
    with pytest.raises(TypeError, match="columns"):
        sluice.read_pcap(capture, "src")
    for rows in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="batch_rows"):
            sluice.read_pcap(capture, batch_rows=rows)
    assert "in.pcap" in repr(sluice.read_pcap(capture)) and "ETHERNET" in sluice.read_pcap(capture).link.upper() or "EN10MB" in sluice.read_pcap(capture).link


def test_an_empty_capture_has_no_rows():
    table = sluice.read_pcap(pcap([])).read_all()
    assert table.num_rows == 0 and table.schema == sluice.schema()
    acl = sluice.Acl.from_rules(["permit ip from any to any"])
    assert acl.classify(table).tolist() == []


def test_batches_outlive_their_reader(capture):
    batches = list(sluice.read_pcap(capture, ["frame", "src"], batch_rows=500))
    total = sum(len(f) for b in batches for f in b["frame"].to_pylist())
    assert total == sum(struct.unpack_from("<I", r)[0] for r in _lengths(capture.read_bytes()))


def _lengths(data):
    at = 24
    while at < len(data):
        yield data[at + 8 : at + 12]
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
