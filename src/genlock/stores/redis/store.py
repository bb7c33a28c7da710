"""The store on a Redis or Valkey server: any number of machines.

Implementation notes:

- **One script a project's commit** (scripts/commit.lua): it compares, writes, gives positions and publishes. Scripts run one after the
  other, so the turn is the script itself, and a reader never meets half of a commit. A commit over several projects is a script each,
  sent together: everything of one project is in one slot, so that a cluster can follow.
- **Scripts say what they may do in their first line.** So one that writes is refused whole, before it begins, by a server that is out
  of memory, a replica, or one that cannot write to its disk.
- **The index is one sorted set of texts a project** (wire.py): every query is a range of it. Scores are not used: they are doubles.
- **Lua compares text by the server's locale**; so nothing is compared there that way.
- **A look at many records ends after some thousand** and is continued by another script: while one runs, nobody else is served.
- **Durability is declared** in the URL and checked when a store is opened (opening.py).
- **A server that was promoted or restarted has another replication id.** The commit script sees it, raises the epoch and writes
  nothing; what was to be written is a conflict and is decided anew (ADR 14). So is whatever was decided in an earlier epoch
  (decided.py).
- **Nothing is repeated by the driver** (settings.py): a commit that was done and is sent again would conflict with itself.
- **Waiting for replicas** (`wait=n`): a commit that too few have is of unknown outcome, and no read of this handle is answered until they
  have it. So whoever finds the commit by reading may count on it.
- **Forks**: a child must not use what it inherited. Its every call is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from genlock.errors import BadArgument, OutcomeUnknown, StoreUnavailable
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
from genlock.stores.decided import Decided
from genlock.stores.door import Door, Faults
from genlock.stores.links import Links, Unreachable
from genlock.stores.moves import Moves
from genlock.stores.objects import payloads_for
from genlock.stores.payloads import NoPayloads
from genlock.stores.places import feed_mark
from genlock.stores.redis import feed, finding, loading, upkeep, waiting, writing
from genlock.stores.redis.faults import Broken, Refused, commit_fault_of, fault_of, stepped_down
from genlock.stores.redis.link import Link
from genlock.stores.redis.opening import open_store
from genlock.stores.redis.settings import settings_of
from genlock.stores.redis.waiting import Listener
from genlock.stores.redis.wire import Names
from genlock.stores.sending import Course, begin, run
from genlock.stores.talks import held, hold, hold_all

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WRITERS = 4
_FAULTS = Faults((Refused, Broken, Unreachable), fault_of, commit_fault_of, stepped_down, (UnicodeError, OverflowError, ValueError))


class RedisStore:
    """`genlock.store.Store` on a Redis server. All keys begin with the prefix in the URL."""

    limits: Limits

    def __init__(self, url: str, *, clock: Clock | None = None, create: bool = True) -> None:
        """The server's clock counts unless another is given. With `create` false, `StoreMissing` if nothing is there yet."""
        self._settings = settings_of(url)
        self._where = self._settings.where
        self._names = Names(self._settings.prefix)
        self._clock = clock
        self._owed: object | None = None
        self._paid: object | None = None
        self._decided = Decided()
        self._payloads = payloads_for(self._settings.payloads) or NoPayloads()
        self._links = Links(partial(Link, self._settings), self._settings.pool, self._where)
        self._door = Door(self._links, self._where, _FAULTS)
        self._moves = Moves()
        self._listener = Listener(self._settings, self._names.moves, self._moves)
        try:
            with self._entered() as link:
                self._birth = self._open(link, create=create)
        except BaseException:
            self.close()
            raise
        self._context = writing.Context(self._settings, self._names, self._birth)
        self._door.look_again = self._open

    def _open(self, link: Link, *, create: bool = False) -> bytes:
        """The store's birth. Also for a replica that may have been promoted since: of that one it was never asked what it keeps."""
        opened = open_store(link, self._settings, self._names, create=create)
        durable, clocked = self._settings.durability == "always", self._clock is None
        self.limits = Limits(
            writers=WRITERS,
            shared=True,
            durable=durable,
            server_clock=clocked,
            read_only=opened.read_only,
            looks=True,
            sends=True,
            asks=True,
        )
        self._door.read_only = "is a replica, which can only be read" if opened.read_only else ""
        return opened.birth

    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """The records found among `keys`, the clock and the epoch."""
        return run(self._load(keys, with_index=with_index))

    def ask(self, keys: Sequence[Key]) -> Asked:
        """The same, begun if there is a connection to spare."""
        return begin(self._load, keys, self._links.ahead)

    def _load(self, keys: Sequence[Key], *, with_index: bool = False) -> Course[Snapshot]:
        with self._entered() as link:
            loaded = yield from held(loading.load(self._names, self._birth, keys, self._where, with_index=with_index), link.asked)
        return self._snapshot(keys, *loaded)

    def _snapshot(self, keys: Sequence[Key], records: dict[Key, Stored], epoch: int, now: int) -> Snapshot:
        self._decided.loaded(keys, epoch)
        return Snapshot(records, self._clock.now() if self._clock else _EPOCH + timedelta(microseconds=now), epoch)

    def look(self, keys: Sequence[Key], queries: Sequence[Query]) -> Look:
        """A load and some finds, in one journey, unless one of them looks at very many records."""
        with self._entered() as link:
            for query in queries:
                check_query(query, None)
            talks = [loading.load(self._names, self._birth, keys, self._where), *(finding.find(self._names, query) for query in queries)]
            loaded, *pages = hold_all(talks, link.ask)
        snapshot = self._snapshot(keys, *loaded)
        for page in pages:  # what was found was read after what was loaded
            self._decided.found([record.key for record in page.records], snapshot.epoch)
        return Look(snapshot, pages)

    def commit(self, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, as durably as the URL says."""
        return run(self._commit(changes))

    def send(self, changes: Sequence[Change]) -> Sent:
        """The same, begun if there is a connection to spare."""
        return begin(self._commit, changes, self._links.under_way)

    def _commit(self, changes: Sequence[Change]) -> Course[Sequence[Committed | Conflict]]:
        with self._entered(writes=True) as link:
            check_changes(changes, self.limits)
            if not changes:
                return []
            hit("redis.commit.before")
            try:
                epoch = self._decided.use([change[0] for change in changes])
                answers = yield from writing.commit(link, self._context, changes, epoch)
            except (OutcomeUnknown, Broken, GeneratorExit):  # the door makes the one of the other; or nobody wants to hear the answer
                if self._settings.wait:
                    self._owed = object()
                raise
            hit("redis.commit.after")
        self._moves.tell({feed_mark(*change[0][:2]) for change in changes})
        return answers

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field, or how many there are by its value."""
        with self._entered() as link:
            check_query(query, count_by)
            if count_by is not None:
                return hold(finding.count(self._names, query, count_by), link.ask)
            epoch = self._decided.last
            page = hold(finding.find(self._names, query), link.ask)
        self._decided.found([record.key for record in page.records], epoch)
        return page

    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        with self._entered() as link:
            check_event_query(query)
            return feed.read_events(link, self._names, self._birth, query, self._where)

    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is closed."""
        self._door.check()
        waiting.wait(self._entered, self._names, self._moves, self._listener, projects, after, timeout)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        with self._entered(writes=True) as link:
            upkeep.purge(link, self._names, self._birth, key, before_version, base, self._where)
        hit("redis.purge.done")

    def payloads(self) -> Payloads:
        """Refused, each with the words that say where they may be kept instead."""
        self._door.check()
        return self._payloads

    def set_epoch(self, epoch: int) -> None:
        """Only upwards."""
        with self._entered(writes=True) as link:
            if not upkeep.raise_epoch(link, self._names, self._birth, epoch, self._where):
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it")

    def audit(self) -> Audit:
        """The places that there are, and what is wrong with them."""
        with self._entered() as link:
            return upkeep.audit(link, self._names)

    def close(self) -> None:
        """Whoever is at work finishes. In a forked child it only forgets."""
        if self._door.is_shut:
            return
        self._door.is_shut = True
        if not self._door.is_ours:
            return
        self._moves.close()
        self._listener.close()
        self._links.close()

    @contextmanager
    def _entered(self, *, writes: bool = False) -> Iterator[Link]:
        """The way in. Who owes something to replicas sees to that first."""
        with self._door.entered(writes=writes) as link:
            if self._owed is not self._paid:
                self._settle(link)
            yield link

    def _settle(self, link: Link) -> None:
        """A commit of ours may be on too few replicas: nothing is read until they have it, or what is read might be lost again.

        What is paid is what was owed when one began: another commit may break off meanwhile.
        """
        wait, seconds, owed = self._settings.wait, self._settings.wait_seconds, self._owed
        noted, there = link.exchange([("HSET", self._names.store, "waited", "1"), ("WAIT", wait, round(seconds * 1000))])
        for answer in (noted, there):
            if isinstance(answer, Refused):
                raise answer
        if there < wait:
            raise StoreUnavailable(f"{self._where}: a commit is still on {there} of {wait} replicas; nothing is read until they have it")
        self._paid = owed
