"""Calls in an event loop: cancelled at every moment, they leave nothing behind that nobody knows
of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

import genlock
from genlock.core import events as e
from genlock.core.commands import ClaimTask
from genlock.core.keys import project_key
from genlock.core.results import ClaimResult
from genlock.engine.jobs import Recover
from genlock.errors import Closed, OutcomeUnknown, StoreUnavailable, TaskNotFound
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    GatedStore,
    Home,
    caller,
    claim,
    granted,
    later,
    next_for,
    raising,
    task_key,
    told,
    until,
    writing,
)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 3 * PATIENCE))


async def queued(call: Coroutine[Any, Any, ClaimResult]) -> asyncio.Task[ClaimResult]:
    """A call that stands in the lane's queue when this returns: it gets there in its first step."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    return task


async def cancelled(task: asyncio.Task[ClaimResult]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def in_thread(call: Callable[[], Any]) -> Any:
    """A blocking call, without holding up the loop."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


def held_up(
    home: Home, store: GatedStore, fleet: genlock.AsyncCoordinator
) -> tuple[Any, Coroutine[Any, Any, ClaimResult]]:
    """A gate in the commit of X's claim, and that claim."""
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    return stop, fleet.claim_task(task_id="X", agent_id="somebody", session_id="s-somebody")


@pytest.mark.core
def test_the_same_operations_answer_alike_in_an_event_loop(home: Home) -> None:
    async def scenario() -> None:
        async with home.connect_async(session_id="s-alice", agent_id="alice") as fleet:
            await fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
            claims = await asyncio.gather(
                fleet.claim_task(task_id="A"), fleet.claim_task(task_id="B")
            )
            assert [each.reason for each in claims] == ["GRANTED", "DENIED_BLOCKED"]
            assert (
                await fleet.submit_result(task_id="A", generation=1, result_data="done")
            ).accepted
            assert [line.task.id for line in await fleet.ready()] == ["B"]
            with pytest.raises(TaskNotFound):
                await fleet.claim_task(task_id="C")

    run(scenario)


def test_a_claim_next_that_is_cancelled_before_it_is_gathered_is_dropped(home: Home) -> None:
    store = home.gated()

    async def scenario() -> None:
        fleet = home.connect_async(store)
        await fleet.add_tasks(tasks=["X", "T"])
        stop, prefetched = held_up(home, store, fleet)
        first = await queued(prefetched)
        await in_thread(stop.wait)
        wanted = await queued(fleet.claim_next(agent_id="bob", session_id="s-bob"))
        await cancelled(wanted)
        stop.open()
        assert (await first).success
        # It stood behind X in the queue; this one stands behind it.
        assert (await fleet.claim_next(agent_id="carol", session_id="s-carol")).task_id == "T"

    run(scenario)
    fleet = home.connect()
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="T")] == ["s-carol"]


def test_a_claim_next_that_is_cancelled_while_it_waits_is_granted_nothing(home: Home) -> None:
    async def scenario() -> None:
        fleet = home.connect_async()
        await fleet.add_tasks(tasks=["X"])
        assert (
            await fleet.claim_task(task_id="X", agent_id="somebody", session_id="s-somebody")
        ).success
        wanted = await queued(
            fleet.claim_next(agent_id="bob", session_id="s-bob", wait_seconds=PATIENCE)
        )
        # One round later it has found nothing and sleeps.
        assert not (await fleet.claim_next(agent_id="carol", session_id="s-carol")).success
        await cancelled(wanted)
        await fleet.add_tasks(tasks=["T"])
        assert (await fleet.claim_next(agent_id="carol", session_id="s-carol")).task_id == "T"

    run(scenario)
    fleet = home.connect()
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="T")] == ["s-carol"]


@pytest.mark.parametrize("verb", ["claim_next", "claim_task", "batch_claim"])
def test_a_grant_that_is_committed_when_its_call_is_cancelled_is_released(
    home: Home, verb: str
) -> None:
    store = home.gated()
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])

    async def scenario() -> None:
        doomed = home.connect_async(store, session_id="s-bob", agent_id="bob")
        stop = home.stop()
        # The claim is written, and nobody has been answered.
        store.on("commit", when=writing(e.ClaimAcquired, "T"), after=stop)
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "claim_next": doomed.claim_next,
            "claim_task": lambda: doomed.claim_task(task_id="T"),
            "batch_claim": lambda: doomed.batch_claim(task_ids=["T"]),
        }
        wanted = await queued(calls[verb]())
        await in_thread(stop.wait)
        assert fleet.get_task_state(task_id="T").holder is not None
        await cancelled(wanted)
        stop.open()
        await in_thread(lambda: until(fleet, lambda: "CLAIM_RELEASED" in told(fleet, "T")))

    run(scenario)
    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED"]
    assert granted(fleet, "T", "carol") == 2


