"""Replaces a store by a backup.

1. Copy the backup beside the store. Check the copy by replay, and its payloads by their digests. If
   there is a fault, nothing is changed.
2. Open the store exclusively, which is refused while any process has it open, idle or stopped.
3. Raise the copy's epoch above all earlier ones, to a number made from the time, and give it a new
   birth. So every cursor becomes invalid, and generations continue above epoch × 1,000,000: no
   generation is granted twice, whatever was granted after the backup, or by an unknown restore of
   it (ADR 43).
4. Keep the old store as `<file>.before-epoch-<n>`, with its payloads.
5. Copy the payloads beside the store, and read them there. A damaged payload of the store is
   replaced by the backup's.
6. Write the copy into the store in one transaction.

If the process is killed at any step, either the old store or the new one exists completely. The
next restore removes the leftovers.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from msgspec import Struct

from genlock.core.keys import Key, payload_task
from genlock.engine.replay_check import Fault, check
from genlock.engine.scan import payloads_of
from genlock.errors import NotAllowed, NotFound, StoreCorrupt, StoreForeign, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.epoch_guard import EpochNumber
from genlock.stores.files import (
    FOLDER_MODE,
    make_folder,
    mode_like,
    refuse_links_beside,
    sync_folder,
)
from genlock.stores.payloads import FolderPayloads
from genlock.stores.sqlite import SQLiteStore
from genlock.stores.sqlite.backup import (
    Progress,
    StoreInUse,
    alone,
    begin_history,
    copy_database,
    copy_file,
    copy_payloads,
    epoch_of,
    overwrite,
    user_of,
)
from genlock.stores.sqlite.connections import refuse_foreign_journal
from genlock.stores.sqlite.errors import translated
from genlock.stores.sqlite.write_lock import note_in_lock_file, noted_epoch
from genlock.transfer.backup import Lost, lost_of, payload_folder, payloads_beside

_SHOWN = 5


class Restored(Struct, frozen=True):
    """The result of a restore."""

    source: str
    target: str
    epoch: int
    kept_aside: str | None
    """The file that keeps the old store; None if there was none."""
    records: int
    missing_payloads: tuple[str, ...] = ()
    """Results whose bytes are missing, or differ from what was submitted, by task and digest."""


class _Backup(Struct, frozen=True):
    """The backup to restore."""

    path: Path
    records: int
    payloads: tuple[tuple[Key, str], ...]
    """The payloads that the backup refers to and contains, by key and digest."""
    lost: tuple[Lost, ...]


def restore(
    source: Path,
    target: Path,
    *,
    force: bool = False,
    incomplete: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Replaces the store `target` by the backup `source`.

    `force` allows replacing an existing store, and `incomplete` a backup that lacks bytes of
    results.
    """
    _check_places(source, target, force=force)
    number = EpochNumber()
    staging = Path(f"{target}.restoring")
    try:
        with translated(target):
            make_folder(target.parent)
            shutil.rmtree(staging, ignore_errors=True)  # left by a killed restore
            staging.mkdir(FOLDER_MODE)
            staged = staging / "store.db"
            copy_file(source, staged, progress)
            hit("restore.staged")
            backup = _verified(source, staged, incomplete=incomplete)
            epoch, aside = _replace(backup, staged, target, number)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    # The old store may have had payloads that the backup lacks.
    names = tuple(
        lost.name for lost in lost_of(payloads_beside(target), [each[:2] for each in backup.lost])
    )
    return Restored(
        str(source),
        str(target),
        epoch,
        None if aside is None else str(aside),
        backup.records,
        names,
    )


def _check_places(source: Path, target: Path, *, force: bool) -> None:
    refuse_links_beside(target)
    refuse_foreign_journal(target)
    if not source.is_file():
        raise NotFound(f"there is no backup {source}; name the file that genlock backup made")
    if not target.exists():
        return
    if target.samefile(source):
        raise NotAllowed(f"{source} is the store itself; name a backup")
    _refuse_users(target)
    if not force:
        raise NotAllowed(
            f"there is a store at {target}; --force puts the backup in its place and keeps what "
            "was there beside it"
        )


def _refuse_users(target: Path) -> None:
    pid = user_of(target)
    if pid is not None:
        raise StoreInUse(
            f"process {pid} has {target} open: end it, and whatever else works on this store, then "
            "restore again"
        )


