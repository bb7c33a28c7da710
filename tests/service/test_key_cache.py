"""The keyring: what a key admits is known at the cost of a hash, and no request is let in by what
was read half a second before it came."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.core.key_roles import FRESH_BYTES, compose, parse_key, write_key
from genlock.core.keys import KEY
from genlock.core.results import NewKey
from genlock.errors import BadArgument, StoreUnavailable
from genlock.reads.keys import has_active_key
from genlock.reads.reader import Reader
from genlock.service.auth import key_cache as module
from genlock.service.auth.key_cache import FRESH_SECONDS, KeyCache
from genlock.service.auth.permissions import Grant
from tests.cli.console import run as command
from tests.engine.gated_store import PATIENCE, Home, raising
from tests.service.keyed import Keyed


class Hand:
    """A monotonic clock that moves by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Bench(Keyed):
    """A keyring, and a clock for it."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.clock = Hand()
        self.ring = KeyCache(Reader(self.engine), self.clock)

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.home.clock.advance(seconds)

    @property
    def loads(self) -> list[int]:
        """How many keys each load was for."""
        return [
            len(given)
            for method, given in self.store.calls
            if method == "load" and given and given[0].kind == KEY
        ]

    @asynccontextmanager
    async def held_up(self) -> AsyncIterator[None]:
        """The next load stands still, from when it has begun until this is over."""
        stop = self.home.stop()
        self.store.on("load", before=stop)
        arrived = asyncio.get_running_loop().run_in_executor(None, stop.wait)
        try:
            yield
            await arrived
        finally:
            stop.open()


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    home = Home(request.param, tmp_path)
    try:
        yield Bench(home)
    finally:
        home.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 3 * PATIENCE))


async def begun(*calls: Coroutine[Any, Any, Grant | None]) -> list[asyncio.Task[Grant | None]]:
    """Calls that have gone as far as they can without the store."""
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    return tasks


def made_up(number: int) -> str:
    """A key that nobody has made, though it looks like one."""
    return write_key(compose((number << 160).to_bytes(FRESH_BYTES)))


def test_a_good_key_gives_what_it_admits(bench: Bench) -> None:
    new = bench.key(projects="team-*", session_id="s1")

    async def scenario() -> None:
        grant = await bench.ring.find(new.text)
        assert grant == Grant(new.key.key_id, "ci", "acme", "team-*", new.key.role, "s1")
        assert parse_key(new.text).secret not in repr(grant)

    run(scenario)


def test_a_key_that_nobody_has_made_gives_nothing_and_is_looked_for_once(bench: Bench) -> None:
    async def scenario() -> None:
        for _ in range(100):
            assert await bench.ring.find(made_up(7)) is None
        assert bench.loads == [1]

    run(scenario)


def test_another_secret_for_a_key_that_there_is_gives_nothing_and_costs_no_load(
    bench: Bench,
) -> None:
    new = bench.key()

    async def scenario() -> None:
        assert await bench.ring.find(new.text) is not None
        for number in range(100):
            guess = compose(number.to_bytes(FRESH_BYTES), new.key.key_id)
            assert await bench.ring.find(write_key(guess)) is None
        assert bench.loads == [1]

    run(scenario)


@pytest.mark.parametrize("wrong", ["", "hunter2", "glk_", "Bearer x"])
def test_what_is_no_key_is_refused_without_a_look_and_without_being_repeated(
    bench: Bench, wrong: str
) -> None:
    async def scenario() -> None:
        with pytest.raises(BadArgument, match="this is no key") as refused:
            await bench.ring.find(wrong)
        assert "hunter2" not in str(refused.value)
        assert bench.loads == []

    run(scenario)


def test_what_was_loaded_counts_for_half_a_second(bench: Bench) -> None:
    new = bench.key()

    async def scenario() -> None:
        for _ in range(5):
            assert await bench.ring.find(new.text) is not None
            bench.pass_time(FRESH_SECONDS / 5 - 0.001)
        assert bench.loads == [1]
        bench.pass_time(0.01)
        assert await bench.ring.find(new.text) is not None
        assert bench.loads == [1, 1]

    run(scenario)


def test_a_revocation_by_another_coordinator_is_heeded_within_a_second_while_requests_keep_coming(
    bench: Bench,
) -> None:
    new = bench.key()

    async def scenario() -> None:
        admitted = []
        for tenth in range(30):
            if tenth == 10:
                await asyncio.to_thread(bench.admin.revoke_key, key_id=new.key.key_id)
            admitted.append(await bench.ring.find(new.text) is not None)
            bench.pass_time(0.1)
        assert all(admitted[:10])
        refused_at = admitted.index(False)
        assert refused_at <= 15, "half a second after the tenth tenth"
        assert not any(admitted[refused_at:])

    run(scenario)


def test_a_key_made_after_it_was_looked_for_in_vain_is_good_within_a_second(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = bytes(range(FRESH_BYTES))
    monkeypatch.setattr("genlock.coordinator.key_ops.os.urandom", lambda size: fresh)

    async def scenario() -> None:
        text = write_key(compose(fresh))
        assert await bench.ring.find(text) is None
        assert (await asyncio.to_thread(bench.key)).text == text
        assert await bench.ring.find(text) is None
        bench.pass_time(FRESH_SECONDS)
        assert await bench.ring.find(text) is not None

    run(scenario)


def test_two_replicas_on_one_store_heed_a_revocation_without_being_told(bench: Bench) -> None:
    new = bench.key()
    other = KeyCache(bench.home.connect().reader, bench.clock)

    async def scenario() -> None:
        assert await bench.ring.find(new.text) == await other.find(new.text) is not None
        await asyncio.to_thread(bench.admin.revoke_key, key_id=new.key.key_id)
        bench.pass_time(FRESH_SECONDS)
        assert [await ring.find(new.text) for ring in (bench.ring, other)] == [None, None]

    run(scenario)


def test_a_key_ends_by_the_clock_of_the_store_and_not_only_when_it_is_loaded(bench: Bench) -> None:
    new = bench.key(expires_in_seconds=10.2)

    async def scenario() -> None:
        bench.pass_time(10)
        assert await bench.ring.find(new.text) is not None
        bench.pass_time(0.19)
        assert await bench.ring.find(new.text) is not None
        bench.pass_time(0.02)
        assert await bench.ring.find(new.text) is None
        assert bench.loads == [1]

    run(scenario)


def test_the_text_before_a_rotation_is_taken_for_its_overlap(bench: Bench) -> None:
    old = bench.key()
    new = bench.admin.rotate_key(key_id=old.key.key_id, overlap_seconds=10)

    async def scenario() -> None:
        assert [await bench.ring.find(each.text) is not None for each in (old, new)] == [True, True]
        bench.pass_time(10)
        assert [await bench.ring.find(each.text) is not None for each in (old, new)] == [
            False,
            True,
        ]

    run(scenario)


# Loads


def test_all_who_wait_for_a_key_wait_for_one_load(bench: Bench) -> None:
    new = bench.key()

    async def scenario() -> None:
        async with bench.held_up():
            waiting = await begun(*(bench.ring.find(new.text) for _ in range(200)))
            assert not any(task.done() for task in waiting)
        assert None not in await asyncio.gather(*waiting)
        assert bench.loads == [1]

    run(scenario)


def test_a_flood_of_keys_that_nobody_has_made_is_loaded_in_few_pieces_one_after_the_other(
    bench: Bench,
) -> None:
    new = bench.key()
    at_once, most = 0, 0
    lock = threading.Lock()

    def enter() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)

    def leave() -> None:
        nonlocal at_once
        with lock:
            at_once -= 1

    async def scenario() -> None:
        async with bench.held_up():
            first = await begun(bench.ring.find(made_up(0)))
            flood = await begun(
                *(bench.ring.find(made_up(number)) for number in range(1, 1201)),
                bench.ring.find(new.text),
            )
            bench.store.on("load", before=enter, after=leave, times=100)
        assert await asyncio.gather(*first, *flood[:-1]) == [None] * 1201
        assert await flood[-1] is not None
        assert bench.loads == [1, 500, 500, 201]
        assert most == 1

    run(scenario)


def test_what_is_remembered_of_keys_that_nobody_has_made_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UNKNOWN", 10)
    new = bench.key()

    async def scenario() -> None:
        assert await bench.ring.find(new.text) is not None
        await asyncio.gather(*(bench.ring.find(made_up(number)) for number in range(100)))
        assert len(bench.ring._unknown) == 10
        # What is known has a place of its own: no flood drives it out.
        before = len(bench.loads)
        assert await bench.ring.find(new.text) is not None
        assert len(bench.loads) == before

    run(scenario)


def test_who_comes_when_a_load_has_taken_long_does_not_trust_it(bench: Bench) -> None:
    new = bench.key()

    async def scenario() -> None:
        stop = bench.home.stop()
        bench.store.on("load", after=stop)
        early = await begun(bench.ring.find(new.text))
        # The store has answered, and its answer is on its way for a long time.
        await asyncio.to_thread(stop.wait)
        await asyncio.to_thread(bench.admin.revoke_key, key_id=new.key.key_id)
        bench.pass_time(FRESH_SECONDS)
        late = await begun(bench.ring.find(new.text))
        stop.open()
        assert (await early[0]) is not None, "it came before the revocation"
        assert (await late[0]) is None
        assert bench.loads == [1, 1]

    run(scenario)


def test_what_was_forgotten_is_loaded_again_and_the_rest_is_not(bench: Bench) -> None:
    one, two = bench.key(), bench.key()

    async def scenario() -> None:
        assert None not in [await bench.ring.find(key.text) for key in (one, two)]
        await asyncio.to_thread(bench.admin.revoke_key, key_id=one.key.key_id)
        bench.ring.forget({one.key.key_id})
        assert [await bench.ring.find(key.text) is None for key in (one, two)] == [True, False]
        assert bench.loads == [1, 1, 1]
        bench.ring.forget(None)
        await bench.ring.expect([one.text, two.text])
        assert bench.loads == [1, 1, 1, 2]

    run(scenario)


def test_a_load_that_is_under_way_when_its_key_is_forgotten_counts_for_nobody_who_comes_then(
    bench: Bench,
) -> None:
    new = bench.key()

    async def scenario() -> None:
        stop = bench.home.stop()
        bench.store.on("load", after=stop)
        early = await begun(bench.ring.find(new.text))
        await asyncio.to_thread(stop.wait)  # the store has answered
        await asyncio.to_thread(bench.admin.revoke_key, key_id=new.key.key_id)
        bench.ring.forget({new.key.key_id})
        late = await begun(bench.ring.find(new.text))
        stop.open()
        assert (await early[0]) is not None, "it came before the revocation"
        assert (await late[0]) is None
        assert (await bench.ring.find(new.text)) is None

    run(scenario)


def test_of_a_load_that_was_under_way_nothing_is_kept_of_a_key_that_was_forgotten(
    bench: Bench,
) -> None:
    new, other = bench.key(), bench.key()

    async def scenario() -> None:
        stop = bench.home.stop()
        bench.store.on("load", after=stop)
        early = await begun(bench.ring.find(new.text))
        await asyncio.to_thread(stop.wait)
        queued = await begun(bench.ring.find(other.text))
        await asyncio.to_thread(bench.admin.revoke_key, key_id=new.key.key_id)
        bench.ring.forget(None)
        stop.open()
        await asyncio.gather(*early, *queued)
        assert (await bench.ring.find(new.text)) is None, (
            "although what was loaded is not half a second old"
        )

    run(scenario)


def test_when_a_key_ends_is_known_without_a_look(bench: Bench) -> None:
    never, soon = bench.key(), bench.key(expires_in_seconds=60)
    rotated = bench.admin.rotate_key(key_id=never.key.key_id, overlap_seconds=10)
    now = bench.home.clock.now()

    async def scenario() -> None:
        for key in (never, soon, rotated):
            assert await bench.ring.find(key.text) is not None
        ends = [bench.ring.end_of(key.text) for key in (never, soon, rotated)]
        assert ends == [now + timedelta(seconds=10), now + timedelta(seconds=60), None]
        unknown = bench.ring.end_of(made_up(1))
        assert unknown is not None
        assert unknown < now, "of which nothing is known is to be looked at"

    run(scenario)


def test_who_goes_away_takes_the_answer_from_nobody_else(bench: Bench) -> None:
    new = bench.key()

    async def scenario() -> None:
        async with bench.held_up():
            gone, stays = await begun(bench.ring.find(new.text), bench.ring.find(new.text))
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
        assert await stays is not None

    run(scenario)


def test_a_store_that_is_away_lets_nobody_in_and_the_next_load_is_a_new_one(bench: Bench) -> None:
    new = bench.key()
    bench.service.engine.deadline_seconds = 0

    async def scenario() -> None:
        assert await bench.ring.find(new.text) is not None
        bench.pass_time(FRESH_SECONDS)
        bench.store.on("load", before=raising(StoreUnavailable("the server is away")))
        for answer in await asyncio.gather(
            *(bench.ring.find(new.text) for _ in range(3)), return_exceptions=True
        ):
            assert isinstance(answer, StoreUnavailable)
            assert new.text not in str(answer)
        assert await bench.ring.find(new.text) is not None

    run(scenario)


# Are there any?


def test_a_store_has_keys_if_one_of_them_opens_something(bench: Bench) -> None:
    reader = bench.service.reader
    assert not has_active_key(reader)
    revoked = bench.key()
    assert has_active_key(reader)
    bench.admin.revoke_key(key_id=revoked.key.key_id)
    bench.key(expires_in_seconds=5)
    assert has_active_key(reader)
    bench.pass_time(5)
    assert not has_active_key(reader)
    bench.key("ops", "admin", tenant_id="*")
    assert has_active_key(reader)


def test_a_keyring_on_a_store_file_that_another_process_writes_to(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/genlock.db"
    with genlock.connect(url, create=True) as service:
        new = service.create_key(name="ci", role="agent")
        clock = Hand()
        ring = KeyCache(Reader(service.engine), clock)

        async def scenario() -> None:
            assert await ring.find(new.text) is not None
            revoked = await asyncio.to_thread(
                command, "keys", "revoke", new.key.key_id, "--url", url, cwd=tmp_path
            )
            assert revoked.code == 0, revoked.err
            clock.seconds += FRESH_SECONDS - 0.001
            assert await ring.find(new.text) is not None, (
                "what was read counts for as long as that, by the clock that it was given"
            )
            clock.seconds += 0.001
            assert await ring.find(new.text) is None

        run(scenario)


def test_a_keyring_goes_by_the_time_that_passes_if_it_is_given_no_clock() -> None:
    assert inspect.signature(KeyCache).parameters["monotonic"].default is time.monotonic
    assert FRESH_SECONDS < 1


def test_keys_that_are_expected_come_in_one_load_and_are_then_known(bench: Bench) -> None:
    keys = [bench.key(f"k{number}") for number in range(20)]

    async def scenario() -> None:
        await bench.ring.expect([*(key.text for key in keys), "no key at all"])
        assert bench.loads == [20]
        assert [(await found(bench.ring, key)).key_id for key in keys] == [
            key.key.key_id for key in keys
        ]
        await bench.ring.expect(key.text for key in keys)
        assert bench.loads == [20], "what is fresh is not loaded again"
        bench.pass_time(FRESH_SECONDS)
        await bench.ring.expect(key.text for key in keys)
        assert bench.loads == [20, 20]

    run(scenario)


async def found(ring: KeyCache, key: NewKey) -> Grant:
    grant = await ring.find(key.text)
    assert grant is not None
    return grant
