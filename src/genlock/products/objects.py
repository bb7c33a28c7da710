"""What an area is kept in: named objects, in a folder or in a bucket.

An object is there whole or not at all. `replace` is the one conditional write: it puts an object
only if what is there is still what was read. Everything else may overwrite.

- **A folder**: no name leads through a symbolic link, since whoever writes drafts there could have
  put one. Files are 0600 and folders 0700. `replace` holds a lock on a file of its own (flock), and
  a rename makes the new object visible.
- **A bucket**: `replace` is `If-Match` on the entity tag, or `If-None-Match: *`. A store without
  conditional writes says so at the first promotion.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, cast

from genlock.core.products_url import AreaAddress
from genlock.errors import BadArgument, ResultNotFound, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.files import (
    FILE_MODE,
    FOLDER_MODE,
    create_file,
    make_folder,
    open_file,
    opened_folder,
    os_errors_translated,
    refuse_link,
)
from genlock.stores.objects import bucket_errors, check_driver, open_bucket

PIECE: Final = 8 * 1024 * 1024
_UNFINISHED: Final = ".unfinished"
_LOCK: Final = ".lock"
_DEEPEST: Final = 280
"""Folders above an object: a path of a product has at most 256 parts."""
_ABANDONED_SECONDS: Final = 3600.0
_SETTING: Final = "the policy products"


class Listed(NamedTuple):
    """An object in a list."""

    name: str
    size: int
    modified: datetime


class Versioned(NamedTuple):
    """A small object as it was read."""

    data: bytes
    version: Any
    """For `replace`."""


class Readable(Protocol):
    """What bytes come from."""

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; none at the end."""


class Objects(Protocol):
    """Named objects. Names are parts of plain characters, with `/` between them."""

    where: str

    def put(self, name: str, source: Readable) -> None:
        """Writes an object, in place of what may be there. Durable on return."""

    def open(self, name: str) -> BinaryIO | None:
        """A reader; None if there is no such object."""

    def read(self, name: str) -> Versioned | None:
        """A small object with its version; None if there is none."""

    def replace(self, name: str, data: bytes, before: Versioned | None) -> bool:
        """Writes a small object if it is still as it was before (None: not there); False if it is
        not."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """The objects below this prefix, which ends at a `/`."""

    def delete(self, name: str) -> None:
        """Removes an object; absent is fine."""


def open_objects(address: AreaAddress) -> Objects:
    """What lies at this address."""
    if address.scheme == "file":
        return FolderObjects(Path(os.path.realpath(address.path)))  # the user may name a link
    return BucketObjects(address)


class FolderObjects:
    """Objects in a folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self.where = f"file://{folder}"
        self._folder = folder

    def put(self, name: str, source: Readable) -> None:
        """Writes an object, in place of what may be there. Durable on return."""
        with os_errors_translated(self._folder / name), self._above(name, make=True) as above:
            self._write(above, name, source)

    def open(self, name: str) -> BinaryIO | None:
        """A reader; None if there is no such object."""
        path = self._folder / name
        with os_errors_translated(path):
            try:
                with self._above(name) as above:
                    fd = open_file(path.name, os.O_RDONLY | os.O_NONBLOCK, folder=above)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError:
                refuse_link(path)
                raise
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                return None
            return os.fdopen(fd, "rb")

    def read(self, name: str) -> Versioned | None:
        """A small object with its version; None if there is none."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            data = file.read()
        return Versioned(data, data)

    def replace(self, name: str, data: bytes, before: Versioned | None) -> bool:
        """Writes a small object if it is still as it was before."""
        with (
            os_errors_translated(self._folder / name),
            self._above(name, make=True) as above,
            self._locked(),
        ):
            if self.read(name) != before:
                return False
            self._write(above, name, io.BytesIO(data))
        hit("products.replaced")
        return True

    def list(self, prefix: str) -> Iterator[Listed]:
        """The objects below this prefix."""
        with os_errors_translated(self._folder / prefix):
            try:
                with self._above(prefix + "x") as above:
                    found = list(_listed(above, prefix))
            except (FileNotFoundError, NotADirectoryError):
                found = []
        yield from found

    def delete(self, name: str) -> None:
        """Removes an object, and the folders that are empty without it."""
        path = self._folder / name
        with os_errors_translated(path):
            with suppress(FileNotFoundError), self._above(name) as above:
                os.unlink(path.name, dir_fd=above)
            for folder in list(Path(name).parents)[:-2]:
                try:
                    with self._above(str(folder)) as above:
                        os.rmdir(folder.name, dir_fd=above)
                except OSError:
                    return  # somebody has put something there, or has removed it too

    @contextmanager
    def _above(self, name: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder in which an object is. No part of its name is a link."""
        mode = FOLDER_MODE if make else None
        with ExitStack() as opened:
            if make:
                make_folder(self._folder)
            path = self._folder
            folder = opened.enter_context(opened_folder(path))
            for part in Path(name).parts[:-1]:
                path /= part
                folder = opened.enter_context(opened_folder(path, within=folder, make=mode))
            yield folder

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._above(_LOCK) as root:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(_LOCK, flags, FILE_MODE, dir_fd=root)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)

    def _write(self, above: int, name: str, source: Readable) -> None:
        own = f"{os.getpid()}-{os.urandom(8).hex()}"
        with self._above(f"{_UNFINISHED}/{own}", make=True) as unfinished:
            try:
                fd = create_file(own, FILE_MODE, folder=unfinished)
                with os.fdopen(fd, "wb") as file:
                    while piece := source.read(PIECE):
                        file.write(piece)
                    file.flush()
                    os.fsync(fd)
                    _tidy(unfinished, os.fstat(fd).st_mtime)
                hit("products.written")
                try:
                    os.replace(own, Path(name).name, src_dir_fd=unfinished, dst_dir_fd=above)
                except IsADirectoryError:
                    raise BadArgument(
                        f"{name} is a folder already: there are products below it"
                    ) from None
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(own, dir_fd=unfinished)
        os.fsync(above)


