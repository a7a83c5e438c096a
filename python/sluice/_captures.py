"""Captures as Arrow record batches."""
from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import _keys, _sluice
from ._paths import Path, readable

# name: (dtype, numbers in a row, bitmap of the rows that have a value, what it is)
_COLUMNS: dict[str, tuple[Any, int, str, str]] = {
    "number": (np.uint64, 1, "", "of the packet, from 1"),
    "timestamp": (np.int64, 1, "", "nanoseconds since 1970 UTC, as timestamp[ns, UTC]"),
    "length": (np.uint32, 1, "", "bytes on the wire, without FCS"),
    "captured": (np.uint32, 1, "", "bytes in the capture"),
    "family": (np.uint8, 1, "", "4, 6, or 0 for what is no valid IP packet"),
    "src": (np.uint32, 1, "valid_ip4", "source of IPv4, host order"),
    "dst": (np.uint32, 1, "valid_ip4", "destination of IPv4, host order"),
    "src6": (np.uint8, 16, "valid_ip6", "source of IPv6, 16 bytes"),
    "dst6": (np.uint8, 16, "valid_ip6", "destination of IPv6, 16 bytes"),
    "sport": (np.uint16, 1, "valid_ports", "source port; null where the packet has no ports"),
    "dport": (np.uint16, 1, "valid_ports", "destination port; null where the packet has no ports"),
    "proto": (np.uint8, 1, "valid_ip", "protocol; of IPv6 the last next header that was reached"),
    "flags": (np.uint8, 1, "valid_ip", "byte of TCP flags, 0 without"),
    "icmp": (np.uint16, 1, "valid_ip", "ICMP type << 8 | code, 0 without"),
    "dscp": (np.uint8, 1, "valid_ip", "DSCP, 0 to 63"),
    "ttl": (np.uint8, 1, "valid_ip", "TTL or hop limit"),
    "vlan": (np.uint16, 1, "valid_tagged", "VLAN of the outer tag; null without"),
    "bits": (np.uint8, 1, "", "1 has ports, 2 is a fragment, 4 is a later one"),
    "status": (np.uint8, 1, "", "ok, or what is wrong with the headers, as a dictionary of texts"),
    "frame": (np.uint8, 0, "", "the captured bytes, from the Ethernet header on"),
}
COLUMNS: tuple[str, ...] = tuple(_COLUMNS)
DEFAULT_COLUMNS: tuple[str, ...] = (
    "timestamp", "length", "captured", "family", "src", "dst", "src6", "dst6", "sport", "dport", "proto", "flags", "icmp",
    "dscp", "ttl", "bits",
)  # fmt: skip
_MOST_FRAME_BYTES = 64 << 20


def schema(columns: Sequence[str] | None = None) -> Any:
    """The pyarrow schema of the batches of `read_pcap`."""
    pa = _keys.need_pyarrow()
    return pa.schema([pa.field(name, _type(pa, name)) for name in _chosen(columns)])


