"""Sixteen processes on one store, at once: one winner for each task, and no number given twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import genlock
from genlock.core.codec import decode_record
from genlock.core.ids import format_root
from genlock.core.keys import COUNTER, Key
from genlock.core.model import CounterRecord
from genlock.engine.replay_check import check
from tests.processes.crew import Fact, Member, all_at_once, all_go
from tests.servers import stores

PROCESSES = 16
TASKS = 1000
TASKS_OF_A_SERVER = 200
"""On a server every call is a journey, and what it proves it proves with fewer."""


@pytest.fixture(scope="module")
def crew() -> Iterator[list[Member]]:
    with ExitStack() as stack:
        members = [stack.enter_context(Member()) for _ in range(PROCESSES)]
        for member in members:
            member.expect(fact="here")
        yield members


@pytest.fixture(params=stores.LASTING)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int]:
    """The URL of a store, and how many tasks to race for there."""
    name = stores.asked_for(request)
    return stores.LASTING[name].url(
        tmp_path / "genlock.db"
    ), TASKS_OF_A_SERVER if name in stores.SERVERS else TASKS


def plan(tasks: int) -> list[str]:
    return [f"{'ABCD'[number % 4]}-{number // 4 + 1:03}-task" for number in range(tasks)]


def race(crew: list[Member], url: str, **order: object) -> list[Fact]:
    """Gives all the same order, and collects their answers."""
    all_go(
        crew,
        [
            {"url": url, "session": f"session {number}", "seed": number, **order}
            for number in range(len(crew))
        ],
    )
    answers = [member.expect() for member in crew]
    assert all_at_once(answers), "the processes did not work at the same time"
    return answers


def held_by(fleet: genlock.Coordinator, tasks: list[str]) -> dict[str, str]:
    """Who holds each task, by the coordinator."""
    states = fleet.batch_get_states(task_ids=tasks)
    return {
        task: state.claim.session_id for task, state in states.items() if state.claim is not None
    }


def won_by(answers: list[Fact]) -> dict[str, str]:
    """Who was told that it holds each task."""
    return {
        task: f"session {number}"
        for number, answer in enumerate(answers)
        for task in answer["wins"]
    }


def test_of_sixteen_processes_that_claim_each_of_many_tasks_exactly_one_wins_each(
    crew: list[Member], place: tuple[str, int]
) -> None:
    url, number = place
    tasks = plan(number)
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=tasks)
        answers = race(crew, url, do="claim_each", tasks=tasks)
        wins = Counter(task for answer in answers for task in answer["wins"])
        assert wins == Counter(tasks), "a task was granted twice, or never"
        assert {generation for answer in answers for generation in answer["generations"]} == {1}
        for answer in answers:
            granted = len(answer["wins"])
            assert answer["reasons"] == {
                "GRANTED": granted,
                "DENIED_ACTIVE_CLAIM": number - granted,
            }
        assert all(answer["wins"] for answer in answers), "someone came too late for every task"
        assert held_by(fleet, tasks) == won_by(answers)
        assert check(fleet.engine.store) == []


def test_of_sixteen_processes_that_ask_for_the_next_task_no_two_get_the_same(
    crew: list[Member], place: tuple[str, int]
) -> None:
    url, number = place
    tasks = plan(number)
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=tasks)
        answers = race(crew, url, do="claim_all")
        assert Counter(task for answer in answers for task in answer["wins"]) == Counter(tasks)
        assert {answer["reason"] for answer in answers} == {"NOTHING_READY"}
        assert held_by(fleet, tasks) == won_by(answers)


def test_sixteen_processes_that_take_many_ids_each_get_every_number_once(
    crew: list[Member], place: tuple[str, int]
) -> None:
    url, number = place
    answers = race(crew, url, do="take_ids", count=number, threads=4)
    given = Counter(taken for answer in answers for taken in answer["taken"])
    assert given == Counter(format_root(taken) for taken in range(1, PROCESSES * number + 1)), (
        "an id was given twice, or left out"
    )
    with genlock.connect(url, create=True) as fleet:
        stored = fleet.engine.store.load(
            [key := Key("default", "default", COUNTER, "global")]
        ).records[key]
        counter = decode_record(COUNTER, stored.body)
        assert isinstance(counter, CounterRecord)
        assert (counter.value, stored.version) == (PROCESSES * number, PROCESSES * number)
        assert check(fleet.engine.store) == []
