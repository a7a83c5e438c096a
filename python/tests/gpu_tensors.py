#!/usr/bin/env python3
"""Lookups of tensors in a device's memory, checked against those of the host, and how fast they are.

    gpu_tensors.py [DEVICE] [--keys N] [--rules N]     DEVICE: cuda:0 (the default), another number, or emu:0

Needs the package (for a GPU: SLUICE_CUDA=on pip install ./python), NumPy and the GPU's driver: no CUDA toolkit. torch and
cupy are tried where they are installed. Exit code 0: all answers are those of the host; 1: some are not; 4: there is no such device.
"""
from __future__ import annotations

import argparse
import ctypes
import sys
import time

import numpy as np

import sluice

# -- DLPack, by hand --------------------------------------------------------------------------------------------------


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]
_new = ctypes.pythonapi.PyCapsule_New
_End = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _End]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_NAME = b"dltensor"
_CODES = {"i": 0, "u": 1, "f": 2}
lent = {}  # what capsules are of, until whoever took them is done


@_Deleter
def _delete(managed):
    del lent[ctypes.addressof(managed.contents)]


# Of a capsule that is at its end, which must not be counted as an object any more.
_ending = ctypes.PyDLL(None)
_ending.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_ending.PyCapsule_GetPointer.restype, _ending.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]


@_End
def _never_taken(capsule):
    if _ending.PyCapsule_IsValid(capsule, _NAME):
        del lent[_ending.PyCapsule_GetPointer(capsule, _NAME)]


class Tensor:
    """An array in a device's memory, of a library that speaks DLPack and nothing else."""

    def __init__(self, memory, data, shape, strides, dtype, owner):
        self.memory, self.data, self.shape, self.strides, self.dtype, self._owner = memory, data, shape, strides, np.dtype(dtype), owner
        self.streams = []  # that were named by who took it
        self.made_on = None  # the stream that writes it

    def __dlpack_device__(self):
        return self.memory.place

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        self.memory.order(self.made_on, stream)
        n = len(self.shape)
        managed = _Managed()
        shape, strides = (ctypes.c_int64 * n)(*self.shape), (ctypes.c_int64 * n)(*(s // self.dtype.itemsize for s in self.strides))
        dtype = _DType(_CODES[self.dtype.kind], self.dtype.itemsize * 8, 1)
        managed.tensor = _Tensor(self.data, _Device(*self.memory.place), n, dtype, shape, strides, 0)
        managed.deleter = _delete
        lent[ctypes.addressof(managed)] = (managed, self._owner, shape, strides)
        return _new(ctypes.addressof(managed), _NAME, _never_taken)

    def host(self):
        """Its numbers, on the host; of one that is contiguous."""
        return self.memory.download(self.data, self.shape, self.dtype)


# -- memory -----------------------------------------------------------------------------------------------------------


class EmulatedMemory:
    """That of the emulated device: the host's, under another name."""

    place = (12, 0)
    name = "emu:0"

    def put(self, array, strided=False):
        """A tensor with the numbers of an array; `strided`: with gaps between its rows."""
        wide = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
        wide[:: 2 if strided else 1][: len(array)] = array
        return self._tensor(wide[:: 2 if strided else 1][: len(array)])

    def empty(self, n, dtype):
        return self._tensor(np.full(n, 77, dtype))

    def _tensor(self, array):
        return Tensor(self, array.ctypes.data, array.shape, array.strides, array.dtype, array)

    def order(self, made_on, stream):
        pass

    def download(self, data, shape, dtype):
        count = int(np.prod(shape))
        if count == 0:
            return np.empty(shape, dtype)
        return np.frombuffer((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(data), dtype).reshape(shape).copy()


class CudaMemory:
    """That of a GPU, by its driver alone."""

    def __init__(self, number=0):
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise sluice.DeviceError(f"no GPU's driver: {error}") from error
        self.place, self.name = (2, number), f"cuda:{number}"
        device = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), number)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, function, *arguments):
        code = getattr(self._cuda, function)(*arguments)
        if code != 0:
            raise sluice.DeviceError(f"{function} failed with code {code}")

    def allocate(self, size):
        self._call("cuCtxSetCurrent", self._context)
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, size)))
        memory = self

        class Owner:
            def __init__(self):
                self.address = address.value

            def __del__(self):
                memory._cuda.cuMemFree_v2(ctypes.c_uint64(self.address))

        return Owner()

    def put(self, array, strided=False):
        step = 2 if strided else 1
        wide = np.zeros((step * len(array), *array.shape[1:]), array.dtype)
        wide[::step] = array
        tensor = self._tensor(array.shape, tuple(s * (step if i == 0 else 1) for i, s in enumerate(wide.strides)), array.dtype, wide.nbytes)
        if wide.nbytes:
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(tensor.data), wide.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(wide.nbytes))
            self._call("cuCtxSynchronize")  # memory that is not pinned may be on its way when the call returns
        return tensor

    def empty(self, n, dtype):
        return self.put(np.full(n, 77, dtype))

    def _tensor(self, shape, strides, dtype, size):
        owner = self.allocate(size)
        return Tensor(self, owner.address, shape, strides, dtype, owner)

    def stream(self):
        self._call("cuCtxSetCurrent", self._context)
        made = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(made), 1)  # does not wait for the default stream
        return made

    def order(self, made_on, stream):
        """`stream` waits for what `made_on` has been given so far."""
        if made_on is None or stream is None:
            return
        self._call("cuCtxSetCurrent", self._context)
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 2)
        self._call("cuEventRecord", event, made_on)
        self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        self._call("cuEventDestroy_v2", event)

    def copy(self, to, source, stream):
        """From tensor to tensor, later, on a stream."""
        size = ctypes.c_size_t(int(np.prod(to.shape)) * to.dtype.itemsize)
        self._call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to.data), ctypes.c_uint64(source.data), size, stream)
        to.made_on = stream

    def download(self, data, shape, dtype):
        self._call("cuCtxSetCurrent", self._context)
        out = np.empty(shape, dtype)
        if out.nbytes:
            self._call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(data), ctypes.c_size_t(out.nbytes))
        return out


