"""The moment in which a reader has caught up and joins the others, in each order in which it can
happen; and who follows for whom.

Without HTTP: a store with gates in it holds one of them up where it matters.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

import genlock
from genlock.errors import BadArgument, Busy, CursorLost, StoreUnavailable
from genlock.service.events import EventBroker, StreamEvent, StreamRequest, StreamSettings, TooSlow
from genlock.service.events.subscription import Subscription
from genlock.store import EventQuery
from genlock.stores.memory import MemoryStore
from tests.engine.gated_store import GatedStore, Stop, raising
from tests.resource_limits import no_threads

PLACE = ("default", "default")
PATIENCE = 20.0


class Stage:
    """A hub on a gated store, a fleet that writes, and readers."""

    def __init__(self) -> None:
        self.store = GatedStore(MemoryStore())
        self.fleet = genlock.connect(self.store, session_id="s1", agent_id="a1")
        self.broker = EventBroker(self.fleet.reader)
        self._subscribed: list[AsyncGenerator[StreamEvent, None]] = []
        self._opened: list[Subscription] = []

    def write(self, count: int = 1, project: str = "default") -> None:
        for _ in range(count):
            self.fleet.next_id(project_id=project)

    def subscribe(self, **wish: Any) -> AsyncIterator[StreamEvent]:
        events = self.broker.subscribe(StreamRequest(places=(PLACE,), **wish))
        self._subscribed.append(events)
        return events

    async def open(self, project: str = "default") -> Subscription:
        self._opened.append(await self.broker.open(StreamRequest(places=(("default", project),))))
        return self._opened[-1]

    async def end(self) -> None:
        for events in self._subscribed:
            await events.aclose()
        for subscription in self._opened:
            self.broker.release(subscription)
        await self.broker.close()

    def reads(self) -> int:
        """How often a feed has been read."""
        return sum(name == "read_events" for name, _ in self.store.calls)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.fleet.close()


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs it in a loop of its own, which nothing may outlive."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await play()

    asyncio.run(bounded())


async def take(events: AsyncIterator[StreamEvent], count: int) -> list[int]:
    """The positions of the next so many."""
    return [(await anext(events)).event.position for _ in range(count)]


def is_page(query: EventQuery) -> bool:
    return not query.tail and query.record is None


def test_what_happens_between_the_last_page_and_joining_is_read(stage: Stage) -> None:
    async def play() -> None:
        stage.write(3)
        end = stage.fleet.read_events(tail=True)
        first = stage.subscribe(after=end.cursor)
        stop = Stop()
        # The late one's page is read, and does not reach it before the others have been told more.
        beginning = asyncio.ensure_future(anext(first))
        await asyncio.to_thread(stage.write)
        have = (await beginning).event.position
        stage.store.on(
            "read_events", when=lambda query: is_page(query) and query.after is None, after=stop
        )
        late = stage.subscribe(after="start")
        opening = asyncio.ensure_future(anext(late))
        await asyncio.to_thread(stop.wait)
        await asyncio.to_thread(stage.write, 3)
        assert await take(first, 3) == [have + 1, have + 2, have + 3]
        stop.open()
        assert (await opening).event.position == 1
        assert await take(late, have + 2) == list(range(2, have + 4))
        await asyncio.to_thread(stage.write, 2)
        assert await take(late, 2) == [have + 4, have + 5]
        await stage.end()

    played(play)


def test_a_feed_that_no_thread_could_be_started_for_is_followed_when_one_can(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        stage.write()
        with (
            no_threads(monkeypatch, "genlock-follower") as refused,
            pytest.raises(Busy, match="no thread left to follow this feed"),
        ):
            await anext(stage.subscribe())
        assert refused
        events = stage.subscribe(after="start")
        assert await take(events, 2) == [1, 2]  # the project, and its first id
        await asyncio.to_thread(stage.write)
        assert await take(events, 1) == [3]
        await stage.end()

    played(play)


def test_what_a_reader_has_read_and_is_told_again_comes_once(stage: Stage) -> None:
    async def play() -> None:
        stage.write()
        first = stage.subscribe(after="start")
        (have,) = await take(first, 1)
        assert have == 1
        at = (await anext(first)).event.position
        # The follower is held up, and the late one has read what the follower has not told yet.
        stop = Stop()
        stage.store.on(
            "read_events",
            when=lambda query: is_page(query) and query.after is not None,
            before=stop,
        )
        await asyncio.to_thread(stage.write, 3)
        await asyncio.to_thread(stop.wait)
        late = stage.subscribe(after="start")
        assert await take(late, at + 3) == list(range(1, at + 4))
        stop.open()
        await asyncio.to_thread(stage.write)
        assert await take(late, 1) == [at + 4]
        assert await take(first, 4) == [at + 1, at + 2, at + 3, at + 4]
        await stage.end()

    played(play)


def test_a_store_that_is_away_for_a_while_ends_no_subscription(stage: Stage) -> None:
    async def play() -> None:
        stage.write()
        events = stage.subscribe(after="start")
        have = (await take(events, 2))[-1]
        stage.fleet.engine.deadline_seconds = 0
        for method in ("wait", "read_events"):
            stage.store.on(method, before=raising(StoreUnavailable("away")), times=3)
        await asyncio.to_thread(stage.write)
        assert await take(events, 1) == [have + 1]
        await stage.end()

    played(play)


def test_many_readers_of_one_project_cost_the_store_no_more_than_one(stage: Stage) -> None:
    async def play() -> None:
        stage.write()
        first = await stage.open()
        before = stage.reads()
        others = [await stage.open() for _ in range(200)]
        assert stage.reads() == before
        assert followers() == 1
        await asyncio.to_thread(stage.write)
        batches = [await subscription.take() for subscription in (first, *others)]
        assert stage.reads() <= before + 2
        # Decoded and encoded once: it is the same thing that all of them get.
        assert len({id(batch) for found in batches for batch in found or ()}) == 1
        assert stage.broker.clients == 201
        await stage.end()

    played(play)


def followers() -> int:
    return len(following())


def following() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "genlock-follower"]


def test_several_projects_share_one_thread_before_long(stage: Stage) -> None:
    async def play() -> None:
        projects = [f"p{number}" for number in range(12)]
        for project in projects:
            stage.write(project=project)
        subscriptions = [await stage.open(project) for project in projects]
        for _ in range(200):
            if followers() == 1:
                break
            await asyncio.to_thread(following()[-1].join, 0.1)
        assert followers() == 1
        for project, subscription in zip(projects, subscriptions, strict=True):
            await asyncio.to_thread(stage.write, project=project)
            assert [batch.place for batch in await subscription.take() or ()] == [
                ("default", project)
            ]
        await stage.end()

    played(play)


def test_a_hub_without_readers_asks_the_store_nothing(stage: Stage) -> None:
    async def play() -> None:
        stage.write()
        subscription = await stage.open()
        (thread,) = following()
        stage.broker.release(subscription)
        await asyncio.to_thread(thread.join, PATIENCE)
        assert not following()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        await stage.end()

    played(play)


def test_a_reader_whose_queue_overflows_is_told_so_and_goes_on_where_it_was(stage: Stage) -> None:
    async def play() -> None:
        stage.broker = EventBroker(stage.fleet.reader, StreamSettings(queue_events=5))
        stage.write()
        slow = stage.subscribe(after="start")
        quick = stage.subscribe(after="start")
        last = await anext(slow)
        have = (await take(quick, 2))[-1]
        for number in range(10):
            await asyncio.to_thread(stage.write)
            assert await take(quick, 1) == [have + 1 + number]
        got = [last.event.position]
        last = await anext(slow)  # it had been taken with the first
        got.append(last.event.position)
        with pytest.raises(TooSlow, match="Last-Event-ID"):
            await anext(slow)
        again = stage.subscribe(after=last.id)
        got += await take(again, have + 10 - len(got))
        assert got == list(range(1, have + 11))
        await stage.end()

    played(play)


def test_a_subscription_says_that_its_cursor_is_lost(stage: Stage) -> None:
    async def play() -> None:
        stage.write()
        events = stage.subscribe(after="start")
        await take(events, 2)
        stage.store.set_epoch(1)
        with pytest.raises(CursorLost, match="epoch"):
            await anext(events)
        assert stage.broker.clients == 0
        await stage.end()

    played(play)


def test_a_subscription_ends_with_its_hub(stage: Stage) -> None:
    async def play() -> None:
        stage.write()
        events = stage.subscribe(after="start")
        await take(events, 2)
        waiting = asyncio.ensure_future(anext(events, None))
        await asyncio.sleep(0)
        await stage.broker.close()
        assert await waiting is None

    played(play)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (StreamRequest(), "give places, or a tenant"),
        (StreamRequest(places=(("a", "p"), ("b", "p"))), "of one tenant"),
        (StreamRequest(places=(("a", "p"),), tenant="a"), "give places, or a tenant"),
        (StreamRequest(places=(("a", "p/q"),)), "character 2 is '/'"),
        (StreamRequest(tenant="_"), "reserved"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(
    stage: Stage, wish: StreamRequest, said: str
) -> None:
    async def play() -> None:
        with pytest.raises(BadArgument, match=said):
            await stage.broker.open(wish)
        assert stage.broker.clients == 0
        await stage.end()

    played(play)
