"""Prefetch: under load, the records of the next batch are loaded while this one is decided, and no
decision rests on a stale record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from genlock.core.commands import ChangeProject, ClaimTask, ReleaseClaim, RenewLease, SubmitResult
from genlock.core.keys import TASK, project_key
from genlock.engine import batch, pipeline
from genlock.engine.jobs import Job, NextTask, Sweep
from genlock.errors import Closed, OutcomeUnknown, StoreUnavailable
from tests.engine.gated_store import (
    PLACE,
    Home,
    Stop,
    answered,
    caller,
    complete,
    die,
    later,
    raising,
    task_key,
)

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class Queue:
    """X is being loaded, and stands at a gate; whoever comes meanwhile is asked for once it is
    decided upon."""

    def __init__(
        self, home: Home, tasks: Sequence[Any] = ("A", "B"), *, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pipeline, "LEAST_PREFETCHED", 1)
        self.store = home.gated()
        self.store.limits = replace(self.store.limits, shared=True, starts=True)
        self.fleet = home.connect(self.store)
        self.fleet.add_tasks(tasks=["X", *tasks])
        for who in ("alice", "bob", "zoe"):
            self.fleet.register_session(session_id=f"s-{who}")
        self._home = home

    def begin(self, first: Any, *others: Any) -> tuple[Job, list[Job], Stop]:
        """The first command, those behind it, and the gate at which the first is."""
        loading = self._home.stop()
        self.store.on("load", before=loading)
        leading = self.fleet.engine.submit([first])
        loading.wait()
        jobs = [self.fleet.engine.submit([command]) for command in others]
        self.store.commits.clear()
        self.store.calls.clear()
        return leading, jobs, loading

    @property
    def course(self) -> list[str]:
        """What was loaded, asked for and committed, by the tasks it was about."""
        shown = []
        for method, given in self.store.calls:
            if method in ("load", "start_load", "commit"):
                keys = given if method != "commit" else [change.key for change in given]
                shown += [f"{method} {key.id}" for key in keys if key.kind == TASK]
        return shown

    @property
    def conflicts(self) -> list[str]:
        return [name for commit in self.store.commits for name in commit.conflicts]


@pytest.fixture
def queue(home: Home, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(home, monkeypatch=monkeypatch)


def claims(task: str, who: str) -> ClaimTask:
    return ClaimTask(task_key(task), caller(who))


def test_the_next_batch_is_asked_for_before_this_one_is_committed(queue: Queue) -> None:
    leading, others, gate = queue.begin(
        claims("X", "zoe"), claims("A", "alice"), claims("B", "bob")
    )
    gate.open()
    assert [answered(job)[0].success for job in (leading, *others)] == [True, True, True]
    assert queue.course[0] == "load X"
    assert queue.course.index("start_load A") < queue.course.index("commit X")
    assert queue.course.index("start_load B") < queue.course.index("commit A")
    assert queue.conflicts == []


def test_what_the_batch_before_has_changed_is_loaded_anew(queue: Queue) -> None:
    leading, (late, other), gate = queue.begin(
        claims("X", "zoe"), claims("X", "bob"), claims("A", "alice")
    )
    gate.open()
    assert answered(leading)[0].claim.generation == 1
    assert (answered(late)[0].reason, answered(other)[0].reason) == (
        "DENIED_ACTIVE_CLAIM",
        "GRANTED",
    )
    assert queue.course.count("start_load X") == 1
    assert queue.course.count("load X") == 2, (
        "it was decided on what had been read before it was granted to another"
    )
    assert queue.conflicts == []


def test_whoever_follows_on_his_own_heels_is_not_told_that_he_was_never_there(queue: Queue) -> None:
    leading, (renewed, released), gate = queue.begin(
        claims("X", "zoe"),
        RenewLease(task_key("X"), caller("zoe"), 1, 900.0),
        ReleaseClaim(task_key("X"), caller("zoe"), 1),
    )
    gate.open()
    assert answered(leading)[0].success
    assert (answered(renewed)[0].reason, answered(released)[0].reason) == ("RENEWED", "RELEASED")


def test_what_is_under_way_is_not_asked_for(home: Home, queue: Queue) -> None:
    committing = home.stop()
    queue.store.on("commit", before=committing)
    # X is being committed, and A is decided, when it is to be asked for those behind them.
    leading, others, gate = queue.begin(
        claims("X", "zoe"), claims("A", "alice"), claims("X", "bob"), claims("B", "bob")
    )
    gate.open()
    committing.wait()
    committing.open()
    assert answered(leading)[0].success
    assert [answered(job)[0].reason for job in others] == [
        "GRANTED",
        "DENIED_ACTIVE_CLAIM",
        "GRANTED",
    ]
    assert "start_load X" not in queue.course
    assert queue.conflicts == []


def test_what_was_asked_for_long_ago_is_loaded_anew(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_STALE_SECONDS", 0.0)
    leading, (second,), gate = queue.begin(claims("X", "zoe"), claims("A", "alice"))
    gate.open()
    assert answered(leading)[0].success
    assert answered(second)[0].success
    assert [step for step in queue.course if step.endswith("A")][:2] == ["start_load A", "load A"]


def test_who_was_asked_for_does_not_pass_those_before_him_who_could_not_be_decided(
    queue: Queue,
) -> None:
    queue.fleet.set_policy(limits={"max_concurrent_claims": 5})
    # What has to be counted for the first cannot be, once the second was asked for.
    queue.store.on("find", before=raising(StoreUnavailable("the server is away")))
    leading, (renewed,), gate = queue.begin(
        claims("X", "zoe"), RenewLease(task_key("X"), caller("zoe"), 1, 900.0)
    )
    gate.open()
    assert answered(leading)[0].success
    assert answered(renewed)[0].reason == "RENEWED"
    assert "start_load X" in queue.course


def test_a_policy_that_was_changed_since_it_was_asked_for_counts(queue: Queue) -> None:
    change = ChangeProject(
        project_key(*PLACE), caller("zoe"), policy={"cancelled_dependency": "hold"}
    )
    leading, others, gate = queue.begin(change, claims("A", "alice"))
    gate.open()
    answered(leading)
    assert answered(others[0])[0].success
    loads = [
        given
        for method, given in queue.store.calls
        if method == "load" and project_key(*PLACE) in given
    ]
    assert len(loads) == 2, (
        "once for the change itself, and once more for who was asked for before it"
    )
    assert queue.conflicts == []


def test_a_session_that_the_batch_before_makes_known_is_not_made_known_twice(queue: Queue) -> None:
    leading, others, gate = queue.begin(claims("X", "new"), claims("A", "new"), claims("B", "new"))
    gate.open()
    assert [answered(job)[0].success for job in (leading, *others)] == [True, True, True]
    assert queue.conflicts == []


def test_limits_count_what_was_granted_since_it_was_asked_for(queue: Queue) -> None:
    queue.fleet.set_policy(limits={"max_concurrent_claims": 2})
    leading, others, gate = queue.begin(
        claims("X", "zoe"), claims("A", "alice"), claims("B", "bob")
    )
    gate.open()
    assert answered(leading)[0].success
    assert [answered(job)[0].reason for job in others] == ["GRANTED", "DENIED_LIMIT"]


def test_a_completion_opens_its_dependents_for_who_was_asked_for_before(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(home, [{"id": "D", "depends_on": ["X"]}, "A"], monkeypatch=monkeypatch)
    generation = queue.fleet.claim_task(
        task_id="X", agent_id="zoe", session_id="s-zoe"
    ).claim.generation  # type: ignore[union-attr]
    content = SubmitResult(task_key("X"), caller("zoe"), generation, _content())
    # D is asked for while the completion is under way, and opened by it before its turn comes.
    leading, (other, dependent), gate = queue.begin(
        content, claims("A", "alice"), claims("D", "bob")
    )
    gate.open()
    assert answered(leading)[0].accepted
    assert answered(other)[0].success
    assert answered(dependent)[0].reason == "GRANTED"
    assert queue.course.count("start_load D") == 1
    assert queue.conflicts == [], "it was decided on what the completion had changed"


def _content() -> Any:
    from genlock.coordinator.arguments import pack

    return pack("done")[0]


def test_what_could_not_be_read_is_asked_for_again(queue: Queue) -> None:
    queue.store.on("start_load", before=raising(StoreUnavailable("the server is away")))
    leading, others, gate = queue.begin(
        claims("X", "zoe"), claims("A", "alice"), claims("B", "bob")
    )
    gate.open()
    assert [answered(job)[0].success for job in (leading, *others)] == [True, True, True]
    assert queue.conflicts == []


def test_who_asks_for_a_next_task_or_a_sweep_is_not_passed_by_what_is_asked_ahead(
    queue: Queue,
) -> None:
    commands = [
        NextTask(project_key(*PLACE), caller("bob")),
        claims("A", "alice"),
        Sweep(project_key(*PLACE)),
        claims("B", "zoe"),
    ]
    leading, others, gate = queue.begin(claims("X", "zoe"), *commands)
    gate.open()
    assert answered(leading)[0].success
    wanted, alice, _, zoe = [answered(job)[0] for job in others]
    assert (wanted.task_id, alice.reason, zoe.reason) == ("A", "DENIED_ACTIVE_CLAIM", "GRANTED"), (
        "who came later was served first"
    )


def test_of_few_who_wait_nobody_is_asked_for_ahead(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LEAST_PREFETCHED", 3)
    leading, others, gate = queue.begin(
        claims("X", "zoe"), claims("A", "alice"), claims("B", "bob")
    )
    gate.open()
    assert [answered(job)[0].success for job in (leading, *others)] == [True, True, True]
    assert not any(step.startswith("start_load") for step in queue.course)


def test_closing_finishes_what_was_asked_for(home: Home, queue: Queue) -> None:
    committing = home.stop()
    queue.store.on("commit", before=committing)
    leading, (second,), gate = queue.begin(claims("X", "zoe"), claims("A", "alice"))
    gate.open()
    committing.wait()
    closing = later(queue.fleet.close)
    committing.open()
    closing.result(20)
    assert answered(leading)[0].success
    assert answered(second)[0].success
    assert not home.connect().claim_task(task_id="A", agent_id="bob", session_id="s-bob").success


@dies
def test_when_a_lane_ends_those_who_were_asked_for_are_told(queue: Queue) -> None:
    queue.store.on("start_load", after=die)
    leading, others, gate = queue.begin(
        claims("X", "zoe"), claims("A", "alice"), claims("B", "bob")
    )
    gate.open()
    for job in (leading, *others):
        assert isinstance(answered(job)[0], Closed | OutcomeUnknown)


def test_a_crowd_is_served_and_nothing_is_granted_twice(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t-{number:03}" for number in range(60)]
    queue = Queue(home, names, monkeypatch=monkeypatch)
    monkeypatch.setattr(pipeline, "MOST_COMMANDS", 8)
    jobs = {
        (name, who): queue.fleet.engine.submit([claims(name, who)])
        for at, name in enumerate(names)
        for who in ("alice", "bob")[:: 1 - at % 2 * 2]
    }
    outcomes = {asked: answered(job)[0] for asked, job in jobs.items()}
    for name in names:
        assert sorted(outcomes[name, who].reason for who in ("alice", "bob")) == [
            "DENIED_ACTIVE_CLAIM",
            "GRANTED",
        ]
    assert any(step.startswith("start_load") for step in queue.course), (
        "nothing was asked for ahead"
    )
    complete(queue.fleet, "X", "zoe")
