"""Streams of live events, over real sockets: what is sent, where one resumes, who is told what in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock.testing.clock import ManualClock
from tests.service.streaming import Client, Service, streaming


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[genlock.Coordinator]:
    with genlock.connect(f"sqlite://{tmp_path / 'genlock.db'}", clock=ManualClock(), session_id="s1", agent_id="a1", process=None) as fleet:
        yield fleet


@pytest.fixture
def service(fleet: genlock.Coordinator) -> Iterator[Service]:
    with streaming(fleet.engine) as service:
        yield service


PATH = "/default/default"


def test_an_event_that_is_committed_reaches_a_client(fleet: genlock.Coordinator, service: Service) -> None:
    with Client(service.port, PATH) as client:
        assert client.status == 200
        assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
        fleet.add_tasks(tasks=[{"id": "A-001"}])
        names = [client.take(1)[0].name for _ in range(2)]
        assert names == ["PROJECT_CHANGED", "TASK_ADDED"]