def memory_of(device):
    """The memory of a device by name. Errors: sluice.DeviceError, where there is none."""
    kind, _, number = device.partition(":")
    if kind == "emu":
        return EmulatedMemory()
    if kind != "cuda":
        raise sluice.DeviceError(f"{device!r} is not cuda, cuda:N or emu:0")
    return CudaMemory(int(number or 0))


def numbers(memory, result):
    """Those of a result, on the host, from its capsule."""
    if isinstance(result, Tensor):
        return result.host()
    capsule = result.__dlpack__(stream=None)
    tensor = ctypes.cast(_pointer(capsule, _NAME), ctypes.POINTER(_Managed)).contents.tensor
    place = (tensor.device.type, tensor.device.number)
    assert place == memory.place == tuple(result.__dlpack_device__()) and tensor.ndim == 1, (place, tensor.ndim)
    kind = {code: letter for letter, code in _CODES.items()}[tensor.dtype.code]
    dtype = np.dtype(f"{kind}{tensor.dtype.bits // 8}")
    assert dtype == result.dtype and tensor.shape[0] == len(result)
    return memory.download(tensor.data + tensor.offset if tensor.data else 0, (tensor.shape[0],), dtype)


# -- keys -------------------------------------------------------------------------------------------------------------

# A row of whole keys: sluice_key of sluice.h.
KEY = np.dtype({
    "names": ["src_hi", "src", "dst_hi", "dst", "sport", "dport", "flags", "proto", "dscp", "family", "bits", "icmp", "bytes"],
    "formats": ["<u8", "<u8", "<u8", "<u8", "<u2", "<u2", "<u2", "u1", "u1", "u1", "u1", "<u2", "<u4"],
    "offsets": [0, 8, 16, 24, 32, 34, 36, 38, 39, 40, 41, 42, 44], "itemsize": 48,
})  # fmt: skip


def packed(keys):
    """Keys of IPv4 with ports, as rows of 48 bytes."""
    rows = np.zeros(len(keys["src"]), KEY)
    for name, column in keys.items():
        rows[name] = column
    rows["family"], rows["bits"] = 4, 1
    return rows.view(np.uint8).reshape(-1, 48)


def make_rules(n, seed=3):
    random = np.random.default_rng(seed)
    lines = []
    for i in range(n):
        a, b, c = random.integers(0, 256, 3)
        port = random.integers(0, 1024)
        lines.append(f"{'permit' if i % 3 else 'deny'} {'tcp' if i % 2 else 'udp'} from 10.{a}.{b}.0/24 to 172.16.{c}.0/24 port {port}")
    return [*lines, "mark(7) tcp from any to 172.16.0.0/14", "permit ip from 2001:db8::/32 to any"]


def make_keys(n, seed=4):
    random = np.random.default_rng(seed)
    return {
        "src": (0x0A000000 + random.integers(0, 1 << 24, n)).astype(np.uint32),
        "dst": (0xAC100000 + random.integers(0, 1 << 18, n)).astype(np.uint32),
        "sport": random.integers(0, 1 << 16, n).astype(np.uint16),
        "dport": random.integers(0, 1024, n).astype(np.uint16),
        "proto": random.choice(np.array([1, 6, 17], np.uint8), n),
        "flags": random.integers(0, 256, n).astype(np.uint8),
    }