def _chosen(columns: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise TypeError("columns is a string, not a list of names")
    chosen = DEFAULT_COLUMNS if columns is None else tuple(columns)
    for name in chosen:
        if name not in _COLUMNS:
            raise ValueError(f"columns names {name!r}; there are {', '.join(COLUMNS)}")
    if len(set(chosen)) != len(chosen):
        raise ValueError("columns names one twice")
    if not chosen:
        raise ValueError("columns is empty")
    return chosen


def _type(pa: Any, name: str) -> Any:
    dtype, width, _, _ = _COLUMNS[name]
    if name == "timestamp":
        return pa.timestamp("ns", tz="UTC")
    if name == "frame":
        return pa.binary()
    if name == "status":
        return pa.dictionary(pa.uint8(), pa.string())
    return pa.binary(16) if width == 16 else pa.from_numpy_dtype(dtype)


class PcapReader:
    """A capture that is read forward: an iterator of pyarrow record batches, once.

    It is an Arrow stream, too (`__arrow_c_stream__`): pyarrow, polars and DuckDB take it as it is. `read_all()` gives
    one table, `to_pandas()` a frame. Memory is that of one batch.
    """

    def __init__(self, capture: _sluice.Capture, columns: tuple[str, ...], batch_rows: int) -> None:
        self._pa = _keys.need_pyarrow()
        self._capture = capture
        self._columns = columns
        self._rows = batch_rows
        self._batches = self._read()
        self.schema = schema(columns)

    @property
    def name(self) -> str:
        """The capture's path."""
        return self._capture.name()

    @property
    def link(self) -> str:
        """Its link type, as tcpdump lists it. Frames are shown as Ethernet."""
        return self._capture.link()

    def _read(self) -> Iterator[Any]:
        pa = self._pa
        statuses = pa.array([_sluice.status_name(i) for i in range(_sluice.statuses)])
        while True:
            arrays: dict[str, Any] = {}
            for name in self._columns:
                dtype, width, bitmap, _ = _COLUMNS[name]
                if name == "frame":
                    arrays["offsets"] = np.empty(self._rows + 1, np.int32)
                else:
                    arrays[name] = np.empty(self._rows * width, dtype)
                if bitmap and bitmap not in arrays:
                    arrays[bitmap] = np.empty((self._rows + 7) // 8, np.uint8)
            n, frames = self._capture.next(arrays, self._rows, _MOST_FRAME_BYTES)
            if n == 0:
                return
            made = []
            for name in self._columns:
                _, width, bitmap, _ = _COLUMNS[name]
                valid = pa.py_buffer(arrays[bitmap]) if bitmap else None
                kind = _type(pa, name)
                if name == "frame":
                    buffers = [None, pa.py_buffer(arrays["offsets"]), pa.py_buffer(frames)]
                    made.append(pa.Array.from_buffers(kind, n, buffers))
                elif name == "status":
                    codes = pa.Array.from_buffers(pa.uint8(), n, [None, pa.py_buffer(arrays[name])])
                    made.append(pa.DictionaryArray.from_arrays(codes, statuses))
                else:
                    made.append(pa.Array.from_buffers(kind, n, [valid, pa.py_buffer(arrays[name])]))
            yield pa.RecordBatch.from_arrays(made, schema=self.schema)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> Any:
        """What is left as a pyarrow.RecordBatchReader."""
        return self._pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def read_all(self) -> Any:
        """What is left as one pyarrow.Table."""
        return self._pa.Table.from_batches(list(self._batches), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """What is left as a pandas frame; options are those of pyarrow.Table.to_pandas."""
        return self.read_all().to_pandas(**options)

    def __repr__(self) -> str:
        return f"<sluice.PcapReader {self.name!r}, {self.link}: {', '.join(self._columns)}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self)[1:-1])}</p>"


def read_pcap(path: Path | bytes, columns: Sequence[str] | None = None, *, batch_rows: int = 65_536) -> PcapReader:
    """Reads a capture, pcap or pcapng, plain or compressed, as Arrow record batches, at the parser's speed.

    path: a file, a pipe, or the bytes of a capture.
    columns: of `sluice.COLUMNS`; by default all of the headers that keys have, with time and lengths. `frame` copies.
      A value that a packet does not have is null: addresses of the other family, ports of ICMP.
    batch_rows: rows of a batch, but the last; batches with frames end at 64 MiB.

    The batches are keys: `acl.classify(batch)`. The GIL is released. Errors: sluice.Error: no capture; one that ends in the
    middle of a packet, after the batch with all packets before it. OSError, TypeError, ValueError. It needs pyarrow.
    """
    chosen = _chosen(columns)
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or not 1 <= batch_rows <= 1 << 24:
        raise ValueError(f"batch_rows is {batch_rows!r}, not in 1 to {1 << 24}")
    _keys.need_pyarrow()
    if isinstance(path, (bytes, bytearray, memoryview)):
        return PcapReader(_sluice.Capture.read(bytes(path), "memory"), chosen, batch_rows)
    return PcapReader(_sluice.Capture.open(readable(path)), chosen, batch_rows)
