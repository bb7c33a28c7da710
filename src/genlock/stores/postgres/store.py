"""The PostgreSQL store: one schema of a database, any number of machines.

Implementation notes:

- **One round trip each for load and commit**, and for a load with several finds, which libpq's pipeline carries. Load and commit are
  functions of the schema (migrations/), so their plans are kept by the server and not by a connection: it may be another one behind a
  pooler. Every find is one statement, and so of one snapshot.
- **Whole columns in binary** (wire.py), not rows, and not JSON: five times as fast for the server, and any byte can be sent.
- **psycopg connects, libpq talks** (link.py): a cursor costs 100 µs a statement, and cannot give up on a server that is silent.
- **Names are interned by the server**, in every commit: a number remembered here would be another's after a failover or restore.
- **Keys are locked in order**: names, updates, creations, turns, each sorted. So there are no deadlocks, only queues.
- **The turn is an advisory lock** of the project, taken last. The last position is looked up under it, in the index of the events: a
  counter in a row would be written by every commit, and such a row grows without end while anybody holds an old snapshot; a sequence
  leaves holes when a transaction is rolled back.
- **READ COMMITTED is needed**, and checked: a transaction's snapshot would not show what was committed before our turn. Synchronous
  commit is switched on where it is off.
- **A server that was promoted** has another timeline. Each connection asks for it before it first writes, and raises the epoch if it is
  not the one that was kept (servers.py, ADR 35); what was decided before is a conflict, and is decided anew.
- **NOTIFY is no part of a commit**; see waking.py. Behind a pooler (`pooled=on`) feeds are polled, unless `listen_url` says where to
  listen.
- **A connection lost** before anything was sent is StoreUnavailable; inside a commit it is OutcomeUnknown. An idle connection that
  the server has closed is noticed without a round trip, and replaced.
- **Forks**: a child must not use what it inherited. Its every call is an error; psycopg leaves connections of another process alone.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from genlock.errors import BadArgument
from genlock.failpoints import hit
from genlock.store import (
    Asked,
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Key,
    Limits,
    Look,
    Page,
    Payloads,
    Query,
    Sent,
    Snapshot,
    Stored,
)
from genlock.stores.checks import check_changes, check_event_query, check_query
from genlock.stores.door import Door, Faults
from genlock.stores.histories import Histories
from genlock.stores.links import Links, Unreachable
from genlock.stores.moves import Moves
from genlock.stores.places import feed_mark
from genlock.stores.postgres import feed, finding, loading, waiting, writing
from genlock.stores.postgres.faults import Broken, Refused, commit_fault_of, fault_of, stepped_down
from genlock.stores.postgres.link import Link, prepared_link
from genlock.stores.postgres.opening import open_schema
from genlock.stores.postgres.payloads import TablePayloads
from genlock.stores.postgres.queries import queries_for
from genlock.stores.postgres.servers import heed
from genlock.stores.postgres.settings import settings_of
from genlock.stores.postgres.waking import Listener, Notifier, new_name
from genlock.stores.sending import Course, begin, run
from genlock.stores.talks import held, hold, hold_all

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WRITERS = 4
_FAULTS = Faults((Refused, Broken, Unreachable), fault_of, commit_fault_of, stepped_down, (UnicodeError, struct.error))


class PostgresStore:
    """`genlock.store.Store` in a PostgreSQL database. With `create` the schema is created if it is missing; the database never is."""

    limits: Limits

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        """The server's clock counts unless another is given."""
        self._settings = settings_of(url)
        self._where = self._settings.where
        self._queries = queries_for(self._settings.schema)
        self._clock = clock
        self._links = Links(partial(prepared_link, self._settings), self._settings.pool, self._where)
        self._door = Door(self._links, self._where, _FAULTS)
        self._entered = self._door.entered
        self._moves = Moves()
        self._histories = Histories()
        self._mark: str | None = None
        """The server that was written to last, behind a pooler."""
        name = new_name()
        self._listener = Listener(self._settings, self._queries["channel"], self._moves, name)
        self._notifier = Notifier(self._links.lent, self._queries["notify"], name, self._listener)
        try:
            with self._entered() as link:
                self._open(link, create=create)
        except BaseException:
            self.close()
            raise
        self._door.look_again = self._open

    def _open(self, link: Link, *, create: bool = False) -> None:
        """Also for a standby that may have been promoted since."""
        server = open_schema(link, self._settings, create=create)
        clocked = self._clock is None
        self.limits = Limits(
            writers=WRITERS,
            shared=True,
            durable=server.syncs,
            server_clock=clocked,
            read_only=server.standby,
            looks=True,
            sends=True,
            asks=True,
            hears=True,
        )
        self._door.read_only = "is a standby, which can only be read" if server.standby else ""

    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """The records found among `keys`, the clock and the epoch."""
        return run(self._load(keys, with_index=with_index))

    def ask(self, keys: Sequence[Key]) -> Asked:
        """The same, begun if there is a connection to spare."""
        return begin(self._load, keys, self._links.ahead)

    def _load(self, keys: Sequence[Key], *, with_index: bool = False) -> Course[Snapshot]:
        with self._entered() as link:
            records, epoch, now = yield from held(loading.load(self._queries["load"], () if with_index else keys), link.called)
            if with_index:
                records = loading.load_with_index(link, self._queries["load_index"], keys)
        return self._snapshot(keys, records, epoch, now)

    def _snapshot(self, keys: Sequence[Key], records: dict[Key, Stored], epoch: int, now: int) -> Snapshot:
        self._histories.decided.loaded(keys, epoch)
        return Snapshot(records, self._clock.now() if self._clock else _EPOCH + timedelta(microseconds=now), epoch)

    def look(self, keys: Sequence[Key], queries: Sequence[Query]) -> Look:
        """A load and some finds, in one trip."""
        with self._entered() as link:
            for query in queries:
                check_query(query, None)
            talks = [loading.load(self._queries["load"], keys), *(finding.find(self._queries, query) for query in queries)]
            loaded, *pages = hold_all(talks, link.calls)
        snapshot = self._snapshot(keys, *loaded)
        for page in pages:  # what was found was read after what was loaded, or with it
            self._histories.decided.found([record.key for record in page.records], snapshot.epoch)
        return Look(snapshot, pages)

    def commit(self, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably."""
        return run(self._commit(changes))

    def send(self, changes: Sequence[Change]) -> Sent:
        """The same, begun if there is a connection to spare."""
        return begin(self._commit, changes, self._links.under_way)

    def _commit(self, changes: Sequence[Change]) -> Course[Sequence[Committed | Conflict]]:
        with self._entered(writes=True) as link:
            check_changes(changes, self.limits)
            if not changes:
                return []
            hit("postgres.commit.before")
            answers = yield from self._write(link, changes)
            hit("postgres.commit.after")
        places = {change[0][:2] for change, answer in zip(changes, answers, strict=True) if type(answer) is Committed}
        if places:
            marks = [feed_mark(*place) for place in places]
            self._moves.tell(marks, here=True)
            self._notifier.changed(marks)
        return answers

    def _write(self, link: Link, changes: Sequence[Change]) -> Course[Sequence[Committed | Conflict]]:
        began = self._histories.present
        if not link.heeded:
            self._heed(link)
        meant_for = self._mark  # before it is asked what is admitted: whoever learns of another one says so before it sets this
        answers = None
        if self._histories.admits([change[0] for change in changes], began):
            if meant_for:
                answers = yield from writing.commit(link, self._queries["commit_here"], changes, meant_for)
            else:
                answers = yield from writing.commit(link, self._queries["commit"], changes)
            if answers is None:
                self._heed(link)
        return [Conflict()] * len(changes) if answers is None else answers

    def _heed(self, link: Link) -> None:
        """Asks which server this is, and in which epoch."""
        mark, epoch = heed(link, self._queries["heed"])
        self._histories.heard(epoch)
        link.heeded = True
        if self._settings.pooled:
            self._mark = mark

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field, or how many there are by its value."""
        with self._entered() as link:
            check_query(query, count_by)
            if count_by is not None:
                return finding.count(link, self._queries, query, count_by)
            epoch = self._histories.decided.last
            page = hold(finding.find(self._queries, query), link.calls)
        self._histories.decided.found([record.key for record in page.records], epoch)
        return page

    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        since = self._moves.now()
        with self._entered() as link:
            check_event_query(query)
            page = feed.read_events(link, self._queries, query, self._where)
        if query.tail and not page.more:
            self._moves.looked(feed_mark(query.tenant, query.project), page.cursor, since)
        return page

    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is closed."""
        self._wait(projects, after, timeout, hearing=False)

    def hear(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> Sequence[tuple[str, str]]:
        """The same, but not by what is committed here; those that others have moved."""
        moved = self._wait(projects, after, timeout, hearing=True)
        return [project for project in projects if feed_mark(*project) in moved] if moved else ()

    def _wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float, *, hearing: bool) -> Collection[int]:
        self._door.check()
        return waiting.wait(self._entered, self._queries["moved"], self._moves, self._listener, projects, after, timeout, hearing)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        with self._entered(writes=True) as link:
            link.rows(self._queries["purge"], *key, before_version, base)
        hit("postgres.purge.done")

    def payloads(self) -> Payloads:
        """A table beside the records."""
        self._door.check()
        return TablePayloads(self._entered, self._queries)

    def set_epoch(self, epoch: int) -> None:
        """Only upwards."""
        with self._entered(writes=True) as link:
            if not link.rows(self._queries["raise_epoch"], epoch):
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it")
        self._histories.heard(epoch)  # no connection has to tell who knows it from himself

    def audit(self) -> Audit:
        """The places that there are, and what belongs to none of them."""
        with self._entered() as link:
            places = [(str(tenant), str(project)) for tenant, project in link.rows(self._queries["all_places"])]
            return Audit(places, [str(what) for (what,) in link.rows(self._queries["audit"])])

    def close(self) -> None:
        """Whoever is at work finishes. In a forked child it only forgets."""
        if self._door.is_shut:
            return
        if self._door.is_ours:
            self._notifier.close()
        self._door.is_shut = True
        if not self._door.is_ours:
            return
        self._moves.close()
        self._listener.close()
        self._links.close()
