"""The PostgreSQL store: one schema of a database, any number of machines.

Implementation notes:

- **One round trip each for load and commit**, and for a load with several finds, which libpq's
  pipeline carries. Load and commit are functions of the schema (migrations/), so the server keeps
  their plans rather than a connection, which may change behind a pooler. Every find is one
  statement, and so reads one snapshot.
- **Whole columns in binary** (queries.py), not rows and not JSON: five times as fast for the
  server, and any byte can be sent.
- **psycopg connects, libpq runs statements** (connection.py): a cursor costs 100 µs per statement,
  and cannot give up on a silent server.
- **The server interns names**, in every commit: a number cached here could belong to another name
  after a failover or restore.
- **Keys are locked in order**: names, updates, creations, turns, each sorted. So there are no
  deadlocks, only queues.
- **The turn is an advisory lock** of the project, taken last. The last position is looked up under
  it, in the index of the events. A counter in a row would be written by every commit, and such a
  row grows without limit while any transaction holds an old snapshot. A sequence leaves gaps after
  a rollback.
- **READ COMMITTED is needed**, and checked: a transaction's snapshot would not show what was
  committed before our turn. Synchronous commit is switched on where it is off.
- **A promoted server** has another timeline. Each connection asks for it before it first writes and
  raises the epoch if it differs from the recorded one (open.py, ADR 35). Changes decided before
  that conflict, and are decided again.
- **NOTIFY is not part of a commit** (notify.py). Behind a pooler (`pooled=on`) feeds are polled,
  unless `listen_url` names a server to listen on.
- **A connection lost** before anything was sent is StoreUnavailable; inside a commit it is
  OutcomeUnknown. An idle connection that the server has closed is detected without a round trip,
  and replaced.
- **Forks**: a child must not use inherited connections. Its every call is an error; psycopg leaves
  connections of another process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from genlock.errors import StoreCorrupt
from genlock.store import Audit, Change, Clock, Key, Payloads, Query, Stored
from genlock.stores.cursors import Row
from genlock.stores.payloads import PIECE, TablePayloads
from genlock.stores.postgres.commit import commit
from genlock.stores.postgres.connection import PostgresConnection, connect
from genlock.stores.postgres.errors import ERRORS
from genlock.stores.postgres.notify import Notifier, PostgresListener, new_name
from genlock.stores.postgres.open import PostgresSchema, server_of
from genlock.stores.postgres.queries import (
    Statement,
    byteas,
    decode_int,
    encode,
    ints,
    queries_for,
    rows_of,
    texts,
)
from genlock.stores.postgres.settings import settings_of
from genlock.stores.round_trips import Exchange, Steps
from genlock.stores.server import Answers, FeedEnd, Loaded, Project
from genlock.stores.sql import NO_META, SqlStore, key_values, with_index

PIECES_AT_ONCE = 16
_stored = partial(tuple.__new__, Stored)  # takes half the time of the class itself


class PostgresStore(SqlStore[PostgresConnection, Statement]):
    """`genlock.store.Store` in a PostgreSQL database. With `create` the schema is created if it is
    missing; the database never is."""

    name = "postgres"
    errors = ERRORS
    tells_others_apart = True
    after_pool = tuple[str | None, int]
    after_due = tuple[int, int]
    first_row = -1
    _rows_of = staticmethod(rows_of)

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        """Uses the server's clock unless another is given."""
        self._settings = settings = settings_of(url)
        self._queries = queries_for(settings.schema)
        super().__init__(partial(connect, settings), settings.pool, settings.where, clock)
        self._mark: str | None = None
        """The server of the last write, behind a pooler."""
        name, channel = new_name(), self._queries["channel"]
        self._listener: PostgresListener = PostgresListener(
            settings, channel, self._notifications, name
        )
        self._notifier = Notifier(self._pool.lent, self._queries["notify"], name, self._listener)
        self._start(create=create)

    def _open(self, connection: PostgresConnection, *, create: bool = False) -> None:
        server = PostgresSchema(self._settings).open(connection, create=create)
        read_only = "is a standby, which can only be read" if server.standby else ""
        self._opened(durable=server.syncs, read_only=read_only)

    def _load(self, keys: Sequence[Key]) -> Exchange[Loaded]:
        return load(self._queries["load"], keys)

    def _indexed(self, key: Key) -> Exchange[Stored | None]:
        answer = yield self._queries["load_index"].filled(**key_values(key))
        return next((with_index(key, row) for row in rows_of(answer)), None)

    def _write(
        self,
        connection: PostgresConnection,
        changes: Sequence[Change],
        epoch: int | None,
        answers: Answers,
    ) -> Steps[None]:
        decided = self._epochs.present if epoch is None else epoch
        self._identify_once(connection)
        # Read before the epoch is compared: the thread that detects another server raises the epoch
        # before it sets this.
        mark = self._mark
        if self._epochs.admits(decided):
            name, meant_for = ("commit_here", [mark]) if mark else ("commit", [])
            written = yield from commit(connection, self._queries[name].text, changes, *meant_for)
            if written is None:
                self._identify(connection)
            else:
                answers += written

    def _server_of(self, connection: PostgresConnection) -> tuple[str, int | None]:
        return server_of(connection, self._queries)

    def _identify(self, connection: PostgresConnection) -> None:
        super()._identify(connection)
        if self._settings.pooled:
            self._mark = connection.mark

    def _announce(self, changes: Sequence[Change], answers: Answers) -> list[int]:
        marks = super()._announce(changes, answers)
        if marks:
            self._notifier.changed(marks)
        return marks

    def _heads(self, query: Query) -> Exchange[Sequence[Row]]:
        answer = yield self._queries["find_heads"].filled(
            tenant=query.tenant,
            project=query.project,
            kind=query.kind,
            state=query.state,
            heads=query.heads,
        )
        return rows_of(answer)

    def _since_look(self, marks: dict[int, str], *, others: bool) -> dict[int, int] | None:
        # A caller that has just read these cursors need not check again whether they are still the
        # ends: the listener would have been notified.
        if not self._listener.hears:
            return None
        return self._notifications.since_look(marks, hearing=others)

    def _feed_ends(self, projects: Sequence[Project]) -> list[FeedEnd]:
        values = [texts(tenant for tenant, _ in projects), texts(name for _, name in projects)]
        with self._entered() as connection:
            result = connection.call(self._queries["feed_ends"].text, values)
        return [FeedEnd(*row) for row in rows_of(result)]

    def _purge(
        self, connection: PostgresConnection, key: Key, before_version: int, base: bytes
    ) -> None:
        purge = self._queries["purge"]
        connection.rows(purge, before=before_version, base=base, **key_values(key))

    def _payloads(self) -> Payloads:
        return PostgresPayloads(self.name, self._entered, self._queries)

    def _raise_epoch(self, connection: PostgresConnection, epoch: int) -> bool:
        return bool(connection.rows(self._queries["raise_epoch"], epoch=epoch))

    def _audit(self, connection: PostgresConnection) -> Audit:
        projects = [(tenant, name) for tenant, name in connection.rows(self._queries["all_places"])]
        return Audit(projects, [fault for (fault,) in connection.rows(self._queries["audit"])])

    def close(self) -> None:
        """Closes the store after the calls in progress. In a forked child it only drops its
        references."""
        if not self._guard.is_shut and self._guard.is_ours:
            self._notifier.close()
        super().close()


