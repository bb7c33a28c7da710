"""Every test of the engine runs on each store, and leaves a store behind that replays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.gates import Home


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    place = Home(request.param, tmp_path)
    try:
        yield place
    finally:
        place.close()


@pytest.fixture(params=["sqlite", "postgres"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several processes can open."""
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    return Home(request.param, tmp_path).url
