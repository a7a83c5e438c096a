"""The program in the wheel, for what needs a whole graph: started for one command, or kept for many runs."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any, BinaryIO

from ._errors import DeviceError, Error, Finding, Interrupted, error_of

PROGRAM = pathlib.Path(__file__).parent / "bin" / "sluice"


_REQUEST_BYTES = 128 << 10  # of `sluice worker`
# Writes the bytes that the program reads as its standard input.
Feed = Callable[[BinaryIO], None]


class Died(Error):
    """A process of the program was ended by a signal, such as where memory runs out: the same again may succeed."""


def program() -> str:
    """The path of the program. Errors: Error where the package has none."""
    if not os.access(PROGRAM, os.X_OK):
        raise Error(f"{PROGRAM} is missing: the package is not installed as a whole")
    return str(PROGRAM)


def _error(told: dict[str, Any], text: str, code: int) -> Error:
    error = told.get("error", {})
    message = error.get("message") or text.strip() or f"the program ended with exit code {code}"
    findings = [
        {**d, "help": d.get("suggestion", "")}
        for d in error.get("diagnostics", [])
        if d.get("severity", "error") == "error"
    ] or [{"message": message, "help": error.get("hint", "")}]
    made = error_of("\n".join(str(Finding.of(f)) for f in findings), findings)
    if code == 130:
        return Interrupted(made.text, made.findings)
    if code == 4:
        return DeviceError(made.text, made.findings)
    return made


class _Answer:
    """Files in memory that the program prints to."""

    def __init__(self) -> None:
        self._files = contextlib.ExitStack()
        self.out = self._files.enter_context(open(os.memfd_create("stdout"), "rb"))
        self.err = self._files.enter_context(open(os.memfd_create("stderr"), "rb"))

    def __enter__(self) -> _Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def told(self, code: int, check: bool) -> dict[str, Any]:
        """What it printed as JSON. `code`: its exit code, or a signal as a negative number. Errors: as of `call`."""
        self.out.seek(0)
        self.err.seek(0)
        said = self.out.read()
        text = self.err.read().decode("utf-8", "replace")
        try:
            told: dict[str, Any] = json.loads(said) if said.strip() else {}
        except ValueError:
            raise Error(f"the program's answer is no JSON: {said[:200]!r}") from None
        if code == 0 or (told and not check):
            return told
        if code < 0:
            raise _died(-code)
        # A report, if there is one, is on stdout; the error is on stderr.
        try:
            said_why = json.loads(text[text.index("{") :]) if "{" in text else {}
        except ValueError:
            said_why = {}
        error = _error(told if "error" in told else said_why, text, code)
        error.report = told if "packets_in" in told else None
        raise error


def _died(number: int) -> Died:
    what = f"the program was ended by {signal.Signals(number).name}"
    return Died(what, [Finding(what)])


def _give(feed: Feed, descriptor: int) -> None:
    """Closes the descriptor, too."""
    try:
        with open(descriptor, "wb") as to:
            feed(to)
    except BrokenPipeError:
        pass  # the program ended before all of it: its exit code says why


def call(arguments: list[str], *, stdin: Any = None, check: bool = True) -> tuple[dict[str, Any], int]:
    """Runs the program with `-o json`, and returns what it says and its exit code.

    An interrupt of the caller is one of the program, too, which then ends in order. Errors: Error, with the program's
    findings; with `check` also where the program has a report, but ends with another exit code than 0.
    """
    with _Answer() as answer:
        process = subprocess.Popen(
            [program(), *arguments, "-o", "json"],
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=answer.out,
            stderr=answer.err,
        )
        try:
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            _end(process)
            raise
        return answer.told(code, check), code


def _hang_up(ours: socket.socket | None) -> None:
    """Also where a process that was forked from this one holds the socket."""
    if ours is not None:
        with contextlib.suppress(OSError):
            ours.shutdown(socket.SHUT_RDWR)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Waits for a process that is about to end."""
    try:
        return process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Worker:
    """The program, kept for many runs, each in a process that it forks: no run pays the start of a program.

    It is started when it is needed, and anew where it died. It ends with this process, however that ends. One thread
    at a time, but for `interrupt`.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._interrupted = False

    def call(self, arguments: list[str], *, feed: Feed | None = None) -> tuple[dict[str, Any], int]:
        """As the function `call`, for `run`. `feed` is called with a binary file whose bytes the run reads as its standard
        input. Errors: also Died, where the run or the worker was killed; Interrupted."""
        request = json.dumps({"arguments": [*arguments, "-o", "json"]}).encode()
        if len(request) > _REQUEST_BYTES:
            raise ValueError(f"options and variables have {len(request):,} bytes, more than {_REQUEST_BYTES:,}")
        with _Answer() as answer:
            try:
                said = self._ask(request, answer, feed)
            except BaseException as error:
                self.close()
                if self._interrupted and isinstance(error, OSError):
                    raise Interrupted("interrupted", [Finding("interrupted")]) from None
                raise
            if "error" in said:
                raise Error(said["error"])
            code = -int(said["signal"]) if "signal" in said else int(said["status"])
            return answer.told(code, True), code

    def _ask(self, request: bytes, answer: _Answer, feed: Feed | None) -> dict[str, Any]:
        if self._interrupted:
            raise Interrupted("interrupted", [Finding("interrupted")])
        read, write = os.pipe() if feed is not None else (os.open(os.devnull, os.O_RDONLY), -1)
        try:
            to = self._sent(request, [read, answer.out.fileno(), answer.err.fileno()])
        except BaseException:
            if write >= 0:
                os.close(write)
            raise
        finally:
            os.close(read)
        if feed is not None:
            _give(feed, write)
        # In pieces: a task that Ray cancels is told between the calls of its thread, and not in the middle of one.
        answer_there = select.poll()
        answer_there.register(to, select.POLLIN)
        while not answer_there.poll(200):
            pass
        try:
            said = to.recv(1 << 16)
        except ConnectionResetError:
            said = b""
        if said:
            told: dict[str, Any] = json.loads(said)
            return told
        if self._interrupted:
            raise Interrupted("interrupted", [Finding("interrupted")])
        assert self._process is not None
        code = _end(self._process)
        raise _died(-code) if code < 0 else Error(f"the program's worker ended with exit code {code}")

    def _sent(self, request: bytes, descriptors: list[int]) -> socket.socket:
        """Sends the request to a worker that is there; returns the socket of the answer."""
        if self._socket is not None:
            try:
                socket.send_fds(self._socket, [request], descriptors)
                return self._socket
            except (BrokenPipeError, ConnectionResetError):
                self.close()  # it died since its last run
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._socket = ours
            # In a session of its own: a terminal's Ctrl-C comes by whoever waits for the run. Symbols are bound once, and
            # not in each process that it forks.
            self._process = subprocess.Popen(
                [program(), "worker"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "LD_BIND_NOW": "1"},
            )
        socket.send_fds(ours, [request], descriptors)
        return ours

    def interrupt(self) -> None:
        """From any thread: the run that is under way ends in order, and its call with Interrupted."""
        self._interrupted = True
        _hang_up(self._socket)

    def close(self) -> None:
        """Interrupts the run that is under way, and waits for its end."""
        ours, process = self._socket, self._process
        self._socket = self._process = None
        _hang_up(ours)
        if ours is not None:
            ours.close()
        if process is not None:
            _end(process)