def _listed(folder: int, prefix: str) -> Iterator[Listed]:
    """The files below an open folder. Links, what else is no file, and what lies deeper than any
    object are passed over."""
    if prefix.count("/") > _DEEPEST:
        return
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        with suppress(FileNotFoundError):  # it has just been removed
            status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                below = os.open(
                    entry.name,
                    os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                    dir_fd=folder,
                )
                try:
                    yield from _listed(below, f"{prefix}{entry.name}/")
                finally:
                    os.close(below)
            elif stat.S_ISREG(status.st_mode):
                modified = modified_at(status.st_mtime)
                yield Listed(prefix + entry.name, status.st_size, modified)


def modified_at(seconds: float) -> datetime:
    """A file's time. Beyond the calendar it is the last instant there is: the file is never old."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def _tidy(unfinished: int, now: float) -> None:
    """Removes what killed processes left long ago."""
    for name in os.listdir(unfinished):
        with suppress(OSError):
            modified = os.stat(name, dir_fd=unfinished, follow_symlinks=False).st_mtime
            if now - modified > _ABANDONED_SECONDS:
                os.unlink(name, dir_fd=unfinished)


class BucketObjects:
    """Objects in a bucket."""

    def __init__(self, address: AreaAddress) -> None:
        self.where = f"{address.scheme}://{address.bucket}/{address.path}"
        self._bucket = address.bucket
        self._store: Any = _client(address)

    def put(self, name: str, source: Readable) -> None:
        """Writes an object, in place of what may be there."""
        import obstore

        pieces = iter(lambda: source.read(PIECE), b"")
        with self._errors():
            obstore.put(self._store, name, pieces, chunk_size=PIECE)
        hit("products.written")

    def open(self, name: str) -> BinaryIO | None:
        """A reader; None if there is no such object."""
        import obstore

        try:
            with self._errors(name):
                found = obstore.get(self._store, name)
        except ResultNotFound:
            return None
        return cast(BinaryIO, io.BufferedReader(_Stream(found, self), PIECE))

    def read(self, name: str) -> Versioned | None:
        """A small object with its version; None if there is none."""
        import obstore

        try:
            with self._errors(name):
                found = obstore.get(self._store, name)
                meta = found.meta
                kept = {key: meta.get(key) for key in ("e_tag", "version")}
                return Versioned(
                    bytes(found.bytes()), {key: value for key, value in kept.items() if value}
                )
        except ResultNotFound:
            return None

    def replace(self, name: str, data: bytes, before: Versioned | None) -> bool:
        """Writes a small object if it is still as it was before.

        The driver does not repeat a conditional write. Whoever gets no answer reads again."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

        mode: Any = "create" if before is None else before.version
        with self._errors(name):
            try:
                obstore.put(self._store, name, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            except (NotSupportedError, NotImplementedError) as error:
                raise StoreUnavailable(
                    f"{self.where} has no conditional writes (If-Match), and without them nothing "
                    "can be promoted; use a store that has"
                ) from error
        hit("products.replaced")
        return True

    def list(self, prefix: str) -> Iterator[Listed]:
        """The objects below this prefix."""
        import obstore

        with self._errors():
            for page in obstore.list(self._store, prefix.rstrip("/")):
                for each in page:
                    yield Listed(each["path"], each["size"], each["last_modified"])

    def delete(self, name: str) -> None:
        """Removes an object; absent is fine."""
        import obstore

        with suppress(ResultNotFound), self._errors(name):
            obstore.delete(self._store, name)

    def _errors(self, name: str | None = None) -> Any:
        missing = None if name is None else f"{self.where} has no {name}"
        return bucket_errors(self._bucket, self.where, missing, setting=_SETTING)


class _Stream(io.RawIOBase):
    """An object's bytes as they come, so that none has to be in memory whole."""

    def __init__(self, found: Any, objects: BucketObjects) -> None:
        self._pieces = iter(found.stream(min_chunk_size=PIECE))
        self._objects = objects
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._piece:
            with self._objects._errors():
                piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(bytes(piece))
        part, self._piece = self._piece[: len(buffer)], self._piece[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _client(address: AreaAddress) -> Any:
    what = f"{address.scheme}://…"
    if address.scheme == "s3":
        settings = dict(address.settings)
        region, endpoint = settings.get("region"), settings.get("endpoint_url")
        return open_bucket(address.bucket, address.path, region, endpoint, what)
    check_driver(what)
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore

    kind: Any = GCSStore if address.scheme == "gs" else AzureStore
    try:
        return kind(address.bucket, prefix=address.path or None)
    except (BaseError, ValueError) as error:
        why = str(error).partition("\n")[0].strip()
        raise BadArgument(f"there can be no client for {address.scheme}://: {why}") from error
