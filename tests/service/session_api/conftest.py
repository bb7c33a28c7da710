"""Every test of /api runs on the two stores that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.session_api.served import Served, serving


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite://{tmp_path / 'api.db'}"


@pytest.fixture
def api(url: str) -> Iterator[Served]:
    with serving(url) as served:
        yield served


@pytest.fixture
def quick() -> Iterator[Served]:
    """Where the store makes no difference."""
    with serving("memory://") as served:
        yield served
