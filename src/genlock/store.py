"""The port: what every store does, and all that it does.

A store keeps records and their events as opaque bytes and decides nothing. A *change* is one record, written if its
version **and** digest are still what was read, together with its events: all or nothing. A *commit* takes many
independent changes and answers for each. No change spans two records, so every store can keep the promise.

`genlock.testing.StoreContract` says in sentences what each method owes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import BinaryIO, Generic, NamedTuple, Protocol, TypeVar, cast

from msgspec import Struct

from genlock.core.index import Index as Index
from genlock.core.keys import Key as Key
from genlock.errors import GenlockError

T = TypeVar("T")
R = TypeVar("R")

MAX_DUE = 2**62
"""Later than any instant: `find(due_before=MAX_DUE, limit=1)` is the next thing that falls due."""


MOST_WAITED_ON = 512
"""So many dependencies may be asked about in one query."""


class Limits(Struct, frozen=True):
    """What one store takes, and what it is."""

    batch: int = 1024
    """Changes in one commit."""
    body_bytes: int = 256 * 1024
    """Bytes of one record body or one event body."""
    events: int = 64
    """Events in one change."""
    writers: int = 1
    """How many lanes gain anything: 1 where all writes are serialised anyway."""
    shared: bool = False
    """Can other machines open it?"""
    durable: bool = True
    """Does an acknowledged commit survive kill -9 and power loss?"""
    server_clock: bool = False
    """Is `Snapshot.now` the server's clock?"""
    read_only: bool = False
    looks: bool = False
    """Does it have `look`, which saves trips to a server?"""
    sends: bool = False
    """Does it have `send`, which saves waiting for one?"""
    asks: bool = False
    """Does it have `ask`, which saves waiting for what is loaded?"""
    hears: bool = False
    """Does it have `hear`, which tells what others have written from what was written here?"""


class NewEvent(NamedTuple):
    """One event to be written: its number in its record, its digest, its bytes."""

    version: int
    digest: bytes
    body: bytes


class Change(NamedTuple):
    """One record to be written if it is still at (`read_version`, `read_digest`); 0 and b"" mean: if it does not exist."""

    key: Key
    read_version: int
    read_digest: bytes
    version: int
    digest: bytes
    body: bytes
    index: Index  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    events: tuple[NewEvent, ...]


class Committed(NamedTuple):
    """The change is done and durable; its events have the positions up to and including `position`."""

    position: int


class Conflict(NamedTuple):
    """Someone else has changed the record meanwhile; nothing of this change was written."""


class Stored(NamedTuple):
    """A record as it is kept."""

    key: Key
    version: int
    digest: bytes
    body: bytes
    pool: str | None = None
    """Pool and order are filled in by `find`."""
    order: str | None = None
    index: Index | None = None  # type: ignore[assignment]
    """Filled in by `load(…, with_index=True)`: the index fields as they are stored, for checks."""


class Snapshot(NamedTuple):
    """What `load` found, and when."""

    records: Mapping[Key, Stored]
    now: datetime
    epoch: int


class Query(Struct, frozen=True):
    """Which records to find: always of one kind within one tenant.

    At most one of `pool`, `heads`, `due_before`, `session`, `parent`, `waits_on` is given; `state` narrows any of them.
    The order is by `order` for pool and heads (whoever has none comes first), by `due_at` for due_before, by project and id otherwise.
    Which comes first of two that are equal in `order` or `due_at` is left to the store: one goes by id, another by which was made first.
    """

    tenant: str
    project: str | None = None
    """None: all projects of the tenant. `pool`, `heads`, `due_before`, `parent` and `waits_on` need a project."""
    kind: str = "task"
    state: str | None = None
    pool: str | None = None
    heads: int = 0
    """The first so many of every pool of the project; not paged. The cost must not grow with the number of records."""
    due_before: int | None = None
    """Everything whose `due_at` is less than or equal to this."""
    session: str | None = None
    parent: str | None = None
    waits_on: tuple[str, ...] = ()
    """Whoever waits on any of these, each once; at most `MOST_WAITED_ON`. Must be exact at once, on every store: reactions rest on it."""
    after: str | None = None
    """`Page.next` of the page before."""
    limit: int = 100


class Page(NamedTuple):
    """A page of records; `next` is None on the last one. `counts` is filled in instead when counting."""

    records: Sequence[Stored] = ()
    next: str | None = None
    counts: Mapping[str, int] = {}


class Look(NamedTuple):
    """What was loaded, and a page for each query."""

    snapshot: Snapshot
    pages: Sequence[Page]


class EventQuery(Struct, frozen=True):
    """Which events to read: of one record in version order, or of a project's feed after a cursor."""

    tenant: str
    project: str
    record: Key | None = None
    after_version: int = 0
    """With `record`: events with a greater version."""
    after: str | None = None
    """Without `record`: a cursor; None is the beginning of what is kept."""
    tail: bool = False
    """Only the cursor of the feed's present end, no events."""
    back: int = 0
    """With `tail`: the cursor of so many positions before the end, for who wants the last events only."""
    cursors: bool = False
    """Without `record`: fill in `EventPage.cursors`, for readers who may stop in mid-page."""
    limit: int = 1000


class Recorded(NamedTuple):
    """One event as it is kept."""

    key: Key
    version: int
    digest: bytes
    body: bytes
    position: int


