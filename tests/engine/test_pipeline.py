"""The pipeline: on a server the next batch is decided while the last one is in flight, and never on
a record that the last one changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.commands import ClaimTask, EditTask, RegisterSession, ReleaseClaim
from genlock.core.keys import SESSION, TASK, Key, project_key
from genlock.core.results import SweepResult
from genlock.engine.feed_watch import RangeSet
from genlock.engine.jobs import Job, NextTask, Sweep
from genlock.errors import Closed, OutcomeUnknown, StoreUnavailable
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    GatedStore,
    Home,
    Stop,
    answered,
    caller,
    claim,
    complete,
    die,
    granted,
    later,
    raising,
    state,
    task_key,
    until,
    writing,
)

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

Command = ClaimTask | RegisterSession | NextTask | Sweep


class Overlap:
    """X's claim is being committed, and stands at a gate; `jobs` came in before it took off and are
    decided meanwhile."""

    def __init__(self, home: Home, tasks: Sequence[Any]) -> None:
        self.store = home.gated()
        # As a server's store says of itself: then commits have a thread of their own.
        self.store.limits = replace(self.store.limits, shared=True)
        self.fleet = home.connect(self.store)
        self.fleet.add_tasks(tasks=["X", *tasks])
        for who in ("alice", "bob", "carol", "zoe"):
            self.fleet.register_session(session_id=f"s-{who}")
        self._home = home

    def begin(
        self, jobs: Sequence[Command], after: Any = None, first: Command | None = None
    ) -> tuple[Job, list[Job], Stop]:
        """The first job, those that are decided while it is being committed, and the gate it stands
        at."""
        deciding, committing = self._home.stop(), self._home.stop()
        self.store.on("load", before=deciding)
        self.store.on("commit", when=writing(e.ClaimAcquired), before=committing, after=after)
        flying = self.fleet.engine.submit([first or ClaimTask(task_key("X"), caller("zoe"))])
        deciding.wait()
        others = [self.fleet.engine.submit([command]) for command in jobs]
        self.store.commits.clear()
        self.store.calls.clear()
        deciding.open()
        committing.wait()
        return flying, others, committing

    @property
    def conflicts(self) -> list[str]:
        return [name for commit in self.store.commits for name in commit.conflicts]


def loads_of(store: GatedStore, task: str) -> list[str]:
    return [method for method, given in store.calls if method == "load" and task_key(task) in given]


def wait_for_load(home: Home, overlap: Overlap) -> Stop:
    """A gate behind the load of the batch that is decided beside the flight."""
    stop = home.stop()
    overlap.store.on(
        "load",
        when=lambda keys: any(key.kind == TASK and key.id != "X" for key in keys),
        after=stop,
    )
    return stop


def test_the_next_batch_is_decided_while_the_last_one_is_committed_and_committed_after_it(
    home: Home,
) -> None:
    overlap = Overlap(home, ["A", "B"])
    loaded = wait_for_load(home, overlap)
    flying, others, gate = overlap.begin(
        [ClaimTask(task_key("A"), caller("alice")), ClaimTask(task_key("B"), caller("bob"))]
    )

    loaded.wait()  # nobody has opened the flight's gate yet
    assert not overlap.store.commits
    loaded.open()
    gate.open()

    assert answered(flying)[0].success
    assert [answered(job)[0].success for job in others] == [True, True]
    assert [commit.tasks for commit in overlap.store.commits if commit.tasks] == [["X"], ["A", "B"]]


def test_what_a_flight_has_touched_is_decided_only_after_it_has_landed(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    loaded = wait_for_load(home, overlap)
    flying, others, gate = overlap.begin(
        [ClaimTask(task_key("X"), caller("bob")), ClaimTask(task_key("A"), caller("alice"))]
    )

    loaded.wait()
    assert loads_of(overlap.store, "X") == ["load"], "the flight's own"
    loaded.open()
    gate.open()

    assert answered(flying)[0].success
    assert [answered(job)[0].reason for job in others] == ["DENIED_ACTIVE_CLAIM", "GRANTED"]
    assert overlap.conflicts == []


def test_a_batch_that_is_all_about_the_flights_task_waits_for_it(home: Home) -> None:
    overlap = Overlap(home, [])
    flying, others, gate = overlap.begin(
        [ClaimTask(task_key("X"), caller("bob")), ClaimTask(task_key("X"), caller("zoe"))]
    )
    gate.open()
    assert answered(flying)[0].claim.generation == 1
    denied, again = [answered(job)[0] for job in others]
    assert (denied.reason, again.reason, again.claim.generation) == (
        "DENIED_ACTIVE_CLAIM",
        "GRANTED",
        1,
    )
    assert overlap.conflicts == []


def test_a_sweep_does_not_wait_for_a_moment_without_a_flight(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    flying, (swept, claimed), gate = overlap.begin(
        [Sweep(project_key(*PLACE)), ClaimTask(task_key("A"), caller("alice"))]
    )
    gate.open()
    assert answered(flying)[0].success
    assert answered(swept)[0] == SweepResult()
    assert answered(claimed)[0].success
    # Had it been put off, the batch that came with it would have been the next flight.
    calls = [
        method
        for method, given in overlap.store.calls
        if method == "commit" or (method == "find" and given.due_before is not None)
    ]
    assert calls[:3] == ["commit", "find", "commit"]


def test_a_session_that_a_flight_makes_known_is_not_made_known_twice(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    first = ClaimTask(task_key("X"), caller("new"))
    flying, others, gate = overlap.begin([ClaimTask(task_key("A"), caller("new"))], first=first)
    gate.open()
    assert answered(flying)[0].success
    assert answered(others[0])[0].success
    assert overlap.conflicts == []


def project() -> Key:
    return Key(*PLACE, "project", "default")


def test_nobody_is_offered_what_a_flight_is_about_to_take(home: Home) -> None:
    overlap = Overlap(home, ["Y"])
    flying, others, gate = overlap.begin(
        [NextTask(project(), caller("alice"))], first=NextTask(project(), caller("zoe"))
    )
    gate.open()
    assert {answered(flying)[0].task_id, answered(others[0])[0].task_id} == {"X", "Y"}
    assert overlap.conflicts == []


def test_a_request_that_is_repeated_during_its_own_flight_gets_the_same_claim(home: Home) -> None:
    overlap = Overlap(home, ["Y"])
    request = NextTask(project(), caller("zoe"), operation="op-1")
    flying, others, gate = overlap.begin([request], first=request)
    gate.open()
    assert answered(flying)[0].claim == answered(others[0])[0].claim
    assert state(overlap.fleet, "Y") == "PENDING"


def test_a_request_that_is_repeated_during_its_own_flight_gets_the_same_claim_though_nothing_else_is_ready(
    home: Home,
) -> None:
    overlap = Overlap(home, [])
    request = NextTask(project(), caller("zoe"), operation="op-1")
    # What comes with it can be decided beside the flight, so that the repeated one is held back
    # alone.
    beside = RegisterSession(Key(*PLACE, SESSION, "s-new"), caller("new"))
    flying, others, gate = overlap.begin([request, beside], first=request)
    gate.open()
    first, again = answered(flying)[0], answered(others[0])[0]
    assert (first.success, again.success) == (True, True)
    assert first.claim == again.claim


def test_when_only_the_flight_can_open_something_the_request_waits_for_it(home: Home) -> None:
    overlap = Overlap(home, [])
    flying, others, gate = overlap.begin([NextTask(project(), caller("alice"))])
    gate.open()
    assert answered(flying)[0].success
    assert answered(others[0])[0].reason == "NOTHING_READY"


def test_what_was_left_out_beside_a_flight_is_offered_once_it_has_landed_also_in_another_project(
    home: Home,
) -> None:
    overlap = Overlap(home, [])
    engine, there = overlap.fleet.engine, ("default", "there")
    overlap.fleet.add_tasks(tasks=["Y", "Z"], project_id="there")
    deciding, committing = home.stop(), home.stop()
    overlap.store.on("load", before=deciding)
    overlap.store.on("commit", when=writing(e.TaskEdited, "Z"), before=committing)
    # Z is ready before, during and after this.
    flying = engine.submit([EditTask(Key(*there, TASK, "Z"), caller("zoe"), {"title": "another"})])
    deciding.wait()
    asking = (("alice", there), ("bob", PLACE), ("bob", PLACE), ("carol", there))
    jobs = [engine.submit([NextTask(project_key(*place), caller(who))]) for who, place in asking]
    deciding.open()
    committing.wait()
    committing.open()

    assert answered(flying)[0].task_id == "Z"
    alice, bob, again, carol = [answered(job)[0] for job in jobs]
    assert (alice.task_id, carol.task_id) == ("Y", "Z")
    # There is one task for bob, who lets the flight land to see whether there is another: it is not
    # given to him twice.
    assert (bob.task_id, again.reason) == ("X", "NOTHING_READY")


def test_limits_count_what_is_under_way(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    overlap.fleet.set_policy(limits={"max_concurrent_claims": 1})
    flying, others, gate = overlap.begin([ClaimTask(task_key("A"), caller("alice"))])
    gate.open()
    assert answered(flying)[0].success
    assert answered(others[0])[0].reason == "DENIED_LIMIT"


def test_a_flight_whose_answer_is_lost_is_looked_up(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    lost = raising(OutcomeUnknown("the connection broke"))
    flying, others, gate = overlap.begin([ClaimTask(task_key("A"), caller("alice"))], after=lost)
    gate.open()
    assert answered(flying)[0].claim.generation == 1
    assert answered(others[0])[0].success


def test_a_flight_that_could_not_be_written_is_decided_again(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    deciding, committing = home.stop(), home.stop()
    overlap.store.on("load", before=deciding)

    def fail() -> None:
        committing()
        raise StoreUnavailable("the server is away")

    overlap.store.on("commit", when=writing(e.ClaimAcquired), before=fail)
    flying = overlap.fleet.engine.submit([ClaimTask(task_key("X"), caller("zoe"))])
    deciding.wait()
    other = overlap.fleet.engine.submit([ClaimTask(task_key("A"), caller("alice"))])
    deciding.open()
    committing.wait()
    committing.open()
    assert answered(flying)[0].claim.generation == 1
    assert answered(other)[0].success


def test_a_completion_in_a_flight_opens_its_dependents(home: Home) -> None:
    overlap = Overlap(
        home, ["A", {"id": "B", "depends_on": ["A"]}, *(f"t-{n:02d}" for n in range(30))]
    )
    fleet = overlap.fleet
    jobs = [
        fleet.engine.submit([ClaimTask(task_key(f"t-{n:02d}"), caller("alice"))]) for n in range(30)
    ]
    done = later(lambda: complete(fleet, "A", "bob"))
    assert all(answered(job)[0].success for job in jobs)
    done.result(20)
    until(fleet, lambda: state(fleet, "B") == "PENDING")


@dies
def test_when_a_lane_ends_in_a_flight_everybody_is_told(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    flying, others, gate = overlap.begin([ClaimTask(task_key("A"), caller("alice"))], after=die)
    gate.open()
    assert isinstance(answered(flying)[0], OutcomeUnknown), (
        "it was done, and nobody has seen the answer"
    )
    for job in others:
        assert isinstance(answered(job)[0], Closed)


@dies
def test_when_a_lane_ends_in_a_flight_who_was_served_beside_it_is_told_too(home: Home) -> None:
    overlap = Overlap(home, [])
    engine, rival = overlap.fleet.engine, home.connect()
    wanted = NextTask(
        project(), caller("bob"), tracks=frozenset("A"), wait_until=time.monotonic() + PATIENCE
    )
    waiting = engine.submit([wanted], patience=PATIENCE)
    assert answered(engine.submit([ClaimTask(task_key("X"), caller("alice"))]))[0].success
    deciding, committing = home.stop(), home.stop()
    # Who waits may be looking once more, with a batch of its own.
    overlap.store.on("load", when=lambda keys: task_key("X") in keys, before=deciding)
    overlap.store.on("commit", before=committing, after=die)
    flying = engine.submit([ReleaseClaim(task_key("X"), caller("alice"), 1)])
    deciding.wait()
    # There is something for who waits, and it looks with the batch that is decided beside the
    # flight.
    rival.add_tasks(tasks=["A-001-something"])
    engine.poke()
    other = engine.submit([RegisterSession(Key(*PLACE, SESSION, "s-new"), caller("new"))])
    looked = home.stop()
    overlap.store.on("load", when=lambda keys: Key(*PLACE, SESSION, "s-bob") in keys, after=looked)
    deciding.open()
    committing.wait()
    looked.wait()
    looked.open()
    committing.open()

    assert isinstance(answered(flying)[0], OutcomeUnknown)
    for job in (other, waiting):
        assert isinstance(answered(job)[0], Closed)


def test_closing_finishes_the_flight(home: Home) -> None:
    overlap = Overlap(home, ["A"])
    flying, _, gate = overlap.begin([])
    closing = later(overlap.fleet.close)
    gate.open()
    closing.result(20)
    assert answered(flying)[0].success
    assert granted(home.connect(), "A", "bob") == 1
    assert claim(home.connect(), "X", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_runs_of_positions_join_in_any_order() -> None:
    runs = RangeSet()
    for first, last in ((1, 3), (10, 12), (4, 6), (7, 9)):
        runs.add(first, last)
    assert runs.last == (1, 12)
    assert (runs.end_after(0), runs.end_after(7), runs.end_after(12), runs.end_after(13)) == (
        12,
        12,
        12,
        0,
    )
    runs.add(20, 21)
    assert (runs.end_after(12), runs.end_after(13), runs.end_after(19), runs.last) == (
        12,
        0,
        21,
        (20, 21),
    )


def test_of_very_many_runs_the_last_are_kept() -> None:
    runs = RangeSet()
    for number in range(200):
        runs.add(3 * number, 3 * number + 1)
    assert runs.last == (597, 598)
    assert runs.end_after(0) == 0
    assert runs.end_after(597 - 3 * (RangeSet.MOST - 1)) == 598 - 3 * (RangeSet.MOST - 1)
