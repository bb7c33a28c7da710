"""A reset that was acknowledged, or whose process died after its commit, closes its dependents and
parents to every later claim."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Any

import pytest

import genlock
from genlock.core import events as e
from genlock.core.keys import project_key
from genlock.engine.jobs import NextTask
from genlock.errors import Closed, OutcomeUnknown, StoreUnavailable, TaskExists, TaskNotFound
from tests.engine.gated_store import (
    PLACE,
    GatedStore,
    Home,
    answered,
    caller,
    claim,
    complete,
    die,
    granted,
    later,
    next_for,
    raising,
    state,
    submit,
    told,
    writing,
)

PAIR: list[Any] = ["A", {"id": "B", "depends_on": ["A"]}]

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def reset_and_die(fleet: genlock.Coordinator, store: GatedStore, task_id: str) -> None:
    """The process ends right after the reset's commit: nobody is told of it."""
    store.on("commit", when=writing(e.TaskReset, task_id), after=die)
    with suppress(Closed, OutcomeUnknown):
        fleet.reset_task(task_id=task_id)


def doomed(home: Home, tasks: list[Any]) -> tuple[genlock.Coordinator, GatedStore]:
    """A coordinator that is about to be killed, on a store with these tasks."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=tasks)
    return fleet, store


@dies
def test_claim_is_denied_when_the_reset_was_killed_before_its_reactions(home: Home) -> None:
    fleet, store = doomed(home, PAIR)
    complete(fleet, "A")
    reset_and_die(fleet, store, "A")
    other = home.connect()

    denied = claim(other, "B", "bob")

    assert (denied.success, denied.reason, denied.waits_for) == (False, "DENIED_BLOCKED", ("A",))
    assert told(other, "B") == ["TASK_ADDED", "DEPENDENCY_MET", "DEPENDENCY_REOPENED"]
    assert state(other, "B") == "BLOCKED"


def test_claim_is_denied_when_the_store_was_away_for_the_reactions(home: Home) -> None:
    fleet, store = doomed(home, PAIR)
    complete(fleet, "A")

    def go_away() -> None:
        for call in ("load", "find"):
            store.on(call, before=raising(StoreUnavailable("away")), times=inf)

    store.on("commit", when=writing(e.TaskReset, "A"), after=go_away)

    assert fleet.reset_task(task_id="A").verdict == "DONE"

    assert claim(home.connect(), "B", "bob").reason == "DENIED_BLOCKED"


@pytest.mark.parametrize("who", ["same", "other"])
def test_claims_of_600_dependents_are_denied_as_soon_as_the_reset_returns(
    home: Home, who: str
) -> None:
    names = [f"D-{number:03}" for number in range(1, 601)]
    fleet = home.connect()
    fleet.add_tasks(tasks=["A", *({"id": name, "depends_on": ["A"]} for name in names)])
    complete(fleet, "A")
    fleet.sweep()
    claimer = fleet if who == "same" else home.connect()

    assert fleet.reset_task(task_id="A").verdict == "DONE"

    # From the end: what the reactions come to last is claimed first.
    reasons = {claim(claimer, name, "bob").reason for name in reversed(names)}
    assert reasons == {"DENIED_BLOCKED"}


@dies
def test_claim_next_passes_over_what_a_killed_reset_has_closed(home: Home) -> None:
    tasks = [
        "A-001",
        *({"id": f"B-{number:03}", "depends_on": ["A-001"]} for number in range(1, 31)),
        {"id": "C-001", "priority": "low"},
    ]
    fleet, store = doomed(home, tasks)
    complete(fleet, "A-001")
    reset_and_die(fleet, store, "A-001")
    other = home.connect()

    first, second = next_for(other, "bob"), next_for(other, "carol")

    assert {first.task_id, second.task_id} == {"A-001", "C-001"}
    assert not next_for(other, "dave").success
    assert {state(other, f"B-{number:03}") for number in range(1, 31)} == {"BLOCKED"}


@dies
def test_takeover_is_denied_when_the_inputs_were_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, PAIR)
    complete(fleet, "A")
    granted(fleet, "B", "alice", lease=10)
    reset_and_die(fleet, store, "A")
    home.clock.advance(11)

    assert claim(home.connect(), "B", "bob").reason == "DENIED_BLOCKED"


@dies
def test_claim_of_a_backlog_task_is_denied_when_its_inputs_were_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, ["A", {"id": "B", "depends_on": ["A"], "state": "BACKLOG"}])
    complete(fleet, "A")
    reset_and_die(fleet, store, "A")

    assert claim(home.connect(), "B", "bob").reason == "DENIED_BLOCKED"


@dies
def test_cancellation_of_a_reset_dependency_is_heard_by_the_claim(home: Home) -> None:
    fleet, store = doomed(home, PAIR)
    fleet.set_policy(policy={"cancelled_dependency": "hold"})
    complete(fleet, "A")
    reset_and_die(fleet, store, "A")
    store = home.gated()
    canceller = home.connect(store)
    store.on("commit", when=writing(e.TaskCancelled, "A"), after=die)
    with suppress(Closed, OutcomeUnknown):
        canceller.cancel_task(task_id="A")

    assert claim(home.connect(), "B", "bob").reason == "DENIED_HELD"


def test_claim_that_overlaps_a_reset_is_granted_and_marked(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    complete(fleet, "A")
    stop = home.stop()
    # The claim has read its dependency and is about to be written when the reset begins.
    store.on("commit", when=writing(e.ClaimAcquired, "B"), before=stop)
    claiming = later(lambda: claim(fleet, "B", "bob"))
    stop.wait()
    hold = home.stop()
    resetting_store = home.gated()
    resetting = home.connect(resetting_store)
    resetting_store.on("commit", when=writing(e.TaskReset, "A"), after=hold)
    reset = later(lambda: resetting.reset_task(task_id="A"))
    hold.wait()
    assert not reset.done(), "the two did not overlap"
    stop.open()
    won = claiming.result(20)
    hold.open()

    assert reset.result(20).verdict == "DONE"
    assert won.success
    assert rival.get_task_state(task_id="B").inputs_changed == ("A",)


@dies
def test_holder_is_told_of_an_unheard_reset_of_a_cancelled_dependency_that_was_then_completed(
    home: Home,
) -> None:
    fleet, store = doomed(home, PAIR)
    fleet.cancel_task(task_id="A")
    granted(fleet, "B", "bob")
    reset_and_die(fleet, store, "A")
    other = home.connect()
    complete(other, "A")

    other.sweep()

    assert other.get_task_state(task_id="B").inputs_changed == ("A",)
    assert told(other, "B")[-2:] == ["DEPENDENCY_REOPENED", "DEPENDENCY_MET"]


def test_dependencies_of_all_tasks_that_are_handed_out_are_read_in_one_load(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    inputs = [f"A-{number:03}" for number in range(1, 4)]
    offered = [
        {"id": f"{track}-{number:03}", "depends_on": inputs}
        for track in "BC"
        for number in range(1, 5)
    ]
    fleet.add_tasks(tasks=[*inputs, *offered])
    for name in inputs:
        complete(fleet, name)
    stop = home.stop()
    store.on("load", before=stop)
    first = later(lambda: claim(fleet, "nothing", "zoe"))
    stop.wait()
    # All of these wait for the lane, and are served in one round.
    jobs = [
        fleet.engine.submit([NextTask(project_key(*PLACE), caller(f"w{number}"))], patience=20)
        for number in range(6)
    ]
    before = len(store.calls)
    stop.open()
    granted_to = [answered(job)[0].task_id for job in jobs]

    with pytest.raises(TaskNotFound):
        first.result(20)
    assert len({*granted_to}) == 6
    loads = [
        keys
        for method, keys in store.calls[before:]
        if method == "load" and any(key.id in inputs for key in keys)
    ]
    assert len(loads) == 1


# Children


@dies
def test_claim_of_the_parent_is_denied_when_a_child_was_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, ["0001", "0001_t1"])
    complete(fleet, "0001_t1")
    reset_and_die(fleet, store, "0001_t1")

    assert claim(home.connect(), "0001", "bob").reason == "DENIED_BLOCKED"


@dies
def test_submission_of_the_parent_is_refused_when_a_child_was_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, ["0001", "0001_t1"])
    complete(fleet, "0001_t1")
    generation = granted(fleet, "0001", "bob")
    reset_and_die(fleet, store, "0001_t1")
    other = home.connect()

    refused = submit(other, "0001", "bob", generation)

    assert (refused.accepted, refused.reason, refused.waits_for) == (
        False,
        "CHILDREN_UNFINISHED",
        ("0001_t1",),
    )


@dies
def test_fan_in_waits_for_a_child_that_was_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, ["P"])
    generation = granted(fleet, "P", "alice")
    subtasks = [{"id": "P1"}, {"id": "P2"}]
    fleet.spawn_subtasks(
        task_id="P",
        generation=generation,
        session_id="s-alice",
        subtasks=subtasks,
        mode="fan-out-fan-in",
    )
    complete(fleet, "P1")
    reset_and_die(fleet, store, "P1")
    other = home.connect()

    complete(other, "P2")

    assert state(other, "P") == "BLOCKED"
    complete(other, "P1")
    assert state(other, "P") == "COMPLETED"


@dies
def test_fan_in_waits_for_a_dependency_that_was_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, ["A", {"id": "P", "depends_on": ["A"]}])
    complete(fleet, "A")
    generation = granted(fleet, "P", "alice")
    fleet.spawn_subtasks(
        task_id="P",
        generation=generation,
        session_id="s-alice",
        subtasks=[{"id": "P1"}],
        mode="fan-out-fan-in",
    )
    reset_and_die(fleet, store, "A")
    other = home.connect()

    complete(other, "P1")

    assert state(other, "P") == "BLOCKED"
    assert other.get_task_state(task_id="P").unmet_dependencies == ("A",)
    complete(other, "A")
    assert state(other, "P") == "COMPLETED"


@dies
def test_spawn_into_a_fan_out_finds_an_earlier_child_that_was_reset_unheard(home: Home) -> None:
    fleet, store = doomed(home, ["P"])
    generation = granted(fleet, "P", "alice")
    split: dict[str, Any] = {"task_id": "P", "generation": generation, "session_id": "s-alice"}
    fleet.spawn_subtasks(**split, subtasks=[{"id": "P1"}, {"id": "P2"}], keep=True)
    complete(fleet, "P1")
    complete(fleet, "P2")
    reset_and_die(fleet, store, "P1")
    other = home.connect()

    other.spawn_subtasks(**split, subtasks=[{"id": "P2"}], mode="fan-out-fan-in")

    assert state(other, "P") == "BLOCKED"
    complete(other, "P1")
    assert state(other, "P") == "COMPLETED"


@dies
def test_parent_is_not_granted_when_the_process_that_adds_a_child_is_killed(home: Home) -> None:
    """Wherever it is killed: either nobody knows of the child, or the parent waits for it."""
    outcomes = []
    for number in range(1, 5):
        parent, child = f"000{number}", f"000{number}_t1"
        store = home.gated()
        fleet = home.connect(store)
        fleet.add_tasks(tasks=[parent])
        seen = 0

        def passes(changes: Any, number: int = number) -> bool:
            nonlocal seen
            seen += 1
            return seen == number

        store.on("commit", when=passes, after=die)
        with suppress(Closed, OutcomeUnknown):
            fleet.add_tasks(tasks=[child])
        other = home.connect()
        claimed = claim(other, parent, "bob").reason
        try:
            outcomes.append((claimed, state(other, child)))
        except TaskNotFound:
            outcomes.append((claimed, "absent"))

    assert outcomes[0] == ("DENIED_BLOCKED", "PENDING"), (
        "announced: whoever meets the parent creates its child"
    )
    assert {*outcomes[1:]} == {("DENIED_BLOCKED", "PENDING")}


@dies
def test_announced_child_is_created_by_settling(home: Home) -> None:
    fleet, store = doomed(home, ["0001"])
    store.on("commit", when=writing(e.ChildrenAnnounced, "0001"), after=die)
    with suppress(Closed, OutcomeUnknown):
        fleet.add_tasks(tasks=[{"id": "0001_t1", "title": "the part", "state": "BACKLOG"}])
    other = home.connect()
    with pytest.raises(TaskNotFound):
        state(other, "0001_t1")

    other.sweep()

    assert (state(other, "0001_t1"), other.get_task_state(task_id="0001_t1").task.title) == (
        "BACKLOG",
        "the part",
    )
    assert state(other, "0001") == "BLOCKED"


@dies
def test_adding_again_after_a_kill_says_that_the_child_is_there(home: Home) -> None:
    fleet, store = doomed(home, ["0001"])
    store.on("commit", when=writing(e.ChildrenAnnounced, "0001"), after=die)
    with suppress(Closed, OutcomeUnknown):
        fleet.add_tasks(tasks=["0001_t1"])
    other = home.connect()

    (added,) = other.add_tasks(tasks=["0001_t1"])

    assert (added.verdict, added.state) == ("DONE", "PENDING")
    assert other.add_tasks(tasks=["0001_t1"])[0].verdict == "UNCHANGED"


def test_child_with_another_definition_than_the_announced_is_refused(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["0001", {"id": "0001_t1", "title": "one"}])

    with pytest.raises(TaskExists, match="another definition"):
        fleet.add_tasks(tasks=[{"id": "0001_t1", "title": "two"}])
    assert fleet.get_task_state(task_id="0001_t1").task.title == "one"


def test_children_added_with_their_parent_block_it_from_its_first_event(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)

    fleet.add_tasks(tasks=["0001", "0001_t1", "0001_t1.1"])

    assert told(fleet, "0001")[:2] == ["TASK_ADDED", "CHILDREN_ANNOUNCED"]
    first = next(commit for commit in store.commits if "0001" in commit.tasks)
    assert [len(change.events) for change in first.changes if change.key.id == "0001"] == [2], (
        "one change: nobody sees it unblocked"
    )
    assert [state(fleet, name) for name in ("0001", "0001_t1", "0001_t1.1")] == [
        "BLOCKED",
        "BLOCKED",
        "PENDING",
    ]
