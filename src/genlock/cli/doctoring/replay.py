"""Is everything what was written? SQLite's structures, the format, the chain of events and their fold, the payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from genlock.cli.doctoring.finding import Finding, number, ok, trouble
from genlock.engine.check import check
from genlock.engine.payloads import missing_payloads
from genlock.store import Store
from genlock.stores.sqlite.inspecting import Inspection

_RESTORE = "genlock restore BACKUP --force"


def check_structure(seen: Inspection) -> Iterator[Finding]:
    """What SQLite says."""
    yield ok("format", f"{seen.format}")
    if seen.journal != "wal":
        yield ok("journal", f"{seen.journal}: a copy that has not been used as a store yet")
    if seen.faults:
        yield trouble("structure", "SQLite finds its own structures damaged", "pages are not what was written", [_RESTORE], seen.faults)
    else:
        yield ok("structure", "whole")


def check_replay(store: Store, path: Path, progress: Callable[[int], None]) -> Iterator[Finding]:
    """The chain of every record, its fold, its index fields, and every feed."""
    count = 0

    def note_progress(records: int) -> None:
        nonlocal count
        count += records
        progress(count)

    faults = check(store, progress=note_progress)
    if faults:
        means = "records or events are not what Genlock wrote: someone has edited the file, or the disk has"
        items = [f"{fault.where}: {fault.what}" for fault in faults]
        yield trouble(
            "replay", number(len(faults), "fault", "faults"), means, ["genlock backup COPY, to keep what there is", _RESTORE], items
        )
    else:
        yield ok("replay", f"{number(count, 'record is', 'records are')} what their events amount to")
    missing = missing_payloads(store)
    if missing:
        items = [f"{key.tenant}/{key.project} {key.id}: {digest}" for key, digest in missing]
        means = f"the bytes of these results are not in {path}.payloads"
        what = number(len(missing), "payload is missing", "payloads are missing")
        yield trouble("payloads", what, means, ["copy the folder from a backup"], items)
    else:
        yield ok("payloads", "all there")
