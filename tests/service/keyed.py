"""What the tests of keys begin with: a store with gates, the engine of a service on it, and an
admin elsewhere who makes keys."""

from __future__ import annotations

from typing import Any

from genlock.core.results import NewKey
from tests.engine.gated_store import GatedStore, Home


class Keyed:
    """A store of which tenant acme has keys."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.store: GatedStore = home.gated()
        self.service = home.connect(self.store)
        self.engine = self.service.engine
        self.admin = home.connect(tenant_id="acme")

    def key(self, name: str = "ci", role: str = "agent", **scope: Any) -> NewKey:
        """A new key; it is made by the admin, and the service is not told."""
        return self.admin.create_key(name=name, role=role, **scope)