@pytest.mark.parametrize("verb", ["claim_next", "claim_task"])
def test_a_grant_whose_session_was_changed_meanwhile_is_released_when_its_call_is_cancelled(
    home: Home, verb: str
) -> None:
    """It was written, and decided again because of the session's record: then the claim is there
    already, and is the call's own."""
    store = home.gated()
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])

    async def scenario() -> None:
        doomed = home.connect_async(store, session_id="s-bob", agent_id="bob")
        stop = home.stop()
        register = partial(fleet.register_session, session_id="s-bob")
        store.on("commit", when=writing(e.ClaimAcquired, "T"), before=register, after=stop)
        wanted = await queued(
            doomed.claim_next() if verb == "claim_next" else doomed.claim_task(task_id="T")
        )
        await in_thread(stop.wait)
        await cancelled(wanted)
        stop.open()
        await in_thread(lambda: until(fleet, lambda: "CLAIM_RELEASED" in told(fleet, "T")))

    run(scenario)
    assert store.commits[0].conflicts == ["s-bob"]


def test_a_grant_that_was_answered_but_not_delivered_when_its_call_is_cancelled_is_released(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])

    async def scenario() -> None:
        doomed = home.connect_async(session_id="s-bob", agent_id="bob")
        wanted = await queued(doomed.claim_next())
        # The loop stands still until the lane has gone on to the next batch: the answer lies in the
        # loop's queue.
        doomed.engine.submit([Recover(project_key(*PLACE))]).wait()
        assert "CLAIM_ACQUIRED" in told(fleet, "T")
        assert not wanted.done()
        await cancelled(wanted)
        await in_thread(lambda: until(fleet, lambda: "CLAIM_RELEASED" in told(fleet, "T")))

    run(scenario)
    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED"]


def test_a_call_that_runs_into_a_timeout_leaves_no_claim_behind(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["X"])
    granted(fleet, "X", "somebody")

    async def scenario() -> None:
        impatient = home.connect_async(session_id="s-bob", agent_id="bob")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(impatient.claim_next(wait_seconds=PATIENCE), 0.5)
        fleet.add_tasks(tasks=["T"])
        assert (await impatient.claim_next(session_id="s-carol")).task_id == "T"

    run(scenario)
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="T")] == ["s-carol"]


def test_cancelling_a_second_claim_does_not_give_up_the_first(home: Home) -> None:
    """A claim that its session holds already is no new grant: it is not given back when the call
    that repeats it is cancelled."""
    store = home.gated()
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])

    async def scenario() -> None:
        mine = home.connect_async(store, session_id="s-bob", agent_id="bob")
        assert (await mine.claim_task(task_id="T")).success
        stop = home.stop()
        store.on("commit", when=writing(e.LeaseRenewed, "T"), before=stop)
        again = await queued(mine.claim_task(task_id="T"))
        await in_thread(stop.wait)
        await cancelled(again)
        stop.open()
        # Two batches later whatever was given back would have been written.
        for _ in range(2):
            await mine.claim_next()
        assert (await mine.renew_lease(task_id="T", expected_generation=1)).success

    run(scenario)
    assert "CLAIM_RELEASED" not in told(fleet, "T")


