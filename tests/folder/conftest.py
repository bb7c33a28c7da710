"""A workspace, or an orchestra, for every test of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.folder.orchestra import Orchestra
from tests.folder.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = Workspace(tmp_path / "workspace")
    yield made
    made.close()


@pytest.fixture
def orchestra(tmp_path: Path) -> Iterator[Orchestra]:
    made = Orchestra(tmp_path / "root")
    yield made
    made.close()
