"""Where a service is asked: one address, or those of several services on one store.

The client stays with one for as long as it answers there; then it goes on to the next, and to the
first again after the last. What is asked again is asked under the same operation id, which the
store remembers: so it does not matter which of them had it first.
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
"""What is answered in place of a service that cannot answer now."""

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""Where `localhost` is, too: a token is sent to the address in its file's name."""


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
        """Are all of them on this machine?"""
        self.unproxied = dict.fromkeys((*_LOOPBACK, *near) if near else ())
        """The names of this machine among them: no proxy is asked for these, and none sees the
        token that is sent there."""

    def __str__(self) -> str:
        return ", ".join(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> str:
        """Where it is asked now."""
        return self._all[self._at]

    def leave(self, address: str) -> None:
        """There was no answer there. Who says so late, when others have left it already, changes
        nothing."""
        if self.current == address:
            self._at = (self._all.index(address) + 1) % len(
                self._all
            )  # not from where we are: several threads may say so at once

    def answered(self, address: str, status: int) -> None:
        """There was an answer; it may be that of a service that is about to stop, or has lost its
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
    """A service's address: scheme and host, perhaps a port, perhaps the path it is mounted at."""
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


# What proves to a service who we are: a key, or on loopback the token that the service left for
# the user who started it.
#
# A token is of one start of a service. When the service refuses it, the file is read again: if
# another one is there by now, the request is sent once more. A request that was refused was not
# carried out.


REFUSED: Final = 401


class Way(NamedTuple):
    """Where a request for an address goes, and what it brings."""

    url: str
    authorization: str | None


class Authorization:
    """The key for each address: a key belongs to one, and several services may have several.
    Without one, the token there."""

    def __init__(
        self, keys: Callable[[str], str | None], token_folders: Sequence[Path] = ()
    ) -> None:
        self._keys, self._folders = keys, token_folders
        self._ways: dict[str, Way] = {}

    def to(self, address: str) -> Way:
        """The way to this address. It is looked up once."""
        found = self._ways.get(address)
        if found is None:
            found = self._ways[address] = self._look(address)
        return found

    def is_renewed(self, address: str, refused: Way) -> bool:
        """This was refused there. Is there something else to be sent by now?"""
        found = self._look(address)
        if found.authorization in (None, refused.authorization):
            return False
        if _is_token(refused) and not _is_token(found):
            return False  # the service has ended; whoever answers in its place is given no key
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
