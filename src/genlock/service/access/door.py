"""The door: who a request comes from, before anything is done for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Final, TypeAlias

from genlock.errors import AccessRefused, BadArgument, HostRefused, KeyRefused
from genlock.service.access.grant import OPEN, Grant
from genlock.service.access.keyring import Keyring
from genlock.service.access.sign_ins import LOOKS, ticket_of

Find: TypeAlias = Callable[[str], Awaitable[Grant | None]]
"""Looks a key up; None if it is not good."""

NOT_GOOD: Final = "this key is not good: it is unknown, expired or revoked"
_BEARER: Final = "bearer "
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Door:
    """Lets requests in: with a good key, or, where no keys are asked for, as they come."""

    def __init__(
        self, find: Find | None, hosts: frozenset[str] | None, keyring: Keyring | None = None, find_ticket: Find | None = None
    ) -> None:
        self._find, self._keyring, self._find_ticket = find, keyring, find_ticket
        self._hosts = None if hosts is None else hosts | _LOOPBACK
        """The names that the service answers for; None for any. Without the check, a page in a browser could rebind its name to us."""
        self._last_host: bytes | None = None
        """What was found to be good the last time: mostly it is the same again."""

    def check_host(self, headers: dict[bytes, bytes]) -> None:
        """HostRefused, or AccessRefused for a page of another site, before anything else is looked at."""
        host = headers.get(b"host", b"")
        if host != self._last_host:
            self._check_name(host.decode("latin-1").lower())
            self._last_host = host
        origin = headers.get(b"origin")
        if origin is not None and origin.lower().partition(b"://")[2] != host.lower():
            raise AccessRefused("pages of other sites may not use this service")

    def _check_name(self, host: str) -> None:
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise HostRefused(f"this service does not answer for the host {host[:100]!r}; --allow-host names those it does")

    @property
    def asks_for_keys(self) -> bool:
        """Is a key needed?"""
        return self._find is not None

    async def expect(self, many: Iterable[dict[bytes, bytes]]) -> None:
        """These are about to be asked for."""
        if self._keyring is not None:
            await self._keyring.expect({text for headers in many if (text := _key_of(headers)) is not None})

    def end_of(self, headers: dict[bytes, bytes]) -> datetime | None:
        """When the key of a request that was let in ends by itself; None: never."""
        text = _key_of(headers)
        return None if self._keyring is None or text is None else self._keyring.end_of(text)

    async def admit(self, headers: dict[bytes, bytes], method: str = "") -> Grant:
        """What the caller may do, or KeyRefused. By the method it is told whether a ticket is enough; a key always is."""
        if self._find is None:
            return OPEN
        text = _key_of(headers)
        if text is None and method in LOOKS and self._find_ticket is not None and (ticket := ticket_of(headers)) is not None:
            seen = await self._find_ticket(ticket)
            if seen is None:
                raise KeyRefused("this sign-in is over, or its key is no longer good; sign in again")
            return seen
        if text is None:
            raise KeyRefused(
                "a key is needed: in GENLOCK_API_KEY, as connect(api_key=…), or in the header 'authorization: Bearer glk_…'; "
                "`genlock keys create` makes one"
            )
        try:
            grant = await self._find(text)
        except BadArgument as error:  # it says what is wrong with the key, and nothing of it
            raise KeyRefused(str(error)) from None
        if grant is None:
            raise KeyRefused(NOT_GOOD)
        return grant


def came_by_ticket(headers: dict[bytes, bytes]) -> bool:
    """Did this request, which was let in, come by a ticket?"""
    return _key_of(headers) is None and ticket_of(headers) is not None


def brings_key(headers: dict[bytes, bytes]) -> bool:
    """Has it a key or a ticket, good or not?"""
    return _key_of(headers) is not None or ticket_of(headers) is not None


def _key_of(headers: dict[bytes, bytes]) -> str | None:
    given = headers.get(b"authorization")
    if given is not None:
        text = given.decode("latin-1")
        return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else None
    other = headers.get(b"x-api-key")
    return None if other is None else other.decode("latin-1").strip()


def _without_port(host: str) -> str:
    """The name or address; nothing if something else than a port is behind it."""
    name, bracket, behind = host.rpartition("]")
    start, _, port = behind.partition(":")
    if not (port.isdecimal() or not port) or (bracket and start):
        return ""
    return name + bracket + start
