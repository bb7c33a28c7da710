"""Is everything what was written? SQLite's structures, the format, the chain of events and their fold, the payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from genlock.cli.doctoring.finding import Finding, number, ok, trouble
from genlock.core.keys import Key, payload_task
from genlock.engine.check import Fault, check
from genlock.engine.payloads import missing_payloads
from genlock.store import Store
from genlock.stores.sqlite import SQLiteStore

if TYPE_CHECKING:
    from genlock.stores.sqlite.inspecting import Inspection

_RESTORE = "genlock restore BACKUP --force"


def restore_by(path: Path | None) -> str:
    """What to do about a damaged store: in this file, or on a server."""
    return _RESTORE if path else "restore a backup of the server, by its own tools"


class Replayed(NamedTuple):
    """What the replay check has found."""

    records: int
    faults: list[Fault]
    missing: list[tuple[Key, str]]
    """Payloads, by record and digest."""

    @property
    def all_faults(self) -> list[Fault]:
        """With the payloads that are missing among them."""
        missing = [Fault("/".join(key[:2]) + f" {key.kind} {key.id}", f"its payload {digest} is missing") for key, digest in self.missing]
        return self.faults + missing


def replay(store: Store, progress: Callable[[int], None], *, still: bool) -> Replayed:
    """The chain of every record, its fold, its index fields, every feed and every payload.

    Unless the store is `still`, others may write while it is read, and what they write looks like a fault: then what is found is looked
    at again, and counts if it is found both times.
    """
    count = 0

    def note_progress(records: int) -> None:
        nonlocal count
        count += records
        progress(count)

    faults = check(store, progress=note_progress)
    missing = missing_payloads(store)
    if (faults or missing) and not still:
        faults_again, missing_again = set(check(store)), set(missing_payloads(store))
        faults = [fault for fault in faults if fault in faults_again]
        missing = [payload for payload in missing if payload in missing_again]
    return Replayed(count, faults, missing)


def check_structure(seen: Inspection) -> Iterator[Finding]:
    """What SQLite says."""
    yield ok("format", f"{seen.format}")
    if seen.journal != "wal":
        yield ok("journal", f"{seen.journal}: a copy that has not been used as a store yet")
    if seen.faults:
        yield trouble("structure", "SQLite finds its own structures damaged", "pages are not what was written", [_RESTORE], seen.faults)
    else:
        yield ok("structure", "whole")


def check_replay(store: Store, path: Path | None, progress: Callable[[int], None]) -> Iterator[Finding]:
    """Is the store what was written?"""
    count, faults, missing = replay(store, progress, still=path is not None)
    if missing and path is not None:
        # Records are read of one instant, the folder of payloads as it is now: what was dropped in between is not missing.
        with closing(SQLiteStore(path, create=False, instant=True)) as later:
            still_missing = set(missing_payloads(later))
        missing = [payload for payload in missing if payload in still_missing]
    if faults:
        means = f"records or events are not what Genlock wrote: someone has edited the {'file' if path else 'tables'}, or the disk has"
        items = [f"{fault.where}: {fault.what}" for fault in faults]
        keep = f"genlock {'backup' if path else 'export'} COPY, to keep what there is"
        yield trouble("replay", number(len(faults), "fault", "faults"), means, [keep, restore_by(path)], items)
    else:
        yield ok("replay", f"{number(count, 'record is', 'records are')} what their events amount to")
    if missing:
        items = [f"{key.tenant}/{key.project} {payload_task(key)}: {digest}" for key, digest in missing]
        means = f"the bytes of these results are not in {path}.payloads" if path else "the bytes of these results are not in the store"
        what = number(len(missing), "payload is missing", "payloads are missing")
        yield trouble("payloads", what, means, ["copy the folder from a backup"], items)
    else:
        yield ok("payloads", "all there")
