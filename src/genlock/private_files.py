"""Private files of the user: written atomically, and never readable by other users. Also reads
settings files, which other users may have made."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from genlock.errors import StoreError

FILE_MODE = 0o600


def create_file(path: str | Path, mode: int = FILE_MODE, *, folder: int | None = None) -> int:
    """Creates a file and returns its descriptor. `FileExistsError` if the name exists, even as a
    link."""
    fd = os.open(
        path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder
    )
    with suppress(OSError):  # a filesystem without permissions
        os.fchmod(fd, mode)  # the process's umask may have removed some bits
    return fd


def read_regular(path: Path, *, follow: bool = True, most: int = -1) -> bytes:
    """Reads a file, or its first `most` bytes. `OSError` if it is not a regular file: reading a
    pipe would never end. Without `follow`, a symbolic link is an `OSError` too."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "this is no regular file", str(path))
        return file.read(most)


def write_private(path: Path, text: str) -> None:
    """Replaces the file, or what it links to; mode 0600, its folder made 0700 if it is missing."""
    import tempfile  # here: most calls of the command line write none

    path = Path(os.path.realpath(path))
    try:
        make_private_folder(path.parent)
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # made 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None


def make_private_folder(folder: Path) -> None:
    """Creates the folder and its missing parents for the user alone: a user who can write to a
    parent could replace the content."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(0o700, exist_ok=True)
