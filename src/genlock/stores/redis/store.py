"""The store on a Redis or Valkey server: any number of machines.

Implementation notes:

- **One script for each project's commit** (scripts/commit.lua): it compares, writes, gives
  positions and publishes. Scripts run one after the other, so the turn is the script itself, and a
  reader never meets half of a commit. A commit over several projects is a script each, sent
  together: everything of one project is in one slot, so that the store also works on a cluster.
- **Scripts declare in their first line what they may do.** So a server that is out of memory, is a
  replica or cannot write to its disk refuses a writing script before it begins.
- **The index is one sorted set of texts for each project** (wire.py): every query is a range of it.
  Scores are not used, because they are doubles.
- **Lua compares text by the server's locale**, so no script compares text.
- **A script that reads many records ends after some thousand**, and another script continues: while
  a script runs, the server runs no other command.
- **Durability is declared** in the URL and checked when a store is opened (open.py).
- **A server that was promoted or restarted has another replication id.** The commit script sees it,
  raises the epoch and writes nothing. The changes conflict and are decided again (ADR 14). So do
  changes that were decided in an earlier epoch.
- **The driver never retries** (settings.py): a commit that was executed and is sent again would
  conflict with itself.
- **Waiting for replicas** (`wait=n`): a commit on too few replicas has an unknown outcome, and this
  handle answers no read until enough replicas have it. So a caller that reads the commit can rely
  on it.
- **Forks**: a child must not use inherited connections. Its every call is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from genlock.errors import OutcomeUnknown, StoreUnavailable
from genlock.store import (
    Audit,
    Change,
    Clock,
    EventPage,
    EventQuery,
    Key,
    Page,
    Payloads,
    Query,
    Stored,
)
from genlock.stores.connection_pool import ConnectionBroken, Refused
from genlock.stores.objects import payloads_for
from genlock.stores.payloads import NoPayloads
from genlock.stores.redis import queries
from genlock.stores.redis.commit import Context, commit, gone
from genlock.stores.redis.connection import Argument, RedisConnection
from genlock.stores.redis.errors import ERRORS
from genlock.stores.redis.listener import RedisListener
from genlock.stores.redis.open import audit, open_store
from genlock.stores.redis.settings import settings_of
from genlock.stores.redis.wire import Names, field_of
from genlock.stores.round_trips import Exchange, Steps, complete
from genlock.stores.server import Answers, FeedEnd, Loaded, Project, ServerStore


class RedisStore(ServerStore[RedisConnection]):
    """`genlock.store.Store` on a Redis server. All keys begin with the prefix in the URL."""

    name = "redis"
    errors = ERRORS

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        """Uses the server's clock unless another is given. With `create` false, raises
        `StoreMissing` if there is no store yet."""
        self._settings = settings = settings_of(url)
        self._names = Names(settings.prefix)
        self._owed: object | None = None
        """Identifies the last commit that may be on too few replicas."""
        self._paid: object | None = None
        self._objects = payloads_for(settings.payloads) or NoPayloads()
        super().__init__(partial(RedisConnection, settings), settings.pool, settings.where, clock)
        self._listener: RedisListener = RedisListener(
            settings, self._names.moves, self._notifications
        )
        self._start(create=create)
        self._context = Context(settings, self._names, self._birth)

    def _open(self, connection: RedisConnection, *, create: bool = False) -> None:
        opened = open_store(connection, self._settings, self._names, create=create)
        self._birth = opened.birth
        read_only = "is a replica, which can only be read" if opened.read_only else ""
        self._opened(durable=self._settings.durability == "always", read_only=read_only)

    def _load(self, keys: Sequence[Key]) -> Exchange[Loaded]:
        return queries.load(self._names, self._birth, keys, self._where)

    def _load_with_index(
        self, connection: RedisConnection, keys: Sequence[Key]
    ) -> dict[Key, Stored]:
        exchange = queries.load(self._names, self._birth, keys, self._where, with_index=True)
        return complete(exchange, connection.ask).records

    def _write(
        self,
        connection: RedisConnection,
        changes: Sequence[Change],
        epoch: int | None,
        answers: Answers,
    ) -> Steps[None]:
        try:
            answers += yield from commit(connection, self._context, changes, epoch)
        except (OutcomeUnknown, ConnectionBroken, GeneratorExit):
            # It may have been done, or the caller has given up on the answer.
            if self._settings.wait:
                self._owed = object()
            raise

    def _find(self, query: Query) -> Exchange[Page]:
        return queries.find(self._names, query)

    def _count(self, query: Query, count_by: str) -> Exchange[Page]:
        return queries.count(self._names, query, count_by)

    def _read_events(self, query: EventQuery) -> Exchange[EventPage]:
        return queries.read_events(self._names, self._birth, query, self._where)

    def _feed_ends(self, projects: Sequence[Project]) -> list[FeedEnd]:
        keys = [self._names.store, *(self._names.place(*project) for project in projects)]
        with self._entered() as connection:
            (birth, epoch), *feeds = connection.run("heads_of_feeds", keys)
        return [FeedEnd(birth, int(epoch or 0), int(feed[0] or 0)) for feed in feeds]

    def _purge(
        self, connection: RedisConnection, key: Key, before_version: int, base: bytes
    ) -> None:
        keys = [self._names.store, self._names.place(*key[:2])]
        self._run(connection, "purge", keys, field_of(key.kind, key.id), before_version, base)

    def _payloads(self) -> Payloads:
        return self._objects

    def _raise_epoch(self, connection: RedisConnection, epoch: int) -> bool:
        return bool(self._run(connection, "raise", [self._names.store], epoch) == b"done")

    def _run(
        self, connection: RedisConnection, script: str, keys: Sequence[str], *values: Argument
    ) -> Any:
        """Runs a script, and passes it the identity of the store."""
        answer = connection.run(script, keys, self._birth, *values)
        if answer == b"gone":
            raise gone(self._where)
        return answer

    def _audit(self, connection: RedisConnection) -> Audit:
        return audit(connection, self._names)

    @contextmanager
    def _entered(self, *, writes: bool = False) -> Iterator[RedisConnection]:
        """Lends a connection, after waiting for replicas that still lack a commit."""
        with self._guard.entered(writes=writes) as connection:
            if self._owed is not self._paid:
                self._settle(connection)
            yield connection

    def _settle(self, connection: RedisConnection) -> None:
        """Waits for the replicas if a commit of this handle may be on too few of them. Nothing is
        read until they have it, because the commit could still be lost.

        Clears only the commit that was pending at the start: another commit may be interrupted
        meanwhile.
        """
        wait, seconds, owed = self._settings.wait, self._settings.wait_seconds, self._owed
        noted, there = connection.exchange(
            [("HSET", self._names.store, "waited", "1"), ("WAIT", wait, round(seconds * 1000))]
        )
        for answer in (noted, there):
            if isinstance(answer, Refused):
                raise answer
        if there < wait:
            raise StoreUnavailable(
                f"{self._where}: a commit is still on {there} of {wait} replicas; nothing is read "
                "until they have it"
            )
        self._paid = owed
