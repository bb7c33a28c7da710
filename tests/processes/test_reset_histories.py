"""Histories of resets that are cut off, and of claims of what depends on them: whatever is claimed
after an acknowledged reset, or after the death of a process that had committed one, is denied."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.core.results import FeedEvent
from genlock.engine.replay_check import check
from tests.processes.crew import Fact, Member
from tests.servers import stores

PROGRAM = Path(__file__).with_name("resetter.py")
INPUTS = ["A-001-in", "A-002-in"]
DEPENDENTS = {
    f"B-{number:03}-out": [INPUTS[0], *INPUTS[1:][: number % 2]] for number in range(1, 5)
}
PLACES, STEPS, LIVES = 3, 40, 12


def lives(url: str, place: int, facts: list[Fact]) -> None:
    """One process after the other; each goes on where the one before it was killed."""
    for life in range(LIVES):
        with Member(PROGRAM) as member:
            member.expect(fact="here")
            member.tell(
                url=url,
                session=f"session {place}",
                seed=f"{place} {life}",
                inputs=INPUTS,
                dependents=list(DEPENDENTS),
                steps=STEPS,
            )
            while (fact := member.hear()) is not None:
                facts.append(fact)


def wrong_grants(events: tuple[FeedEvent, ...], facts: list[Fact]) -> tuple[list[str], int]:
    """Grants of a task one of whose inputs was open, by a reset that was acknowledged before the
    claim began; and how many grants were looked at."""
    resets = {fact["operation"]: fact["at"] for fact in facts if fact["fact"] == "reset"}
    granted = {
        (fact["task"], fact["generation"]): fact["began"]
        for fact in facts
        if fact["fact"] == "granted"
    }
    open_since: dict[str, float] = dict.fromkeys(INPUTS, 0)
    wrong, looked_at = [], 0
    for each in events:
        event: Any = each.event
        task = event.get("task_id", "")
        match each.event_type:
            case "RESULT_ACCEPTED" if task in open_since:
                open_since[task] = float("inf")
            case "TASK_RESET" if task in open_since:
                open_since[task] = resets.get(event.get("operation"), float("inf"))
            case "CLAIM_ACQUIRED" if (task, event["generation"]) in granted:
                began = granted[task, event["generation"]]
                for other in DEPENDENTS.get(task, ()):
                    looked_at += 1
                    if open_since[other] < began:
                        wrong.append(f"{task} at generation {event['generation']}, {other} is open")
            case _:
                pass
    return wrong, looked_at


@pytest.mark.slow
@pytest.mark.parametrize("kind", stores.LASTING)
def test_no_claim_after_an_acknowledged_or_killed_reset_of_its_input_is_granted(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stores.need(request, kind)
    url = stores.LASTING[kind].url(tmp_path / "genlock.db")
    facts: list[Fact] = []
    with genlock.connect(url, create=True) as fleet:
        fleet.set_policy(policy={"breaker_threshold": 0})
        fleet.add_tasks(
            tasks=[
                *INPUTS,
                *({"id": name, "depends_on": inputs} for name, inputs in DEPENDENTS.items()),
            ]
        )
        threads = [
            threading.Thread(target=lives, args=(url, place, facts), daemon=True)
            for place in range(PLACES)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fleet.sweep()
        events = fleet.read_events(limit=100_000).events
    wrong, looked_at = wrong_grants(events, facts)
    assert wrong == []
    assert looked_at > 20, "hardly anything was granted"
    assert sum(fact["fact"] == "finished" for fact in facts) < PLACES * LIVES, "nobody was killed"
    store = genlock.open_store(url)
    assert check(store) == []
    store.close()
