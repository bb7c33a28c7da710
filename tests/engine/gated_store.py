"""What the tests of the engine need: a real store with gates in it, a home for several
coordinators, and calls that run beside.

Nothing here repeats a rule of the product. `GatedStore` hands every call on to a real store; a test
may stop one on its way, let somebody else go first, or break it off before or after the real store
has done its part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from msgspec.structs import replace

import genlock
from genlock.core.codec import decode_event, decode_record, encode_event, encode_record
from genlock.core.commands import Caller, Command
from genlock.core.facts import Facts
from genlock.core.keys import TASK, Key
from genlock.core.results import ClaimResult, SubmissionResult
from genlock.core.rules import decide, index_of
from genlock.engine.jobs import Job
from genlock.engine.replay_check import check
from genlock.store import (
    Audit,
    Change,
    Committed,
    Conflict,
    Deferred,
    EventPage,
    EventQuery,
    Limits,
    NewEvent,
    Page,
    Payloads,
    PendingCommit,
    PendingLoad,
    Query,
    Snapshot,
    Store,
)
from genlock.stores.memory import MemoryStore
from genlock.testing.clock import ManualClock
from tests.servers import stores

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds after which something that should have happened by itself counts as never happening."""

PLACE = ("default", "default")


class Stop:
    """A gate: whoever comes to it waits until it is opened."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> None:
        self._arrived.set()
        assert self._opened.wait(PATIENCE), "nobody opened the gate"

    def wait(self) -> None:
        """Returns when someone stands before the gate."""
        assert self._arrived.wait(PATIENCE), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()


class Meet:
    """A gate that opens by itself when so many stand before it; later ones walk through."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties)
        self.met = False

    def __call__(self) -> None:
        if not self.met:
            self._barrier.wait(PATIENCE)
            self.met = True


def die() -> None:
    """The process ends here, as far as a thread of ours can tell: the lane runs no further."""
    raise SystemExit


def raising(error: BaseException) -> Callable[[], None]:
    """An act that fails."""

    def fail() -> None:
        raise error

    return fail


@dataclass
class _Rule:
    method: str
    when: Callable[[Any], bool]
    before: Callable[[], Any] | None
    after: Callable[[], Any] | None
    left: float


class Commit(NamedTuple):
    """One commit as it came by."""

    changes: tuple[Change, ...]
    answers: tuple[Committed | Conflict, ...] | None
    """None if the store raised."""

    @property
    def tasks(self) -> list[str]:
        """The tasks it wrote or would have written."""
        return [change.key.id for change in self.changes if change.key.kind == TASK]

    @property
    def conflicts(self) -> list[str]:
        """The ids of the records that conflicted."""
        return [
            change.key.id
            for change, answer in zip(self.changes, self.answers or (), strict=False)
            if isinstance(answer, Conflict)
        ]


