"""The DynamoDB store: one table, any number of machines.

Implementation notes:

- **A change is one transaction**: its record (put if version and digest are what was read), its events at their positions (put if
  nothing is there), an entry in the record's history, and who waits on whom. A commit of many changes is many transactions, several
  at a time; each answers for itself. The record is the first action, so that the first of the cancellation reasons tells a conflict
  from positions that were lost; others at the same items, or throttling, are no answer and are tried again with random pauses.
  Where there are more changes than threads, they are first tried in groups, and alone if a group is cancelled (writing.py).
- **The driver's JSON is slow**, and is replaced (wire.py).
- **Lost answers.** The driver repeats nothing by itself. A transaction whose answer was lost is asked again under the same
  `ClientRequestToken`. If that, too, leaves doubt, or if only a part of a commit was done, the commit is `OutcomeUnknown`.
  An answer of which a part was lost is an answer to the driver, and to us a lost one (wire.py).
- **Positions are given before the commit**, by one ADD a project and commit; so a feed has holes, which readers wait for or close
  (holes.py). A position that was closed is a tombstone: positions rise, but not by one.
- **A table that was restored** under its old name while we were at it is noticed by a feed that is shorter than it was (`Holes.doubt`).
- **The event is kept once**, in its feed. A record's history has an item a change that says where its events are.
- **A load of several records is of one instant**: TransactGetItems, and where that is cancelled by a writer or would be too large, batches
  until two readings agree (loading.py). Either way it costs twice the read units of a consistent read.
- **Global indexes lag** and can be read in no other way. They give keys; the records are then read from the table, so what is
  found is what is there. `waits_on` and "all of a project" are read from the table itself, and are exact at once.
- **Old waits.** To move its entries a change has to know what the record waited on before; `load` notes it, by version and digest.
  More entries than a transaction can hold are written before it, and removed by nobody: who is found is asked whether he waits.
- **Reserved words**: every name in an expression is written #name. Empty texts cannot be keys: names stand behind a sign.
- **Items hold 400 KB**, a transaction 4 MB and 100 actions: see `limits`, and `check_sizes` in writing.py.
- **The clock** is the `Date` of the answers, made finer (clock.py). **TTL** is not used: it takes days, and nothing here is garbage.
- **One region writes.** Global tables let the last writer win, which no condition survives: do not write to two replicas.
- **Forks**: a child must not use what it inherited; its every call is an error.
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
from genlock.stores.dynamodb import auditing, finding, keys, loading, purging, waiting, writing
from genlock.stores.dynamodb.calls import Calls
from genlock.stores.dynamodb.clock import ServerClock
from genlock.stores.dynamodb.driver import make_client
from genlock.stores.dynamodb.faults import ConditionFailed
from genlock.stores.dynamodb.feed import Feeds
from genlock.stores.dynamodb.holes import Holes
from genlock.stores.dynamodb.items import whole
from genlock.stores.dynamodb.settings import settings_of
from genlock.stores.dynamodb.table import Table
from genlock.stores.dynamodb.waiting import Bell
from genlock.stores.objects import payloads_for
from genlock.stores.payloads import NoPayloads

THREADS = 16
"""Transactions of one store that are under way at once."""

P = ParamSpec("P")
R = TypeVar("R")


def _entry(method: Callable[Concatenate[DynamoDBStore, P], R]) -> Callable[Concatenate[DynamoDBStore, P], R]:
    """A way into the store: only while it is open, and only in the process that opened it."""

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
        """Credentials are those of the usual AWS environment. A table costs money: it is never made in passing, whatever `create` says."""
        settings = settings_of(url)
        self._name = table = settings.table
        self._pid = os.getpid()
        self._door = threading.Condition()
        self._inside = 0
        self._closed = False
        self._stop = threading.Event()
        self._bell = Bell()
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
        self._memory = loading.Memory()
        self._holes = Holes(self._table)
        self._feeds = Feeds(self._table, self._holes)
        self._writer = writing.Writer(self._table, self._holes, self._memory)
        self.limits = Limits(batch=512, body_bytes=256 * 1024, events=64, writers=4, shared=True, server_clock=clock is None)

    def write_in_order(self) -> None:
        """From now on a commit that is cut off leaves a beginning of its changes. It takes longer: one transaction follows the other."""
        self._writer.in_order = True

    @_entry
    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """The records found among `keys`, the clock and the epoch."""
        records, epoch = loading.load(self._table, self._memory, keys, with_index=with_index)
        return Snapshot(records, self._clock.now(), epoch)

    @_entry
    def commit(self, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably."""
        check_changes(changes, self.limits)
        writing.check_sizes(changes)
        try:
            return self._writer.commit(changes)
        finally:
            self._bell.ring()

    @_entry
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field, or how many there are by its value."""
        check_query(query, count_by)
        return finding.find(self._table, query) if count_by is None else finding.count(self._table, query, count_by)

    @_entry
    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        check_event_query(query)
        return self._feeds.read_events(query)

    @_entry
    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is closed."""
        waiting.wait(self._table, self._feeds, self._bell, projects, after, timeout)

    @_entry
    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        purging.purge(self._table, self._holes, key, before_version, base)
        self._bell.ring()

    @_entry
    def payloads(self) -> Payloads:
        """Where they were said to be kept."""
        return self._payloads

    @_entry
    def set_epoch(self, epoch: int) -> None:
        """Only upwards."""
        try:
            self._table.update_once(keys.META, "SET #e = :e", {":e": whole(epoch)}, "#e < :e")
        except ConditionFailed:
            raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it") from None
        self._bell.ring()

    @_entry
    def audit(self) -> Audit:
        """The places that there are, and what belongs to none of them, for which everything is looked at."""
        return Audit(auditing.places_in(self._table), auditing.Faults(self._faults))

    @_entry
    def _faults(self) -> list[str]:
        return auditing.faults_of(self._table)

    def close(self) -> None:
        """Waits for the calls under way; who waits for a feed, or to try again, is sent away. In a forked child it only forgets."""
        with self._door:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self._pid:
            return
        self._stop.set()
        self._bell.ring(stop=True)
        with self._door:
            self._door.wait_for(lambda: not self._inside)
        self._table.close()
        self._client.close()

    def _enter(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(f"table {self._name} was opened by process {self._pid}; a store does not survive fork: open it anew")
        with self._door:
            if self._closed:
                raise Closed(f"table {self._name} is closed")
            self._inside += 1

    def _leave(self) -> None:
        with self._door:
            self._inside -= 1
            if not self._inside:
                self._door.notify_all()
