"""A service for the tests of its client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from tests.servers.proxy import Proxy, between
from tests.servers.service import Service, serving


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """One for all tests of a file: each has a project of its own."""
    with serving("memory://") as service:
        yield service


@pytest.fixture
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The project of one test."""
    return {"project_id": f"p{abs(hash(request.node.name)) % 10**12}"}


@pytest.fixture
def fleet(service: Service, place: dict[str, Any]) -> Iterator[Coordinator]:
    with genlock.connect(service.url, session_id="s1", agent_id="alice", **place) as fleet:
        yield fleet


@pytest.fixture
def proxy(service: Service) -> Iterator[Proxy]:
    with between(service.port) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy, place: dict[str, Any]) -> Iterator[Coordinator]:
    """The same service, by way of the proxy."""
    with genlock.connect(
        f"http://127.0.0.1:{proxy.port}",
        session_id="s1",
        agent_id="alice",
        deadline_seconds=20,
        **place,
    ) as fleet:
        yield fleet
