"""Runs of whole graphs over captures, and their reports."""
from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from . import _sluice
from ._errors import Error
from ._paths import Path, readable
from ._program import Feed, Worker, call


@dataclass(frozen=True)
class Report:
    """What a run, or several, did. Packets are all accounted for: packets_in + generated = packets_out + dropped (`check`).

    drops: packets by reason. out: {port: {"packets", "bytes"}}. seconds: of the run, or the sum of the runs'. parts: how
    many runs it is of. details: all that the program reports of one run; empty for several.
    """

    packets_in: int
    bytes_in: int
    packets_out: int
    bytes_out: int
    generated: int
    dropped: int
    drops: dict[str, int]
    out: dict[str, dict[str, int]]
    seconds: float
    parts: int = 1
    outputs: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, told: Mapping[str, Any], outputs: Iterable[str] = ()) -> Report:
        """The report of `sluice run -o json`."""
        drops = {str(reason): int(n) for reason, n in told["drops"].items()}
        return cls(
            packets_in=told["packets_in"], bytes_in=told["bytes_in"], packets_out=told["packets_out"],
            bytes_out=told["bytes_out"], generated=told["generated"], dropped=sum(drops.values()), drops=drops,
            out={str(port): {"packets": o["packets"], "bytes": o["bytes"]} for port, o in told.get("out", {}).items()},
            seconds=told["seconds"], outputs=list(outputs), details=dict(told),
        )  # fmt: skip

    @classmethod
    def merged(cls, reports: Iterable[Report]) -> Report:
        """The sum of reports. Errors: sluice.Error where one of them, or the sum, does not add up."""
        total: dict[str, Any] = {f.name: 0 for f in fields(cls)}
        drops: dict[str, int] = {}
        out: dict[str, dict[str, int]] = {}
        outputs: list[str] = []
        for r in reports:
            r.check()
            for name in ("packets_in", "bytes_in", "packets_out", "bytes_out", "generated", "dropped", "seconds", "parts"):
                total[name] += getattr(r, name)
            for reason, n in r.drops.items():
                drops[reason] = drops.get(reason, 0) + n
            for port, o in r.out.items():
                one = out.setdefault(port, {"packets": 0, "bytes": 0})
                one["packets"] += o["packets"]
                one["bytes"] += o["bytes"]
            outputs += r.outputs
        total.update(drops=dict(sorted(drops.items(), key=lambda d: (-d[1], d[0]))), out=out, outputs=outputs, details={})
        made = cls(**total)
        made.check()
        return made

    def check(self) -> None:
        """Errors: sluice.Error where a packet is not accounted for."""
        if self.packets_in + self.generated != self.packets_out + self.dropped + self.queued or self.dropped != sum(self.drops.values()):
            raise Error(f"packets are not accounted for: {self}")

    @property
    def queued(self) -> int:
        """Packets that were still inside at the end."""
        return int(self.details.get("queued", 0))

    def plot(self, ax: Any = None) -> Any:
        """Draws where the packets went: out, and dropped by reason; returns matplotlib's axes."""
        from ._plots import bars

        return bars(ax, ["out", *self.drops], [self.packets_out, *self.drops.values()], "", "packets")

    def __str__(self) -> str:
        drops = "  ".join(f"{reason} {n:,}" for reason, n in self.drops.items())
        made = f"generated {self.generated:,} packets\n" if self.generated else ""
        return (
            f"in     {self.packets_in:,} packets, {self.bytes_in:,} bytes\n{made}"
            f"out    {self.packets_out:,} packets, {self.bytes_out:,} bytes\n"
            f"drops  {self.dropped:,}{': ' + drops if drops else ''}"
        )

    def _repr_html_(self) -> str:
        rows = [("in", self.packets_in), *([("generated", self.generated)] if self.generated else []), ("out", self.packets_out)]
        rows += [(f"dropped: {reason}", n) for reason, n in self.drops.items()]
        cells = "".join(f"<tr><td>{html.escape(name)}</td><td style='text-align:right'>{n:,}</td></tr>" for name, n in rows)
        return f"<table><tr><th></th><th>packets</th></tr>{cells}</table>"


