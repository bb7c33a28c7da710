"""Stores to measure on: plans of many tasks in one state or another."""

from __future__ import annotations

from pathlib import Path

import genlock
from genlock import Coordinator

DESCRIPTION = "Implement the repository pattern for this entity, with tests"
_AT_ONCE = 500


def ids_of(number: int, track: str = "A") -> list[str]:
    """So many ids of one track."""
    return [f"{track}-{at % 999 + 1:03d}-task-number-{at}" for at in range(number)]


def tasks_of(ids: list[str]) -> list[dict[str, object]]:
    return [{"id": name, "title": f"Task {name}", "description": DESCRIPTION} for name in ids]


def open_plan(path: Path, ids: list[str]) -> Coordinator:
    """A new store with these tasks, all ready."""
    fleet = genlock.connect(f"sqlite://{path}", create=True, deadline_seconds=60)
    fleet.add_tasks(tasks=tasks_of(ids))
    return fleet


def register(fleet: Coordinator, sessions: int) -> None:
    """Sessions that are known before anything is measured."""
    for number in range(sessions):
        fleet.register_session(session_id=f"session-{number}")


def complete(fleet: Coordinator, ids: list[str]) -> None:
    """Claims and completes tasks, in batches."""
    for start in range(0, len(ids), _AT_ONCE):
        chunk = ids[start : start + _AT_ONCE]
        granted = fleet.batch_claim(task_ids=chunk, agent_id="builder", session_id="builder")
        fleet.batch_submit(
            results=[
                {"task_id": name, "generation": granted[name].claim.generation}  # type: ignore[union-attr]
                for name in chunk
            ],
            session_id="builder",
        )
