"""What GC 8.2 and 4.2 have by name: the measures of a refused result, and the parts of an id."""

from __future__ import annotations

import genlock
from genlock.testing.clock import ManualClock


def test_a_refused_result_says_how_long_its_session_had_worked_on_it() -> None:
    clock = ManualClock()
    with genlock.connect("memory://", create=True, clock=clock) as fleet:
        fleet.add_tasks(tasks=["task"])
        fleet.claim_task(task_id="task", session_id="old", agent_id="a", lease_duration_seconds=30)
        clock.advance(45)
        fleet.claim_task(task_id="task", session_id="new", agent_id="b")
        late = fleet.submit_result(
            task_id="task", generation=1, session_id="old", result_data={"x": 1}
        )
        assert (late.reason, late.kept) == ("STALE_GENERATION", True)
        fleet.submit_result(task_id="task", generation=1, session_id="stranger", result_data=[1])
        measures = {
            event.event["session_id"]: event.event["metadata"]
            for event in fleet.read_events(limit=100).events
            if event.event_type == "RESULT_REJECTED"
        }
    assert measures == {
        "old": {"result_size_bytes": 7, "processing_time_seconds": 45.0},
        "stranger": {"result_size_bytes": 3},
    }


def test_an_id_has_the_parts_that_the_document_names() -> None:
    found = genlock.parse_task_id("A-001-setup-auth::2")
    assert isinstance(found, genlock.TaskIdentifier)
    assert (found.track, found.sequence, found.description, found.subtask_index) == (
        "A",
        1,
        "setup-auth",
        2,
    )
    assert (found.task_id, found.compound_id) == ("A-001-setup-auth", "A-001-setup-auth::2")
