"""The named statements of queries.sql, and the numbered migrations, for one schema.

The files are written for a schema called genlock, so that psql takes them as they are; another name is put in its place here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_SCHEMA = re.compile(r"\bgenlock\.")

_QUERIES = (_HERE / "queries.sql").read_text("utf-8")
_MIGRATIONS = {int(file.name[:4]): file.read_text("utf-8") for file in sorted((_HERE / "migrations").glob("[0-9]*.sql"))}

FORMAT = max(_MIGRATIONS)
"""The format of a schema that this version has made."""


@cache
def queries_for(schema: str) -> dict[str, str]:
    """Statements by name."""
    _, *parts = _NAME.split(_for_schema(_QUERIES, schema))
    return {name: _COMMENT.sub("", body).strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations_for(schema: str) -> dict[int, str]:
    """Scripts by the format number they lead to."""
    return {number: _for_schema(script, schema) for number, script in _MIGRATIONS.items()}


def _for_schema(text: str, schema: str) -> str:
    return _SCHEMA.sub(f'"{schema}".', text)