class EventPage(NamedTuple):
    """Events in order. `cursor` continues the feed (also when there are none yet); `base` is the record's base, if purged."""

    events: Sequence[Recorded]
    cursor: str
    more: bool
    base: bytes | None = None
    position: int = 0
    """Of the feed: the position that `cursor` stands behind."""
    cursors: Sequence[str] = ()
    """If asked for: the cursor behind each event."""
    voids: int = 0
    """Of the feed: how many positions on this page, up to `position`, were given to no event and never will be."""


class Audit(NamedTuple):
    """What a store says of itself: every tenant and project that has anything in it, and what belongs nowhere."""

    places: Sequence[tuple[str, str]]
    faults: Sequence[str] = ()


class Payloads(Protocol):
    """Bytes too many for a record, by a key and their digest. The key is that of a record, or one of its own beside it."""

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Durable on return. Create-only: what is there stays; putting the same again is not an error."""

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""


class Clock(Protocol):
    """Where `now` comes from when the store has no clock of its own, or when one is injected."""

    def now(self) -> datetime:
        """The present instant, aware, UTC."""


class Store(Protocol):
    """See the module. Every method may be called from any thread; errors are of `genlock.errors`, never a driver's."""

    limits: Limits

    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """The records found among `keys`, the store's clock and epoch, in one consistent read."""

    def commit(self, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably, and answers for each in order. Keys are distinct within one commit."""

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field; with `count_by` ("state", "pool", "session" or "project") how many there are by its value."""

    def read_events(self, query: EventQuery) -> EventPage:
        """Never skips an event, whatever commits meanwhile. `CursorLost` if the cursor is of another birth or epoch, or purged."""

    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds has moved past its cursor, or after `timeout` seconds, or for no reason: a hint."""

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in, in one step."""

    def payloads(self) -> Payloads:
        """Where large results are kept."""

    def set_epoch(self, epoch: int) -> None:
        """Only upwards; `BadArgument` otherwise."""

    def audit(self) -> Audit:
        """For the replay check: where to look, and what cannot be found by looking there."""

    def close(self) -> None:
        """Releases everything; calling it again is fine. Afterwards every method raises `Closed`."""


class Looking(Store, Protocol):
    """A store with a far way to its server. Whether it is one, `limits.looks` says."""

    def look(self, keys: Sequence[Key], queries: Sequence[Query]) -> Look:
        """A `load` and the `find` of each query, in one trip. They need not be of one instant."""


def look(store: Store, keys: Sequence[Key], queries: Sequence[Query]) -> Look:
    """The same of any store, in as few trips as it takes."""
    if queries and store.limits.looks:
        return cast(Looking, store).look(keys, queries)
    return Look(store.load(keys), [store.find(query) for query in queries])


class Hearing(Store, Protocol):
    """A store that is told of what others write. Whether it is one, `limits.hears` says."""

    def hear(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> Sequence[tuple[str, str]]:
        """A `wait` that need not end by what this handle commits itself. Those of the projects that others are known to have moved."""


def hear(store: Store, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> Sequence[tuple[str, str]]:
    """The same of any store: where it cannot tell who has moved what, none are known."""
    if store.limits.hears:
        return cast(Hearing, store).hear(projects, after, timeout)
    store.wait(projects, after, timeout)
    return ()


class Sent(Protocol):
    """A commit under way. Used by one thread at a time, whichever that is."""

    def wait(self) -> None:
        """Returns when there is something to be heard, or nothing will be any more. It raises nothing, and may be left out."""

    def answers(self) -> Sequence[Committed | Conflict]:
        """Whatever `commit` answers or raises. To be called once; who does not call it does not know what has become of the changes."""


class Sending(Store, Protocol):
    """A store whose server works while one does something else. Whether it is one, `limits.sends` says."""

    def send(self, changes: Sequence[Change]) -> Sent:
        """Begins a `commit`, and returns when the server has it. What goes wrong is told with the answers."""


def send(store: Store, changes: Sequence[Change]) -> Sent:
    """The same of any store: where it cannot be begun, it is done by whoever waits for it."""
    return cast(Sending, store).send(changes) if store.limits.sends else Later(store.commit, changes)


class Asked(Protocol):
    """A load under way. Used by one thread at a time."""

    def answers(self) -> Snapshot:
        """Whatever `load` answers or raises. To be called once."""


class Asking(Store, Protocol):
    """A store whose server reads while one does something else. Whether it is one, `limits.asks` says."""

    def ask(self, keys: Sequence[Key]) -> Asked:
        """Begins a `load`, and returns when the server has been asked. What goes wrong is told with the answers."""


def ask(store: Store, keys: Sequence[Key]) -> Asked:
    """The same of any store: where it cannot be begun, it is done when one wants to know."""
    return cast(Asking, store).ask(keys) if store.limits.asks else Later(store.load, keys)


class Later(Generic[T, R]):
    """A commit or a load that is done when it is waited for."""

    def __init__(self, do: Callable[[T], R], given: T) -> None:
        self._do = do
        self._given = given
        self._answers: R | None = None
        self._error: GenlockError | None = None

    def wait(self) -> None:
        """Does it, if that was not done yet."""
        if self._answers is None and self._error is None:
            try:
                self._answers = self._do(self._given)
            except GenlockError as error:
                self._error = error

    def answers(self) -> R:
        """What came of it."""
        self.wait()
        if self._error is not None:
            raise self._error
        assert self._answers is not None
        return self._answers
