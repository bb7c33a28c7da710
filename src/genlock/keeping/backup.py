"""A consistent copy of a live SQLite store: its file, and beside it the payloads that it refers to."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from genlock.core.keys import Key, payload_task
from genlock.engine.payloads import missing_payloads
from genlock.errors import BadArgument, NotAllowed
from genlock.failpoints import hit
from genlock.keeping.files import check_target, payload_folder, payloads_beside
from genlock.stores.files import sync_folder
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite.backup import Progress, copy_file, copy_payloads, user_of
from genlock.stores.sqlite.faults import translated
from genlock.stores.unfinished import unfinished

_TRIES = 20


class Backup(Struct, frozen=True):
    """What was copied."""

    source: str
    target: str
    bytes: int
    epoch: int
    payloads: int
    """How many files lie in the folder of payloads beside it."""
    missing_payloads: tuple[str, ...] = ()
    """Results whose bytes were not there to be copied, or not what was submitted, by task and digest."""


def backup(source: Path, target: Path, *, force: bool = False, progress: Progress | None = None) -> Backup:
    """Copies the store at `source` to the file `target`, and its payloads to `<target>.payloads`. The file appears last, and whole."""
    _check_target(source, target, force=force)
    with translated(target), unfinished(target) as folder:
        staged = folder / "copy.db"
        epoch, missing = _copy(source, staged, target, progress)
        hit("backup.before_name")
        staged.replace(target)
        sync_folder(target.parent)
        hit("backup.named")
    count = sum(1 for _ in payload_folder(target).glob("[0-9a-f][0-9a-f]/*"))
    names = tuple(f"{key.tenant}/{key.project} {payload_task(key)} {digest}" for key, digest in missing)
    return Backup(str(source), str(target), target.stat().st_size, epoch, count, names)


def _check_target(source: Path, target: Path, *, force: bool) -> None:
    """An error if nothing may be written there."""
    if target.exists() and target.samefile(source):
        raise BadArgument(f"{target} is the store itself; name another file")
    check_target(target, "genlock-backup.db", force=force)
    if not target.exists():
        return
    log = target.with_name(target.name + "-wal")
    if user_of(target) is not None or (log.exists() and log.stat().st_size):
        raise NotAllowed(f"{target} is in use as a store, which a backup never replaces; name another file")


def _copy(source: Path, staged: Path, target: Path, progress: Progress | None) -> tuple[int, list[tuple[Key, str]]]:
    """The epoch of the copy, and what it lacks.

    A payload is durable before any record refers to it, so whatever the copy refers to was there when it was made. It may be discarded
    before we come to it; then a new copy does not refer to it any more. What a second copy misses as well was lost before.
    """
    lacking: list[tuple[Key, str]] = []
    epoch = 0
    copy_payloads(payload_folder(source), payload_folder(target))  # most of them, so that little is left to do after the copy
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
