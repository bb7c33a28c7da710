"""The worker's methods: what a block does with its claim, alike in threads and event loops, on a
store and through a service."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import genlock
import genlock.aio
from genlock.core.model import Task
from genlock.core.reasons import ReleaseReason
from genlock.core.results import ClaimHistory
from genlock.worker import (
    AsyncWork,
    ClaimLost,
    Loss,
    NotGranted,
    NothingReady,
    Work,
)
from genlock.worker.grant import Previous, lease_for
from tests.eventually import eventually


def state(url: str, task: str = "A-001") -> genlock.TaskState:
    with genlock.connect(url) as fleet:
        return fleet.get_task_state(task_id=task)


def taken_away(url: str, task: str = "A-001") -> None:
    with genlock.connect(url, session_id="op") as fleet:
        fleet.force_release(task_id=task, take_over=True)


def test_a_task_is_claimed_reported_on_and_submitted(url: str) -> None:
    with genlock.connect(url) as fleet, fleet.next_task(track="A", wait=1) as work:
        assert (work.id, work.generation, work.task.track, work.attempt) == ("A-001", 1, "A", 1)
        work.progress(0.4, "tests pass", cost=0.12)
        answer = work.submit({"files": ["app.py"]})
        assert answer.accepted
    told = state(url)
    assert (told.state, told.claim) == ("COMPLETED", None)
    assert told.result is not None
    assert told.result.result_data == {"files": ["app.py"]}
    assert told.progress is not None
    assert (told.progress.fraction, told.progress.cost) == (0.4, {"usd": 0.12})
    assert [note.text for note in told.progress.notes] == ["tests pass"]


def test_the_same_in_an_event_loop(url: str) -> None:
    async def main() -> None:
        async with (
            genlock.aio.connect(url) as fleet,
            fleet.next_task(track="A", wait=1) as work,
        ):
            assert (work.id, work.generation, work.attempt) == ("A-001", 1, 1)
            await work.progress(0.4, "tests pass", cost={"tokens": 7})
            assert (await work.submit({"files": []})).accepted

    asyncio.run(main())
    told = state(url)
    assert (told.state, told.progress and told.progress.cost) == ("COMPLETED", {"tokens": 7.0})


def test_leaving_the_block_without_a_submission_releases_the_claim(url: str) -> None:
    with genlock.connect(url) as fleet, fleet.claim("A-001") as work:
        assert state(url).generation == work.generation
    told = state(url)
    assert (told.state, told.claim, told.failures) == ("PENDING", None, 0)


def test_an_exception_releases_the_claim_with_the_error_for_the_next_holder(url: str) -> None:
    def fail(fleet: genlock.Coordinator) -> None:
        with fleet.claim("A-001") as work:
            work.progress(0.6, "halfway")
            raise ValueError("no such file")

    with genlock.connect(url) as fleet:
        with pytest.raises(ValueError, match="no such file"):
            fail(fleet)
        assert state(url).failures == 1
        with fleet.claim("A-001") as work:
            assert (work.generation, work.attempt) == (2, 2)
            assert work.previous.feedback == "ValueError: no such file"
            assert work.previous.fraction == 0.6
            (earlier,) = work.previous.generations
            assert (earlier.generation, earlier.release_reason) == (1, "ERROR")
            work.submit()


def test_an_exception_does_the_same_in_an_event_loop(url: str) -> None:
    async def main() -> None:
        async with genlock.aio.connect(url) as fleet:
            with pytest.raises(ValueError, match="no such file"):
                async with fleet.claim("A-001"):
                    raise ValueError("no such file")
            async with fleet.claim("A-001") as work:
                assert work.previous.feedback == "ValueError: no such file"

    asyncio.run(main())


def test_a_refused_result_is_kept_and_shown_to_the_next_holder(url: str) -> None:
    with genlock.connect(url) as fleet:
        with fleet.claim("A-001") as work:
            taken_away(url)
            answer = work.submit("too late")
            assert (answer.accepted, answer.reason, answer.kept) == (
                False,
                "STALE_GENERATION",
                True,
            )
        with fleet.claim("A-001") as heir:
            assert [refused.result_data for refused in heir.previous.refused] == ["too late"]
            assert heir.submit("in time").accepted


def test_a_task_that_somebody_else_holds_is_not_granted(url: str) -> None:
    with (
        genlock.connect(url) as first,
        genlock.connect(url) as second,
        first.claim("A-001") as work,
    ):
        with (
            pytest.raises(NotGranted, match="A-001 was not granted, DENIED_ACTIVE_CLAIM") as denied,
            second.claim("A-001"),
        ):
            pass
        assert denied.value.result.current_holder == work.claim.agent_id


def test_a_task_that_another_thread_of_the_same_worker_holds_is_not_granted_again(
    url: str,
) -> None:
    with genlock.connect(url, session_id="s", agent_id="a") as fleet, fleet.claim("A-001") as work:
        with pytest.raises(NotGranted, match="hold it already"), fleet.claim("A-001"):
            pass
        work.check()
        assert work.submit().accepted


def test_nothing_ready_is_an_exception_of_its_own(url: str) -> None:
    with (
        genlock.connect(url) as fleet,
        pytest.raises(NothingReady, match="nothing is ready"),
        fleet.next_task(track="Z"),
    ):
        pass


def test_a_lost_claim_is_noticed_in_a_thread_by_its_event_and_by_check(url: str) -> None:
    def work_on(fleet: genlock.Coordinator) -> None:
        with fleet.claim("A-001", lease_seconds=1.0) as work:
            taken_away(url)
            assert work.lost.wait(10)
            work.check()

    with genlock.connect(url) as fleet, pytest.raises(ClaimLost) as lost:
        work_on(fleet)
    assert lost.value.reason is Loss.TAKEN
    assert state(url).failures == 0  # the loss is not the work's failure


def test_a_lost_claim_cancels_the_block_of_an_event_loop(url: str) -> None:
    reached: list[str] = []

    async def work_on(fleet: genlock.AsyncCoordinator) -> None:
        async with fleet.claim("A-001", lease_seconds=1.0):
            await asyncio.to_thread(taken_away, url)
            await asyncio.sleep(60)
            reached.append("the end")

    async def main() -> None:
        async with genlock.aio.connect(url) as fleet:
            with pytest.raises(ClaimLost) as lost:
                await work_on(fleet)
            assert lost.value.reason is Loss.TAKEN
            await asyncio.sleep(0)  # the task itself is not cancelled
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    asyncio.run(main())
    assert reached == []


def test_a_cancelled_task_of_the_event_loop_releases_its_claim(url: str) -> None:
    async def main() -> None:
        async with genlock.aio.connect(url) as fleet:
            begun = asyncio.Event()

            async def body() -> None:
                async with fleet.claim("A-001"):
                    begun.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(body())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    told = state(url)
    assert (told.state, told.failures) == ("PENDING", 0)


def test_a_report_of_a_stale_generation_raises_claim_lost(url: str) -> None:
    def work_on(fleet: genlock.Coordinator) -> None:
        with fleet.claim("A-001") as work:
            taken_away(url)
            work.progress(0.9, "a zombie writes")

    with genlock.connect(url) as fleet, pytest.raises(ClaimLost):
        work_on(fleet)
    assert state(url).progress is None


def test_work_that_was_dropped_is_not_renewed_for_ever(url: str) -> None:
    with genlock.connect(url) as fleet:
        block = fleet.claim("A-001", lease_seconds=1.0)
        kept = block.__enter__()._kept
        block.__dict__.clear()  # as if the block had never been left
        gc.collect()
        assert kept.dropped
        with genlock.connect(url) as other:
            eventually(lambda: _is_granted(other), "somebody else to be granted the task")


def _is_granted(fleet: genlock.Coordinator) -> bool:
    try:
        with fleet.claim("A-001") as work:
            work.submit()
    except NotGranted:
        return False
    return True


def test_figures_are_sent_once_a_second_and_notes_at_once(url: str) -> None:
    with genlock.connect(url) as fleet, fleet.claim("A-001") as work:
        for step in range(100):
            work.progress(step / 100)
        with genlock.connect(url) as other:
            told = [
                event
                for event in other.read_events().events
                if event.event_type == "PROGRESS_REPORTED"
            ]
        assert len(told) <= 3
        work.progress(note="what came of it")
        assert work.release("to be continued").success
    told_at_last = state(url).progress
    assert told_at_last is not None
    assert told_at_last.fraction == 0.99
    assert [note.text for note in told_at_last.notes] == ["what came of it", "to be continued"]


def test_long_notes_are_shortened(url: str) -> None:
    with genlock.connect(url) as fleet, fleet.claim("A-001") as work:
        work.progress(note="x" * 1000)
    told = state(url).progress
    assert told is not None
    assert (len(told.notes[0].text), told.notes[0].text[-1]) == (500, "…")


# Leases


@pytest.mark.parametrize(
    ("task", "granted", "asked", "lease"),
    [
        (Task(id="T"), 300.0, None, 300.0),
        (Task(id="T", estimate_seconds=40), 300.0, None, 60.0),
        (Task(id="T", estimate_seconds=1200), 300.0, None, 300.0),
        (Task(id="T", estimate_seconds=86400), 300.0, None, 900.0),
        (Task(id="T", estimate_seconds=86400, lease_seconds=120), 120.0, None, 120.0),
        (Task(id="T", estimate_seconds=86400), 45.0, 45.0, 45.0),
    ],
)
def test_a_lease_suits_the_estimate_unless_somebody_has_said_how_long(
    task: Task, granted: float, asked: float | None, lease: float
) -> None:
    assert lease_for(task, granted, asked, Previous()) == lease


@pytest.mark.parametrize(("minutes", "lease"), [(4, 300.0), (40, 600.0), (300, 900.0)])
def test_a_lease_suits_how_long_the_task_has_taken_before(minutes: int, lease: float) -> None:
    """A quarter of the longest time, where somebody has worked for longer than the estimate."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    earlier = ClaimHistory(
        id="c",
        tenant_id="t",
        project_id="p",
        task_id="T",
        track=None,
        sequence=None,
        generation=1,
        session_id="s",
        agent_id="a",
        acquired_at=began,
        released_at=began + timedelta(minutes=minutes),
        release_reason=ReleaseReason.ERROR,
    )
    task = Task(id="T", estimate_seconds=1200)
    assert lease_for(task, 300.0, None, Previous((earlier,))) == lease


