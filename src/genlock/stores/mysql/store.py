"""The MySQL store: tables with one prefix in a database of MySQL or MariaDB, any number of
machines.

Implementation notes:

- **A commit is one packet** of a few statements (commit.py, ADR 13), and so is a load. Each is one
  round trip of any size. PyMySQL fills values in as text anyway; this store fills in the whole
  packet at once, in bytes.
- **MySQL says how many rows were written, not which**, and has no RETURNING. One INSERT … ON
  DUPLICATE KEY UPDATE locks, compares and writes. Its count tells whether all changes fitted, which
  is nearly always so. If not, the packet stops, the store asks the server which ones fitted, and
  sends these again after a rollback.
- **Names are VARBINARY**: MySQL's collations treat different letters as equal and ignore trailing
  blanks. The connection is binary, too, so no character set applies.
- **The server numbers names**, and every commit looks them up: a number cached here could belong to
  another name after a failover. A new name is added outside of the commit, so that no other commit
  waits for it.
- **Keys are locked in order**, and then the turns: the rows of the projects, sorted, with the last
  position in them. A commit that still ends in a deadlock is tried again after a random pause;
  nothing was written.
- **A promoted replica** is another server. Each connection asks for its identity before the first
  write, and raises the epoch if it differs from the recorded one (open.py, ADR 35). Changes decided
  before that conflict, and are decided again.
- **READ COMMITTED, strict mode, lock and statement timeouts** are set for every connection,
  independently of the server's defaults.
- **The server sends no notifications** of commits, so one thread polls for all waiters in this
  process (watcher.py).
- **Durable** means flushed at every commit: innodb_flush_log_at_trx_commit = 1, and sync_binlog = 1
  where there is a binary log, because after a crash that log decides which commits exist.
- **A connection lost** before anything was sent is StoreUnavailable; inside a commit it is
  OutcomeUnknown. An idle connection that the server has closed is detected without a round trip,
  and replaced.
- **Forks**: a child must not use inherited connections. Its every call is an error, and it does not
  close its parent's connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from genlock.errors import StoreCorrupt
from genlock.store import Audit, Change, Clock, Key, Payloads, Query, Stored
from genlock.stores.connection_pool import Refused
from genlock.stores.mysql.commit import commit, portions
from genlock.stores.mysql.connection import Answer, MySQLConnection, Row, connect
from genlock.stores.mysql.errors import ERRORS
from genlock.stores.mysql.open import MySQLSchema, server_of
from genlock.stores.mysql.queries import Queries, Sql, Statement, queries_for, quoted
from genlock.stores.mysql.settings import settings_of
from genlock.stores.mysql.watcher import Watcher
from genlock.stores.payloads import PIECE, Enter, TablePayloads
from genlock.stores.round_trips import Exchange, Steps
from genlock.stores.server import Answers, FeedEnd, Loaded, Project
from genlock.stores.sql import NO_META, SqlStore, key_values, with_index
from genlock.typed_json import decode

PIECES_AT_ONCE = 8
"""How many pieces fit in a packet of the smallest default size, 16 MB, if every byte is escaped."""
_stored = partial(tuple.__new__, Stored)  # takes half the time of the class itself

Group = tuple[str, str, str]


class MySQLStore(SqlStore[MySQLConnection, Statement]):
    """`genlock.store.Store` in a MySQL or MariaDB database. The tables are created if they are
    missing, the database is not."""

    name = "mysql"
    errors = ERRORS
    after_pool = tuple[str | None, str]
    after_due = tuple[int, str]
    first_row = ""

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        """Uses the server's clock unless another is given. With `create` false, raises
        `StoreMissing` if there are no tables yet."""
        self._settings = settings = settings_of(url)
        self._queries = queries_for(settings.prefix)
        super().__init__(partial(connect, settings), settings.pool, settings.where, clock)
        self._listener = self._watcher = Watcher(self._entered, self._queries, self._notifications)
        self._start(create=create)

    def _open(self, connection: MySQLConnection, *, create: bool = False) -> None:
        server = MySQLSchema(self._settings).open(connection, create=create)
        self._most_bytes = server.most_bytes
        read_only = "can only be read: the server is a replica, or is set to read_only"
        self._opened(durable=server.syncs, read_only=read_only if server.standby else "")

    @staticmethod
    def _rows_of(answer: Answer) -> Sequence[Row]:
        return answer.rows

    def _load(self, keys: Sequence[Key]) -> Exchange[Loaded]:
        return load(self._queries, keys)

    def _indexed(self, key: Key) -> Exchange[Stored | None]:
        values = key_values(key)
        records: Answer = yield self._queries["load_index"].filled(**values)
        entries: Answer = yield self._queries["load_waits"].filled(**values)
        found_by = {dependency.decode() for (dependency,) in entries.rows}
        return next((with_index(key, row, found_by) for row in records.rows), None)

    def _write(
        self,
        connection: MySQLConnection,
        changes: Sequence[Change],
        epoch: int | None,
        answers: Answers,
    ) -> Steps[None]:
        decided = self._epochs.present if epoch is None else epoch
        self._identify_once(connection)
        if not self._epochs.admits(decided):
            return
        for portion in portions(changes, self._most_bytes):
            seconds = self._settings.lock_timeout
            written = yield from commit(connection, self._queries, portion, seconds)
            if written is None:
                self._identify(connection)
                return
            answers += written

    def _server_of(self, connection: MySQLConnection) -> tuple[bytes, int]:
        return server_of(connection, self._queries)

    def _heads(self, query: Query) -> Exchange[Sequence[Row]]:
        """Finds the pools first, and then the heads by one search per pool, all in one
        statement."""
        values = {"tenant": query.tenant, "project": query.project, "kind": query.kind}
        offered: Answer = yield self._queries["offered_pools"].filled(**values)
        if not offered.rows:
            return []
        find = partial(
            self._queries["find_head"].filled,
            state=query.state,
            most=query.heads,
            **values,
        )
        found: Answer = yield b"\nUNION ALL\n".join([find(pool=pool) for (pool,) in offered.rows])
        return sorted(found.rows, key=lambda row: (row[6] is not None, row[6], row[7]))

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
        with self._watcher.watched(projects):
            return super().wait(projects, after, timeout, others=others)

    def _feed_ends(self, projects: Sequence[Project]) -> list[FeedEnd]:
        ends = self._watcher.look(projects)
        return [ends[project] for project in projects]

    def _purge(
        self, connection: MySQLConnection, key: Key, before_version: int, base: bytes
    ) -> None:
        try:
            connection.rows(
                self._queries["purge"], before=before_version, base=base, **key_values(key)
            )
        except Refused:
            connection.command("ROLLBACK")
            raise

    def _payloads(self) -> Payloads:
        return MySQLPayloads(self._entered, self._queries, self._most_bytes)

    def _raise_epoch(self, connection: MySQLConnection, epoch: int) -> bool:
        (answer,) = connection.run(self._queries["raise_epoch"].filled(epoch=epoch))
        return bool(answer.affected)

    def _audit(self, connection: MySQLConnection) -> Audit:
        projects = [
            (tenant.decode(), name.decode())
            for tenant, name in connection.rows(self._queries["all_places"])
        ]
        faults = [fault.decode() for (fault,) in connection.rows(self._queries["audit"])]
        entries = connection.rows(self._queries["audit_waits"])
        return Audit(projects, faults + _stray_waits(entries))


def load(queries: Queries, keys: Sequence[Key]) -> Exchange[Loaded]:
    """Loads the records, the epoch and the time in one round trip. This is half of the hot path."""
    groups: dict[Group, dict[str, Key]] = {}
    for key in keys:
        groups.setdefault(key[:3], {})[key[3]] = key
    parts: list[bytes] = [queries["load"].filled()]
    for at, ((tenant, project, kind), names) in enumerate(groups.items()):
        parts.append(
            queries["load_shelf"].filled(
                shelf=at, tenant=tenant, project=project, kind=kind, names=tuple(names)
            )
        )
    answer: Answer = yield b"\nUNION ALL\n".join(parts)
    (_, epoch, now, *_), *rows = answer.rows or ((0, None, None),)
    if epoch is None:
        raise StoreCorrupt(NO_META)
    by_number = list(groups.values())
    found: dict[Key, Stored] = {}
    for at, name, version, digest, body in rows:
        key = by_number[at][name.decode()]
        found[key] = _stored((key, int(version), digest, body, None, None, None))
    # In the order of the request, like every store.
    return Loaded({key: found[key] for key in keys if key in found}, int(epoch), int(now))


class MySQLPayloads(TablePayloads):
    """Payloads in a table."""

    def __init__(self, enter: Enter, queries: Queries, most_bytes: int) -> None:
        super().__init__("mysql", enter, queries)
        self._at_once = max(1, min(PIECES_AT_ONCE, most_bytes // (2 * PIECE + 1024)))

    def _add(self, connection: MySQLConnection, name: bytes, data: bytes) -> None:
        add = self._queries["add_payload"].filled(name=name, size=len(data))
        (added,) = connection.run(add)
        if not added.affected:
            return  # it exists already
        step, view = PIECE * self._at_once, memoryview(data)
        for start in range(0, len(data), step):
            rows = [
                b"(%d,%d,%b)"
                % (added.number, at // PIECE + 1, quoted(bytes(view[at : at + PIECE])))
                for at in range(start, min(start + step, len(data)), PIECE)
            ]
            connection.run(self._queries["add_pieces"].filled(rows=Sql(b",".join(rows))))


def _stray_waits(rows: Sequence[tuple[bytes | None, ...]]) -> list[str]:
    """Returns the entries that list a record under a dependency that it does not wait for."""
    faults = []
    for tenant, project, kind, name, dependency, waits in rows:
        if (
            tenant is None
            or waits is None
            or (dependency or b"").decode() not in decode(waits, list[str])
        ):
            owner = b"%b/%b %b %b" % (tenant or b"?", project or b"?", kind or b"", name or b"")
            faults.append(
                f"{owner.decode()}: is found by waits_on {(dependency or b'').decode()}, for which "
                "it does not wait"
            )
    return faults
