"""Options of the tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.servers.mariadb", "tests.servers.postgres"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write the outcomes that occur into tests/scenarios instead of comparing them (as GENLOCK_REWRITE=1 does); read the diff",
    )
