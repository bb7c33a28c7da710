"""A backup in the store's place.

1. The backup is copied beside the store, and the copy is checked by replay. Nothing is changed if it has a fault.
2. The store is opened for ourselves alone, which is refused while any process has it open, idle or stopped.
3. The copy's epoch is raised above all that were: every cursor is told that it is lost, and generations go on above
   epoch × 1,000,000, so that none is granted twice, whatever was granted after the backup.
4. What is replaced is kept aside, `<file>.before-epoch-<n>`, with its payloads.
5. The copy is written into the store in one transaction.

Whoever kills this at any step leaves the old store or the new one, whole; what is left beside it is removed by the next restore.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from msgspec import Struct

from genlock.core.keys import payload_task
from genlock.engine.check import Fault, check
from genlock.engine.payloads import missing_payloads
from genlock.errors import NotAllowed, NotFound, StoreCorrupt, StoreForeign
from genlock.failpoints import hit
from genlock.keeping.files import payload_folder, payloads_beside
from genlock.stores.files import make_folder, sync_folder
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


def restore(source: Path, target: Path, *, force: bool = False, progress: Progress | None = None) -> Restored:
    """Puts the backup `source` in the place of the store `target`. With `force` also if there is one."""
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
            records, epoch = _verify(source, staged)
            epoch, aside = _replace(source, staged, target, epoch)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Restored(str(source), str(target), epoch, None if aside is None else str(aside), records)


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


def _verify(source: Path, staged: Path) -> tuple[int, int]:
    """How many records the copy has, and its epoch; an error if they are not what was written."""
    count = 0

    def note(records: int) -> None:
        nonlocal count
        count += records

    store = SQLiteStore(staged, read_only=True)
    try:
        faults = check(store, progress=note)
        for key, digest in missing_payloads(store, payloads_beside(source)):
            faults.append(Fault(f"{key.tenant}/{key.project} task {payload_task(key)}", f"its payload {digest} is not beside the backup"))
        epoch = store.load([]).epoch
    finally:
        store.close()
    if faults:
        shown = "\n".join(f"  {fault.where}: {fault.what}" for fault in faults[:_SHOWN])
        more = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise StoreCorrupt(f"{source} is not whole, and nothing was changed; restore another one:\n{shown}{more}")
    return count, epoch


def _replace(source: Path, staged: Path, target: Path, epoch: int) -> tuple[int, Path | None]:
    """The new epoch, and where the old store is now."""
    if target.exists():
        try:
            return _overwrite(source, staged, target, epoch)
        except (StoreCorrupt, StoreForeign):
            _refuse_users(target)  # so damaged that SQLite does not know it: then its name is all that can be used
    return _rename(source, staged, target, epoch)


def _overwrite(source: Path, staged: Path, target: Path, epoch: int) -> tuple[int, Path | None]:
    """The way for a store that SQLite can open: the pages go into it, and it stays the same file."""
    with alone(target) as db:
        # From here on this process must not open the file by other means: to close it again would drop the lock.
        epoch = max(epoch, epoch_of(db), *_epochs_aside(target)) + 1
        raise_epoch(staged, epoch)
        hit("restore.raised")
        aside = _aside(target, epoch)
        copy_payloads(payload_folder(target), payload_folder(aside), link=True)
        copy_database(db, aside)
        hit("restore.kept_aside")
        copy_payloads(payload_folder(source), payload_folder(target))
        hit("restore.payloads")
        overwrite(db, staged)
    hit("restore.closed")
    return epoch, aside


def _rename(source: Path, staged: Path, target: Path, epoch: int) -> tuple[int, Path | None]:
    """The way where there is no store, or a damaged one: the copy gets its name."""
    epoch = max(epoch, *_epochs_aside(target)) + 1
    raise_epoch(staged, epoch)
    hit("restore.raised")
    aside = _aside(target, epoch)
    copy_payloads(payload_folder(source), payload_folder(target))
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


def _aside(target: Path, epoch: int) -> Path:
    return Path(f"{target}.before-epoch-{epoch}")


def _epochs_aside(target: Path) -> list[int]:
    """The epochs that were begun by earlier restores, by the names of what they replaced: a damaged store cannot be asked."""
    name = re.compile(re.escape(target.name) + r"\.before-epoch-(\d+)")
    found = [name.fullmatch(file.name) for file in target.parent.iterdir()]
    return [0, *(int(match[1]) for match in found if match)]
