"""Two coordinators on one server, each on a project of its own, against one: what a claim costs,
and how much more they do far away.

`python -m bench.coordinators [store …]`: on every server of the tests' catalog, or on those named.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import genlock
from bench.claims import CALLERS
from bench.plans import ids_of, register, tasks_of
from bench.report import Line, at_least, at_most, show
from genlock import AsyncCoordinator
from genlock.store import Change, Committed, Conflict, PendingCommit, start_commit
from tests.servers import stores
from tests.servers.proxy import between
from tests.servers.stores import Server

CLAIMS = 5120
FAR_CLAIMS = 2048
FAR_CALLERS = 8
"""Behind the delay it is the journeys that count, and not the cores: so many agents as one machine
may have."""
FAR_MILLISECONDS = 2.0
ROUNDS = 3

_TICKS = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """What some coordinators did together."""

    claims: int
    took: float
    cpu: float
    changes: int
    conflicts: int


class Counted:
    """A store that counts the changes and conflicts that it passes on."""

    def __init__(self, url: str) -> None:
        self._store = genlock.open_store(url, create=True)
        self.limits = self._store.limits
        self.changes = self.conflicts = 0

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        return self.counted(self._store.commit(changes, epoch=epoch))

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        return CountedLater(self, start_commit(self._store, changes, epoch=epoch))

    def counted(self, answers: Sequence[Committed | Conflict]) -> Sequence[Committed | Conflict]:
        self.changes += len(answers)
        self.conflicts += sum(isinstance(answer, Conflict) for answer in answers)
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class CountedLater:
    """A commit under way whose answers are counted."""

    def __init__(self, store: Counted, sent: PendingCommit) -> None:
        self._store = store
        self._sent = sent
        self.wait = sent.wait

    def answers(self) -> Sequence[Committed | Conflict]:
        return self._store.counted(self._sent.answers())


def work(url: str, project: str, callers: int, claims: int) -> None:
    """One process: claims all tasks of its project, one a call, when it is told to begin."""
    store: Any = Counted(url)

    async def run() -> dict[str, float]:
        fleet = genlock.aio.connect(store, project_id=project, deadline_seconds=60)
        await fleet.get_policy()  # connected
        print("ready", flush=True)
        sys.stdin.readline()
        began, used = time.monotonic(), _used()
        await asyncio.gather(
            *(
                claim_all(fleet, number, ids_of(claims)[number::callers])
                for number in range(callers)
            )
        )
        answer = {"began": began, "ended": time.monotonic(), "cpu": _used() - used}
        await fleet.close()
        return answer

    answer = asyncio.run(run())
    print(json.dumps(answer | {"changes": store.changes, "conflicts": store.conflicts}), flush=True)


async def claim_all(fleet: AsyncCoordinator, number: int, ids: list[str]) -> None:
    for name in ids:
        granted = await fleet.claim_task(
            task_id=name, agent_id=f"agent-{number}", session_id=f"session-{number}"
        )
        assert granted.success


def _used() -> float:
    """CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(server: Server, url: str, way: str, number: int, callers: int, claims: int) -> Run:
    """So many coordinators at once, each on a project of its own that is made ready before."""
    for at in range(number):
        with genlock.connect(
            url, create=True, project_id=f"project-{at}", deadline_seconds=60
        ) as fleet:
            fleet.add_tasks(tasks=tasks_of(ids_of(claims)))
            register(fleet, callers)
    command = [sys.executable, "-m", "bench.coordinators", "work", way]
    crew = [
        subprocess.Popen(
            [*command, f"project-{at}", str(callers), str(claims)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for at in range(number)
    ]
    for process in crew:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    before = cpu_of(server.port)
    for process in crew:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate()[0]) for process in crew]
    cpu = sum(answer["cpu"] for answer in answers) + cpu_of(server.port) - before
    took = max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers)
    return Run(
        number * claims,
        took,
        cpu,
        *(sum(answer[name] for answer in answers) for name in ("changes", "conflicts")),
    )


def cpu_of(port: int) -> float:
    """CPU seconds that the server on this port has used so far, with all its processes, also those
    that have ended."""
    parents: dict[int, tuple[int, list[int]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1]), [int(field) for field in fields[11:15]]
    root = listening_on(port, parents)
    ticks = sum(parents[root][1])
    for pid, (_, spent) in parents.items():
        if pid != root and _descends(pid, root, parents):
            ticks += sum(spent[:2])
    return ticks / _TICKS


def _descends(pid: int, root: int, parents: dict[int, tuple[int, list[int]]]) -> bool:
    while pid in parents:
        if pid == root:
            return True
        pid = parents[pid][0]
    return False


def listening_on(port: int, parents: dict[int, tuple[int, list[int]]]) -> int:
    """The process that listens there; of several the one that is nobody's child among them."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "0A":
            sockets.add(f"socket:[{fields[9]}]")
    found = []
    for pid in parents:
        try:
            if any(os.readlink(each) in sockets for each in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
        except OSError:
            continue
    return next(pid for pid in found if parents[pid][0] not in found)


def near(server: Server, place: Path) -> list[Line]:
    """Best of a few rounds: CPU seconds a claim, and conflicts."""
    runs: dict[int, list[Run]] = {1: [], 2: []}
    for at in range(ROUNDS):
        for number in runs:
            url = server.store_url(place / f"near-{at}-{number}")
            runs[number].append(measure(server, url, url, number, CALLERS, CLAIMS))
    one, two = (min(run.cpu / run.claims for run in runs[number]) for number in (1, 2))
    changes, conflicts = (
        sum(getattr(run, name) for run in runs[2]) for name in ("changes", "conflicts")
    )
    return [
        Line("one coordinator: CPU of it and of the server, a claim", f"{one * 1e6:,.0f} µs"),
        Line("two: CPU of them and of the server, a claim", f"{two * 1e6:,.0f} µs"),
        at_most("two, of one", two / one, 1.15, " ×"),
        at_most("two: conflicts", 100 * conflicts / changes, 1, " %"),
        *(
            Line(
                f"{number}: claims/s", f"{max(run.claims / run.took for run in runs[number]):,.0f}"
            )
            for number in runs
        ),
    ]


def far(server: Server, place: Path) -> list[Line]:
    """The same behind a delay: best of a few rounds."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    with between(server.port) as proxy:
        for at in range(ROUNDS):
            for number in rates:
                folder = place / f"far-{at}-{number}"
                proxy.delay(FAR_MILLISECONDS / 2)
                run = measure(
                    server,
                    server.store_url(folder),
                    server.store_url(folder, proxy.port),
                    number,
                    FAR_CALLERS,
                    FAR_CLAIMS,
                )
                rates[number].append(run.claims / run.took)
    one, two = (max(rates[number]) for number in (1, 2))
    return [
        Line("one coordinator: claims/s", f"{one:,.0f}"),
        Line("two: claims/s", f"{two:,.0f}"),
        at_least("two, of one", two / one, 1.7),
    ]


def main(names: Sequence[str] = stores.DISTURBED) -> None:
    for name in names:
        own = stores.LASTING[name].own
        if own is None:
            raise SystemExit(
                f"there is no server for {name!r}; there are: {', '.join(stores.DISTURBED)}"
            )
        with own() as server:
            place = Path("/bench")  # only its name counts
            show(
                f"{name}: coordinators on projects of their own, {CALLERS} callers each",
                near(server, place),
            )
            title = f"{name}: coordinators {FAR_MILLISECONDS:g} ms away, {FAR_CALLERS} callers each"
            show(title, far(server, place))


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main(sys.argv[1:] or stores.DISTURBED)
