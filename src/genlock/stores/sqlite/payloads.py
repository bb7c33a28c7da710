"""Payloads in a folder beside the database: one file each, by the digest of its key and content digest."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from genlock.errors import ResultNotFound, StoreReadOnly
from genlock.failpoints import hit
from genlock.store import Key
from genlock.stores.sqlite.faults import text_fault_of, translated
from genlock.stores.sqlite.filesystem import make_folder, sync_folder

ABANDONED_SECONDS = 3600.0
"""After so long nobody is still writing a file that has no name yet."""


class FolderPayloads:
    """`genlock.store.Payloads` of one store. A file appears under its name whole or not at all, and never changes."""

    def __init__(self, folder: Path, *, read_only: bool, check: Callable[[], None]) -> None:
        self._folder = folder
        self._unfinished = folder / "unfinished"
        self._read_only = read_only
        self._check = check

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Durable on return; what is there stays."""
        self._may_write()
        path = self._path(key, digest)
        with translated(path):
            make_folder(path.parent)
            if not path.exists():
                self._write(path, data)
            # Also for what another has just put: its name may not be durable yet, and we are about to say that it is.
            sync_folder(path.parent)
        hit("sqlite.payload.done")

    def _write(self, path: Path, data: bytes) -> None:
        make_folder(self._unfinished)
        unfinished = self._unfinished / f"{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with unfinished.open("xb", buffering=0) as file:
                _write_all(file.fileno(), data)
                os.fsync(file.fileno())
                self._tidy(os.fstat(file.fileno()).st_mtime)
            hit("sqlite.payload.written")
            with suppress(FileExistsError):
                os.link(unfinished, path)
            hit("sqlite.payload.linked")
        finally:
            unfinished.unlink(missing_ok=True)

    def _tidy(self, now: float) -> None:
        """Removes what killed processes left."""
        for file in self._unfinished.iterdir():
            with suppress(FileNotFoundError):
                if now - file.stat().st_mtime > ABANDONED_SECONDS:
                    file.unlink()

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        self._check()
        path = self._path(key, digest)
        with translated(path):
            try:
                return path.open("rb")
            except FileNotFoundError:
                raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}") from None

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        self._may_write()
        path = self._path(key, digest)
        with translated(path):
            path.unlink(missing_ok=True)
        hit("sqlite.payload.dropped")

    def _may_write(self) -> None:
        self._check()
        if self._read_only:
            raise StoreReadOnly(f"{self._folder} was opened for reading")

    def _path(self, key: Key, digest: str) -> Path:
        try:
            names = msgspec.json.encode([*key, digest])  # no two lists of names read the same
        except UnicodeEncodeError as error:
            raise text_fault_of(error, self._folder) from error
        from hashlib import sha256

        name = sha256(names).hexdigest()
        return self._folder / name[:2] / name[2:]


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
