"""The same tests for a store in this process and for a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from tests.servers.service import serving


@pytest.fixture(params=["embedded", "service"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store with the tasks A-001 and A-002, and B-001 on another track."""
    store = f"sqlite://{tmp_path}/plan.db"
    with genlock.connect(store, create=True) as fleet:
        fleet.add_tasks(
            tasks=[{"id": name, "track": name[0]} for name in ("A-001", "A-002", "B-001")]
        )
    if request.param == "embedded":
        yield store
        return
    with serving(store) as service:
        yield service.url
