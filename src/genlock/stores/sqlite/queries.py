"""The named statements of queries.sql, and the numbered migrations."""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


def _named(text: str) -> dict[str, str]:
    _, *parts = _NAME.split(text)
    return {name: _COMMENT.sub("", body).strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = _named((_HERE / "queries.sql").read_text("utf-8"))
"""Statements by name."""

MIGRATIONS = {int(file.name[:4]): file.read_text("utf-8") for file in sorted((_HERE / "migrations").glob("[0-9]*.sql"))}
"""Scripts by the format number they lead to."""

FORMAT = max(MIGRATIONS)
"""The format of a file that this version has written."""
