"""Tensors in a device's memory: the answers are the host's, there, and nothing is touched that need not be."""
import gc
import subprocess
import sys
import types

import gpu_tensors
import numpy as np
import pytest

import sluice
from conftest import CLASSBENCH, looked_up_while_it_changes, random_keys
from gpu_tensors import Tensor, check, check_order, memory_of, numbers, packed


@pytest.fixture(params=["emu:0", "cuda:0"])
def memory(request):
    try:
        made = memory_of(request.param)
        sluice.Acl.from_rules([], device=made.name)
    except sluice.DeviceError as error:
        pytest.skip(f"no {request.param}: {error}")
    yield made
    gc.collect()
    assert not gpu_tensors.lent, "a capsule was never given back"


@pytest.fixture
def acl(memory):
    return sluice.Acl.from_file(CLASSBENCH.encode(), device=memory.name)


def put(memory, keys):
    return {name: memory.put(column) for name, column in keys.items()}


def test_answers_are_those_of_the_host(memory):
    assert check(memory) > 200_000


def test_a_lookup_waits_for_the_streams_of_its_columns(memory, acl):
    if memory.name.startswith("cuda"):
        check_order(memory)
    columns = put(memory, random_keys(10))
    out = memory.empty(10, np.uint32)
    acl.classify(**columns, out=out)
    streams = {stream for tensor in (*columns.values(), out) for stream in tensor.streams}
    # Each is told the one stream of the lookups: none of DLPack's names for the default streams.
    assert len(streams) == 1 and streams.pop() > 2


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 100_003])
def test_any_number_of_keys(memory, acl, n):
    keys = random_keys(n)
    host = sluice.Acl.from_file(CLASSBENCH.encode())
    result = acl.classify(**put(memory, keys))
    assert isinstance(result, sluice.DeviceArray) and len(result) == n and result.dtype == np.uint32
    np.testing.assert_array_equal(numbers(memory, result), host.classify(**keys))


def test_results_are_tensors_that_outlive_the_table(memory):
    acl = sluice.Acl.from_file(CLASSBENCH.encode(), device=memory.name)
    keys = random_keys(1000)
    expected = sluice.Acl.from_file(CLASSBENCH.encode()).classify(**keys)
    result = acl.classify(**put(memory, keys))
    assert tuple(result.__dlpack_device__()) == memory.place and "uint32" in repr(result) and memory.name in repr(result)
    with pytest.raises(BufferError, match="memory"):
        result.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="copied"):
        result.__dlpack__(copy=True)
    capsule = result.__dlpack__(stream=None, max_version=(1, 0), dl_device=memory.place)
    del acl
    np.testing.assert_array_equal(numbers(memory, result), expected)
    del result
    held = types.SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: memory.place, dtype=np.dtype(np.uint32), __len__=None)
    gc.collect()
    # The capsule alone keeps the numbers.
    Again = type("Again", (), {**vars(held), "__len__": lambda self: 1000, "__dlpack__": lambda self, **_: capsule, "__dlpack_device__": lambda self: memory.place})
    np.testing.assert_array_equal(numbers(memory, Again()), expected)


def test_results_are_columns_again(memory):
    """Marks of one list are a column of the next: nothing leaves the device."""
    fib = sluice.Fib.from_routes({"10.0.0.0/8": "a"}, device=memory.name)
    acl = sluice.Acl.from_rules(["mark(167772161) ip from any to any"], device=memory.name)
    column = memory.put(np.zeros(50, np.uint32))
    marks = acl.classify(src=column, dst=column, returns="marks")
    assert numbers(memory, fib.lookup(marks)).tolist() == [0] * 50  # the index of a


def test_threads_and_changes(memory):
    acl = sluice.Acl.from_rules(["deny ip from any to any"], device=memory.name)
    keys = random_keys(5_000)
    columns = put(memory, keys)
    looked_up_while_it_changes(acl, 30, lambda: numbers(memory, acl.classify(**columns, returns="verdicts")))
    acl.update(text="replace 1 permit ip from any to any")
    assert set(numbers(memory, acl.classify(**columns, returns="verdicts"))) == {1}


