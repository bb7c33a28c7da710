"""The addresses of a service: one, or those of several services on one store.

The client uses one address as long as the service there answers. Then it fails over to the next
one, and from the last to the first. A retry has the same operation id, which the store remembers,
so it does not matter which service received the first attempt.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from genlock import token_files
from genlock.errors import BadArgument

_AWAY: Final = frozenset({502, 503, 504})
"""The statuses of a service that is unavailable, or of a proxy in front of it."""

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""Equal names of this machine: a token is sent only to the address in its file's name."""


class Addresses:
    """The addresses in a URL, with commas between them."""

    def __init__(self, url: str) -> None:
        found = [one.strip() for one in url.split(",")]
        parts = [check_address(one) for one in found]
        self._all = tuple(dict.fromkeys(one.rstrip("/") for one in found))
        self._at = 0
        self.secure = any(one.scheme == "https" for one in parts)
        near = [
            one.hostname for one in parts if one.hostname is not None and _is_loopback(one.hostname)
        ]
        self.near = len(near) == len(parts)
        """Are all addresses on this machine?"""
        self.unproxied = dict.fromkeys((*_LOOPBACK, *near) if near else ())
        """The names of this machine among them. Requests to them use no proxy, so that none sees
        the token."""

    def __str__(self) -> str:
        return ", ".join(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> str:
        """The address in use."""
        return self._all[self._at]

    def leave(self, address: str) -> None:
        """Fails over after `address` did not answer. A late report about an address that is no
        longer in use has no effect."""
        if self.current == address:
            self._at = (self._all.index(address) + 1) % len(
                self._all
            )  # relative to `address`, not to the current one: several threads may report at once

    def answered(self, address: str, status: int) -> None:
        """Notes an answer. Its status may say that the service is stopping or has lost its
        store."""
        if status in _AWAY:
            self.leave(address)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(url: str) -> SplitResult:
    """Parses a service's address: scheme and host, optionally a port and a path prefix."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadArgument(
            f"this is no address of a service ({error}); one is http://host:8420"
        ) from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or not url.isprintable()
        or " " in url
    ):
        raise BadArgument(
            "a service's address is http://host:8420 or https://host, with a path if it is mounted "
            "below one; several on one store are written whole, with commas between them"
        )
    if parts.username is not None or parts.password is not None:
        raise BadArgument(
            "a service's address has no user or password in it; give the key as api_key or "
            "GENLOCK_API_KEY"
        )
    if parts.query or parts.fragment:
        raise BadArgument(
            "a service's address has no ? and no #; tenant, project and key are given beside it"
        )
    return parts


# Authorization: a key, or on loopback the token that the service has written for the user who
# started it.
#
# Each start of a service has its own token. If the service refuses the token, the client reads the
# file again. If it contains another token, the client sends the request again, which is safe: a
# refused request was not carried out.


REFUSED: Final = 401


class Way(NamedTuple):
    """The address that a request goes to, and its authorization."""

    url: str
    authorization: str | None


class Authorization:
    """The authorization for each address: its key, or the token of the service there. A key belongs
    to one address."""

    def __init__(
        self, keys: Callable[[str], str | None], token_folders: Sequence[Path] = ()
    ) -> None:
        self._keys, self._folders = keys, token_folders
        self._ways: dict[str, Way] = {}

    def to(self, address: str) -> Way:
        """The way to this address, which is looked up once."""
        found = self._ways.get(address)
        if found is None:
            found = self._ways[address] = self._look(address)
        return found

    def is_renewed(self, address: str, refused: Way) -> bool:
        """After a refusal: is there another token by now?"""
        found = self._look(address)
        if found.authorization in (None, refused.authorization):
            return False
        if _is_token(refused) and not _is_token(found):
            return False  # the service has ended; another process at its port gets no key
        self._ways[address] = found
        return True

    def _look(self, address: str) -> Way:
        key = self._keys(address)
        if key is not None:
            return Way(address, f"Bearer {key}")
        found = token_files.find(address, self._folders)
        return Way(address, None) if found is None else Way(found.url, f"Bearer {found.token}")


def _is_token(way: Way) -> bool:
    return way.authorization is not None and way.authorization.startswith(
        f"Bearer {token_files.PREFIX}"
    )
