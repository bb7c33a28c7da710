"""Coordinators that are cut off from PostgreSQL in the midst of their commits, or closed: what each call was told, and what the feed has.

What was answered as done is there once. What was refused, or answered by an error that says that nothing was done, is not there. Only of
`OutcomeUnknown` nobody can tell. Every call can be told from all others by the event that it would write.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import genlock
from genlock.core import events as e
from genlock.core.codec import decode_event
from genlock.engine.check import check
from genlock.engine.commits import NOT_YET, Answer, Commit
from genlock.errors import GenlockError, OutcomeUnknown
from genlock.store import Committed, EventQuery, Store
from genlock.testing.concurrency import PATIENCE
from tests.servers.postgres import Postgres, running
from tests.servers.proxy import Proxy, between

COORDINATORS = 3
AGENTS = 4
DISTURBANCES = 60
SHARED = [f"shared-{number}" for number in range(6)]
PLACE = ("default", "default")

pytestmark = pytest.mark.slow


class Said(NamedTuple):
    """What came of a call: the event that it would have written, and whether it was said to be done. None: nobody knows."""

    event: Hashable
    done: bool | None
    words: str


class Crew:
    """Coordinators, each with a way of its own to the server, and agents that go on until they are told to stop."""

    def __init__(self, server: Postgres, place: Path, proxies: list[Proxy]) -> None:
        self._urls = [server.store_url(place, proxy.port) for proxy in proxies]
        self.fleets = [self._open(number) for number in range(COORDINATORS)]
        self.said: list[Said] = []
        self._heard = threading.Condition()
        self._over = threading.Event()
        self._numbers = count()
        self._threads = [
            threading.Thread(target=self._work, args=(number, random.Random(f"{number}.{agent}")))
            for number in range(COORDINATORS)
            for agent in range(AGENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _open(self, number: int) -> genlock.Coordinator:
        return genlock.connect(self._urls[number], deadline_seconds=(0.3, 1, 5)[number])

    def reopen(self, number: int) -> None:
        """Closes a coordinator in the midst of its work; its agents go on with another."""
        before, self.fleets[number] = self.fleets[number], self._open(number)
        before.close()

    def hear(self, more: int) -> None:
        """Returns when so many more calls were answered."""
        with self._heard:
            until = len(self.said) + more
            assert self._heard.wait_for(lambda: len(self.said) >= until, PATIENCE), "nobody is answered any more"

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        for fleet in self.fleets:
            fleet.close()

    def _call(self, event: Hashable, call: Callable[[], Any]) -> Any:
        answer, done, words = None, None, ""
        try:
            answer = call()
            done = getattr(answer, "success", getattr(answer, "accepted", True))
            words = str(getattr(answer, "reason", "added"))
        except OutcomeUnknown as error:
            words = str(error)
        except GenlockError as error:
            done, words = False, f"{type(error).__name__}: {error}"
        with self._heard:
            self.said.append(Said(event, done, words))
            self._heard.notify_all()
        return answer if done else None

    def _work(self, number: int, chance: random.Random) -> None:
        while not self._over.is_set():
            self._do_a_task(number, f"{number}.{next(self._numbers)}", chance)

    def _do_a_task(self, number: int, name: str, chance: random.Random) -> None:
        """A new task from its adding to its result, or one that others want too, which is given back."""
        fleets, own, session = self.fleets, f"own-{name}", f"s-{name}"
        # Whether a call can be known again by an id is to make no difference.
        operation = chance.choice([name, None])
        added = self._call((e.TaskAdded, own), lambda: fleets[number].add_tasks(tasks=[own]))
        task = own if added and chance.random() < 0.5 else chance.choice(SHARED)
        claim = self._call(
            (e.ClaimAcquired, session),
            lambda: fleets[number].claim_task(task_id=task, agent_id="agent", session_id=session, operation_id=operation),
        )
        if claim is None:
            return
        held: dict[str, Any] = {"task_id": task, "session_id": session}
        generation, lease = claim.claim.generation, 300 + next(self._numbers) / 100
        self._call(
            (e.LeaseRenewed, lease),
            lambda: fleets[number].renew_lease(expected_generation=generation, lease_duration_seconds=lease, **held),
        )
        if task == own:
            self._call(
                (e.ResultAccepted, session),
                lambda: fleets[number].submit_result(generation=generation, result_data=name, operation_id=operation, **held),
            )
        else:
            self._call(
                (e.ClaimReleased, session),
                lambda: fleets[number].release_claim(expected_generation=generation, operation_id=operation, **held),
            )


def what_it_is(event: object) -> Hashable:
    """What tells the call that wrote this event from all others; None for events of no call."""
    match event:
        case e.TaskAdded():
            return e.TaskAdded, event.task_id
        case e.LeaseRenewed():
            return e.LeaseRenewed, event.lease_duration_seconds
        case e.ClaimAcquired() | e.ClaimReleased() | e.ResultAccepted():
            return type(event), event.session_id
        case _:
            return None


def written(store: Store) -> Counter[Hashable]:
    """How often each call is in the feed."""
    found: Counter[Hashable] = Counter()
    cursor, more = None, True
    while more:
        page = store.read_events(EventQuery(*PLACE, after=cursor, limit=1000))
        found.update(what_it_is(decode_event(recorded.body).event) for recorded in page.events)
        cursor, more = page.cursor, page.more
    return found


@contextmanager
def nothing_written(server: Postgres, schema: str) -> Iterator[None]:
    """Commits are heard by the server, and wait until the block is over. Reads do not."""
    with psycopg.connect(server.address) as connection:
        connection.execute(f'LOCK TABLE "{schema}".record IN SHARE ROW EXCLUSIVE MODE')
        with psycopg.connect(server.address, autocommit=True) as looking:
            while looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
                pass
        yield
        connection.rollback()


def disturb(chance: random.Random, server: Postgres, schema: str, crew: Crew, proxies: list[Proxy]) -> None:
    number = chance.randrange(COORDINATORS)
    proxy = proxies[number]
    match chance.choice(["late", "late", "late", "cut", "answer", "every", "away", "close"]):
        case "late":
            with nothing_written(server, schema):
                asked = len(proxy.asked)
                for each in proxies:
                    each.cut()
                # Somebody comes to look what became of it, and does not find it; or finds it just then.
                pause = threading.Event()
                while len(proxy.asked) == asked and not pause.wait(0.001):
                    pass
        case "cut":
            proxy.cut()
        case "answer":
            proxy.cut_at_the_next_answer()
        case "every":
            proxy.cut_every(chance.choice([5, 11, 23]))
            crew.hear(20)
            proxy.cut_every(0)
        case "away":
            proxy.close()
            crew.hear(20)
            proxy.admit()
        case _:
            crew.reopen(number)
    crew.hear(chance.choice([5, 20, 40]))


@pytest.fixture
def found_out(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What was found out about changes of unknown outcome."""
    found: list[Answer] = []
    find_out = Commit._find_out

    def noted(*arguments: Any) -> Answer:
        found.append(find_out(*arguments))
        return found[-1]

    monkeypatch.setattr(Commit, "_find_out", noted)
    return found


