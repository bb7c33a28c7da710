"""Coordinators that are cut off from their server in the midst of their commits, or closed: what
each call was told, and what the feed has.

What was answered as done is there once. What was refused, or answered by an error that says that
nothing was done, is not there. Only of `OutcomeUnknown` nobody can tell. Every call can be told
from all others by the event that it would write.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import genlock
from genlock.core import events as e
from genlock.core.codec import decode_event
from genlock.engine.commit import NOT_YET, Answer, BatchCommit
from genlock.engine.replay_check import check
from genlock.errors import GenlockError, OutcomeUnknown
from genlock.store import Committed, EventQuery, Store
from genlock.stores.dynamodb import calls
from genlock.testing.concurrency import PATIENCE
from tests.eventually import eventually
from tests.servers.proxy import Proxy, between
from tests.servers.stores import LASTING, SERVERS

COORDINATORS = 3
AGENTS = 4
DISTURBANCES = 60
SHARED = [f"shared-{number}" for number in range(6)]
PLACE = ("default", "default")
SHORT, LONG = 1.0, 300.0
"""Seconds of leases."""
COMMIT = b'"event_type"'
"""What is in a commit on its way to the server, and in no other request."""

pytestmark = pytest.mark.slow


class Said(NamedTuple):
    """What came of a call: the event that it would have written, and whether it was said to be
    done. None: nobody knows."""

    event: Hashable
    done: bool | None
    words: str


class Crew:
    """Coordinators, each with a way of its own to the server, and agents that go on until they are
    told to stop."""

    def __init__(self, urls: list[str], slowness: int) -> None:
        self._urls = urls
        self._slowness = slowness
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
        return genlock.connect(
            self._urls[number], create=True, deadline_seconds=(0.3, 1, 5)[number] * self._slowness
        )

    def reopen(self, number: int) -> None:
        """Closes a coordinator in the midst of its work; its agents go on with another."""
        before, self.fleets[number] = self.fleets[number], self._open(number)
        before.close()

    def hear(self, more: int) -> None:
        """Returns when so many more calls were answered."""
        with self._heard:
            until = len(self.said) + more
            assert self._heard.wait_for(lambda: len(self.said) >= until, PATIENCE), (
                "nobody is answered any more"
            )

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
        """A new task from its adding to its result, or one that others want too, which is given
        back."""
        fleets, own, session = self.fleets, f"own-{name}", f"s-{name}"
        # Whether a call can be known again by an id is to make no difference.
        operation = chance.choice([name, None])
        added = self._call((e.TaskAdded, own), lambda: fleets[number].add_tasks(tasks=[own]))
        task = own if added and chance.random() < 0.5 else chance.choice(SHARED)
        claim = self._call(
            (e.ClaimAcquired, session),
            lambda: fleets[number].claim_task(
                task_id=task, agent_id="agent", session_id=session, operation_id=operation
            ),
        )
        if claim is None:
            return
        held: dict[str, Any] = {"task_id": task, "session_id": session}
        generation = claim.claim.generation
        # A lease that is made short may be over before it is made long again; nobody else wants
        # this task.
        for seconds in (SHORT, LONG) if task == own else (LONG,):
            lease = seconds + next(self._numbers) / 1e6
            renew = partial(
                fleets[number].renew_lease,
                expected_generation=generation,
                lease_duration_seconds=lease,
                **held,
            )
            if self._call((e.LeaseRenewed, lease), renew) is None:
                # And nothing that he does from now on keeps the renewal from being done after all
                return
        if task == own:
            self._call(
                (e.ResultAccepted, session),
                lambda: fleets[number].submit_result(
                    generation=generation, result_data=name, operation_id=operation, **held
                ),
            )
        else:
            self._call(
                (e.ClaimReleased, session),
                lambda: fleets[number].release_claim(
                    expected_generation=generation, operation_id=operation, **held
                ),
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


def disturb(chance: random.Random, commit: bytes, crew: Crew, proxies: list[Proxy]) -> None:
    number = chance.randrange(COORDINATORS)
    proxy = proxies[number]
    match chance.choice(["late", "late", "late", "cut", "answer", "every", "away", "close"]):
        case "late":
            proxy.hold_up(commit)
            assert proxy.held_up.wait(PATIENCE), "nobody commits any more"
            proxy.close()
            # Meanwhile short leases run out, and whoever asks again by himself gives up.
            threading.Event().wait(chance.choice([0, 1.2 * SHORT]))
            asked = len(proxy.asked)
            proxy.admit()
            # A caller looks for the outcome and does not find it, or finds it just then.
            eventually(lambda: len(proxy.asked) > asked, "a caller that looks for the outcome")
            crew.hear(chance.choice([0, 1, 20]))
            proxy.let_through()
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
    find_out = BatchCommit._find_out

    def noted(*arguments: Any) -> Answer:
        found.append(find_out(*arguments))
        return found[-1]

    monkeypatch.setattr(BatchCommit, "_find_out", noted)
    return found


@pytest.mark.parametrize("kind", SERVERS)
def test_what_each_call_was_told_is_so(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found_out: list[Answer],
) -> None:
    monkeypatch.setattr(calls, "PATIENCE_SECONDS", 0.3)  # so that it is the engine that asks again
    with ExitStack() as stack:
        own = LASTING[kind].own
        server: Any = (
            stack.enter_context(own())
            if own is not None
            else request.getfixturevalue(str(LASTING[kind].server))
        )
        url = server.store_url(tmp_path)
        with genlock.connect(url, create=True) as fleet:
            fleet.add_tasks(tasks=SHARED)
        proxies = [stack.enter_context(between(server.port)) for _ in range(COORDINATORS)]
        crew = Crew(
            [server.store_url(tmp_path, proxy.port) for proxy in proxies], LASTING[kind].slowness
        )
        chance = random.Random(1)
        try:
            for _ in range(DISTURBANCES):
                disturb(
                    chance, COMMIT if kind != "dynamodb" else b"TransactWriteItems", crew, proxies
                )
        finally:
            crew.end()
        if own is not None:
            # Whatever it has heard and not carried out yet is not carried out any more. (On
            # DynamoDB nothing comes behind who has read.)
            server.stop()
            server.start()
        store = genlock.open_store(url, create=True)
        there = written(store)
        assert check(store) == []
        store.close()
    assert [said for said in crew.said if said.done and there[said.event] != 1] == [], (
        "it was said to be done"
    )
    assert [said for said in crew.said if said.done is False and there[said.event]] == [], (
        "it was said not to be done"
    )
    assert [said for said in crew.said if there[said.event] > 1] == [], "it was done twice"
    assert any(answer is NOT_YET for answer in found_out), "no commit was looked for in vain"
    assert any(isinstance(answer, Committed) for answer in found_out), (
        "no commit was done whose answer was lost"
    )
