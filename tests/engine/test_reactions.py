"""What one record's event asks of others: decided after its cause is done, never lost, never late
enough to do harm."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

import pytest

import genlock
from genlock.core import events as e
from genlock.core.codec import decode_record
from genlock.core.commands import AddTask, CheckRelated, ClaimTask, Content, SubmitResult
from genlock.core.facts import ObservedTask
from genlock.core.keys import REFUSED, SETTLED, TASK, Key, project_key
from genlock.core.model import SettledRecord, Task
from genlock.core.reasons import Status
from genlock.engine.jobs import NextTask
from genlock.errors import NotAllowed, OutcomeUnknown, StoreFull, StoreUnavailable
from genlock.store import Committed, Conflict, EventQuery
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    Home,
    answered,
    caller,
    change_of,
    claim,
    complete,
    die,
    feed,
    granted,
    later,
    next_for,
    raising,
    state,
    submit,
    task_key,
    told,
    until,
    writing,
)

PAIR: list[Any] = ["A", {"id": "B", "depends_on": ["A"]}]

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


# A reaction is not decided in the commit that causes it


def test_a_completion_that_conflicts_opens_nothing(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    store.on(
        "commit",
        when=writing(e.ResultAccepted, "A"),
        before=lambda: rival.force_release(task_id="A", take_over=True),
    )

    refused = submit(fleet, "A", "alice", generation)

    assert ["A"] in [commit.conflicts for commit in store.commits]
    assert (refused.accepted, refused.reason) == (False, "STALE_GENERATION")
    assert (state(fleet, "A"), state(fleet, "B")) == ("PENDING", "BLOCKED")
    assert claim(fleet, "B", "bob").reason == "DENIED_BLOCKED"


def test_the_naive_way_opens_a_dependent_although_the_completion_conflicted(home: Home) -> None:
    """The trap itself, as proof that the test above can fail: both records in one commit."""
    store = home.store()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    completion = change_of(
        store, SubmitResult(task_key("A"), caller("alice"), generation, Content("00", 2))
    )
    news = CheckRelated(task_key("B"), caller("alice"), (("A", completion.version),))
    opening = change_of(
        store, news, others={"A": ObservedTask(completion.version, Status.COMPLETED)}
    )
    rival.force_release(task_id="A", take_over=True)

    answers = store.commit([completion, opening])

    assert [type(answer) for answer in answers] == [Conflict, Committed]
    assert (state(fleet, "A"), state(fleet, "B")) == ("PENDING", "PENDING")


def test_a_claim_is_not_granted_on_a_completion_of_the_same_batch_that_then_conflicts(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=[*PAIR, "X"])
    generation = granted(fleet, "A", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    store.on(
        "commit",
        when=writing(e.ResultAccepted, "A"),
        before=lambda: rival.force_release(task_id="A", take_over=True),
    )
    prefetched = later(lambda: claim(fleet, "X", "carol"))
    stop.wait()
    # Both come in while the lane is busy, so they are decided in one round; the submission first,
    # as it is the urgent one.
    submitted = fleet.engine.submit(
        [SubmitResult(task_key("A"), caller("alice"), generation, Content("00", 2))]
    )
    claimed = fleet.engine.submit([ClaimTask(task_key("B"), caller("bob"))])
    stop.open()

    assert prefetched.result(PATIENCE).success
    assert answered(submitted)[0].reason == "STALE_GENERATION"
    assert answered(claimed)[0].reason == "DENIED_BLOCKED"
    assert (state(fleet, "B"), told(fleet, "B")) == ("BLOCKED", ["TASK_ADDED"])


def test_nobody_hears_of_a_fan_in_that_conflicted(home: Home) -> None:
    """A reaction of a reaction: the parent's fan-in is itself decided in the second commit, and may
    conflict there."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["P"])
    parent = granted(fleet, "P", "alice")
    fleet.spawn_subtasks(
        task_id="P",
        generation=parent,
        session_id="s-alice",
        subtasks=[{"id": "c1"}],
        mode="fan-out-fan-in",
    )
    child = granted(fleet, "c1", "bob")
    store.on(
        "commit", when=writing(e.ResultAccepted, "P"), before=lambda: rival.hold_task(task_id="P")
    )
    # One job, so one batch: its second commit tells P of its child and the new task of P.
    job = fleet.engine.submit(
        [
            SubmitResult(task_key("c1"), caller("bob"), child, Content("00", 2)),
            AddTask(task_key("Q"), caller("bob"), Task(id="Q", depends_on=("P",))),
        ]
    )

    assert answered(job)[0].accepted
    assert [commit.conflicts for commit in store.commits if commit.conflicts] == [["P"]]
    assert (state(fleet, "P"), state(fleet, "Q")) == ("HELD", "BLOCKED")


