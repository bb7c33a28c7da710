"""What a caller may do."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from genlock.core.access import EVERYWHERE, Role, matches
from genlock.core.model import KeyRecord


class Grant(Struct, frozen=True):
    """What a key, or its absence, admits. It has nothing of what opened it."""

    key_id: str = ""
    name: str = ""
    """The user in whose name it acts: the key's."""
    tenant: str = EVERYWHERE
    projects: str = EVERYWHERE
    role: Role = Role.ADMIN
    session: str | None = None

    def sees(self, tenant: str, project: str) -> bool:
        """Is this project there at all, for this caller? With `*` for both: is it the whole store?"""
        return self.tenant in (EVERYWHERE, tenant) and matches(self.projects, project)

    def may(self, role: str) -> bool:
        """Does the role cover that one?"""
        return self.role.covers(role)


OPEN: Final = Grant()
"""On loopback without keys: whoever is on this machine."""

NOTHING: Final = Grant(tenant="", projects="", role=Role.OBSERVER)
"""Of whom nothing is known yet."""


def grant_of(record: KeyRecord) -> Grant:
    """What this key admits, while it is good."""
    return Grant(record.id, record.name, record.tenant, record.projects, record.role, record.session)
