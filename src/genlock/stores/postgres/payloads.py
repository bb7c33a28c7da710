"""Payloads in a table, in pieces: none has to be in memory whole on its way out."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol, cast

from genlock.errors import ResultNotFound
from genlock.failpoints import hit
from genlock.store import Key
from genlock.stores.pieces import payload_name, reader_of
from genlock.stores.postgres.faults import Refused
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.wire import byteas, encode

PIECE = 256 * 1024
PIECES_AT_ONCE = 16


class Entered(Protocol):
    """A way into the store: see `PostgresStore`."""

    def __call__(self, *, writes: bool = False) -> AbstractContextManager[Link]: ...


class TablePayloads:
    """`genlock.store.Payloads` of one store. A payload is there whole or not at all, and never changes."""

    def __init__(self, enter: Entered, queries: dict[str, str]) -> None:
        self._enter = enter
        self._queries = queries

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Durable on return; what is there stays."""
        with self._enter(writes=True) as link:
            link.script("BEGIN")
            try:
                self._put(link, payload_name(key, digest), data)
                hit("postgres.payload.written")
                link.script("COMMIT")
            except Refused:
                link.script("ROLLBACK")
                raise
        hit("postgres.payload.done")

    def _put(self, link: Link, name: bytes, data: bytes) -> None:
        rows: list[Any] = link.rows(self._queries["add_payload"], name, len(data))
        view = memoryview(data)
        step = PIECE * PIECES_AT_ONCE
        for (number,) in rows:  # none if it is there already
            for start in range(0, len(data), step):
                pieces = [bytes(view[at : at + PIECE]) for at in range(start, min(start + step, len(data)), PIECE)]
                link.call(self._queries["add_pieces"], [encode(number), encode(start // PIECE), byteas(pieces)])

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        what = f"{'/'.join(key)} has no payload {digest}"
        with self._enter() as link:
            rows: list[Any] = link.rows(self._queries["find_payload"], payload_name(key, digest))
        if not rows:
            raise ResultNotFound(what)
        ((number, size),) = rows
        return reader_of(lambda at: self._piece(number, at + 1, what), size, PIECE)

    def _piece(self, number: int, at: int, what: str) -> bytes:
        with self._enter() as link:
            rows: list[Any] = link.rows(self._queries["read_piece"], number, at)
        for (data,) in rows:
            return cast(bytes, data)
        raise ResultNotFound(f"{what} any more: it was dropped while it was read")

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        with self._enter(writes=True) as link:
            link.rows(self._queries["drop_payload"], payload_name(key, digest))
        hit("postgres.payload.dropped")