@pytest.mark.core
def test_dependents_are_open_when_the_submission_is_answered(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.DependencyMet, "B"), before=stop)

    answer = later(lambda: submit(fleet, "A", "alice", generation))
    stop.wait()
    assert (state(rival, "A"), state(rival, "B"), answer.done()) == ("COMPLETED", "BLOCKED", False)
    stop.open()

    assert answer.result(PATIENCE).accepted
    assert state(rival, "B") == "PENDING"
    # The cause and the reaction are two commits, in this order.
    written = [kind for commit in store.commits for kind in commit.tasks]
    assert written[-2:] == ["A", "B"]
    assert store.commits[-1].tasks == ["B"]


# A late reaction does not reopen what was reset


def test_a_reaction_that_is_decided_after_a_reset_opens_nothing(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    store.on(
        "commit", when=writing(e.ResultAccepted, "A"), after=lambda: rival.reset_task(task_id="A")
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert (state(fleet, "A"), state(fleet, "B")) == ("PENDING", "BLOCKED")
    assert claim(fleet, "B", "bob").reason == "DENIED_BLOCKED"


def test_a_reaction_that_is_committed_after_a_reset_opens_nothing(home: Home) -> None:
    """It was decided on the completion, which was reset before the reaction was written."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    store.on(
        "commit", when=writing(e.DependencyMet, "B"), before=lambda: rival.reset_task(task_id="A")
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert (state(fleet, "A"), state(fleet, "B")) == ("PENDING", "BLOCKED")
    assert claim(fleet, "B", "bob").reason == "DENIED_BLOCKED"


def test_a_reaction_that_is_committed_after_a_reset_opens_nothing_for_a_moment_either(
    home: Home,
) -> None:
    """Whoever claims right behind the late write must not find the task open: a grant is not taken
    back by looking again."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    reasons: list[str] = []
    store.on(
        "commit",
        when=writing(e.DependencyMet, "B"),
        before=lambda: rival.reset_task(task_id="A"),
        after=lambda: reasons.append(claim(rival, "B", "bob").reason),
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert reasons == ["DENIED_BLOCKED"]


def test_a_fan_in_that_is_committed_after_a_reset_of_the_last_child_completes_nothing(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["P"])
    parent = granted(fleet, "P", "alice")
    fleet.spawn_subtasks(
        task_id="P",
        generation=parent,
        session_id="s-alice",
        subtasks=[{"id": "c1"}],
        mode="fan-out-fan-in",
    )
    child = granted(fleet, "c1", "bob")
    store.on(
        "commit", when=writing(e.ResultAccepted, "P"), before=lambda: rival.reset_task(task_id="c1")
    )

    assert submit(fleet, "c1", "bob", child).accepted

    assert (state(fleet, "c1"), state(fleet, "P")) == ("PENDING", "BLOCKED")
    complete(fleet, "c1")
    assert state(fleet, "P") == "COMPLETED"


@dies
@pytest.mark.parametrize("moment", ["before the claim commits", "after the claim has committed"])
def test_claim_that_opens_a_task_while_its_dependency_is_reset(home: Home, moment: str) -> None:
    """If the reset comes first, the task is blocked. If the claim comes first, its holder learns
    that its inputs changed."""
    # The reaction to the completion never comes to B.
    cut_off_after_completion(home)
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    assert state(fleet, "B") == "BLOCKED"

    def reset() -> None:
        rival.reset_task(task_id="A")

    if moment == "before the claim commits":
        store.on("commit", when=writing(e.ClaimAcquired, "B"), before=reset)
        answer = claim(fleet, "B", "bob")
        assert (answer.reason, state(fleet, "B")) == ("DENIED_BLOCKED", "BLOCKED")
        assert "CLAIM_ACQUIRED" not in told(fleet, "B")
    else:
        store.on("commit", when=writing(e.ClaimAcquired, "B"), after=reset)
        assert claim(fleet, "B", "bob").success
        assert fleet.get_task_state(task_id="B").inputs_changed == ("A",)
    assert state(fleet, "A") == "PENDING"


def test_reactions_repeated_from_the_beginning_of_the_feed_change_nothing(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=[*PAIR, {"id": "C", "depends_on": ["B"]}])
    complete(fleet, "A")
    fleet.reset_task(task_id="A")
    assert state(fleet, "B") == "BLOCKED"
    before = feed(fleet)

    # Another coordinator has never settled and starts with the first event: the completion comes
    # before the reset.
    assert home.connect().sweep().settled == 0

    assert feed(fleet) == before
    assert (state(fleet, "B"), state(fleet, "C")) == ("BLOCKED", "BLOCKED")


# A completion between a dependency's read and a dependent's creation


@pytest.mark.core
@pytest.mark.parametrize(
    "moment",
    [
        "before the task exists",
        "before its dependencies are looked at",
        "after they were looked at",
    ],
)
def test_a_completion_while_a_dependent_is_created_is_not_missed(home: Home, moment: str) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A"])
    generation = granted(rival, "A", "alice")

    def finish() -> None:
        assert submit(rival, "A", "alice", generation).accepted

    match moment:
        case "before the task exists":
            store.on("commit", when=writing(e.TaskAdded, "B"), before=finish)
        case "before its dependencies are looked at":
            store.on("commit", when=writing(e.TaskAdded, "B"), after=finish)
        case _:
            # The look is the first that takes both at once.
            store.on(
                "load", when=lambda keys: {task_key("A"), task_key("B")} <= set(keys), after=finish
            )
    fleet.add_tasks(tasks=[{"id": "B", "depends_on": ["A"]}])

    assert state(fleet, "A") == "COMPLETED"
    assert state(fleet, "B") == "PENDING"
    assert claim(fleet, "B", "bob").success


def test_the_naive_way_misses_a_completion_before_the_dependent_exists(home: Home) -> None:
    """Proof that the first moment above is one: a task that is created blocked, with no look after
    that, stays so."""
    store = home.store()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A"])
    generation = granted(rival, "A", "alice")
    addition = change_of(
        store, AddTask(task_key("B"), caller("planner"), Task(id="B", depends_on=("A",)))
    )
    assert submit(rival, "A", "alice", generation).accepted

    assert isinstance(store.commit([addition])[0], Committed)

    assert (state(fleet, "A"), state(fleet, "B")) == ("COMPLETED", "BLOCKED")


# A crash between a completion and its reactions, with no monitor


def cut_off_after_completion(home: Home) -> None:
    """A coordinator completes A and dies before B is told."""
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=PAIR)
    generation = granted(doomed, "A", "alice")
    store.on("commit", when=writing(e.DependencyMet, "B"), before=die)
    with pytest.raises(OutcomeUnknown):
        submit(doomed, "A", "alice", generation)


@dies
def test_after_a_crash_the_dependent_is_left_blocked_and_a_claim_of_it_is_granted(
    home: Home,
) -> None:
    cut_off_after_completion(home)
    fleet = home.connect()
    assert (state(fleet, "A"), state(fleet, "B")) == ("COMPLETED", "BLOCKED")

    assert claim(fleet, "B", "bob").success


@pytest.mark.core
@dies
def test_after_a_crash_claim_next_finds_the_dependent(home: Home) -> None:
    cut_off_after_completion(home)

    assert next_for(home.connect(), "bob").task_id == "B"


@dies
def test_after_a_crash_ready_finds_the_dependent(home: Home) -> None:
    cut_off_after_completion(home)

    assert [line.task.id for line in home.connect().ready()] == ["B"]


@dies
def test_after_a_crash_a_waiting_caller_gets_the_dependent(home: Home) -> None:
    cut_off_after_completion(home)

    assert next_for(home.connect(), "bob", wait=PATIENCE).task_id == "B"


@dies
def test_after_a_crash_the_children_of_a_spawn_are_created_by_the_next_who_looks(
    home: Home,
) -> None:
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["P"])
    generation = granted(doomed, "P", "alice")
    store.on("commit", when=writing(e.TaskAdded, "c1"), before=die)
    with pytest.raises(OutcomeUnknown):
        doomed.spawn_subtasks(
            task_id="P",
            generation=generation,
            session_id="s-alice",
            subtasks=[{"id": "c1"}, {"id": "c2"}],
        )
    fleet = home.connect()

    assert {next_for(fleet, "bob").task_id, next_for(fleet, "bob").task_id} == {"c1", "c2"}
    assert next_for(fleet, "bob").reason == "NOTHING_READY"


@dies
def test_a_child_that_is_created_after_its_parent_was_looked_at_is_given_to_who_looks_in_the_same_round(
    home: Home,
) -> None:
    store = home.gated()
    doomed, rival = home.connect(store), home.connect()
    doomed.add_tasks(tasks=["P"])
    generation = granted(doomed, "P", "alice")
    store.on("commit", when=writing(e.TaskAdded, "c1"), before=die)
    with pytest.raises(OutcomeUnknown):
        doomed.spawn_subtasks(
            task_id="P", generation=generation, session_id="s-alice", subtasks=[{"id": "c1"}]
        )
    watched = home.gated()
    fleet, deciding = home.connect(watched), home.stop()
    watched.on("load", before=deciding)
    first = fleet.engine.submit([ClaimTask(task_key("P"), caller("bob"))])
    deciding.wait()
    # Of one batch: the claim of the parent looks for the child, which is not there yet; it is when
    # the next task is looked for.
    jobs = [
        fleet.engine.submit([request])
        for request in (
            ClaimTask(task_key("P"), caller("bob")),
            NextTask(project_key(*PLACE), caller("bob")),
        )
    ]
    watched.on("find", when=lambda query: query.heads > 0, before=rival.sweep)
    deciding.open()

    assert answered(first)[0].reason == "DENIED_BLOCKED"
    assert answered(jobs[0])[0].reason == "DENIED_BLOCKED"
    assert answered(jobs[1])[0].task_id == "c1"


@dies
def test_after_a_crash_a_parent_whose_last_child_is_done_is_granted(home: Home) -> None:
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["P"])
    parent = granted(doomed, "P", "alice")
    doomed.spawn_subtasks(
        task_id="P", generation=parent, session_id="s-alice", subtasks=[{"id": "c1"}]
    )
    child = granted(doomed, "c1", "bob")
    store.on("commit", when=writing(e.ChildFinished, "P"), before=die)
    with pytest.raises(OutcomeUnknown):
        submit(doomed, "c1", "bob", child)
    fleet = home.connect()
    assert state(fleet, "P") == "BLOCKED"

    assert claim(fleet, "P", "carol").success


