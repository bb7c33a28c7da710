"""What the records say: claims whose holder is gone, tasks that nobody will ever get, results that wait for a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from genlock.cli.doctoring.finding import Finding, note, number, ok, trouble
from genlock.core.codec import decode_record
from genlock.core.keys import REFUSED, SESSION, TASK, Key
from genlock.core.model import SessionRecord, TaskRecord
from genlock.core.plan import find_cycles
from genlock.core.reasons import Cause, ClaimState, RefusedState, Status
from genlock.core.task.view import overdue, waits_for
from genlock.engine.processes import gone
from genlock.store import Query, Store, Stored

_PAGE = 500
_MOST_CYCLES = 10
_SLACK = timedelta(seconds=5)


class Scan:
    """One pass over the tasks of a project: what the checks need, and no more."""

    def __init__(self, store: Store, place: tuple[str, str]) -> None:
        self.store = store
        self.place = place
        self.now = store.load([]).now
        self.claims: list[TaskRecord] = []
        self.held: list[TaskRecord] = []
        self.waits: dict[str, tuple[str, ...]] = {}
        """Unfinished tasks, and what each waits for."""
        self.spawning: list[str] = []
        self.newest: tuple[datetime, str] | None = None
        self.count = 0
        for stored in records(store, Query(*place, kind=TASK)):
            record = decode_record(TASK, stored.body)
            assert isinstance(record, TaskRecord)
            self._note(record)

    def _note(self, record: TaskRecord) -> None:
        self.count += 1
        name = record.task.id
        if self.newest is None or record.updated_at > self.newest[0]:
            self.newest = record.updated_at, name
        if record.claim is not None and record.claim.state is ClaimState.ACTIVE:
            self.claims.append(record)
        if record.state is Status.HELD:
            self.held.append(record)
        if record.spawning:
            self.spawning.append(name)
        if record.state not in (Status.COMPLETED, Status.CANCELLED):
            known = {**record.dependencies, **record.children}
            self.waits[name] = tuple(other for other in waits_for(record) if other in known)

    def named(self, task: str) -> str:
        """A task, with its place if that is not the usual one."""
        return task if self.place == ("default", "default") else f"{self.place[0]}/{self.place[1]} {task}"

    @property
    def flags(self) -> str:
        """How to name the place in a command."""
        tenant, project = self.place
        return (f" --tenant {tenant}" if tenant != "default" else "") + (f" --project {project}" if project != "default" else "")


def records(store: Store, query: Query) -> Iterator[Stored]:
    """All pages of a query by kind."""
    after: str | None = None
    while True:
        page = store.find(Query(query.tenant, query.project, query.kind, query.state, after=after, limit=_PAGE))
        yield from page.records
        if page.next is None:
            return
        after = page.next


class _Lapsed(NamedTuple):
    """A claim that is no longer live."""

    line: str
    cause: Cause


def check_claims(scans: list[Scan]) -> Iterator[Finding]:
    """Claims whose lease is over, whose session has ended or whose process is gone."""
    lapsed = [claim for scan in scans for claim in _lapsed(scan)]
    orphans = [claim.line for claim in lapsed if claim.cause in (Cause.SESSION_ENDED, Cause.PROCESS_GONE)]
    over = [claim.line for claim in lapsed if claim.cause is Cause.LEASE_OVER]
    stepped = [claim.line for claim in lapsed if claim.cause is Cause.CLOCK_STEPPED]
    live = sum(len(scan.claims) for scan in scans) - len(lapsed)
    means = "whoever asks next takes over, at a higher generation; nothing need be done"
    if orphans:
        what = number(len(orphans), "claim of a holder that is gone", "claims of holders that are gone")
        yield note("orphans", what, means, ["genlock doctor --fix"], orphans)
    if over:
        what = number(len(over), "claim is over-due", "claims are over-due")
        yield note("over-due", what, means, ["genlock doctor --fix"], over)
    if not orphans and not over:
        yield ok("claims", f"{number(live, 'claim is', 'claims are')} live")
    yield from _clock(scans, stepped)


def _lapsed(scan: Scan) -> Iterator[_Lapsed]:
    for record in scan.claims:
        claim = record.claim
        assert claim is not None
        session = _session(scan, claim.session)
        cause = overdue(claim, scan.now, session, session is not None and gone(session.process))
        if cause is not None:
            who = f"{claim.agent} (session {claim.session}) at generation {claim.generation}"
            yield _Lapsed(f"{scan.named(record.task.id)}: {who}, {cause.lower().replace('_', ' ')}", cause)


def _session(scan: Scan, session: str) -> SessionRecord | None:
    key = Key(*scan.place, SESSION, session)
    stored = scan.store.load([key]).records.get(key)
    record = decode_record(SESSION, stored.body) if stored is not None else None
    return record if isinstance(record, SessionRecord) else None


def _clock(scans: list[Scan], stepped: list[str]) -> Iterator[Finding]:
    ahead = [
        (scan.newest[0] - scan.now, scan.named(scan.newest[1])) for scan in scans if scan.newest and scan.newest[0] > scan.now + _SLACK
    ]
    means = "the clock of this machine was set back, or another one is wrong; fencing does not rest on it, leases do"
    if ahead:
        by, task = max(ahead)
        what = f"the last event of {task} is {by.total_seconds():,.0f} s in the future"
        yield trouble("clock", what, means, ["timedatectl", "date"], stepped)
    elif stepped:
        what = f"{number(len(stepped), 'lease ends', 'leases end')} further away than leases last"
        yield note("clock", what, f"{means}; they count as over-due", ["timedatectl", "genlock doctor --fix"], stepped)
    else:
        yield ok("clock", f"{scans[0].now:%Y-%m-%dT%H:%M:%SZ}, nothing is from the future" if scans else "nothing to compare with")


def check_plans(scans: list[Scan]) -> Iterator[Finding]:
    """Tasks that wait for themselves, or for what does not exist."""
    cycles, missing, removals = [], [], []
    for scan in scans:
        for cycle in find_cycles(scan.waits):
            cycles.append(scan.named(" → ".join(cycle)))
            removals += list(_removal(scan, cycle))
            if len(cycles) == _MOST_CYCLES:
                break
        missing += list(_missing(scan))
    if cycles:
        means = "nobody is ever granted a task in it; removing one dependency opens it"
        yield trouble("cycles", number(len(cycles), "circle of dependencies", "circles of dependencies"), means, removals[:3], cycles)
    if missing:
        what = number(len(missing), "task waits for one that does not exist", "tasks wait for ones that do not exist")
        yield trouble(
            "dependencies", what, "a missing dependency is never met", ["genlock add the missing task, or edit the other"], missing
        )
    if not cycles and not missing:
        yield ok("dependencies", f"{number(sum(scan.count for scan in scans), 'task', 'tasks')}, no circle, none missing")


def _removal(scan: Scan, cycle: tuple[str, ...]) -> Iterator[str]:
    """What to type to take one dependency out of a circle. (A parent waits for its children, too: that cannot be edited away.)"""
    for name, other in pairwise(cycle):
        key = Key(*scan.place, TASK, name)
        record = decode_record(TASK, scan.store.load([key]).records[key].body)
        assert isinstance(record, TaskRecord)
        if other in record.task.depends_on:
            kept = [f"--depends-on {each}" for each in record.task.depends_on if each != other]
            yield f"genlock edit {name} {' '.join(kept) or '--no-depends-on'}{scan.flags}"
            return


def _missing(scan: Scan) -> Iterator[str]:
    wanted = {other: task for task, others in scan.waits.items() for other in others if other not in scan.waits}
    names = sorted(wanted)
    for start in range(0, len(names), _PAGE):
        keys = [Key(*scan.place, TASK, name) for name in names[start : start + _PAGE]]
        found = scan.store.load(keys).records
        yield from (f"{scan.named(wanted[key.id])}: {key.id}" for key in keys if key not in found)


def check_people(scans: list[Scan]) -> Iterator[Finding]:
    """What waits for a person: held tasks and refused results."""
    held = [
        f"{scan.named(record.task.id)}: {record.hold.reason if record.hold else 'no reason given'}"
        for scan in scans
        for record in scan.held
    ]
    if held:
        first = next(scan for scan in scans if scan.held)
        command = f"genlock reopen {first.held[0].task.id}{first.flags}"
        yield note(
            "held", number(len(held), "task is held", "tasks are held"), "nobody is granted them until they are reopened", [command], held
        )
    else:
        yield ok("held", "no task")
    refused = [
        (scan, stored.key) for scan in scans for stored in records(scan.store, Query(*scan.place, kind=REFUSED, state=RefusedState.KEPT))
    ]
    if refused:
        what = number(len(refused), "refused result is kept", "refused results are kept")
        means = "a person may adopt or discard them; the list says what to type for each"
        command = f"genlock refused{refused[0][0].flags}"
        yield note("refused", what, means, [command], [scan.named(key.id) for scan, key in refused])
    else:
        yield ok("refused", "no result waits")
