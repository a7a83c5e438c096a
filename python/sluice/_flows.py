"""Connections of a capture."""
from __future__ import annotations

from typing import TYPE_CHECKING

from . import _keys
from ._paths import Path, readable
from ._program import call

if TYPE_CHECKING:
    import pyarrow as pa


def flows(input: Path, *, timeout: float | None = None) -> pa.Table:
    """The connections of a capture, a row each, in the order of their first packets, as `sluice flows` finds them.

    input: a pcap or pcapng file, plain or compressed. timeout: seconds without a packet that end a connection; None:
    those of RFC 5382 and RFC 4787.

    Columns: protocol, src, sport, dst, dport of the end that sent the first packet; packets, reply_packets, bytes and
    reply_bytes of whole frames; start and end in seconds since 1970; state. Of ICMP queries both ports are the identifier.

    Errors: sluice.Error, also where the capture is damaged; Interrupted; OSError, TypeError. It needs pyarrow.
    """
    pa = _keys.need_pyarrow()
    options = [] if timeout is None else ["--timeout", repr(float(timeout))]
    told = call(["flows", "--in", readable(input), *options])[0]["flows"]
    word, port, count, time = pa.string(), pa.uint16(), pa.uint64(), pa.float64()
    types = {"protocol": word, "src": word, "sport": port, "dst": word, "dport": port, "packets": count, "bytes": count,
             "start": time, "end": time, "state": word}  # fmt: skip
    columns = {}
    for name, type_ in types.items():
        values = [flow[name] for flow in told]
        if name in ("packets", "bytes"):
            columns[f"reply_{name}"] = pa.array([reply for _, reply in values], type_)
            values = [forward for forward, _ in values]
        columns[name] = pa.array(values, type_)
    order = ["protocol", "src", "sport", "dst", "dport", "packets", "reply_packets", "bytes", "reply_bytes", "start", "end",
             "state"]  # fmt: skip
    return pa.table({name: columns[name] for name in order})
