"""Someone else writes between our read and our write: only what conflicts is decided again, on what
is there then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import pytest

from genlock.core import events as e
from genlock.core.commands import ClaimTask, Content, SubmitResult
from genlock.errors import Busy, OperationMismatch
from genlock.store import Change, Committed, Conflict, Store
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import (
    PATIENCE,
    GatedStore,
    Home,
    Meet,
    answered,
    caller,
    claim,
    granted,
    later,
    next_for,
    state,
    submit,
    task_key,
    told,
    writing,
)

# Equal versions with different digests


class FailedOver(GatedStore):
    """Reads the old primary until the first commit; that one and all that follows meets the
    replica, which has another history."""

    def __init__(self, primary: Store, replica: Store, *, by_version_alone: bool = False) -> None:
        super().__init__(primary)
        self.replica = replica
        self.by_version_alone = by_version_alone

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        self.inner = self.replica
        if self.by_version_alone:
            found = self.replica.load([change.key for change in changes]).records
            changes = [
                change._replace(read_digest=found[change.key].digest)
                if change.key in found
                else change
                for change in changes
            ]
        return super().commit(changes, epoch=epoch)


def two_histories(home: Home) -> tuple[Store, Store]:
    """Two copies of one store in which different sessions were granted the same task, at the same
    generation and version."""
    store = home.gated()
    home.connect(store).add_tasks(tasks=["T"])
    replica = home.elsewhere()
    for commit in store.commits:
        replica.commit(commit.changes)
    assert (
        granted(home.connect(store), "T", "alice"),
        granted(home.connect(replica), "T", "bob"),
    ) == (1, 1)
    here, there = (each.load([task_key("T")]).records[task_key("T")] for each in (store, replica))
    assert here.version == there.version
    assert here.digest != there.digest
    return store, replica


def test_equal_versions_of_different_histories_conflict(home: Home) -> None:
    primary, replica = two_histories(home)
    fleet = home.connect(FailedOver(primary, replica))

    refused = submit(fleet, "T", "alice", 1)

    assert (refused.accepted, refused.reason) == (False, "SESSION_MISMATCH")
    assert submit(fleet, "T", "bob", 1).accepted


def test_the_naive_swap_by_version_alone_accepts_a_result_of_the_lost_history(home: Home) -> None:
    """The trap itself: bob was told that he holds generation 1, and alice's result takes it from
    him."""
    primary, replica = two_histories(home)
    fleet = home.connect(FailedOver(primary, replica, by_version_alone=True))

    assert submit(fleet, "T", "alice", 1).accepted
    assert submit(fleet, "T", "bob", 1).reason == "TASK_ALREADY_COMPLETED"


# A takeover and the old holder's submission in one batch


def takeover_and_submission(home: Home, store: GatedStore) -> tuple[str, str]:
    """Bob takes over what alice's lease has run out on, and alice submits, in this order in one
    batch; the reasons they get."""
    job = home.connect(store).engine.submit(
        [
            ClaimTask(task_key("T"), caller("bob")),
            SubmitResult(task_key("T"), caller("alice"), 1, Content("00", 2)),
        ]
    )
    taken, submitted = answered(job)
    assert ["T"] in [commit.conflicts for commit in store.commits], "nothing came in between"
    return taken.reason, submitted.reason


def test_a_submission_behind_a_takeover_that_conflicts_is_accepted_if_its_claim_is_still_there(
    home: Home,
) -> None:
    behind = ManualClock()
    store, slow = home.gated(), home.connect(home.store(behind), clock=behind)
    slow.add_tasks(tasks=["T"])
    granted(slow, "T", "alice", lease=30)
    behind.set(10)
    home.clock.set(31)
    # By the slower clock the lease runs still, so alice renews it while bob's takeover is on its
    # way.
    store.on(
        "commit",
        when=writing(e.ClaimAcquired, "T"),
        before=lambda: slow.renew_lease(task_id="T", expected_generation=1, session_id="s-alice"),
    )

    reasons = takeover_and_submission(home, store)

    assert reasons == ("DENIED_ACTIVE_CLAIM", "ACCEPTED")
    assert slow.list_refused_results() == ()
    assert [entry.release_reason for entry in slow.get_claim_history(task_id="T")] == ["COMPLETED"]


def test_a_submission_behind_a_takeover_that_conflicts_is_refused_by_the_takeover_that_was_done(
    home: Home,
) -> None:
    store, rival = home.gated(), home.connect()
    rival.add_tasks(tasks=["T"])
    granted(rival, "T", "alice", lease=30)
    home.clock.set(31)
    store.on(
        "commit", when=writing(e.ClaimAcquired, "T"), before=lambda: granted(rival, "T", "carol")
    )

    reasons = takeover_and_submission(home, store)

    assert reasons == ("DENIED_ACTIVE_CLAIM", "STALE_GENERATION")
    refused = rival.list_refused_results()
    assert [
        (result.session_id, result.generation, result.rejection_reason) for result in refused
    ] == [("s-alice", 1, "STALE_GENERATION")]
    assert [entry.session_id for entry in rival.get_claim_history(task_id="T")] == [
        "s-alice",
        "s-carol",
    ]


# One winner


@pytest.mark.core
def test_of_many_coordinators_that_claim_a_task_at_once_one_is_granted(home: Home) -> None:
    home.connect().add_tasks(tasks=["T"])
    meet = Meet(4)
    stores = [home.gated() for _ in range(4)]
    for store in stores:
        store.on("commit", when=writing(e.ClaimAcquired, "T"), before=meet)
    fleets = [home.connect(store) for store in stores]

    calls = [
        later(lambda fleet=fleet, n=n: claim(fleet, "T", f"agent-{n}"))  # type: ignore[misc]
        for n, fleet in enumerate(fleets)
    ]
    answers = [call.result(PATIENCE) for call in calls]

    assert sorted(answer.reason for answer in answers) == ["DENIED_ACTIVE_CLAIM"] * 3 + ["GRANTED"]
    # All four had decided to grant before the first of them wrote.
    assert sum(len(commit.conflicts) for store in stores for commit in store.commits) == 3
    assert told(fleets[0], "T") == ["TASK_ADDED", "CLAIM_ACQUIRED"]
    winner = next(answer for answer in answers if answer.success)
    assert {answer.current_holder for answer in answers if not answer.success} == {
        winner.claim.agent_id if winner.claim else None
    }


@pytest.mark.core
def test_of_many_coordinators_that_ask_for_the_next_task_each_gets_another(home: Home) -> None:
    home.connect().add_tasks(tasks=[f"t-{n}" for n in range(4)])
    meet = Meet(4)
    stores = [home.gated() for _ in range(4)]
    for store in stores:
        store.on("commit", when=writing(e.ClaimAcquired), before=meet)
    fleets = [home.connect(store) for store in stores]

    calls = [
        later(lambda fleet=fleet, n=n: next_for(fleet, f"agent-{n}"))  # type: ignore[misc]
        for n, fleet in enumerate(fleets)
    ]
    got = [call.result(PATIENCE).task_id for call in calls]

    assert sorted(str(task) for task in got) == ["t-0", "t-1", "t-2", "t-3"]
    # All four had chosen the first one.
    first = [next(commit for commit in store.commits if commit.tasks) for store in stores]
    assert [commit.tasks for commit in first] == [["t-0"]] * 4
    assert sum(len(commit.conflicts) for commit in first) == 3


def test_after_a_conflict_the_next_task_is_chosen_at_random_among_the_first_two(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    order = [f"A-{n:03d}-step" for n in range(1, 31)]
    rival.add_tasks(tasks=order)
    places = set()
    for turn in range(20):
        head = order[0]
        edit = partial(rival.edit_task, task_id=head, changes={"title": f"turn {turn}"})
        store.on("commit", when=writing(e.ClaimAcquired, head), before=edit)
        got = next_for(fleet, "alice").task_id
        assert got is not None
        places.add(order.index(got))
        order.remove(got)

    # That all twenty chose alike happens once in half a million runs.
    assert places == {0, 1}


def test_a_live_claim_of_the_same_session_by_another_agent_is_denied(home: Home) -> None:
    """An agent's name is part of who holds a claim; a session's second agent is somebody else."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T", agent_id="alice", session_id="s-1")

    denied = fleet.claim_task(task_id="T", agent_id="bob", session_id="s-1")

    assert (denied.success, denied.reason, denied.current_holder) == (
        False,
        "DENIED_ACTIVE_CLAIM",
        "alice",
    )
    assert fleet.claim_next(agent_id="bob", session_id="s-1").reason == "NOTHING_READY"
    fleet.release_claim(task_id="T", expected_generation=1, session_id="s-1")
    fleet.claim_task(task_id="T", agent_id="alice", session_id="s-1", operation_id="op")
    with pytest.raises(OperationMismatch):
        fleet.claim_task(task_id="T", agent_id="bob", session_id="s-1", operation_id="op")
    assert told(fleet, "T").count("CLAIM_ACQUIRED") == 2


