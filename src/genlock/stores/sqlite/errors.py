"""Turns errors of SQLite and the operating system into ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from genlock.errors import (
    BadArgument,
    GenlockError,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.shortages import has_descriptors, no_descriptors
from genlock.stores.files import os_fault_of

_NOTHING_WRITTEN = (apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.ReadOnlyError)


def is_certain(error: apsw.Error) -> bool:
    """Does this error of COMMIT mean that nothing was written?"""
    return isinstance(error, _NOTHING_WRITTEN)


def fault_of(error: apsw.Error, path: Path) -> StoreError:
    """Returns our error for one of SQLite's."""
    match error:
        case apsw.FullError():
            return StoreFull(f"there is no room left for {path}; nothing was written")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnly(f"{path} cannot be written")
        case apsw.NotADBError():
            return StoreForeign(
                f"{path} is not an SQLite database, or its beginning is damaged: restore it, or "
                "name another file"
            )
        case apsw.CorruptError():
            return StoreCorrupt(f"{path} is damaged ({error}): restore a copy")
        case apsw.ConstraintError() | apsw.MismatchError() | apsw.SQLError():
            return StoreCorrupt(
                f"{path} holds what should not be there, or lacks what should ({error})"
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(
                f"{path} is locked by another process ({error}); nothing was written"
            )
        case apsw.CantOpenError() | apsw.IOError() if not has_descriptors():
            return no_descriptors(path)
        case apsw.CantOpenError() if not is_readable(path):
            return StoreUnavailable(f"{path} cannot be opened: this user may not read it")
        case apsw.CantOpenError():
            return StoreUnavailable(f"{path} cannot be opened ({error})")
        case apsw.IOError() if _is_full(path):
            return StoreFull(f"there is no room left for {path} ({error}); nothing was written")
        case _:
            return StoreUnavailable(
                f"{path}: {error} ({type(error).__name__}); nothing was written"
            )


def is_readable(path: Path) -> bool:
    """May this user read the file, if it exists?"""
    return not path.exists() or os.access(path, os.R_OK)


def text_fault_of(error: UnicodeError, path: Path) -> GenlockError:
    """Returns our error for bytes that are not valid text, or text that cannot be encoded."""
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(f"{path} has {error.object!r} in place of a text")
    return BadArgument(f"there is text that cannot be stored ({error})")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translates the errors raised in the block into ours."""
    try:
        yield
    except apsw.Error as error:
        raise fault_of(error, path) from error
    except OSError as error:
        raise os_fault_of(error, path) from error


def _is_full(path: Path) -> bool:
    """Is the disk full? SQLite reports that like any other failure after some writes."""
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False
