"""Requests that wait for a task: a key that ends meanwhile gets none, and nobody takes all
connections by waiting."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from genlock.core.keys import KEY, NOWHERE
from genlock.core.results import NewKey
from genlock.errors import KeyRefused, StoreUnavailable
from genlock.reads.reader import Reader
from genlock.service.api.long_poll import LOOK_SECONDS, Waiting
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.key_cache import KeyCache
from genlock.service.auth.session_access import SessionAccess
from genlock.service.compose import Choices
from genlock.service.request import HttpExchange
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import Home, raising
from tests.eventually import eventually
from tests.servers.service import PATIENCE_SECONDS, Service, serving
from tests.service.keyed import Keyed

PLACE = "/v1/default/default"
KEYS = Choices(keys=True)


class Poll(threading.Thread):
    """Waits for a task by one key; `answer` is what it was told."""

    def __init__(self, service: Service, key: str | None, session: str) -> None:
        super().__init__(daemon=True)
        self._service, self._key, self._session = service, key, session
        self.answer: tuple[int, Any] = (0, None)
        self.start()

    def run(self) -> None:
        headers = {} if self._key is None else {"authorization": f"Bearer {self._key}"}
        body = {"agent_id": "a", "session_id": self._session, "wait_seconds": 3600}
        with self._service.client() as client:
            answer = client.post(f"{PLACE}/claim-next", json=body, headers=headers)
        self.answer = answer.status_code, answer.json()

    def told(self) -> tuple[int, Any]:
        self.join(PATIENCE_SECONDS)
        return self.answer


def until_waiting(service: Service, number: int) -> None:
    """Returns when so many wait with the engine."""
    engine = service.coordinator.engine
    eventually(
        lambda: sum(waiters for _, waiters in engine.depths().values()) == number,
        f"{number} waiters with the engine",
    )


def make_key(service: Service, **more: Any) -> NewKey:
    return service.do(service.coordinator.create_key(name="ci", role="agent", **more))


def state(service: Service, task: str) -> str:
    return str(service.do(service.coordinator.get_task_state(task_id=task)).state)


def test_who_waits_by_a_key_that_is_revoked_is_told_so_and_gets_no_task() -> None:
    with serving(choices=KEYS) as service:
        kept, revoked = make_key(service), make_key(service)
        polls = [Poll(service, revoked.text, "s1"), Poll(service, revoked.text, "s2")]
        until_waiting(service, 2)
        other = Poll(service, kept.text, "s3")
        until_waiting(service, 3)
        service.do(service.coordinator.revoke_key(key_id=revoked.key.key_id))
        for poll in polls:
            status, said = poll.told()
            assert (status, said["code"]) == (401, "KEY_REFUSED")
        until_waiting(service, 1)
        service.do(service.coordinator.add_tasks(tasks=["t"]))
        assert other.told()[1]["task_id"] == "t", "of two keys the other one waits on"


def test_who_waits_by_a_key_that_expires_is_told_so() -> None:
    clock = ManualClock()
    with serving(clock=clock, choices=KEYS) as service:
        key = make_key(service, expires_at=clock.now().replace(year=clock.now().year + 1))
        poll = Poll(service, key.text, "s1")
        until_waiting(service, 1)
        clock.advance(2 * 366 * 86400)
        status, said = poll.told()
        assert (status, said["code"]) == (401, "KEY_REFUSED")
        service.do(service.coordinator.add_tasks(tasks=["t"]))
        assert state(service, "t") == "PENDING"


def test_who_waits_for_a_session_that_gets_a_key_of_its_own_waits_no_longer() -> None:
    with serving(choices=KEYS) as service:
        poll = Poll(service, make_key(service).text, "s1")
        until_waiting(service, 1)
        make_key(service, session_id="s1")
        status, said = poll.told()
        assert (status, said["code"]) == (403, "ROLE_REFUSED")


def test_of_many_who_wait_only_who_has_the_key_that_is_revoked_is_told_so() -> None:
    with serving(choices=KEYS) as service:
        keys = [make_key(service) for _ in range(40)]
        polls = [Poll(service, key.text, f"s{number}") for number, key in enumerate(keys)]
        until_waiting(service, len(polls))
        service.do(service.coordinator.revoke_key(key_id=keys[0].key.key_id))
        assert polls[0].told()[0] == 401
        assert all(poll.is_alive() for poll in polls[1:])


class Stage(Keyed):
    """Those who wait, without HTTP."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.key_cache, self.acting = (
            KeyCache(Reader(self.engine)),
            SessionAccess(Reader(self.engine)),
        )
        self.acting.on_change.append(self.key_cache.forget)
        self.authenticator = Authenticator(self.key_cache.find, None, self.key_cache)
        self.waiting = Waiting(
            self.authenticator, self.acting, asyncio.Event(), 1000, look_seconds=0
        )

    async def come(self, text: str) -> HttpExchange:
        """Somebody who is let in."""
        headers = {b"authorization": f"Bearer {text}".encode()}
        exchange = HttpExchange({"type": "http"}, headers, "1")
        exchange.grant = await self.authenticator.admit(headers)
        return exchange

    def wait(self, exchange: HttpExchange) -> asyncio.Task[Any]:
        """Waits for what never comes."""
        never = asyncio.get_running_loop().create_future
        return asyncio.create_task(
            self.waiting.wait(lambda: never(), exchange, "acme", "s1", lambda: never())
        )

    async def looks(self, number: int) -> list[int]:
        """So many looks later: how many keys were loaded by each load since."""
        done, before = asyncio.Semaphore(0), len(self.store.calls)
        loop = asyncio.get_running_loop()
        seen = lambda: loop.call_soon_threadsafe(done.release)  # noqa: E731
        self.store.on(
            "read_events", when=lambda given: given.tenant == NOWHERE, after=seen, times=number
        )
        for _ in range(number):
            await asyncio.wait_for(done.acquire(), PATIENCE_SECONDS)
        calls = self.store.calls[before:]
        return [
            len(given)
            for method, given in calls
            if method == "load" and given and given[0].kind == KEY
        ]