def test_what_each_call_was_told_is_so(tmp_path: Path, found_out: list[Answer]) -> None:
    chance = random.Random(1)
    with running(fsync="off") as server, ExitStack() as stack:
        url = server.store_url(tmp_path)
        schema = url.split("schema=")[1]
        with genlock.connect(url) as fleet:
            fleet.add_tasks(tasks=SHARED)
        proxies = [stack.enter_context(between(server.port)) for _ in range(COORDINATORS)]
        crew = Crew(server, tmp_path, proxies)
        try:
            for _ in range(DISTURBANCES):
                disturb(chance, server, schema, crew, proxies)
        finally:
            crew.end()
        with psycopg.connect(server.address) as connection:
            # Whatever the server has heard and not carried out yet is before us.
            connection.execute(f'LOCK TABLE "{schema}".record IN ACCESS EXCLUSIVE MODE')
        store = genlock.open_store(url)
        there = written(store)
        assert check(store) == []
        store.close()
    assert [said for said in crew.said if said.done and there[said.event] != 1] == [], "it was said to be done"
    assert [said for said in crew.said if said.done is False and there[said.event]] == [], "it was said not to be done"
    assert [said for said in crew.said if there[said.event] > 1] == [], "it was done twice"
    assert any(answer is NOT_YET for answer in found_out), "no commit was looked for in vain"
    assert any(isinstance(answer, Committed) for answer in found_out), "no commit was done whose answer was lost"
