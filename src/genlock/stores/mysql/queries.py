"""The named statements of queries.sql, and the numbered migrations, for tables with one prefix.

The files are written for tables whose names begin with genlock_; another beginning is put in its place here. A value is written as
`:name`, and filled in as a literal (text.py): MySQL has no way to send a whole commit with its values apart.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from genlock.stores.migrations import Migration, named_statements, newest_of, read_migrations, without_comments
from genlock.stores.mysql.text import Statement

_HERE = Path(__file__).parent
_PREFIX = re.compile(r"\bgenlock_")
_TABLE = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)", re.MULTILINE)

_QUERIES = (_HERE / "queries.sql").read_text("utf-8")
_MIGRATIONS = read_migrations(_HERE / "migrations")

FORMAT = newest_of(_MIGRATIONS)
"""The format of tables that this version has made."""

Queries = dict[str, Statement]


@cache
def queries_for(prefix: str) -> Queries:
    """Statements by name."""
    return {name: Statement(text) for name, text in named_statements(_PREFIX.sub(prefix, _QUERIES)).items()}


def tables_for(prefix: str) -> tuple[str, ...]:
    """The names of all tables of a store, and no others: another prefix may begin with this one."""
    return tuple(_PREFIX.sub(prefix, name) for migration in _MIGRATIONS for name in _TABLE.findall(migration.script))


def migrations_for(prefix: str) -> tuple[Migration, ...]:
    """Each of them, in order, as one packet takes it."""
    return tuple(migration._replace(script=without_comments(_PREFIX.sub(prefix, migration.script))) for migration in _MIGRATIONS)
