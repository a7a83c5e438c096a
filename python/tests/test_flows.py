"""Connections of captures, as a table."""
import pyarrow as pa
import pyarrow.parquet
import pytest

import sluice
from conftest import ipv4_frame, pcap

A, B = 0x0A000001, 0xC0000207


def test_a_row_is_a_connection_with_both_directions(tmp_path):
    capture = tmp_path / "a.pcap"
    capture.write_bytes(pcap([
        ipv4_frame(A, B, 6, 1234, 443, flags=2), ipv4_frame(B, A, 6, 443, 1234, flags=0x12),
        ipv4_frame(A, B, 6, 1234, 443, flags=0x10), ipv4_frame(A, B, 17, 5, 53, payload=b"abcd"),
    ]))  # fmt: skip
    table = sluice.flows(capture)
    first, second = table.to_pylist()
    assert (first["protocol"], first["src"], first["sport"], first["dst"], first["dport"]) == ("tcp", "10.0.0.1", 1234, "192.0.2.7", 443)
    assert (first["packets"], first["reply_packets"], first["bytes"], first["reply_bytes"]) == (2, 1, 108, 54)
    assert first["state"] == "established" and first["end"] >= first["start"] > 1.6e9
    assert (second["protocol"], second["packets"], second["reply_packets"], second["bytes"]) == ("udp", 1, 0, 46)
    pa.parquet.write_table(table, tmp_path / "flows.parquet")
    assert pa.parquet.read_table(tmp_path / "flows.parquet").equals(table)


def test_a_connection_ends_by_the_timeout_that_is_asked_for(tmp_path):
    capture = tmp_path / "a.pcap"
    capture.write_bytes(pcap([ipv4_frame(A, B, 17, 5, 53)] * 1001))  # the last one is a second behind
    assert sluice.flows(capture).num_rows == 1
    assert sluice.flows(capture, timeout=0.5).num_rows == 2


def test_no_connection_is_an_empty_table_and_no_capture_is_an_error(tmp_path):
    capture = tmp_path / "a.pcap"
    capture.write_bytes(pcap([]))
    empty = sluice.flows(capture)
    assert empty.num_rows == 0 and empty.schema.field("sport").type == pa.uint16()
    with pytest.raises(OSError):
        sluice.flows(tmp_path / "none.pcap")
    capture.write_bytes(b"no capture")
    with pytest.raises(sluice.Error):
        sluice.flows(capture)
