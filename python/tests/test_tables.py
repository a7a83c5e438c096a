"""Lists and routes against definitions: the first rule that matches, the longest prefix."""
import gzip
import ipaddress
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest

import sluice
from conftest import CLASSBENCH, classbench_oracle, ipv4_frame, ipv6_frame, looked_up_while_it_changes, random_keys

NATIVE = ["permit tcp from any to any port 80-443", "deny udp from 10.0.0.0/8 to any port 53", "permit ip from any to 192.0.2.0/24"]


@pytest.fixture
def acl(tmp_path):
    path = tmp_path / "rules"
    path.write_text(CLASSBENCH)
    return sluice.Acl.from_file(path, format="classbench")


@pytest.mark.parametrize("flags", [np.uint8, np.uint16])
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 4095, 50_000])
def test_positions_are_those_of_the_definition(acl, n, flags):
    keys = random_keys(n, flags=flags)
    found = acl.classify(**keys)
    assert found.dtype == np.uint32 and found.shape == (n,)
    wide = {**keys, "flags": keys["flags"].astype(np.uint16) << 8} if flags is np.uint8 else keys
    expected = classbench_oracle(CLASSBENCH, wide)
    np.testing.assert_array_equal(found, expected)
    if n > 1000:
        assert set(np.unique(expected)) == {0, 1, 2, 3, 4}


def test_columns_of_every_form_are_the_same_keys(acl, tmp_path):
    import pandas
    import polars
    import pyarrow as pa

    keys = random_keys(5000)
    expected = acl.classify(**keys)
    dtype = np.dtype([("time", "f8")] + [(name, column.dtype) for name, column in keys.items()])
    records = np.zeros(5000, dtype)
    for name, column in keys.items():
        records[name] = column
    table = pa.table(keys)
    forms = {
        "structured": records,
        "mapping": keys,
        "pandas": pandas.DataFrame(keys),
        "polars": polars.DataFrame(keys),
        "table": table,
        "batch": table.to_batches()[0],
        "slice": pa.concat_tables([table.slice(4000), table.slice(0, 4000)]),
    }
    for name, form in forms.items():
        found = acl.classify(form)
        np.testing.assert_array_equal(found, np.roll(expected, 1000) if name == "slice" else expected, err_msg=name)
    strided = {name: np.repeat(column, 3)[::3] for name, column in keys.items()}
    np.testing.assert_array_equal(acl.classify(**strided), expected)
    backwards = {name: column[::-1] for name, column in keys.items()}
    np.testing.assert_array_equal(acl.classify(**backwards), expected[::-1])
    frozen = {name: column.copy() for name, column in keys.items()}
    for column in frozen.values():
        column.flags.writeable = False
    np.testing.assert_array_equal(acl.classify(**frozen), expected)


@pytest.mark.parametrize("algorithm", ["tuple_merge", "bitvec", "tuple_space"])
def test_keys_that_no_packet_has_are_those_of_linear(algorithm):
    """Ports beside an ICMP type, flags of 16 bits, and full bursts without them."""
    rules = ["permit tcp from 10.0.0.0/9 to any port 1-40000", "deny icmp from any to any icmp-type 8", "permit udp from any port 53 to any", "deny ip from 10.0.0.0/8 to any"]
    n = 3_000
    some = np.random.default_rng(5)
    keys: dict = {"src": np.uint32(0x0A000000) + some.integers(0, 1 << 24, n, np.uint32), "dst": some.integers(0, 1 << 32, n, np.uint32)}
    keys |= {name: some.integers(0, 1 << 16, n, np.uint16) for name in ("dport", "flags")}
    keys |= {"sport": some.choice(np.array([53, 54], np.uint16), n)}
    keys |= {"icmp": some.choice(np.array([0, 8 << 8], np.uint16), n), "proto": some.choice(np.array([1, 6, 17], np.uint8), n)}
    keys |= {"bits": some.integers(0, 8, n, np.uint8), "dscp": some.integers(0, 64, n, np.uint8)}
    ordinary = keys | {"flags": keys["flags"] & 0xFF00, "icmp": np.zeros(n, np.uint16), "bits": np.ones(n, np.uint8)}
    for columns in (keys, ordinary, {k: v for k, v in keys.items() if k != "bits"}):
        expected = sluice.Acl.from_rules(rules, algorithm="linear").classify(**columns)
        assert len(set(expected.tolist())) > 2
        np.testing.assert_array_equal(sluice.Acl.from_rules(rules, algorithm=algorithm).classify(**columns), expected)


