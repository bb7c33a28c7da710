"""Payloads in a folder, one file each; in a table of an SQL server; or nowhere, for stores that
have no room for them. objects.py says where a URL wants them.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from genlock.errors import BadArgument, OverLimit, ResultNotFound, StoreReadOnly
from genlock.failpoints import hit
from genlock.store import Key, payload_name
from genlock.stores.connection_pool import Refused
from genlock.stores.files import (
    FILE_MODE,
    create_file,
    folder_mode,
    make_folder,
    mode_like,
    open_file,
    opened_folder,
    os_errors_translated,
    refuse_link,
)

NAME = re.compile("[0-9a-f]{64}")
PIECE = 256 * 1024
"""Bytes of a payload in one row of a table."""

ABANDONED_SECONDS = 3600.0
"""An unnamed file this old is abandoned: no process is still writing it."""


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What filesystems say in which a file has one name only."""


class FolderPayloads:
    """`genlock.store.Payloads` in a folder. A file appears under its name whole or not at all, and
    never changes."""

    def __init__(
        self,
        folder: Path,
        *,
        read_only: bool = False,
        check: Callable[[], None] = lambda: None,
        beside: Path | None = None,
    ) -> None:
        """New files have the permissions of the file `beside` them, if there is one."""
        self._folder = folder
        self._unfinished = folder / "unfinished"
        self._read_only = read_only
        self._check = check
        self._beside = beside

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Stores the payload. Durable on return; an existing one stays."""
        self._may_write()
        path = self._path(key, digest)
        with os_errors_translated(path):
            mode = FILE_MODE if self._beside is None else mode_like(self._beside)
            make_folder(self._folder.parent)
            with (
                self._opened(make=folder_mode(mode)) as root,
                opened_folder(path.parent, within=root, make=folder_mode(mode)) as folder,
            ):
                refuse_link(path)
                if not _is_there(path.name, folder):
                    with opened_folder(
                        self._unfinished, within=root, make=folder_mode(mode)
                    ) as unfinished:
                        _write(path.name, data, folder, unfinished, mode)
                # Also for what another has just put: its name may not be durable yet, and we are
                # about to say that it is.
                os.fsync(folder)
        hit("folder.payload.done")

    def _opened(self, *, make: int | None = None) -> AbstractContextManager[int]:
        return opened_folder(self._folder, make=make)

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        self._check()
        path = self._path(key, digest)
        with os_errors_translated(path):
            try:
                with self._opened() as root, opened_folder(path.parent, within=root) as folder:
                    return os.fdopen(_open(path, folder), "rb")
            except FileNotFoundError:
                raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}") from None

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        self._may_write()
        path = self._path(key, digest)
        absent = suppress(FileNotFoundError)
        with (
            os_errors_translated(path),
            absent,
            self._opened() as root,
            opened_folder(path.parent, within=root) as folder,
        ):
            os.unlink(path.name, dir_fd=folder)
        hit("folder.payload.dropped")

    def names(self) -> Iterator[str]:
        """Yields the names of all payloads. Other files in the folder are ignored."""
        self._check()
        with os_errors_translated(self._folder):
            for file in self._folder.glob("??/*"):
                if NAME.fullmatch(file.parent.name + file.name):
                    yield file.parent.name + file.name

    def _may_write(self) -> None:
        self._check()
        if self._read_only:
            raise StoreReadOnly(f"{self._folder} was opened for reading")

    def _path(self, key: Key, digest: str) -> Path:
        name = name_of(key, digest)
        return self._folder / name[:2] / name[2:]


class NoPayloads:
    """A `genlock.store.Payloads` that refuses: the store has no room for payloads, and no other
    place was configured."""

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Always refused."""
        raise OverLimit(
            f"{len(data)} bytes for {'/'.join(key)} are too many for this store, and its URL names "
            "no place for payloads (payloads=s3://bucket/prefix or payloads=file:///folder): add "
            "one, or submit a reference to the result instead"
        )

    def open(self, key: Key, digest: str) -> BinaryIO:
        """There is none."""
        raise ResultNotFound(
            f"{'/'.join(key)} has no payload {digest}: the store's URL names no place for payloads"
        )

    def drop(self, key: Key, digest: str) -> None:
        """There is nothing to remove."""

    def names(self) -> tuple[str, ...]:
        """There are none."""
        return ()


class Enter(Protocol):
    """`genlock.stores.server.ServerStore._entered`."""

    def __call__(self, *, writes: bool = False) -> AbstractContextManager[Any]: ...


