"""The port: what every store does, and all that it does.

A store keeps records and their events as opaque bytes and decides nothing. A *change* is one
record, written if its version **and** digest are still what was read, together with its events: all
or nothing. A *commit* takes many independent changes and answers for each. No change spans two
records, so every store can keep the promise.

`genlock.testing.StoreContract` says in sentences what each method owes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import BinaryIO, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from genlock.core.index import NEVER_DUE
from genlock.core.index import Index as Index
from genlock.core.keys import Key as Key
from genlock.core.observation import Observation as Observation
from genlock.core.policy import Policy
from genlock.errors import GenlockError

T = TypeVar("T")
R = TypeVar("R")

MAX_DUE = NEVER_DUE
"""Deferred than any instant: `find(due_before=MAX_DUE, limit=1)` is the next thing that falls
due."""


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
    observes: bool = False
    """Do other tools edit its files? Then it fills in `Snapshot.observed`, and has `scan`."""
    policy: Policy = Policy()
    """What a new project begins with."""
    counts: bool = False
    """Do other tools count on its counters? Then it has `take_numbers`."""
    starts: bool = False
    """Does it have `start_commit` and `start_load`? Its server then works while the engine does
    something else."""


class NewEvent(NamedTuple):
    """One event to be written: its number in its record, its digest, its bytes."""

    version: int
    digest: bytes
    body: bytes


class Change(NamedTuple):
    """One record to be written if it is still at (`read_version`, `read_digest`); 0 and b"" mean:
    if it does not exist."""

    key: Key
    read_version: int
    read_digest: bytes
    version: int
    digest: bytes
    body: bytes
    index: Index  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    events: tuple[NewEvent, ...]
    seen: object = None
    """`Observed.seen`, if this was decided on an observation. None: on files as the store last knew
    them. `commit` looks at them again, and answers `Conflict` if they are others."""


class Committed(NamedTuple):
    """The change is done and durable; its events have the positions up to and including
    `position`."""

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


class Query(Struct, frozen=True):
    """Which records to find: always of one kind within one tenant.

    At most one of `pool`, `heads`, `due_before`, `session`, `parent`, `waits_on` is given; `state`
    narrows any of them. The order is by `order` for pool and heads (whoever has none comes first),
    by `due_at` for due_before, by project and id otherwise. Which comes first of two that are equal
    in `order` or `due_at` is left to the store: one goes by id, another by which was made first.
    """

    tenant: str
    project: str | None = None
    """None: all projects of the tenant. `pool`, `heads`, `due_before`, `parent` and `waits_on` need
    a project."""
    kind: str = "task"
    state: str | None = None
    pool: str | None = None
    heads: int = 0
    """The first so many of every pool of the project; not paged. The cost must not grow with the
    number of records, of this kind or another: see `KIND_POOL`."""
    due_before: int | None = None
    """Everything whose `due_at` is less than or equal to this."""
    session: str | None = None
    parent: str | None = None
    waits_on: tuple[str, ...] = ()
    """Whoever waits on any of these, each once; at most `MOST_WAITED_ON`. Must be exact at once, on
    every store: reactions rest on it."""
    after: str | None = None
    """`Page.next` of the page before."""
    limit: int = 100


class Page(NamedTuple):
    """A page of records; `next` is None on the last one. `counts` is filled in instead when
    counting."""

    records: Sequence[Stored] = ()
    next: str | None = None
    counts: Mapping[str, int] = {}


class Observed(NamedTuple):
    """A record whose files others have edited, or have made."""

    key: Key
    what: Observation
    seen: object
    """The token for the change that is decided on this."""


class Snapshot(NamedTuple):
    """What `load` found, and when."""

    records: Mapping[Key, Stored]
    """One instant of the store."""
    pages: Sequence[Page]
    """One for each query, in their order. They may be of a later instant than the records."""
    now: datetime
    epoch: int
    observed: Sequence[Observed] = ()
    """Which of the keys others have edited outside of Genlock, where a store can notice that. None
    of it is in the records yet."""


class EventQuery(Struct, frozen=True):
    """Which events to read: of one record in version order, or of a project's feed after a
    cursor."""

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
    """With `tail`: the cursor of so many positions before the end, for who wants the last events
    only."""
    cursors: bool = False
    """Without `record`: fill in `EventPage.cursors`, for readers who may stop in mid-page."""
    limit: int = 1000


class RecordedEvent(NamedTuple):
    """One event as it is kept."""

    key: Key
    version: int
    digest: bytes
    body: bytes
    position: int


class EventPage(NamedTuple):
    """Events in order. `cursor` continues the feed (also when there are none yet); `base` is the
    record's base, if purged."""

    events: Sequence[RecordedEvent]
    cursor: str
    more: bool
    base: bytes | None = None
    position: int = 0
    """Of the feed: the position that `cursor` stands behind."""
    cursors: Sequence[str] = ()
    """If asked for: the cursor behind each event."""
    voids: int = 0
    """Of the feed: how many positions on this page, up to `position`, were given to no event and
    never will be."""


