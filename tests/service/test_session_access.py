"""For whom a caller may act: a session that has a key of its own is acted for by that key or an
operator, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from genlock.core.key_roles import Role
from genlock.core.keys import KEY, NOWHERE
from genlock.core.results import NewKey
from genlock.errors import RoleRefused, StoreUnavailable
from genlock.service.auth.key_cache import FRESH_SECONDS
from genlock.service.auth.permissions import OPEN, Grant
from genlock.service.auth.session_access import SessionAccess, is_own
from tests.engine.gated_store import PATIENCE, GatedStore, Home, raising

AGENT = Grant("a", "ann", "acme", "*", Role.AGENT)
OWN = Grant("b", "bob", "acme", "*", Role.AGENT, "s1")
OTHER = Grant("c", "eve", "acme", "*", Role.AGENT, "s2")
OPERATOR = Grant("d", "olga", "acme", "*", Role.OPERATOR)


class Bench:
    """The rule on a store with gates, and an admin elsewhere who makes keys."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.store: GatedStore = home.gated()
        self.admin = home.connect(tenant_id="acme")
        self.seconds = 1000.0
        self.acting = SessionAccess(home.connect(self.store).reader, lambda: self.seconds)

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.home.clock.advance(seconds)

    def key(self, session: str, **more: Any) -> NewKey:
        return self.admin.create_key(name="ci", role="agent", session_id=session, **more)

    @property
    def looks(self) -> int:
        return len(
            [
                given
                for method, given in self.store.calls
                if method == "read_events" and given.tenant == NOWHERE
            ]
        )

    @property
    def readings(self) -> int:
        """Of all keys."""
        return len(
            [given for method, given in self.store.calls if method == "find" and given.kind == KEY]
        )

    async def may(self, grant: Grant, session: str | None, tenant: str = "acme") -> bool:
        try:
            await self.acting.check(grant, tenant, session)
        except RoleRefused:
            return False
        return True


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    home = Home(request.param, tmp_path)
    try:
        yield Bench(home)
    finally:
        home.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 3 * PATIENCE))


def test_its_own_key_acts_for_a_session_and_an_operator_s_for_all() -> None:
    assert [is_own(OWN, session) for session in ("s1", "s2", "", None)] == [
        True,
        False,
        False,
        False,
    ]
    assert all(is_own(grant, session) for grant in (OPERATOR, OPEN) for session in ("s1", None))
    assert not any(is_own(AGENT, session) for session in ("s1", None))


def test_a_session_with_a_key_of_its_own_is_acted_for_by_that_one_and_operators_alone(
    bench: Bench,
) -> None:
    bench.key("s1")

    async def scenario() -> None:
        assert [await bench.may(grant, "s1") for grant in (AGENT, OWN, OTHER, OPERATOR, OPEN)] == [
            False,
            True,
            False,
            True,
            True,
        ]
        assert [await bench.may(grant, "free") for grant in (AGENT, OWN, OTHER, OPERATOR)] == [
            True,
            False,
            False,
            True,
        ]
        assert await bench.may(AGENT, None), (
            "that a session is missing is for the coordinator to say"
        )
        assert not await bench.may(OWN, None)

    run(scenario)


def test_what_is_refused_is_said_with_what_to_do(bench: Bench) -> None:
    bench.key("s1")

    async def scenario() -> None:
        with pytest.raises(
            RoleRefused,
            match=r"session 's1' has a key of its own; act with that one, or with an operator's",
        ):
            await bench.acting.check(AGENT, "acme", "s1")
        with pytest.raises(RoleRefused, match="this key acts for session 's1' alone"):
            await bench.acting.check(OWN, "acme", "s2")

    run(scenario)


def test_another_tenant_s_session_of_the_same_name_is_another(bench: Bench) -> None:
    bench.key("s1")

    async def scenario() -> None:
        assert await bench.may(AGENT, "s1", "globex")

    run(scenario)


def test_it_is_read_once_in_half_a_second_and_only_if_it_matters(bench: Bench) -> None:
    bench.key("s1")

    async def scenario() -> None:
        for grant in (OWN, OTHER, OPERATOR, OPEN):
            await bench.may(grant, "s1")
        assert bench.looks == 0
        for _ in range(100):
            await bench.may(AGENT, "s1")
            await bench.may(AGENT, "free")
        assert bench.looks == 1
        bench.pass_time(FRESH_SECONDS)
        await asyncio.gather(*(bench.may(AGENT, "s1") for _ in range(100)))
        assert bench.looks == 2

    run(scenario)


