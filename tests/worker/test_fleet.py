"""A small fleet of `genlock run` under kill -9, SIGSTOP and restarts of its coordinator. `make fleet`
plays it with fifty workers and a thousand tasks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.fleet import Settings, judge, play
from genlock.core.results import FeedEvent


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")
def test_a_fleet_under_kills_stops_and_restarts_completes_every_task_exactly_once(
    tmp_path: Path,
) -> None:
    settings = Settings(workers=5, tasks=40, hits=0.1, restart=4.0, seconds=90)
    verdict = play(f"sqlite://{tmp_path}/fleet.db", tmp_path, settings)
    assert verdict.faults == []
    assert sum(verdict.generations.values()) == 40
    assert verdict.kept == verdict.refused
    assert verdict.done["services"] >= 2
    assert verdict.done["killed"] + verdict.done["stopped"] >= 1


def event(kind: str, task: str, generation: int) -> FeedEvent:
    told = {"generation": generation}
    return FeedEvent(position=1, cursor="", kind="task", id=task, event_type=kind, event=told)


def test_the_judge_finds_what_must_never_be() -> None:
    granted, accepted = "CLAIM_ACQUIRED", "RESULT_ACCEPTED"
    told = [
        event(granted, "B", 1),
        event(granted, "A", 1),
        event(granted, "A", 2),
        event(accepted, "A", 1),
        event(accepted, "A", 2),
        event(granted, "A", 2),
    ]
    assert judge(told, {"A": [], "B": ["A"], "C": []}).faults == [
        "B: granted before A",
        "A: completed at 1, not 2",
        "A: completed twice",
        "A: generation 2 was granted twice",
        "B: not completed",
        "C: not completed",
    ]
