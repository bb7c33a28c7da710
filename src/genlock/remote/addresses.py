"""Where a service is asked: one address, or those of several services on one store.

The client stays with one for as long as it answers there; then it goes on to the next, and to the first again after the last. What is
asked again is asked under the same operation id, which the store remembers: so it does not matter which of them had it first.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from genlock.errors import BadArgument

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_AWAY: Final = frozenset({502, 503, 504})
"""What is answered in place of a service that cannot answer now."""


class Addresses:
    """The addresses in a URL, with commas between them."""

    def __init__(self, url: str) -> None:
        found = [one.strip() for one in url.split(",")]
        parts = [check_address(one) for one in found]
        self._all = tuple(dict.fromkeys(one.rstrip("/") for one in found))
        self._at = 0
        self.secure = any(one.scheme == "https" for one in parts)
        self.near = all(one.hostname in _LOOPBACK for one in parts)

    def __str__(self) -> str:
        return ", ".join(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> str:
        """Where it is asked now."""
        return self._all[self._at]

    def leave(self, address: str) -> None:
        """There was no answer there. Who says so late, when others have left it already, changes nothing."""
        if self.current == address:
            self._at = (self._all.index(address) + 1) % len(self._all)  # not from where we are: several threads may say so at once

    def answered(self, address: str, status: int) -> None:
        """There was an answer; it may be that of a service that is about to stop, or has lost its store."""
        if status in _AWAY:
            self.leave(address)


def check_address(url: str) -> SplitResult:
    """A service's address: scheme and host, perhaps a port, perhaps the path it is mounted at."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadArgument(f"this is no address of a service ({error}); one is http://host:8420") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not url.isprintable() or " " in url:
        raise BadArgument(
            "a service's address is http://host:8420 or https://host, with a path if it is mounted below one; "
            "several on one store are written whole, with commas between them"
        )
    if parts.username is not None or parts.password is not None:
        raise BadArgument("a service's address has no user or password in it; give the key as api_key or GENLOCK_API_KEY")
    if parts.query or parts.fragment:
        raise BadArgument("a service's address has no ? and no #; tenant, project and key are given beside it")
    return parts
