"""Access lists and routes."""
from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from . import _keys, _sluice, _tensors
from ._paths import Path, readable
from ._program import call

ACTIONS = ("none", "permit", "deny", "mark")
_KINDS = {"positions": (0, np.uint32), "verdicts": (1, np.uint8), "marks": (2, np.uint32)}

Returns = Literal["positions", "verdicts", "marks"]


@dataclass(frozen=True)
class Rule:
    """A rule of a list: its position from 1, its text in the native language, and where it was read."""

    position: int
    text: str
    file: str
    line: int
    action: str
    mark: int

    def __str__(self) -> str:
        place = f" at {self.file}:{self.line}" if self.file and self.line else ""
        return f"rule {self.position}{place}: {self.text}"


@dataclass(frozen=True)
class Hits:
    """Counters of a list: `packets[i]` and `bytes[i]` (uint64) of the rule at position i, [0] of what no rule matched;
    `removed_packets` and `removed_bytes` of rules that are gone."""

    packets: npt.NDArray[np.uint64]
    bytes: npt.NDArray[np.uint64]
    removed_packets: int
    removed_bytes: int

    def top(self, n: int = 10) -> list[tuple[int, int]]:
        """The n positions with the most packets, and how many."""
        order = np.argsort(-self.packets[1:].astype(np.int64), kind="stable")[:n] + 1
        return [(int(i), int(self.packets[i])) for i in order if self.packets[i] != 0]


@dataclass(frozen=True)
class Explanation:
    """What happens to one packet, and why: `sluice explain` as data.

    `packet` is the key in words, `position` and `action` those of the rule that decides (0 and "none" where none
    matches), `rule` its text and place, `near` the rules above it that nearly match, with what is missing. `details` is
    all that the program says.
    """

    packet: str
    position: int
    action: str
    rule: str
    near: list[str]
    details: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        lines = [f"packet  {self.packet}", f"rule    {self.rule if self.position else 'none matches'}"]
        return "\n".join(lines + [f"near    {text}" for text in self.near])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class ShadowFinding:
    """A rule that is not needed: `kind` is shadowed, redundant, impossible or not decided; `by` are the rules that are
    the reason; `conflict` says that one of them has another action."""

    kind: str
    rule: str
    position: int
    by: list[int]
    conflict: bool


def _for(device: str, algorithm: str) -> str:
    """`auto` of the engine chooses for a core."""
    return "auto-gpu" if algorithm == "auto" and device != "cpu" else algorithm


