"""The MySQL store: tables with one prefix in a database of MySQL or MariaDB, any number of machines.

Implementation notes:

- **A commit is one packet** of a few statements (writing.py, ADR 13), and so is a load: whatever is in them, they are one round trip.
  PyMySQL fills values in as text anyway; here it is done for the whole packet at once, in bytes.
- **MySQL says how many rows were written, not which**, and has no RETURNING. One INSERT … ON DUPLICATE KEY UPDATE locks, compares and
  writes. Its count tells whether all changes fitted, which is nearly always so. If not, the packet stops, the server is asked which did,
  and these are sent again after a rollback.
- **Names are VARBINARY**: the collations of MySQL take letters for each other and ignore trailing blanks. The connection is binary too, so
  that no character set has a say in anything.
- **Names are numbered by the server**, looked up in every commit: a number remembered here would be another's after a failover. A new
  name is added outside of the commit, and nobody waits for it.
- **Keys are locked in order**, and then the turns: the rows of the projects, sorted, with the last position in them. What still ends in a
  deadlock is tried again after a random pause; nothing was written.
- **A replica that was promoted** is another server. Each connection asks which it is before it first writes, and raises the epoch if it
  is not the one that was kept (servers.py, ADR 35); what was decided before is a conflict, and is decided anew.
- **READ COMMITTED, strict mode, lock and statement timeouts** are set for every connection, whatever the server's defaults are.
- **Nobody is told** of a commit by the server, so one thread looks for all who wait here (waiting.py).
- **Durable** is what is flushed at every commit: innodb_flush_log_at_trx_commit = 1, and sync_binlog = 1 where there is a binary log, for
  without it the log decides after a crash what has happened.
- **A connection lost** before anything was sent is StoreUnavailable; inside a commit it is OutcomeUnknown. An idle connection that
  the server has closed is noticed without a round trip, and replaced.
- **Forks**: a child must not use what it inherited. Its every call is an error, and it says no farewell on its parent's connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

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
from genlock.stores.links import Links
from genlock.stores.moves import Moves
from genlock.stores.mysql import feed, finding, loading, writing
from genlock.stores.mysql.faults import Broken, Refused, Unreachable, commit_fault_of, fault_of, stepped_down
from genlock.stores.mysql.link import Link, open_link
from genlock.stores.mysql.opening import open_schema
from genlock.stores.mysql.payloads import TablePayloads
from genlock.stores.mysql.queries import queries_for
from genlock.stores.mysql.servers import heed
from genlock.stores.mysql.settings import settings_of
from genlock.stores.mysql.waiting import Watcher
from genlock.stores.places import feed_mark
from genlock.stores.sending import Course, begin, run
from genlock.stores.talks import hold, hold_all
from genlock.typed_json import decode

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WRITERS = 4
_FAULTS = Faults((Refused, Broken, Unreachable), fault_of, commit_fault_of, stepped_down, (UnicodeEncodeError,))


class MySQLStore:
    """`genlock.store.Store` in a MySQL or MariaDB database. The tables are created if they are missing, the database is not."""

    limits: Limits

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        """The server's clock counts unless another is given. With `create` false, `StoreMissing` if there are no tables yet."""
        self._settings = settings_of(url)
        self._where = self._settings.where
        self._queries = queries_for(self._settings.prefix)
        self._clock = clock
        self._links = Links(partial(open_link, self._settings), self._settings.pool, self._where)
        self._door = Door(self._links, self._where, _FAULTS)
        self._entered = self._door.entered
        self._moves = Moves()
        self._histories = Histories()
        self._watcher = Watcher(self._entered, self._queries, self._moves)
        try:
            with self._entered() as link:
                self._open(link, create=create)
        except BaseException:
            self.close()
            raise
        self._door.look_again = self._open

    def _open(self, link: Link, *, create: bool = False) -> None:
        """Also for a replica that may have been promoted since."""
        server = open_schema(link, self._settings, create=create)
        self._most_bytes = server.most_bytes
        clocked = self._clock is None
        self.limits = Limits(
            writers=WRITERS, shared=True, durable=server.syncs, server_clock=clocked, read_only=server.standby, looks=True, sends=True
        )
        self._door.read_only = "can only be read: the server is a replica, or is set to read_only" if server.standby else ""

    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """The records found among `keys`, the clock and the epoch."""
        with self._entered() as link:
            records, epoch, now = hold(loading.load(self._queries, () if with_index else keys), link.exchange)
            if with_index:
                records = loading.load_with_index(link, self._queries, keys)
        return self._snapshot(keys, records, epoch, now)

    def _snapshot(self, keys: Sequence[Key], records: dict[Key, Stored], epoch: int, now: int) -> Snapshot:
        self._histories.decided.loaded(keys, epoch)
        return Snapshot(records, self._clock.now() if self._clock else _EPOCH + timedelta(microseconds=now), epoch)

    def look(self, keys: Sequence[Key], queries: Sequence[Query]) -> Look:
        """A load and some finds; of these the heads of pools take two trips, and all others go along with the first."""
        with self._entered() as link:
            for query in queries:
                check_query(query, None)
            talks = [loading.load(self._queries, keys), *(finding.find(self._queries, query) for query in queries)]
            loaded, *pages = hold_all(talks, link.exchange)
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
        answers: list[Committed | Conflict] = []
        try:
            with self._entered(writes=True) as link:
                check_changes(changes, self.limits)
                if not changes:
                    return []
                hit("mysql.commit.before")
                if self._admits(link, changes):
                    for portion in writing.portions(changes, self._most_bytes):
                        written = yield from writing.commit(link, self._queries, portion, self._settings.lock_timeout)
                        if written is None:
                            self._heed(link)
                            break
                        answers += written
                hit("mysql.commit.after")
        except StoreError as error:
            if answers and not isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(f"{error}; of what came before it in the same commit, some was written") from error
            raise
        finally:
            places = {change[0][:2] for change, answer in zip(changes, answers, strict=False) if type(answer) is Committed}
            if places:
                self._moves.tell([feed_mark(*place) for place in places])
        return [*answers, *[Conflict()] * (len(changes) - len(answers))]

    def _admits(self, link: Link, changes: Sequence[Change]) -> bool:
        """Was this decided in the present epoch? Asks the server for it, if nobody has by this connection."""
        began = self._histories.present
        if link.mark is None:
            self._heed(link)
        return self._histories.admits([change[0] for change in changes], began)

    def _heed(self, link: Link) -> None:
        """Asks which server this is, and in which epoch."""
        link.mark, epoch = heed(link, self._queries)
        self._histories.heard(epoch)

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field, or how many there are by its value."""
        with self._entered() as link:
            check_query(query, count_by)
            if count_by is not None:
                return finding.count(link, self._queries, query, count_by)
            epoch = self._histories.decided.last
            page = hold(finding.find(self._queries, query), link.exchange)
        self._histories.decided.found([record.key for record in page.records], epoch)
        return page

    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        with self._entered() as link:
            check_event_query(query)
            return feed.read_events(link, self._queries, query)

    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is closed."""
        self._door.check()
        self._watcher.wait(projects, after, timeout)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        tenant, project, kind, name = key
        with self._entered(writes=True) as link:
            statement = self._queries["purge"].filled(
                tenant=tenant, project=project, kind=kind, name=name, before=before_version, base=base
            )
            try:
                link.run(statement)
            except Refused:
                link.roll_back()
                raise
        hit("mysql.purge.done")

    def payloads(self) -> Payloads:
        """A table beside the records."""
        self._door.check()
        return TablePayloads(self._entered, self._queries, self._most_bytes)

    def set_epoch(self, epoch: int) -> None:
        """Only upwards."""
        with self._entered(writes=True) as link:
            if not link.run(self._queries["raise_epoch"].filled(epoch=epoch))[0].affected:
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it")
        self._histories.heard(epoch)  # no connection has to tell who knows it from himself

    def audit(self) -> Audit:
        """The places that there are, and what belongs to none of them."""
        with self._entered() as link:
            places = [(tenant.decode(), project.decode()) for tenant, project in link.rows(self._queries["all_places"])]
            faults = [what.decode() for (what,) in link.rows(self._queries["audit"])]
            return Audit(places, faults + _stray_waits(link.rows(self._queries["audit_waits"])))

    def close(self) -> None:
        """Whoever is at work finishes. In a forked child it only forgets."""
        if self._door.is_shut:
            return
        self._door.is_shut = True
        if not self._door.is_ours:
            return
        self._moves.close()
        self._watcher.close()
        self._links.close()


def _stray_waits(rows: Sequence[tuple[bytes | None, ...]]) -> list[str]:
    """Entries by which a record is found that does not wait for it."""
    faults = []
    for tenant, project, kind, name, dependency, waits in rows:
        if tenant is None or waits is None or (dependency or b"").decode() not in decode(waits, list[str]):
            owner = b"%b/%b %b %b" % (tenant or b"?", project or b"?", kind or b"", name or b"")
            faults.append(f"{owner.decode()}: is found by waits_on {(dependency or b'').decode()}, for which it does not wait")
    return faults
