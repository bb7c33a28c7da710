"""API keys and tenants: who may use the service, and each tenant's limits."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from genlock.coordinator.arguments import check_flag, check_mapping, check_profile
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Read, Script
from genlock.core import commands as c
from genlock.core.agent_roles import check_role_names
from genlock.core.durations import Seconds, read_seconds
from genlock.core.fields import check_instant
from genlock.core.key_roles import (
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
from genlock.core.keys import access_key, tenant_key
from genlock.core.model import KeyRecord
from genlock.core.names import check_key_name, check_session, check_tenant
from genlock.core.policy import PROFILES, change_limits
from genlock.core.reasons import KeyState
from genlock.core.results import KeyInfo, NewKey, TenantInfo
from genlock.reads import keys

MOST_SECONDS = 100 * 366 * 86400


class Access(Base):
    """Operations of admins. A key is of a tenant; `tenant_id="*"` means all of them."""

    def create_key(
        self,
        *,
        name: str,
        role: str,
        projects: str = EVERYWHERE,
        session_id: str | None = None,
        expires_in_seconds: Seconds | None = None,
        expires_at: datetime | str | None = None,
        agent_roles: Collection[str] | None = None,
        tenant_id: str | None = None,
    ) -> Script[NewKey]:
        """Make a key, called `name`. The answer contains its text, which cannot be shown again.

        The holder of an agent's key may state the roles in `agent_roles`, and no others."""
        tenant, granted = self._tenant(tenant_id), check_role(role)
        session = None if session_id is None else check_session(session_id)
        roles = check_role_names("agent_roles", agent_roles)
        check_scope(granted, tenant, check_pattern(projects), session, roles)
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
            roles,
        )
        record: KeyRecord = yield from self.ask_one(command)
        return NewKey(keys.key_info(record, KeyState.ACTIVE), write_key(new))

    def list_keys(
        self, *, include_revoked: bool = False, tenant_id: str | None = None
    ) -> Script[tuple[KeyInfo, ...]]:
        """The keys of a tenant, or of all (`*`), the oldest first: their roles and tenants, never
        their text."""
        check_flag("include_revoked", include_revoked)
        tenant = self._tenant(tenant_id)
        of_tenant = None if tenant == EVERYWHERE else tenant
        found: tuple[KeyInfo, ...] = yield Read(
            lambda: keys.key_infos(self.reader, of_tenant, include_revoked=include_revoked)
        )
        return found

    def rotate_key(
        self,
        *,
        key_id: str,
        overlap_seconds: Seconds = 0,
        expires_in_seconds: Seconds | None = None,
        expires_at: datetime | str | None = None,
        tenant_id: str | None = None,
    ) -> Script[NewKey]:
        """Give a key another text; the previous one stays valid for `overlap_seconds`."""
        new = compose(os.urandom(FRESH_BYTES), check_key_id(key_id))
        command = c.RotateKey(
            access_key(new.id),
            self.operator(),
            self._tenant(tenant_id),
            digest_of(new.secret),
            read_seconds("overlap_seconds", overlap_seconds, 0, MOST_OVERLAP_SECONDS),
            _seconds(expires_in_seconds),
            _instant(expires_at),
        )
        record: KeyRecord = yield from self.ask_one(command)
        return NewKey(keys.key_info(record, KeyState.ACTIVE), write_key(new))

    def revoke_key(self, *, key_id: str, tenant_id: str | None = None) -> Script[KeyInfo]:
        """Revoke a key: every service on the store refuses it within a second."""
        key = access_key(check_key_id(key_id))
        record: KeyRecord = yield from self.ask_one(
            c.RevokeKey(key, self.operator(), self._tenant(tenant_id))
        )
        return keys.key_info(record, KeyState.REVOKED)

    def list_tenants(self) -> Script[tuple[TenantInfo, ...]]:
        """The tenants of the store."""
        found: tuple[TenantInfo, ...] = yield Read(lambda: tuple(keys.tenant_infos(self.reader)))
        return found

    def get_tenant(self, *, tenant_id: str | None = None) -> Script[TenantInfo]:
        """One tenant: its profile and its limits."""
        key = tenant_key(self.place(tenant_id, None)[0])
        found: TenantInfo = yield Read(lambda: keys.tenant_info(self.reader, key))
        return found

    def set_tenant(
        self,
        *,
        profile: str | None = None,
        limits: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
    ) -> Script[TenantInfo]:
        """Make a tenant, or change its profile (which sets every limit) or some limits."""
        key = tenant_key(self.place(tenant_id, None)[0])
        limits = None if limits is None else dict(check_mapping("limits", limits))
        change_limits(PROFILES["local"], limits or {})
        chosen = None if profile is None else check_profile(profile)
        yield from self.ask_one(
            c.ChangeTenant(key, self.operator(), self.engine.profile, chosen, limits)
        )
        return (yield from self.get_tenant(tenant_id=key.id))

    def _tenant(self, tenant_id: str | None) -> str:
        """Checks the tenant of the keys; `*` for all."""
        if tenant_id is None:
            return self.identity.tenant_id
        return EVERYWHERE if tenant_id == EVERYWHERE else check_tenant(tenant_id)


def _seconds(value: Seconds | None) -> float | None:
    return None if value is None else read_seconds("expires_in_seconds", value, 0, MOST_SECONDS)


def _instant(value: datetime | str | None) -> datetime | None:
    return None if value is None else check_instant("expires_at", value)
