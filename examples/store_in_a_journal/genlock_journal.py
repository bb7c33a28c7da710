"""A store in a journal: one file, a line of JSON for every commit.

Implementation notes:

- **The file is the truth**, and only grows. Every handle keeps in memory what the lines up to its
  place amount to, and reads on from there
  at the beginning of each call.
- **One lock**: flock, exclusive for writers until their line is on disk, shared for readers. So
  nobody sees what may still be lost.
- **A line without its end** is a writer who was killed. Readers leave it alone; the next writer
  cuts it off.
- **`find` looks at everything.** That is what makes it an example.
- **No payloads.** Results that need one are refused, with what to do instead.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO, NoReturn
from urllib.parse import unquote

import msgspec

from genlock.errors import (
    BadArgument,
    Closed,
    OutcomeUnknown,
    ResultNotFound,
    StoreError,
    StoreForeign,
    StoreMissing,
    StoreUnavailable,
)
from genlock.store import (
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Index,
    Key,
    Limits,
    Page,
    Query,
    RecordedEvent,
    Snapshot,
    Stored,
)
from genlock.stores.checks import check_changes, check_event_query, check_query
from genlock.stores.cursors import (
    FeedState,
    decode_cursor,
    decode_token,
    encode_cursor,
    encode_token,
    feed_mark,
    feed_page,
    record_page,
)

POLL_SECONDS = 0.01


class Born(msgspec.Struct, tag=True):
    """The first line of every journal."""

    birth: bytes


class Wrote(msgspec.Struct, tag=True):
    """A commit: the changes that fitted. Their positions follow from their place in the journal."""

    changes: list[Change]


class Purged(msgspec.Struct, tag=True):
    key: Key
    before_version: int
    base: bytes


class Raised(msgspec.Struct, tag=True):
    epoch: int


Line = Born | Wrote | Purged | Raised


class Row(msgspec.Struct):
    """A record with its events."""

    change: Change
    events: list[RecordedEvent]
    base: bytes | None = None


class Feed(msgspec.Struct):
    """A project's events, in order."""

    events: list[RecordedEvent] = []
    head: int = 0
    purged_to: int = 0
    purges: int = 0


class State:
    """What the lines amount to."""

    def __init__(self) -> None:
        self.birth = b""
        self.epoch = 0
        self.rows: dict[Key, Row] = {}
        self.feeds: dict[tuple[str, str], Feed] = {}

    def apply(self, line: Line) -> None:
        match line:
            case Born(birth):
                self.birth = birth
            case Wrote(changes):
                for change in changes:
                    self._write(change)
            case Purged(key, before_version, base):
                self._purge(key, before_version, base)
            case Raised(epoch):
                self.epoch = epoch

    def fits(self, change: Change) -> bool:
        row = self.rows.get(change.key)
        return (change.read_version, change.read_digest) == (
            (row.change.version, row.change.digest) if row else (0, b"")
        )

    def feed_state(self, tenant: str, project: str) -> FeedState:
        feed = self.feeds.get((tenant, project), Feed())
        return FeedState(
            self.birth,
            self.epoch,
            feed_mark(tenant, project),
            feed.head,
            feed.purged_to,
            feed.purges,
        )

    def _write(self, change: Change) -> None:
        row = self.rows.setdefault(change.key, Row(change, []))
        row.change = change
        feed = self.feeds.setdefault(change.key[:2], Feed())
        for event in change.events:
            feed.head += 1
            recorded = RecordedEvent(change.key, event.version, event.digest, event.body, feed.head)
            row.events.append(recorded)
            feed.events.append(recorded)

    def _purge(self, key: Key, before_version: int, base: bytes) -> None:
        row = self.rows.get(key)
        dropped = [event for event in row.events if event.version < before_version] if row else []
        if row is None or not dropped:
            return
        row.base, row.events = base, row.events[len(dropped) :]
        feed = self.feeds[key[:2]]
        gone = {event.position for event in dropped}
        feed.events = [event for event in feed.events if event.position not in gone]
        feed.purged_to, feed.purges = max(feed.purged_to, *gone), feed.purges + 1