def load(statement: Statement, keys: Sequence[Key]) -> Exchange[Loaded]:
    """Loads the records, the epoch and the time in one round trip. This is half of the hot path."""
    groups: dict[tuple[str, ...], int] = {}
    group_of = [groups.setdefault(key[:3], len(groups) + 1) for key in keys]
    columns = [texts([group[field] for group in groups]) for field in range(3)]
    result = yield statement.text, [*columns, ints(group_of), texts([key[3] for key in keys])]
    value = result.get_value
    found: dict[Key, Stored] = {}
    epoch = now = None
    for row in range(result.ntuples):
        at, version = decode_int(value(row, 0) or b""), decode_int(value(row, 1) or b"")
        if at > 0:
            key = keys[at - 1]
            found[key] = _stored((key, version, value(row, 2), value(row, 3), None, None, None))
        elif at == 0:
            epoch = version
        else:
            now = version
    if epoch is None or now is None:
        raise StoreCorrupt(NO_META)
    return Loaded(found, epoch, now)


class PostgresPayloads(TablePayloads):
    """Payloads in a table."""

    def _add(self, connection: PostgresConnection, name: bytes, data: bytes) -> None:
        rows = connection.rows(self._queries["add_payload"], name=name, size=len(data))
        view, step = memoryview(data), PIECE * PIECES_AT_ONCE
        for (number,) in rows:  # no row if it exists already
            for start in range(0, len(data), step):
                pieces = [
                    bytes(view[at : at + PIECE])
                    for at in range(start, min(start + step, len(data)), PIECE)
                ]
                values = [encode(number), encode(start // PIECE), byteas(pieces)]
                connection.call(self._queries["add_pieces"].text, values)