@pytest.fixture
def stage(home: Home) -> Stage:
    return Stage(home)


def test_while_nothing_happens_to_keys_none_is_loaded_however_many_wait(stage: Stage) -> None:
    keys = [stage.key() for _ in range(30)]

    async def scenario() -> None:
        waiting = [stage.wait(await stage.come(key.text)) for key in keys]
        await stage.looks(3)
        assert await stage.looks(10) == []
        await asyncio.to_thread(stage.admin.revoke_key, key_id=keys[3].key.key_id)
        with pytest.raises(KeyRefused, match="not good"):
            await asyncio.wait_for(waiting[3], PATIENCE_SECONDS)
        assert [task.done() for task in waiting] == [number == 3 for number in range(30)]
        for task in waiting:
            task.cancel()

    asyncio.run(scenario())


def test_a_key_that_is_revoked_counts_within_a_second_for_who_waits_however_many_do(
    stage: Stage,
) -> None:
    """There is a look in every second, and the first one that begins after the revocation is
    enough."""
    assert inspect.signature(Waiting).parameters["look_seconds"].default == LOOK_SECONDS < 1
    keys = [stage.key() for _ in range(40)]
    first, second = stage.home.stop(), stage.home.stop()

    async def scenario() -> None:
        waiting = [stage.wait(await stage.come(key.text)) for key in keys]
        await stage.looks(3)
        before = len(stage.store.calls)
        for stop in (first, second):
            stage.store.on("read_events", when=lambda given: given.tenant == NOWHERE, before=stop)
        await asyncio.to_thread(first.wait)
        await asyncio.to_thread(stage.admin.revoke_key, key_id=keys[0].key.key_id)
        first.open()
        with pytest.raises(KeyRefused, match="not good"):
            await asyncio.wait_for(waiting[0], PATIENCE_SECONDS)
        await asyncio.to_thread(
            second.wait
        )  # the next look has come as far as the gate, and no farther
        looked = [
            given
            for method, given in stage.store.calls[before:]
            if method == "read_events" and given.tenant == NOWHERE
        ]
        assert len(looked) == 1
        assert [task.done() for task in waiting] == [True] + [False] * 39
        second.open()
        for task in waiting:
            task.cancel()

    asyncio.run(scenario())


def test_who_is_let_in_by_a_key_that_is_revoked_before_it_begins_to_wait_is_told_so(
    stage: Stage,
) -> None:
    key = stage.key()

    async def scenario() -> None:
        await stage.acting.look()
        late = await stage.come(key.text)  # and its body is still to come
        await asyncio.to_thread(stage.admin.revoke_key, key_id=key.key.key_id)
        await stage.acting.look()
        with pytest.raises(KeyRefused, match="not good"):
            await asyncio.wait_for(stage.wait(late), PATIENCE_SECONDS)

    asyncio.run(scenario())


def test_a_store_that_is_away_when_a_key_was_revoked_is_asked_again(stage: Stage) -> None:
    key = stage.key()
    stage.engine.deadline_seconds = 0

    async def scenario() -> None:
        waits = stage.wait(await stage.come(key.text))
        await stage.looks(3)
        stage.store.on(
            "load", when=lambda keys: bool(keys), before=raising(StoreUnavailable("away")), times=4
        )
        await asyncio.to_thread(stage.admin.revoke_key, key_id=key.key.key_id)
        with pytest.raises(KeyRefused, match="not good"):
            await asyncio.wait_for(waits, PATIENCE_SECONDS)

    asyncio.run(scenario())


def test_a_tenant_s_waiting_requests_may_take_half_of_the_connections() -> None:
    with serving(choices=Choices(connections=4)) as service:
        polls = [Poll(service, None, f"s{number}") for number in range(2)]
        until_waiting(service, 2)
        status, said = Poll(service, None, "one-more").told()
        assert (status, said["code"]) == (429, "TOO_MANY_REQUESTS")
        assert "limit tenant_waiting" in said["detail"]
        asked = {"agent_id": "a", "session_id": "s", "wait_seconds": 0}
        assert service.http.post(f"{PLACE}/claim-next", json=asked).status_code == 200, (
            "who does not wait is answered"
        )
        service.do(service.coordinator.add_tasks(tasks=["t0", "t1"]))
        assert [poll.told()[0] for poll in polls] == [200, 200]
        service.do(service.coordinator.add_tasks(tasks=["t2"]))
        assert Poll(service, None, "again").told()[1]["task_id"] == "t2", (
            "who has left is not counted"
        )
