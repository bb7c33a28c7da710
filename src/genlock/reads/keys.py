"""Keys and tenants, and which sessions have keys of their own.

A key is a record; whether it is valid depends on that record and the store's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import asdict

from genlock.core.codec import decode_record
from genlock.core.keys import KEY, NOWHERE, TENANT, Key, Scope, access_key
from genlock.core.model import KeyRecord, TenantRecord
from genlock.core.reasons import KeyState
from genlock.core.records.api_key import state_of_key
from genlock.core.results import KeyInfo, TenantInfo
from genlock.errors import CursorLost, StoreCorrupt, TenantNotFound
from genlock.reads.reader import PAGE, StoreReader, decoded
from genlock.store import Query, Stored

TenantSession: TypeAlias = tuple[str, str]
"""A tenant and a session."""

_FEED: Final[Scope] = (NOWHERE, NOWHERE)


class FoundKeys(NamedTuple):
    """The existing keys among some ids, and the store's time, by which they expire."""

    records: dict[str, KeyRecord]
    now: datetime


def find_keys(reader: StoreReader, ids: Iterable[str]) -> FoundKeys:
    """Finds the keys of these ids, in one load."""
    snapshot = reader.store.load([access_key(id) for id in ids])
    records = {
        key.id: record for key, record in decoded(snapshot).items() if isinstance(record, KeyRecord)
    }
    return FoundKeys(records, snapshot.now)


def key_infos(
    reader: StoreReader, tenant: str | None, *, include_revoked: bool
) -> tuple[KeyInfo, ...]:
    """The keys of a tenant, or of all, the oldest first."""
    now = reader.now()
    state = None if include_revoked else KeyState.ACTIVE.value
    records = sorted(
        map(_key_of, reader.find(Query(*_FEED, KEY, state=state, parent=tenant))),
        key=lambda record: record.created_at,
    )
    return tuple(key_info(record, state_of_key(record, now)) for record in records)


def has_active_key(reader: StoreReader) -> bool:
    """Is there any valid key?"""
    now = reader.now()
    stored = reader.find(Query(*_FEED, KEY), page=PAGE)
    return any(state_of_key(_key_of(found), now) is KeyState.ACTIVE for found in stored)


def tenant_infos(reader: StoreReader) -> Iterator[TenantInfo]:
    """The tenants of the store."""
    for stored in reader.find(Query(*_FEED, TENANT)):
        yield _tenant_info(decode_record(TENANT, stored.body))


def tenant_info(reader: StoreReader, key: Key) -> TenantInfo:
    """One tenant, or TenantNotFound."""
    record = reader.records([key]).get(key)
    if record is None:
        raise TenantNotFound(
            f"there is no tenant {key.id!r} in this store; the list of tenants has those there "
            "are, and whoever sets a limit makes one"
        )
    return _tenant_info(record)


def key_info(record: KeyRecord, state: KeyState) -> KeyInfo:
    """Returns the public data of a key: its rights, never its text."""
    return KeyInfo(
        key_id=record.id,
        name=record.name,
        tenant_id=record.tenant,
        projects=record.projects,
        role=record.role,
        session_id=record.session,
        state=state,
        created_at=record.created_at,
        created_by=record.created_by,
        updated_at=record.updated_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        previous_until=record.previous_until,
        agent_roles=record.agent_roles,
    )


def _tenant_info(record: object) -> TenantInfo:
    if not isinstance(record, TenantRecord):
        raise StoreCorrupt("what is stored as a tenant is none")
    return TenantInfo(
        tenant_id=record.id,
        profile=record.profile,
        limits=asdict(record.limits),
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def _key_of(stored: Stored) -> KeyRecord:
    record = decode_record(KEY, stored.body)
    if not isinstance(record, KeyRecord):
        raise StoreCorrupt(f"{stored.key.id} is stored as a key and is none")
    return record


class KeyChanges(NamedTuple):
    """The result of one update."""

    now: datetime | None
    """The store's time, by which keys expire; None if it was not requested and no key had to be
    loaded."""
    changed: frozenset[str] | None
    """The ids of keys that were created, rotated or revoked since the previous update; None if any
    may have been."""


class SessionKeys:
    """The sessions that have keys of their own. One thread updates it; any thread may query it.

    All keys are read once, and afterwards only the events of keys, so that the cost does not depend
    on the number of keys. An update returns the changed keys.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._cursor: str | None = None
        self._keys: dict[TenantSession, dict[str, datetime | None]] = {}
        """For each session, when each of its keys expires (None for never). The inner mappings are
        replaced, never changed, because other threads read them."""
        self._sessions: dict[str, TenantSession] = {}
        """By key."""

    def has_key(self, session: TenantSession, clock: Callable[[], datetime]) -> bool:
        """Has this session a valid key now? The clock is read only if it has any key."""
        ends = self._keys.get(session)
        if ends is None:
            return False
        now = clock()
        return any(end is None or now < end for end in ends.values())

    def catch_up(self, *, time: bool = True) -> KeyChanges:
        """Reads new events, and the time. If the store fails midway, the next update reads the same
        events again."""
        if self._cursor is not None:
            try:
                return self._follow(self._cursor, time)
            except CursorLost:
                self._cursor = None
        return self._begin()

    def _begin(self) -> KeyChanges:
        # The cursor is taken first: events that happen while the keys are read are read again.
        cursor = self._reader.feed_end(_FEED).cursor
        now = self._reader.now()
        old = set(self._sessions)
        query = Query(*_FEED, KEY, state=KeyState.ACTIVE.value)
        for stored in self._reader.find(query, page=PAGE):
            self._take(stored.key.id, decode_record(KEY, stored.body))
            old.discard(stored.key.id)
        for id in old:
            self._take(id, None)
        self._cursor = cursor
        return KeyChanges(now, None)

    def _follow(self, cursor: str, time: bool) -> KeyChanges:
        changed: dict[str, None] = {}
        more = True
        while more:
            page = self._reader.events(_FEED, cursor)
            changed |= dict.fromkeys(event.key.id for event in page.events if event.key.kind == KEY)
            cursor, more = page.cursor, page.more
        now = None
        if changed or time:
            found, now = find_keys(self._reader, changed)
            for id in changed:
                self._take(id, found.get(id))
        self._cursor = cursor
        return KeyChanges(now, frozenset(changed))

    def _take(self, id: str, record: object) -> None:
        before = self._sessions.pop(id, None)
        if before is not None:
            others = {key: end for key, end in self._keys[before].items() if key != id}
            if others:
                self._keys[before] = others
            else:
                del self._keys[before]
        if (
            isinstance(record, KeyRecord)
            and record.session is not None
            and record.revoked_at is None
        ):
            session = self._sessions[id] = record.tenant, record.session
            self._keys[session] = {**self._keys.get(session, {}), id: record.expires_at}
