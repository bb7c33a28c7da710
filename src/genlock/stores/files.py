"""What stores want from the filesystem: that names are as durable as what they name, and errors in our words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genlock.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable


def make_folder(folder: Path) -> None:
    """Creates the folder and what is above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def os_fault_of(error: OSError, path: Path) -> StoreError:
    """Our error for one of the operating system's."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StoreFull(f"there is no room left for {path}; nothing was written")
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return StoreReadOnly(f"{path} cannot be written ({error.strerror})")
        case _:
            return StoreUnavailable(f"{path}: {error.strerror}")


@contextmanager
def os_errors_translated(path: Path) -> Iterator[None]:
    """Lets none of the operating system's errors out of the block."""
    try:
        yield
    except OSError as error:
        raise os_fault_of(error, path) from error
