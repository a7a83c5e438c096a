"""Runs over many captures: on this machine's cores, or on a Ray cluster, with the same bytes as the result.

A capture is a part; a large pcap or pcapng file is several, cut where packets begin. Each part's outputs and its report
appear when it is complete, under names of their own: a part that is tried again counts once, and a run that was ended
goes on with the parts that are missing.
"""
from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import errno
import functools
import hashlib
import json
import os
import pathlib
import queue
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Literal, NoReturn, TypeVar

import numpy as np

from . import _sluice
from ._errors import Error, Finding
from ._paths import Path
from ._program import Died, Feed, Worker, call
from ._run import Graph, Report, _run, graph_of
from ._sources import Source, find, is_uri

# So many records in a row show where a packet begins; each part then proves it by reading on to the next one's place.
CHAIN = 64
_HEAD_BYTES = 1 << 20  # in which a capture's first packet has to be
_RECORD_BYTES = (16 << 20) + 64  # more than any record or block has
_WINDOW_BYTES = 32 << 20  # in which 64 records are
_ATTEMPTS = ".attempts"
_END_SECONDS = 15  # in which parts that are interrupted end


@dataclass(frozen=True)
class Part:
    """A capture, or the bytes [start, end) of one, after its first ones, `prefix`."""

    name: str
    source: Source
    start: int = 0
    end: int = 0
    prefix: bytes = b""

    @property
    def whole(self) -> bool:
        return self.end == 0

    @property
    def input(self) -> str:
        return self.source.name

    def feed(self) -> Feed | None:
        """What hands the part to a run; None: that reads the file itself."""
        if not self.whole:
            return self._feed_piece
        return None if self.source.local else self._feed_all

    def _feed_all(self, to: BinaryIO) -> None:
        for piece in self.source.pieces(0, self.source.size):
            to.write(piece)

    def _feed_piece(self, to: BinaryIO) -> None:
        """Errors: Misaligned where the records from the part's start do not lead to its end."""
        proof = _Proof(self) if self.end != self.source.size else None  # at the end of the file it is damage, which the run tells of
        to.write(self.prefix)
        for piece in self.source.pieces(self.start, self.end):
            if proof is not None:
                proof.add(piece)
            to.write(piece)
        if proof is not None:
            proof.end()


class _Proof:
    """Follows the records of a part as its bytes come by."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._rest = b""  # of a record that goes on

    def add(self, piece: bytes) -> None:
        data = np.frombuffer(self._part.prefix + self._rest + piece, np.uint8)
        at, _ = _sluice.capture_walk(data, len(self._part.prefix), len(self._part.prefix), len(data))
        self._rest = data[at:].tobytes()
        if len(self._rest) > _RECORD_BYTES:
            self._wrong()

    def end(self) -> None:
        if self._rest:
            self._wrong()

    def _wrong(self) -> NoReturn:
        raise Misaligned(f"{self._part.input}: no packet begins at byte {self._part.end}")


class Misaligned(Error):
    """Where a part was to end, no packet begins."""


def split(source: Source, part_bytes: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Where a pcap or pcapng file of more than `part_bytes` is cut: what each part begins with, and the bytes of each. One
    part, (0, 0), is the file as it is: other formats, compressed files, and those where no place was found.

    A cut is where 64 records follow each other; each part proves that it leads to the next one.
    """
    if part_bytes < 1:
        raise ValueError(f"part_bytes is {part_bytes}, not at least 1")
    whole = b"", [(0, 0)]
    if source.size <= part_bytes:
        return whole
    head = b"".join(source.pieces(0, min(source.size, _HEAD_BYTES)))
    prefix = head[: _sluice.capture_prefix(np.frombuffer(head, np.uint8))]
    if not prefix:
        return whole
    cuts = [len(prefix)]
    while source.size - cuts[-1] > part_bytes:
        at = (cuts[-1] + part_bytes + 3) // 4 * 4  # as blocks are aligned
        if at >= source.size:
            break
        window = prefix + b"".join(source.pieces(at, min(source.size, at + _WINDOW_BYTES)))
        found = _sluice.capture_resynchronise(np.frombuffer(window, np.uint8), len(prefix), len(prefix), CHAIN)
        if found < 0:
            break
        cuts.append(at + found - len(prefix))
    return whole if len(cuts) == 1 else (prefix, list(zip(cuts, [*cuts[1:], source.size])))


