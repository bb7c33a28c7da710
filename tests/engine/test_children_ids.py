"""An id that a child was to have, and that somebody else's task has by the time the child is
created."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from genlock.core import events as e
from genlock.errors import Closed, OutcomeUnknown, TaskExists
from tests.engine.gated_store import (
    GatedStore,
    Home,
    claim,
    complete,
    die,
    granted,
    next_for,
    state,
    told,
    writing,
)

HELD = "subtask K was not created, the id belongs to another task; add it under another id"

FOREIGN: list[Any] = [{"id": "K"}, {"id": "K", "depends_on": ["P"]}, {"id": "K", "parent": "Q"}]


def split(fleet: Any, generation: int, mode: str) -> Any:
    return fleet.spawn_subtasks(
        task_id="P",
        generation=generation,
        session_id="s-alice",
        subtasks=[{"id": "K"}, {"id": "L"}],
        mode=mode,
    )


def taken_by(home: Home, store: GatedStore, event: type, task: Any) -> None:
    """Somebody else creates this task while the parent's change is on its way."""
    store.on(
        "commit", when=writing(event, "P"), before=lambda: home.connect().add_tasks(tasks=[task])
    )


@pytest.mark.parametrize("task", FOREIGN)
@pytest.mark.parametrize("mode", ["parallel", "fan-out-fan-in"])
def test_parent_is_held_if_the_id_of_a_subtask_was_taken_meanwhile(
    home: Home, task: Any, mode: str
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["P", "Q"])
    generation = granted(fleet, "P", "alice")
    taken_by(home, store, e.SubtasksSpawned, task)

    assert split(fleet, generation, mode).success

    assert "CHILD_ID_TAKEN" in told(fleet, "P")
    assert fleet.explain(task_id="P").because == (f"it is held: {HELD}",)
    complete(fleet, "L")
    assert claim(fleet, "P", "bob").reason == "DENIED_HELD"
    # Whoever has added the missing part reopens the parent; a merging agent completes it.
    fleet.reopen_task(task_id="P")
    assert state(fleet, "P") == "PENDING"
    complete(fleet, "P", "bob")


@pytest.mark.parametrize("task", FOREIGN)
def test_parent_does_not_wait_for_a_task_of_others_whose_id_it_announced(
    home: Home, task: Any
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["P", "Q"])
    taken_by(home, store, e.ChildrenAnnounced, task)

    with pytest.raises(TaskExists):
        fleet.add_tasks(tasks=[{"id": "K", "parent": "P", "title": "part of P"}])

    assert state(fleet, "P") == "PENDING"
    assert {next_for(fleet, "bob").task_id, next_for(fleet, "carol").task_id} >= {"P"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_claim_hears_that_the_id_was_taken_after_a_kill(home: Home) -> None:
    store = home.gated()
    doomed, fleet = home.connect(store), home.connect()
    doomed.add_tasks(tasks=["P"])
    generation = granted(doomed, "P", "alice")
    store.on("commit", when=writing(e.SubtasksSpawned, "P"), after=die)
    with suppress(Closed, OutcomeUnknown):
        split(doomed, generation, "fan-out-fan-in")
    fleet.add_tasks(tasks=[{"id": "K", "title": "work of somebody else"}])

    assert claim(fleet, "P", "bob").reason == "DENIED_HELD"
    fleet.sweep()
    assert "CHILD_ID_TAKEN" in told(fleet, "P")
    complete(fleet, "K")
    complete(fleet, "L")
    assert state(fleet, "P") == "HELD"
