"""Which route a path means: looked up, never searched, so that it costs the same however many routes there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from genlock.wire.routes import Route

E = TypeVar("E")


class Router(Generic[E]):
    """Paths as they stand behind the project."""

    def __init__(self, endpoints: Iterable[tuple[Route, E]]) -> None:
        self._plain: dict[str, dict[str, E]] = {}
        """Of one part or two."""
        self._named: dict[tuple[str, str], dict[str, E]] = {}
        for route, endpoint in endpoints:
            parts = route.path.split("/")
            if route.variable is None:
                self._plain.setdefault(route.path, {})[route.method] = endpoint
            else:
                self._named.setdefault((parts[0], parts[2] if len(parts) == 3 else ""), {})[route.method] = endpoint

    def match(self, path: str) -> tuple[dict[str, E], str | None] | None:
        """The endpoints at this path, by method, and what stands at its variable; or None."""
        first, _, rest = path.partition("/")
        name, slash, last = rest.partition("/")
        if not slash:
            plain = self._plain.get(path)
            if plain is not None:
                return plain, None
        elif not last:
            return None
        named = self._named.get((first, last)) if name else None
        return None if named is None else (named, name)
