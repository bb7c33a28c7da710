"""An answer is lost and the call is made again, with the same operation id: it is done once."""

from __future__ import annotations

from typing import Any

import pytest

from genlock.core import events as e
from genlock.core.keys import project_key
from genlock.engine.jobs import NextTask
from genlock.errors import OperationMismatch, OutcomeUnknown
from tests.engine.gated_store import (
    PLACE,
    Home,
    answered,
    caller,
    claim,
    complete,
    die,
    granted,
    later,
    next_for,
    submit,
    told,
    writing,
)

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

# claim_next


def test_a_repeated_claim_next_gives_the_same_claim(home: Home) -> None:
    fleet, other = home.connect(), home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])
    first = next_for(fleet, "alice", operation_id="op-1")
    home.clock.advance(5)

    # Whoever lost an answer may well ask another coordinator.
    again = next_for(other, "alice", operation_id="op-1")

    assert (again.success, again.task_id, again.claim) == (True, "t-1", first.claim)
    assert told(fleet, "t-1") == ["TASK_ADDED", "CLAIM_ACQUIRED", "LEASE_RENEWED"]
    assert next_for(fleet, "alice", operation_id="op-2").task_id == "t-2"


def test_without_an_operation_id_a_second_claim_next_takes_a_second_task(home: Home) -> None:
    """Proof that the id does something."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])

    assert [next_for(fleet, "alice").task_id, next_for(fleet, "alice").task_id] == ["t-1", "t-2"]


def test_a_claim_next_that_is_repeated_before_the_first_was_carried_out_takes_one_task(
    home: Home,
) -> None:
    """Both stand in the same queue, and are decided in the same round."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["X", "t-1", "t-2"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    request = NextTask(project_key(*PLACE), caller("alice"), operation="op-1")
    jobs = [fleet.engine.submit([request]), fleet.engine.submit([request])]
    stop.open()

    first, second = (answered(job)[0] for job in jobs)

    assert first.success
    assert second.claim == first.claim
    assert len(fleet.get_active_claims_for_session(session_id="s-alice")) == 1


def test_a_repeated_claim_next_whose_first_grant_conflicted_takes_one_task(home: Home) -> None:
    """The repeat must not be answered with a claim that was decided in the same round and then not
    written."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["X", "t-1"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    request = NextTask(project_key(*PLACE), caller("alice"), operation="op-1")
    jobs = [fleet.engine.submit([request]), fleet.engine.submit([request])]
    store.on(
        "commit", when=writing(e.ClaimAcquired, "t-1"), before=lambda: granted(rival, "t-1", "bob")
    )
    stop.open()

    assert [answered(job)[0].reason for job in jobs] == ["NOTHING_READY", "NOTHING_READY"]
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="t-1")] == ["s-bob"]


def test_the_operation_id_of_another_session_means_nothing(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])

    assert next_for(fleet, "alice", operation_id="op-1").task_id == "t-1"
    assert next_for(fleet, "bob", operation_id="op-1").task_id == "t-2"


def test_a_claim_next_of_another_agent_under_the_same_operation_id_is_an_error(home: Home) -> None:
    """A live claim of the session's other agent is not handed over by way of an operation id."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])
    next_for(fleet, "alice", operation_id="op-1")

    with pytest.raises(OperationMismatch):
        fleet.claim_next(agent_id="mallory", session_id="s-alice", operation_id="op-1")


def test_a_claim_next_with_another_lease_under_the_same_operation_id_is_an_error(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])
    next_for(fleet, "alice", operation_id="op-1", lease_duration_seconds=60)

    with pytest.raises(OperationMismatch):
        next_for(fleet, "alice", operation_id="op-1", lease_duration_seconds=90)


def test_a_claim_next_that_is_repeated_after_its_lease_ran_out_is_granted_a_lease_that_runs(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["t-1"])
    next_for(fleet, "alice", operation_id="op-1", lease_duration_seconds=30)
    home.clock.advance(31)

    again = next_for(fleet, "alice", operation_id="op-1", lease_duration_seconds=30)

    assert again.success
    assert again.claim is not None
    assert again.claim.expires_at is not None
    assert (again.claim.generation, again.claim.expires_at > home.clock.now()) == (2, True)


