"""The port: every method that a store has.

A store keeps records and their events as opaque bytes and decides nothing. A *change* is one
record, written together with its events if its version **and** digest are unchanged since it was
read: all or nothing. A *commit* takes many independent changes and answers each of them. No change
spans two records, so every store can keep the promise.

`genlock.testing.StoreContract` states the requirements of each method.
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
"""Later than any instant: `find(due_before=MAX_DUE, limit=1)` returns the record that falls due
next."""


MOST_WAITED_ON = 512
"""The most dependencies in one query."""


class Limits(Struct, frozen=True):
    """Limits and capabilities of one store."""

    batch: int = 1024
    """Changes in one commit."""
    body_bytes: int = 256 * 1024
    """Bytes of one record body or one event body."""
    events: int = 64
    """Events in one change."""
    writers: int = 1
    """The number of lanes that speed it up: 1 if all writes are serialised anyway."""
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
    """The policy of a new project."""
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
    """`Observed.seen`, if this was decided on an observation. None: decided on the files as the
    store last knew them. `commit` checks the files again, and answers `Conflict` if they
    changed."""


class Committed(NamedTuple):
    """The change is durable; the position of its last event is `position`."""

    position: int


class Conflict(NamedTuple):
    """Another writer has changed the record meanwhile; nothing of this change was written."""


class Stored(NamedTuple):
    """A record as stored."""

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
    narrows any of them. The order is by `order` for pool and heads (records without one come
    first), by `due_at` for due_before, by project and id otherwise. The store decides the order of
    records with equal `order` or `due_at`: some use the id, others the time of creation.
    """

    tenant: str
    project: str | None = None
    """None: all projects of the tenant. `pool`, `heads`, `due_before`, `parent` and `waits_on` need
    a project."""
    kind: str = "task"
    state: str | None = None
    pool: str | None = None
    heads: int = 0
    """Return the first `heads` records of every pool of the project; not paged. The cost must not
    grow with the number of records, of this kind or another: see `KIND_POOL`."""
    due_before: int | None = None
    """Everything whose `due_at` is less than or equal to this."""
    session: str | None = None
    parent: str | None = None
    waits_on: tuple[str, ...] = ()
    """Find the records that wait on any of these, each once; at most `MOST_WAITED_ON`. The result
    must never lag behind a commit, on any store: reactions rely on it."""
    after: str | None = None
    """`Page.next` of the previous page."""
    limit: int = 100


class Page(NamedTuple):
    """A page of records; `next` is None on the last one. `counts` is filled in instead when
    counting."""

    records: Sequence[Stored] = ()
    next: str | None = None
    counts: Mapping[str, int] = {}


class Observed(NamedTuple):
    """A record whose files other tools have edited or created."""

    key: Key
    what: Observation
    seen: object
    """The token for a change that was decided on this observation."""


class Snapshot(NamedTuple):
    """The result of `load`, with its time."""

    records: Mapping[Key, Stored]
    """The records, all of one instant."""
    pages: Sequence[Page]
    """One for each query, in their order. They may be of a later instant than the records."""
    now: datetime
    epoch: int
    observed: Sequence[Observed] = ()
    """The keys whose files other tools have edited, if the store can notice that. The records do
    not contain these edits yet."""


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
    """Return only the cursor of the feed's current end, no events."""
    back: int = 0
    """With `tail`: return the cursor this many positions before the end, for readers of the last
    events."""
    cursors: bool = False
    """Without `record`: fill in `EventPage.cursors`, for readers who may stop in mid-page."""
    limit: int = 1000


class RecordedEvent(NamedTuple):
    """One event as stored."""

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
    """In a feed: the position just before `cursor`."""
    cursors: Sequence[str] = ()
    """If requested: the cursor after each event."""
    voids: int = 0
    """In a feed: the number of positions on this page, up to `position`, that have no event and
    never will."""


class Audit(NamedTuple):
    """A store's inventory: every tenant and project with any content, and content that belongs to
    none."""

    places: Sequence[tuple[str, str]]
    faults: Sequence[str] = ()


