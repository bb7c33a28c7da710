"""Checks for damage: SQLite's structures, the format, the chain of events and their fold, the
payloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from genlock.cli.doctor.findings import Finding, note, number, ok, trouble
from genlock.cli.doctor.tasks import Scan
from genlock.cli.open_fleet import open_instant_file
from genlock.core.keys import payload_task
from genlock.reads.reader import StoreReader
from genlock.transfer.backup import Lost, lost_payloads
from genlock.transfer.verification import Progress, unused_payloads, verify

if TYPE_CHECKING:
    from genlock.stores.sqlite.inspection import Inspection


_RESTORE = "genlock restore BACKUP --force"


def restore_by(path: Path | None) -> str:
    """Returns the advice for a damaged store: a file, or one on a server."""
    return _RESTORE if path else "restore a backup of the server, by its own tools"


def check_structure(seen: Inspection) -> Iterator[Finding]:
    """Runs SQLite's own checks."""
    yield ok("format", f"{seen.format}")
    if seen.journal != "wal":
        yield ok("journal", f"{seen.journal}: a copy that has not been used as a store yet")
    if seen.faults:
        yield trouble(
            "structure",
            "SQLite finds its own structures damaged",
            "pages are not what was written",
            [_RESTORE],
            seen.faults,
        )
    else:
        yield ok("structure", "whole")


def check_replay(
    reader: StoreReader, path: Path | None, tell: Progress, records: int | None
) -> Iterator[Finding]:
    """Checks that the store still is what was written."""
    count, faults, lost = verify(reader.store, tell, still=path is not None, records=records)
    if lost and path is not None:
        # Records are from one instant, the folder of payloads is read now: a payload dropped in
        # between is not missing.
        with closing(open_instant_file(path)) as later:
            lost = lost_payloads(later, among=lost)
    if faults:
        means = (
            "records or events are not what Genlock wrote: someone has edited the "
            f"{'file' if path else 'tables'}, or the disk has"
        )
        items = [f"{fault.where}: {fault.what}" for fault in faults]
        keep = f"genlock {'backup' if path else 'export'} COPY, to keep what there is"
        yield trouble(
            "replay", number(len(faults), "fault", "faults"), means, [keep, restore_by(path)], items
        )
    else:
        yield ok(
            "replay", f"{number(count, 'record is', 'records are')} what their events amount to"
        )
    yield _payloads(lost, path)
    yield from _check_unused(reader, path)


def _check_unused(reader: StoreReader, path: Path | None) -> Iterator[Finding]:
    """Checks for payloads without a reference. A payload that a second check finds in use was just
    being submitted."""
    unused = unused_payloads(reader.store)
    if unused and path is not None:
        with closing(open_instant_file(path)) as later:
            unused = unused_payloads(later, unused)
    elif unused:
        unused = unused_payloads(reader.store, unused)
    if not unused:
        return
    means = (
        "they take room and do no harm: a process was killed before it referred to them, or "
        "before it dropped them"
    )
    what = number(len(unused), "payload that nothing refers to", "payloads that nothing refers to")
    if path is not None:
        try_next = [
            "end whatever works on the store",
            "genlock doctor",
            "remove the files that are still named",
        ]
        yield note(
            "unused payloads",
            what,
            means,
            try_next,
            [f"{path}.payloads/{name[:2]}/{name[2:]}" for name in unused],
        )
    else:
        means += "; or they belong to another store that keeps its payloads in the same place"
        yield note("unused payloads", what, means, (), unused)


def _payloads(lost: list[Lost], path: Path | None) -> Finding:
    if not lost:
        return ok("payloads", "all there, and what was submitted")
    items = [
        f"{each.key.tenant}/{each.key.project} {payload_task(each.key)}: {each.what}"
        for each in lost
    ]
    damaged = sum(each.damaged for each in lost)
    missing = len(lost) - damaged
    what = [
        *([number(missing, "payload is missing", "payloads are missing")] if missing else []),
        *([number(damaged, "payload is damaged", "payloads are damaged")] if damaged else []),
    ]
    where = f"in {path}.payloads" if path else "where the store has its payloads"
    means = (
        f"the bytes of these results are not {where}, or are not those that were submitted: "
        "nobody can read them"
    )
    try_next = "copy the files from the folder of a backup" if path else restore_by(path)
    return trouble("payloads", ", ".join(what), means, [try_next], items)


# Reactions that a crash cut off: dependents that lack a completion, spawned children that do not
# exist.


_LOOK_AGAIN_SECONDS = 0.5


def check_reactions(scans: list[Scan], reopen: Callable[[], StoreReader]) -> Iterator[Finding]:
    """Checks for missing reactions, twice: a reaction follows its cause within moments, and may
    just not have been written yet."""
    stuck = [line for scan in scans for line in stuck_in(scan)]
    if stuck:
        time.sleep(_LOOK_AGAIN_SECONDS)
        reader = reopen()
        try:
            again = {line for scan in scans for line in stuck_in(Scan(reader, scan.scope))}
        finally:
            reader.store.close()
        stuck = [line for line in stuck if line in again]
    if stuck:
        means = (
            "a process was killed between a commit and what follows from it; whoever finds "
            "nothing ready repeats it"
        )
        what = number(len(stuck), "reaction was cut off", "reactions were cut off")
        yield trouble("reactions", what, means, ["genlock sweep", "genlock doctor --fix"], stuck)
    else:
        behind = sum(scan.events_since_recovery() for scan in scans)
        yield ok(
            "reactions",
            f"none was cut off; {number(behind, 'event', 'events')} since they were last looked at",
        )


def stuck_in(scan: Scan) -> Iterator[str]:
    """Yields the missing reactions of a project as sentences."""
    for task, finished, state in scan.missing_reactions():
        if finished is None or state is None:
            yield f"{scan.named(task)}: its subtasks have not been created"
        else:
            yield f"{scan.named(task)} waits for {finished}, which is {state.lower()}"
