"""A worker that makes history until its standard input ends: tasks, large results, refusals,
discards.

python busy_worker.py URL NAME      says "at work" when its first task is done
"""

from __future__ import annotations

import sys
import threading

import genlock

PACE_SECONDS = 0.02
"""Between two tasks, so that the history does not get too long to be checked ten times."""


def main(url: str, name: str) -> None:
    leaving = threading.Event()
    threading.Thread(target=leave, args=[leaving], daemon=True).start()
    with genlock.connect(
        url, create=True, session_id=name, agent_id=name, deadline_seconds=60
    ) as fleet:
        number = 0
        while not leaving.wait(PACE_SECONDS):
            number += 1
            task = f"{name}-{number}"
            fleet.add_tasks(tasks=[task])
            claim = fleet.claim_task(task_id=task).claim
            assert claim is not None
            text = f"{task} " * 6000  # too much for a record
            late = fleet.submit_result(
                task_id=task, generation=claim.generation + 1, result_data={"refused": text}
            )
            assert late.refused_id is not None
            if number % 2:
                fleet.discard_result(task_id=task, refused_id=late.refused_id)
            assert fleet.submit_result(
                task_id=task, generation=claim.generation, result_data={"accepted": text}
            ).accepted
            if number == 1:
                print("at work", flush=True)


def leave(leaving: threading.Event) -> None:
    """When whoever started us closes our input, or is gone."""
    sys.stdin.read()
    leaving.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
