"""Captures as files of this machine or of a filesystem of pyarrow: found, looked at, and read in pieces."""
from __future__ import annotations

import fnmatch
import glob
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ._errors import Error, Finding
from ._paths import Path

_PIECE = 1 << 20
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Source:
    """A capture. Travels to other machines, which must see it under the same name."""

    name: str  # as it was found: an absolute path, a URI, or a path of the filesystem
    path: str
    size: int
    modified_ns: int | None
    filesystem: Any = field(default=None, compare=False)  # of pyarrow; None: this machine's files

    @property
    def local(self) -> bool:
        return self.filesystem is None

    @property
    def stem(self) -> str:
        return self.path.rsplit("/", 1)[-1].split(".")[0]

    def about(self) -> dict[str, Any]:
        """What tells this capture from a later one of the same name."""
        return {"path": self.name, "bytes": self.size, "modified_ns": self.modified_ns}

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes [start, end). Errors: Error where they cannot be read."""
        turn = _one_at_a_time if _opens_one_file(self.filesystem) else nullcontext()
        try:
            with turn:
                opened = open(self.path, "rb") if self.local else self.filesystem.open_input_file(self.path)
            with closing(opened) as file:
                while start < end:
                    with turn:
                        file.seek(start)
                        piece = file.read(min(_PIECE, end - start))
                    if not piece:
                        raise OSError(f"it ends at byte {start:,}, and had {end:,} when the run began")
                    yield piece
                    start += len(piece)
        except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            what = f"{self.name}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
            raise Error(what, [Finding(what, file=self.name)]) from error


def _opens_one_file(filesystem: Any) -> bool:
    """Whether everyone who opens a path gets the same file, with one position for all: fsspec's memory, which others may wrap."""
    while (inner := next((getattr(filesystem, a) for a in ("base_fs", "handler", "fs") if hasattr(filesystem, a)), None)) is not None:
        filesystem = inner
    protocol = getattr(filesystem, "protocol", ())
    return "memory" in ((protocol,) if isinstance(protocol, str) else protocol)


def is_uri(name: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name) is not None


def find(inputs: Path | Iterable[Path], filesystem: Any = None) -> list[Source]:
    """The captures that paths, globs and URIs name, in their order. `filesystem`: where paths lead, of pyarrow or fsspec;
    None: to this machine's files. Errors: FileNotFoundError; ValueError for what is no regular file; Error without pyarrow."""
    if not isinstance(inputs, (str, os.PathLike, Iterable)) or isinstance(inputs, bytes):
        raise TypeError(f"inputs is {inputs!r}, not a path, or several")
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    for one in given:
        if not isinstance(one, (str, os.PathLike)):
            raise TypeError(f"inputs has {one!r}, which is no path")
    if not given:
        raise ValueError("inputs is empty")
    of_all = None if filesystem is None else _filesystem(filesystem)
    found: list[Source] = []
    for one in given:
        name = os.fspath(one)
        if is_uri(name):
            found += _of_uri(name)
        elif of_all is not None:
            found += _of_filesystem(of_all, name, "")
        else:
            found += _of_machine(name)
    return found


def _no_file(name: str) -> ValueError:
    return ValueError(f"inputs has {name!r}, which is no regular file: a part may be read twice")


def _of_machine(name: str) -> list[Source]:
    if os.path.exists(name):
        names = [name]
    elif glob.has_magic(name):
        names = sorted(glob.glob(name, recursive=True))
        if not names:
            raise FileNotFoundError(2, "no file matches", name)
    else:
        raise FileNotFoundError(2, os.strerror(2), name)
    for one in names:
        if not os.path.isfile(one):
            raise _no_file(one)
    return [_local(os.path.abspath(one)) for one in names]


def _local(path: str) -> Source:
    status = os.stat(path)
    return Source(path, path, status.st_size, status.st_mtime_ns)


def _pyarrow_fs() -> Any:
    try:
        import pyarrow.fs
    except ImportError as error:
        raise Error("inputs of a filesystem need pyarrow: pip install 'sluice[arrow]'") from error
    return pyarrow.fs


def _filesystem(given: Any) -> Any:
    fs = _pyarrow_fs()
    if isinstance(given, fs.FileSystem):
        return given
    if any(f"{c.__module__}.{c.__qualname__}" == "fsspec.spec.AbstractFileSystem" for c in type(given).__mro__):
        return fs.PyFileSystem(fs.FSSpecHandler(given))
    raise TypeError(f"filesystem is {type(given).__name__}, not a pyarrow.fs.FileSystem or one of fsspec")


def _of_uri(uri: str) -> list[Source]:
    """In a URI `*` and `[` are wildcards; `?` begins its query."""
    fs = _pyarrow_fs()
    place, mark, query = uri.partition("?")
    scheme, _, rest = place.partition("://")
    words = rest.split("/")
    fixed = next((i for i, word in enumerate(words) if re.search(r"[*[]", word)), len(words))
    try:
        filesystem, path = fs.FileSystem.from_uri(scheme + "://" + "/".join(words[:fixed]) + mark + query)
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise ValueError(f"inputs has {uri!r}: {error}") from error
    if fixed < len(words):
        path = path.rstrip("/") + "/" + "/".join(words[fixed:])
    if isinstance(filesystem, fs.LocalFileSystem):
        return _of_machine(path)
    base = scheme + "://" if scheme in ("s3", "gs", "gcs") else uri  # of object stores the path begins with the bucket
    return _of_filesystem(filesystem, path, base)


def _of_filesystem(filesystem: Any, path: str, base: str) -> list[Source]:
    """`base`: what with a path is the file's name; where it does not end with "://" it is the name of the one file."""
    fs = _pyarrow_fs()
    if isinstance(filesystem, fs.LocalFileSystem):
        return _of_machine(path)

    def name_of(one: str) -> str:
        return base + one if not base or base.endswith("://") else base if one == path else one

    def looked_at(what: Any) -> Any:
        try:
            return filesystem.get_file_info(what)
        except (OSError, ValueError) as error:
            raise OSError(f"{name_of(path)}: {error}") from error

    info = looked_at(path)
    if info.type == fs.FileType.NotFound and glob.has_magic(path):
        words = path.split("/")
        fixed = next(i for i, word in enumerate(words) if glob.has_magic(word))
        folder = "/".join(words[:fixed])
        pattern = words[fixed:]
        below = looked_at(fs.FileSelector(folder, recursive=len(pattern) > 1 or pattern[0] == "**", allow_not_found=True))
        skipped = len(folder) + 1 if folder else 0
        infos = sorted(
            (i for i in below if _matches(i.path[skipped:].strip("/").split("/"), pattern)),
            key=lambda i: str(i.path),
        )
        if not infos:
            raise FileNotFoundError(2, "no file matches", name_of(path))
    elif info.type == fs.FileType.NotFound:
        raise FileNotFoundError(2, os.strerror(2), name_of(path))
    else:
        infos = [info]
    for one in infos:
        if one.type != fs.FileType.File:
            raise _no_file(name_of(one.path))
    return [Source(name_of(one.path), one.path, one.size, one.mtime_ns, filesystem) for one in infos]


def _matches(words: list[str], pattern: list[str]) -> bool:
    """As glob does: `**` is any number of folders, and what is hidden has to be named."""
    if not pattern:
        return not words
    if pattern[0] == "**":
        return _matches(words, pattern[1:]) or (bool(words) and not words[0].startswith(".") and _matches(words[1:], pattern))
    if not words or (words[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(words[0], pattern[0]) and _matches(words[1:], pattern[1:])
