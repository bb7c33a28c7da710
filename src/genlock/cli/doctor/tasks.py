"""Checks of records: claims with a lost holder, tasks that can never be claimed, results that wait
for a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple

from genlock.cli.doctor.findings import Finding, note, number, ok, trouble
from genlock.core.model import TaskRecord
from genlock.core.plan import find_cycles
from genlock.core.reasons import Cause
from genlock.messages import review_causes
from genlock.reads.checks import ProjectScan

_MOST_CYCLES = 10
_SLACK = timedelta(seconds=5)


class Scan(ProjectScan):
    """The scan of a project, and how the project is named in findings."""

    def named(self, task: str) -> str:
        """Names a task, with tenant and project unless they are the defaults."""
        return (
            task
            if self.scope == ("default", "default")
            else f"{self.scope[0]}/{self.scope[1]} {task}"
        )

    @property
    def flags(self) -> str:
        """Returns the options that name tenant and project in a command."""
        tenant, project = self.scope
        return (f" --tenant {tenant}" if tenant != "default" else "") + (
            f" --project {project}" if project != "default" else ""
        )


class _Lapsed(NamedTuple):
    """A claim that is no longer live."""

    line: str
    cause: Cause


def check_claims(scans: list[Scan]) -> Iterator[Finding]:
    """Checks for claims whose lease is over, or whose session or process has ended."""
    lapsed = [claim for scan in scans for claim in _lapsed(scan)]
    orphans = [claim.line for claim in lapsed if claim.cause.orphans]
    over = [claim.line for claim in lapsed if claim.cause is Cause.LEASE_OVER]
    stepped = [claim.line for claim in lapsed if claim.cause is Cause.CLOCK_STEPPED]
    live = sum(len(scan.claims) for scan in scans) - len(lapsed)
    means = "the next caller takes over, at a higher generation; you need do nothing"
    if orphans:
        what = number(
            len(orphans), "claim of a holder that is gone", "claims of holders that are gone"
        )
        yield note("orphans", what, means, ["genlock doctor --fix"], orphans)
    if over:
        what = number(len(over), "claim is overdue", "claims are overdue")
        yield note("overdue", what, means, ["genlock doctor --fix"], over)
    if not orphans and not over:
        yield ok("claims", f"{number(live, 'claim is', 'claims are')} live")
    yield from _clock(scans, stepped)


def _lapsed(scan: Scan) -> Iterator[_Lapsed]:
    for task, claim, cause in scan.overdue_claims():
        who = f"{claim.agent} (session {claim.session}) at generation {claim.generation}"
        yield _Lapsed(f"{scan.named(task)}: {who}, {cause.lower().replace('_', ' ')}", cause)


def _clock(scans: list[Scan], stepped: list[str]) -> Iterator[Finding]:
    ahead = [
        (scan.newest[0] - scan.now, scan.named(scan.newest[1]))
        for scan in scans
        if scan.newest and scan.newest[0] > scan.now + _SLACK
    ]
    means = (
        "the clock of this machine was set back, or another one is wrong; fencing does not "
        "rest on it, leases do"
    )
    if ahead:
        by, task = max(ahead)
        what = f"the last event of {task} is {by.total_seconds():,.0f} s in the future"
        yield trouble("clock", what, means, ["timedatectl", "date"], stepped)
    elif stepped:
        what = f"{number(len(stepped), 'lease ends', 'leases end')} further away than leases last"
        yield note(
            "clock",
            what,
            f"{means}; they count as overdue",
            ["timedatectl", "genlock doctor --fix"],
            stepped,
        )
    else:
        yield ok(
            "clock",
            f"{scans[0].now:%Y-%m-%dT%H:%M:%SZ}, nothing is from the future"
            if scans
            else "nothing to compare with",
        )


def check_plans(scans: list[Scan]) -> Iterator[Finding]:
    """Checks for tasks that wait for themselves, or for missing tasks."""
    cycles, missing, removals = [], [], []
    for scan in scans:
        for cycle in find_cycles(scan.waits):
            cycles.append(scan.named(" → ".join(cycle)))
            removals += list(_removal(scan, cycle))
            if len(cycles) == _MOST_CYCLES:
                break
        missing += [f"{scan.named(task)}: {other}" for task, other in scan.missing_dependencies()]
    if cycles:
        means = "nobody is ever granted a task in it; removing one dependency opens it"
        yield trouble(
            "cycles",
            number(len(cycles), "circle of dependencies", "circles of dependencies"),
            means,
            removals[:3],
            cycles,
        )
    if missing:
        what = number(
            len(missing),
            "task waits for one that does not exist",
            "tasks wait for ones that do not exist",
        )
        yield trouble(
            "dependencies",
            what,
            "a missing dependency is never met",
            ["genlock add the missing task, or edit the other"],
            missing,
        )
    if not cycles and not missing:
        yield ok(
            "dependencies",
            f"{number(sum(scan.count for scan in scans), 'task', 'tasks')}, no circle, none "
            "missing",
        )


def _removal(scan: Scan, cycle: tuple[str, ...]) -> Iterator[str]:
    """Yields commands that remove one dependency from a cycle. (A parent waits for its children,
    too, and that cannot be edited.)"""
    for name, other in pairwise(cycle):
        dependencies = scan.depends_on(name)
        if other in dependencies:
            kept = [f"--depends-on {each}" for each in dependencies if each != other]
            yield f"genlock edit {name} {' '.join(kept) or '--no-depends-on'}{scan.flags}"
            return


def _causes(record: TaskRecord) -> str:
    return review_causes(record.review.causes) if record.review is not None else "no reason kept"


def check_people(scans: list[Scan]) -> Iterator[Finding]:
    """Checks for work that waits for a person: held tasks, results in review, and refused
    results."""
    held = [
        f"{scan.named(record.task.id)}: {record.hold.reason if record.hold else 'no reason given'}"
        for scan in scans
        for record in scan.held
    ]
    if held:
        first = next(scan for scan in scans if scan.held)
        command = f"genlock reopen {first.held[0].task.id}{first.flags}"
        yield note(
            "held",
            number(len(held), "task is held", "tasks are held"),
            "nobody is granted them until they are reopened",
            [command],
            held,
        )
    else:
        yield ok("held", "no task")
    reviews = [(scan, record) for scan in scans for record in scan.reviews]
    if reviews:
        scan, record = reviews[0]
        yield note(
            "reviews",
            number(len(reviews), "result waits for a review", "results wait for a review"),
            "nothing builds on them until somebody approves or rejects them",
            [f"genlock review show {record.task.id}{scan.flags}"],
            [f"{scan.named(one.task.id)}: {_causes(one)}" for scan, one in reviews],
        )
    else:
        yield ok("reviews", "no result waits for a review")
    refused = [(scan, name) for scan in scans for name in scan.refused_results()]
    if refused:
        what = number(len(refused), "refused result is kept", "refused results are kept")
        means = "a person may adopt or discard them; the list says what to type for each"
        command = f"genlock refused{refused[0][0].flags}"
        yield note("refused", what, means, [command], [scan.named(name) for scan, name in refused])
    else:
        yield ok("refused", "no result waits")