def _verified(source: Path, staged: Path, *, incomplete: bool) -> _Backup:
    """Returns the content of the copy. Raises an error if the copy is damaged."""
    count = 0

    def note(records: int) -> None:
        nonlocal count
        count += records

    store = SQLiteStore(staged, read_only=True)
    try:
        faults = check(store, progress=note)
        referred = [*dict.fromkeys(payloads_of(store))]
    finally:
        store.close()
    if faults:
        raise StoreCorrupt(
            f"{source} is not whole, and nothing was changed; restore another "
            f"one:\n{_listed(faults)}"
        )
    lost = lost_of(payloads_beside(source), referred)
    if lost and not incomplete:
        faults = [
            Fault(f"{each.key.tenant}/{each.key.project} task {payload_task(each.key)}", each.what)
            for each in lost
        ]
        raise StoreCorrupt(
            f"{source} is whole, but the bytes of results beside it are not, and nothing was "
            "changed; restore another one, or by "
            f"--incomplete this one without them:\n{_listed(faults)}"
        )
    gone = {each[:2] for each in lost}
    return _Backup(source, count, tuple(each for each in referred if each not in gone), tuple(lost))


def _listed(faults: list[Fault]) -> str:
    shown = "\n".join(f"  {fault.where}: {fault.what}" for fault in faults[:_SHOWN])
    return shown + (f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")


def _replace(
    backup: _Backup, staged: Path, target: Path, number: EpochNumber
) -> tuple[int, Path | None]:
    """Returns the new epoch, and the file that keeps the old store."""
    if target.exists():
        try:
            return _overwrite(backup, staged, target, number)
        except (StoreCorrupt, StoreForeign):
            _refuse_users(target)  # too damaged for SQLite to open: it gets replaced by name
    return _rename(backup, staged, target, number)


def _overwrite(
    backup: _Backup, staged: Path, target: Path, number: EpochNumber
) -> tuple[int, Path | None]:
    """Writes the pages into a store that SQLite can open, so that the file keeps its inode."""
    with alone(target) as db:
        # From here on this process must not open the file any other way: closing it would drop the
        # lock.
        epoch, note = begin_history(staged, target, number, epoch_of(db), *_epochs_before(target))
        hit("restore.raised")
        aside = _aside(target, epoch)
        copy_payloads(payload_folder(target), payload_folder(aside), link=True)
        copy_database(db, aside)
        hit("restore.kept_aside")
        _put_payloads(backup, target)
        hit("restore.payloads")
        overwrite(db, staged)
        note_in_lock_file(target, note)
    hit("restore.closed")
    return epoch, aside


def _rename(
    backup: _Backup, staged: Path, target: Path, number: EpochNumber
) -> tuple[int, Path | None]:
    """Gives the copy the name of the store, which is missing or damaged."""
    epoch, note = begin_history(staged, staged, number, *_epochs_before(target))
    hit("restore.raised")
    aside = _aside(target, epoch)
    _put_payloads(backup, target)
    log = Path(f"{target}-wal")
    if log.exists():
        # SQLite would write the log of the old file into ours.
        log.replace(f"{aside}-wal")
    if not target.exists():
        os.link(staged, target)  # unlike a rename, does not replace a new file
        note_in_lock_file(target, note)
        sync_folder(target.parent)
        hit("restore.named")
        return epoch, None
    copy_payloads(payload_folder(target), payload_folder(aside), link=True)
    os.link(target, aside)
    sync_folder(target.parent)
    hit("restore.kept_aside")
    staged.chmod(mode_like(target))
    staged.replace(target)
    note_in_lock_file(target, note)
    sync_folder(target.parent)
    hit("restore.named")
    return epoch, aside


def _put_payloads(backup: _Backup, target: Path) -> None:
    """Copies the backup's payloads beside the store. An existing file with the name of a payload
    may be damaged, and is then replaced."""
    mode = mode_like(target)
    copy_payloads(payload_folder(backup.path), payload_folder(target), mode=mode)
    damaged = lost_of(payloads_beside(target), backup.payloads)
    if not damaged:
        return
    beside = FolderPayloads(payload_folder(target))
    for each in damaged:
        beside.drop(each.key, each.digest)
    copy_payloads(payload_folder(backup.path), payload_folder(target), mode=mode)
    lost = lost_of(payloads_beside(target), [each[:2] for each in damaged])
    if lost:
        raise StoreUnavailable(
            f"{lost[0].name} cannot be kept in {payload_folder(target)}: what is read there is not "
            "what was written"
        )


def _aside(target: Path, epoch: int) -> Path:
    return Path(f"{target}.before-epoch-{epoch}")


def _epochs_before(target: Path) -> list[int]:
    """Returns earlier epochs of the file, from the lock file and from the stores that earlier
    restores kept."""
    name = re.compile(re.escape(target.name) + r"\.before-epoch-(\d+)")
    found = [name.fullmatch(file.name) for file in target.parent.iterdir()]
    return [noted_epoch(target), *(int(match[1]) for match in found if match)]
