"""The statements and migrations of one schema, and their values in binary.

The files are written for a schema called genlock, so that psql takes them as they are; another name
is put in its place here.

Whole columns are sent as one array each. psycopg would do it too, but it spends five microseconds
on every element, and a commit of 512 changes has ten thousand. JSON is no way out: quoting the
bodies here and parsing them there took 15 ms for 512 changes, where these arrays take 3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from psycopg.pq.abc import PGresult

from genlock.stores.migrations import Migration, read_migrations
from genlock.stores.sql import statements

_HERE = Path(__file__).parent
_SCHEMA = re.compile(r"\bgenlock\.")
_VALUE = re.compile(r"(?<!:):([a-z_]+)")
_QUERIES = (_HERE / "queries.sql").read_text("utf-8")
_MIGRATIONS = read_migrations(_HERE / "migrations")
_encode_json = msgspec.json.Encoder().encode

Value = str | int | bytes | None | tuple[str, ...]
"""What a statement takes. Its text says of which type each is: numbers are always int8, and names
in a tuple are a JSON list."""
Request = tuple[str, list[bytes | None]]
"""A statement and its values, encoded."""

_HEADER = struct.Struct(">iiiii").pack
_EMPTY = struct.Struct(">iii").pack
_LENGTH = struct.Struct(">i").pack
_INT8 = struct.Struct(">q")
_INT8_ELEMENT = struct.Struct(">iq")
_NULL = _LENGTH(-1)

_INT8_OID, _TEXT_OID, _BYTEA_OID = 20, 25, 17


def encode(value: Value) -> bytes | None:
    """One value; text as UTF-8, numbers as int8, tuples as JSON."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int):
        return _INT8.pack(value)
    if isinstance(value, tuple):
        return _encode_json(value)
    return value


def byteas(values: Sequence[bytes]) -> bytes:
    """A bytea[]."""
    return _array(_BYTEA_OID, values)


def texts(values: Iterable[str]) -> bytes:
    """A text[]."""
    return _array(_TEXT_OID, [value.encode() for value in values])


def sparse_texts(values: Sequence[str | None]) -> bytes:
    """Encodes a text[], which is empty if it contains no text: the server reads missing elements as
    NULL."""
    if values.count(None) == len(values):
        return _EMPTY(0, 0, _TEXT_OID)
    elements = [_NULL if value is None else _element(value.encode()) for value in values]
    return _HEADER(1, 1, _TEXT_OID, len(elements), 1) + b"".join(elements)


def ints(values: Iterable[int]) -> bytes:
    """An int8[]."""
    return int_rows([_INT8_ELEMENT.pack(8, value) for value in values], 1)


def row_of_ints(width: int) -> struct.Struct:
    """Returns a struct that packs `width` elements of an int8[], each as its length, which is 8,
    and its value."""
    return struct.Struct(">" + "iq" * width)


def int_rows(rows: Sequence[bytes], width: int) -> bytes:
    """An int8[] of packed rows."""
    if not rows:
        return _EMPTY(0, 0, _INT8_OID)
    return _HEADER(1, 0, _INT8_OID, len(rows) * width, 1) + b"".join(rows)


def _element(data: bytes) -> bytes:
    return _LENGTH(len(data)) + data


def _array(oid: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY(0, 0, oid)
    length = _LENGTH
    parts = [_HEADER(1, 0, oid, len(values), 1)]
    for value in values:
        parts += (length(len(value)), value)
    return b"".join(parts)


def decode_ints(data: bytes) -> list[int]:
    """The numbers of an int8[] without NULLs."""
    return [value for _, value in _INT8_ELEMENT.iter_unpack(data[20:])]


def decode_int(data: bytes) -> int:
    """An int8, int4 or int2."""
    return int.from_bytes(data, "big", signed=True)


_DECODERS: dict[int, Callable[[bytes], object]] = {
    16: lambda data: data != b"\0",
    17: bytes,
    20: decode_int,
    21: decode_int,
    23: decode_int,
    25: bytes.decode,
}
"""By type number: bool, bytea, int8, int2, int4, text."""


def rows_of(answer: PGresult) -> list[tuple[Any, ...]]:
    """Returns all rows of an answer, with each column decoded by its type."""
    decoders = [_DECODERS[answer.ftype(column)] for column in range(answer.nfields)]
    value = answer.get_value
    rows: list[tuple[Any, ...]] = []
    for row in range(answer.ntuples):
        cells = [value(row, column) for column in range(len(decoders))]
        rows.append(
            tuple(
                [
                    None if cell is None else decode(cell)
                    for cell, decode in zip(cells, decoders, strict=True)
                ]
            )
        )
    return rows


class Statement:
    """A statement whose values have names."""

    def __init__(self, source: str) -> None:
        self._names = list(dict.fromkeys(_VALUE.findall(source)))
        self.text = _VALUE.sub(lambda found: f"${self._names.index(found[1]) + 1}", source)

    def filled(self, **values: Value) -> Request:
        """A request with these values."""
        return self.text, [encode(values[name]) for name in self._names]


@cache
def queries_for(schema: str) -> dict[str, Statement]:
    """Returns the statements by name."""
    return statements(_for_schema(_QUERIES, schema), Statement)


def migrations_for(schema: str) -> tuple[Migration, ...]:
    """Returns the migrations in order."""
    return tuple(
        migration._replace(script=_for_schema(migration.script, schema))
        for migration in _MIGRATIONS
    )


def _for_schema(text: str, schema: str) -> str:
    return _SCHEMA.sub(f'"{schema}".', text)
