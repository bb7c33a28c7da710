"""A reset with cascade says what it has reset, neither more nor less."""

from __future__ import annotations

from math import inf

import pytest

from genlock.core import events as e
from genlock.errors import StoreFull
from tests.engine.gated_store import Home, complete, granted, raising, submit, writing


def test_what_has_been_begun_anew_meanwhile_is_neither_reset_nor_listed(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}, {"id": "C", "depends_on": ["A"]}])
    for name in "ABC":
        complete(fleet, name)

    def begin_anew() -> None:
        rival.reset_task(task_id="B")
        granted(rival, "B", "bob")

    # It has been listed by now, and is completed no longer.
    store.on("commit", when=writing(e.TaskReset, "A"), before=begin_anew)

    assert fleet.reset_task(task_id="A", cascade=True).cascade == ("C",)
    state = fleet.get_task_state(task_id="B")
    assert state.claim is not None
    assert (state.state, state.claim.agent_id) == ("IN_PROGRESS", "bob")


def test_a_descendant_that_could_not_be_reset_is_an_error_and_the_next_cascade_finds_it(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    for name in "AB":
        complete(fleet, name)
    store.on(
        "commit", when=writing(e.TaskReset, "B"), before=raising(StoreFull("no room")), times=inf
    )

    with pytest.raises(StoreFull):
        fleet.reset_task(task_id="A", cascade=True)

    store.clear()
    assert fleet.get_task_state(task_id="B").state == "COMPLETED"
    assert fleet.preview_reset(task_id="A") == ("B",)
    assert fleet.reset_task(task_id="A", cascade=True).cascade == ("B",)


def test_a_cascade_that_is_repeated_lists_what_it_has_reset_and_resets_nothing_twice(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(
        tasks=[
            "A",
            {"id": "B", "depends_on": ["A"]},
            {"id": "C", "depends_on": ["B"]},
            {"id": "D", "depends_on": ["C"]},
        ]
    )
    for name in "ABC":
        complete(fleet, name)
    first = fleet.reset_task(task_id="A", cascade=True, operation_id="op-1")
    again = fleet.reset_task(task_id="A", cascade=True, operation_id="op-1")
    assert again == first
    assert set(first.cascade) == {"B", "C"}

    # Also when somebody has begun anew by then, and got further than the first.
    for name in "AB":
        complete(fleet, name)
    later = fleet.reset_task(task_id="A", cascade=True, operation_id="op-1")

    assert set(later.cascade) == {"B", "C"}
    assert fleet.get_task_state(task_id="B").state == "COMPLETED"
    assert fleet.reset_task(task_id="A", cascade=True, operation_id="op-2").cascade == ("B",)


def test_a_cascade_that_is_repeated_leaves_alone_what_was_completed_since_and_finishes_what_was_cut_off(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}, {"id": "C", "depends_on": ["A"]}])
    complete(fleet, "A")
    complete(fleet, "C")
    generation = granted(fleet, "B", "bob")
    store.on(
        "commit", when=writing(e.TaskReset, "C"), before=raising(StoreFull("no room")), times=inf
    )
    with pytest.raises(StoreFull):
        fleet.reset_task(task_id="A", cascade=True, operation_id="op-1")
    store.clear()
    home.clock.advance(1)
    # Whoever was at work keeps what it has, and has handed it in by now.
    assert submit(fleet, "B", "bob", generation).accepted

    again = fleet.reset_task(task_id="A", cascade=True, operation_id="op-1")

    assert again.cascade == ("C",)
    assert fleet.get_task_state(task_id="B").state == "COMPLETED"
    assert fleet.reset_task(task_id="A", cascade=True, operation_id="op-2").cascade == ("B",)