def doomed_at_a_reset(home: Home) -> genlock.Coordinator:
    """A coordinator that has completed A, and dies when it is about to tell B that A was reset."""
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=PAIR)
    complete(doomed, "A")
    store.on("commit", when=writing(e.DependencyReopened, "B"), before=die)
    return doomed


@dies
def test_after_a_crash_who_rests_on_what_was_reset_and_done_again_is_told_so(home: Home) -> None:
    doomed = doomed_at_a_reset(home)
    complete(doomed, "B")
    with pytest.raises(OutcomeUnknown):
        doomed.reset_task(task_id="A")
    fleet = home.connect()
    complete(fleet, "A")

    fleet.sweep()

    after = fleet.get_task_state(task_id="B")
    assert (after.state, after.inputs_changed, after.unmet_dependencies) == (
        "COMPLETED",
        ("A",),
        (),
    )
    assert told(fleet, "B")[-2:] == ["DEPENDENCY_REOPENED", "DEPENDENCY_MET"]
    before = feed(fleet)
    assert (fleet.sweep().settled, home.connect().sweep().settled) == (0, 0)
    assert feed(fleet) == before


@dies
def test_after_a_crash_who_waits_for_what_was_reset_and_cancelled_is_held_if_the_policy_says_so(
    home: Home,
) -> None:
    doomed = doomed_at_a_reset(home)
    doomed.set_policy(policy={"cancelled_dependency": "hold"})
    with pytest.raises(OutcomeUnknown):
        doomed.reset_task(task_id="A")
    fleet = home.connect()
    fleet.cancel_task(task_id="A")

    fleet.sweep()

    assert (state(fleet, "B"), told(fleet, "B")[-2:]) == (
        "HELD",
        ["DEPENDENCY_CANCELLED", "TASK_HELD"],
    )