def near_rules(keys, rules, seed=5):
    """Half of the keys are such that a rule's addresses and port are theirs."""
    random = np.random.default_rng(seed)
    for i in range(0, len(keys["src"]), 2):
        words = rules[int(random.integers(0, len(rules) - 2))].split()
        for name, word in (("src", words[3]), ("dst", words[5])):
            a, b, c, _ = (int(part) for part in word.split("/")[0].split("."))
            keys[name][i] = a << 24 | b << 16 | c << 8 | int(random.integers(0, 256))
        keys["dport"][i], keys["proto"][i] = int(words[7]), 6 if words[1] == "tcp" else 17
    return keys


# -- checks -----------------------------------------------------------------------------------------------------------


def check(memory, n=20_000, rules=300):
    """Compares with the host; returns how many answers were compared. Errors: AssertionError."""
    compared = 0

    def same(got, want, what):
        nonlocal compared
        np.testing.assert_array_equal(numbers(memory, got), want, err_msg=what)
        compared += len(want)

    lines = make_rules(rules)
    keys = near_rules(make_keys(n), lines)
    host, there = sluice.Acl.from_rules(lines), sluice.Acl.from_rules(lines, device=memory.name)
    for strided in (False, True):
        columns = {name: memory.put(column, strided) for name, column in keys.items()}
        for returns in ("positions", "verdicts", "marks"):
            same(there.classify(**columns, returns=returns), host.classify(**keys, returns=returns), f"{returns}, strided {strided}")
    assert len(np.unique(host.classify(**keys, returns="verdicts"))) == 4, "keys are to have every verdict"
    same(there.classify(memory.put(packed(keys))), host.classify(**keys), "packed")
    out = memory.empty(n, np.uint32)
    assert there.classify(columns, out=out) is out
    same(out, host.classify(**keys), "a mapping, out")

    # Changes, of a list that is patched and of one that is built anew.
    for acl in (host, there):
        acl.update(add="at 2 deny tcp from any to any port 0-99", remove=[5, 9])
    same(there.classify(**columns), host.classify(**keys), "after a change")
    small = [sluice.Acl.from_rules(lines[-2:], device=device) for device in ("cpu", memory.name)]
    for _ in range(2):
        same(small[1].classify(**columns), small[0].classify(**keys), "a small list")
        for acl in small:
            acl.update(add="at 1 deny udp from any to any")

    # Both families.
    random = np.random.default_rng(6)
    six = {"src6": random.integers(0, 256, (n, 16), np.uint8), "dst6": random.integers(0, 256, (n, 16), np.uint8)}
    six["src6"][::2, :4] = [0x20, 0x01, 0x0D, 0xB8]
    mixed = {**keys, **six, "family": random.choice(np.array([4, 6, 0], np.uint8), n)}
    columns = {name: memory.put(column) for name, column in mixed.items()}
    same(there.classify(**columns), host.classify(**mixed), "both families")
    same(there.classify(src=columns["src6"], dst=columns["dst6"]), host.classify(src=six["src6"], dst=six["dst6"]), "IPv6")

    # Routes.
    routes = {f"10.{i}.0.0/{16 + i % 9}": f"192.0.2.{i % 7}" for i in range(200)} | {"2001:db8::/32": "192.0.2.9", "2000::/5": "192.0.2.8"}
    fibs = [sluice.Fib.from_routes(routes, device=device) for device in ("cpu", memory.name)]
    for change in ({"add": "10.0.0.0/9 192.0.2.100"}, {"remove": ["10.5.0.0/21", "2001:db8::/32"]}, {}):
        for addresses in (keys["src"], six["src6"]):
            same(fibs[1].lookup(memory.put(addresses)), fibs[0].lookup(addresses), "routes")
        for fib in fibs:
            fib.update(**change)
    return compared


def check_order(memory, n=1 << 22):
    """A lookup waits for the stream on which its columns are made: a GPU's alone."""
    acl = sluice.Acl.from_rules(["deny ip from 10.0.0.0/8 to any"], device=memory.name)
    stream = memory.stream()
    right, wrong = memory.put(np.full(n, 0x0A000001, np.uint32)), memory.put(np.zeros(n, np.uint32))
    dst, src, other = memory.put(np.zeros(n, np.uint32)), memory.put(np.zeros(n, np.uint32)), memory.put(np.zeros(n, np.uint32))
    for _ in range(5):
        memory.copy(src, wrong, stream)
        for _ in range(200):  # some ten milliseconds
            memory.copy(other, wrong, stream)
        memory.copy(src, right, stream)
        assert (numbers(memory, acl.classify(src=src, dst=dst)) == 1).all(), "the lookup did not wait for its columns"


