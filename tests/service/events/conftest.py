"""A fleet on a file of its own, and a service that streams what happens in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock.testing.clock import ManualClock
from tests.service.events.streaming import Service, streaming


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(tmp_path: Path, clock: ManualClock) -> Iterator[genlock.Coordinator]:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with genlock.connect(
        url, create=True, clock=clock, session_id="s1", agent_id="a1", process=None
    ) as fleet:
        yield fleet


@pytest.fixture
def service(fleet: genlock.Coordinator) -> Iterator[Service]:
    with streaming(fleet.engine) as service:
        yield service
