"""The statements and migrations of the tables with one prefix, and their values as literals.

The files are written for tables whose names begin with genlock_; this module substitutes any other
prefix. MySQL has no way to send a whole commit with separate values. So values are filled into the
statement as literals, in bytes: the connection is binary, and no character set applies.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from genlock.stores.migrations import Migration, read_migrations, without_comments
from genlock.stores.sql import statements

_HERE = Path(__file__).parent
_PREFIX = re.compile(r"\bgenlock_")
_TABLE = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)", re.MULTILINE)

_QUERIES = (_HERE / "queries.sql").read_text("utf-8")
_MIGRATIONS = read_migrations(_HERE / "migrations")
_VALUE = re.compile(r":([a-z_]+)")

Value = str | bytes | int | None | tuple[str, ...]


class Sql(bytes):
    """Part of a statement, and not a value."""


class Statement:
    """A statement whose values have names."""

    def __init__(self, text: str) -> None:
        parts = _VALUE.split(text)
        self._text = [part.encode() for part in parts[::2]]
        self._names = parts[1::2]

    def filled(self, **values: Value) -> Sql:
        """The statement with these values."""
        parts = [self._text[0]]
        for name, text in zip(self._names, self._text[1:], strict=True):
            parts += (literal(values[name]), text)
        return Sql(b"".join(parts))


def literal(value: Value) -> bytes:
    """Returns the literal of a value in a statement."""
    match value:
        case Sql():
            return value
        case None:
            return b"NULL"
        case int():
            return b"%d" % value
        case str():
            return quoted(value.encode())
        case bytes():
            return quoted(value)
        case tuple():
            return b"(%b)" % b",".join([quoted(each.encode()) for each in value])


def quoted(data: bytes) -> bytes:
    """Quotes bytes. Only two bytes are special between quotes: a statement is sent with its
    length."""
    if b"\\" in data or b"'" in data:
        data = data.replace(b"\\", b"\\\\").replace(b"'", b"\\'")
    return b"'%b'" % data


Queries = dict[str, Statement]


@cache
def queries_for(prefix: str) -> Queries:
    """Returns the statements by name."""
    return statements(_PREFIX.sub(prefix, _QUERIES), Statement)


def tables_for(prefix: str) -> tuple[str, ...]:
    """Returns the names of all tables of a store, and no others: another prefix may begin with this
    one."""
    return tuple(
        _PREFIX.sub(prefix, name)
        for migration in _MIGRATIONS
        for name in _TABLE.findall(migration.script)
    )


def migrations_for(prefix: str) -> tuple[Migration, ...]:
    """Returns the migrations in order, each as one packet."""
    return tuple(
        migration._replace(script=without_comments(_PREFIX.sub(prefix, migration.script)))
        for migration in _MIGRATIONS
    )