@dataclass(frozen=True)
class _Job:
    """What every part of a run has in common; travels to other machines."""

    text: str
    file: str
    variables: dict[str, str]
    options: list[str]
    run_options: list[str]
    output: str
    suffix: str
    dropped: bool
    verdicts: bool

    def graph(self) -> Graph:
        return Graph(self.text, file=self.file, variables=self.variables, options=self.options)


@functools.cache
def _worker() -> Worker:
    """This process's, for one thread: a task of Ray."""
    made = Worker()
    atexit.register(made.close)
    return made


Answered = TypeVar("Answered")


def _retried(work: Callable[[], Answered], retries: int) -> Answered:
    for _ in range(retries):
        try:
            return work()
        except Died:
            pass
    return work()


def run_part(part: Part, job: _Job, worker: Worker) -> dict[str, Any]:
    """Runs one part; returns its report as JSON. Its files appear at the end, the report last. Errors: Died, where the
    worker was killed: nothing of the part is there."""
    done = os.path.join(job.output, part.name + ".json")
    if os.path.exists(done):  # a part that is tried again after all: it is there
        return _load(done)
    if part.source.local and not os.path.exists(part.source.path):
        what = f"{part.input}: there is no such file on {socket.gethostname()}"
        raise Error(what, [Finding(what, file=part.input, help="every machine must see the captures under the same path")])
    attempt = f"{part.name}.{uuid.uuid4().hex}"
    folder = os.path.join(job.output, _ATTEMPTS)
    files = {job.suffix: os.path.join(folder, attempt + job.suffix)}
    options = list(job.run_options)
    if job.dropped:
        files[".dropped.pcapng"] = os.path.join(folder, attempt + ".dropped.pcapng")
        options += ["--dropped", files[".dropped.pcapng"]]
    if job.verdicts:
        files[".parquet"] = os.path.join(folder, attempt + ".verdicts")
        options += ["--verdicts", files[".parquet"]]
    feed = part.feed()
    began = time.monotonic()
    try:
        report = _run(job.graph(), part.source.path if feed is None else "-", files[job.suffix], options, worker, feed)
        report.check()
        if job.verdicts:
            _to_parquet(files[".parquet"])
        for suffix, path in files.items():
            with contextlib.suppress(FileNotFoundError):  # a graph may have outputs of other names alone
                os.replace(path, os.path.join(job.output, part.name + suffix))
    except BaseException as error:
        if isinstance(error, Error):
            if feed is not None:
                error.rename("standard input", part.input)
            error.drop("the output up to that point is in")  # it goes with the attempt
            for suffix, path in files.items():
                error.rename(path, os.path.join(job.output, part.name + suffix))
        for path in files.values():
            for left in (path, path + ".partial"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(left)
        raise
    place = {"name": part.name, "input": part.input, "start": part.start, "end": part.end}
    told = {**report.details, "part": place, "host": socket.gethostname(), "wall": time.monotonic() - began}
    _write(done, told)
    return told


def _to_parquet(path: str) -> None:
    from ._keys import need_pyarrow

    pa = need_pyarrow()
    import pyarrow.csv
    import pyarrow.parquet

    names = ["number", "verdict", "reason", "rule", "next_hop"]
    types = {"number": pa.uint64(), "verdict": pa.string(), "reason": pa.string(), "rule": pa.string(), "next_hop": pa.string()}
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=names),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )
    pyarrow.parquet.write_table(table, path + ".partial", compression="zstd")
    os.replace(path + ".partial", path)