class JournalStore:
    """`genlock.store.Store` in one file."""

    limits = Limits(batch=256, durable=True)

    def __init__(self, path: str, *, clock: Clock | None = None, create: bool = True) -> None:
        self._path, self._clock, self._pid = path, clock, os.getpid()
        self._mutex = threading.RLock()
        self._state, self._read = State(), 0
        """What has been read, and how many bytes of the file that was."""
        self._fd: int | None = None
        try:
            self._fd = os.open(
                path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666
            )
        except FileNotFoundError:
            self._missing()
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror}") from error
        with self._entered(writes=create) as state:
            if not state.birth and create:
                self._append(Born(secrets.token_bytes(8)))
            elif not state.birth:
                self._missing()

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        with self._entered() as state:
            found = {
                key: _stored(state.rows[key], with_index=with_index)
                for key in keys
                if key in state.rows
            }
            now, epoch = self._clock.now() if self._clock else datetime.now(UTC), state.epoch
        return Snapshot(found, [self.find(query) for query in queries], now, epoch)

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        with self._entered(writes=True) as state:
            check_changes(changes, self.limits)
            is_present = epoch is None or epoch == state.epoch
            fitting = [change for change in changes if is_present and state.fits(change)]
            if fitting:
                self._append(Wrote(fitting))
            done = {change.key for change in fitting}
            return [
                Committed(state.rows[change.key].events[-1].position)
                if change.key in done
                else Conflict()
                for change in changes
            ]

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        with self._entered() as state:
            check_query(query, count_by)
            found = [
                (_sort_key(query, key, row.change.index), key, row)
                for key, row in state.rows.items()
                if _matches(query, key, row)
            ]
            if count_by is not None:
                values = (
                    key.project if count_by == "project" else getattr(row.change.index, count_by)
                    for _, key, row in found
                )
                return Page(counts=Counter(value for value in values if value is not None))
            found.sort(key=lambda each: each[0])
            if query.heads:
                return Page(list(_heads(query.heads, [row for _, _, row in found])))
            if query.after is not None:
                after = decode_token(query.after, _shape(query))
                found = [each for each in found if each[0] > after]
            records = [_stored(row) for _, _, row in found[: query.limit]]
            return Page(
                records,
                encode_token(*found[query.limit - 1][0]) if len(found) > query.limit else None,
            )

    def read_events(self, query: EventQuery) -> EventPage:
        with self._entered() as state:
            check_event_query(query)
            place = state.feed_state(query.tenant, query.project)
            if query.record is None:
                events = state.feeds.get((query.tenant, query.project), Feed()).events
                return feed_page(
                    query,
                    place,
                    lambda position: (event for event in events if event.position > position),
                )
            row = state.rows.get(query.record)
            return record_page(query, place, row.events if row else (), row.base if row else None)

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        deadline = time.monotonic() + timeout
        given = [decode_cursor(cursor) for cursor in after]
        while True:
            with self._entered() as state:
                now = [
                    decode_cursor(encode_cursor(place, place.head))
                    for place in (state.feed_state(*project) for project in projects)
                ]
            left = deadline - time.monotonic()
            if left <= 0 or any(new[:3] != old[:3] for new, old in zip(now, given, strict=True)):
                return ()
            time.sleep(min(left, POLL_SECONDS))

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        with self._entered(writes=True):
            self._append(Purged(key, before_version, base))

    def payloads(self) -> NoPayloads:
        with self._entered():
            return NoPayloads()

    def set_epoch(self, epoch: int) -> None:
        with self._entered(writes=True) as state:
            if epoch <= state.epoch:
                raise BadArgument(
                    f"the epoch goes only upwards, and {epoch} is not above {state.epoch}"
                )
            self._append(Raised(epoch))

    def audit(self) -> Audit:
        with self._entered() as state:
            return Audit(sorted({key[:2] for key in state.rows}))

    def close(self) -> None:
        with self._mutex:
            if self._fd is not None and os.getpid() == self._pid:
                os.close(self._fd)
            self._fd = None

    @contextmanager
    def _entered(self, *, writes: bool = False) -> Iterator[State]:
        """The present state, under the lock. Whoever writes finds the file without a torn line at
        its end."""
        with self._mutex:
            if self._fd is None:
                raise Closed(f"{self._path} is closed")
            if os.getpid() != self._pid:
                raise StoreError(
                    f"{self._path} was opened by process {self._pid}; a store does not survive "
                    "fork: open it anew"
                )
            fcntl.flock(self._fd, fcntl.LOCK_EX if writes else fcntl.LOCK_SH)
            try:
                self._catch_up()
                if writes:
                    os.ftruncate(self._fd, self._read)
                yield self._state
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _catch_up(self) -> None:
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        while self._read < size:
            data = os.pread(self._fd, size - self._read, self._read)
            whole, newline, _ = data.rpartition(b"\n")
            if not newline:
                return
            for line in whole.split(b"\n"):
                self._state.apply(self._decoded(line))
            self._read += len(whole) + 1

    def _decoded(self, line: bytes) -> Line:
        try:
            decoded: Line = msgspec.json.decode(line, type=Line)
        except msgspec.DecodeError as error:
            raise StoreForeign(f"{self._path} is no journal of Genlock: {error}") from error
        return decoded

    def _append(self, line: Line) -> None:
        """On disk when it returns."""
        assert self._fd is not None
        data = msgspec.json.encode(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            raise OutcomeUnknown(
                f"{self._path}: {error.strerror}; what was written may be there or not"
            ) from error
        self._catch_up()

    def _missing(self) -> NoReturn:
        self.close()
        raise StoreMissing(
            f"there is no store at {self._path}; to make one, type: genlock db create URL"
        )


class NoPayloads:
    """There are none, and there will be none."""

    def put(self, key: Key, digest: str, data: bytes) -> None:
        raise StoreError(
            "a journal keeps no payloads: put the result somewhere else, and submit a reference to "
            "it"
        )

    def open(self, key: Key, digest: str) -> BinaryIO:
        raise ResultNotFound(f"a journal keeps no payloads, and so none of {'/'.join(key)}")

    def drop(self, key: Key, digest: str) -> None:
        """Absent is fine."""

    def names(self) -> tuple[str, ...]:
        return ()


def open_journal(url: str, *, clock: Clock | None = None, create: bool = True) -> JournalStore:
    """What the entry point names."""
    return JournalStore(unquote(url.removeprefix("journal://")), clock=clock, create=create)


def _stored(row: Row, *, with_index: bool = False) -> Stored:
    change, index = row.change, row.change.index
    found = Stored(change.key, change.version, change.digest, change.body)
    return (
        found._replace(index=index)
        if with_index
        else found._replace(pool=index.pool, order=index.order)
    )


def _matches(query: Query, key: Key, row: Row) -> bool:
    index = row.change.index
    return (
        (key.tenant, key.kind) == (query.tenant, query.kind)
        and query.project in (None, key.project)
        and query.state in (None, index.state)
        and query.pool in (None, index.pool)
        and query.session in (None, index.session)
        and query.parent in (None, index.parent)
        and (not query.heads or index.pool is not None)
        and (
            query.due_before is None
            or (index.due_at is not None and index.due_at <= query.due_before)
        )
        and (not query.waits_on or not set(query.waits_on).isdisjoint(index.waits_on))
    )


def _sort_key(query: Query, key: Key, index: Index) -> tuple[Any, ...]:
    if query.pool is not None or query.heads:
        return (index.order is not None, index.order or "", key.id)
    return (index.due_at, key.id) if query.due_before is not None else (key.project, key.id)


def _shape(query: Query) -> type[tuple[Any, ...]]:
    if query.pool is not None:
        return tuple[bool, str, str]
    return tuple[int, str] if query.due_before is not None else tuple[str, str]


def _heads(most: int, rows: list[Row]) -> Iterator[Stored]:
    taken: Counter[str | None] = Counter()
    for row in rows:
        taken[row.change.index.pool] += 1
        if taken[row.change.index.pool] <= most:
            yield _stored(row)
