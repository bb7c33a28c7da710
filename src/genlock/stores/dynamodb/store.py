"""The DynamoDB store: one table, any number of machines.

Implementation notes:

- **A change is one transaction**: its record (put if version and digest are as read), its events at
  their positions (put if nothing is there), an entry in the record's history, and its waits. A
  commit of many changes is many transactions, several at a time, each with its own answer. The
  record is the first action: the first cancellation reason distinguishes a conflict from lost
  positions. Contention and throttling are no answers, so they are retried. If there are more
  changes than threads, they are first tried in groups, and one by one if a group is cancelled
  (commit.py).
- **The driver's JSON is slow**, and is replaced (connection.py).
- **Lost answers.** The driver does not retry. If the answer of a transaction was lost, it is sent
  again under the same `ClientRequestToken`. If the outcome is still unknown, or only a part of a
  commit was done, the commit is `OutcomeUnknown`. The driver takes half an answer for a whole one;
  this store treats it as lost (connection.py).
- **Positions are taken before the commit**, by one ADD for each project and commit. So a feed has
  gaps, which readers wait for or close (position_gaps.py). A closed position is a tombstone:
  positions rise, but not by one.
- **A restored table** under the old name is detected by a feed that has become shorter
  (`PositionGaps.forget_if_older`).
- **Each event is kept once**, in its feed. A record's history has an item for each change that says
  where its events are.
- **A load of several records is a snapshot of one instant**: TransactGetItems. If a writer cancels
  that, or it would be too large, batches are read until two readings agree (reads.py). Either way
  it costs twice the read units of a consistent read.
- **Global indexes lag**, and no read of them is consistent. They give keys, and the records are
  then read from the table, so that every record found is current. `waits_on` and "all of a project"
  are read from the table itself, and are exact at once.
- **Old waits.** To move its entries a change has to know the record's waits before; `load` notes
  them, by version and digest. Entries beyond the size of a transaction are written before it, and
  never removed: a reader that finds a record by such an entry checks whether it waits.
- **Reserved words**: every name in an expression is written #name. Empty texts cannot be keys, so
  names have a prefix.
- **Items hold 400 KB**, a transaction 4 MB and 100 actions: see `limits`, and `check_sizes` in
  commit.py.
- **The clock** is the `Date` of the answers, with its precision increased (connection.py). **TTL**
  is not used: it takes days, and there is no garbage.
- **One region writes.** In global tables the last writer wins, which defeats every condition: do
  not write to two replicas.
- **Forks**: a child must not use inherited connections; its every call is an error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from genlock.errors import BadArgument, Closed, OutcomeUnknown, StoreError
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
    Query,
    Snapshot,
)
from genlock.stores.checks import check_changes, check_event_query, check_query
from genlock.stores.dynamodb import commit as writing
from genlock.stores.dynamodb import feed, keys, maintenance, reads
from genlock.stores.dynamodb.calls import Calls, ConditionFailed
from genlock.stores.dynamodb.connection import ServerClock, make_client, settings_of
from genlock.stores.dynamodb.feed import Feeds, Wakeup
from genlock.stores.dynamodb.keys import whole
from genlock.stores.dynamodb.position_gaps import PositionGaps
from genlock.stores.dynamodb.table import Table
from genlock.stores.epoch_guard import EpochGuard
from genlock.stores.objects import payloads_for
from genlock.stores.payloads import NoPayloads

THREADS = 16
"""The most concurrent transactions of one store."""

P = ParamSpec("P")
R = TypeVar("R")


def _entry(
    method: Callable[Concatenate[DynamoDBStore, P], R],
) -> Callable[Concatenate[DynamoDBStore, P], R]:
    """Wraps a call of the store: it works only while the store is open, and only in the process
    that opened it."""

    @wraps(method)
    def enter(self: DynamoDBStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._enter()
        try:
            return method(self, *args, **kwargs)
        except StoreError as error:
            if self._closed and not isinstance(error, OutcomeUnknown):
                raise Closed(f"table {self._name} was closed during this call") from error
            raise
        finally:
            self._leave()

    return enter


class DynamoDBStore:
    """`genlock.store.Store` in a table, which must be there: see `create_table`."""

    limits: Limits

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = False) -> None:
        """Takes credentials from the usual AWS environment. Never creates the table, even with
        `create`, because a table costs money."""
        settings = settings_of(url)
        self._name = table = settings.table
        self._pid = os.getpid()
        self._guard = threading.Condition()
        self._inside = 0
        self._closed = False
        self._stop = threading.Event()
        self._wakeup = Wakeup()
        self._payloads = payloads_for(settings.payloads) or NoPayloads()
        self._client = make_client(settings, connections=2 * THREADS)
        server_clock = ServerClock()
        self._clock: Clock = clock or server_clock
        self._table = Table(Calls(self._client, table, server_clock, self._stop), THREADS)
        try:
            self._table.check()
        except BaseException:
            self._client.close()
            raise
        self._memory = reads.Memory()
        self._epochs = EpochGuard()
        self._gaps = PositionGaps(self._table)
        self._feeds = Feeds(self._table, self._gaps)
        self._writer = writing.Writer(self._table, self._gaps, self._memory)
        self.limits = Limits(
            batch=512,
            body_bytes=256 * 1024,
            events=64,
            writers=4,
            shared=True,
            server_clock=clock is None,
        )

    def write_in_order(self) -> None:
        """From now on an interrupted commit leaves a prefix of its changes. Commits take longer,
        because their transactions run one after the other."""
        self._writer.in_order = True

    @_entry
    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Returns the records among `keys`, the clock and the epoch; then one page for each
        query."""
        records, epoch = reads.load(self._table, self._memory, keys, with_index=with_index)
        self._epochs.heard(epoch)
        now = self._clock.now()
        return Snapshot(records, [self.find(query) for query in queries], now, epoch)

    @_entry
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably."""
        check_changes(changes, self.limits)
        writing.check_sizes(changes)
        if not self._epochs.admits(epoch):
            return [Conflict()] * len(changes)
        try:
            return self._writer.commit(changes)
        finally:
            self._wakeup.wake()

    @_entry
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Finds records by an index field, or counts them by its value."""
        check_query(query, count_by)
        return (
            reads.find(self._table, query)
            if count_by is None
            else reads.count(self._table, query, count_by)
        )

    @_entry
    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events of a record, or of a project after a cursor."""
        check_event_query(query)
        return self._feeds.read_events(query)

    @_entry
    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is
        closed."""
        feed.wait(self._table, self._feeds, self._wakeup, projects, after, timeout)
        return ()

    @_entry
    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        maintenance.purge(self._table, self._gaps, key, before_version, base)
        self._wakeup.wake()

    @_entry
    def payloads(self) -> Payloads:
        """The payload store of the URL."""
        return self._payloads

    @_entry
    def set_epoch(self, epoch: int) -> None:
        """Raises the epoch. Never lowers it."""
        try:
            self._table.update_once(keys.META, "SET #e = :e", {":e": whole(epoch)}, "#e < :e")
        except ConditionFailed:
            raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it") from None
        self._epochs.heard(epoch)
        self._wakeup.wake()

    @_entry
    def audit(self) -> Audit:
        """Returns all tenants and projects, and the items that belong to none of them. Finding the
        latter takes a scan of the table."""
        return Audit(maintenance.places_in(self._table), maintenance.Faults(self._faults))

    @_entry
    def _faults(self) -> list[str]:
        return maintenance.faults_of(self._table)

    def close(self) -> None:
        """Waits for the current calls, and ends waits and retries. In a forked child it only drops
        its references."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._pid:
            return
        self._stop.set()
        self._wakeup.wake(stop=True)
        with self._guard:
            self._guard.wait_for(lambda: not self._inside)
        self._table.close()
        self._client.close()

    def _enter(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"table {self._name} was opened by process {self._pid}; a store does not survive "
                "fork: open it again"
            )
        with self._guard:
            if self._closed:
                raise Closed(f"table {self._name} is closed")
            self._inside += 1

    def _leave(self) -> None:
        with self._guard:
            self._inside -= 1
            if not self._inside:
                self._guard.notify_all()
