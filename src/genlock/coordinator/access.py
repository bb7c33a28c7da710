"""Keys that open the service, and tenants: who may come in, and how much each may have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from genlock.coordinator.arguments import check_flag, check_mapping, check_number, check_profile
from genlock.coordinator.queries import Queries
from genlock.coordinator.scripts import Read, Script
from genlock.core import commands as c
from genlock.core.access import (
    EVERYWHERE,
    FRESH_BYTES,
    MOST_OVERLAP_SECONDS,
    check_key_id,
    check_pattern,
    check_role,
    check_scope,
    compose,
    digest_of,
    write_key,
)
from genlock.core.api_keys import state_of_key
from genlock.core.codec import decode_record
from genlock.core.fields import check_instant
from genlock.core.keys import KEY, NOWHERE, TENANT, access_key, tenant_key
from genlock.core.model import KeyRecord, TenantRecord
from genlock.core.names import check_key_name, check_session, check_tenant
from genlock.core.policy import PROFILES, change_limits
from genlock.core.reasons import KeyState
from genlock.core.results import KeyInfo, NewKey, TenantInfo
from genlock.errors import StoreCorrupt, TenantNotFound
from genlock.store import Query, Stored

MOST_SECONDS = 100 * 366 * 86400


class Access(Queries):
    """Operations of admins. A key is of a tenant; `tenant_id="*"` means all of them."""

    def create_key(
        self,
        *,
        name: str,
        role: str,
        projects: str = EVERYWHERE,
        session_id: str | None = None,
        expires_in_seconds: float | None = None,
        expires_at: datetime | str | None = None,
        tenant_id: str | None = None,
    ) -> Script[NewKey]:
        """Make a key, called `name`. Its text is in the answer, once: nobody can show it again."""
        tenant, granted = self._tenant(tenant_id), check_role(role)
        session = None if session_id is None else check_session(session_id)
        check_scope(granted, tenant, check_pattern(projects), session)
        new = compose(os.urandom(FRESH_BYTES))
        command = c.CreateKey(
            access_key(new.id),
            self.operator(),
            check_key_name(name),
            tenant,
            projects,
            granted,
            session,
            digest_of(new.secret),
            _seconds(expires_in_seconds),
            _instant(expires_at),
        )
        record: KeyRecord = yield from self.ask_one(command)
        return NewKey(_info(record, KeyState.ACTIVE), write_key(new))

    def list_keys(self, *, include_revoked: bool = False, tenant_id: str | None = None) -> Script[tuple[KeyInfo, ...]]:
        """The keys of a tenant, or of all (`*`), the oldest first: what each opens, never what opens it."""
        check_flag("include_revoked", include_revoked)
        tenant = self._tenant(tenant_id)
        query = Query(
            NOWHERE,
            NOWHERE,
            KEY,
            state=None if include_revoked else KeyState.ACTIVE.value,
            parent=None if tenant == EVERYWHERE else tenant,
        )

        def read() -> tuple[KeyInfo, ...]:
            now = self.store.load([]).now
            records = sorted((_key(stored) for stored in self._find(query)), key=lambda record: record.created_at)
            return tuple(_info(record, state_of_key(record, now)) for record in records)

        found: tuple[KeyInfo, ...] = yield Read(read)
        return found

    def rotate_key(
        self,
        *,
        key_id: str,
        overlap_seconds: float = 0,
        expires_in_seconds: float | None = None,
        expires_at: datetime | str | None = None,
        tenant_id: str | None = None,
    ) -> Script[NewKey]:
        """Give a key another text; the one before it is taken for `overlap_seconds` more."""
        new = compose(os.urandom(FRESH_BYTES), check_key_id(key_id))
        command = c.RotateKey(
            access_key(new.id),
            self.operator(),
            self._tenant(tenant_id),
            digest_of(new.secret),
            check_number("overlap_seconds", overlap_seconds, 0, MOST_OVERLAP_SECONDS),
            _seconds(expires_in_seconds),
            _instant(expires_at),
        )
        record: KeyRecord = yield from self.ask_one(command)
        return NewKey(_info(record, KeyState.ACTIVE), write_key(new))

    def revoke_key(self, *, key_id: str, tenant_id: str | None = None) -> Script[KeyInfo]:
        """Let a key open nothing any more: within a second, wherever the store is served."""
        key = access_key(check_key_id(key_id))
        record: KeyRecord = yield from self.ask_one(c.RevokeKey(key, self.operator(), self._tenant(tenant_id)))
        return _info(record, KeyState.REVOKED)

    def list_tenants(self) -> Script[tuple[TenantInfo, ...]]:
        """The tenants of the store."""

        def read() -> tuple[TenantInfo, ...]:
            return tuple(_tenant_info(decode_record(TENANT, stored.body)) for stored in self._find(Query(NOWHERE, NOWHERE, TENANT)))

        found: tuple[TenantInfo, ...] = yield Read(read)
        return found

    def get_tenant(self, *, tenant_id: str | None = None) -> Script[TenantInfo]:
        """One tenant: its profile and its limits."""
        key = tenant_key(self.place(tenant_id, None)[0])
        record = (yield Read(lambda: self.read_records([key]))).get(key)
        if record is None:
            raise TenantNotFound(
                f"there is no tenant {key.id!r} in this store; the list of tenants has those there are, and whoever sets a limit makes one"
            )
        return _tenant_info(record)

    def set_tenant(
        self, *, profile: str | None = None, limits: Mapping[str, Any] | None = None, tenant_id: str | None = None
    ) -> Script[TenantInfo]:
        """Make a tenant, or change its profile (which sets every limit) or some limits."""
        key = tenant_key(self.place(tenant_id, None)[0])
        limits = None if limits is None else dict(check_mapping("limits", limits))
        change_limits(PROFILES["local"], limits or {})
        chosen = None if profile is None else check_profile(profile)
        yield from self.ask_one(c.ChangeTenant(key, self.operator(), self.engine.profile, chosen, limits))
        return (yield from self.get_tenant(tenant_id=key.id))

    def _tenant(self, tenant_id: str | None) -> str:
        """Whose keys: a tenant's, or everyone's."""
        if tenant_id is None:
            return self.identity.tenant_id
        return EVERYWHERE if tenant_id == EVERYWHERE else check_tenant(tenant_id)


def _seconds(value: float | None) -> float | None:
    return None if value is None else check_number("expires_in_seconds", value, 0, MOST_SECONDS)


def _instant(value: datetime | str | None) -> datetime | None:
    return None if value is None else check_instant("expires_at", value)


def _key(stored: Stored) -> KeyRecord:
    record = decode_record(KEY, stored.body)
    if not isinstance(record, KeyRecord):
        raise StoreCorrupt(f"{stored.key.id} is stored as a key and is none")
    return record


def _info(record: KeyRecord, state: KeyState) -> KeyInfo:
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
    )


def _tenant_info(record: Any) -> TenantInfo:
    if not isinstance(record, TenantRecord):
        raise StoreCorrupt("what is stored as a tenant is none")
    return TenantInfo(
        tenant_id=record.id,
        profile=record.profile,
        limits=asdict(record.limits),
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