def test_nothing_is_copied(acl):
    import pyarrow as pa

    n = 400_000
    keys = random_keys(n)
    out = np.empty(n, np.uint32)
    batch = pa.record_batch(keys)
    records = np.zeros(n, [(name, column.dtype) for name, column in keys.items()])
    acl.classify(batch, out=out)
    for form in (keys, batch, records):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        acl.classify(form, out=out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000, "less than a quarter of a byte per key: no column was copied"
        assert pa.total_allocated_bytes() == before


def test_verdicts_marks_and_ipv6():
    acl = sluice.Acl.from_rules(["permit udp from 2001:db8::/32 to any port 53", "deny ip from 2001:db8::/32 to any", "permit ip from any to any"])
    src = np.zeros((3, 16), np.uint8)
    src[:, :4] = [0x20, 1, 0x0D, 0xB8]
    src[2, 0] = 0x30
    dst = np.ones((3, 16), np.uint8)
    columns = dict(src=src, dst=dst, dport=np.array([53, 54, 53], np.uint16), sport=np.zeros(3, np.uint16), proto=np.full(3, 17, np.uint8))
    assert acl.classify(**columns).tolist() == [1, 2, 3]
    verdicts = acl.classify(**columns, returns="verdicts")
    assert verdicts.dtype == np.uint8 and verdicts.tolist() == [1, 2, 1]
    assert acl.classify(**columns, returns="marks").tolist() == [0, 0, 0]
    mixed = dict(family=np.array([4, 6, 0], np.uint8), src=np.zeros(3, np.uint32), dst=np.zeros(3, np.uint32), src6=src, dst6=dst)
    assert acl.classify(**mixed).tolist() == [3, 2, 0]


def test_lists_texts_and_whole_numbers_of_any_width_are_columns():
    acl = sluice.Acl.from_rules(["permit tcp from 10.0.0.0/8 to any port 80", "permit ip from 2001:db8::/32 to any"])
    texts, numbers = ["10.0.0.1", "11.0.0.1", "10.255.0.1"], [0x0A000001, 0x0B000001, 0x0AFF0001]
    objects = [ipaddress.ip_address(text) for text in texts]
    wide = {name: np.array(values, np.int64) for name, values in {"dst": numbers, "proto": [6] * 3, "sport": [1] * 3, "dport": [80] * 3}.items()}
    for src in (texts, numbers, objects, tuple(texts), np.array(texts), np.array(objects, object), np.array(numbers, np.int64)):
        assert acl.classify(**wide, src=src).tolist() == [1, 0, 1], src
        assert acl.classify({**wide, "src": src}).tolist() == [1, 0, 1], src
    assert acl.classify(src=texts, dst=texts, proto=[6, 6, 6], dport=[80, 80, 443]).tolist() == [1, 0, 0]
    six = ["2001:db8::1", ipaddress.ip_address("2001:db9::1"), bytes.fromhex("20010db8") + bytes(12)]
    assert acl.classify(src=six, dst=six).tolist() == [2, 0, 2]
    # None is an absent value, as a null of Arrow is.
    assert acl.classify(src=["10.0.0.1", None], dst=["10.0.0.1"] * 2, proto=[6, 6], dport=[80, 80]).tolist() == [1, 0]
    fib = sluice.Fib.from_file(b"10.0.0.0/8 via 192.0.2.1\n2001:db8::/32 via 2001:db8::1\n")
    for addresses in (texts, numbers, objects):
        assert [index == -1 for index in fib.lookup(addresses)] == [False, True, False]
    assert [index == -1 for index in fib.lookup(six)] == [False, True, False]
    assert fib.lookup([]).tolist() == []


def test_wrong_arguments_name_the_argument_and_write_nothing(acl):
    keys = random_keys(10)
    out = np.full(10, 77, np.uint32)
    cases = [
        (dict(src=keys["src"].astype(np.int64) - 1 - keys["src"].max()), ValueError, "src has -"),
        (dict(dport=keys["dport"].astype(np.int64) + 65536), ValueError, "dport has .*, which is not in 0-65535"),
        (dict(dport=keys["dport"].astype(np.float32)), TypeError, "dport"),
        (dict(proto=["tcp"] * 10), TypeError, "proto has 'tcp', which is not a whole number"),
        (dict(src=["10.0.0"] * 10), ValueError, "src has '10.0.0', which is not an IP address"),
        (dict(src=["10.0.0.1", "::1"] * 5), ValueError, "IPv4 and of IPv6"),
        (dict(src=[1 << 32] * 10), ValueError, "src has 4294967296, which is no IPv4 address"),
        (dict(sport=keys["sport"][:9]), ValueError, "sport"),
        (dict(dst=keys["dst"].reshape(5, 2)), (TypeError, ValueError), "dst"),
        (dict(src=None), ValueError, "src"),
        (dict(src=np.zeros((10, 15), np.uint8)), ValueError, r"\(10, 15\), not \(n, 16\)"),
        (dict(src6=np.zeros((10, 16), np.uint8)), ValueError, "dst6"),
        (dict(out=out[:9]), ValueError, "out"),
        (dict(out=out.astype(np.int32)), TypeError, "out"),
        (dict(out=np.empty(20, np.uint32)[::2]), ValueError, "out"),
        (dict(returns="names"), ValueError, "returns"),
    ]
    frozen = np.zeros(10, np.uint32)
    frozen.flags.writeable = False
    cases.append((dict(out=frozen), ValueError, "out"))
    for change, kind, name in cases:
        with pytest.raises(kind, match=name):
            acl.classify(**{**keys, "out": out, **change})
    assert (out == 77).all()
    with pytest.raises(TypeError, match="src"):
        acl.classify(src=5, dst=6)
    with pytest.raises(TypeError, match="other byte order"):
        acl.classify(**{**keys, "src": keys["src"].astype(">u4")})
    for wrong in (np.zeros(3), 7, "10.0.0.1", object()):
        with pytest.raises(TypeError, match="keys"):
            acl.classify(wrong)
    with pytest.raises(ValueError, match="src"):
        acl.classify({})
    with pytest.raises(ValueError, match="keys and src"):
        acl.classify(keys, src=keys["src"])


def test_errors_have_their_place(tmp_path):
    path = tmp_path / "edge.acl"
    path.write_text("permit tcp from any to any port 80\npermit tcp from any to any port 90-80\n")
    with pytest.raises(sluice.Error) as caught:
        sluice.Acl.from_file(path)
    error = caught.value
    assert (error.file, error.line) == (str(path), 2) and error.column > 1
    assert error.expected or error.help
    assert "90-80" in error.source and "90-80" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.line, str(again)) == (2, str(error))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sluice.Acl.from_file(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        sluice.Acl.from_file(tmp_path)
    with pytest.raises(sluice.Error):
        sluice.Acl.from_file(path, format="morse")
    with pytest.raises(sluice.Error) as caught:
        sluice.Acl.from_rules([NATIVE[0], "permit everything"])
    assert (caught.value.file, caught.value.line) == ("rules", 2)
    with pytest.raises(TypeError):
        sluice.Acl.from_rules(NATIVE[0])
    with pytest.raises(TypeError):
        sluice.Acl.from_file(7)
    with pytest.raises(sluice.DeviceError, match="fpga"):
        sluice.Acl.from_rules(NATIVE, device="fpga")
    with pytest.raises(ValueError, match="path"):
        sluice.Fib.from_file([])


def test_bytes_files_and_images_are_the_same_list(acl, tmp_path):
    keys = random_keys(1000)
    expected = acl.classify(**keys)
    acl.save(tmp_path / "acl.img")
    squeezed = tmp_path / "rules.gz"
    squeezed.write_bytes(gzip.compress(CLASSBENCH.encode()))
    for other in (CLASSBENCH.encode(), tmp_path / "acl.img", squeezed):
        np.testing.assert_array_equal(sluice.Acl.from_file(other).classify(**keys), expected)
    assert len(acl) == 4 and "4 rules" in repr(acl) and "10.0.0.0/8" in acl._repr_html_()
    assert acl.rule(1).line == 1 and [r.position for r in acl.rules()] == [1, 2, 3, 4]
    with pytest.raises(IndexError):
        acl.rule(5)


@pytest.mark.parametrize("device", ["emu"])
def test_devices_give_the_same(acl, device):
    other = sluice.Acl.from_file(CLASSBENCH.encode(), device=device)
    keys = random_keys(20_000)
    np.testing.assert_array_equal(other.classify(**keys), acl.classify(**keys))
    fib = sluice.Fib.from_routes({"10.0.0.0/9": "192.0.2.1"}, device=device)
    assert fib.lookup(np.array([0x0A000001, 0x0AF00001], np.uint32)).tolist() == [0, -1]
    other.update(add="at 1 deny ip from any to any")
    assert (other.classify(**keys) == 1).all()


def test_auto_chooses_for_where_lookups_run() -> None:
    assert sluice.Fib.from_file(ROUTES.encode()).algorithms == ("sail", "range24")
    assert sluice.Fib.from_file(ROUTES.encode(), device="emu").algorithms == ("dir24", "poptrie")
    assert sluice.Fib.from_file(ROUTES.encode(), device="emu", algorithm4="sail").algorithms == ("sail", "poptrie")
    rules = [f"permit tcp from 10.{i % 100}.{i % 250}.0/24 to any port {1000 + i}" for i in range(300)]
    assert sluice.Acl.from_rules(rules).algorithm == "bitvec"
    assert sluice.Acl.from_rules(rules, device="emu").algorithm in ("tuple_space", "tuple_merge")


def test_updates_are_whole_or_not_at_all():
    acl = sluice.Acl.from_rules(NATIVE)
    before = acl.generation
    assert acl.update(add=["permit icmp from any to any", "at 1 deny tcp from any to any"], remove=[1, 3]) > before
    assert [r.text.split()[:2] for r in acl.rules()] == [["deny", "tcp"], ["deny", "udp"], ["permit", "icmp"]]
    rules = [r.text for r in acl.rules()]
    with pytest.raises(sluice.Error) as caught:
        acl.update(remove=2, add="permit everything")
    assert caught.value.line == 2 and [r.text for r in acl.rules()] == rules
    for position in (0, 4, -1):
        with pytest.raises(IndexError, match="remove"):
            acl.update(remove=position)
    assert acl.update() == acl.generation
    assert len(sluice.Acl.from_rules([])) == 0


def test_lookups_and_changes_of_several_threads():
    acl = sluice.Acl.from_rules(["deny ip from any to any"])
    keys = random_keys(20_000)
    looked_up_while_it_changes(acl, 20, lambda: acl.classify(**keys, returns="verdicts"))


def test_hits_follow_their_rules():
    acl = sluice.Acl.from_rules(NATIVE, count=True)
    acl.classify(src=np.full(5, 0x0A000001, np.uint32), dst=np.zeros(5, np.uint32), sport=np.zeros(5, np.uint16), dport=np.array([53, 53, 80, 443, 9], np.uint16),
                 proto=np.array([17, 17, 6, 6, 6], np.uint8), bytes=np.full(5, 100, np.uint32))  # fmt: skip
    hits = acl.hits()
    assert hits.packets.tolist() == [1, 2, 2, 0] and hits.bytes.tolist() == [100, 200, 200, 0]
    assert hits.top() == [(1, 2), (2, 2)]
    acl.update(remove=1)
    hits = acl.hits()
    assert hits.packets.tolist() == [1, 2, 0] and (hits.removed_packets, hits.removed_bytes) == (2, 200)
    with pytest.raises(sluice.Error, match="count"):
        sluice.Acl.from_rules(NATIVE).hits()


def test_explanations():
    acl = sluice.Acl.from_rules(NATIVE)
    frame = ipv4_frame(0x0A000001, 0x08080808, 17, 1024, 53)
    for packet in (frame, bytearray(frame), "ip 10.0.0.1 > 8.8.8.8 udp 1024 > 53"):
        why = acl.explain(packet)
        assert (why.position, why.action) == (2, "deny") and "rules:2" in why.rule and "10.0.0.1" in why.packet
        assert str(why) in why._repr_html_().replace("&gt;", ">")
    near = acl.explain("ip 10.0.0.1 > 8.8.8.8 tcp 1024 > 79").near
    assert any(text.startswith("rule 1 at rules:1") and "79" in text for text in near)
    assert acl.explain("ip 11.0.0.1 > 8.8.8.8 udp 1024 > 53").position == 0
    for wrong in (7, None, b""):
        with pytest.raises(TypeError, match="packet"):
            acl.explain(wrong)
    with pytest.raises(sluice.Error):
        acl.explain("a packet")


def test_scapy_packets_are_packets():
    scapy = pytest.importorskip("scapy.all", reason="scapy is not installed")
    acl = sluice.Acl.from_rules(NATIVE)
    packet = scapy.Ether() / scapy.IP(src="10.0.0.1", dst="8.8.8.8") / scapy.UDP(dport=53)
    assert acl.explain(packet).position == 2


def test_shadowed_rules():
    acl = sluice.Acl.from_rules(["permit ip from 10.0.0.0/8 to any", "deny tcp from 10.1.0.0/16 to any", "permit udp from any to any"])
    (only,) = [f for f in acl.shadowed() if f.kind == "shadowed"]
    assert (only.position, only.by, only.conflict) == (2, [1], True) and "10.1.0.0/16" in only.rule


def test_shadowed_rules_of_a_filter_with_chains_are_those_that_were_written(tmp_path):
    path = tmp_path / "fw.save"
    path.write_text("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p tcp -m multiport --dports 80,443 -j ACCEPT\n"
                    "-A FORWARD -p tcp -m multiport --dports 443,444 -j ACCEPT\n-A FORWARD -p tcp --dport 80 -j ACCEPT\nCOMMIT\n")  # fmt: skip
    # Of the second one 444 is needed, so that it stays whole.
    (only,) = sluice.Acl.from_file(path).shadowed()
    assert only.kind == "shadowed" and f"{path}:5" in only.rule


ROUTES = "10.0.0.0/8 192.0.2.1\n10.1.0.0/16 192.0.2.2\n10.1.2.0/24 192.0.2.3\n2001:db8::/32 2001:db8::1\n"


@pytest.mark.parametrize("n", [0, 1, 511, 512, 20_000])
def test_next_hops_are_those_of_the_longest_prefix(tmp_path, n):
    path = tmp_path / "rib.txt"
    path.write_text(ROUTES)
    fib = sluice.Fib.from_file(path)
    addresses = np.random.default_rng(n).choice(np.array([0x0A000001, 0x0A010001, 0x0A010203, 0x0B000001], np.uint32), n)
    names = {0x0A000001: "192.0.2.1", 0x0A010001: "192.0.2.2", 0x0A010203: "192.0.2.3", 0x0B000001: None}
    found = fib.lookup(addresses)
    assert found.shape == (n,)
    assert [None if i == -1 else fib.next_hops[i] for i in found] == [names[int(a)] for a in addresses]


def test_routes_of_ipv6_and_changes(tmp_path):
    fib = sluice.Fib.from_file(ROUTES.encode())
    addresses = np.zeros((3, 16), np.uint8)
    addresses[0, :4] = [0x20, 1, 0x0D, 0xB8]
    addresses[1, :4] = [0x20, 1, 0x0D, 0xB9]
    addresses[2, :6] = [0x20, 1, 0x0D, 0xB8, 1, 2]
    found = fib.lookup(addresses)
    assert found.tolist()[1] == -1 and fib.next_hops[found[0]] == "2001:db8::1" == fib.next_hops[found[2]]
    fib.update(add="2001:db9::/32 2001:db8::2", remove=["2001:db8::/32"])
    found = fib.lookup(addresses)
    assert found.tolist()[0] == -1 and fib.next_hops[found[1]] == "2001:db8::2"
    with pytest.raises(IndexError):
        fib.next_hops[-1]
    assert len(fib.next_hops[:]) == len(fib.next_hops) and "next hops" in repr(fib) and "192.0.2.1" in fib._repr_html_()
    for wrong, kind in ((addresses[:, :8], ValueError), (addresses.astype(np.uint16), TypeError), ([1.5, 2], TypeError), (5, TypeError)):
        with pytest.raises(kind, match="addresses"):
            fib.lookup(wrong)
    with pytest.raises(ValueError, match="out"):
        fib.lookup(addresses, out=np.empty(2, np.int32))
    with pytest.raises(sluice.Error) as caught:
        sluice.Fib.from_file(b"10.0.0.0/8 192.0.2.1\n10.0.0.0/33 192.0.2.1\n")
    assert caught.value.line == 2
    odd = tmp_path / "a,b"
    odd.write_text(ROUTES)
    assert len(sluice.Fib.from_file(odd).next_hops) == 4
    second = tmp_path / "more"
    second.write_text("172.16.0.0/12 192.0.2.9\n")
    both = sluice.Fib.from_file([second, second])
    assert both.next_hops[both.lookup(np.array([0xAC100001], np.uint32))[0]] == "192.0.2.9"


def test_dlpack(acl):
    class Other:
        """An array of another library."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __len__(self):
            return len(self.array)

    keys = random_keys(100)
    np.testing.assert_array_equal(acl.classify(**{name: Other(column) for name, column in keys.items()}), acl.classify(**keys))


def test_plots_of_hits():
    pytest.importorskip("matplotlib").use("Agg")
    acl = sluice.Acl.from_rules(NATIVE, count=True)
    acl.classify(src=np.zeros(4, np.uint32), dst=np.full(4, 0xC0000201, np.uint32))
    axes = acl.plot()
    assert [bar.get_width() for bar in axes.patches] == [4]


def forms_of(columns):
    """Columns of other libraries, with the same values in the same order."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pl = pytest.importorskip("polars", reason="polars is not installed")
    n = len(columns["src"])
    frame = pd.DataFrame(columns)
    order = np.random.default_rng(3).permutation(n)
    back = pd.DataFrame({k: v[np.argsort(order)] for k, v in columns.items()}).iloc[order]  # an index that is not 0..n
    return {
        "arrow": {k: pa.array(v) for k, v in columns.items()},
        "sliced": {k: pa.array(np.concatenate([v[:5], v, v[:3]])).slice(5, n) for k, v in columns.items()},
        "chunked": {k: pa.chunked_array([v[: 7 * i], v[7 * i :]]) for i, (k, v) in enumerate(columns.items())},
        "pandas": {k: frame[k] for k in columns},
        "pandas by another index": {k: back[k] for k in columns},
        "pandas nullable": {k: frame[k].convert_dtypes() for k in columns},
        "polars": {k: pl.Series(v) for k, v in columns.items()},
        "mixed": {k: (pa.array(v), pl.Series(v), v)[i % 3] for i, (k, v) in enumerate(columns.items())},
    }


def test_columns_of_any_library_are_arrays():
    acl = sluice.Acl.from_file(CLASSBENCH.encode())
    keys = random_keys(500)
    expected = classbench_oracle(CLASSBENCH, keys)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, columns in forms_of(keys).items():
            assert np.array_equal(acl.classify(**columns), expected), name
            assert np.array_equal(acl.classify(columns), expected), name
    fib = sluice.Fib.from_file(b"10.0.0.0/8 via 192.0.2.1\n0.0.0.0/0 via 192.0.2.2\n")
    hops = fib.lookup(keys["src"])
    assert set(hops.tolist()) == {0, 1}
    for name, columns in forms_of(keys).items():
        assert np.array_equal(fib.lookup(columns["src"]), hops), name


def test_an_address_that_is_absent_matches_nothing():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pl = pytest.importorskip("polars", reason="polars is not installed")
    # What stands where a null is would match.
    under = pa.Array.from_buffers(pa.uint32(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([1, 1, 1], np.uint32))])
    other = np.array([1, 1, 1], np.uint32)
    acl = sluice.Acl.from_rules(["permit ip from any to any"])
    fib = sluice.Fib.from_file(b"0.0.0.0/0 via 192.0.2.2\n::/0 via 2001:db8::1\n")
    for absent in (under, pa.chunked_array([under]), pd.Series([1, None, 1]), pd.Series([1, None, 1], dtype="UInt32"), pl.Series([1, None, 1], dtype=pl.UInt32)):
        assert acl.classify(src=absent, dst=other).tolist() == [1, 0, 1], type(absent)
        assert acl.classify(src=other, dst=absent).tolist() == [1, 0, 1], type(absent)
        assert acl.classify(pa.table({"src": other, "dst": under})).tolist() == [1, 0, 1]
        assert fib.lookup(absent).tolist() == [0, -1, 0], type(absent)
    six = pa.array([b"\x20" * 16, None, b"\x20" * 16], pa.binary(16))
    assert fib.lookup(six).tolist() == [1, -1, 1] == fib.lookup(pd.Series([b"\x20" * 16, None, b"\x20" * 16])).tolist()
    assert acl.classify(src6=six, dst6=six).tolist() == [1, 0, 1] == acl.classify(src=six, dst=six).tolist()