class GatedStore:
    """A real store. `on` puts gates before and after its calls; every commit is noted."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.limits: Limits = replace(
            inner.limits, starts=False
        )  # so that whatever is read goes by the gates
        self.commits: list[Commit] = []
        self.calls: list[tuple[str, Any]] = []
        """Every call, in the order in which they reached the real store."""
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    def on(
        self,
        method: str,
        *,
        when: Callable[[Any], bool] = lambda given: True,
        before: Callable[[], Any] | None = None,
        after: Callable[[], Any] | None = None,
        times: float = 1,
    ) -> None:
        """The next `times` calls of this method that suit: runs `before`, the real call, `after`.
        What these raise, the caller gets."""
        with self._lock:
            self._rules.append(_Rule(method, when, before, after, times))

    def clear(self) -> None:
        """Takes all gates away; who stands before one still has to be let through."""
        with self._lock:
            self._rules.clear()

    def _passed(self, method: str, given: Any, call: Callable[[], T]) -> T:
        with self._lock:
            rule = next(
                (
                    rule
                    for rule in self._rules
                    if rule.method == method and rule.left > 0 and rule.when(given)
                ),
                None,
            )
            if rule is not None:
                rule.left -= 1
        if rule is not None and rule.before is not None:
            rule.before()
        self.calls.append((method, given))
        answer = call()
        if rule is not None and rule.after is not None:
            rule.after()
        return answer

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        snapshot = self._passed("load", keys, lambda: self.inner.load(keys, with_index=with_index))
        return snapshot._replace(pages=[self.find(query) for query in queries])

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        return Deferred(partial(self.commit, epoch=epoch), changes)

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        """For whoever says in its limits that it has this: what is asked for is read at once, and
        heard of later."""
        asked = Deferred(
            lambda keys: self._passed("start_load", keys, lambda: self.inner.load(keys)), keys
        )
        asked.wait()
        return asked

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        changes = tuple(change._replace(events=tuple(change.events)) for change in changes)

        def really() -> Sequence[Committed | Conflict]:
            answers: Sequence[Committed | Conflict] | None = None
            try:
                answers = self.inner.commit(changes, epoch=epoch)
                return answers
            finally:
                self.commits.append(Commit(changes, None if answers is None else tuple(answers)))

        return self._passed("commit", changes, really)

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        return self._passed(
            "find" if count_by is None else "count",
            query,
            lambda: self.inner.find(query, count_by=count_by),
        )

    def read_events(self, query: EventQuery) -> EventPage:
        return self._passed("read_events", query, lambda: self.inner.read_events(query))

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        return self._passed(
            "wait", projects, lambda: self.inner.wait(projects, after, timeout, others=others)
        )

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        self._passed("purge", key, lambda: self.inner.purge(key, before_version, base))

    def payloads(self) -> Payloads:
        return GatedPayloads(self)

    def set_epoch(self, epoch: int) -> None:
        self.inner.set_epoch(epoch)

    def scan(self, tenant: str, project: str) -> Sequence[Key]:
        return self.inner.scan(tenant, project)  # type: ignore[attr-defined,no-any-return]

    def await_edits(self, seconds: float) -> Sequence[Key] | None:
        return self.inner.await_edits(seconds)  # type: ignore[attr-defined,no-any-return]

    def audit(self) -> Audit:
        return self.inner.audit()

    def close(self) -> None:
        self.inner.close()


class GatedPayloads:
    """The payloads of a gated store; its calls are called put, open and drop."""

    def __init__(self, store: GatedStore) -> None:
        self._store = store

    def put(self, key: Key, digest: str, data: bytes) -> None:
        self._store._passed("put", key, lambda: self._store.inner.payloads().put(key, digest, data))

    def open(self, key: Key, digest: str) -> BinaryIO:
        return self._store._passed(
            "open", key, lambda: self._store.inner.payloads().open(key, digest)
        )

    def drop(self, key: Key, digest: str) -> None:
        self._store._passed("drop", key, lambda: self._store.inner.payloads().drop(key, digest))

    def names(self) -> Iterable[str]:
        return self._store.inner.payloads().names()


# Which commits a gate is for


def writing(event: type, id: str | None = None) -> Callable[[Any], bool]:
    """Commits in which this happens (to the record of this id)."""

    def suits(changes: Sequence[Change]) -> bool:
        return any(
            (id is None or change.key.id == id) and event in kinds_of(change) for change in changes
        )

    return suits


def kinds_of(change: Change) -> list[type]:
    """What happens in a change."""
    return [type(decode_event(event.body).event) for event in change.events]


def change_of(store: Store, command: Command, **facts: Any) -> Change:
    """What the rules make of a command on the record as it is now, not written yet: for showing
    what a naive engine would do."""
    snapshot = store.load([command.key])
    stored = snapshot.records.get(command.key)
    record = None if stored is None else decode_record(command.key.kind, stored.body)
    decision = decide(record, command, Facts(now=snapshot.now, **facts))
    read = (0, b"") if stored is None else (stored.version, stored.digest)
    version, digest = read
    events: list[NewEvent] = []
    for event in decision.events:
        events.append(NewEvent(*encode_event(event, version + 1, digest)))
        version, digest, _ = events[-1]
    return Change(
        command.key,
        *read,
        version,
        digest,
        encode_record(decision.record),
        index_of(decision.record),
        tuple(events),
    )


# Where coordinators live


class Home:
    """One place where things are kept, and all that opens it during a test. When the test is over,
    everything must replay."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.slowness = stores.LASTING[kind].slowness if kind in stores.LASTING else 1
        self.path = folder / "genlock.db"
        self.clock = ManualClock()
        self._memory = MemoryStore(clock=self.clock)
        self._open: list[genlock.Coordinator] = []
        self._async: list[genlock.AsyncCoordinator] = []
        self._stores: list[Store] = []
        self._stops: list[Stop] = []

    def store(self, clock: ManualClock | None = None) -> Store:
        """A handle of its own, as another process would have one."""
        clock = clock or self.clock
        store = self._handle(clock)
        self._stores.append(store)
        return store

    @property
    def url(self) -> str:
        """What `connect` takes for this place."""
        return "memory://" if self.kind == "memory" else stores.LASTING[self.kind].url(self.path)

    def elsewhere(self) -> Store:
        """A store of the same kind with nothing in it, as a replica that has lost everything would
        be."""
        if self.kind == "memory":
            return MemoryStore(clock=self.clock)
        return stores.opened(self.kind, self.path.with_name("replica.db"), self.clock)

    def _handle(self, clock: ManualClock) -> Store:
        return (
            self._memory.handle(clock=clock)
            if self.kind == "memory"
            else stores.opened(self.kind, self.path, clock)
        )

    def gated(self, clock: ManualClock | None = None) -> GatedStore:
        return GatedStore(self.store(clock))

    def stop(self) -> Stop:
        """A gate that is opened at the end in any case, so that a failed test does not hang."""
        stop = Stop()
        self._stops.append(stop)
        return stop

    def connect(
        self, store: Store | None = None, *, clock: ManualClock | None = None, **options: Any
    ) -> genlock.Coordinator:
        """A coordinator on a handle of its own, or on this one."""
        clock = clock or self.clock
        fleet = genlock.connect(store or self.store(clock), clock=clock, **options)
        self._open.append(fleet)
        return fleet

    def connect_async(self, store: Store | None = None, **options: Any) -> genlock.AsyncCoordinator:
        """The same for event loops; call it inside one."""
        fleet = genlock.aio.connect(store or self.store(), clock=self.clock, **options)
        self._async.append(fleet)
        return fleet

    def close(self) -> None:
        for stop in self._stops:
            stop.open()
        for connection in [*self._open, *self._async]:
            connection._close()
        for store in self._stores:
            store.close()
        store = self._handle(self.clock)
        faults = check(store)
        store.close()
        assert faults == []


