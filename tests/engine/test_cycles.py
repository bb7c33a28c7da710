"""Two edits at once may close a cycle: nobody is granted a task in it, `explain` names it, taking
an edge away opens it."""

from __future__ import annotations

from itertools import pairwise

import pytest

import genlock
from genlock.core import events as e
from genlock.errors import BadArgument
from tests.engine.gated_store import Home, claim, complete, next_for, state, writing


def closed_cycle(home: Home, names: tuple[str, ...]) -> genlock.Coordinator:
    """Each waits for the next one; the last edit is made while the first, already checked, is on
    its way."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=names)
    for name, other in pairwise(names[1:]):
        rival.edit_task(task_id=name, changes={"depends_on": [other]})

    def close() -> None:
        assert (
            rival.edit_task(task_id=names[-1], changes={"depends_on": [names[0]]}).verdict == "DONE"
        )

    store.on("commit", when=writing(e.TaskEdited, names[0]), before=close)
    assert fleet.edit_task(task_id=names[0], changes={"depends_on": [names[1]]}).verdict == "DONE"
    return fleet


@pytest.mark.parametrize("names", [("A", "B"), ("A", "B", "C", "D")])
def test_nobody_is_granted_a_task_of_a_cycle(home: Home, names: tuple[str, ...]) -> None:
    fleet = closed_cycle(home, names)

    assert [state(fleet, name) for name in names] == ["BLOCKED"] * len(names)
    assert [claim(fleet, name, "alice").reason for name in names] == ["DENIED_BLOCKED"] * len(names)
    assert next_for(fleet, "alice").reason == "NOTHING_READY"
    assert fleet.ready() == ()


@pytest.mark.parametrize("names", [("A", "B"), ("A", "B", "C", "D")])
def test_explain_names_the_way_around(home: Home, names: tuple[str, ...]) -> None:
    fleet = closed_cycle(home, names)
    ring = set(pairwise([*names, names[0]]))

    for name in names:
        explained = fleet.explain(task_id=name)
        assert explained.reason == "DENIED_BLOCKED"
        assert explained.cycle[0] == explained.cycle[-1]
        assert set(pairwise(explained.cycle)) == ring
        assert any(" → ".join(explained.cycle) in line for line in explained.because)


def test_a_task_behind_a_cycle_is_told_of_it_too(home: Home) -> None:
    fleet = closed_cycle(home, ("A", "B"))
    fleet.add_tasks(tasks=[{"id": "C", "depends_on": ["A"]}])

    explained = fleet.explain(task_id="C")

    assert explained.reason == "DENIED_BLOCKED"
    assert set(explained.cycle) == {"A", "B"}


def test_taking_an_edge_away_opens_the_cycle(home: Home) -> None:
    fleet = closed_cycle(home, ("A", "B"))

    fleet.edit_task(task_id="B", changes={"depends_on": []})

    assert fleet.explain(task_id="A").cycle == ()
    assert [line.task.id for line in fleet.ready()] == ["B"]
    complete(fleet, "B")
    assert claim(fleet, "A", "alice").success


def test_one_edit_after_the_other_cannot_close_a_cycle(home: Home) -> None:
    """Proof that the edits above went past each other: in turn the second is refused."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["A", "B"])
    fleet.edit_task(task_id="A", changes={"depends_on": ["B"]})

    with pytest.raises(BadArgument, match=r"A → B|B → A"):
        fleet.edit_task(task_id="B", changes={"depends_on": ["A"]})

    assert state(fleet, "B") == "PENDING"


def test_a_held_claim_survives_the_closing_of_a_cycle(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A", "B"])
    held = claim(fleet, "A", "alice")
    assert held.claim is not None
    store.on(
        "commit",
        when=writing(e.TaskEdited, "A"),
        before=lambda: rival.edit_task(task_id="B", changes={"depends_on": ["A"]}),
    )
    fleet.edit_task(task_id="A", changes={"depends_on": ["B"]})

    # Whoever has the right keeps it, and its result opens the circle.
    assert fleet.submit_result(
        task_id="A", generation=held.claim.generation, session_id="s-alice", result_data="done"
    ).accepted
    assert state(fleet, "B") == "PENDING"
