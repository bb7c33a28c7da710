"""Errors of an operating system that runs out of something, in our words and with the command to
type."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from genlock.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NEEDED = 8
"""The number of descriptors opened as a test of whether any are left: SQLite opens a file, its log
and the log's index, and closes them on failure."""


def shortage_of(error: OSError, what: object = "") -> StoreError | None:
    """Returns our error if the machine or the process has run out of something, or may not write;
    None for any other error.

    `what` is named if the error itself names no file.
    """
    where = error.filename or what
    of = f" for {where}" if where else ""
    match error.errno:
        case errno.EMFILE:
            return no_descriptors(where)
        case errno.ENFILE:
            return StoreUnavailable(
                f"this machine has no file descriptor left{of}: end what holds many open, or raise "
                "its limit: sysctl -w fs.file-max=NUMBER"
            )
        case errno.ENOMEM:
            return StoreUnavailable(
                f"this machine has no memory left{of}: end what takes much of it, or raise the "
                "limit (ulimit -v)"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return StoreFull(f"there is no room left{of}; nothing was written")
        case errno.EROFS:
            return StoreReadOnly(
                f"{where or 'the filesystem'} cannot be written ({error.strerror})"
            )
        case _:
            return None


def no_descriptors(what: object = "") -> StoreUnavailable:
    """Returns the error of a process that may open no more files."""
    of = f" for {what}" if what else ""
    return StoreUnavailable(
        f"this process has no file descriptor left{of}{_allowed()}; "
        "allow it more before it is started, type: ulimit -n 4096 (in a unit of systemd: "
        "LimitNOFILE=65536)"
    )


def has_descriptors() -> bool:
    """Can a few more files be opened? For libraries that do not report why opening failed."""
    taken: list[int] = []
    try:
        for _ in range(_NEEDED):
            # Descriptors opened before a failure are closed too
            taken.append(os.open("/", os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401
    except OSError as error:
        return error.errno not in NO_DESCRIPTORS
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return True


def _allowed() -> str:
    with suppress(ImportError, OSError):  # an import needs a descriptor too
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f": it may have {soft:,} open" if soft != resource.RLIM_INFINITY else ""
    return ""
