"""The named statements of queries.sql, and the numbered migrations."""

from __future__ import annotations

from pathlib import Path

from genlock.stores.migrations import named_statements, newest_of, read_migrations

_HERE = Path(__file__).parent

QUERIES = named_statements((_HERE / "queries.sql").read_text("utf-8"))
"""Statements by name."""

MIGRATIONS = read_migrations(_HERE / "migrations")

FORMAT = newest_of(MIGRATIONS)
"""The format of a file that this version has written."""