# Calls


def later(call: Callable[[], T]) -> Future[T]:
    """Runs the call in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            answer = call()
        except BaseException as error:  # noqa: BLE001 - handed on to whoever asks for the result
            future.set_exception(error)
        else:
            future.set_result(answer)

    threading.Thread(target=run, daemon=True).start()
    return future


def answered(job: Job) -> list[Any]:
    """The outcomes of a job that was given to the engine, once it is done."""
    return later(job.wait).result(PATIENCE).results


def caller(who: str) -> Caller:
    return Caller(f"s-{who}", who)


def task_key(task_id: str) -> Key:
    return Key(*PLACE, TASK, task_id)


def claim(
    fleet: genlock.Coordinator, task_id: str, who: str, lease: float = 300, **more: Any
) -> ClaimResult:
    return fleet.claim_task(
        task_id=task_id, agent_id=who, session_id=f"s-{who}", lease_duration_seconds=lease, **more
    )


def granted(fleet: genlock.Coordinator, task_id: str, who: str, lease: float = 300) -> int:
    """Claims a task that must be had; its generation."""
    result = claim(fleet, task_id, who, lease)
    assert result.success, result
    assert result.claim is not None
    return result.claim.generation


def submit(
    fleet: genlock.Coordinator,
    task_id: str,
    who: str,
    generation: int,
    data: Any = "done",
    **more: Any,
) -> SubmissionResult:
    return fleet.submit_result(
        task_id=task_id, session_id=f"s-{who}", generation=generation, result_data=data, **more
    )


def complete(fleet: genlock.Coordinator, task_id: str, who: str = "worker") -> None:
    """Claims and submits."""
    assert submit(fleet, task_id, who, granted(fleet, task_id, who)).accepted


def next_for(fleet: genlock.Coordinator, who: str, wait: float = 0, **more: Any) -> ClaimResult:
    return fleet.claim_next(agent_id=who, session_id=f"s-{who}", wait_seconds=wait, **more)


def state(fleet: genlock.Coordinator, task_id: str) -> str:
    return fleet.get_task_state(task_id=task_id).state


def told(fleet: genlock.Coordinator, task_id: str) -> list[str]:
    """What has happened to a task, by the events' names."""
    return [event.event_type for event in fleet.read_events(task_id=task_id, limit=1000).events]


def feed(fleet: genlock.Coordinator) -> list[str]:
    """What has happened in the project, by the events' names."""
    return [event.event_type for event in fleet.read_events(limit=100_000).events]


def until(fleet: genlock.Coordinator, enough: Callable[[], bool]) -> None:
    """Waits for the project's feed to bring about what is wanted."""
    cursor = fleet.read_events(tail=True).cursor
    with suppress(StopIteration):
        events = fleet.watch(after=cursor, timeout_seconds=PATIENCE)
        while not enough():
            next(events)
    assert enough(), "the feed fell silent before it came to that"
