"""Reads files of unknown origin.

A pipe, link, folder or file of any size may have the name of a task or of a lock. A read never
follows it, blocks on it or reads it without a size limit: the content of an unreadable file is
`CANNOT_READ` with the reason.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, Final

CANNOT_READ: Final = b"\0cannot be read: "
"""Replaces the content of an unreadable file. YAML and JSON never contain this character."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""A larger task file is not read."""


def content_of(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes | None:
    """Returns the content of a file; None if the name does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return _content_of(fd, most)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return _not("it is a symbolic link" if error.errno == errno.ELOOP else "it is a socket")
        return _not(str(error.strerror))


def _content_of(fd: int, most: int) -> bytes:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return _not("it is no regular file")
    pieces = [os.read(fd, min(found.st_size, most) + 1)]
    left = most + 1 - len(pieces[0])
    while pieces[-1] and left > 0:
        pieces.append(os.read(fd, min(left, 65_536)))
        left -= len(pieces[-1])
    if left <= 0:
        return _not(f"it is larger than {most:,} bytes")
    return b"".join(pieces)


def _not(reason: str) -> bytes:
    return CANNOT_READ + reason.encode()


def fault_of(content: bytes | None) -> str:
    """Returns why this could not be read; empty if it could."""
    if content is None or not content.startswith(CANNOT_READ):
        return ""
    return content[1:].decode(errors="replace")


def json_of(content: bytes) -> Any:
    """Returns the value of a JSON text; None if it is invalid, or nested too deeply."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
