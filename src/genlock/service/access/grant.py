"""What a caller may do."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from genlock.wire.routes import ADMIN, OBSERVER, ROLES


class Grant(Struct, frozen=True):
    """What a key, or its absence, admits."""

    key_id: str = ""
    name: str = ""
    tenant: str = "*"
    projects: str = "*"
    role: str = ADMIN
    session: str | None = None

    def sees(self, tenant: str, project: str) -> bool:
        """Is this project there at all, for this caller?"""
        return self.tenant in ("*", tenant) and (self.projects == "*" or fnmatchcase(project, self.projects))

    def may(self, role: str) -> bool:
        """Does the role cover that one?"""
        return ROLES.index(self.role) >= ROLES.index(role)

    def is_session(self, session: str | None) -> bool:
        """May it act for this session?"""
        return self.session is None or self.session == session


OPEN: Final = Grant()
"""On loopback without keys: whoever is on this machine."""

NOTHING: Final = Grant(tenant="", projects="", role=OBSERVER)
"""Of whom nothing is known yet."""
