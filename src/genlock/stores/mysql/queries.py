"""The named statements of queries.sql, and the numbered migrations, for tables with one prefix.

The files are written for tables whose names begin with genlock_; another beginning is put in its place here. A value is written as
`:name`, and filled in as a literal (text.py): MySQL has no way to send a whole commit with its values apart.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from genlock.stores.mysql.text import Statement

_HERE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_PREFIX = re.compile(r"\bgenlock_")

_QUERIES = (_HERE / "queries.sql").read_text("utf-8")
_MIGRATIONS = {int(file.name[:4]): file.read_text("utf-8") for file in sorted((_HERE / "migrations").glob("[0-9]*.sql"))}

FORMAT = max(_MIGRATIONS)
"""The format of tables that this version has made."""

Queries = dict[str, Statement]


@cache
def queries_for(prefix: str) -> Queries:
    """Statements by name."""
    _, *parts = _NAME.split(_PREFIX.sub(prefix, _QUERIES))
    return {name: Statement(_plain(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations_for(prefix: str) -> dict[int, bytes]:
    """Scripts by the format number they lead to."""
    return {number: _plain(_PREFIX.sub(prefix, script)).encode() for number, script in _MIGRATIONS.items()}


def _plain(text: str) -> str:
    return _COMMENT.sub("", text).strip().rstrip(";")
