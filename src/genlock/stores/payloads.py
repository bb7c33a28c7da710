"""Payloads in a folder, one file each; or nowhere, for stores that have no room for them.

Both for any store to use; objects.py says where a URL wants them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from genlock.errors import BadArgument, OverLimit, ResultNotFound, StoreReadOnly
from genlock.failpoints import hit
from genlock.store import Key
from genlock.stores.files import make_folder, os_errors_translated, sync_folder

ABANDONED_SECONDS = 3600.0
"""After so long nobody is still writing a file that has no name yet."""


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What filesystems say in which a file has one name only."""


class FolderPayloads:
    """`genlock.store.Payloads` in a folder. A file appears under its name whole or not at all, and never changes."""

    def __init__(self, folder: Path, *, read_only: bool = False, check: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._unfinished = folder / "unfinished"
        self._read_only = read_only
        self._check = check

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Durable on return; what is there stays."""
        self._may_write()
        path = self._path(key, digest)
        with os_errors_translated(path):
            make_folder(path.parent)
            if not path.exists():
                self._write(path, data)
            # Also for what another has just put: its name may not be durable yet, and we are about to say that it is.
            sync_folder(path.parent)
        hit("folder.payload.done")

    def _write(self, path: Path, data: bytes) -> None:
        make_folder(self._unfinished)
        unfinished = self._unfinished / f"{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with unfinished.open("xb", buffering=0) as file:
                _write_all(file.fileno(), data)
                os.fsync(file.fileno())
                self._tidy(os.fstat(file.fileno()).st_mtime)
            hit("folder.payload.written")
            _give_name(unfinished, path)
            hit("folder.payload.linked")
        finally:
            unfinished.unlink(missing_ok=True)

    def _tidy(self, now: float) -> None:
        """Removes what killed processes left. What cannot be removed stays: it may be another user's, or have come with a share."""
        for file in self._unfinished.iterdir():
            with suppress(OSError):
                if now - file.stat().st_mtime > ABANDONED_SECONDS:
                    file.unlink()

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        self._check()
        path = self._path(key, digest)
        with os_errors_translated(path):
            try:
                return path.open("rb")
            except FileNotFoundError:
                raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}") from None

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        self._may_write()
        path = self._path(key, digest)
        with os_errors_translated(path):
            path.unlink(missing_ok=True)
        hit("folder.payload.dropped")

    def _may_write(self) -> None:
        self._check()
        if self._read_only:
            raise StoreReadOnly(f"{self._folder} was opened for reading")

    def _path(self, key: Key, digest: str) -> Path:
        name = name_of(key, digest)
        return self._folder / name[:2] / name[2:]


class NoPayloads:
    """`genlock.store.Payloads` that refuses: the store has no room for them, and nobody said where else to keep them."""

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Always refused."""
        raise OverLimit(
            f"{len(data)} bytes for {'/'.join(key)} are too many for this store, and its URL names no place for payloads "
            "(payloads=s3://bucket/prefix or payloads=file:///folder): add one, or submit a reference to the result instead"
        )

    def open(self, key: Key, digest: str) -> BinaryIO:
        """There is none."""
        raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}: the store's URL names no place for payloads")

    def drop(self, key: Key, digest: str) -> None:
        """There is nothing to remove."""


def name_of(key: Key, digest: str) -> str:
    """What a payload is called where names are all there is: the digest of its key and content digest."""
    try:
        names = msgspec.json.encode([*key, digest])  # no two lists of names read the same
    except UnicodeEncodeError as error:
        raise BadArgument(f"there is text that cannot be stored ({error})") from error
    from hashlib import sha256

    return sha256(names).hexdigest()


def _give_name(file: Path, path: Path) -> None:
    """It has this name from now on, unless there is one already."""
    try:
        os.link(file, path)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A share, or something else that cannot do it. Whoever comes second replaces the bytes by the same: they are in the name.
        file.replace(path)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