def test_what_cannot_be_meant_is_named_and_writes_nothing(memory, acl):
    keys = random_keys(100)
    columns = put(memory, keys)
    out = memory.empty(100, np.uint32)

    def refused(error, match, *args, table=acl, **changes):
        given = {} if args else {**columns, "out": out, **changes}
        with pytest.raises(error, match=match):
            table.classify(*args, **given)
        assert (out.host() == 77).all()

    refused(TypeError, f"dport is in the memory of the host, and src in that of {memory.name}", dport=keys["dport"])
    refused(TypeError, "src is in the memory of the host", src=keys["src"])
    refused(TypeError, "dst is list|dst is in the memory of the host", dst=[1, 2])
    elsewhere = memory.put(keys["dst"])
    elsewhere.__class__ = type("Elsewhere", (Tensor,), {"__dlpack_device__": lambda self: (memory.place[0], 7)})
    refused(TypeError, f"dst is in the memory of {memory.name[:-1]}7", dst=elsewhere)
    vulkan = memory.put(keys["src"])
    vulkan.__class__ = type("Vulkan", (Tensor,), {"__dlpack_device__": lambda self: (7, 0)})
    with pytest.raises(TypeError, match="kind 7; copy it to the host"):
        acl.classify(src=vulkan, dst=vulkan)
    lies = memory.put(keys["src"])
    lies.__class__ = type("Lies", (Tensor,), {"__dlpack__": lambda self, **_: keys["src"].__dlpack__()})
    refused(TypeError, "src is not in the memory that it says", src=lies)
    refused(TypeError, "src is an array of int32, not of uint32", src=memory.put(keys["src"].view(np.int32)))
    refused(TypeError, "proto is an array of uint16, not of uint8", proto=memory.put(keys["proto"].astype(np.uint16)))
    refused(TypeError, "flags is an array of uint32, not of uint16 or uint8", flags=memory.put(keys["flags"].astype(np.uint32)))
    refused(ValueError, "dst has 99 entries, and src has 100", dst=memory.put(keys["dst"][:99]))
    refused(ValueError, "dport has the shape", dport=memory.put(np.zeros((100, 2), np.uint16)))
    six = memory.put(np.zeros((100, 16), np.uint8))
    rows = memory.put(np.zeros((100, 32), np.uint8))
    rows.shape, rows.strides = (100, 16), (32, 2)
    refused(ValueError, "rows that are not contiguous", src=rows, dst=six)
    refused(ValueError, "family is missing", src6=six, dst6=six)
    refused(ValueError, "given twice", src=six, src6=six)
    refused(ValueError, "src and dst are missing", src=None)
    odd = memory.put(np.zeros(101, np.uint32))
    odd.data, odd.shape = odd.data + 2, (100,)
    refused(ValueError, "src is not aligned", src=odd)
    crooked = memory.put(np.zeros((6, 48), np.uint8))
    crooked.data, crooked.shape = crooked.data + 4, (5, 48)
    refused(ValueError, "keys is not aligned", crooked)
    refused(ValueError, "keys has the shape", memory.put(np.zeros((5, 47), np.uint8)))
    refused(TypeError, "keys is an array of uint32", memory.put(np.zeros((5, 48), np.uint32)))
    with pytest.raises(ValueError, match="keys and src"):
        acl.classify(memory.put(packed(keys)), src=columns["src"])
    for wrong, error, match in (
        (np.zeros(100, np.uint32), TypeError, "out is in the memory of the host"),
        (memory.empty(99, np.uint32), ValueError, r"out has not the shape \(100,\)"),
        (memory.empty(100, np.int32), TypeError, "out has another dtype"),
        (memory.put(np.zeros(100, np.uint32), strided=True), ValueError, "out is not contiguous"),
    ):
        with pytest.raises(error, match=match):
            acl.classify(**columns, out=wrong)
    broken = memory.put(keys["src"])

    def refuses(self, **_):
        raise BufferError("requires grad")

    broken.__class__ = type("Broken", (Tensor,), {"__dlpack__": refuses})
    refused(TypeError, "src gives no DLPack tensor: requires grad", src=broken)

    fib = sluice.Fib.from_routes({"10.0.0.0/8": "a"}, device=memory.name)
    with pytest.raises(TypeError, match="addresses is an array of int64"):
        fib.lookup(memory.put(np.zeros(3, np.int64)))


