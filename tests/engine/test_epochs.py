"""A store that begins a new epoch is never silent about it: the next command in each project writes
it into the feed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import genlock
from genlock.core import events as e
from genlock.errors import NotAllowed, TaskExists
from tests.engine.gated_store import Home, claim, granted, later, submit, writing


def raises(fleet: genlock.Coordinator, project: str = "default") -> int:
    events = fleet.read_events(project_id=project, limit=100_000).events
    return [event.event_type for event in events].count("EPOCH_RAISED")


def test_the_first_command_after_it_writes_the_epoch_down_and_no_other_does(home: Home) -> None:
    store = home.store()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", "B"])
    assert raises(fleet) == 0
    store.set_epoch(1)
    assert granted(fleet, "A", "alice") == 1_000_001
    assert raises(fleet) == 1
    assert granted(fleet, "B", "bob") == 1_000_001
    assert raises(fleet) == 1
    store.set_epoch(5)
    assert submit(fleet, "A", "alice", 1_000_001).accepted
    assert raises(fleet) == 2


def test_each_project_hears_of_it(home: Home) -> None:
    store = home.store()
    fleet = home.connect(store)
    for project in ("one", "two"):
        fleet.add_tasks(tasks=["A"], project_id=project)
    store.set_epoch(1)
    claim(fleet, "A", "alice", project_id="one")
    assert (raises(fleet, "one"), raises(fleet, "two")) == (1, 0)
    claim(fleet, "A", "alice", project_id="two")
    assert (raises(fleet, "one"), raises(fleet, "two")) == (1, 1)


def test_a_project_that_begins_after_it_has_nothing_to_hear(home: Home) -> None:
    store = home.store()
    store.set_epoch(4)
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A"])
    assert granted(fleet, "A", "alice") == 4_000_001
    assert raises(fleet) == 0


def test_also_a_denial_writes_it_down(home: Home) -> None:
    store = home.store()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice")
    store.set_epoch(1)
    # One that conflicts is not tried again, as nobody waits for it: the next one writes it down.
    for _ in range(2):
        assert claim(fleet, "A", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert raises(fleet) == 1


def test_two_coordinators_write_it_down_once(home: Home) -> None:
    store = home.store()
    one, other = home.connect(store), home.connect()
    one.add_tasks(tasks=["A", "B"])
    store.set_epoch(1)
    calls = [later(lambda: granted(one, "A", "alice")), later(lambda: granted(other, "B", "bob"))]
    assert [call.result(20) for call in calls] == [1_000_001, 1_000_001]
    assert raises(one) == 1


# Ids


def test_ids_go_on_a_thousand_further_once_in_a_new_epoch(home: Home) -> None:
    store = home.store()
    fleet = home.connect(store)
    assert [fleet.next_id(), fleet.next_id(count=2), fleet.next_id(parent="0001")] == [
        "0001",
        ("0002", "0003"),
        "0001_t1",
    ]
    store.set_epoch(1)
    assert [fleet.next_id(), fleet.next_id(count=2), fleet.next_id(parent="0001")] == [
        "1004",
        ("1005", "1006"),
        "0001_t1002",
    ]
    store.set_epoch(5)
    assert [fleet.next_id(), fleet.next_id(), fleet.next_id(parent="0001")] == [
        "2007",
        "2008",
        "0001_t2003",
    ]
    assert fleet.next_id(parent="0002") == "0002_t1001", "a counter that is not there may be lost"


def test_coordinators_that_hear_of_a_new_epoch_together_skip_once(home: Home) -> None:
    store = home.store()
    one, other = home.connect(store), home.connect()
    assert one.next_id() == "0001"
    store.set_epoch(1)
    calls = [later(each.next_id) for each in (one, other, one, other)]
    assert {call.result(20) for call in calls} == {"1002", "1003", "1004", "1005"}


def test_an_id_that_is_taken_is_not_overwritten_whichever_way_another_definition_comes(
    home: Home,
) -> None:
    """It may have been given out in a lost history, more than a thousand ids ago: whoever has it
    adds it once more."""
    fleet = home.connect()
    fleet.add_tasks(
        tasks=[{"id": "0001", "title": "mine"}, "0002", {"id": "0002_t1", "title": "mine"}, "0003"]
    )
    generation, parent = granted(fleet, "0001", "alice"), granted(fleet, "0003", "bob")

    for tasks in (
        [{"id": "0001", "title": "theirs"}],
        [{"id": "0002_t1", "title": "theirs"}],
        ["0001"],
    ):
        with pytest.raises(TaskExists, match="another definition"):
            fleet.add_tasks(tasks=tasks)
    with pytest.raises(NotAllowed, match="'0001' exists already; give the subtask another id"):
        fleet.spawn_subtasks(
            task_id="0003",
            generation=parent,
            session_id="s-bob",
            subtasks=[{"id": "0001", "title": "theirs"}],
        )
    fleet.spawn_subtasks(
        task_id="0003",
        generation=parent,
        session_id="s-bob",
        subtasks=[{"id": "0003_t1", "title": "mine"}],
        keep=True,
    )
    with pytest.raises(TaskExists, match="another definition"):
        fleet.spawn_subtasks(
            task_id="0003",
            generation=parent,
            session_id="s-bob",
            subtasks=[{"id": "0003_t1", "title": "theirs"}],
        )

    titles = {
        name: fleet.get_task_state(task_id=name).task.title
        for name in ("0001", "0002_t1", "0003_t1")
    }
    assert titles == {"0001": "mine", "0002_t1": "mine", "0003_t1": "mine"}
    assert submit(fleet, "0001", "alice", generation).accepted


def test_of_two_that_add_one_id_at_once_with_two_definitions_one_is_refused(home: Home) -> None:
    """Also where the second has looked, and found nothing, before the first was there: adding,
    importing, and as a child."""
    ways: dict[str, Callable[[genlock.Coordinator], object]] = {
        "0001": lambda fleet: fleet.add_tasks(tasks=[{"id": "0001", "title": "theirs"}]),
        "0002": lambda fleet: fleet.import_plan(
            source={"tasks": [{"id": "0002", "title": "theirs"}]}
        ),
        "0009_t1": lambda fleet: fleet.add_tasks(tasks=[{"id": "0009_t1", "title": "theirs"}]),
    }
    for name, way in ways.items():
        store = home.gated()
        fleet, rival = home.connect(store), home.connect()
        rival.add_tasks(tasks=["0009"])
        event = e.ChildrenAnnounced if "_" in name else e.TaskAdded
        store.on(
            "commit",
            when=writing(event),
            before=lambda name=name, rival=rival: rival.add_tasks(
                tasks=[{"id": name, "title": "mine"}]
            ),  # type: ignore[misc]
        )
        with pytest.raises(TaskExists, match="another definition"):
            way(fleet)
        assert rival.get_task_state(task_id=name).task.title == "mine"
