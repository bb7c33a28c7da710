"""The common base of the PostgreSQL and MySQL stores: the same statements by name, in two dialects.

A store's `queries.sql` holds the statements, with parameters written `:so`. A `Statement` of the
dialect fills them in, and its result is a request for the store's connection. Rows come back in the
same columns from both. MySQL returns names as bytes, hence `text`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import (
    EventPage,
    EventQuery,
    Index,
    Key,
    Page,
    Query,
    RecordedEvent,
    Stored,
)
from genlock.stores.connection_pool import ConnectionBroken, ServerUnreachable
from genlock.stores.cursors import (
    FeedState,
    Row,
    check_cursor,
    decode_cursor,
    decode_token,
    encode_cursor,
    feed_mark,
    page_of,
    records_of,
    tail_page,
    text,
)
from genlock.stores.migrations import MigratedConnection, named_statements
from genlock.stores.round_trips import Exchange, complete_all
from genlock.stores.server import ServerConnection, ServerStore
from genlock.typed_json import convert, decoder

INDEXED_AT_ONCE = 64
"""How many records' index fields are read in one round trip."""
NO_META = "the row that says of which birth and epoch the store is, is missing"

_COUNTS = ("state", "project", "pool", "session")
_AMONG = ("all", "offered", "claimed", "pool", "due", "session", "parent", "waits")
_LAST_POSITION = 2**40 - 1
_decode_names = decoder(tuple[str, ...]).decode
_Fields = tuple[str, str | None, str | None, int | None, str | None, str | None, str | None]


class Statement(Protocol):
    """A statement of one dialect."""

    def filled(self, **values: Any) -> Any:
        """Returns a request with these values. Values that the statement does not use are
        ignored."""


class SqlConnection(ServerConnection, MigratedConnection, Protocol):
    """A connection of one dialect."""

    mark: Any
    """Identifies the server; None until the server has been asked."""


C = TypeVar("C", bound=SqlConnection)
S = TypeVar("S", bound=Statement)


def statements(source: str, parse: Callable[[str], S]) -> dict[str, S]:
    """Returns the statements of a file by name. Each count_by_… is combined with each among_…."""
    texts = named_statements(source)
    for count, among in product(_COUNTS, _AMONG):
        combined = texts[f"count_by_{count}"].replace(":among", texts[f"among_{among}"])
        texts[f"count_by_{count}_among_{among}"] = combined
    return {name: parse(each) for name, each in texts.items()}


def key_values(key: Key) -> dict[str, str]:
    """Returns a key as the values of a statement."""
    return {"tenant": key.tenant, "project": key.project, "kind": key.kind, "name": key.id}


def with_index(key: Key, row: Row, found_by: set[str] | None = None) -> Stored:
    """Builds a record from version, digest, body and its index fields, the last of which is a JSON
    list. If `found_by` is given, only the dependencies by which the record is found count: both
    must agree."""
    version, digest, body, *fields = row
    try:
        state, pool, order, due_at, session, parent, listed = convert(
            tuple(map(text, fields)), _Fields
        )
        waits_on = _decode_names(listed or "[]")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreCorrupt(
            f"{'/'.join(key[:2])} {key.kind} {key.id} has a field that cannot be read ({error})"
        ) from error
    kept = tuple([each for each in waits_on if found_by is None or each in found_by])
    index = Index(state, pool, order, due_at, session, parent, kept)
    return Stored(key, version, digest, body, index=index)


