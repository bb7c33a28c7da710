"""What many tests of the service begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.gated_store import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A place in memory, where the kind of store is nothing to a test."""
    place = Home("memory", tmp_path)
    try:
        yield place
    finally:
        place.close()
