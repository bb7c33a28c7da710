"""What a crash cut off: a completion whose dependents have not heard of it, children that were spawned and do not exist."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from genlock.cli.doctoring.finding import Finding, number, ok, trouble
from genlock.cli.doctoring.tasks import Scan
from genlock.core.codec import decode_record
from genlock.core.keys import SETTLED, TASK, Key
from genlock.core.model import SettledRecord, TaskRecord
from genlock.core.reasons import FINISHED
from genlock.errors import BadArgument
from genlock.store import EventQuery, Store
from genlock.stores.places import decode_cursor

_PAGE = 500
_LOOK_AGAIN_SECONDS = 0.5


def check_reactions(scans: list[Scan], reopen: Callable[[], Store]) -> Iterator[Finding]:
    """Looked at twice: a reaction follows its cause within moments, and may just not have been written yet."""
    stuck = [line for scan in scans for line in stuck_in(scan)]
    if stuck:
        time.sleep(_LOOK_AGAIN_SECONDS)
        store = reopen()
        try:
            again = {line for scan in scans for line in stuck_in(Scan(store, scan.place))}
        finally:
            store.close()
        stuck = [line for line in stuck if line in again]
    if stuck:
        means = "a process was killed between a commit and what follows from it; whoever finds nothing ready repeats it"
        what = number(len(stuck), "reaction was cut off", "reactions were cut off")
        yield trouble("reactions", what, means, ["genlock sweep", "genlock doctor --fix"], stuck)
    else:
        behind = sum(_behind(scan) for scan in scans)
        yield ok("reactions", f"none was cut off; {number(behind, 'event', 'events')} since they were last looked at")


def stuck_in(scan: Scan) -> Iterator[str]:
    """What has not heard of what has happened."""
    yield from (f"{scan.named(task)}: its subtasks have not been created" for task in scan.spawning)
    waiting: dict[str, list[str]] = {}
    for task, others in scan.waits.items():
        for other in others:
            if other not in scan.waits:
                waiting.setdefault(other, []).append(task)
    names = sorted(waiting)
    for start in range(0, len(names), _PAGE):
        keys = [Key(*scan.place, TASK, name) for name in names[start : start + _PAGE]]
        for key, stored in scan.store.load(keys).records.items():
            record = decode_record(TASK, stored.body)
            if isinstance(record, TaskRecord) and record.state in FINISHED:
                yield from (f"{scan.named(task)} waits for {key.id}, which is {record.state.lower()}" for task in waiting[key.id])


def _behind(scan: Scan) -> int:
    """How many events nobody has settled yet; that is nothing bad."""
    key = Key(*scan.place, SETTLED, SETTLED)
    stored = scan.store.load([key]).records.get(key)
    record = decode_record(SETTLED, stored.body) if stored is not None else None
    end = scan.store.read_events(EventQuery(*scan.place, tail=True)).position
    try:
        start = decode_cursor(record.cursor).position if isinstance(record, SettledRecord) else 0
    except BadArgument:
        start = 0
    return max(0, end - start)
