"""Every test of the engine runs on each store, and leaves a store behind that replays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.gates import Home


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is about many hundred records takes minutes on a server that answers one call at a time: there it runs nightly."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if item.get_closest_marker("large") and parameters.get("home") == "dynamodb":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    if request.param not in ("memory", "sqlite"):
        request.getfixturevalue(request.param)  # the server
    place = Home(request.param, tmp_path)
    try:
        yield place
    finally:
        place.close()
