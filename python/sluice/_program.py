"""The program in the wheel, for what needs a whole graph."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import tempfile
from typing import Any

from ._errors import DeviceError, Error, Finding, Interrupted, error_of

PROGRAM = pathlib.Path(__file__).parent / "bin" / "sluice"


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


def call(arguments: list[str], *, stdin: Any = None, feed: Any = None, check: bool = True) -> tuple[dict[str, Any], int]:
    """Runs the program with `-o json`, and returns what it says and its exit code.

    `feed` is called with a binary file whose bytes the program reads as its standard input. An interrupt of the caller
    is one of the program, too, which then ends in order. Errors: Error, with the program's findings; with `check` also
    where the program has a report, but ends with another exit code than 0.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [program(), *arguments, "-o", "json"],
            stdin=subprocess.PIPE if feed is not None else (stdin if stdin is not None else subprocess.DEVNULL),
            stdout=out,
            stderr=err,
        )
        try:
            if feed is not None and process.stdin is not None:
                try:
                    feed(process.stdin)
                except BrokenPipeError:
                    pass  # it ended before all of it: its exit code says why
                finally:
                    try:
                        process.stdin.close()
                    except BrokenPipeError:
                        pass
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        out.seek(0)
        err.seek(0)
        said = out.read()
        text = err.read().decode("utf-8", "replace")
    try:
        told = json.loads(said) if said.strip() else {}
    except ValueError:
        raise Error(f"the program's answer is no JSON: {said[:200]!r}") from None
    if code != 0 and (check or not told):
        if code < 0:
            name = signal.Signals(-code).name
            raise Error(f"the program was ended by {name}", [Finding(f"the program was ended by {name}")])
        # A report, if there is one, is on stdout; the error is on stderr.
        try:
            said_why = json.loads(text[text.index("{") :]) if "{" in text else {}
        except ValueError:
            said_why = {}
        error = _error(told if "error" in told else said_why, text, code)
        error.report = told if "packets_in" in told else None
        raise error
    return told, code
