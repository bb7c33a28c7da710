"""A backup in the store's place.

1. The backup is copied beside the store, and the copy is checked by replay, its payloads by their digests. Nothing is changed if it
   has a fault.
2. The store is opened for ourselves alone, which is refused while any process has it open, idle or stopped.
3. The copy's epoch is raised above all that were: every cursor is told that it is lost, and generations go on above
   epoch × 1,000,000, so that none is granted twice, whatever was granted after the backup.
4. What is replaced is kept aside, `<file>.before-epoch-<n>`, with its payloads.
5. The payloads are put beside the store, and read there: one that the store had and that was damaged is replaced by the backup's.
6. The copy is written into the store in one transaction.

Whoever kills this at any step leaves the old store or the new one, whole; what is left beside it is removed by the next restore.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from msgspec import Struct

from genlock.core.keys import Key, payload_task
from genlock.engine.check import Fault, check
from genlock.engine.payloads import payloads_of
from genlock.errors import NotAllowed, NotFound, StoreCorrupt, StoreForeign, StoreUnavailable
from genlock.failpoints import hit
from genlock.keeping.files import payload_folder, payloads_beside
from genlock.keeping.payloads import Lost, lost_of
from genlock.stores.files import make_folder, sync_folder
from genlock.stores.payloads import FolderPayloads
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite.backup import (
    Progress,
    StoreInUse,
    alone,
    copy_database,
    copy_file,
    copy_payloads,
    epoch_of,
    overwrite,
    raise_epoch,
    user_of,
)
from genlock.stores.sqlite.faults import translated

_SHOWN = 5


class Restored(Struct, frozen=True):
    """What was put in place."""

    source: str
    target: str
    epoch: int
    kept_aside: str | None
    """The store that was there before, as a file of its own; None if there was none."""
    records: int
    missing_payloads: tuple[str, ...] = ()
    """Results whose bytes are not there, or not what was submitted, by task and digest."""


class _Backup(Struct, frozen=True):
    """What is to be restored."""

    path: Path
    records: int
    epoch: int
    payloads: tuple[tuple[Key, str], ...]
    """All that it refers to and has, by key and digest."""
    lost: tuple[Lost, ...]


def restore(source: Path, target: Path, *, force: bool = False, incomplete: bool = False, progress: Progress | None = None) -> Restored:
    """Puts the backup `source` in the place of the store `target`.

    With `force` also if there is one; if `incomplete`, also if the bytes of some results are lost.
    """
    _check_places(source, target, force=force)
    staging = Path(f"{target}.restoring")
    try:
        with translated(target):
            make_folder(target.parent)
            shutil.rmtree(staging, ignore_errors=True)  # of one that was killed
            staging.mkdir()
            staged = staging / "store.db"
            copy_file(source, staged, progress)
            hit("restore.staged")
            backup = _verified(source, staged, incomplete=incomplete)
            epoch, aside = _replace(backup, staged, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    # The store that was there may have had what the backup lacks.
    names = tuple(lost.name for lost in lost_of(payloads_beside(target), [each[:2] for each in backup.lost]))
    return Restored(str(source), str(target), epoch, None if aside is None else str(aside), backup.records, names)


def _check_places(source: Path, target: Path, *, force: bool) -> None:
    if not source.is_file():
        raise NotFound(f"there is no backup {source}; name the file that genlock backup made")
    if not target.exists():
        return
    if target.samefile(source):
        raise NotAllowed(f"{source} is the store itself; name a backup")
    _refuse_users(target)
    if not force:
        raise NotAllowed(f"there is a store at {target}; --force puts the backup in its place and keeps what was there beside it")


def _refuse_users(target: Path) -> None:
    pid = user_of(target)
    if pid is not None:
        raise StoreInUse(f"process {pid} has {target} open: end it, and whatever else works on this store, then restore again")


def _verified(source: Path, staged: Path, *, incomplete: bool) -> _Backup:
    """What the copy holds; an error if that is not what was written."""
    count = 0

    def note(records: int) -> None:
        nonlocal count
        count += records

    store = SQLiteStore(staged, read_only=True)
    try:
        faults = check(store, progress=note)
        referred = [*dict.fromkeys(payloads_of(store))]
        epoch = store.load([]).epoch
    finally:
        store.close()
    if faults:
        raise StoreCorrupt(f"{source} is not whole, and nothing was changed; restore another one:\n{_listed(faults)}")
    lost = lost_of(payloads_beside(source), referred)
    if lost and not incomplete:
        faults = [Fault(f"{each.key.tenant}/{each.key.project} task {payload_task(each.key)}", each.what) for each in lost]
        raise StoreCorrupt(
            f"{source} is whole, but the bytes of results beside it are not, and nothing was changed; restore another one, or by "
            f"--incomplete this one without them:\n{_listed(faults)}"
        )
    gone = {each[:2] for each in lost}
    return _Backup(source, count, epoch, tuple(each for each in referred if each not in gone), tuple(lost))


def _listed(faults: list[Fault]) -> str:
    shown = "\n".join(f"  {fault.where}: {fault.what}" for fault in faults[:_SHOWN])
    return shown + (f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")


def _replace(backup: _Backup, staged: Path, target: Path) -> tuple[int, Path | None]:
    """The new epoch, and where the old store is now."""
    if target.exists():
        try:
            return _overwrite(backup, staged, target)
        except (StoreCorrupt, StoreForeign):
            _refuse_users(target)  # so damaged that SQLite does not know it: then its name is all that can be used
    return _rename(backup, staged, target)


def _overwrite(backup: _Backup, staged: Path, target: Path) -> tuple[int, Path | None]:
    """The way for a store that SQLite can open: the pages go into it, and it stays the same file."""
    with alone(target) as db:
        # From here on this process must not open the file by other means: to close it again would drop the lock.
        epoch = max(backup.epoch, epoch_of(db), *_epochs_aside(target)) + 1
        raise_epoch(staged, epoch)
        hit("restore.raised")
        aside = _aside(target, epoch)
        copy_payloads(payload_folder(target), payload_folder(aside), link=True)
        copy_database(db, aside)
        hit("restore.kept_aside")
        _put_payloads(backup, target)
        hit("restore.payloads")
        overwrite(db, staged)
    hit("restore.closed")
    return epoch, aside


def _rename(backup: _Backup, staged: Path, target: Path) -> tuple[int, Path | None]:
    """The way where there is no store, or a damaged one: the copy gets its name."""
    epoch = max(backup.epoch, *_epochs_aside(target)) + 1
    raise_epoch(staged, epoch)
    hit("restore.raised")
    aside = _aside(target, epoch)
    _put_payloads(backup, target)
    log = Path(f"{target}-wal")
    if log.exists():
        # A log without its file is nobody's, and SQLite would write it into ours.
        log.replace(f"{aside}-wal")
    if not target.exists():
        os.link(staged, target)  # unlike a rename, not over one that was made meanwhile
        sync_folder(target.parent)
        hit("restore.named")
        return epoch, None
    copy_payloads(payload_folder(target), payload_folder(aside), link=True)
    os.link(target, aside)
    sync_folder(target.parent)
    hit("restore.kept_aside")
    staged.replace(target)
    sync_folder(target.parent)
    hit("restore.named")
    return epoch, aside


def _put_payloads(backup: _Backup, target: Path) -> None:
    """The backup's payloads beside the store, each as it was submitted. What has a payload's name already need not be that payload."""
    copy_payloads(payload_folder(backup.path), payload_folder(target))
    damaged = lost_of(payloads_beside(target), backup.payloads)
    if not damaged:
        return
    beside = FolderPayloads(payload_folder(target))
    for each in damaged:
        beside.drop(each.key, each.digest)
    copy_payloads(payload_folder(backup.path), payload_folder(target))
    lost = lost_of(payloads_beside(target), [each[:2] for each in damaged])
    if lost:
        raise StoreUnavailable(f"{lost[0].name} cannot be kept in {payload_folder(target)}: what is read there is not what was written")


def _aside(target: Path, epoch: int) -> Path:
    return Path(f"{target}.before-epoch-{epoch}")


def _epochs_aside(target: Path) -> list[int]:
    """The epochs that were begun by earlier restores, by the names of what they replaced: a damaged store cannot be asked."""
    name = re.compile(re.escape(target.name) + r"\.before-epoch-(\d+)")
    found = [name.fullmatch(file.name) for file in target.parent.iterdir()]
    return [0, *(int(match[1]) for match in found if match)]
