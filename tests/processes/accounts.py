"""What workers were told, held against what the store has: nothing acknowledged is missing, and
nothing was given twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import genlock
from genlock.core.reasons import Status
from genlock.engine.replay_check import check
from tests.processes.crew import Fact


def check_what_was_said(
    fleet: genlock.Coordinator, tasks: list[str], facts: Iterable[Fact]
) -> Counter[str]:
    """Each task has one accepted result, whatever a worker was told is so, and the replay check is
    clean. How often what was told.

    Facts carry the session that they were told to.
    """
    states = fleet.batch_get_states(task_ids=tasks)
    assert {state.state for state in states.values()} == {Status.COMPLETED}
    assert Counter(accepted(fleet)) == Counter(tasks), "a task has two accepted results, or none"
    history = {
        (task, entry.generation): entry
        for task in tasks
        for entry in fleet.get_claim_history(task_id=task)
    }
    refused = {result.id: result for result in fleet.list_refused_results(limit=1000)}
    told, grants = Counter[str](), Counter[tuple[str, int]]()
    for fact in facts:
        told[fact["fact"]] += 1
        match fact:
            case {"fact": "granted", "task": task, "generation": generation, "session": session}:
                assert history[task, generation].session_id == session
                grants[task, generation] += 1
            case {
                "fact": "released",
                "task": task,
                "generation": generation,
                "reason": "RELEASED",
                "session": session,
            }:
                # Whoever gives back what was over already is thanked too; the history has what
                # happened first.
                entry = history[task, generation]
                assert entry.session_id == session
                assert entry.release_reason in ("VOLUNTARY", "EXPIRED")
            case {
                "fact": "submitted",
                "task": task,
                "generation": generation,
                "reason": "ACCEPTED",
                "session": session,
            }:
                result = states[task].result
                assert result is not None
                assert (result.generation, result.session_id, result.result_data) == (
                    generation,
                    session,
                    fact["data"],
                )
                assert result.digest == fact["digest"]
            case {"fact": "submitted"}:
                told[fact["reason"]] += 1
                kept = refused[fact["refused_id"]]
                assert (kept.generation, kept.session_id, kept.result_data) == (
                    fact["generation"],
                    fact["session"],
                    fact["data"],
                )
                assert kept.rejection_reason == fact["reason"]
            case _:
                pass
    assert set(grants.values()) == {1}, "one generation of a task was granted to two, or twice"
    assert check(fleet.engine.store) == []
    return told


def accepted(fleet: genlock.Coordinator) -> Iterator[str]:
    """The task of every accepted result, in the order of the feed."""
    cursor, more = None, True
    while more:
        page = fleet.read_events(after=cursor, limit=500)
        yield from (event.id for event in page.events if event.event_type == "RESULT_ACCEPTED")
        cursor, more = page.cursor, page.more