def test_columns_that_cannot_be_meant_are_named():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    acl = sluice.Acl.from_rules(["permit ip from any to any"])
    fib = sluice.Fib.from_file(b"0.0.0.0/0 via 192.0.2.2\n")
    a = np.zeros(10, np.uint32)
    frame = pd.DataFrame({"src": a, "dst": a})
    for error, match, columns in (
        (TypeError, "src is a masked array", {"src": np.ma.masked_array(a, mask=True), "dst": a}),
        (ValueError, r"src has the shape \(2, 5\)", {"src": a.reshape(2, 5), "dst": a}),
        (ValueError, "src is the name of several columns", pd.concat([frame, frame[["src"]]], axis=1)),
        (ValueError, "src is the name of several columns", pa.RecordBatch.from_arrays([pa.array(a)] * 3, ["src", "dst", "src"])),
        (ValueError, "sport has 2 entries, and src has 10", {"src": a, "dst": a, "sport": pa.array([1, None], pa.uint16())}),
        (TypeError, "src is uint32", {"src": np.uint32(1), "dst": a, "sport": pa.array([1, None], pa.uint16())}),
        (ValueError, "src has 'here'", {"src": pd.Series(["here"] * 10, dtype=object), "dst": a}),
        (ValueError, "src has 'here'", {"src": pa.array(["here"] * 10), "dst": a}),
        (TypeError, "src is an Arrow array of double", {"src": pa.array([1.5] * 10), "dst": a}),
        (TypeError, "src has numbers that are no uint32", {"src": pd.Series([1.5, None] * 5), "dst": a}),
        (TypeError, "other byte order", {"src": a.astype(">u4"), "dst": a}),
        (TypeError, "src has 0.5, which is not an IP address", {"src": (a + 0.5).astype(object), "dst": a}),
    ):
        with pytest.raises(error, match=match):
            acl.classify(columns)
    with pytest.raises(ValueError, match="addresses has 'here'"):
        fib.lookup(pa.array(["here"]))
    with pytest.raises(TypeError, match="addresses is a masked array"):
        fib.lookup(np.ma.masked_array(a, mask=True))
