"""Names as numbers: projects, pools and sessions are interned by whoever writes them first. A number never changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import apsw

from genlock.store import Change
from genlock.stores.sqlite.queries import QUERIES

_PROJECT_ID, _ADD_PROJECT = QUERIES["project_id"], QUERIES["add_project"]
_POOL_ID, _ADD_POOL = QUERIES["pool_id"], QUERIES["add_pool"]
_SESSION_ID, _ADD_SESSION = QUERIES["session_id"], QUERIES["add_session"]

MOST = 65536
"""Names kept in memory; sessions come and go."""

N = TypeVar("N", tuple[str, str], tuple[int, str])


class Names:
    """The numbers known to one writer. Looking one up that is not there is a KeyError: then `learn`, inside the transaction."""

    def __init__(self) -> None:
        self.projects: dict[tuple[str, str], int] = {}
        self.pools: dict[tuple[int, str], int] = {}
        self.sessions: dict[tuple[str, str], int] = {}
        self._given: list[Callable[[], object]] = []

    def learn(self, db: apsw.Connection, changes: Sequence[Change]) -> None:
        """Finds or gives the numbers of all names in these changes. Then the transaction ends in `keep` or in `forget`."""
        if len(self.pools) + len(self.sessions) > MOST:
            self.pools.clear()
            self.sessions.clear()
        for change in changes:
            tenant, project, _, _ = change.key
            index = change.index
            number = self._number(db, self.projects, (tenant, project), _PROJECT_ID, _ADD_PROJECT)
            if index.pool is not None:
                self._number(db, self.pools, (number, index.pool), _POOL_ID, _ADD_POOL)
            if index.session is not None:
                self._number(db, self.sessions, (tenant, index.session), _SESSION_ID, _ADD_SESSION)

    def _number(self, db: apsw.Connection, known: dict[N, int], name: N, find: str, add: str) -> int:
        number = known.get(name) or db.execute(find, name).get
        if number is None:
            db.execute(add, name)
            number = db.last_insert_rowid()
            self._given.append(partial(known.pop, name, None))
        known[name] = number
        return number

    def keep(self) -> None:
        """The numbers given last are committed."""
        self._given.clear()

    def forget(self) -> None:
        """Drops the numbers given last: they were never committed, and may belong to other names tomorrow."""
        for drop in self._given:
            drop()
        self._given.clear()