def test_a_claim_next_that_is_repeated_after_its_task_was_done_takes_the_next_task(
    home: Home,
) -> None:
    """What is remembered is the claim, and it is over: the design says that any other repeat is
    decided anew."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])
    first = next_for(fleet, "alice", operation_id="op-1")
    assert first.claim is not None
    assert submit(fleet, "t-1", "alice", first.claim.generation).accepted

    assert next_for(fleet, "alice", operation_id="op-1").task_id == "t-2"


# claim_task


def test_a_repeated_claim_is_answered_alike_and_leaves_the_lease_as_it_is(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    first = claim(fleet, "T", "alice", operation_id="op-1")
    home.clock.advance(5)

    assert claim(fleet, "T", "alice", operation_id="op-1").claim == first.claim

    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "LEASE_RENEWED"]
    assert fleet.get_task_state(task_id="T").claim == first.claim


def test_a_claim_with_other_arguments_under_the_same_operation_id_is_an_error(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    first = claim(fleet, "T", "alice", operation_id="op-1")

    with pytest.raises(OperationMismatch):
        claim(fleet, "T", "alice", lease=60, operation_id="op-1")
    with pytest.raises(OperationMismatch):
        fleet.claim_task(task_id="T", agent_id="mallory", session_id="s-alice", operation_id="op-1")

    assert fleet.get_task_state(task_id="T").claim == first.claim


def test_a_claim_that_is_repeated_after_a_takeover_is_denied(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    claim(fleet, "T", "alice", lease=30, operation_id="op-1")
    home.clock.advance(31)
    granted(fleet, "T", "bob")

    assert claim(fleet, "T", "alice", lease=30, operation_id="op-1").reason == "DENIED_ACTIVE_CLAIM"


# release_claim


def test_a_repeated_release_is_answered_alike_and_writes_nothing(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    arguments = {"task_id": "T", "expected_generation": 1, "session_id": "s-alice"}

    answers = [fleet.release_claim(**arguments, operation_id="op-1") for _ in range(2)]  # type: ignore[arg-type]

    assert [(answer.success, answer.reason) for answer in answers] == [
        (True, "RELEASED"),
        (True, "RELEASED"),
    ]
    assert fleet.release_claim(**arguments, operation_id="op-2").reason == "NO_CLAIM"  # type: ignore[arg-type]
    assert fleet.release_claim(**arguments).reason == "NO_CLAIM"  # type: ignore[arg-type]
    assert told(fleet, "T").count("CLAIM_RELEASED") == 1
    with pytest.raises(OperationMismatch):
        fleet.release_claim(**arguments, reason="ERROR", operation_id="op-1")  # type: ignore[arg-type]


def test_a_release_that_is_repeated_after_somebody_claimed_is_answered_alike_and_takes_nothing_away(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    fleet.release_claim(
        task_id="T", expected_generation=1, session_id="s-alice", operation_id="op-1"
    )
    granted(fleet, "T", "bob")

    again = fleet.release_claim(
        task_id="T", expected_generation=1, session_id="s-alice", operation_id="op-1"
    )

    assert (again.success, again.reason) == (True, "RELEASED")
    assert fleet.get_task_state(task_id="T").state == "IN_PROGRESS"
    # Another id, or the same at another generation, is another release.
    other = fleet.release_claim(
        task_id="T", expected_generation=1, session_id="s-alice", operation_id="op-2"
    )
    assert (other.success, other.reason) == (False, "GENERATION_MISMATCH")
    other = fleet.release_claim(
        task_id="T", expected_generation=2, session_id="s-alice", operation_id="op-1"
    )
    assert (other.success, other.reason) == (False, "SESSION_MISMATCH")


# submit_result


@pytest.mark.parametrize("operation", [None, "op-1"])
def test_a_repeated_submission_is_accepted_again_and_writes_nothing(
    home: Home, operation: str | None
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")

    answers = [
        submit(fleet, "T", "alice", generation, {"n": 1}, operation_id=operation) for _ in range(2)
    ]

    assert answers[0].accepted
    assert answers[0] == answers[1]
    assert told(fleet, "T").count("RESULT_ACCEPTED") == 1
    assert fleet.list_refused_results() == ()


def test_another_result_under_the_same_operation_id_is_an_error_and_under_a_new_one_refused_and_kept(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    submit(fleet, "T", "alice", generation, {"n": 1}, operation_id="op-1")

    with pytest.raises(OperationMismatch):
        submit(fleet, "T", "alice", generation, {"n": 2}, operation_id="op-1")
    refused = submit(fleet, "T", "alice", generation, {"n": 2}, operation_id="op-2")

    assert (refused.reason, refused.kept) == ("TASK_ALREADY_COMPLETED", True)
    assert fleet.read_result(task_id="T") == {"n": 1}


def test_a_repeated_refused_submission_is_refused_again_and_kept_once(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")

    answers = [submit(fleet, "T", "alice", 1, {"n": 1}, operation_id="op-1") for _ in range(2)]

    assert answers[0].kept
    assert answers[0].refused_id == answers[1].refused_id
    assert len(fleet.list_refused_results()) == 1


# spawn_subtasks


def test_a_repeated_spawn_makes_its_children_once(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["P"])
    generation = granted(fleet, "P", "alice")
    children = [{"id": "c1"}, {"id": "c2"}]

    answers = [
        fleet.spawn_subtasks(
            task_id="P",
            generation=generation,
            session_id="s-alice",
            subtasks=children,
            operation_id="op-1",
        )
        for _ in range(2)
    ]

    assert [(answer.success, answer.children) for answer in answers] == [(True, ("c1", "c2"))] * 2
    assert told(fleet, "P").count("SUBTASKS_SPAWNED") == 1
    assert [told(fleet, child) for child in ("c1", "c2")] == [["TASK_ADDED"], ["TASK_ADDED"]]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"subtasks": ["two"]},
        {"subtasks": [{"id": "named"}]},
        {"subtasks": ["one", "two"]},
        {"mode": "sequential"},
    ],
)
def test_other_subtasks_under_the_same_operation_id_are_an_error(
    home: Home, keep: bool, other: dict[str, Any]
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["P"])
    granted(fleet, "P", "alice")
    asked: dict[str, Any] = {
        "task_id": "P",
        "generation": 1,
        "session_id": "s-alice",
        "keep": keep,
        "operation_id": "op-1",
    }
    made = fleet.spawn_subtasks(**asked, subtasks=["one"])

    with pytest.raises(OperationMismatch, match="with other arguments"):
        fleet.spawn_subtasks(**asked | {"subtasks": ["one"]} | other)

    assert fleet.spawn_subtasks(**asked, subtasks=["one"]).children == made.children == ("P::1",)


@dies
def test_a_repeated_spawn_of_large_children_is_answered_alike_though_they_were_not_made_yet(
    home: Home,
) -> None:
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["P"])
    generation = granted(doomed, "P", "alice")
    children = [{"id": f"c{n}", "description": "d" * 10_000} for n in range(4)]
    store.on("commit", when=writing(e.TaskAdded, "c1"), before=die)
    with pytest.raises(OutcomeUnknown):
        doomed.spawn_subtasks(
            task_id="P",
            generation=generation,
            session_id="s-alice",
            subtasks=children,
            operation_id="op-1",
        )
    fleet = home.connect()

    again = fleet.spawn_subtasks(
        task_id="P",
        generation=generation,
        session_id="s-alice",
        subtasks=children,
        operation_id="op-1",
    )

    assert (again.success, again.children) == (True, ("c0", "c1", "c2", "c3"))
    assert told(fleet, "P").count("SUBTASKS_SPAWNED") == 1
    fleet.sweep()
    assert {line.task.id for line in fleet.ready()} == {"c0", "c1", "c2", "c3"}


def test_a_number_that_somebody_takes_meanwhile_is_not_given_to_a_subtask(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["P", "P::1", "P::4"])
    for name in ("P::1", "P::4"):
        complete(fleet, name)
    generation = granted(fleet, "P", "alice")

    def take() -> None:
        assert rival.next_id(parent="P") == "P::2"

    store.on("commit", when=writing(e.IdsTaken, "P"), before=take)
    spawned = fleet.spawn_subtasks(
        task_id="P", generation=generation, session_id="s-alice", subtasks=["one", "two"]
    )

    assert (spawned.success, spawned.children) == (True, ("P::3", "P::5"))
    assert {line.task.id for line in fleet.ready()} == {"P::3", "P::5"}


# Operators


def test_an_act_without_an_id_makes_none_forgotten(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    fleet.hold_task(task_id="T", operation_id="op-1")
    fleet.reopen_task(task_id="T")

    again = fleet.hold_task(task_id="T", operation_id="op-1")

    assert (again.verdict, again.state) == ("DONE", "PENDING")
    assert told(fleet, "T").count("TASK_HELD") == 1


def test_another_operator_s_id_is_another_act(home: Home) -> None:
    """Ids belong to a session; those of nobody's session are one's own only by being made up
    well."""
    fleet, other = home.connect(), home.connect(session_id="s-olga")
    fleet.add_tasks(tasks=["T"])

    generations = [
        each.reset_task(task_id="T", operation_id="op-1").generation
        for each in (fleet, other, other)
    ]

    assert told(fleet, "T").count("TASK_RESET") == 2
    assert generations[1] == generations[2]


def test_a_claim_and_a_result_in_between_change_nothing_about_it(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    fleet.reset_task(task_id="T", operation_id="op-1")
    complete(fleet, "T")

    again = fleet.reset_task(task_id="T", operation_id="op-1")

    assert (again.verdict, again.state) == ("DONE", "COMPLETED")


def test_a_repeated_spawn_of_nameless_children_that_keeps_the_claim_names_those_that_were_made(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["P"])
    generation = granted(fleet, "P", "alice")

    answers = [
        fleet.spawn_subtasks(
            task_id="P",
            generation=generation,
            session_id="s-alice",
            subtasks=["one", "two"],
            keep=True,
            operation_id="op-1",
        )
        for _ in range(2)
    ]

    assert [answer.children for answer in answers] == [("P::1", "P::2")] * 2
    assert told(fleet, "P").count("SUBTASKS_SPAWNED") == 1


def test_a_repeated_claim_next_gives_the_same_claim_although_the_task_asks_for_another_lease_by_now(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=[{"id": "t-1", "lease_seconds": 60}, "t-2"])
    first = fleet.claim_next(session_id="s-alice", agent_id="alice", operation_id="op-1")
    assert first.claim is not None
    assert first.claim.lease_seconds == 60
    fleet.edit_task(task_id="t-1", changes={"lease_seconds": 600})

    # Who says how long it wants the task says another thing with another length.
    with pytest.raises(OperationMismatch):
        fleet.claim_next(
            session_id="s-alice", agent_id="alice", operation_id="op-1", lease_duration_seconds=600
        )
    again = fleet.claim_next(session_id="s-alice", agent_id="alice", operation_id="op-1")

    assert again.claim == first.claim