def test_tensors_are_looked_up_by_tables_of_their_device_alone(memory):
    column = memory.put(np.zeros(3, np.uint32))
    host = sluice.Acl.from_rules(["deny ip from any to any"])
    with pytest.raises(sluice.DeviceError, match=f"src is in the memory of {memory.name}, and the list is looked up on the host") as caught:
        host.classify(src=column, dst=column)
    assert f'device="{memory.name}"' in caught.value.help and "copy" in caught.value.help
    with pytest.raises(sluice.DeviceError, match="addresses is in the memory"):
        sluice.Fib.from_routes({"10.0.0.0/8": "a"}).lookup(column)
    counting = sluice.Acl.from_rules(["deny ip from any to any"], device=memory.name, count=True)
    with pytest.raises(sluice.Error, match="count"):
        counting.classify(src=column, dst=column)
    assert (counting.classify(src=np.zeros(3, np.uint32), dst=np.zeros(3, np.uint32)) == 1).all()


def test_a_package_without_cuda_says_so():
    if "without CUDA" not in sluice._sluice.no_cuda():
        pytest.skip("this package was built with CUDA")
    with pytest.raises(sluice.DeviceError, match="this package was built without CUDA") as caught:
        sluice.Acl.from_rules([], device="cuda")
    assert "SLUICE_CUDA=on pip install" in caught.value.help

    class OnGpu:
        shape = (3,)

        def __dlpack_device__(self):
            return (2, 1)

        def __dlpack__(self, **_):
            raise AssertionError("it is not asked for")

    with pytest.raises(sluice.DeviceError, match="src is in the memory of cuda:1, and the list is looked up on the host") as caught:
        sluice.Acl.from_rules([]).classify(src=OnGpu(), dst=OnGpu())
    assert "SLUICE_CUDA=on pip install" in caught.value.help and 'device="cuda:1"' in caught.value.help


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_results_are_of_the_library_of_the_columns(memory, library, monkeypatch):
    """A stand-in for the library, as far as it is asked: these are too large to be here."""

    class Array(Tensor):
        device = memory.name

    Array.__module__ = library + ".somewhere"

    def empty(n, *, dtype, device=memory.name):
        assert device == memory.name and dtype == "uint32"
        made = memory.empty(n, dtype)
        made.__class__ = Array
        return made

    class Device:
        current = None

        def __init__(self, number):
            assert number == memory.place[1]

        def __enter__(self):
            Device.current = self

        def __exit__(self, *_):
            Device.current = None

    def dlpack(self, **options):
        assert Device.current is not None, "libraries go by the current stream of their current device"
        return Tensor.__dlpack__(self, **options)

    Array.__dlpack__ = dlpack
    stand_in = types.SimpleNamespace(empty=empty, uint32="uint32", cuda=types.SimpleNamespace(device=Device, Device=Device))
    monkeypatch.setitem(sys.modules, library, stand_in)
    keys = random_keys(500)
    columns = put(memory, keys)
    for column in columns.values():
        column.__class__ = Array
    acl = sluice.Acl.from_file(CLASSBENCH.encode(), device=memory.name)
    result = acl.classify(**columns)
    assert type(result) is Array
    np.testing.assert_array_equal(result.host(), sluice.Acl.from_file(CLASSBENCH.encode()).classify(**keys))
    if library == "torch":
        del stand_in.uint32
        with pytest.raises(TypeError, match="torch has no uint32"):
            acl.classify(**columns)


def test_the_script_for_a_machine_with_a_gpu(memory):
    told = subprocess.run(
        [sys.executable, gpu_tensors.__file__, memory.name, "--keys", "20000", "--rules", "50"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "answers are those of the host" in told.stdout and "M keys/s" in told.stdout
    nowhere = subprocess.run([sys.executable, gpu_tensors.__file__, "tpu"], capture_output=True, text=True, check=False)
    assert nowhere.returncode == 4 and "tpu" in nowhere.stderr
