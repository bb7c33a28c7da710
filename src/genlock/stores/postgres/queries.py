"""The named statements of queries.sql, and the numbered migrations, for one schema.

The files are written for a schema called genlock, so that psql takes them as they are; another name is put in its place here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from genlock.stores.migrations import Migration, named_statements, newest_of, read_migrations

_HERE = Path(__file__).parent
_SCHEMA = re.compile(r"\bgenlock\.")

_QUERIES = (_HERE / "queries.sql").read_text("utf-8")
_MIGRATIONS = read_migrations(_HERE / "migrations")

FORMAT = newest_of(_MIGRATIONS)
"""The format of a schema that this version has made."""


@cache
def queries_for(schema: str) -> dict[str, str]:
    """Statements by name."""
    return named_statements(_for_schema(_QUERIES, schema))


def migrations_for(schema: str) -> tuple[Migration, ...]:
    """Each of them, in order."""
    return tuple(migration._replace(script=_for_schema(migration.script, schema)) for migration in _MIGRATIONS)


def _for_schema(text: str, schema: str) -> str:
    return _SCHEMA.sub(f'"{schema}".', text)
