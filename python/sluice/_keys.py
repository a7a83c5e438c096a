"""Keys in every form that is taken, as the columns that the engine reads. Nothing is copied that need not be."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _tensors
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
    """The columns by the engine's names: addresses of (n, 16) are those of IPv6. What is absent in a column of Arrow, pandas
    or polars is so as in a table: ports that the packet does not have, addresses of the other family."""
    found: Columns = {}
    absent: dict[str, Any] = {}
    for name in NAMES:
        column = columns.get(name)
        if name == "bytes" and column is None:
            column = columns.get("length")
        if column is None:
            continue
        column, gaps = of_column(name, column)
        if name in ("src", "dst") and getattr(column, "ndim", 1) == 2 and "uint8" in str(getattr(column, "dtype", "uint8")):
            name += "6"  # of another width than 16, too: then the shape is wrong, and not the dtype
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = column
        if gaps is not None:
            absent[name] = gaps
    if absent or ("src" in found and "src6" in found):
        first, n = next((name, _length(name, column)) for name, column in found.items())
        for name, gaps in absent.items():
            if len(gaps) != n:
                raise ValueError(f"{name} has {len(gaps)} entries, and {first} has {n}")
        _complete(found, absent, n)
    return found


def of_column(name: str, column: Any) -> tuple[Any, Any]:
    """An array that shares the column's memory where it can, and where it has no value; None: nowhere."""
    if isinstance(column, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask is not looked at: give filled(0), or an Arrow array with nulls")
    if isinstance(column, np.ndarray):
        return column, None
    if hasattr(column, "iloc"):  # pandas: its own interface to Arrow copies
        return _of_series(name, column)
    if hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__"):
        pa = need_pyarrow()
        array = column.to_arrow() if hasattr(column, "to_arrow") else column  # polars
        if not isinstance(array, (pa.Array, pa.ChunkedArray)):
            array = pa.array(array) if hasattr(array, "__arrow_c_array__") else pa.chunked_array(array)
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        return _of_array(name, array)
    return column, None


def _of_array(name: str, array: Any) -> tuple[Any, Any]:
    """Of an Arrow array."""
    pa = need_pyarrow()
    gaps = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != 16 or name not in ("src", "dst", "src6", "dst6", "addresses"):
            raise TypeError(f"{name} is an Arrow array of {array.type}")
        if len(array) == 0:
            return np.empty((0, 16), np.uint8), None
        rows = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, 16)
        return rows[array.offset : array.offset + len(array)], gaps
    if not pa.types.is_integer(array.type):
        raise TypeError(f"{name} is an Arrow array of {array.type}, not of unsigned integers")
    dtype = np.dtype(array.type.to_pandas_dtype())
    if len(array) == 0:
        return np.empty(0, dtype), None
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    # What a null's place holds is not known.
    return values if gaps is None else np.where(gaps, dtype.type(0), values), gaps


# Of columns that pandas has made floating-point numbers of, since it has no integers that may be absent.
_DTYPES = {"src": np.uint32, "dst": np.uint32, "sport": np.uint16, "dport": np.uint16, "proto": np.uint8, "flags": np.uint8,
           "icmp": np.uint16, "dscp": np.uint8, "addresses": np.uint32}  # fmt: skip


def _of_series(name: str, series: Any) -> tuple[Any, Any]:
    """Of a column of pandas, in its order whatever its index is."""
    if getattr(series, "ndim", 1) != 1:
        raise ValueError(f"{name} is the name of several columns")
    gaps = series.isna().to_numpy() if series.dtype.kind in "fOmM" or not isinstance(series.dtype, np.dtype) else None
    if gaps is not None and not gaps.any():
        gaps = None
    if name in ("src6", "dst6") or (name in ("src", "dst", "addresses") and series.dtype.kind == "O"):
        for value in series[~gaps] if gaps is not None else series:
            if not isinstance(value, bytes) or len(value) != 16:
                raise TypeError(f"{name} has {value!r}, not an address of 16 bytes")
        rows = [v if isinstance(v, bytes) else bytes(16) for v in series]
        return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 16), gaps
    if name in _DTYPES and (gaps is not None or not isinstance(series.dtype, np.dtype)):
        given = series.fillna(0).to_numpy()
        wide = name == "flags" and getattr(series.dtype, "numpy_dtype", None) == np.uint16
        dtype = np.dtype(np.uint16 if wide else _DTYPES[name])
        values = given.astype(dtype)
        if not np.array_equal(values, given):
            raise TypeError(f"{name} has numbers that are no {dtype}")
        return values, gaps
    return series.to_numpy(), gaps


def _complete(found: Columns, absent: Mapping[str, Any], n: int) -> None:
    """Adds the columns that say what is absent: the family, and whether there are ports."""

    def there(*names: str) -> Any:
        gaps = [absent[name] for name in names if name in absent]
        return ~np.logical_or.reduce(gaps) if gaps else slice(None)

    if "family" not in found and ("src6" in found and "src" in found or any(a in absent for a in ("src", "dst", "src6", "dst6"))):
        family = np.zeros(n, np.uint8)
        for number, names in ((6, ("src6", "dst6")), (4, ("src", "dst"))):
            if names[0] in found:
                family[there(*names)] = number
        found["family"] = family
    if "bits" not in found and ("sport" in absent or "dport" in absent):
        has = there("sport", "dport")
        found["bits"] = np.where(has, np.uint8(PORTS), np.uint8(0))
        for name in ("sport", "dport"):
            if name in found:
                found[name] = np.where(has, found[name], found[name].dtype.type(0))


def _of_batch(batch: Any) -> Columns:
    names = [name for name in batch.schema.names if name in NAMES or name == "length"]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is the name of several columns")
    return of_columns({name: batch.column(name) for name in names})


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
    elif hasattr(keys, "iloc"):  # pandas: a frame
        yield of_columns({name: keys[name] for name in (*NAMES, "length") if name in keys.columns}), len(keys)
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


def tensors_of(keys: Any) -> Columns | None:
    """The columns of `keys` where they lie in a device's memory; None: in the host's. One tensor is that of whole keys."""
    if isinstance(keys, Mapping):
        named = {name: keys[name] for name in NAMES if name in keys}
        if "bytes" not in named and "length" in keys:
            named["bytes"] = keys["length"]
        return _tensors.columns_of(named)
    return _tensors.columns_of({"keys": keys})


def _length(name: str, column: Any) -> int:
    try:
        return len(column)
    except TypeError:
        raise TypeError(f"{name} is {type(column).__name__}, not an array") from None


def _rows(columns: Mapping[str, Any]) -> int:
    for name in ("src", "dst", *NAMES):
        column = columns.get(name)
        if column is not None:
            return _length(name, column)
    return 0
