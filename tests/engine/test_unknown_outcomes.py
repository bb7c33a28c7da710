"""The connection breaks inside a commit: whether it was done is read from the store, and everything
is done exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from genlock.core import events as e
from genlock.core.commands import ClaimTask, ForceRelease, RenewLease
from genlock.core.keys import SESSION, project_key
from genlock.core.results import RenewalResult
from genlock.engine.jobs import Job, NextTask
from genlock.engine.observer import Batch
from genlock.errors import Closed, OutcomeUnknown, OverLimit, StoreUnavailable
from genlock.store import Change, Committed, Conflict
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    GatedStore,
    Home,
    answered,
    caller,
    claim,
    die,
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

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
broken = raising(OutcomeUnknown("the connection broke"))
away = raising(StoreUnavailable("the store is away"))


@pytest.mark.parametrize("done", [True, False])
def test_a_claim_of_unknown_outcome_is_granted_once(home: Home, done: bool) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on(
        "commit",
        when=writing(e.ClaimAcquired),
        after=broken if done else None,
        before=None if done else broken,
    )

    result = claim(fleet, "T", "alice")

    assert result.success
    assert result.claim is not None
    assert result.claim.generation == 1
    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED"]
    # The first commit was the one that counted, or there was a second one.
    assert (
        len(
            [
                commit
                for commit in store.commits
                if commit.tasks == ["T"] and writing(e.ClaimAcquired)(commit.changes)
            ]
        )
        == 1
    )


@pytest.mark.parametrize("done", [True, False])
def test_a_result_of_unknown_outcome_is_accepted_once_and_opens_its_dependents(
    home: Home, done: bool
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    generation = granted(fleet, "A", "alice")
    store.on(
        "commit",
        when=writing(e.ResultAccepted),
        after=broken if done else None,
        before=None if done else broken,
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert told(fleet, "A").count("RESULT_ACCEPTED") == 1
    assert state(fleet, "B") == "PENDING"


@pytest.mark.parametrize("done", [True, False])
def test_claim_next_of_unknown_outcome_takes_one_task(home: Home, done: bool) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["t-1", "t-2", "t-3"])
    store.on(
        "commit",
        when=writing(e.ClaimAcquired),
        after=broken if done else None,
        before=None if done else broken,
    )

    result = next_for(fleet, "alice")

    assert result.success
    held = fleet.get_active_claims_for_session(session_id="s-alice")
    assert [claim.task_id for claim in held] == [result.task_id]


@pytest.mark.parametrize("done", [True, False])
def test_a_reaction_of_unknown_outcome_is_done_once(home: Home, done: bool) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    generation = granted(fleet, "A", "alice")
    store.on(
        "commit",
        when=writing(e.DependencyMet),
        after=broken if done else None,
        before=None if done else broken,
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert told(fleet, "B") == ["TASK_ADDED", "DEPENDENCY_MET"]


@pytest.mark.parametrize("done", [True, False])
def test_ids_of_unknown_outcome_are_given_out_once(home: Home, done: bool) -> None:
    store = home.gated()
    fleet = home.connect(store)
    first = fleet.next_id()
    store.on(
        "commit",
        when=writing(e.IdsTaken),
        after=broken if done else None,
        before=None if done else broken,
    )

    assert [first, fleet.next_id(), fleet.next_id()] == ["0001", "0002", "0003"]


@pytest.mark.core
def test_a_batch_of_unknown_outcome_is_sorted_out_record_by_record(home: Home) -> None:
    """The commit was done, but for one record that someone else had changed."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A", "B", "C"])
    store.on(
        "commit",
        when=writing(e.ClaimAcquired, "B"),
        before=lambda: granted(rival, "B", "bob"),
        after=broken,
    )

    answers = fleet.batch_claim(task_ids=["A", "B", "C"], agent_id="alice", session_id="s-alice")

    assert [answer.reason for answer in answers.values() if not isinstance(answer, Exception)] == [
        "GRANTED",
        "DENIED_ACTIVE_CLAIM",
        "GRANTED",
    ]
    assert {name: told(fleet, name).count("CLAIM_ACQUIRED") for name in "ABC"} == {
        "A": 1,
        "B": 1,
        "C": 1,
    }


