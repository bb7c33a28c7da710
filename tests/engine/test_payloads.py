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
from genlock.engine.payloads import missing_payloads, payloads_of
from genlock.errors import NotAllowed, ResultNotFound, StoreUnavailable, TaskNotFound
from tests.engine.gates import GatedStore, Home, complete, granted, raising, state, submit, writing

LARGE = {"text": "x" * 50_000}
"""A result that is kept as a payload."""


def refused(fleet: genlock.Coordinator) -> str:
    """Alice hands in a large result of T and has no claim of it: it is refused and kept. Its name."""
    fleet.add_tasks(tasks=["T"])
    answer = submit(fleet, "T", "alice", 7, LARGE)
    assert (answer.kept, answer.refused_id is None) == (True, False)
    return answer.refused_id or ""


def at(store: GatedStore, moment: str, act: Callable[[], Any]) -> None:
    """Lets somebody act at a moment such as "after put" or "before RESULT_ACCEPTED"."""
    side, _, what = moment.partition(" ")
    kinds = {"RESULT_ACCEPTED": e.ResultAccepted, "RESULT_DISCARDED": e.ResultDiscarded, "RESULT_ADOPTED": e.ResultAdopted}
    if what in kinds:
        store.on("commit", when=writing(kinds[what]), **{side: act})  # type: ignore[arg-type]
    else:
        store.on(what, **{side: act})  # type: ignore[arg-type]


def check_all_there(home: Home) -> None:
    assert missing_payloads(home.store()) == []


@pytest.mark.parametrize("moment", ["before put", "after put", "before RESULT_ACCEPTED", "after RESULT_ACCEPTED"])
def test_an_accepted_result_is_there_although_the_same_bytes_are_discarded_meanwhile(home: Home, moment: str) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    name = refused(fleet)
    generation = granted(fleet, "T", "bob")
    at(store, moment, lambda: rival.discard_result(task_id="T", refused_id=name))

    assert submit(fleet, "T", "bob", generation, LARGE).accepted

    assert [result.state for result in rival.list_refused_results(include_settled=True)] == ["DISCARDED"]
    assert rival.read_result(task_id="T") == LARGE
    check_all_there(home)


@pytest.mark.parametrize("moment", ["before RESULT_DISCARDED", "after RESULT_DISCARDED", "before drop", "after drop"])
def test_an_accepted_result_is_there_although_the_discard_of_the_same_bytes_is_late(home: Home, moment: str) -> None:
    store = home.gated()
    slow, fleet = home.connect(store), home.connect()
    name = refused(fleet)
    generation = granted(fleet, "T", "bob")
    at(store, moment, lambda: submit(fleet, "T", "bob", generation, LARGE))

    slow.discard_result(task_id="T", refused_id=name)

    assert fleet.read_result(task_id="T") == LARGE
    check_all_there(home)


@pytest.mark.parametrize("moment", ["before put", "after put"])
def test_a_refused_result_that_is_said_to_be_kept_is_there_although_it_was_discarded_meanwhile(home: Home, moment: str) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    name = refused(fleet)
    at(store, moment, lambda: rival.discard_result(task_id="T", refused_id=name))

    again = submit(fleet, "T", "alice", 7, LARGE)

    (kept,) = rival.list_refused_results()
    assert (again.kept, kept.id, kept.state) == (True, name, "KEPT")
    assert rival.read_result(task_id="T", digest=kept.digest) == LARGE
    check_all_there(home)


@pytest.mark.parametrize("moment", ["before RESULT_DISCARDED", "after RESULT_DISCARDED", "before drop", "after drop"])
def test_a_refused_result_that_comes_again_during_its_discard_is_there_if_it_is_kept(home: Home, moment: str) -> None:
    store = home.gated()
    slow, fleet = home.connect(store), home.connect()
    name = refused(fleet)
    at(store, moment, lambda: submit(fleet, "T", "alice", 7, LARGE))

    slow.discard_result(task_id="T", refused_id=name)

    for kept in fleet.list_refused_results():
        assert fleet.read_result(task_id="T", digest=kept.digest) == LARGE
    assert len(fleet.list_refused_results()) == (moment != "before RESULT_DISCARDED")
    check_all_there(home)


@pytest.mark.parametrize("moment", ["before open", "after open", "after put", "before RESULT_ACCEPTED", "before RESULT_ADOPTED"])
def test_an_adopted_result_is_there_although_it_is_discarded_meanwhile(home: Home, moment: str) -> None:
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
        # Between the decision and its commit both are right: the task has its copy, and what was discarded is gone.
        marked = "DISCARDED" if moment == "before RESULT_ACCEPTED" else "ADOPTED"
        assert [result.state for result in rival.list_refused_results(include_settled=True)] == [marked]
    check_all_there(home)


@pytest.mark.parametrize("moment", ["before RESULT_DISCARDED", "after RESULT_DISCARDED", "before drop"])
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


def test_an_adoption_that_is_repeated_copies_once_and_a_discard_that_is_repeated_finds_nothing_to_do(home: Home) -> None:
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


def test_bytes_from_before_are_dropped_when_nobody_refers_to_them_any_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = home.connect()
    with monkeypatch.context() as patch:
        patch.setattr(payloads, "owned", lambda content: content)
        name = refused(fleet)
    digest = fleet.list_refused_results()[0].digest
    fleet.discard_result(task_id="T", refused_id=name)
    with pytest.raises(ResultNotFound):
        fleet.read_result(task_id="T", digest=digest)


def test_a_large_result_of_no_task_does_not_keep_the_others_of_its_batch_from_being_handed_in(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    results = [{"task_id": name, "generation": generation, "result_data": LARGE} for name in ("nobody-s", "T")]

    answers = fleet.batch_submit(results=results, session_id="s-alice")

    assert isinstance(answers["nobody-s"], TaskNotFound)
    assert not isinstance(answers["T"], Exception)
    assert answers["T"].accepted


def test_a_large_result_that_was_accepted_is_answered_so_though_the_store_is_away_right_after(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    gone = raising(StoreUnavailable("for a while"))
    store.on("commit", when=writing(e.ResultAccepted, "T"), after=lambda: store.on("load", before=gone, times=inf))

    assert submit(fleet, "T", "alice", generation, LARGE).accepted

    store.clear()
    assert state(fleet, "T") == "COMPLETED"
