"""No work is lost: a refused result is kept before the answer says so, or the answer is an
error."""

from __future__ import annotations

from math import inf

import pytest

from genlock.coordinator.arguments import pack
from genlock.core import events as e
from genlock.core.commands import Content, SubmitResult
from genlock.core.keys import REFUSED
from genlock.errors import GenlockError, OutcomeUnknown, StoreFull, StoreUnavailable
from tests.engine.gated_store import (
    PATIENCE,
    Home,
    answered,
    caller,
    claim,
    complete,
    granted,
    later,
    raising,
    submit,
    task_key,
    told,
    writing,
)


def test_a_refused_result_is_kept_before_the_answer(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)
    home.clock.advance(31)
    granted(fleet, "T", "bob")
    before, after = home.stop(), home.stop()
    store.on("commit", when=writing(e.ResultRejected), before=before, after=after)

    answer = later(lambda: submit(fleet, "T", "alice", 1, {"work": "done"}))
    before.wait()
    assert (answer.done(), rival.list_refused_results()) == (False, ())
    before.open()
    after.wait()
    # It is there, and still nobody was told.
    assert not answer.done()
    assert [result.result_data for result in rival.list_refused_results()] == [{"work": "done"}]
    after.open()

    refused = answer.result(PATIENCE)
    assert (refused.reason, refused.work_lost, refused.kept) == ("STALE_GENERATION", True, True)
    assert [result.id for result in rival.list_refused_results()] == [refused.refused_id]
    assert told(fleet, "T").count("RESULT_ACCEPTED") == 0


@pytest.mark.parametrize("reference", [{}, {"work_product_ref": "another"}])
def test_a_refused_result_that_is_handed_in_again_is_named_as_it_was_kept(
    home: Home, reference: dict[str, str]
) -> None:
    fleet, rival = home.connect(), home.connect()
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")
    first = submit(fleet, "T", "alice", 1, {"work": "done"})
    again = submit(rival, "T", "alice", 1, {"work": "done"}, **reference)
    (kept,) = fleet.list_refused_results()
    assert first == again
    assert first.work_product_ref == kept.work_product_ref
    # What was discarded is kept anew, under the name of now.
    fleet.discard_result(task_id="T", refused_id=kept.id)
    anew = submit(rival, "T", "alice", 1, {"work": "done"}, **reference)
    assert anew.work_product_ref not in (None, first.work_product_ref)
    assert [result.work_product_ref for result in fleet.list_refused_results()] == [
        anew.work_product_ref
    ]


def test_a_refused_result_that_is_handed_in_twice_at_once_is_named_once(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")
    store.calls.clear()
    handed_in = SubmitResult(task_key("T"), caller("alice"), 1, Content("00", 2))
    one, other = answered(fleet.engine.submit([handed_in, handed_in]))
    # Both were decided before either was kept.
    assert [method for method, _ in store.calls].count("commit") == 1
    assert one == other
    assert [result.work_product_ref for result in fleet.list_refused_results()] == [
        one.work_product_ref
    ]


@pytest.mark.parametrize("error", [StoreFull("no room"), StoreUnavailable("away")])
def test_a_refused_result_that_cannot_be_kept_is_an_error_and_not_said_to_be_kept(
    home: Home, error: GenlockError
) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")
    store.on("commit", when=writing(e.ResultRejected), before=raising(error), times=inf)

    with pytest.raises(type(error)):
        submit(fleet, "T", "alice", 1, {"work": "done"})

    store.clear()
    assert fleet.list_refused_results() == ()
    # Handing it in again is all that it takes.
    assert submit(fleet, "T", "alice", 1, {"work": "done"}).kept
    assert len(fleet.list_refused_results()) == 1


def test_a_refused_result_is_kept_once_the_store_is_back(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")
    store.on(
        "commit",
        when=writing(e.ResultRejected),
        before=raising(StoreUnavailable("for a moment")),
        times=2,
    )

    assert submit(fleet, "T", "alice", 1, {"work": "done"}).kept

    assert len(fleet.list_refused_results()) == 1


def test_a_refused_result_that_was_kept_is_said_to_be_though_what_others_have_to_be_told_is_not_written(
    home: Home,
) -> None:
    """Both are of one second commit. Of that the news conflicts, and then the store is away."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}, "T", "X"])
    complete(fleet, "T")
    granted(fleet, "A", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    busy = later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    jobs = [
        fleet.engine.submit(
            [SubmitResult(task_key(name), caller("alice"), 1, pack({"work": name})[0])]
        )
        for name in ("A", "T")
    ]
    store.on(
        "commit",
        when=writing(e.ResultRejected),
        before=lambda: rival.edit_task(task_id="B", changes={"description": "more"}),
        after=lambda: store.on("load", before=raising(StoreUnavailable("away"))),
    )
    stop.open()

    assert busy.result(PATIENCE).success
    accepted, refused = [answered(job)[0] for job in jobs]
    assert accepted.accepted
    assert (refused.reason, refused.kept) == ("TASK_ALREADY_COMPLETED", True)
    assert len(fleet.list_refused_results()) == 1


def test_a_refused_result_that_may_have_been_kept_is_not_said_to_be_lost(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")
    store.on(
        "commit",
        when=writing(e.ResultRejected),
        before=raising(OutcomeUnknown("the connection broke")),
    )
    # It is not there when one looks, and then nobody can look any more.
    is_looked_for = lambda query: query.record is not None and query.record.kind == REFUSED  # noqa: E731
    store.on(
        "read_events",
        when=is_looked_for,
        after=lambda: store.on("load", before=raising(StoreUnavailable("away")), times=inf),
    )

    with pytest.raises(OutcomeUnknown):
        submit(fleet, "T", "alice", 1, {"work": "done"})

    store.clear()


def test_the_same_refused_result_handed_in_at_two_coordinators_at_once_is_kept_once(
    home: Home,
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["T"])
    complete(fleet, "T")
    store.on(
        "commit",
        when=writing(e.ResultRejected),
        before=lambda: submit(rival, "T", "alice", 1, {"work": "done"}),
    )

    refused = submit(fleet, "T", "alice", 1, {"work": "done"})

    assert sum(len(commit.conflicts) for commit in store.commits) == 1
    assert refused.kept
    assert [result.id for result in fleet.list_refused_results()] == [refused.refused_id]


def test_a_grant_whose_session_cannot_be_registered_is_no_grant_to_whoever_asked(
    home: Home,
) -> None:
    """Whether or not the claim was written, nobody was told of it; asking again gives it at the
    same generation, and the session."""
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    store.on(
        "commit", when=writing(e.SessionRegistered), before=raising(StoreFull("no room")), times=inf
    )
    with pytest.raises(StoreFull):
        claim(fleet, "T", "alice")
    store.clear()

    again = claim(fleet, "T", "alice")

    assert (again.success, again.claim.generation if again.claim else 0) == (True, 1)
    assert [session.session_id for session in fleet.list_sessions()] == ["s-alice"]
