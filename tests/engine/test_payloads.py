"""Large results are lost by nobody's discard of the same bytes, whenever it comes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

import pytest

import genlock
from genlock.coordinator import payloads
from genlock.core import events as e
from genlock.core.keys import Key
from genlock.engine import scan
from genlock.engine.scan import missing_payloads, payloads_of
from genlock.errors import NotAllowed, ResultNotFound, StoreError, StoreUnavailable, TaskNotFound
from tests.engine.gated_store import (
    GatedStore,
    Home,
    complete,
    granted,
    raising,
    state,
    submit,
    told,
    writing,
)

LARGE = {"text": "x" * 50_000}
"""A result that is kept as a payload."""
OTHER = {"text": "y" * 50_000}


def refused(fleet: genlock.Coordinator) -> str:
    """Alice hands in a large result of T and has no claim of it: it is refused and kept. Its
    name."""
    fleet.add_tasks(tasks=["T"])
    answer = submit(fleet, "T", "alice", 7, LARGE)
    assert (answer.kept, answer.refused_id is None) == (True, False)
    return answer.refused_id or ""


def at(store: GatedStore, moment: str, act: Callable[[], Any]) -> None:
    """Lets somebody act at a moment such as "after put" or "before RESULT_ACCEPTED"."""
    side, _, what = moment.partition(" ")
    kinds = {
        "RESULT_ACCEPTED": e.ResultAccepted,
        "RESULT_DISCARDED": e.ResultDiscarded,
        "RESULT_ADOPTED": e.ResultAdopted,
    }
    if what in kinds:
        store.on("commit", when=writing(kinds[what]), **{side: act})  # type: ignore[arg-type]
    else:
        store.on(what, **{side: act})  # type: ignore[arg-type]


def check_all_there(home: Home) -> None:
    assert missing_payloads(home.store()) == []


@pytest.mark.parametrize(
    "moment", ["before put", "after put", "before RESULT_ACCEPTED", "after RESULT_ACCEPTED"]
)
def test_an_accepted_result_is_there_although_the_same_bytes_are_discarded_meanwhile(
    home: Home, moment: str
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    name = refused(fleet)
    generation = granted(fleet, "T", "bob")
    at(store, moment, lambda: rival.discard_result(task_id="T", refused_id=name))

    assert submit(fleet, "T", "bob", generation, LARGE).accepted

    assert [result.state for result in rival.list_refused_results(include_settled=True)] == [
        "DISCARDED"
    ]
    assert rival.read_result(task_id="T") == LARGE
    check_all_there(home)


@pytest.mark.parametrize(
    "moment", ["before RESULT_DISCARDED", "after RESULT_DISCARDED", "before drop", "after drop"]
)
def test_an_accepted_result_is_there_although_the_discard_of_the_same_bytes_is_late(
    home: Home, moment: str
) -> None:
    store = home.gated()
    slow, fleet = home.connect(store), home.connect()
    name = refused(fleet)
    generation = granted(fleet, "T", "bob")
    at(store, moment, lambda: submit(fleet, "T", "bob", generation, LARGE))

    slow.discard_result(task_id="T", refused_id=name)

    assert fleet.read_result(task_id="T") == LARGE
    check_all_there(home)


@pytest.mark.parametrize("moment", ["before put", "after put"])
def test_a_refused_result_that_is_said_to_be_kept_is_there_although_it_was_discarded_meanwhile(
    home: Home, moment: str
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    name = refused(fleet)
    at(store, moment, lambda: rival.discard_result(task_id="T", refused_id=name))

    again = submit(fleet, "T", "alice", 7, LARGE)

    (kept,) = rival.list_refused_results()
    assert (again.kept, kept.id, kept.state) == (True, name, "KEPT")
    assert rival.read_result(task_id="T", digest=kept.digest) == LARGE
    check_all_there(home)


@pytest.mark.parametrize(
    "moment", ["before RESULT_DISCARDED", "after RESULT_DISCARDED", "before drop", "after drop"]
)
def test_a_refused_result_that_comes_again_during_its_discard_is_there_if_it_is_kept(
    home: Home, moment: str
) -> None:
    store = home.gated()
    slow, fleet = home.connect(store), home.connect()
    name = refused(fleet)
    at(store, moment, lambda: submit(fleet, "T", "alice", 7, LARGE))

    slow.discard_result(task_id="T", refused_id=name)

    for kept in fleet.list_refused_results():
        assert fleet.read_result(task_id="T", digest=kept.digest) == LARGE
    assert len(fleet.list_refused_results()) == (moment != "before RESULT_DISCARDED")
    check_all_there(home)


@pytest.mark.parametrize(
    "moment",
    ["before open", "after open", "after put", "before RESULT_ACCEPTED", "before RESULT_ADOPTED"],
)
def test_an_adopted_result_is_there_although_it_is_discarded_meanwhile(
    home: Home, moment: str
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    name = refused(fleet)

    def discard() -> None:
        with suppress(NotAllowed):
            rival.discard_result(task_id="T", refused_id=name)

    at(store, moment, discard)
    try:
        adopted = fleet.adopt_result(task_id="T", refused_id=name).accepted
    except NotAllowed:
        adopted = False

    # Whoever comes before the decision is heeded; what is adopted cannot be discarded.
    assert adopted == moment.endswith(("RESULT_ACCEPTED", "RESULT_ADOPTED"))
    if adopted:
        assert rival.read_result(task_id="T") == LARGE
        # Between the decision and its commit both are right: the task has its copy, and what was
        # discarded is gone.
        marked = "DISCARDED" if moment == "before RESULT_ACCEPTED" else "ADOPTED"
        assert [result.state for result in rival.list_refused_results(include_settled=True)] == [
            marked
        ]
    check_all_there(home)


@pytest.mark.parametrize(
    "moment", ["before RESULT_DISCARDED", "after RESULT_DISCARDED", "before drop"]
)
def test_an_adopted_result_is_there_although_its_discard_is_late(home: Home, moment: str) -> None:
    store = home.gated()
    slow, fleet = home.connect(store), home.connect()
    name = refused(fleet)
    adopted = []

    def adopt() -> None:
        with suppress(NotAllowed):
            adopted.append(fleet.adopt_result(task_id="T", refused_id=name).accepted)

    at(store, moment, adopt)
    with suppress(NotAllowed):
        slow.discard_result(task_id="T", refused_id=name)

    assert adopted == ([True] if moment == "before RESULT_DISCARDED" else [])
    if adopted:
        assert fleet.read_result(task_id="T") == LARGE
    check_all_there(home)


def lying(store: GatedStore) -> int:
    """How many payloads there are: those that were put and not dropped."""
    there: dict[Any, None] = {}
    for method, key in store.calls:
        if method == "put":
            there[key] = None
        elif method == "drop":
            there.pop(key, None)
    return len(there)


def test_what_is_handed_in_again_and_again_lies_there_once(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    name = refused(fleet)
    for _ in range(3):
        submit(fleet, "T", "alice", 7, LARGE)
    assert lying(store) == 1
    generation = granted(fleet, "T", "bob")
    for _ in range(3):
        assert submit(fleet, "T", "bob", generation, LARGE).accepted
    results = [{"task_id": "T", "generation": generation, "result_data": LARGE}]
    assert fleet.batch_submit(results=results, session_id="s-bob")["T"].accepted  # type: ignore[union-attr]
    assert lying(store) == 2
    fleet.discard_result(task_id="T", refused_id=name)
    assert lying(store) == 1
    assert fleet.read_result(task_id="T") == LARGE


def test_an_adoption_that_is_repeated_copies_once_and_a_discard_that_is_repeated_finds_nothing_to_do(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    name = refused(fleet)
    for _ in range(3):
        assert fleet.adopt_result(task_id="T", refused_id=name).accepted
    assert lying(store) == len(list(payloads_of(home.store()))) == 2
    other = submit(fleet, "T", "carol", 7, LARGE).refused_id or ""
    for _ in range(2):
        fleet.discard_result(task_id="T", refused_id=other)
    assert lying(store) == 2


def test_a_large_result_that_counted_before_a_reset_can_still_be_read(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "bob")
    assert submit(fleet, "T", "bob", generation, LARGE).accepted
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    fleet.reset_task(task_id="T")
    complete(fleet, "T")

    assert fleet.read_result(task_id="T", digest=result.digest) == LARGE


# Retention

DAY = 86_400.0


def lies_there(home: Home, event: Any) -> bool:
    """Are the bytes there that this event of T tells of?"""
    key = Key("default", "default", "payload", f"T/{event['payload_id']}")
    try:
        home.store().payloads().open(key, event["digest"]).close()
    except ResultNotFound:
        return False
    return True


def reset_long_ago(home: Home, fleet: genlock.Coordinator) -> Any:
    """T had a large result, was reset 40 days ago, and has another large one since. The event of
    the first."""
    fleet.add_tasks(tasks=["T"])
    fleet.set_policy(limits={"claim_history_retention_days": 30})
    assert submit(fleet, "T", "alice", granted(fleet, "T", "alice"), LARGE).accepted
    fleet.reset_task(task_id="T")
    (event,) = [
        each.event
        for each in fleet.read_events(task_id="T").events
        if each.event_type == "RESULT_ACCEPTED"
    ]
    home.clock.advance(40 * DAY)
    assert submit(fleet, "T", "bob", granted(fleet, "T", "bob"), OTHER).accepted
    return event


def test_a_large_result_from_before_a_reset_goes_with_its_event(home: Home) -> None:
    fleet = home.connect()
    first = reset_long_ago(home, fleet)
    assert lies_there(home, first)

    assert fleet.sweep().purged > 0

    assert not lies_there(home, first)
    assert fleet.read_result(task_id="T") == OTHER
    with pytest.raises(ResultNotFound):
        fleet.read_result(task_id="T", digest=first["digest"])
    check_all_there(home)


def test_a_large_result_from_before_a_reset_stays_as_long_as_its_event_does(home: Home) -> None:
    fleet = home.connect()
    first = reset_long_ago(home, fleet)
    fleet.set_policy(limits={"claim_history_retention_days": 41})

    assert fleet.sweep().purged == 0

    assert fleet.read_result(task_id="T", digest=first["digest"]) == LARGE


def test_a_large_result_that_counts_stays_whatever_of_its_history_is_dropped(home: Home) -> None:
    fleet = home.connect()
    reset_long_ago(home, fleet)
    home.clock.advance(40 * DAY)
    name = submit(fleet, "T", "carol", 1, LARGE).refused_id or ""
    home.clock.advance(40 * DAY)

    assert fleet.sweep().purged > 0

    assert fleet.read_result(task_id="T") == OTHER
    assert [kept.id for kept in fleet.list_refused_results()] == [name]
    check_all_there(home)


def test_a_refused_result_keeps_its_bytes_although_the_event_of_its_refusal_is_dropped(
    home: Home,
) -> None:
    fleet = home.connect()
    name = refused(fleet)
    fleet.set_policy(limits={"claim_history_retention_days": 30})
    assert fleet.adopt_result(task_id="T", refused_id=name).accepted
    home.clock.advance(40 * DAY)
    assert fleet.sweep().purged > 0
    assert (
        fleet.read_result(task_id="T"),
        [each.state for each in fleet.list_refused_results(include_settled=True)],
    ) == (
        LARGE,
        ["ADOPTED"],
    )
    check_all_there(home)


def test_the_bytes_of_a_refused_result_whose_discard_was_killed_go_with_the_event_of_its_refusal(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    name = refused(fleet)
    fleet.set_policy(limits={"claim_history_retention_days": 30})
    (event,) = [
        each.event for each in fleet.read_events().events if each.event_type == "RESULT_REJECTED"
    ]
    store.on("drop", before=raising(StoreError("broken off")))
    with pytest.raises(StoreError):
        fleet.discard_result(task_id="T", refused_id=name)
    assert lies_there(home, event)
    home.clock.advance(40 * DAY)

    assert home.connect().sweep().purged > 0

    assert not lies_there(home, event)


@pytest.mark.parametrize("moment", ["before drop", "after drop", "before purge", "after purge"])
def test_a_purge_that_is_broken_off_is_finished_by_the_next_and_leaves_no_bytes(
    home: Home, moment: str
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    first = reset_long_ago(home, fleet)
    at(store, moment, raising(StoreError("broken off")))
    with pytest.raises(StoreError):
        fleet.sweep()

    home.connect().sweep()

    assert not lies_there(home, first)
    assert fleet.read_result(task_id="T") == OTHER
    assert told(fleet, "T") == ["CLAIM_ACQUIRED", "RESULT_ACCEPTED"], "those of the second result"
    check_all_there(home)


def test_bytes_that_an_earlier_purge_left_go_when_the_reset_is_past_its_retention_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two the base has the result, and nothing else does."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    fleet.set_policy(limits={"claim_history_retention_days": 30})
    assert submit(fleet, "T", "alice", granted(fleet, "T", "alice"), LARGE).accepted
    (event,) = [
        each.event
        for each in fleet.read_events(task_id="T").events
        if each.event_type == "RESULT_ACCEPTED"
    ]
    home.clock.advance(20 * DAY)
    fleet.reset_task(task_id="T")
    home.clock.advance(15 * DAY)
    with monkeypatch.context() as patch:
        patch.setattr(scan, "_drop_unused", lambda *_: None)
        assert fleet.sweep().purged > 0
    assert lies_there(home, event)
    home.clock.advance(20 * DAY)
    complete(fleet, "T")

    fleet.sweep()

    assert not lies_there(home, event)


def test_bytes_from_before_they_had_names_of_their_own_go_with_the_last_that_refers_to_them(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such records are made by leaving out the digits."""
    fleet = home.connect()
    with monkeypatch.context() as patch:
        patch.setattr(payloads, "owned", lambda content: content)
        first = refused(fleet)
        second = submit(fleet, "T", "bob", 8, LARGE).refused_id or ""
        third = submit(fleet, "T", "bob", 9, LARGE).refused_id or ""
    digest = fleet.list_refused_results()[0].digest
    assert len(set(payloads_of(home.store()))) == 1

    fleet.discard_result(task_id="T", refused_id=first)
    assert fleet.read_result(task_id="T", digest=digest) == LARGE
    # What is adopted is a copy.
    assert fleet.adopt_result(task_id="T", refused_id=second).accepted
    fleet.discard_result(task_id="T", refused_id=third)
    check_all_there(home)
    assert fleet.read_result(task_id="T") == LARGE


