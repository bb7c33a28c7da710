"""Processes that go once through the operations of a worker, and say after each that it is done.
They are killed on the way.

`STEPS` is also what the test looks at afterwards: for each step, was it done?
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

import genlock
from genlock import Coordinator, failpoints
from genlock.core.reasons import Status

VICTIM = "victim"
LARGE = {"text": "x" * 40_000}
"""A result that is kept as a payload."""

FIRST, SECOND, THIRD, SPLIT = "A-001-first", "A-002-second", "A-003-third", "B-001-split"
PLAN: list[dict[str, object]] = [
    {"id": FIRST},
    {"id": SECOND, "depends_on": [FIRST]},
    {"id": THIRD, "depends_on": [SECOND]},
    {"id": SPLIT},
]
CHILDREN = [f"{SPLIT}::1", f"{SPLIT}::2"]


class Step(NamedTuple):
    """Something that a worker does, and whether it was done: whole, or not at all."""

    do: Callable[[Coordinator], object]
    is_done: Callable[[Coordinator], bool]


def claim(task: str) -> Callable[[Coordinator], object]:
    def do(fleet: Coordinator) -> None:
        answer = fleet.claim_task(task_id=task)
        assert answer.success, answer

    return do


def was_granted(task: str) -> Callable[[Coordinator], bool]:
    return lambda fleet: (
        known(fleet, task)
        and any(entry.session_id == VICTIM for entry in fleet.get_claim_history(task_id=task))
    )


def submit(task: str, data: object) -> Callable[[Coordinator], object]:
    def do(fleet: Coordinator) -> None:
        answer = fleet.submit_result(task_id=task, generation=1, result_data=data)
        assert answer.accepted, answer

    return do


def has_result(task: str, data: object) -> Callable[[Coordinator], bool]:
    def is_done(fleet: Coordinator) -> bool:
        if not known(fleet, task):
            return False
        state = fleet.get_task_state(task_id=task)
        assert (state.result is not None) == (state.state is Status.COMPLETED), (
            "a result without its completion"
        )
        if state.result is None:
            return False
        assert fleet.read_result(task_id=task) == data
        return True

    return is_done


def known(fleet: Coordinator, task: str) -> bool:
    return bool(fleet.batch_get_states(task_ids=[task]))


def renewals(fleet: Coordinator) -> int:
    return (
        sum(entry.renewals for entry in fleet.get_claim_history(task_id=FIRST))
        if known(fleet, FIRST)
        else 0
    )


def hand_in_too_late(fleet: Coordinator) -> None:
    answer = fleet.submit_result(task_id=FIRST, generation=1, result_data={"another": "result"})
    assert (answer.reason, answer.kept) == ("TASK_ALREADY_COMPLETED", True), answer


def kept_too_late(fleet: Coordinator) -> bool:
    refused = fleet.list_refused_results() if known(fleet, FIRST) else ()
    assert [result.result_data for result in refused] in ([], [{"another": "result"}])
    return bool(refused)


def split(fleet: Coordinator) -> None:
    answer = fleet.spawn_subtasks(task_id=SPLIT, generation=1, subtasks=["one", "two"])
    assert answer.children == tuple(CHILDREN), answer


def was_split(fleet: Coordinator) -> bool:
    if not known(fleet, SPLIT):
        return False
    return any(
        entry.release_reason == "SPAWNED" for entry in fleet.get_claim_history(task_id=SPLIT)
    )


def is_added(fleet: Coordinator) -> bool:
    return all(known(fleet, str(task["id"])) for task in PLAN)


def next_id_is_taken(fleet: Coordinator) -> bool:
    events = fleet.read_events(limit=1000).events
    return any(event.event_type == "IDS_TAKEN" and event.id == "global" for event in events)


def give_back(fleet: Coordinator) -> None:
    answer = fleet.release_claim(task_id=THIRD, expected_generation=1)
    assert answer.success, answer


def was_given_back(fleet: Coordinator) -> bool:
    history = fleet.get_claim_history(task_id=THIRD) if known(fleet, THIRD) else ()
    return any(entry.release_reason == "VOLUNTARY" for entry in history)


def has_ended(fleet: Coordinator) -> bool:
    return any(session.ended_at is not None for session in fleet.list_sessions(include_ended=True))


STEPS = {
    "open": Step(lambda fleet: None, lambda fleet: True),
    "add": Step(lambda fleet: fleet.add_tasks(tasks=PLAN), is_added),
    "claim": Step(claim(FIRST), was_granted(FIRST)),
    "renew": Step(
        lambda fleet: fleet.renew_lease(task_id=FIRST, expected_generation=1),
        lambda fleet: renewals(fleet) == 1,
    ),
    "submit": Step(submit(FIRST, {"small": True}), has_result(FIRST, {"small": True})),
    "submit again": Step(hand_in_too_late, kept_too_late),
    "claim the dependent": Step(claim(SECOND), was_granted(SECOND)),
    "submit much": Step(submit(SECOND, LARGE), has_result(SECOND, LARGE)),
    "take an id": Step(lambda fleet: fleet.next_id(), next_id_is_taken),
    "claim to split": Step(claim(SPLIT), was_granted(SPLIT)),
    "split": Step(split, was_split),
    "claim the last": Step(claim(THIRD), was_granted(THIRD)),
    "give back": Step(give_back, was_given_back),
    "end": Step(lambda fleet: fleet.end_session(), has_ended),
}


def arm(failpoint: str, facts: int) -> None:
    """Lets the failpoint kill as `GENLOCK_FAILPOINT` would have; without one, lets each say its
    name."""
    hit = failpoints._armed(failpoint) if failpoint else lambda name: say(facts, hit=name)
    for name, module in list(sys.modules.items()):
        if name.startswith("genlock.") and hasattr(module, "hit"):
            setattr(module, "hit", hit)  # noqa: B010 - not every module has one


def say(facts: int, **fact: object) -> None:
    """Written at once and whole, and after the answer."""
    os.write(facts, json.dumps(fact).encode() + b"\n")


def go_through(url: str, failpoint: str, facts: int) -> None:
    arm(failpoint, facts)
    with genlock.connect(url, create=True, session_id=VICTIM, agent_id=VICTIM) as fleet:
        for name, step in STEPS.items():
            step.do(fleet)
            say(facts, done=name)


def main() -> None:
    """For each order a process of its own, forked while there is nothing yet that a fork could
    break: importing takes longest."""
    importlib.import_module(
        "genlock.stores.sqlite"
    )  # otherwise it would come only with the first connection
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            go_through(
                order["url"],
                order["failpoint"],
                os.open(order["facts"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            )
            os._exit(0)
        say(sys.stdout.fileno(), status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
