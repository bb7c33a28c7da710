"""How many source files one claim passes through: what an engineer must open to follow it."""

from __future__ import annotations

from pathlib import Path

from bench.rooms import visited_embedded, visited_over_http

EMBEDDED, OVER_HTTP = 46, 76
"""Measured. The targets are 28 and 45; lower these numbers whenever a change allows it."""


def test_a_claim_on_sqlite_visits_few_source_files(tmp_path: Path) -> None:
    visited = visited_embedded(tmp_path)

    assert {"engine/lane.py", "core/task/claims.py"} <= set(visited)
    assert any(name.startswith("stores/sqlite/") for name in visited)
    assert len(visited) <= EMBEDDED, visited


def test_a_claim_over_http_visits_few_source_files(tmp_path: Path) -> None:
    visited = visited_over_http(tmp_path)

    assert {"client", "service", "engine", "core"} <= {name.split("/")[0] for name in visited}
    assert len(visited) <= OVER_HTTP, visited
