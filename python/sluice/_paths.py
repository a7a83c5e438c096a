"""Paths as the engine takes them."""
from __future__ import annotations

import errno
import os
import stat

Path = str | os.PathLike[str]


def readable(path: Path) -> str:
    """The path as text. Errors: OSError with the path where it is not there, is a folder, or may not be read; TypeError.

    Nothing is opened: a pipe is read once."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"path is {type(path).__name__}, not a str or os.PathLike")
    if "\0" in name:
        raise ValueError("path has a NUL character")
    if stat.S_ISDIR(os.stat(name).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not os.access(name, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return name