def test_of_several_events_of_unknown_outcome_the_last_says_where_in_the_feed_they_are(
    home: Home,
) -> None:
    """As a commit does that is answered: else what stands before them in the feed is taken for this
    coordinator's own."""
    places: list[int] = []

    class Notes:
        def batch_done(self, batch: Batch) -> None:
            places.extend(
                loaded.position
                for loaded in batch.written
                if e.ClaimExpired in map(type, loaded.events)
            )

    store = home.gated()
    fleet = home.connect(store, observer=Notes())
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)
    home.clock.advance(31)
    store.on("commit", when=writing(e.ClaimExpired, "T"), after=broken)

    granted(fleet, "T", "bob")

    fleet.close()
    taken_over = home.connect().read_events(task_id="T").events[-1]
    assert (taken_over.event_type, [taken_over.position]) == ("CLAIM_ACQUIRED", places)


def test_another_s_event_at_the_version_we_wrote_is_not_taken_for_ours(home: Home) -> None:
    """Ours was not done, and the version it would have made exists all the same: only the digest
    tells them apart."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])

    def overtaken() -> None:
        granted(rival, "T", "bob")
        broken()

    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=overtaken)

    result = claim(fleet, "T", "alice")

    assert (result.success, result.reason, result.current_holder) == (
        False,
        "DENIED_ACTIVE_CLAIM",
        "bob",
    )
    assert told(fleet, "T").count("CLAIM_ACQUIRED") == 1


def test_finding_out_waits_for_a_store_that_is_away(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on("commit", when=writing(e.ClaimAcquired, "T"), after=broken)
    store.on("read_events", before=away, times=3)

    assert claim(fleet, "T", "alice").success

    assert told(fleet, "T").count("CLAIM_ACQUIRED") == 1


def test_an_outcome_that_stays_unknown_is_said_to_be_so(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    store.on("commit", when=writing(e.ClaimAcquired, "T"), after=broken)
    store.on("read_events", before=away, times=float("inf"))

    with pytest.raises(OutcomeUnknown):
        claim(fleet, "T", "alice")

    store.clear()
    # It was done; asking again by the same session and agent gives the same claim.
    again = claim(fleet, "T", "alice")
    assert (again.success, again.claim.generation if again.claim else 0) == (True, 1)


def test_who_would_wait_long_for_a_task_does_not_make_the_others_wait_for_a_store_that_is_away(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["A", "B", "C"])
    for name in ("B", "C"):
        granted(fleet, name, "alice")
    deciding = home.stop()
    store.on("load", before=deciding)
    first = fleet.engine.submit([RenewLease(task_key("B"), caller("alice"), 1)])
    deciding.wait()
    # Both wait for the lane; one of them would wait for a task for hours, and there is one at once.
    patient = NextTask(project_key(*PLACE), caller("bob"), wait_until=time.monotonic() + 7200)
    waiting = fleet.engine.submit([patient], patience=7200)
    other = fleet.engine.submit([RenewLease(task_key("C"), caller("alice"), 1)])
    store.on("commit", when=writing(e.ClaimAcquired, "A"), after=broken)
    store.on(
        "read_events", when=lambda query: query.record is not None, before=away, times=float("inf")
    )
    deciding.open()

    assert answered(first)[0].success
    assert type(answered(waiting)[0]) is OutcomeUnknown
    # A store that starts commits may have the renewal in one of its own, whose answer is known.
    written = [{change.key.id for change in commit.changes} for commit in store.commits]
    shared = any({"A", "C"} <= names and "B" not in names for names in written)
    assert type(answered(other)[0]) is (OutcomeUnknown if shared else RenewalResult)


# A commit that was sent, is not there when one looks, and is carried out all the same: the server
# had it and was slow.


def lands_late(store: GatedStore, event: type, then: Callable[[], Any] = lambda: None) -> None:
    """The next commit in which this happens breaks off, and is done right after somebody has looked
    for it in vain; and `then` this."""
    sent: list[Sequence[Change]] = []

    def suits(changes: Sequence[Change]) -> bool:
        if writing(event)(changes):
            sent.append(changes)
        return bool(sent)

    def land() -> None:
        store.inner.commit(sent[0])
        then()

    store.on("commit", when=suits, before=broken)
    store.on("read_events", when=lambda query: bool(sent) and query.record is not None, after=land)


def test_a_release_that_lands_late_is_told_as_done(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    lands_late(store, e.ClaimReleased)

    result = fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    assert (result.success, result.reason) == (True, "RELEASED")
    assert told(fleet, "T").count("CLAIM_RELEASED") == 1


def test_a_release_that_lands_late_is_told_as_done_though_the_task_is_claimed_in_the_same_round(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    claims: list[Job] = []
    lands_late(
        store,
        e.ClaimReleased,
        then=lambda: claims.append(fleet.engine.submit([ClaimTask(task_key("T"), caller("bob"))])),
    )

    result = fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    assert (result.success, result.reason) == (True, "RELEASED")
    assert answered(claims[0])[0].success


def test_a_release_that_lands_late_is_told_as_done_though_what_others_write_then_lands_late_too(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    others: list[Job] = []

    def others_go_on() -> None:
        granted(rival, "T", "bob")
        others.append(
            fleet.engine.submit([ForceRelease(task_key("T"), caller("operator"), take_over=True)])
        )
        lands_late(store, e.ClaimSuperseded)

    lands_late(store, e.ClaimReleased, then=others_go_on)

    result = fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    assert (result.success, result.reason) == (True, "RELEASED")
    assert answered(others[0])[0].task_id == "T"


def test_what_may_have_landed_before_the_store_went_away_is_not_said_to_be_undone(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")

    def leave() -> None:
        for method in ("load", "commit", "read_events"):
            store.on(method, before=away, times=float("inf"))

    lands_late(store, e.ClaimReleased, then=leave)

    with pytest.raises(OutcomeUnknown):
        fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    store.clear()
    assert state(fleet, "T") == "PENDING"


def test_what_may_have_landed_when_the_coordinator_is_closed_is_not_said_to_be_undone(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    lands_late(store, e.ClaimReleased, then=fleet.engine._lanes[0].close)

    with pytest.raises(OutcomeUnknown):
        fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    assert state(home.connect(), "T") == "PENDING"


def test_what_has_landed_is_not_refused_though_nobody_can_look_it_up(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    lands_late(
        store,
        e.ClaimReleased,
        then=lambda: store.on("read_events", before=away, times=float("inf")),
    )

    with pytest.raises(OutcomeUnknown):
        fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    store.clear()
    assert told(fleet, "T").count("CLAIM_RELEASED") == 1


# One that may still be carried out when its command is decided again, and refused: not because of
# its record, which is as it was.


def never_lands(store: GatedStore, event: type, then: Callable[[], Any]) -> list[Sequence[Change]]:
    """The next commit in which this happens breaks off; when somebody has looked for it in vain,
    `then` this. What was sent."""
    sent: list[Sequence[Change]] = []

    def suits(changes: Sequence[Change]) -> bool:
        if writing(event)(changes):
            sent.append(changes)
        return bool(sent)

    store.on("commit", when=suits, before=broken)
    store.on("read_events", when=lambda query: bool(sent) and query.record is not None, after=then)
    return sent


def test_a_renewal_that_may_still_land_is_not_refused_because_time_has_passed(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice", lease=30)
    sent = never_lands(store, e.LeaseRenewed, then=lambda: home.clock.advance(31))

    result = fleet.renew_lease(
        task_id="T", expected_generation=generation, session_id="s-alice", lease_duration_seconds=90
    )

    assert (result.success, result.reason) == (True, "RENEWED")
    assert (
        result.new_expiry == fleet.get_active_claims_for_session(session_id="s-alice")[0].expires_at
    )
    assert [type(answer) for answer in store.inner.commit(sent[0])] == [Conflict]
    assert told(fleet, "T").count("LEASE_RENEWED") == 1


def test_a_claim_that_may_still_land_is_not_denied_because_of_a_limit(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T", "U"])
    granted(fleet, "U", "bob")
    sent = never_lands(
        store, e.ClaimAcquired, then=lambda: rival.set_policy(limits={"max_concurrent_claims": 1})
    )

    assert granted(fleet, "T", "alice") == 1

    assert isinstance(store.inner.commit(sent[0])[0], Conflict)
    assert claim(fleet, "T", "carol").current_holder == "alice"


def test_a_result_that_may_still_land_is_accepted_and_opens_its_dependents_though_it_is_too_large_by_now(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    generation = granted(fleet, "A", "alice")
    never_lands(
        store, e.ResultAccepted, then=lambda: rival.set_policy(limits={"max_result_size_bytes": 1})
    )

    assert submit(fleet, "A", "alice", generation).accepted

    assert told(fleet, "A").count("RESULT_ACCEPTED") == 1
    assert state(fleet, "B") == "PENDING"


def test_claim_next_that_may_still_land_takes_one_task_though_that_would_not_be_granted_by_now(
    home: Home,
) -> None:
    """Another would be. Were it given that one, it would hold two as soon as the first claim
    landed."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=[{"id": "t-1", "lease_seconds": 600}, "t-2"])
    sent = never_lands(
        store,
        e.ClaimAcquired,
        then=lambda: rival.set_policy(limits={"max_lease_duration_seconds": 400}),
    )

    assert next_for(fleet, "alice").task_id == "t-1"

    store.inner.commit(sent[0])
    assert [
        claim.task_id for claim in fleet.get_active_claims_for_session(session_id="s-alice")
    ] == ["t-1"]