@dies
def test_after_a_crash_a_parent_whose_child_was_reset_and_done_again_is_told_so(home: Home) -> None:
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["P"])
    parent = granted(doomed, "P", "alice")
    doomed.spawn_subtasks(
        task_id="P",
        generation=parent,
        session_id="s-alice",
        subtasks=[{"id": "c1"}],
        mode="fan-out-fan-in",
    )
    complete(doomed, "c1")
    store.on("commit", when=writing(e.ChildReopened, "P"), before=die)
    with pytest.raises(OutcomeUnknown):
        doomed.reset_task(task_id="c1")
    fleet = home.connect()
    complete(fleet, "c1")

    fleet.sweep()

    after = fleet.get_task_state(task_id="P")
    assert (after.state, after.inputs_changed, after.unfinished_children) == (
        "COMPLETED",
        ("c1",),
        (),
    )


# Settling


@dies
def test_settling_moves_the_cursor_and_settling_again_writes_nothing(home: Home) -> None:
    cut_off_after_completion(home)
    fleet = home.connect()
    key = Key(*PLACE, SETTLED, SETTLED)
    assert key not in home.store().load([key]).records

    assert fleet.sweep().settled >= 1

    assert state(fleet, "B") == "PENDING"
    assert key in home.store().load([key]).records
    before = feed(fleet)
    assert before[-2:] == ["DEPENDENCY_MET", "SETTLED"]
    assert (fleet.sweep().settled, home.connect().sweep().settled) == (0, 0)
    assert feed(fleet) == before


