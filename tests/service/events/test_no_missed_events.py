"""Clients that come and go while another process writes without a pause: none misses an event, and
none gets one twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import genlock
from genlock.core.ids import parse_root
from genlock.testing.concurrency import together
from tests.processes.crew import Member
from tests.servers import stores
from tests.service.events.streaming import Client, Service, streaming

WRITER = Path(__file__).with_name("writer.py")
CONNECTIONS = 6
"""Of each client, one after the other."""


OFTEN = ("sqlite", "postgres")
"""One without a server and one with; that a feed has no gap is tested on every store by its
contract. The others come nightly."""


@pytest.fixture(
    params=[
        name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow)
        for name in stores.LASTING
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that processes share."""
    return stores.LASTING[stores.asked_for(request)].url(tmp_path / "genlock.db")


@contextmanager
def written(url: str, *projects: str) -> Iterator[None]:
    """While the block lasts, a process for each project writes there."""
    members = [Member(WRITER) for _ in projects]
    try:
        for member, project in zip(members, projects, strict=True):
            member.tell(url=url, project=project, writers=2)
        for member in members:
            member.expect(fact="ready")
        yield
        for member in members:
            member.tell(stop=True)
        for member in members:
            member.expect(fact="finished")
    finally:
        for member in members:
            member.__exit__(None, None, None)


def read_with_breaks(
    services: Sequence[Service], path: str, fleet: genlock.Coordinator, seed: int
) -> list[tuple[str, int]]:
    """Numbers as they come, by many connections one after the other, each with some replica of the
    service, each broken off somewhere behind what was there when it came.

    So each has first read what it missed, and then has been told what happened.
    """
    chance = random.Random(seed)
    found: list[tuple[str, int]] = []
    last = ""
    for _ in range(CONNECTIONS):
        with Client(
            chance.choice(services).port, f"{path}?after=start&type=IDS_TAKEN", last=last
        ) as client:
            mark = parse_root(str(fleet.next_id(project_id="one"))) + chance.randint(0, 30)
            for event in client.events():
                found.append((event.data["event"]["project_id"], event.data["event"]["value"]))
                if found[-1] >= ("one", mark) and found[-1][0] == "one":
                    break
            last = client.last
    return found


def test_clients_that_come_and_go_while_others_write_miss_and_double_nothing(url: str) -> None:
    with (
        genlock.connect(url, create=True) as fleet,
        genlock.connect(url, create=True) as other,
        streaming(fleet.engine) as service,
        streaming(other.engine) as replica,
        written(url, "one"),
    ):
        answers = together(
            [
                partial(read_with_breaks, (service, replica), "/default/one", fleet, seed)
                for seed in range(4)
            ]
        )
    for answer in answers:
        assert answer.answer == [("one", number) for number in range(1, len(answer.answer) + 1)]


def test_a_stream_over_several_projects_misses_and_doubles_nothing_either(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    projects = ("one", "two")
    with (
        genlock.connect(url, create=True) as fleet,
        streaming(fleet.engine, look_seconds=0.05) as service,
        written(url, *projects),
    ):
        answers = together(
            [partial(read_with_breaks, (service,), "/default", fleet, seed) for seed in range(2)]
        )
    for answer in answers:
        for project in projects:
            numbers = [number for at, number in answer.answer if at == project]
            assert numbers == list(range(1, len(numbers) + 1))
            assert numbers
