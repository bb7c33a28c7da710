"""Permissions of callers."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from genlock.core.key_roles import EVERYWHERE, Role, matches
from genlock.core.model import KeyRecord
from genlock.errors import RoleRefused


class Grant(Struct, frozen=True):
    """The permissions of a caller. Contains nothing of the key's secret."""

    key_id: str = ""
    name: str = ""
    """The user in whose name the caller acts: the key's name."""
    tenant: str = EVERYWHERE
    projects: str = EVERYWHERE
    role: Role = Role.ADMIN
    session: str | None = None
    agent_roles: tuple[str, ...] = ()
    """The agent roles that the key's holder may state."""

    def role_of_agent(self, stated: str) -> str:
        """The role under which an agent claims, or RoleRefused. A key with one role implies it."""
        if self.role is not Role.AGENT or stated in self.agent_roles:
            return stated
        if not stated:
            return self.agent_roles[0] if len(self.agent_roles) == 1 else ""
        may = f"the roles {', '.join(self.agent_roles)}" if self.agent_roles else "no role"
        raise RoleRefused(
            f"this key may state {may}, not the role {stated!r}; an admin makes a key for it: "
            f"genlock keys create NAME --role agent --agent-role {stated}"
        )

    def sees(self, tenant: str, project: str) -> bool:
        """May the caller see this project? With `*` for both: the whole store?"""
        return self.tenant in (EVERYWHERE, tenant) and matches(self.projects, project)

    def may(self, role: str) -> bool:
        """Does the caller's role include this one?"""
        return self.role.covers(role)


OPEN: Final = Grant()
"""The user who started the service; with --trust-local, every user of this machine."""

NOTHING: Final = Grant(tenant="", projects="", role=Role.OBSERVER)
"""The permissions of a caller before authentication."""


def grant_of(record: KeyRecord) -> Grant:
    """The permissions of a valid key."""
    return Grant(
        record.id,
        record.name,
        record.tenant,
        record.projects,
        record.role,
        record.session,
        record.agent_roles,
    )