class Audit(NamedTuple):
    """What a store says of itself: every tenant and project that has anything in it, and what
    belongs nowhere."""

    places: Sequence[tuple[str, str]]
    faults: Sequence[str] = ()


class Payloads(Protocol):
    """Bytes too many for a record, by a key and their digest. The key is that of a record, or one
    of its own beside it."""

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Durable on return. Create-only: what is there stays; putting the same again is not an
        error."""

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""

    def names(self) -> Iterable[str]:
        """`payload_name` of everything there is, in any order: for `genlock doctor`, which looks
        for what nothing refers to."""


def payload_name(key: Key, digest: str) -> str:
    """What a payload is called where names of one length are all there is. No two lists of names
    read the same."""
    from hashlib import sha256  # late: most commands name no payload, and need not wait for it

    return sha256(msgspec.json.encode([*key, digest])).hexdigest()


class Clock(Protocol):
    """Where `now` comes from when the store has no clock of its own, or when one is injected."""

    def now(self) -> datetime:
        """The present instant, aware, UTC."""


class Store(Protocol):
    """See the module. Every method may be called from any thread; errors are of `genlock.errors`,
    never a driver's."""

    limits: Limits

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Reads the records among `keys`, the store's clock and its epoch at one instant, and the
        page of each query then or later. A store on a server does this in as few trips as it
        can."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably, and answers for each in order. Keys are
        distinct within one commit.

        `epoch` is that of the snapshot on which the changes were decided. If the store is known to
        have begun another since, nothing is written and every answer is a conflict: a record may be
        the same in two histories, while a generation has been granted in the one that was lost. A
        store on a server asks for the epoch when the server may be another one; otherwise it goes
        by what it has read. None is for changes that rest on nothing that was read."""

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field; with `count_by` ("state", "pool", "session" or "project") how
        many there are by its value."""

    def read_events(self, query: EventQuery) -> EventPage:
        """Never skips an event, whatever commits meanwhile. `CursorLost` if the cursor is of
        another birth or epoch, or purged."""

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        """Returns when one of the feeds has moved past its cursor, after `timeout` seconds, or for
        no reason: a hint. With `others`, a commit by this handle need not end the wait.

        It answers with those of the projects that other handles are known to have moved; with none
        of them where the store cannot tell."""

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in, in one step."""

    def payloads(self) -> Payloads:
        """Where large results are kept."""

    def set_epoch(self, epoch: int) -> None:
        """Only upwards; `BadArgument` otherwise."""

    def audit(self) -> Audit:
        """For the replay check: where to look, and what cannot be found by looking there."""

    def close(self) -> None:
        """Releases everything; calling it again is fine. Afterwards every method raises
        `Closed`."""


class PendingCommit(Protocol):
    """A commit that has been started. One thread at a time uses it, whichever that is."""

    def wait(self) -> None:
        """Returns when the answers can be read, or when there will be none. It raises nothing, and
        may be left out."""

    def answers(self) -> Sequence[Committed | Conflict]:
        """Answers or raises as `commit` does. It is called once; a caller that drops it does not
        know whether the changes were written."""


class PendingLoad(Protocol):
    """A load that has been started. One thread at a time uses it."""

    def answers(self) -> Snapshot:
        """Answers or raises as `load` does. It is called once."""


class StartsCalls(Store, Protocol):
    """A store whose server works while the engine does something else; `limits.starts` is set."""

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        """Begins a `commit`, and returns when the server has it. The answers tell what went
        wrong."""

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        """Begins a `load`, and returns when the server has been asked. The answers tell what went
        wrong."""


class ObservesFiles(Store, Protocol):
    """A store whose files others edit; `limits.observes` is set."""

    def scan(self, tenant: str, project: str) -> Sequence[Key]:
        """The records of this project whose files are new, gone or edited. It looks at every
        file."""

    def await_edits(self, seconds: float) -> Sequence[Key] | None:
        """Returns when files were written to, with the records of those that were edited, or with
        none after so many seconds. None if it may have missed some. A hint: not every store
        notices every edit."""


class CountsNumbers(Store, Protocol):
    """A store on whose counters other tools count; `limits.counts` is set."""

    def take_numbers(self, prefix: str, count: int) -> int:
        """Takes `count` numbers, which nobody else is given; the last of them."""


def start_commit(
    store: Store, changes: Sequence[Change], *, epoch: int | None = None
) -> PendingCommit:
    """Begins a commit on any store. One that cannot begin it commits when somebody waits."""
    if store.limits.starts:
        return cast(StartsCalls, store).start_commit(changes, epoch=epoch)
    return Deferred(partial(store.commit, epoch=epoch), changes)


def start_load(store: Store, keys: Sequence[Key]) -> PendingLoad:
    """Begins a load on any store. One that cannot begin it loads when somebody wants the answer."""
    if store.limits.starts:
        return cast(StartsCalls, store).start_load(keys)
    return Deferred(store.load, keys)


class Deferred(Generic[T, R]):
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
