"""The base of the stores on a server: PostgreSQL, MySQL and Redis.

`ServerStore` has everything that does not depend on the server's language. A store adds how it
opens, loads, writes, finds and reads events.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from genlock.errors import BadArgument, OutcomeUnknown, StoreError
from genlock.failpoints import hit
from genlock.store import (
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Key,
    Limits,
    Page,
    Payloads,
    PendingCommit,
    PendingLoad,
    Query,
    Snapshot,
    Stored,
)
from genlock.stores.checks import check_changes, check_event_query, check_query
from genlock.stores.connection_pool import ConnectionPool, PooledConnection
from genlock.stores.cursors import decode_cursor, feed_mark
from genlock.stores.epoch_guard import EpochGuard
from genlock.stores.notifications import Notifications
from genlock.stores.round_trips import (
    Exchange,
    Steps,
    complete,
    complete_all,
    complete_in_steps,
    run,
    start,
)
from genlock.stores.store_guard import ErrorMapping, StoreGuard

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
WRITERS = 4

Answers = list[Committed | Conflict]
Project = tuple[str, str]


class ServerConnection(PooledConnection, Protocol):
    """A connection of such a store."""

    def ask(self, requests: Sequence[Any]) -> Sequence[Any]:
        """Sends several requests that only read in one round trip. Returns their answers."""

    def asked(self, requests: Sequence[Any]) -> Steps[Sequence[Any]]:
        """The same in steps."""


C = TypeVar("C", bound=ServerConnection)


class Loaded(NamedTuple):
    """The server's answer to a load: a snapshot at one instant."""

    records: dict[Key, Stored]
    epoch: int
    microseconds: int
    """The server's time since 1970."""


class FeedEnd(NamedTuple):
    """The end of a feed."""

    birth: bytes
    epoch: int
    position: int


class FeedListener(Protocol):
    """Receives notifications of commits by other processes while there are waiters."""

    @property
    def look_seconds(self) -> float:
        """The interval at which a waiter polls the feed itself."""

    def want(self) -> None:
        """Keeps the listener running for a waiter."""

    def close(self) -> None:
        """Ends the listener, after the notifications are closed."""


