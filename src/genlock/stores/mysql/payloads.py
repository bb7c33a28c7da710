"""Payloads in a table, in pieces: none has to be in memory whole on its way out."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol, cast

from genlock.errors import ResultNotFound
from genlock.failpoints import hit
from genlock.store import Key
from genlock.stores.mysql.faults import Refused
from genlock.stores.mysql.link import Link
from genlock.stores.mysql.queries import Queries
from genlock.stores.mysql.text import Sql, quoted
from genlock.stores.pieces import payload_name, reader_of

PIECE = 256 * 1024
PIECES_AT_ONCE = 8
"""As many as a packet takes whose size is still the smallest default, 16 MB, with every byte of them escaped."""


class Entered(Protocol):
    """A way into the store: see `MySQLStore`."""

    def __call__(self, *, writes: bool = False) -> AbstractContextManager[Link]: ...


class TablePayloads:
    """`genlock.store.Payloads` of one store. A payload is there whole or not at all, and never changes."""

    def __init__(self, enter: Entered, queries: Queries, most_bytes: int) -> None:
        self._enter = enter
        self._queries = queries
        self._at_once = max(1, min(PIECES_AT_ONCE, most_bytes // (2 * PIECE + 1024)))

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Durable on return; what is there stays."""
        with self._enter(writes=True) as link:
            try:
                self._put(link, payload_name(key, digest), data)
                hit("mysql.payload.written")
                link.run(b"COMMIT")
            except Refused:
                link.roll_back()
                raise
        hit("mysql.payload.done")

    def _put(self, link: Link, name: bytes, data: bytes) -> None:
        _, added = link.run(b"START TRANSACTION;" + self._queries["add_payload"].filled(name=name, size=len(data)))
        if not added.affected:
            return  # it is there already
        step = PIECE * self._at_once
        view = memoryview(data)
        for start in range(0, len(data), step):
            rows = [
                b"(%d,%d,%b)" % (added.number, at // PIECE + 1, quoted(bytes(view[at : at + PIECE])))
                for at in range(start, min(start + step, len(data)), PIECE)
            ]
            link.run(self._queries["add_pieces"].filled(rows=Sql(b",".join(rows))))

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        what = f"{'/'.join(key)} has no payload {digest}"
        with self._enter() as link:
            rows = link.rows(self._queries["find_payload"], name=payload_name(key, digest))
        if not rows:
            raise ResultNotFound(what)
        ((number, size),) = rows
        return reader_of(lambda at: self._piece(number, at + 1, what), size, PIECE)

    def _piece(self, number: int, at: int, what: str) -> bytes:
        with self._enter() as link:
            rows = link.rows(self._queries["read_piece"], payload=number, number=at)
        for (data,) in rows:
            return cast(bytes, data)
        raise ResultNotFound(f"{what} any more: it was dropped while it was read")

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        with self._enter(writes=True) as link:
            link.rows(self._queries["drop_payload"], name=payload_name(key, digest))
        hit("mysql.payload.dropped")
