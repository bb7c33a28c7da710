"""An area in a folder and in a bucket behind a real S3 API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from genlock.products.area import Area
from genlock.testing.clock import ManualClock
from tests.servers import ministack


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty area."""
    if request.param == "file":
        return f"file://{tmp_path}/area"
    request.getfixturevalue("dynamodb")
    return ministack.bucket_for(tmp_path)


@pytest.fixture
def area(url: str) -> Area:
    return Area.at(url)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(url: str, clock: ManualClock, tmp_path: Path) -> Iterator[Coordinator]:
    """A coordinator whose project has that area."""
    with genlock.connect("memory://", clock=clock, agent_id="alice", session_id="s1") as fleet:
        fleet.set_policy(policy={"products": url})
        yield fleet