def check_libraries(memory, n=10_000):
    """Results are of the library of their columns, made on its current stream: for torch and cupy, where these are.
    Returns their names."""
    lines = make_rules(100)
    keys = near_rules(make_keys(n), lines)
    want = sluice.Acl.from_rules(lines).classify(**keys)
    acl = sluice.Acl.from_rules(lines, device=memory.name)
    fib = sluice.Fib.from_routes({"10.0.0.0/9": "a"}, device=memory.name)
    hops = np.where(keys["src"] >> 23 == 0x0A000000 >> 23, 0, -1)
    loose = acl.classify(**{name: memory.put(column) for name, column in keys.items()})
    found = []
    try:
        import torch
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            found.append(f"torch {torch.__version__}")
            stream = torch.cuda.Stream(memory.name)
            for _ in range(20):
                with torch.cuda.stream(stream):
                    columns = {name: torch.from_numpy(column).to(memory.name, copy=True) for name, column in keys.items()}
                    torch.cuda._sleep(20_000_000)  # what follows comes later than the lookup would
                    # torch has few operations on uint16 and uint32.
                    signed = {torch.uint32: torch.int32, torch.uint16: torch.int16, torch.uint8: torch.uint8}
                    columns = {name: column.view(signed[column.dtype]).clone().view(column.dtype) for name, column in columns.items()}
                    result, routed = acl.classify(columns), fib.lookup(columns["src"])
                    assert isinstance(result, torch.Tensor) and result.dtype == torch.uint32 and result.device == columns["src"].device
                    assert routed.dtype == torch.int32
                    np.testing.assert_array_equal(result.cpu().numpy(), want)
                    np.testing.assert_array_equal(routed.cpu().numpy(), hops)
            np.testing.assert_array_equal(torch.from_dlpack(loose).cpu().numpy(), want)
            if torch.cuda.device_count() > 1:
                other = next(i for i in range(torch.cuda.device_count()) if i != memory.place[1])
                with torch.cuda.device(other):
                    acl.classify(columns)
                    assert torch.cuda.current_device() == other and torch.zeros(1, device="cuda").device.index == other
    try:
        import cupy
    except ImportError:
        pass
    else:
        found.append(f"cupy {cupy.__version__}")
        with cupy.cuda.Device(memory.place[1]):
            columns = {name: cupy.asarray(column) for name, column in keys.items()}
            result = acl.classify(columns)
            assert isinstance(result, cupy.ndarray) and result.dtype == np.uint32
            np.testing.assert_array_equal(cupy.asnumpy(result), want)
            np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(loose)), want)
    return found


def rate(memory, n, rules, repeats=7):
    """Keys a second of each form, and of the host: medians."""
    lines = make_rules(rules)
    keys = near_rules(make_keys(min(n, 1 << 16)), lines)
    keys = {name: np.resize(column, n) for name, column in keys.items()}
    there = sluice.Acl.from_rules(lines, device=memory.name, algorithm="tuple_merge")
    host = sluice.Acl.from_rules(lines, algorithm="tuple_merge")
    fib = sluice.Fib.from_routes({f"10.{i % 256}.{i // 256}.0/24": f"192.0.2.{i % 200}" for i in range(20_000)}, device=memory.name)
    columns, rows = {name: memory.put(column) for name, column in keys.items()}, memory.put(packed(keys))
    out, hops = memory.empty(n, np.uint32), memory.empty(n, np.int32)
    forms = {
        "columns": lambda: there.classify(columns, out=out),
        "whole keys": lambda: there.classify(rows, out=out),
        "routes": lambda: fib.lookup(columns["src"], out=hops),
        "host, one core": lambda: host.classify(**keys),
    }
    for name, work in forms.items():
        work()
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - began)
        print(f"{name:>15}  {n / np.median(seconds) / 1e6:10.1f} M keys/s   {np.median(seconds) * 1e3:8.3f} ms a call of {n:,} keys")
    np.testing.assert_array_equal(numbers(memory, out), host.classify(**keys))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("device", nargs="?", default="cuda:0")
    parser.add_argument("--keys", type=int, default=1 << 24)
    parser.add_argument("--rules", type=int, default=1000)
    options = parser.parse_args()
    try:
        memory = memory_of(options.device)
        table = sluice.Acl.from_rules(["permit ip from any to any"], device=memory.name)
    except sluice.DeviceError as error:
        print(error, file=sys.stderr)
        return 4
    print(f"{memory.name}: {table.device}")
    try:
        print(f"{check(memory):,} answers are those of the host")
        if memory.name.startswith("cuda"):
            check_order(memory)
            print("lookups wait for the stream of their columns")
            for library in check_libraries(memory):
                print(f"{library}: results are its own")
        rate(memory, options.keys, options.rules)
        assert not lent, f"{len(lent)} capsules were never given back"
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
