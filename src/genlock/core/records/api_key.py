"""API keys: the keys that open the service.

1. A key belongs to one tenant; an admin's key may belong to all (`*`). A caller of another tenant
   gets the error for a key that does not exist.
2. A key is valid until it is revoked, or `now >= expires_at`. A revoked key never becomes valid
   again.
3. A rotation gives the key a new secret. The previous secret is accepted for an overlap of at most
   a day; no older one is.
4. A key may carry agents' roles: its holder may state those, and no others. An operator may state
   any role.
5. An end that has already passed is refused, also in a rotation: a key that can never be used is a
   mistake.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.index import Index
from genlock.core.key_roles import EVERYWHERE, MOST_OVERLAP_SECONDS, check_scope, same_digest
from genlock.core.keys import KEY
from genlock.core.model import KeyRecord
from genlock.core.reasons import KeyState
from genlock.errors import BadArgument, KeyNotFound, NotAllowed


def decide_create(record: KeyRecord | None, command: c.CreateKey, facts: Facts) -> Decision:
    check_scope(
        command.role, command.tenant, command.projects, command.session, command.agent_roles
    )
    if record is not None:
        # A retry: the answer to the first call was lost.
        if record.digest == command.digest:
            return Decision(record)
        raise NotAllowed(f"there is a key {record.id!r} already; create one of another id")
    return decide_one(
        record,
        command,
        facts,
        _created,
        e.KeyCreated,
        key_id=command.key.id,
        name=command.name,
        tenant=command.tenant,
        projects=command.projects,
        role=command.role,
        digest=command.digest,
        bound_session=command.session,
        expires_at=_end(command, facts.now),
        agent_roles=command.agent_roles,
    )


def decide_rotate(record: KeyRecord | None, command: c.RotateKey, facts: Facts) -> Decision:
    record = _own(record, command)
    if record.revoked_at is not None:
        raise NotAllowed(f"key {record.id!r} is revoked; create another one")
    if record.digest == command.digest:
        return Decision(record)
    overlap = command.overlap_seconds
    if not 0 <= overlap <= MOST_OVERLAP_SECONDS:
        raise BadArgument(
            f"overlap_seconds is a number from 0 to {MOST_OVERLAP_SECONDS:,.0f}, not {overlap:g}"
        )
    end = _end(command, facts.now) or record.expires_at
    if end is not None and end <= facts.now:
        raise NotAllowed(
            f"key {record.id!r} has expired; say how long it is to last from now on, with "
            "expires_in_seconds"
        )
    until = facts.now + timedelta(seconds=overlap) if overlap else None
    return decide_one(
        record,
        command,
        facts,
        _rotated,
        e.KeyRotated,
        key_id=record.id,
        digest=command.digest,
        previous_until=until,
        expires_at=end,
    )


def decide_revoke(record: KeyRecord | None, command: c.RevokeKey, facts: Facts) -> Decision:
    record = _own(record, command)
    if record.revoked_at is not None:
        return Decision(record)
    return decide_one(record, command, facts, _revoked, e.KeyRevoked, key_id=record.id)


def _own(record: KeyRecord | None, command: c.RotateKey | c.RevokeKey) -> KeyRecord:
    if record is None or command.tenant not in (EVERYWHERE, record.tenant):
        where = "in this store" if command.tenant == EVERYWHERE else f"of tenant {command.tenant!r}"
        raise KeyNotFound(
            f"there is no key {command.key.id!r} {where}; the list of keys has those there are"
        )
    return record


def _end(command: c.CreateKey | c.RotateKey, now: datetime) -> datetime | None:
    if command.expires_in_seconds is not None:
        if command.expires_at is not None:
            raise BadArgument(
                "a key ends expires_in_seconds from now or at expires_at; say one of them"
            )
        if command.expires_in_seconds <= 0:
            raise BadArgument(
                f"expires_in_seconds is more than 0, not {command.expires_in_seconds:g}"
            )
        return now + timedelta(seconds=command.expires_in_seconds)
    if command.expires_at is not None and command.expires_at <= now:
        raise BadArgument(
            f"expires_at {command.expires_at:%Y-%m-%dT%H:%M:%SZ} has passed; it is "
            f"{now:%Y-%m-%dT%H:%M:%SZ} now"
        )
    return command.expires_at


def state_of_key(record: KeyRecord, now: datetime) -> KeyState:
    """Rule 2: is the key active, revoked or expired now?"""
    if record.revoked_at is not None:
        return KeyState.REVOKED
    expired = record.expires_at is not None and now >= record.expires_at
    return KeyState.EXPIRED if expired else KeyState.ACTIVE


def opens(record: KeyRecord, digest: str, now: datetime) -> bool:
    """Is this the digest of a secret that the key accepts now?"""
    current = same_digest(digest, record.digest)
    before = record.previous is not None and same_digest(digest, record.previous)
    in_time = record.previous_until is not None and now < record.previous_until
    return (current or (before and in_time)) and state_of_key(record, now) is KeyState.ACTIVE


def _created(_: KeyRecord | None, event: e.KeyCreated) -> KeyRecord:
    return KeyRecord(
        id=event.key_id,
        name=event.name,
        tenant=event.tenant,
        projects=event.projects,
        role=event.role,
        digest=event.digest,
        created_at=event.timestamp,
        created_by=event.actor.user_id,
        updated_at=event.timestamp,
        session=event.bound_session,
        expires_at=event.expires_at,
        agent_roles=event.agent_roles,
    )


def _rotated(record: KeyRecord, event: e.KeyRotated) -> KeyRecord:
    return replace(
        record,
        digest=event.digest,
        previous=record.digest if event.previous_until is not None else None,
        previous_until=event.previous_until,
        expires_at=event.expires_at,
        updated_at=event.timestamp,
    )


def _revoked(record: KeyRecord, event: e.KeyRevoked) -> KeyRecord:
    return replace(
        record,
        revoked_at=event.timestamp,
        previous=None,
        previous_until=None,
        updated_at=event.timestamp,
    )


def _index(record: KeyRecord) -> Index:
    state = KeyState.REVOKED if record.revoked_at else KeyState.ACTIVE
    return Index(state=state, parent=record.tenant)


RECORD = RecordKind(
    kind=KEY,
    record=KeyRecord,
    commands={c.CreateKey: decide_create, c.RotateKey: decide_rotate, c.RevokeKey: decide_revoke},
    begins=e.KeyCreated,
    folds={e.KeyCreated: _created, e.KeyRotated: _rotated, e.KeyRevoked: _revoked},
    index_of=_index,
)
