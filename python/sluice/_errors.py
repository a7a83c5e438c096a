"""Errors: what the engine found wrong, with its place."""
from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. Texts are empty, and numbers 0, where something is not known."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    length: int = 0
    source: str = ""
    expected: str = ""
    help: str = ""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Finding:
        """Of what the engine says, whatever else it says."""
        return cls(**{name: told[name] for name in cls.__dataclass_fields__ if name in told})

    def __str__(self) -> str:
        place = self.file + (f":{self.line}:{self.column}" if self.line else "")
        lines = [f"{place}: error: {self.message}" if place else self.message]
        if self.source:
            lines += [f"  {self.source}", " " * (1 + max(1, self.column)) + "^" + "~" * max(0, self.length - 1)]
        lines += [f"  expected: {self.expected}"] if self.expected else []
        lines += [f"  help: {self.help}"] if self.help else []
        return "\n".join(lines)


class Error(Exception):
    """What the engine refuses: a text, a table, a graph, a capture, a device.

    `findings` has all that is wrong; `message`, `file`, `line`, `column`, `source`, `expected` and `help` are those of
    the first. `str(error)` is all of it as compilers write it.
    """

    def __init__(self, text: str, findings: list[Finding] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.findings = findings or [Finding(text)]
        # Of a run that did not end well: what it did until then, as sluice.run's report says it; else None.
        self.report: dict[str, Any] | None = None

    def rename(self, file: str, name: str) -> None:
        """Says `name` where it said `file`."""
        self.findings = [replace(f, file=f.file.replace(file, name), message=f.message.replace(file, name)) for f in self.findings]
        self.text = self.text.replace(file, name)
        self.args = (self.text,)

    def drop(self, words: str) -> None:
        """Leaves out what a help has from `words` to the end of its line."""

        def without(text: str) -> str:
            return re.sub(rf"(; |: |\n  help: )?{re.escape(words)}[^\n]*", "", text)

        self.findings = [replace(f, help=without(f.help)) for f in self.findings]
        self.text = without(self.text)
        self.args = (self.text,)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.text, self.findings))

    @property
    def message(self) -> str:
        return self.findings[0].message

    @property
    def file(self) -> str:
        return self.findings[0].file

    @property
    def line(self) -> int:
        return self.findings[0].line

    @property
    def column(self) -> int:
        return self.findings[0].column

    @property
    def source(self) -> str:
        return self.findings[0].source

    @property
    def expected(self) -> str:
        return self.findings[0].expected

    @property
    def help(self) -> str:
        return self.findings[0].help


class Interrupted(Error):
    """A run that was interrupted. Its unfinished outputs are beside the old ones, with the ending `.partial`."""


class DeviceError(Error):
    """The device or the feature is not available here."""


def error_of(text: str, findings: list[dict[str, Any]], device: bool = False) -> Error:
    """The error of a list of findings, as the engine gives them."""
    if device and "built without CUDA" in text:
        one = Finding("this package was built without CUDA", help="SLUICE_CUDA=on pip install ./python, where nvcc is")
        return DeviceError(str(one), [one])
    return (DeviceError if device else Error)(text.rstrip("\n"), [Finding.of(f) for f in findings])