def test_a_whole_batch_reaches_its_loop_by_one_call(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = home.gated()
    names = [f"t-{n:02d}" for n in range(30)]

    async def scenario() -> None:
        fleet = home.connect_async(store)
        await fleet.add_tasks(tasks=["X", *names])
        stop, prefetched = held_up(home, store, fleet)
        first = await queued(prefetched)
        await in_thread(stop.wait)
        calls = [
            await queued(fleet.claim_task(task_id=name, agent_id="bob", session_id="s-bob"))
            for name in names
        ]
        loop = asyncio.get_running_loop()
        handed: list[object] = []
        really = loop.call_soon_threadsafe

        def counted(callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:
            handed.append(args)
            return really(callback, *args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        stop.open()
        assert all(result.success for result in await asyncio.gather(*calls))
        assert (await first).success
        assert len(handed) == 2, "one for X, one for the batch behind it"

    run(scenario)


def test_one_coordinator_serves_several_loops(home: Home) -> None:
    home.connect().add_tasks(tasks=["A", "B", "C"])
    fleet = home.connect_async()
    meet = threading.Barrier(3)

    async def one(name: str) -> ClaimResult:
        meet.wait(PATIENCE)
        return await fleet.claim_task(task_id=name, agent_id="bob", session_id="s-bob")

    calls = [later(lambda name=name: asyncio.run(one(name))) for name in ("A", "B", "C")]  # type: ignore[misc]

    assert [call.result(PATIENCE).task_id for call in calls] == ["A", "B", "C"]


def test_closing_answers_those_who_wait(home: Home) -> None:
    async def scenario() -> None:
        fleet = home.connect_async()
        waiting = [
            await queued(
                fleet.claim_next(agent_id="bob", session_id=f"s-{n}", wait_seconds=PATIENCE)
            )
            for n in range(3)
        ]
        await fleet.close()
        for each in waiting:
            with pytest.raises(Closed):
                await each
        with pytest.raises(Closed):
            await fleet.ready()

    run(scenario)


def test_what_is_granted_to_a_loop_that_was_closed_is_given_back(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["X", "T"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    loop = asyncio.new_event_loop()
    job = fleet.engine.submit([ClaimTask(task_key("X"), caller("somebody"))], loop=loop)
    loop.run_until_complete(asyncio.sleep(0))
    stop.wait()
    loop.close()
    stop.open()

    assert claim(fleet, "T", "bob").success
    assert job.left == 0
    again = next_for(fleet, "bob", PATIENCE)
    assert again.claim is not None
    assert (again.task_id, again.claim.generation) == ("X", 2)
    assert told(fleet, "X") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED", "CLAIM_ACQUIRED"]


def abandoned_at_close(
    home: Home, store: GatedStore, names: str, *, written: bool = True
) -> Callable[[], None]:
    """Claims of these tasks by a call that is cancelled, and a coordinator that is closed, when
    they stand in their commit.

    What is returned lets them go on, and waits until the coordinator is closed.
    """
    fleet, stop = home.connect(store), home.stop()
    store.on(
        "commit",
        when=writing(e.ClaimAcquired, names[-1]),
        before=None if written else stop,
        after=stop if written else None,
    )
    job = fleet.engine.submit([ClaimTask(task_key(name), caller("bob")) for name in names])
    stop.wait()
    fleet.engine.abandon(job)
    fleet.engine._lanes[0].close()

    def go_on() -> None:
        stop.open()
        fleet.close()

    return go_on


def test_a_cancelled_grant_that_lands_late_is_given_back_although_the_coordinator_closes(
    home: Home,
) -> None:
    store, fleet = home.gated(), home.connect()
    fleet.add_tasks(tasks=["T"])
    stop = home.stop()
    late: list[Any] = []

    def break_off() -> None:
        stop()
        raise OutcomeUnknown("the connection broke")

    def suits(changes: Any) -> bool:
        late[:] = changes
        return writing(e.ClaimAcquired, "T")(changes)

    doomed = home.connect(store)
    store.on("commit", when=suits, before=break_off)
    # Somebody looks for it in vain, and then it is carried out after all.
    store.on(
        "read_events",
        when=lambda query: query.record == task_key("T"),
        after=lambda: store.inner.commit(late),
    )
    job = doomed.engine.submit([ClaimTask(task_key("T"), caller("bob"))])
    stop.wait()
    doomed.engine.abandon(job)
    doomed.engine._lanes[0].close()
    stop.open()
    doomed.close()

    assert told(fleet, "T").count("CLAIM_ACQUIRED") == 1
    assert told(fleet, "T")[-1] == "CLAIM_RELEASED"


def test_what_nobody_waits_for_is_given_back_although_the_store_is_away_for_a_moment_when_the_coordinator_closes(
    home: Home,
) -> None:
    store, fleet = home.gated(), home.connect()
    fleet.add_tasks(tasks=["T"])
    go_on = abandoned_at_close(home, store, "T")
    store.on(
        "commit",
        when=writing(e.ClaimReleased, "T"),
        before=raising(StoreUnavailable("away")),
        times=3,
    )

    go_on()

    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED"]


def test_what_a_cancelled_batch_was_granted_is_given_back_when_the_coordinator_closes_before_the_rest_is_decided(
    home: Home,
) -> None:
    store, fleet = home.gated(), home.connect()
    fleet.add_tasks(tasks=["A", "B"])
    go_on = abandoned_at_close(home, store, "AB", written=False)
    fleet.edit_task(task_id="B", changes={"title": "b"})

    go_on()

    assert told(fleet, "A") == ["TASK_ADDED", "CLAIM_ACQUIRED", "CLAIM_RELEASED"]
    assert "CLAIM_ACQUIRED" not in told(fleet, "B")


def test_a_cancelled_grant_is_given_back_after_an_outage_that_was_longer_than_its_patience(
    home: Home,
) -> None:
    store, fleet = home.gated(), home.connect()
    fleet.add_tasks(tasks=["T"])
    doomed, stop = home.connect(store, deadline_seconds=0), home.stop()

    def break_off() -> None:
        stop()
        raise OutcomeUnknown("the connection broke")

    store.on("commit", when=writing(e.ClaimAcquired, "T"), after=break_off)
    store.on(
        "read_events",
        when=lambda query: query.record == task_key("T"),
        before=raising(StoreUnavailable("away")),
        times=3,
    )
    job = doomed.engine.submit([ClaimTask(task_key("T"), caller("bob"))])
    stop.wait()
    doomed.engine.abandon(job)
    stop.open()

    until(fleet, lambda: told(fleet, "T")[-1] == "CLAIM_RELEASED")