class Payloads(Protocol):
    """Content too large for a record, stored by key and digest. The key is that of a record, or a
    separate one next to it."""

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Writes a payload, durable on return. Never overwrites; putting the same again is not an
        error."""

    def open(self, key: Key, digest: str) -> BinaryIO:
        """Returns a binary reader; `ResultNotFound` if there is no such payload."""

    def drop(self, key: Key, digest: str) -> None:
        """Removes the payload; a missing one is not an error."""

    def names(self) -> Iterable[str]:
        """Yields `payload_name` of every stored payload, in any order: for `genlock doctor`, which
        finds payloads that nothing refers to."""


def payload_name(key: Key, digest: str) -> str:
    """Returns the name of a payload in stores that need names of one length. Different keys never
    give the same name."""
    from hashlib import sha256  # late: most commands name no payload

    return sha256(msgspec.json.encode([*key, digest])).hexdigest()


class Clock(Protocol):
    """The source of `now` when the store has no clock of its own, or when one is injected."""

    def now(self) -> datetime:
        """Returns the current time, timezone-aware, in UTC."""


class Store(Protocol):
    """The port; see the module. Every method may be called from any thread. Errors are those of
    `genlock.errors`, never a driver's."""

    limits: Limits

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Reads the records among `keys`, the store's clock and its epoch at one instant, and the
        page of each query then or later. A store on a server needs as few round trips as it can."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes durably each change whose record is unchanged, and answers each in order. Keys are
        distinct within one commit.

        `epoch` is that of the snapshot on which the changes were decided. If the store is known to
        have begun a new epoch since, nothing is written and every answer is a conflict: a record
        may be identical in two histories, although a generation was granted in the one that was
        lost. A store on a server reads the epoch again when the server may have changed; otherwise
        it relies on the epoch it has read. None is for changes that do not depend on anything
        read."""

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Finds records by an index field. With `count_by` ("state", "pool", "session" or
        "project"), returns their number for each value of that field."""

    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events. Never skips one, whatever commits meanwhile. `CursorLost` if the cursor
        belongs to another birth or epoch, or was purged."""

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        """Returns when one of the feeds has moved past its cursor, after `timeout` seconds, or
        spuriously: it is a hint. With `others`, a commit by this handle need not end the wait.

        Returns the projects that other handles are known to have changed; none if the store cannot
        tell."""

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and sets its `base`, in one step."""

    def payloads(self) -> Payloads:
        """Returns the storage of large results."""

    def set_epoch(self, epoch: int) -> None:
        """Raises the epoch; `BadArgument` if the new one is not higher."""

    def audit(self) -> Audit:
        """Returns an inventory for the replay check: which projects to check, and content outside
        of all projects."""

    def close(self) -> None:
        """Releases all resources; may be called again. Afterwards every method raises `Closed`."""


class PendingCommit(Protocol):
    """A commit that has been started. Any thread may use it, but only one at a time."""

    def wait(self) -> None:
        """Waits until the answers can be read or the commit has failed. Raises nothing; calling it
        is optional."""

    def answers(self) -> Sequence[Committed | Conflict]:
        """Returns or raises as `commit` does. Call it once; a caller that never does cannot know
        whether the changes were written."""


class PendingLoad(Protocol):
    """A load that has been started. Only one thread at a time may use it."""

    def answers(self) -> Snapshot:
        """Returns or raises as `load` does. Call it once."""


class StartsCalls(Store, Protocol):
    """A store that can start calls without waiting for the server; `limits.starts` is set."""

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        """Sends a `commit` to the server and returns without waiting for the result. Errors are
        raised when the answers are read."""

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        """Sends a `load` to the server and returns without waiting for the result. Errors are
        raised when the answers are read."""


class ObservesFiles(Store, Protocol):
    """A store whose files other tools edit; `limits.observes` is set."""

    def scan(self, tenant: str, project: str) -> Sequence[Key]:
        """Checks every file. Returns the records of this project whose files are new, gone or
        edited."""

    def await_edits(self, seconds: float) -> Sequence[Key] | None:
        """Waits until files change, at most `seconds`. Returns the records of the edited files
        (none on timeout), or None if it may have missed some. A hint: not every store notices every
        edit."""


class CountsNumbers(Store, Protocol):
    """A store whose counters other tools use too; `limits.counts` is set."""

    def take_numbers(self, prefix: str, count: int) -> int:
        """Reserves `count` numbers for the caller. Returns the last of them."""


def start_commit(
    store: Store, changes: Sequence[Change], *, epoch: int | None = None
) -> PendingCommit:
    """Starts a commit on any store. A store without `start_commit` commits when the caller
    waits."""
    if store.limits.starts:
        return cast(StartsCalls, store).start_commit(changes, epoch=epoch)
    return Deferred(partial(store.commit, epoch=epoch), changes)


def start_load(store: Store, keys: Sequence[Key]) -> PendingLoad:
    """Starts a load on any store. A store without `start_load` loads when the answer is read."""
    if store.limits.starts:
        return cast(StartsCalls, store).start_load(keys)
    return Deferred(store.load, keys)


class Deferred(Generic[T, R]):
    """A commit or load that runs only when its caller waits for it."""

    def __init__(self, do: Callable[[T], R], given: T) -> None:
        self._do = do
        self._given = given
        self._answers: R | None = None
        self._error: GenlockError | None = None

    def wait(self) -> None:
        """Runs the call, unless it has run already."""
        if self._answers is None and self._error is None:
            try:
                self._answers = self._do(self._given)
            except GenlockError as error:
                self._error = error

    def answers(self) -> R:
        """Returns the result, or raises the error."""
        self.wait()
        if self._error is not None:
            raise self._error
        assert self._answers is not None
        return self._answers
