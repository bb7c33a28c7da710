"""A store that begins a new epoch is never silent about it: the next command in each project writes it into the feed."""

from __future__ import annotations

import genlock
from tests.engine.gates import Home, claim, granted, later, submit


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