class TablePayloads(ABC):
    """`genlock.store.Payloads` in a table, in pieces, so that none has to be in memory whole on
    its way out. A payload is there whole or not at all, and never changes."""

    def __init__(self, store: str, enter: Enter, queries: Mapping[str, Any]) -> None:
        """`store` is how the failpoints begin."""
        self._store = store
        self._enter = enter
        self._queries = queries

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Stores the payload. Durable on return; an existing one stays."""
        with self._enter(writes=True) as connection:
            connection.command("START TRANSACTION")
            try:
                self._add(connection, _payload_key(key, digest), data)
                hit(f"{self._store}.payload.written")
                connection.command("COMMIT")
            except Refused:
                connection.command("ROLLBACK")
                raise
        hit(f"{self._store}.payload.done")

    @abstractmethod
    def _add(self, connection: Any, name: bytes, data: bytes) -> None:
        """Adds the payload and its pieces, unless it is there."""

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        what = f"{'/'.join(key)} has no payload {digest}"
        with self._enter() as connection:
            rows = connection.rows(self._queries["find_payload"], name=_payload_key(key, digest))
        if not rows:
            raise ResultNotFound(what)
        ((number, size),) = rows
        return reader_of(lambda at: self._piece(number, at + 1, what), size, PIECE)

    def _piece(self, payload: int, number: int, what: str) -> bytes:
        with self._enter() as connection:
            rows = connection.rows(self._queries["read_piece"], payload=payload, number=number)
        for (data,) in rows:
            return cast(bytes, data)
        raise ResultNotFound(f"{what} any more: it was dropped while it was read")

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        with self._enter(writes=True) as connection:
            connection.rows(self._queries["drop_payload"], name=_payload_key(key, digest))
        hit(f"{self._store}.payload.dropped")

    def names(self) -> list[str]:
        """Returns the names of all payloads."""
        with self._enter() as connection:
            rows = connection.rows(self._queries["payload_names"])
        return [name.hex() for (name,) in rows]


def _payload_key(key: Key, digest: str) -> bytes:
    return bytes.fromhex(payload_name(key, digest))


def reader_of(fetch: Callable[[int], bytes], size: int, piece: int) -> BinaryIO:
    """Reads `size` bytes; `fetch` gives the piece of that number, from 0 on, all but the last of
    `piece` bytes."""
    return cast(BinaryIO, io.BufferedReader(_Pieces(fetch, size, piece), piece))


class _Pieces(io.RawIOBase):
    def __init__(self, fetch: Callable[[int], bytes], size: int, piece: int) -> None:
        self._fetch = fetch
        self._size = size
        self._length = piece
        self._at = 0
        self._number = -1
        self._piece = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(
            0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        )
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        number, offset = divmod(self._at, self._length)
        if self._number != number:
            self._piece = self._fetch(number)
            self._number = number
        part = self._piece[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def name_of(key: Key, digest: str) -> str:
    """`payload_name`, or `BadArgument` for text that has none."""
    try:
        return payload_name(key, digest)
    except UnicodeEncodeError as error:
        raise BadArgument(f"there is text that cannot be stored ({error})") from error


def _is_there(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _open(path: Path, folder: int) -> int:
    try:
        return open_file(path.name, os.O_RDONLY, folder=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        raise


def _write(name: str, data: bytes, folder: int, unfinished: int, mode: int) -> None:
    """A file of this name in `folder`, whole or not at all."""
    own = f"{os.getpid()}-{os.urandom(8).hex()}"
    try:
        fd = create_file(own, mode, folder=unfinished)
        try:
            _write_all(fd, data)
            os.fsync(fd)
            _tidy(unfinished, os.fstat(fd).st_mtime)
        finally:
            os.close(fd)
        hit("folder.payload.written")
        _give_name(own, unfinished, name, folder)
        hit("folder.payload.linked")
    finally:
        with suppress(FileNotFoundError):
            os.unlink(own, dir_fd=unfinished)


def _tidy(unfinished: int, now: float) -> None:
    """Removes what killed processes left. What cannot be removed stays: it may be another user's,
    or have come with a share."""
    for name in os.listdir(unfinished):
        with suppress(OSError):
            if (
                now - os.stat(name, dir_fd=unfinished, follow_symlinks=False).st_mtime
                > ABANDONED_SECONDS
            ):
                os.unlink(name, dir_fd=unfinished)


def _give_name(own: str, unfinished: int, name: str, folder: int) -> None:
    """It has this name from now on, unless there is one already."""
    try:
        os.link(own, name, src_dir_fd=unfinished, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A network share or another filesystem without this operation. A second writer replaces the
        # bytes with the same bytes: the name contains their digest.
        os.replace(own, name, src_dir_fd=unfinished, dst_dir_fd=folder)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
