"""Every test of the engine runs on each store, and leaves a store behind that replays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.gates import Home


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param not in ("memory", "sqlite"):
        request.getfixturevalue(request.param)  # the server
    place = Home(request.param, tmp_path)
    try:
        yield place
    finally:
        place.close()