def test_bytes_from_before_are_dropped_when_nobody_refers_to_them_any_more(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = home.connect()
    with monkeypatch.context() as patch:
        patch.setattr(payloads, "owned", lambda content: content)
        name = refused(fleet)
    digest = fleet.list_refused_results()[0].digest
    fleet.discard_result(task_id="T", refused_id=name)
    with pytest.raises(ResultNotFound):
        fleet.read_result(task_id="T", digest=digest)


def test_a_large_result_of_no_task_does_not_keep_the_others_of_its_batch_from_being_handed_in(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    results = [
        {"task_id": name, "generation": generation, "result_data": LARGE}
        for name in ("nobody-s", "T")
    ]

    answers = fleet.batch_submit(results=results, session_id="s-alice")

    assert isinstance(answers["nobody-s"], TaskNotFound)
    assert not isinstance(answers["T"], Exception)
    assert answers["T"].accepted


def test_a_large_result_that_was_accepted_is_answered_so_though_the_store_is_away_right_after(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    gone = raising(StoreUnavailable("for a while"))
    store.on(
        "commit",
        when=writing(e.ResultAccepted, "T"),
        after=lambda: store.on("load", before=gone, times=inf),
    )

    assert submit(fleet, "T", "alice", generation, LARGE).accepted

    store.clear()
    assert state(fleet, "T") == "COMPLETED"
