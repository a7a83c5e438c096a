"""Keys in every form that is taken, as the columns that the engine reads. Nothing is copied that need not be."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ._errors import Error

Columns = dict[str, Any]

# The engine's columns by the names that keys may have for them.
NAMES = ("src", "dst", "src6", "dst6", "family", "sport", "dport", "proto", "flags", "icmp", "dscp", "bits", "bytes")
PORTS = 1  # in the column `bits`: the packet has ports


def need_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise Error("this needs pyarrow: pip install 'sluice[arrow]'") from error
    return pyarrow


def of_columns(columns: Mapping[str, Any]) -> Columns:
    """The columns by the engine's names: addresses of (n, 16) are those of IPv6."""
    found: Columns = {}
    for name in NAMES:
        column = columns.get(name)
        if column is None:
            continue
        if name in ("src", "dst") and getattr(column, "ndim", 1) == 2:
            name += "6"
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = column
    if "bytes" not in found and columns.get("length") is not None:
        found["bytes"] = columns["length"]
    return found


def _arrow_column(name: str, array: Any, found: Columns) -> None:
    """Adds a column of an Arrow array, whose memory it shares. Ports that are null are not there."""
    pa = need_pyarrow()
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != 16 or name not in ("src", "dst", "src6", "dst6"):
            raise TypeError(f"{name} is an Arrow array of {array.type}")
        rows = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, 16)
        found[name if name.endswith("6") else name + "6"] = rows[array.offset : array.offset + len(array)]
        return
    if not pa.types.is_integer(array.type):
        raise TypeError(f"{name} is an Arrow array of {array.type}, not of unsigned integers")
    dtype = np.dtype(array.type.to_pandas_dtype())
    if len(array) == 0:
        found[name] = np.empty(0, dtype)
        return
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    if array.null_count != 0 and name not in ("src", "dst", "sport", "dport"):
        # What a null's place holds is not known.
        values = np.where(array.is_valid().to_numpy(zero_copy_only=False), values, dtype.type(0))
    found[name] = values


def _of_batch(batch: Any) -> Columns:
    found: Columns = {}
    arrays = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    for name in NAMES:
        if name in arrays:
            _arrow_column(name, arrays[name], found)
    if "bytes" not in found and "length" in arrays:
        _arrow_column("bytes", arrays["length"], found)

    def valid(name: str) -> Any:
        array = arrays.get(name)
        return None if array is None or array.null_count == 0 else array.is_valid().to_numpy(zero_copy_only=False)

    four, six = valid("src"), valid("src6")
    if "family" not in found and (four is not None or six is not None or ("src" in found and "src6" in found)):
        family = np.zeros(batch.num_rows, np.uint8)
        if "src6" in found:
            family[slice(None) if six is None else six] = 6
        if "src" in found:
            family[slice(None) if four is None else four] = 4
        found["family"] = family
    if "bits" not in found:
        ports = [v for v in (valid("sport"), valid("dport")) if v is not None]
        if ports:
            found["bits"] = np.where(np.logical_and.reduce(ports), np.uint8(PORTS), np.uint8(0))
            for name in ("sport", "dport"):
                if name in found:
                    found[name] = np.where(found["bits"] != 0, found[name], found[name].dtype.type(0))
    return found


def batches_of(keys: Any) -> Iterator[tuple[Columns, int]]:
    """The columns of `keys`, and how many keys they have: once, or for each record batch of an Arrow table."""
    if isinstance(keys, np.ndarray):
        if keys.dtype.names is None:
            raise TypeError(f"keys is an array of {keys.dtype}, not a structured array with fields such as src and dst")
        if keys.ndim != 1:
            raise ValueError(f"keys has the shape {keys.shape}, not (n,)")
        columns = of_columns({name: keys[name] for name in keys.dtype.names})
        yield columns, len(keys)
    elif isinstance(keys, Mapping):
        yield of_columns(keys), _rows(keys)
    elif hasattr(keys, "iloc"):  # pandas: its own interface to Arrow copies
        yield _of_pandas(keys), len(keys)
    elif hasattr(keys, "__arrow_c_array__"):
        batch = need_pyarrow().record_batch(keys)
        yield _of_batch(batch), batch.num_rows
    elif hasattr(keys, "__arrow_c_stream__"):
        pa = need_pyarrow()
        # Large arrays of polars and others come in pieces of their own.
        for batch in pa.RecordBatchReader.from_stream(keys):
            yield _of_batch(batch), batch.num_rows
    else:
        raise TypeError(
            f"keys is {type(keys).__name__}, not a structured array, a mapping of columns, a data frame, or an Arrow table"
        )


# Of columns that pandas has made floating-point numbers of, since it has no integers that may be absent.
_DTYPES = {"src": np.uint32, "dst": np.uint32, "sport": np.uint16, "dport": np.uint16, "proto": np.uint8, "flags": np.uint8,
           "icmp": np.uint16, "dscp": np.uint8}  # fmt: skip


def _of_pandas(frame: Any) -> Columns:
    """A frame's columns. What is absent is so as in Arrow: ports that the packet does not have, addresses of the other
    family. Columns without gaps share the frame's memory."""
    found: Columns = {}
    absent: dict[str, Any] = {}
    for name in [n for n in (*NAMES, "length") if n in frame.columns]:
        series = frame[name]
        gaps = series.isna().to_numpy() if series.dtype.kind in "fOmM" or not isinstance(series.dtype, np.dtype) else None
        if gaps is not None and gaps.any():
            absent[name] = gaps
        if name in ("src6", "dst6") or (name in ("src", "dst") and series.dtype.kind == "O"):
            rows = [v if isinstance(v, bytes) and len(v) == 16 else bytes(16) for v in series]
            found[name] = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 16)
        elif name in _DTYPES and (name in absent or not isinstance(series.dtype, np.dtype)):
            values = series.fillna(0).to_numpy()
            found[name] = values.astype(_DTYPES[name])
            if not np.array_equal(found[name], values):
                raise TypeError(f"{name} has numbers that are no {np.dtype(_DTYPES[name])}")
        else:
            found[name] = series.to_numpy()
    found = of_columns(found)
    if "family" not in found and ("src6" in found and "src" in found or "src" in absent or "src6" in absent):
        family = np.zeros(len(frame), np.uint8)
        for name, number in (("src6", 6), ("src", 4)):
            if name in found:
                family[~absent[name] if name in absent else slice(None)] = number
        found["family"] = family
    if "bits" not in found and ("sport" in absent or "dport" in absent):
        there = ~np.logical_or.reduce([absent[n] for n in ("sport", "dport") if n in absent])
        found["bits"] = np.where(there, np.uint8(PORTS), np.uint8(0))
    return found


def _rows(columns: Mapping[str, Any]) -> int:
    for name in ("src", "dst", *NAMES):
        if columns.get(name) is not None:
            return len(columns[name])
    return 0
