"""Columns and results in a device's memory: tensors of any library that speaks DLPack."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _sluice
from ._errors import DeviceError, Finding

# DLPack's numbers of devices. The emulated device stands for a GPU: its memory is nobody else's.
_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
_NAMES = {2: "cuda", 12: "emu"}  # kDLCUDA, kDLExtDev

Place = tuple[int, int]


def place_of(array: Any) -> Place | None:
    """The device whose memory an array lies in, by DLPack's numbers; None: the host's."""
    if array is None or isinstance(array, np.ndarray):
        return None
    ask = getattr(array, "__dlpack_device__", None)
    if ask is None:
        return None
    kind, number = ask()
    return None if int(kind) in _HOST else (int(kind), int(number))


def _name(place: Place | None) -> str:
    if place is None:
        return "the host"
    return f"{_NAMES[place[0]]}:{place[1]}" if place[0] in _NAMES else f"a device of DLPack's kind {place[0]}"


def columns_of(columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """The columns of keys that lie in a device's memory, by the engine's names; None: those of a host."""
    places = {name: place for name, column in columns.items() if (place := place_of(column)) is not None}
    if not places:
        return None
    first, place = next(iter(places.items()))
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if column is None:
            continue
        if places.get(name) != place:
            raise TypeError(f"{name} is in the memory of {_name(places.get(name))}, and {first} in that of {_name(place)}")
        if name in ("src", "dst", "addresses") and len(getattr(column, "shape", ())) == 2:
            name += "6"
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = column
    return found


class DeviceArray:
    """Numbers in the memory of a device, one after another: what a lookup returns for tensors of libraries that it does
    not know by name. `torch.from_dlpack`, `cupy.from_dlpack` and the like make their own of it, without a copy."""

    def __init__(self, memory: _sluice.DeviceMemory, place: Place, n: int, dtype: npt.DTypeLike) -> None:
        self._memory, self._place = memory, place
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.shape = (n,)

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack_device__(self) -> Place:
        return self._place

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Place | None = None, copy: bool | None = None
    ) -> Any:
        """A capsule of the numbers. They are complete before the lookup returns, so that no stream has to wait for them.
        Errors: BufferError for another device and for a copy."""
        if dl_device is not None and tuple(dl_device) != self._place:
            raise BufferError(f"the numbers are in the memory of {_name(self._place)} alone")
        if copy:
            raise BufferError("the numbers are not copied")
        return self._memory.capsule(self.dtype.name, self.shape[0])

    def __repr__(self) -> str:
        return f"<sluice.DeviceArray of {self.shape[0]:,} {self.dtype.name} on {_name(self._place)}>"


def _library(array: Any) -> tuple[str, Any]:
    """The library of an array whose results are its own, by name; "" for others."""
    name = type(array).__module__.partition(".")[0]
    return (name, sys.modules[name]) if name in ("torch", "cupy") and name in sys.modules else ("", None)


def _current(array: Any, place: Place) -> contextlib.AbstractContextManager[Any]:
    """Makes the device the current one of the array's library, which goes by the current stream of that."""
    name, library = _library(array)
    made = library.cuda.device if name == "torch" else library.cuda.Device if name == "cupy" else None
    return contextlib.nullcontext() if made is None else made(place[1])


def _export(name: str, array: Any, place: Place, stream: int) -> Any:
    """A capsule of what is complete for whatever `stream` is given from now on."""
    try:
        with _current(array, place):
            try:
                return array.__dlpack__(stream=stream, max_version=(1, 0))
            except TypeError:  # of a library that is older than versions
                return array.__dlpack__(stream=stream)
    except BufferError as error:
        raise TypeError(f"{name} gives no DLPack tensor: {error}") from error


def _empty(like: Any, there: _sluice.There, place: Place, n: int, dtype: npt.DTypeLike) -> Any:
    """Where a result goes: an array of the library that the columns are of."""
    of, library = _library(like)
    name = np.dtype(dtype).name
    if of == "":
        return DeviceArray(there.allocate(n * np.dtype(dtype).itemsize), place, n, dtype)
    if not hasattr(library, name):
        raise TypeError(f"this version of {of} has no {name}; torch has it from 2.3 on")
    with _current(like, place):
        return library.empty(n, dtype=getattr(library, name), **({"device": like.device} if of == "torch" else {}))


def _length(name: str, column: Any) -> int:
    shape = getattr(column, "shape", None)
    return int(shape[0]) if shape else len(column)


def look_up(
    what: str,
    there: _sluice.There,
    columns: dict[str, Any],
    dtype: npt.DTypeLike,
    out: Any,
    call: Callable[[dict[str, Any], Any], int],
) -> Any:
    """Looks up columns in a device's memory: call(capsules, capsule of the result). `what`: the table, for errors."""
    first, array = next(iter(columns.items()))
    place = place_of(array)
    assert place is not None
    if place[0] not in _NAMES:
        raise TypeError(f"{first} is in the memory of {_name(place)}; copy it to the host first")
    here = None if there.on_host() else (there.type(), there.number())
    if here != place:
        lack = _sluice.no_cuda() if place[0] == 2 else ""
        hint = f'open {what} with device="{_name(place)}", or copy the columns to the host'
        if "without CUDA" in lack:
            hint = f"this package was built without CUDA: SLUICE_CUDA=on pip install ./python, where nvcc is; then {hint}"
        message = f"{first} is in the memory of {_name(place)}, and {what} is looked up on {_name(here)}"
        raise DeviceError(f"{message}\n  help: {hint}", [Finding(message, help=hint)])
    n = _length(first, array)
    if out is None:
        out = _empty(array, there, place, n, dtype)
    elif place_of(out) != place:
        raise TypeError(f"out is in the memory of {_name(place_of(out))}, and {first} in that of {_name(place)}")
    stream = there.stream()
    capsules = {name: _export(name, column, place, stream) for name, column in columns.items()}
    call(capsules, _export("out", out, place, stream))
    return out