class Acl:
    """An access list: rules of which the first that matches a packet decides.

    Any number of threads may look up and change one list at the same time: lookups run without the GIL and never wait,
    a change is whole or not at all. Made by `from_file` and `from_rules`.
    """

    def __init__(self, table: _sluice.Acl, name: str) -> None:
        self._table = table
        self._name = name

    @classmethod
    def from_file(
        cls,
        path: Path | bytes,
        format: str = "auto",
        *,
        algorithm: str = "auto",
        count: bool = False,
        device: str = "cpu",
        name: str = "memory",
    ) -> Acl:
        """Reads a list.

        path: a file, plain or compressed, or the bytes of one (`name` stands for it in errors): rules, or an image of
          `save` or `sluice compile`.
        format: auto (by content), classbench, native, vpp, iptables[:CHAIN], nft[:[TABLE/]CHAIN]; with @new, @established,
          @related or @invalid behind it, the rules for packets of such connections.
        algorithm: a name of `sluice tables --algorithms`; auto chooses by the list and the device.
        count: each rule counts its packets and bytes (`hits`).
        device: cpu, emu (host threads in a GPU's place), cuda or cuda:N. Never another than the one that is asked for.

        Errors: sluice.Error with file, line, column, what was expected and help; OSError for a file that cannot be read.
        """
        if isinstance(path, (bytes, bytearray, memoryview)):
            return cls(_sluice.Acl.read(bytes(path), name, format, _for(device, algorithm), count, device), name)
        file = readable(path)
        return cls(_sluice.Acl.open(file, format, _for(device, algorithm), count, device), file)

    @classmethod
    def from_rules(
        cls,
        rules: Iterable[str],
        format: str = "native",
        *,
        algorithm: str = "auto",
        count: bool = False,
        device: str = "cpu",
    ) -> Acl:
        """Makes a list of rules, a string each; `format` and the rest as of `from_file`. In errors the file is "rules" and
        the line the rule's position. Errors: sluice.Error; ValueError for a rule of several lines."""
        if isinstance(rules, str):
            raise TypeError("rules is a string, not a list of strings, one a rule")
        lines = list(rules)
        for i, line in enumerate(lines, 1):
            if not isinstance(line, str):
                raise TypeError(f"rules[{i - 1}] is {type(line).__name__}, not a string")
            if "\n" in line:
                raise ValueError(f"rules[{i - 1}] has several lines")
        # An empty text would be taken for one that was cut off; a comment says that there are no rules.
        text = "".join(line + "\n" for line in lines or ["# no rules"]).encode()
        return cls(_sluice.Acl.read(text, "rules", format, _for(device, algorithm), count, device), "rules")

    def classify(
        self,
        keys: Any = None,
        *,
        src: Any = None,
        dst: Any = None,
        sport: Any = None,
        dport: Any = None,
        proto: Any = None,
        flags: Any = None,
        icmp: Any = None,
        dscp: Any = None,
        family: Any = None,
        src6: Any = None,
        dst6: Any = None,
        bits: Any = None,
        bytes: Any = None,
        returns: Returns = "positions",
        out: Any = None,
    ) -> Any:
        """Looks up n keys. Returns (n,) uint32: the position, from 1, of the first rule that matches each, or 0.

        keys: all columns in one: a structured array, a mapping, a pandas or polars frame, an Arrow record batch or table
          (such as those of `read_pcap`); columns with other names are left alone. Or the columns themselves, arrays of any
          library, Arrow arrays or series of pandas or polars:
        src, dst: (n,) uint32 for IPv4, (n, 16) uint8 for IPv6; required. Numbers are in host order: 10.0.0.1 is
          0x0a000001.
        sport, dport: (n,) uint16. Where one of them is given, keys have ports, whatever their protocol, as in a line of a
          ClassBench trace; a rule that names a port matches no packet without. In Arrow a null is: no ports.
        proto: (n,) uint8.
        flags: (n,) uint8, the byte of TCP flags; or uint16, the same byte << 8 as ClassBench writes it: SYN is 0x02 or
          0x0200.
        icmp: (n,) uint16, type << 8 | code. dscp: (n,) uint8.
        family: (n,) uint8, 4 or 6, for keys of both; then src and dst are those of IPv4, src6 and dst6 of IPv6.
        bits: (n,) uint8: 1 has ports, 2 is a fragment, 4 is a later one; in place of what is said of ports above.
        bytes: (n,) uint32, the packet's length, for `hits` alone.
        returns: "positions"; "verdicts": (n,) uint8 of 0 none, 1 permit, 2 deny, 3 mark; "marks": (n,) uint32.
        out: where to write: (n,) of the result's dtype, contiguous and writable.

        Arrays have any stride, are not copied and not written, and may be read-only. All n answers are of one generation
        of the list; those of an Arrow table of one generation a record batch.

        Tensors in a GPU's memory (torch, cupy, whatever speaks DLPack) are looked up there, by a list that was opened with
        that device: all columns, or `keys`, a mapping of them or one tensor of (n, 48) uint8, each row a `sluice_key` of
        sluice.h. Nothing crosses to the host. The lookup waits for the stream on which each tensor is made, by
        `__dlpack__(stream=...)`, and its answers are complete on return: a torch tensor for torch, a cupy array for cupy,
        else a `DeviceArray`. `out` is a tensor there.

        Errors: TypeError for a wrong dtype, and for columns in different memories; ValueError for a wrong shape or lengths
        that differ; both name the argument. DeviceError for tensors of another device than the list's. Error for tensors
        and a list that counts. Nothing is written then.
        """
        if returns not in _KINDS:
            raise ValueError(f"returns is {returns!r}, not positions, verdicts or marks")
        kind, dtype = _KINDS[returns]
        given = {
            "src": src, "dst": dst, "src6": src6, "dst6": dst6, "family": family, "sport": sport, "dport": dport,
            "proto": proto, "flags": flags, "icmp": icmp, "dscp": dscp, "bits": bits, "bytes": bytes,
        }  # fmt: skip
        if keys is not None:
            named = [name for name, column in given.items() if column is not None]
            if named:
                raise ValueError(f"keys and {named[0]} are given together")
            tensors = _keys.tensors_of(keys)
        else:
            tensors = _tensors.columns_of(given)
        if tensors is not None:
            return _tensors.look_up(
                "the list", self._table.there(), tensors, dtype, out,
                lambda capsules, to: self._table.classify_there(capsules, kind, to),
            )  # fmt: skip
        if keys is not None:
            parts = list(_keys.batches_of(keys))
        else:
            columns = _keys.of_columns(given)
            parts = [(columns, _keys._rows(columns))]
        n = sum(rows for _, rows in parts)
        if out is None:
            out = np.empty(n, dtype)
        elif len(parts) > 1 and (not isinstance(out, np.ndarray) or out.shape != (n,)):
            raise ValueError(f"out has not the shape ({n},)")
        at = 0
        for columns, rows in parts:
            self._table.classify(columns, kind, out if len(parts) == 1 else out[at : at + rows])
            at += rows
        return out

    def update(self, add: str | Iterable[str] = (), remove: int | str | Iterable[int | str] = (), *, text: str = "") -> int:
        """Changes the list, all or nothing, while other threads look up; returns the new generation.

        remove: positions (as they are now) or rules to delete. add: rules that come at the end, or "at N RULE".
        text: steps of the program's own language, a line each (`add`, `delete`, `replace`), before those.
        Errors: sluice.Error, with the step as its line; the list is as it was then.
        """
        steps = [text.rstrip("\n")] if text.strip() else []
        removed: list[int | str] = [remove] if isinstance(remove, (int, str)) else list(remove)
        for position in removed:
            if not isinstance(position, str) and not 1 <= position <= len(self):
                raise IndexError(f"remove names rule {position}: the list has {len(self)}")
        # From the end on, so that each is still where it was.
        for position in sorted({int(r) for r in removed if not isinstance(r, str)}, reverse=True):
            steps.append(f"delete {position}")
        steps += [f"delete {r}" for r in removed if isinstance(r, str)]
        steps += [f"add {rule}" for rule in ([add] if isinstance(add, str) else add)]
        for step in steps[1 if text.strip() else 0 :]:
            if "\n" in step:
                raise ValueError("a rule of add or remove has several lines")
        if steps:
            self._table.change("\n".join(steps) + "\n", "update")
        return self.generation

    def hits(self) -> Hits:
        """The counters of the rules. Errors: sluice.Error where the list was not opened with count=True."""
        n = len(self) + 1
        while True:
            packets, octets = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
            have, removed_packets, removed_bytes = self._table.counters(packets, octets, n)
            if have <= n:
                return Hits(packets[:have], octets[:have], removed_packets, removed_bytes)
            n = have  # rules were added meanwhile

    def rule(self, position: int) -> Rule:
        """The rule at a position, from 1. Errors: IndexError where there is none."""
        if not 1 <= position <= len(self):
            raise IndexError(f"there is no rule {position}: the list has {len(self)}")
        at, text, file, line, action, mark = self._table.rule(position)
        return Rule(at, text, file, line, ACTIONS[action], mark)

    def rules(self) -> Iterator[Rule]:
        """All rules, in order."""
        for position in range(1, len(self) + 1):
            yield self.rule(position)

    def explain(self, packet: Any, *, near: int = 3) -> Explanation:
        """Which rule decides on one packet, and which ones above it nearly match. Every algorithm is asked, and all must
        agree.

        packet: an Ethernet frame as bytes or as a scapy packet; or a text such as
          "ip 10.0.0.1 > 192.0.2.7 tcp 1234 > 80 flags S".
        Errors: sluice.Error; TypeError.
        """
        told = self._ask(["explain", *_packet_arguments(packet), "--near", str(near), "--acl"])
        found = told.get("acl") or {}
        rule = found.get("match") or {}
        return Explanation(
            packet=told.get("packet") or "not an IP packet",
            position=int(rule.get("rule", 0)),
            action=str(rule.get("action", "none")),
            rule=self._text(rule) if rule else "",
            near=[f"{self._text(one)}: {one['fails']}" for one in found.get("near_misses", [])],
            details=told,
        )

    def shadowed(self, default: Literal["permit", "deny"] | None = None) -> list[ShadowFinding]:
        """Rules that are not needed, as `sluice check --shadowed` finds them: in a list that was read from a file of iptables or
        nftables the rules of that file, each of which may be several of the list. default: what is done with packets that
        no rule matches, if that is known."""
        extra = ["--default", default] if default else []
        report = self._ask(["check", "--shadowed", *extra, "--rules"])["shadowed"]
        return [
            ShadowFinding(
                kind=one["finding"], rule=self._text(one), position=int(one["rule"]),
                by=[int(by["rule"]) for by in one["by"]], conflict=bool(one["conflict"]),
            )
            for one in report["findings"]
        ]  # fmt: skip

    def save(self, path: Path) -> None:
        """Writes the list as an image, which loads without parsing and building. The file appears when it is complete."""
        self._table.save(os.fspath(path))

    def plot(self, ax: Any = None, n: int = 20) -> Any:
        """Draws the packets of the n rules with the most of them; returns matplotlib's axes. Errors: as of `hits`."""
        from ._plots import bars

        top = self.hits().top(n)
        return bars(ax, [str(position) for position, _ in top], [packets for _, packets in top], "rule", "packets")

    @property
    def generation(self) -> int:
        """The number of changes of the list, from 1."""
        return self._table.generation()

    @property
    def algorithm(self) -> str:
        """The algorithm by which the list is looked up."""
        return self._table.algorithm()

    @property
    def device(self) -> str:
        """Where lookups run."""
        return self._table.device()

    def _text(self, one: dict[str, Any]) -> str:
        # Not what the file says by now: the rule as it is.
        position = int(one["rule"])
        return str(self.rule(position)) if position <= len(self) else f"rule {position}"

    def _ask(self, arguments: list[str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            image = os.path.join(folder, "acl.img")
            self.save(image)
            told, _ = call([*arguments, image])
            return told

    def __len__(self) -> int:
        return self._table.size()

    def __repr__(self) -> str:
        return f"<sluice.Acl {self._name!r}: {len(self):,} rules, {self.algorithm}, {self.device}>"

    def _repr_html_(self) -> str:
        head = "<tr><th>position</th><th>rule</th><th>at</th></tr>"
        shown = min(len(self), 10)
        rows = ""
        for position in range(1, shown + 1):
            r = self.rule(position)
            rows += f"<tr><td>{r.position}</td><td><code>{html.escape(r.text)}</code></td><td>{html.escape(r.file)}:{r.line}</td></tr>"
        more = f"<p>and {len(self) - shown:,} more</p>" if len(self) > shown else ""
        return f"<p>{html.escape(repr(self)[1:-1])}</p><table>{head}{rows}</table>{more}"


class NextHops(Sequence[str]):
    """The next hops of routes: `next_hops[i]` is the text of the index i that `Fib.lookup` returns. An index keeps its
    text through all changes. There is none for -1, which is: no route."""

    def __init__(self, table: _sluice.Fib) -> None:
        self._table = table

    def __len__(self) -> int:
        return self._table.next_hops()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"there is no next hop {index}: there are {len(self)}" + ("; -1 is: no route" if index == -1 else ""))
        return self._table.next_hop(int(index) + 1)

    def __repr__(self) -> str:
        shown = ", ".join(repr(text) for text in self[:5])
        return f"<{len(self):,} next hops: {shown}{', ...' if len(self) > 5 else ''}>"


class Fib:
    """Routes: of each address the next hop of the longest prefix. Threads and changes are as of `Acl`."""

    def __init__(self, table: _sluice.Fib, name: str) -> None:
        self._table = table
        self._name = name
        self.next_hops = NextHops(table)

    @classmethod
    def from_file(
        cls,
        path: Path | bytes | Sequence[Path],
        *,
        algorithm4: str = "auto",
        algorithm6: str = "auto",
        device: str = "cpu",
        name: str = "memory",
    ) -> Fib:
        """Reads routes.

        path: a file, several, or the bytes of one: text (as `ip route` writes, too), MRT, plain or compressed, or an image.
        algorithm4, algorithm6: of IPv4 and IPv6, names of `sluice tables --algorithms`; auto chooses.
        device: as of `Acl.from_file`.

        Errors: sluice.Error with file, line, column, what was expected and help; OSError for a file that cannot be read.
        """
        algorithm4, algorithm6 = _for(device, algorithm4), _for(device, algorithm6)
        if isinstance(path, (bytes, bytearray, memoryview)):
            return cls(_sluice.Fib.read(bytes(path), name, algorithm4, algorithm6, device), name)
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        if not paths:
            raise ValueError("path is an empty list")
        # A name with a comma is one file where there is one, which the engine takes for several: it gets the bytes.
        files = [readable(p) for p in paths]
        if len(files) == 1 and "," in files[0]:
            with open(files[0], "rb") as file:
                return cls(_sluice.Fib.read(file.read(), files[0].replace(",", "_"), algorithm4, algorithm6, device), files[0])
        for one in files:
            if "," in one:
                raise ValueError(f"path has a comma in {one!r}, beside other files")
        return cls(_sluice.Fib.open(",".join(files), algorithm4, algorithm6, device), ", ".join(files))

    @classmethod
    def from_routes(cls, routes: Iterable[str] | Mapping[str, str], **options: Any) -> Fib:
        """Makes routes of texts such as "192.0.2.0/24 10.0.0.1", or of a mapping of prefixes to next hops; options as of
        `from_file`."""
        lines = [f"{p} {hop}" for p, hop in routes.items()] if isinstance(routes, Mapping) else list(routes)
        return cls.from_file("".join(line + "\n" for line in lines).encode(), name="routes", **options)

    def lookup(self, addresses: Any, *, out: Any = None) -> Any:
        """Looks up n addresses: (n,) uint32 for IPv4, in host order, or (n, 16) uint8 for IPv6. Returns (n,) int32: the
        index of each address's next hop in `next_hops`, or -1 where there is no route, or no address: a null of Arrow.

        out: where to write: (n,) int32, contiguous and writable. All answers are of one generation.
        Tensors in a GPU's memory are looked up there, as of `Acl.classify`.
        Errors: TypeError, ValueError, DeviceError, as of `Acl.classify`.
        """
        if (tensors := _tensors.columns_of({"addresses": addresses})) is not None:
            return _tensors.look_up("the table", self._table.there(), tensors, np.int32, out, self._table.lookup_there)
        addresses, absent = _keys.of_column("addresses", addresses)
        six = getattr(addresses, "ndim", 1) == 2
        if out is None:
            try:
                n = len(addresses)
            except TypeError:
                raise TypeError(f"addresses is {type(addresses).__name__}, not an array") from None
            out = np.empty(n, np.int32)
        self._table.lookup(addresses, six, out)
        if absent is not None:
            out[absent] = -1
        return out

    def update(self, add: str | Iterable[str] = (), remove: str | Iterable[str] = (), *, text: str = "") -> int:
        """Changes routes, all or nothing; returns the new generation. remove: prefixes; add: "PREFIX NEXTHOP ...";
        text: steps of the program's language, before those. Errors: sluice.Error, and routes of an image."""
        steps = [text.rstrip("\n")] if text.strip() else []
        steps += [f"delete {p}" for p in ([remove] if isinstance(remove, str) else remove)]
        steps += [f"add {r}" for r in ([add] if isinstance(add, str) else add)]
        if steps:
            self._table.change("\n".join(steps) + "\n", "update")
        return self.generation

    def save(self, path: Path) -> None:
        """Writes the routes as an image. The file appears when it is complete."""
        self._table.save(os.fspath(path))

    @property
    def generation(self) -> int:
        """The number of changes of the routes, from 1."""
        return self._table.generation()

    @property
    def algorithms(self) -> tuple[str, str]:
        """The algorithms of IPv4 and IPv6."""
        return self._table.algorithm(4), self._table.algorithm(6)

    @property
    def device(self) -> str:
        """Where lookups run."""
        return self._table.device()

    def __repr__(self) -> str:
        return f"<sluice.Fib {self._name!r}: {len(self.next_hops):,} next hops, {', '.join(self.algorithms)}, {self.device}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{i}</td><td>{html.escape(text)}</td></tr>" for i, text in enumerate(self.next_hops[:10]))
        return f"<p>{html.escape(repr(self)[1:-1])}</p><table><tr><th>index</th><th>next hop</th></tr>{rows}</table>"


def _packet_arguments(packet: Any) -> list[str]:
    if isinstance(packet, str):
        return ["--packet", packet]
    try:
        frame = bytes(packet) if not isinstance(packet, int) else None
    except TypeError:
        frame = None
    if not frame:
        raise TypeError(f"packet is {type(packet).__name__}, not a text, bytes or a scapy packet")
    return ["--hex", frame.hex()]
