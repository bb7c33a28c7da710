"""A process of a fleet: reads orders as lines of JSON from its input, carries each out, and says
what happened by lines of JSON.

It is run as a program of its own. What it says it writes at once and only after the coordinator has
answered: so whatever was said before a kill is something that was acknowledged.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import genlock
from genlock.core.reasons import ClaimReason

LEASE_SECONDS = 1.0
"""Of the cycles: the shortest that there is, so that what the dead held is soon free."""


def say(**fact: Any) -> None:
    """One line, written whole: a pipe keeps it although its writer is killed."""
    os.write(sys.stdout.fileno(), json.dumps(fact).encode() + b"\n")


def order() -> dict[str, Any] | None:
    """The next order, or None when there is none to come."""
    line = sys.stdin.readline()
    if not line:
        return None
    found: dict[str, Any] = json.loads(line)
    return found


def claim_each(fleet: genlock.Coordinator, asked: dict[str, Any]) -> None:
    """Claims every task once, in an order of its own."""
    tasks: list[str] = list(asked["tasks"])
    random.Random(asked["seed"]).shuffle(tasks)
    wins: list[str] = []
    reasons: dict[str, int] = {}
    generations: set[int] = set()
    times = [time.monotonic_ns()]
    for task in tasks:
        answer = fleet.claim_task(task_id=task, lease_duration_seconds=3600)
        reasons[answer.reason] = reasons.get(answer.reason, 0) + 1
        if answer.claim is not None:
            wins.append(task)
            generations.add(answer.claim.generation)
        if len(times) == 1:
            times.append(time.monotonic_ns())
    times.append(time.monotonic_ns())
    say(wins=wins, reasons=reasons, generations=sorted(generations), times=times)


def claim_all(fleet: genlock.Coordinator, asked: dict[str, Any]) -> None:
    """Asks for the next task until there is none."""
    wins: list[str] = []
    times = [time.monotonic_ns()]
    while (answer := fleet.claim_next(lease_duration_seconds=3600)).success:
        assert answer.task_id is not None
        wins.append(answer.task_id)
        if len(times) == 1:
            times.append(time.monotonic_ns())
    times.append(time.monotonic_ns())
    say(wins=wins, reason=answer.reason, times=times)


def take_ids(fleet: genlock.Coordinator, asked: dict[str, Any]) -> None:
    """Takes ids one by one, in a few threads: what they ask for at the same time is written
    together."""
    times = [time.monotonic_ns()]
    taken: list[Any] = [fleet.next_id()]
    times.append(time.monotonic_ns())
    with ThreadPoolExecutor(asked["threads"]) as pool:
        taken += pool.map(lambda _: fleet.next_id(), range(asked["count"] - 1))
    times.append(time.monotonic_ns())
    say(taken=taken, times=times)


def digest_of(data: object) -> str:
    """As it is to be found in the record."""
    return hashlib.sha256(
        json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def cycle(fleet: genlock.Coordinator, asked: dict[str, Any]) -> None:
    """Claims, renews, and submits or gives back, until the whole plan is completed. Every answer is
    a fact."""
    chance = random.Random(asked["seed"])
    while True:
        answer = fleet.claim_next(lease_duration_seconds=LEASE_SECONDS, wait_seconds=0.5)
        if answer.claim is None:
            assert answer.reason is ClaimReason.NOTHING_READY
            if is_all_completed(fleet):
                say(fact="finished")
                return
            continue
        task, generation = answer.claim.task_id, answer.claim.generation
        say(fact="granted", task=task, generation=generation)
        renewal = fleet.renew_lease(task_id=task, expected_generation=generation)
        say(fact="renewed", task=task, generation=generation, reason=renewal.reason)
        if chance.random() < 0.3:
            released = fleet.release_claim(task_id=task, expected_generation=generation)
            say(fact="released", task=task, generation=generation, reason=released.reason)
            continue
        data = {"task": task, "by": asked["session"], "mark": chance.getrandbits(64)}
        submitted = fleet.submit_result(task_id=task, generation=generation, result_data=data)
        say(
            fact="submitted",
            task=task,
            generation=generation,
            reason=submitted.reason,
            refused_id=submitted.refused_id,
            digest=digest_of(data),
            data=data,
        )


def is_all_completed(fleet: genlock.Coordinator) -> bool:
    return all(track.completed == sum(_counts(track)) for track in fleet.track_progress().values())


def _counts(progress: Any) -> tuple[int, ...]:
    return (
        progress.completed,
        progress.in_progress,
        progress.pending,
        progress.blocked,
        progress.other,
    )


def work_slowly(fleet: genlock.Coordinator, asked: dict[str, Any]) -> None:
    """Claims a task, says so, and waits at its work, outside any call, until it is told to hand it
    in."""
    answer = fleet.claim_task(task_id=asked["task"], lease_duration_seconds=LEASE_SECONDS)
    assert answer.claim is not None
    say(fact="working", generation=answer.claim.generation)
    assert order() == {"do": "hand in"}
    submitted = fleet.submit_result(
        task_id=asked["task"], generation=answer.claim.generation, result_data=asked["result"]
    )
    say(
        fact="submitted",
        reason=submitted.reason,
        current=submitted.current_generation,
        kept=submitted.kept,
        refused_id=submitted.refused_id,
    )


DEEDS = {deed.__name__: deed for deed in (claim_each, claim_all, take_ids, cycle, work_slowly)}


def main() -> None:
    say(fact="here")
    while (asked := order()) is not None:
        session = asked["session"]
        fleet = genlock.connect(
            asked["url"],
            create=True,
            session_id=session,
            agent_id=f"agent of {session}",
            deadline_seconds=60,
        )
        say(fact="ready")
        assert order() == {"do": "go"}
        DEEDS[asked["do"]](fleet, asked)
        fleet.close()


if __name__ == "__main__":
    main()
