"""Which route a path means: looked up, never searched, so that it costs the same however many routes there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from genlock.wire.routes import Route

E = TypeVar("E")


class Match(Struct, Generic[E], frozen=True):
    """The endpoints of a path by method, and what stands at its variable."""

    methods: dict[str, E]
    name: str | None


class Router(Generic[E]):
    """Paths as they stand behind the project."""

    def __init__(self, endpoints: Iterable[tuple[Route, E]]) -> None:
        self._plain: dict[str, dict[str, E]] = {}
        self._named: dict[tuple[str, str], dict[str, E]] = {}
        for route, endpoint in endpoints:
            parts = route.path.split("/")
            if route.variable is None:
                self._plain.setdefault(route.path, {})[route.method] = endpoint
            else:
                self._named.setdefault((parts[0], parts[2] if len(parts) == 3 else ""), {})[route.method] = endpoint

    def match(self, path: str) -> Match[E] | None:
        """What stands at this path, or None."""
        plain = self._plain.get(path)
        if plain is not None:
            return Match(plain, None)
        first, _, rest = path.partition("/")
        name, slash, last = rest.partition("/")
        named = self._named.get((first, last))
        return None if named is None or not name or (slash and not last) else Match(named, name)
