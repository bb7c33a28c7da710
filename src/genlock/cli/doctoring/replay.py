"""Is everything what was written? SQLite's structures, the format, the chain of events and their fold, the payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from genlock.cli.doctoring.finding import Finding, number, ok, trouble
from genlock.core.keys import payload_task
from genlock.engine.check import Fault, check
from genlock.keeping.payloads import Lost, lost_payloads
from genlock.store import Store
from genlock.stores.sqlite import SQLiteStore

if TYPE_CHECKING:
    from genlock.stores.sqlite.inspecting import Inspection

_RESTORE = "genlock restore BACKUP --force"


def restore_by(path: Path | None) -> str:
    """What to do about a damaged store: in this file, or on a server."""
    return _RESTORE if path else "restore a backup of the server, by its own tools"


Tell = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is, and how much there is, if that is known."""


class Replayed(NamedTuple):
    """What the replay check has found."""

    records: int
    faults: list[Fault]
    lost: list[Lost]
    """Payloads."""

    @property
    def all_faults(self) -> list[Fault]:
        """With the payloads that are lost among them."""
        lost = [Fault("/".join(each.key[:2]) + f" {each.key.kind} {each.key.id}", each.what) for each in self.lost]
        return self.faults + lost


def replay(store: Store, tell: Tell, *, still: bool, records: int | None = None) -> Replayed:
    """The chain of every record, its fold, its index fields, every feed and every payload; there are so many `records`, if that is known.

    Unless the store is `still`, others may write while it is read, and what they write looks like a fault: then what is found is looked
    at again, and counts if it is found both times.
    """
    count = 0

    def note_progress(more: int) -> None:
        nonlocal count
        count += more
        tell("replaying", count, records)

    faults = check(store, progress=note_progress)
    lost = lost_payloads(store, progress=lambda done, total: tell("reading payloads", done, total))
    if faults and not still:
        again = set(check(store))
        faults = [fault for fault in faults if fault in again]
    if lost and not still:
        lost = lost_payloads(store, among=lost)
    return Replayed(count, faults, lost)


def check_structure(seen: Inspection) -> Iterator[Finding]:
    """What SQLite says."""
    yield ok("format", f"{seen.format}")
    if seen.journal != "wal":
        yield ok("journal", f"{seen.journal}: a copy that has not been used as a store yet")
    if seen.faults:
        yield trouble("structure", "SQLite finds its own structures damaged", "pages are not what was written", [_RESTORE], seen.faults)
    else:
        yield ok("structure", "whole")


def check_replay(store: Store, path: Path | None, tell: Tell, records: int | None) -> Iterator[Finding]:
    """Is the store what was written?"""
    count, faults, lost = replay(store, tell, still=path is not None, records=records)
    if lost and path is not None:
        # Records are read of one instant, the folder of payloads as it is now: what was dropped in between is not missing.
        with closing(SQLiteStore(path, create=False, instant=True)) as later:
            lost = lost_payloads(later, among=lost)
    if faults:
        means = f"records or events are not what Genlock wrote: someone has edited the {'file' if path else 'tables'}, or the disk has"
        items = [f"{fault.where}: {fault.what}" for fault in faults]
        keep = f"genlock {'backup' if path else 'export'} COPY, to keep what there is"
        yield trouble("replay", number(len(faults), "fault", "faults"), means, [keep, restore_by(path)], items)
    else:
        yield ok("replay", f"{number(count, 'record is', 'records are')} what their events amount to")
    yield _payloads(lost, path)


def _payloads(lost: list[Lost], path: Path | None) -> Finding:
    if not lost:
        return ok("payloads", "all there, and what was submitted")
    items = [f"{each.key.tenant}/{each.key.project} {payload_task(each.key)}: {each.what}" for each in lost]
    damaged = sum(each.damaged for each in lost)
    missing = len(lost) - damaged
    what = [
        *([number(missing, "payload is missing", "payloads are missing")] if missing else []),
        *([number(damaged, "payload is damaged", "payloads are damaged")] if damaged else []),
    ]
    where = f"in {path}.payloads" if path else "where the store has its payloads"
    means = f"the bytes of these results are not {where}, or are not those that were submitted: nobody can read them"
    try_next = "copy the files from the folder of a backup" if path else restore_by(path)
    return trouble("payloads", ", ".join(what), means, [try_next], items)
