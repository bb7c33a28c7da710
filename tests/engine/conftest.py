"""Every test of the engine runs on each store, and leaves a store behind that replays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.gated_store import Home
from tests.servers import stores


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is about many hundred records takes minutes where every one is a call of its own: there
    it runs nightly."""
    for item in items:
        parameters = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        kind = stores.LASTING.get(str(parameters.get("home")))
        if item.get_closest_marker("large") and kind is not None and kind.slowness > 1:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=stores.ALL)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    place = Home(stores.asked_for(request), tmp_path)
    try:
        yield place
    finally:
        place.close()


@pytest.fixture(params=stores.LASTING)
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several processes can open."""
    return Home(stores.asked_for(request), tmp_path).url