@dies
def test_a_store_that_fails_while_settling_costs_no_reaction(home: Home) -> None:
    """The cursor must not move past what was not written."""
    cut_off_after_completion(home)
    store = home.gated()
    fleet = home.connect(store)
    store.on(
        "commit",
        when=writing(e.DependencyMet, "B"),
        before=raising(StoreUnavailable("for a while")),
        times=inf,
    )
    with suppress(StoreUnavailable):
        assert next_for(fleet, "bob").reason == "NOTHING_READY"
    store.clear()

    assert next_for(fleet, "bob").task_id == "B"


@dies
def test_conflicts_while_settling_cost_no_reaction(home: Home) -> None:
    cut_off_after_completion(home)
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    numbers = iter(range(1000))

    def meddle() -> None:
        rival.edit_task(task_id="B", changes={"title": f"edited {next(numbers)}"})

    # For longer than a reaction has patience; then the rival leaves it alone.
    store.on("commit", when=writing(e.DependencyMet, "B"), before=meddle, times=inf)
    assert next_for(fleet, "bob").reason == "NOTHING_READY"
    store.clear()

    assert next_for(fleet, "bob").task_id == "B"


def test_a_store_that_fails_in_the_second_commit_costs_no_reaction(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    store.on(
        "commit",
        when=writing(e.DependencyMet, "B"),
        before=raising(StoreUnavailable("for a moment")),
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert next_for(fleet, "bob").task_id == "B"


@pytest.mark.parametrize("why", ["it cannot be written", "it keeps changing"])
def test_a_reaction_that_fails_for_long_is_made_up_for_though_nobody_asks(
    home: Home, why: str
) -> None:
    """Other tasks are ready, so nobody finds nothing and settles; the store can be read all the
    time."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    numbers = iter(range(1000))
    acts: dict[str, Callable[[], Any]] = {
        "it cannot be written": raising(StoreUnavailable("for a while")),
        "it keeps changing": lambda: rival.edit_task(
            task_id="B", changes={"title": f"edited {next(numbers)}"}
        ),
    }
    # For longer than a reaction, and then the settling that makes up for it, have patience.
    store.on("commit", when=writing(e.DependencyMet, "B"), before=acts[why], times=25)

    assert submit(fleet, "A", "alice", generation).accepted

    until(fleet, lambda: state(fleet, "B") == "PENDING")


def test_a_coordinator_that_has_settled_before_does_not_take_a_failed_reaction_for_done(
    home: Home,
) -> None:
    """Whoever skips its own events when it settles must be sure of their reactions."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=PAIR)
    generation = granted(fleet, "A", "alice")
    assert next_for(fleet, "bob").reason == "NOTHING_READY"
    store.on(
        "commit",
        when=writing(e.DependencyMet, "B"),
        before=raising(StoreFull("for a while")),
        times=inf,
    )
    assert submit(fleet, "A", "alice", generation).accepted
    store.clear()

    assert next_for(fleet, "bob").task_id == "B"


@dies
@pytest.mark.large
def test_events_of_another_between_our_own_are_not_taken_for_ours(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=[f"early-{n:04d}" for n in range(1100)])
    assert fleet.sweep().settled == 0
    cut_off_after_completion(home)
    assert state(fleet, "B") == "BLOCKED"

    # So many that the lane looks back by itself; it must not skip what lies between them and those
    # before.
    fleet.add_tasks(tasks=[f"late-{n:04d}" for n in range(1100)])

    until(fleet, lambda: state(fleet, "B") == "PENDING")


@pytest.mark.large
def test_who_leaves_much_behind_spares_the_next_one_the_reading(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=[f"t-{n:04d}" for n in range(1100)])
    end = len(feed(fleet))
    fleet.close()

    store = home.store()
    key = Key(*PLACE, SETTLED, SETTLED)
    record = decode_record(SETTLED, store.load([key]).records[key].body)
    assert isinstance(record, SettledRecord)
    unread = store.read_events(EventQuery(*PLACE, after=record.cursor)).events
    assert [(recorded.key.kind, recorded.position) for recorded in unread] == [(SETTLED, end + 1)]


def test_who_leaves_little_behind_writes_nothing_for_it(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=PAIR)
    fleet.close()

    key = Key(*PLACE, SETTLED, SETTLED)
    assert key not in home.store().load([key]).records


@pytest.mark.large
def test_a_completion_opens_more_dependents_than_one_second_commit_takes(home: Home) -> None:
    fleet = home.connect()
    many = [f"d-{n:04d}" for n in range(1100)]
    fleet.add_tasks(tasks=["A", *({"id": name, "depends_on": ["A"]} for name in many)])
    assert len(fleet.blocked(limit=2000)) == 1100

    complete(fleet, "A")

    # Nobody sweeps and nobody asks for work: the lane that broke off goes on by itself.
    until(fleet, lambda: not fleet.blocked(limit=1))
    assert [line.task.id for line in fleet.ready(limit=2000)] == many


def cut_off_before_the_parent_hears(home: Home) -> int:
    """Alice keeps her claim of P while its only child is done; the coordinator dies before P is
    told. Her generation."""
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["P"])
    generation = granted(doomed, "P", "alice")
    spawned = doomed.spawn_subtasks(
        task_id="P", generation=generation, session_id="s-alice", subtasks=[{"id": "c1"}], keep=True
    )
    assert spawned.success
    child = granted(doomed, "c1", "bob")
    store.on("commit", when=writing(e.ChildFinished, "P"), before=die)
    with pytest.raises(OutcomeUnknown):
        submit(doomed, "c1", "bob", child)
    return generation


@dies
def test_after_a_crash_a_submission_of_the_parent_looks_for_itself_whether_its_children_are_done(
    home: Home,
) -> None:
    generation = cut_off_before_the_parent_hears(home)
    fleet = home.connect()

    assert submit(fleet, "P", "alice", generation).accepted
    # The reaction that comes after all finds nothing new.
    before = told(fleet, "P")
    fleet.sweep()
    assert (told(fleet, "P"), state(fleet, "P")) == (before, "COMPLETED")


@dies
def test_after_a_crash_an_adoption_looks_for_itself_whether_the_children_are_done(
    home: Home,
) -> None:
    generation = cut_off_before_the_parent_hears(home)
    fleet = home.connect()
    refused = submit(fleet, "P", "carol", generation)
    assert refused.refused_id is not None

    assert fleet.adopt_result(task_id="P", refused_id=refused.refused_id, take_over=True).accepted


@dies
@pytest.mark.parametrize(
    "moment", ["before the submission commits", "after the submission has committed"]
)
def test_submission_of_a_parent_while_a_child_is_reset(home: Home, moment: str) -> None:
    """If the reset comes first, the submission is refused. If the submission comes first, the
    parent's readers learn that its inputs changed."""
    generation = cut_off_before_the_parent_hears(home)
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()

    def reset() -> None:
        rival.reset_task(task_id="c1")

    if moment == "before the submission commits":
        store.on("commit", when=writing(e.ResultAccepted, "P"), before=reset)
        answer = submit(fleet, "P", "alice", generation)
        assert not answer.accepted
        assert (answer.reason, answer.waits_for, answer.kept) == (
            "CHILDREN_UNFINISHED",
            ("c1",),
            True,
        )
    else:
        store.on("commit", when=writing(e.ResultAccepted, "P"), after=reset)
        assert submit(fleet, "P", "alice", generation).accepted
        assert fleet.get_task_state(task_id="P").inputs_changed == ("c1",)
    assert state(fleet, "c1") == "PENDING"


def test_a_submission_looks_at_nothing_but_its_children(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["P", "c1", "X"])
    generation = granted(fleet, "P", "alice")
    fleet.spawn_subtasks(
        task_id="P", generation=generation, session_id="s-alice", subtasks=[{"id": "k"}], keep=True
    )
    complete(fleet, "k")
    store.calls.clear()

    assert submit(fleet, "P", "alice", generation).accepted

    loaded = {
        key.id
        for method, keys in store.calls
        if method == "load"
        for key in keys
        if key.kind == TASK
    }
    assert loaded == {"P", "k"}


def cut_off_after_adoption(home: Home) -> str:
    """An operator adopts a refused result of A; the coordinator dies before it is marked. Its
    name."""
    store = home.gated()
    doomed = home.connect(store)
    doomed.add_tasks(tasks=["A"])
    refused = submit(doomed, "A", "alice", 7)
    assert refused.refused_id is not None
    name = refused.refused_id
    store.on("commit", when=writing(e.ResultAdopted, name), before=die)
    with pytest.raises(OutcomeUnknown):
        doomed.adopt_result(task_id="A", refused_id=name)
    return name


def mark_of(fleet: genlock.Coordinator) -> list[str]:
    return [str(result.state) for result in fleet.list_refused_results(include_settled=True)]


@dies
def test_after_a_crash_an_adopted_result_is_marked_by_who_settles(home: Home) -> None:
    cut_off_after_adoption(home)
    fleet = home.connect()
    assert (state(fleet, "A"), mark_of(fleet)) == ("COMPLETED", ["KEPT"])

    fleet.sweep()

    assert mark_of(fleet) == ["ADOPTED"]


@dies
def test_after_a_crash_an_adopted_result_is_marked_by_who_adopts_it_again(home: Home) -> None:
    name = cut_off_after_adoption(home)
    fleet = home.connect()

    assert fleet.adopt_result(task_id="A", refused_id=name).accepted

    assert mark_of(fleet) == ["ADOPTED"]


@dies
def test_after_a_crash_an_adopted_result_cannot_be_discarded_although_it_is_not_marked_yet(
    home: Home,
) -> None:
    name = cut_off_after_adoption(home)
    fleet = home.connect()

    with pytest.raises(NotAllowed, match="was adopted"):
        fleet.discard_result(task_id="A", refused_id=name)

    assert fleet.read_result(task_id="A") == "done"


def test_a_result_that_is_discarded_while_it_is_being_adopted_is_not_adopted(home: Home) -> None:
    """The adoption has read it, and decides on it as it is then."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A"])
    refused = submit(fleet, "A", "alice", 7)
    assert refused.refused_id is not None
    name = refused.refused_id
    ours = Key(*PLACE, REFUSED, name)
    store.on(
        "load",
        when=lambda keys: ours in keys,
        after=lambda: rival.discard_result(task_id="A", refused_id=name),
    )

    with pytest.raises(NotAllowed, match="was discarded"):
        fleet.adopt_result(task_id="A", refused_id=name)

    assert (state(fleet, "A"), mark_of(fleet)) == ("PENDING", ["DISCARDED"])


# What a review rejects


def in_review(fleet: genlock.Coordinator) -> dict[str, Any]:
    """Task A waits for a review; what names its result."""
    fleet.add_tasks(tasks=[{"id": "A", "human_required": True}])
    submit(fleet, "A", "alice", granted(fleet, "A", "alice"))
    waiting = fleet.get_review(task_id="A")
    return {"task_id": "A", "generation": waiting.generation, "digest": waiting.digest}


@dies
@pytest.mark.parametrize("finds", ["a claim_next", "a sweep"])
def test_after_a_crash_the_work_that_a_review_rejected_is_kept(home: Home, finds: str) -> None:
    store = home.gated()
    fleet, other = home.connect(store), home.connect()
    named = in_review(fleet)
    store.on("commit", when=lambda changes: any(c.key.kind == REFUSED for c in changes), before=die)
    with pytest.raises(OutcomeUnknown):
        fleet.reject_review(**named, feedback="too short")
    assert state(other, "A") == "PENDING"
    assert other.list_refused_results() == (), "the process ended before its reaction"

    if finds == "a sweep":
        other.sweep()
    else:
        assert next_for(other, "bob").task_id == "A"
        assert next_for(other, "carol").reason == "NOTHING_READY"

    (kept,) = other.list_refused_results()
    assert (kept.rejection_reason, kept.session_id) == ("REVIEW_REJECTED", "s-alice")
    again = other.reject_review(**named)
    assert (again.reason, again.refused_id) == ("REJECTED", kept.id)


def test_of_two_reviewers_at_once_one_decides_and_the_other_is_told(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    named = in_review(fleet)
    store.on(
        "commit",
        when=writing(e.ResultAccepted, "A"),
        before=lambda: rival.reject_review(**named),
    )

    approved = fleet.approve_review(**named)

    assert (approved.reason, approved.state) == ("STALE_REVIEW", "PENDING")
    assert told(fleet, "A")[-1] == "REVIEW_REJECTED"
