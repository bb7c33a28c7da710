"""Tests of lists and views. What depends on the store runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import genlock
from genlock.testing.clock import ManualClock
from tests.engine.conftest import home as home


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(clock: ManualClock) -> Iterator[genlock.Coordinator]:
    with genlock.connect("memory://", clock=clock, session_id="op") as fleet:
        yield fleet