# Only what conflicts


@pytest.mark.core
def test_only_what_conflicts_is_decided_again(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A", "B", "C"])
    store.on(
        "commit",
        when=writing(e.ClaimAcquired, "B"),
        before=lambda: rival.edit_task(task_id="B", changes={"title": "meanwhile"}),
    )
    store.commits.clear()

    answers = fleet.batch_claim(task_ids=["A", "B", "C"], agent_id="alice", session_id="s-alice")

    assert [answer.reason for answer in answers.values() if not isinstance(answer, Exception)] == [
        "GRANTED"
    ] * 3
    written = [(commit.tasks, commit.conflicts) for commit in store.commits if commit.tasks]
    assert written == [(["A", "B", "C"], ["B"]), (["B"], [])]
    assert told(fleet, "A") == ["TASK_ADDED", "CLAIM_ACQUIRED"]
    assert told(fleet, "B") == ["TASK_ADDED", "TASK_EDITED", "CLAIM_ACQUIRED"]


# The deadline


@pytest.mark.parametrize("verb", ["claim", "claim_next", "submit"])
def test_what_keeps_conflicting_until_the_deadline_is_busy_and_neither_denied_nor_refused(
    home: Home, verb: str
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store, deadline_seconds=0.3 * home.slowness), home.connect()
    rival.add_tasks(tasks=["T"])
    if verb == "submit":
        granted(rival, "T", "alice")
    numbers = iter(range(10_000))
    kind = e.ResultAccepted if verb == "submit" else e.ClaimAcquired
    store.on(
        "commit",
        when=writing(kind, "T"),
        before=lambda: rival.edit_task(task_id="T", changes={"title": str(next(numbers))}),
        times=inf,
    )
    before = state(rival, "T")

    acts: dict[str, Callable[[], object]] = {
        "claim": lambda: claim(fleet, "T", "alice"),
        "claim_next": lambda: next_for(fleet, "alice"),
        "submit": lambda: submit(fleet, "T", "alice", 1),
    }
    with pytest.raises(Busy):
        acts[verb]()

    assert sum(commit.conflicts == ["T"] for commit in store.commits) > 1
    assert state(rival, "T") == before
    assert rival.list_refused_results() == ()
    store.clear()
    assert (
        submit(fleet, "T", "alice", 1).accepted
        if verb == "submit"
        else claim(fleet, "T", "alice").success
    )


def test_claim_next_takes_one_task_although_its_session_is_registered_elsewhere_meanwhile(
    home: Home,
) -> None:
    """The grant is done, only the session's record was somebody else's by then: that must not be
    answered with a second grant."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2", "t-3"])
    store.on(
        "commit",
        when=writing(e.ClaimAcquired),
        before=lambda: rival.register_session(session_id="s-alice"),
    )

    result = next_for(fleet, "alice")

    assert any("s-alice" in commit.conflicts for commit in store.commits), (
        "the session was not registered in between"
    )
    held = fleet.get_active_claims_for_session(session_id="s-alice")
    assert [claim.task_id for claim in held] == [result.task_id]