def _write(path: str, told: Any) -> None:
    temporary = f"{path}.{uuid.uuid4().hex}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(told, indent=1, sort_keys=True))  # at once: json.dump writes word by word
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _load(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        told: dict[str, Any] = json.load(file)
    return told


def _parts(sources: Sequence[Source], part_bytes: int) -> list[Part]:
    made: list[Part] = []
    for i, source in enumerate(sources):
        stem = f"{i:06d}-{source.stem}"
        prefix, pieces = split(source, part_bytes)
        made += [
            Part(stem if len(pieces) == 1 else f"{stem}.{k:05d}", source, start, end, prefix) for k, (start, end) in enumerate(pieces)
        ]
    return made


def _check_state(graph: Graph, parts: Sequence[Part]) -> None:
    state = graph.state()
    if state and len(parts) > 1:
        what = f"the graph carries state from packet to packet ({', '.join(state)}), and there are {len(parts)} parts"
        raise Error(what, [Finding(what, file=graph.file, help="give it one capture, with part_bytes=None; or run each by sluice.run")])


def _compiled(graph: Graph, folder: str) -> tuple[Graph, dict[str, bytes]]:
    """The graph with images in place of its tables, and those by their names, compiled once."""
    options = list(graph.options)
    images: dict[str, bytes] = {}
    for flag in ("--acl", "--routes"):
        if flag in options:
            at = options.index(flag) + 1
            out = options[at]
            if not _is_image(out):
                out = os.path.join(folder, flag.strip("-") + ".img")
                call(["compile", flag, options[at], "--out", out])
            content = pathlib.Path(out).read_bytes()
            name = f"sluice-{hashlib.sha256(content).hexdigest()[:32]}.img"
            images[name] = content
            options[at] = name
    return Graph(graph.text, file=graph.file, variables=graph.variables, options=options), images


def _is_image(path: str) -> bool:
    if not os.path.isfile(path):  # several files, or a pipe
        return False
    with open(path, "rb") as file:
        return file.read(8) == b"SLUICEIM"


def _placed(job: _Job, folder: str) -> _Job:
    """The job with the images' places on this machine."""
    options = [os.path.join(folder, o) if o.startswith("sluice-") and o.endswith(".img") else o for o in job.options]
    return _Job(**{**asdict(job), "options": options})


def _image_folder() -> str:
    folder = os.path.join("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir(), f"sluice-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _put_images(images: dict[str, Any], folder: str) -> None:
    """Writes what is not there yet; the tasks of one machine map one file."""
    for name, content in images.items():
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            temporary = f"{path}.{uuid.uuid4().hex}"
            with open(temporary, "wb") as file:
                file.write(content)
            os.replace(temporary, path)


def run(
    graph: Graph | Path,
    inputs: Path | Iterable[Path],
    output: Path,
    *,
    engine: Literal["ray", "local"] = "ray",
    workers: int | None = None,
    part_bytes: int | None = 1 << 30,
    dropped: bool = False,
    verdicts: bool = False,
    retries: int = 2,
    device: str = "cpu",
    num_gpus: float = 0,
    progress: bool | None = None,
    filesystem: Any = None,
    options: Iterable[str] = (),
) -> Report:
    """Runs many captures through a graph, each by itself; returns one report over all of them.

    graph: as of `sluice.run`; the tables of a standard graph are compiled once, and mapped by all tasks of a machine.
    inputs: paths, globs and URIs (s3://bucket/2026/*.pcap, gs://, file://). output: a folder; there each part has NAME.pcap and NAME.json, its report, and at the end
      report.json is that of all, in which packets_in + generated = packets_out + dropped.
    engine: "ray", the cluster that ray.init() finds; "local", this machine's cores, without Ray. The files are the same.
    filesystem: where the paths and globs of inputs lead, of pyarrow.fs or fsspec; by default to this machine's files, which
      every machine of a cluster must see under the same paths. Parts are read from there as they run.
    workers: parts at a time; by default the cores (local) or all that the cluster has room for.
    part_bytes: uncompressed pcap and pcapng files that are larger are cut where packets begin; None: never.
    dropped, verdicts: of a standard graph also NAME.dropped.pcapng, every dropped packet with its reason, and
      NAME.parquet, a row a packet: number in its part, verdict, reason, rule, next_hop.
    retries: how often a part is tried again whose worker died. num_gpus: of Ray, a task; device: as of `sluice.run`.
    progress: a line on stderr; by default where that is a terminal.

    The same call with the same output goes on after an interruption: parts that are complete are not run again. Errors:
    sluice.Error of the first part that fails, and of an output that has parts of another run; OSError, ValueError.
    """
    if engine not in ("ray", "local"):
        raise ValueError(f"engine is {engine!r}, not ray or local")
    for name, number, least in (("workers", workers, 1), ("part_bytes", part_bytes, 1), ("retries", retries, 0)):
        if number is None and name != "retries":
            continue
        if not isinstance(number, (int, np.integer)):
            raise TypeError(f"{name} is {number!r}, not an integer")
        if number < least:
            raise ValueError(f"{name} is {number}, not at least {least}")
    if isinstance(options, str):
        raise TypeError(f"options is the string {options!r}, not a list of words, such as ['--default', 'permit']")
    if not isinstance(output, (str, os.PathLike)):
        raise TypeError(f"output is {output!r}, not a path")
    if is_uri(os.fspath(output)):
        raise ValueError(f"output is {os.fspath(output)!r}, not a folder that every machine has mounted: parts are files, not objects of a store")
    made = graph_of(graph)
    if (dropped or verdicts) and not made.is_standard:
        raise ValueError("dropped and verdicts are of a standard graph: Graph.standard(...)")
    made.arguments("in.pcap", "out.pcap")  # before anything is read: it names $IN and $OUT
    sources = find(inputs, filesystem)
    parts = _parts(sources, part_bytes if part_bytes is not None else sys.maxsize)
    _check_state(made, parts)
    folder = os.path.abspath(os.fspath(output))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    os.makedirs(os.path.join(folder, _ATTEMPTS), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sluice-") as temporary:
        compiled, images = _compiled(made, temporary) if made.is_standard else (made, {})
        text = compiled.text
        job = _Job(
            text=text, file="", variables=compiled.variables, options=compiled.options,
            run_options=["--device", device, *options], output=folder, suffix=".pcap", dropped=dropped, verdicts=verdicts,
        )  # fmt: skip
        about = {**asdict(job), "inputs": [source.about() for source in sources], "part_bytes": part_bytes}
        del about["output"]
        _begin(folder, about)
        todo = [p for p in parts if not os.path.exists(os.path.join(folder, p.name + ".json"))]
        show = _Progress(len(parts), len(parts) - len(todo), sys.stderr.isatty() if progress is None else progress)
        try:
            if engine == "local":
                _put_images(images, temporary)
                run_all = _local(workers or os.cpu_count() or 1, _placed(job, temporary), retries)
            else:
                run_all = _on_ray(workers, job, images, retries, num_gpus)
            parts = _finish(parts, todo, run_all, folder, show)
        finally:
            show.end()
    reports = []
    for part in parts:
        outputs = [os.path.join(folder, part.name + s) for s in (job.suffix, ".dropped.pcapng", ".parquet")]
        told = _load(os.path.join(folder, part.name + ".json"))
        reports.append(Report.of(told, [o for o in outputs if os.path.exists(o)]))
    merged = Report.merged(reports)
    summary = {k: v for k, v in asdict(merged).items() if k not in ("details", "outputs", "seconds")}
    _write(os.path.join(folder, "report.json"), summary)
    shutil.rmtree(os.path.join(folder, _ATTEMPTS), ignore_errors=True)
    return merged


def _begin(folder: str, about: dict[str, Any]) -> None:
    manifest = os.path.join(folder, "run.json")
    about = json.loads(json.dumps(about))
    begun = os.path.exists(manifest)
    if begun and _load(manifest) == about:
        return
    # One of which no part ended has nothing that another one could be confused with.
    if any(name not in (_ATTEMPTS, "run.json") for name in os.listdir(folder)):
        if begun:
            what = f"{folder} has the parts of another run: other inputs, another graph or other options"
            raise Error(what, [Finding(what, file=manifest, help="give another output, or remove that one")])
        what = f"{folder} is not empty, and no output of a run"
        raise Error(what, [Finding(what, file=folder, help="give another output")])
    _write(manifest, about)


# Closed, it interrupts the parts that run.
RunAll = Callable[[Sequence[Part]], Generator[tuple[Part, BaseException | None], None, None]]


def _finish(parts: list[Part], todo: list[Part], run_all: RunAll, folder: str, show: _Progress) -> list[Part]:
    """Runs what is to do; returns the parts that there are in the end. A file that was cut in a wrong place goes whole."""
    while todo:
        wrong: set[str] = set()
        failed: list[tuple[Part, BaseException]] = []
        with contextlib.closing(run_all(todo)) as ended:
            for part, error in ended:
                if isinstance(error, Misaligned):
                    wrong.add(part.input)
                elif error is not None:
                    failed.append((part, error))
                else:
                    show.step()
        # What fails after a wrong cut does so for that reason, as far as one can tell.
        for part, error in failed:
            if part.input not in wrong:
                raise error
        todo = []
        for file in sorted(wrong):
            gone = [p for p in parts if p.input == file]
            for p in gone:
                for suffix in (".json", ".pcap", ".dropped.pcapng", ".parquet"):
                    pathlib.Path(folder, p.name + suffix).unlink(missing_ok=True)
            whole = Part(gone[0].name.rsplit(".", 1)[0], gone[0].source)
            parts = [whole if p is gone[0] else p for p in parts if p is gone[0] or p.input != file]
            todo.append(whole)
    return parts


def _ends(part: Part, error: BaseException | None) -> bool:
    """Whether no further part need be run. The parts of a file that was cut say together what is wrong with it."""
    return error is not None and (part.whole or not isinstance(error, Error))


def _local(workers: int, job: _Job, retries: int) -> RunAll:
    def run_all(parts: Sequence[Part]) -> Generator[tuple[Part, BaseException | None], None, None]:
        made = [Worker() for _ in range(min(workers, len(parts)))]
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in made:
            idle.put(worker)

        def one(part: Part) -> None:
            worker = idle.get()
            try:
                _retried(lambda: run_part(part, job, worker), retries)
            finally:
                idle.put(worker)

        with concurrent.futures.ThreadPoolExecutor(len(made)) as pool:
            futures = {pool.submit(one, part): part for part in parts}
            try:
                for future in concurrent.futures.as_completed(futures):
                    error = future.exception()
                    yield futures[future], error
                    if _ends(futures[future], error):
                        break
            except BaseException:
                for future in futures:
                    future.cancel()
                for worker in made:
                    worker.interrupt()
                raise
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                for worker in made:
                    worker.close()

    return run_all


def _on_ray(workers: int | None, job: _Job, images: dict[str, bytes], retries: int, num_gpus: float) -> RunAll:
    try:
        import ray
    except ImportError as error:
        raise Error("this needs Ray: pip install 'sluice[ray]', or engine=\"local\"") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    refs = {name: ray.put(np.frombuffer(content, np.uint8)) for name, content in images.items()}

    def task(part: Part, names: list[str], contents: list[Any]) -> dict[str, Any] | Error:
        folder = _image_folder()
        _put_images(dict(zip(names, [ray.get(c) for c in contents])), folder)
        placed, worker = _placed(job, folder), _worker()
        try:
            return _retried(lambda: run_part(part, placed, worker), retries)
        except Error as error:  # as a value: Ray would wrap it, and its class with it
            return error

    remote = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=retries)(task)

    def run_all(parts: Sequence[Part]) -> Generator[tuple[Part, BaseException | None], None, None]:
        waiting = list(reversed(parts))
        room = workers or max(1, 2 * int(ray.cluster_resources().get("CPU", 1)))
        running: dict[Any, Part] = {}
        try:
            while waiting or running:
                while waiting and len(running) < room:
                    part = waiting.pop()
                    running[remote.remote(part, list(refs), [refs[n] for n in refs])] = part
                ready, _ = ray.wait(list(running), num_returns=1)
                part = running.pop(ready[0])
                error: BaseException | None = None
                try:
                    got = ray.get(ready[0])
                    error = got if isinstance(got, Error) else None
                except ray.exceptions.RayTaskError as wrapped:
                    error = wrapped.cause if isinstance(wrapped.cause, BaseException) else wrapped
                except ray.exceptions.RayError as lost:
                    what = f"{part.input}: the worker of this part died {retries + 1} times"
                    error = Error(what, [Finding(what, file=part.input)])
                    error.__cause__ = lost
                yield part, error
                if _ends(part, error):
                    break
        finally:
            for ref in running:
                ray.cancel(ref, force=False)
            if running:  # they end in order, and take what they have written along
                ray.wait(list(running), num_returns=len(running), timeout=_END_SECONDS, fetch_local=False)

    return run_all


class _Progress:
    """A line on stderr."""

    def __init__(self, total: int, done: int, on: bool) -> None:
        self._total, self._done, self._on = total, done, on
        self._began = time.monotonic()
        self._show()

    def step(self) -> None:
        self._done += 1
        self._show()

    def _show(self) -> None:
        if self._on:
            bar = "#" * (30 * self._done // max(1, self._total))
            seconds = time.monotonic() - self._began
            print(f"\r[{bar:<30}] {self._done:,} of {self._total:,} parts, {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._on:
            print(file=sys.stderr)