class SqlStore(ServerStore[C], Generic[C, S]):
    """A server store whose server speaks SQL."""

    after_pool: ClassVar[Any]
    after_due: ClassVar[Any]
    """The shapes of the tokens that continue a page of a pool and of the due records: order or
    instant, and the row's number or name."""
    first_row: ClassVar[int | str]
    """A number or name before all others."""

    _queries: dict[str, S]

    @staticmethod
    @abstractmethod
    def _rows_of(answer: Any) -> Sequence[Row]:
        """The rows of an answer."""

    def _load_with_index(self, connection: C, keys: Sequence[Key]) -> dict[Key, Stored]:
        found: dict[Key, Stored] = {}
        for start in range(0, len(keys), INDEXED_AT_ONCE):
            some = [self._indexed(key) for key in keys[start : start + INDEXED_AT_ONCE]]
            for record in complete_all(some, connection.ask):
                if record is not None:
                    found[record.key] = record
        return found

    @abstractmethod
    def _indexed(self, key: Key) -> Exchange[Stored | None]:
        """One record with its index fields."""

    def _find(self, query: Query) -> Exchange[Page]:
        """Asks for one row more than the page, which tells whether the page is the last."""
        if query.heads:
            return Page(records_of(query, (yield from self._heads(query))))
        name, values = self._search(query)
        statement = self._queries[name].filled(most=query.limit + 1, **_common(query), **values)
        rows = self._rows_of((yield statement))
        by_name = query.pool is None and query.due_before is None
        return page_of(query, rows, names=by_name)

    @abstractmethod
    def _heads(self, query: Query) -> Exchange[Sequence[Row]]:
        """Finds the first records of every pool, in order."""

    def _search(self, query: Query) -> tuple[str, dict[str, Any]]:
        """Returns the statement that finds the page, and its values besides the common ones."""
        if query.pool is not None:
            order, row = (None, None)
            if query.after is not None:
                order, row = decode_token(query.after, self.after_pool)
            values = {"pool": query.pool, "after": row, "ord": order}
            return "find_pool" if order is None else "find_pool_after", values
        if query.due_before is not None:
            due, row = (-(2**63), self.first_row)
            if query.after is not None:
                due, row = decode_token(query.after, self.after_due)
            return "find_due", {"due": query.due_before, "after_due": due, "after": row}
        project, name = (None, None)
        if query.after is not None:
            project, name = decode_token(query.after, tuple[str | None, str | None])
        values = {"after_project": project, "after": name}
        for field in ("session", "parent", "waits_on"):
            value = getattr(query, field)
            if value not in (None, ()):
                return "find_" + field.partition("_")[0], {field: value, **values}
        return "find_one" if query.project is not None else "find_all", values

    def _count(self, query: Query, count_by: str) -> Exchange[Page]:
        among, value = _among(query, count_by)
        statement = self._queries[f"count_by_{count_by}_among_{among}"]
        rows = self._rows_of((yield statement.filled(value=value, **_common(query))))
        return Page(counts={text(name): number for name, number in rows})

    def _read_events(self, query: EventQuery) -> Exchange[EventPage]:
        feed = {"tenant": query.tenant, "project": query.project}
        if query.record is not None:
            return (yield from self._read_record(query, query.record))
        if query.tail:
            rows = self._rows_of((yield self._queries["feed_state"].filled(**feed)))
            state = _feed_state(query, rows)
            return tail_page(query, state, state.head)
        after = None if query.after is None else decode_cursor(query.after)
        position = 0 if after is None else after.position
        read = self._queries["read_feed"].filled(
            position=min(position, _LAST_POSITION), most=query.limit + 1, **feed
        )
        rows = self._rows_of((yield read))
        # The first row is the feed's state: epoch, -, -, head, birth, -, purged_to, purges.
        state = _feed_state(query, [(row[4], row[0], row[3], *row[6:]) for row in rows[:1]])
        if after is not None:
            check_cursor(after, state)
        return self._feed_page(query, state, rows[1:], position)

    def _feed_page(
        self, query: EventQuery, state: FeedState, rows: Sequence[Row], position: int
    ) -> EventPage:
        more = len(rows) > query.limit
        events = []
        for at, kind, name, version, digest, body, record, _ in rows[: query.limit]:
            if name is None:
                raise StoreCorrupt(
                    f"{self._where}: the event at position {at} of {query.tenant}/{query.project} "
                    f"belongs to record {record}, which is not there"
                )
            key = Key(query.tenant, query.project, text(kind), text(name))
            events.append(RecordedEvent(key, version, digest, body, at))
        end = events[-1].position if events else position
        if not more:
            end = state.head  # beyond the last event, if that was purged
        cursors = [encode_cursor(state, each.position) for each in events] if query.cursors else ()
        return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)

    def _read_record(self, query: EventQuery, key: Key) -> Exchange[EventPage]:
        read = self._queries["read_record"].filled(
            after=query.after_version, most=query.limit + 1, **key_values(key)
        )
        rows = self._rows_of((yield read))
        # The first row is the feed's state: epoch, head, birth, base, purged_to, purges.
        state = _feed_state(query, [(row[2], row[0], row[1], *row[4:]) for row in rows[:1]])
        events = [
            RecordedEvent(key, version, digest, body, at)
            for at, version, digest, body, *_ in rows[1 : query.limit + 1]
        ]
        more = len(rows) > query.limit + 1
        return EventPage(events, encode_cursor(state, state.head), more, base=rows[0][3])

    def _identify_once(self, connection: C) -> None:
        """Asks which server this is, and in which epoch, unless this connection has asked."""
        if connection.mark is None:
            self._identify(connection)

    def _identify(self, connection: C) -> None:
        try:
            connection.mark, epoch = self._server_of(connection)
        except ConnectionBroken as broken:
            raise ServerUnreachable(str(broken)) from None  # nothing of a commit has been sent yet
        self._epochs.heard(epoch)

    @abstractmethod
    def _server_of(self, connection: C) -> tuple[Any, int | None]:
        """Returns the server's identity, and its epoch if it reports one. Raises the epoch first if
        the store was last written to on another server."""


def _common(query: Query) -> dict[str, str | None]:
    """Returns the values that every statement has."""
    return {
        "tenant": query.tenant,
        "project": query.project,
        "kind": query.kind,
        "state": query.state,
    }


def _among(query: Query, count_by: str) -> tuple[str, Any]:
    """Chooses the cheapest selection that contains every record to count. Returns its name and
    value."""
    for field in ("pool", "session", "parent", "waits_on", "due_before"):
        value = getattr(query, field)
        if value not in (None, ()):
            return field.partition("_")[0], value
    if query.heads or count_by == "pool":
        return "offered", None
    return "claimed" if count_by == "session" else "all", None


def _feed_state(query: EventQuery, rows: Sequence[Row]) -> FeedState:
    """Builds the state from birth, epoch, head, purged_to and purges. The last three are 0 before
    the first event."""
    for birth, *numbers in rows:
        epoch, *counters = map(int, numbers)
        return FeedState(birth, epoch, feed_mark(query.tenant, query.project), *counters)
    raise StoreCorrupt(NO_META)
