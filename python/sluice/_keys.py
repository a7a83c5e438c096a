"""Keys in every form that is taken, as the columns that the engine reads. Nothing is copied that need not be."""
from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence
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
        if column.ndim == 1 and column.dtype.kind in "OU":
            return _of_values(name, column.tolist())
        return _of_integers(name, column), None
    if isinstance(column, (list, tuple)):
        return _of_values(name, column)
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


# The engine's dtypes. TCP flags in 16 bits are another column than those in 8: only an array of uint16 is that.
_DTYPES = {"src": np.uint32, "dst": np.uint32, "sport": np.uint16, "dport": np.uint16, "proto": np.uint8, "flags": np.uint8,
           "icmp": np.uint16, "dscp": np.uint8, "family": np.uint8, "bits": np.uint8, "bytes": np.uint32, "addresses": np.uint32}  # fmt: skip
_ADDRESSES = ("src", "dst", "src6", "dst6", "addresses")


def _of_integers(name: str, array: Any) -> Any:
    """Whole numbers of any width as the engine's, without a copy where they are those. Errors: ValueError for one that does
    not fit. What else it is the engine refuses."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or name not in _DTYPES:
        return array
    dtype = np.dtype(np.uint16 if name == "flags" and array.dtype == np.uint16 else _DTYPES[name])
    if array.dtype.kind == "u" and array.dtype.itemsize == dtype.itemsize:
        return array
    most = (1 << 8 * dtype.itemsize) - 1
    if array.size and (array.min() < 0 or array.max() > most):
        wrong = array[(array < 0) | (array > most)][0]
        raise ValueError(f"{name} has {wrong}, which is not in 0-{most}")
    return array.astype(dtype)


def _of_values(name: str, values: Sequence[Any]) -> tuple[Any, Any]:
    """Of Python's objects, and where one is None. Addresses: whole numbers (IPv4), texts, objects of `ipaddress`, or bytes in
    network order, all of one family; else whole numbers."""
    gaps = np.fromiter((value is None for value in values), bool, len(values))
    absent = gaps if gaps.any() else None
    if name in _ADDRESSES:
        rows = [None if value is None else _address(name, value) for value in values]
        widths = {len(row) for row in rows if row is not None} or {16 if name in ("src6", "dst6") else 4}
        if len(widths) > 1:
            raise ValueError(f"{name} has addresses of IPv4 and of IPv6: look them up apart, or give family, src, dst, src6 and dst6")
        width = widths.pop()
        joined = np.frombuffer(b"".join(bytes(width) if row is None else row for row in rows), np.uint8).reshape(-1, width)
        return (joined if width == 16 else joined.view(">u4").reshape(-1).astype(np.uint32)), absent
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, np.integer))):
            raise TypeError(f"{name} has {value!r}, which is not a whole number")
    try:
        numbers = np.array([0 if value is None else value for value in values], np.int64)
    except OverflowError:
        raise ValueError(f"{name} has a number of more than 64 bits") from None
    return _of_integers(name, numbers), absent


def _address(name: str, value: Any) -> bytes:
    """An address in network order: 4 bytes of IPv4, 16 of IPv6."""
    if isinstance(value, str):
        try:
            return socket.inet_pton(socket.AF_INET6 if ":" in value else socket.AF_INET, value)
        except OSError:
            raise ValueError(f"{name} has {value!r}, which is not an IP address") from None
    if isinstance(value, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        return value.packed
    if isinstance(value, bytes) and len(value) in (4, 16):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{name} has {value}, which is no IPv4 address")
        return int(value).to_bytes(4, "big")
    raise TypeError(f"{name} has {value!r}, which is not an IP address")


def _of_array(name: str, array: Any) -> tuple[Any, Any]:
    """Of an Arrow array."""
    pa = need_pyarrow()
    if name in _ADDRESSES and str(array.type) in ("string", "large_string", "string_view"):
        return _of_values(name, array.to_pylist())
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
        return _of_integers(name, np.empty(0, dtype)), None
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    # What a null's place holds is not known.
    return _of_integers(name, values if gaps is None else np.where(gaps, dtype.type(0), values)), gaps


def _of_series(name: str, series: Any) -> tuple[Any, Any]:
    """Of a column of pandas, in its order whatever its index is."""
    if getattr(series, "ndim", 1) != 1:
        raise ValueError(f"{name} is the name of several columns")
    gaps = series.isna().to_numpy() if series.dtype.kind in "fOmM" or not isinstance(series.dtype, np.dtype) else None
    if gaps is not None and not gaps.any():
        gaps = None
    texts = series.dtype.kind == "O" or (name in _ADDRESSES and str(series.dtype) in ("string", "str"))
    if texts or name in ("src6", "dst6"):
        return _of_values(name, series.tolist() if gaps is None else [None if gap else v for v, gap in zip(series, gaps)])
    # pandas makes floating-point numbers of integers that may be absent.
    if name in _DTYPES and (gaps is not None or not isinstance(series.dtype, np.dtype)):
        given = series.fillna(0).to_numpy()
        wide = name == "flags" and getattr(series.dtype, "numpy_dtype", None) == np.uint16
        dtype = np.dtype(np.uint16 if wide else _DTYPES[name])
        values = given.astype(dtype)
        if not np.array_equal(values, given):
            raise TypeError(f"{name} has numbers that are no {dtype}")
        return values, gaps
    return _of_integers(name, series.to_numpy()), gaps


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