class ServerStore(ABC, Generic[C]):
    """The parts of `genlock.store.Store` that do not depend on the server's language."""

    limits: Limits
    name: ClassVar[str]
    """The prefix of its failpoints."""
    errors: ClassVar[ErrorMapping]
    tells_others_apart: ClassVar[bool] = False
    """Does the listener distinguish the commits of other processes?"""

    _listener: FeedListener

    def __init__(
        self, connect: Callable[[], C], connections: int, where: str, clock: Clock | None
    ) -> None:
        """Uses the server's clock unless another is given. A subclass calls `_start` when it is
        ready to open."""
        self._where = where
        self._clock = clock
        self._pool = ConnectionPool(connect, connections, where)
        self._guard = StoreGuard(self._pool, where, self.errors)
        self._notifications = Notifications()
        self._epochs = EpochGuard()

    def _start(self, *, create: bool) -> None:
        try:
            with self._entered() as connection:
                self._open(connection, create=create)
        except BaseException:
            self.close()
            raise
        self._guard.look_again = self._open

    @abstractmethod
    def _open(self, connection: C, *, create: bool = False) -> None:
        """Checks the server and calls `_opened`. Called again for a replica that may have been
        promoted."""

    def _opened(self, *, durable: bool, read_only: str) -> None:
        self.limits = Limits(
            writers=WRITERS,
            shared=True,
            durable=durable,
            server_clock=self._clock is None,
            read_only=bool(read_only),
            starts=True,
        )
        self._guard.read_only = read_only

    def _entered(self, *, writes: bool = False) -> AbstractContextManager[C]:
        return self._guard.entered(writes=writes)

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Reads the records, the clock and the epoch, and a page for each query, in as few round
        trips as the queries allow."""
        if not queries and not with_index:
            return run(self._load_in_steps(keys))
        with self._entered() as connection:
            for query in queries:
                check_query(query, None)
            exchanges = [self._load(() if with_index else keys), *map(self._find, queries)]
            loaded, *pages = complete_all(exchanges, connection.ask)
            if with_index:
                loaded = loaded._replace(records=self._load_with_index(connection, keys))
        return self._snapshot(loaded, pages)

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        """Starts a load of records if there is a connection to spare."""
        return start(self._load_in_steps, keys, self._pool.started_loads)

    def _load_in_steps(self, keys: Sequence[Key]) -> Steps[Snapshot]:
        with self._entered() as connection:
            loaded = yield from complete_in_steps(self._load(keys), connection.asked)
        return self._snapshot(loaded)

    def _snapshot(self, loaded: Loaded, pages: Sequence[Page] = ()) -> Snapshot:
        self._epochs.heard(loaded.epoch)
        now = (
            _1970 + timedelta(microseconds=loaded.microseconds)
            if self._clock is None
            else self._clock.now()
        )
        return Snapshot(loaded.records, pages, now, loaded.epoch)

    @abstractmethod
    def _load(self, keys: Sequence[Key]) -> Exchange[Loaded]:
        """Reads the records, the epoch and the server's time."""

    @abstractmethod
    def _load_with_index(self, connection: C, keys: Sequence[Key]) -> dict[Key, Stored]:
        """Reads the records with their index fields, for checks. An error names the damaged
        record."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably."""
        return run(self._commit(changes, epoch))

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        """Starts a commit if there is a connection to spare."""
        return start(partial(self._commit, epoch=epoch), changes, self._pool.started_commits)

    def _commit(
        self, changes: Sequence[Change], epoch: int | None
    ) -> Steps[Sequence[Committed | Conflict]]:
        answers: Answers = []
        try:
            with self._entered(writes=True) as connection:
                check_changes(changes, self.limits)
                if not changes:
                    return []
                hit(f"{self.name}.commit.before")
                yield from self._write(connection, changes, epoch, answers)
                hit(f"{self.name}.commit.after")
        except StoreError as error:
            if answers and not isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(
                    f"{error}; of what came before it in the same commit, some was written"
                ) from error
            raise
        finally:
            self._announce(changes, answers)
        return [*answers, *[Conflict()] * (len(changes) - len(answers))]

    @abstractmethod
    def _write(
        self, connection: C, changes: Sequence[Change], epoch: int | None, answers: Answers
    ) -> Steps[None]:
        """Writes each change that still fits and adds its answer. A change without an answer is a
        conflict."""

    def _announce(self, changes: Sequence[Change], answers: Answers) -> list[int]:
        """Wakes the waiters in this process for what was committed. Returns the feeds that
        moved."""
        projects = {
            change[0][:2]
            for change, answer in zip(changes, answers, strict=False)
            if type(answer) is Committed
        }
        marks = [feed_mark(*project) for project in projects]
        if marks:
            self._notifications.tell(marks, here=True)
        return marks

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Finds records by an index field, or counts them by its value."""
        with self._entered() as connection:
            check_query(query, count_by)
            exchange = self._find(query) if count_by is None else self._count(query, count_by)
            return complete(exchange, connection.ask)

    @abstractmethod
    def _find(self, query: Query) -> Exchange[Page]:
        """Finds one page of records."""

    @abstractmethod
    def _count(self, query: Query, count_by: str) -> Exchange[Page]:
        """Counts the records of the whole query by the value of a field."""

    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events of a record, or of a project after a cursor."""
        since = self._notifications.now()
        with self._entered() as connection:
            check_event_query(query)
            page = complete(self._read_events(query), connection.ask)
        if query.tail and not page.more:
            mark = feed_mark(query.tenant, query.project)
            self._notifications.looked(mark, page.cursor, since)
        return page

    @abstractmethod
    def _read_events(self, query: EventQuery) -> Exchange[EventPage]:
        """Reads one page, at one instant."""

    def wait(
        self,
        projects: Sequence[Project],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[Project]:
        """Returns when one of the feeds no longer ends at its cursor, after `timeout` seconds, or
        when the store is closed."""
        self._guard.check()
        deadline = time.monotonic() + timeout
        told, others = self._notifications, others and self.tells_others_apart
        cursors = [decode_cursor(cursor) for cursor in after]
        ends = [FeedEnd(*cursor[:3]) for cursor in cursors]
        marks = {cursor.feed: text for cursor, text in zip(cursors, after, strict=True)}
        since = self._since_look(marks, others=others)
        while not told.closed:
            if since is None:
                # Taken before the read, so that a move in between counts as later.
                since = dict.fromkeys(marks, told.now())
                if self._feed_ends(projects) != ends:
                    break
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._listener.want()
            sleep = told.hear if others else told.wait
            moved = sleep(since, min(left, self._listener.look_seconds))
            since = None
            if moved and others:
                return [project for project in projects if feed_mark(*project) in moved]
            if moved:
                break
        return ()

    def _since_look(self, marks: dict[int, str], *, others: bool) -> dict[int, int] | None:
        """Returns since when each feed is known to end at its cursor; None if that is not known."""
        return None

    @abstractmethod
    def _feed_ends(self, projects: Sequence[Project]) -> list[FeedEnd]:
        """Reads where these feeds end now."""

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        with self._entered(writes=True) as connection:
            self._purge(connection, key, before_version, base)
        hit(f"{self.name}.purge.done")

    @abstractmethod
    def _purge(self, connection: C, key: Key, before_version: int, base: bytes) -> None: ...

    def payloads(self) -> Payloads:
        """The place of large results."""
        self._guard.check()
        return self._payloads()

    @abstractmethod
    def _payloads(self) -> Payloads: ...

    def set_epoch(self, epoch: int) -> None:
        """Raises the epoch. Never lowers it."""
        with self._entered(writes=True) as connection:
            if not self._raise_epoch(connection, epoch):
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it")
        self._epochs.heard(epoch)

    @abstractmethod
    def _raise_epoch(self, connection: C, epoch: int) -> bool:
        """Returns False if the given epoch is not higher than the present one."""

    def audit(self) -> Audit:
        """Returns all projects, and the data that belongs to none of them or is inconsistent."""
        with self._entered() as connection:
            return self._audit(connection)

    @abstractmethod
    def _audit(self, connection: C) -> Audit: ...

    def close(self) -> None:
        """Closes the store after the calls in progress. In a forked child it only drops its
        references."""
        if self._guard.is_shut:
            return
        self._guard.is_shut = True
        if not self._guard.is_ours:
            return
        self._notifications.close()
        self._listener.close()
        self._pool.close()