class Graph:
    """A graph of network functions in Click's language, from a file or as text, or the standard graph of tables.

    variables: values of its `define`s, such as {"LIMIT": "100"}.
    """

    def __init__(self, text: str, *, file: str = "", variables: Mapping[str, str] | None = None, options: Iterable[str] = ()) -> None:
        self.text = text
        self.file = file
        self.variables = dict(variables or {})
        self.options = list(options)

    @classmethod
    def from_file(cls, path: Path, variables: Mapping[str, str] | None = None) -> Graph:
        """Reads a file. Paths in it are relative to the folder of the program, as for `sluice run`."""
        name = readable(path)
        with open(name, encoding="utf-8") as file:
            return cls(file.read(), file=name, variables=variables)

    @classmethod
    def standard(
        cls,
        *,
        acl: Path | None = None,
        nat: Path | None = None,
        routes: Path | None = None,
        adjacencies: Path | None = None,
        default: str = "deny",
        icmp_errors: str | None = None,
    ) -> Graph:
        """The standard graph: header checks, access list, address translation, routes, TTL, rewrite, as far as their tables
        are given (files or images); with the list alone a transparent filter. default: deny or permit, for what no rule
        matches."""
        if acl is None and nat is None and routes is None:
            raise ValueError("acl, nat and routes are missing: one of them is needed")
        options = ["--default", default]
        for name, path in (("--acl", acl), ("--nat", nat), ("--routes", routes), ("--adjacencies", adjacencies)):
            if path is not None:
                options += [name, readable(path)]
        if icmp_errors is not None:
            options += ["--icmp-errors", icmp_errors]
        return cls("", options=options)

    @property
    def is_standard(self) -> bool:
        return bool(self.options)

    def arguments(self, input: str, output: str | None) -> list[str]:
        """Of `sluice run`, for one capture. Errors: ValueError where the graph has no place for it."""
        if self.is_standard:
            return [*self.options, "--in", input, *(["--out", output] if output is not None else [])]
        variables = dict(self.variables)
        for name, value in (("IN", input), ("OUT", output)):
            named = f"${name}" in self.text or f"${{{name}}}" in self.text
            if value is not None and not named:
                what = "input" if name == "IN" else "output"
                raise ValueError(f"{what} is given, and the graph does not name ${name}, such as in "
                                 f"{'FromDump' if name == 'IN' else 'ToDump'}(${name})")
            if value is None and named and name not in variables:
                raise ValueError(f"output is missing: the graph names ${name}")
            if value is not None:
                variables[name] = value
        return [*(f"{name}={value}" for name, value in variables.items())]

    def state(self) -> list[str]:
        """Checks the graph, without its tables and captures, and returns the elements, as "name :: Class", whose treatment
        of a packet depends on those before it, such as a policer. Errors: sluice.Error with all that is wrong."""
        if self.is_standard:
            return []
        variables = {"IN": "in.pcap", "OUT": "out.pcap", **self.variables}
        used = [(name, value) for name, value in variables.items() if name in self.variables or f"${name}" in self.text]
        return _sluice.graph_state(self.text, self.file or "graph", used)

    def __repr__(self) -> str:
        what = self.file or (f"standard: {' '.join(self.options)}" if self.is_standard else repr(self.text))
        return f"<sluice.Graph {what}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text or ' '.join(self.options))}</pre>"


def graph_of(graph: Graph | str | os.PathLike[str]) -> Graph:
    """A graph as it is, the text of one, or the path of its file: a text has `->` or `;` or lines, a path has not."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str) and ("->" in graph or ";" in graph or "\n" in graph):
        return Graph(graph)
    return Graph.from_file(graph)


def run(
    graph: Graph | str | os.PathLike[str],
    input: Path,
    output: Path | None = None,
    *,
    workers: int = 1,
    device: str = "cpu",
    variables: Mapping[str, str] | None = None,
    options: Iterable[str] = (),
) -> Report:
    """Runs a capture through a graph, and returns the report.

    graph: a `Graph`, the text of one, or the path of its file. It names its capture $IN and its output $OUT:
      "FromDump($IN) -> ... -> ToDump($OUT);".
    input: a pcap or pcapng file, plain or compressed. output: the pcap file to write, which appears when it is complete.
    workers: threads. device: cpu, emu, cuda, cuda:N or auto. options: further ones of `sluice run`.

    Errors: sluice.Error with the findings (`.report`: what a run did that did not end well), Interrupted, DeviceError;
    OSError, ValueError. No output is there then, or it is as it was; what was written is beside it as NAME.partial.
    """
    if isinstance(options, str):
        raise TypeError(f"options is the string {options!r}, not a list of words, such as ['--default', 'permit']")
    made = graph_of(graph)
    if variables:
        made = Graph(made.text, file=made.file, variables={**made.variables, **variables}, options=made.options)
    target = None if output is None else os.fspath(output)
    return _run(made, readable(input), target, ["--workers", str(workers), "--device", device, *options])


def _run(graph: Graph, input: str, output: str | None, options: list[str], worker: Worker | None = None, feed: Feed | None = None) -> Report:
    """Runs it by a program of its own, or by a worker; `feed`: of a worker, what "-" as the input is."""

    def told(*arguments: str) -> dict[str, Any]:
        words = ["run", *arguments, *graph.arguments(input, output), *options]
        return (call(words) if worker is None else worker.call(words, feed=feed))[0]

    outputs = [] if output is None else [output]
    if graph.is_standard:
        return Report.of(told(), outputs)
    if graph.file:
        return Report.of(told(graph.file), outputs)
    # A text goes by a descriptor, which has a name and leaves no file.
    with memory_file("graph", graph.text.encode()) as path:
        try:
            return Report.of(told(path), outputs)
        except Error as error:
            error.rename(path, "graph")
            raise


class memory_file:
    """A file in memory with a path, as long as it is wanted."""

    def __init__(self, name: str, content: bytes) -> None:
        self.fd = os.memfd_create(name)
        os.write(self.fd, content)

    def __enter__(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