def test_who_is_refused_stays_so_if_another_change_has_taken_the_place_of_the_one_that_might_have_landed(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice", lease=30)
    sent = never_lands(store, e.LeaseRenewed, then=lambda: home.clock.advance(31))
    # Just before it is sent once more.
    store.on("commit", when=writing(e.LeaseRenewed), before=lambda: granted(rival, "T", "bob"))

    result = fleet.renew_lease(task_id="T", expected_generation=generation, session_id="s-alice")

    assert (result.success, result.reason) == (False, "ALREADY_EXPIRED")
    assert isinstance(store.inner.commit(sent[0])[0], Conflict)
    assert told(fleet, "T").count("LEASE_RENEWED") == 0


@pytest.mark.parametrize("lands", [True, False])
def test_what_is_sent_once_more_and_breaks_off_again_is_done_once(home: Home, lands: bool) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice", lease=30)
    never_lands(store, e.LeaseRenewed, then=lambda: home.clock.advance(31))
    store.on(
        "commit",
        when=writing(e.LeaseRenewed),
        after=broken if lands else None,
        before=None if lands else broken,
    )

    assert fleet.renew_lease(
        task_id="T", expected_generation=generation, session_id="s-alice", lease_duration_seconds=90
    ).success

    assert told(fleet, "T").count("LEASE_RENEWED") == 1


def test_what_may_still_land_is_not_refused_though_it_cannot_be_sent_once_more(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice", lease=30)
    sent = never_lands(store, e.LeaseRenewed, then=lambda: home.clock.advance(31))
    store.on("commit", when=writing(e.LeaseRenewed), before=away, times=float("inf"))

    with pytest.raises(OutcomeUnknown):
        fleet.renew_lease(
            task_id="T",
            expected_generation=generation,
            session_id="s-alice",
            lease_duration_seconds=90,
        )

    assert isinstance(store.inner.commit(sent[0])[0], Committed)


def test_what_was_decided_before_the_epoch_rose_is_not_sent_once_more(home: Home) -> None:
    """Its generation may have been granted in the history that is lost."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T", "U"])
    granted(fleet, "U", "bob")

    def fail_over() -> None:
        home.connect().set_policy(limits={"max_concurrent_claims": 1})
        store.inner.set_epoch(1)

    never_lands(store, e.ClaimAcquired, then=fail_over)

    with pytest.raises(OutcomeUnknown):
        claim(fleet, "T", "alice")

    assert told(fleet, "T") == ["TASK_ADDED"]


def test_an_act_that_lands_late_takes_nothing_from_who_came_after_it(home: Home) -> None:
    """It has no operation id by which it would be known again."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    lands_late(store, e.ClaimSuperseded, then=lambda: granted(rival, "T", "bob"))

    result = fleet.force_release(task_id="T", take_over=True)

    assert result.superseded is not None
    assert (result.verdict, result.superseded.agent) == ("DONE", "alice")
    assert told(fleet, "T").count("CLAIM_SUPERSEDED") == 1
    assert [claim.task_id for claim in fleet.get_active_claims_for_session(session_id="s-bob")] == [
        "T"
    ]


def test_a_renewal_that_lands_late_is_written_once(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    lands_late(store, e.LeaseRenewed)

    assert fleet.renew_lease(
        task_id="T", expected_generation=generation, session_id="s-alice"
    ).success

    assert told(fleet, "T").count("LEASE_RENEWED") == 1


def test_what_was_done_is_not_said_to_be_undone_because_another_record_was_not_taken(
    home: Home,
) -> None:
    """A claim is granted, and its session, which is written beside it, is more than the store
    takes."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    of_session = lambda changes: any(change.key.kind == SESSION for change in changes)  # noqa: E731
    store.on("commit", when=of_session, before=raising(OverLimit("too large")), times=float("inf"))

    assert granted(fleet, "T", "alice") == 1

    assert told(fleet, "T").count("CLAIM_ACQUIRED") == 1


def test_what_was_sent_is_not_said_to_be_undone_when_the_store_is_closed_before_one_could_look(
    home: Home,
) -> None:
    """`close` waits so long for what is under way, and then closes the store all the same."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    store.on("commit", when=writing(e.ClaimReleased), after=broken)
    store.on("read_events", before=raising(Closed("the store is closed")), times=float("inf"))

    with pytest.raises(OutcomeUnknown):
        fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    store.clear()
    assert state(fleet, "T") == "PENDING"


@dies
@pytest.mark.parametrize("done", [True, False])
def test_what_was_sent_is_not_said_to_be_undone_when_the_lane_ends_by_a_mistake_of_ours(
    home: Home, done: bool
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    store.on(
        "commit",
        when=writing(e.ClaimReleased),
        after=die if done else None,
        before=None if done else die,
    )

    with pytest.raises(OutcomeUnknown):
        fleet.release_claim(task_id="T", expected_generation=generation, session_id="s-alice")

    fleet.engine._lanes[0].thread.join(PATIENCE)
    assert (state(home.connect(), "T") == "PENDING") is done


def test_claim_next_that_lands_late_takes_one_task(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["t-1", "t-2", "t-3"])
    lands_late(store, e.ClaimAcquired)

    result = next_for(fleet, "alice")

    held = fleet.get_active_claims_for_session(session_id="s-alice")
    assert [claim.task_id for claim in held] == [result.task_id]
    assert result.claim is not None
    assert result.claim.generation == 1


def test_claim_next_that_lands_late_takes_one_task_though_another_looks_for_one_before_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has landed its task looks free, and is not to be given to who looks in the same
    round."""
    monkeypatch.setattr("genlock.engine.offers._any_of", lambda count: 0)
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["X", "t-1", "t-2", "t-3"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    busy = later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    jobs = [
        fleet.engine.submit([NextTask(project_key(*PLACE), caller(who))])
        for who in ("first", "second")
    ]
    sent: list[Change] = []

    def snatched_and_broken() -> None:
        granted(rival, "t-1", "snatcher")
        broken()

    def is_sent(changes: Sequence[Change]) -> bool:
        sent.extend(change for change in changes if change.key == task_key("t-2"))
        return writing(e.ClaimAcquired, "t-1")(changes)

    store.on("commit", when=is_sent, before=snatched_and_broken)
    store.on("commit", when=lambda changes: bool(sent), before=lambda: store.inner.commit(sent[:1]))
    stop.open()

    assert busy.result(PATIENCE).success
    taken = [answered(job)[0].task_id for job in jobs]
    assert taken == ["t-3", "t-2"]
    for who, task in zip(("first", "second"), taken, strict=True):
        assert [
            claim.task_id for claim in fleet.get_active_claims_for_session(session_id=f"s-{who}")
        ] == [task]


def test_claim_next_that_lands_late_is_answered_though_somebody_waits_before_it(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["B-001-one"])
    picky = NextTask(
        project_key(*PLACE),
        caller("picky"),
        tracks=frozenset("A"),
        wait_until=time.monotonic() + PATIENCE,
    )
    first = fleet.engine.submit([picky], patience=PATIENCE)
    lands_late(store, e.ClaimAcquired)
    began = time.monotonic()

    assert next_for(fleet, "bob", wait=PATIENCE).task_id == "B-001-one"

    assert time.monotonic() - began < PATIENCE / 2
    assert first.left == 1


def test_claim_next_that_lands_late_is_given_back_when_its_call_was_cancelled(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    jobs: list[Job] = []
    lands_late(store, e.ClaimAcquired, then=lambda: fleet.engine.abandon(jobs[0]))
    deciding = home.stop()
    store.on("load", before=deciding)
    request = NextTask(project_key(*PLACE), caller("alice"), wait_until=time.monotonic() + PATIENCE)
    jobs.append(fleet.engine.submit([request], patience=PATIENCE))
    deciding.open()

    until(fleet, lambda: "CLAIM_RELEASED" in told(fleet, "T"))


def test_a_claim_that_lands_late_is_granted_once(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    lands_late(store, e.ClaimAcquired)

    assert granted(fleet, "T", "alice") == 1

    assert told(fleet, "T").count("CLAIM_ACQUIRED") == 1


def test_a_claim_that_lands_late_is_granted_though_the_task_is_held_meanwhile(home: Home) -> None:
    """A present holder may finish, so this one must know that it is."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    lands_late(store, e.ClaimAcquired, then=lambda: rival.hold_task(task_id="T"))

    generation = granted(fleet, "T", "alice")

    assert submit(fleet, "T", "alice", generation).accepted


def test_claim_next_that_lands_late_takes_one_task_though_that_is_held_meanwhile(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["t-1", "t-2"])
    lands_late(store, e.ClaimAcquired, then=lambda: rival.hold_task(task_id="t-1"))

    assert next_for(fleet, "alice").task_id == "t-1"

    assert state(fleet, "t-2") == "PENDING"


def test_a_result_that_lands_late_is_accepted_and_opens_its_dependents(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    generation = granted(fleet, "A", "alice")
    lands_late(store, e.ResultAccepted)

    assert submit(fleet, "A", "alice", generation).accepted

    assert told(fleet, "A").count("RESULT_ACCEPTED") == 1
    assert state(fleet, "B") == "PENDING"


def test_of_a_claim_that_lands_late_and_is_then_taken_over_nobody_says_it_was_granted(
    home: Home,
) -> None:
    """It was done, and undone by somebody else, before we could look again: what counts is what is
    there now."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    lands_late(store, e.ClaimAcquired)
    seen: list[int] = []

    def taken_over() -> None:
        rival.force_release(task_id="T", take_over=True)
        seen.append(granted(rival, "T", "bob"))

    store.on(
        "load", when=lambda keys: task_key("T") in keys and has_landed(store), before=taken_over
    )

    result = claim(fleet, "T", "alice")

    assert seen == [2]
    assert (result.success, result.reason, result.current_holder) == (
        False,
        "DENIED_ACTIVE_CLAIM",
        "bob",
    )


def has_landed(store: GatedStore) -> bool:
    return store.inner.load([task_key("T")]).records[task_key("T")].version == 2