def test_a_lease_doubles_after_one_that_ran_out(url: str) -> None:
    with genlock.connect(url, session_id="silent", agent_id="a", process=None) as fleet:
        fleet.claim_task(task_id="A-001", lease_duration_seconds=1.0)
    with genlock.connect(url) as fleet:

        def next_lease() -> float | None:
            try:
                with fleet.claim("A-001") as work:
                    return work._kept.wanted_seconds
            except NotGranted:
                return None

        assert eventually(next_lease, "the lease to run out") == 600.0


# Outages


def test_a_submission_survives_an_outage(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from genlock.errors import OutcomeUnknown

    with genlock.connect(url) as fleet, fleet.claim("A-001") as work:
        real, failures = fleet.submit_result, iter(range(3))

        def lossy(**arguments: Any) -> Any:
            answer = real(**arguments)
            if next(failures, None) is not None:
                raise OutcomeUnknown("the answer was lost")
            return answer

        monkeypatch.setattr(fleet, "submit_result", lossy)
        assert work.submit("once").accepted
    with genlock.connect(url) as fleet:
        told = [event.event_type for event in fleet.read_events().events]
    assert told.count("RESULT_ACCEPTED") == 1


def test_a_report_during_an_outage_is_sent_with_the_next_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genlock.errors import StoreUnavailable

    with genlock.connect(url) as fleet, fleet.claim("A-001") as work:
        real = fleet.report_progress

        def away(**arguments: Any) -> Any:
            raise StoreUnavailable("away")

        monkeypatch.setattr(fleet, "report_progress", away)
        work.progress(0.5, "not sent yet")
        monkeypatch.setattr(fleet, "report_progress", real)
        work.progress(cost=1.0, note="sent")
    told = state(url).progress
    assert told is not None
    assert (told.fraction, told.cost, told.notes[0].text) == (0.5, {"usd": 1.0}, "sent")


# Loops


def test_a_worker_submits_what_its_handler_returns_until_all_is_done(url: str) -> None:
    with genlock.connect(url) as fleet:

        @fleet.worker(concurrency=2, track="A", until_done=True, wait=0.1)
        def handle(work: Work) -> Any:
            return {"done": work.id}

        ended = threading.Thread(target=handle.run)
        ended.start()
        eventually(lambda: handle.totals.accepted == 2, "both tasks of track A")
        handle.stop()
        ended.join(10)
        assert not ended.is_alive()
    assert (state(url).state, state(url, "A-002").state) == ("COMPLETED", "COMPLETED")
    assert state(url, "B-001").state == "PENDING"


def test_a_worker_ends_by_itself_when_all_is_done(url: str) -> None:
    with genlock.connect(url) as fleet:
        totals = fleet.work(lambda work: work.id, concurrency=3, until_done=True, wait=0.1)
    assert (totals.accepted, totals.taken) == (3, 3)


def test_an_async_handler_of_a_fleet_of_threads_runs_in_a_loop_of_its_own(url: str) -> None:
    async def handle(work: AsyncWork) -> str:
        await asyncio.sleep(0)
        await work.progress(1.0, "by an async handler")
        return work.id

    with genlock.connect(url) as fleet:
        totals = fleet.work(handle, concurrency=2, until_done=True, wait=0.1)
    assert totals.accepted == 3


def test_an_async_worker_does_the_same(url: str) -> None:
    async def main() -> int:
        async with genlock.aio.connect(url) as fleet:

            @fleet.worker(concurrency=2, until_done=True, wait=0.1)
            async def handle(work: AsyncWork) -> str:
                return work.id

            return (await handle.run()).accepted

    assert asyncio.run(main()) == 3


def test_a_handler_that_fails_is_counted_and_the_task_comes_again(url: str) -> None:
    attempts: list[int] = []

    def handle(work: Work) -> str:
        if work.id == "A-001":
            attempts.append(work.attempt)
            if work.attempt < 3:
                raise RuntimeError("not yet")
        return work.id

    with genlock.connect(url) as fleet:
        totals = fleet.work(handle, until_done=True, wait=0.1)
    assert attempts == [1, 2, 3]
    assert (totals.accepted, totals.failed) == (3, 2)


def test_a_worker_takes_no_more_than_it_was_told(url: str) -> None:
    with genlock.connect(url) as fleet:
        totals = fleet.work(lambda work: None, max_tasks=2)
    assert totals.accepted == 2


def test_a_stopped_worker_lets_its_handler_come_to_the_end(url: str) -> None:
    with genlock.connect(url) as fleet:
        begun, go_on = threading.Event(), threading.Event()

        @fleet.worker()
        def handle(work: Work) -> str:
            begun.set()
            assert go_on.wait(30)
            return "finished"

        thread = threading.Thread(target=handle.run)
        thread.start()
        assert begun.wait(30)
        handle.stop()
        go_on.set()
        thread.join(30)
        assert not thread.is_alive()
        assert handle.totals.accepted == 1


# What starves a heartbeat elsewhere


def test_a_blocked_event_loop_for_six_leases_loses_no_claim(url: str) -> None:
    async def main() -> None:
        async with (
            genlock.aio.connect(url) as fleet,
            fleet.claim("A-001", lease_seconds=1.0) as work,
        ):
            time.sleep(6)  # noqa: ASYNC251 - this is what blocks the loop
            assert not work.is_lost
            assert (await work.submit("fine")).accepted

    asyncio.run(main())


@pytest.mark.slow
def test_a_busy_loop_for_six_leases_loses_no_claim(url: str) -> None:
    with genlock.connect(url) as fleet, fleet.claim("A-001", lease_seconds=1.0) as work:
        until = time.monotonic() + 6
        while time.monotonic() < until:
            sum(range(100))
        work.check()
        assert work.submit("fine").accepted


def test_the_agents_clock_has_no_effect(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock of the worker is a day ahead, then a day behind."""
    real = time.time

    def work_on(task: str, fleet: genlock.Coordinator) -> None:
        with fleet.claim(task, lease_seconds=1.0) as work:
            kept = work._kept
            first = kept.sent
            eventually(lambda: kept.sent > first + 1.0, "renewals")
            work.check()
            assert work.submit().accepted

    with genlock.connect(url) as fleet:
        monkeypatch.setattr(time, "time", lambda: real() + 86400.0)
        work_on("A-001", fleet)
        monkeypatch.setattr(time, "time", lambda: real() - 86400.0)
        work_on("A-002", fleet)
