"""Reading one instant of a file that others go on writing, for as long as it takes.

The reads of a store are short transactions, each of its own instant: what is found by one may have changed before the next. Whoever
compares everything with everything (the replay check, an export) needs all of it of one instant. The price is that the log cannot be
begun anew meanwhile, and grows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from genlock.stores.sqlite.connections import Readers, Settings, open_reader

_BOUNDS = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})


class _Frozen(apsw.Connection):
    """A connection inside one transaction that nobody can end but by closing it."""

    frozen = False

    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        if self.frozen and statements in _BOUNDS:
            return super().execute("")
        return super().execute(statements, *args, **options)


class Instant(Readers):
    """Lends one and the same connection, to one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(lambda: open_reader(settings, _Frozen))
        self._turn = threading.RLock()
        db = self._connect()
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # BEGIN alone chooses no instant
        assert isinstance(db, _Frozen)
        db.frozen = True
        self._all.append(db)
        self._idle.append(db)

    @contextmanager
    def lent(self) -> Iterator[apsw.Connection]:
        """The connection; also after an error, for there is no other of this instant."""
        with self._turn:
            yield self._all[0]
