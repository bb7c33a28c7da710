"""Values as the literals that a statement has them in. The connection is binary: what is between the quotes are bytes, not letters."""

from __future__ import annotations

import re

_HOLE = re.compile(r":([a-z_]+)")

Value = str | bytes | int | None | tuple[str, ...]


class Sql(bytes):
    """Part of a statement, and not a value."""


class Statement:
    """A statement with holes for its values."""

    def __init__(self, text: str) -> None:
        parts = _HOLE.split(text)
        self._text = [part.encode() for part in parts[::2]]
        self._names = parts[1::2]

    def filled(self, **values: Value) -> Sql:
        """The statement with these values."""
        parts = [self._text[0]]
        for name, text in zip(self._names, self._text[1:], strict=True):
            parts += (literal(values[name]), text)
        return Sql(b"".join(parts))


def literal(value: Value) -> bytes:
    """The value as it is written in a statement."""
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
    """Only two bytes have a meaning between quotes: a statement is sent with its length."""
    if b"\\" in data or b"'" in data:
        data = data.replace(b"\\", b"\\\\").replace(b"'", b"\\'")
    return b"'%b'" % data
