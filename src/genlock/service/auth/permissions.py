"""What a caller may do."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from genlock.core.key_roles import EVERYWHERE, Role, matches
from genlock.core.model import KeyRecord
from genlock.errors import RoleRefused


class Grant(Struct, frozen=True):
    """What a key, or its absence, admits. It has nothing of what opened it."""

    key_id: str = ""
    name: str = ""
    """The user in whose name it acts: the key's."""
    tenant: str = EVERYWHERE
    projects: str = EVERYWHERE
    role: Role = Role.ADMIN
    session: str | None = None
    agent_roles: tuple[str, ...] = ()
    """The roles of agents that an agent's key may state."""

    def role_of_agent(self, stated: str) -> str:
        """The role under which an agent claims, or RoleRefused. A key of one role states it by
        itself."""
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
        """Is this project there at all, for this caller? With `*` for both: is it the whole
        store?"""
        return self.tenant in (EVERYWHERE, tenant) and matches(self.projects, project)

    def may(self, role: str) -> bool:
        """Does the role cover that one?"""
        return self.role.covers(role)


OPEN: Final = Grant()
"""The user who started the service; with --trust-local, every user of this machine."""

NOTHING: Final = Grant(tenant="", projects="", role=Role.OBSERVER)
"""Of whom nothing is known yet."""


def grant_of(record: KeyRecord) -> Grant:
    """What this key admits, while it is good."""
    return Grant(
        record.id,
        record.name,
        record.tenant,
        record.projects,
        record.role,
        record.session,
        record.agent_roles,
    )
