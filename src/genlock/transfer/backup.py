"""A backup: a consistent copy of a live SQLite store, its file and the payloads that it refers to.

Also handles the files of a store and of an export, and checks that payloads are unchanged since
their submission.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from genlock.core.keys import Key, payload_task
from genlock.engine.scan import missing_payloads, payloads_of
from genlock.errors import BadArgument, NotAllowed, ResultNotFound
from genlock.failpoints import hit
from genlock.store import Payloads, Store
from genlock.stores.files import create_file, sync_folder, unfinished
from genlock.stores.payloads import FolderPayloads
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite.backup import Progress, copy_file, copy_payloads, user_of
from genlock.stores.sqlite.errors import translated

_DATABASE = b"SQLite format 3\0"
"""The first bytes of every SQLite database."""


def payload_folder(path: Path) -> Path:
    """Returns the folder of this store's payloads."""
    return Path(f"{path}.payloads")


def payloads_beside(path: Path) -> Payloads:
    """Opens the payloads of this store for reading, even if its file is missing."""
    return FolderPayloads(payload_folder(path), read_only=True, beside=path)


def check_target(target: Path, example: str, *, force: bool) -> None:
    """Raises an error if a file of this name may not be written. `example` is a name for a file in
    a folder."""
    with translated(target):
        if target.is_dir():
            raise BadArgument(
                f"{target} is a folder; name a file in it, for example {target / example}"
            )
        if not target.parent.is_dir():
            raise BadArgument(f"there is no folder {target.parent}; make it, or name another")
        if not target.exists():
            return
        if not target.is_file():
            raise BadArgument(
                f"{target} is no ordinary file, and would be replaced by one; name another"
            )
        if not force:
            raise NotAllowed(f"{target} exists; --force replaces it")


def refuse_database(target: Path) -> None:
    """Raises an error if a database has this name: an export cannot be turned back into a database.

    Call it before a store is opened: closing a file drops all locks of its process on it.
    """
    with translated(target):
        if not target.is_file():
            return
        with target.open("rb") as file:
            if file.read(len(_DATABASE)) == _DATABASE:
                raise NotAllowed(
                    f"{target} is a database, which an export never replaces; name another file"
                )


def write_lines(target: Path, lines: Iterable[bytes]) -> None:
    """Writes the lines to a file, which appears when it is complete and durable."""
    with translated(target), unfinished(target) as folder:
        written = folder / "lines"
        with os.fdopen(create_file(written), "wb") as file:
            for line in lines:
                file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        hit("export.before_name")
        written.replace(target)
        sync_folder(target.parent)


# Payloads as they were submitted

_PIECE = 1024 * 1024

PayloadProgress = Callable[[int, int], None]
"""Called with the number of payloads done, and of all payloads."""


class Lost(NamedTuple):
    """A payload that a record refers to and that cannot be read."""

    key: Key
    digest: str
    damaged: bool
    """Do the bytes differ from the submitted ones? Otherwise they are missing."""

    @property
    def name(self) -> str:
        """Its task and digest."""
        return f"{self.key.tenant}/{self.key.project} {payload_task(self.key)} {self.digest}"

    @property
    def what(self) -> str:
        """The fault."""
        return (
            f"its payload {self.digest} is "
            f"{'not what was submitted' if self.damaged else 'missing'}"
        )


def lost_payloads(
    store: Store, *, progress: PayloadProgress | None = None, among: Collection[Lost] | None = None
) -> list[Lost]:
    """Returns the payloads that the store refers to and that cannot be read; only `among` these, if
    given."""
    referred = [*dict.fromkeys(payloads_of(store))]
    if among is not None:
        wanted = {lost[:2] for lost in among}
        referred = [each for each in referred if each in wanted]
    return lost_of(store.payloads(), referred, progress)


def lost_of(
    payloads: Payloads,
    referred: Collection[tuple[Key, str]],
    progress: PayloadProgress | None = None,
) -> list[Lost]:
    """Returns those of the payloads, by key and digest, that are missing or differ from the
    submitted bytes."""
    lost = []
    for count, (key, digest) in enumerate(referred, 1):
        found = _digest(payloads, key, digest)
        if found != digest:
            lost.append(Lost(key, digest, found is not None))
        if progress is not None:
            progress(count, len(referred))
    return lost


def _digest(payloads: Payloads, key: Key, digest: str) -> str | None:
    """Returns the digest of the bytes; None if the payload is missing."""
    try:
        file = payloads.open(key, digest)
    except ResultNotFound:
        return None
    seen = sha256()
    with file:
        try:
            while piece := file.read(_PIECE):
                seen.update(piece)
        except ResultNotFound:
            return None  # discarded while it was read
        except OSError:
            return ""  # the disk cannot read them
    return seen.hexdigest()


_TRIES = 20


class Backup(Struct, frozen=True):
    """The result of a backup."""

    source: str
    target: str
    bytes: int
    epoch: int
    payloads: int
    """The number of files in its folder of payloads."""
    missing_payloads: tuple[str, ...] = ()
    """Results whose bytes are missing, or differ from what was submitted, by task and digest."""


def backup(
    source: Path, target: Path, *, force: bool = False, progress: Progress | None = None
) -> Backup:
    """Copies the store at `source` to the file `target`, and its payloads to `<target>.payloads`.
    The file appears last, and whole."""
    _check_target(source, target, force=force)
    with translated(target), unfinished(target) as folder:
        staged = folder / "copy.db"
        epoch, missing = _copy(source, staged, target, progress)
        hit("backup.before_name")
        staged.replace(target)
        sync_folder(target.parent)
        hit("backup.named")
    count = sum(1 for _ in payload_folder(target).glob("[0-9a-f][0-9a-f]/*"))
    names = tuple(
        f"{key.tenant}/{key.project} {payload_task(key)} {digest}" for key, digest in missing
    )
    return Backup(str(source), str(target), target.stat().st_size, epoch, count, names)


def _check_target(source: Path, target: Path, *, force: bool) -> None:
    """An error if the backup may not be written there."""
    if target.exists() and target.samefile(source):
        raise BadArgument(f"{target} is the store itself; name another file")
    check_target(target, "genlock-backup.db", force=force)
    if not target.exists():
        return
    log = target.with_name(target.name + "-wal")
    if user_of(target) is not None or (log.exists() and log.stat().st_size):
        raise NotAllowed(
            f"{target} is in use as a store, which a backup never replaces; name another file"
        )


def _copy(
    source: Path, staged: Path, target: Path, progress: Progress | None
) -> tuple[int, list[tuple[Key, str]]]:
    """Returns the epoch of the copy, and the payloads that it lacks.

    A payload is durable before any record refers to it, so every payload that the copy refers to
    was there when the copy was made. It may be discarded before we copy it; then a new copy does
    not refer to it. A payload that a second copy misses, too, was lost before.
    """
    lacking: list[tuple[Key, str]] = []
    epoch = 0
    # Most payloads now, so that little is left to do after the copy.
    copy_payloads(payload_folder(source), payload_folder(target))
    for _ in range(_TRIES):
        copy_file(source, staged, progress)
        hit("backup.between")
        copy_payloads(payload_folder(source), payload_folder(target))
        store = SQLiteStore(staged, read_only=True)
        try:
            epoch = store.load([]).epoch
            missed = missing_payloads(store, payloads_beside(target), read=True)
        finally:
            store.close()
        if set(missed) <= set(lacking):  # also if there are none
            return epoch, missed
        lacking = missed
    return epoch, lacking