def test_a_key_that_is_made_or_revoked_or_ends_counts_within_half_a_second(bench: Bench) -> None:
    async def scenario() -> None:
        assert await bench.may(AGENT, "s1")
        new = await asyncio.to_thread(bench.key, "s1")
        bench.pass_time(FRESH_SECONDS)
        assert not await bench.may(AGENT, "s1")
        await asyncio.to_thread(bench.admin.revoke_key, key_id=new.key.key_id)
        bench.pass_time(FRESH_SECONDS)
        assert await bench.may(AGENT, "s1")
        await asyncio.to_thread(bench.key, "s1", expires_in_seconds=1)
        bench.pass_time(FRESH_SECONDS)
        assert not await bench.may(AGENT, "s1")
        bench.pass_time(FRESH_SECONDS - 0.001)
        assert not await bench.may(AGENT, "s1")
        bench.pass_time(0.001)
        assert await bench.may(AGENT, "s1")

    run(scenario)


def test_who_wants_to_know_is_told_which_keys_have_changed_as_soon_as_that_is_read(
    bench: Bench,
) -> None:
    told: list[frozenset[str] | None] = []
    bench.acting.on_change.append(told.append)

    async def scenario() -> None:
        await bench.acting.look()
        new = await asyncio.to_thread(bench.key, "s1")
        assert bench.acting.is_shut_out(AGENT, "acme", "s1") is False
        await bench.acting.look()
        await bench.acting.look()
        assert told == [None, {new.key.key_id}]
        shut_out = [
            bench.acting.is_shut_out(grant, "acme", "s1") for grant in (AGENT, OWN, OTHER, OPERATOR)
        ]
        assert shut_out == [True, False, True, False]
        assert not bench.acting.is_shut_out(AGENT, "acme", None)
        assert bench.readings == 1, "all keys are read once"

    run(scenario)


def test_of_several_keys_of_a_session_the_last_counts(bench: Bench) -> None:
    for ends in ({"expires_in_seconds": 1}, {}, {"expires_in_seconds": 5}):
        bench.key("s1", **ends)
    for seconds in (5, 9, 1):
        bench.key("s2", expires_in_seconds=seconds)
    bench.pass_time(8)

    async def scenario() -> None:
        assert not await bench.may(AGENT, "s1")
        assert not await bench.may(AGENT, "s2")
        bench.pass_time(1)
        assert await bench.may(AGENT, "s2")

    run(scenario)


def test_who_comes_while_it_is_read_too_long_ago_waits_for_the_next_look(bench: Bench) -> None:
    stop = bench.home.stop()
    bench.store.on("find", after=stop)

    async def scenario() -> None:
        early = asyncio.create_task(bench.may(AGENT, "s1"))
        await asyncio.to_thread(stop.wait)
        # The store has answered, and its answer is on its way for a long time.
        await asyncio.to_thread(bench.key, "s1")
        bench.pass_time(FRESH_SECONDS)
        late = [asyncio.create_task(bench.may(AGENT, "s1")) for _ in range(3)]
        await asyncio.sleep(0)
        stop.open()
        assert await early, "it came before the key"
        assert [await each for each in late] == [False] * 3
        assert bench.looks == 2

    run(scenario)


def test_who_goes_away_takes_the_answer_from_nobody_else(bench: Bench) -> None:
    bench.key("s1")
    stop = bench.home.stop()
    bench.store.on("find", before=stop)

    async def scenario() -> None:
        gone, stays = (asyncio.create_task(bench.may(AGENT, "s1")) for _ in range(2))
        await asyncio.to_thread(stop.wait)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        stop.open()
        assert not await stays
        assert bench.looks == 1

    run(scenario)


def test_a_store_that_is_away_lets_nobody_act_and_the_next_look_is_a_new_one(bench: Bench) -> None:
    bench.acting._reader._engine.deadline_seconds = 0
    bench.store.on("find", before=raising(StoreUnavailable("the server is away")))

    async def scenario() -> None:
        answers = await asyncio.gather(
            *(bench.may(AGENT, "s1") for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(answer, StoreUnavailable) for answer in answers)
        assert await bench.may(AGENT, "s1")

    run(scenario)
